"""
Every state of a queued revocation against everything that can happen to it: one test a row of the table of states and
events, one case a cell.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from quitclaim.domain.attention import Subject
from quitclaim.domain.errors import MovedError, QuitclaimError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    CLAIM_LEASE_MS,
    COMPACT_MS,
    CONFIRM_MS,
    DEADLINE_MS,
    GUARD_MS,
    REFRESH_LEASE_MS,
    WRONG_CODES,
)
from quitclaim.domain.revocations import Revocation
from quitclaim.flows.connect.browser import CallbackOutcome
from quitclaim.flows.operator import retry
from quitclaim.flows.revocations import finish_settled
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.revocations import RevocationStore
from tests.fakes.provider import Misbehaviour, after, answers, killed
from tests.fakes.tables import WorkerKilledError
from tests.flows.test_maintain import Upkeep
from tests.flows.test_operator import OPERATOR, operating
from tests.flows.test_revocations import broken_seal, replace_calls
from tests.flows.world import GOOGLE, OWNER, World

type Worlds = Callable[..., World]
type Step = Callable[[World], object]
ELSEWHERE = ConnectionRef("another-app", "eve", "calendar")
NO_REVOCATION = {"revocation": {"shape": "none", "manual_page": "https://acme.example.com/apps"}}
WIDE = {"revocation__reach": "authorization"}
GONE = "gone"


def then(*steps: Step) -> Step:
    """One after the other."""
    return lambda world: [step(world) for step in steps]


# --- into each state -------------------------------------------------------------------------------------------------


def hold(world: World) -> CallbackOutcome:
    """The grant waits for its owner."""
    return world.come_back(world.callback())


def hold_ends(world: World) -> None:
    world.clock.move(ms=CONFIRM_MS + GUARD_MS)


def wrong_codes(world: World) -> None:
    for _ in range(WRONG_CODES):
        code_of(lambda: world.confirm(None))


def connect(world: World) -> None:
    """The grant is the live one: it is in no queue."""
    code = hold(world).confirm_code
    if code is not None:
        world.confirm(code)


def stop(world: World) -> None:
    world.disconnect()


def claim(world: World) -> None:
    """A worker has claimed it and waits for the provider. What it would make of the answer never happens."""
    world.server.next("/revoke", killed_before_it_acts)
    with pytest.raises(WorkerKilledError):
        replace_calls(world).sweep()


def killed_before_it_acts(act: Any, request: Any) -> Any:
    raise WorkerKilledError


def lease_ends(world: World) -> None:
    world.clock.move(ms=CLAIM_LEASE_MS + GUARD_MS)


def sweep(world: World) -> None:
    world.sweep()


def deadline_ends(world: World) -> None:
    """The deadline and the guard are over, and the sweep sees it."""
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.sweep()


def lose_a_successor(world: World) -> None:
    """A refresh was under way when the connection was stopped, and its worker died."""
    world.clock.move(seconds=50)
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.token()
    world.disconnect()
    world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)


def spoil(world: World) -> None:
    """It does not open any more."""
    broken_seal(world, the_rid(world))


def lives_elsewhere(world: World) -> None:
    """Somebody else's connection to the same account lives."""
    world.server.lifetime_s = 3600
    outcome = world.come_back(world.callback(ELSEWHERE))
    if outcome.confirm_code is not None:
        world.confirm(outcome.confirm_code, ELSEWHERE)


free = then(connect, stop)
parked = then(lives_elsewhere, connect, stop, sweep)
expired = then(connect, stop, deadline_ends)


@dataclass(frozen=True)
class State:
    """How a revocation gets there, in which world, and what it is called in the table."""

    arrange: Step
    name: str
    facts: tuple[tuple[str, object], ...] = ()


