"""
Situations in which three or four things have to meet before a clause decides alone. Found by leaving that clause out
and looking for somebody who notices (T-13). Registered like those of `scripts`; the other techniques take them up in
the nightly run.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.limits import (
    CLAIM_LEASE_MS,
    DEADLINE_MS,
    GUARD_MS,
    IDEMPOTENCY_TTL_MS,
    MINUTE,
    REFRESH_LEASE_MS,
    SECOND,
    WINDOW_MS,
)
from quitclaim.flows.stop import disconnect
from quitclaim.ports import Key
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.scripts import (
    HOUR_MS,
    OTHER,
    REF,
    TOKEN_REACH,
    WIDE,
    Handler,
    Scene,
    attempted,
    begin,
    connected,
    disconnected,
    generation,
    handler_acknowledge,
    handler_callback,
    handler_disconnect,
    handler_reconcile,
    handler_start,
    handler_sweep,
    handler_token,
    passing,
    situation,
)
from tests.proof.situations import (
    ACCESS,
    TENANT,
    Made,
    ended,
    handler_connect_again,
    handler_delete,
    handler_keyed_disconnect,
    handler_keyed_start,
    handler_new_life,
    handler_operator,
    handler_report,
    handler_retry,
    handler_sweep_of,
    stepped,
)
from tests.proof.stepping import Call
from tests.proof.upkeep import handler_compact, handler_inspect
from tests.proof.world import Ports, World

race: Final = partial(situation, is_race=True)


# --- handlers --------------------------------------------------------------------------------------------------------


def handler_restore(ports: Ports) -> None:
    """An operator has restored a backup: every owner is of a new epoch (P-16)."""
    owners = ports.look(lambda world: sorted(item["PK"] for item in world.table.items() if item["ty"] == "owner"))
    things = frozenset(f"{pk}|OWNER" for pk in owners)
    ports.process.step(Call("a backup is restored", things, True), ports.at_once(_restored))


def _restored(world: World) -> None:
    for item in list(world.table.items()):
        if item["ty"] == "owner":
            world.table.alter(Key(item["PK"], item["SK"]), {"epoch": item["epoch"] + 1, "v": item["v"] + 1})


def handler_keyed_again(ports: Ports) -> Any:
    """The same idempotency key for another life of the connection, when the first answer counts no longer."""
    return disconnect(REF, generation(ports, REF), ports.stopping, "key")


# --- connect ---------------------------------------------------------------------------------------------------------


@race("a backup is restored meanwhile", Kind())
def restored(world: World) -> Made:
    """Whoever read an owner before a restore decides nothing behind it."""
    brought = begin(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "start": handler_start(),
        "delete": handler_delete(),
        "disconnect": handler_disconnect(),
        "restore": handler_restore,
    }


@race("a key used a day later", Kind())
def key_used_later(world: World) -> Made:
    """Its record still lies there, and counts no longer."""
    world.run(handler_keyed_start())
    world.run(handler_disconnect())
    world.run(handler_reconcile)
    world.now += IDEMPOTENCY_TTL_MS
    return Scene(), {
        "start": handler_keyed_start(),
        "start again": handler_keyed_start(),
        "other start": handler_start(),
        "reconcile": handler_reconcile,
    }


@race("a key used a day later, in another life", Kind())
def key_of_another_life(world: World) -> Made:
    """The same for a disconnect."""
    connected(world)
    world.run(handler_keyed_disconnect())
    world.run(handler_sweep)
    world.run(handler_reconcile)
    world.run(handler_callback(begin(world, again=True)))
    world.now += IDEMPOTENCY_TTL_MS
    return Scene(), {
        "disconnect with the key": handler_keyed_again,
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "reconcile": handler_reconcile,
    }


# --- tokens ----------------------------------------------------------------------------------------------------------


@race("reported, and idle", ACCESS)
def reported_idle(world: World) -> Made:
    """The app reported a token that nothing can refresh, and its grant is to be kept alive."""
    connected(world)
    world.run(handler_report())
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "report": handler_report(),
        "disconnect": handler_disconnect(),
        "new life": handler_new_life,
    }


@race("refresh unseen, and reported", Kind(), TOKEN_REACH[0], Kind(Refreshing.GRACE))
def unseen_reported(world: World) -> Made:
    """Whatever a refresh left on record meets reports, other refreshes and another life."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.now += REFRESH_LEASE_MS + GUARD_MS
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "report": handler_report(),
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "new life": handler_new_life,
        "disconnect": handler_disconnect(),
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


