"""Start, stop and failure of the whole stack: nothing is left behind, and what failed is named."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.stack import LocalStack, LocalStackError
from infra.local.state import AlreadyRunningError, StateFolder
from infra.local.supervisor import REPOSITORY
from tests.infra.local.conftest import SMALL
from tests.infra.local.test_invocations import soon

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the children of a process")


def command_line(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m infra.local`` on *state*."""
    command = [sys.executable, "-m", "infra.local", *words, "--state", str(state)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603


def family(pid: int) -> list[int]:
    """The children of a process, by the kernel's account."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process still works; a zombie, whoever should collect it, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state folder; whatever still runs in it is stopped."""
    yield tmp_path / "state"
    StateFolder(tmp_path / "state").stop_running()


def test_up_detached_and_down(state: Path) -> None:
    """`up --detach` returns once the stack is ready and prints the URLs; `down` leaves no process and no leftover."""
    started = command_line(state, "up", "--detach", "--template", str(SMALL))
    assert started.returncode == 0, started.stderr
    stack = LocalStack.running(state)
    processes = [stack.pid, *family(stack.pid)]
    assert stack.base_url in started.stdout
    assert len(processes) == 1 + 1 + 2 + 1  # itself, MiniStack, two workers for the HTTP function, one for the other
    assert (state / "keys.json").stat().st_mode & 0o777 == 0o600

    again = command_line(state, "up", "--detach", "--template", str(SMALL))
    stopped = command_line(state, "down")

    assert (again.returncode, stack.base_url in again.stdout) == (0, True)
    assert (stopped.returncode, str(stack.pid) in stopped.stdout) == (0, True)
    assert [pid for pid in processes if is_alive(pid)] == []
    assert not (state / "stack.json").exists()
    assert not (state / "ministack" / "tmp").exists()
    assert command_line(state, "down").stdout.startswith("no local stack runs in")


def test_what_was_stored_is_there_after_a_restart(state: Path) -> None:
    """Same table, same items, same keys, same clock and, where the ports are free, the same URLs."""
    with LocalStack(state, template=SMALL) as stack:
        table, url, keys, offset = stack.resources["Table"], stack.base_url, stack.keys, stack.advance(90)
        stack.boto3_client("dynamodb").put_item(TableName=table, Item={"PK": {"S": "a"}})

    with LocalStack(state, template=SMALL) as stack:
        found = stack.boto3_client("dynamodb").get_item(TableName=table, Key={"PK": {"S": "a"}})
        assert found["Item"] == {"PK": {"S": "a"}}
        assert (stack.resources["Table"], stack.base_url, stack.keys) == (table, url, keys)
        assert stack.now_ms() >= offset
        with pytest.raises(AlreadyRunningError):
            StateFolder(state).lock()


def test_a_crashed_child_ends_the_stack_and_is_named(state: Path) -> None:
    """MiniStack killed from outside: its name and last lines, a failure, and nothing left running."""
    stack = LocalStack(state, template=SMALL)
    with stack:
        children = family(stack.pid)
        ministack = next(pid for pid in children if "ministack" in Path(f"/proc/{pid}/cmdline").read_text())

        os.kill(ministack, signal.SIGKILL)

        soon(lambda: not is_alive(stack.pid))
    report = (state / "logs" / "supervisor.log").read_text()
    assert f"ministack (pid {ministack}) was ended by signal 9 unexpectedly; its last lines in" in report
    assert [pid for pid in children if is_alive(pid)] == []
    assert stack.status_of_supervisor == 1


def test_a_killed_supervisor_leaves_no_children(state: Path) -> None:
    """SIGKILL to the supervisor: its children are told by the kernel."""
    stack = LocalStack(state, template=SMALL)
    with stack:
        children = family(stack.pid)

        os.kill(stack.pid, signal.SIGKILL)

        soon(lambda: not [pid for pid in children if is_alive(pid)])
    assert StateFolder(state).running_pid() is None


def test_a_function_that_cannot_start_is_named(state: Path, tmp_path: Path) -> None:
    """The start fails with the worker's name and the reason that its runtime gave."""
    broken = tmp_path / "broken"
    shutil.copytree(SMALL.parent, broken)
    (broken / "functions" / "tick" / "app.py").write_text("import no_such_module\n")

    with pytest.raises(LocalStackError) as failed, LocalStack(state, template=broken / SMALL.name):
        pass

    assert "did not start: tick-0 (pid" in str(failed.value)
    assert "No module named 'no_such_module'" in str(failed.value)
    assert StateFolder(state).running_pid() is None
