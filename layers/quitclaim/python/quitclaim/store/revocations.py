"""
The writes of revocations: rows 28-41 and 59-61 of the table of writes (docs/table.md), in the order of a revocation's
life.
"""

from collections.abc import Callable, Sequence

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import Exchange, ExchangeOutcome
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.limits import BATCH, COMPACT_MS, GUARD_MS, MINUTE, SHARDS
from quitclaim.domain.revocations import Claimed, Revocation, RevocationState, claim_end
from quitclaim.domain.stop import StopIntent
from quitclaim.domain.tokens import MAIN, Grant
from quitclaim.ports import (
    THERE,
    AnyOf,
    Clause,
    Clock,
    Condition,
    Cursor,
    Ids,
    Item,
    Table,
    Update,
    WriteAmbiguousError,
    WriteBusyError,
    WriteRefusedError,
    absent,
    any_of,
    at_most,
    equals,
    more,
    present,
)
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.connect import add_event
from quitclaim.store.items import attributes
from quitclaim.store.keys import (
    ATTENTION,
    DUE,
    KEPT,
    account_key,
    attention_partition,
    barrier_key,
    due,
    due_partition,
    due_upto,
    exchange_key,
    family_marker_key,
    grant_key,
    intent_key,
    marker_key,
    receipt_key,
    revocation_key,
    rid_of,
)
from quitclaim.store.reads import revocation_of
from quitclaim.store.stamps import finish_due, intent_due, notice_attention, receipt_item, revocation_item, revoke_due
from quitclaim.store.tokens import lease_free

type OnFault = Callable[[Exception], None]
"""Told of an update that the table does not take: a fault of ours or of the item, and no outcome."""

PENDING = equals("state", RevocationState.PENDING)


def no_successor_expected(now: int) -> AnyOf:
    """
    No refresh of the stopped grant is open whose lease has ended unseen: such an item is `forget`ten first (row 37).
    """
    return any_of(absent("expected"), more("expected_until", now - GUARD_MS))


def claimable(now: int) -> Condition:
    """Row 28: pending, due, before its deadline, and nobody else's."""
    return (
        PENDING,
        at_most("next", now),
        more("deadline", now),
        lease_free(now),
        no_successor_expected(now),
        absent("renewing"),
    )


def renewal_open(now: int) -> Condition:
    """Row 61: a refresh under a claim whose lease, guard included, ended unseen."""
    return (PENDING, present("renewing"), lease_free(now))


def settleable(lease: str) -> Condition:
    """Row 35: pending, and still mine."""
    return (PENDING, equals("lease", lease))


