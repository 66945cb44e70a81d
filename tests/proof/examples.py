"""
The examples of the table of writes (`tests/store`), on the table that can be broken (T-13): each clause of each row
with an item planted so that this clause alone refuses; each row with nothing in its way; and each repeated after a
first try whose answer was lost. What no flow of ours brings about is noticed here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import GUARD_MS
from quitclaim.domain.revocations import Claimed, Reach, RevocationState
from quitclaim.domain.stop import Close
from quitclaim.ports import Key, Update
from quitclaim.store.keys import idempotency_key
from quitclaim.store.pace import ReportBreaker
from tests.fakes.tables import applied_then_ambiguous, busy
from tests.proof.broken import BreakableTable, Journal, Part
from tests.proof.cases import Example
from tests.store import rows, test_deletion, test_deliveries, test_maintain, test_operator, test_report, test_sources
from tests.store.rows import BARRIER, CLAIM_REFUSALS, EXCHANGE, FAR, GRANT, REVOCATION, Act, Refusal, Row, has, lacks
from tests.store.stage import CLIENT, REF, Stage

FREE: Final = "nothing is in its way"
REPEATED: Final = "its first try was applied, and the answer lost"


class Planting:
    """A way around the port, as the stand-ins for DynamoDB have one."""

    def __init__(self, table: BreakableTable) -> None:
        self._table = table

    def alter(self, key: Key, *, put: Mapping[str, Any] | None = None, remove: Sequence[str] = ()) -> None:
        """Change attributes of an item behind everybody's back; it is made if it is not there."""
        if self._table.item(key) is None:
            self._table.plant(key, put or {})
        else:
            self._table.alter(key, put, remove)

    def erase(self, key: Key) -> None:
        """Take an item away."""
        self._table.erase(key)

    def plant(self, key: Key, **attributes: Any) -> None:
        """Put an item that is in the way."""
        self._table.plant(key, {"v": 1, "op": "planted", **attributes})


# --- rows that answer otherwise than by a refusal --------------------------------------------------------------------


def _held(settled: Callable[[], list[bool]]) -> Act:
    """A settle that does not hold says so in its answer."""

    def act() -> None:
        if settled() != [True]:
            raise MovedError(seen={"revocation": None})

    return act


def _changing(stage: Stage, key: Key, write: Act) -> Act:
    """A mark that has become pointless is not made, and nobody is told."""

    def act() -> None:
        before = stage.table.get(key)
        write()
        if stage.table.get(key) == before:
            raise MovedError(seen={"grant": None})

    return act


def claim_alone(stage: Stage) -> Act:
    queued, now = stage.queued(), stage.now
    return _held(lambda: [bool(stage.revocations.claim([queued], now))])


def _claimed(stage: Stage, **put: Any) -> Claimed:
    queued = stage.queued()
    (claimed,) = stage.revocations.claim([queued], stage.now)
    if put:
        stage.stand_in.alter(REVOCATION, put=put)
    return claimed


def settle(stage: Stage, state: RevocationState, renewal: str | None = None, **put: Any) -> Act:
    update = stage.revocations.settle(_claimed(stage, **put), stage.now, state, renewal=renewal)
    return _settled(stage, update)


def defer(stage: Stage, **how: Any) -> Act:
    return _settled(stage, stage.revocations.defer(_claimed(stage), attempts=1, next_at=stage.now + 60_000, **how))


def quarantine(stage: Stage, *, excused: bool) -> Act:
    claimed = _claimed(stage)
    return _settled(stage, stage.revocations.quarantine(claimed, stage.now, stage.now + 60_000, excused=excused))


def _settled(stage: Stage, update: Update) -> Act:
    return _held(lambda: stage.revocations.settle_all([update]))


def found_good(stage: Stage) -> Act:
    return _changing(stage, GRANT, test_report.found_good(stage))


def keep_by_itself(stage: Stage) -> Act:
    return _changing(stage, GRANT, test_report.keep_by_itself(stage))


def claim_beside_another_family(stage: Stage) -> Act:
    act = rows.claim_family(stage)
    stage.stand_in.plant(GRANT, family="x-9#main")
    return act


def wake_beside_another_family(stage: Stage) -> Act:
    act = rows.wake_of_the_family(stage)
    stage.stand_in.plant(GRANT, family="x-9#main")
    return act


def park(stage: Stage) -> Act:
    return partial(stage.revocations.park, rows.parkable(stage), stage.account(), None, stage.now)


def after_a_claim(stage: Stage, arrange: Callable[[Stage], Act]) -> Act:
    act = arrange(stage)
    stage.stand_in.alter(REVOCATION, put={"lease": "dead", "lease_until": stage.now - GUARD_MS})
    return act


def compact_after(stage: Stage, outcome: str) -> Act:
    act = test_maintain.compact_revocation(stage)
    stage.stand_in.alter(EXCHANGE, put={"outcome": outcome})
    return act


