"""Log lines hold listed fields and nobody's words; metrics are lines of the embedded metric format."""

import logging

import pytest

from quitclaim.runtime.telemetry import ALLOWED, FieldNotAllowedError, RunFailedError

CANARY = "canary-77aa"
POWERTOOLS_ITSELF = {
    "level",
    "location",
    "message",
    "timestamp",
    "service",
    "cold_start",
    "xray_trace_id",
    "sampling_rate",
}


def test_a_line_holds_what_it_was_given_and_nothing_else(spoken):
    """JSON; its time with a zone; the function's name."""
    spoken.telemetry.say("callback", outcome="failed", code="OAUTH_STATE_INVALID", provider="google")
    spoken.telemetry.warn("return target dropped")

    one, two = spoken.lines()
    assert (one["level"], one["message"], one["service"]) == ("INFO", "callback", spoken.service)
    assert (one["outcome"], one["code"], one["provider"]) == ("failed", "OAUTH_STATE_INVALID", "google")
    assert one.keys() - POWERTOOLS_ITSELF == {"outcome", "code", "provider"}
    assert (two["level"], two["message"]) == ("WARNING", "return target dropped")
    assert two.keys() - POWERTOOLS_ITSELF == set()
    assert one["timestamp"].endswith(("Z", "+00:00"))


@pytest.mark.parametrize("field", sorted(ALLOWED))
def test_a_listed_field_is_written(spoken, field):
    """Each of them; a name that the logger itself uses would be lost or raise."""
    spoken.telemetry.say("said", **{field: "x"})

    (line,) = spoken.lines()
    assert line[field] == "x"


@pytest.mark.rule("S-13", "I-17")
@pytest.mark.parametrize(
    "field",
    ["token", "access_token", "body", "event", "headers", "query", "url", "state_value", "error", "message_", "e"],
)
@pytest.mark.parametrize("speak", ["say", "warn", "fault"])
def test_another_field_is_a_mistake_of_ours(spoken, speak, field):
    """It raises where it is written, in the test that first meets it; nothing is logged, not even its value."""
    fault = (ValueError("x"),) if speak == "fault" else ()

    with pytest.raises(FieldNotAllowedError) as refused:
        getattr(spoken.telemetry, speak)("said", *fault, **{field: CANARY})

    assert field in str(refused.value)
    assert CANARY not in str(refused.value)
    assert spoken.lines() == []


@pytest.mark.rule("S-13")
def test_the_list_has_no_field_for_a_secret():
    """Held as a whole: adding one needs a look at this test."""
    assert {
        "code",
        "status",
        "route",
        "kind",
        "fault",
        "where",
        "client",
        "provider",
        "connection_id",
        "generation",
        "outcome",
        "state",
        "counts",
        "request_id",
        "rids",
        "reason",
        "duration_ms",
    } == ALLOWED


def fails(depth: int = 6) -> None:
    """Raises from some way down, quoting what it was given, with a cause and a note that do so as well."""
    if depth:
        return fails(depth - 1)
    cause = KeyError(CANARY)
    cause.add_note(CANARY)
    raise ValueError(f"could not read {CANARY}", {"token": CANARY}) from cause


@pytest.mark.rule("S-13", "S-32", "I-17")
def test_an_exception_is_its_class_and_its_place(spoken):
    """Never its words, its arguments, its cause or its notes."""
    with pytest.raises(ValueError, match=CANARY) as caught:
        fails()

    spoken.telemetry.fault("unexpected", caught.value, request_id="request-1")

    (line,) = spoken.lines()
    assert (line["level"], line["message"]) == ("ERROR", "unexpected")
    assert (line["fault"], line["request_id"]) == ("ValueError", "request-1")
    assert len(line["where"]) == 4
    assert all(place.startswith("test_telemetry.py:") and place.endswith(" fails") for place in line["where"])
    assert line.keys() - POWERTOOLS_ITSELF == {"fault", "where", "request_id"}
    assert CANARY not in spoken.raw


