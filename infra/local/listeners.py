"""
Every listening port of the supervisor, served by one uvicorn.

The application is chosen by the port a request came in on. That is how the Runtime API knows which worker polls,
without a path or a header that the runtime client would have to send. asyncio switches Nagle's algorithm off only where
the listening socket names its protocol, so `bind` does; with it, one invocation takes 44 ms instead of one.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from infra.local.asgi import App, Receive, Scope, Send, answer_json, header

LOOPBACK = "127.0.0.1"


def bind(preferred: int = 0) -> socket.socket:
    """A listening socket on loopback: on *preferred* if that port is free, else on any free one."""
    for port in (preferred, 0) if preferred else (0,):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            sock.close()
            continue
        sock.setblocking(False)
        return sock
    raise OSError("no free port on loopback")


def free_port(preferred: int = 0) -> int:
    """A port that a child process can listen on: *preferred* if it is free."""
    with bind(preferred) as sock:
        return int(sock.getsockname()[1])


class _Quiet(uvicorn.Server):
    """A server that leaves the signals to the supervisor."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listeners:
    """Ports and the application behind each of them."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._apps: dict[int, App] = {}
        self._for_browsers: set[int] = set()
        self._server: _Quiet | None = None
        self._serving: asyncio.Task[None] | None = None

    def reserve(self, preferred: int = 0) -> int:
        """Bind a port now, so that its number can be told to others; its application may follow with `mount`."""
        sock = bind(preferred)
        self._sockets.append(sock)
        return int(sock.getsockname()[1])

    def mount(self, port: int, app: App, *, for_browsers: bool = False) -> None:
        """Serve *app* on a reserved port; requests that a page in a browser sends are refused unless *for_browsers*."""
        self._apps[port] = app
        if for_browsers:
            self._for_browsers.add(port)

    async def start(self) -> None:
        """Serve all reserved ports; returns when they accept connections."""
        config = uvicorn.Config(
            self._by_port,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # X-Forwarded-For of a client is data, not the client's address
            timeout_keep_alive=3600,  # a worker keeps one connection while it works on an invocation
            timeout_graceful_shutdown=2,
        )
        self._server = _Quiet(config)
        self._serving = asyncio.create_task(self._server.serve(self._sockets))
        while not self._server.started:
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Close every port and wait for the requests in progress, two seconds at most."""
        if self._server is None or self._serving is None:
            for sock in self._sockets:
                sock.close()
            return
        self._server.should_exit = True
        await self._serving

    async def _by_port(self, scope: Scope, receive: Receive, send: Send) -> None:
        port = scope["server"][1]
        app = self._apps.get(port)
        # Any page in a browser can send requests to loopback, under its own name (DNS rebinding) or under ours; it can
        # choose neither the host nor the origin that its browser writes.
        is_ours = header(scope, "host") in (f"{LOOPBACK}:{port}", f"localhost:{port}")
        from_page = header(scope, "origin") != "" and port not in self._for_browsers
        if app is None or not is_ours or from_page:
            await answer_json(send, 403, {"message": "Forbidden"})
            return
        await app(scope, receive, send)
