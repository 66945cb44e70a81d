"""Prints the proof's table at the end of a run."""

from typing import Any

import pytest

from tests.proof import report


def pytest_configure(config: pytest.Config) -> None:
    """The controlling process forgets an earlier run; a worker must not."""
    if not hasattr(config, "workerinput"):
        report.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One table: technique, cases, violations, seed."""
    rows = report.table()
    if not rows:
        return
    setting = "nightly" if report.NIGHTLY else "CI"
    terminalreporter.section(f"proof ({setting} setting, seed {report.SEED!r})")
    for technique, cases, violations in rows:
        terminalreporter.write_line(f"{technique:<36} {cases:>10,} cases {violations:>6,} violations")
