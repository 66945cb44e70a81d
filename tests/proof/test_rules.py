"""T-14: each rule of the model is carried by something in the code, and a case fails when it is left out."""

import re
from pathlib import Path
from typing import Final

from tests.proof.guards import GUARDS
from tests.proof.rules import CARRIERS, PAGE, page, place_of, uncarried

PRODUCT: Final = Path(__file__).parents[2] / "layers" / "quitclaim" / "python" / "quitclaim"


def test_the_page_of_rules_and_mutants_is_what_the_files_say() -> None:
    """Each rule of the model is carried by a mutant that something kills, and the page tells so."""
    assert uncarried() == []
    assert PAGE.read_text() == page(), "stale: python -m tests.proof.rules --page"


def test_what_the_page_names_is_there() -> None:
    """A function that carries a rule is called what the page calls it."""
    places = {guard.where for guard in GUARDS}
    places |= {place_of(id_) for carried in CARRIERS.values() for id_ in carried.by}
    for place in places:
        for part in place.split("; "):
            file, names = part.split(": ")
            text = (PRODUCT / file).read_text()
            for name in names.split(", "):
                assert re.search(rf"^ *def {name.split('.')[-1]}\(", text, re.MULTILINE), f"{name} in {file}"
