"""
Every row of the table of writes as an example: what it begins with, the write itself, how many actions it has, and
every clause that may refuse it, each with a touch of the table that breaks this clause alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import (
    IMPORT,
    Connection,
    ConnectionState,
    DirectBegin,
    Exchange,
    ExchangeOutcome,
    Ticket,
    exchange_ends,
    importing,
    ready,
    stepped_up,
)
from quitclaim.domain.errors import MovedError
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import digest
from quitclaim.domain.limits import DELIVERY_LEASE_MS, GUARD_MS, LINK_VISITS, TICKET_MS, WRONG_CODES
from quitclaim.domain.revocations import Claimed, Reach, Revocation, RevocationState, SealedMaterial
from quitclaim.domain.sources import SourceProof, SourceStart, asked_for
from quitclaim.domain.stop import Close
from quitclaim.domain.tokens import Grant
from quitclaim.flows.stop import queued_of
from quitclaim.ports import Item, Key
from quitclaim.store.keys import (
    account_key,
    authorization_key,
    barrier_key,
    connection_key,
    delivery_key,
    event_key,
    exchange_key,
    family_marker_key,
    grant_key,
    idempotency_key,
    intent_key,
    marker_key,
    member_key,
    name_key,
    owner_key,
    receipt_key,
    revocation_key,
    source_key,
    ticket_key,
)
from tests.store.stage import ACCOUNT, CLIENT, OTHER, OWNER, REF, Stage, ticket_text

type Act = Callable[[], object]
type Spoil = Callable[[Stage], object]


@dataclass(frozen=True)
class Refusal:
    """A clause of a write, and what breaks it."""

    clause: str
    write: str
    spoil: Spoil


@dataclass(frozen=True)
class Row:
    """One row, or one of its shapes."""

    name: str
    arrange: Callable[[Stage], Act]
    actions: int
    refusals: tuple[Refusal, ...] = ()


# --- keys of the examples --------------------------------------------------------------------------------------------

OWNER_KEY = owner_key(OWNER)
BARRIER = barrier_key(OWNER, CLIENT)
CONNECTION = connection_key(REF)
EXCHANGE = exchange_key(REF, "x-1")
REVOCATION = revocation_key("r-1")
GRANT = grant_key(REF, "main")
INTENT = intent_key(REF, 1)
ACCOUNT_KEY = account_key(CLIENT, ACCOUNT)
STATE = authorization_key("state-1")
FAR = 9_999_999_999_999


def moved(key: Key) -> Spoil:
    """Somebody else changed the item."""
    return lambda stage: stage.stand_in.alter(key, put={"v": 99})


def has(key: Key, **attributes: Any) -> Spoil:
    """The item says something else."""
    return lambda stage: stage.stand_in.alter(key, put=attributes)


def lacks(key: Key, *attributes: str) -> Spoil:
    """The item says less."""
    return lambda stage: stage.stand_in.alter(key, remove=attributes)


def gone(key: Key) -> Spoil:
    """The item is not there."""
    return lambda stage: stage.stand_in.erase(key)


def taken(key: Key) -> Spoil:
    """An item is there already."""
    return lambda stage: stage.stand_in.plant(key)


def event_taken(kind: EventKind, transition: str, later_ms: int = 0) -> Spoil:
    """The transition was told already."""
    return lambda stage: stage.stand_in.plant(event_key(Event(kind, REF, transition, stage.now + later_ms)))


def receipt_taken(rid: str) -> Spoil:
    """The receipt was written already."""
    return lambda stage: stage.stand_in.plant(receipt_key(OWNER, stage.now, rid))


def owner_moves(write: str = "owner") -> tuple[Refusal, ...]:
    """What the fence refuses."""
    return (
        Refusal("the owner is deleted", write, has(OWNER_KEY, deleted_at=1)),
        Refusal("the table was restored", write, has(OWNER_KEY, epoch=7)),
        Refusal("the owner is not there", write, gone(OWNER_KEY)),
    )


def exchange_is_held(*, within: bool) -> tuple[Refusal, ...]:
    """What a write on a held exchange refuses; *within* its hold where time counts."""
    return (
        Refusal("the exchange is no longer held", "exchange", has(EXCHANGE, outcome="cleanup")),
        *((Refusal("the hold is over", "exchange", has(EXCHANGE, hold_ends=1)),) if within else ()),
    )


HOLD_IS_FREE = (
    Refusal("the sweep has the hold", "revocation", has(REVOCATION, lease="sweep")),
    Refusal("the hold is settled", "revocation", has(REVOCATION, state="confirmed")),
    Refusal("the hold is gone", "revocation", gone(REVOCATION)),
)


DELIVERY = delivery_key(CLIENT, "event-1")


# --- connect ---------------------------------------------------------------------------------------------------------


def start_of_a_new_owner(stage: Stage) -> Act:
    return partial(stage.connects.start, stage.a_start(idempotency=stage.an_idempotency()))


def start_again(stage: Stage) -> Act:
    stage.started()
    return partial(stage.connects.start, stage.a_start())


def start_over_a_held_one(stage: Stage) -> Act:
    held = stage.held()
    return partial(stage.connects.start, stage.a_start(superseded=held))


def start_over_another_ones_hold(stage: Stage) -> Act:
    held = stage.held(OTHER)
    other = stage.connection(OTHER)
    return partial(stage.connects.start, stage.a_start(superseded=held, superseded_connection=other))


def visit(stage: Stage) -> Act:
    connection = stage.started()
    ticket = stage.reads.ticket(ticket_text(connection))
    assert ticket is not None
    ticket_digest = digest(ticket_text(connection))
    return partial(
        stage.connects.visit, ticket, ticket_digest, stage.an_authorization(connection), "state-1", stage.now
    )


def discard(stage: Stage, *, final: bool) -> Act:
    connection = stage.started()
    authorization, state = stage.visited()
    fails = connection if final else None
    return partial(stage.connects.discard, authorization, state, stage.now, fails=fails, reason="denied")


def begin(stage: Stage, *, with_barrier: bool) -> Act:
    if with_barrier:
        exchange = stage.begun()
        stage.connects.end(exchange, stage.connection(), stage.now, "refused", unconfirmed=False)
    stage.started()
    authorization, state = stage.visited()
    owner, connection, barrier = stage.reads.fence(REF, CLIENT)
    assert owner is not None
    assert connection is not None
    resolved = stage.reads.resolved(OWNER, barrier)
    exchange = stage.an_exchange(number=2)
    return partial(stage.connects.begin, authorization, state, connection, owner, resolved, exchange)


def begin_holding(stage: Stage) -> Act:
    stage.started()
    authorization, state = stage.visited()
    owner, connection, barrier = stage.reads.fence(REF, CLIENT)
    assert owner is not None
    assert connection is not None
    held, revocation = stage.a_hold(stage.an_exchange(number=2))
    resolved = stage.reads.resolved(OWNER, barrier)
    return partial(stage.connects.begin, authorization, state, connection, owner, resolved, held, revocation)


def begin_state(with_barrier: bool) -> Key:
    return authorization_key("state-2" if with_barrier else "state-1")


def begin_refusals(*, with_barrier: bool) -> tuple[Refusal, ...]:
    state = begin_state(with_barrier)
    return (
        Refusal("the state is consumed", "authorization", has(state, consumed_at=1)),
        Refusal("the state is discarded", "authorization", has(state, discarded_at=1)),
        Refusal("the state has expired", "authorization", has(state, expires=1)),
        Refusal("the state is bound to another browser", "authorization", has(state, binding="another")),
        Refusal("the state is another client's", "authorization", has(state, client="another")),
        Refusal("the connection moved", "connection", moved(CONNECTION)),
        *owner_moves(),
        *(
            (
                Refusal("the barrier moved", "barrier", moved(BARRIER)),
                Refusal("an exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
                Refusal("a purge is open", "barrier", has(BARRIER, purges=frozenset({"google#1"}))),
            )
            if with_barrier
            else (Refusal("a barrier is there by now", "barrier", taken(BARRIER)),)
        ),
        Refusal("the exchange's id is taken", "exchange", taken(exchange_key(REF, "x-2"))),
    )


def hold(stage: Stage) -> Act:
    exchange = stage.begun()
    held, revocation = stage.a_hold(exchange)
    return partial(stage.connects.hold, exchange, held, revocation, stage.now)


def record_identity(stage: Stage) -> Act:
    held = stage.held()
    learned = replace(held, subject=ACCOUNT, account=ACCOUNT)
    return partial(stage.connects.record_identity, held, learned, stage.now)


def wrong_code(stage: Stage) -> Act:
    held = stage.held()
    return partial(stage.connects.count_wrong_code, held, stage.now)


def install(
    stage: Stage, *, account: str | None = ACCOUNT, known: bool = False, names: frozenset[str] = frozenset()
) -> Act:
    number = 1
    if known:
        stage.installed(OTHER, number=7)
    exchange = replace(stage.held(number=number), subject=account, account=account, names=names)
    owner, connection, barrier = stage.reads.fence(REF, CLIENT)
    assert owner is not None
    assert connection is not None
    assert barrier is not None
    found = None if account is None else stage.reads.account(CLIENT, account) or Account()
    grants = (stage.a_grant(exchange),)
    after = ready(connection, exchange, ("main",))
    return partial(stage.connects.install, exchange, connection, after, owner, barrier, grants, found, stage.now)


TEAM = frozenset({"digest-team"})
INSTALL_REFUSALS = (
    *exchange_is_held(within=True),
    *HOLD_IS_FREE,
    Refusal("the barrier moved", "barrier", moved(BARRIER)),
    Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
    Refusal("a purge is open", "barrier", has(BARRIER, purges=frozenset({"google#1"}))),
    *owner_moves(),
    Refusal("the connection moved", "connection", moved(CONNECTION)),
    Refusal("a grant is there", "grant main", taken(GRANT)),
    Refusal("the transition was told", "event", event_taken(EventKind.CONNECTION_READY, "x-1")),
)


def replace_grant(stage: Stage, *, names: frozenset[str] = frozenset()) -> Act:
    stage.installed()
    exchange = replace(stage.stepping_up(number=2), subject=ACCOUNT, account=ACCOUNT, names=names)
    owner, connection, barrier = stage.reads.fence(REF, CLIENT)
    assert owner is not None
    assert connection is not None
    assert barrier is not None
    old, after = stage.grant(), stepped_up(connection, exchange)
    queued, grant = queued_of((old,), connection, stage.now), stage.a_grant(exchange)
    return partial(
        stage.connects.replace_grant, exchange, connection, after, owner, barrier, old, grant, queued, stage.now
    )


SECOND_EXCHANGE = exchange_key(REF, "x-2")
SECOND_REVOCATION = revocation_key("r-2")
REPLACE_REFUSALS = (
    Refusal("the exchange is no longer held", "exchange", has(SECOND_EXCHANGE, outcome="cleanup")),
    Refusal("the hold is over", "exchange", has(SECOND_EXCHANGE, hold_ends=1)),
    Refusal("the sweep has the hold", "held revocation", has(SECOND_REVOCATION, lease="sweep")),
    Refusal("the hold is settled", "held revocation", has(SECOND_REVOCATION, state="confirmed")),
    Refusal("the hold is gone", "held revocation", gone(SECOND_REVOCATION)),
    Refusal("the barrier moved", "barrier", moved(BARRIER)),
    Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
    Refusal("a purge is open", "barrier", has(BARRIER, purges=frozenset({"google#1"}))),
    *owner_moves(),
    Refusal("the connection moved", "connection", moved(CONNECTION)),
    Refusal("the old grant moved", "grant", moved(GRANT)),
    Refusal("the old grant is gone", "grant", gone(GRANT)),
    Refusal("the old grant is queued already", "revocation", taken(REVOCATION)),
    Refusal("it is no member", "member", gone(member_key(CLIENT, ACCOUNT, REF))),
    Refusal("the transition was told", "event", event_taken(EventKind.CONNECTION_READY, "x-2")),
)


def hold_of_a_step_up(stage: Stage) -> Act:
    stage.installed()
    exchange = stage.stepping_up(number=2, is_held=False)
    held, revocation = stage.a_hold(exchange)
    tokens = frozenset({held.fp or "", "fp-access"})
    return partial(stage.connects.hold, exchange, held, revocation, stage.now, tokens=tokens)


def drop_given_again(stage: Stage) -> Act:
    stage.installed()
    held, live = stage.stepping_up(number=2), stage.grant()
    stage.stand_in.alter(SECOND_EXCHANGE, put={"fp": live.fp})
    return partial(stage.connects.drop_given_again, replace(held, fp=live.fp), live, stage.now)


def release_step_up(stage: Stage) -> Act:
    stage.installed()
    held = stage.stepping_up(number=2)
    stage.stopped()
    return partial(stage.stops.release_step_up, held, stage.now, with_revocation=True)


def release(stage: Stage, *, connection: bool = True, with_revocation: bool = True, lapsed: bool = False) -> Act:
    held = stage.held()
    if lapsed:
        stage.clock.move(to=(held.hold_ends or 0) + GUARD_MS)
    seen = stage.connection() if connection else None
    return partial(
        stage.connects.release, held, seen, stage.now, "denied", with_revocation=with_revocation, lapsed=lapsed
    )


RELEASE_REFUSALS = (
    *exchange_is_held(within=False),
    *HOLD_IS_FREE,
    Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
    Refusal("the connection moved", "connection", moved(CONNECTION)),
)


def end(stage: Stage, *, unconfirmed: bool, connection: bool = True, lapsed: bool = False) -> Act:
    exchange = stage.begun()
    if lapsed:
        stage.clock.move(to=exchange.ends + GUARD_MS)
    seen = stage.connection() if connection else None
    return partial(stage.connects.end, exchange, seen, stage.now, "no_answer", unconfirmed=unconfirmed, lapsed=lapsed)


END_REFUSALS = (
    Refusal("the exchange is over", "exchange", has(EXCHANGE, outcome="unconfirmed")),
    Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
    Refusal("the connection moved", "connection", moved(CONNECTION)),
)


def late_revocation(stage: Stage, exchange: Exchange, rid: str | None = None) -> Revocation:
    """A grant that came too late, due now."""
    late = stage.a_revocation(replace(exchange, fp="fp-late"), next=stage.now, lease=None, lease_until=None)
    return replace(late, rid=rid or exchange.rid)


def late_while_open(stage: Stage) -> Act:
    exchange = stage.begun()
    stage.clock.move(to=exchange.ends)
    late = late_revocation(stage, exchange)
    return partial(stage.connects.queue_late_grant, exchange, CLIENT, late, intent_generation=None)


def late_after_lapse(stage: Stage) -> Act:
    end(stage, unconfirmed=True, lapsed=True)()
    exchange = stage.exchange()
    late = late_revocation(stage, exchange)
    return partial(stage.connects.queue_late_grant, exchange, CLIENT, late, intent_generation=None)


def late_after_a_stop(stage: Stage) -> Act:
    exchange = stage.begun()
    stage.stopped()
    stage.connects.end(exchange, stage.connection(), stage.now, "no_answer", unconfirmed=True)
    exchange = stage.exchange()
    late = late_revocation(stage, exchange)
    return partial(stage.connects.queue_late_grant, exchange, CLIENT, late, intent_generation=1)


def late_beside_another(stage: Stage) -> Act:
    held = stage.held()
    late = late_revocation(stage, held, rid="r-1.fp-late")
    return partial(stage.connects.queue_late_grant, held, CLIENT, late, intent_generation=None)


def late_whatever_it_was(stage: Stage) -> Act:
    exchange = stage.begun()
    late = late_revocation(stage, exchange)
    return partial(stage.connects.queue_late_grant, None, CLIENT, late, intent_generation=None)


def begin_import(stage: Stage, *, again: bool) -> Act:
    if again:
        stage.connects.end(stage.begun(), stage.connection(), stage.now, "refused", unconfirmed=False)
    owner, before, barrier = stage.reads.fence(REF, CLIENT)
    generation = (before.generation if before else 0) + 1
    exchange = Exchange(
        ref=REF,
        id="x-2",
        kind=IMPORT,
        client=CLIENT,
        generation=generation,
        started=stage.now,
        ends=exchange_ends(stage.now),
        outcome=ExchangeOutcome.OPEN,
        rid="r-2",
        use=b"the given token, sealed",
    )
    resolved = stage.reads.resolved(OWNER, barrier)
    decision = DirectBegin(
        owner,
        before,
        importing(before, exchange, "acme"),
        resolved,
        exchange,
        None if again else stage.an_idempotency(),
    )
    return partial(stage.connects.begin_directly, decision)


IMPORT_REFUSALS = (
    Refusal("the connection moved", "connection", moved(CONNECTION)),
    *owner_moves(),
    Refusal("the barrier moved", "barrier", moved(BARRIER)),
    Refusal("an exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
    Refusal("a purge is open", "barrier", has(BARRIER, purges=frozenset({"google#1"}))),
    Refusal("the exchange's id is taken", "exchange", taken(exchange_key(REF, "x-2"))),
)


SOURCE = source_key(REF, "oura")


def start_with_a_source(stage: Stage) -> Act:
    source = asked_for(None, REF, "oura", stage.now, fences=False, generation=1)
    return partial(stage.connects.start, stage.a_start(idempotency=stage.an_idempotency(), source=source))


def start_source(stage: Stage, *, again: bool, proven: bool = False) -> Act:
    connection = stage.installed()
    if again:
        stage.connects.start_source(a_source_start(stage, connection, "first"), None)
    decision = a_source_start(stage, stage.connection(), "second")
    proof = None
    if proven:
        assert decision.before is not None
        proof = SourceProof(REF.connection, "oura", decision.before.instance, decision.before.last_seen)
        decision = replace(decision, after=None)
    return partial(stage.connects.start_source, decision, proof)


def a_source_start(stage: Stage, connection: Connection, ticket: str) -> SourceStart:
    before = stage.reads.source(REF, "oura")
    return SourceStart(
        owner=stage.owner(),
        connection=connection,
        before=before,
        after=asked_for(before, REF, "oura", stage.now, fences=True, generation=connection.generation),
        ticket=Ticket(REF, connection.generation, CLIENT, 0, stage.now + TICKET_MS, source="oura", reuses=True),
        ticket_digest=digest(ticket),
        now=stage.now,
        idempotency=stage.an_idempotency() if ticket == "second" else None,
    )


SOURCE_REFUSALS = (
    *owner_moves(),
    Refusal("the connection is stopped", "connection", has(CONNECTION, state="revoking")),
    Refusal("the connection has another life", "connection", has(CONNECTION, generation=9)),
    Refusal("the ticket is there", "ticket", taken(ticket_key(digest("second")))),
    Refusal("the key was used", "idempotency", taken(idempotency_key(REF.tenant, "key-digest"))),
)


def return_link(stage: Stage) -> Act:
    connection = stage.installed()
    ticket = Ticket(REF, connection.generation, CLIENT, 0, stage.now + TICKET_MS, source="oura", reuses=True)
    stage.connects.start_source(
        replace(a_source_start(stage, connection, "second"), ticket=ticket, idempotency=None), None
    )
    authorization = replace(stage.an_authorization(connection), reuses=True)
    found = stage.reads.ticket("second")
    assert found is not None
    stage.connects.visit(found, digest("second"), authorization, "state-9", stage.now)
    stored = stage.reads.authorization("state-9")
    assert stored is not None
    return partial(stage.connects.return_link, stored, "state-9", stage.now)


def forget_source(stage: Stage) -> Act:
    start_source(stage, again=False)()
    source = stage.reads.source(REF, "oura")
    assert source is not None
    return partial(stage.reconciles.forget_source, source)


def lapse_link(stage: Stage) -> Act:
    connection = stage.started()
    stage.clock.move(to=(connection.lapse_at or 0) + GUARD_MS)
    return partial(stage.connects.lapse_link, connection, stage.now)


def left_behind(stage: Stage) -> Act:
    exchange = stage.begun()
    late_revocation_of = late_revocation(stage, exchange)
    stage.connects.queue_late_grant(exchange, CLIENT, late_revocation_of, intent_generation=None)
    return partial(stage.connects.leave_behind, stage.connection(), stage.exchange(), stage.now)


# --- tokens ----------------------------------------------------------------------------------------------------------


def record(stage: Stage) -> Act:
    stage.installed()
    grant = stage.grant()
    return partial(stage.tokens.record, grant, "attempt-1", stage.now)


def takeover(stage: Stage) -> Act:
    stage.installed()
    leased = stage.tokens.record(stage.grant(), "attempt-1", stage.now)
    stage.clock.move(to=(leased.lease_until or 0) + GUARD_MS)
    return partial(stage.tokens.record, stage.grant(), "attempt-2", stage.now)


def leased(stage: Stage) -> Grant:
    """A grant whose refresh is on record."""
    stage.installed()
    stage.tokens.record(stage.grant(), "attempt-1", stage.now)
    return stage.grant()


def saved(stage: Stage, before: Grant) -> Grant:
    """The grant with its fresh tokens."""
    return replace(
        before,
        tv=before.tv + 1,
        use=b"sealed again for use",
        revoke=b"sealed again revoke-only",
        fp="fp-2",
        access_until=stage.now + 3_600_000,
        saved_by="attempt-1",
        saved_at=stage.now,
        lease=None,
        lease_until=None,
        attempts=frozenset(),
        suspect=None,
        retry_at=None,
    )


def save(stage: Stage) -> Act:
    before = leased(stage)
    return partial(stage.tokens.save, before, saved(stage, before), "attempt-1")


def orphan_of(stage: Stage, grant: Grant, rid: str) -> Revocation:
    """A token of the grant's family that is due for revocation."""
    return Revocation(
        rid=rid,
        state=RevocationState.PENDING,
        ref=REF,
        generation=grant.generation,
        client=CLIENT,
        provider="acme",
        takes="refresh_token",
        reach=grant.reach,
        queued=stage.now,
        fp=frozenset({f"fp of {rid}"}),
        family=frozenset({grant.family}),
        material=(SealedMaterial(b"sealed revoke-only", "refresh_token", "main", 2),),
        account=grant.account,
        tv=2,
        listed=True,
        deadline=stage.now + 86_340_000,
        next=stage.now,
    )


