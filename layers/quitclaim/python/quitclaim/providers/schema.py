"""
The shape of a catalogue file. Build time only: no function imports this module (it needs pydantic).

Strict: no unknown field, no conversion. What the fields mean stands with the values they become, in `spec.py`.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from quitclaim.providers.addresses import fault_of_url

PROTECTED_PARAMS: Final = frozenset(
    {
        "client_id",
        "client_secret",
        "code_challenge",
        "code_challenge_method",
        "nonce",
        "redirect_uri",
        "request",
        "request_uri",
        "response_mode",
        "response_type",
        "scope",
        "state",
    }
)
"""Parameters of the authorization request that are ours alone; a catalogue that set one could undo a defence."""

Text = Annotated[str, Field(min_length=1, max_length=500)]
MemberPath = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", max_length=200)]
ErrorCode = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
Status = Annotated[int, Field(ge=200, le=599)]
Statuses = Annotated[list[Status], Field(min_length=1)]
YesNo = Literal["yes", "no", "unknown"]
ClientAuth = Literal["basic", "post", "id_only", "none"]

type Fault = tuple[tuple[str, ...], str]
"""Where (the path of a field) and what is wrong there, with the way out."""


class Strict(BaseModel):
    """No unknown field, no conversion, no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Authorize(Strict):
    """The authorization endpoint."""

    url: Text
    params: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")], str] = {}
    pkce: Literal["required", "optional", "none", "unknown"]
    scope_separator: Literal[" ", ","] = " "
    issuer: Text | None = None
    issuer_announced: YesNo = "unknown"
    response_mode: Literal["query", "form_post"] = "query"


class Response(Strict):
    """Paths into the token response."""

    access_token: MemberPath = "access_token"  # noqa: S105 - a member's name
    refresh_token: MemberPath = "refresh_token"  # noqa: S105 - a member's name
    token_type: MemberPath = "token_type"  # noqa: S105 - a member's name
    expires_in: MemberPath = "expires_in"
    refresh_expires_in: list[MemberPath] = [
        "refresh_token_expires_in",
        "refresh_expires_in",
        "x_refresh_token_expires_in",
    ]
    scope: MemberPath = "scope"


class Errors(Strict):
    """Error codes of the token endpoint beside the standard ones."""

    dead: list[ErrorCode] = []
    try_later: list[ErrorCode] = []
    config: list[ErrorCode] = []


class Token(Strict):
    """The token endpoint."""

    url: Text
    client_auth: Literal["basic", "post", "none"]
    body: Literal["form", "json"] = "form"
    response: Response = Response()
    expires_unit: Literal["s", "ms"] = "s"
    default_lifetime_s: Annotated[int, Field(ge=1, le=366 * 86_400)] | Literal["never", "unknown"]
    errors: Errors = Errors()


class Refresh(Strict):
    """How a grant is refreshed."""

    mode: Literal["refresh_token", "none"]
    url: Text | None = None
    rotates: Literal["yes", "no", "sometimes", "unknown"] = "unknown"
    old_token_after_rotation: Literal["immediate", "grace", "stays_valid", "unknown"] = "unknown"  # noqa: S105 - a fact
    reuse_kills_family: YesNo = "unknown"
    idle_limit_s: Annotated[int, Field(ge=3_600, le=10 * 366 * 86_400)] | Literal["none", "unknown"] = "unknown"


class JsonBody(Strict):
    """The body is a JSON object that has this value at this path."""

    path: MemberPath
    equals: str | int | bool


class Success(Strict):
    """What an answer must be to count as revoked."""

    status: Statuses
    body: Literal["any", "empty"] | JsonBody


class Pattern(Strict):
    """Answers by status and, where named, error code."""

    status: Statuses
    errors: list[ErrorCode] = []


class Revocation(Strict):
    """How a token is ended at the provider."""

    shape: Literal["rfc7009_form", "none"]
    url: Text | None = None
    takes: Literal["refresh", "access", "either"] | None = None
    token_type_hint: bool = False
    client_auth: ClientAuth | None = None
    success: Success | None = None
    already_gone: Pattern | Literal["same_as_success", "unknown"] = "unknown"
    permanent_errors: list[Pattern] = []
    reach: Literal["token", "family", "authorization", "account", "unknown"] | None = None
    needs_live_access_token: YesNo = "unknown"  # noqa: S105 - a fact, as above
    manual_page: Text | None = None


