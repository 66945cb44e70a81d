"""The `Table` port, held to the same answers in moto and MiniStack."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError, ReadTimeoutError

from quitclaim.domain.errors import StoreError
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
    less,
    more,
    present,
    seen,
)
from quitclaim.store.table import BatchFaultError, DynamoTable
from tests.fakes.tables import QuickTable, StandIn

A = Key("P#a", "S#1")
B = Key("P#a", "S#2")
C = Key("P#b", "S#1")


def put(table: DynamoTable, key: Key, **attributes: Any) -> None:
    """An item to begin with."""
    table.write(Put(key, attributes, ()))


# --- reads -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_value_comes_back_as_it_was_put(table: DynamoTable) -> None:
    """Text, numbers of 15 digits, bytes, booleans, sets, lists and maps are the same after the table."""
    item = {
        "text": "ä#\uffff",
        "number": 999_999_999_999_999,
        "negative": -1,
        "bytes": b"\x00\xff",
        "yes": True,
        "set": frozenset({"a", "b"}),
        "list": ["a", 1, {"b": b"c"}],
        "map": {"n": 1, "s": "x"},
    }

    put(table, A, **item)

    assert table.get(A) == {"PK": "P#a", "SK": "S#1", **item}


def test_what_is_not_there_is_none(table: DynamoTable) -> None:
    """A missing item is None, alone and among others, in the order that was asked for, asked twice or not."""
    put(table, B, n=2)

    found = table.batch_get([A, B, C, B])

    assert table.get(A) is None
    assert [item and item["n"] for item in found] == [None, 2, None, 2]


def test_a_query_gives_one_partition_in_order(table: DynamoTable) -> None:
    """Items of a partition come by sort key, those of a prefix only, and page by page until there is no more."""
    for key in (Key("P#a", "T#1"), B, A, C):
        put(table, key)

    everything = table.query("P#a")
    first = table.query("P#a", "S#", limit=1)
    rest = table.query("P#a", "S#", after=first.after)

    assert [item["SK"] for item in everything.items] == ["S#1", "S#2", "T#1"]
    assert [item["SK"] for item in (*first.items, *rest.items)] == ["S#1", "S#2"]
    assert everything.after is None
    assert rest.after is None


def test_an_index_lists_what_is_due_up_to_an_instant(table: DynamoTable) -> None:
    """Entries come in order, up to and including the sort value, page by page; an item without them is no entry."""
    put(table, A, d1="k#*#0", d2="0003#a")
    put(table, B, d1="k#*#0", d2="0001#b")
    put(table, C, d1="k#*#0", d2="0005#c")
    put(table, Key("P#c", "S"), d1="k#*#1", d2="0001#d")
    put(table, Key("P#d", "S"), d2="0001#e")

    first = table.query_index("due", "k#*#0", upto="0003#a", limit=1)
    second = table.query_index("due", "k#*#0", upto="0003#a", limit=1, after=first.after)
    everything = table.query_index("due", "k#*#0", limit=10)

    assert [item["PK"] + item["SK"] for item in (*first.items, *second.items)] == ["P#aS#2", "P#aS#1"]
    assert len(everything.items) == 3


def test_an_index_tells_keys_only_but_attention_tells_the_tenant(table: DynamoTable) -> None:
    """`due` and `roster` project keys; `attention` projects the tenant beside them."""
    put(table, A, d1="k#*#0", d2="1", a1="n#0", a2="1", r1="t#p", r2="ready#1", t="tenant", secret="s")

    due, attention, roster = (
        table.query_index(name, partition, limit=1).items[0]
        for name, partition in (("due", "k#*#0"), ("attention", "n#0"), ("roster", "t#p"))
    )

    assert due.keys() == {"PK", "SK", "d1", "d2"}
    assert attention.keys() == {"PK", "SK", "a1", "a2", "t"}
    assert roster.keys() == {"PK", "SK", "r1", "r2"}


# --- conditions ------------------------------------------------------------------------------------------------------

CONDITIONS: list[tuple[str, Condition, bool]] = [
    ("equal", (equals("n", 5),), True),
    ("equal to another", (equals("n", 6),), False),
    ("equal, of another type", (equals("n", "5"),), False),
    ("equal to what is not there", (equals("missing", 5),), False),
    ("unequal", (Clause("n", "<>", 6),), True),
    ("unequal to itself", (Clause("n", "<>", 5),), False),
    ("less", (less("n", 6),), True),
    ("not less", (less("n", 5),), False),
    ("less than, not there", (less("missing", 5),), False),
    ("at most", (at_most("n", 5),), True),
    ("more", (more("n", 4),), True),
    ("not more", (more("n", 5),), False),
    ("at least", (Clause("n", ">=", 5),), True),
    ("there", (present("n"),), True),
    ("not there", (present("missing"),), False),
    ("absent", (absent("missing"),), True),
    ("not absent", (absent("n"),), False),
    ("in the set", (Clause("set", "contains", "a"),), True),
    ("not in the set", (Clause("set", "contains", "z"),), False),
    ("outside the set", (Clause("set", "not contains", "z"),), True),
    ("a small set", (Clause("set", "size <", 3),), True),
    ("no small set", (Clause("set", "size <", 2),), False),
    ("one of two", (any_of(equals("n", 6), absent("missing")),), True),
    ("none of two", (any_of(equals("n", 6), present("missing")),), False),
    ("both", (equals("n", 5), any_of(absent("missing"), more("n", 9))), True),
    ("only one", (equals("n", 5), more("n", 9)), False),
    ("a reserved word", (equals("state", "pending"),), True),
    ("as it was seen", seen(3), True),
    ("not as it was seen", seen(4), False),
    ("seen absent, but there", seen(None), False),
]
EXAMPLE = {"n": 5, "set": frozenset({"a", "b"}), "state": "pending", "v": 3}


@pytest.mark.parametrize(
    ("condition", "holds"), [each[1:] for each in CONDITIONS], ids=[each[0] for each in CONDITIONS]
)
def test_a_condition_decides_the_same_in_every_write(table: DynamoTable, condition: Condition, holds: bool) -> None:
    """Put, update, delete, check: where the condition holds it happens, else it is refused with what is there."""
    writes: tuple[Callable[[Condition], Write], ...] = (
        lambda when: Update(A, when, put={"touched": True}),
        lambda when: Put(A, {**EXAMPLE, "touched": True}, when),
        lambda when: Delete(A, when),
    )

    for write in writes:
        put(table, A, **EXAMPLE)
        if holds:
            table.transact([Check(A, condition), Put(B, {}, ())])
            table.write(write(condition))
            found = table.get(A)
            assert found is None or found["touched"]
        else:
            for attempt in (
                partial(table.write, write(condition)),
                partial(table.transact, [Put(C, {}, ()), write(condition)]),
                partial(table.transact, [Put(C, {}, ()), Check(A, condition)]),
            ):
                with pytest.raises(WriteRefusedError) as refused:
                    attempt()
                assert refused.value.items[-1] == {"PK": "P#a", "SK": "S#1", **EXAMPLE}
            assert table.get(A) == {"PK": "P#a", "SK": "S#1", **EXAMPLE}
            assert table.get(C) is None


@pytest.mark.parametrize("backend", ["ministack"], indirect=True)
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (condition, holds)
        for _, condition, holds in CONDITIONS
        if "not contains" not in str(condition) and "size" not in str(condition)
    ],
    ids=[
        name
        for name, condition, _ in CONDITIONS
        if "not contains" not in str(condition) and "size" not in str(condition)
    ],
)
def test_a_condition_decides_the_same_in_a_batch(table: DynamoTable, condition: Condition, holds: bool) -> None:
    """What a single write decides, a statement of a batch decides too, and tells what is there where it refuses."""
    put(table, A, **EXAMPLE)

    (error,) = table.batch_update([Update(A, condition, put={"touched": True}, increase={"v": 1})])

    if holds:
        assert error is None
        assert table.get(A) == {"PK": "P#a", "SK": "S#1", **EXAMPLE, "touched": True, "v": 4}
    else:
        assert isinstance(error, WriteRefusedError)
        assert error.items == [{"PK": "P#a", "SK": "S#1", **EXAMPLE}]
        assert table.get(A) == {"PK": "P#a", "SK": "S#1", **EXAMPLE}


# --- writes ----------------------------------------------------------------------------------------------------------


def test_an_update_sets_adds_takes_and_removes_in_one(table: DynamoTable) -> None:
    """An update changes what it names and leaves the rest; the last member taken removes the set."""
    put(table, A, n=1, kept="kept", old="x", members=frozenset({"a"}), last=frozenset({"a"}))

    table.write(
        Update(
            A,
            THERE,
            put={"state": "new"},
            remove=("old", "never"),
            increase={"n": 2, "fresh": 5},
            include={"members": frozenset({"b"}), "begun": frozenset({"c"})},
            exclude={"last": frozenset({"a"}), "none": frozenset({"a"})},
        )
    )

    assert table.get(A) == {
        "PK": "P#a",
        "SK": "S#1",
        "n": 3,
        "fresh": 5,
        "kept": "kept",
        "state": "new",
        "members": frozenset({"a", "b"}),
        "begun": frozenset({"c"}),
    }


def test_an_update_without_a_condition_makes_the_item(table: DynamoTable) -> None:
    """What is only for a new item is set once and then kept."""
    upsert = Update(A, (), put={"n": 1}, if_new={"ty": "barrier"})

    table.write(upsert)
    table.write(Update(A, (), put={"n": 2}, if_new={"ty": "another"}))

    assert table.get(A) == {"PK": "P#a", "SK": "S#1", "n": 2, "ty": "barrier"}


def test_a_refused_write_shows_that_nothing_is_there(table: DynamoTable) -> None:
    """Where no item is, the refusal says so, and none is made."""
    with pytest.raises(WriteRefusedError) as refused:
        table.write(Update(A, THERE, put={"n": 1}))

    assert refused.value.items == [{}]
    assert table.get(A) is None


def test_a_transaction_happens_whole_or_not_at_all(table: DynamoTable) -> None:
    """One clause that does not hold undoes the others; the refusal has one entry a write, None where it held."""
    put(table, A, v=1)

    with pytest.raises(WriteRefusedError) as refused:
        table.transact([Update(A, seen(1), increase={"v": 1}), Put(B, {"v": 1}, NEW_ITEM), Check(C, THERE)])

    assert refused.value.items == [None, None, {}]
    assert table.get(A) == {"PK": "P#a", "SK": "S#1", "v": 1}
    assert table.get(B) is None


def test_a_fault_of_ours_rises_as_it_is(table: DynamoTable) -> None:
    """A write that DynamoDB cannot take is no refusal, no conflict and not ambiguous."""
    put(table, A, n="text")

    with pytest.raises(ClientError):
        table.write(Update(A, (), increase={"n": 1}))
    with pytest.raises(TypeError):
        table.write(Put(A, {"n": 1.5}, ()))


@pytest.mark.parametrize("backend", ["ministack"], indirect=True)
def test_a_batch_decides_each_update_by_itself(table: DynamoTable) -> None:
    """Of three updates in one call one is refused, one meets nothing, and the third happens."""
    put(table, A, state="pending", v=1)
    put(table, B, state="pending", v=1, lease="mine", lease_until=9, material="m")

    errors = table.batch_update(
        [
            Update(A, (equals("state", "parked"),), put={"state": "confirmed"}),
            Update(
                B,
                (equals("state", "pending"), any_of(absent("expected"), more("expected_until", 5))),
                put={"state": "confirmed", "settled": 5},
                remove=("lease", "lease_until", "material"),
                increase={"v": 1},
            ),
            Update(C, (present("v"),), put={"state": "confirmed"}),
        ]
    )

    assert [type(error) for error in errors] == [WriteRefusedError, type(None), WriteRefusedError]
    assert table.get(A) == {"PK": "P#a", "SK": "S#1", "state": "pending", "v": 1}
    assert table.get(B) == {"PK": "P#a", "SK": "S#2", "state": "confirmed", "settled": 5, "v": 2}
    assert table.get(C) is None


# --- answers of the service ------------------------------------------------------------------------------------------


class AnsweringClient:
    """A DynamoDB client that raises what it is told, or answers a batch with it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            if isinstance(self._answer, Exception):
                raise self._answer
            return self._answer

        return call


