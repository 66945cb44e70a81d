"""A stack for each file, taken in turns; whatever was written in a test's turn is searched for secrets at its end."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from moto import mock_aws

from quitclaim.providers.compile import compiled_text
from tests.fakes.config import spec_with
from tests.fakes.provider import AcmeServer
from tests.functions.stage import Stage, play_aws
from tests.providers.specs import REMOVED, written


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stage]]:
    """Builds a stack whose provider is as the test says."""

    @cache
    def entry(changes: str) -> str:
        given = {name.replace("__", "."): value for name, value in json.loads(changes).items()}
        wanted = {name: REMOVED if value is None else value for name, value in given.items()}
        return compiled_text(written(tmp_path_factory.mktemp("acme"), wanted))

    def built(**changes: object) -> Stage:
        server = AcmeServer(spec_with(**changes))
        return Stage(Path(tmp_path_factory.mktemp("stack")), server, entry(json.dumps(changes, sort_keys=True)))

    with mock_aws(), pytest.MonkeyPatch.context() as monkeypatch:
        play_aws(monkeypatch)
        yield built


@pytest.fixture(scope="module")
def shared(build: Callable[..., Stage]) -> Stage:
    """Of this file; its provider rotates and revokes by family."""
    return build()


@pytest.fixture
def take_turn(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[[Stage], Stage]]:
    """Gives a stack to this test, and searches what was written for secrets afterwards."""
    taken: list[Stage] = []

    def turn(stage: Stage) -> Stage:
        taken.append(stage)
        return stage.turn(capsys)

    yield turn
    for stage in taken:
        stage.lines()
        assert stage.leaks(stage.raw + caplog.text) == []


@pytest.fixture
def stage(shared: Stage, take_turn: Callable[[Stage], Stage]) -> Stage:
    """The file's stack."""
    return take_turn(shared)


@pytest.fixture
def new_stage(build: Callable[..., Stage], take_turn: Callable[[Stage], Stage]) -> Callable[..., Stage]:
    """Builds one for this test alone."""
    return lambda **changes: take_turn(build(**changes))
