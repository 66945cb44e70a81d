"""T-11: `MemoryTable` does as DynamoDB does, by its stand-ins; and what it does on purpose, it does exactly so."""

import copy
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, cast

import pytest

from quitclaim.domain.errors import MovedError, StoreError
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.tokens import Grant
from quitclaim.ports import (
    NEW_ITEM,
    THERE,
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
    absent,
    any_of,
    at_most,
    equals,
    more,
    present,
)
from quitclaim.store.revocations import RevocationStore
from quitclaim.store.ring import RingTable
from quitclaim.store.table import BatchFaultError
from tests.fakes.clock import MovableClock
from tests.fakes.ids import SeededIds
from tests.fakes.stand_ins import ministack, ministack_client, moto
from tests.fakes.tables import StandIn
from tests.infra import deployed
from tests.proof import table as table_module
from tests.proof.clauses import CHECK, ClauseId
from tests.proof.report import NIGHTLY, SEED, note
from tests.proof.sequences import DEVIATIONS, Deviation, Maker, Pair, Step, outcome, run, same
from tests.proof.table import (
    INDEXES,
    PAGE,
    MemoryTable,
    RequestRejectedError,
    TableCall,
    TableFault,
    holds,
)
from tests.proof.wire import WireClient
from tests.store.rows import ROWS, Row
from tests.store.stage import Stage

SEQUENCES = 20_000 if NIGHTLY else 2_000
PART = 250
WITH_BOTO3 = 60
ON_MOTO = 2_000 if NIGHTLY else 200
MOTO_PART = 50

A = Key("P#a", "1")
B = Key("P#a", "2")
C = Key("P#b", "1")