# --- revocations -----------------------------------------------------------------------------------------------------


@race("two sweeps", Kind(), TOKEN_REACH[0], *WIDE, Kind(revocable=False))
def two_sweeps(world: World) -> Made:
    """A revocation is due, and every end of a claim and of its time can fall between two sweeps."""
    connected(world)
    world.run(handler_disconnect())
    return Scene(), _sweeps()


@race("two sweeps, an answer unseen", Kind(), TOKEN_REACH[2], *WIDE)
def two_sweeps_lost(world: World) -> Made:
    """The same, and a successor may be alive."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.run(handler_disconnect())
    world.now += REFRESH_LEASE_MS - SECOND
    return Scene(), _sweeps()


@race("two sweeps, the deadline near", Kind(), TOKEN_REACH[2], WIDE[0])
def two_sweeps_late(world: World) -> Made:
    """The same, shortly before the time is up."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.run(handler_disconnect())
    world.now += DEADLINE_MS - SECOND
    return Scene(), _sweeps()


@race("two sweeps, the deadline over", Kind(), TOKEN_REACH[0], WIDE[0])
def two_sweeps_over(world: World) -> Made:
    """Nobody revoked in time."""
    connected(world)
    world.run(handler_disconnect())
    world.now += DEADLINE_MS + GUARD_MS
    return Scene(), _sweeps()


@race("two sweeps, material unreadable", Kind(), TOKEN_REACH[0])
def two_sweeps_unreadable(world: World) -> Made:
    """What does not open is a notice once its time is up."""
    connected(world)
    world.run(handler_disconnect())
    for item in world.table.items():
        if item["ty"] == "revocation":
            (material,) = item["material"]
            world.seen.sealed_in[item["PK"][2:]] |= world.tokens_in(material["sealed"])
            spoilt = material["sealed"].replace(b"revoke;", b"broken;")
            world.table.alter(Key(item["PK"], "Q"), {"material": [{**material, "sealed": spoilt}]})
    world.run(handler_sweep)
    world.now += DEADLINE_MS + GUARD_MS
    return Scene(), _sweeps()


def _sweeps() -> dict[str, Handler]:
    return {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "acknowledge too": handler_acknowledge(),
        "retry": handler_retry,
        "start": handler_start(),
        "moment passes": passing(10 * SECOND),
        "claim passes": passing(CLAIM_LEASE_MS + GUARD_MS),
        "minute passes": passing(MINUTE + GUARD_MS),
    }


@race("orphan beside its family, an earlier stop still open", Kind(Refreshing.GRACE))
def orphan_and_earlier_stop(world: World) -> Made:
    """The stop of the first life wakes nothing that lies beside the second one."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.REFUSED]
    attempted(world, handler_token())
    world.run(handler_sweep)
    world.run(handler_callback(begin(world, again=True)))
    world.now += HOUR_MS
    first = stepped(world, "first", handler_token(), "answer to refresh")
    world.now += REFRESH_LEASE_MS + GUARD_MS
    world.run(handler_token())
    ended(first)
    world.run(handler_sweep)
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "token": handler_token(),
    }


@race("parked, and connected again", *WIDE)
def parked_again(world: World) -> Made:
    """An owner's earlier grant lies parked beside its present one, which ends too."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    world.run(handler_reconcile)
    world.run(handler_callback(begin(world, again=True)))
    world.run(handler_disconnect(OTHER))
    world.run(handler_sweep)
    return Scene(), {
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "claim passes": passing(CLAIM_LEASE_MS + GUARD_MS),
    }


