"""Maintenance, run by its schedule."""

import pytest

from quitclaim.domain.limits import COMPACT_MS, DEADLINE_MS, KEY_LIFE_MS
from quitclaim.runtime.telemetry import RunFailedError
from tests.functions.stage import Stage, sdk

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}


def keys(stage: Stage) -> set[str]:
    """Of the ring."""
    answer = sdk("dynamodb").query(
        TableName=stage.table, KeyConditionExpression="PK = :k", ExpressionAttributeValues={":k": {"S": "K#ring"}}
    )
    return {item["SK"]["S"] for item in answer["Items"]}


def test_a_run_says_what_it_did(stage: Stage) -> None:
    """In one line and in metrics; the accounts' gauge is published also where it is zero."""
    told = stage.invoke("maintain", SCHEDULE)

    assert told["failed"] == {}
    assert told["wrong_accounts"] == 0
    lines = stage.lines()
    (line,) = [line for line in lines if line.get("message") == "maintained"]
    assert line["counts"] == {"done": told["done"], "failed": {}}
    (metric,) = [line for line in lines if "_aws" in line]
    assert metric["AccountCountsWrong"] == [0.0]
    assert metric["ItemsFailed"] == [0.0]


def test_what_is_finished_goes(stage: Stage) -> None:
    """A day after its deadline; the connection stays."""
    stage.connected()
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    stage.invoke("revoke_sweep", stage.kicks[-1])
    stage.invoke("reconcile", SCHEDULE)
    stage.advance((DEADLINE_MS + 2 * COMPACT_MS) / 1000)

    done = stage.invoke("maintain", SCHEDULE)["done"]

    assert done["revocation compacted"] == 1
    assert not [pk for pk, _ in stage.items() if pk.startswith("Q#")]
    assert stage.api("GET", "/connections/acme").json["state"] == "revoked"


def test_keys_are_replaced_and_old_tokens_still_open(new_stage) -> None:
    """Made without being seen; the function has no purpose with which it could open one."""
    stage = new_stage()
    stage.connected()
    stage.advance(KEY_LIFE_MS / 1000 + 60)

    done = stage.invoke("maintain", SCHEDULE)["done"]
    stage.advance(700)
    stage.invoke("maintain", SCHEDULE)

    assert done["key added"] == 4
    assert {"use#use-2", "revoke#revoke-2", "confirm#confirm-2", "authorization#authorization-2"} <= keys(stage)
    assert "index#index-2" not in keys(stage)
    assert stage.token().status == 200
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    stage.invoke("revoke_sweep", stage.kicks[-1])
    assert stage.server.live() == []


def test_a_grant_that_nobody_uses_is_asked_to_be_refreshed(new_stage) -> None:
    """By the one function that may send a refresh, with the closed payload that it takes."""
    stage = new_stage(refresh__idle_limit_s=86_400)
    stage.connected()
    stage.advance(86_400)

    stage.invoke("maintain", SCHEDULE)
    (replay,) = stage.replays
    told = stage.invoke("access_token", replay)

    assert told == {"outcome": "granted"}
    assert stage.token().json["token_version"] == 2


def test_a_fault_of_a_run_is_an_error_without_words(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the others'."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("canary-of-a-library")

    monkeypatch.setattr(stage.function("maintain"), "maintain", broken)

    with pytest.raises(RunFailedError) as raised:
        stage.invoke("maintain", SCHEDULE)

    assert "canary" not in str(raised.value)
    assert "canary" not in str(stage.lines())
