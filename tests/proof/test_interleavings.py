"""
T-2: all interleavings of every pair of handlers that can meet, at the granularity of a port call; chosen triples in
which time passes.
"""

from itertools import combinations

import pytest

from tests.proof.report import NIGHTLY, note
from tests.proof.scripts import SITUATIONS, Situation
from tests.proof.search import Bench, interleavings

LIMIT_PER_PAIR = None if NIGHTLY else 3_000
LIMIT_PER_TRIPLE = 40_000 if NIGHTLY else 400


@pytest.mark.rule("I-1", "I-2", "I-3", "I-5", "I-6", "I-9", "I-13", "D-3", "D-10", "F-43", "F-53", "F-62", "RB-32")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_order_of_two_handlers_breaks_the_promise(situation: Situation) -> None:
    """Two requests or runs of a schedule meet, in every order of their calls."""
    bench = Bench.of(situation)
    violations: list[str] = []
    cases = 0
    for names in combinations(bench.handlers, 2):
        found = interleavings(bench, names, limit=LIMIT_PER_PAIR if NIGHTLY else situation.orders or LIMIT_PER_PAIR)
        cases += found.cases
        violations += found.violations

    note("T-2 pairs of handlers", cases, len(violations))
    assert not violations, "\n".join(violations[:10])


@pytest.mark.rule("I-1", "I-3", "I-8", "I-15", "F-64", "F-68", "U-17", "D-2", "D-32")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_order_of_two_handlers_and_time_breaks_the_promise(situation: Situation) -> None:
    """The same while a window, lease, hold or deadline passes at any moment."""
    bench = Bench.of(situation)
    clocks = [name for name in bench.handlers if name.endswith("passes")]
    others = [name for name in bench.handlers if not name.endswith("passes")]
    violations: list[str] = []
    cases = 0
    for clock in clocks:
        for names in combinations(others, 2):
            found = interleavings(bench, (*names, clock), limit=LIMIT_PER_TRIPLE)
            cases += found.cases
            violations += found.violations

    note("T-2 triples with time", cases, len(violations))
    assert not violations, "\n".join(violations[:10])
