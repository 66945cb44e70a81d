"""Tables that count, that go wrong on purpose, and the table of the template in a stand-in for DynamoDB."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.dynamodb.models import dynamodb_backends

from quitclaim.ports import (
    Item,
    Key,
    Page,
    Put,
    Table,
    Update,
    Write,
    WriteAmbiguousError,
    WriteBusyError,
    WriteRefusedError,
)
from quitclaim.store.table import DynamoTable, _item
from tests.infra import deployed

type Everything = Mapping[tuple[str, str], Mapping[str, Any]]

DEFINED = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")


def definition() -> dict[str, Any]:
    """What of the template's table a stand-in needs: keys and indexes. No stream: moto copies it for every write."""
    (table,) = (each for each in deployed.source()["Resources"].values() if each["Type"] == "AWS::DynamoDB::Table")
    return {name: table["Properties"][name] for name in DEFINED}


class StandIn:
    """The template's table in moto or MiniStack, with a way around the port for a test's own look and touch."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        client.create_table(TableName=name, **definition())

    def drop(self) -> None:
        self.client.delete_table(TableName=self.name)

    def everything(self) -> Everything:
        """Every item by key, as it lies in the table (sets in order)."""
        return {
            (item["PK"]["S"], item["SK"]["S"]): {name: _in_order(value) for name, value in item.items()}
            for item in self._items()
        }

    def _items(self) -> Iterator[dict[str, Any]]:
        for page in self.client.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True):
            yield from page["Items"]

    def alter(self, key: Key, *, put: Mapping[str, Any] | None = None, remove: Sequence[str] = ()) -> None:
        """Change attributes of an item behind everybody's back: `v` and `op` stay, nothing is asked."""
        DynamoTable(self.client, self.name).write(Update(key, (), put=put or {}, remove=tuple(remove)))

    def put_back(self, before: Everything, now: Everything) -> None:
        """Make the table what `everything` said *before*; *now* is what it says."""
        for key in now.keys() - before.keys():
            self.erase(Key(*key))
        for key, item in before.items():
            if now.get(key) != item:
                self.client.put_item(TableName=self.name, Item=item)

    def erase(self, key: Key) -> None:
        """Take an item away."""
        self.client.delete_item(TableName=self.name, Key={"PK": {"S": key.pk}, "SK": {"S": key.sk}})

    def plant(self, key: Key, **attributes: Any) -> None:
        """Put an item that is in the way."""
        DynamoTable(self.client, self.name).write(Put(key, {"v": 1, "op": "planted", **attributes}, ()))


class MotoStandIn(StandIn):
    """moto's scan takes longer than everything else in a test: its items are looked at where they lie."""

    def _items(self) -> Iterator[dict[str, Any]]:
        for item in _items_in_moto(self.name):
            yield {name: _plain(value) for name, value in item.attrs.items()}


def _items_in_moto(name: str) -> Iterator[Any]:
    (account,) = dynamodb_backends.values()
    (backend,) = (each for each in account.values() if name in each.tables)
    return iter(backend.tables[name].all_items())


def _plain(value: Any) -> dict[str, Any]:
    """moto's value as the wire has it."""
    match value.type:
        case "L":
            return {"L": [_plain(member) for member in value.value]}
        case "M":
            return {"M": {name: _plain(member) for name, member in value.value.items()}}
        case "B":
            return {"B": value.value if isinstance(value.value, bytes) else base64.b64decode(value.value)}
        case kind:
            return {kind: value.value}


def _in_order(value: dict[str, Any]) -> dict[str, Any]:
    return {kind: sorted(members) if kind == "SS" else members for kind, members in value.items()}


class OneByOneTable(DynamoTable):
    """
    `DynamoTable` for moto, which neither reads our PartiQL nor reports a statement's failed condition: a batch is sent
    as single writes.
    """

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        return [self._error_of(each) for each in updates]

    def _error_of(self, update: Update) -> Exception | None:
        try:
            self.write(update)
        except (WriteRefusedError, WriteBusyError, WriteAmbiguousError) as error:
            return error
        return None


