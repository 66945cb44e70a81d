"""
Worker processes that run the functions, and the invocations they work on.

A worker is AWS's own runtime client (`awslambdaric`) in a process of its own: one invocation at a time, a true
deadline, and a real death when it is killed. A `Pool` holds the workers of one function; what waits for it waits in one
queue. A worker that ends is replaced; one that keeps crashing, less and less often.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from infra.local.children import Child, ChildFailedError, Family, said
from infra.local.listeners import LOOPBACK
from infra.local.template import REGION, Function

RESTART_AFTER_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
START_WITHIN_S = 60.0
# A worker that lived this long is not the one that keeps crashing.
STEADY_AFTER_S = 30.0


class Verdict(StrEnum):
    """How an invocation ended."""

    RETURNED = "returned"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    WORKER_ENDED = "worker ended"
    NOT_STARTED = "not started"


@dataclass(frozen=True)
class Outcome:
    """The end of an invocation and the payload that the invoker gets."""

    verdict: Verdict
    payload: bytes = field(repr=False)

    @property
    def is_function_error(self) -> bool:
        """Whether Lambda would mark the answer with X-Amz-Function-Error."""
        return self.verdict is not Verdict.RETURNED


class EventTooOldError(Exception):
    """No worker was free before the event's maximum age."""


@dataclass(eq=False)
class Invocation:
    """One event on its way through a worker."""

    payload: bytes = field(repr=False)
    request_id: str
    client_context: str | None = None
    trace_id: str = ""
    deadline_ms: int = 0
    outcome: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    left_queue: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def leave_queue(self) -> None:
        """It is being worked on, or never will be."""
        if not self.left_queue.done():
            self.left_queue.set_result(None)

    def end(self, verdict: Verdict, payload: bytes) -> None:
        """Tell the invoker, once."""
        self.leave_queue()
        if not self.outcome.done():
            self.outcome.set_result(Outcome(verdict, payload))