def save_and_queue_the_old(stage: Stage) -> Act:
    before = leased(stage)
    old = orphan_of(stage, before, "attempt-1.old")
    return partial(stage.tokens.save, before, saved(stage, before), "attempt-1", replaced=old)


SAVE_REFUSALS = (
    Refusal("another generation", "grant", has(GRANT, generation=9)),
    Refusal("another token version", "grant", has(GRANT, tv=9)),
    Refusal("another's lease", "grant", has(GRANT, lease="attempt-9")),
    Refusal("the grant is gone", "grant", gone(GRANT)),
)


def withdraw(stage: Stage) -> Act:
    before = leased(stage)
    return partial(stage.tokens.withdraw, before, "attempt-1", stage.now + 5_000)


def orphan_beside_its_grant(stage: Stage) -> Act:
    before = leased(stage)
    orphan = orphan_of(stage, before, "attempt-1")
    return partial(
        stage.tokens.queue_orphan,
        before,
        "attempt-1",
        orphan,
        found=before,
        stopped=None,
        intent_generation=None,
    )


def orphan_beside_a_free_grant(stage: Stage) -> Act:
    leased(stage)
    stage.stand_in.alter(GRANT, remove=("lease", "lease_until"))
    free = stage.grant()
    orphan = orphan_of(stage, free, "attempt-1")
    return partial(
        stage.tokens.queue_orphan, free, "attempt-1", orphan, found=free, stopped=None, intent_generation=None
    )


