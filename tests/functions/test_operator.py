"""The operator's routes: over all tenants, and nothing of an account."""

import json

import pytest

from quitclaim.domain.limits import DEADLINE_MS, GUARD_MS
from tests.fakes.provider import answers, lost_answer
from tests.functions.stage import TENANT, Answer, Stage, answered, template
from tests.runtime.events import http_event

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}
OLGA = "arn:aws:iam::111122223333:user/olga"


def attention(stage: Stage, **given: object) -> Answer:
    return stage.http("app_api", "GET", "/v1/attention", **given)


def act(stage: Stage, subject: str, what: str, body: object) -> Answer:
    """As the gateway hands it over, with who signed it."""
    event = http_event(
        "POST",
        f"/v1/attention/{subject}/{what}",
        body=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        routes=template().routes,
    )
    event["requestContext"]["authorizer"] = {"iam": {"userArn": OLGA}}
    return answered(stage.invoke("app_api", event))


def expired(stage: Stage) -> str:
    """A revocation that was never confirmed; its id."""
    stage.connected()
    stage.server.next("/revoke", *[answers(500)] * 50)
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    stage.advance((DEADLINE_MS + GUARD_MS) / 1000 + 1)
    stage.invoke("revoke_sweep", SCHEDULE)
    stage.invoke("reconcile", SCHEDULE)
    (item,) = attention(stage).json["items"]
    return str(item["id"])


def test_the_list_has_ids_and_levels(stage: Stage) -> None:
    """Where it belongs, how pressing it is, since when; no account, no token, no reason of the provider's."""
    rid = expired(stage)

    told = attention(stage)

    assert told.status == 200
    (item,) = told.json["items"]
    assert item.pop("since") <= stage.now()
    assert item == {
        "id": rid,
        "tenant": TENANT,
        "owner": stage.owner,
        "connection_id": "acme",
        "client": "acme",
        "level": "permission_removal_required",
        "state": "expired",
        "quarantined": False,
        "owner_deleted": False,
    }
    assert told.json["more"] is False


def test_an_empty_list(stage: Stage) -> None:
    """Nothing waits."""
    assert attention(stage).json == {"items": [], "more": False}


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "1.5", "", "9" * 30])
def test_a_limit_out_of_bounds_is_refused(stage: Stage, limit: str) -> None:
    """1 to 500."""
    told = attention(stage, query=f"limit={limit}")

    assert (told.status, told.code) == (400, "INVALID_PARAMETER")


def test_a_retry_is_kicked_and_audited(stage: Stage) -> None:
    """Who asked is what the gateway judged, not what the body says."""
    stage.connected()
    stage.server.next("/revoke", answers(500))
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    (kick,) = stage.kicks
    stage.invoke("revoke_sweep", kick)
    stage.lines()

    told = act(stage, kick["rids"][0], "retry", {"reason": "their status page is green"})

    assert (told.status, told.json) == (200, {"id": kick["rids"][0], "due": True})
    assert stage.metrics()["RevocationsRetriedByHand"] == [1.0]
    assert stage.kicks[-1] == kick
    (audit,) = (item for (pk, _), item in stage.items().items() if pk.startswith("U#"))
    assert audit["by"]["S"] == OLGA
    assert (audit["action"]["S"], audit["reason"]["S"]) == ("retry", "their status page is green")
    stage.invoke("revoke_sweep", stage.kicks[-1])
    assert stage.server.live() == []


def test_a_notice_of_a_deleted_owner_is_closed(stage: Stage) -> None:
    """Not of one who exists; not without a reason; and then it is off the list."""
    rid = expired(stage)
    reason = {"reason": "owner erased, ticket 17"}
    assert act(stage, rid, "acknowledge", reason).code == "OWNER_MUST_ACKNOWLEDGE"
    stage.api("DELETE")
    assert attention(stage).json["items"][0]["owner_deleted"] is True
    assert act(stage, rid, "acknowledge", {}).code == "INVALID_BODY"
    assert act(stage, rid, "acknowledge", {"reason": ""}).code == "INVALID_BODY"

    told = act(stage, rid, "acknowledge", reason)

    assert (told.status, told.json) == (200, {"id": rid, "acknowledged": True})
    assert attention(stage).json["items"] == []
    assert act(stage, rid, "acknowledge", reason).status == 200
    assert len([pk for pk, _ in stage.items() if pk.startswith("U#")]) == 1


def test_an_exchange_is_named_in_the_path(stage: Stage) -> None:
    """Its id has colons, and nothing that a path would need to escape."""
    stage.server.next("/token", lost_answer)
    stage.returned(stage.start())
    stage.api("DELETE")
    stage.advance(70)
    (item,) = attention(stage).json["items"]
    assert item["id"].startswith(f"x:{TENANT}:{stage.owner}:acme:")

    told = act(stage, item["id"], "acknowledge", {"reason": "checked at the provider"})

    assert (told.status, told.json["acknowledged"]) == (200, True)


@pytest.mark.parametrize(
    ("subject", "status", "code"),
    [("nobody", 404, "NOTICE_NOT_FOUND"), ("x:a:b:c:d", 404, "NOTICE_NOT_FOUND"), ("x:a:b", 400, "INVALID_ID")],
)
def test_what_is_not_there(stage: Stage, subject: str, status: int, code: str) -> None:
    """Neither read nor guessed."""
    for what, body in (("retry", {}), ("acknowledge", {"reason": "because"})):
        told = act(stage, subject, what, body)
        assert (told.status, told.code) == (status, code)


def test_nothing_secret_is_on_the_list(stage: Stage) -> None:
    """Whatever was exchanged."""
    expired(stage)

    text = json.dumps(attention(stage).json)

    assert not [secret for secret in stage.secrets | set(stage.server.ledger) if secret in text]
