"""Many revocations under way at once: an event loop in a thread of its own, beside the table's writes."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import Claimed
from quitclaim.providers.client import ProviderHttp

type Call = Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]
type Answered = tuple[Claimed, RevokeAnswer | None, Exception | None]

START_S: Final = 10.0
"""Longer than any start takes, far shorter than an invocation."""


class CallsInFlight:
    """`ports.Calls`, for one invocation: made when it begins, closed when it ends (nothing of it survives a freeze)."""

    def __init__(self, http: ProviderHttp, limit: int, on_fault: Callable[[str, Exception], None]) -> None:
        self._http = http
        self._limit = limit
        self._on_fault = on_fault
        self._loop = asyncio.new_event_loop()
        self._answers: queue.SimpleQueue[Answered] = queue.SimpleQueue()
        self._open = 0
        self._over = asyncio.Event()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)

    def __enter__(self) -> Self:
        """Raises what kept the loop from starting, `TimeoutError` if nothing was heard of it."""
        self._thread.start()
        self._ready.result(START_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    @property
    def in_flight(self) -> int:
        """How many were started and not yet handed back."""
        return self._open

    def start(self, claim: Claimed, call: Call) -> None:
        """Send it on its way."""
        self._open += 1
        asyncio.run_coroutine_threadsafe(self._answered(claim, call), self._loop)

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, RevokeAnswer | None]]:
        """
        What has been answered: *at_most* so many, or what there is after *wait_ms*. Who is told of faults hears of each
        call that raised, here and not in the loop's thread.
        """
        until = time.monotonic() + wait_ms / 1000
        found: list[tuple[Claimed, RevokeAnswer | None]] = []
        while self._open and len(found) < at_most:
            try:
                claim, answer, fault = self._answers.get(timeout=max(until - time.monotonic(), 0.001))
            except queue.Empty:
                break
            self._open -= 1
            found.append((claim, answer))
            if fault is not None:
                self._on_fault("call", fault)
        return found

    async def _answered(self, claim: Claimed, call: Call) -> None:
        try:
            self._answers.put((claim, await call(), None))
        except Exception as fault:  # noqa: BLE001 - it may have been sent, and the others go on (I-16)
            self._answers.put((claim, RevokeAnswer(RevokeOutcome.UNKNOWN, "failed"), fault))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as fault:  # whoever waits for the start must hear of it
            if self._ready.done():
                raise
            self._ready.set_exception(fault)
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
