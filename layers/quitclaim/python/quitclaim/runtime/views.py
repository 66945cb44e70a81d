"""What the API answers: values of the domain as JSON. No digest, no id of an exchange or revocation, nothing sealed."""

import base64
import json
from typing import Any

from quitclaim.domain.attention import Attention
from quitclaim.domain.connect import Blocker, Owner
from quitclaim.domain.errors import InvalidBodyError
from quitclaim.domain.limits import SHARDS
from quitclaim.domain.sources import Source, SourceStatus
from quitclaim.domain.stop import Level
from quitclaim.domain.webhooks import Delivery, KeptAt
from quitclaim.flows.status import ConnectionView, Notice, OwnerStatus
from quitclaim.flows.tokens import AccessToken
from quitclaim.ports import Client


def connection(view: ConnectionView) -> dict[str, Any]:
    """A connection."""
    of = view.connection
    body: dict[str, Any] = {
        "connection_id": of.ref.connection,
        "provider": of.provider,
        "client": of.client,
        "state": of.state.value,
        "generation": of.generation,
        "awaiting_confirmation": view.awaiting_confirmation,
    }
    if of.phase is not None:
        body["phase"] = of.phase.value
    if view.confirm_until is not None:
        body["confirm_until"] = view.confirm_until
    if of.scopes:
        body["scopes"] = sorted(of.scopes)
    if of.metadata is not None:
        body["metadata"] = of.metadata
    if of.failure is not None:
        body["failure"] = of.failure
    if of.closed_as is not None:
        body["closed_as"] = of.closed_as
    return body


def source(told: Source, generation: int) -> dict[str, Any]:
    """A source as it is in that life of its connection, with what a proof of it repeats."""
    is_connected = told.is_connected_in(generation)
    body = {
        "source": told.slug,
        "instance": told.instance,
        "status": (SourceStatus.CONNECTED if is_connected else SourceStatus.DISCONNECTED).value,
        "first_seen": told.first_seen,
        "last_seen": told.last_seen,
    }
    more = {"error": told.error, "last_data_at": told.data_at}
    return body | {name: value for name, value in more.items() if value is not None}


def notice(told: Notice, base_url: str) -> dict[str, Any]:
    """What is owed for a connection; *base_url* is that of our public pages, one of which says how to remove access."""
    body: dict[str, Any] = {
        "connection_id": told.connection_id,
        "provider": told.provider,
        "level": told.level.label,
        "purge_pending": told.purge_pending,
    }
    removal = f"{base_url}/removal/{told.provider}" if told.level is Level.PERMISSION_REMOVAL_REQUIRED else None
    optional = {
        "deadline": told.deadline,
        "manual_page": told.manual_page,
        "removal_page": removal,
        "reason": told.reason,
    }
    return body | {name: value for name, value in optional.items() if value is not None}


def blocker(told: Blocker) -> dict[str, Any]:
    """What stands before a new attempt."""
    optional = {"connection_id": told.connection, "ends_at": told.ends_at}
    return {"level": told.level} | {name: value for name, value in optional.items() if value is not None}


def owner(told: Owner | None) -> dict[str, Any]:
    """The owner's fence; an owner nobody has heard of is not deleted."""
    if told is None or told.deleted_at is None:
        return {"deleted": False}
    stopped = {} if told.stopped_at is None else {"stopped_at": told.stopped_at}
    return {"deleted": True, "deleted_at": told.deleted_at, **stopped}


def status(told: OwnerStatus, base_url: str) -> dict[str, Any]:
    """Everything of an owner."""
    return {
        "owner": owner(told.owner),
        "connections": [connection(view) for view in told.connections],
        "notices": [notice(each, base_url) for each in told.notices],
        "blockers": {client: [blocker(each) for each in found] for client, found in told.blockers.items()},
    }


def attention(told: Attention) -> dict[str, Any]:
    """One thing on the operator's list: ids and levels."""
    body: dict[str, Any] = {
        "id": str(told.subject),
        "tenant": told.ref.tenant,
        "owner": told.ref.owner,
        "connection_id": told.ref.connection,
        "client": told.client,
        "level": told.level.label,
        "state": told.state,
        "since": told.since,
        "quarantined": told.quarantined,
        "owner_deleted": told.owner_deleted,
    }
    return body | ({} if told.deadline is None else {"deadline": told.deadline})


def kept(delivery: Delivery) -> dict[str, Any]:
    """An event that nobody had: where it came from, since when, and why; nothing of what it says."""
    return {
        "id": delivery.digest,
        "client": delivery.client,
        "provider": delivery.provider,
        "received_at": delivery.received,
        "dropped_at": delivery.done,
        "reason": delivery.reason,
    }


def place(at: KeptAt | None) -> str | None:
    """Where to go on from, as text that says nothing to whoever gets it; None: that was all."""
    if at is None:
        return None
    said = json.dumps([at.shard, None if at.after is None else dict(at.after)], separators=(",", ":"))
    return base64.urlsafe_b64encode(said.encode()).decode()


def place_of(text: str | None) -> KeptAt | None:
    """The place again. Raises `InvalidBodyError`: nobody was told this one."""
    if text is None:
        return None
    try:
        shard, after = json.loads(base64.urlsafe_b64decode(text.encode()))
        is_place = shard in range(SHARDS) and (after is None or after.keys() == {"PK", "SK", "a1", "a2"})
    except (ValueError, TypeError, AttributeError):
        is_place = False
    if not is_place:
        raise InvalidBodyError("after: not what an earlier answer said", field="after")
    return KeptAt(shard, after)


def access_token(token: AccessToken) -> dict[str, Any]:
    """The one answer that carries a token."""
    return {
        "access_token": token.access_token.reveal(),
        "token_type": token.token_type,
        "expires_at": token.expires_at,
        "token_version": token.token_version,
        "generation": token.generation,
    }


def client(of: Client) -> dict[str, Any]:
    """A client, and what disconnect does at its provider."""
    facts = of.facts
    return {
        "client": of.name,
        "provider": of.provider,
        "scopes": sorted(of.scopes),
        "confirmation": of.confirmation,
        "revocable": facts.revocable,
        "reach": facts.reach.value,
        "manual_page": facts.manual_page,
    }
