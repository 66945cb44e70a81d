"""
Taking a provider's webhook in: verified, frozen, durable, and only then answered.

The provider waits two seconds at the least generous; so what is done before the answer is one conditional write, and
what follows from an event is done later, from the table, by who delivers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quitclaim.domain.deliveries import Fate, Standing, fate_of, standing_of
from quitclaim.domain.errors import WebhookAccountNotReadyError, WebhookSourceNotReadyError
from quitclaim.domain.limits import FORWARD_MS
from quitclaim.domain.sources import event_of_source
from quitclaim.domain.webhooks import (
    Delivery,
    DeliveryState,
    Event,
    Incoming,
    Prepared,
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
    body: str = ""
    """JSON that the provider is to be answered with, once its event is durable."""


def take_in(client: str, endpoint: str | None, request: Incoming, world: TakingIn) -> Received:
    """
    Verify a request, and store each event of it.

    1. `accept` (row 65), one write an event, or one for each account that it names: it is durable, sealed, and due to
       be forwarded. Refused: it is a duplicate, and counts as accepted because its item is there.
       Crash before it: nothing was answered, and the provider sends it again. Crash after it, or between two writes of
       one request: the same, and what is stored is a duplicate then.
    2. Its id is put into the queue; that of a hint without an id so that nobody handles it while a copy counts as one.
       Crash before it, or no queue: it is due, and `reconcile` sends it, later than that.

    Only then the provider is answered 2xx. Raises `WebhooksNotSupportedError` where nothing is set up at that address,
    `WebhookAccountNotReadyError` and `WebhookSourceNotReadyError` where the catalogue says that the provider sends
    again what nobody can take now,
    `KeyUnavailableError` and `StoreError`: all of these are no 2xx, so nothing is lost (M-60, M-61, RB-63).
    """
    address, now = world.addresses.at(client, endpoint), world.clock.now()
    read = address.read(request, now)
    if isinstance(read, Refused):
        return Received(0, refused=read.reason)
    if isinstance(read, Shaken):
        if read.brings is not None:
            _taken(read.brings, address, now, world)
        return Received(read.status, shaken=read)
    if address.asks_for_retry:
        for event in read.events:
            _must_be_wanted(event, address, now, world)
    taken = [_taken(event, address, now, world) for event in read.events]
    new = sum(is_new for is_new, _ in taken)
    body = next((said for _, digest in taken if (said := address.receipt(digest)) is not None), "")
    return Received(read.status, accepted=new, duplicates=len(taken) - new, body=body)


def _must_be_wanted(event: Event, address: WebhookAddress, now: int, world: TakingIn) -> None:
    """M-72, M-74, M-77, M-78: somebody can take it now, or its provider is asked to send it again."""
    digests = [world.vault.account_digest(address.client, account) for account in event.prepared.accounts]
    standings = [standing_of(world.reads.account(address.client, digest), now) for digest in digests]
    fate = fate_of(event.prepared, standings, asks_again=True)
    if fate is Fate.RETRY:
        raise WebhookAccountNotReadyError
    said = event_of_source(event.prepared)
    if fate is not Fate.DELIVER or event.prepared.deauthorizes or said is None or said.word is not None:
        return  # what the broker says of the source itself is what makes it ready
    live = [digest for digest, standing in zip(digests, standings, strict=True) if standing is Standing.LIVE]
    if all(world.reads.shuts_out(address.client, digest, said.slug) for digest in live):
        raise WebhookSourceNotReadyError


def _taken(event: Event, address: WebhookAddress, now: int, world: TakingIn) -> tuple[bool, str]:
    """
    Whether anything of it is new, and the digest of its first delivery. Each account that it names has one of its own,
    with its own trace and its own place in its own line: whoever of them is not ready holds up none of the others.
    """
    prepared = event.prepared
    each = [replace(prepared, accounts=(account,)) for account in prepared.accounts] or [prepared]
    made = [_accept(event, one, address, now, world) for one in each]
    is_new = any(new for new, _ in made)
    world.on_event(event, is_new)
    return is_new, made[0][1]


def _accept(event: Event, prepared: Prepared, address: WebhookAddress, now: int, world: TakingIn) -> tuple[bool, str]:
    """Whether it is new, and its digest; a duplicate needs no message: the first copy is due till its end (RB-63)."""
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
        world.forward.send(address.client, digest, 0 if event.until is None else max(0, event.until - now))
    return is_new, digest
