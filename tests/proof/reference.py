"""
The reference model: what an outside observer may see of the product. Written from the rules (exchanges, stops, refresh
and revocation, the tables of states and events, the custody rules), not from the code; it imports nothing of the
product.

It knows no table, no condition, no key and no process: a request is a list of steps, each all or nothing, that turn one
state of the world into the next. What the provider did meanwhile is told to it, request by request (`Sent`); what the
product answers and shows afterwards must be what it says. A run of a schedule is a list of what is due, each with steps
of its own. `possible.py` holds the product to it.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
WINDOW: Final = 60 * SECOND  # an exchange waits this long for its answer
CONFIRM: Final = 600 * SECOND  # a held grant for its owner
LEASE: Final = 30 * SECOND  # of a refresh, and of a claimed revocation
GUARD: Final = 5 * SECOND  # whoever takes a right over waits this much longer
DEADLINE: Final = 86_340 * SECOND  # a revocation is tried until then
LADDER: Final = (1, 2, 4, 8, 15)  # minutes; the last one repeats
EFFECT: Final = 60 * SECOND  # a stop that takes longer shows as such
AUTHORIZATION: Final = 900 * SECOND
TICKET: Final = 900 * SECOND
VISITS: Final = 20
WRONG_CODES: Final = 5
HARD: Final = 30 * SECOND  # a token with less left is never handed out
SOFT: Final = 300 * SECOND  # with less left it is refreshed
ACCESS: Final = 3_600 * SECOND  # lifetime of the provider's access tokens
POISON: Final = 5  # so many claims without an attempt that counts: it kills its worker
DAY: Final = 24 * 60 * MINUTE  # an idempotency key counts so long; a deleted owner's notice stays so long after its end

type Ref = tuple[str, str, str]
type OwnerName = tuple[str, str]
type Step = Generator[str | None, Any, Any]
"""A request: yields once a step is committed (`MAYBE` before one that may fail unnoticed), returns its answer."""

MAYBE: Final = "maybe"

STOPPED: Final = frozenset({"revoking", "reconciling_revoke", "revoked"})
NOTICES: Final = frozenset({"unconfirmed", "expired", "unreadable", "unsupported"})


@dataclass(frozen=True)
class Provider:
    """What is known of the provider and its client."""

    refreshing: str  # static, rotating, reuse, grace
    reach: str  # token, family, authorization, account
    revocable: bool = True
    has_identity: bool = True
    gives_refresh: bool = True
    owner_confirms: bool = False
    scopes: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()

    @property
    def is_wide(self) -> bool:
        """One revocation ends every grant of the account."""
        return self.reach in ("authorization", "account")


@dataclass(frozen=True)
class Sent:
    """One request that left for the provider, what it was about, and what came back."""

    endpoint: str
    about: str
    outcome: str
    token: str | None = None
    account: str | None = None
    scopes: frozenset[str] | None = None
    took: int = 0
    """How long the answer was on its way."""
    answered: bool = True
    """Whether its worker lived to see it."""


class Refused(Exception):
    """The request is refused with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Impossible(Exception):
    """This world contradicts what was seen."""


class Cut(Exception):
    """The request was cut short where it waits for the provider."""


# --- what there is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection. *attempt*: the exchange of this generation; *account*: pinned by its first grant."""

    state: str
    generation: int
    phase: str | None = None
    attempt: str | None = None
    lapses: int = 0
    effect: int = 0
    account: str | None = None
    scopes: frozenset[str] = frozenset()
    closed_as: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A connect link."""

    ref: Ref
    generation: int
    expires: int
    return_to: str | None = None
    visits: int = 0


@dataclass(frozen=True, slots=True)
class Authorization:
    """One visit of a link: the state that the provider brings back, and the code that it stands for."""

    ref: Ref
    generation: int
    expires: int
    spent: str | None = None  # consumed, discarded


@dataclass(frozen=True, slots=True)
class Attempt:
    """An exchange. *awaits*: what it holds waits for its owner's word."""

    ref: Ref
    generation: int
    started: int
    outcome: str = "open"
    token: str | None = None
    held_at: int = 0
    hold_ends: int = 0
    awaits: bool = False
    account: str | None = None
    scopes: frozenset[str] = frozenset()
    wrong: int = 0
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """A live grant. *attempts*: refreshes on record whose outcome nobody knows; *looked_at*: when that is settled."""

    generation: int
    version: int
    token: str
    family: str
    account: str | None
    expires: int
    lease: int | None = None
    looked_at: int = 0
    attempts: int = 0
    suspect: bool = False
    stray: bool = False


