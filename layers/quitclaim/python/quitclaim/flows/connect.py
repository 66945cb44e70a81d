"""
Connecting: start, link, callback, confirmation. Read it top to bottom: it is the order in which a user goes through it.

What a crash leaves behind is said at each step; the numbers are the transactions.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from quitclaim.domain.asked import AuthorizationAsked, VisitSecrets, asked_scopes, missing_scopes
from quitclaim.domain.connect import (
    CODE,
    IN_A_BROWSER,
    KNOWN_ERRORS,
    LINK,
    PASSING_ERRORS,
    SAME_GRANT,
    STEP_UP,
    Authorization,
    Barrier,
    Blocker,
    Connection,
    ConnectionState,
    Exchange,
    ExchangeOutcome,
    HeldPair,
    Idempotency,
    Owner,
    Phase,
    Resolved,
    Start,
    Ticket,
    exchange_ends,
    hold_ends,
    is_last_wrong_code,
    is_left_behind,
    link_of,
    may_start,
    may_step_up,
    may_visit,
    ready,
    refusal_of_link,
    refusal_of_source_link,
    started,
    stepped_up,
    stepping_up,
)
from quitclaim.domain.errors import (
    BindingMismatchError,
    CallbackRecoveryRequiredError,
    CallbackRejectedError,
    ClientConfigError,
    CodeMissingError,
    ConnectBlockedError,
    ConnectionNotFoundError,
    ExchangeUnconfirmedError,
    FlowNotSupportedError,
    GenerationMovedError,
    GrantNotInstalledError,
    IdempotencyMismatchError,
    InvalidBodyError,
    IssuerMismatchError,
    MovedError,
    OutcomeUnknownError,
    OwnerDeletedError,
    OwnerPurgingError,
    ProviderBusyError,
    ProviderMismatchError,
    ProviderRefusedError,
    QuitclaimError,
    RemovalRequiredError,
    SealBrokenError,
    SourceStartStaleError,
    StateConflictError,
    StateInvalidError,
    StateMissingError,
    StateReplayedError,
    StateSupersededError,
    StepUpNotPossibleError,
    StoreError,
    TimeIsUpError,
    WrongCodeError,
)
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.ids import ConnectionRef, digest
from quitclaim.domain.limits import (
    AUTHORIZATION_MS,
    EXCHANGE_CALL_MS,
    GUARD_MS,
    IDEMPOTENCY_TTL_MS,
    IDENTITY_CALL_MS,
    LOSER_WAIT_MS,
    SAVE_MS,
    TICKET_MS,
)
from quitclaim.domain.outcomes import BrokerAnswer, IdentityOutcome, Outcome, TokenAnswer, TokenGrant
from quitclaim.domain.revocations import (
    Material,
    Revocation,
    RevocationState,
    SealedMaterial,
    deadline_of,
    family_of,
    kinds_of,
    material_of,
    named_by,
)
from quitclaim.domain.secret import Secret
from quitclaim.domain.sources import (
    SourceProof,
    SourceStart,
    asked_for,
    check_proof,
    is_as_proven,
    is_established,
)
from quitclaim.domain.tokens import MAIN, Grant, TokenPair, expiring_at, keep_alive_at
from quitclaim.flows.revocations import finish_settled
from quitclaim.flows.stop import queued_of
from quitclaim.ports import Broker, Client, Clients, Clock, Deadline, Ids, Kick, Vault

if TYPE_CHECKING:
    from quitclaim.store.connect import ConnectStore
    from quitclaim.store.reads import Reads
    from quitclaim.store.revocations import RevocationStore

TRIES: Final = 5
"""How often a decision is made again after someone was faster."""


@dataclass(frozen=True)
class Connecting:
    """What connecting needs of the world."""

    reads: "Reads"
    store: "ConnectStore"
    revocations: "RevocationStore"
    clients: Clients
    vault: Vault
    clock: Clock
    ids: Ids
    kick: Kick
    on_fault: Callable[[str, Exception], None]
    """Told of a clean-up that failed: what it was of, and why. The record that it was to end ends by itself."""


# --- start -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartRequest:
    """
    What the app asks for. *again*: a reconnect, which may also follow a revoked connection.

    *scopes*: other than the client's usual ones. *login_hint*: who the provider is to expect (OIDC core 3.1.2.1).
    *metadata*: notes of the app, checked. *variables*: what the provider's addresses need (a shop, a subdomain).
    *source*: what is to be linked behind an account at a broker; *proof*: what the app saw of it.
    """

    ref: ConnectionRef
    client: str
    return_to: str | None
    provider: str | None = None
    again: bool = False
    idempotency_key: str | None = None
    scopes: frozenset[str] = frozenset()
    login_hint: Secret | None = None
    metadata: dict[str, str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    source: str | None = None
    proof: SourceProof | None = None

    def digest(self, about: str | None) -> str:
        """What makes two requests the same. *about*: a keyed digest of what is said of the user, easily guessed."""
        parts = [*self.key_parts(), self.client, self.return_to or ""]
        further = {"scopes": sorted(self.scopes), "about": about, "metadata": self.metadata, "source": self.source}
        further["proof"] = None if self.proof is None else vars(self.proof)
        if any(further.values()):
            parts.append(json.dumps(further, sort_keys=True))
        return digest("\n".join(parts))

    def about(self, variables: Mapping[str, str]) -> Secret | None:
        """What the start says of its user, as text; None where it says nothing."""
        said = {"hint": None if self.login_hint is None else self.login_hint.reveal(), "variables": dict(variables)}
        return Secret(json.dumps(said, sort_keys=True)) if any(said.values()) else None

    def key_parts(self) -> tuple[str, ...]:
        """The route, for the digest of the idempotency key."""
        return ("reconnect" if self.again else "connect", self.ref.tenant, self.ref.owner, self.ref.connection)


@dataclass(frozen=True)
class Started:
    """The connection, and the ticket of its connect link; no ticket where the existing connection is the answer."""

    connection: Connection
    ticket: Secret | None
    expires_at: int | None


def start(request: StartRequest, world: Connecting) -> Started:
    """
    Begin a generation of a connection and make its connect link.

    1. One transaction: the connection is authorizing, the ticket exists, the idempotency key is taken, and a held
       exchange of the same owner and client ends. Crash before it: nothing happened. After it: the link lapses at
       `lapse_at` by itself.

    A start of a connection that is live or ending is answered with that connection, the same start of one whose link
    still waits with that link (C-9, U-12): then nothing is written. Refused by the barrier before the user is sent
    away; the begin decides. A source that is named is asked for in the same commit; of a live connection to a broker
    it is all that is started (`_source_started`).
    """
    ref = request.ref
    client = world.clients.named(request.client)
    if request.provider is not None and request.provider != client.provider:
        raise InvalidBodyError("provider: this client is another provider's", field="provider")
    if not client.facts.connectable:
        raise FlowNotSupportedError(provider=client.provider)
    scopes = asked_scopes(request.scopes, client.scopes, client.optional_scopes)
    about = request.about(client.at_start(request.variables))
    if request.source is not None and not client.facts.has_sources:
        raise InvalidBodyError("source: this provider has none", field="source")
    key = _idempotency_digest(request)
    for turn in range(TRIES):
        now = world.clock.now() + turn  # two links of one millisecond are two links
        owner, before, barrier = world.reads.fence(ref, client.name)
        if owner is not None and owner.is_deleted:
            raise OwnerDeletedError
        if key is not None and (answer := _first_answer(request, key, about, world)) is not None:
            return answer
        if before is not None and before.client != client.name:
            raise StateConflictError(
                "This connection is another client's: use another id.", connection_id=ref.connection
            )
        reuses = request.source is not None and is_established(before, client.name)
        check_proof(request.proof, ref, request.source, reuses=reuses)
        if reuses and owner is not None and before is not None:
            done = _source_started(request, owner, before, client, key, about, now, world)
            if done is not None:
                return done
            continue
        steps_up = bool(request.again and request.scopes) and may_step_up(before, client.facts)
        if not steps_up and not may_start(before, again=request.again):
            return Started(_found(before), None, None)
        if (
            not request.again
            and key is None
            and (waiting := _same_link(request, before, scopes, about, world)) is not None
        ):
            return waiting
        resolved = _clear_of_settled(ref, barrier, client.name, world)
        _refuse_blocked(resolved, now)
        expires = now + TICKET_MS
        if steps_up and before is not None:
            after, generation = stepping_up(before, world.ids.new_id(), request.metadata), before.generation + 1
        else:
            after = started(before, ref, client.provider, client.name, expires, request.metadata)
            if client.facts.is_broker:  # the account is made for this life of the connection: nobody chooses it
                after = replace(after, subject=None, account=None)
            generation = after.generation
        ticket = world.vault.ticket(ref, generation, now)
        held = world.reads.held(resolved)
        record = None
        if key is not None:
            told: dict[str, str | int] = {"generation": generation, "started_at": now, "expires_at": expires}
            if steps_up:
                told["step_up"] = 1
            record = Idempotency(
                ref.tenant, key, _request_digest(request, about, world), told, now + IDEMPOTENCY_TTL_MS
            )
        decision = Start(
            owner=owner,
            before=before,
            after=after,
            ticket=Ticket(
                ref=ref,
                generation=generation,
                client=client.name,
                visits=0,
                expires=expires,
                return_to=request.return_to,
                scopes=scopes,
                step_up=after.step_up,
                about=None if about is None else world.vault.seal_under_ticket(ticket, about),
                source=request.source,
            ),
            ticket_digest=digest(ticket.reveal()),
            now=now,
            idempotency=record,
            superseded=held,
            hold_is_free=held is None or world.reads.is_free(held),
            superseded_connection=world.reads.connection(held.ref) if held is not None and held.ref != ref else None,
            source_before=(earlier := None if request.source is None else world.reads.source(ref, request.source)),
            source=None if request.source is None else asked_for(earlier, ref, request.source, now, fences=False),
        )
        try:
            world.store.start(decision)
        except MovedError:
            continue
        if held is not None:
            world.kick.revoke_now([held.rid])
        return Started(after, ticket, expires)
    raise MovedError


def _source_started(
    request: StartRequest,
    owner: Owner,
    connection: Connection,
    client: Client,
    key: str | None,
    about: Secret | None,
    made_at: int,
    world: Connecting,
) -> Started | None:
    """
    A link of one more source behind an account that is there already; None if somebody was faster.

    1. One transaction: the source is asked for (or proven to be as the app saw it), and the ticket exists; the
       connection is held to its life and stays as it is (D-28, D-29). Crash after it: the link expires by itself, and
       the account is never touched (M-15, M-48).
    """
    ref, slug, now = request.ref, request.source or "", world.clock.now()
    expires = made_at + TICKET_MS
    ticket = world.vault.ticket(ref, connection.generation, made_at)
    before = world.reads.source(ref, slug)
    if request.proof is not None and not is_as_proven(before, request.proof):
        raise SourceStartStaleError(connection_id=ref.connection)
    record = None
    if key is not None:
        told: dict[str, str | int] = {
            "generation": connection.generation,
            "started_at": made_at,
            "expires_at": expires,
            "reuses": 1,
        }
        record = Idempotency(ref.tenant, key, _request_digest(request, about, world), told, now + IDEMPOTENCY_TTL_MS)
    decision = SourceStart(
        owner=owner,
        connection=connection,
        before=before,
        after=None if request.proof is not None else asked_for(before, ref, slug, now, fences=True),
        ticket=Ticket(
            ref=ref,
            generation=connection.generation,
            client=client.name,
            visits=0,
            expires=expires,
            return_to=request.return_to,
            source=slug,
            reuses=True,
        ),
        ticket_digest=digest(ticket.reveal()),
        now=now,
        idempotency=record,
    )
    try:
        world.store.start_source(decision, request.proof)
    except MovedError as moved:
        if request.proof is not None and "source" in moved.seen:
            raise SourceStartStaleError(connection_id=ref.connection) from moved
        return None
    return Started(connection, ticket, expires)


def _idempotency_digest(request: StartRequest) -> str | None:
    if request.idempotency_key is None:
        return None
    return digest("\n".join((*request.key_parts(), request.idempotency_key)))


def _first_answer(request: StartRequest, key: str, about: Secret | None, world: Connecting) -> Started | None:
    found = world.reads.first_answer(request.ref.tenant, key, world.clock.now())
    if found is None:
        return None
    earlier, answer = found
    if earlier != _request_digest(request, about, world):
        raise IdempotencyMismatchError
    generation, expires = int(answer["generation"]), int(answer["expires_at"])
    client = world.clients.named(request.client)
    if "reuses" in answer:
        ticket = world.vault.ticket(request.ref, generation, int(answer["started_at"]))
        return Started(_found(world.reads.connection(request.ref)), ticket, expires)
    if "step_up" in answer:
        connection = replace(_found(world.reads.connection(request.ref)), generation=generation - 1)
        ticket = world.vault.ticket(request.ref, generation, int(answer["started_at"]))
        return Started(connection, ticket, expires)
    connection = started(None, request.ref, client.provider, client.name, expires, request.metadata)
    ticket = world.vault.ticket(request.ref, generation, int(answer["started_at"]))
    return Started(replace(connection, generation=generation), ticket, expires)


def _request_digest(request: StartRequest, about: Secret | None, world: Connecting) -> str:
    return request.digest(None if about is None else world.vault.fingerprint(about))


def _same_link(
    request: StartRequest, before: Connection | None, scopes: frozenset[str], about: Secret | None, world: Connecting
) -> Started | None:
    """
    The link that waits, if this is the start that made it: the name of a connection is as good as a key (U-12).

    A link that was opened as often as it may be, or that asks for something else, is replaced.
    """
    now = world.clock.now()
    made_at = link_of(before, now)
    if before is None or made_at is None:
        return None
    ticket = world.vault.ticket(before.ref, before.generation, made_at)
    found = world.reads.ticket(ticket.reveal())
    if found is None or not may_visit(found, now):
        return None
    said = None if found.about is None else world.vault.open_under_ticket(ticket, found.about)
    asked = (request.client, request.return_to, scopes, about, request.metadata)
    if asked != (found.client, found.return_to, found.scopes, said, before.metadata) or request.source != found.source:
        return None
    return Started(before, ticket, found.expires)


def _found(connection: Connection | None) -> Connection:
    if connection is None:
        raise ConnectionNotFoundError
    return connection


def _clear_of_settled(ref: ConnectionRef, barrier: Barrier | None, client: str, world: Connecting) -> Resolved:
    """What the barrier's ids stand for, once every settled one has had its finishing step."""
    resolved = world.reads.resolved(ref.of_owner, barrier)
    if resolved.unfinished:
        for revocation in resolved.unfinished:
            finish_settled(revocation, reads=world.reads, store=world.revocations, now=world.clock.now())
        _, _, barrier = world.reads.fence(ref, client)
        resolved = world.reads.resolved(ref.of_owner, barrier)
    return resolved


