"""
What an operator sees and does: the list of what needs attention, the audit trail and the manual retry (rows 54 and 55
of the table of writes, docs/table.md). An acknowledgement is row 40 or 41.
"""

from quitclaim.domain.attention import AuditEntry
from quitclaim.domain.ids import OwnerRef
from quitclaim.domain.limits import SHARDS
from quitclaim.domain.revocations import Revocation
from quitclaim.ports import Clock, Ids, Item, Key, Table, Update, equals
from quitclaim.store.commit import new_commit
from quitclaim.store.items import attributes, key_of
from quitclaim.store.keys import ATTENTION, ATTENTION_KINDS, attention_partition, audit_key, owner_key, revocation_key
from quitclaim.store.reads import owner_of, revocation_of
from quitclaim.store.revocations import PENDING
from quitclaim.store.stamps import revoke_due
from quitclaim.store.tokens import lease_free

BATCH_READ = 100


class OperatorStore:
    """Rows 54 and 55."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    # --- the list ---

    def waiting(self, limit: int) -> tuple[list[Item], bool]:
        """
        Up to *limit* items that the index shows as in need of attention, the oldest first, read consistently; and
        whether there are more.
        """
        entries: list[Item] = []
        more = False
        for kind in ATTENTION_KINDS:
            for number in range(SHARDS):
                page = self._table.query_index("attention", attention_partition(kind, number), limit=limit)
                entries += page.items
                more = more or page.after is not None
        entries.sort(key=lambda entry: str(entry[ATTENTION[1]]))
        return self._items([key_of(entry) for entry in entries[:limit]]), more or len(entries) > limit

    def deleted(self, owners: frozenset[OwnerRef]) -> frozenset[OwnerRef]:
        """Those of *owners* that are deleted."""
        listed = sorted(owners)
        found: set[OwnerRef] = set()
        for start in range(0, len(listed), BATCH_READ):
            part = listed[start : start + BATCH_READ]
            read = map(owner_of, self._table.batch_get([owner_key(owner) for owner in part]))
            found |= {ref for ref, owner in zip(part, read, strict=True) if owner is not None and owner.is_deleted}
        return frozenset(found)

    def _items(self, keys: list[Key]) -> list[Item]:
        read = [
            item
            for start in range(0, len(keys), BATCH_READ)
            for item in self._table.batch_get(keys[start : start + BATCH_READ])
        ]
        return [item for item in read if item is not None]

    # --- the writes ---

    def record(self, entry: AuditEntry) -> None:
        """Row 54. What is asked for is on record before it is done; an entry is never changed (append-only)."""
        commit = new_commit(self._table, self._clock, self._ids)
        commit.create("audit", audit_key(entry), "audit", attributes(entry, without=frozenset({"id"})))
        commit.run()

    def retry(self, revocation: Revocation, now: int) -> None:
        """
        Row 55. A pending revocation that nobody holds is due now, and every claim so far is excused: what killed its
        worker was looked at by a person. Raises `MovedError`.
        """
        commit = new_commit(self._table, self._clock, self._ids)
        commit.update(
            "revocation",
            Update(
                revocation_key(revocation.rid),
                (PENDING, lease_free(now), equals("v", revocation.v)),
                put={
                    "next": now,
                    "excused": max(revocation.claims - revocation.attempts, revocation.excused),
                    **revoke_due(revocation.rid, revocation.client, now),
                },
                remove=("lease", "lease_until"),
            ),
            revocation_of,
        )
        commit.run()
