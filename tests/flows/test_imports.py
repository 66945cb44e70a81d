"""
Import: what the app gave is refreshed first, becomes ours or stays the app's, and is never revoked before the refresh
has shown that it is a grant.
"""

from dataclasses import replace

import pytest

from quitclaim.domain import errors
from quitclaim.domain.connect import ConnectionState, ExchangeOutcome
from quitclaim.domain.limits import IDEMPOTENCY_TTL_MS
from quitclaim.domain.secret import Secret
from quitclaim.providers.refusals import BURST
from tests.fakes.provider import after, answers, cut_off, killed, lost_answer, lost_request, not_connected
from tests.fakes.tables import WorkerKilledError
from tests.flows.test_connect import OURS, SHOP
from tests.flows.world import GOOGLE, OTHER

STATIC = {"refresh__rotates": "no", "refresh__old_token_after_rotation": "unknown"}
"""A provider whose refresh gives an access token and nothing else."""


def nothing_was_revoked(world, given):
    """The app can go on with what it has: it is alive at the provider, nothing of it is with us, and nobody asked."""
    assert world.server.state_of(given.reveal()) == "live"
    assert world.items("grant") == world.items("revocation") == []
    assert "use" not in world.items("exchange")[0]
    assert "/revoke" not in world.server.asked


# --- what becomes of it ----------------------------------------------------------------------------------------------


def test_a_grant_of_a_rotating_provider_becomes_ours_alone(world):
    """One refresh; what the app held is dead, what lives is sealed in the connection, and the answer says so."""
    given = world.server.gave()

    done = world.imports(given)

    assert world.server.asked.count("/token") == 1
    assert world.server.state_of(given.reveal()) == "rotated"
    assert (done.connection.state, done.connection.generation) == (ConnectionState.READY, 1)
    assert not done.shared_copy
    assert world.unaccounted() == []
    assert len(world.items("grant")) == len(world.server.live("refresh_token")) == 1
    assert world.token().access_token.reveal() in world.server.live("access_token")


def test_where_the_provider_does_not_rotate_the_copy_is_shared_and_the_answer_says_so(new_world):
    """The same token lives in two places from then on."""
    world = new_world(**STATIC)
    given = world.server.gave()

    done = world.imports(given)

    assert done.shared_copy
    assert done.connection.state is ConnectionState.READY
    assert world.server.live("refresh_token") == [given.reveal()]
    assert world.unaccounted() == []


@pytest.mark.parametrize(("old", "shared"), [("stays_valid", True), ("unknown", True), ("grace", False)])
def test_a_token_that_outlives_its_successor_is_shared(new_world, old, shared):
    """Whether it does is the catalogue's word; what is unknown is no promise."""
    world = new_world(refresh__old_token_after_rotation=old)

    assert world.imports(world.server.gave()).shared_copy == shared


@pytest.mark.rule("U-8")
@pytest.mark.parametrize("old", ["stays_valid", "unknown"])
@pytest.mark.parametrize(
    ("reach", "end"), [("token", "unconfirmed"), ("unknown", "unconfirmed"), ("family", "confirmed")]
)
def test_a_copy_that_no_revocation_reaches_is_never_confirmed_away(new_world, old, reach, end):
    """What the app gave may live on beside its successor: then a disconnect ends in a removal notice."""
    world = new_world(refresh__old_token_after_rotation=old, revocation__reach=reach)
    assert world.imports(world.server.gave()).shared_copy

    world.disconnect()
    world.minutes_pass(3)

    [revocation] = world.items("revocation")
    assert revocation["state"] == end
    assert (world.connection().closed_as == "confirmed") is (end == "confirmed")


def test_a_copy_that_no_revocation_reaches_is_not_confirmed_when_the_import_is_released(new_world):
    """Nor where the grant never became a connection."""
    world = new_world(refresh__old_token_after_rotation="unknown", revocation__reach="token")

    with pytest.raises(errors.GrantNotInstalledError):
        world.imports(world.server.gave(), account_id=Secret("somebody else"))
    world.minutes_pass(3)

    [revocation] = world.items("revocation")
    assert revocation["state"] == "unconfirmed"


