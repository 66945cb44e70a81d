"""
What a provider's answer, or its silence, means.

Every call ends in a value, never in a library's exception, so that a flow must say what each means to it. A request
that left is answered by the provider's own verdict or its outcome is *unknown*; only what provably never left is
*not sent*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from quitclaim.domain.secret import Secret


class Outcome(StrEnum):
    """Of a code exchange or a refresh."""

    GRANTED = "granted"
    REJECTED = "rejected"  # the provider's verdict: this code or grant is dead
    TRY_LATER = "try_later"  # refused, and nothing was done at the provider
    UNKNOWN = "unknown"  # it left, and something may have been done
    NOT_SENT = "not_sent"


@dataclass(frozen=True)
class TokenGrant:
    """What the provider gave. A missing refresh token means: keep the one you have (RFC 6749 section 6)."""

    access_token: Secret
    refresh_token: Secret | None = None
    token_type: str = "Bearer"  # noqa: S105 - a token type (RFC 6750), not a secret
    expires_in_s: int | None = None  # the answer's, else the catalogue's default; None: not known, or never
    refresh_expires_in_s: int | None = None
    scopes: frozenset[str] | None = (
        None  # None: the answer names none, so they are those that were asked for (RFC 6749 section 5.1)
    )
    account_id: str | None = field(default=None, repr=False)
    id_token: Secret | None = None  # unverified; where it alone names the account, *account_id* is what it names
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the provider's addresses need of this grant: its shop, its region, its user's id there."""
    pairs: Mapping[str, "TokenGrant"] = field(default_factory=dict)
    """Further token pairs of the same answer, by name (RB-11)."""
    names: frozenset[str] = field(default=frozenset(), repr=False)
    """Further names of the account (`domain.accounts.name_of`): its workspace, by which events may speak of it."""


@dataclass(frozen=True)
class LooseToken:
    """A token found in an answer that is not a usable grant: it may be alive, so somebody must queue it."""

    kind: str  # refresh_token, access_token
    token: Secret


@dataclass(frozen=True)
class TokenAnswer:
    """
    The answer to a code exchange or a refresh.

    *grant* is there exactly if *outcome* is granted. *salvaged* is what an unusable answer still held, whatever the
    outcome: each of these tokens goes into the revoke queue.
    """

    outcome: Outcome
    reason: str = ""  # ours, stable: for logs and metrics
    error_code: str | None = None  # the provider's, letters and underscores only
    retry_after_ms: int | None = None
    config_fault: bool = False  # the client's settings are to blame, not the grant: alarm once for the client
    is_unexplained: bool = False  # refused, in words that are neither a verdict nor anything else that is known
    grant: TokenGrant | None = None
    salvaged: tuple[LooseToken, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As of the grant; where there is none, what is known for revoking what was salvaged."""


@dataclass(frozen=True)
class BrokerAnswer:
    """The answer of a broker; *value* (an account's id, a link, a sign-in token) is there exactly if it is granted."""

    outcome: Outcome
    reason: str = ""
    retry_after_ms: int | None = None
    config_fault: bool = False
    value: Secret | None = None


class RevokeOutcome(StrEnum):
    """Of a revocation call."""

    CONFIRMED = "confirmed"  # the provider's own success predicate holds
    ALREADY_GONE = "already_gone"  # the catalogue says that this answer means dead
    DEFERRED = "deferred"  # not revoked, as far as the answer tells; try again
    AMBIGUOUS = "ambiguous"  # dead, or merely expired: the answer is the same, and only a refresh would tell
    UNKNOWN = "unknown"  # it left, and may have been carried out
    PERMANENT_ERROR = "permanent_error"  # repeating alone will not help: alarm at once, and go on to the deadline


@dataclass(frozen=True)
class RevokeAnswer:
    """The answer to a revocation."""

    outcome: RevokeOutcome
    reason: str = ""
    retry_after_ms: int | None = None
    seems_done: bool = False  # it looks like a success, of which nobody has read that it is one


class IdentityOutcome(StrEnum):
    """Of asking whose grant it is."""

    READ = "read"
    REFUSED = "refused"  # the provider does not take this access token: expired or revoked
    TRY_LATER = "try_later"
    UNREADABLE = "unreadable"  # answered, without the account; or the catalogue knows no way to ask


@dataclass(frozen=True)
class IdentityAnswer:
    """The external account behind a grant."""

    outcome: IdentityOutcome
    account_id: str | None = field(default=None, repr=False)
    reason: str = ""
    retry_after_ms: int | None = None
    names: frozenset[str] = field(default=frozenset(), repr=False)  # as of a grant


@dataclass(frozen=True)
class PushAnswer:
    """The answer to a pushed authorization request (RFC 9126): nothing was granted, whatever it says."""

    request_uri: Secret | None = None
    reason: str = ""
    retry_after_ms: int | None = None
    config_fault: bool = False
