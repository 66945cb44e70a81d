"""
The writes of a stop: rows 23-27 of the table of writes (docs/table.md). No provider, no key; never refused for good
(class S).
"""

from quitclaim.domain.connect import Exchange, Owner
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import OwnerRef
from quitclaim.domain.stop import Stop
from quitclaim.ports import THERE, Clock, Condition, Ids, Table, Update, absent, equals, seen
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.connect import add_event, add_idempotency, add_release
from quitclaim.store.items import attributes
from quitclaim.store.keys import (
    DUE,
    account_key,
    barrier_key,
    connection_key,
    grant_key,
    intent_key,
    member_key,
    owner_key,
    revocation_key,
)
from quitclaim.store.reads import owner_of
from quitclaim.store.stamps import account_item, connection_item, deletion_due, intent_item, revocation_item


class StopStore:
    """Rows 23-27."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def stop(self, stop: Stop) -> None:
        """
        The connection is stopped, its grant gone, and what the grant's revocation takes is queued, unopened, in one
        commit.

        From here no token is handed out and no refresh is saved for that generation (I-5). Raises `MovedError`: look
        again and repeat. The stop for a deleted owner (row 26) leaves the barrier alone; a held exchange stays in
        flight there.
        """
        ref, client = stop.before.ref, stop.intent.client
        commit: Commit = new_commit(self._table, self._clock, self._ids)
        item = connection_item(stop.after, stop.now)
        commit.create("connection", connection_key(ref), "connection", item, seen(stop.before.v), version=stop.before.v)
        for grant in stop.grants:
            when: Condition = (equals("v", grant.v),)
            if stop.by_exact_token:
                when = (equals("generation", grant.generation), equals("tv", grant.tv), equals("v", grant.v))
            commit.delete(f"grant {grant.pair}", grant_key(ref, grant.pair), when)
        if stop.revocation is not None:
            commit.create(
                "revocation", revocation_key(stop.revocation.rid), "revocation", revocation_item(stop.revocation)
            )
        commit.create("intent", intent_key(ref, stop.intent.generation), "intent", intent_item(stop.intent))
        owed = {stop.revocation.rid} if stop.revocation else set()
        if stop.held is not None:
            add_release(commit, stop.held, stop.now, "stopped", client, with_revocation=stop.hold_is_free)
            owed.add(stop.held.rid)
        include = {"owed": frozenset(owed)} if owed else {}
        if stop.blocks_purge:
            include["purges"] = frozenset({stop.intent.in_barrier})
        if stop.leaves_barrier:
            pass
        elif stop.held is not None:
            when = (equals("in_flight", stop.held.in_barrier),)
            commit.update(
                "barrier", Update(barrier_key(ref.of_owner, client), when, remove=("in_flight",), include=include)
            )
        elif include:
            commit.upsert("barrier", "barrier", Update(barrier_key(ref.of_owner, client), (), include=include))
        if stop.account is not None and stop.before.account is not None and stop.grants:
            left = stop.account.left(stop.now, is_loss=stop.by_exact_token)
            item = account_item(left, client, stop.before.account, stop.now)
            version = stop.account.v
            commit.create(
                "account", account_key(client, stop.before.account), "account", item, seen(version), version=version
            )
            commit.delete("member", member_key(client, stop.before.account, ref), ())
        add_event(commit, stop.event)
        add_idempotency(commit, stop.idempotency)
        commit.run()

    def release_step_up(self, held: Exchange, now: int, *, with_revocation: bool) -> None:
        """
        Row 9, of an attempt to get a wider grant whose connection was just stopped: nobody can confirm it any more, and
        its grant is due now, named by the stop (custody rule 5). Raises `MovedError`: it is over, or the sweep has its
        grant.
        """
        commit = new_commit(self._table, self._clock, self._ids)
        add_release(commit, held, now, "stopped", held.client, with_revocation=with_revocation)
        commit.update(
            "barrier",
            Update(
                barrier_key(held.ref.of_owner, held.client),
                (equals("in_flight", held.in_barrier),),
                remove=("in_flight",),
                include={"owed": frozenset({held.rid})},
            ),
        )
        intent = intent_key(held.ref, held.generation - 1)  # a step-up is one generation on
        commit.update("intent", Update(intent, THERE, include={"rids": frozenset({held.rid})}))
        body = {"reason": "stopped", "generation": held.generation}
        add_event(commit, Event(EventKind.STEP_UP_FAILED, held.ref, held.id, now, body))
        commit.run()

    # --- an owner ---

    def delete_owner(self, ref: OwnerRef, before: Owner | None, now: int) -> None:
        """
        Row 25. The owner is deleted, for good, in one write: from here nothing of it begins, installs or is handed out
        (I-10). Its connections are due to be stopped.

        Raises `MovedError`: it was deleted, or seen for the first time, since it was read.
        """
        key, deleted = owner_key(ref), {"deleted_at": now, **deletion_due(ref, now)}
        commit = new_commit(self._table, self._clock, self._ids)
        if before is None:
            commit.create("owner", key, "owner", attributes(Owner()) | deleted)
        else:
            when: Condition = (equals("epoch", before.epoch), absent("deleted_at"))
            commit.update("owner", Update(key, when, put=deleted), owner_of)
        commit.run()

    def deletion_done(self, ref: OwnerRef, before: Owner, now: int) -> None:
        """Row 27. Every connection of the deleted owner is stopped. Raises `MovedError`: somebody else said so."""
        commit = new_commit(self._table, self._clock, self._ids)
        when: Condition = (equals("v", before.v), equals("deleted_at", before.deleted_at), absent("stopped_at"))
        commit.update("owner", Update(owner_key(ref), when, put={"stopped_at": now}, remove=DUE), owner_of)
        add_event(commit, Event(EventKind.OWNER_STOPPED, ref, ref.owner, now))
        commit.run()
