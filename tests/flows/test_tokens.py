"""Handing out, refreshing, and what becomes of a refresh that nobody saw the end of."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quitclaim.domain.errors import (
    ClientConfigError,
    KeyUnavailableError,
    NeedsReconnectError,
    OutcomeUnknownError,
    ProviderBusyError,
    QuitclaimError,
    RefreshInProgressError,
    StateConflictError,
    TimeIsUpError,
)
from quitclaim.domain.limits import (
    GUARD_MS,
    HARD_MARGIN_MS,
    LOSER_WAIT_MS,
    MINUTE,
    REFRESH_LEASE_MS,
    REFUSALS,
    SAVED_RECENTLY_MS,
    SOFT_MARGIN_MS,
    ladder_step_ms,
)
from quitclaim.domain.stop import StopReason
from quitclaim.flows.stop import lose_grant
from quitclaim.store.keys import barrier_key, grant_key
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
from tests.fakes.tables import WorkerKilledError, killed_after, killed_before
from tests.flows.world import GOOGLE, OWNER, World

type Worlds = Callable[..., World]
HOUR_MS = 60 * MINUTE
STATIC = {"refresh__rotates": "no", "refresh__old_token_after_rotation": "unknown"}
SURVIVES = {"refresh__old_token_after_rotation": "stays_valid"}


def connected(world: World, *, left_ms: int = HOUR_MS) -> World:
    """A ready connection whose access token has so long to live."""
    world.connect()
    world.clock.move(ms=HOUR_MS - left_ms)
    return world


# --- handing out -----------------------------------------------------------------------------------------------------


def test_a_fresh_token_costs_one_read_and_no_key(world: World) -> None:
    """Warm, nothing but one batch: no write, no KMS, no provider."""
    connected(world, left_ms=HOUR_MS - 2 * SAVED_RECENTLY_MS)
    world.token()
    opened, asked = list(world.kms.calls), list(world.server.asked)

    with world.table.metered() as spent:
        token = world.token()

    assert (spent.reads, spent.writes) == (["batch"], [])
    assert (world.kms.calls, world.server.asked) == (opened, asked)
    assert (token.token_version, token.generation, token.token_type) == (1, 1, "Bearer")


def test_a_token_saved_a_moment_ago_costs_the_owner_s_read_more(world: World) -> None:
    """A save that slipped between the owner's deletion and that stop must not be handed out (7.2)."""
    world.connect()
    world.token()
    world.clock.move(ms=SAVED_RECENTLY_MS - 1)

    with world.table.metered() as young:
        world.token()
    world.clock.move(ms=1)
    with world.table.metered() as old:
        world.token()

    assert (young.reads, old.reads) == (["batch", "get"], ["batch"])


@pytest.mark.parametrize(
    ("left_ms", "version"),
    [(SOFT_MARGIN_MS + 1, 1), (SOFT_MARGIN_MS, 2), (HARD_MARGIN_MS, 2), (-HOUR_MS, 2)],
)
def test_a_token_is_refreshed_before_it_ends(world: World, left_ms: int, version: int) -> None:
    """Inside the soft margin whoever comes first refreshes."""
    connected(world, left_ms=left_ms)

    assert world.token().token_version == version


