"""A revocation that takes an access token only: the queued refresh token makes one, and says what an answer means."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import CLAIM_LEASE_MS, DOUBTS, GUARD_MS
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.store.keys import revocation_key
from tests.fakes.provider import Misbehaviour, after, answers, killed, lost_answer, lost_request, not_connected
from tests.fakes.tables import WorkerKilledError, applied_then_ambiguous, killed_after, killed_before
from tests.flows.world import World

type Worlds = Callable[..., World]

BEARER: dict[str, Any] = {
    "revocation__shape": "bearer_self",
    "revocation__method": "DELETE",
    "revocation__client_auth": None,
    "revocation__takes": "access",
    "revocation__success": {"status": [200], "body": "any"},
    "revocation__already_gone": "unknown",
    "revocation__ambiguous": {"status": [401]},
    "revocation__needs_live_access_token": "yes",
}
HOUR = 60
BOB = ConnectionRef("acme-app", "bob", "google")


def queue(world: World) -> dict[str, dict[str, Any]]:
    """The revocations, by id."""
    return {each["PK"].removeprefix("Q#"): each for each in world.items("revocation")}


def states(world: World) -> list[str]:
    """Of all revocations."""
    return sorted(each["state"] for each in queue(world).values())


def stopped_long_ago(world: World, minutes: int = 2 * HOUR) -> None:
    """A connection whose access token has expired when it is disconnected."""
    world.connect()
    world.clock.move(minutes=minutes)
    world.server.expires_access_tokens()
    world.disconnect()


def settled(world: World, minutes: int = 40) -> None:
    """The schedules run until nothing moves any more."""
    world.minutes_pass(minutes)


@pytest.mark.parametrize("rotates", ["yes", "no", "unknown", "sometimes"])
@pytest.mark.parametrize("reach", ["family", "authorization", "pair", "token", "unknown"])
def test_an_expired_access_token_is_renewed_first(new_world: Worlds, reach: str, rotates: str) -> None:
    """What the refresh gave is queued before it is used, and everything ends; the provider is left without a token."""
    old = None if rotates == "no" else "immediate"
    world = new_world(
        **BEARER, revocation__reach=reach, refresh__rotates=rotates, refresh__old_token_after_rotation=old
    )
    stopped_long_ago(world)

    settled(world)

    if reach == "token":  # the refresh token outlives it, and its owner is told
        assert set(states(world)) == {"unconfirmed"}
        return
    assert world.server.live() == []
    assert states(world) == ["confirmed", "confirmed"]
    assert world.connection().closed_as == "confirmed"


@pytest.mark.rule("RB-21")
def test_what_was_renewed_is_released_with_its_successor(new_world: Worlds) -> None:
    """
    The successor could not be revoked at once, and meanwhile another owner connected the same account: the call would
    end that grant. Both wait for the last sharer, in nobody's way, and nobody is told to remove anything.
    """
    rotates = {"refresh__rotates": "yes", "refresh__old_token_after_rotation": "immediate"}
    world = new_world(**BEARER, **rotates, revocation__reach="authorization")
    world.server.next("/revoke", answers(503))
    world.server.next("/revoke", answers(503))
    stopped_long_ago(world)
    world.sweep()
    world.clock.move(seconds=40)
    world.connect(BOB, account="alice")

    world.minutes_pass(10)

    assert states(world) == ["parked", "parked"]
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "released")
    assert not world.has_notice()
    world.disconnect(BOB)
    settled(world)
    assert set(states(world)) == {"confirmed"}
    assert world.server.live() == []


def test_one_that_lives_is_used_as_it_is(new_world: Worlds) -> None:
    """No refresh where none is needed: the call is the only one."""
    world = new_world(**BEARER, revocation__reach="family")
    world.connect()
    asked = len(world.server.asked)
    world.disconnect()

    world.sweep()

    assert world.server.asked[asked:] == ["/revoke"]
    assert states(world) == ["confirmed"]
    assert world.server.live() == []


def test_an_answer_that_tells_nothing_is_settled_by_a_refresh(new_world: Worlds) -> None:
    """401 for a token that its clock calls alive: the refresh is refused, so the grant is gone."""
    world = new_world(**BEARER, revocation__reach="family")
    world.connect()
    world.server.removes("alice")
    asked = len(world.server.asked)
    world.disconnect()

    world.sweep()

    assert world.server.asked[asked:] == ["/revoke", "/token"]
    assert states(world) == ["confirmed"]


def test_a_401_of_a_grant_that_lives_confirms_nothing(new_world: Worlds) -> None:
    """The access token alone was dead: the refresh gives another, and that is revoked."""
    world = new_world(**BEARER, revocation__reach="family")
    world.connect()
    world.server.expires_access_tokens()  # before its time, as whoop's does when it is rotated elsewhere
    world.disconnect()

    world.sweep()
    assert states(world) == ["confirmed", "pending"]
    settled(world)

    assert states(world) == ["confirmed", "confirmed"]
    assert world.server.live() == []


def test_a_predecessor_waits_for_its_successor(new_world: Worlds) -> None:
    """It asks nobody meanwhile, and ends with it."""
    world = new_world(**BEARER, revocation__reach="family")
    stopped_long_ago(world)
    world.server.next("/revoke", answers(503), answers(503), answers(503))

    world.sweep()
    assert states(world) == ["pending", "pending"]
    refreshes = world.server.asked.count("/token")
    settled(world)

    assert world.server.asked.count("/token") == refreshes
    assert states(world) == ["confirmed", "confirmed"]
    assert world.events("revocation.confirmed") == ["revocation.confirmed"] * 2
    assert world.connection().closed_as == "confirmed"


def test_an_access_token_that_dies_in_the_queue_is_renewed_again(new_world: Worlds) -> None:
    """The provider's revocation is away for hours: each successor expires, none is counted as a doubt."""
    world = new_world(**BEARER, revocation__reach="family")
    world.connect()
    world.disconnect()
    world.server.next("/revoke", *[answers(503)] * 60)

    for _ in range(8):
        settled(world, 30)
        world.clock.move(minutes=31)
        world.server.expires_access_tokens()
    world.server.misbehaviours["/revoke"].clear()
    settled(world, 60)

    assert set(states(world)) == {"confirmed"}
    assert len(states(world)) > DOUBTS + 1
    assert world.server.live() == []


