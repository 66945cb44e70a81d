"""
What the catalogue says of a provider: the compiled JSON as frozen values, read on first use of that provider.

`unknown` is a value of its own everywhere and never reads as no (docs/providers.md says what each means). The JSON was
validated when it was compiled (`schema.py`); here it is only taken apart, without pydantic.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from quitclaim.domain.errors import ProviderNotRegisteredError
from quitclaim.domain.facts import OldToken, ProviderFacts
from quitclaim.domain.revocations import Reach
from quitclaim.providers.placeholders import Placeholder, Placeholders
from quitclaim.providers.webhooks import WebhookSpec, webhook_of

FORMAT: Final = 4
PROVIDER_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
COMPILED: Final = Path(__file__).parent / "catalogue" / "compiled"

type YesNo = Literal["yes", "no", "unknown"]
type Pkce = Literal["required", "optional", "none", "unknown"]
type TokenAuth = Literal["basic", "post", "none", "private_key_jwt", "bearer_secret"]
type ClientAuth = Literal["basic", "post", "id_only", "none", "private_key_jwt", "bearer_secret"]
type Takes = Literal["refresh", "access", "either", "account"]
type Rotates = Literal["yes", "no", "sometimes", "unknown"]
type RefreshMode = Literal["refresh_token", "refresh_token_optional", "access_token_exchange", "none"]
type Lifetime = int | Literal["never", "unknown"]
type Limit = int | Literal["none", "unknown"]
type Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AuthorizeSpec:
    """The authorization endpoint (RFC 6749 section 3.1)."""

    url: str
    params: Fields
    pkce: Pkce  # S256 or nothing
    scope_param: str | None  # None: the provider takes no scopes
    scope_separator: str
    scope_prefixes: Fields  # scopes written with such a prefix are sent without it, in a parameter of their own
    client_id_param: str
    issuer: str | None
    issuer_announced: YesNo  # whether its answers carry `iss` (RFC 9207)
    response_mode: Literal["query", "form_post"]
    callback_scope_param: str | None  # the granted scopes, where the callback's query names them (RB-55)
    par: YesNo  # pushed authorization requests (RFC 9126); unknown: not used
    par_url: str | None
    resource: str | None  # RFC 8707, in the authorization and the token request


@dataclass(frozen=True)
class OidcSpec:
    """How its ID tokens are checked (OpenID Connect Core section 3.1.3.7)."""

    issuer: str
    jwks_url: str
    nonce: bool  # whether it is sent, and then must come back
    algorithms: tuple[str, ...]


@dataclass(frozen=True)
class PairPaths:
    """Where a further token pair of one answer stands."""

    name: str
    access_token: str
    refresh_token: str
    expires_in: str
    scope: str | None = None
    scope_prefix: str | None = None  # by which the client's settings name its scopes


@dataclass(frozen=True)
class ResponseSpec:
    """Where the token response keeps what: paths of member names with dots between."""

    access_token: str
    refresh_token: str
    token_type: str
    expires_in: str
    expires_at: str | None  # an instant, in RFC 3339 or in seconds since 1970
    refresh_expires_in: tuple[str, ...]
    refresh_expires_at: str | None
    scope: str
    pairs: tuple[PairPaths, ...]


@dataclass(frozen=True)
class ErrorCodes:
    """Error codes of this provider beside the standard ones, and where they stand if not in `error`."""

    dead: tuple[str, ...]
    try_later: tuple[str, ...]
    config: tuple[str, ...]
    at: str | None


@dataclass(frozen=True)
class AnswerPattern:
    """Answers with one of these statuses and, where codes are named, one of these error codes."""

    status: tuple[int, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True)
class SuccessSpec:
    """The provider's own success predicate. Whatever it says, an error in the body is no success."""

    status: tuple[int, ...]
    body: Literal["any", "empty", "json"]
    path: str | None
    equals: str | int | bool | None


@dataclass(frozen=True)
class UpgradeSpec:
    """A second request after the exchange, by which the token of a code becomes the one that lasts (Instagram)."""

    url: str
    method: Literal["POST", "GET"]
    grant_type: str
    token_param: str


@dataclass(frozen=True)
class MintedSpec:
    """A client secret that is a token, signed with the client's key for one request (Apple)."""

    issuer: str
    audience: str