def test_an_imported_grant_ends_as_any_other(world):
    """It is refreshed, and a disconnect revokes it."""
    world.imports(world.server.gave())
    world.clock.move(minutes=61)
    world.token()

    world.disconnect()
    world.minutes_pass(3)

    assert world.connection().state is ConnectionState.REVOKED
    assert world.connection().closed_as == "confirmed"
    assert world.server.live("refresh_token") == []


def test_the_owner_is_not_asked_to_confirm_what_the_app_had(asking_world):
    """The code proves who came back from the provider; here nobody was sent there."""
    done = asking_world.imports(asking_world.server.gave())

    assert done.connection.state is ConnectionState.READY


def test_what_the_answer_leaves_out_is_as_the_app_says(world):
    """A refresh that names no scopes grants what was granted (RFC 6749 section 6), which only the app can know."""
    done = world.imports(world.server.gave(), scopes=frozenset({"read"}))
    world.server.extra = {"scope": "read admin"}
    other = world.imports(world.server.gave(), OTHER, scopes=frozenset({"read"}))

    assert done.connection.scopes == {"read"}
    assert other.connection.scopes == {"read", "admin"}


def test_an_import_counts_the_account_like_a_connect(world):
    """The account of two connections has two members, so that ending one does not end the other."""
    world.connect(OTHER)
    world.imports(world.server.gave())

    (account,) = world.items("account")
    assert int(account["live"]) == 2


# --- what is refused before anything ---------------------------------------------------------------------------------


def test_a_dry_run_sends_nothing_and_writes_nothing(world):
    """It answers what an import would."""
    given = world.server.gave()
    world.vault("access_token").ready("use", "revoke", "index")
    before = world.stand_in.everything()

    done = world.imports(given, dry_run=True, idempotency_key="k")

    assert (done.connection, done.shared_copy, done.dry_run) == (None, False, True)
    assert world.stand_in.everything() == before
    assert world.server.asked == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_refuses_an_import_refuses_its_dry_run(world, dry_run):
    """A connection that is there, one that waits for its user, a deleted owner, a client of another provider."""
    given = world.server.gave()
    world.connect()
    world.start(OTHER)
    asked = list(world.server.asked)

    with pytest.raises(errors.StateConflictError):
        world.imports(given, dry_run=dry_run)
    with pytest.raises(errors.StateConflictError):
        world.imports(given, OTHER, dry_run=dry_run)
    with pytest.raises(errors.ProviderNotRegisteredError):
        world.imports(given, replace(GOOGLE, connection="third"), client="nobody", dry_run=dry_run)
    with pytest.raises(errors.InvalidBodyError):
        world.imports(given, replace(GOOGLE, connection="third"), provider="google", dry_run=dry_run)

    assert world.server.asked == asked
    assert world.server.state_of(given.reveal()) == "live"


def test_what_cannot_be_refreshed_is_not_imported(new_world):
    """Nothing would show that the token is good, or whose it is."""
    world = new_world(refresh={"mode": "none"})

    with pytest.raises(errors.ImportNotSupportedError):
        world.imports(world.server.gave())

    assert world.items("connection") == []


def test_an_account_that_nobody_could_compare_is_refused(new_world):
    """The app must not believe that it was looked at."""
    world = new_world(identity=None, revocation__reach="token")

    with pytest.raises(errors.InvalidBodyError) as refused:
        world.imports(world.server.gave(), account_id=Secret("alice"))

    assert refused.value.details == {"field": "account_id"}


def test_an_import_waits_for_what_is_owed(world):
    """Behind the same barrier as a start: a pending revocation, and a grant that waits for its owner."""
    world.connect()
    world.disconnect()

    with pytest.raises((errors.ConnectBlockedError, errors.OwnerPurgingError)):
        world.imports(world.server.gave(), OTHER)

    world.minutes_pass(3)
    assert world.imports(world.server.gave(), OTHER).connection.state is ConnectionState.READY


def test_an_import_does_not_end_a_grant_that_waits_for_its_owner(asking_world):
    """A start would, for its user is there; an import comes from a file."""
    asking_world.come_back(asking_world.callback())

    with pytest.raises(errors.ConnectBlockedError):
        asking_world.imports(asking_world.server.gave(), OTHER)

    assert asking_world.exchange().outcome is ExchangeOutcome.HELD


