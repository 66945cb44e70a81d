"""
The situations and the handlers from which every search is made. A flow or handler is added by one registration here,
and all techniques take it up.

A situation brings a world to a state and says which handlers can meet there. A handler is one request, one run of a
schedule, or time passing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.errors import (
    CallbackRejectedError,
    CodeMissingError,
    ProviderBusyError,
    QuitclaimError,
    RefreshInProgressError,
    WrongCodeError,
)
from quitclaim.domain.ids import ConnectionRef, digest
from quitclaim.domain.limits import CONFIRM_MS, DEADLINE_MS, GUARD_MS, REFRESH_LEASE_MS, WINDOW_MS
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.connect.browser import Callback
from quitclaim.flows.connect.callback import CallbackFailedError, complete_callback
from quitclaim.flows.connect.confirm import confirm
from quitclaim.flows.connect.link import open_link
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.reconcile import (
    carry_out_stop,
    finish,
    lapse_exchange,
    lapse_refresh,
    move_on,
    replay_waiting,
    send_again,
    send_parked,
    stop_all_of,
    wake_account,
)
from quitclaim.flows.revocations import acknowledge, revoke
from quitclaim.flows.stop import disconnect
from quitclaim.flows.tokens import hand_out
from quitclaim.ports import Key
from quitclaim.store.keys import authorization_key
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.report import NIGHTLY
from tests.proof.stepping import Call
from tests.proof.world import CLIENT, Ports, SweepDeadline, World

BASE: Final = "https://quitclaim.example"
REF: Final = ConnectionRef("t", "o", "c")
OTHER: Final = ConnectionRef("t", "o2", "c")
SECOND: Final = ConnectionRef("t", "o", "d")
HOUR_MS: Final = 3_600_000

type Handler = Callable[[Ports], Any]


@dataclass
class Scene:
    """What a situation leaves for its handlers: callbacks that may come, codes, generations."""

    callbacks: dict[str, Callback] = field(default_factory=dict)
    codes: dict[str, Secret] = field(default_factory=dict)


# --- what the user and the app do
# --------------------------------------------------------------------------------------


def begin(world: World, ref: ConnectionRef = REF, account: str = "alice", *, again: bool = False) -> Callback:
    """Start, open the link, consent; the callback that the browser would bring."""
    started = world.run(lambda ports: start(StartRequest(ref, CLIENT, None, again=again), ports.connecting))
    visit = world.run(lambda ports: open_link(started.ticket, BASE, ports.connecting))
    code = world.secret_of(f"{ref.tenant}/{ref.owner}/{ref.connection}/{len(world.ledger.codes)}")
    world.ledger.consent(code, account)
    state = parse_qs(urlsplit(visit.url).query)["state"][0]
    return Callback(CLIENT, Secret(state), Secret(code), None, (), {visit.cookie: visit.binding.reveal()})


def connected(world: World, ref: ConnectionRef = REF, account: str = "alice") -> None:
    """A ready connection."""
    brought = begin(world, ref, account)
    outcome = world.run(handler_callback(brought))
    if outcome.confirm_code is not None:
        world.run(lambda ports: confirm(ref, generation(ports, ref), outcome.confirm_code, ports.connecting))


def generation(ports: Ports, ref: ConnectionRef) -> int:
    """The connection's generation now, as the caller of a request would have seen it before."""
    key = Key(f"O#{ref.tenant}#{ref.owner}", f"C#{ref.connection}")
    return ports.look(lambda world: int((world.table.item(key) or {"generation": 0})["generation"]))


# --- handlers --------------------------------------------------------------------------------------------------------


def handler_callback(brought: Callback) -> Handler:
    """The provider's callback."""

    def run(ports: Ports) -> Any:
        try:
            return complete_callback(brought, BASE, ports.deadline, ports.connecting)
        except CallbackFailedError as failure:
            if isinstance(failure.cause, CallbackRejectedError | CodeMissingError) and not _is_spent(ports, brought):
                ports.violation("M-25: an answer without a grant left its state open")
            raise failure.cause from None

    return run


