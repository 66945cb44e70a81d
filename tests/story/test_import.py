"""
Grants that an app got by itself, imported by the command that app teams use, judged at the authorization server.

`QUITCLAIM_IMPORTS=1000` makes it the run that docs/import.md tells of.
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from infra.local.life import Life, RegisteredClient, envelope, expect
from infra.local.provider.control import TOKEN_PATH, ProviderControl, digest_of
from infra.local.stack import LocalStack
from infra.local.template import REGION
from quitclaim_client.import_grants import Report, import_all, read_lines, signed
from tests.story.conftest import Witness

GRANTS: Final = int(os.environ.get("QUITCLAIM_IMPORTS", "24"))
SCOPES: Final = ["identity", "notes"]
WINDOW_OVER_S: Final = 66

pytestmark = pytest.mark.timeout(60 + 2 * GRANTS)


@pytest.fixture
def tokens(provider: ProviderControl, client: RegisteredClient, witness: Witness) -> Callable[[int], list[str]]:
    """Makes refresh tokens that the app has of alice; no log may hold one."""

    def make(count: int) -> list[str]:
        made = provider.issue(client.client_id, "alice", SCOPES, count)
        witness.secrets.update(made)
        return made

    return make


def grant(owner: str, token: str, client: RegisteredClient) -> dict[str, Any]:
    """A line of the file."""
    about = {"owner": owner, "connection_id": "dot", "provider": client.provider, "client": client.name}
    return about | {"refresh_token": token, "scopes": SCOPES}


def test_a_file_of_grants_is_imported(
    a_life: Callable[..., Life],
    stack: LocalStack,
    provider: ProviderControl,
    client: RegisteredClient,
    tokens: Callable[[int], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A dry run that spends nothing, then the run: what is alive is ours alone, what was dead is refused and left alone,
    and the report says which is which.
    """
    given = tokens(GRANTS)
    lines = [grant(f"import-{number}", token, client) for number, token in enumerate(given)]
    lines.append(grant("import-dead", "a-refresh-token-that-nobody-issued", client))
    access_key, secret = stack.keys["app"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    send, path = signed(stack.base_url, REGION), tmp_path / "report.jsonl"

    def run(*, dry_run: bool) -> Counter[str]:
        report = Report(path)
        todo = [line for line in read_lines(map(json.dumps, lines)) if not report.is_done(line)]
        counted = import_all(todo, report, tenant="demo", dry_run=dry_run, send=send, at_once=4)
        report.close()
        return counted

    assert run(dry_run=True) == {"would_import": GRANTS + 1}
    ledger = {line.digest: line for line in provider.ledger(client.client_id, "refresh")}
    assert all(ledger[digest_of(token)].live for token in given)
    began = time.monotonic()
    assert run(dry_run=False) == {"imported": GRANTS, "refused": 1}
    took = time.monotonic() - began
    again = run(dry_run=False)

    assert again == {"refused": 1}
    told = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    imported = [line for line in told if line["outcome"] == "imported"]
    assert len(imported) == GRANTS
    assert {line["shared_copy"] for line in imported} == {False}
    (refused, _) = [line for line in told if line["outcome"] == "refused"]
    assert (refused["owner"], refused["code"], refused["copy"]) == ("import-dead", "IMPORT_FAILED", "dropped")
    assert not any(token in path.read_text() for token in given)
    ledger = {line.digest: line for line in provider.ledger(client.client_id, "refresh")}
    families = {ledger[digest_of(token)].family for token in given}
    assert not any(ledger[digest_of(token)].live for token in given)
    assert sum(line.live for line in ledger.values() if line.family in families) == GRANTS
    print(f"\n{GRANTS} imports in {took:.1f} s, {GRANTS / took:.1f} a second")  # noqa: T201 - the recorded run

    life = a_life("import-0")
    assert life.state == "ready"
    token = expect(life.token(), 200)["access_token"]
    assert provider.who_am_i(token).status_code == 200
    expect(life.disconnect(), 200)
    life.settle("revoked")
    ended = [
        line
        for line in provider.ledger(client.client_id, "refresh")
        if line.family == ledger[digest_of(given[0])].family
    ]
    assert not any(line.live for line in ended)


@pytest.mark.rule("D-24", "F-68")
def test_an_import_whose_worker_died_is_named_and_never_revoked(
    life: Life, provider: ProviderControl, client: RegisteredClient, tokens: Callable[[int], list[str]]
) -> None:
    """
    Killed with SIGKILL once the provider has rotated: the sealed copy is dropped, the owner is told to look at the
    provider, and no revocation of what we were given was ever sent.
    """
    (given,) = tokens(1)
    answers: list[int] = []
    body = {name: at for name, at in grant("", given, client).items() if name not in ("owner", "connection_id")}

    def call() -> None:
        try:
            answers.append(life.api.post(f"{life.path}/import", json=body).status_code)
        except httpx.TransportError:
            answers.append(599)

    provider.stall(TOKEN_PATH)
    importing = threading.Thread(target=call)
    importing.start()
    provider.wait_stalled()
    life.stack.kill("access_token")
    importing.join(timeout=30)
    provider.release()
    assert answers[0] >= 500
    assert life.state == "authorizing"
    family = next(line.family for line in provider.ledger(client.client_id) if line.digest == digest_of(given))
    before = [line for line in provider.ledger(client.client_id, "refresh") if line.family == family]
    assert [line.live for line in before] == [False, True]

    life.stack.advance(WINDOW_OVER_S)
    life.stack.fire("reconcile")
    life.stack.fire("revoke_sweep")

    assert (life.state, life.notice()) == ("failed", "permission_removal_required")
    assert [line for line in provider.ledger(client.client_id, "refresh") if line.family == family] == before
    refused = life.api.post(f"{life.path}/import", json=body)
    assert (refused.status_code, envelope(refused)["code"]) == (409, "CONNECT_BLOCKED")
    expect(life.acknowledge(), 200)
