"""
Items of every stage with their index attributes: what is due, what needs attention, what is listed. One function per
item kind.
"""

from typing import Final

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import STOPPED, Connection, ConnectionState, Exchange, ExchangeOutcome
from quitclaim.domain.events import Event
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.limits import FORWARD_MS, RECEIPT_TTL_MS, SWEEP_MS
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.stop import StopIntent
from quitclaim.domain.tokens import Grant
from quitclaim.domain.webhooks import Delivery
from quitclaim.ports import Item
from quitclaim.store.items import attributes, back_reference
from quitclaim.store.keys import attention, due, kept, roster

RECONCILED: Final = frozenset(
    {
        ConnectionState.AUTHORIZING,
        ConnectionState.RECONCILING_LINK,
        ConnectionState.REVOKING,
        ConnectionState.RECONCILING_REVOKE,
    }
)


def deletion_due(owner: OwnerRef, at: int) -> Item:
    """Where a deleted owner stands until all of its connections are stopped."""
    return due("deletion", at, f"{owner.tenant}#{owner.owner}")


def connection_item(connection: Connection, at: int) -> Item:
    """Due while it waits for something; on the roster always."""
    ref = connection.ref
    item = attributes(connection) | roster(ref, connection.provider, connection.state, at)
    if connection.state in RECONCILED:
        when = connection.effect_at if connection.state in STOPPED else connection.lapse_at
        item |= due("connection", when or at + SWEEP_MS, f"{ref.tenant}#{ref.owner}#{ref.connection}")
    return item


def exchange_due(exchange: Exchange, at: int) -> Item:
    """Where an open or held exchange stands in the index."""
    return due("exchange", at, f"{exchange.ref.tenant}#{exchange.ref.owner}#{exchange.ref.connection}#{exchange.id}")


def exchange_item(exchange: Exchange) -> Item:
    """A new exchange, due at its window's end or, if it begins with its grant in hand, at its hold's."""
    assert exchange.outcome in (ExchangeOutcome.OPEN, ExchangeOutcome.HELD)  # noqa: S101 - held by its callers
    return attributes(exchange, without=frozenset({"id"})) | exchange_due(exchange, exchange.hold_ends or exchange.ends)


def exchange_attention(exchange: Exchange, at: int) -> Item:
    """An unconfirmed exchange is a notice until it is acknowledged."""
    ref = exchange.ref
    return attention("exchange", at, ref, f"{ref.connection}#{exchange.id}") | {"t": ref.tenant}


def revoke_due(rid: str, client: str, at: int) -> Item:
    """Where a pending revocation stands: min(next, deadline)."""
    return due("revoke", at, rid, client)


def finish_due(rid: str, at: int) -> Item:
    """Where a settled revocation stands until its finishing step has run."""
    return due("finish", at, rid)


ATTENTION_KIND: Final = {
    RevocationState.PENDING: "quarantine",
    RevocationState.EXPIRED: "expired",
    RevocationState.UNREADABLE: "expired",
    RevocationState.UNCONFIRMED: "notice",
    RevocationState.UNSUPPORTED: "notice",
}
"""As what a revocation needs attention, by its state: so that each gauge is counted in the index alone."""


def notice_attention(revocation: Revocation, state: RevocationState, at: int) -> Item:
    """A revocation that is a notice now, or quarantined (*state* pending)."""
    return attention(ATTENTION_KIND[state], at, revocation.ref, revocation.rid)


def revocation_item(revocation: Revocation) -> Item:
    """A new queue item: due for revocation, or for its finishing step where it was born without material."""
    item = (
        attributes(revocation, without=frozenset({"rid", "generation"}))
        | back_reference(revocation.ref)
        | {"g": revocation.generation}
    )
    if revocation.state is RevocationState.PENDING:
        item |= revoke_due(revocation.rid, revocation.client, min(revocation.next or 0, revocation.deadline or 0))
    elif revocation.state.is_terminal:
        item |= finish_due(revocation.rid, revocation.queued)
        if revocation.state.is_notice:
            item |= notice_attention(revocation, revocation.state, revocation.queued)
    return item


