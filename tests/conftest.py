"""Prints figures and the table of providers; here, since the process that leads the others loads nothing deeper."""

from typing import Any

import pytest

from tests.conformance import table


def pytest_configure(config: pytest.Config) -> None:
    """The controlling process forgets an earlier run; a worker must not."""
    if not hasattr(config, "workerinput"):
        table.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests have to say of their run (`record_property("figure", …)`); one row a provider."""
    passed = terminalreporter.stats.get("passed", [])
    figures = [said for report in passed for name, said in report.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
    for said in figures:
        terminalreporter.write_line(said)
    rows = table.table()
    if not rows:
        return
    terminalreporter.section(f"providers ({len(rows)})")
    for each in rows:
        told = "  ".join(f"{each.get(step, '-'):<22}" for step in table.STEPS)
        terminalreporter.write_line(f"{each['provider']:<16} {told}")
