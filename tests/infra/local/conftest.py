"""A small stack of our own, started once for the tests that only talk to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.stack import LocalStack

SMALL = Path(__file__).with_name("small_stack") / "template.yaml"


@pytest.fixture(scope="session")
def ticks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which the function `tick` leaves its notes."""
    return tmp_path_factory.mktemp("ticks") / "ticks"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, ticks: Path) -> Iterator[LocalStack]:
    """The small stack, running."""
    state = tmp_path_factory.mktemp("small")
    with LocalStack(state, template=SMALL, parameters={"TicksFile": str(ticks)}) as running:
        yield running
