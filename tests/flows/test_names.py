"""
Events that name no account but a workspace or the like: whoever the provider said is of it has a share, and nobody
else.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.errors import MovedError, NeedsReconnectError, QuitclaimError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import ACCOUNT_NAMES, PARKED_MS, REMEMBERED_MS
from quitclaim.domain.webhooks import DeliveryState
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.flows.deliveries import Outcome
from quitclaim.store.connect import ConnectStore
from quitclaim.store.keys import connection_key
from quitclaim.store.reads import Reads
from tests.fakes.tables import WorkerKilledError, applied_then_ambiguous, busy, killed_after
from tests.flows.test_maintain import Upkeep
from tests.flows.world import GOOGLE, OTHER, World

BOB = ConnectionRef("acme-app", "bob", "google")
EVE = ConnectionRef("other-app", "eve", "google")
MINUTE = 60_000


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Acme says of which team its users are, and its events name the team."""
    found = new_world(
        identity__kind="user",
        identity__also={"team": {"field": "team"}},
        webhook={
            "signature": {"scheme": "hmac", "headers": ["x-acme-signature"]},
            "event": {"accounts": {"user": ["user"], "team": ["team"]}},
        },
    )
    found.server.me = {"team": "T1"}
    return found


def of_team(world: World, name: str = "event-1", team: str = "T1", **event: object) -> str:
    """An event that names the team."""
    return world.accept(team, name, named_by="team", **event)


@pytest.mark.rule("U-15")
def test_everybody_of_the_workspace_has_a_share(world: World) -> None:
    """Over accounts, owners and tenants, each on record; of another workspace nobody."""
    world.connect()
    world.connect(BOB, account="bob")
    world.server.me = {"team": "T2"}
    world.connect(EVE, account="eve")
    of_team(world)

    done = world.deliver()

    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"received": 2})
    assert world.reads.delivery("acme", "event-1", BOB) is not None
    assert world.reads.delivery("acme", "event-1", EVE) is None
    assert world.deliver().outcome is Outcome.DUPLICATE


def test_a_name_is_of_the_grant_and_not_of_the_connection(world: World) -> None:
    """The same user, connected once more in another workspace, has no share of what happens in the first."""
    world.connect()
    world.server.me = {"team": "T2"}
    world.connect(OTHER)
    world.disconnect()
    world.minutes_pass(2)
    world.connect(again=True)  # in the second workspace now
    of_team(world)
    of_team(world, "event-2", "T2")

    assert world.deliver().outcome is Outcome.DROPPED  # who was of it has left
    assert world.deliver("event-2").shares == {"received": 2}


def test_an_account_is_no_workspace_of_the_same_name(world: World) -> None:
    """A user that is called like a team has none of the team's events, nor the team his."""
    world.server.me = {"team": "alice"}
    world.connect()
    world.server.me = {"team": "T1"}
    world.connect(BOB, account="T1")
    world.accept("T1", "event-1")
    of_team(world, "event-2")

    world.deliver()
    world.deliver("event-2")

    assert world.reads.delivery("acme", "event-1", GOOGLE) is None
    assert world.delivery("event-1", BOB).state is DeliveryState.PROCESSED
    assert world.delivery("event-2", BOB).state is DeliveryState.PROCESSED
    assert world.reads.delivery("acme", "event-2", GOOGLE) is None


def test_what_comes_before_anybody_of_the_workspace_waits_on_the_ladder(world: World) -> None:
    """It is looked at again, and delivered once somebody is ready."""
    of_team(world)

    first = world.deliver()
    world.connect()
    world.clock.move(ms=MINUTE)

    assert (first.outcome, first.until) == (Outcome.WAITS, world.clock.now())
    assert world.deliver().shares == {"received": 1}


def test_what_nobody_of_the_workspace_comes_for_is_dropped_after_a_day(world: World) -> None:
    """Nobody was ever of it: operators are not bothered. Whoever lost a grant may miss it, and it is kept."""
    of_team(world)
    world.connect()
    world.server.removes("alice")
    world.clock.move(minutes=60)
    with pytest.raises(NeedsReconnectError):
        world.token()
    of_team(world, "event-2", "T9")
    of_team(world, "event-3")

    assert [world.deliver(name).outcome for name in ("event-2", "event-3")] == [Outcome.WAITS, Outcome.WAITS]
    world.clock.move(ms=PARKED_MS)
    assert [world.deliver(name).outcome for name in ("event-2", "event-3")] == [Outcome.DROPPED, Outcome.KEPT]


