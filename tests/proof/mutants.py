"""
Broken copies of our own code, and the proof that each is noticed (T-13): tests for the tests.

A mutant leaves out one thing that the protocol relies on: a clause of a condition, one way in which a clause may hold,
a whole check, one action of a transaction, or a guard that a flow keeps in Python; or it does two adjacent effects of a
flow the other way round. What is written, and in which order, is found by running the situations of `scripts` and
looking; nobody keeps a list of it.

Each mutant has its killer, the case that goes wrong with it and is right without it; killers are kept in
`killers.json`, so that a run of the tests needs seconds. What stands behind something else, so that no run can tell the
mutant from the code as it is, stands in `equivalent.json`, with the reason and with what it stands behind: it is killed
together with that, by a case that goes wrong in a way in which it does not where that alone is missing.

    python -m tests.proof.mutants                 every mutant and what kills it, from the files
    python -m tests.proof.mutants --search        look for killers where the file has none (or a stale one), write it
    python -m tests.proof.mutants --all           look for all of them again
    python -m tests.proof.mutants --tell MUTANT   its killer, told call by call in the broken code
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from tests.proof.broken import TOGETHER, Broken, Killer, Mutant, opened
from tests.proof.cases import Case, Example
from tests.proof.examples import ROWS, examples, journal_of
from tests.proof.guards import GUARDS
from tests.proof.scripts import EVERY
from tests.proof.search import tell
from tests.proof.survey import Survey, cases_of, look, survey

HERE: Final = Path(__file__).parent
KILLERS: Final = HERE / "killers.json"
EQUIVALENT: Final = HERE / "equivalent.json"
REFRESH: Final = "python -m tests.proof.mutants --search"
"""What brings the file of killers up to date."""


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equivalent:
    """Mutants that no run can tell from the code as it is, why, and what they stand behind."""

    mutants: tuple[str, ...]
    why: str
    killed_with: tuple[str, ...] = ()


def read_killers(path: Path = KILLERS) -> dict[str, Killer]:
    """The file."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())
    return {id_: Killer(_case_of(row["case"]), row["fault"]) for id_, row in rows.items()}


def _case_of(row: Sequence[Any]) -> Case | Example:
    return Example(*row) if len(row) == 2 else Case.of_json(row)


def write_killers(killers: Mapping[str, Killer], path: Path = KILLERS) -> None:
    """The file, one line a mutant."""
    rows = [
        f"{json.dumps(id_)}: {json.dumps({'case': killer.case.as_json(), 'fault': killer.fault})}"
        for id_, killer in sorted(killers.items())
    ]
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def read_equivalent(path: Path = EQUIVALENT) -> list[Equivalent]:
    """The file."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return [Equivalent(tuple(row["mutants"]), row["why"], tuple(row.get("killed_with", ()))) for row in rows]


# --- what must be killed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A mutant that must be killed; of one that stands behind something, *beyond* what that alone does."""

    mutant: Mutant
    beyond: Mutant | None = None

    @property
    def id(self) -> str:
        """One line."""
        return self.mutant.id


@dataclass
class Wanteds:
    """All of them, and the single mutants that are excused."""

    wanted: dict[str, Wanted] = field(default_factory=dict)
    excused: dict[str, Equivalent] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    """Excused, and there is no such mutant."""

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self.wanted[id_] for id_ in sorted(self.wanted))


def known_mutants() -> list[Mutant]:
    """Those of the files."""
    ids = [id_ for id_ in read_killers() if TOGETHER not in id_]
    ids += [id_ for entry in read_equivalent() for id_ in entry.mutants]
    return [Mutant.of(id_) for id_ in ids]


