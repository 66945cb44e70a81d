"""
What may go, and how far the look over the whole table has come.

Compaction takes what is finished, told and a day old, never what is pending, parked or waits for somebody's word; the
owner's fence stays for good (F-69).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from quitclaim.domain.connect import Barrier, Connection, ConnectionState, Exchange, ExchangeOutcome
from quitclaim.domain.limits import COMPACT_MS, INSPECTION_MS
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.stop import StopIntent

# --- compaction ------------------------------------------------------------------------------------------------------


def is_told(revocation: Revocation, *, owner_deleted: bool) -> bool:
    """Finished, and nobody's word is awaited: confirmed, acknowledged, or of an owner that was deleted."""
    return revocation.finished is not None and (revocation.is_over or (owner_deleted and revocation.state.is_terminal))


def may_compact_revocation(revocation: Revocation, now: int, *, owner_deleted: bool) -> bool:
    """A day after its deadline (after it was queued, where it was born without material)."""
    ends = revocation.queued if revocation.deadline is None else revocation.deadline
    return is_told(revocation, owner_deleted=owner_deleted) and ends + COMPACT_MS <= now


def may_compact_exchange(
    exchange: Exchange, revocation: Revocation | None, now: int, *, owner_deleted: bool = False
) -> bool:
    """
    A day after its end: one that gave nothing or was installed; unconfirmed only once acknowledged; one in clean-up
    only once its revocation is told, since the owner finds that by it. *revocation*: its own, None if there is none.
    """
    if not exchange.outcome.is_over or (exchange.hold_ends or exchange.ends) + COMPACT_MS > now:
        return False
    match exchange.outcome:
        case ExchangeOutcome.UNCONFIRMED:
            return exchange.acknowledged is not None or owner_deleted
        case ExchangeOutcome.CLEANUP:
            return revocation is None or is_told(revocation, owner_deleted=owner_deleted)
        case _:
            return True


def may_compact_intent(intent: StopIntent, now: int) -> bool:
    """A day after it closed, once no revocation is listed in it."""
    return intent.closed is not None and not intent.rids and intent.closed + COMPACT_MS <= now


def may_compact_connection(connection: Connection, *, owner_deleted: bool, rest: int) -> bool:
    """Only of a deleted owner, closed, and with nothing else of it left (*rest*: so many items)."""
    return owner_deleted and connection.state is ConnectionState.REVOKED and rest == 0


def may_compact_barrier(barrier: Barrier, in_flight: Exchange | None, *, owner_deleted: bool) -> bool:
    """Only of a deleted owner, and once it names nothing that is open."""
    is_empty = not (barrier.owed or barrier.acks or barrier.purges)
    return owner_deleted and is_empty and (in_flight is None or in_flight.outcome.is_over)


def lapsed_notices(
    revocations: Iterable[Revocation | None], exchanges: Iterable[Exchange | None], now: int
) -> frozenset[str]:
    """
    Ids of a deleted owner's notices whose time is over: nobody is left to acknowledge them, and what they hold up
    closes without that.
    """
    return frozenset(
        each.rid for each in revocations if each is not None and may_compact_revocation(each, now, owner_deleted=True)
    ) | frozenset(
        each.id for each in exchanges if each is not None and may_compact_exchange(each, None, now, owner_deleted=True)
    )


# --- the look over the whole table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inspection:
    """
    A walk over the whole table, as far as it has come. It says which data keys are still needed, whether the counts of
    the accounts are right, and what compaction has missed.

    A key goes only after two rounds that found nothing naming it: sealed bytes move once in their life, from a grant to
    the revocation that a stop makes of it, and one round alone could look at each place at the wrong time.
    """

    started: int
    round: int = 1
    after: dict[str, Any] | None = None
    candidates: frozenset[str] = frozenset()
    """Keys that rest long enough, as `purpose#kid`."""
    names: frozenset[str] = frozenset()
    """Kids that something sealed needs."""
    unknown_seals: int = 0
    wrong_accounts: int = 0
    wrong_before: int = 0
    """As many accounts were wrong in the inspection before: a gauge must not fall because a new one begins."""
    finished: int | None = None
    v: int = 0

    @property
    def free(self) -> frozenset[str]:
        """The candidates that nothing has named so far; none, where a seal could not be read."""
        if self.unknown_seals:
            return frozenset()
        return frozenset(each for each in self.candidates if each.split("#")[1] not in self.names)

    @property
    def wrong(self) -> int:
        """For the gauge."""
        return max(self.wrong_accounts, self.wrong_before if self.finished is None else 0)


def is_due(inspection: Inspection | None, now: int) -> bool:
    """Whether a new one begins."""
    return inspection is None or (inspection.finished is not None and inspection.started + INSPECTION_MS <= now)


def begun(before: Inspection | None, candidates: Iterable[str], now: int) -> Inspection:
    """A new one, in place of the finished *before*."""
    wrong = before.wrong_accounts if before else 0
    return Inspection(now, candidates=frozenset(candidates), wrong_before=wrong, v=before.v if before else 0)


def turned(inspection: Inspection, after: dict[str, Any] | None, now: int) -> Inspection:
    """Once a page was looked at: on to the next, to the second round, or to the end."""
    if after is not None:
        return replace(inspection, after=after)
    if inspection.round == 1 and inspection.free:
        return replace(inspection, round=2, after=None)
    return replace(inspection, after=None, finished=now)
