"""Pushed authorization requests (RFC 9126), assertions instead of secrets (RFC 7523), and resources (RFC 8707)."""

import asyncio
import json
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest
from jwcrypto.jwt import JWT

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.errors import ClientConfigError, ProviderBusyError
from quitclaim.domain.outcomes import Outcome
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.providers.client import OAuthClient, ProviderHttp, no_clock, no_ids
from tests.fakes.issuer import key
from tests.providers.specs import CLIENT, SECRET

PAR = {"authorize.par": "yes", "authorize.par_url": "https://acme.example.com/par"}
KEYED = {"token.client_auth": "private_key_jwt", "revocation.client_auth": "private_key_jwt"}
ASKED = AuthorizationAsked(
    "https://app/cb", Secret("state-canary"), "challenge-1", None, frozenset({"read"}), Secret("ann@canary.example")
)
URI = "urn:ietf:params:oauth:request_uri:6esc_11ACC5bwc014ltc14eY22c"
NOW = 1_800_000_000.9


class Provider:
    """Answers everything well unless told otherwise, and remembers what it was asked."""

    def __init__(self, answer=None):
        self.answer = answer or httpx.Response(201, json={"request_uri": URI, "expires_in": 60})
        self.asked = []

    def __call__(self, request):
        self.asked.append(request)
        if request.url.path == "/par":
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        if request.url.path == "/revoke":
            return httpx.Response(200)
        return httpx.Response(200, json={"access_token": "a", "refresh_token": "r"})


def fields(request):
    """Of its form, each once."""
    pairs = parse_qsl(request.content.decode(), keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def a_client(spec, provider, settings=CLIENT, secret=SECRET):
    """With a clock and ids."""
    numbers = iter(range(100))
    transport = httpx.MockTransport(provider)
    http = ProviderHttp(transport, transport, lambda: NOW, lambda: f"jti-{next(numbers)}")
    return OAuthClient(settings, spec, lambda ref: secret, http)


def pem(by):
    """As an operator has it."""
    return Secret(by.export_to_pem(private_key=True, password=None).decode())


# --- pushed requests -------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-13")
def test_a_pushed_request_leaves_nothing_in_the_browsers_address(spec_with):
    """RFC 9126: all parameters and the client's authentication go to the provider itself (2.1), the rest by URL (4)."""
    provider = Provider()

    url = a_client(spec_with(PAR), provider).authorize_url(ASKED)

    (request,) = provider.asked
    sent = fields(request)
    assert (request.method, str(request.url)) == ("POST", "https://acme.example.com/par")
    assert request.headers["authorization"].startswith("Basic ")
    assert sent == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": "https://app/cb",
        "state": "state-canary",
        "scope": "read",
        "code_challenge": "challenge-1",
        "code_challenge_method": "S256",
        "login_hint": "ann@canary.example",
    }
    assert url.startswith("https://acme.example.com/authorize?")
    assert parse_qs(urlsplit(url).query) == {"client_id": ["client-1"], "request_uri": [URI]}
    assert "canary" not in url


def test_a_provider_that_is_not_known_to_take_them_is_asked_by_the_browser(spec_with):
    """`unknown` and `no`: no request leaves."""
    for par in ("unknown", "no"):
        provider = Provider()
        assert "state=state-canary" in a_client(spec_with({"authorize.par": par}), provider).authorize_url(ASKED)
        assert provider.asked == []


BUSY = {
    "not connected": httpx.ConnectError("refused"),
    "silent": httpx.ReadTimeout("silent"),
    "broken": httpx.Response(500),
    "too many": httpx.Response(429, headers={"Retry-After": "7"}),
    "away": httpx.Response(503),
    "a page": httpx.Response(200, html="<html>"),
}
WRONG = {
    "refused": httpx.Response(400, json={"error": "invalid_request"}),
    "another client": httpx.Response(401, json={"error": "invalid_client"}),
    "no request_uri": httpx.Response(201, json={"expires_in": 60}),
    "a request_uri of two words": httpx.Response(201, json={"request_uri": "a b"}),
    "a request_uri that is too long": httpx.Response(201, json={"request_uri": "u" * 513}),
    "a request_uri beside an error": httpx.Response(201, json={"request_uri": URI, "error": "x"}),
    "moved": httpx.Response(302, headers={"Location": "https://evil.example.com"}),
}


