"""
Webhooks of providers: verified over the bytes that were sent, stored, and then answered. No authorizer: the provider's
signature stands for it, or a secret in the address.
"""

from typing import Any
from urllib.parse import parse_qsl

from aws_lambda_powertools.event_handler import Response

from quitclaim.domain.errors import WebhookRefusedError
from quitclaim.domain.webhooks import Event, Incoming, RefusalReason, Shaken
from quitclaim.flows.webhooks import take_in
from quitclaim.runtime import wiring
from quitclaim.runtime.http import NO_STORE, answer, envelope, handler_of, new_resolver, raw_body, request_id_of

STATUS = {
    RefusalReason.TOO_LARGE: 413,
    RefusalReason.TOO_MANY: 503,  # it was believed: the provider is to go on saying so, and its pages to show it
    RefusalReason.ENCODED: 415,
    RefusalReason.METHOD: 405,
}
"""Of a request that is not believed, where it is not 401: two providers try us with wrong signatures on purpose."""


def told(event: Event, is_new: bool) -> None:
    """Of an event that is durable; never whose it is."""
    parts.telemetry.count("WebhooksAccepted" if is_new else "WebhooksRepeated")
    if event.prepared.truncated:
        parts.telemetry.count("WebhooksTruncated")


wired = wiring.webhook(told)
parts = wired.parts
app = new_resolver()


@app.route("/webhooks/<provider>", method=["GET", "POST", "HEAD"])
def at_the_clients_address(provider: str) -> Response[str]:
    """The one address of a client."""
    return came_in(provider, None)


@app.route("/webhooks/<provider>/<endpoint>", method=["GET", "POST", "HEAD"])
def at_a_further_address(provider: str, endpoint: str) -> Response[str]:
    """One of several addresses of a client, or one whose last part is a secret."""
    return came_in(provider, endpoint)


def came_in(provider: str, endpoint: str | None) -> Response[str]:
    """Take a request in, and answer it."""
    event = app.current_event.raw_event
    received = take_in(provider, endpoint, incoming(event, parts.config.current().address), wired.taking_in)
    if received.refused is not None:
        return refused(received.refused, provider)
    if received.shaken is not None:
        return shaken(received.shaken)
    kind = "application/json" if received.body else None
    return Response(received.status, kind, received.body, headers=NO_STORE)


def incoming(event: dict[str, Any], address: str) -> Incoming:
    """
    The request as its sender has it: header names in any case, a body in base64 or not, and the address that is
    registered at the provider. A header that stands twice has both values, and so is nobody's signature.
    """
    headers: dict[str, str] = {}
    for name, value in (event.get("headers") or {}).items():
        key = str(name).lower()
        headers[key] = f"{headers[key]},{value}" if key in headers else str(value)
    query = str(event.get("rawQueryString") or "")
    url = address + str(event["rawPath"]) + (f"?{query}" if query else "")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    return Incoming(str(event["requestContext"]["http"]["method"]), url, headers, asked, raw_body(event))


def shaken(shake: Shaken) -> Response[str]:
    """What a handshake is answered; always as text or JSON that no browser takes for a page."""
    parts.telemetry.count("WebhookHandshakes")
    headers: dict[str, str | list[str]] = {**NO_STORE, **shake.headers}
    return Response(shake.status, shake.content_type, shake.body, headers=headers)


def refused(reason: RefusalReason, provider: str) -> Response[str]:
    """Why is a metric and a line of the log; who sent it is told nothing of it."""
    parts.telemetry.count("WebhooksRefused")
    parts.telemetry.count("WebhooksRefused" + "".join(part.capitalize() for part in reason.split("_")))
    parts.telemetry.warn("webhook refused", reason=reason.value, client=provider)
    error = WebhookRefusedError()
    return answer(envelope(error, request_id_of(app.current_event.raw_event)), STATUS.get(reason, 401))


def api_id() -> str:
    """Of our own API."""
    return parts.config.current().api_id


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """HTTP events of our API only."""
    return _handle(event, context)


_handle = handler_of(app, parts.telemetry, api_id)