def orphan_after_a_stop(stage: Stage) -> Act:
    before = leased(stage)
    stage.stopped()
    orphan = orphan_of(stage, before, "attempt-1")
    return partial(
        stage.tokens.queue_orphan,
        before,
        "attempt-1",
        orphan,
        found=None,
        stopped=stage.revocation(),
        intent_generation=1,
    )


def forget_attempts(stage: Stage, *, stray: bool) -> Act:
    before = leased(stage)
    stage.clock.move(to=(before.lease_until or 0) + GUARD_MS)
    return partial(stage.tokens.forget_attempts, before, stage.now, stray=stray)


# --- stop ------------------------------------------------------------------------------------------------------------


def stop(stage: Stage, *, loss: bool = False, account: str | None = ACCOUNT) -> Act:
    stage.installed(account=account)
    idempotency = None if loss else stage.an_idempotency()
    return partial(stage.stops.stop, stage.a_stop(loss=loss, idempotency=idempotency))


def stop_without_a_grant(stage: Stage) -> Act:
    stage.started()
    return partial(stage.stops.stop, stage.a_stop())


def stop_of_a_held_one(stage: Stage) -> Act:
    held = stage.held()
    decision = stage.a_stop(held=held)
    decision = replace(decision, intent=replace(decision.intent, rids=frozenset({held.rid})))
    return partial(stage.stops.stop, decision)