@pytest.mark.rule("RB-71")
def test_a_signed_departure_of_a_workspace_stops_each_of_its_grants(world: World) -> None:
    """At the generation that is live, and none of another workspace."""
    world.connect()
    world.connect(BOB, account="bob")
    world.server.me = {"team": "T2"}
    world.connect(EVE, account="eve")
    world.clock.move(minutes=60)
    of_team(world, deauthorizes=True, occurred_at=world.clock.now())

    assert world.deliver().shares == {"stopped": 2}
    states = [world.connection(ref).state for ref in (GOOGLE, BOB, EVE)]
    assert states == [ConnectionState.NEEDS_RECONNECT, ConnectionState.NEEDS_RECONNECT, ConnectionState.READY]


@pytest.mark.parametrize("fault", [busy, applied_then_ambiguous])
def test_a_grant_is_never_live_without_its_names(world: World, fault: Callable[..., Any]) -> None:
    """Whatever became of the first try of each write."""
    callback = world.callback()
    world.table.faults = [None if number % 2 else fault for number in range(20)]

    world.come_back(callback)

    world.table.faults = []
    of_team(world)
    assert world.deliver().shares == {"received": 1}


def test_names_of_grants_that_are_gone_are_forgotten(world: World) -> None:
    """By the inspection, once nobody waits any more for what they would tell; that of a live grant stays."""
    world.connect()
    world.connect(BOB, account="bob")
    world.disconnect()
    upkeep = Upkeep(world)

    upkeep.run()
    assert len(world.items("name")) == 2
    world.clock.move(ms=REMEMBERED_MS)
    upkeep.run()

    (left,) = world.items("name")
    assert left["SK"] == f"N#acme-app#bob#google#{world.connection(BOB).exchange}"
    assert upkeep.faults == []


def test_a_name_of_an_old_grant_is_known_as_long_as_its_account(world: World) -> None:
    """Whoever lost a grant may come back within thirty days of that, however old the grant was."""
    world.connect()
    world.clock.move(ms=REMEMBERED_MS + 1)
    world.server.removes("alice")
    with pytest.raises(NeedsReconnectError):
        world.token()
    upkeep = Upkeep(world)

    upkeep.run()

    of_team(world)
    assert world.deliver().outcome is Outcome.WAITS
    world.clock.move(ms=PARKED_MS)
    assert world.deliver().outcome is Outcome.KEPT
    world.clock.move(ms=REMEMBERED_MS)
    upkeep.run()
    assert world.items("name") == []


# --- never live without them, never found by others -------------------------------------------------------------------

HOOK: Any = {
    "signature": {"scheme": "hmac", "headers": ["x-acme-signature"]},
    "event": {"accounts": {"user": ["user"], "team": ["team"]}},
}
IN_TOKEN: Any = {
    "identity__kind": "user",
    "identity__in_token_response": "sub",
    "identity__also": {"team": {"field": "team", "in_token_response": "team"}},
    "webhook": HOOK,
}
ASKED: Any = {"identity__kind": "user", "identity__also": {"team": {"field": "team"}}, "webhook": HOOK}


def of_a_team(world: World, team: str = "T1") -> World:
    """The provider says it in its token answers, and where it is asked who somebody is."""
    world.server.me = {"team": team}
    world.server.extra = {"sub": "alice", "team": team}
    return world


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("said", [IN_TOKEN, ASKED], ids=["in the token answer", "asked for"])
def test_whoever_is_confirmed_after_a_crash_is_found_by_the_workspace(
    new_world: Callable[..., World], said: Any, at: int
) -> None:
    """The worker of the callback dies behind any of its writes; the callback is loaded again, and confirmed."""
    world = of_a_team(new_world("owner", **said))
    callback = world.callback()
    world.table.faults = [*[None] * (at - 1), killed_after]
    with suppress(WorkerKilledError):
        world.come_back(callback)
    world.table.faults = []

    try:
        world.confirm(world.come_back(callback).confirm_code)
    except QuitclaimError:
        assert world.connection().state is not ConnectionState.READY
        return

    of_team(world)
    assert world.deliver().shares == {"received": 1}


def test_a_name_is_findable_from_the_install_on_and_not_before(new_world: Callable[..., World]) -> None:
    """Until then it is on the exchange, as a digest; after it there alone where it is found."""
    world = of_a_team(new_world("owner", **IN_TOKEN))
    outcome = world.come_back(world.callback())
    (held,) = world.items("exchange")
    assert len(held["names"]) == 1
    assert "T1" not in repr(held)
    assert world.items("name") == []

    world.confirm(outcome.confirm_code)

    assert len(world.items("name")) == 1
    (installed,) = world.items("exchange")
    assert "names" not in installed


