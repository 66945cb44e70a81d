"""The page of the HTTP API tells of every code and every route, and of nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quitclaim.domain import errors
from quitclaim.runtime.http import status_of
from tests.infra.deployed import routes

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
ROOTS: Final = (errors.InvalidRequestError, errors.RefusedError, errors.ProviderError)
"""Classes that only group others; nobody is given their codes."""
CODE: Final = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")


def kinds_of(kind: type[errors.QuitclaimError]) -> Iterator[type[errors.QuitclaimError]]:
    """*kind* and every class below it, in the order in which they are written down."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:  # tests make kinds of their own
            yield from kinds_of(below)


def table() -> list[str]:
    """The lines of the table of codes, as the code has them."""
    lines = ["| code | status | retryable | means |", "|---|---|---|---|"]
    for kind in kinds_of(errors.QuitclaimError):
        if kind not in ROOTS:
            retryable = "yes" if kind.retryable else "no"
            lines.append(f"| `{kind.code}` | {status_of(kind.__new__(kind))} | {retryable} | {kind.sentence} |")
    return lines


def test_the_table_of_codes_is_the_code_s() -> None:
    """Code, status, whether a retry makes sense, and the sentence: as errors.py and the table of statuses have them."""
    section = PAGE.split("\n## Codes\n")[1]

    assert [line for line in section.splitlines() if line.startswith("|")] == table()


def test_a_class_that_only_groups_others_is_raised_nowhere() -> None:
    """What the page leaves out, nobody is given."""
    sources = [*(ROOT / "layers" / "quitclaim").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)

    assert [
        kind.__name__ for kind in ROOTS if re.search(rf"(?<!class )\b{kind.__name__}\(|raise {kind.__name__}\b", text)
    ] == []


def test_every_code_that_the_page_names_exists_and_none_is_left_out() -> None:
    """The lists of errors beside the routes name codes of the table, each code at least once."""
    before, after = PAGE.split("\n## Codes\n")
    known = {kind.code for kind in kinds_of(errors.QuitclaimError) if kind not in ROOTS}

    assert set(CODE.findall(before)) <= known
    assert known - set(re.findall(r"`([A-Z_]+)`", before)) <= {"NOT_FOUND"}  # an address that the gateway refuses first
    assert after


def test_every_route_has_a_heading_and_no_other_has_one() -> None:
    """The page's headings are the routes of the template."""
    told = set(re.findall(r"`((?:GET|HEAD|POST|PUT|DELETE) /[^`]+)`", "\n".join(re.findall(r"(?m)^### .*$", PAGE))))

    assert told == {route for route, _, _ in routes()}


if __name__ == "__main__":
    print("\n".join(table()))  # noqa: T201 - for whoever brings the page up to date
