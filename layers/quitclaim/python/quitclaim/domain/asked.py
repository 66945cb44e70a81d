"""
What a start may ask for beside a connection: scopes, who the user is expected to be, and notes of the app's own.

The scopes that a client asks for are its settings (S-23); a start may take fewer of them, or further ones that the
settings admit.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from quitclaim.domain.errors import InvalidBodyError, ScopeNotAllowedError
from quitclaim.domain.secret import Secret

HINT_MAX: Final = 256

METADATA_MAX: Final = 16
METADATA_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
METADATA_VALUE_MAX: Final = 256
RESERVED_PREFIXES: Final = ("quitclaim", "qc_", "oauth_")
RESERVED: Final = frozenset(
    {
        "account",
        "account_id",
        "connect_source_id",
        "connect_target",
        "connected_at",
        "connection_id",
        "exchange",
        "expires_at",
        "external_id",
        "generation",
        "nonce",
        "owner",
        "phase",
        "provider",
        "scopes",
        "seeded_account_id",
        "seeded_connected_at",
        "seeded_external_id",
        "setup_expires_at",
        "source_slug",
        "state",
        "subject",
        "tenant",
        "updated_at",
        "verifier",
    }
)
"""Names by which custody knows things: as notes of an app they could only be mistaken for them (M-16, M-17)."""


@dataclass(frozen=True)
class AuthorizationAsked:
    """What one visit of a connect link asks of the provider (RFC 6749 section 4.1.1)."""

    redirect_uri: str
    state: Secret
    challenge: str | None  # None: the provider takes no PKCE
    nonce: Secret | None = None
    scopes: frozenset[str] = frozenset()
    hint: Secret | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """What the provider's addresses need, as the start named it."""


@dataclass(frozen=True)
class VisitSecrets:
    """
    What one visit of a connect link must know again when it comes back, as far as the provider was given it; sealed
    until then.
    """

    verifier: Secret | None = None  # RFC 7636
    nonce: Secret | None = None  # OIDC core 3.1.2.1
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)


def checked_metadata(given: Mapping[str, str] | None) -> dict[str, str] | None:
    """The app's notes; None for none. Raises `InvalidBodyError` naming the field, never a value."""
    if not given:
        return None
    if len(given) > METADATA_MAX:
        raise InvalidBodyError(f"metadata: {METADATA_MAX} entries at most", field="metadata")
    for name, value in given.items():
        if not METADATA_NAME.fullmatch(name):
            raise InvalidBodyError(f"metadata: a name must match {METADATA_NAME.pattern}", field="metadata")
        if is_reserved(name):
            raise InvalidBodyError(f"metadata.{name}: this name is reserved", field=f"metadata.{name}")
        if not 0 < len(value) <= METADATA_VALUE_MAX:
            raise InvalidBodyError(f"metadata.{name}: 1 to {METADATA_VALUE_MAX} characters", field=f"metadata.{name}")
    return dict(given)


def is_reserved(name: str) -> bool:
    """Whether custody knows something by *name*, in whatever spelling."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").replace(".", "_")
    return plain in RESERVED or plain.startswith(RESERVED_PREFIXES)


def asked_scopes(wanted: Collection[str] | None, usual: frozenset[str], further: frozenset[str]) -> frozenset[str]:
    """
    What to ask the provider for: *wanted*, or what the client usually asks for. Raises `ScopeNotAllowedError` for one
    that the client's settings do not name.
    """
    if not wanted:
        return usual
    unknown = sorted(set(wanted) - usual - further)
    if unknown:
        raise ScopeNotAllowedError(f"{unknown[0]}: not among the client's scopes and optional_scopes", field="scopes")
    return frozenset(wanted)


# --- what was granted of it ------------------------------------------------------------------------------------------

UNREPORTED: Final = frozenset({"openid", "offline_access", "offline", "email", "profile", "address", "phone"})
"""
Scopes of OpenID Connect: they ask for a token or for claims of the user, and what an answer lists of them says nothing
about access to data (providers leave them out, or rename them).
"""


def missing_scopes(required: Collection[str], granted: frozenset[str] | None) -> frozenset[str]:
    """
    Which of *required* were not granted (RFC 6749 section 3.3 lets the provider and its user narrow them, RB-55).

    *granted* is None where nobody named what was granted: then it is what was asked for (section 5.1). Case does not
    count, and neither does the address of the resource that one side writes before a name and the other leaves out.
    """
    if granted is None:
        return frozenset()
    return frozenset(
        scope
        for scope in required
        if scope not in granted and scope not in UNREPORTED and not any(_is_same(scope, each) for each in granted)
    )


def _is_same(one: str, other: str) -> bool:
    one, other = one.lower().rstrip("/"), other.lower().rstrip("/")
    if one == other:
        return True
    is_address = "://" in one, "://" in other
    return is_address[0] != is_address[1] and one.rsplit("/", 1)[-1] == other.rsplit("/", 1)[-1]