def _refuse_blocked(resolved: Resolved, now: int) -> None:
    in_flight = resolved.in_flight
    if in_flight is not None and in_flight.outcome is ExchangeOutcome.OPEN:
        wait = max(in_flight.ends + GUARD_MS - now, 1_000)
        raise ConnectBlockedError(
            "An attempt is in flight.", retry_after_ms=wait, connection_id=in_flight.ref.connection
        )
    blockers = resolved.blockers()
    if not blockers:
        return
    if all(blocker.level == "purging" for blocker in blockers):
        raise OwnerPurgingError(retry_after_ms=60_000, blockers=[_told(blocker) for blocker in blockers])
    raise ConnectBlockedError(blockers=[_told(blocker) for blocker in blockers])


def _told(blocker: Blocker) -> dict[str, object]:
    told = {"level": blocker.level, "connection_id": blocker.connection, "ends_at": blocker.ends_at}
    return {name: value for name, value in told.items() if value is not None}


# --- link ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Visit:
    """Where the browser goes, and the cookie that binds the callback to it."""

    url: str
    cookie: str
    binding: Secret
    cross_site_post: bool


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
        return _open_hosted(ticket, found, client, base_url, world)
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


def _open_hosted(ticket: Secret, found: Ticket, client: Client, base_url: str, world: Connecting) -> Visit:
    """
    Send the browser to a broker's own pages, where the user links something behind an account.

    The account is there before the user returns (a seed, M-6): found or made by our reference, which may be repeated,
    and gives access to nothing by itself. It is checked and sealed with the state, in the one transaction that makes
    the state (D-29); no connection is changed by it. While something of this owner is still to be removed, nothing is
    linked: it may be the account that would be found. Where a source is linked behind an account that is there already,
    it is that of the live grant.
    """
    broker = _broker_of(client)
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
    )
    try:
        world.store.visit(found, digest(ticket.reveal()), authorization, state_digest, now)
    except MovedError as moved:
        raise StateInvalidError from moved
    return Visit(link.value.reveal(), cookie_name(state_digest), binding, cross_site_post=False)


