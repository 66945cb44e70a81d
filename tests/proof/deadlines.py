"""
The deadlines of the custody protocol, one function each: it brings the thing about and says when it ends, and how to
see whether it has. `test_clocks.py` looks at each a millisecond before its time, at it, and after.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.limits import (
    CONFIRM_MS,
    EXCHANGE_CALL_MS,
    GUARD_MS,
    HARD_MARGIN_MS,
    LADDER_MS,
    REFRESH_CALL_MIN_MS,
    REVOKE_CALL_MIN_MS,
    SAVE_MS,
    SAVED_RECENTLY_MS,
    SOFT_MARGIN_MS,
    WINDOW_MS,
)
from quitclaim.domain.revocations import Reach
from quitclaim.flows.connect.link import open_link
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.maintain import maintain
from quitclaim.flows.reconcile import LAST_ITEM_MS, reconcile
from quitclaim.flows.revocations import LAST_CLAIM_MS, revoke
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.scripts import (
    BASE,
    HOUR_MS,
    OTHER,
    REF,
    Handler,
    Scene,
    attempted,
    begin,
    connected,
    handler_acknowledge,
    handler_callback,
    handler_confirm,
    handler_disconnect,
    handler_reconcile,
    handler_sweep,
    handler_token,
)
from tests.proof.table import TableCall
from tests.proof.world import CLIENT, SweepDeadline, World

type Probe = Callable[[World], str]
type Build = Callable[[World], tuple[int, Probe]]


@dataclass(frozen=True)
class Deadline:
    """Something that ends: how it is brought about, when that is, and what is seen just before, then and just after."""

    name: str
    before: str
    at: str
    after: str
    build: Build
    kind: Kind
    confirmation: Any


DEADLINES: Final[list[Deadline]] = []
PLAIN: Final = Kind()
STATIC: Final = Kind(Refreshing.STATIC)
WIDE: Final = Kind(Refreshing.STATIC, Reach.AUTHORIZATION)
IDLE: Final = Kind(idle_limit_ms=30 * 24 * HOUR_MS)


def deadline(
    name: str, before: str, at: str, after: str, kind: Kind = PLAIN, confirmation: str = "none"
) -> Callable[[Build], Build]:
    """Register one; the function brings it about, and gives its time and the question that is asked round it."""

    def register(build: Build) -> Build:
        DEADLINES.append(Deadline(name, before, at, after, build, kind, confirmation))
        return build

    return register


def _items(world: World, ty: str) -> list[Mapping[str, Any]]:
    return [item for item in world.table.items() if item["ty"] == ty]


def _one(world: World, ty: str) -> Mapping[str, Any]:
    (item,) = _items(world, ty)
    return item


def _state(ty: str, attribute: str, handler: Handler) -> Probe:
    """What an item says once a handler has run."""

    def probe(world: World) -> str:
        attempted(world, handler)
        return str(_one(world, ty).get(attribute))

    return probe


def _ends(handler: Handler, ok: str) -> Probe:
    """Whether a handler is refused."""

    def probe(world: World) -> str:
        try:
            world.run(handler)
        except QuitclaimError as error:
            return error.code
        return ok

    return probe


def _died(world: World, handler: Handler, before: str) -> None:
    """A worker that dies right before a call."""
    process = world.process("dead", handler)
    process.begin()
    while process.pending is not None and not process.pending.what.startswith(before):
        process.advance()
    assert process.pending is not None, f"it never came to {before}"
    process.crash()


def _moving(world: World, what: str, until: int, handler: Handler) -> None:
    """A handler for which time moves on to *until* right after a write, before anything else."""

    def after(call: TableCall) -> None:
        if any(type(write).__name__ + " " + write.key.sk.split("#")[0] == what for write in call.writes):
            world.table.watch()
            world.now = until

    world.table.watch(after=after)
    attempted(world, handler)
    world.table.watch()


@deadline("connect link", "opened", "OAUTH_STATE_INVALID", "OAUTH_STATE_INVALID")
def _link(world: World) -> tuple[int, Probe]:
    started = world.run(lambda ports: start(StartRequest(REF, CLIENT, None), ports.connecting))
    assert started.ticket is not None
    return started.expires_at, _ends(lambda ports: open_link(started.ticket, BASE, ports.connecting), "opened")


@deadline("authorization", "taken", "OAUTH_STATE_INVALID", "OAUTH_STATE_INVALID")
def _authorization(world: World) -> tuple[int, Probe]:
    brought = begin(world)
    return int(_one(world, "authorization")["expires"]), _ends(handler_callback(brought), "taken")


@deadline("link nobody finished", "authorizing", "failed", "failed")
def _lapse_of_link(world: World) -> tuple[int, Probe]:
    begin(world)
    return int(_one(world, "connection")["lapse_at"]) + GUARD_MS, _state("connection", "state", handler_reconcile)


@deadline("answer within the exchange's window", "installed", "cleanup", "cleanup")
def _window(world: World) -> tuple[int, Probe]:
    brought = begin(world)

    def probe(world: World) -> str:
        late = world.now - since - WINDOW_MS
        world.now, world.slow["exchange"] = since, WINDOW_MS + late
        attempted(world, handler_callback(brought))
        return str(_one(world, "exchange")["outcome"])

    since = world.now
    return since + WINDOW_MS, probe


@deadline("send of the code", "sent", "not sent", "not sent")
def _send_of_code(world: World) -> tuple[int, Probe]:
    brought, since = begin(world), world.now

    def probe(world: World) -> str:
        until, world.now = world.now, since
        _moving(world, "Put X", until, handler_callback(brought))
        return "sent" if world.ledger.exchanges else "not sent"

    return since + WINDOW_MS - GUARD_MS, probe


@deadline("exchange without an answer", "open", "unconfirmed", "unconfirmed")
def _lapse_of_exchange(world: World) -> tuple[int, Probe]:
    _died(world, handler_callback(begin(world)), "answer to exchange")
    return int(_one(world, "exchange")["ends"]) + GUARD_MS, _state("exchange", "outcome", handler_reconcile)


@deadline("acknowledgement of an exchange", "ACKNOWLEDGE_TOO_EARLY", "acknowledged", "acknowledged")
def _acknowledgement(world: World) -> tuple[int, Probe]:
    world.faults["exchange"] = [Fault.LOST]
    attempted(world, handler_callback(begin(world)))
    return int(_one(world, "exchange")["ends"]) + GUARD_MS, _ends(handler_acknowledge(), "acknowledged")


def _held(world: World) -> tuple[int, Scene]:
    outcome = world.run(handler_callback(begin(world)))
    return int(_one(world, "exchange")["hold_ends"]), Scene(codes={"right": outcome.confirm_code})


@deadline("confirmation by the owner", "ready", "GRANT_NOT_INSTALLED", "GRANT_NOT_INSTALLED", confirmation="owner")
def _confirmation(world: World) -> tuple[int, Probe]:
    ends, scene = _held(world)
    assert ends == world.now + CONFIRM_MS
    return ends, _ends(handler_confirm(scene), "ready")


@deadline("hold nobody confirmed", "held", "cleanup", "cleanup", confirmation="owner")
def _lapse_of_hold(world: World) -> tuple[int, Probe]:
    return _held(world)[0] + GUARD_MS, _state("exchange", "outcome", handler_reconcile)


@deadline("held grant before the sweep", "pending", "confirmed", "confirmed", confirmation="owner")
def _sweep_of_hold(world: World) -> tuple[int, Probe]:
    return _held(world)[0] + GUARD_MS, _state("revocation", "state", handler_sweep)


def _ready(world: World) -> int:
    """A connection that is ready; when its access token ends."""
    connected(world)
    return int(_one(world, "grant")["access_until"])


@deadline("soft margin of a token", "1", "2", "2")
def _soft(world: World) -> tuple[int, Probe]:
    return _ready(world) - SOFT_MARGIN_MS, _state("grant", "tv", handler_token())


@deadline("hard margin of a token", "handed out", "REFRESH_IN_PROGRESS", "REFRESH_IN_PROGRESS")
def _hard(world: World) -> tuple[int, Probe]:
    ends = _ready(world) - HARD_MARGIN_MS
    world.now = ends - 10_000
    _died(world, handler_token(), "refresh")  # so that nobody else may refresh now
    return ends, _ends(handler_token(), "handed out")


@deadline("owner read again after a save", "2 reads", "1 reads", "1 reads")
def _saved_recently(world: World) -> tuple[int, Probe]:
    world.now = _ready(world)
    world.run(handler_token())

    def probe(world: World) -> str:
        before = world.table.number
        world.run(handler_token())
        return f"{world.table.number - before} reads"

    return world.now + SAVED_RECENTLY_MS, probe


def _unseen(world: World) -> int:
    """A refresh whose answer was lost; when its lease ends."""
    world.now = _ready(world)
    world.faults["refresh"] = [Fault.LOST]
    attempted(world, handler_token())
    return int(_one(world, "grant")["lease_until"])


@deadline("lease of a refresh, for the next", "REFRESH_IN_PROGRESS", "refreshed", "refreshed", STATIC)
def _takeover(world: World) -> tuple[int, Probe]:
    return _unseen(world) + GUARD_MS, _ends(handler_token(), "refreshed")


@deadline("lease of a refresh, for its lapse", "on record", "forgotten", "forgotten", STATIC)
def _lapse_of_refresh(world: World) -> tuple[int, Probe]:
    def probe(world: World) -> str:
        world.run(handler_reconcile)
        return "on record" if _one(world, "grant").get("attempts") else "forgotten"

    return _unseen(world) + GUARD_MS, probe


@deadline("send of a refresh", "sent", "sent", "not sent")
def _send_of_refresh(world: World) -> tuple[int, Probe]:
    since = world.now = _ready(world)

    def probe(world: World) -> str:
        until, world.now = world.now, since
        _moving(world, "Update G", until, handler_token())
        return "sent" if len(world.ledger.tokens) > 1 else "not sent"

    return since + 30_000 - GUARD_MS - REFRESH_CALL_MIN_MS, probe


@deadline("save after the lease", "2", "2", "2")
def _late_save(world: World) -> tuple[int, Probe]:
    since = world.now = _ready(world)

    def probe(world: World) -> str:
        world.slow["refresh"], world.now = world.now - since, since
        world.run(handler_token())
        return str(_one(world, "grant")["tv"])

    return since + 30_000, probe


def _stopped(world: World) -> Mapping[str, Any]:
    connected(world)
    world.run(handler_disconnect())
    return _one(world, "revocation")


def _tried(world: World) -> str:
    """Whether the sweep sends it."""
    before = len(world.ledger.revoked_by_us)
    world.run(handler_sweep)
    return "sent" if len(world.ledger.revoked_by_us) > before else "left"


def _step_of_ladder(number: int) -> Build:
    def build(world: World) -> tuple[int, Probe]:
        _stopped(world)
        for _ in range(number):
            world.faults["revoke"] = [Fault.BUSY]
            world.now = int(_one(world, "revocation")["next"])
            world.run(handler_sweep)
        at = int(_one(world, "revocation")["next"])
        assert at == world.now + LADDER_MS[min(number, len(LADDER_MS)) - 1]
        return at, _tried

    return build


for step in range(1, len(LADDER_MS) + 2):
    deadline(f"step {step} of the ladder", "left", "sent", "sent")(_step_of_ladder(step))


@deadline("lease of a claim", "left", "sent", "sent")
def _claim(world: World) -> tuple[int, Probe]:
    _stopped(world)
    _died(world, handler_sweep, "revoke")
    return int(_one(world, "revocation")["lease_until"]) + GUARD_MS, _tried


@deadline("send of a revocation", "sent", "sent", "left")
def _send_of_revoke(world: World) -> tuple[int, Probe]:
    _stopped(world)
    since = world.now

    def probe(world: World) -> str:
        until, world.now = world.now, since
        _moving(world, "Update Q", until, handler_sweep)
        return "sent" if world.ledger.revoked_by_us else "left"

    return since + 30_000 - REVOKE_CALL_MIN_MS, probe


@deadline("deadline of a revocation, for a claim", "sent", "left", "left")
def _deadline_of_claim(world: World) -> tuple[int, Probe]:
    at = int(_stopped(world)["deadline"])

    def probe(world: World) -> str:
        # The last three seconds are too short for a call: it is claimed, and given back.
        world.run(handler_sweep)
        return "sent" if _one(world, "revocation")["claims"] else "left"

    return at, probe


@deadline("deadline of a revocation, for its expiry", "pending", "expired", "expired")
def _expiry(world: World) -> tuple[int, Probe]:
    return int(_stopped(world)["deadline"]) + GUARD_MS, _state("revocation", "state", handler_sweep)


@deadline("answer before the deadline of a revocation", "confirmed", "pending", "pending")
def _late_settle(world: World) -> tuple[int, Probe]:
    at = int(_stopped(world)["deadline"])

    def probe(world: World) -> str:
        world.slow["revoke"], world.now = world.now - (at - 10_000), at - 10_000
        world.run(handler_sweep)
        return str(_one(world, "revocation")["state"])

    return at, probe


@deadline("successor that never came", "None", "True", "True")
def _successor(world: World) -> tuple[int, Probe]:
    _unseen(world)
    world.run(handler_disconnect())
    return int(_one(world, "revocation")["expected_until"]) + GUARD_MS, _state("revocation", "lost", handler_sweep)


@deadline("revocation that takes longer", "revoking", "reconciling_revoke", "reconciling_revoke")
def _effect(world: World) -> tuple[int, Probe]:
    _stopped(world)
    return int(_one(world, "connection")["effect_at"]), _state("connection", "state", handler_reconcile)


@deadline("stop that waits", "0", "1", "1")
def _stop_again(world: World) -> tuple[int, Probe]:
    _stopped(world)
    world.run(handler_reconcile)

    def probe(world: World) -> str:
        before = int(_one(world, "intent")["tries"])
        world.run(handler_reconcile)
        return str(int(_one(world, "intent")["tries"]) - before)

    return int(_one(world, "intent")["next"]), probe


@deadline("idle limit of a grant", "1", "2", "2", IDLE)
def _keep_alive(world: World) -> tuple[int, Probe]:
    connected(world)
    at = int(_one(world, "grant")["keep_alive_at"])
    return at, _state("grant", "tv", lambda ports: maintain(SweepDeadline(), ports.maintaining))


@deadline("grant begun while its account was being revoked", "cleanup", "cleanup", "installed", WIDE)
def _killed(world: World) -> tuple[int, Probe]:
    connected(world)
    brought = begin(world, OTHER)
    world.run(handler_disconnect())
    _died(world, handler_sweep, "revoke")

    def probe(world: World) -> str:
        attempted(world, handler_callback(brought))
        return str(max(_items(world, "exchange"), key=lambda item: int(item["started"]))["outcome"])

    return int(_one(world, "account")["killed_at"]), probe


@deadline("idempotency key", "the same", "another", "another")
def _idempotency(world: World) -> tuple[int, Probe]:
    asked = StartRequest(REF, CLIENT, None, idempotency_key="key")
    first = world.run(lambda ports: start(asked, ports.connecting))

    def probe(world: World) -> str:
        again = world.run(lambda ports: start(asked, ports.connecting))
        return "the same" if again.expires_at == first.expires_at else "another"

    return world.now + 24 * HOUR_MS, probe


# What is left of an invocation: here the time is what remains, not what the clock says.


type Asked = Callable[[World, int], str]


def _left(name: str, words: tuple[str, str, str], ms: int, probe: Asked, prepare: Callable[[World], Any]) -> None:
    def build(world: World) -> tuple[int, Probe]:
        prepare(world)
        since = world.now

        def asked(world: World) -> str:
            left, world.now = ms + world.now - since, since
            return probe(world, left)

        return since, asked

    deadline(name, *words)(build)


@dataclass
class Fixed:
    """`ports.Deadline` that stands still."""

    left: int

    def remaining_ms(self) -> int:
        """What was said."""
        return self.left


def _with(handler: Callable[[World], Handler]) -> Asked:
    def probe(world: World, left: int) -> str:
        world.deadline_of = lambda ports: Fixed(left)
        return _ends(handler(world), "done")(world)

    return probe


def _callback_of(world: World) -> Handler:
    return handler_callback(begin(world))


def _token(world: World) -> Handler:
    return handler_token()


def _expired(world: World) -> None:
    world.now = _ready(world)


def _as_it_is(world: World) -> None:
    """Nothing has to be brought about."""


def _swept(world: World, left: int) -> str:
    rid = _one(world, "revocation")["PK"][2:]
    world.run(lambda ports: revoke([rid], Fixed(left), ports.revoking))
    return str(_one(world, "revocation")["state"])


def _reconciled(world: World, left: int) -> str:
    world.run(lambda ports: reconcile(Fixed(left), ports.reconciling))
    return str(_one(world, "intent")["purge"])


OUT, DONE, PENDING = "OUT_OF_TIME", "done", "pending"

_left("time left for an exchange", (OUT, DONE, DONE), EXCHANGE_CALL_MS + SAVE_MS, _with(_callback_of), _as_it_is)
_left("time left for a refresh", (OUT, DONE, DONE), REFRESH_CALL_MIN_MS + SAVE_MS, _with(_token), _expired)
_left("time left for a claim", (PENDING, PENDING, "confirmed"), LAST_CLAIM_MS, _swept, _stopped)
_left("time left for one more item", (PENDING, DONE, DONE), LAST_ITEM_MS, _reconciled, _stopped)
