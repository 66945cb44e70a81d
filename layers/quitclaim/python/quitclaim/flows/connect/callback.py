"""
The callback: everything that can be refused is refused before the state is spent; then one exchange, whose outcome is
shown again.
"""

import hmac
from typing import Final

from quitclaim.domain.connect import (
    KNOWN_ERRORS,
    PASSING_ERRORS,
    Authorization,
    Connection,
    ConnectionState,
    Exchange,
    ExchangeOutcome,
    Phase,
    refusal_of_link,
)
from quitclaim.domain.errors import (
    BindingMismatchError,
    CallbackRecoveryRequiredError,
    CallbackRejectedError,
    CodeMissingError,
    GrantNotInstalledError,
    IssuerMismatchError,
    MovedError,
    OwnerDeletedError,
    ProviderMismatchError,
    QuitclaimError,
    StateInvalidError,
    StateMissingError,
    StateReplayedError,
    StateSupersededError,
    TimeIsUpError,
)
from quitclaim.domain.ids import digest
from quitclaim.domain.limits import EXCHANGE_CALL_MS, GUARD_MS, IDENTITY_CALL_MS, LOSER_WAIT_MS, SAVE_MS
from quitclaim.domain.outcomes import TokenGrant
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.connect.brokers import link_returned, source_returned
from quitclaim.flows.connect.browser import Callback, CallbackOutcome, cookie_name, opened, redirect_uri
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.connect.exchange import Consent, Tokens, begin, end, tokens_of
from quitclaim.flows.connect.hold import hold
from quitclaim.flows.connect.identity import identified
from quitclaim.flows.connect.install import brought
from quitclaim.ports import Client, Deadline


class CallbackFailedError(Exception):
    """A callback of a known, bound authorization failed with *cause*: the browser may be told at *return_to*."""

    def __init__(self, cause: QuitclaimError, connection_id: str, return_to: str | None) -> None:
        super().__init__(cause.code)
        self.cause = cause
        self.connection_id = connection_id
        self.return_to = return_to


def complete_callback(callback: Callback, base_url: str, deadline: Deadline, world: Connecting) -> CallbackOutcome:
    """
    Turn the provider's code into a held grant, and into the live one where no confirmation is asked for.

    Everything that can be refused is refused before the state is consumed: nothing is lost, the link may be opened
    again.

    1. `begin`: the state is consumed and the exchange recorded; only then is the code sent, once. Crash or no answer:
       it lapses as unconfirmed, and the owner must acknowledge before a new grant.
    2. `hold`: the returned grant is sealed, revoke-only, in the queue (for use as well, where it waits for its owner).
       Crash: once `hold_ends` is over, the sweep revokes it.
    3. `record_identity`: whose grant it is. Crash: as after 2.
    4. `install`, here or at the owner's confirmation: it is the live grant and leaves the queue. Refused or crash
       before it: as after 2.
    """
    authorization, state_digest = _bound_authorization(callback, world)
    try:
        return _complete(callback, authorization, state_digest, base_url, deadline, world)
    except QuitclaimError as cause:
        raise CallbackFailedError(cause, authorization.ref.connection, authorization.return_to) from cause


def _bound_authorization(callback: Callback, world: Connecting) -> tuple[Authorization, str]:
    """The authorization that the state stands for, brought back by the browser that started it; nothing is consumed."""
    if callback.state is None:
        raise StateMissingError
    state_digest = digest(callback.state.reveal())
    authorization = world.reads.authorization(state_digest)
    now = world.clock.now()
    if authorization is None or authorization.discarded_at is not None or authorization.expires <= now:
        raise StateInvalidError
    client = world.clients.named(authorization.client)
    if client.provider != callback.provider:
        raise ProviderMismatchError
    cookie = callback.cookies.get(cookie_name(state_digest), "")
    if not hmac.compare_digest(digest(cookie), authorization.binding):
        raise BindingMismatchError
    if not client.is_issuer(callback.iss):
        raise IssuerMismatchError
    return authorization, state_digest


def _complete(
    callback: Callback,
    authorization: Authorization,
    state_digest: str,
    base_url: str,
    deadline: Deadline,
    world: Connecting,
) -> CallbackOutcome:
    client = world.clients.named(authorization.client)
    if authorization.reuses:
        return source_returned(authorization, state_digest, client, deadline, world)
    if authorization.consumed_at is not None:
        return _outcome_again(authorization, client, deadline, world)
    if client.facts.is_broker:
        return link_returned(authorization, state_digest, client, deadline, world)
    if callback.error or not callback.code:
        _discard(callback, authorization, state_digest, world)
    visit = opened(authorization, state_digest, world)
    variables = {**visit.variables, **client.in_callback(visit.variables, callback.query)}
    if deadline.remaining_ms() < EXCHANGE_CALL_MS + SAVE_MS:
        raise TimeIsUpError
    world.vault.ready("use", "revoke", "index", "confirm")
    client.prepare()
    exchange = begin(authorization, state_digest, client, world)
    # Nothing between the record and the send but this check: the request leaves only while its record is open (custody
    # rule 1).
    limit = min(EXCHANGE_CALL_MS, deadline.remaining_ms() - SAVE_MS, exchange.ends - GUARD_MS - world.clock.now())
    if limit <= 0 or callback.code is None:
        end(exchange, "not_sent", world, unconfirmed=False)
        raise TimeIsUpError
    answer = client.exchange(
        code=callback.code,
        verifier=visit.verifier,
        redirect_uri=redirect_uri(base_url, client),
        timeout_ms=limit,
        variables=variables,
    )
    tokens = tokens_of(answer, exchange, client, world)
    consent = _consent(callback, authorization, visit.nonce, client)
    held, pairs, revocation = hold(tokens, exchange, consent, client, world)
    proof = (tokens.grant.id_token, visit.nonce) if consent.proves and tokens.grant is not None else None
    held = identified(tokens, proof, held, revocation, client, deadline, world)
    return brought(authorization, held, pairs, client, deadline, world)


