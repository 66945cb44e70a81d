"""The app's word, and verdicts after an unseen attempt: only the provider's word ends a grant, as far as it goes."""

from collections.abc import Callable

import pytest

from quitclaim.domain.errors import ConnectionNotFoundError, NeedsReconnectError, QuitclaimError
from quitclaim.domain.limits import GUARD_MS, REFRESH_LEASE_MS, REPORT_WINDOW_MS, REPORTS
from quitclaim.flows.tokens import report
from quitclaim.store.pace import ReportBreaker
from tests.fakes.breakers import Unbroken
from tests.fakes.provider import answers, lost_answer, lost_request, not_connected
from tests.flows.world import GOOGLE, OTHER, World

STATIC = {"refresh__rotates": "no", "refresh__old_token_after_rotation": "unknown"}


def reported(world: World, version: int = 1, pair: str = "main") -> bool:
    return report(GOOGLE, pair, version, reads=world.reads, store=world.handing_out.store, breaker=Unbroken())


def without_refresh(new_world: Callable[..., World]) -> World:
    """A grant that has an access token only, without an end."""
    world = new_world(token__default_lifetime_s="never")
    world.server.with_refresh_token, world.server.lifetime_s = False, None
    world.connect()
    return world


def unseen(world: World, misbehaviour: object) -> None:
    """A refresh whose answer nobody saw, its lease over."""
    world.clock.move(minutes=70)
    world.server.next("/token", misbehaviour)
    with pytest.raises(QuitclaimError):
        world.token()
    world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)


# --- report ----------------------------------------------------------------------------------------------------------


def test_a_reported_version_is_refreshed_by_the_next_call(world: World) -> None:
    """Whatever its clock says; the new version is not suspect."""
    world.connect()
    first = world.token()

    assert reported(world) is True
    second = world.token()

    assert (second.token_version, second.access_token != first.access_token) == (2, True)
    assert not world.reads.grant(GOOGLE, "main").is_suspect


@pytest.mark.rule("F-26")
def test_a_report_stops_nothing(world: World) -> None:
    """The connection is ready before and after it, and nobody is told of anything ."""
    world.connect()
    told = world.events()

    reported(world)

    assert world.connection().state == "ready"
    assert world.events() == told
    assert world.server.asked.count("/token") == 1


@pytest.mark.rule("I-18")
def test_a_second_report_of_a_version_writes_nothing(world: World) -> None:
    """A version is suspect once: that bounds what a caller in a loop can make us ask."""
    world.connect()
    reported(world)
    before = world.stand_in.everything()

    assert reported(world) is True
    assert world.stand_in.everything() == before


@pytest.mark.parametrize("version", [2, 99])
def test_a_version_that_is_not_the_current_one_is_left_alone(world: World, version: int) -> None:
    """Late reports of an older token say nothing of the one that replaced it."""
    world.connect()
    before = world.stand_in.everything()

    assert reported(world, version) is False
    assert world.stand_in.everything() == before


def test_a_report_that_comes_after_the_refresh_is_too_late(world: World) -> None:
    """Between the read and the write somebody refreshed: the new version is not marked."""
    world.connect()
    world.clock.move(minutes=70)
    plain = world.handing_out.store.report

    def slow(grant: object) -> None:
        world.token()
        plain(grant)

    world.handing_out.store.report = slow
    assert reported(world) is False
    assert not world.reads.grant(GOOGLE, "main").is_suspect


def test_a_report_of_what_is_not_there(world: World) -> None:
    """No such connection; no such pair; no grant any more: nothing happens in the last two."""
    with pytest.raises(ConnectionNotFoundError):
        reported(world)
    world.connect()
    assert reported(world, pair="user") is False
    world.disconnect()
    assert reported(world) is False
    assert world.connection().state == "revoking"


