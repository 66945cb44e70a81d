"""
The proof to its full extent, one technique after the other, each with results of its own as soon as it has any.

    python -m tests.proof.nightly            run all of it; the table lies in build/proof/nightly.md
    python -m tests.proof.nightly T-9 T-13   these parts (again); the others stay as they were
    python -m tests.proof.nightly --table    the table as it is by now, of a run that is still under way or was ended

A run begins with what is searched for the promise itself; the longest come last.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.proof import report

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
TABLE: Final = report.WHOLE / "nightly.md"


@dataclass(frozen=True)
class Part:
    """What one run of pytest does."""

    name: str
    files: tuple[str, ...]
    which: str = ""


PARTS: Final[Sequence[Part]] = (
    Part("T-2", ("test_interleavings.py",)),
    Part("T-14", ("test_model.py",), "not every_rule"),
    Part("T-1", ("test_crashes.py",)),
    Part("T-4", ("test_provider_faults.py",)),
    Part("T-5", ("test_clocks.py",)),
    Part("T-6", ("test_schedules.py",)),
    Part("T-7", ("test_storage_faults.py",)),
    Part("T-9", ("test_keys.py",)),
    Part("T-10", ("test_poison.py",)),
    Part("T-11", ("test_table_double.py",)),
    Part("T-12", ("test_canaries.py",)),
    Part("T-13", ("test_mutants.py", "test_rules.py")),
    Part("T-3", ("test_stateful.py",)),
    Part("T-14-rules", ("test_model.py",), "every_rule"),
)


def parts() -> Iterator[Part]:
    """All of them, and what is in no technique's own file before the two longest."""
    known = {file for part in PARTS for file in part.files}
    others = tuple(sorted(path.name for path in HERE.glob("test_*.py") if path.name not in known))
    yield from (*PARTS[:-2], Part("others", others), *PARTS[-2:])


def main(words: Sequence[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.nightly", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[part.name for part in parts()])
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args(words)
    if asked.table:
        print(written())
        return 0
    mine = [part for part in parts() if part.name in asked.part or not asked.part]
    for part in mine:
        _note(part, None)
    for part in mine:
        _run(part)
        written()
    print(written())
    return 1 if any(_told(part).get("exit") for part in parts()) or _too_few() else 0


def _run(part: Part) -> None:
    began = _now()
    _note(part, {"commit": _commit(), "began": began})
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "--timeout", "86400"]
    command += [str(HERE / file) for file in part.files] + (["-k", part.which] if part.which else [])
    environment = os.environ | {"QUITCLAIM_PROOF": "nightly", "QUITCLAIM_PROOF_PART": part.name}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own tests
    (_folder(part) / "told.txt").write_text(done.stdout)
    last = next((line for line in reversed(done.stdout.splitlines()) if " in " in line), "nothing was told")
    _note(
        part, {"commit": _commit(), "began": began, "ended": _now(), "exit": done.returncode, "last": last.strip("= ")}
    )
    print(f"{part.name}: {last}", flush=True)


def _folder(part: Part) -> Path:
    return report.WHOLE / part.name


def _note(part: Part, what: Any) -> None:
    folder = _folder(part)
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.jsonl") if what is None else ():
        file.unlink()
    (folder / "part.json").write_text(json.dumps(what or {}))


def _told(part: Part) -> dict[str, Any]:
    file = _folder(part) / "part.json"
    told: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return told


def _now() -> str:
    return datetime.now(UTC).isoformat(" ", "seconds").removesuffix("+00:00")


def _commit() -> str:
    """Of what runs, with what was changed since."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


def _too_few() -> list[str]:
    from tests.proof.scripts import SITUATIONS

    return report.too_few(report.table([_folder(part) for part in parts()]), len(SITUATIONS), nightly=True)


def written() -> str:
    """The table, as far as there is one, which is written down as well."""
    lines = [
        f"seed `{report.SEED}`",
        "",
        "| part | commit | began (UTC) | ended | tests |",
        "| --- | --- | --- | --- | --- |",
    ]
    for part in parts():
        told = _told(part)
        state = told.get("last", "not to its end" if told else "not begun")
        row = (part.name, told.get("commit", ""), told.get("began", ""), told.get("ended", ""), state)
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "| technique | cases | violations |", "| --- | --- | --- |"]
    rows = report.table([_folder(part) for part in parts()])
    lines += [f"| {row.technique} | {row.cases:,} | {row.violations:,} |" for row in rows]
    lines += ["", *(f"too few: {each}" for each in _too_few())]
    text = "\n".join(lines).rstrip() + "\n"
    TABLE.write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
