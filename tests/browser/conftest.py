"""
One Chromium and one local stack for the whole folder: our pages as a person sees them.

Both programs are Debian's (packages `chromium` and `chromium-driver`). Without them these tests are skipped, visibly,
on a developer's machine; in CI they fail.
"""

import http.server
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from infra.local.life import Life, RegisteredClient, register_client
from infra.local.provider.control import ProviderControl
from infra.local.stack import LocalStack
from tests.node_packages import BUILD, absent, installed

HERE: Final = Path(__file__).parent
DRIVERS: Final = ("chromedriver", "/usr/lib/chromium/chromedriver")
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


def program(*names: str) -> str:
    """The first of *names* that is installed."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    return found or absent(f"{names[0]} is not installed: apt-get install chromium chromium-driver")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The browser, without a window, reaching nobody but loopback."""
    options = Options()
    options.binary_location = program(*BROWSERS)
    for argument in (
        "--headless=new",
        "--no-sandbox",  # CI is root, where Chromium's sandbox refuses to start; it sees our own pages only
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(program(*DRIVERS)))
    try:
        driver.set_page_load_timeout(30)
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility rules, as the text of a script."""
    program("npm")
    return (installed(HERE / "axe", BUILD / "browser" / "axe") / "node_modules/axe-core/axe.min.js").read_text()


@dataclass
class ReturnPage:
    """The app's page behind `return_to`: remembers who came, with what."""

    url: str
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path with query, and headers, of each visit."""


@pytest.fixture(scope="session")
def app_page() -> Iterator[ReturnPage]:
    """A page of the app, on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/done"):
                page.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>App</title><p>Welcome back")

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    page = ReturnPage(f"http://127.0.0.1:{server.server_port}/done")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield page
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, app_page: ReturnPage) -> Iterator[LocalStack]:
    """The whole local stack; the app's page is where a connect may end."""
    parts = urlsplit(app_page.url)
    parameters = {"ReturnOrigins": f"{parts.scheme}://{parts.netloc}"}
    folder = tmp_path_factory.mktemp("browser")
    with LocalStack(folder, provider=True, schedules=False, parameters=parameters) as running:
        yield running


@pytest.fixture(scope="session")
def provider(stack: LocalStack) -> Iterator[ProviderControl]:
    """The provider's control paths."""
    with ProviderControl(stack.provider_url, stack.provider_accounts) as control:
        yield control


@pytest.fixture(scope="session")
def client(stack: LocalStack, provider: ProviderControl) -> RegisteredClient:
    """One OAuth client for all tests."""
    return register_client(stack, provider)


_owners = itertools.count(1)


@pytest.fixture
def a_life(stack: LocalStack, provider: ProviderControl, client: RegisteredClient) -> Iterator[Callable[[], Life]]:
    """Makes lives of connections, each of a new owner; the app's side of them, for the browser is Chromium."""
    with ExitStack() as lives:
        yield lambda: lives.enter_context(Life(stack, provider, client, f"browser-{next(_owners)}"))


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where pictures of the pages go: `make screenshots` names the folder of the documentation."""
    folder = Path(os.environ.get("QUITCLAIM_SCREENSHOTS") or BUILD / "browser" / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
