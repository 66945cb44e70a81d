"""The sweep: kicked by ids or fired by a schedule; its counts, its metrics, and its silence about tokens."""

from dataclasses import asdict

import pytest

from quitclaim.flows.revocations import Swept
from quitclaim.runtime.telemetry import RunFailedError
from tests.fakes.provider import answers, lost_request
from tests.functions.stage import Stage, sdk

SCHEDULE = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}
NOTHING = asdict(Swept())


def stopped(stage: Stage, *connections: str) -> list[str]:
    """Connections that were stopped; the ids of their revocations."""
    for number, connection in enumerate(connections):
        stage.add_client(f"client-{connection}")
        stage.connected(connection, client=f"client-{connection}")
        stage.api("DELETE", f"/connections/{connection}", headers={"if-match": '"1"'})
        assert len(stage.kicks) == number + 1
    stage.lines()
    return [rid for kick in stage.kicks for rid in kick["rids"]]


@pytest.mark.rule("F-55")
def test_a_kick_revokes_what_it_names(stage):
    """By key; counts and metrics; one line, and no token in it."""
    one, other = stopped(stage, "one", "other")

    told = stage.invoke("revoke_sweep", {"rids": [one]})

    assert told == NOTHING | {"claimed": 1, "confirmed": 1}
    lines = stage.lines()
    (line,) = [line for line in lines if line.get("message") == "swept"]
    assert line["counts"] == told
    (metric,) = [line for line in lines if "_aws" in line]
    assert (metric["RevocationsConfirmed"], metric["RevocationsDeferred"]) == ([1.0], [0.0])
    assert "SweepHeartbeat" not in metric
    assert len(stage.server.live("refresh_token")) == 1
    assert stage.items()[f"Q#{other}", "Q"]["state"] == {"S": "pending"}


@pytest.mark.rule("F-55", "D-33", "D-35")
def test_the_schedule_revokes_what_is_due(stage):
    """Of every client; the heartbeat and every gauge are published, also where they are zero."""
    stopped(stage, "one", "other")

    told = stage.invoke("revoke_sweep", SCHEDULE)

    assert told == NOTHING | {"claimed": 2, "confirmed": 2}
    assert stage.server.live() == []
    assert stage.metrics() == {
        "SweepHeartbeat": [1.0],
        "RevocationsConfirmed": [2.0],
        "RevocationsDeferred": [0.0],
        "RevocationsQuarantined": [0.0],
        "RevocationsRefused": [0.0],
        "ItemsFailed": [0.0],
        "RevocationsExpired": [0.0],
        "RevocationsInQuarantine": [0.0],
        "RemovalNotices": [0.0],
        "StopsOverdue": [0.0],
        "DeliveriesUndelivered": [0.0],
    }


@pytest.mark.rule("F-11")
def test_a_heartbeat_that_fails_stops_no_sweep(stage):
    """It is told of; the clients of now are swept."""
    stopped(stage, "one")
    poisoned = {"PK": {"S": "H#revoke_sweep"}, "SK": {"S": "H"}, "clients": {"N": "7"}}
    sdk("dynamodb").put_item(TableName=stage.table, Item=poisoned)

    told = stage.invoke("revoke_sweep", SCHEDULE)

    assert told == NOTHING | {"claimed": 1, "confirmed": 1}
    assert [line["message"] for line in stage.lines() if line.get("level") == "ERROR"] == ["heartbeat failed"]


def test_a_second_run_finds_nothing(stage):
    """Neither by schedule nor by a late kick."""
    rids = stopped(stage, "one")
    stage.invoke("revoke_sweep", {"rids": rids})
    stage.server.asked.clear()

    assert stage.invoke("revoke_sweep", {"rids": rids}) == NOTHING
    assert stage.invoke("revoke_sweep", SCHEDULE) == NOTHING
    assert stage.server.asked == []


@pytest.mark.rule("F-46")
@pytest.mark.parametrize("rids", [[], ["unknown"], [""], [1, None, {}, ["r"]], ["x" * 500], ["a#b", "../c"], ["u"] * 3])
def test_a_kick_of_nothing_does_nothing(stage, rids):
    """Whatever it names: what is due is left to the schedule, and nobody is asked."""
    stopped(stage, "one")
    before = stage.items()

    assert stage.invoke("revoke_sweep", {"rids": rids}) == NOTHING

    assert stage.items() == before
    assert stage.server.asked.count("/revoke") == 0


