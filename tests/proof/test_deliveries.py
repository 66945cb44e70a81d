"""T-6 for events: one to five copies of a message, in any order, among three workers, of which some die."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from tests.proof.deliveries import EVENT
from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.recovery import to_rest
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import SITUATIONS, Situation
from tests.proof.search import Bench
from tests.proof.stepping import Process
from tests.proof.world import CLIENT, World

COPIES = 5
WORKERS = 3
RUNS = 2_000 if NIGHTLY else 100
OF_EVENTS = [each for each in SITUATIONS if each.name.startswith(("an event [", "an event for two", "a departure ["))]


def effects(world: World) -> dict[str, int]:
    """What handling an event may do: shares, what the app is told of it, and stops by the provider's word."""
    items = list(world.table.items())
    return {
        "shares": sum(_is_share(item) for item in items),
        "told": sum(item["ty"] == "event" and item["kind"] == "webhook.received" for item in items),
        "stops": sum(item["ty"] == "intent" and item["reason"] == "grant_rejected" for item in items),
    }


def _is_share(item: Mapping[str, Any]) -> bool:
    """Of a departure it is not counted: whoever dies right behind the stop leaves nothing to have a share."""
    is_of_it = item["PK"] == f"W#{CLIENT}#{EVENT}" and item["SK"] != "W"
    return bool(is_of_it and item["reason"] == "received")


def played(bench: Bench, copies: int, chance: random.Random) -> None:
    """The copies are taken by three workers, whose calls follow each other by chance; one in ten of them dies."""
    left = bench.processes(["deliver"] * copies)
    working: list[Process] = []
    while left or working:
        while left and len(working) < WORKERS:
            process = left.pop()
            process.begin()
            working.append(process)
        process = chance.choice(working)
        if process.pending is not None and chance.random() < 0.01:
            process.crash()
            working.remove(process)
            continue
        if process.is_done:
            working.remove(process)
        else:
            process.advance()


@pytest.mark.rule("M-67", "M-69")
@pytest.mark.parametrize("situation", OF_EVENTS, ids=lambda situation: situation.name)
def test_five_copies_among_three_workers_have_one_effect(situation: Situation) -> None:
    """Whatever the order and whoever dies: as many shares, notices and stops as of one copy, and never one more."""
    bench = Bench.of(situation)
    for process in bench.processes(["deliver"]):
        process.run()
    expected = effects(bench.world)
    violations: list[str] = []
    for number in range(RUNS):
        for copies in range(1, COPIES + 1):
            chance = random.Random(f"{SEED} {situation.name} {number} {copies}")
            played(bench, copies, chance)
            violations += faults_of_state(bench.world) + to_rest(bench.world) + faults_at_rest(bench.world)
            if effects(bench.world) != expected:
                violations.append(f"P-9: {effects(bench.world)} of {copies} copies in run {number}, not {expected}")

    note("T-6 copies of an event", RUNS * COPIES, len(violations))
    assert violations == []