@pytest.mark.parametrize("state", ["failed", "needs_reconnect", "revoked"])
def test_an_import_begins_the_next_generation(world, state):
    """Of a connection that is over, whatever ended it."""
    if state == "failed":
        world.server.next("/token", answers(400, {"error": "invalid_grant"}))
        with pytest.raises(errors.ImportFailedError):
            world.imports(world.server.gave())
    elif state == "needs_reconnect":
        world.connect()
        world.server.removes("alice")
        world.clock.move(minutes=61)
        with pytest.raises(errors.NeedsReconnectError):
            world.token()
    else:
        world.connect()
        world.disconnect()
    world.minutes_pass(3)
    before = world.connection()
    assert before.state == state

    done = world.imports(world.server.gave())

    assert (done.connection.state, done.connection.generation) == (ConnectionState.READY, before.generation + 1)


def test_without_time_nothing_is_begun(world):
    """503, and the token was not touched."""
    given = world.server.gave()

    with pytest.raises(errors.TimeIsUpError):
        world.imports(given, budget_ms=15_000)

    assert world.items("connection") == []
    assert world.server.asked == []


@pytest.mark.rule("S-23")
def test_a_grant_that_lacks_what_the_client_needs_is_refused(world):
    """By the app's word before anything is sent; by the provider's after the refresh, and then it is revoked."""
    world.clients.add("acme", confirmation="none", required_scopes=frozenset({"write"}))
    given = world.server.gave()

    with pytest.raises(errors.ImportFailedError) as told:
        world.imports(given, scopes=frozenset({"read"}))
    assert (told.value.details["reason"], told.value.details["copy"]) == ("insufficient_scope", "dropped")
    assert world.server.asked == []

    world.server.extra = {"scope": "read"}
    with pytest.raises(errors.GrantNotInstalledError) as found:
        world.imports(given)
    assert (found.value.details["reason"], found.value.details["copy"]) == ("insufficient_scope", "revoking")
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []


def test_what_a_client_asks_for_today_is_not_asked_of_older_grants(world):
    """A user who was never asked for a scope did not refuse it: only what the settings name as needed counts."""
    world.server.extra = {"scope": "read"}

    done = world.imports(world.server.gave())

    assert (done.connection.state, done.connection.scopes) == (ConnectionState.READY, {"read"})


# --- refused or lost: the grant stays the app's ----------------------------------------------------------------------

REFUSED = {
    "refused": (answers(400, {"error": "invalid_grant"}), errors.ImportFailedError, "failed"),
    "busy": (answers(429), errors.ProviderBusyError, "failed"),
    "not sent": (not_connected, errors.ProviderBusyError, "failed"),
    "client refused": (answers(401, {"error": "invalid_client"}), errors.ClientConfigError, "failed"),
}


@pytest.mark.parametrize("facts", [{}, STATIC], ids=["rotating", "static"])
@pytest.mark.parametrize("how", REFUSED)
def test_what_the_provider_refuses_is_dropped_and_not_revoked(new_world, how, facts):
    """The sealed copy is gone, the answer says so, and neither this moment nor the schedules revoke anything."""
    world = new_world(**facts)
    misbehaviour, error, state = REFUSED[how]
    given = world.server.gave()
    world.server.next("/token", misbehaviour)

    with pytest.raises(error) as refused:
        world.imports(given)

    assert refused.value.details["copy"] == "dropped"
    assert (world.connection().state, world.exchange().outcome) == (state, ExchangeOutcome.ENDED)
    world.minutes_pass(3)
    nothing_was_revoked(world, given)
    assert world.notice() == "not_needed"


@pytest.mark.rule("RB-20")
def test_dead_imports_in_a_row_rest_nobody(world):
    """A list of old tokens is brought in: those who are connected are served all the while."""
    for _ in range(BURST + 1):
        world.server.next("/token", answers(400, {"error": "invalid_grant"}))
        with pytest.raises(errors.ImportFailedError):
            world.imports(world.server.gave())

    assert world.imports(world.server.gave()).connection.state is ConnectionState.READY


@pytest.mark.parametrize("lost", [lost_request, lost_answer])
def test_a_lost_answer_of_a_static_provider_leaves_the_grant_with_the_app(new_world, lost):
    """There is no successor that could be lost."""
    world = new_world(**STATIC)
    given = world.server.gave()
    world.server.next("/token", lost)

    with pytest.raises(errors.OutcomeUnknownError) as unknown:
        world.imports(given)

    assert unknown.value.details["copy"] == "dropped"
    assert world.exchange().outcome is ExchangeOutcome.ENDED
    world.minutes_pass(3)
    nothing_was_revoked(world, given)
    assert world.imports(given).connection.state is ConnectionState.READY


