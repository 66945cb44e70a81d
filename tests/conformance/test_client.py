"""
Every provider that ships, played by its own entry, through the product's HTTP client: connect, refresh, revoke, and
revoke again. One row a provider; a request that its entry does not describe fails the row.
"""

import asyncio
import json
from functools import cache
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import IdentityOutcome, Outcome, RevokeAnswer, RevokeOutcome, TokenGrant
from quitclaim.domain.revocations import material_of
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import challenge_of
from quitclaim.providers import placeholders
from quitclaim.providers.client import OAuthClient, ProviderHttp
from quitclaim.providers.spec import Catalogue, ProviderSpec
from tests.conformance.impersonated import CLIENT_ID, NOW_S, REDIRECT, SECRET, VALUES, Impersonated, Quirks
from tests.conformance.quirks import QUIRKS
from tests.conformance.table import row

PROVIDERS = Catalogue().ids()
VERIFIER = Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
DONE = (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE)


@cache
def key() -> ec.EllipticCurvePrivateKey:
    """Of a client that signs."""
    return ec.generate_private_key(ec.SECP256R1())


def secret_of(spec: ProviderSpec) -> Secret:
    """As the client keeps it."""
    if spec.token.minted is None:
        return Secret(SECRET)
    return Secret(key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


class Meeting:
    """A client of ours and the provider of an entry."""

    def __init__(self, name: str, quirks: Quirks | None = None) -> None:
        self.spec = Catalogue().get(name)
        self.provider = Impersonated(self.spec, quirks or QUIRKS.get(name), key().public_key())
        wanted = {each.parameter: VALUES[each.name] for each in self.spec.placeholders if each.source == "client"}
        scopes = ("read", "write", *(f"{prefix}mail" for prefix, _ in self.spec.authorize.scope_prefixes))
        self.settings = ProviderClient("c", name, CLIENT_ID, "ssm:/s", scopes, variables=wanted)
        http = ProviderHttp(self.provider.transport, self.provider.transport, lambda: NOW_S, lambda: "jti")
        self.client = OAuthClient(self.settings, self.spec, lambda ref: secret_of(self.spec), http)
        self.variables = placeholders.at_start(
            self.spec.placeholders,
            {each.parameter: VALUES[each.name] for each in self.spec.placeholders if each.source == "start"},
        )

    def connect(self) -> TokenGrant:
        """From the start to the grant."""
        challenge = None if self.spec.authorize.pkce == "none" else challenge_of(VERIFIER)
        asked = AuthorizationAsked(
            REDIRECT, Secret("state-1"), challenge, scopes=frozenset(self.settings.scopes), variables=self.variables
        )
        query = self.provider.approves(self.client.authorize_url(asked), self.settings.scopes)
        known = self.variables | placeholders.in_callback(self.spec.placeholders, self.variables, query)
        answer = self.client.exchange(
            code=Secret(query["code"][0]),
            verifier=None if challenge is None else VERIFIER,
            redirect_uri=REDIRECT,
            timeout_ms=5_000,
            variables=known,
        )
        assert answer.outcome is Outcome.GRANTED, answer
        assert answer.grant is not None
        return answer.grant

    def refreshed(self, grant: TokenGrant) -> TokenGrant:
        """One refresh; what it does not give again stays."""
        assert grant.refresh_token is not None
        answer = self.client.refresh(refresh_token=grant.refresh_token, timeout_ms=5_000, variables=grant.variables)
        assert answer.outcome is Outcome.GRANTED, answer
        assert answer.grant is not None
        fresh = answer.grant
        return TokenGrant(
            fresh.access_token,
            fresh.refresh_token or grant.refresh_token,
            account_id=grant.account_id,
            variables=grant.variables,
        )

    def revoked(self, grant: TokenGrant) -> list[RevokeAnswer]:
        """Each token that the provider takes of it, as the queue would send it."""
        facts = self.client.facts
        materials = material_of(
            facts.takes,
            facts.reach,
            grant.access_token,
            grant.refresh_token,
            ends_pair=facts.ends_pair,
            account_id=grant.account_id,
            variables=grant.variables,
        )

        async def all_of_them() -> list[RevokeAnswer]:
            return [await self.client.revoke(material=each, timeout_ms=5_000) for each in materials]

        return asyncio.run(all_of_them())


def account_of(meeting: Meeting, grant: TokenGrant) -> str | None:
    """Whose grant it is, in the way that the entry knows."""
    if grant.account_id is not None:
        return grant.account_id
    if meeting.spec.identity.request is None:
        return None
    told = meeting.client.identity(access_token=grant.access_token, timeout_ms=5_000, variables=grant.variables)
    assert told.outcome is IdentityOutcome.READ, told
    return told.account_id


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_is_met_as_it_is(name: str) -> None:
    """Connect, whose, refresh, revoke, revoke again: requests as the entry says, answers read for what they are."""
    meeting = Meeting(name)
    spec, told = meeting.spec, meeting.spec.revocation
    steps: dict[str, str] = {}

    grant = meeting.connect()
    steps["connect"] = "yes"
    account = account_of(meeting, grant)
    steps["account"] = "unknown" if account is None else "yes"
    expected = VALUES["shop"] if name == "shopify" else VALUES["realm_id"] if name == "quickbooks" else None
    assert account in (None, expected or meeting.provider.quirks.account)
    assert (account is None) is not spec.identity.is_known

    if spec.refresh.is_possible and grant.refresh_token is not None:
        before = grant
        grant = meeting.refreshed(meeting.refreshed(grant))
        steps["refresh"] = "twice"
        assert grant.access_token != before.access_token
    else:
        assert spec.refresh.mode in ("none", "refresh_token_optional"), "a refresh token is missing"
        steps["refresh"] = "none"

    if not meeting.client.facts.revocable:
        assert told.request is None or spec.status == "shut_down"
        steps["revoke"] = steps["again"] = "by hand"
        row(name, steps)
        return

    first = meeting.revoked(grant)
    unread = RevokeOutcome.ALREADY_GONE if spec.identity_proves_death else RevokeOutcome.AMBIGUOUS
    assert {each.outcome for each in first} == {RevokeOutcome.CONFIRMED if told.success is not None else unread}, first
    assert all(each.seems_done for each in first) is (told.success is None and not spec.identity_proves_death)
    if told.reach.ends_old_tokens or told.ends_pair or told.takes == "either":
        own = {grant.access_token.reveal(), (grant.refresh_token or grant.access_token).reveal()}
        assert not own & set(meeting.provider.live()) or told.takes == "either"
    asked = "checked by its account" if spec.identity_proves_death else "checked by a refresh"
    steps["revoke"] = "confirmed" if told.success is not None else asked

    again = meeting.revoked(grant)
    outcomes = {each.outcome for each in again}
    if told.repeat == "same_as_success" and told.success is not None:
        assert outcomes == {RevokeOutcome.CONFIRMED}
    elif told.already_gone:
        assert outcomes <= {*DONE}
    elif told.ambiguous or told.adapter is None:
        assert outcomes <= {RevokeOutcome.AMBIGUOUS, RevokeOutcome.ALREADY_GONE}
    else:
        assert not outcomes & set(DONE), "what nobody has read counts as revoked"
    steps["again"] = "/".join(sorted(outcomes))
    row(name, steps)


@pytest.mark.rule("RB-14", "RB-17")
@pytest.mark.parametrize(
    "name", [name for name in PROVIDERS if Catalogue().get(name).refresh.mode.startswith("refresh")]
)
def test_a_dead_refresh_token_is_a_verdict_in_every_dialect(name: str) -> None:
    """What this provider says of one: dead, and nothing of it in what we say."""
    meeting = Meeting(name)
    grant = meeting.connect()
    meeting.provider.ledger.clear()
    assert grant.refresh_token is not None

    answer = meeting.client.refresh(refresh_token=grant.refresh_token, timeout_ms=5_000, variables=grant.variables)

    known = (Outcome.REJECTED,) if name != "withings" else (Outcome.REJECTED, Outcome.TRY_LATER)
    assert answer.outcome in known, answer
    assert grant.refresh_token.reveal() not in repr(answer)


def takes_an_access_token(name: str) -> bool:
    """Whether the call takes one that can be too old for it."""
    spec = Catalogue().get(name)
    ages = spec.refresh.mode != "access_token_exchange" and spec.revocation.needs_live_access_token != "no"
    return spec.facts.revocable and spec.revocation.takes == "access" and ages


@pytest.mark.parametrize("name", [*filter(takes_an_access_token, PROVIDERS)])
def test_an_expired_access_token_is_never_called_revoked_unless_that_is_told(name: str) -> None:
    """A revocation that takes an access token: 401 proves nothing, except where the entry says that it does."""
    meeting = Meeting(name)
    told = meeting.spec.revocation
    grant = meeting.connect()
    meeting.provider.expires_access_tokens()

    outcomes = {each.outcome for each in meeting.revoked(grant)}

    if told.already_gone or told.repeat == "same_as_success":
        assert outcomes <= {RevokeOutcome.ALREADY_GONE, RevokeOutcome.CONFIRMED, RevokeOutcome.AMBIGUOUS}
    elif meeting.spec.identity_proves_death:
        assert outcomes == {RevokeOutcome.ALREADY_GONE}  # it was asked for, and there was never a refresh token
    else:
        assert outcomes == {RevokeOutcome.AMBIGUOUS}


@pytest.mark.rule("RB-25")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (httpx.Response(200, json={"id": 731}), RevokeOutcome.PERMANENT_ERROR),
        (httpx.Response(401, json={"message": "Bad credentials"}), RevokeOutcome.ALREADY_GONE),
        (httpx.Response(401, text="<html>", headers={"content-type": "text/html"}), RevokeOutcome.AMBIGUOUS),
        (httpx.Response(403, json={"message": "rate limit"}), RevokeOutcome.AMBIGUOUS),
        (httpx.Response(502), RevokeOutcome.AMBIGUOUS),
    ],
)
def test_a_404_of_github_means_what_the_token_says(answer: httpx.Response, outcome: RevokeOutcome) -> None:
    """A dead token and a mistyped client are answered alike: whether the token lives is asked, and nobody guesses."""
    meeting = Meeting("github")
    grant = meeting.connect()
    asked = []

    def provider(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path))
        return answer if request.url.path == "/user" else httpx.Response(404, json={"message": "Not Found"})

    transport = httpx.MockTransport(provider)
    client = OAuthClient(meeting.settings, meeting.spec, lambda ref: Secret(SECRET), ProviderHttp(transport, transport))
    [material] = material_of("access", meeting.spec.revocation.reach, grant.access_token, None)

    told = asyncio.run(client.revoke(material=material, timeout_ms=5_000))

    assert told.outcome is outcome
    assert asked == [("DELETE", "/applications/client-1/grant"), ("GET", "/user")]