def _broker_of(client: Client) -> Broker:
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
    _refuse_blocked(_clear_of_settled(found.ref, barrier, client.name, world), world.clock.now())
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


def redirect_uri(base_url: str, client: Client) -> str:
    """One callback path per provider (S-4)."""
    return f"{base_url}/callback/{client.provider}"


def challenge_of(verifier: Secret) -> str:
    """RFC 7636 section 4.2, S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.reveal().encode()).digest()).rstrip(b"=").decode()


def cookie_name(state_digest: str) -> str:
    """A cookie for each authorization, so that two links in one browser do not disturb each other."""
    return f"__Host-qc-{state_digest[:6]}"


# --- callback --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Callback:
    """
    What came back through the browser, read from the raw query or form; repeated parameters are refused before.

    *query*: everything, for what a provider says here beside that: granted scopes (Strava), the grant's region (Zoho).
    """

    provider: str
    state: Secret | None
    code: Secret | None
    error: str | None
    iss: tuple[str, ...]
    cookies: Mapping[str, str]
    query: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class CallbackOutcome:
    """
    What the browser is told: `ready`, `awaiting_confirmation` with the *confirm_code*, or `in_progress` where another
    delivery of the same callback is still at work.
    """

    connection_id: str
    provider: str
    status: str
    return_to: str | None
    confirm_code: Secret | None = None


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
        return _source_returned(authorization, state_digest, client, world)
    if authorization.consumed_at is not None:
        return _outcome_again(authorization, client, deadline, world)
    if client.facts.is_broker:
        return _link_returned(authorization, state_digest, client, deadline, world)
    if callback.error or not callback.code:
        _discard(callback, authorization, state_digest, world)
    visit = _opened(authorization, state_digest, world)
    variables = {**visit.variables, **client.in_callback(visit.variables, callback.query)}
    if deadline.remaining_ms() < EXCHANGE_CALL_MS + SAVE_MS:
        raise TimeIsUpError
    world.vault.ready("use", "revoke", "index", "confirm")
    client.prepare()
    exchange = _begin(authorization, state_digest, client, world)
    # Nothing between the record and the send but this check: the request leaves only while its record is open (custody
    # rule 1).
    limit = min(EXCHANGE_CALL_MS, deadline.remaining_ms() - SAVE_MS, exchange.ends - GUARD_MS - world.clock.now())
    if limit <= 0 or callback.code is None:
        _end(exchange, "not_sent", world, unconfirmed=False)
        raise TimeIsUpError
    answer = client.exchange(
        code=callback.code,
        verifier=visit.verifier,
        redirect_uri=redirect_uri(base_url, client),
        timeout_ms=limit,
        variables=variables,
    )
    tokens = _returned(answer, exchange, client, world)
    consent = _consent(callback, authorization, visit.nonce, client)
    held, pairs, revocation = _hold(tokens, exchange, consent, client, world)
    proof = (tokens.grant.id_token, visit.nonce) if consent.proves and tokens.grant is not None else None
    held = _identified(tokens, proof, held, revocation, client, deadline, world)
    return _brought(authorization, held, pairs, client, world)


def _brought(
    authorization: Authorization, held: Exchange, pair: TokenPair, client: Client, world: Connecting
) -> CallbackOutcome:
    """What is held waits for its owner, or is installed here."""
    ref = authorization.ref
    if client.confirmation == "owner":
        code = world.vault.confirm_code(held.id, held.started)
        return CallbackOutcome(ref.connection, client.provider, "awaiting_confirmation", authorization.return_to, code)
    use = world.vault.seal_for_use(ref, held.generation, 1, pair)
    install(replace(held, use=use), client, world)
    return CallbackOutcome(ref.connection, client.provider, "ready", authorization.return_to)


def _link_returned(
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
    account = _opened(authorization, state_digest, world).verifier
    if account is None:
        raise StateInvalidError
    tokens, consent = _tokens_of(account, client, world), _consent_to_account(client)
    pair = _pair_of(tokens, client)

    def holding(exchange: Exchange) -> tuple[Exchange, Revocation]:
        now, confirms = exchange.started, client.confirmation == "owner"
        held = _as_held(exchange, tokens, pair if confirms else None, consent, client, world.vault, now)
        return held, _queued_by(held, tokens, account, client, world.vault, now)

    held = _begin(authorization, state_digest, client, world, kind=LINK, holding=holding)
    return _brought(authorization, held, pair, client, world)


def held_account(
    account: Secret, exchange: Exchange, client: Client, deadline: Deadline, world: Connecting
) -> tuple[Exchange, TokenPair]:
    """An account at a broker, held as the grant of its exchange."""
    tokens = _tokens_of(account, client, world)
    held, pair, revocation = _hold(tokens, exchange, _consent_to_account(client), client, world)
    return _identified(tokens, None, held, revocation, client, deadline, world), pair


ACCOUNT_TYPE: Final = "account"
"""`token_type` of what is handed out for an account at a broker: the broker's own id of it."""


