"""HTTP in and out: parameters, bodies, headers, cookies; one envelope; and what is refused before any flow is asked."""

import base64
import json
from urllib.parse import quote

import pytest
from aws_lambda_powertools.event_handler import Response
from hypothesis import given
from hypothesis import strategies as st

from infra.local.routes import Route
from quitclaim.domain import errors
from quitclaim.domain.errors import (
    BodyTooLargeError,
    ContentTypeError,
    IfMatchRequiredError,
    InvalidBodyError,
    ParameterRepeatedError,
    QuitclaimError,
    StoreError,
)
from quitclaim.runtime.http import (
    MAX_BODY,
    MAX_PARAMETER,
    STATUS,
    answer,
    cookies,
    generation_of,
    handler_of,
    header,
    is_prefetch,
    json_body,
    new_resolver,
    parameters,
    raw_body,
    retry_after_s,
    status_of,
)
from tests.runtime.events import API_ID, Context, http_event

JSON = {"content-type": "application/json"}


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("state=s&code=c", {"state": "s", "code": "c"}),
        ("state=&code=", {"state": "", "code": ""}),
        ("state", {"state": ""}),
        ("state=a%20b+c", {"state": "a b c"}),
        ("code=a%2Fb%3D%26", {"code": "a/b=&"}),
        ("code=a=b==", {"code": "a=b=="}),
        ("code=%E4%BD%A0", {"code": "\u4f60"}),
        ("code=%ff", {"code": "\ufffd"}),
        ("code=%", {"code": "%"}),
        ("code=%zz", {"code": "%zz"}),
        ("code=a;state=b", {"code": "a;state=b"}),
        ("&&state=s&&", {"state": "s"}),
        ("STATE=x&state=s", {"STATE": "x", "state": "s"}),
        ("hd=a&hd=b", {"hd": "b"}),
        ("a[]=1&a[]=2&state=s", {"a[]": "2", "state": "s"}),
        ("=x&state=s", {"": "x", "state": "s"}),
    ],
)
def test_parameters_as_a_browser_sends_them(text, expected):
    """Decoded once; a name that decides nothing may stand twice."""
    assert parameters(text) == expected


@pytest.mark.parametrize("name", ["state", "code", "error", "iss", "scope"])
@pytest.mark.parametrize(
    "shape", ["{0}=a&{0}=b", "{0}=a&{0}=a", "{0}=&{0}=a", "{0}&x=1&{0}=", "{0}=a&{1}=b", "x={0}&{0}=a&y=1&{1}="]
)
def test_S_26_a_parameter_that_decides_stands_once(name, shape):
    """Twice, blank twice, or spelled in another way the second time."""
    spelled = f"%{ord(name[0]):02x}{name[1:]}"

    with pytest.raises(ParameterRepeatedError):
        parameters(shape.format(name, spelled))


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("letter", ["a", "%61"])
def test_a_parameter_that_is_too_long_is_none(off, letter):
    """By its decoded length."""
    text = f"code={letter * (MAX_PARAMETER + off)}"

    if off <= 0:
        assert len(parameters(text)["code"]) == MAX_PARAMETER + off
        return
    with pytest.raises(InvalidBodyError) as refused:
        parameters(text)
    assert "aaa" not in str(refused.value)


@pytest.mark.parametrize("count", [100, 101])
def test_more_than_a_hundred_parameters_are_too_many(count):
    """No provider sends that many."""
    text = "&".join(f"p{number}=1" for number in range(count))

    if count <= 100:
        assert len(parameters(text)) == count
        return
    with pytest.raises(InvalidBodyError):
        parameters(text)


@given(st.text(max_size=200))
def test_any_text_is_parameters_or_a_refusal_of_ours(text):
    """Nothing else rises."""
    try:
        found = parameters(text)
    except QuitclaimError:
        return

    assert all(isinstance(value, str) for value in found.values())


@given(st.dictionaries(st.sampled_from(["state", "code", "error", "iss", "x"]), st.text(max_size=50)))
def test_what_was_encoded_is_what_arrives(given_values):
    """For any values, by the encoding that browsers use."""
    encoded = {name: value.encode("utf-8", "replace").decode() for name, value in given_values.items()}
    text = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in encoded.items())

    assert parameters(text) == encoded


# --- bodies ----------------------------------------------------------------------------------------------------------


