"""
Situations of events that name a source behind a broker's account: connected by the broker's word or by the app's,
ended, asked for again meanwhile. Registered as those of `scripts`.
"""

from typing import Any, Final

from quitclaim.domain.hooks import HookAnswer, HookOutcome, HookWord
from quitclaim.domain.limits import DELIVERY_LEASE_MS, GUARD_MS, MINUTE, WINDOW_MS
from quitclaim.domain.webhooks import Incoming
from quitclaim.flows.connect.browser import Callback
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.webhooks import TakingIn, take_in
from tests.proof.brokers import BROKER, WATCH, visited
from tests.proof.deliveries import EVENT, LATER, accepted, handler_deliver, handler_forward
from tests.proof.inbox import NoQueue, SimulatedHook
from tests.proof.ledger import Issued, Kind
from tests.proof.scripts import (
    REF,
    Handler,
    Scene,
    begin,
    handler_callback,
    handler_disconnect,
    handler_reconcile,
    handler_start,
    handler_sweep,
    passing,
    situation,
)
from tests.proof.situations import Made, handler_delete
from tests.proof.world import CLIENT, Ports, World

THIRD: Final = "third"


def linked(world: World) -> None:
    """A connection to a broker is ready."""
    world.run(handler_callback(visited(world)))


def asked(world: World) -> None:
    """And the app has asked for a source behind it."""
    world.now += 1
    world.run(handler_asks())
    world.now += 1


def account_of(world: World) -> Issued:
    """The connection's account at the broker, which other connections of the world have of their own."""
    whose = f"{REF.tenant}/{REF.owner}/{REF.connection}"
    (issued,) = (each for each in world.ledger.alive() if each.account == whose)
    return issued


def comes(world: World, name: str = EVENT, **event: Any) -> None:
    """An event of the account names the source."""
    issued = account_of(world)
    accepted(world, name, issued.name, source=WATCH, **event)
    world.now += 1


def handler_asks() -> Handler:
    """The app asks for a link of the source."""
    return lambda ports: start(StartRequest(REF, CLIENT, None, source=WATCH), ports.connecting)


def of_two_events() -> dict[str, Handler]:
    """What meets where two events of a source wait: their copies, the app, and a stop."""
    return {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "deliver later": handler_deliver(LATER),
        "asks again": handler_asks(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
        "lease passes": passing(DELIVERY_LEASE_MS + GUARD_MS),
    }


@situation("an event of a source", BROKER)
def plain(world: World) -> Made:
    """Two events of a source that waits to be linked, and their copies."""
    linked(world)
    asked(world)
    comes(world)
    comes(world, LATER)
    return Scene(), of_two_events() | {"delete": handler_delete()}


@situation("an event of a source that nobody asked for", BROKER)
def observed(world: World) -> Made:
    """Two events of it, and then the app asks."""
    linked(world)
    comes(world)
    comes(world, LATER, source_word="connected", occurred_at=world.now)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver later": handler_deliver(LATER),
        "asks": handler_asks(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
    }


@situation("a source that ends and comes back", BROKER)
def ended(world: World) -> Made:
    """The broker says that it has ended, that it is back, and what it gave in between."""
    linked(world)
    comes(world)
    world.run(handler_deliver())
    comes(world, LATER, source_word="disconnected", occurred_at=world.now)
    comes(world, THIRD, source_word="connected", occurred_at=world.now)
    comes(world, "data")
    return Scene(), {
        "deliver end": handler_deliver(LATER),
        "deliver back": handler_deliver(THIRD),
        "deliver data": handler_deliver("data"),
        "asks": handler_asks(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
        "minute passes": passing(MINUTE),
    }


@situation("a source that fails", BROKER)
def failed(world: World) -> Made:
    """The broker says that its link failed; twice, while the app asks for another."""
    linked(world)
    asked(world)
    comes(world, source_word="failed", occurred_at=world.now)
    comes(world, LATER, source_word="failed", occurred_at=world.now)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver later": handler_deliver(LATER),
        "asks": handler_asks(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
    }


@situation("a source that the app decides about", BROKER)
def decided(world: World) -> Made:
    """It is asked about each event, and admits the source."""
    world.app_admits = HookWord.ADMITTED
    linked(world)
    asked(world)
    comes(world)
    comes(world, LATER)
    return Scene(), of_two_events()


@situation("a source that the app wants nothing of", BROKER)
def removed(world: World) -> Made:
    """Each of its events is over."""
    world.app_admits = HookWord.REMOVED
    linked(world)
    comes(world)
    comes(world, LATER)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "deliver later": handler_deliver(LATER),
        "asks": handler_asks(),
        "forward": handler_forward,
    }


class SendsAgain(SimulatedHook):
    """A provider that is asked to send again what nobody can take now; its events name the source."""

    asks_for_retry = True

    def __init__(self, account: str, *names: str) -> None:
        super().__init__(*names)
        self.more = {"accounts": (account,), "source": WATCH}


def handler_webhook(account: str) -> Handler:
    """The broker sends an event; it is stored, or asked for again."""

    def run(ports: Ports) -> Any:
        taking_in = TakingIn(
            reads=ports.reads,
            store=ports.webhooks,
            addresses=SendsAgain(account, "one"),
            vault=ports.vault,
            forward=NoQueue(),
            clock=ports.clock,
        )
        request = Incoming("POST", f"https://quitclaim.example.com/webhooks/{CLIENT}", {}, {}, b"{}")
        return take_in(CLIENT, None, request, taking_in).accepted

    return run


@situation("a source that the app has not decided about", BROKER)
def undecided(world: World) -> Made:
    """It takes no event by itself, so each of them waits."""
    world.app_admits = HookWord.DEFERRED
    linked(world)
    asked(world)
    comes(world)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "asks again": handler_asks(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
    }


REFUSED: Final = HookAnswer(HookOutcome.FAILED, "status_500")


def handler_refused(brought: Callback) -> Handler:
    """A callback whose grant the app does not want: undisturbed, nothing is held when it ends."""

    def run(ports: Ports) -> Any:
        try:
            return handler_callback(brought)(ports)
        finally:
            held = ports.aside(lambda world: [item for item in world.table.items() if item.get("outcome") == "held"])
            if held:
                ports.neglected("M-44: the app does not want it, and it is still held")

    return run


@situation("a link that the app does not want", BROKER, Kind())
def unwanted(world: World) -> Made:
    """Asked before the grant is installed, it refuses: the grant is revoked."""
    world.app_establishes = REFUSED
    brought = visited(world) if world.kind.broker else begin(world)
    return Scene(), {
        "callback": handler_refused(brought),
        "same callback": handler_callback(brought),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("a source that the app does not admit", BROKER)
def unadmitted(world: World) -> Made:
    """Linked behind an account that is there: the source fails, the account stays."""
    linked(world)
    world.now += 1
    brought = visited(world, source=WATCH)
    world.now += 1
    world.app_establishes = REFUSED
    comes(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "same callback": handler_callback(brought),
        "deliver": handler_deliver(),
        "asks again": handler_asks(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
    }


@situation("a webhook of a source that is not ready", BROKER)
def unready(world: World) -> Made:
    """It is asked for again, until the broker's word connects the source."""
    linked(world)
    asked(world)
    issued = account_of(world)
    comes(world, source_word="connected", occurred_at=world.now)
    return Scene(), {
        "webhook": handler_webhook(issued.name),
        "copy": handler_webhook(issued.name),
        "deliver": handler_deliver(),
        "asks again": handler_asks(),
        "disconnect": handler_disconnect(),
    }
