"""The live grant: when its token is handed out or refreshed, and what a refresh that nobody saw answered means."""

import itertools

import pytest

from quitclaim.domain.facts import OldToken
from quitclaim.domain.limits import (
    ATTEMPTS,
    GUARD_MS,
    HARD_MARGIN_MS,
    REFRESH_CALL_MIN_MS,
    REFRESH_CALL_MS,
    REFRESH_LEASE_MS,
    SAVE_MS,
    SAVED_RECENTLY_MS,
    SOFT_MARGIN_MS,
)
from quitclaim.domain.revocations import Reach
from quitclaim.domain.tokens import (
    Freshness,
    LapseOfAttempt,
    call_limit_ms,
    freshness,
    has_time_for_refresh,
    is_saved_recently,
    lapse_of_attempt,
    may_lease,
)
from tests.domain.values import AROUND, NOW, a_grant, facts

FRESH, SOFT, STALE = Freshness.FRESH, Freshness.SOFT, Freshness.STALE


# --- hand-out --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-17")
@pytest.mark.parametrize(
    ("left_ms", "min_ttl_ms", "expected"),
    [
        (-1, 0, STALE),
        (0, 0, STALE),
        (HARD_MARGIN_MS - 1, 0, STALE),
        (HARD_MARGIN_MS, 0, STALE),
        (HARD_MARGIN_MS + 1, 0, SOFT),
        (SOFT_MARGIN_MS - 1, 0, SOFT),
        (SOFT_MARGIN_MS, 0, SOFT),
        (SOFT_MARGIN_MS + 1, 0, FRESH),
        # a caller who wants less than the hard margin gets the hard margin
        (HARD_MARGIN_MS, HARD_MARGIN_MS - 1, STALE),
        (HARD_MARGIN_MS + 1, HARD_MARGIN_MS - 1, SOFT),
        # one who wants more gets more
        (100_000 - 1, 100_000, STALE),
        (100_000, 100_000, STALE),
        (100_000 + 1, 100_000, SOFT),
        # one who wants more than the soft margin sees no soft time at all
        (600_000 - 1, 600_000, STALE),
        (600_000, 600_000, STALE),
        (600_000 + 1, 600_000, FRESH),
    ],
)
def test_U_17_how_fresh_a_token_is(left_ms, min_ttl_ms, expected):
    """Of a token that lives that much longer, for a caller who wants it to live at least so long."""
    grant = a_grant(access_until=NOW + left_ms)

    assert freshness(grant, NOW, min_ttl_ms) is expected


@pytest.mark.parametrize("min_ttl_ms", [0, 86_400_000])
def test_a_token_that_does_not_expire_is_fresh(min_ttl_ms):
    """For whatever a caller wants of it."""
    assert freshness(a_grant(access_until=None), NOW, min_ttl_ms) is FRESH


@pytest.mark.parametrize("access_until", [None, NOW + 10 * SOFT_MARGIN_MS])
@pytest.mark.parametrize(("suspect", "expected"), [(None, FRESH), (6, FRESH), (7, STALE), (8, FRESH)])
def test_a_suspect_version_is_stale(access_until, suspect, expected):
    """Only the version that the app saw fail; an older one was replaced already."""
    assert freshness(a_grant(access_until=access_until, suspect=suspect, tv=7), NOW, 0) is expected


@pytest.mark.parametrize("off", AROUND)
def test_a_recent_save_has_its_owner_read_again(off):
    """Ten seconds, the last of them not included."""
    assert is_saved_recently(a_grant(saved_at=NOW), NOW + SAVED_RECENTLY_MS + off) is (off < 0)


# --- lease -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I-6", "D-32", "U-17")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("open_attempts", range(ATTEMPTS + 2))
def test_I_6_a_lease_is_taken_over_a_guard_after_its_end(off, open_attempts):
    """And only while fewer than two attempts are open."""
    attempts = frozenset(f"a{number}" for number in range(open_attempts))
    grant = a_grant(lease="a0", lease_until=NOW, attempts=attempts)

    assert may_lease(grant, NOW + GUARD_MS + off) is (off >= 0 and open_attempts < ATTEMPTS)


@pytest.mark.parametrize("open_attempts", range(ATTEMPTS + 2))
def test_a_free_grant_may_be_leased(open_attempts):
    """At once, but never a third time while two answers may still come."""
    attempts = frozenset(f"a{number}" for number in range(open_attempts))

    assert may_lease(a_grant(attempts=attempts), NOW) is (open_attempts < ATTEMPTS)


# --- time of a refresh -----------------------------------------------------------------------------------------------

AMPLE = 10 * REFRESH_LEASE_MS


