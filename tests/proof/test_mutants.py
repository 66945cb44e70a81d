"""
T-13: every clause, check, action, order and guard left out once, and each time somebody notices.

CI tries each mutant's checked-in killer (`killers.json`), and looks further only where that fails. The nightly run
looks for all of them again, as far as so many cases go; `python -m tests.proof.mutants --all` to the end, for hours.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.proof.broken import Broken, Killer, Mutant
from tests.proof.cases import Case
from tests.proof.clauses import STORE
from tests.proof.mutants import (
    REFRESH,
    Hunt,
    known_mutants,
    read_equivalent,
    read_killers,
    wanted_of,
    write_killers,
)
from tests.proof.report import NIGHTLY, note
from tests.proof.scripts import EVERY
from tests.proof.survey import Survey

SHARES: Final = 8
AGAIN_SHARES: Final = 24
CASES_AGAIN: Final = 1_000
"""Of situations; a mutant that is met in none has the examples of its row."""
BROKEN: Final = Broken()


@cache
def _seen() -> tuple[Hunt, Survey]:
    """What intact code writes when nothing disturbs it, and in the cases that kill a mutant."""
    hunt = Hunt(BROKEN)
    return hunt, hunt.seen(read_killers().values())


@cache
def _seen_undisturbed() -> tuple[Hunt, Survey]:
    hunt = Hunt(BROKEN)
    return hunt, hunt.seen(())


@pytest.mark.timeout(1_200)
def test_every_mutant_has_its_killer_and_every_killer_its_mutant() -> None:
    """
    What is written today is what the files speak of; a killer is right where nothing is broken. A mutant that is new is
    searched for as one whose killer does not kill it any more.
    """
    hunt, seen = _seen()
    wanteds, killers = wanted_of(seen.mutants(), read_equivalent()), read_killers()
    new = [wanted for wanted in wanteds if wanted.id not in killers]
    survivors = [wanted.id for wanted in new if hunt.killer(wanted, seen, None) is None]

    note("T-13 mutants", len(new), len(survivors))
    assert seen.violations == [], f"wrong without any mutant: {seen.violations}"
    assert survivors == [], f"nobody notices; to look further: {REFRESH} --deep"
    assert sorted(killers.keys() - wanteds.wanted.keys()) == [], f"there are no such mutants any more: {REFRESH}"
    assert wanteds.stale == [], "excused in equivalent.json, and there are no such mutants any more"


def test_every_write_of_the_store_is_looked_at() -> None:
    """No function that writes is left out because neither a situation nor an example comes to it."""
    written = {part.title.split(" / ")[0] for part in _seen()[1].where}

    assert sorted(set(_functions_that_write()) - written) == []


def _functions_that_write() -> Iterator[str]:
    """The public functions of `store/` whose text runs a commit or a batch, but the plumbing."""
    for file in sorted(Path(STORE).glob("*.py")):
        classes = [each for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef)]
        for function in (each for found in classes for each in found.body if isinstance(each, ast.FunctionDef)):
            writes = any(
                call in ast.unparse(function) for call in ("commit.run()", "_run(commit", "._batch(", "._mark(")
            )
            if writes and not function.name.startswith("_"):
                yield f"{file.stem}.{function.name}"


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("share", range(SHARES))
def test_every_mutant_is_noticed(share: int) -> None:
    """
    Its killer goes wrong; of one that stands behind something, in a way in which that alone does not. Where the calls
    of a flow have shifted since, another case may do.
    """
    killers = read_killers()
    wanteds = wanted_of(known_mutants(), read_equivalent())
    mine = list(wanteds)[share::SHARES]
    survivors: list[str] = []
    for wanted in mine:
        killer = killers.get(wanted.id)
        if killer is None or not BROKEN.kills(killer, wanted.mutant, wanted.beyond):
            hunt, seen = _seen()
            killer = hunt.killer(wanted, seen, killer)
        if killer is None:
            survivors.append(wanted.id)

    note("T-13 mutants", len(mine), len(survivors))
    assert survivors == []


@pytest.mark.skipif(not NIGHTLY, reason="long: the nightly run looks for every killer again")
@pytest.mark.timeout(86_400)
@pytest.mark.parametrize("share", range(AGAIN_SHARES))
def test_every_killer_is_found_again(share: int) -> None:
    """
    Without the case that is known to kill it. What is not found in so many cases stays with that one, which the test
    above has tried: it needs orders that a search comes to late, or was made by hand.
    """
    killers = read_killers()
    mine = [wanted for wanted in wanted_of(known_mutants(), read_equivalent()) if wanted.id in killers]
    mine.sort(key=lambda wanted: (killers[wanted.id].case.as_json()[0], wanted.id))
    mine = mine[share * len(mine) // AGAIN_SHARES : (share + 1) * len(mine) // AGAIN_SHARES]
    hunt, seen = _seen_undisturbed()
    missed = [each for each in mine if hunt.killer_again(each, seen, killers[each.id], CASES_AGAIN) is None]

    note("T-13 mutants, killer found again", len(mine) - len(missed), 0)
    note("T-13 mutants, only its known killer", len(missed), 0)


def test_a_mutant_that_nobody_would_notice_is_told_of(tmp_path: Path) -> None:
    """The machine itself can fail: code that is whole has no killer, and a killer of something else kills nothing."""
    seen = _seen()[1]
    id_, killer = next(iter(read_killers().items()))
    write_killers({id_: killer}, tmp_path / "killers.json")

    assert read_killers(tmp_path / "killers.json") == {id_: killer}
    assert BROKEN.first(Mutant(), [killer.case]) is None
    assert BROKEN.kills(killer, Mutant.of(id_))
    assert not BROKEN.kills(Killer(Case(EVERY[0].name, ("callback",)), ""), Mutant.of(id_))
    assert not BROKEN.kills(killer, Mutant.of(id_), beyond=Mutant.of(id_))
    assert "connect.begin / put exchange / nothing like it" not in {each.id for each in seen.mutants()}