def posted(body: bytes, headers=JSON):
    """The event of a POST with that body."""
    return http_event("POST", "/x", headers=headers, body=body)


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"{}", JSON, {}),
        (b'{"a": 1}', JSON, {"a": 1}),
        (b' {"a": "\xc3\xa4"} ', JSON, {"a": "\xe4"}),
        (b'{"a": 1}', {"Content-Type": "Application/JSON; charset=utf-8"}, {"a": 1}),
        (b'{"a": 1, "a": 2}', JSON, {"a": 2}),
        (b"", JSON, {}),
        (b"", {}, {}),
        (b"  \n", {"content-type": "text/plain"}, {}),
    ],
)
def test_a_json_body(body, headers, expected):
    """An object; nothing sent is an empty one, whatever it is called."""
    assert json_body(posted(body, headers)) == expected


@pytest.mark.parametrize(
    ("body", "headers", "error"),
    [
        (b"{", JSON, InvalidBodyError),
        (b"canary", JSON, InvalidBodyError),
        (b'"canary"', JSON, InvalidBodyError),
        (b"[]", JSON, InvalidBodyError),
        (b"1", JSON, InvalidBodyError),
        (b"null", JSON, InvalidBodyError),
        (b"true", JSON, InvalidBodyError),
        (b"{'a': 1}", JSON, InvalidBodyError),
        (b'{"a": 1,}', JSON, InvalidBodyError),
        (b'{"a": 1} {}', JSON, InvalidBodyError),
        (b"\xff\xfe{}", JSON, InvalidBodyError),
        (b'{"a": "\xff"}', JSON, InvalidBodyError),
        (b'{"a": ' + b"9" * 5_000 + b"}", JSON, InvalidBodyError),
        (b'{"a":' * 10_000, JSON, InvalidBodyError),
        (b"[" * 60_000, JSON, InvalidBodyError),
        (b"{}", {}, ContentTypeError),
        (b"{}", {"content-type": ""}, ContentTypeError),
        (b"{}", {"content-type": "text/plain"}, ContentTypeError),
        (b"{}", {"content-type": "text/json"}, ContentTypeError),
        (b"{}", {"content-type": "application/jsonp"}, ContentTypeError),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, ContentTypeError),
        (b"{}", {"content-type": "multipart/form-data; boundary=x"}, ContentTypeError),
        (b'{"a": "' + b"x" * MAX_BODY + b'"}', JSON, BodyTooLargeError),
        (b" " * (MAX_BODY + 1), JSON, BodyTooLargeError),
        (b"x" * (MAX_BODY + 1), {"content-type": "text/plain"}, BodyTooLargeError),
    ],
)
def test_a_body_that_is_no_json_object(body, headers, error):
    """Its size first, then its kind, then its text; nothing of it is repeated."""
    with pytest.raises(QuitclaimError) as refused:
        json_body(posted(body, headers))

    assert type(refused.value) is error
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_body_of_64_KiB_is_the_largest(off):
    """By its bytes, not by its letters."""
    body = b'{"a": "' + "\xe4".encode() * (MAX_BODY // 2 - 8) + b'"}'
    body += b" " * (MAX_BODY + off - len(body))
    assert len(body.decode()) < len(body) == MAX_BODY + off

    if off <= 0:
        assert "a" in json_body(posted(body))
        return
    with pytest.raises(BodyTooLargeError):
        json_body(posted(body))


def test_a_body_in_base64_is_the_same_body():
    """The gateway encodes whatever it takes for binary."""
    event = posted(b'{"a": 1}', {"content-type": "application/octet-stream"})
    event["headers"]["content-type"] = "application/json"

    assert event["isBase64Encoded"]
    assert json_body(event) == {"a": 1}


@pytest.mark.parametrize("text", ["!", "a", "e30", "\xe4"])
def test_base64_that_is_none_is_a_broken_body(text):
    """Nothing is guessed."""
    with pytest.raises(InvalidBodyError):
        raw_body({"body": text, "isBase64Encoded": True})


@pytest.mark.parametrize("event", [{}, {"body": None}, {"body": ""}, {"body": "", "isBase64Encoded": True}])
def test_no_body_is_no_bytes(event):
    """As the gateway leaves it out."""
    assert raw_body(event) == b""


def test_a_form_is_the_bytes_that_were_sent():
    """Form posts come in base64."""
    event = http_event(
        "POST", "/x", headers={"content-type": "application/x-www-form-urlencoded"}, body=b"state=a%20b&code=\xff"
    )

    assert event["isBase64Encoded"] is True
    assert raw_body(event) == b"state=a%20b&code=\xff"


# --- headers and cookies ---------------------------------------------------------------------------------------------


def test_a_header_by_any_spelling():
    """Empty where there is none."""
    event = {"headers": {"If-Match": '"3"', "x-a": "1"}}

    assert header(event, "if-match") == '"3"'
    assert header(event, "x-b") == header({}, "x-b") == header({"headers": None}, "x-b") == ""


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([], {}),
        ([("cookie", "a=1; b=2")], {"a": "1", "b": "2"}),
        ([("cookie", "a=1"), ("cookie", "b=2")], {"a": "1", "b": "2"}),
        ([("cookie", "a=first; a=second")], {"a": "first"}),
        ([("cookie", "a=1=2==")], {"a": "1=2=="}),
        ([("cookie", "a")], {"a": ""}),
        ([("cookie", " a = 1 ;;b=2")], {"a": "1", "b": "2"}),
        ([("cookie", "=x; a=1")], {"": "x", "a": "1"}),
        ([("cookie", '__Host-qc-0a1b2c="quoted"')], {"__Host-qc-0a1b2c": '"quoted"'}),
    ],
)
def test_cookies_by_name(sent, expected):
    """Of two with one name the first counts: it is the more specific one (RFC 6265 5.4)."""
    assert cookies(http_event("GET", "/x", headers=sent)) == expected