@pytest.fixture(scope="session")
def ministack_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One MiniStack for this process of the run."""
    with ministack(tmp_path_factory.mktemp("double")) as url:
        yield url


# --- the same as the stand-ins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, SEQUENCES, PART))
def test_random_calls_end_as_they_do_at_ministack(ministack_url: str, first: int) -> None:
    """Every answer, the items in the end and the entries of all indexes are the same."""
    client = WireClient(ministack_url, f"{310_000_000_000 + first}")

    difference = run(client, "ministack", SEED, range(first, first + PART), f"double-{first}")

    client.close()
    note("T-11 double and MiniStack", PART, 0 if difference is None else 1)
    assert difference is None, str(difference)


def test_random_calls_end_as_they_do_at_ministack_through_boto3(ministack_url: str) -> None:
    """What the fast client of the other sequences leaves out changes nothing."""
    client = ministack_client(ministack_url, "320000000000")

    difference = run(client, "ministack", f"{SEED} boto3", range(WITH_BOTO3), "double-boto3")

    client.close()
    note("T-11 double and MiniStack", WITH_BOTO3, 0 if difference is None else 1)
    assert difference is None, str(difference)


@pytest.mark.parametrize("first", range(0, ON_MOTO, MOTO_PART))
def test_random_calls_end_as_they_do_in_moto(first: int) -> None:
    """The same in moto, in one thread, without what moto cannot do."""
    with moto() as client:
        difference = run(client, "moto", SEED, range(first, first + MOTO_PART), f"double-moto-{first}")

    note("T-11 double and moto", MOTO_PART, 0 if difference is None else 1)
    assert difference is None, str(difference)


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda each: f"{each.backend}: {each.what}")
def test_a_stand_in_still_deviates_where_the_list_says_so(deviation: Deviation, request: pytest.FixtureRequest) -> None:
    """A deviation that is gone leaves the list, and its case joins the sequences."""
    if deviation.backend == "moto":
        with moto() as client:
            assert _deviates(Pair(client, "deviation", "moto"), deviation)
    else:
        client = WireClient(request.getfixturevalue("ministack_url"), "330000000000")
        pair = Pair(client, "deviation", "ministack")
        try:
            assert _deviates(pair, deviation)
        finally:
            pair.stand_in.drop()
            client.close()


def _deviates(pair: Pair, deviation: Deviation) -> bool:
    *before, last = deviation.steps
    for step in before:
        outcome(pair.theirs, step), outcome(pair.ours, step)
    try:
        theirs = outcome(pair.theirs, last)
    except TypeError:  # moto's own, from within
        return True
    return not same(theirs, outcome(pair.ours, last))


BROKEN = {
    "unequal to what is absent is false": ('if operator == "<>":', 'if operator == "<>" and found is not _ABSENT:'),
    "true is 1": ("if type(found) is not kind:", "if found is _ABSENT:"),
    "any of is all of": (
        "if _clause_holds(clause, item):",
        "if all(_clause_holds(each, item) for each in either.clauses):",
    ),
    "at most is less": ("return bool(found <= wanted)", "return bool(found < wanted)"),
    "nothing is absent": (
        "item.get(clause.attribute, _ABSENT)",
        "_ABSENT if item.get(clause.attribute) is None else 1",
    ),
    "an empty set stays": ("if held <= taken:", "if False:"),
    "what is there is new": ("write.if_new.items() if name not in item", "write.if_new.items()"),
    "numbers begin with 1": ("old = item.get(name, 0)", "old = item.get(name, 1)"),
    "a put keeps the rest": (
        "return _sound(_Row(item, flags))",
        "return _sound(_Row((row.item if row else {}) | item, flags))",
    ),
    "a batch makes items": ("if row is None or not held:", "if not held:"),
    "nothing there is no refusal": ("refused[number] = _NOTHING.copy() if", "refused[number] = None if"),
    "what is refused is applied": ("raise WriteRefusedError(refused)", "fault = fault"),
    "an operand comes before a refusal": ("if refused is not None:", "if refused is not None and fault is None:"),
    "upto leaves the last out": ("if upto is not None and sort > upto:", "if upto is not None and sort >= upto:"),
    "half a key is an entry": (
        "if partition in item and sort in item:",
        "if (item := {sort: '.', **item}).get(partition):",
    ),
    "ties go by sort key": ("(item[sort], *address)", "(item[sort], *address[::-1])"),
    "attention projects nothing": ('"a2", ("t",))', '"a2", ())'),
    "a full page has no end": ("if len(found) == limit or", "if len(found) == (limit or 0) + 1 or"),
    "a number is a key of an index": (
        "INDEX_KEYS: Final = frozenset(",
        "INDEX_KEYS: Final = frozenset() and frozenset(",
    ),
    "500 KB an item": ("MAX_ITEM: Final = 400", "MAX_ITEM: Final = 500"),
    "40 MB a transaction": ("MAX_PAYLOAD: Final = 4 *", "MAX_PAYLOAD: Final = 40 *"),
}
"""A rule, how it is written in the double, and how it would be broken."""


@pytest.mark.parametrize("rule", BROKEN)
def test_the_sequences_show_a_double_with_a_broken_rule(rule: str) -> None:
    """A test of the tests: the sequences of one run of CI tell the double from one that breaks a rule."""
    broken = _broken(*BROKEN[rule])

    for number in range(2_000):
        ours, theirs = MemoryTable(strict=False, page_bytes=PAGE), broken(strict=False, page_bytes=PAGE)
        for step in Maker(SEED, number, "ministack", ours.item).steps():
            if not same(outcome(ours, step), _outcome_or_fall(theirs, step)):
                return
        if ours.digest() != theirs.digest():
            return
    pytest.fail("no sequence shows it")


def _broken(sound: str, broken: str) -> Callable[..., Any]:
    source = Path(table_module.__file__).read_text()
    assert sound in source
    module = ModuleType("broken_table")
    sys.modules[module.__name__] = module
    exec(compile(source.replace(sound, broken), "broken_table", "exec"), module.__dict__)  # noqa: S102 - our own code
    for shared in ("RequestRejectedError", "_OperandError"):
        setattr(module, shared, getattr(table_module, shared))
    made: Callable[..., Any] = module.MemoryTable
    return made


def _outcome_or_fall(table: Any, step: Step) -> Any:
    try:
        return outcome(table, step)
    except (KeyError, TypeError, AttributeError) as fall:
        return fall


class InMemory:
    """`StandIn` of the double, for the examples of the store's tests."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def everything(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        return {(item["PK"], item["SK"]): dict(item) for item in self._table.items()}

    def alter(self, key: Key, *, put: Mapping[str, Any] | None = None, remove: tuple[str, ...] = ()) -> None:
        self._table.write(Update(key, (), put=put or {}, remove=tuple(remove)))

    def erase(self, key: Key) -> None:
        self._table.erase(key)

    def plant(self, key: Key, **attributes: Any) -> None:
        self._table.plant(key, {"v": 1, "op": "planted", **attributes})

    def put_back(self, before: Mapping[Any, Any], now: Mapping[Any, Any]) -> None:
        for pk, sk in now.keys() - before.keys():
            self.erase(Key(pk, sk))
        for (pk, sk), item in before.items():
            self._table.plant(Key(pk, sk), item)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_of_the_table_of_writes_is_refused_as_in_the_stand_ins(row: Row) -> None:
    """The store's own examples, each condition broken alone: the same refusals, by the same names."""
    table = MemoryTable(page_bytes=PAGE)
    stage = Stage(cast("StandIn", InMemory(table)), table)
    act = row.arrange(stage)
    arranged = stage.stand_in.everything()

    for refusal in row.refusals:
        refusal.spoil(stage)
        spoilt = stage.stand_in.everything()
        with pytest.raises(MovedError) as moved:
            act()
        assert list(moved.value.seen) == [refusal.write], refusal.clause
        assert stage.stand_in.everything() == spoilt, refusal.clause
        stage.stand_in.put_back(arranged, spoilt)

    act()


def test_the_indexes_are_those_of_the_template() -> None:
    """Names, keys and projections are written in template.yaml; the double has no other."""
    (table,) = (each for each in deployed.source()["Resources"].values() if each["Type"] == "AWS::DynamoDB::Table")

    declared = {
        index["IndexName"]: (
            *(key["AttributeName"] for key in index["KeySchema"]),
            tuple(index["Projection"].get("NonKeyAttributes", ())),
        )
        for index in table["Properties"]["GlobalSecondaryIndexes"]
    }

    assert declared == dict(INDEXES)
    assert {key["AttributeName"] for key in table["Properties"]["KeySchema"]} == {"PK", "SK"}


# --- what DynamoDB would not take ------------------------------------------------------------------------------------


class Shade(StrEnum):
    DARK = "dark"


