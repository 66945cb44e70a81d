"""A client that its provider refuses: no grant is judged by it, and nobody asks again at once."""

import asyncio
import base64

import httpx
import pytest

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ClientFaultsError, ProviderClient, read_client
from quitclaim.domain.errors import ClientConfigError
from quitclaim.domain.outcomes import Outcome, PushAnswer, RevokeAnswer, RevokeOutcome, TokenAnswer
from quitclaim.domain.secret import Secret
from quitclaim.providers.client import OAuthClient, ProviderHttp
from quitclaim.providers.refusals import BURST, PERHAPS, REST_S, WINDOW_S, Refusal, Refusals, refusal
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
        (RevokeAnswer(RevokeOutcome.PERMANENT_ERROR, "unaddressed"), Refusal.NONE),
        (RevokeAnswer(RevokeOutcome.DEFERRED, "http_503"), Refusal.NONE),
        (PushAnswer(reason="invalid_client", config_fault=True), Refusal.CERTAIN),
        (PushAnswer(reason="http_401", config_fault=True), Refusal.PERHAPS),
        (PushAnswer(reason="invalid_scope", config_fault=True), Refusal.NONE),
        (PushAnswer(reason="http_503"), Refusal.NONE),
        (PushAnswer(Secret("urn:x")), Refusal.NONE),
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


class Rotation:
    """Two places for the secret of a client, and a provider that takes what it is told to."""

    def __init__(self, spec, clock) -> None:
        self.kept, self.taken = {"ssm:/new": "new", "ssm:/old": "old"}, {"new", "old"}
        self.asked, self.told = [], []
        http = ProviderHttp(
            httpx.MockTransport(self._answer),
            refusals=Refusals(lambda client, reason: self.told.append(reason), clock),
        )
        settings = ProviderClient("web", "acme", "client-1", "ssm:/new", ("read",), older_secrets=("ssm:/old",))
        self.client = OAuthClient(settings, spec, self._read, http)

    def _read(self, ref: str) -> Secret:
        if ref not in self.kept:
            raise ClientConfigError(reason="the client's secret cannot be read")
        return Secret(self.kept[ref])

    def _answer(self, request: httpx.Request) -> httpx.Response:
        encoded = request.headers["authorization"].removeprefix("Basic ")
        self.asked.append(base64.b64decode(encoded).decode().partition(":")[2])
        if self.asked[-1] not in self.taken:
            return httpx.Response(401, json={"error": "invalid_client"})
        if request.url.path == "/par":
            return httpx.Response(201, json={"request_uri": "urn:x", "expires_in": 60})
        return httpx.Response(200, json={"access_token": "a", "refresh_token": "r"})

    def refresh(self) -> Outcome:
        self.client.prepare()
        return self.client.refresh(refresh_token=Secret("r"), timeout_ms=1000).outcome


@pytest.mark.rule("RB-20")
def test_a_secret_that_is_gone_is_as_good_as_refused(spec, clock):
    """The next one's turn; one odd refusal of the new secret does not shut the client once the old one is gone."""
    rotation = Rotation(spec, clock)
    del rotation.kept["ssm:/new"]
    assert rotation.refresh() is Outcome.GRANTED
    assert (rotation.asked, rotation.told) == (["old"], [])

    rotation = Rotation(spec, clock)
    del rotation.kept["ssm:/old"]
    rotation.taken.clear()
    assert rotation.refresh() is Outcome.TRY_LATER
    with pytest.raises(ClientConfigError):
        rotation.refresh()
    assert (rotation.asked, rotation.told) == (["new"], ["secret_unreadable"])
    clock.now += REST_S
    rotation.taken.add("new")
    assert rotation.refresh() is Outcome.GRANTED


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize("again", ["ssm:/new", "ssm:/old"])
def test_where_no_secret_can_be_read_the_client_rests_and_serves_again_once_one_can(spec, clock, again):
    """One alarm a rest, and nothing is sent."""
    rotation = Rotation(spec, clock)
    rotation.kept.clear()

    for _ in range(3):
        with pytest.raises(ClientConfigError):
            rotation.refresh()
    assert (rotation.asked, rotation.told) == ([], ["secret_unreadable"])
    clock.now += REST_S
    with pytest.raises(ClientConfigError):
        rotation.refresh()
    assert len(rotation.told) == 2

    clock.now += REST_S
    rotation.kept[again] = "new"
    assert rotation.refresh() is Outcome.GRANTED


@pytest.mark.rule("RB-20")
def test_a_refused_push_turns_to_the_next_secret(spec_with, clock):
    """The link that is opened next is pushed with it; where none is taken, nothing is pushed for a rest."""
    rotation = Rotation(spec_with({"authorize.par": "yes", "authorize.par_url": "https://acme.example.com/par"}), clock)
    asked = AuthorizationAsked("https://app/cb", Secret("s"), "c")
    rotation.taken.remove("new")

    with pytest.raises(ClientConfigError):
        rotation.client.authorize_url(asked)
    assert "request_uri=urn" in rotation.client.authorize_url(asked)

    rotation.taken.clear()
    for _ in range(4):
        with pytest.raises(ClientConfigError):
            rotation.client.authorize_url(asked)
    assert rotation.asked == ["new", "old", "old", "new"]
    assert rotation.told == ["invalid_client"]


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


@pytest.mark.rule("RB-20")
def test_verdicts_far_apart_are_no_burst(clock):
    """Neither before the first burst nor after it."""
    told = []
    refusals = Refusals(lambda client, reason: told.append(reason), clock)
    dead = TokenAnswer(Outcome.REJECTED, "refused", "invalid_grant")

    def seldom() -> bool:
        answers = []
        for _ in range(3 * BURST):
            clock.now += WINDOW_S / BURST
            answers.append(refusals.believed("web", dead))
        return all(each is dead for each in answers)

    assert seldom()
    clock.now += WINDOW_S
    for _ in range(BURST + 1):
        refusals.believed("web", dead)
    assert told == ["burst"]
    clock.now += WINDOW_S
    assert seldom()
    assert told == ["burst"]


@pytest.mark.parametrize(
    ("how", "last"), [("renew", Outcome.REJECTED), ("import", Outcome.REJECTED), ("refresh", Outcome.TRY_LATER)]
)
def test_only_the_death_of_a_grant_that_serves_is_a_surprise(spec, how, last):
    """A hundred disconnects or imports are no burst, nor is one among them; a hundred grants that died are."""

    def provider(request: httpx.Request) -> httpx.Response:
        return httpx.Response(400, json={"error": "invalid_grant"})

    http = ProviderHttp(httpx.MockTransport(provider), httpx.MockTransport(provider), refusals=Refusals())
    client = OAuthClient(ProviderClient("web", "acme", "client-1", "ssm:/s", ("read",)), spec, Secret, http)

    def once() -> Outcome:
        if how == "renew":
            return asyncio.run(client.renew(refresh_token=Secret("r"), timeout_ms=1000)).outcome
        return client.refresh(refresh_token=Secret("r"), timeout_ms=1000, is_import=how == "import").outcome

    outcomes = [once() for _ in range(BURST + 1)]
    assert http.refusals.rests("web") is (how == "refresh")
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
