"""
A connection and the attempt that makes it: states, events, and what stands before a new attempt.

Every cell of the tables of states and events is a row here or an error by name; a pair that is not here does not exist.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from quitclaim.domain.errors import (
    ConnectionReconcilingError,
    GenerationMovedError,
    NeedsReconnectError,
    QuitclaimError,
    StateConflictError,
    StateInvalidError,
    StateReplayedError,
    StateSupersededError,
    StepUpNotPossibleError,
)
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    AUTHORIZATION_MS,
    BLOCKERS,
    CONFIRM_MS,
    GUARD_MS,
    LINK_VISITS,
    TICKET_MIN_MS,
    TICKET_MS,
    WINDOW_MS,
    WRONG_CODES,
)
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.tokens import MAIN

if TYPE_CHECKING:
    from quitclaim.domain.sources import Source


class ConnectionState(StrEnum):
    """Its eight states (docs/lifecycle.md)."""

    AUTHORIZING = "authorizing"
    READY = "ready"
    NEEDS_RECONNECT = "needs_reconnect"
    FAILED = "failed"
    RECONCILING_LINK = "reconciling_link"
    REVOKING = "revoking"
    RECONCILING_REVOKE = "reconciling_revoke"
    REVOKED = "revoked"


class Phase(StrEnum):
    """How far an authorizing connection has come."""

    LINK = "link"
    LINK_RETURNED = "link_returned"
    EXCHANGING = "exchanging"


@dataclass(frozen=True)
class Connection:
    """A connection as it is stored."""

    ref: ConnectionRef
    provider: str
    client: str
    state: ConnectionState
    generation: int
    phase: Phase | None = None
    exchange: str | None = None
    lapse_at: int | None = None
    effect_at: int | None = None
    step: int | None = None
    requested: int | None = None
    subject: str | None = None
    account: str | None = None
    scopes: frozenset[str] = frozenset()
    failure: str | None = None
    closed_as: str | None = None
    pairs: tuple[str, ...] = ()
    metadata: dict[str, str] | None = None
    """What the app noted at the newest start; nothing here reads it."""
    step_up: str | None = None
    """An attempt to get a wider grant while this one is live, as long as its link waits."""
    step_up_exchange: str | None = None
    """And once its code was sent."""
    v: int = 0

    @property
    def is_stopped(self) -> bool:
        """On its way to revoked, or there."""
        return self.state in STOPPED

    def waits_for(self, exchange: "Exchange") -> bool:
        """Whether a grant of *exchange* may become this connection's."""
        if exchange.kind == STEP_UP:
            is_next = self.generation + 1 == exchange.generation
            return self.state is ConnectionState.READY and is_next and self.step_up_exchange == exchange.id
        return self.is_authorizing_at(exchange.generation) and self.exchange == exchange.id

    def is_authorizing_at(self, generation: int) -> bool:
        """Whether the attempt of *generation* is the current one."""
        return self.state is ConnectionState.AUTHORIZING and self.generation == generation


STOPPED: Final = frozenset({ConnectionState.REVOKING, ConnectionState.RECONCILING_REVOKE, ConnectionState.REVOKED})


@dataclass(frozen=True)
class Owner:
    """The fence that every change of an owner's connections checks."""

    deleted_at: int | None = None
    epoch: int = 0
    stopped_at: int | None = None
    v: int = 0

    @property
    def is_deleted(self) -> bool:
        """For good: nothing clears it (F-15)."""
        return self.deleted_at is not None


@dataclass(frozen=True)
class Barrier:
    """What is in flight, owed, to be acknowledged or still to be purged for one owner and client."""

    in_flight: str | None = None
    owed: frozenset[str] = frozenset()
    acks: frozenset[str] = frozenset()
    purges: frozenset[str] = frozenset()
    v: int = 0


