"""Keeps the stack going, every quarter of an hour: data keys, keep-alive, compaction, the weekly inspection."""

from typing import Any

from quitclaim.flows.maintain import maintain
from quitclaim.runtime import wiring
from quitclaim.runtime.world import Invocation

wired = wiring.maintain()
telemetry = wired.parts.telemetry


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """The event of a schedule says nothing that matters."""
    del event
    with telemetry.invocation():
        run = maintain(Invocation(context), wired.maintaining)
        telemetry.say("maintained", counts={"done": run.done, "failed": run.failed})
        telemetry.count("ItemsMaintained", sum(run.done.values()))
        telemetry.count("ItemsFailed", sum(run.failed.values()))
        telemetry.count("AccountCountsWrong", run.wrong_accounts)  # a level, on every run, so that no alarm is lost
        return {"done": run.done, "failed": run.failed, "wrong_accounts": run.wrong_accounts}
