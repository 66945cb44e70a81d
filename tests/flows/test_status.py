"""What the app and its owner can see, at every step of a connection's life."""

import pytest

from quitclaim.domain.errors import ConnectionNotFoundError
from quitclaim.domain.limits import CONFIRM_MS, DEADLINE_MS, GUARD_MS
from quitclaim.flows.status import receipts, view
from tests.fakes.provider import after, answers, lost_answer
from tests.flows.world import GOOGLE, OTHER, OWNER, World


def test_nothing_is_owed_for_what_lives(world: World) -> None:
    """A ready connection has no notice and blocks nothing."""
    world.connect()

    status = world.status()

    assert [each.connection.state for each in status.connections] == ["ready"]
    assert (status.notices, status.blockers) == ((), {})


def test_an_owner_nobody_has_seen_has_an_empty_status(world: World) -> None:
    """No connection, no notice, no fence."""
    status = world.status()

    assert (status.owner, status.connections, status.notices, status.blockers) == (None, (), (), {})


def test_a_notice_goes_from_pending_to_confirmed(world: World) -> None:
    """With its deadline while it is pending, and whether the purge is open; confirmed at once after the settle."""
    world.connect()
    world.disconnect()
    (pending,) = world.status().notices

    world.sweep()
    (settled,) = world.status().notices
    world.reconcile()
    (closed,) = world.status().notices

    assert (pending.level.label, pending.deadline) == ("pending", world.clock.now() + DEADLINE_MS)
    assert (pending.purge_pending, closed.purge_pending) == (True, False)
    assert (settled.level.label, settled.deadline) == ("confirmed", None)
    assert closed.level.label == "confirmed"
    assert (closed.connection_id, closed.provider, closed.client) == ("google", "acme", "acme")


def test_the_most_pressing_notice_wins(world: World) -> None:
    """A confirmed revocation does not hide an attempt that somebody must look at (F-35)."""
    world.connect()
    world.disconnect()
    world.minutes_pass(2)
    assert world.notice() == "confirmed"

    world.server.next("/token", lost_answer)
    with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
        world.connect(again=True)

    assert world.notice() == "permission_removal_required"


def test_blockers_say_what_stands_before_a_new_attempt(world: World) -> None:
    """By client: pending with its end, the purge, and then nothing."""
    world.connect()
    world.disconnect()

    before = world.status().blockers["acme"]
    world.minutes_pass(2)

    assert {(each.level, each.connection) for each in before} == {("pending", "google"), ("purging", "google")}
    assert max(each.ends_at or 0 for each in before) > world.clock.now()
    assert world.status().blockers == {}


def test_the_removal_page_is_shown_only_where_it_is_needed(world: World) -> None:
    """A pending revocation needs nobody's hands; an expired one does."""
    world.connect()
    world.disconnect()
    (pending,) = world.status().notices
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.sweep()
    (expired,) = world.status().notices

    assert pending.manual_page is None
    assert expired.manual_page == world.server.spec.facts.manual_page
    assert expired.reason == "expired"


def test_each_connection_has_its_own_notice(world: World) -> None:
    """One is being revoked, the other lives."""
    world.connect()
    world.connect(OTHER, account="bob")
    world.disconnect(OTHER)

    assert [each.connection_id for each in world.status().notices] == ["other"]


def test_a_waiting_confirmation_is_shown_until_its_end(asking_world: World) -> None:
    """Derived from the exchange: over as soon as its time is, whoever has noticed."""
    world = asking_world
    world.come_back(world.callback())

    shown = view(GOOGLE, reads=world.reads, clock=world.clock)
    world.clock.move(ms=CONFIRM_MS)
    over = view(GOOGLE, reads=world.reads, clock=world.clock)

    assert (shown.awaiting_confirmation, shown.confirm_until) == (True, world.clock.now())
    assert (over.awaiting_confirmation, over.confirm_until) == (False, None)


def test_a_connection_that_is_not_there_is_not_found(world: World) -> None:
    """A foreign id answers like an unknown one."""
    with pytest.raises(ConnectionNotFoundError):
        view(GOOGLE, reads=world.reads, clock=world.clock)


def test_receipts_tell_what_became_of_each_grant(world: World) -> None:
    """The newest first, without account data."""
    world.connect()
    world.disconnect()
    world.minutes_pass(2)
    world.connect(again=True)
    world.disconnect()
    world.server.next("/revoke", *[answers(503)] * 3)
    world.sweep()
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.minutes_pass(2)

    told = receipts(OWNER, reads=world.reads)

    assert [(each["generation"], each["outcome"]) for each in told] == [(3, "expired"), (1, "confirmed")]
    assert all(each.keys() == {"at", "connection_id", "generation", "kind", "outcome"} for each in told)


def test_a_grant_that_came_late_is_shown_to_its_owner(world: World) -> None:
    """It is on its way out; nobody is asked to do anything."""
    world.server.next("/token", after(lambda: world.clock.move(seconds=61)))
    with pytest.raises(Exception, match="GRANT_NOT_INSTALLED"):
        world.connect()

    assert world.notice() == "pending"
    world.minutes_pass(2)
    assert world.notice() == "confirmed"
