"""
One case of a search: a situation, the handlers that meet in it, and how. A case can be written down, run, and run again
against broken code.

Five ways of meeting: one after the other; in an order of their calls; the first one dead at a call; the first one
frozen behind a call until the others are through; a call of the first one that meets a storage fault.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Any, Final

from quitclaim.domain.errors import MovedError
from tests.proof.search import Bench, points, refused_stops
from tests.proof.stepping import Process, enabled
from tests.proof.table import TableFault

FAULTS: Final = (TableFault.APPLIED, TableFault.LOST, TableFault.PARTLY_APPLIED)
"""What makes a difference: a busy table is only asked again."""


@dataclass(frozen=True)
class Case:
    """
    How some handlers meet in a situation. *meanwhile*: how many of the others go through while the first one stalls;
    the rest come behind it.
    """

    situation: str
    handlers: tuple[str, ...]
    schedule: tuple[int, ...] | None = None
    crash: int | None = None
    after: bool = False
    stall: int | None = None
    meanwhile: int | None = None
    fault: tuple[int, str] | None = None

    @property
    def command(self) -> str:
        """The line that repeats it and tells it call by call."""
        words = [f'"{self.situation}"', *(f'"{name}"' for name in self.handlers)]
        if self.schedule is not None:
            words += ["--schedule", ",".join(map(str, self.schedule))]
        if self.crash is not None:
            words += ["--crash", str(self.crash), *(["--after"] if self.after else [])]
        if self.stall is not None:
            words += ["--stall", str(self.stall)]
            words += [] if self.meanwhile is None else ["--meanwhile", str(self.meanwhile)]
        if self.fault is not None:
            words += ["--fault", str(self.fault[0]), f'"{self.fault[1]}"']
        return " ".join(words)

    @property
    def technique(self) -> str:
        """Which of the ways it is."""
        if self.schedule is not None:
            return "order"
        if self.crash is not None:
            return "crash"
        if self.fault is not None:
            return "fault"
        return "stall" if self.stall is not None else "in turn"

    @property
    def is_undisturbed(self) -> bool:
        """One handler, and nothing else happens."""
        return len(self.handlers) == 1 and self.technique == "in turn"

    def as_json(self) -> list[Any]:
        """Short enough for a file with hundreds of them."""
        how: dict[str, Any] = {}
        if self.schedule is not None:
            how["schedule"] = "".join(map(str, self.schedule))
        if self.crash is not None:
            how["crash after" if self.after else "crash before"] = self.crash
        if self.stall is not None:
            how["stall"] = self.stall
        if self.meanwhile is not None:
            how["meanwhile"] = self.meanwhile
        if self.fault is not None:
            how["fault"] = list(self.fault)
        return [self.situation, list(self.handlers), how]

    @classmethod
    def of_json(cls, row: Sequence[Any]) -> "Case":
        """The case that `as_json` wrote."""
        situation, handlers, how = row
        schedule, fault = how.get("schedule"), how.get("fault")
        return cls(
            situation,
            tuple(handlers),
            schedule=None if schedule is None else tuple(map(int, schedule)),
            crash=how.get("crash before", how.get("crash after")),
            after="crash after" in how,
            stall=how.get("stall"),
            meanwhile=how.get("meanwhile"),
            fault=None if fault is None else (fault[0], fault[1]),
        )


@dataclass(frozen=True)
class Example:
    """A row of the table of writes by itself (`examples`), and what is planted before it happens."""

    row: str
    clause: str

    @property
    def command(self) -> str:
        """The test that has it."""
        return f"row {self.row}: {self.clause}"

    def as_json(self) -> list[Any]:
        """Short, as a case is."""
        return [self.row, self.clause]


type Note = Callable[[str, str], None]
"""Told who does what, call by call."""


def faults_of(bench: Bench, case: Case) -> list[str]:
    """Run a case, and say what is wrong at its end and once everything has come to rest."""
    processes = played(bench, case)
    faults = refused_stops(case.handlers, processes)
    if case.technique == "in turn":
        faults += undone(bench, case, processes)
    return bench.judged(processes) + faults


def undone(bench: Bench, case: Case, processes: Sequence[Process]) -> list[str]:
    """One after the other, nobody moves anything under another's hands: what can be done is done."""
    moved = [
        f"{name} was refused by {type(process.error).__name__}, and nobody else was there"
        for name, process in zip(case.handlers, processes, strict=True)
        if isinstance(process.error, MovedError)
    ]
    return [*moved, *bench.world.seen.neglected]


