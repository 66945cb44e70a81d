"""The requests: what is sent where, and that a secret is in the body or the Authorization header only."""

import base64
import json
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.outcomes import IdentityOutcome
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.providers import oauth2
from quitclaim.providers.spec import Catalogue
from tests.providers.specs import CLIENT, SECRET

REDIRECT = "https://app.example.com/callback/acme"
VERIFIER = Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
REFRESH = Material("refresh_token", Secret("refresh+canary/="))
ACCESS = Material("access_token", Secret("access-canary"))


def form(request):
    """The body's fields, each once."""
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    pairs = parse_qsl(request.body.decode(), keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def authorized(spec, client=CLIENT, scopes=("read", "write"), nonce=None, hint=None):
    """The authorization request's parameters."""
    challenge = "challenge-1" if spec.facts.pkce else None
    asked = AuthorizationAsked(REDIRECT, Secret("state-1"), challenge, nonce, frozenset(scopes), hint)
    url = oauth2.authorize_url(spec, client, asked)
    assert url.startswith(f"{spec.authorize.url}?")
    return {name: value for name, [value] in parse_qs(urlsplit(url).query, strict_parsing=True).items()}


# --- authorize ----------------------------------------------------------------------------------------------------


def test_where_the_browser_is_sent(spec):
    """RFC 6749 section 4.1.1 with PKCE."""
    assert authorized(spec) == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": REDIRECT,
        "state": "state-1",
        "scope": "read write",
        "code_challenge": "challenge-1",
        "code_challenge_method": "S256",
    }


@pytest.mark.rule("S-3")
@pytest.mark.parametrize(
    ("pkce", "is_sent"), [("required", True), ("optional", True), ("unknown", True), ("none", False)]
)
def test_S_3_pkce_is_s256_wherever_it_may_be_understood(spec_with, pkce, is_sent):
    """Never plain, and left out only where the provider is known to take none."""
    sent = authorized(spec_with({"authorize.pkce": pkce}))

    assert ("code_challenge" in sent) is is_sent
    assert sent.get("code_challenge_method", "S256") == "S256"


@pytest.mark.rule("RB-52")
@pytest.mark.parametrize("pkce", ["required", "optional", "unknown", "none"])
def test_RB_52_a_verifier_is_sent_exactly_if_its_challenge_was(spec_with, pkce):
    """Whatever the catalogue says by the time of the callback."""
    spec = spec_with({"authorize.pkce": pkce})

    for verifier in (VERIFIER, None):
        request = oauth2.build_exchange(spec, CLIENT, SECRET, Secret("code"), verifier, REDIRECT)

        assert form(request).get("code_verifier") == (verifier.reveal() if verifier else None)


def test_what_a_provider_wants_beside_that(spec_with):
    """Its own parameters, separator, answer mode, and a nonce where OIDC is spoken."""
    changes = {"params": {"prompt": "consent"}, "scope_separator": ",", "response_mode": "form_post"}
    spec = spec_with({f"authorize.{name}": value for name, value in changes.items()})

    sent = authorized(spec, nonce=Secret("nonce-1"))

    assert (sent["prompt"], sent["scope"], sent["nonce"]) == ("consent", "read,write", "nonce-1")
    assert sent["response_mode"] == "form_post"
    assert "scope" not in authorized(spec, scopes=())


def test_scopes_stand_in_the_clients_order_and_a_hint_is_its_own_parameter(spec):
    """What a start asks for beyond the usual comes after it."""
    sent = authorized(spec, scopes={"z", "write", "admin", "read"}, hint=Secret("ann@example.com"))

    assert sent["scope"] == "read write admin z"
    assert sent["login_hint"] == "ann@example.com"
    assert "login_hint" not in authorized(spec)


def test_values_are_encoded(spec):
    """Nothing in a value becomes a parameter."""
    asked = AuthorizationAsked(REDIRECT + "?a=b&state=x", Secret("a&b=c d+"), "c", None, frozenset({"read:x y"}))
    url = oauth2.authorize_url(spec, CLIENT, asked)

    assert "read%3Ax%20y" in url
    sent = parse_qs(urlsplit(url).query)
    assert sent["state"] == ["a&b=c d+"]
    assert sent["redirect_uri"] == [REDIRECT + "?a=b&state=x"]


