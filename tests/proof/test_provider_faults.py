"""
T-4: every fault of a provider at every call to it, through the product's own HTTP client: what is on record right after
it, and what the owner is told once everything has come to rest. The ledger judges both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from quitclaim.domain.revocations import Reach
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.status import status
from quitclaim.ports import Key
from tests.proof.http_provider import HttpFault, Provider, use_http
from tests.proof.judge import doubled, faults_at_rest, faults_of_state
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.recovery import to_rest
from tests.proof.report import note
from tests.proof.scripts import (
    HOUR_MS,
    REF,
    Handler,
    attempted,
    begin,
    connected,
    handler_callback,
    handler_disconnect,
    handler_sweep,
    handler_token,
)
from tests.proof.search import unexpected
from tests.proof.world import PatientDeadline, World

# --- what is expected ------------------------------------------------------------------------------------------------

WORDS: Final = """
exchange, identity   ready       installed
                     ended       nothing was granted, and that is known; the link may be opened anew
                     unknown     the exchange is unconfirmed: the provider may have granted
                     revoking    what was granted is queued, and the attempt is over
refresh              saved       the new token is the live one
                     kept        the attempt did nothing at the provider, and is off the record
                     unseen      the attempt stays on record
                     lost        the provider's verdict: needs_reconnect, and what may be left of it is queued
revoke               revoked     confirmed
                     again       an attempt more; tried again on the ladder
                     later       likewise, not before the provider's Retry-After
right after +        a token beside it is queued; of an answer that is cut off there may be another, so it stays unseen
at rest /removal     the owner must look at the provider's page, and acknowledge
"""

EXPECTED: Final = """
fault                        | exchange         | refresh              | revoke         | identity
connect refused              | ended            | kept                 | again          | revoking
TLS error                    | ended            | kept                 | again          | revoking
timeout before effect        | unknown /removal | unseen               | again          | revoking
timeout after effect         | unknown /removal | unseen /removal      | again          | revoking
reset after effect           | unknown /removal | unseen /removal      | again          | revoking
429 with Retry-After         | ended            | kept                 | later          | revoking
429 without Retry-After      | ended            | kept                 | again          | revoking
500                          | unknown /removal | unseen /removal      | again          | revoking
503 with Retry-After         | ended            | kept                 | later          | revoking
200 with an error body       | ended            | lost                 | again          | revoking
200 HTML                     | unknown /removal | unseen /removal      | again          | revoking
200 truncated JSON           | revoking         | unseen + /removal    | revoked        | revoking
200 huge body                | revoking         | unseen + /removal    | again          | revoking
200 without a refresh token  | ready            | saved                | revoked        | ready
200 with another subject     | revoking         | lost +               | revoked        | revoking
200 with a narrower scope    | revoking         | saved                | revoked        | ready
400 invalid_grant            | ended            | lost                 | again          | revoking
slow drip past the deadline  | unknown /removal | unseen /removal      | again          | revoking
"""


def expected() -> dict[tuple[str, HttpFault], str]:
    """The table, by call and fault."""
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in EXPECTED.strip().splitlines()]
    return {(call, HttpFault(row[0])): cell for row in rows for call, cell in zip(head[1:], row[1:], strict=True)}


# --- the calls -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A world in which the next request to an endpoint is the one that meets the fault, and who sends it."""

    build: Callable[[World, Provider], Handler]
    stop: Handler
    record: Callable[[World], str]