def _is_spent(ports: Ports, brought: Callback) -> bool:
    state = digest(brought.state.reveal()) if brought.state is not None else ""
    return ports.look(lambda world: not {"discarded_at", "consumed_at"}.isdisjoint(_item(world, state)))


def _item(world: World, state: str) -> Mapping[str, Any]:
    return world.table.item(authorization_key(state)) or {}


def handler_token(ref: ConnectionRef = REF) -> Handler:
    """The app asks for a token: whatever it gets was live at some instant since it asked (P-7)."""

    def run(ports: Ports) -> Any:
        name = ports.process.name
        ports.tell(lambda world: world.asks(name))
        key = Key(f"O#{ref.tenant}#{ref.owner}", f"G#{ref.connection}#{MAIN}")
        try:
            token = hand_out(ref, MAIN, 0, ports.deadline, ports.handing_out)
        except QuitclaimError as error:
            ports.tell(lambda world: world.asked.pop(name, None))
            if isinstance(error, RefreshInProgressError) and not (ports.aside_item(key) or {}).get("attempts"):
                ports.neglected("RB-42: told to wait for a refresh, and there is none")
            if isinstance(error, ProviderBusyError):
                _nothing_of(ports, key)
            raise
        wanted = (key.pk, ref.connection, token.generation, token.token_version)
        if not ports.look(lambda world: wanted in world.asked.pop(name, ())):
            ports.violation(f"P-7: version {token.token_version} was handed out after its end")
        grant = ports.aside_item(key) or {}
        if grant.get("tv") == token.token_version == grant.get("suspect"):
            ports.neglected("row 22: found good, and still suspect")
        return token

    return run


def handler_disconnect(ref: ConnectionRef = REF) -> Handler:
    """The app disconnects at the generation that it saw before anything else happened."""
    return lambda ports: disconnected(ports, ref, generation(ports, ref))


def _nothing_of(ports: Ports, key: Key) -> None:
    """What provably did nothing at the provider is not left on record as if it might have."""
    attempts = (ports.aside_item(key) or {}).get("attempts", ())
    if any(attempt.startswith(f"{ports.process.name}.") for attempt in attempts):
        ports.neglected("row 19: a refresh that was turned away is still on record")


def disconnected(ports: Ports, ref: ConnectionRef, seen: int) -> Any:
    """Disconnect at a generation; a later one is never stopped by it (F-19)."""
    stopped = disconnect(ref, seen, ports.stopping)
    if stopped.generation not in (seen, seen + 1):
        ports.violation(f"F-19: a request of generation {seen} stopped generation {stopped.generation - 1}")
    return stopped


def handler_start(ref: ConnectionRef = REF) -> Handler:
    """The app starts (again)."""
    return lambda ports: start(StartRequest(ref, CLIENT, None, again=True), ports.connecting)


def handler_confirm(scene: Scene, ref: ConnectionRef = REF, code: str = "right") -> Handler:
    """The owner brings a code."""

    return lambda ports: confirmed(ports, ref, scene.codes[code], is_right=code == "right")


def confirmed(ports: Ports, ref: ConnectionRef, code: Secret, *, is_right: bool) -> Any:
    """The owner brings that code; the books know how often a wrong one was brought, and answered as one that counts."""
    if not is_right:
        ports.tell(lambda world: world.seen.wrong_code_brought())
    try:
        return confirm(ref, generation(ports, ref), code, ports.connecting)
    except WrongCodeError:
        now = ports.clock.now()
        ports.tell(lambda world: world.seen.wrong_code_answered(counts=_may_count(world, now)))
        raise


def _may_count(world: World, now: int) -> bool:
    """Whether a wrong code still counts: something waits for a code, and not in vain."""
    exchanges = (item for item in world.table.items() if item["ty"] == "exchange")
    return any(item["outcome"] == "held" and item["hold_ends"] > now for item in exchanges)


