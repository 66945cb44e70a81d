"""
The state folder of one stack: who runs in it, what it serves, and where everything is kept.

A lock that the kernel drops with the process says whether a supervisor runs, so a stale pid is never signalled.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class AlreadyRunningError(Exception):
    """Another supervisor holds this state folder."""


@dataclass(frozen=True)
class StateFolder:
    """Paths below the folder, and its lock."""

    root: Path

    @property
    def ready_file(self) -> Path:
        """What the running stack serves; exists from readiness until the stop."""
        return self.root / "stack.json"

    @property
    def keys_file(self) -> Path:
        """The local callers' keys (mode 600)."""
        return self.root / "keys.json"

    @property
    def clock_file(self) -> Path:
        """The offset of the moved clock, in milliseconds."""
        return self.root / "clock"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.root / "logs"

    @property
    def ministack(self) -> Path:
        """MiniStack's files."""
        return self.root / "ministack"

    @property
    def provider(self) -> Path:
        """The OAuth provider's files."""
        return self.root / "provider"

    @property
    def catalogue(self) -> Path:
        """Provider specs compiled for this stack."""
        return self.root / "catalogue"

    def lock(self) -> None:
        """Take the folder until this process ends; `AlreadyRunningError` if another process has it."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)  # what MiniStack keeps in it is not encrypted
        # Never closed: the kernel lets it go when the process has ended, and not before.
        handle = os.open(self.root / "supervisor.pid", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise AlreadyRunningError(f"a stack runs in {self.root} (pid {self.running_pid()})") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)

    def running_pid(self) -> int | None:
        """The pid of the supervisor that holds the folder, None if there is none."""
        try:
            handle = os.open(self.root / "supervisor.pid", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.pread(handle, 32, 0) or b"0") or None
        else:
            return None
        finally:
            os.close(handle)

    def stop_running(self, within_s: float = 30.0) -> int | None:
        """SIGTERM to the running supervisor and wait until it is gone; its pid, None if none ran."""
        pid = self.running_pid()
        if pid is None:
            return None
        os.kill(pid, signal.SIGTERM)
        gives_up_at = time.monotonic() + within_s
        while self.running_pid() == pid:
            if time.monotonic() > gives_up_at:
                raise TimeoutError(f"the supervisor (pid {pid}) did not stop within {within_s:.0f} s")
            time.sleep(0.05)
        return pid

    def write_ready(self, value: Mapping[str, Any]) -> None:
        """Publish what the stack serves, as a whole."""
        replace_json(self.ready_file, value)

    def read_ready(self) -> dict[str, Any] | None:
        """What the stack serves, None before it is ready."""
        try:
            return dict(json.loads(self.ready_file.read_text()))
        except FileNotFoundError:
            return None

    def ports(self) -> dict[str, int]:
        """The ports of the last start, tried first at the next one so that registered callback URLs stay true."""
        try:
            return dict(json.loads((self.root / "ports.json").read_text()))
        except FileNotFoundError:
            return {}

    def keep_ports(self, ports: Mapping[str, int]) -> None:
        """Remember the ports."""
        replace_json(self.root / "ports.json", ports)


def replace_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write *value* so that a reader sees the old file or the new one."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps(value, indent=1))
    os.replace(draft, path)