@pytest.mark.parametrize("reach", ["token", "unknown"])
def test_a_refresh_token_that_outlives_the_revocation_is_told_of(new_world: Worlds, reach: str) -> None:
    """Each success is checked by a refresh; where that still gives tokens, no success is believed in the end."""
    world = new_world(**BEARER, revocation__reach=reach)
    world.server.spares_refresh_tokens = True
    world.connect()
    world.disconnect()

    settled(world)

    assert "confirmed" not in states(world)
    assert set(states(world)) == {"unconfirmed"}
    assert len(states(world)) == DOUBTS + 1
    assert world.notice() == "permission_removal_required"


def test_a_success_that_nobody_has_read_is_checked(new_world: Worlds) -> None:
    """`success: unknown`: 200 counts as nothing until a refresh is refused."""
    world = new_world(**BEARER | {"revocation__success": "unknown"}, revocation__reach="family")
    world.connect()
    asked = len(world.server.asked)
    world.disconnect()

    world.sweep()

    assert world.server.asked[asked:] == ["/revoke", "/token"]
    assert states(world) == ["confirmed"]
    assert world.server.live() == []


def test_a_success_that_nobody_has_read_and_nobody_can_check_confirms_nothing(new_world: Worlds) -> None:
    """No refresh token: it is tried to the deadline, then its owner is told."""
    world = new_world(**BEARER | {"revocation__success": "unknown"}, revocation__reach="family")
    world.server.with_refresh_token = False
    world.connect()
    world.disconnect()

    settled(world, 20)

    assert states(world) == ["pending"]


@pytest.mark.parametrize(
    "misbehaviour",
    [answers(429, retry_after="120"), answers(503), not_connected, answers(401, {"error": "invalid_client"})],
)
def test_a_refresh_that_was_not_done_is_tried_again(new_world: Worlds, misbehaviour: Misbehaviour) -> None:
    """Nothing is lost by it, and nothing stays open."""
    world = new_world(**BEARER, revocation__reach="family")
    stopped_long_ago(world)
    world.server.next("/token", misbehaviour)

    world.sweep()
    [first] = queue(world).values()
    assert (first["state"], first["attempts"], "lost" in first) == ("pending", "1", False)
    settled(world)

    assert set(states(world)) == {"confirmed"}
    assert world.server.live() == []


@pytest.mark.rule("RB-16")
@pytest.mark.parametrize("has_expired", [True, False])
def test_an_unknown_refusal_is_one_only_beside_a_success(new_world: Worlds, has_expired: bool) -> None:
    """After the provider's own success, a refusal in odd words says the same thing; alone it says nothing."""
    world = new_world(**BEARER, revocation__reach="unknown")
    if has_expired:
        stopped_long_ago(world)
    else:
        world.connect()
        world.disconnect()
    world.server.next("/token", answers(400, {"error": "invalid_request"}))

    world.sweep()

    assert states(world) == ["pending" if has_expired else "confirmed"]


