"""
The flows in the world of a test: the real store on moto, the real vault under a KMS in memory, the real OAuth client
before an authorization server with a ledger, and time that a test moves.

Each function has its own vault with the key purposes that the wiring gives it: a flow that asks for more fails here.
"""

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from quitclaim.domain.connect import Connection, Exchange
from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.limits import FORWARD_MS
from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import Delivery, DeliveryState, Prepared, Trust
from quitclaim.flows import status as status_flow
from quitclaim.flows.connect.browser import Callback, CallbackOutcome, Visit
from quitclaim.flows.connect.callback import complete_callback
from quitclaim.flows.connect.confirm import confirm
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.connect.link import open_link
from quitclaim.flows.connect.start import Started, StartRequest, start
from quitclaim.flows.deliveries import Delivered, Delivering, deliver
from quitclaim.flows.events import Published, Publishing, publish
from quitclaim.flows.imports import Imported, ImportRequest, import_grant
from quitclaim.flows.reconcile import Reconciled, Reconciling, reconcile
from quitclaim.flows.revocations import Revoking, Swept, acknowledge, revoke, sweep
from quitclaim.flows.stop import Stopping, disconnect
from quitclaim.flows.tokens import AccessToken, HandingOut, hand_out, replay
from quitclaim.ports import Key
from quitclaim.runtime.wiring import PURPOSES
from quitclaim.security.keys import KeyRing
from quitclaim.security.vault import RingVault
from quitclaim.store.connect import ConnectStore
from quitclaim.store.deliveries import DeliveryStore
from quitclaim.store.events import EventStore
from quitclaim.store.reads import Reads
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.revocations import RevocationStore
from quitclaim.store.ring import RingTable
from quitclaim.store.sources import SourceStore
from quitclaim.store.stop import StopStore
from quitclaim.store.tokens import TokenStore
from quitclaim.store.webhooks import WebhookStore
from tests.fakes.bus import RecordingBus
from tests.fakes.calls import CallsInTurn
from tests.fakes.clock import Budget, MovableClock
from tests.fakes.config import BASE_URL, MemoryClients, spec_with
from tests.fakes.ids import SeededIds
from tests.fakes.invocations import RecordingForward, RecordingHooks, RecordingKick, RecordingReplay
from tests.fakes.provider import AcmeServer
from tests.fakes.tables import FaultyTable, QuickTable, StandIn
from tests.security.rings import ARN, FakeKms

OWNER = OwnerRef("acme-app", "ann")
GOOGLE = ConnectionRef("acme-app", "ann", "google")
OTHER = ConnectionRef("acme-app", "ann", "other")
CALLBACK_MS = 28_000
TOKEN_MS = 23_000
SWEEP_MS = 110_000
RECONCILE_MS = 54_000
DELIVER_MS = 48_000


