"""When a queued token is refreshed, what the answer makes of it, and how long a predecessor waits."""

import itertools
from dataclasses import replace

import pytest

from quitclaim.domain.facts import OldToken
from quitclaim.domain.limits import DOUBTS, MINUTE
from quitclaim.domain.outcomes import LooseToken, Outcome, RevokeAnswer, RevokeOutcome, TokenAnswer, TokenGrant
from quitclaim.domain.renewals import (
    ALIVE_MS,
    Awaited,
    Renewal,
    Renewed,
    after_successor,
    first_renewal,
    is_lost_unseen,
    is_unproven,
    meaning_of,
    renewal_after,
    renewal_before,
    rest_of,
    successor_of,
)
from quitclaim.domain.revocations import Material, Reach, Revocation, RevocationState, SealedMaterial
from quitclaim.domain.secret import Secret
from tests.domain.values import NOW, a_revocation, facts

ACCESS, REFRESH = Secret("access"), Secret("refresh")
SEALED = SealedMaterial(b"sealed", "access_token+refresh_token", "main", 3)
RENEWS = {"takes": "access", "refreshable": True, "needs_live_access_token": True}


def queued(**changes: object) -> Revocation:
    """A queued pair."""
    return a_revocation(material=(SEALED,), **changes)


def pair(until: int | None = None) -> tuple[Material, ...]:
    """An access token and what renews it."""
    return Material("access_token", ACCESS, until=until), Material("refresh_token", REFRESH)


@pytest.mark.parametrize(
    ("until", "renews"),
    [(None, False), (NOW - 1, True), (NOW, True), (NOW + 1, True), (NOW + ALIVE_MS, True), (NOW + ALIVE_MS + 1, False)],
)
def test_it_is_renewed_first_where_its_access_token_has_expired(until: int | None, renews: bool) -> None:
    """Or is about to, for clocks differ, or where there is none; never where another kind is taken or none renews."""
    assert renewal_before(queued(), pair(until), facts(**RENEWS), NOW) is renews
    assert renewal_before(queued(), pair()[1:], facts(**RENEWS), NOW)
    assert not renewal_before(queued(), pair(until)[:1], facts(**RENEWS), NOW)
    for change in ({"takes": "refresh"}, {"takes": "either"}, {"refreshable": False}):
        assert not renewal_before(queued(), pair(until), facts(**RENEWS | change), NOW)
    assert not renewal_before(queued(), pair(until), facts(**RENEWS | {"needs_live_access_token": False}), NOW)


@pytest.mark.parametrize(
    ("materials", "is_doubt"), [(pair(NOW - 1), False), (pair(NOW), False), (pair(NOW + 1), True), (pair()[1:], False)]
)
def test_tokens_that_never_live_for_long_are_not_renewed_without_end(
    materials: tuple[Material, ...], is_doubt: bool
) -> None:
    """A refresh of what is still alive is counted."""
    renewal = first_renewal(materials, NOW)

    assert renewal.is_doubt is is_doubt
    assert successor_of(queued(), renewal, "r2", NOW, survived=False).doubts == int(is_doubt)


@pytest.mark.parametrize(
    ("outcome", "reach", "ends_pair"), list(itertools.product(RevokeOutcome, Reach, [True, False]))
)
def test_an_answer_is_checked_where_it_does_not_speak_for_the_refresh_token(
    outcome: RevokeOutcome, reach: Reach, ends_pair: bool
) -> None:
    """Ambiguous always; a success where the call is not known to reach the refresh token."""
    asked = renewal_after(queued(reach=reach), pair(), facts(**RENEWS, ends_pair=ends_pair), RevokeAnswer(outcome), NOW)

    covers = reach.ends_old_tokens or ends_pair
    is_success = outcome in (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE)
    assert (asked is not None) is (outcome is RevokeOutcome.AMBIGUOUS or (is_success and not covers))


def named(name: str, until: int | None = None) -> tuple[Material, ...]:
    """A pair of several in one item."""
    return tuple(replace(each, pair=name) for each in pair(until))


def test_of_several_pairs_each_is_asked_about_in_turn() -> None:
    """Before: the one whose access token is old; after: the first; a pair without a refresh token needs no question."""
    of, token = facts(**RENEWS), queued(reach=Reach.TOKEN)
    fresh_and_old = (*named("main", NOW + 60 * MINUTE), *named("user", NOW))

    assert renewal_before(token, fresh_and_old, of, NOW)
    assert not renewal_before(token, (*named("main", NOW + 60 * MINUTE), *named("user", NOW + 60 * MINUTE)), of, NOW)
    assert first_renewal(fresh_and_old, NOW).pair == "user"
    for outcome in (RevokeOutcome.AMBIGUOUS, RevokeOutcome.CONFIRMED):
        asked = renewal_after(token, fresh_and_old, of, RevokeAnswer(outcome), NOW)
        assert asked is not None
        assert asked.pair == "main"
    half = (*named("main")[:1], *named("user"))
    asked = renewal_after(token, half, of, RevokeAnswer(RevokeOutcome.CONFIRMED), NOW)
    assert asked is not None
    assert asked.pair == "user"


