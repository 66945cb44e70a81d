"""
T-10: poisoned items. In every situation each attribute of each item is dropped, retyped, enlarged or corrupted, one at
a time, and then the schedules run for a day.

One poisoned item may cost its own connection something, never anybody else, and never in silence: every run goes on to
its end; other owners come to rest in five minutes; nothing alive is called revoked; and what can no longer come to rest
by itself is reported by every run (the fault handed to telemetry), or stands in the owner's status.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import AUTHORIZATION_MS, GUARD_MS, MINUTE, REFRESH_LEASE_MS, TICKET_MS, WINDOW_MS
from quitclaim.domain.revocations import Reach
from quitclaim.domain.stop import Level
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.status import status
from quitclaim.ports import Key
from quitclaim.store.reads import Reads
from tests.proof.ledger import Fault, Issued, Kind, Refreshing
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.scripts import (
    HOUR_MS,
    SITUATIONS,
    Situation,
    attempted,
    begin,
    connected,
    handler_callback,
    handler_disconnect,
    handler_token,
)
from tests.proof.test_schedules import EVERY_MINUTE, SCHEDULES
from tests.proof.upkeep import run_reconcile, run_sweep
from tests.proof.world import PatientDeadline, World

PER_SITUATION: Final = 20 if NIGHTLY else 6
READERS: Final = {
    "revoke": "as_revocation",
    "exchange": "as_exchange",
    "refresh": "as_grant",
    "deletion": "as_owner",
    "finish": "as_revocation",
    "wake": "as_account",
    "stop": "as_intent",
    "connection": "as_connection",
}
"""What is due of the schedules that run every minute, and how it is read."""
MANY: Final = 120
"""More than a page of what is due."""
INDEXED: Final = frozenset({"d1", "d2", "a1", "a2", "r1", "r2"})
"""Keys of an index: DynamoDB takes nothing but text there, so none is ever of another type."""
LARGE: Final = 100_000
MINUTES: Final = (1, 1, 1, 1, 1, 15, 60, 5 * 60, 18 * 60 - 19, 5, 60)
"""Five minutes in which the neighbours must come to rest; then to the deadline, and past it."""
NEIGHBOUR_RUNS: Final = 5
"""In which maintenance runs too; later it compacts what the judge must see."""

type Item = Mapping[str, Any]


@dataclass(frozen=True)
class Mutant:
    """One attribute of one item, and what becomes of it."""

    key: Key
    ty: str
    attribute: str
    how: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.ty} {self.key.pk} {self.key.sk}: {self.attribute} {self.how}"


def mutants_of(item: Item) -> Iterator[Mutant]:
    """Everything that this technique does to an item."""
    key = Key(item["PK"], item["SK"])
    for name, value in sorted(item.items()):
        if name in ("PK", "SK"):
            continue
        yield Mutant(key, item["ty"], name, "dropped")
        for how, changed in _changes(value):
            if name not in INDEXED or (isinstance(changed, str) and len(changed) <= 1_000):
                yield Mutant(key, item["ty"], name, how, changed)


def _changes(value: Any) -> list[tuple[str, Any]]:
    match value:
        case bool():
            return [("retyped", "yes"), ("corrupted", not value)]
        case str():
            return [("retyped", 7), ("enlarged", value * (1 + LARGE // max(len(value), 1))), ("corrupted", f"?{value}")]
        case int():
            return [("retyped", str(value)), ("enlarged", 10**30), ("corrupted", -value - 1)]
        case bytes():
            return [("retyped", "text"), ("enlarged", value + b"?" * LARGE), ("corrupted", b"?" + value[1:])]
        case frozenset():
            return [("retyped", "text"), ("enlarged", frozenset(f"x{n}" for n in range(2_000))), ("corrupted", {"?"})]
        case list():
            return [("retyped", "text"), ("enlarged", value * 200), ("corrupted", ["?"])]
        case dict():
            return [("retyped", "text"), ("enlarged", {f"x{n}": 1 for n in range(2_000)}), ("corrupted", {"?": 1})]
    raise AssertionError(f"what is {value!r}?")


# --- the neighbours --------------------------------------------------------------------------------------------------


def settle_neighbours(world: World) -> None:
    """Other owners, each of whom waits for another schedule: a revocation, an exchange, a refresh, a link."""
    tenant = "neighbours"
    for number in range(4):
        ref = ConnectionRef(tenant, f"stopped-{number}", "c")
        connected(world, ref, f"stopped-{number}")
        world.run(handler_disconnect(ref))
    lost = ConnectionRef(tenant, "lost", "c")
    world.faults["exchange"] = [Fault.LOST]
    brought = begin(world, lost, "lost")
    attempted(world, handler_callback(brought))
    unseen = ConnectionRef(tenant, "unseen", "c")
    connected(world, unseen, "unseen")
    begin(world, ConnectionRef(tenant, "link", "c"), "link")
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token(unseen))
    world.now += max(REFRESH_LEASE_MS, WINDOW_MS, TICKET_MS + AUTHORIZATION_MS) + 2 * GUARD_MS
    world.faults.clear()


def waiting_neighbours(world: World) -> set[str]:
    """What of theirs is not at rest."""
    found = set()
    for item in world.table.items():
        if _is_neighbours(item) and item.get("d1", "publish").split("#")[0] not in ("publish", "compact", "keepalive"):
            found.add(f"I-16: {item['PK']} {item['SK']} of a neighbour still waits: {item['d1']}")
    return found


def _is_neighbours(item: Item) -> bool:
    return item["PK"].startswith("O#neighbours#") or item.get("t") == "neighbours"


# --- one case --------------------------------------------------------------------------------------------------------


@dataclass
class Poisoned:
    """A world with neighbours, poisoned anew for each mutant."""

    world: World
    saved: Any
    theirs: frozenset[tuple[str, str]]
    waiting: frozenset[str] = frozenset()
    """What waits for a person however sound everything is."""
    told_before: frozenset[str] = frozenset()
    """What lives, and was acknowledged and let go."""
    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, situation: Situation) -> "Poisoned":
        """Make it."""
        world = World(situation.kind, situation.confirmation)
        world.deadline_of = PatientDeadline  # a replay is another function's: no wait of its caller costs it anything
        settle_neighbours(world)
        theirs = frozenset((item["PK"], item["SK"]) for item in world.table.items())
        situation.build(world)
        world.faults.clear()
        made = cls(world, world.save(), theirs)
        world.on_fault = lambda kind, fault: made.faults.append(f"{kind}: {type(fault).__name__}")
        world.is_sound = False
        made.waiting = frozenset(made._lived())
        made.told_before = frozenset(made._silent())
        assert not made.faults, f"the schedules fail on a sound table: {made.faults}"
        world.restore(made.saved)
        return made

    def mutants(self) -> list[Mutant]:
        """All of them, the neighbours' own items left alone."""
        return [
            mutant
            for item in self.world.table.items()
            if (item["PK"], item["SK"]) not in self.theirs and not _is_neighbours(item)
            for mutant in mutants_of(item)
        ]

    def judged(self, mutant: Mutant) -> list[str]:
        """What is wrong with how the schedules take it."""
        world = self.world
        world.restore(self.saved)
        self.faults.clear()
        item = dict(world.table.item(mutant.key) or {})
        if mutant.how == "dropped":
            del item[mutant.attribute]
        else:
            item[mutant.attribute] = mutant.value
        world.table.plant(mutant.key, item)
        lived = self._lived() - self.waiting
        return sorted(
            lived | set(self._called_revoked() + self._stuck(mutant)) | (set(self._silent()) - self.told_before)
        )

    def _lived(self) -> set[str]:
        """A day of schedules; which run ended early, and which neighbour was kept waiting for five minutes."""
        found: set[str] = set()
        for number, minutes in enumerate(MINUTES, 1):
            self.world.now += minutes * MINUTE
            self.faults.clear()
            found |= self._run([*SCHEDULES] if number <= NEIGHBOUR_RUNS else [*EVERY_MINUTE])
            if number == NEIGHBOUR_RUNS:
                found |= waiting_neighbours(self.world)
        return found

    def _run(self, names: list[str]) -> set[str]:
        found = set()
        for name in names:
            try:
                self.world.run(SCHEDULES[name])
            except Exception as fault:  # noqa: BLE001 - the very thing that must not happen
                found.add(f"C-42: {name} ended with {type(fault).__name__}: {fault}")
        return found

    def _called_revoked(self) -> list[str]:
        """I-13: a revocation says confirmed, and its token lives."""
        alive = {token.name for token in self._alive() if not self._has_grant(self._ref_of(token))}
        found = []
        for item in self.world.table.items():
            if item["PK"].startswith("Q#") and item.get("state") == "confirmed":
                left = self.world.seen.sealed_in.get(item["PK"][2:], set()) & alive
                found += [f"I-13: {item['PK']} is confirmed and {token} lives" for token in left]
        return found

    def _silent(self) -> list[str]:
        """I-1: a token lives, no run complains, and its owner's status says nothing."""
        if self.faults:
            return []
        wrong = _has_wrong_count(self.world)
        return [
            f"I-1: {token.name} of {self._ref_of(token)} lives, and nothing says so"
            for token in self._alive()
            if not wrong and not self._is_parked(token)
            if not self._has_grant(self._ref_of(token)) and not self._is_told(self._ref_of(token))
        ]

    def _ref_of(self, token: Issued) -> ConnectionRef:
        spent = self.world.ledger.spent_codes.items()
        code = next(code for code, family in spent if family == token.family)
        return ConnectionRef(*code.split("/")[:3])

    def _is_parked(self, token: Issued) -> bool:
        """Released, beside another grant of its account, which lives."""
        is_used = any(each.account == token.account and self._has_grant(self._ref_of(each)) for each in self._alive())
        return is_used and any(
            item.get("state") == "parked" and token.name in self.world.seen.sealed_in.get(item["PK"][2:], ())
            for item in self.world.table.items()
        )

    def _alive(self) -> list[Issued]:
        return self.world.ledger.alive()

    def _stuck(self, mutant: Mutant) -> list[str]:
        """C-42: it cannot even be read, is overdue for an hour, and no run says so, and nobody is shown it."""
        item = self.world.table.item(mutant.key)
        if item is None or self.faults or "a1" in item or not isinstance(item.get("d1"), str):
            return []
        kind, at = item["d1"].split("#")[0], str(item.get("d2", "")).split("#")[0]
        if kind not in READERS or not at.isdigit() or int(at) > self.world.now - 60 * MINUTE:
            return []
        try:
            getattr(Reads(self.world.table), READERS[kind])(dict(item))
        except Exception:  # noqa: BLE001 - whatever it is
            return [f"C-42: {mutant.key.sk} of {mutant.key.pk} stays due for {kind}, and nobody says so"]
        return []

    def _has_grant(self, ref: ConnectionRef) -> bool:
        """Sound or not: it is there, and its stop takes it."""
        return self.world.table.item(Key(f"O#{ref.tenant}#{ref.owner}", f"G#{ref.connection}#main")) is not None

    def _is_told(self, ref: ConnectionRef) -> bool:
        try:
            told = self.world.run(
                lambda ports: status(ref.of_owner, reads=ports.reads, clients=ports.clients, clock=ports.clock)
            )
        except Exception:  # noqa: BLE001 - an error of the status is answered, logged and alarmed
            return True
        levels = [each.level for each in told.notices if each.connection_id == ref.connection]
        return bool(told.blockers) or any(level >= Level.PENDING for level in levels)


