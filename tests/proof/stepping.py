"""
Real flows, stepped one port call at a time.

A process is a flow in a greenlet. Before each call of a port it stops and says what it is about to do; the scheduler
lets it do exactly that call, and everything up to the next one. A crash is a process that is never let on: before its
call, or with the call's effect but without its answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from greenlet import getcurrent, greenlet

READS: Final = "read"
WRITES: Final = "write"


@dataclass(frozen=True)
class Call:
    """What a process is about to do: on which things, and whether it changes them."""

    what: str
    things: frozenset[str]
    changes: bool
    is_send: bool = False
    reads_all: bool = False

    @property
    def is_time(self) -> bool:
        """Whether it is time that passes."""
        return "*" in self.things

    def depends_on(self, other: "Call") -> bool:
        """Whether the order of the two can matter: they touch a thing in common that one of them changes."""
        if self.is_time or other.is_time:
            return True  # time: every call may read it
        if (self.reads_all and other.changes) or (other.reads_all and self.changes):
            return True
        return (self.changes or other.changes) and not self.things.isdisjoint(other.things)


class Crashed(BaseException):
    """
    Thrown into a process that is crashed. No flow may catch it; `finally` blocks run as they would not in a real crash,
    so flows write in none.
    """


@dataclass
class Process:
    """
    One flow under the scheduler.

    *received*: the tokens whose answer arrived. *stalls_after*: the answer to that call arrives in a step of its own,
    so that everything can happen before it does. *faults*: what happens to those calls of the table. Calls count from
    0.
    """

    name: str
    flow: Callable[["Process"], Any]
    pending: Call | None = None
    result: Any = None
    error: BaseException | None = None
    calls: int = 0
    is_done: bool = False
    dies_after_call: bool = False
    skew_ms: int = 0
    clock_read: int = 0
    is_crashed: bool = False
    received: set[str] = field(default_factory=set)
    stalls_after: int | None = None
    faults: dict[int, Any] = field(default_factory=dict)
    _green: Any = None
    _parent: Any = None
    history: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Run up to the first call."""
        self._parent = getcurrent()
        self._green = greenlet(self._run)
        self._resume()

    def advance(self) -> None:
        """Do the pending call, and run up to the next one."""
        self._resume()

    def run(self) -> None:
        """From here, or from its beginning, to its end."""
        if self._green is None:
            self.begin()
        while not self.is_done:
            self.advance()

    def crash(self) -> None:
        """Never let it on."""
        if self._green is not None and not self.is_done:
            self.is_done = self.is_crashed = True
            self._green.throw(Crashed)

    def before(self, call: Call) -> None:
        """Called by a port: stop here until the scheduler lets this call happen."""
        if getcurrent() is not self._green:
            return  # not scheduled: the flow runs straight through
        self.pending = call
        self._parent.switch()
        self.pending = None
        self.calls += 1

    def after(self, call: Call) -> None:
        """Called by a port: the call has taken effect. A process that dies here never sees the answer."""
        if getcurrent() is not self._green:
            return
        if self.dies_after_call:
            raise Crashed
        if self.stalls_after == self.calls - 1:
            self.stalls_after = None
            self.pending = Call(f"answer to {call.what}", frozenset(), changes=False)
            self._parent.switch()
            self.pending = None

    def _resume(self) -> None:
        self._green.switch()

    def _run(self) -> None:
        try:
            self.result = self.flow(self)
        except Crashed:
            self.is_crashed = True
        except Exception as error:  # noqa: BLE001 - a flow's refusal is its result; others are looked at by the judge
            self.error = error
        finally:
            self.is_done = True
            self.pending = None


@dataclass
class Node:
    """A point of a schedule at which more than one process could go on."""

    enabled: dict[int, Call]
    sleeping: frozenset[int]
    explored: set[int]
    chosen: int


def explore(
    restart: Callable[[], list[Process]],
    judge: Callable[[list[Process], list[int]], None],
    *,
    limit: int | None = None,
    reduce: bool = True,
) -> tuple[int, bool]:
    """
    Run every interleaving of the processes that *restart* makes afresh from the same state, and *judge* each end.

    With *reduce*, schedules that differ only in the order of independent calls are run once (sleep sets). Answers how
    many were run, and whether that was all of them.
    """
    path: list[Node] = []
    runs = 0
    while True:
        processes = restart()
        for process in processes:
            process.begin()
        blocked = False
        for node in path:
            processes[node.chosen].advance()
        while True:
            able = enabled(processes)
            if not able:
                break
            sleeping = _sleeping(path[-1]) if path and reduce else frozenset()
            awake = [number for number in able if number not in sleeping]
            if not awake:
                blocked = True
                break
            chosen = awake[0]
            path.append(Node(able, sleeping, set(), chosen))
            processes[chosen].advance()
        if blocked:
            for process in processes:
                process.crash()
        else:
            runs += 1
            judge(processes, [node.chosen for node in path])
        if limit is not None and runs >= limit:
            return runs, False
        if not _backtrack(path):
            return runs, True


def enabled(processes: list[Process]) -> dict[int, Call]:
    """
    Who can go on. Time does not pass between the check right before a send and the send: that no function is frozen
    there for longer than its request's record lasts is what the time-outs are for, and docs/threat-model.md says where
    they do not hold.
    """
    pending = {number: process.pending for number, process in enumerate(processes) if process.pending is not None}
    if any(call.is_send for call in pending.values()):
        return {number: call for number, call in pending.items() if not call.is_time}
    return pending


def _sleeping(node: Node) -> frozenset[int]:
    """Whoever was tried before at this node, or slept in it, and does not mind the call that was chosen."""
    chosen = node.enabled[node.chosen]
    candidates = (node.sleeping | node.explored) - {node.chosen}
    return frozenset(
        number for number in candidates if number in node.enabled and not node.enabled[number].depends_on(chosen)
    )


def _backtrack(path: list[Node]) -> bool:
    while path:
        node = path[-1]
        node.explored.add(node.chosen)
        left = [number for number in node.enabled if number not in node.explored and number not in node.sleeping]
        if left:
            node.chosen = left[0]
            return True
        path.pop()
    return False


def run_straight(process: Process) -> Any:
    """Run a process to its end without stopping; its result, or its error raised."""
    process.run()
    if process.error is not None:
        raise process.error
    return process.result