def _rejected() -> dict[str, Callable[[MemoryTable], object]]:
    def write(write: Write) -> Callable[[MemoryTable], object]:
        return lambda table: table.write(write)

    def transact(*writes: Write) -> Callable[[MemoryTable], object]:
        return lambda table: table.transact(writes)

    def batch(*updates: Update) -> Callable[[MemoryTable], object]:
        return lambda table: table.batch_update(updates)

    put = Put(A, {"a": 1}, ())
    return {
        "nothing as a value": write(Put(A, {"a": None}, ())),
        "an empty text": write(Put(A, {"a": ""}, ())),
        "empty bytes": write(Update(A, (), put={"a": b""})),
        "an empty set": write(Put(A, {"a": frozenset()}, ())),
        "an empty set to add": write(Update(A, (), include={"a": frozenset()})),
        "an empty set to take away": write(Update(A, (), put={"b": 1}, exclude={"a": frozenset()})),
        "an empty set to compare with": write(Delete(A, (equals("a", frozenset()),))),
        "a set that can change": write(Put(A, {"a": {"x"}}, ())),
        "a fraction": write(Put(A, {"a": 1.5}, ())),
        "39 digits": write(Put(A, {"a": 10**38}, ())),
        "39 digits by adding": transact(Put(B, {"a": 1}, ()), Update(A, (), increase={"a": 10**38})),
        "an empty partition key": write(Put(Key("", "1"), {"a": 1}, ())),
        "an empty sort key": write(Put(Key("P", ""), {"a": 1}, ())),
        "too long a sort key": write(Put(Key("P", "x" * 1025), {"a": 1}, ())),
        "too long a partition key": write(Put(Key("é" * 1025, "x"), {"a": 1}, ())),
        "a key within the item": write(Put(A, {"PK": "P#b", "a": 1}, ())),
        "a key in an update": write(Update(A, (), put={"SK": "3"})),
        "a number as a key of an index": write(Put(A, {"d1": 5}, ())),
        "an empty key of an index": write(Put(A, {"d2": ""}, ())),
        "a set as a key of an index": write(Update(A, (), include={"a1": frozenset({"x"})})),
        "adding to a key of an index": write(Update(A, (), increase={"r1": 1})),
        "an attribute set and removed": write(Update(A, (), put={"a": 1}, remove=("a",))),
        "an attribute removed twice": write(Update(A, (), put={"b": 1}, remove=("a", "a"))),
        "an update of nothing": write(Update(A, ())),
        "an order of truths": write(Delete(A, (more("a", True),))),
        "one of no clauses": write(Delete(A, (any_of(),))),
        "a check alone": write(Check(A, THERE)),
        "a check without a condition": transact(put, Check(B, ())),
        "no actions": transact(),
        "101 actions": transact(*(Put(Key("P", str(n)), {"a": 1}, ()) for n in range(101))),
        "two actions on one item": transact(put, Check(A, NEW_ITEM)),
        "an item of more than 400 KB": write(Put(A, {"a": "x" * 409_600}, ())),
        "an item that grows over 400 KB": write(Update(C, (), put={"b": "x" * 209_600})),
        "4 MB in one transaction": transact(*(Put(Key("P", str(n)), {"a": "x" * 390_000}, ()) for n in range(11))),
        "26 updates in a batch": batch(*(Update(Key("P", str(n)), (), put={"a": 1}) for n in range(26))),
        "two updates of one item in a batch": batch(Update(A, (), put={"a": 1}), Update(A, (), put={"b": 1})),
        "a set in a batch": batch(Update(C, (), include={"f": frozenset({"x"})})),
        "what cannot be stored, in a batch": batch(Update(C, (), put={"n": None})),
        "a batch that asks for a size": batch(Update(C, (Clause("a", "size <", 3),), put={"b": 1})),
        "a read of no key": lambda table: table.get(Key("P", "")),
        "a read of 101 keys": lambda table: table.batch_get([Key("P", str(n)) for n in range(101)]),
        "a query of nothing": lambda table: table.query("P", limit=0),
        "a query of no index": lambda table: table.query_index("next", "x", limit=1),
        "a query that goes on elsewhere": lambda table: table.query("P", after={"PK": {"S": "Q"}, "SK": {"S": "1"}}),
    }


@pytest.mark.parametrize("what", _rejected())
def test_what_dynamodb_would_not_take_ends_the_test(what: str) -> None:
    """It is no refusal, no busy table and no lost answer, so that no flow can take it for one; nothing is written."""
    table = MemoryTable()
    table.write(Put(C, {"a": "x" * 205_000}, ()))
    before = table.digest()

    with pytest.raises(RequestRejectedError):
        _rejected()[what](table)

    assert table.digest() == before


def test_what_dynamodb_would_not_take_of_a_batch_is_its_own_verdict() -> None:
    """An update that adds to what is no number is a fault of that update; the others of the batch are judged."""
    table = MemoryTable()
    table.write(Put(A, {"n": "text"}, ()))
    table.write(Put(B, {"a": 1}, ()))
    table.write(Put(C, {"n": 1}, ()))

    text, nothing, number = table.batch_update([Update(key, (), increase={"n": 1}) for key in (A, B, C)])

    assert isinstance(text, BatchFaultError)
    assert isinstance(nothing, BatchFaultError)
    assert number is None
    assert (table.get(C) or {})["n"] == 2


def test_a_request_is_looked_at_before_its_conditions() -> None:
    """An unsound write is rejected though its condition, or that of another action, does not hold."""
    table = MemoryTable()

    acts: tuple[Callable[[], None], ...] = (
        lambda: table.write(Put(A, {"a": None}, THERE)),
        lambda: table.write(Update(A, THERE, put={"d1": 5})),
        lambda: table.transact([Check(B, THERE), Put(A, {"a": frozenset()}, THERE)]),
        lambda: table.write(Delete(A, (present("PK"), equals("a", frozenset())))),
    )

    for act in acts:
        with pytest.raises(RequestRejectedError):
            act()


def test_a_refusal_comes_before_an_operand_of_the_wrong_type() -> None:
    """Whether a number can be added to is known by the item alone, like a condition; the condition is told."""
    table = MemoryTable()
    table.write(Put(A, {"a": "x"}, ()))

    with pytest.raises(WriteRefusedError) as refused:
        table.transact([Update(A, (), increase={"a": 1}), Check(B, THERE)])
    with pytest.raises(RequestRejectedError):
        table.transact([Update(A, (), increase={"a": 1}), Check(B, NEW_ITEM)])

    assert refused.value.items == [None, {}]


