"""The pages a browser sees: static, escaped, without script, and nothing on them but what we put there."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from quitclaim.domain import errors
from quitclaim.runtime import pages

HOSTILE = """<script>alert(1)</script>"'&<img src=x onerror=alert(1)>{{7*7}}{% raw %}</style><!--"""
MANUAL = "https://acme.example.com/apps?a=1&b=2"


def hostile_error() -> errors.QuitclaimError:
    """Its words are markup."""
    error = errors.QuitclaimError()
    vars(error).update(code=HOSTILE, sentence=HOSTILE)
    return error


ALL = {
    "awaiting": pages.awaiting("AB12C-DE34F", "Acme & Sons"),
    "awaiting, nameless": pages.awaiting("AB12C-DE34F"),
    "in progress": pages.in_progress("Acme & Sons"),
    "in progress, nameless": pages.in_progress(),
    "connected": pages.connected("Acme & Sons"),
    "connected, nameless": pages.connected(),
    "failed": pages.failed(errors.StateInvalidError()),
    "removal": pages.removal("Acme & Sons", MANUAL),
    "removal, no page": pages.removal("Acme & Sons", None),
    "removal, nameless": pages.removal(None, MANUAL, errors.ExchangeUnconfirmedError()),
    "hostile code": pages.awaiting(HOSTILE, HOSTILE),
    "hostile name": pages.connected(HOSTILE),
    "hostile error": pages.failed(hostile_error()),
    "hostile removal": pages.removal(HOSTILE, f'https://x.example/"><script>{HOSTILE}', hostile_error()),
}
VOID = {"meta"}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main"),
    *("svg", "path", "h1", "p", "ol", "li", "output", "a"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "class"),
    *("viewbox", "aria-hidden", "d", "aria-label", "href", "rel"),
}


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

    assert {tag for tag, _ in seen.tags} <= TAGS
    assert {attribute for _, attributes in seen.tags for attribute in attributes} <= ATTRIBUTES
    assert seen.open == []
    assert "<script" not in ALL[name].lower()
    assert not re.search(r"url\(|@import|expression\(", pages.STYLE)


def test_what_is_put_into_a_page_is_text():
    """Names, sentences, codes and addresses are shown as they are."""
    texts = {name: " ".join(Seen(page).texts) for name, page in ALL.items() if name.startswith("hostile")}

    assert {name: text.count(HOSTILE) for name, text in texts.items()} == {
        "hostile code": 2,
        "hostile name": 2,
        "hostile error": 2,
        "hostile removal": 7,
    }
    (link,) = [attributes for tag, attributes in Seen(ALL["hostile removal"]).tags if tag == "a"]
    assert link["href"] == f'https://x.example/"><script>{HOSTILE}'


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
    assert ("meta", {"name": "robots", "content": "noindex"}) in seen.tags
    assert ALL[name].startswith("<!doctype html>")
    if "output" in [tag for tag, _ in seen.tags]:
        assert ("output", {"aria-label": "Confirmation code"}) in seen.tags


def test_only_the_page_that_waits_shows_a_code():
    """It says what to do with it, and what to do when nobody asked for it."""
    assert "AB12C-DE34F" in Seen(ALL["awaiting"]).texts
    assert "Without the code the access is revoked" in ALL["awaiting"]
    assert "<output" not in "".join(page for name, page in ALL.items() if "code" not in name and "awaiting" not in name)


KINDS = [kind for kind in vars(errors).values() if hasattr(kind, "sentence")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_page(kind):
    """What happened, what to do now, and its code for support; no page promises what is not so."""
    error = kind.__new__(kind)
    errors.QuitclaimError.__init__(error)

    texts = [text.strip() for text in Seen(pages.failed(error)).texts if text.strip()]

    assert f"Reference for support: {kind.code}" in texts
    assert len(texts) == 6, texts  # title, style, heading, what, now what, code


def test_the_removal_page_names_the_providers_own_page_and_how_to_tell_the_app():
    """The link leads there and nowhere else; without a page the words say where to look."""
    linked, unlinked = (Seen(ALL[name]) for name in ("removal", "removal, no page"))

    (link,) = [attributes for tag, attributes in linked.tags if tag == "a"]
    assert link == {"class": "go", "href": MANUAL, "rel": "noopener noreferrer"}
    assert "This leads to acme.example.com." in " ".join(linked.texts)
    assert "a" not in [tag for tag, _ in unlinked.tags]
    assert "account's settings" in " ".join(unlinked.texts)
    for seen in (linked, unlinked):
        assert "confirm there that you removed the access" in " ".join(seen.texts)
        assert "Acme & Sons" in " ".join(seen.texts)


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_the_owner_alone_can_end_leads_to_the_removal_page(kind):
    """Three errors; of every other the failure page tells."""
    error = kind.__new__(kind)
    errors.QuitclaimError.__init__(error)
    owners = ("EXCHANGE_UNCONFIRMED", "OAUTH_CALLBACK_RECOVERY_REQUIRED", "PERMISSION_REMOVAL_REQUIRED")

    assert pages.needs_removal(error) == (kind.code in owners)
