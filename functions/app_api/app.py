"""
The app's own API: connections, their status, their stop. IAM on every route; tenant and owner come from the path that
IAM judged.
"""

from typing import Any

from aws_lambda_powertools.event_handler import Response

from quitclaim.domain.asked import checked_metadata
from quitclaim.domain.attention import Subject
from quitclaim.domain.ids import ConnectionRef, OwnerRef, checked_id
from quitclaim.domain.return_to import checked_return_to
from quitclaim.domain.secret import Secret
from quitclaim.domain.sources import SourceProof, checked_slug
from quitclaim.flows.connect.confirm import confirm
from quitclaim.flows.connect.start import Started, StartRequest, start
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.operator import Asked as AskedByOperator
from quitclaim.flows.operator import Redrive, acknowledge_for_deleted, attention, redrive, retry
from quitclaim.flows.revocations import acknowledge
from quitclaim.flows.status import ConnectionView, all_views, status, view
from quitclaim.flows.stop import disconnect
from quitclaim.flows.tokens import report
from quitclaim.runtime import views, wiring
from quitclaim.runtime.bodies import (
    Asked,
    Confirm,
    Connect,
    OperatorAcknowledge,
    OperatorRetry,
    Proof,
    Reconnect,
    RedriveDeliveries,
    Report,
    parsed,
)
from quitclaim.runtime.http import (
    answer,
    caller_of,
    generation_of,
    handler_of,
    header,
    json_body,
    new_resolver,
    number_of,
)
from quitclaim.runtime.settings import origins

wired = wiring.app_api()
parts = wired.parts
app = new_resolver()
OWNER = "/v1/tenants/<tenant>/owners/<owner>"
ORIGINS = origins(parts.settings.return_origins)


def event() -> dict[str, Any]:
    """The event that is being answered."""
    return app.current_event.raw_event


def started(ref: ConnectionRef, client: str, body: Asked, *, provider: str | None = None) -> Response[str]:
    """A start's answer: the connection, and where its user goes. *provider* is None for a reconnect."""
    address = parts.config.current().address
    request = StartRequest(
        ref=ref,
        client=client,
        return_to=checked_return_to(body.return_to, ORIGINS),
        provider=provider,
        again=provider is None,
        idempotency_key=idempotency_key(),
        scopes=frozenset(body.scopes or ()),
        login_hint=Secret(body.login_hint) if body.login_hint else None,
        metadata=checked_metadata(body.metadata),
        variables=body.variables,
        source=None if body.source is None else checked_slug(body.source),
        proof=None if body.source_proof is None else proof_of(body.source_proof),
    )
    done: Started = start(request, wired.connecting)
    told: dict[str, Any] = {"connection": views.connection(ConnectionView(done.connection))}
    if done.ticket is not None:
        parts.telemetry.count("ConnectionsStarted")
        told["connect_url"] = f"{address}/connect/{done.ticket.reveal()}"
        told["expires_at"] = done.expires_at
    return answer(told, 201 if done.ticket is not None else 200)


def proof_of(body: Proof) -> SourceProof:
    """What the app saw of a source."""
    return SourceProof(body.connection_id, checked_slug(body.source), body.instance, body.last_seen)


@app.post(f"{OWNER}/connections")
def create_connection(tenant: str, owner: str) -> Response[str]:
    """Begin a connection."""
    body = parsed(Connect, json_body(event()))
    ref = ConnectionRef.checked(tenant, owner, body.connection_id)
    return started(ref, body.client or body.provider, body, provider=body.provider)


