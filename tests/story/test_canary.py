"""No secret of the whole run stands in any log of any process, in any spelling. Runs after everything else here."""

import base64
import hashlib
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from infra.local.life import Life, expect
from infra.local.provider.control import ProviderControl
from infra.local.stack import LocalStack

from .conftest import Witness

SHORTEST = 6
"""Below that a value would be found by chance."""


def spellings(secret: str) -> set[bytes]:
    """*secret* raw, URL-encoded, in hex and in base64 at each of its three alignments."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), quote_plus(secret).encode(), raw.hex().encode()}
    found.add(raw.hex().upper().encode())
    for before in range(3):
        # The letters that the neighbours share are cut off: 0, 2 or 3 in front, up to 2 at the end and the padding.
        text = base64.b64encode(b"\0" * before + raw).rstrip(b"=")
        core = text[(0, 2, 3)[before] : len(text) - (0, 1, 1)[(before + len(raw)) % 3]]
        found |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return {spelling for spelling in found if len(spelling) >= SHORTEST}


def leaks(logs: dict[str, Path], secrets: Iterable[str]) -> list[str]:
    """Where a secret stands: log and line; never the secret."""
    hunted = {spelling for secret in secrets for spelling in spellings(secret)}
    found = []
    for name, path in sorted(logs.items()):
        content = path.read_bytes()
        for spelling in hunted:
            at = content.find(spelling)
            if at >= 0:
                found.append(f"{name}:{content.count(b'\n', 0, at) + 1}")
    return sorted(found)


def verifiers(logs: dict[str, Path], challenges: set[str]) -> list[str]:
    """Where a PKCE verifier stands: any word whose S256 is a challenge of the run."""
    found = []
    for name, path in sorted(logs.items()):
        for word in set(re.findall(rb"[A-Za-z0-9._~-]{43,128}", path.read_bytes())):
            digest = base64.urlsafe_b64encode(hashlib.sha256(word).digest()).rstrip(b"=").decode()
            if digest in challenges:
                found.append(name)
    return found


@pytest.mark.rule("S-13", "I-17")
def test_no_secret_of_the_run_is_in_a_log(
    life: Life, stack: LocalStack, provider: ProviderControl, witness: Witness
) -> None:
    """Tokens, codes, states, verifiers, cookies, tickets, confirm codes, client secrets, passwords, access keys."""
    life.connect()
    expect(life.token(), 200)
    expect(life.disconnect(), 200)
    life.settle("revoked")
    life.learn()
    hunted = witness.secrets | life.secrets | _tokens_at_the_provider(provider)
    hunted |= {account["password"] for account in provider.accounts.values()}
    hunted |= {secret for _, secret in stack.keys.values()}
    logs = stack.logs()

    assert len(hunted) > 10
    assert sum(path.stat().st_size for path in logs.values()) > 1000
    assert leaks(logs, hunted) == []
    assert verifiers(logs, witness.challenges | life.challenges) == []


@pytest.mark.parametrize("before", ["", "x", "xy", "key="])
def test_the_hunt_finds_each_spelling(tmp_path: Path, before: str) -> None:
    """Control: a planted secret is found, whatever stands around it."""
    secret = "tok/en+with=signs~4711"
    logs = {}
    for name, text in {
        "raw": secret,
        "url": quote(secret, safe=""),
        "hex": (before + secret).encode().hex(),
        "base64": base64.b64encode((before + secret + "&more").encode()).decode(),
        "base64url": base64.urlsafe_b64encode((before + secret + "!").encode()).decode(),
    }.items():
        logs[name] = tmp_path / name
        logs[name].write_text(f"first line\n{before}{text}\n")

    assert set(leaks(logs, {secret})) == {"base64:2", "base64url:2", "hex:2", "raw:2", "url:2"}
    assert leaks(logs, {"another-secret-4711"}) == []


def test_the_hunt_finds_a_verifier_by_its_challenge(tmp_path: Path) -> None:
    """Control: the verifier itself is never known here."""
    log = tmp_path / "log"
    log.write_text("code_verifier=" + "v" * 64)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 64).digest()).rstrip(b"=").decode()

    assert verifiers({"log": log}, {challenge}) == ["log"]
    assert verifiers({"log": log}, {"another"}) == []


def _tokens_at_the_provider(provider: ProviderControl) -> set[str]:
    """Every token that the provider still has on record, from its own database."""
    with sqlite3.connect(f"file:{provider.database}?mode=ro", uri=True) as database:
        rows = database.execute(
            "SELECT token FROM oauth2_provider_accesstoken UNION SELECT token FROM oauth2_provider_refreshtoken"
        ).fetchall()
    database.close()
    return {token for (token,) in rows if token}
