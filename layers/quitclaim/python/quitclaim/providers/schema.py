"""
The shape of a catalogue file. Build time only: no function imports this module (it needs pydantic).

Strict: no unknown field, no conversion. What the fields mean stands with the values they become, in `spec.py`; what
`unknown` does stands in docs/providers.md. A revocation is one request template; each named shape fills in what its
providers have in common, and a file writes only what differs.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from quitclaim.providers.addresses import fault_of_url
from quitclaim.providers.placeholders import AT_A_BROKER, REDIRECT_URI, RESERVED, SECRETS, names_in
from quitclaim.providers.webhook_schema import ACCOUNT_AT_BROKER, AccountKind, Accounts, Webhook, faults_of_webhook

PROTECTED_PARAMS: Final = frozenset(
    {
        "client_assertion",
        "client_assertion_type",
        "client_id",
        "client_key",
        "client_secret",
        "code",
        "code_challenge",
        "code_challenge_method",
        "code_verifier",
        "grant_type",
        "nonce",
        "redirect_uri",
        "refresh_token",
        "request",
        "request_uri",
        "response_mode",
        "response_type",
        "scope",
        "state",
    }
)
"""Parameters that are ours alone; a catalogue that set one could undo a defence."""
PROTECTED_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "cookie", "host", "user-agent"}
)

Text = Annotated[str, Field(min_length=1, max_length=500)]
MemberPath = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", max_length=200)]
ErrorCode = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Parameter = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=64)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]+$", max_length=200)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Date = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Status = Annotated[int, Field(ge=200, le=599)]
Statuses = Annotated[list[Status], Field(min_length=1)]
Seconds = Annotated[int, Field(ge=1, le=10 * 366 * 86_400)]
YesNo = Literal["yes", "no", "unknown"]
ClientAuth = Literal["basic", "post", "id_only", "none", "private_key_jwt", "bearer_secret"]
Block = Literal["oauth", "refresh", "revocation", "identity", "webhooks"]
Shape = Literal[
    "rfc7009_form",
    "query_or_form_token",
    "json_token_basic",
    "delete_grant_basic_json",
    "token_in_path",
    "bearer_self",
    "bearer_self_account_in_path",
    "custom_client_scheme_json",
    "account_id_keyed",
    "account_id_keyed_signed",
    "none",
    "unknown",
]

type Fault = tuple[tuple[str, ...], str]
"""Where (the path of a field) and what is wrong there, with the way out."""


class Strict(BaseModel):
    """No unknown field, no conversion, no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Source(Strict):
    """Where facts were read, and which blocks rest on it."""

    text: Text
    blocks: Annotated[list[Block], Field(min_length=1, alias="for")]
    by: Literal["provider", "third_party"] = "third_party"
    read_on: Date | None = None


class Placeholder(Strict):
    """What may stand between braces, and who names it."""

    source: Annotated[Literal["start", "callback", "token_response", "account", "client"], Field(alias="from")]
    parameter: MemberPath | None = None
    form: Literal["text", "origin"] = "text"
    pattern: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    values: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253)]] = []
    default: Text | None = None
    echo: Parameter | None = None


class Authorize(Strict):
    """The authorization endpoint."""

    url: Text
    params: dict[Parameter, str] = {}
    pkce: Literal["required", "optional", "none", "unknown"]
    scope_param: Parameter | Literal["none"] = "scope"
    scope_separator: Literal[" ", ","] = " "
    scope_prefixes: dict[Annotated[str, Field(pattern=r"^[a-z_]+:$")], Parameter] = {}
    client_id_param: Literal["client_id", "client_key"] = "client_id"
    issuer: Text | None = None
    issuer_announced: YesNo = "unknown"
    response_mode: Literal["query", "form_post"] = "query"
    callback_scope_param: Parameter | None = None
    par: YesNo = "unknown"
    par_url: Text | None = None
    resource: Text | None = None


class Oidc(Strict):
    """ID tokens."""

    issuer: Text
    jwks_url: Text
    nonce: bool = True
    algorithms: Annotated[list[Literal["RS256", "ES256", "PS256", "EdDSA"]], Field(min_length=1)] = ["RS256"]


class Pair(Strict):
    """Paths of a further token pair."""

    access_token: MemberPath
    refresh_token: MemberPath
    expires_in: MemberPath
    scope: MemberPath | None = None
    scope_prefix: Annotated[str, Field(pattern=r"^[a-z_]+:$")] | None = None


class Response(Strict):
    """Paths into the token response."""

    access_token: MemberPath = "access_token"  # noqa: S105 - a member's name
    refresh_token: MemberPath = "refresh_token"  # noqa: S105 - a member's name
    token_type: MemberPath = "token_type"  # noqa: S105 - a member's name
    expires_in: MemberPath = "expires_in"
    expires_at: MemberPath | None = None
    refresh_expires_in: list[MemberPath] = [
        "refresh_token_expires_in",
        "refresh_expires_in",
        "x_refresh_token_expires_in",
    ]
    refresh_expires_at: MemberPath | None = None
    scope: MemberPath = "scope"
    pairs: dict[Annotated[str, Field(pattern=r"^[a-z]{1,16}$")], Pair] = {}


class Errors(Strict):
    """Error codes of the token endpoint beside the standard ones."""

    dead: list[ErrorCode] = []
    try_later: list[ErrorCode] = []
    config: list[ErrorCode] = []
    at: MemberPath | None = None


class JsonBody(Strict):
    """The body is a JSON object that has this value at this path."""

    path: MemberPath
    equals: str | int | bool


