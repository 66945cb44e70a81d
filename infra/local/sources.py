"""
What a function is fed from: the table's stream and queues, by the template's own event source mappings.

Each mapping is one loop: it reads, filters, invokes with a batch, and does with what failed what Lambda would do. A
stream's batch is told again from the first record that failed, in halves where the function itself failed and the
mapping says so, a bounded number of times; then it is given up, aloud. A queue's message that failed becomes visible
again by itself; only those that succeeded are deleted.
"""

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.local.template import ACCOUNT, REGION, Json, Source, Template
from infra.local.workers import Outcome, Pool

LOOK_EVERY_S = 0.3
"""How often a stream or queue is looked at."""

type Tell = Callable[[str], None]


def is_wanted(pattern: Any, value: Any) -> bool:
    """Whether *value* is what an event filter's *pattern* says: every member named, each by one of its list's rules."""
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and is_wanted(rules, value[name]) for name, rules in pattern.items()
        )
    return any(_holds(rule, value) for rule in pattern)


def _holds(rule: Any, value: Any) -> bool:
    if not isinstance(rule, Mapping):
        return bool(rule == value)
    if set(rule) == {"prefix"}:
        return isinstance(value, str) and value.startswith(rule["prefix"])
    raise ValueError(f"the local stack does not play the filter rule {json.dumps(rule)}")


def failed_items(outcome: Outcome, source: Source) -> set[str] | None:
    """Which of a batch the function says it could not take; None: all of it."""
    if outcome.is_function_error:
        return None
    if not source.reports_items:
        return set()
    try:
        told = json.loads(outcome.payload) or {}
        return {each["itemIdentifier"] for each in told.get("batchItemFailures") or []}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # as Lambda does: an answer that cannot be read is a batch that failed


class Stream:
    """One mapping from a table's stream."""

    def __init__(self, source: Source, arn: str, client: Any, pool: Pool, tell: Tell) -> None:
        self._source = source
        self._arn = arn
        self._client = client
        self._pool = pool
        self._tell = tell
        self._iterators: dict[str, str | None] = {}

    async def run(self) -> None:
        """Read every shard from its oldest record on, for ever."""
        while True:
            try:
                await self.look()
            except (BotoCoreError, ClientError) as fault:
                self._tell(f"{self._source.function}: the stream could not be read ({type(fault).__name__})")
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """What is new in each shard."""
        for shard in await asyncio.to_thread(self._shards):
            records = await asyncio.to_thread(self._read, shard)
            wanted = [each for each in records if self._is_wanted(each)]
            for start in range(0, len(wanted), self._source.batch_size):
                await self._feed(wanted[start : start + self._source.batch_size], self._source.retries)

    def _shards(self) -> list[str]:
        described = self._client.describe_stream(StreamArn=self._arn)["StreamDescription"]
        return [shard["ShardId"] for shard in described["Shards"]]

    def _read(self, shard: str) -> list[Json]:
        if shard not in self._iterators:
            self._iterators[shard] = self._client.get_shard_iterator(
                StreamArn=self._arn, ShardId=shard, ShardIteratorType=self._source.starts_at
            )["ShardIterator"]
        at = self._iterators[shard]
        if at is None:
            return []
        answer = self._client.get_records(ShardIterator=at, Limit=1_000)
        self._iterators[shard] = answer.get("NextShardIterator")
        return [_as_sent(record, self._arn) for record in answer["Records"]]

    def _is_wanted(self, record: Json) -> bool:
        return not self._source.patterns or any(is_wanted(pattern, record) for pattern in self._source.patterns)

    async def _feed(self, records: Sequence[Json], retries: int) -> None:
        """A batch, until all of it is taken or its tries are used up."""
        while records:
            outcome = await self._pool.invoke(json.dumps({"Records": list(records)}).encode(), request_id=_id())
            failed = failed_items(outcome, self._source)
            if failed is None and self._source.bisects and len(records) > 1 and retries > 0:
                middle = len(records) // 2
                await self._feed(records[:middle], retries - 1)
                await self._feed(records[middle:], retries - 1)
                return
            if failed is not None:
                numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
                if not failed & set(numbers):
                    return
                records = records[min(numbers.index(each) for each in failed & set(numbers)) :]
            if retries <= 0:
                self._tell(f"{self._source.function}: {len(records)} records of the stream were given up")
                return
            retries -= 1
            await asyncio.sleep(LOOK_EVERY_S)


class Queue:
    """One mapping from a queue; redrive is the queue's own."""

    def __init__(self, source: Source, url: str, client: Any, pool: Pool, tell: Tell) -> None:
        self._source = source
        self._url = url
        self._arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{url.rsplit('/', 1)[-1]}"
        self._client = client
        self._pool = pool
        self._tell = tell

    async def run(self) -> None:
        """Hand on what is visible, for ever."""
        while True:
            found = 0
            try:
                found = await self.look()
            except (BotoCoreError, ClientError) as fault:
                self._tell(f"{self._source.function}: the queue could not be read ({type(fault).__name__})")
            if not found:
                await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> int:
        """One batch; how many messages it had."""
        messages = await asyncio.to_thread(self._receive)
        if not messages:
            return 0
        records = [self._as_sent(message) for message in messages]
        outcome = await self._pool.invoke(json.dumps({"Records": records}).encode(), request_id=_id())
        failed = failed_items(outcome, self._source)
        if failed is None:
            self._tell(f"{self._source.function}: {len(messages)} messages are tried again")
            return len(messages)
        for message in messages:
            if message["MessageId"] not in failed:
                await asyncio.to_thread(
                    self._client.delete_message, QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"]
                )
        return len(messages)

    def _receive(self) -> list[Json]:
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=min(self._source.batch_size, 10),
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", []))

    def _as_sent(self, message: Json) -> Json:
        body = message["Body"]
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": body,
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {},
            "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
            "eventSource": "aws:sqs",
            "eventSourceARN": self._arn,
            "awsRegion": REGION,
        }


def _as_sent(record: Json, arn: str) -> Json:
    """A record as Lambda hands it on: bytes in base64, times in seconds."""
    told = dict(record["dynamodb"])
    at = told.get("ApproximateCreationDateTime")
    if at is not None:
        told["ApproximateCreationDateTime"] = int(at.timestamp())
    plain = {**{name: value for name, value in record.items() if name != "userIdentity"}, "dynamodb": told}
    return {**json.loads(json.dumps(plain, default=_plain)), "eventSourceARN": arn}


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"not of a stream: {type(value).__name__}")


def _id() -> str:
    return str(uuid.uuid4())


def sources_of(
    template: Template,
    physical_ids: Mapping[str, str],
    pools: Mapping[str, Pool],
    client: Callable[[str], Any],
    tell: Tell,
) -> list[Stream | Queue]:
    """Every mapping of the template, ready to run; *physical_ids* are what MiniStack made of its tables and queues."""
    made: list[Stream | Queue] = []
    for source in template.sources:
        pool, physical = pools[source.function], physical_ids[source.resource]
        if source.is_stream:
            arn = client("dynamodb").describe_table(TableName=physical)["Table"]["LatestStreamArn"]
            made.append(Stream(source, arn, client("dynamodbstreams"), pool, tell))
        else:
            sqs = client("sqs")
            url = physical if "://" in physical else sqs.get_queue_url(QueueName=physical)["QueueUrl"]
            made.append(Queue(source, url, sqs, pool, tell))
    return made
