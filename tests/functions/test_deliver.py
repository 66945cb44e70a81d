"""Deliveries, run by their queue: what a message does, which come again and when, and what is counted."""

from typing import Any

import pytest

from quitclaim.domain.limits import FORWARD_MS, PARKED_MS
from quitclaim.domain.webhooks import Trust
from tests.functions.stage import Stage, sdk

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}
MESSAGE = {"client": "acme", "digest": "event"}


@pytest.fixture
def put_back(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which messages were put back, and for how many seconds."""
    found: list[tuple[str, int]] = []

    def change(*, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> None:
        assert QueueUrl
        found.append((ReceiptHandle, VisibilityTimeout))

    monkeypatch.setattr(sdk("sqs"), "change_message_visibility", change)
    return found


@pytest.mark.rule("RB-72")
def test_a_departure_stops_the_connection(stage: Stage) -> None:
    """The provider's signed word: a reconnect is needed, and what may be left of the grant is revoked."""
    stage.connected()
    stage.advance(600)
    stage.accept("event", deauthorizes=True)
    stage.lines()

    assert stage.deliver(MESSAGE) == []

    metrics = stage.metrics()
    assert (metrics["DeliveriesProcessed"], metrics["SharesStopped"]) == ([1.0], [1.0])
    assert stage.api("GET", "/connections/acme").json["state"] == "needs_reconnect"
    stage.invoke("revoke_sweep", SCHEDULE)
    assert stage.server.live() == []


@pytest.mark.rule("RB-72")
def test_a_hint_makes_the_provider_be_asked(stage: Stage) -> None:
    """By the one function that may; its refusal decides."""
    stage.connected()
    stage.advance(600)
    stage.accept("event", deauthorizes=True, trust=Trust.SECRET)

    stage.deliver(MESSAGE)

    assert stage.api("GET", "/connections/acme").json["state"] == "ready"
    stage.server.removes(stage.owner)
    (replay,) = stage.replays
    stage.invoke("access_token", replay)
    assert stage.api("GET", "/connections/acme").json["state"] == "needs_reconnect"


@pytest.mark.rule("M-84")
def test_a_log_line_names_no_account(stage: Stage) -> None:
    """Client, outcome and counts."""
    stage.connected()
    stage.secrets.add("acct_canary")
    stage.accept("event", account="acct_canary")
    stage.lines()

    stage.deliver(MESSAGE)

    (line,) = [each for each in stage.lines() if each.get("message") == "delivered"]
    assert (line["client"], line["outcome"], line["counts"]) == ("acme", "parked", {})
    assert "acct_canary" not in stage.raw


@pytest.mark.rule("M-68")
def test_what_another_has_is_put_back_until_its_lease_is_over(stage: Stage, put_back: list[tuple[str, int]]) -> None:
    """Not for the whole time-out of the queue, and not before."""
    stage.connected()
    stage.accept("event")
    world = stage.function("deliver").wired.delivering
    world.webhooks.claim(world.reads.delivery("acme", "event"), stage.now())
    stage.advance(100)

    assert stage.deliver(MESSAGE, {"client": "acme", "digest": "unknown"}) == ["m0"]

    ((handle, wait_s),) = put_back
    assert handle == "h0"
    assert 200 <= wait_s <= 206


def test_without_time_a_message_is_given_back_at_once(stage: Stage, put_back: list[tuple[str, int]]) -> None:
    """Nothing is begun that would be cut off."""
    stage.connected()
    stage.accept("event")

    assert stage.deliver(MESSAGE, remaining_ms=9_000) == ["m0"]

    assert put_back == [("h0", 0)]


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "[]",
        "{}",
        '{"client": "acme"}',
        '{"client": "acme", "digest": ""}',
        '{"client": "acme", "digest": "a#b"}',
        '{"client": 7, "digest": "a"}',
        '{"client": "acme", "digest": 7}',
        '{"client": "acme", "digest": "a", "account": "b"}',
    ],
)
def test_what_is_no_message_of_ours_fails_alone(stage: Stage, body: str) -> None:
    """It ends with the dead letters; the others of its batch are done."""
    stage.connected()
    stage.accept("event")
    stage.lines()

    assert stage.deliver(body, MESSAGE) == ["m0"]

    metrics = stage.metrics()
    assert (metrics["DeliveriesProcessed"], metrics["MessagesFailed"]) == ([1.0], [1.0])