def handler_acknowledge(ref: ConnectionRef = REF) -> Handler:
    """The owner acknowledges; the stops that waited for it are looked at now, and not on their ladder."""

    def run(ports: Ports) -> Any:
        count = acknowledge(ref, reads=ports.reads, store=ports.revocations, clock=ports.clock)
        now, prefix = ports.clock.now(), f"S#{ref.connection}#"
        for item in (ports.aside(lambda world: list(world.table.items())) or ()) if count else ():
            is_mine = item["PK"] == f"O#{ref.tenant}#{ref.owner}" and item["SK"].startswith(prefix)
            if is_mine and "closed" not in item and item["next"] > now:
                ports.neglected(f"row 40: acknowledged, and {item['SK']} is looked at only later")
        return count

    return run


def handler_sweep(ports: Ports) -> Any:
    """The sweep, on every revocation there is, by key. Undisturbed, it takes up all that is due and keeps nothing."""
    now = ports.clock.now()
    before = ports.aside(lambda world: {item["PK"]: item for item in _revocations(world)}) or {}
    rids = ports.look(lambda world: sorted(item["PK"][2:] for item in _revocations(world)))
    swept = revoke(rids, SweepDeadline(), ports.revoking)
    for pk, old in before.items():
        new = ports.aside_item(Key(pk, "Q"))
        if new is not None and new["v"] == old["v"] and _is_due(old, now):
            ports.neglected(f"F-49: {pk} was due, and the sweep left it alone")
        is_kept = new is not None and str(new.get("lease", "")).startswith(f"{ports.process.name}.")
        is_open = new is not None and "renewing" in new  # its renewal may still act
        if is_kept and old["reach"] != "account" and not is_open:  # there an unknown outcome keeps it (custody rule 12)
            ports.neglected(f"D-13: {pk} is still claimed by a sweep that has ended")
    return swept


def _revocations(world: World) -> list[Mapping[str, Any]]:
    return [item for item in world.table.items() if item["ty"] == "revocation"]


def _is_due(revocation: Mapping[str, Any], now: int) -> bool:
    """Pending, due, and nobody's; where whole accounts are reached, its account must be known."""
    if revocation["state"] != "pending" or revocation["next"] > now or revocation["deadline"] <= now:
        return False
    if revocation["reach"] in ("authorization", "account") and "account" not in revocation:
        return False
    return "lease_until" not in revocation or revocation["lease_until"] + GUARD_MS <= now


RECONCILERS: Final[Mapping[str, tuple[Callable[[Any, Any], None], str]]] = {
    "exchange": (lapse_exchange, "as_exchange"),
    "refresh": (lapse_refresh, "as_grant"),
    "deletion": (partial(stop_all_of, deadline=SweepDeadline()), "as_owner"),
    "finish": (finish, "as_revocation"),
    "wake": (wake_account, "as_account"),
    "stop": (carry_out_stop, "as_intent"),
    "connection": (move_on, "as_connection"),
    "forward": (send_again, "as_delivery"),
    "parked": (send_parked, "as_delivery"),
    "replay": (replay_waiting, "as_account"),
}


def handler_due(*kinds: str) -> Handler:
    """Reconciliation of all of these kinds that is due now, read by key: an index only gives candidates."""

    def run(ports: Ports) -> None:
        now = ports.clock.now()
        for kind in kinds:
            ports.process.begin_anew(kind)
            step, reader = RECONCILERS[kind]
            due = ports.look(partial(_due_keys, kind=kind, now=now))
            for number, key in enumerate(due):
                ports.process.begin_anew(kind, *due[number:])
                for item in ports.reconciles.items([key]):
                    try:
                        step(getattr(ports.reads, reader)(item), ports.reconciling)
                    except QuitclaimError:
                        continue

    return run


