"""Deleting an owner: the fence first, then every connection, as often as it takes."""

from dataclasses import replace

import pytest

from quitclaim.domain.connect import Barrier, Connection, ConnectionState
from quitclaim.domain.errors import OwnerDeletedError, StoreError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import GUARD_MS, SECOND, WINDOW_MS
from quitclaim.flows.deletion import carry_out_deletion, delete_owner
from quitclaim.flows.reconcile import reconcile
from quitclaim.flows.status import all_views, view
from quitclaim.flows.stop import Stopping
from quitclaim.flows.tokens import report
from quitclaim.ports import Put
from quitclaim.store.keys import connection_key
from quitclaim.store.reads import Reads
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.stamps import connection_item
from quitclaim.store.stop import StopStore
from tests.fakes.breakers import Unbroken
from tests.fakes.clock import Budget, MovableClock
from tests.fakes.ids import SeededIds
from tests.fakes.invocations import RecordingKick
from tests.fakes.provider import lost_answer
from tests.fakes.tables import MeteredTable, WorkerKilledError, ambiguous, busy, killed_after, killed_before
from tests.flows.world import GOOGLE, OTHER, OWNER, World
from tests.proof.table import MemoryTable

STATES = [state for state in ConnectionState if state is not ConnectionState.RECONCILING_LINK]


def delete(world: World) -> None:
    delete_owner(OWNER, world.stopping)


def many(world: World, count: int) -> list[ConnectionRef]:
    """So many ready connections of the owner."""
    refs = [replace(GOOGLE, connection=f"c{number:03d}") for number in range(count)]
    for number, ref in enumerate(refs):
        world.connect(ref, account=f"account-{number}")
        world.clock.move(ms=1)
    return refs


# --- the fence -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-27", "I-10")
def test_an_owner_nobody_has_heard_of_is_deleted_all_the_same(world: World) -> None:
    """The fence is put, and nothing of that owner begins any more."""
    delete(world)

    assert world.reads.owner(OWNER).deleted_at == world.clock.now()
    with pytest.raises(OwnerDeletedError):
        world.start()


@pytest.mark.rule("F-15", "F-27", "I-18")
def test_deleting_again_changes_nothing_and_answers_the_same(world: World) -> None:
    """The time of the first deletion stands, whatever has happened since."""
    world.connect()
    first = delete_owner(OWNER, world.stopping)
    world.minutes_pass(3)
    before = world.stand_in.everything()

    again = delete_owner(OWNER, world.stopping)

    assert again.deleted_at == first.deleted_at
    assert world.stand_in.everything() == before


@pytest.mark.rule("F-27", "D-11")
def test_it_is_one_write(world: World) -> None:
    """A fence, without looking at a single connection: nothing can refuse it but another deletion."""
    world.connect()

    with world.table.metered() as spent:
        delete(world)

    assert (spent.reads, spent.writes) == (["get"], [1])


@pytest.mark.parametrize("fault", [ambiguous, busy])
def test_a_lost_or_busy_write_is_repeated(world: World, fault: object) -> None:
    """And so is one whose answer was lost."""
    world.table.faults = [fault]

    delete(world)

    assert world.reads.owner(OWNER).is_deleted


@pytest.mark.rule("F-14", "I-5", "I-10")
def test_a_deleted_owner_is_answered_owner_deleted(world: World) -> None:
    """To everything but status, receipts and acknowledgement, before anything else is judged."""
    world.connect()
    delete(world)

    for ask in (
        lambda: world.token(),
        lambda: world.disconnect(generation=77),
        lambda: world.start(),
        lambda: world.start(again=True),
        lambda: world.confirm(None, generation=77),
        lambda: report(GOOGLE, "main", 1, reads=world.reads, store=world.handing_out.store, breaker=Unbroken()),
        lambda: view(GOOGLE, reads=world.reads, clock=world.clock),
        lambda: all_views(OWNER, reads=world.reads, clock=world.clock),
    ):
        with pytest.raises(OwnerDeletedError):
            ask()
    assert world.status().owner.is_deleted
    assert [each.connection.state for each in world.status().connections] == ["ready"]