@dataclass(frozen=True)
class TokenSpec:
    """The token endpoint (RFC 6749 section 3.2)."""

    url: str
    client_auth: TokenAuth
    basic_encoding: Literal["form", "raw"]  # of id and secret before base64: as RFC 6749 section 2.3.1 says, or not
    minted: MintedSpec | None  # the client's secret is signed for each request
    assertion_audience: Literal["token_url", "issuer"]  # of private_key_jwt
    body: Literal["form", "json"]
    params: Fields
    success: SuccessSpec | None  # beyond the status: an envelope that tells failure with 200
    response: ResponseSpec
    expires_unit: Literal["s", "ms"]
    default_lifetime_s: Lifetime
    errors: ErrorCodes
    upgrade: UpgradeSpec | None


@dataclass(frozen=True)
class RefreshSpec:
    """How a grant is refreshed (RFC 6749 section 6)."""

    mode: RefreshMode
    url: str
    method: Literal["POST", "GET"]
    grant_type: str
    token_param: str
    params: Fields
    sends_client: bool
    sends_redirect_uri: bool
    rotates: Rotates
    old_token_after_rotation: OldToken
    reuse_kills_family: YesNo
    idle_limit: Limit  # seconds without a refresh after which the grant is dead
    absolute_limit: Limit  # seconds from the consent after which it is dead, whatever is done
    one_live_token: YesNo  # a further exchange of the same user ends the grant that was there

    @property
    def is_possible(self) -> bool:
        """Whether there is anything to send."""
        return self.mode != "none"


@dataclass(frozen=True)
class RequestSpec:
    """One request as a template; `{token}` and the like stand where their values go."""

    method: Literal["GET", "POST", "DELETE"]
    url: str
    headers: Fields
    client_auth: ClientAuth
    body: Literal["form", "json", "query", "none"]
    fields: Fields


@dataclass(frozen=True)
class RevocationSpec:
    """How a token is ended at the provider."""

    supported: Literal["yes", "no", "undocumented", "unknown"]
    shape: str
    request: RequestSpec | None  # None: there is nothing to call, or nothing known
    adapter: Literal["withings"] | None
    takes: Takes
    token_type_hint: bool
    success: SuccessSpec | None  # None: not known, so that no answer alone counts as revoked
    already_gone: tuple[AnswerPattern, ...]  # empty: not known, or the same answer as a success
    repeat: Literal["same_as_success", "told", "unknown"]  # what a token that is dead already is answered
    ambiguous: tuple[AnswerPattern, ...]  # dead, or merely expired: the answer is the same
    permanent_errors: tuple[AnswerPattern, ...]
    try_later: tuple[str, ...]
    reach: Reach
    ends_pair: bool  # the refresh token beside an access token dies with it, and the other way round
    needs_live_access_token: YesNo
    manual_page: str | None

    @property
    def is_supported(self) -> bool:
        """Whether there is anything to call."""
        return self.request is not None


@dataclass(frozen=True)
class FurtherName:
    """By what else events speak of an account, and where an answer says it."""

    kind: str
    field: str | None
    in_token_response: str | None


