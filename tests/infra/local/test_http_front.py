"""The HTTP API of the small stack, over the wire: who gets in, what arrives, what comes back."""

import asyncio
import http.client
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from infra.local.events import Stage
from infra.local.http_front import MAX_BODY_BYTES, HttpFront
from infra.local.life import until
from infra.local.stack import LocalStack
from infra.local.template import read_template
from infra.local.workers import Pool
from tests.infra.local.conftest import SMALL

DEMO, OTHER = "/v1/tenants/demo/things/x", "/v1/tenants/other/things/x"
FORBIDDEN = '{"message":"Forbidden"}'


@pytest.fixture
def anybody(stack: LocalStack) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=stack.base_url, trust_env=False, timeout=10) as client:
        yield client


@pytest.mark.rule("S-20")
@pytest.mark.parametrize(
    ("caller", "path", "status"),
    [
        ("app", DEMO, 200),
        ("app", OTHER, 403),
        ("other", OTHER, 200),
        ("other", DEMO, 403),
        ("operator", DEMO, 200),
        ("operator", OTHER, 200),
        # Nor by spelling: the path is judged as it is sent and as it is read.
        ("other", "/v1/tenants/%64emo/things/x", 403),
        ("other", "/v1/tenants/other%2F..%2Fdemo/things/x", 403),
        ("other", "/v1/tenants/Other/things/x", 403),
    ],
)
def test_a_tenants_key_cannot_reach_another_tenant(stack: LocalStack, caller: str, path: str, status: int) -> None:
    """The caller's policy is evaluated on the stage, the method and the path."""
    with stack.client(caller) as client:
        answer = client.post(path)

    assert answer.status_code == status
    assert status == 200 or answer.text == FORBIDDEN


@pytest.mark.rule("S-19")
def test_without_credentials_403(anybody: httpx.Client) -> None:
    """No signature, another scheme, or a signature of a key that nobody has: the same answer."""
    for headers in ({}, {"authorization": "Bearer x"}, {"authorization": "AWS4-HMAC-SHA256 Credential=x"}):
        answer = anybody.post(DEMO, headers=headers)

        assert (answer.status_code, answer.text) == (403, FORBIDDEN)


@pytest.mark.rule("S-19")
def test_a_signature_is_good_for_its_request_only(stack: LocalStack, anybody: httpx.Client) -> None:
    """The headers of a signed request, put on another path or another body, open nothing."""
    with stack.client("operator") as client:
        sent = client.post(DEMO, json={"a": 1}).request

    assert anybody.post(OTHER, headers=sent.headers, content=sent.content).status_code == 403
    assert anybody.post(DEMO, headers=sent.headers, content=b'{"a":2}').status_code == 403
    assert anybody.post(DEMO, headers=sent.headers, content=sent.content).status_code == 200


def test_the_event_arrives_as_the_service_makes_it(stack: LocalStack) -> None:
    """What `event_of` says of a request holds for one that went over the wire."""
    with stack.client("app") as client:
        answer = client.post(
            "/v1/tenants/demo/things/a%2Fb",
            params=[("p", "1"), ("p", "ü x")],
            headers=[("cookie", "a=1; b=2"), ("x-two", "1"), ("X-Two", "2")],
            data={"form": "post"},
        )
    event = answer.json()

    assert event["routeKey"] == "POST /v1/tenants/{t}/things/{thing}"
    assert event["rawPath"] == event["requestContext"]["http"]["path"] == "/v1/tenants/demo/things/a/b"
    assert event["pathParameters"] == {"t": "demo", "thing": "a/b"}
    assert event["rawQueryString"] == "p=1&p=%C3%BC+x"
    assert event["queryStringParameters"] == {"p": "1,ü x"}
    assert event["cookies"] == ["a=1", "b=2"]
    assert "cookie" not in event["headers"]
    assert event["headers"]["x-two"] == "1,2"
    assert (event["body"], event["isBase64Encoded"]) == ("Zm9ybT1wb3N0", True)
    assert event["requestContext"]["apiId"] == stack.api_id
    assert event["requestContext"]["authorizer"]["iam"]["accessKey"] == stack.keys["app"][0]
    assert event["requestContext"]["requestId"] == answer.headers["apigw-requestid"]


def test_a_public_route_asks_for_no_key(anybody: httpx.Client) -> None:
    """No caller in the event; HEAD reaches it too, since the route takes any method."""
    event = anybody.get("/open/x").json()

    assert "authorizer" not in event["requestContext"]
    assert anybody.head("/open/x").status_code == 200