def compact_what_never_had_a_deadline(stage: Stage) -> Act:
    act = test_maintain.compact_alone(stage)
    stage.stand_in.alter(REVOCATION, remove=("deadline",))
    return act


def compact_exchange(stage: Stage, outcome: str) -> Act:
    test_maintain.told(stage)
    stage.stand_in.alter(EXCHANGE, put={"outcome": outcome})
    return partial(test_maintain.store(stage).compact_exchange, stage.exchange(), is_listed=False)


def postpone(stage: Stage) -> Act:
    queued = stage.queued(reach=Reach.AUTHORIZATION, account=None)
    return partial(stage.revocations.postpone, queued, 1, stage.now + 60_000, stage.now)


def beat(stage: Stage) -> Act:
    return partial(stage.reconciles.beat, "sweep", stage.now, frozenset({CLIENT}))


def count_a_report(stage: Stage) -> Act:
    breaker = ReportBreaker(stage.table, stage.clock, stage.ids, lambda client: None)
    return partial(breaker.admits, CLIENT)


def forget_renewal_of_nobody(stage: Stage) -> Act:
    act = rows.forget_renewal(stage)
    stage.stand_in.alter(REVOCATION, remove=("lease", "lease_until"))
    return act


def with_an_old_key(stage: Stage, arrange: Callable[[Stage], Act]) -> Act:
    act = arrange(stage)
    stage.stand_in.plant(idempotency_key(REF.tenant, "key-digest"), expires=1)
    return act


def close_beside_another_attempt(stage: Stage) -> Act:
    rows.closable(stage)
    stage.stand_in.alter(BARRIER, put={"in_flight": "other#x-9"})
    intent, connection, barrier = stage.intent(), stage.connection(), stage.barrier()
    return partial(stage.reconciles.close, intent, connection, barrier, Close.CONFIRMED, {}, stage.now)


SETTLE: Final = (
    Refusal("it is settled", "revocation", has(REVOCATION, state="expired")),
    Refusal("another has it", "revocation", has(REVOCATION, lease="other")),
)
FOR_GOOD: Final = (
    *SETTLE,
    Refusal("its deadline is over", "revocation", has(REVOCATION, deadline=1)),
    Refusal("a successor is expected", "revocation", has(REVOCATION, expected=frozenset({"attempt-1"}))),
    Refusal("a renewal is open", "revocation", has(REVOCATION, renewing="attempt-1")),
)
MARK: Final = (
    Refusal("another token version", "grant", has(GRANT, tv=9)),
    Refusal("another generation", "grant", has(GRANT, generation=9)),
)

MORE: Final = (
    Row("28 claim", claim_alone, 1, CLAIM_REFUSALS),
    Row(
        "33 settle, confirmed",
        partial(settle, state=RevocationState.CONFIRMED),
        1,
        (*FOR_GOOD, Refusal("a successor was lost", "revocation", has(REVOCATION, lost=True))),
    ),
    Row(
        "34 settle, unconfirmed",
        partial(settle, state=RevocationState.UNCONFIRMED, lost=True),
        1,
        (*FOR_GOOD, Refusal("no successor was lost", "revocation", lacks(REVOCATION, "lost"))),
    ),
    Row(
        "34 settle, unconfirmed after a renewal",
        partial(settle, state=RevocationState.UNCONFIRMED, renewed="attempt-1"),
        1,
        (Refusal("it was not renewed", "revocation", lacks(REVOCATION, "renewed")),),
    ),
    Row(
        "33 settle, confirmed by the refusal of a renewal",
        partial(settle, state=RevocationState.CONFIRMED, renewal="attempt-1", renewing="attempt-1"),
        1,
        (Refusal("another renewal is open", "revocation", has(REVOCATION, renewing="attempt-9")),),
    ),
    Row(
        "34 settle, unconfirmed by the refusal of a renewal",
        partial(settle, state=RevocationState.UNCONFIRMED, renewal="attempt-1", renewing="attempt-1", lost=True),
        1,
        (Refusal("another renewal is open", "revocation", has(REVOCATION, renewing="attempt-9")),),
    ),
    Row("34 settle, unsupported", partial(settle, state=RevocationState.UNSUPPORTED), 1, FOR_GOOD),
    Row("35 defer", defer, 1, SETTLE),
    Row("35 defer, excused", partial(defer, excused=True), 1, SETTLE),
    Row("36 quarantine", partial(quarantine, excused=False), 1, SETTLE),
    Row("36 quarantine, excused", partial(quarantine, excused=True), 1, SETTLE),
    Row(
        "22 found good, and somebody must be told",
        found_good,
        1,
        (*MARK, Refusal("another mark", "grant", has(GRANT, suspect=7))),
    ),
    Row(
        "52 keeps by itself, and somebody must be told",
        keep_by_itself,
        1,
        (
            *MARK,
            Refusal("it moved", "grant", has(GRANT, v=99)),
            Refusal("a refresh is on record", "grant", has(GRANT, attempts=frozenset({"attempt-9"}))),
        ),
    ),
    Row(
        "30 tried again later",
        postpone,
        1,
        (
            Refusal("it moved", "revocation", has(REVOCATION, v=99)),
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("another has it", "revocation", has(REVOCATION, lease="other", lease_until=FAR)),
        ),
    ),
    Row("30 tried again later, after a claim that is over", partial(after_a_claim, arrange=postpone), 1),
    Row("a schedule ran", beat, 1),
    Row("58 a report is counted", count_a_report, 1),
    Row("61 renewal that nobody holds", forget_renewal_of_nobody, 1),
    Row(
        "14 import with a key that counts no longer",
        partial(with_an_old_key, arrange=partial(rows.begin_import, again=False)),
        5,
    ),
    Row(
        "62 source with a key that counts no longer",
        partial(with_an_old_key, arrange=partial(rows.start_source, again=False)),
        6,
    ),
    Row(
        "47 close beside another connection's attempt",
        close_beside_another_attempt,
        4,
        (Refusal("an attempt of its own is in flight", "barrier", has(BARRIER, in_flight="google#x-9")),),
    ),
    Row("29 claim beside another family", claim_beside_another_family, 2),
    Row("32 wake beside another family", wake_beside_another_family, 4),
    Row("31 park after a claim that is over", partial(after_a_claim, arrange=park), 5),
    *(
        Row(f"48 compact a revocation whose exchange is {outcome}", partial(compact_after, outcome=outcome), 4)
        for outcome in ("ended", "installed", "unconfirmed", "cleanup")
    ),
    Row("48 compact what never had a deadline", compact_what_never_had_a_deadline, 1),
    *(
        Row(
            f"49 compact an exchange that is {outcome}",
            partial(compact_exchange, outcome=outcome),
            1,
            (Refusal("its outcome is another", "exchange", has(EXCHANGE, outcome="open")),),
        )
        for outcome in ("installed", "unconfirmed")
    ),
)

