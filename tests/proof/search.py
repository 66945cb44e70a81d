"""
Crash points and interleavings of the registered situations, and how one of them is told and repeated.

    python -m tests.proof.search "SITUATION" "HANDLER" ["HANDLER" ...] --schedule 0,1,1,0     one interleaving, told
    call by call python -m tests.proof.search "SITUATION" "HANDLER" --crash 3 --after                      one crash
    point
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quitclaim.domain.errors import MovedError, QuitclaimError, StoreError
from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.meetings import Meetings
from tests.proof.recovery import to_rest
from tests.proof.report import SEED
from tests.proof.scripts import Handler, Scene, Situation
from tests.proof.stepping import Process, TouchedError, explore
from tests.proof.world import World

if TYPE_CHECKING:
    from tests.proof.cases import Case


@dataclass
class Found:
    """What a search did and what it found wrong: each violation with the command that repeats it."""

    cases: int = 0
    states: int = 0
    steps: int = 0
    complete: bool = True
    violations: list[str] = field(default_factory=list)

    def add(self, faults: Sequence[str], how: str) -> None:
        """Note violations and how they are repeated; the first dozen says enough."""
        if faults and len(self.violations) < 12:
            self.violations.append("\n  ".join([*sorted(set(faults)), f"repeat: {how}"]))


@dataclass
class Bench:
    """A situation made once; every case starts from the saved state."""

    situation: Situation
    world: World
    scene: Scene
    handlers: dict[str, Handler]
    saved: Any
    at_rest: dict[str, list[str]] = field(default_factory=dict)
    meetings: Meetings | None = None
    touching: set[str] = field(default_factory=set)
    """Handlers that reach into the world by themselves."""

    @classmethod
    def of(cls, situation: Situation, prepare: Callable[[World], None] = lambda world: None) -> "Bench":
        """Make it, in a world with parts of its own if *prepare* brings some."""
        world, scene = situation.make(prepare)
        return cls(situation, world, scene, dict(situation.handlers(scene)), world.save())

    def processes(self, names: Sequence[str]) -> list[Process]:
        """Fresh processes in the saved state."""
        self.world.restore(self.saved)
        return [self.world.process(f"p{number}", self.handlers[name]) for number, name in enumerate(names)]

    def flow(self, name: str) -> Callable[[Process], Any]:
        """A handler as a process runs it."""
        return self.world.flow(self.handlers[name])

    def judged(self, processes: Sequence[Process]) -> list[str]:
        """Faults of the state as it is now, and of where it comes to rest; equal states are judged once."""
        faults = unexpected(processes) + [each for process in processes for each in thrown_away(self.world, process)]
        digest = self.world.digest() + "|".join(sorted(set(self.world.seen.violations)))
        if digest not in self.at_rest:
            self.at_rest[digest] = self._rest()
        return faults + self.at_rest[digest]

    def _rest(self) -> list[str]:
        faults = faults_of_state(self.world)
        if faults:
            return faults
        return to_rest(self.world) + faults_at_rest(self.world)


def unexpected(processes: Sequence[Process]) -> list[str]:
    """Ends that are no refusal of ours."""
    return [
        f"{process.name} ended with {type(process.error).__name__}: {process.error}"
        for process in processes
        if process.error is not None and not isinstance(process.error, QuitclaimError)
    ]


def refused_stops(names: Sequence[str], processes: Sequence[Process]) -> list[str]:
    """No state and no neighbour refuses a stop (class S, D-10); what moved on is answered, not refused."""
    return [
        f"D-10: {name} was refused with {type(process.error).__name__}"
        for name, process in zip(names, processes, strict=True)
        if "disconnect" in name and isinstance(process.error, StoreError | MovedError)
    ]


def thrown_away(world: World, process: Process) -> list[str]:
    """What a process was given it has put into the table when it ends, unless it died or the table did not answer."""
    if process.is_crashed or not process.is_done or isinstance(process.error, StoreError):
        return []
    return [
        f"D-2: {token} was thrown away"
        for token in sorted(process.received - world.ledger.apps)
        if not world.is_kept(token)
    ]


def crash_points(bench: Bench, name: str) -> Found:
    """T-1: crash the handler before each of its calls, and after each took effect; then everything comes to rest."""
    found = Found()
    for call, after in points(bench, name):
        processes = crashed_at(bench, name, call, after=after)
        how = f'"{bench.situation.name}" "{name}" --crash {call}' + (" --after" if after else "")
        found.cases += 1
        found.add(bench.judged(processes), how)
    return found


def points(bench: Bench, name: str) -> list[tuple[int, bool]]:
    """Every crash point of a handler: (number of its call, whether that call takes effect)."""
    (process,) = bench.processes([name])
    process.begin()
    while not process.is_done:
        process.advance()
    return [(call, after) for call in range(process.calls) for after in (False, True)]


def crashed_at(bench: Bench, name: str, call: int, *, after: bool) -> list[Process]:
    """The handler, dead at that point."""
    (process,) = bench.processes([name])
    process.begin()
    for _ in range(call):
        process.advance()
    if after and not process.is_done:
        process.dies_after_call = True
        process.advance()
    process.crash()
    return [process]


def interleavings(
    bench: Bench, names: Sequence[str], *, limit: int | None = None, orders: int | None = None, reduce: bool = True
) -> Found:
    """
    T-2: every order of the calls of these handlers, or what there is within so many states (*limit*); of a meeting that
    has no states of its own and is run order by order, so many of these (*orders*).
    """
    found = Found()

    def judge(processes: list[Process], schedule: list[int]) -> None:
        how = f'"{bench.situation.name}" ' + " ".join(f'"{name}"' for name in names)
        faults = bench.judged(processes) + refused_stops(names, processes)
        if faults:
            found.add(faults, f"{how} --schedule {','.join(map(str, schedule))}")

    if bench.world.is_repeatable and bench.touching.isdisjoint(names):
        try:
            return _met(bench, names, judge, found, limit)
        except TouchedError as touched:
            bench.meetings = None
            bench.touching.add(names[int(touched.handler[1:])])
    most = min((each for each in (limit, orders) if each is not None), default=None)
    found.cases, found.complete = explore(lambda: bench.processes(names), judge, limit=most, reduce=reduce)
    return found


def _met(
    bench: Bench,
    names: Sequence[str],
    judge: Callable[[list[Process], list[int]], None],
    found: Found,
    limit: int | None,
) -> Found:
    if bench.meetings is None:
        bench.meetings = Meetings(bench.world, bench.saved)
    flows = [(name, bench.flow(name)) for name in names]
    chance = random.Random(f"{SEED}/{bench.situation.name}/{names}") if limit is not None else None
    met = bench.meetings.meet(flows, judge, limit=limit, chance=chance)
    found.cases, found.states, found.steps, found.complete = met.orders, met.states, met.steps, met.is_all
    return found


# --- telling one case ------------------------------------------------------------------------------------------------


def situation_named(name: str) -> Situation:
    """By its name."""
    from tests.proof.scripts import EVERY

    return next(situation for situation in EVERY if situation.name == name)


def tell(case: "Case", bench: Bench | None = None) -> int:
    """Run one case and print who did what, in order, and what is wrong at the end."""
    from tests.proof.cases import played

    bench = bench or Bench.of(situation_named(case.situation))
    processes = played(bench, case, lambda name, what: print(f"  {name:<24} {what}"))
    for process, handler in zip(processes, case.handlers, strict=True):
        print(f"  {handler}: {process.result!r} {process.error!r}"[:300])
    print("ledger:", {token.name: token.why_dead or "alive" for token in bench.world.ledger.tokens.values()})
    for item in bench.world.table.items():
        if item["ty"] in ("connection", "grant", "exchange", "revocation", "intent", "barrier"):
            print("  ", {k: v for k, v in item.items() if k not in ("op", "sv", "r1", "r2", "ty")})
    faults = bench.judged(processes) + refused_stops(case.handlers, processes)
    print("\n".join(faults) or "nothing wrong")
    return 1 if faults else 0


def main(words: list[str]) -> int:
    """The command line."""
    from tests.proof.cases import Case

    parser = argparse.ArgumentParser(prog="python -m tests.proof.search", description=__doc__)
    parser.add_argument("situation")
    parser.add_argument("handler", nargs="+")
    parser.add_argument("--schedule", type=lambda text: tuple(int(part) for part in text.split(",")))
    parser.add_argument("--crash", type=int)
    parser.add_argument("--after", action="store_true")
    parser.add_argument("--stall", type=int)
    parser.add_argument("--meanwhile", type=int)
    parser.add_argument("--fault", nargs=2, metavar=("CALL", "FAULT"))
    asked = parser.parse_args(words)
    case = Case(
        asked.situation,
        tuple(asked.handler),
        schedule=asked.schedule,
        crash=asked.crash,
        after=asked.after,
        stall=asked.stall,
        meanwhile=asked.meanwhile,
        fault=(int(asked.fault[0]), asked.fault[1]) if asked.fault else None,
    )
    return tell(case)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
