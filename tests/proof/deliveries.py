"""
Situations of events that providers sent: accepted, and handled by workers of which some die; parked before their
connection; and those that say that an account left. Registered as those of `scripts`.
"""

from typing import Any, Final

from quitclaim.domain.deliveries import Fate
from quitclaim.domain.limits import CONFIRM_MS, DELIVERY_LEASE_MS, FORWARD_MS, GUARD_MS, MINUTE, PARKED_MS
from quitclaim.domain.revocations import Reach
from quitclaim.domain.security_events import RISC, Says, SecurityEvent, SecurityEvents, Transmitter
from quitclaim.domain.webhooks import Delivery, DeliveryState, Prepared, Trust
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.deliveries import Delivered, Outcome, deliver, replay_waiting
from quitclaim.flows.operator import Redrive, redrive
from quitclaim.flows.security_events import HearingOf, hear
from quitclaim.ports import Key
from tests.proof.ledger import Kind, Refreshing
from tests.proof.scripts import (
    OTHER,
    REF,
    TOKEN_REACH,
    WIDE,
    Handler,
    Scene,
    begin,
    connected,
    handler_callback,
    handler_disconnect,
    handler_due,
    handler_start,
    handler_token,
    passing,
    situation,
)
from tests.proof.situations import (
    ASKED,
    Made,
    acting,
    handler_confirm_held,
    handler_delete,
    handler_report,
    stepped,
)
from tests.proof.world import CLIENT, TEAM, Ports, World

ALICE: Final = "digest-alice"
EVENT: Final = "event"
LATER: Final = "later"
BOTH: Final = (Kind(), Kind(Refreshing.STATIC, Reach.TOKEN))
AROUND: Final = (Kind(), TOKEN_REACH[0], WIDE[0])
UNREFRESHABLE: Final = Kind(Refreshing.STATIC, Reach.TOKEN, gives_refresh=False)


class NoQueue:
    """`ports.Forward` of which every message is lost: the table alone must be enough."""

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
        """Nobody has it."""

    def replay(self, client: str, account: str) -> None:
        """Nobody has it."""


def accepted(world: World, name: str = EVENT, account: str = "alice", **event: Any) -> None:
    """An event of the account was verified, and is durable."""

    def accept(ports: Ports) -> None:
        now = ports.clock.now()
        plain = {"trust": Trust.SIGNED, "sha256": "0" * 64, "size": 2, "kind": "made"} | event
        prepared = Prepared("simulated", CLIENT, received_at=now, accounts=(account,), **plain)
        body = ports.vault.seal_delivery(CLIENT, name, prepared, b"{}")
        state, due = DeliveryState.ACCEPTED, now + FORWARD_MS
        assert ports.webhooks.accept(Delivery(CLIENT, name, "simulated", state, now, 2, body=body, next=due))

    world.run(accept)


def departed(world: World, name: str = EVENT, trust: Trust = Trust.SIGNED, *, is_true: bool = True) -> None:
    """Ten minutes later the account leaves, and the provider says so; or somebody says so, and it is not true."""
    world.now += 10 * MINUTE
    if is_true:
        world.ledger.left("alice")
    accepted(world, name, deauthorizes=True, trust=trust, occurred_at=world.now)


def key_of(name: str = EVENT) -> Key:
    """Where the event lies."""
    return Key(f"W#{CLIENT}#{name}", "W")


def handler_deliver(name: str = EVENT) -> Handler:
    """A worker handles the event. Undisturbed, nothing that it might have done is left."""

    def run(ports: Ports) -> Any:
        done = deliver(CLIENT, name, ports.deadline, ports.delivering)
        _nothing_left(ports, name, done)
        return done.outcome

    return run


def _nothing_left(ports: Ports, name: str, done: Delivered) -> None:
    item = ports.aside_item(key_of(name))
    if item is None:
        return
    if done.outcome is not Outcome.TAKEN and str(item.get("claim", "")).startswith(f"{ports.process.name}."):
        ports.neglected(f"M-69: {name} is still claimed by a worker that has ended")
    if done.outcome is Outcome.DUPLICATE and item["state"] not in ("processed", "dropped"):
        ports.neglected(f"M-67: {name} was taken for a duplicate, and nobody had it")
    told = ports.aside(lambda world: _shares(world, name)) or []
    is_ready = (ports.aside_item(Key("O#t#o", "C#c")) or {}).get("state") == "ready"
    if item["state"] == "processed" and not told and is_ready:
        ports.neglected(f"P-9: {name} is processed, and nobody had a share of it")
    if item["state"] == "dropped" and not told and is_ready and "body" not in item:
        ports.neglected(f"P-9: {name} is dropped, and nobody had a share of it")
    if done.reason == Fate.DROP_UNKNOWN.value and ports.aside(lambda world: world.now < item["received"] + PARKED_MS):
        ports.neglected(f"RB-71: {name} is dropped, and its connection may still come")
    if done.shares.get("received") and ports.aside(_waits):
        ports.neglected(f"RB-71: {name} went before what came before it and waits")
    grant = ports.aside_item(Key("O#t#o", "G#c#main")) or {}
    if done.shares.get("to be checked") and grant.get("suspect") == grant.get("tv", 0):
        ports.neglected("row 77: the provider was to be asked about a grant, and has not been")
    if done.outcome is Outcome.PARKED and item["state"] != "parked":
        ports.neglected(f"RB-71: {name} was parked, and is {item['state']}")


