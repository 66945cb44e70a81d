"""A stop: why, what it leaves to be done, and what the owner is told until it is done."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import Connection, Exchange, ExchangeOutcome, Idempotency
from quitclaim.domain.events import Event
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import OVERDUE_MS
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.tokens import Grant


class StopReason(StrEnum):
    """F-3, and what ended a refresh."""

    DISCONNECT = "disconnect"
    ACCOUNT_DELETED = "account_deleted"
    GRANT_REJECTED = "grant_rejected"
    INSUFFICIENT_SCOPE = "insufficient_scope"
    REFRESH_UNCONFIRMED = "refresh_unconfirmed"


@dataclass(frozen=True)
class StopIntent:
    """A stop on record, with its purge: nothing reads one without the other."""

    ref: ConnectionRef
    generation: int
    reason: str
    token: str
    client: str
    purge: str
    since: int
    next: int
    rids: frozenset[str] = frozenset()
    comp_derived: bool | None = None
    comp_open: int = 0
    tries: int = 0
    provider: str | None = None
    closed: int | None = None
    overdue: int | None = None
    """Since when it is on the operator's list: a stop that is still open after a day."""
    v: int = 0

    def is_overdue(self, now: int) -> bool:
        """Whether somebody has to look at it: a day is more than all that it waits for by itself may take."""
        return self.closed is None and self.since + OVERDUE_MS <= now

    @property
    def in_barrier(self) -> str:
        """How the barrier names its purge."""
        return f"{self.ref.connection}#{self.generation}"


@dataclass(frozen=True)
class Stop:
    """What was seen, and what shall be."""

    before: Connection
    after: Connection
    grants: tuple[Grant, ...]
    revocation: Revocation | None
    intent: StopIntent
    account: Account | None
    held: Exchange | None
    event: Event
    now: int
    blocks_purge: bool
    by_exact_token: bool = False
    leaves_barrier: bool = False
    """Of a deleted owner: nobody begins behind it any more, and five hundred stops do not meet at it."""
    hold_is_free: bool = True
    """False where the sweep has the held grant already: it is in good hands, and no reason to refuse a stop."""
    idempotency: Idempotency | None = None


class Level(IntEnum):
    """How pressing a notice is (F-35, U-20); the larger wins."""

    NOT_NEEDED = 0
    CONFIRMED = 1
    ACKNOWLEDGED = 2
    PENDING = 3
    PERMISSION_REMOVAL_REQUIRED = 4

    @property
    def label(self) -> str:
        """As the API spells it."""
        return self.name.lower()


def level_of_revocation(revocation: Revocation | None) -> Level:
    """
    F-36; a missing item counts as removal required (custody rule 9). A parked one is in nobody's way: its token is
    still in use by another grant.
    """
    if revocation is None:
        return Level.PERMISSION_REMOVAL_REQUIRED
    if revocation.state is RevocationState.PENDING:
        return Level.PENDING
    if revocation.state is RevocationState.PARKED:
        return Level.NOT_NEEDED
    if revocation.state is RevocationState.CONFIRMED:
        return Level.CONFIRMED
    return Level.ACKNOWLEDGED if revocation.acknowledged is not None else Level.PERMISSION_REMOVAL_REQUIRED


def level_of_exchange(exchange: Exchange, revocation: Revocation | None) -> Level:
    """
    F-37: in flight, installed or ended owes nothing; unconfirmed must be removed by hand; cleanup is as its revocation.
    """
    match exchange.outcome:
        case ExchangeOutcome.CLEANUP:
            return level_of_revocation(revocation)
        case ExchangeOutcome.UNCONFIRMED:
            return Level.ACKNOWLEDGED if exchange.acknowledged is not None else Level.PERMISSION_REMOVAL_REQUIRED
        case _:
            return Level.NOT_NEEDED


class Close(StrEnum):
    """How a stop may close, or why not yet; the weakest outcome of its revocations decides."""

    NOT_YET = "not yet"
    CONFIRMED = "confirmed"
    NOT_NEEDED = "not_needed"
    RELEASED = "released"
    ATTESTED = "attested"
    UNATTESTED = "unattested"  # of a deleted owner: nobody is left to say that the access is gone


NOTHING_OWED: Final = frozenset({"not_needed", "absent"})
"""`provider` of a stop that found no grant, or of whose grant the provider knows nothing."""


def close_of(
    intent: StopIntent,
    resolved: Iterable[Revocation | None],
    exchanges: Iterable[Exchange | None],
    *,
    lapsed: frozenset[str] = frozenset(),
    attested: bool = False,
) -> Close:
    """
    Whether a stop is done: purge, compensations, and every revocation of the connection that is still listed (I-13).

    *resolved*: the intent's revocations and those of the barrier that belong to the connection; *exchanges*: those in
    the barrier, likewise. *lapsed*: ids of notices that wait for nobody's word any more, because their owner is deleted
    and their time is over (F-69). *attested*: what an attempt of this generation may have given is known by the owner's
    word only. "Revoked" is said only where every one was confirmed by the provider; a stop that lists none closes only
    where that is known to be right.
    """
    if intent.closed is not None or intent.purge != "done" or not intent.comp_derived or intent.comp_open:
        return Close.NOT_YET
    weakest = Close.ATTESTED if attested else Close.NOT_NEEDED
    order = (Close.NOT_NEEDED, Close.CONFIRMED, Close.RELEASED, Close.ATTESTED, Close.UNATTESTED)
    for exchange in exchanges:
        if exchange is None or (exchange.acknowledged is None and exchange.id not in lapsed):
            return Close.NOT_YET
        if exchange.acknowledged is None:
            weakest = Close.UNATTESTED
    listed = tuple(resolved)
    if not listed and intent.provider not in NOTHING_OWED:
        return Close.NOT_YET
    for item in listed:
        if item is None:
            return Close.NOT_YET
        if item.state is RevocationState.PARKED:
            outcome = Close.RELEASED
        elif item.rid in lapsed and not item.is_over:
            outcome = Close.UNATTESTED
        elif item.finished is None or not item.is_over:
            return Close.NOT_YET
        else:
            outcome = Close.CONFIRMED if item.state is RevocationState.CONFIRMED else Close.ATTESTED
        weakest = max(weakest, outcome, key=order.index)
    return weakest
