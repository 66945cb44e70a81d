"""Asking other functions: what is sent, and that it never fails whoever asks."""

import json

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from quitclaim.domain.ids import ConnectionRef
from quitclaim.runtime.invoke import AccessTokenReplay, SweepKick

REF = ConnectionRef("acme", "ann", "google")
CANARY = "canary-90bd"


class FakeLambda:
    """Remembers what it was asked; raises what it was told to."""

    def __init__(self, fault=None):
        self.fault = fault
        self.asked = []

    def invoke(self, **request):
        self.asked.append(request)
        if self.fault is not None:
            raise self.fault
        return {"StatusCode": 202}


def test_a_kick_names_the_revocations(spoken):
    """Asynchronously, and by their ids alone."""
    fake = FakeLambda()

    SweepKick("sweep", lambda: fake, spoken.telemetry).revoke_now(("r1", "r2"))

    (asked,) = fake.asked
    assert (asked["FunctionName"], asked["InvocationType"]) == ("sweep", "Event")
    assert json.loads(asked["Payload"]) == {"rids": ["r1", "r2"]}


def test_nothing_to_revoke_is_no_kick(spoken):
    """Not even a client is made for it."""
    SweepKick("sweep", lambda: pytest.fail("nobody asked for a client"), spoken.telemetry).revoke_now([])


def test_a_replay_is_a_closed_payload(spoken):
    """Synchronously; exactly what `access_token` takes."""
    fake = FakeLambda()

    AccessTokenReplay("access", lambda: fake, spoken.telemetry).refresh(REF, "main")

    (asked,) = fake.asked
    assert (asked["FunctionName"], asked["InvocationType"]) == ("access", "Event")
    assert json.loads(asked["Payload"]) == {
        "replay": {"tenant": "acme", "owner": "ann", "connection": "google", "pair": "main"}
    }


FAULTS = [
    ClientError({"Error": {"Code": "TooManyRequestsException", "Message": CANARY}}, "Invoke"),
    ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": CANARY}}, "Invoke"),
    ConnectTimeoutError(endpoint_url=f"https://{CANARY}"),
    ReadTimeoutError(endpoint_url=f"https://{CANARY}"),
]


@pytest.mark.rule("F-11")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_call_that_fails_is_a_line_in_the_log_and_nothing_else(spoken, fault):
    """What was asked for is due by itself as well; no library's words."""
    SweepKick("sweep", lambda: FakeLambda(fault), spoken.telemetry).revoke_now(["r1"])
    AccessTokenReplay("access", lambda: FakeLambda(fault), spoken.telemetry).refresh(REF, "main")

    assert [(line["message"], line["fault"]) for line in spoken.lines()] == [
        ("kick failed", type(fault).__name__),
        ("replay failed", type(fault).__name__),
    ]
    assert CANARY not in spoken.raw
