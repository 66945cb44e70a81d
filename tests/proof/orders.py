"""
The order in which a flow does things that are not one commit, and what becomes of it the other way round (T-13).

"First the record, then the request" stands in no condition: only the order of two calls carries it. Here each pair of
adjacent calls that change something is found by looking at runs, and a swap does the first of them behind the second.
A request is never done first in such a pair: what follows it needs its answer.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import quitclaim.flows
from quitclaim.ports import Update
from quitclaim.store.commit import Commit
from quitclaim.store.revocations import RevocationStore
from tests.proof.clauses import located
from tests.proof.stepping import Crashed, Process
from tests.proof.world import SimulatedClient, World

FLOWS: Final = str(Path(next(iter(quitclaim.flows.__path__))).resolve())
BEHIND: Final = " / only behind "
SEND: Final = "the request to "
LOOPS: Final = frozenset(
    {"maintain", "compact", "inspect", "one", "_each", "_looked_at", "<lambda>"} | {"reconcile", "_pass", "_due"}
)
"""Functions of `flows/maintain.py` and `flows/reconcile.py` that go from one item to the next."""


@dataclass(frozen=True)
class Swap:
    """Two adjacent effects of a flow, done the other way round."""

    first: str
    second: str

    @property
    def id(self) -> str:
        """One line."""
        return f"{self.first}{BEHIND}{self.second}"

    @classmethod
    def of(cls, id_: str) -> "Swap":
        """The swap of that id."""
        first, _, second = id_.partition(BEHIND)
        return cls(first, second)


@dataclass
class Last:
    """The last effect of a process: what it was, on what, and in which call of a flow."""

    name: str
    flow: FrameType | None
    process: Process
    """Held on to, so that its id is nobody else's."""


@dataclass
class Orders:
    """The pairs of adjacent effects that a run has shown."""

    pairs: set[Swap] = field(default_factory=set)
    _last: dict[int, Last] = field(default_factory=dict)

    def forget(self) -> None:
        """Another run begins."""
        self.pairs, self._last = set(), {}

    def note(self, process: Process, name: str) -> None:
        """
        One effect, which was not refused. Effects of different flows, or of one kind, are no pair; nor is what the
        schedules do one after the other once everything comes to rest.
        """
        if process.name.startswith("straight-"):
            return
        this, last = Last(name, _flow(), process), self._last.get(id(process))
        self._last[id(process)] = this
        if last is not None and last.flow is this.flow and last.name != name and not last.name.startswith(SEND):
            self.pairs.add(Swap(last.name, name))


def _flow() -> FrameType | None:
    """The outermost call of a flow that is on the stack, loops over many items apart."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the stack has no other door
    found = None
    while frame is not None:
        if frame.f_code.co_filename.startswith(FLOWS) and frame.f_code.co_name not in LOOPS:
            found = frame
        frame = frame.f_back
    return found


type Around = Callable[[Process, str, Callable[[], Any], Any], Any]
"""Told of an effect: whose, its name, how it is done, and what it answers if it is put off."""


@contextmanager
def _around(around: Around) -> Iterator[None]:
    """Have every effect of every process done by *around*."""
    run, batch, send = Commit.run, RevocationStore._batch, SimulatedClient._do  # noqa: SLF001 - each is one effect

    def run_around(commit: Commit) -> None:
        process = getattr(commit._table, "_process", None)  # noqa: SLF001
        if process is None:  # nobody's: a key ring that is made before anything happens
            return run(commit)
        return around(process, _name(), lambda: run(commit), None)  # type: ignore[no-any-return]

    def batch_around(store: RevocationStore, updates: list[Update]) -> Any:
        if not updates:
            return batch(store, updates)
        process = store._table._process  # type: ignore[attr-defined]  # noqa: SLF001
        return around(process, _name(), lambda: batch(store, updates), [None for _ in updates])

    def send_around(client: SimulatedClient, what: str, act: Callable[[], Any], *, changes: bool = True) -> Any:
        if not changes:
            return send(client, what, act, changes=changes)
        return around(client._process, SEND + what, lambda: send(client, what, act), None)  # noqa: SLF001

    with ExitStack() as stack:
        stack.enter_context(patch.object(Commit, "run", run_around))
        stack.enter_context(patch.object(RevocationStore, "_batch", batch_around))
        stack.enter_context(patch.object(SimulatedClient, "_do", send_around))
        yield


def _name() -> str:
    function, _ = located(sys._getframe(2))  # noqa: SLF001
    module, _, method = function.partition(".")
    return f"{module}.{method.rpartition('.')[2]}"


@contextmanager
def noted(orders: Orders) -> Iterator[None]:
    """Look at the order of things."""

    def around(process: Process, name: str, act: Callable[[], Any], later: Any) -> Any:
        answer = act()
        orders.note(process, name)
        return answer

    with _around(around):
        yield


@contextmanager
def swapped(swap: Swap) -> Iterator[None]:
    """
    The first effect is put off: it is done right behind the second one, or before anything else, and refused there if
    at all. Where the second is refused, the first is never done.
    """
    waiting: dict[int, tuple[Process, Callable[[], Any]]] = {}
    process_of = World.process

    def around(process: Process, name: str, act: Callable[[], Any], later: Any) -> Any:
        put_off = waiting.pop(id(process), None)
        if name == swap.second and put_off is not None:
            answer = act()
            put_off[1]()
            return answer
        if put_off is not None:
            put_off[1]()
        if name == swap.first:
            waiting[id(process)] = process, act
            return later
        return act()

    def process_around(world: World, name: str, flow: Callable[[Any], Any], *, skew_ms: int = 0) -> Process:
        def ended(ports: Any) -> Any:
            try:
                return flow(ports)
            finally:
                put_off = waiting.pop(id(ports.process), None)
                if put_off is not None and not isinstance(sys.exception(), Crashed):
                    put_off[1]()

        return process_of(world, name, ended, skew_ms=skew_ms)

    with _around(around), patch.object(World, "process", process_around):
        yield
