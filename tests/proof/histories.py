"""
Histories: what was asked when, what was answered when, and whether one could have happened after the other, each at an
instant between its question and its answer (linearizability, after Herlihy and Wing; searched as Wing and Gong do).

The model is written from the rules (F-19, F-26, I-5, I-6, I-10), not from the code, and sees nothing but questions and
answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quitclaim.domain.errors import (
    GenerationMovedError,
    NeedsReconnectError,
    OwnerDeletedError,
    StateConflictError,
)

FOREVER: Final = 1 << 30


@dataclass(frozen=True)
class Grant:
    """A connection as the model knows it."""

    generation: int
    version: int
    is_live: bool = True
    is_stopped: bool = False


@dataclass(frozen=True)
class Model:
    """An owner as the model knows it."""

    grants: Mapping[str, Grant]
    is_deleted: bool = False

    def key(self) -> tuple[Any, ...]:
        """For sets."""
        return (self.is_deleted, *sorted(self.grants.items(), key=lambda pair: pair[0]))

    def having(self, connection: str, **changes: Any) -> "Model":
        """With that connection changed."""
        return replace(self, grants={**self.grants, connection: replace(self.grants[connection], **changes)})


@dataclass
class Operation:
    """A question and its answer. One that was never answered may have happened at any time after it, or not at all."""

    what: str  # token, disconnect, delete; or save, of a refreshed token, which nobody asks for
    connection: str = ""
    seen: int = 0  # the generation that a disconnect names
    invoked: int = 0
    returned: int = FOREVER
    result: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        what = f"{self.what} {self.connection}".rstrip()
        if self.returned == FOREVER:
            return f"[{self.invoked}, -] {what}: no answer"
        return f"[{self.invoked}, {self.returned}] {what}: {type(self.error).__name__ if self.error else self.result}"


@dataclass
class History:
    """What happened, and what may have happened besides: whether the provider may refuse a grant on its own."""

    start: Model
    operations: list[Operation] = field(default_factory=list)
    may_lose: bool = False

    def faults(self) -> list[str]:
        """Why no order explains it; nothing if one does."""
        if self._is_explained():
            return []
        told = sorted(self.operations, key=lambda operation: operation.invoked)
        return ["P-7: no order explains\n    " + "\n    ".join(map(str, told))]

    def _is_explained(self) -> bool:
        tried: set[tuple[Any, ...]] = set()
        work = [(self.start, frozenset(range(len(self.operations))))]
        while work:
            model, left = work.pop()
            answered = [number for number in left if self.operations[number].returned < FOREVER]
            if not answered:
                return True
            first_return = min(self.operations[number].returned for number in answered)
            for number in left:
                if self.operations[number].invoked > first_return:
                    continue  # it was asked when another had its answer already
                for after in self._after(model, self.operations[number]):
                    state = (after.key(), left - {number})
                    if state not in tried:
                        tried.add(state)
                        work.append((after, left - {number}))
        return False

    def _after(self, model: Model, operation: Operation) -> Iterator[Model]:
        """What may be after an operation with this answer; nothing where it cannot have had it."""
        if operation.returned == FOREVER:
            yield from self._unanswered(model, operation)
        elif operation.what == "delete":
            yield replace(model, is_deleted=True)
        elif operation.what == "disconnect":
            yield from self._disconnected(model, operation)
        elif operation.what == "save":
            yield from self._saved(model, operation)
        else:
            yield from self._handed_out(model, operation)

    def _unanswered(self, model: Model, operation: Operation) -> Iterator[Model]:
        yield model
        if operation.what == "delete":
            yield replace(model, is_deleted=True)
        elif operation.what == "disconnect":
            grant = model.grants[operation.connection]
            if grant.generation == operation.seen and not model.is_deleted:
                yield model.having(
                    operation.connection, generation=grant.generation + 1, is_live=False, is_stopped=True
                )
        else:
            yield from self._perhaps_lost(model, operation.connection)

    def _disconnected(self, model: Model, operation: Operation) -> Iterator[Model]:
        grant = model.grants[operation.connection]
        if model.is_deleted and isinstance(operation.error, OwnerDeletedError):
            yield model
        elif grant.is_stopped and operation.seen in (grant.generation, grant.generation - 1):
            if operation.error is None:
                yield model
        elif grant.generation != operation.seen:
            if isinstance(operation.error, GenerationMovedError):
                yield model
        elif operation.error is None:
            yield model.having(operation.connection, generation=grant.generation + 1, is_live=False, is_stopped=True)

    def _handed_out(self, model: Model, operation: Operation) -> Iterator[Model]:
        grant = model.grants[operation.connection]
        is_live = grant.is_live and not model.is_deleted
        error = operation.error
        if error is None:
            generation, version = operation.result
            if is_live and (generation, version) == (grant.generation, grant.version):
                yield model
        elif isinstance(error, OwnerDeletedError):
            if model.is_deleted:
                yield model
        elif isinstance(error, StateConflictError):
            if grant.is_stopped:
                yield model
        elif isinstance(error, NeedsReconnectError):
            if not grant.is_live and not grant.is_stopped:
                yield model
            elif is_live and self.may_lose:
                yield self._lost(model, operation.connection)
        else:  # busy, unknown, in progress: it says nothing
            yield model
            yield from self._perhaps_lost(model, operation.connection)

    def _saved(self, model: Model, operation: Operation) -> Iterator[Model]:
        """The next version is the one to hand out; of a deleted owner it is handed to nobody."""
        grant = model.grants[operation.connection]
        if operation.result == (grant.generation, grant.version + 1) and grant.is_live:
            yield model.having(operation.connection, version=grant.version + 1)

    def _perhaps_lost(self, model: Model, connection: str) -> Iterator[Model]:
        if self.may_lose and model.grants[connection].is_live and not model.is_deleted:
            yield self._lost(model, connection)

    def _lost(self, model: Model, connection: str) -> Model:
        return model.having(connection, generation=model.grants[connection].generation + 1, is_live=False)