@pytest.mark.rule("S-4")
@pytest.mark.parametrize(
    ("issuer", "announced", "values", "goes_on"),
    [
        ("https://a.example.com", "yes", ["https://a.example.com"], True),
        ("https://a.example.com", "yes", [], False),
        ("https://a.example.com", "yes", ["https://a.example.com/"], False),
        ("https://a.example.com", "yes", ["https://b.example.com"], False),
        ("https://a.example.com", "yes", ["https://a.example.com", "https://a.example.com"], False),
        ("https://a.example.com", "yes", [""], False),
        ("https://a.example.com", "unknown", [], True),
        ("https://a.example.com", "unknown", ["https://a.example.com"], True),
        ("https://a.example.com", "unknown", ["https://b.example.com"], False),
        ("https://a.example.com", "no", ["HTTPS://A.example.com"], False),
        (None, "unknown", [], True),
        (None, "unknown", ["https://a.example.com"], True),
        (None, "unknown", ["https://a.example.com", "https://b.example.com"], False),
        (None, "no", [], True),
    ],
)
def test_S_4_the_issuer_is_compared_as_it_stands(spec_with, issuer, announced, values, goes_on):
    """RFC 9207: missing where it is announced, another one, or twice: refused before anything is sent."""
    spec = spec_with({"authorize.issuer": issuer, "authorize.issuer_announced": announced})

    assert oauth2.check_iss(spec, values) is goes_on


# --- token requests -----------------------------------------------------------------------------------------------


@pytest.mark.rule("S-2")
def test_a_code_is_exchanged(spec):
    """RFC 6749 section 4.1.3, the client by Basic."""
    request = oauth2.build_exchange(spec, CLIENT, SECRET, Secret("code/1+"), VERIFIER, REDIRECT)

    assert (request.method, request.url) == ("POST", "https://acme.example.com/token")
    assert form(request) == {
        "grant_type": "authorization_code",
        "code": "code/1+",
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER.reveal(),
    }
    assert request.headers["Accept"] == "application/json"
    assert request.headers["Accept-Encoding"] == "identity"


def test_a_grant_is_refreshed(spec_with):
    """RFC 6749 section 6, at the address of its own where there is one."""
    spec = spec_with({"refresh.url": "https://acme.example.com/refresh"})

    request = oauth2.build_refresh(spec, CLIENT, SECRET, REFRESH.token)

    assert request.url == "https://acme.example.com/refresh"
    assert form(request) == {"grant_type": "refresh_token", "refresh_token": "refresh+canary/="}
    assert oauth2.build_refresh(spec_with(), CLIENT, SECRET, REFRESH.token).url == "https://acme.example.com/token"


def test_basic_encodes_id_and_secret_first(spec):
    """RFC 6749 section 2.3.1: a colon, plus or percent in them survives."""
    request = oauth2.build_refresh(spec, CLIENT, Secret("s:e+c%r/t é"), REFRESH.token)

    kind, _, value = request.headers["Authorization"].partition(" ")
    assert (kind, base64.b64decode(value).decode()) == ("Basic", "client-1:s%3Ae%2Bc%25r%2Ft+%C3%A9")


@pytest.mark.parametrize(
    ("how", "in_body"),
    [
        ("basic", {}),
        ("post", {"client_id": "client-1", "client_secret": SECRET.reveal()}),
        ("none", {"client_id": "client-1"}),
    ],
)
def test_the_client_says_who_it_is_in_one_way(spec_with, how, in_body):
    """Basic or body, never both; a public client by its id alone."""
    request = oauth2.build_refresh(spec_with({"token.client_auth": how}), CLIENT, SECRET, REFRESH.token)

    sent = form(request)
    assert {name: sent[name] for name in sent.keys() & {"client_id", "client_secret"}} == in_body
    assert ("Authorization" in request.headers) is (how == "basic")


def test_a_provider_may_want_json(spec_with):
    """The same fields as a JSON object."""
    spec = spec_with({"token.body": "json", "token.client_auth": "post"})

    request = oauth2.build_refresh(spec, CLIENT, SECRET, REFRESH.token)

    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body) == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh+canary/=",
        "client_id": "client-1",
        "client_secret": SECRET.reveal(),
    }


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize("how", ["basic", "post"])
def test_without_its_secret_nothing_is_built(spec_with, how):
    """A missing secret is noticed before a code is spent (RB-20)."""
    spec = spec_with({"token.client_auth": how})

    with pytest.raises(ValueError, match="acme-web has no secret"):
        oauth2.build_exchange(spec, CLIENT, None, Secret("code"), VERIFIER, REDIRECT)


