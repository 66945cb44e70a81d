"""What every step of connecting needs: the world around it, and what stands before a new grant."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quitclaim.domain.connect import Barrier, Blocker, Connection, ExchangeOutcome, Resolved
from quitclaim.domain.errors import ConnectBlockedError, ConnectionNotFoundError, OwnerPurgingError, StoreError
from quitclaim.domain.hooks import HookAnswer, HookKind
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import GUARD_MS
from quitclaim.flows.revocations import finish_settled
from quitclaim.ports import AppHooks, Clients, Clock, Ids, Kick, Vault

if TYPE_CHECKING:
    from quitclaim.store.connect import ConnectStore
    from quitclaim.store.reads import Reads
    from quitclaim.store.revocations import RevocationStore


TRIES: Final = 5
"""How often a decision is made again after someone was faster."""


@dataclass(frozen=True)
class Connecting:
    """What connecting needs of the world."""

    reads: "Reads"
    store: "ConnectStore"
    revocations: "RevocationStore"
    clients: Clients
    vault: Vault
    clock: Clock
    ids: Ids
    kick: Kick
    on_fault: Callable[[str, Exception], None]
    """Told of a clean-up that failed: what it was of, and why. The record that it was to end ends by itself."""
    hooks: AppHooks | None = None
    """Of who takes callbacks: nobody else asks the app."""
    on_hook: Callable[[HookKind, HookAnswer], None] = lambda kind, answer: None
    """Told of a hook that did not do what it was asked for."""
    on_names: Callable[[str, int], None] = lambda client, count: None
    """Told how many further names of an account no event finds, for they are more than `ACCOUNT_NAMES`."""


def existing(connection: Connection | None) -> Connection:
    """The connection, or `ConnectionNotFoundError`."""
    if connection is None:
        raise ConnectionNotFoundError
    return connection


def clear_of_settled(ref: ConnectionRef, barrier: Barrier | None, client: str, world: Connecting) -> Resolved:
    """What the barrier's ids stand for, once every settled one has had its finishing step."""
    resolved = world.reads.resolved(ref.of_owner, barrier)
    if resolved.unfinished:
        for revocation in resolved.unfinished:
            finish_settled(revocation, reads=world.reads, store=world.revocations, now=world.clock.now())
        _, _, barrier = world.reads.fence(ref, client)
        resolved = world.reads.resolved(ref.of_owner, barrier)
    return resolved


def refuse_blocked(resolved: Resolved, now: int) -> None:
    """Raises what stands before a new grant: an attempt in flight, data that is still removed, or what is owed."""
    in_flight = resolved.in_flight
    if in_flight is not None and in_flight.outcome is ExchangeOutcome.OPEN:
        wait = max(in_flight.ends + GUARD_MS - now, 1_000)
        raise ConnectBlockedError(
            "An attempt is in flight.", retry_after_ms=wait, connection_id=in_flight.ref.connection
        )
    blockers = resolved.blockers()
    if not blockers:
        return
    if all(blocker.level == "purging" for blocker in blockers):
        raise OwnerPurgingError(retry_after_ms=60_000, blockers=[_told(blocker) for blocker in blockers])
    raise ConnectBlockedError(blockers=[_told(blocker) for blocker in blockers])


def _told(blocker: Blocker) -> dict[str, object]:
    told = {"level": blocker.level, "connection_id": blocker.connection, "ends_at": blocker.ends_at}
    return {name: value for name, value in told.items() if value is not None}


@contextmanager
def cleaning_up(world: Connecting) -> Iterator[None]:
    """
    A table that does not answer here replaces no outcome (U-19): the caller is told what came of the request, and the
    exchange or hold that stays behind ends at its own time.
    """
    try:
        yield
    except StoreError as fault:
        world.on_fault("clean-up", fault)
