"""What reconciliation writes: rows 32, 43, 44 (its last part), 46, 47, and the heartbeat."""

from functools import partial

import pytest

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.limits import DEADLINE_MS
from quitclaim.domain.revocations import RevocationState
from quitclaim.domain.stop import Close
from quitclaim.store.keys import (
    connection_key,
    family_marker_key,
    heartbeat_key,
    intent_key,
    marker_key,
    revocation_key,
    shard,
)
from tests.store import rows
from tests.store.stage import ACCOUNT, CLIENT, OTHER, REF, Stage


def test_due_keys_are_read_shard_by_shard(stage: Stage) -> None:
    """What the index shows as due by now, and no more; items that are gone by then are left out."""
    stage.queued()
    number = shard("acme-app#ann#google#1")

    due, _ = stage.reconciles.due_keys("stop", number, stage.now, 100)

    assert due == [intent_key(REF, 1)]
    assert stage.reconciles.due_keys("stop", number, stage.now - 1, 100) == ([], None)
    assert [item["SK"] for item in stage.reconciles.items([*due, rows.GRANT])] == ["S#google#1"]
    assert stage.reconciles.items([]) == []


def test_a_woken_revocation_is_due_with_a_fresh_deadline(stage: Stage) -> None:
    """It is owed again, its marker is gone, and the account counts one parked fewer."""
    rows.wake_of_the_account(stage)
    stage.clock.move(minutes=5)

    stage.reconciles.wake(stage.revocation(), stage.account(), stage.now)

    revocation = stage.revocation()
    assert (revocation.state, revocation.next) == (RevocationState.PENDING, stage.now)
    assert revocation.deadline == stage.now + DEADLINE_MS
    assert stage.barrier().owed == {"r-1", "r-7"}
    assert not stage.has(marker_key(CLIENT, ACCOUNT, "r-1"))
    assert (stage.account().parked, stage.due("wake")) == (0, [])
    assert (revocation_key("r-1"), stage.now) in stage.due("revoke", CLIENT)


def test_the_wake_goes_on_while_something_is_parked(stage: Stage) -> None:
    """One transaction each: the account stays due until none is left."""
    rows.wake_of_the_account(stage)
    stage.stand_in.alter(rows.ACCOUNT_KEY, put={"parked": 2})

    stage.reconciles.wake(stage.revocation(), stage.account(), stage.now)

    assert stage.account().parked == 1
    assert stage.due("wake") == [(rows.ACCOUNT_KEY, stage.now)]


def test_a_family_s_orphan_wakes_once_its_grant_is_gone(stage: Stage) -> None:
    """Found by its marker, due again, the marker gone."""
    rows.park_beside_the_family(stage)()
    stage.stopped()
    assert stage.reconciles.parked_within_family(REF) == ["attempt-1"]

    stage.reconciles.wake(stage.revocation("attempt-1"), None, stage.now)

    assert stage.revocation("attempt-1").state is RevocationState.PENDING
    assert not stage.has(family_marker_key(REF, "attempt-1"))


@pytest.mark.rule("I-11", "U-13")
def test_a_purge_that_is_done_opens_the_barrier(stage: Stage) -> None:
    """Once, with its event; the intent stays due."""
    rows.purge_done(stage)()

    assert stage.intent().purge == "done"
    assert stage.barrier().purges == frozenset()
    assert "purge.completed" in stage.told()
    assert stage.due("stop") == [(intent_key(REF, 1), stage.now)]


def test_a_purge_without_a_barrier_makes_none(stage: Stage) -> None:
    """A deleted owner has none."""
    stage.queued()
    stage.stand_in.erase(rows.BARRIER)

    stage.reconciles.purge_done(stage.intent(), stage.now, has_barrier=False)

    assert not stage.has(rows.BARRIER)


@pytest.mark.rule("F-28", "F-30")
def test_a_stop_that_cannot_close_is_looked_at_later(stage: Stage) -> None:
    """Its due time moves, and the tries are counted."""
    stage.queued()
    later = stage.now + 120_000

    stage.reconciles.postpone(stage.intent(), later)

    assert (stage.intent().next, stage.intent().tries) == (later, 1)
    assert stage.due("stop") == [(intent_key(REF, 1), later)]


