"""The hook `connection.establishing`, function by function: what is asked, and what becomes of a no."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import httpx
import pytest

from quitclaim.providers import transport
from tests.functions.stage import LAMBDA, Stage, sdk
from tests.functions.test_brokers import linked

FUNCTION: Final = "arn:aws:lambda:eu-west-1:111122223333:function:app"


def answers(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The app's function answers this; what it was asked."""
    asked: list[dict[str, Any]] = []
    real = LAMBDA.invoke

    def invoke(**given: Any) -> dict[str, Any]:
        told = real(**given)
        if given["InvocationType"] == "RequestResponse":
            asked.append(json.loads(given["Payload"]))
            told["Payload"] = BytesIO(json.dumps(said).encode())
        return told

    monkeypatch.setattr(LAMBDA, "invoke", invoke)
    return asked


@pytest.mark.rule("M-44", "S-8", "S-18")
def test_the_app_is_asked_about_what_nobody_confirms(
    new_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTPS or by its function, each call one that the role allows; its no is a page and a revocation."""
    stage = new_stage()
    app = httpx.MockTransport(lambda request: httpx.Response(204))
    monkeypatch.setattr(transport, "sync_http", lambda: httpx.Client(transport=app))
    stage.add_client("other", confirmation="none")
    stage.add_client("health", provider="health", confirmation="none")
    signing = f"/quitclaim-hooks/{stage.name}/establishing"
    sdk("ssm").put_parameter(Name=signing, Value="whsec_" + "QUFB" * 8, Type="SecureString")
    stage.put(
        "hooks/connection.establishing",
        json.dumps({"url": "https://app.example/hooks", "secrets": [f"ssm:{signing}"]}),
    )

    assert stage.returned(stage.start("by-url", client="other")).status == 200

    stage.put("hooks/connection.establishing", json.dumps({"function": FUNCTION}))
    stage.restart()
    asked = answers(monkeypatch, {"status": "admitted"})
    assert linked(stage, source="oura").status == 200
    assert (asked[0]["type"], asked[0]["data"]["source"]) == ("connection.establishing", "oura")
    answers(monkeypatch, None)
    stage.lines()
    refused = linked(stage, "health-too", source="oura")

    assert (refused.status, refused.code) == (409, "CONNECTION_SOURCE_ADMISSION_NOT_COMMITTED")
    assert stage.api("GET", "/connections/health-too").json["failure"] == "not_admitted"
    assert len(stage.broker.live()) == 2
    stage.invoke("revoke_sweep", {"version": "0", "source": "aws.scheduler", "detail": {}})
    assert len(stage.broker.live()) == 1
