"""One client whose provider hangs, and the others of the same sweep."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import Claimed
from quitclaim.flows import revocations
from quitclaim.flows.revocations import sweep
from tests.fakes.calls import CallsInTurn
from tests.fakes.clock import Budget
from tests.flows.world import SWEEP_MS, World


class OneHangs(CallsInTurn):
    """The calls of one client come to their end only when nothing else is left to be handed back."""

    def __init__(self, client: str, before_the_first_ends: Callable[[], object]) -> None:
        super().__init__()
        self._client = client
        self._before = before_the_first_ends
        self._hanging: list[Claimed] = []
        self.most = 0

    @property
    def in_flight(self) -> int:
        return super().in_flight + len(self._hanging)

    def start(self, claim: Claimed, call: Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]) -> None:
        if claim.revocation.client != self._client:
            super().start(claim, call)
            return
        self._hanging.append(claim)
        self.most = max(self.most, len(self._hanging))

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, RevokeAnswer | None]]:
        answered = super().finished(at_most=at_most, wait_ms=wait_ms)
        if answered or not self._hanging:
            return answered
        self._before()
        ended, self._hanging = self._hanging[:at_most], self._hanging[at_most:]
        return [(claim, RevokeAnswer(RevokeOutcome.UNKNOWN, "timeout")) for claim in ended]


@pytest.mark.rule("D-6", "I-16")
def test_a_client_that_hangs_holds_up_none_of_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In one run, with many of it due before them: all of the other client's are confirmed before the first of its calls
    has come to its end. The numbers are small beside the real ones.
    """
    monkeypatch.setattr(revocations, "BATCH", 1)
    monkeypatch.setattr(revocations, "PER_CLIENT", 2)
    monkeypatch.setattr(revocations, "IN_FLIGHT", 4)
    world.clients.add("brisk", confirmation="none")
    for number, client in enumerate(["acme"] * 9 + ["brisk"] * 4):
        ref = ConnectionRef("acme-app", f"{client}-{number}", "google")
        world.connect(ref, account=ref.owner, client=client)
        world.disconnect(ref)
        world.clock.move(ms=1)
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([each["state"] for each in world.items("revocation") if each["client"] == "brisk"])

    calls = OneHangs("acme", look)

    sweep(["acme", "brisk"], Budget(SWEEP_MS), replace(world.revoking, calls=calls))

    assert seen[0] == ["confirmed"] * 4
    assert calls.most <= 2
