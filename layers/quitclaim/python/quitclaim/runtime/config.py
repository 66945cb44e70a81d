"""
What the app team set up in Parameter Store: the public address, the API's id, and the clients; and the clients'
secrets.

Read with one call and kept at most five minutes, so that a new client or a rotated secret needs no deployment (S-28);
longer only while nobody can read it.
"""

import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import batched
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from quitclaim.domain.clients import ClientFaultsError, ProviderClient, WebhookSettings, read_client
from quitclaim.domain.errors import (
    CallbackUrlRequiredError,
    ClientConfigError,
    KeyUnavailableError,
    NotFoundError,
    ProviderNotRegisteredError,
    StoreError,
    WebhooksNotSupportedError,
)
from quitclaim.domain.hooks import Hook, HookAnswer, HookCall, HookFaultsError, HookKind, read_hook
from quitclaim.domain.limits import HOOK_CALL_MS, IDENTITY_CALL_MS, MINUTE, SECOND
from quitclaim.domain.return_to import LOOPBACK
from quitclaim.domain.secret import Secret
from quitclaim.domain.security_events import (
    SecurityEvents,
    SetRefused,
    Transmitter,
    TransmitterFaultsError,
    read_transmitter,
)
from quitclaim.domain.webhooks import WebhookKeys
from quitclaim.ports import AppHooks, Client, WebhookAddress
from quitclaim.providers.addresses import fault_of_url
from quitclaim.providers.signatures import as_bytes
from quitclaim.providers.spec import Catalogue
from quitclaim.providers.webhooks import ProviderHook, WebhookSpec

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

    from quitclaim.providers.client import ProviderHttp
    from quitclaim.providers.id_token import KeySource

SSM: Final = "ssm:"
PARAMETERS: Final = 10
"""That Parameter Store gives in one call."""
KEPT_MS: Final = 5 * MINUTE
OUTAGE_MS: Final = 24 * 60 * MINUTE
"""So long after it was read last a secret serves through an outage of where it is kept."""
UNKNOWN_MS: Final = 2 * SECOND
"""So often an event for a client that nobody knows has the settings read again: anybody may send one."""
PUBLISHED_KEYS_MS: Final = 3 * SECOND
"""A provider that signs events with published keys is waited for so long, once an hour."""
LOOK_AGAIN_MS: Final = 30 * SECOND
"""After a look that failed: nobody should wait for a service that is away at every call."""
THROTTLED: Final = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"})


def is_outage(fault: ClientError | BotoCoreError) -> bool:
    """Whether the service did not answer; else it did, and what was asked for is not there or not ours to read."""
    if isinstance(fault, BotoCoreError):
        return True
    status = fault.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or fault.response.get("Error", {}).get("Code") in THROTTLED


@dataclass(frozen=True)
class Missed:
    """Why a secret could not be read, and when it is looked at again."""

    fault: ClientConfigError | KeyUnavailableError
    look_at: int


@dataclass(frozen=True)
class Opened:
    """A secret, when it was read, and when it is looked at again."""

    secret: Secret
    read_at: int
    look_at: int


@dataclass(frozen=True)
class StackConfig:
    """What one read of the configuration path said."""

    base_url: str
    api_id: str
    clients: dict[str, ProviderClient]
    faulty: frozenset[str]
    read_at: int
    transmitters: Mapping[str, Transmitter] = field(default_factory=dict)
    hooks: Mapping[HookKind, Hook | None] = field(default_factory=dict)
    """Of those that are set; None: its parameter does not hold, so it is asked for in vain and never left out."""

    @property
    def address(self) -> str:
        """The public address. Raises `CallbackUrlRequiredError` where none is set (M-3)."""
        if not self.base_url:
            raise CallbackUrlRequiredError
        return self.base_url

    @property
    def is_local(self) -> bool:
        """Whether the stack is reached on loopback only; what exists for tests is refused otherwise."""
        host = urlsplit(self.base_url).hostname or ""
        return (f"[{host}]" if ":" in host else host) in LOOPBACK


