"""
Events as the app reads them, for docs/events and for tests: no function imports this.

`python -m quitclaim.runtime.event_bodies docs/events` writes one JSON schema for each kind; with `--check` it says
which are not as they should be. A field more is no new version: who reads an event must not mind what is new in it.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from quitclaim.domain.events import VERSION, EventKind

Millis = Annotated[int, Field(gt=0, description="Milliseconds since 1970.")]
Name = Annotated[str, Field(min_length=1, max_length=128)]


class Told(BaseModel):
    """What every event says."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: Annotated[Literal[1], Field(description="Of the schema. Ignore fields that you do not know.")]
    id: Annotated[
        str, Field(pattern="^evt_[0-9a-f]{32}$", description="The same however often the event is delivered.")
    ]
    at: Annotated[Millis, Field(description="When it happened, in milliseconds since 1970.")]
    tenant: Name
    owner: Name


class OfConnection(Told):
    """And of a connection's event."""

    connection_id: Name
    generation: Annotated[int, Field(ge=1, description="The life of the connection that the event is about.")]


class ConnectionReady(OfConnection):
    """
    A grant is installed: access tokens are handed out. Above generation 1 the connection came back, or a wider grant
    took the place of the one before.
    """

    kind: Literal[EventKind.CONNECTION_READY]


class ConnectionFailed(OfConnection):
    """An attempt to connect ended without a grant."""

    kind: Literal[EventKind.CONNECTION_FAILED]
    reason: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$", description="As `failure` of the connection.")]


class ConnectionStepUpFailed(OfConnection):
    """
    An attempt to get a wider grant ended without one: the connection is as it was, with the grant of the generation
    before the one that is named here.
    """

    kind: Literal[EventKind.STEP_UP_FAILED]
    reason: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$")]


class ConnectionRevoking(OfConnection):
    """A connection was stopped: nothing is handed out any more, and its grant is being revoked."""

    kind: Literal[EventKind.CONNECTION_REVOKING]
    reason: Literal["disconnect", "account_deleted"]


class ConnectionNeedsReconnect(OfConnection):
    """The provider ended the grant, or its outcome is lost: the user has to connect again."""

    kind: Literal[EventKind.CONNECTION_NEEDS_RECONNECT]
    reason: Literal["grant_rejected", "insufficient_scope", "refresh_unconfirmed"]


class ConnectionExpiring(OfConnection):
    """The grant ends at a time that no refresh moves."""

    kind: Literal[EventKind.CONNECTION_EXPIRING]
    expires_at: Millis


class ConnectionRevoked(OfConnection):
    """The stop of this generation is done, and the provider has confirmed it for everything that it had."""

    kind: Literal[EventKind.CONNECTION_REVOKED]
    closed_as: Literal["confirmed"]


class ConnectionClosed(OfConnection):
    """
    The stop of this generation is done in another way: nothing was to be revoked, it was released to another
    connection, there is the owner's word, or (of a deleted owner) nobody's; or a lost grant's revocation is over.
    """

    kind: Literal[EventKind.CONNECTION_CLOSED]
    closed_as: Literal["confirmed", "not_needed", "released", "attested", "unattested"]


class OwnerStopped(Told):
    """Every connection of a deleted owner is stopped."""

    kind: Literal[EventKind.OWNER_STOPPED]


class RevocationConfirmed(OfConnection):
    """The provider has confirmed that a grant is revoked."""

    kind: Literal[EventKind.REVOCATION_CONFIRMED]
    outcome: Literal["confirmed"]


class RevocationReleased(OfConnection):
    """A grant was not revoked: that would end one in use, of another connection of the account or this one's own."""

    kind: Literal[EventKind.REVOCATION_RELEASED]


class ExchangeUnconfirmed(OfConnection):
    """An answer never came: a grant may exist at the provider that nobody has seen. The owner has to look there."""

    kind: Literal[EventKind.EXCHANGE_UNCONFIRMED]
    reason: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$")]


class RemovalRequired(OfConnection):
    """A grant could not be revoked by us: the owner has to remove the access at the provider."""

    kind: Literal[EventKind.REMOVAL_REQUIRED]
    outcome: Literal["unconfirmed", "expired", "unreadable", "unsupported"]


