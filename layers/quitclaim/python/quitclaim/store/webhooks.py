"""
The writes of webhooks: rows 65-69 of the table of writes (docs/table.md). Each is one conditional write; the same five
serve an event's own delivery and each connection's share of it.
"""

from collections.abc import Sequence

from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import GUARD_MS, TRACE_TTL_MS
from quitclaim.domain.webhooks import CLAIMABLE, Claim, Delivery, DeliveryState, claim_of
from quitclaim.ports import Clock, Condition, Ids, Item, Table, Update, absent, any_of, at_most, equals
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.keys import DUE, delivery_key
from quitclaim.store.reads import delivery_of
from quitclaim.store.stamps import delivery_item, forward_due

IS_OPEN = any_of(equals("state", DeliveryState.ACCEPTED), equals("state", DeliveryState.PROCESSING))
IS_CLAIMABLE = any_of(*(equals("state", state) for state in CLAIMABLE))


class WebhookStore:
    """Rows 65 to 69."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    def accept(self, delivery: Delivery) -> bool:
        """
        Row 65. The event is durable and due to be forwarded; False if it was there before: a duplicate, which may be
        answered as accepted for that very reason (RB-63).
        """
        commit = self._commit()
        key = delivery_key(delivery.client, delivery.digest, delivery.target)
        commit.create("delivery", key, "delivery", delivery_item(delivery))
        try:
            commit.run()
        except MovedError:
            return False
        return True

    def claim(self, delivery: Delivery, now: int) -> Claim:
        """
        Row 66. Exactly one attempt has it, for five minutes from *now*; what an earlier holder still does changes
        nothing any more (M-69). Raises `MovedError` with what is there (`seen["delivery"]`): its `verdict` says whether
        another attempt has it or it is over (M-67, M-68).
        """
        claim = claim_of(delivery, self._ids.new_id(), now)
        commit = self._commit()
        is_free = any_of(absent("until"), at_most("until", now - GUARD_MS))
        put = {"state": DeliveryState.PROCESSING.value, "claim": claim.token, "until": claim.until}
        key = delivery_key(delivery.client, delivery.digest, delivery.target)
        commit.update("delivery", Update(key, (IS_CLAIMABLE, is_free), put=put, increase={"claims": 1}), _read)
        commit.run()
        return claim

    def complete(self, claim: Claim, delivery: Delivery, now: int) -> None:
        """Row 67. Processed; its body is erased. Raises `MovedError`: the claim was lost (M-80)."""
        commit = self._commit()
        add_end(commit, claim, delivery, now)
        commit.run()

    def release(self, claim: Claim, delivery: Delivery, next_at: int) -> None:
        """
        Row 68. This attempt failed: the delivery is free, and sent again at *next_at*. Raises `MovedError`: the claim
        was lost, and whoever has the delivery now sees to it.
        """
        commit = self._commit()
        put = {"state": DeliveryState.ACCEPTED.value, "next": next_at, **forward_due(delivery, next_at)}
        key = delivery_key(claim.client, claim.digest, claim.target)
        commit.update("delivery", Update(key, held_by(claim), put=put, remove=("claim", "until")), _read)
        commit.run()

    def sent_again(self, delivery: Delivery, next_at: int) -> None:
        """Row 69. It is sent once more, and again at *next_at* if nobody finishes it. Raises `MovedError`."""
        commit = self._commit()
        when: Condition = (IS_OPEN, equals("next", delivery.next))
        put = {"next": next_at, **forward_due(delivery, next_at)}
        key = delivery_key(delivery.client, delivery.digest, delivery.target)
        commit.update("delivery", Update(key, when, put=put, increase={"sends": 1}), _read)
        commit.run()


def add_end(
    commit: Commit,
    claim: Claim,
    delivery: Delivery,
    now: int,
    state: DeliveryState = DeliveryState.PROCESSED,
    reason: str | None = None,
) -> None:
    """
    End a delivery within a commit: whatever acceptance means is written together with this or not at all (D-27).

    Only its holder ends it (M-69). It is remembered for 30 days from its receipt (M-83), and so much longer than any
    signature of it counts.
    """
    ttl = (max(delivery.received + TRACE_TTL_MS, now)) // 1000
    put = {"state": state.value, "done": now, "ttl": ttl, **({} if reason is None else {"reason": reason})}
    remove: Sequence[str] = ("body", "claim", "until", "next", *DUE)
    key = delivery_key(claim.client, claim.digest, claim.target)
    commit.update("delivery", Update(key, held_by(claim), put=put, remove=tuple(remove)), _read)


def held_by(claim: Claim) -> Condition:
    """Nobody has taken the delivery over."""
    return (equals("state", DeliveryState.PROCESSING), equals("claim", claim.token))


def _read(item: Item) -> Delivery | None:
    return delivery_of(item)
