"""
Handling accepted events: every connection of the account has its share once, what nobody can have yet waits, and a
departure stops the grant that it speaks of and no other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.errors import StoreError
from quitclaim.domain.hooks import HookKind, HookOutcome
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    AFTERMATH_MS,
    CHECK_EVERY_MS,
    CLOCK_SKEW_MS,
    DELIVERY_LEASE_MS,
    GUARD_MS,
    KEPT_MS,
    PARKED_MS,
    SECOND,
)
from quitclaim.domain.webhooks import DeliveryState, Trust
from quitclaim.flows.deliveries import Outcome, deliver, replay_waiting
from tests.fakes.clock import Budget
from tests.fakes.tables import applied_then_ambiguous, busy
from tests.flows.test_step_up import live, widened
from tests.flows.world import DELIVER_MS, GOOGLE, World

BOB = ConnectionRef("acme-app", "bob", "google")
DAY = 24 * 60 * 60 * SECOND


def left(world: World, account: str = "alice", name: str = "event-1", **event: Any) -> str:
    """The provider said, signed, that the account left just now; *occurred_at* None: it did not say when."""
    said = {"occurred_at": world.clock.now()} | event
    return world.accept(account, name, deauthorizes=True, kind="app.removed", **said)


@contextmanager
def unreadable(world: World, ref: ConnectionRef) -> Iterator[None]:
    """The table does not answer for one connection."""
    read = world.reads.owner_and_connection

    def fails(asked: ConnectionRef) -> Any:
        if asked == ref:
            raise StoreError
        return read(asked)

    with patch.object(world.reads, "owner_and_connection", fails):
        yield


# --- whom it reaches -------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-79")
def test_an_event_is_told_once_to_the_connection_of_its_account(world: World) -> None:
    """A record of its share and one event of ours, in one commit; then it is over and its body erased."""
    world.connect()
    world.accept()

    done = world.deliver()

    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"received": 1})
    assert world.events("webhook.received") == ["webhook.received"]
    assert world.delivery(ref=GOOGLE).state is DeliveryState.PROCESSED
    assert (world.delivery().state, world.delivery().body) == (DeliveryState.PROCESSED, None)


@pytest.mark.rule("M-66")
def test_it_is_claimed_before_anything_is_read_of_whom_it_reaches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither account, nor connection, nor owner is looked at by a worker that does not have it."""
    world.connect()
    world.accept()
    order: list[str] = []
    real_write, real_get, real_batch = world.table.write, world.table.get, world.table.batch_get
    monkeypatch.setattr(world.table, "write", lambda write: (order.append(write.key.pk[0]), real_write(write))[1])
    monkeypatch.setattr(world.table, "get", lambda key: (order.append(key.pk[0]), real_get(key))[1])
    monkeypatch.setattr(
        world.table, "batch_get", lambda keys: (order.extend(key.pk[0] for key in keys), real_batch(keys))[1]
    )

    world.deliver()

    assert order[:2] == ["W", "W"]  # the event, and its claim
    assert {"E", "O"} <= set(order[2:])


@pytest.mark.rule("M-67")
def test_a_second_message_has_no_second_effect(world: World) -> None:
    """It is over: nothing is read but the claim's refusal."""
    world.connect()
    world.accept()
    world.deliver()
    before = world.stand_in.everything()

    assert world.deliver().outcome is Outcome.DUPLICATE
    assert world.deliver("never seen").outcome is Outcome.DUPLICATE
    assert world.stand_in.everything() == before


@pytest.mark.rule("M-68", "RB-64")
def test_what_another_worker_has_is_left_to_it(world: World) -> None:
    """Until its lease and a guard are over; then it is taken over."""
    world.connect()
    world.accept()
    claim = world.delivering.webhooks.claim(world.delivery(), world.clock.now())

    taken = world.deliver()

    assert (taken.outcome, taken.until) == (Outcome.TAKEN, claim.until + GUARD_MS)
    world.clock.move(ms=DELIVERY_LEASE_MS + GUARD_MS)
    assert world.deliver().outcome is Outcome.PROCESSED


@pytest.mark.rule("U-15")
def test_every_owner_of_the_account_has_a_share(world: World) -> None:
    """Each with a record of its own, and none of another account."""
    world.connect()
    world.connect(BOB)
    world.connect(ConnectionRef("acme-app", "eve", "google"), account="eve")
    world.accept()

    assert world.deliver().shares == {"received": 2}
    assert world.delivery(ref=BOB).reason == "received"
    assert len(world.events("webhook.received")) == 2


