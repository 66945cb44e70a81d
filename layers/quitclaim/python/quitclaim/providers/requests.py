"""The parts that every request to a provider has: headers, and a body or query of its fields."""

import json
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from quitclaim.providers.transport import USER_AGENT, OutgoingRequest


def plain_headers() -> dict[str, str]:
    """What every request carries."""
    return {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}


def form_request(method: str, url: str, headers: dict[str, str], fields: Mapping[str, str]) -> OutgoingRequest:
    """A form in the body."""
    body = urlencode(fields).encode()
    return OutgoingRequest(method, url, {**headers, "Content-Type": "application/x-www-form-urlencoded"}, body)


def json_request(method: str, url: str, headers: dict[str, str], fields: Mapping[str, str]) -> OutgoingRequest:
    """A JSON object in the body."""
    body = json.dumps(dict(fields)).encode()
    return OutgoingRequest(method, url, {**headers, "Content-Type": "application/json"}, body)


def with_query(url: str, fields: Mapping[str, str]) -> str:
    """A few providers take a token in the query and nowhere else: such a URL is shown and logged by nobody (S-13)."""
    if not fields:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields, quote_via=quote)}"
