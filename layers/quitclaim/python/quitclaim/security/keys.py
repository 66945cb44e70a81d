"""
The key ring: data keys by purpose, wrapped by KMS, opened once per function instance.

A function instance is given the purposes it may use; the KMS key's policy holds it to them (encryption context), and
asking for another purpose here is a mistake of ours. Keys are found again by time: whoever needs the key that was
current at an instant gets the same one in every instance, because a new key becomes active only `LEAD_MS` after it was
put into the ring, and no instance relies on a list that is older than half of that.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from quitclaim.domain.errors import KeyUnavailableError, StoreError
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.limits import KEY_LEAD_MS

AUTHORIZATION: Final = "authorization"
USE: Final = "use"
REVOKE: Final = "revoke"
CONFIRM: Final = "confirm"
INDEX: Final = "index"
INBOX: Final = "inbox"
PURPOSES: Final = frozenset({AUTHORIZATION, USE, REVOKE, CONFIRM, INDEX, INBOX})

DATA_KEY_BYTES: Final = 32
FIRST_KID: Final = "1"
"""The first key of a purpose has a known id, so that of two instances that make one at once a single put wins."""

LEAD_MS: Final = KEY_LEAD_MS
"""How long before its `active_from` a further key is in the ring (row 51)."""
FRESH_MS: Final = LEAD_MS // 2
READY_MS: Final = 120_000
"""`ready` promises this much time in which sealing needs neither the table nor KMS."""


class PurposeNotGrantedError(Exception):
    """This function asked for a key purpose that its wiring does not give it: a programming error."""


class RingStore(Protocol):
    """Where the ring is kept."""

    def read(self, purpose: str) -> list[RingItem]:
        """Every item of *purpose*, by a consistent read."""
        ...

    def add(self, item: RingItem) -> bool:
        """Put *item* if its kid is not there yet; whether it was put."""
        ...


class KeyWrapper(Protocol):
    """KMS, as far as the ring needs it. Raises `KeyUnavailableError`."""

    def generate_data_key(self, purpose: str) -> tuple[bytes, bytes]:
        """A fresh data key: plain, and wrapped for *purpose*."""
        ...

    def decrypt(self, wrapped: bytes, purpose: str) -> bytes:
        """The data key that was wrapped for *purpose*."""
        ...


@dataclass
class _Known:
    """What this instance knows of one purpose's part of the ring: complete for every instant before *until*."""

    items: dict[str, RingItem]
    until: int


class KeyRing:
    """
    The ring as one function instance sees it.

    Every method raises `KeyUnavailableError` where KMS does not open a key, lets the store's errors through where the
    table is needed and does not answer, and raises `PurposeNotGrantedError` for a purpose that was not granted.
    """

    def __init__(self, table: RingStore, kms: KeyWrapper, ring_key_arn: str, purposes: Collection[str]) -> None:
        unknown = set(purposes) - PURPOSES
        if unknown:
            raise ValueError(f"no such key purpose: {sorted(unknown)}")
        self._table = table
        self._kms = kms
        self._ring_key_arn = ring_key_arn
        self._purposes = frozenset(purposes)
        self._known: dict[str, _Known] = {}
        self._opened: dict[tuple[str, str], bytes] = {}
        self._lock = threading.RLock()

    def current(self, purpose: str, now: int) -> tuple[str, bytes]:
        """Kid and key that seal at *now*; made if the purpose has none yet. A retired key no longer seals."""
        with self._lock:
            item = self._sealing_item(purpose, now)
            return item.kid, self._open(item)

    def key_active_at(self, purpose: str, at_ms: int) -> bytes:
        """
        The key of *purpose* that was current at *at_ms*, the same in every instance and for ever: for what must be
        derived again instead of stored. Before the first key's time it is the first key.
        """
        with self._lock:
            return self._open(_active(self._items(purpose, at_ms).values(), at_ms))

    def get(self, purpose: str, kid: str) -> bytes:
        """The key that sealed something. Unknown here: the ring is read once more before that is believed."""
        with self._lock:
            self._must_be_granted(purpose)
            known = self._known.get(purpose)
            if known is None or kid not in known.items:
                known = self._read(purpose, 0)
            item = known.items.get(kid)
            if item is None:
                raise KeyUnavailableError(f"the ring has no key {kid!r} of purpose {purpose}")
            return self._open(item)

    def ready(self, purpose: str, now: int) -> None:
        """Open what `current` and `key_active_at` will need for the next two minutes, so that neither fails in them."""
        with self._lock:
            known = self._known.get(purpose)
            if known is not None and now + READY_MS >= known.until:
                self._read(purpose, now)
            for instant in (now, now + READY_MS):
                self._open(self._sealing_item(purpose, instant))
                self._open(_active(self._items(purpose, instant).values(), instant))

    # --- the ring's items, most recent knowledge first ---

    def _sealing_item(self, purpose: str, now: int) -> RingItem:
        items = self._items(purpose, now).values()
        return _active([item for item in items if item.retired is None] or items, now)

    def _items(self, purpose: str, at: int) -> dict[str, RingItem]:
        """The items of *purpose*, complete for *at* and at least one: the first is made by whoever first needs it."""
        self._must_be_granted(purpose)
        known = self._known.get(purpose)
        if known is None:
            known = self._read(purpose, at)
        elif at >= known.until:
            try:
                known = self._read(purpose, at)
            except StoreError:
                if at >= known.until + FRESH_MS:  # a key unknown here may be active by then
                    raise
        if not known.items:
            self._make_first(purpose, at)
            known = self._read(purpose, at)
        if not known.items:
            raise KeyUnavailableError(f"the ring has no key of purpose {purpose}")
        return known.items

    def _read(self, purpose: str, at: int) -> _Known:
        # The read happens at *at* or later, so whatever it does not show becomes active no sooner than at + LEAD_MS.
        items = {item.kid: item for item in self._table.read(purpose)}
        before = self._known.get(purpose)
        known = _Known(items, max(at + FRESH_MS, before.until if before else 0))
        self._known[purpose] = known
        return known

    def _make_first(self, purpose: str, at: int) -> None:
        plain, wrapped = self._kms.generate_data_key(purpose)
        item = RingItem(purpose, FIRST_KID, wrapped, created=at, active_from=at)
        if self._table.add(item):
            self._opened[purpose, FIRST_KID] = self._checked(item, plain)

    def _open(self, item: RingItem) -> bytes:
        key = self._opened.get((item.purpose, item.kid))
        if key is None:
            key = self._checked(item, self._kms.decrypt(item.wrapped, item.purpose))
            self._opened[item.purpose, item.kid] = key
        return key

    def _checked(self, item: RingItem, key: bytes) -> bytes:
        if len(key) != DATA_KEY_BYTES:
            raise KeyUnavailableError(f"{self._ring_key_arn} gave no 256-bit key for {item.kid!r} of {item.purpose}")
        return key

    def _must_be_granted(self, purpose: str) -> None:
        if purpose not in self._purposes:
            raise PurposeNotGrantedError(f"this function has no key purpose {purpose!r}")


def _by_activity(item: RingItem) -> tuple[int, str]:
    return item.active_from, item.kid


def _active(items: Collection[RingItem], at: int) -> RingItem:
    """
    The newest item that is active at *at*.

    Before all of them it is the oldest: the clock of whoever made the first key may run ahead of ours.
    """
    active = [item for item in items if item.active_from <= at]
    return max(active, key=_by_activity) if active else min(items, key=_by_activity)
