"""
The external account: how many grants live on it under a client, and whether a wide revocation may have ended one that
is on its way.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Account:
    """Counts, not sets: the members are items of their own (custody rule 10)."""

    live: int = 0
    parked: int = 0
    killed_at: int | None = None
    killed_by: str | None = None
    v: int = 0

    def admits(self, exchange_started: int) -> bool:
        """
        Whether a grant of an exchange begun at that time cannot have been ended by a wide revocation (custody rule 10).
        """
        return self.killed_at is None or self.killed_at < exchange_started

    def joined(self) -> "Account":
        """One more live grant."""
        return replace(self, live=self.live + 1)

    def left(self) -> "Account":
        """One live grant fewer."""
        return replace(self, live=self.live - 1)

    def is_shut_beyond(self, rid: str, settled_at: int | None) -> bool:
        """
        Whether that revocation still shuts the account for longer than until it was settled: it may be lowered, never
        raised.
        """
        return self.killed_by == rid and (self.killed_at or 0) > (settled_at or 0)
