"""Rows 48, 49, 51 and 56: what goes, the key ring, and how far the look over the table has come."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.errors import MovedError
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.limits import COMPACT_MS, KEY_REST_MS
from quitclaim.domain.maintain import Inspection
from quitclaim.domain.revocations import RevocationState
from quitclaim.ports import Key
from quitclaim.store.keys import heartbeat_key, intent_key, marker_key, name_key
from quitclaim.store.maintain import MaintainStore
from quitclaim.store.ring import RingTable
from tests.store import test_rows
from tests.store.more_rows import arranged_by
from tests.store.rows import (
    BARRIER,
    CONNECTION,
    EXCHANGE,
    INTENT,
    REVOCATION,
    Act,
    Refusal,
    Row,
    gone,
    has,
    lacks,
    moved,
    taken,
)
from tests.store.stage import ACCOUNT, CLIENT, OWNER, REF, Stage

LATE_MS = 3 * COMPACT_MS
RING = Key("K#ring", "use#1")
NAME = name_key(CLIENT, "digest-team", REF, "x-1")
INSPECTION = heartbeat_key("inspection")


def store(stage: Stage) -> MaintainStore:
    return MaintainStore(stage.table, stage.clock, stage.ids)


def ring(stage: Stage) -> RingTable:
    return RingTable(stage.table, stage.clock, stage.ids)


def told(stage: Stage, state: RevocationState = RevocationState.CONFIRMED) -> None:
    """A stop is closed, its revocation finished, and a long time over."""
    revocation = stage.settled(state)
    stage.revocations.finish(revocation, None, stage.now, has_barrier=True)
    stage.stand_in.alter(INTENT, put={"closed": stage.now, "purge": "done"})
    stage.stand_in.alter(EXCHANGE, put={"outcome": "cleanup"})
    stage.clock.move(ms=LATE_MS)


def compact_revocation(stage: Stage, *, exchange: bool = True) -> Act:
    told(stage)
    revocation = replace(stage.revocation(), exchange="x-1" if exchange else None)
    return partial(store(stage).compact_revocation, revocation, [stage.intent()], stage.now, has_barrier=True)


def compact_alone(stage: Stage) -> Act:
    told(stage)
    return partial(store(stage).compact_revocation, stage.revocation(), [], stage.now, has_barrier=False)


def unlist(stage: Stage) -> Act:
    told(stage)
    return partial(store(stage).unlist, stage.intent(), "r-1")


def compact_exchange(stage: Stage, *, is_listed: bool) -> Act:
    told(stage)
    return partial(store(stage).compact_exchange, stage.exchange(), is_listed=is_listed)


def compact_intent(stage: Stage) -> Act:
    told(stage)
    stage.stand_in.alter(INTENT, remove=["rids"])
    return partial(store(stage).compact_intent, stage.intent())


def compact_connection(stage: Stage) -> Act:
    told(stage)
    stage.stand_in.alter(CONNECTION, put={"state": "revoked"})
    return partial(store(stage).compact_connection, stage.connection())


def compact_barrier(stage: Stage) -> Act:
    told(stage)
    stage.stand_in.alter(BARRIER, remove=["owed", "acks", "purges"])
    return partial(store(stage).compact_barrier, OWNER, CLIENT, stage.barrier())


def a_key(stage: Stage, kid: str = "1") -> RingItem:
    item = RingItem("use", kid, b"wrapped", stage.now, stage.now)
    assert ring(stage).add(item)
    return next(each for each in ring(stage).read("use") if each.kid == kid)


def retire(stage: Stage) -> Act:
    return partial(ring(stage).retire, a_key(stage), stage.now)


def destroy(stage: Stage) -> Act:
    ring(stage).retire(a_key(stage), stage.now)
    stage.clock.move(ms=KEY_REST_MS)
    (item,) = ring(stage).read("use")
    return partial(ring(stage).destroy, item, stage.now)


def begin_inspection(stage: Stage) -> Act:
    return partial(store(stage).keep_inspection, None, Inspection(stage.now, after={"PK": {"S": "O#a"}}))


def go_on_with_inspection(stage: Stage) -> Act:
    begin_inspection(stage)()
    before = store(stage).inspection()
    after = replace(before, names=frozenset({"1"}), after=None, finished=stage.now)
    return partial(store(stage).keep_inspection, before, after)


TOLD = (
    Refusal("it moved", "revocation", moved(REVOCATION)),
    Refusal("it is not finished", "revocation", lacks(REVOCATION, "finished")),
    Refusal("its deadline is not a day ago", "revocation", has(REVOCATION, deadline=9_999_999_999_999)),
)


def forget_name(stage: Stage) -> Act:
    stage.installed(names=frozenset({"digest-team"}))
    return partial(store(stage).forget_name, stage.item(NAME))


ROWS = (
    Row("79 forget a name", forget_name, 1, (Refusal("it moved", "name", moved(NAME)),)),
    Row(
        "48 compact a revocation",
        compact_revocation,
        4,
        (
            *TOLD,
            Refusal("the barrier is gone", "barrier", gone(BARRIER)),
            Refusal("the stop is open", "intent 1", lacks(INTENT, "closed")),
            Refusal("it is not listed", "intent 1", lacks(INTENT, "rids")),
            Refusal("its exchange is held", "exchange", has(EXCHANGE, outcome="held")),
            Refusal("its exchange is open", "exchange", has(EXCHANGE, outcome="open")),
        ),
    ),
    Row("48 compact a revocation whose exchange is gone", partial(compact_revocation, exchange=False), 3, TOLD),
    Row("48 compact a revocation that nothing names", compact_alone, 1, TOLD),
    Row(
        "48 in advance",
        unlist,
        1,
        (
            Refusal("the stop is open", "intent", lacks(INTENT, "closed")),
            Refusal("it is not listed", "intent", has(INTENT, rids=frozenset({"another"}))),
        ),
    ),
    Row(
        "49 compact an exchange",
        partial(compact_exchange, is_listed=False),
        1,
        (
            Refusal("it moved", "exchange", moved(EXCHANGE)),
            Refusal("its outcome is another", "exchange", has(EXCHANGE, outcome="unconfirmed")),
        ),
    ),
    Row(
        "49 compact an exchange that is listed",
        partial(compact_exchange, is_listed=True),
        2,
        (Refusal("the barrier is gone", "barrier", gone(BARRIER)),),
    ),
    Row(
        "49 compact a stop",
        compact_intent,
        1,
        (
            Refusal("it moved", "intent", moved(INTENT)),
            Refusal("it is open", "intent", lacks(INTENT, "closed")),
            Refusal("it lists something", "intent", has(INTENT, rids=frozenset({"r-2"}))),
        ),
    ),
    Row(
        "49 compact a connection",
        compact_connection,
        1,
        (
            Refusal("it moved", "connection", moved(CONNECTION)),
            Refusal("it lives", "connection", has(CONNECTION, state="authorizing")),
        ),
    ),
    Row(
        "49 compact a barrier",
        compact_barrier,
        1,
        (
            Refusal("it moved", "barrier", moved(BARRIER)),
            *(
                Refusal(f"it names {name}", "barrier", has(BARRIER, **{name: frozenset({"r-2"})}))
                for name in ("owed", "acks", "purges")
            ),
        ),
    ),
    Row(
        "51 retire",
        retire,
        1,
        (Refusal("it moved", "ring", moved(RING)), Refusal("it is retired", "ring", has(RING, retired=1))),
    ),
    Row(
        "51 destroy",
        destroy,
        1,
        (
            Refusal("it moved", "ring", moved(RING)),
            Refusal("it has not rested long enough", "ring", has(RING, retired=9_999_999_999_999)),
            Refusal("it is not retired", "ring", lacks(RING, "retired")),
        ),
    ),
    Row("56 an inspection begins", begin_inspection, 1, (Refusal("one is there", "inspection", taken(INSPECTION)),)),
    Row(
        "56 an inspection goes on",
        go_on_with_inspection,
        1,
        (
            Refusal("another run went on", "inspection", moved(INSPECTION)),
            Refusal("it is gone", "inspection", gone(INSPECTION)),
        ),
    ),
)
dynamodb, arranged = test_rows.dynamodb, arranged_by(ROWS)
test_a_broken_condition = test_rows.test_a_condition_that_does_not_hold_refuses_the_whole_row
test_once = test_rows.test_a_row_happens_once_whatever_became_of_its_first_try


@pytest.mark.rule("F-69", "D-12")
def test_nothing_names_a_revocation_that_is_gone(stage: Stage) -> None:
    """Barrier and stop forget it in the same commit; a second mention elsewhere would be shown as a corruption."""
    act = compact_revocation(stage)
    stage.stand_in.alter(BARRIER, put={"owed": frozenset({"r-1", "r-2"}), "acks": frozenset({"r:r-1", "x:google#x-9"})})
    stage.stand_in.alter(INTENT, put={"rids": frozenset({"r-1", "r-2"})})

    act()

    assert not stage.has(REVOCATION)
    assert (stage.barrier().owed, stage.barrier().acks) == ({"r-2"}, {"x:google#x-9"})
    assert stage.intent().rids == {"r-2"}
    assert stage.due("compact") == []


def test_a_revocation_without_material_is_counted_from_its_queueing(stage: Stage) -> None:
    """It never had a deadline."""
    told(stage, RevocationState.UNSUPPORTED)
    stage.stand_in.alter(REVOCATION, remove=["deadline"])

    store(stage).compact_revocation(stage.revocation(), [], stage.now, has_barrier=False)

    assert not stage.has(REVOCATION)


def test_what_is_gone_already_was_removed(stage: Stage) -> None:
    """By an earlier try of this very write, or by another run: not a reason to look again."""
    for arrange in (compact_alone, compact_intent, compact_connection, compact_barrier, destroy):
        act = arrange(stage)
        act()
        act()
        for pk, sk in stage.stand_in.everything():
            stage.stand_in.erase(Key(pk, sk))


def test_due_items_are_read_over_all_pages(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays due is passed by, and does not hide what is behind it."""
    monkeypatch.setattr("quitclaim.store.maintain.PAGE", 2)
    for number in range(7):
        key = Key(f"Q#r-{number}", "Q")
        stage.stand_in.plant(key, ty="revocation", d1="compact#*#0", d2=f"{number:013d}#r-{number}")

    found = [item["PK"] for item in store(stage).due_items("compact", 0, 5)]

    assert found == [f"Q#r-{number}" for number in range(6)]


