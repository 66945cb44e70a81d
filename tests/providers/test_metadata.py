"""An entry held against what its server says of itself: what is a difference, and what is none (RFC 8414)."""

import json

import pytest

from quitclaim.providers.__main__ import main
from quitclaim.providers.metadata import differences, places

BASE = "https://acme.example.com"
SAID = {
    "issuer": BASE,
    "authorization_endpoint": f"{BASE}/authorize",
    "token_endpoint": f"{BASE}/token",
    "revocation_endpoint": f"{BASE}/revoke",
    "userinfo_endpoint": f"{BASE}/me",
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
    "revocation_endpoint_auth_methods_supported": ["client_secret_basic"],
    "response_modes_supported": ["query", "form_post"],
}
ISSUER = {"authorize.issuer": BASE}
OIDC = {"oidc": {"issuer": BASE, "jwks_url": f"{BASE}/jwks"}}
EVIL = "https://evil.example.com"

DIFFERENT = {
    # name: (changes of the entry, what the server says beside, the difference)
    "another issuer": (ISSUER, {"issuer": f"{BASE}/"}, "contradicts: authorize.issuer"),
    "another authorization endpoint": ({}, {"authorization_endpoint": EVIL}, "contradicts: authorize.url"),
    "another token endpoint": ({}, {"token_endpoint": EVIL}, "contradicts: token.url"),
    "another revocation endpoint": ({}, {"revocation_endpoint": EVIL}, "contradicts: revocation.url"),
    "another userinfo endpoint": ({}, {"userinfo_endpoint": EVIL}, "contradicts: identity.url"),
    "another key set": (OIDC, {"jwks_uri": EVIL}, "contradicts: oidc.jwks_url"),
    "no such client authentication": (
        {},
        {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
        "contradicts: token.client_auth",
    ),
    "only Basic, by saying nothing": (
        {"token.client_auth": "post"},
        {"token_endpoint_auth_methods_supported": None},
        "contradicts: token.client_auth",
    ),
    "no such authentication at the revocation": (
        {},
        {"revocation_endpoint_auth_methods_supported": ["none"]},
        "contradicts: revocation.client_auth",
    ),
    "no form post": (
        {"authorize.response_mode": "form_post"},
        {"response_modes_supported": ["query"]},
        "contradicts: authorize.response_mode",
    ),
    "other algorithms": (
        OIDC,
        {"id_token_signing_alg_values_supported": ["ES256"]},
        "contradicts: oidc.algorithms",
    ),
    "a defence that is not used": ({"authorize.pkce": "none"}, {}, "contradicts: authorize.pkce"),
    "a defence that is not there": (
        {},
        {"code_challenge_methods_supported": ["plain"]},
        "contradicts: authorize.pkce",
    ),
    "an issuer in its answers": (
        {},
        {"authorization_response_iss_parameter_supported": True},
        "missing: authorize.issuer_announced",
    ),
    "requests that must be pushed": (
        {},
        {"require_pushed_authorization_requests": True},
        "contradicts: authorize.par",
    ),
}


def test_an_entry_that_agrees_has_no_difference(spec_with):
    """Also where the server says more than an entry can hold."""
    spec = spec_with({**ISSUER, **OIDC, "authorize.issuer_announced": "yes"})
    said = SAID | {
        "jwks_uri": f"{BASE}/jwks",
        "authorization_response_iss_parameter_supported": True,
        "scopes_supported": ["a"],
        "registration_endpoint": EVIL,
        "pushed_authorization_request_endpoint": f"{BASE}/par",
    }

    assert differences(spec, said) == []


def test_what_the_server_does_not_say_is_no_difference(spec):
    """An empty document contradicts nothing."""
    assert differences(spec, {}) == []


@pytest.mark.rule("S-3", "S-4")
@pytest.mark.parametrize(("changes", "beside", "told"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_one_difference_at_a_time(spec_with, changes, beside, told):
    """By the field of the entry, and what the server says instead."""
    said = {name: value for name, value in (SAID | beside).items() if value is not None}

    (difference,) = differences(spec_with(changes), said)

    assert str(difference).startswith(told)


@pytest.mark.parametrize("value", [None, 7, [], {}, "S256", [7]])
def test_a_document_that_is_malformed_breaks_nothing(spec, value):
    """Whatever stands in a member."""
    for difference in differences(spec, dict.fromkeys(SAID, value)):
        assert difference.server


def test_where_documents_lie():
    """RFC 8414 puts the path of an issuer behind, discovery before."""
    assert places("https://a.example.com") == [
        "https://a.example.com/.well-known/oauth-authorization-server",
        "https://a.example.com/.well-known/openid-configuration",
    ]
    assert places("https://a.example.com/t/1/") == [
        "https://a.example.com/.well-known/oauth-authorization-server/t/1",
        "https://a.example.com/t/1/.well-known/openid-configuration",
    ]


def test_the_command_says_what_differs(tmp_path, capsys):
    """0 without a difference, 1 with one or without anything to compare; of a shipped entry by its name."""
    path = tmp_path / "said.json"
    google = {"authorization_endpoint": "https://accounts.google.com/o/oauth2/v2/auth"}
    path.write_text(json.dumps(google))
    assert main(["compare", "google", "--from", str(path)]) == 0
    path.write_text(json.dumps(google | {"token_endpoint": EVIL}))
    assert main(["compare", "google", "--from", str(path)]) == 1
    assert "token.url" in capsys.readouterr().out
    path.write_text("[")
    assert main(["compare", "google", "--from", str(path)]) == 1
    assert main(["compare", "nobody"]) == 1
    assert "not set up" in capsys.readouterr().err
