"""
A broker behind `httpx.MockTransport`, with its own books: accounts by reference, links, sign-in tokens.

Its requests are shaped like those of a real one (an API key in a header, ids in paths, JSON bodies); the catalogue file
beside it is what an app team would write.
"""

import functools
import itertools
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from quitclaim.providers.compile import compiled_text
from quitclaim.providers.spec import ProviderSpec, spec_of
from tests.fakes.provider import CLIENT_SECRET, Misbehaviour

API: Final = "https://api.broker.example.com"
KEY: Final = {"x-api-key": "{client_secret}"}
ENTRY: Final[dict[str, Any]] = {
    "id": "acme",
    "name": "Acme Health",
    "checked_on": "2026-11-30",
    "sources": ["https://api.broker.example.com/docs"],
    "broker": {
        "find": {"method": "GET", "url": f"{API}/v2/user/resolve/{{reference}}", "headers": KEY, "body": "none"},
        "make": {"url": f"{API}/v2/user", "headers": KEY, "fields": {"client_user_id": "{reference}"}},
        "account": "user_id",
        "link": {
            "url": f"{API}/v2/link/token",
            "headers": KEY,
            "fields": {"user_id": "{account_id}", "redirect_url": "{back}", "provider": "{source}"},
        },
        "link_url": "link_web_url",
        "sign_in": {"url": f"{API}/v2/user/{{account_id}}/sign_in_token", "headers": KEY, "body": "none"},
        "sign_in_token": "sign_in_token",
        "sources": True,
        "state_param": "flow",
    },
    "webhook": {
        "signature": {"scheme": "hmac", "headers": ["x-acme-signature"]},
        "event": {
            "id": ["id"],
            "kind": ["type"],
            "accounts": {"account": ["user.id"]},
            "occurred_at": {"path": "at", "unit": "ms"},
            "source": "source.slug",
        },
        "sources": [
            {"says": "connected", "when": {"kind": "source.created"}},
            {"says": "disconnected", "when": {"kind": "source.removed"}},
            {"says": "failed", "when": {"kind": "source.error", "final": "true"}},
        ],
    },
    "revocation": {
        "shape": "token_in_path",
        "url": f"{API}/v2/user/{{token}}",
        "headers": KEY,
        "takes": "access",
        "success": {"status": [200], "body": "any"},
        "already_gone": {"status": [404]},
        "reach": "token",
        "manual_page": "https://broker.example.com/apps",
    },
}


@functools.cache
def broker_text(id_: str = "acme") -> str:
    """The file under a name, compiled as the build does it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{id_}.yaml"
        path.write_text(yaml.safe_dump({**ENTRY, "id": id_}, sort_keys=False))
        return compiled_text(path)


@functools.cache
def broker_spec() -> ProviderSpec:
    """The spec of it."""
    return spec_of(json.loads(broker_text()))


@dataclass
class BrokerServer:
    """The broker. Speaks as `AcmeServer` does to the tests that look at it."""

    spec: ProviderSpec = field(default_factory=broker_spec)
    accounts: dict[str, str] = field(default_factory=dict)
    """Reference to account, of those that live."""
    made: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    links: list[dict[str, str]] = field(default_factory=list)
    sign_in_tokens: list[str] = field(default_factory=list)
    misbehaviours: dict[str, list[Misbehaviour]] = field(default_factory=lambda: defaultdict(list))
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def live(self, kind: str | None = None) -> list[str]:
        """Accounts that live."""
        del kind
        return list(self.accounts.values())

    def next(self, path: str, *misbehaviours: Misbehaviour) -> None:
        """The next requests whose path ends like this meet these, in order."""
        self.misbehaviours[path] += misbehaviours

    @property
    def transport(self) -> httpx.MockTransport:
        """For blocking and for asynchronous clients."""
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        path = request.url.path
        what = re.sub(r"canary-user-\d+|resolve/.*", "*", path)
        self.asked.append(f"{request.method} {what}")
        act: Callable[[], httpx.Response] = functools.partial(self._answer, request, path)
        pending = self.misbehaviours[what]
        return pending.pop(0)(act, request) if pending else act()

    def _answer(self, request: httpx.Request, path: str) -> httpx.Response:
        if request.headers.get("x-api-key") != CLIENT_SECRET.reveal():
            return httpx.Response(401, json={"detail": "bad key"})
        body = json.loads(request.content) if request.content else {}
        if path.startswith("/v2/user/resolve/"):
            return self._user(self.accounts.get(path.rpartition("/")[2]))
        if path == "/v2/user":
            reference = body["client_user_id"]
            if reference in self.accounts:
                return httpx.Response(400, json={"detail": {"error_type": "INVALID_REQUEST"}})
            self.accounts[reference] = f"canary-user-{next(self._numbers)}"
            self.made.append(self.accounts[reference])
            return self._user(self.accounts[reference])
        if path == "/v2/link/token":
            self.links.append(body)
            number = next(self._numbers)
            return httpx.Response(
                200, json={"link_web_url": f"https://link.broker.example.com/?token=canary-link-{number}"}
            )
        account = path.split("/")[3]
        if account not in self.accounts.values():
            return httpx.Response(404, json={"detail": "not found"})
        if request.method == "DELETE":
            self.accounts = {name: each for name, each in self.accounts.items() if each != account}
            return httpx.Response(200, json={"success": True})
        self.sign_in_tokens.append(f"canary-sign-in-{next(self._numbers)}")
        return httpx.Response(200, json={"user_id": account, "sign_in_token": self.sign_in_tokens[-1]})

    def _user(self, account: str | None) -> httpx.Response:
        if account is None:
            return httpx.Response(404, json={"detail": "not found"})
        return httpx.Response(200, json={"user_id": account})
