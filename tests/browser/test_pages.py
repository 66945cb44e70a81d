"""The pages that Quitclaim shows a person, in Chromium, on the local stack: read, looked at, and gone through."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from infra.local.life import Life
from infra.local.stack import LocalStack
from tests.browser.conftest import ReturnPage

pytestmark = pytest.mark.timeout(240)  # the first test starts stack and browser

DESKTOP: Final = (1280, 800, False)
PHONE: Final = (390, 844, True)
NARROW: Final = (320, 640, True)
"""What WCAG 2.2, 1.4.10 asks a page to reflow to."""
SCREENS: Final = {"desktop": DESKTOP, "phone": PHONE}
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CODE: Final = r"[0-9A-Z]{5}-[0-9A-Z]{5}"

type Look = tuple[int, int, bool]


class Person:
    """Somebody at a browser that runs no page's script."""

    def __init__(self, chromium: Chrome, stack: LocalStack) -> None:
        self.chromium, self.stack = chromium, stack

    def looks_on(self, screen: Look, scheme: str = "light") -> None:
        """A screen of this size, by day or by night."""
        width, height, mobile = screen
        metrics = {"width": width, "height": height, "mobile": mobile, "deviceScaleFactor": 1}
        self.chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def connects(self, life: Life, *, allow: bool = True, **start: Any) -> None:
        """Open the connect link, sign in at the provider, and say yes or no."""
        driver = self.chromium
        driver.get(life.start(**start))
        driver.find_element(By.NAME, "username").send_keys(life.username)
        driver.find_element(By.NAME, "password").send_keys(life.provider.accounts[life.username]["password"])
        driver.find_element(By.NAME, "password").send_keys(Keys.ENTER)
        answer = "input[name=allow]" if allow else "input[type=submit]:not([name=allow])"
        wait = WebDriverWait(driver, 15)
        wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, answer))[0].click()
        wait.until(lambda _: urlsplit(driver.current_url).netloc != urlsplit(self.stack.provider_url).netloc)

    @property
    def reads(self) -> str:
        """The words on the page."""
        return self.chromium.find_element(By.TAG_NAME, "body").text

    def style(self, element: str, name: str) -> str:
        """The computed style of an element."""
        return self.chromium.find_element(By.CSS_SELECTOR, element).value_of_css_property(name)


@pytest.fixture
def person(chromium: Chrome, stack: LocalStack) -> Iterator[Person]:
    """A person with a new browser, in which pages run no script."""
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    chromium.get_log("browser")  # what others left
    person = Person(chromium, stack)
    person.looks_on(DESKTOP)
    yield person
    chromium.get("about:blank")


def show_code(person: Person, a_life: Callable[[], Life]) -> None:
    """The result page: the grant waits for its owner."""
    person.connects(a_life())


def show_failure(person: Person, a_life: Callable[[], Life]) -> None:
    """The failure page: the owner said no at the provider."""
    person.connects(a_life(), allow=False)


def show_removal(person: Person, a_life: Callable[[], Life]) -> None:
    """The removal page of a provider that has a page of its own for it."""
    person.chromium.get(f"{person.stack.base_url}/removal/spotify")


def show_removal_by_words(person: Person, a_life: Callable[[], Life]) -> None:
    """The removal page of a provider whose own page nobody has found."""
    person.chromium.get(f"{person.stack.base_url}/removal/google")


PAGES: Final = {
    "result": show_code,
    "failure": show_failure,
    "removal": show_removal,
    "removal-by-words": show_removal_by_words,
}
IN_THE_DOCUMENTATION: Final = ("result", "failure", "removal")


# --- what they say ---------------------------------------------------------------------------------------------------


def test_the_code_on_the_result_page_finishes_the_connection(person, a_life):
    """Without a return page: typed into the app, it makes the connection ready. The page ran no script."""
    life = a_life()

    person.connects(life)

    code = person.chromium.find_element(By.CSS_SELECTOR, "output[aria-label='Confirmation code']").text
    assert re.fullmatch(CODE, code)
    assert person.chromium.title == "One more step"
    assert "ten minutes" in person.reads
    assert life.confirm(code).json()["state"] == "ready"


@pytest.mark.rule("S-25")
def test_the_app_is_given_an_id_a_status_and_a_code_and_nothing_else(person, a_life, app_page: ReturnPage):
    """In the address of its own page, whatever that address held before; no Referer says where the browser was."""
    life = a_life()

    person.connects(life, return_to=f"{app_page.url}?theirs=1")

    path, headers = app_page.seen[-1]
    given = parse_qsl(urlsplit(path).query, keep_blank_values=True)
    assert [name for name, _ in given] == ["theirs", "connection_id", "status", "confirm_code"]
    assert dict(given) | {"confirm_code": ""} == {
        "theirs": "1",
        "connection_id": "dot",
        "status": "awaiting_confirmation",
        "confirm_code": "",
    }
    assert "referer" not in headers
    assert life.confirm(dict(given)["confirm_code"]).json()["state"] == "ready"


