"""
Every row of the table of writes: its number of actions, each of its conditions broken alone, and what becomes of it
when its first try is applied, lost or turned away.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from quitclaim.domain.errors import MovedError, StoreError
from quitclaim.store.commit import TRIES
from quitclaim.store.table import DynamoTable
from tests.fakes.tables import (
    Everything,
    Fault,
    MotoStandIn,
    QuickTable,
    StandIn,
    ambiguous,
    applied_then_ambiguous,
    busy,
)
from tests.store.rows import ROWS, Act, Row
from tests.store.stage import Stage

FAULTS: dict[str, list[Fault | None]] = {
    "it was applied, its answer was lost, and then there was a conflict": [applied_then_ambiguous, busy],
    "it was lost on its way": [ambiguous],
    "it met conflicts": [busy] * (TRIES - 1),
}


@dataclass(frozen=True)
class Arranged:
    """A row about to happen."""

    row: Row
    stage: Stage
    act: Act
    before: Everything


@pytest.fixture(scope="module", params=["moto", "ministack"])
def dynamodb(request: pytest.FixtureRequest) -> tuple[type[StandIn], type[DynamoTable], object]:
    """A stand-in for DynamoDB."""
    client = request.getfixturevalue(f"{request.param}_dynamodb")
    return (MotoStandIn, QuickTable, client) if request.param == "moto" else (StandIn, DynamoTable, client)


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def arranged(
    request: pytest.FixtureRequest, dynamodb: tuple[type[StandIn], type[DynamoTable], object]
) -> Iterator[Arranged]:
    """A table on which the row may happen. Every test leaves it as it was."""
    kind, table, client = dynamodb
    stand_in = kind(client, f"row-{ROWS.index(request.param)}")
    stage = Stage(stand_in, table(stand_in.client, stand_in.name))
    act = request.param.arrange(stage)
    yield Arranged(request.param, stage, act, stand_in.everything())
    stand_in.drop()


def test_a_condition_that_does_not_hold_refuses_the_whole_row(arranged: Arranged, subtests: pytest.Subtests) -> None:
    """Whatever one clause refuses leaves every item as it was, and the error names the write that refused, alone."""
    stand_in = arranged.stage.stand_in
    for refusal in arranged.row.refusals:
        refusal.spoil(arranged.stage)
        spoilt = stand_in.everything()
        with subtests.test(refusal.clause):
            with pytest.raises(MovedError) as moved:
                arranged.act()

            assert list(moved.value.seen) == [refusal.write]
            assert stand_in.everything() == spoilt
        stand_in.put_back(arranged.before, spoilt)


def test_a_row_happens_once_whatever_became_of_its_first_try(arranged: Arranged, subtests: pytest.Subtests) -> None:
    """
    A row is one commit of a known number of actions, ten at most (a further name of an account is one more). Applied,
    lost or busy at first, it succeeds and leaves the table as if it had been sent once.
    """
    stage, stand_in = arranged.stage, arranged.stage.stand_in
    made = stage.ids.made
    with stage.table.metered() as spent:
        arranged.act()
    once = stand_in.everything()
    assert spent.writes == [arranged.row.actions]
    assert arranged.row.actions <= 10

    # The faults are ours, not the stand-in's, and moto is slow: MiniStack is enough.
    for what, faults in () if isinstance(stand_in, MotoStandIn) else FAULTS.items():
        with subtests.test(what):
            stand_in.put_back(arranged.before, once)
            stage.ids.made = made
            stage.table.faults = list(faults)

            arranged.act()

            assert stage.table.faults == []
            assert stand_in.everything() == once
    stand_in.put_back(arranged.before, stand_in.everything())


@pytest.mark.rule("F-12")
@pytest.mark.parametrize("fault", [ambiguous, busy])
def test_a_table_that_does_not_answer_is_no_success(stage: Stage, fault: Fault) -> None:
    """Once every try has met a fault the caller is told, and may ask for the same again."""
    act = ROWS[0].arrange(stage)
    stage.table.faults = [fault] * TRIES

    with pytest.raises(StoreError):
        act()

    assert stage.stand_in.everything() == {}
