"""Revocations: what is queued, when it is due, who may send it, and what the provider's answer makes of it."""

import itertools
from dataclasses import replace

import pytest

from quitclaim.domain.limits import (
    CLAIM_LEASE_MS,
    DEADLINE_MS,
    GUARD_MS,
    MINUTE,
    POISON_CLAIMS,
    REVOKE_CALL_MIN_MS,
    REVOKE_CALL_MS,
    ladder_step_ms,
)
from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import (
    Material,
    Reach,
    RevocationState,
    Settlement,
    Step,
    call_limit_ms,
    claim_end,
    deadline_of,
    family_of,
    given_back_until,
    is_poison,
    kinds_of,
    material_of,
    next_step,
    retry_at,
    settlement,
    still_owed,
    weakest,
)
from quitclaim.domain.secret import Secret
from tests.domain.values import AROUND, NOW, a_revocation

PENDING, PARKED = RevocationState.PENDING, RevocationState.PARKED
TERMINAL = [state for state in RevocationState if state not in (PENDING, PARKED)]


# --- what is queued --------------------------------------------------------------------------------------------------

ACCESS, REFRESH = Secret("access"), Secret("refresh")
R, A = Material("refresh_token", REFRESH), Material("access_token", ACCESS)
NARROW = (Reach.TOKEN, Reach.UNKNOWN)


@pytest.mark.rule("U-9", "RB-24")
@pytest.mark.rule("RB-23")
@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("takes", ["refresh", "access", "either"])
@pytest.mark.parametrize("refresh_token", [REFRESH, None])
def test_what_is_queued_is_the_strongest_thing_the_revocation_takes(takes, reach, refresh_token):
    """The refresh token where there is one and it is taken; both where each dies alone (RB-23); never nothing."""
    if refresh_token is None or takes == "access":
        expected = (A,)
    elif takes == "either" and reach in NARROW:
        expected = (R, A)
    else:
        expected = (R,)

    assert material_of(takes, reach, ACCESS, refresh_token) == expected


def test_the_kinds_of_a_pair_are_one_attribute():
    """One or both."""
    assert kinds_of((R,)) == "refresh_token"
    assert kinds_of((R, A)) == "refresh_token+access_token"


def test_a_family_is_the_exchange_and_the_pair():
    """Neither holds the separator, so the pair is read back from it."""
    assert family_of("x1", "main") == "x1#main"


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I-7")
@pytest.mark.parametrize("state", RevocationState)
@pytest.mark.parametrize("acknowledged", [None, NOW])
def test_I_7_terminal_notices_and_what_is_over(state, acknowledged):
    """Two states go on; of the terminal ones all but confirmed are notices, over once acknowledged."""
    is_terminal = state in TERMINAL
    is_notice = is_terminal and state is not RevocationState.CONFIRMED

    assert (state.is_terminal, state.is_notice) == (is_terminal, is_notice)
    assert a_revocation(state, acknowledged=acknowledged).is_over is (
        state is RevocationState.CONFIRMED or (is_notice and acknowledged is not None)
    )


# --- what a due item is ready for ------------------------------------------------------------------------------------


def row_38(state, now, deadline):
    """Expire: pending, and a guard past its deadline; leased or not."""
    return state is PENDING and deadline + GUARD_MS <= now


def row_28(state, now, *, due, deadline, lease_until, expected_until):
    """Claim: pending, due, before its deadline, nobody's, and no successor that ended unseen."""
    return (
        state is PENDING
        and due <= now
        and deadline > now
        and (lease_until is None or lease_until + GUARD_MS <= now)
        and (expected_until is None or expected_until + GUARD_MS > now)
    )


def row_37(state, now, *, due, deadline, lease_until, expected_until):
    """Forget the successor: as a claim, but the lease of the refresh it waits for is over."""
    return row_28(state, now, due=due, deadline=deadline, lease_until=lease_until, expected_until=None) and (
        expected_until is not None and expected_until + GUARD_MS <= now
    )


INSTANTS = (NOW - 10 * GUARD_MS, *(NOW + off for off in AROUND), NOW + 10 * GUARD_MS)
GUARDED = (None, NOW - 10 * GUARD_MS, *(NOW - GUARD_MS + off for off in AROUND), NOW, NOW + 1)
CASES = list(itertools.product(RevocationState, INSTANTS, (*INSTANTS, *GUARDED[2:5]), GUARDED, GUARDED))


@pytest.mark.rule("F-48", "F-49", "U-17", "D-3")
def test_rows_28_37_38_every_state_at_every_instant():
    """
    The rule, against the three conditions as the table of writes has them: every state, due, deadline, lease and
    expected successor, each a millisecond before, at and after the instant that decides.
    """
    seen = set()
    for state, due, deadline, lease_until, expected_until in CASES:
        when = {"due": due, "deadline": deadline, "lease_until": lease_until, "expected_until": expected_until}
        item = a_revocation(
            state,
            next=due,
            deadline=deadline,
            lease="w" if lease_until else None,
            lease_until=lease_until,
            expected=frozenset({"a1"}) if expected_until else frozenset(),
            expected_until=expected_until,
        )
        if row_38(state, NOW, deadline):
            expected = Step.EXPIRE
        elif row_37(state, NOW, **when):
            expected = Step.FORGET
        elif row_28(state, NOW, **when):
            expected = Step.CLAIM
        else:
            expected = Step.LEAVE

        assert next_step(item, NOW) is expected, (state, when)
        seen.add(expected)
    assert seen == set(Step)
    assert len(CASES) > 2_500