def _has_wrong_count(world: World) -> bool:
    """An account whose counts are not those of its members and markers: the inspection of `maintain` tells of it."""
    items = list(world.table.items())
    return any(
        item.get(name) != sum(other["PK"] == item["PK"] and other["SK"].startswith(prefix) for other in items)
        for item in items
        if item["PK"].startswith("E#") and item["SK"] == "A"
        for name, prefix in (("live", "C#"), ("parked", "P#"))
    )


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_one_poisoned_item_harms_nobody_else_and_never_in_silence(situation: Situation) -> None:
    """A sample of the mutants of every situation; each item type and each kind of change comes up in many of them."""
    poisoned = Poisoned.of(situation)
    mutants = poisoned.mutants()
    chance = random.Random(f"{SEED}/{situation.name}")
    chosen = chance.sample(mutants, min(PER_SITUATION, len(mutants)))
    violations = [f"{situation.name} / {mutant}: {each}" for mutant in chosen for each in poisoned.judged(mutant)]

    note("T-10 poison mutants", len(chosen), len(violations))
    assert not violations, f"seed {SEED!r}\n" + "\n".join(violations[:12])


@pytest.mark.parametrize("kind", READERS)
def test_however_many_are_poisoned_those_behind_them_have_their_turn(kind: str) -> None:
    """More than a page of items that fail, all due before the sound one: one run takes the sound one all the same."""
    world = World(Kind(Refreshing.STATIC, Reach.ACCOUNT))
    world.on_fault, world.is_sound = lambda kind, fault: None, False
    sound = due_of(kind, world)
    before = dict(world.table.item(sound) or {})
    for number in range(MANY):
        poisoned = {"ty": before["ty"], "d1": before["d1"], "d2": f"{number:013d}#poison"}
        world.table.plant(Key(f"{sound.pk[:2]}poison#{number}", sound.sk), poisoned)

    world.run(run_sweep if kind == "revoke" else run_reconcile)

    after = world.table.item(sound)
    note("T-10 many poisoned items", 1, int(after == before))
    assert after != before


