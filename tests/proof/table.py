"""
The `Table` port in memory: DynamoDB's rules without DynamoDB, as a function of the calls that were made.

It keeps conditions, updates, limits and pages as the service does (held to MiniStack and moto by
`test_table_double.py`), and does on demand what the service does when it likes: an index that lags, conflicts,
throttling, answers that are lost with and without their effect. A state can be kept and gone back to at no cost; stored
values never change, and no caller ever holds one. For one caller at a time.

A request that DynamoDB would not take at all, whatever the table holds, raises `RequestRejectedError`: it is a fault of
ours and ends the test.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, Literal

from quitclaim.domain.errors import StoreError
from quitclaim.ports import (
    AnyOf,
    Check,
    Clause,
    Condition,
    Delete,
    Item,
    Key,
    Page,
    Put,
    Update,
    Write,
    WriteAmbiguousError,
    WriteBusyError,
    WriteRefusedError,
)
from quitclaim.store.table import BatchFaultError
from tests.proof.clauses import ClauseId, check_id, ids_of, located, name_of

type Address = tuple[str, str]
type Operation = Literal["get", "batch_get", "query", "index", "scan", "write", "transact", "batch_update"]

INDEXES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "due": ("d1", "d2", ()),
    "attention": ("a1", "a2", ("t",)),
    "roster": ("r1", "r2", ()),
}
"""Partition attribute, sort attribute, what else is projected; held to template.yaml by a test."""
INDEX_KEYS: Final = frozenset(name for partition, sort, _ in INDEXES.values() for name in (partition, sort))
TABLE_KEYS: Final = frozenset({"PK", "SK"})

MAX_ITEM: Final = 400 * 1024
MAX_PAYLOAD: Final = 4 * 1024 * 1024
MAX_ACTIONS: Final = 100
MAX_KEYS: Final = 100
MAX_STATEMENTS: Final = 25
MAX_PK: Final = 2048
MAX_SK: Final = 1024
MAX_NUMBER: Final = 10**38
MAX_DEPTH: Final = 32
PAGE: Final = 1024 * 1024
REACH: Final = 64
"""How many changes are remembered where a function says how far an index is behind."""
LARGE: Final = 512
"""Below it no value can take an item over its limit, and nobody needs to count."""

_ABSENT: Final = object()
_NOTHING: Final[Item] = {}
_PLAIN: Final = frozenset({str, int, bool, bytes})
_IS_LARGE: Final = 1
_IS_NESTED: Final = 2


class RequestRejectedError(AssertionError):
    """DynamoDB would answer ValidationException. A fault of ours, never an outcome: no flow may see it as one."""


class TableFault(StrEnum):
    """What can happen to a call. A read that meets any of them raises `StoreError`."""

    CONFLICT = "conflict"
    """A transaction is under way on an item: busy, nothing was judged."""
    THROTTLED = "throttled"
    """Too many requests: busy, nothing was judged."""
    LOST = "lost"
    """No answer, and nothing was applied."""
    APPLIED = "applied"
    """No answer, though it was judged and applied."""
    PARTLY_APPLIED = "partly applied"
    """No answer; of a batch the first half was judged and applied, of any other write nothing."""
    PARTLY_BUSY = "partly busy"
    """Of a batch every second update is busy and the others are judged; any other write is busy."""


@dataclass(slots=True)
class TableCall:
    """One call, as hooks see it. `answer` and `error` are set once it is over."""

    number: int
    operation: Operation
    keys: tuple[Key, ...] = ()
    writes: tuple[Write, ...] = ()
    partition: str = ""
    prefix: str = ""
    index: str = ""
    answer: Any = None
    error: Exception | None = None

    @property
    def is_write(self) -> bool:
        """Whether it may change an item."""
        return bool(self.writes)

    @property
    def changed(self) -> frozenset[Key]:
        """The items that it may change."""
        return frozenset(write.key for write in self.writes if not isinstance(write, Check))

    @property
    def touched(self) -> frozenset[Key]:
        """The items that it reads, checks or changes by their key."""
        return frozenset((*self.keys, *(write.key for write in self.writes)))

    def depends_on(self, other: "TableCall") -> bool:
        """
        Whether the order of the two can matter: one may change what the other reads or changes. An index is taken to
        be read at the state of the moment; where it lags, it depends on every write.
        """
        if not self.changed.isdisjoint(other.touched) or not other.changed.isdisjoint(self.touched):
            return True
        return _is_seen_by(self, other) or _is_seen_by(other, self)

    def __str__(self) -> str:
        match self.operation:
            case "query":
                what = f"{self.partition} {self.prefix}*"
            case "index":
                what = f"{self.index} {self.partition}"
            case "scan":
                what = "everything"
            case _ if self.writes:
                what = ", ".join(f"{type(each).__name__.lower()} {each.key.pk} {each.key.sk}" for each in self.writes)
            case _:
                what = ", ".join(f"{key.pk} {key.sk}" for key in self.keys)
        return f"{self.number} {self.operation}: {what}"


def _is_seen_by(writing: TableCall, reading: TableCall) -> bool:
    if reading.operation == "scan":
        return bool(writing.changed)
    if reading.operation == "query":
        return any(key.pk == reading.partition and key.sk.startswith(reading.prefix) for key in writing.changed)
    if reading.operation == "index":
        partition, sort, projected = INDEXES[reading.index]
        return any(_may_move(write, {partition, sort, *projected}) for write in writing.writes)
    return False


def _may_move(write: Write, names: set[str]) -> bool:
    if isinstance(write, Update):
        return not names.isdisjoint((*write.put, *write.remove, *write.if_new))
    return not isinstance(write, Check)


@dataclass
class Bill:
    """What the calls cost, by the rule of docs/table.md; a refused write costs as if applied."""

    reads: float = 0
    writes: int = 0
    index_writes: int = 0

    @property
    def total(self) -> float:
        """All units, a read as a write."""
        return self.reads + self.writes + self.index_writes


class _Row:
    """A stored item. It never changes; another one takes its place."""

    __slots__ = ("digest", "flags", "item", "size")

    def __init__(self, item: Item, flags: int) -> None:
        self.item = item
        self.flags = flags
        self.size = -1
        self.digest = -1


class _Views:
    """The sort keys of every partition of the table and its indexes, in order."""

    __slots__ = ("lists", "owned")

    def __init__(self, lists: "dict[Address, list[Any]]", owned: "set[Address] | None") -> None:
        self.lists = lists
        self.owned = owned  # the lists that nobody shares; None: all of them

    @staticmethod
    def of(items: "Mapping[Address, _Row]") -> "_Views":
        lists: dict[Address, list[Any]] = {}
        for address, row in items.items():
            for view, entry in _entries(address, row.item):
                lists.setdefault(view, []).append(entry)
        for each in lists.values():
            each.sort()
        return _Views(lists, None)

    def forked(self) -> "_Views":
        return _Views(self.lists.copy(), set())

    def apply(self, address: Address, old: "_Row | None", new: "_Row | None") -> None:
        before = _entries(address, old.item) if old else []
        after = _entries(address, new.item) if new else []
        if before == after:
            return
        for view, entry in before:
            mine = self._mine(view)
            mine.pop(bisect_left(mine, entry))
        for view, entry in after:
            insort(self._mine(view), entry)

    def _mine(self, view: Address) -> list[Any]:
        found = self.lists.get(view)
        if found is None:
            found = self.lists[view] = []
        elif self.owned is not None and view not in self.owned:
            found = self.lists[view] = found.copy()
        if self.owned is not None:
            self.owned.add(view)
        return found


def _entries(address: Address, item: Item) -> list[tuple[Address, Any]]:
    entries: list[tuple[Address, Any]] = [(("", address[0]), address[1])]
    for index, (partition, sort, _) in INDEXES.items():
        if partition in item and sort in item:
            entries.append(((index, item[partition]), (item[sort], *address)))
    return entries


type _Past = tuple[Address, _Row | None, _Past] | None
"""The latest change of an item, what it was before, and the changes before that."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state to go back to, as often as one likes. Calls and units that were counted are no part of it."""

    items: Mapping[Address, _Row]
    views: _Views | None
    past: _Past
    past_length: int


