"""
The composition root: the only place where clients are built. One function per Lambda function; each gets the key
purposes it may use and no other.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config

from quitclaim.domain.hooks import HookAnswer, HookKind
from quitclaim.domain.webhooks import Event
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.deliveries import Delivering
from quitclaim.flows.events import Publishing
from quitclaim.flows.maintain import Maintaining
from quitclaim.flows.operator import Operating
from quitclaim.flows.reconcile import Reconciling
from quitclaim.flows.revocations import IN_FLIGHT, Revoking
from quitclaim.flows.security_events import HearingOf
from quitclaim.flows.stop import Stopping
from quitclaim.flows.tokens import EARLY_REFRESH, HandingOut
from quitclaim.flows.webhooks import TakingIn
from quitclaim.ports import AppHooks, Calls
from quitclaim.providers.spec import COMPILED, Catalogue
from quitclaim.runtime.bus import Bus
from quitclaim.runtime.config import (
    ConfiguredAddresses,
    ConfiguredClients,
    ConfiguredTransmitters,
    LazyHooks,
    ParameterStore,
)
from quitclaim.runtime.invoke import AccessTokenReplay, AppFunction, SweepKick
from quitclaim.runtime.queue import DeliveryQueue
from quitclaim.runtime.settings import (
    AccessTokenSettings,
    AppApiSettings,
    ConnectSettings,
    DeliverSettings,
    MaintainSettings,
    PublishSettings,
    ReconcileSettings,
    RevokeSweepSettings,
    Settings,
    SettingsError,
    WebhookSettings,
    read,
)
from quitclaim.runtime.telemetry import Telemetry
from quitclaim.runtime.world import RandomIds, SystemClock, real_now
from quitclaim.security.keys import KeyRing
from quitclaim.security.kms import KmsKeyWrapper
from quitclaim.security.vault import RingVault
from quitclaim.store.connect import ConnectStore
from quitclaim.store.deliveries import DeliveryStore
from quitclaim.store.events import EventStore
from quitclaim.store.maintain import MaintainStore
from quitclaim.store.operator import OperatorStore
from quitclaim.store.pace import ReportBreaker
from quitclaim.store.reads import Reads
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.revocations import RevocationStore
from quitclaim.store.ring import RingTable
from quitclaim.store.sources import SourceStore
from quitclaim.store.stop import StopStore
from quitclaim.store.table import DynamoTable
from quitclaim.store.tokens import TokenStore
from quitclaim.store.webhooks import WebhookStore

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient

    from quitclaim.providers.calls import CallsInFlight
    from quitclaim.providers.client import ProviderHttp

QUICK: Final = Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard", "total_max_attempts": 2})
"""
Attempts x (connect + read) <= 4 s: a write that is not answered by then is decided again, not waited for.
"""

IN_A_HURRY: Final = QUICK.merge(Config(parameter_validation=False))
"""
Of a function whose every write is built by code and waited for by a provider: botocore does not look through a request
that DynamoDB judges anyway. A quarter of the time that a put computes.
"""

PURPOSES: Final[Mapping[str, frozenset[str]]] = {
    "app_api": frozenset({"confirm", "index"}),
    "access_token": frozenset({"use", "revoke", "index"}),
    "connect": frozenset({"authorization", "use", "revoke", "confirm", "index", "inbox"}),
    "revoke_sweep": frozenset({"revoke", "index"}),
    "publish": frozenset(),
    "webhook": frozenset({"inbox", "index"}),
    "deliver": frozenset({"inbox", "index"}),
    "reconcile": frozenset(),
    "maintain": frozenset(),
}
"""
Which function may use which key purpose; docs/threat-model.md says why, template.yaml holds the roles to it, a test
holds the three together.
"""


@dataclass(frozen=True)
class Parts[S: Settings]:
    """What every function is made of."""

    settings: S
    purposes: frozenset[str]
    telemetry: Telemetry
    towards_table: Config = QUICK

    @cached_property
    def clock(self) -> SystemClock:
        """Time; movable on the local stack only."""
        if not self.settings.clock_file:
            return SystemClock()
        self._refuse_unless_local("QUITCLAIM_CLOCK_FILE")
        return SystemClock(Path(self.settings.clock_file))

    @cached_property
    def ids(self) -> RandomIds:
        """Chance."""
        return RandomIds()

    @cached_property
    def table(self) -> DynamoTable:
        """The table."""
        return DynamoTable(boto3.client("dynamodb", config=self.towards_table), self.settings.table)

    @cached_property
    def reads(self) -> Reads:
        """Typed reads of it."""
        return Reads(self.table)

    @cached_property
    def config(self) -> ParameterStore:
        """What the app team set up."""
        return ParameterStore(
            self.settings.config_path,
            boto3.client("ssm", config=QUICK),
            self._secrets_manager,
            real_now,
            self.tell_settings,
        )

    @cached_property
    def http(self) -> "ProviderHttp":
        """Towards providers."""
        from quitclaim.providers.client import ProviderHttp  # httpx is paid for by who talks to a provider
        from quitclaim.providers.refusals import Refusals

        refusals = Refusals(self.tell_refused, lambda: self.clock.now() / 1000)
        return ProviderHttp(now_s=lambda: real_now() / 1000, new_id=self.ids.new_id, refusals=refusals)

    @cached_property
    def catalogue(self) -> Catalogue:
        """What is known of providers."""
        dirs = self.settings.catalogue_dirs
        if dirs:
            self._refuse_unless_local("QUITCLAIM_CATALOGUE")
        return Catalogue((*dirs, COMPILED))

    @cached_property
    def clients(self) -> ConfiguredClients:
        """The app's OAuth clients."""
        return ConfiguredClients(self.config, self.catalogue, lambda: self.http)

    @cached_property
    def vault(self) -> RingVault:
        """Sealing, for this function's purposes."""
        wrapper = KmsKeyWrapper(boto3.client("kms", config=QUICK), self.settings.ring_key)
        ring = RingTable(self.table, self.clock, self.ids)
        return RingVault(KeyRing(ring, wrapper, self.settings.ring_key, self.purposes), self.clock)

    @cached_property
    def connects(self) -> ConnectStore:
        """Writes of connecting."""
        return ConnectStore(self.table, self.clock, self.ids)

    @cached_property
    def tokens(self) -> TokenStore:
        """Writes of refreshing."""
        return TokenStore(self.table, self.clock, self.ids)

    @cached_property
    def stops(self) -> StopStore:
        """Writes of stopping."""
        return StopStore(self.table, self.clock, self.ids)

    @cached_property
    def revocations(self) -> RevocationStore:
        """Writes of revoking."""
        return RevocationStore(self.table, self.clock, self.ids)

    def kick(self, function: str) -> SweepKick:
        """Asks the sweep to look now."""
        return SweepKick(function, lambda: self.lambda_, self.telemetry)

    @cached_property
    def lambda_(self) -> "LambdaClient":
        """For kicks and replays: both are asynchronous, and nobody waits for what comes of them."""
        return boto3.client("lambda", config=QUICK)

    @cached_property
    def sqs(self) -> "SQSClient":
        """Made when there is a message to send or to put back."""
        return boto3.client("sqs", config=QUICK)

    def queue(self, url: str) -> DeliveryQueue:
        """The queue of deliveries."""
        return DeliveryQueue(url, lambda: self.sqs, self.telemetry)

    @cached_property
    def webhooks(self) -> WebhookStore:
        """Writes of deliveries."""
        return WebhookStore(self.table, self.clock, self.ids)

    def replay(self, function: str) -> AccessTokenReplay:
        """Has a refresh sent again, by the one function that sends any."""
        return AccessTokenReplay(function, lambda: self.lambda_, self.telemetry)

    @cached_property
    def events_(self) -> "EventBridgeClient":
        """Made when there is something to publish."""
        return boto3.client("events", config=QUICK)

    def publishing(self, bus: str) -> Publishing:
        """The outbox and the bus that it goes to."""
        events = EventStore(self.table, self.ids)
        return Publishing(events, Bus(bus, lambda: self.events_, self.telemetry), self.clock, self.tell_fault)

    def tell_hook(self, kind: HookKind, answer: HookAnswer) -> None:
        """Of a hook that did not do what it was asked for: an alarm watches the count."""
        self.telemetry.warn("hook failed", kind=kind.value, outcome=answer.outcome.value, reason=answer.reason)
        self.telemetry.count("HooksFailed")

    def tell_names(self, client: str, count: int) -> None:
        """Of further names of an account that are too many for one grant: no event is found by them. Never which."""
        self.telemetry.warn("names left off", client=client, count=count)

    @cached_property
    def hooks(self) -> "LazyHooks":
        """What the app is asked; httpx is paid for when it is."""
        return LazyHooks(self.config, self._host_app)

    def _host_app(self) -> AppHooks:
        from quitclaim.hostapp import HostApp
        from quitclaim.providers.transport import send, sync_http

        def client(timeout_ms: int) -> "LambdaClient":
            waits = Config(connect_timeout=1, read_timeout=timeout_ms / 1000, retries={"total_max_attempts": 1})
            return boto3.client("lambda", config=waits)

        http = sync_http()
        return HostApp(
            lambda: self.config.current().hooks,
            self.config.secret,
            lambda request, timeout_ms: send(http, request, timeout_ms),
            AppFunction(cache(client), self.telemetry),
            real_now,
            allow_loopback=lambda: self.config.current().is_local,
        )

    def tell_fault(self, kind: str, fault: Exception) -> None:
        """Of an item that failed while the others go on."""
        self.telemetry.fault("item failed", fault, kind=kind)

    def tell_settings(self, client: str, fault: str) -> None:
        """Of a setting that does not hold, or names a secret that is not there; whatever else is set up goes on."""
        self.telemetry.count("SettingsFaults")
        self.telemetry.warn("client parameter does not hold", client=client, reason=fault)

    def tell_clean_up(self, kind: str, fault: Exception) -> None:
        """Of a clean-up that failed: what it was to end ends by itself, later. An early refresh is no clean-up."""
        self.tell_fault(kind, fault)
        if kind != EARLY_REFRESH:
            self.telemetry.count("CleanUpsFailed")

    def tell_refused(self, client: str, reason: str) -> None:
        """Of a client that its provider refuses: an alarm watches the count."""
        self.telemetry.warn("client refused by its provider", client=client, reason=reason)
        self.telemetry.count("ClientRefused")

    def tell_burst(self, client: str) -> None:
        """Of a report that marked nothing, because its client has so many of them: an alarm watches the count."""
        self.telemetry.warn("burst of reports", client=client)
        self.telemetry.count("ReportsIgnored")

    def _secrets_manager(self) -> "SecretsManagerClient":
        return boto3.client("secretsmanager", config=QUICK)

    def _refuse_unless_local(self, what: str) -> None:
        if not self.config.current().is_local:
            raise SettingsError([f"{what} is for the local stack: it is refused unless the public address is loopback"])