def test_the_app_is_told_that_it_failed_and_asks_why(person, a_life, app_page: ReturnPage):
    """The id and the status; the connection itself says the rest."""
    life = a_life()

    person.connects(life, allow=False, return_to=app_page.url)

    given = dict(parse_qsl(urlsplit(app_page.seen[-1][0]).query))
    assert given == {"connection_id": "dot", "status": "failed"}
    assert (life.state, life.view()["failure"]) == ("failed", "denied")


def test_the_failure_page_says_what_happened_and_what_to_do(person, a_life):
    """Nothing that came with the request stands on it."""
    show_failure(person, a_life)

    assert person.chromium.title == "Not connected"
    assert "The provider did not grant access." in person.reads
    assert "Go back to the app and start again." in person.reads
    assert "OAUTH_CALLBACK_REJECTED" in person.reads
    assert "access_denied" not in person.chromium.page_source


@pytest.mark.rule("S-25")
@pytest.mark.parametrize("path", ["/callback/dot", "/connect/{}", "/removal/{}", "/removal/spotify"])
def test_what_an_address_carries_is_on_no_page(person, path):
    """Neither as text nor as markup: the pages know what we put there."""
    hostile = "%3Cscript%3Ealert(1)%3C%2Fscript%3Ecanary"
    address = path.format("canary") + f"?error=canary&state={hostile}&error_description={hostile}"

    person.chromium.get(person.stack.base_url + address)

    assert person.chromium.find_element(By.TAG_NAME, "h1").is_displayed()
    assert "canary" not in person.chromium.page_source


def test_the_removal_page_leads_to_the_providers_own(person, a_life):
    """One link, reached by the keyboard, with a focus that is seen; then the app wants to hear of it."""
    show_removal(person, a_life)
    body = person.chromium.find_element(By.TAG_NAME, "body")

    body.send_keys(Keys.TAB)

    link = person.chromium.switch_to.active_element
    assert link.get_attribute("href") == "https://www.spotify.com/account/apps/"
    assert link.value_of_css_property("outline-style") == "solid"
    assert float(link.value_of_css_property("outline-width").removesuffix("px")) >= 2
    assert "confirm there that you removed the access" in person.reads


# --- how they look ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(person, a_life, axe, name, screen, scheme):
    """No rule of axe-core is broken (contrast, labels, headings, landmarks, zoom), in no scheme, on no screen."""
    person.looks_on(SCREENS[screen], scheme)
    PAGES[name](person, a_life)
    person.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    person.chromium.execute_script(axe)
    asked = {"runOnly": {"type": "tag", "values": RULES}}
    told = person.chromium.execute_async_script(
        "const done = arguments[1]; axe.run(document, arguments[0]).then(done, fault => done({fault: String(fault)}))",
        asked,
    )

    broken = [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in told["violations"]]
    assert broken == []
    unsure = {rule["id"] for rule in told["incomplete"]}
    assert "color-contrast" not in unsure
    assert {"color-contrast", "document-title", "html-has-lang"} <= {rule["id"] for rule in told["passes"]}


@pytest.mark.parametrize("screen", [*SCREENS.values(), NARROW], ids=str)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits(person, a_life, name, screen):
    """Nothing is to be scrolled sideways, text is of a size to be read, and a finger hits the link."""
    person.looks_on(screen)
    PAGES[name](person, a_life)

    def layout() -> dict[str, Any]:
        return person.chromium.execute_cdp_cmd("Page.getLayoutMetrics", {})

    # A phone lays a page out as wide as a desk is until it has read its viewport.
    WebDriverWait(person.chromium, 15).until(lambda _: layout()["cssLayoutViewport"]["clientWidth"] <= screen[0])
    assert layout()["cssContentSize"]["width"] <= screen[0]
    for text in person.chromium.find_elements(By.CSS_SELECTOR, "p, li"):
        assert float(text.value_of_css_property("font-size").removesuffix("px")) >= 15
    for link in person.chromium.find_elements(By.TAG_NAME, "a"):
        assert link.size["height"] >= 44


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_lets_the_style_in_and_nobody_complains(person, a_life, name):
    """The card is white on grey: the style counts. The browser reports nothing that was blocked."""
    PAGES[name](person, a_life)

    assert person.style("main", "background-color") == "rgba(255, 255, 255, 1)"
    assert person.style("main", "max-width") == "544px"
    complaints = [line for line in person.chromium.get_log("browser") if "favicon" not in line["message"]]
    assert [line for line in complaints if "Content Security Policy" in line["message"]] == []


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", IN_THE_DOCUMENTATION)
def test_screenshots(person, a_life, pictures: Path, name, screen):
    """The three pages at both widths, as the documentation shows them (`make screenshots`)."""
    person.looks_on(SCREENS[screen])
    PAGES[name](person, a_life)

    picture = pictures / f"{name}-{screen}.png"
    person.chromium.save_screenshot(str(picture))

    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 5_000
