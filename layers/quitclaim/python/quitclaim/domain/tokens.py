"""The live grant: when its access token may be handed out, when it is refreshed, and what a refresh's answer means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    ATTEMPTS,
    EXPIRING_MS,
    GUARD_MS,
    HARD_MARGIN_MS,
    KEEP_ALIVE_PERCENT,
    REFRESH_CALL_MIN_MS,
    REFRESH_CALL_MS,
    REFUSALS,
    SAME_END_MS,
    SAVE_MS,
    SAVED_RECENTLY_MS,
    SOFT_MARGIN_MS,
)
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret

MAIN: Final = "main"
"""The one pair of an ordinary grant. Slack has a second, `user`."""


class RefreshFacts(Protocol):
    """The facts of a provider on which the lapse of a refresh depends."""

    @property
    def may_rotate(self) -> bool:
        """Whether a refresh may end the old token."""
        ...

    @property
    def old_token_survives(self) -> bool:
        """Whether a rotated token's predecessor stays alive."""
        ...


@dataclass(frozen=True)
class TokenPair:
    """The opened tokens of one pair."""

    name: str
    access_token: Secret
    refresh_token: Secret | None
    token_type: str
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """What the provider's addresses need of this grant: its shop, its region, its user's id there."""
    account_id: str | None = field(default=None, repr=False)
    """The external account, where the provider's revocation takes that and no token."""


@dataclass(frozen=True)
class Grant:
    """A pair of the live grant as it is stored."""

    ref: ConnectionRef
    pair: str
    client: str
    generation: int
    tv: int
    family: str
    use: bytes
    revoke: bytes
    fp: str
    rid: str
    takes: str
    reach: Reach
    saved_at: int
    access_until: int | None = None
    refresh_until: int | None = None
    account: str | None = None
    keep_alive_at: int | None = None
    expiring_at: int | None = None
    suspect: int | None = None
    lease: str | None = None
    lease_until: int | None = None
    attempts: frozenset[str] = frozenset()
    saved_by: str | None = None
    retry_at: int | None = None
    refused_as: str | None = None
    refusals: int | None = None
    """How often in a row the provider refused this version in the same words, none of which is a verdict."""
    stray: bool | None = None
    doubted_at: int | None = None
    """When an event last made the provider be asked about it."""
    v: int = 0

    @property
    def next_care(self) -> int | None:
        """When somebody must look at it although nobody asks for a token; None where it keeps by itself."""
        return min((at for at in (self.keep_alive_at, self.expiring_at) if at is not None), default=None)

    @property
    def is_suspect(self) -> bool:
        """The app saw a 401 with this very version of the token, or an event casts doubt on it; nobody asked since."""
        return self.suspect == self.tv

    def left_ms(self, now: int) -> int | None:
        """How long the access token still lives; None if it does not expire."""
        return None if self.access_until is None else self.access_until - now


class Freshness(StrEnum):
    """Of a stored access token."""

    FRESH = "fresh"
    SOFT = "soft"  # whoever gets the lease refreshes it, the others still get it
    STALE = "stale"


def freshness(grant: Grant, now: int, min_ttl_ms: int) -> Freshness:
    """
    Whether the stored access token serves a caller who wants it to live at least *min_ttl_ms*.

    A suspect version (a 401 seen by the app) is stale, whatever its clock says.
    """
    left = grant.left_ms(now)
    if grant.is_suspect:
        return Freshness.STALE
    if left is None:
        return Freshness.FRESH
    hard = max(HARD_MARGIN_MS, min_ttl_ms)
    if left <= hard:
        return Freshness.STALE
    return Freshness.SOFT if left <= max(SOFT_MARGIN_MS, hard) else Freshness.FRESH


def is_saved_recently(grant: Grant, now: int) -> bool:
    """Whether a hand-out must read the owner once more after the grant: a save may have slipped behind its deletion."""
    return now - grant.saved_at < SAVED_RECENTLY_MS


def may_lease(grant: Grant, now: int) -> bool:
    """
    Whether a refresh may be recorded now: nobody's lease is live (a guard included), and fewer than two attempts are
    open.
    """
    return (grant.lease_until is None or grant.lease_until + GUARD_MS <= now) and len(grant.attempts) < ATTEMPTS


