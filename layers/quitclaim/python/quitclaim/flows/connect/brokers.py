"""Brokers: an account that is made before its user returns, and sources that are linked behind it."""

from typing import Final
from urllib.parse import urlencode

from quitclaim.domain.asked import VisitSecrets
from quitclaim.domain.connect import LINK, Authorization, Exchange, Ticket, refusal_of_source_link
from quitclaim.domain.errors import (
    ClientConfigError,
    FlowNotSupportedError,
    MovedError,
    OutcomeUnknownError,
    OwnerDeletedError,
    ProviderBusyError,
    ProviderRefusedError,
    QuitclaimError,
    StateInvalidError,
    StateSupersededError,
    TimeIsUpError,
)
from quitclaim.domain.ids import ConnectionRef, digest
from quitclaim.domain.limits import AUTHORIZATION_MS, EXCHANGE_CALL_MS, IDENTITY_CALL_MS, SAVE_MS
from quitclaim.domain.outcomes import BrokerAnswer, Outcome, TokenGrant
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN, TokenPair
from quitclaim.flows.connect.browser import CallbackOutcome, Visit, cookie_name, opened, redirect_uri
from quitclaim.flows.connect.connecting import Connecting, clear_of_settled, refuse_blocked
from quitclaim.flows.connect.establish import admit_link
from quitclaim.flows.connect.exchange import Consent, Tokens, begin, given
from quitclaim.flows.connect.hold import as_held, hold, pair_of, queued_by
from quitclaim.flows.connect.identity import identified
from quitclaim.flows.connect.install import brought
from quitclaim.ports import Broker, Client, Deadline


def open_hosted(ticket: Secret, found: Ticket, client: Client, base_url: str, world: Connecting) -> Visit:
    """
    Send the browser to a broker's own pages, where the user links something behind an account.

    The account is there before the user returns (a seed, M-6): found or made by our reference, which may be repeated,
    and gives access to nothing by itself. It is checked and sealed with the state, in the one transaction that makes
    the state (D-29); no connection is changed by it. While something of this owner is still to be removed, nothing is
    linked: it may be the account that would be found. Where a source is linked behind an account that is there already,
    it is that of the live grant.
    """
    broker = broker_of(client)
    world.vault.ready("use", "authorization", "index")
    state, binding = world.ids.new_secret(), world.ids.new_secret()
    state_digest = digest(state.reveal())
    account = _account_of(found, client, broker, world)
    back = f"{redirect_uri(base_url, client)}?{urlencode({broker.state_param: state.reveal()})}"
    link = broker.link(account=account, source=found.source, back=back, timeout_ms=IDENTITY_CALL_MS)
    if link.value is None:
        raise refusal_of_broker(link, found.ref.connection)
    now = world.clock.now()
    authorization = Authorization(
        ref=found.ref,
        generation=found.generation,
        client=found.client,
        binding=digest(binding.reveal()),
        expires=now + AUTHORIZATION_MS,
        sealed=world.vault.seal_authorization(
            state_digest, found.ref, found.generation, VisitSecrets(verifier=account)
        ),
        return_to=found.return_to,
        scopes=found.scopes or client.scopes,
        reuses=found.reuses,
        source=found.source,
        fence=found.fence,
    )
    try:
        world.store.visit(found, digest(ticket.reveal()), authorization, state_digest, now)
    except MovedError as moved:
        raise StateInvalidError from moved
    return Visit(link.value.reveal(), cookie_name(state_digest), binding, cross_site_post=False)


def broker_of(client: Client) -> Broker:
    """The client's broker, or `FlowNotSupportedError`."""
    broker = client.broker
    if broker is None:
        raise FlowNotSupportedError(provider=client.provider)
    return broker


def _account_of(found: Ticket, client: Client, broker: Broker, world: Connecting) -> Secret:
    """The account at the broker: that of the live grant, or the one that our reference names."""
    if found.reuses:
        grant = world.reads.grant(found.ref, MAIN)
        if grant is None or grant.generation != found.generation:
            raise StateSupersededError
        return world.vault.open_for_use(found.ref, grant.generation, grant.tv, MAIN, grant.use).access_token
    # What is still to be removed for this owner may be this very account: only what is found after that is there to
    # stay.
    _, _, barrier = world.reads.fence(found.ref, client.name)
    refuse_blocked(clear_of_settled(found.ref, barrier, client.name, world), world.clock.now())
    answer = broker.account(reference=reference_of(found.ref, client, world), timeout_ms=EXCHANGE_CALL_MS)
    if answer.value is None:
        raise refusal_of_broker(answer, found.ref.connection)
    return answer.value