def _source_returned(
    authorization: Authorization, state_digest: str, client: Client, world: Connecting
) -> CallbackOutcome:
    """
    The browser came back from linking a source behind an account that is there already.

    1. `return_link`: the state is spent; nothing of the account is changed (M-48). Crash: it expires.

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
    return CallbackOutcome(ref.connection, client.provider, "ready", authorization.return_to)


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
    _identified(Tokens(grant, ()), proof, held, revocation, client, deadline, world)


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


def _opened(authorization: Authorization, state_digest: str, world: Connecting) -> VisitSecrets:
    """What the visit knew."""
    if authorization.sealed is None:
        raise StateReplayedError
    try:
        return world.vault.open_authorization(
            state_digest, authorization.ref, authorization.generation, authorization.sealed
        )
    except SealBrokenError as broken:
        raise StateInvalidError from broken


def _begin(
    authorization: Authorization,
    state_digest: str,
    client: Client,
    world: Connecting,
    kind: str = CODE,
    holding: Callable[[Exchange], tuple[Exchange, Revocation]] | None = None,
) -> Exchange:
    """The state spent and the exchange on record. *holding*: with what is in hand already, held and queued."""
    ref = authorization.ref
    for _ in range(TRIES):
        owner, connection, barrier = world.reads.fence(ref, client.name)
        if owner is None or owner.deleted_at is not None:
            raise OwnerDeletedError
        refusal = refusal_of_link(connection, authorization.generation, authorization.step_up)
        if refusal is not None or connection is None:
            raise refusal or StateInvalidError()
        resolved = _clear_of_settled(ref, barrier, client.name, world)
        now = world.clock.now()
        _refuse_blocked(resolved, now)
        if resolved.in_flight is not None:  # a held one waits for its owner; only a new start ends it
            raise ConnectBlockedError(connection_id=resolved.in_flight.ref.connection)
        exchange = Exchange(
            ref=ref,
            id=world.ids.new_id(),
            kind=kind if authorization.step_up is None else STEP_UP,
            client=client.name,
            generation=authorization.generation,
            started=now,
            ends=exchange_ends(now),
            outcome=ExchangeOutcome.OPEN,
            rid=world.ids.new_id(),
        )
        revocation = None
        if holding is not None:
            exchange, revocation = holding(exchange)
        try:
            world.store.begin(authorization, state_digest, connection, owner, resolved, exchange, revocation)
        except MovedError as moved:
            if "authorization" in moved.seen:
                raise StateReplayedError(connection_id=ref.connection) from moved
            continue
        return exchange
    raise MovedError


@contextmanager
def _cleaning_up(world: Connecting) -> Iterator[None]:
    """
    A table that does not answer here replaces no outcome (U-19): the caller is told what came of the request, and the
    exchange or hold that stays behind ends at its own time.
    """
    try:
        yield
    except StoreError as fault:
        world.on_fault("clean-up", fault)


def _end(exchange: Exchange, reason: str, world: Connecting, *, unconfirmed: bool) -> None:
    """Row 10. Best effort: an exchange that stays open lapses to unconfirmed, the safe reading."""
    with _cleaning_up(world):
        for _ in range(TRIES):
            connection = world.reads.connection(exchange.ref)
            try:
                world.store.end(exchange, connection, world.clock.now(), reason, unconfirmed=unconfirmed)
            except MovedError as moved:
                if "exchange" in moved.seen:
                    return  # its outcome is recorded already, and a recorded outcome is never weakened (F-67)
                continue
            return


@dataclass(frozen=True)
class Consent:
    """
    What the user was asked for, which of it is needed, and what the callback says was granted; and whether an ID token
    must prove whose grant it is, by this nonce.
    """

    asked: frozenset[str]
    required: frozenset[str]
    named: frozenset[str] | None
    proves: bool
    nonce: Secret | None
    must_last: bool = False
    """Whether it is to take the place of a grant that can be refreshed (RB-56)."""

    def granted(self, grant: TokenGrant | None) -> frozenset[str] | None:
        """By the token answer, else by the callback; None where neither names any (M-39, RB-55)."""
        return self.named if grant is None or grant.scopes is None else grant.scopes

    def missing(self, grant: TokenGrant | None) -> frozenset[str]:
        """What is needed and was not granted (S-23)."""
        return missing_scopes(self.required, self.granted(grant))

    def fault_of(self, grant: TokenGrant | None) -> tuple[str, str] | None:
        """Why a grant serves nobody, as a code and for a person; None if it may."""
        if grant is None:
            return "malformed_answer", "The provider's answer could not be used."
        if self.missing(grant):
            return "insufficient_scope", "Not everything that is needed was granted."
        if self.proves and grant.id_token is None:
            return "id_token_missing", "The provider did not say whose account it is."
        if self.must_last and grant.refresh_token is None:
            return "no_refresh_token", "The provider gave a grant that ends by itself; the one before it stays."
        return None


def _consent(callback: Callback, authorization: Authorization, nonce: Secret | None, client: Client) -> Consent:
    asked = authorization.scopes or client.scopes
    required = asked if client.required_scopes is None else asked & client.required_scopes
    must_last = authorization.step_up is not None and client.facts.refreshable
    named = client.scopes_in_callback(callback.query)
    return Consent(asked, required, named, client.expects_id_token(asked), nonce, must_last)


@dataclass(frozen=True)
class Tokens:
    """The tokens of an answer: a whole grant, or what an unusable answer still held."""

    grant: TokenGrant | None
    materials: tuple[Material, ...]
    is_whole: bool = True
    """False where a token may live, of the answer or before it, that was not seen and that no revocation reaches."""


def _returned(answer: TokenAnswer, exchange: Exchange, client: Client, world: Connecting) -> Tokens:
    """What the answer gives to hold; raises, with the exchange ended, where it gives nothing."""
    if answer.grant is not None:
        return _given(answer.grant, client, world)
    if answer.salvaged:
        loose = tuple(Material(each.kind, each.token, answer.variables) for each in answer.salvaged)
        takeable = tuple(each for each in loose if client.facts.may_take(each.kind))
        saw_both = {each.kind for each in loose} == {"refresh_token", "access_token"}
        return Tokens(None, takeable or loose, is_whole=saw_both or client.facts.reach.ends_old_tokens)
    name = exchange.ref.connection
    if answer.outcome is Outcome.UNKNOWN:
        _end(exchange, answer.reason or "unknown", world, unconfirmed=True)
        raise ExchangeUnconfirmedError(connection_id=name)
    _end(exchange, answer.reason or answer.outcome, world, unconfirmed=False)
    if answer.config_fault:
        raise ClientConfigError(connection_id=name)
    if answer.outcome is Outcome.REJECTED:
        raise ProviderRefusedError(connection_id=name)
    raise ProviderBusyError(connection_id=name, retry_after_ms=answer.retry_after_ms)


def _given(grant: TokenGrant, client: Client, world: Connecting) -> Tokens:
    return Tokens(grant, _material_of(grant, grant, client, world.clock.now()))


def _tokens_of(account: Secret, client: Client, world: Connecting) -> Tokens:
    return _given(TokenGrant(account, token_type=ACCOUNT_TYPE, account_id=account.reveal()), client, world)


def _consent_to_account(client: Client) -> Consent:
    return Consent(client.scopes, frozenset(), None, proves=False, nonce=None)


def _without_the_live(live: Grant, tokens: Tokens, exchange: Exchange, client: Client, world: Connecting) -> Tokens:
    """
    What a step-up brought, without what the provider gave again: that is the *live* grant's, which its revocation would
    end (custody rule 7). Where nothing else came the attempt ends, with nothing queued: there is no second grant.
    """
    now, grant = world.clock.now(), tokens.grant
    pairs = [tokens.materials]
    if grant is not None:
        pairs += [_material_of(each, grant, client, now) for each in grant.pairs.values()]
    loose: list[Material] = []
    for pair in pairs:
        again = {each.kind for each in pair if world.vault.fingerprint(each.token) == live.fp}
        # An access token beside a refresh token that was given again came of that one, as in a refresh.
        ours = again | ({"access_token"} if "refresh_token" in again else set())
        loose += [each for each in pair if each.kind not in ours]
    if loose:
        return Tokens(None, tuple(loose), is_whole=tokens.is_whole)
    _end(exchange, SAME_GRANT, world, unconfirmed=False)
    raise StepUpNotPossibleError(connection_id=exchange.ref.connection)


def _hold(
    tokens: Tokens, exchange: Exchange, consent: Consent, client: Client, world: Connecting
) -> tuple[Exchange, TokenPair, Revocation]:
    """
    Seal what was returned before anything about it is judged, and queue it, leased to the exchange. A grant that lacks
    what is needed is not sealed for use: nobody can confirm it, whatever happens after.

    Too late, or another grant is held already: it is due for revocation now instead, in a row that nothing can refuse
    (D-2, D-30). The live grant's own token, given again, is neither held nor queued.
    """
    grant, now, name = tokens.grant, world.clock.now(), exchange.ref.connection
    pair = _pair_of(tokens, client)
    fault = consent.fault_of(grant)
    confirms = client.confirmation == "owner" and exchange.kind in IN_A_BROWSER and fault is None
    held = _as_held(exchange, tokens, pair if confirms else None, consent, client, world.vault, now)
    revocation = _queued_by(held, tokens, pair.access_token, client, world.vault, now)
    others = () if fault is not None or grant is None else _other_pairs(held, grant, client, world.vault, now)
    if confirms:
        held = replace(held, others=others)
    returned = revocation.fp | {world.vault.fingerprint(each.token) for each in tokens.materials}
    try:
        world.store.hold(exchange, held, revocation, now, tokens=returned if exchange.kind == STEP_UP else frozenset())
    except MovedError as moved:
        live = moved.seen.get("grant")
        if isinstance(live, Grant):
            return _hold(_without_the_live(live, tokens, exchange, client, world), exchange, consent, client, world)
        _queue_late(exchange, revocation, client, world)
        _leave_behind(exchange, world)
        raise GrantNotInstalledError(connection_id=name) from None
    if fault is not None:
        reason, sentence = fault
        _release(held, reason, world)
        raise GrantNotInstalledError(sentence, connection_id=name, reason=reason)
    return replace(held, others=others), pair, revocation


def _pair_of(tokens: Tokens, client: Client) -> TokenPair:
    """The returned tokens, to be sealed for use; of an unusable answer no more than what names its grant."""
    grant = tokens.grant
    if grant is None:
        return TokenPair(MAIN, tokens.materials[0].token, None, "Bearer")
    is_handle = client.facts.takes == "account"
    pair = TokenPair(MAIN, grant.access_token, grant.refresh_token, grant.token_type)
    return replace(pair, variables=grant.variables, account_id=grant.account_id if is_handle else None)


def _as_held(
    exchange: Exchange,
    tokens: Tokens,
    pair: TokenPair | None,
    consent: Consent,
    client: Client,
    vault: Vault,
    now: int,
) -> Exchange:
    """The exchange with what was returned; where its owner confirms (*pair*), sealed for use, its ID token with it."""
    ref, generation, grant = exchange.ref, exchange.generation, tokens.grant
    account = vault.account_digest(client.name, grant.account_id) if grant is not None and grant.account_id else None
    id_token = grant.id_token if pair is not None and consent.proves and grant is not None else None
    return replace(
        exchange,
        outcome=ExchangeOutcome.HELD,
        hold_ends=hold_ends(exchange, now, owner_confirms=pair is not None),
        fp=vault.fingerprint(named_by(tokens.materials)),
        use=None if pair is None else vault.seal_for_use(ref, generation, 1, pair),
        access_until=_until(now, _lifetime_s(grant, client.facts)),
        refresh_until=_until(now, grant.refresh_expires_in_s if grant else None),
        id_token=None
        if id_token is None
        else vault.seal_id_token(ref, generation, exchange.id, id_token, consent.nonce),
        subject=None if consent.proves else account,
        account=account,
        scopes=consent.granted(grant) or consent.asked,
    )


def _other_pairs(held: Exchange, grant: TokenGrant, client: Client, vault: Vault, now: int) -> tuple[HeldPair, ...]:
    """The grant's further pairs, each sealed for use by itself (RB-11)."""
    return tuple(
        HeldPair(
            name,
            vault.fingerprint(named_by(_material_of(each, grant, client, now))),
            vault.seal_for_use(
                held.ref,
                held.generation,
                1,
                TokenPair(name, each.access_token, each.refresh_token, each.token_type, grant.variables),
            ),
            _until(now, _lifetime_s(each, client.facts)),
        )
        for name, each in grant.pairs.items()
    )