@pytest.mark.parametrize("old", ["immediate", "stays_valid", "unknown"])
@pytest.mark.parametrize("lost", [lost_request, lost_answer, answers(500)])
def test_a_lost_answer_of_a_rotating_provider_is_named_to_the_owner(new_world, lost, old):
    """A new token may be with nobody, whatever became of the app's: a notice, and never a revocation."""
    world = new_world(refresh__old_token_after_rotation=old)
    given = world.server.gave()
    world.server.next("/token", lost)

    with pytest.raises(errors.ExchangeUnconfirmedError) as unknown:
        world.imports(given)

    assert unknown.value.details["copy"] == "dropped"
    world.minutes_pass(3)
    assert world.notice() == "permission_removal_required"
    assert "use" not in world.items("exchange")[0]
    assert world.items("revocation") == []
    assert "/revoke" not in world.server.asked
    assert world.unaccounted() == [] or world.has_notice()


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [({}, ExchangeOutcome.UNCONFIRMED), (STATIC, ExchangeOutcome.ENDED)],
    ids=["rotating", "static"],
)
def test_a_worker_that_dies_while_the_provider_works_leaves_the_copy_to_be_dropped(new_world, facts, outcome):
    """Once the window and a guard are over: the sealed copy is erased, and nothing is revoked."""
    world = new_world(**facts)
    given = world.server.gave()
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.imports(given)
    assert "use" in world.items("exchange")[0]

    world.minutes_pass(2)

    assert world.exchange().outcome is outcome
    assert world.connection().state is ConnectionState.FAILED
    assert "use" not in world.items("exchange")[0]
    assert world.items("revocation") == []
    assert "/revoke" not in world.server.asked
    assert (world.notice() == "permission_removal_required") == (outcome is ExchangeOutcome.UNCONFIRMED)


def test_a_lapse_of_a_client_that_is_gone_takes_the_safe_reading(new_world):
    """Whether its provider rotates, nobody can say any more."""
    world = new_world(**STATIC)
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.imports(world.server.gave())
    del world.clients.settings["acme"]
    world.clock.move(minutes=2)

    world.reconcile()

    assert world.exchange().outcome is ExchangeOutcome.UNCONFIRMED


# --- after a refresh: as any other grant -----------------------------------------------------------------------------


@pytest.mark.rule("RB-54", "S-21")
def test_another_account_than_the_app_says_is_released_and_revoked(world):
    """The refresh has succeeded, so that it is a grant of ours: it must not live on unseen."""
    given = world.server.gave("bob")

    with pytest.raises(errors.GrantNotInstalledError) as refused:
        world.imports(given, account_id=Secret("alice"))

    assert refused.value.details == {"connection_id": "google", "reason": "identity_mismatch", "copy": "revoking"}
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.connection().state is ConnectionState.FAILED


def test_the_account_that_the_app_says_is_compared_and_not_believed(world):
    """The same account passes; a connection that failed is pinned to nobody."""
    world.server.next("/token", answers(429))
    given = world.server.gave("bob")
    with pytest.raises(errors.ProviderBusyError):
        world.imports(given, account_id=Secret("alice"))

    assert world.imports(given, account_id=Secret("bob")).connection.state is ConnectionState.READY


@pytest.mark.rule("S-21")
def test_an_import_into_another_accounts_connection_is_released_and_revoked(world):
    """A connection stays its account's over its lives."""
    world.connect()
    world.disconnect()
    world.minutes_pass(3)

    with pytest.raises(errors.GrantNotInstalledError) as refused:
        world.imports(world.server.gave("bob"))

    assert refused.value.details["reason"] == "identity_mismatch"
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []


def test_an_answer_that_breaks_off_is_held_as_far_as_it_was_read_and_revoked(world):
    """The new tokens in it are ours; the one that was given is not queued for being repeated in it."""
    given = world.server.gave()
    world.server.next("/token", cut_off)

    with pytest.raises(errors.GrantNotInstalledError) as refused:
        world.imports(given)

    assert refused.value.details["copy"] == "revoking"
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []


