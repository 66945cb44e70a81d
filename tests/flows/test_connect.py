"""Start, link, callback and confirmation, each to every end that it can have."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from quitclaim.domain.errors import (
    BindingMismatchError,
    ClientConfigError,
    ConnectBlockedError,
    IdempotencyMismatchError,
    IssuerMismatchError,
    KeyUnavailableError,
    ProviderMismatchError,
    ProviderNotRegisteredError,
    QuitclaimError,
    ScopeNotAllowedError,
    StateInvalidError,
    StateMissingError,
)
from quitclaim.domain.limits import (
    AUTHORIZATION_MS,
    CONFIRM_MS,
    GUARD_MS,
    LINK_VISITS,
    TICKET_MIN_MS,
    TICKET_MS,
    WINDOW_MS,
)
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import Callback, CallbackOutcome, challenge_of
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.store.keys import barrier_key, connection_key, exchange_key
from tests.fakes.config import BASE_URL, spec_with
from tests.fakes.provider import (
    Misbehaviour,
    after,
    answers,
    cut_off,
    killed,
    lost_answer,
    lost_request,
    not_connected,
)
from tests.fakes.tables import WorkerKilledError, killed_after
from tests.flows.world import GOOGLE, OTHER, OWNER, World

type Worlds = Callable[..., World]


def code_of(attempt: Callable[[], object]) -> str:
    """The code of the refusal that an attempt ends in."""
    with pytest.raises((QuitclaimError, CallbackFailedError)) as refused:
        attempt()
    error = refused.value
    if isinstance(error, CallbackFailedError):
        return error.cause.code
    assert isinstance(error, QuitclaimError)
    return error.code


# --- start -----------------------------------------------------------------------------------------------------------


def test_the_challenge_is_the_one_of_rfc_7636() -> None:
    """Appendix B, the only method there is here (S256)."""
    verifier = Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")

    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.rule("U-12", "I-18")
def test_the_same_key_gets_the_same_link_again(world: World) -> None:
    """A call that is repeated with its key begins nothing and answers the first link, which is stored nowhere."""
    first = world.start(idempotency_key="k1")
    before = world.stand_in.everything()

    again = world.start(idempotency_key="k1")

    assert first.ticket is not None
    assert again.ticket == first.ticket
    assert (again.expires_at, again.connection.generation) == (first.expires_at, 1)
    assert world.stand_in.everything() == before
    assert first.ticket.reveal() not in str(before)


@pytest.mark.rule("U-12")
def test_the_same_key_gets_the_same_answer_whatever_happened_since(world: World) -> None:
    """The first answer stands, although the connection went on."""
    first = world.start(idempotency_key="k1")
    world.come_back(world.approved(world.visit(first)))

    again = world.start(idempotency_key="k1")

    assert again.ticket == first.ticket
    assert world.connection().state == "ready"


def test_the_same_key_with_another_request_is_refused(world: World) -> None:
    """A key names one request: where the user returns to is part of it."""
    world.start(idempotency_key="k1")

    with pytest.raises(IdempotencyMismatchError):
        world.start(idempotency_key="k1", return_to="https://app.example.com/other")


def test_another_key_begins_the_next_generation(world: World) -> None:
    """With another key, or as a reconnect, it is another start."""
    first = world.start(idempotency_key="k1")
    second = world.start(idempotency_key="k2")
    third = world.start(again=True)

    assert [each.connection.generation for each in (first, second, third)] == [1, 2, 3]
    assert len({each.ticket.reveal() for each in (first, second, third) if each.ticket}) == 3


ASKED: dict[str, dict[str, Any]] = {
    "nothing special": {},
    "a return target": {"return_to": "https://app.example.com/done"},
    "scopes": {"scopes": frozenset({"read"})},
    "a hint": {"login_hint": Secret("ann@example.com")},
    "notes": {"metadata": {"cart": "42"}},
}


@pytest.mark.rule("U-12", "I-18", "M-5")
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_the_same_start_of_a_waiting_link_gets_that_link_again(world: World, asked: dict[str, Any]) -> None:
    """The name of the connection is as good as a key: nothing is written, also where the link was opened already."""
    first = world.start(**asked)
    world.visit(first)
    world.clock.move(minutes=5)
    before = world.stand_in.everything()

    again = world.start(**asked)

    assert again.ticket == first.ticket
    assert (again.expires_at, again.connection) == (first.expires_at, world.connection())
    assert world.stand_in.everything() == before


@pytest.mark.rule("U-12", "U-21")
@pytest.mark.parametrize("asked", list(ASKED.values())[1:], ids=list(ASKED)[1:])
def test_a_start_that_asks_for_something_else_replaces_the_link(world: World, asked: dict[str, Any]) -> None:
    """Both ways round."""
    first = world.start()

    second, third = world.start(**asked), world.start()

    assert [each.connection.generation for each in (first, second, third)] == [1, 2, 3]


def test_the_same_start_of_a_link_that_serves_nobody_any_more_makes_a_new_one(world: World) -> None:
    """Opened too often, or with less than a minute left to open it."""
    worn = world.start()
    for _ in range(LINK_VISITS):
        world.visit(worn)
    fresh = world.start()
    world.clock.move(ms=TICKET_MS - TICKET_MIN_MS)
    in_time = world.start()
    world.clock.move(ms=1)
    late = world.start()

    assert [each.connection.generation for each in (worn, fresh, in_time, late)] == [1, 2, 2, 3]


@pytest.mark.rule("M-18", "U-12")
def test_a_start_of_a_live_connection_is_answered_with_it(world: World) -> None:
    """`ready`, on its way out, or over: nothing is begun (C-9); only a reconnect follows `revoked`."""
    world.connect()
    live = world.start()
    world.disconnect()
    leaving = world.start()
    world.minutes_pass(3)
    over = world.start()

    assert [each.connection.state for each in (live, leaving, over)] == ["ready", "revoking", "revoked"]
    assert [each.ticket for each in (live, leaving, over)] == [None] * 3
    assert world.start(again=True).ticket is not None


@pytest.mark.rule("S-23", "RB-52")
def test_what_a_start_asks_for_is_what_the_provider_is_asked_for(world: World) -> None:
    """Fewer scopes or further ones, whatever the settings say by the time of the visit; none beyond them."""
    world.clients.add("acme", confirmation="none", optional_scopes=frozenset({"admin"}))
    with pytest.raises(ScopeNotAllowedError):
        world.start(scopes=frozenset({"read", "delete"}))
    assert world.stand_in.everything() == {}
    started = world.start(scopes=frozenset({"read", "admin"}))
    world.clients.add("acme", confirmation="none")

    visit = world.visit(started)

    assert parse_qs(urlsplit(visit.url).query)["scope"] == ["read admin"]
    world.come_back(world.approved(visit))
    assert world.connection().scopes == {"read", "admin"}


@pytest.mark.rule("F-7", "S-14")
def test_a_hint_goes_to_the_provider_and_is_readable_nowhere(world: World) -> None:
    """It is sealed under the ticket, which is not stored: neither text nor a plain digest of it lies in the table."""
    hint = Secret("ann@example.com")
    started = world.start(login_hint=hint, idempotency_key="k")

    visit = world.visit(started)

    assert parse_qs(urlsplit(visit.url).query)["login_hint"] == [hint.reveal()]
    assert world.start(login_hint=hint, idempotency_key="k").ticket == started.ticket
    with pytest.raises(IdempotencyMismatchError):
        world.start(login_hint=Secret("bob@example.com"), idempotency_key="k")
    stored = str(world.stand_in.everything())
    assert hint.reveal() not in stored
    assert "login_hint" not in parse_qs(urlsplit(world.visit(world.start(OTHER)).url).query)


@pytest.mark.rule("M-16", "M-17")
def test_notes_of_the_app_go_nowhere_but_into_its_view(world: World) -> None:
    """The provider is not told of them, and the state that comes back knows nothing of them."""
    started = world.start(metadata={"cart": "canary-42"}, return_to="https://app.example.com/done")

    visit = world.visit(started)

    assert world.connection().metadata == {"cart": "canary-42"}
    assert "canary" not in visit.url
    assert "canary" not in str(world.items("authorization") + world.items("ticket"))
    (state,) = world.items("authorization")
    assert (state["t"], state["o"], state["c"]) == (GOOGLE.tenant, GOOGLE.owner, GOOGLE.connection)
    assert (state["generation"], state["client"]) == ("1", "acme")
    assert state["return_to"] == "https://app.example.com/done"
    world.come_back(world.approved(visit))
    assert world.connection().metadata == {"cart": "canary-42"}
    assert "canary" not in str(world.items("event"))


@pytest.mark.rule("M-2")
def test_a_provider_that_ends_soon_is_connected_to_no_more(new_world: Worlds) -> None:
    """Neither a start nor a link that was given out before leads there; what there is can still be revoked."""
    world = new_world()
    world.connect(OTHER)
    started = world.start()
    before = world.stand_in.everything()
    world.server.spec = spec_with(status="sunset", ends_on="2027-06-01")

    assert code_of(lambda: world.start()) == "CONNECTION_FLOW_NOT_SUPPORTED"
    assert code_of(lambda: world.visit(started)) == "CONNECTION_FLOW_NOT_SUPPORTED"
    assert world.stand_in.everything() == before
    world.disconnect(OTHER)
    world.minutes_pass(3)
    assert world.connection(OTHER).closed_as == "confirmed"


def test_what_is_queued_for_a_provider_that_is_shut_down_ends_at_once(new_world: Worlds) -> None:
    """Nothing answers there any more: no day of retries, but the owner's notice."""
    world = new_world()
    world.connect(OTHER)
    world.server.spec = spec_with(status="shut_down", ends_on="2026-11-02")

    world.disconnect(OTHER)
    world.minutes_pass(3)

    assert world.server.asked.count("/revoke") == 0
    assert [item["state"] for item in world.items("revocation")] == ["unsupported"]