@dataclass(frozen=True)
class IdentitySpec:
    """How to learn whose grant it is."""

    request: RequestSpec | None
    field: str | None
    in_token_response: str | None
    in_id_token: str | None
    in_placeholder: str | None
    also: tuple[FurtherName, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there is any way."""
        return any((self.request, self.in_token_response, self.in_id_token, self.in_placeholder))


@dataclass(frozen=True)
class BrokerSpec:
    """A provider that is linked behind an account of its own."""

    find: RequestSpec | None
    absent: tuple[int, ...]
    make: RequestSpec
    account: str
    link: RequestSpec
    link_url: str
    sign_in: RequestSpec | None
    sign_in_token: str | None
    sources: bool
    state_param: str

    @property
    def requests(self) -> tuple[RequestSpec, ...]:
        """All that there are."""
        return tuple(each for each in (self.find, self.make, self.link, self.sign_in) if each is not None)


@dataclass(frozen=True)
class ProviderSpec:
    """One entry of the catalogue."""

    id: str
    name: str
    status: Literal["active", "sunset", "shut_down"]  # sunset: no new grants; shut_down: nothing answers any more
    ends_on: str | None
    placeholders: Placeholders
    authorize: AuthorizeSpec
    oidc: OidcSpec | None
    token: TokenSpec
    refresh: RefreshSpec
    revocation: RevocationSpec
    identity: IdentitySpec
    checked_on: str
    allow_loopback: bool
    broker: BrokerSpec | None = None  # None: it is connected by a code
    webhook: WebhookSpec | None = None  # None: its events are not taken

    @property
    def needs_secret(self) -> bool:
        """Whether any of its requests carries the client's secret."""
        revoke = self.revocation.request
        requests = (*(() if revoke is None else (revoke,)), *(self.broker.requests if self.broker else ()))
        auths = {self.token.client_auth, *(each.client_auth for each in requests)}
        texts = tuple(text for each in requests for text in (*each.headers, *each.fields))
        return (
            not auths <= {"none", "id_only"}
            or self.revocation.adapter is not None
            or any("{client_secret}" in value for _, value in texts)
        )

    @property
    def identity_proves_death(self) -> bool:
        """
        Whether a token that the identity request refuses is dead. Where there are refreshes it may have expired, with
        its grant alive.
        """
        return self.refresh.mode == "none" and self.revocation.takes == "access" and self.identity.request is not None

    @cached_property
    def facts(self) -> ProviderFacts:
        """What rules depend on."""
        lifetime, idle_limit = self.token.default_lifetime_s, self.refresh.idle_limit
        return ProviderFacts(
            revocable=self.revocation.is_supported and self.status != "shut_down",
            takes=self.revocation.takes,
            reach=self.revocation.reach,
            refreshable=self.refresh.is_possible,
            rotates=self.refresh.rotates,
            old_token=self.refresh.old_token_after_rotation,
            has_identity=self.identity.is_known,
            access_ttl_ms=lifetime * 1000 if isinstance(lifetime, int) else None,
            manual_page=self.revocation.manual_page,
            connectable=self.status == "active",
            leaves_earlier_grants=self.refresh.one_live_token == "no",  # noqa: S105 - a fact
            account_is_subject=self.oidc is not None
            and (self.identity.in_id_token is not None or self.identity.field == "sub"),
            pkce=self.authorize.pkce != "none",
            posts_back=self.authorize.response_mode == "form_post",
            reuse_kills_family=self.refresh.reuse_kills_family == "yes",
            idle_limit_ms=idle_limit * 1000 if isinstance(idle_limit, int) else None,
            ends_pair=self.revocation.ends_pair,
            needs_live_access_token=self.revocation.needs_live_access_token != "no",  # noqa: S105 - a fact
            is_broker=self.broker is not None,
            has_sources=self.broker is not None and self.broker.sources,
            signs_in=self.broker is not None and self.broker.sign_in is not None,
        )


class Catalogue:
    """The providers whose compiled JSON lies in some folders; of two with one id the first folder's counts."""

    def __init__(self, dirs: Sequence[Path] = (COMPILED,)) -> None:
        self._dirs = tuple(dirs)
        self._read: dict[str, ProviderSpec] = {}

    def get(self, provider_id: str) -> ProviderSpec:
        """The provider's entry. Raises `ProviderNotRegisteredError`."""
        spec = self._read.get(provider_id)
        if spec is None:
            # The pattern also keeps an id from being a path.
            found = (
                [folder / f"{provider_id}.json" for folder in self._dirs] if PROVIDER_ID.fullmatch(provider_id) else []
            )
            path = next((path for path in found if path.is_file()), None)
            if path is None:
                raise ProviderNotRegisteredError()
            spec = self._read[provider_id] = spec_of(json.loads(path.read_text("utf-8")))
        return spec

    def ids(self) -> list[str]:
        """Every provider there is, in order."""
        return sorted({path.stem for folder in self._dirs for path in folder.glob("*.json")})


def spec_of(compiled: dict[str, Any]) -> ProviderSpec:
    """The spec that a compiled entry holds. Raises `ValueError` for a format of another release."""
    if compiled.get("format") != FORMAT:
        raise ValueError(
            f"compiled catalogue entry of format {compiled.get('format')!r}, not {FORMAT}: compile it anew"
        )
    return ProviderSpec(
        id=compiled["id"],
        name=compiled["name"],
        status=compiled["status"],
        ends_on=compiled["ends_on"],
        placeholders=tuple(
            Placeholder(**{**each, "values": tuple(each["values"])}) for each in compiled["placeholders"]
        ),
        authorize=AuthorizeSpec(
            **{
                **compiled["authorize"],
                "params": _fields(compiled["authorize"]["params"]),
                "scope_prefixes": _fields(compiled["authorize"]["scope_prefixes"]),
            }
        ),
        oidc=_oidc(compiled["oidc"]),
        token=_token(compiled["token"]),
        refresh=_refresh(compiled["refresh"], compiled["token"]["url"]),
        revocation=_revocation(compiled["revocation"]),
        identity=_identity(compiled["identity"]),
        checked_on=compiled["checked_on"],
        allow_loopback=compiled["allow_loopback"],
        broker=_broker(compiled.get("broker")),
        webhook=webhook_of(compiled.get("webhook")),
    )


def _broker(compiled: dict[str, Any] | None) -> BrokerSpec | None:
    if compiled is None:
        return None
    requests = {name: compiled[name] for name in ("find", "make", "link", "sign_in")}
    made: dict[str, Any] = {name: None if told is None else _request(told) for name, told in requests.items()}
    return BrokerSpec(**{**compiled, **made, "absent": tuple(compiled["absent"])})


def _oidc(compiled: dict[str, Any] | None) -> OidcSpec | None:
    return None if compiled is None else OidcSpec(**{**compiled, "algorithms": tuple(compiled["algorithms"])})


def _token(compiled: dict[str, Any]) -> TokenSpec:
    response, errors = compiled["response"], compiled["errors"]
    return TokenSpec(
        **{
            **compiled,
            "params": _fields(compiled["params"]),
            "success": None if compiled["success"] is None else _success(compiled["success"]),
            "response": ResponseSpec(
                **{
                    **response,
                    "refresh_expires_in": tuple(response["refresh_expires_in"]),
                    "pairs": tuple(PairPaths(name=name, **paths) for name, paths in response["pairs"].items()),
                }
            ),
            "errors": ErrorCodes(
                tuple(errors["dead"]), tuple(errors["try_later"]), tuple(errors["config"]), errors["at"]
            ),
            "minted": None if compiled["minted"] is None else MintedSpec(**compiled["minted"]),
            "upgrade": None if compiled["upgrade"] is None else UpgradeSpec(**compiled["upgrade"]),
        }
    )


def _refresh(compiled: dict[str, Any], token_url: str) -> RefreshSpec:
    return RefreshSpec(
        mode=compiled["mode"],
        url=compiled["url"] or token_url,
        method=compiled["method"],
        grant_type=compiled["grant_type"],
        token_param=compiled["token_param"],
        params=_fields(compiled["params"]),
        sends_client=compiled["sends_client"],
        sends_redirect_uri=compiled["sends_redirect_uri"],
        rotates=compiled["rotates"],
        old_token_after_rotation=OldToken(compiled["old_token_after_rotation"]),
        reuse_kills_family=compiled["reuse_kills_family"],
        idle_limit=compiled["idle_limit_s"],
        absolute_limit=compiled["absolute_limit_s"],
        one_live_token=compiled["one_live_token"],
    )


def _revocation(compiled: dict[str, Any]) -> RevocationSpec:
    request = compiled["request"]
    return RevocationSpec(
        supported=compiled["supported"],
        shape=compiled["shape"],
        request=None if request is None else _request(request),
        adapter=compiled["adapter"],
        takes=compiled["takes"] or "either",
        token_type_hint=compiled["token_type_hint"],
        success=None if compiled["success"] is None else _success(compiled["success"]),
        already_gone=_patterns(compiled["already_gone"]),
        repeat=compiled["repeat"],
        ambiguous=_patterns(compiled["ambiguous"]),
        permanent_errors=_patterns(compiled["permanent_errors"]),
        try_later=tuple(compiled["try_later"]),
        # Where nothing is called, nothing is reached: it is never asked for.
        reach=Reach.TOKEN if request is None else Reach(compiled["reach"]),
        ends_pair=compiled["ends_pair"],
        needs_live_access_token=compiled["needs_live_access_token"],
        manual_page=compiled["manual_page"],
    )


def _identity(compiled: dict[str, Any] | None) -> IdentitySpec:
    if compiled is None:
        return IdentitySpec(None, None, None, None, None)
    request = compiled["request"]
    return IdentitySpec(
        None if request is None else _request(request),
        compiled["field"],
        compiled["in_token_response"],
        compiled["in_id_token"],
        compiled["in_placeholder"],
        tuple(FurtherName(**each) for each in compiled["also"]),
    )


def _request(compiled: dict[str, Any]) -> RequestSpec:
    return RequestSpec(
        method=compiled["method"],
        url=compiled["url"],
        headers=_fields(compiled["headers"]),
        client_auth=compiled["client_auth"],
        body=compiled["body"],
        fields=_fields(compiled["fields"]),
    )


def _success(compiled: dict[str, Any]) -> SuccessSpec:
    body = compiled["body"]
    asks_json = isinstance(body, dict)
    return SuccessSpec(
        status=tuple(compiled["status"]),
        body="json" if asks_json else body,
        path=body["path"] if asks_json else None,
        equals=body["equals"] if asks_json else None,
    )


def _patterns(compiled: list[dict[str, Any]]) -> tuple[AnswerPattern, ...]:
    return tuple(AnswerPattern(tuple(each["status"]), tuple(each["errors"])) for each in compiled)


def _fields(compiled: dict[str, str]) -> Fields:
    return tuple(compiled.items())
