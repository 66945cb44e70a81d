"""
Situations of a provider's webhook on its way in: copies of it, a table that does not answer, workers that die between
the write and the message, and who handles it meanwhile. Registered as those of `scripts`.
"""

import json
from typing import Any, Final

from quitclaim.domain.limits import DELIVERY_LEASE_MS, FORWARD_MS, GUARD_MS
from quitclaim.domain.webhooks import Event, Incoming, Prepared, Read, Taken, Trust
from quitclaim.flows.webhooks import TakingIn, take_in
from tests.proof.deliveries import NoQueue, handler_deliver, handler_forward, key_of
from tests.proof.ledger import Kind
from tests.proof.scripts import Handler, Scene, connected, handler_disconnect, passing, situation
from tests.proof.situations import Made
from tests.proof.world import CLIENT, Ports, World

REQUEST: Final = Incoming("POST", f"https://quitclaim.example.com/webhooks/{CLIENT}", {}, {}, b"{}")
ANSWERED: Final = 200


class SimulatedHook:
    """`ports.WebhookAddress` of a provider whose every request is believed, and brings the events that it names."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.more: dict[str, Any] = {"accounts": ("alice",)}

    provider = "simulated"
    client = CLIENT
    asks_for_retry = False

    def receipt(self, digest: str) -> str | None:
        """Nothing but a status is answered."""
        return None

    def at(self, client: str, endpoint: str | None) -> "SimulatedHook":
        """The only address."""
        del client, endpoint
        return self

    def read(self, request: Incoming, now: int) -> Read:
        """What the request is."""
        prepared = Prepared(
            self.provider, CLIENT, now, Trust.SIGNED, "0" * 64, len(request.body), kind="made", **self.more
        )
        return Taken(tuple(Event(prepared, json.dumps(name).encode(), "id", name) for name in self._names), ANSWERED)


def digest_of(name: str) -> str:
    """The trace of an event, as the world's vault makes it."""
    return f"alice-id-{name}"


def handler_webhook(*names: str) -> Handler:
    """
    The provider sends a request with these events. Answered 2xx, each of them is in the table; else the provider sends
    the request again, which is another handler's business.
    """

    def run(ports: Ports) -> Any:
        taking_in = TakingIn(
            reads=ports.reads,
            store=ports.webhooks,
            addresses=SimulatedHook(*names),
            vault=ports.vault,
            forward=NoQueue(),
            clock=ports.clock,
        )
        received = take_in(CLIENT, None, REQUEST, taking_in)
        for name in names if received.status == ANSWERED else ():
            if ports.aside_item(key_of(digest_of(name))) is None:
                ports.neglected(f"P-9: {name} was answered 2xx, and is not there")
        return received.status, received.accepted + received.duplicates

    return run


@situation("a webhook", Kind())
def coming(world: World) -> Made:
    """Three copies of it, and a worker that handles it, while its connection may be stopped."""
    connected(world)
    return Scene(), {
        "webhook": handler_webhook("one"),
        "copy": handler_webhook("one"),
        "third copy": handler_webhook("one"),
        "deliver": handler_deliver(digest_of("one")),
        "forward": handler_forward,
        "disconnect": handler_disconnect(),
        "half a minute passes": passing(FORWARD_MS),
    }


@situation("a webhook whose message was lost", Kind())
def left(world: World) -> Made:
    """It was stored and nobody heard of it: its copy is a duplicate, and reconciliation alone sends it."""
    connected(world)
    world.run(handler_webhook("one"))
    return Scene(), {
        "copy": handler_webhook("one"),
        "forward": handler_forward,
        "deliver": handler_deliver(digest_of("one")),
        "half a minute passes": passing(FORWARD_MS),
    }


@situation("a webhook with two events", Kind())
def batch(world: World) -> Made:
    """One of them is there already; the copy of the request brings both."""
    connected(world)
    world.run(handler_webhook("one"))
    return Scene(), {
        "webhook": handler_webhook("one", "two"),
        "copy": handler_webhook("one", "two"),
        "deliver": handler_deliver(digest_of("one")),
        "deliver two": handler_deliver(digest_of("two")),
        "lease passes": passing(DELIVERY_LEASE_MS + GUARD_MS),
    }


__all__ = ["digest_of", "handler_webhook"]
