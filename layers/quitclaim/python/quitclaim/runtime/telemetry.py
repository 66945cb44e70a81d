"""
Logs and metrics. A log line holds fields from one list and nothing else: no body, no header, no query, no message of a
library.

Metrics are counts and gauges by function; a gauge is published on every run, so that an alarm on it cannot be lost
(H-16).
"""

import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

ALLOWED: Final = frozenset(
    {
        "code",
        "status",
        "route",
        "kind",
        "fault",
        "where",
        "client",
        "provider",
        "connection_id",
        "generation",
        "outcome",
        "state",
        "counts",
        "request_id",
        "rids",
        "reason",
        "duration_ms",
    }
)


class FieldNotAllowedError(ValueError):
    """A log line was to hold a field that is not on the list: a mistake of ours."""


class RunFailedError(Exception):
    """A run ended by a fault that the log names; it rises so that Lambda counts it, and without the fault's words."""


class Telemetry:
    """Of one function."""

    def __init__(self) -> None:
        # A library's own lines are not of the list: what it has to say comes to us as an exception.
        for library in ("botocore", "boto3", "urllib3"):
            logging.getLogger(library).setLevel(logging.ERROR)
        self._logger = Logger(use_rfc3339=True, log_uncaught_exceptions=False)
        self._metrics = Metrics()

    def say(self, message: str, **fields: Any) -> None:
        """One line of what happened; *message* is a constant."""
        self._logger.info(message, extra=_checked(fields))

    def warn(self, message: str, **fields: Any) -> None:
        """One line of what an operator may want to look at."""
        self._logger.warning(message, extra=_checked(fields))

    def fault(self, message: str, fault: BaseException, **fields: Any) -> None:
        """An exception: its class and where it came from, never its words, which may quote what they were given."""
        frames = traceback.extract_tb(fault.__traceback__)[-4:]
        where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
        self._logger.error(message, extra=_checked({"fault": type(fault).__name__, "where": where, **fields}))

    def count(self, name: str, value: float = 1) -> None:
        """Add to a count."""
        self._metrics.add_metric(name, MetricUnit.Count, value)

    @contextmanager
    def invocation(self) -> Iterator[None]:
        """
        One invocation that nobody answers over HTTP: its metrics are written, however it ends. Raises `RunFailedError`
        in place of whatever ends it, for Lambda logs the words of what rises.
        """
        try:
            yield
        except Exception as fault:  # noqa: BLE001 - the edge, as in runtime/http.py
            self.fault("run failed", fault)
            raise RunFailedError(type(fault).__name__) from None
        finally:
            self.flush()

    def flush(self) -> None:
        """Write the metrics of this invocation, if there are any."""
        if self._metrics.metric_set:
            print(_line(self._metrics))  # noqa: T201 - the embedded metric format is a line on standard output
            self._metrics.clear_metrics()


def _line(metrics: Metrics) -> str:
    return json.dumps(metrics.serialize_metric_set(), separators=(",", ":"))


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    unknown = fields.keys() - ALLOWED
    if unknown:
        raise FieldNotAllowedError(f"not a field of a log line: {sorted(unknown)}")
    return fields
