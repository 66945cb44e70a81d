"""The tests that every row of the table of writes has to pass, for rows that stand with the tests of their stage."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quitclaim.store.table import DynamoTable
from tests.fakes.tables import StandIn
from tests.store.rows import Row
from tests.store.stage import Stage
from tests.store.test_rows import Arranged


def arranged_by(rows: tuple[Row, ...]) -> Callable[..., Iterator[Arranged]]:
    """The fixture `arranged` of a file that has *rows* of its own."""

    @pytest.fixture(scope="module", params=rows, ids=lambda row: row.name)
    def arranged(
        request: pytest.FixtureRequest, dynamodb: tuple[type[StandIn], type[DynamoTable], Any]
    ) -> Iterator[Arranged]:
        kind, table, client = dynamodb
        stand_in = kind(client, f"{request.module.__name__.rsplit('.', 1)[-1]}-{rows.index(request.param)}")
        stage = Stage(stand_in, table(stand_in.client, stand_in.name))
        act = request.param.arrange(stage)
        yield Arranged(request.param, stage, act, stand_in.everything())
        stand_in.drop()

    made: Callable[..., Iterator[Arranged]] = arranged
    return made
