"""What the app and its owner can see: connections, notices with their deadlines and blockers, receipts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quitclaim.domain.connect import Blocker, Connection, Exchange, Owner, is_awaiting_confirmation
from quitclaim.domain.errors import ConnectionNotFoundError, OwnerDeletedError
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.stop import Level, StopIntent, level_of_exchange, level_of_revocation
from quitclaim.ports import Clients, Clock

if TYPE_CHECKING:
    from quitclaim.store.reads import OwnerItems, Reads


@dataclass(frozen=True)
class ConnectionView:
    """A connection as the app sees it."""

    connection: Connection
    awaiting_confirmation: bool = False
    confirm_until: int | None = None


@dataclass(frozen=True)
class Notice:
    """What is owed for a connection: the most pressing of its stops and exchanges (F-35, U-20)."""

    connection_id: str
    provider: str
    client: str
    level: Level
    purge_pending: bool
    deadline: int | None
    manual_page: str | None
    reason: str | None


@dataclass(frozen=True)
class OwnerStatus:
    """Everything of an owner that somebody may have to act on."""

    owner: Owner | None
    connections: tuple[ConnectionView, ...]
    notices: tuple[Notice, ...]
    blockers: dict[str, tuple[Blocker, ...]]


def view(ref: ConnectionRef, *, reads: "Reads", clock: Clock) -> ConnectionView:
    """One connection. Raises `OwnerDeletedError`, `ConnectionNotFoundError`."""
    owner, connection = reads.owner_and_connection(ref)
    if owner is not None and owner.is_deleted:
        raise OwnerDeletedError
    if connection is None:
        raise ConnectionNotFoundError(connection_id=ref.connection)
    name = _exchange_of(connection)
    exchange = reads.exchange(ref, name) if name is not None else None
    return _viewed(connection, exchange, clock.now())


def all_views(ref: OwnerRef, *, reads: "Reads", clock: Clock) -> list[ConnectionView]:
    """All connections of an owner. Raises `OwnerDeletedError`: what is left of them is in the status."""
    owner = reads.owner(ref)
    if owner is not None and owner.is_deleted:
        raise OwnerDeletedError
    connections = reads.connections(ref)
    exchanges = reads.exchanges_of(ref) if any(map(_exchange_of, connections)) else []
    return _views(connections, exchanges, clock.now())


def _exchange_of(connection: Connection) -> str | None:
    """The exchange that has something to say of it."""
    return None if connection.is_stopped else connection.step_up_exchange or connection.exchange


def _views(connections: Iterable[Connection], exchanges: Iterable[Exchange], now: int) -> list[ConnectionView]:
    by_name = {each.in_barrier: each for each in exchanges}
    return [_viewed(each, by_name.get(f"{each.ref.connection}#{_exchange_of(each)}"), now) for each in connections]


def _viewed(connection: Connection, exchange: Exchange | None, now: int) -> ConnectionView:
    """A connection, with what its exchange says."""
    if not is_awaiting_confirmation(connection, exchange, now) or exchange is None:
        return ConnectionView(connection)
    return ConnectionView(connection, awaiting_confirmation=True, confirm_until=exchange.hold_ends)


def status(owner: OwnerRef, *, reads: "Reads", clients: Clients, clock: Clock) -> OwnerStatus:
    """
    The owner's connections, what is owed for each, and what stands before a new attempt by client.

    A reader resolves the ids that it finds, so a settled revocation shows at once, its finishing step or not. However
    many connections there are, each kind of item is read at once.
    """
    found = reads.everything_of(owner)
    blockers = {}
    for client in found.barriers:
        blocking = found.resolved(client).blockers()
        if blocking:
            blockers[client] = blocking
    notices = (_notice(connection, found, clients) for connection in found.connections)
    return OwnerStatus(
        found.owner,
        tuple(_views(found.connections, found.exchanges, clock.now())),
        tuple(notice for notice in notices if notice.level is not Level.NOT_NEEDED),
        blockers,
    )


def _notice(connection: Connection, found: "OwnerItems", clients: Clients) -> Notice:
    intents, exchanges, revocations = found.of(connection)
    levels = [
        (level_of_revocation(item), item.deadline if item else None, item.state if item else "missing")
        for item in revocations.values()
    ]
    levels += [(level_of_exchange(each, revocations.get(each.rid)), None, each.outcome) for each in exchanges]
    level, deadline, reason = max(
        levels, key=lambda found: (found[0], found[1] or 0), default=(Level.NOT_NEEDED, None, None)
    )
    return Notice(
        connection_id=connection.ref.connection,
        provider=connection.provider,
        client=connection.client,
        level=level,
        purge_pending=_is_purging(intents),
        deadline=deadline if level is Level.PENDING else None,
        manual_page=clients.manual_page(connection.provider) if level is Level.PERMISSION_REMOVAL_REQUIRED else None,
        reason=str(reason) if reason is not None else None,
    )


def _is_purging(intents: Iterable[StopIntent]) -> bool:
    return any(intent.purge == "pending" for intent in intents)


def receipts(owner: OwnerRef, *, reads: "Reads") -> list[dict[str, Any]]:
    """What became of the owner's grants, newest first; no account data."""
    return reads.receipts(owner)
