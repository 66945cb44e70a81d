"""
Revocations: a queued token, its history and its end.

A revocation's material never changes, and nothing but its deadline or its own confirmed answer erases it (D-5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    CLAIM_LEASE_MS,
    DEADLINE_MS,
    GUARD_MS,
    MINUTE,
    POISON_CLAIMS,
    REVOKE_CALL_MIN_MS,
    REVOKE_CALL_MS,
    ladder_step_ms,
)
from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.secret import Secret


class Reach(StrEnum):
    """How far one revocation call reaches (`reach` in the catalogue)."""

    TOKEN = "token"  # noqa: S105 - a reach, not a secret
    FAMILY = "family"
    AUTHORIZATION = "authorization"
    ACCOUNT = "account"
    UNKNOWN = "unknown"

    @property
    def is_account_wide(self) -> bool:
        """Whether it may end other grants of the account. Unknown counts as yes here (custody rule 6)."""
        return self in (Reach.AUTHORIZATION, Reach.ACCOUNT, Reach.UNKNOWN)

    @property
    def ends_old_tokens(self) -> bool:
        """Whether it ends a token's surviving predecessors as well. Unknown counts as no here (custody rule 6)."""
        return self in (Reach.FAMILY, Reach.AUTHORIZATION, Reach.ACCOUNT)


class RevocationState(StrEnum):
    """Only `pending` and `parked` carry material."""

    PENDING = "pending"
    PARKED = "parked"
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # revoked, but a successor was lost
    EXPIRED = "expired"
    UNREADABLE = "unreadable"
    UNSUPPORTED = "unsupported"

    @property
    def is_terminal(self) -> bool:
        """Never goes back."""
        return self not in (RevocationState.PENDING, RevocationState.PARKED)

    @property
    def is_notice(self) -> bool:
        """The owner must remove the access at the provider and acknowledge it."""
        return self.is_terminal and self is not RevocationState.CONFIRMED


NO_VARIABLES: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Material:
    """One token that the provider's revocation takes, or what stands for one."""

    kind: str  # refresh_token, access_token, account_id
    token: Secret
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """What the provider's addresses need of this grant; the connection is gone by the time that they are asked."""
    until: int | None = None  # when an access token expires; None: not known, or never
    pair: str = ""  # of several in one item


def by_pair(materials: Sequence[Material]) -> dict[str, tuple[Material, ...]]:
    """*materials* pair by pair, in their order."""
    pairs = dict.fromkeys(each.pair for each in materials)
    return {pair: tuple(each for each in materials if each.pair == pair) for pair in pairs}


NO_REVOCATION: Final = "none"
"""`takes` of a grant whose provider has no revocation call, or nothing that it takes."""


def family_of(exchange: str, pair: str) -> str:
    """The family of a token pair: the exchange that made it, and the pair."""
    return f"{exchange}#{pair}"


def material_of(
    takes: str,
    reach: Reach,
    access_token: Secret,
    refresh_token: Secret | None,
    *,
    ends_pair: bool = False,
    account_id: str | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
    renewable: bool = False,
    access_until: int | None = None,
) -> tuple[Material, ...]:
    """
    What must be revoked of a pair, the strongest first.

    The account where that is what the provider takes. Else the refresh token where it is taken; beside it the access
    token where both are taken and the call ends no more than the token that it names (RB-23). Where only an access
    token is taken and it is *renewable*, the refresh token rides along: by it an expired one is renewed. Where none is
    taken, something is queued all the same: it must end in a notice, not be forgotten.
    """
    if takes == "account" and account_id is not None:
        return (Material("account_id", Secret(account_id), variables),)
    access = Material("access_token", access_token, variables, access_until)
    if refresh_token is None or (takes == "access" and not renewable) or refresh_token == access_token:
        return (access,)
    refresh = Material("refresh_token", refresh_token, variables)
    if takes == "access":
        return (access, refresh)
    return (refresh, access) if takes == "either" and not (reach.ends_old_tokens or ends_pair) else (refresh,)


def still_owed(materials: Sequence[Material], now: int) -> tuple[Material, ...]:
    """
    What must be revoked of *materials*: not an access token that has expired beside something of its pair that has not.
    """

    def lives(each: Material) -> bool:
        return each.until is None or each.until + MINUTE > now

    alive = {each.pair for each in materials if lives(each)}
    return tuple(each for each in materials if lives(each) or each.pair not in alive)


def named_by(material: Sequence[Material]) -> Secret:
    """The token by which a pair is known again (its fingerprint): the refresh token if it is there, else the first."""
    return next((each.token for each in material if each.kind == "refresh_token"), material[0].token)


def kinds_of(material: Sequence[Material]) -> str:
    """How the kinds of one pair are told in one attribute."""
    return "+".join(each.kind for each in material)


@dataclass(frozen=True)
class SealedMaterial:
    """The same, sealed revoke-only."""

    sealed: bytes
    kind: str
    pair: str
    tv: int


