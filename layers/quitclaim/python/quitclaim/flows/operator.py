"""
An operator's part: what needs attention, over all tenants; trying a revocation again by hand; and closing the notices
of owners that were deleted, since nobody else can.

Each act is on record, with who asked and why, before it is done.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quitclaim.domain.attention import Attention, AuditEntry, Retry, Subject, attention_of, retry_of
from quitclaim.domain.connect import Exchange, ExchangeOutcome
from quitclaim.domain.errors import (
    ConnectionNotFoundError,
    MovedError,
    NothingToAcknowledgeError,
    NoticeNotFoundError,
    OwnerMustAcknowledgeError,
    RetryRefusedError,
    RevocationInProgressError,
    TooEarlyToAcknowledgeError,
)
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import GUARD_MS, SECOND
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.webhooks import Delivery, KeptAt
from quitclaim.ports import Clock, Ids, Kick

if TYPE_CHECKING:
    from quitclaim.store.deliveries import DeliveryStore
    from quitclaim.store.operator import OperatorStore
    from quitclaim.store.reads import Reads
    from quitclaim.store.revocations import RevocationStore

TRIES: Final = 5
REDRIVEN: Final = 200
"""Deliveries of one call."""
PAGES: Final = 40
"""Of what is kept that one call looks at, a hundred each."""


@dataclass(frozen=True)
class Operating:
    """What an operator's acts need of the world."""

    reads: "Reads"
    store: "OperatorStore"
    revocations: "RevocationStore"
    clock: Clock
    ids: Ids
    kick: Kick
    deliveries: "DeliveryStore"


@dataclass(frozen=True)
class Asked:
    """Who asks, and why."""

    by: str
    reason: str


def attention(limit: int, world: Operating) -> tuple[list[Attention], bool]:
    """What needs attention, the oldest first, up to *limit*; and whether there is more."""
    found, more = world.store.waiting(limit)
    read = [world.reads.as_listed(item) for item in found]
    deleted = world.store.deleted(frozenset(item.ref.of_owner for item in read))
    shown = (attention_of(item, owner_deleted=item.ref.of_owner in deleted) for item in read)
    return [each for each in shown if each is not None], more


def retry(subject: Subject, asked: Asked, world: Operating) -> Revocation:
    """
    Have a revocation tried again now.

    1. `record`: the act is on record. Crash after it: nothing was done, ask again.
    2. `retry`: it is due now; the kick makes it prompt. Crash after it: the sweep comes within a minute.

    Raises `RevocationInProgressError` while a call of it may still act (custody rule 12), `RetryRefusedError` where it
    is settled or parked.
    """
    is_recorded = False
    for _ in range(TRIES):
        revocation = _revocation(subject, world)
        now = world.clock.now()
        match retry_of(revocation, now):
            case Retry.NEVER:
                raise RetryRefusedError(connection_id=revocation.ref.connection, state=revocation.state)
            case Retry.LATER:
                wait = max((revocation.lease_until or now) + GUARD_MS - now, SECOND)
                raise RevocationInProgressError(connection_id=revocation.ref.connection, retry_after_ms=wait)
            case Retry.NOW:
                pass
        if not is_recorded:
            _record("retry", subject, asked, world)
            is_recorded = True
        try:
            world.store.retry(revocation, now)
        except MovedError:
            continue
        world.kick.revoke_now([revocation.rid])
        return revocation
    raise MovedError


@dataclass(frozen=True)
class Redrive:
    """Which of the deliveries that nobody had; what is not said holds of all. Times are of the receipt."""

    id: str | None = None
    client: str | None = None
    provider: str | None = None
    ref: ConnectionRef | None = None
    since: int | None = None
    until: int | None = None

    def __str__(self) -> str:
        ref = None if self.ref is None else f"{self.ref.tenant}:{self.ref.owner}:{self.ref.connection}"
        said = {"id": self.id, "client": self.client, "provider": self.provider, "connection": ref}
        times = {"from": self.since, "to": self.until}
        return " ".join(f"{name}={value}" for name, value in {**said, **times}.items() if value is not None) or "all"

    def wants(self, delivery: Delivery, account: str | None) -> bool:
        """Whether it is one of them; *account*: the digest of the connection's, where one is named."""
        return (
            self.id in (None, delivery.digest)
            and self.client in (None, delivery.client)
            and self.provider in (None, delivery.provider)
            and (self.ref is None or account in delivery.accounts)
            and (self.since is None or self.since <= delivery.received)
            and (self.until is None or delivery.received < self.until)
        )


