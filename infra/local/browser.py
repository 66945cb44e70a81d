"""
A scripted browser: keeps cookies as Chromium does, follows redirects, fills in forms. Plain HTTP on loopback only.

httpx's own jar never sends a Secure cookie back over http, not even to loopback, where Chromium does. So the cookies
are kept here, and the rules that protect the product stay in force: `Secure`, the `__Host-` and `__Secure-` prefixes,
`SameSite`, `Path`, `Domain` and the life of a cookie. Nothing is sent to a host that is not loopback: a redirect that
leads away ends the walk, and the page says where it would have gone.
"""

import ipaddress
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import httpx

REDIRECTS = frozenset({301, 302, 303, 307, 308})
LONGEST_WALK = 20
LONGEST_COOKIE = 4096
SAFE_METHODS = frozenset({"GET", "HEAD"})


class BrowserError(Exception):
    """The walk cannot go on. The message names paths only: a query may hold a code or a state."""


# --- pages and forms -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """A form as the page sent it: what a submit would send if nothing were typed."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)
    """Name and value of each submit button; the name of some is empty."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the walk ended at."""

    url: str
    status: int
    headers: httpx.Headers
    text: str
    walked: tuple[str, ...]
    """One line a request on the way: method, host, path and status; no query."""
    left_for: str | None = None
    """The target of a redirect that leads away from loopback; `url`, `status` and `headers` are of the redirect."""

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the address it ended at (or would have gone to)."""
        return dict(parse_qsl(urlsplit(self.left_for or self.url).query, keep_blank_values=True))

    @property
    def forms(self) -> list[Form]:
        """The forms of the page, in its order."""
        return _Reader.of(self.text).forms

    @property
    def words(self) -> str:
        """What a person reads on it."""
        return " ".join(" ".join(_Reader.of(self.text).words).split())

    def form_with(self, name: str) -> Form:
        """The form that has a field or a button called *name*."""
        for form in self.forms:
            if name in form.fields or any(name == button for button, _ in form.buttons):
                return form
        raise BrowserError(f"no form with {name!r} on {urlsplit(self.url).path} ({self.status})")

    def labelled(self, label: str) -> str | None:
        """The text of the element with that `aria-label`, if there is one."""
        return _Reader.of(self.text).by_label.get(label)


class _Reader(HTMLParser):
    """As much of HTML as the pages of this project need."""

    VOID = frozenset(
        {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[Form] = []
        self.words: list[str] = []
        self.by_label: dict[str, str] = {}
        self._open: list[tuple[str, str | None]] = []
        self._in_form = False
        self._area: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        reader = cls()
        reader.feed(text)
        reader.close()
        return reader

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element; take note of forms and their fields."""
        have = {name: value or "" for name, value in attrs}
        if tag not in self.VOID:
            self._open.append((tag, have.get("aria-label")))
        if tag == "form":
            self.forms.append(Form(have.get("action", ""), have.get("method", "get").upper()))
            self._in_form = True
        elif self._in_form and tag in ("input", "button", "textarea"):
            self._field(tag, have, dict(attrs))

    def _field(self, tag: str, have: dict[str, str], attrs: dict[str, str | None]) -> None:
        form, name = self.forms[-1], have.get("name", "")
        kind = have.get("type", "submit" if tag == "button" else "text").lower()
        if tag != "textarea" and kind in ("submit", "image"):
            form.buttons.append((name, have.get("value", "")))
        elif tag == "textarea":
            form.fields[name], self._area = "", name
        elif kind in ("checkbox", "radio"):
            if "checked" in attrs:
                form.fields[name] = have.get("value", "on")
        elif name and kind not in ("button", "reset", "file"):
            form.fields[name] = have.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        """Close the element, and whatever was left open inside it."""
        if tag == "form":
            self._in_form = False
        elif tag == "textarea":
            self._area = None
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at][0] == tag:
                del self._open[at:]
                break

    def handle_data(self, data: str) -> None:
        """Text: of the page, of the labelled elements around it, or of a text area."""
        if self._area is not None and self._in_form:
            self.forms[-1].fields[self._area] += data
        if any(tag in ("script", "style", "title") for tag, _ in self._open):
            return
        self.words.append(data)
        for _, label in self._open:
            if label:
                self.by_label[label] = self.by_label.get(label, "") + data.strip()


# --- cookies -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cookie:
    """One cookie, as RFC 6265bis stores it."""

    name: str
    value: str
    host: str
    host_only: bool
    path: str
    secure: bool
    http_only: bool
    same_site: str
    expires: float | None


def is_loopback(host: str) -> bool:
    """127.0.0.0/8, ::1 and localhost: what Chromium trusts without TLS, and all that this browser talks to."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_trustworthy(url: str) -> bool:
    """May a Secure cookie travel to and from *url*?"""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def site_of(url: str) -> tuple[str, str]:
    """Scheme and registrable domain; the last two labels stand in for the list of public suffixes."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = ".".join(host.split(".")[-2:])
    return parts.scheme, host


