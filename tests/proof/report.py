"""What the proof did: one line a technique, over all processes of a run, printed at its end and kept under build/."""

import json
import os
from pathlib import Path
from typing import Final

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


def table() -> list[tuple[str, int, int]]:
    """Technique, cases, violations."""
    sums: dict[str, list[int]] = {}
    for file in FOLDER.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            row = sums.setdefault(told["technique"], [0, 0])
            row[0] += told["cases"]
            row[1] += told["violations"]
    return [(technique, row[0], row[1]) for technique, row in sorted(sums.items())]
