"""The rule book itself: what is a fault, what a page looks like, and that pages and inventory name the same rules."""

import re

import pytest

from tests.rulebook import inventory
from tests.rulebook.__main__ import DOCS, in_order, with_tests
from tests.rulebook.inventory import ALL, LATER, OWNED, SEALING, faults_of

PAGE = """# Rules

- **F-1** One line.
- **F-2** Two
  lines.

## More

Words that are no entry.

- **RB-28b** With a letter.
- **G3** Without a hyphen.
"""
FOUND = {
    "F-2": ["tests/store/test_b.py::test_two", "tests/flows/test_a.py::test_one"],
    "RB-28b": ["tests/flows/test_a.py::test_one"],
    "G3": ["tests/flows/test_a.py::test_one"],
}
ENTRY = re.compile(r"(?m)^- \*\*([A-Z]+-?\d+\w*)\*\* (.+(?:\n  .+)*)")


def entries(page: str) -> dict[str, str]:
    """The rules of a page and what it says of each."""
    return dict(ENTRY.findall((DOCS / page).read_text(encoding="utf-8")))


# --- markers ---------------------------------------------------------------------------------------------------------


def test_a_marker_that_names_no_rule_is_a_fault() -> None:
    """A slip of the pen would assert nothing, and nobody would notice."""
    asserted = {rule: ["tests/x.py::test_x"] for rule in OWNED}

    assert faults_of(asserted) == []
    for slip in ("F-70", "F70", "f-1", "RB-5", "T-1", ""):
        (fault,) = faults_of(asserted | {slip: ["tests/x.py::test_x"]})
        assert fault == f"{slip}: no such rule, named by tests/x.py::test_x"


def test_a_rule_that_is_owned_and_asserted_by_nothing_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a finished capability is none."""
    monkeypatch.setattr(inventory, "OWNED", frozenset({"F-1", "F-2"}))

    assert faults_of({"F-2": ["tests/x.py::test_x"]}) == ["F-1: owned by a finished capability, and no test asserts it"]


def test_what_is_owned_is_a_rule() -> None:
    """And what comes later is not owned."""
    assert OWNED <= ALL
    assert not OWNED & LATER


# --- pages -----------------------------------------------------------------------------------------------------------


def test_a_page_has_the_tests_under_each_entry() -> None:
    """In order, without what every name has; and nothing under an entry that no test asserts."""
    page = with_tests(PAGE, FOUND)

    assert (
        page
        == """# Rules

- **F-1** One line.
- **F-2** Two
  lines.
  <br>tests: `flows/test_a::test_one` · `store/test_b::test_two`

## More

Words that are no entry.

- **RB-28b** With a letter.
  <br>tests: `flows/test_a::test_one`
- **G3** Without a hyphen.
  <br>tests: `flows/test_a::test_one`
"""
    )


def test_a_page_that_is_written_again_is_the_same() -> None:
    """Or it is stale for ever; and tests that are gone leave it."""
    once = with_tests(PAGE, FOUND)

    assert with_tests(once, FOUND) == once
    assert with_tests(once, {}) == PAGE


def test_an_entry_links_to_the_threads_that_it_names() -> None:
    """Each once, also where a number or a name stands in the next line; a number without a repository is no thread."""
    page = "- **RB-1** Lost (a-b/c.d#1, e/f PR #2, #30, g/h\n  PR #4 and #5, a-b/c.d#1). Here not, and #6 is nothing.\n"

    told = with_tests(page, {"RB-1": ["tests/x.py::test_x"]})

    links = [
        f"[{name}#{number}](https://github.com/{name}/issues/{number})"
        for name, number in (("a-b/c.d", 1), ("e/f", 2), ("e/f", 30), ("g/h", 4), ("g/h", 5))
    ]
    assert told == f"{page}  <br>threads: {' · '.join(links)}\n  <br>tests: `x::test_x`\n"
    assert with_tests(told, {}) == f"{page}  <br>threads: {' · '.join(links)}\n"


def test_rules_stand_in_the_order_of_their_numbers() -> None:
    """F-2 before F-10, and a letter after its number."""
    assert sorted(["F-10", "F-2", "RB-28c", "RB-28b", "G3", "RB-3"], key=in_order) == [
        "F-2",
        "F-10",
        "G3",
        "RB-3",
        "RB-28b",
        "RB-28c",
    ]


def test_the_rule_book_has_every_rule_of_its_kinds() -> None:
    """Each once; of M and G those that are owned or come later, and of S two. Of those that come later it says so."""
    told = entries("rules.md")

    expected = {rule for rule in ALL if rule.split("-")[0] in "FUID"} | SEALING
    expected |= {rule for rule in OWNED | LATER if rule[0] in "MG"}
    assert sorted(told, key=in_order) == sorted(expected, key=in_order)
    assert {rule for rule, text in told.items() if "comes with" in text} == LATER


def test_the_page_of_field_cases_has_every_case_that_is_owned() -> None:
    """And none that the inventory does not know."""
    told = entries("field-cases.md").keys()

    assert told <= ALL
    assert {rule for rule in OWNED if rule.startswith("RB-")} <= told