def test_a_broken_answer_that_repeats_only_the_given_token_revokes_nothing(new_world):
    """A static provider that names the refresh token again, in an answer that cannot be used."""
    world = new_world(**STATIC)
    given = world.server.gave()
    world.server.next("/token", answers(200, {"refresh_token": given.reveal()}))

    with pytest.raises(errors.QuitclaimError) as refused:
        world.imports(given)

    assert refused.value.details["copy"] == "dropped"
    world.minutes_pass(3)
    nothing_was_revoked(world, given)


@pytest.mark.rule("F-65")
def test_a_stop_during_the_refresh_wins(world):
    """What comes back is released at once, and revoked."""
    given = world.server.gave()
    world.server.next("/token", after(lambda: world.disconnect()))

    with pytest.raises(errors.GrantNotInstalledError):
        world.imports(given)

    world.minutes_pass(4)
    assert world.server.live("refresh_token") == []
    assert world.connection().state is ConnectionState.REVOKED


def test_a_grant_that_comes_after_its_window_is_queued(world):
    """The window of an exchange is the window of an import."""
    given = world.server.gave()
    world.server.next("/token", after(lambda: world.clock.move(seconds=61)))

    with pytest.raises(errors.GrantNotInstalledError):
        world.imports(given)

    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []
    assert world.unaccounted() == []


@pytest.mark.rule("F-23")
def test_a_grant_that_comes_a_day_late_has_a_day_of_its_own(world):
    """A frozen worker queues it when it wakes; its deadline counts from then, so that it is revoked."""
    given = world.server.gave()
    world.server.next("/token", after(lambda: world.clock.move(seconds=86_400)))

    with pytest.raises(errors.GrantNotInstalledError):
        world.imports(given)

    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []
    assert world.notice() == "confirmed"


@pytest.mark.rule("F-64")
def test_a_worker_that_dies_after_the_hold_leaves_a_hold(world):
    """The sweep revokes it once the window is over."""
    given = world.server.gave()
    world.server.next("/me", killed)
    with pytest.raises(WorkerKilledError):
        world.imports(given)
    assert world.exchange().outcome is ExchangeOutcome.HELD
    assert "use" not in world.items("exchange")[0]

    world.minutes_pass(3)

    assert world.server.live("refresh_token") == []
    assert world.connection().state is ConnectionState.FAILED


# --- the same call again ---------------------------------------------------------------------------------------------


def test_the_same_key_gets_the_same_answer_and_sends_nothing(world):
    """Whatever the connection has been through since; another body under the key is refused."""
    given = world.server.gave()
    first = world.imports(given, idempotency_key="k")

    again = world.imports(given, idempotency_key="k")

    assert (replace(again.connection, v=0), again.shared_copy) == (replace(first.connection, v=0), first.shared_copy)
    assert world.server.asked.count("/token") == 1
    with pytest.raises(errors.IdempotencyMismatchError):
        world.imports(world.server.gave(), idempotency_key="k")
    with pytest.raises(errors.IdempotencyMismatchError):
        world.imports(given, idempotency_key="k", account_id=Secret("alice"))


def test_the_same_key_gets_the_same_refusal(world):
    """Each end of the exchange has its answer; a new key tries again."""
    busy, unseen, mixed = world.server.gave(), world.server.gave(), world.server.gave("bob")
    third = replace(GOOGLE, owner="eve")
    world.server.next("/token", answers(429))
    for _ in range(2):
        with pytest.raises((errors.ProviderBusyError, errors.ImportFailedError)) as ended:
            world.imports(busy, idempotency_key="1")
        assert ended.value.details["copy"] == "dropped"
    assert isinstance(ended.value, errors.ImportFailedError)
    for _ in range(2):
        with pytest.raises(errors.GrantNotInstalledError) as released:
            world.imports(mixed, third, idempotency_key="2", account_id=Secret("alice"))
        assert (released.value.details["reason"], released.value.details["copy"]) == ("identity_mismatch", "revoking")
    fourth = replace(GOOGLE, owner="fay")
    world.server.next("/token", lost_answer)
    for _ in range(2):
        with pytest.raises(errors.ExchangeUnconfirmedError):
            world.imports(unseen, fourth, idempotency_key="3")

    assert world.server.asked.count("/token") == 3
    assert world.imports(busy, idempotency_key="4").connection.state is ConnectionState.READY