@pytest.mark.rule("M-64")
def test_a_deleted_owner_has_no_share(world: World) -> None:
    """Although its connection is not stopped yet: the fence is read when the event is handled."""
    world.connect()
    world.connect(BOB)
    world.stopping.store.delete_owner(GOOGLE.of_owner, world.reads.owner(GOOGLE.of_owner), world.clock.now())
    world.accept()

    assert world.deliver().shares == {"received": 1}
    assert world.reads.delivery("acme", "event-1", GOOGLE) is None


@pytest.mark.rule("M-70")
def test_an_event_of_a_client_that_is_gone_ends_without_effect(world: World) -> None:
    """Nobody can say any more what it would mean."""
    world.connect()
    world.accept()
    del world.clients.settings["acme"]

    done = world.deliver()

    assert (done.outcome, done.reason) == (Outcome.DROPPED, "client gone")
    assert world.events("webhook.received") == []


@pytest.mark.rule("M-71", "M-76")
def test_a_failure_releases_it_and_it_is_tried_again_on_the_ladder(world: World) -> None:
    """One owner's trouble is none of the others': who had a share has it, who had none gets it then."""
    world.connect()
    world.connect(BOB)
    world.accept()
    with unreadable(world, BOB):
        done = world.deliver()

    assert (done.outcome, [kind for kind, _ in world.faults]) == (Outcome.WAITS, ["share"])
    assert done.until == world.clock.now() + 60 * SECOND == world.delivery().next
    assert world.delivery().state is DeliveryState.ACCEPTED
    assert world.events("webhook.received") == ["webhook.received"]
    assert world.deliver().shares == {"received": 1}
    assert len(world.events("webhook.received")) == 2


def test_what_fails_for_a_day_is_kept_for_operators(world: World) -> None:
    """With its body, for a week; it is tried no more by itself."""
    world.connect()
    world.accept()
    world.clock.move(ms=PARKED_MS)

    with unreadable(world, GOOGLE):
        done = world.deliver()

    assert (done.outcome, done.reason) == (Outcome.KEPT, "failed for a day")
    (kept,) = world.items("delivery")
    assert kept["a1"].startswith("delivery#")
    assert int(kept["ttl"]) == (world.clock.now() + KEPT_MS) // 1000
    assert "body" in kept


def test_what_does_not_fit_into_the_time_goes_on_where_it_stopped(world: World) -> None:
    """It is free at once, and who had a share has it."""
    world.connect()
    world.accept()

    done = world.deliver(budget_ms=9 * SECOND)

    assert (done.outcome, done.until) == (Outcome.WAITS, world.clock.now())
    assert world.deliver().outcome is Outcome.PROCESSED


# --- the app takes it ------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-79", "M-82")
def test_the_app_is_asked_to_take_what_the_provider_sent(world: World) -> None:
    """Byte by byte, once it has a hook for it; only then its share is on record and the notice on the bus."""
    world.connect()
    world.accept(content_type="application/json", occurred_at=7, element=2)
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.DONE

    assert world.deliver().shares == {"received": 1}

    (call,) = world.hooks.asked
    assert (call.kind, call.at) == (HookKind.WEBHOOK_ACCEPTED, world.clock.now())
    assert dict(call.data) == {
        "tenant": "acme-app",
        "owner": "ann",
        "connection_id": "google",
        "generation": 1,
        "provider": "acme",
        "delivery_id": "event-1",
        "accepted_at": world.clock.now(),
        "body": "e30=",
        "truncated": False,
        "event_type": "thing.made",
        "content_type": "application/json",
        "occurred_at": 7,
        "element": 2,
    }


@pytest.mark.rule("M-79", "D-27", "RB-63")
@pytest.mark.parametrize("outcome", [HookOutcome.LATER, HookOutcome.FAILED, HookOutcome.UNREACHED])
def test_what_the_app_did_not_take_is_asked_again_with_the_same_id(world: World, outcome: HookOutcome) -> None:
    """On the ladder; who has taken it is not asked again, and nothing is told before."""
    world.connect()
    world.connect(BOB)
    world.accept()
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: (
        HookOutcome.DONE if call.data["owner"] == "bob" else outcome
    )

    done = world.deliver()

    assert (done.outcome, done.shares, done.until) == (Outcome.WAITS, {"received": 1}, world.clock.now() + 60 * SECOND)
    assert world.hooks_failed == ([] if outcome is HookOutcome.LATER else [outcome.value])
    assert len(world.events("webhook.received")) == 1
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.DONE
    assert world.deliver().outcome is Outcome.PROCESSED
    ids = [call.id for call in world.hooks.asked if call.data["owner"] == "ann"]
    assert (len(world.hooks.asked), len(ids), len(set(ids))) == (3, 2, 1)


