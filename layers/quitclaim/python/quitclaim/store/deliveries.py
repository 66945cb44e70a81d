"""
The writes of handling a delivery: rows 72-76 of the table of writes (docs/table.md). Each is held to the claim of
whoever writes it, so that a holder whose lease was taken over changes nothing any more (M-69).
"""

from collections.abc import Iterator
from typing import Final

from quitclaim.domain.accounts import Account
from quitclaim.domain.events import Event
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import KEPT_MS, SHARDS, TRACE_TTL_MS
from quitclaim.domain.webhooks import Claim, Delivery, DeliveryState, KeptAt
from quitclaim.ports import Clock, Cursor, Ids, Item, Key, Table, Update, equals, present, seen
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.connect import add_event
from quitclaim.store.items import attributes
from quitclaim.store.keys import (
    ATTENTION,
    DUE,
    KEPT,
    account_key,
    account_partition,
    attention_partition,
    delivery_key,
    delivery_partition,
    member_of_key,
    sort_prefix,
    waiting_key,
)
from quitclaim.store.reads import delivery_of
from quitclaim.store.stamps import account_item, forward_due, kept_attention, parked_due
from quitclaim.store.webhooks import add_end, held_by

PAGE: Final = 100


class DeliveryStore:
    """Rows 72-76, and whom an account's events reach."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    # --- whom it reaches ---

    def members(self, client: str, account: str) -> Iterator[tuple[ConnectionRef, int]]:
        """
        The connections whose live grant is of that account, over all owners and tenants, and the generation of each
        (U-15); by a consistent query of the account's own partition.
        """
        for item in self._of(account_partition(client, account), sort_prefix("member")):
            yield member_of_key(Key(item["PK"], item["SK"])), int(item["generation"])

    def waiting(self, client: str, account: str) -> Iterator[str]:
        """Digests of the deliveries that are parked beside an account, in the order in which they arrived."""
        for item in self._of(account_partition(client, account), sort_prefix("waiting")):
            yield str(item["SK"].split("#")[2])

    def levels(self, client: str, account: str) -> frozenset[str]:
        """The kinds of the hints that wait beside an account."""
        found = self._of(account_partition(client, account), sort_prefix("waiting"))
        return frozenset(item["level"] for item in found if "level" in item)

    def shares(self, client: str, digest: str) -> frozenset[ConnectionRef]:
        """The connections that have had their share of an event already."""
        found = self._of(delivery_partition(client, digest), sort_prefix("share"))
        return frozenset(member_of_key(Key(item["PK"], item["SK"])) for item in found)

    def _of(self, partition: str, prefix: str) -> Iterator[Item]:
        after: Cursor | None = None
        while True:
            page = self._table.query(partition, prefix, limit=PAGE, after=after)
            yield from page.items
            after = page.after
            if after is None:
                return

    # --- the writes ---

    def record_share(
        self, claim: Claim, delivery: Delivery, ref: ConnectionRef, outcome: str, event: Event | None, now: int
    ) -> None:
        """
        Row 72. A connection has had its share, once: the record, and what the app is told, are one commit with the
        claim (D-27). Raises `MovedError`: it had it before, or the claim was lost (M-80).
        """
        commit = self._commit()
        commit.check("delivery", delivery_key(claim.client, claim.digest), held_by(claim))
        share = Delivery(
            claim.client,
            claim.digest,
            delivery.provider,
            DeliveryState.PROCESSED,
            delivery.received,
            delivery.size,
            done=now,
            reason=outcome,
            target=ref,
        )
        ttl = max(delivery.received + TRACE_TTL_MS, now) // 1000
        item = attributes(share, without=frozenset({"client", "digest", "target"})) | {"ttl": ttl}
        commit.create("share", delivery_key(claim.client, claim.digest, ref), "delivery", item)
        if event is not None:
            add_event(commit, event)
        commit.run()

    def park(
        self,
        claim: Claim,
        delivery: Delivery,
        beside: str,
        account: Account | None,
        now: int,
        *,
        level: str | None = None,
    ) -> None:
        """
        Row 73. Nobody can have it yet: it waits beside the account, in order of arrival, and no longer than to
        *delivery*'s end. Whoever makes a grant of that account live finds it in the account's item, because this is
        held to the item as it was read. *level*: the kind of a hint that a later one of its kind only repeats. Raises
        `MovedError`: look again.
        """
        commit = self._commit()
        until = delivery.give_up_at
        put = {
            "state": DeliveryState.PARKED.value,
            "beside": beside,
            **parked_due(delivery, until),
        }
        key = delivery_key(claim.client, claim.digest)
        commit.update("delivery", Update(key, held_by(claim), put=put, remove=("claim", "until", "next")), delivery_of)
        version = account.v if account else None
        known = account or Account()
        if delivery.beside is None:
            known = known.keeping(1)
            commit.create(
                "waiting",
                waiting_key(claim.client, beside, delivery.received, claim.digest),
                "waiting",
                {} if level is None else {"level": level},
            )
        item = account_item(known, claim.client, beside, now)
        commit.create("account", account_key(claim.client, beside), "account", item, seen(version), version=version)
        commit.run()

    def end(
        self,
        claim: Claim,
        delivery: Delivery,
        account: Account | None,
        now: int,
        *,
        state: DeliveryState = DeliveryState.PROCESSED,
        reason: str | None = None,
    ) -> None:
        """
        Row 74. It is over; where it was parked, it waits there no more. *account* as it was read, of what it waited
        beside. Raises `MovedError`: the claim was lost, or the account moved.
        """
        commit = self._commit()
        add_end(commit, claim, delivery, now, state, reason)
        self._leave_line(commit, claim, delivery, account, now)
        commit.run()

    def keep(
        self,
        claim: Claim,
        delivery: Delivery,
        account: Account | None,
        now: int,
        *,
        reason: str,
        accounts: frozenset[str] = frozenset(),
    ) -> None:
        """
        Row 75. Its time is over and nobody had it: dropped, and shown to operators with its body for a week, in which
        they may have it delivered after all. *accounts*: whom it names, so that they find it by a connection. Raises as
        `end`.
        """
        commit = self._commit()
        put = {
            "state": DeliveryState.DROPPED.value,
            "reason": reason,
            "done": now,
            "ttl": (now + KEPT_MS) // 1000,
            **kept_attention(delivery, now),
            **({"accounts": accounts} if accounts else {}),
        }
        remove = ("claim", "until", "next", "beside", *DUE)
        key = delivery_key(claim.client, claim.digest)
        commit.update("delivery", Update(key, held_by(claim), put=put, remove=remove), delivery_of)
        self._leave_line(commit, claim, delivery, account, now)
        commit.run()

    def _leave_line(self, commit: Commit, claim: Claim, delivery: Delivery, account: Account | None, now: int) -> None:
        """It waits beside no account any more; an account that nothing else is known of goes with it."""
        if delivery.beside is None or account is None:
            return
        commit.delete("waiting", waiting_key(claim.client, delivery.beside, delivery.received, claim.digest), ())
        key, after = account_key(claim.client, delivery.beside), account.keeping(-1)
        if after.is_blank:
            commit.delete("account", key, seen(account.v))
        else:
            item = account_item(after, claim.client, delivery.beside, now)
            commit.create("account", key, "account", item, seen(account.v), version=account.v)

    def kept(self, at: KeptAt, limit: int) -> tuple[list[Delivery], KeptAt | None]:
        """
        What nobody had and is kept: up to *limit* from a place on, the oldest first of each shard, read consistently;
        and the place behind it, None at the end.
        """
        page = self._table.query_index(
            "attention", attention_partition(KEPT, at.shard), limit=min(limit, PAGE), after=at.after
        )
        keys = [Key(entry["PK"], entry["SK"]) for entry in page.items]
        read = map(delivery_of, self._table.batch_get(keys)) if keys else ()
        found = [each for each in read if each is not None and each.is_kept]
        if page.after is not None:
            return found, KeptAt(at.shard, dict(page.after))
        return found, KeptAt(at.shard + 1) if at.shard + 1 < SHARDS else None

    def redrive(self, delivery: Delivery, now: int) -> None:
        """
        Row 76. An operator has a delivery that was dropped with its body delivered after all: accepted again, due at
        once, for another day. Raises `MovedError`: it is over for good, or somebody else did it.
        """
        commit = self._commit()
        when = (equals("v", delivery.v), equals("state", DeliveryState.DROPPED), present("body"))
        put = {"state": DeliveryState.ACCEPTED.value, "again": now, "next": now, **forward_due(delivery, now)}
        remove = ("reason", "done", "ttl", "accounts", *ATTENTION)
        commit.update(
            "delivery",
            Update(delivery_key(delivery.client, delivery.digest), when, put=put, remove=remove),
            delivery_of,
        )
        commit.run()
