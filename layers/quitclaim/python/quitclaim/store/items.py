"""
Values to attributes and back, by the fields of the frozen dataclass and nothing else.

None and an empty set are absent attributes; an enum is its value; a tuple is a list. The key, `ref`, `v` and `op` are
not attributes of a value.
"""

from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from quitclaim.domain.ids import ConnectionRef
from quitclaim.ports import Item, Key
from quitclaim.store.keys import ref_of_key

NOT_STORED = frozenset({"ref", "v"})


def attributes(value: Any, *, without: frozenset[str] = frozenset()) -> Item:
    """The attributes that *value* is stored as."""
    found: Item = {}
    for each in fields(value):
        if each.name in NOT_STORED or each.name in without:
            continue
        stored = _stored(getattr(value, each.name))
        if stored is not None:
            found[each.name] = stored
    return found


def changed(before: Any, after: Any) -> tuple[Item, tuple[str, ...]]:
    """What an update sets and removes to turn *before* into *after*."""
    old, new = attributes(before), attributes(after)
    return {name: value for name, value in new.items() if old.get(name) != value}, tuple(
        name for name in old if name not in new
    )


def value_of[T](kind: type[T], item: Item, **given: Any) -> T:
    """The *kind* that *item* stores; *given* are fields that come from the key."""
    found: dict[str, Any] = dict(given)
    hintable: Any = kind
    hints: dict[str, Any] = _hints(hintable)
    for name, hint in hints.items():
        if name == "ref" and name not in found:
            found[name] = _ref(item)
        elif name in item and name not in found:
            found[name] = _restored(hint, item[name])
    return kind(**found)


def key_of(item: Item) -> Key:
    """The item's primary key."""
    return Key(item["PK"], item["SK"])


def _ref(item: Item) -> ConnectionRef:
    if "t" in item and "c" in item:
        return ConnectionRef(item["t"], item["o"], item["c"])
    return ref_of_key(key_of(item))


def back_reference(ref: ConnectionRef) -> Item:
    """The connection, on an item that lies in a partition of its own."""
    return {"t": ref.tenant, "o": ref.owner, "c": ref.connection}


def _stored(value: Any) -> Any:
    if value is None or (isinstance(value, frozenset | tuple) and not value):
        return None
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, frozenset):
        return frozenset(str(member) for member in value)
    if isinstance(value, tuple):
        return [_stored(member) for member in value]
    if is_dataclass(value):
        return attributes(value)
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _restored(hint: Any, stored: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _restored(next(arm for arm in get_args(hint) if arm is not type(None)), stored)
    if origin is tuple:
        return tuple(_restored(get_args(hint)[0], member) for member in stored)
    if origin is frozenset:
        return frozenset(stored)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(stored)
    if isinstance(hint, type) and is_dataclass(hint):
        return value_of(hint, stored)
    return stored
