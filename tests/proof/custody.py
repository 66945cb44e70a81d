"""
The machine of T-3: everything that can be asked of the product, by anybody and in any order, beside the reference
model.

Each step runs the real flows on the table double and the provider's ledger, tells the model what was asked and what the
provider did, and holds the answer and all that is shown afterwards to it. A worker may die at any call of a step, the
table may fail at any call, keys may be away, and the provider may answer each request in each of its ways.

The words of a failing run are its steps: `python -m pytest tests/proof/test_stateful.py` prints them, once as a story
and once as calls that a regression test can hold.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quitclaim.domain.attention import Subject
from quitclaim.domain.errors import KeyUnavailableError, QuitclaimError, StoreError
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.outcomes import IdentityAnswer, IdentityOutcome, Outcome, RevokeAnswer, RevokeOutcome, TokenAnswer
from quitclaim.domain.revocations import NO_VARIABLES, Material, Reach
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.connect.browser import Callback
from quitclaim.flows.connect.callback import CallbackFailedError, complete_callback
from quitclaim.flows.connect.confirm import confirm
from quitclaim.flows.connect.link import open_link
from quitclaim.flows.connect.start import StartRequest, start
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.operator import Asked, Operating, retry
from quitclaim.flows.reconcile import reconcile
from quitclaim.flows.revocations import acknowledge, revoke, sweep
from quitclaim.flows.status import status, view
from quitclaim.flows.stop import disconnect
from quitclaim.flows.tokens import hand_out, report
from quitclaim.ports import Key
from quitclaim.runtime import views
from quitclaim.store.operator import OperatorStore
from tests.fakes.breakers import Unbroken
from tests.proof import reference
from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.possible import Reference
from tests.proof.recovery import to_rest
from tests.proof.reference import MINUTE, SECOND, OwnerName, Provider, Ref, Run, Sent
from tests.proof.stepping import Process
from tests.proof.table import TableFault
from tests.proof.world import CLIENT, REMAINING_MS, T0, Ports, SimulatedClient, SweepDeadline, World

BASE: Final = "https://quitclaim.example"
SCOPES: Final = frozenset({"read", "write"})
REQUIRED: Final = frozenset({"read"})
GRANTED: Final = (None, None, frozenset({"read"}), frozenset({"write"}))
ACCOUNTS: Final = ("alice", "alice", "bob")
SHARING: Final = (("alice", "alice", "alice"), ("alice", "bob", "alice"), ("alice", "alice", "bob"))
REFS: Final[tuple[Ref, ...]] = (("t", "o", "c"), ("t", "o", "d"), ("t", "p", "c"), ("u", "o", "c"))
HOUR: Final = 60 * MINUTE
ROUNDS: Final = 24
"""Of both schedules, within which everything is at rest."""


# --- a setting -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Which provider, whose word is needed, which connections."""

    kind: Kind
    confirmation: Literal["owner", "none"] = "owner"
    refs: tuple[Ref, ...] = REFS[:3]

    @property
    def provider(self) -> Provider:
        """As the model knows it."""
        return Provider(
            self.kind.refreshing.value,
            self.kind.reach.value,
            self.kind.revocable,
            self.kind.has_identity,
            self.kind.gives_refresh,
            self.confirmation == "owner",
            SCOPES,
            REQUIRED,
        )


REACHES: Final = (Reach.TOKEN, Reach.FAMILY, Reach.AUTHORIZATION, Reach.ACCOUNT)
LAYOUTS: Final = (REFS[:3], (REFS[0], REFS[2], REFS[3]), (REFS[0], REFS[1], REFS[3]), (REFS[0], REFS[3]))
KINDS: Final = (
    *[Kind(refreshing, reach) for refreshing in Refreshing for reach in REACHES],
    *[Kind(refreshing, reach, has_identity=False) for refreshing in Refreshing for reach in REACHES[:2]],
    *[Kind(Refreshing.ROTATING, reach, revocable=False) for reach in REACHES],
    *[Kind(Refreshing.STATIC, reach, gives_refresh=False) for reach in REACHES],
)
SETTINGS: Final = tuple(
    Setting(kind, confirmation, refs) for kind in KINDS for confirmation in ("owner", "none") for refs in LAYOUTS
)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crash:
    """The worker dies before one of its calls of a port, or after it took effect. *call* counts round and round."""

    call: int
    after: bool = False


@dataclass(frozen=True)
class Faulty:
    """One of the table's calls of the step goes wrong. *call* counts round and round."""

    call: int
    fault: TableFault


