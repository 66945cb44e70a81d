"""
The writes of a refresh and of a report: rows 16-22, 52, 53 and 77 of the table of writes (docs/table.md).

Lease and record are one single-item write, the save is another; a stop deletes the item, so the save's condition is the
fence.
"""

from contextlib import suppress
from dataclasses import replace

from quitclaim.domain.errors import MovedError
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.limits import ATTEMPTS, CHECK_EVERY_MS, GUARD_MS, REFRESH_LEASE_MS
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.tokens import Grant, Refusal
from quitclaim.ports import (
    THERE,
    AnyOf,
    Clause,
    Clock,
    Condition,
    Ids,
    Item,
    Table,
    Update,
    absent,
    any_of,
    at_most,
    equals,
)
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.connect import add_event
from quitclaim.store.items import attributes
from quitclaim.store.keys import DUE, barrier_key, grant_key, intent_key, revocation_key
from quitclaim.store.reads import grant_of
from quitclaim.store.stamps import care_due, refresh_due, revocation_item


def lease_free(now: int) -> AnyOf:
    """Nobody holds the lease, or it has been over for a guard."""
    return any_of(absent("lease_until"), at_most("lease_until", now - GUARD_MS))


class TokenStore:
    """Rows 16-22, 52, 53, 77."""

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
        stored, care = attributes(after), care_due(after)
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(before.ref, before.pair),
                (*_as_read(before), equals("lease", attempt)),
                put={name: stored[name] for name in SAVED if name in stored} | care,
                remove=tuple(name for name in (*CLEARED, *DUE, *SAVED) if name not in stored and name not in care),
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

    def withdraw(self, grant: Grant, attempt: str, retry_at: int | None, refusal: Refusal | None = None) -> None:
        """
        Row 19. The attempt provably did nothing at the provider: it leaves the record, and the lease is free. A
        *refusal* without a verdict is counted (RB-16).

        An earlier attempt whose answer nobody saw stays on record, and so it stays due (row 21).
        """
        if grant.attempts - {attempt}:
            rest = refresh_due(grant, max(retry_at or 0, (grant.lease_until or 0) + GUARD_MS))
        else:
            rest = care_due(grant)
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(grant.ref, grant.pair),
                (equals("lease", attempt), equals("v", grant.v)),
                put=rest
                | ({} if retry_at is None else {"retry_at": retry_at})
                | ({} if refusal is None else {"refused_as": refusal.words, "refusals": refusal.times}),
                remove=("lease", "lease_until", *_unless(rest)),
                exclude={"attempts": frozenset({attempt})},
            ),
            grant_of,
        )
        commit.run()

    def queue_orphan(
        self,
        grant: Grant,
        attempt: str,
        orphan: Revocation | None,
        *,
        found: Grant | None,
        stopped: Revocation | None,
        intent_generation: int | None,
    ) -> None:
        """
        Row 20 (class L). A fresh token whose save was refused is due for revocation; its attempt leaves the set that
        expects it.

        *found*: the grant that is there at the same generation; else *stopped*, the revocation that the stop made of
        it. Without an *orphan* (the provider gave the same token again) the attempt leaves its set, and that is all.
        """
        ref = grant.ref
        commit = self._commit()
        if orphan is not None:
            commit.create("revocation", revocation_key(orphan.rid), "revocation", revocation_item(orphan))
            barrier = Update(barrier_key(ref.of_owner, orphan.client), (), include={"owed": frozenset({orphan.rid})})
            commit.upsert("barrier", "barrier", barrier)
        if found is not None and found.generation == grant.generation:
            if orphan is not None or attempt in found.attempts:
                commit.update("grant", _accounted_for(found, attempt), grant_of)
        elif (
            stopped is not None
            and not stopped.state.is_terminal
            and (orphan is not None or attempt in stopped.expected)
        ):
            when: Condition = (equals("state", stopped.state),)
            commit.update(
                "stopped", Update(revocation_key(stopped.rid), when, exclude={"expected": frozenset({attempt})})
            )
        if orphan is not None and intent_generation is not None:
            rids = frozenset({orphan.rid})
            commit.update("intent", Update(intent_key(ref, intent_generation), THERE, include={"rids": rids}))
        if commit.has_writes:
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
                (equals("v", grant.v), lease_free(now)),
                put=care_due(grant) | ({"stray": True} if stray else {}),
                remove=("attempts", "lease", "lease_until", *_unless(care_due(grant))),
            ),
            grant_of,
        )
        commit.run()

    # --- reported, and looked after ---

    def report(self, grant: Grant) -> None:
        """Row 22. The app saw a 401 with this very version: the next hand-out asks the provider."""
        self._mark(grant, (), put={"suspect": grant.tv})

    def doubt(self, grant: Grant, now: int) -> None:
        """
        Row 77. An event casts doubt on it: the next hand-out asks the provider, as after a report. Not more often than
        every ten minutes: raises `MovedError` where it was doubted since, or moved.
        """
        asked_before = any_of(absent("doubted_at"), at_most("doubted_at", now - CHECK_EVERY_MS))
        commit = self._commit()
        update = Update(
            grant_key(grant.ref, grant.pair),
            (*_as_read(grant), asked_before),
            put={"suspect": grant.tv, "doubted_at": now},
        )
        commit.update("grant", update, grant_of)
        commit.run()

    def found_good(self, grant: Grant) -> None:
        """
        Row 22, its counterpart where nothing can be refreshed. The provider takes the token after all; whatever moved
        meanwhile makes it a no-op.
        """
        with suppress(MovedError):
            self._mark(grant, (equals("suspect", grant.tv),), remove=("suspect",))

    def keep_by_itself(self, grant: Grant) -> None:
        """Row 52. There is nothing to refresh it with, so no idle limit can be kept: it is due for that no more."""
        rest = care_due(replace(grant, keep_alive_at=None))
        with suppress(MovedError):
            self._mark(
                grant, (equals("v", grant.v), absent("attempts")), put=rest, remove=("keep_alive_at", *_unless(rest))
            )

    def tell_expiring(self, grant: Grant, now: int) -> None:
        """Row 53. The app is told, once, that the grant ends at a time that no refresh moves."""
        rest = care_due(replace(grant, expiring_at=None))
        commit = self._commit()
        commit.update(
            "grant",
            Update(
                grant_key(grant.ref, grant.pair),
                (equals("v", grant.v), absent("attempts"), equals("expiring_at", grant.expiring_at)),
                put=rest,
                remove=("expiring_at", *_unless(rest)),
            ),
            grant_of,
        )
        transition = f"{grant.ref.connection}#{grant.generation}#{grant.refresh_until}"
        body = {"generation": grant.generation, "expires_at": grant.refresh_until}
        add_event(commit, Event(EventKind.CONNECTION_EXPIRING, grant.ref, transition, now, body))
        commit.run()

    def _mark(self, grant: Grant, more: Condition, *, put: Item | None = None, remove: tuple[str, ...] = ()) -> None:
        commit = self._commit()
        # Held to not being its own repetition: nothing else in it would notice.
        when = (*_as_read(grant), *more, Clause("op", "<>", commit.op))
        commit.update("grant", Update(grant_key(grant.ref, grant.pair), when, put=put or {}, remove=remove), grant_of)
        commit.run()


