"""
Situations of imports: the app gives a grant that it got by itself, while it stops, starts, deletes, gives another one,
and the provider answers late, in pieces or not at all.

Until a refresh of it has succeeded a grant is the app's: the ledger knows those, and the provider's judge of every
revocation says so if one is named before.
"""

from typing import Any, Final

from quitclaim.domain.errors import IdempotencyMismatchError, QuitclaimError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import GUARD_MS, REFRESH_LEASE_MS, WINDOW_MS
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret
from quitclaim.flows.imports import DROPPED, ImportRequest, import_grant
from quitclaim.ports import Key
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.scripts import (
    HOUR_MS,
    REF,
    SECOND,
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
from tests.proof.situations import Made, handler_delete
from tests.proof.world import CLIENT, Ports, World

SHARED: Final = (Kind(Refreshing.STATIC, Reach.TOKEN), Kind(Refreshing.STATIC), Kind(Refreshing.GRACE, Reach.TOKEN))
"""Providers at which the app's copy lives on."""
OURS_ALONE: Final = (Kind(), Kind(Refreshing.REUSE))


def given(world: World, ref: ConnectionRef = REF, account: str = "alice") -> str:
    """The app got a grant by itself, for what it calls *ref*: the token's name."""
    code = f"{ref.tenant}/{ref.owner}/{ref.connection}/given-{len(world.ledger.apps)}"
    return world.ledger.gave(code, account, world.now)


def handler_import(
    token: str, ref: ConnectionRef = REF, *, account: str | None = None, key: str | None = None
) -> Handler:
    """The app gives that token; whatever is refused before the provider refreshed it is said to be dropped, and is."""

    def run(ports: Ports) -> Any:
        request = ImportRequest(
            ref, CLIENT, Secret(token), account_id=Secret(account) if account else None, idempotency_key=key
        )
        try:
            done = import_grant(request, ports.deadline, ports.connecting)
        except IdempotencyMismatchError:
            ports.violation("P-10: the same import with the same key is another one")
            raise
        except QuitclaimError as refused:
            _is_dropped(ports, refused, ref)
            raise
        if key is not None:
            first = ports.look(lambda world: world.seen.answers.setdefault(f"import {key}", done.shared_copy))
            if first != done.shared_copy:
                ports.violation(f"P-10: an import answered {first}, and then {done.shared_copy}")
        if not done.shared_copy and ports.look(lambda world: world.ledger.tokens[token].alive):
            ports.violation(f"import: {token} lives, and the app was told that ours is the only copy")
        return done

    return run


def _is_dropped(ports: Ports, refused: QuitclaimError, ref: ConnectionRef) -> None:
    """Where the copy is said to be dropped, no exchange of this process holds it any more."""
    if refused.details.get("copy") != DROPPED:
        return
    mine = f"X#{ref.connection}#{ports.process.name}."
    for item in ports.aside(lambda world: list(world.table.items())) or ():
        if item["ty"] == "exchange" and item["SK"].startswith(mine) and "use" in item:
            ports.neglected(f"import: the copy is said to be dropped, and {item['SK']} has it")


@situation("import", *OURS_ALONE, *SHARED)
def imported(world: World) -> Made:
    """A grant of the app's, and all that may happen to its connection meanwhile."""
    token = given(world)
    return Scene(), {
        "import": handler_import(token),
        "import again": handler_import(token),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import of two grants", Kind())
def two(world: World) -> Made:
    """Of one owner and client: one waits behind the other, and neither is lost."""
    first, second = given(world), given(world, SECOND, "bob")
    return Scene(), {
        "import": handler_import(first),
        "second import": handler_import(second, SECOND),
        "second into the first": handler_import(second),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation(
    "import beside a living grant", Kind(Refreshing.STATIC, Reach.AUTHORIZATION), Kind(Refreshing.STATIC, Reach.ACCOUNT)
)
def beside(world: World) -> Made:
    """Of the same account, at a provider whose revocation reaches all of it."""
    connected(world, SECOND)
    token = given(world)
    return Scene(), {
        "import": handler_import(token),
        "import as bob": handler_import(token, account="bob"),
        "disconnect": handler_disconnect(),
        "second disconnects": handler_disconnect(SECOND),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import of another account", Kind(), Kind(Refreshing.STATIC))
def mistaken(world: World) -> Made:
    """The app filed the token under the wrong user: found out after the refresh."""
    token = given(world, account="bob")
    return Scene(), {
        "import as alice": handler_import(token, account="alice"),
        "import": handler_import(token),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import with a key", Kind(), Kind(Refreshing.STATIC))
def keyed(world: World) -> Made:
    """The same call twice, and once more after everything."""
    token = given(world)
    return Scene(), {
        "import": handler_import(token, key="key"),
        "same import": handler_import(token, key="key"),
        "other key": handler_import(token, key="other"),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import whose answer is lost", Kind(), Kind(Refreshing.STATIC), Kind(Refreshing.GRACE, Reach.TOKEN))
def unseen(world: World) -> Made:
    """The provider refreshed, and nobody learns what it gave; once in pieces, then not at all, then well."""
    token = given(world)
    world.faults["refresh"] = [Fault.LOST, Fault.NOT_ACTED]
    return Scene(), {
        "import": handler_import(token),
        "import again": handler_import(token),
        "disconnect": handler_disconnect(),
        "acknowledge": handler_acknowledge(),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import answered in pieces", Kind(), Kind(Refreshing.STATIC), Kind(Refreshing.STATIC, Reach.TOKEN))
def pieces(world: World) -> Made:
    """What can be read of the answer is a new token, or only the one that was given."""
    token = given(world)
    world.faults["refresh"] = [Fault.MALFORMED]
    return Scene(), {
        "import": handler_import(token),
        "import again": handler_import(token),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import that is refused", Kind(), Kind(Refreshing.STATIC))
def refused(world: World) -> Made:
    """Refused, turned away, not sent; then taken."""
    token = given(world)
    world.faults["refresh"] = [Fault.REFUSED, Fault.BUSY, Fault.NOT_SENT]
    return Scene(), {
        "import": handler_import(token),
        "import again": handler_import(token),
        "once more": handler_import(token),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import, slow provider", Kind(), Kind(Refreshing.STATIC))
def late(world: World) -> Made:
    """The answer comes when the window is over."""
    token = given(world)
    world.slow["refresh"] = WINDOW_MS + GUARD_MS
    return Scene(), {
        "import": handler_import(token),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "acknowledge": handler_acknowledge(),
    }


@situation("import into a connection that was lost", Kind(), Kind(Refreshing.STATIC, has_identity=False))
def anew(world: World) -> Made:
    """The next generation, while what is left of the last one is still revoked, and a user may come back as well."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.REFUSED]
    attempted(world, handler_token())
    world.run(handler_reconcile)
    token = given(world)
    return Scene(), {
        "import": handler_import(token),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "token": handler_token(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("import beside a user who comes back", Kind(), confirmation="owner")
def coming_back(world: World) -> Made:
    """A link of the same owner and client is out: an import never ends what waits for its user."""
    brought = begin(world, SECOND)
    token = given(world)

    def import_and_look(ports: Ports) -> Any:
        held = [key for key in ports.look(_held) if key.sk.startswith(f"X#{SECOND.connection}#")]
        done = handler_import(token)(ports)
        if not set(held) <= set(ports.look(_held)):
            ports.violation("import: it ended a grant that waits for its owner")
        return done

    return Scene(), {
        "import": import_and_look,
        "callback": handler_callback(brought),
        "second starts": handler_start(SECOND),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
    }


def _held(world: World) -> list[Key]:
    return [
        Key(item["PK"], item["SK"])
        for item in world.table.items()
        if item["ty"] == "exchange" and item["outcome"] == "held"
    ]


@situation("imported, and used", Kind(), Kind(Refreshing.STATIC, Reach.TOKEN), Kind(Refreshing.GRACE, Reach.TOKEN))
def used(world: World) -> Made:
    """A grant that was imported an hour ago is a grant like any other."""
    world.run(handler_import(given(world)))
    world.now += HOUR_MS
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }
