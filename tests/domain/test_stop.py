"""A stop: what its owner is told, and when it may close."""

import itertools

import pytest

from quitclaim.domain.connect import ExchangeOutcome
from quitclaim.domain.revocations import RevocationState
from quitclaim.domain.stop import Close, Level, StopReason, close_of, level_of_exchange, level_of_revocation
from tests.domain.values import NOW, a_revocation, an_exchange, an_intent

NOTICES = [state for state in RevocationState if state.is_notice]


# --- levels ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-35", "U-20")
def test_F_35_levels_are_ordered_by_how_pressing_they_are():
    """The more pressing wins; what the owner has acknowledged is less so than what is still under way (U-20)."""
    assert [level.label for level in sorted(Level)] == [
        "not_needed",
        "confirmed",
        "acknowledged",
        "pending",
        "permission_removal_required",
    ]


@pytest.mark.rule("F-36", "F-38")
@pytest.mark.parametrize("state", RevocationState)
@pytest.mark.parametrize("acknowledged", [None, NOW])
def test_F_36_the_level_of_a_revocation(state, acknowledged):
    """Every state; an acknowledgement counts for notices only (F-33)."""
    expected = {
        RevocationState.PENDING: Level.PENDING,
        RevocationState.PARKED: Level.NOT_NEEDED,
        RevocationState.CONFIRMED: Level.CONFIRMED,
    }.get(state, Level.ACKNOWLEDGED if acknowledged else Level.PERMISSION_REMOVAL_REQUIRED)

    assert level_of_revocation(a_revocation(state, acknowledged=acknowledged)) is expected


@pytest.mark.rule("F-36")
def test_a_missing_revocation_is_never_good_news():
    """It counts as removal required."""
    assert level_of_revocation(None) is Level.PERMISSION_REMOVAL_REQUIRED


@pytest.mark.rule("F-37", "F-38")
@pytest.mark.parametrize("outcome", ExchangeOutcome)
@pytest.mark.parametrize("acknowledged", [None, NOW])
@pytest.mark.parametrize("state", [None, *RevocationState])
def test_F_37_the_level_of_an_exchange(outcome, acknowledged, state):
    """In flight, installed or ended owes nothing; cleanup is as its revocation, unconfirmed waits for the owner."""
    revocation = None if state is None else a_revocation(state)
    expected = {
        ExchangeOutcome.CLEANUP: level_of_revocation(revocation),
        ExchangeOutcome.UNCONFIRMED: Level.ACKNOWLEDGED if acknowledged else Level.PERMISSION_REMOVAL_REQUIRED,
    }.get(outcome, Level.NOT_NEEDED)

    assert level_of_exchange(an_exchange(outcome, acknowledged=acknowledged), revocation) is expected


# --- close -----------------------------------------------------------------------------------------------------------

CLOSES_AS = {
    # (state, finished, acknowledged)
    **{(RevocationState.PENDING, done, told): Close.NOT_YET for done in (0, 1) for told in (0, 1)},
    **{(RevocationState.PARKED, done, told): Close.RELEASED for done in (0, 1) for told in (0, 1)},
    (RevocationState.CONFIRMED, 0, 0): Close.NOT_YET,
    (RevocationState.CONFIRMED, 0, 1): Close.NOT_YET,
    (RevocationState.CONFIRMED, 1, 0): Close.CONFIRMED,
    (RevocationState.CONFIRMED, 1, 1): Close.CONFIRMED,
    **{(state, done, 0): Close.NOT_YET for state in NOTICES for done in (0, 1)},
    **{(state, 0, 1): Close.NOT_YET for state in NOTICES},
    **{(state, 1, 1): Close.ATTESTED for state in NOTICES},
}


def revoked(state, finished, acknowledged, rid="r1"):
    """A revocation of that state, with these marks."""
    return a_revocation(state, rid=rid, finished=NOW if finished else None, acknowledged=NOW if acknowledged else None)


