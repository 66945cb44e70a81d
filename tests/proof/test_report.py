"""What the run says of itself: a whole run with fewer cases than it promises has failed."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.proof.nightly import parts
from tests.proof.report import LEAST, TESTS_A_SITUATION, Row, too_few

SITUATIONS = 7


def whole(nightly: bool) -> dict[str, Row]:
    """A run that has what is promised, and nothing more."""
    return {
        technique: Row(
            technique,
            LEAST[technique][nightly] if technique in LEAST else 1,
            0,
            TESTS_A_SITUATION.get(technique, 0) * SITUATIONS,
        )
        for technique in LEAST.keys() | TESTS_A_SITUATION.keys()
    }


@pytest.mark.parametrize("technique", LEAST)
@pytest.mark.parametrize("nightly", [False, True])
def test_a_whole_run_with_too_few_cases_is_told(technique: str, nightly: bool) -> None:
    """One case less than promised, and nothing else was wrong."""
    rows, least = whole(nightly), LEAST[technique][nightly]
    assert too_few([*rows.values()], SITUATIONS, nightly=nightly) == []

    rows[technique] = rows[technique]._replace(cases=least - 1)
    (told,) = too_few([*rows.values()], SITUATIONS, nightly=nightly)

    assert told == f"{technique}: {least - 1:,} cases, and {least:,} are promised"


@pytest.mark.parametrize("technique", sorted(LEAST.keys() | TESTS_A_SITUATION.keys()))
def test_a_technique_that_did_not_run_is_told(technique: str) -> None:
    """It was taken away, or skipped, and all others ran: the run is whole all the same."""
    rows = whole(False)
    del rows[technique]

    (told,) = too_few([*rows.values()], SITUATIONS, nightly=False)

    assert told.startswith((f"{technique}: 0 cases", f"{technique}: noted by 0 tests"))


@pytest.mark.parametrize("technique", TESTS_A_SITUATION)
def test_a_technique_that_left_a_situation_out_is_told(technique: str) -> None:
    """Although it has as many cases as are promised."""
    rows = whole(False)
    rows[technique] = rows[technique]._replace(tests=rows[technique].tests - 1)

    (told,) = too_few([*rows.values()], SITUATIONS, nightly=False)

    assert told.startswith(f"{technique}: noted by {rows[technique].tests} tests")


def test_other_runs_promise_nothing() -> None:
    """Who runs one test, or looks for a fault, is not told of the others."""
    rows = {name: row._replace(cases=1) for name, row in whole(False).items()}
    one = sorted(TESTS_A_SITUATION)[0]
    assert len(too_few([*rows.values()], SITUATIONS, nightly=False)) == len(LEAST)

    part = [row._replace(tests=row.tests - 1) if row.tests else row for row in rows.values()]
    faulty = rows | {one: rows[one]._replace(violations=1)}

    assert too_few(part, SITUATIONS, nightly=False) == []
    assert too_few([*faulty.values()], SITUATIONS, nightly=False) == []
    assert too_few([rows["T-4 provider faults"]], SITUATIONS, nightly=False) == []


def test_every_technique_of_the_page_has_a_floor() -> None:
    """All that `docs/proof.md` names, by their numbers."""
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text()
    named = set(re.findall(r"^\| (T-\d+) \|", page, flags=re.MULTILINE))

    assert named - {technique.split()[0] for technique in LEAST} == set()
    assert len(named) >= 12


def test_a_nightly_run_leaves_no_test_out() -> None:
    """Every file is in a part, and in one only, but for those that are shared by what they choose of it."""
    files = Counter(file for part in parts() for file in part.files)

    assert set(files) == {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert {file for file, count in files.items() if count > 1} == {"test_model.py"}
    assert {part.which for part in parts() if "test_model.py" in part.files} == {"every_rule", "not every_rule"}
