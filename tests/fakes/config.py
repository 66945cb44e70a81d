"""Configuration that is kept in memory, and what a client needs of the outside."""

import copy
import functools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.errors import ClientConfigError, ProviderNotRegisteredError
from quitclaim.domain.secret import Secret
from quitclaim.ports import Client, Clock
from quitclaim.providers.client import OAuthClient, ProviderHttp
from quitclaim.providers.compile import compiled_text
from quitclaim.providers.refusals import Refusals
from quitclaim.providers.spec import ProviderSpec, spec_of
from tests.fakes.provider import CLIENT_ID, CLIENT_SECRET, AcmeServer
from tests.providers.specs import REMOVED, changed_entry

BASE_URL = "https://quitclaim.example.com"


@functools.cache
def _compiled(changes: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "acme.yaml"
        wanted = {name: REMOVED if value is None else value for name, value in json.loads(changes).items()}
        path.write_text(yaml.safe_dump(changed_entry(wanted), sort_keys=False))
        compiled: dict[str, Any] = json.loads(compiled_text(path))
        return compiled


def spec_with(**changes: object) -> ProviderSpec:
    """
    Acme's catalogue entry with values put at paths (`revocation__reach="token"`; None takes one away), compiled as the
    build does it.
    """
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return spec_of(copy.deepcopy(_compiled(json.dumps(dotted, sort_keys=True))))


@dataclass
class MemoryClients:
    """`ports.Clients` without Parameter Store: clients of Acme by name."""

    server: AcmeServer
    settings: dict[str, ProviderClient] = field(default_factory=dict)
    secret: Secret | None = field(default_factory=lambda: CLIENT_SECRET)
    secret_reads: int | None = None
    """How often it can still be read; None: always."""
    clock: Clock | None = None
    """By which a refused client rests; None: the machine's."""

    def __post_init__(self) -> None:
        clock = self.clock
        refusals = Refusals() if clock is None else Refusals(now=lambda: clock.now() / 1000)
        transport = self.server.transport
        self._http = ProviderHttp(transport, transport, lambda: self.server.now_s, refusals=refusals)

    def add(self, name: str = "acme", **settings: Any) -> ProviderClient:
        """Set a client up."""
        client = ProviderClient(name, "acme", CLIENT_ID, "ssm:/q/secret", ("read", "write"), **settings)
        self.settings[name] = client
        return client

    def named(self, name: str) -> Client:
        if name not in self.settings:
            raise ProviderNotRegisteredError
        return OAuthClient(self.settings[name], self.server.spec, self._secret, self._http)

    def names(self) -> frozenset[str]:
        return frozenset(self.settings)

    def manual_page(self, provider: str) -> str | None:
        del provider
        return self.server.spec.facts.manual_page

    def _secret(self, ref: str) -> Secret:
        del ref
        if self.secret_reads is not None:
            self.secret_reads -= 1
        if self.secret is None or (self.secret_reads is not None and self.secret_reads < 0):
            raise ClientConfigError(reason="the client's secret cannot be read")
        return self.secret
