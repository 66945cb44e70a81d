"""
What the catalogue says of a provider: the compiled JSON as frozen values, read on first use of that provider.

`unknown` is a value of its own everywhere and never reads as no. The JSON was validated when it was compiled
(`schema.py`); here it is only taken apart, without pydantic.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from quitclaim.domain.errors import ProviderNotRegisteredError
from quitclaim.domain.facts import OldToken, ProviderFacts
from quitclaim.domain.revocations import Reach

FORMAT: Final = 2
PROVIDER_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
COMPILED: Final = Path(__file__).parent / "catalogue" / "compiled"

type YesNo = Literal["yes", "no", "unknown"]
type Pkce = Literal["required", "optional", "none", "unknown"]
type ClientAuth = Literal["basic", "post", "id_only", "none"]
type Takes = Literal["refresh", "access", "either"]
type Rotates = Literal["yes", "no", "sometimes", "unknown"]
type Lifetime = int | Literal["never", "unknown"]
type IdleLimit = int | Literal["none", "unknown"]


@dataclass(frozen=True)
class AuthorizeSpec:
    """The authorization endpoint (RFC 6749 section 3.1)."""

    url: str
    params: tuple[tuple[str, str], ...]
    pkce: Pkce  # S256 or nothing
    scope_separator: str
    issuer: str | None
    issuer_announced: YesNo  # whether its answers carry `iss` (RFC 9207)
    response_mode: Literal["query", "form_post"]


@dataclass(frozen=True)
class ResponseSpec:
    """Where the token response keeps what: paths of member names with dots between."""

    access_token: str
    refresh_token: str
    token_type: str
    expires_in: str
    refresh_expires_in: tuple[str, ...]
    scope: str


@dataclass(frozen=True)
class ErrorCodes:
    """Error codes of this provider beside the standard ones."""

    dead: tuple[str, ...]
    try_later: tuple[str, ...]
    config: tuple[str, ...]


@dataclass(frozen=True)
class TokenSpec:
    """The token endpoint (RFC 6749 section 3.2)."""

    url: str
    client_auth: ClientAuth
    body: Literal["form", "json"]
    response: ResponseSpec
    expires_unit: Literal["s", "ms"]
    default_lifetime_s: Lifetime
    errors: ErrorCodes


@dataclass(frozen=True)
class RefreshSpec:
    """How a grant is refreshed (RFC 6749 section 6)."""

    mode: Literal["refresh_token", "none"]
    url: str
    rotates: Rotates
    old_token_after_rotation: OldToken
    reuse_kills_family: YesNo
    idle_limit: IdleLimit  # seconds without a refresh after which the grant is dead


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
class RevocationSpec:
    """How a token is ended at the provider."""

    shape: Literal["rfc7009_form", "none"]
    url: str
    takes: Takes
    token_type_hint: bool
    client_auth: ClientAuth
    success: SuccessSpec
    already_gone: AnswerPattern | None  # None: not known, or the same answer as a success
    permanent_errors: tuple[AnswerPattern, ...]
    reach: Reach
    needs_live_access_token: YesNo
    manual_page: str | None

    @property
    def is_supported(self) -> bool:
        """Whether there is anything to call."""
        return self.shape != "none"


@dataclass(frozen=True)
class IdentitySpec:
    """How to learn whose grant it is."""

    url: str | None
    field: str | None
    in_token_response: str | None

    @property
    def is_known(self) -> bool:
        """Whether there is any way."""
        return self.url is not None or self.in_token_response is not None


@dataclass(frozen=True)
class ProviderSpec:
    """One entry of the catalogue."""

    id: str
    name: str
    status: Literal["active", "shut_down"]
    authorize: AuthorizeSpec
    token: TokenSpec
    refresh: RefreshSpec
    revocation: RevocationSpec
    identity: IdentitySpec
    sources: tuple[str, ...]
    checked_on: str
    allow_loopback: bool

    @property
    def facts(self) -> ProviderFacts:
        """What rules depend on."""
        lifetime, idle_limit = self.token.default_lifetime_s, self.refresh.idle_limit
        return ProviderFacts(
            revocable=self.revocation.is_supported,
            takes=self.revocation.takes,
            reach=self.revocation.reach,
            refreshable=self.refresh.mode == "refresh_token",
            rotates=self.refresh.rotates,
            old_token=self.refresh.old_token_after_rotation,
            has_identity=self.identity.is_known,
            access_ttl_ms=lifetime * 1000 if isinstance(lifetime, int) else None,
            manual_page=self.revocation.manual_page,
            connectable=self.status == "active",
            pkce=self.authorize.pkce != "none",
            posts_back=self.authorize.response_mode == "form_post",
            reuse_kills_family=self.refresh.reuse_kills_family == "yes",
            idle_limit_ms=idle_limit * 1000 if isinstance(idle_limit, int) else None,
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
    authorize, token, refresh = compiled["authorize"], compiled["token"], compiled["refresh"]
    response, errors = token["response"], token["errors"]
    return ProviderSpec(
        id=compiled["id"],
        name=compiled["name"],
        status=compiled["status"],
        authorize=AuthorizeSpec(
            url=authorize["url"],
            params=tuple(authorize["params"].items()),
            pkce=authorize["pkce"],
            scope_separator=authorize["scope_separator"],
            issuer=authorize["issuer"],
            issuer_announced=authorize["issuer_announced"],
            response_mode=authorize["response_mode"],
        ),
        token=TokenSpec(
            url=token["url"],
            client_auth=token["client_auth"],
            body=token["body"],
            response=ResponseSpec(**{**response, "refresh_expires_in": tuple(response["refresh_expires_in"])}),
            expires_unit=token["expires_unit"],
            default_lifetime_s=token["default_lifetime_s"],
            errors=ErrorCodes(**{kind: tuple(codes) for kind, codes in errors.items()}),
        ),
        refresh=RefreshSpec(
            mode=refresh["mode"],
            url=refresh["url"] or token["url"],
            rotates=refresh["rotates"],
            old_token_after_rotation=OldToken(refresh["old_token_after_rotation"]),
            reuse_kills_family=refresh["reuse_kills_family"],
            idle_limit=refresh["idle_limit_s"],
        ),
        revocation=_revocation(compiled["revocation"]),
        identity=_identity(compiled["identity"]),
        sources=tuple(compiled["sources"]),
        checked_on=compiled["checked_on"],
        allow_loopback=compiled["allow_loopback"],
    )


def _revocation(compiled: dict[str, Any]) -> RevocationSpec:
    if compiled["shape"] == "none":
        # Nothing is called, so nothing is reached: the values below are never asked for.
        success = SuccessSpec((), "any", None, None)
        return RevocationSpec(
            "none", "", "either", False, "none", success, None, (), Reach.TOKEN, "no", compiled["manual_page"]
        )
    body = compiled["success"]["body"]
    asks_json = isinstance(body, dict)
    return RevocationSpec(
        shape=compiled["shape"],
        url=compiled["url"],
        takes=compiled["takes"],
        token_type_hint=compiled["token_type_hint"],
        client_auth=compiled["client_auth"],
        success=SuccessSpec(
            status=tuple(compiled["success"]["status"]),
            body="json" if asks_json else body,
            path=body["path"] if asks_json else None,
            equals=body["equals"] if asks_json else None,
        ),
        already_gone=_pattern(compiled["already_gone"]) if isinstance(compiled["already_gone"], dict) else None,
        permanent_errors=tuple(_pattern(pattern) for pattern in compiled["permanent_errors"]),
        reach=Reach(compiled["reach"]),
        needs_live_access_token=compiled["needs_live_access_token"],
        manual_page=compiled["manual_page"],
    )


def _pattern(compiled: dict[str, Any]) -> AnswerPattern:
    return AnswerPattern(tuple(compiled["status"]), tuple(compiled["errors"]))


def _identity(compiled: dict[str, Any] | None) -> IdentitySpec:
    if compiled is None:
        return IdentitySpec(None, None, None)
    return IdentitySpec(compiled["url"], compiled["field"], compiled["in_token_response"])