STATES: dict[str, State] = {
    "held": State(hold, "pending"),
    "held, over": State(then(hold, hold_ends), "pending"),
    "free": State(free, "pending"),
    "claimed": State(then(free, claim), "pending"),
    "claimed, over": State(then(free, claim, lease_ends), "pending"),
    "parked": State(parked, "parked", tuple(WIDE.items())),
    "confirmed": State(then(free, sweep), "confirmed"),
    "unconfirmed": State(then(connect, lose_a_successor, sweep), "unconfirmed"),
    "expired": State(expired, "expired"),
    "unreadable": State(then(connect, stop, spoil, sweep, deadline_ends), "unreadable"),
    "unsupported": State(then(hold, wrong_codes, sweep), "unsupported", tuple(NO_REVOCATION.items())),
}
PENDING = ("held", "held, over", "free", "claimed", "claimed, over")
NOTICES = ("unconfirmed", "expired", "unreadable", "unsupported")
SETTLED = ("confirmed", *NOTICES)


def the_item(world: World, rid: str | None = None) -> dict[str, Any]:
    """Of the connection: its only one, unless it is named."""
    found = [
        each
        for each in world.items("revocation")
        if each["o"] == OWNER.owner and rid in (None, each["PK"].removeprefix("Q#"))
    ]
    assert len(found) == 1
    return found[0]


def the_rid(world: World) -> str:
    return str(the_item(world)["PK"]).removeprefix("Q#")


def code_of(event: Callable[[], object]) -> str:
    """`=` or the code of the refusal."""
    try:
        event()
    except QuitclaimError as error:
        return error.code
    return "="


def arranged(new_world: Worlds, state: str, **facts: object) -> tuple[World, str]:
    """A world in which the revocation is in this state, and its id."""
    asks = state.startswith("held") or state == "unsupported"
    world = new_world(*(("owner",) if asks else ()), **dict(STATES[state].facts), **facts)
    if state == "unconfirmed":
        world.server.lifetime_s = 60
    STATES[state].arrange(world)
    assert the_item(world)["state"] == STATES[state].name
    return world, the_rid(world)


def stored(world: World, rid: str) -> Revocation | None:
    """As the store reads it."""
    return world.reads.revocations([rid])[rid]


def state_of(world: World, rid: str) -> str:
    found = stored(world, rid)
    return GONE if found is None else found.state.value


def unchanged(*states: str) -> list[Any]:
    """Cells in which nothing happens."""
    return [pytest.param(state, id=state) for state in states]


# --- install and release ---------------------------------------------------------------------------------------------


@pytest.mark.rule("I-3")
@pytest.mark.parametrize("state", ["held", "held, over", "free", "claimed", "claimed, over", "confirmed"])
def test_an_install(new_world: Worlds, state: str) -> None:
    """A held one leaves the queue for the live grant; with any other nothing is installed."""
    world, rid = arranged(new_world, "held")
    exchange = world.exchange()
    code = world.vault("connect").confirm_code(exchange.id, exchange.started)
    if state == "held, over":
        hold_ends(world)
    elif state != "held":
        wrong_codes(world)
    if state == "claimed":
        claim(world)
    elif state == "claimed, over":
        then(claim, lease_ends)(world)
    elif state == "confirmed":
        sweep(world)

    told = code_of(lambda: world.confirm(code))

    assert told == ("=" if state == "held" else "GRANT_NOT_INSTALLED")
    expected = {"held": GONE, "confirmed": "confirmed"}
    assert state_of(world, rid) == expected.get(state, "pending")
    assert world.connection().state == ("ready" if state == "held" else "failed")


@pytest.mark.rule("F-63")
@pytest.mark.parametrize("state", ["held", "claimed"])
def test_a_release(new_world: Worlds, state: str) -> None:
    """A held one is free from then on, and one that the sweep has taken stays the sweep's."""
    world, rid = arranged(new_world, "held")
    if state == "claimed":
        hold_ends(world)
        claim(world)
    before = stored(world, rid)
    assert before is not None

    if state == "held":
        wrong_codes(world)
    else:
        world.reconcile()

    found = stored(world, rid)
    assert found is not None
    assert found.lease == (None if state == "held" else before.lease)
    assert world.exchange().outcome == "cleanup"


