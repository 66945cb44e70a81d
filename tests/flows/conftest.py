"""A table in moto for each test; moto is empty again after each module."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.stand_ins import moto
from tests.fakes.tables import MotoStandIn, StandIn
from tests.flows.told import faults_of_events
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
def new_world(stand_in: StandIn) -> Iterator[Callable[..., World]]:
    """A world whose client and provider are as the test says; whatever it tells the app is as docs/events says."""
    made: list[World] = []

    def build(*args: Any, **facts: Any) -> World:
        made.append(World(stand_in, *args, **facts))
        return made[-1]

    yield build
    for world in made[:1]:  # they share one table
        assert faults_of_events(world) == []


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """A rotating provider with reach family; grants are installed without the owner's confirmation."""
    return new_world()


@pytest.fixture
def asking_world(new_world: Callable[..., World]) -> World:
    """The same, with the owner's confirmation."""
    return new_world("owner")
