"""
HTTP in and out: errors as one envelope with one table of statuses, JSON bodies, and what is refused before any flow is
asked.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as RouteNotFoundError

from quitclaim.domain import errors
from quitclaim.domain.errors import (
    BodyTooLargeError,
    ContentTypeError,
    IfMatchRequiredError,
    InvalidBodyError,
    InvalidParameterError,
    NotFoundError,
    ParameterRepeatedError,
    QuitclaimError,
)
from quitclaim.runtime.telemetry import Telemetry

STATUS: Final[Mapping[type[QuitclaimError], int]] = {
    errors.InvalidRequestError: 400,
    errors.ContentTypeError: 415,
    errors.BodyTooLargeError: 413,
    errors.IfMatchRequiredError: 428,
    errors.RefusedError: 409,
    errors.NotFoundError: 404,
    errors.BindingMismatchError: 403,
    errors.WrongCodeError: 403,
    errors.OwnerDeletedError: 410,
    errors.IdempotencyMismatchError: 422,
    errors.RefreshInProgressError: 429,
    errors.WebhookRefusedError: 401,
    errors.WebhookAccountNotReadyError: 503,
    errors.WebhookSourceNotReadyError: 503,
    errors.MovedError: 409,
    errors.ProviderError: 502,
    errors.ProviderBusyError: 503,
    errors.ClientConfigError: 502,
    errors.StoreError: 503,
    errors.KeyUnavailableError: 503,
    errors.TimeIsUpError: 503,
    QuitclaimError: 500,
}
"""Looked up along the class's ancestry; the nearest entry counts."""

MAX_BODY: Final = 64 * 1024
MAX_PARAMETER: Final = 4_096
SINGLE: Final = frozenset({"state", "code", "error", "iss", "scope"})
JSON: Final = "application/json"
NO_STORE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def status_of(error: QuitclaimError) -> int:
    """The HTTP status of an error."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def envelope(error: QuitclaimError, request_id: str) -> dict[str, Any]:
    """
    The one shape in which every refusal is answered.

    What says when it ends may be retried, whatever its class: CONNECT_BLOCKED ends by itself or not, by its blocker.
    """
    retryable = error.retryable or error.retry_after_ms is not None
    body: dict[str, Any] = {"code": error.code, "message": error.message, "retryable": retryable}
    if error.retry_after_ms is not None:
        body["retry_after_s"] = retry_after_s(error.retry_after_ms)
    return body | {"request_id": request_id, "details": error.details}


def retry_after_s(ms: int) -> int:
    """Whole seconds, never less than one."""
    return max(1, -(-ms // 1000))


def answer(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response[str]:
    """A JSON answer that nobody keeps."""
    return Response(status, JSON, json.dumps(body, separators=(",", ":")), headers={**NO_STORE, **(headers or {})})


def refusal(error: QuitclaimError, request_id: str) -> Response[str]:
    """The answer to an error."""
    headers = {} if error.retry_after_ms is None else {"Retry-After": str(retry_after_s(error.retry_after_ms))}
    return answer(envelope(error, request_id), status_of(error), headers)


# --- what came in ----------------------------------------------------------------------------------------------------


def raw_body(event: Mapping[str, Any]) -> bytes:
    """The body's bytes as they were sent."""
    body = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        return str(body).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidBodyError from None


def json_body(event: Mapping[str, Any]) -> dict[str, Any]:
    """The body as a JSON object; nothing sent is an empty one. Raises the refusal that fits."""
    raw = raw_body(event)
    if len(raw) > MAX_BODY:
        raise BodyTooLargeError
    if not raw.strip():
        return {}
    if header(event, "content-type").split(";")[0].strip().lower() != JSON:
        raise ContentTypeError
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidBodyError from None
    if not isinstance(found, dict):
        raise InvalidBodyError
    return found


def header(event: Mapping[str, Any], name: str) -> str:
    """A header's value, empty where there is none."""
    headers = event.get("headers") or {}
    return str(next((value for key, value in headers.items() if key.lower() == name), ""))


def parameters(text: str, once: frozenset[str] = SINGLE) -> dict[str, str]:
    """
    Parameters of a raw query or form. One that decides may stand *once* only (RFC 6749 section 3.1, S-26); of another
    the last counts.

    Raises `ParameterRepeatedError`, `InvalidBodyError` for what is too long to be real.
    """
    pairs = parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="replace")
    names = [name for name, _ in pairs]
    if any(names.count(name) > 1 for name in once):
        raise ParameterRepeatedError
    if len(pairs) > 100 or any(len(value) > MAX_PARAMETER for _, value in pairs):
        raise InvalidBodyError("A parameter is too long.")
    return dict(pairs)


