"""Which route takes a request, and with which path parameters."""

import pytest

from infra.local.routes import Route, match, routes_of

ROUTES = tuple(
    Route(method, path, "f", signed=True)
    for method, path in [
        ("GET", "/v1/tenants/{t}/owners/{o}"),
        ("GET", "/v1/tenants/{t}/owners/mine"),
        ("ANY", "/v1/tenants/{t}/owners/{o}"),
        ("POST", "/callback/{provider}"),
        ("GET", "/"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "key", "parameters"),
    [
        ("GET", "/v1/tenants/a/owners/b", "GET /v1/tenants/{t}/owners/{o}", {"t": "a", "o": "b"}),
        ("GET", "/v1/tenants/a/owners/mine", "GET /v1/tenants/{t}/owners/mine", {"t": "a"}),
        ("PUT", "/v1/tenants/a/owners/b", "ANY /v1/tenants/{t}/owners/{o}", {"t": "a", "o": "b"}),
        ("GET", "/v1/tenants/a%2Fb/owners/c%20d", "GET /v1/tenants/{t}/owners/{o}", {"t": "a/b", "o": "c d"}),
        ("GET", "/v1/tenants/../owners/c", "GET /v1/tenants/{t}/owners/{o}", {"t": "..", "o": "c"}),
        ("GET", "/", "GET /", {}),
    ],
)
def test_the_most_specific_route_wins(method: str, path: str, key: str, parameters: dict[str, str]) -> None:
    """Fixed before parameter, named method before ANY; an encoded slash stays in its segment."""
    found = match(ROUTES, method, path)

    assert found is not None
    assert (found.route.key, found.parameters) == (key, parameters)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/tenants/a/owners/"),
        ("GET", "/v1/tenants/a/owners"),
        ("GET", "/v1/tenants/a/owners/b/"),
        ("GET", "/V1/tenants/a/owners/b"),
        ("GET", "/callback/dot"),
        ("HEAD", "/"),
        ("GET", "//v1/tenants/a/owners/b"),
    ],
)
def test_what_no_route_takes(method: str, path: str) -> None:
    """Another method, an empty parameter, one slash too many: no route."""
    assert match(ROUTES, method, path) is None


def test_an_authorizer_that_the_front_cannot_play_is_an_error() -> None:
    """Such a route must not be served as if it were open."""
    operation = {"x-amazon-apigateway-integration": {"uri": "${F.Arn}"}, "security": [{"Jwt": []}]}

    with pytest.raises(ValueError, match="Jwt"):
        routes_of({"paths": {"/a": {"get": operation}}, "components": {"securitySchemes": {"Jwt": {}}}})