@pytest.mark.rule("C-11")
def test_the_key_of_an_earlier_start_does_not_help(world: World) -> None:
    """Not even the first answer is given again."""
    world.start(idempotency_key="k")
    delete(world)

    with pytest.raises(OwnerDeletedError):
        world.start(idempotency_key="k")


def test_a_link_that_is_out_already_leads_nowhere(world: World) -> None:
    """Neither the link nor the callback of a browser that is at the provider."""
    started = world.start()
    callback = world.approved(world.visit(started))
    delete(world)

    with pytest.raises(OwnerDeletedError):
        world.visit(started)
    with pytest.raises(Exception, match="OWNER_DELETED"):
        world.come_back(callback)
    assert world.server.live() == []


# --- the stops -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-27", "I-1", "I-13", "I-15")
def test_every_connection_is_stopped_and_its_grant_revoked(world: World) -> None:
    """Within the next minutes, by itself; the owner is told once it is done, and stays deleted."""
    world.connect()
    world.connect(OTHER, account="bob")
    delete(world)

    world.minutes_pass(4)

    assert [each.state for each in world.reads.connections(OWNER)] == ["revoked", "revoked"]
    assert [each.closed_as for each in world.reads.connections(OWNER)] == ["confirmed", "confirmed"]
    assert world.server.live() == []
    assert world.reads.owner(OWNER).stopped_at is not None
    assert world.events("owner.stopped") == ["owner.stopped"]
    assert {each["reason"] for each in world.items("intent")} == {"account_deleted"}


@pytest.mark.rule("D-11")
def test_no_provider_is_called_and_no_key_is_opened(world: World) -> None:
    """The stops move sealed bytes; a KMS that is out does not keep an owner's grants alive."""
    world.connect()
    asked, world.kms.is_out = len(world.server.asked), True
    delete(world)

    world.reconcile()

    assert world.connection().state == "revoking"
    assert len(world.server.asked) == asked


@pytest.mark.rule("F-19", "D-10")
@pytest.mark.parametrize("state", STATES)
def test_a_connection_in_any_state_ends_stopped(world: World, state: ConnectionState) -> None:
    """The row "stop for a deleted owner": whatever is not stopped is, and what is stopped stays as it is."""
    world.connect()
    if state in (ConnectionState.REVOKING, ConnectionState.RECONCILING_REVOKE, ConnectionState.REVOKED):
        world.disconnect()
    world.stand_in.alter(connection_key(GOOGLE), put={"state": state.value})
    before = world.connection()
    delete(world)

    world.reconcile()

    after = world.connection()
    assert after.is_stopped
    assert (after.generation == before.generation) is before.is_stopped
    assert world.reads.owner(OWNER).stopped_at is not None


def test_one_that_is_being_asked_about_is_only_marked(world: World) -> None:
    """The provider's answer decides what is stopped there; with the account known it is stopped at once."""
    world.connect()
    world.stand_in.alter(connection_key(GOOGLE), put={"state": "reconciling_link"}, remove=["account"])
    delete(world)

    world.reconcile()

    assert (world.connection().state, world.connection().requested) == ("reconciling_link", world.clock.now())
    assert world.reads.owner(OWNER).stopped_at is not None


@pytest.mark.rule("D-10")
def test_stops_of_a_deleted_owner_leave_the_barrier_alone(world: World) -> None:
    """Neither the stop nor its finishing step, purge or close touches it: five hundred do not meet there."""
    world.connect()
    _, _, before = world.reads.fence(GOOGLE, "acme")
    delete(world)

    world.minutes_pass(4)

    _, _, after = world.reads.fence(GOOGLE, "acme")
    assert world.connection().state == "revoked"
    assert after == before


@pytest.mark.rule("I-1", "F-65")
def test_a_held_grant_is_released_and_stays_in_flight(asking_world: World) -> None:
    """Its exchange ends with the stop, its grant is revoked; that the barrier still names it holds up nothing."""
    world = asking_world
    world.come_back(world.callback())
    in_flight = world.reads.fence(GOOGLE, "acme")[2].in_flight
    delete(world)

    world.minutes_pass(4)

    assert world.exchange().outcome == "cleanup"
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")
    assert world.reads.fence(GOOGLE, "acme")[2].in_flight == in_flight
    assert world.server.live() == []