def due_of(kind: str, world: World) -> Key:
    """Make something of the kind that is due now; its key."""
    ref = ConnectionRef("t", "o", "c")
    match kind:
        case "exchange":
            process = world.process("dead", handler_callback(begin(world, ref)))
            process.begin()
            while process.pending is not None and process.pending.what != "answer to exchange":
                process.advance()
            process.crash()
            world.now += WINDOW_MS + GUARD_MS
        case "refresh":
            connected(world, ref)
            world.now += HOUR_MS
            world.faults["refresh"] = [Fault.LOST]
            attempted(world, handler_token(ref))
            world.now += REFRESH_LEASE_MS + GUARD_MS
        case "connection":
            begin(world, ref)
            world.now += TICKET_MS + AUTHORIZATION_MS + 2 * GUARD_MS
        case _:
            connected(world, ref)
    if kind == "deletion":
        world.run(lambda ports: delete_owner(ref.of_owner, ports.stopping))
    if kind in ("revoke", "stop", "finish"):
        world.run(handler_disconnect(ref))
    if kind == "finish":
        world.run(run_sweep)
    if kind == "wake":
        other = ConnectionRef("t", "o2", "c")
        connected(world, other)
        world.run(handler_disconnect(ref))
        world.run(run_sweep)
        world.run(handler_disconnect(other))
    found = [item for item in world.table.items() if item.get("d1", "").split("#")[0] == kind]
    assert len(found) == 1, [item["SK"] for item in found]
    return Key(found[0]["PK"], found[0]["SK"])


