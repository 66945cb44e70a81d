"""
Every outcome of an exchange against everything that can happen to it: one test a row of the table of outcomes and
events, one case a cell.

The worker that sent the code is away twice over: in the first part it is still waiting for the provider while somebody
else does something to its exchange, in the second it is dead.
"""

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from quitclaim.domain.connect import Exchange, ExchangeOutcome
from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.limits import COMPACT_MS, CONFIRM_MS, DEADLINE_MS, GUARD_MS, WRONG_CODES
from quitclaim.domain.revocations import Material, Reach, Revocation, RevocationState, SealedMaterial, family_of
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import TokenPair
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.store.connect import ConnectStore
from tests.fakes.provider import Misbehaviour, answers, killed, lost_answer, lost_request, not_connected
from tests.fakes.tables import WorkerKilledError
from tests.flows.test_maintain import Upkeep
from tests.flows.world import GOOGLE, OTHER, World

type Step = Callable[[World], object]
GONE = "gone"


def the_exchange(world: World) -> Exchange:
    """The first of the connection: the one that it is about."""
    return min(world.reads.exchanges(GOOGLE), key=lambda each: each.started)


def outcome_of(world: World, exchange: Exchange) -> str:
    """As it is stored; `acknowledged` where the owner has said that the access is gone."""
    found = world.reads.exchange(GOOGLE, exchange.id)
    if found is None:
        return GONE
    return "acknowledged" if found.acknowledged is not None else found.outcome.value


def code_of(event: Callable[[], object]) -> str:
    """`=` or the code of the refusal."""
    try:
        event()
    except QuitclaimError as error:
        return error.code
    except CallbackFailedError as error:
        return error.cause.code
    return "="


def confirmation(world: World) -> Secret:
    """The right code."""
    exchange = the_exchange(world)
    return world.vault("connect").confirm_code(exchange.id, exchange.started)


# --- what is done to an exchange whose worker waits ------------------------------------------------------------------


def hold(world: World, token: str) -> None:
    """A grant of this exchange is held: the one that its worker is about to be given, or another."""
    vault, exchange, now = world.vault("connect"), the_exchange(world), world.clock.now()
    pair = TokenPair("main", Secret("an access token"), Secret(token), "Bearer")
    held = replace(
        exchange,
        outcome=ExchangeOutcome.HELD,
        hold_ends=now + CONFIRM_MS,
        fp=vault.fingerprint(Secret(token)),
        use=vault.seal_for_use(GOOGLE, exchange.generation, 1, pair),
        subject=vault.account_digest("acme", "alice"),
        account=vault.account_digest("acme", "alice"),
    )
    material = (Material("refresh_token", Secret(token)),)
    sealed = vault.seal_revoke_only(exchange.rid, exchange.generation, 1, "main", material)
    queued = Revocation(
        rid=exchange.rid,
        state=RevocationState.PENDING,
        ref=GOOGLE,
        generation=exchange.generation,
        client="acme",
        provider="acme",
        takes="refresh_token",
        reach=Reach.FAMILY,
        queued=now,
        fp=frozenset({held.fp or ""}),
        family=frozenset({family_of(exchange.id, "main")}),
        material=(SealedMaterial(sealed, "refresh_token", "main", 1),),
        account=held.account,
        exchange=exchange.id,
        tv=1,
        deadline=now + DEADLINE_MS,
        next=held.hold_ends,
        lease=exchange.id,
        lease_until=held.hold_ends,
    )
    ConnectStore(world.table, world.clock, world.ids).hold(exchange, held, queued, now)


def hold_the_same(world: World) -> None:
    hold(world, world.server.of_kind("refresh_token")[0])


def hold_another(world: World) -> None:
    hold(world, world.server.gave().reveal())


def then(*steps: Step) -> Step:
    """One after the other."""
    return lambda world: [step(world) for step in steps]


def install(world: World) -> None:
    world.confirm(confirmation(world))


def wrong_codes(world: World) -> None:
    """As many as end a hold."""
    for _ in range(WRONG_CODES):
        code_of(lambda: world.confirm(None))


