"""
T-12: nothing secret leaves. Every situation is run with the real vault and the product's HTTP client, every token,
code, verifier, state, ticket, binding, client secret and data key a canary; and all that is written, told, logged,
answered or sent to another function is looked through for any of them.
"""

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

import pytest

from quitclaim.domain.errors import QuitclaimError
from quitclaim.flows.connect.browser import Visit
from quitclaim.flows.status import status
from quitclaim.flows.tokens import AccessToken
from quitclaim.ports import Check, Delete, Put, Update
from quitclaim.runtime import views
from quitclaim.runtime.http import envelope
from quitclaim.runtime.invoke import SweepKick
from quitclaim.runtime.telemetry import Telemetry
from tests.proof.canaries import PIECE, Canaries, CanaryKms, spellings, texts_of
from tests.proof.http_provider import CLIENT_SECRET, HttpFault, Provider, use_http
from tests.proof.real_vault import use_real_vault
from tests.proof.recovery import to_rest
from tests.proof.report import note
from tests.proof.scripts import REF, SITUATIONS, Situation
from tests.proof.search import Bench
from tests.proof.stepping import Process
from tests.proof.table import TableCall, TableFault
from tests.proof.test_provider_faults import SCENES
from tests.proof.world import PatientDeadline, World
from tests.runtime.output import heard


class Outlet:
    """All that leaves a world, looked through as it does."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.canaries = Canaries()
        self.found: list[str] = []
        self.looked_at = 0
        self.canaries.of_world(world)
        self.canaries.watch(CLIENT_SECRET.encode(), "the client's secret")
        use_real_vault(world, CanaryKms(self.canaries))
        self.provider = use_http(world, monkeypatch)
        self.provider.echoes = True
        self.telemetry = Telemetry()
        heard("proof")
        self.kick = SweepKick("sweep", lambda: self, self.telemetry)  # type: ignore[arg-type, return-value]
        world.on_fault = lambda kind, fault: self.telemetry.fault("item failed", fault, kind=kind)
        world.table.watch(before=self.written)

    def look(self, output: str | bytes, where: str) -> None:
        """Look through one thing."""
        self.looked_at += 1
        self.found += self.canaries.found_in(output, where)

    def written(self, call: TableCall) -> None:
        """A call of the table: keys, conditions and attributes, the sealed ones too."""
        for text in (call.partition, call.prefix, *(part for key in call.keys for part in (key.pk, key.sk))):
            self.look(text, f"a key that is read ({call.operation})")
        for write in call.writes:
            self.look(f"{write.key.pk} {write.key.sk}", "a key")
            for text in _texts_written(write):
                self.look(text, f"{type(write).__name__} {write.key.sk.split('#')[0]}")

    def ended(self, process: Process) -> None:
        """How a request ended: its answer but for the token itself, its error in every form, its kicks, and its log."""
        error = process.error
        if error is not None:
            for text in traceback.format_exception(error):
                self.look(text, f"the words of {type(error).__name__}")
            self.telemetry.fault("request failed", error)
        if isinstance(error, QuitclaimError):
            self.look(json.dumps(envelope(error, "request-1")), f"the answer to {error.code}")
        if not isinstance(process.result, Visit):
            self.look(repr(process.result), f"the print of {type(process.result).__name__}")
        if isinstance(process.result, AccessToken):
            answer = views.access_token(process.result) | {"access_token": "***"}
            self.look(json.dumps(answer), "the answer to a token call, but for the token")
        elif is_dataclass(process.result) and not isinstance(process.result, type):
            self.telemetry.say("ended", counts={"fields": len(asdict_or_none(process.result) or {})})
        self.kick.revoke_now(self.world.kicked)

    def invoke(self, **request: Any) -> None:
        """`LambdaClient.invoke`: what another function would get."""
        self.look(request["Payload"], "a kick")

    def told(self) -> None:
        """What the owner can see."""
        world = self.world
        told = world.run(
            lambda ports: status(REF.of_owner, reads=ports.reads, clients=ports.clients, clock=ports.clock)
        )
        self.look(json.dumps(views.status(told, "https://quitclaim.example")), "the status")
        self.look(json.dumps(world.run(lambda ports: ports.reads.receipts(REF.of_owner)), default=str), "the receipts")
        for item in world.table.items():
            for text in texts_of(dict(item)):
                self.look(text, f"{item['ty']} as it lies in the table")


def asdict_or_none(value: Any) -> dict[str, Any] | None:
    """Its fields; None where one of them does not let itself be copied."""
    try:
        return asdict(value)
    except TypeError:
        return None


def _texts_written(write: Put | Update | Delete | Check) -> Iterator[str | bytes]:
    for each in write.when:
        yield from texts_of([clause.value for clause in getattr(each, "clauses", (each,))])
    if isinstance(write, Put):
        yield from texts_of(write.item)
    elif isinstance(write, Update):
        for part in (write.put, write.if_new, write.include, write.exclude, dict.fromkeys(write.remove)):
            yield from texts_of(dict(part))


@pytest.fixture
def outlet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[[Situation | None], tuple[Bench | None, Outlet]]]:
    """Makes a world with an outlet; what was logged by anybody at any level is looked through at the end."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "proof")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Quitclaim")
    caplog.set_level(logging.DEBUG)
    made: list[Outlet] = []

    def make(situation: Situation | None) -> tuple[Bench | None, Outlet]:
        def prepare(world: World) -> None:
            world.deadline_of = PatientDeadline
            made.append(Outlet(world, monkeypatch))

        bench = Bench.of(situation, prepare) if situation is not None else None
        if bench is None:
            prepare(World())
        return bench, made[-1]

    yield make
    (one,) = made
    printed = capsys.readouterr()
    for line in (*printed.out.splitlines(), *printed.err.splitlines()):
        one.look(line, "a log line")
    for record in caplog.records:
        one.look(f"{record.getMessage()} {record.__dict__!r}", f"a record of {record.name}")
    note("T-12 outputs looked through", one.looked_at, len(one.found))
    assert one.looked_at > 0
    assert not one.found, "\n".join(sorted(set(one.found))[:12])


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_no_secret_leaves_a_run(situation: Situation, outlet: Any) -> None:
    """Every handler, in health and on a table that fails from some call on; then rest, status and receipts."""
    bench, out = outlet(situation)
    world = bench.world
    for number, name in enumerate(bench.handlers):
        for fails in (False, True):
            (process,) = bench.processes([name])
            world.table.number = 0
            broken = dict.fromkeys(range(2 + number % 4, 60), TableFault.LOST) if fails else None
            world.table.watch(before=out.written, faults=broken)
            process.run()
            world.table.watch(before=out.written)
            out.ended(process)
        to_rest(world)
        out.told()

    note("T-12 runs with canaries", 2 * len(bench.handlers), len(out.found))