class ExchangeOutcome(StrEnum):
    """Of one attempt to turn a code into a grant."""

    OPEN = "open"
    HELD = "held"
    INSTALLED = "installed"
    CLEANUP = "cleanup"
    UNCONFIRMED = "unconfirmed"
    ENDED = "ended"

    @property
    def is_over(self) -> bool:
        """Neither waits for an answer nor holds one."""
        return self not in (ExchangeOutcome.OPEN, ExchangeOutcome.HELD)


@dataclass(frozen=True)
class HeldPair:
    """A further token pair of a held grant, beside the main one."""

    pair: str
    fp: str
    use: bytes
    access_until: int | None = None


@dataclass(frozen=True)
class Exchange:
    """An exchange as it is stored."""

    ref: ConnectionRef
    id: str
    kind: str
    client: str
    generation: int
    started: int
    ends: int
    outcome: ExchangeOutcome
    rid: str
    hold_ends: int | None = None
    fp: str | None = None
    use: bytes | None = None
    others: tuple[HeldPair, ...] = ()
    """Further pairs of the same grant, sealed for use."""
    id_token: bytes | None = None
    """Sealed, while it waits for its owner and nobody has verified it: until then nothing is confirmed."""
    access_until: int | None = None
    refresh_until: int | None = None
    subject: str | None = None
    account: str | None = None
    names: frozenset[str] = frozenset()
    """Digests of what the account is called as well, until the install makes each findable (`add_names`)."""
    scopes: frozenset[str] = frozenset()
    wrong: int = 0
    reason: str | None = None
    acknowledged: int | None = None
    shared_copy: bool | None = None
    """Of an import: whether the token that the app gave may be as good as ours."""
    v: int = 0

    def is_ended_by(self, generation: int) -> bool:
        """
        Whether a stop of *generation* answers for what it may have given: it is of that life, or the step-up beside it,
        which is one generation on.
        """
        return generation == self.generation or (self.kind == STEP_UP and generation == self.generation - 1)

    @property
    def in_barrier(self) -> str:
        """How the barrier names it while it is in flight."""
        return f"{self.ref.connection}#{self.id}"


@dataclass(frozen=True)
class Ticket:
    """What a connect link stands for."""

    ref: ConnectionRef
    generation: int
    client: str
    visits: int
    expires: int
    return_to: str | None = None
    scopes: frozenset[str] = frozenset()
    """What the start asks for, where that is not what the client always asks for."""
    step_up: str | None = None
    about: str | None = None
    """Who the provider is to expect and what its addresses need, sealed under the ticket, which is stored nowhere."""
    source: str | None = None
    """What is to be linked behind the account at a broker."""
    fence: int | None = None
    """Of that source, when its link was made: a link of what the source was before moves it no more."""
    reuses: bool | None = None
    """Whether the account is there already, and its connection stays as it is."""
    v: int = 0


@dataclass(frozen=True)
class Authorization:
    """One visit of a connect link: the state that the provider will bring back."""

    ref: ConnectionRef
    generation: int
    client: str
    binding: str
    expires: int
    sealed: bytes | None = None
    return_to: str | None = None
    scopes: frozenset[str] = frozenset()
    """What the provider was asked for: the client's settings may change before the callback (RB-52)."""
    reuses: bool | None = None
    """Whether a source is linked behind an account that is there already."""
    source: str | None = None
    fence: int | None = None
    """What is linked behind the account at a broker, and its fence when the link was made."""
    step_up: str | None = None
    consumed_at: int | None = None
    discarded_at: int | None = None
    exchange: str | None = None
    v: int = 0


@dataclass(frozen=True)
class Idempotency:
    """The record that gives a repeated call its first answer."""

    tenant: str
    key_digest: str
    request: str
    answer: dict[str, str | int]
    expires: int


@dataclass(frozen=True)
class Start:
    """What was seen before a start, and what shall be."""

    owner: Owner | None
    before: Connection | None
    after: Connection
    ticket: Ticket
    ticket_digest: str
    now: int
    idempotency: Idempotency | None = None
    superseded: Exchange | None = None
    hold_is_free: bool = True
    """False where the sweep has the superseded grant already."""
    superseded_connection: Connection | None = None
    source: "Source | None" = None
    source_before: "Source | None" = None