def service_error(code: str, status: int = 400, **more: Any) -> ClientError:
    """As botocore raises it."""
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(response, "Operation")


AMBIGUOUS = [
    service_error("InternalServerError", 500),
    service_error("ServiceUnavailable", 503),
    ReadTimeoutError(endpoint_url="https://dynamodb"),
    EndpointConnectionError(endpoint_url="https://dynamodb"),
]
BUSY = [
    service_error("ThrottlingException"),
    service_error("ProvisionedThroughputExceededException"),
    service_error("TransactionConflictException"),
    service_error("RequestLimitExceeded"),
    service_error("TransactionCanceledException", CancellationReasons=[{"Code": "TransactionConflict"}]),
    service_error("TransactionCanceledException", CancellationReasons=[{"Code": "None"}, {"Code": "ThrottlingError"}]),
]
RISING = [
    service_error("ValidationException"),
    service_error("AccessDeniedException"),
    service_error("ResourceNotFoundException"),
    service_error("TransactionCanceledException", CancellationReasons=[{"Code": "ValidationError"}]),
]


@pytest.mark.parametrize(
    ("error", "means"),
    [(each, WriteAmbiguousError) for each in AMBIGUOUS]
    + [(each, WriteBusyError) for each in BUSY]
    + [(each, ClientError) for each in RISING],
    ids=lambda value: getattr(value, "__name__", str(value))[:60],
)
def test_an_answer_of_the_service_is_one_of_three_or_rises(error: Exception, means: type[Exception]) -> None:
    """Busy where nothing was judged, ambiguous where it may have been applied, and what we did wrong rises."""
    table = DynamoTable(AnsweringClient(error), "any")  # type: ignore[arg-type]

    with pytest.raises(means):
        table.transact([Put(A, {}, ()), Check(B, THERE)])
    if "TransactionCanceled" not in str(error):
        with pytest.raises(means):
            table.write(Put(A, {}, ()))


