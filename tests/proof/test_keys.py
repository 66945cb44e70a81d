"""
T-9: keys. Away at every step, for a moment, for an hour or for a day; wrong at every opening; rotated, retired and
missing at every step, with the real key ring and vault.

A key that is away or wrong costs time and nothing else (D-5, P-13): no stop needs one, nothing is erased before its
deadline, and once the keys are back everything is revoked that would have been.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import pytest

from quitclaim.domain.errors import KeyUnavailableError, SealBrokenError
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.limits import DEADLINE_MS, KEY_LEAD_MS, MINUTE
from quitclaim.flows.reconcile import reconcile
from quitclaim.flows.revocations import sweep
from quitclaim.ports import Key
from quitclaim.security.keys import CONFIRM, INDEX, PURPOSES
from quitclaim.store.keys import ring_partition
from tests.proof.real_vault import use_real_vault
from tests.proof.recovery import to_rest
from tests.proof.report import NIGHTLY, note
from tests.proof.scripts import SITUATIONS, Situation
from tests.proof.search import Bench, thrown_away, unexpected
from tests.proof.stepping import Process
from tests.proof.world import CLIENT, OpenVault, Ports, SweepDeadline, World
from tests.security.rings import FakeKms

HOUR_OF_RUNS: Final = (1, 59)
"""Minutes between the runs of an hour."""
DAY_OF_RUNS: Final = (*(1,) * 12, 48, *(60,) * 22)
"""From the stop to an hour before the deadline."""
ROTATED: Final = (
    "link open [rotating/family]",
    "held for its owner [rotating/family]",
    "token expired [rotating/family]",
    "refresh unseen [grace/token]",
    "stopped [static/account]",
    "stopped during a refresh [grace/token]",
    "access token expired, to be revoked [rotating/family/by access]",
)


def erased(world: World) -> list[str]:
    """P-13: what is gone before its deadline, and not revoked."""
    born = {"unsupported"} if not world.kind.revocable else set()
    return [
        f"P-13: {item['PK']} is {item['state']} before its deadline"
        for item in world.table.items()
        if item["ty"] == "revocation"
        and item["state"] in {"expired", "unreadable", "unsupported"} - born
        and item.get("deadline", world.now + 1) > world.now
    ]


def ended_in_notices(world: World) -> frozenset[str]:
    """Revocations that ended as no revocation should that has its key again."""
    return frozenset(
        item["PK"]
        for item in world.table.items()
        if item["ty"] == "revocation" and item["state"] in ("expired", "unreadable", "unsupported")
    )


def schedules(world: World, minutes: tuple[int, ...]) -> list[str]:
    """The schedules run, with that many minutes between; what was erased."""
    found: list[str] = []
    for each in minutes:
        world.now += each * MINUTE
        world.run(_both)
        found += erased(world)
    return found


def _both(ports: Ports) -> None:
    sweep([CLIENT], SweepDeadline(), ports.revoking)
    reconcile(SweepDeadline(), ports.reconciling)


def tolerant(world: World) -> None:
    """What cannot go on without a key says so, and stays due."""
    world.expected = (KeyUnavailableError, SealBrokenError)


# --- away ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_keys_that_go_away_at_any_step_cost_time_and_nothing_else(situation: Situation) -> None:
    """For one step; and from that step on for an hour, in which the schedules run without them."""
    bench = Bench.of(situation, tolerant)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        before = _healthy(bench, name)
        for call, is_moment in product(range(_length(bench, name)), (True, False)):
            if not NIGHTLY and is_moment == bool(call % 2):
                continue  # in CI each call meets one of the two
            cases += 1
            (process,) = bench.processes([name])
            _advance(process, call)
            bench.world.keys_out = True
            if is_moment:
                _advance(process, 1)
                bench.world.keys_out = False
            process.run()
            found = unexpected([process]) + _refused_stop(name, process) + erased(bench.world)
            if not is_moment:
                found += schedules(bench.world, HOUR_OF_RUNS)
            found += _back(bench, before)
            what = "away for a step" if is_moment else "away"
            violations += [f"{situation.name} / {name}, {what} at {call}: {each}" for each in found]

    note("T-9 keys away", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


@pytest.mark.parametrize("keys_return", [True, False], ids=["they return in time", "they never return"])
@pytest.mark.parametrize(
    "situation", [each for each in SITUATIONS if each.name.startswith("stopped")], ids=lambda each: each.name
)
def test_keys_that_stay_away_for_a_day(situation: Situation, keys_return: bool) -> None:
    """Everything is revoked if they return in time; if not, it is erased at its deadline, and its owner told."""
    bench = Bench.of(situation, tolerant)
    world = bench.world
    born = ended_in_notices(world)
    world.keys_out = True

    found = schedules(world, DAY_OF_RUNS)
    if keys_return:
        found += _back(bench, born)
    else:
        world.now += DEADLINE_MS
        schedules(world, (5, 5))
        pending = [item["PK"] for item in world.table.items() if item.get("state") == "pending"]
        alive = {token.name for token in world.ledger.alive()}
        confirmed = [
            item["PK"]
            for item in world.table.items()
            if item.get("state") == "confirmed" and world.seen.sealed_in[item["PK"][2:]] & alive
        ]
        found += [f"I-8: {pk} is pending after its deadline" for pk in pending]
        found += [f"I-13: {pk} is confirmed and its token lives" for pk in confirmed]

    note("T-9 keys away for a day", 1, len(found))
    assert not found, "\n".join(found[:12])


# --- wrong -----------------------------------------------------------------------------------------------------------


class WrongVault(OpenVault):
    """Whose *n*th opening, and each that follows if *for_good*, meets another key than the one that sealed."""

    def __init__(self, ports: Ports, plan: "Plan") -> None:
        super().__init__(ports)
        self._plan = plan

    def _open(self, *bound: Any) -> str:
        if self._plan.is_wrong():
            raise SealBrokenError
        return super()._open(*bound)


class Plan:
    """When keys are wrong: at the *at*th opening of a world, or from it on."""

    def __init__(self) -> None:
        self.count = 0
        self.at: int | None = None
        self.for_good = False

    def set(self, at: int | None, *, for_good: bool = False) -> None:
        """Begin to count."""
        self.count, self.at, self.for_good = 0, at, for_good

    def is_wrong(self) -> bool:
        """Of the next opening."""
        self.count += 1
        return self.at is not None and (self.count == self.at or (self.for_good and self.count > self.at))


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_a_wrong_key_at_any_opening_erases_nothing(situation: Situation) -> None:
    """One opening fails to authenticate; or each from it on for an hour, as with the wrong ring deployed."""
    plan = Plan()

    def prepare(world: World) -> None:
        tolerant(world)
        world.vault_of = lambda ports: WrongVault(ports, plan)

    bench = Bench.of(situation, prepare)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        plan.set(None)
        (process,) = bench.processes([name])
        process.run()
        openings, before = plan.count, _healthy(bench, name)
        for at, for_good in product(range(1, openings + 1), (False, True)):
            cases += 1
            (process,) = bench.processes([name])
            plan.set(at, for_good=for_good)
            process.run()
            found = unexpected([process]) + _refused_stop(name, process) + erased(bench.world)
            if for_good:
                found += schedules(bench.world, HOUR_OF_RUNS)
            plan.set(None)
            found += _back(bench, before)
            what = "from opening" if for_good else "opening"
            violations += [f"{situation.name} / {name}, wrong {what} {at}: {each}" for each in found]

    note("T-9 wrong keys", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


# --- rotated ---------------------------------------------------------------------------------------------------------

type Turn = Callable[[World], None]


def newer_key_active(world: World) -> None:
    """A second key of every purpose, put into the ring long ago, begins to seal."""
    world.now += 1
    for purpose in _purposes(world):
        _plant(world, purpose, "2", active_from=world.now)


def older_key_retired(world: World) -> None:
    """And the first one seals no more."""
    newer_key_active(world)
    for purpose in _purposes(world):
        if world.table.item(_ring_key(purpose, "1")) is not None:
            world.table.alter(_ring_key(purpose, "1"), {"retired": world.now})


def older_key_missing(world: World) -> None:
    """
    And the first one is not in the ring, as after a restore of another one. Not of the purpose confirm: what is derived
    under a key, and not sealed, cannot tell a key that is missing from another one.
    """
    newer_key_active(world)
    for purpose in set(_purposes(world)) - {CONFIRM}:
        item = world.table.item(_ring_key(purpose, "1"))
        if item is not None:
            world.table.plant(Key("away", purpose), item)
            world.table.erase(_ring_key(purpose, "1"))


def kms_away(world: World) -> None:
    """KMS opens nothing more; what a worker has opened it has. A newer key begins that nobody has opened."""
    newer_key_active(world)


def _purposes(world: World) -> list[str]:
    found = {item["SK"].split("#")[0] for item in world.table.items() if item["PK"] == ring_partition()}
    return sorted(found - {INDEX})  # never turned: its digests are parts of table keys


def _plant(world: World, purpose: str, kid: str, *, active_from: int) -> None:
    number = 1000 + sorted(PURPOSES).index(purpose)
    item = RingItem(purpose, kid, f"{number}:{purpose}".encode(), active_from - KEY_LEAD_MS, active_from)
    stored = {"wrapped": item.wrapped, "created": item.created, "active_from": item.active_from}
    world.table.plant(_ring_key(purpose, kid), stored | {"ty": "ring", "sv": 1, "v": 1, "op": "planted"})


def _ring_key(purpose: str, kid: str) -> Key:
    return Key(ring_partition(), f"{purpose}#{kid}")


def _put_back(world: World) -> None:
    for item in [item for item in world.table.items() if item["PK"] == "away"]:
        world.table.plant(_ring_key(item["SK"], "1"), item)
        world.table.erase(Key("away", item["SK"]))


TURNS: Final[tuple[Turn, ...]] = (newer_key_active, older_key_retired, older_key_missing, kms_away)


@pytest.mark.parametrize("turn", TURNS, ids=lambda each: each.__name__.replace("_", " "))
@pytest.mark.parametrize(
    "situation",
    [each for each in SITUATIONS if NIGHTLY or each.name in ROTATED],
    ids=lambda each: each.name,
)
def test_keys_turn_at_any_step(situation: Situation, turn: Turn) -> None:
    """The worker under way has its own copy of the ring, those that come after it do not; all of them open all."""
    kms = FakeKms()
    bench = Bench.of(situation, lambda world: use_real_vault(world, kms))
    tolerant(bench.world)
    violations: list[str] = []
    cases = 0
    for name in bench.handlers:
        before = _healthy(bench, name)
        for call in range(_length(bench, name)):
            cases += 1
            (process,) = bench.processes([name])
            _advance(process, call)
            turn(bench.world)
            kms.is_out = turn is kms_away
            process.run()
            found = unexpected([process]) + _refused_stop(name, process) + erased(bench.world)
            found += thrown_away(bench.world, process)
            if turn in (older_key_missing, kms_away):
                found += schedules(bench.world, HOUR_OF_RUNS)
                too_late = _over(bench.world)
                kms.is_out = False
                _put_back(bench.world)
            else:
                bench.world.now += KEY_LEAD_MS
                too_late = frozenset()
            found += _back(bench, before | too_late)
            violations += [f"{situation.name} / {name}, {turn.__name__} at {call}: {each}" for each in found]

    note("T-9 keys turn", cases, len(violations))
    assert not violations, "\n".join(violations[:12])


def test_every_turned_situation_exists() -> None:
    """A situation that was renamed would be left out unseen."""
    assert set(ROTATED) <= {situation.name for situation in SITUATIONS}


# --- one case --------------------------------------------------------------------------------------------------------


def _length(bench: Bench, name: str) -> int:
    """How many calls a handler makes with its keys at hand."""
    (process,) = bench.processes([name])
    process.run()
    return process.calls


def _advance(process: Process, steps: int) -> None:
    if process.pending is None and not process.is_done:
        process.begin()
    for _ in range(steps):
        if not process.is_done:
            process.advance()


def _refused_stop(name: str, process: Process) -> list[str]:
    """A stop needs no key (D-5)."""
    is_refused = "disconnect" in name and isinstance(process.error, KeyUnavailableError | SealBrokenError)
    return [f"D-5: a stop was refused with {type(process.error).__name__}"] if is_refused else []


def _healthy(bench: Bench, name: str) -> frozenset[str]:
    """What ends in a notice although every key is at hand."""
    (process,) = bench.processes([name])
    process.run()
    to_rest(bench.world)
    return ended_in_notices(bench.world)


def _over(world: World) -> frozenset[str]:
    """Whose deadline passed while a key was away: a notice is its end."""
    late = (
        item
        for item in world.table.items()
        if item["ty"] == "revocation" and item.get("deadline", world.now) <= world.now
    )
    return frozenset(item["PK"] for item in late)


def _back(bench: Bench, before: frozenset[str]) -> list[str]:
    """The keys are back: all comes to rest, and nothing ends in a notice for the want of a key."""
    world = bench.world
    world.keys_out = False
    found = bench.judged([])
    if not found:
        to_rest(world)
        notices = ended_in_notices(world) - before
        if world.kind.revocable and not world.kind.pair_lives:  # else a notice is its end, keys or no keys
            found += [f"P-13: {pk} ended in a notice" for pk in notices]
    return found
