"""
The writes of reconciliation: rows 32, 42-44, 46, 47, 57 and 64 of the table of writes (docs/table.md), what is due, and
the heartbeat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import STOPPED, Barrier, Connection, ConnectionState
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.revocations import Revocation, RevocationState, deadline_of
from quitclaim.domain.sources import Source
from quitclaim.domain.stop import Close, StopIntent
from quitclaim.ports import (
    AnyOf,
    Clause,
    Clock,
    Condition,
    Cursor,
    Ids,
    Item,
    Key,
    Table,
    Update,
    absent,
    any_of,
    equals,
    more,
    present,
    seen,
)
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.connect import add_event
from quitclaim.store.keys import (
    ANY_CLIENT,
    ATTENTION,
    DUE,
    account_key,
    account_partition,
    barrier_key,
    connection_key,
    due_partition,
    due_upto,
    family_marker_key,
    grant_key,
    heartbeat_key,
    intent_key,
    marker_key,
    owner_partition,
    revocation_key,
    sort_prefix,
    source_key,
)
from quitclaim.store.stamps import account_item, connection_item, intent_attention, intent_due, revoke_due


class ReconcileStore:
    """Rows 32, 42-44, 46, 47, 57, 64."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    def due_keys(
        self, kind: str, shard: int, now: int, limit: int, after: Cursor | None = None
    ) -> tuple[list[Key], Cursor | None]:
        """Keys of one page that the index shows as due, earliest first, and where to go on; a hint."""
        page = self._table.query_index(
            "due", due_partition(kind, ANY_CLIENT, shard), upto=due_upto(now), limit=limit, after=after
        )
        return [Key(item["PK"], item["SK"]) for item in page.items], page.after

    def items(self, keys: Sequence[Key]) -> list[Item]:
        """What is there under those keys, consistently."""
        return [item for item in (self._table.batch_get(keys) if keys else []) if item is not None]

    # --- purge and compensations ---

    def purge_done(self, intent: StopIntent, now: int, *, has_barrier: bool) -> None:
        """Row 43. The purge of this very stop is complete; a newer stop's token makes it a no-op (I-11)."""
        commit = self._commit()
        commit.update(
            "intent",
            Update(
                intent_key(intent.ref, intent.generation),
                (equals("token", intent.token), equals("purge", "pending")),
                put={"purge": "done"},
            ),
        )
        if has_barrier:
            key = barrier_key(intent.ref.of_owner, intent.client)
            commit.upsert("barrier", "barrier", Update(key, (), exclude={"purges": frozenset({intent.in_barrier})}))
        body = {"generation": intent.generation}
        add_event(commit, Event(EventKind.PURGE_COMPLETED, intent.ref, intent.in_barrier, now, body))
        commit.run()

    def compensations_derived(self, intent: StopIntent) -> None:
        """Row 44, last part: every dependent has its compensation on record."""
        commit = self._commit()
        commit.update(
            "intent",
            Update(
                intent_key(intent.ref, intent.generation),
                (equals("token", intent.token), absent("comp_derived")),
                put={"comp_derived": True},
            ),
        )
        commit.run()

    def postpone(self, intent: StopIntent, next_at: int) -> None:
        """Row 42. A stop that cannot close yet is looked at again at *next_at*."""
        commit = self._commit()
        put = {"next": next_at, **intent_due(intent, next_at)}
        when: Condition = (equals("v", intent.v), absent("closed"))
        commit.update("intent", Update(intent_key(intent.ref, intent.generation), when, put=put, increase={"tries": 1}))
        commit.run()

    def show_overdue(self, intent: StopIntent, now: int) -> None:
        """Row 57. A stop that is still open after a day is on the operator's list until it is closed."""
        commit = self._commit()
        when: Condition = (present("PK"), absent("closed"), absent("overdue"))
        put = {"overdue": now, **intent_attention(intent, now)}
        commit.update("intent", Update(intent_key(intent.ref, intent.generation), when, put=put))
        commit.run()

    # --- close ---

    def close(
        self,
        intent: StopIntent,
        connection: Connection | None,
        barrier: Barrier | None,
        close: Close,
        beside: Mapping[str, Account],
        now: int,
    ) -> None:
        """
        Row 47. The stop is done, held to the intent and the barrier as they were resolved.

        The connection becomes `revoked` only if it is still the one that this stop stopped. *beside*: the accounts that
        something of it is parked beside, and only while something lives there (7.12).
        """
        ref = intent.ref
        commit = self._commit()
        commit.update(
            "intent",
            Update(
                intent_key(ref, intent.generation),
                (equals("v", intent.v), equals("purge", "done"), equals("comp_derived", True), equals("comp_open", 0)),
                put={"closed": now},
                remove=(*DUE, *ATTENTION, "t", "overdue"),
            ),
        )
        not_of_it = () if barrier is None else (_not_in_flight(barrier),)
        commit.check(
            "barrier", barrier_key(ref.of_owner, intent.client), (*seen(barrier.v if barrier else None), *not_of_it)
        )
        is_still_stopped = (
            connection is not None
            and connection.generation == intent.generation + 1
            and connection.state in STOPPED - {ConnectionState.REVOKED}
        )
        if connection is not None and is_still_stopped:
            after = replace(connection, state=ConnectionState.REVOKED, closed_as=close.value, effect_at=None, step=None)
            key = connection_key(ref)
            version = connection.v
            commit.create("connection", key, "connection", connection_item(after, now), seen(version), version=version)
        for digest, account in sorted(beside.items()):
            commit.check("account", account_key(intent.client, digest), (equals("v", account.v), more("live", 0)))
        kind = (
            EventKind.CONNECTION_REVOKED
            if close is Close.CONFIRMED and is_still_stopped
            else EventKind.CONNECTION_CLOSED
        )
        add_event(
            commit,
            Event(kind, ref, intent.in_barrier, now, {"closed_as": close.value, "generation": intent.generation}),
        )
        commit.run()

    # --- states that wait ---

    def move(self, before: Connection, after: Connection, now: int) -> None:
        """Row 46: a connection that waits moves on: its state, or only the time at which it is looked at again."""
        commit = self._commit()
        key = connection_key(before.ref)
        commit.create("connection", key, "connection", connection_item(after, now), seen(before.v), version=before.v)
        commit.run()

    # --- wake ---

    def wake(self, revocation: Revocation, account: Account | None, now: int) -> None:
        """Row 32. Nothing lives in its reach any more: the parked revocation is due, with a fresh deadline."""
        ref, rid = revocation.ref, revocation.rid
        deadline = deadline_of(now)
        commit = self._commit()
        commit.update(
            "revocation",
            Update(
                revocation_key(rid),
                (equals("state", RevocationState.PARKED),),
                put={
                    "state": RevocationState.PENDING.value,
                    "next": now,
                    "deadline": deadline,
                    **revoke_due(rid, revocation.client, now),
                },
            ),
        )
        barrier = Update(barrier_key(ref.of_owner, revocation.client), (), include={"owed": frozenset({rid})})
        commit.upsert("barrier", "barrier", barrier)
        if account is not None and revocation.account is not None:
            commit.delete("marker", marker_key(revocation.client, revocation.account, rid), ())
            after = replace(account, parked=account.parked - 1)
            key = account_key(revocation.client, revocation.account)
            when: Condition = (equals("v", account.v), equals("live", 0))
            item = account_item(after, revocation.client, revocation.account, now)
            commit.create("account", key, "account", item, when, version=account.v)
        else:
            commit.delete("marker", family_marker_key(ref, rid), ())
            for family in sorted(revocation.family):
                free: AnyOf = any_of(absent("PK"), Clause("family", "<>", family))
                commit.check(f"grant {family}", grant_key(ref, family.split("#")[1]), (free,))
        commit.run()

    def parked_beside(self, client: str, account: str) -> list[str]:
        """Ids of the revocations parked beside an external account, by a consistent query of the markers."""
        return self._parked(account_partition(client, account), sort_prefix("marker"))

    def parked_within_family(self, ref: ConnectionRef) -> list[str]:
        """Ids of the revocations parked beside the connection's own grant, likewise."""
        return self._parked(owner_partition(ref.of_owner), sort_prefix("family marker", ref.connection))

    def _parked(self, partition: str, prefix: str) -> list[str]:
        return [item["SK"].split("#")[-1] for item in self._table.query(partition, prefix).items]

    # --- what a stop removes ---

    def forget_source(self, source: Source) -> None:
        """Row 64. A source of a connection that was stopped goes; whoever writes it meanwhile makes it go later."""
        commit = self._commit()
        # One that is gone is gone: a delete leaves nothing by which its own repetition would be known.
        is_same = any_of(absent("PK"), equals("v", source.v))
        commit.delete("source", source_key(source.ref, source.slug), (is_same,))
        commit.run()

    # --- heartbeat ---

    def beat(self, kind: str, now: int, clients: frozenset[str]) -> frozenset[str]:
        """
        The schedule ran. Answers every client that it has ever known: one that was taken out of the configuration keeps
        being swept.
        """
        commit = self._commit()
        include = {"clients": clients} if clients else {}
        commit.upsert("heartbeat", "heartbeat", Update(heartbeat_key(kind), (), put={"last": now}, include=include))
        commit.run()
        item = self._table.get(heartbeat_key(kind)) or {}
        known: Any = item.get("clients", frozenset())
        return frozenset(known) | clients


def _not_in_flight(barrier: Barrier) -> Clause:
    return absent("in_flight") if barrier.in_flight is None else equals("in_flight", barrier.in_flight)
