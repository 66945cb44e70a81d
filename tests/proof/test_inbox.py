"""T-6 for webhooks: a request that comes up to five times, while workers handle what it brings and some die."""

import random

import pytest

from tests.proof.inbox import digest_of
from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.recovery import to_rest
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import SITUATIONS
from tests.proof.search import Bench
from tests.proof.stepping import Process
from tests.proof.world import CLIENT, World

COPIES = 5
WORKERS = 3
RUNS = 2_000 if NIGHTLY else 150
DEATHS = 0.02
(COMING,) = [each for each in SITUATIONS if each.name.startswith("a webhook [")]


def played(bench: Bench, copies: int, chance: random.Random) -> bool:
    """
    Copies and workers in an order that chance makes, three at a time; one call in fifty is a worker's last. Whether one
    copy was answered.
    """
    names = ["webhook"] * copies + ["deliver"] * 2
    chance.shuffle(names)
    left = list(zip(names, bench.processes(names), strict=True))
    working: list[tuple[str, Process]] = []
    is_answered = False
    while left or working:
        while left and len(working) < WORKERS:
            name, process = left.pop()
            process.begin()
            working.append((name, process))
        one = chance.choice(working)
        name, process = one
        if process.is_done:
            is_answered |= name == "webhook"
            working.remove(one)
        elif chance.random() < DEATHS:
            process.crash()
            working.remove(one)
        else:
            process.advance()
    return is_answered


def records(world: World) -> tuple[int, int, int]:
    """Inbox records, shares, and how often the app is told of the event."""
    items = list(world.table.items())
    of_it = [item for item in items if item["PK"] == f"W#{CLIENT}#{digest_of('one')}"]
    told = sum(item["ty"] == "event" and item["kind"] == "webhook.received" for item in items)
    return sum(item["SK"] == "W" for item in of_it), sum(item["SK"] != "W" for item in of_it), told


@pytest.mark.rule("RB-63", "RB-64", "M-67", "M-69", "I-12", "D-27")
def test_five_copies_among_three_workers_are_one_event() -> None:
    """
    One inbox record, one share and one notice, whoever died when; what was answered 2xx is never lost, and what never
    was is not there or is handled like any other.
    """
    bench = Bench.of(COMING)
    violations: list[str] = []
    for number in range(RUNS):
        for copies in range(1, COPIES + 1):
            chance = random.Random(f"{SEED} {number} {copies}")
            bench.world.restore(bench.saved)
            is_answered = played(bench, copies, chance)
            violations += faults_of_state(bench.world) + to_rest(bench.world) + faults_at_rest(bench.world)
            found = records(bench.world)
            if found not in ([(1, 1, 1)] if is_answered else [(1, 1, 1), (0, 0, 0)]):
                violations.append(f"P-9: records, shares, notices are {found} of {copies} copies in run {number}")

    note("T-6 copies of a webhook", RUNS * COPIES, len(violations))
    assert violations == []