# --- the sweep -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-49", "F-52")
@pytest.mark.parametrize(
    ("state", "after_it", "calls"),
    [
        ("held", "pending", 0),
        ("held, over", "confirmed", 1),
        ("free", "confirmed", 1),
        ("claimed", "pending", 0),
        ("claimed, over", "confirmed", 1),
        ("parked", "parked", 0),
        *((state, STATES[state].name, 0) for state in SETTLED),
    ],
)
def test_a_sweep(new_world: Worlds, state: str, after_it: str, calls: int) -> None:
    """What is nobody's and due is claimed, sent and settled, and nothing else is touched."""
    world, rid = arranged(new_world, state)
    asked = world.server.asked.count("/revoke")
    before = stored(world, rid)

    replace_calls(world).sweep()
    replace_calls(world).revoke(rid)

    assert state_of(world, rid) == after_it
    assert world.server.asked.count("/revoke") == asked + calls
    assert (stored(world, rid) == before) == (calls == 0)


@pytest.mark.rule("U-15", "RB-22")
@pytest.mark.parametrize(
    ("state", "after_it"), [("held, over", "parked"), ("free", "parked"), ("claimed, over", "parked")]
)
def test_a_sweep_beside_a_grant_that_lives(new_world: Worlds, state: str, after_it: str) -> None:
    """A call that would end another's access is not made: what is nobody's is parked."""
    world, rid = arranged(new_world, state, **WIDE)
    world.clock.move(ms=1)
    lives_elsewhere(world)
    asked = world.server.asked.count("/revoke")

    replace_calls(world).sweep()

    assert state_of(world, rid) == after_it
    assert world.server.asked.count("/revoke") == asked


# --- the answer of a call --------------------------------------------------------------------------------------------


@pytest.mark.rule("F-52")
@pytest.mark.parametrize(
    ("state", "answer", "after_it"),
    [
        ("free", answers(200), "confirmed"),
        ("free", answers(503), "pending"),
        ("unconfirmed", None, "unconfirmed"),
        ("unreadable", None, "unreadable"),
        ("unsupported", None, "unsupported"),
    ],
    ids=["confirmed", "free", "unconfirmed", "quarantined", "unsupported"],
)
def test_a_settle_by_the_holder_of_the_lease(
    new_world: Worlds, state: str, answer: Misbehaviour | None, after_it: str
) -> None:
    """Each end that a claim can have: the lease is gone by it."""
    world, rid = arranged(new_world, state)
    if answer is not None:
        world.server.next("/revoke", answer)
        world.sweep()

    found = stored(world, rid)

    assert found is not None
    assert (found.state.value, found.lease) == (after_it, None)
    assert bool(found.material) == (after_it == "pending")


def another_worker_sweeps(world: World) -> None:
    """In a thread of its own, as its calls have an event loop of their own; this one waits for it."""
    with ThreadPoolExecutor(1) as one:
        one.submit(lambda: replace_calls(world).sweep()).result()


def another_worker_has_it(world: World) -> None:
    with ThreadPoolExecutor(1) as one:
        one.submit(lambda: claim(world)).result()


def provider_is_out(world: World) -> None:
    world.server.next("/revoke", answers(503))


def deadline_is_over(world: World) -> None:
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)


MEANWHILE: dict[str, tuple[Step, str]] = {
    "free": (then(lease_ends, provider_is_out, another_worker_sweeps), "pending"),
    "claimed": (then(lease_ends, another_worker_has_it), "pending"),
    "quarantined": (then(lease_ends, spoil, another_worker_sweeps), "pending"),
    "parked": (then(lease_ends, lives_elsewhere, another_worker_sweeps), "parked"),
    "confirmed": (then(lease_ends, another_worker_sweeps), "confirmed"),
    "expired": (then(deadline_is_over, another_worker_sweeps), "expired"),
}


