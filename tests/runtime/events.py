"""Events of the HTTP API as the local front makes them, byte by byte like the service's."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from infra.local.events import HttpRequest, Stage, event_of
from infra.local.routes import Match, Route, match

API_ID: Final = "a1b2c3d4e5"
NOW: Final = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
ROOT: Final = Path(__file__).parents[2]


def http_event(
    method: str,
    path: str,
    *,
    query: str = "",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    routes: Sequence[Route] = (),
    api_id: str = API_ID,
    request_id: str = "request-1",
) -> dict[str, Any]:
    """The event of a request; of a route made up for it where none of *routes* takes it."""
    given = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    request = HttpRequest(method, path, query, [("host", "quitclaim.example.com"), *given], body)
    found = match(routes, method, path) or Match(Route(method, path, "f", signed=False), {})
    return event_of(request, found, Stage("111122223333", api_id, 443), request_id=request_id, now=NOW)


class Context:
    """What the runtime hands to a handler, with as much time left as a test says."""

    aws_request_id = "invocation-1"
    function_name = "function"
    function_version = "$LATEST"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:111122223333:function:function"
    log_group_name = "group"
    log_stream_name = "stream"

    def __init__(self, remaining_ms: int = 29_000) -> None:
        self._remaining_ms = remaining_ms

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is killed."""
        return self._remaining_ms
