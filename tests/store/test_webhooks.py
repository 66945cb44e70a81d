"""The writes of webhooks: what each leaves in the table, and who may write after whom."""

import pytest

from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import DELIVERY_LEASE_MS, FORWARD_MS, GUARD_MS, TRACE_TTL_MS
from quitclaim.domain.webhooks import ClaimVerdict, DeliveryState
from tests.store.rows import DELIVERY
from tests.store.stage import REF, Stage


@pytest.mark.rule("M-60")
def test_what_is_accepted_is_durable_and_due(stage: Stage) -> None:
    """One item: the sealed body, and a time at which it is sent again whatever becomes of the message to the queue."""
    delivery = stage.a_delivery()

    assert stage.webhooks.accept(delivery)

    assert stage.delivery().body == b"sealed"
    assert stage.delivery().state is DeliveryState.ACCEPTED
    assert stage.due("forward") == [(DELIVERY, stage.now + FORWARD_MS)]


@pytest.mark.rule("RB-63")
def test_a_second_copy_changes_nothing(stage: Stage) -> None:
    """It is a duplicate because the first is there, whatever the first has come to."""
    delivery = stage.accepted()
    before = stage.stand_in.everything()

    assert not stage.webhooks.accept(stage.a_delivery(body=b"other"))

    assert stage.stand_in.everything() == before
    stage.webhooks.complete(stage.webhooks.claim(delivery, stage.now), delivery, stage.now)
    assert not stage.webhooks.accept(stage.a_delivery())


@pytest.mark.rule("M-83")
def test_the_item_names_nobody(stage: Stage) -> None:
    """Its attributes are what the page of the table says; who it is about is in the sealed body alone."""
    stage.accepted()

    named = set(stage.item(DELIVERY)) - {"PK", "SK", "v", "op", "ty", "sv", "d1", "d2"}

    assert named == {"provider", "state", "received", "size", "body", "next", "sends", "claims"}


@pytest.mark.rule("M-65")
def test_a_claim_has_a_full_lease_however_long_the_event_waited(stage: Stage) -> None:
    """Five minutes from the claim, not from the receipt; the receipt's time stays."""
    delivery = stage.accepted()
    later = stage.now + 3_600_000

    claim = stage.webhooks.claim(delivery, later)

    assert claim.until == later + DELIVERY_LEASE_MS
    assert (stage.delivery().until, stage.delivery().received) == (claim.until, stage.now)


@pytest.mark.rule("M-68")
def test_a_live_lease_keeps_others_out(stage: Stage) -> None:
    """Until the lease and a guard are over, another attempt is told that it is taken."""
    delivery = stage.accepted()
    claim = stage.webhooks.claim(delivery, stage.now)

    with pytest.raises(MovedError) as moved:
        stage.webhooks.claim(delivery, claim.until + GUARD_MS - 1)

    assert moved.value.seen["delivery"].verdict(claim.until + GUARD_MS - 1) is ClaimVerdict.TAKEN


@pytest.mark.rule("M-69", "M-80", "RB-64")
def test_an_expired_lease_is_taken_over_once_and_its_holder_can_do_nothing_more(stage: Stage) -> None:
    """Of two who try, one has it; the old holder neither completes nor releases."""
    delivery = stage.accepted()
    old = stage.webhooks.claim(delivery, stage.now)
    later = old.until + GUARD_MS
    new = stage.webhooks.claim(delivery, later)

    with pytest.raises(MovedError):
        stage.webhooks.claim(delivery, later)
    with pytest.raises(MovedError):
        stage.webhooks.complete(old, delivery, later)
    with pytest.raises(MovedError):
        stage.webhooks.release(old, delivery, later)

    assert new.token != old.token
    assert (stage.delivery().claim, stage.delivery().claims) == (new.token, 2)
    stage.webhooks.complete(new, delivery, later)


@pytest.mark.rule("M-67", "M-83", "S-10")
def test_what_is_processed_has_no_body_and_is_remembered(stage: Stage) -> None:
    """No longer due, body erased, 30 days from its receipt; whoever claims it is told that it is over."""
    delivery = stage.accepted()
    claim = stage.webhooks.claim(delivery, stage.now)

    stage.webhooks.complete(claim, delivery, stage.now + 1)

    item = stage.item(DELIVERY)
    assert {"body", "claim", "until", "next", "d1", "d2"}.isdisjoint(item)
    assert item["ttl"] == (delivery.received + TRACE_TTL_MS) // 1000
    assert (stage.delivery().state, stage.delivery().done) == (DeliveryState.PROCESSED, stage.now + 1)
    with pytest.raises(MovedError) as moved:
        stage.webhooks.claim(delivery, stage.now + 10**9)
    assert moved.value.seen["delivery"].verdict(stage.now) is ClaimVerdict.OVER


@pytest.mark.rule("M-71", "M-76")
def test_what_is_released_is_free_at_once_and_due_again(stage: Stage) -> None:
    """A failed attempt costs no lease: the next one may begin now."""
    delivery = stage.accepted()
    claim = stage.webhooks.claim(delivery, stage.now)

    stage.webhooks.release(claim, delivery, stage.now + 60_000)

    assert stage.due("forward") == [(DELIVERY, stage.now + 60_000)]
    assert stage.delivery().verdict(stage.now) is ClaimVerdict.FREE
    stage.webhooks.claim(delivery, stage.now)


@pytest.mark.rule("U-15")
def test_a_share_is_claimed_apart_from_its_event(stage: Stage) -> None:
    """Each connection's share has a trace of its own: what happens to one says nothing of another."""
    delivery, share = stage.accepted(), stage.accepted(target=REF, body=None)
    stage.webhooks.claim(delivery, stage.now)

    claim = stage.webhooks.claim(share, stage.now)
    stage.webhooks.complete(claim, share, stage.now)

    assert stage.delivery(REF).state is DeliveryState.PROCESSED
    assert stage.delivery().state is DeliveryState.PROCESSING


def test_only_one_run_sends_again(stage: Stage) -> None:
    """Two that look at once send one message: the second sees that the time has moved."""
    delivery = stage.accepted()

    stage.webhooks.sent_again(delivery, stage.now + 60_000)

    with pytest.raises(MovedError):
        stage.webhooks.sent_again(delivery, stage.now + 60_000)
    assert stage.due("forward") == [(DELIVERY, stage.now + 60_000)]
    assert stage.delivery().sends == 1
