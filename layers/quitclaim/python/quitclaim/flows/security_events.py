"""
Taking a security event token in: verified, durable, and only then acknowledged (RFC 8935 section 2.2).

What follows is a delivery's: the same that a webhook of the provider's would be, so it is known again if it comes
again, and stops or doubts the grant that it speaks of and no newer one.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quitclaim.domain.limits import FORWARD_MS
from quitclaim.domain.security_events import Says, SecurityEvent, SetRefused
from quitclaim.domain.webhooks import Delivery, DeliveryState, Prepared, Trust
from quitclaim.ports import Clients, Clock, Forward, Transmitters, Vault

if TYPE_CHECKING:
    from quitclaim.store.webhooks import WebhookStore

TRUST = {Says.ENDED: Trust.SIGNED, Says.DOUBTFUL: Trust.INDIRECT}


@dataclass(frozen=True)
class HearingOf:
    """What it needs of the world."""

    store: "WebhookStore"
    transmitters: Transmitters
    clients: Clients
    vault: Vault
    clock: Clock
    forward: Forward


@dataclass(frozen=True)
class Acknowledged:
    """The token is believed. *new* of its events are stored; *known* were before; *idle* say nothing to us."""

    new: int = 0
    known: int = 0
    idle: int = 0


def hear(name: str, token: bytes, world: HearingOf) -> Acknowledged | SetRefused:
    """
    Take in what the issuer called *name* sent.

    1. It is verified, and nothing is stored unless it holds.
    2. `accept` (row 65) for each event that says something of an account. Crash before it: nothing was acknowledged,
       and the issuer sends it again. Crash after it: the same, and what is stored is known then by issuer and `jti`.
       It is due to be handled (`forward`), by `deliver`.
    3. Its id is put into the queue. Crash before it, or no queue: it is due, and `reconcile` sends it.

    Raises `NotFoundError` where nobody is set up by that name, and `KeyUnavailableError`, `StoreError`: no
    acknowledgement, so nothing is lost.
    """
    transmitter = world.transmitters.at(name)
    told = transmitter.read(token)
    if isinstance(told, SetRefused):
        return told
    spec, new, known, idle = transmitter.spec, 0, 0, 0
    for event in told.events:
        if event.says is Says.NOTHING or event.account is None:
            idle += 1
        elif _accept(event, event.account, told.jti, token, spec.client, spec.issuer, world):
            new += 1
        else:
            known += 1
    return Acknowledged(new, known, idle)


def _accept(
    event: SecurityEvent, account: str, jti: str, token: bytes, client: str, issuer: str, world: HearingOf
) -> bool:
    now, provider = world.clock.now(), world.clients.named(client).provider
    digest = world.vault.trace_digest(client, account, "jti", f"{issuer} {jti} {event.type}")
    prepared = Prepared(
        provider=provider,
        client=client,
        received_at=now,
        trust=TRUST[event.says],
        sha256=hashlib.sha256(token).hexdigest(),
        size=len(token),
        kind=event.name,
        event_id=jti,
        accounts=(account,),
        occurred_at=min(event.occurred_at, now),
        content_type="application/secevent+jwt",
        deauthorizes=True,
    )
    is_new = world.store.accept(
        Delivery(
            client=client,
            digest=digest,
            provider=provider,
            state=DeliveryState.ACCEPTED,
            received=now,
            size=len(token),
            body=world.vault.seal_delivery(client, digest, prepared, token),
            next=now + FORWARD_MS,
        )
    )
    if is_new:
        world.forward.send(client, digest)
    return is_new
