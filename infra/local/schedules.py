"""
The template's schedules, by the clock that can be moved.

A schedule that became due several times while the clock was moved fires once, and then again one period later.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from infra.local.clock import MovedClock
from infra.local.template import ACCOUNT, REGION, Schedule

type Fire = Callable[[Schedule, bytes], None]
# The clock file may be written by another hand than the control endpoint's: look at it this often.
_LOOK_EVERY_S = 1.0


class Schedules:
    """When each schedule is due, and the loop that fires it."""

    def __init__(self, schedules: tuple[Schedule, ...], clock: MovedClock, fire: Fire) -> None:
        self.all = schedules
        self._clock = clock
        self._fire = fire
        self._due_ms = {s.name: clock.now_ms() + s.period_s * 1000 for s in schedules}
        self._moved = asyncio.Event()

    def clock_moved(self) -> None:
        """Look again now."""
        self._moved.set()

    def named(self, name: str) -> Schedule | None:
        """The schedule called *name*, or the first one of the function called *name*."""
        by_name = {s.name: s for s in self.all}
        return by_name.get(name) or next((s for s in self.all if s.function == name), None)

    def fire_due(self) -> list[str]:
        """Fire what is due, each schedule once; returns their names."""
        now_ms = self._clock.now_ms()
        due = [s for s in self.all if self._due_ms[s.name] <= now_ms]
        for schedule in due:
            self._due_ms[schedule.name] = now_ms + schedule.period_s * 1000
            self._fire(schedule, payload_of(schedule, now_ms))
        return [s.name for s in due]

    async def run(self) -> None:
        """Fire schedules as they become due, for ever."""
        while True:
            self.fire_due()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), _LOOK_EVERY_S)
            self._moved.clear()


def payload_of(schedule: Schedule, now_ms: int) -> bytes:
    """What the scheduler sends: the schedule's own input, or the service's default event."""
    if schedule.payload is not None:
        return schedule.payload.encode()
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": ACCOUNT,
        "time": at,
        "region": REGION,
        "resources": [f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{schedule.name}"],
        "detail": "{}",
    }
    return json.dumps(event).encode()
