"""
One connection's life on the local stack, from both sides: the app's signed calls and the owner's browser.

The demo tells it, the end-to-end tests judge it. What it learns that must stay secret is collected in `secrets`, so
that a test can hunt for it in every log of the run.
"""

import secrets as random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import httpx

from infra.local.browser import Browser, Page
from infra.local.provider.control import Issued, ProviderControl
from infra.local.provider.person import consent, sign_in
from infra.local.stack import LocalStack

SECRET_PARAMETERS = frozenset({"state", "code", "confirm_code", "nonce"})


class UnexpectedError(Exception):
    """A step did not do what it should: what was expected, and what was seen instead. Never holds a secret."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; saw {seen}")
        self.expected = expected
        self.seen = seen


def until[T](probe: Callable[[], T | None], expected: str, seen: Callable[[], str], within_s: float = 10.0) -> T:
    """The first answer of *probe* that is not None."""
    end = time.monotonic() + within_s
    while True:
        found = probe()
        if found is not None:
            return found
        if time.monotonic() > end:
            raise UnexpectedError(f"{expected} within {within_s:g} s", seen())
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """An OAuth client that the provider knows and the stack is set up with."""

    name: str
    client_id: str
    secret: str = field(repr=False)
    provider: str = "dot"


def register_client(
    stack: LocalStack, provider: ProviderControl, name: str = "dot", *, catalogue_id: str = "dot", **config: Any
) -> RegisteredClient:
    """Register a client at the provider with the stack's callback, and give it to the stack as an app team would."""
    client = RegisteredClient(name, f"quitclaim-{random.token_hex(6)}", random.token_urlsafe(32), catalogue_id)
    callback = f"{stack.base_url}/callback/{catalogue_id}"
    provider.register(client.client_id, client.secret, [callback], name="Quitclaim, local")
    settings = {"provider": catalogue_id, "client_id": client.client_id, "scopes": ["identity", "notes"]} | config
    stack.add_client(name, settings, client.secret)
    return client


