"""Our OAuth 2.0 against django-oauth-toolkit: what each of its answers becomes, judged at its own ledger."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from infra.local.browser import Browser, Page
from infra.local.provider.control import TOKEN_PATH, ProviderControl, digest_of
from infra.local.provider.person import consent, sign_in
from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import IdentityOutcome, Outcome, RevokeAnswer, RevokeOutcome, TokenAnswer, TokenGrant
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import challenge_of
from quitclaim.providers import oauth2
from quitclaim.providers.compile import compile_file
from quitclaim.providers.spec import Catalogue, ProviderSpec
from quitclaim.providers.transport import async_http, sync_http

from .conftest import Registered

SPEC = Path(__file__).parents[2] / "infra" / "local" / "provider" / "dot.yaml"
CALL_MS = 10_000
UNKNOWN_TOKEN = Secret("never-issued-by-anybody")


class Dot:
    """One person, one client, and our requests between them."""

    def __init__(self, provider: ProviderControl, client: Registered, spec: ProviderSpec) -> None:
        self.provider, self.spec, self.registered = provider, spec, client
        self.client = ProviderClient("dot", "dot", client.client_id, "ssm:none", ("identity", "notes"))
        self.secret = Secret(client.secret)
        self.verifier = Secret(secrets.token_urlsafe(32))
        self.state = Secret(secrets.token_urlsafe(32))
        self.http = sync_http()

    def back(self, *, allow: bool = True) -> Page:
        """Through login and consent, up to the redirect that leads back to us."""
        asked = AuthorizationAsked(
            self.registered.redirect_uri,
            self.state,
            challenge_of(self.verifier),
            scopes=frozenset(self.client.scopes),
        )
        url = oauth2.authorize_url(self.spec, self.client, asked)
        with Browser() as browser:
            page = sign_in(browser, browser.open(url), "alice", self.provider.accounts["alice"]["password"])
            return consent(browser, page, allow=allow, follow=False)

    def exchange(self, code: Secret, timeout_ms: int = CALL_MS) -> TokenAnswer:
        return oauth2.exchange(
            self.http,
            self.spec,
            self.client,
            self.secret,
            code,
            self.verifier,
            self.registered.redirect_uri,
            timeout_ms,
        )

    def granted(self) -> TokenGrant:
        answer = self.exchange(Secret(self.back().query["code"]))
        assert answer.outcome is Outcome.GRANTED
        assert answer.grant is not None
        return answer.grant

    def refresh(self, token: Secret | None, timeout_ms: int = CALL_MS) -> TokenAnswer:
        assert token is not None
        return oauth2.refresh(self.http, self.spec, self.client, self.secret, token, timeout_ms)

    def revoke(self, token: Secret | None) -> RevokeAnswer:
        assert token is not None
        material = Material(kind="refresh_token", token=token)

        async def call() -> RevokeAnswer:
            async with async_http(None, in_flight=1) as http:
                return await oauth2.revoke(http, self.spec, self.client, self.secret, material, CALL_MS, lambda: 0.0)

        return asyncio.run(call())

    def living(self) -> list[str]:
        lines = self.provider.ledger(self.registered.client_id, "refresh")
        return [line.digest for line in lines if line.live]


@pytest.fixture(scope="session")
def spec(provider: ProviderControl, tmp_path_factory: pytest.TempPathFactory) -> ProviderSpec:
    """The local provider's catalogue file, compiled for the address of this run."""
    folder = tmp_path_factory.mktemp("catalogue")
    compile_file(SPEC, folder, variables={"base": provider.url}, allow_loopback=True)
    return Catalogue((folder,)).get("dot")


@pytest.fixture
def dot(provider: ProviderControl, client: Registered, spec: ProviderSpec) -> Iterator[Dot]:
    dot = Dot(provider, client, spec)
    with dot.http:
        yield dot


def test_a_code_becomes_a_grant(dot: Dot) -> None:
    """Access and refresh token, lifetime and scopes as the provider says; the ledger has one living refresh token."""
    grant = dot.granted()

    assert grant.refresh_token is not None
    assert grant.expires_in_s == 3600
    assert grant.scopes == frozenset({"identity", "notes"})
    assert grant.token_type.lower() == "bearer"
    assert dot.living() == [digest_of(grant.refresh_token.reveal())]


@pytest.mark.rule("S-4")
def test_the_callback_carries_the_issuer_that_the_catalogue_names(dot: Dot) -> None:
    """`iss` of RFC 9207 is the provider's; another one is not taken."""
    back = dot.back()

    assert back.query["state"] == dot.state.reveal()
    assert oauth2.check_iss(dot.spec, [back.query["iss"]])
    assert not oauth2.check_iss(dot.spec, ["https://evil.example"])
    assert not oauth2.check_iss(dot.spec, [back.query["iss"], back.query["iss"]])


