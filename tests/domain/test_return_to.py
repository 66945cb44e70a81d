"""Where a finished connect may send the browser: more than two hundred ways to mean another place, none taken (S-7)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quitclaim.domain.errors import ReturnToInvalidError
from quitclaim.domain.return_to import checked_return_to, origin_of, with_outcome

APP = "https://app.example"
ORIGINS = frozenset({APP, "https://app.example:8443", "http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]"})
SURE = re.compile(
    r"https://(?i:app\.example)(:8443)?([/?][\x21\x22\x24-\x5b\x5d-\x7e]*)?"
    r"|http://((?i:localhost):3000|127\.0\.0\.1:8000|\[::1\])([/?][\x21\x22\x24-\x5b\x5d-\x7e]*)?"
)
"""
What every reader of URLs understands in one way: our origin whole, then nothing, a path or a query, in plain printable
ASCII without # and backslash. Written apart from the rule, it judges whatever the rule accepts.
"""

ACCEPTED = [
    APP,
    f"{APP}/",
    f"{APP}/done",
    f"{APP}/done/",
    f"{APP}/a/b/c",
    f"{APP}?a=1",
    f"{APP}/?a=1&b=2",
    f"{APP}/done?next=https://evil.example/",
    f"{APP}/done?next=//evil.example",
    f"{APP}/%2F%2Fevil.example",
    f"{APP}//evil.example",
    f"{APP}/@evil.example",
    f"{APP}/.evil.example",
    f"{APP}/:443",
    f"{APP}/~ann/a_b-c.d;x=1",
    f"{APP}/%E4%BD%A0",
    f"{APP}/?q=a+b%20c",
    "https://APP.example/",
    "https://App.Example:8443/x",
    "https://app.example:8443",
    "https://app.example:8443/done?a=1",
    "http://localhost:3000/done",
    "http://127.0.0.1:8000/done",
    "http://[::1]/done",
    f"{APP}/{'x' * (2_000 - len(APP) - 1)}",
]

OTHER_HOSTS = [
    "evil.example",
    "app.example.evil.example",
    "app.example.",
    "app.example..",
    ".app.example",
    "app.example,evil.example",
    "app.example;evil.example",
    "xapp.example",
    "x.app.example",
    "app.examplex",
    "app-example",
    "app.example-evil.example",
    "app_example",
    "app.exampl",
    "example",
    "localhost",
    "127.0.0.1",
    "0x7f000001",
    "2130706433",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "app.example%00.evil.example",
    "app.example%2eevil.example",
    "app.example%2Fevil.example",
    "app.example%23.evil.example",
    "app.example%40evil.example",
    "%61pp.example",
    "app%2Eexample",
    "app.example%20",
    "app\u3002example",
    "app\uff0eexample",
    "\uff41pp.example",
    "\u24b6pp.example",
    "app.ex\u0430mple",
    "app.example\u2044evil.example",
    "app.example\uff0fevil.example",
    "app.example\uff1a443",
    "evil.example\u2215app.example",
    "app.exam\u00adple",
    "app.example\u200b",
    "\u202eelpmaxe.ppa",
    "xn--app-example",
    "app.example\u0000",
    "\u2025app.example",
]
USERINFO = [
    "app.example@evil.example",
    "app.example:@evil.example",
    "app.example:443@evil.example",
    "app.example%40@evil.example",
    "app.example\\@evil.example",
    "evil.example@app.example",
    "evil.example:pass@app.example",
    "@app.example",
    ":@app.example",
    "user:pa@ss@app.example",
    "app.example#@evil.example",
    "app.example?@evil.example#",
    "evil.example#@app.example",
    "evil.example\\@app.example",
    "evil.example\\.app.example",
    "evil.example\t@app.example",
]
PORTS = [
    "app.example:",
    "app.example:0",
    "app.example:80",
    "app.example:443",
    "app.example:0443",
    "app.example:8444",
    "app.example:08443",
    "app.example:+8443",
    "app.example:-8443",
    "app.example:8443:8443",
    "app.example:8443x",
    "app.example:x",
    "app.example:65536",
    "app.example:99999999999",
    "app.example:8443.",
    "app.example:8443@evil.example",
    "app.example: 8443",
    "app.example:\uff18443",
    "app.example:\u0668443",
    "app.example:8443%20",
    "localhost:3000",
    "localhost:3001",
    "127.0.0.1:8000",
    "[::1]:80",
    "[::1",
    "::1]",
    "[app.example]",
]
SCHEMES = [
    "",
    "//",
    "///",
    "////",
    "/",
    "\\",
    "\\\\",
    "/\\",
    "\\/",
    "http://",
    "HTTP://",
    "HTTPS://",
    "Https://",
    "https:",
    "https:/",
    "https:///",
    "https:////",
    "https:\\\\",
    "https:/\\",
    "https:\\/",
    "https://\\",
    "https:// ",
    "https ://",
    "https\t://",
    "https:\n//",
    "ht\ntps://",
    "ht\ttps://",
    " https://",
    "\thttps://",
    "\nhttps://",
    "\x00https://",
    "\x01https://",
    "\ufeffhttps://",
    "\u00a0https://",
    "\uff48ttps://",
    "https\uff1a//",
    "https:\uff0f\uff0f",
    "xhttps://",
    "+https://",
    "https+x://",
    "ftp://",
    "ws://",
    "wss://",
    "file://",
    "file:///",
    "blob:https://",
    "view-source:https://",
    "filesystem:https://",
    "intent://",
    "app://",
    "javascript:https://",
    "javascript://",
    "data:text/html,https://",
    "https%3A//",
    "https:%2F%2F",
    "https://%2F",
    "https://?",
    "https://#",
    "https://;@",
]
TAILS = [
    " ",
    "/ ",
    "/a b",
    "\t",
    "/\t",
    "\n",
    "/\n",
    "/\r",
    "/\r\nLocation: https://evil.example",
    "/\r\nSet-Cookie: a=b",
    "/%\x00",
    "\x00",
    "/\x00",
    "/\x7f",
    "/\x85",
    "\\",
    "/\\",
    "/\\evil.example",
    "\\evil.example",
    "\\@evil.example",
    "#",
    "/#",
    "/#@evil.example",
    "/#/done",
    "/?a#b",
    "/\xe4",
    "/\u2028",
    "/\u202e",
    "/\ufeff",
    "/\U0001f600",
    "/?q=\xe4",
    f"/{'x' * 2_000}",
    f"/?{'x' * 2_000}",
]
SCRIPTS = [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "java\tscript:alert(1)",
    "\x01javascript:alert(1)",
    "javascript:alert(1)//https://app.example",
    "javascript://app.example/%0aalert(1)",
    "data:text/html,<script>alert(1)</script>",
    "data:text/html;base64,PHNjcmlwdD4=",
    "vbscript:msgbox(1)",
    "about:blank",
    "mailto:a@app.example",
    "tel:1",
    "done",
    "/done",
    "//evil.example/done",
    "///evil.example",
    "/%2f/evil.example",
    "/%5cevil.example",
    "/../done",
    "./done",
    "..",
    "?a=1",
    "#a",
    "",
    " ",
    "\x00",
    "https",
    "https:",
    "https://",
    "https:///",
    "https:///done",
    "https://?",
    "https://#",
    "https://:443",
    "https://@",
    "https://[",
    "https://]",
    "https://[]",
    "https://%",
    "null",
    "*",
    "https://*",
    "https://*.example",
    "https://app.*",
    "https://app.example,https://evil.example",
    "https://app.example https://evil.example",
    "<https://app.example>",
    "'https://app.example'",
]
HOSTILE = list(
    dict.fromkeys(
        [
            *(f"https://{host}/done" for host in (*OTHER_HOSTS, *USERINFO, *PORTS)),
            *(f"http://{host}/done" for host in ("app.example", "app.example:8443", "localhost", "127.0.0.1:8001")),
            *(f"{scheme}app.example/done" for scheme in SCHEMES),
            *(f"{APP}{tail}" for tail in TAILS),
            *SCRIPTS,
        ]
    )
)


def test_S_7_there_are_more_than_two_hundred_payloads():
    """And none of them is one that everybody reads as ours."""
    assert len(HOSTILE) > 200
    assert [url for url in HOSTILE if SURE.fullmatch(url) and len(url) <= 2_000] == []


@pytest.mark.rule("S-7", "M-4")
@pytest.mark.parametrize("url", HOSTILE, ids=ascii)
def test_S_7_another_place_is_refused(url):
    """With the parameter to set, and without repeating what was asked for."""
    with pytest.raises(ReturnToInvalidError) as refused:
        checked_return_to(url, ORIGINS)

    assert refused.value.details == {}
    assert "ReturnOrigins" in str(refused.value)


@pytest.mark.parametrize("url", ACCEPTED, ids=ascii)
def test_a_place_of_ours_is_taken_as_it_is(url):
    """Whatever stands behind the origin is the app's own matter."""
    assert SURE.fullmatch(url)
    assert checked_return_to(url, ORIGINS) == url