class RevocationStore:
    """Rows 28-41."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    def due_page(
        self, client: str, shard: int, now: int, limit: int, after: Cursor | None = None
    ) -> tuple[list[str], Cursor | None]:
        """Up to *limit* ids that the index shows as due, earliest first, and where to go on; a hint."""
        page = self._table.query_index(
            "due", due_partition("revoke", client, shard), upto=due_upto(now), limit=limit, after=after
        )
        return [rid_of(item) for item in page.items], page.after

    def read(self, rids: Sequence[str]) -> list[Revocation]:
        """The revocations that are there, consistently."""
        found = self._table.batch_get([revocation_key(rid) for rid in rids]) if rids else []
        return [each for each in map(revocation_of, found) if each is not None]

    def read_each(self, rids: Sequence[str]) -> list[Revocation | Exception]:
        """As `read`; in place of one that does not decode, why: it costs nobody else anything (I-16)."""
        found = self._table.batch_get([revocation_key(rid) for rid in rids]) if rids else []
        return [_decoded(each) for each in found if each is not None]

    # --- claim ---

    def claim(self, revocations: Sequence[Revocation], now: int, on_fault: OnFault | None = None) -> list[Claimed]:
        """
        Row 28 for each: a lease of its own, its own condition; one call. Whoever loses leaves it: another worker has
        it. *on_fault* is told of each that the table does not take; without one it is raised.
        """
        tokens = [self._ids.new_id() for _ in revocations]
        updates = [self._claim(each, token, now) for each, token in zip(revocations, tokens, strict=True)]
        claimed = []
        for each, token, error in zip(revocations, tokens, self._batch(updates), strict=True):
            if error is None or _is_mine(error, "lease", token):
                claimed.append(Claimed(each, token, claim_end(now, each.deadline or now)))
            else:
                _tell(error, on_fault)
        return claimed

    def claim_within_family(self, revocation: Revocation, now: int) -> Claimed:
        """Row 29. As `claim`, and nothing of its own family is live at the connection (custody rule 11)."""
        token = self._ids.new_id()
        commit = self._commit()
        commit.update("revocation", self._claim(revocation, token, now), revocation_of)
        for family in sorted(revocation.family):
            key = grant_key(revocation.ref, family.split("#")[1])
            commit.check(f"grant {family}", key, (any_of(absent("PK"), Clause("family", "<>", family)),))
        commit.run()
        return Claimed(revocation, token, claim_end(now, revocation.deadline or now))

    def claim_beside_live(self, revocation: Revocation, now: int) -> Claimed:
        """
        Row 28 for what an exchange held. As `claim`, and its token is not that of the connection's live grant: a
        step-up is given beside one, and the provider may give one token for both (custody rule 7).
        """
        token = self._ids.new_id()
        commit = self._commit()
        commit.update("revocation", self._claim(revocation, token, now), revocation_of)
        is_another = tuple(any_of(absent("PK"), Clause("fp", "<>", each)) for each in sorted(revocation.fp))
        commit.check("grant", grant_key(revocation.ref, MAIN), is_another)
        commit.run()
        return Claimed(revocation, token, claim_end(now, revocation.deadline or now))

    def claim_account_wide(self, revocation: Revocation, digest: str, account: Account | None, now: int) -> Claimed:
        """
        Row 30. As `claim`, and nothing lives on the account; from here until the lease ends it admits no install begun
        before (custody rule 10).
        """
        token = self._ids.new_id()
        until = claim_end(now, revocation.deadline or now)
        commit = self._commit()
        commit.update("revocation", self._claim(revocation, token, now), revocation_of)
        key = account_key(revocation.client, digest)
        shut = (account or Account()).shut_by(revocation.rid, until)
        if account is None:
            commit.create("account", key, "account", attributes(shut))
        else:
            killed: Item = {"killed_at": shut.killed_at, "killed_by": shut.killed_by}
            killed |= {} if shut.killed_floor is None else {"killed_floor": shut.killed_floor}
            commit.update("account", Update(key, (equals("v", account.v), equals("live", 0)), put=killed))
        commit.run()
        return Claimed(revocation, token, until)

    def record_account(self, revocation: Revocation, digest: str) -> None:
        """
        Row 30, first part: the account of a held or late grant, learned by the sweep before it claims (custody rule
        12).
        """
        commit = self._commit()
        update = Update(
            revocation_key(revocation.rid), (PENDING, absent("account")), put={"account": digest}, remove=("identity",)
        )
        commit.update("revocation", update, revocation_of)
        commit.run()

    def postpone(self, revocation: Revocation, attempts: int, next_at: int, now: int) -> None:
        """Row 30, where the account cannot be read: tried again by the ladder, so that others come to the head."""
        commit = self._commit()
        at = min(next_at, revocation.deadline or next_at)
        put = {"attempts": attempts, "next": next_at, **revoke_due(revocation.rid, revocation.client, at)}
        when = (equals("v", revocation.v), PENDING, lease_free(now))
        commit.update("revocation", Update(revocation_key(revocation.rid), when, put=put), revocation_of)
        commit.run()

    def park(self, revocation: Revocation, account: Account | None, live: Grant | None, now: int) -> None:
        """
        Row 31. Something else lives in its reach: sealed, no due time, no deadline, in nobody's way (custody rule 11).
        """
        ref = revocation.ref
        commit = self._commit()
        commit.update(
            "revocation",
            Update(
                revocation_key(revocation.rid),
                (equals("v", revocation.v), PENDING, lease_free(now)),
                put={"state": RevocationState.PARKED.value},
                remove=("deadline", "next", "lease", "lease_until", "quarantined", *DUE, *ATTENTION),
            ),
            revocation_of,
        )
        marker = {
            "t": ref.tenant,
            "o": ref.owner,
            "c": ref.connection,
            "g": revocation.generation,
            "reach": revocation.reach.value,
        }
        if live is not None:
            commit.check("grant", grant_key(ref, live.pair), (equals("family", live.family),))
            commit.create("marker", family_marker_key(ref, revocation.rid), "marker", marker)
        elif account is not None and revocation.account is not None:
            key = account_key(revocation.client, revocation.account)
            when: Condition = (equals("v", account.v), more("live", 0))
            commit.update("account", Update(key, when, increase={"parked": 1}))
            commit.create("marker", marker_key(revocation.client, revocation.account, revocation.rid), "marker", marker)
        add_receipt(commit, revocation, now, "released")
        add_event(
            commit,
            Event(EventKind.REVOCATION_RELEASED, ref, revocation.rid, now, {"generation": revocation.generation}),
        )
        commit.run()

    # --- settle ---

    def settle(self, claimed: Claimed, now: int, state: RevocationState, *, renewal: str | None = None) -> Update:
        """
        Rows 33 and 34: confirmed, unconfirmed (confirmed, but a successor was lost) or unsupported (there is no call to
        make).

        The provider's word, for this token only; the material is erased, and the finishing step is due. *renewal*: the
        refresh that was open and whose refusal is that word; else none may be open.
        """
        revocation = claimed.revocation
        lost: Condition = (absent("lost"),)
        if state is RevocationState.UNCONFIRMED:
            lost = (any_of(present("lost"), present("renewed")),)
        elif state is RevocationState.UNSUPPORTED:
            lost = ()
        put: Item = {
            "state": state.value,
            "settled_at": now,
            "settled_by": claimed.lease,
            "op": _settles(claimed),
            **finish_due(revocation.rid, now),
        }
        if state.is_notice:
            put |= notice_attention(revocation, state, now)
        return Update(
            revocation_key(revocation.rid),
            (
                *settleable(claimed.lease),
                more("deadline", now),
                absent("expected"),
                absent("renewing") if renewal is None else equals("renewing", renewal),
                *lost,
            ),
            put=put,
            remove=(
                *("material", "identity", "lease", "lease_until", "next", "renewing"),
                *(() if state.is_notice else ATTENTION),  # it may have been quarantined before
            ),
            increase={"v": 1},
        )

    def defer(
        self,
        claimed: Claimed,
        *,
        attempts: int,
        next_at: int,
        excused: bool = False,
        keeps_lease: bool = False,
        withdraws: bool = False,
    ) -> Update:
        """
        Row 35: tried and not confirmed (one attempt more), given back unsent, or its key is away (no attempt more, and
        the claim is *excused*: it says nothing against the item).

        *keeps_lease*: the call may still act, so nobody else claims it before the lease ends (custody rule 12).
        *withdraws*: its refresh gave nothing, and is open no more.
        """
        revocation = claimed.revocation
        return Update(
            revocation_key(revocation.rid),
            settleable(claimed.lease),
            put={
                "attempts": attempts,
                **({"excused": revocation.excused + 1} if excused else {}),
                "next": next_at,
                "op": _settles(claimed),
                **revoke_due(revocation.rid, revocation.client, min(next_at, revocation.deadline or next_at)),
            },
            remove=(() if keeps_lease else ("lease", "lease_until")) + (("renewing",) if withdraws else ()),
            increase={"v": 1},
        )

    # --- renewed in the queue ---

    def record_renewal(self, claimed: Claimed, attempt: str) -> None:
        """Row 59. A refresh of the queued token is on record, under its claim, before it is sent."""
        commit = self._commit()
        update = Update(
            revocation_key(claimed.revocation.rid),
            (*settleable(claimed.lease), absent("renewing"), absent("renewed")),
            put={"renewing": attempt},
        )
        commit.update("revocation", update, revocation_of)
        commit.run()

    def put_back(
        self,
        claimed: Claimed,
        attempt: str,
        successor: Revocation,
        now: int,
        *,
        intent_generation: int | None,
        loses: bool = False,
        alone: bool = False,
    ) -> None:
        """
        Row 60 (class L). What the refresh gave is queued, as an item of its own, and its predecessor waits for it.

        *loses*: the answer was not seen whole. *alone*: after a refusal that showed the predecessor to have moved on;
        it stays as it is, and the successor is queued beside it.
        """
        before = claimed.revocation
        commit = self._commit()
        commit.create("successor", revocation_key(successor.rid), "revocation", revocation_item(successor))
        if before.is_listed:
            owed = Update(
                barrier_key(before.ref.of_owner, before.client), (), include={"owed": frozenset({successor.rid})}
            )
            commit.upsert("barrier", "barrier", owed)
        if not alone:
            next_at = min(now + MINUTE, before.deadline or now)
            commit.update(
                "revocation",
                Update(
                    revocation_key(before.rid),
                    (PENDING, equals("renewing", attempt)),
                    put={
                        "renewed": successor.rid,
                        "next": next_at,
                        **({"lost": True} if loses else {}),
                        **revoke_due(before.rid, before.client, next_at),
                    },
                    remove=("renewing", "lease", "lease_until"),
                ),
                revocation_of,
            )
        if intent_generation is not None:
            rids = frozenset({successor.rid})
            commit.update("intent", Update(intent_key(before.ref, intent_generation), THERE, include={"rids": rids}))
        commit.run()

    def forget_renewal(self, revocation: Revocation, now: int, *, loses: bool) -> None:
        """
        Row 61. The claim under which the token was refreshed ended unseen. *loses*: a successor may be alive, so it is
        never `confirmed` any more.
        """
        commit = self._commit()
        update = Update(
            revocation_key(revocation.rid),
            (*renewal_open(now), equals("renewing", revocation.renewing)),
            put={"lost": True} if loses else {},
            remove=("renewing", "lease", "lease_until"),
        )
        commit.update("revocation", update, revocation_of)
        commit.run()

    def quarantine(self, claimed: Claimed, now: int, next_at: int, *, excused: bool = False) -> Update:
        """
        Row 36: it does not open (*excused*, so that it is tried again), or keeps killing its worker. The material stays
        until the deadline (D-5).
        """
        deferred = self.defer(claimed, attempts=claimed.revocation.attempts, next_at=next_at, excused=excused)
        shown = notice_attention(claimed.revocation, RevocationState.PENDING, now)
        put = {**deferred.put, "quarantined": now, **shown}
        return Update(deferred.key, deferred.when, put=put, remove=deferred.remove, increase=deferred.increase)

    def settle_all(self, updates: Sequence[Update], on_fault: OnFault | None = None) -> list[bool]:
        """
        Send settles, up to 25 a call; per update whether it holds. A lost one is repeated by whoever claims next:
        revoking twice is safe. *on_fault* as for `claim`.
        """
        held = []
        for each, error in zip(updates, self._batch(updates), strict=True):
            held.append(error is None or _is_mine(error, "op", each.put["op"]))
            if error is not None:
                _tell(error, on_fault)
        return held

    def forget_successor(self, revocation: Revocation, now: int) -> None:
        """
        Row 37: the lease of the refresh that was open at the stop ended unseen. Its successor may be alive: never
        `confirmed` any more.
        """
        commit = self._commit()
        when: Condition = (PENDING, present("expected"), at_most("expected_until", now - GUARD_MS))
        update = Update(revocation_key(revocation.rid), when, put={"lost": True}, remove=("expected", "expected_until"))
        commit.update("revocation", update, revocation_of)
        commit.run()

    def expire(self, revocation: Revocation, now: int) -> None:
        """Row 38: the deadline is over, leased or not; the material is erased and the owner is told (I-8)."""
        state = RevocationState.UNREADABLE if revocation.quarantined else RevocationState.EXPIRED
        commit = self._commit()
        commit.update(
            "revocation",
            Update(
                revocation_key(revocation.rid),
                (PENDING, at_most("deadline", now - GUARD_MS)),
                put={
                    "state": state.value,
                    "settled_at": now,
                    **finish_due(revocation.rid, now),
                    **notice_attention(revocation, state, now),
                },
                remove=(
                    *("material", "identity", "lease", "lease_until", "next", "expected", "expected_until"),
                    "renewing",
                ),
            ),
            revocation_of,
        )
        commit.run()

    # --- after it ---

    def finish(self, revocation: Revocation, account: Account | None, now: int, *, has_barrier: bool) -> None:
        """
        Row 39. Barrier, receipt and event follow the settle, once: the condition is that nobody did it before.

        A notice stays in the barrier until it is acknowledged. *has_barrier* is False where the owner has none.
        """
        ref, rid = revocation.ref, revocation.rid
        is_open_notice = revocation.state.is_notice and revocation.acknowledged is None
        commit = self._commit()
        commit.update(
            "revocation",
            Update(
                revocation_key(rid),
                (equals("v", revocation.v), absent("finished")),
                put={"finished": now, **due("compact", (revocation.deadline or revocation.queued) + COMPACT_MS, rid)},
            ),
            revocation_of,
        )
        if has_barrier:
            commit.update(
                "barrier",
                Update(
                    barrier_key(ref.of_owner, revocation.client),
                    THERE,
                    include={"acks": frozenset({f"r:{rid}"})} if is_open_notice else {},
                    exclude={"owed": frozenset({rid})},
                ),
            )
        is_confirmed = revocation.state is RevocationState.CONFIRMED
        lowered = account.lowered_by(rid, revocation.settled_at) if account is not None and is_confirmed else None
        if lowered is not None and account is not None and revocation.account is not None:
            key = account_key(revocation.client, revocation.account)
            when: Condition = (equals("killed_by", rid), equals("killed_at", account.killed_at))
            commit.update("account", Update(key, when, put={"killed_at": lowered}))
        add_receipt(commit, revocation, now, revocation.state.value)
        if is_confirmed or revocation.acknowledged is None:  # nobody is asked for what the owner has said already
            kind = EventKind.REVOCATION_CONFIRMED if is_confirmed else EventKind.REMOVAL_REQUIRED
            body = {"generation": revocation.generation, "outcome": revocation.state.value}
            add_event(commit, Event(kind, ref, rid, now, body))
        commit.run()

    def acknowledge(self, revocation: Revocation, now: int, *, has_barrier: bool) -> None:
        """
        Row 40. The owner's word that the access is gone; an attestation, never the provider's confirmation (F-32).
        """
        commit = self._commit()
        states = any_of(*(equals("state", state) for state in RevocationState if state.is_notice))
        commit.update(
            "revocation",
            Update(
                revocation_key(revocation.rid),
                (states, absent("acknowledged")),
                put={"acknowledged": now},
                remove=ATTENTION,
            ),
            revocation_of,
        )
        if has_barrier:
            commit.update(
                "barrier",
                Update(
                    barrier_key(revocation.ref.of_owner, revocation.client),
                    THERE,
                    exclude={"owed": frozenset({revocation.rid}), "acks": frozenset({f"r:{revocation.rid}"})},
                ),
            )
        add_event(
            commit,
            Event(
                EventKind.REMOVAL_ACKNOWLEDGED,
                revocation.ref,
                revocation.rid,
                now,
                {"generation": revocation.generation},
            ),
        )
        commit.run()

    def acknowledge_exchange(self, exchange: Exchange, now: int) -> None:
        """
        Row 41. Only once the exchange's window is over: it covers tokens issued before it, and none may still come
        (custody rule 2).
        """
        commit = self._commit()
        commit.update(
            "exchange",
            Update(
                exchange_key(exchange.ref, exchange.id),
                (
                    equals("outcome", ExchangeOutcome.UNCONFIRMED),
                    at_most("ends", now - GUARD_MS),
                    absent("acknowledged"),
                ),
                put={"acknowledged": now},
                remove=(*ATTENTION, "t"),
            ),
        )
        key = barrier_key(exchange.ref.of_owner, exchange.client)
        commit.upsert("barrier", "barrier", Update(key, (), exclude={"acks": frozenset({f"x:{exchange.in_barrier}"})}))
        add_event(
            commit,
            Event(EventKind.REMOVAL_ACKNOWLEDGED, exchange.ref, exchange.id, now, {"generation": exchange.generation}),
        )
        commit.run()

    def gauges(self) -> dict[str, int]:
        """
        How much waits for somebody, counted afresh: revocations that expired or are quarantined, all that owners must
        acknowledge, stops that are open for more than a day, and events that nobody had.

        The same few queries of the index whatever is stored, and no item is read; each stops at a thousand a shard.
        """
        expired, notices = self._waiting("expired"), self._waiting("notice") + self._waiting("exchange")
        return {
            "RevocationsExpired": expired,
            "RevocationsInQuarantine": self._waiting("quarantine"),
            "RemovalNotices": expired + notices,
            "StopsOverdue": self._waiting("stop"),
            "DeliveriesUndelivered": self._waiting(KEPT),
        }

    def _waiting(self, kind: str) -> int:
        pages = (
            self._table.query_index("attention", attention_partition(kind, shard), limit=1_000)
            for shard in range(SHARDS)
        )
        return sum(len(page.items) for page in pages)

    def hurry_stop(self, intent: StopIntent, now: int) -> None:
        """After rows 40 and 41: the stop that waited for the acknowledgement is looked at now, not on its ladder."""
        commit = self._commit()
        put = {"next": now, **intent_due(intent, now)}
        update = Update(intent_key(intent.ref, intent.generation), (THERE[0], absent("closed")), put=put)
        commit.update("intent", update)
        commit.run()

    # --- parts ---

    def _claim(self, revocation: Revocation, token: str, now: int) -> Update:
        until = claim_end(now, revocation.deadline or now)
        return Update(
            revocation_key(revocation.rid),
            claimable(now),
            put={"lease": token, "lease_until": until, "op": token},
            increase={"claims": 1, "v": 1},
        )

    def _batch(self, updates: Sequence[Update]) -> list[Exception | None]:
        """One call for every 25: a kick may name more, and the table takes no more at once."""
        parts = [updates[start : start + BATCH] for start in range(0, len(updates), BATCH)]
        return [error for part in parts for error in self._table.batch_update(part)]


def add_receipt(commit: Commit, revocation: Revocation, now: int, outcome: str) -> None:
    """What became of a grant, kept longer than everything else about it."""
    kind = "revocation"
    item = receipt_item(
        kind, revocation.ref.connection, revocation.generation, now, rid=revocation.rid, outcome=outcome
    )
    commit.create("receipt", receipt_key(revocation.ref.of_owner, now, revocation.rid), "receipt", item)


def _decoded(item: Item) -> Revocation | Exception:
    try:
        revocation = revocation_of(item)
    except Exception as fault:  # noqa: BLE001 - whatever a poisoned item makes of it
        return fault
    assert revocation is not None  # noqa: S101 - there is an item
    return revocation


def _tell(error: Exception, on_fault: OnFault | None) -> None:
    """Lost to another worker, busy or unanswered is an outcome; anything else must be seen by somebody."""
    if isinstance(error, WriteRefusedError | WriteBusyError | WriteAmbiguousError):
        return
    if on_fault is None:
        raise error
    on_fault(error)


def _settles(claimed: Claimed) -> str:
    """The operation of a claim's settle. Not the claim's own: that stands on the item when a settle is refused."""
    return f"{claimed.lease}.settles"


def _is_mine(error: Exception, attribute: str, token: str) -> bool:
    return (
        isinstance(error, WriteRefusedError) and bool(error.items[0]) and (error.items[0] or {}).get(attribute) == token
    )