def _named(value: Any) -> str:
    """The same in every process: two workers of a run must agree on the names of its tests."""
    return str(value).replace("{'y', 'x'}", "{'x', 'y'}")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (equals("n", 1), True),
        (equals("n", True), False),
        (equals("k", True), True),
        (equals("k", 1), False),
        (equals("s", Shade.DARK), True),
        (equals("f", frozenset({"y", "x"})), True),
        (equals("o", {"a": [1]}), True),
        (equals("o", {"a": [True]}), False),
        (equals("gone", 1), False),
        (Clause("gone", "<>", 1), True),
        (Clause("n", "<>", "1"), True),
        (Clause("n", "<>", 1), False),
        (absent("gone"), True),
        (absent("n"), False),
        (present("n"), True),
        (more("n", 0), True),
        (Clause("n", ">", "0"), False),
        (more("gone", 0), False),
        (at_most("gone", 9), False),
        (Clause("s", "<", "e"), True),
        (Clause("s", "<", "dark"), False),
        (Clause("b", "<=", b"\x01"), True),
        (Clause("n", ">=", 1), True),
        (Clause("s", "contains", "ar"), True),
        (Clause("f", "contains", "x"), True),
        (Clause("f", "contains", "xy"), False),
        (Clause("l", "contains", 2), True),
        (Clause("l", "contains", "2"), False),
        (Clause("b", "contains", b"\x00"), True),
        (Clause("gone", "contains", "x"), False),
        (Clause("gone", "not contains", "x"), True),
        (Clause("f", "not contains", "x"), False),
        (Clause("f", "size <", 3), True),
        (Clause("f", "size <", 2), False),
        (Clause("n", "size <", 99), False),
        (Clause("gone", "size <", 99), False),
        (Clause("e", "size <", 3), True),
        (any_of(absent("n"), equals("n", 1)), True),
        (any_of(absent("n"), equals("n", 2)), False),
    ],
    ids=_named,
)
def test_a_clause_is_true_of_an_item_as_in_dynamodb(condition: Clause, expected: bool) -> None:
    """Types count, and what is absent is equal to nothing, in no order with anything, and contains nothing."""
    table = MemoryTable()
    item = {"n": 1, "k": True, "s": "dark", "f": frozenset({"x", "y"}), "l": [1, 2], "o": {"a": [1]}, "b": b"\x00"}
    table.write(Put(A, {**item, "e": "é\U0001f512"[1:]}, ()))

    assert holds((condition,), table.item(A)) is expected


# --- updates, refusals, pages ----------------------------------------------------------------------------------------


def test_an_update_does_all_its_parts_on_the_item_as_it_was() -> None:
    """It sets, removes, counts from 0, adds to and takes from sets; an empty set is no attribute."""
    table = MemoryTable()
    table.write(Put(A, {"n": 1, "f": frozenset({"x"}), "g": frozenset({"x"}), "gone": 1, "kept": 1}, ()))

    table.write(
        Update(
            A,
            THERE,
            put={"s": Shade.DARK},
            remove=("gone", "never"),
            increase={"n": 2, "new": -1},
            include={"f": frozenset({"y"}), "h": frozenset({"z"})},
            exclude={"g": frozenset({"x", "y"}), "never there": frozenset({"x"})},
            if_new={"ty": "t", "kept": 2},
        )
    )

    assert table.get(A) == {
        "PK": "P#a",
        "SK": "1",
        "n": 3,
        "new": -1,
        "kept": 1,
        "s": "dark",
        "f": frozenset({"x", "y"}),
        "h": frozenset({"z"}),
        "ty": "t",
    }
    stored = table.get(A)
    assert stored is not None
    assert type(stored["s"]) is str


def test_an_update_makes_the_item_only_where_it_adds_something() -> None:
    """An update with nothing but removals has nothing to do where nothing is."""
    table = MemoryTable()

    table.write(Update(A, (), remove=("a",), exclude={"f": frozenset({"x"})}))
    table.write(Update(B, NEW_ITEM, if_new={"ty": "t"}))

    assert table.get(A) is None
    assert table.get(B) == {"PK": "P#a", "SK": "2", "ty": "t"}


def test_a_refusal_tells_of_each_write_what_the_service_would() -> None:
    """None where the condition held, {} where nothing is there, else the item; and nothing is written."""
    table = MemoryTable()
    table.write(Put(A, {"v": 1}, ()))
    before = table.digest()

    with pytest.raises(WriteRefusedError) as refused:
        table.transact([Put(C, {"v": 1}, NEW_ITEM), Update(A, (equals("v", 2),), put={"v": 3}), Check(B, THERE)])
    with pytest.raises(WriteRefusedError) as alone:
        table.write(Delete(B, THERE))
    verdicts = table.batch_update([Update(A, (equals("v", 2),), put={"v": 3}), Update(B, (), put={"v": 1})])

    assert refused.value.items == [None, {"PK": "P#a", "SK": "1", "v": 1}, {}]
    assert alone.value.items == [{}]
    assert [each.items for each in verdicts if isinstance(each, WriteRefusedError)] == [
        [{"PK": "P#a", "SK": "1", "v": 1}],
        [{}],
    ]
    assert table.digest() == before