def _waits(world: World) -> bool:
    return any(item["ty"] == "waiting" for item in world.table.items())


def _shares(world: World, name: str) -> list[str]:
    return [item["SK"] for item in world.table.items() if item["PK"] == key_of(name).pk and item["SK"] != "W"]


def handler_replay(ports: Ports) -> Any:
    """What waits beside the account is handled, in order."""
    return [each.outcome for each in replay_waiting(CLIENT, ALICE, ports.deadline, ports.delivering)]


handler_forward: Final = handler_due("forward", "parked", "replay")


@situation("an event", *BOTH)
def plain(world: World) -> Made:
    """Two workers have a message about it, and its connection may be stopped meanwhile."""
    connected(world)
    accepted(world)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "forward": handler_forward,
        "minute passes": passing(MINUTE),
        "lease passes": passing(DELIVERY_LEASE_MS + GUARD_MS),
    }


@situation("an event that the app is asked to take", Kind())
def asked_to_take(world: World) -> Made:
    """It says later when it is asked first: its connection has its share once the app has taken it, and not before."""
    world.app_takes = True
    connected(world)
    accepted(world)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
        "minute passes": passing(MINUTE),
    }


@situation("an event for two owners", Kind(), WIDE[0])
def shared(world: World) -> Made:
    """Each of them has a share, and either may leave."""
    connected(world)
    connected(world, OTHER)
    accepted(world)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "disconnect": handler_disconnect(),
        "other disconnects": handler_disconnect(OTHER),
        "lease passes": passing(DELIVERY_LEASE_MS + GUARD_MS),
    }


@situation("an event whose worker died", Kind())
def orphaned(world: World) -> Made:
    """It was claimed and its share not recorded; its lease is over, and two try."""
    connected(world)
    accepted(world)
    stepped(world, "dead", handler_deliver(), "transact check W+put C+put E").crash()
    world.now += DELIVERY_LEASE_MS + GUARD_MS
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "forward": handler_forward,
        "disconnect": handler_disconnect(),
    }


@situation("an event before its connection", Kind())
def early(world: World) -> Made:
    """The callback is on its way: it waits for it, or finds it there."""
    brought = begin(world)
    accepted(world)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "callback": handler_callback(brought),
        "forward": handler_forward,
    }


@situation("events that wait", Kind(), WIDE[0])
def waiting(world: World) -> Made:
    """Two are parked, the connection is ready since, and a third one comes."""
    for name in (EVENT, LATER):
        accepted(world, name)
        world.run(handler_deliver(name))
        world.now += 1
    connected(world)
    accepted(world, "third")
    return Scene(), {
        "replay": handler_replay,
        "replay again": handler_replay,
        "deliver third": handler_deliver("third"),
        "deliver later": handler_deliver(LATER),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
    }


@situation("an event that waited for nobody", Kind())
def forgotten(world: World) -> Made:
    """Its day is over, and the callback comes now."""
    accepted(world)
    world.run(handler_deliver())
    brought = begin(world)
    world.now += PARKED_MS
    accepted(world, LATER)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver later": handler_deliver(LATER),
        "forward": handler_forward,
        "start": handler_start(),
        "callback": handler_callback(brought),
    }


def handler_redrive(ports: Ports) -> Any:
    """An operator has what nobody had delivered after all."""
    with acting(ports, "redrive"):
        return len(redrive(Redrive(client=CLIENT), ASKED, ports.operating, dry_run=False)[0])


@situation("an event that is kept", Kind())
def kept(world: World) -> Made:
    """The account lost its grant, and its owner did not come back in time."""
    connected(world)
    departed(world)
    world.run(handler_deliver())
    accepted(world, LATER)
    world.run(handler_deliver(LATER))
    world.now += PARKED_MS
    world.run(handler_deliver(LATER))
    return Scene(), {
        "redrive": handler_redrive,
        "redrive again": handler_redrive,
        "deliver later": handler_deliver(LATER),
        "forward": handler_forward,
    }


