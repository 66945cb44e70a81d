"""What the run says of itself: a whole run with fewer cases than it promises has failed."""

import pytest

from tests.proof.report import LEAST, Row, too_few

SITUATIONS = 7


@pytest.mark.parametrize("technique", LEAST)
@pytest.mark.parametrize("nightly", [False, True])
def test_a_whole_run_with_too_few_cases_is_told(technique: str, nightly: bool) -> None:
    """One case less than promised, and nothing else was wrong."""
    least = LEAST[technique][nightly]

    assert too_few([Row(technique, least, 0, 3 * SITUATIONS)], SITUATIONS, nightly=nightly) == []
    (told,) = too_few([Row(technique, least - 1, 0, 3 * SITUATIONS)], SITUATIONS, nightly=nightly)
    assert told == f"{technique}: {least - 1:,} cases, and {least:,} are promised"


@pytest.mark.parametrize(
    "row",
    [
        Row("T-2 states", 10, 0, 3 * SITUATIONS - 1),
        Row("T-2 states", 10, 1, 3 * SITUATIONS),
        Row("T-4 provider faults", 1, 0, SITUATIONS),
    ],
    ids=["a part of them ran", "something is wrong anyway", "nothing is promised"],
)
def test_other_runs_promise_nothing(row: Row) -> None:
    """Who runs one test, or looks for a fault, is not told of the others."""
    assert too_few([row], SITUATIONS, nightly=False) == []
