"""The key ring's items (row 51 of the table of writes, docs/table.md: add, retire, destroy)."""

from quitclaim.domain.errors import MovedError
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.limits import KEY_REST_MS
from quitclaim.ports import Clock, Ids, Item, Key, Table, Update, absent, at_most, equals
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
        """Every key of *purpose*, consistently. One that cannot be read is as good as missing; `maintain` tells."""
        return [item for item in self._read(f"{purpose}#") if isinstance(item, RingItem)]

    def read_all(self) -> list[RingItem | Exception]:
        """Every key of every purpose, consistently; in place of one that cannot be read, why."""
        return self._read("")

    def add(self, item: RingItem) -> bool:
        """Put a key if its id is not there yet; whether it was put."""
        commit = new_commit(self._table, self._clock, self._ids)
        commit.create("ring", _key(item), "ring", attributes(item, without=frozenset({"purpose", "kid"})))
        try:
            commit.run()
        except MovedError:
            return False
        return True

    def retire(self, item: RingItem, now: int) -> None:
        """
        It seals no more: a newer one is active. It still opens what it sealed. Raises `MovedError` where it is retired.
        """
        commit = new_commit(self._table, self._clock, self._ids)
        commit.update("ring", Update(_key(item), (equals("v", item.v), absent("retired")), put={"retired": now}))
        commit.run()

    def destroy(self, item: RingItem, now: int) -> None:
        """
        For good, and only after a look at the whole table that found nothing naming it (RB-62): what it sealed could
        never be opened again.
        """
        commit = new_commit(self._table, self._clock, self._ids)
        commit.delete("ring", _key(item), (equals("v", item.v), at_most("retired", now - KEY_REST_MS)), dict)
        try:
            commit.run()
        except MovedError as moved:
            if moved.seen["ring"] is not None:  # else it is gone: by an earlier try of this, or by another run
                raise

    def _read(self, prefix: str) -> list[RingItem | Exception]:
        found: list[Item] = []
        after = None
        while True:
            page = self._table.query(ring_partition(), prefix, after=after)
            found += page.items
            after = page.after
            if after is None:
                return [_item(item) for item in found]


def _item(item: Item) -> RingItem | Exception:
    try:
        purpose, kid = item["SK"].split("#")
        found = value_of(RingItem, item, purpose=purpose, kid=kid)
    except (TypeError, ValueError) as fault:
        return fault
    times = (found.created, found.active_from, found.v, found.active_from if found.retired is None else found.retired)
    if not isinstance(found.wrapped, bytes) or any(type(each) is not int for each in times):
        return TypeError(f"{item['SK']} is no key of the ring")
    return found


def _key(item: RingItem) -> Key:
    return Key(ring_partition(), f"{item.purpose}#{item.kid}")