def _due_keys(world: World, *, kind: str, now: int) -> list[Key]:
    return [
        Key(item["PK"], item["SK"])
        for item in world.table.items()
        if item.get("d1", "").split("#")[0] == kind and int(item["d2"].split("#")[0]) <= now
    ]


handler_reconcile: Final = handler_due(*RECONCILERS)


def passing(ms: int) -> Handler:
    """Time passes, at some moment."""

    def run(ports: Ports) -> None:
        ports.process.step(Call(f"{ms} ms pass", frozenset({"*"}), True), ports.pass_time(ms))

    return run


# --- situations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Situation:
    """A state, and what can happen in it. *orders*: so many states of a pair are enough (in CI), as each takes long."""

    name: str
    kind: Kind
    build: Callable[[World], Scene]
    handlers: Callable[[Scene], Mapping[str, Handler]]
    confirmation: Any = "none"
    orders: int | None = None

    def make(self, prepare: Callable[[World], None] = lambda world: None) -> tuple[World, Scene]:
        """A world in this state; *prepare* brings it parts of its own before anything happens in it."""
        world = World(self.kind, self.confirmation)
        prepare(world)
        return world, self.build(world)


SITUATIONS: Final[list[Situation]] = []
RACES: Final[list[Situation]] = []
"""
Situations in which three or four things have to meet. They are for the search of T-13; the other techniques take them
up in the nightly run, where they are in `SITUATIONS` as well.
"""


def situation(
    name: str, *kinds: Kind, confirmation: str = "none", orders: int | None = None, is_race: bool = False
) -> Callable[[Callable[[World], tuple[Scene, Mapping[str, Handler]]]], Callable[..., Any]]:
    """Register a situation, once for each kind of provider."""

    def register(build: Callable[[World], tuple[Scene, Mapping[str, Handler]]]) -> Callable[..., Any]:
        for kind in kinds or (Kind(),):
            made: dict[int, Mapping[str, Handler]] = {}

            def of_world(world: World, made: dict[int, Mapping[str, Handler]] = made) -> Scene:
                scene, handlers = build(world)
                made[id(scene)] = handlers
                return scene

            def of_scene(scene: Scene, made: dict[int, Mapping[str, Handler]] = made) -> Mapping[str, Handler]:
                return made[id(scene)]

            made_of = Situation(f"{name} [{kind.label}]", kind, of_world, of_scene, confirmation, orders)
            if is_race:
                RACES.append(made_of)
            if NIGHTLY or not is_race:
                SITUATIONS.append(made_of)
        return build

    return register


REFRESHES: Final = tuple(Kind(refreshing) for refreshing in Refreshing)
TOKEN_REACH: Final = (
    Kind(Refreshing.STATIC, Reach.TOKEN),
    Kind(Refreshing.GRACE, Reach.TOKEN),
    Kind(Refreshing.ROTATING, Reach.TOKEN),
)
EITHER: Final = Kind(Refreshing.STATIC, Reach.TOKEN, takes_either=True)
WIDE: Final = (Kind(Refreshing.STATIC, Reach.AUTHORIZATION), Kind(Refreshing.STATIC, Reach.ACCOUNT))


