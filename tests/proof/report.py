"""What the proof did: one line a technique, over all processes of a run, printed at its end and kept under build/."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

NIGHTLY: Final = os.environ.get("QUITCLAIM_PROOF") == "nightly"
SEED: Final = os.environ.get("QUITCLAIM_PROOF_SEED", "quitclaim")
FOLDER: Final = Path(__file__).parents[2] / "build" / "proof"


def note(technique: str, cases: int, violations: int) -> None:
    """Add to a technique's count. Each test process appends to a file of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"technique": technique, "cases": cases, "violations": violations}) + "\n")


def clear() -> None:
    """Forget an earlier run."""
    for file in FOLDER.glob("*.jsonl"):
        file.unlink()


class Row(NamedTuple):
    """A technique's line. *tests*: so many of them have noted something."""

    technique: str
    cases: int
    violations: int
    tests: int


def table() -> list[Row]:
    """One row a technique."""
    told = [json.loads(line) for file in FOLDER.glob("*.jsonl") for line in file.read_text().splitlines()]
    rows: dict[str, Row] = {}
    for each in told:
        name = each["technique"]
        row = rows.get(name, Row(name, 0, 0, 0))
        rows[name] = Row(name, row.cases + each["cases"], row.violations + each["violations"], row.tests + 1)
    return [rows[name] for name in sorted(rows)]


LEAST: Final[Mapping[str, tuple[int, int]]] = {
    "T-1 crash points": (600, 600),
    "T-1 double crashes": (2_000, 20_000),
    "T-2 states": (200_000, 5_000_000),
    "T-10 poison mutants": (500, 5_000),
}
"""Cases that a whole run has at least: in CI, and nightly. Each is noted by one or more tests for every situation."""


def too_few(rows: Sequence[Row], situations: int, *, nightly: bool = NIGHTLY) -> list[str]:
    """
    The techniques that ran whole, in all *situations* and without a violation, and have fewer cases than is promised.
    """
    return [
        f"{row.technique}: {row.cases:,} cases, and {LEAST[row.technique][nightly]:,} are promised"
        for row in rows
        if row.technique in LEAST and not row.violations and _is_whole(row, situations)
        if row.cases < LEAST[row.technique][nightly]
    ]


def _is_whole(row: Row, situations: int) -> bool:
    return row.tests >= situations * (3 if row.technique == "T-2 states" else 1)
