"""
The key ring: its entries, when a key is added, retired and destroyed, and which key sealed something.

A key that is lost takes everything with it that it sealed. So it is retired only when a newer one seals, and destroyed
only when nothing in the whole table names it any more (RB-62).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from quitclaim.domain.limits import GUARD_MS, KEY_LEAD_MS, KEY_LIFE_MS, KEY_REST_MS

SEALED_FORMAT: Final = 1
"""First byte of sealed bytes; then the length of the kid, and the kid (`security/sealing.py`)."""
NEVER_TURNED: Final = frozenset({"index"})
"""Purposes whose first key serves for ever: digests under the index key are parts of table keys."""


@dataclass(frozen=True)
class RingItem:
    """
    One data key of one purpose, wrapped by KMS.

    It seals from *active_from* until a newer one does, and opens what it sealed for as long as it is in the ring,
    retired or not.
    """

    purpose: str
    kid: str
    wrapped: bytes = field(repr=False)
    created: int
    active_from: int
    retired: int | None = None
    v: int = field(default=0, compare=False)


def next_kid(items: Sequence[RingItem], now: int) -> str | None:
    """
    The id of the key to add to the keys of one purpose, if the newest has served its time; None otherwise.

    Counted on, so that of two who add one at once a single put wins, and named after the purpose, so that sealed bytes
    say which ring entry they need.
    """
    newest = max(items, key=lambda item: item.active_from, default=None)
    if newest is None or newest.purpose in NEVER_TURNED or newest.active_from + KEY_LIFE_MS > now:
        return None
    return f"{newest.purpose}-{max(_number(item) for item in items) + 1}"


def active_from(now: int) -> int:
    """When a key that is added now begins to seal: once every instance that seals must have seen it."""
    return now + KEY_LEAD_MS


def to_retire(items: Sequence[RingItem], now: int) -> list[RingItem]:
    """Of the keys of one purpose, those that a newer active one has replaced."""
    active = [item for item in items if item.active_from + GUARD_MS <= now]
    newest = max(active, key=lambda item: (item.active_from, item.kid), default=None)
    if newest is None or newest.purpose in NEVER_TURNED:
        return []
    return [item for item in active if item.retired is None and item.active_from < newest.active_from]


def may_destroy(item: RingItem, now: int) -> bool:
    """Whether a key has rested long enough to be destroyed, if nothing names it."""
    return item.retired is not None and item.retired + KEY_REST_MS <= now


def _number(item: RingItem) -> int:
    """Its place in the order of its purpose; the first key is called `1`."""
    number = item.kid.rsplit("-", 1)[-1]
    return int(number) if number.isdigit() else 0


# --- which key sealed it ---------------------------------------------------------------------------------------------


class UnknownSealError(Exception):
    """Sealed bytes of a format that this release does not know: nobody can say which key they need."""


def kids_in(value: Any) -> Iterator[str]:
    """
    The ids of the keys that something stored needs, whatever the attribute is called and however deep it lies: a field
    that is forgotten here would lose what it holds. Raises `UnknownSealError`.
    """
    if isinstance(value, bytes):
        kid = _kid(value)
        if kid is not None:
            yield kid
    elif isinstance(value, dict):
        for member in value.values():
            yield from kids_in(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from kids_in(member)


def _kid(sealed: bytes) -> str | None:
    """None for what is too short to have been sealed: no key opens it."""
    if len(sealed) < 3:
        return None
    if sealed[0] != SEALED_FORMAT:
        raise UnknownSealError
    return sealed[2 : 2 + sealed[1]].decode("ascii", "backslashreplace")
