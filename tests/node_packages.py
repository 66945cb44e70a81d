"""npm packages of the tests, as a lock file in a test's folder names them; they lie in `build/`."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NoReturn

import pytest

BUILD: Final = Path(__file__).parents[1] / "build"
PACKAGE_FILES: Final = ("package.json", "package-lock.json", ".npmrc")
INSTALL_WITHIN_S: Final = 100


def is_ci() -> bool:
    """Whether what is missing fails instead of being skipped: in CI a skipped proof looks like a proof."""
    return os.environ.get("CI", "").lower() in ("true", "1")


def absent(what: str) -> NoReturn:
    """Skip, visibly, on a developer's machine; fail in CI."""
    if is_ci():
        pytest.fail(what)
    pytest.skip(what)


def installed(lock_dir: Path, target: Path) -> Path:
    """The folder with the packages of the lock in *lock_dir*; npm runs once per lock, not once per run."""
    target.mkdir(parents=True, exist_ok=True)
    wanted = "\0".join((lock_dir / name).read_text() for name in PACKAGE_FILES)
    stamp = target / "installed"
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two test runs at once, one installs
        if not stamp.is_file() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            for name in PACKAGE_FILES:
                shutil.copyfile(lock_dir / name, target / name)
            # No script of a package runs, and nothing is taken whose digest is not the lock's.
            flags = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--no-update-notifier"]
            command = ["npm", "ci", *flags]
            done = subprocess.run(  # noqa: S603 (a fixed command)
                command, cwd=target, capture_output=True, text=True, timeout=INSTALL_WITHIN_S, check=False
            )
            if done.returncode != 0:
                pytest.fail(f"`{' '.join(command)}` failed in {target}:\n{done.stderr[-2000:]}")
            stamp.write_text(wanted)
    return target