def test_a_request_that_boto3_does_not_take_rises_as_it_is() -> None:
    """It was never sent and never will be: as an answer that was lost it would be repeated in vain."""
    table = DynamoTable(AnsweringClient(ParamValidationError(report="no key")), "any")  # type: ignore[arg-type]

    for act in (
        lambda: table.write(Put(A, {}, ())),
        lambda: table.transact([Put(A, {}, ())]),
        lambda: table.batch_update([Update(A, THERE, put={"n": 1})]),
        lambda: table.get(A),
    ):
        with pytest.raises(ParamValidationError):
            act()


@pytest.mark.parametrize(
    "update",
    [
        Update(A, THERE, include={"set": frozenset({"x"})}),
        Update(A, THERE, exclude={"set": frozenset({"x"})}),
        Update(A, THERE, put={"n": 1}, if_new={"ty": "t"}),
    ],
    ids=["include", "exclude", "if_new"],
)
def test_what_a_batch_cannot_do_is_not_left_out_of_it(update: Update) -> None:
    """A part of an update that no statement says would be lost without a sign."""
    with pytest.raises(ValueError, match="batched update"):
        DynamoTable(AnsweringClient({"Responses": [{}]}), "any").batch_update([update])  # type: ignore[arg-type]


def test_a_refusal_beside_a_conflict_is_a_refusal() -> None:
    """Once one condition was judged, the write was refused, whatever the others met."""
    reasons = [{"Code": "TransactionConflict"}, {"Code": "ConditionalCheckFailed", "Item": {"v": {"N": "7"}}}]
    error = service_error("TransactionCanceledException", CancellationReasons=reasons)
    table = DynamoTable(AnsweringClient(error), "any")  # type: ignore[arg-type]

    with pytest.raises(WriteRefusedError) as refused:
        table.transact([Check(A, THERE), Check(B, THERE)])

    assert refused.value.items == [None, {"v": 7}]


