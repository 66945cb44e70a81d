"""The HTTP API: which routes there are, who may call them, how fast, and what is logged of a call."""

import json
import re
from typing import Any

import pytest

from tests.infra.deployed import of_type, routes, short

OWNER = "/v1/tenants/{t}/owners/{o}"
PUBLIC = {
    "GET /connect/{ticket}": "connect",
    "HEAD /connect/{ticket}": "connect",
    "GET /callback/{provider}": "connect",
    "POST /callback/{provider}": "connect",
    "GET /removal/{provider}": "connect",
    **{f"{method} /webhooks/{{provider}}": "webhook" for method in ("GET", "HEAD", "POST")},
    **{f"{method} /webhooks/{{provider}}/{{endpoint}}": "webhook" for method in ("GET", "HEAD", "POST")},
    "POST /events/{issuer}": "connect",
}
SIGNED = {
    f"POST {OWNER}/connections": "app_api",
    f"GET {OWNER}/connections": "app_api",
    f"GET {OWNER}/connections/{{c}}": "app_api",
    f"DELETE {OWNER}/connections/{{c}}": "app_api",
    f"POST {OWNER}/connections/{{c}}/reconnect": "app_api",
    f"POST {OWNER}/connections/{{c}}/confirm": "app_api",
    f"POST {OWNER}/connections/{{c}}/acknowledge-removal": "app_api",
    f"POST {OWNER}/connections/{{c}}/report": "app_api",
    f"DELETE {OWNER}": "app_api",
    f"GET {OWNER}/status": "app_api",
    f"GET {OWNER}/receipts": "app_api",
    "GET /v1/providers": "app_api",
    "GET /v1/attention": "app_api",
    "POST /v1/attention/{id}/retry": "app_api",
    "POST /v1/attention/{id}/acknowledge": "app_api",
    "POST /v1/deliveries/redrive": "app_api",
    f"POST {OWNER}/connections/{{c}}/access-token": "access_token",
    f"POST {OWNER}/connections/{{c}}/import": "access_token",
    f"POST {OWNER}/sdk-sign-in": "access_token",
    f"GET {OWNER}/connections/{{c}}/sources": "app_api",
}
LOGGED = {
    "$context.requestTimeEpoch",
    "$context.requestId",
    "$context.routeKey",
    "$context.status",
    "$context.responseLength",
    "$context.responseLatency",
    "$context.integrationStatus",
    "$context.integrationLatency",
    "$context.error.responseType",
    "$context.identity.sourceIp",
}


def stage() -> dict[str, Any]:
    """The API's only stage."""
    (only,) = of_type("AWS::ApiGatewayV2::Stage").values()
    assert isinstance(only, dict)
    return only


@pytest.mark.rule("S-19")
def test_public_routes_are_exactly_the_listed_ones() -> None:
    """Without credentials one reaches connect link, callback, removal page and event receiver, and nothing else."""
    assert {route: function for route, function, authorizer in routes() if authorizer == "NONE"} == PUBLIC


@pytest.mark.rule("S-19")
def test_every_other_route_asks_for_iam() -> None:
    """Whatever is not public is signed (SigV4), and goes to the function that answers it."""
    assert {route: function for route, function, authorizer in routes() if authorizer == "AWS_IAM"} == SIGNED
    assert {authorizer for _, _, authorizer in routes()} == {"NONE", "AWS_IAM"}


@pytest.mark.rule("S-19")
def test_iam_is_sigv4_and_there_is_no_catch_all() -> None:
    """AWS_IAM is the gateway's own SigV4 check, and no route catches what no route names."""
    (api,) = of_type("AWS::ApiGatewayV2::Api").values()

    assert api["Body"]["components"]["securitySchemes"]["AWS_IAM"]["x-amazon-apigateway-authtype"] == "awsSigv4"
    assert not [route for route, _, _ in routes() if "$default" in route or "+}" in route or route.startswith("ANY ")]


def test_tenant_and_owner_lead_the_path() -> None:
    """Tenant first, then owner: a policy on the ARN confines a caller to its tenant by a prefix. Operators differ."""
    for route in SIGNED:
        if route != "GET /v1/providers" and not route.split(" ")[1].startswith(("/v1/attention", "/v1/deliveries")):
            assert route.split(" ")[1].startswith("/v1/tenants/{t}/owners/{o}")


def test_events_have_the_payload_that_the_functions_read() -> None:
    """Payload 2.0 everywhere."""
    (api,) = of_type("AWS::ApiGatewayV2::Api").values()

    for methods in api["Body"]["paths"].values():
        for operation in methods.values():
            assert operation["x-amazon-apigateway-integration"]["payloadFormatVersion"] == "2.0"


def test_public_routes_are_slower_than_the_api() -> None:
    """
    Every route is throttled, and each public one below what the app may use: a tenth; events, which a provider sends
    again when it is told to wait, less than half.
    """
    default = stage()["DefaultRouteSettings"]
    settings = stage()["RouteSettings"]

    assert default["ThrottlingRateLimit"] > 0
    assert set(settings) == set(PUBLIC)
    for route, each in settings.items():
        share = 0.4 if route.startswith("POST /webhooks/") else 0.1
        assert 0 < each["ThrottlingRateLimit"] <= default["ThrottlingRateLimit"] * share
        assert 0 < each["ThrottlingBurstLimit"] <= default["ThrottlingBurstLimit"] * share


@pytest.mark.rule("S-13")
def test_the_access_log_names_the_route_and_never_the_path() -> None:
    """One JSON line a call with the route key; no path, query, header, cookie or caller's name."""
    text = stage()["AccessLogSettings"]["Format"]

    assert json.loads(text)["route"] == "$context.routeKey"
    assert "\n" not in text
    assert set(re.findall(r"\$[A-Za-z0-9_.{}]+", text)) == LOGGED


def test_the_access_log_is_kept_as_long_as_the_operator_says() -> None:
    """The access log has a group of its own with the stack's retention."""
    destination = short(stage()["AccessLogSettings"]["DestinationArn"])

    group = of_type("AWS::Logs::LogGroup")[destination.removeprefix("${").removesuffix(".Arn}")]

    assert short(group["LogGroupName"]) == "/quitclaim/${AWS::StackName}/api"
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}
