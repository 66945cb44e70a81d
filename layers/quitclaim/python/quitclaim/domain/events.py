"""What the app is told: one event per transition, whatever caused it. A body holds no secret and no account data."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from quitclaim.domain.ids import ConnectionRef, OwnerRef

VERSION: Final = 1
"""Of an event as the app reads it (docs/events). A field more is no new version; one less, or another meaning, is."""


class EventKind(StrEnum):
    """The kinds that exist so far."""

    CONNECTION_READY = "connection.ready"
    CONNECTION_FAILED = "connection.failed"
    STEP_UP_FAILED = "connection.step_up_failed"
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
    WEBHOOK_RECEIVED = "webhook.received"
    SOURCE_CONNECTED = "source.connected"
    SOURCE_DISCONNECTED = "source.disconnected"
    SOURCE_FAILED = "source.failed"


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
        """Stable id within its owner."""
        return f"{self.kind}#{self.transition}"

    @property
    def public_id(self) -> str:
        """
        The id that the app is given: the same however often the event is delivered, and no other event's of the stack.
        """
        named = f"{self.ref.tenant}#{self.ref.owner}#{self.id}"
        return f"evt_{hashlib.sha256(named.encode()).hexdigest()[:32]}"

    @property
    def detail(self) -> dict[str, Any]:
        """The event as the app reads it (docs/events): whose it is, when it happened, and what its kind has to say."""
        ref = self.ref
        about = {"connection_id": ref.connection} if isinstance(ref, ConnectionRef) else {}
        return {
            "version": VERSION,
            "id": self.public_id,
            "kind": self.kind.value,
            "at": self.at,
            "tenant": ref.tenant,
            "owner": ref.owner,
            **about,
            **self.body,
        }
