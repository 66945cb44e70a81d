"""
Situations at a broker: accounts that are there before their user returns, sources behind them, sign-in tokens.

An account counts in the ledger from when it gives access: once its user is back from the broker's pages, or an app's
SDK has a token to sign in.
"""

from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import GUARD_MS, WINDOW_MS
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret
from quitclaim.domain.sources import SourceProof
from quitclaim.flows.connect.browser import Callback, Visit
from quitclaim.flows.connect.confirm import confirm
from quitclaim.flows.connect.link import open_link
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.sign_in import SignInRequest, sdk_sign_in
from quitclaim.ports import Key
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.scripts import (
    BASE,
    REF,
    SECOND,
    Handler,
    Scene,
    handler_callback,
    handler_confirm,
    handler_disconnect,
    handler_reconcile,
    handler_start,
    handler_sweep,
    handler_token,
    passing,
    situation,
)
from tests.proof.situations import Made, handler_delete
from tests.proof.world import CLIENT, Ports, World

BROKER: Final = Kind(Refreshing.STATIC, Reach.TOKEN, has_identity=False, gives_refresh=False, broker=True)
WATCH: Final = "watch"


def came_back(visit: Visit) -> Callback:
    """The browser, back from the broker's pages, where its user has linked something."""
    state = parse_qs(urlsplit(visit.url).query)["state"][0]
    return Callback(CLIENT, Secret(state), None, None, (), {visit.cookie: visit.binding.reveal()})


def visited(world: World, ref: ConnectionRef = REF, source: str | None = None) -> Callback:
    """A link was started and opened; the callback that will come."""
    asked = StartRequest(ref, CLIENT, None, again=source is None, source=source)
    started = world.run(lambda ports: start(asked, ports.connecting))
    return came_back(world.run(lambda ports: open_link(started.ticket, BASE, ports.connecting)))


def handler_links(ref: ConnectionRef = REF, source: str | None = None) -> Handler:
    """The app starts, its user opens the link, links something, comes back and confirms."""

    def run(ports: Ports) -> Any:
        started = start(StartRequest(ref, CLIENT, None, again=source is None, source=source), ports.connecting)
        if started.ticket is None:
            return started
        visit = open_link(started.ticket, BASE, ports.connecting)
        done = handler_callback(came_back(visit))(ports)
        if done.confirm_code is not None:
            return confirm(ref, started.connection.generation, done.confirm_code, ports.connecting)
        return done

    return run


def handler_sign_in(ref: ConnectionRef = REF) -> Handler:
    """The app's SDK signs in; nothing of the token stays with us (M-23)."""

    def run(ports: Ports) -> Any:
        done = sdk_sign_in(SignInRequest(ref, CLIENT), ports.deadline, ports.connecting)
        token = done.token.reveal()
        if ports.look(lambda world: token in str(list(world.table.items()))):
            ports.violation("M-23: a sign-in token is stored")
        return done

    return run


def handler_source(proof: SourceProof | None = None) -> Handler:
    """
    The app asks for a link of a source; with *proof*, of one as it saw it. The account is never touched (M-15), and a
    source is never born connected (M-10).
    """

    def run(ports: Ports) -> Any:
        asked = StartRequest(REF, CLIENT, None, source=WATCH, proof=proof)
        done = start(asked, ports.connecting)
        item = ports.aside_item(Key("O#t#o", f"R#c#{WATCH}"))
        if item is not None and item["status"] != "disconnected":
            ports.neglected("M-10: a source was asked for, and is connected")
        return done

    return run


def seen(world: World) -> SourceProof:
    """What the app sees of the source now."""
    item = world.table.item(Key("O#t#o", f"R#c#{WATCH}")) or {"last_seen": 0}
    return SourceProof(REF.connection, WATCH, f"{REF.connection}/{WATCH}", int(item["last_seen"]))


@situation("hosted link", BROKER)
def hosted(world: World) -> Made:
    """A user comes back from a broker's pages, and all that may happen meanwhile."""
    brought = visited(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "same callback": handler_callback(brought),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "start": handler_start(),
        "sign in": handler_sign_in(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("hosted link that waits for its owner", BROKER, confirmation="owner")
def waiting(world: World) -> Made:
    """The account is held; a second user, or the same once more, takes another way to it."""
    scene = Scene()
    scene.codes["right"] = world.run(handler_callback(visited(world))).confirm_code
    return scene, {
        "confirm": handler_confirm(scene),
        "links again": handler_links(),
        "second links": handler_links(SECOND),
        "sign in": handler_sign_in(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("sign-in", BROKER)
def signing_in(world: World) -> Made:
    """The SDK signs in twice at once, while the app does everything else."""
    return Scene(), {
        "sign in": handler_sign_in(),
        "sign in too": handler_sign_in(),
        "links": handler_links(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("sign-in at a broker that does not answer", BROKER)
def unanswered(world: World) -> Made:
    """The account is made and nobody learns of it; it is turned away; it comes; its token does not."""
    world.faults["account"] = [Fault.LOST, Fault.BUSY]
    world.faults["sign_in"] = [Fault.LOST]
    return Scene(), {
        "sign in": handler_sign_in(),
        "sign in too": handler_sign_in(),
        "once more": handler_sign_in(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("sign-in, slow broker", BROKER)
def late(world: World) -> Made:
    """The account comes when the window is over."""
    world.slow["account"] = WINDOW_MS + GUARD_MS
    return Scene(), {
        "sign in": handler_sign_in(),
        "links": handler_links(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
    }


@situation("source behind an account", BROKER)
def behind(world: World) -> Made:
    """One more source of an account that is there, with and without a proof, while the account goes."""
    world.run(handler_callback(visited(world)))
    brought = visited(world, source=WATCH)
    proof = seen(world)
    return Scene(), {
        "source": handler_source(),
        "source as seen": handler_source(proof),
        "links source": handler_links(source=WATCH),
        "callback": handler_callback(brought),
        "token": handler_token(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
    }
