"""The few lines of ASGI that the front, the Runtime API, the Invoke API and the control endpoint share."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
type App = Callable[[Scope, Receive, Send], Awaitable[None]]
type Headers = list[tuple[str, str]]


class BodyTooLargeError(Exception):
    """The request body is longer than the endpoint takes."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole request body; `BodyTooLargeError` as soon as it exceeds *limit* bytes."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > limit:
            raise BodyTooLargeError
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)


def headers_of(scope: Scope) -> Headers:
    """The request's headers as text, lower-cased by the server, in the order in which they came."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]


def header(scope: Scope, name: str, default: str = "") -> str:
    """The first header called *name* (lower case)."""
    return next((value for key, value in headers_of(scope) if key == name), default)


async def answer(send: Send, status: int, body: bytes = b"", headers: Headers | None = None) -> None:
    """Send a whole response."""
    given = headers or []
    # A 204 and 304 must not carry a length (RFC 9110, section 8.6).
    length = [] if status in (204, 304) else [("content-length", str(len(body)))]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in [*given, *length]],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, status: int, value: object, headers: Headers | None = None) -> None:
    """Send *value* as JSON."""
    await answer(
        send,
        status,
        json.dumps(value, separators=(",", ":")).encode(),
        [("content-type", "application/json"), *(headers or [])],
    )
