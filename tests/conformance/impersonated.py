"""
Any provider of the catalogue, played on this side of the wire by its entry ("be WHOOP"), with its own oddities and a
ledger of every token it issued.

It reads what it is sent by itself: a request that the entry does not describe is refused loudly. What the entry leaves
unknown it does in the way that is hardest on us.
"""

import base64
import hashlib
import hmac
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, unquote, unquote_plus, urlencode, urlsplit

import httpx
import jwt

from quitclaim.domain.facts import OldToken
from quitclaim.domain.revocations import Reach
from quitclaim.providers.spec import ProviderSpec, RequestSpec
from tests.fakes.issuer import key, published, signed

CLIENT_ID: Final = "client-1"
SECRET: Final = "s3cret+with/odd:signs"
REDIRECT: Final = "https://quitclaim.example.com/callback/x"
NAMES: Final = re.compile(r"\{([a-z_]+)\}")
NOW_S: Final = 1_796_000_000
VALUES: Final = {
    "shop": "ann-s-shop.myshopify.com",
    "subdomain": "ann",
    "login_host": "ann.my.salesforce.com",
    "accounts_host": "accounts.zoho.eu",
    "realm_id": "4620816365",
    "user_id": "731",
    "tenant": "common",
    "version": "v22.0",
    "team_id": "A1B2C3D4E5",
}
"""What stands for the placeholders of the shipped entries."""
ORIGINS: Final = frozenset({"accounts_host"})


KEYS: Final = published(key("k1"))


class MisfitError(AssertionError):
    """We were sent something that this provider does not take."""


@dataclass(frozen=True)
class Token:
    """A line of the ledger."""

    text: str
    kind: str  # access_token, refresh_token
    grant: int
    pair: str
    account: str
    state: str = "live"  # live, expired, rotated, revoked

    @property
    def is_live(self) -> bool:
        """Whether the provider takes it."""
        return self.state == "live"


@dataclass
class Quirks:
    """What a provider does beside its entry."""

    dead_refresh: tuple[int, dict[str, Any]] = (400, {"error": "invalid_grant"})
    answers_forms: bool = False
    expires_as_text: bool = False
    no_expiry: bool = False
    members: dict[str, Any] = field(default_factory=dict)
    """Of every token response."""
    account: str = "731"
    gives_refresh: bool = True
    unknown_token: tuple[int, dict[str, Any]] = (404, {"message": "no such thing"})
    """For a dead token, where the entry says nothing of it."""
    rotates_sometimes: tuple[bool, ...] = (True,)
    revoke_body: dict[str, Any] | None = None
    scopes_as_list: bool = False
    spends_upgraded: bool = False