def wanted_of(mutants: Iterable[Mutant], equivalent: Sequence[Equivalent]) -> Wanteds:
    """What was seen and every guard; each that is excused together with what it stands behind."""
    alone = {mutant.id: mutant for mutant in mutants}
    alone |= {guard.name: Mutant(guards=frozenset({guard})) for guard in GUARDS}
    found = Wanteds(wanted={id_: Wanted(mutant) for id_, mutant in alone.items()})
    for entry in equivalent:
        for id_ in entry.mutants:
            if found.wanted.pop(id_, None) is None:
                found.stale.append(id_)
                continue
            found.excused[id_] = entry
    for id_, entry in found.excused.items():
        if entry.killed_with:
            together = Wanted(Mutant.of(id_, *entry.killed_with), Mutant.of(*entry.killed_with))
            found.wanted[together.id] = together
    return found


# --- looking for killers ---------------------------------------------------------------------------------------------


class Hunt:
    """Looks for killers. Each situation is surveyed once, when it is first needed."""

    def __init__(self, broken: Broken, *, deep: bool = False, told: Callable[[str], None] = lambda text: None) -> None:
        self._broken = broken
        self._deep = deep
        self._told = told
        self._surveys: dict[str, Survey] = {}

    def seen(self, killers: Iterable[Killer]) -> Survey:
        """What intact code does undisturbed, in the cases that kill a mutant, and in every row's example."""
        names = [situation.name for situation in EVERY]
        cases = [Case(name, (handler,)) for name in names for handler in self._broken.bench(name).handlers]
        cases += [each.case for each in killers if isinstance(each.case, Case) and each.case.situation in names]
        found = look(self._broken, cases)
        for row in ROWS:  # of which some no situation comes to
            for part in journal_of(row).met:
                found.where.setdefault(part, {})
        return found

    def killer(self, wanted: Wanted, seen: Survey, before: Killer | None) -> Killer | None:
        """
        Near where it was killed before; where it decides; at what else happens there; at the row's own examples. For a
        guard or an order, which no condition shows, everywhere.
        """
        mutant, first = wanted.mutant, self._broken.first
        everywhere = seen.situations(mutant)
        if not mutant.parts:
            everywhere = everywhere or [situation.name for situation in EVERY]
        near = [before.case.situation] if before is not None and isinstance(before.case, Case) else []
        near = [name for name in near if name in everywhere]
        found = first(mutant, seen.of(mutant), wanted.beyond) or self._around(wanted, near)
        if found is None and not self._deep:
            found = first(mutant, examples_of(mutant), wanted.beyond)
        decisive: list[str] = []
        for name in everywhere if found is None and mutant.parts else ():
            cases = self.survey(name).of(mutant)
            found = first(mutant, cases, wanted.beyond)
            if found is not None:
                return found
            decisive += [name] if cases else []
        if found is None:  # where it decides nothing, every flow is answered as it is by whole code
            found = self._around(wanted, everywhere if mutant.guards or mutant.swaps else decisive)
        return found or first(mutant, examples_of(mutant), wanted.beyond)

    def killer_again(self, wanted: Wanted, seen: Survey, before: Killer, limit: int) -> Killer | None:
        """
        As if nothing were known but in which situation it was killed: where it decides undisturbed, at the examples of
        its row, there, and where else it is met, in no more than *limit* cases of situations.
        """
        found = self._broken.first(wanted.mutant, chain(seen.of(wanted.mutant), examples_of(wanted.mutant)))
        if found is not None and wanted.beyond is None:
            return found
        names = [before.case.situation] if isinstance(before.case, Case) else []
        names += [name for name in seen.situations(wanted.mutant) if name not in names]
        cases = chain.from_iterable(cases_of(self._broken.bench(name), deep=False) for name in names)
        found = self._broken.first(wanted.mutant, islice(cases, limit), wanted.beyond)
        return found or self._broken.first(wanted.mutant, examples_of(wanted.mutant), wanted.beyond)

    def survey(self, name: str) -> Survey:
        """What intact code does in a situation."""
        if name not in self._surveys:
            self._surveys[name] = survey(self._broken, [name], deep=self._deep, told=self._told)
            for violation in self._surveys[name].violations:
                self._told(f"WITHOUT ANY MUTANT: {violation}")
        return self._surveys[name]

    def _around(self, wanted: Wanted, names: Sequence[str]) -> Killer | None:
        for is_deep in (False, True) if self._deep else (False,):
            cases = chain.from_iterable(cases_of(self._broken.bench(name), deep=is_deep) for name in names)
            found = self._broken.first(wanted.mutant, cases, wanted.beyond)
            if found is not None:
                return found
        return None

    def stand_ins(self, wanted: Wanted) -> Iterator[str]:
        """What a survivor may stand behind: with what else it decides, if it is killed together with that."""
        for seen in self._surveys.values():
            for others in seen.companions(wanted.mutant)[:COMPANIONS]:
                together = Mutant.of(wanted.id, others.id)
                killer = self._broken.first(together, seen.of(together), others)
                if killer is not None:
                    yield f"{others.id}: {killer.fault}"
                    return