@pytest.mark.parametrize(
    ("code", "means"),
    [
        ("ConditionalCheckFailed", WriteRefusedError),
        ("ThrottlingError", WriteBusyError),
        ("TransactionConflict", WriteBusyError),
        ("InternalServerError", WriteAmbiguousError),
    ],
)
def test_each_statement_of_a_batch_has_its_own_verdict(code: str, means: type[Exception]) -> None:
    """A statement's error means for its update what the same error means for a write."""
    table = DynamoTable(AnsweringClient({"Responses": [{"Error": {"Code": code}}, {}]}), "any")  # type: ignore[arg-type]

    first, second = table.batch_update([Update(A, THERE, put={"n": 1}), Update(B, THERE, put={"n": 1})])

    assert isinstance(first, means)
    assert second is None


@pytest.mark.parametrize("code", ["ValidationError", "AccessDenied", "ResourceNotFound"])
def test_a_statement_that_is_refused_for_good_is_no_outcome(code: str) -> None:
    """
    A statement that DynamoDB does not take, or that we may not send, is a fault of its own: whoever gets it must tell,
    and the others of the batch have their verdicts (I-16).
    """
    table = DynamoTable(AnsweringClient({"Responses": [{"Error": {"Code": code}}, {}]}), "any")  # type: ignore[arg-type]

    first, second = table.batch_update([Update(A, THERE, put={"n": 1}), Update(B, THERE, put={"n": 1})])

    assert isinstance(first, BatchFaultError)
    assert second is None


