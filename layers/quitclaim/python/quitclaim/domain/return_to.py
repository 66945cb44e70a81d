"""
Where a finished connect may send the browser: an exact origin that the app team listed, and nothing that a browser
could read otherwise (S-7).
"""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from quitclaim.domain.errors import ReturnToInvalidError

MAX_CHARS: Final = 2_000
PLAIN: Final = re.compile(r"[\x21-\x7e]+")
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def origin_of(url: str) -> str | None:
    """
    `scheme://host[:port]` of an https URL (http on loopback only); None where a browser might read it another way than
    we do.
    """
    parts = _parts(url)
    if parts is None:
        return None
    host = parts.netloc.lower()
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and name in LOOPBACK)
    return f"{parts.scheme}://{host}" if is_safe else None


def checked_return_to(url: object, origins: Collection[str]) -> str | None:
    """*url* if its origin is one of *origins*; None stays None. Raises `ReturnToInvalidError`."""
    if url is None:
        return None
    if not isinstance(url, str) or origin_of(url) not in origins:
        raise ReturnToInvalidError
    return url


def with_outcome(url: str, outcome: dict[str, str]) -> str:
    """*url* with the outcome in its query; what stands there under the same names is replaced."""
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in outcome]
    return urlunsplit(parts._replace(query=urlencode([*kept, *outcome.items()])))


def _parts(url: str) -> SplitResult | None:
    if len(url) > MAX_CHARS or not PLAIN.fullmatch(url) or "\\" in url or "#" in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if not re.match(r"https?://[^/]", url) or not parts.hostname or "@" in parts.netloc or "%" in parts.netloc:
        return None
    return parts
