"""
A table and the stores on it, with the steps that bring a connection to where a test begins: each by the store's own
writes, with what was read just before.
"""

import itertools
from dataclasses import replace
from typing import Any

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import (
    STEP_UP,
    Authorization,
    Barrier,
    Connection,
    Exchange,
    ExchangeOutcome,
    Idempotency,
    Owner,
    Start,
    Ticket,
    exchange_ends,
    lost,
    ready,
    started,
    stepping_up,
    stopped,
)
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import ConnectionRef, OwnerRef, digest
from quitclaim.domain.limits import AUTHORIZATION_MS, CONFIRM_MS, EFFECT_MS, FORWARD_MS, SHARDS, TICKET_MS
from quitclaim.domain.revocations import Reach, Revocation, RevocationState, SealedMaterial, deadline_of, family_of
from quitclaim.domain.sources import Source
from quitclaim.domain.stop import Stop, StopIntent, StopReason
from quitclaim.domain.tokens import Grant
from quitclaim.domain.webhooks import Delivery, DeliveryState
from quitclaim.flows.stop import queued_of
from quitclaim.ports import Item, Key, Table
from quitclaim.store.connect import ConnectStore
from quitclaim.store.deliveries import DeliveryStore
from quitclaim.store.keys import due_partition, revocation_key
from quitclaim.store.reads import Reads
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.revocations import RevocationStore
from quitclaim.store.sources import SourceStore
from quitclaim.store.stop import StopStore
from quitclaim.store.tokens import TokenStore
from quitclaim.store.webhooks import WebhookStore
from tests.fakes.clock import MovableClock
from tests.fakes.ids import SeededIds
from tests.fakes.tables import FaultyTable, StandIn

OWNER = OwnerRef("acme-app", "ann")
REF = ConnectionRef("acme-app", "ann", "google")
OTHER = ConnectionRef("acme-app", "ann", "other")
CLIENT = "acme"
ACCOUNT = "account-digest"