@dataclass(frozen=True)
class Revocation:
    """A queue item as it is stored (docs/table.md)."""

    rid: str
    state: RevocationState
    ref: ConnectionRef
    generation: int
    client: str
    provider: str
    takes: str
    reach: Reach
    queued: int
    fp: frozenset[str] = frozenset()
    family: frozenset[str] = frozenset()
    material: tuple[SealedMaterial, ...] = ()
    account: str | None = None
    identity: bytes | None = None
    exchange: str | None = None
    tv: int | None = None
    saved_by: frozenset[str] = frozenset()
    listed: bool | None = None
    deadline: int | None = None
    next: int | None = None
    attempts: int = 0
    claims: int = 0
    excused: int = 0
    lease: str | None = None
    lease_until: int | None = None
    expected: frozenset[str] = frozenset()
    expected_until: int | None = None
    lost: bool | None = None
    renewing: str | None = None  # a refresh sent for it, under its own claim, and not answered yet
    renewed: str | None = None  # the item that holds what such a refresh gave
    doubts: int = 0  # renewals before it, in its line, that were owed to an answer
    quarantined: int | None = None
    settled_at: int | None = None
    settled_by: str | None = None
    acknowledged: int | None = None
    finished: int | None = None
    v: int = 0

    @property
    def is_listed(self) -> bool:
        """Whether a barrier may name it. Only the stop for a deleted owner leaves that out."""
        return self.listed is not False

    @property
    def is_over(self) -> bool:
        """Settled for good and, where it is a notice, acknowledged."""
        return self.state is RevocationState.CONFIRMED or (self.state.is_notice and self.acknowledged is not None)


@dataclass(frozen=True)
class Claimed:
    """A revocation and the lease under which this worker may send it."""

    revocation: Revocation
    lease: str
    until: int


class Step(StrEnum):
    """What the worker does next with a due item; the condition of the write that it takes is the truth."""

    LEAVE = "leave"
    FORGET = "forget"  # its successor never came: say so, then go on
    EXPIRE = "expire"
    CLAIM = "claim"


def next_step(revocation: Revocation, now: int) -> Step:
    """What a due item is ready for at *now*. Whoever takes a right over waits a guard longer than its end."""
    if revocation.state is not RevocationState.PENDING or revocation.deadline is None or revocation.next is None:
        return Step.LEAVE
    if revocation.deadline + GUARD_MS <= now:
        return Step.EXPIRE
    if revocation.deadline <= now or revocation.next > now:
        return Step.LEAVE
    if revocation.lease_until is not None and revocation.lease_until + GUARD_MS > now:
        return Step.LEAVE
    if revocation.expected and revocation.expected_until is not None and revocation.expected_until + GUARD_MS <= now:
        return Step.FORGET
    return Step.CLAIM


def claim_end(now: int, deadline: int) -> int:
    """When a claim made at *now* ends."""
    return min(now + CLAIM_LEASE_MS, deadline)


def deadline_of(queued: int) -> int:
    """23 h 59 min after the token was queued."""
    return queued + DEADLINE_MS


def call_limit_ms(now: int, lease_until: int) -> int | None:
    """
    The revoke call's whole budget inside its lease; None when it no longer fits and the item is given back, not sent.
    """
    limit = min(REVOKE_CALL_MS, lease_until - now)
    return limit if limit >= REVOKE_CALL_MIN_MS else None


def given_back_until(revocation: Revocation, now: int) -> int:
    """
    When an item that no call was sent for is due again: at once, or not before its deadline, if a new claim of it would
    have no time for a call either.
    """
    deadline = now if revocation.deadline is None else revocation.deadline
    if call_limit_ms(now, claim_end(now, deadline)) is None:
        return deadline
    return now if revocation.next is None else revocation.next


def is_poison(revocation: Revocation) -> bool:
    """
    It keeps killing its worker: more claims than are explained by counted attempts, and by those that the worker gave
    up itself (key away, no time, does not open), which are excused: an outage of a key makes no poison (D-5).
    """
    return revocation.claims - revocation.attempts - revocation.excused > POISON_CLAIMS


def retry_at(now: int, attempts: int, deadline: int, retry_after_ms: int | None = None) -> int:
    """
    When the item is tried again after its *attempts*-th failure; a provider's Retry-After counts where it is longer.
    Never after the deadline.
    """
    return min(now + max(ladder_step_ms(attempts), retry_after_ms or 0), deadline)


class Settlement(StrEnum):
    """How a claimed revocation is settled; one store write each."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"
    DEFERRED = "deferred"
    HELD_UNTIL_LEASE_END = "held until lease end"


def settlement(revocation: Revocation, answer: RevokeAnswer) -> Settlement:
    """
    What the provider's answer means for the item.

    Confirmed speaks for the item's own token only, and not at all while a successor may be alive (custody rules 3, 4).
    An open successor defers it; a lost one leaves a notice. For reach account an unknown outcome keeps the claim until
    its lease ends (custody rule 12).
    """
    if answer.outcome in (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE):
        if revocation.lost:
            return Settlement.UNCONFIRMED
        return Settlement.DEFERRED if revocation.expected else Settlement.CONFIRMED
    if answer.outcome is RevokeOutcome.UNKNOWN and revocation.reach is Reach.ACCOUNT:
        return Settlement.HELD_UNTIL_LEASE_END
    return Settlement.DEFERRED


ORDER: Final = (
    RevokeOutcome.CONFIRMED,
    RevokeOutcome.ALREADY_GONE,
    RevokeOutcome.AMBIGUOUS,
    RevokeOutcome.DEFERRED,
    RevokeOutcome.PERMANENT_ERROR,
    RevokeOutcome.UNKNOWN,
)


def weakest(answers: Sequence[RevokeAnswer]) -> RevokeAnswer:
    """The answer that speaks for all tokens of one revocation: it is confirmed when every one is."""
    return max(answers, key=lambda answer: ORDER.index(answer.outcome))