@pytest.mark.parametrize("text", ['"3"', "3", ' "3" ', '"0003"'])
def test_a_generation_in_an_if_match_header(text):
    """As an entity tag, or plain."""
    assert generation_of(http_event("DELETE", "/x", headers={"If-Match": text})) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        '""',
        "*",
        '"*"',
        'W/"3"',
        '"3", "4"',
        '"-3"',
        '"+3"',
        '"3.0"',
        '"0x3"',
        '"three"',
        '"3 "x',
        '"\u0663"',
        '"\u00b3"',
        '"' + "9" * 16 + '"',
        "canary",
    ],
    ids=ascii,
)
def test_what_names_no_generation(text):
    """A stop without one is asked for it; what was sent is not repeated."""
    event = http_event("DELETE", "/x", headers={"If-Match": text} if text else {})

    with pytest.raises(IfMatchRequiredError) as refused:
        generation_of(event)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Sec-Purpose": "prefetch"}, True),
        ({"Sec-Purpose": "prefetch;prerender"}, True),
        ({"Sec-Purpose": "prefetch;anonymous-client-ip"}, True),
        ({"Purpose": "Prefetch"}, True),
        ({"X-Moz": "prefetch"}, True),
        ({}, False),
        ({"Sec-Fetch-Purpose": "x"}, False),
        ({"Sec-Fetch-Mode": "navigate", "User-Agent": "prefetcher"}, False),
    ],
)
def test_a_browser_that_only_looks_ahead(headers, expected):
    """By the headers that browsers send for it."""
    assert is_prefetch(http_event("GET", "/x", headers=headers)) is expected


# --- statuses --------------------------------------------------------------------------------------------------------


class OfARefusalError(errors.BindingMismatchError):
    """A class that no table knows."""


class OfNothingError(QuitclaimError):
    """Likewise."""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OfARefusalError(), 403),
        (OfNothingError(), 500),
        (errors.BindingMismatchError(), 403),
        (errors.StateConflictError(), 409),
        (errors.ConnectionNotFoundError(), 404),
        (errors.BodyTooLargeError(), 413),
        (errors.StateInvalidError(), 400),
        (errors.ExchangeUnconfirmedError(), 502),
        (errors.ProviderBusyError(), 503),
        (errors.SealBrokenError(), 500),
    ],
)
def test_a_status_is_that_of_the_nearest_ancestor(error, status):
    """One table, looked up along the class's ancestry."""
    assert status_of(error) == status


def test_a_nearer_row_counts_more():
    """Wherever two ancestors have a row, the class's own or the nearer one decides."""
    for kind in STATUS:
        assert status_of(kind()) == STATUS[kind]


@pytest.mark.parametrize(("ms", "seconds"), [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (59_999, 60), (-5, 1)])
def test_a_delay_is_whole_seconds_and_never_none(ms, seconds):
    """Rounded up: whoever waits so long has waited long enough."""
    assert retry_after_s(ms) == seconds


def test_an_answer_is_kept_by_nobody():
    """JSON, not to be stored, not to be guessed at."""
    said = answer({"a": 1}, 201, {"X-A": "b"})

    assert (said.status_code, said.content_type, said.body) == (201, "application/json", '{"a":1}')
    assert said.headers == {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-A": "b",
        "Content-Type": "application/json",
    }