def _parts[S: Settings](kind: type[S], function: str, towards_table: Config = QUICK) -> Parts[S]:
    return Parts(read(kind, os.environ), PURPOSES[function], Telemetry(), towards_table)


@dataclass(frozen=True)
class AppApi:
    """The world of `app_api`."""

    parts: Parts[AppApiSettings]
    connecting: Connecting
    stopping: Stopping
    operating: Operating
    breaker: ReportBreaker


def app_api() -> AppApi:
    """Build it. Raises `SettingsError`."""
    parts = _parts(AppApiSettings, "app_api")
    kick = parts.kick(parts.settings.sweep_function)
    stopping = Stopping(parts.reads, parts.stops, parts.clock, parts.ids, kick)
    operators = OperatorStore(parts.table, parts.clock, parts.ids)
    operating = Operating(
        parts.reads,
        operators,
        parts.revocations,
        parts.clock,
        parts.ids,
        kick,
        DeliveryStore(parts.table, parts.clock, parts.ids),
    )
    breaker = ReportBreaker(parts.table, parts.clock, parts.ids, parts.tell_burst)
    return AppApi(parts, _connecting(parts, kick), stopping, operating, breaker)


@dataclass(frozen=True)
class Connect:
    """The world of `connect`."""

    parts: Parts[ConnectSettings]
    connecting: Connecting
    hearing: HearingOf


