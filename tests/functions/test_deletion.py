"""Deleting an owner over HTTP, and what a deleted owner is answered."""

import pytest

from tests.functions.stage import TENANT, Stage

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}


@pytest.mark.rule("F-27")
def test_an_owner_is_deleted_and_everything_is_revoked(stage: Stage) -> None:
    """200 and the fence; the next run of reconciliation stops, kicks, and says so in the status."""
    stage.connected()

    told = stage.api("DELETE")

    assert (told.status, told.json["owner"].keys()) == (200, {"deleted", "deleted_at"})
    assert told.json["owner"]["deleted"] is True
    assert stage.metrics()["OwnersDeleted"] == [1.0]
    assert stage.invoke("reconcile", SCHEDULE)["done"]["deletion"] == 1
    (kick,) = stage.kicks
    stage.invoke("revoke_sweep", kick)
    stage.invoke("reconcile", SCHEDULE)
    status = stage.api("GET", "/status")
    assert status.status == 200
    assert status.json["owner"].keys() == {"deleted", "deleted_at", "stopped_at"}
    assert [each["state"] for each in status.json["connections"]] == ["revoked"]
    assert stage.server.live() == []
    assert [each["outcome"] for each in stage.api("GET", "/receipts").json["receipts"]] == ["confirmed"]


@pytest.mark.rule("F-27", "I-18")
def test_repeating_it_answers_the_same(stage: Stage) -> None:
    """Known or not, once or often."""
    first = stage.api("DELETE")
    before = stage.items()
    stage.advance(60)

    again = stage.api("DELETE")

    assert (again.status, again.json) == (first.status, first.json)
    assert stage.items() == before


@pytest.mark.rule("F-14", "I-10")
@pytest.mark.parametrize(
    ("method", "path", "given"),
    [
        ("POST", "/connections", {"body": {"connection_id": "acme", "provider": "acme"}}),
        ("GET", "/connections", {}),
        ("GET", "/connections/acme", {}),
        ("DELETE", "/connections/acme", {"headers": {"if-match": '"1"'}}),
        ("POST", "/connections/acme/reconnect", {"body": {}}),
        ("POST", "/connections/acme/confirm", {"body": {"generation": 1, "code": "00000-00000"}}),
        ("POST", "/connections/acme/report", {"body": {"token_version": 1}}),
    ],
)
def test_a_deleted_owner_is_answered_410(stage: Stage, method: str, path: str, given: dict[str, object]) -> None:
    """Every route of the owner but status, receipts and acknowledgement."""
    stage.connected()
    stage.api("DELETE")

    told = stage.api(method, path, **given)

    assert (told.status, told.code) == (410, "OWNER_DELETED")


@pytest.mark.rule("I-5", "F-14")
def test_no_token_is_handed_out_to_a_deleted_owner(stage: Stage) -> None:
    """From the fence on, whatever has been stopped by then."""
    stage.connected()
    assert stage.token().status == 200
    stage.api("DELETE")

    told = stage.token()

    assert (told.status, told.code) == (410, "OWNER_DELETED")


def test_a_deleted_owner_may_still_acknowledge(stage: Stage) -> None:
    """There is nothing here, and that is the answer; not that the owner is gone."""
    stage.connected()
    stage.api("DELETE")

    told = stage.api("POST", "/connections/acme/acknowledge-removal", body={})

    assert (told.status, told.code) == (409, "NOTHING_TO_ACKNOWLEDGE")
    assert stage.api("POST", "/connections/nobody/acknowledge-removal", body={}).code == "CONNECTION_NOT_FOUND"


def test_another_owner_is_as_before(stage: Stage) -> None:
    """The fence is one owner's."""
    stage.http("app_api", "DELETE", f"/v1/tenants/{TENANT}/owners/somebody-else")

    assert stage.connected()["state"] == "ready"


def test_an_owner_out_of_pattern_is_refused(stage: Stage) -> None:
    """Before anything is written."""
    told = stage.http("app_api", "DELETE", f"/v1/tenants/{TENANT}/owners/..")

    assert told.status in (400, 404)
    assert stage.items() == {}
