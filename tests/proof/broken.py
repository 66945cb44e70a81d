"""
Broken copies of our own code: what can be left out of a write, a table that leaves it out, and what a run of the code
that is left comes to (T-13).

What is written is found by looking at what runs write; nobody keeps a list of it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal
from unittest.mock import patch

from quitclaim.ports import AnyOf, Check, Clause, Condition, Item, Update, Write, WriteRefusedError
from tests.proof import recovery
from tests.proof.cases import Case, Example, faults_of, played
from tests.proof.clauses import located, name_of
from tests.proof.guards import BY_NAME, Guard
from tests.proof.orders import BEHIND, Swap, swapped
from tests.proof.search import Bench, situation_named
from tests.proof.table import MemoryTable, _address, _holds

type Kind = Literal["clause", "arm", "action"]


# --- what a write consists of ----------------------------------------------------------------------------------------


def title(function: str, name: str, write: Write) -> str:
    """How a write is called: the store's function, what is done, and to what."""
    module, _, method = function.partition(".")
    return f"{module}.{method.rpartition('.')[2]} / {type(write).__name__.lower()} {name}"


def members(when: Condition) -> list[str]:
    """How the members of a condition are called."""
    seen: dict[str, int] = {}
    found = []
    for member in when:
        text = " or ".join(_told(each) for each in (member.clauses if isinstance(member, AnyOf) else (member,)))
        seen[text] = seen.get(text, 0) + 1
        found.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return found


def _told(clause: Clause) -> str:
    value = f" {clause.value}" if clause.attribute in ("state", "outcome") and clause.value is not None else ""
    return f"{clause.attribute} {clause.operator}{value}"


@dataclass(frozen=True)
class Part:
    """One thing that can be left out of a write."""

    title: str
    kind: Kind
    what: str = ""

    @property
    def id(self) -> str:
        """One line."""
        what = {"action": "not done", "arm": f"never {self.what}", "clause": self.what}[self.kind]
        return f"{self.title} / {what}"

    @classmethod
    def of(cls, id_: str) -> "Part":
        """The part of that id."""
        name, _, what = id_.rpartition(" / ")
        if what == "not done":
            return cls(name, "action")
        return cls(name, "arm", what.removeprefix("never ")) if what.startswith("never ") else cls(name, "clause", what)

    def broken(self, write: Write) -> Write | None:
        """The write without it; None: no write at all."""
        if self.kind == "action":
            return None
        when: list[Clause | AnyOf] = []
        for text, member in zip(members(write.when), write.when, strict=True):
            if self.kind == "clause" and text == self.what:
                continue
            if self.kind == "arm" and isinstance(member, AnyOf):
                when.append(AnyOf(tuple(each for each in member.clauses if _told(each) != self.what)))
            else:
                when.append(member)
        return None if not when and isinstance(write, Check) else replace(write, when=tuple(when))


def parts_of(name: str, write: Write) -> Iterator[Part]:
    """Everything that can be left out of a write. A check without its one clause is no check."""
    yield Part(name, "action")
    texts = members(write.when)
    for text, member in zip(texts, write.when, strict=True):
        if not (isinstance(write, Check) and len(texts) == 1):
            yield Part(name, "clause", text)
        if isinstance(member, AnyOf):
            for each in member.clauses:
                yield Part(name, "arm", _told(each))


# --- a table that leaves something out, and looks at what is decided -------------------------------------------------


