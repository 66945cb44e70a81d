"""
The clock that can be moved: real time plus an offset that lives in a file.

The supervisor writes the file, the workers read it (QUITCLAIM_CLOCK_FILE). It is replaced as a whole, so that a reader
sees the old offset or the new one and never half a number.
"""

import os
import time
from pathlib import Path


class MovedClock:
    """Real time plus the offset in *path*, in milliseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            self._write(0)

    @property
    def offset_ms(self) -> int:
        """By how much the clock is ahead of real time."""
        return int(self.path.read_text())

    def now_ms(self) -> int:
        """The moved time."""
        return time.time_ns() // 1_000_000 + self.offset_ms

    def advance(self, milliseconds: int) -> int:
        """Move the clock forward and return the new offset; time does not run backwards."""
        if milliseconds < 0:
            raise ValueError("the clock moves forward only")
        offset = self.offset_ms + milliseconds
        self._write(offset)
        return offset

    def _write(self, offset_ms: int) -> None:
        draft = self.path.with_name(self.path.name + ".new")
        draft.write_text(str(offset_ms))
        os.replace(draft, self.path)