class Impersonated:
    """One provider."""

    def __init__(self, spec: ProviderSpec, quirks: Quirks | None = None, public_key: Any = None) -> None:
        self.spec = spec
        self.quirks = quirks or Quirks()
        self.public_key = public_key
        self.ledger: dict[str, Token] = {}
        self.asked: list[str] = []
        self.served: list[str] = []
        self.dead: dict[str, Token] = {}
        self._codes: dict[str, tuple[str | None, str]] = {}
        self._numbers = itertools.count(1)
        self._nonces: set[str] = set()
        self._redirect = ""
        self._wants_pairs = False
        self._nonce: str | None = None

    # --- the user and the clock ---

    def approves(self, url: str, scopes: tuple[str, ...] = ()) -> dict[str, list[str]]:
        """The user who was sent to *url* agrees: what the callback's query holds beside the state."""
        told = self.spec.authorize
        sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query, keep_blank_values=True).items()}
        self._must(url.split("?")[0] == self._filled(told.url), "authorization at another address")
        self._must(sent.get(told.client_id_param) == CLIENT_ID, "no client id")
        self._must(sent.get("response_type") == "code", "no response type")
        self._must(all(sent.get(name) == value for name, value in told.params), "parameters are missing")
        self._must(("code_challenge" in sent) is (told.pkce != "none"), "PKCE")
        self._must(told.scope_param is not None or "scope" not in sent, "scopes that nobody takes")
        for scope in scopes:
            prefix, param = next((each for each in told.scope_prefixes if scope.startswith(each[0])), ("", "scope"))
            listed = sent.get(param if prefix else (told.scope_param or ""), "").split(told.scope_separator)
            self._must(told.scope_param is None or scope.removeprefix(prefix) in listed, f"scope {scope} is missing")
        self._redirect = sent["redirect_uri"]
        self._wants_pairs = any(param in sent for _, param in told.scope_prefixes)
        self._nonce = sent.get("nonce")
        code = f"code-{next(self._numbers)}"
        self._codes[code] = (sent.get("code_challenge"), sent["redirect_uri"])
        query = {"code": [code]}
        for each in self.spec.placeholders:
            if each.source == "callback":
                query[each.parameter] = [f"https://{VALUES[each.name]}" if each.is_origin else VALUES[each.name]]
            if each.echo is not None:
                query[each.echo] = [VALUES[each.name]]
        if told.callback_scope_param is not None:
            query[told.callback_scope_param] = [",".join(scopes)]
        return query

    def expires_access_tokens(self) -> None:
        """Their time is over."""
        for token in list(self.ledger.values()):
            if token.kind == "access_token" and token.is_live and self.spec.refresh.mode != "access_token_exchange":
                self.ledger[token.text] = replace(token, state="expired")

    def live(self) -> list[str]:
        """Tokens that it would still take; one without its refresh token, where there is one, is but the rest of it."""
        return [token.text for token in self.ledger.values() if token.is_live]

    # --- the wire ---

    @property
    def transport(self) -> httpx.MockTransport:
        """For blocking and for asynchronous clients."""
        return httpx.MockTransport(self.handle)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """One request."""
        request.read()
        url = str(request.url)
        for name, template, act in self._endpoints():
            found = self._match(template, url)
            if found is not None and (name != "revoke" or self._is_revocation(request)):
                self.asked.append(name)
                self._must(request.headers["accept-encoding"] == "identity", "a compressed answer was asked for")
                return act(request, found)
        raise MisfitError(f"{self.spec.id}: {request.method} {url.split('?')[0]} is no address of it")

    def _endpoints(self) -> list[tuple[str, str, Callable[[httpx.Request, dict[str, str]], httpx.Response]]]:
        spec = self.spec
        found: list[tuple[str, str, Callable[[httpx.Request, dict[str, str]], httpx.Response]]] = []
        if spec.revocation.adapter is not None:
            found += [("nonce", "https://wbsapi.withings.net/v2/signature", self._give_nonce)]
        if spec.revocation.request is not None:
            found.append(("revoke", spec.revocation.request.url, self._revoke))
        if spec.token.upgrade is not None:
            found.append(("upgrade", spec.token.upgrade.url, self._upgrade))
        if spec.oidc is not None:
            found.append(("keys", spec.oidc.jwks_url, lambda request, values: httpx.Response(200, json=KEYS)))
        found += [("token", spec.token.url, self._token), ("token", spec.refresh.url, self._token)]
        if spec.identity.request is not None:
            found.append(("identity", spec.identity.request.url, self._identity))
        return found

    def _is_revocation(self, request: httpx.Request) -> bool:
        """Withings has one address for everything."""
        return self.spec.revocation.adapter is None or self._fields(request).get("action") == "revoke"

    def _match(self, template: str, url: str) -> dict[str, str] | None:
        """The placeholders of *template* as *url* fills them; a declared one must have the value of this grant."""
        pattern = "".join(
            f"(?P<{part}>[^/?&]+)" if number % 2 else re.escape(part)
            for number, part in enumerate(NAMES.split(template))
        )
        found = re.fullmatch(pattern + (r"(\?.*)?" if "?" not in template else ""), url)
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
        wrong = [name for name, value in values.items() if name in VALUES and value != self._value(name)]
        return None if wrong else values

    def _value(self, name: str) -> str:
        account = next(
            (each for each in self.spec.placeholders if each.name == name and each.source == "account"), None
        )
        return self.quirks.account if account is not None else VALUES[name]

    def _filled(self, template: str) -> str:
        return NAMES.sub(lambda found: VALUES[found[1]], template)

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            raise MisfitError(f"{self.spec.id}: {what}")

    def _fields(self, request: httpx.Request) -> dict[str, str]:
        if request.headers.get("content-type", "").startswith("application/json"):
            return dict(json.loads(request.content))
        pairs = parse_qsl(request.content.decode(), keep_blank_values=True)
        self._must(len(dict(pairs)) == len(pairs), "a parameter stands twice")
        return dict(pairs)

    # --- tokens ---

    def _token(self, request: httpx.Request, found: dict[str, str]) -> httpx.Response:
        told = self.spec.token
        is_query = request.method == "GET"
        fields = dict(parse_qsl(urlsplit(str(request.url)).query)) if is_query else self._fields(request)
        is_json = request.headers.get("content-type", "") == "application/json"
        self._must(is_query or is_json is (told.body == "json"), "the body's kind")
        if fields.get("grant_type") == "authorization_code":
            self._must(str(request.url) == self._filled(told.url), "a code at another address")
            self._client(request, fields, told.client_auth)
            self._must(all(fields.get(name) == value for name, value in told.params), "parameters of the exchange")
            return self._exchange(fields)
        self._must(
            str(request.url).split("?")[0] == self._filled(self.spec.refresh.url), "a refresh at another address"
        )
        if self.spec.refresh.sends_client:
            self._client(request, fields, told.client_auth)
        return self._refresh(fields)

    def _client(self, request: httpx.Request, fields: Mapping[str, str], how: str) -> None:
        header, secret = request.headers.get("authorization", ""), fields.get("client_secret")
        name = self.spec.authorize.client_id_param
        if how == "basic":
            raw = base64.b64decode(header.removeprefix("Basic ")).decode()
            given = [
                unquote_plus(part) if self.spec.token.basic_encoding == "form" else part for part in raw.split(":", 1)
            ]
            self._must(given == [CLIENT_ID, SECRET] and secret is None, "Basic")
        elif how == "bearer_secret":
            self._must(header == f"Bearer {SECRET}", "the platform's key")
        elif how == "post":
            self._must(
                fields.get(name) == CLIENT_ID and "authorization" not in request.headers, "client id in the body"
            )
            self._must(secret == SECRET or self._is_minted(secret), "client secret in the body")
        elif how == "id_only":
            self._must(fields.get(name) == CLIENT_ID and secret is None, "client id alone")
        elif how == "none":
            self._must(secret is None, "a secret that nobody asked for")

    def _is_minted(self, secret: str | None) -> bool:
        minted = self.spec.token.minted
        if minted is None or secret is None:
            return False
        claims = jwt.decode(
            secret,
            self.public_key,
            algorithms=["ES256"],
            audience=minted.audience,
            options={"verify_exp": False, "verify_iat": False},
        )
        return (claims["iss"], claims["sub"]) == (self._filled(minted.issuer), CLIENT_ID)

    def _exchange(self, fields: Mapping[str, str]) -> httpx.Response:
        challenge, redirect_uri = self._codes.pop(fields["code"], (None, ""))
        if redirect_uri != fields["redirect_uri"]:
            return self._refused()
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        expected = None if challenge is None else base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        self._must(challenge == expected, "the verifier of another challenge")
        grant = next(self._numbers)
        return self._granted(grant, is_exchange=True, refresh=self._gives_refresh)

    @property
    def _gives_refresh(self) -> bool:
        return self.spec.refresh.mode in ("refresh_token", "refresh_token_optional") and self.quirks.gives_refresh

    def _refresh(self, fields: Mapping[str, str]) -> httpx.Response:
        told = self.spec.refresh
        self._must(fields.get("grant_type") == told.grant_type, "grant type of the refresh")
        self._must(all(fields.get(name) == value for name, value in told.params), "parameters of the refresh")
        self._must(
            not told.sends_redirect_uri or fields.get("redirect_uri") == self._redirect, "the redirect URI again"
        )
        old = self.ledger.get(fields[told.token_param])
        wanted = "access_token" if told.mode == "access_token_exchange" else "refresh_token"
        if old is None or not old.is_live or old.kind != wanted:
            return self._refused()
        rotates = told.rotates in ("yes", "unknown") or (
            told.rotates == "sometimes"
            and self.quirks.rotates_sometimes[len(self.asked) % len(self.quirks.rotates_sometimes)]
        )
        if wanted == "access_token":
            self.ledger[old.text] = replace(old, state="rotated")
            return self._granted(old.grant, pair=old.pair, refresh=False)
        if rotates and told.old_token_after_rotation in (OldToken.IMMEDIATE, OldToken.UNKNOWN):
            self.ledger[old.text] = replace(old, state="rotated")
        return self._granted(old.grant, pair=old.pair, refresh=rotates)

    def _upgrade(self, request: httpx.Request, found: dict[str, str]) -> httpx.Response:
        told = self.spec.token.upgrade
        assert told is not None
        fields = dict(parse_qsl(urlsplit(str(request.url)).query)) if request.method == "GET" else self._fields(request)
        self._must(request.method == told.method and fields.get("grant_type") == told.grant_type, "the upgrade")
        self._must(fields.get("client_secret") == SECRET, "the upgrade's secret")
        old = self.ledger[fields[told.token_param]]
        self.ledger[old.text] = replace(old, state="rotated")
        return self._granted(old.grant, refresh=False, upgrades=True)

    def _granted(
        self,
        grant: int,
        *,
        pair: str = "main",
        is_exchange: bool = False,
        refresh: bool = False,
        upgrades: bool = False,
    ) -> httpx.Response:
        told, body = self.spec.token, dict[str, Any]()
        paths = [("main", told.response.access_token, told.response.refresh_token, told.response.expires_in)]
        if is_exchange and self._wants_pairs:
            paths += [
                (each.name, each.access_token, each.refresh_token, each.expires_in) for each in told.response.pairs
            ]
        for name, access, refreshed, expires in paths:
            name = pair if not is_exchange else name
            _put(body, access, self._issue("access_token", grant, name))
            if refresh:
                _put(body, refreshed, self._issue("refresh_token", grant, name))
            other = next((each for each in told.response.pairs if each.name == name), None)
            if other is not None and other.scope is not None:
                _put(body, other.scope, "mail")
            if not self.quirks.no_expiry and (told.response.expires_at is None or name != "main"):
                seconds: Any = 3600 if told.expires_unit == "s" else 3_600_000
                _put(body, expires, str(seconds) if self.quirks.expires_as_text else seconds)
        if told.response.expires_at is not None:
            _put(body, told.response.expires_at, "2026-11-30T01:00:00Z")
        if told.success is not None and told.success.path is not None:
            _put(body, told.success.path, told.success.equals)
        if is_exchange:
            for each in self.spec.placeholders:
                if each.source == "token_response":
                    _put(body, each.parameter, VALUES[each.name])
            if self.spec.identity.in_token_response is not None:
                _put(body, self.spec.identity.in_token_response, self.quirks.account)
            for each in self.spec.identity.also:
                if each.in_token_response is not None:
                    _put(body, each.in_token_response, name_at(self.spec, each.kind))
        scopes = ["read", "write"]
        _put(
            body,
            told.response.scope,
            scopes if self.quirks.scopes_as_list else self.spec.authorize.scope_separator.join(scopes),
        )
        _put(body, told.response.token_type, "bearer")
        for path, value in self.quirks.members.items():
            _put(body, path, value)
        if is_exchange and self.spec.oidc is not None:
            claims = {"iss": self.spec.oidc.issuer, "aud": CLIENT_ID, "sub": self.quirks.account, "nonce": self._nonce}
            body["id_token"] = signed(claims | {"iat": NOW_S, "exp": NOW_S + 600}, key("k1"))
        if self.quirks.answers_forms and not upgrades:
            return httpx.Response(
                200,
                content=urlencode(body).encode(),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            )
        return httpx.Response(200, json=body, headers={"Date": "Mon, 30 Nov 2026 00:00:00 GMT"})

    def _issue(self, kind: str, grant: int, pair: str) -> str:
        text = f"{self.spec.id}-{kind}-{next(self._numbers)}"
        self.ledger[text] = Token(text, kind, grant, pair, self.quirks.account)
        return text

    def _refused(self) -> httpx.Response:
        status, body = self.quirks.dead_refresh
        return httpx.Response(status, json=body)

    # --- identity ---

    def _identity(self, request: httpx.Request, found: dict[str, str]) -> httpx.Response:
        told = self.spec.identity.request
        assert told is not None
        self._must(request.method == told.method, "the method of the identity request")
        text = self._carried(request, found, told).get("token")
        token = self.ledger.get(text or "")
        if token is None or not token.is_live or token.kind != "access_token":
            return httpx.Response(401, json={"error": "invalid_token"}, headers={"WWW-Authenticate": "Bearer"})
        body: Any = {}
        assert self.spec.identity.field is not None
        if self.spec.identity.field.startswith("0."):
            body = [{}]
        _put(body, self.spec.identity.field, token.account)
        for each in self.spec.identity.also:
            if each.field is not None and each.field.replace("*", "0") != self.spec.identity.field:
                _put(body, each.field.replace("*", "0"), name_at(self.spec, each.kind))
        return httpx.Response(200, json=body)

    # --- revocation ---

    def _carried(self, request: httpx.Request, found: dict[str, str], told: RequestSpec) -> dict[str, str]:
        """What the request carries in the places of its template."""
        carried = dict(found)
        is_query = told.body == "query"
        query = dict(parse_qsl(urlsplit(str(request.url)).query))
        sent: Mapping[str, Any] = query if is_query else {} if told.body == "none" else self._fields(request)
        is_json = request.headers.get("content-type", "") == "application/json"
        self._must(told.body in ("none", "query") or is_json is (told.body == "json"), "the body's kind")
        self._must(told.body not in ("none", "query") or request.content == b"", "a body that nobody asked for")
        for name, template in told.fields:
            self._must(name in sent, f"field {name}")
            self._take(template, str(sent[name]), carried)
        for name, template in told.headers:
            self._must(name.lower() in request.headers, f"header {name}")
            self._take(template, request.headers[name], carried)
        return carried

    def _take(self, template: str, text: str, carried: dict[str, str]) -> None:
        parts = NAMES.split(template)
        found = re.fullmatch(
            "".join(f"(?P<{part}>.+)" if number % 2 else re.escape(part) for number, part in enumerate(parts)), text
        )
        self._must(found is not None, "a field of another form")
        assert found is not None
        carried.update(found.groupdict())

    def _give_nonce(self, request: httpx.Request, found: dict[str, str]) -> httpx.Response:
        sent = self._fields(request)
        signed = f"getnonce,{CLIENT_ID},{sent['timestamp']}"
        self._must(hmac.new(SECRET.encode(), signed.encode(), "sha256").hexdigest() == sent["signature"], "signature")
        self._must(abs(int(sent["timestamp"]) - NOW_S) < 300, "the time")
        nonce = f"nonce-{next(self._numbers)}"
        self._nonces.add(nonce)
        return httpx.Response(200, json={"status": 0, "body": {"nonce": nonce}})

    def _revoke(self, request: httpx.Request, found: dict[str, str]) -> httpx.Response:
        told = self.spec.revocation
        assert told.request is not None
        self._must(request.method == told.request.method, "the method of the revocation")
        if told.adapter == "withings":
            return self._revoke_signed(self._fields(request))
        carried = self._carried(request, found, told.request)
        fields = self._fields(request) if told.request.body in ("form", "json") else {}
        if told.request.client_auth != "none":
            self._client(request, fields, told.request.client_auth)
        self._must("client_id" not in carried or carried["client_id"] == CLIENT_ID, "client id")
        self._must("client_secret" not in carried or carried["client_secret"] == SECRET, "client secret")
        if told.takes == "account":
            return self._revoke_account(carried["account_id"])
        token = self.ledger.get(carried["token"])
        if told.token_type_hint and token is not None:
            self._must(fields["token_type_hint"] == token.kind, "the hint")
        self._must(token is None or self._takes(token), "a kind of token that it does not take")
        is_too_old = token is not None and token.state == "expired" and told.needs_live_access_token != "no"
        if token is None or is_too_old or token.state in ("rotated", "revoked"):
            return self._gone()
        self._end(token)
        return self._done()

    def _takes(self, token: Token) -> bool:
        return self.spec.revocation.takes == "either" or token.kind == f"{self.spec.revocation.takes}_token"

    def _revoke_signed(self, sent: Mapping[str, str]) -> httpx.Response:
        signed = f"revoke,{CLIENT_ID},{sent['nonce']}"
        self._must(hmac.new(SECRET.encode(), signed.encode(), "sha256").hexdigest() == sent["signature"], "signature")
        self._must(sent["nonce"] in self._nonces, "a nonce of its own")
        self._nonces.remove(sent["nonce"])
        return self._revoke_account(sent["userid"])

    def _revoke_account(self, account: str) -> httpx.Response:
        hit = [token for token in self.ledger.values() if token.account == account and token.is_live]
        if not hit:
            return self._gone()
        for token in hit:
            self.ledger[token.text] = replace(token, state="revoked")
        return self._done()

    def _end(self, token: Token) -> None:
        told = self.spec.revocation

        def is_hit(other: Token) -> bool:
            match told.reach:
                case Reach.AUTHORIZATION | Reach.ACCOUNT:
                    return other.account == token.account
                case Reach.FAMILY:
                    return other.grant == token.grant
                case Reach.TOKEN if told.ends_pair:
                    return (other.grant, other.pair) == (token.grant, token.pair)
                case _:  # the least that it may be
                    return other.text == token.text

        for other in list(self.ledger.values()):
            if other.is_live and is_hit(other):
                self.ledger[other.text] = replace(other, state="revoked")

    def _done(self) -> httpx.Response:
        told = self.spec.revocation.success
        if told is None:
            return httpx.Response(200, json=self.quirks.revoke_body or {})
        if told.body == "json" and told.path is not None:
            body: dict[str, Any] = {}
            _put(body, told.path, told.equals)
            return httpx.Response(told.status[0], json=body)
        if self.quirks.revoke_body is not None:
            return httpx.Response(told.status[0], json=self.quirks.revoke_body)
        return httpx.Response(told.status[0])

    def _gone(self) -> httpx.Response:
        told = self.spec.revocation
        if told.repeat == "same_as_success":
            return self._done()
        for pattern in (*told.already_gone, *told.ambiguous):
            if pattern.errors:
                return httpx.Response(pattern.status[0], json={"ok": False, "error": pattern.errors[0]})
            return httpx.Response(pattern.status[0])
        if told.takes == "access" and told.adapter is None:
            return httpx.Response(401)
        status, body = self.quirks.unknown_token
        return httpx.Response(status, json=body)


def name_at(spec: ProviderSpec, kind: str) -> str:
    """What the account of whoever connects is called as well."""
    for each in spec.identity.also:
        if each.kind == kind and (each.field or "").replace("*", "0") == spec.identity.field:
            return "731"  # one place says both
    return f"{kind}-9"


def _put(body: Any, path: str, value: Any) -> None:
    """*value* at a path of member names with dots between."""
    *parents, last = path.split(".")
    at = body
    for name, following in itertools.pairwise((*parents, last)):
        empty: Any = [] if following.isdigit() else {}
        if isinstance(at, list):
            while len(at) <= int(name):
                at.append({})
            at = at[int(name)]
        else:
            at = at.setdefault(name, empty)
    if isinstance(at, list):
        while len(at) <= int(last):
            at.append({})
        at[int(last)] = value
    else:
        at[last] = value