@pytest.mark.rule("M-1")
def test_an_unknown_client_begins_nothing(world: World) -> None:
    """The app named a client that is not set up."""
    with pytest.raises(ProviderNotRegisteredError):
        world.start(client="nobody")

    assert world.stand_in.everything() == {}


@pytest.mark.rule("U-5", "D-8", "D-9", "U-20", "F-16")
def test_a_start_names_what_stands_before_it(world: World) -> None:
    """An owed revocation of the same client blocks, with its deadline; another client's does not (U-5)."""
    world.clients.add("second", confirmation="none")
    world.connect()
    world.disconnect()
    world.reconcile()

    with pytest.raises(ConnectBlockedError) as blocked:
        world.start(OTHER)
    world.start(OTHER, client="second")

    found: Any = blocked.value.details["blockers"]
    (blocker,) = found
    assert (blocker["level"], blocker["connection_id"]) == ("pending", "google")
    assert world.connection(OTHER).client == "second"


@pytest.mark.rule("F-17")
def test_an_open_purge_asks_to_come_again(world: World) -> None:
    """Data of the stopped connection is still being removed: that passes by itself."""
    world.connect()
    world.disconnect()
    world.sweep()

    assert code_of(lambda: world.start(OTHER)) == "OWNER_PURGING"


def test_a_settled_revocation_is_finished_by_whoever_wants_to_begin(world: World) -> None:
    """Nobody waits for the schedule: the start runs the finishing step itself."""
    world.connect()
    world.disconnect()
    world.reconcile()
    world.sweep()

    world.start(OTHER)

    assert world.events("revocation.confirmed") == ["revocation.confirmed"]


def test_a_start_kicks_the_grant_that_it_ends(asking_world: World) -> None:
    """The waiting exchange's grant is due now, and the sweep is asked to look now."""
    world = asking_world
    world.come_back(world.callback())
    rid = world.exchange().rid

    world.start()

    assert world.kick.rids == [rid]
    world.revoke(rid)
    assert world.server.live("refresh_token") == []


def test_a_start_goes_through_although_the_sweep_has_the_held_grant(asking_world: World) -> None:
    """A hold that was taken over once it was over is left to whoever has it."""
    world = asking_world
    world.come_back(world.callback())
    world.clock.move(ms=CONFIRM_MS + GUARD_MS)
    world.server.next("/revoke", answers(503))
    world.sweep()

    world.start()

    assert world.connection().phase == "link"
    assert world.exchange().outcome == "cleanup"


# --- link ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-5")
def test_a_visit_sends_the_browser_on_with_a_state_of_its_own(world: World) -> None:
    """State, challenge and binding are new for each visit; verifier and state are readable nowhere in the table."""
    started = world.start(return_to="https://app.example.com/done")

    first, second = world.visit(started), world.visit(started)

    asked = {name: values[0] for name, values in parse_qs(urlsplit(first.url).query).items()}
    assert asked["redirect_uri"] == f"{BASE_URL}/callback/acme"
    assert asked["code_challenge_method"] == "S256"
    assert asked["scope"] == "read write"
    assert first.url != second.url
    assert first.cookie.startswith("__Host-qc-")
    assert first.binding != second.binding
    assert asked["state"] not in str(world.stand_in.everything())
    assert first.binding.reveal() not in str(world.stand_in.everything())


