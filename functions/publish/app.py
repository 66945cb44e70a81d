"""Puts what the outbox holds on the event bus, as the table's stream tells of it."""

from typing import Any

from quitclaim.flows.events import publish
from quitclaim.runtime import wiring
from quitclaim.runtime.stream import new_events
from quitclaim.runtime.world import Invocation

wired = wiring.publish()
telemetry = wired.parts.telemetry


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """A batch of the stream. What the bus did not take is answered as failed, so that the stream tells of it again."""
    with telemetry.invocation():
        numbers = new_events(event)
        run = publish(list(numbers), Invocation(context), wired.publishing)
        telemetry.say("published", counts={"done": run.done, "left": len(run.left), "unfit": run.unfit})
        telemetry.count("EventsPublished", run.done)
        telemetry.count("EventsLeft", len(run.left) + run.unfit)
        return {"batchItemFailures": [{"itemIdentifier": numbers[key]} for key in run.left]}