type Mishap = Crash | Faulty | None

CALLS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 17, 19, 23, 29)
MISHAPS: Final[tuple[Mishap, ...]] = (
    *[None] * (10 * len(CALLS)),
    *[Crash(call, after) for call in CALLS for after in (False, True)],
    *[Faulty(call, fault) for call in CALLS for fault in (TableFault.LOST, TableFault.APPLIED)],
    *[Faulty(call, fault) for call in CALLS[::2] for fault in (TableFault.THROTTLED, TableFault.PARTLY_APPLIED)],
    *[Faulty(call, TableFault.PARTLY_BUSY) for call in CALLS[1::2]],
)
"""What can go wrong in a step: mostly nothing."""

SPANS: Final = (
    *(1, 999, SECOND, 5 * SECOND, 5_001, 30 * SECOND, 35 * SECOND, MINUTE, 65 * SECOND),
    *(10 * MINUTE, 605 * SECOND, 15 * MINUTE, 55 * MINUTE, HOUR, HOUR, 6 * HOUR, 25 * HOUR),
)
"""Of time, in which nothing else happens."""

ANY: Final = st.sampled_from(MISHAPS)
SLOW: Final = st.sampled_from((0,) * 14 + (20 * SECOND, 35 * SECOND, MINUTE, 65 * SECOND, 605 * SECOND))
"""How long an answer is on its way: a worker can be frozen when it comes."""
WHO: Final = st.integers(0, 2)


# --- the provider, watched -------------------------------------------------------------------------------------------


OUTCOMES: Final = {
    Outcome.GRANTED: "granted",
    Outcome.REJECTED: "refused",
    Outcome.TRY_LATER: "busy",
    Outcome.NOT_SENT: "not_sent",
    Outcome.UNKNOWN: "unknown",
}


class Watch:
    """What leaves for the provider in a step, and how it answers."""

    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.scopes: frozenset[str] | None = None
        """What the provider grants, where it is less than was asked for."""

    def client(self, ports: Ports) -> Any:
        """`World.client_of`."""
        return _WatchedClient(ports, self)