@pytest.mark.parametrize("changes", [{"deadline": None}, {"next": None}])
def test_what_has_no_time_is_left(changes):
    """It is parked or settled, or broken: nothing is guessed."""
    assert next_step(a_revocation(**changes), NOW + 2 * DEADLINE_MS) is Step.LEAVE


@pytest.mark.rule("I-8", "F-48", "U-17")
@pytest.mark.parametrize("off", AROUND)
def test_I_8_nobody_sends_at_the_deadline_and_it_expires_a_guard_later(off):
    """U-17 for its user, and for whoever takes the right over."""
    item = a_revocation()
    deadline = item.deadline or 0

    assert (next_step(item, deadline + off) is Step.CLAIM) is (off < 0)
    assert (next_step(item, deadline + GUARD_MS + off) is Step.EXPIRE) is (off >= 0)


@pytest.mark.rule("I-18", "F-51")
@pytest.mark.parametrize("off", AROUND)
def test_what_has_no_time_for_a_call_is_not_due_before_its_deadline(off):
    """The shortest call still fits: due as it was. It does not: a new claim would only be given back as well."""
    item = a_revocation()
    deadline, due = item.deadline or 0, item.next
    last = deadline - REVOKE_CALL_MIN_MS

    assert given_back_until(item, last + off) == (due if off <= 0 else deadline)


@pytest.mark.rule("F-64", "U-17")
@pytest.mark.parametrize("off", AROUND)
def test_a_held_grant_is_claimed_a_guard_after_its_hold(off):
    """Its lease is the exchange's: nobody takes it before the exchange can no longer install it."""
    hold_ends = NOW + 600_000
    item = a_revocation(next=hold_ends, lease="x1", lease_until=hold_ends)

    assert (next_step(item, hold_ends + GUARD_MS + off) is Step.CLAIM) is (off >= 0)


# --- claim and call --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [CLAIM_LEASE_MS + 1, CLAIM_LEASE_MS, CLAIM_LEASE_MS - 1, 1])
def test_K_7_a_claim_is_capped_at_the_deadline(left):
    """Thirty seconds, or what is left."""
    assert claim_end(NOW, NOW + left) == NOW + min(left, 30_000)


@pytest.mark.rule("F-23")
def test_K_6_the_deadline_is_23_h_59_min_after_queueing():
    """In milliseconds."""
    assert deadline_of(NOW) == NOW + 86_340_000


@pytest.mark.rule("F-51")
@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (CLAIM_LEASE_MS, REVOKE_CALL_MS),
        (REVOKE_CALL_MS + 1, REVOKE_CALL_MS),
        (REVOKE_CALL_MS, REVOKE_CALL_MS),
        (REVOKE_CALL_MS - 1, REVOKE_CALL_MS - 1),
        (REVOKE_CALL_MIN_MS + 1, REVOKE_CALL_MIN_MS + 1),
        (REVOKE_CALL_MIN_MS, REVOKE_CALL_MIN_MS),
        (REVOKE_CALL_MIN_MS - 1, None),
        (0, None),
        (-1, None),
    ],
)
def test_3_5_a_revoke_call_ends_with_its_lease(left, expected):
    """What no longer fits is given back, not sent."""
    assert call_limit_ms(NOW, NOW + left) == expected


@pytest.mark.parametrize("beyond", [POISON_CLAIMS - 1, POISON_CLAIMS, POISON_CLAIMS + 1])
@pytest.mark.parametrize("attempts", [0, 30])
def test_T_10_claims_that_no_attempt_explains_are_poison(beyond, attempts):
    """The sixth; attempts that were counted explain their claims."""
    assert is_poison(a_revocation(claims=attempts + beyond, attempts=attempts)) is (beyond > 5)


# --- the ladder ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-7", "F-52")
@pytest.mark.parametrize(
    ("attempts", "minutes"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15), (6, 15), (50, 15), (98, 15), (200, 15)]
)
def test_K_9_when_a_failed_attempt_is_repeated(attempts, minutes):
    """By the ladder."""
    assert retry_at(NOW, attempts, NOW + DEADLINE_MS) == NOW + minutes * 60_000


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("off", AROUND)
def test_a_retry_never_stands_after_the_deadline(off):
    """The step that would pass it ends at it."""
    step = ladder_step_ms(1)

    assert retry_at(NOW, 1, NOW + step + off) == NOW + min(step, step + off)


@pytest.mark.parametrize(
    ("retry_after_ms", "expected_ms"),
    [(None, 60_000), (0, 60_000), (59_999, 60_000), (60_000, 60_000), (60_001, 60_001), (7_200_000, 7_200_000)],
)
def test_a_providers_retry_after_counts_where_it_is_longer(retry_after_ms, expected_ms):
    """It never makes us come back sooner, and never later than the deadline."""
    assert retry_at(NOW, 1, NOW + DEADLINE_MS, retry_after_ms) == NOW + expected_ms
    assert retry_at(NOW, 1, NOW + 90_000, retry_after_ms) == NOW + min(expected_ms, 90_000)


@pytest.mark.rule("U-7", "D-17", "D-25", "I-8")
def test_P_4_an_always_failing_provider_is_asked_99_times_and_never_after_the_deadline():
    """
    At 0, 1, 3, 7, 15, 30 … minutes, in the ideal case of a sweep that is always there; then it expires, a guard after
    the deadline, and is never asked again.
    """
    item = a_revocation()
    asked: list[int] = []
    now = item.queued
    while next_step(item, now) is Step.CLAIM:
        asked.append(now)
        at = retry_at(now, len(asked), item.deadline or 0)
        item = a_revocation(attempts=len(asked), claims=len(asked), next=at)
        now = at

    minutes = [(at - NOW) // 60_000 for at in asked]
    assert len(asked) == 99
    assert minutes[:7] == [0, 1, 3, 7, 15, 30, 45]
    assert minutes[-1] == 15 * 95 == 1_425
    assert max(asked) < (item.deadline or 0) == now
    assert next_step(item, now) is Step.LEAVE
    assert next_step(item, now + GUARD_MS) is Step.EXPIRE
    assert not is_poison(item)


# --- what an answer means --------------------------------------------------------------------------------------------

GOOD = (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE)


@pytest.mark.rule("F-52", "U-8", "D-3")
@pytest.mark.parametrize("outcome", RevokeOutcome)
@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("lost", [None, True])
@pytest.mark.parametrize("expected_successors", [frozenset(), frozenset({"a1"})])
def test_every_answer_for_every_revocation(outcome, reach, lost, expected_successors):
    """
    Only the provider's own yes settles; an open successor defers it, a lost one leaves a notice, and where the call
    reaches the whole account an unknown outcome keeps its claim (custody rules 3, 4, 12).
    """
    item = a_revocation(reach=reach, lost=lost, expected=expected_successors)
    if outcome in GOOD and lost:
        expected = Settlement.UNCONFIRMED
    elif outcome in GOOD and not expected_successors:
        expected = Settlement.CONFIRMED
    elif outcome is RevokeOutcome.UNKNOWN and reach is Reach.ACCOUNT:
        expected = Settlement.HELD_UNTIL_LEASE_END
    else:
        expected = Settlement.DEFERRED

    assert settlement(item, RevokeAnswer(outcome)) is expected


@pytest.mark.rule("F-52", "U-8", "D-3")
def test_only_a_confirmed_token_without_successors_is_confirmed():
    """Stated once more, the other way round: of all answers and marks one combination says so."""
    confirmed = [
        (outcome, lost, successors)
        for outcome, lost, successors in itertools.product(RevokeOutcome, (None, True), ((), ("a1",)))
        if settlement(a_revocation(lost=lost, expected=frozenset(successors)), RevokeAnswer(outcome))
        is Settlement.CONFIRMED
    ]

    assert confirmed == [(outcome, None, ()) for outcome in GOOD]


@pytest.mark.parametrize(("one", "two"), list(itertools.product(RevokeOutcome, repeat=2)))
def test_the_weakest_answer_speaks_for_all_tokens(one, two):
    """Confirmed only if each is; the order of asking says nothing."""
    found = weakest([RevokeAnswer(one), RevokeAnswer(two)]).outcome

    assert found is weakest([RevokeAnswer(two), RevokeAnswer(one)]).outcome
    assert found in (one, two)
    assert (found in GOOD) is (one in GOOD and two in GOOD)
    if RevokeOutcome.UNKNOWN in (one, two):
        assert found is RevokeOutcome.UNKNOWN


def test_the_weakest_answer_keeps_its_reason_and_delay():
    """The one that the ladder is told of."""
    answers = [RevokeAnswer(RevokeOutcome.CONFIRMED), RevokeAnswer(RevokeOutcome.DEFERRED, "429", 5_000)]

    assert weakest(answers) is answers[1]


@pytest.mark.parametrize(("until", "owed"), [(None, 2), (NOW + 1, 2), (NOW - MINUTE, 1), (NOW - MINUTE + 1, 2)])
def test_an_access_token_that_has_expired_is_owed_nothing_beside_its_refresh_token(until, owed):
    """By the provider's own clock, and a minute; alone it is sent all the same."""
    access = Material("access_token", ACCESS, until=until)

    assert len(still_owed((R, access), NOW)) == owed
    assert still_owed((access,), NOW) == (access,)


def test_an_expired_access_token_is_owed_beside_another_pairs_fresh_one():
    """Its pair has nothing else by which its end is told."""
    old = Material("access_token", ACCESS, until=NOW - MINUTE, pair="a")
    fresh = Material("access_token", ACCESS, until=NOW + MINUTE, pair="b")
    stale = replace(old, pair="b")

    assert still_owed((old, fresh, stale), NOW) == (old, fresh)
