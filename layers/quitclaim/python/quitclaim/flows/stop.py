"""
Stopping: one transaction, no provider call, no key. What is owed after it is carried out by the sweep and by
reconciliation.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quitclaim.domain.connect import (
    Connection,
    ConnectionState,
    Exchange,
    ExchangeOutcome,
    Idempotency,
    lost,
    may_stop,
    stopped,
)
from quitclaim.domain.deletion import DeletionStep, deletion_step
from quitclaim.domain.errors import (
    ConnectionNotFoundError,
    IdempotencyMismatchError,
    MovedError,
    OwnerDeletedError,
    StoreError,
)
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import ConnectionRef, digest
from quitclaim.domain.limits import EFFECT_MS, IDEMPOTENCY_TTL_MS
from quitclaim.domain.revocations import NO_REVOCATION, Revocation, RevocationState, SealedMaterial, deadline_of
from quitclaim.domain.stop import Stop, StopIntent, StopReason
from quitclaim.domain.tokens import Grant
from quitclaim.ports import Clock, Ids, Kick

if TYPE_CHECKING:
    from quitclaim.store.reads import Reads
    from quitclaim.store.stop import StopStore

TRIES: Final = 20
PAUSE_MS: Final = 20


@dataclass(frozen=True)
class Stopping:
    """What stopping needs of the world."""

    reads: "Reads"
    store: "StopStore"
    clock: Clock
    ids: Ids
    kick: Kick


def disconnect(ref: ConnectionRef, generation: int, world: Stopping, idempotency_key: str | None = None) -> Connection:
    """
    Stop the connection at the generation that the caller saw.

    1. One transaction: revoking, grant gone, its revocation queued unopened, purge and compensations on record. Crash
       before it: nothing happened, repeat. After it: everything else is due by itself; the kick only makes it prompt.

    No state refuses it (class S): it is decided again on the newest versions until it commits. Raises
    `GenerationMovedError`.
    """
    key = (
        None
        if idempotency_key is None
        else digest("\n".join(("disconnect", ref.tenant, ref.owner, ref.connection, idempotency_key)))
    )
    request = digest(str(generation))
    for attempt in range(TRIES):
        owner, connection, earlier = world.reads.owner_connection_and_first_answer(ref, key, world.clock.now())
        if owner is not None and owner.is_deleted:
            raise OwnerDeletedError
        if connection is None:
            raise ConnectionNotFoundError(connection_id=ref.connection)
        if earlier is not None:
            if earlier[0] != request:
                raise IdempotencyMismatchError
            return _first_answer(connection, int(earlier[1]["generation"]))
        if not may_stop(connection, generation):
            return connection
        now = world.clock.now()
        record = None
        if key is not None:
            record = Idempotency(ref.tenant, key, request, {"generation": generation + 1}, now + IDEMPOTENCY_TTL_MS)
        after = stopped(connection, now, EFFECT_MS)
        try:
            return _commit(connection, after, StopReason.DISCONNECT, now, world, idempotency=record)
        except MovedError:
            world.clock.pause(PAUSE_MS * attempt)
    raise StoreError


def _first_answer(connection: Connection, generation: int) -> Connection:
    """As the first call of this key answered: revoking, at the generation that it made."""
    return replace(
        connection,
        state=ConnectionState.REVOKING,
        generation=generation,
        phase=None,
        exchange=None,
        closed_as=None,
    )


def lose_grant(
    grant: Grant,
    reason: StopReason,
    *,
    refused_attempt: str | None,
    purges: bool,
    world: Stopping,
    disproved: frozenset[str] = frozenset(),
) -> bool:
    """
    The provider ended this very grant: needs_reconnect, and what may be left of it is queued. False, and nothing
    changed, if the handle is stale (F-26), or its owner is deleted: then that stop takes it.

    *refused_attempt* is the refresh whose refusal is the verdict; every other recorded attempt may still have a living
    successor, unless the verdict has *disproved* it too. *purges*: the client wants a loss to purge like a disconnect
    (`purge_on_loss`); else the app's data stays, and nothing but the owed revocation stands before a new start.
    """
    for attempt in range(TRIES):
        owner, connection, current = world.reads.owner_connection_and_grant(grant.ref, grant.pair)
        if owner is not None and owner.is_deleted:
            return False
        if connection is None or current is None or (current.generation, current.tv) != (grant.generation, grant.tv):
            return False
        now = world.clock.now()
        try:
            _commit(
                connection,
                lost(connection, reason),
                reason,
                now,
                world,
                disproved=disproved | ({refused_attempt} if refused_attempt else frozenset()),
                handle=(grant.pair, grant.generation, grant.tv),
                purges=purges,
            )
        except MovedError:
            world.clock.pause(PAUSE_MS * attempt)
            continue
        return True
    raise StoreError


def stop_for_deletion(seen: Connection, world: Stopping) -> None:
    """
    Stop a connection of a deleted owner, at whatever generation it is (row 26). Nothing is left to do where it is
    stopped already.

    As a disconnect, without the barrier; decided again on the newest versions until it commits (class S).
    """
    connection: Connection | None = seen
    for attempt in range(TRIES):
        if connection is None or deletion_step(connection) is not DeletionStep.STOP:
            return
        now = world.clock.now()
        try:
            _commit(connection, stopped(connection, now, EFFECT_MS), StopReason.ACCOUNT_DELETED, now, world)
        except MovedError:
            world.clock.pause(PAUSE_MS * attempt)
            connection = world.reads.connection(seen.ref)
            continue
        return
    raise StoreError


def _commit(
    connection: Connection,
    after: Connection,
    reason: StopReason,
    now: int,
    world: Stopping,
    *,
    disproved: frozenset[str] = frozenset(),
    handle: tuple[str, int, int] | None = None,
    purges: bool = True,
    idempotency: Idempotency | None = None,
) -> Connection:
    ref = connection.ref
    by_deletion = reason is StopReason.ACCOUNT_DELETED
    barrier, grants, account = world.reads.around_stop(connection)
    if handle is not None and not any((grant.pair, grant.generation, grant.tv) == handle for grant in grants):
        raise MovedError
    held = _held(connection, barrier.in_flight if barrier else None, world)
    revocation = queued_of(grants, connection, now, disproved) if grants else None
    if revocation is not None and by_deletion:
        revocation = replace(revocation, listed=False)
    intents = world.reads.intents(ref) if connection.generation > 1 else ()  # a first life has no stop behind it
    earlier = frozenset(rid for intent in intents if intent.closed is None for rid in intent.rids)
    rids = earlier | ({revocation.rid} if revocation else set()) | ({held.rid} if held else set())
    is_loss = reason not in (StopReason.DISCONNECT, StopReason.ACCOUNT_DELETED)
    intent = StopIntent(
        ref=ref,
        generation=connection.generation,
        reason=reason,
        token=world.ids.new_id(),
        client=connection.client,
        purge="pending" if purges else "done",
        comp_derived=None if purges else True,
        since=now,
        next=now,
        rids=rids,
        provider=None if rids else "not_needed",
    )
    kind = EventKind.CONNECTION_NEEDS_RECONNECT if is_loss else EventKind.CONNECTION_REVOKING
    world.store.stop(
        Stop(
            before=connection,
            after=after,
            grants=grants,
            revocation=revocation,
            intent=intent,
            account=account if grants else None,
            held=held,
            event=Event(kind, ref, intent.in_barrier, now, {"reason": reason.value, "generation": intent.generation}),
            now=now,
            hold_is_free=held is None or world.reads.is_free(held),
            blocks_purge=purges,
            leaves_barrier=by_deletion,
            by_exact_token=is_loss,
            idempotency=idempotency,
        )
    )
    beside = None if by_deletion else _release_step_up(connection, barrier.in_flight if barrier else None, now, world)
    world.kick.revoke_now(sorted(rids | ({beside} if beside else set())))
    return after


def _release_step_up(connection: Connection, in_flight: str | None, now: int, world: Stopping) -> str | None:
    """
    An attempt beside the grant that was just stopped ends with it; the id of what is due for it. A crash before it, or
    a refusal: nobody can confirm it any more, and its hold ends by itself.
    """
    if connection.step_up_exchange is None or in_flight != f"{connection.ref.connection}#{connection.step_up_exchange}":
        return None
    held = world.reads.exchange(connection.ref, connection.step_up_exchange)
    if held is None or held.outcome is not ExchangeOutcome.HELD:
        return None
    try:
        world.store.release_step_up(held, now, with_revocation=world.reads.is_free(held))
    except MovedError:
        return None
    return held.rid


def _held(connection: Connection, in_flight: str | None, world: Stopping) -> Exchange | None:
    """
    The held exchange of this connection: a stop ends it in its own transaction. An open one keeps
    its own end.
    """
    if (
        in_flight is None
        or connection.exchange is None
        or in_flight != f"{connection.ref.connection}#{connection.exchange}"
    ):
        return None
    exchange = world.reads.exchange(connection.ref, connection.exchange)
    return exchange if exchange is not None and exchange.outcome is ExchangeOutcome.HELD else None


def queued_of(
    grants: tuple[Grant, ...], connection: Connection, now: int, disproved: frozenset[str] | None = None
) -> Revocation:
    """
    The revocation of a stopped grant: its revoke-only ciphertext, moved unopened, and whose successors may still come
    (custody rule 3); of the refresh attempts that are *disproved*, none will.

    A grant whose provider has no revocation is born `unsupported`: a notice at once, never "confirmed" (U-8).
    """
    first = grants[0]
    expected = frozenset(attempt for grant in grants for attempt in grant.attempts) - (disproved or frozenset())
    ends = [grant.lease_until for grant in grants if grant.lease_until is not None]
    is_revocable = first.takes != NO_REVOCATION
    revocation = Revocation(
        rid=first.rid,
        state=RevocationState.PENDING if is_revocable else RevocationState.UNSUPPORTED,
        ref=connection.ref,
        generation=first.generation,
        client=connection.client,
        provider=connection.provider,
        takes=first.takes,
        reach=first.reach,
        queued=now,
        fp=frozenset(grant.fp for grant in grants),
        family=frozenset(grant.family for grant in grants),
        account=first.account,
        tv=first.tv,
        saved_by=frozenset(grant.saved_by for grant in grants if grant.saved_by is not None),
        listed=True,
        lost=True if any(grant.stray for grant in grants) else None,
        settled_at=None if is_revocable else now,
    )
    if not is_revocable:
        return revocation
    return replace(
        revocation,
        material=tuple(SealedMaterial(grant.revoke, grant.takes, grant.pair, grant.tv) for grant in grants),
        expected=expected,
        expected_until=max(ends, default=now) if expected else None,
        deadline=deadline_of(now),
        next=now,
    )
