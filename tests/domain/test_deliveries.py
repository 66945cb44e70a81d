"""Handling an event: whom it reaches, what becomes of it, and of which grant a deauthorization speaks."""

import itertools
from dataclasses import replace
from typing import Any, Final

import pytest

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import ConnectionState, Owner
from quitclaim.domain.deliveries import (
    CheckStep,
    Fate,
    Life,
    Standing,
    Verdict,
    check_step,
    fate_of,
    is_reached,
    standing_of,
    verdict_on,
)
from quitclaim.domain.limits import (
    AFTERMATH_MS,
    CHECK_EVERY_MS,
    CLOCK_SKEW_MS,
    COMPACT_MS,
    DEADLINE_MS,
    MINUTE,
    PARKED_MS,
    REMEMBERED_MS,
)
from quitclaim.domain.webhooks import Prepared, Trust
from tests.domain.values import AROUND, NOW, a_connection, a_grant

HOUR: Final = 60 * MINUTE


def an_event(**changes: Any) -> Prepared:
    """A signed event about one account, received now."""
    plain = Prepared("google", "web", NOW, Trust.SIGNED, "0" * 64, 2, accounts=("alice",))
    return replace(plain, **changes)


def a_departure(**changes: Any) -> Prepared:
    """A signed word that the account left."""
    return an_event(deauthorizes=True, **changes)


# --- whom it reaches -------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-72", "M-78", "D-36")
@pytest.mark.parametrize(
    ("account", "standing"),
    [
        (None, Standing.UNKNOWN),
        (Account(), Standing.UNKNOWN),
        (Account(live=1), Standing.LIVE),
        (Account(live=1, left_at=NOW, lost_at=NOW), Standing.LIVE),
        (Account(left_at=NOW), Standing.GONE),
        (Account(lost_at=NOW), Standing.LOST),
        (Account(lost_at=NOW - HOUR, left_at=NOW), Standing.LOST),
        (Account(parked=1, left_at=NOW), Standing.GONE),
    ],
)
def test_an_account_stands_where_its_grants_left_it(account, standing):
    """Live while anybody has a grant; else lost before gone, because somebody may come back."""
    assert standing_of(account, NOW) is standing


@pytest.mark.rule("D-36", "U-17")
@pytest.mark.parametrize("past", AROUND)
@pytest.mark.parametrize(("name", "standing"), [("left_at", Standing.GONE), ("lost_at", Standing.LOST)])
def test_who_left_is_remembered_for_30_days(name, standing, past):
    """After that the account is as unknown as any other."""
    account = Account(**{name: NOW - REMEMBERED_MS - past})

    assert standing_of(account, NOW) is (standing if past < 0 else Standing.UNKNOWN)


@pytest.mark.rule("M-72", "M-77", "M-78", "U-16")
@pytest.mark.parametrize(
    ("standing", "held", "asked_again"),
    [
        (Standing.LIVE, Fate.DELIVER, Fate.DELIVER),
        (Standing.LOST, Fate.PARK, Fate.RETRY),
        (Standing.UNKNOWN, Fate.PARK, Fate.RETRY),
        (Standing.GONE, Fate.DROP_GONE, Fate.DROP_GONE),
    ],
)
def test_what_becomes_of_an_event(standing, held, asked_again):
    """Delivered to who lives; kept for who may come, or asked for again; let go of who left."""
    assert fate_of(an_event(), [standing]) is held
    assert fate_of(an_event(), [standing], asks_again=True) is asked_again


@pytest.mark.rule("M-72", "U-16")
@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(Standing, 2)))
def test_the_best_standing_of_several_accounts_decides(first, second):
    """Live before lost before unknown before gone."""
    order = [Standing.LIVE, Standing.LOST, Standing.UNKNOWN, Standing.GONE]
    best = min(first, second, key=order.index)

    assert fate_of(an_event(), [first, second]) is fate_of(an_event(), [best])


def test_an_event_that_names_nobody_reaches_nobody():
    """There is nowhere to keep it."""
    assert fate_of(an_event(accounts=()), []) is Fate.DROP_UNKNOWN


@pytest.mark.rule("RB-71", "RB-72")
@pytest.mark.parametrize("asks_again", [True, False])
@pytest.mark.parametrize("standing", Standing)
def test_a_departure_is_never_asked_for_again(standing, asks_again):
    """A verified one is kept where a grant may be on its way; a hint is worth nothing without a grant to check."""
    kept = {Standing.LIVE: Fate.DELIVER, Standing.GONE: Fate.DROP_GONE}.get(standing, Fate.PARK)
    hinted = Fate.DELIVER if standing is Standing.LIVE else Fate.DROP_NOTHING_TO_CHECK

    assert fate_of(a_departure(), [standing], asks_again=asks_again) is kept
    assert fate_of(a_departure(trust=Trust.SECRET), [standing], asks_again=asks_again) is hinted