def test_what_the_app_did_not_take_for_a_day_is_kept_for_operators(world: World) -> None:
    """With its body; the app has been asked on the ladder."""
    world.connect()
    world.accept()
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.FAILED
    world.clock.move(ms=PARKED_MS)

    assert world.deliver().outcome is Outcome.KEPT
    assert "body" in world.items("delivery")[0]


def test_the_app_is_not_asked_about_a_departure(world: World) -> None:
    """That is ours to act on; it learns what became of its connection."""
    world.connect()
    world.clock.move(minutes=10)
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.DONE
    left(world)

    world.deliver()

    assert world.hooks.asked == []
    assert world.events("webhook.received") == []


def test_a_body_that_was_too_large_to_keep_is_empty(world: World) -> None:
    """And said to be."""
    world.connect()
    world.accept(truncated=True)
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.DONE

    world.deliver()

    (call,) = world.hooks.asked
    assert (call.data["body"], call.data["truncated"]) == ("", True)


# --- what waits ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-71", "M-72", "U-16")
def test_what_comes_before_its_connection_is_delivered_once_that_is_ready(world: World) -> None:
    """It waits beside the account; the install finds it there, and the account is due."""
    world.accept()
    assert world.deliver().outcome is Outcome.PARKED
    account = world.vault("deliver").account_digest("acme", "alice")
    assert world.reads.account("acme", account).waiting == 1

    world.connect()

    (item,) = world.items("account")
    assert item["d1"].startswith("replay#")
    done = replay_waiting("acme", account, Budget(DELIVER_MS), world.delivering)
    assert [each.outcome for each in done] == [Outcome.PROCESSED]
    assert world.events("webhook.received") == ["webhook.received"]
    (item,) = world.items("account")
    assert {"d1", "waiting"}.isdisjoint(item)
    assert world.items("waiting") == []


@pytest.mark.rule("M-78")
def test_what_waits_is_delivered_in_the_order_in_which_it_came(world: World) -> None:
    """Also what comes while something waits: it goes to the end."""
    for number in range(3):
        world.accept(name=f"event-{number}")
        assert world.deliver(f"event-{number}").outcome is Outcome.PARKED
        world.clock.move(ms=1)
    account = world.vault("deliver").account_digest("acme", "alice")
    world.connect()
    world.clock.move(ms=1)
    world.accept(name="event-3")

    assert world.deliver("event-3").outcome is Outcome.PARKED
    assert world.deliver("event-1").outcome is Outcome.PARKED
    replay_waiting("acme", account, Budget(DELIVER_MS), world.delivering)

    told = sorted(world.items("event"), key=lambda each: each["SK"])
    orders = [each["body"]["delivery_id"] for each in told if each["kind"] == "webhook.received"]
    done = [world.delivery(f"event-{number}").done for number in range(4)]
    assert all(at is not None for at in done)
    assert sorted(str(each) for each in orders) == [f"{{'S': 'event-{number}'}}" for number in range(4)]


@pytest.mark.rule("RB-71")
def test_what_nobody_comes_back_for_is_dropped_visibly_after_a_day(world: World) -> None:
    """Not before; its account, of which nothing else is known, goes with it."""
    world.accept()
    world.deliver()
    world.clock.move(ms=PARKED_MS - 1)
    assert world.deliver().outcome is Outcome.PARKED
    assert len(world.items("waiting")) == 1

    world.clock.move(ms=1)

    done = world.deliver()
    assert (done.outcome, done.reason) == (Outcome.DROPPED, "account unknown")
    assert (world.items("account"), world.items("waiting")) == ([], [])


@pytest.mark.rule("RB-71", "M-78")
def test_what_its_owner_did_not_come_back_for_is_shown_to_operators(world: World) -> None:
    """Dropped after a day, and kept for a week; a departure is missed by nobody."""
    world.connect()
    world.clock.move(minutes=10)
    left(world, name="gone")
    world.deliver("gone")
    left(world, name="gone again")
    world.accept()
    world.deliver("gone again")
    world.deliver()
    world.clock.move(ms=PARKED_MS)

    assert world.deliver("gone again").reason == "nothing to stop"
    assert (world.deliver().outcome, world.deliver().outcome) == (Outcome.KEPT, Outcome.DUPLICATE)
    assert [item["reason"] for item in world.items("delivery") if "a1" in item] == ["waited too long"]
    assert world.items("waiting") == []