def reference_of(ref: ConnectionRef, client: Client, world: Connecting) -> str:
    """Our name of a connection's account at a broker: a keyed digest, so that the broker learns no id of the app."""
    return world.vault.account_digest(client.name, f"connection/{ref.tenant}/{ref.owner}/{ref.connection}")


def refusal_of_broker(answer: BrokerAnswer, connection: str) -> QuitclaimError:
    """What a broker's answer without what was asked for means to the caller."""
    if answer.config_fault:
        return ClientConfigError(connection_id=connection)
    if answer.outcome is Outcome.REJECTED:
        return ProviderRefusedError(connection_id=connection)
    if answer.outcome is Outcome.UNKNOWN:
        return OutcomeUnknownError(connection_id=connection)
    return ProviderBusyError(connection_id=connection, retry_after_ms=answer.retry_after_ms)


def link_returned(
    authorization: Authorization, state_digest: str, client: Client, deadline: Deadline, world: Connecting
) -> CallbackOutcome:
    """
    The browser came back from a broker's pages: the account that was made for it becomes the connection's grant.

    1. `begin`: the state is spent, and the account that was sealed with it is held, in one commit: nothing is sent, so
       there is nothing to be on record before. Crash: the sweep removes the account once the hold is over.

    From there on it is the callback of a code. What stands in it beside the state is the broker's own affair (M-25).
    """
    if deadline.remaining_ms() < 3 * SAVE_MS:
        raise TimeIsUpError
    world.vault.ready("use", "revoke", "index", "confirm")
    account = opened(authorization, state_digest, world).verifier
    if account is None:
        raise StateInvalidError
    tokens, consent = _tokens_of_account(account, client, world), _consent_to_account(client)
    pair = pair_of(tokens, client)

    def holding(exchange: Exchange) -> tuple[Exchange, Revocation]:
        now, confirms = exchange.started, client.confirmation == "owner"
        held = as_held(exchange, tokens, pair if confirms else None, consent, client, world.vault, now)
        return held, queued_by(held, tokens, account, client, world.vault, now)

    held = begin(authorization, state_digest, client, world, kind=LINK, holding=holding)
    return brought(authorization, held, pair, client, deadline, world)


def held_account(
    account: Secret, exchange: Exchange, client: Client, deadline: Deadline, world: Connecting
) -> tuple[Exchange, TokenPair]:
    """An account at a broker, held as the grant of its exchange."""
    tokens = _tokens_of_account(account, client, world)
    held, pair, revocation = hold(tokens, exchange, _consent_to_account(client), client, world)
    return identified(tokens, None, held, revocation, client, deadline, world), pair


ACCOUNT_TYPE: Final = "account"
"""`token_type` of what is handed out for an account at a broker: the broker's own id of it."""


def _tokens_of_account(account: Secret, client: Client, world: Connecting) -> Tokens:
    return given(TokenGrant(account, token_type=ACCOUNT_TYPE, account_id=account.reveal()), client, world)


def _consent_to_account(client: Client) -> Consent:
    return Consent(client.scopes, frozenset(), None, proves=False, nonce=None)


def source_returned(
    authorization: Authorization, state_digest: str, client: Client, deadline: Deadline, world: Connecting
) -> CallbackOutcome:
    """
    The browser came back from linking a source behind an account that is there already.

    1. `return_link`: the state is spent; nothing of the account is changed (M-48). Crash: it expires.
    2. `connection.establishing` is asked, where the app has it and nobody confirms. Where it does not say that it has
       admitted the source, `fail_link` (row 83): the source is in error, and its connection as it was. Crash: the same
       callback asks again, with the same id.

    The same callback again shows the same, as long as the connection lives.
    """
    ref = authorization.ref
    owner, connection = world.reads.owner_and_connection(ref)
    if owner is None or owner.is_deleted:
        raise OwnerDeletedError
    refusal = refusal_of_source_link(connection, authorization.generation)
    if refusal is not None:
        raise refusal
    if authorization.consumed_at is None:
        try:
            world.store.return_link(authorization, state_digest, world.clock.now())
        except MovedError as moved:
            if "connection" in moved.seen:
                raise StateSupersededError(connection_id=ref.connection) from moved
            # The same callback, delivered twice: the other one has spent the state.
    if connection is not None:
        admit_link(authorization, owner, connection, client, deadline, world)
    return CallbackOutcome(ref.connection, client.provider, "ready", authorization.return_to)
