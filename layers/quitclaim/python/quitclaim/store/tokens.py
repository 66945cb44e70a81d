"""
The writes of a refresh: rows 16-21 of the table of writes (docs/table.md).

Lease and record are one single-item write, the save is another; a stop deletes the item, so the save's condition is the
fence (DESIGN 8).
"""

from dataclasses import replace

from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import ATTEMPTS, GUARD_MS, REFRESH_LEASE_MS
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.tokens import Grant
from quitclaim.ports import (
    THERE,
    AnyOf,
    Clause,
    Clock,
    Condition,
    Ids,
    Table,
    Update,
    absent,
    any_of,
    at_most,
    equals,
)
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.items import attributes
from quitclaim.store.keys import DUE, barrier_key, grant_key, intent_key, revocation_key
from quitclaim.store.reads import grant_of
from quitclaim.store.stamps import refresh_due, revocation_item


def lease_free(now: int) -> AnyOf:
    """Nobody holds the lease, or it has been over for a guard."""
    return any_of(absent("lease_until"), at_most("lease_until", now - GUARD_MS))


class TokenStore:
    """Rows 16-21."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    def record(self, grant: Grant, attempt: str, now: int) -> Grant:
        """
        Row 16. The lease is taken and the attempt is on record; only after it may the refresh be sent (I-2, D-1).

        Raises `MovedError` whose `seen["grant"]` says who holds the lease and until when, or None if the grant is gone.
        """
        until = now + REFRESH_LEASE_MS
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(grant.ref, grant.pair),
                (*_as_read(grant), lease_free(now), any_of(absent("attempts"), Clause("attempts", "size <", ATTEMPTS))),
                put={"lease": attempt, "lease_until": until, **refresh_due(grant, until + GUARD_MS)},
                include={"attempts": frozenset({attempt})},
            ),
            grant_of,
        )
        commit.run()
        return replace(grant, lease=attempt, lease_until=until, attempts=grant.attempts | {attempt}, v=grant.v + 1)

    def save(self, before: Grant, after: Grant, attempt: str, *, replaced: Revocation | None = None) -> None:
        """
        Rows 17 and 18 (class L). The fresh tokens replace the old, held to my lease and the version that I refreshed;
        time is not asked (F-42).

        *replaced*: the old token, where it survives and no revocation of the new one reaches it (custody rule 6).
        Refused: row 20, unless the grant that is there was saved by this very attempt.
        """
        stored = attributes(after)
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(before.ref, before.pair),
                (*_as_read(before), equals("lease", attempt)),
                put={name: stored[name] for name in SAVED if name in stored},
                remove=tuple(name for name in (*CLEARED, *DUE, *SAVED) if name not in stored),
            ),
            grant_of,
        )
        if replaced is not None:
            commit.create("revocation", revocation_key(replaced.rid), "revocation", revocation_item(replaced))
            barrier = Update(
                barrier_key(before.ref.of_owner, replaced.client), (), include={"owed": frozenset({replaced.rid})}
            )
            commit.upsert("barrier", "barrier", barrier)
        try:
            commit.run()
        except MovedError as moved:
            found = moved.seen.get("grant")
            if isinstance(found, Grant) and found.saved_by == attempt:
                return
            raise

    def withdraw(self, grant: Grant, attempt: str, retry_at: int | None) -> None:
        """Row 19. The attempt provably did nothing at the provider: it leaves the record, and the lease is free."""
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(grant.ref, grant.pair),
                (equals("lease", attempt),),
                put={} if retry_at is None else {"retry_at": retry_at},
                remove=("lease", "lease_until", *DUE),
                exclude={"attempts": frozenset({attempt})},
            ),
            grant_of,
        )
        commit.run()

    def queue_orphan(
        self,
        grant: Grant,
        attempt: str,
        orphan: Revocation,
        *,
        found: Grant | None,
        stopped: Revocation | None,
        intent_generation: int | None,
    ) -> None:
        """
        Row 20 (class L). A fresh token whose save was refused is due for revocation; its attempt leaves the set that
        expects it.

        *found*: the grant that is there at the same generation; else *stopped*, the revocation that the stop made of
        it.
        """
        ref = grant.ref
        commit = self._commit()
        commit.create("revocation", revocation_key(orphan.rid), "revocation", revocation_item(orphan))
        barrier = Update(barrier_key(ref.of_owner, orphan.client), (), include={"owed": frozenset({orphan.rid})})
        commit.upsert("barrier", "barrier", barrier)
        mine = {"attempts": frozenset({attempt})}
        if found is not None and found.generation == grant.generation:
            remove = ("lease", "lease_until", *DUE) if found.lease == attempt else ()
            key = grant_key(ref, grant.pair)
            commit.update(
                "grant", Update(key, (equals("generation", grant.generation),), remove=remove, exclude=mine), grant_of
            )
        elif stopped is not None and not stopped.state.is_terminal:
            when: Condition = (equals("state", stopped.state),)
            commit.update(
                "stopped", Update(revocation_key(stopped.rid), when, exclude={"expected": frozenset({attempt})})
            )
        if intent_generation is not None:
            rids = frozenset({orphan.rid})
            commit.update("intent", Update(intent_key(ref, intent_generation), THERE, include={"rids": rids}))
        commit.run()

    def forget_attempts(self, grant: Grant, now: int, *, stray: bool) -> None:
        """
        Row 21, keep. The old token is as good as before; *stray*: a successor may be alive that no revocation reaches.
        """
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(grant.ref, grant.pair),
                (equals("v", grant.v), at_most("lease_until", now - GUARD_MS)),
                put={"stray": True} if stray else {},
                remove=("attempts", "lease", "lease_until", *DUE),
            ),
            grant_of,
        )
        commit.run()


SAVED = (
    "tv",
    "use",
    "revoke",
    "fp",
    "takes",
    "access_until",
    "refresh_until",
    "saved_by",
    "saved_at",
    "stray",
)
CLEARED = ("lease", "lease_until", "attempts", "suspect", "retry_at")


def _as_read(grant: Grant) -> Condition:
    return (equals("generation", grant.generation), equals("tv", grant.tv))
