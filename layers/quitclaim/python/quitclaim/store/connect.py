"""
The writes of connecting: rows 1-15, 62, 63, 70, 71, 78 and 83 of the table of writes (docs/table.md), in the order of a
connection.

Each method commits what was seen → what shall be, or raises `MovedError` naming what did not hold.
"""

from typing import Final

from quitclaim.domain.accounts import Account, Named
from quitclaim.domain.connect import (
    SAME_GRANT,
    STEP_UP,
    Authorization,
    Barrier,
    Connection,
    ConnectionState,
    DirectBegin,
    Exchange,
    ExchangeOutcome,
    Idempotency,
    Owner,
    Resolved,
    Start,
    Ticket,
    failed,
    sent,
)
from quitclaim.domain.errors import MovedError
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.limits import (
    AUTHORIZATION_MS,
    GUARD_MS,
    IDEMPOTENCY_TTL_MS,
    LINK_VISITS,
    TTL_AFTER_MS,
    WRONG_CODES,
)
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.sources import Source, SourceMove, SourceProof, SourceStart, SourceStatus
from quitclaim.domain.tokens import MAIN, Grant
from quitclaim.ports import (
    NEW_ITEM,
    THERE,
    Clause,
    Clock,
    Condition,
    Ids,
    Item,
    Table,
    Update,
    absent,
    any_of,
    at_most,
    equals,
    less,
    more,
    seen,
)
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.items import attributes, back_reference
from quitclaim.store.keys import (
    ATTENTION,
    DUE,
    account_key,
    authorization_key,
    barrier_key,
    connection_key,
    event_key,
    exchange_key,
    grant_key,
    idempotency_key,
    intent_key,
    member_key,
    name_key,
    owner_key,
    revocation_key,
    source_key,
    ticket_key,
)
from quitclaim.store.reads import exchange_of, grant_of
from quitclaim.store.stamps import (
    account_item,
    connection_item,
    event_item,
    exchange_attention,
    exchange_due,
    exchange_item,
    grant_item,
    revocation_item,
    revoke_due,
)

NOT_DELETED: Final[Clause] = absent("deleted_at")


def owner_holds(owner: Owner) -> Condition:
    """The owner is not deleted, and no restore happened since it was read."""
    return (NOT_DELETED, equals("epoch", owner.epoch))


def held_until(now: int) -> Condition:
    """The exchange is held and its hold is not over."""
    return (equals("outcome", ExchangeOutcome.HELD), more("hold_ends", now))


def still_of(exchange: Exchange) -> Condition:
    """The revocation is the exchange's hold, untouched by the sweep."""
    return (equals("state", RevocationState.PENDING), equals("lease", exchange.id))


def add_idempotency(commit: Commit, record: Idempotency | None) -> None:
    """Put the record, in the same commit as what it answers for."""
    if record is not None:
        item: Item = {
            "request": record.request,
            "answer": dict(record.answer),
            "expires": record.expires,
            "ttl": (record.expires + TTL_AFTER_MS) // 1000,
        }
        # Time to live is a broom: a record that counts no longer may still lie there.
        over = record.expires - IDEMPOTENCY_TTL_MS
        key = idempotency_key(record.tenant, record.key_digest)
        commit.create("idempotency", key, "idempotency", item, (any_of(absent("PK"), at_most("expires", over)),))


def add_event(commit: Commit, event: Event) -> None:
    """Put an outbox event, in the same commit as the transition it tells of."""
    commit.create("event", event_key(event), "event", event_item(event))


def add_release(
    commit: Commit, exchange: Exchange, now: int, reason: str, client: str, *, with_revocation: bool = True
) -> None:
    """
    The two writes that end a hold: the exchange turns to clean-up, and its queue item is due now (left out where the
    sweep has it).
    """
    commit.update(
        "exchange",
        Update(
            exchange_key(exchange.ref, exchange.id),
            (equals("outcome", ExchangeOutcome.HELD),),
            put={"outcome": ExchangeOutcome.CLEANUP.value, "reason": reason},
            remove=("use", "others", "id_token", "names", *DUE),
        ),
        exchange_of,
    )
    if with_revocation:
        commit.update(
            "revocation",
            Update(
                revocation_key(exchange.rid),
                still_of(exchange),
                put={"next": now, **revoke_due(exchange.rid, client, now)},
                remove=("lease", "lease_until"),
            ),
        )


