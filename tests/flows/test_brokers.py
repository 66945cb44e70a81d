"""
Brokers: accounts that are there before their user returns, sources behind them, and sign-in from an app's SDK
(M-6 to M-15, M-19 to M-23).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from quitclaim.domain import errors
from quitclaim.domain.connect import ConnectionState, ExchangeOutcome, Phase
from quitclaim.domain.limits import AUTHORIZATION_MS, GUARD_MS, TICKET_MS
from quitclaim.domain.secret import Secret
from quitclaim.domain.sources import SourceProof, SourceStatus
from quitclaim.flows.connect.browser import Callback, CallbackOutcome, Visit
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.flows.connect.start import StartRequest
from quitclaim.flows.sign_in import SignedIn, SignInRequest, sdk_sign_in
from quitclaim.store.connect import ConnectStore
from tests.fakes.broker import BrokerServer
from tests.fakes.clock import Budget
from tests.fakes.config import BASE_URL, MemoryClients
from tests.fakes.provider import after, answers, killed, lost_answer, not_connected
from tests.fakes.tables import StandIn, WorkerKilledError
from tests.flows.world import GOOGLE, OTHER, TOKEN_MS, World


class BrokerWorld(World):
    """A world whose provider is a broker."""

    def __init__(self, stand_in: StandIn, confirmation: Any = "none") -> None:
        super().__init__(stand_in, confirmation)
        self.broker = BrokerServer()
        self.server = self.broker  # type: ignore[assignment]
        self.clients = MemoryClients(self.broker)  # type: ignore[arg-type]
        self.clients.add("acme", confirmation=confirmation)

    def returned(self, visit: Visit, *, account: bool = True, **more: str) -> CallbackOutcome:
        """The browser comes back from the broker's pages."""
        back = self.broker.links[-1]["redirect_url"]
        (state,) = parse_qs(urlsplit(back).query)["flow"]
        callback = Callback("acme", Secret(state), None, more.get("error"), (), {visit.cookie: visit.binding.reveal()})
        return self.come_back(callback)

    def linked(self, ref: Any = GOOGLE, **asked: Any) -> CallbackOutcome:
        """Start, open the link, link something, come back, and confirm where that is asked for."""
        outcome = self.returned(self.visit(self.start(ref, **asked)))
        if outcome.confirm_code is not None:
            self.confirm(outcome.confirm_code, ref)
        return outcome

    def sign_in(self, ref: Any = GOOGLE, budget_ms: int = TOKEN_MS, **asked: Any) -> SignedIn:
        """The app's SDK wants to sign in."""
        request = SignInRequest(ref, asked.pop("client", "acme"), **asked)
        return sdk_sign_in(request, Budget(budget_ms), self.connecting("access_token"))

    def source(self, slug: str = "oura", ref: Any = GOOGLE) -> Any:
        """As it is stored."""
        found = self.reads.source(ref, slug)
        assert found is not None
        return found

    def proof(self, slug: str = "oura", ref: Any = GOOGLE) -> SourceProof:
        """What the app would see of a source now."""
        seen = self.source(slug, ref)
        return SourceProof(ref.connection, slug, seen.instance, seen.last_seen)


@pytest.fixture
def world(stand_in: StandIn) -> BrokerWorld:
    """A broker with sources and sign-in; grants are installed without the owner's confirmation."""
    return BrokerWorld(stand_in)


@pytest.fixture
def asking_world(stand_in: StandIn) -> BrokerWorld:
    """The same, with the owner's confirmation."""
    return BrokerWorld(stand_in, "owner")


def everything(world: World) -> Any:
    """The whole table, the key ring apart: whoever needs a purpose first makes its first key."""
    return {key: item for key, item in world.stand_in.everything().items() if key[0] != "K#ring"}