def test_a_caller_may_ask_for_a_longer_life(world: World) -> None:
    """`min_ttl_s` refreshes what would be fresh enough for others."""
    connected(world, left_ms=HOUR_MS // 2)

    assert world.token(min_ttl_ms=HOUR_MS // 2).token_version == 2


def test_a_token_that_never_ends_is_never_refreshed(new_world: Worlds) -> None:
    """The provider said so, by its answer or its catalogue entry."""
    world = new_world(token__default_lifetime_s="never")
    world.server.lifetime_s = None
    world.connect()
    world.clock.move(minutes=10_000)

    token = world.token()

    assert (token.token_version, token.expires_at) == (1, None)


def test_a_pair_that_the_grant_lacks_is_said_so(world: World) -> None:
    """Most grants have one pair only."""
    world.connect()

    with pytest.raises(StateConflictError):
        world.token(pair="user")


# --- refresh ---------------------------------------------------------------------------------------------------------


def test_a_refresh_rotates(world: World) -> None:
    """One request; the new pair replaces the old, and only the new one is alive and in the table."""
    connected(world, left_ms=0)

    token = world.token()

    old, new = world.server.of_kind("refresh_token")
    assert (token.token_version, world.server.state_of(old)) == (2, "rotated")
    assert world.server.live("refresh_token") == [new]
    assert world.unaccounted() == []
    assert token.access_token.reveal() == world.server.of_kind("access_token")[-1]
    assert token.expires_at == world.clock.now() + HOUR_MS
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert (grant.attempts, grant.lease) == (frozenset(), None)


@pytest.mark.rule("RB-06")
def test_a_refresh_token_that_is_not_rotated_is_kept(new_world: Worlds) -> None:
    """An answer without one means: keep the one you have (RFC 6749 section 6)."""
    world = connected(new_world(**STATIC), left_ms=0)

    for _ in range(3):
        world.token()
        world.clock.move(minutes=60)

    assert len(world.server.of_kind("refresh_token")) == 1
    assert world.unaccounted() == []


def test_a_grant_is_refreshed_for_as_long_as_the_app_asks(world: World) -> None:
    """Ten rotations, ten versions, one live token."""
    world.connect()

    for version in range(2, 12):
        world.clock.move(minutes=70)
        assert world.token().token_version == version

    assert len(world.server.live("refresh_token")) == 1
    assert world.unaccounted() == []


def test_a_stop_after_rotations_revokes_the_newest(world: World) -> None:
    """The stop moves what the last save sealed."""
    connected(world, left_ms=0)
    world.token()

    world.disconnect()
    world.minutes_pass(2)

    assert world.server.live("refresh_token") == []
    assert world.connection().closed_as == "confirmed"


def test_a_surviving_predecessor_is_revoked_as_well(new_world: Worlds) -> None:
    """Where the old token lives on and a revocation reaches one token only, each is queued (custody rule 6)."""
    world = connected(new_world(revocation__reach="token", **SURVIVES), left_ms=0)

    world.token()

    assert len(world.server.live("refresh_token")) == 2
    assert world.unaccounted() == []
    world.sweep()
    assert len(world.server.live("refresh_token")) == 1
    assert world.token().token_version == 2


def test_a_surviving_predecessor_within_reach_is_left_alone(new_world: Worlds) -> None:
    """One revocation of the family ends both; nothing is queued before the stop."""
    world = connected(new_world(**SURVIVES), left_ms=0)

    world.token()

    assert world.items("revocation") == []
    world.disconnect()
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("RB-23", "U-9")
def test_both_tokens_are_revoked_where_a_call_ends_only_one(new_world: Worlds) -> None:
    """Reach token, either kind taken: the access token is not left to run out (RB-23)."""
    world = connected(new_world(revocation__reach="token"))

    world.disconnect()
    world.minutes_pass(2)

    assert world.server.live() == []
    assert world.connection().closed_as == "confirmed"


# --- refused before it is sent ---------------------------------------------------------------------------------------


@pytest.mark.rule("F-39")
def test_a_refresh_that_does_not_fit_is_not_begun(world: World) -> None:
    """Call and save need seven seconds of the invocation: less, and nothing is recorded."""
    connected(world, left_ms=0)
    before = world.stand_in.everything()

    with pytest.raises(TimeIsUpError):
        world.token(budget_ms=6_999)

    assert world.stand_in.everything() == before


@pytest.mark.parametrize("what", ["keys", "secret"])
def test_a_refresh_without_what_it_needs_is_not_recorded(world: World, what: str) -> None:
    """Keys and client secret are at hand before the attempt is on record, so that only the provider may fail after."""
    connected(world, left_ms=0)
    before = world.stand_in.everything()
    if what == "keys":
        world.kms.is_out = True
    else:
        world.clients.secret = None

    with pytest.raises((KeyUnavailableError, ClientConfigError)):
        world.token()

    assert world.stand_in.everything() == before
    assert world.server.asked.count("/token") == 1


@pytest.mark.rule("RB-20")
def test_a_secret_that_is_gone_when_the_request_is_made_leaves_no_attempt(world: World) -> None:
    """It is read once more after the record: nothing left, so the attempt is withdrawn and the next call refreshes."""
    connected(world, left_ms=0)
    world.clients.secret_reads = 1

    with pytest.raises(ClientConfigError):
        world.token()

    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert (grant.attempts, grant.lease, world.server.asked.count("/token")) == (frozenset(), None, 1)
    world.clients.secret_reads = None
    assert world.token().token_version == 2


def test_a_good_token_serves_whatever_keeps_us_from_refreshing(world: World) -> None:
    """Inside the soft margin a refresh would be early: a client that cannot send one costs the caller nothing yet."""
    connected(world, left_ms=SOFT_MARGIN_MS)
    world.clients.secret = None

    assert world.token().token_version == 1
    world.clock.move(ms=SOFT_MARGIN_MS)
    with pytest.raises(ClientConfigError):
        world.token()


def test_a_token_that_cannot_be_refreshed_serves_to_its_end(world: World) -> None:
    """Whoever asks for a longer life is told its end, and not to give up a grant that lives."""
    world.server.with_refresh_token = False
    connected(world, left_ms=HARD_MARGIN_MS + 1)

    token = world.token(min_ttl_ms=HOUR_MS)

    assert (token.token_version, token.expires_at) == (1, world.clock.now() + HARD_MARGIN_MS + 1)
    world.clock.move(ms=1)
    with pytest.raises(NeedsReconnectError):
        world.token()


# --- losers ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-40", "RB-42", "F-40")
def test_a_loser_waits_and_gets_the_winner_s_token(world: World) -> None:
    """It never sends a refresh of its own while the lease is another's (RB-42)."""
    connected(world, left_ms=0)
    lost: list[str] = []

    def loser_comes() -> None:
        with pytest.raises(RefreshInProgressError):
            world.token()
        lost.append("waited")

    world.server.next("/token", after(loser_comes))

    winner = world.token()
    again = world.token()

    assert lost == ["waited"]
    assert again == winner
    assert world.server.asked.count("/token") == 2


@pytest.mark.rule("F-40", "RB-42")
def test_a_loser_waits_five_seconds_at_most_and_learns_when_to_come_again(world: World) -> None:
    """The lease's end and a guard, never less than a second."""
    connected(world, left_ms=0)
    world.server.next("/token", lost_answer)
    with pytest.raises(OutcomeUnknownError):
        world.token()
    since = world.clock.now()

    with pytest.raises(RefreshInProgressError) as refused:
        world.token()

    waited = world.clock.now() - since
    assert LOSER_WAIT_MS - 200 <= waited <= LOSER_WAIT_MS
    assert refused.value.retry_after_ms == REFRESH_LEASE_MS + GUARD_MS - waited


def test_a_loser_inside_the_soft_margin_does_not_wait(world: World) -> None:
    """A token that is still good is handed out at once while another refreshes it."""
    connected(world, left_ms=SOFT_MARGIN_MS)
    seen: list[int] = []
    world.server.next("/token", after(lambda: seen.append(world.token().token_version)))

    assert world.token().token_version == 2
    assert seen == [1]


# --- what the provider may answer ------------------------------------------------------------------------------------


@pytest.mark.rule("F-26", "F-44")
def test_a_refused_refresh_loses_the_grant(world: World) -> None:
    """needs_reconnect, told once; what is left of it is queued, and the app's data is kept."""
    connected(world, left_ms=0)
    world.server.removes("alice")

    with pytest.raises(NeedsReconnectError):
        world.token()

    connection = world.connection()
    assert (connection.state, connection.generation, connection.failure) == ("needs_reconnect", 2, "grant_rejected")
    assert world.events("connection.needs_reconnect") == ["connection.needs_reconnect"]
    (intent,) = world.reads.intents(GOOGLE)
    assert (intent.purge, intent.reason) == ("done", "grant_rejected")
    assert world.notice() == "pending"
    world.minutes_pass(2)
    assert (world.notice(), world.connect().state) == ("confirmed", "ready")


NOTHING_DONE: dict[str, tuple[Misbehaviour, type[QuitclaimError]]] = {
    "not now": (answers(429, {"error": "slow_down"}), ProviderBusyError),
    "out": (answers(503), ProviderBusyError),
    "it never left": (not_connected, ProviderBusyError),
    "the client is refused": (answers(401, {"error": "invalid_client"}), ClientConfigError),
}


@pytest.mark.rule("F-44", "F-45", "RB-47", "RB-20")
@pytest.mark.parametrize(("misbehaviour", "error"), NOTHING_DONE.values(), ids=NOTHING_DONE.keys())
def test_a_refresh_that_did_nothing_leaves_no_trace(
    world: World, misbehaviour: Misbehaviour, error: type[QuitclaimError]
) -> None:
    """The attempt is withdrawn, the lease is free, the grant lives, and the next call refreshes."""
    connected(world, left_ms=0)
    world.server.next("/token", misbehaviour)

    with pytest.raises(error):
        world.token()

    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert (grant.tv, grant.attempts, grant.lease) == (1, frozenset(), None)
    assert world.connection().state == "ready"
    world.clock.move(minutes=1)  # a refused client rests
    assert world.token().token_version == 2


@pytest.mark.rule("F-44")
def test_only_the_providers_refusal_ends_the_grant(world: World) -> None:
    """Whatever else goes wrong leaves it as it was; the word about this grant takes it away."""
    connected(world, left_ms=0)
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    for misbehaviour, error in NOTHING_DONE.values():
        world.server.next("/token", misbehaviour)
        with pytest.raises(error):
            world.token()
        world.clock.move(minutes=1)
        left = world.reads.grant(GOOGLE, "main")
        assert left is not None
        assert (left.fp, left.tv, world.connection().state) == (grant.fp, 1, "ready")

    world.server.next("/token", answers(400, {"error": "invalid_grant"}))
    with pytest.raises(NeedsReconnectError):
        world.token()

    assert (world.reads.grant(GOOGLE, "main"), world.connection().state) == (None, "needs_reconnect")


STRANGE = answers(400, {"error": "invalid_request", "error_description": "Token is not valid"})


@pytest.mark.rule("RB-16")
def test_the_same_refusal_again_and_again_is_a_verdict_in_the_end(world: World) -> None:
    """
    A dead token that is called an invalid request: it is asked about on the ladder, whoever calls, and the fifth time
    in the same words the grant is lost, as if the provider had said so.
    """
    connected(world, left_ms=0)
    world.server.next("/token", *[STRANGE] * (REFUSALS + 1))
    for number in range(1, REFUSALS):
        asked = world.server.asked.count("/token")
        for _ in range(3):
            with pytest.raises(ProviderBusyError) as told:
                world.token()
            assert told.value.retry_after_ms == ladder_step_ms(number)
        grant = world.reads.grant(GOOGLE, "main")
        assert grant is not None
        assert (grant.refused_as, grant.refusals, grant.attempts) == ("invalid_request", number, frozenset())
        assert world.server.asked.count("/token") == asked + 1  # never a storm
        world.clock.move(ms=ladder_step_ms(number))

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert (world.connection().state, world.connection().failure) == ("needs_reconnect", "grant_rejected")
    assert world.notice() == "pending"


@pytest.mark.rule("RB-16")
@pytest.mark.parametrize(
    ("between", "counted"),
    [
        (answers(400, {"error": "invalid_target"}), ("invalid_target", 1)),
        (answers(503), ("invalid_request", 1)),
        (not_connected, ("invalid_request", 1)),
    ],
    ids=["other words", "not now", "it never left"],
)
def test_only_the_same_words_in_a_row_count(world: World, between: Misbehaviour, counted: tuple[str, int]) -> None:
    """Other words begin anew; what says nothing of the token is not counted; a grant that is given forgets it all."""
    connected(world, left_ms=0)
    world.server.next("/token", STRANGE, between)
    for _ in range(2):
        with pytest.raises(ProviderBusyError):
            world.token()
        world.clock.move(minutes=1)

    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert (grant.refused_as, grant.refusals) == counted
    assert world.token().token_version == 2
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert (grant.refused_as, grant.refusals) == (None, None)


def test_a_client_that_is_refused_ends_no_grant(world: World) -> None:
    """However often: it is the client's settings that the provider does not take (RB-20)."""
    connected(world, left_ms=0)
    world.server.next("/token", *[answers(401, {"error": "invalid_client"})] * (REFUSALS + 3))
    for _ in range(REFUSALS + 3):
        with pytest.raises(ClientConfigError):
            world.token()
        world.clock.move(minutes=15)

    assert (world.connection().state, world.token().token_version) == ("ready", 2)


@pytest.mark.rule("F-26")
@pytest.mark.parametrize("purges", [False, True])
def test_a_loss_purges_where_the_client_says_so(new_world: Callable[..., World], purges: bool) -> None:
    """
    `purge_on_loss`: the loss leaves what a disconnect leaves, its purge is told, and no start comes before it; else the
    app's data stays and nothing but the revocation stands before a start.
    """
    world = new_world()
    world.clients.add("acme", confirmation="none", purge_on_loss=purges)
    connected(world, left_ms=0)
    world.server.removes("alice")

    with pytest.raises(NeedsReconnectError):
        world.token()

    (intent,) = world.reads.intents(GOOGLE)
    barrier = world.reads.barriers(OWNER)["acme"]
    assert (intent.purge, intent.comp_derived) == (("pending", None) if purges else ("done", True))
    assert barrier.purges == ({"google#1"} if purges else frozenset())
    assert [each.purge_pending for each in world.status().notices] == [purges]
    world.minutes_pass(2)
    assert world.events("purge.completed") == (["purge.completed"] if purges else [])
    assert world.reads.barriers(OWNER)["acme"].purges == frozenset()
    assert world.connection().state == "needs_reconnect"
    assert world.connect(again=True).state == "ready"


@pytest.mark.rule("F-26")
def test_a_refresh_given_up_purges_likewise(new_world: Callable[..., World]) -> None:
    """A loss is a loss, whoever finds it."""
    world = new_world()
    world.clients.add("acme", confirmation="none", purge_on_loss=True)
    connected(world, left_ms=0)
    world.server.next("/token", lost_answer, lost_answer)
    with pytest.raises(OutcomeUnknownError):
        world.token()

    world.minutes_pass(3)

    assert world.connection().failure == "refresh_unconfirmed"
    assert world.events("purge.completed") == ["purge.completed"]


@pytest.mark.parametrize("misbehaviour", [answers(503), lost_answer], ids=["not now", "unknown"])
def test_a_token_that_is_still_good_is_handed_out_all_the_same(world: World, misbehaviour: Misbehaviour) -> None:
    """The refresh was early: whatever became of it, the app gets what it came for."""
    connected(world, left_ms=SOFT_MARGIN_MS)
    world.server.next("/token", misbehaviour)

    assert world.token().token_version == 1


@pytest.mark.rule("D-1", "U-11")
def test_a_refresh_of_unknown_outcome_stays_on_record(world: World) -> None:
    """Nobody knows whether a successor lives: the attempt is kept until its lease is over."""
    connected(world, left_ms=0)
    world.server.next("/token", lost_answer)

    with pytest.raises(OutcomeUnknownError) as unknown:
        world.token()

    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert (len(grant.attempts), grant.lease_until) == (1, world.clock.now() + REFRESH_LEASE_MS)
    assert unknown.value.retry_after_ms == REFRESH_LEASE_MS + GUARD_MS
    assert world.has_notice()


def test_a_token_in_a_broken_answer_is_salvaged(world: World) -> None:
    """The successor stands in what cannot be read: it is queued, and its family with it once the grant is stopped."""
    connected(world, left_ms=0)
    world.server.next("/token", cut_off)

    with pytest.raises(OutcomeUnknownError):
        world.token()

    assert world.unaccounted() == []
    world.disconnect()
    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []


@pytest.mark.parametrize("takes", ["either", "access"])
def test_a_salvaged_access_token_does_not_end_the_live_grant(new_world: Worlds, takes: str) -> None:
    """
    The provider keeps its refresh token, a revocation ends the pair, and an answer breaks off behind the access token.
    """
    world = connected(new_world(revocation__reach="pair", revocation__takes=takes, **STATIC), left_ms=0)
    world.server.next("/token", cut_off)

    with pytest.raises(OutcomeUnknownError):
        world.token()
    world.sweep()

    assert world.items("revocation") == []
    assert len(world.server.live("refresh_token")) == 1
    world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    assert world.token().token_version == 2


# --- after an unseen answer ------------------------------------------------------------------------------------------


@pytest.mark.rule("D-1", "RB-43")
def test_an_unseen_refresh_is_sent_once_more(new_world: Worlds) -> None:
    """The request was lost on its way: the replay, by the one function that sends refreshes, finds the token alive."""
    world = connected(new_world(refresh__reuse_kills_family="unknown"), left_ms=0)
    world.server.next("/token", lost_request)
    with pytest.raises(OutcomeUnknownError):
        world.token()

    world.minutes_pass()

    assert world.replay.asked == [(GOOGLE, "main")]
    assert world.token().token_version == 2
    assert world.unaccounted() == []
    assert not world.has_notice()


@pytest.mark.rule("D-1", "RB-43")
def test_two_unseen_refreshes_give_the_grant_up(world: World) -> None:
    """needs_reconnect, and a removal notice: a successor may be alive that nobody knows (custody rule 3)."""
    connected(world, left_ms=0)
    world.server.next("/token", lost_request, lost_request)
    with pytest.raises(OutcomeUnknownError):
        world.token()

    world.minutes_pass(4)

    connection = world.connection()
    assert (connection.state, connection.failure) == ("needs_reconnect", "refresh_unconfirmed")
    assert world.notice() == "permission_removal_required"
    assert world.events("removal.required") == ["removal.required"]
    assert world.acknowledge() == 1
    assert world.connect().state == "ready"


@pytest.mark.rule("D-1")
def test_a_static_token_outlives_an_unseen_refresh(new_world: Worlds) -> None:
    """Nothing was rotated: the attempt is forgotten, and nobody is bothered."""
    world = connected(new_world(**STATIC), left_ms=0)
    world.server.next("/token", lost_answer)
    with pytest.raises(OutcomeUnknownError):
        world.token()

    world.minutes_pass()

    assert world.replay.asked == []
    assert not world.has_notice()
    assert world.token().token_version == 2


def test_an_unseen_successor_beyond_reach_ends_in_a_notice(new_world: Worlds) -> None:
    """The old token lives, a revocation reaches one token: the successor that nobody saw is named (custody rule 6)."""
    world = connected(new_world(revocation__reach="token", **SURVIVES), left_ms=0)
    world.server.next("/token", lost_answer)
    with pytest.raises(OutcomeUnknownError):
        world.token()
    world.minutes_pass()
    assert world.token().token_version == 2

    world.disconnect()
    world.minutes_pass(3)

    assert len(world.server.live("refresh_token")) == 1
    assert world.notice() == "permission_removal_required"
    assert world.connection().state != "revoked"


@pytest.mark.parametrize("fault", [killed_before, killed_after], ids=["before the save", "after the save"])
def test_a_worker_that_dies_at_its_save_loses_no_token(world: World, fault: object) -> None:
    """Saved or unseen: at rest the grant is live, or its loss is named."""
    connected(world, left_ms=0)
    world.table.faults = [None, fault]  # type: ignore[list-item]
    with pytest.raises(WorkerKilledError):
        world.token()

    world.minutes_pass(5)

    assert world.unaccounted() == [] or world.has_notice()
    if fault is killed_after:
        assert world.token().token_version == 2


def test_a_worker_that_dies_while_it_waits_is_made_good(world: World) -> None:
    """The provider has rotated and nobody saw it: the old token's replay ends the family, and the owner is told."""
    connected(world, left_ms=0)
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.token()

    world.minutes_pass(4)

    assert world.connection().state == "needs_reconnect"
    assert world.notice() == "permission_removal_required"


# --- a stop during a refresh -----------------------------------------------------------------------------------------


@pytest.mark.rule("D-3", "F-43", "RB-31", "F-41")
def test_a_stop_during_a_refresh_takes_the_new_token_along(world: World) -> None:
    """The save is refused, the token queued under the stop; nothing is handed out, and both end at the provider."""
    connected(world, left_ms=0)
    world.server.next("/token", after(world.disconnect))

    with pytest.raises(StateConflictError):
        world.token()

    assert world.unaccounted() == []
    (intent,) = world.reads.intents(GOOGLE)
    assert len(intent.rids) == 2
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "confirmed")


@pytest.mark.rule("D-3")
def test_the_stopped_token_is_not_confirmed_while_its_successor_is_expected(world: World) -> None:
    """Revoked, and yet not settled: the answer of the refresh may bring another (custody rule 4)."""
    connected(world, left_ms=0)
    settled: list[str] = []

    def stop_and_sweep() -> None:
        world.disconnect()
        world.sweep()
        settled.extend(each["state"] for each in world.items("revocation"))

    world.server.next("/token", after(stop_and_sweep))

    with pytest.raises(StateConflictError):
        world.token()

    assert settled == ["pending"]
    world.minutes_pass(3)
    assert {each["state"] for each in world.items("revocation")} == {"confirmed"}
    assert world.connection().closed_as == "confirmed"


@pytest.mark.rule("D-3")
def test_a_successor_that_never_comes_ends_in_a_notice(world: World) -> None:
    """The refresh's worker died: once its lease is over the stopped token is revoked, never `confirmed`."""
    connected(world, left_ms=0)

    def stop_and_die() -> None:
        world.disconnect()
        raise WorkerKilledError

    world.server.next("/token", after(stop_and_die))
    with pytest.raises(WorkerKilledError):
        world.token()

    world.minutes_pass(4)

    (revocation,) = world.items("revocation")
    assert (revocation["state"], world.notice()) == ("unconfirmed", "permission_removal_required")
    assert world.connection().state == "reconciling_revoke"
    world.acknowledge()
    world.minutes_pass(20)
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "attested")