COMPANIONS: Final = 25


@cache
def _titles(row: str) -> frozenset[str]:
    return frozenset(part.title for part in journal_of(row).met)


def examples_of(mutant: Mutant) -> Iterator[Example]:
    """Of rows that write what the mutant leaves out."""
    titles = {part.title for part in mutant.parts}
    return (example for example in examples() if _titles(example.row) & titles)


def search(*, again: bool, deep: bool, path: Path = KILLERS, told: Callable[[str], None] = print) -> list[str]:
    """Find a killer for every mutant that lacks one and write the file; the survivors."""
    broken, killers = Broken(), read_killers()
    hunt = Hunt(broken, deep=deep, told=told)
    seen = hunt.seen(killers.values())
    mutants = list(seen.mutants())
    for situation in EVERY if deep else ():
        mutants += hunt.survey(situation.name).mutants()
    wanteds = wanted_of(mutants, read_equivalent())
    found: dict[str, Killer] = {}
    survivors: list[str] = []
    for wanted in wanteds:
        before = killers.get(wanted.id)
        killer = before if before and not again and broken.kills(before, wanted.mutant, wanted.beyond) else None
        if killer is None:
            killer = hunt.killer(wanted, seen, None if again else before)
            told(f"killed    {wanted.id}\n          {killer.case.command}: {killer.fault}" if killer else "")
        if killer is None:
            survivors.append(wanted.id)
            told(f"SURVIVES  {wanted.id}")
            told("".join(f"    perhaps behind {each}\n" for each in hunt.stand_ins(wanted)).rstrip())
            continue
        found[wanted.id] = killer
    for id_ in sorted(wanteds.excused):
        killer = broken.first(Mutant.of(id_), seen.of(Mutant.of(id_)))
        if killer is not None:
            told(f"NOT EQUIVALENT  {id_}: {killer.case.command}: {killer.fault}")
    write_killers(found, path)
    told(f"{len(found)} of {len(wanteds.wanted)} killed, {len(wanteds.excused)} stand behind something else")
    return survivors


# --- the command line ------------------------------------------------------------------------------------------------


def main(words: list[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutants", description=__doc__)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--deep", action="store_true", help="with --search: interleavings as well, which takes long")
    parser.add_argument("--tell")
    asked = parser.parse_args(words)
    if asked.tell:
        mutant, broken = Mutant.of(asked.tell), Broken()
        case = read_killers()[mutant.id].case
        if isinstance(case, Example):
            print(case.command, broken.faults(mutant, case))
            return 0
        with opened(mutant, broken.bench(case.situation), {}):
            return tell(case, broken.bench(case.situation))
    if asked.search or asked.all:
        return 1 if search(again=asked.all, deep=asked.deep or asked.all) else 0
    for id_, killer in read_killers().items():
        print(f"{id_:<110} {killer.case.command}\n    {killer.fault}")
    for entry in read_equivalent():
        print(f"{', '.join(entry.mutants)}: {entry.why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
