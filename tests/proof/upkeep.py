"""
Situations of what nobody asks for: maintenance, keys, deletions that take several steps, operators, what is left a day
later; and of those who look on while it happens. Registered as those of `scripts`.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from quitclaim.domain.attention import EXCHANGE, Subject
from quitclaim.domain.errors import ConnectionNotFoundError, KeyUnavailableError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.keyring import SEALED_FORMAT
from quitclaim.domain.limits import (
    COMPACT_MS,
    CONFIRM_MS,
    DEADLINE_MS,
    GUARD_MS,
    KEEP_ALIVE_PERCENT,
    KEY_LEAD_MS,
    KEY_LIFE_MS,
    KEY_REST_MS,
    REFRESH_LEASE_MS,
    WINDOW_MS,
)
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret
from quitclaim.domain.stop import Level
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.maintain import Maintained, compact, inspect, keep_alive, maintain, turn_ring
from quitclaim.flows.operator import acknowledge_for_deleted, attention
from quitclaim.flows.reconcile import reconcile
from quitclaim.flows.revocations import sweep
from quitclaim.flows.status import all_views, receipts, status, view
from quitclaim.flows.tokens import replay
from quitclaim.ports import Key
from quitclaim.security.keys import PURPOSES
from quitclaim.store.keys import ring_partition
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.real_vault import use_real_vault
from tests.proof.scripts import (
    HOUR_MS,
    REF,
    SECOND,
    TOKEN_REACH,
    WIDE,
    Handler,
    Scene,
    attempted,
    begin,
    connected,
    handler_acknowledge,
    handler_callback,
    handler_confirm,
    handler_disconnect,
    handler_due,
    handler_reconcile,
    handler_start,
    handler_sweep,
    handler_token,
    passing,
    situation,
)
from tests.proof.situations import ASKED, acting, handler_delete, handler_operator, handler_report
from tests.proof.world import CLIENT, OpenVault, Ports, SweepDeadline, World

DAY_MS: Final = 24 * HOUR_MS
IDLE_MS: Final = 30 * DAY_MS
IDLE: Final = (
    Kind(idle_limit_ms=IDLE_MS),
    Kind(Refreshing.REUSE, idle_limit_ms=IDLE_MS),
    Kind(Refreshing.GRACE, Reach.TOKEN, idle_limit_ms=IDLE_MS),
)
ENDS: Final = Kind(Refreshing.STATIC, Reach.TOKEN, refresh_ends_ms=60 * DAY_MS)
LISTED: Final = 100
SEALED_BY: Final = {"identity": "revoke", "id_token": "use"}
"""Under which purpose's key the vault seals what is called otherwise."""

type Made = tuple[Scene, Mapping[str, Handler]]


# --- maintenance -----------------------------------------------------------------------------------------------------


def handler_keep_alive(ports: Ports) -> Any:
    """Grants are looked after before their provider ends them. Undisturbed, none that is due is left as it was."""
    now = ports.clock.now()
    due = ports.aside(lambda world: _to_be_looked_after(world, now)) or []
    keep_alive(SweepDeadline(), ports.maintaining, Maintained())
    for item in due:
        after = ports.aside_item(Key(item["PK"], item["SK"]))
        if after is not None and after["v"] == item["v"]:
            ports.neglected(f"F-44: {item['SK']} was due, and nobody looked after it")


def _to_be_looked_after(world: World, now: int) -> list[Mapping[str, Any]]:
    return [
        item
        for item in world.table.items()
        if item["ty"] == "grant" and item.get("d1", "").startswith("keepalive#") and int(item["d2"][:13]) <= now
    ]


def handler_compact(ports: Ports) -> Any:
    """What is finished goes. Undisturbed, nothing is left that is confirmed, a day old, and awaited by nobody."""
    now = ports.clock.now()
    compact(SweepDeadline(), ports.maintaining, Maintained())
    for rid in ports.aside(lambda world: _left_by_compaction(world, now)) or ():
        ports.neglected(f"F-69: {rid} is over, and still there")


