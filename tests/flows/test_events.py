"""The outbox: each transition is told once, reaches the bus at least once, and keeps its id."""

from dataclasses import replace

import pytest

from quitclaim.domain.errors import NeedsReconnectError, StoreError
from quitclaim.domain.limits import EVENT_TTL_MS, PUBLISH_MS
from quitclaim.flows.reconcile import reconcile
from quitclaim.ports import Key
from quitclaim.store.table import BatchFaultError
from tests.fakes.clock import Budget
from tests.fakes.provider import answers
from tests.fakes.tables import WorkerKilledError, ambiguous, applied_then_ambiguous, busy, killed_after, killed_before
from tests.flows.told import faults_of, told_by
from tests.flows.world import GOOGLE, OTHER, World


def published(world):
    """When each event was published, in order."""
    return [item.get("published") for item in sorted(world.items("event"), key=lambda each: each["SK"])]


def of_owner(number):
    """The same connection of another owner."""
    return replace(GOOGLE, owner=f"ann-{number}")


# --- what the stream tells of -----------------------------------------------------------------------------------------


def test_an_event_is_put_on_the_bus_and_due_no_more(world):
    """What the app reads is what docs/events says; the item goes a week later."""
    world.connect()

    run = world.publish()

    assert (run.done, run.left, run.unfit) == (1, (), 0)
    (detail,) = world.bus.details
    assert (detail["kind"], detail["connection_id"], detail["generation"]) == ("connection.ready", "google", 1)
    assert faults_of(detail) == []
    (item,) = world.items("event")
    assert int(item["published"]) == world.clock.now()
    assert int(item["ttl"]) == (world.clock.now() + EVENT_TTL_MS) // 1000
    assert not {"d1", "d2"} & set(item)


def test_what_is_published_is_not_sent_again(world):
    """The stream may tell of it as often as it likes."""
    world.connect()
    world.publish()

    run = world.publish()

    assert (run.done, run.left) == (0, ())
    assert len(world.bus.taken) == 1


def test_what_the_bus_refuses_alone_stays_due(world):
    """Its answer is for each entry; the others of the call are published."""
    for number in range(3):
        world.connect(of_owner(number))
    outbox = world.outbox()
    world.bus.takes = lambda number: number != 1

    run = world.publish()

    assert (run.done, run.left) == (2, (outbox[1],))
    assert published(world).count(None) == 1
    world.bus.takes = lambda number: True
    assert world.publish(*run.left).done == 1
    assert len(world.bus.ids) == len({*world.bus.ids}) == 3


def test_more_than_a_call_takes_go_in_several(world):
    """Ten at a time, in the order in which it happened."""
    for number in range(12):
        world.connect(of_owner(number))
        world.clock.move(seconds=1)

    run = world.publish()

    assert run.done == len({*world.bus.ids}) == 12
    at = [detail["at"] for detail in world.bus.details]
    assert at == sorted(at)
    assert None not in published(world)


def test_no_call_begins_with_too_little_time(world):
    """What was not asked for is left, as if the bus had refused it."""
    world.connect()

    run = world.publish(budget_ms=7_999)

    assert (run.done, len(run.left)) == (0, 1)
    assert world.bus.taken == []


def test_a_record_of_an_item_that_is_gone_is_nothing(world):
    """A stream tells of the past."""
    run = world.publish(Key("O#acme-app#ann", "E#0000000000001#connection.ready#x"))

    assert (run.done, run.left, run.unfit) == (0, (), 0)


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [killed_before, killed_after])
def test_a_crash_around_the_mark_costs_a_repetition_and_no_second_id(world, crash):
    """Killed before row 50: sent again, with the same id. Killed after it: not again."""
    world.connect()
    world.table.faults = [crash]

    with pytest.raises(WorkerKilledError):
        world.publish()
    world.publish()

    assert len({*world.bus.ids}) == 1
    assert len(world.bus.taken) == (2 if crash is killed_before else 1)
    assert None not in published(world)


@pytest.mark.parametrize("fault", [ambiguous, applied_then_ambiguous, busy])
def test_a_mark_that_was_not_answered_is_looked_at_again(world, fault):
    """It stays due or it does not; either way the event is on the bus, with one id."""
    world.connect()
    world.table.faults = [fault]

    run = world.publish()

    assert (run.done, run.left, run.unfit, world.faults) == (1, (), 0, [])
    world.publish()
    assert len({*world.bus.ids}) == 1
    assert None not in published(world)


