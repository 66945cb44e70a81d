"""
Answers that are seen in part or bring what was there, and items that an index shows too late: nothing is confirmed that
is not so.
"""

import pytest

from quitclaim.domain.errors import StateConflictError
from quitclaim.domain.limits import GUARD_MS, REFRESH_LEASE_MS
from quitclaim.domain.revocations import Reach
from quitclaim.flows.reconcile import move_on
from quitclaim.store.items import key_of
from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.recovery import to_rest
from tests.proof.scripts import (
    HOUR_MS,
    REF,
    begin,
    connected,
    handler_callback,
    handler_disconnect,
    handler_start,
    handler_token,
)
from tests.proof.test_field_cases import alive, let_on, refused, stopped_before
from tests.proof.world import World

REACHES = [Reach.TOKEN, Reach.FAMILY]


def states(world: World) -> set[str]:
    """Of the revocations."""
    return {item["state"] for item in world.table.items() if item["ty"] == "revocation"}


@pytest.mark.rule("I-13", "D-3")
@pytest.mark.parametrize("reach", REACHES)
def test_a_refresh_answer_seen_in_part_is_never_taken_for_the_whole(reach):
    """What was salvaged is revoked; what may not have been seen keeps the stop from saying "confirmed"."""
    world = World(Kind(Refreshing.ROTATING, reach))
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.MALFORMED]
    refused(world, handler_token())

    assert faults_of_state(world) == []
    world.run(handler_disconnect())
    world.now += REFRESH_LEASE_MS + GUARD_MS

    assert to_rest(world) + faults_at_rest(world) == []
    assert alive(world) == []
    assert "unconfirmed" in states(world)


@pytest.mark.rule("I-13", "I-1")
@pytest.mark.parametrize(("reach", "outcome"), [(Reach.TOKEN, "unconfirmed"), (Reach.FAMILY, "confirmed")])
def test_an_exchange_answer_seen_in_part_is_confirmed_only_where_the_call_reaches_all_of_it(reach, outcome):
    """At reach token an access token may live on that nobody saw: a notice. At reach family the call ended it too."""
    world = World(Kind(Refreshing.ROTATING, reach))
    brought = begin(world)
    world.faults["exchange"] = [Fault.MALFORMED]

    refused(world, handler_callback(brought))

    assert to_rest(world) + faults_at_rest(world) == []
    assert alive(world) == []
    assert states(world) == {outcome}


@pytest.mark.rule("D-3", "F-43")
def test_a_provider_that_gives_the_same_token_again_leaves_no_notice():
    """
    The refresh of a static grant is answered after the stop: its token is the one that is queued, and it is confirmed.
    """
    world = World(Kind(Refreshing.STATIC))
    connected(world)
    world.now += HOUR_MS
    refresh = stopped_before(world, "answer to refresh", handler_token())

    world.run(handler_disconnect())
    let_on(refresh)

    assert isinstance(refresh.error, StateConflictError)
    assert to_rest(world) + faults_at_rest(world) == []
    assert states(world) == {"confirmed"}


@pytest.mark.rule("C-26", "I-15")
def test_an_index_that_lags_does_not_revive_a_closed_connection():
    """The connection is found due although it was closed a moment ago: `revoked` is terminal for its generation."""
    world = World()
    connected(world)
    world.run(handler_disconnect())
    assert to_rest(world) == []

    def late(ports):
        closed = ports.reads.connection(REF)
        move_on(closed, ports.reconciling)
        return ports.reads.connection(REF)

    after = world.run(late)

    assert after.state == "revoked"


def test_a_connection_keeps_its_client():
    """
    Another client's start on a known id is refused: its account could not be compared, and its barrier is another.
    """
    world = World()
    connected(world)
    world.run(handler_disconnect())
    to_rest(world)
    item = next(dict(item) for item in world.table.items() if item["ty"] == "connection")
    world.table.alter(key_of(item), put={"client": "another"})

    assert isinstance(refused(world, handler_start()), StateConflictError)