def test_a_link_may_be_opened_twenty_times(world: World) -> None:
    """A mail scanner or two do no harm; the twenty-first visit is refused."""
    started = world.start()

    for _ in range(LINK_VISITS):
        world.visit(started)

    assert code_of(lambda: world.visit(started)) == "OAUTH_STATE_INVALID"


def test_a_link_ends_when_its_time_is_over(world: World) -> None:
    """One millisecond before its end it still serves."""
    started = world.start()
    world.clock.move(ms=TICKET_MS - 1)
    world.visit(started)

    world.clock.move(ms=1)

    assert code_of(lambda: world.visit(started)) == "OAUTH_STATE_INVALID"


@pytest.mark.rule("S-5")
def test_any_of_the_visits_may_be_finished_but_only_one(world: World) -> None:
    """The first callback that comes back spends its siblings."""
    started = world.start()
    first, second = world.visit(started), world.visit(started)

    world.come_back(world.approved(second))

    assert code_of(lambda: world.come_back(world.approved(first))) == "OAUTH_STATE_REPLAYED"
    assert world.connection().state == "ready"


@pytest.mark.parametrize(
    ("misbehaviour", "code"),
    [(lost_request, "PROVIDER_BUSY"), (answers(400, {"error": "invalid_request"}), "CLIENT_MISCONFIGURED")],
)
def test_a_visit_whose_request_cannot_be_pushed_loses_nothing(
    new_world: Worlds, misbehaviour: Misbehaviour, code: str
) -> None:
    """RFC 9126: the provider is told before the browser goes; where it is not, the link is opened once more."""
    world = new_world(authorize__par="yes", authorize__par_url="https://acme.example.com/par")
    started = world.start()
    world.server.next("/par", misbehaviour)

    assert code_of(lambda: world.visit(started)) == code

    visit = world.visit(started)
    assert parse_qs(urlsplit(visit.url).query).keys() == {"client_id", "request_uri"}
    assert world.come_back(world.approved(visit)).status == "ready"
    assert world.server.asked == ["/par", "/par", "/token", "/me"]


# --- callback: refused before anything is consumed -------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, object], type[QuitclaimError]]] = {
    "no state": ({"state": None}, StateMissingError),
    "an unknown state": ({"state": Secret("forged")}, StateInvalidError),
    "another provider's path": ({"provider": "other"}, ProviderMismatchError),
    "no cookie": ({"cookies": {}}, BindingMismatchError),
    "another browser's cookie": ({"cookies": None}, BindingMismatchError),
    "a wrong iss": ({"iss": ("https://evil.example.com",)}, IssuerMismatchError),
    "no iss where one is announced": ({"iss": ()}, IssuerMismatchError),
    "two iss": ({"iss": ("https://acme.example.com", "https://acme.example.com")}, IssuerMismatchError),
}


