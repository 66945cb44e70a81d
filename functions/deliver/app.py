"""Handles accepted events, as the queue of deliveries names them; what it says of each goes back to the queue."""

from typing import Any, Final

from quitclaim.flows.deliveries import LAST_SHARE_MS, Delivered, Outcome, deliver, replay_waiting
from quitclaim.ports import Deadline
from quitclaim.runtime import wiring
from quitclaim.runtime.queue import Asked, Received, asked_of, received_of
from quitclaim.runtime.world import Invocation

wired = wiring.deliver()
parts = wired.parts
telemetry = parts.telemetry
METRICS: Final = {
    Outcome.PROCESSED: "DeliveriesProcessed",
    Outcome.DUPLICATE: "DeliveriesRepeated",
    Outcome.DROPPED: "DeliveriesDropped",
    Outcome.KEPT: "DeliveriesKept",
    Outcome.PARKED: "DeliveriesParked",
    Outcome.WAITS: "DeliveriesDeferred",
    Outcome.TAKEN: "DeliveriesTaken",
}
LONGEST_WAIT_S: Final = 12 * 60 * 60


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Messages of the queue; those that are to come again are answered as failed, each on its own."""
    again: list[str] = []
    deadline = Invocation(context)
    with telemetry.invocation():
        for received in received_of(event):
            try:
                if not is_done(received, deadline):
                    again.append(received.id)
            except Exception as fault:  # noqa: BLE001 - one message's trouble is none of the others'; this one comes again
                telemetry.fault("message failed", fault)
                again.append(received.id)
        telemetry.count("MessagesFailed", len(again))
    return {"batchItemFailures": [{"itemIdentifier": id_} for id_ in again]}


def is_done(received: Received, deadline: Deadline) -> bool:
    """Whether the message may go: the table says what is still to be done, and when."""
    if deadline.remaining_ms() < LAST_SHARE_MS:
        wired.queue.put_back(received, 0)
        return False
    now = parts.clock.now()
    taken = [each for each in handled(asked_of(received.body), deadline) if each.outcome is Outcome.TAKEN]
    for each in taken:  # put back until the other's lease is over: not before, and not the whole time-out later
        wait_s = -(-max((each.until or now) - now, 0) // 1000)
        wired.queue.put_back(received, min(wait_s, LONGEST_WAIT_S))
    return not taken


def handled(asked: Asked, deadline: Deadline) -> list[Delivered]:
    """One delivery, or all that waits beside an account; each is counted by what it came to."""
    if asked.account is not None:
        found = replay_waiting(asked.client, asked.account, deadline, wired.delivering)
    else:
        found = [deliver(asked.client, asked.digest or "", deadline, wired.delivering)]
    for each in found:
        telemetry.count(METRICS[each.outcome])
        for share, times in each.shares.items():
            telemetry.count(f"Shares{share.title().replace(' ', '')}", times)
        telemetry.say("delivered", client=asked.client, outcome=each.outcome, reason=each.reason, counts=each.shares)
    return found