class RemovalAcknowledged(OfConnection):
    """Somebody said that the access is removed."""

    kind: Literal[EventKind.REMOVAL_ACKNOWLEDGED]


class PurgeCompleted(OfConnection):
    """The data derived from the connection is removed."""

    kind: Literal[EventKind.PURGE_COMPLETED]


class WebhookReceived(OfConnection):
    """The provider sent an event about the connection's account. What it says is not in here."""

    kind: Literal[EventKind.WEBHOOK_RECEIVED]
    delivery_id: Annotated[str, Field(min_length=1, max_length=128, description="The same for every connection.")]
    provider: Name
    event: Annotated[
        str, Field(pattern="^[A-Za-z0-9._:/-]{1,128}$", description="What the provider calls it, or `unnamed`.")
    ]
    received_at: Millis


Slug = Annotated[
    str, Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64, description="The broker's name of the source.")
]


class SourceConnected(OfConnection):
    """A source behind the account of a connection to a broker gives data."""

    kind: Literal[EventKind.SOURCE_CONNECTED]
    source: Slug


class SourceDisconnected(OfConnection):
    """A source behind the account gives no data any more; the connection is as it was."""

    kind: Literal[EventKind.SOURCE_DISCONNECTED]
    source: Slug
    reason: Annotated[
        Literal["ended_at_broker", "asked_again"],
        Field(description="The broker said so; or the app asked for a new link of a source that was connected."),
    ]


class SourceFailed(OfConnection):
    """A source, or its link, failed; the connection is as it was."""

    kind: Literal[EventKind.SOURCE_FAILED]
    source: Slug
    reason: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$", description="As `error` of the source.")]


MODELS: Final[dict[EventKind, type[Told]]] = {
    EventKind.CONNECTION_READY: ConnectionReady,
    EventKind.CONNECTION_FAILED: ConnectionFailed,
    EventKind.STEP_UP_FAILED: ConnectionStepUpFailed,
    EventKind.CONNECTION_REVOKING: ConnectionRevoking,
    EventKind.CONNECTION_NEEDS_RECONNECT: ConnectionNeedsReconnect,
    EventKind.CONNECTION_EXPIRING: ConnectionExpiring,
    EventKind.CONNECTION_REVOKED: ConnectionRevoked,
    EventKind.CONNECTION_CLOSED: ConnectionClosed,
    EventKind.OWNER_STOPPED: OwnerStopped,
    EventKind.REVOCATION_CONFIRMED: RevocationConfirmed,
    EventKind.REVOCATION_RELEASED: RevocationReleased,
    EventKind.EXCHANGE_UNCONFIRMED: ExchangeUnconfirmed,
    EventKind.REMOVAL_REQUIRED: RemovalRequired,
    EventKind.REMOVAL_ACKNOWLEDGED: RemovalAcknowledged,
    EventKind.PURGE_COMPLETED: PurgeCompleted,
    EventKind.WEBHOOK_RECEIVED: WebhookReceived,
    EventKind.SOURCE_CONNECTED: SourceConnected,
    EventKind.SOURCE_DISCONNECTED: SourceDisconnected,
    EventKind.SOURCE_FAILED: SourceFailed,
}


def schema_of(kind: EventKind) -> str:
    """The schema of the kind's `detail`, as it is checked in. Open: a later release may say more."""
    schema = MODELS[kind].model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"{kind.value}, version {VERSION}"
    schema["additionalProperties"] = True
    for each in schema["properties"].values():
        each.pop("title", None)
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def files() -> dict[str, str]:
    """Every schema by the name of its file."""
    return {f"{kind.value}.v{VERSION}.json": schema_of(kind) for kind in EventKind}


def main(folder: Path, *, checks: bool) -> int:
    """Write the schemas, or tell which are not as they should be."""
    wrong = 0
    for name, text in files().items():
        path = folder / name
        if not checks:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong += 1
            sys.stderr.write(f"{path} is not what the code says: write it again\n")
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), checks="--check" in sys.argv))