def test_nobody_holds_what_is_stored() -> None:
    """What was put or given can be changed without the table; that a caller changed it shows nowhere."""
    table = MemoryTable()
    nested = {"a": ["x"]}
    item: Item = {"o": nested, "l": [nested], "n": 1}
    table.write(Put(A, item, ()))
    nested["a"].append("y")
    item["n"] = 2

    for found in (
        table.get(A),
        table.batch_get([A])[0],
        table.query("P#a").items[0],
        _refused(table, A),
    ):
        assert found is not None
        assert found == {"PK": "P#a", "SK": "1", "o": {"a": ["x"]}, "l": [{"a": ["x"]}], "n": 1}
        found["o"]["a"].append("z")
        found["l"][0]["a"] = 5
        found["n"] = 9

    for shown in table.items():
        with pytest.raises(TypeError):
            shown["n"] = 3  # type: ignore[index]


def _refused(table: MemoryTable, key: Key) -> Item | None:
    with pytest.raises(WriteRefusedError) as refused:
        table.write(Delete(key, NEW_ITEM))
    return refused.value.items[0]


def test_a_query_ends_a_page_at_its_limit_or_its_bytes() -> None:
    """A page that is full tells where to go on, though nothing may follow."""
    table = MemoryTable()
    for number in range(4):
        table.write(Put(Key("P", f"a{number}"), {"s": "x" * 100}, ()))
    table.write(Put(Key("P", "b"), {"s": "x"}, ()))

    by_limit = _pages(lambda after: table.query("P", "a", limit=2, after=after))
    table.page_bytes = 250
    by_bytes = _pages(lambda after: table.query("P", "a", after=after))
    table.page_bytes = 1
    one_each = _pages(lambda after: table.query("P", after=after))

    assert by_limit == [["a0", "a1"], ["a2", "a3"], []]
    assert by_bytes == [["a0", "a1"], ["a2", "a3"]]
    assert one_each == [["a0"], ["a1"], ["a2"], ["a3"], ["b"], []]


def test_an_index_is_sparse_ordered_and_projected() -> None:
    """Entries by sort value, then by key; only of items that have both keys; with what the template projects."""
    table = MemoryTable()
    for sk, sort in (("3", "b"), ("1", "b"), ("2", "a"), ("4", "c")):
        table.write(Put(Key("P", sk), {"a1": "n#0", "a2": sort, "t": f"t{sk}", "d1": "n#0", "x": 1}, ()))

    pages = _pages(lambda after: table.query_index("attention", "n#0", upto="b", limit=2, after=after))
    page = table.query_index("attention", "n#0", limit=1)

    assert pages == [["2", "1"], ["3"]]
    assert page.items == ({"PK": "P", "SK": "2", "a1": "n#0", "a2": "a", "t": "t2"},)
    assert page.after == {"PK": {"S": "P"}, "SK": {"S": "2"}, "a1": {"S": "n#0"}, "a2": {"S": "a"}}
    assert table.query_index("due", "n#0", limit=9).items == ()


def test_a_scan_goes_over_everything_in_pages() -> None:
    """Each item once; a page ends by its bytes, and goes on after an item though it is gone."""
    table = MemoryTable(page_bytes=250)
    for number in range(9):
        table.write(Put(Key(f"P{number % 3}", str(number)), {"s": "x" * 100}, ()))

    first = table.scan()
    table.erase(Key(first.items[-1]["PK"], first.items[-1]["SK"]))
    rest = _pages(lambda after: table.scan(after=after or first.after))

    assert len(first.items) == 2
    assert sorted(sk for page in [[item["SK"] for item in first.items], *rest] for sk in page) == list("012345678")
    assert TableCall(1, "scan").depends_on(TableCall(2, "write", writes=(Delete(A, ()),)))


def _pages(query: Callable[[Any], Page]) -> list[list[str]]:
    found, after = [], None
    while True:
        page = query(after)
        found.append([item["SK"] for item in page.items])
        after = page.after
        if after is None:
            return found


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_going_back_is_as_if_nothing_had_happened(seed: int) -> None:
    """Whatever is written, kept and gone back to, in any order: content, queries and indexes are those of the state."""
    random = Random(seed)
    table = MemoryTable(strict=False, lag=lambda _: 5)
    kept: list[tuple[Any, list[Any]]] = [(table.snapshot(), _seen(table, seed))]
    for number in range(60):
        for step in list(Maker(str(seed), seed, "ministack", table.item).steps())[: random.randint(1, 4)]:
            outcome(table, step)
        if random.random() < 0.3:
            _seen(table, seed)
        if random.random() < 0.4:
            kept.append((table.snapshot(), _seen(table, seed)))
        if number % 3 == 2:
            snapshot, seen = random.choice(kept)
            table.restore(snapshot)
            if random.random() < 0.7:
                assert _seen(table, seed) == seen


def _seen(table: MemoryTable, number: int) -> list[Any]:
    behind, table.lag = table.lag, 0
    now = [table.query_index(index, f"{number}#{p}", limit=99) for index in INDEXES for p in "pq"]
    table.lag = behind
    then = [table.query_index(index, f"{number}#{p}", limit=99) for index in INDEXES for p in "pq"]
    queries = [table.query(f"{number}#{p}", prefix) for p in "ab" for prefix in ("", "X")]
    items = sorted((dict(item) for item in table.items()), key=lambda item: (item["PK"], item["SK"]))
    return copy.deepcopy([table.digest(), items, now, then, queries])


