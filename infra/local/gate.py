"""
The gate: where a stack has one, every AWS call of a worker passes here, and a test can hold it back.

The provider's faults stop a worker at its calls to the provider; this stops it at those to the table, the keys and
other functions. A call is held before it reaches AWS, or once AWS has acted and the answer is on its way; a worker that
is killed at such a call leaves behind what it would leave in earnest.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from infra.local.asgi import App, Headers, Receive, Scope, Send, answer, header, headers_of, read_body

MAX_BYTES: Final = 16 * 1024 * 1024
TIMEOUT_S: Final = 60.0  # a function that invokes another waits as long as that one works
LAMBDA_PATH: Final = "/2015-03-31/"
NOT_FORWARDED: Final = frozenset({"host", "content-length", "connection", "transfer-encoding"})


@dataclass(frozen=True)
class Shut:
    """The *nth* call of that name from now on waits, and those that follow it (a worker repeats what has no answer)."""

    call: str
    nth: int
    after: bool


@dataclass
class _Way:
    """One function's way to AWS."""

    shut: Shut | None = None
    seen: int = 0
    waiting: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)


class Gate:
    """The gates of all functions. A call is named as its service does: `UpdateItem`, `Decrypt`, `Invoke`."""

    def __init__(self, ministack_url: str, lambda_url: str) -> None:
        self._ministack_url = ministack_url
        self._lambda_url = lambda_url
        self._ways: defaultdict[str, _Way] = defaultdict(_Way)
        self._http = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)

    def app_of(self, function: str) -> App:
        """The application that stands for AWS before *function*."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            body = await read_body(receive, MAX_BYTES)
            way = self._ways[function]
            shut = _counted(way, _name(scope))
            if shut is not None and not shut.after and not await _hold(way, receive):
                await answer(send, 503)  # nobody reads it: the call was lost on its way
                return
            status, headers, content = await self._forwarded(scope, body)
            if shut is not None and shut.after:
                await _hold(way, receive)
            await answer(send, status, content, headers)

        return app

    def shut(self, function: str, shut: Shut) -> None:
        """Hold the calls of *function* from now on, and remember those that come."""
        way = self._ways[function]
        way.shut, way.seen, way.calls = shut, 0, []

    def open(self, function: str) -> int:
        """Let go of every call that waits, and hold none any more; how many there were."""
        way = self._ways[function]
        waiting, way.shut, way.calls = way.waiting, None, []
        way.opened.set()
        way.opened = asyncio.Event()
        return waiting

    def said(self, function: str) -> dict[str, Any]:
        """How many calls wait, and the names of all since the gate was last shut or opened."""
        way = self._ways[function]
        return {"waiting": way.waiting, "calls": way.calls}

    async def close(self) -> None:
        """Let go of everything and close the connections."""
        for function in self._ways:
            self.open(function)
        await self._http.aclose()

    async def _forwarded(self, scope: Scope, body: bytes) -> tuple[int, Headers, bytes]:
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        upstream = self._lambda_url if path.startswith(LAMBDA_PATH) else self._ministack_url
        headers = [(name, value) for name, value in headers_of(scope) if name not in NOT_FORWARDED]
        url = f"{upstream}{path}" + (f"?{query}" if query else "")
        request = self._http.build_request(scope["method"], url, headers=headers, content=body)
        response = await self._http.send(request, stream=True)
        try:
            content = b"".join([part async for part in response.aiter_raw()])
        finally:
            await response.aclose()
        given = [(name, value) for name, value in response.headers.items() if name not in NOT_FORWARDED]
        return response.status_code, given, content


def _name(scope: Scope) -> str:
    """The last word of X-Amz-Target; Lambda has none."""
    if scope["path"].startswith(LAMBDA_PATH):
        return "Invoke"
    return header(scope, "x-amz-target").rpartition(".")[2]


def _counted(way: _Way, call: str) -> Shut | None:
    way.calls.append(call)
    if way.shut is None or way.shut.call != call:
        return None
    way.seen += 1
    return way.shut if way.seen >= way.shut.nth else None


async def _hold(way: _Way, receive: Receive) -> bool:
    """Wait until opened (True) or until the worker has gone (False)."""
    way.waiting += 1
    opened, gone = asyncio.create_task(way.opened.wait()), asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({opened, gone}, return_when=asyncio.FIRST_COMPLETED)
        return opened.done()
    finally:
        way.waiting -= 1
        opened.cancel()
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
