"""The alarms: each watches what it says, treats silence on purpose, and has a page for whoever it wakes."""

import re

import pytest

from tests.infra.deployed import ROOT, alarms, function_ids, nested, of_type, short

MISSING_DATA = {
    "RevocationsExpired": "ignore",
    "RemovalNotices": "ignore",
    "AccountCountsWrong": "ignore",
    "StopsOverdue": "ignore",
    "ReportsBurst": "notBreaching",
    "ClientRefused": "notBreaching",
    "SweepHeartbeat": "breaching",
    "ReconcileSilent": "breaching",
    "MaintainSilent": "breaching",
    "FailureQueueNotEmpty": "ignore",
    "EventsUnpublished": "ignore",
    "PublishBehind": "notBreaching",
    "HooksFailing": "notBreaching",
    "WebhooksRefused": "notBreaching",
    "DeliveriesUndelivered": "ignore",
    "DeliveriesLate": "notBreaching",
    "DeliveryDeadLettersNotEmpty": "ignore",
} | {
    f"{function}{metric}": "notBreaching"
    for function in (
        "AppApi",
        "AccessToken",
        "Connect",
        "RevokeSweep",
        "Reconcile",
        "Maintain",
        "Publish",
        "Deliver",
        "Webhook",
    )
    for metric in ("Errors", "Throttles")
}
"""A gauge keeps its state, silence of a schedule is the failure itself, and no event is no failure."""
PAGES = ROOT / "docs" / "runbooks"

every_alarm = pytest.mark.parametrize("name", sorted(MISSING_DATA))


def page_of(name: str) -> str:
    """The page that the alarm names."""
    (page,) = re.findall(r"docs/runbooks/([a-z-]+\.md)", alarms()[name]["AlarmDescription"])
    return str(page)


def test_the_alarms_are_these() -> None:
    """No alarm without a decision on missing data."""
    assert {name: each["TreatMissingData"] for name, each in alarms().items()} == MISSING_DATA


@every_alarm
def test_an_alarm_tells_the_topic_when_it_begins_and_ends(name: str) -> None:
    """With a topic, the topic is told; without one the alarm is still shown."""
    told = {"Fn::If": ["HasTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}

    assert alarms()[name]["AlarmActions"] == told
    assert alarms()[name]["OKActions"] == told


@every_alarm
def test_an_alarm_has_a_page(name: str) -> None:
    """The page says what it means, how to check and what to do."""
    text = (PAGES / page_of(name)).read_text(encoding="utf-8")

    assert f"`{name}`" in text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Meaning", "Check", "Act"]


def test_every_page_has_an_alarm() -> None:
    """No page is about an alarm that is gone."""
    assert {page.name for page in PAGES.glob("*.md")} - {"README.md"} == {page_of(name) for name in MISSING_DATA}


@pytest.mark.rule("I-8")
def test_expired_revocations_alarm_at_once() -> None:
    """One expired revocation is one too many: one data point above zero (P-4: within two minutes)."""
    alarm = alarms()["RevocationsExpired"]

    assert (alarm["Namespace"], alarm["MetricName"]) == ({"Ref": "MetricNamespace"}, "RevocationsExpired")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    assert (alarm["Statistic"], alarm["Period"], alarm["EvaluationPeriods"]) == ("Maximum", 60, 1)


@pytest.mark.rule("D-33")
def test_a_missing_heartbeat_alarms() -> None:
    """Three minutes without a sweep that came to its end, whether it sent nothing or less than one."""
    alarm = alarms()["SweepHeartbeat"]

    assert (alarm["Namespace"], alarm["MetricName"]) == ({"Ref": "MetricNamespace"}, "SweepHeartbeat")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 180
    assert "DatapointsToAlarm" not in alarm


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("RevocationsExpired", "revoke_sweep"),
        ("RemovalNotices", "revoke_sweep"),
        ("SweepHeartbeat", "revoke_sweep"),
        ("AccountCountsWrong", "maintain"),
        ("StopsOverdue", "revoke_sweep"),
        ("DeliveriesUndelivered", "revoke_sweep"),
        ("WebhooksRefused", "webhook"),
        ("ReportsBurst", "app_api"),
        ("EventsUnpublished", "reconcile"),
        ("HooksFailing", "reconcile"),
    ],
)
def test_metrics_of_ours_are_found_by_the_service(name: str, service: str) -> None:
    """The dimension is the one that the function's logger of metrics sets: its service name."""
    assert alarms()[name]["Dimensions"] == [{"Name": "service", "Value": service}]