def window_ends(world: World) -> None:
    world.clock.move(to=the_exchange(world).ends)


def lapse(world: World) -> None:
    """Its time and the guard are over, and reconciliation sees it."""
    world.clock.move(to=the_exchange(world).ends + GUARD_MS)
    world.reconcile()


def give_up(world: World) -> None:
    """As after an import that the provider refused: ended, and nothing owed."""
    exchange, store = the_exchange(world), ConnectStore(world.table, world.clock, world.ids)
    store.end(exchange, world.connection(), world.clock.now(), "not_sent", unconfirmed=False)


def acknowledge(world: World) -> None:
    world.acknowledge()


MEANWHILE: dict[str, Step] = {
    "open": then(),
    "open, over": window_ends,
    "held": hold_the_same,
    "held, another": hold_another,
    "installed": then(hold_the_same, install),
    "installed, another": then(hold_another, install),
    "cleanup": then(hold_the_same, wrong_codes),
    "cleanup, another": then(hold_another, wrong_codes),
    "unconfirmed": lapse,
    "acknowledged": then(lapse, acknowledge),
    "ended": give_up,
}


def comes(world: World, state: str, answer: Misbehaviour | None = None) -> tuple[Exchange, str]:
    """
    The provider has acted, somebody brings the exchange to *state*, and the answer reaches its worker: the exchange,
    and what the browser is told.
    """

    def meanwhile(act: Callable[[], httpx.Response], request: httpx.Request) -> httpx.Response:
        response = act() if answer is None else None
        MEANWHILE[state](world)
        return response if response is not None else answer(act, request)  # type: ignore[misc]

    callback = world.callback()
    world.server.next("/token", meanwhile)
    told = code_of(lambda: world.come_back(callback))
    return the_exchange(world), told


@pytest.mark.rule("D-2", "D-30", "F-61", "F-66", "I-1", "U-4")
@pytest.mark.parametrize(
    ("state", "outcome", "queued", "told"),
    [
        ("open", "held", 1, "="),
        ("open, over", "cleanup", 1, "GRANT_NOT_INSTALLED"),
        ("held", "held", 1, "="),
        ("held, another", "held", 2, "GRANT_NOT_INSTALLED"),
        ("installed", "installed", 0, "GRANT_NOT_INSTALLED"),
        ("installed, another", "installed", 1, "GRANT_NOT_INSTALLED"),
        ("cleanup", "cleanup", 1, "GRANT_NOT_INSTALLED"),
        ("cleanup, another", "cleanup", 2, "GRANT_NOT_INSTALLED"),
        ("unconfirmed", "cleanup", 1, "GRANT_NOT_INSTALLED"),
        ("acknowledged", "acknowledged", 1, "GRANT_NOT_INSTALLED"),
        ("ended", "cleanup", 1, "GRANT_NOT_INSTALLED"),
    ],
)
def test_a_grant_that_arrives(asking_world: World, state: str, outcome: str, queued: int, told: str) -> None:
    """
    Whatever became of its exchange, it is held, known already, or queued; and the one that is known already is not
    queued a second time.
    """
    world = asking_world

    exchange, code = comes(world, state)

    assert (outcome_of(world, exchange), len(world.items("revocation")), code) == (outcome, queued, told)
    assert world.reads.exchange(GOOGLE, exchange.id).outcome.value in (outcome, "cleanup")  # type: ignore[union-attr]
    assert world.unaccounted() == []


@pytest.mark.rule("F-67")
@pytest.mark.parametrize(
    "answer", [answers(400, {"error": "invalid_grant"}), not_connected], ids=["refused", "not sent"]
)
@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("open", "ended"),
        ("held, another", "held"),
        ("installed, another", "installed"),
        ("cleanup, another", "cleanup"),
        ("unconfirmed", "unconfirmed"),
        ("acknowledged", "acknowledged"),
        ("ended", "ended"),
    ],
)
def test_a_provider_that_gives_nothing(asking_world: World, state: str, outcome: str, answer: Misbehaviour) -> None:
    """Only an open exchange ends by it: what is recorded already is never weakened."""
    exchange, _ = comes(asking_world, state, answer)

    assert outcome_of(asking_world, exchange) == outcome


