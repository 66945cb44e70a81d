"""
Random sequences of calls, made on `MemoryTable` and on a stand-in for DynamoDB behind `DynamoTable`: every answer, and
in the end every item and every entry of an index, must be the same (T-11).

A sequence is a function of a seed and its number. It touches few keys, which are its own, so that many sequences share
one table. `python -m tests.proof.sequences --help` runs some, and repeats one that failed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from botocore.exceptions import ClientError

from quitclaim.ports import (
    NEW_ITEM,
    AnyOf,
    Check,
    Clause,
    Condition,
    Delete,
    Item,
    Key,
    Operator,
    Put,
    Table,
    Update,
    Write,
    WriteRefusedError,
    present,
)
from quitclaim.store.table import BatchFaultError, DynamoTable, _item
from tests.fakes.stand_ins import ministack, ministack_client, moto
from tests.fakes.tables import OneByOneTable, StandIn
from tests.proof.table import INDEXES, PAGE, MemoryTable, RequestRejectedError, holds
from tests.proof.wire import WireClient

type Backend = Literal["ministack", "moto"]
type Outcome = tuple[Any, ...]
type Look = Callable[[Key], Mapping[str, Any] | None]

REJECTED: Final[Outcome] = ("rejected",)
BLOCKS: Final[Mapping[Backend, int]] = {"ministack": 20, "moto": 5}
"""So many sequences share a table: the stand-ins get slow with what lies in it."""

# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One call of the port; `pages` is a query, or one of an index, to its end."""

    call: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [repr(each) for each in self.arguments] + [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.call}({', '.join(shown)})"


def outcome(table: Table, step: Step) -> Outcome:
    """What a step comes to: `ok` with its answer, `refused` with the items, or `rejected`."""
    act: Callable[..., Any] = getattr(table, step.call)
    try:
        if step.call.startswith("query"):
            return ("ok", list(_pages(act, step)))
        answer = act(*step.arguments, **step.options)
    except WriteRefusedError as refusal:
        return ("refused", refusal.items)
    except (RequestRejectedError, ValueError):
        return REJECTED
    except ClientError as error:
        if not _is_rejection(error):
            raise
        return REJECTED
    if step.call == "batch_update":
        return ("ok", [_verdict(each) for each in answer])
    return ("ok", answer)


def _verdict(error: Exception | None) -> Any:
    if isinstance(error, WriteRefusedError):
        return error.items
    return REJECTED if isinstance(error, BatchFaultError) else error


def _pages(act: Callable[..., Any], step: Step) -> Iterator[tuple[Any, Any]]:
    after = None
    while True:
        page = act(*step.arguments, **step.options, after=after)
        yield page.items, page.after
        after = page.after
        if after is None:
            return


def _is_rejection(error: ClientError) -> bool:
    reasons: Any = error.response.get("CancellationReasons", [])
    codes = {reason.get("Code") for reason in reasons}
    code = error.response["Error"]["Code"]
    return code == "ValidationException" or (code == "TransactionCanceledException" and "ValidationError" in codes)


# --- deviations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deviation:
    """
    Where a stand-in does not do as DynamoDB does, and `MemoryTable` does: shown by the last of *steps*, and never part
    of a sequence.
    """

    backend: Backend
    what: str
    steps: tuple[Step, ...]


_KEY: Final = Key("deviation", "1")
_OTHER: Final = Key("deviation", "2")


def _put(**attributes: Any) -> Step:
    return Step("write", (Put(_KEY, attributes, ()),))


def _update(when: Condition = (), **parts: Any) -> Step:
    return Step("write", (Update(_KEY, when, **parts),))


def _large(count: int) -> Step:
    return Step("transact", (tuple(Put(Key("deviation", f"{n}"), {"a": "x" * 380_000}, ()) for n in range(count)),))


def _transact(*writes: Write) -> Step:
    return Step("transact", (writes,))


def _batch(*updates: Update) -> Step:
    return Step("batch_update", (updates,))


