"""The page of the table tells of every write and every attribute that the code knows."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import Authorization, Barrier, Connection, Exchange, Owner, Ticket
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.sources import Source
from quitclaim.domain.stop import StopIntent
from quitclaim.domain.tokens import Grant
from quitclaim.domain.webhooks import Delivery
from quitclaim.store.keys import PREFIXES

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "table.md").read_text(encoding="utf-8")
STORE: Final = ROOT / "layers" / "quitclaim" / "python" / "quitclaim" / "store"
ROWS: Final = re.compile(r"\b[Rr]ows? ((?:\d+(?:-\d+)?)(?:(?:, | and )\d+(?:-\d+)?)*)")

ITEMS: Final = {
    "owner (the fence)": (Owner, set()),
    "barrier": (Barrier, set()),
    "connection": (Connection, {"ref"}),
    "grant": (Grant, {"ref", "pair"}),
    "exchange": (Exchange, {"ref", "id"}),
    "stop intent": (StopIntent, {"ref", "generation"}),
    "ticket": (Ticket, {"ref"}),
    "authorization": (Authorization, {"ref"}),
    "source": (Source, {"ref", "slug"}),
    "revocation": (Revocation, {"ref", "rid", "generation"}),
    "account": (Account, set()),
    "delivery": (Delivery, {"client", "digest", "target"}),
    "share": (Delivery, {"client", "digest", "target"}),
    "key ring entry": (RingItem, {"purpose", "kid"}),
}
"""By its name on the page: what an item stores, and what of that is in its key or named otherwise."""
BESIDE: Final = {"t", "o", "c", "g", "ttl"}


def numbers(text: str) -> set[int]:
    """The row numbers that *text* cites, ranges spelled out."""
    found: set[int] = set()
    for cited in ROWS.findall(text):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", cited):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def rows() -> dict[int, bool]:
    """Every row of the page, and whether its write exists."""
    section = PAGE.split("\n## 4. The writes\n")[1].split("\n## 5.")[0]
    found: dict[int, bool] = {}
    for bullet in re.split(r"(?m)^(?=- )", section):
        for number in re.findall(r"\*\*(\d+) · ", bullet):
            assert int(number) not in found, f"row {number} is there twice"
            found[int(number)] = "**not there yet**" not in bullet
    return found


def test_the_rows_are_numbered_without_a_gap() -> None:
    """In order from 1: the code cites them by number, so a number never changes its row."""
    assert list(rows()) == list(range(1, len(rows()) + 1))


def test_a_row_exists_exactly_if_a_store_has_it() -> None:
    """What the docstrings of the stores cite is what the page does not mark as missing."""
    cited: set[int] = set()
    for module in STORE.glob("*.py"):
        docstring = re.match(r'"""(.*?)"""', module.read_text(encoding="utf-8"), re.DOTALL)
        cited |= numbers(re.sub(r"\s+", " ", docstring[1]) if docstring else "")

    told = {number for number, exists in rows().items() if exists}
    assert (cited - told, told - cited) == (set(), set()), "rows to add to docs/table.md, rows to mark as not there yet"


def test_every_row_that_the_code_cites_is_on_the_page() -> None:
    """Comments of flows and stores cite numbers of this page."""
    code = [*STORE.glob("*.py"), *(STORE.parent / "flows").rglob("*.py")]
    cited = set().union(*(numbers(path.read_text(encoding="utf-8")) for path in code))

    assert cited <= set(rows())


def test_every_write_is_named_with_a_method_that_exists() -> None:
    """The method that a row names is in the store."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in STORE.glob("*.py"))
    named = re.findall(r"\*\*\d+ · [^*]+\*\*[^(]*\(`(?:\w+\.)?(?:store/\w+\.py: )?(\w+)`", PAGE)

    assert len(named) > 30
    assert [name for name in named if f"def {name}(" not in text] == []


@pytest.mark.rule("F-2")
@pytest.mark.parametrize("item", ITEMS)
def test_an_item_has_the_attributes_that_the_page_says(item: str) -> None:
    """No attribute without a place on the page, none on it that the code does not know."""
    kind, in_key = ITEMS[item]
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {item} |")]
    told = set(re.findall(r"\b([a-z_]+)\b", re.sub(r"\([^)]*\)", "", line.split("|")[3])))

    assert told - BESIDE == {each.name for each in fields(kind)} - in_key - {"v"}


@pytest.mark.rule("F-2")
def test_every_prefix_of_a_key_is_on_the_page() -> None:
    """A kind of item that the page does not have cannot be stored; dependents come later."""
    section = PAGE.split("\n## 2. Items\n")[1].split("\n## 3.")[0]
    keys = re.findall(r"`([A-Z]#[^`]*)` / `([^`]*)`|· `([A-Z]#[^`]*)`", section)
    told = {(partition[:2], sort) for partition, sort, _ in keys}

    for kind, (partition, sort) in PREFIXES.items():
        if kind != "dependent":
            assert any(
                first == partition and (second.startswith(sort) or kind == "marker") for first, second in told
            ), kind
