"""
The routes of the HTTP API, read from the OpenAPI body of the transformed template: there is no second list of them.

A path is matched in the form in which it was sent, segment by segment, and each parameter is decoded afterwards: an
encoded slash belongs to its segment. A fixed segment beats a parameter, a named method beats ANY.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

_ANY = "x-amazon-apigateway-any-method"
_FUNCTION = re.compile(r"\$\{(\w+)\.Arn\}")


@dataclass(frozen=True)
class Route:
    """One method on one path, the function behind it and whether a caller must sign."""

    method: str
    path: str
    function: str
    signed: bool

    @property
    def key(self) -> str:
        """The route key, for instance ``GET /v1/providers``."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Match:
    """The route of a request and the values of its path parameters."""

    route: Route
    parameters: Mapping[str, str]


def routes_of(openapi: Mapping[str, Any]) -> tuple[Route, ...]:
    """All routes of an HTTP API's OpenAPI body; functions by their logical id."""
    schemes = openapi.get("components", {}).get("securitySchemes", {})
    signing = {name for name, scheme in schemes.items() if scheme.get("x-amazon-apigateway-authtype") == "awsSigv4"}
    found = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            if "x-amazon-apigateway-integration" not in operation:
                continue
            required = {name for choice in operation.get("security", []) for name in choice}
            if unknown := required - signing - {"NONE"}:
                raise ValueError(f"{method} {path}: the local front knows no authorizer {', '.join(sorted(unknown))}")
            found.append(
                Route(
                    "ANY" if method == _ANY else method.upper(),
                    path,
                    _function_of(operation["x-amazon-apigateway-integration"]["uri"]),
                    bool(required & signing),
                )
            )
    return tuple(found)


def match(routes: Iterable[Route], method: str, raw_path: str) -> Match | None:
    """The route that takes *method* on *raw_path* (percent-encoded, as sent), or None."""
    best: tuple[tuple[int, ...], Match] | None = None
    given = raw_path.split("/")
    for route in routes:
        if route.method not in (method, "ANY"):
            continue
        wanted = route.path.split("/")
        if len(wanted) != len(given):
            continue
        parameters: dict[str, str] = {}
        rank = []
        for want, have in zip(wanted, given, strict=True):
            if want.startswith("{") and have:
                parameters[want[1:-1]] = unquote(have)
                rank.append(1)
            elif want == unquote(have):
                rank.append(0)
            else:
                break
        else:
            order = (*rank, route.method == "ANY")
            if best is None or order < best[0]:
                best = (order, Match(route, parameters))
    return best[1] if best else None


def _function_of(uri: object) -> str:
    text = uri["Fn::Sub"] if isinstance(uri, Mapping) else uri
    text = text if isinstance(text, str) else text[0] if isinstance(text, list) else ""
    found = _FUNCTION.search(text)
    if found is None:
        raise ValueError(f"no function in the integration {uri!r}")
    return found[1]