def test_a_step_up_of_another_account_leaves_no_name_that_counts(new_world: Callable[..., World]) -> None:
    """It is refused, and its workspace's events reach nobody, neither then nor after the next step-up."""
    world = new_world("none", refresh__one_live_token="no", revocation__reach="token", **ASKED)
    world.clients.add("acme", confirmation="none", optional_scopes=frozenset({"admin"}))
    of_a_team(world).connect()
    wider = frozenset({"read", "write", "admin"})
    of_a_team(world, "T2")
    with pytest.raises(CallbackFailedError):
        world.come_back(world.approved(world.visit(world.start(again=True, scopes=wider)), "mallory"))
    world.minutes_pass(3)
    of_a_team(world)

    world.come_back(world.approved(world.visit(world.start(again=True, scopes=wider)), "alice"))

    assert world.connection().generation == 2
    of_team(world)
    of_team(world, "event-2", "T2")
    assert world.deliver().shares == {"received": 1}
    assert world.deliver("event-2").outcome is Outcome.WAITS


@pytest.mark.parametrize(
    "changed", [{"exchange": "another"}, {"account": "another"}], ids=["another grant", "another account"]
)
def test_a_name_counts_for_the_very_grant_and_account_alone(world: World, changed: dict[str, str]) -> None:
    """Whatever else of its life is as it was."""
    connection = world.connect()
    world.stand_in.alter(connection_key(connection.ref), put=changed)
    of_team(world)

    assert world.deliver().shares == {}


def test_no_error_holds_a_workspace_in_clear(new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told that the grant was not installed is told of which connection."""
    world = of_a_team(new_world("owner", **ASKED))

    def moved(*given: Any) -> None:
        raise MovedError

    monkeypatch.setattr(ConnectStore, "record_identity", moved)
    with pytest.raises(CallbackFailedError) as caught:
        world.come_back(world.callback())

    assert "T1" not in repr(vars(caught.value.cause))
    assert caught.value.cause.details["connection_id"] == "google"


# --- how many ---------------------------------------------------------------------------------------------------------


def test_as_many_names_as_one_install_carries(new_world: Callable[..., World]) -> None:
    """The same ones each time; of the rest operators are told how many, and never which."""
    world = new_world(
        "owner",
        identity__kind="user",
        identity__in_token_response="sub",
        identity__also={"team": {"field": "teams.*", "in_token_response": "teams.*"}},
        webhook=HOOK,
    )
    world.server.extra = {"sub": "alice", "teams": [f"T{number:02}" for number in range(30)]}
    world.connect()

    assert len(world.items("name")) == ACCOUNT_NAMES == 25
    assert world.names_left_off == [("acme", 5)]
    of_team(world, "event-1", "T24")
    of_team(world, "event-2", "T25")
    assert world.deliver("event-1").shares == {"received": 1}
    assert world.deliver("event-2").outcome is Outcome.WAITS


def test_what_has_had_its_share_is_not_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large workspace an attempt goes on where the one before it was out of time; out of time it reads nobody."""
    refs = [ConnectionRef("acme-app", f"o{number}", "google") for number in range(6)]
    for number, ref in enumerate(refs):
        world.connect(ref, account=f"a{number}")
    of_team(world)
    read: list[ConnectionRef] = []
    around = Reads.owners_and_connections

    def noted(reads: Reads, asked: Sequence[ConnectionRef]) -> Any:
        read.extend(asked)
        return around(reads, asked)

    monkeypatch.setattr(Reads, "owners_and_connections", noted)
    for ref in refs[:5]:
        one(world, ref)

    assert world.deliver(budget_ms=1).outcome is Outcome.WAITS
    assert read == []
    assert world.deliver().shares == {"received": 1}
    assert read == [refs[5]]


def one(world: World, ref: ConnectionRef) -> None:
    """An attempt before gave this one its share."""
    now = world.clock.now()
    claim = world.delivering.webhooks.claim(world.delivery(), now)
    world.delivering.store.record_share(claim, world.delivery(), ref, "received", None, now)
    world.delivering.webhooks.release(claim, world.delivery(), now)


def test_a_workspace_of_more_than_one_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, each of them in one batch; everybody has a share once."""
    monkeypatch.setattr("quitclaim.store.reads.KEYS_AT_ONCE", 4)
    for number in range(5):
        world.connect(ConnectionRef("acme-app", f"o{number}", "google"), account=f"a{number}")
    of_team(world)

    assert world.deliver().shares == {"received": 5}


def test_what_nobody_had_is_found_by_so_many_accounts_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept event names no more of a workspace's accounts than fit beside it."""
    monkeypatch.setattr("quitclaim.flows.deliveries.EVENT_ACCOUNTS", 2)
    for number in range(3):
        ref = ConnectionRef("acme-app", f"o{number}", "google")
        world.connect(ref, account=f"a{number}")
    for number in range(3):
        world.server.removes(f"a{number}")
    world.clock.move(minutes=60)
    for number in range(3):
        with pytest.raises(NeedsReconnectError):
            world.token(ConnectionRef("acme-app", f"o{number}", "google"))
    of_team(world)
    world.clock.move(ms=PARKED_MS)

    assert world.deliver().outcome is Outcome.KEPT
    assert len(world.delivery().accounts) == 2