@pytest.mark.rule("F-53")
@pytest.mark.parametrize("state", MEANWHILE)
def test_a_settle_by_anybody_else(new_world: Worlds, state: str) -> None:
    """A success that comes when another had the item changes nothing, whatever it has become."""
    step, name = MEANWHILE[state]
    world, rid = arranged(new_world, "free", **(WIDE if state == "parked" else {}))
    found: list[Revocation | None] = []
    world.server.next("/revoke", after(lambda: step(world), lambda: found.append(stored(world, rid))))

    swept = world.sweep()

    assert swept.lost_settles == 1
    assert state_of(world, rid) == name
    assert [stored(world, rid)] == found


# --- a successor -----------------------------------------------------------------------------------------------------


AT_THE_STOP: dict[str, tuple[Step, str]] = {
    "free": (stop, "pending"),
    "claimed": (then(stop, claim), "pending"),
    "parked": (then(stop, sweep), "parked"),
    "expired": (then(stop, deadline_ends), "expired"),
}


@pytest.mark.rule("D-3", "I-1")
@pytest.mark.parametrize("state", AT_THE_STOP)
def test_a_successor_that_arrives(new_world: Worlds, state: str) -> None:
    """It is queued by itself, and what waits for it waits no more; what is over is left as it is."""
    step, name = AT_THE_STOP[state]
    world = new_world(**(WIDE if state == "parked" else {}))
    if state == "parked":
        lives_elsewhere(world)
    world.server.lifetime_s = 60
    connect(world)
    world.clock.move(seconds=50)
    rids: list[str] = []
    before: list[Revocation | None] = []

    def seen() -> None:
        rids.append(the_rid(world))
        before.append(stored(world, rids[0]))

    world.server.next("/token", after(lambda: step(world), seen))

    assert code_of(world.token) != "="

    (rid,), (then_stored,) = rids, before
    assert then_stored is not None
    found = stored(world, rid)
    assert found is not None
    assert found.state.value == name
    if state == "expired":
        assert found == then_stored
    else:
        assert (len(then_stored.expected), found.expected) == (1, frozenset())
    assert len([each for each in world.items("revocation") if each["o"] == OWNER.owner]) == 2
    assert world.unaccounted() == []


@pytest.mark.rule("D-3", "F-53")
@pytest.mark.parametrize("claimed_first", [False, True], ids=["free", "claimed"])
def test_a_successor_that_never_came(new_world: Worlds, claimed_first: bool) -> None:
    """It was lost: the provider's success for the old token is no confirmation of the grant."""
    world = new_world()
    world.server.lifetime_s = 60
    connect(world)
    world.clock.move(seconds=50)
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.token()
    stop(world)
    if claimed_first:
        claim(world)
    world.clock.move(ms=max(REFRESH_LEASE_MS, CLAIM_LEASE_MS) + GUARD_MS)

    replace_calls(world).sweep()

    found = stored(world, the_rid(world))
    assert found is not None
    assert (found.state.value, found.lost, found.expected) == ("unconfirmed", True, frozenset())


# --- the deadline ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-48", "I-7")
@pytest.mark.parametrize(
    ("state", "after_it"),
    [
        *((state, "expired") for state in PENDING),
        ("parked", "parked"),
        *((state, STATES[state].name) for state in SETTLED),
    ],
)
def test_the_deadline(new_world: Worlds, state: str, after_it: str) -> None:
    """Whatever is pending expires, leased or not; none runs for what is parked."""
    world, rid = arranged(new_world, state)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)

    replace_calls(world).sweep()
    replace_calls(world).revoke(rid)

    found = stored(world, rid)
    assert found is not None
    assert found.state.value == after_it
    assert bool(found.material) == (after_it == "parked")


# --- the last live grant leaves --------------------------------------------------------------------------------------


@pytest.mark.rule("RB-21")
def test_a_parked_one_is_woken(new_world: Worlds) -> None:
    """Nothing lives in its reach any more: free, with a fresh deadline."""
    world, rid = arranged(new_world, "parked")
    world.clock.move(minutes=10_000)

    world.disconnect(ELSEWHERE)
    world.reconcile()

    found = stored(world, rid)
    assert found is not None
    assert (found.state.value, found.lease, found.next) == ("pending", None, world.clock.now())
    assert found.deadline == world.clock.now() + DEADLINE_MS


