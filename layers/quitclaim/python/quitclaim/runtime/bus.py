"""The event bus of the stack: EventBridge, ten events a call."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from quitclaim.ports import Notice
from quitclaim.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

SOURCE: Final = "quitclaim"
"""By which a rule of the app's knows our events."""


class Bus:
    """`ports.EventBus`."""

    def __init__(self, name: str, client: "Callable[[], EventBridgeClient]", telemetry: Telemetry) -> None:
        self._name = name
        self._client = client
        self._telemetry = telemetry

    def send(self, notices: Sequence[Notice]) -> list[bool]:
        """See `ports.EventBus`. PutEvents answers for each entry, in their order."""
        try:
            answer = self._client().put_events(Entries=[self._entry(notice) for notice in notices])
        except (ClientError, BotoCoreError) as fault:
            self._telemetry.fault("bus failed", fault)
            return [False] * len(notices)
        for notice, entry in zip(notices, answer["Entries"], strict=True):
            if "ErrorCode" in entry:
                self._telemetry.warn("event refused", kind=notice.kind, reason=entry["ErrorCode"])
        return ["ErrorCode" not in entry for entry in answer["Entries"]]

    def _entry(self, notice: Notice) -> "PutEventsRequestEntryTypeDef":
        return {
            "EventBusName": self._name,
            "Source": SOURCE,
            "DetailType": notice.kind,
            "Time": datetime.fromtimestamp(notice.at / 1000, UTC),
            "Detail": json.dumps(notice.detail, separators=(",", ":")),
        }
