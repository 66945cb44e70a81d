"""The second authorization server of the interop tests, npm's `oidc-provider`: installed, run, and asked."""

import itertools
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from infra.local.browser import Page
from infra.local.life import Life
from infra.local.provider.control import ProviderControl
from tests.node_packages import BUILD, absent, installed

HERE: Final = Path(__file__).parent
SPEC: Final = HERE / "oidc.yaml"
PUSHED_SPEC: Final = HERE / "pushed.yaml"
MODULES: Final = BUILD / "interop" / "oidc-provider"

TOKEN_PATH: Final = "/token"
REVOKE_PATH: Final = "/token/revocation"
IDENTITY_PATH: Final = "/me"
SCOPES: Final = ["openid", "offline_access"]


def node() -> str:
    """
    The Node program. Without one these tests are skipped, visibly, on a developer's machine; in CI (`CI=true`) they
    fail, because there a skipped proof looks like a proof.
    """
    found = shutil.which("node")
    if found is not None and shutil.which("npm") is not None:
        return found
    return absent("Node is not on PATH: the tests against oidc-provider need Node 20 or newer, with npm")


def install() -> Path:
    """The folder with the peer's packages as the lock names them."""
    return installed(HERE, MODULES)


@contextmanager
def running(state: Path, *, pushed: bool = False) -> Iterator["OidcControl"]:
    """
    The peer on a port of its own; its log is in *state*. Stopped by its pid, and waited for.

    *pushed*: it takes no authorization request by the browser, and a client's key in the place of its secret.
    """
    program, modules, log = node(), install(), state / "oidc-provider.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 (our own server)
            [program, str(HERE / "server.mjs"), str(modules), *(["pushed"] if pushed else [])],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"PATH": os.environ.get("PATH", os.defpath), "NODE_ENV": "test"},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"the peer did not start:\n{log.read_text()[-2000:]}"
        accounts = state / "accounts.json"
        accounts.write_text("{}")
        with OidcControl(json.loads(line)["url"], accounts) as control:
            yield control
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()


class OidcControl(ProviderControl):
    """The control paths of the peer, which are those of the local provider; `live` in its ledger is introspection's."""

    _numbers = itertools.count(1)

    def person(self) -> str:
        """Somebody who was never here before. The development pages take any name, and any password."""
        name = f"person-{next(self._numbers)}"
        self.accounts[name] = {"password": secrets.token_urlsafe(24), "sub": name}
        return name

    def who_am_i(self, access_token: str) -> httpx.Response:
        """Use *access_token* at the peer's resource."""
        return self._http.get(IDENTITY_PATH, headers={"authorization": f"Bearer {access_token}"})

    def metadata(self) -> dict[str, object]:
        """What the peer says of itself (OpenID Connect Discovery 1.0)."""
        told: dict[str, object] = self._http.get("/.well-known/openid-configuration").json()
        return told


class OidcLife(Life):
    """A connection whose provider shows the peer's development pages."""

    def sign_in(self, page: Page) -> Page:
        """From the login form to the consent form; who is signed in already is not asked again."""
        form = page.form_with("prompt")
        if form.fields["prompt"] != "login":
            return page
        return self.browser.submit(page, form, {"login": self.username, "password": self._password})

    def say_yes(self, page: Page, *, follow: bool) -> Page:
        """Continue; the way back to the client leads over the peer's own address."""
        form = page.form_with("prompt")
        assert form.fields["prompt"] == "consent"
        if follow:
            return self.browser.submit(page, form)
        resumed = self.browser.submit(page, form, follow=False)
        assert resumed.left_for is not None
        return self.browser.open(resumed.left_for, follow=False)

    def say_no(self, page: Page) -> Page:
        """Follow the page's link that cancels."""
        aborts = [word for word in page.text.split('"') if word.endswith("/abort")]
        return self.browser.click(page, aborts[0])

    @property
    def _password(self) -> str:
        return self.provider.accounts[self.username]["password"]