# --- links and seeds -------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-6", "M-7", "M-45")
def test_an_account_is_there_before_its_user_returns(world):
    """
    The visit makes it and seals it with the state; the connection waits in its link, due at its end, until the browser
    comes back: then it is ready.
    """
    visit = world.visit(world.start())

    (account,) = world.broker.live()
    (authorization,) = world.items("authorization")
    waiting = world.connection()
    assert (waiting.state, waiting.phase) == (ConnectionState.AUTHORIZING, Phase.LINK)
    assert waiting.lapse_at == world.clock.now() + TICKET_MS + AUTHORIZATION_MS + GUARD_MS
    assert authorization["sealed"]
    assert account not in str(everything(world))
    assert visit.url.startswith("https://link.broker.example.com/?token=")
    assert world.broker.links[0].keys() == {"user_id", "redirect_url"}

    assert world.returned(visit).status == "ready"
    assert world.connection().state is ConnectionState.READY
    token = world.token()
    assert (token.access_token.reveal(), token.token_type) == (account, "account")


@pytest.mark.rule("M-6")
@pytest.mark.parametrize("account", ["", 7, None, "x" * 5_000, "a\nb", {"id": 1}])
def test_a_seed_that_cannot_be_one_is_not_stored(world, account):
    """Judged before anything is: no state is made, and the link may be opened again."""
    started = world.start()
    world.broker.next("/v2/user/*", answers(200, {"user_id": account}))
    before = everything(world)

    with pytest.raises(errors.OutcomeUnknownError):
        world.visit(started)

    assert everything(world) == before
    assert world.returned(world.visit(started)).status == "ready"


@pytest.mark.parametrize(
    ("misbehaviour", "error"),
    [
        (answers(429, {}, Retry_After="3"), errors.ProviderBusyError),
        (answers(401, {"detail": "bad key"}), errors.ClientConfigError),
        (answers(422, {"detail": "no"}), errors.ProviderRefusedError),
        (answers(500), errors.OutcomeUnknownError),
        (not_connected, errors.ProviderBusyError),
        (lost_answer, errors.OutcomeUnknownError),
    ],
    ids=["busy", "key", "refused", "broken", "not sent", "lost"],
)
@pytest.mark.parametrize("where", ["/v2/user/*", "/v2/link/token"])
@pytest.mark.rule("M-15")
def test_a_broker_that_does_not_help_leaves_everything_as_it_was(world, where, misbehaviour, error):
    """No state is made; the same link works once it helps, with the same account."""
    started = world.start()
    world.broker.next(where, misbehaviour)
    before = everything(world)

    with pytest.raises(error):
        world.visit(started)

    assert everything(world) == before
    assert world.returned(world.visit(started)).status == "ready"
    assert len(world.broker.made) == 1


@pytest.mark.rule("M-15", "M-7")
def test_a_link_that_nobody_comes_back_from_fails_its_own_connection(world):
    """By its own time, like every link; the account at the broker is found again by the next attempt."""
    world.visit(world.start())

    world.minutes_pass(32)

    assert world.connection().state is ConnectionState.FAILED
    assert world.connection().failure == "link_expired"
    assert world.linked().status == "ready"
    assert len(world.broker.made) == 1


@pytest.mark.rule("M-25")
def test_what_a_broker_says_beside_the_state_is_its_own_affair(world):
    """An error that only a code flow knows does not end it: no code was ever to come."""
    visit = world.visit(world.start())

    assert world.returned(visit, error="access_denied").status == "ready"


def test_an_account_waits_for_its_owner_like_any_grant(asking_world):
    """A link can be sent to somebody else here as well."""
    outcome = asking_world.returned(asking_world.visit(asking_world.start()))

    assert outcome.status == "awaiting_confirmation"
    assert asking_world.connection().state is ConnectionState.AUTHORIZING
    asking_world.confirm(outcome.confirm_code)
    assert asking_world.connection().state is ConnectionState.READY