# --- start -----------------------------------------------------------------------------------------------------------


def may_start(connection: Connection | None, *, again: bool) -> bool:
    """
    Whether a start (*again*: a reconnect) begins a new generation; False: the existing connection is the answer (C-9).

    A start never disturbs a connection that is live or on its way out: it is told of it, and `reconnect` is refused. A
    connection that waits in phase link may be started anew; one whose exchange is open blocks through the barrier, not
    here. Raises the refusal that belongs to the state.
    """
    if connection is None or connection.state in (
        ConnectionState.NEEDS_RECONNECT,
        ConnectionState.FAILED,
        ConnectionState.AUTHORIZING,
    ):
        return True
    if connection.state is ConnectionState.RECONCILING_LINK:
        raise ConnectionReconcilingError(connection_id=connection.ref.connection)
    if not again:
        return False
    if connection.state is ConnectionState.REVOKED:
        return True
    raise StateConflictError(connection_id=connection.ref.connection, state=connection.state)


def link_of(connection: Connection | None, now: int) -> int | None:
    """
    When the connection's link was made, if it still waits there and a user would have a minute to open it: such a link
    may be the answer to the same start (U-12).
    """
    if connection is None or connection.phase is not Phase.LINK or connection.lapse_at is None:
        return None
    expires = connection.lapse_at - AUTHORIZATION_MS - GUARD_MS
    return expires - TICKET_MS if now + TICKET_MIN_MS <= expires else None


def started(
    connection: Connection | None,
    ref: ConnectionRef,
    provider: str,
    client: str,
    ticket_expires: int,
    metadata: dict[str, str] | None = None,
) -> Connection:
    """
    The connection once a start has happened: authorizing in phase link, one generation on. Its account stays pinned
    (S-21).
    """
    before = connection or Connection(ref, provider, client, ConnectionState.FAILED, 0)
    return replace(
        before,
        provider=provider,
        client=client,
        state=ConnectionState.AUTHORIZING,
        phase=Phase.LINK,
        generation=before.generation + 1,
        lapse_at=ticket_expires + AUTHORIZATION_MS + GUARD_MS,
        exchange=None,
        effect_at=None,
        step=None,
        requested=None,
        failure=None,
        closed_as=None,
        pairs=(),
        metadata=metadata,
        step_up=None,
        step_up_exchange=None,
    )


# --- step-up: a wider grant beside the live one ----------------------------------------------------------------------

STEP_UP: Final = "step_up"
"""Kind of an exchange whose grant takes the place of the connection's live one (U-6)."""
SAME_GRANT: Final = "same_grant"
"""Why one ends that brought the live grant's own token again."""


def may_step_up(connection: Connection | None, facts: ProviderFacts) -> bool:
    """
    Whether a reconnect that names scopes may run beside the live grant; False where there is none, or one of several
    pairs. Raises `StepUpNotPossibleError` where the provider's grants are not known to be independent: there the new
    grant could end the old one before it is in, or the old one's revocation the new one.
    """
    if connection is None or connection.state is not ConnectionState.READY or connection.pairs != (MAIN,):
        return False
    if not facts.grants_are_independent:
        raise StepUpNotPossibleError(connection_id=connection.ref.connection, provider=connection.provider)
    return True


def stepping_up(connection: Connection, attempt: str, metadata: dict[str, str] | None) -> Connection:
    """The connection with an attempt beside its grant: as it was, until that is in."""
    return replace(
        connection, step_up=attempt, step_up_exchange=None, metadata=metadata if metadata else connection.metadata
    )


def sent(connection: Connection, exchange: Exchange) -> Connection:
    """The connection once the exchange is on record."""
    if exchange.kind == STEP_UP:
        return replace(connection, step_up=None, step_up_exchange=exchange.id)
    return replace(connection, phase=Phase.EXCHANGING, exchange=exchange.id)


