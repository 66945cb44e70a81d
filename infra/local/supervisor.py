"""
The supervisor: starts the local stack in order, watches it, and stops all of it.

1. MiniStack, and the OAuth provider when asked for.
2. The resources of the transformed template, in MiniStack.
3. Workers for each function, behind the Runtime API; the Invoke API, the HTTP API and the control endpoint.
4. The schedules, by the clock that can be moved.

SIGTERM or SIGINT stops everything and waits for it. A child that ends by itself is reported by name with its last log
lines: a worker is replaced, any other child ends the stack with a failure.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from infra.local.children import Child, ChildFailedError, Family, said, until
from infra.local.clock import MovedClock
from infra.local.control import Control
from infra.local.events import Stage
from infra.local.gate import Gate
from infra.local.http_front import HttpFront
from infra.local.lambda_api import LambdaApi
from infra.local.listeners import LOOPBACK, Listeners, free_port
from infra.local.ministack import CREDENTIALS, MissingMiniStackError, aws_client, remove_leftovers, start_ministack
from infra.local.principals import local_keys, local_principals
from infra.local.resources import Provisioned, ProvisioningError, provision
from infra.local.runtime_api import runtime_api
from infra.local.schedules import Schedules
from infra.local.sources import sources_of
from infra.local.state import StateFolder
from infra.local.template import ACCOUNT, REGION, Schedule, Template, TemplateError, read_template
from infra.local.workers import Pool, Worker, worker_environment

REPOSITORY = Path(__file__).resolve().parents[2]
PROVIDER_SPEC = REPOSITORY / "infra" / "local" / "provider" / "dot.yaml"


class SpecError(Exception):
    """A spec that was compiled for this stack does not hold."""


@dataclass(frozen=True)
class Spec:
    """A catalogue file for this stack alone, and the values of its placeholders: addresses that are known only now."""

    file: Path
    variables: Mapping[str, str]


# The ways in which a start can fail that are said in one sentence; anything else shows its traceback.
START_FAILURES = (ChildFailedError, MissingMiniStackError, ProvisioningError, SpecError, TemplateError)


@dataclass(frozen=True)
class Options:
    """What to run and where."""

    state: Path
    template: Path = REPOSITORY / "template.yaml"
    stack_name: str = "local"
    provider: bool = False
    schedules: bool = True
    gate: bool = False
    catalogue: tuple[Spec, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    ministack: Path = REPOSITORY / ".venv-ministack" / "bin" / "ministack"


def tell(message: str) -> None:
    """One line for the person who reads the supervisor's output."""
    print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)