def test_a_disconnect_removes_the_account_at_the_broker(world):
    """By the catalogue's revocation; the next life has an account of its own."""
    world.linked()
    (first,) = world.broker.live()

    world.disconnect()
    world.minutes_pass(3)

    assert world.connection().closed_as == "confirmed"
    assert world.broker.live() == []
    assert world.linked(again=True).status == "ready"
    assert world.broker.live() != [first]


@pytest.mark.rule("D-38")
def test_an_account_whose_worker_dies_is_removed(world, monkeypatch):
    """
    The user has linked something behind it by now. It is held in the commit that spends its state, so whoever dies
    after that leaves it to the sweep; there is nothing that only its worker knew, and no notice.
    """
    visit = world.visit(world.start())
    (account,) = world.broker.live()

    def dies(*_: Any) -> None:
        raise WorkerKilledError

    with monkeypatch.context() as patched:
        patched.setattr(ConnectStore, "install", dies)
        with pytest.raises(WorkerKilledError):
            world.returned(visit)
    assert world.exchange().outcome is ExchangeOutcome.HELD
    assert len(world.items("revocation")) == 1
    world.minutes_pass(3)

    assert account not in world.broker.live()
    assert world.exchange().outcome is ExchangeOutcome.CLEANUP
    assert (world.connection().state, world.notice()) == (ConnectionState.FAILED, "confirmed")
    assert world.linked().status == "ready"


def test_an_account_that_is_still_to_be_removed_is_not_linked_again(asking_world):
    """
    A new start ends the attempt that waits for its owner, so its account goes. Whoever opened the new link before that
    would link something behind an account that we are about to remove.
    """
    asking_world.returned(asking_world.visit(asking_world.start()))
    (old,) = asking_world.broker.live()
    again = asking_world.start(again=True)
    asked = list(asking_world.broker.asked)

    with pytest.raises(errors.ConnectBlockedError):
        asking_world.visit(again)

    assert asking_world.broker.asked == asked
    asking_world.minutes_pass(2)
    outcome = asking_world.returned(asking_world.visit(again))
    asking_world.confirm(outcome.confirm_code)
    assert old not in asking_world.broker.live()
    assert asking_world.token().access_token.reveal() in asking_world.broker.live()


def test_a_browser_that_is_another_is_refused_before_anything_is_spent(world):
    """The cookie binds the way back from a broker as it does any other."""
    visit = world.visit(world.start())
    stranger = replace(visit, binding=Secret("x" * 43))
    before = everything(world)

    with pytest.raises(errors.BindingMismatchError):
        world.returned(stranger)

    assert everything(world) == before


# --- sources behind a new account ------------------------------------------------------------------------------------


@pytest.mark.rule("M-8", "M-10")
def test_a_source_that_is_named_is_asked_for_in_the_same_commit(world):
    """Disconnected, seen first and last now, below its own connection; the broker's page is about it."""
    started = world.start(source="oura")

    source = world.source()
    assert (source.status, source.fence) == (SourceStatus.DISCONNECTED, 1)
    assert source.first_seen == source.last_seen == world.clock.now()
    assert source.instance == "google/oura"
    world.visit(started)
    assert world.broker.links[0]["provider"] == "oura"


@pytest.mark.rule("M-10")
def test_a_source_is_never_born_connected(world):
    """Nor by a browser that came back: only the broker's own events say so."""
    world.linked(source="oura")

    assert world.source().status is SourceStatus.DISCONNECTED


@pytest.mark.rule("M-12")
def test_a_source_of_a_new_attempt_is_not_fenced(world):
    """There is nothing to shut out yet: the account is not there."""
    world.start(source="oura")
    world.clock.move(minutes=1)
    world.start(source="oura", return_to="https://app.example.com/other")

    source = world.source()
    assert (source.fence, source.last_seen - source.first_seen) == (1, 60_000)


