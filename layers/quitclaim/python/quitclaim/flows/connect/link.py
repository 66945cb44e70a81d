"""The hosted connect link: a browser that opens it is sent to the provider, or to a broker's own pages."""

import json
from collections.abc import Mapping

from quitclaim.domain.asked import AuthorizationAsked, VisitSecrets
from quitclaim.domain.connect import Authorization, Ticket, may_visit, refusal_of_link, refusal_of_source_link
from quitclaim.domain.errors import FlowNotSupportedError, MovedError, OwnerDeletedError, StateInvalidError
from quitclaim.domain.ids import digest
from quitclaim.domain.limits import AUTHORIZATION_MS
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.brokers import open_hosted
from quitclaim.flows.connect.browser import Visit, challenge_of, cookie_name, redirect_uri
from quitclaim.flows.connect.connecting import Connecting


def open_link(ticket: Secret, base_url: str, world: Connecting) -> Visit:
    """
    Send a browser that opened the connect link to the provider, with a state, verifier and binding of its own.

    1. One transaction: one visit more, one authorization. Crash after it: the authorization expires by itself.
    """
    now = world.clock.now()
    found = world.reads.ticket(ticket.reveal())
    if found is None or not may_visit(found, now):
        raise StateInvalidError
    owner, connection, _ = world.reads.fence(found.ref, found.client)
    if owner is None or owner.deleted_at is not None:
        raise OwnerDeletedError
    if found.reuses:
        refusal = refusal_of_source_link(connection, found.generation)
    else:
        refusal = refusal_of_link(connection, found.generation, found.step_up)
    if refusal is not None:
        raise refusal
    client = world.clients.named(found.client)
    if not client.facts.connectable:
        raise FlowNotSupportedError(provider=client.provider)
    if client.facts.is_broker:
        return open_hosted(ticket, found, client, base_url, world)
    state, binding = world.ids.new_secret(), world.ids.new_secret()
    scopes = found.scopes or client.scopes
    hint, variables = _about(ticket, found, world)
    secrets = VisitSecrets(
        verifier=world.ids.new_secret() if client.facts.pkce else None,
        nonce=world.ids.new_secret() if client.wants_nonce(scopes) else None,
        variables=variables,
    )
    state_digest = digest(state.reveal())
    authorization = Authorization(
        ref=found.ref,
        generation=found.generation,
        client=found.client,
        binding=digest(binding.reveal()),
        expires=now + AUTHORIZATION_MS,
        sealed=world.vault.seal_authorization(state_digest, found.ref, found.generation, secrets),
        return_to=found.return_to,
        scopes=scopes,
        step_up=found.step_up,
    )
    asked = AuthorizationAsked(
        redirect_uri=redirect_uri(base_url, client),
        state=state,
        challenge=None if secrets.verifier is None else challenge_of(secrets.verifier),
        nonce=secrets.nonce,
        scopes=scopes,
        hint=hint,
        variables=variables,
    )
    try:
        world.store.visit(found, digest(ticket.reveal()), authorization, state_digest, now)
    except MovedError as moved:
        raise StateInvalidError from moved
    url = client.authorize_url(asked)
    return Visit(url, cookie_name(state_digest), binding, cross_site_post=client.facts.posts_back)


def _about(ticket: Secret, found: Ticket, world: Connecting) -> tuple[Secret | None, Mapping[str, str]]:
    """Who the provider is to expect, and what its addresses need, as the start said it."""
    if found.about is None:
        return None, {}
    said = json.loads(world.vault.open_under_ticket(ticket, found.about).reveal())
    return None if said["hint"] is None else Secret(said["hint"]), said["variables"]