def _material_of(pair: TokenGrant, grant: TokenGrant, client: Client, now: int) -> tuple[Material, ...]:
    """What must be revoked of one *pair* of the *grant*."""
    facts = client.facts
    return material_of(
        facts.takes,
        facts.reach,
        pair.access_token,
        pair.refresh_token,
        ends_pair=facts.ends_pair,
        account_id=grant.account_id,
        variables=grant.variables,
        renewable=facts.renews_in_queue,
        access_until=_until(now, _lifetime_s(pair, facts)),
    )


def _queued_by(
    held: Exchange, tokens: Tokens, access_token: Secret, client: Client, vault: Vault, now: int
) -> Revocation:
    """The hold's queue item: the grant sealed revoke-only, leased to its exchange until `hold_ends`."""
    rid, generation, material = held.rid, held.generation, tokens.materials
    asks = tokens.grant is not None and held.account is None and client.facts.has_identity
    by_pair = {MAIN: material}
    if tokens.grant is not None:
        by_pair |= {name: _material_of(each, tokens.grant, client, now) for name, each in tokens.grant.pairs.items()}
    return Revocation(
        rid=rid,
        state=RevocationState.PENDING,
        ref=held.ref,
        generation=generation,
        client=client.name,
        provider=client.provider,
        takes=kinds_of(material),
        reach=client.facts.reach,
        queued=now,
        fp=frozenset(vault.fingerprint(named_by(each)) for each in by_pair.values()),
        family=frozenset(family_of(held.id, name) for name in by_pair),
        material=tuple(
            SealedMaterial(vault.seal_revoke_only(rid, generation, 1, name, each), kinds_of(each), name, 1)
            for name, each in by_pair.items()
        ),
        account=held.account,
        identity=vault.seal_identity(rid, generation, access_token)
        if asks and client.facts.reach.is_account_wide
        else None,
        exchange=held.id,
        tv=1,
        lost=None if tokens.is_whole else True,
        deadline=deadline_of(now),
        next=held.hold_ends,
        lease=held.id,
        lease_until=held.hold_ends,
    )


