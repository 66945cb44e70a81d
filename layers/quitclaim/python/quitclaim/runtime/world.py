"""The real clock, chance and invocation: the only readers of time and randomness."""

import secrets
import time
from pathlib import Path
from typing import Protocol

from quitclaim.domain.secret import Secret


class SystemClock:
    """Wall time; on the local stack moved by the offset that its supervisor keeps in a file."""

    def __init__(self, offset_file: Path | None = None) -> None:
        self._offset_file = offset_file

    def now(self) -> int:
        """Milliseconds since 1970."""
        return real_now() + self._offset()

    def pause(self, ms: int) -> None:
        """Let *ms* pass."""
        time.sleep(ms / 1000)

    def _offset(self) -> int:
        if self._offset_file is None or not self._offset_file.exists():
            return 0
        return int(self._offset_file.read_text() or "0")


def real_now() -> int:
    """Milliseconds since 1970 by the machine's own clock."""
    return time.time_ns() // 1_000_000


class RandomIds:
    """From the operating system's generator."""

    def new_id(self) -> str:
        """128 bits."""
        return secrets.token_urlsafe(16)

    def new_secret(self) -> Secret:
        """256 bits."""
        return Secret(secrets.token_urlsafe(32))


class LambdaContext(Protocol):
    """What is used of the runtime's context object."""

    def get_remaining_time_in_millis(self) -> int:
        """Until the function is killed."""
        ...


class Invocation:
    """`ports.Deadline` of one invocation."""

    def __init__(self, context: LambdaContext) -> None:
        self._context = context

    def remaining_ms(self) -> int:
        """By the runtime's clock, which nobody moves."""
        return self._context.get_remaining_time_in_millis()
