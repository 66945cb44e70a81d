"""
Real flows, stepped one port call at a time.

A process is a flow in a greenlet. Before each call of a port it stops and says what it is about to do; the scheduler
lets it do exactly that call, and everything up to the next one. A crash is a process that is never let on: before its
call, or with the call's effect but without its answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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


@dataclass(slots=True)
class Request:
    """
    What a driven process wants of the world: a *call*, or without one something that it does between two calls.
    *anew*: what goes on depends on this alone, and on nothing that was before. *mark*: of a read that changes nothing:
    hashable, equal for equal answers only, and quicker than the read.
    """

    act: Callable[[], Any]
    call: Call | None = None
    anew: Any = None
    mark: Callable[[], Any] | None = None


class TouchedError(BaseException):
    """A driven process reached for the world itself: what it does cannot be made once and repeated by its answers."""

    handler = ""


@dataclass
class Process:
    """
    One flow under the scheduler.

    *received*: the tokens whose answer arrived. *stalls_after*: the answer to that call arrives in a step of its own,
    so that everything can happen before it does. *faults*: what happens to those calls of the table. Calls count from
    0. *is_driven*: it touches nothing, and hands each `Request` to whoever drives it (`meetings`). *has_looked*: it
    looked at the table since its last call.
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
    is_driven: bool = False
    has_looked: bool = False
    ids_taken: int = 0
    paused_ms: int = 0
    acts: str = ""  # what an operator does in it, which must be on record first
    epochs: dict[str, int] = field(default_factory=dict)  # of the owners that it read, as it read them
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

    def step(self, call: Call, act: Callable[[], Any], mark: Callable[[], Any] | None = None) -> Any:
        """Called by a port: do the call when the scheduler lets it. *mark*: see `Request`."""
        if self.is_driven:
            return self._ask(Request(act, call, mark=mark))
        self.before(call)
        self.history.append(call.what)
        try:
            return act()
        finally:
            self.after(call)

    def look(self, act: Callable[[], Any]) -> Any:
        """Look at the table between two calls, as with a query of an index; what is seen may depend on every write."""
        if self.is_driven:
            return self._ask(Request(act))
        self.has_looked = True
        return act()

    def glance(self, act: Callable[[], Any]) -> Any:
        """Look at a clock, or note something that no other process can see."""
        return self._ask(Request(act)) if self.is_driven else act()

    def begin_anew(self, *left: Any) -> None:
        """From here on a handler remembers nothing but what is *left* to do, its clock, and how many ids it took."""
        self.epochs.clear()
        if self.is_driven:
            anew = (left, self.clock_read, self.paused_ms, self.ids_taken, frozenset(self.received))
            self._ask(Request(lambda: None, anew=anew))

    def drive(self, outcome: Any = None) -> Request | None:
        """
        Run a driven process up to its next request, or to its end: None. *outcome*: of its last request, the answer and
        the error.
        """
        if self._green is None:
            self._parent = getcurrent()
            self._green = greenlet(self._run)
            request: Request | None = self._green.switch()
        else:
            request = self._green.switch(outcome)
        return request

    def _ask(self, request: Request) -> Any:
        answer, error = self._parent.switch(request)
        if error is not None:
            raise error
        return answer

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
    """
    A point of a schedule at which more than one process could go on. *sleeping*, *explored*: who need not or did go on
    from here, and with what step.
    """

    enabled: dict[int, Call]
    sleeping: dict[int, Call]
    explored: dict[int, Call]
    chosen: int

    def step(self, processes: list[Process]) -> None:
        """Let the chosen one go on, and note what its step was: what it looked at behind its call is part of it."""
        process = processes[self.chosen]
        process.has_looked = False
        process.advance()
        call = self.enabled[self.chosen]
        self.explored[self.chosen] = replace(call, reads_all=True) if process.has_looked else call

    def left_asleep(self) -> dict[int, Call]:
        """Whoever went on from here before, or slept here, and does not mind the step that was chosen."""
        step = self.explored[self.chosen]
        others = {number: each for number, each in (self.sleeping | self.explored).items() if number != self.chosen}
        return {number: each for number, each in others.items() if not each.depends_on(step)}


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
            node.step(processes)
        while True:
            able = enabled(processes)
            if not able:
                break
            sleeping = path[-1].left_asleep() if path and reduce else {}
            awake = [number for number in able if number not in sleeping]
            if not awake:
                blocked = True
                break
            path.append(Node(able, sleeping, {}, awake[0]))
            path[-1].step(processes)
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
    return enabled_of(pending)


def enabled_of(pending: dict[int, Call]) -> dict[int, Call]:
    """Those of the pending calls that can be next."""
    if any(call.is_send for call in pending.values()):
        return {number: call for number, call in pending.items() if not call.is_time}
    return pending


def _backtrack(path: list[Node]) -> bool:
    while path:
        node = path[-1]
        left = [number for number in node.enabled if number not in node.explored and number not in node.sleeping]
        if left:
            node.chosen = left[0]
            return True
        path.pop()
    return False


def run_straight(process: Process) -> Any:
    """Run a process to its end without stopping; its result, or its error raised."""
    return process.flow(process)
