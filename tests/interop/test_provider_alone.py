"""The local provider by itself: what the rest of the suite takes for granted about it, spoken to with plain httpx."""

import base64
import hashlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from infra.local.browser import Browser, Page
from infra.local.provider.control import IDENTITY_PATH, REVOKE_PATH, TOKEN_PATH, ProviderControl, digest_of
from infra.local.provider.person import consent, sign_in

from .conftest import Registered


class Walk:
    """One person and one client, up to the code and from the code to tokens."""

    def __init__(self, provider: ProviderControl, client: Registered, browser: Browser) -> None:
        self.provider, self.client, self.browser = provider, client, browser
        self.verifier = secrets.token_urlsafe(48)
        self.state = secrets.token_urlsafe(24)

    def authorize_url(self, **changed: str | None) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        asked: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.client.redirect_uri,
            "scope": "identity notes",
            "state": self.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **changed,
        }
        return f"{self.provider.url}/o/authorize/?" + urlencode({k: v for k, v in asked.items() if v is not None})

    def to_consent(self) -> Page:
        page = self.browser.open(self.authorize_url())
        return sign_in(self.browser, page, "alice", self.provider.accounts["alice"]["password"])

    def code(self) -> str:
        return consent(self.browser, self.to_consent(), follow=False).query["code"]

    def token(self, form: dict[str, str], timeout_s: float = 10) -> httpx.Response:
        auth = (self.client.client_id, self.client.secret)
        return httpx.post(self.provider.url + TOKEN_PATH, data=form, auth=auth, timeout=timeout_s, trust_env=False)

    def exchange(self, code: str, timeout_s: float = 10) -> httpx.Response:
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": self.verifier}
        return self.token(form | {"redirect_uri": self.client.redirect_uri}, timeout_s)

    def refresh(self, token: str) -> httpx.Response:
        return self.token({"grant_type": "refresh_token", "refresh_token": token})

    def revoke(self, token: str) -> httpx.Response:
        auth = (self.client.client_id, self.client.secret)
        return httpx.post(self.provider.url + REVOKE_PATH, data={"token": token}, auth=auth, trust_env=False)


@pytest.fixture
def walk(provider: ProviderControl, client: Registered) -> Iterator[Walk]:
    with Browser() as browser:
        yield Walk(provider, client, browser)


def test_a_person_signs_in_and_consents_and_the_client_gets_code_state_and_issuer(walk: Walk) -> None:
    """Login form, consent page of the toolkit, then a redirect with code, state and `iss` (RFC 9207)."""
    page = walk.to_consent()

    back = consent(walk.browser, page, follow=False)

    assert "Read your notes" in page.words
    assert back.left_for is not None
    assert back.left_for.startswith(walk.client.redirect_uri)
    assert back.query["state"] == walk.state
    assert back.query["iss"] == f"{walk.provider.url}/o"
    assert back.query["code"]


def test_a_no_comes_back_as_access_denied(walk: Walk) -> None:
    """The consent page's other button sends the person back with `error`, and no code."""
    back = consent(walk.browser, walk.to_consent(), allow=False, follow=False)

    assert back.query["error"] == "access_denied"
    assert back.query["state"] == walk.state
    assert "code" not in back.query


def test_a_wrong_password_shows_the_login_form_again(walk: Walk) -> None:
    """Nobody gets in with another password."""
    page = walk.browser.open(walk.authorize_url())

    again = sign_in(walk.browser, page, "alice", "not-the-password")

    assert again.status == 200
    assert again.form_with("password")


@pytest.mark.parametrize(
    "changed", [{"code_challenge": None, "code_challenge_method": None}, {"code_challenge_method": "plain"}]
)
def test_pkce_with_s256_is_required(walk: Walk, changed: dict[str, str | None]) -> None:
    """Without a challenge, or with a plain one, there is no code."""
    walk.to_consent()

    back = walk.browser.open(walk.authorize_url(**changed), follow=False)
    if back.left_for is None:
        back = consent(walk.browser, back, follow=False)

    assert back.query["error"] == "invalid_request"
    assert "code" not in back.query


def test_a_code_becomes_tokens_that_open_the_resource(walk: Walk) -> None:
    """The access token tells whose it is; it lives for an hour."""
    answer = walk.exchange(walk.code()).json()

    who = walk.provider.who_am_i(answer["access_token"])

    alice = walk.provider.accounts["alice"]
    assert who.json() == {"sub": alice["sub"], "email": alice["email"]}
    assert answer["expires_in"] == 3600
    assert answer["refresh_token"]
    assert set(answer["scope"].split()) == {"identity", "notes"}


def test_the_resource_refuses_a_stranger_and_a_token_in_the_query(walk: Walk) -> None:
    """Only a bearer header opens it."""
    token = walk.exchange(walk.code()).json()["access_token"]

    in_query = httpx.get(f"{walk.provider.url}{IDENTITY_PATH}?access_token={token}", trust_env=False)

    assert walk.provider.who_am_i("made-up").status_code == 403
    assert in_query.status_code == 403


def test_a_code_is_good_once(walk: Walk) -> None:
    """A replayed code is refused."""
    code = walk.code()
    first = walk.exchange(code)

    second = walk.exchange(code)

    assert (first.status_code, second.status_code) == (200, 400)
    assert second.json()["error"] == "invalid_grant"


def test_a_wrong_verifier_gets_nothing(walk: Walk) -> None:
    """PKCE is checked at the token endpoint."""
    code, walk.verifier = walk.code(), secrets.token_urlsafe(48)

    answer = walk.exchange(code)

    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_grant"


