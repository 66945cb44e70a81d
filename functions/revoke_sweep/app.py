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
    "refused": "RevocationsRefused",
    "failed": "ItemsFailed",
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
    swept = sweep(sorted(known_clients()), deadline, wired.revoking(calls, first_shard=secrets.randbelow(SHARDS)))
    parts.telemetry.count("SweepHeartbeat", 1)
    for name, value in parts.revocations.gauges().items():
        parts.telemetry.count(name, value)
    return swept


def known_clients() -> frozenset[str]:
    """Every client that was ever configured; those of now where the heartbeat fails: that alone stops no sweep."""
    names = parts.clients.names()
    try:
        return wired.reconciling.beat("revoke_sweep", parts.clock.now(), names)
    except Exception as fault:  # noqa: BLE001 - told of, and the run goes on (I-16)
        parts.telemetry.fault("heartbeat failed", fault)
        return names
