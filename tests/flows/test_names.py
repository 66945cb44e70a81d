"""
Events that name no account but a workspace or the like: whoever the provider said is of it has a share, and nobody
else.
"""

from collections.abc import Callable
from typing import Any

import pytest

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.errors import NeedsReconnectError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import PARKED_MS, REMEMBERED_MS
from quitclaim.domain.webhooks import DeliveryState
from quitclaim.flows.deliveries import Outcome
from tests.fakes.tables import applied_then_ambiguous, busy
from tests.flows.test_maintain import Upkeep
from tests.flows.world import GOOGLE, OTHER, World

BOB = ConnectionRef("acme-app", "bob", "google")
EVE = ConnectionRef("other-app", "eve", "google")
MINUTE = 60_000


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Acme says of which team its users are, and its events name the team."""
    found = new_world(
        identity__kind="user",
        identity__also={"team": {"field": "team"}},
        webhook={
            "signature": {"scheme": "hmac", "headers": ["x-acme-signature"]},
            "event": {"accounts": {"user": ["user"], "team": ["team"]}},
        },
    )
    found.server.me = {"team": "T1"}
    return found


def of_team(world: World, name: str = "event-1", team: str = "T1", **event: object) -> str:
    """An event that names the team."""
    return world.accept(team, name, named_by="team", **event)


@pytest.mark.rule("U-15")
def test_everybody_of_the_workspace_has_a_share(world: World) -> None:
    """Over accounts, owners and tenants, each on record; of another workspace nobody."""
    world.connect()
    world.connect(BOB, account="bob")
    world.server.me = {"team": "T2"}
    world.connect(EVE, account="eve")
    of_team(world)

    done = world.deliver()

    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"received": 2})
    assert world.reads.delivery("acme", "event-1", BOB) is not None
    assert world.reads.delivery("acme", "event-1", EVE) is None
    assert world.deliver().outcome is Outcome.DUPLICATE


def test_a_name_is_of_the_grant_and_not_of_the_connection(world: World) -> None:
    """The same user, connected once more in another workspace, has no share of what happens in the first."""
    world.connect()
    world.server.me = {"team": "T2"}
    world.connect(OTHER)
    world.disconnect()
    world.minutes_pass(2)
    world.connect(again=True)  # in the second workspace now
    of_team(world)
    of_team(world, "event-2", "T2")

    assert world.deliver().outcome is Outcome.DROPPED  # who was of it has left
    assert world.deliver("event-2").shares == {"received": 2}


def test_an_account_is_no_workspace_of_the_same_name(world: World) -> None:
    """A user that is called like a team has none of the team's events, nor the team his."""
    world.server.me = {"team": "alice"}
    world.connect()
    world.server.me = {"team": "T1"}
    world.connect(BOB, account="T1")
    world.accept("T1", "event-1")
    of_team(world, "event-2")

    world.deliver()
    world.deliver("event-2")

    assert world.reads.delivery("acme", "event-1", GOOGLE) is None
    assert world.delivery("event-1", BOB).state is DeliveryState.PROCESSED
    assert world.delivery("event-2", BOB).state is DeliveryState.PROCESSED
    assert world.reads.delivery("acme", "event-2", GOOGLE) is None


def test_what_comes_before_anybody_of_the_workspace_waits_on_the_ladder(world: World) -> None:
    """It is looked at again, and delivered once somebody is ready."""
    of_team(world)

    first = world.deliver()
    world.connect()
    world.clock.move(ms=MINUTE)

    assert (first.outcome, first.until) == (Outcome.WAITS, world.clock.now())
    assert world.deliver().shares == {"received": 1}


def test_what_nobody_of_the_workspace_comes_for_is_dropped_after_a_day(world: World) -> None:
    """Nobody was ever of it: operators are not bothered. Whoever lost a grant may miss it, and it is kept."""
    of_team(world)
    world.connect()
    world.server.removes("alice")
    world.clock.move(minutes=60)
    with pytest.raises(NeedsReconnectError):
        world.token()
    of_team(world, "event-2", "T9")
    of_team(world, "event-3")

    assert [world.deliver(name).outcome for name in ("event-2", "event-3")] == [Outcome.WAITS, Outcome.WAITS]
    world.clock.move(ms=PARKED_MS)
    assert [world.deliver(name).outcome for name in ("event-2", "event-3")] == [Outcome.DROPPED, Outcome.KEPT]


@pytest.mark.rule("RB-71")
def test_a_signed_departure_of_a_workspace_stops_each_of_its_grants(world: World) -> None:
    """At the generation that is live, and none of another workspace."""
    world.connect()
    world.connect(BOB, account="bob")
    world.server.me = {"team": "T2"}
    world.connect(EVE, account="eve")
    world.clock.move(minutes=60)
    of_team(world, deauthorizes=True, occurred_at=world.clock.now())

    assert world.deliver().shares == {"stopped": 2}
    states = [world.connection(ref).state for ref in (GOOGLE, BOB, EVE)]
    assert states == [ConnectionState.NEEDS_RECONNECT, ConnectionState.NEEDS_RECONNECT, ConnectionState.READY]


@pytest.mark.parametrize("fault", [busy, applied_then_ambiguous])
def test_a_grant_is_never_live_without_its_names(world: World, fault: Callable[..., Any]) -> None:
    """Whatever became of the first try of each write."""
    callback = world.callback()
    world.table.faults = [None if number % 2 else fault for number in range(20)]

    world.come_back(callback)

    world.table.faults = []
    of_team(world)
    assert world.deliver().shares == {"received": 1}


def test_names_of_grants_that_are_gone_are_forgotten(world: World) -> None:
    """By the inspection, once nobody waits any more for what they would tell; that of a live grant stays."""
    world.connect()
    world.connect(BOB, account="bob")
    world.disconnect()
    upkeep = Upkeep(world)

    upkeep.run()
    assert len(world.items("name")) == 2
    world.clock.move(ms=REMEMBERED_MS)
    upkeep.run()

    (left,) = world.items("name")
    assert left["SK"] == "N#acme-app#bob#google#1"
    assert upkeep.faults == []
