"""
Webhooks through the whole stack: a provider that sends each event several times, in any order, and again until it is
answered 2xx; workers killed on the way. What was answered is there, once.
"""

import hashlib
import hmac
import json
import random
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from infra.local.stack import LocalStack

SECRET = "webhook-story-secret-canary"
EVENTS = 60
DELIVERIES = 150
KILLS = 3
SENDERS = 4
TRIES = 12


@pytest.fixture(scope="module")
def hook(stack: LocalStack) -> Iterator[httpx.Client]:
    """A client whose provider signs with its secret; and the provider's way to us."""
    settings = {"provider": "whoop", "client_id": "story", "scopes": [], "webhook": {"hook_id": "story"}}
    stack.add_client("whoop-story", settings, SECRET)
    with httpx.Client(base_url=stack.base_url, timeout=35) as http:
        yield http


def signed(stack: LocalStack, said: dict[str, Any], secret: str = SECRET) -> tuple[bytes, dict[str, str]]:
    """An event as WHOOP sends it."""
    body, time_ms = json.dumps(said).encode(), str(stack.now_ms())
    digest = hmac.new(secret.encode(), time_ms.encode() + body, hashlib.sha256).digest()
    headers = {"x-whoop-signature": b64encode(digest).decode(), "x-whoop-signature-timestamp": time_ms}
    return body, headers | {"content-type": "application/json"}


def an_event(number: int) -> dict[str, Any]:
    return {"trace_id": f"trace-{number}", "type": "sleep.updated", "user_id": number % 7, "id": number}


def sent(stack: LocalStack, http: httpx.Client, number: int, secret: str = SECRET) -> int:
    """The status of one try; 0 where there was no answer."""
    body, headers = signed(stack, an_event(number), secret)
    try:
        return http.post("/webhooks/whoop-story", content=body, headers=headers).status_code
    except httpx.TransportError:
        return 0


def until_answered(stack: LocalStack, http: httpx.Client, number: int) -> int:
    """How often the provider had to send it."""
    for tries in range(1, TRIES + 1):
        if sent(stack, http, number) == 200:
            return tries
        time.sleep(0.25)
    raise AssertionError(f"event {number} was never taken")


def deliveries(stack: LocalStack) -> list[dict[str, Any]]:
    """What lies in the table of this client."""
    dynamodb, found, after = stack.boto3_client("dynamodb"), [], {}
    while True:
        page = dynamodb.scan(TableName=stack.resources["Table"], ConsistentRead=True, **after)
        found += [item for item in page["Items"] if item["PK"]["S"].startswith("W#whoop-story#")]
        if "LastEvaluatedKey" not in page:
            return found
        after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


@pytest.mark.rule("RB-63", "RB-64", "RB-65")
def test_what_was_answered_is_there_once_whoever_was_killed(stack: LocalStack, hook: httpx.Client) -> None:
    """150 deliveries of 60 events by four senders, in an order of chance; three workers killed: 0 lost, 0 twice."""
    chance = random.Random("webhooks")
    numbers = [*range(EVENTS), *(chance.randrange(EVENTS) for _ in range(DELIVERIES - EVENTS))]
    chance.shuffle(numbers)
    until_answered(stack, hook, numbers[0])  # a worker is up, and has read the settings since

    with ThreadPoolExecutor(SENDERS) as senders:
        tried = [senders.submit(until_answered, stack, hook, number) for number in numbers]
        for share in range(1, KILLS + 1):
            while sum(each.done() for each in tried) < share * DELIVERIES // (KILLS + 1):
                time.sleep(0.02)
            stack.kill("webhook")
        tries = sum(each.result() for each in tried)

    found = deliveries(stack)
    assert len({item["PK"]["S"] for item in found}) == len(found) == EVENTS
    assert tries >= DELIVERIES
    assert SECRET not in repr(found)


@pytest.mark.rule("S-9", "M-61")
def test_a_stranger_gets_nowhere(stack: LocalStack, hook: httpx.Client) -> None:
    """Another secret, another client, no signature."""
    before = len(deliveries(stack))

    assert sent(stack, hook, 2_000, "guessed") == 401
    assert hook.post("/webhooks/whoop-story", content=b"{}").status_code == 401
    assert hook.post("/webhooks/nobody", content=b"{}").status_code == 404
    assert len(deliveries(stack)) == before