def test_two_at_once_publish_it_twice_and_mark_it_once(world, monkeypatch):
    """The stream and reconciliation: the second finds it marked, and that is no fault."""
    world.connect()
    found = world.publishing.store.unpublished(world.outbox())
    world.publish()
    first = published(world)
    monkeypatch.setattr(world.publishing.store, "unpublished", lambda keys: found)
    world.clock.move(minutes=1)

    run = world.publish()

    assert (run.done, run.unfit, world.faults) == (1, 0, [])
    assert len(world.bus.taken) == 2
    assert len({*world.bus.ids}) == 1
    assert published(world) == first


def test_a_mark_that_the_table_does_not_take_is_a_fault(world):
    """A role or a statement that is wrong is told: unseen, everything would be sent again for ever."""
    world.connect()
    world.table.faults = [lambda apply: [BatchFaultError("refused")]]

    run = world.publish()

    assert (run.done, run.unfit, [kind for kind, _ in world.faults]) == (1, 1, ["publish"])


# --- what the stream left ---------------------------------------------------------------------------------------------


def test_reconciliation_publishes_what_the_stream_left(world):
    """Once the stream had its minute."""
    world.connect()
    world.clock.move(ms=PUBLISH_MS - 1)
    assert "publish" not in world.reconcile().done
    assert world.bus.taken == []

    world.clock.move(ms=1)
    run = world.reconcile()

    assert run.done["publish"] == 1
    assert None not in published(world)


def test_a_bus_that_takes_nothing_is_asked_once_a_run(world):
    """What it left is counted: an alarm watches that. Then it works again, and nothing is lost."""
    for number in range(12):
        world.connect(of_owner(number))
    world.bus.takes = lambda number: False
    world.clock.move(minutes=2)

    run = world.reconcile()

    assert run.failed["publish"] > 0
    assert 0 < world.bus.asked <= 12
    world.bus.takes = lambda number: True
    assert world.reconcile().done["publish"] == 12
    assert len({*world.bus.ids}) == 12


@pytest.mark.rule("I-16")
def test_an_event_that_cannot_be_read_keeps_no_other_back(stand_in):
    """It is told, and stays due; it is never dropped."""
    world = World(stand_in)
    world.connect()
    world.connect(OTHER, "bob")
    world.stand_in.alter(world.outbox()[0], put={"kind": "connection.of_tomorrow"})

    run = world.publish()

    assert (run.done, run.unfit) == (1, 1)
    assert [kind for kind, _ in world.faults] == ["publish"]
    assert published(world).count(None) == 1


@pytest.mark.rule("C-42")
def test_a_table_that_does_not_answer_ends_only_the_publishing(world, monkeypatch):
    """Reconciliation goes on and says so."""

    def refuse(*_):
        raise StoreError

    world.connect()
    world.clock.move(minutes=2)
    monkeypatch.setattr(world.publishing.store, "unpublished", refuse)

    run = reconcile(Budget(54_000), world.reconciling)

    assert run.failed["publish"] == 1
    assert [(kind, type(fault)) for kind, fault in world.faults] == [("publish", StoreError)]


# --- one event for one transition -------------------------------------------------------------------------------------


@pytest.mark.rule("RB-59")
def test_every_transition_of_a_life_is_told_once_whatever_caused_it(world):
    """Connect, disconnect by the app, reconnect, loss by the provider, reconnect: each once, with its generation."""
    world.connect()
    world.disconnect()
    world.minutes_pass(2)
    world.connect(again=True)
    world.clock.move(minutes=61)
    world.server.next("/token", answers(400, {"error": "invalid_grant"}))
    with pytest.raises(NeedsReconnectError):
        world.token()
    world.minutes_pass(2)
    world.connect(again=True)
    world.clock.move(minutes=2)
    world.reconcile()

    told = [(event.kind.value, event.body["generation"]) for event in told_by(world)]

    assert sorted(told) == sorted(
        [
            *(("connection.ready", 1), ("connection.revoking", 1), ("purge.completed", 1)),
            *(("revocation.confirmed", 1), ("connection.revoked", 1)),
            *(("connection.ready", 3), ("connection.needs_reconnect", 3), ("revocation.confirmed", 3)),
            *(("connection.closed", 3), ("connection.ready", 5)),
        ]
    )
    assert len(world.bus.ids) == len({*world.bus.ids}) == len(told)


@pytest.mark.rule("I-17")
def test_no_event_holds_a_secret_or_an_account(world):
    """Neither a token nor a code nor whose account it is."""
    callback = world.callback()
    world.come_back(callback)
    world.disconnect()
    world.minutes_pass(3)

    text = str(world.bus.details)
    assert callback.state is not None
    assert callback.code is not None
    secrets = {callback.state.reveal(), callback.code.reveal(), *world.server.ledger, "alice"}
    assert len(world.bus.details) >= 4
    assert [secret for secret in secrets if secret in text] == []
