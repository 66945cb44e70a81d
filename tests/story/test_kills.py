"""Workers killed with SIGKILL when the provider has acted and its answer is on the way; judged at the provider."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from infra.local.browser import BrowserError, Page
from infra.local.life import Life, envelope, expect, until
from infra.local.provider.control import IDENTITY_PATH, TOKEN_PATH

WINDOW_S = 60
CONFIRM_S = 600
REFRESH_LEASE_S = 30
GUARD_S = 5


@contextmanager
def killed_while_the_answer_waits(life: Life, path: str, function: str, call: threading.Thread) -> Iterator[None]:
    """*call* runs until the provider has acted on *path*; in the body its worker is dead, its caller none the wiser."""
    life.provider.stall(path)
    call.start()
    life.provider.wait_stalled()
    life.stack.kill(function)
    call.join(timeout=30)
    assert not call.is_alive()
    life.provider.release()
    yield


@pytest.mark.rule("U-4", "F-68", "F-34", "D-24")
def test_before_the_hold_the_attempt_is_named_and_blocks_until_acknowledged(life: Life) -> None:
    """The code was exchanged and the answer lost: lapses to unconfirmed, and the owner's status says so."""
    page = life.visit(life.start())
    seen: list[int] = []

    with killed_while_the_answer_waits(life, TOKEN_PATH, "connect", _consenting(life, page, seen)):
        assert seen[0] >= 500
        assert len(life.living()) == 1

    life.stack.advance(WINDOW_S + GUARD_S + 1)
    life.stack.fire("reconcile")
    assert life.state == "failed"
    assert life.notice() == "permission_removal_required"
    blocked = life.api.post(
        f"{life.owner_path}/connections", json={"connection_id": "dot", "provider": "dot", "client": life.client.name}
    )
    assert (blocked.status_code, envelope(blocked)["code"]) in [
        (409, "CONNECT_BLOCKED"),
        (409, "PERMISSION_REMOVAL_REQUIRED"),
    ]
    assert life.acknowledge().status_code == 200
    assert life.notice() in (None, "acknowledged")
    assert life.connect()["state"] == "ready"


@pytest.mark.rule("F-64", "U-3")
def test_after_the_hold_the_sweep_revokes_what_nobody_installed(life: Life) -> None:
    """Held before the identity was asked: the end of the hold makes it due, and the provider refuses it afterwards."""
    page = life.visit(life.start())
    seen: list[int] = []

    with killed_while_the_answer_waits(life, IDENTITY_PATH, "connect", _consenting(life, page, seen)):
        assert seen[0] >= 500
        held = life.living()
        assert len(held) == 1

    life.stack.fire("revoke_sweep")
    assert life.living() == held  # not before its time: the owner may still be confirming
    life.stack.advance(CONFIRM_S + 2 * GUARD_S)
    life.stack.fire("revoke_sweep")
    until(lambda: not life.living() or None, "revoked at the provider", lambda: "alive")
    life.settle("failed")
    assert life.notice() in (None, "not_needed", "confirmed")
    verdict = life.provider.try_refresh(life.client.client_id, life.client.secret, digest=held[0].digest)
    assert (verdict.accepted, verdict.error) == (False, "invalid_grant")


@pytest.mark.rule("D-3", "D-1")
def test_during_a_refresh_the_lost_successor_is_never_reported_as_confirmed(life: Life) -> None:
    """The provider rotated and the new token was lost: after a stop only a removal notice is true."""
    life.connect()
    life.stack.advance(3660)
    seen: list[int] = []

    with killed_while_the_answer_waits(life, TOKEN_PATH, "access_token", _asking(life, seen)):
        assert seen[0] >= 500
        assert [line.live for line in life.issued()] == [False, True]

    expect(life.disconnect(), 200)
    levels = [life.notice()]
    for _ in range(6):
        life.stack.fire("revoke_sweep")
        life.stack.fire("reconcile")
        levels.append(life.notice())
        life.stack.advance(REFRESH_LEASE_S + GUARD_S + 1)
    assert "confirmed" not in levels
    assert levels[-1] == "permission_removal_required"
    assert life.view().get("closed_as") != "confirmed"

    # The owner removes it at the provider and says so: closed, and still not called confirmed.
    assert life.acknowledge().status_code == 200
    life.settle("revoked")
    assert life.view()["closed_as"] == "attested"


@pytest.mark.rule("D-25", "D-16")
def test_a_kill_during_a_revoke_is_repeated_until_the_provider_has_answered(life: Life) -> None:
    """The sweep died with its request on the way: the lease ends, the next one asks again, confirmed."""
    life.connect()
    generation = life.view()["generation"]
    stop = threading.Thread(target=lambda: life.disconnect(generation))

    with killed_while_the_answer_waits(life, "/o/revoke_token/", "revoke_sweep", stop):
        assert life.notice() == "pending"

    life.stack.advance(REFRESH_LEASE_S + GUARD_S + 31)
    life.settle("revoked")
    assert life.view()["closed_as"] == "confirmed"


def _consenting(life: Life, page: Page, seen: list[int]) -> threading.Thread:
    def consent() -> None:
        try:
            seen.append(life.allow(page).status)
        except BrowserError:
            seen.append(599)  # the front closed the connection: as bad as a gateway error

    return threading.Thread(target=consent)


def _asking(life: Life, seen: list[int]) -> threading.Thread:
    def ask() -> None:
        try:
            seen.append(life.token().status_code)
        except httpx.TransportError:
            seen.append(599)

    return threading.Thread(target=ask)


pytestmark = pytest.mark.timeout(90)