@race("a stop to be closed beside a sharer", *WIDE)
def to_close_beside(world: World) -> Made:
    """Everything of a stop is done but that its grant lies parked, and the sharer ends as well."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    third = begin(world, TENANT)
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "other disconnects": handler_disconnect(OTHER),
        "third callback": handler_callback(third),
        "sweep": handler_sweep,
        "minute passes": passing(MINUTE + GUARD_MS),
    }


@race("one revocation of an account told, another due", *WIDE)
def told_and_due(world: World) -> Made:
    """The finishing step of the first may not open the account to grants that the second may end."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_disconnect(OTHER))
    brought = begin(world, TENANT)
    world.run(handler_sweep_of(REF))
    world.now += SECOND
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep of the other": handler_sweep_of(OTHER),
        "third callback": handler_callback(brought),
        "claim passes": passing(CLAIM_LEASE_MS + GUARD_MS),
    }


@race("accounts unreadable, two sweeps", *WIDE)
def unreadable_two_sweeps(world: World) -> Made:
    """Two sweeps learn whose the released grant is, or one of them ends it first."""
    brought = begin(world)
    world.faults["identity"] = [Fault.NOT_ACTED]
    attempted(world, handler_callback(brought))
    made = _sweeps()
    made["deadline passes"] = passing(DEADLINE_MS + GUARD_MS)
    return Scene(), {**made, "other callback": handler_callback(begin(world, OTHER))}


@race("revoking takes long", Kind(), WIDE[0])
def long_revoking(world: World) -> Made:
    """Two reconcilers look at a stop that cannot close, and at its connection."""
    connected(world)
    world.run(handler_disconnect())
    world.faults["revoke"] = [Fault.BUSY] * 3
    world.run(handler_sweep)
    world.now += MINUTE + GUARD_MS
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "start": handler_start(),
        "minute passes": passing(MINUTE + GUARD_MS),
    }


# --- what comes very late --------------------------------------------------------------------------------------------


def handler_given_up(ports: Ports) -> Any:
    """Everything that ends an exchange nobody answered: stopped, lapsed, and acknowledged by its owner."""
    disconnected(ports, REF, generation(ports, REF))
    passing(WINDOW_MS + GUARD_MS)(ports)
    handler_reconcile(ports)
    return handler_acknowledge()(ports)


def handler_refresh_given_up(ports: Ports) -> Any:
    """The same for a refresh: stopped, its successor given up, the revocation settled, told and acknowledged."""
    disconnected(ports, REF, generation(ports, REF))
    passing(REFRESH_LEASE_MS + GUARD_MS)(ports)
    handler_sweep(ports)
    handler_reconcile(ports)
    return handler_acknowledge()(ports)


@race("given up before its answer", Kind(), TOKEN_REACH[0], Kind(revocable=False))
def given_up(world: World) -> Made:
    """A grant comes when its exchange is over in every way."""
    brought = begin(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "given up": handler_given_up,
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "acknowledge": handler_acknowledge(),
    }


@race("refresh given up before its answer", Kind(), TOKEN_REACH[2], Kind(Refreshing.GRACE), Kind(revocable=False))
def refresh_given_up(world: World) -> Made:
    """A fresh token comes when its grant is over in every way."""
    connected(world)
    world.now += HOUR_MS
    return Scene(), {
        "token": handler_token(),
        "given up": handler_refresh_given_up,
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "acknowledge": handler_acknowledge(),
    }


@race("owner deleted twice", Kind())
def deleted_twice(world: World) -> Made:
    """The app repeats itself, a moment later."""
    connected(world)
    return Scene(), {
        "delete": handler_delete(),
        "delete too": handler_delete(),
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "moment passes": passing(10 * SECOND),
    }


