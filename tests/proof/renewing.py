"""
Situations of providers whose revocation takes nothing but a living access token: a queued refresh token makes one, on
record before it is sent, and what it gives lies in the queue before it is used. Registered as those of `scripts`.
"""

from typing import Final

from quitclaim.domain.limits import CLAIM_LEASE_MS, DEADLINE_MS, GUARD_MS, MINUTE
from quitclaim.domain.revocations import Reach
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.scripts import (
    HOUR_MS,
    OTHER,
    Handler,
    Scene,
    attempted,
    begin,
    connected,
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
from tests.proof.situations import Made, stepped
from tests.proof.world import World

BY_ACCESS: Final = (
    Kind(by_access=True),
    Kind(Refreshing.ROTATING, Reach.TOKEN, by_access=True),
    Kind(Refreshing.GRACE, Reach.TOKEN, by_access=True),
)
ALONE: Final = (
    Kind(Refreshing.STATIC, Reach.TOKEN, by_access=True, pair_lives=True),
    Kind(Refreshing.ROTATING, Reach.TOKEN, by_access=True, pair_lives=True),
)
"""Where a success speaks for the access token alone: the provider is asked whether it still takes the other one."""
SHARED: Final = (
    Kind(Refreshing.STATIC, Reach.AUTHORIZATION, by_access=True),
    Kind(Refreshing.ROTATING, Reach.ACCOUNT, by_access=True),
)
"""Where it ends every grant of the account."""


@situation("access token alive, to be revoked", *ALONE)
def to_doubt(world: World) -> Made:
    """A revocation will be answered with success, and the refresh token lives on."""
    connected(world)
    world.run(handler_disconnect())
    return Scene(), _handlers()


@situation("access token expired, to be revoked", *BY_ACCESS, *ALONE)
def to_renew(world: World) -> Made:
    """The revocation takes a living access token, and there is none any more."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_disconnect())
    return Scene(), _handlers()


@situation("access token expired, its renewal unseen", *BY_ACCESS)
def renewal_unseen(world: World) -> Made:
    """A sweep has asked for a living access token, and saw no answer."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_disconnect())
    world.faults["renew"] = [Fault.LOST]
    world.run(handler_sweep)
    return Scene(), _handlers()


@situation("access token expired, whoever renewed it died", *BY_ACCESS)
def renewal_died(world: World) -> Made:
    """A sweep died with a renewal on record, whose request the provider has acted on; its claim ends now."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_disconnect())
    stepped(world, "dead", handler_sweep, "answer to renew").crash()
    world.now += CLAIM_LEASE_MS + GUARD_MS
    return Scene(), _handlers()


@situation("access token expired, its renewal unusable", *BY_ACCESS[:2])
def renewal_malformed(world: World) -> Made:
    """It was answered in words that cannot be used."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_disconnect())
    world.faults["renew"] = [Fault.MALFORMED, Fault.BUSY]
    return Scene(), _handlers()


@situation("access token expired, renewed, and its successor not revoked", *BY_ACCESS)
def renewed(world: World) -> Made:
    """What the renewal gave lies in the queue, and its predecessor waits for it."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_disconnect())
    world.faults["revoke"] = [Fault.BUSY]
    world.run(handler_sweep)
    world.now += MINUTE + GUARD_MS
    return Scene(), _handlers()


@situation("access token expired while a refresh was unseen", *BY_ACCESS)
def refresh_unseen(world: World) -> Made:
    """The connection was stopped while a refresh of it was open."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.run(handler_disconnect())
    world.now += CLAIM_LEASE_MS + GUARD_MS
    return Scene(), _handlers()


@situation("access token expired, renewed, and its account shared again", *SHARED)
def renewed_and_shared(world: World) -> Made:
    """What the renewal gave could not be revoked at once, and another owner is about to connect the account."""
    connected(world)
    world.now += HOUR_MS
    world.run(handler_disconnect())
    world.faults["revoke"] = [Fault.BUSY]
    world.run(handler_sweep)
    world.now += MINUTE + GUARD_MS
    brought = begin(world, OTHER)
    return Scene(), _handlers() | {
        "other callback": handler_callback(brought),
        "other disconnect": handler_disconnect(OTHER),
    }


def _handlers() -> dict[str, Handler]:
    return {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "start": handler_start(),
        "claim passes": passing(CLAIM_LEASE_MS + GUARD_MS),
        "deadline passes": passing(DEADLINE_MS + GUARD_MS),
    }
