"""Every flow of the product has a handler in some situation: what is not registered is not searched."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType

import quitclaim.flows
from tests.proof.report import note
from tests.proof.scripts import SITUATIONS
from tests.proof.search import Bench

LEAST = 24
"""Handlers of different names."""
OF_SEVERAL_PAIRS = frozenset({"renewals.queue_rest"})
"""The simulated providers give one pair. The conformance run has one that gives two, its ledger as judge."""


def flows() -> dict[CodeType, str]:
    """The public functions of the flows, by their code."""
    found = {}
    for module in pkgutil.walk_packages(quitclaim.flows.__path__, f"{quitclaim.flows.__name__}."):
        loaded = importlib.import_module(module.name)
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if function.__module__ == loaded.__name__ and not name.startswith("_"):
                found[function.__code__] = f"{module.name.rsplit('.', 1)[-1]}.{name}"
    return found


@contextmanager
def begun() -> Iterator[set[CodeType]]:
    """The code of every function that begins meanwhile."""
    tool = next(each for each in range(6) if sys.monitoring.get_tool(each) is None)
    seen: set[CodeType] = set()

    def begins(code: CodeType, _: int) -> object:
        seen.add(code)
        return sys.monitoring.DISABLE

    sys.monitoring.use_tool_id(tool, "flows")
    sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, begins)
    sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
    try:
        yield seen
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)


def _turns(names: Iterable[str]) -> Iterator[list[str]]:
    clocks = [name for name in names if name.endswith("passes")]
    yield from ([name] for name in names)
    for some in (clocks, *([clock] for clock in clocks)):
        yield [*some, *(name for name in names if name not in clocks)]


def test_every_flow_is_a_handler_somewhere() -> None:
    """
    Each handler of each situation alone, and all of them in turn behind the times that may pass, one and all: together
    they begin every public function of the flows.
    """
    expected, names = flows(), set()
    with begun() as seen:
        for situation in SITUATIONS:
            bench = Bench.of(situation)
            names |= bench.handlers.keys()
            for turn in _turns(bench.handlers):
                for process in bench.processes(turn):
                    process.run()

    missing = sorted({name for code, name in expected.items() if code not in seen} - OF_SEVERAL_PAIRS)
    note("flows that a handler runs", len(expected) - len(missing), len(missing))
    assert not missing
    assert len(names) >= LEAST
