"""
Events under load, from the provider's word to the app's: several senders, each event several times and in any order,
workers killed on the way; judged at the table, at the app's own end of the event bus, and at the provider.

`QUITCLAIM_DELIVERIES=2000` makes it the nightly run (`make webhooks-nightly`).
"""

import json
import os
import random
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest
from standardwebhooks import Webhook

from infra.local.demo import Listener
from infra.local.life import RegisteredClient, expect, register_client, until
from infra.local.provider.control import ProviderControl, digest_of
from infra.local.stack import LocalStack
from tests.story.conftest import Witness

DELIVERIES: Final = int(os.environ.get("QUITCLAIM_DELIVERIES", "300"))
EVENTS: Final = DELIVERIES // 2
KILL_EVERY: Final = 100
KILLED: Final = ("webhook", "deliver", "publish")
WORKING: Final = (*KILLED, "reconcile")
IDLE_LOOKS: Final = 3
"""In a row: between the queue and a worker a message is nowhere for a moment."""
STAYING: Final = max(4, DELIVERIES // 50)
SHARING: Final = 2
"""How many owners of ours have connected each account that stays."""
LEAVING: Final = max(6, DELIVERIES // 50)
COPIES_OF_A_DEPARTURE: Final = 5
SENDERS: Final = 6
ROUNDS: Final = 12
TRIES: Final = 60
SECRET: Final = "whsec_d2ViaG9vay1sb2FkLXNlY3JldC1jYW5hcnk="
SCOPES: Final = ["identity", "notes"]
NAME: Final = "load"
PATIENCE_S: Final = 120.0

type Found = list[dict[str, Any]]

pytestmark = pytest.mark.timeout(240 + DELIVERIES)


@dataclass(frozen=True)
class Account:
    """Somebody at the provider, and whose connections are of that account here."""

    sub: str
    username: str
    owners: tuple[str, ...]


def signed(stack: LocalStack, said: dict[str, Any], secret: str = SECRET) -> tuple[bytes, dict[str, str]]:
    """An event as its provider sends it now, signed by a library that is not ours."""
    body, now = json.dumps(said), datetime.fromtimestamp(stack.now_ms() // 1000, UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": said["id"],
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(said["id"], now, body),
    }
    return body.encode(), headers


def sent(stack: LocalStack, http: httpx.Client, said: dict[str, Any], secret: str = SECRET) -> int:
    """The status of one try; 0 where there was no answer."""
    body, headers = signed(stack, said, secret)
    try:
        return http.post(f"/webhooks/{NAME}", content=body, headers=headers).status_code
    except httpx.TransportError:
        return 0


def until_answered(stack: LocalStack, http: httpx.Client, said: dict[str, Any]) -> int:
    """How often the provider had to send it."""
    for tries in range(1, TRIES + 1):
        if sent(stack, http, said) == 200:
            return tries
        time.sleep(0.1)
    raise AssertionError(f"event {said['id']} was never taken")


@pytest.fixture(scope="module")
def load_client(stack: LocalStack, provider: ProviderControl) -> RegisteredClient:
    """A client whose provider tells it of events."""
    place = f"{stack.config_path.replace('/quitclaim/', '/quitclaim-secrets/', 1)}/{NAME}-hook"
    stack.boto3_client("ssm").put_parameter(Name=place, Value=SECRET, Type="SecureString")
    return register_client(stack, provider, NAME, webhook={"secrets": [f"ssm:{place}"]})


@pytest.fixture
def listener(stack: LocalStack) -> Listener:
    """The app's end of the bus."""
    return Listener(stack)


@pytest.fixture
def sending(stack: LocalStack) -> Iterator[httpx.Client]:
    """The provider's way to us: nothing of ours is known to it but the address."""
    with httpx.Client(base_url=stack.base_url, timeout=35) as http:
        yield http


@pytest.fixture
def app(stack: LocalStack) -> Iterator[httpx.Client]:
    """The app's calls."""
    with stack.client("app") as http:
        yield http


def path_of(owner: str) -> str:
    return f"/v1/tenants/demo/owners/{owner}/connections/dot"


def connected(
    app: httpx.Client, provider: ProviderControl, client: RegisteredClient, account: Account, witness: Witness
) -> set[str]:
    """Every owner of the account has a connection of it; the families that they are at the provider."""
    given = provider.issue(client.client_id, account.username, SCOPES, len(account.owners))
    witness.secrets.update(given)
    for owner, token in zip(account.owners, given, strict=True):
        body = {"provider": client.provider, "client": client.name, "refresh_token": token, "scopes": SCOPES}
        assert expect(app.post(f"{path_of(owner)}/import", json=body), 200)["connection"]["state"] == "ready"
    digests = {digest_of(token) for token in given}
    return {str(line.family) for line in provider.ledger(client.client_id, "refresh") if line.digest in digests}


def items(stack: LocalStack) -> Found:
    """What lies in the table of this client's events: the events, and who had a share of each."""
    dynamodb, found, after = stack.boto3_client("dynamodb"), [], {}
    while True:
        page = dynamodb.scan(TableName=stack.resources["Table"], ConsistentRead=True, **after)
        found += [item for item in page["Items"] if item["PK"]["S"].startswith(f"W#{NAME}#")]
        if "LastEvaluatedKey" not in page:
            return found
        after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def events_in(found: Found) -> Found:
    return [item for item in found if item["SK"]["S"] == "W"]


def is_share(item: dict[str, Any]) -> bool:
    return item["SK"]["S"] != "W" and bool(item["reason"]["S"] == "received")


def shares_in(found: Found) -> Counter[str]:
    """How many events each owner had a share of, departures apart."""
    return Counter(item["SK"]["S"].split("#")[2] for item in found if is_share(item))


def is_settled(found: Found) -> bool:
    """Nothing is on its way any more: what is not over is parked."""
    return all(item["state"]["S"] in ("processed", "parked", "dropped") for item in events_in(found))


def is_idle(stack: LocalStack) -> bool:
    """Nobody works, and no message of the queue can be received now; one whose worker died is out of sight."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
    sqs, queue = stack.boto3_client("sqs"), stack.resources["DeliveryQueue"]
    url = queue if "://" in queue else sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return not any(int(told[name]) for name in names) and not any(stack.in_flight(name) for name in WORKING)


def settle(stack: LocalStack, is_over: Callable[[Found], bool]) -> tuple[int, Found]:
    """
    Minutes go by, each with its schedules, until it is over: a message that a dead worker had is sent again by
    reconciliation, and its claim ends with its lease. How many it took, and what lay in the table then.

    A minute begins when nobody works and no message can be received, however slow the machine is: what is being worked
    on, or is about to be, needs no schedule.
    """
    for minutes in range(ROUNDS + 1):
        ends, idle = time.monotonic() + PATIENCE_S, 0
        while True:
            found = items(stack)
            if is_over(found):
                return minutes, found
            idle = idle + 1 if is_idle(stack) else 0
            if idle == IDLE_LOOKS or time.monotonic() > ends:
                break
            time.sleep(0.1)
        stack.advance(60)
        stack.fire("reconcile")
    raise AssertionError(f"not over after {ROUNDS} minutes: {Counter(i['state']['S'] for i in events_in(found))}")


def told_by(listener: Listener, owners: set[str], kind: str) -> list[dict[str, Any]]:
    """What the app has heard of that kind about these owners: each id once."""
    listener.hears(kind, "")
    return [each for each in listener.heard.values() if each["kind"] == kind and each["owner"] in owners]


@pytest.mark.rule("RB-63", "RB-64", "RB-71", "RB-72", "RB-59", "M-60", "M-67", "M-69", "U-15")
def test_nothing_is_lost_and_nothing_is_done_twice(
    stack: LocalStack,
    provider: ProviderControl,
    load_client: RegisteredClient,
    app: httpx.Client,
    sending: httpx.Client,
    listener: Listener,
    witness: Witness,
    record_property: Callable[[str, object], None],
) -> None:
    """
    300 deliveries of 150 events by six senders in an order of chance, a worker of each function killed every 100. Each
    event is there once; every connection that stays had each of its account's events once, and is told of it by one
    id; every account that left lost its connection once; what came before its connection waits for it.
    """
    witness.secrets.add(SECRET)
    chance = random.Random("webhook load")
    staying = [an_account(provider, f"staying-{n}", SHARING) for n in range(STAYING)]
    leaving = [an_account(provider, f"leaving-{n}", 1) for n in range(LEAVING)]
    late = an_account(provider, "late", 1)
    families: dict[str, set[str]] = {}
    for account in [*staying, *leaving]:
        families[account.sub] = connected(app, provider, load_client, account, witness)
    everybody = [*staying, *leaving, late]
    stack.advance(1)  # a departure is later than the grants that it ends
    said = events_for(everybody, leaving, stack.now_ms())
    deliveries = deliveries_of(said, chance)

    killed: list[int] = []
    with ThreadPoolExecutor(SENDERS) as senders:
        until_answered(stack, sending, said[-1])  # a worker is up, and has read the settings since
        tried = [senders.submit(until_answered, stack, sending, each) for each in deliveries]
        for share in range(KILL_EVERY, DELIVERIES + 1, KILL_EVERY):
            wait_for(tried, share - KILL_EVERY // 2)
            killed += [stack.kill(name) for name in KILLED]
        tries = sum(each.result() for each in tried)
    minutes, found = settle(stack, is_settled)

    of_account = Counter(each["sub"] for each in said if each["type"] != "grant.ended")
    shares = shares_in(found)
    lost = len(said) - len(events_in(found))
    for account in staying:
        assert {shares[owner] for owner in account.owners} == {of_account[account.sub]}
    for account in leaving:
        (owner,) = account.owners
        view = expect(app.get(path_of(owner)), 200)
        assert (view["state"], view["generation"]) == ("needs_reconnect", 2), "stopped, and once"
        assert shares[owner] <= of_account[account.sub]
    had_before = sum(shares[owner] for account in leaving for owner in account.owners)
    waiting = sum(of_account[account.sub] for account in leaving) - had_before + of_account[late.sub]
    had = {item["PK"]["S"] for item in found if is_share(item)}
    over = {item["PK"]["S"] for item in events_in(found) if item["state"]["S"] == "processed"}
    kept = {item["PK"]["S"] for item in events_in(found) if item["state"]["S"] == "parked" and "body" in item}
    assert over | kept == {item["PK"]["S"] for item in events_in(found)}
    # A departure leaves no share to have; one whose worker died behind the stop waits like what came after it.
    assert len(over - had) <= LEAVING
    assert len((over | kept) - had) == LEAVING + waiting
    assert shares[late.owners[0]] == 0

    connected(app, provider, load_client, late, witness)
    _, found = settle(stack, lambda found: shares_in(found)[late.owners[0]] == of_account[late.sub])

    expected = {
        (owner, each["type"])
        for each in said
        for account in [*staying, late]
        if account.sub == each["sub"]
        for owner in account.owners
    }
    owners = {owner for account in everybody for owner in account.owners}
    shares = shares_in(found)
    until(
        lambda: True if len(told_by(listener, owners, "webhook.received")) >= shares.total() else None,
        f"{shares.total()} notices on the bus",
        lambda: str(len(told_by(listener, owners, "webhook.received"))),
        within_s=PATIENCE_S,
    )
    told = Counter((each["owner"], each["event"]) for each in told_by(listener, owners, "webhook.received"))
    twice = {one: times for one, times in told.items() if times > 1}
    gone = {owner for account in leaving for owner in account.owners}
    assert {one for one in told if one[0] not in gone} == expected
    assert Counter(owner for owner, _ in told) == shares
    until(
        lambda: True if len(told_by(listener, gone, "connection.needs_reconnect")) >= LEAVING else None,
        "every loss on the bus",
        lambda: str(len(told_by(listener, gone, "connection.needs_reconnect"))),
        within_s=PATIENCE_S,
    )
    losses = Counter((each["owner"], each["reason"]) for each in told_by(listener, gone, "connection.needs_reconnect"))
    assert losses == {(owner, "grant_rejected"): 1 for owner in gone}
    assert told_by(listener, owners - gone, "connection.needs_reconnect") == []

    stack.fire("revoke_sweep")
    alive = {str(line.family) for line in provider.ledger(load_client.client_id, "refresh") if line.live}
    assert [account.username for account in leaving if families[account.sub] & alive] == []
    assert all(families[account.sub] <= alive for account in staying)
    assert (lost, twice) == (0, {})
    record_property(
        "figure",
        f"{len(deliveries)} deliveries of {EVENTS} events in {tries} tries by {SENDERS} senders, "
        f"{len(killed)} workers killed, {minutes} minutes of the moved clock until nothing was on its way; "
        f"{shares.total()} shares and notices, {LEAVING} connections stopped once, {waiting} events that wait, "
        f"{of_account[late.sub]} of them handled when their connection came: {lost} lost, {len(twice)} applied twice",
    )


def an_account(provider: ProviderControl, username: str, owners: int) -> Account:
    sub = provider.person(username)
    return Account(sub, username, tuple(f"load-{username}-{number}" for number in range(owners)))


def events_for(everybody: list[Account], leaving: list[Account], now: int) -> list[dict[str, Any]]:
    """One departure for each account that leaves, and data events for everybody in turn; each of a kind of its own."""
    said = [{"id": f"left-{at}", "type": "grant.ended", "sub": one.sub, "at": now} for at, one in enumerate(leaving)]
    for number in range(EVENTS - len(said)):
        account = everybody[number % len(everybody)]
        said.append({"id": f"note-{number}", "type": f"note.{number}", "sub": account.sub, "at": now})
    return said


def deliveries_of(said: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Each event once and each departure five times, then copies of any, in an order of chance."""
    found = [each for each in said for _ in range(COPIES_OF_A_DEPARTURE if each["type"] == "grant.ended" else 1)]
    found += chance.choices(said, k=DELIVERIES - len(found))
    chance.shuffle(found)
    return found


def wait_for(tried: list[Any], count: int) -> None:
    """Until so many deliveries are answered; what went wrong in one is raised by its own result."""
    ends = time.monotonic() + PATIENCE_S + DELIVERIES
    while sum(each.done() for each in tried) < count:
        assert time.monotonic() < ends, f"{sum(each.done() for each in tried)} of {len(tried)} deliveries are answered"
        time.sleep(0.02)


@pytest.mark.rule("S-9", "M-61")
def test_a_stranger_gets_nowhere(stack: LocalStack, load_client: RegisteredClient, sending: httpx.Client) -> None:
    """Another secret, another client, no signature: refused, and nothing is stored."""
    del load_client
    until_answered(stack, sending, {"id": "known", "type": "note.known", "sub": "nobody"})
    before = len(items(stack))
    guessed = "whsec_" + b64encode(b"guessed by a stranger").decode()

    assert sent(stack, sending, {"id": "strange", "type": "grant.ended", "sub": "1"}, guessed) == 401
    assert sending.post(f"/webhooks/{NAME}", content=b"{}").status_code == 401
    assert sending.post("/webhooks/nobody", content=b"{}").status_code == 404
    assert len(items(stack)) == before
