"""
Asking other functions: the sweep to look now, `access_token` to send a refresh again, one of the app's to do something.
None ever fails its caller.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import SECOND
from quitclaim.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


ANSWER_CAP: Final = 64 * 1024


class SweepKick:
    """`ports.Kick`: an asynchronous invocation that carries the ids. A lost one costs a minute, until the schedule."""

    def __init__(self, function: str, client: "Callable[[], LambdaClient]", telemetry: Telemetry) -> None:
        self._function = function
        self._client = client
        self._telemetry = telemetry

    def revoke_now(self, rids: Sequence[str]) -> None:
        """Never raises."""
        if not rids:
            return
        try:
            payload = json.dumps({"rids": list(rids)}).encode()
            self._client().invoke(FunctionName=self._function, InvocationType="Event", Payload=payload)
        except (ClientError, BotoCoreError) as fault:
            self._telemetry.fault("kick failed", fault)


@dataclass(frozen=True)
class Answered:
    """What a function of the app's answered: `hostapp.Invoked`."""

    failed: bool
    payload: bytes


class AppFunction:
    """Invokes a function of the app's and waits for it: `hostapp.Invoke`."""

    def __init__(self, client: "Callable[[int], LambdaClient]", telemetry: Telemetry) -> None:
        self._client = client
        self._telemetry = telemetry

    def __call__(self, function: str, payload: bytes, timeout_ms: int) -> Answered | None:
        """None where nobody answered in time, or it may not be invoked. Never raises."""
        try:
            told = self._client(max(timeout_ms // SECOND, 1) * SECOND).invoke(  # whole seconds: one client for each
                FunctionName=function, InvocationType="RequestResponse", Payload=payload
            )
            return Answered("FunctionError" in told, told["Payload"].read(ANSWER_CAP))
        except (ClientError, BotoCoreError) as fault:
            self._telemetry.fault("hook failed", fault)
            return None


class AccessTokenReplay:
    """
    `ports.Replay`: the one function that may send a refresh, invoked with a closed payload.

    Asynchronously, so that a slow provider holds up nothing else that is due; the lease of row 16 admits one of two.
    """

    def __init__(self, function: str, client: "Callable[[], LambdaClient]", telemetry: Telemetry) -> None:
        self._function = function
        self._client = client
        self._telemetry = telemetry

    def refresh(self, ref: ConnectionRef, pair: str) -> None:
        """Never raises; what comes of it is on record."""
        replay = {"tenant": ref.tenant, "owner": ref.owner, "connection": ref.connection, "pair": pair}
        try:
            payload = json.dumps({"replay": replay}).encode()
            self._client().invoke(FunctionName=self._function, InvocationType="Event", Payload=payload)
        except (ClientError, BotoCoreError) as fault:
            self._telemetry.fault("replay failed", fault)