@pytest.mark.rule("S-1", "S-4", "RB-49", "RB-50", "M-27", "M-28")
@pytest.mark.parametrize(("changes", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_belong_together_consumes_nothing(
    new_world: Worlds, changes: dict[str, object], error: type[QuitclaimError]
) -> None:
    """Nothing is written or sent, and the user may still finish."""
    world = new_world(authorize__issuer="https://acme.example.com", authorize__issuer_announced="yes")
    good = world.approved(world.visit(world.start()), iss=("https://acme.example.com",))
    if changes.get("cookies", "") is None:
        changes = {"cookies": dict.fromkeys(good.cookies, "another browser")}
    before = world.stand_in.everything()

    with pytest.raises(error):
        world.come_back(replace(good, **changes))  # type: ignore[arg-type]

    assert world.stand_in.everything() == before
    assert world.server.asked == []
    assert world.come_back(good).status == "ready"


@pytest.mark.rule("U-17", "S-5", "M-5", "M-27")
@pytest.mark.parametrize(("early_ms", "accepted"), [(1, True), (0, False)])
def test_a_state_ends_when_its_time_is_over(world: World, early_ms: int, accepted: bool) -> None:
    """`t <= now` is over."""
    callback = world.callback()
    world.clock.move(ms=AUTHORIZATION_MS - early_ms)

    if accepted:
        assert world.come_back(callback).status == "ready"
    else:
        with pytest.raises(StateInvalidError):
            world.come_back(callback)


def test_a_callback_with_too_little_time_consumes_nothing(world: World) -> None:
    """Exchange and hold would not fit: nothing is begun, and the browser may come again."""
    callback = world.callback()

    assert code_of(lambda: world.come_back(callback, budget_ms=15_999)) == "OUT_OF_TIME"

    assert world.come_back(callback).status == "ready"


def test_a_callback_without_its_keys_consumes_nothing(world: World) -> None:
    """The keys that seal a returned grant are open before its record is written."""
    callback = world.callback()
    world.kms.is_out = True

    assert code_of(lambda: world.come_back(callback)) == KeyUnavailableError.code
    world.kms.is_out = False

    assert world.server.asked == []
    assert world.come_back(callback).status == "ready"


def test_a_callback_without_the_client_s_secret_consumes_nothing(world: World) -> None:
    """The app team's mistake is mended, and the user comes again."""
    callback = world.callback()
    secret, world.clients.secret = world.clients.secret, None

    assert code_of(lambda: world.come_back(callback)) == ClientConfigError.code
    world.clients.secret = secret

    assert world.come_back(callback).status == "ready"


@pytest.mark.rule("RB-20")
def test_an_exchange_whose_secret_is_gone_when_it_is_sent_is_over(world: World) -> None:
    """It is on record by then, and never left: it ends as not sent, and nobody has to look at the provider's page."""
    callback = world.callback()
    world.clients.secret_reads = 1

    assert code_of(lambda: world.come_back(callback)) == ClientConfigError.code

    assert (world.server.asked, world.exchange().outcome) == ([], "ended")
    assert (world.connection().state, world.notice()) == ("failed", "not_needed")


@pytest.mark.rule("M-25", "M-26")
@pytest.mark.parametrize(
    ("error", "code", "state"),
    [
        ("access_denied", "OAUTH_CALLBACK_REJECTED", "failed"),
        ("invalid_scope", "OAUTH_CALLBACK_REJECTED", "failed"),
        (None, "OAUTH_CODE_MISSING", "failed"),
        ("server_error", "OAUTH_CALLBACK_REJECTED", "authorizing"),
        ("temporarily_unavailable", "OAUTH_CALLBACK_REJECTED", "authorizing"),
        ("interaction_required", "OAUTH_CALLBACK_REJECTED", "authorizing"),
        ("login_required", "OAUTH_CALLBACK_REJECTED", "authorizing"),
    ],
)
def test_a_callback_without_a_code(world: World, error: str | None, code: str, state: str) -> None:
    """A final answer fails the connection at once; after a passing one the link may be opened again (7.17)."""
    started = world.start()
    callback = world.approved(world.visit(started), code=None, error=error)

    assert code_of(lambda: world.come_back(callback)) == code

    assert world.connection().state == state
    assert world.events() == (["connection.failed"] if state == "failed" else [])
    assert code_of(lambda: world.come_back(callback)) == "OAUTH_STATE_INVALID"
    if state == "authorizing":
        assert world.come_back(world.approved(world.visit(started))).status == "ready"


@pytest.mark.rule("F-16", "F-17", "I-9")
def test_a_callback_behind_something_owed_is_refused_before_the_code_is_sent(world: World) -> None:
    """What came to be owed while the user was away decides at the begin."""
    callback = world.callback()
    world.connect(OTHER)
    world.disconnect(OTHER)

    assert code_of(lambda: world.come_back(callback)) == "CONNECT_BLOCKED"

    world.minutes_pass(2)
    assert world.come_back(callback).status == "ready"


@pytest.mark.rule("F-18")
def test_a_callback_beside_another_connection_s_exchange_waits_for_it(asking_world: World) -> None:
    """One exchange of an owner and client at a time (F-18)."""
    world = asking_world
    callback = world.callback()
    other = world.callback(OTHER)
    world.come_back(other)

    assert code_of(lambda: world.come_back(callback)) == "CONNECT_BLOCKED"

    assert world.connection().phase == "link"


# --- callback: what the provider may answer --------------------------------------------------------------------------


def test_a_granted_code_is_a_live_grant(world: World) -> None:
    """Ready, told once, and the only live token is the installed one."""
    outcome = world.come_back(world.callback(return_to="https://app.example.com/done"))

    assert (outcome.status, outcome.return_to) == ("ready", "https://app.example.com/done")
    assert world.connection().scopes == {"read", "write"}
    assert world.events() == ["connection.ready"]
    assert world.unaccounted() == []
    assert world.token().access_token.reveal() == world.server.of_kind("access_token")[0]


@pytest.mark.rule("F-7", "S-14", "I-17")
def test_nothing_of_a_grant_is_readable_in_the_table(world: World) -> None:
    """No token, code, ticket, verifier or account stands in any item."""
    started = world.start()
    callback = world.approved(world.visit(started), account="alice@example.com")
    world.come_back(callback)

    stored = str(world.stand_in.everything())

    secrets = [*world.server.ledger, "alice@example.com"]
    secrets += [each.reveal() for each in (callback.code, callback.state, started.ticket) if each]
    assert not [secret for secret in secrets if secret in stored]


ENDED: dict[str, tuple[Misbehaviour, str, str]] = {
    "the code is dead": (answers(400, {"error": "invalid_grant"}), "PROVIDER_REFUSED", "ended"),
    "the client is refused": (answers(401, {"error": "invalid_client"}), "CLIENT_MISCONFIGURED", "ended"),
    "not now": (answers(429, {"error": "slow_down"}, retry_after="7"), "PROVIDER_BUSY", "ended"),
    "it never left": (not_connected, "PROVIDER_BUSY", "ended"),
    "it was lost": (lost_request, "EXCHANGE_UNCONFIRMED", "unconfirmed"),
    "its answer was lost": (lost_answer, "EXCHANGE_UNCONFIRMED", "unconfirmed"),
    "the provider broke": (answers(500), "EXCHANGE_UNCONFIRMED", "unconfirmed"),
    "a page came": (answers(200, None), "EXCHANGE_UNCONFIRMED", "unconfirmed"),
}


@pytest.mark.rule("F-67", "S-6", "U-4", "D-38", "M-38", "M-46", "M-47")
@pytest.mark.parametrize(("misbehaviour", "code", "outcome"), ENDED.values(), ids=ENDED.keys())
def test_an_exchange_that_gives_nothing_ends(world: World, misbehaviour: Misbehaviour, code: str, outcome: str) -> None:
    """Refused or not sent owes nothing, unknown is a notice; the code is sent once, and the connection has failed."""
    world.server.next("/token", misbehaviour)

    assert code_of(lambda: world.come_back(world.callback())) == code

    assert world.server.asked == ["/token"]
    assert world.exchange().outcome == outcome
    assert world.connection().state == "failed"
    assert world.notice() == ("permission_removal_required" if outcome == "unconfirmed" else "not_needed")
    assert world.events() == ["exchange.unconfirmed" if outcome == "unconfirmed" else "connection.failed"]
    if outcome == "ended":
        world.clock.move(minutes=1)  # a refused client rests
        assert world.connect().state == "ready"
    else:
        assert code_of(lambda: world.start(OTHER)) == "CONNECT_BLOCKED"


@pytest.mark.rule("F-34", "U-4")
def test_an_unconfirmed_exchange_is_acknowledged_once_its_window_is_over(world: World) -> None:
    """Only then can no grant of it still come: before, the owner is asked to wait (custody rule 2)."""
    world.server.next("/token", lost_answer)
    code_of(lambda: world.come_back(world.callback()))
    world.clock.move(ms=WINDOW_MS + GUARD_MS - 1)

    assert code_of(world.acknowledge) == "ACKNOWLEDGE_TOO_EARLY"
    world.clock.move(ms=1)
    assert world.acknowledge() == 1

    assert world.notice() == "acknowledged"
    assert world.connect().state == "ready"


@pytest.mark.rule("RB-02", "I-1")
def test_a_grant_in_a_broken_answer_is_salvaged_and_revoked(world: World) -> None:
    """A token that stands in what cannot be read may be alive: it is queued, and ends at the provider."""
    world.server.next("/token", cut_off)

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.unaccounted() == []
    assert world.kick.rids == [world.exchange().rid]
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []
    assert world.connection().state == "failed"
    assert world.notice() == "confirmed"


@pytest.mark.rule("F-68", "D-24")
def test_a_worker_that_dies_before_its_answer_leaves_a_notice(world: World) -> None:
    """The exchange lapses, the owner is told, and says so before a new attempt."""
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.come_back(world.callback())

    world.minutes_pass(2)

    assert world.exchange().outcome == "unconfirmed"
    assert world.connection().state == "failed"
    assert world.notice() == "permission_removal_required"
    assert world.events() == ["exchange.unconfirmed"]


@pytest.mark.rule("F-64", "U-3", "RB-34", "M-51", "M-53")
@pytest.mark.parametrize("confirmation", ["none", "owner"])
def test_a_worker_that_dies_after_its_hold_leaves_a_revocation(new_world: Worlds, confirmation: str) -> None:
    """Once the hold is over the sweep takes the grant, and reconciliation closes its exchange."""
    world = new_world(confirmation)
    callback = world.callback()
    world.table.faults = [None, killed_after]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)

    world.minutes_pass(13)

    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.exchange().outcome) == ("failed", "cleanup")
    assert world.notice() == "confirmed"
    assert world.connect().state == "ready"