def test_a_fault_of_one_message_is_none_of_the_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of without its words, and comes again."""
    stage.connected()
    stage.accept("event")
    module = stage.function("deliver")
    plain = module.deliver

    def broken(client: str, digest: str, *rest: Any) -> Any:
        if digest == "broken":
            raise ValueError("canary-words")
        return plain(client, digest, *rest)

    monkeypatch.setattr(module, "deliver", broken)
    stage.lines()

    assert stage.deliver({"client": "acme", "digest": "broken"}, MESSAGE) == ["m0"]

    (fault,) = [line for line in stage.lines() if line.get("message") == "message failed"]
    assert (fault["fault"], fault["level"]) == ("ValueError", "ERROR")
    assert "canary-words" not in stage.raw


@pytest.mark.rule("RB-63")
def test_what_the_queue_lost_is_sent_again(stage: Stage) -> None:
    """Half a minute after it was accepted, and then on the ladder."""
    stage.connected()
    stage.accept("event")
    stage.invoke("reconcile", SCHEDULE)
    assert stage.sent() == []

    stage.advance(FORWARD_MS / 1000)
    stage.invoke("reconcile", SCHEDULE)
    stage.invoke("reconcile", SCHEDULE)

    assert stage.sent() == [MESSAGE]
    stage.deliver(MESSAGE)
    stage.advance(3_600)
    stage.invoke("reconcile", SCHEDULE)
    assert stage.sent() == []


@pytest.mark.rule("RB-71")
def test_what_waits_for_a_connection_is_replayed_when_it_is_ready(stage: Stage) -> None:
    """Each minute as long as something waits; in order, and once."""
    for number in range(2):
        stage.accept(f"event-{number}")
        stage.deliver({"client": "acme", "digest": f"event-{number}"})
        stage.advance(1)
    stage.invoke("reconcile", SCHEDULE)
    assert stage.sent() == []
    stage.connected()
    stage.lines()

    stage.invoke("reconcile", SCHEDULE)
    (replay,) = stage.sent()
    assert stage.deliver(replay) == []

    assert set(replay) == {"client", "account"}
    assert stage.metrics()["DeliveriesProcessed"] == [1.0, 1.0]
    stage.invoke("reconcile", SCHEDULE)
    assert stage.sent() == []


@pytest.mark.rule("RB-71")
def test_what_waited_for_nobody_is_let_go_and_counted(stage: Stage) -> None:
    """After a day; nothing is left of its account."""
    stage.accept("event")
    stage.deliver(MESSAGE)
    stage.advance(PARKED_MS / 1000)
    stage.lines()

    stage.invoke("reconcile", SCHEDULE)
    for message in stage.sent():
        stage.deliver(message)

    assert stage.metrics()["DeliveriesDropped"] == [1.0]
    assert not [key for key in stage.items() if key[0].startswith("E#")]


def missed(stage: Stage) -> None:
    """An event whose owner did not come back within its day."""
    stage.connected()
    stage.advance(600)
    stage.accept("left", deauthorizes=True)
    stage.deliver({"client": "acme", "digest": "left"})
    stage.accept("event")
    stage.deliver(MESSAGE)
    stage.advance(PARKED_MS / 1000)
    stage.deliver(MESSAGE)
    stage.lines()


def redriven(stage: Stage, **which: Any) -> list[str]:
    """What an operator is told; a dry run unless said otherwise."""
    told = stage.http("app_api", "POST", "/v1/deliveries/redrive", body={"reason": "asked by phone", **which})
    assert told.status == 200, told.text
    return [each["id"] for each in told.json["deliveries"]]


def test_an_operator_has_what_nobody_had_delivered_after_all(stage: Stage) -> None:
    """First a dry run, which does nothing; then it is on record, and due at once."""
    missed(stage)
    before = stage.items()
    assert redriven(stage) == ["event"]
    assert stage.items() == before

    assert redriven(stage, dry_run=False) == ["event"]

    assert redriven(stage, dry_run=False) == []
    (audit,) = [item for key, item in stage.items().items() if key[0].startswith("U#")]
    assert (audit["action"]["S"], audit["subject"]["S"], audit["reason"]["S"]) == ("redrive", "all", "asked by phone")
    stage.invoke("reconcile", SCHEDULE)
    assert stage.sent() == [MESSAGE]
    assert stage.metrics()["DeliveriesRedriven"] == [1.0, 0.0]


def test_an_operator_chooses_by_id_client_provider_connection_and_time(stage: Stage) -> None:
    """All that is said must hold; another's connection, or one that is not there, has none."""
    missed(stage)
    (item,) = [each for each in stage.items().values() if each.get("reason", {}).get("S") == "waited too long"]
    received = int(item["received"]["N"])
    mine = {"tenant": "demo", "owner": stage.owner, "connection_id": "acme"}

    for which in (
        {"id": "event"},
        {"client": "acme", "provider": "acme"},
        {"connection": mine},
        {"from": received, "to": received + 1},
    ):
        assert redriven(stage, **which) == ["event"], which
    for which in (
        {"id": "other"},
        {"client": "health"},
        {"provider": "other"},
        {"from": received + 1},
        {"to": received},
    ):
        assert redriven(stage, **which) == [], which
    body = {"reason": "asked by phone", "connection": mine | {"owner": "nobody"}}
    assert stage.http("app_api", "POST", "/v1/deliveries/redrive", body=body).code == "CONNECTION_NOT_FOUND"


@pytest.mark.parametrize("after", ["x", "W10=", "WzksbnVsbF0=", "WzAseyJQSyI6MX1d", "\u20ac"])
def test_an_operator_goes_on_only_from_where_an_answer_ended(stage: Stage, after: str) -> None:
    """What no answer said is refused; a place that is told leads on."""
    body = {"reason": "asked by phone", "after": after}

    assert stage.http("app_api", "POST", "/v1/deliveries/redrive", body=body).code == "INVALID_BODY"


def test_what_operators_are_shown_is_counted_by_every_sweep(stage: Stage) -> None:
    """An event whose owner did not come back; the alarm watches the gauge."""
    stage.connected()
    stage.advance(600)
    stage.accept("left", deauthorizes=True)
    stage.deliver({"client": "acme", "digest": "left"})
    stage.accept("event")
    stage.deliver(MESSAGE)
    stage.advance(PARKED_MS / 1000)
    stage.deliver(MESSAGE)
    stage.lines()

    stage.invoke("revoke_sweep", SCHEDULE)

    assert stage.metrics()["DeliveriesUndelivered"] == [1.0]