@pytest.mark.rule("D-29")
@pytest.mark.parametrize("spoilt", ["connection", "ticket"])
def test_a_start_that_is_refused_leaves_no_source(world, spoilt, monkeypatch):
    """Source, connection and ticket are one commit: a crash or a loser leaves none of them."""
    from quitclaim.store.commit import Commit

    real = Commit.run

    def dies(self: Commit) -> None:
        if self.has(spoilt) and self.has("source"):
            raise WorkerKilledError
        real(self)

    monkeypatch.setattr(Commit, "run", dies)
    with pytest.raises(WorkerKilledError):
        world.start(source="oura")

    assert world.reads.source(GOOGLE, "oura") is None
    assert world.items("connection") == []


@pytest.mark.parametrize("source", ["", "a b!", "../x", "ä", "x" * 65, 7, "-", "a--b"])
def test_a_source_s_name_is_the_broker_s(source):
    """Letters, digits and hyphens; case and underscores do not count."""
    from quitclaim.domain.sources import checked_slug

    with pytest.raises(errors.InvalidBodyError):
        checked_slug(source)
    assert checked_slug(" Google_Fit ") == "google-fit"


def test_a_provider_without_sources_has_none(new_world):
    """A source is refused before anything is looked at."""
    world = new_world()

    with pytest.raises(errors.InvalidBodyError) as refused:
        world.start(source="oura")

    assert refused.value.details == {"field": "source"}


# --- sources behind an account that is there -------------------------------------------------------------------------


@pytest.mark.rule("M-8", "M-9", "M-12")
def test_a_further_source_leaves_the_connection_as_it_is(world):
    """The account is the same, the generation too; the source is asked for, and what worked on it is shut out."""
    world.linked(source="oura")
    before = world.connection()
    world.clock.move(minutes=1)

    started = world.start(source="oura")

    assert world.connection() == before
    assert started.connection == before
    assert (world.source().fence, world.source().last_seen) == (2, world.clock.now())
    visit = world.visit(started)
    assert world.broker.links[-1]["user_id"] == world.token().access_token.reveal()
    assert world.returned(visit).status == "ready"
    assert world.connection() == before
    assert len(world.broker.made) == 1
    assert len(world.items("grant")) == 1


@pytest.mark.rule("M-48", "M-15")
def test_what_fails_for_a_source_never_touches_its_account(world):
    """The link expires, the broker is away, the browser is another: the connection lives on."""
    world.linked()
    before = world.connection()
    started = world.start(source="whoop")
    world.broker.next("/v2/link/token", answers(500))
    with pytest.raises(errors.OutcomeUnknownError):
        world.visit(started)
    visit = world.visit(started)
    with pytest.raises(errors.BindingMismatchError):
        world.returned(replace(visit, binding=Secret("x" * 43)))

    world.minutes_pass(40)

    assert world.connection() == before
    assert world.token().access_token.reveal() in world.broker.live()


@pytest.mark.rule("M-9")
@pytest.mark.parametrize("state", ["failed", "needs_reconnect", "revoking", "another client"])
def test_only_a_ready_connection_of_the_client_is_an_established_account(world, state):
    """Whatever else is there is not reused: a new life begins, or the start is refused."""
    from quitclaim.domain.sources import is_established

    world.linked()
    connection = world.connection()

    assert is_established(connection, "acme")
    assert not is_established(None, "acme")
    if state == "another client":
        assert not is_established(connection, "other")
    else:
        assert not is_established(replace(connection, state=ConnectionState(state)), "acme")


def test_the_same_callback_of_a_source_shows_the_same(world):
    """Spent once; as long as the connection lives. After a stop it leads nowhere."""
    world.linked()
    visit = world.visit(world.start(source="oura"))
    first = world.returned(visit)
    before = everything(world)

    assert world.returned(visit) == first
    assert everything(world) == before
    world.disconnect()
    with pytest.raises(CallbackFailedError) as refused:
        world.returned(visit)
    assert isinstance(refused.value.cause, errors.StateSupersededError)