# --- callback: again -------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-49", "M-30", "M-33")
@pytest.mark.parametrize("confirmation", ["none", "owner"])
def test_two_genuine_callbacks_at_once_show_one_outcome(new_world: Worlds, confirmation: str) -> None:
    """The second one finds the first at work, waits for it, and shows what became of it; the code is sent once."""
    world = new_world(confirmation)
    callback = world.callback()
    second: list[CallbackOutcome] = []

    def second_delivery() -> None:
        world.clock.on_pause = lambda: None
        second.append(world.come_back(callback))

    world.server.next("/token", after(second_delivery))

    first = world.come_back(callback)

    assert second[0].status == "in_progress"
    assert world.server.asked.count("/token") == 1
    assert world.come_back(callback) == first


@pytest.mark.rule("RB-49")
def test_a_callback_that_is_repeated_too_early_waits_for_the_first(world: World) -> None:
    """While the first is at work the second looks every half second; what it then finds is what it shows."""
    callback = world.callback()
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)
    exchange = world.exchange()
    world.clock.on_pause = lambda: world.stand_in.alter(
        exchange_key(GOOGLE, exchange.id), put={"outcome": "cleanup", "reason": "identity_unreadable"}
    )
    since = world.clock.now()

    assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"

    assert world.clock.now() - since == 500


@pytest.mark.rule("M-31", "M-47", "D-24", "D-38")
@pytest.mark.parametrize("how", [killed, lost_answer, lost_request])
def test_a_repeated_callback_of_an_unknown_outcome_says_what_to_do(world: World, how: Misbehaviour) -> None:
    """Provider access may exist that nobody holds: the owner must remove it. Acknowledged, it is just used."""
    callback = world.callback()
    world.server.next("/token", how)
    with pytest.raises((WorkerKilledError, CallbackFailedError)):
        world.come_back(callback)
    world.minutes_pass(2)

    with pytest.raises(CallbackFailedError) as again:
        world.come_back(callback)

    assert again.value.cause.code == "OAUTH_CALLBACK_RECOVERY_REQUIRED"
    assert again.value.connection_id == "google"
    world.acknowledge()
    assert code_of(lambda: world.come_back(callback)) == "OAUTH_STATE_REPLAYED"
    assert world.server.asked == ["/token"]


@pytest.mark.rule("M-30", "M-46", "M-49", "M-50", "M-58", "M-56")
@pytest.mark.parametrize(
    ("misbehaviour", "first", "failure", "again"),
    [
        (answers(400, {"error": "invalid_grant"}), "PROVIDER_REFUSED", "refused", "OAUTH_STATE_REPLAYED"),
        (not_connected, "PROVIDER_BUSY", "not_connected", "OAUTH_STATE_REPLAYED"),
        (cut_off, "GRANT_NOT_INSTALLED", "malformed_answer", "GRANT_NOT_INSTALLED"),
    ],
)
def test_a_failed_attempt_says_why_and_is_not_tried_again(
    world: World, misbehaviour: Misbehaviour, first: str, failure: str, again: str
) -> None:
    """The failure is recorded on the connection; the same callback brings no work, and the next start is free."""
    callback = world.callback()
    world.server.next("/token", misbehaviour)

    assert code_of(lambda: world.come_back(callback)) == first

    assert (world.connection().state, world.connection().failure) == ("failed", failure)
    assert code_of(lambda: world.come_back(callback)) == again
    assert world.server.asked.count("/token") == 1
    world.minutes_pass(2)
    assert world.connect().state == "ready"


@pytest.mark.rule("RB-52", "S-2")
@pytest.mark.parametrize("pkce", ["none", "optional"])
def test_RB_52_the_verifier_of_a_visit_survives_a_change_of_the_catalogue(world: World, pkce: str) -> None:
    """A challenge was sent, so its verifier is, whatever is configured by the time of the callback."""
    callback = world.callback()
    world.server.spec = spec_with(authorize__pkce=pkce)

    assert world.come_back(callback).status == "ready"


# --- addresses with a value of the grant's ---------------------------------------------------------------------------

SHOP: dict[str, object] = {
    "placeholders": {
        "shop": {"from": "start", "pattern": "[a-z0-9-]{1,20}\\.acme\\.example\\.com", "echo": "shop"},
        "region": {"from": "callback", "parameter": "location", "values": ["eu", "us"]},
    },
    "authorize__url": "https://{shop}/authorize",
    "token__url": "https://{shop}/token",
}
"""As Shopify names the host at the start and repeats it in the callback, and Zoho the region in the callback."""
OURS: dict[str, str] = {"shop": "ours.acme.example.com"}


def shopping(new_world: Worlds, **query: str) -> tuple[World, Callback]:
    """A world with such a provider, and a callback of our shop."""
    world = new_world(**SHOP)
    callback = world.callback(variables=OURS)
    said = {"shop": OURS["shop"], "location": "eu"} | query
    return world, replace(callback, query={name: (value,) for name, value in said.items()})


@pytest.mark.rule("S-8", "M-39")
def test_addresses_are_filled_from_the_start_and_from_the_callback(new_world: Worlds) -> None:
    """The shop of the start in every address; neither it nor the region is readable in the table."""
    world, callback = shopping(new_world)

    assert world.come_back(callback).status == "ready"

    assert world.server.hosts == {OURS["shop"]} | {"acme.example.com"}
    assert OURS["shop"] not in str(world.stand_in.everything())


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"shop": ""},
        {"shop": "evil.example.com"},
        {"shop": "ours.acme.example.com.evil.example.com"},
        {"shop": "ours.acme.example.com/x"},
        {"shop": "ours.acme.example.com#"},
        {"shop": "OURS.acme.example.com"},
        {"shop": "169.254.169.254"},
        OURS | {"region": "eu"},
        OURS | {"more": "x"},
    ],
    ids=str,
)
def test_a_start_with_another_value_begins_nothing(new_world: Worlds, variables: dict[str, str]) -> None:
    """Missing, not allowed, or not the app's to name."""
    world = new_world(**SHOP)

    assert code_of(lambda: world.start(variables=variables)) == "INVALID_BODY"

    assert world.stand_in.everything() == {}