class ParameterStore:
    """The configuration path and the clients' secrets. *ages* is the real clock, never the movable one."""

    def __init__(
        self,
        path: str,
        ssm: "SSMClient",
        secrets: "Callable[[], SecretsManagerClient]",
        ages: Callable[[], int],
        on_fault: Callable[[str, str], None] = lambda client, fault: None,
    ) -> None:
        self._path = path.rstrip("/")
        self._ssm = ssm
        self._secrets = secrets
        self._ages = ages
        self._on_fault = on_fault
        self._config: StackConfig | None = None
        self._look_at = 0
        self._opened: dict[str, Opened] = {}
        self._missed: dict[str, Missed] = {}

    def current(self, max_age_ms: int = KEPT_MS) -> StackConfig:
        """
        The configuration, at most five minutes old, or as it was read last where it cannot be read now. Raises
        `StoreError` where it never was.
        """
        now = self._ages()
        if self._config is None or (now - self._config.read_at >= max_age_ms and now >= self._look_at):
            try:
                self._config = self._read(now)
            except (ClientError, BotoCoreError) as fault:
                if self._config is None:
                    raise StoreError("The configuration could not be read.") from fault
                self._look_at = now + LOOK_AGAIN_MS
        return self._config

    def secret(self, ref: str) -> Secret:
        """
        The secret at `ssm:<name>` or `secretsmanager:<id>`, at most five minutes old; through an outage of where it is
        kept, up to a day.

        Raises `ClientConfigError` where there is none, and `KeyUnavailableError`, which passes, where nobody can say.
        """
        now, kept = self._ages(), self._opened.get(ref)
        if kept is not None and now < kept.look_at:
            return kept.secret
        try:
            self._opened[ref] = Opened(self._open(ref), now, now + KEPT_MS)
        except (ClientError, BotoCoreError) as fault:
            if not is_outage(fault):
                self._opened.pop(ref, None)
                raise ClientConfigError(reason="the client's secret cannot be read") from fault
            if kept is None or now - kept.read_at >= OUTAGE_MS:
                raise KeyUnavailableError("The client's secret is not available now.") from fault
            self._opened[ref] = replace(kept, look_at=now + LOOK_AGAIN_MS)
        return self._opened[ref].secret

    def secrets(
        self, client: str, places: Mapping[str, str]
    ) -> dict[str, Secret | ClientConfigError | KeyUnavailableError]:
        """
        Each of the secrets of *client* by where it is kept, or why it is not to be had; *places* says what each is for.

        Those of Parameter Store are read ten at once. What could not be read is told of, and looked at again after half
        a minute, or two seconds where nobody could say: no stranger's request has it looked for each time.
        """
        now = self._ages()
        asked = [ref for ref in places if not self._is_known(ref, now)]
        self._open_many([ref for ref in asked if ref.startswith(SSM)], now)
        for ref in asked:
            if self._is_known(ref, now):
                continue
            try:
                self.secret(ref)
            except ClientConfigError as fault:
                self._missed[ref] = Missed(fault, now + LOOK_AGAIN_MS)
            except KeyUnavailableError as fault:
                kind = ref.partition(":")[0]
                for other in asked:  # nor would it answer about the others
                    if other.startswith(f"{kind}:") and other not in self._opened:
                        self._missed[other] = Missed(fault, now + UNKNOWN_MS)
            else:
                self._missed.pop(ref, None)
        for ref in asked:
            if ref in self._missed and isinstance(self._missed[ref].fault, ClientConfigError):
                self._on_fault(client, f"{places[ref]}: its secret cannot be read")
        return {ref: self._missed[ref].fault if ref in self._missed else self._opened[ref].secret for ref in places}

    def _is_known(self, ref: str, now: int) -> bool:
        known = self._missed.get(ref) or self._opened.get(ref)
        return known is not None and now < known.look_at

    def _open_many(self, refs: list[str], now: int) -> None:
        """Keep those that are there; what is not, or not ours to read, is left to who asks for each."""
        for some in batched(refs, PARAMETERS, strict=False) if len(refs) > 1 else ():
            try:
                names = [ref.removeprefix(SSM) for ref in some]
                found = self._ssm.get_parameters(Names=names, WithDecryption=True)["Parameters"]
            except (ClientError, BotoCoreError) as fault:
                for ref in refs:  # those that are kept serve through an outage, and are not asked for one by one
                    kept = self._opened.get(ref)
                    if is_outage(fault) and kept is not None and now - kept.read_at < OUTAGE_MS:
                        self._opened[ref] = replace(kept, look_at=now + LOOK_AGAIN_MS)
                return
            for parameter in found:
                text = parameter.get("Value", "").strip()
                if text:
                    self._opened[SSM + parameter["Name"]] = Opened(Secret(text), now, now + KEPT_MS)
                    self._missed.pop(SSM + parameter["Name"], None)

    def _open(self, ref: str) -> Secret:
        kind, _, name = ref.partition(":")
        if kind == "ssm":
            text = self._ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"].get("Value", "")
        else:
            text = self._secrets().get_secret_value(SecretId=name).get("SecretString", "")
        if not text.strip():
            raise ClientConfigError(reason="the client's secret is blank")
        return Secret(text.strip())

    def _read(self, now: int) -> StackConfig:
        values: dict[str, str] = {}
        pages = self._ssm.get_paginator("get_parameters_by_path").paginate(Path=self._path, Recursive=True)
        for page in pages:
            for parameter in page["Parameters"]:
                values[parameter["Name"].removeprefix(self._path + "/")] = parameter["Value"]
        clients: dict[str, ProviderClient] = {}
        faulty = set()
        for name in (key.removeprefix("clients/") for key in values if key.startswith("clients/")):
            try:
                clients[name] = read_client(name, _object(values[f"clients/{name}"]))
            except (ClientFaultsError, ValueError) as fault:
                faulty.add(name)
                self._on_fault(name, str(fault))
        base_url = values.get("base-url", "").rstrip("/")
        hooks, transmitters = dict(self._hooks(values)), dict(self._transmitters(values))
        api_id = values.get("api-id", "")
        return StackConfig(base_url, api_id, clients, frozenset(faulty), now, transmitters, hooks)

    def _transmitters(self, values: Mapping[str, str]) -> Iterator[tuple[str, Transmitter]]:
        for key in values:
            name = key.removeprefix("events/")
            if name != key:
                try:
                    yield name, read_transmitter(name, _object(values[key]))
                except (TransmitterFaultsError, ValueError) as fault:
                    self._on_fault(key, str(fault))

    def _hooks(self, values: Mapping[str, str]) -> Iterator[tuple[HookKind, Hook | None]]:
        for kind in HookKind:
            text = values.get(f"hooks/{kind.value}")
            if text is None:
                continue
            try:
                yield kind, read_hook(kind.value, _object(text))
            except (HookFaultsError, ValueError) as fault:
                self._on_fault(f"hooks/{kind.value}", str(fault))
                yield kind, None