def _left_by_compaction(world: World, now: int) -> list[str]:
    open_stops = {item["PK"] for item in world.table.items() if item["ty"] == "intent" and "closed" not in item}
    return [
        item["PK"]
        for item in world.table.items()
        if item["ty"] == "revocation"
        and item.get("deadline", now) + COMPACT_MS <= now
        and item["state"] == "confirmed"
        and "finished" in item
        and _owner_of(item) not in open_stops
    ]


def handler_inspect(ports: Ports) -> Any:
    """The look over the whole table, from one end to the other."""
    return inspect(SweepDeadline(), ports.maintaining, Maintained())


def handler_turn_keys(ports: Ports) -> Any:
    """Keys are added and retired. Undisturbed, each purpose that may turn has one that has not served its time."""
    now = ports.clock.now()
    turn_ring(ports.maintaining, Maintained())
    newest: dict[str, int] = {}
    for item in ports.aside(_ring) or ():
        purpose = item["SK"].split("#")[0]
        newest[purpose] = max(newest.get(purpose, 0), item["active_from"])
    for purpose in newest.keys() - {"index"}:
        if newest[purpose] + KEY_LIFE_MS <= now:
            ports.neglected(f"row 51: the newest key of {purpose} has served its time")


def _ring(world: World) -> list[Mapping[str, Any]]:
    return [item for item in world.table.items() if item["ty"] == "ring"]


def run_sweep(ports: Ports) -> Any:
    """The schedule itself: every minute, everything due, by the index."""
    return sweep([CLIENT], SweepDeadline(), ports.revoking)


def run_reconcile(ports: Ports) -> Any:
    """The schedule itself: every minute, everything half done."""
    return reconcile(SweepDeadline(), ports.reconciling)


def run_maintain(ports: Ports) -> Any:
    """The schedule itself: now and then, keys, keep-alive, compaction, a look at everything."""
    return maintain(SweepDeadline(), ports.maintaining)


def handler_replay(ports: Ports) -> Any:
    """Reconciliation or maintenance has asked for a refresh: it is sent by another function, some time later."""
    return replay(REF, MAIN, ports.deadline, ports.handing_out)


def _owner_of(revocation: Mapping[str, Any]) -> str:
    return f"O#{revocation['t']}#{revocation['o']}"


# --- who looks on ----------------------------------------------------------------------------------------------------


def handler_status(ports: Ports) -> Any:
    """The app reads the owner's status: what is owed all the while is said to be owed (U-20)."""
    before = ports.look(_owed)
    told = status(REF.of_owner, reads=ports.reads, clients=ports.clients, clock=ports.clock)
    levels = {notice.connection_id: notice.level for notice in told.notices}
    for connection, rid in before & ports.look(_owed):
        if levels.get(connection, Level.NOT_NEEDED) < Level.PENDING:
            ports.violation(f"U-20: {rid} is owed, and the status does not say so of {connection}")
    return told


def _owed(world: World) -> frozenset[tuple[str, str]]:
    """Connections and their revocations that are owed or left to a person; not what waits for its owner."""
    open_ = ("pending", "unconfirmed", "expired", "unreadable", "unsupported")
    held = {item["rid"] for item in world.table.items() if item["ty"] == "exchange" and item["outcome"] == "held"}
    return frozenset(
        (item["c"], item["PK"])
        for item in world.table.items()
        if item["ty"] == "revocation"
        and (item["t"], item["o"]) == (REF.tenant, REF.owner)
        and item["state"] in open_
        and item["PK"][2:] not in held
        and "acknowledged" not in item
        and world.table.item(Key(_owner_of(item), f"C#{item['c']}")) is not None
    )


def handler_look(ports: Ports) -> Any:
    """The app reads one connection, then all: never those of an owner that it was told is deleted (F-27)."""
    was_deleted = ports.look(lambda world: world.is_deleted(f"O#{REF.tenant}#{REF.owner}"))
    receipts(REF.of_owner, reads=ports.reads)
    with suppress(ConnectionNotFoundError):
        view(REF, reads=ports.reads, clock=ports.clock)
    views = all_views(REF.of_owner, reads=ports.reads, clock=ports.clock)
    if was_deleted:
        ports.violation("F-27: connections of a deleted owner were listed")
    return views


