"""
Lambda's Invoke API for the local functions, the one that boto3's Lambda client calls.

RequestResponse waits for the result. Event is answered at once; such an event waits for a worker no longer than the
template's maximum age and is not tried again, because the product asks Lambda for exactly that.
"""

import asyncio
import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from infra.local.asgi import BodyTooLargeError, Receive, Scope, Send, answer, answer_json, header, read_body
from infra.local.template import Template
from infra.local.workers import EventTooOldError, Pool

MAX_SYNC_BYTES = 6 * 1024 * 1024
MAX_ASYNC_BYTES = 1024 * 1024
_INVOKE = re.compile(r"/2015-03-31/functions/(?P<name>[^/]+)/invocations/?")


class LambdaApi:
    """The ASGI application; also starts the asynchronous invocations of the schedules."""

    def __init__(self, template: Template, pools: Mapping[str, Pool], tell: Callable[[str], None]) -> None:
        self._template = template
        self._pools = pools
        self._tell = tell
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        raw_path = scope["raw_path"].decode("latin-1")
        found = _INVOKE.fullmatch(raw_path)
        if scope["method"] != "POST" or found is None:
            await _refuse(send, 404, "UnknownOperationException", "only Invoke is played here")
            return
        pool = self._pool(unquote(found["name"]))
        if pool is None:
            await _refuse(send, 404, "ResourceNotFoundException", f"Function not found: {unquote(found['name'])}")
            return
        kind = header(scope, "x-amz-invocation-type", "RequestResponse")
        if kind not in ("RequestResponse", "Event", "DryRun"):
            await _refuse(send, 400, "InvalidParameterValueException", f"unknown invocation type {kind}")
            return
        try:
            payload = await read_body(receive, MAX_ASYNC_BYTES if kind == "Event" else MAX_SYNC_BYTES) or b"{}"
            json.loads(payload)
        except BodyTooLargeError:
            await _refuse(send, 413, "RequestTooLargeException", "the payload is too large")
            return
        except ValueError:
            await _refuse(send, 400, "InvalidRequestContentException", "Could not parse request body into json")
            return
        request_id = str(uuid.uuid4())
        headers = [("x-amzn-requestid", request_id)]
        if kind == "DryRun":
            await answer(send, 204, b"", headers)
        elif kind == "Event":
            self.invoke_later(pool, payload, request_id)
            await answer(send, 202, b"", headers)
        else:
            context = header(scope, "x-amz-client-context")
            outcome = await pool.invoke(
                payload,
                request_id=request_id,
                client_context=base64.b64decode(context).decode() if context else None,
                trace_id=header(scope, "x-amzn-trace-id"),
            )
            headers += [("content-type", "application/json"), ("x-amz-executed-version", "$LATEST")]
            if outcome.is_function_error:
                headers.append(("x-amz-function-error", "Unhandled"))
            await answer(send, 200, outcome.payload, headers)

    def invoke_later(self, pool: Pool, payload: bytes, request_id: str) -> None:
        """Invoke asynchronously: once, if a worker is free before the event is too old."""
        task = asyncio.create_task(self._invoke_once(pool, payload, request_id))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _invoke_once(self, pool: Pool, payload: bytes, request_id: str) -> None:
        name = pool.function.name
        try:
            outcome = await pool.invoke(payload, request_id=request_id, start_within_s=pool.function.max_event_age_s)
        except EventTooOldError:
            self._tell(f"{name}: an asynchronous event ({request_id}) was dropped, no worker was free in time")
            return
        if outcome.is_function_error:
            self._tell(f"{name}: an asynchronous event ({request_id}) failed: {outcome.verdict}")

    def _pool(self, name: str) -> Pool | None:
        # A qualifier is cut off: there is one version of each function here.
        name = name.removesuffix(":$LATEST")
        function = self._template.named(name)
        named = function is not None and name in (function.full_name, function.arn)
        return self._pools[function.name] if function is not None and named else None


async def _refuse(send: Send, status: int, kind: str, message: str) -> None:
    await answer_json(send, status, {"Type": "User", "Message": message}, [("x-amzn-errortype", kind)])