def test_a_stop_that_is_overdue_is_shown_until_it_closes(stage: Stage) -> None:
    """With its tenant; from then on by itself."""
    rows.closable(stage)
    stage.reconciles.show_overdue(stage.intent(), stage.now)
    (entry,) = stage.attention("stop")
    assert (entry["SK"], entry["t"], stage.intent().overdue) == ("S#google#1", "acme-app", stage.now)

    close = partial(stage.reconciles.close, stage.intent(), stage.connection(), stage.barrier(), Close.CONFIRMED)
    close({}, stage.now)

    assert (stage.attention("stop"), stage.intent().overdue) == ([], None)


def test_a_close_says_revoked_where_the_provider_confirmed(stage: Stage) -> None:
    """Connection and intent are closed together; nothing of them is due any more."""
    rows.close(stage)()

    connection = stage.connection()
    assert (connection.state, connection.closed_as) == (ConnectionState.REVOKED, "confirmed")
    assert (stage.intent().closed, connection.effect_at, connection.step) == (stage.now, None, None)
    assert (stage.due("stop"), stage.due("connection"), stage.roster()) == ([], [], ["revoked"])
    assert "connection.revoked" in stage.told()


@pytest.mark.rule("I-13")
@pytest.mark.parametrize("close", [Close.ATTESTED, Close.NOT_NEEDED])
def test_a_close_for_another_reason_does_not_say_revoked(stage: Stage, close: Close) -> None:
    """Only the provider's word makes that word (7.11)."""
    rows.closable(stage)

    stage.reconciles.close(stage.intent(), stage.connection(), stage.barrier(), close, {}, stage.now)

    assert stage.connection().closed_as == close.value
    assert "connection.closed" in stage.told()


def test_a_close_beside_a_living_grant_is_released(stage: Stage) -> None:
    """The token is parked, and something else lives on its account."""
    rows.close_beside_a_living_grant(stage)()

    assert stage.connection().closed_as == "released"
    assert stage.connection(OTHER).state is ConnectionState.READY
    assert stage.revocation().state is RevocationState.PARKED


@pytest.mark.rule("F-26")
def test_a_close_of_a_lost_generation_leaves_the_connection(stage: Stage) -> None:
    """needs_reconnect is not revoked: only the intent closes."""
    rows.close_of_a_lost_generation(stage)()

    assert stage.intent().closed == stage.now
    assert stage.connection().state is ConnectionState.NEEDS_RECONNECT


def test_a_close_without_a_barrier_is_held_to_there_being_none(stage: Stage) -> None:
    """What appears meanwhile may be about this connection."""
    rows.closable(stage)
    stage.stand_in.erase(rows.BARRIER)

    stage.reconciles.close(stage.intent(), stage.connection(), None, Close.CONFIRMED, {}, stage.now)

    assert stage.connection().state is ConnectionState.REVOKED


def test_a_waiting_connection_moves_its_due_time_first(stage: Stage) -> None:
    """State, step and due time in one write."""
    rows.move(stage)()

    connection = stage.connection()
    assert (connection.state, connection.step) == (ConnectionState.RECONCILING_REVOKE, 1)
    assert stage.due("connection") == [(connection_key(REF), stage.now + 60_000)]
    assert stage.roster() == ["reconciling_revoke"]


def test_a_heartbeat_never_forgets_a_client(stage: Stage) -> None:
    """A client that was taken out of the configuration keeps being swept."""
    first = stage.reconciles.beat("revoke_sweep", stage.now, frozenset({"acme", "old"}))
    stage.clock.move(minutes=1)

    second = stage.reconciles.beat("revoke_sweep", stage.now, frozenset({"acme"}))
    none = stage.reconciles.beat("revoke_sweep", stage.now, frozenset())

    assert first == second == none == {"acme", "old"}
    assert stage.item(heartbeat_key("revoke_sweep"))["last"] == stage.now