# --- identity and revocation --------------------------------------------------------------------------------------


def test_the_account_is_asked_for_with_the_access_token(spec):
    """A GET with the token in its header (RFC 6750 section 2.1)."""
    request = oauth2.build_identity(spec, ACCESS.token)

    assert (request.method, request.url, request.body) == ("GET", "https://acme.example.com/me", b"")
    assert request.headers["Authorization"] == "Bearer access-canary"


def test_a_provider_that_cannot_be_asked_is_not_asked(spec_with):
    """No request, and no error either."""
    spec = spec_with({"identity": {"in_token_response": "user.id"}})

    answer = oauth2.identity(None, spec, ACCESS.token, 1000)  # type: ignore[arg-type]

    assert answer.outcome is IdentityOutcome.UNREADABLE
    with pytest.raises(ValueError, match="no identity request"):
        oauth2.build_identity(spec, ACCESS.token)


@pytest.mark.parametrize(
    ("how", "in_body"),
    [
        ("basic", {}),
        ("post", {"client_id": "client-1", "client_secret": SECRET.reveal()}),
        ("id_only", {"client_id": "client-1"}),
        ("none", {}),
    ],
)
def test_a_token_is_revoked(spec_with, how, in_body):
    """RFC 7009 section 2.1, the client as the entry says."""
    spec = spec_with({"revocation.client_auth": how})

    request = oauth2.build_revoke(spec, CLIENT, SECRET, REFRESH)

    assert (request.method, request.url) == ("POST", "https://acme.example.com/revoke")
    assert form(request) == {"token": "refresh+canary/=", **in_body}
    assert ("Authorization" in request.headers) is (how == "basic")


@pytest.mark.parametrize("material", [REFRESH, ACCESS])
def test_the_hint_is_the_tokens_kind(spec_with, material):
    """Where the provider takes a hint."""
    spec = spec_with({"revocation.token_type_hint": True})

    assert form(oauth2.build_revoke(spec, CLIENT, SECRET, material))["token_type_hint"] == material.kind


def test_a_provider_without_revocation_gets_no_request(spec_with):
    """Asking for one is a mistake of ours."""
    spec = spec_with({"revocation": {"shape": "none", "manual_page": "https://acme.example.com/apps"}})

    with pytest.raises(ValueError, match="no revocation request"):
        oauth2.build_revoke(spec, CLIENT, SECRET, REFRESH)


@pytest.mark.rule("S-13", "I-17")
def test_no_request_has_a_secret_in_its_url_or_shows_one(spec_with):
    """S-13: tokens only in bodies and the Authorization header; and a request prints neither."""
    spec = spec_with({"token.client_auth": "post", "revocation.client_auth": "post"})
    requests = [
        oauth2.build_exchange(spec, CLIENT, SECRET, Secret("code-canary"), VERIFIER, REDIRECT),
        oauth2.build_refresh(spec, CLIENT, SECRET, REFRESH.token),
        oauth2.build_identity(spec, ACCESS.token),
        oauth2.build_revoke(spec, CLIENT, SECRET, REFRESH),
    ]

    for request in requests:
        assert "canary" not in request.url
        assert "canary" not in repr(request)
        assert "acme.example.com" not in repr(request)
        others = {name: value for name, value in request.headers.items() if name != "Authorization"}
        assert "canary" not in repr(others)


@pytest.mark.rule("RB-56")
def test_RB_56_google_is_asked_for_consent_and_so_gives_a_refresh_token_each_time():
    """By the shipped entry: without both parameters a second consent brings none."""
    spec = Catalogue().get("google")
    asked = AuthorizationAsked(REDIRECT, Secret("s"), "c", None, frozenset({"openid"}))

    sent = parse_qs(urlsplit(oauth2.authorize_url(spec, CLIENT, asked)).query)

    assert (sent["access_type"], sent["prompt"]) == (["offline"], ["consent"])
