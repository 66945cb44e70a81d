"""What a function is fed from: filters, batches, and what becomes of a batch that failed, as Lambda has it."""

import asyncio
import base64
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.local.sources import Queue, Stream, failed_items, is_wanted
from infra.local.template import Source, read_template
from infra.local.workers import Outcome, Verdict

ROOT = Path(__file__).parents[3]
PATTERN = {"eventName": ["INSERT"], "dynamodb": {"Keys": {"SK": {"S": [{"prefix": "E#"}]}}}}
STREAM = Source("publish", "Table", True, 3, True, patterns=(PATTERN,), retries=2, bisects=True)
QUEUE = Source("deliver", "Queue", False, 10, True)


@dataclass
class FakePool:
    """Answers each batch as a script says; remembers what it was given."""

    answers: list[Any]
    batches: list[list[Any]] = field(default_factory=list)

    async def invoke(self, payload: bytes, *, request_id: str) -> Outcome:
        assert request_id
        records = json.loads(payload)["Records"]
        self.batches.append(records)
        answer = self.answers.pop(0) if self.answers else {"batchItemFailures": []}
        if answer is RuntimeError:
            return Outcome(Verdict.RAISED, b"{}")
        return Outcome(Verdict.RETURNED, json.dumps(answer).encode())


def record(number: int, name: str = "INSERT", sk: str = "E#1") -> dict[str, Any]:
    """As the streams API has it."""
    told = {
        "Keys": {"PK": {"S": "O#t#o"}, "SK": {"S": sk}},
        "NewImage": {"use": {"B": b"sealed"}},
        "SequenceNumber": str(number),
        "ApproximateCreationDateTime": datetime(2026, 11, 30, tzinfo=UTC),
    }
    return {"eventID": str(number), "eventName": name, "eventSource": "aws:dynamodb", "dynamodb": told}


class FakeStreams:
    """One shard."""

    def __init__(self, *reads: list[dict[str, Any]]) -> None:
        self.reads = list(reads)
        self.asked: list[str] = []

    def describe_stream(self, *, StreamArn: str) -> Any:
        return {"StreamDescription": {"Shards": [{"ShardId": "shard"}]}}

    def get_shard_iterator(self, *, StreamArn: str, ShardId: str, ShardIteratorType: str) -> Any:
        self.asked.append(ShardIteratorType)
        return {"ShardIterator": "0"}

    def get_records(self, *, ShardIterator: str, Limit: int) -> Any:
        return {"Records": self.reads.pop(0) if self.reads else [], "NextShardIterator": "1"}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        return None

    monkeypatch.setattr("infra.local.sources.asyncio.sleep", at_once)


def numbers(pool: FakePool) -> list[list[str]]:
    """Of the batches."""
    return [[each["dynamodb"]["SequenceNumber"] for each in batch] for batch in pool.batches]


def fed(pool: FakePool, *reads: list[dict[str, Any]], source: Source = STREAM) -> list[str]:
    """Look once for each read; what was said aloud."""
    said: list[str] = []
    stream = Stream(source, "arn", FakeStreams(*reads), pool, said.append)  # type: ignore[arg-type]
    for _ in reads:
        asyncio.run(stream.look())
    return said


# --- the template -----------------------------------------------------------------------------------------------------


def test_the_sources_are_those_of_the_template() -> None:
    """Settings that a loop plays are read from it, none is written down twice."""
    (stream,) = [each for each in read_template(ROOT / "template.yaml", "local").sources if each.is_stream]

    assert (stream.function, stream.resource, stream.starts_at) == ("publish", "Table", "TRIM_HORIZON")
    assert (stream.batch_size, stream.retries, stream.bisects, stream.reports_items) == (100, 5, True, True)
    (pattern,) = stream.patterns
    assert is_wanted(pattern, record(1))
    assert not is_wanted(pattern, record(1, "MODIFY"))
    assert not is_wanted(pattern, record(1, sk="C#c"))


def test_a_rule_that_is_not_played_is_an_error() -> None:
    """Nothing passes because it was misunderstood."""
    with pytest.raises(ValueError, match="anything-but"):
        is_wanted({"eventName": [{"anything-but": "INSERT"}]}, record(1))


# --- a stream ---------------------------------------------------------------------------------------------------------


