"""The example of the README is Python that signs as the API wants it signed."""

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import httpx
import pytest
from botocore.credentials import Credentials

from infra.local.signatures import Request, verified_access_key

README: Final = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ACCESS_KEY, SECRET = "AKIAEXAMPLE", "made-up"
VIEW: Final = {"generation": 4, "connect_url": "https://example.org/connect/1", "access_token": "a", "notices": []}


class Session:
    """A session with credentials that open nothing."""

    def get_credentials(self) -> Credentials:
        """They."""
        return Credentials(ACCESS_KEY, SECRET)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What the example sends; each request is answered by one view."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=VIEW)

    def request(method: str, url: str, **rest: Any) -> httpx.Response:
        with httpx.Client(transport=httpx.MockTransport(answer)) as client:
            return client.request(method, url, **rest)

    monkeypatch.setattr(boto3, "Session", Session)
    monkeypatch.setattr(httpx, "request", request)
    return seen


def example() -> dict[str, Any]:
    """The functions of the README's one block of Python."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), found)  # noqa: S102 - our own README
    return found


def signer_of(request: httpx.Request) -> str:
    """The access key that signed it, by the check that the local API makes."""
    parts = urlsplit(str(request.url))
    headers = [(name.lower(), value) for name, value in request.headers.items()]
    presented = Request(request.method, parts.path, parts.query, headers, request.content)
    return verified_access_key(presented, region="eu-central-1", secret_of={ACCESS_KEY: SECRET}.get)


def test_every_call_of_the_example_is_signed(sent: list[httpx.Request]) -> None:
    """Start, confirm, token and disconnect, each with the body and the header that the API asks for."""
    app = example()

    assert app["start"]() == VIEW["connect_url"]
    app["returned"]("AAAAA-BBBBB")
    assert app["access_token"]() == "a"
    assert app["disconnect"]() == []

    path = "/v1/tenants/acme/owners/alice/connections"
    assert [(request.method, request.url.path) for request in sent] == [
        ("POST", path),
        ("GET", f"{path}/google"),
        ("POST", f"{path}/google/confirm"),
        ("POST", f"{path}/google/access-token"),
        ("GET", f"{path}/google"),
        ("DELETE", f"{path}/google"),
        ("GET", "/v1/tenants/acme/owners/alice/status"),
    ]
    assert {signer_of(request) for request in sent} == {ACCESS_KEY}
    assert json.loads(sent[2].content) == {"generation": 4, "code": "AAAAA-BBBBB"}
    assert sent[5].headers["if-match"] == '"4"'