def _queue_late(exchange: Exchange, revocation: Revocation, client: Client, world: Connecting) -> None:
    """
    Row 13: read what became of the exchange, and queue the grant beside it; after five tries without it, which nothing
    refuses.
    """
    now = world.clock.now()
    # It is queued now, whenever it was sealed: a worker may have been frozen for a day (F-23).
    due = replace(revocation, queued=now, deadline=deadline_of(now), next=now, lease=None, lease_until=None)
    for attempt in range(TRIES + 1):
        found = world.reads.exchange(exchange.ref, exchange.id)
        if found is not None and found.fp in revocation.fp:
            return  # it is the one that is held, installed or queued already
        if found is not None and found.fp is not None:
            # Another grant of this exchange has the exchange's own id: this one gets an id made of its fingerprint
            # (D-30).
            rid = f"{exchange.rid}.{min(revocation.fp)[:22]}"
            due = _resealed(due, rid, revocation, world)
        intents = [
            intent.generation
            for intent in world.reads.intents(exchange.ref)
            if intent.generation == exchange.generation
        ]
        try:
            world.store.queue_late_grant(
                found if attempt < TRIES else None,
                client.name,
                due,
                intent_generation=intents[0] if intents and attempt < TRIES else None,
            )
        except MovedError:
            continue
        world.kick.revoke_now([due.rid])
        return


def _leave_behind(exchange: Exchange, world: Connecting) -> None:
    """The connection of an exchange that a late grant closed fails; refused, reconciliation repeats it."""
    with _cleaning_up(world), suppress(MovedError):
        connection, found = world.reads.connection(exchange.ref), world.reads.exchange(exchange.ref, exchange.id)
        if connection is not None and found is not None and is_left_behind(connection, found):
            world.store.leave_behind(connection, found, world.clock.now())


def _resealed(due: Revocation, rid: str, held: Revocation, world: Connecting) -> Revocation:
    """The same material under another id: a seal is bound to its revocation."""
    vault, generation = world.vault, held.generation
    material = []
    for each in held.material:
        opened = vault.open_revoke_only(held.rid, generation, each.tv, each.pair, each.sealed)
        material.append(replace(each, sealed=vault.seal_revoke_only(rid, generation, each.tv, each.pair, opened)))
    return replace(due, rid=rid, material=tuple(material), identity=None)


type Proof = tuple[Secret | None, Secret | None]
"""An ID token that must be verified, and the nonce that it must repeat."""


def _identified(
    tokens: Tokens,
    proof: Proof | None,
    held: Exchange,
    revocation: Revocation,
    client: Client,
    deadline: Deadline,
    world: Connecting,
) -> Exchange:
    """
    Whose grant it is, while it is held; compared with the account that the connection is pinned to (S-21).

    Another account, an ID token that does not hold, or an account that cannot be read where the provider has an
    identity: the grant is released, and so revoked (RB-54).
    """
    name = held.ref.connection
    account, proven = held.account, None
    if proof is not None and tokens.grant is not None:
        proven = _proven(tokens.grant, proof, held, client, deadline, world)
    if account is None and client.facts.has_identity and tokens.grant is not None:
        answer = client.identity(
            access_token=tokens.grant.access_token,
            timeout_ms=_identity_limit(deadline),
            variables=tokens.grant.variables,
        )
        if answer.outcome is not IdentityOutcome.READ or not answer.account_id:
            raise _unproven(held, "identity_unreadable", world)
        account = world.vault.account_digest(client.name, answer.account_id)
    if client.facts.account_is_subject and proven is not None and proven != account:
        raise _unproven(held, "id_token_mismatch", world)
    subject = account or proven
    is_news = account is not None and revocation.account is None
    records = held.id_token is not None or (
        is_news and (client.confirmation == "owner" or client.facts.reach.is_account_wide)
    )
    if records or client.confirmation == "owner":  # else the install, which is next, looks at the connection
        connection = world.reads.connection(held.ref)
        if connection is None or not connection.waits_for(held):
            raise _released(held, "moved_on", world)
        if connection.subject is not None and connection.subject != subject:
            raise _released(held, "identity_mismatch", world)
    learned = replace(held, subject=subject, account=account, id_token=None)
    if records:
        try:
            world.store.record_identity(held, learned, world.clock.now())
        except MovedError as moved:
            found = world.reads.exchange(held.ref, held.id)
            if found is None or found.outcome is not ExchangeOutcome.HELD or found.subject != subject:
                raise GrantNotInstalledError(connection_id=name) from moved
            # The same callback, delivered twice: the other one has recorded the same account.
    return learned


