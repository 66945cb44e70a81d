"""The table of the conformance run: one row a provider, printed at its end and kept under build/."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "build" / "conformance"
STEPS: Final = ("connect", "account", "refresh", "revoke", "again", "custody")
"""Of a provider; the last is how its grants ended under the whole product, and how often."""


def row(provider: str, steps: dict[str, str]) -> None:
    """What a provider was seen to do; each test process appends to a file of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"provider": provider, **steps}) + "\n")


def clear() -> None:
    """Forget an earlier run."""
    for file in FOLDER.glob("*.jsonl"):
        file.unlink()


def table() -> list[dict[str, str]]:
    """The rows, by provider."""
    rows: dict[str, dict[str, str]] = {}
    for file in FOLDER.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            rows.setdefault(told["provider"], {}).update(told)
    for told in rows.values():
        ends = Counter(how for step, how in told.items() if step.startswith("ends "))
        told["custody"] = ", ".join(f"{how} {count}" for how, count in sorted(ends.items())) or "-"
    return [rows[name] for name in sorted(rows)]
