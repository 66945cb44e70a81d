"""
The local stack as a context manager, for the demonstration and the end-to-end tests.

    with LocalStack(state_dir, provider=True) as stack:
        stack.client("app").get("/v1/providers")
"""

import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from infra.local.children import last_lines
from infra.local.ministack import aws_client
from infra.local.principals import local_keys
from infra.local.signatures import SigV4
from infra.local.state import StateFolder
from infra.local.supervisor import REPOSITORY

START_WITHIN_S = 90.0
STOP_WITHIN_S = 30.0
PRODUCT = REPOSITORY / "layers" / "quitclaim" / "python"


class LocalStackError(Exception):
    """The stack did not start, or did not do what it was asked for."""


class LocalStack:
    """A supervisor in a child process; all stops with the ``with`` block, or with the process that entered it."""

    def __init__(
        self,
        state_dir: Path | str,
        *,
        provider: bool = False,
        schedules: bool = True,
        gate: bool = False,
        catalogue: Iterable[tuple[Path, Mapping[str, str]]] = (),
        template: Path | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = StateFolder(Path(state_dir).resolve())
        self._arguments = ["--state", str(self._folder.root), "--until-stdin-closes"]
        self._arguments += ["--provider"] if provider else []
        self._arguments += [] if schedules else ["--no-schedules"]
        self._arguments += ["--gate"] if gate else []
        for file, variables in catalogue:
            self._arguments += ["--catalogue", str(file), *(f"{name}={value}" for name, value in variables.items())]
        self._arguments += ["--template", str(template)] if template else []
        for name, value in (parameters or {}).items():
            self._arguments += ["--parameter", f"{name}={value}"]
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._ready: dict[str, Any] = {}
        self._http = httpx.Client(timeout=180, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))

    @classmethod
    def running(cls, state_dir: Path | str) -> Self:
        """The stack that `make up` left running in *state_dir*; it is not stopped by us."""
        stack = cls(state_dir)
        ready = stack._folder.read_ready() if stack._folder.running_pid() else None
        if ready is None:
            raise LocalStackError(f"no stack runs in {state_dir}")
        stack._ready = ready
        return stack

    def __enter__(self) -> Self:
        self._folder.logs.mkdir(parents=True, exist_ok=True)
        self._supervisor = start_supervisor(self._folder, self._arguments)
        try:
            self._ready = wait_until_ready(self._folder, self._supervisor)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._http.close()
        if self._supervisor is None:
            return
        self._supervisor.terminate()
        try:
            self._supervisor.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
            raise LocalStackError(f"the supervisor did not stop:\n{last_lines(self._log)}") from None
        finally:
            if self._supervisor.stdin is not None:
                self._supervisor.stdin.close()

    @property
    def status_of_supervisor(self) -> int | None:
        """Its exit status once it has ended: 0 after an orderly stop, 1 if a child failed."""
        return self._supervisor.poll() if self._supervisor is not None else None

    # --- where things are ------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return int(self._ready["pid"])

    @property
    def base_url(self) -> str:
        """The HTTP API."""
        return str(self._ready["base_url"])

    @property
    def control_url(self) -> str:
        """The supervisor's control endpoint."""
        return str(self._ready["control_url"])

    @property
    def lambda_url(self) -> str:
        """The Lambda Invoke API of the functions."""
        return str(self._ready["lambda_url"])

    @property
    def ministack_url(self) -> str:
        """The local AWS endpoint."""
        return str(self._ready["ministack_url"])

    @property
    def provider(self) -> dict[str, Any]:
        """What the OAuth provider said when it was ready."""
        if not self._ready["provider"]:
            raise LocalStackError("the stack was started without a provider")
        return dict(self._ready["provider"])

    @property
    def provider_url(self) -> str:
        """The OAuth provider."""
        return str(self.provider["url"])

    @property
    def provider_accounts(self) -> Path:
        """The file with the provider's users and passwords."""
        return Path(self.provider["accounts"])

    @property
    def api_id(self) -> str:
        """The id of the HTTP API."""
        return str(self._ready["api_id"])

    @property
    def config_path(self) -> str:
        """The SSM path of the stack's configuration."""
        return str(self._ready["config_path"])

    @property
    def resources(self) -> dict[str, str]:
        """Logical id → physical id of every resource in MiniStack."""
        return dict(self._ready["resources"])

    @property
    def keys(self) -> dict[str, tuple[str, str]]:
        """The local callers' keys: app, other, operator."""
        return local_keys(self._folder.keys_file)

    def logs(self) -> dict[str, Path]:
        """Every log file of this run by the name of its process."""
        return {path.stem: path for path in sorted(self._folder.logs.glob("*.log"))}

    # --- callers ---------------------------------------------------------------------------------------------------

    def client(self, name: str) -> httpx.Client:
        """A client of the HTTP API that signs as the caller *name*."""
        access_key, secret = self.keys[name]
        auth = SigV4(access_key, secret, str(self._ready["region"]))
        trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loopback has no TLS, and loading authorities is slow
        return httpx.Client(base_url=self.base_url, auth=auth, timeout=40, trust_env=False, verify=trusts_nobody)

    def boto3_client(self, service: str) -> Any:
        """A boto3 client: MiniStack's services, and the local functions for ``lambda``."""
        return aws_client(service, self.lambda_url if service == "lambda" else self.ministack_url)

    def add_client(self, name: str, config: Mapping[str, Any], secret: str) -> None:
        """Configure the provider client *name*; its secret goes to a SecureString that the configuration names."""
        ssm = self.boto3_client("ssm")
        place = f"{self.config_path.replace('/quitclaim/', '/quitclaim-secrets/', 1)}/{name}"
        ssm.put_parameter(Name=place, Value=secret, Type="SecureString", Overwrite=True)
        value = json.dumps({"secret": f"ssm:{place}", **config})
        ssm.put_parameter(Name=f"{self.config_path}/clients/{name}", Value=value, Type="String", Overwrite=True)

    # --- control ---------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The moved time."""
        return time.time_ns() // 1_000_000 + int(Path(self._ready["clock_file"]).read_text())

    def advance(self, seconds: float) -> int:
        """Move the clock forward; schedules that became due fire. Returns the moved time in ms."""
        return int(self._control("POST", "/clock", {"advance_ms": round(seconds * 1000)})["now_ms"])

    def kill(self, function: str) -> int:
        """SIGKILL a worker of *function*, one in mid-invocation if there is one; its pid, once another has started."""
        pid = self._control("POST", "/kill", {"function": function})["pid"]
        if pid is None:
            raise LocalStackError(f"no worker of {function} runs")
        return int(pid)

    def in_flight(self, function: str) -> int:
        """How many invocations of *function* are being worked on."""
        return int(self._control("GET", f"/in-flight/{function}")["in_flight"])

    def fire(self, name: str) -> Any:
        """Run a scheduled function (its name or the schedule's) now; its result, or `LocalStackError` if it failed."""
        done = self._control("POST", "/fire", {"name": name})
        if done["verdict"] != "returned":
            raise LocalStackError(f"{name} {done['verdict']}: {json.dumps(done['result'])}")
        return done["result"]

    def shut_gate(self, function: str, call: str, *, nth: int = 1, after: bool = False) -> None:
        """
        Hold the *nth* AWS call of that name that *function* makes from now on, and those after it.

        `UpdateItem`, `TransactWriteItems`, `Invoke` …: before AWS acts, or *after*. For a stack with a gate.
        """
        self._control("POST", f"/gate/{function}", {"call": call, "nth": nth, "after": after})

    def open_gate(self, function: str) -> int:
        """Let go of every AWS call of *function* that waits, and hold none any more; how many there were."""
        return int(self._control("DELETE", f"/gate/{function}")["opened"])

    def aws_calls(self, function: str) -> list[str]:
        """The names of the AWS calls of *function* since its gate was last shut or opened."""
        return list(self._control("GET", f"/gate/{function}")["calls"])

    def wait_at_gate(self, function: str, within_s: float = 15.0) -> None:
        """Return once an AWS call of *function* waits. With `after`, AWS has acted by then."""
        end = time.monotonic() + within_s
        while not self._control("GET", f"/gate/{function}")["waiting"]:
            if time.monotonic() > end:
                raise TimeoutError(f"within {within_s} s no call of {function} came to the gate")
            time.sleep(0.01)

    def status(self) -> dict[str, Any]:
        """Everything the supervisor knows: addresses, workers, schedules, clock."""
        return self._control("GET", "/status")

    def _control(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        response = self._http.request(method, self.control_url + path, json=body)
        if response.status_code != 200:
            raise LocalStackError(f"{method} {path}: {response.text}")
        return dict(response.json())

    @property
    def _log(self) -> Path:
        return self._folder.logs / "supervisor.log"


def start_supervisor(folder: StateFolder, arguments: list[str], *, detached: bool = False) -> subprocess.Popen[bytes]:
    """Start ``python -m infra.local up`` with its output in the state folder's supervisor.log."""
    folder.logs.mkdir(parents=True, exist_ok=True)
    with (folder.logs / "supervisor.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own module, our own arguments
            [sys.executable, "-m", "infra.local", "up", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(PRODUCT), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_until_ready(folder: StateFolder, supervisor: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the stack serves, once it does; `LocalStackError` with the supervisor's last lines if it never does."""
    gives_up_at = time.monotonic() + START_WITHIN_S
    while time.monotonic() < gives_up_at:
        ready = folder.read_ready()
        if ready is not None and ready["pid"] == supervisor.pid:
            return ready
        if supervisor.poll() is not None:
            break
        time.sleep(0.05)
    raise LocalStackError(f"the local stack did not start:\n{last_lines(folder.logs / 'supervisor.log', 40)}")
