"""AWS as moto plays it, a function's telemetry with its lines, and a clock for ages."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from quitclaim.runtime.telemetry import Telemetry
from tests.runtime.output import heard

NUMBERS = count(1)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty account."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        yield


@cache
def sdk(name: str) -> Any:
    """A client: dear to make, and keeps nothing of an account."""
    session = boto3.Session("testing", "testing", region_name="eu-west-1")
    return session.client(name, config=Config(retries={"total_max_attempts": 1}))  # type: ignore[call-overload]


@pytest.fixture
def clients_at_hand(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks boto3 for a client gets one that was made before."""
    monkeypatch.setattr(boto3, "client", lambda name, **_: sdk(name))


@pytest.fixture
def ssm(aws: None) -> Any:
    """Parameter Store."""
    return sdk("ssm")


@pytest.fixture
def secrets_manager(aws: None) -> Any:
    """Secrets Manager."""
    return sdk("secretsmanager")


class Ages:
    """The clock that says how old something kept is."""

    def __init__(self) -> None:
        self.at = 1_800_000_000_000

    def __call__(self) -> int:
        return self.at


@pytest.fixture
def ages() -> Ages:
    """Stands still until a test moves it."""
    return Ages()


@dataclass
class Spoken:
    """Telemetry and what it wrote."""

    telemetry: Telemetry
    service: str
    capsys: pytest.CaptureFixture[str]
    raw: str = ""

    def lines(self) -> list[dict[str, Any]]:
        """Everything written since the last look, line by line."""
        out, err = self.capsys.readouterr()
        self.raw += out + err
        return [json.loads(line) for line in (out + err).splitlines()]


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Spoken:
    """Of a function of its own, so that no other test's handler hears it."""
    service = f"function-{next(NUMBERS)}"
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", service)
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Quitclaim/test")
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "INFO")
    telemetry = Telemetry()
    heard(service)
    return Spoken(telemetry, service, capsys)