def test_a_no_carries_no_issuer_and_may_still_be_read(dot: Dot) -> None:
    """The toolkit leaves `iss` out where a person said no, so the catalogue does not insist on it."""
    back = dot.back(allow=False)

    assert back.query["error"] == "access_denied"
    assert oauth2.check_iss(dot.spec, [back.query["iss"]] if "iss" in back.query else [])


def test_a_replayed_code_is_rejected_for_good(dot: Dot) -> None:
    """The second exchange of one code is a verdict, not a try-later; the first grant lives on."""
    code = Secret(dot.back().query["code"])
    first = dot.exchange(code)

    second = dot.exchange(code)

    assert first.outcome is Outcome.GRANTED
    assert (second.outcome, second.error_code) == (Outcome.REJECTED, "invalid_grant")
    assert len(dot.living()) == 1


@pytest.mark.rule("S-2")
def test_a_verifier_of_somebody_else_is_rejected(dot: Dot) -> None:
    """PKCE holds: a stolen code is worth nothing."""
    code, dot.verifier = Secret(dot.back().query["code"]), Secret(secrets.token_urlsafe(32))

    answer = dot.exchange(code)

    assert answer.outcome is Outcome.REJECTED
    assert dot.living() == []


def test_a_wrong_client_secret_is_a_fault_of_the_configuration(dot: Dot) -> None:
    """It is the client that is wrong, never the user's grant."""
    grant, dot.secret = dot.granted(), Secret("not-the-secret")

    answer = dot.refresh(grant.refresh_token)

    assert answer.config_fault
    assert answer.outcome is not Outcome.REJECTED
    assert len(dot.living()) == 1


def test_a_refresh_rotates(dot: Dot) -> None:
    """A new pair; the old refresh token is spent, the old access token inactive."""
    first = dot.granted()

    second = dot.refresh(first.refresh_token).grant

    assert second is not None
    assert second.refresh_token is not None
    assert first.refresh_token != second.refresh_token
    assert dot.living() == [digest_of(second.refresh_token.reveal())]
    assert not dot.provider.introspect(first.access_token.reveal())


def test_reuse_of_a_spent_token_kills_the_family(dot: Dot) -> None:
    """A replay of the old token is rejected, and takes the successor with it: refreshes are never simply repeated."""
    first = dot.granted()
    second = dot.refresh(first.refresh_token).grant
    assert second is not None

    reused = dot.refresh(first.refresh_token)
    afterwards = dot.refresh(second.refresh_token)

    assert (reused.outcome, reused.error_code) == (Outcome.REJECTED, "invalid_grant")
    assert afterwards.outcome is Outcome.REJECTED
    assert dot.living() == []


def test_an_answer_that_does_not_come_is_unknown(dot: Dot) -> None:
    """The provider rotated, and we cannot know: neither granted nor rejected nor not sent."""
    first = dot.granted()
    dot.provider.stall(TOKEN_PATH)

    answer = dot.refresh(first.refresh_token, timeout_ms=400)

    dot.provider.release()
    assert answer.outcome is Outcome.UNKNOWN
    assert len(dot.living()) == 1


def test_a_provider_that_is_not_there_was_not_asked(dot: Dot) -> None:
    """A refused connection provably sent nothing."""
    http = httpx.Client(transport=_Nobody(), trust_env=False)
    with http:
        answer = oauth2.refresh(http, dot.spec, dot.client, dot.secret, UNKNOWN_TOKEN, CALL_MS)

    assert answer.outcome is Outcome.NOT_SENT


def test_a_revocation_is_confirmed_and_can_be_repeated(dot: Dot) -> None:
    """Twice 200: the second one says nothing new, and nothing wrong. The provider then refuses the token."""
    grant = dot.granted()

    first, second = dot.revoke(grant.refresh_token), dot.revoke(grant.refresh_token)

    assert first.outcome is RevokeOutcome.CONFIRMED
    assert second.outcome in (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE)
    assert dot.living() == []
    assert not dot.provider.introspect(grant.access_token.reveal())
    verdict = dot.provider.try_refresh(dot.registered.client_id, dot.registered.secret)
    assert (verdict.accepted, verdict.error) == (False, "invalid_grant")


def test_a_revocation_with_a_wrong_secret_is_not_a_success(dot: Dot) -> None:
    """The grant lives, and nobody may call it revoked."""
    grant, dot.secret = dot.granted(), Secret("not-the-secret")

    answer = dot.revoke(grant.refresh_token)

    assert answer.outcome not in (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE)
    assert len(dot.living()) == 1


def test_the_identity_is_read_with_the_access_token(dot: Dot) -> None:
    """Whose grant it is, and a refusal once it was revoked."""
    grant = dot.granted()

    alive = oauth2.identity(dot.http, dot.spec, grant.access_token, CALL_MS)
    dot.revoke(grant.refresh_token)
    dead = oauth2.identity(dot.http, dot.spec, grant.access_token, CALL_MS)

    assert (alive.outcome, alive.account_id) == (IdentityOutcome.READ, dot.provider.accounts["alice"]["sub"])
    assert dead.outcome is not IdentityOutcome.READ


class _Nobody(httpx.BaseTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")
