"""
Deleting an owner: the fence first, then one stop for each connection, as often as it takes.

The fence is one write and needs nothing else; the stops are carried out by reconciliation, which finds the owner due
until every connection is stopped. No provider is called and no key is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from quitclaim.domain.connect import Connection, Owner
from quitclaim.domain.deletion import DeletionStep, deletion_step
from quitclaim.domain.errors import MovedError, StoreError
from quitclaim.domain.ids import OwnerRef
from quitclaim.domain.limits import DELETION_SHARE, SECOND
from quitclaim.flows.stop import Stopping, stop_for_deletion
from quitclaim.ports import Deadline

if TYPE_CHECKING:
    from quitclaim.store.reads import Reads
    from quitclaim.store.reconcile import ReconcileStore

TRIES: Final = 20
LAST_STOP_MS: Final = 8 * SECOND
"""No further stop with less of the invocation left."""
KICKED_AT_ONCE: Final = 100
"""As many ids as one kick may carry."""


def delete_owner(ref: OwnerRef, world: Stopping) -> Owner:
    """
    Delete an owner for good, whether anything is known of it or not (F-27).

    1. `delete_owner`: one write. From its commit on nothing of it begins, installs or is handed out. Crash before it:
       nothing happened, repeat. After it: the stops are due by themselves.

    Repeating it changes nothing and answers the same.
    """
    for _ in range(TRIES):
        before = world.reads.owner(ref)
        if before is not None and before.is_deleted:
            return before
        now = world.clock.now()
        try:
            world.store.delete_owner(ref, before, now)
        except MovedError:
            continue
        return replace(before or Owner(), deleted_at=now)
    raise StoreError


@dataclass
class _Gathered:
    """`ports.Kick` that remembers: one kick for many stops."""

    rids: list[str] = field(default_factory=list)

    def revoke_now(self, rids: Sequence[str]) -> None:
        self.rids.extend(rids)


def carry_out_deletion(
    ref: OwnerRef, owner: Owner, deadline: Deadline, world: Stopping, reconciling: "ReconcileStore"
) -> bool:
    """
    Stop every connection of a deleted owner; True once all are, and only then does the owner stop being due.

    1. `stop_for_deletion`, one transaction a connection (row 26). Crash or out of time after some: the next run reads
       all of them again and goes on with what is left.
    2. `deletion_done`, once a full pass finds none to stop (row 27). Crash before it: the next run's pass says so.

    Nothing can be added behind the fence, since every start and every install checks it; so a pass that finds none to
    stop is the end. Takes a share of the time that is left, so that one large owner does not keep the others waiting
    (I-16).
    """
    gathered = _Gathered()
    stopping = replace(world, kick=gathered)
    failed: Exception | None = None
    stop_before = max(deadline.remaining_ms() - deadline.remaining_ms() // DELETION_SHARE, LAST_STOP_MS)
    try:
        for connection in _left(ref, world.reads):
            if deadline.remaining_ms() < stop_before:
                return False
            try:
                if isinstance(connection, Exception):
                    raise connection
                _stop(connection, stopping, reconciling)
            except Exception as fault:  # noqa: BLE001 - one that cannot be stopped keeps no other alive (I-16)
                failed = fault
        if failed is not None:
            raise failed
        if _left(ref, world.reads):
            return False
        world.store.deletion_done(ref, owner, world.clock.now())
    finally:
        for start in range(0, len(gathered.rids), KICKED_AT_ONCE):
            world.kick.revoke_now(gathered.rids[start : start + KICKED_AT_ONCE])
    return True


def _left(ref: OwnerRef, reads: "Reads") -> list[Connection | Exception]:
    """The connections that are not stopped yet, by a consistent query of all; in place of an unreadable one, why."""
    found = reads.each_connection(ref)
    return [each for each in found if isinstance(each, Exception) or deletion_step(each) is not DeletionStep.LEAVE]


def _stop(connection: Connection, stopping: Stopping, reconciling: "ReconcileStore") -> None:
    if deletion_step(connection) is DeletionStep.REQUEST:
        now = stopping.clock.now()
        reconciling.move(connection, replace(connection, requested=now), now)
    else:
        stop_for_deletion(connection, stopping)
