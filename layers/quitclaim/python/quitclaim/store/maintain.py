"""
The writes of maintenance: rows 48, 49, 56 and 79 of the table of writes (docs/table.md); what is due for it, and the
walk over the whole table. The key ring's are row 51, in `store/ring.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quitclaim.domain.connect import Barrier, Connection, ConnectionState, Exchange, ExchangeOutcome
from quitclaim.domain.errors import MovedError
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.limits import COMPACT_MS
from quitclaim.domain.maintain import Inspection
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.stop import StopIntent
from quitclaim.ports import (
    THERE,
    Clause,
    Clock,
    Condition,
    Ids,
    Item,
    Key,
    Table,
    Update,
    absent,
    any_of,
    at_most,
    equals,
    present,
    seen,
)
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.items import attributes, key_of, value_of
from quitclaim.store.keys import (
    ANY_CLIENT,
    account_partition,
    barrier_key,
    connection_key,
    due_partition,
    due_upto,
    exchange_key,
    heartbeat_key,
    intent_key,
    owner_partition,
    revocation_key,
    sort_prefix,
)

PAGE = 100
INSPECTION = "inspection"
OF_CONNECTION = ("grant", "exchange", "intent", "family marker", "dependent")
"""What may be left of a connection besides itself."""
IS_OVER = any_of(*(equals("outcome", outcome) for outcome in ExchangeOutcome if outcome.is_over))


class MaintainStore:
    """Rows 48, 49, 56 and 79."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    # --- what is due ---

    def due_items(self, kind: str, shard: int, now: int) -> Iterator[Item]:
        """What the index shows as due, earliest first, read consistently. What stays due is passed by."""
        for page in self.due_pages(kind, shard, now):
            yield from page

    def due_pages(self, kind: str, shard: int, now: int) -> Iterator[list[Item]]:
        """The same page by page: two calls for each."""
        after: Mapping[str, Any] | None = None
        while True:
            page = self._table.query_index(
                "due", due_partition(kind, ANY_CLIENT, shard), upto=due_upto(now), limit=PAGE, after=after
            )
            keys = [Key(entry["PK"], entry["SK"]) for entry in page.items]
            if keys:
                yield [item for item in self._table.batch_get(keys) if item is not None]
            after = page.after
            if after is None:
                return

    # --- compaction ---

    def compact_revocation(
        self, revocation: Revocation, intents: Sequence[StopIntent], now: int, *, has_barrier: bool
    ) -> None:
        """
        Row 48. A told revocation goes, and with it, in the same commit, every place that names it (custody rule 9).

        *intents*: the closed stops that list it. Its exchange is gone or over: a hold that could still be installed has
        its revocation. Raises `MovedError`.
        """
        ref, rid = revocation.ref, revocation.rid
        commit = self._commit()
        is_late = any_of(absent("deadline"), at_most("deadline", now - COMPACT_MS))
        when: Condition = (equals("v", revocation.v), present("finished"), is_late)
        commit.delete("revocation", revocation_key(rid), when, dict)
        if has_barrier:
            names = {"owed": frozenset({rid}), "acks": frozenset({f"r:{rid}"})}
            commit.update("barrier", Update(barrier_key(ref.of_owner, revocation.client), THERE, exclude=names))
        for intent in intents:
            commit.update(f"intent {intent.generation}", _unlisted(intent, rid))
        if revocation.exchange is not None:
            over = any_of(absent("PK"), *IS_OVER.clauses)
            commit.check("exchange", exchange_key(ref, revocation.exchange), (over,))
        _run(commit, "revocation")

    def unlist(self, intent: StopIntent, rid: str) -> None:
        """Row 48 in advance, where more closed stops list a revocation than fit into one commit."""
        commit = self._commit()
        commit.update("intent", _unlisted(intent, rid))
        commit.run()

    def compact_exchange(self, exchange: Exchange, *, is_listed: bool) -> None:
        """Row 49. An exchange that is over goes; *is_listed*: the barrier still names it. Raises `MovedError`."""
        commit = self._commit()
        when: Condition = (equals("v", exchange.v), equals("outcome", exchange.outcome))
        commit.delete("exchange", exchange_key(exchange.ref, exchange.id), when, dict)
        if is_listed:
            key = barrier_key(exchange.ref.of_owner, exchange.client)
            names = {"acks": frozenset({f"x:{exchange.in_barrier}"})}
            commit.update("barrier", Update(key, THERE, exclude=names))
        _run(commit, "exchange")

    def compact_intent(self, intent: StopIntent) -> None:
        """Row 49. A closed stop that lists nothing goes. Raises `MovedError`."""
        commit = self._commit()
        when: Condition = (equals("v", intent.v), present("closed"), absent("rids"))
        commit.delete("intent", intent_key(intent.ref, intent.generation), when, dict)
        _run(commit, "intent")

    def compact_connection(self, connection: Connection) -> None:
        """Row 49. A closed connection of a deleted owner goes. Raises `MovedError`."""
        commit = self._commit()
        when: Condition = (equals("v", connection.v), equals("state", ConnectionState.REVOKED))
        commit.delete("connection", connection_key(connection.ref), when, dict)
        _run(commit, "connection")

    def compact_barrier(self, owner: OwnerRef, client: str, barrier: Barrier) -> None:
        """Row 49. A barrier of a deleted owner that names nothing goes. Raises `MovedError`."""
        commit = self._commit()
        when: Condition = (equals("v", barrier.v), absent("owed"), absent("acks"), absent("purges"))
        commit.delete("barrier", barrier_key(owner, client), when, dict)
        _run(commit, "barrier")

    def rest_of(self, ref: ConnectionRef) -> int:
        """How many items of a connection there are besides itself."""
        partition = owner_partition(ref.of_owner)
        return sum(
            len(self._table.query(partition, sort_prefix(kind, ref.connection), limit=1).items)
            for kind in OF_CONNECTION
        )

    # --- accounts ---

    def counted(self, client: str, digest: str) -> tuple[int, int]:
        """Members and markers that lie beside an account: what its counts must be."""
        partition = account_partition(client, digest)
        return self._count(partition, sort_prefix("member")), self._count(partition, sort_prefix("marker"))

    def _count(self, partition: str, prefix: str) -> int:
        count, after = 0, None
        while True:
            page = self._table.query(partition, prefix, after=after)
            count += len(page.items)
            after = page.after
            if after is None:
                return count

    def forget_name(self, item: Item) -> None:
        """
        Row 79. A name goes whose grant is no longer live: a generation does not come back. Raises `MovedError`.
        """
        commit = self._commit()
        commit.delete("name", key_of(item), seen(int(item["v"])), dict)
        _run(commit, "name")

    # --- the walk over the whole table ---

    def inspection(self) -> Inspection | None:
        """How far it has come."""
        item = self._table.get(heartbeat_key(INSPECTION))
        return value_of(Inspection, item) if item else None

    def keep_inspection(self, before: Inspection | None, after: Inspection) -> None:
        """Row 56. How far it has come now. Raises `MovedError`: another run has gone on with it."""
        commit = self._commit()
        version = before.v if before else None
        commit.create(
            "inspection",
            heartbeat_key(INSPECTION),
            "inspection",
            attributes(after),
            seen(version),
            version=version,
        )
        commit.run()

    def kind_of(self, item: Item) -> str:
        """What an item of the walk is."""
        return str(item.get("ty", ""))

    def owner_of(self, item: Item) -> OwnerRef:
        """Whose partition an item of the walk lies in."""
        _, tenant, owner = key_of(item).pk.split("#")
        return OwnerRef(tenant, owner)


def _run(commit: Commit, name: str) -> None:
    """What was to be removed under *name* and is gone was removed, by an earlier try of this or by somebody else."""
    try:
        commit.run()
    except MovedError as moved:
        if name not in moved.seen or moved.seen[name] is not None:
            raise


def _unlisted(intent: StopIntent, rid: str) -> Update:
    when: Condition = (present("closed"), Clause("rids", "contains", rid))
    return Update(intent_key(intent.ref, intent.generation), when, exclude={"rids": frozenset({rid})})
