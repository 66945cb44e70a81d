"""The table of the conformance run: one row a provider, printed at its end and kept under build/."""

import json
import os
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "build" / "conformance"
STEPS: Final = ("connect", "account", "refresh", "revoke", "again", "custody")


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
    return [rows[name] for name in sorted(rows)]
