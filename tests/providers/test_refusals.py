"""A client that its provider refuses: no grant is judged by it, and nobody asks again at once."""

import asyncio

import httpx
import pytest

from quitclaim.domain.clients import ClientFaultsError, ProviderClient, read_client
from quitclaim.domain.errors import ClientConfigError
from quitclaim.domain.outcomes import Outcome, RevokeAnswer, RevokeOutcome, TokenAnswer
from quitclaim.domain.secret import Secret
from quitclaim.providers.client import OAuthClient, ProviderHttp
from quitclaim.providers.refusals import BURST, PERHAPS, REST_S, Refusal, Refusals, refusal
from tests.providers.specs import CLIENT

REFUSED = TokenAnswer(Outcome.TRY_LATER, "client_refused", "invalid_client", config_fault=True)
GRANTED = TokenAnswer(Outcome.GRANTED)


class Clock:
    """Seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that is moved by hand."""
    return Clock()


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (REFUSED, Refusal.CERTAIN),
        (TokenAnswer(Outcome.TRY_LATER, "http_401", config_fault=True), Refusal.PERHAPS),
        (TokenAnswer(Outcome.TRY_LATER, "client_refused", "invalid_scope", config_fault=True), Refusal.PERHAPS),
        (TokenAnswer(Outcome.NOT_SENT, "unaddressed", config_fault=True), Refusal.NONE),
        (TokenAnswer(Outcome.TRY_LATER, "busy"), Refusal.NONE),
        (TokenAnswer(Outcome.REJECTED, "refused", "invalid_grant"), Refusal.NONE),
        (TokenAnswer(Outcome.UNKNOWN, "timeout"), Refusal.NONE),
        (RevokeAnswer(RevokeOutcome.PERMANENT_ERROR, "invalid_client"), Refusal.CERTAIN),
        (RevokeAnswer(RevokeOutcome.PERMANENT_ERROR, "unsupported_token_type"), Refusal.PERHAPS),
        (RevokeAnswer(RevokeOutcome.DEFERRED, "http_503"), Refusal.NONE),
    ],
)
def test_what_is_a_refusal_of_the_client(answer, expected):
    """Its settings, told by the provider; neither a grant's verdict nor a fault on the way."""
    assert refusal(answer) is expected


@pytest.mark.rule("RB-20")
def test_a_client_that_is_refused_rests_and_is_told_of_once(clock):
    """However many answers say so; after the rest it is tried again."""
    told = []
    refusals = Refusals(lambda client, reason: told.append((client, reason)), clock)

    for _ in range(20):
        refusals.heard("web", 0, 1, REFUSED)

    assert refusals.rests("web")
    assert not refusals.rests("other")
    assert told == [("web", "client_refused")]
    clock.now += REST_S
    assert not refusals.rests("web")


def test_secrets_are_tried_in_order_and_the_client_rests_when_all_were_refused(clock):
    """The newest first; the one that works stays in use."""
    refusals = Refusals(now=clock)
    assert refusals.secret_number("web", 2) == 0

    refusals.heard("web", 0, 2, REFUSED)
    assert (refusals.secret_number("web", 2), refusals.rests("web")) == (1, False)
    refusals.heard("web", 1, 2, GRANTED)
    assert refusals.secret_number("web", 2) == 1
    refusals.heard("web", 1, 2, REFUSED)
    assert (refusals.secret_number("web", 2), refusals.rests("web")) == (0, False)
    refusals.heard("web", 0, 2, REFUSED)
    assert refusals.rests("web")


@pytest.mark.parametrize("together", [2, 3, 4])
def test_requests_on_their_way_together_tell_of_one_secret_once(clock, together):
    """All were made with the newest: the next one is still to be tried."""
    refusals = Refusals(now=clock)

    for _ in range(together):
        refusals.heard("web", 0, 2, REFUSED)

    assert (refusals.secret_number("web", 2), refusals.rests("web")) == (1, False)


@pytest.mark.rule("RB-20")
def test_one_odd_grant_stops_no_other(clock):
    """A bare 401 may be owed to the one request: only several in a row are the client's."""
    odd = TokenAnswer(Outcome.TRY_LATER, "http_401", config_fault=True)
    told = []
    refusals = Refusals(lambda client, reason: told.append((client, reason)), clock)

    for _ in range(3 * PERHAPS):
        refusals.heard("web", 0, 1, odd)
        refusals.heard("web", 0, 1, GRANTED)
    assert not refusals.rests("web")
    for _ in range(PERHAPS):
        refusals.heard("web", 0, 1, odd)

    assert refusals.rests("web")
    assert told == [("web", "http_401")]