def stepped_up(connection: Connection, exchange: Exchange) -> Connection:
    """The connection once the wider grant is installed: ready as before, one generation on."""
    after = ready(connection, exchange, connection.pairs)
    return replace(
        after, generation=connection.generation + 1, exchange=exchange.id, step_up=None, step_up_exchange=None
    )


# --- link and callback -----------------------------------------------------------------------------------------------


def refusal_of_link(
    connection: Connection | None, generation: int, step_up: str | None = None
) -> QuitclaimError | None:
    """
    Why a link or callback of *generation* no longer serves this connection; None if it does (phase link, or ready and
    at this attempt to *step_up*).
    """
    if connection is None:
        return StateInvalidError()
    if step_up is not None:
        return _refusal_of_step_up(connection, generation, step_up)
    if connection.generation != generation:
        return StateSupersededError()
    if connection.state is ConnectionState.AUTHORIZING and connection.phase is Phase.LINK:
        return None
    if connection.state in STOPPED or connection.state is ConnectionState.NEEDS_RECONNECT:
        return StateSupersededError()
    return StateReplayedError()


def refusal_of_source_link(connection: Connection | None, generation: int) -> QuitclaimError | None:
    """
    Why a link or callback of a source no longer serves the account of this connection; None if it does: ready, and of
    the very life that it was made for.
    """
    if connection is None:
        return StateInvalidError()
    if connection.generation != generation or connection.state is not ConnectionState.READY:
        return StateSupersededError()
    return None


def _refusal_of_step_up(connection: Connection, generation: int, step_up: str) -> QuitclaimError | None:
    if connection.state is ConnectionState.READY and connection.generation + 1 == generation:
        if connection.step_up == step_up:
            return None
        if connection.step_up is None and connection.step_up_exchange is not None:
            return StateReplayedError()
    return StateSupersededError()


def may_visit(ticket: Ticket, now: int) -> bool:
    """Whether the link may be opened once more."""
    return ticket.expires > now and ticket.visits < LINK_VISITS


def is_left_behind(connection: Connection, exchange: Exchange | None) -> bool:
    """Whether the connection still waits for an exchange that is over."""
    return (
        connection.state is ConnectionState.AUTHORIZING
        and connection.phase is Phase.EXCHANGING
        and exchange is not None
        and exchange.id == connection.exchange
        and exchange.outcome not in (ExchangeOutcome.OPEN, ExchangeOutcome.HELD)
    )


KNOWN_ERRORS: Final = frozenset(
    {
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "invalid_request",
        "invalid_request_object",
        "invalid_request_uri",
        "invalid_scope",
        "invalid_target",
        "login_required",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_response_type",
        "user_cancelled_authorize",
        "user_cancelled_login",
    }
)
"""
Errors of an authorization response that may be told and logged (RFC 6749 section 4.1.2.1, RFC 8707 section 2, OIDC core
3.1.2.6, and LinkedIn's): anything else is a stranger's text.
"""

PASSING_ERRORS: Final = frozenset({"server_error", "temporarily_unavailable", "interaction_required", "login_required"})
"""
Errors of an authorization response (RFC 6749 section 4.1.2.1, OIDC core 3.1.2.6) after which the link may be opened
again.
"""


# --- exchange --------------------------------------------------------------------------------------------------------


def exchange_ends(started_at: int) -> int:
    """When the window of an exchange ends."""
    return started_at + WINDOW_MS


def hold_ends(exchange: Exchange, now: int, *, owner_confirms: bool) -> int:
    """When a hold made at *now* ends: the window's end, or ten minutes for the owner to confirm (decision 0013)."""
    return now + CONFIRM_MS if owner_confirms else exchange.ends


def is_last_wrong_code(exchange: Exchange) -> bool:
    """Whether one more wrong code ends the exchange."""
    return exchange.wrong >= WRONG_CODES - 1


