"""Every flow of the product has a handler in some situation: what is not registered is not searched."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

import quitclaim.flows
from tests.proof.report import note
from tests.proof.scripts import SITUATIONS
from tests.proof.search import Bench

LEAST = 24
"""Handlers of different names."""


def flows() -> dict[CodeType, str]:
    """The public functions of the flows, by their code."""
    found = {}
    for module in pkgutil.iter_modules(quitclaim.flows.__path__):
        loaded = importlib.import_module(f"{quitclaim.flows.__name__}.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if function.__module__ == loaded.__name__ and not name.startswith("_"):
                found[function.__code__] = f"{module.name}.{name}"
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


def test_every_flow_is_a_handler_somewhere() -> None:
    """Each handler of each situation once, undisturbed: together they begin every public function of the flows."""
    expected, names = flows(), set()
    with begun() as seen:
        for situation in SITUATIONS:
            bench = Bench.of(situation)
            for name in bench.handlers:
                names.add(name)
                (process,) = bench.processes([name])
                process.run()

    missing = sorted(name for code, name in expected.items() if code not in seen)
    note("flows that a handler runs", len(expected) - len(missing), len(missing))
    assert not missing
    assert len(names) >= LEAST
