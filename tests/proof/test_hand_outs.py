"""
T-16: histories of hand-outs, stops and deletions of an owner. Whatever the app was answered, there is an order of all
that it asked, true to time, in which each answer is right: no token after a stop, no older version after a newer one,
no refusal of what lives (P-6, P-7).

Batches are read as DynamoDB reads them: key by key, in any order.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.limits import GUARD_MS, REFRESH_LEASE_MS, SAVED_RECENTLY_MS, SOFT_MARGIN_MS
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.stop import disconnect
from quitclaim.flows.tokens import hand_out
from quitclaim.ports import Key
from tests.proof.histories import FOREVER, Grant, History, Model, Operation
from tests.proof.judge import faults_of_state
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import HOUR_MS, REF, SECOND, connected
from tests.proof.stepping import Call, Process, explore
from tests.proof.table import TableCall
from tests.proof.world import Ports, World

HISTORIES: Final = 10_000 if NIGHTLY else 1_000
CHUNKS: Final = 20
REFS: Final = (REF, SECOND)
STEPS_MS: Final = (SAVED_RECENTLY_MS, REFRESH_LEASE_MS + GUARD_MS, HOUR_MS - SOFT_MARGIN_MS, HOUR_MS)
MOMENTS: Final = {
    "just saved": 0,
    "fresh": SAVED_RECENTLY_MS,
    "soft": HOUR_MS - SOFT_MARGIN_MS,
    "expired": HOUR_MS,
}
WEIGHTS: Final = {"token": 6, "disconnect": 2, "delete": 1}


@dataclass
class Request(Process):
    """A process that remembers its calls."""

    made: list[Call] = field(default_factory=list)

    def before(self, call: Call) -> None:
        """As any process."""
        super().before(call)
        self.made.append(call)


class Run:
    """One history as it happens: processes, each of them an operation, in an order that the caller chooses."""

    def __init__(self, world: World, *, may_lose: bool) -> None:
        self.world = world
        grants = {
            ref.connection: Grant(int(item["generation"]), int(item["tv"]))
            for ref in REFS
            if (item := world.table.item(Key(f"O#{ref.tenant}#{ref.owner}", f"G#{ref.connection}#main"))) is not None
        }
        self.history = History(Model(grants), may_lose=may_lose)
        self.processes: list[Request] = []
        self.saves: list[Operation] = []
        self.now = 0
        self.instant: Callable[[], int] = lambda: self.now
        self._versions = {name: (grant.generation, grant.version) for name, grant in grants.items()}
        world.table.watch(after=self._wrote)

    def _wrote(self, call: TableCall) -> None:
        """A refreshed token is saved at one instant, which the table knows."""
        for write in call.writes:
            item = self.world.table.item(write.key)
            name = write.key.sk.split("#")[1] if write.key.sk.startswith("G#") else ""
            if item is not None and name in self._versions:
                version = (int(item["generation"]), int(item["tv"]))
                if version != self._versions[name]:
                    self._versions[name] = version
                    at = self.instant()
                    self.saves.append(Operation("save", name, invoked=at, returned=at, result=version))

    def ask(self, operation: Operation) -> None:
        """An operation, not begun."""
        operation.invoked = -1
        number, flow = len(self.processes), _flow(operation)
        self.history.operations.append(operation)
        self.processes.append(Request(f"p{number}", lambda process: flow(Ports(self.world, process))))

    def step(self, number: int) -> None:
        """Let one of them make its next call. It is asked when it first moves, and answered when it is done."""
        process, operation = self.processes[number], self.history.operations[number]
        self.now += 1
        if operation.invoked < 0:
            operation.invoked = self.now
            process.begin()
        else:
            process.advance()
        self.note(number)

    def note(self, number: int) -> None:
        """Its answer, if it has one."""
        process, operation = self.processes[number], self.history.operations[number]
        if process.is_done and not process.is_crashed:
            operation.returned, operation.result, operation.error = self.now, process.result, process.error

    def faults(self) -> list[str]:
        """What is wrong with it."""
        wrong = [
            f"{each.what} ended with {type(each.error).__name__}: {each.error}"
            for each in self.history.operations
            if each.error is not None and not isinstance(each.error, QuitclaimError)
        ]
        whole = replace(self.history, operations=[*self.history.operations, *self.saves])
        return wrong + whole.faults() + faults_of_state(self.world)


def _flow(operation: Operation) -> Callable[[Ports], Any]:
    ref = next((ref for ref in REFS if ref.connection == operation.connection), REF)

    def token(ports: Ports) -> tuple[int, int]:
        token = hand_out(ref, "main", 0, ports.deadline, ports.handing_out)
        version = (ref.connection, token.generation, token.token_version)
        _must_be_of_its_version(ports, token.access_token.reveal(), version)
        return token.generation, token.token_version

    def stop(ports: Ports) -> int:
        return disconnect(ref, operation.seen, ports.stopping).generation

    def delete(ports: Ports) -> None:
        delete_owner(ref.of_owner, ports.stopping)

    return {"token": token, "disconnect": stop, "delete": delete}[operation.what]


def _must_be_of_its_version(ports: Ports, token: str, version: tuple[str, int, int]) -> None:
    """One version is one token, whoever gets it (I-6)."""
    known = ports.look(lambda world: world.seen.answers.setdefault(f"{version}", token))
    if known != token:
        ports.violation(f"I-6: version {version} is {known} and {token}")


def a_world(kind: Kind, moment: str, faults: Sequence[Fault] = ()) -> World:
    """Two live connections of one owner, whose tokens are fresh, soft or expired, or were saved just now."""
    world = World(kind)
    for ref in REFS:
        connected(world, ref, ref.connection)
    world.now += MOMENTS[moment]
    world.faults["refresh"] = list(faults)
    return world


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_random_history_has_an_order_that_explains_it(chunk: int) -> None:
    """Up to six requests, some killed on the way; time passes, and the provider is silent or refuses now and then."""
    violations = []
    for number in range(chunk, HISTORIES, CHUNKS):
        chance = random.Random(f"{SEED}/hand-outs/{number}")
        kind = Kind(chance.choice(list(Refreshing)))
        faults = chance.choices(_faults_of(kind), [6, 1, 1, 1], k=4)
        world = a_world(kind, chance.choice(list(MOMENTS)), faults)
        world.batch_order = _in_any_order(chance)
        run = Run(world, may_lose=any(fault is not Fault.NONE for fault in faults))
        for _ in range(chance.randrange(2, 7)):
            what = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            run.ask(Operation(what, chance.choice(REFS).connection if what != "delete" else "", seen=1))
        play(run, chance)
        violations += [f"history {number}, {kind.label}, {faults}: {each}" for each in run.faults()]

    note("T-16 random histories", len(range(chunk, HISTORIES, CHUNKS)), len(violations))
    assert not violations, f"seed {SEED!r}\n" + "\n".join(violations[:5])


def _faults_of(kind: Kind) -> list[Fault]:
    """A provider that ends a family on reuse does so when it refuses: a refusal that ends nothing is not its way."""
    refused = Fault.NONE if kind.refreshing is Refreshing.REUSE else Fault.REFUSED
    return [Fault.NONE, Fault.LOST, Fault.NOT_ACTED, refused]


def _in_any_order(chance: random.Random) -> Callable[[Sequence[Key]], Sequence[Key]]:
    return lambda keys: chance.sample(list(keys), len(keys))


def play(run: Run, chance: random.Random) -> None:
    """
    Any of them next; one may be killed, and time may pass, but not between a check and its send, nor between the time
    that a save names and the save: no worker lives as long as a hand-out looks back (docs/proof.md).
    """
    while left := [number for number, process in enumerate(run.processes) if not process.is_done]:
        number = chance.choice(left)
        process = run.processes[number]
        if process.pending is not None and chance.random() < 0.02:
            process.crash()
            run.history.may_lose = True  # a refresh whose token died with its worker
            continue
        if chance.random() < 0.08 and not any(map(_is_timed, run.processes)):
            run.world.now += chance.choice(STEPS_MS)
            run.history.may_lose = True  # a refresh that another took over
        run.step(number)


def _is_timed(process: Process) -> bool:
    """Whether it is about to do what rests on the time that it has read."""
    return process.pending is not None and (process.pending.is_send or process.pending.what == "write update G")


@pytest.mark.parametrize("order", ["as asked", "the other way"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("refreshing", Refreshing, ids=str)
@pytest.mark.parametrize("what", ["disconnect", "delete", "token"])
def test_every_order_of_a_hand_out_and_another_request(
    what: str, refreshing: Refreshing, moment: str, order: str
) -> None:
    """A token call beside a disconnect, an owner's deletion or another token call, in every order of their calls."""
    world = a_world(Kind(refreshing), moment)
    world.batch_order = (lambda keys: keys) if order == "as asked" else (lambda keys: list(reversed(keys)))
    saved = world.save()
    run: Run
    violations: list[str] = []

    def restart() -> list[Process]:
        nonlocal run
        world.restore(saved)
        run = Run(world, may_lose=False)
        run.ask(Operation("token", "c"))
        run.ask(Operation(what, "" if what == "delete" else "c", seen=1))
        run.instant = lambda: sum(process.calls for process in run.processes)
        return list(run.processes)

    def judge(processes: list[Process], schedule: list[int]) -> None:
        for number, other in ((0, 1), (1, 0)):
            run.history.operations[number].invoked, run.now = _met(run, schedule, number, other)
            run.note(number)
        violations.extend(f"{schedule}: {each}" for each in run.faults())

    cases, is_complete = explore(restart, judge)

    note("T-16 pairs in every order", cases, len(violations))
    assert is_complete
    assert not violations, "\n".join(violations[:5])


