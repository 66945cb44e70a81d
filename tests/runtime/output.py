"""Standard output, wherever it is."""

import logging
import sys


class StandardOutput:
    """Whatever standard output is at the moment: pytest changes it between a test's phases."""

    def write(self, text: str) -> int:
        """To where a `print` would go."""
        return sys.stdout.write(text)

    def flush(self) -> None:
        """Nothing is kept here."""


def heard(logger: str) -> None:
    """Let a logger's handlers write to where a `print` would go, now and later."""
    for handler in logging.getLogger(logger).handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(StandardOutput())
