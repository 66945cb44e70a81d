"""
When a queued token is refreshed: to have a living access token where the provider's revocation takes no other, and to
learn what an answer means that by itself proves nothing.

Such a refresh is one like any other (custody rules 3-5): on record before it is sent, and what it gives lies in the
queue, as an item of its own, before it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.limits import DOUBTS, MINUTE
from quitclaim.domain.outcomes import Outcome, RevokeAnswer, RevokeOutcome, TokenAnswer
from quitclaim.domain.revocations import Material, Reach, Revocation, RevocationState, by_pair
from quitclaim.domain.secret import Secret

ALIVE_MS: Final = MINUTE
"""
How long an access token must be good for when it is sent to be revoked: by clocks that differ, one that has just
expired is refused like a dead one.
"""
DONE: Final = frozenset({RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE})


@dataclass(frozen=True)
class Renewal:
    """Why a queued token is refreshed, and with which token."""

    refresh_token: Secret
    answered: RevokeAnswer | None  # what the revocation was answered before; None: nothing was sent
    is_doubt: bool  # the answer is the reason, and not the access token's age
    pair: str = ""  # whose refresh token it is, where the item holds several pairs


def renewal_before(revocation: Revocation, materials: Sequence[Material], facts: ProviderFacts, now: int) -> bool:
    """
    Whether a refresh must come before any revocation: an access token is taken, and of some pair none is alive for
    `ALIVE_MS` yet.
    """
    if not facts.renews_in_queue or revocation.doubts >= DOUBTS:
        return False
    return any(_is_old(pair, now) for pair in _refreshable(materials))


def renewal_after(
    revocation: Revocation, materials: Sequence[Material], facts: ProviderFacts, answer: RevokeAnswer, now: int
) -> Renewal | None:
    """
    The refresh that tells what *answer* means; None where it says enough, or nothing can be asked.

    A success speaks for the refresh token beside the access token only where the call reaches it; else the provider is
    asked whether it still takes that. An answer that is given for a dead and for an expired token alike is settled by
    the same question.
    """
    asked = _refreshable(materials)
    if not asked or not facts.refreshable or revocation.doubts >= DOUBTS:
        return None
    is_open = is_unproven(revocation, materials, facts, answer)
    if answer.outcome is not RevokeOutcome.AMBIGUOUS and not is_open:
        return None
    if answer.outcome is RevokeOutcome.AMBIGUOUS and len(asked) < len(by_pair(materials)):
        return None  # it may be owed to a pair that nobody can be asked about
    return _renewal_of(asked[0], answer, now, is_open=is_open or answer.seems_done)


def is_unproven(
    revocation: Revocation, materials: Sequence[Material], facts: ProviderFacts, answer: RevokeAnswer
) -> bool:
    """
    Whether *answer* is a success that speaks for the access token alone, and nothing is known of the refresh token
    beside it. Never `confirmed`, whether or not somebody can still ask.
    """
    has_refresh = facts.refreshable and _of_kind(materials, "refresh_token") is not None
    is_alone = has_refresh and not reaches_refresh_token(revocation.reach, facts)
    return answer.outcome in DONE and is_alone and not revocation.lost


def reaches_refresh_token(reach: Reach, facts: ProviderFacts) -> bool:
    """Whether a revocation ends the refresh token too, and not the access token beside it alone."""
    return facts.takes != "access" or reach.ends_old_tokens or facts.ends_pair


def first_renewal(materials: Sequence[Material], now: int) -> Renewal:
    """
    The refresh before any revocation. What has not expired yet is a doubt: tokens that never live longer would be
    renewed without end.
    """
    pairs = _refreshable(materials)
    return _renewal_of(next((pair for pair in pairs if _is_old(pair, now)), pairs[0]), None, now, is_open=False)


def _renewal_of(pair: Sequence[Material], answer: RevokeAnswer | None, now: int, *, is_open: bool) -> Renewal:
    access, refresh = _of_kind(pair, "access_token"), _of_kind(pair, "refresh_token")
    assert refresh is not None  # noqa: S101 - of `_refreshable`
    if answer is None:
        is_doubt = access is not None and (access.until or now) > now
    else:
        has_expired = access is not None and access.until is not None and access.until <= now
        is_doubt = is_open or not has_expired
    return Renewal(refresh.token, answer, is_doubt, refresh.pair)


def _refreshable(materials: Sequence[Material]) -> list[tuple[Material, ...]]:
    """The pairs that hold a refresh token. One after the other is asked about: an item waits for one successor."""
    return [pair for pair in by_pair(materials).values() if _of_kind(pair, "refresh_token") is not None]


def _is_old(pair: Sequence[Material], now: int) -> bool:
    access = _of_kind(pair, "access_token")
    return access is None or (access.until is not None and access.until <= now + ALIVE_MS)


def _of_kind(materials: Sequence[Material], kind: str) -> Material | None:
    return next((each for each in materials if each.kind == kind), None)


class Renewed(StrEnum):
    """What a renewal's answer makes of the item."""

    GONE = "gone"  # the provider takes the refresh token no more
    SUCCESSOR = "successor"  # it gave tokens: they are queued
    LATER = "later"  # nothing was done
    UNSEEN = "unseen"  # something may have been given


