"""What leaves for EventBridge, and what each of its answers means."""

import json
from datetime import UTC, datetime

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber

from quitclaim.ports import Key, Notice
from quitclaim.runtime.bus import Bus
from quitclaim.runtime.stream import new_events

AT = 1_796_038_850_253
NOTICES = [Notice("connection.ready", AT, {"id": f"evt_{number}", "owner": "ann"}) for number in range(3)]


@pytest.fixture
def client():
    """botocore's own, which knows what the service takes and answers."""
    return boto3.client("events", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")


def sent(client, answer, telemetry):
    """What the bus says of three notices that the service answers so, and what it was sent."""
    requests = []
    client.meta.events.register("before-parameter-build.events.PutEvents", lambda params, **_: requests.append(params))
    with Stubber(client) as stub:
        stub.add_response("put_events", answer)
        taken = Bus("bus", lambda: client, telemetry).send(NOTICES)
    return taken, requests


def test_an_entry_says_what_it_is_and_when(client, spoken):
    """Source, kind, the time of the transition, and the detail as it is."""
    taken, (request,) = sent(
        client, {"FailedEntryCount": 0, "Entries": [{"EventId": str(n)} for n in range(3)]}, spoken.telemetry
    )

    assert taken == [True, True, True]
    first = request["Entries"][0]
    assert (first["EventBusName"], first["Source"], first["DetailType"]) == ("bus", "quitclaim", "connection.ready")
    assert first["Time"] == datetime(2026, 11, 30, 11, 40, 50, 253_000, UTC)
    assert json.loads(first["Detail"]) == {"id": "evt_0", "owner": "ann"}


def test_each_entry_has_an_answer_of_its_own(client, spoken):
    """One refused entry is told by its reason, and the others are taken."""
    entries = [{"EventId": "1"}, {"ErrorCode": "ThrottlingException", "ErrorMessage": "secret"}, {"EventId": "3"}]

    taken, _ = sent(client, {"FailedEntryCount": 1, "Entries": entries}, spoken.telemetry)

    assert taken == [True, False, True]
    (line,) = spoken.lines()
    assert (line["message"], line["kind"], line["reason"]) == (
        "event refused",
        "connection.ready",
        "ThrottlingException",
    )
    assert "secret" not in json.dumps(line)


@pytest.mark.parametrize(
    "fault",
    [
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "x"}}, "PutEvents"),
        EndpointConnectionError(endpoint_url="https://events"),
    ],
)
def test_a_call_that_fails_took_nothing(fault, spoken):
    """Whether it did or not: what is not known to be taken is sent again."""

    class Failing:
        def put_events(self, **_):
            raise fault

    assert Bus("bus", Failing, spoken.telemetry).send(NOTICES) == [False, False, False]
    assert [line["fault"] for line in spoken.lines()] == [type(fault).__name__]


def record(name, pk, sk, number):
    """Of the stream."""
    return {"eventName": name, "dynamodb": {"Keys": {"PK": {"S": pk}, "SK": {"S": sk}}, "SequenceNumber": number}}


def test_new_events_are_found_in_a_batch():
    """In order, with their numbers; what the filter should have kept away is left out."""
    batch = {
        "Records": [
            record("INSERT", "O#t#o", "E#1#a", "11"),
            record("MODIFY", "O#t#o", "E#2#b", "12"),
            record("INSERT", "E#client#digest", "A", "13"),
            record("INSERT", "O#t#o", "C#c", "14"),
            record("INSERT", "O#t#o", "E#3#c", "15"),
        ]
    }

    assert new_events(batch) == {Key("O#t#o", "E#1#a"): "11", Key("O#t#o", "E#3#c"): "15"}
