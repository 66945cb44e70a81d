"""
Handling an accepted event: whom it reaches, whether it is delivered, kept or let go, and what the provider's word that
an account left means for the grant that is live now.

An event's meaning was frozen when it was verified; every authority is looked at again here (M-64).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import Connection, ConnectionState, Owner
from quitclaim.domain.limits import (
    AFTERMATH_MS,
    CHECK_EVERY_MS,
    CLOCK_SKEW_MS,
    COMPACT_MS,
    REMEMBERED_MS,
)
from quitclaim.domain.tokens import Grant
from quitclaim.domain.webhooks import Prepared, Trust

# --- whom it reaches -------------------------------------------------------------------------------------------------


class Standing(StrEnum):
    """Of an external account under a client, as far as we know it."""

    LIVE = "live"
    LOST = "lost"
    """Its last grant was ended by the provider, not long ago: its owner may connect again."""
    GONE = "gone"
    """It was disconnected or deleted, not long ago (D-36)."""
    UNKNOWN = "unknown"


def standing_of(account: Account | None, now: int) -> Standing:
    """
    Where an account stands at *now*. Of several owners who had a grant of it, one who lost it counts before one who
    left: somebody may wait for what comes.
    """
    if account is None:
        return Standing.UNKNOWN
    if account.live > 0:
        return Standing.LIVE
    if account.lost_at is not None and account.lost_at + REMEMBERED_MS > now:
        return Standing.LOST
    if account.left_at is not None and account.left_at + REMEMBERED_MS > now:
        return Standing.GONE
    return Standing.UNKNOWN


class Fate(StrEnum):
    """What becomes of an event."""

    DELIVER = "deliver"
    PARK = "park"
    RETRY = "retry"
    """Answered 503, so that the provider sends it again (M-72, M-77, M-78): before it is accepted only."""
    DROP_GONE = "account gone"
    DROP_UNKNOWN = "account unknown"
    DROP_NOTHING_TO_CHECK = "nothing to check"

    @property
    def drops(self) -> bool:
        """Whether it ends without any effect."""
        return self in (Fate.DROP_GONE, Fate.DROP_UNKNOWN, Fate.DROP_NOTHING_TO_CHECK)


WAITING: Final[Mapping[tuple[Standing, bool], Fate]] = {
    (Standing.LOST, False): Fate.PARK,
    (Standing.LOST, True): Fate.RETRY,
    (Standing.UNKNOWN, False): Fate.PARK,
    (Standing.UNKNOWN, True): Fate.RETRY,
    (Standing.GONE, False): Fate.DROP_GONE,
    (Standing.GONE, True): Fate.DROP_GONE,
}
"""Of an event that no live account is reached by; *True*: its provider is asked to send it again."""


def fate_of(event: Prepared, standings: Iterable[Standing], *, asks_again: bool = False) -> Fate:
    """
    What becomes of *event*, by the standing of each account that it names.

    *asks_again*: the catalogue says that this provider is to be answered 503, and the event is not accepted yet; one
    that was accepted is never asked for again. An event that names nobody reaches nobody. A hint that somebody left is
    worth nothing without a grant to check; a verified one is kept, never asked for again, because it may speak of a
    grant that is being installed.
    """
    found = frozenset(standings)
    if Standing.LIVE in found:
        return Fate.DELIVER
    if event.deauthorizes:
        if event.trust.is_hint:
            return Fate.DROP_NOTHING_TO_CHECK
        asks_again = False
    for standing in (Standing.LOST, Standing.UNKNOWN, Standing.GONE):
        if standing in found:
            return WAITING[standing, asks_again]
    return Fate.DROP_UNKNOWN


def is_reached(owner: Owner | None, connection: Connection | None, generation: int) -> bool:
    """
    Whether a connection that is a member of the account, at *generation*, still has the right to its events: ready in
    that very life, and its owner not deleted.
    """
    if owner is None or owner.is_deleted or connection is None:
        return False
    return connection.state is ConnectionState.READY and connection.generation == generation


# --- what the provider's word means for a grant ----------------------------------------------------------------------


class Verdict(StrEnum):
    """Of a deauthorization event, for one live grant."""

    STOP = "stopped"
    CHECK = "to be checked"
    """Nobody can say whether it means this grant, or whether it is true: the provider is asked."""
    OLDER = "older than the grant"


@dataclass(frozen=True)
class Life:
    """What is known of the life of a live grant, when a deauthorization event reaches it."""

    grant: Grant
    begun: int | None
    """When the exchange that it came from began; None: a day ago or longer, so that its record is gone."""
    account: Account
    replaced: bool = False
    """Whether it may have taken the place of another grant, which was revoked by us while the account stayed."""


def verdict_on(
    trust: Trust, occurred: int | None, received: int, life: Life, now: int, *, sent: int | None = None
) -> Verdict:
    """
    Whether the event speaks of this grant: a deauthorization stops the generation that it speaks of, never a newer one
    (RB-71, RB-72).

    *occurred*: when, by the provider's signed word. *sent*: when this copy was sent, signed as well; like the receipt
    it only bounds when it happened, for what a provider sends again days later it may sign anew. It is older where it
    happened before the grant's exchange began, by more than clocks may differ; where nobody knows any more when that
    was, it is never older, and counts as said of this grant from the first instant at which the grant is known to have
    been there. It is not certain, and the provider is asked, where the event is a hint; where it happened about when
    the exchange began; where it does not say when it happened, and the grant is so young that it may be the late word
    about one before; where another grant of the same account was replaced or given up so little before that the event
    may speak of that one, or be the echo of our own revocation; and where the provider has refreshed this very grant
    since.
    """
    if trust.is_hint:
        return Verdict.CHECK
    at = min(each for each in (occurred, sent, received) if each is not None)
    # Of an unknown beginning, the latest that it can have been: a record is kept for a day, and a grant that was saved
    # had begun.
    begun = min(now - COMPACT_MS, life.grant.saved_at) if life.begun is None else life.begun
    if at + CLOCK_SKEW_MS < begun and life.begun is not None:
        return Verdict.OLDER
    may_be_late = (life.replaced or occurred is None) and at < begun + AFTERMATH_MS
    if at < begun or may_be_late or _is_aftermath(life.account, at):
        return Verdict.CHECK
    if life.grant.tv > 1 and at + CLOCK_SKEW_MS < life.grant.saved_at:
        return Verdict.CHECK
    return Verdict.STOP


def _is_aftermath(account: Account, at: int) -> bool:
    """Whether a grant of this account was given up so little before *at* that an event may speak of that one."""
    ends = [end + AFTERMATH_MS for end in (account.left_at, account.lost_at) if end is not None]
    return bool(ends) and at < max(ends)


class CheckStep(StrEnum):
    """What a check that is wanted comes to now."""

    NOW = "now"
    LATER = "later"
    """It was checked so lately that another one waits."""
    DONE = "done"
    """The provider was asked, or gave fresh tokens, after the event had come."""


def check_step(grant: Grant, received: int, now: int) -> CheckStep:
    """
    Whether the provider is to be asked now: not more often than every ten minutes for one connection, and not for an
    event that came before it was asked last, so that a burst of hints costs one call and none of them is lost.
    """
    asked = grant.doubted_at
    if (asked is not None and asked >= received) or (grant.tv > 1 and grant.saved_at > received):
        return CheckStep.DONE
    return CheckStep.NOW if asked is None or asked + CHECK_EVERY_MS <= now else CheckStep.LATER