@situation("link open", Kind(), Kind(Refreshing.STATIC, Reach.TOKEN), WIDE[0])
def link_open(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """The user has consented; the callback is on its way."""
    brought = begin(world)
    return Scene({"first": brought}), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("link open, answer lost", Kind())
def link_open_answer_lost(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """The provider will grant, and its answer will not arrive."""
    scene, handlers = link_open(world)
    world.faults["exchange"] = [Fault.LOST]
    return scene, {**handlers, "acknowledge": handler_acknowledge()}


@situation("held for its owner", Kind(), WIDE[0], confirmation="owner")
def held(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """A grant waits for its owner's code."""
    outcome = world.run(handler_callback(begin(world)))
    scene = Scene(codes={"right": outcome.confirm_code, "wrong": Secret("code/wrong")})
    return scene, {
        "confirm": handler_confirm(scene),
        "confirm again": handler_confirm(scene),
        "wrong code": handler_confirm(scene, code="wrong"),
        "start": handler_start(),
        "other connection starts": handler_start(SECOND),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("hold over", Kind(), confirmation="owner")
def hold_over(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """Nobody confirmed in time."""
    scene, handlers = held(world)
    world.now += CONFIRM_MS + GUARD_MS
    return scene, handlers


@situation("token expired", *REFRESHES, *TOKEN_REACH)
def token_expired(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """A ready connection whose access token has to be refreshed."""
    connected(world)
    world.now += HOUR_MS
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


@situation("refresh unseen", *REFRESHES, *TOKEN_REACH)
def refresh_unseen(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """A refresh whose answer was lost, its lease over."""
    scene, handlers = token_expired(world)
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.now += REFRESH_LEASE_MS + GUARD_MS
    return scene, handlers


@situation("stopped", *REFRESHES, *TOKEN_REACH, *WIDE, Kind(revocable=False))
def stopped(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """Disconnected; the revocation is owed."""
    connected(world)
    world.run(handler_disconnect())
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "start": handler_start(),
        "acknowledge": handler_acknowledge(),
        "token": handler_token(),
        "deadline passes": passing(DEADLINE_MS + GUARD_MS),
    }


@situation("stopped during a refresh", *REFRESHES, *TOKEN_REACH)
def stopped_during_refresh(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """A refresh is on record, unseen, and the connection is stopped."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.run(handler_disconnect())
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "start": handler_start(),
        "acknowledge": handler_acknowledge(),
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


@situation("shared account", *WIDE)
def shared(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """Two owners' connections live on one account whose revocation ends both."""
    connected(world)
    connected(world, OTHER)
    return Scene(), {
        "disconnect": handler_disconnect(),
        "other disconnects": handler_disconnect(OTHER),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "token": handler_token(),
    }


@situation("account-wide revocation owed", *WIDE)
def wide_owed(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """One owner's stop is owed while another owner connects the same account."""
    connected(world)
    brought = begin(world, OTHER)
    world.run(handler_disconnect())
    return Scene(), {
        "other callback": handler_callback(brought),
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


@situation("notice open", Kind(revocable=False), Kind())
def notice_open(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """A revocation ended in a notice."""
    connected(world)
    world.run(handler_disconnect())
    world.now += DEADLINE_MS + GUARD_MS
    world.run(handler_sweep)
    world.run(handler_reconcile)
    return Scene(), {
        "acknowledge": handler_acknowledge(),
        "acknowledge too": handler_acknowledge(),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
    }


@situation("two connections of one owner", Kind(), Kind(Refreshing.STATIC, Reach.TOKEN))
def two_connections(world: World) -> tuple[Scene, Mapping[str, Handler]]:
    """Two connections of one owner and client, both about to come back from the provider."""
    first, second = begin(world), begin(world, SECOND)
    return Scene(), {
        "callback": handler_callback(first),
        "second callback": handler_callback(second),
        "disconnect": handler_disconnect(),
        "second disconnects": handler_disconnect(SECOND),
        "reconcile": handler_reconcile,
    }


def attempted(world: World, handler: Handler) -> None:
    """Run a handler that may be refused."""
    try:
        world.run(handler)
    except QuitclaimError:
        return


from tests.proof import (  # noqa: E402 - they register themselves
    brokers,  # noqa: F401
    deliveries,  # noqa: F401
    inbox,  # noqa: F401
    linked,  # noqa: F401
    outbox,  # noqa: F401
    races,  # noqa: F401
    renewing,  # noqa: F401
    situations,  # noqa: F401
    takeovers,  # noqa: F401
    upkeep,  # noqa: F401
)

EVERY: Final = tuple({situation.name: situation for situation in (*SITUATIONS, *RACES)}.values())
"""All of them, races as well."""

__all__ = ["EVERY", "REF", "SITUATIONS", "ConnectionState", "Handler", "Scene", "Situation"]