@pytest.mark.parametrize("when", ["before the visit", "before the callback"])
def test_a_link_of_a_source_ends_with_the_life_that_it_was_made_for(world, when):
    """A stop, or a new life: the link speaks of another account."""
    world.linked()
    started = world.start(source="oura")
    visit = None if when == "before the visit" else world.visit(started)
    world.disconnect()

    if visit is None:
        with pytest.raises(errors.StateSupersededError):
            world.visit(started)
    else:
        with pytest.raises(CallbackFailedError) as refused:
            world.returned(visit)
        assert isinstance(refused.value.cause, errors.StateSupersededError)


def test_a_stop_takes_its_sources_along(world):
    """They are derived data of ours: gone with the purge, before anybody may connect again."""
    world.linked(source="oura")
    world.start(source="whoop")

    world.disconnect()
    world.minutes_pass(3)

    assert world.items("source") == []
    assert world.connection().state is ConnectionState.REVOKED


def test_a_start_of_a_source_with_a_key_is_repeated(world):
    """The same link, and nothing is written; another source under the key is another request."""
    world.linked()
    first = world.start(source="oura", idempotency_key="k")
    before = everything(world)

    again = world.start(source="oura", idempotency_key="k")

    assert (again.ticket, again.expires_at) == (first.ticket, first.expires_at)
    assert everything(world) == before
    with pytest.raises(errors.IdempotencyMismatchError):
        world.start(source="whoop", idempotency_key="k")


def test_two_links_of_one_millisecond_are_two_links(world):
    """Of two sources, or of one source twice."""
    world.linked()

    links = [world.start(source=source) for source in ("oura", "whoop", "oura")]

    assert len({link.ticket.reveal() for link in links}) == 3


# --- what the app saw ------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-11", "M-13", "M-14", "D-28")
def test_a_source_that_is_as_the_app_saw_it_stays_so(world):
    """Not written, not fenced: the proof is checked in the very commit that makes the ticket."""
    world.linked(source="oura")
    before = world.source()
    world.clock.move(minutes=1)

    started = world.start(source="oura", proof=world.proof())

    assert world.source() == before
    assert world.returned(world.visit(started)).status == "ready"


@pytest.mark.rule("M-13")
@pytest.mark.parametrize(
    "changes",
    [{"connection": "other"}, {"slug": "whoop"}, {"instance": "google/whoop"}, {"instance": "x"}],
    ids=str,
)
def test_a_proof_of_something_else_is_stale(world, changes):
    """409, and the app may look again."""
    world.linked(source="oura")
    proof = replace(world.proof(), **changes)
    before = everything(world)

    with pytest.raises(errors.SourceStartStaleError) as stale:
        world.start(source="oura", proof=proof)

    assert stale.value.retryable
    assert everything(world) == before


@pytest.mark.rule("M-13")
def test_a_proof_needs_an_account_that_is_there_and_a_source_that_is_named(world):
    """Before the first link there is nothing that it could prove."""
    proof = SourceProof("google", "oura", "google/oura", world.clock.now())

    with pytest.raises(errors.SourceStartStaleError):
        world.start(source="oura", proof=proof)
    world.linked(source="oura")
    with pytest.raises(errors.SourceStartStaleError):
        world.start(proof=world.proof())


MOVED: dict[str, Callable[[BrokerWorld], None]] = {
    "seen since": lambda world: _altered(world, last_seen=world.clock.now() + 1),
    "in error": lambda world: _altered(world, error="expired"),
    "connected": lambda world: _altered(world, status="connected"),
    "gone": lambda world: world.stand_in.erase(_key()),
}


def _key() -> Any:
    from quitclaim.store.keys import source_key

    return source_key(GOOGLE, "oura")


def _altered(world: BrokerWorld, **attributes: Any) -> None:
    world.stand_in.alter(_key(), put=attributes)


