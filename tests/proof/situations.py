"""
More situations, for what happens rarely: each is here because something that the protocol relies on is decided in it
and nowhere else. Registered as those of `scripts`, and taken up by every technique.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from quitclaim.domain.attention import Subject
from quitclaim.domain.errors import IdempotencyMismatchError, QuitclaimError, StateConflictError, StoreError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    AUTHORIZATION_MS,
    CLAIM_LEASE_MS,
    CONFIRM_MS,
    DEADLINE_MS,
    GUARD_MS,
    IDEMPOTENCY_TTL_MS,
    LINK_VISITS,
    MINUTE,
    REFRESH_LEASE_MS,
    TICKET_MS,
    WINDOW_MS,
    WRONG_CODES,
)
from quitclaim.domain.revocations import Reach
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.connect.browser import Callback
from quitclaim.flows.connect.confirm import confirm
from quitclaim.flows.connect.link import open_link
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.operator import Asked, acknowledge_for_deleted, retry
from quitclaim.flows.revocations import revoke
from quitclaim.flows.stop import disconnect
from quitclaim.flows.tokens import report
from quitclaim.ports import Key
from tests.fakes.breakers import Unbroken
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.scripts import (
    BASE,
    EITHER,
    HOUR_MS,
    OTHER,
    REF,
    SECOND,
    TOKEN_REACH,
    WIDE,
    Handler,
    Scene,
    attempted,
    begin,
    confirmed,
    connected,
    disconnected,
    generation,
    handler_acknowledge,
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
from tests.proof.stepping import Process
from tests.proof.world import CLIENT, Ports, SweepDeadline, World

TENANT: Final = ConnectionRef("t2", "o", "c")
DAY_MS: Final = 24 * HOUR_MS
ACCESS: Final = Kind(Refreshing.STATIC, Reach.TOKEN, gives_refresh=False, idle_limit_ms=30 * DAY_MS)
ASKED: Final = Asked("operator", "looked at it")

type Made = tuple[Scene, Mapping[str, Handler]]


# --- handlers --------------------------------------------------------------------------------------------------------


def handler_visit(ticket: Secret) -> Handler:
    """The connect link is opened (once more)."""
    return lambda ports: open_link(ticket, BASE, ports.connecting)


def handler_delete(ref: ConnectionRef = REF) -> Handler:
    """The app deletes the owner; once it is answered, that is so."""

    def run(ports: Ports) -> Any:
        owner = delete_owner(ref.of_owner, ports.stopping)
        if not ports.look(lambda world: world.is_deleted(f"O#{ref.tenant}#{ref.owner}")):
            ports.violation("F-27: an owner was said to be deleted, and is not")
        return owner

    return run


def handler_report(ref: ConnectionRef = REF, version: int = 1) -> Handler:
    """The app saw a 401 with a version of the token: that version is handed out no more unasked."""

    def run(ports: Ports) -> Any:
        is_suspect = report(ref, MAIN, version, reads=ports.reads, store=ports.tokens, breaker=Unbroken())
        grant = ports.aside_item(Key(f"O#{ref.tenant}#{ref.owner}", f"G#{ref.connection}#{MAIN}"))
        if is_suspect and grant is not None and grant["tv"] == version and grant.get("suspect") != version:
            ports.neglected(f"row 22: version {version} was reported, and nobody remembers")
        return is_suspect

    return run


def handler_retry(ports: Ports) -> Any:
    """An operator has every pending revocation tried again; it is on record, and it is due."""
    for rid in ports.look(lambda world: _rids(world, "pending")):
        with acting(ports, "retry"):
            retry(Subject(rid=rid), ASKED, ports.operating)
        _on_record(ports, "retry", rid)
        item, now = ports.aside_item(Key(f"Q#{rid}", "Q")), ports.clock.now()
        if item is not None and item["state"] == "pending" and item["next"] > now:
            ports.neglected(f"row 55: {rid} was to be tried again, and is not due")


def handler_operator(ports: Ports) -> Any:
    """An operator closes the notices of deleted owners; it is on record."""
    for rid in ports.look(lambda world: _rids(world, "unsupported", "expired", "unconfirmed")):
        was_open = "acknowledged" not in (ports.item(Key(f"Q#{rid}", "Q")) or {})
        with acting(ports, "acknowledge"):
            acknowledge_for_deleted(Subject(rid=rid), ASKED, ports.operating)
        if was_open:
            _on_record(ports, "acknowledge", rid)


@contextmanager
def acting(ports: Ports, action: str) -> Iterator[None]:
    """An operator does this: what is written of revocations, exchanges and deliveries is on record before."""
    ports.process.acts = action
    try:
        yield
    finally:
        ports.process.acts = ""


def _on_record(ports: Ports, action: str, rid: str) -> None:
    acts = ports.look(lambda world: [(item["action"], item["subject"]) for item in _of_type(world, "audit")])
    if (action, str(Subject(rid=rid))) not in acts:
        ports.violation(f"row 54: {action} of {rid} is not on record")


def handler_confirm_held(ports: Ports) -> Any:
    """The owner brings the code of whatever is held; a made-up one where nothing is."""
    held = ports.look(
        lambda world: [item["SK"].split("#")[2] for item in _of_type(world, "exchange") if item["outcome"] == "held"]
    )
    code = next((Secret(f"code/{id_}") for id_ in held), None)
    try:
        return confirmed(ports, REF, code or Secret("code/none"), is_right=code is not None)
    except StateConflictError:
        if code is not None:
            ports.neglected("decision 0013: the owner brought the right code, and is told to come later")
        raise


def handler_sweep_of(ref: ConnectionRef) -> Handler:
    """A kick for one connection's revocations."""

    def run(ports: Ports) -> Any:
        mine = (ref.tenant, ref.owner, ref.connection)
        rids = ports.look(
            lambda world: sorted(
                item["PK"][2:] for item in _of_type(world, "revocation") if (item["t"], item["o"], item["c"]) == mine
            )
        )
        return revoke(rids, SweepDeadline(), ports.revoking)

    return run