@pytest.mark.parametrize(
    ("path", "method"), [("/", "GET"), ("/open", "GET"), ("/v1/providers", "POST"), ("/open/x/y", "GET")]
)
def test_an_unknown_route_is_404(anybody: httpx.Client, path: str, method: str) -> None:
    """In the service's words."""
    answer = anybody.request(method, path)

    assert (answer.status_code, answer.text) == (404, '{"message":"Not Found"}')


def test_what_a_function_answers(anybody: httpx.Client) -> None:
    """Bytes, two cookies and a status; without a status code, 200 and JSON."""
    answer = anybody.get("/open/x?do=bytes")
    assert (answer.status_code, answer.content) == (201, b"\x00\x01\xff")
    assert answer.headers.get_list("set-cookie") == ["a=1; Path=/", "b=2"]

    answer = anybody.get("/open/x?do=bare")
    assert (answer.status_code, answer.json()) == (200, {"layer": "from the layer"})
    assert answer.headers["content-type"] == "application/json"


def test_a_function_that_raises_is_a_500(anybody: httpx.Client) -> None:
    """Nothing of the error reaches the client."""
    answer = anybody.get("/open/x?do=raise")

    assert (answer.status_code, answer.text) == (500, '{"message":"Internal Server Error"}')


@pytest.mark.parametrize(("head_bytes", "status"), [(10_240, 200), (10_241, 431)])
def test_request_line_and_headers_hold_10240_bytes(stack: LocalStack, head_bytes: int, status: int) -> None:
    """One byte more is refused."""
    at = urlsplit(stack.base_url)
    head = f"GET /open/x HTTP/1.1\r\nhost: {at.netloc}\r\nx-long: "
    connection = http.client.HTTPConnection(at.hostname or "", at.port or 0, timeout=10)
    connection.putrequest("GET", "/open/x", skip_host=True, skip_accept_encoding=True)
    connection.putheader("host", at.netloc)
    connection.putheader("x-long", "a" * (head_bytes - len(head) - len("\r\n")))
    connection.endheaders()

    answer = connection.getresponse()
    answer.read()
    connection.close()

    assert answer.status == status


@pytest.mark.parametrize(
    ("body_bytes", "status", "text"),
    [
        (1, 503, '{"message":"Service Unavailable"}'),
        (MAX_BODY_BYTES + 1, 413, '{"message":"Request Entity Too Large"}'),
    ],
)
def test_too_long_and_too_large(body_bytes: int, status: int, text: str) -> None:
    """No answer within the integration timeout is a 503; a body of more than 10 MiB is not handed on."""
    template = read_template(SMALL, "local")
    pools = {function.name: Pool(function) for function in template.functions}  # nobody works here
    stage = Stage("000000000000", "abc", 80)
    front = HttpFront(template.routes, pools, {}, stage, io.StringIO(), integration_timeout_s=0.05)

    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://front") as client:
            return await client.post("/open/x", content=bytes(body_bytes))

    answer = asyncio.run(asked())

    assert (answer.status_code, answer.text) == (status, text)


@pytest.mark.parametrize(("endpoint", "status"), [("base_url", 404), ("control_url", 403), ("lambda_url", 403)])
def test_a_page_in_a_browser_reaches_the_api_alone(stack: LocalStack, endpoint: str, status: int) -> None:
    """Control and Invoke API refuse whatever a browser marks with the origin of a page."""
    url = getattr(stack, endpoint) + "/clock"

    answer = httpx.post(url, headers={"origin": "https://page.example"}, content="{}", trust_env=False)

    assert answer.status_code == status


@pytest.mark.rule("S-27")
def test_a_request_for_another_host_is_refused(anybody: httpx.Client) -> None:
    """A page that rebinds its name to loopback still sends its own name."""
    assert anybody.get("/open/x", headers={"host": "attacker.example"}).status_code == 403


def test_the_access_log_names_routes_and_nothing_of_the_request(stack: LocalStack, anybody: httpx.Client) -> None:
    """Route key, status, time and request id; no path, no query, no header."""
    answer = anybody.get("/open/canary-path?state=canary-query", headers={"x-canary": "canary-header"})
    log, request_id = stack.logs()["http_api"], answer.headers["apigw-requestid"]

    # Its line is written after the answer is sent, and another request's may come after it.
    line = until(lambda: line_of(log.read_text(), request_id), f"a line of {request_id}", log.read_text)

    assert (line["routeKey"], line["status"]) == ("ANY /open/{thing}", 200)
    assert line.keys() == {"requestId", "routeKey", "status", "latencyMs", "why"}
    assert "canary" not in log.read_text()


def line_of(log: str, request_id: str) -> dict[str, Any] | None:
    """What the access log tells of one request, as soon as that is there."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines(keepends=True) if line.endswith("\n")]
    return next((line for line in lines if line["requestId"] == request_id), None)