@pytest.mark.rule("S-8", "S-26")
@pytest.mark.parametrize(
    "query",
    [
        {"location": ("cn",)},
        {"location": ("eu", "eu")},
        {"location": ()},
        {"location": ("eu.evil.example.com",)},
        {"shop": ("theirs.acme.example.com",)},
        {"shop": ()},
        {"shop": (OURS["shop"], OURS["shop"])},
    ],
    ids=str,
)
def test_a_callback_with_another_value_spends_nothing(new_world: Worlds, query: dict[str, tuple[str, ...]]) -> None:
    """Judged before the state is consumed: the same browser may still bring the right one."""
    world, good = shopping(new_world)
    before = world.stand_in.everything()

    assert code_of(lambda: world.come_back(replace(good, query={**good.query, **query}))) == "OAUTH_PARAMETER_INVALID"

    assert world.stand_in.everything() == before
    assert world.server.asked == []
    assert world.come_back(good).status == "ready"


@pytest.mark.rule("U-12")
def test_another_shop_is_another_start(new_world: Worlds) -> None:
    """The same one gets the same link."""
    world = new_world(**SHOP)
    first = world.start(variables=OURS)

    assert world.start(variables=OURS).ticket == first.ticket
    assert world.start(variables={"shop": "theirs.acme.example.com"}).connection.generation == 2


# --- what was granted ------------------------------------------------------------------------------------------------

GRANTED = [
    # (in the token answer, in the callback, what the connection has)
    (None, None, {"read", "write"}),
    ("read write extra", None, {"read", "write", "extra"}),
    (None, "read,write more", {"read", "write", "more"}),
    (None, " ", {"read", "write"}),
    ("write,read", "nothing", {"read", "write"}),
]


@pytest.mark.rule("M-39", "M-42", "RB-55")
@pytest.mark.parametrize(("answered", "named", "scopes"), GRANTED)
def test_RB_55_granted_scopes_are_read_from_either_place(
    new_world: Worlds, answered: str | None, named: str | None, scopes: set[str]
) -> None:
    """The token answer's count, else the callback's, else they are those that were asked for."""
    world = new_world(authorize__callback_scope_param="scope")
    if answered is not None:
        world.server.extra["scope"] = answered

    world.come_back(replace(world.callback(), query={} if named is None else {"scope": (named,)}))

    assert world.connection().scopes == scopes


def test_scopes_in_a_callback_count_only_where_the_catalogue_says_so(world: World) -> None:
    """Elsewhere it is a parameter that nobody knows."""
    world.come_back(replace(world.callback(), query={"scope": ("nothing",)}))

    assert world.connection().scopes == {"read", "write"}


@pytest.mark.rule("S-23", "RB-55", "M-49")
@pytest.mark.parametrize("confirmation", ["none", "owner"])
@pytest.mark.parametrize("place", ["answer", "callback"])
def test_RB_55_a_grant_without_what_is_needed_is_refused_and_revoked(
    new_world: Worlds, confirmation: str, place: str
) -> None:
    """The user unticked a scope: no code, no identity call, nothing for use; the app is told why."""
    world = new_world(confirmation, authorize__callback_scope_param="granted")
    callback = world.callback()
    if place == "answer":
        world.server.extra["scope"] = "read"
    else:
        callback = replace(callback, query={"granted": ("read",)})

    with pytest.raises(CallbackFailedError) as refused:
        world.come_back(callback)

    assert refused.value.cause.details["reason"] == "insufficient_scope"
    assert (world.connection().state, world.connection().failure) == ("failed", "insufficient_scope")
    assert world.exchange().use is None
    assert world.server.asked == ["/token"]
    assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("M-48", "U-15")
def test_a_failed_attempt_leaves_the_other_connection_of_its_account_alone(new_world: Worlds) -> None:
    """Its grant's revocation would end every grant of the account: it waits until the other one is gone."""
    world = new_world(revocation__reach="authorization")
    world.connect(OTHER)
    world.server.extra["scope"] = "read"

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"
    world.minutes_pass(3)

    assert world.connection(OTHER).state == "ready"
    assert world.token(OTHER).access_token.reveal() in world.server.live("access_token")
    assert world.unaccounted() == []
    world.disconnect(OTHER)
    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("S-23", "RB-55")
def test_what_is_needed_is_the_clients_word(new_world: Worlds) -> None:
    """With `required_scopes` a client lives with less than it asks for, and the connection says what it has."""
    world = new_world()
    world.clients.add("acme", confirmation="none", required_scopes=frozenset({"read"}))
    world.server.extra["scope"] = "read"

    assert world.connect().scopes == {"read"}


@pytest.mark.rule("S-23", "RB-55")
def test_a_worker_that_dies_holding_too_little_leaves_nothing_to_confirm(asking_world: World) -> None:
    """The hold is there, its release is not: still no code for it, and it is revoked when its window is over."""
    world = asking_world
    callback = world.callback()
    world.server.extra["scope"] = "read"
    world.table.faults = [None, killed_after]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)

    assert (world.come_back(callback).status, world.come_back(callback).confirm_code) == ("in_progress", None)
    assert code_of(lambda: world.confirm(Secret("00000-00000"))) in ("CONFIRM_CODE_WRONG", "GRANT_NOT_INSTALLED")
    code = world.vault("connect").confirm_code(world.exchange().id, world.exchange().started)
    assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.connection().state == "failed"


# --- late grants -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("D-2", "F-61")
def test_a_grant_that_comes_after_its_window_is_revoked(world: World) -> None:
    """The answer is 61 seconds late and nobody has lapsed it yet: it is queued, and the connection fails."""
    world.server.next("/token", after(lambda: world.clock.move(seconds=61)))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.unaccounted() == []
    assert world.exchange().outcome == "cleanup"
    assert world.connection().state == "failed"
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []
    assert world.connect().state == "ready"


@pytest.mark.rule("D-2", "U-4", "F-66")
def test_a_grant_that_comes_after_its_lapse_takes_the_notice_back(world: World) -> None:
    """It was unconfirmed; now it is known, owed and revoked, and there is nothing to acknowledge."""
    world.server.next("/token", after(lambda: world.clock.move(seconds=66), world.reconcile))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.exchange().outcome == "cleanup"
    assert world.notice() == "pending"
    world.minutes_pass(2)
    assert (world.notice(), world.server.live("refresh_token")) == ("confirmed", [])