@dataclass
class Journal:
    """What a run wrote, and on what its writes were decided."""

    met: set[Part] = field(default_factory=set)
    decided: set[frozenset[Part]] = field(default_factory=set)
    """Parts that, left out together and not one fewer, would have changed what the table answered."""

    def note(self, writes: Sequence[tuple[str, Write, Item]]) -> None:
        """One call of the table: title, write and item of each action."""
        false: list[Part] = []
        arms: list[Part] = []
        for name, write, item in writes:
            self.met.update(parts_of(name, write))
            for text, member in zip(members(write.when), write.when, strict=True):
                if not _holds((member,), item):
                    alone = isinstance(write, Check) and len(write.when) == 1
                    false.append(Part(name, "action") if alone else Part(name, "clause", text))
                elif isinstance(member, AnyOf):
                    true = [each for each in member.clauses if _holds((each,), item)]
                    arms += [Part(name, "arm", _told(true[0]))] if len(true) == 1 else []
        if 0 < len(false) <= LARGEST:
            self.decided.add(frozenset(false))
            titles = {part.title for part in false}
            if len(titles) == 1 and any(isinstance(write, Check) and name in titles for name, write, _ in writes):
                self.decided.add(frozenset({Part(false[0].title, "action")}))
        if not false:
            self.decided.update(frozenset({arm}) for arm in arms)
            self.decided.update(
                frozenset({Part(name, "action")}) for name, write, _ in writes if not isinstance(write, Check)
            )


LARGEST: Final = 5