def test_what_the_filter_wants_is_fed_in_batches() -> None:
    """In order, three at a time; bytes and times as Lambda hands them on."""
    pool = FakePool([])

    said = fed(
        pool, [record(1), record(2, sk="C#c"), record(3), record(4), record(5, "REMOVE"), record(6)], [record(7)]
    )

    assert numbers(pool) == [["1", "3", "4"], ["6"], ["7"]]
    first = pool.batches[0][0]
    assert base64.b64decode(first["dynamodb"]["NewImage"]["use"]["B"]) == b"sealed"
    assert first["dynamodb"]["ApproximateCreationDateTime"] == 1_795_996_800
    assert said == []


def test_a_batch_is_told_again_from_the_first_that_failed() -> None:
    """What stands before it is done."""
    pool = FakePool([{"batchItemFailures": [{"itemIdentifier": "3"}, {"itemIdentifier": "2"}]}])

    fed(pool, [record(1), record(2), record(3)])

    assert numbers(pool) == [["1", "2", "3"], ["2", "3"]]


def test_a_batch_whose_function_failed_is_told_again_in_halves() -> None:
    """So that one bad record is found."""
    pool = FakePool([RuntimeError])

    fed(pool, [record(1), record(2), record(3)])

    assert numbers(pool) == [["1", "2", "3"], ["1"], ["2", "3"]]


def test_what_fails_again_and_again_is_given_up_aloud() -> None:
    """After so many tries; the next batch is fed."""
    pool = FakePool([{"batchItemFailures": [{"itemIdentifier": "1"}]}] * 3)

    said = fed(pool, [record(1)], [record(2)])

    assert numbers(pool) == [["1"], ["1"], ["1"], ["2"]]
    assert said == ["publish: 1 records of the stream were given up"]


@pytest.mark.parametrize("answer", [[], "text", {"batchItemFailures": [{}]}, {"batchItemFailures": 7}])
def test_an_answer_that_cannot_be_read_is_a_batch_that_failed(answer: Any) -> None:
    """As Lambda does."""
    outcome = Outcome(Verdict.RETURNED, json.dumps(answer).encode())
    expected = set() if answer == [] else None

    assert failed_items(outcome, STREAM) == expected
    assert failed_items(outcome, replace(STREAM, reports_items=False)) == set()
    assert failed_items(Outcome(Verdict.RETURNED, b"null"), STREAM) == set()


# --- a queue ----------------------------------------------------------------------------------------------------------


COUNTED = {"ApproximateReceiveCount": "1"}


class FakeQueue:
    """Messages that are visible once."""

    def __init__(self, *bodies: str) -> None:
        self.messages = [
            {
                "MessageId": str(n),
                "ReceiptHandle": f"r{n}",
                "Body": body,
                "Attributes": {"ApproximateReceiveCount": "1"},
            }
            for n, body in enumerate(bodies)
        ]
        self.deleted: list[str] = []

    def receive_message(self, *, MaxNumberOfMessages: int, **_: Any) -> Any:
        found, self.messages = self.messages[:MaxNumberOfMessages], self.messages[MaxNumberOfMessages:]
        return {"Messages": found} if found else {}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:
        self.deleted.append(ReceiptHandle)


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [
        ({"batchItemFailures": []}, ["r0", "r1"]),
        ({"batchItemFailures": [{"itemIdentifier": "0"}]}, ["r1"]),
        (RuntimeError, []),
    ],
)
def test_of_a_queue_only_what_was_taken_is_deleted(answer: Any, deleted: list[str]) -> None:
    """The rest becomes visible again, and goes to the dead letters by the queue's own redrive."""
    sqs, pool, said = FakeQueue("one", "two"), FakePool([answer]), []
    queue = Queue(QUEUE, "http://127.0.0.1/000000000000/deliveries", sqs, pool, said.append)  # type: ignore[arg-type]

    assert asyncio.run(queue.look()) == 2

    assert sqs.deleted == deleted
    (batch,) = pool.batches
    assert [each["body"] for each in batch] == ["one", "two"]
    assert batch[0]["eventSourceARN"].endswith(":deliveries")
    assert batch[0]["attributes"] == COUNTED
    assert asyncio.run(queue.look()) == 0