@pytest.mark.parametrize("state", unchanged(*PENDING, *SETTLED))
def test_only_a_parked_one_is_woken(new_world: Worlds, state: str) -> None:
    """Whoever read it as parked and comes late does nothing."""
    world, rid = arranged(new_world, state)
    before = stored(world, rid)
    assert before is not None

    with pytest.raises(MovedError):
        ReconcileStore(world.table, world.clock, world.ids).wake(before, None, world.clock.now())

    assert stored(world, rid) == before


# --- finish, acknowledge, retry --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_a_finish(new_world: Worlds, state: str) -> None:
    """What is settled is told, once: confirmed is off the barrier, a notice waits on it for its owner."""
    world, rid = arranged(new_world, state)
    store, before = RevocationStore(world.table, world.clock, world.ids), stored(world, rid)
    assert before is not None
    _, _, barrier = world.reads.fence(GOOGLE, "acme")
    assert barrier is not None
    listed = (barrier.owed, barrier.acks)

    done = finish_settled(before, reads=world.reads, store=store, now=world.clock.now())

    _, _, barrier = world.reads.fence(GOOGLE, "acme")
    assert barrier is not None
    assert done == (state in SETTLED)
    if done:
        acks = {f"r:{rid}"} if state in NOTICES else set()
        assert (rid in barrier.owed, barrier.acks) == (False, acks)
        assert not finish_settled(before, reads=world.reads, store=store, now=world.clock.now())
    else:
        assert (stored(world, rid), (barrier.owed, barrier.acks)) == (before, listed)


@pytest.mark.rule("F-32", "F-33")
@pytest.mark.parametrize("state", STATES)
def test_an_acknowledgement(new_world: Worlds, state: str) -> None:
    """Only of a notice."""
    world, rid = arranged(new_world, state)
    before = stored(world, rid)

    told = code_of(world.acknowledge)

    assert told == ("=" if state in NOTICES else "NOTHING_TO_ACKNOWLEDGE")
    found = stored(world, rid)
    assert found is not None
    assert found.acknowledged == (world.clock.now() if state in NOTICES else None)
    assert state in NOTICES or found == before


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("held", "REVOCATION_IN_PROGRESS"),
        ("held, over", "="),
        ("free", "="),
        ("claimed", "REVOCATION_IN_PROGRESS"),
        ("claimed, over", "="),
        ("parked", "RETRY_NOT_POSSIBLE"),
        *((state, "RETRY_NOT_POSSIBLE") for state in SETTLED),
    ],
)
def test_a_retry_by_hand(new_world: Worlds, state: str, told: str) -> None:
    """What is pending and nobody's is due now; a call that may still act is waited for."""
    world, rid = arranged(new_world, state)
    before = stored(world, rid)

    assert code_of(lambda: retry(Subject(rid=rid), OPERATOR, operating(world))) == told

    found = stored(world, rid)
    assert found is not None
    if told == "=":
        assert (found.lease, found.next) == (None, world.clock.now())
    else:
        assert found == before


# --- compaction ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D-12")
@pytest.mark.parametrize(
    ("state", "after_it"),
    [
        *((state, "pending") for state in ("held", "free", "claimed")),
        ("parked", "parked"),
        ("confirmed", GONE),
        *((state, STATES[state].name) for state in NOTICES),
    ],
)
def test_compaction(new_world: Worlds, state: str, after_it: str) -> None:
    """A day after its deadline what was told goes, and a notice once its owner has said that the access is gone."""
    world, rid = arranged(new_world, state)
    if state in SETTLED:
        world.reconcile()
        world.clock.move(minutes=20)
        world.reconcile()
    world.clock.move(ms=DEADLINE_MS + COMPACT_MS)
    Upkeep(world).run()
    assert state_of(world, rid) == after_it

    if state in NOTICES:
        world.acknowledge()
        world.clock.move(minutes=20)
        world.reconcile()
        Upkeep(world).run()
        assert state_of(world, rid) == GONE
