"""What a sweep costs: counted calls, asserted. Times are for benches; counts do not depend on the machine."""

import math
from collections import Counter
from typing import Any

import pytest

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import BATCH, SHARDS
from quitclaim.domain.revocations import Reach
from quitclaim.flows.revocations import sweep
from tests.proof.ledger import Kind, Refreshing
from tests.proof.scripts import connected, handler_disconnect
from tests.proof.table import TableCall
from tests.proof.world import CLIENT, Ports, SweepDeadline, World

ALONE = Kind(Refreshing.STATIC, Reach.TOKEN)


def a_world(*, stopped: int, live: int = 0) -> World:
    """*stopped* revocations that are due, beside *live* connections that are not touched."""
    world = World(ALONE)
    for number in range(stopped + live):
        ref = ConnectionRef("t", f"o{number}", "c")
        connected(world, ref, f"account-{number}")
        if number < stopped:
            world.run(handler_disconnect(ref))
    return world


def calls_of_a_sweep(world: World) -> Counter[str]:
    """The table calls that one scheduled sweep makes."""
    counted: Counter[str] = Counter()

    def count(call: TableCall, *_: Any) -> None:
        counted[call.operation] += 1

    world.table.watch(before=count)
    world.run(lambda ports: sweep([CLIENT], SweepDeadline(), ports.revoking))
    world.table.watch()
    return counted


@pytest.mark.rule("G3", "G9", "F-47", "D-6")
@pytest.mark.parametrize("due", [1, 25, 100, 200])
def test_a_due_revocation_costs_a_share_of_four_calls(due):
    """G3, G9: a read, a claim and a settle are shared by 25; shards are asked once, or once more."""
    world = a_world(stopped=due)

    counted = calls_of_a_sweep(world)

    assert not world.ledger.alive()
    assert sum(counted.values()) <= SHARDS + 4 * math.ceil(due / BATCH) + SHARDS
    assert counted["batch_update"] == 2 * math.ceil(due / BATCH)
    assert counted["batch_get"] == math.ceil(due / BATCH)
    assert counted["write"] == counted["transact"] == 0


@pytest.mark.rule("G3")
def test_a_token_costs_at_most_sixteen_hundredths_of_a_call():
    """G3: query, read, claim and settle for 25 tokens each: 0.16 round trips a token, and two base writes."""
    world = a_world(stopped=200)
    writes_before = sum(item["v"] for item in world.table.items() if item["ty"] == "revocation")

    counted = calls_of_a_sweep(world)

    assert (sum(counted.values()) - SHARDS) / 200 <= 0.16 + SHARDS / 200
    writes = sum(item["v"] for item in world.table.items() if item["ty"] == "revocation") - writes_before
    assert writes == 2 * 200


@pytest.mark.rule("G8")
def test_nothing_due_costs_the_same_whatever_is_stored():
    """G8: one index query a shard, with 0 connections stored or with hundreds."""
    few, many = calls_of_a_sweep(a_world(stopped=0)), calls_of_a_sweep(a_world(stopped=0, live=300))

    assert few == many == Counter({"index": SHARDS})


def test_a_client_has_a_cap_of_calls_in_flight():
    """A hundred tokens of one client leave room for another's (`test_fairness.py` has the other)."""
    world = a_world(stopped=120)
    most: Counter[str] = Counter()

    def watched(ports: Ports) -> Any:
        revoking = ports.revoking
        start = revoking.calls.start

        def noted(claim: Any, call: Any) -> None:
            start(claim, call)
            most["in flight"] = max(most["in flight"], revoking.calls.in_flight)

        revoking.calls.start = noted  # type: ignore[method-assign]
        return sweep([CLIENT], SweepDeadline(), revoking)

    world.run(watched)

    assert most["in flight"] <= 50
    assert not world.ledger.alive()
