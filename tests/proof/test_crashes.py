"""T-1: every crash point of every handler in every situation; sampled double crashes."""

import random

import pytest

from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.recovery import to_rest
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import SITUATIONS, Situation, handler_reconcile, handler_sweep
from tests.proof.search import Bench, crash_points, crashed_at, points
from tests.proof.world import GUARD_STEP_MS

DOUBLE_PER_SITUATION = 100 if NIGHTLY else 60
BEHIND_PER_SITUATION = None if NIGHTLY else 10
RUNS_BEHIND = (0, 1)
"""What the index does not show: what this run changed, and what the run before it changed."""


@pytest.mark.rule("I-1", "I-2", "I-4", "I-7", "I-15", "F-31", "F-64", "D-1", "D-18", "D-24", "D-25", "D-37")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_crash_loses_or_leaks_a_grant(situation: Situation) -> None:
    """
    Whatever call a worker dies before or after, the grant is live, queued, revoked or in a notice, and all comes to
    rest.
    """
    bench = Bench.of(situation)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        found = crash_points(bench, name)
        cases += found.cases
        violations += found.violations

    note("T-1 crash points", cases, len(violations))
    assert not violations, "\n".join(violations)


@pytest.mark.rule("I-1", "I-15")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_an_index_that_is_behind_delays_recovery_and_no_more(situation: Situation) -> None:
    """The schedules find what a dead worker left by an index that shows what was, and not yet what is (H-4)."""
    bench = Bench.of(situation)
    chance = random.Random(f"{SEED}/{situation.name}/behind")
    cases = [
        (name, *point, behind) for name in bench.handlers for point in points(bench, name) for behind in RUNS_BEHIND
    ]
    if BEHIND_PER_SITUATION is not None:
        cases = chance.sample(cases, min(BEHIND_PER_SITUATION, len(cases)))
    violations: list[str] = []
    for name, call, after, behind in cases:
        crashed_at(bench, name, call, after=after)
        faults = to_rest(bench.world, behind=behind) + faults_at_rest(bench.world)
        if faults:
            violations.append(f"{name} --crash {call} after={after}, {behind} runs behind: {sorted(set(faults))}")

    note("T-1 crash points, index behind", len(cases), len(violations))
    assert not violations, "\n".join(violations[:10])


@pytest.mark.rule("I-1", "I-15", "F-30")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_second_crash_during_recovery_does_either(situation: Situation) -> None:
    """A worker dies, and then so does the sweep or the reconciler that cleans up after it."""
    bench = Bench.of(situation)
    chance = random.Random(f"{SEED}/{situation.name}")
    cleaners = {"sweep": handler_sweep, "reconcile": handler_reconcile}
    violations: list[str] = []
    for _ in range(DOUBLE_PER_SITUATION):
        name = chance.choice(list(bench.handlers))
        call, after = chance.choice(points(bench, name) or [(0, False)])
        crashed_at(bench, name, call, after=after)
        bench.world.now += chance.choice(GUARD_STEP_MS)
        cleaner = chance.choice(list(cleaners))
        process = bench.world.process("cleaner", cleaners[cleaner])
        process.begin()
        for _ in range(chance.randrange(12)):
            if process.is_done:
                break
            process.advance()
        process.dies_after_call = chance.random() < 0.5 and not process.is_done
        if process.dies_after_call:
            process.advance()
        process.crash()
        faults = faults_of_state(bench.world) or to_rest(bench.world) + faults_at_rest(bench.world)
        if faults:
            violations.append(
                f"{name} --crash {call} after={after}, then {cleaner} at {process.calls}: {sorted(set(faults))}"
            )

    note("T-1 double crashes", DOUBLE_PER_SITUATION, len(violations))
    assert not violations, "\n".join(violations[:10])
