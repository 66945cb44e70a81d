"""
Situations of what the app is told and asked: events that wait for the bus, published by who the stream wakes, five
times over if it likes, while more of them are written; a bus that takes nothing for a while; and an app that is asked
to purge. Registered as those of `scripts`.
"""

from collections.abc import Mapping
from typing import Any, Final

from quitclaim.flows.events import publish
from quitclaim.ports import Key
from tests.proof.ledger import Kind, Refreshing
from tests.proof.scripts import (
    REF,
    SECOND,
    Handler,
    Scene,
    connected,
    handler_disconnect,
    handler_due,
    handler_start,
    handler_sweep,
    situation,
)
from tests.proof.world import Ports, World

COPIES: Final = 5

type Made = tuple[Scene, Mapping[str, Handler]]


def events_of(world: World) -> list[Key]:
    """Every event, published or not, in order: the stream may tell of any of them again."""
    return sorted(
        (Key(item["PK"], item["SK"]) for item in world.table.items() if item["ty"] == "event"), key=lambda key: key.sk
    )


def handler_publish(ports: Ports) -> Any:
    """The stream tells of all events so far. Undisturbed, none is left that the app has not heard of."""
    keys = ports.look(events_of)
    told = publish(keys, ports.deadline, ports.publishing)
    for key in keys:
        item = ports.aside_item(key)
        if item is not None and "published" not in item and not ports.aside(lambda world: world.bus_out):
            ports.neglected(f"events/README.md: {key.sk} was told of by the stream, and is not published")
    return told


def handler_publish_often(ports: Ports) -> Any:
    """The same batch, several times over."""
    for number in range(COPIES):
        ports.process.begin_anew("copy", number)
        handler_publish(ports)


@situation("outbox", Kind(), Kind(Refreshing.STATIC))
def outbox(world: World) -> Made:
    """Three events wait, and what goes on writes more."""
    connected(world)
    connected(world, SECOND)
    world.run(handler_disconnect())
    return Scene(), {
        "publish": handler_publish,
        "publish too": handler_publish,
        "publish often": handler_publish_often,
        "second disconnects": handler_disconnect(SECOND),
        "sweep": handler_sweep,
        "reconcile": handler_due("finish", "stop"),
    }


@situation("bus out")
def bus_out(world: World) -> Made:
    """The bus takes nothing: whatever is asked of it stays due."""
    connected(world)
    world.bus_out = True
    return Scene(), {
        "publish": handler_publish,
        "publish too": handler_publish,
        "disconnect": handler_disconnect(REF),
    }


@situation("app purges", Kind(), Kind(Refreshing.STATIC))
def app_purges(world: World) -> Made:
    """Two stops wait for the app: asked once, it says later; a start behind the barrier waits with them."""
    world.app_purges = True
    connected(world)
    connected(world, SECOND)
    world.run(handler_disconnect())
    return Scene(), {
        "reconcile": handler_due("stop"),
        "reconcile too": handler_due("stop"),
        "second disconnects": handler_disconnect(SECOND),
        "sweep": handler_sweep,
        "finish": handler_due("finish"),
        "start": handler_start(),
    }
