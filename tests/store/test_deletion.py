"""Rows 25 to 27: the fence of a deleted owner, the stops behind it, and its end."""

from dataclasses import replace
from functools import partial

import pytest

from quitclaim.domain.connect import Owner
from quitclaim.domain.errors import MovedError
from quitclaim.domain.events import Event, EventKind
from quitclaim.ports import Key
from quitclaim.store.keys import account_key, event_key, owner_key
from tests.store import rows, test_rows
from tests.store.more_rows import arranged_by
from tests.store.rows import Act, Refusal, Row, gone, has, moved, taken
from tests.store.stage import ACCOUNT, CLIENT, OWNER, REF, Stage


def delete_a_known_owner(stage: Stage) -> Act:
    stage.installed()
    return partial(stage.stops.delete_owner, OWNER, stage.owner(), stage.now)


def delete_an_unknown_owner(stage: Stage) -> Act:
    return partial(stage.stops.delete_owner, OWNER, None, stage.now)


def stop_behind_the_fence(stage: Stage) -> Act:
    stage.installed()
    return partial(stage.stops.stop, for_deletion(stage))


def stop_of_a_held_one(stage: Stage) -> Act:
    held = stage.held()
    return partial(stage.stops.stop, for_deletion(stage, held=held))


def for_deletion(stage: Stage, **changes: object) -> object:
    stop = stage.a_stop(**changes)
    listed = None if stop.revocation is None else replace(stop.revocation, listed=False)
    return replace(stop, leaves_barrier=True, blocks_purge=True, revocation=listed)


def deletion_done(stage: Stage) -> Act:
    stage.started()
    stage.stops.delete_owner(OWNER, stage.owner(), stage.now)
    return partial(stage.stops.deletion_done, OWNER, stage.owner(), stage.now)


FENCE = owner_key(OWNER)
TOLD = event_key(Event(EventKind.OWNER_STOPPED, OWNER, OWNER.owner, 1_800_000_000_000))
ROWS = (
    Row(
        "25 delete a known owner",
        delete_a_known_owner,
        1,
        (
            Refusal("it is deleted", "owner", has(FENCE, deleted_at=1)),
            Refusal("the table was restored", "owner", has(FENCE, epoch=7)),
            Refusal("it is not there", "owner", gone(FENCE)),
        ),
    ),
    Row("25 delete an unknown owner", delete_an_unknown_owner, 1, (Refusal("it is there", "owner", taken(FENCE)),)),
    Row(
        "26 stop behind the fence",
        stop_behind_the_fence,
        7,
        (
            Refusal("the connection moved", "connection", moved(rows.CONNECTION)),
            Refusal("the grant moved", "grant main", moved(rows.GRANT)),
            Refusal("it is queued", "revocation", taken(rows.REVOCATION)),
            Refusal("it is on record", "intent", taken(rows.INTENT)),
            Refusal("the account moved", "account", moved(account_key(CLIENT, ACCOUNT))),
        ),
    ),
    Row("26 stop of a held one behind the fence", stop_of_a_held_one, 5, rows.exchange_is_held(within=False)),
    Row(
        "27 deletion done",
        deletion_done,
        2,
        (
            Refusal("the owner moved", "owner", moved(FENCE)),
            Refusal("another deletion", "owner", has(FENCE, deleted_at=7)),
            Refusal("it is done", "owner", has(FENCE, stopped_at=7)),
            Refusal("it was told", "event", taken(TOLD)),
        ),
    ),
)
dynamodb, arranged = test_rows.dynamodb, arranged_by(ROWS)
test_a_broken_condition = test_rows.test_a_condition_that_does_not_hold_refuses_the_whole_row
test_once = test_rows.test_a_row_happens_once_whatever_became_of_its_first_try


def due(stage: Stage) -> list[Key]:
    return [key for key, _ in stage.due("deletion")]


@pytest.mark.rule("I-15")
def test_a_deleted_owner_is_due_until_its_end(stage: Stage) -> None:
    """At once, in the index; and never again."""
    act = deletion_done(stage)
    assert due(stage) == [FENCE]

    act()

    assert due(stage) == []
    assert (stage.owner().deleted_at, stage.owner().stopped_at, stage.owner().epoch) == (stage.now, stage.now, 0)
    assert stage.event("owner.stopped") == {"tenant": "acme-app", "owner": "ann"}


@pytest.mark.rule("F-15", "I-10")
def test_nothing_clears_a_deletion(stage: Stage) -> None:
    """No start, no install, no second deletion."""
    stage.started()
    stage.stops.delete_owner(OWNER, stage.owner(), stage.now)
    first = stage.owner()
    stage.clock.move(minutes=1)

    for act in (
        partial(stage.stops.delete_owner, OWNER, replace(first, deleted_at=None), stage.now),
        partial(stage.connects.start, stage.a_start(owner=replace(first, deleted_at=None))),
        partial(stage.connects.start, stage.a_start(owner=None)),
    ):
        with pytest.raises(MovedError):
            act()
    assert stage.owner() == first


@pytest.mark.rule("I-10")
def test_an_install_behind_the_fence_is_refused(stage: Stage) -> None:
    """Its owner was deleted between the read and the commit."""
    act = rows.install(stage, known=True)
    stage.stops.delete_owner(OWNER, stage.owner(), stage.now)

    with pytest.raises(MovedError) as refused:
        act()

    assert list(refused.value.seen) == ["owner"]


@pytest.mark.rule("D-10")
def test_a_stop_behind_the_fence_leaves_the_barrier_as_it_is(stage: Stage) -> None:
    """And its revocation says that it is in none."""
    stop_behind = stop_behind_the_fence(stage)
    before = stage.barrier()

    stop_behind()

    assert stage.barrier() == before
    assert stage.revocation().is_listed is False
    assert stage.intent().purge == "pending"


def test_a_stop_of_a_held_one_behind_the_fence_keeps_it_in_flight(stage: Stage) -> None:
    """Nobody begins any more; the grant is due."""
    stop_of_a_held_one(stage)()

    assert stage.barrier().in_flight == "google#x-1"
    assert stage.exchange().outcome == "cleanup"
    assert (stage.revocation().next, stage.revocation().lease) == (stage.now, None)


def test_late_tokens_are_listed_all_the_same(stage: Stage) -> None:
    """Class L rows know no deletion: one code path."""
    before = rows.leased(stage)
    orphan = rows.orphan_of(stage, before, "attempt-1")
    stage.stops.delete_owner(OWNER, stage.owner(), stage.now)
    stage.stops.stop(for_deletion(stage))

    stage.tokens.queue_orphan(
        before, "attempt-1", orphan, found=None, stopped=stage.revocation(), intent_generation=before.generation
    )

    assert stage.barrier().owed == {"attempt-1"}
    assert "attempt-1" in stage.intent(before.generation).rids
    assert stage.revocation().expected == frozenset()


def test_an_owner_reads_back_as_it_was_written(stage: Stage) -> None:
    """By its key alone."""
    stage.stops.delete_owner(OWNER, None, stage.now)

    ref, owner = stage.reads.as_owner(stage.item(FENCE))

    assert (ref, owner) == (OWNER, Owner(deleted_at=stage.now, v=1))
    assert REF.of_owner == OWNER.of_owner == ref
