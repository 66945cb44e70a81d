"""
The HTTP API: routes, signatures and policies as the template asks for them, one payload-2.0 event per request.

What it refuses, it refuses in the service's words: 404 for a route that does not exist, 403 for a caller that may not,
503 when there is no answer within the integration timeout or the worker was killed, 500 when the function failed.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO
from urllib.parse import unquote

from infra.local.asgi import BodyTooLargeError, Receive, Scope, Send, answer, answer_json, headers_of, read_body
from infra.local.events import HttpRequest, Stage, UnreadableAnswerError, answer_of, event_of, new_request_id
from infra.local.policies import is_allowed
from infra.local.principals import Principal
from infra.local.routes import Match, Route, match
from infra.local.signatures import Request, SignatureRefusedError, verified_access_key
from infra.local.template import REGION
from infra.local.workers import Pool, Verdict

MAX_HEAD_BYTES = 10_240
MAX_BODY_BYTES = 10 * 1024 * 1024
INTEGRATION_TIMEOUT_S = 30.0


class HttpFront:
    """The ASGI application of the HTTP API."""

    def __init__(
        self,
        routes: tuple[Route, ...],
        pools: Mapping[str, Pool],
        principals: Mapping[str, Principal],
        stage: Stage,
        access_log: TextIO,
        *,
        integration_timeout_s: float = INTEGRATION_TIMEOUT_S,
    ) -> None:
        self._routes = routes
        self._pools = pools
        self._principals = principals
        self._stage = stage
        self._access_log = access_log
        self._integration_timeout_s = integration_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and write one line to the access log: route key, never path, query or headers."""
        request_id, began = new_request_id(), time.monotonic()
        found, status, why = None, 500, ""
        try:
            found, status, why = await self._serve(scope, receive, send, request_id)
        finally:
            line = {
                "requestId": request_id,
                "routeKey": found.route.key if found else "-",
                "status": status,
                "latencyMs": round((time.monotonic() - began) * 1000),
                "why": why,
            }
            self._access_log.write(json.dumps(line) + "\n")
            self._access_log.flush()

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> tuple[Match | None, int, str]:
        headers = headers_of(scope)
        raw_path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        own = [("apigw-requestid", request_id)]

        async def refuse(found: Match | None, status: int, message: str, why: str) -> tuple[Match | None, int, str]:
            await answer_json(send, status, {"message": message}, own)
            return found, status, why

        if _head_size(scope["method"], raw_path, query, headers) > MAX_HEAD_BYTES:
            return await refuse(None, 431, "Request Header Fields Too Large", "head too large")
        try:
            body = await read_body(receive, MAX_BODY_BYTES)
        except BodyTooLargeError:
            return await refuse(None, 413, "Request Entity Too Large", "body too large")
        found = match(self._routes, scope["method"], raw_path)
        if found is None:
            return await refuse(None, 404, "Not Found", "no route")
        request = HttpRequest(
            scope["method"], raw_path, query, headers, body, scope["client"][0], f"HTTP/{scope['http_version']}"
        )
        caller = None
        if found.route.signed:
            try:
                caller = self._authorized(request)
            except SignatureRefusedError as refused:
                return await refuse(found, 403, "Forbidden", str(refused))
        event = event_of(request, found, self._stage, request_id=request_id, now=datetime.now(UTC), caller=caller)
        pool = self._pools[found.route.function]
        try:
            async with asyncio.timeout(self._integration_timeout_s):
                outcome = await pool.invoke(json.dumps(event).encode(), trace_id=event["headers"]["x-amzn-trace-id"])
        except TimeoutError:
            return await refuse(found, 503, "Service Unavailable", "integration timeout")
        if outcome.verdict is Verdict.WORKER_ENDED:
            return await refuse(found, 503, "Service Unavailable", outcome.verdict)
        if outcome.is_function_error:
            return await refuse(found, 500, "Internal Server Error", outcome.verdict)
        try:
            given = answer_of(outcome.payload)
        except UnreadableAnswerError as unreadable:
            return await refuse(found, 500, "Internal Server Error", str(unreadable))
        await answer(send, given.status, given.body, [*given.headers, *own])
        return found, given.status, ""

    def _authorized(self, request: HttpRequest) -> Principal:
        """The caller that signed, if its policy allows this call; `SignatureRefusedError` otherwise."""
        signed = Request(request.method, request.raw_path, request.query, request.headers, request.body)
        access_key = verified_access_key(signed, region=REGION, secret_of=self._secret_of)
        caller = self._principals[access_key]
        api = f"arn:aws:execute-api:{REGION}:{self._stage.account_id}:{self._stage.api_id}"
        # Both spellings must be allowed: nothing passes because a policy was written for the other one.
        for path in {request.raw_path, unquote(request.raw_path)}:
            if is_allowed(caller.policy, "execute-api:Invoke", f"{api}/$default/{request.method}{path}"):
                continue
            raise SignatureRefusedError(f"the policy of {caller.name} does not allow it")
        return caller

    def _secret_of(self, access_key: str) -> str | None:
        principal = self._principals.get(access_key)
        return principal.secret if principal else None


def _head_size(method: str, raw_path: str, query: str, headers: list[tuple[str, str]]) -> int:
    target = len(raw_path) + (len(query) + 1 if query else 0)
    line = len(method) + 1 + target + len(" HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in headers)
