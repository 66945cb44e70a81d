"""
Taking a provider's webhook in: verified, frozen, durable, and only then answered.

The provider waits two seconds at the least generous; so what is done before the answer is one conditional write, and
what follows from an event is done later, from the table, by who delivers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quitclaim.domain.deliveries import Fate, fate_of, standing_of
from quitclaim.domain.errors import WebhookAccountNotReadyError
from quitclaim.domain.limits import FORWARD_MS
from quitclaim.domain.webhooks import (
    Delivery,
    DeliveryState,
    Event,
    Incoming,
    RefusalReason,
    Refused,
    Shaken,
)
from quitclaim.ports import Clock, Forward, Vault, WebhookAddress, WebhookAddresses

if TYPE_CHECKING:
    from quitclaim.store.reads import Reads
    from quitclaim.store.webhooks import WebhookStore


@dataclass(frozen=True)
class TakingIn:
    """What taking a webhook in needs of the world."""

    reads: "Reads"
    store: "WebhookStore"
    addresses: WebhookAddresses
    vault: Vault
    forward: Forward
    clock: Clock
    on_event: Callable[[Event, bool], None] = lambda event, is_new: None
    """Told of each event once it is durable, and whether it is new."""


@dataclass(frozen=True)
class Received:
    """What became of a request. *shaken*: it was a handshake; *refused*: it was not believed, and nothing is stored."""

    status: int
    accepted: int = 0
    duplicates: int = 0
    shaken: Shaken | None = None
    refused: RefusalReason | None = None


def take_in(client: str, endpoint: str | None, request: Incoming, world: TakingIn) -> Received:
    """
    Verify a request, and store each event of it.

    1. `accept` (row 65), one write an event: it is durable, sealed, and due to be forwarded. Refused: it is a
       duplicate, and counts as accepted because its item is there.
       Crash before it: nothing was answered, and the provider sends it again. Crash after it, or between two events of
       one request: the same, and what is stored is a duplicate then.
    2. Its id is put into the queue. Crash before it, or no queue: it is due, and `reconcile` sends it.

    Only then the provider is answered 2xx. Raises `WebhooksNotSupportedError` where nothing is set up at that address,
    `WebhookAccountNotReadyError` where the catalogue says that the provider sends again what nobody can take now,
    `KeyUnavailableError` and `StoreError`: all of these are no 2xx, so nothing is lost (M-60, M-61, RB-63).
    """
    address, now = world.addresses.at(client, endpoint), world.clock.now()
    read = address.read(request, now)
    if isinstance(read, Refused):
        return Received(0, refused=read.reason)
    if isinstance(read, Shaken):
        if read.brings is not None:
            _accept(read.brings, address, now, world)
        return Received(read.status, shaken=read)
    if address.asks_for_retry:
        for event in read.events:
            _must_be_wanted(event, address, now, world)
    new = [_accept(event, address, now, world) for event in read.events]
    return Received(read.status, accepted=sum(new), duplicates=len(new) - sum(new))


def _must_be_wanted(event: Event, address: WebhookAddress, now: int, world: TakingIn) -> None:
    """M-72, M-77, M-78: somebody can take it now, or its provider is asked to send it again."""
    digests = [world.vault.account_digest(address.client, account) for account in event.prepared.accounts]
    standings = [standing_of(world.reads.account(address.client, digest), now) for digest in digests]
    if fate_of(event.prepared, standings, asks_again=True) is Fate.RETRY:
        raise WebhookAccountNotReadyError


def _accept(event: Event, address: WebhookAddress, now: int, world: TakingIn) -> bool:
    """Whether it is new; a duplicate needs no message, for the first copy is due until it is over (RB-63)."""
    prepared = event.prepared
    account = prepared.accounts[0] if prepared.accounts else None
    digest = world.vault.trace_digest(address.client, account, event.how, event.name)
    delivery = Delivery(
        client=address.client,
        digest=digest,
        provider=address.provider,
        state=DeliveryState.ACCEPTED,
        received=now,
        size=prepared.size,
        body=world.vault.seal_delivery(address.client, digest, prepared, event.raw),
        next=now + FORWARD_MS,
    )
    is_new = world.store.accept(delivery)
    if is_new:
        world.forward.send(address.client, digest)
    world.on_event(event, is_new)
    return is_new