def test_what_is_left_of_several_pairs_brings_no_new_doubt() -> None:
    """One pair is gone for good; what was doubted before is doubted still."""
    before, now = queued(reach=Reach.TOKEN, doubts=1), NOW
    renewal = Renewal(Secret("r"), RevokeAnswer(RevokeOutcome.CONFIRMED), is_doubt=True, pair="main")

    rest = rest_of(before, renewal, "r2", now)

    assert (rest.rid, rest.doubts, rest.lost, rest.deadline) == ("r2", 1, None, before.deadline)


def test_nothing_is_asked_that_cannot_be_answered() -> None:
    """No refresh token, one pair of several without one, too many doubts, or a success that is worth nothing anyway."""
    ambiguous, done = RevokeAnswer(RevokeOutcome.AMBIGUOUS), RevokeAnswer(RevokeOutcome.CONFIRMED)
    of = facts(**RENEWS)

    assert renewal_after(queued(), pair()[:1], of, ambiguous, NOW) is None
    both = (*named("main"), *named("user")[:1])
    assert renewal_after(a_revocation(material=(SEALED, SEALED)), both, of, ambiguous, NOW) is None
    assert renewal_after(queued(doubts=DOUBTS), pair(), of, ambiguous, NOW) is None
    assert renewal_after(queued(lost=True), pair(), of, done, NOW) is None
    assert renewal_after(queued(lost=True), pair(), of, ambiguous, NOW) is not None


@pytest.mark.parametrize(
    ("answer", "until", "is_doubt"),
    [
        (RevokeAnswer(RevokeOutcome.AMBIGUOUS), NOW - 1, False),
        (RevokeAnswer(RevokeOutcome.AMBIGUOUS), NOW + 1, True),
        (RevokeAnswer(RevokeOutcome.AMBIGUOUS), None, True),
        (RevokeAnswer(RevokeOutcome.AMBIGUOUS, seems_done=True), NOW - 1, True),
        (RevokeAnswer(RevokeOutcome.CONFIRMED), NOW - 1, True),
    ],
)
def test_only_age_renews_without_end(answer: RevokeAnswer, until: int | None, is_doubt: bool) -> None:
    """What an answer makes necessary is counted: a provider that never means it is asked three times at most."""
    asked = renewal_after(queued(), pair(until), facts(**RENEWS), answer, NOW)

    assert asked is not None
    assert asked.is_doubt is is_doubt
    assert successor_of(queued(), asked, "r2", NOW, survived=False).doubts == int(is_doubt)


GRANT = TokenGrant(ACCESS)
DONE = RevokeAnswer(RevokeOutcome.CONFIRMED)


@pytest.mark.parametrize(
    ("answer", "answered", "expected"),
    [
        (TokenAnswer(Outcome.GRANTED, grant=GRANT), None, Renewed.SUCCESSOR),
        (TokenAnswer(Outcome.UNKNOWN, salvaged=(LooseToken("access_token", ACCESS),)), None, Renewed.SUCCESSOR),
        (TokenAnswer(Outcome.REJECTED), None, Renewed.GONE),
        (TokenAnswer(Outcome.REJECTED), DONE, Renewed.GONE),
        (TokenAnswer(Outcome.TRY_LATER, is_unexplained=True), None, Renewed.LATER),
        (TokenAnswer(Outcome.TRY_LATER, is_unexplained=True), RevokeAnswer(RevokeOutcome.AMBIGUOUS), Renewed.LATER),
        (TokenAnswer(Outcome.TRY_LATER, is_unexplained=True), DONE, Renewed.GONE),
        (TokenAnswer(Outcome.TRY_LATER), DONE, Renewed.LATER),
        (TokenAnswer(Outcome.TRY_LATER, config_fault=True), DONE, Renewed.LATER),
        (TokenAnswer(Outcome.NOT_SENT), DONE, Renewed.LATER),
        (TokenAnswer(Outcome.UNKNOWN), DONE, Renewed.UNSEEN),
    ],
)
def test_what_a_refresh_is_answered(answer: TokenAnswer, answered: RevokeAnswer | None, expected: Renewed) -> None:
    """Only the provider's verdict means gone; odd words only beside its success."""
    assert meaning_of(Renewal(REFRESH, answered, is_doubt=False), answer) is expected


def test_a_successor_has_the_same_obligation() -> None:
    """Same connection, generation, reach, account and deadline; due now; nothing of the predecessor's history."""
    before = queued(account="digest", attempts=4, claims=5, lease="l", lease_until=NOW, renewing="r2", lost=True)

    after = successor_of(before, Renewal(REFRESH, None, is_doubt=False), "r2", NOW + 5, survived=False)

    assert (after.rid, after.deadline, after.account, after.reach) == ("r2", before.deadline, "digest", before.reach)
    assert (after.next, after.attempts, after.claims, after.lease, after.renewing) == (NOW + 5, 0, 0, None, None)
    assert after.lost is None


