"""
`python -m tests.rulebook` collects the tests, writes build/rules.json (every rule, the tests that assert it) and says
what is uncovered.

With --check it only fails on a marker that names no rule, and on a rule of a finished capability without a test.
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
    if "--check" in words:
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
