"""Rows 72 to 77: what becomes of a claimed delivery, and a grant that an event casts doubt on."""

from functools import partial

import pytest

from quitclaim.domain.accounts import Account
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.limits import CHECK_EVERY_MS, KEPT_MS, PARKED_MS, TRACE_TTL_MS
from quitclaim.domain.webhooks import Claim, Delivery, DeliveryState
from quitclaim.store.keys import delivery_key, event_key, waiting_key
from tests.store import test_rows
from tests.store.more_rows import arranged_by
from tests.store.rows import (
    ACCOUNT_KEY,
    CLAIM_IS_LOST,
    DELIVERY,
    GRANT,
    Act,
    Refusal,
    Row,
    gone,
    has,
    lacks,
    moved,
    taken,
)
from tests.store.stage import ACCOUNT, CLIENT, OTHER, REF, Stage

SHARE = delivery_key(CLIENT, "event-1", REF)


def claimed(stage: Stage) -> tuple[Claim, Delivery]:
    """A delivery that a worker has."""
    delivery = stage.accepted()
    return stage.webhooks.claim(delivery, stage.now), delivery


def told(stage: Stage) -> Event:
    """What the app is told of it."""
    return Event(EventKind.WEBHOOK_RECEIVED, REF, "google#event-1", stage.now, {"generation": 1})


def known(stage: Stage) -> Account:
    """An account of which somebody lost a grant."""
    stage.stand_in.alter(ACCOUNT_KEY, put={"live": 0, "parked": 0, "lost_at": 1, "v": 4, "ty": "account", "sv": 1})
    return stage.account()


def parked(stage: Stage, *, beside_known: bool = False) -> tuple[Claim, Delivery]:
    """A delivery that waits beside an account, and that a worker has again."""
    claim, delivery = claimed(stage)
    stage.deliveries.park(claim, delivery, ACCOUNT, known(stage) if beside_known else None, stage.now)
    waiting = stage.delivery()
    return stage.webhooks.claim(waiting, stage.now), waiting


def record_share(stage: Stage, *, tells: bool) -> Act:
    claim, delivery = claimed(stage)
    event = told(stage) if tells else None
    return partial(stage.deliveries.record_share, claim, delivery, REF, "received", event, stage.now)


def park(stage: Stage, *, beside_known: bool) -> Act:
    claim, delivery = claimed(stage)
    account = known(stage) if beside_known else None
    return partial(stage.deliveries.park, claim, delivery, ACCOUNT, account, stage.now, level="changed")


def park_again(stage: Stage) -> Act:
    claim, delivery = parked(stage)
    return partial(stage.deliveries.park, claim, delivery, ACCOUNT, stage.account(), stage.now)


def end(stage: Stage) -> Act:
    claim, delivery = claimed(stage)
    return partial(stage.deliveries.end, claim, delivery, None, stage.now)


def end_after_waiting(stage: Stage, *, beside_known: bool) -> Act:
    claim, delivery = parked(stage, beside_known=beside_known)
    return partial(stage.deliveries.end, claim, delivery, stage.account(), stage.now)


def keep(stage: Stage) -> Act:
    claim, delivery = claimed(stage)
    return partial(stage.deliveries.keep, claim, delivery, None, stage.now, reason="failed for a day")


def keep_after_waiting(stage: Stage) -> Act:
    claim, delivery = parked(stage, beside_known=True)
    return partial(stage.deliveries.keep, claim, delivery, stage.account(), stage.now, reason="waited too long")


def redrive(stage: Stage) -> Act:
    keep(stage)()
    return partial(stage.deliveries.redrive, stage.delivery(), stage.now)


def doubt(stage: Stage, *, again: bool = False) -> Act:
    stage.installed()
    if again:
        stage.tokens.doubt(stage.grant(), stage.now - CHECK_EVERY_MS)
    return partial(stage.tokens.doubt, stage.grant(), stage.now)


SHARED_BEFORE = Refusal("it had its share", "share", taken(SHARE))
ACCOUNT_MOVED = Refusal("the account moved", "account", moved(ACCOUNT_KEY))

ROWS = (
    Row(
        "72 share",
        partial(record_share, tells=True),
        3,
        (
            *CLAIM_IS_LOST,
            SHARED_BEFORE,
            Refusal("told", "event", lambda stage: stage.stand_in.plant(event_key(told(stage)))),
        ),
    ),
    Row("72 share that nobody is told of", partial(record_share, tells=False), 2, (*CLAIM_IS_LOST, SHARED_BEFORE)),
    Row(
        "73 parked beside an account that nobody knew",
        partial(park, beside_known=False),
        3,
        (
            *CLAIM_IS_LOST,
            Refusal("somebody knows it by now", "account", taken(ACCOUNT_KEY)),
            Refusal(
                "it waits there",
                "waiting",
                lambda stage: stage.stand_in.plant(waiting_key(CLIENT, ACCOUNT, stage.now, "event-1")),
            ),
        ),
    ),
    Row("73 parked beside a known account", partial(park, beside_known=True), 3, (*CLAIM_IS_LOST, ACCOUNT_MOVED)),
    Row("73 parked again", park_again, 2, (*CLAIM_IS_LOST, ACCOUNT_MOVED)),
    Row("74 over", end, 1, CLAIM_IS_LOST),
    Row(
        "74 over after it waited",
        partial(end_after_waiting, beside_known=False),
        3,
        (*CLAIM_IS_LOST, ACCOUNT_MOVED),
    ),
    Row(
        "74 over after it waited beside a known account",
        partial(end_after_waiting, beside_known=True),
        3,
        (*CLAIM_IS_LOST, ACCOUNT_MOVED),
    ),
    Row("75 kept", keep, 1, CLAIM_IS_LOST),
    Row("75 kept after it waited", keep_after_waiting, 3, (*CLAIM_IS_LOST, ACCOUNT_MOVED)),
    Row(
        "76 delivered after all",
        redrive,
        1,
        (
            Refusal("it moved", "delivery", moved(DELIVERY)),
            Refusal("it is accepted again", "delivery", has(DELIVERY, state="accepted")),
            Refusal("its body is gone", "delivery", lacks(DELIVERY, "body")),
        ),
    ),
    Row(
        "77 doubted",
        doubt,
        1,
        (
            Refusal("it was refreshed", "grant", has(GRANT, tv=2)),
            Refusal("another generation", "grant", has(GRANT, generation=9)),
            Refusal("it was stopped", "grant", gone(GRANT)),
            Refusal("it was doubted just now", "grant", lambda stage: has(GRANT, doubted_at=stage.now)(stage)),
        ),
    ),
    Row("77 doubted again", partial(doubt, again=True), 1),
)
dynamodb, arranged = test_rows.dynamodb, arranged_by(ROWS)
test_a_broken_condition = test_rows.test_a_condition_that_does_not_hold_refuses_the_whole_row
test_once = test_rows.test_a_row_happens_once_whatever_became_of_its_first_try