class QuickTable(OneByOneTable):
    """
    `OneByOneTable` whose reads look where moto keeps its items: asking moto takes as long as a write, and a flow reads
    far more than it writes. Writes and their conditions are moto's.
    """

    def get(self, key: Key) -> Item | None:
        return self.batch_get([key])[0]

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        found = {Key(item["PK"], item["SK"]): item for item in self._where("PK", {key.pk for key in keys})}
        return [found.get(key) for key in keys]

    def query(
        self, pk: str, prefix: str = "", *, limit: int | None = None, after: Mapping[str, Any] | None = None
    ) -> Page:
        found = [item for item in self._where("PK", {pk}) if item["SK"].startswith(prefix)]
        return _page(found, "SK", limit, after)

    def query_index(
        self, index: str, partition: str, *, upto: str | None = None, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        names = (f"{index[0]}1", f"{index[0]}2")
        shown = ("PK", "SK", *names, *(("t",) if index == "attention" else ()))
        found = [
            {name: item[name] for name in shown if name in item}
            for item in self._where(names[0], {partition})
            if upto is None or item[names[1]] <= upto
        ]
        return _page(found, names[1], limit, after)

    def _where(self, attribute: str, values: set[str]) -> list[Item]:
        return [
            _item({name: _plain(value) for name, value in item.attrs.items()})
            for item in _items_in_moto(self._name)
            if attribute in item.attrs and item.attrs[attribute].value in values
        ]


def _page(found: list[Item], sort: str, limit: int | None, after: Mapping[str, Any] | None) -> Page:
    """In order, from where the last page ended."""

    def place(item: Mapping[str, Any]) -> tuple[str, str, str]:
        return (item[sort], item["PK"], item["SK"])

    rest = sorted((item for item in found if after is None or place(item) > place(after)), key=place)
    page = rest[:limit]
    return Page(tuple(page), page[-1] if len(page) < len(rest) else None)


@dataclass
class Spent:
    """What some calls cost: one entry for each call, and how many actions each write had."""

    reads: list[str] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return len(self.reads) + len(self.writes)


class MeteredTable:
    """Passes everything on and counts it."""

    def __init__(self, inner: Table) -> None:
        self.inner = inner
        self._meters: list[Spent] = []

    @contextmanager
    def metered(self) -> Iterator[Spent]:
        """Counts what happens in this block."""
        spent = Spent()
        self._meters.append(spent)
        try:
            yield spent
        finally:
            self._meters.remove(spent)

    def get(self, key: Key) -> Item | None:
        self._read("get")
        return self.inner.get(key)

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        self._read("batch")
        return self.inner.batch_get(keys)

    def query(
        self, pk: str, prefix: str = "", *, limit: int | None = None, after: Mapping[str, Any] | None = None
    ) -> Page:
        self._read("query")
        return self.inner.query(pk, prefix, limit=limit, after=after)

    def query_index(
        self, index: str, partition: str, *, upto: str | None = None, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        self._read("index")
        return self.inner.query_index(index, partition, upto=upto, limit=limit, after=after)

    def write(self, write: Write) -> None:
        self._wrote(1)
        self.inner.write(write)

    def transact(self, writes: Sequence[Write]) -> None:
        self._wrote(len(writes))
        self.inner.transact(writes)

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        self._wrote(len(updates))
        return self.inner.batch_update(updates)

    def _read(self, what: str) -> None:
        for meter in self._meters:
            meter.reads.append(what)

    def _wrote(self, actions: int) -> None:
        for meter in self._meters:
            meter.writes.append(actions)


class WorkerKilledError(BaseException):
    """The process is gone: no `except Exception` of ours runs."""


type Fault = Callable[[Callable[[], Any]], Any]
"""Gets the write and does with it what it likes."""


class FaultyTable(MeteredTable):
    """The next writes meet the *faults* given, in order; None lets one through."""

    def __init__(self, inner: Table) -> None:
        super().__init__(inner)
        self.faults: list[Fault | None] = []
        self.seen = 0

    def write(self, write: Write) -> None:
        self._met(lambda: super(FaultyTable, self).write(write))

    def transact(self, writes: Sequence[Write]) -> None:
        self._met(lambda: super(FaultyTable, self).transact(writes))

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        try:
            answer: list[Exception | None] = self._met(lambda: super(FaultyTable, self).batch_update(updates))
        except (WriteBusyError, WriteAmbiguousError) as error:
            return [error] * len(updates)
        return answer

    def _met(self, apply: Callable[[], Any]) -> Any:
        self.seen += 1
        fault = self.faults.pop(0) if self.faults else None
        return apply() if fault is None else fault(apply)


def applied_then_ambiguous(apply: Callable[[], Any]) -> Any:
    """The write happened, and its answer was lost."""
    apply()
    raise WriteAmbiguousError


def ambiguous(apply: Callable[[], Any]) -> Any:
    """The write was lost on its way."""
    del apply
    raise WriteAmbiguousError


def busy(apply: Callable[[], Any]) -> Any:
    """A conflict or throttling: nothing was judged."""
    del apply
    raise WriteBusyError


def killed_before(apply: Callable[[], Any]) -> Any:
    """The worker dies before the write."""
    del apply
    raise WorkerKilledError


def killed_after(apply: Callable[[], Any]) -> Any:
    """The worker dies once the write has happened."""
    apply()
    raise WorkerKilledError