def _proven(
    grant: TokenGrant, proof: Proof, held: Exchange, client: Client, deadline: Deadline, world: Connecting
) -> str:
    """The digest of the subject that a verified ID token names."""
    id_token, nonce = proof
    if id_token is None:
        raise _unproven(held, "id_token_missing", world)
    answer = client.subject(
        id_token=id_token, nonce=nonce, access_token=grant.access_token, timeout_ms=_identity_limit(deadline)
    )
    if answer.outcome is not IdentityOutcome.READ or not answer.account_id:
        raise _unproven(held, f"id_token_{answer.reason}", world)
    return world.vault.account_digest(client.name, answer.account_id)


def _unproven(held: Exchange, reason: str, world: Connecting) -> GrantNotInstalledError:
    """Nobody knows, or two say different things: the grant is released."""
    _release(held, reason, world)
    sentence = "The provider did not say whose account it is."
    return GrantNotInstalledError(sentence, connection_id=held.ref.connection, reason=reason)


def _identity_limit(deadline: Deadline) -> int:
    return max(min(IDENTITY_CALL_MS, deadline.remaining_ms() - SAVE_MS), 1)


def _lifetime_s(grant: TokenGrant | None, facts: ProviderFacts) -> int | None:
    if grant is None or grant.expires_in_s is not None:
        return grant.expires_in_s if grant else None
    return None if facts.access_ttl_ms is None else facts.access_ttl_ms // 1000


def _until(now: int, seconds: int | None) -> int | None:
    return None if seconds is None else now + seconds * 1000


def _release(exchange: Exchange, reason: str, world: Connecting) -> None:
    """
    Row 9: the hold ends without an install; its grant is due now. Where the sweep or another has it already, that is as
    good; and where the table does not answer, the hold ends by itself. What turns out to be the live grant's own token
    is dropped instead.
    """
    with_revocation = True
    with _cleaning_up(world):
        if exchange.kind == STEP_UP and _dropped(exchange, world):
            return
        for _ in range(TRIES):
            connection = world.reads.connection(exchange.ref)
            try:
                world.store.release(exchange, connection, world.clock.now(), reason, with_revocation=with_revocation)
            except MovedError as moved:
                if "exchange" in moved.seen:
                    return
                with_revocation = with_revocation and "revocation" not in moved.seen
                continue
            world.kick.revoke_now([exchange.rid])
            return


def _dropped(held: Exchange, world: Connecting) -> bool:
    """
    Row 71: a step-up whose held grant is the live one, given again, ends with nothing queued: its revocation would end
    the grant that serves. False, and nothing done, where it is a grant of its own, or somebody was faster.
    """
    live = world.reads.grant(held.ref, MAIN)
    if live is None or live.fp != held.fp:
        return False
    try:
        world.store.drop_given_again(held, live, world.clock.now())
    except MovedError:
        return False
    return True


# --- install ---------------------------------------------------------------------------------------------------------


def install(exchange: Exchange, client: Client, world: Connecting) -> Connection:
    """
    Make the held grant the live one (row 8), or release it (row 9).

    *exchange* carries the for-use ciphertext. Read, decide, commit; whoever was faster makes it read again, inside
    `hold_ends` only.
    """
    ref, name = exchange.ref, exchange.ref.connection
    for _ in range(TRIES):
        owner, connection, barrier, revocation, account = world.reads.around_install(exchange)
        now = world.clock.now()
        if connection is not None and connection.state is ConnectionState.READY and connection.exchange == exchange.id:
            return connection
        refusal = _refusal_of_install(exchange, owner, connection, revocation, now)
        if refusal is not None or connection is None or owner is None or revocation is None or barrier is None:
            raise _released(exchange, refusal or "moved_on", world)
        others = replace(barrier, in_flight=None)
        resolved = _clear_of_settled(ref, others, client.name, world)
        if resolved.blockers():
            raise _released(exchange, "blocked", world)
        if account is not None and not account.admits(exchange.started):
            if _lowered(account.killed_by, world):
                continue
            raise _released(exchange, "account_revoked_meanwhile", world)
        grants = _grants(exchange, revocation, client, now)
        after = ready(connection, exchange, tuple(each.pair for each in grants))
        try:
            if exchange.kind == STEP_UP:
                return _replace_grant(exchange, connection, owner, barrier, grants, world)
            world.store.install(exchange, connection, after, owner, barrier, grants, account, now)
        except MovedError as moved:
            if "exchange" in moved.seen and "connection" in moved.seen:
                continue
            if "exchange" in moved.seen:
                raise GrantNotInstalledError(connection_id=name) from moved
            continue
        return after
    raise _released(exchange, "busy", world)


TOLD: Final = {
    "identity_mismatch": "Another account was chosen at the provider.",
    "account_revoked_meanwhile": "A revocation of this account was under way: start again.",
}
"""What the caller is told of a release, beyond that the grant was not installed."""


def _released(exchange: Exchange, reason: str, world: Connecting) -> GrantNotInstalledError:
    """Row 9, and what the caller is told."""
    _release(exchange, reason, world)
    name = exchange.ref.connection
    if reason == "identity_mismatch":
        return GrantNotInstalledError(TOLD[reason], connection_id=name, reason=reason)
    return GrantNotInstalledError(TOLD.get(reason), connection_id=name)


def _replace_grant(
    exchange: Exchange,
    connection: Connection,
    owner: Owner,
    barrier: Barrier,
    grants: tuple[Grant, ...],
    world: Connecting,
) -> Connection:
    """
    The wider grant in the place of the live one (row 70), whose revocation is due from then on. Raises `MovedError`
    where the live one moved: read again. One pair takes the place of one: a grant that has more of them is released.

    The two are compared first: of one token that was given twice nothing is queued, for that would end both.
    """
    now = world.clock.now()
    old = world.reads.grant(connection.ref, MAIN)
    if old is None or old.generation != connection.generation:
        raise MovedError
    if old.fp == exchange.fp:
        _release(exchange, SAME_GRANT, world)
        raise StepUpNotPossibleError(connection_id=connection.ref.connection)
    if len(grants) != 1:
        raise _released(exchange, "several_pairs", world)
    (grant,) = grants
    after = stepped_up(connection, exchange)
    queued = queued_of((old,), connection, now)
    world.store.replace_grant(exchange, connection, after, owner, barrier, old, grant, queued, now)
    world.kick.revoke_now([queued.rid])
    return after