@app.post(f"{OWNER}/connections/<connection_id>/reconnect")
def reconnect(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """Begin the next generation of a connection that was lost, failed or revoked."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    body = parsed(Reconnect, json_body(event()))
    return started(ref, view(ref, reads=parts.reads, clock=parts.clock).connection.client, body)


@app.get(f"{OWNER}/connections")
def list_connections(tenant: str, owner: str) -> Response[str]:
    """All connections of the owner."""
    found = all_views(OwnerRef.checked(tenant, owner), reads=parts.reads, clock=parts.clock)
    return answer({"connections": [views.connection(each) for each in found]})


@app.get(f"{OWNER}/connections/<connection_id>")
def get_connection(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """One connection."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    return answer(views.connection(view(ref, reads=parts.reads, clock=parts.clock)))


@app.get(f"{OWNER}/connections/<connection_id>/sources")
def list_sources(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """What is linked, or was asked for, behind the account of a connection to a broker."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    connection = view(ref, reads=parts.reads, clock=parts.clock).connection
    found = [views.source(each, connection.generation) for each in parts.reads.sources(ref)]
    last = parts.reads.last_event_at(connection)
    return answer({"sources": found} | ({} if last is None else {"last_event_at": last}))


@app.delete(f"{OWNER}/connections/<connection_id>")
def delete_connection(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """Stop a connection at the generation that the caller saw."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    stopped = disconnect(ref, generation_of(event()), wired.stopping, idempotency_key())
    parts.telemetry.count("ConnectionsStopped")
    return answer(views.connection(ConnectionView(stopped)))


@app.post(f"{OWNER}/connections/<connection_id>/confirm")
def confirm_connection(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """The owner brings back the code that the connect page gave."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    body = parsed(Confirm, json_body(event()))
    ready = confirm(ref, body.generation, Secret(body.code), wired.connecting)
    parts.telemetry.count("ConnectionsReady")
    return answer(views.connection(ConnectionView(ready)))


@app.post(f"{OWNER}/connections/<connection_id>/acknowledge-removal")
def acknowledge_removal(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """The owner says that the access is gone at the provider."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    count = acknowledge(ref, reads=parts.reads, store=parts.revocations, clock=parts.clock)
    return answer({"acknowledged": count})


@app.post(f"{OWNER}/connections/<connection_id>/report")
def report_token(tenant: str, owner: str, connection_id: str) -> Response[str]:
    """The app was refused with a token that it was handed out."""
    ref = ConnectionRef.checked(tenant, owner, connection_id)
    body = parsed(Report, json_body(event()))
    pair = checked_id(body.token, "token")
    suspect = report(ref, pair, body.token_version, reads=parts.reads, store=parts.tokens, breaker=wired.breaker)
    parts.telemetry.count("TokensReported")
    return answer({"suspect": suspect})


@app.delete(OWNER)
def remove_owner(tenant: str, owner: str) -> Response[str]:
    """Delete an owner for good; its connections are stopped one after the other from here on."""
    deleted = delete_owner(OwnerRef.checked(tenant, owner), wired.stopping)
    parts.telemetry.count("OwnersDeleted")
    return answer({"owner": views.owner(deleted)})


@app.get(f"{OWNER}/status")
def owner_status(tenant: str, owner: str) -> Response[str]:
    """What somebody may have to act on."""
    ref = OwnerRef.checked(tenant, owner)
    told = status(ref, reads=parts.reads, clients=parts.clients, clock=parts.clock)
    return answer(views.status(told, parts.config.current().base_url))


@app.get(f"{OWNER}/receipts")
def owner_receipts(tenant: str, owner: str) -> Response[str]:
    """What became of the owner's grants."""
    return answer({"receipts": parts.reads.receipts(OwnerRef.checked(tenant, owner))})


# --- operators: over all tenants, by a policy of their own ------------------------------------------------------------


@app.get("/v1/attention")
def list_attention() -> Response[str]:
    """What a person has to look at, the oldest first."""
    limit = number_of(event(), "limit", least=1, most=500, otherwise=100)
    found, more = attention(limit, wired.operating)
    return answer({"items": [views.attention(each) for each in found], "more": more})


@app.post("/v1/attention/<subject>/retry")
def retry_revocation(subject: str) -> Response[str]:
    """Try a revocation again now."""
    body = parsed(OperatorRetry, json_body(event()))
    retry(Subject.read(subject), AskedByOperator(caller_of(event()), body.reason or ""), wired.operating)
    parts.telemetry.count("RevocationsRetriedByHand")
    return answer({"id": subject, "due": True})


@app.post("/v1/attention/<subject>/acknowledge")
def acknowledge_notice(subject: str) -> Response[str]:
    """Close a notice of an owner that was deleted."""
    body = parsed(OperatorAcknowledge, json_body(event()))
    acknowledge_for_deleted(Subject.read(subject), AskedByOperator(caller_of(event()), body.reason), wired.operating)
    parts.telemetry.count("NoticesClosedByOperators")
    return answer({"id": subject, "acknowledged": True})


@app.post("/v1/deliveries/redrive")
def redrive_deliveries() -> Response[str]:
    """Have events that nobody had delivered after all; a dry run unless the body says otherwise."""
    body = parsed(RedriveDeliveries, json_body(event()))
    of = body.connection
    ref = None if of is None else ConnectionRef.checked(of.tenant, of.owner, of.connection_id)
    which = Redrive(body.id, body.client, body.provider, ref, body.since, body.until)
    asked = AskedByOperator(caller_of(event()), body.reason)
    at = views.place_of(body.after)
    found, rest = redrive(which, asked, wired.operating, dry_run=body.dry_run, at=at)
    if not body.dry_run:
        parts.telemetry.count("DeliveriesRedriven", len(found))
    told = {"dry_run": body.dry_run, "deliveries": [views.kept(each) for each in found], "more": rest is not None}
    return answer(told if rest is None else told | {"after": views.place(rest)})


@app.get("/v1/providers")
def providers() -> Response[str]:
    """The clients that are set up, and what disconnect does at each."""
    return answer({"clients": [views.client(parts.clients.named(name)) for name in sorted(parts.clients.sound())]})


def idempotency_key() -> str | None:
    """The caller's key, where there is one; all of it, for two keys that begin alike are two."""
    return header(event(), "idempotency-key") or None


handler = handler_of(app, parts.telemetry, lambda: parts.config.current().api_id)
