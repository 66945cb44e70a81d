"""
An event that names a source behind a broker's account: it reaches the connection once that source is connected, and
moves the source where the broker or the app says so. Nothing of the account's own connection is ever touched (M-48).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from quitclaim.domain.connect import Connection, Owner
from quitclaim.domain.errors import MovedError, QuitclaimError
from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind, HookOutcome, HookWord, hook_id
from quitclaim.domain.sources import (
    FIRST_FENCE,
    Source,
    SourceEvent,
    SourceMove,
    SourceStep,
    admission,
    ending,
    event_of_source,
    is_gone,
    is_older,
    noted,
    observed,
    step_of,
)
from quitclaim.domain.webhooks import Claim, Delivery, Prepared

if TYPE_CHECKING:
    from quitclaim.flows.deliveries import Delivering

TRIES: Final = 5
STAMPED: Final = "stamp"
"""Of what a fault is told: a time that could not be noted."""


class Admitted(StrEnum):
    """Whether an event that names a source may reach the connection."""

    TAKEN = "taken"
    DEFERRED = "deferred"
    """It may, and the app is told that it has not decided about the source yet."""
    WAITS = "waits"
    """Not yet: it is looked at again on the ladder (M-74)."""
    REMOVED = "source removed"
    GONE = "source gone"

    @property
    def is_over(self) -> bool:
        """Whether this connection has nothing more of it, and nothing is told."""
        return self in (Admitted.REMOVED, Admitted.GONE)


def admitted(
    claim: Claim, delivery: Delivery, event: Prepared, owner: Owner, connection: Connection, world: "Delivering"
) -> Admitted:
    """
    Whether the source that an event names is connected, and what the event makes of it; before anything else is done
    with the event (M-74).

    1. `source.observed` is asked, where the app has it and the source is not connected: once in an attempt, with the
       same id for the same event however often. No answer, or none that decides: the event waits. Crash: asked again.
    2. `move` (row 80): a source that nobody asked for is there, disconnected; one is connected; one is ended. Crash
       after it: the next attempt finds it so. Refused: the source is read again; the claim or the connection moved:
       raised.

    What comes after its day for a source that the broker has ended is let go; what waits for another is kept then, as
    any event that nobody had.
    """
    said, ref = event_of_source(event), connection.ref
    if said is None:
        return Admitted.TAKEN
    asks, asked_fence = world.hooks.has(HookKind.SOURCE_OBSERVED), None
    for _ in range(TRIES):
        source = world.reads.source(ref, said.slug)
        step = step_of(source, said, connection.generation, asks=asks)
        if step is SourceStep.ASK:
            fence = FIRST_FENCE if source is None else source.fence
            if asked_fence is None:
                asked_fence, undecided = fence, _undecided(claim, delivery, event, said, source, connection, world)
                if undecided is not None:
                    return undecided
            if fence != asked_fence or (source is not None and is_older(source, said)):
                return _waiting(source, delivery, world)  # the app spoke of what the source was
        if step is SourceStep.WAIT:
            return _waiting(source, delivery, world)
        move = _move(step, source, said, owner, connection, world)
        if move is None:
            return Admitted.TAKEN
        try:
            world.sources.move(move, claim)
        except MovedError as moved:
            if {"delivery", "owner", "connection"} & moved.seen.keys():
                raise
    return Admitted.WAITS


def _move(
    step: SourceStep,
    source: Source | None,
    said: SourceEvent,
    owner: Owner,
    connection: Connection,
    world: "Delivering",
) -> SourceMove | None:
    now = world.clock.now()
    if source is None:
        is_new = step in (SourceStep.OBSERVE, SourceStep.ASK)
        return SourceMove(owner, connection, None, observed(connection.ref, said.slug, now)) if is_new else None
    match step:
        case SourceStep.END:
            return ending(owner, connection, source, said, now)
        case SourceStep.NOTE:
            return noted(owner, connection, source, said)
        case SourceStep.ADMIT | SourceStep.ASK:
            return admission(owner, connection, source, said, now)
        case _:
            return None


def _undecided(
    claim: Claim,
    delivery: Delivery,
    event: Prepared,
    said: SourceEvent,
    source: Source | None,
    connection: Connection,
    world: "Delivering",
) -> Admitted | None:
    """What the event comes to where the app, asked, does not admit its source; None where it does."""
    answer = _asked(claim, event, said, source, connection, world)
    if not answer.is_done:
        return _waiting(source, delivery, world)
    match answer.word:
        case HookWord.ADMITTED:
            return None
        case HookWord.REMOVED:
            return Admitted.REMOVED
        case HookWord.DEFERRED if world.hooks.has(HookKind.WEBHOOK_ACCEPTED):
            return Admitted.DEFERRED
        case _:
            return Admitted.TAKEN if source is None else _waiting(source, delivery, world)


def _waiting(source: Source | None, delivery: Delivery, world: "Delivering") -> Admitted:
    is_late = delivery.give_up_at <= world.clock.now()
    return Admitted.GONE if is_late and is_gone(source) else Admitted.WAITS


def _asked(
    claim: Claim,
    event: Prepared,
    said: SourceEvent,
    source: Source | None,
    connection: Connection,
    world: "Delivering",
) -> HookAnswer:
    """What the app says of the source."""
    kind, ref = HookKind.SOURCE_OBSERVED, connection.ref
    more = {
        "fence": None if source is None else source.fence,
        "error": None if source is None else source.error,
        "says": said.word,
        "event_type": event.kind,
        "occurred_at": event.occurred_at,
    }
    data = {
        "tenant": ref.tenant,
        "owner": ref.owner,
        "connection_id": ref.connection,
        "generation": connection.generation,
        "provider": event.provider,
        "source": said.slug,
        "status": "missing" if source is None else source.status.value,
        "is_hint": said.is_hint,
        "delivery_id": claim.digest,
        "accepted_at": event.received_at,
        **{name: value for name, value in more.items() if value is not None},
    }
    id_ = hook_id(kind, claim.client, claim.digest, ref.tenant, ref.owner, ref.connection, said.slug)
    answer = world.hooks.ask(HookCall(kind, id_, event.received_at, data))
    if answer.outcome in (HookOutcome.FAILED, HookOutcome.UNREACHED):
        world.on_hook(kind, answer)
    return answer


def stamp(event: Prepared, connection: Connection, world: "Delivering") -> None:
    """
    When an event of the connection last came, and when data of the source that it names did: rows 81 and 82, once the
    event's share is on record. Whatever fails here changes nothing of that (M-81).
    """
    at, said, account = event.received_at, event_of_source(event), connection.account
    if account is not None:
        with _harmless(world):
            world.sources.stamp_event(connection.client, account, connection.ref, connection.generation, at)
    if said is not None and said.word is None:
        with _harmless(world):
            source = world.reads.source(connection.ref, said.slug)
            if source is not None and source.is_connected_in(connection.generation):
                world.sources.stamp_data(source, at)


@contextmanager
def _harmless(world: "Delivering") -> Iterator[None]:
    try:
        yield
    except MovedError:
        return  # it is known already, or there is another life by now
    except QuitclaimError as fault:
        world.on_fault(STAMPED, fault)
