"""
Child processes of the supervisor: started with an environment of their own, watched, and stopped by pid.

A child inherits nothing of the caller's environment but PATH: the keys of a developer's real account never reach it.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_LEASH = Path(__file__).with_name("leash.py")
GRACE_S = 10.0
LAST_LINES = 15


class Child:
    """One running process whose output goes to a log file."""

    def __init__(self, name: str, log: Path, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._ended: asyncio.Task[int] = asyncio.create_task(process.wait())

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], cwd: Path | None = None
    ) -> "Child":
        """Start *command*; its stdout and stderr are appended to *log*."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(_LEASH),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONUNBUFFERED": "1", **environment},
                cwd=cwd,
                start_new_session=True,  # Ctrl+C goes to the supervisor alone; it stops the others in order
            )
        return cls(name, log, process)

    @property
    def pid(self) -> int:
        """The process id, also after the end."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return not self._ended.done()

    async def ended(self) -> int:
        """Wait for the end; the exit status, negative for a signal."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """SIGKILL, unless it has ended already."""
        if self.is_running:
            self._process.kill()

    async def stop(self, grace_s: float = GRACE_S) -> int:
        """SIGTERM, then SIGKILL once *grace_s* is over; returns when the process is gone."""
        if self.is_running:
            self._process.terminate()
            try:
                return await asyncio.wait_for(self.ended(), grace_s)
            except TimeoutError:
                self.kill()
        return await self.ended()

    def last_lines(self) -> str:
        """The end of its log, indented."""
        return last_lines(self.log)


def last_lines(log: Path, count: int = LAST_LINES) -> str:
    """The last lines of a log file, indented."""
    lines = log.read_text(errors="replace").splitlines()[-count:] if log.exists() else []
    return "\n".join(f"    {line}" for line in lines) or "    (it wrote nothing)"


def said(status: int) -> str:
    """An exit status in words."""
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


class Family:
    """Every child that was started, so that none is forgotten when the supervisor ends."""

    def __init__(self) -> None:
        self._members: list[Child] = []

    async def start(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], cwd: Path | None = None
    ) -> Child:
        """Start a child as `Child.start` does, and remember it."""
        child = await Child.start(name, command, log=log, environment=environment, cwd=cwd)
        self._members = [member for member in self._members if member.is_running] + [child]
        return child

    async def stop(self) -> None:
        """Stop whoever still runs, all at once, and wait for them."""
        await asyncio.gather(*(child.stop() for child in self._members))


async def until(condition: Callable[[], bool], child: Child, *, within_s: float = 30.0, every_s: float = 0.02) -> None:
    """Wait until *condition* holds; `ChildFailedError` if *child* ends before or takes too long."""
    try:
        async with asyncio.timeout(within_s):
            while not await asyncio.to_thread(condition):
                if not child.is_running:
                    raise ChildFailedError(child, said(await child.ended()))
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise ChildFailedError(child, f"was not ready within {within_s:.0f} s") from None


class ChildFailedError(Exception):
    """A child did not do its work; the message holds its name and its last log lines."""

    def __init__(self, child: Child, what: str) -> None:
        super().__init__(f"{child.name} (pid {child.pid}) {what}; its last lines in {child.log}:\n{child.last_lines()}")
