"""
What the app team set up in Parameter Store: the public address, the API's id, and the clients; and the clients'
secrets.

Read with one call and kept at most five minutes, so that a new client or a rotated secret needs no deployment (S-28).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from quitclaim.domain.clients import ClientFaultsError, ProviderClient, read_client
from quitclaim.domain.errors import (
    CallbackUrlRequiredError,
    ClientConfigError,
    ProviderNotRegisteredError,
    StoreError,
)
from quitclaim.domain.limits import MINUTE
from quitclaim.domain.return_to import LOOPBACK
from quitclaim.domain.secret import Secret
from quitclaim.ports import Client
from quitclaim.providers.spec import Catalogue

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

    from quitclaim.providers.client import ProviderHttp

KEPT_MS: Final = 5 * MINUTE


@dataclass(frozen=True)
class StackConfig:
    """What one read of the configuration path said."""

    base_url: str
    api_id: str
    clients: dict[str, ProviderClient]
    faulty: frozenset[str]
    read_at: int

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
        self._opened: dict[str, tuple[int, Secret]] = {}

    def current(self, max_age_ms: int = KEPT_MS) -> StackConfig:
        """The configuration, at most five minutes old. Raises `StoreError` where it cannot be read and never was."""
        now = self._ages()
        if self._config is None or now - self._config.read_at >= max_age_ms:
            try:
                self._config = self._read(now)
            except (ClientError, BotoCoreError) as fault:
                if self._config is None:
                    raise StoreError("The configuration could not be read.") from fault
        return self._config

    def secret(self, ref: str) -> Secret:
        """The secret at `ssm:<name>` or `secretsmanager:<id>`. Raises `ClientConfigError` where there is none."""
        now = self._ages()
        if ref not in self._opened or now - self._opened[ref][0] >= KEPT_MS:
            self._opened[ref] = (now, self._open(ref))
        return self._opened[ref][1]

    def _open(self, ref: str) -> Secret:
        kind, _, name = ref.partition(":")
        try:
            if kind == "ssm":
                text = self._ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"].get("Value", "")
            else:
                text = self._secrets().get_secret_value(SecretId=name).get("SecretString", "")
        except (ClientError, BotoCoreError) as fault:
            raise ClientConfigError(reason="the client's secret cannot be read") from fault
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
        return StackConfig(base_url, values.get("api-id", ""), clients, frozenset(faulty), now)


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
