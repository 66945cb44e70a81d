"""
The simulated provider behind HTTP: the product's own client (`providers/client.py` on httpx) asks, and the ledger
answers through a transport, which can do to any request or answer what networks and providers do.

Time is the world's: a call's budget runs out because an answer drips, not because anybody waits.
"""

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qs

import httpx
import pytest
import yaml

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.outcomes import RevokeAnswer
from quitclaim.domain.revocations import Claimed
from quitclaim.domain.secret import Secret
from quitclaim.providers import transport
from quitclaim.providers.client import OAuthClient, ProviderHttp
from quitclaim.providers.compile import compiled_text
from quitclaim.providers.spec import ProviderSpec, spec_of
from tests.proof.ledger import Fault, Issued
from tests.proof.world import CLIENT, World
from tests.providers.specs import changed_entry

CLIENT_SECRET: Final = "Zb2mW0sPq7RkXv4TnLdYcH9uE3gJ"
PADDING: Final = "x" * 80_000
"""More than any answer may have."""


class HttpFault(StrEnum):
    """What happens to one request or its answer."""

    REFUSED = "connect refused"
    TLS = "TLS error"
    SILENT = "timeout before effect"
    LOST = "timeout after effect"
    RESET = "reset after effect"
    BUSY_UNTIL = "429 with Retry-After"
    BUSY = "429 without Retry-After"
    BROKE = "500"
    AWAY = "503 with Retry-After"
    ERROR_BODY = "200 with an error body"
    PAGE = "200 HTML"
    CUT = "200 truncated JSON"
    HUGE = "200 huge body"
    NO_REFRESH = "200 without a refresh token"
    OTHER_SUBJECT = "200 with another subject"
    NARROWER = "200 with a narrower scope"
    INVALID_GRANT = "400 invalid_grant"
    DRIP = "slow drip past the deadline"


UNACTED: Final = frozenset(
    {
        HttpFault.SILENT,
        HttpFault.BUSY_UNTIL,
        HttpFault.BUSY,
        HttpFault.AWAY,
        HttpFault.ERROR_BODY,
        HttpFault.INVALID_GRANT,
    }
)
"""The provider did nothing. Whatever breaks after the request was read comes at its worst: after the effect."""


REFUSALS: Final = frozenset({HttpFault.ERROR_BODY, HttpFault.INVALID_GRANT, HttpFault.OTHER_SUBJECT})
"""Verdicts on a token that lives all the same."""
AS_HTTP: Final = {
    Fault.NONE: None,
    Fault.LOST: HttpFault.LOST,
    Fault.NOT_ACTED: HttpFault.SILENT,
    Fault.NOT_SENT: HttpFault.REFUSED,
    Fault.REFUSED: HttpFault.INVALID_GRANT,
    Fault.BUSY: HttpFault.BUSY,
    Fault.MALFORMED: HttpFault.CUT,
}
"""The simulated client's faults, as the situations queue them."""


