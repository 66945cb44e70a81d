"""A server on this machine that does with a connection what a script says, and counts what it was asked."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

type Script = Callable[[socket.socket, bytes], None]
"""Gets the connection and the request that was read from it."""


class ScriptedServer:
    """Every connection is greeted, and every request on it handled by *script*, in a thread of its own."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None, *, greeting: bytes = b"") -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script
        self._tls = tls
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._handle, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _handle(self, connection: socket.socket) -> None:
        with suppress(OSError):
            wrapped = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            self._open.append(wrapped)
            with wrapped:
                wrapped.sendall(self._greeting)
                while (request := self._read(wrapped)) is not None:
                    self.requests.append(request)
                    self._script(wrapped, request)

    def _read(self, connection: socket.socket) -> bytes | None:
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = connection.recv(65536)
            if not chunk:
                return None
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        lines = (line.lower() for line in head.split(b"\r\n"))
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def __enter__(self) -> "ScriptedServer":
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in [self._acceptor, *self._threads]:
            thread.join(5)
        for connection in self._open:
            connection.close()


def says(*parts: bytes, pause: float = 0.0, then_close: bool = False) -> Script:
    """Sends the parts, with a pause between, and closes or waits for the next request."""

    def script(connection: socket.socket, request: bytes) -> None:
        for number, part in enumerate(parts):
            if number:
                time.sleep(pause)
            connection.sendall(part)
        if then_close:
            connection.shutdown(socket.SHUT_RDWR)

    return script


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A whole HTTP/1.1 response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
