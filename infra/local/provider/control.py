"""What the demo and the tests ask of the local provider: its control paths, and the standard ones beside them."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

TOKEN_PATH = "/o/token/"  # noqa: S105 (a path, not a secret)
IDENTITY_PATH = "/api/me"
REVOKE_PATH = "/o/revoke_token/"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The provider's answer to a refresh with a token that only it knows."""

    accepted: bool
    status: int
    error: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class Issued:
    """A line of the provider's ledger; the token itself is not in it."""

    kind: str
    digest: str
    client_id: str | None
    user: str | None
    family: str | None
    created: int
    revoked: int | None
    live: bool


def digest_of(token: str) -> str:
    """How the ledger names *token*."""
    return sha256(token.encode()).hexdigest()


class ProviderControl:
    """A client of the provider's loopback paths."""

    def __init__(self, url: str, accounts: Path) -> None:
        self.url = url
        self.database = accounts.parent / "provider.sqlite3"
        """For a test that wants to know every token there is."""
        self.accounts: dict[str, dict[str, str]] = json.loads(accounts.read_text())
        self._http = httpx.Client(base_url=url, timeout=20, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def register(self, client_id: str, secret: str, redirect_uris: Sequence[str], name: str | None = None) -> None:
        """Register, or change, a confidential client of the code flow."""
        self._ask(
            "register",
            {"client_id": client_id, "secret": secret, "redirect_uris": list(redirect_uris), "name": name},
        )

    def stall(self, path: str, *, after: bool = True, times: int = 1) -> None:
        """Hold the next *times* answers of *path* back: *after* the provider has acted, or before."""
        self._ask("stall", {"path": path, "after": after, "times": times})

    def stalled(self) -> int:
        """How many answers wait."""
        count: int = self._get("stalled")["count"]
        return count

    def wait_stalled(self, count: int = 1, within_s: float = 15.0) -> None:
        """Return once *count* answers wait. With `after`, the provider has acted by then."""
        end = time.monotonic() + within_s
        while self.stalled() < count:
            if time.monotonic() > end:
                raise TimeoutError(f"after {within_s} s the provider holds {self.stalled()} answers, not {count}")
            time.sleep(0.02)

    def release(self) -> int:
        """Let go of every answer that waits."""
        released: int = self._ask("release", {})["released"]
        return released

    def issue(self, client_id: str, username: str, scopes: Sequence[str], count: int = 1) -> list[str]:
        """Refresh tokens that the app got from that person by itself, before it knew Quitclaim."""
        asked = {"client_id": client_id, "username": username, "scopes": list(scopes), "count": count}
        tokens: list[str] = self._ask("issue", asked)["refresh_tokens"]
        return tokens

    def person(self, username: str) -> str:
        """The id of a person whom nobody signs in as; made, if there is none of that name."""
        sub: str = self._ask("person", {"username": username})["sub"]
        return sub

    def introspect(self, token: str) -> bool:
        """Is the access token active?"""
        active: bool = self._ask("introspect", {"token": token})["active"]
        return active

    def try_refresh(
        self, client_id: str, secret: str, *, digest: str | None = None, username: str | None = None
    ) -> Verdict:
        """Does the provider still take the newest refresh token of that client (or the one of *digest*)?"""
        asked = {"client_id": client_id, "secret": secret, "digest": digest, "username": username}
        return Verdict(**self._ask("try-refresh", {key: value for key, value in asked.items() if value is not None}))

    def ledger(self, client_id: str | None = None, kind: str | None = None) -> list[Issued]:
        """What was ever issued, oldest first within a kind."""
        lines = [Issued(**{key: line.get(key) for key in Issued.__slots__}) for line in self._get("ledger")["tokens"]]
        return [line for line in lines if client_id in (None, line.client_id) and kind in (None, line.kind)]

    def who_am_i(self, access_token: str) -> httpx.Response:
        """Use *access_token* at the provider's resource."""
        return self._http.get(IDENTITY_PATH, headers={"authorization": f"Bearer {access_token}"})

    def _ask(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        return self._answered(self._http.post(f"/_control/{path}", json=content))

    def _get(self, path: str) -> dict[str, Any]:
        return self._answered(self._http.get(f"/_control/{path}"))

    @staticmethod
    def _answered(response: httpx.Response) -> dict[str, Any]:
        content: dict[str, Any] = response.json()
        if response.status_code != 200:
            raise ValueError(f"{response.url.path} answered {response.status_code}: {content.get('error')}")
        return content