@pytest.mark.rule("U-15", "M-83")
def test_a_share_is_remembered_as_long_as_its_event(stage: Stage) -> None:
    """What it came to, and no body; one more is a duplicate."""
    record_share(stage, tells=True)()

    share = stage.delivery(REF)
    assert (share.state, share.reason, share.body) == (DeliveryState.PROCESSED, "received", None)
    assert stage.item(SHARE)["ttl"] == (share.received + TRACE_TTL_MS) // 1000
    assert stage.deliveries.shares(CLIENT, "event-1") == {REF}
    assert "d1" not in stage.item(SHARE)


@pytest.mark.rule("RB-71")
def test_what_is_parked_is_due_at_its_end_and_free(stage: Stage) -> None:
    """A worker may have it at any time; nobody has to before its day is over."""
    park(stage, beside_known=False)()

    delivery = stage.delivery()
    assert (delivery.state, delivery.beside, delivery.claim) == (DeliveryState.PARKED, ACCOUNT, None)
    assert stage.due("parked") == [(DELIVERY, delivery.received + PARKED_MS)]
    assert stage.due("forward") == []
    assert list(stage.deliveries.waiting(CLIENT, ACCOUNT)) == ["event-1"]
    assert stage.deliveries.levels(CLIENT, ACCOUNT) == {"changed"}
    assert stage.account().waiting == 1


def test_a_grant_finds_what_waits_for_it(stage: Stage) -> None:
    """The install changes the account's item, which is due as long as something lives there and something waits."""
    parked(stage)
    assert stage.due("replay") == []

    stage.installed()

    assert stage.due("replay") == [(ACCOUNT_KEY, stage.now)]
    assert (stage.account().live, stage.account().waiting) == (1, 1)


def test_what_waits_is_in_order_of_arrival(stage: Stage) -> None:
    """By the receipt, not by the order in which it was parked; over more than a page."""
    for number in (2, 0, 1):
        delivery = stage.a_delivery(digest=f"event-{number}", received=stage.now + number)
        assert stage.webhooks.accept(delivery)
        claim = stage.webhooks.claim(delivery, stage.now)
        account = stage.reads.account(CLIENT, ACCOUNT)
        stage.deliveries.park(claim, delivery, ACCOUNT, account, stage.now)

    assert list(stage.deliveries.waiting(CLIENT, ACCOUNT)) == ["event-0", "event-1", "event-2"]
    assert stage.account().waiting == 3


def test_an_account_that_was_only_waited_for_goes_with_the_last_that_waited(stage: Stage) -> None:
    """One that somebody had a grant of stays known."""
    end_after_waiting(stage, beside_known=False)()

    assert not stage.has(ACCOUNT_KEY)


def test_a_known_account_stays(stage: Stage) -> None:
    """Who left it is remembered."""
    keep_after_waiting(stage)()

    assert (stage.account().lost_at, stage.account().waiting) == (1, None)


def test_what_nobody_had_is_shown_and_kept_for_a_week(stage: Stage) -> None:
    """With its body; due for nothing."""
    keep(stage)()

    item = stage.item(DELIVERY)
    assert (item["state"], item["body"], item["ttl"]) == ("dropped", b"sealed", (stage.now + KEPT_MS) // 1000)
    assert len(stage.attention("delivery")) == 1
    assert "d1" not in item


def test_what_is_delivered_after_all_has_another_day(stage: Stage) -> None:
    """Due at once, out of the list, and no longer about to be forgotten."""
    act = redrive(stage)
    stage.clock.move(ms=1)

    act()

    delivery = stage.delivery()
    assert (delivery.state, delivery.reason, delivery.done) == (DeliveryState.ACCEPTED, None, None)
    assert delivery.give_up_at == (delivery.again or 0) + PARKED_MS
    assert stage.due("forward") == [(DELIVERY, delivery.again)]
    assert stage.attention("delivery") == []
    assert "ttl" not in stage.item(DELIVERY)


@pytest.mark.rule("U-15")
def test_the_members_of_an_account_are_over_all_owners(stage: Stage) -> None:
    """Each with the generation of its grant."""
    stage.installed()
    stage.stand_in.plant(
        type(ACCOUNT_KEY)(ACCOUNT_KEY.pk, f"C#{OTHER.tenant}#{OTHER.owner}#{OTHER.connection}"), generation=7
    )

    assert dict(stage.deliveries.members(CLIENT, ACCOUNT)) == {REF: 1, OTHER: 7}
