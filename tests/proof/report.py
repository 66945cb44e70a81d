"""What the proof did: one line a technique, over all processes of a run, printed at its end and kept under build/."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

NIGHTLY: Final = os.environ.get("QUITCLAIM_PROOF") == "nightly"
SEED: Final = os.environ.get("QUITCLAIM_PROOF_SEED", "quitclaim")
WHOLE: Final = Path(__file__).parents[2] / "build" / "proof"
FOLDER: Final = WHOLE / os.environ.get("QUITCLAIM_PROOF_PART", "")
"""Where this run notes what it does; each part of a nightly run (`nightly`) somewhere of its own."""


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


def table(folders: Sequence[Path] = (FOLDER,)) -> list[Row]:
    """One row a technique, of all that was noted in these folders."""
    files = [file for folder in folders for file in folder.glob("*.jsonl")]
    told = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows: dict[str, Row] = {}
    for each in told:
        name = each["technique"]
        row = rows.get(name, Row(name, 0, 0, 0))
        rows[name] = Row(name, row.cases + each["cases"], row.violations + each["violations"], row.tests + 1)
    return [rows[name] for name in sorted(rows)]


LEAST: Final[Mapping[str, tuple[int, int]]] = {
    "T-1 crash points": (600, 600),
    "T-1 double crashes": (2_000, 20_000),
    "T-2 orders": (200_000, 5_000_000),
    "T-2 distinct states": (200_000, 5_000_000),
    "T-3 stateful steps": (300 * 60, 5_000 * 100),
    "T-4 provider faults": (64, 64),
    "T-4 stopped meanwhile": (192, 192),
    "T-5 deadlines": (100, 100),
    "T-6 two runs at once": (4_000, 4_000),
    "T-6 schedules in disorder": (3_000, 3_000),
    "T-7 one call fails": (5_000, 5_000),
    "T-7 outage of ten minutes": (3_000, 3_000),
    "T-7 three calls in ten fail": (1_000, 20_000),
    "T-9 keys away": (3_000, 3_000),
    "T-9 wrong keys": (250, 250),
    "T-9 keys turn": (300, 300),
    "T-10 poison mutants": (500, 5_000),
    "T-11 double and MiniStack": (2_000, 20_000),
    "T-12 runs with canaries": (1_000, 1_000),
    "T-13 mutants": (600, 600),
    "T-14 model states": (90_000, 1_000_000),
    "T-16 random histories": (1_000, 10_000),
}
"""Cases that a whole run has at least: in CI, and nightly."""

TESTS_A_SITUATION: Final[Mapping[str, int]] = {
    "T-1 crash points": 1,
    "T-1 crash points, index behind": 1,
    "T-1 double crashes": 1,
    "T-2 orders": 3,
    "T-5 clocks that differ": 1,
    "T-5 workers that freeze": 1,
    "T-6 two runs at once": 1,
    "T-6 schedules in disorder": 1,
    "T-7 one call fails": 1,
    "T-7 outage of ten minutes": 1,
    "T-7 three calls in ten fail": 1,
    "T-9 keys away": 1,
    "T-9 wrong keys": 1,
    "T-10 poison mutants": 1,
    "T-12 runs with canaries": 1,
}
"""
The techniques that note something in every situation, in one or more tests: a run is whole if most of them did, and
then all of them must have.
"""


def too_few(rows: Sequence[Row], situations: int, *, nightly: bool = NIGHTLY) -> list[str]:
    """
    The techniques that have fewer cases than is promised, or none, or that left a situation out: of a whole run, in
    which nothing else was wrong.

    Whole is what took most of the techniques that go through the *situations* through each of them. So none can be
    taken away in silence; and who runs one test, or looks for a fault, is told nothing.
    """
    told = {row.technique: row for row in rows}
    nothing = Row("", 0, 0, 0)
    short = {
        technique: f"{technique}: noted by {told.get(technique, nothing).tests:,} tests, and a whole run has at least "
        f"{each * situations:,}"
        for technique, each in TESTS_A_SITUATION.items()
        if told.get(technique, nothing).tests < each * situations
    }
    if any(row.violations for row in rows) or 2 * len(short) >= len(TESTS_A_SITUATION):
        return []
    few = {
        technique: f"{technique}: {told.get(technique, nothing).cases:,} cases, and {least[nightly]:,} are promised"
        for technique, least in LEAST.items()
        if told.get(technique, nothing).cases < least[nightly]
    }
    return [*(short | few).values()]