def is_awaiting_confirmation(connection: Connection, exchange: Exchange | None, now: int) -> bool:
    """Derived, never stored: a hold must not depend on the connection."""
    return (
        exchange is not None
        and connection.waits_for(exchange)
        and exchange.outcome is ExchangeOutcome.HELD
        and exchange.use is not None
        and (exchange.hold_ends or 0) > now
    )


# --- import ----------------------------------------------------------------------------------------------------------

CODE: Final = "code"
LINK: Final = "link"
"""Kinds of exchanges that a browser comes back to: with a code, or from the pages of a broker."""
OF_A_CODE: Final = frozenset({CODE, STEP_UP})
IMPORT: Final = "import"
"""Of one that takes over a grant which the app holds already."""
SIGN_IN: Final = "sign_in"
"""Of one that makes an account at a broker for an app's SDK to sign in to."""
IN_A_BROWSER: Final = frozenset({CODE, STEP_UP, LINK})


@dataclass(frozen=True)
class DirectBegin:
    """What was seen before an exchange that no browser began, and what shall be."""

    owner: Owner | None
    before: Connection | None
    after: Connection
    resolved: "Resolved"
    exchange: Exchange
    idempotency: Idempotency | None = None


def refuse_import(connection: Connection | None) -> None:
    """
    Raise what the state says where an import may not begin a new generation. One that waits for its user is not
    replaced: the user may be at the provider.
    """
    if connection is None or connection.state in (
        ConnectionState.NEEDS_RECONNECT,
        ConnectionState.FAILED,
        ConnectionState.REVOKED,
    ):
        return
    if connection.state is ConnectionState.RECONCILING_LINK:
        raise ConnectionReconcilingError(connection_id=connection.ref.connection)
    raise StateConflictError(connection_id=connection.ref.connection, state=connection.state)


def may_leave_a_grant(exchange: Exchange, facts: ProviderFacts | None) -> bool:
    """
    Whether an exchange whose answer nobody saw may have made a grant that nobody holds.

    A code may, of either kind. A refresh for an import may wherever a refresh gives a new refresh token: its successor
    is lost then, whether the app's token is spent by it or lives on. Where none does, the grant is the app's as before.
    *facts* is None where the client is no longer set up. An account at a broker gives access to nothing by itself, and
    the next attempt finds it by its reference.
    """
    if exchange.kind == IMPORT:
        return facts is None or facts.rotates != "no"
    return exchange.kind in OF_A_CODE


def importing(connection: Connection | None, exchange: Exchange, provider: str) -> Connection:
    """The connection once an import has begun: authorizing in phase exchanging, one generation on."""
    begun = started(connection, exchange.ref, provider, exchange.client, exchange.ends)
    return replace(begun, phase=Phase.EXCHANGING, exchange=exchange.id, lapse_at=exchange.ends + GUARD_MS)


# --- the barrier -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocker:
    """One thing that stands before a new attempt, for the owner to see and act on (D-9)."""

    id: str
    level: str  # in_progress, pending, permission_removal_required, purging, missing
    connection: str | None = None
    ends_at: int | None = None


