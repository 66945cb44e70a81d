"""Typed, consistent reads of items that several stages look at."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quitclaim.domain.accounts import Account, Named
from quitclaim.domain.connect import (
    Authorization,
    Barrier,
    Connection,
    Exchange,
    ExchangeOutcome,
    Owner,
    Resolved,
    Ticket,
)
from quitclaim.domain.ids import ConnectionRef, OwnerRef, digest
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.sources import Source
from quitclaim.domain.stop import StopIntent
from quitclaim.domain.tokens import Grant
from quitclaim.domain.webhooks import Delivery
from quitclaim.ports import Cursor, Item, Table
from quitclaim.store.items import key_of, value_of
from quitclaim.store.keys import (
    account_key,
    account_partition,
    authorization_key,
    barrier_key,
    connection_key,
    delivery_key,
    delivery_of_key,
    exchange_key,
    grant_key,
    idempotency_key,
    member_key,
    owner_key,
    owner_partition,
    receipt_key,
    revocation_key,
    sort_prefix,
    source_key,
    ticket_key,
)

KEYS_AT_ONCE: Final = 100
"""DynamoDB's limit of a batch of reads."""


def owner_of(item: Item | None) -> Owner | None:
    """The fence."""
    return value_of(Owner, item) if item else None


def barrier_of(item: Item | None) -> Barrier | None:
    """A barrier."""
    return value_of(Barrier, item) if item else None


def connection_of(item: Item | None) -> Connection | None:
    """A connection."""
    return value_of(Connection, item) if item else None


def grant_of(item: Item | None) -> Grant | None:
    """One pair of a live grant."""
    return value_of(Grant, item, pair=item["SK"].split("#")[2]) if item else None


def exchange_of(item: Item | None) -> Exchange | None:
    """An exchange."""
    return value_of(Exchange, item, id=item["SK"].split("#")[2]) if item else None


def source_of(item: Item | None) -> Source | None:
    """A source."""
    return value_of(Source, item, slug=item["SK"].split("#")[2]) if item else None


def intent_of(item: Item | None) -> StopIntent | None:
    """A stop intent."""
    return value_of(StopIntent, item, generation=int(item["SK"].split("#")[2])) if item else None


def revocation_of(item: Item | None) -> Revocation | None:
    """A revocation; its generation is stored as `g`."""
    return value_of(Revocation, item, rid=item["PK"].split("#")[1], generation=item["g"]) if item else None


def delivery_of(item: Item | None) -> Delivery | None:
    """A webhook's delivery, or one connection's share of it."""
    if item is None:
        return None
    client, digest, target = delivery_of_key(key_of(item))
    return value_of(Delivery, item, client=client, digest=digest, target=target)


def account_of(item: Item | None) -> Account | None:
    """An external account."""
    return value_of(Account, item) if item else None


def named_of(item: Item) -> Named:
    """A further name of a connection's account."""
    _, tenant, owner, connection, exchange = key_of(item).sk.split("#")
    return value_of(Named, item, ref=ConnectionRef(tenant, owner, connection), exchange=exchange)


type FirstAnswer = tuple[str, dict[str, str | int]]
"""Digest of the request that an idempotency key came with first, and what was answered."""


def _first_answer(item: Item | None, now: int) -> FirstAnswer | None:
    return (item["request"], item["answer"]) if item and item["expires"] > now else None


def _decoded_connection(item: Item) -> Connection | Exception:
    try:
        return value_of(Connection, item)
    except Exception as fault:  # noqa: BLE001 - whatever a poisoned item makes of it
        return fault


@dataclass(frozen=True)
class OwnerItems:
    """
    Everything of an owner that a status tells of, read kind by kind; *revocations* are those that any of it names, None
    where one is missing.
    """

    owner: Owner | None
    connections: Sequence[Connection]
    intents: Sequence[StopIntent]
    exchanges: Sequence[Exchange]
    barriers: Mapping[str, Barrier]
    revocations: Mapping[str, Revocation | None]

    def resolved(self, client: str) -> Resolved:
        """As `Reads.resolved`, for the barrier of *client*."""
        barrier = self.barriers[client]
        by_name = {each.in_barrier: each for each in self.exchanges}
        return Resolved(
            barrier,
            {rid: self.revocations[rid] for rid in _listed(barrier)},
            {name[2:]: by_name.get(name[2:]) for name in sorted(barrier.acks) if name.startswith("x:")},
            by_name.get(barrier.in_flight) if barrier.in_flight else None,
        )

    def of(self, connection: Connection) -> tuple[list[StopIntent], list[Exchange], dict[str, Revocation | None]]:
        """Stops, exchanges and, as `Reads.queued_for`, revocations of one connection."""
        intents = [each for each in self.intents if each.ref == connection.ref]
        exchanges = [each for each in self.exchanges if each.ref == connection.ref]
        rids = _named(intents, exchanges)
        beside = _listed(self.barriers.get(connection.client) or Barrier()) - rids
        queued = {rid: self.revocations[rid] for rid in sorted(rids)}
        for rid in sorted(beside):
            item = self.revocations[rid]
            if item is None or item.ref == connection.ref:
                queued[rid] = item
        return intents, exchanges, queued


