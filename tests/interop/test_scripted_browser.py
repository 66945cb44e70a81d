"""The scripted browser keeps cookies as a real one does; a lax one would hide a fault of the product."""

import httpx
import pytest

from infra.local.browser import Browser, BrowserError, Cookies, Page, is_loopback

APP = "http://127.0.0.1:8000/callback/dot"
OTHER_PORT = "http://127.0.0.1:9000/"
ELSEWHERE = "http://provider.localhost:9000/"
HOST_COOKIE = "__Host-qc-abc123=v; Secure; HttpOnly; Path=/; SameSite=Lax"


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def cookies(clock: Hands) -> Cookies:
    return Cookies(clock)


def test_a_secure_host_cookie_goes_back_to_loopback_over_http(cookies: Cookies) -> None:
    """As in Chromium, and unlike in httpx's jar: loopback counts as trustworthy, on every port of the host."""
    cookies.set(APP, HOST_COOKIE)

    assert cookies.header_for(APP, "GET", ELSEWHERE) == "__Host-qc-abc123=v"
    assert cookies.header_for(OTHER_PORT, "GET", None) == "__Host-qc-abc123=v"
    assert cookies.header_for(ELSEWHERE, "GET", None) is None
    assert cookies.named("__Host-qc-abc123").http_only


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("__Host-a=v; Path=/", "Secure"),
        ("__Host-a=v; Secure", "Path"),
        ("__Host-a=v; Secure; Path=/callback", "Path"),
        ("__Host-a=v; Secure; Path=/; Domain=127.0.0.1", "no Domain"),
        ("__HOST-a=v; Path=/", "Secure"),
        ("__Secure-a=v; Path=/", "Secure"),
        ("a=v; SameSite=None", "without Secure"),
        ("a=v; Domain=example.com", "another host"),
        ("=v; Path=/", "no name"),
        (f"a={'v' * 5000}", "too long"),
    ],
)
def test_a_cookie_that_breaks_a_rule_is_not_kept(cookies: Cookies, header: str, why: str) -> None:
    """It is refused by name and reason, and nothing is sent."""
    cookies.set(APP, header)

    assert cookies.header_for(APP, "GET", None) is None
    assert len(cookies.refused) == 1
    assert why in cookies.refused[0]


def test_a_secure_cookie_needs_a_trustworthy_origin(cookies: Cookies) -> None:
    """Plain http from elsewhere sets none, and gets none."""
    cookies.set("http://app.example/", "a=v; Secure; Path=/")
    cookies.set("https://app.example/", "b=v; Secure; Path=/")

    assert cookies.header_for("http://app.example/", "GET", None) is None
    assert cookies.header_for("https://app.example/", "GET", None) == "b=v"


@pytest.mark.parametrize(
    ("same_site", "method", "sent"),
    [
        ("Lax", "GET", True),
        ("Lax", "POST", False),
        ("Strict", "GET", False),
        ("Strict", "POST", False),
        ("None", "GET", True),
        ("None", "POST", True),
        ("", "POST", False),
    ],
)
def test_same_site_decides_on_what_comes_from_another_site(
    cookies: Cookies, same_site: str, method: str, sent: bool
) -> None:
    """A form_post from a provider carries only None; from the same site everything goes; no attribute means Lax."""
    cookies.set(APP, f"a=v; Secure; Path=/; SameSite={same_site}")

    assert (cookies.header_for(APP, method, ELSEWHERE) is not None) is sent
    assert cookies.header_for(APP, method, OTHER_PORT) == "a=v"


def test_a_cookie_ends_with_its_clock(cookies: Cookies, clock: Hands) -> None:
    """Max-Age runs on the clock that was given, is stronger than Expires, and 0 deletes."""
    cookies.set(APP, "a=v; Path=/; Max-Age=900; Expires=Thu, 01 Jan 1970 00:00:00 GMT")
    cookies.set(APP, "b=v; Path=/; Max-Age=900")
    cookies.set(APP, "b=; Path=/; Max-Age=0")

    clock.now += 899
    assert cookies.names() == ["a"]
    clock.now += 1
    assert cookies.names() == []


def test_a_path_limits_where_a_cookie_goes(cookies: Cookies) -> None:
    """Without Path it is the folder of the address; the longest path goes first."""
    cookies.set(APP, "a=1")
    cookies.set(APP, "b=2; Path=/")

    assert cookies.header_for("http://127.0.0.1:8000/callback/other", "GET", None) == "a=1; b=2"
    assert cookies.header_for("http://127.0.0.1:8000/callbacks", "GET", None) == "b=2"


def test_a_form_is_read_with_its_hidden_fields_and_buttons() -> None:
    """Fields keep what the page put into them; unchecked boxes and plain buttons are left out."""
    page = Page(
        APP,
        200,
        httpx.Headers(),
        """<title>t</title><h1>Code <b aria-label="The code"> AB-12 </b></h1>
        <form method=post action="/go?x=1"><input type=hidden name=csrf value="a&amp;b"><input name=user>
        <input type=checkbox name=no><input type=checkbox name=yes checked><textarea name=note>hi</textarea>
        <button name=allow value=1>Yes</button><input type=submit value=No></form>""",
        (),
    )

    form = page.form_with("csrf")

    assert (form.method, form.action) == ("POST", "/go?x=1")
    assert form.fields == {"csrf": "a&b", "user": "", "yes": "on", "note": "hi"}
    assert form.buttons == [("allow", "1"), ("", "No")]
    assert page.labelled("The code") == "AB-12"
    assert page.words == "Code AB-12 hi Yes"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "a.localhost"])
def test_loopback_is_what_chromium_takes_for_it(host: str) -> None:
    """The whole of 127/8, ::1, and the names that may never leave the machine."""
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "127.0.0.1.example", ""])
def test_what_only_looks_like_loopback_is_not(host: str) -> None:
    """A name under somebody's domain is that somebody's."""
    assert not is_loopback(host)


def test_it_talks_to_loopback_only_and_says_no_query() -> None:
    """A test can never reach a real provider by mistake, and its complaint holds no secret."""
    with Browser() as browser, pytest.raises(BrowserError) as refused:
        browser.open("https://app.example/done?code=s3cret")

    assert "s3cret" not in str(refused.value)