def test_a_lost_grant_during_a_refresh_takes_the_new_token_along(world: World) -> None:
    """A verdict on the same handle, between send and save."""
    connected(world, left_ms=0)
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    world.server.next(
        "/token",
        after(
            lambda: lose_grant(
                grant, StopReason.GRANT_REJECTED, refused_attempt=None, purges=False, world=world.stopping
            )
        ),
    )

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert world.unaccounted() == []
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("RB-41", "I-6")
def test_a_late_answer_after_a_takeover_is_queued(world: World) -> None:
    """The second attempt saved: the first one's token is an orphan beside the live grant, and blocks nobody."""
    connected(world, left_ms=0)

    def taken_over() -> None:
        world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
        world.server.next("/token", answers(200, {"access_token": "canary-a", "refresh_token": "canary-r"}))
        assert world.token().token_version == 2

    world.server.next("/token", after(taken_over))

    assert world.token().access_token.reveal() == "canary-a"

    assert world.unaccounted() == []
    world.sweep()
    assert [each["state"] for each in world.items("revocation")] == ["parked"]
    assert world.connection().state == "ready"


def test_an_orphan_beside_its_grant_is_revoked_with_it(world: World) -> None:
    """Parked while its family lives; the stop wakes it."""
    test_a_late_answer_after_a_takeover_is_queued(world)

    world.disconnect()
    world.minutes_pass(4)

    assert {each["state"] for each in world.items("revocation")} == {"confirmed"}
    assert world.server.live("refresh_token") == []
    assert world.connection().state == "revoked"


