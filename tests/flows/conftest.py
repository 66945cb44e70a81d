"""A table in moto for each test; moto is empty again after each module."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.stand_ins import moto
from tests.fakes.tables import MotoStandIn, StandIn
from tests.flows.world import World

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[Any]:
    """A client of an empty moto."""
    with moto() as client:
        yield client


@pytest.fixture
def stand_in(dynamodb: Any) -> Iterator[StandIn]:
    """A table of its own."""
    made = MotoStandIn(dynamodb, f"flows-{next(NUMBERS)}")
    yield made
    made.drop()


@pytest.fixture
def new_world(stand_in: StandIn) -> Callable[..., World]:
    """A world whose client and provider are as the test says."""
    return lambda *args, **facts: World(stand_in, *args, **facts)


@pytest.fixture
def world(stand_in: StandIn) -> World:
    """A rotating provider with reach family; grants are installed without the owner's confirmation."""
    return World(stand_in)


@pytest.fixture
def asking_world(stand_in: StandIn) -> World:
    """The same, with the owner's confirmation."""
    return World(stand_in, "owner")
