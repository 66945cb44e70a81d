"""One provider process for the whole folder: the real authorization server, without the rest of the stack."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.local.provider.control import ProviderControl

ROOT = Path(__file__).parents[2]
REDIRECT_URI = "http://127.0.0.1:9/callback/dot"
"""Port 9 (discard): nothing answers there, and nothing has to; the tests stop at the redirect."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A client as the provider knows it."""

    client_id: str
    secret: str
    redirect_uri: str = REDIRECT_URI


@pytest.fixture(scope="session")
def provider_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the provider's process writes what it has to say."""
    return tmp_path_factory.mktemp("provider-log") / "provider.log"


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory, provider_log: Path) -> Iterator[ProviderControl]:
    """A provider with a database of its own; stopped by its pid, and waited for."""
    state = tmp_path_factory.mktemp("provider")
    with provider_log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-m", "infra.local.provider", "--state", str(state)],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, provider_log.read_text()
        ready = json.loads(line)
        with ProviderControl(ready["url"], Path(ready["accounts"])) as control:
            yield control
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()


@pytest.fixture
def client(provider: ProviderControl) -> Registered:
    """A client of its own for each test, so that the ledger of one does not hold the tokens of another."""
    registered = Registered(f"client-{secrets.token_hex(6)}", secrets.token_urlsafe(32))
    provider.register(registered.client_id, registered.secret, [registered.redirect_uri], name="Interop")
    return registered
