"""Revokes what is due: every minute by schedule, and at once by a kick that names the revocations."""

import secrets
from dataclasses import asdict
from typing import Any

from quitclaim.domain.limits import SHARDS
from quitclaim.flows.revocations import Swept, revoke, sweep
from quitclaim.ports import Calls
from quitclaim.runtime import wiring
from quitclaim.runtime.world import Invocation

wired = wiring.revoke_sweep()
parts = wired.parts
MAX_KICK = 100
METRICS = {
    "confirmed": "RevocationsConfirmed",
    "deferred": "RevocationsDeferred",
    "quarantined": "RevocationsQuarantined",
}


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """`{"rids": [...]}`: those, by key. Anything else: everything that is due."""
    rids = event.get("rids")
    deadline = Invocation(context)
    with parts.telemetry.invocation():
        with wired.calls() as calls:
            if isinstance(rids, list):
                # By key, not through the index: what a stop just committed is not in it yet.
                swept = revoke([str(rid) for rid in rids[:MAX_KICK]], deadline, wired.revoking(calls))
            else:
                swept = scheduled(deadline, calls)
        counts = asdict(swept)
        parts.telemetry.say("swept", counts=counts)
        for name, metric in METRICS.items():
            parts.telemetry.count(metric, counts[name])
        return counts


def scheduled(deadline: Invocation, calls: Calls) -> Swept:
    """Everything due of every client that was ever configured; then the gauges, afresh, so that no alarm is lost."""
    clients = wired.reconciling.beat("revoke_sweep", parts.clock.now(), parts.clients.names())
    swept = sweep(sorted(clients), deadline, wired.revoking(calls, first_shard=secrets.randbelow(SHARDS)))
    parts.telemetry.count("SweepHeartbeat", 1)
    for name, value in parts.revocations.gauges().items():
        parts.telemetry.count(name, value)
    return swept
