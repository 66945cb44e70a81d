"""
An authorization server behind `httpx.MockTransport`, with a ledger of every token it ever issued: the oracle of the
flow tests.

It does what the catalogue entry of a test says of rotation, old tokens and reach, and goes wrong where a test says so.
"""

import base64
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from quitclaim.domain.facts import OldToken
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret
from quitclaim.providers.spec import ProviderSpec
from tests.fakes.issuer import at_hash, key, published, signed
from tests.fakes.tables import WorkerKilledError

CLIENT_ID = "client-1"
CLIENT_SECRET = Secret("client-secret-canary")


@dataclass(frozen=True)
class IssuedToken:
    """A line of the ledger."""

    text: str
    kind: str  # refresh_token, access_token
    account: str
    family: int
    state: str = "live"  # live, rotated (its successor replaced it), revoked


@dataclass(frozen=True)
class _Code:
    challenge: str | None
    account: str
    redirect_uri: str
    nonce: str | None = None


type Misbehaviour = Callable[[Callable[[], httpx.Response], httpx.Request], httpx.Response]
"""Gets what would act and answer, and the request; does with them what it likes."""


@dataclass
class AcmeServer:
    """`/token`, `/me` and `/revoke` of Acme, and the approval of a user who was sent to `/authorize`."""

    spec: ProviderSpec
    with_refresh_token: bool = True
    lifetime_s: int | None = 3600
    spares_refresh_tokens: bool = False
    """A revocation ends access tokens alone, whatever the catalogue hopes for."""
    gives_again: str | None = None
    """The refresh token that whoever agrees once more is given."""
    extra: dict[str, Any] = field(default_factory=dict)
    me: dict[str, Any] = field(default_factory=dict)
    """What `/me` says beside the account."""
    now_s: int = 1_800_000_000
    """Its own clock."""
    key_set: dict[str, Any] = field(default_factory=lambda: published(key("k1")))
    makes_id_token: Callable[[dict[str, Any]], str | None] = lambda claims: signed(claims, key("k1"))
    """Of the claims that it should have; None: it sends none."""
    ledger: dict[str, IssuedToken] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    form: dict[str, str] = field(default_factory=dict, repr=False)
    misbehaviours: dict[str, list[Misbehaviour]] = field(default_factory=lambda: defaultdict(list))
    _codes: dict[str, _Code] = field(default_factory=dict)
    _requests: dict[str, dict[str, str]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    # --- the user ---

    def approves(self, url: str, account: str = "alice") -> tuple[Secret, Secret]:
        """The user who was sent to *url* agrees: state and code that the browser brings back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if "request_uri" in asked:
            asked = self._requests.pop(asked["request_uri"])
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{next(self._numbers)}"
        self._codes[code] = _Code(asked["code_challenge"], account, asked["redirect_uri"], asked.get("nonce"))
        return Secret(asked["state"]), Secret(code)

    def removes(self, account: str) -> None:
        """The user takes the access away on the provider's own page."""
        self._end(lambda token: token.account == account)

    def gave(self, account: str = "alice") -> Secret:
        """The app got a grant by itself, before it came to us: its refresh token."""
        return Secret(self._issue("refresh_token", account, next(self._numbers)))

    def expires_access_tokens(self) -> None:
        """Their time is over."""
        self.ledger = {
            text: replace(token, state="expired") if token.kind == "access_token" and token.state == "live" else token
            for text, token in self.ledger.items()
        }

    # --- what a test looks at ---

    def live(self, kind: str | None = None) -> list[str]:
        """Tokens that the provider would still accept."""
        return [text for text, token in self.ledger.items() if token.state == "live" and kind in (None, token.kind)]

    def of_kind(self, kind: str) -> list[str]:
        """Every token of a kind that was ever issued, oldest first."""
        return [text for text, token in self.ledger.items() if token.kind == kind]

    def state_of(self, text: str) -> str:
        """Of one token."""
        return self.ledger[text].state

    # --- faults ---

    def next(self, path: str, *misbehaviours: Misbehaviour) -> None:
        """The next requests for *path* meet these, in order."""
        self.misbehaviours[path] += misbehaviours

    # --- the wire ---

    @property
    def transport(self) -> httpx.MockTransport:
        """For blocking and for asynchronous clients."""
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        path = request.url.path
        self.asked.append(path)
        self.hosts.add(request.url.host)

        def act() -> httpx.Response:
            return {
                "/token": self._token,
                "/me": self._me,
                "/revoke": self._revoke,
                "/par": self._pushed,
                "/jwks": lambda _: _said(200, self.key_set),
            }[path](request)

        pending = self.misbehaviours[path]
        return pending.pop(0)(act, request) if pending else act()

    def _pushed(self, request: httpx.Request) -> httpx.Response:
        if not _is_authentic(request):
            return _said(401, {"error": "invalid_client"})
        uri = f"urn:ietf:params:oauth:request_uri:{next(self._numbers)}"
        self._requests[uri] = _form(request)
        return _said(201, {"request_uri": uri, "expires_in": 60})

    def _token(self, request: httpx.Request) -> httpx.Response:
        if not _is_authentic(request):
            return _said(401, {"error": "invalid_client"})
        form = self.form = _form(request)
        if form["grant_type"] == "authorization_code":
            return self._exchanged(form)
        return self._refreshed(form)

    def _exchanged(self, form: dict[str, str]) -> httpx.Response:
        code = self._codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if code is None or code.challenge != challenge.decode() or code.redirect_uri != form["redirect_uri"]:
            return _said(400, {"error": "invalid_grant"})
        if self.gives_again is not None:
            old = self.ledger[self.gives_again]
            return self._granted(code.account, old.family, self.with_refresh_token, code)
        return self._granted(code.account, next(self._numbers), self.with_refresh_token, code)

    def _refreshed(self, form: dict[str, str]) -> httpx.Response:
        old = self.ledger.get(form["refresh_token"])
        if old is not None and old.state == "rotated" and self.spec.refresh.reuse_kills_family == "yes":
            self._end(lambda token: token.family == old.family)
        if old is None or old.state != "live":
            return _said(400, {"error": "invalid_grant"})
        rotates = self.spec.refresh.rotates != "no"
        if rotates and self.spec.refresh.old_token_after_rotation is OldToken.IMMEDIATE:
            self.ledger[old.text] = replace(old, state="rotated")
        return self._granted(old.account, old.family, rotates)

    def _granted(self, account: str, family: int, refresh_token: bool, code: _Code | None = None) -> httpx.Response:
        body: dict[str, Any] = {"access_token": self._issue("access_token", account, family), "token_type": "Bearer"}
        if refresh_token:
            body["refresh_token"] = self.gives_again or self._issue("refresh_token", account, family)
        if self.lifetime_s is not None:
            body["expires_in"] = self.lifetime_s
        if self.spec.oidc is not None and code is not None:
            claims = {
                "iss": self.spec.oidc.issuer,
                "aud": CLIENT_ID,
                "sub": account,
                "iat": self.now_s,
                "exp": self.now_s + 600,
                "at_hash": at_hash(body["access_token"]),
            } | ({} if code.nonce is None else {"nonce": code.nonce})
            made = self.makes_id_token(claims)
            body |= {} if made is None else {"id_token": made}
        if self.spec.identity.in_token_response is not None:
            body[self.spec.identity.in_token_response] = account
        return _said(200, body | self.extra)

    def _issue(self, kind: str, account: str, family: int) -> str:
        text = f"canary-{kind}-{next(self._numbers)}"
        self.ledger[text] = IssuedToken(text, kind, account, family)
        return text

    def _me(self, request: httpx.Request) -> httpx.Response:
        token = self.ledger.get(request.headers["authorization"].removeprefix("Bearer "))
        if token is None or token.state != "live":
            return httpx.Response(401, headers={"WWW-Authenticate": "Bearer"})
        return _said(200, {"sub": token.account} | self.me)

    def _revoke(self, request: httpx.Request) -> httpx.Response:
        request_of = self.spec.revocation.request
        if request_of is not None and any(value == "Bearer {token}" for _, value in request_of.headers):
            token = self.ledger.get(request.headers["authorization"].removeprefix("Bearer "))
            if token is None or token.state != "live" or token.kind != "access_token":
                return httpx.Response(401)
        elif not _is_authentic(request):
            return _said(401, {"error": "invalid_client"})
        else:
            token = self.ledger.get(_form(request)["token"])
        if token is None:
            return _said(400, {"error": "invalid_token"})
        match self.spec.revocation.reach:
            case _ if self.spares_refresh_tokens:
                self._end(lambda each: each.text == token.text)
            case Reach.TOKEN if self.spec.revocation.ends_pair:
                self._end(lambda each: each.family == token.family)
            case Reach.TOKEN:
                self._end(lambda each: each.text == token.text)
            case Reach.FAMILY:
                self._end(lambda each: each.family == token.family)
            case _:
                self._end(lambda each: each.account == token.account)
        return httpx.Response(200)

    def _end(self, ends: Callable[[IssuedToken], bool]) -> None:
        self.ledger = {
            text: replace(token, state="revoked") if ends(token) else token for text, token in self.ledger.items()
        }


def _is_authentic(request: httpx.Request) -> bool:
    given = base64.b64decode(request.headers.get("authorization", "").removeprefix("Basic ")).decode()
    return given == f"{CLIENT_ID}:{CLIENT_SECRET.reveal()}"


def _form(request: httpx.Request) -> dict[str, str]:
    return {unquote(name): values[0] for name, values in parse_qs(request.content.decode()).items()}


def _said(status: int, body: dict[str, Any]) -> httpx.Response:
    return httpx.Response(status, json=body)


# --- misbehaviours ---------------------------------------------------------------------------------------------------


def not_connected(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
    """Nothing left."""
    raise httpx.ConnectError("refused", request=request)


def lost_request(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
    """It left and never arrived; the caller cannot know."""
    raise httpx.ReadTimeout("silent", request=request)


def lost_answer(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
    """The provider acted, and its answer never arrived."""
    act()
    raise httpx.ReadTimeout("silent", request=request)


def killed(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
    """The worker dies while it waits; the provider has acted."""
    act()
    raise WorkerKilledError


def cut_off(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
    """The answer holds the tokens and is no JSON: it breaks off before its end."""
    return httpx.Response(200, content=act().content[:-2], headers={"Content-Type": "application/json"})


def answers(status: int, body: dict[str, Any] | None = None, **headers: str) -> Misbehaviour:
    """The provider does nothing and says this."""

    def misbehave(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
        content = b"" if body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Response(status, content=content, headers={"Content-Type": "application/json", **given})

    return misbehave


def after(*steps: Callable[[], object]) -> Misbehaviour:
    """The provider acts; before its answer arrives, the *steps* happen."""

    def misbehave(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
        answer = act()
        for step in steps:
            step()
        return answer

    return misbehave
