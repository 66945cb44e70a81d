"""
One request, one answer, inside one budget. Everything that leaves for a provider leaves here.

No retries, no redirects, no cookies, no proxies or settings from the environment, no compressed answers asked for, and
nothing of a URL, header or body in an exception or a log: the caller gets a value. The budget covers the whole call: a
name that does not resolve, a handshake that hangs, an answer that drips.
"""

import asyncio
import email.utils
import logging
import queue
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any, Final

import httpx

from quitclaim.providers.addresses import is_reachable

ANSWER_CAP: Final = 64 * 1024
RETRY_AFTER_CAP_MS: Final = 24 * 3_600_000
USER_AGENT: Final = "quitclaim/0.1 (OAuth grant custody)"
READABLE_CODINGS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""Content codings that are undone although none was asked for, with zlib's window bits: a grant may be inside."""


@dataclass(frozen=True)
class OutgoingRequest:
    """A request as it will be sent. Only method and host may be shown."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False, default=b"")


@dataclass(frozen=True)
class RawAnswer:
    """What came back, unjudged."""

    status: int
    body: bytes = field(repr=False, default=b"")
    content_type: str = ""
    retry_after_ms: int | None = None
    has_bearer_challenge: bool = False  # WWW-Authenticate: Bearer (RFC 6750 section 3)
    complete: bool = True  # False: cut off by the budget, by the cap or by the other side
    date: float | None = None  # the other side's clock (RFC 9110 section 6.6.1), in seconds since 1970


@dataclass(frozen=True)
class NoAnswer:
    """Nothing came back. *sent* is False only where the request provably did not leave."""

    sent: bool
    reason: str


type Answer = RawAnswer | NoAnswer


def silence_http_loggers() -> None:
    """The HTTP libraries log URLs and headers: they say nothing, at whatever level the application logs."""
    for name in ("httpx", "httpcore", "aiohttp", "hpack"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL + 1)
        logger.propagate = False


silence_http_loggers()


@cache
def tls_context() -> ssl.SSLContext:
    """The one TLS context: making it costs more than a request."""
    return httpx.create_ssl_context(trust_env=False)


# --- one blocking call --------------------------------------------------------------------------------------------


def sync_http(transport: httpx.BaseTransport | None = None) -> httpx.Client:
    """
    The client of exchange, refresh and identity.

    It keeps no connection alive: one that died while the function was frozen would take the request with it, and the
    outcome of an exchange or refresh would be unknown for no reason.
    """
    return httpx.Client(
        transport=transport or PinnedTransport(),
        headers={},
        cookies=_no_cookies(),
        follow_redirects=False,
        trust_env=False,
    )


def send(http: httpx.Client, request: OutgoingRequest, timeout_ms: int) -> Answer:
    """Send *request* once; the answer within *timeout_ms*, or what is known without one. Raises nothing of httpx."""
    if timeout_ms <= 0:
        return NoAnswer(sent=False, reason="no_time")
    cutoff = _Cutoff(timeout_ms / 1000)
    try:
        with (
            cutoff,
            http.stream(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.body,
                timeout=cutoff.seconds,
                follow_redirects=False,
                extensions={"trace": cutoff.trace, "cutoff": cutoff},
            ) as response,
        ):
            return _received(response, *_drain(response, cutoff))
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as fault:
        return _no_answer(fault, late=cutoff.is_over)


def _drain(response: httpx.Response, cutoff: "_Cutoff") -> tuple[bytes, bool]:
    """What of the body arrived in time, and whether that is all of it."""
    if response.is_stream_consumed:  # a transport that was given for a test answers whole
        return response.content[:ANSWER_CAP], len(response.content) <= ANSWER_CAP
    body = bytearray()
    try:
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > ANSWER_CAP or cutoff.is_over:
                return bytes(body[:ANSWER_CAP]), False
    except httpx.HTTPError:
        return bytes(body), False
    return bytes(body), not cutoff.is_over


class _Cutoff:
    """
    Ends a call when its time is over, whatever it is waiting for.

    The library's time-outs are per read, so an answer that drips would never meet one. At the end of the budget the
    connection is shut down under the library's feet: every wait on it returns. A duplicate of the socket is used, for
    TLS takes the original over.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self._ends

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._ends - time.monotonic()

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """httpx's `trace` extension: tells of every connection that is made."""
        if name != "connection.connect_tcp.complete":
            return
        made = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets.append(made.dup())
        if self.is_over:
            self._cut()

    def _cut(self) -> None:
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "_Cutoff":
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()


type Resolver = Callable[[str, int, float], list[str]]
"""Host, port and seconds to the host's addresses; raises OSError or TimeoutError."""