def test_an_exception_that_was_never_raised_has_no_place(spoken):
    """And is still told of."""
    spoken.telemetry.fault("kick failed", ValueError(CANARY))

    (line,) = spoken.lines()
    assert (line["fault"], line["where"]) == ("ValueError", [])
    assert CANARY not in spoken.raw


@pytest.mark.rule("S-13")
@pytest.mark.parametrize("library", ["botocore", "boto3", "urllib3", "httpx", "httpcore", "aiohttp"])
def test_libraries_keep_their_words_to_themselves(spoken, caplog, library):
    """At whatever level the function logs."""
    caplog.set_level(logging.DEBUG)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(f"{library}.client").log(level, CANARY)
        logging.getLogger(library).log(level, CANARY)

    assert CANARY not in caplog.text
    spoken.lines()
    assert CANARY not in spoken.raw


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_counts_become_one_line_of_the_embedded_metric_format(spoken):
    """Namespace of the stack, the function as the only dimension, counts as counts; and no other field."""
    spoken.telemetry.count("RevocationsConfirmed", 3)
    spoken.telemetry.count("SweepHeartbeat")
    spoken.telemetry.count("RevocationsConfirmed", 2)

    spoken.telemetry.flush()

    (line,) = spoken.lines()
    aws = line.pop("_aws")
    assert type(aws.pop("Timestamp")) is int
    (directive,) = aws.pop("CloudWatchMetrics")
    assert aws == {}
    assert directive["Namespace"] == "Quitclaim/test"
    assert directive["Dimensions"] == [["service"]]
    assert sorted((each["Name"], each["Unit"]) for each in directive["Metrics"]) == [
        ("RevocationsConfirmed", "Count"),
        ("SweepHeartbeat", "Count"),
    ]
    assert line == {"service": spoken.service, "RevocationsConfirmed": [3.0, 2.0], "SweepHeartbeat": [1.0]}


def test_a_gauge_of_nothing_is_published_all_the_same(spoken):
    """Zero is a value: an alarm on it must be able to end (H-16)."""
    spoken.telemetry.count("RevocationsExpired", 0)
    spoken.telemetry.flush()

    (line,) = spoken.lines()
    assert line["RevocationsExpired"] == [0.0]


def test_what_was_written_is_not_written_again(spoken):
    """One invocation, one line; and none where nothing was counted."""
    spoken.telemetry.flush()
    assert spoken.lines() == []
    spoken.telemetry.count("SweepHeartbeat")
    spoken.telemetry.flush()
    spoken.telemetry.flush()

    assert len(spoken.lines()) == 1


def test_more_than_a_hundred_metrics_are_all_written(spoken):
    """The format takes a hundred a line."""
    for number in range(120):
        spoken.telemetry.count(f"Metric{number}")
    spoken.telemetry.flush()

    names = {name for line in spoken.lines() for name in line if name.startswith("Metric")}
    assert len(names) == 120


# --- an invocation ---------------------------------------------------------------------------------------------------


def test_an_invocation_writes_its_metrics_however_it_ends(spoken):
    """Well, or by a fault: that one rises as an error of ours, for Lambda logs the words of whatever rises."""
    with spoken.telemetry.invocation():
        spoken.telemetry.count("SweepHeartbeat")
    well = spoken.lines()

    def run():
        with spoken.telemetry.invocation():
            spoken.telemetry.count("SweepHeartbeat")
            fails()

    with pytest.raises(RunFailedError) as raised:
        run()
    badly = spoken.lines()

    assert [line["SweepHeartbeat"] for line in well] == [[1.0]]
    assert [line["SweepHeartbeat"] for line in badly if "_aws" in line] == [[1.0]]
    assert [(line["message"], line["fault"]) for line in badly if "fault" in line] == [("run failed", "ValueError")]
    assert str(raised.value) == "ValueError"
    assert raised.value.__suppress_context__
    assert CANARY not in spoken.raw


def test_a_return_from_inside_an_invocation_returns(spoken):
    """Nothing is swallowed, and nothing is made of it."""

    def run():
        with spoken.telemetry.invocation():
            return 1

    assert run() == 1