@pytest.mark.parametrize("fate", Fate)
def test_what_is_dropped_has_no_effect(fate):
    """And nothing else is."""
    assert fate.drops is (fate.name.startswith("DROP"))


@pytest.mark.rule("M-64", "M-73")
@pytest.mark.parametrize("state", ConnectionState)
def test_only_a_ready_connection_has_a_right_to_an_event(state):
    """Whatever the event meant when it was verified: state, generation and owner are looked at again."""
    connection = a_connection(state)

    assert is_reached(Owner(), connection, 3) is (state is ConnectionState.READY)
    assert not is_reached(Owner(), connection, 2)
    assert not is_reached(Owner(deleted_at=NOW), connection, 3)
    assert not is_reached(None, connection, 3)
    assert not is_reached(Owner(), None, 3)


# --- of which grant a departure speaks -------------------------------------------------------------------------------


def a_life(*, begun: int | None = NOW - HOUR, account: Account | None = None, **grant: Any) -> Life:
    """A grant whose exchange began an hour ago, at an account that never left."""
    return Life(a_grant(**({"tv": 1} | grant)), begun, account or Account(live=1))


def judged(life: Life, *, received: int = NOW, now: int = NOW, **said: int | None) -> Verdict:
    """Of a signed word that says when it happened (as it came, unless *said*), and maybe when it was sent."""
    occurred = said.pop("occurred", received)
    return verdict_on(Trust.SIGNED, occurred, received, life, now, **said)


@pytest.mark.rule("RB-72")
def test_a_signed_word_about_the_only_grant_stops_it():
    """By its own time, whenever it was sent."""
    assert judged(a_life()) is Verdict.STOP
    assert judged(a_life(), occurred=NOW - 1, sent=NOW) is Verdict.STOP


@pytest.mark.rule("RB-71", "RB-72", "U-17")
@pytest.mark.parametrize("past", AROUND)
@pytest.mark.parametrize("sent", [None, NOW])
def test_a_word_without_its_time_stops_no_young_grant(sent, past):
    """It may be late, and what is sent again may be signed anew; three days after the exchange began it is about it."""
    life = a_life(begun=NOW - AFTERMATH_MS - past)

    assert judged(life, occurred=None, sent=sent) is (Verdict.CHECK if past < 0 else Verdict.STOP)


@pytest.mark.rule("RB-71", "U-17")
@pytest.mark.parametrize("past", AROUND)
def test_it_did_not_happen_after_it_was_sent(past):
    """A copy that was signed before the exchange began speaks of an older grant, with a time of its own or without."""
    sent = NOW - HOUR - CLOCK_SKEW_MS + past

    for occurred in (None, NOW):
        assert judged(a_life(), occurred=occurred, sent=sent) is (Verdict.OLDER if past < 0 else Verdict.CHECK)


@pytest.mark.rule("RB-72")
@pytest.mark.parametrize("occurred", [None, NOW - 2 * HOUR, NOW])
def test_a_hint_never_stops_anything(occurred):
    """Nor is it ever taken for an older one: whoever could make it could choose its time."""
    for life in (a_life(), a_life(begun=NOW + 1), a_life(tv=2, saved_at=NOW)):
        assert verdict_on(Trust.SECRET, occurred, NOW, life, NOW) is Verdict.CHECK


@pytest.mark.rule("RB-71", "U-17")
@pytest.mark.parametrize("past", AROUND)
def test_what_happened_before_the_exchange_began_is_not_about_its_grant(past):
    """By more than the clocks may differ; closer to it nobody can say, and the provider is asked."""
    occurred = NOW - HOUR - CLOCK_SKEW_MS + past

    assert judged(a_life(), occurred=occurred) is (Verdict.OLDER if past < 0 else Verdict.CHECK)


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("past", AROUND)
def test_what_happened_once_the_exchange_had_begun_is(past):
    """From that very instant on."""
    assert judged(a_life(), occurred=NOW - HOUR + past) is (Verdict.CHECK if past < 0 else Verdict.STOP)


def test_an_event_that_waited_for_the_grant_is_older_than_it():
    """Without a time of its own it happened when it came, at the latest: before the grant that it waited for."""
    assert judged(a_life(begun=NOW), occurred=None, received=NOW - HOUR) is Verdict.OLDER


