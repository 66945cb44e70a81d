"""
T-5: clocks. Every deadline a millisecond before, at and after its time; hosts whose clocks differ, and one that jumps
back; workers that freeze at any call and wake much later.

Who uses a right may do so before its end, who takes it over waits a guard longer. Not in here:
a worker frozen between the check right before a send and the send itself (docs/threat-model.md).
"""

import random
from typing import Final

import pytest

from tests.proof.deadlines import DEADLINES, Deadline
from tests.proof.judge import doubled, faults_of_state
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import HOUR_MS, SITUATIONS, Handler, Situation, handler_reconcile, handler_sweep
from tests.proof.search import Bench, thrown_away, unexpected
from tests.proof.stepping import Process, enabled
from tests.proof.world import PatientDeadline, World

SECOND_MS: Final = 1_000
SKEWS_MS: Final = tuple(sign * each * SECOND_MS for each in (1, 30, 300) for sign in (1, -1))
JUMP_MS: Final = -HOUR_MS
ORDERS_PER_SKEW: Final = 20 if NIGHTLY else 3
DEAD_ON_ARRIVAL: Final = "A-3"
"""
What clocks that differ can bring about: a grant whose exchange began, by its own clock, after a wide revocation was
over, and by the provider's before it. It is refused at its first refresh; nothing is lost.
"""
FREEZES_MS: Final = (10 * SECOND_MS, 600 * SECOND_MS, 24 * HOUR_MS)


@pytest.mark.parametrize("late", [-1, 0, 1])
@pytest.mark.parametrize("ends", DEADLINES, ids=lambda each: each.name)
def test_every_deadline_to_the_millisecond(ends: Deadline, late: int) -> None:
    """Just before it, at it, and just after."""
    world = World(ends.kind, ends.confirmation)
    world.deadline_of = PatientDeadline
    at, probe = ends.build(world)
    world.now = at + late

    seen = probe(world)

    wanted = {-1: ends.before, 0: ends.at, 1: ends.after}[late]
    faults = faults_of_state(world)
    note("T-5 deadlines", 1, int(seen != wanted or bool(faults)))
    assert seen == wanted
    assert not faults


def test_there_are_enough_deadlines() -> None:
    """Each is registered once."""
    names = [ends.name for ends in DEADLINES]
    assert len(names) == len(set(names))
    assert len(names) >= 20


# --- clocks that differ ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_hosts_whose_clocks_differ_lose_nothing(situation: Situation) -> None:
    """Two requests or runs on hosts a second, half a minute or five minutes apart; or one jumps back on its way."""
    bench = Bench.of(situation)
    bench.world.skew_ms = HOUR_MS
    violations: list[str] = []
    cases = 0
    for skew in (*SKEWS_MS, JUMP_MS):
        for number in range(ORDERS_PER_SKEW):
            cases += 1
            chance = random.Random(f"{SEED}/{situation.name}/{skew}/{number}")
            names = chance.choices(list(bench.handlers), k=2)
            bench.world.restore(bench.saved)
            processes = [
                bench.world.process(f"p{at}", bench.handlers[name], skew_ms=0 if at or skew == JUMP_MS else skew)
                for at, name in enumerate(names)
            ]
            order, found = _stepped(bench.world, processes, chance, jumps=skew == JUMP_MS)
            found += unexpected(processes) + bench.judged([]) + doubled(bench.world)
            found = [each for each in found if not each.startswith(DEAD_ON_ARRIVAL)]
            violations += [f"{situation.name}, {names}, {skew} ms, {order}: {each}" for each in found]

    note("T-5 clocks that differ", cases, len(violations))
    assert not violations, f"seed {SEED!r}\n" + "\n".join(violations[:12])


def _stepped(
    world: World, processes: list[Process], chance: random.Random, *, jumps: bool
) -> tuple[list[int], list[str]]:
    """
    The processes to their ends in a random order of their calls, while the first one's clock may jump back: that order,
    and what was thrown away.
    """
    order: list[int] = []
    found: list[str] = []
    for process in processes:
        process.begin()
    while left := list(enabled(processes)):
        order.append(chance.choice(left))
        if jumps and processes[0].skew_ms == 0 and chance.random() < 0.2:
            processes[0].skew_ms = JUMP_MS
        processes[order[-1]].advance()
        found += thrown_away(world, processes[order[-1]])
    return order, found


# --- workers that freeze ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_a_worker_that_freezes_at_any_call_and_wakes_later_loses_nothing(situation: Situation) -> None:
    """For ten seconds, ten minutes or a day, in which another request comes and the schedules run."""
    bench = Bench.of(situation)
    names = list(bench.handlers)
    violations: list[str] = []
    cases = 0
    for at, name in enumerate(names):
        for call in range(_length(bench, name)):
            for turn, ms in enumerate(FREEZES_MS):
                if not NIGHTLY and (call + turn) % len(FREEZES_MS):
                    continue  # in CI each call meets one of them, and each of them every third call
                (process,) = bench.processes([name])
                process.begin()
                for _ in range(call):
                    process.advance()
                if process.pending is None or process.pending.is_send:
                    continue
                cases += 1
                frozen_at = process.pending.what
                found = _meanwhile(bench.world, bench.handlers[names[(at + 1 + turn) % len(names)]], ms)
                process.run()
                found += bench.judged([process]) + doubled(bench.world)
                violations += [f"{situation.name} / {name}, {ms} ms before {frozen_at}: {each}" for each in found]

    note("T-5 workers that freeze", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


def _length(bench: Bench, name: str) -> int:
    (process,) = bench.processes([name])
    process.run()
    return process.calls


def _meanwhile(world: World, other: Handler, ms: int) -> list[str]:
    """What happens while it is frozen."""
    for number, handler in enumerate((other, handler_sweep, handler_reconcile)):
        process = world.process(f"meanwhile-{number}", handler)
        process.run()
        if found := unexpected([process]) + thrown_away(world, process) + faults_of_state(world):
            return found
        world.now += ms // 3
    for number, handler in enumerate((handler_sweep, handler_reconcile)):
        world.process(f"later-{number}", handler).run()
    return faults_of_state(world)
