"""
A wider grant beside the live one: the old one serves until the new one is in, whatever becomes of the attempt; where
the provider's grants are not independent the product says so.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quitclaim.domain.errors import MovedError, QuitclaimError
from quitclaim.domain.limits import CONFIRM_MS, GUARD_MS
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import Callback
from quitclaim.flows.connect.start import Started
from quitclaim.flows.deletion import delete_owner
from tests.fakes.provider import Misbehaviour, after, answers, cut_off, killed, lost_answer, not_connected
from tests.fakes.tables import WorkerKilledError, killed_after
from tests.flows.test_connect import code_of
from tests.flows.world import OTHER, OWNER, World

type Worlds = Callable[..., World]
MORE = frozenset({"read", "write", "admin"})
INDEPENDENT = {"refresh__one_live_token": "no", "revocation__reach": "token"}


def live(new_world: Worlds, confirmation: str = "owner", **facts: object) -> World:
    """A ready connection whose client may ask for one scope more, at a provider whose grants are independent."""
    world = new_world(confirmation, **INDEPENDENT | facts)
    world.clients.add("acme", confirmation=confirmation, optional_scopes=frozenset({"admin"}))
    world.connect()
    return world


def widened(world: World, **asked: Any) -> Started:
    """A reconnect that names more scopes."""
    return world.start(again=True, scopes=MORE, **asked)


def consented(world: World, account: str = "alice") -> Callback:
    """And the callback of a user who agrees."""
    return world.approved(world.visit(widened(world)), account)


def still_served(world: World) -> bool:
    """Whether the connection is as it was before: ready, at its first generation, with a token that is alive."""
    connection = world.connection()
    assert (connection.state, connection.generation, connection.scopes) == ("ready", 1, {"read", "write"})
    return world.token().access_token.reveal() in world.server.live("access_token")


# --- it works --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-6", "I-4", "RB-35")
@pytest.mark.parametrize("takes", ["refresh", "either"])
def test_the_old_grant_serves_until_the_owner_has_confirmed_the_new_one(new_world: Worlds, takes: str) -> None:
    """Then the new one does, one generation on, and the old one is revoked; nothing is ever live and owed at once."""
    world = live(new_world, revocation__takes=takes, refresh__rotates="no", refresh__old_token_after_rotation=None)
    old = world.token().access_token
    started = widened(world)
    assert (started.connection.state, started.connection.generation) == ("ready", 1)
    assert still_served(world)

    outcome = world.come_back(world.approved(world.visit(started)))

    assert outcome.status == "awaiting_confirmation"
    assert still_served(world)
    (view,) = world.status().connections
    assert view.awaiting_confirmation
    ready = world.confirm(outcome.confirm_code)
    assert (ready.state, ready.generation, ready.scopes) == ("ready", 2, MORE)
    assert (ready.step_up, ready.step_up_exchange) == (None, None)
    assert world.token().access_token != old
    assert (world.token().generation, world.token().token_version) == (2, 1)
    assert world.unaccounted() == []
    world.minutes_pass(2)
    assert len(world.server.live("refresh_token")) == 1
    assert world.token().access_token.reveal() in world.server.live("access_token")
    assert world.events("connection.ready") == ["connection.ready"] * 2
    world.disconnect()
    world.minutes_pass(3)
    assert (world.server.live() if takes == "either" else world.server.live("refresh_token")) == []
    assert world.connection().closed_as == "confirmed"


def test_without_confirmation_the_callback_puts_the_new_grant_in(new_world: Worlds) -> None:
    """At once; the browser is told that it is ready, and a repeated callback shows the same."""
    world = live(new_world, "none")
    callback = consented(world)

    assert world.come_back(callback).status == "ready"

    assert (world.connection().generation, world.connection().scopes) == (2, MORE)
    assert world.come_back(callback).status == "ready"
    assert world.server.asked.count("/token") == 2


def test_the_code_that_is_repeated_answers_the_same(new_world: Worlds) -> None:
    """By the generation that the app knew before; a made-up code does not."""
    world = live(new_world)
    code = world.come_back(consented(world)).confirm_code
    world.confirm(code, generation=1)
    before = world.stand_in.everything()

    assert world.confirm(code, generation=1).generation == 2
    assert code_of(lambda: world.confirm(None, generation=1)) == "GENERATION_MOVED"
    assert world.stand_in.everything() == before


def test_the_account_is_counted_once(new_world: Worlds) -> None:
    """It is the same connection on the same account."""
    world = live(new_world, "none")
    world.come_back(consented(world))

    (account,) = world.items("account")
    (member,) = world.items("member")
    assert (account["live"], member["generation"]) == ("1", "2")


@pytest.mark.rule("U-12", "I-18")
def test_the_same_key_gets_the_same_link(new_world: Worlds) -> None:
    """Also once the wider grant is in."""
    world = live(new_world, "none")
    first = widened(world, idempotency_key="k")

    again = widened(world, idempotency_key="k")
    assert (again.ticket, again.expires_at) == (first.ticket, first.expires_at)
    assert (again.connection.state, again.connection.generation) == ("ready", 1)
    world.come_back(world.approved(world.visit(first)))
    assert widened(world, idempotency_key="k").ticket == first.ticket


@pytest.mark.rule("D-3", "I-6")
def test_a_refresh_under_way_belongs_to_the_old_grant(new_world: Worlds) -> None:
    """It was recorded before the new grant is in: its successor is expected by the old one's revocation."""
    world = live(new_world)
    code = world.come_back(consented(world)).confirm_code
    world.clock.move(seconds=10)
    world.server.next("/token", after(lambda: world.confirm(code)))

    token = world.token(min_ttl_ms=3_600_000)

    assert token.generation == world.connection().generation == 2
    assert token.access_token.reveal() in world.server.live("access_token")
    assert world.unaccounted() == []
    assert len(world.server.live("refresh_token")) == 2  # the refresh's own successor, and the new grant's
    world.minutes_pass(3)
    assert len(world.server.live("refresh_token")) == 1
    assert world.token().access_token.reveal() in world.server.live("access_token")