def test_a_burst_of_reports_of_one_client_marks_nothing(world: World) -> None:
    """
    So many of a client in one window are admitted; what is reported beyond that is answered and told of, and nothing is
    written. Another client, and the next window, begin at nought.
    """
    world.connect()
    told: list[str] = []
    breaker = ReportBreaker(world.table, world.clock, world.ids, told.append)
    world.clock.move(to=-(-world.clock.now() // REPORT_WINDOW_MS) * REPORT_WINDOW_MS)
    assert all(breaker.admits("acme") for _ in range(REPORTS))
    before = world.stand_in.everything()

    def report_it() -> bool:
        return report(GOOGLE, "main", 1, reads=world.reads, store=world.handing_out.store, breaker=breaker)

    assert (report_it(), report_it()) == (False, False)
    assert (told, world.stand_in.everything()) == (["acme", "acme"], before)
    assert not world.reads.grant(GOOGLE, "main").is_suspect
    assert (world.connection().state, world.token().token_version) == ("ready", 1)
    assert breaker.admits("another")

    world.clock.move(ms=REPORT_WINDOW_MS)

    assert report_it() is True
    assert [(each["reports"], each["SK"]) for each in world.items("pace") if each["PK"] == "N#acme"] == [
        (str(REPORTS), f"{world.clock.now() - REPORT_WINDOW_MS:013d}"),
        ("1", f"{world.clock.now():013d}"),
    ]


def test_a_report_that_marks_nothing_anyway_is_not_counted(world: World) -> None:
    """An older version, or one that is suspect already."""
    world.connect()
    breaker = ReportBreaker(world.table, world.clock, world.ids, [].append)

    for version in (1, 1, 1, 2):
        report(GOOGLE, "main", version, reads=world.reads, store=world.handing_out.store, breaker=breaker)

    assert [each["reports"] for each in world.items("pace")] == ["1"]


def test_a_suspect_token_is_not_handed_out_while_the_provider_is_away(world: World) -> None:
    """Its own clock would allow it; the caller is told to come back."""
    world.connect()
    reported(world)
    world.server.next("/token", not_connected)

    with pytest.raises(QuitclaimError) as refused:
        world.token()

    assert refused.value.retryable
    assert world.connection().state == "ready"
    assert world.token().token_version == 2


@pytest.mark.rule("F-44")
def test_the_providers_refusal_of_the_refresh_ends_it(world: World) -> None:
    """That is the provider's verdict, and it is on the stored grant."""
    world.connect()
    reported(world)
    world.server.removes("alice")

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert world.connection().state == "needs_reconnect"
    world.minutes_pass(3)
    assert world.notice() == "confirmed"


# --- where nothing can be refreshed ----------------------------------------------------------------------------------


def test_the_identity_endpoint_is_asked_where_nothing_can_be_refreshed(new_world: Callable[..., World]) -> None:
    """It takes the token: the app was wrong, the token is handed out, and the mark is gone."""
    world = without_refresh(new_world)
    first = world.token()
    asked = world.server.asked.count("/me")
    reported(world)

    again = world.token()

    assert again == first
    assert world.server.asked.count("/me") == asked + 1
    assert not world.reads.grant(GOOGLE, "main").is_suspect
    world.token()
    assert world.server.asked.count("/me") == asked + 1


@pytest.mark.rule("F-26")
def test_its_refusal_loses_the_grant(new_world: Callable[..., World]) -> None:
    """And only that: needs_reconnect, and what may be left is revoked."""
    world = without_refresh(new_world)
    world.server.removes("alice")
    assert world.token().token_version == 1
    reported(world)

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert (world.connection().state, world.connection().failure) == ("needs_reconnect", "grant_rejected")
    assert world.events("connection.needs_reconnect") == ["connection.needs_reconnect"]


@pytest.mark.rule("F-26")
@pytest.mark.parametrize(
    "misbehaviour",
    [answers(500), answers(503), answers(429, None, retry_after="7"), answers(404), answers(200, {}), lost_request],
)
def test_anything_else_from_it_is_no_verdict(new_world: Callable[..., World], misbehaviour: object) -> None:
    """The token is handed out as before, and the next call asks again."""
    world = without_refresh(new_world)
    reported(world)
    world.server.next("/me", misbehaviour)

    assert world.token().token_version == 1

    assert world.connection().state == "ready"
    assert world.reads.grant(GOOGLE, "main").is_suspect
    world.token()
    assert not world.reads.grant(GOOGLE, "main").is_suspect


def test_without_an_identity_endpoint_nobody_can_be_asked(new_world: Callable[..., World]) -> None:
    """The app's word alone ends nothing."""
    world = new_world(
        token__default_lifetime_s="never", identity__url=None, identity__field=None, identity__in_token_response="sub"
    )
    world.server.with_refresh_token, world.server.lifetime_s = False, None
    world.connect()
    reported(world)

    assert world.token().token_version == 1
    assert world.connection().state == "ready"


@pytest.mark.rule("F-26")
def test_a_refusal_of_a_token_that_was_replaced_is_stale(world: World) -> None:
    """While the refused request was under way, another life began: the verdict is not on it (F-26)."""
    world.connect()
    world.clock.move(minutes=70)

    def stopped_meanwhile(act: object, request: object) -> object:
        world.disconnect()
        return answers(400, {"error": "invalid_grant"})(act, request)

    world.server.next("/token", stopped_meanwhile)

    with pytest.raises(QuitclaimError) as refused:
        world.token()

    assert refused.value.code == "CONNECTION_STATE_CONFLICT"
    assert world.connection().state == "revoking"


# --- after an attempt that nobody saw the answer of (rows 21 and 24) --------------------------------------------------


@pytest.mark.rule("D-1", "RB-43", "I-1")
def test_a_refusal_on_the_replay_leaves_a_notice(world: World) -> None:
    """The first answer was lost with a new token in it: the refusal of the old one says nothing of that."""
    world.connect()
    unseen(world, lost_answer)

    world.reconcile()

    assert world.connection().state == "needs_reconnect"
    assert len(world.server.live("refresh_token")) == 1
    world.minutes_pass(4)
    assert world.notice() == "permission_removal_required"
    assert {each["state"] for each in world.items("revocation")} == {"unconfirmed"}


@pytest.mark.rule("D-1", "RB-43")
def test_where_reuse_kills_the_family_the_refusal_disproves_it(new_world: Callable[..., World]) -> None:
    """The provider ended everything of that consent when the spent token came back: nothing is left to tell of."""
    world = new_world(refresh__reuse_kills_family="yes")
    world.connect()
    unseen(world, lost_answer)

    world.reconcile()

    assert world.server.live("refresh_token") == []
    assert world.connection().state == "needs_reconnect"
    world.minutes_pass(4)
    assert world.notice() == "confirmed"


@pytest.mark.rule("D-1")
def test_unknown_reuse_counts_as_none(new_world: Callable[..., World]) -> None:
    """`unknown` never reads as yes: a notice more is the safe side."""
    world = new_world(refresh__reuse_kills_family="unknown")
    world.connect()
    unseen(world, lost_answer)

    world.reconcile()
    world.minutes_pass(4)

    assert world.notice() == "permission_removal_required"


def test_an_answer_on_the_replay_accounts_for_the_first(world: World) -> None:
    """The request had been lost on its way: the replay's answer is the successor."""
    world.connect()
    unseen(world, lost_request)

    world.reconcile()

    assert world.reads.grant(GOOGLE, "main").tv == 2
    assert world.reads.grant(GOOGLE, "main").attempts == frozenset()
    assert world.unaccounted() == []


@pytest.mark.rule("I-15", "D-1")
def test_a_replay_that_is_withdrawn_leaves_the_first_attempt_due(world: World) -> None:
    """The provider says "later": the unseen attempt stays on record, and is looked at again by itself."""
    world.connect()
    unseen(world, lost_request)
    world.server.next("/token", answers(503))

    world.reconcile()

    grant = world.reads.grant(GOOGLE, "main")
    assert (len(grant.attempts), grant.lease) == (1, None)
    world.minutes_pass(2)
    assert world.reads.grant(GOOGLE, "main").attempts == frozenset()
    assert world.reads.grant(GOOGLE, "main").tv == 2


@pytest.mark.rule("D-1")
def test_a_static_token_is_as_good_as_before(new_world: Callable[..., World]) -> None:
    """Nothing was spent: the attempt is forgotten, and no notice is left."""
    world = new_world(**STATIC)
    world.connect()
    unseen(world, lost_answer)

    world.reconcile()

    assert world.reads.grant(GOOGLE, "main").attempts == frozenset()
    world.disconnect()
    world.minutes_pass(3)
    assert world.notice() == "confirmed"


def test_two_connections_are_judged_apart(world: World) -> None:
    """A verdict on one says nothing of the other."""
    world.connect()
    world.connect(OTHER, account="bob")
    reported(world)
    world.server.removes("alice")

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert world.token(OTHER).token_version == 1
    assert world.connection(OTHER).state == "ready"


@pytest.mark.rule("F-26", "RB-40")
def test_a_stale_handle_is_told_apart_from_a_loss(world: World) -> None:
    """A refresh that was refused while a newer version is stored hands that one out."""
    world.connect()
    world.clock.move(minutes=70)
    inner: list[int] = []

    def overtaken(act: Callable[[], object], request: object) -> object:
        world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
        inner.append(world.token().token_version)
        return answers(400, {"error": "invalid_grant"})(act, request)

    world.server.next("/token", overtaken)

    assert world.token().token_version == inner[0] == 2
    assert world.connection().state == "ready"