@pytest.mark.parametrize("fault", HttpFault, ids=str)
@pytest.mark.parametrize("call", SCENES)
def test_no_secret_leaves_by_a_fault_of_the_provider(call: str, fault: HttpFault, outlet: Any) -> None:
    """Not even where the provider quotes what it was sent."""
    _, out = outlet(None)
    provider: Provider = out.provider
    handler = SCENES[call].build(out.world, provider)
    provider.fault[call] = fault

    process = out.world.process("asking", handler)
    process.run()
    out.ended(process)
    to_rest(out.world)
    out.told()

    note("T-12 runs with canaries", 1, len(out.found))


@pytest.mark.parametrize("number", range(10))
def test_a_canary_is_found_however_it_is_written(number: int) -> None:
    """Raw, in a URL, in hex and base64 at any place, and by any twelve of its characters."""
    canaries = Canaries()
    secret = canaries.add("one")
    spelled = list(spellings(secret.encode()))[number]
    start = number % (len(spelled) - PIECE)

    assert canaries.found_in(f"before {spelled[start : start + PIECE]} after", "x") == ["I-17: one is in x"]
    assert canaries.found_in(spelled.encode(), "x") == ["I-17: one is in x"]
    assert canaries.found_in(f"before {spelled[start : start + PIECE - 1]} after", "x") == []
