"""Signature Version 4: what boto3's own signer makes is taken, anything altered afterwards is not."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from infra.local.signatures import Request, SignatureRefusedError, SigV4, verified_access_key

KEY, SECRET, REGION = "AKIAEXAMPLE", "a-made-up-secret", "us-east-1"


def signed(
    path: str = "/v1/tenants/demo/owners/o",
    query: str = "",
    body: bytes = b"",
    secret: str = SECRET,
    more: Mapping[str, str] | None = None,
) -> Request:
    """A request signed by botocore alone."""
    url = f"http://127.0.0.1:8080{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method="POST", url=url, data=body, headers={"host": "127.0.0.1:8080", **(more or {})})
    SigV4Auth(Credentials(KEY, secret), "execute-api", REGION).add_auth(request)
    headers = [(name.lower(), value) for name, value in request.headers.items()]
    return Request("POST", path, query, headers, body)


def verified(request: Request, now: datetime | None = None) -> str:
    return verified_access_key(request, region=REGION, secret_of={KEY: SECRET}.get, now=now)


def with_header(request: Request, name: str, change: Callable[[str], str]) -> Request:
    return replace(request, headers=[(k, change(v) if k == name else v) for k, v in request.headers])


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": "/"},
        {"path": "/v1/tenants/demo/things/a%2Fb%20c~d"},
        {"query": "b=2&a=1&a=0&empty="},
        {"query": "x=%20y%2B&z"},
        {"body": b'{"a": 1}', "more": {"content-type": "application/json"}},
        {"body": bytes(range(256))},
        {"more": {"x-amz-meta": "  two   spaces ", "idempotency-key": "k"}},
    ],
)
def test_a_good_signature_names_its_key(given: dict[str, Any]) -> None:
    """Whatever botocore signs, we verify."""
    assert verified(signed(**given)) == KEY  # signed now: it is good for five minutes


@pytest.mark.parametrize(
    "altered",
    [
        replace(signed(), method="GET"),
        replace(signed(), raw_path="/v1/tenants/other/owners/o"),
        replace(signed(), raw_path="/v1/tenants/demo/owners/o/"),
        replace(signed(query="a=1"), query="a=2"),
        replace(signed(), query="a=1"),
        replace(signed(body=b"a"), body=b"b"),
        with_header(signed(), "host", lambda v: "127.0.0.1:8081"),
        with_header(signed(more={"content-type": "text/plain"}), "content-type", lambda v: "text/html"),
        with_header(signed(), "authorization", lambda v: v[:-1] + ("0" if v[-1] != "0" else "1")),
        with_header(signed(), "authorization", lambda v: v.replace(KEY, "AKIAUNKNOWN")),
        with_header(signed(), "authorization", lambda v: v.replace("us-east-1", "eu-west-1")),
        with_header(signed(), "authorization", lambda v: v.replace("execute-api", "s3")),
        with_header(signed(), "authorization", lambda v: v.replace("host;", "")),
        with_header(signed(), "authorization", lambda v: v.replace("host;x-amz-date", "x-amz-date;host")),
        with_header(signed(), "authorization", lambda v: "Bearer abc"),
        with_header(signed(), "authorization", lambda v: ""),
        replace(signed(), headers=[(k, v) for k, v in signed().headers if k != "authorization"]),
        replace(signed(), headers=[(k, v) for k, v in signed().headers if k != "x-amz-date"]),
        replace(signed(), headers=[*signed().headers, ("x-amz-added", "later")]),
        replace(signed(), headers=[*signed().headers, ("x-amz-security-token", "session")]),
        replace(signed(), headers=[*signed().headers, ("x-amz-content-sha256", "0" * 64)]),
        signed(body=b"a", more={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}),
        signed(secret="another-secret"),
    ],
)
def test_an_altered_request_is_refused(altered: Request) -> None:
    """Method, path, query, signed headers, body, key, scope: none may differ from what was signed."""
    with pytest.raises(SignatureRefusedError):
        verified(altered)


@pytest.mark.parametrize(("age_s", "is_taken"), [(0, True), (295, True), (-295, True), (305, False), (-305, False)])
def test_a_signature_is_good_for_five_minutes(age_s: int, is_taken: bool) -> None:
    """Older or from the future by more than that: refused."""
    request = signed()
    now = datetime.now(UTC) + timedelta(seconds=age_s)

    if is_taken:
        assert verified(request, now) == KEY
    else:
        with pytest.raises(SignatureRefusedError):
            verified(request, now)


@pytest.mark.parametrize("path", ["/v1/x?b=2&a=1%20c&a=+", "/v1/a%2Fb", "/v1/plain", "/v1/ümlaut"])
def test_our_client_signs_what_we_verify(path: str) -> None:
    """The httpx signer and the verifier agree on what goes over the wire."""
    seen: list[Request] = []

    def server(request: httpx.Request) -> httpx.Response:
        raw_path, _, query = request.url.raw_path.decode().partition("?")
        headers = [(k.lower(), v) for k, v in request.headers.items()]
        seen.append(Request(request.method, raw_path, query, headers, request.content))
        return httpx.Response(200)

    with httpx.Client(
        base_url="http://127.0.0.1:8080", auth=SigV4(KEY, SECRET, REGION), transport=httpx.MockTransport(server)
    ) as client:
        client.post(path, json={"a": 1})
        client.get(path)

    assert [verified(request) for request in seen] == [KEY, KEY]