@pytest.mark.parametrize("doubts", range(DOUBTS + 1))
@pytest.mark.parametrize("survived", [True, False])
def test_a_refresh_token_that_keeps_surviving_is_believed_dead_by_no_success(doubts: int, survived: bool) -> None:
    """At the end of the line a success is worth a removal notice and no more."""
    after = successor_of(queued(doubts=doubts), Renewal(REFRESH, DONE, is_doubt=True), "r2", NOW, survived=survived)

    assert (after.lost is True) is (survived and doubts + 1 >= DOUBTS)


@pytest.mark.parametrize("state", RevocationState)
@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("old_token", OldToken)
@pytest.mark.parametrize("lost", [True, None])
def test_a_predecessor_ends_with_its_successor(
    state: RevocationState, reach: Reach, old_token: OldToken, lost: bool | None
) -> None:
    """Confirmed only where that one is, nothing of its own is lost, and no predecessor lives on out of reach."""
    before = queued(reach=reach, lost=lost, renewed="r2")
    of = facts(rotates="yes", old_token=old_token)

    found = after_successor(before, a_revocation(state), of)

    survives = old_token in (OldToken.STAYS_VALID, OldToken.GRACE) and not reach.ends_old_tokens
    if state is RevocationState.PARKED:
        assert found is Awaited.PARK
    elif not state.is_terminal:
        assert found is Awaited.WAIT
    elif state is RevocationState.CONFIRMED and not lost and not survives:
        assert found is Awaited.CONFIRM
    else:
        assert found is Awaited.GIVE_UP


def test_a_successor_that_is_missing_confirms_nothing() -> None:
    """Nor does one whose provider is not set up any more."""
    assert after_successor(queued(renewed="r2"), None, facts()) is Awaited.GIVE_UP
    assert after_successor(queued(renewed="r2"), a_revocation(RevocationState.CONFIRMED), None) is Awaited.GIVE_UP


@pytest.mark.parametrize(
    ("reach", "how", "is_lost"),
    [
        (Reach.FAMILY, {"rotates": "no", "old_token": OldToken.UNKNOWN}, False),
        (Reach.FAMILY, {"rotates": "yes", "old_token": OldToken.STAYS_VALID}, False),
        (Reach.FAMILY, {"rotates": "yes", "old_token": OldToken.IMMEDIATE}, True),
        (Reach.FAMILY, {"rotates": "sometimes", "old_token": OldToken.GRACE}, True),
        (Reach.TOKEN, {"rotates": "no", "old_token": OldToken.UNKNOWN, "ends_pair": True}, False),
        (Reach.TOKEN, {"rotates": "no", "old_token": OldToken.UNKNOWN, "ends_pair": False}, True),
        (Reach.TOKEN, {"rotates": "yes", "old_token": OldToken.STAYS_VALID, "ends_pair": True}, True),
        (Reach.TOKEN, {"rotates": "unknown", "old_token": OldToken.UNKNOWN, "ends_pair": True}, True),
        (Reach.UNKNOWN, {"rotates": "yes", "old_token": OldToken.STAYS_VALID, "ends_pair": True}, True),
    ],
)
def test_a_refresh_that_nobody_saw_the_answer_of(reach: Reach, how: dict[str, object], is_lost: bool) -> None:
    """That a revocation ends its own pair says nothing of the pair that an unseen refresh may have given."""
    assert is_lost_unseen(reach, facts(**RENEWS | how)) is is_lost


@pytest.mark.parametrize(
    ("how", "changes", "outcome", "is_it"),
    [
        ({}, {"reach": Reach.TOKEN}, RevokeOutcome.CONFIRMED, True),
        ({}, {"reach": Reach.TOKEN}, RevokeOutcome.ALREADY_GONE, True),
        ({}, {"reach": Reach.TOKEN, "doubts": DOUBTS}, RevokeOutcome.CONFIRMED, True),
        ({}, {"reach": Reach.TOKEN, "lost": True}, RevokeOutcome.CONFIRMED, False),
        ({}, {"reach": Reach.TOKEN}, RevokeOutcome.DEFERRED, False),
        ({}, {"reach": Reach.FAMILY}, RevokeOutcome.CONFIRMED, False),
        ({"ends_pair": True}, {"reach": Reach.TOKEN}, RevokeOutcome.CONFIRMED, False),
        ({"takes": "either"}, {"reach": Reach.TOKEN}, RevokeOutcome.CONFIRMED, False),
    ],
)
def test_a_success_that_speaks_for_the_access_token_alone(
    how: dict[str, object], changes: dict[str, object], outcome: RevokeOutcome, is_it: bool
) -> None:
    """However often it was asked before, it confirms nothing: the refresh token may live on."""
    given = facts(**RENEWS | how)

    assert is_unproven(queued(**changes), pair(), given, RevokeAnswer(outcome)) is is_it
    assert not is_unproven(queued(**changes), pair()[:1], given, RevokeAnswer(outcome))