# --- nothing is lost on the way --------------------------------------------------------------------------------------


@pytest.mark.rule("RB-43")
@pytest.mark.parametrize("loss", [lost_answer, lost_request, answers(500)])
def test_a_refresh_whose_answer_is_lost_never_ends_in_confirmed(new_world: Worlds, loss: Misbehaviour) -> None:
    """The successor may be alive: the owner is told, whatever the provider says of what we have."""
    world = new_world(**BEARER, revocation__reach="family")
    stopped_long_ago(world)
    world.server.next("/token", loss)

    world.sweep()
    [first] = queue(world).values()
    assert first["state"] == "pending"
    assert "renewing" in first
    settled(world, 60)

    assert states(world).count("unconfirmed") >= 1
    assert world.notice() == "permission_removal_required"


def test_where_nothing_rotates_a_lost_answer_loses_nothing(new_world: Worlds) -> None:
    """The same refresh token is good for another access token, and the revocation ends both."""
    world = new_world(
        **BEARER, revocation__reach="family", refresh__rotates="no", refresh__old_token_after_rotation=None
    )
    stopped_long_ago(world)
    world.server.next("/token", lost_answer)

    settled(world)

    assert set(states(world)) == {"confirmed"}
    assert world.server.live() == []


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("fault", [killed_before, killed_after, applied_then_ambiguous])
def test_a_crash_at_any_write_loses_no_token(new_world: Worlds, number: int, fault: Any) -> None:
    """What the provider still accepts is queued, or somebody is told; and the next runs end it."""
    world = new_world(**BEARER, revocation__reach="family")
    stopped_long_ago(world)
    world.table.faults = [*[None] * number, fault]

    with suppress(WorkerKilledError):
        world.sweep()
    world.table.faults = []
    assert world.unaccounted() == [] or world.has_notice()
    world.clock.move(ms=CLAIM_LEASE_MS + GUARD_MS)
    settled(world, 60)

    assert world.unaccounted() == [] or world.has_notice()
    assert {each["state"] for each in queue(world).values()} <= {"confirmed", "unconfirmed"}
    assert world.server.live() == [] or world.has_notice()


def test_a_worker_that_dies_before_the_answer_leaves_the_record(new_world: Worlds) -> None:
    """The claim ends by itself; then a successor may be alive, and nothing is confirmed."""
    world = new_world(**BEARER, revocation__reach="family")
    stopped_long_ago(world)
    world.server.next("/token", killed)

    with pytest.raises(WorkerKilledError):
        world.sweep()
    [first] = queue(world).values()
    assert "renewing" in first
    settled(world, 60)

    assert world.has_notice()
    assert world.notice() == "permission_removal_required"


def test_an_item_that_expires_while_its_refresh_is_answered_leaves_its_successor_behind(new_world: Worlds) -> None:
    """The successor is queued all the same, and ends by the same deadline."""
    world = new_world(**BEARER, revocation__reach="family")
    stopped_long_ago(world)

    def expired() -> None:
        [rid] = queue(world)
        remove = ("material", "lease", "lease_until", "renewing", "next", "d1", "d2")
        world.stand_in.alter(revocation_key(rid), put={"state": "expired"}, remove=remove)

    world.server.next("/token", after(expired))
    world.sweep()

    assert len(queue(world)) == 2
    assert sorted(states(world)) == ["confirmed", "expired"]
    assert world.server.live() == []


@pytest.mark.rule("RB-11")
@pytest.mark.parametrize(("second", "how"), [({}, "confirmed"), ({"refresh_token": "canary-s"}, "unconfirmed")])
def test_of_several_refresh_tokens_that_no_entry_describes_one_can_be_asked_about(
    new_world: Worlds, second: dict[str, str], how: str
) -> None:
    """So the others may live, and nothing is confirmed."""
    world = new_world(**BEARER, revocation__reach="token")
    body = {"access_token": "canary-a", "refresh_token": "canary-r", "team": {"access_token": "canary-b", **second}}
    world.server.next("/token", answers(200, body))

    with pytest.raises(CallbackFailedError, match="GRANT_NOT_INSTALLED"):
        world.come_back(world.callback())
    settled(world, 20)

    assert states(world) == [how]
