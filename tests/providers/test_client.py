"""A client as the flows see it, on a provider behind `httpx.MockTransport`; and its settings."""

import asyncio
import base64
from urllib.parse import parse_qs

import httpx
import pytest

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ClientFaultsError, ProviderClient, read_client
from quitclaim.domain.errors import ClientConfigError
from quitclaim.domain.outcomes import IdentityOutcome, Outcome, RevokeOutcome
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.ports import Client
from quitclaim.providers.client import OAuthClient, ProviderHttp
from tests.providers.specs import CLIENT, SECRET

REFRESH = Secret("refresh-1")


class Provider:
    """A provider that issues, tells and revokes one token pair, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        match request.url.path:
            case "/token":
                return httpx.Response(200, json={"access_token": "access-2", "refresh_token": "refresh-2"})
            case "/me":
                return httpx.Response(200, json={"sub": "user-1"})
            case "/revoke":
                return httpx.Response(200)
        return httpx.Response(404)


def a_client(spec, provider, settings=CLIENT, source=lambda ref: SECRET) -> Client:
    http = ProviderHttp(httpx.MockTransport(provider), httpx.MockTransport(provider))
    return OAuthClient(settings, spec, source, http)


def test_a_grants_whole_life(spec):
    """Authorized, exchanged, told, refreshed, revoked: one request each."""
    provider = Provider()
    client = a_client(spec, provider)

    url = client.authorize_url(AuthorizationAsked("https://app/cb", Secret("s"), "c"))
    exchanged = client.exchange(code=Secret("k"), verifier=Secret("v"), redirect_uri="https://app/cb", timeout_ms=1000)
    told = client.identity(access_token=exchanged.grant.access_token, timeout_ms=1000)
    refreshed = client.refresh(refresh_token=exchanged.grant.refresh_token, timeout_ms=1000)
    material = Material("refresh_token", refreshed.grant.refresh_token)
    revoked = asyncio.run(client.revoke(material=material, timeout_ms=1000))

    assert "client_id=client-1" in url
    assert client.is_issuer([])
    assert [exchanged.outcome, refreshed.outcome] == [Outcome.GRANTED, Outcome.GRANTED]
    assert (told.outcome, told.account_id) == (IdentityOutcome.READ, "user-1")
    assert revoked.outcome is RevokeOutcome.CONFIRMED
    assert [request.url.path for request in provider.asked] == ["/token", "/me", "/token", "/revoke"]
    assert parse_qs(provider.asked[3].content.decode())["token"] == ["refresh-2"]
    basic = base64.b64encode(f"client-1:{SECRET.reveal()}".encode()).decode()
    assert provider.asked[3].headers["Authorization"] == f"Basic {basic}"


def test_what_the_flows_read_of_it(spec):
    """Name, provider, scopes, facts and settings."""
    client = a_client(spec, Provider(), ProviderClient("web", "acme", "id", "ssm:/s", ("a", "b"), "none", True))

    assert (client.name, client.provider, client.scopes) == ("web", "acme", {"a", "b"})
    assert (client.confirmation, client.purge_on_loss) == ("none", True)
    assert client.facts == spec.facts


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize("settings", [CLIENT, ProviderClient("acme-web", "acme", "client-1", None, ())])
def test_RB_20_a_missing_secret_is_noticed_before_anything_is_sent(spec, settings):
    """It is a fault of the client's settings: no request leaves, no grant is judged."""
    provider = Provider()

    def missing(ref):
        raise ClientConfigError(client="acme-web", reason="the parameter is missing")

    client = a_client(spec, provider, settings, missing)
    material = Material("refresh_token", REFRESH)

    for call in (client.prepare, lambda: asyncio.run(client.revoke(material=material, timeout_ms=1))):
        with pytest.raises(ClientConfigError):
            call()
    answers = [
        client.exchange(code=Secret("k"), verifier=Secret("v"), redirect_uri="x", timeout_ms=1),
        client.refresh(refresh_token=REFRESH, timeout_ms=1),
        asyncio.run(client.renew(refresh_token=REFRESH, timeout_ms=1)),
    ]
    assert {(each.outcome, each.config_fault) for each in answers} == {(Outcome.NOT_SENT, True)}
    assert provider.asked == []