@pytest.mark.parametrize("name", PROVIDERS)
def test_no_secret_of_a_provider_s_request_is_shown(name: str) -> None:
    """Neither a token nor the client's secret is in what a request or an answer prints, wherever it is sent."""
    meeting = Meeting(name)
    grant = meeting.connect()
    shown = repr(grant) + repr(meeting.settings) + repr(meeting.client.facts)
    if meeting.client.facts.revocable:
        shown += repr(meeting.revoked(grant))

    for secret in (grant.access_token.reveal(), SECRET, json.dumps(VALUES["shop"])):
        assert secret not in shown


def test_the_table_has_a_row_for_every_provider() -> None:
    """At least fifty."""
    assert len(PROVIDERS) >= 50
    assert set(QUIRKS) <= set(PROVIDERS)


def test_what_an_entry_does_not_describe_is_refused() -> None:
    """The impersonated provider is no yes-man: it takes nothing that another entry would send."""
    whoop, github = Meeting("whoop"), Meeting("github")
    grant = github.connect()
    whoop.provider.ledger |= github.provider.ledger
    swapped: Any = OAuthClient(
        whoop.settings,
        github.spec,
        lambda ref: Secret(SECRET),
        ProviderHttp(whoop.provider.transport, whoop.provider.transport),
    )

    with pytest.raises(AssertionError, match="is no address of it"):
        asyncio.run(
            swapped.revoke(
                material=material_of("access", github.spec.revocation.reach, grant.access_token, None)[0],
                timeout_ms=5_000,
            )
        )
