"""
What a person has to look at: removal notices, quarantined revocations and stops that are open for more than a day; and
what an operator does about them.

An operator sees ids and levels. Nothing here names an account or holds anything sealed.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quitclaim.domain.connect import Exchange, ExchangeOutcome
from quitclaim.domain.errors import InvalidIdError
from quitclaim.domain.ids import ConnectionRef, checked_id
from quitclaim.domain.limits import GUARD_MS
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.stop import Level, StopIntent, level_of_exchange, level_of_revocation

EXCHANGE: Final = "x"
STOP: Final = "s"
GENERATION: Final = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True)
class Subject:
    """
    What an operator names: a revocation by its id, an exchange as `x:tenant:owner:connection:id`, a stop as
    `s:tenant:owner:connection:generation`.
    """

    rid: str | None = None
    ref: ConnectionRef | None = None
    exchange: str | None = None
    stop: int | None = None

    @classmethod
    def of_exchange(cls, exchange: Exchange) -> "Subject":
        """Names this exchange."""
        return cls(ref=exchange.ref, exchange=exchange.id)

    @classmethod
    def of_stop(cls, intent: StopIntent) -> "Subject":
        """Names this stop."""
        return cls(ref=intent.ref, stop=intent.generation)

    @classmethod
    def read(cls, text: str) -> "Subject":
        """From a path segment; raises `InvalidIdError`. No id of ours holds a colon."""
        kind, *parts = text.split(":")
        if not parts:
            return cls(rid=checked_id(kind, "id"))
        if len(parts) == 4 and kind == EXCHANGE:
            return cls(ref=ConnectionRef.checked(*parts[:3]), exchange=checked_id(parts[3], "id"))
        if len(parts) == 4 and kind == STOP and GENERATION.fullmatch(parts[3]):
            return cls(ref=ConnectionRef.checked(*parts[:3]), stop=int(parts[3]))
        raise InvalidIdError(
            "id: a revocation's, x:tenant:owner:connection:exchange, or s:tenant:owner:connection:generation",
            field="id",
        )

    def __str__(self) -> str:
        if self.ref is None:
            return self.rid or ""
        kind, last = (STOP, str(self.stop)) if self.stop is not None else (EXCHANGE, self.exchange or "")
        return ":".join((kind, self.ref.tenant, self.ref.owner, self.ref.connection, last))


@dataclass(frozen=True)
class Attention:
    """One thing on the operator's list."""

    subject: Subject
    ref: ConnectionRef
    client: str
    level: Level
    state: str
    since: int
    deadline: int | None = None
    quarantined: bool = False
    owner_deleted: bool = False


def attention_of(item: Revocation | Exchange | StopIntent, *, owner_deleted: bool) -> Attention | None:
    """How an item stands on the list; None once nobody has to look at it any more (the index is late)."""
    if isinstance(item, StopIntent):
        if item.closed is not None:
            return None
        subject = Subject.of_stop(item)
        return Attention(
            subject, item.ref, item.client, Level.PENDING, "stopping", item.since, owner_deleted=owner_deleted
        )
    if isinstance(item, Exchange):
        if item.outcome is not ExchangeOutcome.UNCONFIRMED or item.acknowledged is not None:
            return None
        level = level_of_exchange(item, None)
        subject = Subject.of_exchange(item)
        return Attention(subject, item.ref, item.client, level, item.outcome, item.ends, owner_deleted=owner_deleted)
    is_quarantined = item.state is RevocationState.PENDING and item.quarantined is not None
    if not is_quarantined and not (item.state.is_notice and item.acknowledged is None):
        return None
    return Attention(
        subject=Subject(rid=item.rid),
        ref=item.ref,
        client=item.client,
        level=level_of_revocation(item),
        state=item.state,
        since=(item.quarantined if is_quarantined else item.settled_at) or item.queued,
        deadline=item.deadline if is_quarantined else None,
        quarantined=is_quarantined,
        owner_deleted=owner_deleted,
    )


class Retry(StrEnum):
    """Whether a revocation may be tried again by hand now."""

    NOW = "now"
    LATER = "later"  # a call of it may still act
    NEVER = "never"  # it is settled, or parked beside a grant that is in use


def retry_of(revocation: Revocation, now: int) -> Retry:
    """By the row "manual retry" of the table of states and events: only a pending one that nobody holds."""
    if revocation.state is not RevocationState.PENDING or (revocation.deadline or 0) <= now:
        return Retry.NEVER
    if revocation.lease_until is not None and revocation.lease_until + GUARD_MS > now:
        return Retry.LATER
    return Retry.NOW


@dataclass(frozen=True)
class AuditEntry:
    """What an operator asked for: written before it is done, never changed."""

    id: str
    at: int
    action: str
    subject: str
    by: str
    reason: str
