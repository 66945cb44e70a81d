"""When a grant that nobody uses is looked after, and what a suspect version means."""

import pytest

from quitclaim.domain.limits import EXPIRING_MS, KEEP_ALIVE_PERCENT, SAME_END_MS
from quitclaim.domain.tokens import (
    Freshness,
    LapseOfAttempt,
    expiring_at,
    freshness,
    is_same_end,
    keep_alive_at,
    lapse_of_attempt,
    needs_care,
)
from tests.domain.values import AROUND, NOW, a_grant, facts

DAY = 86_400_000


def test_a_suspect_version_is_stale_whatever_its_clock_says() -> None:
    """An older mark says nothing of the version that replaced it."""
    assert freshness(a_grant(tv=7, suspect=7), NOW, 0) is Freshness.STALE
    assert freshness(a_grant(tv=8, suspect=7), NOW, 0) is Freshness.FRESH


def test_a_limit_is_kept_at_four_fifths() -> None:
    """None where there is none."""
    assert keep_alive_at(NOW, 100 * DAY) == NOW + KEEP_ALIVE_PERCENT * DAY
    assert keep_alive_at(NOW, None) is None


@pytest.mark.parametrize(("days", "before"), [(365, 7), (35, 7), (34, 6.8), (1, 0.2), (0, 0)])
def test_an_end_is_told_a_week_before_or_in_its_last_fifth(days: float, before: float) -> None:
    """Whichever is later."""
    assert expiring_at(NOW, NOW + int(days * DAY)) == NOW + int(days * DAY) - int(before * DAY)


def test_no_end_is_never_told() -> None:
    """Nor one of which nobody knows."""
    assert expiring_at(NOW, None) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NOW, NOW, True),
        (NOW, NOW - 50 * DAY, True),
        (NOW, NOW + SAME_END_MS, True),
        (NOW, NOW + SAME_END_MS + 1, False),
        (None, NOW, False),
        (NOW, None, False),
        (None, None, False),
    ],
)
def test_an_end_that_a_refresh_moves_is_another_end(before: int | None, after: int | None, expected: bool) -> None:
    """Answers that count the same end down differ by rounding."""
    assert is_same_end(before, after) is expected


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("name", ["keep_alive_at", "expiring_at"])
def test_care_begins_at_its_time(name: str, off: int) -> None:
    """At the instant itself, not before."""
    grant = a_grant(**{name: NOW, "saved_at": NOW - DAY})

    assert needs_care(grant, NOW + off) is (off >= 0)


def test_an_end_asks_for_one_refresh_only() -> None:
    """Refreshed since, and still there: then it cannot be moved."""
    assert needs_care(a_grant(expiring_at=NOW, saved_at=NOW), NOW) is False
    assert needs_care(a_grant(expiring_at=NOW, saved_at=NOW + 1), NOW + 2) is False


def test_the_next_care_is_the_earlier_one() -> None:
    """Or none."""
    assert a_grant().next_care is None
    assert a_grant(keep_alive_at=5).next_care == a_grant(expiring_at=5, keep_alive_at=9).next_care == 5
    assert EXPIRING_MS == 7 * DAY


def test_an_attempt_without_a_lease_has_lapsed() -> None:
    """A later one was withdrawn since: every lease that was is over."""
    assert lapse_of_attempt(a_grant(attempts=frozenset({"a"})), facts(), NOW) is LapseOfAttempt.REPLAY
    assert lapse_of_attempt(a_grant(attempts=frozenset({"a", "b"})), facts(), NOW) is LapseOfAttempt.GIVE_UP