def handler_new_life(ports: Ports) -> Any:
    """Everything at once: disconnected, revoked, purged, closed, and connected again."""
    disconnected(ports, REF, generation(ports, REF))
    handler_sweep(ports)
    handler_reconcile(ports)
    return handler_connect_again(ports)


def handler_connect_again(ports: Ports) -> Any:
    """The app starts again, and the user comes back with a code."""
    started = start(StartRequest(REF, CLIENT, None, again=True), ports.connecting)
    if started.ticket is not None:
        return handler_callback(_visited_by(ports, started.ticket))(ports)
    return None


def handler_keyed_start(ref: ConnectionRef = REF) -> Handler:
    """The app starts with an idempotency key; the same key brings the same answer (P-10)."""

    def run(ports: Ports) -> Any:
        request = StartRequest(ref, CLIENT, None, again=True, idempotency_key="key")
        try:
            started = start(request, ports.connecting)
        except IdempotencyMismatchError:
            ports.violation("P-10: the same request with the same key is another one")
            raise
        _same_answer(ports, "start", (started.connection.generation, started.expires_at))
        return started

    return run


def handler_keyed_disconnect(ref: ConnectionRef = REF) -> Handler:
    """The app disconnects with an idempotency key, at the generation of a ready connection."""

    def run(ports: Ports) -> Any:
        stopped = disconnect(ref, 1, ports.stopping, "key")
        _same_answer(ports, "disconnect", (stopped.generation,))
        return stopped

    return run


def handler_other_disconnect_with_key(ports: Ports) -> Any:
    """The same key, and another request: refused as such, once the first has stopped something."""
    was_used = ports.look(lambda world: "disconnect" in world.seen.answers and bool(_of_type(world, "idempotency")))
    try:
        disconnect(REF, 7, ports.stopping, "key")
    except IdempotencyMismatchError:
        return
    except QuitclaimError as error:
        if was_used and not isinstance(error, StoreError):
            ports.violation("P-10: another request was looked at under a key that was used")
        raise


def _same_answer(ports: Ports, call: str, answer: tuple[Any, ...]) -> None:
    """A key lasts a day; at its end hosts whose clocks differ may not agree."""

    def first_of(world: World) -> Any:
        first, at = world.seen.answers.get(call, (None, 0))
        if first is None or (first != answer and world.now >= at + IDEMPOTENCY_TTL_MS - world.skew_ms):
            first, _ = world.seen.answers[call] = (answer, world.now)
        return first

    first = ports.look(first_of)
    if first != answer:
        ports.violation(f"P-10: {call} answered {first}, and then {answer}")


def _of_type(world: World, ty: str) -> list[Mapping[str, Any]]:
    return [item for item in world.table.items() if item["ty"] == ty]


def _rids(world: World, *states: str) -> list[str]:
    return sorted(
        item["PK"][2:] for item in world.table.items() if item["ty"] == "revocation" and item["state"] in states
    )


def stepped(world: World, name: str, handler: Handler, upto: str) -> Process:
    """A process that stands right before its call *upto*."""
    process = world.process(name, handler)
    process.begin()
    while process.pending is not None and process.pending.what != upto:
        process.advance()
    return process