@dataclass(frozen=True, slots=True)
class Owed:
    """
    A token that is to be revoked. *held*: it still waits to be installed; *listed*: the barrier names it; *shown*: it
    belongs to a stop; *unsettled*: claims that came to nothing; *identity*: whose it is can still be asked;
    *sendable*: the provider's revocation takes its kind.
    """

    ref: Ref
    generation: int
    token: str
    family: str
    account: str | None
    state: str = "pending"
    next: int = 0
    deadline: int = 0
    attempts: int = 0
    unsettled: int = 0
    lease: int | None = None
    held: bool = False
    identity: bool = False
    sendable: bool = True
    expected: int = 0
    expected_until: int = 0
    lost: bool = False
    quarantined: bool = False
    listed: bool = False
    shown: bool = False
    settled_at: int = 0
    finished: bool = False
    acknowledged: bool = False

    @property
    def is_terminal(self) -> bool:
        """Settled for good."""
        return self.state not in ("pending", "parked")

    @property
    def is_over(self) -> bool:
        """Settled, and if it is a notice, acknowledged."""
        return self.state == "confirmed" or (self.state in NOTICES and self.acknowledged)


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop on record until everything that it owes is done."""

    owed: frozenset[str]
    next: int
    purged: bool = False
    is_listed: bool = True
    tries: int = 0
    closed: bool = False


@dataclass
class State:
    """One possible world."""

    connections: dict[Ref, Connection] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    authorizations: dict[str, Authorization] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    grants: dict[Ref, Grant] = field(default_factory=dict)
    owed: dict[str, Owed] = field(default_factory=dict)
    stops: dict[tuple[Ref, int], Stop] = field(default_factory=dict)
    killed: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    """Account -> until when, by which revocation, and until when by another one's claim."""
    first_answers: dict[tuple[Any, ...], tuple[Any, Any, int]] = field(default_factory=dict)
    receipts: dict[tuple[Ref, int, str], int] = field(default_factory=dict)
    deleted: dict[OwnerName, bool] = field(default_factory=dict)  # -> whether all its connections are stopped

    def copy(self) -> "State":
        """An independent world."""
        return State(*(getattr(self, name).copy() for name in FIELDS))

    # --- changing one thing ---

    def connection(self, ref: Ref, **change: Any) -> None:
        """The connection, changed."""
        self.connections[ref] = replace(self.connections[ref], **change)

    def attempt(self, name: str, **change: Any) -> None:
        """The exchange, changed."""
        self.attempts[name] = replace(self.attempts[name], **change)

    def debt(self, name: str, **change: Any) -> None:
        """The revocation, changed."""
        self.owed[name] = replace(self.owed[name], **change)

    def tidy(self, now: int) -> None:
        """Forget what can make no difference any more, so that worlds that differ in nothing else are one."""
        self.links = {name: link for name, link in self.links.items() if link.expires > now}
        self.authorizations = {name: each for name, each in self.authorizations.items() if each.expires > now}
        started = [each.started for each in self.attempts.values() if each.outcome in ("open", "held")]
        oldest = min([now, *started])
        self.killed = {account: until for account, until in self.killed.items() if until[0] >= oldest}
        for name, owed in self.owed.items():
            if owed.is_terminal and (owed.next or owed.attempts or owed.unsettled or owed.expected):
                self.debt(name, next=0, attempts=0, unsettled=0, expected=0, expected_until=0, lease=None)
        for key, stop in self.stops.items():
            if stop.closed and stop.next:
                self.stops[key] = replace(stop, next=0, tries=0)
        for ref, grant in self.grants.items():
            if not grant.attempts and (grant.looked_at or grant.lease):
                self.grants[ref] = replace(grant, looked_at=0, lease=None)

    # --- looking ---

    def in_flight(self, owner: OwnerName) -> str | None:
        """The one exchange of an owner that is open or held."""
        for name, attempt in self.attempts.items():
            if attempt.ref[:2] == owner and attempt.outcome in ("open", "held"):
                return name
        return None

    def blockers(self, owner: OwnerName) -> list[tuple[str, str, int | None]]:
        """What the barrier holds against a new attempt, apart from what is in flight: level, connection, until when."""
        found: list[tuple[str, str, int | None]] = []
        for owed in self.owed.values():
            if owed.ref[:2] != owner or not owed.listed:
                continue
            if owed.state == "pending":
                found.append(("pending", owed.ref[2], owed.deadline))
            elif owed.state in NOTICES and not owed.acknowledged:
                found.append(("permission_removal_required", owed.ref[2], None))
        for attempt in self.attempts.values():
            if attempt.ref[:2] == owner and attempt.outcome == "unconfirmed" and not attempt.acknowledged:
                found.append(("permission_removal_required", attempt.ref[2], None))
        for (ref, _), stop in self.stops.items():
            if ref[:2] == owner and stop.is_listed and not stop.purged:
                found.append(("purging", ref[2], None))
        return sorted(found, key=repr)

    def is_used_in_reach(self, owed: Owed, provider: Provider) -> bool:
        """Whether something lives that revoking it would end (custody rule 11)."""
        if provider.is_wide:
            return any(grant.account == owed.account for grant in self.grants.values())
        grant = self.grants.get(owed.ref)
        return provider.reach == "family" and grant is not None and grant.family == owed.family


FIELDS: Final = tuple(State.__dataclass_fields__)


def ladder(attempts: int) -> int:
    """The wait after so many attempts."""
    return LADDER[min(attempts, len(LADDER)) - 1] * MINUTE


# --- what an observer sees -------------------------------------------------------------------------------------------


def seen_of(state: State, owner: OwnerName, now: int) -> dict[str, Any]:
    """Status and receipts of an owner, as the API shows them."""
    mine = {ref[2]: connection for ref, connection in state.connections.items() if ref[:2] == owner}
    return {
        "deleted": owner in state.deleted,
        "connections": {name: _view(state, connection, now) for name, connection in mine.items()},
        "notices": {name: told for name in mine if (told := _notice(state, (*owner, name))) is not None},
        # A deleted owner begins nothing, and its stops leave the barrier alone: what stands there means nothing.
        "blockers": [] if owner in state.deleted else state.blockers(owner),
        "receipts": {
            (ref[2], generation, outcome): count
            for (ref, generation, outcome), count in state.receipts.items()
            if ref[:2] == owner
        },
    }


def _view(state: State, connection: Connection, now: int) -> dict[str, Any]:
    attempt = state.attempts.get(connection.attempt or "")
    awaits = (
        connection.state == "authorizing"
        and attempt is not None
        and attempt.outcome == "held"
        and attempt.awaits
        and attempt.hold_ends > now
    )
    return {
        "state": connection.state,
        "generation": connection.generation,
        "phase": connection.phase,
        "awaiting": awaits,
        "until": attempt.hold_ends if awaits and attempt is not None else None,
        "scopes": sorted(connection.scopes),
        "closed_as": connection.closed_as,
    }


LEVELS: Final = ("not_needed", "confirmed", "acknowledged", "pending", "permission_removal_required")


def _notice(state: State, ref: Ref) -> tuple[str, bool, int | None] | None:
    """The most pressing of what is owed for a connection (F-35 to F-37, U-20); until when at the latest, if pending."""
    found = []
    for name, owed in state.owed.items():
        attempt = state.attempts.get(name)
        if owed.ref == ref and (owed.shown or owed.listed or (attempt is not None and attempt.outcome == "cleanup")):
            found.append((_level(owed), owed.deadline))
    for attempt in state.attempts.values():
        if attempt.ref == ref and attempt.outcome == "unconfirmed":
            found.append((2 if attempt.acknowledged else 4, 0))
    level, deadline = max(found, default=(0, 0))
    if level == 0:
        return None
    is_purging = any(of == ref and not stop.purged for (of, _), stop in state.stops.items())
    return LEVELS[level], is_purging, deadline if LEVELS[level] == "pending" else None


def _level(owed: Owed) -> int:
    if owed.state in NOTICES:
        return 2 if owed.acknowledged else 4
    return {"parked": 0, "confirmed": 1, "pending": 3}[owed.state]