@pytest.mark.rule("M-78")
def test_what_comes_after_a_disconnect_is_let_go(world: World) -> None:
    """Accepted, and nothing happens."""
    world.connect()
    world.disconnect()
    world.accept()

    done = world.deliver()

    assert (done.outcome, done.reason) == (Outcome.DROPPED, "account gone")
    assert world.delivery().body is None


@pytest.mark.rule("M-78", "U-16")
def test_what_comes_while_a_reconnect_is_needed_waits_for_it(world: World) -> None:
    """The owner may come back."""
    world.connect()
    left(world, name="gone")
    world.deliver("gone")
    assert world.connection().state is ConnectionState.NEEDS_RECONNECT
    world.accept()

    assert world.deliver().outcome is Outcome.PARKED


@pytest.mark.rule("M-75")
def test_a_hint_that_repeats_what_waits_is_let_go(world: World) -> None:
    """Exact work never is, nor another kind of hint."""
    world.accept(name="event-1", is_level=True)
    world.accept(name="event-2", is_level=True)
    world.accept(name="event-3", is_level=True, kind="other")
    world.accept(name="event-4")

    assert [world.deliver(f"event-{number}").outcome for number in range(1, 5)] == [
        Outcome.PARKED,
        Outcome.DROPPED,
        Outcome.PARKED,
        Outcome.PARKED,
    ]


# --- departures ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-72")
def test_a_signed_departure_stops_the_connection_once(world: World) -> None:
    """Needs a reconnect, its grant queued for revocation, and told once however often the provider says it."""
    world.connect()
    world.clock.move(minutes=10)
    for number in range(2):
        left(world, name=f"left-{number}")
    assert world.deliver("left-0").shares == {"stopped": 1}

    assert world.deliver("left-1").outcome is Outcome.PARKED

    assert world.connection().state is ConnectionState.NEEDS_RECONNECT
    assert world.events("connection.needs_reconnect") == ["connection.needs_reconnect"]
    assert world.unaccounted() == []
    assert len(world.items("revocation")) == 1


