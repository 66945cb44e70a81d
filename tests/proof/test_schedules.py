"""
T-6: schedules are what nobody can rely on. Each scheduled handler runs twice at once, three times in a row, an hour
late, and not at all for six hours or for twenty-five; and what it finds is as far behind as an index may be.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Final

import pytest

from quitclaim.domain.limits import GUARD_MS
from tests.proof.judge import doubled, faults_of_state
from tests.proof.report import NIGHTLY, note
from tests.proof.scripts import HOUR_MS, SITUATIONS, Handler, Situation
from tests.proof.search import Bench, thrown_away, unexpected
from tests.proof.stepping import explore
from tests.proof.upkeep import run_maintain, run_reconcile, run_sweep
from tests.proof.world import World

LIMIT_PER_PAIR: Final = 300 if NIGHTLY else 12
LAGS: Final = (0, 1, 4)
"""How many changes the index is behind what lies in the table."""


SCHEDULES: Final[Mapping[str, Handler]] = {"sweep": run_sweep, "reconcile": run_reconcile, "maintain": run_maintain}
"""A schedule is added here, and all of this file takes it up."""

PAIRS: Final = (
    ("sweep", "sweep"),
    ("reconcile", "reconcile"),
    ("maintain", "maintain"),
    ("sweep", "reconcile"),
    ("reconcile", "maintain"),
)
EVERY_MINUTE: Final = ("sweep", "reconcile")
"""What maintenance compacts a day after everything is over, the judge could no longer see."""


def next_due(world: World) -> int:
    """When the next thing is due; now, where nothing is."""
    dues = [int(item["d2"].split("#")[0]) for item in world.table.items() if "d2" in item]
    return max(world.now, min(dues, default=0) + GUARD_MS)


# --- at once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_two_runs_at_once_do_no_more_than_one(situation: Situation) -> None:
    """When the first thing is due, and a day later: each event once, each receipt once, nothing lost."""
    bench = Bench.of(situation)
    violations: list[str] = []
    cases = 0
    for late, names in product((0, 24 * HOUR_MS), PAIRS):
        if late and "maintain" in names:
            continue
        bench.world.restore(bench.saved)
        bench.world.now = next_due(bench.world) + late
        saved = bench.world.save()

        def restart(names: tuple[str, str] = names, saved: Any = saved) -> Any:
            bench.world.restore(saved)
            # The second one's clock is a little ahead: what both do would be told at two times.
            return [bench.world.process(f"p{at}", SCHEDULES[name], skew_ms=at) for at, name in enumerate(names)]

        def judge(processes: Any, schedule: list[int], names: tuple[str, str] = names, late: int = late) -> None:
            found = bench.judged(processes) + doubled(bench.world)
            violations.extend(f"{situation.name}, {names}, {late} ms late, {schedule}: {each}" for each in found)

        cases += explore(restart, judge, limit=LIMIT_PER_PAIR)[0]

    note("T-6 two runs at once", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


# --- in a row, late, missing -----------------------------------------------------------------------------------------


def three_in_a_row(world: World) -> list[str]:
    """The third at an instant finds nothing to do, and writes nothing (I-18)."""
    found = []
    for name, schedule in SCHEDULES.items():
        for _ in range(2):
            world.run(schedule)
        before = world.table.digest()
        world.run(schedule)
        if world.table.digest() != before:
            found.append(f"I-18: the third {name} in a row wrote something")
    return found


def an_hour_late(world: World) -> list[str]:
    """Whatever was due is an hour overdue."""
    return _after(world, HOUR_MS)


def missing_for_six_hours(world: World) -> list[str]:
    """The scheduler was out."""
    return _after(world, 6 * HOUR_MS)


def missing_for_a_day(world: World) -> list[str]:
    """Deadlines went by unseen."""
    return _after(world, 25 * HOUR_MS)


def behind_its_index(world: World) -> list[str]:
    """The index shows what was, and not yet what is (H-4)."""
    found = []
    for lag in LAGS:
        world.table.lag = lag
        for name, schedule in SCHEDULES.items():
            process = world.process(f"{name}-{lag}", schedule)
            process.run()
            found += unexpected([process]) + faults_of_state(world)
    world.table.lag = 0
    return found


def _after(world: World, ms: int) -> list[str]:
    world.now = next_due(world) + ms
    found = faults_of_state(world)
    for name in EVERY_MINUTE:
        world.run(SCHEDULES[name])
    return found + faults_of_state(world)


DISORDERS: Final[tuple[Callable[[World], list[str]], ...]] = (
    three_in_a_row,
    an_hour_late,
    missing_for_six_hours,
    missing_for_a_day,
    behind_its_index,
)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_schedules_in_disorder_lose_nothing(situation: Situation) -> None:
    """After each handler the schedules run in a row, late, or after a long silence; and who asks in it is answered."""
    bench = Bench.of(situation)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        for disorder in DISORDERS:
            cases += 1
            (process,) = bench.processes([name])
            process.run()
            found = unexpected([process]) + thrown_away(bench.world, process) + disorder(bench.world)
            ended = []
            if disorder is not missing_for_a_day:  # by then an idempotency key is forgotten
                ended.append(bench.world.process("again", bench.handlers[name]))
                ended[0].run()
            found += bench.judged(ended) + doubled(bench.world)
            violations += [f"{situation.name} / {name}, {disorder.__name__}: {each}" for each in found]

    note("T-6 schedules in disorder", cases, len(violations))
    assert not violations, "\n".join(violations[:12])
