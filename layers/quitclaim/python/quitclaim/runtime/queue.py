"""
The queue of deliveries: what a message says, and sending one. A message is a hint to look at something in the table; it
carries no event, so a lost, repeated or old one does no harm.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from quitclaim.domain.errors import InvalidBodyError
from quitclaim.domain.webhooks import NAME
from quitclaim.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

LONGEST_DIGEST: Final = 128


@dataclass(frozen=True)
class Received:
    """A message as the queue gave it: its id and the handle by which it is put back."""

    id: str
    handle: str
    body: str


@dataclass(frozen=True)
class Asked:
    """What a message asks for: one delivery, or all that waits beside an account."""

    client: str
    digest: str | None = None
    account: str | None = None


class DeliveryQueue:
    """`ports.Forward`, and for who receives: how long a message is out of sight."""

    def __init__(self, url: str, client: "Callable[[], SQSClient]", telemetry: Telemetry) -> None:
        self._url = url
        self._client = client
        self._telemetry = telemetry

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
        """One delivery; where it is to wait, a second longer than that, for clocks that differ."""
        self._send({"client": client, "digest": digest}, 0 if after_ms <= 0 else after_ms // 1000 + 2)

    def replay(self, client: str, account: str) -> None:
        """All that waits beside an account."""
        self._send({"client": client, "account": account})

    def _send(self, asked: Mapping[str, str], wait_s: int = 0) -> None:
        try:
            self._client().send_message(QueueUrl=self._url, MessageBody=json.dumps(asked), DelaySeconds=wait_s)
        except (ClientError, BotoCoreError) as fault:
            self._telemetry.fault("send failed", fault)

    def put_back(self, received: Received, wait_s: int) -> None:
        """The message comes again in *wait_s* seconds; best effort, for it comes again anyway."""
        try:
            self._client().change_message_visibility(
                QueueUrl=self._url, ReceiptHandle=received.handle, VisibilityTimeout=wait_s
            )
        except (ClientError, BotoCoreError) as fault:
            self._telemetry.fault("put back failed", fault)


def received_of(event: Mapping[str, Any]) -> Iterator[Received]:
    """The messages of an invocation by the queue."""
    for record in event["Records"]:
        yield Received(record["messageId"], record["receiptHandle"], record["body"])


def asked_of(body: str) -> Asked:
    """What a message asks for, and nothing else. Raises `InvalidBodyError`."""
    try:
        told = json.loads(body)
    except ValueError:
        raise InvalidBodyError("a message of the queue: no JSON") from None
    if not isinstance(told, dict) or told.keys() not in ({"client", "digest"}, {"client", "account"}):
        raise InvalidBodyError("a message of the queue: client and digest, or client and account")
    client, name = told["client"], told.get("digest", told.get("account"))
    if not (isinstance(client, str) and NAME.fullmatch(client)):
        raise InvalidBodyError("a message of the queue: client")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_DIGEST or "#" in name:
        raise InvalidBodyError("a message of the queue: digest or account")
    return Asked(client, **{key: value for key, value in told.items() if key != "client"})
