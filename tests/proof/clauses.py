"""
Names for the clauses of the store's conditions, so that a test can drop one of them and see who notices (T-13).

A condition is a value, built where the write is; nothing in it says which one it is. Its name is read off the stack at
the call: the public function of `quitclaim.store` that wrote, and the name that `Commit` gave the write. An update of a
batch has no name there; it is called by what it sets.
"""

from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import quitclaim.store
from quitclaim.ports import AnyOf, Check, Clause, Update, Write
from quitclaim.store.commit import Commit

type ClauseId = tuple[str, str, str, str, int]
"""Store function, write, attribute, operator, and the how manieth of that attribute and operator in its condition."""

CHECK: Final = "check"
"""Operator of the name of a whole `Check`: dropped, the action holds the transaction to nothing."""

STORE: Final = str(Path(next(iter(quitclaim.store.__path__))).resolve())
PLUMBING: Final = frozenset({f"{STORE}/commit.py", f"{STORE}/table.py"})
RUN: Final = Commit.run.__code__
UNNAMED: Final = frozenset({"op", "v", "d1", "d2", "a1", "a2", "r1", "r2", "t"})

_functions: dict[CodeType, str | None] = {}


def located(frame: FrameType | None) -> tuple[str, tuple[str, ...]]:
    """The store's function that writes and its names of the writes, seen from a *frame* of the table."""
    names: tuple[str, ...] = ()
    while frame is not None:
        code = frame.f_code
        if code is RUN:
            names = tuple(each.name for each in frame.f_locals["self"]._writes)  # noqa: SLF001 - nobody else asks
        else:
            function = _functions[code] if code in _functions else _function(code)
            if function is not None:
                return function, names
        frame = frame.f_back
    return "", names


def _function(code: CodeType) -> str | None:
    path = str(Path(code.co_filename).resolve())
    is_store = path.startswith(f"{STORE}/") and path not in PLUMBING
    is_public = not code.co_name.startswith(("_", "<"))
    _functions[code] = f"{Path(path).stem}.{code.co_qualname}" if is_store and is_public else None
    return _functions[code]


def name_of(write: Write, names: Sequence[str], number: int) -> str:
    """What the store calls the *number*th write of a call; ids that it put into the name are left out."""
    if number < len(names):
        ids = {write.key.pk, write.key.sk, *write.key.pk.split("#"), *write.key.sk.split("#")}
        first, *rest = names[number].split(" ")
        return " ".join((first, *(word for word in rest if word not in ids and "#" not in word)))
    if isinstance(write, Update):
        state = write.put.get("state")
        return f"to {state}" if state is not None else "+".join(sorted(write.put.keys() - UNNAMED))
    return write.key.sk.partition("#")[0]


def ids_of(function: str, name: str, write: Write) -> list[tuple[ClauseId, ...]]:
    """
    The ids of a write's condition: for each of its members one tuple, of one id for a clause and of several for an
    `AnyOf`.
    """
    seen: dict[tuple[str, str], int] = {}

    def numbered(clause: Clause) -> ClauseId:
        what = (clause.attribute, clause.operator)
        seen[what] = seen.get(what, -1) + 1
        return (function, name, *what, seen[what])

    return [
        tuple(numbered(clause) for clause in (each.clauses if isinstance(each, AnyOf) else (each,)))
        for each in write.when
    ]


def check_id(function: str, name: str, write: Write) -> ClauseId | None:
    """The id of a whole `Check`."""
    return (function, name, "*", CHECK, 0) if isinstance(write, Check) else None


def readable(clause: ClauseId) -> str:
    """One line for a table."""
    function, name, attribute, operator, number = clause
    return f"{function} / {name} / {attribute} {operator}" + (f" ({number + 1})" if number else "")


def of_json(row: Sequence[Any]) -> ClauseId:
    """A clause's id from a list, as a file holds it."""
    function, name, attribute, operator, number = row
    return str(function), str(name), str(attribute), str(operator), int(number)