def test_every_end_of_a_revocation_has_a_row():
    """Every state, finished or not, acknowledged or not."""
    assert set(CLOSES_AS) == set(itertools.product(RevocationState, (0, 1), (0, 1)))


@pytest.mark.rule("I-13")
@pytest.mark.parametrize(("state", "finished", "acknowledged"), CLOSES_AS)
def test_I_13_a_stop_closes_by_the_end_of_its_revocation(state, finished, acknowledged):
    """Finished and confirmed, finished and acknowledged, or parked; nothing else."""
    expected = CLOSES_AS[state, finished, acknowledged]

    assert close_of(an_intent(), [revoked(state, finished, acknowledged)], []) is expected


@pytest.mark.rule("I-13")
@pytest.mark.parametrize(("one", "two"), list(itertools.product(CLOSES_AS, repeat=2)))
def test_the_weakest_of_two_revocations_decides(one, two):
    """ "Revoked" is said only where the provider confirmed every one (custody rule 5)."""
    order = [Close.CONFIRMED, Close.RELEASED, Close.ATTESTED, Close.NOT_YET]
    expected = max(CLOSES_AS[one], CLOSES_AS[two], key=order.index)

    assert close_of(an_intent(), [revoked(*one, rid="r1"), revoked(*two, rid="r2")], []) is expected


DONE = revoked(RevocationState.CONFIRMED, 1, 0)


@pytest.mark.rule("U-13", "I-13")
@pytest.mark.parametrize("resolved", [[DONE], [DONE, DONE]])
@pytest.mark.parametrize(
    "changes",
    [
        {"purge": "pending"},
        {"comp_derived": None},
        {"comp_open": 1},
        {"closed": NOW},
        {"purge": "pending", "comp_derived": None, "comp_open": 2},
    ],
)
def test_U_13_purge_and_compensations_are_parts_of_their_own(resolved, changes):
    """However well the provider's part went; and nothing closes twice."""
    assert close_of(an_intent(**changes), resolved, []) is Close.NOT_YET


@pytest.mark.rule("I-13")
def test_a_missing_revocation_keeps_a_stop_open():
    """It alarms instead of closing."""
    assert close_of(an_intent(), [None], []) is Close.NOT_YET
    assert close_of(an_intent(), [DONE, None], []) is Close.NOT_YET


@pytest.mark.parametrize(
    ("provider", "expected"),
    [("not_needed", Close.NOT_NEEDED), ("absent", Close.NOT_NEEDED), (None, Close.NOT_YET)],
)
def test_row_47_a_stop_without_a_revocation_closes_only_where_nothing_is_owed(provider, expected):
    """There never was a grant, or the provider says that there is none: else its revocation is missing."""
    assert close_of(an_intent(provider=provider), [], []) is expected


@pytest.mark.rule("I-13")
@pytest.mark.parametrize("outcome", ExchangeOutcome)
@pytest.mark.parametrize("acknowledged", [None, NOW])
def test_an_exchange_to_acknowledge_keeps_a_stop_open(outcome, acknowledged):
    """Of those that the barrier still names for it; a missing one as well."""
    named = an_exchange(outcome, acknowledged=acknowledged)
    expected = Close.CONFIRMED if acknowledged else Close.NOT_YET

    assert close_of(an_intent(), [DONE], [named]) is expected
    assert close_of(an_intent(), [DONE], [named, None]) is Close.NOT_YET


@pytest.mark.rule("F-3")
def test_reasons_are_those_of_F_3_and_the_end_of_a_refresh():
    """Part of events and receipts, so each is stable."""
    assert {reason.value for reason in StopReason} == {
        "disconnect",
        "account_deleted",
        "grant_rejected",
        "insufficient_scope",
        "refresh_unconfirmed",
    }


def test_the_barrier_names_a_purge_by_connection_and_generation():
    """So that an older purge never ends a newer one's block (I-11)."""
    assert an_intent(generation=7).in_barrier == "google#7"
