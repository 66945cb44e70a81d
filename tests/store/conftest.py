"""The table of the template, new for each test: in moto (one thread) and in a MiniStack of our own."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from quitclaim.store.table import DynamoTable
from tests.fakes.stand_ins import ministack, ministack_client, moto
from tests.fakes.tables import MotoStandIn, OneByOneTable, QuickTable, StandIn
from tests.store.stage import Stage

NUMBERS = itertools.count(1)
ACCOUNTS = itertools.count(200_000_000_001)


@pytest.fixture(scope="session")
def ministack_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One MiniStack for all of these tests."""
    with ministack(tmp_path_factory.mktemp("ministack")) as url:
        yield url


@pytest.fixture(scope="module")
def ministack_dynamodb(ministack_url: str) -> Any:
    """A client with an account of its own."""
    return ministack_client(ministack_url, str(next(ACCOUNTS)))


@pytest.fixture(scope="module")
def moto_dynamodb() -> Iterator[Any]:
    """A client of an empty moto."""
    with moto() as client:
        yield client


@pytest.fixture(params=["moto", "ministack"])
def backend(request: pytest.FixtureRequest) -> str:
    """Which stand-in for DynamoDB."""
    return str(request.param)


@pytest.fixture
def stand_in(backend: str, request: pytest.FixtureRequest) -> Iterator[StandIn]:
    """A table of its own."""
    kind = MotoStandIn if backend == "moto" else StandIn
    made = kind(request.getfixturevalue(f"{backend}_dynamodb"), f"store-{next(NUMBERS)}")
    yield made
    made.drop()


@pytest.fixture
def table(backend: str, stand_in: StandIn) -> DynamoTable:
    """The port. moto does not read our PartiQL, so its batches are sent as single writes."""
    kind = OneByOneTable if backend == "moto" else DynamoTable
    return kind(stand_in.client, stand_in.name)


@pytest.fixture
def stage(backend: str, stand_in: StandIn, table: DynamoTable) -> Stage:
    """The stores on it. The writes are what is tried: in moto a test reads its items where they lie."""
    return Stage(stand_in, QuickTable(stand_in.client, stand_in.name) if backend == "moto" else table)