def meaning_of(renewal: Renewal, answer: TokenAnswer) -> Renewed:
    """
    The provider's verdict on the refresh token is one on the grant.

    A refusal in words that are no known verdict is one only beside the revocation's own success (RB-16): then two
    answers say the same.
    """
    if answer.grant is not None or answer.salvaged:
        return Renewed.SUCCESSOR
    was_done = renewal.answered is not None and renewal.answered.outcome in DONE
    if answer.outcome is Outcome.REJECTED or (answer.is_unexplained and was_done):
        return Renewed.GONE
    return Renewed.UNSEEN if answer.outcome is Outcome.UNKNOWN else Renewed.LATER


def successor_of(revocation: Revocation, renewal: Renewal, rid: str, now: int, *, survived: bool) -> Revocation:
    """
    The item for what a renewal gave, without its material: the same obligation, so with the same deadline.

    *survived*: the refresh token outlived a revocation that counted as done, or none reaches it. Once nobody asks any
    more, the next success will be worth no more, so it can end in a removal notice only.
    """
    doubts = revocation.doubts + (1 if renewal.is_doubt else 0)
    return replace(
        revocation,
        rid=rid,
        state=RevocationState.PENDING,
        queued=now,
        next=now,
        identity=None,
        exchange=None,
        saved_by=frozenset(),
        attempts=0,
        claims=0,
        excused=0,
        lease=None,
        lease_until=None,
        expected=frozenset(),
        expected_until=None,
        lost=True if survived and doubts >= DOUBTS else None,
        quarantined=None,
        renewing=None,
        renewed=None,
        doubts=doubts,
        v=0,
    )


def rest_of(revocation: Revocation, renewal: Renewal, rid: str, now: int) -> Revocation:
    """
    The item for the pairs beside one that the provider was just said to have ended, without their material: the same
    obligation, and nothing new is in doubt.
    """
    return replace(successor_of(revocation, renewal, rid, now, survived=False), doubts=revocation.doubts)


def is_lost_unseen(reach: Reach, facts: ProviderFacts) -> bool:
    """
    Whether a refresh whose answer nobody saw may have left a token that no revocation of the old one reaches.

    Not where the refresh token stays the same, nor where the old one lives on and its revocation ends everything that
    came of it: that it ends its own pair says nothing of the next one.
    """
    if reach.ends_old_tokens:
        return facts.may_rotate
    return facts.rotates != "no" or not facts.ends_pair


class Awaited(StrEnum):
    """What an item that handed over to a successor does next."""

    WAIT = "wait"
    PARK = "park"  # with its successor, while something lives in their reach
    CONFIRM = "confirm"
    GIVE_UP = "give up"  # it ends in a removal notice


def after_successor(revocation: Revocation, successor: Revocation | None, facts: ProviderFacts | None) -> Awaited:
    """
    Decide by the item that holds what this one's refresh gave.

    Its confirmation speaks for this one where the provider's call reaches back to it, or the rotation ended this one's
    tokens; where a predecessor is known to live on, it does not (custody rule 6).
    """
    if successor is None:
        return Awaited.GIVE_UP  # a corruption: told of as any missing item is
    if not successor.state.is_terminal:
        return Awaited.PARK if successor.state is RevocationState.PARKED else Awaited.WAIT
    survives = facts is None or (facts.old_token_survives and not revocation.reach.ends_old_tokens)
    is_clear = not revocation.lost and not survives
    return Awaited.CONFIRM if successor.state is RevocationState.CONFIRMED and is_clear else Awaited.GIVE_UP