def _met(run: Run, schedule: list[int], number: int, other: int) -> tuple[int, int]:
    """
    When a request was asked and answered, at the narrowest: schedules that differ by independent calls only are run
    once, so what it did before and after all that the other minds may as well have been next to it.
    """
    moves = [at for at, chosen in enumerate(schedule, 1) if chosen == number]
    theirs = run.processes[other].made
    mine = zip(moves, run.processes[number].made, strict=True)
    matter = [at for at, call in mine if any(call.depends_on(each) for each in theirs)]
    return min(matter, default=0), max(matter, default=len(schedule))


# --- the checker -----------------------------------------------------------------------------------------------------


def _told(what: str, invoked: int, returned: int, answer: Any) -> Operation:
    is_error = isinstance(answer, type)
    return Operation(
        what,
        "" if what == "delete" else "c",
        1,
        invoked,
        returned,
        None if is_error else answer,
        answer() if is_error else None,
    )


def _history(*operations: tuple[str, int, int, Any]) -> History:
    return History(Model({"c": Grant(1, 1)}), [_told(*each) for each in operations])


@pytest.mark.parametrize(
    "history",
    [
        _history(("token", 3, 4, (1, 1)), ("disconnect", 1, 2, 2)),
        _history(("token", 3, 4, (1, 1)), ("delete", 1, 2, None)),
        _history(("save", 1, 1, (1, 2)), ("token", 3, 4, (1, 1))),
        _history(("token", 1, 2, (1, 2))),
        _history(("delete", 1, 2, None), ("save", 3, 3, (1, 2)), ("token", 1, 4, (1, 2))),
        _history(("token", 1, 2, (2, 1))),
        _history(("disconnect", 1, 2, 2), ("disconnect", 3, 4, 3), ("token", 5, 6, (1, 1))),
    ],
    ids=[
        "after a stop",
        "after a deletion",
        "older after newer",
        "a version nobody saved",
        "saved after a deletion",
        "a generation to come",
        "after two stops",
    ],
)
def test_the_checker_refuses_what_cannot_be(history: History) -> None:
    """Each breaks one rule, and nothing else."""
    assert history.faults()


@pytest.mark.parametrize(
    "history",
    [
        _history(("token", 1, 4, (1, 1)), ("disconnect", 2, 3, 2)),
        _history(("token", 1, 6, (1, 2)), ("token", 2, 3, (1, 1)), ("save", 4, 4, (1, 2)), ("token", 7, 8, (1, 2))),
        _history(("delete", 1, FOREVER, None), ("token", 2, 3, (1, 1))),
    ],
    ids=["a stop meanwhile", "a refresh meanwhile", "a deletion that may not have happened"],
)
def test_the_checker_takes_what_can_be(history: History) -> None:
    """Each has an order that explains it."""
    assert history.faults() == []