ARRIVALS = {
    "unconfirmed": ({"outcome": "unconfirmed"}, "cleanup"),
    "ended": ({"outcome": "ended"}, "cleanup"),
    "in clean-up": ({"outcome": "cleanup"}, "cleanup"),
    "in clean-up, with another grant": ({"outcome": "cleanup", "fp": "another"}, "cleanup"),
    "held, another grant": ({"outcome": "held", "fp": "another"}, "held"),
    "installed, another grant": ({"outcome": "installed", "fp": "another"}, "installed"),
}


@pytest.mark.rule("M-54")
@pytest.mark.parametrize(("changes", "outcome"), ARRIVALS.values(), ids=ARRIVALS.keys())
def test_a_grant_that_finds_its_exchange_closed_is_queued(
    world: World, changes: dict[str, object], outcome: str
) -> None:
    """Whatever became of the exchange, a grant that it does not hold is due for revocation (D-30)."""

    def closed_meanwhile() -> None:
        world.stand_in.alter(exchange_key(GOOGLE, world.exchange().id), put=changes)

    world.server.next("/token", after(closed_meanwhile))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.exchange().outcome == outcome
    assert world.unaccounted() == []
    world.sweep()
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("D-2", "F-66", "RB-33")
def test_a_grant_that_comes_after_a_disconnect_belongs_to_the_stop(world: World) -> None:
    """The stop does not close before the late token is revoked (custody rule 5)."""
    half_a_minute = partial(world.clock.move, seconds=31)
    world.server.next("/token", after(half_a_minute, world.disconnect, half_a_minute))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    (intent,) = world.reads.intents(GOOGLE)
    assert intent.rids == {world.exchange().rid}
    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("F-63", "F-65", "RB-33", "M-41")
def test_a_grant_that_comes_in_time_after_a_disconnect_is_released(world: World) -> None:
    """The exchange was still open: held, found moved on, due at once."""
    world.server.next("/token", after(world.disconnect))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.unaccounted() == []
    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("M-57")
def test_a_grant_that_comes_while_nothing_is_as_it_was_is_queued_all_the_same(world: World) -> None:
    """Whatever happened to the barrier, the token ends in the table (custody rule 8)."""

    def break_everything() -> None:
        world.clock.move(seconds=61)
        world.stand_in.alter(barrier_key(OWNER, "acme"), put={"in_flight": "other#x"})

    world.server.next("/token", after(break_everything))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.unaccounted() == []


# --- identity --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-54", "S-21", "M-37", "M-40")
def test_another_account_at_a_reconnect_is_released_and_revoked(world: World) -> None:
    """A connection stays with the account that it was made for (S-21)."""
    world.connect(account="alice")
    world.disconnect()
    world.minutes_pass(3)

    with pytest.raises(CallbackFailedError) as refused:
        world.connect(account="bob", again=True)

    assert refused.value.cause.details["reason"] == "identity_mismatch"
    assert world.connection().state == "failed"
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []
    assert world.connect(account="alice").state == "ready"


@pytest.mark.rule("S-21", "F-63")
@pytest.mark.parametrize("answer", [answers(401), answers(500), answers(200, {"name": "x"}), lost_answer])
def test_an_account_that_cannot_be_read_is_not_installed(world: World, answer: Misbehaviour) -> None:
    """Nobody knows whose grant it is: it is revoked."""
    world.server.next("/me", answer)

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    assert world.exchange().reason == "identity_unreadable"
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


def test_an_account_in_the_token_answer_is_not_asked_for(new_world: Worlds) -> None:
    """Where the answer says whose grant it is, no second call is made."""
    world = new_world(identity={"in_token_response": "user"})

    world.connect()

    assert world.server.asked == ["/token"]
    assert world.connection().account is not None


def test_a_provider_without_an_identity_is_connected_without_an_account(new_world: Worlds) -> None:
    """Reach family asks for none."""
    world = new_world(identity=None)

    world.connect()

    assert world.connection().account is None
    assert world.items("account") == []


@pytest.mark.rule("U-15")
def test_two_connections_of_one_account_are_counted(world: World) -> None:
    """The account knows how many grants live on it (custody rule 10)."""
    world.connect()
    world.connect(OTHER)

    (account,) = world.items("account")
    assert account["live"] == "2"
    assert len(world.items("member")) == 2

    world.disconnect(OTHER)

    (account,) = world.items("account")
    assert account["live"] == "1"


@pytest.mark.rule("RB-22", "F-60")
@pytest.mark.parametrize("finished", [False, True])
def test_a_grant_begun_before_a_wide_revocation_ended_is_not_installed(new_world: Worlds, finished: bool) -> None:
    """It may have been ended on its way: the user starts again (custody rule 10)."""
    world = new_world(revocation__reach="authorization")
    world.clients.add("second", confirmation="none")
    world.connect(OTHER)
    world.disconnect(OTHER)

    def sweep_meanwhile() -> None:
        world.clock.move(seconds=1)
        world.sweep()
        if finished:
            world.reconcile()
        world.clock.move(seconds=1)

    world.stand_in.alter(barrier_key(OWNER, "acme"), remove=("owed", "purges"))
    world.server.next("/token", after(sweep_meanwhile))

    assert code_of(lambda: world.come_back(world.callback())) == "GRANT_NOT_INSTALLED"

    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.unaccounted() == []


def test_a_grant_begun_after_a_wide_revocation_is_installed_although_it_is_not_finished(new_world: Worlds) -> None:
    """The install runs the finishing step that opens the account at the settle (7.3)."""
    world = new_world(revocation__reach="authorization")
    world.connect(OTHER)
    world.disconnect(OTHER)
    world.reconcile()
    world.sweep()
    world.clock.move(ms=1)

    assert world.connect().state == "ready"


# --- install: refused ------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-65", "I-3")
def test_a_connection_that_is_started_anew_meanwhile_keeps_no_old_grant(world: World) -> None:
    """The app starts again while the answer is on its way: the old answer is released."""
    started = world.start()
    callback = world.approved(world.visit(started))

    def start_again() -> None:
        # Not by `start`, which an open exchange blocks: by what would be there had it gone through.
        connection = world.connection()
        world.stand_in.alter(
            connection_key(GOOGLE), put={"generation": connection.generation + 1, "phase": "link", "v": 9}
        )

    world.server.next("/token", after(start_again))

    assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"

    assert world.exchange().reason == "moved_on"
    assert world.connection().state == "authorizing"
    assert world.unaccounted() == []