def test_a_time_after_the_receipt_is_not_believed():
    """The provider's clock may be ahead: then the receipt counts."""
    life = a_life(begun=NOW)

    assert judged(life, occurred=NOW + HOUR, received=NOW - HOUR) is Verdict.OLDER


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("name", ["left_at", "lost_at"])
@pytest.mark.parametrize("past", AROUND)
def test_soon_after_another_grant_of_the_account_left_the_provider_is_asked(name, past):
    """It may be the late word about that one, or the echo of our own revocation of it."""
    account = Account(live=1, **{name: NOW - AFTERMATH_MS - past})

    assert judged(a_life(begun=NOW - 9 * AFTERMATH_MS, account=account)) is (
        Verdict.CHECK if past < 0 else Verdict.STOP
    )


@pytest.mark.parametrize("past", AROUND)
def test_soon_after_a_grant_took_anothers_place_the_provider_is_asked(past):
    """The old one was revoked by us, and the provider may say so; where nobody knows any more, it is asked as well."""
    life = replace(a_life(begun=NOW - AFTERMATH_MS - past), replaced=True)

    assert judged(life) is (Verdict.CHECK if past < 0 else Verdict.STOP)
    assert judged(replace(life, begun=None)) is Verdict.CHECK


def test_the_aftermath_covers_the_whole_of_a_revocation():
    """Ours may be sent for as long as its deadline, and the provider's word about it may be late."""
    assert AFTERMATH_MS >= 2 * DEADLINE_MS
    assert AFTERMATH_MS >= PARKED_MS + DEADLINE_MS


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("past", AROUND)
def test_a_grant_that_was_refreshed_since_is_asked_about(past):
    """The provider has given fresh tokens after what it says; only its refusal ends them."""
    occurred = NOW - 30 * MINUTE
    life = a_life(tv=2, saved_at=occurred + CLOCK_SKEW_MS + past)

    assert judged(life, occurred=occurred) is (Verdict.CHECK if past > 0 else Verdict.STOP)
    assert judged(replace(life, grant=a_grant(tv=1, saved_at=NOW)), occurred=occurred) is Verdict.STOP


@pytest.mark.parametrize("past", AROUND)
def test_an_exchange_whose_record_is_gone_began_a_day_ago_at_the_latest(past):
    """It is kept for a day at least: what happened before that may be older."""
    occurred = NOW - COMPACT_MS + past

    for tv in (1, 2):
        life = a_life(begun=None, tv=tv, saved_at=NOW - COMPACT_MS)
        assert judged(life, occurred=occurred) is (Verdict.CHECK if past < 0 else Verdict.STOP)


@pytest.mark.rule("RB-72")
@pytest.mark.parametrize("past", AROUND)
def test_where_nobody_knows_when_it_began_nothing_is_older_than_it(past):
    """What happened once the grant had been saved is about it, however long ago; before that the provider is asked."""
    life = a_life(begun=None, saved_at=NOW - 9 * COMPACT_MS)

    assert judged(life, occurred=NOW - 9 * COMPACT_MS + past) is (Verdict.CHECK if past < 0 else Verdict.STOP)
    assert judged(life, occurred=NOW - 90 * COMPACT_MS) is Verdict.CHECK
    assert judged(life, occurred=None) is Verdict.STOP
    assert judged(replace(life, grant=a_grant(tv=2, saved_at=NOW)), occurred=None) is Verdict.CHECK


# --- asking the provider ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("past", AROUND)
def test_one_connection_is_asked_about_every_ten_minutes_at_most(past):
    """A burst of hints costs one call; the last of them is looked at when the time is over."""
    grant = a_grant(doubted_at=NOW - CHECK_EVERY_MS - past)

    assert check_step(grant, NOW, NOW) is (CheckStep.LATER if past < 0 else CheckStep.NOW)
    assert check_step(a_grant(), NOW, NOW) is CheckStep.NOW


@pytest.mark.parametrize("past", AROUND)
def test_an_event_that_came_before_the_provider_was_asked_needs_no_further_call(past):
    """Nor one that came before the provider gave fresh tokens."""
    asked = a_grant(doubted_at=NOW + past)
    refreshed = a_grant(tv=2, saved_at=NOW + past)

    assert check_step(asked, NOW, NOW + 1) is (CheckStep.LATER if past < 0 else CheckStep.DONE)
    assert check_step(refreshed, NOW, NOW + 1) is (CheckStep.DONE if past > 0 else CheckStep.NOW)
    assert check_step(replace(refreshed, tv=1), NOW, NOW + 1) is CheckStep.NOW
