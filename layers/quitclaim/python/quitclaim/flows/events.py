"""
The outbox, on its way to the app: every event that a transition wrote reaches the bus at least once, with the same id
however often.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quitclaim.domain.events import Event
from quitclaim.domain.limits import NOTICES, PUBLISH_MS, SECOND, SHARDS
from quitclaim.ports import (
    Clock,
    Cursor,
    Deadline,
    EventBus,
    Item,
    Key,
    Notice,
    WriteAmbiguousError,
    WriteBusyError,
    WriteRefusedError,
)

if TYPE_CHECKING:
    from quitclaim.store.events import EventStore
    from quitclaim.store.reconcile import ReconcileStore

PAGE: Final = 100
HARMLESS: Final = (WriteRefusedError, WriteBusyError, WriteAmbiguousError)
"""Of a mark: somebody else published it, or it stays due and is sent again with the same id."""
LAST_CALL_MS: Final = 8 * SECOND
"""No call of the bus begins with less of the invocation left."""


@dataclass(frozen=True)
class Publishing:
    """What publishing needs of the world."""

    store: "EventStore"
    bus: EventBus
    clock: Clock
    on_fault: Callable[[str, Exception], None]
    """Told of an event that cannot be read, or marked: it stays due."""


@dataclass
class Published:
    """
    What came of it: how many the bus has; where those lie that it has not; and how many stay due for another reason.
    """

    done: int = 0
    left: tuple[Key, ...] = ()
    unfit: int = 0

    def add(self, other: "Published") -> None:
        """And what came of more."""
        self.done += other.done
        self.left += other.left
        self.unfit += other.unfit


def publish(keys: Sequence[Key], deadline: Deadline, world: Publishing) -> Published:
    """
    Put those events on the bus that are under *keys* (100 at most) and were not published yet, in that order.

    1. The bus is asked, ten at a time; it answers for each. Crash or no answer: they stay due, and are sent again.
    2. `published` ends their being due (row 50). Crash or refused before it: sent again, with the same id.
    """
    run = Published()
    found = _read(world.store.unpublished(keys), world, run)
    for start in range(0, len(found), NOTICES):
        part = found[start : start + NOTICES]
        if deadline.remaining_ms() < LAST_CALL_MS:
            run.left += tuple(key for key, _ in found[start:])
            break
        taken = world.bus.send([Notice(event.kind.value, event.at, event.detail) for _, event in part])
        run.left += tuple(key for (key, _), is_taken in zip(part, taken, strict=True) if not is_taken)
        sent = [event for (_, event), is_taken in zip(part, taken, strict=True) if is_taken]
        run.done += len(sent)
        for error in world.store.published(sent, world.clock.now()) if sent else ():
            if error is not None and not isinstance(error, HARMLESS):
                run.unfit += 1
                world.on_fault("publish", error)
    return run


def _read(items: Sequence[Item], world: Publishing, run: Published) -> list[tuple[Key, Event]]:
    found = []
    for item in items:
        try:
            found.append((Key(item["PK"], item["SK"]), world.store.as_event(item)))
        except Exception as fault:  # noqa: BLE001 - one that cannot be read keeps none of the others back (I-16); it stays due
            run.unfit += 1
            world.on_fault("publish", fault)
    return found


def publish_left(deadline: Deadline, due: "ReconcileStore", world: Publishing) -> Published:
    """
    Publish what the stream did not, once it had its time. Ends where the bus takes nothing at all: the next run asks
    again.
    """
    run = Published()
    for shard in range(SHARDS):
        after: Cursor | None = None
        while deadline.remaining_ms() >= LAST_CALL_MS:
            keys, after = due.due_keys("publish", shard, world.clock.now() - PUBLISH_MS, PAGE, after)
            part = publish(keys, deadline, world)
            run.add(part)
            if part.left and not part.done:
                return run
            if after is None:
                break
    return run