@pytest.mark.parametrize("seed", range(10))
def test_a_query_sees_the_index_as_it_was_some_changes_ago(seed: int) -> None:
    """With a lag of n it answers what it would have answered before the last n changes of items."""
    random = Random(seed)
    table = MemoryTable(lag=8)
    fresh = MemoryTable()
    states = [fresh.snapshot()]
    for number in range(40):
        key = Key("P", random.choice("12345"))
        write: Write = random.choice(
            (
                Put(key, {"d1": "k#0", "d2": random.choice("abc"), "a1": "n", "a2": "x", "t": str(number)}, ()),
                Put(key, {"d1": "k#1", "d2": random.choice("abc"), "n": number}, ()),
                Update(key, (), put={"t": str(number)}, remove=random.choice((("d1", "d2"), ()))),
            )
        )
        table.write(write)
        fresh.write(write)
        states.append(fresh.snapshot())
        for behind in (0, 1, 3, 8):
            table.lag = behind
            now = fresh.snapshot()
            fresh.restore(states[max(0, len(states) - 1 - behind)])
            for query in (("due", "k#0"), ("due", "k#1"), ("attention", "n")):
                assert table.query_index(*query, limit=3) == fresh.query_index(*query, limit=3)
            fresh.restore(now)


def test_a_lag_can_be_told_by_the_query() -> None:
    """One index lags and another does not; a read of items never does."""
    table = MemoryTable(lag=lambda call: 1 if call.index == "due" else 0)
    table.write(Put(A, {"d1": "k", "d2": "1", "r1": "k", "r2": "1"}, ()))

    assert table.query_index("due", "k", limit=1).items == ()
    assert len(table.query_index("roster", "k", limit=1).items) == 1
    assert table.get(A) is not None


def test_a_digest_tells_states_apart_and_nothing_else() -> None:
    """The way to a state does not matter; types, members and keys do."""
    one, other = MemoryTable(), MemoryTable()
    one.transact([Put(A, {"f": frozenset({"x", "y"}), "n": 1}, ()), Put(B, {"s": "1"}, ())])
    other.write(Put(B, {"s": "2", "o": {"a": 1}}, ()))
    other.write(Put(A, {"n": 0}, ()))
    other.write(Update(A, (), include={"f": frozenset({"y"})}, increase={"n": 1}))
    other.write(Update(A, (), include={"f": frozenset({"x"})}))
    other.write(Put(B, {"s": "1"}, ()))

    assert one.digest() == other.digest()
    assert len(one.digest()) == 32
    for changed in ({"n": True}, {"n": 2}, {"n": "1"}, {"m": 1}):
        before = other.digest()
        state = other.snapshot()
        other.write(Put(Key("P", "new"), changed, ()))
        differs = other.digest()
        other.restore(state)
        other.write(Put(Key("P", "new"), {"n": 1}, ()))
        assert len({before, differs, other.digest()}) == 3
        other.restore(state)
    other.write(Update(B, (), put={"op": "x"}))
    assert one.digest() != other.digest()
    assert one.digest(without=frozenset({"op"})) == other.digest(without=frozenset({"op"}))


def test_a_test_can_look_and_touch_around_the_port() -> None:
    """Planting, altering, erasing and expiring ask for no rule and count as no call."""
    table = MemoryTable()
    table.plant(A, {"d1": 5, "empty": frozenset(), "ttl": 100})
    table.plant(B, {"d1": "k", "d2": "1", "ttl": 101})
    table.alter(A, {"d1": None}, remove=("empty",))
    assert table.item(A) == {"PK": "P#a", "SK": "1", "d1": None, "ttl": 100}
    assert len(table.query_index("due", "k", limit=9).items) == 1

    assert table.expire(100) == 1
    assert table.item(A) is None
    table.erase(B)

    assert len(table) == 0
    assert table.query_index("due", "k", limit=9).items == ()
    assert table.calls["write"] == 0


# --- faults and hooks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "applied"),
    [
        (TableFault.CONFLICT, WriteBusyError, False),
        (TableFault.THROTTLED, WriteBusyError, False),
        (TableFault.LOST, WriteAmbiguousError, False),
        (TableFault.APPLIED, WriteAmbiguousError, True),
        (TableFault.PARTLY_APPLIED, WriteAmbiguousError, False),
        (TableFault.PARTLY_BUSY, WriteBusyError, False),
    ],
)
@pytest.mark.parametrize("kind", ["write", "transact"])
def test_a_fault_meets_the_call_of_its_number(
    kind: str, fault: TableFault, error: type[Exception], applied: bool
) -> None:
    """The second call goes wrong, and only it; whether it took effect is the fault's."""
    table = MemoryTable()
    table.watch(faults={2: fault})
    act: Callable[[Write], None] = table.write if kind == "write" else lambda write: table.transact([write])

    act(Put(A, {"n": 1}, NEW_ITEM))
    with pytest.raises(error):
        act(Put(B, {"n": 1}, NEW_ITEM))
    act(Put(C, {"n": 1}, NEW_ITEM))

    assert (table.get(B) is not None) is applied
    assert len(table) == 2 + applied


def test_a_refusal_is_lost_like_any_answer() -> None:
    """A write that was judged and refused is ambiguous too, if its answer is lost."""
    table = MemoryTable()
    table.watch(faults=lambda call: TableFault.APPLIED if call.is_write else None)

    with pytest.raises(WriteAmbiguousError):
        table.write(Put(A, {"n": 1}, THERE))

    assert table.get(A) is None


@pytest.mark.parametrize(
    ("fault", "verdicts", "applied"),
    [
        (TableFault.THROTTLED, ["busy", "busy", "busy"], []),
        (TableFault.LOST, ["ambiguous"] * 3, []),
        (TableFault.APPLIED, ["ambiguous"] * 3, ["1", "2", "3"]),
        (TableFault.PARTLY_APPLIED, ["ambiguous"] * 3, ["1", "2"]),
        (TableFault.PARTLY_BUSY, ["done", "busy", "done"], ["1", "3"]),
    ],
)
def test_a_batch_can_go_wrong_in_part(fault: TableFault, verdicts: list[str], applied: list[str]) -> None:
    """A batch is no transaction: each update has its own fate, and a lost answer may hide any of them."""
    table = MemoryTable()
    keys = [Key("P", number) for number in "123"]
    for key in keys:
        table.write(Put(key, {"n": 0}, ()))
    table.watch(faults=lambda _: fault)

    found = table.batch_update([Update(key, THERE, put={"n": 1}) for key in keys])

    names = {WriteBusyError: "busy", WriteAmbiguousError: "ambiguous"}
    assert ["done" if each is None else names[type(each)] for each in found] == verdicts
    assert [str(item["SK"]) for item in table.items() if item["n"] == 1] == applied