def handler_attention(ports: Ports) -> Any:
    """An operator reads the list: what asks for a person all the while is on it."""
    before = ports.look(_asking)
    found, _ = attention(LISTED, ports.operating)
    listed = {str(each.subject) for each in found}
    if ports.look(lambda world: world.table.lag == 0):
        for subject in before & ports.look(_asking) - listed:
            ports.violation(f"I-16: {subject} asks for a person, and is not on the list")
    return found


def _asking(world: World) -> frozenset[str]:
    notices = ("unconfirmed", "expired", "unreadable", "unsupported")
    return frozenset(
        str(Subject(rid=item["PK"][2:]))
        for item in world.table.items()
        if item["ty"] == "revocation" and item["state"] in notices and "acknowledged" not in item
    )


def handler_operator_of_exchange(ports: Ports) -> Any:
    """An operator closes the notices of a deleted owner's exchanges that nobody saw the end of."""
    for subject in ports.look(_unconfirmed_of_deleted):
        with acting(ports, "acknowledge"):
            acknowledge_for_deleted(Subject.read(subject), ASKED, ports.operating)


def _unconfirmed_of_deleted(world: World) -> list[str]:
    """As an operator names them."""
    return [
        ":".join((EXCHANGE, *item["PK"].split("#")[1:], *item["SK"].split("#")[1:]))
        for item in world.table.items()
        if item["ty"] == "exchange" and item["outcome"] == "unconfirmed" and world.is_deleted(item["PK"])
    ]


# --- a grant that nobody uses ----------------------------------------------------------------------------------------