@dataclass(frozen=True)
class Resolved:
    """A barrier together with what its ids stand for. `still_owed` is what a begin keeps in it."""

    barrier: Barrier | None
    revocations: dict[str, Revocation | None]
    exchanges: dict[str, Exchange | None]
    in_flight: Exchange | None = None

    @property
    def still_owed(self) -> frozenset[str]:
        """
        Ids of revocations that are open or parked; settled and finished ones are dropped by the next begin (custody
        rule 9).
        """
        return frozenset(
            rid for rid, item in self.revocations.items() if item is None or not item.is_over or item.finished is None
        )

    @property
    def open_ids(self) -> int:
        """How many obligations stand, parked ones not counted."""
        parked = sum(item is not None and item.state is RevocationState.PARKED for item in self.revocations.values())
        return len(self.still_owed) + len(self.exchanges) - parked

    @property
    def unfinished(self) -> tuple[Revocation, ...]:
        """Settled, but their finishing step has not run."""
        return tuple(
            item
            for item in self.revocations.values()
            if item is not None and item.state.is_terminal and item.finished is None
        )

    def blockers(self) -> tuple[Blocker, ...]:
        """What refuses a begin, the exchange in flight apart. A missing id blocks (custody rule 9)."""
        found: list[Blocker] = []
        for rid, item in sorted(self.revocations.items()):
            if item is None:
                found.append(Blocker(rid, "missing"))
            elif item.state is RevocationState.PENDING:
                found.append(Blocker(rid, "pending", item.ref.connection, item.deadline))
            elif item.state.is_notice and item.acknowledged is None:
                found.append(Blocker(rid, "permission_removal_required", item.ref.connection))
        for name, exchange in sorted(self.exchanges.items()):
            if exchange is None:
                found.append(Blocker(name, "missing"))
            elif exchange.outcome is ExchangeOutcome.UNCONFIRMED and exchange.acknowledged is None:
                found.append(Blocker(name, "permission_removal_required", exchange.ref.connection))
        for purge in sorted(self.barrier.purges if self.barrier else ()):
            found.append(Blocker(purge, "purging", purge.split("#")[0]))
        if self.open_ids >= BLOCKERS:
            found.append(Blocker("*", "too_many"))
        return tuple(found)


# --- stop ------------------------------------------------------------------------------------------------------------


def refusal_of_token(connection: Connection) -> QuitclaimError | None:
    """Why no token is handed out in this state; None in ready."""
    name = connection.ref.connection
    match connection.state:
        case ConnectionState.READY:
            return None
        case ConnectionState.NEEDS_RECONNECT | ConnectionState.FAILED:
            return NeedsReconnectError(connection_id=name)
        case ConnectionState.RECONCILING_LINK:
            return ConnectionReconcilingError(connection_id=name)
        case _:
            return StateConflictError(connection_id=name, state=connection.state)


def may_stop(connection: Connection, generation: int) -> bool:
    """
    Whether a disconnect at *generation* has something to do; False: it is stopped already, and that is the answer.

    A stop of the generation before, repeated, is the same stop. Raises `GenerationMovedError` for any other generation.
    """
    if connection.is_stopped and generation in (connection.generation, connection.generation - 1):
        return False
    if connection.generation != generation:
        raise GenerationMovedError(connection_id=connection.ref.connection, generation=connection.generation)
    return True


def stopped(connection: Connection, now: int, effect_ms: int) -> Connection:
    """The connection once it is stopped: revoking, one generation on."""
    return replace(
        connection,
        state=ConnectionState.REVOKING,
        generation=connection.generation + 1,
        effect_at=now + effect_ms,
        phase=None,
        lapse_at=None,
        exchange=None,
        requested=None,
        step=None,
        pairs=(),
        step_up=None,
        step_up_exchange=None,
    )


def lost(connection: Connection, reason: str) -> Connection:
    """
    The connection once the provider ended its grant: needs_reconnect, one generation on; its data is kept (decision
    0015).
    """
    return replace(
        connection,
        state=ConnectionState.NEEDS_RECONNECT,
        generation=connection.generation + 1,
        failure=reason,
        phase=None,
        lapse_at=None,
        exchange=None,
        pairs=(),
        step_up=None,
        step_up_exchange=None,
    )


def failed(connection: Connection, reason: str) -> Connection:
    """The connection once its attempt has ended without a grant."""
    return replace(connection, state=ConnectionState.FAILED, failure=reason, phase=None, lapse_at=None, exchange=None)


def ready(connection: Connection, exchange: Exchange, pairs: tuple[str, ...]) -> Connection:
    """The connection once the exchange's grant is installed. The account is pinned by what the exchange learned."""
    return replace(
        connection,
        state=ConnectionState.READY,
        subject=exchange.subject or connection.subject,
        account=exchange.account,
        scopes=exchange.scopes,
        failure=None,
        phase=None,
        lapse_at=None,
        pairs=pairs,
    )