def connect() -> Connect:
    """Build it. Raises `SettingsError`."""
    parts = _parts(ConnectSettings, "connect")
    transmitters = ConfiguredTransmitters(parts.config, lambda: parts.http, real_now)
    webhooks = WebhookStore(parts.table, parts.clock, parts.ids)
    forward = parts.queue(parts.settings.delivery_queue)
    hearing = HearingOf(webhooks, transmitters, parts.clients, parts.vault, parts.clock, forward)
    connecting = _connecting(parts, parts.kick(parts.settings.sweep_function))
    connecting = replace(connecting, hooks=parts.hooks, on_hook=parts.tell_hook)
    return Connect(parts, connecting, hearing)


def _connecting[S: Settings](parts: Parts[S], kick: SweepKick) -> Connecting:
    return Connecting(
        parts.reads,
        parts.connects,
        parts.revocations,
        parts.clients,
        parts.vault,
        parts.clock,
        parts.ids,
        kick,
        on_fault=parts.tell_clean_up,
        on_names=parts.tell_names,
    )


@dataclass(frozen=True)
class AccessTokens:
    """The world of `access_token`."""

    parts: Parts[AccessTokenSettings]
    handing_out: HandingOut
    importing: Connecting


def access_token() -> AccessTokens:
    """Build it. Raises `SettingsError`."""
    parts = _parts(AccessTokenSettings, "access_token")
    kick = parts.kick(parts.settings.sweep_function)
    handing_out = HandingOut(
        parts.reads,
        parts.tokens,
        parts.stops,
        parts.clients,
        parts.vault,
        parts.clock,
        parts.ids,
        kick,
        on_fault=parts.tell_clean_up,
    )
    return AccessTokens(parts, handing_out, _connecting(parts, kick))


