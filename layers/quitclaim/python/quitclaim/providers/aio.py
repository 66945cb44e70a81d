"""The httpx transport on aiohttp. Imported by the functions that have many calls in flight, and by no other."""

import socket
import ssl
from typing import Final

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from httpx_aiohttp import AiohttpTransport

from quitclaim.providers.addresses import is_reachable

IDLE_S: Final = 15.0
NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class JudgingResolver(AbstractResolver):
    """Names to addresses that may be called, and to no other (S-8); the connection goes to the address it gives."""

    def __init__(self) -> None:
        self._names = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of *host*; raises OSError where none may be called."""
        found = await self._names.resolve(host, port, family)
        good = [each for each in found if is_reachable(host, each["host"])]
        if not good:
            raise OSError("no address of this host may be called")
        return good

    async def close(self) -> None:
        """Nothing is kept."""
        await self._names.close()


class _HonestTransport(httpx.AsyncBaseTransport):
    """
    Says whether a request left.

    The transport underneath calls every lost connection a ConnectTimeout, also one that was lost after the send, and
    lets some errors of aiohttp through, with the URL in them.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*; raises ConnectError where it did not leave, else ReadTimeout or ReadError."""
        try:
            return await self._inner.handle_async_request(request)
        except (httpx.TransportError, aiohttp.ClientError, OSError) as fault:
            cause = fault.__cause__ if isinstance(fault, httpx.TransportError) else fault
            if isinstance(cause, NOT_SENT):
                raise httpx.ConnectError("not_connected") from None
            if isinstance(cause, TimeoutError):
                raise httpx.ReadTimeout("timeout") from None
            raise httpx.ReadError("connection_lost") from None

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()


def aiohttp_transport(tls: ssl.SSLContext, in_flight: int) -> httpx.AsyncBaseTransport:
    """A transport for one event loop: made at its first request, closed with its client."""

    def session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=tls, resolver=JudgingResolver(), limit=in_flight, limit_per_host=in_flight, keepalive_timeout=IDLE_S
        )
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)

    return _HonestTransport(AiohttpTransport(verify=tls, trust_env=False, client=session))