@pytest.mark.rule("M-4")
@pytest.mark.parametrize("url", [*HOSTILE, *ACCEPTED], ids=ascii)
def test_M_4_nowhere_is_taken_where_nothing_is_allowed(url):
    """The default of the template: our own result page for everybody."""
    with pytest.raises(ReturnToInvalidError):
        checked_return_to(url, frozenset())


def test_no_return_target_is_none():
    """The result page then."""
    assert checked_return_to(None, ORIGINS) is None


@pytest.mark.parametrize("value", [1, True, b"https://app.example", [APP], {"url": APP}, ""], ids=repr)
def test_what_is_no_text_is_refused(value):
    """JSON may bring anything."""
    with pytest.raises(ReturnToInvalidError):
        checked_return_to(value, ORIGINS)


PIECES = st.sampled_from(
    [
        *(
            APP,
            "https:",
            "http:",
            "//",
            "/",
            "\\",
            "@",
            ":",
            "#",
            "?",
            "%2F",
            "%5c",
            "..",
            ".",
            " ",
            "\t",
            "\n",
            "\x00",
        ),
        *("app.example", "evil.example", "localhost:3000", "[::1]", "8443", "443", "\uff0f", "\u3002", "a", "HTTPS"),
    ]
)


@pytest.mark.rule("S-7")
@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=60).map(lambda text: APP + text))
def test_S_7_whatever_is_taken_is_ours_by_every_reading(url):
    """Random pieces of URLs in any order: the rule accepts nothing beyond the one shape that all readers share."""
    try:
        checked_return_to(url, ORIGINS)
    except ReturnToInvalidError:
        return

    assert SURE.fullmatch(url)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://app.example", APP),
        ("https://app.example/x?y", APP),
        ("https://APP.EXAMPLE/x", APP),
        ("https://app.example:8443/", "https://app.example:8443"),
        ("https://[2001:db8::1]/", "https://[2001:db8::1]"),
        ("http://localhost/", "http://localhost"),
        ("http://localhost:3000/", "http://localhost:3000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("http://app.example/", None),
        ("http://localhost.evil.example/", None),
        ("http://127.0.0.2/", None),
        ("http://[::2]/", None),
        ("ftp://app.example/", None),
        ("https://user@app.example/", None),
        ("https://user:password@app.example/", None),
        ("https://app%2Eexample/", None),
        ("https://app.example\\@evil.example/", None),
        ("https://app.example:x/", None),
        ("https:///app.example/", None),
    ],
)
def test_an_origin_is_scheme_host_and_port(url, origin):
    """Over TLS, or on this machine."""
    assert origin_of(url) == origin


