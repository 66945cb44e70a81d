"""
Import: the app holds a grant from before, and gives it into custody.

An import is an exchange of its own kind. What is exchanged is the refresh token that the app holds, and the one request
is a refresh: at a provider that rotates it makes ours the only live copy, at any other it shows that the token is good.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from quitclaim.domain.connect import (
    IMPORT,
    Connection,
    DirectBegin,
    Exchange,
    ExchangeOutcome,
    Idempotency,
    exchange_ends,
    importing,
    may_leave_a_grant,
    refuse_import,
)
from quitclaim.domain.errors import (
    ClientConfigError,
    ConnectBlockedError,
    ConnectionNotFoundError,
    ExchangeUnconfirmedError,
    GrantNotInstalledError,
    IdempotencyMismatchError,
    ImportFailedError,
    ImportNotSupportedError,
    InvalidBodyError,
    MovedError,
    OutcomeUnknownError,
    OwnerDeletedError,
    ProviderBusyError,
    QuitclaimError,
    StateConflictError,
    TimeIsUpError,
)
from quitclaim.domain.facts import OldToken, ProviderFacts
from quitclaim.domain.ids import ConnectionRef, digest
from quitclaim.domain.limits import (
    EXCHANGE_CALL_MS,
    GUARD_MS,
    IDEMPOTENCY_TTL_MS,
    IDENTITY_CALL_MS,
    REFRESH_CALL_MIN_MS,
    SAVE_MS,
)
from quitclaim.domain.outcomes import Outcome, TokenAnswer, TokenGrant
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN, TokenPair
from quitclaim.flows.connect.connecting import TRIES, Connecting, clear_of_settled, refuse_blocked
from quitclaim.flows.connect.exchange import Consent, end, tokens_of
from quitclaim.flows.connect.hold import hold, release
from quitclaim.flows.connect.identity import identified
from quitclaim.flows.connect.install import install
from quitclaim.ports import Client, Deadline

AFTER_THE_CALL_MS: Final = IDENTITY_CALL_MS + 2 * SAVE_MS
"""What is kept free behind the refresh: to learn whose grant it is, to hold it and to install it."""
DROPPED: Final = "dropped"
"""Of our copy: it is erased, and nothing was done to the grant."""
REVOKING: Final = "revoking"
"""Of our copy: the refresh had succeeded, so that it is a grant like any other, and is being revoked."""


@dataclass(frozen=True)
class ImportRequest:
    """
    What the app gives. *account_id*: whose grant it says this is; *scopes*: what it says was granted, for answers that
    do not. *variables*: what the provider's addresses need, as the start and the callback of then named it. *dry_run*:
    look at everything, send and write nothing.
    """

    ref: ConnectionRef
    client: str
    refresh_token: Secret
    provider: str | None = None
    account_id: Secret | None = None
    scopes: frozenset[str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    dry_run: bool = False
    idempotency_key: str | None = None

    def key_digest(self) -> str | None:
        """Of the idempotency key and the route."""
        if self.idempotency_key is None:
            return None
        ref = self.ref
        return digest("\n".join(("import", ref.tenant, ref.owner, ref.connection, self.idempotency_key)))

    def digest(self, keyed: Callable[[Secret], str]) -> str:
        """What makes two requests the same; of secrets *keyed* digests only, for some are easily guessed."""
        ref, account = self.ref, self.account_id
        parts = (ref.tenant, ref.owner, ref.connection, self.client, keyed(self.refresh_token))
        further = (keyed(Secret(json.dumps(dict(self.variables), sort_keys=True))),) if self.variables else ()
        return digest("\n".join((*parts, keyed(account) if account else "", *sorted(self.scopes or ()), *further)))


@dataclass(frozen=True)
class Imported:
    """
    The connection (None: a dry run of one that is not there yet), and whether the app's copy may be as good as ours.
    """

    connection: Connection | None
    shared_copy: bool
    dry_run: bool = False


def import_grant(request: ImportRequest, deadline: Deadline, world: Connecting) -> Imported:
    """
    Take a grant over that the app holds.

    1. `begin_directly`: the given token is sealed on its exchange; only then is it sent, once, to be refreshed. Crash
       or an answer without a grant: the sealed copy is dropped and nothing is revoked, for the grant is the app's.
       Where the provider rotates and nobody saw its answer, the app's token may be spent and its successor lost: that
       ends in a notice.
    2. `hold`: from here on it is a grant like any other. Crash: the sweep revokes it once the hold is over.
    3. `record_identity`, where nothing has named the account yet. Crash: as after 2.
    4. `install`: it is the live grant. Refused or crash before it: as after 2.

    Raises what refuses a start, `ImportNotSupportedError`, `ImportFailedError`, the provider's errors, and
    `GrantNotInstalledError`; their detail `copy` says what became of ours.
    """
    client = world.clients.named(request.client)
    if request.provider is not None and request.provider != client.provider:
        raise InvalidBodyError("provider: this client is another provider's", field="provider")
    if not client.facts.refreshable:
        raise ImportNotSupportedError(provider=client.provider)
    if request.account_id is not None and not client.facts.has_identity:
        raise InvalidBodyError("account_id: this provider does not say whose grant it is", field="account_id")
    variables = client.in_import(request.variables)
    world.vault.ready("use", "revoke", "index")
    client.prepare()
    begun = _begun(request, client, deadline, world)
    if isinstance(begun, Imported):
        return begun
    # Nothing between the record and the send but this check: the request leaves only while its record is open (custody
    # rule 1).
    limit = min(
        EXCHANGE_CALL_MS, deadline.remaining_ms() - AFTER_THE_CALL_MS, begun.ends - GUARD_MS - world.clock.now()
    )
    if limit <= 0:
        end(begun, "not_sent", world, unconfirmed=False)
        raise TimeIsUpError(connection_id=request.ref.connection, copy=DROPPED)
    answer = client.refresh(refresh_token=request.refresh_token, timeout_ms=limit, variables=variables, is_import=True)
    try:
        return _taken_over(answer, request, begun, client, deadline, world)
    except GrantNotInstalledError as refused:
        refused.details["copy"] = REVOKING
        raise


def _begun(request: ImportRequest, client: Client, deadline: Deadline, world: Connecting) -> Exchange | Imported:
    """The exchange of a new import, on record; or the answer of an earlier call with its key, or of a dry run."""
    ref, key = request.ref, request.key_digest()
    for _ in range(TRIES):
        owner, before, barrier = world.reads.fence(ref, client.name)
        if owner is not None and owner.is_deleted:
            raise OwnerDeletedError
        if key is not None and (earlier := _first_answer(request, key, world)) is not None:
            return earlier
        if before is not None and before.client != client.name:
            raise StateConflictError(
                "This connection is another client's: use another id.", connection_id=ref.connection
            )
        refuse_import(before)
        if missing := _consent(request, client).missing(None):
            raise ImportFailedError(
                f"The grant lacks {', '.join(sorted(missing))}.",
                connection_id=ref.connection,
                reason="insufficient_scope",
                copy=DROPPED,
            )
        resolved = clear_of_settled(ref, barrier, client.name, world)
        now = world.clock.now()
        refuse_blocked(resolved, now)
        if resolved.in_flight is not None:  # a held one waits for its owner; only a start ends it
            raise ConnectBlockedError(connection_id=resolved.in_flight.ref.connection)
        if request.dry_run:
            return Imported(before, shared_copy=not _makes_ours_the_only_one(client.facts), dry_run=True)
        if deadline.remaining_ms() < REFRESH_CALL_MIN_MS + AFTER_THE_CALL_MS + SAVE_MS:
            raise TimeIsUpError(connection_id=ref.connection, copy=DROPPED)
        exchange = _new_exchange(request, before, client, now, world)
        record = None
        if key is not None:
            asked, answer = request.digest(world.vault.fingerprint), {"exchange": exchange.id}
            record = Idempotency(ref.tenant, key, asked, {**answer}, now + IDEMPOTENCY_TTL_MS)
        after = importing(before, exchange, client.provider)
        try:
            world.store.begin_directly(DirectBegin(owner, before, after, resolved, exchange, record))
        except MovedError:
            continue
        return exchange
    raise MovedError


def _new_exchange(
    request: ImportRequest, before: Connection | None, client: Client, now: int, world: Connecting
) -> Exchange:
    generation = (before.generation if before else 0) + 1
    given = TokenPair(MAIN, request.refresh_token, request.refresh_token, "")  # there is no access token yet
    return Exchange(
        ref=request.ref,
        id=world.ids.new_id(),
        kind=IMPORT,
        client=client.name,
        generation=generation,
        started=now,
        ends=exchange_ends(now),
        outcome=ExchangeOutcome.OPEN,
        rid=world.ids.new_id(),
        use=world.vault.seal_for_use(request.ref, generation, 0, given),
    )


def _taken_over(
    answer: TokenAnswer,
    request: ImportRequest,
    exchange: Exchange,
    client: Client,
    deadline: Deadline,
    world: Connecting,
) -> Imported:
    """What the provider said to the refresh, held, looked at and installed."""
    name, vault = exchange.ref.connection, world.vault
    given, fresh = request.refresh_token, answer.grant
    salvaged = tuple(each for each in answer.salvaged if each.token != given)
    if fresh is None and not salvaged:
        raise _not_taken(answer, exchange, client.facts, world)
    is_new = fresh is not None and fresh.refresh_token is not None and fresh.refresh_token != given
    shared = not is_new or not _makes_ours_the_only_one(client.facts)
    answer = replace(answer, grant=_completed(fresh, request), salvaged=salvaged)
    tokens = tokens_of(answer, exchange, client, world)
    if is_new and shared and not client.facts.reach.ends_old_tokens:
        # The app's copy may live on, and no revocation of ours reaches it: the end of this grant is never confirmed.
        tokens = replace(tokens, is_whole=False)
    exchange = replace(exchange, shared_copy=shared)
    held, pair, revocation = hold(tokens, exchange, _consent(request, client), client, world)
    proof = None
    if tokens.grant is not None and tokens.grant.id_token is not None and client.expects_id_token(held.scopes):
        proof = (tokens.grant.id_token, None)  # a refresh repeats no nonce (OIDC core 12.2)
    held = identified(tokens, proof, held, revocation, client, deadline, world)
    wanted = None if request.account_id is None else vault.account_digest(client.name, request.account_id.reveal())
    if wanted is not None and held.account != wanted:
        release(held, "identity_mismatch", world)
        raise GrantNotInstalledError("The token is another account's.", connection_id=name, reason="identity_mismatch")
    use = vault.seal_for_use(held.ref, held.generation, 1, pair)
    return Imported(install(replace(held, use=use), client, world), shared)


def _completed(fresh: TokenGrant | None, request: ImportRequest) -> TokenGrant | None:
    """A refresh that names no refresh token leaves the one that was sent as it was (RFC 6749 section 6)."""
    return None if fresh is None else replace(fresh, refresh_token=fresh.refresh_token or request.refresh_token)


def _consent(request: ImportRequest, client: Client) -> Consent:
    """
    What was granted, where the answer does not say, is what the app says (RFC 6749 section 6). Needed is only what the
    client's settings name as needed: what it asks for today may be more than this user was ever asked.
    """
    return Consent(request.scopes or client.scopes, client.required_scopes or frozenset(), request.scopes, False, None)


def _makes_ours_the_only_one(facts: ProviderFacts) -> bool:
    """Whether a refresh leaves the token that was given dead, at once or soon. Unknown is no."""
    return facts.rotates == "yes" and facts.old_token in (OldToken.IMMEDIATE, OldToken.GRACE)


def _not_taken(answer: TokenAnswer, exchange: Exchange, facts: ProviderFacts, world: Connecting) -> QuitclaimError:
    """
    The provider gave nothing: the sealed copy is dropped with the exchange's end, and the grant is left to the app.
    """
    name, reason = exchange.ref.connection, answer.reason or str(answer.outcome)
    is_unknown = answer.outcome is Outcome.UNKNOWN
    unconfirmed = is_unknown and may_leave_a_grant(exchange, facts)
    end(exchange, reason, world, unconfirmed=unconfirmed)
    if unconfirmed:
        return ExchangeUnconfirmedError(connection_id=name, copy=DROPPED)
    if answer.config_fault:
        return ClientConfigError(connection_id=name, copy=DROPPED)
    if is_unknown:
        return OutcomeUnknownError(connection_id=name, copy=DROPPED)
    if answer.outcome is Outcome.REJECTED:
        return ImportFailedError(connection_id=name, reason=reason, copy=DROPPED)
    return ProviderBusyError(connection_id=name, retry_after_ms=answer.retry_after_ms, copy=DROPPED)


def _first_answer(request: ImportRequest, key: str, world: Connecting) -> Imported | None:
    """What became of the import that took this key; raises where that was no success."""
    found = world.reads.first_answer(request.ref.tenant, key, world.clock.now())
    if found is None:
        return None
    asked, answer = found
    if asked != request.digest(world.vault.fingerprint):
        raise IdempotencyMismatchError
    name = request.ref.connection
    exchange = world.reads.exchange(request.ref, str(answer["exchange"]))
    connection = world.reads.connection(request.ref)
    if connection is None:
        raise ConnectionNotFoundError(connection_id=name)
    if exchange is None or exchange.outcome is ExchangeOutcome.INSTALLED:
        return Imported(connection, bool(exchange and exchange.shared_copy))
    if not exchange.outcome.is_over:
        wait = max((exchange.hold_ends or exchange.ends) + GUARD_MS - world.clock.now(), 1_000)
        raise ConnectBlockedError("An attempt is in flight.", retry_after_ms=wait, connection_id=name)
    if exchange.outcome is ExchangeOutcome.UNCONFIRMED:
        raise ExchangeUnconfirmedError(connection_id=name, copy=DROPPED)
    if exchange.outcome is ExchangeOutcome.CLEANUP:
        raise GrantNotInstalledError(connection_id=name, reason=exchange.reason, copy=REVOKING)
    raise ImportFailedError(connection_id=name, reason=exchange.reason, copy=DROPPED)
