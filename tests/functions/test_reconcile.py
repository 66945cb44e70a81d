"""Reconciliation, run by its schedule: what it finishes, whom it asks for more, and what one bad item costs."""

import pytest

from quitclaim.runtime.telemetry import RunFailedError
from tests.fakes.provider import lost_request
from tests.functions.stage import TENANT, sdk

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}


def test_a_run_with_nothing_to_do(stage):
    """Says so, and counts nothing but that."""
    told = stage.invoke("reconcile", SCHEDULE)

    assert told == {"done": {}, "failed": {}}
    assert [line["counts"] for line in stage.lines() if line.get("message") == "reconciled"] == [told]


@pytest.mark.rule("I-13", "F-34")
def test_a_revoked_connection_is_closed(stage):
    """The finishing step and the close: receipt, barrier, state; the owner may connect again."""
    stage.connected()
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    stage.invoke("revoke_sweep", stage.kicks[-1])
    stage.lines()

    told = stage.invoke("reconcile", SCHEDULE)

    assert told["failed"] == {}
    metrics = stage.metrics()
    assert metrics["ItemsReconciled"] == [float(sum(told["done"].values()))]
    assert metrics["ItemsFailed"] == [0.0]
    view = stage.api("GET", "/connections/acme").json
    assert (view["state"], view["closed_as"]) == ("revoked", "confirmed")
    (receipt,) = stage.api("GET", "/receipts").json["receipts"]
    assert (receipt["connection_id"], receipt["outcome"]) == ("acme", "confirmed")
    assert stage.api("GET", "/status").json["blockers"] == {}
    assert stage.api("POST", "/connections/acme/reconnect", body={}).status == 201


@pytest.mark.rule("D-18")
def test_a_link_that_nobody_finished_lapses(stage):
    """The connection has failed, and may be started anew."""
    stage.start()
    stage.advance(900 + 900 + 15)

    stage.invoke("reconcile", SCHEDULE)

    assert stage.api("GET", "/connections/acme").json["state"] == "failed"


@pytest.mark.rule("F-63", "U-3")
def test_a_grant_that_nobody_confirmed_is_released_and_kicked(stage):
    """After ten minutes; the sweep is told which."""
    stage.code_of(stage.returned(stage.start()))
    stage.advance(600 + 10)

    stage.invoke("reconcile", SCHEDULE)
    (kick,) = stage.kicks
    swept = stage.invoke("revoke_sweep", kick)

    assert stage.api("GET", "/connections/acme").json["state"] == "failed"
    assert swept["confirmed"] == 1
    assert stage.server.live() == []


@pytest.mark.rule("D-1")
def test_a_refresh_that_nobody_saw_answered_is_sent_again_by_the_one_function_that_may(stage):
    """A closed payload, synchronously; that function takes it, and the token is there."""
    stage.connected()
    stage.advance(3_600)
    stage.server.next("/token", lost_request)
    stage.token()
    stage.advance(36)

    stage.invoke("reconcile", SCHEDULE)

    expected = {"replay": {"tenant": TENANT, "owner": stage.owner, "connection": "acme", "pair": "main"}}
    assert stage.replays == [expected]
    assert stage.invoke("access_token", stage.replays[0]) == {"outcome": "granted"}
    assert stage.token().json["token_version"] == 2


@pytest.mark.rule("I-16", "C-42")
def test_C_42_one_bad_item_does_not_stop_the_others(stage):
    """It is counted and told of by its class; the others are done; no library's words."""
    stage.start("bad")
    stage.start("good")
    stage.advance(900 + 900 + 15)
    key = {"PK": {"S": f"O#{TENANT}#{stage.owner}"}, "SK": {"S": "C#bad"}}
    sdk("dynamodb").update_item(
        TableName=stage.table,
        Key=key,
        UpdateExpression="SET #s = :s",
        ExpressionAttributeNames={"#s": "state"},
        ExpressionAttributeValues={":s": {"S": "canary-state"}},
    )
    stage.lines()

    told = stage.invoke("reconcile", SCHEDULE)

    assert (told["done"], told["failed"]) == ({"connection": 1}, {"connection": 1})
    lines = stage.lines()
    (fault,) = [line for line in lines if line.get("message") == "item failed"]
    assert (fault["kind"], fault["fault"], fault["level"]) == ("connection", "ValueError", "ERROR")
    assert [line["ItemsFailed"] for line in lines if "ItemsFailed" in line] == [[1.0]]
    assert "canary-state" not in stage.raw
    assert stage.api("GET", "/connections/good").json["state"] == "failed"


def test_without_time_nothing_is_begun(stage):
    """It stays due."""
    stage.start()
    stage.advance(900 + 900 + 15)

    assert stage.invoke("reconcile", SCHEDULE, remaining_ms=7_000)["done"] == {}
    assert stage.api("GET", "/connections/acme").json["state"] == "authorizing"


def test_a_fault_of_a_run_is_an_error_without_words(stage, monkeypatch):
    """As the sweep's."""

    def broken(*_, **__):
        raise RuntimeError("canary-of-a-library")

    monkeypatch.setattr(stage.function("reconcile"), "reconcile", broken)

    with pytest.raises(RunFailedError) as raised:
        stage.invoke("reconcile", SCHEDULE)

    assert "canary-of-a-library" not in str(raised.value)
    assert raised.value.__suppress_context__
    assert [line["fault"] for line in stage.lines() if "fault" in line] == ["RuntimeError"]
    assert "canary-of-a-library" not in stage.raw