def grant_item(grant: Grant) -> Item:
    """A pair of a live grant, new: no refresh of it is on record."""
    return attributes(grant, without=frozenset({"pair"})) | care_due(grant)


def refresh_due(grant: Grant, at: int) -> Item:
    """Where a grant with an open refresh attempt stands."""
    return due("refresh", at, _name_of(grant))


def care_due(grant: Grant) -> Item:
    """Where a grant without one stands: when it is to be refreshed or its end told; nowhere, if it keeps by itself."""
    return {} if grant.next_care is None else due("keepalive", grant.next_care, _name_of(grant))


def _name_of(grant: Grant) -> str:
    ref = grant.ref
    return f"{ref.tenant}#{ref.owner}#{ref.connection}#{grant.pair}"


def intent_due(intent: StopIntent, at: int) -> Item:
    """Where a stop stands until it is closed."""
    ref = intent.ref
    return due("stop", at, f"{ref.tenant}#{ref.owner}#{ref.connection}#{intent.generation}")


def intent_attention(intent: StopIntent, at: int) -> Item:
    """Where a stop that is open for too long stands until it is closed."""
    ref = intent.ref
    return attention("stop", at, ref, f"{ref.connection}#{intent.generation}") | {"t": ref.tenant}


def intent_item(intent: StopIntent) -> Item:
    """A new stop, due at once."""
    return attributes(intent, without=frozenset({"generation"})) | intent_due(intent, intent.next)


def event_item(event: Event) -> Item:
    """An outbox event, due until it is published."""
    ref = event.ref
    about = {"connection_id": ref.connection} if isinstance(ref, ConnectionRef) else {}
    return {
        "kind": event.kind.value,
        "transition": event.transition,
        "at": event.at,
        "body": {"tenant": ref.tenant, "owner": ref.owner, **about, **event.body},
        **due("publish", event.at, f"{ref.tenant}#{ref.owner}#{event.id}"),
    }


def account_item(account: Account, client: str, digest: str, at: int) -> Item:
    """
    An external account; due to wake what is parked once nothing lives on it, and to replay what waits once something
    does.
    """
    item = attributes(account)
    if account.live == 0 and account.parked > 0:
        item |= due("wake", at, f"{client}#{digest}")
    elif account.live > 0 and account.waiting:
        item |= due("replay", at, f"{client}#{digest}")
    return item


def forward_due(delivery: Delivery, at: int) -> Item:
    """Where a delivery stands until it is over."""
    target = delivery.target
    share = "" if target is None else f"#{target.tenant}#{target.owner}#{target.connection}"
    return due("forward", at, f"{delivery.client}#{delivery.digest}{share}")


def parked_due(delivery: Delivery, at: int) -> Item:
    """Where a parked delivery stands: at its end, unless a grant of its account is live before."""
    return due("parked", at, f"{delivery.client}#{delivery.digest}")


def kept_attention(delivery: Delivery, at: int) -> Item:
    """Where a delivery stands that nobody had, as long as it is kept."""
    return kept(at, delivery.client, delivery.digest)


def delivery_item(delivery: Delivery) -> Item:
    """A delivery that was accepted, or a connection's share of one: due to be sent again."""
    item = attributes(delivery, without=frozenset({"client", "digest", "target"}))
    return item | forward_due(delivery, delivery.next or delivery.received + FORWARD_MS)


def receipt_item(kind: str, connection: str, generation: int, at: int, *, rid: str, outcome: str) -> Item:
    """What became of a grant; no account data, own retention."""
    return {
        "kind": kind,
        "c": connection,
        "g": generation,
        "rid": rid,
        "outcome": outcome,
        "ttl": (at + RECEIPT_TTL_MS) // 1000,
    }
