"""What the app is told: one event per transition, whatever caused it. A body holds no secret and no account data."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from quitclaim.domain.ids import ConnectionRef, OwnerRef


class EventKind(StrEnum):
    """The kinds that exist so far."""

    CONNECTION_READY = "connection.ready"
    CONNECTION_FAILED = "connection.failed"
    CONNECTION_REVOKING = "connection.revoking"
    CONNECTION_EXPIRING = "connection.expiring"
    CONNECTION_NEEDS_RECONNECT = "connection.needs_reconnect"
    CONNECTION_REVOKED = "connection.revoked"
    CONNECTION_CLOSED = "connection.closed"
    OWNER_STOPPED = "owner.stopped"
    REVOCATION_CONFIRMED = "revocation.confirmed"
    REVOCATION_RELEASED = "revocation.released_shared"
    EXCHANGE_UNCONFIRMED = "exchange.unconfirmed"
    REMOVAL_REQUIRED = "removal.required"
    REMOVAL_ACKNOWLEDGED = "removal.acknowledged"
    PURGE_COMPLETED = "purge.completed"


@dataclass(frozen=True)
class Event:
    """
    An outbox item, of a connection or of an owner. *transition* is the transition's own id (exchange, revocation or
    connection#generation): the same one never makes two events.
    """

    kind: EventKind
    ref: ConnectionRef | OwnerRef
    transition: str
    at: int
    body: dict[str, Any] = field(default_factory=dict)
    published: int | None = None

    @property
    def id(self) -> str:
        """Stable id."""
        return f"{self.kind}#{self.transition}"