class Identity(Strict):
    """How to learn whose grant it is: one GET with the access token, or a member of the token response."""

    url: Text | None = None
    field: MemberPath | None = None
    in_token_response: MemberPath | None = None


class Entry(Strict):
    """One file of the catalogue."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
    name: Text
    status: Literal["active", "shut_down"] = "active"
    authorize: Authorize
    token: Token
    refresh: Refresh
    revocation: Revocation
    identity: Identity | None = None
    sources: Annotated[list[Text], Field(min_length=1)]
    checked_on: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    notes: list[Text] = []


def faults_between_fields(entry: Entry, *, allow_loopback: bool) -> list[Fault]:
    """What is wrong with *entry* although every field by itself is right."""
    return [
        *_faults_of_urls(entry, allow_loopback=allow_loopback),
        *_faults_of_requests(entry),
        *_faults_of_revocation(entry),
    ]


def _faults_of_urls(entry: Entry, *, allow_loopback: bool) -> Iterator[Fault]:
    urls = {
        ("authorize", "url"): entry.authorize.url,
        ("authorize", "issuer"): entry.authorize.issuer,
        ("token", "url"): entry.token.url,
        ("refresh", "url"): entry.refresh.url,
        ("revocation", "url"): entry.revocation.url,
        ("revocation", "manual_page"): entry.revocation.manual_page,
        ("identity", "url"): entry.identity.url if entry.identity else None,
    }
    for place, url in urls.items():
        fault = None if url is None else fault_of_url(url, allow_loopback=allow_loopback)
        if fault is not None:
            yield place, fault
    if "?" in entry.authorize.url:
        yield ("authorize", "url"), "has a query; write its parameters under authorize.params"


def _faults_of_requests(entry: Entry) -> Iterator[Fault]:
    for name in sorted(entry.authorize.params.keys() & PROTECTED_PARAMS):
        yield ("authorize", "params", name), "is set by Quitclaim itself; remove it"
    if entry.authorize.issuer_announced == "yes" and entry.authorize.issuer is None:
        yield ("authorize", "issuer"), "is needed where iss is announced; write the provider's issuer"
    if entry.refresh.mode == "none" and isinstance(entry.refresh.idle_limit_s, int):
        yield ("refresh", "idle_limit_s"), "cannot be kept where nothing is refreshed; remove it or change the mode"
    if entry.refresh.mode == "none" and (entry.refresh.url or entry.refresh.rotates not in ("no", "unknown")):
        yield ("refresh", "mode"), "is none, yet a refresh is described; remove url and rotates or change the mode"
    if entry.refresh.rotates == "no" and entry.refresh.old_token_after_rotation != "unknown":  # noqa: S105
        yield ("refresh", "old_token_after_rotation"), "says what rotation does where nothing rotates; remove it"
    if entry.identity is not None:
        if (entry.identity.url is None) != (entry.identity.field is None):
            yield ("identity",), "has only one of url and field; write both, or none"
        if entry.identity.url is None and entry.identity.in_token_response is None:
            yield ("identity",), "says no way to read the account; write url and field, or remove identity"


def _faults_of_revocation(entry: Entry) -> Iterator[Fault]:
    told = entry.revocation
    needed = ("url", "takes", "client_auth", "success", "reach")
    if told.shape == "none":
        for name in needed:
            if getattr(told, name) is not None:
                yield ("revocation", name), "describes a call where shape is none; remove it or write the shape"
        if told.manual_page is None:
            yield ("revocation", "manual_page"), "is the owner's only way out where shape is none; write the page"
        return
    for name in needed:
        if getattr(told, name) is None:
            yield ("revocation", name), f"is missing; a revocation of shape {told.shape} cannot be judged without it"
    if told.reach in ("authorization", "account", "unknown") and entry.identity is None:
        # The sweep must know whose other grants a call would end (TRANSACTIONS 7.24).
        yield (
            ("revocation", "reach"),
            f"is {told.reach}, and nothing says how to read the account; write identity",
        )
    if told.success is None:
        return
    if not all(200 <= status < 300 for status in told.success.status):
        yield ("revocation", "success", "status"), "counts a refusal as success; use 2xx, or already_gone"
    if 202 in told.success.status:
        yield ("revocation", "success", "status"), "counts 202 as success, which says only that work began; remove it"
    gone = told.already_gone
    if isinstance(gone, Pattern) and not gone.errors and set(gone.status) & set(told.success.status):
        yield ("revocation", "already_gone"), "would take a failed success for gone; write same_as_success"