@dataclass
class Provider:
    """Its endpoints, and what goes wrong at them next."""

    world: World
    tells_account: bool = True
    echoes: bool = False
    """Its refusals quote what they were sent."""
    fault: dict[str, HttpFault] = field(default_factory=dict)  # endpoint -> of its next request
    requests: list[str] = field(default_factory=list)
    on_request: Callable[[str], None] = lambda endpoint: None
    """Before the effect of a request."""
    on_answer: Callable[[str], None] = lambda endpoint: None
    """After it, before the answer leaves."""

    def take(self, request: httpx.Request) -> httpx.Response:
        """One request of a blocking client."""
        response = self._answered(request)
        if isinstance(response, Dripping):
            return httpx.Response(200, headers=response.headers, stream=response)
        return response

    async def take_async(self, request: httpx.Request) -> httpx.Response:
        """One of the revocations in flight."""
        return self.take(request)

    def _answered(self, request: httpx.Request) -> "httpx.Response | Dripping":
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        endpoint = _endpoint(request, form)
        self.requests.append(endpoint)
        fault = self.fault.pop(endpoint, None) or AS_HTTP[self.world.fault(endpoint)]
        if fault is HttpFault.REFUSED:
            raise httpx.ConnectError("refused")
        if fault is HttpFault.TLS:
            raise httpx.ConnectError("certificate verify failed")
        self.on_request(endpoint)
        body = {} if fault in UNACTED else self._act(endpoint, request, form, fault)
        self.on_answer(endpoint)
        sent = f"{request.url} {request.content!r} {dict(request.headers)}"
        return self._met(endpoint, fault, body, {"error_description": sent} if self.echoes else {})

    def _act(
        self, endpoint: str, request: httpx.Request, form: dict[str, str], fault: HttpFault | None
    ) -> dict[str, Any] | None:
        """What the provider does, and the body of its answer; None where it refuses for good."""
        ledger, now = self.world.ledger, self.world.now
        if endpoint in ("exchange", "refresh", "revoke"):
            expected = base64.b64encode(f"client-1:{CLIENT_SECRET}".encode()).decode()
            assert request.headers["authorization"] == f"Basic {expected}", "the client did not authenticate"
        match endpoint:
            case "exchange" if fault is HttpFault.NO_REFRESH or not self.world.kind.gives_refresh:
                issued = ledger.exchange(form["code"], now)
                return None if issued is None else self._access_only(issued)
            case "exchange":
                issued = ledger.exchange(form["code"], now)
                return None if issued is None else self._grant(issued)
            case "refresh" if fault is HttpFault.NO_REFRESH:  # it is kept (RFC 6749 section 6)
                return {"access_token": f"at-{form['refresh_token']}-again", "token_type": "Bearer", "expires_in": 3600}
            case "refresh":
                issued = ledger.refresh(form["refresh_token"], now)
                return None if issued is None else self._grant(issued)
            case "revoke":
                ledger.revoke(form["token"])
                return {}
            case _:
                bearer = request.headers["authorization"].removeprefix("Bearer ").removeprefix("at-")
                token = ledger.tokens.get(bearer)
                return None if token is None else {"sub": token.account}

    def _access_only(self, issued: Issued) -> dict[str, Any]:
        return self._grant(issued) | {"access_token": issued.name, "refresh_token": None}

    def _grant(self, issued: Issued) -> dict[str, Any]:
        account = {"account": issued.account} if self.tells_account else {}
        return account | {
            "refresh_token": issued.name,
            "access_token": f"at-{issued.name}",
            "token_type": "Bearer",
            "expires_in": 3600,
        }

    def _met(
        self, endpoint: str, fault: HttpFault | None, body: dict[str, Any] | None, quoted: dict[str, str]
    ) -> "httpx.Response | Dripping":
        """The answer as the fault leaves it."""
        if fault in REFUSALS:
            self.world.seen.refusals += 1
        if body is None:
            return httpx.Response(400, json={"error": "invalid_grant", **quoted})
        match fault:
            case HttpFault.SILENT | HttpFault.LOST:
                self.world.now += 15_000
                raise httpx.ReadTimeout("no answer")
            case HttpFault.RESET:
                raise httpx.ReadError("connection reset by peer")
            case HttpFault.BUSY_UNTIL:
                return httpx.Response(429, json={"error": "slow_down", **quoted}, headers={"Retry-After": "120"})
            case HttpFault.BUSY:
                return httpx.Response(429)
            case HttpFault.BROKE:
                return httpx.Response(500, text=quoted.get("error_description", ""))
            case HttpFault.AWAY:
                return httpx.Response(503, headers={"Retry-After": "600"})
            case HttpFault.ERROR_BODY:
                return httpx.Response(200, json={"ok": False, "error": "bad_refresh_token", **body, **quoted})
            case HttpFault.PAGE:
                return httpx.Response(200, html="<!doctype html><title>Sign in to this network</title>")
            case HttpFault.CUT:
                return _raw(json.dumps(body)[:-12])
            case HttpFault.HUGE:
                return _raw(json.dumps(body | {"padding": PADDING}))
            case HttpFault.OTHER_SUBJECT:
                return httpx.Response(200, json={name: _other(name, value) for name, value in body.items()})
            case HttpFault.NARROWER:
                return httpx.Response(200, json=body | {"scope": "nothing"})
            case HttpFault.INVALID_GRANT:
                return httpx.Response(400, json={"error": "invalid_grant", **quoted})
            case HttpFault.DRIP:
                return Dripping(self.world, json.dumps(body).encode() + b" " * 60)
            case _:
                return httpx.Response(200, json=body)


