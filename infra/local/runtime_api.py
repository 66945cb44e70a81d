"""
The Lambda Runtime API of one worker (2018-06-01): next invocation, response, error, and failed init.

Each worker has a port of its own, so a call on it comes from that worker's process and no other.
"""

import json
import re

from infra.local.asgi import App, BodyTooLargeError, Receive, Scope, Send, answer, answer_json, header, read_body
from infra.local.workers import Verdict, Worker

MAX_RESPONSE_BYTES = 6 * 1024 * 1024 + 64 * 1024
_END = re.compile(r"/2018-06-01/runtime/invocation/(?P<id>[\w-]+)/(?P<how>response|error)")
_ACCEPTED = {"status": "OK"}


def runtime_api(worker: Worker, arn: str) -> App:
    """The application behind *worker*'s port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "GET" and path == "/2018-06-01/runtime/invocation/next":
            await _next(worker, arn, send)
        elif method == "POST" and (ended := _END.fullmatch(path)):
            await _end(worker, ended, receive, send)
        elif method == "POST" and path == "/2018-06-01/runtime/init/error":
            worker.init_error = await read_body(receive, MAX_RESPONSE_BYTES)
            await answer_json(send, 202, _ACCEPTED)
        else:
            await answer_json(send, 404, {"errorType": "NotFound", "errorMessage": header(scope, "host")})

    return app


async def _next(worker: Worker, arn: str, send: Send) -> None:
    invocation = await worker.next_invocation()
    if invocation is None:  # the process that asked is gone
        await answer_json(send, 410, {"errorType": "WorkerEnded", "errorMessage": "nobody asks any more"})
        return
    headers = [
        ("content-type", "application/json"),
        ("Lambda-Runtime-Aws-Request-Id", invocation.request_id),
        ("Lambda-Runtime-Deadline-Ms", str(invocation.deadline_ms)),
        ("Lambda-Runtime-Invoked-Function-Arn", arn),
    ]
    if invocation.trace_id:
        headers.append(("Lambda-Runtime-Trace-Id", invocation.trace_id))
    if invocation.client_context:
        headers.append(("Lambda-Runtime-Client-Context", invocation.client_context))
    await answer(send, 200, invocation.payload, headers)


async def _end(worker: Worker, ended: re.Match[str], receive: Receive, send: Send) -> None:
    verdict = Verdict.RETURNED if ended["how"] == "response" else Verdict.RAISED
    try:
        payload = await read_body(receive, MAX_RESPONSE_BYTES)
    except BodyTooLargeError:
        verdict = Verdict.RAISED
        problem = "Response payload size exceeded maximum allowed payload size (6291556 bytes)."
        payload = json.dumps({"errorType": "Function.ResponseSizeTooLarge", "errorMessage": problem}).encode()
    if worker.finish(ended["id"], verdict, payload):
        await answer_json(send, 202, _ACCEPTED)
    else:
        await answer_json(send, 400, {"errorType": "InvalidRequestID", "errorMessage": "not the current invocation"})
