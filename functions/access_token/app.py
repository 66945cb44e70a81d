"""Hands out access tokens, and takes grants over that the app holds; the only function that sends a refresh."""

from typing import Any

from aws_lambda_powertools.event_handler import Response

from quitclaim.domain.errors import InvalidBodyError, QuitclaimError
from quitclaim.domain.ids import ConnectionRef, checked_id
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.imports import import_grant
from quitclaim.flows.sign_in import sdk_sign_in
from quitclaim.flows.status import ConnectionView
from quitclaim.flows.tokens import hand_out, replay
from quitclaim.runtime import views, wiring
from quitclaim.runtime.hot_bodies import import_request, sign_in_request
from quitclaim.runtime.http import answer, handler_of, header, json_body, new_resolver
from quitclaim.runtime.world import Invocation

wired = wiring.access_token()
parts = wired.parts
app = new_resolver()


@app.post("/v1/tenants/<tenant>/owners/<owner>/connections/<connection_id>/access-token")
def access_token(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """An access token that lives long enough."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    body = json_body(app.current_event.raw_event)
    min_ttl_s, pair = body.get("min_ttl_s", 0), body.get("token", MAIN)
    for unknown in body.keys() - {"min_ttl_s", "token"}:
        raise InvalidBodyError("The body has a field that this route does not take.", field=unknown[:100])
    if type(min_ttl_s) is not int or not 0 <= min_ttl_s <= 86_400:
        raise InvalidBodyError("min_ttl_s: a number of seconds between 0 and 86400", field="min_ttl_s")
    deadline = Invocation(app.lambda_context)
    token = hand_out(ref, checked_id(pair, "token"), min_ttl_s * 1000, deadline, wired.handing_out)
    return answer(views.access_token(token))


@app.post("/v1/tenants/<tenant>/owners/<owner>/connections/<connection_id>/import")
def import_connection(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """A grant that the app holds, taken into custody."""
    event = app.current_event.raw_event
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    request = import_request(ref, json_body(event), header(event, "idempotency-key") or None)
    done = import_grant(request, Invocation(app.lambda_context), wired.importing)
    if not done.dry_run:
        parts.telemetry.count("ConnectionsImported")
    found = None if done.connection is None else views.connection(ConnectionView(done.connection))
    return answer({"connection": found, "shared_copy": done.shared_copy, "dry_run": done.dry_run})


@app.post("/v1/tenants/<tenant>/owners/<owner>/sdk-sign-in")
def sign_in(tenant: str, owner: str) -> Response[str]:
    """A token of the broker's for the app's SDK."""
    request = sign_in_request(tenant, owner, json_body(app.current_event.raw_event))
    done = sdk_sign_in(request, Invocation(app.lambda_context), wired.importing)
    parts.telemetry.count("SdkSignIns")
    view = views.connection(ConnectionView(done.connection))
    return answer({"connection": view, "sign_in_token": done.token.reveal()})


http = handler_of(app, parts.telemetry, lambda: parts.config.current().api_id)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """HTTP events of our API, or reconcile's closed request to send a refresh again; IAM says who may invoke us."""
    if event.keys() != {"replay"}:
        return http(event, context)
    with parts.telemetry.invocation():
        try:
            replay(*closed(event["replay"]), Invocation(context), wired.handing_out)
        except QuitclaimError as error:
            parts.telemetry.say("replayed", code=error.code)
            return {"outcome": error.code}
        return {"outcome": "granted"}


def closed(asked: Any) -> tuple[ConnectionRef, str]:
    """Whose token pair a replay is of: four ids, and nothing else. Raises `InvalidBodyError`."""
    if not isinstance(asked, dict) or asked.keys() != {"tenant", "owner", "connection", "pair"}:
        raise InvalidBodyError
    ref = ConnectionRef.checked(asked["tenant"], asked["owner"], asked["connection"])
    return ref, checked_id(asked["pair"], "pair")
