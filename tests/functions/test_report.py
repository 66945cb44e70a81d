"""Reporting a token that the provider refused."""

import pytest

from quitclaim.domain.limits import REPORT_WINDOW_MS, REPORTS
from tests.functions.stage import Stage, sdk


def report(stage: Stage, body: object) -> object:
    return stage.api("POST", "/connections/acme/report", body=body)


def test_a_reported_version_is_refreshed_by_the_next_call(stage: Stage) -> None:
    """200 and whether it is suspect by it; then a new version."""
    stage.connected()
    first = stage.token().json
    stage.lines()

    told = report(stage, {"token_version": first["token_version"]})

    assert (told.status, told.json) == (200, {"suspect": True})
    assert stage.metrics()["TokensReported"] == [1.0]
    assert stage.token().json["token_version"] == first["token_version"] + 1
    assert report(stage, {"token_version": first["token_version"]}).json == {"suspect": False}
    assert stage.api("GET", "/connections/acme").json["state"] == "ready"


def test_a_burst_of_reports_is_answered_and_told_of(stage: Stage) -> None:
    """200, not suspect; the metric by which the alarm goes off, and a line that names the client."""
    stage.connected()
    sdk("dynamodb").put_item(
        TableName=stage.table,
        Item={
            "PK": {"S": "N#acme"},
            "SK": {"S": f"{stage.now() // REPORT_WINDOW_MS * REPORT_WINDOW_MS:013d}"},
            "reports": {"N": str(REPORTS)},
        },
    )
    stage.lines()

    told = report(stage, {"token_version": 1})

    lines = stage.lines()
    assert (told.status, told.json) == (200, {"suspect": False})
    assert [line["client"] for line in lines if line.get("message") == "burst of reports"] == ["acme"]
    assert [line["ReportsIgnored"] for line in lines if "ReportsIgnored" in line] == [[1.0]]
    assert stage.token().json["token_version"] == 1


@pytest.mark.parametrize(
    "body",
    [{}, {"token_version": 0}, {"token_version": "1"}, {"token_version": True}, {"token_version": 1, "why": "401"}, []],
)
def test_what_is_no_report_is_refused(stage: Stage, body: object) -> None:
    """Names the field."""
    told = report(stage, body)

    assert (told.status, told.code) == (400, "INVALID_BODY")


def test_a_report_of_nothing(stage: Stage) -> None:
    """No such connection; no such pair."""
    assert report(stage, {"token_version": 1}).code == "CONNECTION_NOT_FOUND"
    stage.connected()
    assert report(stage, {"token_version": 1, "token": "user"}).json == {"suspect": False}