def test_members_and_markers_are_counted(stage: Stage) -> None:
    """What the account's counts must be."""
    stage.installed()
    for number in range(3):
        stage.stand_in.plant(marker_key(CLIENT, ACCOUNT, f"r-{number}"))

    assert store(stage).counted(CLIENT, ACCOUNT) == (1, 3)
    assert store(stage).counted(CLIENT, "nobody") == (0, 0)


def test_what_is_left_of_a_connection_is_counted_by_kind(stage: Stage) -> None:
    """Everything but itself, events and the barrier."""
    stage.installed()
    assert store(stage).rest_of(REF) == 2
    stage.stopped()
    assert store(stage).rest_of(REF) == 2
    assert store(stage).rest_of(replace(REF, connection="goog")) == 0
    for key in (EXCHANGE, intent_key(REF, 1)):
        stage.stand_in.erase(key)
    assert store(stage).rest_of(REF) == 0


def test_an_inspection_reads_back_as_it_was_kept(stage: Stage) -> None:
    """The place in the walk with it."""
    kept = Inspection(
        stage.now,
        round=2,
        after={"PK": {"S": "O#a"}, "SK": {"S": "OWNER"}},
        candidates=frozenset({"use#1"}),
        names=frozenset({"2"}),
        unknown_seals=1,
        wrong_accounts=2,
        wrong_before=3,
    )
    store(stage).keep_inspection(None, kept)

    assert store(stage).inspection() == replace(kept, v=1)


