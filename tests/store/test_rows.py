"""A write whose outcome is not known is sent again, and what it did is done once."""

import pytest

from quitclaim.domain.errors import StoreError
from quitclaim.store.commit import TRIES
from tests.fakes.tables import Fault, ambiguous, applied_then_ambiguous, busy
from tests.store.rows import ROWS, Row
from tests.store.stage import Stage

FAULTS: dict[str, list[Fault | None]] = {
    "it was applied, and its answer was lost": [applied_then_ambiguous],
    "it was applied, its answer was lost, and then there was a conflict": [applied_then_ambiguous, busy],
    "it was lost on its way": [ambiguous],
    "it met conflicts": [busy] * (TRIES - 1),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_write_is_done_once_whatever_became_of_its_first_try(
    stage: Stage, row: Row, subtests: pytest.Subtests
) -> None:
    """
    A row is one commit of a known number of actions, ten at most. Applied, lost or busy at first, it succeeds and
    leaves the table as if it had been sent once.
    """
    act = row.arrange(stage)
    arranged, made = stage.stand_in.everything(), stage.ids.made
    with stage.table.metered() as spent:
        act()
    once = stage.stand_in.everything()
    assert spent.writes == [row.actions]
    assert row.actions <= 10

    for what, faults in FAULTS.items():
        with subtests.test(what):
            stage.stand_in.put_back(arranged, once)
            stage.ids.made = made
            stage.table.faults = list(faults)

            act()

            assert stage.table.faults == []
            assert stage.stand_in.everything() == once


@pytest.mark.parametrize("fault", [ambiguous, busy])
def test_a_table_that_does_not_answer_is_no_success(stage: Stage, fault: Fault) -> None:
    """Once every try has met a fault the caller is told, and may ask for the same again."""
    act = ROWS[0].arrange(stage)
    stage.table.faults = [fault] * TRIES

    with pytest.raises(StoreError):
        act()

    assert stage.stand_in.everything() == {}
