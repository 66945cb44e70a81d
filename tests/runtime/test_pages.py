"""The pages a browser sees: static, escaped, without script, and nothing on them but what we put there."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from quitclaim.domain import errors
from quitclaim.runtime import pages

HOSTILE = """<script>alert(1)</script>"'&<img src=x onerror=alert(1)>{{7*7}}</style><!--"""
ALL = {
    "awaiting": pages.awaiting("AB12C-DE34F"),
    "connected": pages.connected(),
    "failed": pages.failed(errors.StateInvalidError.sentence, errors.StateInvalidError.code),
    "hostile": pages.page(HOSTILE, HOSTILE, HOSTILE, code=HOSTILE),
}
VOID = {"meta"}


class Seen(HTMLParser):
    """What a browser makes of a page: tags with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One more."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It must be the one that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        self.texts.append(data)


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_made_of_our_tags_only(name):
    """Whatever is put into it; every tag is closed, none is active, none loads anything."""
    seen = Seen(ALL[name])

    assert {tag for tag, _ in seen.tags} <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "p",
        "code",
    }
    assert {attribute for _, attributes in seen.tags for attribute in attributes} <= {
        "lang",
        "charset",
        "name",
        "content",
        "aria-label",
    }
    assert seen.open == []
    assert "<script" not in ALL[name].lower()
    assert not re.search(r"url\(|@import|expression\(", pages.STYLE)


def test_what_is_put_into_a_page_is_text():
    """Title, paragraphs and code are shown as they are."""
    assert Seen(ALL["hostile"]).texts.count(HOSTILE) == 5


@pytest.mark.parametrize("name", ALL)
def test_the_policy_allows_the_pages_own_style_and_nothing_else(name):
    """The hash is that of the one style element; there is no other source of anything."""
    (style,) = re.findall(r"<style>(.*?)</style>", ALL[name], re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    directives = dict(part.split(" ", 1) for part in pages.HEADERS["Content-Security-Policy"].split("; "))

    assert directives == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_a_page_is_kept_by_nobody_and_tells_nobody_where_it_was():
    """Its address may hold a code."""
    assert pages.HEADERS.keys() == {
        "Content-Security-Policy",
        "Referrer-Policy",
        "Cache-Control",
        "X-Content-Type-Options",
    }
    assert pages.HEADERS["Referrer-Policy"] == "no-referrer"
    assert pages.HEADERS["Cache-Control"] == "no-store"
    assert pages.HEADERS["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ALL)
def test_a_page_can_be_read_by_everybody(name):
    """A language, a title, one heading, a width for phones; the code has a name that is read aloud."""
    seen = Seen(ALL[name])

    assert ("html", {"lang": "en"}) in seen.tags
    assert [tag for tag, _ in seen.tags].count("title") == [tag for tag, _ in seen.tags].count("h1") == 1
    assert ("meta", {"name": "viewport", "content": "width=device-width,initial-scale=1"}) in seen.tags
    assert ("meta", {"charset": "utf-8"}) in seen.tags
    assert ALL[name].startswith("<!doctype html>")
    if "code" in [tag for tag, _ in seen.tags]:
        assert ("code", {"aria-label": "Confirmation code"}) in seen.tags


def test_only_the_page_that_waits_shows_a_code():
    """It says what to do with it, and what to do when nobody asked for it."""
    assert "AB12C-DE34F" in Seen(ALL["awaiting"]).texts
    assert "without the code the access is revoked" in ALL["awaiting"]
    assert "<code" not in ALL["connected"] + ALL["failed"]


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if hasattr(kind, "sentence")])
def test_every_error_has_a_page(kind):
    """Its sentence, and its code for support."""
    texts = Seen(pages.failed(kind.sentence, kind.code)).texts

    assert kind.sentence in texts
    assert f"Reference for support: {kind.code}" in texts