@pytest.mark.rule("F-41", "RB-41")
@pytest.mark.parametrize(
    ("lease_left", "remaining", "expected"),
    [
        (AMPLE, AMPLE, REFRESH_CALL_MS),
        # the lease, less a guard
        (REFRESH_CALL_MS + GUARD_MS, AMPLE, REFRESH_CALL_MS),
        (REFRESH_CALL_MS + GUARD_MS - 1, AMPLE, REFRESH_CALL_MS - 1),
        (REFRESH_CALL_MIN_MS + GUARD_MS + 1, AMPLE, REFRESH_CALL_MIN_MS + 1),
        (REFRESH_CALL_MIN_MS + GUARD_MS, AMPLE, REFRESH_CALL_MIN_MS),
        (REFRESH_CALL_MIN_MS + GUARD_MS - 1, AMPLE, None),
        (0, AMPLE, None),
        (-1, AMPLE, None),
        # the invocation, less a save
        (AMPLE, REFRESH_CALL_MS + SAVE_MS - 1, REFRESH_CALL_MS - 1),
        (AMPLE, REFRESH_CALL_MIN_MS + SAVE_MS + 1, REFRESH_CALL_MIN_MS + 1),
        (AMPLE, REFRESH_CALL_MIN_MS + SAVE_MS, REFRESH_CALL_MIN_MS),
        (AMPLE, REFRESH_CALL_MIN_MS + SAVE_MS - 1, None),
        (AMPLE, 0, None),
    ],
)
def test_3_4_a_refresh_ends_inside_its_lease_and_its_invocation(lease_left, remaining, expected):
    """The smallest of three limits; below three seconds nothing is sent."""
    assert call_limit_ms(NOW, NOW + lease_left, remaining) == expected


@pytest.mark.rule("F-39")
@pytest.mark.parametrize("off", AROUND)
def test_3_4_a_refresh_begins_only_with_time_to_call_and_save(off):
    """Seven seconds."""
    assert has_time_for_refresh(REFRESH_CALL_MIN_MS + SAVE_MS + off) is (off >= 0)


def test_a_full_lease_leaves_room_for_the_longest_call():
    """From its first millisecond on."""
    assert call_limit_ms(NOW, NOW + REFRESH_LEASE_MS, AMPLE) == REFRESH_CALL_MS


# --- a refresh whose answer nobody saw -------------------------------------------------------------------------------

WAIT, KEEP, STRAY = LapseOfAttempt.WAIT, LapseOfAttempt.KEEP, LapseOfAttempt.KEEP_STRAY
REPLAY, GIVE_UP = LapseOfAttempt.REPLAY, LapseOfAttempt.GIVE_UP
WIDE = (Reach.FAMILY, Reach.AUTHORIZATION, Reach.ACCOUNT)
NARROW = (Reach.TOKEN, Reach.UNKNOWN)


def expected_lapse(rotates: str, old_token: OldToken, reach: Reach, open_attempts: int) -> LapseOfAttempt:
    """Row 21, as it is written."""
    if rotates == "no":
        return KEEP  # static: the old token is as good as before
    if old_token in (OldToken.STAYS_VALID, OldToken.GRACE):
        return KEEP if reach in WIDE else STRAY
    return REPLAY if open_attempts < 2 else GIVE_UP


@pytest.mark.rule("D-1")
@pytest.mark.parametrize(
    ("rotates", "old_token", "reach", "open_attempts"),
    list(itertools.product(("yes", "no", "sometimes", "unknown"), OldToken, Reach, (1, 2))),
)
def test_row_21_a_refresh_that_was_never_answered(rotates, old_token, reach, open_attempts):
    """
    Whatever may have happened at the provider is reachable by the grant's revocation, sent again, or marked.

    A stray mark is what keeps a grant whose unseen successor may live from ending as "confirmed" (custody rule 6).
    """
    grant = a_grant(reach=reach, lease="a0", lease_until=NOW, attempts=frozenset(f"a{n}" for n in range(open_attempts)))

    decided = lapse_of_attempt(grant, facts(rotates=rotates, old_token=old_token), NOW + GUARD_MS)

    assert decided is expected_lapse(rotates, old_token, reach, open_attempts)


@pytest.mark.rule("U-17", "D-32")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("old_token", OldToken)
def test_U_17_nothing_is_decided_before_the_lease_and_a_guard_are_over(off, old_token):
    """An answer may still come until then."""
    grant = a_grant(lease="a0", lease_until=NOW, attempts=frozenset({"a0"}))

    decided = lapse_of_attempt(grant, facts(old_token=old_token), NOW + GUARD_MS + off)

    assert (decided is WAIT) is (off < 0)


@pytest.mark.parametrize("changes", [{}, {"lease_until": NOW}])
def test_nothing_lapses_where_nothing_was_recorded(changes):
    """No attempt."""
    assert lapse_of_attempt(a_grant(**changes), facts(), NOW + 10 * REFRESH_LEASE_MS) is WAIT


def test_every_lapse_is_reached():
    """The table above is no table of one line."""
    decided = {
        expected_lapse(rotates, old, reach, attempts)
        for rotates, old, reach, attempts in itertools.product(("yes", "no"), OldToken, (*WIDE, *NARROW), (1, 2))
    }

    assert decided == {KEEP, STRAY, REPLAY, GIVE_UP}
