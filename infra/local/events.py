"""
HTTP to the payload-2.0 event of an HTTP API, and a function's answer back to HTTP.

As the service does it: the path arrives decoded, the query string stays encoded; header names are lower-cased and
repeated headers joined by a comma; cookies are a list of their own and no header; a body is plain text only for text,
JSON, XML and JavaScript, and base64 for everything else, form posts included.
"""

import base64
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from infra.local.asgi import Headers
from infra.local.principals import Principal
from infra.local.routes import Match

_TEXT = re.compile(
    r"text/|application/(json|javascript|ecmascript|xml)\b|application/[\w.+-]+\+(json|xml)\b", re.IGNORECASE
)
# Between client and gateway only; the service does not hand them on.
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


@dataclass(frozen=True)
class HttpRequest:
    """A request as it came over the wire."""

    method: str
    raw_path: str
    query: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    source_ip: str = "127.0.0.1"
    protocol: str = "HTTP/1.1"


@dataclass(frozen=True)
class Stage:
    """The API that a request reached."""

    account_id: str
    api_id: str
    port: int


@dataclass(frozen=True)
class HttpAnswer:
    """What goes back to the client."""

    status: int
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)


class UnreadableAnswerError(Exception):
    """The function returned something that is no HTTP answer; the service makes a 500 of it."""


def new_request_id() -> str:
    """A request id in the form that HTTP APIs use."""
    return base64.b64encode(secrets.token_bytes(11)).decode()


def event_of(
    request: HttpRequest, found: Match, stage: Stage, *, request_id: str, now: datetime, caller: Principal | None = None
) -> dict[str, Any]:
    """The event of *request* for the function behind the route that was *found*."""
    headers, cookies = _headers_and_cookies(request)
    headers["x-forwarded-for"] = ",".join(filter(None, [headers.get("x-forwarded-for"), request.source_ip]))
    headers["x-forwarded-port"] = str(stage.port)
    headers["x-forwarded-proto"] = "http"
    headers.setdefault("x-amzn-trace-id", f"Root=1-{int(now.timestamp()):08x}-{secrets.token_hex(12)}")
    headers.setdefault("content-length", str(len(request.body)))
    path = unquote(request.raw_path)
    domain = headers.get("host", "").partition(":")[0]
    context: dict[str, Any] = {
        "accountId": stage.account_id,
        "apiId": stage.api_id,
        "domainName": domain,
        "domainPrefix": domain.partition(".")[0],
        "http": {
            "method": request.method,
            "path": path,
            "protocol": request.protocol,
            "sourceIp": request.source_ip,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": request_id,
        "routeKey": found.route.key,
        "stage": "$default",
        "time": now.astimezone(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "timeEpoch": int(now.timestamp() * 1000),
    }
    if caller is not None:
        context["authorizer"] = {"iam": _iam_identity(caller, stage.account_id)}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": found.route.key,
        "rawPath": path,
        "rawQueryString": request.query,
        "headers": dict(sorted(headers.items())),
        "requestContext": context,
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if request.query:
        event["queryStringParameters"] = _joined(parse_qsl(request.query, keep_blank_values=True))
    if found.parameters:
        event["pathParameters"] = dict(found.parameters)
    if request.body:
        event["body"], event["isBase64Encoded"] = _body(request.body, headers.get("content-type", ""))
    return event


def answer_of(payload: bytes) -> HttpAnswer:
    """The HTTP answer that a function's *payload* stands for; `UnreadableAnswerError` if it stands for none."""
    try:
        value = json.loads(payload)
    except ValueError:
        raise UnreadableAnswerError("not JSON") from None
    if not isinstance(value, Mapping) or "statusCode" not in value:
        # Without a status code the whole value is the body (payload format 2.0).
        return HttpAnswer(200, [("content-type", "application/json")], json.dumps(value).encode())
    try:
        status = int(value["statusCode"])
        headers = [(str(k).lower(), _header_text(v)) for k, v in (value.get("headers") or {}).items() if v is not None]
        headers += [("set-cookie", str(cookie)) for cookie in value.get("cookies") or []]
        body = value.get("body")
        text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        content = base64.b64decode(text, validate=True) if value.get("isBase64Encoded") else text.encode()
    except (TypeError, ValueError, AttributeError):
        raise UnreadableAnswerError("malformed answer") from None
    if not 200 <= status <= 599 or any(set("\r\n\0") & set(name + v) for name, v in headers):
        raise UnreadableAnswerError("malformed answer")
    headers = [(k, v) for k, v in headers if k not in _HOP_BY_HOP and k != "content-length"]
    if content and not any(k == "content-type" for k, _ in headers):
        headers.append(("content-type", "text/plain;charset=UTF-8"))
    return HttpAnswer(status, headers, content)


def _headers_and_cookies(request: HttpRequest) -> tuple[dict[str, str], list[str]]:
    plain = [(k.lower(), v) for k, v in request.headers if k.lower() not in _HOP_BY_HOP]
    cookies = [c.strip() for k, v in plain if k == "cookie" for c in v.split(";") if c.strip()]
    return _joined([(k, v) for k, v in plain if k != "cookie"]), cookies


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _body(body: bytes, content_type: str) -> tuple[str, bool]:
    if _TEXT.match(content_type.strip()):
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def _iam_identity(caller: Principal, account_id: str) -> dict[str, Any]:
    user_id = "AIDA" + caller.access_key[4:]
    return {
        "accessKey": caller.access_key,
        "accountId": account_id,
        "callerId": user_id,
        "cognitoIdentity": None,
        "principalOrgId": None,
        "userArn": f"arn:aws:iam::{account_id}:user/{caller.name}",
        "userId": user_id,
    }


def _header_text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