def all_parameters(text: str) -> dict[str, tuple[str, ...]]:
    """The same with every value, for who must see that one stands twice."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="replace"):
        found[name] = (*found.get(name, ()), value)
    return found


def cookies(event: Mapping[str, Any]) -> dict[str, str]:
    """Cookies by name; of two with one name the first counts (RFC 6265 section 5.4 sends the more specific first)."""
    found: dict[str, str] = {}
    for each in event.get("cookies") or []:
        name, _, value = str(each).partition("=")
        found.setdefault(name.strip(), value.strip())
    return found


def generation_of(event: Mapping[str, Any]) -> int:
    """The generation that an If-Match header names (RFC 9110 section 13.1.1). Raises `IfMatchRequiredError`."""
    text = header(event, "if-match").strip().strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise IfMatchRequiredError
    return int(text)


def number_of(event: Mapping[str, Any], name: str, *, least: int, most: int, otherwise: int) -> int:
    """A number of the query. Raises `InvalidRequestError` for what is none, or out of bounds."""
    text = (event.get("queryStringParameters") or {}).get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise InvalidParameterError(f"{name}: a number from {least} to {most}", field=name)
    return int(text)


def request_id_of(event: Mapping[str, Any]) -> str:
    """The gateway's id of the request; empty where it gave none."""
    return str((event.get("requestContext") or {}).get("requestId") or "")


def caller_of(event: Mapping[str, Any]) -> str:
    """Who signed the request, as the gateway has judged it."""
    authorizer = event["requestContext"].get("authorizer") or {}
    return str((authorizer.get("iam") or {}).get("userArn") or "unknown")


def is_prefetch(event: Mapping[str, Any]) -> bool:
    """Whether nobody has asked for this page yet: a browser or scanner only looks ahead."""
    purpose = header(event, "sec-purpose") + header(event, "purpose") + header(event, "x-moz")
    return "prefetch" in purpose.lower()


# --- the resolver ----------------------------------------------------------------------------------------------------


def new_resolver() -> APIGatewayHttpResolver:
    """One resolver for one function instance; it serves one request at a time."""
    return APIGatewayHttpResolver()


def handler_of(
    app: APIGatewayHttpResolver,
    telemetry: Telemetry,
    api_id: Callable[[], str],
    unexpected: Callable[[QuitclaimError, str], Response[str]] = refusal,
) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """
    The Lambda handler of an HTTP function: only events of our own API, every error in the envelope, metrics written at
    the end.

    A direct invocation with an event that looks like HTTP is refused: it would have passed no authorizer.
    """

    def refused(error: QuitclaimError) -> Response[str]:
        request_id = request_id_of(app.current_event.raw_event)
        route = str(app.current_event.raw_event.get("routeKey", ""))
        telemetry.say("refused", code=error.code, status=status_of(error), route=route, request_id=request_id)
        if status_of(error) >= 500:
            telemetry.count("RefusedByUs")
        return unexpected(error, request_id)

    app.exception_handler(QuitclaimError)(refused)

    @app.not_found
    def not_found(_: RouteNotFoundError) -> Response[str]:
        return unexpected(NotFoundError(), request_id_of(app.current_event.raw_event))

    def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
        request = event.get("requestContext") or {}
        is_readable = isinstance(request, dict)
        request_id = (request_id_of(event) if is_readable else "") or str(context.aws_request_id)
        try:
            if not is_readable:
                telemetry.warn("not an event of an HTTP API", request_id=request_id)
                return _plain(
                    refusal(InvalidParameterError("requestContext: an object", field="requestContext"), request_id)
                )
            if not request.get("apiId") or request.get("apiId") != api_id():
                telemetry.warn("not an event of our API", request_id=request_id)
                return _plain(refusal(NotFoundError(), request_id))
            return app.resolve(event, context)
        except QuitclaimError as error:
            return _plain(unexpected(error, request_id))
        except Exception as fault:  # noqa: BLE001 - the edge: a library's words must reach neither the caller nor the log
            telemetry.fault("unexpected", fault, request_id=request_id)
            telemetry.count("Unexpected")
            return _plain(unexpected(QuitclaimError(), request_id))
        finally:
            telemetry.flush()

    return handle


def _plain(response: Response[str]) -> dict[str, Any]:
    headers = {name: value for name, value in response.headers.items() if isinstance(value, str)}
    return {
        "statusCode": response.status_code,
        "headers": {**headers, "Content-Type": response.content_type or JSON},
        "body": response.body or "",
        "isBase64Encoded": False,
    }