def played(bench: Bench, case: Case, note: Note = lambda name, what: None) -> list[Process]:
    """Run a case up to its end."""
    processes = bench.processes(case.handlers)
    named = dict(zip((process.name for process in processes), case.handlers, strict=True))

    def advance(process: Process, times: int | None = None) -> None:
        while not process.is_done and times != 0:
            note(named[process.name], process.pending.what if process.pending else "")
            process.advance()
            times = None if times is None else times - 1

    if case.schedule is not None:
        for process in processes:
            process.begin()
        for number in case.schedule:
            if number in enabled(processes):  # other code may have come to a send by now, where time stands still
                advance(processes[number], 1)
        for process in processes:
            advance(process)
        return processes
    first, *others = processes
    first.stalls_after = case.stall
    if case.fault is not None:
        first.faults[case.fault[0]] = TableFault(case.fault[1])
    first.begin()
    if case.crash is not None:
        advance(first, case.crash)
        note(named[first.name], "crashes" + (" behind its next call" if case.after else ""))
        if case.after and not first.is_done:
            first.dies_after_call = True
            first.advance()
        first.crash()
    else:
        advance(first, None if case.stall is None else case.stall + 1)
    for number, process in enumerate(others):
        if number == case.meanwhile:
            advance(first)
        process.begin()
        advance(process)
    advance(first)
    return processes


# --- what there is to run --------------------------------------------------------------------------------------------


def single_cases(bench: Bench) -> Iterator[Case]:
    """Each handler alone: undisturbed, dead at each of its calls, and with each fault at each of its writes."""
    name = bench.situation.name
    for handler in bench.handlers:
        yield Case(name, (handler,))
    for handler in bench.handlers:
        for call, after in points(bench, handler):
            yield Case(name, (handler,), crash=call, after=after)
    for handler in bench.handlers:
        for call in writes_of(bench, handler):
            for fault in FAULTS:
                yield Case(name, (handler,), fault=(call, fault.value))


def writes_of(bench: Bench, handler: str) -> list[int]:
    """The numbers of the calls of a handler that write to the table."""
    (process,) = bench.processes([handler])
    process.begin()
    found = []
    while not process.is_done:
        if process.pending is not None and process.pending.what.startswith(("write", "transact", "batch_update")):
            found.append(process.calls)
        process.advance()
    return found


def calls_of(bench: Bench, handler: str) -> int:
    """How many calls a handler makes by itself."""
    (process,) = bench.processes([handler])
    process.begin()
    while not process.is_done:
        process.advance()
    return process.calls


def in_turn(bench: Bench, length: int) -> Iterator[Case]:
    """Every *length* handlers, one after the other."""
    for handlers in permutations(bench.handlers, length):
        yield Case(bench.situation.name, handlers)


def stalled(bench: Bench, others: int) -> Iterator[Case]:
    """Each handler frozen behind each of its calls, while *others* go through one after the other."""
    for first in bench.handlers:
        rest = [handler for handler in bench.handlers if handler != first]
        for call in range(calls_of(bench, first)):
            for meeting in permutations(rest, others):
                yield Case(bench.situation.name, (first, *meeting), stall=call)


def stalled_in_time(bench: Bench) -> Iterator[Case]:
    """Each handler frozen while time passes and another one goes through."""
    clocks = [handler for handler in bench.handlers if handler.endswith("passes")]
    for first in bench.handlers:
        for call in range(calls_of(bench, first)):
            for clock in clocks:
                for other in bench.handlers:
                    if len({first, clock, other}) == 3:
                        yield Case(bench.situation.name, (first, clock, other), stall=call)


def stalled_and_after(bench: Bench) -> Iterator[Case]:
    """Each handler frozen while another one goes through, and a third one behind it."""
    for first in bench.handlers:
        rest = [handler for handler in bench.handlers if handler != first]
        for call in range(calls_of(bench, first)):
            for meeting in permutations(rest, 2):
                yield Case(bench.situation.name, (first, *meeting), stall=call, meanwhile=1)


def at_random(bench: Bench, count: int, chance: Random) -> Iterator[Case]:
    """
    Two to four handlers, each with a rank: the highest that can go on goes on, and now and then it falls to the lowest.

    Few changes of rank find what needs few changes of turn, however many calls lie between them (probabilistic
    concurrency testing, Burckhardt et al., ASPLOS 2010).
    """
    for _ in range(count):
        names = tuple(chance.sample(list(bench.handlers), min(chance.choice((2, 3, 3, 4)), len(bench.handlers))))
        ranks = list(range(len(names)))
        chance.shuffle(ranks)
        falls = {chance.randrange(48) for _ in range(chance.randrange(1, 5))}
        yield Case(bench.situation.name, names, schedule=_by_rank(bench, names, ranks, falls))


def _by_rank(bench: Bench, names: tuple[str, ...], ranks: list[int], falls: set[int]) -> tuple[int, ...]:
    processes = bench.processes(names)
    for process in processes:
        process.begin()
    schedule: list[int] = []
    while able := enabled(processes):
        chosen = max(able, key=lambda number: ranks[number])
        schedule.append(chosen)
        processes[chosen].advance()
        if len(schedule) in falls:
            ranks[chosen] = min(ranks) - 1
    return tuple(schedule)
