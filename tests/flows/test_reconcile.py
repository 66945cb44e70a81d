"""Nothing stays half done: what is due is looked at, in an order in which one step makes the next possible."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from quitclaim.domain.limits import AUTHORIZATION_MS, CONFIRM_MS, GUARD_MS, MINUTE, TICKET_MS, WINDOW_MS
from quitclaim.flows.reconcile import LAST_ITEM_MS, reconcile
from quitclaim.store.keys import barrier_key, connection_key, exchange_key, intent_key
from tests.fakes.clock import Budget
from tests.fakes.provider import after, answers, killed
from tests.fakes.tables import WorkerKilledError, killed_after, killed_before
from tests.flows.world import GOOGLE, OTHER, OWNER, World

type Worlds = Callable[..., World]


def sent_and_died(world: World) -> None:
    """The code was sent, and its worker is gone."""
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.come_back(world.callback())


# --- exchanges and links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after_ms", "outcome"), [(GUARD_MS - 1, "open"), (GUARD_MS, "unconfirmed")])
def test_an_empty_exchange_lapses_after_its_window_and_a_guard(world: World, after_ms: int, outcome: str) -> None:
    """Not a millisecond before: its own worker may still answer."""
    sent_and_died(world)
    world.clock.move(ms=WINDOW_MS + after_ms)

    world.reconcile()

    assert world.exchange().outcome == outcome
    assert world.connection().state == ("failed" if outcome == "unconfirmed" else "authorizing")


@pytest.mark.parametrize(("after_ms", "outcome"), [(GUARD_MS - 1, "held"), (GUARD_MS, "cleanup")])
def test_a_hold_lapses_after_its_end_and_a_guard(asking_world: World, after_ms: int, outcome: str) -> None:
    """The connection has failed, and the grant is kicked."""
    world = asking_world
    world.come_back(world.callback())
    world.clock.move(ms=CONFIRM_MS + after_ms)

    world.reconcile()

    assert world.exchange().outcome == outcome
    assert world.kick.rids == ([world.exchange().rid] if outcome == "cleanup" else [])


def test_a_hold_that_the_sweep_has_is_closed_beside_it(asking_world: World) -> None:
    """The sweep took the grant; reconciliation closes the exchange, whoever has the grant by then (custody rule 13)."""
    world = asking_world
    world.come_back(world.callback())
    world.clock.move(ms=CONFIRM_MS + GUARD_MS)
    world.sweep()

    world.reconcile()

    assert world.exchange().outcome == "cleanup"
    assert world.connection().state == "failed"
    assert world.notice() == "confirmed"


@pytest.mark.parametrize(("after_ms", "state"), [(GUARD_MS - 1, "authorizing"), (GUARD_MS, "failed")])
def test_a_link_that_nobody_finished_lapses(world: World, after_ms: int, state: str) -> None:
    """Once no authorization of it can come back: ticket, authorization and two guards."""
    world.visit(world.start())
    world.clock.move(ms=TICKET_MS + AUTHORIZATION_MS + GUARD_MS + after_ms)

    world.reconcile()

    assert world.connection().state == state
    assert world.events() == (["connection.failed"] if state == "failed" else [])


def test_a_connection_that_waits_for_its_exchange_is_left_to_it(world: World) -> None:
    """Its own due time passes by while the exchange is open."""
    sent_and_died(world)
    world.stand_in.alter(connection_key(GOOGLE), put={"d2": f"{world.clock.now():013d}#x"})

    world.reconcile()

    assert world.connection().state == "authorizing"
    assert world.connection().lapse_at == world.clock.now() + MINUTE


def test_a_connection_that_a_late_grant_left_behind_fails(world: World) -> None:
    """Its worker died between the two writes."""
    callback = world.callback()
    world.server.next("/token", after(lambda: world.clock.move(seconds=61)))
    world.table.faults = [None, None, None, killed_before]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)
    assert (world.exchange().outcome, world.connection().state) == ("cleanup", "authorizing")

    world.minutes_pass(40)

    assert world.connection().state == "failed"
    assert world.events("connection.failed") == ["connection.failed"]


# --- finishing and closing -------------------------------------------------------------------------------------------


def test_finishing_and_closing_are_told_once(world: World) -> None:
    """Five more runs of everything change nothing and tell nothing."""
    world.connect()
    world.disconnect()
    world.minutes_pass(2)
    told, receipts = world.events(), world.reads.receipts(OWNER)

    world.minutes_pass(5)

    assert world.events() == told
    assert world.reads.receipts(OWNER) == receipts
    assert sorted(told) == [
        "connection.ready",
        "connection.revoked",
        "connection.revoking",
        "purge.completed",
        "revocation.confirmed",
    ]


@pytest.mark.parametrize("fault", [killed_before, killed_after], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("number", range(5))
def test_a_reconciler_that_dies_is_followed_by_the_next(world: World, fault: object, number: int) -> None:
    """Whatever write of finishing, purge and close it dies at, each event and receipt exists once in the end."""
    world.connect()
    world.disconnect()
    world.sweep()
    world.table.faults = [*[None] * number, fault]  # type: ignore[list-item]
    with suppress(WorkerKilledError):
        world.reconcile()
    world.table.faults = []

    world.minutes_pass(4)

    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")
    assert len(set(world.events())) == len(world.events()) == 5
    assert len(world.reads.receipts(OWNER)) == 1


def test_a_stop_that_cannot_close_is_looked_at_on_the_ladder(world: World) -> None:
    """1, 2, 4, 8, 15 minutes: not every minute for a day."""
    world.connect()
    world.disconnect()
    looked = []
    for minute in range(16):
        before = world.reads.intents(GOOGLE)[0].tries
        world.reconcile()
        if world.reads.intents(GOOGLE)[0].tries > before:
            looked.append(minute)
        world.clock.move(minutes=1)

    assert looked == [0, 1, 3, 7, 15]


def test_whoever_finishes_the_last_part_closes_at_once(world: World) -> None:
    """The revocation was the last: its finishing step closes the stop, not the ladder's next turn."""
    world.connect()
    world.disconnect()
    world.server.next("/revoke", answers(503))
    world.sweep()
    world.reconcile()
    world.clock.move(minutes=1)
    world.sweep()

    world.reconcile()

    assert world.connection().state == "revoked"