@dataclass(frozen=True)
class RevokeSweep:
    """The world of `revoke_sweep`."""

    parts: Parts[RevokeSweepSettings]
    reconciling: ReconcileStore

    def calls(self) -> "CallsInFlight":
        """What runs the calls of one invocation beside each other."""
        from quitclaim.providers.calls import CallsInFlight  # and asyncio by who has many of them in flight

        return CallsInFlight(self.parts.http, IN_FLIGHT, self.parts.tell_fault)

    def revoking(self, calls: Calls, first_shard: int = 0) -> Revoking:
        """For one invocation."""
        parts = self.parts
        return Revoking(
            parts.reads,
            parts.revocations,
            parts.clients,
            parts.vault,
            parts.clock,
            calls,
            parts.ids,
            on_fault=parts.tell_fault,
            first_shard=first_shard,
        )


def revoke_sweep() -> RevokeSweep:
    """Build it. Raises `SettingsError`."""
    parts = _parts(RevokeSweepSettings, "revoke_sweep")
    return RevokeSweep(parts, ReconcileStore(parts.table, parts.clock, parts.ids))


@dataclass(frozen=True)
class Reconcile:
    """The world of `reconcile`."""

    parts: Parts[ReconcileSettings]
    reconciling: Reconciling


def reconcile() -> Reconcile:
    """Build it. Raises `SettingsError`."""
    parts = _parts(ReconcileSettings, "reconcile")
    kick = parts.kick(parts.settings.sweep_function)
    reconciling = Reconciling(
        reads=parts.reads,
        store=ReconcileStore(parts.table, parts.clock, parts.ids),
        connects=parts.connects,
        tokens=parts.tokens,
        revocations=parts.revocations,
        stopping=Stopping(parts.reads, parts.stops, parts.clock, parts.ids, kick),
        publishing=parts.publishing(parts.settings.event_bus),
        hooks=parts.hooks,
        clients=parts.clients,
        clock=parts.clock,
        kick=kick,
        replay=parts.replay(parts.settings.access_token_function),
        webhooks=parts.webhooks,
        forward=parts.queue(parts.settings.delivery_queue),
        on_fault=parts.tell_fault,
        on_hook=parts.tell_hook,
    )
    return Reconcile(parts, reconciling)