def test_an_install_waits_for_no_busy_neighbour(world: World) -> None:
    """A barrier that another write moved is read again, inside the hold."""
    callback = world.callback()
    world.table.faults = [None, None, moves_the_barrier(world)]

    assert world.come_back(callback).status == "ready"


def moves_the_barrier(world: World) -> Callable[[Callable[[], object]], object]:
    """Just before the write, somebody else changes the barrier."""

    def fault(apply: Callable[[], object]) -> object:
        world.stand_in.alter(barrier_key(OWNER, "acme"), put={"v": 50})
        return apply()

    return fault


# --- confirmation ----------------------------------------------------------------------------------------------------


def test_a_held_grant_waits_for_its_owner(asking_world: World) -> None:
    """Nothing is handed out; the status says until when; nothing is stored of the code."""
    world = asking_world

    outcome = world.come_back(world.callback())

    (view,) = world.status().connections
    assert outcome.status == "awaiting_confirmation"
    assert outcome.confirm_code is not None
    assert outcome.confirm_code.reveal() not in str(world.stand_in.everything())
    assert (view.awaiting_confirmation, view.confirm_until) == (True, world.clock.now() + CONFIRM_MS)
    assert code_of(world.token) == "CONNECTION_STATE_CONFLICT"
    assert world.unaccounted() == []


def test_the_owner_s_code_installs_without_a_key_or_a_call(asking_world: World) -> None:
    """Ciphertext is moved: the function that confirms can open nothing, and asks no provider."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code
    asked, opened = list(world.server.asked), list(world.kms.calls)
    world.vault("app_api").ready("confirm")

    world.confirm(code)

    assert world.connection().state == "ready"
    assert world.server.asked == asked
    assert len(world.kms.calls) <= len(opened) + 1  # the key of the code itself
    assert world.token().access_token.reveal() in world.server.live("access_token")


def test_a_code_is_read_as_people_write_it(asking_world: World) -> None:
    """Lower case, without its dash, with an O for a zero."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code
    assert code is not None

    world.confirm(Secret(f" {code.reveal().replace('-', '').lower().replace('0', 'o')} "))

    assert world.connection().state == "ready"


@pytest.mark.rule("RB-49", "S-1", "M-30")
def test_the_bound_browser_that_repeats_its_callback_gets_the_same_code(asking_world: World) -> None:
    """A reload loses nothing; another browser gets nothing."""
    world = asking_world
    callback = world.callback()
    first = world.come_back(callback)

    again = world.come_back(callback)

    assert again == first
    assert world.server.asked.count("/token") == 1
    assert code_of(lambda: world.come_back(replace(callback, cookies={}))) == "OAUTH_BINDING_MISMATCH"


def test_the_bound_browser_of_an_installed_grant_is_shown_that_it_is_ready(world: World) -> None:
    """The first delivery owns the outcome, and the second shows it."""
    callback = world.callback()
    world.come_back(callback)

    assert world.come_back(callback).status == "ready"
    assert world.server.asked.count("/token") == 1


def test_four_wrong_codes_are_borne_and_the_fifth_ends_the_exchange(asking_world: World) -> None:
    """The grant is due for revocation at once, and the right code comes too late."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code

    codes = [code_of(lambda: world.confirm(None)) for _ in range(5)]

    assert codes == ["CONFIRM_CODE_WRONG"] * 4 + ["GRANT_NOT_INSTALLED"]
    assert (world.exchange().outcome, world.exchange().reason) == ("cleanup", "wrong_codes")
    assert world.connection().state == "failed"
    assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"
    world.revoke(*world.kick.rids)
    assert world.server.live("refresh_token") == []


def test_the_right_code_after_four_wrong_ones_installs(asking_world: World) -> None:
    """A wrong code has no other effect than being counted."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code
    for _ in range(4):
        code_of(lambda: world.confirm(None))

    world.confirm(code)

    assert world.connection().state == "ready"


@pytest.mark.rule("F-65", "U-17")
@pytest.mark.parametrize(("early_ms", "installed"), [(1, True), (0, False)])
def test_a_code_that_comes_too_late_installs_nothing(asking_world: World, early_ms: int, installed: bool) -> None:
    """Ten minutes, and not one millisecond more; what comes late is released at once."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code
    world.clock.move(ms=CONFIRM_MS - early_ms)

    if installed:
        assert world.confirm(code).state == "ready"
    else:
        assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"
        assert world.connection().state == "failed"
        world.revoke(*world.kick.rids)
        assert world.server.live("refresh_token") == []


@pytest.mark.rule("F-64")
def test_a_grant_that_nobody_confirms_is_revoked(asking_world: World) -> None:
    """Sweep and reconciliation end it, and the connection has failed."""
    world = asking_world
    world.come_back(world.callback())

    world.minutes_pass(12)

    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.connection().failure) == ("failed", "not_confirmed")
    assert world.events("connection.failed") == ["connection.failed"]


def test_a_code_that_is_repeated_answers_the_same(asking_world: World) -> None:
    """Nothing is installed twice, nothing is told twice."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code
    world.confirm(code)
    before = world.stand_in.everything()

    again = world.confirm(code)

    assert again.state == "ready"
    assert world.stand_in.everything() == before


@pytest.mark.rule("F-65")
def test_a_code_after_a_disconnect_installs_nothing(asking_world: World) -> None:
    """The stop has ended the waiting exchange, and its grant is revoked."""
    world = asking_world
    code = world.come_back(world.callback()).confirm_code
    generation = world.connection().generation
    world.disconnect()

    assert code_of(lambda: world.confirm(code, generation=generation)) == "GENERATION_MOVED"
    assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.connection().closed_as == "confirmed"


def test_a_code_of_another_exchange_is_wrong(asking_world: World) -> None:
    """A code is for its exchange only."""
    world = asking_world
    first = world.come_back(world.callback()).confirm_code
    world.start()
    world.minutes_pass(2)
    second = world.come_back(world.callback()).confirm_code

    assert first != second
    assert code_of(lambda: world.confirm(first)) == "CONFIRM_CODE_WRONG"
    assert world.confirm(second).state == "ready"


def test_confirmation_none_installs_at_once(world: World) -> None:
    """Chosen on purpose for a client: no code, and nothing for use lies on the exchange."""
    outcome = world.come_back(world.callback())

    assert (outcome.status, outcome.confirm_code) == ("ready", None)
    assert world.exchange().use is None
