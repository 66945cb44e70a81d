"""The outbox: row 50 of the table of writes (docs/table.md), and what is not published yet."""

from collections.abc import Sequence

from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.limits import BATCH, EVENT_TTL_MS
from quitclaim.ports import Ids, Item, Key, Table, Update, present
from quitclaim.store.items import key_of
from quitclaim.store.keys import DUE, event_key

ABOUT = frozenset({"tenant", "owner", "connection_id"})
"""Of a stored body: whose event it is."""


def event_of(item: Item) -> Event:
    """An event. Raises what its attributes make it raise: whoever reads many goes on with the others."""
    _, tenant, owner = key_of(item).pk.split("#")
    about, body = item["body"], {name: value for name, value in item["body"].items() if name not in ABOUT}
    is_owners = "connection_id" not in about
    ref = OwnerRef(tenant, owner) if is_owners else ConnectionRef(tenant, owner, about["connection_id"])
    return Event(EventKind(item["kind"]), ref, item["transition"], item["at"], body, item.get("published"))


class EventStore:
    """Row 50."""

    def __init__(self, table: Table, ids: Ids) -> None:
        self._table = table
        self._ids = ids

    def unpublished(self, keys: Sequence[Key]) -> list[Item]:
        """Those events under *keys* that nobody has published, consistently; up to 100 keys."""
        found = self._table.batch_get(keys) if keys else []
        return [item for item in found if item is not None and "published" not in item]

    def as_event(self, item: Item) -> Event:
        """The event that an item stores."""
        return event_of(item)

    def published(self, events: Sequence[Event], now: int) -> list[Exception | None]:
        """
        Row 50, each on its own. The bus has the events: they are due no more, and go some time later. Per event None,
        or why it stays due: it is published again then, with the same id.
        """
        op = self._ids.new_id()
        updates = [
            Update(
                event_key(event),
                (present("d1"),),  # it is due: nobody has published it
                put={"published": now, "ttl": (now + EVENT_TTL_MS) // 1000, "op": op},
                remove=DUE,
                increase={"v": 1},
            )
            for event in events
        ]
        parts = [updates[start : start + BATCH] for start in range(0, len(updates), BATCH)]
        return [error for part in parts for error in self._table.batch_update(part)]
