"""
A security event of a provider, from its token to the grant: it ends the grant that it speaks of, or has the provider
asked, once however often it comes.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import AFTERMATH_MS, CLOCK_SKEW_MS, MINUTE
from quitclaim.domain.security_events import (
    MEANING,
    OAUTH,
    RISC,
    SecurityEvent,
    SecurityEvents,
    SetFault,
    SetRefused,
    Transmitter,
)
from quitclaim.domain.webhooks import DeliveryState, Trust
from quitclaim.flows.security_events import Acknowledged, HearingOf, hear
from quitclaim.store.webhooks import WebhookStore
from tests.flows.world import GOOGLE, World

BOB = ConnectionRef("acme-app", "bob", "google")
SPEC = Transmitter("acme", "https://acme.example", ("us",), "https://acme.example/jwks", "acme")
TOKENS, SESSIONS = f"{OAUTH}tokens-revoked", f"{RISC}sessions-revoked"


@dataclass
class Believed:
    """`ports.Transmitters` and the one in it: whatever it is given says this."""

    told: SecurityEvents | SetRefused
    spec: Transmitter = SPEC

    def at(self, name: str) -> "Believed":
        assert name == "acme"
        return self

    def read(self, token: bytes) -> SecurityEvents | SetRefused:
        return self.told


def said(world: World, *types: str, jti: str = "1", account: str | None = "alice", ago_ms: int = 0) -> Any:
    """Acme says that this happened to the account."""
    at = world.clock.now() - ago_ms
    events = tuple(SecurityEvent(each, MEANING[each], account, at) for each in types)
    return heard(world, SecurityEvents(jti, events))


def heard(world: World, told: SecurityEvents | SetRefused) -> Any:
    """What is answered."""
    store = WebhookStore(world.table, world.clock, world.ids)
    hearing = HearingOf(store, Believed(told), world.clients, world.vault("connect"), world.clock, world.forward)
    return hear("acme", b"token", hearing)


def handle(world: World) -> None:
    """Whoever delivers takes every event that waits."""
    for item in world.items("delivery"):
        if item["SK"] == "W":
            world.deliver(item["PK"].split("#")[2])


def connected(world: World, ref: ConnectionRef = GOOGLE) -> None:
    """Long enough ago that nothing is in doubt."""
    world.connect(ref)
    world.clock.move(ms=AFTERMATH_MS + CLOCK_SKEW_MS + MINUTE)


@pytest.mark.rule("S-24")
def test_the_end_of_all_tokens_stops_the_grant_of_every_owner(world):
    """As lost, not as disconnected: what the app derived stays."""
    connected(world)
    connected(world, BOB)

    assert said(world, TOKENS) == Acknowledged(new=1)
    handle(world)

    assert [world.connection(ref).state.value for ref in (GOOGLE, BOB)] == ["needs_reconnect"] * 2
    assert world.events("connection.needs_reconnect") == ["connection.needs_reconnect"] * 2
    assert world.unaccounted() == []


@pytest.mark.rule("S-24")
def test_a_token_that_comes_again_has_no_second_effect(world):
    """Known by issuer, `jti` and what it says; the next grant is none of its business."""
    connected(world)
    said(world, TOKENS)
    handle(world)
    world.minutes_pass(2)
    world.connect(again=True)

    assert said(world, TOKENS) == Acknowledged(known=1)
    handle(world)

    assert world.connection().state.value == "ready"


def test_an_event_of_the_past_spares_the_newer_grant(world):
    """It speaks of what was live when it happened."""
    connected(world)

    before_it = AFTERMATH_MS + 2 * CLOCK_SKEW_MS + 2 * MINUTE
    assert said(world, TOKENS, ago_ms=before_it).new == 1
    handle(world)

    assert world.connection().state.value == "ready"


def test_the_end_of_sessions_has_the_provider_asked(world):
    """The grant is doubted and its provider decides: here it is good, and stays."""
    connected(world)

    assert said(world, SESSIONS) == Acknowledged(new=1)
    (item,) = world.items("delivery")
    prepared, raw = world.vault("deliver").open_delivery("acme", item["PK"].split("#")[2], item["body"])
    assert (prepared.trust, prepared.accounts, raw) == (Trust.INDIRECT, ("alice",), b"token")
    handle(world)

    assert world.connection().state.value == "ready"
    assert world.replay.asked == [(GOOGLE, "main")]


def test_of_a_token_with_several_events_each_has_its_effect(world):
    """And what says nothing has none."""
    connected(world)

    assert said(world, SESSIONS, TOKENS) == Acknowledged(new=2)
    handle(world)

    assert world.connection().state.value == "needs_reconnect"


def test_an_event_about_nobody_that_we_know_is_acknowledged(world):
    """Without an id of ours nothing is stored; with one that has no grant it waits, and is let go."""
    connected(world)

    assert said(world, TOKENS, account=None) == Acknowledged(idle=1)
    assert world.items("delivery") == []
    said(world, SESSIONS, jti="2", account="eve")
    handle(world)
    assert {item["state"] for item in world.items("delivery")} == {DeliveryState.DROPPED.value}
    assert world.connection().state.value == "ready"


def test_what_does_not_hold_leaves_nothing(world):
    """It is answered, and no more."""
    refused = SetRefused(SetFault.INVALID_KEY, "no")

    assert heard(world, refused) == refused
    assert world.items("delivery") == []
