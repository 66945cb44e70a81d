"""Disconnect: one transaction, whatever else is going on, and everything after it by itself."""

from collections.abc import Callable

import pytest

from quitclaim.domain.errors import GenerationMovedError, IdempotencyMismatchError, StoreError
from quitclaim.domain.limits import EFFECT_MS
from quitclaim.store.commit import TRIES
from quitclaim.store.keys import account_key, barrier_key, connection_key, grant_key
from tests.fakes.provider import answers, killed
from tests.fakes.tables import WorkerKilledError, ambiguous, applied_then_ambiguous, busy, killed_after, killed_before
from tests.flows.world import GOOGLE, OTHER, OWNER, World

type Worlds = Callable[..., World]


def test_a_disconnect_ends_the_grant_at_the_provider(world: World) -> None:
    """Revoking at once, kicked; then revoked, told once each, with a receipt."""
    world.connect()

    stopped = world.disconnect()

    assert (stopped.state, stopped.generation) == ("revoking", 2)
    rid = world.reads.intents(GOOGLE)[0].rids
    assert set(world.kick.rids) == rid
    world.revoke(*rid)
    assert world.server.live() == []
    world.minutes_pass()
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")
    assert sorted(world.events()) == [
        "connection.ready",
        "connection.revoked",
        "connection.revoking",
        "purge.completed",
        "revocation.confirmed",
    ]
    (receipt,) = world.reads.receipts(OWNER)
    assert (receipt["outcome"], receipt["connection_id"], receipt["generation"]) == ("confirmed", "google", 1)


@pytest.mark.rule("F-19", "D-5", "U-23")
def test_a_disconnect_needs_no_key_and_no_provider(world: World) -> None:
    """Both are out, and the stop goes through (D-5)."""
    world.connect()
    world.kms.is_out = True
    asked = list(world.server.asked)
    opened = list(world.kms.calls)

    world.disconnect()

    assert (world.server.asked, world.kms.calls) == (asked, opened)
    assert world.connection().state == "revoking"


@pytest.mark.rule("F-25", "I-18")
def test_a_disconnect_that_is_repeated_changes_nothing(world: World) -> None:
    """The generation that was stopped, and the one it has now, are answered with the stop."""
    world.connect()
    world.disconnect(generation=1)
    before = world.stand_in.everything()

    again = [world.disconnect(generation=1), world.disconnect(generation=2)]

    assert [each.state for each in again] == ["revoking", "revoking"]
    assert world.stand_in.everything() == before


@pytest.mark.rule("F-25")
def test_a_disconnect_of_an_older_generation_is_refused(world: World) -> None:
    """Whoever saw an earlier life must not end this one (C-19)."""
    world.connect()
    world.disconnect()
    world.minutes_pass(3)
    world.connect(again=True)

    with pytest.raises(GenerationMovedError) as moved:
        world.disconnect(generation=1)

    assert moved.value.details["generation"] == 3
    assert world.connection().state == "ready"


def test_the_same_key_gets_the_same_stop(world: World) -> None:
    """A repeated call answers the stop; with another generation the key is refused."""
    world.connect()
    world.disconnect(generation=1, key="k")
    before = world.stand_in.everything()

    assert world.disconnect(generation=1, key="k").state == "revoking"
    with pytest.raises(IdempotencyMismatchError):
        world.disconnect(generation=2, key="k")

    assert world.stand_in.everything() == before


def test_the_same_key_stops_no_later_life(world: World) -> None:
    """A repetition that comes after a reconnect is answered with the stop that it asked for, and stops nothing."""
    world.connect()
    world.disconnect(generation=1, key="k")
    world.minutes_pass(3)
    world.connect(again=True)

    again = world.disconnect(generation=1, key="k")

    assert (again.state, again.generation) == ("revoking", 2)
    assert world.connection().state == "ready"


def test_a_disconnect_of_a_waiting_link_owes_nothing(world: World) -> None:
    """No grant, no exchange: it closes as not needed."""
    world.start()

    world.disconnect()
    world.minutes_pass()

    assert (world.connection().state, world.connection().closed_as) == ("revoked", "not_needed")
    assert world.events("connection.closed") == ["connection.closed"]
    assert world.reads.receipts(OWNER) == []


@pytest.mark.rule("F-65")
def test_a_disconnect_ends_a_waiting_confirmation_at_once(asking_world: World) -> None:
    """The held grant is due and kicked; nobody waits ten minutes (7.19)."""
    world = asking_world
    world.come_back(world.callback())

    world.disconnect()

    assert world.kick.rids == [world.exchange().rid]
    world.revoke(*world.kick.rids)
    assert world.server.live() == []
    world.minutes_pass()
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("F-68", "I-13")
def test_a_disconnect_during_an_exchange_waits_for_its_end(world: World) -> None:
    """The answer may still come: the stop does not close before the exchange is acknowledged (custody rule 5)."""
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.come_back(world.callback())

    world.disconnect()
    world.minutes_pass(3)

    assert world.connection().state == "reconciling_revoke"
    assert world.notice() == "permission_removal_required"
    assert world.acknowledge() == 1
    world.minutes_pass(20)
    assert world.connection().state == "revoked"


def test_a_failed_connection_is_stopped_as_well(world: World) -> None:
    """Whatever it once was, the app is rid of it."""
    world.server.next("/token", answers(400, {"error": "invalid_grant"}))
    with pytest.raises(Exception, match="PROVIDER_REFUSED"):
        world.come_back(world.callback())

    world.disconnect()
    world.minutes_pass()

    assert (world.connection().state, world.connection().closed_as) == ("revoked", "not_needed")