# --- the way back ----------------------------------------------------------------------------------------------------

OUTCOME = {"connection_id": "google", "status": "ready"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"{APP}/done", f"{APP}/done?connection_id=google&status=ready"),
        (APP, f"{APP}?connection_id=google&status=ready"),
        (f"{APP}/done?a=1", f"{APP}/done?a=1&connection_id=google&status=ready"),
        (f"{APP}/done?a=", f"{APP}/done?a=&connection_id=google&status=ready"),
        (f"{APP}/done?a=1&a=2", f"{APP}/done?a=1&a=2&connection_id=google&status=ready"),
        (f"{APP}/?q=a+b%20c%26d", f"{APP}/?q=a+b+c%26d&connection_id=google&status=ready"),
    ],
)
def test_the_outcome_is_added_to_the_query(url, expected):
    """What the app put there stays."""
    assert with_outcome(url, OUTCOME) == expected


def test_what_pretends_to_be_the_outcome_is_replaced():
    """A start cannot make the app believe in an outcome that was not."""
    url = f"{APP}/?status=ready&a=1&connection_id=x&%73tatus=ready"

    assert with_outcome(url, {"connection_id": "c", "status": "failed"}) == f"{APP}/?a=1&connection_id=c&status=failed"


@pytest.mark.parametrize("value", ["a&status=ready", "a=b", "a#b", "a b", "\r\nLocation: x", "\xe4", "%"], ids=ascii)
def test_an_outcome_is_one_value_whatever_it_holds(value):
    """Encoded, so it neither ends its parameter nor the header that it stands in."""
    url = with_outcome(f"{APP}/done", {"code": value})

    assert re.fullmatch(r"https://app\.example/done\?code=[A-Za-z0-9%+._-]*", url)


@pytest.mark.parametrize("url", ACCEPTED, ids=ascii)
def test_the_outcome_does_not_change_where_the_browser_goes(url):
    """The origin stays; so does the path."""
    told = with_outcome(url, OUTCOME)

    assert origin_of(told[:2_000]) == origin_of(url)
    assert told.partition("?")[0] == url.partition("?")[0]