@dataclass(frozen=True)
class Publish:
    """The world of `publish`."""

    parts: Parts[PublishSettings]
    publishing: Publishing


def publish() -> Publish:
    """Build it. Raises `SettingsError`."""
    parts = _parts(PublishSettings, "publish")
    return Publish(parts, parts.publishing(parts.settings.event_bus))


@dataclass(frozen=True)
class Webhook:
    """The world of `webhook`."""

    parts: Parts[WebhookSettings]
    taking_in: TakingIn


def webhook(on_event: Callable[[Event, bool], None]) -> Webhook:
    """Build it. Raises `SettingsError`."""
    parts = _parts(WebhookSettings, "webhook", IN_A_HURRY)
    taking_in = TakingIn(
        reads=parts.reads,
        store=parts.webhooks,
        addresses=ConfiguredAddresses(parts.config, parts.catalogue, lambda: parts.http),
        vault=parts.vault,
        forward=parts.queue(parts.settings.delivery_queue),
        clock=parts.clock,
        on_event=on_event,
    )
    return Webhook(parts, taking_in)


@dataclass(frozen=True)
class Deliver:
    """The world of `deliver`."""

    parts: Parts[DeliverSettings]
    delivering: Delivering
    queue: DeliveryQueue


def deliver() -> Deliver:
    """Build it. Raises `SettingsError`."""
    parts = _parts(DeliverSettings, "deliver")
    kick = parts.kick(parts.settings.sweep_function)
    delivering = Delivering(
        reads=parts.reads,
        webhooks=parts.webhooks,
        store=DeliveryStore(parts.table, parts.clock, parts.ids),
        sources=SourceStore(parts.table, parts.clock, parts.ids),
        tokens=parts.tokens,
        stopping=Stopping(parts.reads, parts.stops, parts.clock, parts.ids, kick),
        clients=parts.clients,
        vault=parts.vault,
        clock=parts.clock,
        replay=parts.replay(parts.settings.access_token_function),
        hooks=parts.hooks,
        on_fault=parts.tell_fault,
        on_hook=parts.tell_hook,
    )
    return Deliver(parts, delivering, parts.queue(parts.settings.delivery_queue))


@dataclass(frozen=True)
class Maintain:
    """The world of `maintain`."""

    parts: Parts[MaintainSettings]
    maintaining: Maintaining


def maintain() -> Maintain:
    """Build it. Raises `SettingsError`."""
    parts = _parts(MaintainSettings, "maintain")
    maintaining = Maintaining(
        reads=parts.reads,
        store=MaintainStore(parts.table, parts.clock, parts.ids),
        tokens=parts.tokens,
        ring=RingTable(parts.table, parts.clock, parts.ids),
        keys=KmsKeyWrapper(boto3.client("kms", config=QUICK), parts.settings.ring_key),
        whole=parts.table,
        replay=parts.replay(parts.settings.access_token_function),
        clock=parts.clock,
        on_fault=parts.tell_fault,
    )
    return Maintain(parts, maintaining)