# --- one request -----------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """A request in one world: its steps, and what of the provider's log it has accounted for."""

    state: State
    now: int
    provider: Provider
    keys_out: bool
    log: tuple[Sent, ...]
    is_cut: bool = False
    used: frozenset[int] = frozenset()
    stages: list[tuple[State, frozenset[int]]] = field(default_factory=list)
    """Where the request may have been cut short."""

    def stage(self) -> None:
        """It may have been cut short here."""
        if self.is_cut:
            self.stages.append((self.state.copy(), self.used))

    # --- the provider ---

    def send(self, endpoint: str, about: str) -> Sent:
        """The request leaves: what came of it, by the provider's log. Cut short before, if it is not there."""
        for number, sent in enumerate(self.log):
            if number not in self.used and sent.endpoint == endpoint and sent.about == about:
                self.used |= {number}
                self.stages.clear()  # it left, so nothing was cut short before
                self.stage()
                if not sent.answered:
                    raise Cut
                self.now += sent.took
                return sent
        if self.is_cut:
            raise Cut
        raise Impossible(f"a {endpoint} request about {about} has to leave, and did not")

    # --- refusals that many share ---

    def alive(self, owner: OwnerName) -> None:
        """A deleted owner answers that before anything else."""
        if owner in self.state.deleted:
            raise Refused("OWNER_DELETED")

    def found(self, ref: Ref) -> Connection:
        """The connection."""
        connection = self.state.connections.get(ref)
        if connection is None:
            raise Refused("CONNECTION_NOT_FOUND")
        return connection

    def first_answer(self, key: tuple[Any, ...], request: Any) -> Any:
        """What the same key was answered first, as long as it counts; None if nothing (U-12)."""
        first, answer, until = self.state.first_answers.get(key, (None, None, 0))
        if until <= self.now or key[-1] is None:
            return None
        if first != request:
            raise Refused("IDEMPOTENCY_KEY_REUSED")
        return answer

    def need_keys(self) -> None:
        """Without its keys nothing is sealed, and so nothing is begun."""
        if self.keys_out:
            raise Refused("KEY_UNAVAILABLE")

    def refuse_link(self, ref: Ref, generation: int) -> None:
        """Whether a link or callback of *generation* still serves: the rows "link visit" and "callback consumed"."""
        connection = self.state.connections.get(ref)
        if connection is None:
            raise Refused("OAUTH_STATE_INVALID")
        if connection.generation != generation or connection.state in (*STOPPED, "needs_reconnect"):
            raise Refused("OAUTH_STATE_SUPERSEDED")
        if connection.state != "authorizing" or connection.phase != "link":
            raise Refused("OAUTH_STATE_REPLAYED")

    def refuse_blocked(self, owner: OwnerName) -> None:
        """The barrier (I-9)."""
        flying = self.state.in_flight(owner)
        if flying is not None and self.state.attempts[flying].outcome == "open":
            raise Refused("CONNECT_BLOCKED")
        levels = {level for level, _, _ in self.state.blockers(owner)}
        if levels:
            raise Refused("OWNER_PURGING" if levels == {"purging"} else "CONNECT_BLOCKED")

    # --- parts of a step ---

    def fail(self, name: str) -> None:
        """The connection that still waits for this exchange fails."""
        attempt = self.state.attempts[name]
        connection = self.state.connections[attempt.ref]
        if connection.state == "authorizing" and connection.generation == attempt.generation:
            self.state.connection(attempt.ref, state="failed", phase=None, attempt=None)

    def free(self, name: str, *, is_listed: bool = True) -> None:
        """A hold ends without an install: its grant is due now, unless the sweep has it already."""
        self.state.attempt(name, outcome="cleanup")
        if self.state.owed[name].held:
            self.state.debt(name, held=False, lease=None, next=self.now)
        if is_listed:
            self.state.debt(name, listed=True)

    def release(self, name: str) -> None:
        """Row 9."""
        self.free(name)
        self.fail(name)

    def finish(self, name: str) -> None:
        """Row 39: barrier and receipt follow a settle, once."""
        state, owed = self.state, self.state.owed[name]
        account = owed.account or ""
        until, by, floor = state.killed.get(account, (0, "", 0))
        if owed.state == "confirmed" and by == name:
            state.killed[account] = (min(until, max(owed.settled_at, floor)), name, floor)
        still = owed.listed and not owed.is_over
        if not owed.listed and owed.state in NOTICES and not owed.acknowledged and owed.ref[:2] not in state.deleted:
            still = True  # taken by the sweep before anybody listed it
        state.debt(name, finished=True, listed=still)
        self.receipt(owed.ref, owed.generation, owed.state)

    def finish_listed(self, owner: OwnerName) -> Step:
        """Whoever relies on the barrier first finishes what is settled in it."""
        for name, owed in list(self.state.owed.items()):
            if owed.ref[:2] == owner and owed.listed and owed.is_terminal and not owed.finished:
                self.finish(name)
                yield None

    def receipt(self, ref: Ref, generation: int, outcome: str) -> None:
        """What became of a grant."""
        key = (ref, generation, outcome)
        self.state.receipts[key] = self.state.receipts.get(key, 0) + 1

    def stop(self, ref: Ref, *, is_loss: bool = False, by_deletion: bool = False, disproved: int = 0) -> None:
        """Rows 23, 24 and 26: in one step the grant is gone, its revocation owed, and what is left to do on record."""
        state, now = self.state, self.now
        connection = state.connections[ref]
        names: set[str] = set()
        for (of, _), earlier in state.stops.items():
            if of == ref and not earlier.closed:
                names |= earlier.owed
        attempt = state.attempts.get(connection.attempt or "")
        if attempt is not None and connection.attempt is not None and attempt.outcome == "held":
            self.free(connection.attempt, is_listed=not by_deletion)
            names.add(connection.attempt)
        grant = state.grants.pop(ref, None)
        if grant is not None:
            names.add(grant.family)
            expected = grant.attempts - disproved
            owed = Owed(
                ref,
                grant.generation,
                grant.token,
                grant.family,
                grant.account,
                lost=grant.stray,
                listed=not by_deletion,
                settled_at=now,
            )
            if self.provider.revocable:
                until = grant.lease if grant.lease is not None else now
                owed = replace(owed, next=now, deadline=now + DEADLINE, expected=expected, expected_until=until)
            else:
                owed = replace(owed, state="unsupported")
            state.owed[grant.family] = owed
        for name in names:
            state.debt(name, shown=True)
        state.stops[ref, connection.generation] = Stop(
            frozenset(names), now, purged=is_loss, is_listed=not by_deletion and not is_loss
        )
        state.connection(
            ref,
            state="needs_reconnect" if is_loss else "revoking",
            generation=connection.generation + 1,
            phase=None,
            attempt=None,
            effect=now + EFFECT,
        )


# --- connecting ------------------------------------------------------------------------------------------------------


