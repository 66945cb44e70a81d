"""Revokes what is due: every minute by schedule, and at once by a kick that names the revocations."""

import asyncio
import secrets
from dataclasses import asdict, replace
from typing import Any

from quitclaim.domain.limits import SHARDS
from quitclaim.flows.revocations import IN_FLIGHT, Swept, revoke, sweep
from quitclaim.runtime import wiring
from quitclaim.runtime.world import Invocation

wired = wiring.revoke_sweep()
parts = wired.parts
MAX_KICK = 100


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """`{"rids": [...]}`: those, by key. Anything else: everything that is due."""
    rids = event.get("rids")
    try:
        if isinstance(rids, list):
            swept = asyncio.run(kicked([str(rid) for rid in rids[:MAX_KICK]], Invocation(context)))
        else:
            swept = asyncio.run(scheduled(Invocation(context)))
        counts = {name: count for name, count in asdict(swept).items() if isinstance(count, int)}
        parts.telemetry.say("swept", counts=counts)
        for name, metric in METRICS.items():
            parts.telemetry.count(metric, counts[name])
        return counts
    finally:
        parts.telemetry.flush()


METRICS = {
    "confirmed": "RevocationsConfirmed",
    "deferred": "RevocationsDeferred",
    "quarantined": "RevocationsQuarantined",
}


async def kicked(rids: list[str], deadline: Invocation) -> Swept:
    """By key, not through the index: a stop that just committed is not in it yet."""
    async with parts.http.in_flight(IN_FLIGHT):
        return await revoke(rids, deadline, wired.revoking)


async def scheduled(deadline: Invocation) -> Swept:
    """
    Everything due of every client that was ever configured; then the gauges, afresh, so that no alarm can be lost.
    """
    now = parts.clock.now()
    clients = await asyncio.to_thread(wired.reconciling.beat, "revoke_sweep", now, parts.clients.names())
    revoking = replace(wired.revoking, first_shard=secrets.randbelow(SHARDS))
    async with parts.http.in_flight(IN_FLIGHT):
        swept = await sweep(sorted(clients), deadline, revoking)
    gauges = await asyncio.to_thread(parts.revocations.gauges)
    parts.telemetry.count("SweepHeartbeat", 1)
    for name, value in gauges.items():
        parts.telemetry.count(name, value)
    return swept