def ended(process: Process) -> None:
    """Let it on to its end."""
    while not process.is_done:
        process.advance()


# --- connect ---------------------------------------------------------------------------------------------------------


@situation("answers without a grant", Kind())
def answers(world: World) -> Made:
    """The provider sends the browser back with an error, or without anything."""
    brought = begin(world)
    denied = replace(brought, code=None, error="access_denied")
    return Scene(), {
        "callback": handler_callback(brought),
        "denied": handler_callback(denied),
        "denied again": handler_callback(denied),
        "fails for now": handler_callback(replace(denied, error="server_error")),
        "no code": handler_callback(replace(brought, code=None)),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "link passes": passing(2 * HOUR_MS),
        "reconcile": handler_reconcile,
    }


@situation("link opened twice", Kind())
def link_twice(world: World) -> Made:
    """Two browsers opened one link, and both bring a code."""
    first, ticket = _opened(world)
    second, _ = _visited(world, ticket)
    return Scene(), {
        "callback": handler_callback(first),
        "other callback": handler_callback(second),
        "visit": handler_visit(ticket),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "link passes": passing(2 * HOUR_MS),
    }


@situation("link opened very often", Kind())
def link_often(world: World) -> Made:
    """One visit is left."""
    brought, ticket = _opened(world)
    for _ in range(LINK_VISITS - 2):
        world.run(handler_visit(ticket))
    return Scene(), {
        "visit": handler_visit(ticket),
        "visit too": handler_visit(ticket),
        "callback": handler_callback(brought),
        "start": handler_start(),
    }


def _opened(world: World) -> tuple[Callback, Secret]:
    started = world.run(lambda ports: start(StartRequest(REF, CLIENT, None), ports.connecting))
    return _visited(world, started.ticket)


def _visited(world: World, ticket: Secret) -> tuple[Callback, Secret]:
    return world.run(lambda ports: _visited_by(ports, ticket)), ticket


def _visited_by(ports: Ports, ticket: Secret) -> Callback:
    """The link is opened, and the user consents; the callback that the browser would bring."""
    visit = open_link(ticket, BASE, ports.connecting)
    code = ports.world.secret_of(f"{REF.tenant}/{REF.owner}/{REF.connection}/{len(ports.world.ledger.codes)}")
    ports.world.ledger.consent(code, "alice")
    state = parse_qs(urlsplit(visit.url).query)["state"][0]
    return Callback(CLIENT, Secret(state), Secret(code), None, (), {visit.cookie: visit.binding.reveal()})


@situation("start with a key", Kind())
def start_keyed(world: World) -> Made:
    """The app repeats its calls."""
    return Scene(), {
        "start": handler_keyed_start(),
        "start again": handler_keyed_start(),
        "other start": handler_start(),
        "disconnect": handler_disconnect(),
    }


@situation("disconnect with a key", Kind())
def disconnect_keyed(world: World) -> Made:
    """The app repeats its disconnect."""
    connected(world)
    return Scene(), {
        "disconnect": handler_keyed_disconnect(),
        "disconnect again": handler_keyed_disconnect(),
        "key used otherwise": handler_other_disconnect_with_key,
        "other disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "start": handler_start(),
    }


@situation("answer slower than its window", Kind(), TOKEN_REACH[0], Kind(revocable=False))
def slow_exchange(world: World) -> Made:
    """The provider grants, and its answer comes when the exchange is over."""
    scene, handlers = _callback_only(world)
    world.slow["exchange"] = WINDOW_MS + GUARD_MS
    return scene, handlers


@situation("answer unusable", Kind())
def malformed(world: World) -> Made:
    """The provider grants, in words that cannot be used."""
    scene, handlers = _callback_only(world)
    world.faults["exchange"] = [Fault.MALFORMED]
    return scene, handlers