def start(run: Run, ref: Ref, *, again: bool, key: str | None = None, return_to: str | None = None) -> Step:
    """Row "start, reconnect" of the table; the answer is the connection as it is, or its generation and link."""
    state, now, owner = run.state, run.now, ref[:2]
    run.alive(owner)
    if again:
        run.found(ref)
    if (first := run.first_answer(("start", again, ref, key), return_to)) is not None:
        return first
    before = state.connections.get(ref)
    match before.state if before else "none":
        case "reconciling_link":
            raise Refused("CONNECTION_RECONCILING")
        case "ready" | "revoking" | "reconciling_revoke" | "revoked" as there if not again:
            return ("exists", there)
        case "ready" | "revoking" | "reconciling_revoke":
            raise Refused("CONNECTION_STATE_CONFLICT")
    if before is not None and before.phase == "link" and not again and key is None:
        for ticket, link in state.links.items():  # the same start, and its link still serves: the name is a key (U-12)
            is_same = (link.ref, link.generation, link.return_to) == (ref, before.generation, return_to)
            if is_same and link.visits < VISITS and now + MINUTE <= link.expires:
                return ("link", link.generation, ticket, link.expires)
    yield from run.finish_listed(owner)
    run.refuse_blocked(owner)
    waiting = state.in_flight(owner)
    if waiting is not None:  # a newer start of the same owner and client ends the one that waits
        run.release(waiting)
    generation = before.generation + 1 if before else 1
    expires = now + TICKET
    ticket = f"ticket/{'/'.join(ref)}/{generation}/{now}"
    state.links[ticket] = Link(ref, generation, expires, return_to)
    fresh = before or Connection("none", 0)
    state.connections[ref] = replace(
        fresh,
        state="authorizing",
        phase="link",
        generation=generation,
        attempt=None,
        lapses=expires + AUTHORIZATION + GUARD,
        closed_as=None,
    )
    answer = ("link", generation, ticket, expires)
    if key is not None:
        state.first_answers["start", again, ref, key] = (return_to, answer, now + DAY)
    yield None
    return answer


def open_link(run: Run, ticket: str, authorization: str) -> Step:
    """Row "link visit". *authorization*: the code that the provider will give for this visit."""
    link = run.state.links.get(ticket)
    if link is None or link.expires <= run.now or link.visits >= VISITS:
        raise Refused("OAUTH_STATE_INVALID")
    run.alive(link.ref[:2])
    run.refuse_link(link.ref, link.generation)
    run.need_keys()
    # Cut short, nobody has the state that was made: no step that an observer could ever tell from none.
    run.state.links[ticket] = replace(link, visits=link.visits + 1)
    run.state.authorizations[authorization] = Authorization(link.ref, link.generation, run.now + AUTHORIZATION)
    yield from ()
    return "opened"


PASSING: Final = frozenset({"server_error", "temporarily_unavailable", "interaction_required", "login_required"})


def callback(
    run: Run, name: str | None, *, has_code: bool = True, error: str | None = None, bound: bool = True
) -> Step:
    """
    The provider's callback for an authorization, which goes by its code; *bound*: in the browser that started (M-24 to
    M-58, rows 3 to 6, 8 to 10).
    """
    state, now = run.state, run.now
    if name is None:
        raise Refused("OAUTH_STATE_MISSING")
    authorization = state.authorizations.get(name)
    if authorization is None or authorization.spent == "discarded" or authorization.expires <= now:
        raise Refused("OAUTH_STATE_INVALID")
    if not bound:
        raise Refused("OAUTH_BINDING_MISMATCH")
    ref, generation = authorization.ref, authorization.generation
    connection = state.connections[ref]
    if authorization.spent is not None:
        run.alive(ref[:2])
        return (yield from _same_again(run, name))
    if error or not has_code:
        run.alive(ref[:2])
        state.authorizations[name] = replace(authorization, spent="discarded")
        waits = (connection.state, connection.phase, connection.generation) == ("authorizing", "link", generation)
        if waits and error not in PASSING:
            state.connection(ref, state="failed", phase=None, attempt=None)
        yield None
        raise Refused("OAUTH_CALLBACK_REJECTED" if error else "OAUTH_CODE_MISSING")
    run.need_keys()
    run.alive(ref[:2])
    run.refuse_link(ref, generation)
    yield from run.finish_listed(ref[:2])
    run.refuse_blocked(ref[:2])
    if state.in_flight(ref[:2]) is not None:
        raise Refused("CONNECT_BLOCKED")
    state.authorizations[name] = replace(authorization, spent="consumed")
    state.attempts[name] = Attempt(ref, generation, now)
    state.connection(ref, phase="exchanging", attempt=name)
    yield None
    return (yield from _answered(run, name, run.send("exchange", name)))


def _same_again(run: Run, name: str) -> Step:
    """The browser repeats what was consumed: it is shown the first outcome while that stands (M-30, RB-49)."""
    attempt = run.state.attempts[name]
    connection = run.state.connections[attempt.ref]
    is_current = connection.attempt == name and connection.generation == attempt.generation
    if is_current and (attempt.outcome == "open" or (attempt.outcome == "held" and not attempt.awaits)):
        return "in_progress"  # whoever began it may still be at work
    if is_current and attempt.outcome == "held" and attempt.hold_ends > run.now:
        if attempt.account is None and run.provider.has_identity:
            run.need_keys()
            yield from _identified(run, name)
        return "awaiting_confirmation"
    if is_current and attempt.outcome == "installed" and connection.state == "ready":
        return "ready"
    if connection.generation != attempt.generation:
        raise Refused("OAUTH_STATE_SUPERSEDED")
    if attempt.outcome == "unconfirmed" and not attempt.acknowledged:
        raise Refused("OAUTH_CALLBACK_RECOVERY_REQUIRED")  # M-31
    if attempt.outcome == "cleanup":
        raise Refused("GRANT_NOT_INSTALLED")
    raise Refused("OAUTH_STATE_REPLAYED")


