"""The payload-2.0 event, field by field, and the answers that a function may give."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from infra.local.events import HttpRequest, Stage, UnreadableAnswerError, answer_of, event_of
from infra.local.principals import Principal
from infra.local.routes import Match, Route

NOW = datetime(2026, 3, 12, 19, 3, 58, 390_000, UTC)
HOST = ("host", "127.0.0.1:8080")
PLAIN = HttpRequest("GET", "/open/x", "", [HOST], b"")


def event(request: HttpRequest, parameters: dict[str, str] | None = None, caller: Principal | None = None) -> Any:
    found = Match(Route("GET", "/open/{thing}", "echo", signed=caller is not None), parameters or {})
    return event_of(
        request, found, Stage("000000000000", "abc", 8080), request_id="JKJaXmPLvHcESHA=", now=NOW, caller=caller
    )


def test_the_whole_event() -> None:
    """Every field of the service's example, and none that it lacks."""
    caller = Principal("app", "AKIAEXAMPLE", "s", ())
    request = HttpRequest(
        "POST",
        "/open/a%2Fb%20c",
        "p=1&p=%20x&q=",
        [
            HOST,
            ("content-type", "application/json"),
            ("content-length", "2"),
            ("x-two", "1"),
            ("X-Two", "2"),
            ("cookie", "a=1; b=2"),
            ("cookie", "c=3"),
            ("connection", "keep-alive"),
            ("user-agent", "tests"),
            ("x-amzn-trace-id", "Root=1-0-0"),
        ],
        b"{}",
    )

    assert event(request, {"thing": "a/b c"}, caller) == {
        "version": "2.0",
        "routeKey": "GET /open/{thing}",
        "rawPath": "/open/a/b c",
        "rawQueryString": "p=1&p=%20x&q=",
        "cookies": ["a=1", "b=2", "c=3"],
        "headers": {
            "content-length": "2",
            "content-type": "application/json",
            "host": "127.0.0.1:8080",
            "user-agent": "tests",
            "x-amzn-trace-id": "Root=1-0-0",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-port": "8080",
            "x-forwarded-proto": "http",
            "x-two": "1,2",
        },
        "queryStringParameters": {"p": "1, x", "q": ""},
        "pathParameters": {"thing": "a/b c"},
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "abc",
            "authorizer": {
                "iam": {
                    "accessKey": "AKIAEXAMPLE",
                    "accountId": "000000000000",
                    "callerId": "AIDAEXAMPLE",
                    "cognitoIdentity": None,
                    "principalOrgId": None,
                    "userArn": "arn:aws:iam::000000000000:user/app",
                    "userId": "AIDAEXAMPLE",
                }
            },
            "domainName": "127.0.0.1",
            "domainPrefix": "127",
            "http": {
                "method": "POST",
                "path": "/open/a/b c",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "tests",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": "GET /open/{thing}",
            "stage": "$default",
            "time": "12/Mar/2026:19:03:58 +0000",
            "timeEpoch": 1773342238390,
        },
        "body": "{}",
        "isBase64Encoded": False,
    }


def test_what_a_request_lacks_its_event_lacks() -> None:
    """No cookies, no query, no parameters, no body and no caller: no such keys."""
    made = event(PLAIN)

    assert not {"cookies", "queryStringParameters", "pathParameters", "body"} & set(made)
    assert "authorizer" not in made["requestContext"]
    assert made["rawQueryString"] == ""


@pytest.mark.parametrize(
    ("content_type", "body", "is_encoded"),
    [
        ("text/plain", b"a", False),
        ("text/html; charset=utf-8", b"a", False),
        ("application/json", b"{}", False),
        ("application/JSON; charset=utf-8", b"{}", False),
        ("application/problem+json", b"{}", False),
        ("application/xml", b"<a/>", False),
        ("application/soap+xml", b"<a/>", False),
        ("application/javascript", b"1", False),
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("application/secevent+jwt", b"a.b.c", True),
        ("application/octet-stream", b"\x00\xff", True),
        ("application/jsonlines", b"{}", True),
        ("multipart/form-data; boundary=x", b"--x--", True),
        ("image/png", b"\x89", True),
        ("", b"a", True),
        ("application/json", b"\xff", True),
    ],
)
def test_a_body_is_base64_unless_its_type_is_text(content_type: str, body: bytes, is_encoded: bool) -> None:
    """Text, JSON, XML and JavaScript as they are; everything else, form posts too, as base64."""
    headers = [HOST, ("content-type", content_type)] if content_type else [HOST]

    made = event(replace(PLAIN, headers=headers, body=body))

    assert made["isBase64Encoded"] is is_encoded
    assert (base64.b64decode(made["body"]) if is_encoded else made["body"].encode()) == body


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1&b=2&a=3", {"a": "1,3", "b": "2"}),
        ("a", {"a": ""}),
        ("a=%2C&a=+", {"a": ",, "}),
        ("state=a%3Db%26c", {"state": "a=b&c"}),
    ],
)
def test_query_parameters_are_decoded_and_joined(query: str, expected: dict[str, str]) -> None:
    """The map is decoded; the raw query string stays as it was sent."""
    made = event(replace(PLAIN, query=query))

    assert made["queryStringParameters"] == expected
    assert made["rawQueryString"] == query


def test_a_client_cannot_choose_its_address() -> None:
    """What a client says it forwards for is kept, and its own address put behind it."""
    made = event(replace(PLAIN, headers=[HOST, ("x-forwarded-for", "203.0.113.9")]))

    assert made["headers"]["x-forwarded-for"] == "203.0.113.9,127.0.0.1"
    assert made["requestContext"]["http"]["sourceIp"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("value", "status", "headers", "body"),
    [
        ({"statusCode": 204}, 204, [], b""),
        ({"statusCode": "200", "body": "x"}, 200, [("content-type", "text/plain;charset=UTF-8")], b"x"),
        (
            {"statusCode": 303, "headers": {"Location": "/a"}, "cookies": ["a=1", "b=2"]},
            303,
            [("location", "/a"), ("set-cookie", "a=1"), ("set-cookie", "b=2")],
            b"",
        ),
        (
            {"statusCode": 200, "headers": {"Content-Type": "x/y", "Content-Length": "9"}, "body": "AAE="},
            200,
            [("content-type", "x/y")],
            b"AAE=",
        ),
        (
            {"statusCode": 200, "headers": {"content-type": "x/y"}, "body": "AAE=", "isBase64Encoded": True},
            200,
            [("content-type", "x/y")],
            b"\x00\x01",
        ),
        ({"a": 1}, 200, [("content-type", "application/json")], b'{"a": 1}'),
        ("word", 200, [("content-type", "application/json")], b'"word"'),
        (None, 200, [("content-type", "application/json")], b"null"),
    ],
)
def test_an_answer_becomes_http(value: object, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    """Status, headers, cookies and body; without a status code the value is the body."""
    made = answer_of(json.dumps(value).encode())

    assert (made.status, made.headers, made.body) == (status, headers, body)


@pytest.mark.parametrize(
    "payload",
    [
        b"no json",
        b'{"statusCode": "fine"}',
        b'{"statusCode": 99}',
        b'{"statusCode": 200, "headers": ["a"]}',
        b'{"statusCode": 200, "headers": {"a": "b\\r\\nc: d"}}',
        b'{"statusCode": 200, "body": "?", "isBase64Encoded": true}',
    ],
)
def test_a_malformed_answer_is_none(payload: bytes) -> None:
    """The front makes a 500 of it, as the service does."""
    with pytest.raises(UnreadableAnswerError):
        answer_of(payload)