@situation("answer lost", Kind())
def unconfirmed(world: World) -> Made:
    """Nobody knows what became of the exchange."""
    brought = begin(world)
    world.faults["exchange"] = [Fault.LOST]
    attempted(world, handler_callback(brought))
    return Scene(), {
        "acknowledge": handler_acknowledge(),
        "acknowledge too": handler_acknowledge(),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


def _callback_only(world: World) -> Made:
    brought = begin(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "start": handler_start(),
        "delete": handler_delete(),
    }


@situation("link open, its owner must confirm", Kind(), WIDE[0], confirmation="owner")
def to_confirm(world: World) -> Made:
    """The callback is on its way, and the owner will bring the code."""
    brought = begin(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "confirm": handler_confirm_held,
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


PROVEN: Final = (Kind(proves=True), Kind(Refreshing.STATIC, Reach.AUTHORIZATION, proves=True))


@situation("link open, an ID token will say whose it is", *PROVEN, confirmation="owner")
def to_prove(world: World) -> Made:
    """The callback is on its way, its ID token is to be verified, and the owner will bring the code."""
    brought = begin(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "confirm": handler_confirm_held,
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("link open, and its ID token will not hold", *PROVEN, confirmation="owner")
def unproven(world: World) -> Made:
    """Somebody else's ID token, or an issuer whose keys nobody gets."""
    scene, handlers = to_prove(world)
    world.faults["id token"] = [Fault.REFUSED, Fault.REFUSED]
    return scene, handlers


@situation("an ID token beside a live connection of the account", PROVEN[1])
def proven_again(world: World) -> Made:
    """One owner has connected the account; another one's ID token does not hold."""
    connected(world, OTHER)
    brought = begin(world)
    world.faults["id token"] = [Fault.REFUSED]
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "other disconnects": handler_disconnect(OTHER),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
    }


@situation("granted less than is needed", Kind(), confirmation="owner")
def too_little(world: World) -> Made:
    """The user unticked a scope; the callback says so."""
    brought = replace(begin(world), query={"scope": ("nothing",)})
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "confirm": handler_confirm_held,
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


def handler_plain_start(ref: ConnectionRef = REF) -> Handler:
    """The app starts without a key and without knowing what is there: it gets what is there."""

    def run(ports: Ports) -> Any:
        key = Key(f"O#{ref.tenant}#{ref.owner}", f"C#{ref.connection}")
        before = ports.item(key)
        started = start(StartRequest(ref, CLIENT, None), ports.connecting)
        live = before is not None and before["state"] in ("ready", "revoking", "reconciling_revoke", "revoked")
        if live and started.ticket is not None and ports.item(key) == before:
            ports.violation("C-9: a start of what is there made a link")
        return started

    return run


@situation("plain starts", Kind(), Kind(Refreshing.STATIC, Reach.TOKEN))
def plain_starts(world: World) -> Made:
    """The app presses the button again and again, and the user comes back."""
    brought = begin(world)
    return Scene(), {
        "start": handler_plain_start(),
        "start too": handler_plain_start(),
        "callback": handler_callback(brought),
        "reconnect": handler_start(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "link passes": passing(2 * HOUR_MS),
    }


WIDER: Final = frozenset({"read", "more"})
APART: Final = tuple(Kind(refreshing, Reach.TOKEN, apart=True) for refreshing in Refreshing)
AGAIN: Final = Kind(Refreshing.STATIC, Reach.TOKEN, apart=True, gives_again=True)


def widened(world: World) -> Callback:
    """A link for a wider grant was opened and agreed to, beside the live one."""
    request = StartRequest(REF, CLIENT, None, again=True, scopes=WIDER)
    started = world.run(lambda ports: start(request, ports.connecting))
    return _visited(world, started.ticket)[0]


def handler_widen(ports: Ports) -> Any:
    """The app asks for a wider grant (again)."""
    return start(StartRequest(REF, CLIENT, None, again=True, scopes=WIDER), ports.connecting)


def handler_confirm_wider(first: Mapping[str, Secret]) -> Handler:
    """
    The owner brings the code of the wider grant, at the generation that the app knows from before: one of *first*, by
    the id of its exchange, or what the open vault makes of a later one's.
    """

    def run(ports: Ports) -> Any:
        held = (item for item in ports.world.table.items() if item["ty"] == "exchange" and item["kind"] == "step_up")
        id_ = next((item["SK"].split("#")[2] for item in held), "none")
        return confirm(REF, 1, first.get(id_, Secret(f"code/{id_}")), ports.connecting)

    return run


@situation("a wider grant on its way", *APART)
def wider(world: World) -> Made:
    """The callback of a step-up comes; what there is must serve until it is in, and after."""
    connected(world)
    brought = widened(world)
    return Scene(), {
        "callback": handler_callback(brought),
        "callback again": handler_callback(brought),
        "token": handler_token(),
        "widen": handler_widen,
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "window passes": passing(WINDOW_MS + GUARD_MS),
    }


@situation("a wider grant that is the live one, given again", AGAIN, replace(AGAIN, takes_either=True))
def wider_again(world: World) -> Made:
    """The provider has no second grant: what serves must not be ended for it."""
    return wider(world)


@situation("a wider grant on its way, answer lost", APART[0])
def wider_lost(world: World) -> Made:
    """Nobody knows whether there is one."""
    scene, handlers = wider(world)
    world.faults["exchange"] = [Fault.LOST]
    return scene, handlers


@situation("a wider grant on its way, answer late", APART[1])
def wider_late(world: World) -> Made:
    """It comes when its window is over."""
    scene, handlers = wider(world)
    world.slow["exchange"] = WINDOW_MS + GUARD_MS
    return scene, handlers


@situation("a wider grant of another account", APART[0])
def wider_of_another(world: World) -> Made:
    """The user chose another account at the provider."""
    scene, handlers = wider(world)
    world.ledger.codes = dict.fromkeys(world.ledger.codes, "mallory")
    return scene, handlers


@situation("a wider grant waits for its owner", *APART, confirmation="owner")
def wider_held(world: World) -> Made:
    """Held beside the live one, whose access token has to be refreshed."""
    connected(world)
    world.now += HOUR_MS
    outcome = world.run(handler_callback(widened(world)))
    (held,) = (item for item in _of_type(world, "exchange") if item["kind"] == "step_up")
    confirming = handler_confirm_wider({held["SK"].split("#")[2]: outcome.confirm_code})
    return Scene(), {
        "confirm": confirming,
        "confirm again": confirming,
        "token": handler_token(),
        "token again": handler_token(),
        "widen": handler_widen,
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("four wrong codes", Kind(), confirmation="owner")
def wrong_codes(world: World) -> Made:
    """One more ends the exchange."""
    outcome = world.run(handler_callback(begin(world)))
    scene = Scene(codes={"right": outcome.confirm_code, "wrong": Secret("code/wrong")})
    for _ in range(WRONG_CODES - 2):
        attempted(world, handler_confirm(scene, code="wrong"))
    return scene, {
        "wrong code": handler_confirm(scene, code="wrong"),
        "wrong code too": handler_confirm(scene, code="wrong"),
        "confirm": handler_confirm(scene),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("held, and the provider cannot revoke", Kind(revocable=False), confirmation="owner")
def held_unsupported(world: World) -> Made:
    """A grant that nobody can revoke waits for its owner."""
    outcome = world.run(handler_callback(begin(world)))
    scene = Scene(codes={"right": outcome.confirm_code})
    return scene, {
        "confirm": handler_confirm(scene),
        "start": handler_start(),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("account unreadable", *WIDE)
def account_unknown(world: World) -> Made:
    """A released grant whose account nobody knows yet, beside a live one of the same account."""
    connected(world, OTHER)
    brought = begin(world)
    world.faults["identity"] = [Fault.NOT_ACTED]
    attempted(world, handler_callback(brought))
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "other disconnects": handler_disconnect(OTHER),
        "start": handler_start(),
        "deadline passes": passing(DEADLINE_MS + GUARD_MS),
    }


@situation("account unreadable, nothing else", WIDE[0])
def account_unknown_alone(world: World) -> Made:
    """A released grant whose account nobody knows yet; another owner is about to connect that account."""
    brought = begin(world)
    world.faults["identity"] = [Fault.NOT_ACTED]
    attempted(world, handler_callback(brought))
    other = begin(world, OTHER)
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "other callback": handler_callback(other),
        "reconcile": handler_reconcile,
        "claim passes": passing(CLAIM_LEASE_MS + GUARD_MS),
    }


# --- owners ----------------------------------------------------------------------------------------------------------


@situation("owner about to go", Kind(), TOKEN_REACH[1], WIDE[0])
def owner_ready(world: World) -> Made:
    """An owner with a live connection and one on its way, whom the app deletes."""
    connected(world)
    second = begin(world, SECOND)
    world.now += HOUR_MS
    return Scene(), {
        "delete": handler_delete(),
        "delete too": handler_delete(),
        "token": handler_token(),
        "second callback": handler_callback(begin(world, SECOND)),
        "late callback": handler_callback(second),
        "disconnect": handler_disconnect(),
        "start": handler_start(ConnectionRef("t", "o", "e")),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
    }


@situation("owner waiting, and about to go", Kind(), confirmation="owner")
def owner_held(world: World) -> Made:
    """A grant waits for an owner whom the app deletes."""
    outcome = world.run(handler_callback(begin(world)))
    scene = Scene(codes={"right": outcome.confirm_code, "wrong": Secret("code/wrong")})
    return scene, {
        "delete": handler_delete(),
        "confirm": handler_confirm(scene),
        "disconnect": handler_disconnect(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "hold passes": passing(CONFIRM_MS + GUARD_MS),
    }


@situation("owner deleted", Kind(), Kind(revocable=False), TOKEN_REACH[0])
def owner_deleted(world: World) -> Made:
    """Two connections are to be stopped."""
    connected(world)
    connected(world, SECOND)
    world.now += MINUTE
    world.run(handler_delete())
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "operator": handler_operator,
        "operator too": handler_operator,
        "token": handler_token(),
        "acknowledge": handler_acknowledge(),
        "delete": handler_delete(),
    }


@situation("nobody yet", Kind())
def nobody(world: World) -> Made:
    """An owner of whom nothing is known."""
    return Scene(), {
        "start": handler_start(),
        "second starts": handler_start(SECOND),
        "delete": handler_delete(),
        "delete too": handler_delete(),
        "reconcile": handler_reconcile,
        "moment passes": passing(10_000),
    }


# --- tokens ----------------------------------------------------------------------------------------------------------


@situation("provider busy", Kind(), TOKEN_REACH[1])
def busy(world: World) -> Made:
    """A refresh is turned away, and another one may be open from before."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.now += REFRESH_LEASE_MS + GUARD_MS
    world.faults["refresh"] = [Fault.BUSY, Fault.NOT_SENT]
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "report": handler_report(),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


@situation("reported", Kind(), ACCESS)
def reported(world: World) -> Made:
    """The app says that a token was refused."""
    connected(world)
    return Scene(), {
        "report": handler_report(),
        "report too": handler_report(),
        "report of another": handler_report(version=2),
        "token": handler_token(),
        "token again": handler_token(),
        "disconnect": handler_disconnect(),
        "start": handler_start(),
    }


@situation(
    "answer slower than its lease", Kind(), Kind(Refreshing.STATIC), Kind(Refreshing.GRACE), TOKEN_REACH[1], EITHER
)
def slow_refresh(world: World) -> Made:
    """The provider refreshes, and its answer comes when the lease is over."""
    connected(world)
    world.now += HOUR_MS
    world.slow["refresh"] = REFRESH_LEASE_MS + GUARD_MS
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "report": handler_report(),
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "start": handler_start(),
    }


@situation("refresh refused", Kind(), TOKEN_REACH[0])
def refused(world: World) -> Made:
    """The provider has ended the grant."""
    connected(world)
    world.now += HOUR_MS
    for token in world.ledger.alive():
        world.ledger.tokens[token.name] = replace(token, alive=False, why_dead="by the user")
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
    }


@situation("connected again", Kind(), TOKEN_REACH[0])
def reconnected(world: World) -> Made:
    """A second life of a connection, with requests that saw the first."""
    connected(world)
    first = begin_of(world)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    world.run(handler_reconcile)
    world.run(handler_callback(begin(world, again=True)))
    world.now += HOUR_MS
    return Scene(), {
        "old disconnect": lambda ports: disconnected(ports, REF, first),
        "disconnect": handler_disconnect(),
        "token": handler_token(),
        "report": handler_report(),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "start": handler_start(),
    }


@situation("a new life meanwhile", Kind(), TOKEN_REACH[0])
def new_life(world: World) -> Made:
    """Requests of the first life are under way, and the connection begins a second one."""
    connected(world)
    world.now += HOUR_MS
    return Scene(), {
        "token": handler_token(),
        "report": handler_report(),
        "disconnect": handler_disconnect(),
        "new life": handler_new_life,
        "reconcile": handler_reconcile,
    }


@situation("a new life meanwhile, the first one ended by the provider", Kind(), TOKEN_REACH[0])
def new_life_refused(world: World) -> Made:
    """The same, and the first grant is dead."""
    made = new_life(world)
    for token in world.ledger.alive():
        world.ledger.tokens[token.name] = replace(token, alive=False, why_dead="by the user")
    return made


def begin_of(world: World) -> int:
    """The connection's generation as it is now."""
    item = world.table.item(Key(f"O#{REF.tenant}#{REF.owner}", f"C#{REF.connection}"))
    return int(item["generation"]) if item else 0


# --- revocations ------------------------------------------------------------------------------------------------------


@situation("provider down", Kind(), TOKEN_REACH[0], *WIDE)
def down(world: World) -> Made:
    """A revocation was tried in vain, and will be once more."""
    connected(world)
    world.run(handler_disconnect())
    world.faults["revoke"] = [Fault.BUSY, Fault.NOT_ACTED, Fault.LOST]
    world.run(handler_sweep)
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "retry": handler_retry,
        "retry too": handler_retry,
        "minute passes": passing(MINUTE + GUARD_MS),
        "deadline passes": passing(DEADLINE_MS + GUARD_MS),
    }


@situation("poison", Kind(), TOKEN_REACH[0])
def poison(world: World) -> Made:
    """A revocation's material does not open."""
    connected(world)
    world.run(handler_disconnect())
    for rid in _rids(world, "pending"):
        key = Key(f"Q#{rid}", "Q")
        (material,) = dict(world.table.item(key) or {})["material"]
        world.seen.sealed_in[rid] |= world.tokens_in(material["sealed"])
        spoilt = material["sealed"].replace(b"revoke;", b"broken;")
        world.table.alter(key, {"material": [{**material, "sealed": spoilt}]})
    world.now += DEADLINE_MS - HOUR_MS
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "retry": handler_retry,
        "acknowledge": handler_acknowledge(),
        "start": handler_start(),
        "minute passes": passing(MINUTE + GUARD_MS),
        "deadline passes": passing(DEADLINE_MS + GUARD_MS),
    }


@situation("keys away", Kind(), TOKEN_REACH[0])
def keys_away(world: World) -> Made:
    """No key opens while all of this happens."""
    connected(world)
    world.now += HOUR_MS
    world.keys_out = True
    return Scene(), {
        "disconnect": handler_disconnect(),
        "token": handler_token(),
        "sweep": handler_sweep,
        "reconcile": handler_reconcile,
        "delete": handler_delete(),
        "deadline passes": passing(DEADLINE_MS + GUARD_MS),
    }


@situation("parked beside another owner", *WIDE)
def parked(world: World) -> Made:
    """One of two sharers has stopped."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    return Scene(), {
        "other disconnects": handler_disconnect(OTHER),
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "start": handler_start(),
        "claim passes": passing(CLAIM_LEASE_MS + GUARD_MS),
    }


@situation("both sharers stopped", *WIDE)
def both_stopped(world: World) -> Made:
    """What was parked is to be made due, while the account is connected anew."""
    connected(world)
    connected(world, TENANT)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    brought = begin(world, OTHER)
    world.run(handler_disconnect(TENANT))
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "other callback": handler_callback(brought),
        "start": handler_start(),
    }


@situation("two revocations of one account due", *WIDE)
def two_wide(world: World) -> Made:
    """Two sharers stopped at once, and a third owner is about to connect the account."""
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_disconnect(OTHER))
    brought = begin(world, TENANT)
    return Scene(), {
        "sweep of one": handler_sweep_of(REF),
        "sweep of the other": handler_sweep_of(OTHER),
        "third callback": handler_callback(brought),
        "reconcile": handler_reconcile,
        "moment passes": passing(10_000),
    }


@situation("account revoked a moment ago", *WIDE)
def wide_done(world: World) -> Made:
    """The revocation is settled, and its finishing step has not run; another owner connects the account."""
    connected(world)
    world.run(handler_disconnect())
    world.run(handler_sweep)
    world.now += 1_000
    brought = begin(world, OTHER)
    return Scene(), {
        "other callback": handler_callback(brought),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "start": handler_start(),
    }


@situation("orphan beside its family", Kind(Refreshing.GRACE))
def orphan_parked(world: World) -> Made:
    """Two refreshes were answered, and only one could be saved: the other's token lies beside the grant."""
    _two_answers(world)
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "disconnect": handler_disconnect(),
        "delete": handler_delete(),
        "reconcile": handler_reconcile,
        "token": handler_token(),
        "start": handler_start(),
    }


@situation("orphan parked, its family stopped", Kind(Refreshing.GRACE))
def orphan_stopped(world: World) -> Made:
    """The token that lay beside the grant is to be made due."""
    _two_answers(world)
    world.run(handler_sweep)
    world.run(handler_disconnect())
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "start": handler_start(),
        "acknowledge": handler_acknowledge(),
    }