def _answered(run: Run, name: str, sent: Sent) -> Step:
    state, now, provider = run.state, run.now, run.provider
    attempt = state.attempts[name]
    if sent.outcome in ("unknown", "refused", "busy", "not_sent"):
        is_unknown = sent.outcome == "unknown"
        yield MAYBE  # what only cleans up may fail: the caller is told what came of the request all the same (U-19)
        state.attempt(name, outcome="unconfirmed" if is_unknown else "ended")
        run.fail(name)
        yield None
        if is_unknown:
            raise Refused("EXCHANGE_UNCONFIRMED")
        raise Refused("PROVIDER_REFUSED" if sent.outcome == "refused" else "PROVIDER_BUSY")
    serves = sent.outcome == "granted"
    # Narrowed by its user so far that what is needed is missing: never sealed for use (RB-55).
    suffices = serves and (sent.scopes is None or provider.required <= sent.scopes)
    awaits = suffices and provider.owner_confirms
    ends = attempt.started + WINDOW
    hold_ends = now + CONFIRM if awaits else ends
    owed = Owed(
        attempt.ref,
        attempt.generation,
        sent.token or "",
        name,
        None,
        next=hold_ends,
        deadline=now + DEADLINE,
        lease=hold_ends,
        held=True,
        identity=serves and provider.has_identity and provider.is_wide,
        sendable=serves or provider.gives_refresh,
        lost=not serves and provider.reach == "token",  # what else the answer held was not seen
    )
    if ends <= now:  # too late: never thrown away, but due at once (D-2, row 13)
        state.attempt(name, outcome="cleanup", token=sent.token)
        state.owed[name] = replace(owed, next=now, lease=None, held=False, listed=True)
        yield None
        yield MAYBE
        run.fail(name)
        yield None
        raise Refused("GRANT_NOT_INSTALLED")
    scopes = provider.scopes if sent.scopes is None else sent.scopes
    state.attempt(
        name, outcome="held", token=sent.token, held_at=now, hold_ends=hold_ends, awaits=awaits, scopes=scopes
    )
    state.owed[name] = owed
    yield None
    if not suffices:
        yield MAYBE
        run.release(name)
        yield None
        raise Refused("GRANT_NOT_INSTALLED")
    if provider.has_identity:
        yield from _identified(run, name)
    if provider.owner_confirms:
        return "awaiting_confirmation"
    yield from _installed(run, name)
    return "ready"


def _identified(run: Run, name: str) -> Step:
    """Whose grant it is; another account than the pinned one, or an unreadable one, is never installed (S-21)."""
    state = run.state
    attempt = state.attempts[name]
    sent = run.send("identity", attempt.token or "")
    pinned = state.connections[attempt.ref].account
    if sent.account is None or pinned not in (None, sent.account):
        yield MAYBE
        run.release(name)
        yield None
        raise Refused("GRANT_NOT_INSTALLED")
    is_recorded = run.provider.owner_confirms or run.provider.is_wide
    if is_recorded and attempt.hold_ends <= run.now:
        raise Refused("GRANT_NOT_INSTALLED")  # nobody changes a hold that is over: it ends by itself
    state.attempt(name, account=sent.account)
    if is_recorded:
        state.debt(name, account=sent.account, identity=False)
        yield None


def _installed(run: Run, name: str) -> Step:
    """Row 8, or row 9 where something is in the way."""
    state, now = run.state, run.now
    attempt = state.attempts[name]
    connection, owner = state.connections[attempt.ref], attempt.ref[:2]
    admitted = owner not in state.deleted and attempt.hold_ends > now and state.owed[name].held
    admitted = admitted and connection.account in (None, attempt.account)
    if admitted:
        yield from run.finish_listed(owner)
        admitted = not state.blockers(owner)
    if admitted and attempt.account is not None:
        until, by, _ = state.killed.get(attempt.account, (-1, "", 0))
        if until >= attempt.started and state.owed[by].state == "confirmed" and not state.owed[by].finished:
            run.finish(by)
            yield None
            until, _, _ = state.killed[attempt.account]
        admitted = until < attempt.started
    if not admitted:
        yield MAYBE
        run.release(name)
        yield None
        raise Refused("GRANT_NOT_INSTALLED")
    state.attempt(name, outcome="installed")
    token, expires = state.owed.pop(name).token, attempt.held_at + ACCESS
    state.grants[attempt.ref] = Grant(attempt.generation, 1, token, name, attempt.account, expires)
    state.connection(
        attempt.ref,
        state="ready",
        phase=None,
        account=attempt.account or connection.account,
        scopes=attempt.scopes,
    )
    yield None


def confirm(run: Run, ref: Ref, generation: int, code_of: str | None) -> Step:
    """The owner brings the code of an exchange, or a made-up one: rows "install, right code" and "wrong code"."""
    run.alive(ref[:2])
    connection = run.found(ref)
    if connection.generation != generation:
        raise Refused("GENERATION_MOVED")
    name = connection.attempt
    if connection.state not in ("authorizing", "ready") or name is None:
        raise Refused("CONNECTION_STATE_CONFLICT" if connection.state == "authorizing" else "GRANT_NOT_INSTALLED")
    attempt = run.state.attempts[name]
    if code_of != name:
        return (yield from _wrong_code(run, name))
    if connection.state == "ready":
        return "ready"
    if attempt.outcome != "held":
        raise Refused("CONNECTION_STATE_CONFLICT")
    if not attempt.awaits:
        raise Refused("GRANT_NOT_INSTALLED")
    if run.provider.has_identity and attempt.account is None:
        raise Refused("CONNECTION_STATE_CONFLICT")  # whose it is, nobody has learned yet: not ready to be confirmed
    yield from _installed(run, name)
    return "ready"


def _wrong_code(run: Run, name: str) -> Step:
    attempt = run.state.attempts[name]
    if attempt.outcome != "held":
        raise Refused("CONNECTION_STATE_CONFLICT")
    if attempt.wrong + 1 >= WRONG_CODES:
        yield MAYBE
        run.release(name)
        yield None
        raise Refused("GRANT_NOT_INSTALLED")
    if attempt.hold_ends > run.now:
        run.state.attempt(name, wrong=attempt.wrong + 1)
        yield None
    raise Refused("CONFIRM_CODE_WRONG")


# --- tokens ----------------------------------------------------------------------------------------------------------


def token(run: Run, ref: Ref, min_ttl: int = 0) -> Step:
    """Row "token call"; the answer names the token, its version, generation and end."""
    run.alive(ref[:2])
    grant = run.state.grants.get(ref)
    if grant is None:
        match run.found(ref).state:
            case "needs_reconnect" | "failed":
                raise Refused("NEEDS_RECONNECT")
            case "reconciling_link":
                raise Refused("CONNECTION_RECONCILING")
            case _:
                raise Refused("CONNECTION_STATE_CONFLICT")
    left, hard = grant.expires - run.now, max(HARD, min_ttl)
    is_stale = grant.suspect or left <= hard
    if not is_stale and (left > max(SOFT, hard) or not _may_lease(grant, run.now)):
        return _handed(run, grant)
    if not _may_lease(grant, run.now):
        raise Refused("REFRESH_IN_PROGRESS")
    return (yield from _refreshed(run, ref, hard))


def _may_lease(grant: Grant, now: int) -> bool:
    return (grant.lease is None or grant.lease + GUARD <= now) and grant.attempts < 2