@pytest.mark.rule("RB-72", "RB-71")
def test_a_late_departure_spares_the_newer_grant(world: World) -> None:
    """The account came back before the provider's second word about its first grant is handled."""
    world.connect()
    world.clock.move(minutes=10)
    for number in range(2):
        left(world, name=f"left-{number}")
    world.deliver("left-0")
    world.minutes_pass(CLOCK_SKEW_MS // (60 * SECOND) + 1)
    world.connect(again=True)

    assert world.deliver("left-1").shares == {"older than the grant": 1}

    assert world.connection().state is ConnectionState.READY
    assert world.replay.asked == []


@pytest.mark.rule("RB-72")
def test_the_echo_of_our_own_revocation_makes_the_provider_be_asked(world: World) -> None:
    """One owner disconnects; the provider's word about the account reaches the other's grant, which lives on."""
    world.connect()
    world.connect(BOB)
    world.clock.move(minutes=10)
    world.disconnect()
    world.clock.move(minutes=10)
    left(world)

    assert world.deliver().shares == {"to be checked": 1}

    assert world.replay.asked == [(BOB, "main")]
    assert world.connection(BOB).state is ConnectionState.READY


def test_the_echo_about_the_only_grant_finds_nothing(world: World) -> None:
    """It is stopped already, by us."""
    world.connect()
    world.disconnect()
    before = world.connection()
    left(world)

    assert world.deliver().outcome is Outcome.DROPPED
    assert world.connection() == before


@pytest.mark.rule("RB-72")
def test_a_hint_makes_the_provider_be_asked_and_its_refusal_decides(world: World) -> None:
    """An event whose signature nobody could check never stops anything."""
    world.connect()
    world.clock.move(minutes=10)
    left(world, trust=Trust.SECRET)

    assert world.deliver().shares == {"to be checked": 1}

    assert world.connection().state is ConnectionState.READY, "the provider refreshed it"
    world.server.removes("alice")
    world.clock.move(ms=CHECK_EVERY_MS)
    left(world, name="again", trust=Trust.SECRET)
    world.deliver("again")
    assert world.connection().state is ConnectionState.NEEDS_RECONNECT


def test_a_burst_of_hints_costs_one_call_and_none_is_lost(world: World) -> None:
    """Those that came before the provider was asked are done with; a later one waits for its turn."""
    world.replay.carry_out = None
    world.connect()
    world.clock.move(minutes=10)
    for number in range(3):
        left(world, name=f"left-{number}", trust=Trust.SECRET)
    world.deliver("left-0")
    world.clock.move(ms=1)
    left(world, name="late", trust=Trust.SECRET)

    assert [world.deliver(f"left-{number}").shares for number in (1, 2)] == [{"checked": 1}] * 2
    late = world.deliver("late")

    assert (late.outcome, late.until) == (Outcome.WAITS, world.clock.now() - 1 + CHECK_EVERY_MS)
    assert world.replay.asked == [(GOOGLE, "main")]
    world.clock.move(ms=CHECK_EVERY_MS)
    assert world.deliver("late").shares == {"to be checked": 1}


def test_a_hint_about_an_account_that_nobody_has_is_let_go(world: World) -> None:
    """There is nothing to ask about."""
    left(world, trust=Trust.SECRET)

    assert world.deliver().reason == "nothing to check"


@pytest.mark.rule("M-71", "RB-63")
@pytest.mark.parametrize("fault", [busy, applied_then_ambiguous])
def test_a_departure_survives_a_crash_at_any_write(world: World, fault: Callable[..., Any]) -> None:
    """Wherever it was cut off, another attempt ends as one that was not."""
    world.connect()
    world.clock.move(minutes=10)
    left(world)
    deliver("acme", "event-1", Budget(0), world.delivering)

    world.table.faults = [fault] * 3
    world.deliver()
    world.clock.move(ms=DELIVERY_LEASE_MS + GUARD_MS)
    world.deliver()

    assert world.delivery().state is DeliveryState.PROCESSED
    assert world.connection().state is ConnectionState.NEEDS_RECONNECT
    assert world.events("connection.needs_reconnect") == ["connection.needs_reconnect"]


def test_after_the_aftermath_a_word_without_a_time_counts_again(world: World) -> None:
    """Three days after a grant of the account left, a new word is about the new one."""
    world.connect()
    world.disconnect()
    world.minutes_pass(3)
    world.connect(again=True)
    world.clock.move(ms=AFTERMATH_MS)
    left(world, occurred_at=None)

    assert world.deliver().shares == {"stopped": 1}


@pytest.mark.rule("RB-71", "RB-72")
@pytest.mark.parametrize("sent_at", ["unsaid", "signed again"])
def test_a_late_word_without_a_time_does_not_stop_the_newer_grant(world: World, sent_at: str) -> None:
    """Its first tries failed, and another owner connected meanwhile: nobody can say whose grant it is about."""
    world.replay.carry_out = None
    world.connect()
    world.clock.move(ms=AFTERMATH_MS)
    world.connect(BOB)
    world.clock.move(minutes=30)
    left(world, occurred_at=None, **({"sent_at": world.clock.now()} if sent_at == "signed again" else {}))

    assert world.deliver().shares == {"stopped": 1, "to be checked": 1}

    assert world.connection().state is ConnectionState.NEEDS_RECONNECT
    assert world.connection(BOB).state is ConnectionState.READY
    assert world.replay.asked == [(BOB, "main")]


@pytest.mark.rule("RB-71")
def test_when_it_was_sent_bounds_when_it_happened(world: World) -> None:
    """A copy that was signed before the grant's exchange began speaks of an older one, whenever it comes."""
    at = world.clock.now()
    world.clock.move(ms=2 * CLOCK_SKEW_MS)
    world.connect()
    left(world, occurred_at=None, sent_at=at)

    assert world.deliver().shares == {"older than the grant": 1}
    assert world.replay.asked == []


@pytest.mark.rule("RB-72")
def test_a_true_departure_is_not_dropped_once_the_exchange_is_compacted(world: World) -> None:
    """It happened two days ago, to a grant that is ten days old, and of whose exchange nothing is left."""
    world.connect()
    world.clock.move(ms=10 * DAY)
    with patch.object(world.reads, "exchange", lambda *key: None):
        left(world, occurred_at=world.clock.now() - 2 * DAY)
        assert world.deliver().shares == {"stopped": 1}

    assert world.connection().state is ConnectionState.NEEDS_RECONNECT


@pytest.mark.rule("M-64")
def test_what_gets_another_grant_while_its_event_is_handled_has_its_share(new_world: Callable[..., World]) -> None:
    """A step-up is confirmed between the look at the account's members and the one at the connection."""
    world = live(new_world, "owner")
    out = world.come_back(world.approved(world.visit(widened(world))))
    world.accept()
    members = world.delivering.store.members

    def confirmed_meanwhile(*account: str) -> Any:
        found = list(members(*account))
        world.confirm(out.confirm_code)
        return iter(found)

    with patch.object(world.delivering.store, "members", confirmed_meanwhile):
        first = world.deliver()
    assert (first.outcome, first.shares) == (Outcome.WAITS, {})
    world.clock.move(to=first.until)

    assert world.deliver().shares == {"received": 1}
    assert world.events("webhook.received") == ["webhook.received"]
    assert world.connection().generation == 2