SAVED = (
    "tv",
    "use",
    "revoke",
    "fp",
    "takes",
    "access_until",
    "refresh_until",
    "keep_alive_at",
    "expiring_at",
    "saved_by",
    "saved_at",
    "stray",
)
CLEARED = ("lease", "lease_until", "attempts", "suspect", "retry_at", "refused_as", "refusals")


def _accounted_for(found: Grant, attempt: str) -> Update:
    """
    The attempt leaves the record, with its lease if that is still its own; the last one takes the due time along.

    Whose lease it was is held to, never the version: a report or a restart beside it refuses nothing (class L).
    """
    is_held = absent("lease") if found.lease is None else equals("lease", found.lease)
    when: Condition = (equals("generation", found.generation), is_held)
    rest: Item = {}
    remove: tuple[str, ...] = ()
    if found.lease in (attempt, None):
        remove = ("lease", "lease_until")
        if not found.attempts - {attempt}:
            rest = care_due(found)
            remove = (*remove, *_unless(rest))
    exclude = {"attempts": frozenset({attempt})}
    return Update(grant_key(found.ref, found.pair), when, put=rest, remove=remove, exclude=exclude)


def _unless(rest: Item) -> tuple[str, ...]:
    """The index attributes to remove, if the item is not due for something else."""
    return () if rest else DUE


def _as_read(grant: Grant) -> Condition:
    return (equals("generation", grant.generation), equals("tv", grant.tv))