@pytest.mark.parametrize("answer", BUSY.values(), ids=BUSY.keys())
def test_a_push_that_gets_no_answer_may_be_tried_again(spec_with, answer):
    """Nothing was granted: the user opens the link once more."""
    provider = Provider(answer)

    with pytest.raises(ProviderBusyError) as refused:
        a_client(spec_with(PAR), provider).authorize_url(ASKED)

    assert len(provider.asked) == 1
    assert refused.value.retry_after_ms in (None, 7_000)


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG.keys())
def test_a_push_that_is_refused_is_the_clients_fault(spec_with, answer):
    """Nobody else has written any of it; no redirect is followed."""
    provider = Provider(answer)

    with pytest.raises(ClientConfigError):
        a_client(spec_with(PAR), provider).authorize_url(ASKED)

    assert len(provider.asked) == 1


# --- assertions ------------------------------------------------------------------------------------------------------


def everything(client):
    """Each of its requests in which a client proves itself."""
    client.prepare()
    client.authorize_url(ASKED)
    client.exchange(code=Secret("k"), verifier=Secret("v"), redirect_uri="https://app/cb", timeout_ms=1000)
    client.refresh(refresh_token=Secret("r"), timeout_ms=1000)
    asyncio.run(client.revoke(material=Material("refresh_token", Secret("r")), timeout_ms=1000))


def test_a_signing_key_is_no_list(spec_with):
    """An older key would be sent under the id of the new one: it is said before anything is sent."""
    provider = Provider()
    settings = ProviderClient(
        "acme-web", "acme", "client-1", "ssm:/q/new", ("read",), older_secrets=("ssm:/q/old",), key_id="k1"
    )
    client = a_client(spec_with(PAR | KEYED), provider, settings, pem(key("k1")))

    for call in (client.prepare, lambda: client.authorize_url(ASKED)):
        with pytest.raises(ClientConfigError) as refused:
            call()
        assert "signing key" in refused.value.details["reason"]
    assert client.refresh(refresh_token=Secret("r"), timeout_ms=1000).outcome is Outcome.NOT_SENT
    assert provider.asked == []


@pytest.mark.rule("S-28")
@pytest.mark.parametrize("audience", ["token_url", "issuer"])
def test_every_request_has_an_assertion_of_its_own(spec_with, audience):
    """Signed with the client's key, for one audience everywhere; no secret and no key leaves."""
    changes = {"token.assertion_audience": audience, "authorize.issuer": "https://acme.example.com"}
    provider, by = Provider(), key("k1")
    settings = ProviderClient("acme-web", "acme", "client-1", "ssm:/q/secret", ("read",), key_id="k1")

    everything(a_client(spec_with(PAR | KEYED | changes), provider, settings, pem(by)))

    ids = []
    for request in provider.asked:
        sent = fields(request)
        assert sent["client_id"] == "client-1"
        assert sent["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        assert "authorization" not in request.headers
        assert "client_secret" not in sent
        told = JWT(jwt=sent["client_assertion"], key=by, check_claims={"exp": None})
        claims = json.loads(told.claims)
        ids.append(claims["jti"])
        expected = "https://acme.example.com" if audience == "issuer" else "https://acme.example.com/token"
        assert (claims["aud"], claims["exp"]) == (expected, int(NOW) + 60)
        assert json.loads(told.header)["kid"] == "k1"
    assert [request.url.path for request in provider.asked] == ["/par", "/token", "/token", "/revoke"]
    assert len(set(ids)) == 4


def test_a_secret_that_is_no_key_is_noticed_before_anything_is_sent(spec_with):
    """At the callback too, where a code would be spent."""
    provider = Provider()
    client = a_client(spec_with(PAR | KEYED), provider)

    with pytest.raises(ClientConfigError):
        client.prepare()
    with pytest.raises(ClientConfigError):
        client.authorize_url(ASKED)
    assert provider.asked == []


def test_who_needs_time_or_chance_is_given_them():
    """A stack that forgot says so at once."""
    for forgotten in (no_clock, no_ids):
        with pytest.raises(RuntimeError):
            forgotten()


# --- resources -------------------------------------------------------------------------------------------------------


def test_a_resource_is_named_in_both_requests(spec_with):
    """RFC 8707 section 2."""
    provider = Provider()
    client = a_client(spec_with({"authorize.resource": "https://api.acme.example.com"}), provider)

    url = client.authorize_url(ASKED)
    client.exchange(code=Secret("k"), verifier=None, redirect_uri="https://app/cb", timeout_ms=1000)

    assert parse_qs(urlsplit(url).query)["resource"] == ["https://api.acme.example.com"]
    assert fields(provider.asked[0])["resource"] == "https://api.acme.example.com"