def _handed(run: Run, grant: Grant) -> tuple[Any, ...]:
    run.need_keys()
    access = f"at-{grant.token}" if run.provider.gives_refresh else grant.token
    return ("token", access, grant.version, grant.generation, grant.expires)


def _refreshed(run: Run, ref: Ref, hard: int) -> Step:
    """A refresh is an exchange of its own: recorded, sent once, its outcome named (D-1, rows 16 to 20)."""
    state, now, provider = run.state, run.now, run.provider
    run.need_keys()
    before = state.grants[ref]
    if not provider.gives_refresh:
        return (yield from _without_refresh(run, ref))
    until = now + LEASE
    mine = replace(before, lease=until, looked_at=until + GUARD, attempts=before.attempts + 1)
    state.grants[ref] = mine
    yield None
    sent = run.send("refresh", before.token)
    now = run.now
    good = not before.suspect and before.expires - now > hard
    match sent.outcome:
        case "granted":
            return (yield from _saved(run, ref, before, sent.token or ""))
        case "refused":
            others = 0 if provider.refreshing == "reuse" else before.attempts
            run.stop(ref, is_loss=True, disproved=mine.attempts - others)
            yield None
            raise Refused("NEEDS_RECONNECT")
        case "busy" | "not_sent":
            yield MAYBE
            state.grants[ref] = replace(mine, lease=None, attempts=before.attempts)
            yield None
            if good:
                return _handed(run, before)
            raise Refused("PROVIDER_BUSY")
        case "malformed" if sent.token != before.token:  # what can be seen of the answer is queued by itself (D-3)
            state.owed[sent.token or ""] = _beside(ref, before, sent.token or "", now)
            yield None
    if good:  # the outcome is unknown: the attempt stays on record
        return _handed(run, before)
    raise Refused("OUTCOME_UNKNOWN")


def _without_refresh(run: Run, ref: Ref) -> Step:
    """It serves as long as it lives; reported, the provider is asked, and only its word ends it."""
    grant = run.state.grants[ref]
    if grant.expires - run.now <= HARD:
        raise Refused("NEEDS_RECONNECT")
    if grant.suspect and run.provider.has_identity:
        match run.send("identity", grant.token).outcome:
            case "refused":
                run.stop(ref, is_loss=True)
                yield None
                raise Refused("NEEDS_RECONNECT")
            case "read":
                yield MAYBE
                run.state.grants[ref] = replace(grant, suspect=False)
                yield None
    return _handed(run, grant)


def _saved(run: Run, ref: Ref, before: Grant, fresh: str) -> Step:
    state, now, provider = run.state, run.now, run.provider
    survives = provider.refreshing == "grace" and provider.reach == "token"
    after = replace(
        before,
        version=before.version + 1,
        token=fresh,
        expires=now + ACCESS,
        lease=None,
        attempts=0,
        suspect=False,
        stray=before.stray or (survives and before.attempts > 0),
    )
    state.grants[ref] = after
    if survives and fresh != before.token:  # the old token lives on and nothing else ends it (custody rule 6)
        state.owed[before.token] = _beside(ref, before, before.token, now)
    yield None
    return ("token", f"at-{fresh}", after.version, after.generation, after.expires)


def _beside(ref: Ref, grant: Grant, token: str, now: int) -> Owed:
    """A token beside the live one of its grant, due now."""
    return Owed(
        ref, grant.generation, token, grant.family, grant.account, next=now, deadline=now + DEADLINE, listed=True
    )


def report(run: Run, ref: Ref, version: int) -> Step:
    """The app saw a 401 with this version: suspect, and nothing more."""
    run.alive(ref[:2])
    run.found(ref)
    grant = run.state.grants.get(ref)
    if grant is None or grant.version != version:
        return False
    if not grant.suspect:
        run.state.grants[ref] = replace(grant, suspect=True)
        yield None
    return True


# --- stops and the owner's word --------------------------------------------------------------------------------------


def disconnect(run: Run, ref: Ref, generation: int, key: str | None = None) -> Step:
    """Row "disconnect at its g": never refused but by a moved generation; no key, no provider."""
    run.alive(ref[:2])
    connection = run.found(ref)
    if (first := run.first_answer(("disconnect", ref, key), generation)) is not None:
        return first
    if connection.state in STOPPED and generation in (connection.generation, connection.generation - 1):
        return (connection.state, connection.generation)
    if connection.generation != generation:
        raise Refused("GENERATION_MOVED")
    run.stop(ref)
    answer = ("revoking", generation + 1)
    if key is not None:
        run.state.first_answers["disconnect", ref, key] = (generation, answer, run.now + DAY)
    yield None
    return answer


def delete_owner(run: Run, owner: OwnerName) -> Step:
    """For good; repeating it changes nothing."""
    if owner not in run.state.deleted:
        run.state.deleted[owner] = False
        yield None
    return "deleted"


def acknowledge(run: Run, ref: Ref) -> Step:
    """Every open notice of the connection; never what is pending or confirmed, never a window that is still open."""
    state = run.state
    run.found(ref)
    mine = [
        (name, owed)
        for name, owed in state.owed.items()
        if owed.ref == ref
        and (owed.shown or owed.listed or (name in state.attempts and state.attempts[name].outcome == "cleanup"))
    ]
    exchanges = [(name, attempt) for name, attempt in state.attempts.items() if attempt.ref == ref]
    was_done = any(owed.acknowledged for _, owed in mine) or any(each.acknowledged for _, each in exchanges)
    count = 0
    for name, owed in mine:
        if owed.state in NOTICES and not owed.acknowledged:
            state.debt(name, acknowledged=True, listed=False)
            yield None
            count += 1
    early = False
    for name, attempt in exchanges:
        if attempt.outcome != "unconfirmed" or attempt.acknowledged:
            continue
        if attempt.started + WINDOW + GUARD > run.now:
            early = True
            continue
        state.attempt(name, acknowledged=True)
        yield None
        count += 1
    for key, stop in list(state.stops.items()):
        if count and key[0] == ref and not stop.closed:
            state.stops[key] = replace(stop, next=run.now)
            yield None
    if count == 0 and early:
        raise Refused("ACKNOWLEDGE_TOO_EARLY")
    if count == 0 and not was_done:
        raise Refused("NOTHING_TO_ACKNOWLEDGE")
    return count


