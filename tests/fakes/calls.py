"""Revocations one after another: what the sweep sees of many in flight, without a thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import Claimed


class CallsInTurn:
    """`ports.Calls`: each call is made when it is started, and handed back when it is asked for."""

    def __init__(self) -> None:
        self._answered: deque[tuple[Claimed, RevokeAnswer | None]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._answered)

    def start(self, claim: Claimed, call: Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]) -> None:
        answer: RevokeAnswer | None
        try:
            answer = asyncio.run(call())
        except Exception:  # noqa: BLE001 - as the port says: whatever a call raises, it may have been sent
            answer = RevokeAnswer(RevokeOutcome.UNKNOWN, "failed")
        self._answered.append((claim, answer))

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, RevokeAnswer | None]]:
        del wait_ms
        return [self._answered.popleft() for _ in range(min(at_most, len(self._answered)))]
