"""Many revocations under way at once: an event loop in a thread of its own, beside the table's writes."""

import asyncio
import queue
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import Claimed
from quitclaim.ports import CallAnswer
from quitclaim.providers.client import ProviderHttp

type Call = Callable[[], Coroutine[Any, Any, CallAnswer]]

START_S: Final = 10.0
"""Longer than any start takes, far shorter than an invocation."""
FAILED: Final = RevokeAnswer(RevokeOutcome.UNKNOWN, "failed")
"""Of a call that raised: it may have been sent."""


class CallsInFlight:
    """`ports.Calls`, for one invocation: made when it begins, closed when it ends (nothing of it survives a freeze)."""

    def __init__(self, http: ProviderHttp, limit: int, on_fault: Callable[[str, Exception], None]) -> None:
        self._http = http
        self._limit = limit
        self._on_fault = on_fault
        self._loop = asyncio.new_event_loop()
        self._answers: queue.SimpleQueue[tuple[Claimed, Future[CallAnswer]]] = queue.SimpleQueue()
        self._open = 0
        self._over = asyncio.Event()
        self._ready: Future[None] = Future()
        self._thread = ThreadPoolExecutor(1, "calls")

    def __enter__(self) -> Self:
        """Raises what kept the loop from starting, `TimeoutError` if nothing was heard of it."""
        self._served = self._thread.submit(self._run)
        wait((self._ready, self._served), START_S, FIRST_COMPLETED)
        if not self._ready.done():
            self._thread.shutdown(wait=False)
            if self._served.done():
                self._loop.close()
            self._served.result(0)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.shutdown()

    @property
    def in_flight(self) -> int:
        """How many were started and not yet handed back."""
        return self._open

    def start(self, claim: Claimed, call: Call) -> None:
        """Send it on its way."""
        self._open += 1
        answered = asyncio.run_coroutine_threadsafe(call(), self._loop)
        answered.add_done_callback(partial(self._hand_over, claim))

    def _hand_over(self, claim: Claimed, answered: Future[CallAnswer]) -> None:
        if not answered.cancelled():  # as it is where nobody waits for it any more
            self._answers.put((claim, answered))

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, CallAnswer]]:
        """
        What has been answered: *at_most* so many, or what there is after *wait_ms*. Who is told of faults hears of each
        call that raised, here and not in the loop's thread.
        """
        until = time.monotonic() + wait_ms / 1000
        found: list[tuple[Claimed, CallAnswer]] = []
        while self._open and len(found) < at_most:
            try:
                claim, answered = self._answers.get(timeout=max(until - time.monotonic(), 0.001))
            except queue.Empty:
                break
            self._open -= 1
            fault = answered.exception()
            found.append((claim, answered.result() if fault is None else FAILED))
            if isinstance(fault, Exception):
                self._on_fault("call", fault)
        return found

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        async with self._http.in_flight(self._limit):
            self._ready.set_result(None)
            await self._over.wait()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
