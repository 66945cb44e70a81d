"""
The product, whole and running, against an authorization server that nobody here wrote: npm's `oidc-provider`.

What became of a token is read from that server's own introspection (RFC 7662), never from what the product says.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx
import pytest

from infra.local.browser import BrowserError, Page
from infra.local.life import RegisteredClient, envelope, expect, register_client, until
from infra.local.provider.control import Issued
from infra.local.stack import LocalStack
from tests.interop.oidc_provider import peer
from tests.interop.oidc_provider.peer import IDENTITY_PATH, REVOKE_PATH, TOKEN_PATH, OidcControl, OidcLife

EXPIRED_S = 3660
"""By so much is the clock moved for an access token to be stale."""
LEASE_OVER_S = 36
"""Of a refresh or of a claimed revocation: 30 s, and the guard."""
HOLD_OVER_S = 620
LINK_OVER_S = 1900
LONGEST_STEP_S = 900
"""Of the ladder on which what is not done yet is looked at again."""
NAMED = "permission_removal_required"
REVOKED = "confirmed"

pytestmark = pytest.mark.timeout(240)  # of the first test that needs it, the fixture that kills thirty workers is part


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcControl]:
    """The authorization server. Skips where there is no Node, and fails there in CI."""
    with peer.running(tmp_path_factory.mktemp("oidc-provider")) as control:
        yield control


@pytest.fixture(scope="module")
def stack(oidc: OidcControl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The product's stack: the server is in its catalogue, a gate before AWS, and schedules run when a test says so."""
    catalogue = [(peer.SPEC, {"base": oidc.url})]
    state = tmp_path_factory.mktemp("oidc-stack")
    with LocalStack(state, schedules=False, gate=True, catalogue=catalogue) as running:
        yield running


@pytest.fixture(scope="module")
def registered(stack: LocalStack, oidc: OidcControl) -> RegisteredClient:
    """One confidential client for all tests."""
    return register_client(stack, oidc, "oidc", catalogue_id="oidc", scopes=peer.SCOPES)


type ALife = Callable[..., OidcLife]
_owners = itertools.count(1)


@pytest.fixture(scope="module")
def a_life(stack: LocalStack, oidc: OidcControl, registered: RegisteredClient) -> Iterator[ALife]:
    """Makes lives of connections, each of an owner and of a person at the server whom nobody knows yet."""
    with ExitStack() as lives:

        def make(username: str | None = None) -> OidcLife:
            owner, username = f"owner-{next(_owners)}", username or oidc.person()
            life = OidcLife(stack, oidc, registered, owner, connection_id="oidc", username=username)
            return lives.enter_context(life)

        yield make


@pytest.fixture
def life(a_life: ALife) -> OidcLife:
    """The life that most tests need."""
    return a_life()


@pytest.fixture(autouse=True)
def nothing_waits(stack: LocalStack, oidc: OidcControl) -> Iterator[None]:
    """No test leaves a fault that is armed, or a call that waits, to the next one."""
    yield
    let_go(stack, oidc)


def let_go(stack: LocalStack, oidc: OidcControl) -> None:
    """Disarm everything and release whoever waits."""
    for path in (TOKEN_PATH, REVOKE_PATH, IDENTITY_PATH):
        oidc.stall(path, times=0)
    oidc.release()
    for function in ("access_token", "app_api", "connect", "revoke_sweep"):
        stack.open_gate(function)


def alive(life: OidcLife) -> list[Issued]:
    """Every token of this person, access tokens too, that the server's introspection calls active."""
    return [line for line in life.provider.ledger(life.client.client_id) if line.user == life.username and line.live]


def rounds(stack: LocalStack, *advances_s: int) -> None:
    """What runs by itself once a minute: after each advance of the clock a sweep and a reconciliation."""
    for seconds in advances_s:
        stack.advance(seconds)
        stack.fire("revoke_sweep")
        stack.fire("reconcile")