def _reconnecting(world: World, provider: Provider) -> Handler:
    """The connection is pinned to an account: its first grant was lost at the provider."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.REFUSED]
    attempted(world, handler_token())
    to_rest(world)
    return handler_callback(begin(world, again=True))


def _asking(world: World, provider: Provider) -> Handler:
    """The same where the token endpoint does not say whose grant it is."""
    handler = _reconnecting(world, provider)
    provider.tells_account = False
    return handler


def _expired(world: World, provider: Provider) -> Handler:
    connected(world)
    world.now += HOUR_MS
    return handler_token()


def _stopped(world: World, provider: Provider) -> Handler:
    connected(world)
    world.run(handler_disconnect())
    return handler_sweep


def _of_exchange(world: World) -> str:
    (connection,) = _items(world, "connection")
    exchange = max(_items(world, "exchange"), key=lambda item: int(item["generation"]))
    match exchange["outcome"]:
        case "installed":
            return "ready" if connection["state"] == "ready" else f"installed, {connection['state']}"
        case "cleanup":
            queued = world.table.item(Key(f"Q#{exchange['rid']}", "Q")) or {"state": "gone"}
            is_due = queued["state"] == "pending" and "lease" not in queued
            return "revoking" if is_due else f"cleanup, {queued['state']}"
        case outcome:
            return "unknown" if outcome == "unconfirmed" else str(outcome)


def _of_refresh(world: World) -> str:
    (connection,) = _items(world, "connection")
    queued = _items(world, "revocation")
    if connection["state"] == "needs_reconnect":
        return "lost" + (" +" if len(queued) > 1 else "")
    (grant,) = _items(world, "grant")
    done = "saved" if grant["tv"] == 2 else "unseen" if grant.get("attempts") else "kept"
    return done + (" +" if queued else "")


def _of_revoke(world: World) -> str:
    (queued,) = _items(world, "revocation")
    if queued["state"] != "pending":
        return "revoked" if queued["state"] == "confirmed" else str(queued["state"])
    assert (queued["attempts"], "lease" in queued) == (1, False)
    wait = queued["next"] - world.now
    return "again" if wait == 60_000 else "later" if wait > 60_000 else f"after {wait}"


def _items(world: World, ty: str) -> list[Mapping[str, Any]]:
    return [item for item in world.table.items() if item["ty"] == ty]


SCENES: Final = {
    "exchange": Scene(_reconnecting, handler_disconnect(), _of_exchange),
    "refresh": Scene(_expired, handler_disconnect(), _of_refresh),
    "revoke": Scene(_stopped, lambda ports: delete_owner(REF.of_owner, ports.stopping), _of_revoke),
    "identity": Scene(_asking, handler_disconnect(), _of_exchange),
}


KINDS: Final = (
    Kind(),
    Kind(Refreshing.STATIC, Reach.TOKEN),
    Kind(Refreshing.GRACE, Reach.TOKEN),
    Kind(Refreshing.STATIC, Reach.ACCOUNT),
)
"""Whatever a provider's tokens do at a refresh and a revocation, nothing of it may be lost."""


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", HttpFault, ids=str)
@pytest.mark.parametrize("call", SCENES)
def test_a_fault_of_the_provider_leaves_what_the_table_says(
    call: str, fault: HttpFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request, one outcome on record, and nothing of the provider's lives that nobody knows."""
    world, provider, handler = _world(call, Kind(), monkeypatch)
    provider.fault[call] = fault
    provider.requests.clear()

    process = world.process("asking", handler)
    process.run()
    record = SCENES[call].record(world)
    asked = provider.requests.count(call)
    faults = unexpected([process]) + faults_of_state(world)
    if not faults:
        provider.fault.clear()
        faults = to_rest(world) + faults_at_rest(world) + doubled(world)
    told = " /removal" if _must_remove(world) else ""

    wanted = expected()[call, fault]
    note("T-4 provider faults", 1, int(bool(faults) or record + told != wanted))
    assert not faults
    assert (record + told, asked) == (wanted, 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.label)
@pytest.mark.parametrize("moment", ["before it", "before its answer", "after its answer"])
@pytest.mark.parametrize("fault", [None, *HttpFault], ids=str)
@pytest.mark.parametrize("call", SCENES)
def test_a_stop_at_any_moment_of_the_call_is_not_refused_and_loses_nothing(
    call: str, fault: HttpFault | None, moment: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is stopped (its owner deleted, where it is stopped already) while the provider is asked."""
    world, provider, handler = _world(call, kind, monkeypatch)
    if fault is not None:
        provider.fault[call] = fault
    stops: list[str] = []

    is_answered = False

    def stop() -> None:
        process = world.process("stop", SCENES[call].stop)
        process.run()
        stops.append("stopped" if process.error is None else type(process.error).__name__)

    def requested(endpoint: str) -> None:
        if endpoint == call and moment == "before it" and not stops:
            stop()

    def answered(endpoint: str) -> None:
        nonlocal is_answered
        is_answered = is_answered or endpoint == call
        if is_answered and moment == "before its answer" and not stops:
            stop()

    provider.on_request, provider.on_answer = requested, answered
    process = world.process("asking", handler)
    process.begin()
    while not process.is_done:
        if is_answered and not stops:
            stop()
        process.advance()
    if not stops:  # no request left
        stop()
    faults = unexpected([process]) + faults_of_state(world)
    if not faults:
        provider.fault.clear()
        faults = to_rest(world) + faults_at_rest(world) + doubled(world)
        faults += [f"P-7: {item['SK']} is live after the stop" for item in _items(world, "grant")]

    note("T-4 stopped meanwhile", 1, int(bool(faults) or stops != ["stopped"]))
    assert not faults
    assert stops == ["stopped"]


def test_the_table_is_whole() -> None:
    """Every fault at every call, and no word that is not explained."""
    assert set(expected()) == {(call, fault) for call in SCENES for fault in HttpFault}
    words = {word for cell in expected().values() for word in cell.split()}
    assert words <= set(WORDS.split())


def _world(call: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Provider, Handler]:
    world = World(kind)
    world.deadline_of = PatientDeadline
    provider = use_http(world, monkeypatch)
    return world, provider, SCENES[call].build(world, provider)


def _must_remove(world: World) -> bool:
    told = world.run(lambda ports: status(REF.of_owner, reads=ports.reads, clients=ports.clients, clock=ports.clock))
    return any(notice.level.label == "permission_removal_required" for notice in told.notices)