@race("parked, and about to connect again", *WIDE)
def parked_connecting(world: World) -> Made:
    """The link of an owner's next life is open, while what is left of the first one lies parked and may wake."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    world.run(handler_reconcile)
    brought = begin(world, again=True)
    return Scene(), {
        "callback": handler_callback(brought),
        "start": handler_start(),
        "other disconnects": handler_disconnect(OTHER),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "disconnect": handler_disconnect(),
    }


@race("parked, about to connect again, and the sharer stopped", *WIDE)
def waking_connecting(world: World) -> Made:
    """The same, and it is to be made due."""
    scene, handlers = parked_connecting(world)
    world.run(handler_disconnect(OTHER))
    return scene, handlers


# --- when all is over and gone ---------------------------------------------------------------------------------------


def handler_all_over(ports: Ports) -> None:
    """Everything is stopped, comes to its end, is acknowledged, and is compacted a day later, in one go."""
    for handler in (handler_disconnect(), passing(WINDOW_MS + GUARD_MS), handler_sweep, handler_reconcile):
        _try(handler, ports)
    passing(DEADLINE_MS + GUARD_MS)(ports)
    for handler in (handler_sweep, handler_reconcile, handler_acknowledge(), handler_operator, handler_reconcile):
        _try(handler, ports)
    passing(2 * DEADLINE_MS)(ports)
    for handler in (handler_compact, handler_inspect, handler_compact):
        _try(handler, ports)


def _try(handler: Handler, ports: Ports) -> None:
    try:
        handler(ports)
    except QuitclaimError:
        return


@race("all over and gone meanwhile", Kind(), TOKEN_REACH[0], Kind(revocable=False), WIDE[0])
def gone_meanwhile(world: World) -> Made:
    """Whatever a request has read is no longer there when it writes."""
    connected(world)
    world.now += HOUR_MS
    return Scene(), {
        "token": handler_token(),
        "report": handler_report(),
        "disconnect": handler_disconnect(),
        "all over": handler_all_over,
        "start": handler_start(),
    }


@race("attempt over and gone meanwhile", Kind(), TOKEN_REACH[0])
def attempt_gone_meanwhile(world: World) -> Made:
    """The same for an attempt."""
    brought = begin(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "disconnect": handler_disconnect(),
        "all over": handler_all_over,
    }


@race("stopped, over and gone meanwhile", Kind(), TOKEN_REACH[0], Kind(revocable=False))
def stop_gone_meanwhile(world: World) -> Made:
    """The same for what carries a stop out."""
    connected(world)
    world.run(handler_disconnect())
    return Scene(), {
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "retry": handler_retry,
        "all over": handler_all_over,
    }


@race("told, over and gone meanwhile", Kind(), Kind(revocable=False))
def notice_gone_meanwhile(world: World) -> Made:
    """The same for what is left of a deleted owner."""
    connected(world)
    world.run(handler_delete())
    world.run(handler_reconcile)
    world.now += DEADLINE_MS + GUARD_MS
    world.run(handler_sweep)
    return Scene(), {
        "reconcile": handler_reconcile,
        "operator": handler_operator,
        "compact": handler_compact,
        "all over": handler_all_over,
    }


# --- another life, when the first one's requests are still under way --------------------------------------------------


def handler_later_life(ports: Ports) -> Any:
    """Disconnected, everything of it over and acknowledged, and connected again."""
    handler_refresh_given_up(ports)
    handler_reconcile(ports)
    return handler_connect_again(ports)


@race("refused, and another life meanwhile", Kind(), TOKEN_REACH[0])
def refused_and_another_life(world: World) -> Made:
    """The refusal of a dead grant arrives when another one lives in its place."""
    connected(world)
    world.now += HOUR_MS
    for token in world.ledger.alive():
        world.ledger.tokens[token.name] = replace(token, alive=False, why_dead="by the user")
    return Scene(), {
        "token": handler_token(),
        "another life": handler_later_life,
        "reconcile": handler_reconcile,
    }