@pytest.mark.rule("U-9", "RB-41")
def test_a_late_answer_that_repeats_the_live_token_does_not_end_it(new_world: Worlds) -> None:
    """
    The provider gave the refresh token again that is the live grant's (custody rule 7). The access token beside it may
    be the live one too, or end it where either kind is taken: it ends by itself, as after any refresh.
    """
    world = connected(new_world(revocation__reach="token", **STATIC), left_ms=0)

    def taken_over() -> None:
        world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
        assert world.token().token_version == 2

    world.server.next("/token", after(taken_over))
    assert world.token().token_version == 2

    assert world.items("revocation") == []
    (living,) = world.server.live("refresh_token")
    world.clock.move(ms=HOUR_MS)
    assert world.token().token_version == 3
    assert world.server.live("refresh_token") == [living]
    world.disconnect()
    world.minutes_pass(4)
    assert {each["state"] for each in world.items("revocation")} == {"confirmed"}


@pytest.mark.rule("D-3")
def test_whose_an_orphan_is_can_be_learned_later(new_world: Worlds) -> None:
    """
    Its revocation ends all of an account, and the grant does not say which. By the access token that is kept with it
    the sweep asks before it revokes (custody rule 12).
    """
    world = connected(new_world(revocation__reach="account"), left_ms=0)
    world.stand_in.alter(grant_key(GOOGLE, "main"), remove=("account",))
    world.server.next("/token", after(world.disconnect))

    with pytest.raises(StateConflictError):
        world.token()

    assert sorted("identity" in each for each in world.items("revocation")) == [False, True]
    (orphan,) = (each["PK"] for each in world.items("revocation") if "identity" in each)
    world.minutes_pass(3)
    (settled,) = (each for each in world.items("revocation") if each["PK"] == orphan)
    assert (settled["state"], "account" in settled, "identity" in settled) == ("confirmed", True, False)
    assert world.server.live() == []


