"""
The supervisor's control endpoint, for tests, the demonstration and a curious person. Loopback, JSON.

GET /status · POST /clock {"advance_ms"} · POST /kill {"function"} · POST /fire {"name"} · GET /in-flight/<function>
Of a stack with a gate: POST /gate/<function> {"call", "nth", "after"} · DELETE, GET /gate/<function>
"""

import json
from collections.abc import Mapping
from typing import Any

from infra.local.asgi import BodyTooLargeError, Receive, Scope, Send, answer_json, read_body
from infra.local.clock import MovedClock
from infra.local.gate import Gate, Shut
from infra.local.schedules import Schedules, payload_of
from infra.local.template import Template
from infra.local.workers import Pool


class _UnknownNameError(Exception):
    """There is no function or schedule of that name."""


class Control:
    """The ASGI application of the control endpoint."""

    def __init__(
        self,
        template: Template,
        pools: Mapping[str, Pool],
        schedules: Schedules,
        clock: MovedClock,
        ready: Mapping[str, Any],
        gate: Gate | None = None,
    ) -> None:
        self._template = template
        self._pools = pools
        self._schedules = schedules
        self._clock = clock
        self._ready = ready
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        try:
            body = json.loads(await read_body(receive, 64 * 1024) or b"{}")
            value = await self._do(scope["method"], scope["path"], body)
        except (BodyTooLargeError, ValueError, TypeError, KeyError) as problem:
            await answer_json(send, 400, {"message": f"not understood: {problem!r}"})
        except _UnknownNameError as problem:
            await answer_json(send, 404, {"message": str(problem)})
        else:
            await answer_json(send, 200, value)

    async def _do(self, method: str, path: str, body: Mapping[str, Any]) -> object:
        match method, path.strip("/").split("/"):
            case "GET", ["status"]:
                return self._status()
            case "GET", ["in-flight", function]:
                return {"in_flight": self._pool(function).in_flight}
            case "POST", ["clock"]:
                offset_ms = self._clock.advance(int(body["advance_ms"]))
                self._schedules.clock_moved()
                return {"offset_ms": offset_ms, "now_ms": self._clock.now_ms()}
            case "POST", ["kill"]:
                return {"pid": await self._pool(body["function"]).kill_one()}
            case "POST", ["fire"]:
                return await self._run_now(body["name"])
            case "POST" | "DELETE" | "GET", ["gate", name] if self._gate is not None:
                function = self._pool(name).function.name
                if method == "POST":
                    self._gate.shut(function, Shut(str(body["call"]), int(body["nth"]), bool(body["after"])))
                return {"opened": self._gate.open(function)} if method == "DELETE" else self._gate.said(function)
        raise _UnknownNameError(f"no such call: {method} {path}")

    async def _run_now(self, name: str) -> object:
        schedule = self._schedules.named(name)
        pool = self._pool(schedule.function if schedule else name)
        payload = payload_of(schedule, self._clock.now_ms()) if schedule else b"{}"
        outcome = await pool.invoke(payload)
        return {"verdict": outcome.verdict, "result": json.loads(outcome.payload or b"null")}

    def _status(self) -> object:
        return {
            **self._ready,
            "clock": {"offset_ms": self._clock.offset_ms, "now_ms": self._clock.now_ms()},
            "functions": {
                name: [{"name": w.name, "pid": w.pid, "busy": w.current is not None} for w in pool.workers]
                for name, pool in self._pools.items()
            },
            "schedules": {s.name: {"function": s.function, "every_s": s.period_s} for s in self._schedules.all},
        }

    def _pool(self, name: str) -> Pool:
        function = self._template.named(name)
        if function is None:
            raise _UnknownNameError(f"no function {name}; there are {', '.join(sorted(self._pools))}")
        return self._pools[function.name]
