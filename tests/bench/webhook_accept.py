"""
What it costs to take a webhook in, beside what it cannot cost less than: one HMAC and one PutItem of an item as large.

    python -m tests.bench.webhook_accept [--rounds 15] [--bytes 700]

Processor time of this process, the service's answer being canned, so that neither the network nor a stand-in counts.
Both are measured in turn, and the median of the rounds is told; a machine that does other things beside makes both
slower alike.
"""

import argparse
import hmac
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import Incoming, WebhookKeys
from quitclaim.flows.webhooks import TakingIn, take_in
from quitclaim.ports import WebhookAddress
from quitclaim.providers.webhooks import ProviderHook
from quitclaim.security.keys import KeyRing
from quitclaim.security.vault import RingVault
from quitclaim.store.reads import Reads
from quitclaim.store.table import DynamoTable
from quitclaim.store.webhooks import WebhookStore
from tests.providers.signing import NOW, SECRET, Signer, a_request, spec_of
from tests.security.rings import ARN, FakeKms, MemoryRing

TABLE = "bench"


class Body:
    """The body of a canned answer."""

    def stream(self, **_: Any) -> Any:
        yield b"{}"

    def read(self, **_: Any) -> bytes:
        return b"{}"


def canned_dynamodb() -> Any:
    """A client whose every request is answered at once with an empty success."""
    session = boto3.Session("bench", "bench", region_name="eu-west-1")
    client = session.client("dynamodb", config=Config(retries={"total_max_attempts": 1}))
    headers = {"content-type": "application/x-amz-json-1.0", "content-length": "2"}

    def answered(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, 200, headers, Body())  # type: ignore[arg-type]

    client.meta.events.register("before-send.dynamodb", answered)
    return client


class OneHook:
    """The one address that there is."""

    def __init__(self, hook: WebhookAddress) -> None:
        self._hook = hook

    def at(self, client: str, endpoint: str | None) -> WebhookAddress:
        del client, endpoint
        return self._hook


class Silence:
    """A queue that takes no time: its send is beside the promise, and the same everywhere."""

    def send(self, client: str, digest: str) -> None:
        """Nothing."""

    def replay(self, client: str, account: str) -> None:
        """Nothing."""


class Still:
    """A clock that stands."""

    def now(self) -> int:
        return NOW

    def pause(self, ms: int) -> None:
        raise AssertionError("nothing is repeated here")


class Numbers:
    """Ids that cost nothing."""

    def __init__(self) -> None:
        self._last = 0

    def new_id(self) -> str:
        self._last += 1
        return f"{self._last:022d}"

    def new_secret(self) -> Secret:
        raise AssertionError("nobody asks")


def taking_in(size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Our whole way of one event, and the bare one: the HMAC over the same text and a PutItem of as many bytes."""
    client = canned_dynamodb()
    said = {"event_id": "Ev1", "event": {"type": "message"}, "authorizations": [{"user_id": "U1"}]}
    body = json.dumps(said | {"text": "x" * max(0, size - len(json.dumps(said)))}).encode()
    spec = spec_of("slack")
    request: Incoming = Signer(spec.signature).signed(a_request(body))
    hook = ProviderHook("slack", "slack", None, spec, WebhookKeys(secrets=(Secret(SECRET),)), client_id="c")
    table, clock, ids = DynamoTable(client, TABLE), Still(), Numbers()
    vault = RingVault(KeyRing(MemoryRing(), FakeKms(), ARN, {"inbox", "index"}), clock)
    world = TakingIn(Reads(table), WebhookStore(table, clock, ids), OneHook(hook), vault, Silence(), clock)
    stored: list[dict[str, Any]] = []
    client.meta.events.register(
        "provide-client-params.dynamodb.PutItem", lambda params, **_: stored.append(params["Item"])
    )
    assert take_in("slack", None, request, world).accepted == 1
    (item,) = stored
    client.meta.events.unregister("provide-client-params.dynamodb.PutItem")

    def bare() -> None:
        hmac.digest(SECRET.encode(), b"v0:1:" + body, "sha256")
        client.put_item(
            TableName=TABLE,
            Item=item,
            ConditionExpression="attribute_not_exists(PK)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    return lambda: take_in("slack", None, request, world), bare


def measured(act: Callable[[], object], times: int) -> float:
    """Microseconds of processor time for one."""
    begun = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - begun) / times * 1e6


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.webhook_accept", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", type=int, default=700)
    asked = parser.parse_args()
    ours, bare = taking_in(asked.bytes)
    pairs = []
    for _ in range(asked.rounds):
        pairs.append((measured(ours, 200), measured(bare, 200)))
    mine, least = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    print(f"one event of {asked.bytes} bytes taken in: {mine:.0f} us of processor time, one conditional write")
    print(f"an HMAC and a bare PutItem of the same item: {least:.0f} us")
    print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