def _object(text: str) -> dict[str, object]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


class ConfiguredClients:
    """`ports.Clients` from the configuration and the catalogue."""

    def __init__(self, config: ParameterStore, catalogue: Catalogue, http: "Callable[[], ProviderHttp]") -> None:
        self._config = config
        self._catalogue = catalogue
        self._http = http

    def named(self, name: str) -> Client:
        """Raises `ProviderNotRegisteredError`, `ClientConfigError` where its parameter does not hold."""
        config = self._config.current()
        settings = config.clients.get(name)
        if settings is None:  # perhaps it was put there a moment ago: nobody should wait five minutes for it
            config = self._config.current(max_age_ms=0)
            settings = config.clients.get(name)
        if settings is None:
            if name in config.faulty:
                raise ClientConfigError(client=name, reason="the client's parameter does not hold")
            raise ProviderNotRegisteredError
        from quitclaim.providers.client import OAuthClient  # httpx is paid for by who talks to a provider

        spec = self._catalogue.get(settings.provider)
        return OAuthClient(settings, spec, self._config.secret, self._http())

    def names(self) -> frozenset[str]:
        """All that are configured now, read afresh: a client that was just put must not be missed by a sweep."""
        config = self._config.current(max_age_ms=0)
        return frozenset(config.clients) | config.faulty

    def sound(self) -> frozenset[str]:
        """Those whose parameter holds."""
        return frozenset(self._config.current().clients)

    def state_parameter(self, provider: str) -> str:
        """In which parameter of the callback the state comes back: a broker's own `state` may say something else."""
        try:
            broker = self._catalogue.get(provider).broker
        except ProviderNotRegisteredError:
            return "state"
        return "state" if broker is None else broker.state_param

    def provider_name(self, provider: str) -> str | None:
        """What people call the provider; None where the catalogue has no such entry."""
        try:
            return self._catalogue.get(provider).name
        except ProviderNotRegisteredError:
            return None

    def manual_page(self, provider: str) -> str | None:
        """Where the provider lets a user remove the access by hand."""
        try:
            return self._catalogue.get(provider).facts.manual_page
        except ProviderNotRegisteredError:
            return None