@pytest.mark.parametrize("fault", list(TableFault))
def test_a_read_that_goes_wrong_is_a_store_error(fault: TableFault) -> None:
    """Whatever it is: nothing was changed, and nothing is known."""
    table = MemoryTable()
    table.watch(faults=lambda _: fault)

    for read in (
        lambda: table.get(A),
        lambda: table.batch_get([A]),
        lambda: table.query("P"),
        lambda: table.query_index("due", "k", limit=1),
    ):
        with pytest.raises(StoreError):
            read()


def test_hooks_stand_round_each_call() -> None:
    """Before and after in order, with what the call touches and what came of it; what a hook raises ends the call."""
    table = MemoryTable()
    told: list[str] = []
    calls: list[TableCall] = []

    def after(call: TableCall) -> None:
        calls.append(call)
        told.append(f"after {call.number}")

    table.watch(before=lambda call: told.append(f"before {call}"), after=after)
    table.transact([Put(A, {"n": 1}, ()), Check(B, NEW_ITEM)])
    with pytest.raises(WriteRefusedError):
        table.write(Delete(B, THERE))
    table.get(A)
    table.query("P#a", "1")

    assert told[:3] == ["before 1 transact: put P#a 1, check P#a 2", "after 1", "before 2 write: delete P#a 2"]
    assert calls[0].changed == {A}
    assert calls[0].touched == {A, B}
    assert isinstance(calls[1].error, WriteRefusedError)
    assert calls[2].answer == {"PK": "P#a", "SK": "1", "n": 1}
    assert calls[0].depends_on(calls[2])
    assert calls[0].depends_on(calls[3])
    assert not calls[1].depends_on(calls[3])
    assert not calls[2].depends_on(calls[3])

    class GoneError(BaseException):
        pass

    def die(call: TableCall) -> None:
        raise GoneError

    table.watch(before=die)
    with pytest.raises(GoneError):
        table.write(Put(C, {"n": 1}, ()))
    assert table.item(C) is None
    table.watch(after=die)
    with pytest.raises(GoneError):
        table.write(Put(C, {"n": 1}, ()))
    assert table.item(C) is not None


def test_an_index_query_depends_on_what_may_move_an_entry() -> None:
    """A write of other attributes, or a check, leaves an index as it is."""
    query = TableCall(1, "index", index="due", partition="k")

    def call(write: Write) -> TableCall:
        return TableCall(2, "write", writes=(write,))

    assert call(Update(A, (), put={"d2": "1"})).depends_on(query)
    assert call(Delete(A, ())).depends_on(query)
    assert query.depends_on(call(Put(A, {}, ())))
    assert not call(Update(A, (), put={"n": 1})).depends_on(query)
    assert not call(Check(A, THERE)).depends_on(query)


# --- units -----------------------------------------------------------------------------------------------------------


def test_units_are_counted_by_the_rule_of_the_price_list() -> None:
    """A transaction bills 2 an action, an entry of an index 1 to add or remove and 2 to move, all by started KB."""
    table = MemoryTable(metered=True)
    bill = table.bill
    assert bill is not None

    def spent(act: Callable[[], object]) -> tuple[float, int, int]:
        before = (bill.reads, bill.writes, bill.index_writes)
        act()
        return bill.reads - before[0], bill.writes - before[1], bill.index_writes - before[2]

    due = {"d1": "k", "d2": "1"}
    assert spent(lambda: table.write(Put(A, {"n": 1}, ()))) == (0, 1, 0)
    assert spent(lambda: table.write(Put(A, {"n": 1, **due}, ()))) == (0, 1, 1)
    assert spent(lambda: table.write(Update(A, (), put={"n": 2}))) == (0, 1, 0)
    assert spent(lambda: table.write(Update(A, (), put={"d2": "2"}))) == (0, 1, 2)
    assert spent(lambda: table.write(Update(A, (), remove=("d1", "d2")))) == (0, 1, 1)
    assert spent(lambda: table.write(Put(B, {"s": "x" * 1500, **due, "r1": "k", "r2": "1"}, ()))) == (0, 2, 2)
    assert spent(lambda: table.transact([Delete(B, ()), Check(A, THERE), Put(C, {"n": 1}, ())])) == (0, 8, 2)
    assert spent(lambda: table.batch_get([A, B, C, A])) == (3, 0, 0)
    assert spent(lambda: table.get(A)) == (1, 0, 0)
    assert spent(lambda: table.query("P#a")) == (1, 0, 0)
    assert spent(lambda: table.query_index("due", "k", limit=9)) == (0.5, 0, 0)
    assert spent(lambda: _refused(table, A)) == (0, 1, 0)
    assert bill.total == sum((bill.reads, bill.writes, bill.index_writes))
    assert (table.calls["write"], table.calls["transact"], table.calls["get"]) == (7, 1, 1)


# --- clauses by name -------------------------------------------------------------------------------------------------