@pytest.mark.rule("M-14", "D-28")
@pytest.mark.parametrize("between", [False, True], ids=["before the look", "between look and commit"])
@pytest.mark.parametrize("how", MOVED)
def test_a_source_that_moved_refuses_the_start_and_leaves_no_ticket(world, how, between, monkeypatch):
    """Whenever it moved: there is no instant between a check and a write (the reference had two)."""
    world.linked(source="oura")
    proof, tickets = world.proof(), len(world.items("ticket"))
    if between:
        real = world.reads.source

        def look(*asked: Any) -> Any:
            found = real(*asked)
            monkeypatch.setattr(world.reads, "source", real)
            MOVED[how](world)
            return found

        monkeypatch.setattr(world.reads, "source", look)
    else:
        MOVED[how](world)

    with pytest.raises(errors.SourceStartStaleError):
        world.start(source="oura", proof=proof)

    assert len(world.items("ticket")) == tickets


@pytest.mark.rule("D-28")
def test_a_stop_between_look_and_commit_refuses_the_link(world, monkeypatch):
    """The connection is held to its life in the same commit."""
    world.linked()
    real = world.reads.source

    def look(*asked: Any) -> Any:
        monkeypatch.setattr(world.reads, "source", real)
        world.disconnect()
        return real(*asked)

    monkeypatch.setattr(world.reads, "source", look)

    assert world.start(source="oura").ticket is None  # the connection that is ending is the answer (C-9)
    assert world.items("source") == []


# --- sign-in from an app's SDK ---------------------------------------------------------------------------------------


@pytest.mark.rule("M-21", "M-23")
def test_a_sign_in_makes_the_account_and_then_the_token(world):
    """In that order; the connection is ready, the app is told of it once, and the token is kept nowhere."""
    done = world.sign_in()

    assert done.connection.state is ConnectionState.READY
    assert done.token.reveal() == world.broker.sign_in_tokens[0]
    assert world.broker.asked[-1].endswith("/sign_in_token")
    assert world.events("connection.ready") == ["connection.ready"]
    assert done.token.reveal() not in str(everything(world))
    assert "canary" not in repr(done)


@pytest.mark.rule("M-20")
def test_an_account_that_is_there_is_used_as_it_is(world):
    """Nothing is written, and nobody is told; each call has a token of its own."""
    first = world.sign_in()
    before = everything(world)

    second = world.sign_in()

    assert everything(world) == before
    assert second.connection.ref == first.connection.ref
    assert second.token != first.token
    assert len(world.broker.made) == 1


@pytest.mark.rule("M-20")
def test_an_account_that_was_linked_in_a_browser_is_used_as_well(world):
    """It is the owner's account, however it was made."""
    world.linked()

    done = world.sign_in()

    assert world.broker.made == world.broker.live()
    assert done.connection == world.connection()


@pytest.mark.rule("M-20", "U-14", "U-15")
def test_another_owner_s_account_is_never_used(world):
    """The same connection id of another owner is another connection, with an account of its own."""
    world.sign_in()
    other = replace(GOOGLE, owner="bob")

    done = world.sign_in(other)

    assert done.connection.ref == other
    assert len(set(world.broker.live())) == 2


@pytest.mark.rule("M-19")
def test_a_provider_that_gives_no_such_token_says_so(new_world):
    """500, before anything is looked at."""
    world = new_world()

    with pytest.raises(errors.SdkSignInNotSupportedError):
        sdk_sign_in(SignInRequest(GOOGLE, "acme"), Budget(TOKEN_MS), world.connecting("access_token"))

    assert everything(world) == {}


@pytest.mark.rule("M-22")
def test_a_stop_while_the_account_is_made_wins(world):
    """No token is minted; what was made is queued and removed."""
    world.broker.next("/v2/user", after(lambda: world.disconnect()))

    with pytest.raises(errors.GrantNotInstalledError):
        world.sign_in()

    assert world.broker.sign_in_tokens == []
    world.minutes_pass(4)
    assert world.broker.live() == []
    assert world.connection().state is ConnectionState.REVOKED