class LazyHooks:
    """`ports.AppHooks`, made when the first hook is asked: a stack without one pays for nothing."""

    def __init__(self, config: ParameterStore, make: Callable[[], AppHooks]) -> None:
        self._config = config
        self._make = make
        self._made: AppHooks | None = None

    def has(self, kind: HookKind) -> bool:
        """As it is set now."""
        return kind in self._config.current().hooks

    def ask(self, call: HookCall, timeout_ms: int = HOOK_CALL_MS) -> HookAnswer:
        """See `ports.AppHooks`."""
        if self._made is None:
            self._made = self._make()
        return self._made.ask(call, timeout_ms)


class ConfiguredAddresses:
    """
    `ports.WebhookAddresses` from the configuration and the catalogue.

    Neither httpx nor a library for public keys is imported here: most events are verified with an HMAC, on a cold start
    that has two seconds.
    """

    def __init__(self, config: ParameterStore, catalogue: Catalogue, http: "Callable[[], ProviderHttp]") -> None:
        self._config = config
        self._catalogue = catalogue
        self._http = http

    def at(self, client: str, endpoint: str | None) -> WebhookAddress:
        """What is there; see the port for what is raised."""
        config = self._config.current()
        if client not in config.clients:  # perhaps it was put there a moment ago: an event waits for nobody
            config = self._config.current(max_age_ms=UNKNOWN_MS)
        settings = config.clients.get(client)
        if settings is None:
            if client in config.faulty:
                raise ClientConfigError(client=client, reason="the client's parameter does not hold")
            raise WebhooksNotSupportedError
        spec = self._spec(settings.provider)
        told = self._settings_at(settings, endpoint, spec)
        return ProviderHook(
            settings.provider,
            client,
            endpoint,
            spec,
            self._opened(told, settings, spec),
            client_id=settings.client_id,
            published=self._published,
        )

    def _spec(self, provider: str) -> WebhookSpec:
        try:
            spec = self._catalogue.get(provider).webhook
        except ProviderNotRegisteredError:
            spec = None
        if spec is None:
            raise WebhooksNotSupportedError
        return spec

    def _settings_at(self, client: ProviderClient, endpoint: str | None, spec: WebhookSpec) -> WebhookSettings:
        """Where the address is the secret, no other is told apart from one that does not exist."""
        if client.webhook is None:
            raise WebhooksNotSupportedError
        if spec.signature.scheme == "path" or (
            client.webhook.path_ref is not None and endpoint not in client.endpoints
        ):
            given = as_bytes(endpoint or "")
            own: dict[str, WebhookSettings] = {"webhook": client.webhook}
            if spec.signature.scheme == "path":
                own |= {f"webhook.endpoints.{name}": each for name, each in client.endpoints.items()}
            return self._at_secret_address(client.name, given, own)
        if endpoint is None:
            return client.webhook
        if endpoint not in client.endpoints:
            raise WebhooksNotSupportedError
        return client.endpoints[endpoint]

    def _at_secret_address(self, client: str, given: bytes, own: Mapping[str, WebhookSettings]) -> WebhookSettings:
        """
        The settings whose secret is the address. One that cannot be read shuts no other; where none of the others fits,
        nobody can say whether that one would have, and the provider is to come again.
        """
        places = {told.path_ref: f"{place}.path" for place, told in own.items() if told.path_ref is not None}
        paths = self._config.secrets(client, places)
        for told in own.values():
            path = None if told.path_ref is None else paths[told.path_ref]
            if isinstance(path, Secret) and hmac.compare_digest(given, path.reveal().encode()):
                return told
        if all(isinstance(path, Secret) for path in paths.values()):
            raise WebhooksNotSupportedError
        raise KeyUnavailableError("The secret of an address is not available now.")

    def _opened(self, told: WebhookSettings, client: ProviderClient, spec: WebhookSpec) -> WebhookKeys:
        refs = told.secret_refs
        if not refs and spec.signature.key_from == "client" and client.secret_ref is not None:
            refs = (client.secret_ref, *client.older_secrets)  # which one signs is the provider's choice
        return WebhookKeys(
            secrets=self._live(client.name, refs),
            public=told.keys,
            verify_token=self._later(told.verify_token_ref),
            hook_id=told.hook_id,
            account=told.account,
            status_page=told.status_page,
        )

    def _later(self, ref: str | None) -> Callable[[], Secret] | None:
        """Handshakes are rare, and an event must not wait for what one needs."""
        return None if ref is None else lambda: self._config.secret(ref)

    def _live(self, client: str, refs: tuple[str, ...]) -> tuple[Secret, ...]:
        """Those that are there: of two, the older one may be gone before the settings say so."""
        told = self._config.secrets(client, dict.fromkeys(refs, "a secret of its webhook")).values()
        found = tuple(each for each in told if isinstance(each, Secret))
        out = [each for each in told if isinstance(each, KeyUnavailableError)]
        missing = [] if found else [each for each in told if isinstance(each, ClientConfigError)]
        for fault in (*out, *missing):
            raise fault
        return found

    def _published(self, url: str) -> "KeySource":
        sets = self._http().key_sets
        return lambda kid, algorithm: sets.key(url, kid, algorithm, PUBLISHED_KEYS_MS)