@pytest.mark.rule("F-46")
def test_a_kick_of_many_is_taken_in_parts(stage):
    """More than one call to the table takes; a hundred at the most, the schedule finds the rest."""
    rids = stopped(stage, "one")
    many = [f"unknown-{number}" for number in range(99)] + rids

    assert stage.invoke("revoke_sweep", {"rids": ["one too many", *many]}) == NOTHING
    told = stage.invoke("revoke_sweep", {"rids": [*many, "beyond"]})

    assert told["confirmed"] == 1


@pytest.mark.rule("F-50", "F-55", "I-16", "F-8")
def test_more_than_a_batch_at_once(new_stage):
    """Claims and settles go to the table 25 at a time; what does not open is quarantined, not lost."""
    stage = new_stage(revocation__reach="token")
    (rid,) = stopped(stage, "one")
    copies = [f"copy-{number}" for number in range(26)]
    item = stage.items()[f"Q#{rid}", "Q"]
    for copy in copies:  # sealed for another id, so none of them opens
        sdk("dynamodb").put_item(TableName=stage.table, Item=item | {"PK": {"S": f"Q#{copy}"}})

    told = stage.invoke("revoke_sweep", {"rids": [*copies, rid]})

    assert told == NOTHING | {"claimed": 27, "confirmed": 1, "quarantined": 26}
    assert stage.server.live() == []
    items = stage.items()
    assert all(items[f"Q#{copy}", "Q"]["material"] for copy in copies)


@pytest.mark.rule("F-52", "D-25", "F-55")
@pytest.mark.parametrize("misbehaviour", [answers(503), lost_request], ids=["busy", "silent"])
def test_a_provider_that_does_not_answer_defers(stage, misbehaviour):
    """Counted, and due again a minute later; nothing is lost."""
    rids = stopped(stage, "one")
    stage.server.next("/revoke", misbehaviour)

    told = stage.invoke("revoke_sweep", {"rids": rids})
    early = stage.invoke("revoke_sweep", SCHEDULE)
    stage.advance(61)
    late = stage.invoke("revoke_sweep", SCHEDULE)

    assert told == NOTHING | {"claimed": 1, "deferred": 1}
    assert early == NOTHING
    assert late == NOTHING | {"claimed": 1, "confirmed": 1}


@pytest.mark.rule("F-48", "I-8", "F-55", "F-36")
def test_what_was_never_revoked_expires_and_is_shown(stage):
    """After its deadline: a notice for the owner, and a gauge for the operator on every run."""
    stopped(stage, "one")
    stage.advance(86_340 + 6)

    told = stage.invoke("revoke_sweep", SCHEDULE)
    first = stage.metrics()
    stage.invoke("revoke_sweep", SCHEDULE)
    second = stage.metrics()

    assert told == NOTHING | {"expired": 1}
    assert stage.server.asked.count("/revoke") == 0
    for metrics in (first, second):
        assert (metrics["RevocationsExpired"], metrics["RemovalNotices"]) == ([1.0], [1.0])
    (notice,) = stage.api("GET", "/status").json["notices"]
    assert notice["level"] == "permission_removal_required"


@pytest.mark.rule("F-46", "F-54")
def test_without_time_nothing_is_claimed(stage):
    """A claim needs its lease and the queue before its send."""
    rids = stopped(stage, "one")

    told = stage.invoke("revoke_sweep", {"rids": rids}, remaining_ms=50_000)

    assert told == NOTHING
    assert stage.items()[f"Q#{rids[0]}", "Q"].get("lease") is None


@pytest.mark.rule("S-13")
def test_a_fault_of_a_run_is_an_error_without_words(stage, monkeypatch):
    """Lambda counts it, an alarm follows; what a library said is neither raised nor logged. Metrics are written."""

    def broken(*_, **__):
        raise RuntimeError("canary-of-a-library")

    module = stage.function("revoke_sweep")
    monkeypatch.setattr(module, "sweep", broken)

    with pytest.raises(RunFailedError) as raised:
        stage.invoke("revoke_sweep", SCHEDULE)

    assert "canary-of-a-library" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert [line["fault"] for line in stage.lines() if "fault" in line] == ["RuntimeError"]
    assert "canary-of-a-library" not in stage.raw
