"""Each condition of each write, broken alone: nothing changes, and the refusal names what moved."""

import pytest

from quitclaim.domain.errors import MovedError
from tests.store.rows import ROWS, Row
from tests.store.stage import Stage

REFUSED = [row for row in ROWS if row.refusals]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_a_condition_that_does_not_hold_refuses_the_whole_write(
    stage: Stage, row: Row, subtests: pytest.Subtests
) -> None:
    """Whatever one clause refuses leaves every item as it was, and the error names the write that refused, alone."""
    act = row.arrange(stage)
    arranged = stage.stand_in.everything()

    for refusal in row.refusals:
        refusal.spoil(stage)
        spoilt = stage.stand_in.everything()
        with subtests.test(refusal.clause):
            with pytest.raises(MovedError) as moved:
                act()

            assert list(moved.value.seen) == [refusal.write]
            assert stage.stand_in.everything() == spoilt
        stage.stand_in.put_back(arranged, spoilt)
