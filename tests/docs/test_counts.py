"""What pages count is as many as there are, and no page sends anybody to a registry of packages."""

import re
from pathlib import Path
from typing import Final

import pytest

from quitclaim.providers.spec import Catalogue
from tests.docs.test_pages import PAGES, name_of
from tests.providers.signing import with_webhooks

ROOT: Final = Path(__file__).parents[2]
REGISTRIES: Final = re.compile(r"https?://(?:[a-z]+\.)?(?:pypi\.org|npmjs\.(?:com|org)|crates\.io|rubygems\.org)")


@pytest.mark.parametrize(
    ("page", "said", "what"),
    [
        ("README.md", r"The catalogue has (\d+) providers", "providers"),
        ("README.md", r"knows how (\d+) of them send events", "events"),
        ("CHANGELOG.md", r"(?m)^- (\d+) providers, each with its sources", "providers"),
        ("CHANGELOG.md", r"Webhooks: (\d+) providers' events", "events"),
    ],
)
def test_a_page_counts_the_providers_that_there_are(page: str, said: str, what: str) -> None:
    """Those of the catalogue, and those whose events are taken."""
    there_are = {"providers": len(list(Catalogue().ids())), "events": len(with_webhooks())}

    assert re.findall(said, (ROOT / page).read_text(encoding="utf-8")) == [str(there_are[what])]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_links_a_registry(page: Path) -> None:
    """A peer is named; where it is installed from is each one's own."""
    assert REGISTRIES.findall(page.read_text(encoding="utf-8")) == []
