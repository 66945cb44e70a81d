"""
`python -m tests.rulebook` collects the tests, writes build/rules.json (every rule, the tests that assert it) and says
what is uncovered.

With --check it only fails on a marker that names no rule, on a rule of a finished capability without a test, and on a
page that is stale; with --pages it writes the tests beside the rules of docs/rules.md and docs/field-cases.md, and the
links to the threads that an entry names.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest

from tests.rulebook.inventory import ALL, OWNED, faults_of

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = (DOCS / "rules.md", DOCS / "field-cases.md")
TESTS: Final = "  <br>tests: "
THREADS: Final = "  <br>threads: "
THREAD: Final = re.compile(r"(?<![\w./-])([\w.-]+/[\w.-]+)((?:,?\s(?:and\s)?|\s?PR\s)?#\d+(?:(?:,| and)\s#\d+)*)")
"""`owner/repo#1`, `owner/repo PR #1`, each with further numbers of the same repository: `, #2` or `and #2`."""
OUT: Final = Path(__file__).parents[2] / "build" / "rules.json"


class Collector:
    """Looks at the markers of everything that pytest collects."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """One entry a rule and test; parameters of one test count once."""
        for item in session.items:
            name = item.nodeid.split("[")[0]
            for marker in item.iter_markers("rule"):
                for rule in marker.args:
                    tests = self.found.setdefault(str(rule), [])
                    if name not in tests:
                        tests.append(name)


def in_order(rule: str) -> tuple[str, int, str]:
    """F-2 before F-10."""
    kind, number, rest = re.fullmatch(r"([A-Z]+)-?(\d+)(\w*)", rule).groups()  # type: ignore[union-attr]
    return kind, int(number), rest


def with_tests(text: str, found: dict[str, list[str]]) -> str:
    """
    A page whose entries (`- **F-1** …`) are followed by links to the threads that they name, and by the tests that
    assert them.
    """
    lines: list[str] = []
    rule, start = "", 0
    for line in [*text.splitlines(), ""]:
        if line.startswith((TESTS, THREADS)):
            continue
        if rule and (not line.strip() or line.startswith(("- ", "#"))):
            if links := threads(" ".join(map(str.strip, lines[start:]))):
                lines.append(THREADS + " · ".join(links))
            if found.get(rule):
                lines.append(TESTS + " · ".join(f"`{name}`" for name in sorted(map(short, found[rule]))))
            rule = ""
        entry = re.match(r"- \*\*([A-Z]+-?\d+\w*)\*\*", line)
        if entry:
            rule, start = entry.group(1), len(lines)
        lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def threads(entry: str) -> list[str]:
    """
    A link for each thread that an entry names, once. GitHub leads from an issue's address to the pull request of the
    number. A repository that is called like a package index has none: no file may hold an address that looks like one.
    """
    named = {
        f"[{repository}#{number}](https://github.com/{repository}/issues/{number})": None
        for repository, numbers in THREAD.findall(entry)
        for number in re.findall(r"#(\d+)", numbers)
        if "/simple" not in repository
    }
    return list(named)


def short(test: str) -> str:
    """`tests/flows/test_stop.py::test_x` without what every test has."""
    return test.removeprefix("tests/").replace(".py::", "::")


def main(words: list[str]) -> int:
    """Write the table, or only check it."""
    collector = Collector()
    with redirect_stdout(io.StringIO()) as told:
        code = pytest.main(
            ["--collect-only", "-qq", "--no-summary", "--ignore", "tests/proof/model", "tests"], plugins=[collector]
        )
    if code not in (0, 5):
        print(told.getvalue()[-4000:])
        print("the tests cannot be collected")
        return int(code)
    faults = faults_of(collector.found)
    for fault in faults:
        print(fault)
    for page in PAGES:
        fresh = with_tests(page.read_text(), collector.found) if page.exists() else ""
        if "--pages" in words and page.exists():
            page.write_text(fresh)
        elif page.exists() and page.read_text() != fresh:
            faults.append(f"{page.name} is stale: run `python -m tests.rulebook --pages`")
            print(faults[-1])
    if "--check" in words or "--pages" in words:
        return 1 if faults else 0
    table: dict[str, Any] = {rule: sorted(collector.found.get(rule, [])) for rule in sorted(ALL, key=in_order)}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(table, indent=1) + "\n")
    for kind in sorted({in_order(rule)[0] for rule in ALL}):
        rules = [rule for rule in table if in_order(rule)[0] == kind]
        open_ones = [rule for rule in rules if not table[rule]]
        owned = sum(rule in OWNED for rule in rules)
        counts = f"{len(rules) - len(open_ones):>3} of {len(rules):>3} asserted, {owned:>3} owned"
        print(f"{kind:<3} {counts}; not yet: {' '.join(open_ones) or '-'}")
    print(f"written to {OUT.relative_to(OUT.parents[1])}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