def test_the_walk_sees_every_item(stage: Stage) -> None:
    """In the shape in which they are read elsewhere."""
    stage.installed()
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = stage.table.inner.scan(after=after)
        found += page.items
        after = page.after
        if after is None:
            break

    assert {(item["PK"], item["SK"]) for item in found} == set(stage.stand_in.everything())
    grant = next(item for item in found if item["ty"] == "grant")
    assert stage.reads.as_grant(grant) == stage.grant()


def test_the_ring_is_read_as_a_whole(stage: Stage) -> None:
    """Every purpose; a retired key stays where it is."""
    first = a_key(stage)
    ring(stage).add(replace(first, purpose="revoke", kid="revoke-2"))
    ring(stage).retire(first, stage.now)

    found = [item for item in ring(stage).read_all() if isinstance(item, RingItem)]
    assert [(item.purpose, item.kid, item.retired) for item in found] == [
        ("revoke", "revoke-2", None),
        ("use", "1", stage.now),
    ]
    assert ring(stage).add(first) is False


@pytest.mark.parametrize(
    "change",
    [
        {"remove": ["active_from"]},
        {"put": {"active_from": "soon"}},
        {"put": {"retired": "yes"}},
        {"put": {"wrapped": "text"}},
    ],
)
def test_a_key_that_cannot_be_read_hides_no_other(stage: Stage, change: dict[str, Any]) -> None:
    """Whoever reads one purpose does without it; whoever reads them all learns why."""
    second = replace(a_key(stage), kid="use-2")
    ring(stage).add(second)
    stage.stand_in.alter(RING, **change)

    assert ring(stage).read("use") == [second]
    fault, other = ring(stage).read_all()
    assert isinstance(fault, Exception)
    assert other == second


def test_a_connection_of_another_state_stays(stage: Stage) -> None:
    """Whoever asks."""
    stage.started()

    with pytest.raises(MovedError):
        store(stage).compact_connection(stage.connection())

    assert stage.connection().state is ConnectionState.AUTHORIZING