def test_a_provider_may_take_no_secret(spec_with):
    """A public client has none, and needs none."""
    spec = spec_with({"token.client_auth": "none", "revocation.client_auth": "id_only"})
    client = a_client(spec, Provider(), ProviderClient("acme-web", "acme", "client-1", None, ()))

    client.prepare()

    assert client.refresh(refresh_token=REFRESH, timeout_ms=1000).outcome is Outcome.GRANTED


def test_revocations_in_one_run_share_a_client(spec):
    """Inside `in_flight` there is one HTTP client; outside, each call has its own; and a later loop starts anew."""
    opened = []

    class Counting(httpx.MockTransport):
        async def __aenter__(self):
            opened.append(self)
            return self

    http = ProviderHttp(async_transport=Counting(Provider()))
    client = OAuthClient(CLIENT, spec, lambda ref: SECRET, http)

    async def many():
        async with http.in_flight(4):
            material = Material("refresh_token", REFRESH)
            return await asyncio.gather(*(client.revoke(material=material, timeout_ms=1000) for _ in range(5)))

    for _ in range(2):
        assert {answer.outcome for answer in asyncio.run(many())} == {RevokeOutcome.CONFIRMED}
    assert len(opened) == 2
    asyncio.run(client.revoke(material=Material("refresh_token", REFRESH), timeout_ms=1000))
    assert len(opened) == 3


# --- settings -----------------------------------------------------------------------------------------------------

CONFIG = {"provider": "google", "client_id": "id", "secret": "ssm:/q/s/google", "scopes": ["openid", "email"]}


def test_a_client_is_read_from_its_parameter():
    """With its defaults: the owner confirms, and a loss keeps the app's data."""
    assert read_client("google", CONFIG) == ProviderClient(
        "google", "google", "id", "ssm:/q/s/google", ("openid", "email"), "owner", False
    )
    chosen = {**CONFIG, "confirmation": "none", "purge_on_loss": True, "scopes": ["a", "a"]}
    assert read_client("g", chosen) == ProviderClient("g", "google", "id", "ssm:/q/s/google", ("a",), "none", True)


@pytest.mark.parametrize(
    "ref", ["ssm:/quitclaim-secrets/stack/google", "secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:q/s-Ab1"]
)
def test_a_secret_lies_in_ssm_or_secrets_manager(ref):
    """By name or ARN."""
    assert read_client("google", {**CONFIG, "secret": ref}).secret_ref == ref


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"provider": ""}, "provider"),
        ({"provider": 5}, "provider"),
        ({"client_id": " "}, "client_id"),
        ({"client_id": "a\nb"}, "client_id"),
        ({"secret": "canary-secret"}, "secret"),
        ({"secret": ""}, "secret"),
        ({"secret": 5}, "secret"),
        ({"scopes": "openid"}, "scopes"),
        ({"scopes": ["a b"]}, "scopes"),
        ({"scopes": [1]}, "scopes"),
        ({"confirmation": "off"}, "confirmation"),
        ({"purge_on_loss": "yes"}, "purge_on_loss"),
        ({"client_secret": "canary"}, "client_secret"),
    ],
)
def test_settings_that_do_not_hold_are_refused(change, said):
    """By field, with what to write, and never with the value: it may be the secret itself."""
    with pytest.raises(ClientFaultsError) as error:
        read_client("google", {**CONFIG, **change})

    assert [fault.partition(":")[0] for fault in error.value.faults] == [said]
    assert "canary" not in str(error.value)


def test_a_client_with_a_key_may_say_its_id():
    """As the provider knows it; nothing said is none."""
    settings = {"provider": "acme", "client_id": "id", "secret": "ssm:/s"}

    assert read_client("web", settings | {"key_id": "k-1"}).key_id == "k-1"
    assert read_client("web", settings).key_id is None
    with pytest.raises(ClientFaultsError, match="key_id"):
        read_client("web", settings | {"key_id": "k\n"})


def test_every_fault_is_told_at_once():
    """One look at the log, one correction."""
    with pytest.raises(ClientFaultsError) as error:
        read_client("a b", {"x": 1})

    assert len(error.value.faults) == 4