class Success(Strict):
    """What an answer must be to count."""

    status: Statuses
    body: Literal["any", "empty"] | JsonBody


class Minted(Strict):
    """A client secret that is signed for each request."""

    issuer: Text
    audience: Text


class Upgrade(Strict):
    """A second request, which turns the token of a code into the one that lasts."""

    url: Text
    method: Literal["POST", "GET"] = "POST"
    grant_type: Text
    token_param: Parameter = "access_token"  # noqa: S105 - a parameter's name


class Token(Strict):
    """The token endpoint."""

    url: Text
    client_auth: Literal["basic", "post", "none", "private_key_jwt", "bearer_secret"]
    basic_encoding: Literal["form", "raw"] = "form"
    minted: Minted | None = None
    assertion_audience: Literal["token_url", "issuer"] = "token_url"
    body: Literal["form", "json"] = "form"
    params: dict[Parameter, str] = {}
    success: Success | None = None
    response: Response = Response()
    expires_unit: Literal["s", "ms"] = "s"
    default_lifetime_s: Annotated[int, Field(ge=1, le=366 * 86_400)] | Literal["never", "unknown"]
    errors: Errors = Errors()
    upgrade: Upgrade | None = None


class Refresh(Strict):
    """How a grant is refreshed."""

    mode: Literal["refresh_token", "refresh_token_optional", "access_token_exchange", "none"]
    url: Text | None = None
    method: Literal["POST", "GET"] = "POST"
    grant_type: Text = "refresh_token"
    token_param: Parameter = "refresh_token"  # noqa: S105 - a parameter's name
    params: dict[Parameter, str] = {}
    sends_client: bool = True
    sends_redirect_uri: bool = False
    rotates: Literal["yes", "no", "sometimes", "unknown"] = "unknown"
    old_token_after_rotation: Literal["immediate", "grace", "stays_valid", "unknown"] = "unknown"  # noqa: S105 - a fact
    grace_s: Seconds | Literal["unknown"] = "unknown"
    reuse_kills_family: YesNo = "unknown"
    idle_limit_s: Annotated[int, Field(ge=3_600, le=10 * 366 * 86_400)] | Literal["none", "unknown"] = "unknown"
    absolute_limit_s: Annotated[int, Field(ge=3_600, le=10 * 366 * 86_400)] | Literal["none", "unknown"] = "unknown"
    min_age_s: Seconds | Literal["none", "unknown"] = "unknown"
    one_live_token: YesNo = "unknown"  # noqa: S105 - a fact


class Pattern(Strict):
    """Answers by status and, where named, error code."""

    status: Statuses
    errors: list[ErrorCode] = []


class Revocation(Strict):
    """How a token is ended at the provider."""

    shape: Shape
    supported: Literal["yes", "no", "undocumented", "unknown"] | None = None
    adapter: Literal["withings"] | None = None
    method: Literal["POST", "DELETE", "GET"] | None = None
    url: Text | None = None
    headers: dict[HeaderName, HeaderValue] | None = None
    client_auth: ClientAuth | None = None
    body: Literal["form", "json", "query", "none"] | None = None
    fields: dict[Parameter, Text] | None = None
    takes: Literal["refresh", "access", "either", "account", "unknown"] | None = None
    token_type_hint: bool = False
    success: Success | Literal["unknown"] | None = None
    already_gone: Pattern | list[Pattern] | Literal["same_as_success", "unknown"] = "unknown"
    ambiguous: Pattern | list[Pattern] | Literal["unknown"] = "unknown"
    permanent_errors: list[Pattern] = []
    try_later: list[ErrorCode] = []
    reach: Literal["token", "pair", "family", "authorization", "account", "installation", "unknown"] | None = None
    needs_live_access_token: YesNo = "unknown"  # noqa: S105 - a fact, as above
    side_effects: list[Text] = []
    manual_page: Text | Literal["unknown"] | None = None


NamePath = Annotated[str, Field(pattern=r"^(?:\*|[A-Za-z0-9_-]+)(?:\.(?:\*|[A-Za-z0-9_-]+))*$", max_length=200)]


class FurtherName(Strict):
    """
    Where a further name of the account stands: in the identity's answer, in the token response, or in both; `*` in a
    path is each element of a list.
    """

    field: NamePath | None = None
    in_token_response: NamePath | None = None


class Identity(Strict):
    """How to learn whose grant it is: one request with the access token, or a member of what is there anyway."""

    url: Text | None = None
    method: Literal["GET", "POST"] = "GET"
    headers: dict[HeaderName, HeaderValue] | None = None
    body: Literal["form", "json", "query", "none"] = "none"
    fields: dict[Parameter, Text] = {}
    field: MemberPath | None = None
    in_token_response: MemberPath | None = None
    in_id_token: Literal["sub"] | None = None
    in_placeholder: Name | None = None
    kind: AccountKind | None = None
    also: dict[AccountKind, FurtherName] = {}
    tenant: MemberPath | Literal["unknown"] = "unknown"


class BrokerRequest(Strict):
    """One request to a broker; `{account_id}`, `{reference}`, `{source}` and `{back}` stand where their values go."""

    method: Literal["GET", "POST", "DELETE"] = "POST"
    url: Text
    headers: dict[HeaderName, HeaderValue] = {}
    client_auth: Literal["basic", "none", "bearer_secret"] = "none"
    body: Literal["form", "json", "query", "none"] = "json"
    fields: dict[Parameter, Text] = {}