def test_a_dropped_clause_is_taken_for_true() -> None:
    """A key of the ring is put once; without the clause that says so, a second time. Other clauses stay."""
    table = MemoryTable()
    ring = RingTable(table, MovableClock(), SeededIds())
    item = RingItem("use", "kid", b"wrapped", created=1, active_from=1)
    table.record_clauses()
    assert ring.add(item)
    assert not ring.add(item)
    assert table.recorded == {("ring.RingTable.add", "ring", "PK", "absent", 0)}

    table.drop = {("ring.RingTable.add", "ring", "v", "=", 0), ("ring.RingTable.read", "ring", "PK", "absent", 0)}
    assert not ring.add(item)
    table.drop = table.recorded
    assert ring.add(item)
    table.drop = set()
    assert not ring.add(item)


def test_one_clause_of_several_can_be_dropped() -> None:
    """Of a condition the others still hold; of an `any_of` one that is true makes it true; a check can go whole."""
    table = MemoryTable()
    stage = Stage(cast("StandIn", InMemory(table)), table)
    stage.installed()
    grant = stage.grant()
    record = "tokens.TokenStore.record"
    stage.tokens.record(grant, "first", stage.now)
    stale = replace(grant, generation=grant.generation + 1)

    def recorded(drop: set[ClauseId], grant: Grant = grant) -> bool:
        before = table.snapshot()
        table.drop = drop
        try:
            stage.tokens.record(grant, "second", stage.now)
        except MovedError:
            return False
        finally:
            table.restore(before)
            table.drop = set()
        return True

    assert not recorded(set())
    assert recorded({(record, "grant", "lease_until", "absent", 0)})
    assert recorded({(record, "grant", "lease_until", "<=", 0)})
    assert not recorded({(record, "grant", "attempts", "absent", 0)})
    assert not recorded({(record, "grant", "lease_until", "<=", 0)}, stale)
    assert recorded({(record, "grant", "lease_until", "<=", 0), (record, "grant", "generation", "=", 0)}, stale)


def test_a_whole_check_can_be_dropped() -> None:
    """Then the transaction is not held to that item at all."""
    table = MemoryTable()
    stage = Stage(cast("StandIn", InMemory(table)), table)
    (row,) = (row for row in ROWS if row.name == "1 start again")
    act = row.arrange(stage)
    table.record_clauses()
    (refusal,) = [each for each in row.refusals if each.write == "owner"][:1]
    refusal.spoil(stage)

    with pytest.raises(MovedError):
        act()
    (check,) = (clause for clause in table.recorded if clause[1] == "owner" and clause[3] == CHECK)
    table.drop = {check}

    act()


def test_an_update_of_a_batch_is_named_by_what_it_sets() -> None:
    """Its clauses can be dropped too; that the item must be there is PartiQL's own."""
    table = MemoryTable()
    revocations = RevocationStore(table, MovableClock(), SeededIds())
    update = Update(A, (equals("state", "pending"), equals("lease", "x")), put={"state": "confirmed", "op": "x"})
    other = Update(B, (equals("lease", "x"),), put={"attempts": 1, "next": 5, "d1": "k", "d2": "5", "op": "x"})
    for key in (A, B):
        table.plant(key, {"state": "pending", "lease": "other"})
    table.record_clauses()

    assert revocations.settle_all([update, other]) == [False, False]
    function = "revocations.RevocationStore.settle_all"
    assert table.recorded == {
        (function, "to confirmed", "state", "=", 0),
        (function, "to confirmed", "lease", "=", 0),
        (function, "attempts+next", "lease", "=", 0),
    }

    table.drop = {(function, "to confirmed", "lease", "=", 0), (function, "attempts+next", "lease", "=", 0)}
    assert revocations.settle_all([update, other]) == [True, True]
    table.erase(B)
    assert revocations.settle_all([other]) == [False]


def test_every_row_names_its_clauses(subtests: pytest.Subtests) -> None:
    """No clause of a row goes without a name, and a name is a row's function and one of its writes."""
    for row in ROWS:
        table = MemoryTable()
        stage = Stage(cast("StandIn", InMemory(table)), table)
        act = row.arrange(stage)
        table.record_clauses()
        act()
        with subtests.test(row.name):
            assert all(function.count(".") == 2 for function, *_ in table.recorded)
            assert all(name and "#" not in name for _, name, *_ in table.recorded)


# --- speed -----------------------------------------------------------------------------------------------------------


def test_it_is_fast_enough_to_search_with(capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth of what it does on an idle core (250,000 updates and 48,000 transactions of 6 a second) is the least."""
    table = MemoryTable()
    keys = [Key(f"P#{number % 5}", str(number)) for number in range(40)]
    item: Item = {"ty": "t", "v": 1, "state": "ready", "generation": 3, "at": 1, "d1": "k", "d2": "1"}
    for key in keys:
        table.write(Put(key, item, NEW_ITEM))
    free = any_of(absent("lease_until"), at_most("lease_until", 9))
    condition: Condition = (equals("state", "ready"), equals("generation", 3), free)
    updates = [Update(key, condition, put={"op": "o", "lease_until": 5}, increase={"v": 1}) for key in keys]
    transaction: list[Write] = [
        *updates[:3],
        Check(keys[4], THERE),
        Put(keys[5], item, THERE),
        Put(keys[6], item, THERE),
    ]

    def all_updates() -> None:
        for update in updates:
            table.write(update)

    singles = _rate(all_updates, len(updates), 250)
    sixes = _rate(lambda: table.transact(transaction), 1, 2_000)

    with capsys.disabled():
        print(f"\ndouble: {singles:,.0f} updates/s, {sixes:,.0f} transactions of 6/s")
    assert singles > 25_000
    assert sixes > 4_800


def _rate(act: Callable[[], object], worth: int, times: int) -> float:
    rates = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(times):
            act()
        rates.append(worth * times / (time.process_time() - began))
    return max(rates)