# --- a worker that is stopped on its way ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Where: at a path of the server, or at the *nth* AWS call of a name; before it acts, or *after*."""

    at: str
    after: bool
    nth: int = 1

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.at}" + (f" {self.nth}" if self.nth > 1 else "")

    @property
    def is_at_server(self) -> bool:
        """Whether it is a call to the authorization server."""
        return self.at.startswith("/")


def before(at: str, nth: int = 1) -> Point:
    """Before the call reaches anybody."""
    return Point(at, after=False, nth=nth)


def after(at: str, nth: int = 1) -> Point:
    """When the call has done its work and the answer is on its way."""
    return Point(at, after=True, nth=nth)


_one_stall_at_a_time = threading.Lock()


class Held:
    """*call* runs beside the test until the worker of *function* is stopped at *point*; there the body begins."""

    def __init__(self, life: OidcLife, point: Point, function: str, call: Callable[[], int]) -> None:
        self._life, self._point, self._function = life, point, function
        self._call, self._thread = call, threading.Thread(target=self._run)
        self.status: int | None = None
        """What the caller got in the end; 599 where the front closed the connection."""

    def __enter__(self) -> "Held":
        stack, oidc, point = self._life.stack, self._life.provider, self._point
        if point.is_at_server:
            _one_stall_at_a_time.acquire()
            oidc.stall(point.at, after=point.after)
        else:
            stack.shut_gate(self._function, point.at, nth=point.nth, after=point.after)
        self._thread.start()
        try:
            if point.is_at_server:
                oidc.wait_stalled()
            else:
                stack.wait_at_gate(self._function)
        except TimeoutError:
            self.__exit__()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL to the worker that was stopped."""
        self._life.stack.kill(self._function)

    def release(self) -> None:
        """Let it go on."""
        if self._point.is_at_server:
            self._life.provider.release()
        else:
            self._life.stack.open_gate(self._function)

    def __exit__(self, *_: object) -> None:
        self.release()
        if self._point.is_at_server:
            _one_stall_at_a_time.release()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.status = self._call()
        except (BrowserError, httpx.TransportError):
            self.status = 599


def asking(life: OidcLife) -> Callable[[], int]:
    """The app asks for an access token."""
    return lambda: life.token().status_code


def consenting(life: OidcLife, page: Page) -> Callable[[], int]:
    """The owner consents, and the callback follows."""
    return lambda: life.allow(page).status


def confirming(life: OidcLife, code: str) -> Callable[[], int]:
    """The owner types the code at the app."""
    return lambda: life.confirm(code).status_code


def stopping(life: OidcLife, generation: int) -> Callable[[], int]:
    """The app disconnects."""
    return lambda: life.disconnect(generation).status_code


# --- the server, and a whole life with it ---------------------------------------------------------------------------


def test_the_server_is_what_the_catalogue_says(oidc: OidcControl) -> None:
    """`iss` announced, S256 alone, revocation and introspection; no PAR."""
    said = oidc.metadata()

    assert said["issuer"] == oidc.url
    assert said["authorization_response_iss_parameter_supported"] is True
    assert said["code_challenge_methods_supported"] == ["S256"]
    assert said["revocation_endpoint"] == oidc.url + REVOKE_PATH
    assert said["introspection_endpoint"]
    assert "pushed_authorization_request_endpoint" not in said


def test_a_grant_lives_and_dies_as_its_owner_wants(life: OidcLife) -> None:
    """Start, login, consent, callback with `iss`, confirm, use, refresh with rotation, disconnect; then it is dead."""
    page = life.allow(life.visit(life.start()))
    assert life.view()["awaiting_confirmation"]
    assert [address for address in life.browser.history if "&iss=" in address]
    assert expect(life.confirm(life.code_on(page)), 200)["state"] == "ready"

    first = expect(life.token(), 200)
    assert life.provider.who_am_i(first["access_token"]).json()["sub"] == life.username

    life.stack.advance(EXPIRED_S)
    second = expect(life.token(), 200)
    assert second["token_version"] == first["token_version"] + 1
    assert life.provider.who_am_i(second["access_token"]).status_code == 200
    assert [line.live for line in life.issued()] == [False, True]

    assert expect(life.disconnect(), 200)["state"] == "revoking"
    assert life.token().status_code == 409
    life.revoked_by_the_kick()
    life.settle("revoked")
    assert (life.view()["closed_as"], life.notice()) == ("confirmed", REVOKED)
    assert alive(life) == []
    assert not life.provider.introspect(second["access_token"])
    newest = life.issued()[-1].digest
    verdict = life.provider.try_refresh(life.client.client_id, life.client.secret, digest=newest)
    assert (verdict.accepted, verdict.error) == (False, "invalid_grant")


@pytest.mark.rule("S-4")
@pytest.mark.parametrize(
    "issuers",
    [["https://evil.example"], [], ["{base}", "{base}"], ["{base}/"]],
    ids=["another", "none", "twice", "a slash more"],
)
def test_a_callback_with_another_issuer_is_refused_and_spends_nothing(life: OidcLife, issuers: list[str]) -> None:
    """Another one, none where one is announced, two, or one that differs by a slash; the right one then works."""
    back = life.allow(life.visit(life.start()), follow=False)
    assert back.query["iss"] == life.provider.url
    assert back.left_for is not None

    page = life.browser.open(with_issuers(back.left_for, [each.format(base=life.provider.url) for each in issuers]))

    assert page.status == 400
    assert life.issued() == []
    assert life.state == "authorizing"
    code = life.code_on(life.browser.open(back.left_for))
    assert expect(life.confirm(code), 200)["state"] == "ready"


def with_issuers(url: str, issuers: list[str]) -> str:
    """*url* with other values of `iss`."""
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "iss"]
    return urlunsplit(parts._replace(query=urlencode(kept + [("iss", value) for value in issuers])))


def test_a_no_carries_the_issuer_and_ends_the_attempt(life: OidcLife) -> None:
    """`iss` stands in a refusal too, and is checked there; the owner may start again at once."""
    page = life.say_no(life.visit(life.start()))

    assert dict(parse_qsl(urlsplit(page.url).query)) | {"state": ""} == {
        "error": "access_denied",
        "error_description": "End-User aborted interaction",
        "iss": life.provider.url,
        "state": "",
    }
    assert life.state == "failed"
    assert life.issued() == []
    assert life.connect()["state"] == "ready"


def test_reuse_of_a_spent_token_kills_the_family_and_the_app_is_told(life: OidcLife) -> None:
    """Somebody else presents the spent token: the server ends the grant, and the next refresh finds out."""
    life.connect()
    life.stack.advance(EXPIRED_S)
    expect(life.token(), 200)
    spent = life.issued()[0].digest

    reused = life.provider.try_refresh(life.client.client_id, life.client.secret, digest=spent)

    assert (reused.accepted, reused.error) == (False, "invalid_grant")
    assert alive(life) == []
    life.stack.advance(EXPIRED_S)
    assert envelope(life.token())["code"] == "NEEDS_RECONNECT"
    assert life.state == "needs_reconnect"
    rounds(life.stack, 0)
    assert life.notice() in (None, REVOKED)
    again = expect(life.api.post(f"{life.path}/reconnect", json={}), 201)
    page = life.allow(life.visit(again["connect_url"]))
    assert expect(life.confirm(life.code_on(page)), 200)["state"] == "ready"
    assert len(life.living()) == 1


@pytest.mark.rule("RB-43", "D-1")
def test_a_lost_answer_is_asked_for_once_more_and_what_the_server_ends_is_called_ended(life: OidcLife) -> None:
    """The server rotated, and the worker died: the replay presents a spent token, which ends the family (row 21)."""
    life.connect()
    life.stack.advance(EXPIRED_S)
    with Held(life, after(TOKEN_PATH), "access_token", asking(life)) as held:
        held.kill()
    assert len(life.living()) == 1

    rounds(life.stack, LEASE_OVER_S)
    patience = iter(range(200))
    while life.state != "needs_reconnect" and next(patience, None) is not None:
        time.sleep(0.05)  # the replay is asynchronous: nobody waits for it, and neither does the clock
    rounds(life.stack, 60)

    assert life.state == "needs_reconnect"
    assert life.notice() == REVOKED
    assert alive(life) == []


@pytest.mark.rule("RB-21", "RB-28c", "U-15")
def test_one_consent_shared_by_two_owners_is_revoked_with_the_last_of_them(a_life: ALife) -> None:
    """In one browser the server gives both the same grant: the first stop leaves it alone, the last one ends it."""
    one = a_life()
    other = a_life(one.username)
    one.connect()
    other.browser = one.browser
    other.connect()
    assert len({line.family for line in other.living()}) == 1

    expect(one.disconnect(), 200)
    rounds(one.stack, 0)
    assert (one.state, one.view()["closed_as"]) == ("revoked", "released")
    assert other.provider.who_am_i(expect(other.token(), 200)["access_token"]).status_code == 200
    other.stack.advance(EXPIRED_S)
    expect(other.token(), 200)

    expect(other.disconnect(), 200)
    other.revoked_by_the_kick()
    other.settle("revoked")
    assert other.view()["closed_as"] == "confirmed"
    assert alive(one) == alive(other) == []


# --- a disconnect while a refresh is in flight ------------------------------------------------------------------------


@pytest.mark.rule("D-3", "RB-31")
def test_a_stop_is_not_confirmed_before_the_successor_is_dealt_with(life: OidcLife) -> None:
    """The server has rotated and its answer is on the way: pending until it came, was queued and revoked."""
    life.connect()
    generation = life.view()["generation"]
    life.stack.advance(EXPIRED_S)
    with Held(life, after(TOKEN_PATH), "access_token", asking(life)) as held:
        expect(life.disconnect(generation), 200)
        rounds(life.stack, 0, 1)
        assert life.notice() == "pending"
        assert life.state == "revoking"

        held.release()
    assert held.status == 409
    life.settle("revoked")
    assert (life.view()["closed_as"], life.notice()) == ("confirmed", REVOKED)
    assert len(life.issued()) == 2
    assert alive(life) == []


@pytest.mark.rule("D-2", "D-3")
def test_an_answer_after_its_lease_is_still_revoked_and_the_notice_stays(life: OidcLife) -> None:
    """Too late to be believed in: the owner has been told to remove it, and it is revoked all the same (D-2)."""
    life.connect()
    generation = life.view()["generation"]
    life.stack.advance(EXPIRED_S)
    with Held(life, after(TOKEN_PATH), "access_token", asking(life)) as held:
        expect(life.disconnect(generation), 200)
        rounds(life.stack, LEASE_OVER_S, 60, 120)
        assert life.notice() == NAMED
        assert alive(life) == []  # this server ends the successor with its spent predecessor; no other has to

        held.release()
    assert held.status == 409
    rounds(life.stack, 60)
    assert alive(life) == []
    assert life.notice() == NAMED
    assert life.acknowledge().status_code == 200
    rounds(life.stack, LONGEST_STEP_S)
    assert (life.state, life.view()["closed_as"]) == ("revoked", "attested")


# --- workers killed at each of their calls ----------------------------------------------------------------------------


# What an access-token call does: it reads owner and grant; records the refresh; sends it; saves;
# reads the owner once more. Disconnected while it is stopped there, it ends so:
REFRESH = {
    before("BatchGetItem"): REVOKED,
    before("UpdateItem"): REVOKED,
    after("UpdateItem"): NAMED,  # on record: nobody can know that it was not sent
    before(TOKEN_PATH): NAMED,
    after(TOKEN_PATH): NAMED,
    before("UpdateItem", 2): NAMED,
    after("UpdateItem", 2): REVOKED,
    before("GetItem"): REVOKED,
    after("GetItem"): REVOKED,
}

# What a callback does: it consumes the state and records the exchange; sends the code; holds the grant; asks whose it
# is; records that. Nobody confirms it afterwards.
CALLBACK = {
    before("TransactWriteItems"): None,
    after("TransactWriteItems"): NAMED,
    before(TOKEN_PATH): NAMED,
    after(TOKEN_PATH): NAMED,
    before("TransactWriteItems", 2): NAMED,
    after("TransactWriteItems", 2): REVOKED,
    before(IDENTITY_PATH): REVOKED,
    after(IDENTITY_PATH): REVOKED,
    before("TransactWriteItems", 3): REVOKED,
    after("TransactWriteItems", 3): REVOKED,
}

# What a sweep does that a disconnect has kicked: it claims the revocation, sends it, settles it.
SWEEP = {
    before("TransactWriteItems"): REVOKED,
    after("TransactWriteItems"): REVOKED,
    before(REVOKE_PATH): REVOKED,
    after(REVOKE_PATH): REVOKED,
    before("BatchExecuteStatement"): REVOKED,
    after("BatchExecuteStatement"): REVOKED,
}


READS = frozenset({"BatchGetItem", "Decrypt", "GetItem", "GetParameter", "GetParametersByPath", "Query"})


def test_there_is_no_write_at_which_no_worker_is_killed(a_life: ALife) -> None:
    """The points above are all writes of the three; a read leaves behind what the call before it left."""
    a_life().connect()  # whoever is the first in a new stack makes its keys
    life = a_life()
    stack = life.stack

    def writes(function: str, act: Callable[[], object]) -> list[str]:
        stack.open_gate(function)
        act()
        until(lambda: not stack.in_flight(function) or None, "the end of the call", lambda: "still running")
        return [call for call in stack.aws_calls(function) if call not in READS]

    page = life.visit(life.start())
    pages: list[Page] = []
    assert writes("connect", lambda: pages.append(life.allow(page))) == ["TransactWriteItems"] * 3
    generation = expect(life.confirm(life.code_on(pages[0])), 200)["generation"]
    stack.advance(EXPIRED_S)
    assert writes("access_token", life.token) == ["UpdateItem"] * 2

    def disconnect() -> None:
        expect(life.disconnect(generation), 200)
        assert life.revoked_by_the_kick()

    assert writes("revoke_sweep", disconnect) == ["TransactWriteItems", "BatchExecuteStatement"]


@dataclass(frozen=True)
class Killed:
    """A life for each point at which a worker was killed, after everything that runs by itself has run."""

    refreshes: dict[Point, OidcLife]
    callbacks: dict[Point, OidcLife]
    sweeps: dict[Point, OidcLife]


@pytest.fixture(scope="module")
def killed(stack: LocalStack, a_life: ALife) -> Killed:
    """
    Each refresh is disconnected while it is stopped at its point, and killed there; each callback is killed at its
    point, and each sweep that a disconnect has kicked. All of them wait for the same moves of the clock.
    """
    lives = Killed(*({point: a_life() for point in points} for points in (REFRESH, CALLBACK, SWEEP)))
    ready = [*lives.refreshes.values(), *lives.sweeps.values()]
    with ThreadPoolExecutor(2) as pool:
        generations = {
            life.owner: view["generation"] for life, view in zip(ready, pool.map(OidcLife.connect, ready), strict=True)
        }
        stack.advance(EXPIRED_S)

        for point, life in lives.refreshes.items():
            with Held(life, point, "access_token", asking(life)) as held:
                expect(life.disconnect(generations[life.owner]), 200)
                held.kill()

        def kill_callbacks() -> None:
            for point, life in lives.callbacks.items():
                page = life.visit(life.start())
                with Held(life, point, "connect", consenting(life, page)) as held:
                    held.kill()

        def kill_sweeps() -> None:
            for point, life in lives.sweeps.items():
                with Held(life, point, "revoke_sweep", stopping(life, generations[life.owner])) as held:
                    held.kill()

        # Side by side: other functions, and other paths of the server.
        for done in [pool.submit(kill_callbacks), pool.submit(kill_sweeps)]:
            done.result()
    rounds(stack, LEASE_OVER_S, 60, 120, HOLD_OVER_S, LINK_OVER_S)
    return lives


@pytest.mark.rule("D-3", "I-1")
@pytest.mark.parametrize("point", REFRESH, ids=str)
def test_a_refresh_killed_while_its_connection_is_stopped(killed: Killed, point: Point) -> None:
    """Ends revoked, and the server agrees, or named in the status until the owner has acknowledged it."""
    life = killed.refreshes[point]

    assert life.notice() == REFRESH[point]
    judge(life)


@pytest.mark.rule("RB-34", "I-1")
@pytest.mark.parametrize("point", CALLBACK, ids=str)
def test_a_callback_killed_at_each_of_its_calls(killed: Killed, point: Point) -> None:
    """A grant that the server gave is revoked once its hold is over, or the owner is told to remove it."""
    life = killed.callbacks[point]

    assert life.state == "failed"
    assert life.notice() == CALLBACK[point]
    judge(life)


@pytest.mark.rule("D-16", "D-25")
@pytest.mark.parametrize("point", SWEEP, ids=str)
def test_a_sweep_killed_at_each_of_its_calls(killed: Killed, point: Point) -> None:
    """Its lease ends and the next one takes it up: revoked at last."""
    life = killed.sweeps[point]

    assert (life.state, life.view()["closed_as"]) == ("revoked", "confirmed")
    assert life.notice() == SWEEP[point]
    judge(life)


@pytest.mark.parametrize(
    "point", [before("TransactWriteItems"), after("TransactWriteItems"), before("Invoke")], ids=str
)
def test_a_disconnect_killed_while_a_refresh_is_in_flight(life: OidcLife, point: Point) -> None:
    """Whatever became of the first try, the caller's second one stops it, and the successor is revoked with it."""
    generation = life.connect()["generation"]
    life.stack.advance(EXPIRED_S)
    with Held(life, after(TOKEN_PATH), "access_token", asking(life)) as refresh:
        with Held(life, point, "app_api", stopping(life, generation)) as stop:
            stop.kill()
        assert stop.status is not None
        assert stop.status >= 500
        expect(life.disconnect(generation), 200)
        assert life.notice() == "pending"
        refresh.release()

    life.settle("revoked")
    assert life.notice() == REVOKED
    judge(life)


@pytest.mark.parametrize("point", [before("TransactWriteItems"), after("TransactWriteItems")], ids=str)
def test_a_confirmation_killed_at_its_write_can_be_repeated(life: OidcLife, point: Point) -> None:
    """The grant is installed once, whichever of the two tries did it, and works."""
    code = life.code_on(life.allow(life.visit(life.start())))
    with Held(life, point, "app_api", confirming(life, code)) as held:
        held.kill()

    assert expect(life.confirm(code), 200)["state"] == "ready"
    assert life.provider.who_am_i(expect(life.token(), 200)["access_token"]).status_code == 200
    assert len(life.living()) == 1


def judge(life: OidcLife) -> None:
    """Revoked, and the server agrees; or named: the owner acknowledges it, and it is never called confirmed."""
    if life.notice() == NAMED:
        assert life.acknowledge().status_code == 200
        assert life.notice() == "acknowledged"
        assert life.view().get("closed_as") != "confirmed"
    else:
        assert alive(life) == []
