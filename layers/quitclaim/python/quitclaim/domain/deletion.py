"""The deletion of an owner: a fence for good, and then one stop for each of its connections."""

from enum import StrEnum

from quitclaim.domain.connect import STOPPED, Connection, ConnectionState


class DeletionStep(StrEnum):
    """What the deletion of its owner asks of a connection."""

    LEAVE = "leave"  # stopped already, or as good as
    REQUEST = "request"  # the provider is being asked what became of it: the stop follows its answer
    STOP = "stop"


def deletion_step(connection: Connection) -> DeletionStep:
    """The row "stop for a deleted owner" of the table of states and events."""
    if connection.state in STOPPED:
        return DeletionStep.LEAVE
    if connection.state is ConnectionState.RECONCILING_LINK and connection.account is None:
        return DeletionStep.LEAVE if connection.requested is not None else DeletionStep.REQUEST
    return DeletionStep.STOP