def is_told_to_wait(grant: Grant, now: int) -> bool:
    """Whether the provider wants no refresh of it yet (a Retry-After, RFC 9110 section 10.2.3)."""
    return grant.retry_at is not None and grant.retry_at > now


@dataclass(frozen=True)
class Refusal:
    """A refusal of a refresh without a verdict: in which words, and the how manieth in these."""

    words: str
    times: int

    @property
    def is_final(self) -> bool:
        """Whether it counts as the provider's verdict by now."""
        return self.times >= REFUSALS


def refused_again(grant: Grant, error_code: str | None) -> Refusal:
    """The refusal that was just given; other words than the last time begin anew."""
    words = error_code or "without a code"
    return Refusal(words, (grant.refusals or 0) + 1 if grant.refused_as == words else 1)


def call_limit_ms(now: int, lease_until: int, remaining_ms: int) -> int | None:
    """
    The refresh call's whole budget: inside the lease and the invocation, with time left to save. None: do not send.
    """
    limit = min(REFRESH_CALL_MS, lease_until - GUARD_MS - now, remaining_ms - SAVE_MS)
    return limit if limit >= REFRESH_CALL_MIN_MS else None


def has_time_for_refresh(remaining_ms: int) -> bool:
    """Whether a refresh may begin at all in what is left of this invocation."""
    return remaining_ms >= REFRESH_CALL_MIN_MS + SAVE_MS


class LapseOfAttempt(StrEnum):
    """What follows when a refresh's lease ended and no answer was seen (custody rules 3, 6)."""

    WAIT = "wait"
    KEEP = "keep"  # the old token is as good as before
    KEEP_STRAY = "keep, stray"  # so it is, but a successor may be alive that no revocation reaches
    REPLAY = "replay"  # send once more: the provider may answer with the successor
    GIVE_UP = "give up"  # twice unseen: the grant is lost, a successor may be alive


def lapse_of_attempt(grant: Grant, facts: RefreshFacts, now: int) -> LapseOfAttempt:
    """
    Decide for a grant whose refresh attempts are still recorded at *now*.

    Without a lease, a later attempt was withdrawn since: every lease that the recorded ones had is over.
    """
    if not grant.attempts or (grant.lease_until is not None and grant.lease_until + GUARD_MS > now):
        return LapseOfAttempt.WAIT
    if facts.old_token_survives:
        return LapseOfAttempt.KEEP if grant.reach.ends_old_tokens else LapseOfAttempt.KEEP_STRAY
    if not facts.may_rotate:
        return LapseOfAttempt.KEEP
    return LapseOfAttempt.REPLAY if len(grant.attempts) < ATTEMPTS else LapseOfAttempt.GIVE_UP


# --- a grant that nobody uses ----------------------------------------------------------------------------------------


def keep_alive_at(now: int, idle_limit_ms: int | None) -> int | None:
    """When a grant that was obtained or refreshed at *now* must be refreshed, so that its provider does not end it."""
    return None if idle_limit_ms is None else now + idle_limit_ms * KEEP_ALIVE_PERCENT // 100


def expiring_at(now: int, refresh_until: int | None) -> int | None:
    """When the app is told that the grant will end for good at *refresh_until*: a week before, or at 80 % if later."""
    if refresh_until is None:
        return None
    return refresh_until - min(EXPIRING_MS, (refresh_until - now) * (100 - KEEP_ALIVE_PERCENT) // 100)


def is_same_end(before: int | None, after: int | None) -> bool:
    """Whether a refresh left the grant's end where it was; answers that count it down differ by rounding only."""
    return before is not None and after is not None and after <= before + SAME_END_MS


def needs_care(grant: Grant, now: int) -> bool:
    """
    Whether a refresh is due although nobody asks for a token: before the idle limit, and once before the end, which it
    moves where the provider counts from the last refresh.
    """
    if grant.keep_alive_at is not None and grant.keep_alive_at <= now:
        return True
    return grant.expiring_at is not None and grant.saved_at < grant.expiring_at <= now