type Lag = int | Callable[[TableCall], int]
type Faults = Mapping[int, TableFault] | Callable[[TableCall], TableFault | None]
type Hook = Callable[[TableCall], None]


@dataclass
class _Names:
    """How the store calls what it writes, of one call."""

    function: str
    names: tuple[str, ...] = field(default=())


class MemoryTable:
    """
    `ports.Table`, and `ports.WholeTable`.

    *lag*: how many changes of items an index query is behind, a number or a function of the query; *reach*: how many
    are remembered at least. *page_bytes*: where a page ends (the service:
    `PAGE`); None for no end but the limit. *strict*: empty strings and None are rejected, which DynamoDB would store
    and the product never means to. *metered*: count units.
    """

    def __init__(
        self,
        *,
        lag: Lag = 0,
        reach: int | None = None,
        page_bytes: int | None = None,
        strict: bool = True,
        metered: bool = False,
    ) -> None:
        self.page_bytes = page_bytes
        self.strict = strict
        self.number = 0
        self.changes = 0  # that were ever made, in whatever state
        self.calls: dict[Operation, int] = dict.fromkeys(
            ("get", "batch_get", "query", "index", "scan", "write", "transact", "batch_update"), 0
        )
        self.bill: Bill | None = Bill() if metered else None
        self.recorded: set[ClauseId] = set()
        self._lag: Lag = 0
        self._reach = reach or 0
        self._items: dict[Address, _Row] = {}
        self._is_shared = False
        self._views: _Views | None = None
        self._views_shared = False
        self._pending: list[tuple[Address, _Row | None, _Row | None]] = []
        self._past: _Past = None
        self._past_length = 0
        self._before: Hook | None = None
        self._after: Hook | None = None
        self._faults: Faults | None = None
        self._is_watched = False
        self._drop: frozenset[ClauseId] = frozenset()
        self._dropped_in: frozenset[tuple[str, str]] = frozenset()
        self._records = False
        self._is_named = False
        self.lag = lag

    # --- knobs ---

    @property
    def lag(self) -> Lag:
        """How many changes of items an index query is behind. Changes made before it was first set are seen at once."""
        return self._lag

    @lag.setter
    def lag(self, lag: Lag) -> None:
        self._lag = lag
        self._reach = max(self._reach, lag if isinstance(lag, int) else REACH)

    def watch(self, *, before: Hook | None = None, after: Hook | None = None, faults: Faults | None = None) -> None:
        """
        From now on: *before* and *after* are called round each call (what they raise ends it there), and *faults* says
        what happens to it, by its number or by a function.
        """
        self._before, self._after, self._faults = before, after, faults
        self._is_watched = not (before is None and after is None and faults is None)

    @property
    def drop(self) -> frozenset[ClauseId]:
        """The clauses that are taken for true (see `clauses`)."""
        return self._drop

    @drop.setter
    def drop(self, clauses: set[ClauseId] | frozenset[ClauseId]) -> None:
        self._drop = frozenset(clauses)
        self._dropped_in = frozenset(clause[:2] for clause in clauses)
        self._is_named = self._records or bool(self._drop)

    def record_clauses(self, on: bool = True) -> None:
        """Collect in `recorded` the id of every clause that a write is held to."""
        self._records = on
        self._is_named = on or bool(self._drop)

    # --- states ---

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        if self._pending:
            self._synced()
        self._is_shared = self._views_shared = True
        return Snapshot(self._items, self._views, self._past, self._past_length)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to it. Knobs and counts stay."""
        self._items = snapshot.items  # type: ignore[assignment]  # copied before the first change
        self._views = snapshot.views
        self._past, self._past_length = snapshot.past, snapshot.past_length
        self._pending = []
        self._is_shared = self._views_shared = True

    def digest(self, without: frozenset[str] = frozenset()) -> str:
        """A hash of the content: the same for the same items, in every process. *without*: attributes left out."""
        total = 0
        if without:
            for row in self._items.values():
                total += _digest({name: value for name, value in row.item.items() if name not in without})
        else:
            for row in self._items.values():
                total += row.digest if row.digest >= 0 else _marked(row)
        return f"{total & (1 << 128) - 1:032x}"

    def __len__(self) -> int:
        return len(self._items)

    # --- around the port: no call, no count, no rule ---

    def mark(self, keys: Sequence[Key]) -> tuple[int, ...]:
        """
        What stands for these items: equal exactly where each of them is, which a read would show; 0 where there is
        none. A digest of 128 bits of an item's whole content, types and all; an item never changes, another one takes
        its place.
        """
        return tuple(map(self._mark, ((key.pk, key.sk) for key in keys)))

    def mark_of(self, pk: str, prefix: str) -> tuple[int, ...]:
        """
        The same of everything below a prefix, in order: whichever part of it a query with some limit and start would
        find. An item holds its own keys, so that none is taken for another.
        """
        sks = self._synced().lists.get(("", pk), [])
        return tuple(self._mark((pk, sk)) for sk in sks[bisect_left(sks, prefix) :] if sk.startswith(prefix))

    def _mark(self, address: Address) -> int:
        row = self._items.get(address)
        return 0 if row is None else row.digest if row.digest >= 0 else _marked(row)

    def items(self) -> Iterator[Mapping[str, Any]]:
        """Every item, to be looked at."""
        return (MappingProxyType(row.item) for row in self._items.values())

    def item(self, key: Key) -> Mapping[str, Any] | None:
        """One item, to be looked at."""
        row = self._items.get((key.pk, key.sk))
        return None if row is None else MappingProxyType(row.item)

    def plant(self, key: Key, attributes: Mapping[str, Any]) -> None:
        """Put an item as it is, sound or not, in place of what is there."""
        item = {name: _frozen(value) for name, value in attributes.items()} | {"PK": key.pk, "SK": key.sk}
        self._store((key.pk, key.sk), self._items.get((key.pk, key.sk)), _Row(item, _IS_LARGE | _IS_NESTED))

    def alter(self, key: Key, put: Mapping[str, Any] | None = None, remove: Sequence[str] = ()) -> None:
        """Change attributes of an item that is there, soundly or not."""
        item = dict(self._items[key.pk, key.sk].item) | dict(put or {})
        self.plant(key, {name: value for name, value in item.items() if name not in remove})

    def erase(self, key: Key) -> None:
        """Take an item away."""
        self._store((key.pk, key.sk), self._items.get((key.pk, key.sk)), None)

    def expire(self, seconds: int) -> int:
        """Delete what has a `ttl` of *seconds* or less, as DynamoDB does at some time or other; how many."""
        gone = [
            address
            for address, row in self._items.items()
            if type(row.item.get("ttl")) is int and row.item["ttl"] <= seconds
        ]
        for address in gone:
            self._store(address, self._items[address], None)
        return len(gone)

    # --- reads ---

    def get(self, key: Key) -> Item | None:
        """See `ports.Table.get`."""
        self.number += 1
        self.calls["get"] += 1
        if self._is_watched:
            found: Item | None = self._watched(TableCall(self.number, "get", (key,)), lambda: self._get(key))
            return found
        return self._get(key)

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """See `ports.Table.batch_get`. No keys: no call."""
        if not keys:
            return []
        self.number += 1
        self.calls["batch_get"] += 1
        if self._is_watched:
            call = TableCall(self.number, "batch_get", tuple(keys))
            found: list[Item | None] = self._watched(call, lambda: self._batch_get(keys))
            return found
        return self._batch_get(keys)

    def query(
        self, pk: str, prefix: str = "", *, limit: int | None = None, after: Mapping[str, Any] | None = None
    ) -> Page:
        """See `ports.Table.query`."""
        self.number += 1
        self.calls["query"] += 1
        if self._is_watched:
            call = TableCall(self.number, "query", partition=pk, prefix=prefix)
            page: Page = self._watched(call, lambda: self._query(pk, prefix, limit, after))
            return page
        return self._query(pk, prefix, limit, after)

    def query_index(
        self, index: str, partition: str, *, upto: str | None = None, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        """See `ports.Table.query_index`."""
        self.number += 1
        self.calls["index"] += 1
        call = TableCall(self.number, "index", index=index, partition=partition)
        behind = self._lag if isinstance(self._lag, int) else self._lag(call)
        if self._is_watched:
            page: Page = self._watched(call, lambda: self._query_index(index, partition, upto, limit, after, behind))
            return page
        return self._query_index(index, partition, upto, limit, after, behind)

    def scan(self, *, after: Mapping[str, Any] | None = None) -> Page:
        """See `ports.WholeTable.scan`: in an order that nobody can guess, and that is always the same."""
        self.number += 1
        self.calls["scan"] += 1
        if self._is_watched:
            page: Page = self._watched(TableCall(self.number, "scan"), lambda: self._scan(after))
            return page
        return self._scan(after)

    def _get(self, key: Key) -> Item | None:
        address = _address(key)
        row = self._items.get(address)
        if self.bill is not None:
            self.bill.reads += _units(_size(row), 4096)
        return None if row is None else _given(row)

    def _batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        if len(set(keys)) > MAX_KEYS:
            raise RequestRejectedError(f"{len(set(keys))} keys in one call")
        rows = [self._items.get(_address(key)) for key in keys]
        if self.bill is not None:
            self.bill.reads += sum(_units(_size(row), 4096) for row in dict(zip(keys, rows, strict=True)).values())
        return [None if row is None else _given(row) for row in rows]

    def _query(self, pk: str, prefix: str, limit: int | None, after: Mapping[str, Any] | None) -> Page:
        if not pk or (limit is not None and limit < 1):
            raise RequestRejectedError(f"no such query: partition {pk!r}, limit {limit}")
        sks = self._synced().lists.get(("", pk), ())
        start = bisect_left(sks, prefix) if prefix else 0
        if after is not None:
            last = _unwired(after, "PK", "SK")
            if last[0] != pk or not last[1].startswith(prefix):
                raise RequestRejectedError(f"a query of {pk} {prefix} cannot go on after {last}")
            start = max(start, bisect_right(sks, last[1]))
        found: list[Item] = []
        size = 0
        more = False
        counts = self.page_bytes is not None or self.bill is not None
        for sk in sks[start:]:
            if not sk.startswith(prefix):
                break
            row = self._items[pk, sk]
            if counts:
                more = self.page_bytes is not None and bool(found) and size + _size(row) > self.page_bytes
                if more:
                    break
                size += _size(row)
            found.append(_given(row))
            if len(found) == limit or (self.page_bytes is not None and size >= self.page_bytes):
                more = True
                break
        if self.bill is not None:
            self.bill.reads += _units(size, 4096)
        return Page(tuple(found), _wired({"PK": found[-1]["PK"], "SK": found[-1]["SK"]}) if more else None)

    def _query_index(
        self, index: str, partition: str, upto: str | None, limit: int, after: Mapping[str, Any] | None, behind: int
    ) -> Page:
        if index not in INDEXES or not partition or limit < 1 or upto == "":
            raise RequestRejectedError(f"no such query: index {index!r}, partition {partition!r}, limit {limit}")
        hash_name, sort_name, projected = INDEXES[index]
        entries, rows = self._entries_as_of(index, partition, behind)
        if not entries and after is None and self.bill is None:
            return Page(())
        start = 0
        if after is not None:
            pk, sk, found_partition, sort = _unwired(after, "PK", "SK", hash_name, sort_name)
            if found_partition != partition or (upto is not None and sort > upto):
                raise RequestRejectedError(f"a query of {index} {partition} cannot go on after {sort}")
            start = bisect_right(entries, (sort, pk, sk))
        found: list[Item] = []
        size = 0
        more = False
        counts = self.page_bytes is not None or self.bill is not None
        for sort, pk, sk in entries[start:]:
            if upto is not None and sort > upto:
                break
            entry: Item = {"PK": pk, "SK": sk, hash_name: partition, sort_name: sort}
            if projected:
                source = rows.get((pk, sk)) or self._items[pk, sk]
                entry |= {name: _thawed(source.item[name]) for name in projected if name in source.item}
            if counts:
                more = self.page_bytes is not None and bool(found) and size + _size_of_item(entry) > self.page_bytes
                if more:
                    break
                size += _size_of_item(entry)
            found.append(entry)
            if len(found) == limit or (self.page_bytes is not None and size >= self.page_bytes):
                more = True
                break
        if self.bill is not None:
            self.bill.reads += _units(size, 4096) / 2
        keys = ("PK", "SK", hash_name, sort_name)
        return Page(tuple(found), _wired({name: found[-1][name] for name in keys}) if more else None)

    def _scan(self, after: Mapping[str, Any] | None) -> Page:
        addresses = sorted(self._items, key=_scan_order)
        if after is not None:
            pk, sk = _unwired(after, "PK", "SK")
            addresses = addresses[bisect_right(addresses, _scan_order((pk, sk)), key=_scan_order) :]
        found: list[Item] = []
        size = 0
        more = False
        for address in addresses:
            row = self._items[address]
            more = self.page_bytes is not None and bool(found) and size + _size(row) > self.page_bytes
            if more:
                break
            size += _size(row)
            found.append(_given(row))
        if self.bill is not None:
            self.bill.reads += _units(size, 4096)
        return Page(tuple(found), _wired({"PK": found[-1]["PK"], "SK": found[-1]["SK"]}) if more else None)

    def _entries_as_of(
        self, index: str, partition: str, behind: int
    ) -> tuple[Sequence[tuple[str, str, str]], Mapping[Address, _Row | None]]:
        """The index partition as it was *behind* changes ago, and what the items were that have changed since."""
        entries = self._synced().lists.get((index, partition), [])
        if behind <= 0 or self._past is None:
            return entries, {}
        then: dict[Address, _Row | None] = {}
        past: _Past = self._past
        for _ in range(min(behind, self._reach)):
            if past is None:
                break
            address, row, past = past
            then[address] = row
        hash_name, sort_name, _ = INDEXES[index]
        old = [each for each in entries if each[1:] not in then]
        for address, row in then.items():
            if row is not None and row.item.get(hash_name) == partition and sort_name in row.item:
                old.append((row.item[sort_name], *address))
        return sorted(old), then

    # --- writes ---

    def write(self, write: Write) -> None:
        """See `ports.Table.write`."""
        self.number += 1
        self.calls["write"] += 1
        if self._is_watched:
            self._watched(TableCall(self.number, "write", writes=(write,)), lambda: self._write(write))
        else:
            self._write(write)

    def transact(self, writes: Sequence[Write]) -> None:
        """See `ports.Table.transact`."""
        self.number += 1
        self.calls["transact"] += 1
        if self._is_watched:
            self._watched(TableCall(self.number, "transact", writes=tuple(writes)), lambda: self._transact(writes))
        else:
            self._transact(writes)

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        """See `ports.Table.batch_update`."""
        self.number += 1
        self.calls["batch_update"] += 1
        if self._is_watched:
            call = TableCall(self.number, "batch_update", writes=tuple(updates))
            verdicts: list[Exception | None] = self._watched(call, lambda: self._batch_update(updates))
            return verdicts
        return self._batch_update(updates)

    def _write(self, write: Write) -> None:
        if type(write) is Check:
            raise RequestRejectedError("a check alone is no write")
        address = _address(write.key)
        row = self._items.get(address)
        names = _Names(*located(sys._getframe(1))) if self._is_named else None  # noqa: SLF001 - the stack has no other door
        if not self._holds(write, row, names, 0):
            self._reject_unsound(write)
            if self.bill is not None:
                self._charge(1, row, row)
            raise WriteRefusedError([_NOTHING.copy() if row is None else _given(row)])
        new = self._result(write, address, row)
        if self.bill is not None:
            self._charge(1, row, new)
        self._store(address, row, new)

    def _transact(self, writes: Sequence[Write]) -> None:
        if not 1 <= len(writes) <= MAX_ACTIONS:
            raise RequestRejectedError(f"{len(writes)} actions in one transaction")
        names = _Names(*located(sys._getframe(1))) if self._is_named else None  # noqa: SLF001
        items = self._items
        refused: list[Item | None] | None = None
        fault: RequestRejectedError | None = None
        changes: list[tuple[Address, _Row | None, _Row | None]] = []
        flags = 0
        for number, write in enumerate(writes):
            address = _address(write.key)
            row = items.get(address)
            new = row
            if self._holds(write, row, names, number):
                try:
                    new = self._result(write, address, row)
                except _OperandError as error:
                    fault = error  # judged by the item: any refusal comes before it
                else:
                    flags |= new.flags if new is not None else 0
            else:
                self._reject_unsound(write)
                if refused is None:
                    refused = [None] * len(writes)
                refused[number] = _NOTHING.copy() if row is None else _given(row)
            changes.append((address, row, new))
        if len({address for address, _, _ in changes}) != len(writes):
            raise RequestRejectedError("two actions on one item")
        if flags & _IS_LARGE and sum(map(_payload, writes)) > MAX_PAYLOAD:
            raise RequestRejectedError("more than 4 MB in one transaction")
        if self.bill is not None:
            for _, row, new in changes:
                self._charge(2, row, row if refused or fault else new)
        if refused is not None:
            raise WriteRefusedError(refused)
        if fault is not None:
            raise fault
        for address, row, new in changes:
            if new is not row:
                self._store(address, row, new)

    def _batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        if not 1 <= len(updates) <= MAX_STATEMENTS:
            raise RequestRejectedError(f"{len(updates)} updates in one batch")
        if len({_address(update.key) for update in updates}) != len(updates):
            raise RequestRejectedError("two updates of one item in a batch")
        names = _Names(*located(sys._getframe(1))) if self._is_named else None  # noqa: SLF001
        for update in updates:
            _reject_unbatched(update)
        verdicts: list[Exception | None] = []
        for number, update in enumerate(updates):
            address = _address(update.key)
            row = self._items.get(address)
            held = self._holds(update, row, names, number)
            if row is None or not held:  # PartiQL's UPDATE makes no item, whatever its condition is
                self._reject_unsound(update)
                verdicts.append(WriteRefusedError([_NOTHING.copy() if row is None else _given(row)]))
                if self.bill is not None:
                    self._charge(1, row, row)
                continue
            try:
                new = self._result(update, address, row)
            except _OperandError as error:  # of this update, and by its item: the others have their verdicts (I-16)
                verdicts.append(BatchFaultError(str(error)))
                continue
            if any(name not in row.item for name in update.increase):  # PartiQL counts from nothing to nothing
                verdicts.append(BatchFaultError(f"there is no number to add to: {update.key}"))
                continue
            if self.bill is not None:
                self._charge(1, row, new)
            self._store(address, row, new)
            verdicts.append(None)
        return verdicts

    def _holds(self, write: Write, row: _Row | None, names: _Names | None, number: int) -> bool:
        item = _NOTHING if row is None else row.item
        if names is None:
            return _holds(write.when, item)
        name = name_of(write, names.names, number)
        if not self._records and (names.function, name) not in self._dropped_in:
            return _holds(write.when, item)
        return self._holds_but_dropped(write, item, names.function, name)

    def _holds_but_dropped(self, write: Write, item: Item, function: str, name: str) -> bool:
        whole = check_id(function, name, write)
        ids = ids_of(function, name, write)
        if self._records:
            self.recorded.update(each for member in ids for each in member)
            self.recorded.update([] if whole is None else [whole])
        _holds(write.when, item)  # whatever is dropped, the request must be sound
        if whole is not None and whole in self._drop:
            return True
        for each, member in zip(write.when, ids, strict=True):
            if self._drop.isdisjoint(member) and not _holds((each,), item):
                return False
        return True

    def _result(self, write: Write, address: Address, row: _Row | None) -> _Row | None:
        """The item after the write, or the rejection of the write."""
        if type(write) is Update:
            return self._updated(write, address, row)
        if type(write) is Put:
            item: Item = {"PK": address[0], "SK": address[1]}
            if not TABLE_KEYS.isdisjoint(write.item):
                raise RequestRejectedError("an item to put carries no key of its own")
            flags = self._fill(item, write.item)
            return _sound(_Row(item, flags))
        if type(write) is Delete:
            return None
        if not write.when:
            raise RequestRejectedError("a check needs a condition")
        return row

    def _updated(self, write: Update, address: Address, row: _Row | None) -> _Row | None:
        names = [*write.put, *write.remove, *write.increase, *write.include, *write.exclude, *write.if_new]
        distinct = set(names)
        if not names or len(distinct) != len(names):
            raise RequestRejectedError(f"an update names nothing, or an attribute twice: {sorted(names)}")
        if "PK" in distinct or "SK" in distinct:
            raise RequestRejectedError("an update changes a key")
        if row is None:
            item: Item = {"PK": address[0], "SK": address[1]}
            flags = 0
        else:
            item = row.item.copy()
            flags = row.flags
        flags |= self._fill(item, write.put)
        if write.if_new:
            flags |= self._fill(item, {name: value for name, value in write.if_new.items() if name not in item})
        for name in write.remove:
            item.pop(name, None)
        for name, by in write.increase.items():
            old = item.get(name, 0)
            if type(by) is not int or name in INDEX_KEYS:
                raise RequestRejectedError(f"{name} is no number to add to, or {by!r} none to add")
            if type(old) is not int:
                raise _OperandError(f"{name} is no number")
            item[name] = _number(old + by)
        for name, members in write.include.items():
            held = item.get(name, frozenset())
            if name in INDEX_KEYS:
                raise RequestRejectedError(f"{name} is a key of an index")
            added = _members(members)
            if type(held) is not frozenset:
                raise _OperandError(f"{name} is no set")
            item[name] = held | added
            if len(item[name]) > 8:
                flags |= _IS_LARGE
        for name, members in write.exclude.items():
            taken = _members(members)
            held = item.get(name, _ABSENT)
            if held is _ABSENT:
                continue
            if type(held) is not frozenset:
                raise _OperandError(f"{name} is no set")
            if held <= taken:
                del item[name]
            else:
                item[name] = held - taken
        if row is None and len(item) == 2 and not (write.put or write.if_new or write.increase or write.include):
            return None  # there was nothing to take away from
        return _sound(_Row(item, flags))

    def _fill(self, item: Item, values: Mapping[str, Any]) -> int:
        """Add *values* as they are stored, reject what cannot be; the flags of what was added."""
        flags = 0
        for name, value in values.items():
            kind = type(value)
            if kind is str:
                if not value:
                    self._reject_empty(name)
                elif len(value) > LARGE:
                    flags |= _IS_LARGE
                item[name] = value
            elif kind is int:
                if not -MAX_NUMBER < value < MAX_NUMBER:
                    raise RequestRejectedError(f"{name} has more than 38 digits")
                if name in INDEX_KEYS:
                    raise RequestRejectedError(f"{name} is a key of an index, and a number")
                item[name] = value
            else:
                stored = _storable(value)
                if type(stored) is not str:
                    if name in INDEX_KEYS:
                        raise RequestRejectedError(f"{name} is a key of an index, and no string")
                    if stored is None or stored == b"":
                        self._reject_empty(name)
                    if type(stored) is list or type(stored) is dict:
                        flags |= _IS_NESTED
                    if type(stored) is not bool and stored is not None and _size_of(stored) > LARGE:
                        flags |= _IS_LARGE
                elif not stored:
                    self._reject_empty(name)
                elif len(stored) > LARGE:
                    flags |= _IS_LARGE
                item[name] = stored
        if len(item) > 100:
            flags |= _IS_LARGE
        return flags

    def _reject_empty(self, name: str) -> None:
        if self.strict or name in INDEX_KEYS:
            raise RequestRejectedError(f"{name} is empty")

    def _reject_unsound(self, write: Write) -> None:
        """A request is looked at as a whole before any of its conditions is judged."""
        if type(write) is Put:
            self._result(write, _address(write.key), None)
        elif type(write) is Update:
            self._updated(write, _address(write.key), None)

    def _store(self, address: Address, old: _Row | None, new: _Row | None) -> None:
        if self._is_shared:
            self._items = self._items.copy()
            self._is_shared = False
        if new is not None:
            self._items[address] = new
        elif old is None:
            return
        else:
            del self._items[address]
        self.changes += 1
        if self._views is not None:
            self._pending.append((address, old, new))
        if self._reach:
            self._past = (address, old, self._past)
            self._past_length += 1
            if self._past_length > 2 * self._reach + 64:
                self._forget()

    def _forget(self) -> None:
        """Remember no more changes than an index can be behind."""
        kept: list[tuple[Address, _Row | None]] = []
        past = self._past
        while past is not None and len(kept) < self._reach:
            address, row, past = past
            kept.append((address, row))
        self._past = None
        for address, row in reversed(kept):
            self._past = (address, row, self._past)
        self._past_length = len(kept)

    def _synced(self) -> _Views:
        if self._views is None or len(self._pending) > len(self._items) + 64:
            self._views = _Views.of(self._items)
            self._views_shared = False
        elif self._pending:
            if self._views_shared:
                self._views = self._views.forked()
                self._views_shared = False
            for change in self._pending:
                self._views.apply(*change)
        self._pending.clear()
        return self._views

    def _charge(self, times: int, old: _Row | None, new: _Row | None) -> None:
        bill = self.bill
        if bill is None:
            return
        bill.writes += times * _units(max(_size(old), _size(new)), 1024)
        if old is new:
            return
        for index, (partition, sort, projected) in INDEXES.items():
            del index
            before = _entry_of(old, partition, sort, projected)
            after = _entry_of(new, partition, sort, projected)
            if before == after:
                continue
            if before is None or after is None:
                bill.index_writes += _units(_size_of_item(before or after or {}), 1024)
            elif before[partition] == after[partition] and before[sort] == after[sort]:
                bill.index_writes += _units(max(_size_of_item(before), _size_of_item(after)), 1024)
            else:
                bill.index_writes += _units(_size_of_item(before), 1024) + _units(_size_of_item(after), 1024)

    # --- hooks and faults ---

    def _watched(self, call: TableCall, act: Callable[[], Any]) -> Any:
        if self._before is not None:
            self._before(call)
        fault = None
        if self._faults is not None:
            fault = self._faults(call) if callable(self._faults) else self._faults.get(call.number)
        try:
            call.answer = act() if fault is None else self._faulty(call, fault, act)
        except Exception as error:
            call.error = error
            if self._after is not None:
                self._after(call)
            raise
        if self._after is not None:
            self._after(call)
        return call.answer

    def _faulty(self, call: TableCall, fault: TableFault, act: Callable[[], Any]) -> Any:
        if not call.is_write:
            raise StoreError
        is_batch = call.operation == "batch_update"
        if fault is TableFault.APPLIED:
            with suppress(WriteRefusedError):  # lost as an answer would be
                act()
        if is_batch:
            return self._faulty_batch([each for each in call.writes if isinstance(each, Update)], fault)
        if fault in (TableFault.CONFLICT, TableFault.THROTTLED, TableFault.PARTLY_BUSY):
            raise WriteBusyError
        raise WriteAmbiguousError

    def _faulty_batch(self, updates: list[Update], fault: TableFault) -> list[Exception | None]:
        verdicts: list[Exception | None]
        match fault:
            case TableFault.CONFLICT | TableFault.THROTTLED:
                verdicts = [WriteBusyError() for _ in updates]
            case TableFault.PARTLY_BUSY:
                judged = iter(self._batch_update(updates[::2]))
                verdicts = [WriteBusyError() if number % 2 else next(judged) for number in range(len(updates))]
            case TableFault.PARTLY_APPLIED:
                self._batch_update(updates[: (len(updates) + 1) // 2])
                verdicts = [WriteAmbiguousError() for _ in updates]
            case _:
                verdicts = [WriteAmbiguousError() for _ in updates]
        return verdicts


class _OperandError(RequestRejectedError):
    """What an update adds to is of another type: known only by the item, which may be a poisoned one."""


# --- conditions ---


def holds(when: Condition, item: Mapping[str, Any] | None) -> bool:
    """Whether a condition is true of an item, or of none."""
    return _holds(when, _NOTHING if item is None else item)


def _holds(when: Condition, item: Mapping[str, Any]) -> bool:
    """Every member is looked at, whatever the others say: an unsound one is rejected."""
    held = True
    for each in when:
        if type(each) is Clause:
            if not _clause_holds(each, item):
                held = False
        else:
            held = _one_holds(each, item) and held  # type: ignore[arg-type]  # mypy does not narrow by `type() is`
    return held


def _one_holds(either: AnyOf, item: Mapping[str, Any]) -> bool:
    if not either.clauses:
        raise RequestRejectedError("one of nothing")
    held = False
    for clause in either.clauses:
        if _clause_holds(clause, item):
            held = True
    return held


def _clause_holds(clause: Clause, item: Mapping[str, Any]) -> bool:
    operator = clause.operator
    found = item.get(clause.attribute, _ABSENT)
    if operator == "absent":
        return found is _ABSENT
    if operator == "present":
        return found is not _ABSENT
    wanted = clause.value
    kind = type(wanted)
    if kind is not str and kind is not int:
        wanted = _storable(wanted)
        kind = type(wanted)
    if operator == "=":
        if type(found) is not kind:
            return False
        if kind is list or kind is dict:
            return bool(_canonical(found) == _canonical(wanted))
        return bool(found == wanted)
    if operator == "<>":  # of an attribute that is absent it is true: nothing is equal to it
        return not _clause_holds(Clause(clause.attribute, "=", wanted), item)
    if operator == "contains":
        return _contains(found, wanted)
    if operator == "not contains":
        return not _contains(found, wanted)
    if kind is not int and kind is not str and kind is not bytes:
        raise RequestRejectedError(f"nothing is in order with {wanted!r}")
    if operator == "size <":
        size = _length(found)
        return size is not None and kind is int and bool(size < wanted)
    if type(found) is not kind:
        return False
    if operator == "<=":
        return bool(found <= wanted)
    if operator == ">":
        return bool(found > wanted)
    if operator == "<":
        return bool(found < wanted)
    if operator == ">=":
        return bool(found >= wanted)
    raise RequestRejectedError(f"no such operator: {operator}")


def _contains(found: Any, wanted: Any) -> bool:
    kind = type(found)
    if kind is str or kind is bytes:
        return type(wanted) is kind and bool(wanted in found)
    if kind is frozenset:
        return type(wanted) is str and bool(wanted in found)
    if kind is list:
        return any(_canonical(member) == _canonical(wanted) for member in found)
    return False


def _length(found: Any) -> int | None:
    if type(found) is str:
        return len(found) if found.isascii() else len(found.encode("utf-16-le")) // 2
    return len(found) if type(found) in (bytes, frozenset, list, dict) else None


# --- requests ---


def _address(key: Key) -> Address:
    pk, sk = key.pk, key.sk
    if not pk or not sk or type(pk) is not str or type(sk) is not str:
        raise RequestRejectedError(f"no key: {key}")
    if len(pk) > MAX_SK and (_bytes(pk) > MAX_PK or _bytes(sk) > MAX_SK):
        raise RequestRejectedError(f"too long a key: {key}")
    if len(sk) > MAX_SK // 4 and _bytes(sk) > MAX_SK:
        raise RequestRejectedError(f"too long a key: {key}")
    return pk, sk


def _reject_unbatched(update: Update) -> None:
    """What `DynamoTable` cannot say in a batch."""
    if update.include or update.exclude or update.if_new:
        raise RequestRejectedError("a batched update changes no set and makes no item")
    for each in update.when:
        for clause in each.clauses if isinstance(each, AnyOf) else (each,):
            if clause.operator in ("not contains", "size <", "<>"):
                raise RequestRejectedError(f"no batched update has a condition with {clause.operator}")


def _members(members: Any) -> frozenset[str]:
    stored = _storable(members)
    if type(stored) is not frozenset:
        raise RequestRejectedError(f"no set: {members!r}")
    return stored


def _number(number: int) -> int:
    if not -MAX_NUMBER < number < MAX_NUMBER:
        raise RequestRejectedError("a number has more than 38 digits")
    return number


def _storable(value: Any, depth: int = 1) -> Any:
    """The value as it is stored: of plain types, shared with nobody. Rejects what DynamoDB has no type for."""
    if value is None or type(value) in (bool, bytes):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return _number(int(value))
    if isinstance(value, frozenset):
        if not value or not all(isinstance(member, str) and member for member in value):
            raise RequestRejectedError(f"no set of strings: {value!r}")
        return frozenset(str.__str__(member) for member in value)
    if depth > MAX_DEPTH:
        raise RequestRejectedError("nested too deep")
    if isinstance(value, list):
        return [_storable(member, depth + 1) for member in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {str.__str__(name): _storable(member, depth + 1) for name, member in value.items()}
    raise RequestRejectedError(f"cannot be stored: {type(value).__name__}")


def _frozen(value: Any) -> Any:
    """A copy that shares nothing that can change; any type."""
    if isinstance(value, list):
        return [_frozen(member) for member in value]
    return {name: _frozen(member) for name, member in value.items()} if isinstance(value, dict) else value


_thawed: Final = _frozen


def _given(row: _Row) -> Item:
    """A copy for a caller."""
    if row.flags & _IS_NESTED:
        return {name: _thawed(value) for name, value in row.item.items()}
    return row.item.copy()


def _sound(row: _Row) -> _Row:
    if row.flags & _IS_LARGE and _size(row) > MAX_ITEM:
        raise RequestRejectedError(f"an item of {row.size} bytes")
    return row


def _wired(key: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"S": value} for name, value in key.items()}


def _unwired(after: Mapping[str, Any], *names: str) -> list[str]:
    if set(after) != set(names):
        raise RequestRejectedError(f"no place to go on after: {sorted(after)}")
    return [after[name]["S"] for name in names]


@cache
def _hash(pk: str) -> bytes:
    return blake2b(pk.encode(), digest_size=8).digest()


def _scan_order(address: Address) -> tuple[bytes, str, str]:
    return _hash(address[0]), *address


# --- sizes, units, hashes ---


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _size(row: _Row | None) -> int:
    if row is None:
        return 0
    if row.size < 0:
        row.size = _size_of_item(row.item)
    return row.size


def _size_of_item(item: Mapping[str, Any]) -> int:
    return sum(_bytes(name) + _size_of(value) for name, value in item.items())


def _size_of(value: Any) -> int:
    kind = type(value)
    if kind is str:
        return _bytes(value)
    if kind is int:
        digits = str(abs(value)).rstrip("0")
        return 1 if not digits else 1 + (len(digits) + 1) // 2 + (value < 0)
    if kind is bytes:
        return len(value)
    if kind is frozenset:
        return sum(map(_bytes, value))
    if kind is list:
        return 3 + sum(1 + _size_of(member) for member in value)
    if kind is dict:
        return 3 + sum(1 + _bytes(name) + _size_of(member) for name, member in value.items())
    return 1


def _payload(write: Write) -> int:
    size = _bytes(write.key.pk) + _bytes(write.key.sk)
    if isinstance(write, Put):
        return size + _size_of_item(write.item)
    if isinstance(write, Update):
        return size + sum(map(_size_of_item, (write.put, write.if_new, write.increase, write.include, write.exclude)))
    return size


def _units(size: int, block: int) -> int:
    return max(1, -(-size // block))


def _entry_of(row: _Row | None, partition: str, sort: str, projected: tuple[str, ...]) -> Item | None:
    if row is None or partition not in row.item or sort not in row.item:
        return None
    return {name: row.item[name] for name in ("PK", "SK", partition, sort, *projected) if name in row.item}


def _canonical(value: Any) -> Any:
    """Equal for equal values and only for them; its `repr` is the same in every process."""
    kind = type(value)
    if kind is frozenset:
        return ("set", sorted(value))
    if kind is list:
        return ("list", [_canonical(member) for member in value])
    if kind is dict:
        return ("map", sorted((name, _canonical(member)) for name, member in value.items()))
    return (kind.__name__, value)


def _marked(row: _Row) -> int:
    row.digest = _digest(row.item)
    return row.digest


def _digest(item: Mapping[str, Any]) -> int:
    plain = [(name, value if type(value) in _PLAIN else _canonical(value)) for name, value in item.items()]
    plain.sort()  # by name: no two are the same
    return int.from_bytes(blake2b(repr(plain).encode(), digest_size=16).digest())