class Cookies:
    """The jar. A cookie that breaks a rule is not stored, and `refused` says which and why (never its value)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str, str], Cookie] = {}
        self.refused: list[str] = []

    def names(self) -> list[str]:
        """The names of the cookies that are still alive."""
        return [cookie.name for cookie in self._living()]

    def named(self, name: str) -> Cookie:
        """The living cookie of that name."""
        for cookie in self._living():
            if cookie.name == name:
                return cookie
        raise BrowserError(f"no cookie {name!r}")

    def forget(self, prefix: str) -> int:
        """Drop the cookies whose names begin with *prefix*, as a cleared browser would."""
        gone = [key for key, cookie in self._kept.items() if cookie.name.startswith(prefix)]
        for key in gone:
            del self._kept[key]
        return len(gone)

    def set(self, url: str, header: str, *, cross_site_post: bool = False) -> None:
        """Take one Set-Cookie *header* of an answer from *url*, or refuse it."""
        pair, _, rest = header.partition(";")
        name, equals, value = pair.partition("=")
        name, value = name.strip(), value.strip()
        given = {}
        for attribute in rest.split(";"):
            word, _, content = attribute.partition("=")
            given[word.strip().lower()] = content.strip()
        host = (urlsplit(url).hostname or "").lower()
        domain = given.get("domain", "").lstrip(".").lower()
        path = given.get("path", "")
        path = path if path.startswith("/") else _default_path(urlsplit(url).path)
        same_site = given.get("samesite", "").capitalize()
        cookie = Cookie(
            name=name,
            value=value,
            host=domain or host,
            host_only=not domain,
            path=path,
            secure="secure" in given,
            http_only="httponly" in given,
            same_site=same_site if same_site in ("Lax", "Strict", "None") else "Lax",
            expires=self._end_of(given),
        )
        fault = _fault_of(cookie, url, given, host, has_name=bool(equals and name), cross_site_post=cross_site_post)
        if fault:
            self.refused.append(f"{name}: {fault}")
            return
        key = (cookie.name, cookie.host, cookie.path)
        if cookie.expires is not None and cookie.expires <= self._clock():
            self._kept.pop(key, None)
        else:
            self._kept[key] = cookie

    def header_for(self, url: str, method: str, initiator: str | None) -> str | None:
        """The Cookie header of a top-level navigation to *url* that was begun on the page *initiator*."""
        parts = urlsplit(url)
        host, path = (parts.hostname or "").lower(), parts.path or "/"
        cross_site = initiator is not None and site_of(initiator) != site_of(url)
        sent = [
            cookie
            for cookie in self._living()
            if (host == cookie.host or (not cookie.host_only and host.endswith("." + cookie.host)))
            and _path_matches(path, cookie.path)
            and (not cookie.secure or is_trustworthy(url))
            and not (cross_site and cookie.same_site == "Strict")
            and not (cross_site and cookie.same_site == "Lax" and method not in SAFE_METHODS)
        ]
        sent.sort(key=lambda cookie: -len(cookie.path))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in sent) or None

    def _living(self) -> list[Cookie]:
        now = self._clock()
        return [cookie for cookie in self._kept.values() if cookie.expires is None or cookie.expires > now]

    def _end_of(self, given: Mapping[str, str]) -> float | None:
        """Max-Age goes before Expires (RFC 6265 5.3); neither means the end of the session."""
        if given.get("max-age", "").lstrip("-").isdigit():
            return self._clock() + int(given["max-age"]) if int(given["max-age"]) > 0 else 0.0
        if "expires" in given:
            try:
                return parsedate_to_datetime(given["expires"]).timestamp()
            except ValueError:
                return None
        return None


def _fault_of(
    cookie: Cookie, url: str, given: Mapping[str, str], host: str, *, has_name: bool, cross_site_post: bool
) -> str | None:
    """Why a browser would not store *cookie*."""
    prefix = cookie.name.lower()
    faults = (
        (not has_name, "no name"),
        (len(cookie.name) + len(cookie.value) > LONGEST_COOKIE, "too long"),
        (cookie.secure and not is_trustworthy(url), "Secure, from an origin that is not trustworthy"),
        (cookie.same_site == "None" and not cookie.secure, "SameSite=None without Secure"),
        (cross_site_post and cookie.same_site == "Strict", "SameSite=Strict in a cross-site answer"),
        (prefix.startswith(("__secure-", "__host-")) and not cookie.secure, "its prefix wants Secure"),
        (prefix.startswith("__host-") and given.get("path") != "/", "__Host- wants Path=/"),
        (prefix.startswith("__host-") and "domain" in given, "__Host- wants no Domain"),
        (not cookie.host_only and not _may_set_for(host, cookie.host), "Domain of another host"),
    )
    return next((words for is_so, words in faults if is_so), None)


def _may_set_for(host: str, domain: str) -> bool:
    return host == domain or ("." in domain and host.endswith("." + domain))


def _default_path(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _path_matches(path: str, of_cookie: str) -> bool:
    return path == of_cookie or (
        path.startswith(of_cookie) and (of_cookie.endswith("/") or path[len(of_cookie)] == "/")
    )


# --- the browser ---------------------------------------------------------------------------------------------------


class Browser:
    """One person's browser. *clock* gives seconds: the stack's moved clock, if cookies shall age with it."""

    def __init__(self, clock: Callable[[], float] = time.time, timeout_s: float = 35.0) -> None:
        # The transport alone: httpx's client would keep a second jar, and would log each URL with its query.
        # It speaks no TLS, so it is spared the loading of authorities, which takes longer than a walk.
        self._transport = httpx.HTTPTransport(retries=0, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._timeout = httpx.Timeout(timeout_s).as_dict()
        self.cookies = Cookies(clock)
        self.history: list[str] = []
        """Every address that was visited, queries and all: for a test that hunts for them in the logs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    def open(self, url: str, *, headers: Mapping[str, str] | None = None, follow: bool = True) -> Page:
        """Type *url* into the address bar."""
        return self._walk("GET", url, None, None, headers or {}, follow=follow)

    def click(self, page: Page, url: str, *, follow: bool = True) -> Page:
        """Follow a link of *page*."""
        return self._walk("GET", urljoin(page.url, url), None, page.url, {}, follow=follow)

    def submit(
        self,
        page: Page,
        form: Form,
        values: Mapping[str, str] | None = None,
        *,
        button: str | None = None,
        follow: bool = True,
    ) -> Page:
        """Fill *values* into a *form* of *page* and press its *button* (by name; an unnamed one sends nothing)."""
        content = form.fields | dict(values or {})
        if button is not None:
            pressed = [value for name, value in form.buttons if name == button]
            if not pressed:
                raise BrowserError(f"no button {button!r} on {urlsplit(page.url).path}")
            content[button] = pressed[0]
        target = urljoin(page.url, form.action or page.url)
        if form.method == "GET":
            target = urlunsplit(urlsplit(target)._replace(query=urlencode(content), fragment=""))
            return self._walk("GET", target, None, page.url, {}, follow=follow)
        return self._walk("POST", target, urlencode(content).encode(), page.url, {}, follow=follow)

    def _walk(
        self,
        method: str,
        url: str,
        body: bytes | None,
        initiator: str | None,
        headers: Mapping[str, str],
        *,
        follow: bool,
    ) -> Page:
        walked: list[str] = []
        for _ in range(LONGEST_WALK):
            response = self._send(method, url, body, initiator, headers)
            parts = urlsplit(url)
            walked.append(f"{method} {parts.netloc}{parts.path} {response.status_code}")
            location = response.headers.get("location")
            if response.status_code not in REDIRECTS or location is None or not follow:
                left_for = urljoin(url, location) if location and response.status_code in REDIRECTS else None
                return Page(url, response.status_code, response.headers, response.text, tuple(walked), left_for)
            target = urljoin(url, location)
            if not is_loopback(urlsplit(target).hostname or ""):
                return Page(url, response.status_code, response.headers, response.text, tuple(walked), target)
            if response.status_code == 303 or (response.status_code in (301, 302) and method == "POST"):
                method, body = "HEAD" if method == "HEAD" else "GET", None
            url = target
        raise BrowserError(f"more than {LONGEST_WALK} redirects: {', '.join(walked[-3:])}")

    def _send(
        self, method: str, url: str, body: bytes | None, initiator: str | None, headers: Mapping[str, str]
    ) -> httpx.Response:
        parts = urlsplit(url)
        if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
            raise BrowserError(f"not on loopback: {parts.scheme}://{parts.hostname}")
        self.history.append(url)
        cross_site = initiator is not None and site_of(initiator) != site_of(url)
        sent = {"accept": "text/html,*/*;q=0.8", "user-agent": "quitclaim-scripted-browser", **headers}
        if body is not None:
            sent["content-type"] = "application/x-www-form-urlencoded"
            sent["origin"] = "null" if initiator is None else "://".join(urlsplit(initiator)[:2])
        cookies = self.cookies.header_for(url, method, initiator)
        if cookies:
            sent["cookie"] = cookies
        request = httpx.Request(method, url, headers=sent, content=body, extensions={"timeout": self._timeout})
        try:
            response = self._transport.handle_request(request)
            response.request = request
            response.read()
        except httpx.TransportError as fault:
            raise BrowserError(f"{method} {parts.netloc}{parts.path}: {type(fault).__name__}") from None
        for header in response.headers.get_list("set-cookie"):
            self.cookies.set(url, header, cross_site_post=cross_site and method not in SAFE_METHODS)
        return response