@pytest.mark.rule("RB-20")
def test_a_refused_client_has_one_alarm_whoever_noticed() -> None:
    """The sum over the functions that talk to providers, and of what the sweep is refused for good."""
    alarm = alarms()["ClientRefused"]
    watched = {
        (each["MetricStat"]["Metric"]["Dimensions"][0]["Value"], each["MetricStat"]["Metric"]["MetricName"])
        for each in alarm["Metrics"]
        if "MetricStat" in each
    }

    assert watched == {
        ("access_token", "ClientRefused"),
        ("connect", "ClientRefused"),
        ("revoke_sweep", "ClientRefused"),
        ("revoke_sweep", "RevocationsRefused"),
    }
    assert (alarm["ComparisonOperator"], alarm["Threshold"], alarm["EvaluationPeriods"]) == (
        "GreaterThanThreshold",
        0,
        1,
    )


@pytest.mark.parametrize("name", ["ReconcileSilent", "MaintainSilent"])
def test_silence_of_a_schedule_is_longer_than_its_period(name: str) -> None:
    """An alarm after three minutes of silence, or four quarters of an hour: one late start wakes nobody."""
    alarm = alarms()[name]

    period = {"ReconcileSilent": 60, "MaintainSilent": 900}[name]
    assert alarm["Period"] * alarm["EvaluationPeriods"] >= 3 * period
    assert (alarm["ComparisonOperator"], alarm["Threshold"], alarm["Statistic"]) == ("LessThanThreshold", 1, "Sum")


def test_the_age_of_the_stream_is_watched() -> None:
    """Of the function that reads it, long before the stream forgets."""
    alarm = alarms()["PublishBehind"]

    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "IteratorAge")
    assert short(alarm["Dimensions"][0]["Value"]) == "${PublishFunctionName}"
    assert alarm["Threshold"] <= 10 * 60 * 1000


@pytest.mark.parametrize("metric", ["Errors", "Throttles"])
def test_every_function_is_watched(metric: str) -> None:
    """Each function has an alarm of its own for errors and for throttles, from the first one on."""
    watching = [
        each for each in alarms().values() if (each.get("Namespace"), each.get("MetricName")) == ("AWS/Lambda", metric)
    ]

    watched = {short(each["Dimensions"][0]["Value"]) for each in watching}

    assert watched == {f"${{{logical_id}Name}}" for logical_id in function_ids().values()}
    for each in watching:
        assert (each["Statistic"], each["Period"], each["EvaluationPeriods"]) == ("Sum", 60, 1)
        assert (each["ComparisonOperator"], each["Threshold"]) == ("GreaterThanThreshold", 0)


def test_the_nested_stack_gets_every_name_it_needs() -> None:
    """The parameters of infra/alarms.yaml are those that template.yaml passes, each from what it is named after."""
    (stack,) = of_type("AWS::CloudFormation::Stack").values()

    passed = {name: short(value) for name, value in stack["Parameters"].items()}

    assert stack["TemplateURL"] == "infra/alarms.yaml"
    assert set(passed) == set(nested()["Parameters"])
    for name, value in passed.items():
        if name.endswith("FunctionName"):
            assert value == f"${{{name.removesuffix('Name')}}}"
