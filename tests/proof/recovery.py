"""
From any state to rest: nobody asks for anything any more, the provider is healthy, every worker that was on its way is
dead, and the schedules run.

Time jumps to whatever is due next. Everything must come to its end within 25 simulated hours and a bounded number of
runs (P-11).
"""

from collections.abc import Callable
from typing import Final

from quitclaim.domain.limits import GUARD_MS
from quitclaim.flows.reconcile import reconcile
from quitclaim.flows.revocations import sweep
from tests.proof.world import CLIENT, Ports, SweepDeadline, World

HOURS_25_MS: Final = 25 * 3_600_000
RUNS: Final = 1_600
"""A run a minute for 25 hours, and some beside: what is never confirmed comes to rest at its deadline only."""
NOT_OURS: Final = frozenset({"publish", "compact", "keepalive"})
"""Kinds whose work comes long after everything has come to rest, or is another function's."""


def to_rest(world: World, *, behind: int | None = None) -> list[str]:
    """
    Run the schedules until nothing is due; what keeps that from happening.

    *behind*: the index shows nothing of what was changed since so many runs before began, 0 for the run itself (H-4);
    None: it is never behind.
    """
    world.faults.clear()
    world.slow.clear()
    world.keys_out = False
    world.bus_out = False
    if behind is None:
        return _to_rest(world, lambda: None)
    table, began = world.table, [world.table.changes] * (behind + 1)

    def next_run() -> None:
        began.append(table.changes)

    table.lag = lambda _: table.changes - began[-1 - behind]
    try:
        return _to_rest(world, next_run)
    finally:
        table.lag = 0


def _to_rest(world: World, begins: Callable[[], None]) -> list[str]:
    end = world.now + HOURS_25_MS
    for _ in range(RUNS):
        dues = [
            (int(item["d2"].split("#")[0]), item["d1"].split("#")[0])
            for item in world.table.items()
            if "d1" in item and item["d1"].split("#")[0] not in NOT_OURS
        ]
        waiting = [at for at, kind in dues if not (kind in ("stop", "connection") and _is_patient(world))]
        if not waiting:
            return []
        world.now = max(world.now, min(waiting)) + GUARD_MS + 1
        if world.now > end:
            return [f"I-15: still due after 25 hours: {sorted(kind for _, kind in dues)}"]
        begins()
        world.run(_both)
    return [f"I-15: not at rest after {RUNS} runs"]


def _both(ports: Ports) -> None:
    sweep([CLIENT], SweepDeadline(), ports.revoking)
    reconcile(SweepDeadline(), ports.reconciling)


def _is_patient(world: World) -> bool:
    """Whether every stop that is still open waits for its owner alone, so that only a person can go on."""
    from tests.proof.judge import Tables, _waits_for_its_owner

    tables = Tables(world)
    return all("closed" in item or _waits_for_its_owner(item, tables) for item in tables["intent"]) and all(
        item["state"] != "authorizing" for item in tables["connection"]
    )