def test_a_stop_of_one_connection_does_not_wait_for_another(world: World) -> None:
    """The barrier lists both; each closes by its own (7.10)."""
    world.connect()
    world.connect(OTHER, account="bob")
    world.disconnect(OTHER)
    world.disconnect()
    world.server.next("/revoke", answers(503))

    world.sweep()
    world.reconcile()

    states = {world.connection().state, world.connection(OTHER).state}
    assert states == {"revoking", "revoked"}


def test_a_stop_does_not_close_beside_its_own_open_exchange(world: World) -> None:
    """Purge and compensations are done, nothing is owed, and yet an answer may come."""
    sent_and_died(world)
    world.disconnect()

    world.reconcile()

    assert world.connection().state == "revoking"
    assert world.reads.intents(GOOGLE)[0].purge == "done"


def test_a_missing_revocation_never_counts_as_done(world: World) -> None:
    """An id without its item is a corruption: the stop stays open, and the owner sees it."""
    world.connect()
    world.disconnect()
    (rid,) = world.reads.intents(GOOGLE)[0].rids
    world.stand_in.client.delete_item(TableName=world.stand_in.name, Key={"PK": {"S": f"Q#{rid}"}, "SK": {"S": "Q"}})

    world.minutes_pass(3)

    assert world.connection().state == "reconciling_revoke"
    assert world.notice() == "permission_removal_required"
    assert world.status().blockers["acme"][0].level == "missing"


# --- the run itself --------------------------------------------------------------------------------------------------


def test_one_poisoned_item_does_not_stop_the_others(world: World) -> None:
    """It is counted and told of, stays due, and everything else goes on (I-16)."""
    world.connect()
    world.connect(OTHER, account="bob")
    world.disconnect()
    world.disconnect(OTHER)
    world.stand_in.alter(intent_key(GOOGLE, 1), put={"rids": 5})
    world.sweep()

    run = reconcile(Budget(54_000), world.reconciling)

    assert run.failed
    assert world.faults
    assert world.connection(OTHER).state == "revoked"


def test_a_run_without_time_begins_nothing(world: World) -> None:
    """Eight seconds are kept for what was begun."""
    world.connect()
    world.disconnect()
    before = world.stand_in.everything()

    run = reconcile(Budget(LAST_ITEM_MS - 1), world.reconciling)

    assert (run.done, run.failed) == ({}, {})
    assert world.stand_in.everything() == before


def test_nothing_due_writes_nothing(world: World) -> None:
    """A ready connection is left in peace."""
    world.connect()
    before = world.stand_in.everything()

    with world.table.metered() as spent:
        world.reconcile()

    assert spent.writes == []
    assert set(spent.reads) == {"index"}
    assert world.stand_in.everything() == before


def test_two_runs_at_once_are_safe(world: World) -> None:
    """A second run in the middle of the first: each step is done by one of them."""
    world.connect()
    world.disconnect()
    world.sweep()
    again = [True]

    def meanwhile(apply: Callable[[], object]) -> object:
        if again.pop():
            world.table.faults = []
            reconcile(Budget(54_000), world.reconciling)
        return apply()

    world.table.faults = [meanwhile]

    world.reconcile()
    world.minutes_pass(2)

    assert len(set(world.events())) == len(world.events()) == 5
    assert world.connection().closed_as == "confirmed"


def test_a_barrier_of_another_exchange_is_left_alone(world: World) -> None:
    """A lapse never opens what is shut for somebody else."""
    sent_and_died(world)
    world.stand_in.alter(barrier_key(OWNER, "acme"), put={"in_flight": "other#x"})
    world.clock.move(ms=WINDOW_MS + GUARD_MS)

    world.reconcile()

    assert world.exchange().outcome == "open"
    assert world.table.get(exchange_key(GOOGLE, world.exchange().id)) is not None
