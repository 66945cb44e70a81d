"""Time that stands still until a test moves it."""

from collections.abc import Callable

NOW = 1_800_000_000_000


class MovableClock:
    """`ports.Clock`: a pause moves it, and so does a test; *on_pause* happens meanwhile."""

    def __init__(self, now: int = NOW) -> None:
        self._now = now
        self.on_pause: Callable[[], object] = lambda: None

    def now(self) -> int:
        return self._now

    def pause(self, ms: int) -> None:
        self._now += ms
        self.on_pause()

    def move(self, *, ms: int = 0, seconds: int = 0, minutes: int = 0, to: int | None = None) -> None:
        """Let time pass, or put it at an instant."""
        self._now = to if to is not None else self._now + ms + 1_000 * (seconds + 60 * minutes)


class Budget:
    """`ports.Deadline`: what is left of an invocation, used up by the clock where one is given."""

    def __init__(self, ms: int, clock: MovableClock | None = None) -> None:
        self._ms = ms
        self._clock = clock
        self._since = clock.now() if clock else 0

    def remaining_ms(self) -> int:
        return self._ms - (self._clock.now() - self._since if self._clock else 0)