def failure_of(exchange: Exchange) -> EventKind:
    """What the app is told when an exchange ends without an install."""
    return EventKind.STEP_UP_FAILED if exchange.kind == STEP_UP else EventKind.CONNECTION_FAILED


class ConnectStore:
    """Rows 1-15, 62, 63, 70, 71 and 78."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    def start(self, start: Start) -> None:
        """
        Row 1. The connection is authorizing in phase link, its ticket exists, and the same key answers the same again.

        A held exchange of the same owner and client, waiting for its owner, ends here and now: its grant is due.
        """
        ref, now = start.after.ref, start.now
        commit = self._commit()
        if start.owner is None:
            commit.create("owner", owner_key(ref.of_owner), "owner", attributes(Owner()))
        else:
            commit.check("owner", owner_key(ref.of_owner), owner_holds(start.owner))
        self._put_connection(commit, start.before, start.after, now)
        commit.create("ticket", ticket_key(start.ticket_digest), "ticket", _ticket_item(start.ticket))
        if start.source is not None:
            put_source(commit, start.source_before, start.source)
        add_idempotency(commit, start.idempotency)
        if start.superseded is not None:
            held = start.superseded
            add_release(commit, held, now, "superseded", start.after.client, with_revocation=start.hold_is_free)
            commit.update(
                "barrier",
                Update(
                    barrier_key(ref.of_owner, start.after.client),
                    (equals("in_flight", held.in_barrier),),
                    remove=("in_flight",),
                    include={"owed": frozenset({held.rid})},
                ),
            )
            other = start.superseded_connection
            if other is not None and other.ref != ref and other.is_authorizing_at(held.generation):
                self._put_connection(commit, other, failed(other, "superseded"), now)
            body = {"reason": "superseded", "generation": held.generation}
            add_event(commit, Event(failure_of(held), held.ref, held.id, now, body))
        commit.run()

    def start_source(self, start: SourceStart, proof: SourceProof | None) -> None:
        """
        Row 62. A link of a source behind an account that is there already: the connection stays as it is, and the
        source is asked for, in one commit with the ticket (D-28, D-29).

        *proof*: what the app saw; the source must be so still, and is left as it is (M-11, M-14).
        """
        ref = start.connection.ref
        commit = self._commit()
        commit.check("owner", owner_key(ref.of_owner), owner_holds(start.owner))
        commit.check("connection", connection_key(ref), ready_at(start.connection.generation))
        if start.after is not None:
            put_source(commit, start.before, start.after)
            add_shut(commit, start.connection, start.after.slug, shuts=True)
            if start.told is not None:
                add_event(commit, start.told)
        elif proof is not None:
            commit.check("source", source_key(ref, proof.slug), _as_proven(proof, start.connection.generation))
        commit.create("ticket", ticket_key(start.ticket_digest), "ticket", _ticket_item(start.ticket))
        add_idempotency(commit, start.idempotency)
        commit.run()

    def fail_link(self, move: SourceMove) -> None:
        """
        Row 83. The app does not admit what was linked behind an account: the source is in error, and the connection as
        it was. Raises `MovedError`: the source, or the connection, has moved on.
        """
        commit = self._commit()
        add_move(commit, move)
        commit.run()

    def return_link(self, authorization: Authorization, state_digest: str, now: int) -> None:
        """
        Row 63. The browser came back from linking a source behind an account that is there already: the state is
        spent. Whether the source is linked is for the broker's events to say; nothing of the account is touched (M-48).
        """
        commit = self._commit()
        commit.update(
            "authorization",
            Update(
                authorization_key(state_digest),
                self._unspent(authorization, now),
                put={"consumed_at": now},
                remove=("sealed",),
            ),
        )
        commit.check("connection", connection_key(authorization.ref), ready_at(authorization.generation))
        commit.run()

    def visit(
        self, ticket: Ticket, ticket_digest: str, authorization: Authorization, state_digest: str, now: int
    ) -> None:
        """Row 2. One more visit of the link, with an authorization of its own."""
        commit = self._commit()
        commit.update(
            "ticket",
            Update(
                ticket_key(ticket_digest), (more("expires", now), less("visits", LINK_VISITS)), increase={"visits": 1}
            ),
        )
        item = (
            attributes(authorization)
            | back_reference(authorization.ref)
            | {"ttl": (authorization.expires + TTL_AFTER_MS) // 1000}
        )
        commit.create("authorization", authorization_key(state_digest), "authorization", item)
        commit.run()

    def discard(
        self, authorization: Authorization, state_digest: str, now: int, *, fails: Connection | None, reason: str
    ) -> None:
        """Row 3. The state is spent without an exchange; *fails* is the connection where the answer was final."""
        commit = self._commit()
        commit.update(
            "authorization",
            Update(
                authorization_key(state_digest),
                self._unspent(authorization, now),
                put={"discarded_at": now},
                remove=("sealed",),
            ),
        )
        if fails is not None:
            self._put_connection(commit, fails, failed(fails, reason), now)
            body = {"reason": reason, "generation": fails.generation}
            add_event(
                commit,
                Event(EventKind.CONNECTION_FAILED, fails.ref, f"{fails.ref.connection}#{fails.generation}", now, body),
            )
        commit.run()

    def begin(
        self,
        authorization: Authorization,
        state_digest: str,
        connection: Connection,
        owner: Owner,
        resolved: Resolved,
        exchange: Exchange,
        revocation: Revocation | None = None,
    ) -> None:
        """
        Row 4. The state is consumed and the exchange recorded; only after it may the code be sent (F-57, I-2). With
        *revocation* nothing is to be sent, for the grant is in hand already: it is held from the start (row 5).

        The barrier is held to the version whose ids were resolved, so nothing can be owed that was not looked at.
        """
        ref, now = connection.ref, exchange.started
        commit = self._commit()
        commit.update(
            "authorization",
            Update(
                authorization_key(state_digest),
                self._unspent(authorization, now),
                put={"consumed_at": now, "exchange": exchange.id},
                remove=("sealed",),
            ),
        )
        self._put_connection(commit, connection, sent(connection, exchange), now)
        commit.check("owner", owner_key(ref.of_owner), owner_holds(owner))
        before = resolved.barrier
        after = Barrier(in_flight=exchange.in_barrier, owed=resolved.still_owed)
        when: Condition = (*seen(before.v if before else None), absent("in_flight"), absent("purges"))
        version = before.v if before else None
        commit.create(
            "barrier", barrier_key(ref.of_owner, exchange.client), "barrier", attributes(after), when, version=version
        )
        commit.create("exchange", exchange_key(ref, exchange.id), "exchange", exchange_item(exchange))
        if revocation is not None:
            commit.create("revocation", revocation_key(revocation.rid), "revocation", revocation_item(revocation))
        commit.run()

    def hold(
        self,
        exchange: Exchange,
        held: Exchange,
        revocation: Revocation,
        now: int,
        *,
        tokens: frozenset[str] = frozenset(),
    ) -> None:
        """
        Row 5 (class L). The returned grant is sealed in the queue, leased to its exchange until `hold_ends`; nothing
        else is touched.

        *tokens*: of a step-up, the fingerprints of all that was returned; none of them may be the live grant's, for
        what is queued is due for revocation one day. Raises `MovedError` when the exchange is over or holds another
        grant: then row 13; where it has seen the *grant*, its token was given again, and it is left out.
        """
        commit = self._commit()
        stored = {name: value for name, value in attributes(held).items() if name in HELD_ATTRIBUTES}
        commit.update(
            "exchange",
            Update(
                exchange_key(exchange.ref, exchange.id),
                (equals("outcome", ExchangeOutcome.OPEN), more("ends", now)),
                put={"outcome": ExchangeOutcome.HELD.value, **stored, **exchange_due(held, held.hold_ends or now)},
                remove=("use",) if exchange.use is not None and held.use is None else (),
            ),
            exchange_of,
        )
        commit.create("revocation", revocation_key(revocation.rid), "revocation", revocation_item(revocation))
        if tokens:
            is_another = tuple(any_of(absent("PK"), Clause("fp", "<>", each)) for each in sorted(tokens))
            commit.check("grant", grant_key(exchange.ref, MAIN), is_another, grant_of)
        try:
            commit.run()
        except MovedError as moved:
            found = moved.seen.get("exchange")
            if isinstance(found, Exchange) and found.outcome is ExchangeOutcome.HELD and found.fp == held.fp:
                return
            raise

    def record_identity(self, exchange: Exchange, learned: Exchange, now: int) -> None:
        """
        Row 6. Whose grant it is, on the exchange and, where the hold does not say it yet, on that, so that nobody needs
        to ask again; and what the account is called as well. An ID token that said it is erased.
        """
        commit = self._commit()
        stored = {
            name: value
            for name, value in attributes(learned).items()
            if name in ("subject", "account", "names", "scopes")
        }
        commit.update(
            "exchange",
            Update(exchange_key(exchange.ref, exchange.id), held_until(now), put=stored, remove=("id_token",)),
            exchange_of,
        )
        if learned.account is not None and exchange.account is None:
            commit.update(
                "revocation",
                Update(
                    revocation_key(exchange.rid),
                    (*still_of(exchange), absent("account")),
                    put={"account": learned.account},
                    remove=("identity",),
                ),
            )
        commit.run()

    def count_wrong_code(self, exchange: Exchange, now: int) -> None:
        """
        Row 7. One more wrong code; the fifth is a release (row 9), not this.

        Nothing else in it would notice that it was applied already, so it is held to not being its own repetition.
        """
        commit = self._commit()
        when = (*held_until(now), less("wrong", WRONG_CODES - 1), Clause("op", "<>", commit.op))
        commit.update(
            "exchange", Update(exchange_key(exchange.ref, exchange.id), when, increase={"wrong": 1}), exchange_of
        )
        commit.run()

    def install(
        self,
        exchange: Exchange,
        connection: Connection,
        after: Connection,
        owner: Owner,
        barrier: Barrier,
        grants: tuple[Grant, ...],
        account: Account | None,
        now: int,
    ) -> None:
        """
        Row 8. The held grant becomes the live one, in the one commit that takes its queue item away (I-3, I-4).

        *barrier* and *account* are as they were resolved; *account* is None only where the provider's account is not
        known. Refused: read again inside `hold_ends`, else release (row 9).
        """
        ref = connection.ref
        commit = self._commit()
        commit.update(
            "exchange",
            Update(
                exchange_key(ref, exchange.id),
                held_until(now),
                put={"outcome": ExchangeOutcome.INSTALLED.value},
                remove=("use", "others", "id_token", "names", *DUE),
            ),
            exchange_of,
        )
        commit.delete("revocation", revocation_key(exchange.rid), still_of(exchange))
        commit.update(
            "barrier",
            Update(
                barrier_key(ref.of_owner, exchange.client),
                (equals("v", barrier.v), equals("in_flight", exchange.in_barrier), absent("purges")),
                remove=("in_flight",),
            ),
        )
        commit.check("owner", owner_key(ref.of_owner), owner_holds(owner))
        self._put_connection(commit, connection, after, now)
        for grant in grants:
            commit.create(f"grant {grant.pair}", grant_key(ref, grant.pair), "grant", grant_item(grant))
        if after.account is not None and account is not None:
            key = account_key(exchange.client, after.account)
            when: Condition = (
                (equals("v", account.v), any_of(absent("killed_at"), less("killed_at", exchange.started)))
                if account.v
                else NEW_ITEM
            )
            item = account_item(account.joined(), exchange.client, after.account, now)
            commit.create("account", key, "account", item, when, version=account.v)
            commit.create(
                "member", member_key(exchange.client, after.account, ref), "member", {"generation": after.generation}
            )
            add_names(commit, exchange, after, now)
        add_event(commit, Event(EventKind.CONNECTION_READY, ref, exchange.id, now, {"generation": after.generation}))
        commit.run()

    def replace_grant(
        self,
        exchange: Exchange,
        connection: Connection,
        after: Connection,
        owner: Owner,
        barrier: Barrier,
        old: Grant,
        grant: Grant,
        queued: Revocation,
        now: int,
    ) -> None:
        """
        Row 70. The wider grant takes the place of the live one, whose revocation is queued, unopened, in the same
        commit (I-1, I-4). *queued* is that of *old*, as a stop would queue it; *old* is held to the version that was
        read.

        Refused: read again inside `hold_ends`, else release (row 9): the old grant stays.
        """
        ref = connection.ref
        commit = self._commit()
        commit.update(
            "exchange",
            Update(
                exchange_key(ref, exchange.id),
                held_until(now),
                put={"outcome": ExchangeOutcome.INSTALLED.value},
                remove=("use", "others", "id_token", "names", *DUE),
            ),
            exchange_of,
        )
        commit.delete("held revocation", revocation_key(exchange.rid), still_of(exchange))
        commit.update(
            "barrier",
            Update(
                barrier_key(ref.of_owner, exchange.client),
                (equals("v", barrier.v), equals("in_flight", exchange.in_barrier), absent("purges")),
                remove=("in_flight",),
                include={"owed": frozenset({queued.rid})},
            ),
        )
        commit.check("owner", owner_key(ref.of_owner), owner_holds(owner))
        self._put_connection(commit, connection, after, now)
        key = grant_key(ref, grant.pair)
        commit.create("grant", key, "grant", grant_item(grant), (equals("v", old.v),), version=old.v)
        commit.create("revocation", revocation_key(queued.rid), "revocation", revocation_item(queued))
        if after.account is not None:
            member = Update(
                member_key(exchange.client, after.account, ref), THERE, put={"generation": after.generation}
            )
            commit.update("member", member)
            add_names(commit, exchange, after, now)
        add_event(commit, Event(EventKind.CONNECTION_READY, ref, exchange.id, now, {"generation": after.generation}))
        commit.run()

    def drop_given_again(self, exchange: Exchange, live: Grant, now: int) -> None:
        """
        Row 71. What a step-up holds is the token of the *live* grant itself: the hold ends, and its queue item goes
        without a revocation, which would end the grant that serves.

        Held to that very token being the live one: nothing leaves the queue that is not kept elsewhere (I-1).
        """
        ref = exchange.ref
        commit = self._commit()
        commit.update(
            "exchange",
            Update(
                exchange_key(ref, exchange.id),
                (equals("outcome", ExchangeOutcome.HELD), equals("fp", live.fp)),
                put={"outcome": ExchangeOutcome.ENDED.value, "reason": SAME_GRANT},
                remove=("use", "others", "id_token", "names", *DUE),
            ),
            exchange_of,
        )
        commit.delete("held revocation", revocation_key(exchange.rid), still_of(exchange))
        commit.check("grant", grant_key(ref, live.pair), (equals("generation", live.generation), equals("fp", live.fp)))
        self._leave_barrier(commit, exchange, include={})
        body = {"reason": SAME_GRANT, "generation": exchange.generation}
        add_event(commit, Event(EventKind.STEP_UP_FAILED, ref, exchange.id, now, body))
        commit.run()

    def release(
        self,
        exchange: Exchange,
        connection: Connection | None,
        now: int,
        reason: str,
        *,
        with_revocation: bool = True,
        lapsed: bool = False,
    ) -> None:
        """
        Rows 9 and 12. The hold ends without an install; its grant is due for revocation now, and the connection fails
        if it still waits.

        *lapsed*: by somebody else, so only once `hold_ends` and a guard are over. *with_revocation* is False where the
        sweep has taken the item.
        """
        commit = self._commit()
        add_release(commit, exchange, now, reason, exchange.client, with_revocation=with_revocation)
        if lapsed:
            commit.require("exchange", at_most("hold_ends", now - GUARD_MS))
        self._leave_barrier(commit, exchange, include={"owed": frozenset({exchange.rid})})
        self._fail(commit, exchange, connection, reason, now)
        commit.run()

    def end(
        self,
        exchange: Exchange,
        connection: Connection | None,
        now: int,
        reason: str,
        *,
        unconfirmed: bool,
        lapsed: bool = False,
    ) -> None:
        """
        Rows 10 and 11. An exchange that returned no grant is over: ended where the provider refused or nothing was
        sent, unconfirmed where nobody knows.

        Unconfirmed is a notice: the owner must acknowledge it before a new grant behind the same barrier.
        """
        outcome = ExchangeOutcome.UNCONFIRMED if unconfirmed else ExchangeOutcome.ENDED
        when: Condition = (equals("outcome", ExchangeOutcome.OPEN),)
        if lapsed:
            when = (*when, at_most("ends", now - GUARD_MS))
        commit = self._commit()
        put: Item = {"outcome": outcome.value, "reason": reason}
        if unconfirmed:
            put |= exchange_attention(exchange, now)
        commit.update(
            "exchange",
            Update(
                exchange_key(exchange.ref, exchange.id),
                when,
                put=put,
                remove=("use", "others", "id_token", "names", *DUE),
            ),
            exchange_of,
        )
        self._leave_barrier(
            commit, exchange, include={"acks": frozenset({f"x:{exchange.in_barrier}"})} if unconfirmed else {}
        )
        self._fail(commit, exchange, connection, reason, now, unconfirmed=unconfirmed)
        commit.run()

    def queue_late_grant(
        self, exchange: Exchange | None, client: str, revocation: Revocation, *, intent_generation: int | None
    ) -> None:
        """
        Row 13 (class L). A grant that came after its exchange was over, or beside another grant of it, is due for
        revocation now.

        *exchange* is as read, or None: then only queue item and barrier are written, which nothing can refuse.
        """
        ref = revocation.ref
        commit = self._commit()
        commit.create("revocation", revocation_key(revocation.rid), "revocation", revocation_item(revocation))
        names = frozenset({f"x:{exchange.in_barrier}"}) if exchange is not None else frozenset()
        closes = exchange is not None and exchange.outcome not in (ExchangeOutcome.HELD, ExchangeOutcome.INSTALLED)
        in_flight = exchange is not None and exchange.outcome is ExchangeOutcome.OPEN
        # By it another grant of the same exchange knows that its id is taken (D-30).
        fp: Item = {"fp": min(revocation.fp)} if exchange is not None and exchange.fp is None and revocation.fp else {}
        barrier = Update(
            barrier_key(ref.of_owner, client),
            (equals("in_flight", exchange.in_barrier),) if in_flight and exchange is not None else (),
            remove=("in_flight",) if in_flight else (),
            include={"owed": frozenset({revocation.rid})},
            exclude={"acks": names} if closes and not in_flight else {},
        )
        if in_flight:
            commit.update("barrier", barrier)
        else:
            commit.upsert("barrier", "barrier", barrier)
        if exchange is not None and closes:
            commit.update(
                "exchange",
                Update(
                    exchange_key(ref, exchange.id),
                    (equals("outcome", exchange.outcome),),
                    put={"outcome": ExchangeOutcome.CLEANUP.value} | fp,
                    remove=("use", "others", "names", *DUE, *ATTENTION, "t"),
                ),
                exchange_of,
            )
        if intent_generation is not None:
            commit.update(
                "intent",
                Update(intent_key(ref, intent_generation), THERE, include={"rids": frozenset({revocation.rid})}),
            )
        commit.run()

    def leave_behind(self, connection: Connection, exchange: Exchange, now: int) -> None:
        """
        Row 15, for a connection whose exchange is over without having taken it along: a late grant (row 13) may be
        refused by nobody, so it leaves the connection alone, and this follows.
        """
        commit = self._commit()
        self._put_connection(commit, connection, failed(connection, "late_grant"), now)
        body = {"reason": "late_grant", "generation": exchange.generation}
        add_event(commit, Event(EventKind.CONNECTION_FAILED, connection.ref, exchange.id, now, body))
        commit.run()

    def begin_directly(self, decision: DirectBegin) -> None:
        """
        Row 14. A grant that the app holds is about to be refreshed by us: its token is sealed on the exchange, and in
        no queue.

        As row 4 in what it is held to; there is no state to consume. Whatever ends this exchange without a grant drops
        the sealed token (rows 10 and 11).
        """
        exchange = decision.exchange
        ref, now, before = exchange.ref, exchange.started, decision.resolved.barrier
        commit = self._commit()
        if decision.owner is None:
            commit.create("owner", owner_key(ref.of_owner), "owner", attributes(Owner()))
        else:
            commit.check("owner", owner_key(ref.of_owner), owner_holds(decision.owner))
        self._put_connection(commit, decision.before, decision.after, now)
        after = Barrier(in_flight=exchange.in_barrier, owed=decision.resolved.still_owed)
        version = before.v if before else None
        when: Condition = (*seen(version), absent("in_flight"), absent("purges"))
        commit.create(
            "barrier", barrier_key(ref.of_owner, exchange.client), "barrier", attributes(after), when, version=version
        )
        commit.create("exchange", exchange_key(ref, exchange.id), "exchange", exchange_item(exchange))
        add_idempotency(commit, decision.idempotency)
        commit.run()

    def lapse_link(self, connection: Connection, now: int) -> None:
        """Row 15. A link that nobody finished: the connection fails once no authorization of it can still come back."""
        commit = self._commit()
        self._put_connection(commit, connection, failed(connection, "link_expired"), now)
        commit.require("connection", equals("state", ConnectionState.AUTHORIZING), at_most("lapse_at", now - GUARD_MS))
        transition = f"{connection.ref.connection}#{connection.generation}"
        body = {"reason": "link_expired", "generation": connection.generation}
        add_event(commit, Event(EventKind.CONNECTION_FAILED, connection.ref, transition, now, body))
        commit.run()

    # --- parts ---

    def _unspent(self, authorization: Authorization, now: int) -> Condition:
        return (
            absent("consumed_at"),
            absent("discarded_at"),
            more("expires", now),
            equals("binding", authorization.binding),
            equals("client", authorization.client),
        )

    def _put_connection(self, commit: Commit, before: Connection | None, after: Connection, now: int) -> None:
        version = before.v if before else None
        name = "other connection" if commit.has("connection") else "connection"
        commit.create(
            name, connection_key(after.ref), "connection", connection_item(after, now), seen(version), version=version
        )

    def _leave_barrier(self, commit: Commit, exchange: Exchange, include: dict[str, frozenset[str]]) -> None:
        commit.update(
            "barrier",
            Update(
                barrier_key(exchange.ref.of_owner, exchange.client),
                (equals("in_flight", exchange.in_barrier),),
                remove=("in_flight",),
                include=include,
            ),
        )

    def _fail(
        self,
        commit: Commit,
        exchange: Exchange,
        connection: Connection | None,
        reason: str,
        now: int,
        *,
        unconfirmed: bool = False,
    ) -> None:
        if connection is not None and connection.is_authorizing_at(exchange.generation):
            self._put_connection(commit, connection, failed(connection, reason), now)
        kind = EventKind.EXCHANGE_UNCONFIRMED if unconfirmed else failure_of(exchange)
        add_event(
            commit, Event(kind, exchange.ref, exchange.id, now, {"reason": reason, "generation": exchange.generation})
        )


def add_names(commit: Commit, exchange: Exchange, after: Connection, now: int) -> None:
    """
    Row 78, a part of rows 8 and 70: by each further name of its account (`ACCOUNT_NAMES` at most) the grant is found
    from the commit on that makes it live, and never before. It gives no right: who reads it looks at the connection.
    """
    if after.account is None:
        return
    named = Named(after.ref, exchange.id, after.generation, after.account, now)
    item = attributes(named, without=frozenset({"exchange"}))
    for name in sorted(exchange.names):
        commit.create("name", name_key(exchange.client, name, after.ref, exchange.id), "name", item)


def ready_at(generation: int) -> Condition:
    """The connection lives, and it is the life that was seen."""
    return (equals("state", ConnectionState.READY), equals("generation", generation))


def add_move(commit: Commit, move: SourceMove) -> None:
    """What becomes of a source, held to its owner and to the life of its connection, which stays as it is."""
    ref = move.connection.ref
    commit.check("owner", owner_key(ref.of_owner), owner_holds(move.owner))
    commit.check("connection", connection_key(ref), ready_at(move.connection.generation))
    put_source(commit, move.before, move.after)
    if move.shuts is not None:
        add_shut(commit, move.connection, move.after.slug, shuts=move.shuts)
    if move.told is not None:
        add_event(commit, move.told)


def put_source(commit: Commit, before: Source | None, after: Source) -> None:
    """The source, new or in the place of what was read."""
    version = before.v if before else None
    item = attributes(after, without=frozenset({"slug"}))
    commit.create("source", source_key(after.ref, after.slug), "source", item, seen(version), version=version)


def add_shut(commit: Commit, connection: Connection, slug: str, *, shuts: bool) -> None:
    """
    Note beside the external account whether this connection takes events of the source: what is public reads there
    whether a provider is to send one again (M-74). The note goes with the member.
    """
    if connection.account is None:
        return
    key = member_key(connection.client, connection.account, connection.ref)
    named = {"shut": frozenset({slug})}
    when: Condition = (equals("generation", connection.generation),)
    commit.update("member", Update(key, when, include=named if shuts else {}, exclude={} if shuts else named))


def _as_proven(proof: SourceProof, generation: int) -> Condition:
    """The source is what the app saw: untouched, without an error, disconnected, or connected in an earlier life."""
    return (
        equals("last_seen", proof.last_seen),
        absent("error"),
        any_of(equals("status", SourceStatus.DISCONNECTED), less("generation", generation)),
    )


HELD_ATTRIBUTES: Final = frozenset(
    {
        *("hold_ends", "fp", "use", "others", "id_token", "access_until", "refresh_until"),
        *("subject", "account", "names", "scopes", "shared_copy"),
    }
)


def _ticket_item(ticket: Ticket) -> Item:
    ttl = (ticket.expires + AUTHORIZATION_MS + TTL_AFTER_MS) // 1000
    return attributes(ticket) | back_reference(ticket.ref) | {"ttl": ttl}