class PinnedTransport(httpx.BaseTransport):
    """
    Connects to an address that was judged, and to no other (S-8).

    The name is resolved here, every address is judged, and the connection goes to the address itself; the name goes
    into the Host header, the TLS handshake and the check of the certificate. An address that refuses the connection is
    followed by the next: nothing was sent yet.
    """

    def __init__(self, resolver: Resolver | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._resolve = resolver or resolved
        self._inner = httpx.HTTPTransport(
            verify=tls or tls_context(),
            trust_env=False,
            retries=0,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* to one address of its host."""
        host, cutoff = request.url.host, request.extensions["cutoff"]
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = self._addresses(host, port, cutoff.left)
        for tried, address in enumerate(addresses, 1):
            share = max(cutoff.left / (len(addresses) - tried + 1), 0.001)
            pinned = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={
                    **request.extensions,
                    "sni_hostname": host,
                    "timeout": {"connect": share, "pool": share, "read": cutoff.seconds, "write": cutoff.seconds},
                },
            )
            try:
                return self._inner.handle_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if tried == len(addresses) or cutoff.is_over:
                    raise
        raise httpx.ConnectError("refused_address")

    def _addresses(self, host: str, port: int, seconds: float) -> list[str]:
        try:
            found = self._resolve(host, port, seconds)
        except OSError:
            raise httpx.ConnectError("unresolved") from None
        return [address for address in dict.fromkeys(found) if is_reachable(host, address)]

    def close(self) -> None:
        """Close what is open."""
        self._inner.close()


def resolved(host: str, port: int, seconds: float) -> list[str]:
    """The addresses of *host*. The system's resolver knows no time-out, so a thread waits for it in our stead."""
    answers: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as fault:
            answers.put(fault if isinstance(fault, OSError) else OSError("no such name"))
        else:
            answers.put([str(address[0]) for *_, address in found])

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=max(seconds, 0.001))
    except queue.Empty:
        raise TimeoutError("no name in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


# --- many calls in flight -----------------------------------------------------------------------------------------


def async_http(transport: httpx.AsyncBaseTransport | None = None, *, in_flight: int = 100) -> httpx.AsyncClient:
    """
    The client of revocations, for one event loop.

    It runs on aiohttp, of which far more calls are in flight at the same cost, and may keep connections: a
    revocation whose outcome is unknown is simply sent again.
    """
    if transport is None:
        from quitclaim.providers.aio import aiohttp_transport  # only the sweep pays for importing aiohttp

        transport = aiohttp_transport(tls_context(), in_flight)
    return httpx.AsyncClient(
        transport=transport,
        headers={},
        cookies=_no_cookies(),
        follow_redirects=False,
        trust_env=False,
    )


async def send_async(http: httpx.AsyncClient, request: OutgoingRequest, timeout_ms: int) -> Answer:
    """As `send`, among others."""
    if timeout_ms <= 0:
        return NoAnswer(sent=False, reason="no_time")
    try:
        async with (
            asyncio.timeout(timeout_ms / 1000),
            http.stream(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.body,
                timeout=timeout_ms / 1000,
                follow_redirects=False,
            ) as response,
        ):
            return _received(response, *await _drain_async(response))
    except TimeoutError:
        return NoAnswer(sent=True, reason="timeout")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as fault:
        return _no_answer(fault, late=False)


async def _drain_async(response: httpx.Response) -> tuple[bytes, bool]:
    if response.is_stream_consumed:
        return response.content[:ANSWER_CAP], len(response.content) <= ANSWER_CAP
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > ANSWER_CAP:
                return bytes(body[:ANSWER_CAP]), False
    except httpx.HTTPError:
        return bytes(body), False
    return bytes(body), True


# --- answers and faults -------------------------------------------------------------------------------------------

NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)
"""Raised before the first byte of a request is written. Whatever else is raised may have happened after it."""


def _no_answer(fault: Exception, *, late: bool) -> NoAnswer:
    if isinstance(fault, NOT_SENT):
        return NoAnswer(sent=False, reason="not_connected")
    return NoAnswer(
        sent=True, reason="timeout" if late or isinstance(fault, httpx.TimeoutException) else "connection_lost"
    )


def _received(response: httpx.Response, raw: bytes, complete: bool) -> RawAnswer:
    body, undone = _undo_coding(raw, response.headers.get("content-encoding", ""))
    return RawAnswer(
        status=response.status_code,
        body=body,
        content_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        retry_after_ms=retry_after_ms(response.headers.get("retry-after"), response.headers.get("date")),
        has_bearer_challenge=response.headers.get("www-authenticate", "").lower().startswith("bearer"),
        complete=complete and undone,
        date=instant.timestamp() if (instant := _instant(response.headers.get("date", ""))) is not None else None,
    )


def _undo_coding(raw: bytes, coding: str) -> tuple[bytes, bool]:
    """The body without its content coding, never more than the cap of it, and whether that is all."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return raw, True
    if coding not in READABLE_CODINGS:
        return raw, False
    inflate = zlib.decompressobj(READABLE_CODINGS[coding])
    try:
        body = inflate.decompress(raw, ANSWER_CAP)
    except zlib.error:
        return raw, False
    return body, inflate.eof


def retry_after_ms(value: str | None, date: str | None) -> int | None:
    """
    How long a provider asks to be left alone (RFC 9110 section 10.2.3): seconds, or a date by the answer's own clock.

    None where nothing usable is said; never more than a day, never less than nothing.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1000, RETRY_AFTER_CAP_MS)
    until, since = _instant(text), _instant(date or "")
    if until is None or since is None:
        return None
    return max(0, min(int((until - since).total_seconds() * 1000), RETRY_AFTER_CAP_MS))


def _instant(text: str) -> datetime | None:
    try:
        instant = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _no_cookies() -> CookieJar:
    """A jar that takes nothing: what a provider sets on one grant's call must not travel with another's."""
    nobody: Sequence[str] = ()
    return CookieJar(DefaultCookiePolicy(allowed_domains=nobody))
