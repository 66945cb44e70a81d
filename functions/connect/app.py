"""
The public pages: the hosted connect link and the provider's callback. No authorizer: state, binding cookie and owner
confirmation stand for it.
"""

from typing import Any

from aws_lambda_powertools.event_handler import Response

from quitclaim.domain.errors import (
    BodyTooLargeError,
    ContentTypeError,
    NotFoundError,
    QuitclaimError,
    ReturnToInvalidError,
)
from quitclaim.domain.limits import COOKIE_MS
from quitclaim.domain.return_to import checked_return_to, with_outcome
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import Callback, CallbackOutcome
from quitclaim.flows.connect.callback import CallbackFailedError, complete_callback
from quitclaim.flows.connect.link import open_link
from quitclaim.runtime import pages, security_events, wiring
from quitclaim.runtime.http import (
    MAX_BODY,
    SINGLE,
    all_parameters,
    cookies,
    handler_of,
    header,
    is_prefetch,
    new_resolver,
    parameters,
    raw_body,
    status_of,
)
from quitclaim.runtime.settings import origins
from quitclaim.runtime.world import Invocation

wired = wiring.connect()
parts = wired.parts
app = new_resolver()
ORIGINS = origins(parts.settings.return_origins)
HTML = "text/html; charset=utf-8"


@app.get("/connect/<ticket>")
def open_connect_link(ticket: str) -> Response[str]:
    """Send the browser to the provider, bound to this browser by a cookie."""
    if is_prefetch(app.current_event.raw_event):
        return Response(204, None, "", headers=pages.HEADERS)
    visit = open_link(Secret(ticket), parts.config.current().address, wired.connecting)
    same_site = "None" if visit.cross_site_post else "Lax"
    attributes = f"Path=/; Max-Age={COOKIE_MS // 1000}; Secure; HttpOnly; SameSite={same_site}"
    cookie = f"{visit.cookie}={visit.binding.reveal()}; {attributes}"
    return Response(303, HTML, "", headers={**pages.HEADERS, "Location": visit.url, "Set-Cookie": cookie})


@app.route("/connect/<ticket>", method="HEAD")
def look_at_connect_link(ticket: str) -> Response[str]:
    """A scanner's look has no effect."""
    del ticket
    return Response(200, HTML, "", headers=pages.HEADERS)


@app.get("/callback/<provider>")
def callback_by_query(provider: str) -> Response[str]:
    """The provider's answer in the query."""
    return came_back(provider, app.current_event.raw_event.get("rawQueryString", ""))


@app.post("/callback/<provider>")
def callback_by_form(provider: str) -> Response[str]:
    """The provider's answer as a form (OAuth 2.0 Form Post Response Mode)."""
    event = app.current_event.raw_event
    if header(event, "content-type").split(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise ContentTypeError("Send the answer as a form.")
    body = raw_body(event)
    if len(body) > MAX_BODY:
        raise BodyTooLargeError
    return came_back(provider, body.decode("utf-8", "replace"))


def came_back(provider: str, text: str) -> Response[str]:
    """Take the callback through, and tell the browser how it ended."""
    event = app.current_event.raw_event
    if is_prefetch(event):
        return Response(204, None, "", headers=pages.HEADERS)
    state = parts.clients.state_parameter(provider)
    given = parameters(text, once=SINGLE if state == "state" else frozenset({state}))
    said = {name: value for name, value in given.items() if value.strip()}  # blank is missing (M-24, M-25)
    callback = Callback(
        provider=provider,
        state=Secret(said[state]) if state in said else None,
        code=Secret(said["code"]) if "code" in said else None,
        error=said.get("error"),
        iss=(given["iss"],) if "iss" in given else (),
        cookies=cookies(event),
        query=all_parameters(text),
    )
    base_url = parts.config.current().address
    try:
        done = complete_callback(callback, base_url, Invocation(app.lambda_context), wired.connecting)
    except CallbackFailedError as failure:
        return failed(failure, provider)
    parts.telemetry.count("CallbacksCompleted")
    parts.telemetry.say("callback", outcome=done.status, provider=done.provider)
    return told(done)


def told(done: CallbackOutcome) -> Response[str]:
    """Back to the app with what it needs and nothing else, or to our own page."""
    if done.status == "in_progress":  # a reload of this page asks again; a form cannot be asked for again by itself
        again = {"Refresh": "3"} if app.current_event.http_method == "GET" else {}
        page = pages.in_progress(parts.clients.provider_name(done.provider))
        return Response(200, HTML, page, headers={**pages.HEADERS, **again})
    code = done.confirm_code.reveal() if done.confirm_code is not None else None
    target = allowed(done.return_to)
    if target is not None:
        outcome = {"connection_id": done.connection_id, "status": done.status}
        return see(with_outcome(target, outcome | ({"confirm_code": code} if code else {})))
    name = parts.clients.provider_name(done.provider)
    return html(200, pages.awaiting(code, name) if code else pages.connected(name))


def failed(failure: CallbackFailedError, provider: str) -> Response[str]:
    """
    A bound browser is told at the app, which asks us for the rest; what only the owner can end is said in the status.
    """
    cause = failure.cause
    said = {"reason": cause.details["reason"]} if "reason" in cause.details else {}
    parts.telemetry.warn("callback", outcome="failed", code=cause.code, **said)
    removal = pages.needs_removal(cause)
    target = allowed(failure.return_to)
    if target is not None:
        status = "removal_required" if removal else "failed"
        return see(with_outcome(target, {"connection_id": failure.connection_id, "status": status}))
    if removal:
        name, page = parts.clients.provider_name(provider), parts.clients.manual_page(provider)
        return html(status_of(cause), pages.removal(name, page, cause))
    return page_of(cause, "")


@app.get("/removal/<provider>")
def how_to_remove(provider: str) -> Response[str]:
    """Where an owner removes the access by hand, and that the app waits to hear of it; the same for everybody."""
    name = parts.clients.provider_name(provider)
    if name is None:
        raise NotFoundError
    return html(200, pages.removal(name, parts.clients.manual_page(provider)))


@app.post("/events/<issuer>")
def security_event(issuer: str) -> Response[str]:
    """A security event token of a provider's, answered as RFC 8935 sections 2.2 and 2.3 prescribe."""
    return security_events.heard(issuer, app.current_event.raw_event, wired.hearing, parts.telemetry)


def allowed(return_to: str | None) -> str | None:
    """The return target, if it is still allowed; one that is no longer is dropped, never redirected to (M-35)."""
    try:
        return checked_return_to(return_to, ORIGINS)
    except ReturnToInvalidError:
        parts.telemetry.warn("return target dropped")
        return None


def see(url: str) -> Response[str]:
    """303 See Other."""
    return Response(303, HTML, "", headers={**pages.HEADERS, "Location": url})


def html(status: int, page: str) -> Response[str]:
    """A page of ours."""
    return Response(status, HTML, page, headers=pages.HEADERS)


def page_of(error: QuitclaimError, request_id: str) -> Response[str]:
    """An error as a page: its sentence and code, nothing of the request."""
    del request_id
    return html(status_of(error), pages.failed(error))


def api_id() -> str:
    """Of our own API."""
    return parts.config.current().api_id


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """HTTP events of our API only."""
    return _handle(event, context)


_handle = handler_of(app, parts.telemetry, api_id, unexpected=page_of)