@pytest.mark.rule("F-20", "F-22", "D-10")
def test_a_stop_after_a_loss_takes_its_debts_along(world: World) -> None:
    """What the lost grant still owes is the stop's as well: it closes when that is settled."""
    world.connect()
    world.server.removes("alice")
    world.clock.move(minutes=70)
    with pytest.raises(Exception, match="no longer honours"):
        world.token()

    world.disconnect()

    lost, stopped = world.reads.intents(GOOGLE)
    assert lost.rids == stopped.rids
    world.minutes_pass(3)
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("D-8")
def test_another_connection_is_left_alone(world: World) -> None:
    """A stop ends one grant, not the owner's others."""
    world.connect()
    world.connect(OTHER, account="bob")

    world.disconnect()
    world.minutes_pass(3)

    assert world.connection(OTHER).state == "ready"
    assert world.token(OTHER).token_version == 1


# --- class S ---------------------------------------------------------------------------------------------------------

NEIGHBOURS = {
    "the grant": grant_key(GOOGLE, "main"),
    "the connection": connection_key(GOOGLE),
}


@pytest.mark.rule("D-10", "F-10")
@pytest.mark.parametrize("key", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_a_stop_is_decided_again_until_it_commits(world: World, key: object) -> None:
    """Whatever moved in between is read again: no state and no neighbour refuses it for good."""
    world.connect()
    moved = [0]

    def moves(apply: Callable[[], object]) -> object:
        moved[0] += 1
        world.stand_in.alter(key, put={"v": 100 + moved[0]})  # type: ignore[arg-type]
        return apply()

    world.table.faults = [moves] * 5

    assert world.disconnect().state == "revoking"
    assert moved == [5]


def test_a_stop_does_not_care_for_a_busy_barrier(world: World) -> None:
    """It adds to it whatever it is (custody rule 8)."""
    world.connect()

    def moves(apply: Callable[[], object]) -> object:
        world.stand_in.alter(barrier_key(OWNER, "acme"), put={"v": 100})
        return apply()

    world.table.faults = [moves]

    with world.table.metered() as spent:
        world.disconnect()

    assert len(spent.writes) == 1


@pytest.mark.rule("D-10")
def test_an_account_that_moves_all_the_time_is_no_reason_to_give_up(world: World) -> None:
    """Other connections join and leave; the stop takes its turn."""
    world.connect()
    account = world.connection().account
    assert account is not None
    moved = [0]

    def moves(apply: Callable[[], object]) -> object:
        moved[0] += 1
        world.stand_in.alter(account_key("acme", account), put={"v": 100 + moved[0]})
        return apply()

    world.table.faults = [moves] * 10

    assert world.disconnect().state == "revoking"


@pytest.mark.parametrize(
    "fault", [applied_then_ambiguous, ambiguous, busy, killed_before, killed_after], ids=lambda fault: fault.__name__
)
def test_a_stop_happens_once_whatever_became_of_its_write(world: World, fault: object) -> None:
    """Applied, lost or cut off: repeated, it answers the same stop, and the grant is revoked once."""
    world.connect()
    world.table.faults = [fault]  # type: ignore[list-item]
    if fault in (killed_before, killed_after):
        with pytest.raises(WorkerKilledError):
            world.disconnect(generation=1)

    world.disconnect(generation=1)

    assert world.connection().generation == 2
    assert len(world.items("revocation")) == len(world.reads.intents(GOOGLE)) == 1
    assert world.events("connection.revoking") == ["connection.revoking"]
    world.minutes_pass(3)
    assert world.connection().closed_as == "confirmed"


def test_a_table_that_does_not_answer_is_said_so(world: World) -> None:
    """503: the same request may be repeated, and then it is done."""
    world.connect()
    world.table.faults = [busy] * TRIES

    with pytest.raises(StoreError):
        world.disconnect(key="k")

    world.disconnect(key="k")
    assert world.connection().state == "revoking"


# --- what cannot be revoked ------------------------------------------------------------------------------------------

NONE = {"revocation": {"shape": "none", "manual_page": "https://acme.example.com/apps"}}


@pytest.mark.rule("RB-30", "U-8", "F-21", "RB-28b")
def test_a_provider_without_a_revocation_leaves_a_notice_with_its_page(new_world: Worlds) -> None:
    """The stop goes through; the owner is told where to remove the access, and says so (U-8)."""
    world = new_world(**NONE)
    world.connect()

    world.disconnect()
    (notice,) = world.status().notices
    world.minutes_pass(2)

    assert (notice.level.label, notice.manual_page) == ("permission_removal_required", "https://acme.example.com/apps")
    assert "/revoke" not in world.server.asked
    assert world.events("removal.required") == ["removal.required"]
    assert world.acknowledge() == 1
    world.minutes_pass(20)
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "attested")
    assert world.events("connection.closed") == ["connection.closed"]


@pytest.mark.rule("F-21", "U-8")
def test_a_token_that_the_revocation_does_not_take_leaves_a_notice(new_world: Worlds) -> None:
    """Only refresh tokens are taken, and there is none: nothing is sent that cannot work."""
    world = new_world(revocation__takes="refresh")
    world.server.with_refresh_token = False
    world.connect()

    world.disconnect()
    world.minutes_pass(2)

    assert "/revoke" not in world.server.asked
    assert world.notice() == "permission_removal_required"


# --- effect ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after_ms", "state"), [(EFFECT_MS - 1, "revoking"), (EFFECT_MS, "reconciling_revoke")])
def test_a_stop_that_takes_longer_than_a_minute_shows_as_such(world: World, after_ms: int, state: str) -> None:
    """The provider does not answer: nothing is lost, and the app sees that it takes time."""
    world.connect()
    world.disconnect()
    world.clock.move(ms=after_ms)

    world.reconcile()

    assert world.connection().state == state
