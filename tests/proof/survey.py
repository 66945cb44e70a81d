"""
What intact code writes, in which cases each part of it decides, and in which order things are done (T-13): where to
look for somebody who notices that it is missing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from time import monotonic
from typing import Final

from tests.proof.broken import Broken, Journal, Mutant, Part, table_of
from tests.proof.cases import (
    Case,
    at_random,
    faults_of,
    in_turn,
    single_cases,
    stalled,
    stalled_and_after,
    stalled_in_time,
)
from tests.proof.orders import Orders, Swap, noted
from tests.proof.report import NIGHTLY, SEED
from tests.proof.search import Bench, refused_stops
from tests.proof.stepping import Process, explore

PER_TECHNIQUE: Final = 3
RANDOM: Final = 4_000 if NIGHTLY else 400
PAIRS_LIMIT: Final = 600
TRIPLES_LIMIT: Final = 150


@dataclass
class Survey:
    """What was seen."""

    where: dict[Part, dict[str, None]] = field(default_factory=dict)
    """The situations in which a part is met, in order."""
    decided: dict[frozenset[Part], list[Case]] = field(default_factory=dict)
    """Parts that, left out together and not one fewer, would have changed what the table answered."""
    swaps: dict[Swap, list[Case]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    runs: int = 0

    def note(self, journal: Journal, orders: Orders, case: Case) -> None:
        """What one case showed."""
        for part in journal.met:
            self.where.setdefault(part, {})[case.situation] = None
        for parts in journal.decided:
            _keep(self.decided.setdefault(parts, []), case)
        for swap in orders.pairs:
            _keep(self.swaps.setdefault(swap, []), case)

    def mutants(self) -> Iterator[Mutant]:
        """One for each thing that can be broken in what was seen."""
        yield from (Mutant(frozenset({part})) for part in self.where)
        yield from (Mutant(swaps=frozenset({swap})) for swap in self.swaps)

    def of(self, mutant: Mutant) -> list[Case]:
        """Cases in which the mutant would be answered otherwise, the simplest first."""
        found = [case for parts, cases in self.decided.items() if parts and parts <= mutant.parts for case in cases]
        found += [case for swap in mutant.swaps for case in self.swaps.get(swap, ())]
        return sorted(dict.fromkeys(found), key=lambda case: (case.situation, len(case.handlers), case.schedule or ()))

    def situations(self, mutant: Mutant) -> list[str]:
        """Where it is met; nowhere, if only a guard is open."""
        found: dict[str, None] = {}
        for part in mutant.parts:
            found |= self.where.get(part, {})
        for swap in mutant.swaps:
            found |= dict.fromkeys(case.situation for case in self.swaps.get(swap, ()))
        return list(found)

    def companions(self, mutant: Mutant) -> list[Mutant]:
        """With what else it decides, the fewest first: what may stand in for it."""
        found = [parts - mutant.parts for parts in self.decided if mutant.parts < parts]
        return [Mutant(parts) for parts in sorted(found, key=lambda parts: (len(parts), sorted(p.id for p in parts)))]


def _keep(known: list[Case], case: Case) -> None:
    alike = (each.situation == case.situation and each.technique == case.technique for each in known)
    if sum(alike) < PER_TECHNIQUE:
        known.append(case)


def survey(broken: Broken, situations: Iterable[str], *, deep: bool, told: Callable[[str], None]) -> Survey:
    """Run the situations on intact code. *deep*: all interleavings of pairs, and longer meetings, as well."""
    found, orders = Survey(), Orders()
    with noted(orders):
        for name in situations:
            began, before = monotonic(), found.runs
            bench = broken.bench(name)
            for case in cases_of(bench, deep=deep):
                _begin(bench, orders)
                _noted(found, bench, orders, case, faults_of(bench, case))
            if deep:
                _interleave(found, bench, orders)
            told(f"{name:<56} {found.runs - before:>7,} cases {monotonic() - began:6.1f} s, {len(found.where)} parts")
    return found


def look(broken: Broken, cases: Iterable[Case]) -> Survey:
    """Run these cases on intact code; each is judged once, where a run of it is wanted."""
    found, orders = Survey(), Orders()
    with noted(orders):
        for case in dict.fromkeys(cases):
            bench = broken.bench(case.situation)
            _begin(bench, orders)
            _noted(found, bench, orders, case, faults_of(bench, case))
    return found


def cases_of(bench: Bench, *, deep: bool) -> Iterator[Case]:
    """From the simplest to the longest."""
    yield from single_cases(bench)
    yield from in_turn(bench, 2)
    yield from stalled(bench, 1)
    yield from at_random(bench, RANDOM, Random(f"{SEED}/{bench.situation.name}"))
    if deep:
        yield from in_turn(bench, 3)
        yield from stalled_in_time(bench)
        yield from stalled_and_after(bench)


def _begin(bench: Bench, orders: Orders) -> None:
    table_of(bench).journal = Journal()
    orders.forget()


def _noted(found: Survey, bench: Bench, orders: Orders, case: Case, faults: Sequence[str]) -> None:
    table = table_of(bench)
    assert table.journal is not None
    found.note(table.journal, orders, case)
    table.journal = None
    found.runs += 1
    if faults and len(found.violations) < 100:
        found.violations.append(f"{case.command}: {sorted(set(faults))}")


def _interleave(found: Survey, bench: Bench, orders: Orders) -> None:
    """Every order of the calls of two handlers, and of two while time passes."""
    clocks = [name for name in bench.handlers if name.endswith("passes")]
    others = [name for name in bench.handlers if name not in clocks]
    meetings: list[tuple[tuple[str, ...], int]] = [(names, PAIRS_LIMIT) for names in combinations(bench.handlers, 2)]
    meetings += [((*names, clock), TRIPLES_LIMIT) for clock in clocks for names in combinations(others, 2)]
    for names, limit in meetings:
        _orders(found, bench, orders, names, limit)


def _orders(found: Survey, bench: Bench, orders: Orders, names: tuple[str, ...], limit: int) -> None:
    def restart() -> list[Process]:
        _begin(bench, orders)
        return bench.processes(names)

    def judge(processes: list[Process], schedule: list[int]) -> None:
        case = Case(bench.situation.name, names, schedule=tuple(schedule))
        _noted(found, bench, orders, case, bench.judged(processes) + refused_stops(names, processes))

    explore(restart, judge, limit=limit)
    table_of(bench).journal = None
