"""
The product, whole and running, against `oidc-provider` set up as strictly as it can be: authorization requests only
pushed (RFC 9126), clients known by a key (`private_key_jwt`, RFC 7523), and the owner's account from an ID token.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from infra.local.browser import Browser
from infra.local.life import RegisteredClient, expect
from infra.local.stack import LocalStack
from quitclaim.providers.compile import compiled_text
from quitclaim.providers.metadata import differences
from quitclaim.providers.spec import ProviderSpec, spec_of
from tests.interop.oidc_provider import peer
from tests.interop.oidc_provider.peer import OidcControl, OidcLife

EXPIRED_S = 3660

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcControl]:
    """The authorization server. Skips where there is no Node, and fails there in CI."""
    with peer.running(tmp_path_factory.mktemp("pushed-provider"), pushed=True) as control:
        yield control


@pytest.fixture(scope="module")
def stack(oidc: OidcControl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The product's stack; schedules run when a test says so."""
    catalogue = [(peer.PUSHED_SPEC, {"base": oidc.url})]
    with LocalStack(tmp_path_factory.mktemp("pushed-stack"), schedules=False, catalogue=catalogue) as running:
        yield running


def a_key() -> str:
    """A private key in PEM, as an operator would make one."""
    key = generate_private_key(public_exponent=65_537, key_size=2_048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def registered(
    stack: LocalStack, oidc: OidcControl, name: str, *, key: str, held: str | None = None
) -> RegisteredClient:
    """A client whose *key* the server knows; ours holds *held*, or the same."""
    oidc.register(name, key, [f"{stack.base_url}/callback/pushed"], name="Quitclaim, interop")
    settings = {"provider": "pushed", "client_id": name, "scopes": peer.SCOPES, "key_id": "client"}
    stack.add_client(name, settings, held or key)
    return RegisteredClient(name, name, held or key, "pushed")


@pytest.fixture(scope="module")
def client(stack: LocalStack, oidc: OidcControl) -> RegisteredClient:
    """One client for most tests."""
    return registered(stack, oidc, "keyed", key=a_key())


_owners = itertools.count(1)


@pytest.fixture(scope="module")
def a_life(stack: LocalStack, oidc: OidcControl) -> Iterator[Callable[[RegisteredClient], OidcLife]]:
    """Makes lives of connections, each of an owner and of a person whom nobody knows yet."""
    with ExitStack() as lives:

        def make(client: RegisteredClient) -> OidcLife:
            owner = f"owner-{next(_owners)}"
            life = OidcLife(stack, oidc, client, owner, connection_id="pushed", username=oidc.person())
            return lives.enter_context(life)

        yield make


def spec(oidc: OidcControl) -> ProviderSpec:
    """The entry, with the server's address of this run."""
    return spec_of(json.loads(compiled_text(peer.PUSHED_SPEC, variables={"base": oidc.url}, allow_loopback=True)))


def test_the_entry_is_what_the_server_says_of_itself(oidc: OidcControl) -> None:
    """RFC 8414: no difference; and an entry without the defences that the server demands has some."""
    said = oidc.metadata()

    assert said["require_pushed_authorization_requests"] is True
    assert "private_key_jwt" in said["token_endpoint_auth_methods_supported"]  # type: ignore[operator]
    assert differences(spec(oidc), said) == []
    text = compiled_text(peer.SPEC, variables={"base": oidc.url}, allow_loopback=True)
    assert {each.field for each in differences(spec_of(json.loads(text)), said)} == {"authorize.par"}


def test_a_grant_lives_and_dies_by_a_key(a_life: Callable[..., OidcLife], client: RegisteredClient) -> None:
    """Pushed, consented, exchanged, proven by its ID token, confirmed, refreshed, revoked; all by signed requests."""
    life = a_life(client)

    page = life.allow(life.visit(life.start(login_hint=life.username)))

    asked = [parse_qs(urlsplit(url).query) for url in life.browser.history if f"{life.provider.url}/auth?" in url]
    assert asked
    assert all(query.keys() == {"client_id", "request_uri"} for query in asked)
    assert expect(life.confirm(life.code_on(page)), 200)["state"] == "ready"
    first = expect(life.token(), 200)
    assert life.provider.who_am_i(first["access_token"]).json()["sub"] == life.username
    life.stack.advance(EXPIRED_S)
    second = expect(life.token(), 200)
    assert second["token_version"] == first["token_version"] + 1
    expect(life.disconnect(), 200)
    life.revoked_by_the_kick()
    life.settle("revoked")
    assert life.view()["closed_as"] == "confirmed"
    assert life.living() == []
    assert not life.provider.introspect(second["access_token"])


def test_a_request_by_the_browser_is_refused_by_the_server(oidc: OidcControl, client: RegisteredClient) -> None:
    """So it was the pushed one that was taken."""
    with Browser() as browser:
        page = browser.open(
            f"{oidc.url}/auth?response_type=code&client_id={client.client_id}&scope=openid&state=x", follow=False
        )

    assert "Pushed Authorization Request must be used" in page.text or "error=" in (page.left_for or "")


def test_another_account_by_its_id_token_is_refused(a_life: Callable[..., OidcLife], client: RegisteredClient) -> None:
    """The connection is pinned to the subject that the first ID token named."""
    life = a_life(client)
    page = life.allow(life.visit(life.start()))
    expect(life.confirm(life.code_on(page)), 200)
    expect(life.disconnect(), 200)
    life.revoked_by_the_kick()
    life.settle("revoked")
    stranger = a_life(client)

    link = expect(life.api.post(f"{life.path}/reconnect", json={}), 201)["connect_url"]
    page = stranger.allow(stranger.visit(link))

    assert page.status == 409
    assert (life.view()["state"], life.view()["failure"]) == ("failed", "identity_mismatch")
    stranger.revoked_by_the_kick()
    assert stranger.living() == []


@pytest.mark.rule("S-28", "RB-20")
@pytest.mark.parametrize("held", ["another key", "no key at all"])
def test_a_key_that_the_server_does_not_know_sends_nobody_there(
    stack: LocalStack, oidc: OidcControl, a_life: Callable[..., OidcLife], held: str
) -> None:
    """The link answers that the client is misconfigured; nothing is granted, and the connection waits."""
    name = held.replace(" ", "-")
    wrong = registered(stack, oidc, name, key=a_key(), held=a_key() if held == "another key" else "canary")
    life = a_life(wrong)

    page = life.browser.open(life.start())

    assert page.status == 502
    assert "CLIENT_MISCONFIGURED" in page.text
    assert life.state == "authorizing"
    assert life.issued() == []
