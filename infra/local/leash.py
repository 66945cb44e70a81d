"""
Runs a command that shall not outlive the supervisor: ``python -I -S leash.py <command> …``.

The supervisor stops its children itself. Only a supervisor killed with SIGKILL cannot; there Linux sends the children
SIGTERM in its place. The setting survives exec. Elsewhere this does nothing.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the command."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the setting took hold
            sys.exit(1)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - this is what it is for


if __name__ == "__main__":
    main()