class Stage:
    """The stores on one table, and a world that stands still."""

    def __init__(self, stand_in: StandIn, table: Table, seed: str = "op") -> None:
        self.stand_in = stand_in
        self.table = FaultyTable(table)
        self.clock = MovableClock()
        self.ids = SeededIds(seed)
        self.numbers = itertools.count(1)
        self.reads = Reads(self.table)
        self.connects = ConnectStore(self.table, self.clock, self.ids)
        self.tokens = TokenStore(self.table, self.clock, self.ids)
        self.stops = StopStore(self.table, self.clock, self.ids)
        self.revocations = RevocationStore(self.table, self.clock, self.ids)
        self.reconciles = ReconcileStore(self.table, self.clock, self.ids)
        self.webhooks = WebhookStore(self.table, self.clock, self.ids)
        self.deliveries = DeliveryStore(self.table, self.clock, self.ids)
        self.sources = SourceStore(self.table, self.clock, self.ids)

    @property
    def now(self) -> int:
        return self.clock.now()

    # --- looking ---

    def item(self, key: Key) -> Item:
        """One item, which is there."""
        found = self.table.get(key)
        assert found is not None, key
        return found

    def has(self, key: Key) -> bool:
        return self.table.get(key) is not None

    def due(self, kind: str, client: str = "*") -> list[tuple[Key, int]]:
        """Keys and times under a kind of the index `due`."""
        return [
            (Key(item["PK"], item["SK"]), int(item["d2"].split("#")[0]))
            for shard in range(SHARDS)
            for item in self.table.query_index("due", due_partition(kind, client, shard), limit=100).items
        ]

    def attention(self, kind: str) -> list[Item]:
        """Entries of a kind in the index `attention`."""
        return [
            item
            for shard in range(SHARDS)
            for item in self.table.query_index("attention", f"{kind}#{shard}", limit=100).items
        ]

    def roster(self) -> list[str]:
        """States of the tenant's connections at Acme, as the index `roster` lists them."""
        page = self.table.query_index("roster", f"{REF.tenant}#acme", limit=100)
        return [str(item["r2"]).split("#")[0] for item in page.items]

    def told(self) -> list[str]:
        """Kinds of the events that the app is told of; in order of their names, for time stands still."""
        return sorted(event["kind"] for event in self.reads.of_owner(OWNER, "E#"))

    def event(self, kind: str) -> Item:
        """The one event of a kind: its body."""
        (found,) = (event for event in self.reads.of_owner(OWNER, "E#") if event["kind"] == kind)
        body: Item = found["body"]
        return body

    def receipts(self) -> list[Item]:
        return self.reads.receipts(OWNER)

    # --- reading, where the thing is there ---

    def owner(self) -> Owner:
        found = self.reads.owner(OWNER)
        assert found is not None
        return found

    def connection(self, ref: ConnectionRef = REF) -> Connection:
        found = self.reads.connection(ref)
        assert found is not None
        return found

    def barrier(self) -> Barrier:
        _, _, found = self.reads.fence(REF, CLIENT)
        assert found is not None
        return found

    def exchange(self, exchange: str = "x-1", ref: ConnectionRef = REF) -> Exchange:
        found = self.reads.exchange(ref, exchange)
        assert found is not None
        return found

    def grant(self, pair: str = "main") -> Grant:
        found = self.reads.grant(REF, pair)
        assert found is not None
        return found

    def revocation(self, rid: str = "r-1") -> Revocation:
        (found,) = self.revocations.read([rid])
        return found

    def intent(self, generation: int = 1) -> StopIntent:
        return next(each for each in self.reads.intents(REF) if each.generation == generation)

    def account(self) -> Account:
        found = self.reads.account(CLIENT, ACCOUNT)
        assert found is not None
        return found

    # --- connecting ---

    def a_start(self, ref: ConnectionRef = REF, **changes: Any) -> Start:
        """A start of what is there now."""
        owner, before, _ = self.reads.fence(ref, CLIENT)
        after = started(before, ref, "acme", CLIENT, self.now + TICKET_MS)
        ticket = Ticket(ref, after.generation, CLIENT, 0, self.now + TICKET_MS, "https://app.example.com/done")
        return replace(
            Start(owner, before, after, ticket, digest(ticket_text(after)), self.now),
            **changes,
        )

    def started(self, ref: ConnectionRef = REF) -> Connection:
        """The connection waits for its link to be opened."""
        self.connects.start(self.a_start(ref))
        return self.connection(ref)

    def an_authorization(self, connection: Connection) -> Authorization:
        return Authorization(
            ref=connection.ref,
            generation=connection.generation,
            client=CLIENT,
            binding="binding-digest",
            expires=self.now + AUTHORIZATION_MS,
            sealed=b"verifier",
            return_to="https://app.example.com/done",
        )

    def visited(self, ref: ConnectionRef = REF) -> tuple[Authorization, str]:
        """The link was opened: its authorization, and the digest of its state."""
        connection = self.connection(ref)
        state = f"state-{next(self.numbers)}"
        ticket = self.reads.ticket(ticket_text(connection))
        assert ticket is not None
        authorization = self.an_authorization(connection)
        self.connects.visit(ticket, digest(ticket_text(connection)), authorization, state, self.now)
        found = self.reads.authorization(state)
        assert found is not None
        return found, state

    def an_exchange(self, ref: ConnectionRef = REF, number: int = 1) -> Exchange:
        return Exchange(
            ref=ref,
            id=f"x-{number}",
            kind="code",
            client=CLIENT,
            generation=self.connection(ref).generation,
            started=self.now,
            ends=exchange_ends(self.now),
            outcome=ExchangeOutcome.OPEN,
            rid=f"r-{number}",
        )

    def begun(self, ref: ConnectionRef = REF, number: int = 1) -> Exchange:
        """The code is about to be sent."""
        self.started(ref)
        authorization, state = self.visited(ref)
        owner, connection, barrier = self.reads.fence(ref, CLIENT)
        assert owner is not None
        assert connection is not None
        resolved = self.reads.resolved(OWNER, barrier)
        exchange = self.an_exchange(ref, number)
        self.connects.begin(authorization, state, connection, owner, resolved, exchange)
        return self.exchange(exchange.id, ref)

    def a_hold(self, exchange: Exchange, **changes: Any) -> tuple[Exchange, Revocation]:
        """The exchange with its grant in hand, and the queue item that keeps it."""
        held = replace(
            exchange,
            outcome=ExchangeOutcome.HELD,
            hold_ends=self.now + CONFIRM_MS,
            fp=f"fp-{exchange.id}",
            use=b"sealed for use",
            access_until=self.now + 3_600_000,
            scopes=frozenset({"read"}),
        )
        return held, replace(self.a_revocation(held), **changes)

    def a_revocation(self, held: Exchange, **changes: Any) -> Revocation:
        return replace(
            Revocation(
                rid=held.rid,
                state=RevocationState.PENDING,
                ref=held.ref,
                generation=held.generation,
                client=CLIENT,
                provider="acme",
                takes="refresh_token",
                reach=Reach.FAMILY,
                queued=self.now,
                fp=frozenset({held.fp or ""}),
                family=frozenset({family_of(held.id, "main")}),
                material=(SealedMaterial(b"sealed revoke-only", "refresh_token", "main", 1),),
                exchange=held.id,
                tv=1,
                deadline=deadline_of(self.now),
                next=held.hold_ends,
                lease=held.id,
                lease_until=held.hold_ends,
            ),
            **changes,
        )

    def held(self, ref: ConnectionRef = REF, number: int = 1, **changes: Any) -> Exchange:
        """The returned grant waits for its owner."""
        exchange = self.begun(ref, number)
        held, revocation = self.a_hold(exchange, **changes)
        self.connects.hold(exchange, held, revocation, self.now)
        return self.exchange(exchange.id, ref)

    def stepping_up(self, number: int = 2, *, is_held: bool = True) -> Exchange:
        """A wider grant waits for its owner beside the live one."""
        owner, before, barrier = self.reads.fence(REF, CLIENT)
        assert owner is not None
        assert before is not None
        name, generation = f"ticket-{number}", before.generation + 1
        after = stepping_up(before, f"attempt-{number}", None)
        ticket = Ticket(REF, generation, CLIENT, 0, self.now + TICKET_MS, step_up=after.step_up)
        self.connects.start(Start(owner, before, after, ticket, digest(name), self.now))
        connection, found = self.connection(), self.reads.ticket(name)
        assert found is not None
        made = replace(self.an_authorization(connection), generation=generation, step_up=after.step_up)
        self.connects.visit(found, digest(name), made, f"state-of-{name}", self.now)
        authorization = self.reads.authorization(f"state-of-{name}")
        assert authorization is not None
        exchange = replace(self.an_exchange(number=number), kind=STEP_UP, generation=generation)
        resolved = self.reads.resolved(OWNER, barrier)
        self.connects.begin(authorization, f"state-of-{name}", connection, owner, resolved, exchange)
        if not is_held:
            return self.exchange(exchange.id)
        held, revocation = self.a_hold(self.exchange(exchange.id))
        self.connects.hold(self.exchange(exchange.id), held, revocation, self.now)
        return self.exchange(exchange.id)

    def a_grant(self, exchange: Exchange, reach: Reach = Reach.FAMILY, pair: str = "main") -> Grant:
        return Grant(
            ref=exchange.ref,
            pair=pair,
            client=CLIENT,
            generation=exchange.generation,
            tv=1,
            family=family_of(exchange.id, pair),
            use=b"sealed for use",
            revoke=b"sealed revoke-only",
            fp=exchange.fp or "",
            rid=exchange.rid,
            takes="refresh_token",
            reach=reach,
            saved_at=self.now,
            access_until=exchange.access_until,
            account=exchange.account,
        )

    def installed(
        self,
        ref: ConnectionRef = REF,
        number: int = 1,
        *,
        account: str | None = ACCOUNT,
        reach: Reach = Reach.FAMILY,
        pairs: tuple[str, ...] = ("main",),
        names: frozenset[str] = frozenset(),
    ) -> Connection:
        """The connection is ready."""
        exchange = replace(self.held(ref, number), subject=account, account=account, names=names)
        owner, connection, barrier = self.reads.fence(ref, CLIENT)
        assert owner is not None
        assert connection is not None
        assert barrier is not None
        known = None if account is None else self.reads.account(CLIENT, account) or Account()
        grants = tuple(self.a_grant(exchange, reach, pair) for pair in pairs)
        after = ready(connection, exchange, pairs)
        self.connects.install(exchange, connection, after, owner, barrier, grants, known, self.now)
        return self.connection(ref)

    # --- stopping and revoking ---

    def a_stop(self, ref: ConnectionRef = REF, *, loss: bool = False, **changes: Any) -> Stop:
        """A stop of what is there now."""
        connection = self.connection(ref)
        grants = self.reads.grants(ref, connection.pairs)
        revocation = queued_of(grants, connection, self.now, None) if grants else None
        reason = StopReason.GRANT_REJECTED if loss else StopReason.DISCONNECT
        intent = StopIntent(
            ref=ref,
            generation=connection.generation,
            reason=reason,
            token="intent-token",
            client=CLIENT,
            purge="done" if loss else "pending",
            comp_derived=True if loss else None,
            since=self.now,
            next=self.now,
            rids=frozenset({revocation.rid}) if revocation else frozenset(),
        )
        account = self.reads.account(CLIENT, connection.account) if connection.account and grants else None
        kind = EventKind.CONNECTION_NEEDS_RECONNECT if loss else EventKind.CONNECTION_REVOKING
        return replace(
            Stop(
                before=connection,
                after=lost(connection, reason) if loss else stopped(connection, self.now, EFFECT_MS),
                grants=grants,
                revocation=revocation,
                intent=intent,
                account=account,
                held=None,
                event=Event(kind, ref, intent.in_barrier, self.now),
                now=self.now,
                blocks_purge=not loss,
                by_exact_token=loss,
            ),
            **changes,
        )

    def stopped(self, ref: ConnectionRef = REF, **changes: Any) -> Connection:
        """The connection is on its way to revoked."""
        self.stops.stop(self.a_stop(ref, **changes))
        return self.connection(ref)

    def queued(self, *, reach: Reach = Reach.TOKEN, account: str | None = ACCOUNT) -> Revocation:
        """A stopped connection's grant is due for revocation."""
        self.installed(reach=reach, account=account)
        self.stopped()
        return self.revocation()

    def settled(self, state: RevocationState = RevocationState.CONFIRMED) -> Revocation:
        """It was revoked (or became a notice), and its finishing step is due."""
        queued = self.queued()
        if state is RevocationState.UNCONFIRMED:
            self.stand_in.alter(revocation_key(queued.rid), put={"lost": True})
        (claimed,) = self.revocations.claim([queued], self.now)
        assert self.revocations.settle_all([self.revocations.settle(claimed, self.now, state)]) == [True]
        return self.revocation()

    def a_delivery(self, **changes: Any) -> Delivery:
        """A webhook's event that was verified just now."""
        delivery = Delivery(
            CLIENT,
            "event-1",
            "acme",
            DeliveryState.ACCEPTED,
            self.now,
            size=2,
            body=b"sealed",
            next=self.now + FORWARD_MS,
        )
        return replace(delivery, **changes)

    def delivery(self, target: ConnectionRef | None = None) -> Delivery:
        found = self.reads.delivery(CLIENT, "event-1", target)
        assert found is not None
        return found

    def source(self, slug: str = "oura") -> Source:
        found = self.reads.source(REF, slug)
        assert found is not None
        return found

    def accepted(self, **changes: Any) -> Delivery:
        """A delivery that waits for a worker."""
        delivery = self.a_delivery(**changes)
        assert self.webhooks.accept(delivery)
        found = self.reads.delivery(CLIENT, delivery.digest, delivery.target)
        assert found is not None
        return found

    def an_idempotency(self) -> Idempotency:
        return Idempotency(REF.tenant, "key-digest", "request-digest", {"generation": 1}, self.now + 1_000)


def ticket_text(connection: Connection) -> str:
    """The ticket of a connection's generation."""
    return f"ticket of {connection.ref.connection} {connection.generation}"