def test_a_batch_that_fails_as_a_whole_fails_for_each() -> None:
    """Throttled or unanswered, every update of it is; what is our own fault rises."""
    updates = [Update(A, THERE, put={"n": 1}), Update(B, THERE, put={"n": 1})]

    busy = DynamoTable(AnsweringClient(BUSY[0]), "any").batch_update(updates)  # type: ignore[arg-type]
    unknown = DynamoTable(AnsweringClient(AMBIGUOUS[2]), "any").batch_update(updates)  # type: ignore[arg-type]

    assert [type(each) for each in busy] == [WriteBusyError] * 2
    assert [type(each) for each in unknown] == [WriteAmbiguousError] * 2
    with pytest.raises(ClientError):
        DynamoTable(AnsweringClient(RISING[1]), "any").batch_update(updates)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [*AMBIGUOUS, BUSY[0]], ids=lambda error: str(error)[:60])
def test_a_read_that_is_not_answered_is_a_store_error(error: Exception) -> None:
    """Nothing was changed; the caller may ask again."""
    table = DynamoTable(AnsweringClient(error), "any")  # type: ignore[arg-type]

    for read in (
        lambda: table.get(A),
        lambda: table.batch_get([A]),
        lambda: table.query("P"),
        lambda: table.query_index("due", "k", limit=1),
    ):
        with pytest.raises(StoreError):
            read()


def test_a_batch_read_goes_on_until_everything_is_read() -> None:
    """Keys that the service left unprocessed are asked for again."""
    answers = [
        {
            "Responses": {"any": [{"PK": {"S": A.pk}, "SK": {"S": A.sk}}]},
            "UnprocessedKeys": {"any": {"Keys": [{"PK": {"S": B.pk}, "SK": {"S": B.sk}}]}},
        },
        {"Responses": {"any": [{"PK": {"S": B.pk}, "SK": {"S": B.sk}}]}, "UnprocessedKeys": {}},
    ]

    class Client:
        def batch_get_item(self, **request: Any) -> Any:
            return answers.pop(0)

    found = DynamoTable(Client(), "any").batch_get([A, B])  # type: ignore[arg-type]

    assert [item is not None for item in found] == [True, True]


def test_a_batch_read_that_never_comes_to_its_end_is_a_store_error() -> None:
    """A table that leaves the same keys out again and again does not answer."""
    left_out = {"any": {"Keys": [{"PK": {"S": A.pk}, "SK": {"S": A.sk}}]}}
    answer = {"Responses": {"any": []}, "UnprocessedKeys": left_out}

    with pytest.raises(StoreError):
        DynamoTable(AnsweringClient(answer), "any").batch_get([A])  # type: ignore[arg-type]


def test_the_stand_in_has_the_template_s_keys_and_indexes(stand_in: StandIn) -> None:
    """The table of these tests is the template's: nothing of it is described twice."""
    told = stand_in.client.describe_table(TableName=stand_in.name)["Table"]

    assert [each["AttributeName"] for each in told["KeySchema"]] == ["PK", "SK"]
    assert sorted(each["IndexName"] for each in told["GlobalSecondaryIndexes"]) == ["attention", "due", "roster"]


@pytest.mark.parametrize("backend", ["moto"], indirect=True)
def test_quick_reads_are_what_moto_answers(stand_in: StandIn, table: DynamoTable) -> None:
    """The flow tests' short cut to moto's items gives the same items, order, projections and pages."""
    for number in (3, 1, 2):
        put(
            table, Key("P#a", f"S#{number}"), d1="k#*#0", d2=f"000{number}#x", a1="n#0", a2="1", t="t", n=number, b=b"x"
        )
    put(table, C, members=frozenset({"a"}), nested=[{"b": b"c", "n": 1}])
    quick = QuickTable(stand_in.client, stand_in.name)

    assert quick.get(C) == table.get(C)
    assert quick.batch_get([A, C, Key("P#z", "S")]) == table.batch_get([A, C, Key("P#z", "S")])
    assert quick.query("P#a", "S#").items == table.query("P#a", "S#").items
    for index, partition in (("due", "k#*#0"), ("attention", "n#0"), ("roster", "none")):
        assert listed(quick.query_index(index, partition, limit=9)) == listed(
            table.query_index(index, partition, limit=9)
        )
    first, second = (each.query_index("due", "k#*#0", upto="0002#x", limit=1) for each in (quick, table))
    assert first.items == second.items
    rest = [
        each.query_index("due", "k#*#0", upto="0002#x", limit=9, after=page.after)
        for each, page in ((quick, first), (table, second))
    ]
    assert rest[0].items == rest[1].items


def listed(page: Page) -> list[Item]:
    """Items of one sort value have no order of their own."""
    return sorted(page.items, key=str)