DEVIATIONS: Final = (
    Deviation("ministack", "an attribute may be named twice in an update", (_update(put={"a": 1}, remove=("a",)),)),
    Deviation(
        "ministack",
        "a number has the size 0; it has none, and no comparison with it holds",
        (_put(a=5), _update((Clause("a", "size <", 3),), put={"b": 1})),
    ),
    Deviation(
        "ministack",
        "bytes do not contain their parts",
        (_put(a=b"abc"), _update((Clause("a", "contains", b"b"),), put={"b": 1})),
    ),
    Deviation(
        "ministack",
        "true and false may be compared by order",
        (_put(a=True), _update((Clause("a", "<", True),), put={"b": 1})),
    ),
    Deviation(
        "ministack",
        "an update that only takes away makes the item that is not there",
        (_update(remove=("a",)), Step("get", (_KEY,))),
    ),
    Deviation(
        "ministack",
        "an update may take the empty set away",
        (_put(a=1), _update(put={"b": 1}, exclude={"f": frozenset()})),
    ),
    Deviation(
        "ministack",
        "an update in a transaction may add the empty set",
        (_transact(Update(_KEY, (), include={"f": frozenset()})),),
    ),
    Deviation(
        "ministack",
        "a batch may change an item twice",
        (_put(a=1), _batch(Update(_KEY, (), put={"a": 2}), Update(_KEY, (), put={"a": 3}))),
    ),
    Deviation(
        "ministack",
        "a batched update may put what no index takes",
        (_put(a=1), _batch(Update(_KEY, (), put={"d1": 5}))),
    ),
    Deviation(
        "moto",
        "an order with another type is an error",
        (_put(a="x"), _update((Clause("a", "<", 3),), put={"b": 1})),
    ),
    Deviation(
        "moto",
        "the size of what is not there is an error",
        (_update((Clause("a", "size <", 3),), put={"b": 1}),),
    ),
    Deviation(
        "moto",
        "within a map or list, true is 1",
        (_put(a={"x": 1}), _update((Clause("a", "=", {"x": True}),), put={"b": 1})),
    ),
    Deviation(
        "moto",
        "an item of a transaction may hold the empty set",
        (_transact(Put(_KEY, {"f": frozenset()}, ())),),
    ),
    Deviation(
        "moto",
        "an update that adds to a text is reported before a condition that does not hold",
        (
            _put(a="x"),
            _transact(Update(_KEY, (), increase={"a": 1}), Check(_OTHER, (present("PK"),))),
        ),
    ),
    Deviation("moto", "a key of an index may be a number", (_put(d1=5),)),
    Deviation("moto", "a transaction may be larger than 4 MB", (_large(12),)),
)
"""
Also, of moto: a page that ends where the last item does tells of no further page, so cursors are not compared; it reads
no PartiQL of ours, so there are no batches.
"""


# --- making them -----------------------------------------------------------------------------------------------------

NATURAL: Final[Mapping[str, str]] = {
    "v": "number",
    "n": "number",
    "s": "text",
    "state": "text",
    "t": "text",
    "m": "bytes",
    "k": "truth",
    "f": "set",
    "g": "set",
    "l": "list",
    "o": "map",
}
SIZED: Final = ("g", "l", "s")
"""Attributes that never hold what has no size: see the deviations."""
PAIRS: Final = tuple((partition, sort) for partition, sort, _ in INDEXES.values())
ORDERED: Final[tuple[Operator, ...]] = ("<", "<=", ">", ">=")


