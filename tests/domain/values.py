"""Values that the rules are asked about; each builder gives an ordinary one, and a test says what is special."""

from typing import Any, Final

from quitclaim.domain.connect import Connection, ConnectionState, Exchange, ExchangeOutcome
from quitclaim.domain.facts import OldToken, ProviderFacts
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import WINDOW_MS
from quitclaim.domain.revocations import Reach, Revocation, RevocationState, deadline_of
from quitclaim.domain.stop import StopIntent
from quitclaim.domain.tokens import Grant

NOW: Final = 1_800_000_000_000
AROUND: Final = (-1, 0, 1)
"""A millisecond before, at, and a millisecond after: what every deadline is tried at (U-17)."""
REF: Final = ConnectionRef("acme", "ann", "google")


def a_connection(state: ConnectionState = ConnectionState.READY, **changes: Any) -> Connection:
    """A connection in its third life."""
    return Connection(**{"ref": REF, "provider": "google", "client": "web", "state": state, "generation": 3} | changes)


def an_exchange(outcome: ExchangeOutcome = ExchangeOutcome.OPEN, **changes: Any) -> Exchange:
    """An exchange that began now."""
    plain = {
        "ref": REF,
        "id": "x1",
        "kind": "code",
        "client": "web",
        "generation": 3,
        "started": NOW,
        "ends": NOW + WINDOW_MS,
        "outcome": outcome,
        "rid": "r1",
    }
    return Exchange(**plain | changes)


def a_revocation(state: RevocationState = RevocationState.PENDING, **changes: Any) -> Revocation:
    """A revocation that was queued now; due, where it is pending."""
    plain = {
        "rid": "r1",
        "state": state,
        "ref": REF,
        "generation": 3,
        "client": "web",
        "provider": "google",
        "takes": "refresh_token",
        "reach": Reach.TOKEN,
        "queued": NOW,
        "deadline": deadline_of(NOW),
        "next": NOW if state is RevocationState.PENDING else None,
    }
    return Revocation(**plain | changes)


def a_grant(**changes: Any) -> Grant:
    """A live grant whose token does not expire."""
    plain = {
        "ref": REF,
        "pair": "main",
        "generation": 3,
        "tv": 7,
        "family": "x1#main",
        "use": b"use",
        "revoke": b"revoke",
        "fp": "fp",
        "rid": "r1",
        "client": "web",
        "takes": "refresh_token",
        "reach": Reach.FAMILY,
        "saved_at": NOW,
    }
    return Grant(**plain | changes)


def an_intent(**changes: Any) -> StopIntent:
    """A stop whose own parts are done: only its revocations may still keep it open."""
    plain = {
        "ref": REF,
        "generation": 3,
        "reason": "disconnect",
        "token": "t1",
        "client": "web",
        "purge": "done",
        "since": NOW,
        "next": NOW,
        "comp_derived": True,
    }
    return StopIntent(**plain | changes)


def facts(**changes: Any) -> ProviderFacts:
    """A provider that rotates refresh tokens and ends the old one at once."""
    plain = {
        "revocable": True,
        "takes": "either",
        "reach": Reach.FAMILY,
        "refreshable": True,
        "rotates": "yes",
        "old_token": OldToken.IMMEDIATE,
        "has_identity": True,
        "access_ttl_ms": 3_600_000,
        "manual_page": None,
    }
    return ProviderFacts(**plain | changes)
