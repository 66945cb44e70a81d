"""
Every state of a connection against everything that can be asked of it: one test a row of the table of states and
events, one case a cell.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.ids import digest
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import Callback
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.flows.connect.link import open_link
from quitclaim.store.keys import connection_key
from tests.fakes.config import BASE_URL
from tests.fakes.provider import answers, killed
from tests.fakes.tables import WorkerKilledError
from tests.flows.world import GOOGLE, World


@dataclass
class Past:
    """What there is to come back to: the newest ticket, and a callback of it that nobody has brought yet."""

    ticket: Secret
    callback: Callback
    code: Secret | None = None


def none(world: World) -> Past:
    """No such connection."""
    return Past(Secret("never issued"), Callback("acme", Secret("never issued"), Secret("code"), None, (), {}))


def link(world: World) -> Past:
    """Authorizing: the user has the link, opened twice."""
    started = world.start()
    assert started.ticket is not None
    return Past(started.ticket, world.approved(world.visit(started)))


def sent(world: World) -> tuple[Past, Callback]:
    """The same, and the other of its two callbacks, which is the first to come back."""
    past = link(world)
    visit = open_link(past.ticket, BASE_URL, world.connecting("connect"))
    return past, world.approved(visit)


def exchanging(world: World) -> Past:
    """Authorizing: the code was sent, and its worker died."""
    past, first = sent(world)
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.come_back(first)
    return replace(past, code=world.vault("connect").confirm_code(world.exchange().id, world.exchange().started))


def held(world: World) -> Past:
    """Authorizing: the grant waits for its owner."""
    past, first = sent(world)
    return replace(past, code=world.come_back(first).confirm_code)


def ready(world: World) -> Past:
    """Connected."""
    past = held(world)
    world.confirm(past.code)
    return past


def needs_reconnect(world: World) -> Past:
    """The user has taken the access away, a refresh was refused, and nothing is owed any more."""
    world.server.lifetime_s = 60
    past = ready(world)
    world.server.removes("alice")
    world.clock.move(seconds=50)
    with pytest.raises(QuitclaimError):
        world.token()
    world.minutes_pass(2)
    return past


def failed(world: World) -> Past:
    """The user said no."""
    past, first = sent(world)
    with pytest.raises(CallbackFailedError):
        world.come_back(replace(first, code=None, error="access_denied"))
    return past


def reconciling_link(world: World) -> Past:
    """An attempt whose outcome the provider is asked about. No provider of the catalogue leads here yet."""
    past = link(world)
    world.stand_in.alter(connection_key(GOOGLE), put={"state": "reconciling_link"}, remove=("phase",))
    return past


def revoking(world: World) -> Past:
    """Just disconnected."""
    past = ready(world)
    world.disconnect()
    return past


def reconciling_revoke(world: World) -> Past:
    """Disconnected, and the provider does not answer."""
    past = revoking(world)
    world.server.next("/revoke", *[answers(503)] * 3)
    world.minutes_pass(2)
    return past


def revoked(world: World) -> Past:
    """Over."""
    past = revoking(world)
    world.minutes_pass(2)
    return past


STATES: dict[str, tuple[Callable[[World], Past], str | None]] = {
    "none": (none, None),
    "link": (link, "authorizing"),
    "exchanging": (exchanging, "authorizing"),
    "held": (held, "authorizing"),
    "ready": (ready, "ready"),
    "needs_reconnect": (needs_reconnect, "needs_reconnect"),
    "failed": (failed, "failed"),
    "reconciling_link": (reconciling_link, "reconciling_link"),
    "revoking": (revoking, "revoking"),
    "reconciling_revoke": (reconciling_revoke, "reconciling_revoke"),
    "revoked": (revoked, "revoked"),
}
SAME = "="
"""No change, no write, success."""


def cells(**row: str) -> pytest.MarkDecorator:
    """A row of the table: by state the new state, `=`, or the code of the refusal."""
    assert row.keys() <= STATES.keys()
    return pytest.mark.parametrize(("state", "expected"), row.items(), ids=row.keys())


def ask(world: World, state: str, expected: str, event: Callable[[Past], object]) -> None:
    """Bring the connection into the state, let the event happen, and hold it to the cell."""
    arrange, name = STATES[state]
    past = arrange(world)
    before = world.reads.connection(GOOGLE)
    assert (before.state if before else None) == name
    everything = world.stand_in.everything()

    code = SAME
    try:
        event(past)
    except QuitclaimError as error:
        code = error.code
    except CallbackFailedError as error:
        code = error.cause.code

    after = world.reads.connection(GOOGLE)
    if expected == SAME or expected.isupper():
        assert code == expected
        assert after == before
        if expected == SAME:
            assert world.stand_in.everything() == everything
    else:
        assert code == SAME
        assert after is not None
        assert after.state == expected


# --- start and link --------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-12")
@cells(
    none="authorizing",
    link=SAME,
    exchanging="CONNECT_BLOCKED",
    held="authorizing",
    ready=SAME,
    needs_reconnect="authorizing",
    failed="authorizing",
    reconciling_link="CONNECTION_RECONCILING",
    revoking=SAME,
    reconciling_revoke=SAME,
    revoked=SAME,
)
def test_a_start(asking_world: World, state: str, expected: str) -> None:
    """A start begins a generation, unless a connection is there that is live, ending or waiting: that is the answer."""
    ask(asking_world, state, expected, lambda past: asking_world.start())


@cells(
    none="authorizing",
    link="authorizing",
    exchanging="CONNECT_BLOCKED",
    held="authorizing",
    ready="CONNECTION_STATE_CONFLICT",
    needs_reconnect="authorizing",
    failed="authorizing",
    reconciling_link="CONNECTION_RECONCILING",
    revoking="CONNECTION_STATE_CONFLICT",
    reconciling_revoke="CONNECTION_STATE_CONFLICT",
    revoked="authorizing",
)
def test_a_reconnect(asking_world: World, state: str, expected: str) -> None:
    """A reconnect is a start that also follows `revoked`."""
    ask(asking_world, state, expected, lambda past: asking_world.start(again=True))


@pytest.mark.rule("U-21")
@cells(
    none="OAUTH_STATE_INVALID",
    exchanging="OAUTH_STATE_REPLAYED",
    held="OAUTH_STATE_REPLAYED",
    ready="OAUTH_STATE_REPLAYED",
    needs_reconnect="OAUTH_STATE_SUPERSEDED",
    failed="OAUTH_STATE_REPLAYED",
    reconciling_link="OAUTH_STATE_REPLAYED",
    revoking="OAUTH_STATE_SUPERSEDED",
    reconciling_revoke="OAUTH_STATE_SUPERSEDED",
    revoked="OAUTH_STATE_SUPERSEDED",
)
def test_a_link_that_is_opened(asking_world: World, state: str, expected: str) -> None:
    """Only a connection that waits for it sends anybody on; and a visit changes no connection."""
    ask(
        asking_world, state, expected, lambda past: open_link(past.ticket, BASE_URL, asking_world.connecting("connect"))
    )


@pytest.mark.rule("F-65", "S-5", "M-36")
@cells(
    none="OAUTH_STATE_INVALID",
    link="authorizing",
    exchanging="OAUTH_STATE_REPLAYED",
    held="OAUTH_STATE_REPLAYED",
    ready="OAUTH_STATE_REPLAYED",
    needs_reconnect="OAUTH_STATE_SUPERSEDED",
    failed="OAUTH_STATE_REPLAYED",
    reconciling_link="OAUTH_STATE_REPLAYED",
    revoking="OAUTH_STATE_SUPERSEDED",
    reconciling_revoke="OAUTH_STATE_SUPERSEDED",
    revoked="OAUTH_STATE_SUPERSEDED",
)
def test_a_callback_with_a_code(asking_world: World, state: str, expected: str) -> None:
    """The first callback of a generation is exchanged, and no other: not a sibling's, not a stopped connection's."""
    ask(asking_world, state, expected, lambda past: asking_world.come_back(past.callback))


@pytest.mark.parametrize("state", [state for state in STATES if state != "none"])
def test_a_callback_with_a_final_error(asking_world: World, state: str) -> None:
    """It fails a connection that waits for it, and no other."""
    world = asking_world
    arrange, name = STATES[state]
    past = arrange(world)

    with pytest.raises(CallbackFailedError) as refused:
        world.come_back(replace(past.callback, code=None, error="access_denied"))

    assert refused.value.cause.code == "OAUTH_CALLBACK_REJECTED"
    assert world.connection().state == ("failed" if state == "link" else name)


# --- confirmation ----------------------------------------------------------------------------------------------------


@cells(
    none="CONNECTION_NOT_FOUND",
    link="CONNECTION_STATE_CONFLICT",
    exchanging="CONNECTION_STATE_CONFLICT",
    held="ready",
    ready=SAME,
    needs_reconnect="GRANT_NOT_INSTALLED",
    failed="GRANT_NOT_INSTALLED",
    reconciling_link="CONNECTION_STATE_CONFLICT",
    revoking="GRANT_NOT_INSTALLED",
    reconciling_revoke="GRANT_NOT_INSTALLED",
    revoked="GRANT_NOT_INSTALLED",
)
def test_the_right_code(asking_world: World, state: str, expected: str) -> None:
    """It installs a held grant, and is repeated in peace; anywhere else there is nothing to install."""
    ask(
        asking_world,
        state,
        expected,
        lambda past: asking_world.confirm(past.code, generation=generation_of(asking_world)),
    )


@cells(
    none="CONNECTION_NOT_FOUND",
    link="CONNECTION_STATE_CONFLICT",
    exchanging="CONNECTION_STATE_CONFLICT",
    held="CONFIRM_CODE_WRONG",
    ready="CONNECTION_STATE_CONFLICT",
    needs_reconnect="GRANT_NOT_INSTALLED",
    failed="GRANT_NOT_INSTALLED",
    reconciling_link="CONNECTION_STATE_CONFLICT",
    revoking="GRANT_NOT_INSTALLED",
    reconciling_revoke="GRANT_NOT_INSTALLED",
    revoked="GRANT_NOT_INSTALLED",
)
def test_a_wrong_code(asking_world: World, state: str, expected: str) -> None:
    """A code is only wrong where one is waited for."""
    ask(asking_world, state, expected, lambda past: asking_world.confirm(None, generation=generation_of(asking_world)))


def generation_of(world: World) -> int:
    """The connection's, or that of one that is not there."""
    found = world.reads.connection(GOOGLE)
    return found.generation if found else 1


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I-5")
@cells(
    none="CONNECTION_NOT_FOUND",
    link="CONNECTION_STATE_CONFLICT",
    exchanging="CONNECTION_STATE_CONFLICT",
    held="CONNECTION_STATE_CONFLICT",
    ready=SAME,
    needs_reconnect="NEEDS_RECONNECT",
    failed="NEEDS_RECONNECT",
    reconciling_link="CONNECTION_RECONCILING",
    revoking="CONNECTION_STATE_CONFLICT",
    reconciling_revoke="CONNECTION_STATE_CONFLICT",
    revoked="CONNECTION_STATE_CONFLICT",
)
def test_a_token_call(asking_world: World, state: str, expected: str) -> None:
    """Only what is ready hands out a token (I-5)."""
    ask(asking_world, state, expected, lambda past: asking_world.token())