@pytest.mark.rule("I-1", "D-2")
def test_a_grant_that_comes_after_the_deletion_is_queued_and_revoked(world: World) -> None:
    """The code had been sent: what comes back for it is held, refused, and owed, in the barrier as ever (row 9)."""
    callback = world.callback()
    world.server.next("/token", lambda act, request: [act(), delete(world), world.reconcile()][0])

    with pytest.raises(Exception, match="GRANT_NOT_INSTALLED"):
        world.come_back(callback)

    assert world.unaccounted() == []
    world.minutes_pass(4)
    assert world.server.live() == []
    assert world.connection().state == "revoked"


@pytest.mark.rule("I-1", "D-3")
def test_a_token_refreshed_while_the_owner_is_deleted_is_revoked_too(world: World) -> None:
    """The save is refused, the fresh token queued; the class L row lists it in the barrier."""
    world.connect()
    world.clock.move(minutes=70)
    world.server.next("/token", lambda act, request: [act(), delete(world), world.reconcile()][0])

    with pytest.raises(OwnerDeletedError):
        world.token()

    assert world.unaccounted() == []
    assert world.reads.fence(GOOGLE, "acme")[2].owed
    world.minutes_pass(6)
    assert world.server.live() == []
    assert world.connection().closed_as == "confirmed"


@pytest.mark.rule("D-1", "I-1")
def test_an_unseen_refresh_of_a_deleted_owner_ends_in_a_notice(world: World) -> None:
    """Its successor may be alive, and nobody has it: never "confirmed"."""
    world.connect()
    world.clock.move(minutes=70)
    world.server.next("/token", lost_answer)
    with pytest.raises(Exception, match="unknown"):
        world.token()
    delete(world)

    world.minutes_pass(4)

    assert world.notice() == "permission_removal_required"
    assert world.acknowledge() == 1
    world.minutes_pass(16)
    assert world.connection().closed_as == "attested"


# --- as often as it takes --------------------------------------------------------------------------------------------


@pytest.mark.rule("F-30", "RB-61")
def test_what_does_not_fit_is_done_by_the_next_run(world: World) -> None:
    """Out of time after some: nothing is done twice, and the owner stays due until all are stopped."""
    refs = many(world, 7)
    delete(world)
    owner = world.reads.owner(OWNER)
    used = iter([30 * SECOND] * 4 + [9 * SECOND] * 90)

    class Shrinking:
        def remaining_ms(self) -> int:
            return next(used)

    done = carry_out_deletion(OWNER, owner, Shrinking(), world.stopping, world.reconciling.store)

    stopped = [ref for ref in refs if world.connection(ref).is_stopped]
    assert done is False
    assert 0 < len(stopped) < len(refs)
    assert world.reads.owner(OWNER).stopped_at is None
    generations = {ref: world.connection(ref).generation for ref in stopped}
    world.reconcile()
    assert all(world.connection(ref).is_stopped for ref in refs)
    assert {ref: world.connection(ref).generation for ref in stopped} == generations
    assert world.reads.owner(OWNER).stopped_at is not None


@pytest.mark.rule("I-16")
def test_it_takes_a_share_of_the_time_only(world: World) -> None:
    """One owner with many connections leaves half of the run to what else is due."""
    many(world, 5)
    delete(world)
    budget = Budget(60 * SECOND, world.clock)
    took = world.stopping.store.stop

    def slow(stop: object) -> None:
        world.clock.move(seconds=9)
        took(stop)

    world.stopping.store.stop = slow
    carry_out_deletion(OWNER, world.reads.owner(OWNER), budget, world.stopping, world.reconciling.store)

    assert 20 * SECOND <= budget.remaining_ms() <= 35 * SECOND


