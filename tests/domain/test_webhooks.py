"""What a prepared event may be, and who may take a delivery when."""

from typing import Any

import pytest

from quitclaim.domain.errors import SealBrokenError
from quitclaim.domain.limits import DELIVERY_LEASE_MS, EVENT_ACCOUNTS, EVENT_FIELDS, EVENT_TEXT_BYTES, GUARD_MS
from quitclaim.domain.webhooks import (
    ClaimVerdict,
    Delivery,
    DeliveryState,
    Prepared,
    Trust,
    claim_of,
    prepared_of,
)

NOW = 1_800_000_000_000
WHOLE = Prepared(
    provider="acme",
    client="acme",
    received_at=NOW,
    trust=Trust.SIGNED,
    sha256="0" * 64,
    size=17,
    endpoint="main",
    kind="order.made",
    event_id="e-1",
    accounts=("u-1", "u-2"),
    occurred_at=NOW - 1,
    sent_at=NOW - 2,
    resource="orders",
    source="oura",
    data_source="ring",
    content_type="application/json",
    element=3,
    deauthorizes=True,
    is_level=True,
    truncated=True,
    fields={"number": 7, "final": True, "text": "x"},
)
BARE = Prepared("acme", "acme", NOW, Trust.SECRET, "0" * 64, 0)


@pytest.mark.rule("M-60", "M-82")
@pytest.mark.parametrize("prepared", [WHOLE, BARE])
def test_a_prepared_event_comes_back_as_it_was(prepared: Prepared) -> None:
    """Everything that was frozen, and nothing that was not: what is absent stays absent."""
    stored = prepared.as_mapping()

    assert prepared_of(stored) == prepared
    assert None not in stored.values()


def changed(**members: Any) -> dict[str, Any]:
    return WHOLE.as_mapping() | members


@pytest.mark.rule("M-62")
@pytest.mark.parametrize(
    "stored",
    [
        changed(more=1),
        {name: value for name, value in WHOLE.as_mapping().items() if name != "trust"},
        changed(schema=2),
        changed(schema=True),
        changed(trust="believed"),
        changed(trust=["signed"]),
        changed(sha256="0" * 63),
        changed(sha256="G" * 64),
        changed(client="a#b"),
        changed(client=None),
        changed(received_at=-1),
        changed(received_at=True),
        changed(received_at=1.5),
        changed(received_at=10**13),
        changed(occurred_at="now"),
        changed(kind=""),
        changed(kind="x" * (EVENT_TEXT_BYTES + 1)),
        changed(kind="é" * (EVENT_TEXT_BYTES // 2 + 1)),
        changed(event_id=7),
        changed(accounts=[]),
        changed(accounts="u-1"),
        changed(accounts=["u"] * (EVENT_ACCOUNTS + 1)),
        changed(accounts=[7]),
        changed(fields={}),
        changed(fields=[]),
        changed(fields={f"f{number}": 1 for number in range(EVENT_FIELDS + 1)}),
        changed(fields={"a b": 1}),
        changed(fields={"a": None}),
        changed(fields={"a": {"b": 1}}),
        changed(fields={"a": 1.5}),
        changed(deauthorizes=1),
        changed(truncated=None),
    ],
)
def test_a_prepared_event_is_looked_at_again(stored: dict[str, Any]) -> None:
    """Exact members, each of its type and within its bounds: anything else was not written by this code."""
    with pytest.raises(SealBrokenError):
        prepared_of(stored)


def test_what_is_just_within_the_bounds_holds() -> None:
    """The bounds are those that the page says."""
    stored = changed(
        kind="x" * EVENT_TEXT_BYTES,
        accounts=["u"] * EVENT_ACCOUNTS,
        fields={f"f{number}": 1 for number in range(EVENT_FIELDS)},
    )

    assert prepared_of(stored).kind == "x" * EVENT_TEXT_BYTES


def a_delivery(state: DeliveryState, until: int | None = None) -> Delivery:
    return Delivery("acme", "d", "acme", state, NOW, 2, until=until)


@pytest.mark.rule("M-67", "M-68", "M-69", "U-17")
@pytest.mark.parametrize(
    ("delivery", "verdict"),
    [
        (a_delivery(DeliveryState.ACCEPTED), ClaimVerdict.FREE),
        (a_delivery(DeliveryState.PARKED), ClaimVerdict.FREE),
        (a_delivery(DeliveryState.PROCESSED), ClaimVerdict.OVER),
        (a_delivery(DeliveryState.DROPPED), ClaimVerdict.OVER),
        (a_delivery(DeliveryState.PROCESSING, NOW - GUARD_MS + 1), ClaimVerdict.TAKEN),
        (a_delivery(DeliveryState.PROCESSING, NOW - GUARD_MS), ClaimVerdict.FREE),
        (a_delivery(DeliveryState.PROCESSING, NOW - GUARD_MS - 1), ClaimVerdict.FREE),
    ],
)
def test_every_state_says_whether_it_may_be_claimed(delivery: Delivery, verdict: ClaimVerdict) -> None:
    """A lease is over for others once a guard is over as well."""
    assert delivery.verdict(NOW) is verdict


@pytest.mark.rule("M-65")
def test_a_claim_lasts_five_minutes_from_its_beginning() -> None:
    """Whatever was received when."""
    claim = claim_of(a_delivery(DeliveryState.ACCEPTED), "token", NOW + 7)

    assert claim.until == NOW + 7 + DELIVERY_LEASE_MS == NOW + 300_007


@pytest.mark.rule("S-9")
def test_only_a_signature_makes_more_than_a_hint() -> None:
    """Whoever has seen one event that carries a secret can make another."""
    assert [trust for trust in Trust if not trust.is_hint] == [Trust.SIGNED]