STOP_REFUSALS = (
    Refusal("the connection moved", "connection", moved(CONNECTION)),
    Refusal("the grant moved", "grant main", moved(GRANT)),
    Refusal("the grant is gone", "grant main", gone(GRANT)),
    Refusal("its revocation is queued already", "revocation", taken(REVOCATION)),
    Refusal("it was stopped already", "intent", taken(INTENT)),
    Refusal("the account moved", "account", moved(ACCOUNT_KEY)),
)


# --- revocations -----------------------------------------------------------------------------------------------------


def claim_refusals(key: Key) -> tuple[Refusal, ...]:
    return (
        Refusal("it is settled", "revocation", has(key, state="confirmed")),
        Refusal("it is parked", "revocation", has(key, state="parked")),
        Refusal("it is not due", "revocation", has(key, next=FAR)),
        Refusal("its deadline is over", "revocation", has(key, deadline=1)),
        Refusal("another has it", "revocation", has(key, lease="other", lease_until=FAR)),
        Refusal(
            "its successor is overdue", "revocation", has(key, expected=frozenset({"attempt-1"}), expected_until=1)
        ),
        Refusal("a renewal is open", "revocation", has(key, renewing="attempt-1")),
    )


CLAIM_REFUSALS = claim_refusals(REVOCATION)


def claim_family(stage: Stage) -> Act:
    queued = stage.queued(reach=Reach.FAMILY)
    return partial(stage.revocations.claim_within_family, queued, stage.now)


def claim_beside_live(stage: Stage, *, is_live: bool = True, expects: bool = False) -> Act:
    stage.installed(reach=Reach.TOKEN)
    held = stage.stepping_up(number=2)
    stage.connects.release(held, None, stage.now, "denied")
    if not is_live:
        stage.stopped()
    if expects:
        put: Item = {"expected": frozenset({"attempt-1"}), "expected_until": FAR}
        stage.stand_in.alter(SECOND_REVOCATION, put=put)
    return partial(stage.revocations.claim_beside_live, stage.revocation(held.rid), stage.now)


def claim_account(stage: Stage, *, known: bool = True) -> Act:
    queued = stage.queued(reach=Reach.AUTHORIZATION)
    if not known:
        stage.stand_in.erase(ACCOUNT_KEY)
    account = stage.reads.account(CLIENT, ACCOUNT)
    return partial(stage.revocations.claim_account_wide, queued, ACCOUNT, account, stage.now)


def record_account(stage: Stage) -> Act:
    queued = stage.queued(reach=Reach.AUTHORIZATION, account=None)
    return partial(stage.revocations.record_account, queued, ACCOUNT)


def parkable(stage: Stage) -> Revocation:
    """A queued grant whose account another connection still uses."""
    stage.installed(OTHER, number=7)
    return stage.queued(reach=Reach.AUTHORIZATION)


def park_beside_the_account(stage: Stage) -> Act:
    queued = parkable(stage)
    return partial(stage.revocations.park, queued, stage.account(), None, stage.now)


def family_orphan(stage: Stage) -> Revocation:
    """An orphan of the family that is still live at its connection."""
    orphan_beside_its_grant(stage)()
    return stage.revocation("attempt-1")


def park_beside_the_family(stage: Stage) -> Act:
    orphan = family_orphan(stage)
    return partial(stage.revocations.park, orphan, None, stage.grant(), stage.now)


ORPHAN = revocation_key("attempt-1")
PARK_REFUSALS = (
    Refusal("it moved", "revocation", moved(REVOCATION)),
    Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
    Refusal("another has it", "revocation", has(REVOCATION, lease="other", lease_until=FAR)),
    Refusal("the account moved", "account", moved(ACCOUNT_KEY)),
    Refusal("nothing lives there", "account", has(ACCOUNT_KEY, live=0)),
    Refusal("it has a marker", "marker", taken(marker_key(CLIENT, ACCOUNT, "r-1"))),
    Refusal("it has a receipt", "receipt", receipt_taken("r-1")),
    Refusal("told", "event", event_taken(EventKind.REVOCATION_RELEASED, "r-1")),
)


def forget_successor(stage: Stage) -> Act:
    before = leased(stage)
    stage.stopped()
    stage.clock.move(to=(before.lease_until or 0) + GUARD_MS)
    return partial(stage.revocations.forget_successor, stage.revocation(), stage.now)


def claim_of(stage: Stage) -> Claimed:
    """A claimed revocation of reach token."""
    [claim] = stage.revocations.claim([stage.queued()], stage.now)
    return claim


def record_renewal(stage: Stage) -> Act:
    return partial(stage.revocations.record_renewal, claim_of(stage), "attempt-1")


def put_back(stage: Stage, *, alone: bool = False, loses: bool = False) -> Act:
    claim = claim_of(stage)
    stage.revocations.record_renewal(claim, "attempt-1")
    successor = replace(
        stage.revocation(), rid="attempt-1", lease=None, lease_until=None, renewing=None, claims=0, next=stage.now
    )
    return partial(
        stage.revocations.put_back,
        claim,
        "attempt-1",
        successor,
        stage.now,
        intent_generation=claim.revocation.generation,
        loses=loses,
        alone=alone,
    )


def forget_renewal(stage: Stage) -> Act:
    claim = claim_of(stage)
    stage.revocations.record_renewal(claim, "attempt-1")
    stage.clock.move(to=claim.until + GUARD_MS)
    return partial(stage.revocations.forget_renewal, stage.revocation(), stage.now, loses=True)


PUT_BACK_REFUSALS = (
    Refusal("it is queued", "successor", taken(revocation_key("attempt-1"))),
    Refusal("the intent is gone", "intent", gone(INTENT)),
)


def expire(stage: Stage) -> Act:
    queued = stage.queued()
    stage.revocations.claim([queued], stage.now)
    stage.clock.move(to=(queued.deadline or 0) + GUARD_MS)
    return partial(stage.revocations.expire, stage.revocation(), stage.now)


