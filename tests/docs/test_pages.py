"""Every page holds together: links, names of files and of make targets, and the decisions in one form."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "layers" / "README.md",
        ROOT / "requirements" / "README.md",
    ]
)
DECISIONS: Final = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
FOLDERS: Final = ("docs", "tests", "infra", "functions", "layers", "requirements")
CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    """How a page is called in a test's id."""
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The headings of *page* as GitHub links to them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.+)$", text):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 0
        while (unique := slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(unique)
    return found


def sources() -> Iterator[Path]:
    """Files that may name a page: code, templates, build files."""
    for folder in ("functions", "layers/quitclaim", "layers/vendor", "infra", "tests"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".yaml", ".toml", ""})
    yield from (ROOT / name for name in ("template.yaml", "pyproject.toml", "Makefile"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    """The file is there, and so is the heading that the link names."""
    broken = []
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """A path in code style that begins with one of our folders exists."""
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", page.read_text(encoding="utf-8"))

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_a_page_names_is_there(page: Path) -> None:
    """`make x` in code style is a target of the Makefile."""
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    code = "\n".join(CODE.findall(page.read_text(encoding="utf-8")))

    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) <= targets


def test_every_page_that_the_code_names_is_there() -> None:
    """A comment that sends its reader to docs/ sends them to a page; a decision may be named by its number."""
    missing = set()
    for path in sources():
        if not path.is_file():
            continue
        for name in re.findall(
            r"docs/(?:decisions/\d{4}|[\w/-]+\.md)", path.read_text(encoding="utf-8", errors="ignore")
        ):
            if not (list(ROOT.glob(f"{name}-*.md")) if re.search(r"\d{4}$", name) else (ROOT / name).exists()):
                missing.add((name_of(path), name))

    # Addresses in other people's repositories stand in the catalogue's sources.
    assert {each for each in missing if "/catalogue/" not in each[0]} == set()


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_says_what_was_rejected_and_how_to_undo_it(page: Path) -> None:
    """Number, date, and the four parts in order."""
    text = page.read_text(encoding="utf-8")

    assert text.startswith(f"# {page.name[:4]} · ")
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", text.splitlines()[2])
    assert re.findall(r"(?m)^## (.+)$", text) == ["Context", "Decision", "Rejected", "How to undo it"]


def test_the_list_of_decisions_is_complete() -> None:
    """Numbers without a gap, each in the index."""
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")

    assert [page.name[:4] for page in DECISIONS] == [f"{number:04d}" for number in range(1, len(DECISIONS) + 1)]
    assert [page.name for page in DECISIONS] == re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index)