# --- stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D-10", "F-25")
@cells(
    none="CONNECTION_NOT_FOUND",
    link="revoking",
    exchanging="revoking",
    held="revoking",
    ready="revoking",
    needs_reconnect="revoking",
    failed="revoking",
    revoking=SAME,
    reconciling_revoke=SAME,
    revoked=SAME,
)
def test_a_disconnect_at_its_generation(asking_world: World, state: str, expected: str) -> None:
    """No state refuses it, and what is stopped stays as it is."""
    ask(
        asking_world,
        state,
        expected,
        lambda past: asking_world.disconnect(generation=generation_of(asking_world)),
    )


@pytest.mark.rule("F-25", "I-18")
@pytest.mark.parametrize("state", ["revoking", "reconciling_revoke", "revoked"])
def test_a_disconnect_that_is_repeated(asking_world: World, state: str) -> None:
    """The generation that was stopped is still answered with the stop."""
    ask(asking_world, state, SAME, lambda past: asking_world.disconnect(generation=generation_of(asking_world) - 1))


@pytest.mark.rule("F-25")
@pytest.mark.parametrize("state", [state for state in STATES if state not in ("none", "reconciling_link")])
def test_a_disconnect_at_another_generation(asking_world: World, state: str) -> None:
    """Whoever saw another generation learns which it is, and nothing changes."""
    ask(
        asking_world,
        state,
        "GENERATION_MOVED",
        lambda past: asking_world.disconnect(generation=generation_of(asking_world) + 5),
    )


# --- acknowledgement -------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-33")
@pytest.mark.parametrize("state", STATES)
def test_an_acknowledgement_of_nothing(asking_world: World, state: str) -> None:
    """A live, pending or confirmed grant is no notice, in whatever state its connection is (F-33)."""
    code = "CONNECTION_NOT_FOUND" if state == "none" else "NOTHING_TO_ACKNOWLEDGE"
    ask(asking_world, state, code, lambda past: asking_world.acknowledge())


# --- older generations -----------------------------------------------------------------------------------------------


@pytest.mark.rule("U-21", "M-36")
def test_a_link_of_an_older_generation_is_superseded(asking_world: World) -> None:
    """A newer start makes every older link and callback void, before anything is sent (U-21)."""
    world = asking_world
    past = link(world)
    world.start(again=True)

    with pytest.raises(QuitclaimError) as opened:
        open_link(past.ticket, BASE_URL, world.connecting("connect"))
    with pytest.raises(CallbackFailedError) as came:
        world.come_back(past.callback)

    assert opened.value.code == came.value.cause.code == "OAUTH_STATE_SUPERSEDED"
    assert "/token" not in world.server.asked
    assert world.reads.authorization(digest((past.callback.state or Secret("x")).reveal())) is not None