def finish(stage: Stage, state: RevocationState = RevocationState.CONFIRMED, *, has_barrier: bool = True) -> Act:
    settled = stage.settled(state)
    return partial(stage.revocations.finish, settled, stage.account(), stage.now, has_barrier=has_barrier)


def finish_account_wide(stage: Stage) -> Act:
    claimed = claim_account(stage)()
    stage.clock.move(seconds=2)
    stage.revocations.settle_all(
        [stage.revocations.settle(claimed, stage.now, RevocationState.CONFIRMED)]  # type: ignore[arg-type]
    )
    return partial(stage.revocations.finish, stage.revocation(), stage.account(), stage.now, has_barrier=True)


FINISH_REFUSALS = (
    Refusal("it moved", "revocation", moved(REVOCATION)),
    Refusal("somebody finished it", "revocation", has(REVOCATION, finished=1)),
    Refusal("the barrier is gone", "barrier", gone(BARRIER)),
    Refusal("it has a receipt", "receipt", receipt_taken("r-1")),
)


def acknowledge(stage: Stage) -> Act:
    finish(stage, RevocationState.UNCONFIRMED)()
    return partial(stage.revocations.acknowledge, stage.revocation(), stage.now, has_barrier=True)


def acknowledge_exchange(stage: Stage) -> Act:
    end(stage, unconfirmed=True, lapsed=True)()
    return partial(stage.revocations.acknowledge_exchange, stage.exchange(), stage.now)


# --- recovery --------------------------------------------------------------------------------------------------------


def wake_of_the_account(stage: Stage) -> Act:
    park_beside_the_account(stage)()
    stage.stopped(OTHER)
    return partial(stage.reconciles.wake, stage.revocation(), stage.account(), stage.now)


def wake_of_the_family(stage: Stage) -> Act:
    park_beside_the_family(stage)()
    stage.stopped()
    return partial(stage.reconciles.wake, stage.revocation("attempt-1"), None, stage.now)


def postpone(stage: Stage) -> Act:
    stage.queued()
    return partial(stage.reconciles.postpone, stage.intent(), stage.now + 60_000)


def purge_done(stage: Stage) -> Act:
    stage.queued()
    return partial(stage.reconciles.purge_done, stage.intent(), stage.now, has_barrier=True)


def show_overdue(stage: Stage) -> Act:
    stage.queued()
    return partial(stage.reconciles.show_overdue, stage.intent(), stage.now)


def compensations_derived(stage: Stage) -> Act:
    stage.queued()
    return partial(stage.reconciles.compensations_derived, stage.intent())


def move(stage: Stage) -> Act:
    stage.installed()
    before = stage.stopped()
    after = replace(before, state=ConnectionState.RECONCILING_REVOKE, step=1, effect_at=stage.now + 60_000)
    return partial(stage.reconciles.move, before, after, stage.now)


def closable(stage: Stage) -> None:
    """A stop of which everything is done."""
    finish(stage)()
    stage.reconciles.purge_done(stage.intent(), stage.now, has_barrier=True)
    stage.reconciles.compensations_derived(stage.intent())


def close(stage: Stage) -> Act:
    closable(stage)
    return partial(
        stage.reconciles.close,
        stage.intent(),
        stage.connection(),
        stage.barrier(),
        Close.CONFIRMED,
        {},
        stage.now,
    )


def close_of_a_lost_generation(stage: Stage) -> Act:
    stop(stage, loss=True)()
    return partial(
        stage.reconciles.close, stage.intent(), stage.connection(), stage.barrier(), Close.CONFIRMED, {}, stage.now
    )


def close_beside_a_living_grant(stage: Stage) -> Act:
    park_beside_the_account(stage)()
    stage.reconciles.purge_done(stage.intent(), stage.now, has_barrier=True)
    stage.reconciles.compensations_derived(stage.intent())
    return partial(
        stage.reconciles.close,
        stage.intent(),
        stage.connection(),
        stage.barrier(),
        Close.RELEASED,
        {ACCOUNT: stage.account()},
        stage.now,
    )


CLOSE_REFUSALS = (
    Refusal("the intent moved", "intent", moved(INTENT)),
    Refusal("the purge is open", "intent", has(INTENT, purge="pending")),
    Refusal("the compensations are not derived", "intent", lacks(INTENT, "comp_derived")),
    Refusal("a compensation is open", "intent", has(INTENT, comp_open=1)),
    Refusal("the barrier moved", "barrier", moved(BARRIER)),
    Refusal("an exchange is in flight", "barrier", has(BARRIER, in_flight="google#x-9")),
    Refusal("the connection moved", "connection", moved(CONNECTION)),
)


# --- the table -------------------------------------------------------------------------------------------------------

# --- webhooks --------------------------------------------------------------------------------------------------------


def accept(stage: Stage, **changes: Any) -> Act:
    delivery = stage.a_delivery(**changes)

    def act() -> None:
        if not stage.webhooks.accept(delivery):
            raise MovedError(seen={"delivery": None})

    return act


def claim_delivery(stage: Stage, *, after_another: bool = False, parked: bool = False) -> Act:
    delivery = stage.accepted()
    if parked:
        stage.stand_in.alter(DELIVERY, put={"state": "parked"}, remove=("next", "d1", "d2"))
    if after_another:
        stage.webhooks.claim(delivery, stage.now - DELIVERY_LEASE_MS - GUARD_MS)
    return partial(stage.webhooks.claim, delivery, stage.now)


def complete_delivery(stage: Stage) -> Act:
    delivery = stage.accepted()
    claim = stage.webhooks.claim(delivery, stage.now)
    return partial(stage.webhooks.complete, claim, delivery, stage.now)


def release_delivery(stage: Stage) -> Act:
    delivery = stage.accepted()
    claim = stage.webhooks.claim(delivery, stage.now)
    return partial(stage.webhooks.release, claim, delivery, stage.now + 60_000)


def send_again(stage: Stage, *, claimed: bool = False) -> Act:
    delivery = stage.accepted()
    if claimed:
        stage.webhooks.claim(delivery, stage.now)
    return partial(stage.webhooks.sent_again, delivery, stage.now + 60_000)


CLAIM_IS_LOST = (
    Refusal("another attempt has it", "delivery", has(DELIVERY, claim="another")),
    Refusal("it is processed", "delivery", has(DELIVERY, state="processed")),
    Refusal("it was released", "delivery", has(DELIVERY, state="accepted")),
    Refusal("it is gone", "delivery", gone(DELIVERY)),
)