@pytest.mark.rule("M-22", "I-10")
def test_a_deletion_while_the_account_is_made_wins(world):
    """Nothing of a deleted owner becomes ready."""
    from quitclaim.flows.deletion import delete_owner

    world.broker.next("/v2/user", after(lambda: delete_owner(GOOGLE.of_owner, world.stopping)))

    with pytest.raises((errors.GrantNotInstalledError, errors.OwnerDeletedError)):
        world.sign_in()

    assert world.broker.sign_in_tokens == []
    world.minutes_pass(4)
    assert world.broker.live() == []


@pytest.mark.parametrize(
    ("misbehaviour", "error"),
    [
        (answers(429), errors.ProviderBusyError),
        (answers(401, {"detail": "bad key"}), errors.ClientConfigError),
        (not_connected, errors.ProviderBusyError),
        (lost_answer, errors.OutcomeUnknownError),
    ],
    ids=["busy", "key", "not sent", "lost"],
)
def test_an_account_that_cannot_be_made_owes_nothing(world, misbehaviour, error):
    """An account gives access to nothing by itself: no notice, and the next call finds or makes it."""
    world.broker.next("/v2/user", misbehaviour)

    with pytest.raises(error):
        world.sign_in()

    assert world.connection().state is ConnectionState.FAILED
    assert world.notice() == "not_needed"
    assert world.sign_in().connection.state is ConnectionState.READY
    assert len(world.broker.live()) == 1


@pytest.mark.rule("M-23")
def test_a_token_that_cannot_be_minted_leaves_a_ready_connection(world):
    """The same call again mints one, and makes nothing."""
    world.broker.next("/v2/user/*/sign_in_token", answers(503))
    with pytest.raises(errors.ProviderBusyError):
        world.sign_in()
    assert world.connection().state is ConnectionState.READY

    assert world.sign_in().token.reveal() in world.broker.sign_in_tokens


def test_a_worker_that_dies_while_the_account_is_made_owes_nothing(world):
    """Its exchange ends by itself, without a notice."""
    world.broker.next("/v2/user", killed)
    with pytest.raises(WorkerKilledError):
        world.sign_in()

    world.minutes_pass(2)

    assert world.connection().state is ConnectionState.FAILED
    assert world.notice() == "not_needed"
    assert world.sign_in().connection.state is ConnectionState.READY
    assert len(world.broker.made) == 1


def test_a_sign_in_takes_the_place_of_a_link_that_waits(world):
    """The user is in the app: the link in the browser is the older attempt (U-21)."""
    visit = world.visit(world.start())

    world.sign_in()

    with pytest.raises(CallbackFailedError) as refused:
        world.returned(visit)
    assert isinstance(refused.value.cause, errors.StateReplayedError | errors.StateSupersededError)
    assert world.connection().state is ConnectionState.READY


def test_a_sign_in_waits_behind_the_barrier(world):
    """What is owed comes first, as before any start."""
    world.linked()
    world.disconnect()

    with pytest.raises((errors.StateConflictError, errors.ConnectBlockedError, errors.OwnerPurgingError)):
        world.sign_in()
    with pytest.raises((errors.ConnectBlockedError, errors.OwnerPurgingError)):
        world.sign_in(OTHER)


def test_without_time_nothing_is_begun(world):
    """503."""
    with pytest.raises(errors.TimeIsUpError):
        world.sign_in(budget_ms=15_000)

    assert world.items("connection") == []


def test_the_broker_learns_no_id_of_the_app(world):
    """Its reference is a keyed digest, the same for the same connection."""
    world.sign_in()

    (reference,) = world.broker.accounts
    assert not any(part in reference for part in ("acme-app", "ann", "google"))
    assert BASE_URL


def test_an_import_of_an_account_at_a_broker_is_refused(world):
    """Nothing of it is refreshed."""
    with pytest.raises(errors.ImportNotSupportedError):
        world.imports(Secret("canary"))


def test_a_source_is_part_of_what_makes_two_starts_the_same():
    """Under one key."""
    plain = StartRequest(GOOGLE, "acme", None)

    assert plain.digest(None) != replace(plain, source="oura").digest(None)