@pytest.mark.rule("S-21")
def test_an_account_that_changes_at_a_refresh_ends_the_grant(new_world: Worlds) -> None:
    """Another account's token is not ours to use; it is queued, and the grant is not trusted any more (S-21)."""
    world = connected(new_world(identity={"in_token_response": "user"}), left_ms=0)
    world.server.next("/token", another_account(world))

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert world.connection().state == "needs_reconnect"
    assert world.unaccounted() == []
    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []
    assert world.notice() == "confirmed"


def another_account(world: World) -> Misbehaviour:
    """The answer names an account that it did not name before."""

    def misbehave(act: Callable[[], object], request: object) -> object:
        world.server.extra = {"user": "mallory"}
        answer = act()
        world.server.extra = {}
        return answer

    return misbehave  # type: ignore[return-value]


# --- a grant without a refresh token ---------------------------------------------------------------------------------


@pytest.mark.rule("D-4", "U-9", "RB-24")
def test_a_grant_without_a_refresh_token_serves_as_long_as_its_access_token(world: World) -> None:
    """Then the user must connect again; what is revoked at the end is the access token."""
    world.server.with_refresh_token = False
    connected(world, left_ms=HARD_MARGIN_MS + 1)
    assert world.token().token_version == 1
    world.clock.move(ms=1)

    with pytest.raises(NeedsReconnectError):
        world.token()

    assert world.connection().state == "ready"
    world.disconnect()
    world.minutes_pass(2)
    assert world.server.live() == []


