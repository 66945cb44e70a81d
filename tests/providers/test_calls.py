"""Calls in flight: real threads and a real loop, no network. What goes wrong in one is told of and costs no other."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import Claimed
from quitclaim.providers.calls import CallsInFlight
from quitclaim.providers.client import ProviderHttp
from tests.domain.values import NOW, a_revocation

CONFIRMED = RevokeAnswer(RevokeOutcome.CONFIRMED)


class BrokenHttp(ProviderHttp):
    """A pool that cannot be opened."""

    @asynccontextmanager
    async def in_flight(self, limit: int = 100) -> AsyncIterator[None]:
        raise OSError("no sockets")
        yield


class IdleHttp(ProviderHttp):
    """A pool that nobody uses."""

    @asynccontextmanager
    async def in_flight(self, limit: int = 100) -> AsyncIterator[None]:
        yield


def a_claim(rid: str) -> Claimed:
    return Claimed(a_revocation(rid=rid), "lease", NOW)


async def confirmed() -> RevokeAnswer:
    await asyncio.sleep(0)
    return CONFIRMED


async def raises() -> RevokeAnswer:
    raise ValueError("of the call")


async def never() -> RevokeAnswer:
    await asyncio.Event().wait()
    return CONFIRMED


def all_of(calls: CallsInFlight, count: int) -> dict[str, RevokeAnswer | None]:
    found: dict[str, RevokeAnswer | None] = {}
    while len(found) < count:
        found |= {claim.revocation.rid: answer for claim, answer in calls.finished(at_most=count, wait_ms=5_000)}
    return found


def test_a_call_that_raises_is_unknown_and_told_of() -> None:
    """It may have been sent; the fault is told in the thread that asks, and the others are answered."""
    told: list[tuple[str, str, str]] = []
    here = threading.current_thread().name

    def tell(kind: str, fault: Exception) -> None:
        told.append((kind, str(fault), threading.current_thread().name))

    with CallsInFlight(IdleHttp(), 10, tell) as calls:
        for rid, call in (("r1", confirmed), ("r2", raises), ("r3", confirmed)):
            calls.start(a_claim(rid), call)
        answers = all_of(calls, 3)
        assert calls.in_flight == 0

    assert answers == {"r1": CONFIRMED, "r2": RevokeAnswer(RevokeOutcome.UNKNOWN, "failed"), "r3": CONFIRMED}
    assert told == [("call", "of the call", here)]


def test_a_loop_that_cannot_start_says_so() -> None:
    """Nobody waits for ever for what will not come."""
    with pytest.raises(OSError, match="no sockets"), CallsInFlight(BrokenHttp(), 10, lambda *_: None):
        pytest.fail("it has not started")


def test_what_is_still_under_way_at_the_end_is_left() -> None:
    """A worker that stops waiting for an answer ends at once, and is told nothing of what it left."""
    told: list[Exception] = []

    with CallsInFlight(IdleHttp(), 10, lambda _, fault: told.append(fault)) as calls:
        calls.start(a_claim("r1"), never)
        assert calls.finished(at_most=1, wait_ms=1) == []
        assert calls.in_flight == 1

    assert told == []
