"""A grant that came after its exchange was over, or beside another of it: queued, whatever else is so."""

from contextlib import suppress
from dataclasses import replace

from quitclaim.domain.connect import Exchange, is_left_behind
from quitclaim.domain.errors import MovedError
from quitclaim.domain.revocations import Revocation, deadline_of
from quitclaim.flows.connect.connecting import TRIES, Connecting, cleaning_up
from quitclaim.ports import Client


def queue_late(exchange: Exchange, revocation: Revocation, client: Client, world: Connecting) -> None:
    """
    Row 13: read what became of the exchange, and queue the grant beside it; after five tries without it, which nothing
    refuses.
    """
    now = world.clock.now()
    # It is queued now, whenever it was sealed: a worker may have been frozen for a day (F-23).
    due = replace(revocation, queued=now, deadline=deadline_of(now), next=now, lease=None, lease_until=None)
    for attempt in range(TRIES + 1):
        found = world.reads.exchange(exchange.ref, exchange.id)
        if found is not None and found.fp in revocation.fp:
            return  # it is the one that is held, installed or queued already
        if found is not None and found.fp is not None:
            due = _beside(exchange, due, revocation, world)
        intents = [
            intent.generation for intent in world.reads.intents(exchange.ref) if exchange.is_ended_by(intent.generation)
        ]
        try:
            world.store.queue_late_grant(
                found if attempt < TRIES else None,
                client.name,
                due,
                intent_generation=max(intents) if intents and attempt < TRIES else None,
            )
        except MovedError as moved:
            queued = moved.seen.get("revocation")
            if isinstance(queued, Revocation):
                if queued.fp & revocation.fp:
                    return  # by an earlier try of this very operation
                due = _beside(exchange, due, revocation, world)
            if attempt == TRIES:
                raise
            continue
        world.kick.revoke_now([due.rid])
        return


def _beside(exchange: Exchange, due: Revocation, revocation: Revocation, world: Connecting) -> Revocation:
    """Another grant of this exchange has the exchange's own id: this one gets an id made of its fingerprint (D-30)."""
    rid = f"{exchange.rid}.{min(revocation.fp)[:22]}"
    return due if due.rid == rid else _resealed(due, rid, revocation, world)


def leave_behind(exchange: Exchange, world: Connecting) -> None:
    """The connection of an exchange that a late grant closed fails; refused, reconciliation repeats it."""
    with cleaning_up(world), suppress(MovedError):
        connection, found = world.reads.connection(exchange.ref), world.reads.exchange(exchange.ref, exchange.id)
        if connection is not None and found is not None and is_left_behind(connection, found):
            world.store.leave_behind(connection, found, world.clock.now())


def _resealed(due: Revocation, rid: str, held: Revocation, world: Connecting) -> Revocation:
    """The same material under another id: a seal is bound to its revocation."""
    vault, generation = world.vault, held.generation
    material = []
    for each in held.material:
        opened = vault.open_revoke_only(held.rid, generation, each.tv, each.pair, each.sealed)
        material.append(replace(each, sealed=vault.seal_revoke_only(rid, generation, each.tv, each.pair, opened)))
    return replace(due, rid=rid, material=tuple(material), identity=None)