def test_many_stops_share_their_kicks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction each, and one kick for as many revocations as a kick may carry."""
    monkeypatch.setattr("quitclaim.flows.deletion.KICKED_AT_ONCE", 5)
    many(world, 12)
    delete(world)
    kicks: list[int] = []
    world.kick.revoke_now = lambda rids: kicks.append(len(rids))

    world.reconcile()

    assert kicks == [5, 5, 2]
    assert all(connection.is_stopped for connection in world.reads.connections(OWNER))


@pytest.mark.rule("F-27", "RB-61")
@pytest.mark.parametrize("count", [0, 1, 500])
def test_none_one_or_five_hundred(count: int) -> None:
    """The fence is one write whatever stands behind it; each stop is one more, and the end is two actions."""
    table, clock, ids = MeteredTable(MemoryTable()), MovableClock(), SeededIds()
    reads, kick = Reads(table), RecordingKick()
    stopping = Stopping(reads, StopStore(table, clock, ids), clock, ids, kick)
    for number in range(count):
        ref = replace(GOOGLE, connection=f"c{number:03d}")
        connection = Connection(ref, "acme", "acme", ConnectionState.FAILED, 1)
        table.write(Put(connection_key(ref), connection_item(connection, 1) | {"ty": "connection", "v": 1}, ()))
    delete_owner(OWNER, stopping)

    with table.metered() as spent:
        done = carry_out_deletion(
            OWNER, reads.owner(OWNER), Budget(54_000), stopping, ReconcileStore(table, clock, ids)
        )

    assert done
    assert spent.writes == [3] * count + [2]
    assert [each.is_stopped for each in reads.connections(OWNER)] == [True] * count
    assert reads.owner(OWNER).stopped_at is not None


@pytest.mark.rule("I-16")
def test_one_that_cannot_be_stopped_does_not_keep_the_others_alive(world: World) -> None:
    """It is counted as failed and tried again; the owner is not done before."""
    many(world, 3)
    delete(world)
    plain = world.stopping.store.stop

    def stop(stop: object) -> None:
        if stop.before.ref.connection == "c000":
            raise StoreError
        plain(stop)

    world.stopping.store.stop = stop
    run = reconcile(Budget(54_000), world.reconciling)
    assert run.failed == {"deletion": 1}
    assert [each.is_stopped for each in world.reads.connections(OWNER)] == [False, True, True]
    assert world.reads.owner(OWNER).stopped_at is None
    world.stopping.store.stop = plain
    world.faults.clear()
    world.reconcile()
    assert world.reads.owner(OWNER).stopped_at is not None


@pytest.mark.rule("F-31", "RB-61")
@pytest.mark.parametrize("fault", [killed_before, killed_after])
@pytest.mark.parametrize("number", range(4))
def test_a_crash_at_any_write_is_made_good_by_the_next_runs(world: World, fault: object, number: int) -> None:
    """Fence, both stops, done: whichever write the worker dies at, everything is revoked in the end."""
    world.connect()
    world.connect(OTHER, account="bob")
    world.table.faults = [None] * number + [fault]

    def attempt() -> None:
        delete(world)
        carry_out_deletion(OWNER, world.reads.owner(OWNER), Budget(54_000), world.stopping, world.reconciling.store)

    with pytest.raises(WorkerKilledError):
        attempt()
    world.table.faults = []
    delete(world)
    world.minutes_pass(5)

    assert world.server.live() == []
    assert [each.state for each in world.reads.connections(OWNER)] == ["revoked", "revoked"]
    assert world.reads.owner(OWNER).stopped_at is not None
    assert world.events("owner.stopped") == ["owner.stopped"]


def test_a_stop_before_the_deletion_is_finished_as_it_began(world: World) -> None:
    """Its purge and revocation are listed in the barrier, and leave it."""
    world.connect()
    world.disconnect()
    delete(world)

    world.minutes_pass(4)

    barrier = world.reads.fence(GOOGLE, "acme")[2]
    assert world.connection().closed_as == "confirmed"
    assert replace(barrier, v=0) == Barrier()


def test_an_open_exchange_keeps_its_own_end(world: World) -> None:
    """A worker died with the code: the owner may acknowledge although it is deleted, once the window is over."""
    callback = world.callback()
    world.server.next("/token", lost_answer)
    with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
        world.come_back(callback)
    delete(world)
    world.clock.move(ms=WINDOW_MS + GUARD_MS)

    world.reconcile()

    assert world.notice() == "permission_removal_required"
    assert world.acknowledge() == 1


@pytest.mark.rule("F-31")
def test_the_owner_is_due_until_it_is_done(world: World) -> None:
    """In the index, under the kind `deletion`."""
    world.connect()
    delete(world)
    assert world.items("owner")[0]["d1"].startswith("deletion#")

    world.reconcile()

    assert "d1" not in world.items("owner")[0]
