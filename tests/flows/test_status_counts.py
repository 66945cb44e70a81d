"""What looking costs: counted calls, asserted. They do not grow with what there is to be seen."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.limits import SHARDS
from quitclaim.domain.revocations import Reach
from quitclaim.flows.status import all_views, status
from quitclaim.store.keys import ATTENTION_KINDS, KEPT
from tests.proof.ledger import Kind, Refreshing
from tests.proof.scripts import connected, handler_disconnect
from tests.proof.table import TableCall
from tests.proof.world import CLIENT, Ports, World

OWNER = OwnerRef("t", "o")


def a_world(connections: int, *, revocable: bool = True) -> World:
    """An owner of so many connections, every other of them stopped."""
    world = World(Kind(Refreshing.STATIC, Reach.TOKEN, revocable=revocable))
    refs = [ConnectionRef("t", "o", f"c{number}") for number in range(connections)]
    for ref in refs:
        connected(world, ref, f"account-{ref.connection}")
    for ref in refs[::2]:
        world.run(handler_disconnect(ref))
    return world


def calls_of(world: World, look: Callable[[Ports], Any]) -> tuple[Any, Counter[str]]:
    """What is seen, and the table calls that looking makes."""
    counted: Counter[str] = Counter()
    seen: list[Any] = []

    def count(call: TableCall, *_: Any) -> None:
        counted[call.operation] += 1

    world.table.watch(before=count)
    world.run(lambda ports: seen.append(look(ports)))
    world.table.watch()
    return seen[0], counted


@pytest.mark.parametrize("connections", [1, 10, 100])
def test_a_status_costs_the_same_for_any_number_of_connections(connections: int) -> None:
    """One query a kind of item, the owner, and the revocations by the hundred."""
    world = a_world(connections)

    told, counted = calls_of(
        world, lambda ports: status(OWNER, reads=ports.reads, clients=ports.clients, clock=ports.clock)
    )

    stopped = -(-connections // 2)
    assert (len(told.connections), len(told.notices)) == (connections, stopped)
    assert {each.connection for each in told.blockers[CLIENT]} >= {each.connection_id for each in told.notices}
    assert counted == Counter({"query": 4, "get": 1, "batch_get": 1})


@pytest.mark.parametrize("connections", [1, 10, 100])
def test_a_list_costs_the_same_for_any_number_of_connections(connections: int) -> None:
    """The owner, the connections, and their exchanges where one may wait for its owner."""
    world = a_world(connections)

    told, counted = calls_of(world, lambda ports: all_views(OWNER, reads=ports.reads, clock=ports.clock))

    assert len(told) == connections
    assert counted == Counter({"get": 1, "query": 2 if connections > 1 else 1})


@pytest.mark.rule("G8")
@pytest.mark.parametrize("connections", [1, 60])
def test_gauges_cost_the_same_whatever_waits(connections: int) -> None:
    """One query of the index a kind and shard, and no item is read: with one notice or with many."""
    world = a_world(connections, revocable=False)

    told, counted = calls_of(world, lambda ports: ports.revocations.gauges())

    assert told["RemovalNotices"] == -(-connections // 2)
    assert counted == Counter({"index": SHARDS * len([*ATTENTION_KINDS, KEPT])})