@situation("a departure", *AROUND)
def departure(world: World) -> Made:
    """The provider's signed word about the only grant."""
    connected(world)
    departed(world)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "disconnect": handler_disconnect(),
        "token": handler_token(),
        "delete": handler_delete(),
        "forward": handler_forward,
    }


@situation("a departure of two owners", WIDE[0], WIDE[1])
def departure_of_two(world: World) -> Made:
    """One of them has disconnected a while ago: it may be the echo of that."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    departed(world, is_true=False)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "other disconnects": handler_disconnect(OTHER),
        "token": handler_token(OTHER),
    }


@situation("a departure that comes twice", Kind())
def departure_twice(world: World) -> Made:
    """The first stopped the connection; the second waits, and is older than what comes."""
    connected(world)
    departed(world)
    accepted(world, LATER, deauthorizes=True, occurred_at=world.now)
    world.run(handler_deliver())
    return Scene(), {
        "deliver later": handler_deliver(LATER),
        "start": handler_start(),
        "forward": handler_forward,
        "disconnect": handler_disconnect(),
    }


@situation("a hint that an account left", Kind(), UNREFRESHABLE)
def hinted(world: World) -> Made:
    """Two of them, and it is so; the provider is asked once, and decides."""
    return _hinted(world, is_true=True)


@situation("a forged hint that an account left", Kind(), UNREFRESHABLE)
def forged(world: World) -> Made:
    """Two of them, and it is not so."""
    return _hinted(world, is_true=False)


def _of_team(world: World, name: str = EVENT, **event: Any) -> None:
    """An event that names the workspace."""
    accepted(world, name, TEAM, named_by="team", **event)


NAMED: Final = (Kind(named=True), Kind(named=True, proves=True))


@situation("an event of a workspace before anybody of it", *NAMED, confirmation="owner")
def workspace_early(world: World) -> Made:
    """The callback is on its way, may die and be loaded again; whoever is ready afterwards has the event."""
    brought = begin(world)
    _of_team(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "confirm": handler_confirm_held,
        "deliver": handler_deliver(),
        "disconnect": handler_disconnect(),
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("a departure of a workspace", *NAMED)
def workspace_left(world: World) -> Made:
    """Two owners are of it; its signed word stops both, or one who stops meanwhile has done so alone."""
    connected(world)
    connected(world, OTHER)
    world.now += 10 * MINUTE
    world.ledger.left("alice")
    _of_team(world, deauthorizes=True, occurred_at=world.now)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver again": handler_deliver(),
        "disconnect": handler_disconnect(),
        "other disconnects": handler_disconnect(OTHER),
        "start": handler_start(),
        "forward": handler_forward,
    }


class _Issuer:
    """Whose token says that the grants of Alice's account were ended; a real one's verification is not of this."""

    spec: Final = Transmitter("issuer", "https://issuer.example", ("us",), "https://issuer.example/keys", CLIENT)

    def __init__(self, now: int) -> None:
        event = SecurityEvent(f"{RISC}tokens-revoked", Says.ENDED, "alice", now)
        self._told = SecurityEvents("jti-1", (event,))

    def at(self, name: str) -> "_Issuer":
        return self

    def read(self, token: bytes) -> SecurityEvents:
        return self._told


def handler_hear(world: World) -> Handler:
    """The issuer sends its token, until it is acknowledged."""
    issuer = _Issuer(world.now)

    def run(ports: Ports) -> Any:
        return hear(
            "issuer", b"token", HearingOf(ports.webhooks, issuer, ports.clients, ports.vault, ports.clock, NoQueue())
        )

    return run


@situation("a security event token", Kind(), WIDE[0])
def security_event(world: World) -> Made:
    """It comes twice, and speaks of the grant that is live; the account has left indeed."""
    connected(world)
    world.now += 10 * MINUTE
    world.ledger.left("alice")
    return Scene(), {
        "hear": handler_hear(world),
        "hear again": handler_hear(world),
        "forward": handler_forward,
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "start repeated": lambda ports: start(StartRequest(REF, CLIENT, None), ports.connecting),
        "minute passes": passing(MINUTE),
    }


def _hinted(world: World, *, is_true: bool) -> Made:
    connected(world)
    departed(world, trust=Trust.SECRET, is_true=is_true)
    accepted(world, LATER, deauthorizes=True, trust=Trust.SECRET)
    return Scene(), {
        "deliver": handler_deliver(),
        "deliver later": handler_deliver(LATER),
        "report": handler_report(),
        "token": handler_token(),
        "disconnect": handler_disconnect(),
        "forward": handler_forward,
    }


__all__ = ["ALICE", "EVENT", "REF", "accepted", "departed", "handler_deliver"]
