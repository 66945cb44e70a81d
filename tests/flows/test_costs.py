"""
What each path costs at the table: its calls, the actions of its writes, and the index entries that they add, remove or
move. Money is written down as counts; a change of them is seen here before it is seen on a bill.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from quitclaim.domain.errors import NeedsReconnectError
from quitclaim.domain.limits import SAVED_RECENTLY_MS
from tests.fakes.tables import Everything, Spent
from tests.flows.world import GOOGLE, World

type Worlds = Callable[..., World]
INDEXES = (("d1", "d2"), ("a1", "a2"), ("r1", "r2"))
IN_ANSWER = {"identity": {"in_token_response": "user"}}


@dataclass
class Bill:
    """Calls, and for each write its base units (two an action, one alone) and its index units."""

    spent: Spent = field(default_factory=Spent)
    index: list[int] = field(default_factory=list)

    @property
    def base(self) -> list[int]:
        return [actions if actions == 1 else 2 * actions for actions in self.spent.writes]

    @property
    def writes(self) -> list[tuple[int, int]]:
        """(base, index) of each write, in order."""
        return list(zip(self.base, self.index, strict=True))


@contextmanager
def billed(world: World) -> Iterator[Bill]:
    """Everything that happens at the table in this block."""
    bill = Bill()

    def counted(apply: Callable[[], Any]) -> Any:
        before = world.stand_in.everything()
        answer = apply()
        bill.index.append(index_units(before, world.stand_in.everything()))
        return answer

    world.table.faults = [counted] * 50
    with world.table.metered() as spent:
        bill.spent = spent
        yield bill
    world.table.faults = []


def index_units(before: Everything, after: Everything) -> int:
    """One for an entry that is added or removed, two for one that moves."""
    units = 0
    for key in before.keys() | after.keys():
        old, new = before.get(key, {}), after.get(key, {})
        for names in INDEXES:
            was, is_ = (tuple(str(item.get(name)) for name in names) for item in (old, new))
            if was != is_:
                units += (names[0] in old) + (names[0] in new)
    return units


def test_a_callback_that_installs(new_world: Worlds) -> None:
    """
    Begin, hold, install: 32 base units and 8 of the indexes. Three reads: the authorization, what a begin is held to,
    and what an install is held to; six calls in all.

    The begin adds the exchange's due, the hold the revocation's; the install takes both and the connection's away,
    moves the roster and adds the event.
    """
    world = new_world("none", **IN_ANSWER)
    callback = world.callback()

    with billed(world) as bill:
        world.come_back(callback)

    assert bill.writes == [(10, 1), (4, 1), (18, 6)]
    assert bill.spent.reads == ["get", "batch", "batch"]


def test_a_callback_that_waits_for_its_owner(new_world: Worlds) -> None:
    """
    Begin, hold, identity; then the owner's code installs: 36 base units and 10 of the indexes in all. Six calls, one
    of them a look at the connection before its owner is asked for a word; then four.
    """
    world = new_world("owner")
    callback = world.callback()

    with billed(world) as bill:
        code = world.come_back(callback).confirm_code
    generation = world.connection().generation
    with billed(world) as confirmed:
        world.confirm(code, generation=generation)

    assert bill.writes + confirmed.writes == [(10, 1), (4, 3), (4, 0), (18, 6)]
    assert bill.spent.reads == ["get", "batch", "get"]
    assert confirmed.spent.reads == ["batch", "get", "batch"]


def test_a_grant_without_an_account(new_world: Worlds) -> None:
    """Two actions fewer: there is no account to count on."""
    world = new_world("none", identity=None)
    callback = world.callback()

    with billed(world) as bill:
        world.come_back(callback)

    assert bill.spent.writes == [5, 2, 7]


def test_a_grant_that_goes_by_further_names(new_world: Worlds) -> None:
    """One action of the install for each: no write and no read of their own."""
    world = new_world(
        "none",
        identity__in_token_response="sub",
        identity__also={"team": {"in_token_response": "teams.*", "field": "teams.*"}},
        webhook={
            "signature": {"scheme": "hmac", "headers": ["x-acme-signature"]},
            "event": {"accounts": {"team": ["team"]}},
        },
    )
    world.server.extra = {"sub": "alice", "teams": ["T1", "T2", "T3"]}
    callback = world.callback()

    with billed(world) as bill:
        world.come_back(callback)

    assert bill.spent.writes == [5, 2, 9 + 3]


def test_a_start_and_a_visit(world: World) -> None:
    """A start reads the fence once and writes what it makes; a visit reads ticket and fence."""
    with billed(world) as first:
        started = world.start()
    with billed(world) as visit:
        world.visit(started)
    with billed(world) as keyed:
        world.start(idempotency_key="k")

    assert (first.spent.reads, first.spent.writes) == (["batch"], [3])
    assert (visit.spent.reads, visit.spent.writes) == (["get", "batch"], [2])
    assert keyed.spent.writes == [4]


def test_a_fresh_token(world: World) -> None:
    """One read and nothing else."""
    world.connect()
    world.token()
    world.clock.move(ms=SAVED_RECENTLY_MS)

    with billed(world) as bill:
        world.token()

    assert (bill.spent.reads, bill.spent.writes) == (["batch"], [])


def test_a_refresh(world: World) -> None:
    """
    Record and save are one action each, with one index entry added and removed: four units in all. Four calls: the
    owner is read with the grant, and once more behind the save.
    """
    world.connect()
    world.clock.move(minutes=70)

    with billed(world) as bill:
        world.token()

    assert bill.writes == [(1, 1), (1, 1)]
    assert bill.spent.reads == ["batch", "get"]


def test_a_stop(world: World) -> None:
    """
    One transaction of nine actions: due are connection, revocation, intent and event, and the roster moves. Three
    calls; a later life has one more, for the stops that it may have behind it.
    """
    world.connect()

    with billed(world) as bill:
        world.disconnect(generation=1, key="k")
    world.minutes_pass(3)
    world.connect(again=True)
    with billed(world) as later:
        world.disconnect(key="l", generation=3)

    assert bill.writes == later.writes == [(18, 6)]
    assert bill.spent.reads == ["batch", "batch"]
    assert later.spent.reads == ["batch", "batch", "query"]


def test_a_loss(world: World) -> None:
    """As a stop: what the provider's verdict is on, and what goes with it."""
    world.connect()
    world.clock.move(minutes=70)
    world.server.removes("alice")

    with billed(world) as bill, pytest.raises(NeedsReconnectError):
        world.token()

    assert bill.writes == [(1, 1), (16, 6)]
    assert bill.spent.reads == ["batch", "batch", "batch"]


@pytest.mark.parametrize(("reach", "claim"), [("token", 1), ("family", 4), ("authorization", 4)])
def test_a_revocation(new_world: Worlds, reach: str, claim: int) -> None:
    """Claim and settle; then finish and close, once."""
    world = new_world("none", revocation__reach=reach)
    world.connect()
    world.disconnect()

    with billed(world) as swept:
        world.sweep()
    with billed(world) as finished:
        world.reconcile()

    assert swept.writes == [(claim, 0), (1, 2)]
    finish = 10 if reach == "authorization" else 8
    assert finished.writes[0] == (finish, 3)
    assert finished.spent.writes[1:] == [3, 1, 4]
    assert world.connection().state == "revoked"
    assert world.reads.intents(GOOGLE)[0].closed is not None
