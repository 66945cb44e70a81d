"""One local stack and one provider for the whole folder; every test takes an owner of its own."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.local.life import Life, RegisteredClient, register_client
from infra.local.provider.control import ProviderControl
from infra.local.stack import LocalStack

LAST = "test_canary.py"
RETURN_ORIGIN = "https://app.example"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The canary test reads the logs of the whole run, so it runs at its end."""
    items.sort(key=lambda item: item.path.name == LAST and item.path.parent == Path(__file__).parent)


@dataclass(slots=True)
class Witness:
    """What the tests of this run learnt and no log may hold."""

    secrets: set[str] = field(default_factory=set)
    challenges: set[str] = field(default_factory=set)


@pytest.fixture(scope="session")
def witness() -> Witness:
    """Filled by every life, read by the canary test."""
    return Witness()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The whole local stack: emulator, workers, front and provider."""
    # Scheduled functions run when a test fires them: a sweep by the clock would write between two looks at the table.
    parameters = {"ReturnOrigins": RETURN_ORIGIN}
    with LocalStack(tmp_path_factory.mktemp("story"), provider=True, schedules=False, parameters=parameters) as stack:
        yield stack


@pytest.fixture(scope="session")
def provider(stack: LocalStack) -> Iterator[ProviderControl]:
    """The provider's control paths."""
    with ProviderControl(stack.provider_url, stack.provider_accounts) as control:
        yield control


@pytest.fixture(scope="session")
def client(stack: LocalStack, provider: ProviderControl) -> RegisteredClient:
    """One OAuth client for all tests: its settings are cached by the workers for minutes."""
    return register_client(stack, provider)


@pytest.fixture(autouse=True)
def nothing_waits(provider: ProviderControl) -> Iterator[None]:
    """No test leaves an armed fault or a held answer to the next one."""
    yield
    for path in ("/o/token/", "/o/revoke_token/", "/api/me"):
        provider.stall(path, times=0)
    provider.release()


_owners = itertools.count(1)


@pytest.fixture
def a_life(
    stack: LocalStack, provider: ProviderControl, client: RegisteredClient, witness: Witness
) -> Iterator[Callable[..., Life]]:
    """Makes lives of connections, each of a new owner unless one is named."""
    with ExitStack() as lives:

        def make(owner: str | None = None, **changed: Any) -> Life:
            life = lives.enter_context(Life(stack, provider, client, owner or f"story-{next(_owners)}", **changed))
            lives.callback(_tell, life, witness)
            return life

        yield make


@pytest.fixture
def life(a_life: Callable[..., Life]) -> Life:
    """The life that most tests need: a new owner, who is alice at the provider."""
    return a_life()


def _tell(life: Life, witness: Witness) -> None:
    life.learn()
    witness.secrets |= life.secrets
    witness.challenges |= life.challenges