class BreakableTable(MemoryTable):
    """A table that leaves *broken* out of every write, and notes in *journal* what is decided."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: frozenset[Part] = frozenset()
        self.journal: Journal | None = None
        self.rewrites: dict[str, Callable[[Any], Write | None]] = {}
        self.hidden: frozenset[str] = frozenset()

    def _write(self, write: Write) -> None:
        (mine,) = self._broken([write])
        if mine is None:
            return
        try:
            super()._write(mine)
        except WriteRefusedError as refusal:
            raise WriteRefusedError(self._shown(refusal.items)) from None

    def _transact(self, writes: Sequence[Write]) -> None:
        mine = self._broken(writes)
        left = [each for each in mine if each is not None]
        if not left:
            return
        try:
            super()._transact(left)
        except WriteRefusedError as refusal:
            items = iter(self._shown(refusal.items))
            raise WriteRefusedError([None if each is None else next(items) for each in mine]) from None

    def _batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        mine = self._broken(updates)
        left = [each for each in mine if isinstance(each, Update)]
        verdicts = iter(super()._batch_update(left) if left else [])
        return [None if each is None else next(verdicts) for each in mine]

    def _shown(self, items: Sequence[Item | None]) -> list[Item | None]:
        return [item and {name: value for name, value in item.items() if name not in self.hidden} for item in items]

    def _broken(self, writes: Sequence[Write]) -> list[Write | None]:
        if self.journal is None and not self.broken and not self.rewrites:
            return list(writes)
        function, names = located(sys._getframe(1))  # noqa: SLF001 - the stack has no other door
        titles = [title(function, name_of(write, names, number), write) for number, write in enumerate(writes)]
        if self.journal is not None:
            rows = [self._items.get(_address(write.key)) for write in writes]
            self.journal.note([(t, w, row.item if row else {}) for t, w, row in zip(titles, writes, rows, strict=True)])
        return [self._mine(name, write) for name, write in zip(titles, writes, strict=True)]

    def _mine(self, name: str, write: Write) -> Write | None:
        mine: Write | None = write
        for part in self.broken:
            if part.title == name and mine is not None:
                mine = part.broken(mine)
        return self.rewrites[name](mine) if name in self.rewrites and mine is not None else mine


# --- mutants ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """What is broken: parts of writes, guards that are open, effects that are swapped, all at once."""

    parts: frozenset[Part] = frozenset()
    guards: frozenset[Guard] = frozenset()
    swaps: frozenset[Swap] = frozenset()

    @classmethod
    def of(cls, *ids: str) -> "Mutant":
        """By the ids of what is broken."""
        each = [part for id_ in ids for part in id_.split(TOGETHER)]
        guards = frozenset(BY_NAME[id_] for id_ in each if id_ in BY_NAME)
        swaps = frozenset(Swap.of(id_) for id_ in each if BEHIND in id_)
        parts = frozenset(Part.of(id_) for id_ in each if id_ not in BY_NAME and BEHIND not in id_)
        return cls(parts, guards, swaps)

    @property
    def id(self) -> str:
        """One line."""
        ids = (
            [part.id for part in self.parts] + [guard.name for guard in self.guards] + [swap.id for swap in self.swaps]
        )
        return TOGETHER.join(sorted(ids))


TOGETHER: Final = " + "


@dataclass(frozen=True)
class Killer:
    """The case or example that goes wrong with a mutant, and what went wrong."""

    case: Case | Example
    fault: str


class Broken:
    """Benches whose code has something broken; situations are made by intact code, once."""

    def __init__(self) -> None:
        self._benches: dict[str, Bench] = {}
        self._alone: dict[str, frozenset[str]] = {}  # handlers that are not refused when nothing disturbs them

    def bench(self, situation: str) -> Bench:
        """The situation, on a table that can be broken."""
        if situation not in self._benches:
            bench = Bench.of(situation_named(situation))
            table = BreakableTable()
            table.restore(bench.world.table.snapshot())
            bench.world.table = table
            bench.saved = bench.world.save()
            runs = {name: played(bench, Case(situation, (name,)))[0] for name in bench.handlers}
            self._alone[situation] = frozenset(name for name, run in runs.items() if run.error is None)
            self._benches[situation] = bench
        return self._benches[situation]

    def faults(self, mutant: Mutant, case: Case | Example, at_rest: dict[str, list[str]] | None = None) -> list[str]:
        """
        What goes wrong in the case when the mutant's code runs, then and until everything has come to rest. *at_rest*:
        what its states came to in earlier cases of the situation.
        """
        if isinstance(case, Example):
            from tests.proof.examples import fault_of  # which runs on a table of ours

            fault = fault_of(case, mutant.parts)
            return [] if fault is None else [fault]
        bench = self.bench(case.situation)
        with opened(mutant, bench, {} if at_rest is None else at_rest):
            return self._faults(bench, case)

    def first(self, mutant: Mutant, cases: Iterable[Case | Example], beyond: Mutant | None = None) -> "Killer | None":
        """
        The first of the cases, which are sorted by situation, that goes wrong with the mutant; where *beyond* is a part
        of it, in a way in which that alone does not. It is right where nothing is broken.
        """
        for _, group in groupby(cases, key=lambda case: case.situation if isinstance(case, Case) else ""):
            at_rest: dict[str, list[str]] = {}
            at_rest_beyond: dict[str, list[str]] = {}
            for case in group:
                faults = set(self.faults(mutant, case, at_rest))
                if faults and beyond is not None:
                    faults -= set(self.faults(beyond, case, at_rest_beyond))
                if faults and not self.faults(Mutant(), case):
                    return Killer(case, min(faults, key=lambda text: (len(text), text))[:160])
        return None

    def kills(self, killer: "Killer", mutant: Mutant, beyond: Mutant | None = None) -> bool:
        """Whether it still does."""
        return self.first(mutant, [killer.case], beyond) is not None

    def _faults(self, bench: Bench, case: Case) -> list[str]:
        try:
            faults = faults_of(bench, case)
            if not faults and case.is_undisturbed and case.handlers[0] in self._alone[bench.situation.name]:
                (process,) = played(bench, case)
                faults = [f"{case.handlers[0]} alone was refused: {process.error!r}"[:160]] if process.error else []
        except Exception as error:  # noqa: BLE001 - broken code may do anything; a machine that stops has noticed
            return [f"the run ended with {type(error).__name__}: {error}"]
        return faults


def opened(mutant: Mutant, bench: Bench, at_rest: dict[str, list[str]]) -> ExitStack:
    """The mutant's code, until it is closed."""
    stack, table = ExitStack(), table_of(bench)
    stack.callback(setattr, bench, "at_rest", bench.at_rest)
    stack.callback(setattr, table, "broken", table.broken)
    bench.at_rest = at_rest
    table.broken = mutant.parts
    for guard in sorted(mutant.guards, key=lambda guard: guard.name):
        stack.enter_context(guard.open(bench.world, table))
    for swap in mutant.swaps:
        stack.enter_context(swapped(swap))
    stack.enter_context(patch.object(recovery, "RUNS", RUNS))
    return stack


RUNS: Final = 400
"""What comes to rest at all does so within fewer, with few exceptions; what does not need not be run for longer."""


def table_of(bench: Bench) -> BreakableTable:
    """The bench's table."""
    table = bench.world.table
    assert isinstance(table, BreakableTable)
    return table