class Broker(Strict):
    """
    A provider that is linked behind an account of its own instead of by a code: a broker with hosted links.

    *find* and *make* name the account by our reference; *absent* is how find says that there is none.
    """

    find: BrokerRequest | None = None
    absent: Statuses = [404]
    make: BrokerRequest
    account: MemberPath
    link: BrokerRequest
    link_url: MemberPath
    sign_in: BrokerRequest | None = None
    sign_in_token: MemberPath | None = None
    sources: bool = False
    state_param: Parameter = "state"


class Timestamp(Strict):
    """Of a signed event."""

    unit: Literal["s", "ms", "rfc3339", "unknown"]
    tolerance_s: Annotated[int, Field(ge=1, le=86_400)] | Literal["unknown"] = "unknown"
    where: Annotated[str, Field(pattern=r"^(header|body|signature|token)(:[\w.-]+)?$")] = "header"


class Webhooks(Strict):
    """What is known of a provider's events, for whoever writes a `webhook` block. Nothing is done by these facts."""

    available: YesNo
    scheme: Literal[
        "hmac_body_hex",
        "hmac_body_hex_prefixed",
        "hmac_body_base64",
        "hmac_body_base64_prefixed",
        "hmac_t_v1_header",
        "hmac_prefixed_ts_body",
        "hmac_ts_body",
        "hmac_id_ts_body",
        "hmac_body_then_ts",
        "hmac_url_body",
        "hmac_method_uri_body_ts",
        "standard_webhooks",
        "ed25519_ts_body",
        "ecdsa_key_by_id",
        "rsa_cert_url_crc32",
        "jws_payload",
        "signed_request_form_field",
        "shared_secret_in_body",
        "client_id_header_only",
        "none",
        "unknown",
    ] = "unknown"
    algorithm: Literal["hmac-sha256", "ed25519", "ecdsa-sha1", "rsa-sha256", "none", "unknown"] = "unknown"
    headers: dict[Name, Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")]] | Literal["unknown"] = {}
    signed: Text | Literal["unknown"] = "unknown"
    encoding: Literal["hex", "hex_upper", "base64", "base64url", "jwt", "none", "unknown"] = "unknown"
    prefix: Annotated[str, Field(pattern=r"^[\w-]+=$")] | None = None
    key: Text | Literal["unknown"] = "unknown"
    key_encoding: Literal["utf8", "hex", "base64", "whsec", "jwks", "pem", "x509", "plain", "none", "unknown"] = (
        "unknown"
    )
    timestamp: Timestamp | Literal["none", "unknown"] = "unknown"
    handshake: Text | Literal["unknown"] = "unknown"
    event_id: Annotated[str, Field(pattern=r"^(none|unknown|(header|body):[\w.-]+)$")] = "unknown"
    account_field: Text | Literal["unknown"] = "unknown"
    batched: YesNo = "unknown"
    deauthorization: list[Text] | Literal["unknown"] = "unknown"
    ack_s: Annotated[int, Field(ge=1, le=600)] | Literal["unknown"] = "unknown"


class Entry(Strict):
    """One file of the catalogue."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
    name: Text
    status: Literal["active", "sunset", "shut_down"] = "active"
    ends_on: Date | None = None
    checked_on: Date
    sources: Annotated[list[Text | Source], Field(min_length=1)]
    remembered: list[Annotated[str, Field(pattern=r"^[a-z_]+(\.[A-Za-z_-]+)*$")]] = []
    notes: list[Text] = []
    placeholders: dict[Name, Placeholder] = {}
    authorize: Authorize
    oidc: Oidc | None = None
    token: Token
    refresh: Refresh
    revocation: Revocation
    identity: Identity | None = None
    webhooks: Webhooks | None = None
    webhook: Webhook | None = None
    broker: Broker | None = None


UNUSED: Final[dict[str, dict[str, Any]]] = {
    "authorize": {"url": "https://unused.example.com/", "pkce": "none", "scope_param": "none"},
    "token": {"url": "https://unused.example.com/", "client_auth": "none", "default_lifetime_s": "never"},
    "refresh": {"mode": "none"},
}
"""What the file of a broker leaves out: nothing of it is ever asked."""


# --- what a shape stands for ---------------------------------------------------------------------------------------

BEARER: Final = {"Authorization": "Bearer {token}"}
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "rfc7009_form": {"method": "POST", "body": "form", "fields": {"token": "{token}"}},
    "query_or_form_token": {"method": "POST", "body": "query", "fields": {"token": "{token}"}},
    "json_token_basic": {"method": "POST", "body": "json", "client_auth": "basic", "fields": {"token": "{token}"}},
    "delete_grant_basic_json": {
        "method": "DELETE",
        "body": "json",
        "client_auth": "basic",
        "fields": {"access_token": "{token}"},
        "takes": "access",
    },
    "token_in_path": {"method": "DELETE", "body": "none", "client_auth": "none"},
    "bearer_self": {"body": "none", "client_auth": "none", "headers": BEARER},
    "bearer_self_account_in_path": {"method": "DELETE", "body": "none", "client_auth": "none", "headers": BEARER},
    "custom_client_scheme_json": {
        "method": "POST",
        "body": "json",
        "client_auth": "none",
        "headers": {"Authorization": "Client {client_secret}"},
        "fields": {"client_id": "{client_id}", "access_token": "{token}"},
    },
    "account_id_keyed": {"method": "POST", "body": "form", "takes": "account"},
    "account_id_keyed_signed": {"method": "POST", "body": "form", "client_auth": "none", "takes": "account"},
}
"""What the providers of a shape have in common; `none` and `unknown` make no request."""
NEEDED: Final = ("method", "url", "client_auth", "body", "takes", "success", "reach")


def filled_revocation(told: Revocation) -> Revocation:
    """*told* with what its shape stands for where the file says nothing."""
    preset = {name: value for name, value in SHAPES.get(told.shape, {}).items() if getattr(told, name) is None}
    return told.model_copy(update=preset)


def compiled_revocation(entry: Entry) -> dict[str, Any]:
    """The revocation as `spec.py` reads it."""
    told = filled_revocation(entry.revocation)
    has_call = told.shape not in ("none", "unknown")
    gone = told.already_gone
    return {
        "supported": told.supported or {"none": "no", "unknown": "unknown"}.get(told.shape, "yes"),
        "shape": told.shape,
        "request": _request(told.method, told.url, told.headers, told.client_auth, told.body, told.fields)
        if has_call
        else None,
        "adapter": told.adapter,
        "takes": "either" if told.takes == "unknown" else told.takes,
        "token_type_hint": told.token_type_hint,
        "success": told.success.model_dump(mode="json") if isinstance(told.success, Success) else None,
        "already_gone": _patterns(gone),
        "repeat": gone if isinstance(gone, str) else "told",
        "ambiguous": _patterns(told.ambiguous),
        "permanent_errors": _patterns(told.permanent_errors),
        "try_later": told.try_later,
        # A pair is a token with its own refresh token; an installation goes for everybody, so for the account too.
        "reach": {"pair": "token", "installation": "account"}.get(told.reach or "", told.reach),
        "ends_pair": told.reach not in ("token", "unknown", None),
        "needs_live_access_token": told.needs_live_access_token,
        "manual_page": None if told.manual_page == "unknown" else told.manual_page,
    }


def compiled_identity(entry: Entry) -> dict[str, Any] | None:
    """Likewise."""
    told = entry.identity
    if told is None:
        return None
    headers = BEARER if told.headers is None else told.headers
    return {
        "request": None
        if told.url is None
        else _request(told.method, told.url, headers, "none", told.body, told.fields),
        "field": told.field,
        "in_token_response": told.in_token_response,
        "in_id_token": told.in_id_token,
        "in_placeholder": told.in_placeholder,
        "also": [{"kind": kind, **name.model_dump(mode="json")} for kind, name in told.also.items()],
    }


def compiled_broker(entry: Entry) -> dict[str, Any] | None:
    """Likewise."""
    told = entry.broker
    if told is None:
        return None
    requests = {name: getattr(told, name) for name in ("find", "make", "link", "sign_in")}
    return {
        **{name: None if each is None else each.model_dump(mode="json") for name, each in requests.items()},
        "absent": told.absent,
        "account": told.account,
        "link_url": told.link_url,
        "sign_in_token": told.sign_in_token,
        "sources": told.sources,
        "state_param": told.state_param,
    }


def _request(
    method: str | None,
    url: str | None,
    headers: dict[str, str] | None,
    client_auth: str | None,
    body: str | None,
    fields: dict[str, str] | None,
) -> dict[str, Any]:
    return {
        "method": method,
        "url": url,
        "headers": headers or {},
        "client_auth": client_auth,
        "body": body,
        "fields": fields or {},
    }


def _patterns(told: Pattern | list[Pattern] | str) -> list[dict[str, Any]]:
    if isinstance(told, str):
        return []
    return [each.model_dump(mode="json") for each in (told if isinstance(told, list) else [told])]


# --- what must hold between fields ---------------------------------------------------------------------------------


def faults_between_fields(entry: Entry, *, allow_loopback: bool) -> list[Fault]:
    """What is wrong with *entry* although every field by itself is right."""
    return [
        *_faults_of_placeholders(entry),
        *_faults_of_urls(entry, allow_loopback=allow_loopback),
        *_faults_of_status(entry),
        *_faults_of_memory(entry),
        *_faults_of_sources(entry),
        *_faults_of_requests(entry),
        *_faults_of_revocation(entry),
        *_faults_of_identity(entry),
        *_faults_of_webhooks(entry),
        *(faults_of_webhook(entry.webhook) if entry.webhook is not None else ()),
        *_faults_of_accounts(entry),
        *_faults_of_broker(entry),
    ]


# --- placeholders ---

PATTERN: Final = re.compile(
    r"(?:[A-Za-z0-9_-]|\\\.|\[(?:[A-Za-z0-9_]|[a-z0-9]-[a-z0-9]|[A-Z]-[A-Z]|\.|-(?=\]))+\]|"
    r"\{\d{1,3}(?:,\d{1,3})?\}|\?(?!\?)|\(\?:|\||\)(?![*+{]))+"
)
"""
What a pattern may be made of: letters, digits, `_`, `-`, escaped dots, classes of these, bounded repetition and
alternatives. So no pattern takes a slash, an at sign, a percent, a space or a control character, and none is slow.
"""
WRITTEN_DOMAIN: Final = re.compile(r"(?:\\\.[a-z0-9-]+){2,}$")
WHEN: Final = {
    "authorize": {"client", "start"},
    "token": {"client", "start", "callback"},
    "refresh": {"client", "start", "callback", "token_response"},
    "identity": {"client", "start", "callback", "token_response"},
    "revocation": {"client", "start", "callback", "token_response", "account"},
    "broker": {"client"},
}
"""Which sources have spoken by the time that a request is made."""


def _templates(entry: Entry) -> Iterator[tuple[tuple[str, ...], str, str, bool]]:
    """Every text that may hold placeholders: where it stands, the text, its stage, whether it is a URL."""
    yield ("authorize", "url"), entry.authorize.url, "authorize", True
    yield ("token", "url"), entry.token.url, "token", True
    if entry.authorize.par_url is not None:
        yield ("authorize", "par_url"), entry.authorize.par_url, "authorize", True
    if entry.token.minted is not None:
        yield ("token", "minted", "issuer"), entry.token.minted.issuer, "authorize", False
    if entry.refresh.url is not None:
        yield ("refresh", "url"), entry.refresh.url, "refresh", True
    told = filled_revocation(entry.revocation)
    if told.url is not None:
        yield ("revocation", "url"), told.url, "revocation", True
    for place in ("headers", "fields"):
        for name, value in (getattr(told, place) or {}).items():
            yield ("revocation", place, name), value, "revocation", False
    for name, request in _broker_requests(entry):
        yield ("broker", name, "url"), request.url, "broker", True
        for place in ("headers", "fields"):
            for key, value in getattr(request, place).items():
                yield ("broker", name, place, key), value, "broker", False
    if entry.identity is not None:
        if entry.identity.url is not None:
            yield ("identity", "url"), entry.identity.url, "identity", True
        for place in ("headers", "fields"):
            for name, value in (getattr(entry.identity, place) or {}).items():
                yield ("identity", place, name), value, "identity", False


def _faults_of_placeholders(entry: Entry) -> Iterator[Fault]:
    used: set[str] = set()
    for place, template, stage, is_url in _templates(entry):
        for name in sorted(names_in(template)):
            used.add(name)
            if name in RESERVED:
                yield from _faults_of_reserved(place, name, stage, template, is_url=is_url)
            elif name not in entry.placeholders:
                yield place, f"holds {{{name}}}, which nothing fills; declare it under placeholders"
            elif entry.placeholders[name].source not in WHEN[stage]:
                source = entry.placeholders[name].source
                yield place, f"holds {{{name}}}, which comes from {source}, too late for it; use another source"
    if entry.identity is not None and entry.identity.in_placeholder is not None:
        used.add(entry.identity.in_placeholder)
    for name, told in entry.placeholders.items():
        place = ("placeholders", name)
        if name in RESERVED or name == REDIRECT_URI:
            yield place, "is filled by the request itself; remove it or name it otherwise"
        if (told.pattern is None) == (not told.values):
            yield place, "has not exactly one of pattern and values; write what a value must match"
        if told.pattern is not None and not PATTERN.fullmatch(told.pattern):
            yield (
                (*place, "pattern"),
                "may be made of letters, digits, _ - \\. classes of these, {m,n}, ? and (?:a|b) only; rewrite it",
            )
        elif told.pattern is not None and not _compiles(told.pattern):
            yield (*place, "pattern"), "is no regular expression; correct it"
        if told.default is not None and told.source == "account":
            yield (*place, "default"), "cannot stand for an account; remove it"
        if told.default is not None and not _allows(told, told.default):
            yield (*place, "default"), "is not a value that the placeholder allows; correct it"
        if told.echo is not None and told.source != "start":
            yield (*place, "echo"), "compares with what the start named; use it with from: start only"
        if name not in used and told.source in ("start", "client"):
            yield place, "is used nowhere; remove it"


def _broker_requests(entry: Entry) -> Iterator[tuple[str, BrokerRequest]]:
    for name in ("find", "make", "link", "sign_in"):
        request = getattr(entry.broker, name, None)
        if request is not None:
            yield name, request


def _faults_of_broker(entry: Entry) -> Iterator[Fault]:
    told = entry.broker
    if told is None:
        return
    needed = {"find": {"reference"}, "make": {"reference"}, "link": {"account_id", "back"}, "sign_in": {"account_id"}}
    for name, request in _broker_requests(entry):
        named = names_in("".join([request.url, *request.headers.values(), *request.fields.values()]))
        for missing in sorted(needed[name] - named):
            yield ("broker", name), f"names no {{{missing}}}; write where it goes"
        if request.body == "none" and request.fields:
            yield ("broker", name, "fields"), "have no body to stand in; write body: form, json or query"
        for header in request.headers:
            if header.lower() in PROTECTED_HEADERS:
                yield ("broker", name, "headers", header), "is set by Quitclaim itself; remove it"
    if (told.sign_in is None) != (told.sign_in_token is None):
        yield ("broker", "sign_in"), "and sign_in_token belong together; write both, or neither"
    if told.sources != ("source" in names_in("".join([told.link.url, *told.link.fields.values()]))):
        yield ("broker", "sources"), "and {source} in the link belong together; write both, or neither"
    if entry.revocation.takes not in ("access", None):
        yield ("revocation", "takes"), "is what an account at a broker has: write access, and {token} where its id goes"


def _faults_of_reserved(
    place: tuple[str, ...], name: str, stage: str, template: str, *, is_url: bool
) -> Iterator[Fault]:
    if stage == "broker":
        if is_url and name == "client_secret":
            yield place, "would put the client's secret into a URL; use client_auth or a header"
        elif name in ("token", "token_kind"):
            yield place, f"holds {{{name}}}, which a request to a broker has not; write {{account_id}}"
        elif is_url and not _is_behind_the_host(template, name):
            yield place, "would put a value of ours into a host name; write the broker's host"
    elif name in AT_A_BROKER:
        yield place, f"holds {{{name}}}, which only a request to a broker has; remove it"
    elif stage not in ("revocation", "identity"):
        yield place, f"holds {{{name}}}, which is not at hand there; remove it"
    elif is_url and name == "client_secret":
        yield place, "would put the client's secret into a URL; use client_auth or a header"
    elif is_url and name in SECRETS and not _is_behind_the_host(template, name):
        yield place, "would put a token into a host name; write the provider's host"
    elif stage == "identity" and name in ("account_id", "client_secret", "token_kind"):
        yield place, f"holds {{{name}}}, which an identity request has not; remove it"


def _is_behind_the_host(template: str, name: str) -> bool:
    return f"{{{name}}}" not in template.split("/", 3)[2] if template.count("/") >= 3 else False


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _allows(told: Placeholder, value: str) -> bool:
    if told.values:
        return value in told.values
    return told.pattern is not None and _compiles(told.pattern) and re.fullmatch(told.pattern, value) is not None


def _examples(entry: Entry, template: str) -> Iterator[str]:
    """*template* as it may be asked for: with every value of a closed list, and a stand-in for a pattern."""
    names = sorted(names_in(template))
    for name in names:
        for value in _stand_ins(entry, name):
            text = template.replace(f"{{{name}}}", value)
            for other in names:
                text = text.replace(f"{{{other}}}", _stand_ins(entry, other)[0])
            yield text
    if not names:
        yield template


def _stand_ins(entry: Entry, name: str) -> list[str]:
    """Every value of a closed list; of a pattern, the domain that it ends in."""
    told = entry.placeholders.get(name)
    if told is None or told.values:
        return (told.values if told is not None else None) or ["x"]
    domain = WRITTEN_DOMAIN.search(told.pattern or "")
    return [f"x{domain[0].replace(chr(92), '')}" if domain is not None else "x"]


def _faults_of_urls(entry: Entry, *, allow_loopback: bool) -> Iterator[Fault]:
    urls: dict[tuple[str, ...], str | None] = {
        ("authorize", "issuer"): entry.authorize.issuer,
        ("authorize", "resource"): entry.authorize.resource,
        ("revocation", "manual_page"): None
        if entry.revocation.manual_page == "unknown"
        else entry.revocation.manual_page,
        ("oidc", "issuer"): entry.oidc.issuer if entry.oidc else None,
        ("oidc", "jwks_url"): entry.oidc.jwks_url if entry.oidc else None,
        ("token", "upgrade", "url"): entry.token.upgrade.url if entry.token.upgrade else None,
        **{place: template for place, template, _, is_url in _templates(entry) if is_url},
    }
    for place, url in urls.items():
        if url is None:
            continue
        fault = _fault_of_whole_host(entry, url)
        for example in _examples(entry, url):
            fault = fault or fault_of_url(example, allow_loopback=allow_loopback)
        if fault is not None:
            yield place, fault
    if "?" in entry.authorize.url:
        yield ("authorize", "url"), "has a query; write its parameters under authorize.params"


def _has_open_choice(pattern: str) -> bool:
    """Whether there is a `|` outside of every group: then the written domain belongs to the last choice only."""
    depth = 0
    for character in pattern:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            return True
    return False


def _fault_of_whole_host(entry: Entry, url: str) -> str | None:
    """A host that a value alone decides: its pattern must end in a domain that is written out."""
    host = url.split("/", 3)[2] if url.count("/") >= 2 else ""
    names = names_in(host)
    for name in sorted(names):
        told = entry.placeholders.get(name)
        if told is None or told.values or told.pattern is None:
            continue
        if host.endswith(f"{{{name}}}") and (not WRITTEN_DOMAIN.search(told.pattern) or _has_open_choice(told.pattern)):
            return f"has a host that {{{name}}} alone decides; end its pattern in a written domain, or list the values"
        if not host.endswith(f"{{{name}}}") and re.search(r"\\\.|\[[^\]]*\.", told.pattern):
            return f"has {{{name}}} before a domain, and its pattern takes a dot; leave the dot out"
    return None


# --- the rest ---


def _faults_of_status(entry: Entry) -> Iterator[Fault]:
    if entry.status == "active" and entry.ends_on is not None:
        yield ("ends_on",), "is the end of a provider whose status is active; write sunset or shut_down"
    if entry.status != "active" and entry.ends_on is None:
        yield ("ends_on",), f"is missing; a provider whose status is {entry.status} has an end, write its date"


REMEMBERED: Final = re.compile(
    r"authorize(\..*)?|oidc(\..*)?|token\.(url|client_auth|body|params|response|minted)|placeholders\..*|"
    r"identity(\..*)?|refresh\.(url|mode)|revocation\.manual_page|webhook\.(signature|event|handshakes|status)(\..*)?"
)
"""
What may rest on memory, said so by its file: if it is wrong, connecting or refreshing fails and is seen to. What a
confirmation or a lifetime rests on may not; there the value is unknown until somebody has read it.
"""


def _faults_of_memory(entry: Entry) -> Iterator[Fault]:
    for number, name in enumerate(entry.remembered):
        place = ("remembered", str(number))
        if not REMEMBERED.fullmatch(name):
            yield place, f"is {name}, which must not rest on memory; write unknown there, or a source"
        at: Any = entry.model_dump(mode="json")
        for part in name.split("."):
            at = at.get(part) if isinstance(at, dict) else None
        if at is None:
            yield place, f"is {name}, which the file does not hold; remove it or correct its spelling"


def _faults_of_sources(entry: Entry) -> Iterator[Fault]:
    if any(isinstance(source, str) for source in entry.sources):
        return  # a source without a block stands for all of them
    sourced = {block for source in entry.sources if isinstance(source, Source) for block in source.blocks}
    says = {
        "revocation": entry.revocation.shape not in ("none", "unknown"),
        "refresh": entry.refresh != Refresh(mode=entry.refresh.mode),
        "identity": entry.identity is not None and "identity" not in entry.remembered,
        "webhooks": entry.webhooks is not None and entry.webhooks.available != "unknown",
        "oauth": True,
    }
    for block, is_told in says.items():
        if is_told and block not in sourced:
            yield ("sources",), f"name none for {block}; say where it was read, or write unknown"


def _faults_of_requests(entry: Entry) -> Iterator[Fault]:
    for block, params in (
        ("authorize", entry.authorize.params),
        ("token", entry.token.params),
        ("refresh", entry.refresh.params),
    ):
        ours = PROTECTED_PARAMS - {"scope"} if block == "refresh" else PROTECTED_PARAMS  # RFC 6749 section 6
        for name in sorted(params.keys() & ours):
            yield (block, "params", name), "is set by Quitclaim itself; remove it"
    for block, headers in (
        ("revocation", entry.revocation.headers or {}),
        ("identity", (entry.identity.headers if entry.identity else None) or {}),
    ):
        for name in headers:
            if name.lower() in PROTECTED_HEADERS:
                yield (block, "headers", name), "is set by Quitclaim itself; remove it"
    if entry.authorize.issuer_announced == "yes" and entry.authorize.issuer is None:
        yield ("authorize", "issuer"), "is needed where iss is announced; write the provider's issuer"
    if (entry.authorize.par == "yes") != (entry.authorize.par_url is not None):
        yield ("authorize", "par_url"), "and par: yes belong together; write both, or neither"
    issuer = entry.oidc.issuer if entry.oidc else entry.authorize.issuer
    if entry.token.assertion_audience == "issuer" and (issuer is None or entry.token.client_auth != "private_key_jwt"):
        yield (
            ("token", "assertion_audience"),
            "is the issuer of who takes private_key_jwt; write authorize.issuer and client_auth",
        )
    told = entry.revocation
    if entry.token.client_auth == "private_key_jwt" and told.client_auth in ("basic", "post", "bearer_secret"):
        yield ("revocation", "client_auth"), "needs a shared secret where the client has a key; write private_key_jwt"
    if told.client_auth == "private_key_jwt" != entry.token.client_auth:
        yield ("revocation", "client_auth"), "needs a key where the client has a shared secret; write that"
    if entry.token.minted is not None and entry.token.client_auth != "post":
        yield ("token", "minted"), "is sent in the body only; write client_auth: post"
    yield from _faults_of_refresh(entry)


def _faults_of_refresh(entry: Entry) -> Iterator[Fault]:
    told = entry.refresh
    if told.mode == "none":
        if isinstance(told.idle_limit_s, int):
            yield ("refresh", "idle_limit_s"), "cannot be kept where nothing is refreshed; remove it or change the mode"
        if told.url or told.rotates not in ("no", "unknown"):
            yield ("refresh", "mode"), "is none, yet a refresh is described; remove url and rotates or change the mode"
    if told.rotates == "no" and told.old_token_after_rotation != "unknown":  # noqa: S105
        yield ("refresh", "old_token_after_rotation"), "says what rotation does where nothing rotates; remove it"
    if isinstance(told.grace_s, int) and told.old_token_after_rotation != "grace":  # noqa: S105
        yield ("refresh", "grace_s"), "is the length of a grace that is not told of; write old_token_after_rotation"
    if told.method == "GET" and told.mode != "access_token_exchange":
        yield ("refresh", "method"), "would put a refresh token into a URL; write POST"


def _faults_of_revocation(entry: Entry) -> Iterator[Fault]:
    told = filled_revocation(entry.revocation)
    if told.shape in ("none", "unknown"):
        for name in NEEDED:
            if getattr(told, name) is not None:
                yield (
                    ("revocation", name),
                    f"describes a call where shape is {told.shape}; remove it or write the shape",
                )
        if told.manual_page is None and told.shape == "none":
            yield (
                ("revocation", "manual_page"),
                "is the owner's only way out where shape is none; write the page, or unknown",
            )
        return
    for name in NEEDED:
        if getattr(told, name) is None:
            yield ("revocation", name), f"is missing; a revocation of shape {told.shape} cannot be judged without it"
    yield from _faults_of_call(entry, told)
    yield from _faults_of_answers(told)


def _faults_of_call(entry: Entry, told: Revocation) -> Iterator[Fault]:
    sent = "".join([told.url or "", *(told.headers or {}).values(), *(told.fields or {}).values()])
    named = names_in(sent)
    if told.adapter is None and told.takes == "account" and "account_id" not in named:
        yield ("revocation", "fields"), "name no {account_id}, which is all that the call takes; write where it goes"
    if told.adapter is None and told.takes not in ("account", None) and "token" not in named:
        yield ("revocation", "fields"), "name no {token}; write where the token goes: a field, a header or the URL"
    if (told.shape == "account_id_keyed_signed") != (told.adapter is not None):
        yield ("revocation", "adapter"), "and shape account_id_keyed_signed belong together; write both, or neither"
    if told.body == "none" and told.fields:
        yield ("revocation", "fields"), "have no body to stand in; write body: form, json or query"
    if told.body in ("none", "query") and told.client_auth in ("post", "id_only"):
        yield ("revocation", "client_auth"), "has no body to stand in; write basic, none, or a header"
    if told.token_type_hint and told.body not in ("form", "json"):
        yield ("revocation", "token_type_hint"), "has no body to stand in; remove it"
    if told.takes == "account" and (entry.identity is None or entry.identity.in_token_response is None):
        yield ("revocation", "takes"), "is account, which must be at hand at once; write identity.in_token_response"
    if told.success == "unknown" and told.already_gone == "same_as_success":
        yield ("revocation", "already_gone"), "is the same as what is not known; write unknown"
    if told.reach in ("authorization", "account", "installation", "unknown") and entry.identity is None:
        # The sweep must know whose other grants a call would end (docs/table.md, row 30).
        yield ("revocation", "reach"), f"is {told.reach}, and nothing says how to read the account; write identity"
    if told.takes == "refresh" and told.needs_live_access_token == "yes":  # noqa: S105 - a fact
        yield ("revocation", "needs_live_access_token"), "cannot be where a refresh token is taken; correct one of both"


def _faults_of_answers(told: Revocation) -> Iterator[Fault]:
    if not isinstance(told.success, Success):
        return
    if not all(200 <= status < 300 for status in told.success.status):
        yield ("revocation", "success", "status"), "counts a refusal as success; use 2xx, or already_gone"
    if 202 in told.success.status:
        yield ("revocation", "success", "status"), "counts 202 as success, which says only that work began; remove it"
    for name in ("already_gone", "ambiguous"):
        value = getattr(told, name)
        for pattern in value if isinstance(value, list) else [value]:
            if isinstance(pattern, Pattern) and not pattern.errors and set(pattern.status) & set(told.success.status):
                fix = "write same_as_success" if name == "already_gone" else "name its error codes"
                yield ("revocation", name), f"would take a failed success for {name.replace('_', ' ')}; {fix}"


def _faults_of_identity(entry: Entry) -> Iterator[Fault]:
    told = entry.identity
    if told is None:
        return
    if (told.url is None) != (told.field is None):
        yield ("identity",), "has only one of url and field; write both, or none"
    ways = (told.url, told.in_token_response, told.in_id_token, told.in_placeholder)
    if not any(ways):
        yield ("identity",), "says no way to read the account; write url and field, or remove identity"
    if told.in_id_token is not None and entry.oidc is None:
        yield ("identity", "in_id_token"), "needs a checked ID token; write oidc, or remove it"
    if told.in_placeholder is not None:
        source = entry.placeholders.get(told.in_placeholder)
        if source is None or source.source not in ("start", "callback"):
            yield ("identity", "in_placeholder"), "must name a placeholder from start or callback; correct it"
    if told.body == "none" and told.fields:
        yield ("identity", "fields"), "have no body to stand in; write body: form, json or query"
    for kind, name in told.also.items():
        place = ("identity", "also", kind)
        if kind == told.kind:
            yield place, "is the kind of the account itself; name another, or remove it"
        if (name.field is None) != (told.url is None):
            yield (*place, "field"), "and identity.url belong together: it is read where the account is"
        if (name.in_token_response is None) != (told.in_token_response is None):
            yield (*place, "in_token_response"), "and the account's own belong together: it is read where that is"


def _faults_of_accounts(entry: Entry) -> Iterator[Fault]:
    """An event must name its accounts by what the identity stores of a grant; else it would never find one."""
    if entry.webhook is None:
        return
    told, identity = entry.webhook, entry.identity
    known = {identity.kind, *identity.also} if identity is not None else set()
    if entry.broker is not None:
        known.add(ACCOUNT_AT_BROKER)
    listed: list[tuple[tuple[str, ...], Accounts]] = [(("webhook", "event", "accounts"), told.event.accounts)]
    listed += [
        (("webhook", "deauthorizations", str(number), "accounts"), each.accounts)
        for number, each in enumerate(told.deauthorizations)
    ]
    for place, accounts in listed:
        for kind in accounts:
            if kind not in known:
                yield (
                    (*place, kind),
                    "is no kind of account that the identity stores; write the path of one that is, "
                    "identity.kind, or where its answers say this name: identity.also",
                )
            elif told.unready == "retry" and identity is not None and kind != identity.kind:
                yield (*place, kind), "cannot be looked up before an event is accepted; write unready: hold"
    used = {kind for _, accounts in listed for kind in accounts}
    for kind in identity.also if identity is not None else ():
        if kind not in used:
            yield ("identity", "also", kind), "is a name that no event uses; remove it"


def _faults_of_webhooks(entry: Entry) -> Iterator[Fault]:
    told = entry.webhooks
    if told is None:
        return
    signed = told.scheme.startswith(("hmac", "standard", "ed25519", "ecdsa", "rsa"))
    if signed and not told.headers:
        yield (
            ("webhooks", "headers"),
            f"are missing; a signature of scheme {told.scheme} comes in a header, name it or write unknown",
        )
    if told.available != "yes" and told.scheme not in ("none", "unknown"):
        yield ("webhooks", "scheme"), "describes events that are not known to exist; correct available or remove it"
    parts = names_in(told.signed)
    if not parts <= {"body", "timestamp", "id", "method", "url", "webhook_id", "crc32"}:
        yield ("webhooks", "signed"), "may name {body}, {timestamp}, {id}, {method}, {url}, {webhook_id}, {crc32} only"