# --- it says that it cannot ------------------------------------------------------------------------------------------


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(
    "facts",
    [
        *({"revocation__reach": reach} for reach in ("family", "authorization", "account", "unknown")),
        *({"refresh__one_live_token": said} for said in ("yes", "unknown")),
        {"revocation__takes": "access", "revocation__needs_live_access_token": "no"},
    ],
    ids=str,
)
def test_where_grants_are_not_known_to_be_independent_it_says_so(new_world: Worlds, facts: dict[str, object]) -> None:
    """The end of one could end the other: nothing is begun, and the grant stays."""
    world = live(new_world, **facts)
    before = world.stand_in.everything()

    assert code_of(lambda: widened(world)) == "STEP_UP_NOT_POSSIBLE"

    assert world.stand_in.everything() == before


def test_without_more_scopes_a_reconnect_of_a_live_connection_is_a_conflict(new_world: Worlds) -> None:
    """As it was: nobody replaces a grant by accident."""
    world = live(new_world)

    assert code_of(lambda: world.start(again=True)) == "CONNECTION_STATE_CONFLICT"


# --- it fails, and the old grant stays -------------------------------------------------------------------------------

FAILS: dict[str, tuple[dict[str, Misbehaviour], dict[str, Any], str, str]] = {
    # what goes wrong at the provider, what is different in the answer, the code, and the reason on the exchange
    "the code is dead": ({"/token": answers(400, {"error": "invalid_grant"})}, {}, "PROVIDER_REFUSED", "refused"),
    "it never left": ({"/token": not_connected}, {}, "PROVIDER_BUSY", "not_connected"),
    "its answer was lost": ({"/token": lost_answer}, {}, "EXCHANGE_UNCONFIRMED", "timeout"),
    "its answer broke off": ({"/token": cut_off}, {}, "GRANT_NOT_INSTALLED", "malformed_answer"),
    "no account": ({"/me": answers(500)}, {}, "GRANT_NOT_INSTALLED", "identity_unreadable"),
    "too little": ({}, {"scope": "read"}, "GRANT_NOT_INSTALLED", "insufficient_scope"),
    "another account": ({}, {"account": "bob"}, "GRANT_NOT_INSTALLED", "identity_mismatch"),
    "nothing to refresh with": ({}, {"refresh": False}, "GRANT_NOT_INSTALLED", "no_refresh_token"),
}