def redrive(
    which: Redrive, asked: Asked, world: Operating, *, dry_run: bool, at: KeptAt | None = None
) -> tuple[list[Delivery], KeptAt | None]:
    """
    Have deliveries that nobody had delivered after all: which, and the place to go on from, None where there are no
    more. A call looks at some thousands, from *at* on, and does some hundreds. A dry run does nothing.

    1. `record`: the act is on record, once. Crash after it: nothing was done, ask again.
    2. `redrive` (row 76), each on its own: due at once, and reconciliation sends it within a minute. Crash in between:
       the others are still kept, ask again.
    """
    connection = None if which.ref is None else world.reads.connection(which.ref)
    if which.ref is not None and (connection is None or connection.account is None):
        raise ConnectionNotFoundError(connection_id=which.ref.connection)
    account = None if connection is None else connection.account
    wanted, more = _wanted(which, account, at or KeptAt(), world)
    if dry_run or not wanted:
        return wanted, more
    world.store.record(AuditEntry(world.ids.new_id(), world.clock.now(), "redrive", str(which), asked.by, asked.reason))
    done: list[Delivery] = []
    for delivery in wanted:
        try:
            world.deliveries.redrive(delivery, world.clock.now())
        except MovedError:
            continue  # somebody else did it
        done.append(delivery)
    return done, more


def _wanted(
    which: Redrive, account: str | None, at: KeptAt | None, world: Operating
) -> tuple[list[Delivery], KeptAt | None]:
    if which.id is not None and which.client is not None:
        one = world.reads.delivery(which.client, which.id)
        return [one] if one is not None and one.is_kept and which.wants(one, account) else [], None
    found: list[Delivery] = []
    for _ in range(PAGES):
        if at is None or len(found) >= REDRIVEN:
            break
        kept, at = world.deliveries.kept(at, REDRIVEN - len(found))
        found += [each for each in kept if which.wants(each, account)]
    return found, at


def acknowledge_for_deleted(subject: Subject, asked: Asked, world: Operating) -> None:
    """
    Close a notice of an owner that was deleted.

    1. `record`: the act is on record, with its reason. Crash after it: nothing was done, ask again.
    2. `acknowledge` or `acknowledge_exchange` (rows 40, 41), as for an owner.

    An owner that is not deleted has the word: `OwnerMustAcknowledgeError`. A notice that is acknowledged already stays
    as it is.
    """
    item = _exchange(subject, world) if subject.exchange is not None else _revocation(subject, world)
    name = item.ref.connection
    owner = world.reads.owner(item.ref.of_owner)
    if owner is None or not owner.is_deleted:
        raise OwnerMustAcknowledgeError(connection_id=name)
    if item.acknowledged is not None:
        return
    now = world.clock.now()
    if isinstance(item, Exchange):
        if item.outcome is not ExchangeOutcome.UNCONFIRMED:
            raise NothingToAcknowledgeError(connection_id=name)
        if item.ends + GUARD_MS > now:
            raise TooEarlyToAcknowledgeError(connection_id=name, retry_after_ms=item.ends + GUARD_MS - now)
        _record("acknowledge", subject, asked, world)
        world.revocations.acknowledge_exchange(item, now)
        return
    if not item.state.is_notice:
        raise NothingToAcknowledgeError(connection_id=name)
    _record("acknowledge", subject, asked, world)
    _, _, barrier = world.reads.fence(item.ref, item.client)
    world.revocations.acknowledge(item, now, has_barrier=barrier is not None and item.is_listed)


def _revocation(subject: Subject, world: Operating) -> Revocation:
    found = world.reads.revocations([subject.rid])[subject.rid] if subject.rid is not None else None
    if found is None:
        raise NoticeNotFoundError
    return found


def _exchange(subject: Subject, world: Operating) -> Exchange:
    found = world.reads.exchange(subject.ref, subject.exchange or "") if subject.ref is not None else None
    if found is None:
        raise NoticeNotFoundError
    return found


def _record(action: str, subject: Subject, asked: Asked, world: Operating) -> None:
    entry = AuditEntry(world.ids.new_id(), world.clock.now(), action, str(subject), asked.by, asked.reason)
    world.store.record(entry)