@pytest.mark.rule("F-67", "D-38")
@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("open", "unconfirmed"),
        ("held, another", "held"),
        ("installed, another", "installed"),
        ("cleanup, another", "cleanup"),
        ("unconfirmed", "unconfirmed"),
        ("acknowledged", "acknowledged"),
        ("ended", "ended"),
    ],
)
def test_an_answer_that_is_lost(asking_world: World, state: str, outcome: str) -> None:
    """An open exchange is unconfirmed from then on, and any other is what it was."""
    exchange, _ = comes(asking_world, state, lost_request)

    assert outcome_of(asking_world, exchange) == outcome


# --- what happens to an exchange whose worker is dead ----------------------------------------------------------------


def is_open(world: World) -> None:
    """The code was sent, and its worker died."""
    callback = world.callback()
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)


def is_held(world: World) -> None:
    world.come_back(world.callback())


def is_refused(world: World) -> None:
    """The provider gave nothing."""
    callback = world.callback()
    world.server.next("/token", answers(400, {"error": "invalid_grant"}))
    assert code_of(lambda: world.come_back(callback)) != "="


def is_unknown(world: World) -> None:
    """The answer was lost, and its window is not over."""
    callback = world.callback()
    world.server.next("/token", lost_answer)
    assert code_of(lambda: world.come_back(callback)) != "="


def hold_ends(world: World) -> None:
    world.clock.move(to=the_exchange(world).hold_ends)


OUTCOMES: dict[str, Step] = {
    "open": is_open,
    "held": is_held,
    "held, over": then(is_held, hold_ends),
    "installed": then(is_held, install),
    "cleanup": then(is_held, wrong_codes),
    "unconfirmed": is_unknown,
    "unconfirmed, over": then(is_open, lapse),
    "acknowledged": then(is_open, lapse, acknowledge),
    "ended": is_refused,
}


def cells(**row: str | tuple[str, str]) -> pytest.MarkDecorator:
    """
    A row of the table: by outcome the next one, or the same where it is left out; with a code, where it is refused.
    """
    row = {name.replace("_", ", "): cell for name, cell in row.items()}
    assert row.keys() <= OUTCOMES.keys()
    same = {name: name.removesuffix(", over") for name in OUTCOMES}
    return pytest.mark.parametrize(("state", "expected"), (same | row).items(), ids=OUTCOMES)


def happens(world: World, state: str, event: Step, expected: str | tuple[str, str]) -> None:
    """Bring the exchange to *state*, let the event happen, and hold it to the cell."""
    OUTCOMES[state](world)
    exchange = the_exchange(world)
    assert outcome_of(world, exchange) == state.removesuffix(", over")

    code = code_of(lambda: event(world))

    outcome, refusal = expected if isinstance(expected, tuple) else (expected, None)
    assert outcome_of(world, exchange) == outcome
    assert refusal is None or code == refusal


@pytest.mark.rule("F-62")
@cells(
    open=("open", "CONNECTION_STATE_CONFLICT"),
    held=("installed", "="),
    held_over=("cleanup", "GRANT_NOT_INSTALLED"),
    installed=("installed", "="),
    cleanup=("cleanup", "GRANT_NOT_INSTALLED"),
    unconfirmed=("unconfirmed", "GRANT_NOT_INSTALLED"),
    unconfirmed_over=("unconfirmed", "GRANT_NOT_INSTALLED"),
    acknowledged=("acknowledged", "GRANT_NOT_INSTALLED"),
    ended=("ended", "GRANT_NOT_INSTALLED"),
)
def test_an_install(asking_world: World, state: str, expected: tuple[str, str]) -> None:
    """Only a held grant is installed, and only while its hold lasts."""
    happens(asking_world, state, install, expected)


