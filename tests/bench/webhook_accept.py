"""
What it costs to take a webhook in, beside what it cannot cost less than: one HMAC and one PutItem of an item as large.

    python -m tests.bench.webhook_accept [--calls 2000] [--bytes 700]

Processor time of this process. The put is measured twice over: with the request really sent, over a connection that is
kept, to a server of another process that answers at once (what a put costs whoever makes one; TLS would come on top of
each); and with the answer canned before anything is sent, which is what Python computes. Each time beside the put as
boto3 makes it by itself, and beside one whose parameters are not validated, as ours are not. The ways take turns call
by call, so that none of them has the processor's caches for itself, and the median of each is told; a machine that
does other things beside makes all of them slower alike.
"""

import argparse
import asyncio
import hmac
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse

from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import Incoming, WebhookKeys
from quitclaim.flows.webhooks import TakingIn, take_in
from quitclaim.ports import WebhookAddress
from quitclaim.providers.webhooks import ProviderHook
from quitclaim.runtime.wiring import IN_A_HURRY, QUICK
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


def dynamodb(url: str | None, *, validates: bool = True) -> Any:
    """A client of the server at *url*; without one, each request is answered with an empty success, and never sent."""
    session = boto3.Session("bench", "bench", region_name="eu-west-1")
    client = session.client("dynamodb", config=QUICK if validates else IN_A_HURRY, endpoint_url=url)
    headers = {"content-type": "application/x-amz-json-1.0", "content-length": "2"}

    def answered(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, 200, headers, Body())  # type: ignore[arg-type]

    if url is None:
        client.meta.events.register("before-send.dynamodb", answered)
    return client


class Answering(asyncio.Protocol):
    """HTTP as far as a put needs it: whatever was asked in full is answered with an empty success."""

    def __init__(self) -> None:
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is kept for all calls."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of a request."""
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0].strip() or b"0"
        if found and len(body) >= int(length):
            self._read = body[int(length) :]
            told = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 2\r\n\r\n{}"
            self._transport.write(told)


async def serve() -> None:
    """Answer for ever, and say where."""
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def another_process() -> Iterator[str]:
    """A server whose time is not ours."""
    command = [sys.executable, "-m", "tests.bench.webhook_accept", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own module
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


class OneHook:
    """The one address that there is."""

    def __init__(self, hook: WebhookAddress) -> None:
        self._hook = hook

    def at(self, client: str, endpoint: str | None) -> WebhookAddress:
        del client, endpoint
        return self._hook


class Silence:
    """A queue that takes no time: its send is beside the promise, and the same everywhere."""

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
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


def ways(size: int, url: str | None) -> dict[str, Callable[[], object]]:
    """Our whole way of one event, and the bare ones: the HMAC over the same text and a PutItem of as many bytes."""
    client, plain = dynamodb(url, validates=False), dynamodb(url)
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

    def bare(of: Any) -> None:
        hmac.digest(SECRET.encode(), b"v0:1:" + body, "sha256")
        of.put_item(
            TableName=TABLE,
            Item=item,
            ConditionExpression="attribute_not_exists(PK)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    return {
        "ours": lambda: take_in("slack", None, request, world),
        "put": lambda: bare(plain),
        "put, not validated": lambda: bare(client),
    }


def measured(acts: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Microseconds of processor time of each, in turn."""
    spent: dict[str, list[int]] = {name: [] for name in acts}
    for number in range(times + times // 10):
        for name, act in acts.items():
            begun = time.process_time_ns()
            act()
            if number >= times // 10:  # what comes first warms up
                spent[name].append(time.process_time_ns() - begun)
    return {name: statistics.median(each) / 1000 for name, each in spent.items()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.webhook_accept", description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--bytes", type=int, default=700)
    parser.add_argument("--serve", action="store_true", help="be the other process")
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve())
        return
    with another_process() as url:
        for how, where in (("sent", url), ("canned", None)):
            spent = measured(ways(asked.bytes, where), asked.calls)
            ours = spent.pop("ours")
            print(f"{how}: one event of {asked.bytes} bytes taken in: {ours:.0f} us, one conditional write")
            for name, other in spent.items():
                print(f"{how}: an HMAC and a bare {name} of the same item: {other:.0f} us, ratio {ours / other:.2f}")


if __name__ == "__main__":
    main()