class World:
    """One stack of our own, and one provider."""

    def __init__(self, stand_in: StandIn, confirmation: Literal["owner", "none"] = "none", **facts: object) -> None:
        self.stand_in = stand_in
        self.clock = MovableClock()
        self.ids = SeededIds()
        self.kms = FakeKms()
        self.plain_table = QuickTable(stand_in.client, stand_in.name)
        self.table = FaultyTable(self.plain_table)
        self.server = AcmeServer(spec_with(**facts))
        self.clients = MemoryClients(self.server, clock=self.clock)
        self.clients.add("acme", confirmation=confirmation)
        self.kick = RecordingKick()
        self.replay = RecordingReplay()
        self.replay.carry_out = self.replayed
        self.bus = RecordingBus()
        self.hooks = RecordingHooks()
        self.hooks_failed: list[str] = []
        self.names_left_off: list[tuple[str, int]] = []
        self.forward = RecordingForward()
        self.faults: list[tuple[str, Exception]] = []
        self.reads = Reads(self.table)
        self._vaults: dict[str, RingVault] = {}

    def cleaned_up_in_vain(self, kind: str, fault: Exception) -> None:
        """A flow tells of a clean-up that failed."""
        self.faults.append((kind, fault))

    # --- what the functions are made of ---

    def vault(self, function: str) -> RingVault:
        """The function's own: the ring lies in the table, and its reads are not counted."""
        if function not in self._vaults:
            ring = RingTable(self.plain_table, self.clock, SeededIds(f"ring-{function}"))
            self._vaults[function] = RingVault(KeyRing(ring, self.kms, ARN, PURPOSES[function]), self.clock)
        return self._vaults[function]

    def connecting(self, function: Literal["app_api", "connect", "access_token"]) -> Connecting:
        """What the API and the public pages work with."""
        return Connecting(
            self.reads,
            ConnectStore(self.table, self.clock, self.ids),
            RevocationStore(self.table, self.clock, self.ids),
            self.clients,
            self.vault(function),
            self.clock,
            self.ids,
            self.kick,
            self.cleaned_up_in_vain,
            hooks=self.hooks if function == "connect" else None,
            on_hook=lambda kind, answer: self.hooks_failed.append(answer.outcome.value),
            on_names=lambda client, count: self.names_left_off.append((client, count)),
        )

    @cached_property
    def handing_out(self) -> HandingOut:
        """What the access token function works with."""
        return HandingOut(
            self.reads,
            TokenStore(self.table, self.clock, self.ids),
            StopStore(self.table, self.clock, self.ids),
            self.clients,
            self.vault("access_token"),
            self.clock,
            self.ids,
            self.kick,
            self.cleaned_up_in_vain,
        )

    @cached_property
    def stopping(self) -> Stopping:
        """What a stop works with: no key, no provider."""
        return Stopping(self.reads, StopStore(self.table, self.clock, self.ids), self.clock, self.ids, self.kick)

    @cached_property
    def revoking(self) -> Revoking:
        """What the sweep works with."""
        return Revoking(
            self.reads,
            RevocationStore(self.table, self.clock, self.ids),
            self.clients,
            self.vault("revoke_sweep"),
            self.clock,
            CallsInTurn(),
            self.ids,
            on_fault=lambda kind, fault: self.faults.append((kind, fault)),
        )

    @cached_property
    def publishing(self) -> Publishing:
        """What the outbox is published with: no key, no provider."""
        events = EventStore(self.table, self.ids)
        return Publishing(events, self.bus, self.clock, on_fault=lambda kind, fault: self.faults.append((kind, fault)))

    @cached_property
    def reconciling(self) -> Reconciling:
        """What reconciliation works with: no key."""
        return Reconciling(
            reads=self.reads,
            store=ReconcileStore(self.table, self.clock, self.ids),
            connects=ConnectStore(self.table, self.clock, self.ids),
            tokens=TokenStore(self.table, self.clock, self.ids),
            revocations=RevocationStore(self.table, self.clock, self.ids),
            stopping=self.stopping,
            publishing=self.publishing,
            hooks=self.hooks,
            clients=self.clients,
            clock=self.clock,
            kick=self.kick,
            replay=self.replay,
            webhooks=WebhookStore(self.table, self.clock, self.ids),
            forward=self.forward,
            on_fault=lambda kind, fault: self.faults.append((kind, fault)),
            on_hook=lambda kind, answer: self.hooks_failed.append(answer.outcome.value),
        )

    @cached_property
    def delivering(self) -> Delivering:
        """What handling an event works with."""
        return Delivering(
            self.reads,
            WebhookStore(self.table, self.clock, self.ids),
            DeliveryStore(self.table, self.clock, self.ids),
            SourceStore(self.table, self.clock, self.ids),
            TokenStore(self.table, self.clock, self.ids),
            self.stopping,
            self.clients,
            self.vault("deliver"),
            self.clock,
            self.replay,
            self.hooks,
            on_fault=lambda kind, fault: self.faults.append((kind, fault)),
            on_hook=lambda kind, answer: self.hooks_failed.append(answer.outcome.value),
        )

    # --- what the app asks ---

    def start(self, ref: ConnectionRef = GOOGLE, **asked: Any) -> Started:
        """Begin a connection (`again=True`: a reconnect)."""
        request = StartRequest(ref, asked.pop("client", "acme"), asked.pop("return_to", None), **asked)
        return start(request, self.connecting("app_api"))

    def confirm(self, code: Secret | None, ref: ConnectionRef = GOOGLE, generation: int | None = None) -> Connection:
        """The owner brings back the code."""
        if generation is None:
            generation = self.connection(ref).generation
        return confirm(ref, generation, code or Secret("00000-00000"), self.connecting("app_api"))

    def token(
        self, ref: ConnectionRef = GOOGLE, *, min_ttl_ms: int = 0, budget_ms: int = TOKEN_MS, pair: str = "main"
    ) -> AccessToken:
        """An access token."""
        return hand_out(ref, pair, min_ttl_ms, Budget(budget_ms), self.handing_out)

    def imports(
        self, token: Secret, ref: ConnectionRef = GOOGLE, *, budget_ms: int = TOKEN_MS, **asked: Any
    ) -> Imported:
        """The app gives a grant into custody."""
        request = ImportRequest(ref, asked.pop("client", "acme"), token, **asked)
        return import_grant(request, Budget(budget_ms), self.connecting("access_token"))

    def replayed(self, ref: ConnectionRef, pair: str) -> None:
        """What the access token function does when reconciliation asks it to: its errors end in its log."""
        with suppress(QuitclaimError):
            replay(ref, pair, Budget(TOKEN_MS), self.handing_out)

    def disconnect(
        self, ref: ConnectionRef = GOOGLE, generation: int | None = None, key: str | None = None
    ) -> Connection:
        """Stop the connection, at its current generation if none is said."""
        return disconnect(
            ref, self.connection(ref).generation if generation is None else generation, self.stopping, key
        )

    def acknowledge(self, ref: ConnectionRef = GOOGLE) -> int:
        """The owner says that the access is gone."""
        return acknowledge(
            ref, reads=self.reads, store=RevocationStore(self.table, self.clock, self.ids), clock=self.clock
        )

    def status(self) -> status_flow.OwnerStatus:
        """What the app can see."""
        return status_flow.status(OWNER, reads=self.reads, clients=self.clients, clock=self.clock)

    def notice(self, ref: ConnectionRef = GOOGLE) -> str:
        """The level of the connection's notice."""
        found = [each.level.label for each in self.status().notices if each.connection_id == ref.connection]
        return found[0] if found else "not_needed"

    # --- the browser ---

    def visit(self, started: Started) -> Visit:
        """Open the connect link."""
        assert started.ticket is not None
        return open_link(started.ticket, BASE_URL, self.connecting("connect"))

    def approved(self, visit: Visit, account: str = "alice", **changes: Any) -> Callback:
        """The user agrees at the provider: what the browser brings back."""
        state, code = self.server.approves(visit.url, account)
        cookies = {visit.cookie: visit.binding.reveal()}
        return replace(Callback("acme", state, code, None, (), cookies), **changes)

    def come_back(self, callback: Callback, budget_ms: int = CALLBACK_MS) -> CallbackOutcome:
        """The browser is at our callback."""
        return complete_callback(callback, BASE_URL, Budget(budget_ms), self.connecting("connect"))

    def callback(self, ref: ConnectionRef = GOOGLE, account: str = "alice", **asked: Any) -> Callback:
        """Start, open the link and agree."""
        return self.approved(self.visit(self.start(ref, **asked)), account)

    def connect(self, ref: ConnectionRef = GOOGLE, account: str = "alice", **asked: Any) -> Connection:
        """The whole way to ready."""
        outcome = self.come_back(self.callback(ref, account, **asked))
        if outcome.confirm_code is not None:
            self.confirm(outcome.confirm_code, ref)
        return self.connection(ref)

    # --- the provider's events ---

    def accept(self, account: str = "alice", name: str = "event-1", **event: Any) -> str:
        """An event of an account was verified and accepted; its digest."""
        plain = {"trust": Trust.SIGNED, "sha256": "0" * 64, "size": 2, "kind": "thing.made"} | event
        prepared = Prepared("acme", "acme", received_at=self.clock.now(), accounts=(account,), **plain)
        body = self.vault("deliver").seal_delivery("acme", name, prepared, b"{}")
        state, received = DeliveryState.ACCEPTED, self.clock.now()
        delivery = Delivery("acme", name, "acme", state, received, 2, body=body, next=received + FORWARD_MS)
        assert self.delivering.webhooks.accept(delivery)
        return name

    def deliver(self, name: str = "event-1", budget_ms: int = DELIVER_MS) -> Delivered:
        """One attempt to handle it."""
        return deliver("acme", name, Budget(budget_ms), self.delivering)

    def delivery(self, name: str = "event-1", ref: ConnectionRef | None = None) -> Delivery:
        """As it is stored; with *ref*, that connection's share."""
        found = self.reads.delivery("acme", name, ref)
        assert found is not None
        return found

    # --- the schedules ---

    def sweep(self, budget_ms: int = SWEEP_MS) -> Swept:
        """One scheduled run of the sweep."""
        return sweep(sorted(self.clients.names()), Budget(budget_ms), self.revoking)

    def revoke(self, *rids: str, budget_ms: int = SWEEP_MS) -> Swept:
        """What a kick makes the sweep do."""
        return revoke(rids, Budget(budget_ms), self.revoking)

    def reconcile(self) -> Reconciled:
        """One scheduled run of reconciliation, in which nothing failed."""
        run = reconcile(Budget(RECONCILE_MS), self.reconciling)
        assert self.faults == []
        return run

    def outbox(self) -> list[Key]:
        """Where the events lie, in order."""
        return [Key(item["PK"], item["SK"]) for item in sorted(self.items("event"), key=lambda each: each["SK"])]

    def publish(self, *keys: Key, budget_ms: int = RECONCILE_MS) -> Published:
        """What the stream tells of: all events, if none is named."""
        return publish(list(keys) or self.outbox(), Budget(budget_ms), self.publishing)

    def minutes_pass(self, minutes: int = 1) -> None:
        """Both schedules run after every minute."""
        for _ in range(minutes):
            self.clock.move(minutes=1)
            self.sweep()
            self.reconcile()

    # --- what a test looks at ---

    def connection(self, ref: ConnectionRef = GOOGLE) -> Connection:
        """As it is stored."""
        found = self.reads.connection(ref)
        assert found is not None
        return found

    def exchange(self, ref: ConnectionRef = GOOGLE) -> Exchange:
        """The connection's newest exchange."""
        return max(self.reads.exchanges(ref), key=lambda each: each.started)

    def items(self, ty: str) -> list[dict[str, Any]]:
        """Every item of a type, its attributes without their wire types."""
        return [
            {name: next(iter(value.values())) for name, value in item.items()}
            for item in self.stand_in.everything().values()
            if item["ty"]["S"] == ty
        ]

    def events(self, kind: str | None = None) -> list[str]:
        """Kinds of the events that the app is told of, in order."""
        told = sorted(self.items("event"), key=lambda each: each["SK"])
        return [each["kind"] for each in told if kind in (None, each["kind"])]

    def unaccounted(self) -> list[str]:
        """
        Refresh tokens that the provider would still accept and that are neither the live grant of a connection nor
        queued: lost, unless a notice names them (I-1).
        """
        kept = {each["fp"] for each in self.items("grant")}
        for each in self.items("revocation"):
            if each["state"] in ("pending", "parked"):
                kept.update(each["fp"])
        vault = self.vault("revoke_sweep")
        return [text for text in self.server.live("refresh_token") if vault.fingerprint(Secret(text)) not in kept]

    def has_notice(self) -> bool:
        """Whether somebody is told, now or once a lease is over, that access may exist which we cannot end."""
        return (
            any(each["outcome"] in ("open", "unconfirmed") for each in self.items("exchange"))
            or any("attempts" in each or "stray" in each for each in self.items("grant"))
            or any(
                each["state"] in ("unconfirmed", "expired", "unreadable", "unsupported")
                or {"expected", "lost", "renewing"} & set(each)
                for each in self.items("revocation")
            )
        )
