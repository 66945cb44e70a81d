"""What the deletion of its owner asks of a connection, state by state."""

import pytest

from quitclaim.domain.connect import Connection, ConnectionState, ExchangeOutcome, Owner
from quitclaim.domain.deletion import DeletionStep, deletion_step
from tests.domain.values import NOW, a_connection

EXPECTED = {
    ConnectionState.AUTHORIZING: DeletionStep.STOP,
    ConnectionState.READY: DeletionStep.STOP,
    ConnectionState.NEEDS_RECONNECT: DeletionStep.STOP,
    ConnectionState.FAILED: DeletionStep.STOP,
    ConnectionState.RECONCILING_LINK: DeletionStep.REQUEST,
    ConnectionState.REVOKING: DeletionStep.LEAVE,
    ConnectionState.RECONCILING_REVOKE: DeletionStep.LEAVE,
    ConnectionState.REVOKED: DeletionStep.LEAVE,
}


@pytest.mark.parametrize("state", ConnectionState)
def test_the_row_of_a_deleted_owner(state: ConnectionState) -> None:
    """Whatever is not stopped yet."""
    assert deletion_step(a_connection(state)) is EXPECTED[state]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"account": "a"}, DeletionStep.STOP),
        ({"account": "a", "requested": NOW}, DeletionStep.STOP),
        ({"requested": NOW}, DeletionStep.LEAVE),
    ],
)
def test_one_that_is_being_asked_about(changes: dict[str, object], expected: DeletionStep) -> None:
    """Stopped where the account is known, else marked, once."""
    connection: Connection = a_connection(ConnectionState.RECONCILING_LINK, **changes)

    assert deletion_step(connection) is expected


def test_an_owner_is_deleted_by_its_time() -> None:
    """And by nothing else."""
    assert Owner(deleted_at=0).is_deleted
    assert not Owner(stopped_at=NOW).is_deleted


@pytest.mark.parametrize("outcome", ExchangeOutcome)
def test_an_exchange_is_over_unless_it_waits(outcome: ExchangeOutcome) -> None:
    """For an answer, or with one."""
    assert outcome.is_over is (outcome not in (ExchangeOutcome.OPEN, ExchangeOutcome.HELD))
