"""Prints the proof's table at the end of a run."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.proof import report
from tests.proof import scripts as _  # noqa: F401 - before any file of situations: it imports them, and they import it


def pytest_configure(config: pytest.Config) -> None:
    """The controlling process forgets an earlier run; a worker must not."""
    if not hasattr(config, "workerinput"):
        report.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A whole run with fewer cases than it promises has failed, whatever its tests say."""
    if (
        not hasattr(session.config, "workerinput")
        and _too_few(report.table())
        and session.exitstatus == pytest.ExitCode.OK
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One table: technique, cases, violations, seed."""
    rows = report.table()
    if not rows:
        return
    setting = "nightly" if report.NIGHTLY else "CI"
    terminalreporter.section(f"proof ({setting} setting, seed {report.SEED!r})")
    for row in rows:
        terminalreporter.write_line(f"{row.technique:<36} {row.cases:>19,} cases {row.violations:>6,} violations")
    for each in _too_few(rows):
        terminalreporter.write_line(f"too few: {each}", red=True)


def _too_few(rows: Sequence[report.Row]) -> list[str]:
    from tests.proof.scripts import SITUATIONS

    return report.too_few(rows, len(SITUATIONS)) if rows else []
