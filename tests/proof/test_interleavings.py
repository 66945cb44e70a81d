"""
T-2: all interleavings of every pair of handlers that can meet, at the granularity of a port call; the same while time
passes at any moment; and three that do something.

Equal states are gone on from once (`meetings`), so that all orders of nearly every meeting are covered; those of a few
long ones end at a limit of states. Noted are orders and states.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from random import Random
from typing import Any, Final

import pytest

from quitclaim.ports import Key
from tests.proof.meetings import Meetings, answer_key
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import SITUATIONS, Situation
from tests.proof.search import Bench, interleavings
from tests.proof.stepping import Process, TouchedError, explore
from tests.proof.table import MemoryTable

PAIR_STATES: Final = 400_000 if NIGHTLY else 3_000
TIME_STATES: Final = 100_000 if NIGHTLY else 1_000
TRIPLE_STATES: Final = 2_000 if NIGHTLY else 60
LONGER: Final = 4 if NIGHTLY else 1
"""So many states of one meeting; one that has no states of its own has so many orders, one by one, or *ORDERS*."""
ORDERS: Final = 3_000
"""An order costs a hundred times what a state does: a hundred thousand of them are twenty minutes."""
SMALL: Final = range(10, 200)
"""Meetings of so many orders are run one by one as well; they have fewer states than *FEW*."""
FEW: Final = 2_000


@pytest.mark.rule("I-1", "I-2", "I-3", "I-5", "I-6", "I-9", "I-13", "D-3", "D-10", "F-43", "F-53", "F-62", "RB-32")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_order_of_two_handlers_breaks_the_promise(situation: Situation) -> None:
    """Two requests or runs of a schedule meet, in every order of their calls."""
    bench = Bench.of(situation)
    limit = PAIR_STATES if situation.orders is None else situation.orders * LONGER
    _search(bench, combinations(bench.handlers, 2), "T-2 pairs of handlers", limit)


@pytest.mark.rule("I-1", "I-3", "I-8", "I-15", "F-64", "F-68", "U-17", "D-2", "D-32")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_order_of_two_handlers_and_time_breaks_the_promise(situation: Situation) -> None:
    """The same while a window, lease, hold or deadline passes at any moment."""
    bench = Bench.of(situation)
    acting, clocks = _acting(bench), [name for name in bench.handlers if name.endswith("passes")]
    meetings = [(*names, clock) for clock in clocks for names in combinations(acting, 2)]
    _search(bench, meetings, "T-2 pairs of handlers and time", TIME_STATES)


@pytest.mark.rule("I-1", "I-6", "I-9", "I-13", "D-3")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_order_of_three_handlers_breaks_the_promise(situation: Situation) -> None:
    """Three requests or runs of schedules meet."""
    bench = Bench.of(situation)
    _search(bench, combinations(_acting(bench), 3), "T-2 triples of handlers", TRIPLE_STATES)


def _acting(bench: Bench) -> list[str]:
    return [name for name in bench.handlers if not name.endswith("passes")]


def _search(bench: Bench, meetings: Iterable[Sequence[str]], technique: str, limit: int) -> None:
    violations: list[str] = []
    orders = states = unfinished = 0
    for names in meetings:
        found = interleavings(bench, names, limit=limit, orders=ORDERS)
        orders += found.cases
        states += found.states
        unfinished += not found.complete
        violations += found.violations

    note(technique, orders, len(violations))
    note("T-2 orders", orders, len(violations))
    note("T-2 distinct states", states, 0)
    note("T-2 meetings cut short", unfinished, 0)
    assert not violations, "\n".join(violations[:10])


@pytest.mark.parametrize("first", range(0, len(SITUATIONS), 9), ids=lambda first: SITUATIONS[first].name)
def test_states_gone_on_from_once_leave_no_order_out(first: int) -> None:
    """
    In small meetings every order run by itself ends in the same states, and there are as many orders: those of every
    ninth situation, or of the next one that has any.
    """
    assert any(_compared(situation) for situation in SITUATIONS[first : first + 9])


def _compared(situation: Situation) -> int:
    """How many meetings of it are small enough to be compared, and are the same."""
    bench = Bench.of(situation)
    meetings, compared = Meetings(bench.world, bench.saved), 0
    for names in combinations(bench.handlers, 2):
        merged, single = _Ends(bench), _Ends(bench)
        try:
            met = meetings.meet([(name, bench.flow(name)) for name in names], merged, limit=FEW)
        except TouchedError:
            continue  # of such a handler every order is run by itself anyway
        if not met.is_all or met.orders not in SMALL:
            continue
        runs, is_all = explore(partial(bench.processes, names), single, reduce=False)

        assert is_all
        assert runs == met.orders, names
        assert single.seen == merged.seen, names
        compared += 1
    return compared


def test_a_mark_that_does_not_tell_everything_apart_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: where every item has the same mark, orders end as they never do one by one."""
    monkeypatch.setattr(MemoryTable, "_mark", lambda table, address: int(address in table._items))  # noqa: SLF001

    with pytest.raises(AssertionError):
        _compared(SITUATIONS[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_mark_is_equal_exactly_where_what_it_stands_for_is(seed: int) -> None:
    """
    Of single items, of several, and of everything below a prefix, through hundreds of writes: a mark that was seen
    before comes with the same items as then, and another one with others.
    """
    table, chance, names = MemoryTable(), Random(f"{SEED}/{seed}"), ("a", "a#1", "a#2", "b")
    keys = [Key(pk, sk) for pk in ("one", "two") for sk in names]
    reads: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        *((partial(table.mark, (key,)), partial(table.get, key)) for key in keys),
        (partial(table.mark, keys), partial(table.batch_get, keys)),
        *(
            (partial(table.mark_of, pk, prefix), partial(table.query, pk, prefix))
            for pk in ("one", "two", "three")
            for prefix in ("", "a", "a#", "c")
        ),
    ]
    known: list[tuple[dict[Any, Any], dict[Any, Any]]] = [({}, {}) for _ in reads]
    for _ in range(400):
        key = chance.choice(keys)
        if chance.random() < 0.3:
            table.erase(key)
        else:
            table.plant(key, {"x": chance.choice(VALUES), "y": chance.choice(VALUES)})
        for (mark, read), (by_mark, by_answer) in zip(reads, known, strict=True):
            marked, answer = mark(), answer_key(read())
            assert by_mark.setdefault(marked, answer) == answer
            assert by_answer.setdefault(answer, marked) == marked

    assert all(len(by_mark) > 1 for by_mark, _ in known[: len(keys) + 1])


VALUES: Final = (1, "1", True, b"1", frozenset({"1"}), ["1"], [1], {"1": 1}, {"1": "1"}, 0, "", "a", ["a", "b"])
"""Alike, and no two of them the same."""


class _Ends:
    """A judge that takes notes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.seen: set[object] = set()

    def __call__(self, processes: Sequence[Process], _: Sequence[int]) -> None:
        ends = tuple((type(each.error), str(each.error), frozenset(each.received)) for each in processes)
        self.seen.add((self._bench.world.key(), ends))