def _two_answers(world: World) -> None:
    connected(world)
    world.now += HOUR_MS
    first = stepped(world, "first", handler_token(), "answer to refresh")
    world.now += REFRESH_LEASE_MS + GUARD_MS
    world.run(handler_token())
    ended(first)


@situation("stopped by deletion during a refresh", Kind(), TOKEN_REACH[2])
def deleted_during_refresh(world: World) -> Made:
    """A refresh is unseen, and the owner is deleted."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.run(handler_delete())
    return Scene(), {
        "reconcile": handler_reconcile,
        "reconcile too": handler_reconcile,
        "sweep": handler_sweep,
        "token": handler_token(),
        "operator": handler_operator,
        "lease passes": passing(REFRESH_LEASE_MS + GUARD_MS),
    }


# --- right at an end -------------------------------------------------------------------------------------------------
# Whoever takes a right over waits a guard longer than its end: here that end has just come.


@situation("window just over", Kind())
def window_over(world: World) -> Made:
    """A worker died before its answer; the window of its exchange ends now."""
    dead = stepped(world, "dead", handler_callback(begin(world)), "answer to exchange")
    dead.crash()
    world.now += WINDOW_MS
    return Scene(), {
        "reconcile": handler_reconcile,
        "acknowledge": handler_acknowledge(),
        "disconnect": handler_disconnect(),
        "start": handler_start(),
        "guard passes": passing(GUARD_MS),
    }


@situation("unconfirmed inside its window", Kind())
def unconfirmed_early(world: World) -> Made:
    """The answer is lost, and the window ends now."""
    world.faults["exchange"] = [Fault.LOST]
    attempted(world, handler_callback(begin(world)))
    world.now += WINDOW_MS
    return Scene(), {
        "acknowledge": handler_acknowledge(),
        "start": handler_start(),
        "reconcile": handler_reconcile,
        "guard passes": passing(GUARD_MS),
    }


@situation("hold just over", Kind(), TOKEN_REACH[0], WIDE[0], confirmation="owner")
def hold_just_over(world: World) -> Made:
    """Nobody confirmed, and the hold ends now."""
    outcome = world.run(handler_callback(begin(world)))
    scene = Scene(codes={"right": outcome.confirm_code, "wrong": Secret("code/wrong")})
    world.now += CONFIRM_MS
    return scene, {
        "confirm": handler_confirm(scene),
        "wrong code": handler_confirm(scene, code="wrong"),
        "reconcile": handler_reconcile,
        "sweep": handler_sweep,
        "start": handler_start(),
        "guard passes": passing(GUARD_MS),
    }


@situation("lease just over", Kind(), Kind(Refreshing.GRACE), TOKEN_REACH[1])
def lease_over(world: World) -> Made:
    """A refresh is unseen, and its lease ends now."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.now += REFRESH_LEASE_MS
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "reconcile": handler_reconcile,
        "disconnect": handler_disconnect(),
        "guard passes": passing(GUARD_MS),
    }


