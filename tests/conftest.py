"""Prints the table of providers after a run; here, since the process that leads the others loads nothing deeper."""

from typing import Any

import pytest

from tests.conformance import table


def pytest_configure(config: pytest.Config) -> None:
    """The controlling process forgets an earlier run; a worker must not."""
    if not hasattr(config, "workerinput"):
        table.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One row a provider."""
    rows = table.table()
    if not rows:
        return
    terminalreporter.section(f"providers ({len(rows)})")
    for each in rows:
        told = "  ".join(f"{each.get(step, '-'):<22}" for step in table.STEPS)
        terminalreporter.write_line(f"{each['provider']:<16} {told}")