def retry(run: Run, token: str | None) -> Step:
    """An operator has the revocation of a token tried again: row "manual retry"."""
    name = next((name for name, owed in run.state.owed.items() if owed.token == token), None)
    if name is None:
        raise Refused("NOTICE_NOT_FOUND")
    owed = run.state.owed[name]
    if owed.state != "pending" or owed.deadline <= run.now:
        raise Refused("RETRY_NOT_POSSIBLE")
    if owed.lease is not None and owed.lease + GUARD > run.now:
        raise Refused("REVOCATION_IN_PROGRESS")
    run.state.debt(name, next=run.now, lease=None, held=False, unsettled=0)
    yield None
    return "due"


# --- the schedules ---------------------------------------------------------------------------------------------------

type Item = Callable[[Run], Step]
"""What a schedule does with one thing that is due."""


def sweep_items(state: State, now: int, only: frozenset[str] | None = None) -> list[tuple[str, Item]]:
    """The revocations that are due (*only*: those of the tokens that a kick names)."""
    return [
        (name, partial(_revoke, name=name))
        for name, owed in state.owed.items()
        if owed.state == "pending" and (only is None or owed.token in only) and min(owed.next, owed.deadline) <= now
    ]


def _revoke(run: Run, name: str) -> Step:
    """Rows 28 to 38."""
    state, now, provider = run.state, run.now, run.provider
    owed = state.owed[name]
    if owed.deadline + GUARD <= now:
        end = "unreadable" if owed.quarantined else "expired"
        state.debt(name, state=end, settled_at=now, lease=None, held=False, expected=0)
        yield None
        return
    if owed.deadline <= now or owed.next > now or (owed.lease is not None and owed.lease + GUARD > now):
        return
    if owed.expected and owed.expected_until + GUARD <= now:
        state.debt(name, expected=0, lost=True)
        yield None
    if provider.is_wide and owed.account is None:  # never blindly: whose it is must be known first (custody rule 12)
        account = run.send("identity", owed.token).account if owed.identity and not run.keys_out else None
        if account is None:
            later = min(now + ladder(owed.attempts + 1), owed.deadline)
            state.debt(name, attempts=owed.attempts + 1, next=later)
            yield None
            return
        state.debt(name, account=account, identity=False)
        yield None
    if state.is_used_in_reach(state.owed[name], provider):
        state.debt(name, state="parked", lease=None, held=False)
        run.receipt(owed.ref, owed.generation, "released")
        yield None
        return
    until = min(now + LEASE, owed.deadline)
    state.debt(name, lease=until, held=False, unsettled=owed.unsettled + 1)
    account = state.owed[name].account
    if provider.is_wide and account is not None:
        before, by, floor = state.killed.get(account, (0, "", 0))
        state.killed[account] = (max(until, before), name, floor if by == name else before)
    yield None
    yield from _asked(run, name)


def _asked(run: Run, name: str) -> Step:
    """A claimed revocation is sent and settled, or says why not."""
    state, now, provider = run.state, run.now, run.provider
    owed = state.owed[name]
    later = min(now + ladder(owed.attempts + 1), owed.deadline)
    if owed.unsettled > POISON:
        state.debt(name, quarantined=True, lease=None, next=later)
    elif run.keys_out:
        state.debt(name, lease=None, next=min(now + MINUTE, owed.deadline), unsettled=owed.unsettled - 1)
    elif not provider.revocable or not owed.sendable:
        state.debt(name, state="unsupported", lease=None, settled_at=now)
    else:
        outcome = run.send("revoke", owed.token).outcome
        counted = {"attempts": owed.attempts + 1, "unsettled": owed.unsettled - 1, "next": later}
        if outcome == "confirmed" and owed.lost:
            state.debt(name, state="unconfirmed", lease=None, settled_at=now)
        elif outcome == "confirmed" and not owed.expected:
            state.debt(name, state="confirmed", lease=None, settled_at=now)
        elif outcome == "unknown" and provider.reach == "account":
            state.debt(name, **counted)  # it may still act: the claim stays until its lease ends
        else:
            state.debt(name, lease=None, **counted)
    yield None


def reconcile_phases() -> Iterator[Callable[[State, int], list[tuple[str, Item]]]]:
    """What reconciliation looks at, in the order in which one thing makes the next possible."""
    yield _lapsed_exchanges
    yield _deleted_owners
    yield _settled
    yield _wakes
    yield _due_stops
    yield _waiting_connections
    yield _lapsed_refreshes


def _lapsed_exchanges(state: State, now: int) -> list[tuple[str, Item]]:
    def lapse(run: Run, name: str) -> Step:
        if run.state.attempts[name].outcome == "open":
            run.state.attempt(name, outcome="unconfirmed")
            run.fail(name)
        else:
            run.release(name)
        yield None

    return [
        (name, partial(lapse, name=name))
        for name, attempt in state.attempts.items()
        if (attempt.outcome == "open" and attempt.started + WINDOW + GUARD <= now)
        or (attempt.outcome == "held" and attempt.hold_ends + GUARD <= now)
    ]


def _lapsed_refreshes(state: State, now: int) -> list[tuple[str, Item]]:
    """Row 21: keep, send once more, or give up, by what is known of the provider."""

    def lapse(run: Run, ref: Ref) -> Step:
        grant, provider = run.state.grants[ref], run.provider
        if grant.lease is not None and grant.lease + GUARD > now:
            return
        if provider.refreshing in ("static", "grace"):
            stray = provider.refreshing == "grace" and provider.reach == "token"
            run.state.grants[ref] = replace(grant, attempts=0, lease=None, stray=grant.stray or stray)
            yield None
        elif ref[:2] in run.state.deleted:
            return
        elif grant.attempts < 2:
            try:
                yield from _refreshed(run, ref, HARD)
            except Refused:
                return
        else:
            run.stop(ref, is_loss=True)
            yield None

    return [
        ("/".join(ref), partial(lapse, ref=ref))
        for ref, grant in state.grants.items()
        if grant.attempts and grant.looked_at <= now
    ]


def _deleted_owners(state: State, now: int) -> list[tuple[str, Item]]:
    """Each connection is stopped on its own: one that cannot be keeps no other alive (I-16)."""

    def stop(run: Run, ref: Ref) -> Step:
        run.stop(ref, by_deletion=True)
        yield None

    def say_so(run: Run, owner: OwnerName) -> Step:
        if all(each.state in STOPPED for ref, each in run.state.connections.items() if ref[:2] == owner):
            run.state.deleted[owner] = True
            yield None

    owners = [owner for owner, is_stopped in state.deleted.items() if not is_stopped]
    stops = [
        ("/".join(ref), partial(stop, ref=ref))
        for ref, connection in state.connections.items()
        if ref[:2] in owners and connection.state not in STOPPED
    ]
    return [*stops, *(("/".join(owner), partial(say_so, owner=owner)) for owner in owners)]