@situation("idle limit near", *IDLE)
def idle(world: World) -> Made:
    """Nobody has asked for a token for a long time."""
    connected(world)
    world.now += IDLE_MS * KEEP_ALIVE_PERCENT // 100 + 1
    return Scene(), {
        "keep alive": handler_keep_alive,
        "keep alive too": handler_keep_alive,
        "replay": handler_replay,
        "token": handler_token(),
        "report": handler_report(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "reconcile": handler_reconcile,
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


@situation("idle limit near, answer lost", *IDLE)
def idle_unseen(world: World) -> Made:
    """It was refreshed in time, and nobody saw the answer."""
    scene, handlers = idle(world)
    world.faults["refresh"] = [Fault.LOST]
    world.run(handler_keep_alive)
    world.now += REFRESH_LEASE_MS + GUARD_MS
    return scene, {
        "replay": handlers["replay"],
        "replay too": handlers["replay"],
        **{name: handlers[name] for name in ("keep alive", "token", "disconnect", "reconcile", "lease passes")},
    }


@situation("absolute end near", ENDS)
def ends(world: World) -> Made:
    """The provider ends the grant in a week, whatever is done; the app is told once."""
    connected(world)
    world.now += 53 * DAY_MS + 1
    return Scene(), {
        "keep alive": handler_keep_alive,
        "keep alive too": handler_keep_alive,
        "replay": handler_replay,
        "token": handler_token(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "reconcile": handler_reconcile,
    }


# --- lives of a connection -------------------------------------------------------------------------------------------


@situation("disconnected while the user was away", Kind(), WIDE[0])
def stopped_in_link(world: World) -> Made:
    """The browser comes back to a connection that was stopped."""
    brought = begin(world)
    world.run(handler_disconnect())
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "denied": handler_callback(replace(brought, code=None, error="access_denied")),
        "close": handler_due("stop"),
        "start": handler_start(),
        "status": handler_status,
        "delete": handler_delete(),
    }


@situation("owner deleted while the user was away", Kind())
def deleted_in_link(world: World) -> Made:
    """The browser comes back to an owner that is deleted."""
    brought = begin(world)
    world.run(handler_delete())
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "start": handler_start(),
        "look": handler_look,
        "disconnect": handler_disconnect(),
    }


@situation("needs to be connected again", Kind(), TOKEN_REACH[0], WIDE[0])
def lost(world: World) -> Made:
    """The provider has ended the grant, and we know."""
    _lose(world)
    return Scene(), {
        "start": handler_start(),
        "start again": handler_start(),
        "token": handler_token(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "status": handler_status,
        "delete": handler_delete(),
    }


@situation("being connected again", Kind(), TOKEN_REACH[0], WIDE[0])
def reconnecting(world: World) -> Made:
    """After the provider ended the first grant, the user consents to another one."""
    _lose(world)
    for handler in (handler_sweep, handler_reconcile):
        world.run(handler)
    brought = begin(world, again=True)
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "token": handler_token(),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "report": handler_report(),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
    }


def _lose(world: World) -> None:
    connected(world)
    world.now += HOUR_MS
    for token in world.ledger.alive():
        world.ledger.tokens[token.name] = replace(token, alive=False, why_dead="by the user")
    attempted(world, handler_token())


@situation("revoked, and nothing finished", Kind(), Kind(revocable=False), *WIDE)
def to_finish(world: World) -> Made:
    """The provider has said its word; receipt, barrier and the connection's end follow."""
    connected(world)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    return Scene(), {
        "finish": handler_due("finish"),
        "finish too": handler_due("finish"),
        "close": handler_due("stop"),
        "close too": handler_due("stop"),
        "move on": handler_due("connection"),
        "acknowledge": handler_acknowledge(),
        "start": handler_start(),
        "status": handler_status,
        "attention": handler_attention,
        "delete": handler_delete(),
    }


@situation("everything owed at once", Kind(), Kind(revocable=False), confirmation="owner")
def owing(world: World) -> Made:
    """One connection is stopped, the other's grant waits for its owner."""
    connected(world)
    outcome = world.run(handler_callback(begin(world, SECOND)))
    scene = Scene(codes={"right": outcome.confirm_code})
    world.run(handler_disconnect())
    return scene, {
        "status": handler_status,
        "look": handler_look,
        "attention": handler_attention,
        "confirm": handler_confirm(scene, SECOND),
        "second disconnects": handler_disconnect(SECOND),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("everything due at once", Kind(idle_limit_ms=IDLE_MS), Kind(Refreshing.STATIC, Reach.ACCOUNT), orders=200)
def due(world: World) -> Made:
    """Whatever a schedule may find, each of another owner; the schedules find it by their index."""
    stopped, unseen, unconfirmed, deleted = (ConnectionRef("t", owner, "c") for owner in ("o", "o2", "o3", "o4"))
    for ref in (stopped, unseen, deleted):
        connected(world, ref, ref.owner)
    begin(world, ConnectionRef("t", "o5", "c"), "o5")
    world.now += HOUR_MS
    world.faults = {"exchange": [Fault.LOST], "refresh": [Fault.LOST]}
    attempted(world, handler_callback(begin(world, unconfirmed, "o3")))
    attempted(world, handler_token(unseen))
    world.run(handler_disconnect(stopped))
    world.run(handler_delete(deleted))
    world.now += WINDOW_MS + GUARD_MS
    return Scene(), {
        "sweep": run_sweep,
        "sweep too": run_sweep,
        "reconcile": run_reconcile,
        "reconcile too": run_reconcile,
        "maintain": run_maintain,
        "maintain too": run_maintain,
        "token": handler_token(unseen),
        "disconnect": handler_disconnect(unseen),
    }


# --- deleted owners --------------------------------------------------------------------------------------------------


@situation("owner of none deleted", Kind())
def deleted_with_none(world: World) -> Made:
    """Nothing was known of it, and nothing ever may be again."""
    world.run(handler_delete())
    return Scene(), {
        "stop all": handler_due("deletion"),
        "stop all too": handler_due("deletion"),
        "start": handler_start(),
        "delete": handler_delete(),
        "status": handler_status,
        "look": handler_look,
        "inspect": handler_inspect,
    }


@situation("owner of one deleted", Kind(), *WIDE)
def deleted_with_one(world: World) -> Made:
    """Its connection is to be stopped, and was about to be by the app."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_delete())
    return Scene(), {
        "stop all": handler_due("deletion"),
        "stop all too": handler_due("deletion"),
        "close": handler_due("finish", "stop"),
        "disconnect": handler_disconnect(),
        "token": handler_token(),
        "report": handler_report(),
        "sweep": handler_sweep,
        "status": handler_status,
        "operator": handler_operator,
    }


@situation("owner of seven deleted", Kind(), Kind(revocable=False), orders=600)
def deleted_with_seven(world: World) -> Made:
    """Each of them has a stop of its own; two were stopped before."""
    refs = [ConnectionRef(REF.tenant, REF.owner, name) for name in "cdefghi"]
    for ref in refs:
        connected(world, ref, account=f"account of {ref.connection}")
    for ref in refs[:2]:
        world.run(handler_disconnect(ref))
    world.run(handler_delete())
    return Scene(), {
        "stop all": handler_due("deletion"),
        "stop all too": handler_due("deletion"),
        "disconnect": handler_disconnect(refs[3]),
        "sweep": handler_sweep,
        "close": handler_due("finish", "stop"),
        "delete": handler_delete(),
    }


@situation("answer lost, owner deleted", Kind())
def unconfirmed_of_deleted(world: World) -> Made:
    """Nobody knows what became of an exchange, and nobody but an operator is left to say so."""
    brought = begin(world)
    world.faults["exchange"] = [Fault.LOST]
    attempted(world, handler_callback(brought))
    world.run(handler_delete())
    world.run(handler_reconcile)
    world.now += WINDOW_MS + GUARD_MS
    return Scene(), {
        "operator": handler_operator_of_exchange,
        "operator too": handler_operator_of_exchange,
        "acknowledge": handler_acknowledge(),
        "reconcile": handler_reconcile,
        "attention": handler_attention,
        "status": handler_status,
        "day passes": passing(DAY_MS + GUARD_MS),
    }


# --- a day later -----------------------------------------------------------------------------------------------------


@situation("all over for a day", Kind(), Kind(revocable=False), WIDE[0])
def over(world: World) -> Made:
    """A connection's life is over, told and a day old; the app is about to begin another one."""
    connected(world)
    world.run(handler_disconnect())
    _carry_out(world)
    return Scene(), _a_day_later(world)


@situation("all over for a day, owner deleted", Kind(), Kind(revocable=False))
def over_of_deleted(world: World) -> Made:
    """The same of an owner that is deleted: all of it goes but the fence."""
    connected(world)
    begin(world, SECOND)
    world.run(handler_delete())
    _carry_out(world)
    return Scene(), _a_day_later(world) | {"operator": handler_operator}


@situation("attempt over for a day", Kind(), confirmation="owner")
def attempt_over(world: World) -> Made:
    """An attempt gave nothing, another one was never confirmed."""
    denied = begin(world)
    attempted(world, handler_callback(replace(denied, code=None, error="access_denied")))
    world.run(handler_callback(begin(world, again=True)))
    world.now += CONFIRM_MS + GUARD_MS
    _carry_out(world)
    return Scene(), _a_day_later(world)


@situation("notice for a day", Kind())
def notice_over(world: World) -> Made:
    """Nobody knows what became of an exchange, and the owner has not said anything for a day."""
    world.faults["exchange"] = [Fault.LOST]
    attempted(world, handler_callback(begin(world)))
    _carry_out(world)
    return Scene(), _a_day_later(world)


def _carry_out(world: World) -> None:
    for handler in (handler_reconcile, handler_sweep, handler_reconcile):
        world.run(handler)
    attempted(world, handler_acknowledge())
    world.run(handler_reconcile)


def _a_day_later(world: World) -> dict[str, Handler]:
    world.now += DEADLINE_MS + COMPACT_MS + CONFIRM_MS
    return {
        "compact": handler_compact,
        "compact too": handler_compact,
        "inspect": handler_inspect,
        "start": handler_start(),
        "acknowledge": handler_acknowledge(),
        "reconcile": handler_reconcile,
        "status": handler_status,
        "delete": handler_delete(),
    }


# --- keys ------------------------------------------------------------------------------------------------------------


@situation("keys have served their time", Kind())
def keys_old(world: World) -> Made:
    """Of two purposes the newest key is a month old, of one a newer one has just begun to seal."""
    connected(world)
    first = world.now - KEY_LIFE_MS - KEY_LEAD_MS
    for purpose in ("use", "revoke", "index"):
        _plant_key(world, purpose, "1", active_from=first)
    _plant_key(world, "revoke", "revoke-2", active_from=world.now - GUARD_MS)
    return Scene(), {
        "turn": handler_turn_keys,
        "turn too": handler_turn_keys,
        "inspect": handler_inspect,
        "token": handler_token(),
        "disconnect": handler_disconnect(),
        "lead passes": passing(KEY_LEAD_MS + GUARD_MS),
    }


@situation("key needed by one grant", Kind(), TOKEN_REACH[0])
def key_needed(world: World) -> Made:
    """A retired key has rested; one grant still needs it, and moves while the table is looked at."""
    _turned(world, connected_before=(REF, SECOND))
    return Scene(), {
        "inspect": handler_inspect,
        "inspect too": handler_inspect,
        "second token": handler_token(SECOND),
        "second disconnects": handler_disconnect(SECOND),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "turn": handler_turn_keys,
    }


@situation("key needed by nothing", Kind())
def key_unneeded(world: World) -> Made:
    """A retired key has rested, and goes."""
    _turned(world, connected_before=(REF,))
    return Scene(), {
        "inspect": handler_inspect,
        "inspect too": handler_inspect,
        "turn": handler_turn_keys,
        "token": handler_token(),
        "disconnect": handler_disconnect(),
        "start": handler_start(SECOND),
    }


class NamedVault(OpenVault):
    """What it seals names the key of the ring that seals now, as the real vault does, and opens while that is there."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self._ports = ports

    def _seal(self, purpose: str, *rest: Any) -> bytes:
        now = self._ports.clock.now()
        kid = self._ports.look(lambda world: _sealing(world, SEALED_BY.get(purpose, purpose), now))
        return bytes((SEALED_FORMAT, len(kid))) + kid.encode() + super()._seal(purpose, *rest)

    def _open(self, purpose: str, *rest: Any) -> str:
        *bound, sealed = rest
        kid = sealed[2 : 2 + sealed[1]].decode()
        key = Key(ring_partition(), f"{SEALED_BY.get(purpose, purpose)}#{kid}")
        if self._ports.item(key) is None:
            raise KeyUnavailableError
        return super()._open(purpose, *bound, sealed[2 + len(kid) :])


def _sealing(world: World, purpose: str, now: int) -> str:
    keys = [item for item in _ring(world) if item["SK"].split("#")[0] == purpose]
    live = [item for item in keys if item["active_from"] <= now and "retired" not in item]
    return str(max(live, key=lambda item: item["active_from"])["SK"].split("#")[1])


def _turned(world: World, connected_before: tuple[ConnectionRef, ...]) -> None:
    """A second key of each purpose has taken over, and the first connection is under it; the table is read in pages."""
    world.table.page_bytes = 2_000
    if world.vault_of is OpenVault:
        world.vault_of = NamedVault
        for purpose in PURPOSES:
            _plant_key(world, purpose, "1", active_from=world.now)
    else:  # a technique that brings a vault of its own is for sealed bytes that nobody can read
        use_real_vault(world)
    for ref in connected_before:
        connected(world, ref)
    world.now += KEY_LIFE_MS
    world.run(handler_turn_keys)
    world.now += KEY_LEAD_MS + GUARD_MS
    world.run(handler_token())
    world.run(handler_turn_keys)
    world.now += KEY_REST_MS


def _plant_key(world: World, purpose: str, kid: str, *, active_from: int) -> None:
    wrapped = Secret(f"{purpose}/{kid}").reveal().encode()
    key = {"wrapped": wrapped, "created": active_from - KEY_LEAD_MS, "active_from": active_from}
    world.table.plant(Key(ring_partition(), f"{purpose}#{kid}"), key | {"ty": "ring", "sv": 1, "v": 1, "op": "planted"})