def _refusal_of_install(
    exchange: Exchange, owner: Owner | None, connection: Connection | None, revocation: Revocation | None, now: int
) -> str | None:
    """Why the held grant may not become the live one (F-60); None if it may."""
    if owner is None or owner.deleted_at is not None:
        return "owner_deleted"
    if connection is None or not connection.waits_for(exchange):
        return "moved_on"
    if connection.subject is not None and connection.subject != exchange.subject:
        return "identity_mismatch"
    if (exchange.hold_ends or 0) <= now:
        return "too_late"
    if revocation is None or revocation.state is not RevocationState.PENDING or revocation.lease != exchange.id:
        return "taken_by_the_sweep"
    return None


def _lowered(killed_by: str | None, world: Connecting) -> bool:
    """
    Whether the revocation that shut the account was confirmed before and only lacked its finishing step, which lowers
    `killed_at`.
    """
    if killed_by is None:
        return False
    item = world.reads.revocations([killed_by])[killed_by]
    if item is None or item.state is not RevocationState.CONFIRMED or item.finished is not None:
        return False
    finish_settled(item, reads=world.reads, store=world.revocations, now=world.clock.now())
    return True


def _grants(exchange: Exchange, revocation: Revocation, client: Client, now: int) -> tuple[Grant, ...]:
    """The live grant, pair by pair: ciphertext is moved, not opened."""
    main = _grant(exchange, revocation, client, now)
    sealed = {each.pair: each for each in revocation.material}
    return (
        main,
        *(
            replace(
                main,
                pair=each.pair,
                family=family_of(exchange.id, each.pair),
                use=each.use,
                revoke=sealed[each.pair].sealed,
                fp=each.fp,
                takes=client.facts.taken(sealed[each.pair].kind),
                access_until=each.access_until,
                refresh_until=None,
                expiring_at=None,
            )
            for each in exchange.others
        ),
    )


def _grant(exchange: Exchange, revocation: Revocation, client: Client, now: int) -> Grant:
    """Its main pair."""
    if exchange.use is None or exchange.fp is None:
        raise StateConflictError(connection_id=exchange.ref.connection)
    return Grant(
        ref=exchange.ref,
        pair=MAIN,
        client=exchange.client,
        generation=exchange.generation,
        tv=1,
        family=family_of(exchange.id, MAIN),
        use=exchange.use,
        revoke=revocation.material[0].sealed,
        fp=exchange.fp,
        rid=exchange.rid,
        takes=client.facts.taken(revocation.takes),
        reach=revocation.reach,
        saved_at=now,
        access_until=exchange.access_until,
        refresh_until=exchange.refresh_until,
        account=exchange.account,
        keep_alive_at=keep_alive_at(exchange.started, client.facts.idle_limit_ms),
        expiring_at=expiring_at(exchange.started, exchange.refresh_until),
        stray=revocation.lost,
    )


# --- confirmation ----------------------------------------------------------------------------------------------------


def confirm(ref: ConnectionRef, generation: int, code: Secret, world: Connecting) -> Connection:
    """
    The owner brings back the code: the held grant becomes the live one (decision 0013).

    1. `install`. Refused or crash before it: the hold ends by itself, and the sweep revokes. A wrong code is counted;
       the fifth ends the exchange.
    """
    owner, connection = world.reads.owner_and_connection(ref)
    if owner is not None and owner.is_deleted:
        raise OwnerDeletedError
    if connection is None:
        raise ConnectionNotFoundError(connection_id=ref.connection)
    if connection.generation != generation:
        if _is_stepped_up(connection, generation, code, world):
            return connection
        raise GenerationMovedError(connection_id=ref.connection, generation=connection.generation)
    if connection.state not in (ConnectionState.AUTHORIZING, ConnectionState.READY) or connection.exchange is None:
        raise _refusal_of_confirm(connection)
    exchange = world.reads.exchange(ref, connection.step_up_exchange or connection.exchange)
    if exchange is None:
        raise _refusal_of_confirm(connection)
    if not world.vault.is_confirm_code(code, exchange.id, exchange.started):
        raise _wrong_code(exchange, connection, world)
    if exchange.outcome is ExchangeOutcome.INSTALLED and connection.state is ConnectionState.READY:
        return connection
    if exchange.outcome is ExchangeOutcome.UNCONFIRMED:
        raise RemovalRequiredError(connection_id=ref.connection)
    if exchange.outcome is ExchangeOutcome.OPEN:
        raise StateConflictError(connection_id=ref.connection, state=connection.state)
    if exchange.outcome is not ExchangeOutcome.HELD or exchange.use is None:
        raise GrantNotInstalledError(connection_id=ref.connection)
    client = world.clients.named(exchange.client)
    if exchange.id_token is not None or (exchange.account is None and client.facts.has_identity):
        raise StateConflictError("Nobody has learned yet whose grant it is.", connection_id=ref.connection)
    return install(exchange, client, world)


def _is_stepped_up(connection: Connection, generation: int, code: Secret, world: Connecting) -> bool:
    """Whether this code has made the wider grant the live one already, which raised the generation."""
    if connection.state is not ConnectionState.READY or connection.generation != generation + 1:
        return False
    exchange = world.reads.exchange(connection.ref, connection.exchange or "")
    if exchange is None or exchange.kind != STEP_UP or exchange.outcome is not ExchangeOutcome.INSTALLED:
        return False
    return world.vault.is_confirm_code(code, exchange.id, exchange.started)


def _refusal_of_confirm(connection: Connection) -> QuitclaimError:
    name = connection.ref.connection
    if connection.state in (ConnectionState.AUTHORIZING, ConnectionState.RECONCILING_LINK):
        return StateConflictError(connection_id=name, state=connection.state)
    return GrantNotInstalledError(connection_id=name, state=connection.state)


def _wrong_code(exchange: Exchange, connection: Connection, world: Connecting) -> QuitclaimError:
    """Counted while something is held; where nothing waits for a code, no code is right or wrong."""
    name = exchange.ref.connection
    if exchange.outcome is not ExchangeOutcome.HELD:
        return StateConflictError(connection_id=name, state=connection.state)
    if is_last_wrong_code(exchange):
        _release(exchange, "wrong_codes", world)
        return GrantNotInstalledError("Too many wrong codes: the grant is being revoked.", connection_id=name)
    try:
        world.store.count_wrong_code(exchange, world.clock.now())
    except MovedError as moved:
        found = moved.seen.get("exchange")
        if isinstance(found, Exchange) and found.outcome is ExchangeOutcome.HELD and is_last_wrong_code(found):
            _release(found, "wrong_codes", world)
            return GrantNotInstalledError(connection_id=name)
    return WrongCodeError(connection_id=name)