@situation("stopped, and the lease just over", Kind(), TOKEN_REACH[2], WIDE[0])
def lease_over_stopped(world: World) -> Made:
    """The same, and the connection was stopped meanwhile."""
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    world.run(handler_disconnect())
    world.now += REFRESH_LEASE_MS
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "guard passes": passing(GUARD_MS),
    }


@situation("claim just over", Kind(), TOKEN_REACH[0], *WIDE)
def claim_over(world: World) -> Made:
    """A sweep died with a claim, and the claim ends now."""
    connected(world)
    world.run(handler_disconnect())
    dead = stepped(world, "dead", handler_sweep, "revoke")
    dead.crash()
    world.now += CLAIM_LEASE_MS
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "retry": handler_retry,
        "reconcile": handler_reconcile,
        "guard passes": passing(GUARD_MS),
    }


@situation("deadline just over", Kind(), TOKEN_REACH[0], WIDE[0])
def deadline_over(world: World) -> Made:
    """Nobody revoked in time, and the time ends now."""
    connected(world)
    world.run(handler_disconnect())
    world.now += DEADLINE_MS
    return Scene(), {
        "sweep": handler_sweep,
        "sweep too": handler_sweep,
        "reconcile": handler_reconcile,
        "retry": handler_retry,
        "acknowledge": handler_acknowledge(),
        "guard passes": passing(GUARD_MS),
    }


@situation("link just over", Kind())
def link_over(world: World) -> Made:
    """The link and its authorization end now."""
    brought, ticket = _opened(world)
    world.now += TICKET_MS + AUTHORIZATION_MS + GUARD_MS
    return Scene(), {
        "visit": handler_visit(ticket),
        "callback": handler_callback(brought),
        "denied": handler_callback(replace(brought, code=None, error="access_denied")),
        "start": handler_start(),
        "reconcile": handler_reconcile,
        "guard passes": passing(GUARD_MS),
    }


@situation("owner about to go, batches in pieces", Kind())
def pieces(world: World) -> Made:
    """DynamoDB reads the keys of a batch one by one: the owner long before the grant."""
    connected(world)
    world.now += HOUR_MS
    world.batch_order = list
    return Scene(), {
        "token": handler_token(),
        "token again": handler_token(),
        "delete": handler_delete(),
        "disconnect": handler_disconnect(),
        "reconcile": handler_reconcile,
    }