class Life:
    """One connection of one owner, who is *username* at the provider."""

    def __init__(
        self,
        stack: LocalStack,
        provider: ProviderControl,
        client: RegisteredClient,
        owner: str,
        *,
        connection_id: str = "dot",
        username: str = "alice",
        tenant: str = "demo",
        key: str = "app",
    ) -> None:
        self.stack, self.provider, self.client = stack, provider, client
        self.owner, self.connection_id, self.username, self.tenant = owner, connection_id, username, tenant
        self.api = stack.client(key)
        self._older = {line.digest for line in provider.ledger(client.client_id)}
        self.browser = Browser(clock=lambda: stack.now_ms() / 1000)
        self.secrets: set[str] = {client.secret, provider.accounts[username]["password"]}
        self.challenges: set[str] = set()
        """PKCE challenges: the verifiers are never seen here, but whoever finds one can tell it by these."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.learn()
        with ExitStack() as closing:
            closing.callback(self.api.close)
            closing.callback(self.browser.__exit__, None, None, None)

    # --- the app's side ---------------------------------------------------------------------------------------------

    @property
    def owner_path(self) -> str:
        """Path of the owner in the API."""
        return f"/v1/tenants/{self.tenant}/owners/{self.owner}"

    @property
    def path(self) -> str:
        """Path of the connection in the API."""
        return f"{self.owner_path}/connections/{self.connection_id}"

    def start(self, **body: Any) -> str:
        """Start the connection; answers the link for the owner."""
        about = {"provider": self.client.provider, "client": self.client.name}
        asked = {"connection_id": self.connection_id} | about | body
        answer = expect(self.api.post(f"{self.owner_path}/connections", json=asked), 201)
        link: str = answer["connect_url"]
        self.secrets.add(link.rpartition("/")[2])
        return link

    def view(self) -> dict[str, Any]:
        """The connection as its app sees it."""
        return expect(self.api.get(self.path), 200)

    @property
    def state(self) -> str:
        """State of the connection, as its app sees it."""
        return str(self.view()["state"])

    def confirm(self, code: str, generation: int | None = None) -> httpx.Response:
        """The owner, signed in at the app, types the code."""
        generation = self.view()["generation"] if generation is None else generation
        return self.api.post(f"{self.path}/confirm", json={"generation": generation, "code": code})

    def token(self, **body: Any) -> httpx.Response:
        """Ask for an access token."""
        answer = self.api.post(f"{self.path}/access-token", json=body)
        if answer.status_code == 200:
            self.secrets.add(answer.json()["access_token"])
        return answer

    def disconnect(self, generation: int | None = None) -> httpx.Response:
        """Stop the connection at a generation that was seen."""
        generation = self.view()["generation"] if generation is None else generation
        return self.api.delete(self.path, headers={"if-match": f'"{generation}"'})

    def acknowledge(self) -> httpx.Response:
        """The owner says that the access was removed at the provider."""
        return self.api.post(f"{self.path}/acknowledge-removal", json={})

    def status(self) -> dict[str, Any]:
        """The owner's status."""
        return expect(self.api.get(f"{self.owner_path}/status"), 200)

    def notice(self) -> str | None:
        """How pressing the notice about this connection is, if there is one."""
        levels = [n["level"] for n in self.status()["notices"] if n["connection_id"] == self.connection_id]
        return levels[0] if levels else None

    # --- the provider's ledger --------------------------------------------------------------------------------------

    def issued(self) -> list[Issued]:
        """The refresh tokens that the provider gave to this person and client since this life began."""
        lines = self.provider.ledger(self.client.client_id, "refresh")
        return [line for line in lines if line.user == self.username and line.digest not in self._older]

    def living(self) -> list[Issued]:
        """Those of them that the provider would still take."""
        return [line for line in self.issued() if line.live]

    # --- what runs by itself once a minute --------------------------------------------------------------------------

    def revoked_by_the_kick(self) -> bool:
        """Wait until nothing of it lives at the provider; False where the kick was lost and the next sweep did it."""

        def is_dead() -> bool | None:
            return not self.living() or None

        expected = "no living refresh token at the provider"
        try:
            until(is_dead, expected, lambda: "one", within_s=5)
        except UnexpectedError:
            self.stack.advance(60)
            self.stack.fire("revoke_sweep")
            until(is_dead, expected, lambda: "one", within_s=5)
            return False
        return True

    def settle(self, state: str, rounds: int = 6) -> None:
        """Run sweep and reconciliation, a minute of the moved clock apart, until the connection is in *state*."""
        for at in range(rounds):
            self.stack.fire("revoke_sweep")
            self.stack.fire("reconcile")
            if self.state == state:
                return
            if at < rounds - 1:
                self.stack.advance(60)
        raise UnexpectedError(f"{state} after {rounds} rounds of sweep and reconciliation", self.state)

    # --- the owner's side -------------------------------------------------------------------------------------------

    def visit(self, link: str) -> Page:
        """Open the link and sign in; answers the provider's consent page."""
        page = self.sign_in(self.browser.open(link))
        self.learn()
        return page

    def allow(self, page: Page, *, follow: bool = True) -> Page:
        """Consent; answers the page at the end of the callback."""
        page = self.say_yes(page, follow=follow)
        self.learn()
        for name, value in page.query.items():
            if name in SECRET_PARAMETERS:
                self.secrets.add(value)
        return page

    def sign_in(self, page: Page) -> Page:
        """From the provider's login page to its consent page; another provider has other pages."""
        return sign_in(self.browser, page, self.username, self.provider.accounts[self.username]["password"])

    def say_yes(self, page: Page, *, follow: bool) -> Page:
        """Answer the provider's consent page."""
        return consent(self.browser, page, follow=follow)

    def code_on(self, page: Page) -> str:
        """The confirmation code: in the address of the app's return page, else on our result page."""
        code = page.query.get("confirm_code") or page.labelled("Confirmation code")
        if not code:
            raise UnexpectedError("a confirmation code", f"{page.status} {page.words[:120]!r} after {page.walked[-1]}")
        self.secrets.add(code)
        return code

    def connect(self) -> dict[str, Any]:
        """The whole way to ready, for a test that begins there."""
        page = self.allow(self.visit(self.start()))
        return expect(self.confirm(self.code_on(page)), 200)

    def learn(self) -> None:
        """Collect what the browser carried and saw: state, code and the like, and the binding cookies."""
        for address in self.browser.history:
            for name, value in parse_qsl(urlsplit(address).query):
                if name in SECRET_PARAMETERS:
                    self.secrets.add(value)
                elif name == "code_challenge":
                    self.challenges.add(value)
        for name in self.browser.cookies.names():
            self.secrets.add(self.browser.cookies.named(name).value)


def expect(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The JSON of *answer*, which must have that status."""
    content = envelope(answer)
    if answer.status_code != status:
        said = f"{answer.status_code} {content.get('code', '')} {content.get('message', '')}"
        raise UnexpectedError(f"{answer.request.method} {answer.request.url.path} → {status}", said.strip())
    return content


def envelope(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object of *answer*, or an empty one where it is none."""
    try:
        content: Any = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