@pytest.mark.rule("RB-20")
def test_nothing_is_sent_while_it_rests(spec):
    """`prepare` says so before a code is spent or a refresh recorded; and one request is never sent twice."""
    asked = []

    def provider(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        return httpx.Response(401, json={"error": "invalid_client"})

    told = []
    http = ProviderHttp(httpx.MockTransport(provider), refusals=Refusals(lambda client, reason: told.append(client)))
    settings = ProviderClient("web", "acme", "client-1", "ssm:/new", ("read",), older_secrets=("ssm:/old",))
    client = OAuthClient(settings, spec, lambda ref: Secret(f"secret at {ref}"), http)

    first = client.refresh(refresh_token=Secret("r"), timeout_ms=1000)
    client.prepare()
    second = client.refresh(refresh_token=Secret("r"), timeout_ms=1000)

    assert [first.outcome, second.outcome] == [Outcome.TRY_LATER, Outcome.TRY_LATER]
    assert first.config_fault
    assert len(set(asked)) == len(asked) == 2
    assert told == ["web"]
    with pytest.raises(ClientConfigError) as error:
        client.prepare()
    assert "refuses the client" in str(error.value.details)


@pytest.mark.rule("RB-20")
def test_a_burst_of_dead_grants_is_not_believed(clock):
    """Twenty in a row are verdicts; beyond them one a rest, until the provider takes one again."""
    told = []
    refusals = Refusals(lambda client, reason: told.append((client, reason)), clock)
    dead = TokenAnswer(Outcome.REJECTED, "refused", "invalid_grant")

    assert all(refusals.believed("web", dead) is dead for _ in range(BURST))
    doubted = refusals.believed("web", dead)
    assert (doubted.outcome, doubted.reason, doubted.retry_after_ms) == (Outcome.TRY_LATER, "burst", 30_000)
    assert refusals.rests("web")
    assert told == [("web", "burst")]
    clock.now += REST_S
    assert refusals.believed("web", dead) is dead
    assert refusals.believed("web", dead).reason == "burst"
    assert refusals.believed("web", GRANTED) is GRANTED
    assert all(refusals.believed("web", dead) is dead for _ in range(BURST))
    assert refusals.believed("other", dead) is dead


@pytest.mark.parametrize(("was_revoked", "last"), [(True, Outcome.REJECTED), (False, Outcome.TRY_LATER)])
def test_a_dead_token_is_no_surprise_after_its_revocation(spec, was_revoked, last):
    """A hundred disconnects are no burst; a hundred grants that died by themselves are."""

    def provider(request: httpx.Request) -> httpx.Response:
        return httpx.Response(400, json={"error": "invalid_grant"})

    http = ProviderHttp(httpx.MockTransport(provider), httpx.MockTransport(provider), refusals=Refusals())
    client = OAuthClient(ProviderClient("web", "acme", "client-1", "ssm:/s", ("read",)), spec, Secret, http)

    async def all_of_them() -> list[Outcome]:
        return [
            (await client.renew(refresh_token=Secret("r"), timeout_ms=1000, was_revoked=was_revoked)).outcome
            for _ in range(BURST + 1)
        ]

    outcomes = asyncio.run(all_of_them())
    assert (set(outcomes[:-1]), outcomes[-1]) == ({Outcome.REJECTED}, last)


def test_what_is_no_verdict_is_no_burst(clock):
    """Busy, lost or refused without a verdict: passed on, and not counted."""
    refusals = Refusals(now=clock)
    later = TokenAnswer(Outcome.TRY_LATER, "busy")

    assert all(refusals.believed("web", later) is later for _ in range(3 * BURST))
    assert not refusals.rests("web")


def test_a_client_may_list_its_secrets_while_one_is_replaced():
    """Up to three places, the newest first; never a secret itself."""
    config = {"provider": "acme", "client_id": "id", "secret": ["ssm:/new", "secretsmanager:old"]}

    client = read_client("web", config)

    assert (client.secret_ref, client.older_secrets) == ("ssm:/new", ("secretsmanager:old",))
    assert read_client("web", config | {"secret": "ssm:/one"}).older_secrets == ()
    assert CLIENT.older_secrets == ()
    for wrong in (["ssm:/a", "canary"], ["ssm:/a"] * 4, [], [5], {"a": "b"}):
        with pytest.raises(ClientFaultsError) as error:
            read_client("web", config | {"secret": wrong})
        assert "canary" not in str(error.value)
