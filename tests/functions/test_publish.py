"""The function on the table's stream: events in, the bus's answers out."""

import pytest

from quitclaim.runtime.telemetry import RunFailedError
from tests.flows.told import faults_of
from tests.functions.stage import BUS, TENANT
from tests.runtime.events import Context

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}


def numbers(records):
    """Of the records."""
    return [record["dynamodb"]["SequenceNumber"] for record in records]


def failed(told):
    """The numbers that the stream is to tell of again."""
    return [each["itemIdentifier"] for each in told["batchItemFailures"]]


def test_what_the_stream_tells_of_is_on_the_bus(stage):
    """As docs/events says, and counted."""
    stage.connected()
    stage.lines()

    told = stage.invoke("publish", {"Records": stage.outbox()})

    assert failed(told) == []
    (detail,) = BUS.details
    assert (detail["kind"], detail["tenant"], detail["owner"]) == ("connection.ready", TENANT, stage.owner)
    assert faults_of(detail) == []
    assert {entry["EventBusName"] for entry in BUS.taken} == {f"{stage.name}-bus"}
    assert stage.metrics() == {"EventsPublished": [1.0], "EventsLeft": [0.0]}


def test_the_same_batch_again_sends_nothing(stage):
    """The stream tells at least once."""
    stage.connected()
    batch = {"Records": stage.outbox()}
    stage.invoke("publish", batch)

    told = stage.invoke("publish", batch)

    assert failed(told) == []
    assert len(BUS.taken) == 1


def test_what_the_bus_refuses_is_answered_as_failed(stage):
    """By its number, alone; told of again, it is sent again with the same id, and the others are not."""
    for name in ("one", "two", "three"):
        stage.connected(name)
    batch = {"Records": stage.outbox()}
    BUS.refuses = lambda number: "InternalFailure" if number == 1 else None

    told = stage.invoke("publish", batch)

    assert failed(told) == numbers(batch["Records"])[1:2]
    BUS.refuses = lambda number: None
    assert failed(stage.invoke("publish", {"Records": batch["Records"][1:]})) == []
    assert len(BUS.taken) == len({detail["id"] for detail in BUS.details}) == 3


def test_a_batch_without_events_is_nothing(stage):
    """What the filter should have kept away asks nobody."""
    assert stage.invoke("publish", {"Records": []}) == {"batchItemFailures": []}


def test_a_table_that_does_not_answer_fails_the_batch(stage):
    """All of it is told of again: nothing was published, or what was is marked."""
    stage.connected()
    batch = {"Records": stage.outbox()}
    function = stage.cold_start("publish", QUITCLAIM_TABLE="no-such-table")

    with pytest.raises(RunFailedError):
        function.handler(batch, Context(30_000))

    assert BUS.taken == []


def test_reconciliation_publishes_what_no_stream_told_of(stage):
    """A minute later, and the gauge that the alarm watches says what is left."""
    stage.connected()
    stage.advance(61)
    BUS.refuses = lambda number: "ThrottlingException"

    assert stage.invoke("reconcile", SCHEDULE)["failed"] == {"publish": 1}
    assert stage.metrics()["EventsUnpublished"] == [1.0]

    BUS.refuses = lambda number: None
    assert stage.invoke("reconcile", SCHEDULE)["done"] == {"publish": 1}
    assert stage.metrics()["EventsUnpublished"] == [0.0]
    assert stage.invoke("publish", {"Records": stage.outbox()}) == {"batchItemFailures": []}
    assert len(BUS.taken) == 1


@pytest.mark.rule("I-17")
def test_no_event_holds_a_secret(stage):
    """Of a whole life: link, cookie, state, code, tokens, confirmation, client secret."""
    stage.connected()
    stage.token()
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    stage.invoke("revoke_sweep", SCHEDULE)
    stage.invoke("reconcile", SCHEDULE)
    stage.invoke("publish", {"Records": stage.outbox()})

    assert len(BUS.taken) >= 4
    assert stage.leaks(str(BUS.taken)) == []