def test_the_same_key_while_the_first_is_under_way_is_told_to_wait(world):
    """Its end is not known yet, and will be."""
    given = world.server.gave()
    world.server.next("/token", killed)
    with pytest.raises(WorkerKilledError):
        world.imports(given, idempotency_key="k")

    with pytest.raises(errors.ConnectBlockedError) as blocked:
        world.imports(given, idempotency_key="k")

    assert 0 < (blocked.value.retry_after_ms or 0) <= 65_000


def test_a_key_counts_for_a_day(world):
    """Then it is a new one."""
    world.server.next("/token", answers(429))
    given = world.server.gave()
    with pytest.raises(errors.ProviderBusyError):
        world.imports(given, idempotency_key="k")
    world.clock.move(seconds=IDEMPOTENCY_TTL_MS // 1000)

    assert world.imports(given, idempotency_key="k").connection.state is ConnectionState.READY


def test_of_two_imports_at_once_one_is_refused(world):
    """The second finds the first in flight, and its token is as it was."""
    given, second = world.server.gave(), world.server.gave()
    refused = []

    def meanwhile():
        try:
            world.imports(second, OTHER)
        except errors.ConnectBlockedError as blocked:
            refused.append(blocked)

    world.server.next("/token", after(meanwhile))
    world.imports(given)

    assert len(refused) == 1
    assert world.server.state_of(second.reveal()) == "live"
    assert world.imports(second, OTHER).connection.state is ConnectionState.READY


# --- providers whose addresses need to be told -----------------------------------------------------------------------

HERE = OURS | {"location": "eu"}
"""What the start and the callback of then had named."""


@pytest.mark.rule("S-8")
def test_an_import_names_what_a_start_and_a_callback_named(new_world):
    """The first refresh goes to the grant's own address, and so does what follows; the table shows neither value."""
    world = new_world(**SHOP)

    done = world.imports(world.server.gave(), variables=HERE)
    world.clock.move(minutes=120)
    world.token()

    assert done.connection.state is ConnectionState.READY
    assert world.server.asked.count("/token") == 2
    assert world.server.hosts == {OURS["shop"], "acme.example.com"}
    assert OURS["shop"] not in str(world.stand_in.everything())


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(
    "variables",
    [
        {},
        OURS,
        HERE | {"location": "mars"},
        HERE | {"shop": "evil.example.com"},
        HERE | {"region": "eu"},
        HERE | {"redirect_uri": "https://app.example.com/back"},
    ],
    ids=str,
)
def test_an_import_that_names_something_else_sends_nothing(new_world, variables):
    """Missing, not allowed, or not the app's to name."""
    world = new_world(**SHOP)
    given = world.server.gave()

    with pytest.raises(errors.InvalidBodyError):
        world.imports(given, variables=variables)

    assert world.stand_in.everything() == {}
    assert world.server.asked == []
    assert world.server.state_of(given.reveal()) == "live"


def test_a_refresh_that_repeats_the_redirect_uri_repeats_the_apps(new_world):
    """It was the app's own that the grant was given to (GitLab)."""
    world = new_world(refresh__sends_redirect_uri=True)

    world.imports(world.server.gave(), variables={"redirect_uri": "https://app.example.com/back"})

    assert world.server.form["redirect_uri"] == "https://app.example.com/back"


@pytest.mark.parametrize("address", ["http://app.example.com/", "https://", "https://app.example.com/a b", "back"])
def test_such_a_redirect_uri_is_an_address(new_world, address):
    """Before anything is sent."""
    world = new_world(refresh__sends_redirect_uri=True)

    with pytest.raises(errors.InvalidBodyError):
        world.imports(world.server.gave(), variables={"redirect_uri": address})

    assert world.server.asked == []


def test_a_key_with_other_variables_is_another_import(new_world):
    """The first answer is not theirs."""
    world = new_world(**SHOP)
    given = world.server.gave()
    world.imports(given, variables=HERE, idempotency_key="k")

    with pytest.raises(errors.IdempotencyMismatchError):
        world.imports(given, variables=HERE | {"shop": "theirs.acme.example.com"}, idempotency_key="k")