class _WatchedClient(SimulatedClient):
    def __init__(self, ports: Ports, watch: Watch) -> None:
        super().__init__(ports)
        self._watch = watch
        self._about = ""

    @property
    def scopes(self) -> frozenset[str]:
        return SCOPES

    @property
    def required_scopes(self) -> frozenset[str] | None:
        return REQUIRED

    def exchange(
        self,
        *,
        code: Secret,
        verifier: Secret | None,
        redirect_uri: str,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> TokenAnswer:
        self._about = code.reveal()
        return super().exchange(
            code=code, verifier=verifier, redirect_uri=redirect_uri, timeout_ms=timeout_ms, variables=variables
        )

    def refresh(
        self,
        *,
        refresh_token: Secret,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
        is_import: bool = False,
    ) -> TokenAnswer:
        self._about = refresh_token.reveal()
        return super().refresh(refresh_token=refresh_token, timeout_ms=timeout_ms)

    def identity(
        self, *, access_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> IdentityAnswer:
        self._about = access_token.reveal().removeprefix("at-")
        return super().identity(access_token=access_token, timeout_ms=timeout_ms)

    async def revoke(self, *, material: Material, timeout_ms: int) -> RevokeAnswer:
        self._about = material.token.reveal()
        return await super().revoke(material=material, timeout_ms=timeout_ms)

    def _tokens(self, endpoint: str, act: Callable[[], Any]) -> TokenAnswer:
        answer = super()._tokens(endpoint, act)
        ledger = self._world.ledger
        if answer.outcome is Outcome.REJECTED and endpoint == "refresh" and not ledger.tokens[self._about].alive:
            ledger.refresh(self._about, self._world.now)  # whyever it refuses, a spent token that it sees is a reuse
        if answer.grant is None or endpoint != "exchange":
            return answer
        return replace(answer, grant=replace(answer.grant, scopes=self._watch.scopes))

    def _do[T](self, what: str, act: Callable[[], T], *, changes: bool = True) -> T:
        about, log, world = self._about, self._watch.log, self._world
        sent_at = world.now

        def noted() -> T:
            answer = act()
            dead = world.ledger.tokens[about].why_dead if what == "identity" else ""
            if isinstance(answer, IdentityAnswer) and answer.account_id is not None and dead not in ("", "rotated"):
                answer = IdentityAnswer(IdentityOutcome.REFUSED)  # type: ignore[assignment]
            log.append(replace(_sent(what, about, answer), answered=False))
            return answer

        answer = super()._do(what, noted, changes=changes)
        log[-1] = replace(log[-1], answered=True, took=world.now - sent_at)
        return answer


def _sent(what: str, about: str, answer: Any) -> Sent:
    match answer:
        case TokenAnswer(grant=grant) if grant is not None:
            token = grant.refresh_token or grant.access_token
            return Sent(what, about, "granted", token.reveal(), scopes=grant.scopes)
        case TokenAnswer(salvaged=(loose, *_)):
            return Sent(what, about, "malformed", loose.token.reveal())
        case TokenAnswer():
            return Sent(what, about, OUTCOMES[answer.outcome])
        case IdentityAnswer():
            return Sent(what, about, answer.outcome.value, account=answer.account_id)
        case RevokeAnswer(outcome=RevokeOutcome.CONFIRMED):
            return Sent(what, about, "confirmed")
        case RevokeAnswer(outcome=RevokeOutcome.UNKNOWN):
            return Sent(what, about, "unknown")
        case _:
            return Sent(what, about, "deferred")


def known[F: Callable[..., Any]](method: F) -> F:
    """A rule for what exists: once something was started."""
    return precondition(lambda machine: machine.is_set_up and bool(machine.tickets))(method)


# --- the machine -----------------------------------------------------------------------------------------------------


class TimeLeft:
    """`ports.Deadline` of a function of 24 s that spends none but what it waits."""

    def __init__(self, ports: Ports) -> None:
        self._clock = ports.clock

    def remaining_ms(self) -> int:
        """See `ports.Deadline.remaining_ms`."""
        return REMAINING_MS - self._clock.paused


def with_time(flow: Callable[[Ports], Any]) -> Callable[[Ports], Any]:
    """The flow, in a function that has its time."""

    def run(ports: Ports) -> Any:
        ports.deadline = TimeLeft(ports)
        return flow(ports)

    return run


class CustodyError(AssertionError):
    """Product and rules differ."""


class Custody(RuleBasedStateMachine):
    """The product, its provider, its callers and its schedules."""

    steps: ClassVar[int] = 0
    """Of all machines of this process."""
    asked: ClassVar[int] = 0
    """Requests and runs in them, each held to the model and judged."""

    def __init__(self) -> None:
        super().__init__()
        self.story: list[str] = []
        self.is_set_up = False

    @initialize(
        setting=st.sampled_from(SETTINGS), connected=st.sampled_from((3, 3, 2, 1, 0)), accounts=st.sampled_from(SHARING)
    )
    def set_up(self, setting: Setting, connected: int, accounts: tuple[str, str, str]) -> None:
        """A provider, its client, and owners of whom some have a connection already."""
        self.setting = setting
        self.watch = Watch()
        self.world = World(setting.kind, setting.confirmation)
        self.world.client_of = self.watch.client
        self.world.on_fault = self._failed_item
        self.reference = Reference(setting.provider)
        self.observer = Ports(self.world, Process("observer", lambda _: None))
        self.callbacks: list[tuple[Ref, Callback]] = []
        self.codes: dict[Ref, list[tuple[str, Secret]]] = {}
        self.tickets: list[str] = []
        self.was_hit = False
        self.hurt = ""
        self.serial = 0
        self.keys_back_at = 0
        self.last_at = T0
        self.is_set_up = True
        for who, account in enumerate(accounts[: min(connected, len(setting.refs))]):
            self.connect(who, account)

    # --- what the app and its users do ---

    @rule(who=WHO, again=st.booleans(), key=st.sampled_from((None, None, "k", "l")), back=st.booleans(), mishap=ANY)
    def start(self, who: int, again: bool, key: str | None, back: bool, mishap: Mishap) -> None:
        """POST connections, or reconnect."""
        ref, return_to = self._ref(who), f"{BASE}/done" if back else None

        def flow(ports: Ports) -> Any:
            if again:
                view(_connection(ref), reads=ports.reads, clock=ports.clock)
            request = StartRequest(_connection(ref), CLIENT, return_to, again=again, idempotency_key=key)
            started = start(request, ports.connecting)
            if started.ticket is None:
                return ("exists", started.connection.state.value)
            return ("link", started.connection.generation, started.ticket.reveal(), started.expires_at)

        request = partial(reference.start, ref=ref, again=again, key=key, return_to=return_to)
        answer = self._ask(f"{_name(ref)} {'reconnect' if again else 'start'} {key or ''}", flow, request, ref, mishap)
        if answer[0] == "answer" and answer[1][0] == "link" and answer[1][2] not in self.tickets:
            self.tickets.append(answer[1][2])

    @precondition(lambda self: self.is_set_up and self.tickets)
    @rule(which=st.integers(0, 3), account=st.sampled_from(ACCOUNTS), mishap=ANY)
    def visit(self, which: int, account: str, mishap: Mishap) -> None:
        """A browser opens a connect link, and its user consents at the provider with an account."""
        ticket = self.tickets[-1 - which % len(self.tickets)]
        ref: Ref = tuple(ticket.split("/")[1:4])  # type: ignore[assignment]
        code = "/".join((*ref, str(len(self.world.ledger.codes))))
        made: list[Callback] = []

        def flow(ports: Ports) -> str:
            visit = open_link(Secret(ticket), BASE, ports.connecting)
            state = Secret(visit.url.split("state=")[1])
            made.append(Callback(CLIENT, state, Secret(code), None, (), {visit.cookie: visit.binding.reveal()}))
            return "opened"

        request = partial(reference.open_link, ticket=ticket, authorization=code)
        if self._ask(f"{_name(ref)} visit as {account}", flow, request, ref, mishap) == ("answer", "opened"):
            self.world.ledger.consent(code, account)
            self.callbacks.append((ref, made[0]))

    @precondition(lambda self: self.is_set_up and self.callbacks)
    @rule(
        which=st.integers(0, 4),
        how=st.sampled_from(("genuine",) * 7 + ("denied", "passing error", "no code", "other browser", "no state")),
        slow=SLOW,
        mishap=ANY,
    )
    def callback(self, which: int, how: str, slow: int, mishap: Mishap) -> None:
        """A callback arrives: new, again, or of an older generation."""
        ref, brought = self.callbacks[-1 - which % len(self.callbacks)]
        name = brought.code.reveal() if brought.code else ""
        match how:
            case "denied":
                sent = replace(brought, code=None, error="access_denied")
            case "passing error":
                sent = replace(brought, code=None, error="server_error")
            case "no code":
                sent = replace(brought, code=None)
            case "other browser":
                sent = replace(brought, cookies={})
            case "no state":
                sent = replace(brought, state=None)
            case _:
                sent = brought

        def flow(ports: Ports) -> Any:
            try:
                outcome = complete_callback(sent, BASE, ports.deadline, ports.connecting)
            except CallbackFailedError as failure:
                raise failure.cause from None
            if outcome.confirm_code is not None:
                self.codes.setdefault(ref, []).append((name, outcome.confirm_code))
            return outcome.status

        request = partial(
            reference.callback,
            name=None if how == "no state" else name,
            has_code=sent.code is not None,
            error=sent.error,
            bound=how != "other browser",
        )
        slow_at = "identity" if how == "genuine" and slow == MINUTE else "exchange"
        self._ask(f"{_name(ref)} callback {name.split('/')[-1]} {how}", flow, request, ref, mishap, {slow_at: slow})

    @known
    @rule(who=WHO, code=st.sampled_from(("newest",) * 5 + ("older", "made up")), late=st.booleans(), mishap=ANY)
    def confirm(self, who: int, code: str, late: bool, mishap: Mishap) -> None:
        """The owner brings a code, at the generation that is current (*late*: at the one before)."""
        ref = self._ref(who)
        known = self.codes.get(ref, [])
        known = {"newest": known[-1:], "older": known[:1], "made up": []}[code]
        code_of, secret = known[0] if known else ("", Secret("no"))
        generation = self._generation(ref) - (late and code == "older")

        def flow(ports: Ports) -> str:
            return confirm(_connection(ref), generation, secret, ports.connecting).state.value

        request = partial(reference.confirm, ref=ref, generation=generation, code_of=code_of)
        self._ask(f"{_name(ref)} confirm at {generation} with {code} code", flow, request, ref, mishap)

    @known
    @rule(who=WHO, min_ttl=st.sampled_from((0, 0, 0, 10 * MINUTE, 59 * MINUTE)), slow=SLOW, mishap=ANY)
    def token(self, who: int, min_ttl: int, slow: int, mishap: Mishap) -> None:
        """POST access-token."""
        ref = self._ref(who)

        def flow(ports: Ports) -> Any:
            given = hand_out(_connection(ref), MAIN, min_ttl, ports.deadline, ports.handing_out)
            secret = given.access_token.reveal()
            return ("token", secret, given.token_version, given.generation, given.expires_at)

        request = partial(reference.token, ref=ref, min_ttl=min_ttl)
        self._ask(f"{_name(ref)} token {min_ttl or ''}", flow, request, ref, mishap, {"refresh": slow})

    @known
    @rule(who=WHO, behind=st.sampled_from((0, 0, 0, 1)), mishap=ANY)
    def report(self, who: int, behind: int, mishap: Mishap) -> None:
        """The app saw a 401 with a version of the token."""
        ref = self._ref(who)
        grant = self.reference.state.grants.get(ref)
        version = (grant.version if grant else 1) - behind

        def flow(ports: Ports) -> bool:
            return report(_connection(ref), MAIN, version, reads=ports.reads, store=ports.tokens, breaker=Unbroken())

        request = partial(reference.report, ref=ref, version=version)
        self._ask(f"{_name(ref)} report version {version}", flow, request, ref, mishap)

    @known
    @rule(who=WHO, behind=st.sampled_from((0, 0, 0, 1, 2)), key=st.sampled_from((None, None, "k")), mishap=ANY)
    def disconnect(self, who: int, behind: int, key: str | None, mishap: Mishap) -> None:
        """DELETE connection, at the current generation or an older one."""
        ref = self._ref(who)
        generation = self._generation(ref) - behind

        def flow(ports: Ports) -> Any:
            stopped = disconnect(_connection(ref), generation, ports.stopping, key)
            return (stopped.state.value, stopped.generation)

        request = partial(reference.disconnect, ref=ref, generation=generation, key=key)
        self._ask(f"{_name(ref)} disconnect at {generation} {key or ''}", flow, request, ref, mishap)

    @known
    @rule(who=WHO, sure=st.sampled_from((False,) * 7 + (True,)), mishap=ANY)
    def delete_owner(self, who: int, sure: bool, mishap: Mishap) -> None:
        """DELETE owner; one time in eight, since nothing comes after it."""
        ref = self._ref(who)
        if not sure:
            return

        def flow(ports: Ports) -> str:
            delete_owner(OwnerRef(*ref[:2]), ports.stopping)
            return "deleted"

        self._ask(f"{ref[0]}/{ref[1]} deleted", flow, partial(reference.delete_owner, owner=ref[:2]), ref, mishap)

    @known
    @rule(who=WHO, mishap=ANY)
    def acknowledge(self, who: int, mishap: Mishap) -> None:
        """The owner says that the access is gone."""
        ref = self._ref(who)

        def flow(ports: Ports) -> int:
            return acknowledge(_connection(ref), reads=ports.reads, store=ports.revocations, clock=ports.clock)

        self._ask(f"{_name(ref)} acknowledge", flow, partial(reference.acknowledge, ref=ref), ref, mishap)

    @precondition(lambda self: self.is_set_up and self.world.seen.sealed_in)
    @rule(which=st.integers(0, 5), mishap=ANY)
    def retry(self, which: int, mishap: Mishap) -> None:
        """An operator has a revocation tried again."""
        sealed = sorted(self.world.seen.sealed_in)
        rid = sealed[-1 - which % len(sealed)]
        stored = self._tokens_of([rid])
        token = next(iter(stored), None)
        ref = self._ref(0) if token is None else self._code_of(token)

        def flow(ports: Ports) -> str:
            store = OperatorStore(ports.table, ports.clock, ports.ids)
            operating = Operating(
                ports.reads, store, ports.revocations, ports.clock, ports.ids, ports, ports.deliveries
            )
            retry(Subject(rid=rid), Asked("operator", "test"), operating)
            return "due"

        self._ask(f"operator retries {token}", flow, partial(reference.retry, token=token), ref, mishap)

    @rule(who=WHO, account=st.sampled_from(ACCOUNTS))
    def connect(self, who: int, account: str) -> None:
        """All of it in one go: start, link, consent, callback, confirmation."""
        before = len(self.callbacks)
        self.start(who, True, None, False, None)
        if self.world_answer[0] != "answer":
            self.start(who, False, None, False, None)
        if self.world_answer[0] == "answer" and self.world_answer[1][0] == "link":
            self.visit(0, account, None)
            if len(self.callbacks) > before:
                self.callback(0, "genuine", 0, None)
                if self.world_answer == ("answer", "awaiting_confirmation"):
                    self.confirm(who, "newest", False, None)

    # --- schedules, time, and the world around ---

    @rule(mishap=ANY)
    def sweep(self, mishap: Mishap) -> None:
        """The sweep's schedule."""
        self._run(
            "sweep", lambda ports: sweep([CLIENT], SweepDeadline(), ports.revoking), (reference.sweep_items,), mishap
        )

    @rule(mishap=ANY)
    def reconcile(self, mishap: Mishap) -> None:
        """Reconciliation's schedule."""
        phases = tuple(reference.reconcile_phases())
        self._run("reconcile", lambda ports: reconcile(SweepDeadline(), ports.reconciling), phases, mishap)

    @precondition(lambda self: self.is_set_up and self.world.kicked)
    @rule(mishap=ANY)
    def kick(self, mishap: Mishap) -> None:
        """The kick of what was committed last arrives; else it is lost."""
        rids = list(self.world.kicked)
        tokens = self._tokens_of(rids)
        phase = partial(reference.sweep_items, only=tokens)
        self._run("kick", lambda ports: revoke(rids, SweepDeadline(), ports.revoking), (phase,), mishap)

    @rule(minutes=st.sampled_from((1, 2, 3)))
    def minutes_pass(self, minutes: int) -> None:
        """Minutes in which both schedules run undisturbed."""
        for _ in range(minutes):
            self._pass(MINUTE)
            self.sweep(None)
            self.reconcile(None)

    @rule(ms=st.sampled_from(SPANS))
    def time_passes(self, ms: int) -> None:
        """Nothing else happens."""
        self._pass(ms)

    @rule(which=st.integers(0, 3), off=st.sampled_from((-1, 0, 1, 4_999, 5_000, 5_001)))
    def time_passes_to_what_is_due(self, which: int, off: int) -> None:
        """Exactly up to the next thing that is due, and a millisecond beside it; the same a guard later."""
        dues = sorted({at for at in self._dues() if at + off > self.world.now})
        if dues:
            self._pass(dues[which % len(dues)] + off - self.world.now)

    @rule(
        endpoint=st.sampled_from(("exchange", "refresh", "refresh", "revoke", "revoke", "identity")),
        faults=st.lists(st.sampled_from(Fault), min_size=1, max_size=3),
    )
    def provider_turns(self, endpoint: str, faults: list[Fault]) -> None:
        """How the provider takes the next requests at an endpoint."""
        self.world.faults[endpoint] = list(faults)
        self.story.append(f"     the provider's next at {endpoint}: {', '.join(faults)}")

    @rule(granted=st.sampled_from(GRANTED))
    def user_unticks(self, granted: frozenset[str] | None) -> None:
        """Users grant less than was asked for from now on, or less than is needed, or all of it."""
        self.watch.scopes = granted
        self.story.append(f"     granted from now on: {'all' if granted is None else ' '.join(granted)}")

    @rule(account=st.sampled_from(ACCOUNTS))
    def user_revokes(self, account: str) -> None:
        """A user takes the access away at the provider."""
        ledger = self.world.ledger
        for token in ledger.alive():
            if token.account == account:
                ledger.tokens[token.name] = replace(token, alive=False, why_dead="revoked by its user")
        self.story.append(f"     {account} takes the access away at the provider")

    @rule(ms=st.sampled_from((SECOND, MINUTE, HOUR)))
    def keys_fail(self, ms: int) -> None:
        """The keys are away for a while."""
        self.world.keys_out = True
        self.keys_back_at = self.world.now + ms
        self.story.append(f"     the keys are away for {ms / 1000:g} s")

    @invariant()
    def is_as_the_rules_say(self) -> None:
        """Every request of the step was held to the model, and the state after it judged (`_hold`); here it counts."""
        type(self).steps += self.is_set_up

    # --- the end ---

    def teardown(self) -> None:
        """Nobody asks for anything any more: all comes to rest, as the model says and as the ledger shows."""
        if not self.is_set_up or self.has_failed:
            return
        world = self.world
        world.faults.clear()
        world.keys_out = False
        self.story.append("     nobody asks for anything any more")
        for turn in range(ROUNDS):
            digest = world.table.digest()
            self.sweep(None)
            self.reconcile(None)
            if turn == ROUNDS // 2:  # what nobody can say the account of is never sent: it ends at its deadline
                self._pass(25 * HOUR)
            elif digest == world.table.digest():
                later = reference.GUARD + 1 - world.now
                following = sorted(at + later for at in self._dues(with_deadlines=True) if at + later > 0)
                if not following or self._is_patient():
                    break
                self._pass(following[0])
            else:
                self._pass(6 * SECOND)
        wrong = self._unrest() + to_rest(world) + faults_at_rest(world)
        if wrong:
            self._fail(wrong)

    def _unrest(self) -> list[str]:
        if self.reference.has_forgotten:
            return []
        state = min(self.reference.worlds, key=lambda world: len(reference.unrest_of(world)))
        ledger = self.world.ledger
        code_of = {family: code for code, family in ledger.spent_codes.items()}
        may_live = reference.may_live(state, {name: code_of[each.family] for name, each in ledger.tokens.items()})
        strays = [token.name for token in ledger.alive() if not may_live(token.name)]
        return [f"reference: at rest {each}" for each in reference.unrest_of(state)] + [
            f"reference: at rest {name} is alive" for name in strays
        ]

    def _is_patient(self) -> bool:
        """Whether whatever is still due waits for a person, or for the time when it may be forgotten."""
        kinds = {item["d1"].split("#")[0] for item in self.world.table.items() if "d1" in item}
        is_open = all(reference.unrest_of(world) for world in self.reference.worlds)
        return not is_open and not kinds - {"publish", "compact", "keepalive", "stop", "connection"}

    # --- how a step is made ---

    has_failed = False
    world_answer: Any = ("none", None)

    def _ref(self, who: int) -> Ref:
        return self.setting.refs[who % len(self.setting.refs)]

    def _generation(self, ref: Ref) -> int:
        connection = self.reference.state.connections.get(ref)
        return connection.generation if connection else 1

    def _pass(self, ms: int) -> None:
        self.world.now += ms
        self.world.keys_out = self.world.keys_out and self.world.now < self.keys_back_at
        self.story.append(f"     {ms / 1000:g} s pass")

    def _dues(self, *, with_deadlines: bool = False) -> list[int]:
        found = []
        for item in self.world.table.items():
            if "d1" in item and not item["d1"].startswith(("publish", "compact")):
                found.append(int(item["d2"].split("#")[0]))
            if with_deadlines and item["ty"] == "revocation" and item["state"] == "pending":
                found.append(item["deadline"] + reference.GUARD)
        return found

    def _code_of(self, token: str) -> Ref:
        """The connection to whose consent a token goes back."""
        ledger = self.world.ledger
        code = next(code for code, family in ledger.spent_codes.items() if family == ledger.tokens[token].family)
        tenant, owner, name, _ = code.split("/")
        return tenant, owner, name

    def _tokens_of(self, rids: Sequence[str]) -> frozenset[str]:
        """What the revocations of these ids are of; nothing, if they are not there."""
        found = [self.world.table.item(Key(f"Q#{rid}", "Q")) for rid in rids]
        return frozenset(name.removeprefix("fp-") for item in found if item is not None for name in item["fp"])

    def _ask(
        self,
        words: str,
        flow: Callable[[Ports], Any],
        request: Callable[[Run], reference.Step],
        ref: Ref,
        mishap: Mishap,
        slow: Mapping[str, int] | None = None,
    ) -> Any:
        self.world.slow.update(slow or {})
        answer, is_cut = self._perform(words, flow, mishap)
        self.world.slow.clear()
        self._hold(
            self.reference.asked(
                request,
                now=self.last_at,
                then=self.world.now,
                answer=answer if answer[0] != "died" else None,
                log=self.watch.log,
                seen=self._seen({ref[:2]}),
                is_cut=is_cut,
                keys_out=self.world.keys_out,
            )
        )
        self.world_answer = answer
        return answer

    def _run(self, words: str, flow: Callable[[Ports], Any], phases: Any, mishap: Mishap) -> None:
        _, is_cut = self._perform(words, flow, mishap, tells=False)
        self._hold(
            self.reference.ran(
                phases,
                now=self.last_at,
                then=self.world.now,
                log=self.watch.log,
                seen=self._seen({ref[:2] for ref in self.setting.refs}),
                is_cut=is_cut,
                keys_out=self.world.keys_out,
            )
        )

    def _perform(
        self, words: str, flow: Callable[[Ports], Any], mishap: Mishap, *, tells: bool = True
    ) -> tuple[Any, bool]:
        """Run the step, with its mishap; its answer, and whether the mishap happened."""
        world = self.world
        world.now = self.last_at = max(world.now, self.last_at + 1)  # no two things happen at one instant
        type(self).asked += 1
        world.kicked.clear()
        self.was_hit = False
        flow = with_time(flow)
        process = self._hurt(flow, mishap) if mishap is not None else self._process(flow)
        while not process.is_done:
            process.advance()
        world.table.watch()
        answer = _answer_of(process, died=self.was_hit and isinstance(mishap, Crash))
        at = (self.last_at - T0) / 1000
        hurt = f" [{self.hurt}]" if self.was_hit else ""
        told = "" if not tells and answer[0] == "answer" else f" -> {answer[0]} {answer[1]}"
        left = "".join(
            f"; {sent.endpoint} {sent.about}: {sent.outcome}" + (f" after {sent.took / 1000:g} s" if sent.took else "")
            for sent in self.watch.log
        )
        self.story.append(f"{at:>10.3f} {words}{hurt}{told}{left}")
        return answer, self.was_hit

    def _process(self, flow: Callable[[Ports], Any]) -> Process:
        self.watch.log.clear()
        self.serial += 1
        process = self.world.process(f"p{self.serial}", flow)
        process.begin()
        return process

    def _hurt(self, flow: Callable[[Ports], Any], mishap: Crash | Faulty) -> Process:
        """The step with its mishap, at a call that it makes: first it is tried how many that are."""
        world, codes = self.world, {ref: list(known) for ref, known in self.codes.items()}
        before, number = world.save(), world.table.number
        process = self._process(flow)
        while not process.is_done:
            process.advance()
        calls = process.calls if isinstance(mishap, Crash) else world.table.number - number
        world.restore(before)
        self.codes, self.serial = codes, self.serial - 1
        if calls == 0:
            return self._process(flow)
        call = mishap.call % calls
        self.was_hit = True
        if isinstance(mishap, Faulty):
            self.hurt = f"call {call} of the table: {mishap.fault}"
            hit = world.table.number + call + 1
            world.table.watch(faults=lambda made: mishap.fault if made.number == hit else None)
            return self._process(flow)
        self.hurt = f"the worker dies {'after' if mishap.after else 'before'} call {call}"
        process = self._process(flow)
        for _ in range(call):
            process.advance()
        if mishap.after:
            process.dies_after_call = True
            process.advance()
        process.crash()
        return process

    def _failed_item(self, kind: str, fault: Exception) -> None:
        if not (self.was_hit and isinstance(fault, StoreError)) and not isinstance(fault, KeyUnavailableError):
            self.world.violation(f"C-42: reconciling {kind} failed with {type(fault).__name__}: {fault}")

    def _seen(self, owners: set[OwnerName]) -> dict[OwnerName, dict[str, Any]]:
        return {owner: self._seen_of(owner) for owner in sorted(owners)}

    def _seen_of(self, owner: OwnerName) -> dict[str, Any]:
        """Status and receipts, as the API tells them."""
        ports, of = self.observer, OwnerRef(*owner)
        told = views.status(
            status(of, reads=ports.reads, clients=ports.clients, clock=ports.clock), "https://q.example"
        )
        receipts: dict[tuple[str, int, str], int] = {}
        for each in ports.reads.receipts(of):
            key = (each["connection_id"], each["generation"], each["outcome"])
            receipts[key] = receipts.get(key, 0) + 1
        return {
            "deleted": told["owner"]["deleted"],
            "connections": {
                each["connection_id"]: {
                    "state": each["state"],
                    "generation": each["generation"],
                    "phase": each.get("phase"),
                    "awaiting": each["awaiting_confirmation"],
                    "until": each.get("confirm_until"),
                    "scopes": each.get("scopes", []),
                    "closed_as": each.get("closed_as"),
                }
                for each in told["connections"]
            },
            "notices": {
                each["connection_id"]: (each["level"], each["purge_pending"], each.get("deadline"))
                for each in told["notices"]
            },
            "blockers": []
            if told["owner"]["deleted"]
            else sorted(
                (
                    (each["level"], each["connection_id"], each.get("ends_at"))
                    for each in told["blockers"].get(CLIENT, [])
                ),
                key=repr,
            ),
            "receipts": receipts,
        }

    def _hold(self, wrong: list[str]) -> None:
        wrong = [*wrong, *faults_of_state(self.world)]
        if wrong:
            self._fail(wrong)

    def _fail(self, wrong: list[str]) -> None:
        self.has_failed = True
        setting = self.setting
        head = f"{setting.kind.label}, identity {setting.kind.has_identity}, confirmation {setting.confirmation}"
        raise CustodyError("\n".join([*dict.fromkeys(wrong), f"with {head}:", *self.story]))


def _answer_of(process: Process, *, died: bool) -> Any:
    if died:
        return ("died", None)
    if isinstance(process.error, QuitclaimError):
        return ("refused", process.error.code)
    if process.error is not None:
        raise process.error
    return ("answer", process.result)


def _connection(ref: Ref) -> ConnectionRef:
    return ConnectionRef(*ref)


def _name(ref: Ref) -> str:
    return "/".join(ref)