ROWS: Final[Mapping[str, Row]] = {
    row.name: row
    for listed in (
        rows.ROWS,
        test_deletion.ROWS,
        test_deliveries.ROWS,
        test_maintain.ROWS,
        test_operator.ROWS,
        test_report.ROWS,
        test_sources.ROWS,
        MORE,
    )
    for row in listed
}


# --- running them ----------------------------------------------------------------------------------------------------


def examples() -> Iterator[Example]:
    """All of them."""
    for row in ROWS.values():
        yield Example(row.name, FREE)
        yield from (Example(row.name, refusal.clause) for refusal in row.refusals)
        if row not in MORE:  # a batch is not repeated: whoever claims next does
            yield Example(row.name, REPEATED)


def fault_of(example: Example, broken: frozenset[Part]) -> str | None:
    """What goes wrong in the example when these parts of the writes are left out."""
    try:
        if example.clause == FREE:
            return None if _once(example, broken) == _once(example, frozenset()) else "it leaves something else behind"
        if example.clause == REPEATED:
            return None if _repeated(example, broken) == _once(example, broken) else "it happened twice"
        return _refused(example, broken)
    except MovedError as moved:
        return f"it was refused by {', '.join(moved.seen) or 'nothing'}"
    except Exception as error:  # noqa: BLE001 - broken code may do anything
        return f"it ended with {type(error).__name__}: {error}"


def _arranged(example: Example) -> tuple[BreakableTable, Stage, Act]:
    table = BreakableTable()
    stage = Stage(Planting(table), table)  # type: ignore[arg-type]
    return table, stage, ROWS[example.row].arrange(stage)


def _once(example: Example, broken: frozenset[Part]) -> str:
    table, _, act = _arranged(example)
    table.broken = broken
    act()
    return table.digest()


def _repeated(example: Example, broken: frozenset[Part]) -> str:
    table, stage, act = _arranged(example)
    table.broken = broken
    stage.table.faults = [applied_then_ambiguous, busy]
    act()
    return table.digest()


def _refused(example: Example, broken: frozenset[Part]) -> str | None:
    table, stage, act = _arranged(example)
    refusal = next(each for each in ROWS[example.row].refusals if each.clause == example.clause)
    refusal.spoil(stage)
    table.broken = broken
    try:
        act()
    except MovedError as moved:
        return None if list(moved.seen) == [refusal.write] else f"refused by {', '.join(moved.seen) or 'nothing'}"
    return f"it happened although {refusal.clause}"


def journal_of(row: str) -> Journal:
    """What the row writes."""
    table, _, act = _arranged(Example(row, FREE))
    table.journal = Journal()
    act()
    return table.journal