class Maker:
    """Makes the steps of one sequence."""

    def __init__(self, seed: str, number: int, backend: Backend, look: Look) -> None:
        self._look = look
        self._random = Random(f"{seed}/{number}")
        self._number = number
        self._prefix = f"{number}#"
        self._is_moto = backend == "moto"
        self._keys = [
            Key(f"{self._prefix}{pk}", sk) for pk, sk in (("a", "X"), ("a", "X#1"), ("a", "Y\u00e9"), ("b", "X"))
        ]

    def steps(self) -> Iterator[Step]:
        """Eight to twelve; one sequence in two hundred has items so large that limits and pages matter."""
        if self._number % 200 == 7 and not self._is_moto:
            yield from self._large()
            return
        for number in range(self._random.choice((8, 8, 9, 10, 12))):
            is_read = number > 2 and self._random.random() < 0.2
            yield self._read_step() if is_read else self._write_step()

    # --- writes ---

    def _write_step(self) -> Step:
        kind = self._random.random()
        if kind < 0.5:
            return Step("write", (self._write(self._key(), checks=False),))
        if kind < 0.8 or self._is_moto:  # moto neither reads our PartiQL nor tells of a condition that failed in it
            return Step("transact", (self._actions(),))
        there = [key for key in self._keys if self._look(key) is not None or self._random.random() < 0.15]
        keys = self._random.sample(there or self._keys, self._random.randint(1, len(there) or 1))
        return Step("batch_update", (tuple(map(self._batched, keys)),))

    def _actions(self) -> tuple[Write, ...]:
        keys = self._random.sample(self._keys, self._random.randint(1, 4))
        if self._random.random() < 0.02:
            keys.append(keys[0])  # two actions on one item
        return tuple(self._write(key, checks=True) for key in keys)

    def _write(self, key: Key, *, checks: bool) -> Write:
        kind = self._random.random()
        if kind < 0.35:
            names = self._random.sample(sorted(NATURAL), self._random.randint(1, 5))
            item = {name: self._value(name) for name in names} | self._indexed() | {"op": self._name()}
            if self._random.random() < 0.02 and not (checks and self._is_moto):
                item["f"] = frozenset()
            return Put(key, item, self._condition(key))
        if kind < 0.45:
            return Delete(key, self._condition(key))
        if kind < 0.6 and checks:
            return Check(key, self._condition(key, least=1))
        return self._change(key)

    def _change(self, key: Key) -> Update:
        put: Item = {"op": self._name()}
        remove: list[str] = []
        increase: dict[str, int] = {}
        include: dict[str, frozenset[str]] = {}
        exclude: dict[str, frozenset[str]] = {}
        if_new: Item = {}
        for name in self._random.sample(sorted(NATURAL), self._random.randint(1, 5)):
            role = self._random.random()
            kind = NATURAL[name] if self._is_moto or self._random.random() < 0.9 else "any"
            if kind == "number" and role < 0.6:
                increase[name] = self._random.choice((1, 1, -3, 40))
            elif kind == "set" and role < 0.4:
                include[name] = self._members()
            elif kind == "set" and role < 0.8:
                exclude[name] = self._members()
            elif role < 0.2:
                remove.append(name)
            elif role < 0.35:
                if_new[name] = self._value(name)
            elif kind == "any" and role < 0.5 and name not in SIZED:
                increase[name] = 1
            else:
                put[name] = self._value(name)
        if self._random.random() < 0.06 and not self._is_moto:
            self._cross(key, [*put, *remove, *increase, *include, *exclude, *if_new], increase, include)
        change = self._random.random()
        if change < 0.4:
            put |= self._indexed()
        elif change < 0.6:
            remove += self._random.choice(PAIRS)
        condition = self._condition(key)
        if self._random.random() < 0.1 and len(put) == 1:  # only where the item is there: see the deviations
            put, condition = {}, (*condition, present("PK"))
        if not (put or remove or increase or include or exclude or if_new):
            remove.append("n")
        return Update(key, condition, put, tuple(remove), increase, include, exclude, if_new)

    def _cross(
        self, key: Key, named: Sequence[str], increase: dict[str, int], include: dict[str, frozenset[str]]
    ) -> None:
        """Add to what is there and of another type: the item alone shows that it cannot be."""
        item = self._look(key) or {}
        for name, kind in NATURAL.items():
            if name in item and name not in named and kind not in ("number", "set"):
                if self._random.random() < 0.5:
                    increase[name] = 1
                else:
                    include[name] = frozenset({"x"})
                return

    def _batched(self, key: Key) -> Update:
        put: Item = {"op": self._name()}
        remove = []
        for name in self._random.sample(("s", "state", "n", "f", "l", "k", "m"), self._random.randint(0, 3)):
            if self._random.random() < 0.3:
                remove.append(name)
            else:
                put[name] = self._value(name, natural=True)
        if self._random.random() < 0.4:
            put |= self._indexed(sound=True)
        counts = type((self._look(key) or {}).get("v")) is int or self._random.random() < 0.05
        increase = {"v": 1} if counts and self._random.random() < 0.7 else {}
        operators: tuple[Operator, ...] = ("=", "absent", "present", "contains", *ORDERED)
        return Update(key, self._condition(key, operators=operators), put, tuple(remove), increase)

    # --- parts ---

    def _condition(self, key: Key, least: int = 0, operators: Sequence[Operator] | None = None) -> Condition:
        if least == 0 and self._random.random() < 0.35:
            return ()
        members: list[Clause | AnyOf] = []
        for _ in range(self._random.randint(max(1, least), 3)):
            if self._random.random() < 0.25:
                count = self._random.randint(1, 3)
                members.append(AnyOf(tuple(self._likely_clause(key, operators) for _ in range(count))))
            else:
                members.append(self._likely_clause(key, operators))
        return tuple(members)

    def _likely_clause(self, key: Key, operators: Sequence[Operator] | None) -> Clause:
        """Mostly a true one: a sequence in which everything is refused shows little."""
        clause = self._clause(key, operators)
        for _ in range(self._random.choice((0, 4, 8))):
            if holds((clause,), self._look(key)):
                break
            clause = self._clause(key, operators)
        return clause

    def _clause(self, key: Key, operators: Sequence[Operator] | None) -> Clause:
        allowed = operators or ("=", "<>", "absent", "present", "contains", "not contains", "size <", *ORDERED)
        if self._random.random() < 0.3:
            return Clause("PK", self._random.choice(("absent", "present", "present")))
        operator = self._random.choice(allowed)
        name = self._random.choice((*sorted(NATURAL), "d1", "a2"))
        kind = NATURAL.get(name, "text")
        if self._is_moto and operator not in ("absent", "present", "="):
            return self._clause_for_moto(key, operator)
        match operator:
            case "absent" | "present":
                return Clause(name, operator)
            case "contains" | "not contains":
                name = self._random.choice(("f", "g", "s", "l", "v"))
                return Clause(name, operator, self._random.choice(("x", "y", "xy")))
            case "size <":
                return Clause(self._random.choice(SIZED), operator, self._random.randint(0, 4))
            case "<" | "<=" | ">" | ">=":
                ordered: tuple[str, ...] = (kind,) if kind in ("number", "text", "bytes") else ("number", "text")
                there = (self._look(key) or {}).get(name)
                if type(there) in (int, str, bytes) and self._random.random() < 0.4:
                    return Clause(name, operator, there)
                if self._random.random() < 0.1:
                    ordered = ("number", "text", "bytes")
                return Clause(name, operator, self._of(self._random.choice(ordered)))
            case _:
                there = (self._look(key) or {}).get(name)
                if there is not None and not self._is_moto and self._random.random() < 0.5:
                    return Clause(name, operator, self._near(there))
                return Clause(name, operator, self._value(name))

    def _near(self, value: Any) -> Any:
        """The value itself, or what must not be taken for it."""
        if self._random.random() < 0.5:
            return value
        match value:
            case bool():
                return int(value)
            case int():
                return bool(value) if value in (0, 1) else str(value)
            case str():
                return value + "x"
            case list() if value and value[0] is True:
                return [1, *value[1:]]
            case {"a": True}:
                return {"a": 1}
            case _:
                return value

    def _clause_for_moto(self, key: Key, operator: Operator) -> Clause:
        """moto fails where an order meets another type, or a size nothing: only of what is there, and alike."""
        item = self._look(key) or {}
        ordered = [name for name, kind in NATURAL.items() if kind == "number" and type(item.get(name)) is int]
        sets = [name for name in ("f", "g") if isinstance(item.get(name), frozenset)]
        if operator in (*ORDERED, "<>") and ordered:
            return Clause(self._random.choice(ordered), operator, self._of("number"))
        if operator == "size <" and sets:
            return Clause(self._random.choice(sets), operator, self._random.randint(0, 4))
        if operator in ("contains", "not contains") and sets:
            return Clause(self._random.choice(sets), operator, self._random.choice(("x", "y", "xy")))
        return Clause("PK", "present" if item else "absent")

    def _value(self, name: str, *, natural: bool = False) -> Any:
        kinds = ("text", "bytes", "set", "list", "map", "empty", "number", "truth", "nothing")[
            : 6 if name in SIZED else 9
        ]
        kind = NATURAL.get(name, "text")
        if not natural and not self._is_moto and self._random.random() < 0.1:
            kind = self._random.choice(kinds)
        return self._of(kind)

    def _of(self, kind: str) -> Any:
        match kind:
            case "number":
                return self._random.choice((0, 1, 2, 3, -1, 41, 10**20))
            case "text":
                return self._random.choice(("x", "xy", "y", "\u00e9", "\uffff", "\U0001f512", "pending"))
            case "bytes":
                return self._random.choice((b"\x00", b"\x01\xff", b"abc"))
            case "truth":
                return self._random.random() < 0.5
            case "set":
                return self._members()
            case "list":
                return self._random.choice(([], ["x"], [1, "x"], [True], [frozenset({"x"})], [["x"], {"y": 1}]))
            case "map":
                maps: tuple[Item, ...] = ({}, {"a": 1}, {"a": {"b": ["x"]}}, {"a": True})
                return self._random.choice(maps[:3] if self._is_moto else maps)  # to moto, 1 in a map is true
            case "nothing":
                return None
            case _:
                return self._random.choice(("", b"", [], {}))

    def _members(self) -> frozenset[str]:
        return frozenset(self._random.sample(("x", "y", "z", "xy", "\u00e9"), self._random.randint(1, 3)))

    def _indexed(self, *, sound: bool = False) -> Item:
        """Keys of an index: often a pair, sometimes half of one, seldom what no index takes."""
        partition, sort = self._random.choice(PAIRS)
        item: Item = {
            partition: self._prefix + self._random.choice("pq"),
            sort: self._random.choice(("1", "2", "3", "2\uffff", "2\u00e9")),
        }
        if self._random.random() < 0.15:
            del item[self._random.choice((partition, sort))]
        if not sound and not self._is_moto and self._random.random() < 0.04:
            item[partition] = self._random.choice(("", 7, True, None, frozenset({"x"})))
        return item

    def _name(self) -> str:
        return self._random.choice(("o1", "o2", "o3"))

    def _key(self) -> Key:
        return self._random.choice(self._keys)

    # --- reads ---

    def _read_step(self) -> Step:
        match self._random.randint(0, 3):
            case 0:
                return Step("get", (self._key(),))
            case 1:
                keys = [self._key() for _ in range(self._random.randint(0, 5))]
                return Step("batch_get", (keys,))
            case 2:
                prefix = self._random.choice(("", "X", "X#", "Y", "Z"))
                limit = self._random.choice((None, 1, 2, 5))
                return Step("query", (f"{self._prefix}{self._random.choice('ab')}", prefix), {"limit": limit})
            case _:
                index = self._random.choice(sorted(INDEXES))
                upto = self._random.choice((None, "1", "2", "2\uffff", "9"))
                options = {"limit": self._random.choice((1, 2, 25)), "upto": upto}
                return Step("query_index", (index, self._prefix + self._random.choice("pq")), options)

    def _large(self) -> list[Step]:
        """Near 400 KB an item, 1 MB a page and 4 MB a transaction."""
        pk = f"{self._prefix}large"
        keys = [Key(pk, f"{number:02}") for number in range(12)]
        kilobytes = (401, 380, 399, 300, 90)[self._number // 200 % 5]
        text = "x" * (kilobytes * 1024)
        half = "y" * 150_000
        return [
            Step("write", (Put(keys[0], {"s": text}, ()),)),
            Step("write", (Put(keys[1], {"s": half}, ()),)),
            Step("write", (Update(keys[1], (), put={"t": half}),)),
            Step("write", (Update(keys[1], (), put={"n": half}),)),
            Step("transact", (tuple(Put(key, {"s": text[: 380 * 1024]}, ()) for key in keys[2:6]),)),
            Step("transact", (tuple(Put(key, {"s": text[: 380 * 1024]}, ()) for key in keys),)),
            Step("query", (pk,), {"limit": self._random.choice((None, 2))}),
            Step("get", (keys[0],)),
        ]


# --- running them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A sequence that came to different ends."""

    backend: Backend
    seed: str
    number: int
    history: str

    def __str__(self) -> str:
        return (
            f"sequence {self.number} of seed {self.seed} on {self.backend}\n{self.history}\n"
            "to repeat it: PYTHONPATH=layers/quitclaim/python:. .venv/bin/python -m tests.proof.sequences "
            f"--backend {self.backend} --seed {self.seed} --only {self.number}"
        )


class Pair:
    """
    A stand-in and the double, empty both.

    An unsound request whose condition does not hold either is rejected by the double, which looks at the request first,
    and may be refused by a stand-in.
    """

    def __init__(self, client: Any, name: str, backend: Backend) -> None:
        self.backend = backend
        self.stand_in = StandIn(client, name)
        kind = OneByOneTable if backend == "moto" else DynamoTable
        self.theirs = kind(client, name)
        self.ours = MemoryTable(strict=False, page_bytes=PAGE)

    def difference(self, steps: Iterable[Step]) -> list[str]:
        """The history up to the first step that ends differently; empty if none does."""
        history = []
        for step in steps:
            theirs, ours = outcome(self.theirs, step), outcome(self.ours, step)
            history.append(f"  {_short(step)}\n    -> {_short(ours)}")
            if ours == REJECTED and theirs[0] == "refused" and _is_unsound(step):
                continue
            if self.backend == "moto" and theirs[0] == "ok" and step.call.startswith("query"):
                theirs, ours = _without_cursors(theirs), _without_cursors(ours)
            if not same(theirs, ours):
                history[-1] += f"\n    !! {self.backend} -> {_short(theirs)}"
                return history
        return []

    def difference_at_rest(self) -> dict[str, str]:
        """By partition, what lies in the tables or in their indexes and is not the same."""
        found: dict[str, str] = {}
        ours: dict[tuple[str, str], Item] = {(item["PK"], item["SK"]): dict(item) for item in self.ours.items()}
        views: list[tuple[dict[str, str], dict[tuple[str, str], Item]]] = [({}, ours)]
        for index, (partition, sort, projected) in INDEXES.items():
            names = ("PK", "SK", partition, sort, *projected)
            entries = {
                key: {name: item[name] for name in names if name in item}
                for key, item in ours.items()
                if partition in item and sort in item
            }
            views.append(({"IndexName": index}, entries))
        for options, mine in views:
            theirs = {(item["PK"], item["SK"]): item for item in self._scanned(**options)}
            for key in sorted(theirs.keys() | mine.keys()):
                if not same(theirs.get(key), mine.get(key)):
                    view = options.get("IndexName", "table")
                    found[key[0]] = f"  {view} {key}: {mine.get(key)}\n    !! {self.backend}: {theirs.get(key)}"
        return found

    def _scanned(self, **options: Any) -> Iterator[Item]:
        while True:
            page = self.stand_in.client.scan(TableName=self.stand_in.name, **options)
            yield from map(_item, page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            options["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _is_unsound(step: Step) -> bool:
    """Whether a write would not be taken whatever lies in the table: with nothing there, and no condition."""
    writes: Sequence[Write] = step.arguments if step.call == "write" else step.arguments[0]
    alone = [replace(each, when=NEW_ITEM if isinstance(each, Check) else ()) for each in writes]
    return outcome(MemoryTable(strict=False), Step("transact", (alone,))) == REJECTED


def _without_cursors(pages: Outcome) -> Outcome:
    """moto looks ahead: its last page never says that there may be more."""
    return ("ok", [item for items, _ in pages[1] for item in items])


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type: True is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def _short(shown: Any) -> str:
    text = str(shown)
    return text if len(text) < 2_000 else f"{text[:300]} … {text[-200:]}"


def run(client: Any, backend: Backend, seed: str, numbers: Sequence[int], name: str) -> Difference | None:
    """Run sequences by their numbers, in blocks that share a table; the first that differs, as short as can be."""
    size = BLOCKS[backend]
    for start in range(0, len(numbers), size):
        block = numbers[start : start + size]
        pair = Pair(client, f"{name}-{start}", backend)
        try:
            for number in block:
                if pair.difference(Maker(seed, number, backend, pair.ours.item).steps()):
                    return _shortest(client, backend, seed, number, name)
            at_rest = pair.difference_at_rest()
        finally:
            pair.stand_in.drop()
        for pk in at_rest:
            return _shortest(client, backend, seed, int(pk.split("#")[0]), name)
    return None


def _shortest(client: Any, backend: Backend, seed: str, number: int, name: str) -> Difference:
    pair = Pair(client, f"{name}-alone", backend)
    steps: list[Step] = []
    try:
        history = pair.difference(_noted(Maker(seed, number, backend, pair.ours.item).steps(), steps))
        history = history or list(pair.difference_at_rest().values())
    finally:
        pair.stand_in.drop()
    again = bool(history) and backend != "moto"  # what is left of a sequence may meet one of moto's deviations
    while again:
        again = False
        for left_out in range(len(steps)):
            fewer = steps[:left_out] + steps[left_out + 1 :]
            shorter = _history(client, backend, fewer, f"{name}-fewer")
            if shorter:
                steps, history, again = fewer, shorter, True
                break
    return Difference(backend, seed, number, "\n".join(history) or "  it was the same when it ran alone")


def _noted(steps: Iterable[Step], notes: list[Step]) -> Iterator[Step]:
    for step in steps:
        notes.append(step)
        yield step


def _history(client: Any, backend: Backend, steps: Sequence[Step], name: str) -> list[str]:
    pair = Pair(client, name, backend)
    try:
        history = pair.difference(steps)
        if history:
            return history
        at_rest = pair.difference_at_rest()
        return [f"  {_short(step)}" for step in steps] + list(at_rest.values()) if at_rest else []
    finally:
        pair.stand_in.drop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run sequences; the last line is what came of it, in JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sequences", description=__doc__)
    parser.add_argument("--backend", choices=("ministack", "moto"), default="ministack")
    parser.add_argument("--boto3", action="store_true", help="speak to MiniStack with boto3, not with our fast client")
    parser.add_argument("--url", help="a MiniStack that runs; else one is started")
    parser.add_argument("--account", default="300000000001")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int, help="the number of one sequence")
    given = parser.parse_args(arguments)
    numbers = range(given.first, given.first + given.count) if given.only is None else [given.only]
    name = f"sequences-{given.first}"
    with ExitStack() as stack:
        if given.backend == "moto":
            client = stack.enter_context(moto())
        else:
            url = given.url or stack.enter_context(ministack(Path(stack.enter_context(TemporaryDirectory()))))
            client = ministack_client(url, given.account) if given.boto3 else WireClient(url, given.account)
            stack.callback(client.close)
        found = run(client, given.backend, given.seed, numbers, name)
    if found is not None:
        print(found)
    print(json.dumps({"sequences": len(numbers), "difference": found is not None}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
