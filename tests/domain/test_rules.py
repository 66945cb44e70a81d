"""Rules that are a list of words: each word is part of what is stored, so the list is held as a whole."""

import pytest

from quitclaim.domain.connect import ConnectionState, ExchangeOutcome
from quitclaim.domain.revocations import RevocationState


@pytest.mark.rule("U-1")
def test_the_states_of_a_connection() -> None:
    """Eight."""
    assert {state.value for state in ConnectionState} == {
        "authorizing",
        "ready",
        "needs_reconnect",
        "failed",
        "reconciling_link",
        "revoking",
        "reconciling_revoke",
        "revoked",
    }


@pytest.mark.rule("F-4")
def test_the_states_of_a_revocation() -> None:
    """Two that hold material, and five ends."""
    assert {state.value for state in RevocationState} == {
        "pending",
        "parked",
        "confirmed",
        "unconfirmed",
        "expired",
        "unreadable",
        "unsupported",
    }


@pytest.mark.rule("F-5")
def test_the_outcomes_of_an_exchange() -> None:
    """Two that wait, and four that are over."""
    assert {outcome.value for outcome in ExchangeOutcome} == {
        "open",
        "held",
        "installed",
        "cleanup",
        "unconfirmed",
        "ended",
    }
    assert {outcome.value for outcome in ExchangeOutcome if not outcome.is_over} == {"open", "held"}
