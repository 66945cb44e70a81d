"""
One commit: all of its writes or none, whatever the table's answer was.

An operation id is fixed before the first try. A write that was applied but reported failed is repeated and then refuses
itself: if a returned item carries the operation id, it *was* applied (H-6). Conflicts and throttling are no refusal;
they are repeated with jitter, a bounded number of times.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

from quitclaim.domain.errors import MovedError, StoreError
from quitclaim.ports import (
    NEW_ITEM,
    AnyOf,
    Check,
    Clause,
    Clock,
    Condition,
    Delete,
    Ids,
    Item,
    Key,
    Put,
    Table,
    Update,
    Write,
    WriteAmbiguousError,
    WriteBusyError,
    WriteRefusedError,
)

SCHEMA: Final = 1
TRIES: Final = 6
PAUSE_MS: Final = 25


@dataclass(frozen=True)
class Named:
    """A write, what its refusal is called, and how the item that refused it is read."""

    write: Write
    name: str
    read: Callable[[Item], Any] | None


class Commit:
    """Collects the writes of one operation; `run` applies them."""

    def __init__(self, table: Table, clock: Clock, op: str) -> None:
        self._table = table
        self._clock = clock
        self.op = op
        self._writes: list[Named] = []

    def create(
        self, name: str, key: Key, ty: str, item: Item, when: Condition = NEW_ITEM, *, version: int | None = None
    ) -> None:
        """Put a whole item: new, or in place of the *version* that was read."""
        stamped = item | {"ty": ty, "sv": SCHEMA, "op": self.op, "v": (version or 0) + 1}
        self._writes.append(Named(Put(key, stamped, when), name, None))

    def update(self, name: str, update: Update, read: Callable[[Item], Any] | None = None) -> None:
        """Change an item that is there; its condition names an attribute, so it never makes one."""
        stamped = replace(update, put={**update.put, "op": self.op}, increase={**update.increase, "v": 1})
        self._writes.append(Named(stamped, name, read))

    def upsert(self, name: str, ty: str, update: Update) -> None:
        """Change an item or make it."""
        stamped = replace(
            update,
            put={**update.put, "op": self.op},
            increase={**update.increase, "v": 1},
            if_new={"ty": ty, "sv": SCHEMA},
        )
        self._writes.append(Named(stamped, name, None))

    def delete(self, name: str, key: Key, when: Condition, read: Callable[[Item], Any] | None = None) -> None:
        """Remove an item."""
        self._writes.append(Named(Delete(key, when), name, read))

    def check(self, name: str, key: Key, when: Condition, read: Callable[[Item], Any] | None = None) -> None:
        """Hold the commit to an item that it does not change."""
        self._writes.append(Named(Check(key, when), name, read))

    def has(self, name: str) -> bool:
        """Whether a write of that name is in it."""
        return any(each.name == name for each in self._writes)

    @property
    def has_writes(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._writes)

    def require(self, name: str, *more: Clause | AnyOf) -> None:
        """Hold the write of that name to more clauses: a check and a change of one item are one action."""
        self._writes = [
            replace(each, write=replace(each.write, when=(*each.write.when, *more))) if each.name == name else each
            for each in self._writes
        ]

    def run(self) -> None:
        """
        Apply all or nothing.

        Raises `MovedError` naming the writes whose conditions did not hold (with what was found there), `StoreError`
        when the table did not answer in time: then the same operation may be repeated, and nobody may assume that it
        was not applied.
        """
        for attempt in range(TRIES):
            try:
                if len(self._writes) == 1 and not isinstance(self._writes[0].write, Check):
                    self._table.write(self._writes[0].write)
                else:
                    self._table.transact([each.write for each in self._writes])
            except WriteRefusedError as refusal:
                if any(item and item.get("op") == self.op for item in refusal.items):
                    return
                raise self._moved(refusal) from refusal
            except (WriteBusyError, WriteAmbiguousError):
                if attempt + 1 < TRIES:
                    self._clock.pause(self._pause_ms(attempt))
            else:
                return
        raise StoreError

    def _pause_ms(self, attempt: int) -> int:
        """Longer each time, and between half and all of it by the operation's id, so that two do not meet again."""
        full = PAUSE_MS << attempt
        return full // 2 + crc32(f"{self.op}{attempt}".encode()) % (full // 2 + 1)

    def _moved(self, refusal: WriteRefusedError) -> MovedError:
        refused: Mapping[str, Any] = {
            each.name: (each.read(item) if each.read and item else None)
            for each, item in zip(self._writes, refusal.items, strict=True)
            if item is not None
        }
        return MovedError(seen=refused)


def new_commit(table: Table, clock: Clock, ids: Ids) -> Commit:
    """A commit with a fresh operation id."""
    return Commit(table, clock, ids.new_id())
