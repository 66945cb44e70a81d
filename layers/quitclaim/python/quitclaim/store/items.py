"""
Values to attributes and back, by the fields of the frozen dataclass and nothing else.

None and an empty set are absent attributes; an enum is its value; a tuple is a list. The key, `ref`, `v` and `op` are
not attributes of a value.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from quitclaim.domain.ids import ConnectionRef
from quitclaim.ports import Item, Key
from quitclaim.store.keys import ref_of_key

NOT_STORED = frozenset({"ref", "v"})
PLAIN = frozenset({str, int, bool, bytes})


def attributes(value: Any, *, without: frozenset[str] = frozenset()) -> Item:
    """The attributes that *value* is stored as."""
    found: Item = {}
    kind: Any = type(value)
    for name in _stored_names(kind):
        if name in without:
            continue
        stored = _stored(getattr(value, name))
        if stored is not None:
            found[name] = stored
    return found


def value_of[T](kind: type[T], item: Item, **given: Any) -> T:
    """The *kind* that *item* stores; *given* are fields that come from the key."""
    plan: Any = kind
    found: dict[str, Any] = dict(given)
    for name, restore in _restorers(plan):
        if name in found:
            continue
        if name == "ref":
            found[name] = _ref(item)
        elif name in item:
            found[name] = item[name] if restore is None else restore(item[name])
    return kind(**found)


def key_of(item: Item) -> Key:
    """The item's primary key."""
    return Key(item["PK"], item["SK"])


def back_reference(ref: ConnectionRef) -> Item:
    """The connection, on an item that lies in a partition of its own."""
    return {"t": ref.tenant, "o": ref.owner, "c": ref.connection}


def _ref(item: Item) -> ConnectionRef:
    if "t" in item and "c" in item:
        return ConnectionRef(item["t"], item["o"], item["c"])
    return ref_of_key(key_of(item))


@cache
def _stored_names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name not in NOT_STORED)


def _stored(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if value is None or (kind in (frozenset, tuple) and not value):
        return None
    if isinstance(value, StrEnum):
        return value.value
    if kind is frozenset:
        return frozenset(map(str, value))
    if kind is tuple:
        return [_stored(member) for member in value]
    if is_dataclass(value):
        return attributes(value)
    return value


type Restorer = Callable[[Any], Any] | None
"""How a stored attribute becomes a field's value; None where it is that already."""


@cache
def _restorers(kind: Any) -> tuple[tuple[str, Restorer], ...]:
    return tuple((name, _restorer(hint)) for name, hint in get_type_hints(kind).items())


def _restorer(hint: Any) -> Restorer:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _restorer(next(arm for arm in get_args(hint) if arm is not type(None)))
    if origin is tuple:
        restore = _restorer(get_args(hint)[0])
        return tuple if restore is None else lambda stored: tuple(map(restore, stored))
    if origin is frozenset:
        return frozenset
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(value_of, hint)
    return None
