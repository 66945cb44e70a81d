"""Answers that are held back: the provider has acted, and its client does not know yet."""

import io
import json
import select
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CONNECTION = "quitclaim.connection"
"""Key of the request's socket in the WSGI environment; the server puts it there."""
LOOK_EVERY_S = 0.02

type ExcInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


@dataclass(slots=True)
class Stall:
    """The next *times* requests of *path* wait: with `after` once the provider has acted, else before it acts."""

    path: str
    after: bool
    times: int

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Self:
        """What a test asked for; a wrong type is a ValueError, because a fault that never happens proves nothing."""
        path, after, times = asked.get("path"), asked.get("after", True), asked.get("times", 1)
        if not (isinstance(path, str) and path.startswith("/") and isinstance(after, bool) and isinstance(times, int)):
            raise ValueError('a stall is {"path": "/…", "after": true|false, "times": n}')
        return cls(path, after, times)


class Stalls:
    """The stalls that are armed, and the answers that wait. Safe for threads: every request has one of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Stall] = []
        self._waiting: dict[int, str] = {}
        self._release = threading.Event()
        self._next = 0

    def arm(self, stall: Stall) -> None:
        """Arm *stall* in place of an earlier one of its path; `times` 0 disarms the path."""
        with self._lock:
            self._armed = [armed for armed in self._armed if armed.path != stall.path]
            if stall.times > 0:
                self._armed.append(stall)

    def take(self, path: str) -> Stall | None:
        """The stall that this request of *path* has to obey, counted down."""
        with self._lock:
            found = next((armed for armed in self._armed if armed.path == path), None)
            if found is not None:
                found.times -= 1
                if found.times == 0:
                    self._armed.remove(found)
            return found

    def hold(self, path: str, connection: socket.socket | None) -> bool:
        """Wait until released (True) or until the client has gone (False)."""
        with self._lock:
            self._next += 1
            me, released = self._next, self._release
            self._waiting[me] = path
        try:
            while not released.wait(LOOK_EVERY_S):
                if connection is not None and _has_gone(connection):
                    return False
            return True
        finally:
            with self._lock:
                del self._waiting[me]

    def release(self) -> int:
        """Let go of every answer that waits now; what is armed stays armed. Answers how many there were."""
        with self._lock:
            count, released = len(self._waiting), self._release
            self._release = threading.Event()
        released.set()
        return count

    def waiting(self) -> list[str]:
        """The paths of the answers that wait now."""
        with self._lock:
            return list(self._waiting.values())


def _has_gone(connection: socket.socket) -> bool:
    """The client has sent its whole request, so a socket that is readable and has nothing to read was closed."""
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True


class HeldAnswers:
    """WSGI middleware: stalls by path, and the control paths `/_control/{stall,release,stalled}`."""

    def __init__(self, app: WSGIApplication, stalls: Stalls) -> None:
        self._app = app
        self._stalls = stalls

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in ("/_control/stall", "/_control/release", "/_control/stalled"):
            return self._control(path, environ, start_response)
        stall = self._stalls.take(path)
        if stall is None:
            return self._app(environ, start_response)
        # The whole request is read first: what its client sends after that can only be its end.
        environ["wsgi.input"] = io.BytesIO(_body_of(environ))
        if not stall.after:
            # A client that went away before the provider acted: the request counts as lost on its way.
            if not self._stalls.hold(path, environ.get(CONNECTION)):
                return _answer(start_response, "408 Request Timeout", {})
            return self._app(environ, start_response)
        return self._act_then_hold(path, environ, start_response)

    def _act_then_hold(self, path: str, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Let the provider act to the end, its transaction committed, and hold its answer back."""
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def remember(status: str, headers: list[tuple[str, str]], _: ExcInfo | None = None, /) -> Any:
            begun[:] = [(status, headers)]
            return lambda _: None

        answer = self._app(environ, remember)
        body = b"".join(answer)
        if hasattr(answer, "close"):
            answer.close()
        self._stalls.hold(path, environ.get(CONNECTION))
        start_response(*begun[0])
        return [body]

    def _control(self, path: str, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if path == "/_control/stalled":
            waiting = self._stalls.waiting()
            return _answer(start_response, "200 OK", {"count": len(waiting), "paths": waiting})
        if environ["REQUEST_METHOD"] != "POST":
            return _answer(start_response, "405 Method Not Allowed", {"error": "POST only"})
        if path == "/_control/release":
            return _answer(start_response, "200 OK", {"released": self._stalls.release()})
        try:
            asked = json.loads(_body_of(environ))
            self._stalls.arm(Stall.of(asked))
        except (ValueError, AttributeError) as fault:
            return _answer(start_response, "400 Bad Request", {"error": str(fault)})
        return _answer(start_response, "200 OK", {"armed": asked["path"], "at": int(time.time() * 1000)})


def _body_of(environ: WSGIEnvironment) -> bytes:
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return body


def _answer(start_response: StartResponse, status: str, content: dict[str, Any]) -> Iterable[bytes]:
    body = json.dumps(content).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