@pytest.mark.rule("M-48", "RB-54", "RB-55", "RB-56", "U-6")
@pytest.mark.parametrize("confirmation", ["none", "owner"])
@pytest.mark.parametrize(("wrong", "answer", "code", "reason"), FAILS.values(), ids=FAILS.keys())
def test_a_failed_attempt_leaves_the_live_grant_alone(
    new_world: Worlds,
    wrong: dict[str, Misbehaviour],
    answer: dict[str, Any],
    code: str,
    reason: str,
    confirmation: str,
) -> None:
    """What came of it is revoked, or a notice where nobody knows; the connection never leaves `ready`."""
    world = live(new_world, confirmation)
    callback = consented(world, answer.get("account", "alice"))
    for path, misbehaviour in wrong.items():
        world.server.next(path, misbehaviour)
    if "scope" in answer:
        world.server.extra["scope"] = answer["scope"]
    world.server.with_refresh_token = answer.get("refresh", True)

    assert code_of(lambda: world.come_back(callback)) == code

    world.server.extra.clear()
    assert world.exchange().reason == reason
    assert still_served(world)
    assert world.events("connection.failed") == []
    failed = world.events("connection.step_up_failed") + world.events("exchange.unconfirmed")
    assert len(failed) == 1
    world.minutes_pass(2)
    assert still_served(world)
    if code == "EXCHANGE_UNCONFIRMED":
        assert world.notice() == "permission_removal_required"
        return
    assert [world.server.ledger[text].account for text in world.server.live("refresh_token")] == ["alice"]
    world.server.with_refresh_token = True
    outcome = world.come_back(consented(world))
    if outcome.confirm_code is not None:
        world.confirm(outcome.confirm_code)
    assert world.connection().scopes == MORE