def test_a_poisoned_revocation_keeps_nobody_else_parked() -> None:
    """Several owners' revocations wait beside one account; the first of them is poisoned, and the others are woken."""
    world = World(Kind(Refreshing.STATIC, Reach.ACCOUNT))
    told: list[str] = []
    world.on_fault, world.is_sound = lambda kind, fault: told.append(kind), False
    refs = [ConnectionRef("t", owner, "c") for owner in ("one", "two", "three", "last")]
    for ref in refs:
        connected(world, ref)
    for ref in refs[:3]:
        world.run(handler_disconnect(ref))
    world.run(run_sweep)
    parked = sorted(item["PK"] for item in world.table.items() if item.get("state") == "parked")
    world.table.alter(Key(parked[0], "Q"), {"reach": 7})

    world.run(handler_disconnect(refs[3]))
    world.run(run_reconcile)

    states = [str((world.table.item(Key(pk, "Q")) or {})["state"]) for pk in parked]
    note("T-10 many poisoned items", 1, int(states != ["parked", "pending", "pending"]))
    assert states == ["parked", "pending", "pending"]
    assert "wake" in told


def test_a_poisoned_connection_keeps_no_other_of_its_owner_alive() -> None:
    """Of a deleted owner's connections one is unreadable: it is told of, and the others are stopped and revoked."""
    world = World()
    told: list[str] = []
    world.on_fault, world.is_sound = lambda kind, fault: told.append(kind), False
    refs = [ConnectionRef("t", "o", name) for name in ("a", "b", "c")]
    for ref in refs:
        connected(world, ref, ref.connection)
    world.run(lambda ports: delete_owner(refs[0].of_owner, ports.stopping))
    world.table.alter(Key("O#t#o", "C#b"), {"state": "?"})

    world.run(run_reconcile)
    world.run(run_sweep)

    alive = [token.name for token in world.ledger.alive() if token.account != "b"]
    note("T-10 many poisoned items", 1, len(alive))
    assert alive == []
    assert told == ["deletion"]