def test_a_save_is_not_refused_by_a_busy_neighbour(new_world: Worlds) -> None:
    """Barrier, owner and connection may move as they like: a token is never lost to them."""
    world = connected(new_world(revocation__reach="token", **SURVIVES), left_ms=0)
    world.server.next("/token", after(lambda: world.stand_in.alter(barrier_key(OWNER, "acme"), put={"v": 77})))

    assert world.token().token_version == 2

    assert world.unaccounted() == []


def test_a_stale_handle_loses_nothing(world: World) -> None:
    """A verdict on a version that was replaced since changes nothing (F-26)."""
    connected(world, left_ms=0)
    stale = world.reads.grant(GOOGLE, "main")
    assert stale is not None
    world.token()
    before = world.stand_in.everything()

    assert (
        lose_grant(stale, StopReason.GRANT_REJECTED, refused_attempt=None, purges=False, world=world.stopping) is False
    )
    assert (
        lose_grant(
            replace(stale, generation=9),
            StopReason.GRANT_REJECTED,
            refused_attempt=None,
            purges=False,
            world=world.stopping,
        )
        is False
    )

    assert world.stand_in.everything() == before
    assert world.stand_in.everything()[("O#acme-app#ann", grant_key(GOOGLE, "main").sk)]["tv"] == {"N": "2"}