def _settled(state: State, now: int) -> list[tuple[str, Item]]:
    def follow(run: Run, name: str) -> Step:
        run.finish(name)
        yield None
        ref = run.state.owed[name].ref
        for key in sorted(run.state.stops, key=lambda key: (key[0], str(key[1]))):
            stop = run.state.stops[key]
            if key[0] == ref and not stop.closed:
                yield from _carry_out(run, key)

    return [
        (name, partial(follow, name=name))
        for name, owed in state.owed.items()
        if owed.is_terminal and not owed.finished
    ]


def _wakes(state: State, now: int) -> list[tuple[str, Item]]:
    """The last live grant of an account has gone: what is parked beside it is due again (custody rule 11)."""
    live = {grant.account for grant in state.grants.values()}
    return [
        (name, partial(_wake, name=name))
        for name, owed in state.owed.items()
        if owed.state == "parked" and owed.account is not None and owed.account not in live
    ]


def _wake(run: Run, name: str) -> Step:
    run.state.debt(name, state="pending", next=run.now, deadline=run.now + DEADLINE, listed=True)
    yield None


def _due_stops(state: State, now: int) -> list[tuple[str, Item]]:
    return [
        (f"{'/'.join(key[0])}#{key[1]}", partial(_carry_out, key=key))
        for key, stop in state.stops.items()
        if not stop.closed and stop.next <= now
    ]


def _carry_out(run: Run, key: tuple[Ref, int]) -> Step:
    """Purge, wake what its own end wakes, close; what cannot close yet is looked at again on the ladder."""
    state, ref = run.state, key[0]
    if not state.stops[key].purged:
        state.stops[key] = replace(state.stops[key], purged=True)
        yield None
    for name, owed in list(state.owed.items()):
        if (
            run.provider.reach == "family"
            and owed.ref == ref
            and owed.state == "parked"
            and not state.is_used_in_reach(owed, run.provider)
        ):
            yield from _wake(run, name)
    stop = state.stops[key]
    closed_as = _closed_as(run, key, stop)
    if closed_as is None:
        state.stops[key] = replace(stop, next=run.now + ladder(stop.tries + 1), tries=stop.tries + 1)
        yield None
        return
    state.stops[key] = replace(stop, closed=True)
    connection = state.connections[ref]
    if connection.state in ("revoking", "reconciling_revoke") and connection.generation == key[1] + 1:
        state.connection(ref, state="revoked", closed_as=closed_as)
    yield None


def _closed_as(run: Run, key: tuple[Ref, int], stop: Stop) -> str | None:
    """How the stop may close: when nothing of the connection is under way or unsettled; the weakest outcome tells."""
    state, (ref, generation) = run.state, key
    late = {
        name
        for name, attempt in state.attempts.items()
        if (attempt.ref, attempt.generation, attempt.outcome) == (ref, generation, "cleanup")
    }  # came while the stop was on its way, or after it: they count for what it says of itself (custody rule 5)
    is_deleted = ref[:2] in state.deleted
    order = ("not_needed", "confirmed", "released", "attested", "unattested")
    weakest = 0
    for attempt in state.attempts.values():
        if attempt.ref != ref:
            continue
        if attempt.outcome in ("open", "held"):
            return None
        if attempt.outcome == "unconfirmed" and not attempt.acknowledged:
            if not is_deleted or attempt.started + WINDOW + DAY > run.now:
                return None
            weakest = order.index("unattested")
        elif attempt.outcome == "unconfirmed" and attempt.generation == generation:
            weakest = max(weakest, order.index("attested"))  # of this there is only the owner's word
    for name, owed in state.owed.items():
        if owed.ref != ref or not (owed.listed or name in stop.owed or name in late):
            continue
        if owed.state == "parked":
            if not state.is_used_in_reach(owed, run.provider):
                return None  # it is about to wake
            weakest = max(weakest, order.index("released"))
        elif is_deleted and owed.finished and not owed.is_over and (owed.deadline or owed.settled_at) + DAY <= run.now:
            weakest = order.index("unattested")  # nobody is left to give a word
        elif not owed.finished or not owed.is_over:
            return None
        else:
            weakest = max(weakest, order.index("confirmed" if owed.state == "confirmed" else "attested"))
    return order[weakest]


def _waiting_connections(state: State, now: int) -> list[tuple[str, Item]]:
    def move(run: Run, ref: Ref) -> Step:
        connection = run.state.connections[ref]
        if connection.state == "authorizing":
            run.state.connection(ref, state="failed", phase=None, attempt=None)
        else:
            run.state.connection(ref, state="reconciling_revoke")
        yield None

    return [
        ("/".join(ref), partial(move, ref=ref))
        for ref, connection in state.connections.items()
        if (connection.state == "authorizing" and connection.phase == "link" and connection.lapses + GUARD <= now)
        or (connection.state == "revoking" and connection.effect <= now)
    ]


# --- at rest ---------------------------------------------------------------------------------------------------------


def unrest_of(state: State) -> list[str]:
    """What may not be so any more once nothing is due but what waits for a person (I-15)."""
    found = [
        f"{name} is {attempt.outcome}"
        for name, attempt in state.attempts.items()
        if attempt.outcome in ("open", "held")
    ]
    found += [f"{owed.token} is pending" for owed in state.owed.values() if owed.state == "pending"]
    found += [f"{owed.token} is not finished" for owed in state.owed.values() if owed.is_terminal and not owed.finished]
    found += [f"{'/'.join(ref)} has an open refresh" for ref, grant in state.grants.items() if grant.attempts]
    for ref, connection in state.connections.items():
        asks_its_owner = any(level == "permission_removal_required" for level in [(_notice(state, ref) or ("",))[0]])
        if connection.state == "authorizing" or (connection.state in STOPPED - {"revoked"} and not asks_its_owner):
            found.append(f"{'/'.join(ref)} is {connection.state}")
    return found


def may_live(state: State, family_of: Mapping[str, str]) -> Callable[[str], bool]:
    """
    Which tokens may be alive at the provider at rest: a live grant's, what is parked beside one, and what a notice
    speaks of. *family_of*: the consent from which a token came, by the provider's ledger.
    """
    families = {family_of.get(grant.token) for grant in state.grants.values()}
    families |= {
        family_of.get(owed.token) for owed in state.owed.values() if owed.state == "parked" or owed.state in NOTICES
    }
    unconfirmed = {name for name, attempt in state.attempts.items() if attempt.outcome == "unconfirmed"}
    return lambda token: family_of.get(token) in families or family_of.get(token) in unconfirmed