def _consent(callback: Callback, authorization: Authorization, nonce: Secret | None, client: Client) -> Consent:
    asked = authorization.scopes or client.scopes
    required = asked if client.required_scopes is None else asked & client.required_scopes
    must_last = authorization.step_up is not None and client.facts.refreshable
    named = client.scopes_in_callback(callback.query)
    return Consent(asked, required, named, client.expects_id_token(asked), nonce, must_last)


def _outcome_again(
    authorization: Authorization, client: Client, deadline: Deadline, world: Connecting
) -> CallbackOutcome:
    """
    The same browser brings the same callback again: the first delivery owns the outcome, and this shows it as long as
    it stands (M-30, RB-49). One that is still at work is waited for a moment; nothing is ever done twice.

    1. `record_identity`, where the worker that held the grant died before it: no code is shown for a grant that nobody
       knows the account of. Crash: as after the first delivery's hold.
    """
    ref = authorization.ref
    owner, connection = world.reads.owner_and_connection(ref)
    if owner is None or owner.is_deleted:
        raise OwnerDeletedError
    exchange = world.reads.exchange(ref, authorization.exchange or "")
    waited = 0
    while exchange is not None and _is_at_work(exchange) and waited < LOSER_WAIT_MS:
        if deadline.remaining_ms() < SAVE_MS + IDENTITY_CALL_MS:
            break
        world.clock.pause(REPEAT_STEP_MS)
        waited += REPEAT_STEP_MS
        exchange = world.reads.exchange(ref, exchange.id)
    if waited:
        connection = world.reads.connection(ref)
    names = () if connection is None else (connection.exchange, connection.step_up_exchange)
    if connection is not None and exchange is not None and exchange.id in names:
        if _is_at_work(exchange):
            return CallbackOutcome(ref.connection, client.provider, "in_progress", authorization.return_to)
        if exchange.outcome is ExchangeOutcome.HELD and (exchange.hold_ends or 0) > world.clock.now():
            _identified_again(exchange, client, deadline, world)
            code = world.vault.confirm_code(exchange.id, exchange.started)
            return CallbackOutcome(
                ref.connection, client.provider, "awaiting_confirmation", authorization.return_to, code
            )
        if exchange.outcome is ExchangeOutcome.INSTALLED and connection.state is ConnectionState.READY:
            return CallbackOutcome(ref.connection, client.provider, "ready", authorization.return_to)
    raise _refusal_again(connection, authorization, exchange)


REPEAT_STEP_MS: Final = 500
"""How often a repeated callback looks whether the first one has come to its end."""


def _is_at_work(exchange: Exchange) -> bool:
    """Whether the delivery that began the exchange may still bring it to its end by itself."""
    return exchange.outcome is ExchangeOutcome.OPEN or (
        exchange.outcome is ExchangeOutcome.HELD and exchange.use is None
    )


def _refusal_again(
    connection: Connection | None, authorization: Authorization, exchange: Exchange | None
) -> QuitclaimError:
    """What a repeated callback is told whose first delivery brought nothing that stands (M-30, M-31)."""
    name = authorization.ref.connection
    refusal = refusal_of_link(connection, authorization.generation, authorization.step_up)
    if exchange is not None and not isinstance(refusal, StateSupersededError):
        if exchange.outcome is ExchangeOutcome.UNCONFIRMED and exchange.acknowledged is None:
            return CallbackRecoveryRequiredError(connection_id=name)
        if exchange.outcome is ExchangeOutcome.CLEANUP:
            return GrantNotInstalledError(connection_id=name, reason=exchange.reason)
    return refusal or StateReplayedError(connection_id=name)


def _identified_again(held: Exchange, client: Client, deadline: Deadline, world: Connecting) -> None:
    """The account of a held grant, by its own tokens, where nobody has learned it yet."""
    if held.use is None or (held.id_token is None and (held.account is not None or not client.facts.has_identity)):
        return
    world.vault.ready("use", "index")
    pair = world.vault.open_for_use(held.ref, held.generation, 1, MAIN, held.use)
    revocation = world.reads.revocations([held.rid])[held.rid]
    if revocation is None:
        raise StateReplayedError(connection_id=held.ref.connection)
    proof = None
    if held.id_token is not None:
        proof = world.vault.open_id_token(held.ref, held.generation, held.id, held.id_token)
    grant = TokenGrant(pair.access_token, variables=pair.variables)
    identified(Tokens(grant, ()), proof, held, revocation, client, deadline, world)


def _discard(callback: Callback, authorization: Authorization, state_digest: str, world: Connecting) -> None:
    """
    The provider granted nothing: the state is spent without an exchange. A final answer fails the connection, a passing
    one leaves the link.
    """
    refusal: QuitclaimError = CodeMissingError()
    if callback.error:
        refusal = CallbackRejectedError(reason=callback.error if callback.error in KNOWN_ERRORS else "other")
    owner, connection = world.reads.owner_and_connection(authorization.ref)
    if owner is None or owner.is_deleted:
        raise OwnerDeletedError
    is_current = (
        connection is not None
        and connection.is_authorizing_at(authorization.generation)
        and connection.phase is Phase.LINK
    )
    is_final = not callback.error or callback.error not in PASSING_ERRORS
    reason = "denied" if callback.error else "no_code"
    fails = connection if is_current and is_final else None
    try:
        world.store.discard(authorization, state_digest, world.clock.now(), fails=fails, reason=reason)
    except MovedError as moved:
        raise StateReplayedError from moved
    raise refusal