@pytest.mark.rule("F-63")
@cells(held="cleanup")
def test_a_release(asking_world: World, state: str, expected: str) -> None:
    """The owner's wrong codes end a hold, and nothing else; one whose time is over ends by that."""
    happens(asking_world, state, wrong_codes, expected)


def time_passes(world: World, ms: int) -> None:
    """From where it is to *ms* after the end and the guard of what is awaited; and reconciliation sees it."""
    exchange = the_exchange(world)
    world.clock.move(to=max((exchange.hold_ends or exchange.ends) + GUARD_MS + ms, world.clock.now()))
    world.reconcile()


@pytest.mark.rule("F-68", "F-64")
@cells(open="unconfirmed", held="cleanup", held_over="cleanup")
def test_its_time_is_over(asking_world: World, state: str, expected: str) -> None:
    """Nobody knows what an open exchange gave; a held grant is due for revocation."""
    happens(asking_world, state, lambda world: time_passes(world, 0), expected)


@pytest.mark.rule("F-68", "D-32")
@cells()
def test_its_time_is_nearly_over(asking_world: World, state: str, expected: str) -> None:
    """A millisecond before the guard's end nothing changes."""
    happens(asking_world, state, lambda world: time_passes(world, -1), expected)


@pytest.mark.rule("RB-39")
@cells(
    open=("open", "CONNECT_BLOCKED"),
    held=("cleanup", "="),
    held_over=("cleanup", "="),
    installed=("installed", "="),
)
def test_a_newer_start(asking_world: World, state: str, expected: str | tuple[str, str]) -> None:
    """It ends a hold, and waits for the end of an open exchange."""
    happens(asking_world, state, lambda world: world.start(), expected)


@pytest.mark.rule("RB-39")
@cells(open=("open", "CONNECT_BLOCKED"), held=("cleanup", "="), held_over=("cleanup", "="))
def test_a_start_of_a_sibling(asking_world: World, state: str, expected: str | tuple[str, str]) -> None:
    """Another connection of the owner at the same client does the same."""
    happens(asking_world, state, lambda world: world.start(OTHER), expected)


@pytest.mark.rule("D-10")
@cells(open=("open", "="), held=("cleanup", "="), held_over=("cleanup", "="), installed=("installed", "="))
def test_a_stop(asking_world: World, state: str, expected: str | tuple[str, str]) -> None:
    """It takes a held grant along, and leaves an open exchange to its end."""
    happens(asking_world, state, lambda world: world.disconnect(), expected)


NOTHING = "NOTHING_TO_ACKNOWLEDGE"


@pytest.mark.rule("F-33", "F-32")
@cells(
    open=("open", NOTHING),
    held=("held", NOTHING),
    held_over=("held", NOTHING),
    installed=("installed", NOTHING),
    cleanup=("cleanup", NOTHING),
    unconfirmed=("unconfirmed", "ACKNOWLEDGE_TOO_EARLY"),
    unconfirmed_over=("acknowledged", "="),
    acknowledged=("acknowledged", "="),
    ended=("ended", NOTHING),
)
def test_an_acknowledgement(asking_world: World, state: str, expected: tuple[str, str]) -> None:
    """Only of what nobody knows, and only once its window is over."""
    happens(asking_world, state, acknowledge, expected)


def days_pass(world: World) -> None:
    """What can be revoked is, which closes a hold that is over; then the daily look removes what is finished."""
    for _ in range(3):
        world.clock.move(minutes=1)
        world.sweep()
        for each in world.items("revocation"):
            if each["state"] == "confirmed":
                world.reconcile()
    world.clock.move(ms=DEADLINE_MS + 2 * COMPACT_MS)
    Upkeep(world).run()


@pytest.mark.rule("D-12")
@cells(held_over=GONE, installed=GONE, cleanup=GONE, acknowledged=GONE, ended=GONE)
def test_compaction(asking_world: World, state: str, expected: str) -> None:
    """
    What is over and told goes, a hold that ended meanwhile with it; what is open, held or somebody's to acknowledge
    stays.
    """
    happens(asking_world, state, days_pass, expected)