@pytest.mark.rule("RB-35", "M-48", "U-6")
@pytest.mark.parametrize("confirmation", ["none", "owner"])
@pytest.mark.parametrize("takes", ["refresh", "either"])
def test_a_provider_that_gives_the_same_token_again_ends_nothing(
    new_world: Worlds, confirmation: str, takes: str
) -> None:
    """As Slack's does: there is no second grant, and to give the attempt back would end the one that serves."""
    facts = {"revocation__takes": takes, "refresh__rotates": "no"}
    world = live(new_world, confirmation, refresh__old_token_after_rotation=None, **facts)
    (only,) = world.server.live("refresh_token")
    callback = consented(world)
    world.server.gives_again = only

    assert code_of(lambda: world.come_back(callback)) == "STEP_UP_NOT_POSSIBLE"
    assert world.exchange().reason == "same_grant"
    assert still_served(world)
    world.minutes_pass(2 + CONFIRM_MS // 60_000)

    assert still_served(world)
    assert world.server.live("refresh_token") == [only]
    assert len(world.events("connection.step_up_failed")) == 1
    assert world.notice() == "not_needed"
    world.disconnect()
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("RB-35", "I-1")
@pytest.mark.parametrize("how", ["confirmed", "five wrong codes", "stopped first"])
def test_a_token_given_again_is_known_at_the_install_too(new_world: Worlds, how: str) -> None:
    """
    It became the live grant's after it was held, by a refresh whose answer was on its way. Old and new are compared
    before anything of the old one is queued: one token that was given twice stays alive.
    """
    world = live(new_world, refresh__rotates="yes", refresh__old_token_after_rotation="immediate")
    callback, codes = consented(world), []

    def come_back() -> None:
        (world.server.gives_again,) = world.server.live("refresh_token")
        codes.append(world.come_back(callback).confirm_code)

    world.server.next("/token", after(come_back))
    world.clock.move(seconds=10)
    world.token(min_ttl_ms=3_600_000)
    only = world.server.gives_again
    if how == "stopped first":
        world.disconnect()

    if how == "five wrong codes":
        assert [code_of(lambda: world.confirm(None)) for _ in range(5)][-1] == "GRANT_NOT_INSTALLED"
    else:
        told = "GRANT_NOT_INSTALLED" if how == "stopped first" else "STEP_UP_NOT_POSSIBLE"
        assert code_of(lambda: world.confirm(codes[0])) == told

    assert world.exchange().reason == ("stopped" if how == "stopped first" else "same_grant")
    assert world.events("connection.step_up_failed") == ["connection.step_up_failed"]
    world.minutes_pass(2)
    if how != "stopped first":
        assert still_served(world)
        assert world.server.live("refresh_token") == [only]
        assert world.notice() == "not_needed"
        world.disconnect()
        world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


def given_to_both(new_world: Worlds) -> World:
    """What is held for a step-up became the live grant's own token, by a refresh that was on its way."""
    world = live(new_world, refresh__rotates="yes", refresh__old_token_after_rotation="immediate")
    callback = consented(world)

    def come_back() -> None:
        (world.server.gives_again,) = world.server.live("refresh_token")
        world.come_back(callback)

    world.server.next("/token", after(come_back))
    world.clock.move(seconds=10)
    world.token(min_ttl_ms=3_600_000)
    return world


@pytest.mark.rule("RB-35")
@pytest.mark.parametrize("how", ["lapsed", "superseded", "sweep alone"])
def test_no_end_of_the_hold_ends_a_live_grant_that_has_its_token(new_world: Worlds, how: str) -> None:
    """Nothing calls the provider for it, and nothing says "confirmed", while the grant serves; its stop ends both."""
    world = given_to_both(new_world)
    only = world.server.gives_again
    if how == "superseded":
        widened(world)
        world.sweep()
    world.clock.move(ms=CONFIRM_MS + GUARD_MS)
    if how != "sweep alone":
        world.reconcile()
    world.sweep()
    world.minutes_pass(3)

    assert still_served(world)
    assert world.server.live("refresh_token") == [only]
    assert "/revoke" not in world.server.asked
    assert "confirmed" not in [item["state"] for item in world.items("revocation")]
    assert world.events("connection.step_up_failed") == ["connection.step_up_failed"]
    assert world.notice() == "not_needed"
    world.disconnect()
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("RB-35")
def test_the_claim_itself_looks_at_the_live_grant(new_world: Worlds) -> None:
    """The refresh may save between the sweep's look and its claim."""
    world = given_to_both(new_world)
    world.clock.move(ms=CONFIRM_MS + GUARD_MS)
    (item,) = world.revoking.store.read([world.exchange().rid])
    with pytest.raises(MovedError):
        world.revoking.store.claim_beside_live(item, world.clock.now())


@pytest.mark.rule("RB-35", "D-3")
def test_a_refresh_that_comes_after_the_install_with_its_token_queues_nothing(new_world: Worlds) -> None:
    """The token that the step-up brought is the live grant's by now."""
    world = live(new_world, refresh__rotates="yes", refresh__old_token_after_rotation="immediate")
    callback = consented(world)

    def confirmed() -> None:
        (world.server.gives_again,) = world.server.live("refresh_token")
        world.confirm(world.come_back(callback).confirm_code)

    world.server.next("/token", after(confirmed))
    world.clock.move(seconds=10)
    world.token(min_ttl_ms=3_595_000)

    world.minutes_pass(3)

    assert world.server.live("refresh_token") == [world.server.gives_again]
    assert world.connection().generation == 2


def test_what_came_beside_a_token_that_was_given_again_is_revoked(new_world: Worlds) -> None:
    """The live grant keeps its token; the rest belongs to nobody."""
    world = new_world("none", revocation__takes="either", **INDEPENDENT)
    world.clients.add("acme", confirmation="none", optional_scopes=frozenset({"admin"}))
    world.server.with_refresh_token = False
    world.connect()
    token = world.token().access_token.reveal()
    callback = consented(world)
    world.server.with_refresh_token = True
    world.server.extra["access_token"] = token

    assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"

    world.minutes_pass(2)
    assert still_served(world)
    assert world.token().access_token.reveal() == token
    assert world.server.live("refresh_token") == []


def test_what_else_a_given_again_answer_held_is_revoked(new_world: Worlds) -> None:
    """Of a broken answer, too, the live grant's token is left alone."""
    world = live(new_world)
    (only,) = world.server.live("refresh_token")
    callback = consented(world)
    world.server.gives_again = only
    world.server.next("/token", cut_off)

    assert code_of(lambda: world.come_back(callback)) == "STEP_UP_NOT_POSSIBLE"

    world.minutes_pass(2)
    assert still_served(world)
    assert world.server.live("refresh_token") == [only]


@pytest.mark.rule("M-25", "M-48")
def test_a_user_who_says_no_keeps_what_there_is(new_world: Worlds) -> None:
    """The state is discarded; the link may be opened again, and then agreed to."""
    world = live(new_world)
    started = widened(world)
    denied = replace(world.approved(world.visit(started)), code=None, error="access_denied")

    assert code_of(lambda: world.come_back(denied)) == "OAUTH_CALLBACK_REJECTED"

    assert still_served(world)
    code = world.come_back(world.approved(world.visit(started))).confirm_code
    assert world.confirm(code).scopes == MORE


@pytest.mark.parametrize("how", ["five wrong codes", "nobody comes", "killed before", "killed after"])
def test_a_grant_that_is_not_confirmed_is_revoked_and_the_old_one_stays(new_world: Worlds, how: str) -> None:
    """Whatever keeps the owner, or the worker, from finishing."""
    world = live(new_world)
    callback = consented(world)
    if how.startswith("killed"):
        world.server.next("/token", killed if how == "killed before" else lambda act, request: act())
        world.table.faults = [None, killed_after] if how == "killed after" else []
        with pytest.raises(WorkerKilledError):
            world.come_back(callback)
    else:
        world.come_back(callback)
    if how == "five wrong codes":
        assert [code_of(lambda: world.confirm(None)) for _ in range(5)][-1] == "GRANT_NOT_INSTALLED"

    for _ in range(13):
        world.minutes_pass()
        assert still_served(world)

    if how == "killed before":
        assert world.notice() == "permission_removal_required"
    else:
        assert len(world.server.live("refresh_token")) == 1
    assert world.events("connection.failed") == []


def test_a_code_that_comes_too_late_leaves_the_old_grant(new_world: Worlds) -> None:
    """Ten minutes, and no longer."""
    world = live(new_world)
    code = world.come_back(consented(world)).confirm_code
    world.clock.move(ms=CONFIRM_MS)

    assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"

    assert still_served(world)


# --- beside everything else ------------------------------------------------------------------------------------------


@pytest.mark.rule("U-21")
def test_a_newer_attempt_replaces_the_older_one(new_world: Worlds) -> None:
    """Its link and its callback are superseded, and a grant that waited is revoked; the old grant serves on."""
    world = live(new_world)
    old = world.visit(widened(world))
    world.clock.move(ms=1)
    held = consented(world)

    assert code_of(lambda: world.come_back(world.approved(old))) == "OAUTH_STATE_SUPERSEDED"
    first = world.come_back(held).confirm_code
    world.clock.move(ms=1)
    newest = widened(world)

    assert world.exchange().reason == "superseded"
    assert code_of(lambda: world.confirm(first)) in ("CONFIRM_CODE_WRONG", "CONNECTION_STATE_CONFLICT")
    assert still_served(world)
    world.minutes_pass(2)
    assert len(world.server.live("refresh_token")) == 1
    code = world.come_back(world.approved(world.visit(newest))).confirm_code
    assert world.confirm(code).scopes == MORE


@pytest.mark.rule("U-21")
def test_two_attempts_of_one_millisecond_are_two_links(new_world: Worlds) -> None:
    """The time tells them apart, since the generation does not."""
    world = live(new_world)
    first, second = widened(world), widened(world)

    assert first.ticket is not None
    assert second.ticket is not None
    assert first.ticket.reveal() != second.ticket.reveal()
    assert still_served(world)


@pytest.mark.rule("M-30", "M-33")
def test_of_two_visits_of_a_link_one_is_exchanged(new_world: Worlds) -> None:
    """The first callback spends its siblings."""
    world = live(new_world)
    started = widened(world)
    one, other = (world.approved(world.visit(started)) for _ in range(2))

    world.come_back(one)

    assert code_of(lambda: world.come_back(other)) == "OAUTH_STATE_REPLAYED"
    assert code_of(lambda: world.visit(started)) == "OAUTH_STATE_REPLAYED"


@pytest.mark.rule("I-5", "F-19", "I-13")
def test_a_disconnect_ends_the_attempt_and_both_grants(new_world: Worlds) -> None:
    """Nobody can confirm any more; `revoked` waits for both."""
    world = live(new_world)
    code = world.come_back(consented(world)).confirm_code

    world.disconnect()

    assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"
    assert len(world.kick.rids) >= 2
    assert world.exchange().reason == "stopped"
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("I-5", "F-65")
def test_a_disconnect_while_the_answer_is_on_its_way(new_world: Worlds) -> None:
    """The wider grant finds nobody waiting for it, and is revoked with the old one."""
    world = live(new_world, "none")
    callback = consented(world)
    world.server.next("/token", after(world.disconnect))

    assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"

    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []
    assert world.connection().closed_as == "confirmed"


@pytest.mark.rule("F-26")
def test_a_loss_ends_the_attempt(new_world: Worlds) -> None:
    """The old grant is dead at the provider: the connection needs to be connected anew, and nothing is left over."""
    world = live(new_world)
    code = world.come_back(consented(world)).confirm_code
    first = world.server.of_kind("refresh_token")[0]
    world.server.ledger[first] = replace(world.server.ledger[first], state="revoked")
    with pytest.raises(QuitclaimError):
        world.token(min_ttl_ms=3_600_000)

    assert world.connection().state == "needs_reconnect"
    assert code_of(lambda: world.confirm(code)) == "GRANT_NOT_INSTALLED"
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.connect(again=True).state == "ready"


@pytest.mark.rule("F-27", "I-10")
def test_a_deleted_owner_keeps_neither_grant(new_world: Worlds) -> None:
    """The attempt's grant is revoked once its hold is over, the live one at once."""
    world = live(new_world)
    code = world.come_back(consented(world)).confirm_code
    delete_owner(OWNER, world.stopping)

    assert code_of(lambda: world.confirm(code)) == "OWNER_DELETED"
    world.minutes_pass(14)
    assert world.server.live("refresh_token") == []


def test_an_attempt_beside_another_connection_waits_for_it(new_world: Worlds) -> None:
    """One exchange of an owner and client at a time."""
    world = live(new_world)
    callback = consented(world)
    world.come_back(world.callback(OTHER))

    assert code_of(lambda: world.come_back(callback)) == "CONNECT_BLOCKED"
    assert still_served(world)


def test_a_late_answer_is_revoked_and_the_old_grant_stays(new_world: Worlds) -> None:
    """It came after its window: queued in a write that nothing can refuse."""
    world = live(new_world, "none")
    callback = consented(world)
    world.server.next("/token", after(lambda: world.clock.move(seconds=61)))

    assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"

    assert still_served(world)
    world.clock.move(ms=GUARD_MS)
    world.minutes_pass(2)
    assert len(world.server.live("refresh_token")) == 1
    assert still_served(world)


def test_a_wrong_code_of_nothing_is_a_conflict(new_world: Worlds) -> None:
    """A live connection without an attempt takes no code but its own."""
    world = live(new_world)

    assert code_of(lambda: world.confirm(Secret("00000-00000"))) == "CONNECTION_STATE_CONFLICT"


@pytest.mark.rule("I-13")
def test_what_nobody_knows_of_an_attempt_is_not_confirmed_by_the_stop(new_world: Worlds) -> None:
    """The answer was lost and the connection stopped: there is the owner's word for it and no more."""
    world = live(new_world, "none")
    callback = consented(world)
    world.server.next("/token", lost_answer)
    assert code_of(lambda: world.come_back(callback)) == "EXCHANGE_UNCONFIRMED"
    world.disconnect()
    world.minutes_pass(3)
    assert world.connection().state != "revoked"

    world.acknowledge()
    world.minutes_pass(3)

    assert len(world.server.live("refresh_token")) == 1
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "attested")


@pytest.mark.parametrize("how", ["held", "late"])
def test_the_stop_names_what_the_attempt_brought(new_world: Worlds, how: str) -> None:
    """Whether it waited for its owner, or came after its exchange was over (custody rule 5)."""
    world = live(new_world, "owner" if how == "held" else "none")
    callback = consented(world)
    if how == "held":
        world.come_back(callback)
        world.disconnect()
    else:

        def stop() -> None:
            world.disconnect()
            world.clock.move(minutes=2)
            world.reconcile()

        world.server.next("/token", after(stop))
        assert code_of(lambda: world.come_back(callback)) == "GRANT_NOT_INSTALLED"

    (intent,) = world.reads.intents(world.connection().ref)
    assert world.exchange().rid in intent.rids
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.connection().closed_as == "confirmed"