# --- the handler -----------------------------------------------------------------------------------------------------

CANARY = "canary-5f1d"


@pytest.fixture
def served(spoken):
    """A small function with a route for every way to end, and the count of how often one was entered."""
    app = new_resolver()
    entered = []

    @app.get("/ok/<name>")
    def ok(name):
        entered.append(name)
        return answer({"name": name})

    @app.get("/refused")
    def refused():
        raise errors.StateConflictError(connection_id="google", state="revoking", retry_after_ms=1_500)

    @app.get("/ours")
    def ours():
        raise StoreError

    @app.get("/broken")
    def broken():
        secret = CANARY
        raise RuntimeError(f"the token was {secret}")

    @app.get("/chained")
    def chained():
        try:
            raise KeyError(CANARY)
        except KeyError as fault:
            raise ValueError(CANARY) from fault

    @app.get("/unserializable")
    def unserializable():
        return answer({"token": object()})

    @app.get("/text")
    def text():
        return Response(200, "text/plain", "hello")

    return handler_of(app, spoken.telemetry, lambda: API_ID), entered, spoken


def get(handler, path, **given):
    """The answer to a GET, with its body read."""
    said = handler(http_event("GET", path, **given), Context())
    return said, json.loads(said["body"])


def test_an_answer_of_a_route(served):
    """Passed on as it is."""
    handler, _, spoken = served

    said, body = get(handler, "/ok/ann")

    assert (said["statusCode"], body) == (200, {"name": "ann"})
    assert said["headers"]["Cache-Control"] == "no-store"
    assert spoken.lines() == []


def test_an_error_of_ours_is_an_envelope(served):
    """With the id by which support finds the line in the log."""
    handler, _, spoken = served

    said, body = get(handler, "/refused", routes=[Route("GET", "/refused", "f", signed=True)])

    assert (said["statusCode"], said["headers"]["Retry-After"]) == (409, "2")
    assert body == {
        "code": "CONNECTION_STATE_CONFLICT",
        "message": "The connection's state does not allow this.",
        "retryable": True,
        "retry_after_s": 2,
        "request_id": "request-1",
        "details": {"connection_id": "google", "state": "revoking"},
    }
    (line,) = spoken.lines()
    assert {name: line[name] for name in ("level", "message", "code", "status", "route", "request_id")} == {
        "level": "INFO",
        "message": "refused",
        "code": "CONNECTION_STATE_CONFLICT",
        "status": 409,
        "route": "GET /refused",
        "request_id": "request-1",
    }


def test_a_refusal_on_our_side_is_counted(served):
    """What the caller cannot mend is a metric."""
    handler, _, spoken = served

    said, body = get(handler, "/ours")

    assert (said["statusCode"], body["code"], body["retryable"]) == (503, "STORAGE_UNAVAILABLE", True)
    assert [line["RefusedByUs"] for line in spoken.lines() if "_aws" in line] == [[1.0]]


@pytest.mark.parametrize("path", ["/broken", "/chained", "/unserializable"])
def test_an_unexpected_exception_is_500_without_its_words(served, path):
    """Neither the caller nor the log gets to read what a library says: it may quote what it was given."""
    handler, _, spoken = served

    said, body = get(handler, path)

    assert (said["statusCode"], body["code"], body["message"]) == (500, "INTERNAL", QuitclaimError.sentence)
    assert body["request_id"] == "request-1"
    lines = spoken.lines()
    fault = next(line for line in lines if line.get("level") == "ERROR")
    assert fault["fault"] in ("RuntimeError", "ValueError", "TypeError")
    assert any("test_http.py" in where or "encoder.py" in where for where in fault["where"])
    assert [line["Unexpected"] for line in lines if "_aws" in line] == [[1.0]]
    assert CANARY not in spoken.raw + json.dumps(said)


def test_a_path_without_a_route_is_not_found(served):
    """The same envelope."""
    handler, _, _ = served

    said, body = get(handler, "/nowhere")

    assert (said["statusCode"], body["code"], body["request_id"]) == (404, "NOT_FOUND", "request-1")


