"""
T-7: the table fails. One call of a handler, every call in turn, with every answer that DynamoDB has for a failure;
three calls in ten, at random; all of them, for ten minutes.

DynamoDB's failures are three to a flow: *busy* (throttled, request limit, conflict: nothing was judged), *no answer*
(internal error, time-out, cut connection: it may have been applied, and here it was or was not) and a read that fails;
`tests/store/test_table.py` holds the store to that table. So a write is met by each of the three, a batch of updates
also by two that concern half of it, and a read by the one.
"""

import random
from collections.abc import Callable
from typing import Final

import pytest

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.limits import MINUTE
from tests.proof.judge import doubled
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import SITUATIONS, Situation
from tests.proof.search import Bench, thrown_away, unexpected
from tests.proof.stepping import Process
from tests.proof.table import TableCall, TableFault
from tests.proof.world import GUARD_STEP_MS, PatientDeadline

WRITE: Final = (TableFault.CONFLICT, TableFault.LOST, TableFault.APPLIED)
BATCH: Final = (*WRITE, TableFault.PARTLY_APPLIED, TableFault.PARTLY_BUSY)
READ: Final = (TableFault.LOST,)
OUTAGE_MS: Final = 10 * MINUTE
RANDOM_PER_SITUATION: Final = 70 if NIGHTLY else 12
SHARE: Final = 0.3
SCHEDULED: Final = frozenset({"new life"})
"""Handlers with a schedule's run inside: what a run could not claim, the next one takes up, and not the same one."""

type Faults = Callable[[TableCall], TableFault | None]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_one_call_that_fails_changes_nothing(situation: Situation) -> None:
    """
    Every call of every handler fails once. A write that fails once is repeated and seen by nobody; after a read that
    failed the caller repeats the request; and each transition happened once, with one event and one receipt.
    """
    bench = _bench(situation)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        calls, healthy = _recorded(bench, name)
        for call in calls:
            for fault in _faults_of(call):
                cases += 1
                process = _run(bench, name, _once(call.number, fault))
                found = _judged(bench, name, process)
                if call.is_write and name not in SCHEDULED and _code(process) != _code(healthy):
                    found.append(f"a write that failed once made {_code(healthy)} into {_code(process)}")
                violations += [f"{situation.name} / {name}, call {call}, {fault}: {each}" for each in found]

    note("T-7 one call fails", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_an_outage_that_begins_at_any_call_loses_nothing(situation: Situation) -> None:
    """From some call on the table is busy or does not answer, for ten minutes; who repeats a request does so after."""
    bench = _bench(situation)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        calls, _ = _recorded(bench, name)
        for call in calls:
            for fault in WRITE if NIGHTLY else WRITE[call.number % len(WRITE) :][:1]:
                cases += 1
                process = _run(bench, name, _from(call.number, fault))
                bench.world.now += OUTAGE_MS
                found = _judged(bench, name, process)
                violations += [f"{situation.name} / {name}, out from {call} on, {fault}: {each}" for each in found]

    note("T-7 outage of ten minutes", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_three_of_ten_calls_that_fail_lose_nothing(situation: Situation) -> None:
    """Requests and schedules in random order, any call of each with three chances in ten to fail, and time passes."""
    bench = _bench(situation)
    violations: list[str] = []
    for number in range(RANDOM_PER_SITUATION):
        chance = random.Random(f"{SEED}/{situation.name}/{number}")
        bench.world.restore(bench.saved)
        told: list[str] = []
        for turn in range(chance.randrange(2, 7)):
            told.append(chance.choice(list(bench.handlers)))
            process = bench.world.process(f"p{turn}", bench.handlers[told[-1]])
            bench.world.table.watch(faults=_sometimes(chance))
            process.run()
            bench.world.table.watch()
            bench.world.now += chance.choice(GUARD_STEP_MS)
            violations += [f"run {number}, {told}: {each}" for each in unexpected([process])]
        violations += [f"run {number}, {told}: {each}" for each in bench.judged([]) + doubled(bench.world)]

    note("T-7 three calls in ten fail", RANDOM_PER_SITUATION, len(violations))
    assert not violations, f"seed {SEED!r}\n" + "\n".join(violations[:12])


# --- faults ----------------------------------------------------------------------------------------------------------


def _faults_of(call: TableCall) -> tuple[TableFault, ...]:
    if call.operation == "batch_update":
        return BATCH
    return WRITE if call.is_write else READ


def _once(number: int, fault: TableFault) -> Faults:
    return lambda call: fault if call.number == number else None


def _from(number: int, fault: TableFault) -> Faults:
    return lambda call: None if call.number < number else fault


def _sometimes(chance: random.Random) -> Faults:
    return lambda call: chance.choice(_faults_of(call)) if chance.random() < SHARE else None


# --- one case --------------------------------------------------------------------------------------------------------


def _bench(situation: Situation) -> Bench:
    bench = Bench.of(situation)
    bench.world.deadline_of = PatientDeadline
    return bench


def _recorded(bench: Bench, name: str) -> tuple[list[TableCall], Process]:
    """The calls that a handler makes of a healthy table, and its end."""
    calls: list[TableCall] = []
    (process,) = bench.processes([name])
    bench.world.table.number = 0
    bench.world.table.watch(before=calls.append)
    process.run()
    bench.world.table.watch()
    return calls, process


def _run(bench: Bench, name: str, faults: Faults) -> Process:
    """The handler on a table with these faults, which is healthy again when it has ended."""
    (process,) = bench.processes([name])
    bench.world.table.number = 0
    bench.world.table.watch(faults=faults)
    process.run()
    bench.world.table.watch()
    return process


def _judged(bench: Bench, name: str, process: Process) -> list[str]:
    """What is wrong once the caller has repeated what failed for no reason of its own, now and at rest."""
    found, again = unexpected([process]) + thrown_away(bench.world, process), []
    if isinstance(process.error, QuitclaimError) and process.error.retryable:
        again.append(bench.world.process("again", bench.handlers[name]))
        again[0].run()
    return found + bench.judged(again) + doubled(bench.world)


def _code(process: Process) -> str:
    if process.error is None:
        return "no error"
    return process.error.code if isinstance(process.error, QuitclaimError) else type(process.error).__name__