ROWS: tuple[Row, ...] = (
    Row(
        "1 start of a new owner",
        start_of_a_new_owner,
        4,
        (
            Refusal("the owner is there by now", "owner", taken(OWNER_KEY)),
            Refusal("the connection is there by now", "connection", taken(CONNECTION)),
            Refusal("the key was used", "idempotency", taken(idempotency_key(REF.tenant, "key-digest"))),
        ),
    ),
    Row(
        "1 start again",
        start_again,
        3,
        (
            *owner_moves(),
            Refusal("the connection moved", "connection", moved(CONNECTION)),
            Refusal("the ticket is there", "ticket", taken(ticket_key(digest("ticket of google 2")))),
        ),
    ),
    Row(
        "1 start over a held one",
        start_over_a_held_one,
        7,
        (
            *exchange_is_held(within=False),
            *HOLD_IS_FREE,
            Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
            Refusal("told", "event", event_taken(EventKind.CONNECTION_FAILED, "x-1")),
        ),
    ),
    Row(
        "1 start over another connection's hold",
        start_over_another_ones_hold,
        8,
        (Refusal("the other connection moved", "other connection", moved(connection_key(OTHER))),),
    ),
    Row(
        "2 visit",
        visit,
        2,
        (
            Refusal("the link has expired", "ticket", has(ticket_key(digest("ticket of google 1")), expires=1)),
            Refusal("twenty visits", "ticket", has(ticket_key(digest("ticket of google 1")), visits=LINK_VISITS)),
            Refusal("the state is taken", "authorization", taken(STATE)),
        ),
    ),
    Row(
        "3 discard",
        partial(discard, final=False),
        1,
        (
            Refusal("the state is consumed", "authorization", has(STATE, consumed_at=1)),
            Refusal("the state is discarded", "authorization", has(STATE, discarded_at=1)),
            Refusal("the state has expired", "authorization", has(STATE, expires=1)),
            Refusal("the state is bound to another browser", "authorization", has(STATE, binding="another")),
            Refusal("the state is another client's", "authorization", has(STATE, client="another")),
        ),
    ),
    Row(
        "3 discard for good",
        partial(discard, final=True),
        3,
        (
            Refusal("the connection moved", "connection", moved(CONNECTION)),
            Refusal("told", "event", event_taken(EventKind.CONNECTION_FAILED, "google#1")),
        ),
    ),
    Row("4 begin", partial(begin, with_barrier=False), 5, begin_refusals(with_barrier=False)),
    Row("4 begin behind a barrier", partial(begin, with_barrier=True), 5, begin_refusals(with_barrier=True)),
    Row(
        "4 begin with the grant in hand",
        begin_holding,
        6,
        (
            *begin_refusals(with_barrier=False),
            Refusal("its queue item is there", "revocation", taken(revocation_key("r-2"))),
        ),
    ),
    Row(
        "5 hold",
        hold,
        2,
        (
            Refusal("the exchange is over", "exchange", has(EXCHANGE, outcome="unconfirmed")),
            Refusal("the window is over", "exchange", has(EXCHANGE, ends=1)),
            Refusal("its queue item is there", "revocation", taken(REVOCATION)),
        ),
    ),
    Row(
        "6 identity",
        record_identity,
        2,
        (
            *exchange_is_held(within=True),
            *HOLD_IS_FREE,
            Refusal("the account is known", "revocation", has(REVOCATION, account="another")),
        ),
    ),
    Row(
        "7 wrong code",
        wrong_code,
        1,
        (
            *exchange_is_held(within=True),
            Refusal("it is the fifth", "exchange", has(EXCHANGE, wrong=WRONG_CODES - 1)),
        ),
    ),
    Row(
        "8 install",
        install,
        9,
        (
            *INSTALL_REFUSALS,
            Refusal("the account is there by now", "account", taken(ACCOUNT_KEY)),
            Refusal("it is a member", "member", taken(member_key(CLIENT, ACCOUNT, REF))),
        ),
    ),
    Row(
        "8 install on a known account",
        partial(install, known=True),
        9,
        (
            Refusal("the account moved", "account", moved(ACCOUNT_KEY)),
            Refusal("a wide revocation was under way", "account", has(ACCOUNT_KEY, killed_at=FAR)),
        ),
    ),
    Row("8 install without an account", partial(install, account=None), 7, INSTALL_REFUSALS),
    Row(
        "8 install with a further name",
        partial(install, names=TEAM),
        10,
        (Refusal("the grant is found by it", "name", taken(name_key(CLIENT, "digest-team", REF, "x-1"))),),
    ),
    Row("70 replace the grant", replace_grant, 9, REPLACE_REFUSALS),
    Row(
        "70 replace the grant with a further name",
        partial(replace_grant, names=TEAM),
        10,
        (Refusal("the grant is found by it", "name", taken(name_key(CLIENT, "digest-team", REF, "x-2"))),),
    ),
    Row(
        "5 hold of a step-up",
        hold_of_a_step_up,
        3,
        (
            Refusal("the exchange is over", "exchange", has(SECOND_EXCHANGE, outcome="unconfirmed")),
            Refusal("its window is over", "exchange", has(SECOND_EXCHANGE, ends=1)),
            Refusal("its queue item is there", "revocation", taken(SECOND_REVOCATION)),
            Refusal("it is the live grant's token", "grant", has(GRANT, fp="fp-x-2")),
            Refusal("one of its tokens is the live grant's", "grant", has(GRANT, fp="fp-access")),
        ),
    ),
    Row(
        "71 given again",
        drop_given_again,
        5,
        (
            Refusal("the exchange is no longer held", "exchange", has(SECOND_EXCHANGE, outcome="cleanup")),
            Refusal("another token is held", "exchange", has(SECOND_EXCHANGE, fp="fp-other")),
            Refusal("the sweep has the hold", "held revocation", has(SECOND_REVOCATION, lease="sweep")),
            Refusal("the hold is settled", "held revocation", has(SECOND_REVOCATION, state="confirmed")),
            Refusal("the hold is gone", "held revocation", gone(SECOND_REVOCATION)),
            Refusal("the live grant has another token", "grant", has(GRANT, fp="fp-other")),
            Refusal("the live grant is of another life", "grant", has(GRANT, generation=7)),
            Refusal("the live grant is gone", "grant", gone(GRANT)),
            Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
            Refusal("the transition was told", "event", event_taken(EventKind.STEP_UP_FAILED, "x-2")),
        ),
    ),
    Row(
        "9 release of a step-up after a stop",
        release_step_up,
        5,
        (
            Refusal("there is no stop", "intent", gone(INTENT)),
            Refusal("the exchange is no longer held", "exchange", has(SECOND_EXCHANGE, outcome="cleanup")),
            Refusal("the sweep has the hold", "revocation", has(SECOND_REVOCATION, lease="sweep")),
            Refusal("the hold is settled", "revocation", has(SECOND_REVOCATION, state="confirmed")),
            Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
            Refusal("the transition was told", "event", event_taken(EventKind.STEP_UP_FAILED, "x-2")),
        ),
    ),
    Row(
        "9 release",
        release,
        5,
        (*RELEASE_REFUSALS, Refusal("told", "event", event_taken(EventKind.CONNECTION_FAILED, "x-1"))),
    ),
    Row("9 release without a connection", partial(release, connection=False), 4),
    Row("9 release of what the sweep has", partial(release, with_revocation=False), 4),
    Row(
        "12 lapse of a hold",
        partial(release, lapsed=True),
        5,
        (*RELEASE_REFUSALS, Refusal("the hold is not over", "exchange", has(EXCHANGE, hold_ends=FAR))),
    ),
    Row(
        "10 end, refused",
        partial(end, unconfirmed=False),
        4,
        (*END_REFUSALS, Refusal("told", "event", event_taken(EventKind.CONNECTION_FAILED, "x-1"))),
    ),
    Row("10 end, unknown", partial(end, unconfirmed=True), 4, END_REFUSALS),
    Row("10 end without a connection", partial(end, unconfirmed=True, connection=False), 3),
    Row(
        "11 lapse, empty",
        partial(end, unconfirmed=True, lapsed=True),
        4,
        (*END_REFUSALS, Refusal("the window is not over", "exchange", has(EXCHANGE, ends=FAR))),
    ),
    Row(
        "13 late grant while open",
        late_while_open,
        3,
        (
            Refusal("its queue item is there", "revocation", taken(REVOCATION)),
            Refusal("the exchange lapsed", "exchange", has(EXCHANGE, outcome="unconfirmed")),
            Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
        ),
    ),
    Row(
        "13 late grant after the lapse",
        late_after_lapse,
        3,
        (Refusal("another grant came", "exchange", has(EXCHANGE, outcome="cleanup")),),
    ),
    Row(
        "13 late grant after a stop",
        late_after_a_stop,
        4,
        (Refusal("the intent is gone", "intent", gone(INTENT)),),
    ),
    Row("13 late grant beside another", late_beside_another, 2),
    Row("13 late grant, whatever it was", late_whatever_it_was, 2),
    Row(
        "1 start with a source",
        start_with_a_source,
        5,
        (Refusal("the source is there by now", "source", taken(SOURCE)),),
    ),
    Row(
        "62 source",
        partial(start_source, again=False),
        6,
        (*SOURCE_REFUSALS, Refusal("the source is there by now", "source", taken(SOURCE))),
    ),
    Row(
        "62 source again",
        partial(start_source, again=True),
        6,
        (*SOURCE_REFUSALS, Refusal("the source moved", "source", moved(SOURCE))),
    ),
    Row(
        "62 source as the app saw it",
        partial(start_source, again=True, proven=True),
        5,
        (
            *SOURCE_REFUSALS,
            Refusal("the source was seen since", "source", has(SOURCE, last_seen=1)),
            Refusal("the source is in error", "source", has(SOURCE, error="expired")),
            Refusal("the source is connected", "source", has(SOURCE, status="connected", generation=1)),
            Refusal("the source is gone", "source", gone(SOURCE)),
        ),
    ),
    Row(
        "63 link returned",
        return_link,
        2,
        (
            Refusal("the state is consumed", "authorization", has(authorization_key("state-9"), consumed_at=1)),
            Refusal("the state is discarded", "authorization", has(authorization_key("state-9"), discarded_at=1)),
            Refusal("the state has expired", "authorization", has(authorization_key("state-9"), expires=1)),
            Refusal("it is bound to another browser", "authorization", has(authorization_key("state-9"), binding="x")),
            Refusal("it is another client's", "authorization", has(authorization_key("state-9"), client="x")),
            Refusal("the connection is stopped", "connection", has(CONNECTION, state="revoking")),
            Refusal("the connection has another life", "connection", has(CONNECTION, generation=9)),
        ),
    ),
    Row("64 source forgotten", forget_source, 1, (Refusal("the source moved", "source", moved(SOURCE)),)),
    Row(
        "14 import of a new owner",
        partial(begin_import, again=False),
        5,
        (
            Refusal("the owner is there by now", "owner", taken(OWNER_KEY)),
            Refusal("the connection is there by now", "connection", taken(CONNECTION)),
            Refusal("a barrier is there by now", "barrier", taken(BARRIER)),
            Refusal("the key was used", "idempotency", taken(idempotency_key(REF.tenant, "key-digest"))),
        ),
    ),
    Row("14 import into a connection that failed", partial(begin_import, again=True), 4, IMPORT_REFUSALS),
    Row(
        "15 link lapses",
        lapse_link,
        2,
        (
            Refusal("the connection moved", "connection", moved(CONNECTION)),
            Refusal("it left authorizing", "connection", has(CONNECTION, state="failed")),
            Refusal("the link still lives", "connection", has(CONNECTION, lapse_at=FAR)),
            Refusal("told", "event", event_taken(EventKind.CONNECTION_FAILED, "google#1")),
        ),
    ),
    Row(
        "15 left behind",
        left_behind,
        2,
        (
            Refusal("the connection moved", "connection", moved(CONNECTION)),
            Refusal("told", "event", event_taken(EventKind.CONNECTION_FAILED, "x-1")),
        ),
    ),
    Row(
        "16 lease and record",
        record,
        1,
        (
            Refusal("another generation", "grant", has(GRANT, generation=9)),
            Refusal("another token version", "grant", has(GRANT, tv=9)),
            Refusal("another's lease", "grant", has(GRANT, lease="attempt-9", lease_until=FAR)),
            Refusal("two attempts are open", "grant", has(GRANT, attempts=frozenset({"attempt-8", "attempt-9"}))),
            Refusal("the grant is gone", "grant", gone(GRANT)),
        ),
    ),
    Row("16 takeover", takeover, 1),
    Row("17 save", save, 1, SAVE_REFUSALS),
    Row(
        "18 save, and the old token is queued",
        save_and_queue_the_old,
        3,
        (*SAVE_REFUSALS, Refusal("it is queued", "revocation", taken(revocation_key("attempt-1.old")))),
    ),
    Row("19 withdraw", withdraw, 1, (Refusal("another's lease", "grant", has(GRANT, lease="attempt-9")),)),
    Row(
        "20 orphan beside its grant",
        orphan_beside_its_grant,
        3,
        (
            Refusal("it is queued", "revocation", taken(ORPHAN)),
            Refusal("the grant is of another generation", "grant", has(GRANT, generation=9)),
            Refusal("another's lease", "grant", has(GRANT, lease="attempt-9")),
            Refusal("the grant is gone", "grant", gone(GRANT)),
        ),
    ),
    Row(
        "20 orphan beside a grant that nobody refreshes",
        orphan_beside_a_free_grant,
        3,
        (Refusal("somebody does", "grant", has(GRANT, lease="attempt-9", lease_until=FAR)),),
    ),
    Row(
        "20 orphan after a stop",
        orphan_after_a_stop,
        4,
        (
            Refusal("the stop's revocation moved on", "stopped", has(REVOCATION, state="expired")),
            Refusal("the intent is gone", "intent", gone(INTENT)),
        ),
    ),
    Row(
        "21 keep",
        partial(forget_attempts, stray=False),
        1,
        (
            Refusal("the grant moved", "grant", moved(GRANT)),
            Refusal("the lease is not over", "grant", has(GRANT, lease_until=FAR)),
        ),
    ),
    Row("21 keep, stray", partial(forget_attempts, stray=True), 1),
    Row(
        "23 disconnect",
        stop,
        9,
        (
            *STOP_REFUSALS,
            Refusal("the key was used", "idempotency", taken(idempotency_key(REF.tenant, "key-digest"))),
            Refusal("told", "event", event_taken(EventKind.CONNECTION_REVOKING, "google#1")),
        ),
    ),
    Row("23 disconnect without an account", partial(stop, account=None), 7),
    Row("23 disconnect without a grant", stop_without_a_grant, 4),
    Row(
        "23 disconnect of a held one",
        stop_of_a_held_one,
        6,
        (
            *exchange_is_held(within=False),
            *HOLD_IS_FREE,
            Refusal("another exchange is in flight", "barrier", has(BARRIER, in_flight="other#x-9")),
        ),
    ),
    Row(
        "24 grant lost",
        partial(stop, loss=True),
        8,
        (
            *STOP_REFUSALS,
            Refusal("another token version", "grant main", has(GRANT, tv=9)),
            Refusal("another generation", "grant main", has(GRANT, generation=9)),
        ),
    ),
    Row(
        "28 claim of what was held",
        claim_beside_live,
        2,
        (
            *claim_refusals(SECOND_REVOCATION),
            Refusal("it is the live grant's token", "grant", has(GRANT, fp="fp-x-2")),
        ),
    ),
    Row("28 claim of what was held, no grant", partial(claim_beside_live, is_live=False), 2),
    Row("28 claim of what was held, successor expected", partial(claim_beside_live, expects=True), 2),
    Row(
        "29 claim, family",
        claim_family,
        2,
        (*CLAIM_REFUSALS, Refusal("its family lives", "grant x-1#main", has(GRANT, family="x-1#main"))),
    ),
    Row(
        "30 claim, account",
        claim_account,
        2,
        (
            *CLAIM_REFUSALS,
            Refusal("the account moved", "account", moved(ACCOUNT_KEY)),
            Refusal("something lives there", "account", has(ACCOUNT_KEY, live=1)),
        ),
    ),
    Row(
        "30 claim, account unknown so far",
        partial(claim_account, known=False),
        2,
        (Refusal("the account is there by now", "account", taken(ACCOUNT_KEY)),),
    ),
    Row(
        "30 the account is learned",
        record_account,
        1,
        (
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("it is known", "revocation", has(REVOCATION, account="another")),
        ),
    ),
    Row("31 park beside the account", park_beside_the_account, 5, PARK_REFUSALS),
    Row(
        "31 park beside the family",
        park_beside_the_family,
        5,
        (
            Refusal("another family lives", "grant", has(GRANT, family="x-9#main")),
            Refusal("nothing lives", "grant", gone(GRANT)),
            Refusal("it moved", "revocation", moved(ORPHAN)),
            Refusal("it has a marker", "marker", taken(family_marker_key(REF, "attempt-1"))),
        ),
    ),
    Row(
        "32 wake of the account",
        wake_of_the_account,
        4,
        (
            Refusal("it is awake", "revocation", has(REVOCATION, state="pending")),
            Refusal("the account moved", "account", moved(ACCOUNT_KEY)),
            Refusal("something lives there again", "account", has(ACCOUNT_KEY, live=1)),
        ),
    ),
    Row(
        "32 wake of the family",
        wake_of_the_family,
        4,
        (
            Refusal("it is awake", "revocation", has(ORPHAN, state="pending")),
            Refusal("its family lives again", "grant x-1#main", has(GRANT, family="x-1#main")),
        ),
    ),
    Row(
        "37 successor never came",
        forget_successor,
        1,
        (
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("it came", "revocation", lacks(REVOCATION, "expected")),
            Refusal("it may still come", "revocation", has(REVOCATION, expected_until=FAR)),
        ),
    ),
    Row(
        "38 expire",
        expire,
        1,
        (
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("the deadline is not over", "revocation", has(REVOCATION, deadline=FAR)),
        ),
    ),
    Row(
        "39 finish",
        finish,
        4,
        (*FINISH_REFUSALS, Refusal("told", "event", event_taken(EventKind.REVOCATION_CONFIRMED, "r-1"))),
    ),
    Row("39 finish of a notice", partial(finish, state=RevocationState.UNCONFIRMED), 4, FINISH_REFUSALS),
    Row("39 finish without a barrier", partial(finish, has_barrier=False), 3),
    Row(
        "39 finish, account wide",
        finish_account_wide,
        5,
        (
            *FINISH_REFUSALS,
            Refusal("another claim came since", "account", has(ACCOUNT_KEY, killed_by="r-9")),
            Refusal("it was claimed again", "account", has(ACCOUNT_KEY, killed_at=FAR)),
        ),
    ),
    Row(
        "40 acknowledge a revocation",
        acknowledge,
        3,
        (
            Refusal("it was confirmed", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("it is pending", "revocation", has(REVOCATION, state="pending")),
            Refusal("it is parked", "revocation", has(REVOCATION, state="parked")),
            Refusal("it is acknowledged", "revocation", has(REVOCATION, acknowledged=1)),
            Refusal("the barrier is gone", "barrier", gone(BARRIER)),
            Refusal("told", "event", event_taken(EventKind.REMOVAL_ACKNOWLEDGED, "r-1")),
        ),
    ),
    Row(
        "41 acknowledge an exchange",
        acknowledge_exchange,
        3,
        (
            Refusal("its grant came", "exchange", has(EXCHANGE, outcome="cleanup")),
            Refusal("its window is not over", "exchange", has(EXCHANGE, ends=FAR)),
            Refusal("it is acknowledged", "exchange", has(EXCHANGE, acknowledged=1)),
            Refusal("told", "event", event_taken(EventKind.REMOVAL_ACKNOWLEDGED, "x-1")),
        ),
    ),
    Row(
        "42 looked at again later",
        postpone,
        1,
        (
            Refusal("it moved", "intent", moved(INTENT)),
            Refusal("it is closed", "intent", has(INTENT, closed=1)),
            Refusal("it is gone", "intent", gone(INTENT)),
        ),
    ),
    Row(
        "43 purge done",
        purge_done,
        3,
        (
            Refusal("another stop's token", "intent", has(INTENT, token="another")),
            Refusal("it is done", "intent", has(INTENT, purge="done")),
            Refusal("told", "event", event_taken(EventKind.PURGE_COMPLETED, "google#1")),
        ),
    ),
    Row(
        "44 compensations derived",
        compensations_derived,
        1,
        (
            Refusal("another stop's token", "intent", has(INTENT, token="another")),
            Refusal("they are derived", "intent", has(INTENT, comp_derived=True)),
        ),
    ),
    Row("46 a connection that waits", move, 1, (Refusal("it moved", "connection", moved(CONNECTION)),)),
    Row(
        "47 close",
        close,
        4,
        (*CLOSE_REFUSALS, Refusal("told", "event", event_taken(EventKind.CONNECTION_REVOKED, "google#1"))),
    ),
    Row("47 close of a lost generation", close_of_a_lost_generation, 3),
    Row(
        "47 close beside a living grant",
        close_beside_a_living_grant,
        5,
        (
            *CLOSE_REFUSALS,
            Refusal("the account moved", "account", moved(ACCOUNT_KEY)),
            Refusal("nothing lives there", "account", has(ACCOUNT_KEY, live=0)),
        ),
    ),
    Row(
        "59 renewal recorded",
        record_renewal,
        1,
        (
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("another has it", "revocation", has(REVOCATION, lease="other")),
            Refusal("one is open", "revocation", has(REVOCATION, renewing="other")),
            Refusal("one was done", "revocation", has(REVOCATION, renewed="other")),
        ),
    ),
    Row(
        "60 put back",
        put_back,
        4,
        (
            *PUT_BACK_REFUSALS,
            Refusal("it is settled", "revocation", has(REVOCATION, state="expired")),
            Refusal("it was forgotten", "revocation", lacks(REVOCATION, "renewing")),
            Refusal("another is open", "revocation", has(REVOCATION, renewing="other")),
        ),
    ),
    Row("60 put back alone", partial(put_back, alone=True), 3, PUT_BACK_REFUSALS),
    Row(
        "61 renewal never answered",
        forget_renewal,
        1,
        (
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("it was answered", "revocation", lacks(REVOCATION, "renewing")),
            Refusal("another is open", "revocation", has(REVOCATION, renewing="other")),
            Refusal("it may still come", "revocation", has(REVOCATION, lease_until=FAR)),
        ),
    ),
    Row(
        "57 stop overdue",
        show_overdue,
        1,
        (
            Refusal("it is closed", "intent", has(INTENT, closed=1)),
            Refusal("it is shown", "intent", has(INTENT, overdue=1)),
            Refusal("it is gone", "intent", gone(INTENT)),
        ),
    ),
    Row("65 webhook accepted", accept, 1, (Refusal("it was accepted before", "delivery", taken(DELIVERY)),)),
    Row("65 a connection's share of it", partial(accept, target=REF), 1),
    Row(
        "66 delivery claimed",
        claim_delivery,
        1,
        (
            Refusal("it is processed", "delivery", has(DELIVERY, state="processed")),
            Refusal("it is dropped", "delivery", has(DELIVERY, state="dropped")),
            Refusal("another attempt has it", "delivery", has(DELIVERY, state="processing", until=FAR)),
            Refusal("it is gone", "delivery", gone(DELIVERY)),
        ),
    ),
    Row("66 delivery claimed after another", partial(claim_delivery, after_another=True), 1),
    Row("66 delivery claimed that waited for its connection", partial(claim_delivery, parked=True), 1),
    Row("67 delivery completed", complete_delivery, 1, CLAIM_IS_LOST),
    Row("68 delivery released", release_delivery, 1, CLAIM_IS_LOST),
    Row(
        "69 delivery sent again",
        send_again,
        1,
        (
            Refusal("it is processed", "delivery", has(DELIVERY, state="processed")),
            Refusal("it waits for its connection", "delivery", has(DELIVERY, state="parked")),
            Refusal("another run has sent it", "delivery", has(DELIVERY, next=FAR)),
        ),
    ),
    Row("69 delivery sent again that somebody has", partial(send_again, claimed=True), 1),
)