STRANGERS = [
    {},
    {"rids": ["r1"]},
    {"requestContext": None},
    {"requestContext": {}},
    {"requestContext": {"apiId": ""}},
    {"requestContext": {"apiId": "another"}},
    {"requestContext": {"apiId": API_ID.upper()}},
    {"requestContext": {"apiId": [API_ID]}},
    http_event("GET", "/ok/ann", api_id="another"),
    http_event("GET", "/ok/ann", api_id=""),
    {**http_event("GET", "/ok/ann"), "requestContext": {"http": {"method": "GET", "path": "/ok/ann"}}},
]


@pytest.mark.parametrize("context", ["text", [API_ID], 7, True])
def test_a_context_that_is_no_object_is_no_request(served, context):
    """Refused as such, in the envelope, with the invocation's id; it is no fault of ours."""
    handler, entered, spoken = served

    said = handler({**http_event("GET", "/ok/ann"), "requestContext": context}, Context())

    body = json.loads(said["body"])
    assert (said["statusCode"], body["code"], body["request_id"]) == (
        400,
        "INVALID_PARAMETER",
        Context().aws_request_id,
    )
    assert entered == []
    assert [line["message"] for line in spoken.lines()] == ["not an event of an HTTP API"]


@pytest.mark.parametrize("path", ["/refused", "/nowhere"])
def test_a_request_without_an_id_is_answered_all_the_same(served, path):
    """No gateway leaves it out; nothing of ours depends on it."""
    handler, _, _ = served
    event = http_event("GET", path)
    del event["requestContext"]["requestId"]

    said = handler(event, Context())

    assert (said["statusCode"] < 500, json.loads(said["body"])["request_id"]) == (True, "")


@pytest.mark.parametrize("event", STRANGERS)
def test_an_event_of_another_api_is_refused(served, event):
    """A direct invocation that looks like HTTP has passed no authorizer."""
    handler, entered, spoken = served

    said = handler(event, Context())

    assert (said["statusCode"], json.loads(said["body"])["code"]) == (404, "NOT_FOUND")
    assert said["headers"]["Cache-Control"] == "no-store"
    assert entered == []
    assert [line["message"] for line in spoken.lines()] == ["not an event of our API"]


def test_without_an_api_id_nothing_is_ours(spoken):
    """A stack whose parameter is missing serves nobody, least of all an event without an id."""
    app = new_resolver()

    @app.get("/x")
    def served():
        return answer({})

    handler = handler_of(app, spoken.telemetry, lambda: "")

    assert handler(http_event("GET", "/x", api_id=""), Context())["statusCode"] == 404


def test_an_outage_before_the_route_is_an_envelope_as_well(spoken):
    """The id of the API is read from Parameter Store, which may not answer."""

    def api_id():
        raise StoreError

    handler = handler_of(new_resolver(), spoken.telemetry, api_id)

    said, body = get(handler, "/x")

    assert (said["statusCode"], body["code"], body["retryable"]) == (503, "STORAGE_UNAVAILABLE", True)


def test_a_page_is_an_error_of_a_function_with_pages(spoken):
    """Where a person looks, every refusal is a page: known, unknown and unexpected ones."""
    app = new_resolver()

    @app.get("/broken")
    def broken():
        raise RuntimeError(CANARY)

    @app.get("/refused")
    def refused():
        raise errors.StateInvalidError

    def page(error, request_id):
        return Response(status_of(error), "text/html", f"<p>{error.code}</p>", headers={"X-A": request_id})

    handler = handler_of(app, spoken.telemetry, lambda: API_ID, unexpected=page)

    for path, status, code in [
        ("/broken", 500, "INTERNAL"),
        ("/refused", 400, "OAUTH_STATE_INVALID"),
        ("/nowhere", 404, "NOT_FOUND"),
    ]:
        said = handler(http_event("GET", path), Context())
        assert (said["statusCode"], said["body"]) == (status, f"<p>{code}</p>")
        assert said["headers"]["Content-Type"] == "text/html"
    spoken.lines()
    assert CANARY not in spoken.raw


@pytest.mark.rule("S-13")
def test_a_body_is_never_logged(served):
    """Nor a header, a query or a cookie: only what is on the list."""
    handler, _, spoken = served
    event = http_event(
        "GET",
        "/refused",
        query=f"state={CANARY}",
        headers={"cookie": f"a={CANARY}", "authorization": CANARY, "content-type": "text/plain"},
        body=CANARY.encode(),
    )

    handler(event, Context())
    handler({**event, "requestContext": {"apiId": "x"}}, Context())

    spoken.lines()
    assert CANARY not in spoken.raw
    assert base64.b64encode(CANARY.encode()).decode() not in spoken.raw
