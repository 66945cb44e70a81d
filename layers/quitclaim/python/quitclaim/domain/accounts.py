"""
The external account: how many grants live on it under a client, and whether a wide revocation may have ended one that
is on its way.
"""

from dataclasses import dataclass, replace

from quitclaim.domain.ids import ConnectionRef


@dataclass(frozen=True)
class Account:
    """Counts, not sets: the members are items of their own (custody rule 10)."""

    live: int = 0
    parked: int = 0
    killed_at: int | None = None
    killed_by: str | None = None
    killed_floor: int | None = None  # what others had raised `killed_at` to before that one
    waiting: int | None = None
    """Deliveries that are parked beside it, until a grant of it is live."""
    left_at: int | None = None
    """When a grant of it was given up here: disconnected, or its owner deleted."""
    lost_at: int | None = None
    """When its provider ended one."""
    v: int = 0

    def admits(self, exchange_started: int) -> bool:
        """
        Whether a grant of an exchange begun at that time cannot have been ended by a wide revocation (custody rule 10).
        """
        return self.killed_at is None or self.killed_at < exchange_started

    def joined(self) -> "Account":
        """One more live grant."""
        return replace(self, live=self.live + 1)

    def left(self, at: int, *, is_loss: bool) -> "Account":
        """One live grant fewer: given up here, or ended by its provider."""
        fewer = replace(self, live=self.live - 1)
        return replace(fewer, lost_at=at) if is_loss else replace(fewer, left_at=at)

    def keeping(self, more: int) -> "Account":
        """So many more (or fewer) deliveries are parked beside it; never fewer than none."""
        return replace(self, waiting=max((self.waiting or 0) + more, 0) or None)

    @property
    def is_unmet(self) -> bool:
        """Whether no grant of it was ever live here: it is only waited for."""
        return replace(self, v=0, waiting=None) == Account()

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of it any more, so that its item may go."""
        return replace(self, v=0) == Account()

    def shut_by(self, rid: str, until: int) -> "Account":
        """Claimed by a wide revocation until then; what another's claim shuts meanwhile stays shut as long."""
        floor = self.killed_floor if self.killed_by == rid else self.killed_at
        return replace(self, killed_at=max(until, self.killed_at or 0), killed_by=rid, killed_floor=floor)

    def lowered_by(self, rid: str, settled_at: int | None) -> int | None:
        """
        What `killed_at` becomes with the settle of that revocation, or None if it stays: it may be lowered, never
        raised, and never below what another's claim had raised it to, whose request may still be on its way.
        """
        lower = max(settled_at or 0, self.killed_floor or 0)
        return lower if self.killed_by == rid and lower < (self.killed_at or 0) else None


def name_of(kind: str, value: str) -> str:
    """A name that is no account's own id: a workspace's, say. No account's id has its form, so the two never meet."""
    return f"{kind}\n{value}"


@dataclass(frozen=True)
class Named:
    """A connection whose grant is of an account that goes by a further name as well: that very grant and account."""

    ref: ConnectionRef
    exchange: str
    """By which the connection got the grant: no other grant of it has the name by this."""
    generation: int
    account: str
    """Digest of the account itself."""
    at: int
    """When the grant went live."""
    v: int = 0