def test_a_refresh_rotates_and_the_old_access_token_dies_too(walk: Walk) -> None:
    """The pair is replaced: new refresh token, new access token, the old access token inactive at once."""
    first = walk.exchange(walk.code()).json()

    second = walk.refresh(first["refresh_token"]).json()

    assert second["refresh_token"] != first["refresh_token"]
    assert walk.provider.introspect(second["access_token"])
    assert not walk.provider.introspect(first["access_token"])


def test_reuse_of_a_spent_refresh_token_kills_its_family(walk: Walk) -> None:
    """The thief's try costs the thief and the owner their tokens, and the ledger says so."""
    first = walk.exchange(walk.code()).json()
    second = walk.refresh(first["refresh_token"]).json()

    reused = walk.refresh(first["refresh_token"])

    assert reused.json()["error"] == "invalid_grant"
    assert walk.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"
    lines = walk.provider.ledger(walk.client.client_id)
    assert [line.live for line in lines] == [False] * len(lines)
    assert len({line.family for line in lines if line.kind == "refresh"}) == 1


def test_revocation_ends_both_tokens_and_is_idempotent(walk: Walk) -> None:
    """RFC 7009: 200 for a living, a dead and an unknown token; afterwards nothing of the pair works."""
    tokens = walk.exchange(walk.code()).json()

    answers = [walk.revoke(token).status_code for token in (tokens["refresh_token"], tokens["refresh_token"], "none")]

    assert answers == [200, 200, 200]
    assert not walk.provider.introspect(tokens["access_token"])
    verdict = walk.provider.try_refresh(walk.client.client_id, walk.client.secret)
    assert (verdict.accepted, verdict.status, verdict.error) == (False, 400, "invalid_grant")
    assert verdict.digest == digest_of(tokens["refresh_token"])


def test_the_verdict_on_a_living_grant_is_that_it_works(walk: Walk) -> None:
    """The control path that judges tells life from death (else every verdict of a demo would be worthless)."""
    tokens = walk.exchange(walk.code()).json()

    verdict = walk.provider.try_refresh(walk.client.client_id, walk.client.secret, username="alice")

    assert (verdict.accepted, verdict.digest) == (True, digest_of(tokens["refresh_token"]))


def test_the_ledger_names_tokens_by_digest_only(walk: Walk) -> None:
    """Each token that was issued is in it, with its state; no token is."""
    tokens = walk.exchange(walk.code()).json()
    walk.refresh(tokens["refresh_token"])

    raw = httpx.get(f"{walk.provider.url}/_control/ledger", trust_env=False).text
    lines = {line.digest: line.live for line in walk.provider.ledger(walk.client.client_id)}

    assert tokens["refresh_token"] not in raw
    assert tokens["access_token"] not in raw
    assert len(lines) == 4
    assert lines[digest_of(tokens["refresh_token"])] is False
    assert lines[digest_of(tokens["access_token"])] is False
    assert sorted(lines.values()) == [False, False, True, True]


def test_a_stalled_answer_waits_until_it_is_released(walk: Walk) -> None:
    """The provider has acted, and its client does not know it."""
    code = walk.code()
    walk.provider.stall(TOKEN_PATH)

    with pytest.raises(httpx.ReadTimeout):
        walk.exchange(code, timeout_s=0.3)

    refresh = walk.provider.ledger(walk.client.client_id, "refresh")
    assert [line.live for line in refresh] == [True]


def test_a_client_that_goes_away_frees_its_stalled_answer(walk: Walk) -> None:
    """Nothing waits for a worker that was killed."""
    walk.provider.stall(TOKEN_PATH)
    with socket.create_connection((urlsplit(walk.provider.url).hostname, urlsplit(walk.provider.url).port)) as wire:
        wire.sendall(f"POST {TOKEN_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode())
        walk.provider.wait_stalled()

    _until_none_waits(walk.provider)


def test_a_request_stalled_before_the_act_is_lost_when_its_client_goes(walk: Walk) -> None:
    """Stalled before, and abandoned: no token was issued."""
    code = walk.code()
    walk.provider.stall(TOKEN_PATH, after=False)

    with pytest.raises(httpx.ReadTimeout):
        walk.exchange(code, timeout_s=0.3)
    _until_none_waits(walk.provider)

    assert walk.provider.ledger(walk.client.client_id) == []
    assert walk.exchange(code).status_code == 200


def test_a_stall_that_makes_no_sense_is_refused(provider: ProviderControl) -> None:
    """A fault that would never happen must not look armed."""
    with pytest.raises(ValueError, match="a stall is"):
        provider.stall("o/token/")


def test_its_log_holds_no_query_and_no_secret(walk: Walk, provider_log: Path) -> None:
    """Method, path, status and time: neither code nor state, token, verifier, secret or password."""
    code = walk.code()
    tokens = walk.exchange(code).json()

    log = provider_log.read_text()

    assert f"POST {TOKEN_PATH} 200" in log
    hidden = [code, walk.state, walk.verifier, walk.client.secret, tokens["access_token"], tokens["refresh_token"]]
    hidden += [account["password"] for account in walk.provider.accounts.values()]
    assert [secret for secret in hidden if secret in log] == []
    assert "?" not in log


def _until_none_waits(provider: ProviderControl) -> None:
    for _ in range(200):
        if provider.stalled() == 0:
            return
        provider.ledger()
    raise AssertionError("an answer still waits for a client that has gone")
