"""The key ring's items (row 51: add; taking keys out of use comes with `maintain`)."""

from quitclaim.domain.errors import MovedError
from quitclaim.domain.keyring import RingItem
from quitclaim.ports import Clock, Ids, Key, Table
from quitclaim.store.commit import new_commit
from quitclaim.store.items import attributes, value_of
from quitclaim.store.keys import ring_partition


class RingTable:
    """`security.keys.RingStore` on the table."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def read(self, purpose: str) -> list[RingItem]:
        """Every key of *purpose*, consistently."""
        page = self._table.query(ring_partition(), f"{purpose}#")
        return [value_of(RingItem, item, purpose=purpose, kid=item["SK"].split("#")[1]) for item in page.items]

    def add(self, item: RingItem) -> bool:
        """Put a key if its id is not there yet; whether it was put."""
        commit = new_commit(self._table, self._clock, self._ids)
        key = Key(ring_partition(), f"{item.purpose}#{item.kid}")
        commit.create("ring", key, "ring", attributes(item, without=frozenset({"purpose", "kid"})))
        try:
            commit.run()
        except MovedError:
            return False
        return True