class Worker:
    """One place in a pool, with the process that fills it; the port of its Runtime API is its name for that process."""

    def __init__(
        self,
        pool: "Pool",
        number: int,
        *,
        family: Family,
        port: int,
        log: Path,
        environment: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        self.name = f"{pool.function.name}-{number}"
        self.port = port
        self.log = log
        self.current: Invocation | None = None
        self.init_error: bytes | None = None
        self.is_polling = False
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._family = family
        self._pool = pool
        self._environment = environment
        self._tell = tell
        self._child: Child | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._poll: asyncio.Task[Invocation] | None = None
        self._killed_for: Verdict | None = None
        self._stopping = False
        self._replaced = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The pid of the running process."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    async def until_started(self, within_s: float = START_WITHIN_S) -> None:
        """Wait for the first process to ask for work; `ChildFailedError` if it ends before or takes too long."""
        try:
            await asyncio.wait_for(asyncio.shield(self.started), within_s)
        except TimeoutError:
            if self._child is None:
                raise
            raise ChildFailedError(self._child, f"was not ready within {within_s:.0f} s") from None

    async def keep_running(self) -> None:
        """Run the worker, and another in its place whenever it ends, until `stop`."""
        crashes = 0
        while not self._stopping:
            started_at = time.monotonic()
            self._killed_for, self.init_error = None, None
            self._child = await self._family.start(
                self.name,
                [sys.executable, "-m", "awslambdaric", self._pool.function.handler],
                log=self.log,
                environment=self._environment,
                cwd=self._pool.function.code,
            )
            self._replaced.set()
            status = await self._child.ended()
            self._settle(status)
            if not self.started.done():
                self.started.set_exception(ChildFailedError(self._child, f"{said(status)} before it was ready"))
                return
            if self._stopping or self._killed_for is not None:
                continue
            crashes = 0 if time.monotonic() - started_at > STEADY_AFTER_S else crashes + 1
            pause = RESTART_AFTER_S[min(crashes, len(RESTART_AFTER_S)) - 1] if crashes else 0.0
            self._tell(
                f"worker {self.name} (pid {self._child.pid}) {said(status)}; a new one starts in {pause} s; "
                f"its last lines in {self.log}:\n{self._child.last_lines()}"
            )
            await asyncio.sleep(pause)
        self._replaced.set()

    async def stop(self) -> None:
        """End the process and do not replace it."""
        self._stopping = True
        if self._child is not None:
            await self._child.stop(grace_s=3.0)

    async def kill(self, verdict: Verdict = Verdict.WORKER_ENDED) -> int | None:
        """SIGKILL; returns the pid once the process is gone, its invoker told and another process started."""
        child = self._child
        if child is None or not child.is_running:
            return None
        self._killed_for = verdict
        self._replaced.clear()
        child.kill()
        await self._replaced.wait()
        return child.pid

    async def next_invocation(self) -> Invocation | None:
        """What the process shall work on next; waits for it. None if the process ended meanwhile."""
        child = self._child
        if not self.started.done():
            self.started.set_result(None)
        self.is_polling = True
        self._poll = asyncio.create_task(self._pool.take())
        try:
            invocation = await self._poll
        except asyncio.CancelledError:
            self._poll.cancel()  # nothing is lost: an invocation that was not taken stays in the queue
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return None
        finally:
            self.is_polling = False
        if child is None or child is not self._child or not child.is_running:
            self._pool.put_back(invocation)  # the process that asked ended while the answer was on its way
            return None
        timeout_s = self._pool.function.timeout_s
        self.current = invocation
        invocation.deadline_ms = time.time_ns() // 1_000_000 + int(timeout_s * 1000)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out, invocation)
        invocation.leave_queue()
        return invocation

    def finish(self, request_id: str, verdict: Verdict, payload: bytes) -> bool:
        """The process answered; False if it did not work on *request_id*."""
        invocation = self.current
        if invocation is None or invocation.request_id != request_id:
            return False
        if self._killed_for is not None:
            return True  # too late: the invoker will be told what ended it
        self._clear()
        invocation.end(verdict, payload)
        return True

    def _time_out(self, invocation: Invocation) -> None:
        if self.current is invocation and self._child is not None:
            self._killed_for = Verdict.TIMED_OUT
            self._child.kill()

    def _settle(self, status: int) -> None:
        invocation, verdict = self.current, self._killed_for or Verdict.WORKER_ENDED
        self._clear()
        if self._poll is not None and not self._poll.done():
            self._poll.cancel()
        if invocation is not None:
            invocation.end(verdict, _why(verdict, invocation.request_id, status, self._pool.function.timeout_s))
        elif self.init_error is not None:
            self._pool.fail_waiting(self.init_error)

    def _clear(self) -> None:
        self.current = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Pool:
    """The workers of one function and the invocations that wait for them."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.workers: list[Worker] = []
        self._waiting: asyncio.Queue[Invocation] = asyncio.Queue()

    async def invoke(
        self,
        payload: bytes,
        *,
        request_id: str | None = None,
        client_context: str | None = None,
        trace_id: str = "",
        start_within_s: float | None = None,
    ) -> Outcome:
        """
        Run the function on *payload*: waits for a free worker, then for the end.

        With *start_within_s*, `EventTooOldError` if no worker was free in that time.
        """
        invocation = Invocation(payload, request_id or str(uuid.uuid4()), client_context, trace_id)
        self._waiting.put_nowait(invocation)
        try:
            if start_within_s is not None:
                await asyncio.wait_for(asyncio.shield(invocation.left_queue), start_within_s)
            return await asyncio.shield(invocation.outcome)
        except TimeoutError:
            raise EventTooOldError from None
        finally:
            if not invocation.left_queue.done():
                invocation.outcome.cancel()  # nobody waits for it any more: no worker takes it up

    async def take(self) -> Invocation:
        """The next invocation whose invoker still waits."""
        while True:
            invocation = await self._waiting.get()
            if not invocation.outcome.done():
                return invocation

    def put_back(self, invocation: Invocation) -> None:
        """Nobody worked on it yet: let another worker take it."""
        self._waiting.put_nowait(invocation)

    def fail_waiting(self, error: bytes) -> None:
        """No worker can start: tell everybody who waits, as Lambda tells them of a failed init."""
        if any(worker.is_polling or worker.current for worker in self.workers):
            return
        while not self._waiting.empty():
            self._waiting.get_nowait().end(Verdict.NOT_STARTED, error)

    @property
    def in_flight(self) -> int:
        """How many invocations are being worked on."""
        return sum(worker.current is not None for worker in self.workers)

    async def kill_one(self) -> int | None:
        """SIGKILL a worker, one that works on an invocation if there is one; returns its pid, None if none runs."""
        for worker in sorted(self.workers, key=lambda w: w.current is None):
            if (pid := await worker.kill()) is not None:
                return pid
        return None


def worker_environment(
    function: Function, port: int, number: int, resolved: Mapping[str, str], added: Mapping[str, str], layers: str
) -> dict[str, str]:
    """What Lambda sets for a function, what the template sets, and what is *added* here."""
    return {
        **resolved,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_FUNCTION_NAME": function.full_name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_FORMAT": function.log_format,
        **({"AWS_LAMBDA_LOG_LEVEL": function.log_level} if function.log_level else {}),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.full_name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": f"local/{number}",
        "AWS_LAMBDA_RUNTIME_API": f"{LOOPBACK}:{port}",
        "AWS_REGION": REGION,
        "LAMBDA_TASK_ROOT": str(function.code),
        "LANG": "en_US.UTF-8",
        "PYTHONPATH": layers,
        "TZ": ":UTC",
        "_HANDLER": function.handler,
        # Neither a profile nor the instance's role of a developer's machine may answer in place of the local keys.
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        **added,
    }


def _why(verdict: Verdict, request_id: str, status: int, timeout_s: float) -> bytes:
    kind, what = "Runtime.ExitError", f"Runtime exited with error: {_exit(status)}"
    if verdict is Verdict.TIMED_OUT:
        kind, what = "Sandbox.Timedout", f"Task timed out after {timeout_s:.2f} seconds"
    return json.dumps({"errorType": kind, "errorMessage": f"RequestId: {request_id} Error: {what}"}).encode()


def _exit(status: int) -> str:
    if status < 0:
        return "signal: killed" if status == -9 else f"signal: {-status}"
    return f"exit status {status}"