def _endpoint(request: httpx.Request, form: dict[str, str]) -> str:
    path = request.url.path.rsplit("/", 1)[-1]
    if path == "token":
        return "exchange" if form["grant_type"] == "authorization_code" else "refresh"
    return {"me": "identity", "revoke": "revoke"}[path]


def _other(name: str, value: Any) -> Any:
    return "somebody else" if name in ("account", "sub") else value


def _raw(text: str) -> httpx.Response:
    return httpx.Response(200, text=text, headers={"Content-Type": "application/json"})


class Dripping(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An answer of which a byte comes every second, as long as anybody listens."""

    headers: Final = {"Content-Type": "application/json"}

    def __init__(self, world: World, body: bytes) -> None:
        self._world = world
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for at in range(len(self._body)):
            self._world.now += 1_000
            yield self._body[at : at + 1]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            await asyncio.sleep(0)
            yield part


class WorldLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the world's."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def time(self) -> float:
        """Seconds."""
        return self._world.now / 1000


class LoopedCalls:
    """`ports.Calls`: one after another, each to its end on a loop of the world's time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[tuple[Claimed, Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]]] = []

    @property
    def in_flight(self) -> int:
        """How many were started and not handed back."""
        return len(self._open)

    def start(self, claim: Claimed, call: Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]) -> None:
        """Note it."""
        self._open.append((claim, call))

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, RevokeAnswer | None]]:
        """Run them."""
        batch, self._open = self._open[:at_most], self._open[at_most:]
        with asyncio.Runner(loop_factory=lambda: WorldLoop(self._world)) as runner:
            return [(claim, runner.run(call())) for claim, call in batch]


class WorldClient(OAuthClient):
    """The product's client, with the facts of the world's kind of provider."""

    def __init__(self, world: World, spec: ProviderSpec, http: ProviderHttp) -> None:
        settings = ProviderClient(
            CLIENT,
            CLIENT,
            "client-1",
            "ssm:/secret",
            ("read",),
            world.confirmation,
            optional_scopes=frozenset({"more"}),
        )
        super().__init__(settings, spec, lambda ref: Secret(CLIENT_SECRET), http)
        self._world = world

    @property
    def facts(self) -> ProviderFacts:
        """Of the world's kind."""
        return self._world.kind.facts


@cache
def provider_spec() -> ProviderSpec:
    """The catalogue entry of the simulated provider, compiled."""
    entry = changed_entry({"id": CLIENT, "revocation.takes": "refresh", "identity.in_token_response": "account"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{CLIENT}.yaml"
        path.write_text(yaml.safe_dump(entry, sort_keys=False))
        return spec_of(json.loads(compiled_text(path)))


def use_http(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """From now on the world's provider is reached by HTTP."""
    provider = Provider(world)
    http = ProviderHttp(httpx.MockTransport(provider.take), httpx.MockTransport(provider.take_async))
    client = WorldClient(world, provider_spec(), http)
    if world.kind.broker:  # a broker stays the simulated one; its accounts are named by the provider all the same
        return provider
    world.client_of = lambda ports: client
    world.calls_of = lambda: LoopedCalls(world)
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: world.now / 1000))
    return provider