class Supervisor:
    """One run of the local stack."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._folder = StateFolder(options.state.resolve())
        self._family = Family()
        self._listeners = Listeners()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: list[Worker] = []
        self._access_log: TextIO | None = None
        self._gate: Gate | None = None
        self._fatal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._clock: MovedClock

    async def run(self, stop: asyncio.Event) -> int:
        """Start everything, serve until *stop* is set or a child fails, stop everything. The exit status."""
        self._folder.lock()
        starting: asyncio.Task[None] = asyncio.create_task(self._start())
        ends: set[asyncio.Future[Any]] = {asyncio.create_task(stop.wait()), self._fatal}
        try:
            await asyncio.wait({starting, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            starting.cancel()
            await asyncio.wait({starting})
            if self._fatal.done():
                tell(self._fatal.result())
                return 1
        except START_FAILURES as failure:
            tell(f"the local stack did not start: {failure}")
            return 1
        finally:
            await self._stop()
        return 0

    async def _start(self) -> None:
        folder, options = self._folder, self._options
        for path in (folder.logs, folder.catalogue):
            path.mkdir(parents=True, exist_ok=True)
        folder.ready_file.unlink(missing_ok=True)
        for old in folder.logs.glob("*.log"):
            if old.name != "supervisor.log":
                old.unlink()
        self._clock = MovedClock(folder.clock_file)
        kept = folder.ports()
        ports = {name: self._listeners.reserve(kept.get(name, 0)) for name in ("http", "control", "lambda")}
        ports |= {name: free_port(kept.get(name, 0)) for name in ("ministack", "provider")}
        ministack_log = folder.logs / "ministack.log"
        ministack, provider, template = await _together(
            start_ministack(self._family, options.ministack, folder.ministack, ministack_log, ports["ministack"]),
            self._start_provider(ports["provider"]),
            asyncio.to_thread(read_template, options.template, options.stack_name),
        )
        for child in (ministack, provider[0] if provider else None):
            if child is not None:
                self._run(self._watch(child))
        await asyncio.to_thread(_compile, options.catalogue, folder.catalogue)
        base_url, ministack_url, lambda_url = (
            f"http://{LOOPBACK}:{ports[name]}" for name in ("http", "ministack", "lambda")
        )
        if options.gate:
            self._gate = Gate(ministack_url, lambda_url)
        provisioned = await asyncio.to_thread(provision, template, ministack_url, base_url, options.parameters)
        keys = local_keys(folder.keys_file)
        ready = {
            "pid": os.getpid(),
            "base_url": base_url,
            "control_url": f"http://{LOOPBACK}:{ports['control']}",
            "lambda_url": lambda_url,
            "ministack_url": ministack_url,
            "provider": provider[1] if provider else None,
            "region": REGION,
            "account_id": ACCOUNT,
            "api_id": template.api_id,
            "config_path": provisioned.config_path,
            "functions": {f.name: f.full_name for f in template.functions},
            "resources": dict(provisioned.physical_ids),
            "clock_file": str(folder.clock_file),
            "keys_file": str(folder.keys_file),
            "logs": str(folder.logs),
        }
        pools = self._make_pools(template, provisioned, ready)
        await self._serve(template, pools, keys, ports, ready)
        await asyncio.gather(*(worker.until_started() for worker in self._workers))
        client = partial(aws_client, url=str(ready["ministack_url"]))
        for source in await asyncio.to_thread(sources_of, template, provisioned.physical_ids, pools, client, tell):
            self._run(source.run())
        folder.keep_ports(ports)
        folder.write_ready(ready)
        tell(f"the local stack is ready: {base_url} (control {ready['control_url']}, state {folder.root})")

    async def _start_provider(self, port: int) -> tuple[Child, dict[str, Any]] | None:
        """The OAuth provider and what it said when it was ready; its spec is compiled for this stack's workers."""
        if not self._options.provider:
            return None
        folder = self._folder
        folder.provider.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "infra.local.provider", "--port", str(port), "--state", str(folder.provider)]
        log = folder.logs / "provider.log"
        child = await self._family.start("provider", command, log=log, environment={}, cwd=REPOSITORY)
        await until(lambda: bool(_ready_line(log)), child)
        said_ready = _ready_line(log)
        spec = Spec(PROVIDER_SPEC, {"base": said_ready["url"]})
        await asyncio.to_thread(_compile, (spec,), folder.catalogue)
        return child, said_ready

    def _make_pools(self, template: Template, provisioned: Provisioned, ready: Mapping[str, Any]) -> dict[str, Pool]:
        folder = self._folder
        added = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": ready["ministack_url"],
            "AWS_ENDPOINT_URL_LAMBDA": ready["lambda_url"],
            "QUITCLAIM_CLOCK_FILE": str(folder.clock_file),
        }
        if self._options.provider or self._options.catalogue:
            added["QUITCLAIM_CATALOGUE"] = str(folder.catalogue)
        layers = os.pathsep.join(map(str, template.layers))
        pools = {}
        for function in template.functions:
            if not function.source.is_file():
                raise TemplateError(f"the template names {function.source}, which is not there")
            pool = pools[function.name] = Pool(function)
            own = added | self._gated(function.name)
            for number in range(function.workers):
                port = self._listeners.reserve()
                resolved = provisioned.environments[function.name]
                worker = Worker(
                    pool,
                    number,
                    family=self._family,
                    port=port,
                    log=folder.logs / f"{function.name}-{number}.log",
                    environment=worker_environment(function, port, number, resolved, own, layers),
                    tell=tell,
                )
                pool.workers.append(worker)
                self._listeners.mount(port, runtime_api(worker, function.arn))
        return pools

    def _gated(self, function: str) -> dict[str, str]:
        """The endpoints of a function that has a gate before AWS; a port of its own says who calls."""
        if self._gate is None:
            return {}
        port = self._listeners.reserve()
        self._listeners.mount(port, self._gate.app_of(function))
        return dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_LAMBDA"), f"http://{LOOPBACK}:{port}")

    async def _serve(
        self,
        template: Template,
        pools: Mapping[str, Pool],
        keys: Mapping[str, tuple[str, str]],
        ports: Mapping[str, int],
        ready: Mapping[str, Any],
    ) -> None:
        self._access_log = (self._folder.logs / "http_api.log").open("w")
        stage = Stage(ACCOUNT, template.api_id, ports["http"])
        principals = local_principals(keys, f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{template.api_id}")
        lambda_api = LambdaApi(template, pools, tell)

        def fire(schedule: Schedule, payload: bytes) -> None:
            lambda_api.invoke_later(pools[schedule.function], payload, f"schedule-{time.time_ns()}")

        schedules = Schedules(template.schedules, self._clock, fire)
        front = HttpFront(template.routes, pools, principals, stage, self._access_log)
        self._listeners.mount(ports["http"], front, for_browsers=True)
        self._listeners.mount(ports["lambda"], lambda_api)
        self._listeners.mount(ports["control"], Control(template, pools, schedules, self._clock, ready, self._gate))
        await self._listeners.start()
        for pool in pools.values():
            for worker in pool.workers:
                self._workers.append(worker)
                self._run(worker.keep_running())
        if self._options.schedules:
            self._run(schedules.run())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* beside everything else; if it fails, the stack does."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None and not self._fatal.done():
                self._fatal.set_result(f"the supervisor itself failed: {error!r}")

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _watch(self, child: Child) -> None:
        status = await child.ended()
        if not self._fatal.done():
            self._fatal.set_result(str(ChildFailedError(child, f"{said(status)} unexpectedly")))

    async def _stop(self) -> None:
        self._folder.ready_file.unlink(missing_ok=True)
        if not self._fatal.done():
            self._fatal.cancel()  # whoever ends from here on was told to
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._gate is not None:
            await self._gate.close()
        await self._listeners.stop()
        await self._family.stop()
        remove_leftovers(self._folder.ministack)
        if self._access_log is not None:
            self._access_log.close()


async def _together[A, B, C](
    first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B], third: Coroutine[Any, Any, C]
) -> tuple[A, B, C]:
    """All results; if one fails, the others are given up and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(first), group.create_task(second), group.create_task(third)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return tasks[0].result(), tasks[1].result(), tasks[2].result()


def supervise(options: Options, *, until_stdin_closes: bool = False) -> int:
    """Run the stack until SIGTERM, SIGINT or, if asked, the end of stdin; the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")

    async def main() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if until_stdin_closes:
            _when_stdin_closes(lambda: loop.call_soon_threadsafe(stop.set))
        status = await Supervisor(options).run(stop)
        tell("the local stack has stopped")
        return status

    return asyncio.run(main())


def _when_stdin_closes(then: Callable[[], object]) -> None:
    """Call *then* once the process that holds the other end of stdin is gone."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            then()

    threading.Thread(target=wait, daemon=True).start()


def _compile(specs: tuple[Spec, ...], folder: Path) -> None:
    """Compile specs of this stack, for the functions to read."""
    if not specs:
        return
    from quitclaim.providers.compile import CatalogueError, compile_file  # pydantic: needed for these files only

    for spec in specs:
        try:
            compile_file(spec.file, folder, variables=spec.variables, allow_loopback=True)
        except CatalogueError as faults:
            raise SpecError(str(faults)) from None


def _ready_line(log: Path) -> dict[str, Any]:
    """The line of JSON by which the provider says that it is ready, or nothing yet."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                said_so = json.loads(line)
                if said_so.get("ready"):
                    return dict(said_so)
    return {}
