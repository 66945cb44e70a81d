"""Messages to who handles deliveries: what they say, and how long they wait."""

import json
from typing import Any

import pytest

from quitclaim.runtime.queue import DeliveryQueue
from quitclaim.runtime.telemetry import Telemetry


class RecordingSqs:
    """The one call that a sender makes."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send_message(self, **request: Any) -> None:
        """Remember it."""
        self.sent.append(request)


@pytest.mark.rule("M-75")
@pytest.mark.parametrize(("after_ms", "wait_s"), [(0, 0), (1, 2), (999, 2), (1_000, 3), (3_000, 5)])
def test_what_is_to_wait_waits_longer_than_that(after_ms: int, wait_s: int) -> None:
    """By a second at least, for clocks that differ; whatever need not wait is there at once."""
    sqs = RecordingSqs()

    DeliveryQueue("q", lambda: sqs, Telemetry()).send("acme", "d-1", after_ms)  # type: ignore[arg-type,return-value]

    (message,) = sqs.sent
    assert json.loads(message["MessageBody"]) == {"client": "acme", "digest": "d-1"}
    assert message["DelaySeconds"] == wait_s