def _named(intents: Iterable[StopIntent], exchanges: Iterable[Exchange]) -> frozenset[str]:
    """Ids of the revocations that these have queued."""
    return frozenset(rid for intent in intents for rid in intent.rids) | {
        exchange.rid for exchange in exchanges if exchange.outcome is ExchangeOutcome.CLEANUP
    }


def _listed(barrier: Barrier) -> frozenset[str]:
    """Ids of the revocations that a barrier lists."""
    return barrier.owed | {name[2:] for name in barrier.acks if name.startswith("r:")}


class Reads:
    """What the flows look at before they decide."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def connection(self, ref: ConnectionRef) -> Connection | None:
        """One connection."""
        return connection_of(self._table.get(connection_key(ref)))

    def owner(self, owner: OwnerRef) -> Owner | None:
        """The fence."""
        return owner_of(self._table.get(owner_key(owner)))

    def deleted(self, owners: Iterable[OwnerRef]) -> frozenset[OwnerRef]:
        """Those of the owners that are deleted; a hundred in one call."""
        wanted, found = sorted(set(owners)), set()
        for start in range(0, len(wanted), KEYS_AT_ONCE):
            part = wanted[start : start + KEYS_AT_ONCE]
            fences = map(owner_of, self._table.batch_get([owner_key(owner) for owner in part]))
            found |= {
                owner for owner, fence in zip(part, fences, strict=True) if fence is not None and fence.is_deleted
            }
        return frozenset(found)

    def exchange(self, ref: ConnectionRef, exchange: str) -> Exchange | None:
        """One exchange."""
        return exchange_of(self._table.get(exchange_key(ref, exchange)))

    def delivery(self, client: str, digest: str, target: ConnectionRef | None = None) -> Delivery | None:
        """A webhook's delivery, or one connection's share of it."""
        return delivery_of(self._table.get(delivery_key(client, digest, target)))

    def as_delivery(self, item: Item) -> Delivery:
        """A delivery that is due."""
        found = delivery_of(item)
        assert found is not None  # noqa: S101 - it is None of None only
        return found

    def account(self, client: str, account: str) -> Account | None:
        """One external account."""
        return account_of(self._table.get(account_key(client, account)))

    def names(self, client: str, name: str) -> Iterator[list[Named]]:
        """
        Grants whose account goes by that name, over all owners and tenants, some of which are gone: page by page, each
        no larger than one batch of owners and connections.
        """
        after: Cursor | None = None
        while True:
            page = self._table.query(
                account_partition(client, name), sort_prefix("name"), limit=KEYS_AT_ONCE // 2, after=after
            )
            yield list(map(named_of, page.items))
            after = page.after
            if after is None:
                return

    def accounts(self, client: str, digests: Sequence[str]) -> list[Account | None]:
        """External accounts in the order of their digests, in one call; up to 100, and none for none."""
        keys = [account_key(client, each) for each in digests]
        return list(map(account_of, self._table.batch_get(keys))) if keys else []

    def owners_and_connections(self, refs: Sequence[ConnectionRef]) -> list[tuple[Owner | None, Connection | None]]:
        """Both of each, in one call; up to 50, and none for none."""
        keys = [key for ref in refs for key in (owner_key(ref.of_owner), connection_key(ref))]
        items = self._table.batch_get(keys) if keys else []
        return [(owner_of(items[n]), connection_of(items[n + 1])) for n in range(0, len(items), 2)]

    def shuts_out(self, client: str, account: str, slug: str) -> bool:
        """
        Whether no connection that lives on an account takes events of a source, as far as is noted beside the account;
        False where nobody lives on it.
        """
        found: list[Item] = []
        after: Cursor | None = None
        while True:
            page = self._table.query(account_partition(client, account), sort_prefix("member"), after=after)
            found += page.items
            after = page.after
            if after is None:
                break
        return bool(found) and all(slug in item.get("shut", ()) for item in found)

    def last_event_at(self, connection: Connection) -> int | None:
        """When an event of a ready connection last came."""
        if connection.account is None:
            return None
        item = self._table.get(member_key(connection.client, connection.account, connection.ref))
        return item.get("webhook_at") if item else None

    def source(self, ref: ConnectionRef, slug: str) -> Source | None:
        """One source behind a connection's account."""
        return source_of(self._table.get(source_key(ref, slug)))

    def sources(self, ref: ConnectionRef) -> list[Source]:
        """All of them, by name."""
        found = (source_of(item) for item in self.of_owner(ref.of_owner, sort_prefix("source", ref.connection)))
        return [source for source in found if source is not None]

    def ticket(self, ticket: str) -> Ticket | None:
        """What a connect link stands for."""
        item = self._table.get(ticket_key(digest(ticket)))
        return value_of(Ticket, item) if item else None

    def authorization(self, state_digest: str) -> Authorization | None:
        """What a state stands for."""
        item = self._table.get(authorization_key(state_digest))
        return value_of(Authorization, item) if item else None

    def first_answer(self, tenant: str, key_digest: str, now: int) -> FirstAnswer | None:
        """Request digest and answer of an earlier call with this idempotency key, as long as it counts."""
        return _first_answer(self._table.get(idempotency_key(tenant, key_digest)), now)

    def revocations(self, rids: Iterable[str]) -> dict[str, Revocation | None]:
        """Revocations by id; None where one is missing."""
        wanted = sorted(rids)
        found: dict[str, Revocation | None] = {}
        for start in range(0, len(wanted), KEYS_AT_ONCE):
            part = wanted[start : start + KEYS_AT_ONCE]
            found |= dict(
                zip(part, map(revocation_of, self._table.batch_get([revocation_key(rid) for rid in part])), strict=True)
            )
        return found

    def fence(self, ref: ConnectionRef, client: str) -> tuple[Owner | None, Connection | None, Barrier | None]:
        """Owner, connection and barrier in one call."""
        owner, connection, barrier = self._table.batch_get(
            [owner_key(ref.of_owner), connection_key(ref), barrier_key(ref.of_owner, client)]
        )
        return owner_of(owner), connection_of(connection), barrier_of(barrier)

    def around_install(
        self, exchange: Exchange
    ) -> tuple[Owner | None, Connection | None, Barrier | None, Revocation | None, Account | None]:
        """
        Everything that an install is held to, in one call. The account is empty where nobody has met it yet, None where
        the exchange knows none.
        """
        keys = [
            owner_key(exchange.ref.of_owner),
            connection_key(exchange.ref),
            barrier_key(exchange.ref.of_owner, exchange.client),
            revocation_key(exchange.rid),
        ]
        if exchange.account is not None:
            keys.append(account_key(exchange.client, exchange.account))
        owner, connection, barrier, revocation, *accounts = self._table.batch_get(keys)
        account = (account_of(accounts[0]) or Account()) if accounts else None
        return owner_of(owner), connection_of(connection), barrier_of(barrier), revocation_of(revocation), account

    def around_stop(self, connection: Connection) -> tuple[Barrier | None, tuple[Grant, ...], Account | None]:
        """Everything that a stop of the connection takes along, in one call."""
        ref = connection.ref
        keys = [barrier_key(ref.of_owner, connection.client)]
        keys += [grant_key(ref, pair) for pair in connection.pairs]
        if connection.account is not None:
            keys.append(account_key(connection.client, connection.account))
        barrier, *rest = self._table.batch_get(keys)
        count = len(connection.pairs)
        grants = tuple(grant for grant in map(grant_of, rest[:count]) if grant is not None)
        return barrier_of(barrier), grants, account_of(rest[count]) if rest[count:] else None

    def owner_and_connection(self, ref: ConnectionRef) -> tuple[Owner | None, Connection | None]:
        """Both in one call."""
        owner, connection = self._table.batch_get([owner_key(ref.of_owner), connection_key(ref)])
        return owner_of(owner), connection_of(connection)

    def owner_connection_and_first_answer(
        self, ref: ConnectionRef, key_digest: str | None, now: int
    ) -> tuple[Owner | None, Connection | None, FirstAnswer | None]:
        """All three in one call; no answer without an idempotency key."""
        keys = [owner_key(ref.of_owner), connection_key(ref)]
        if key_digest is not None:
            keys.append(idempotency_key(ref.tenant, key_digest))
        owner, connection, *answers = self._table.batch_get(keys)
        return owner_of(owner), connection_of(connection), _first_answer(answers[0], now) if answers else None

    def owner_connection_and_grant(
        self, ref: ConnectionRef, pair: str
    ) -> tuple[Owner | None, Connection | None, Grant | None]:
        """All three in one call."""
        owner, connection, grant = self._table.batch_get(
            [owner_key(ref.of_owner), connection_key(ref), grant_key(ref, pair)]
        )
        return owner_of(owner), connection_of(connection), grant_of(grant)

    def owner_and_grant(self, ref: ConnectionRef, pair: str) -> tuple[Owner | None, Grant | None]:
        """The hand-out's one call. Not ordered: see `is_saved_recently`."""
        owner, grant = self._table.batch_get([owner_key(ref.of_owner), grant_key(ref, pair)])
        return owner_of(owner), grant_of(grant)

    def grant(self, ref: ConnectionRef, pair: str) -> Grant | None:
        """One pair of the live grant."""
        return grant_of(self._table.get(grant_key(ref, pair)))

    def grants(self, ref: ConnectionRef, pairs: Sequence[str]) -> tuple[Grant, ...]:
        """All pairs of the live grant that are there."""
        if not pairs:
            return ()
        found = self._table.batch_get([grant_key(ref, pair) for pair in pairs])
        return tuple(grant for grant in map(grant_of, found) if grant is not None)

    def resolved(self, owner: OwnerRef, barrier: Barrier | None) -> Resolved:
        """The barrier and what its ids stand for: at most two calls, none for a clear barrier."""
        if barrier is None:
            return Resolved(None, {}, {})
        rids = _listed(barrier)
        names = sorted(name[2:] for name in barrier.acks if name.startswith("x:"))
        exchanges = dict(zip(names, self._exchanges(owner, names), strict=True))
        in_flight = self._exchanges(owner, [barrier.in_flight])[0] if barrier.in_flight else None
        return Resolved(barrier, self.revocations(rids) if rids else {}, exchanges, in_flight)

    def _exchanges(self, owner: OwnerRef, names: Sequence[str]) -> list[Exchange | None]:
        if not names:
            return []
        split = [name.split("#") for name in names]
        refs = [(ConnectionRef(owner.tenant, owner.owner, connection), exchange) for connection, exchange in split]
        return [
            exchange_of(item) for item in self._table.batch_get([exchange_key(ref, exchange) for ref, exchange in refs])
        ]

    def of_owner(self, owner: OwnerRef, prefix: str) -> list[Item]:
        """All items of an owner's partition with a sort prefix."""
        found: list[Item] = []
        after = None
        while True:
            page = self._table.query(owner_partition(owner), prefix, after=after)
            found += page.items
            after = page.after
            if after is None:
                return found

    def connections(self, owner: OwnerRef) -> list[Connection]:
        """All connections of an owner, by id."""
        return [value_of(Connection, item) for item in self.of_owner(owner, sort_prefix("connection"))]

    def each_connection(self, owner: OwnerRef) -> list[Connection | Exception]:
        """As `connections`; in place of one that does not decode, why."""
        return [_decoded_connection(item) for item in self.of_owner(owner, sort_prefix("connection"))]

    def intents(self, ref: ConnectionRef) -> list[StopIntent]:
        """All stops of a connection that are on record."""
        found = (intent_of(item) for item in self.of_owner(ref.of_owner, sort_prefix("intent", ref.connection)))
        return [intent for intent in found if intent is not None]

    def intents_of(self, owner: OwnerRef) -> list[StopIntent]:
        """All stops of an owner that are on record."""
        return [self.as_intent(item) for item in self.of_owner(owner, sort_prefix("intent"))]

    def exchanges_of(self, owner: OwnerRef) -> list[Exchange]:
        """All exchanges of an owner that are on record."""
        return [self.as_exchange(item) for item in self.of_owner(owner, sort_prefix("exchange"))]

    def exchanges(self, ref: ConnectionRef) -> list[Exchange]:
        """All exchanges of a connection that are on record."""
        found = (exchange_of(item) for item in self.of_owner(ref.of_owner, sort_prefix("exchange", ref.connection)))
        return [exchange for exchange in found if exchange is not None]

    def is_free(self, held: Exchange) -> bool:
        """Whether the held grant's queue item is still the hold's: not claimed by the sweep, settled or gone."""
        item = self.revocations([held.rid])[held.rid]
        return item is not None and item.state is RevocationState.PENDING and item.lease == held.id

    def queued_for(
        self, connection: Connection, intents: Sequence[StopIntent], exchanges: Sequence[Exchange]
    ) -> dict[str, Revocation | None]:
        """
        Every revocation of the connection: of its stops, of its exchanges, and what the barrier lists beside them.

        A late or orphan grant may be in the barrier alone.
        """
        ref = connection.ref
        rids = _named(intents, exchanges)
        listed = _listed(barrier_of(self._table.get(barrier_key(ref.of_owner, connection.client))) or Barrier())
        beside = self.revocations(listed - rids) if listed - rids else {}
        own = {rid: item for rid, item in beside.items() if item is None or item.ref == ref}
        return (self.revocations(rids) if rids else {}) | own

    def everything_of(self, owner: OwnerRef) -> OwnerItems:
        """
        What a status tells of: one query a kind, and the revocations by the hundred, whatever the connections.
        """
        connections, intents, exchanges = self.connections(owner), self.intents_of(owner), self.exchanges_of(owner)
        barriers = self.barriers(owner)
        rids = _named(intents, exchanges).union(*map(_listed, barriers.values()))
        return OwnerItems(self.owner(owner), connections, intents, exchanges, barriers, self.revocations(rids))

    def held(self, resolved: Resolved) -> Exchange | None:
        """The held exchange in flight, which a newer start or a stop of its connection ends."""
        exchange = resolved.in_flight
        return exchange if exchange is not None and exchange.outcome is ExchangeOutcome.HELD else None

    def barriers(self, owner: OwnerRef) -> dict[str, Barrier]:
        """All barriers of an owner, by client."""
        prefix = sort_prefix("barrier")
        return {item["SK"].removeprefix(prefix): value_of(Barrier, item) for item in self.of_owner(owner, prefix)}

    def receipts(self, owner: OwnerRef) -> list[Item]:
        """What became of the owner's grants: the newest hundred, newest first."""
        found: deque[Item] = deque(maxlen=100)
        after = None
        while True:
            page = self._table.query(receipt_key(owner, 0, "").pk, after=after)
            found.extend(page.items)
            after = page.after
            if after is None:
                break
        return [
            {
                "at": int(item["SK"].split("#")[0]),
                "connection_id": item["c"],
                "generation": item["g"],
                "kind": item["kind"],
                "outcome": item["outcome"],
            }
            for item in reversed(found)
        ]

    # --- items that a schedule found due ---

    def as_exchange(self, item: Item) -> Exchange:
        """The exchange that an item stores."""
        return value_of(Exchange, item, id=item["SK"].split("#")[2])

    def as_listed(self, item: Item) -> Revocation | Exchange | StopIntent:
        """The revocation, exchange or stop that an item stores."""
        key = key_of(item)
        if key.sk.startswith(sort_prefix("exchange")):
            return self.as_exchange(item)
        return self.as_intent(item) if key.sk.startswith(sort_prefix("intent")) else self.as_revocation(item)

    def as_grant(self, item: Item) -> Grant:
        """The pair of a grant that an item stores."""
        return value_of(Grant, item, pair=item["SK"].split("#")[2])

    def as_intent(self, item: Item) -> StopIntent:
        """The stop that an item stores."""
        return value_of(StopIntent, item, generation=int(item["SK"].split("#")[2]))

    def as_revocation(self, item: Item) -> Revocation:
        """The revocation that an item stores."""
        return value_of(Revocation, item, rid=item["PK"].split("#")[1], generation=item["g"])

    def as_connection(self, item: Item) -> Connection:
        """The connection that an item stores."""
        return value_of(Connection, item)

    def as_owner(self, item: Item) -> tuple[OwnerRef, Owner]:
        """The owner that an item is the fence of."""
        _, tenant, owner = key_of(item).pk.split("#")
        return OwnerRef(tenant, owner), value_of(Owner, item)

    def as_name(self, item: Item) -> Named:
        """The further name that an item stores."""
        return named_of(item)

    def as_account(self, item: Item) -> tuple[str, str]:
        """Client and digest of the account that an item stores."""
        _, client, digest_ = key_of(item).pk.split("#")
        return client, digest_