@dataclass(frozen=True)
class PublishedKeys:
    """`ports.TransmitterKeys`: the keys are fetched when a token names one that is not known, and kept."""

    spec: Transmitter
    http: "ProviderHttp"
    now: Callable[[], int]

    def read(self, token: bytes) -> SecurityEvents | SetRefused:
        """See `ports.TransmitterKeys`; the keys are asked for twice at most, within the time of an identity call."""
        from quitclaim.providers.security_events import read  # the library for tokens is paid for by who verifies one

        def key_of(kid: str | None, algorithm: str) -> object:
            return self.http.key_sets.key(self.spec.jwks_uri, kid, algorithm, IDENTITY_CALL_MS)

        return read(token.decode("ascii", "replace"), self.spec, key_of, self.now() // 1000)


class ConfiguredTransmitters:
    """`ports.Transmitters` from the configuration."""

    def __init__(self, config: ParameterStore, http: "Callable[[], ProviderHttp]", now: Callable[[], int]) -> None:
        self._config = config
        self._http = http
        self._now = now

    def at(self, name: str) -> PublishedKeys:
        """See `ports.Transmitters`; keys at an address that may not be called are none that anybody has."""
        config = self._config.current()
        spec = config.transmitters.get(name)
        if spec is None or fault_of_url(spec.jwks_uri, allow_loopback=config.is_local) is not None:
            raise NotFoundError
        return PublishedKeys(spec, self._http(), self._now)
