"""
One simulated world: the table, the provider's ledger, time, and what happened. Every run is a function of what it is
made from.

Processes see it through ports of their own, which stop before each call (`stepping`). Sealed bytes are readable here,
so that the judge can tell which token lies where; the real sealing has tests of its own.
"""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from zlib import crc32

from quitclaim.domain.accounts import name_of
from quitclaim.domain.asked import AuthorizationAsked, VisitSecrets
from quitclaim.domain.attention import Subject
from quitclaim.domain.errors import KeyUnavailableError, QuitclaimError, SealBrokenError, StoreError
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind, HookOutcome, HookWord, hook_id
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import GUARD_MS
from quitclaim.domain.outcomes import (
    BrokerAnswer,
    IdentityAnswer,
    IdentityOutcome,
    LooseToken,
    Outcome,
    RevokeAnswer,
    RevokeOutcome,
    TokenAnswer,
    TokenGrant,
)
from quitclaim.domain.revocations import NO_VARIABLES, Claimed, Material
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import TokenPair
from quitclaim.domain.webhooks import Prepared, prepared_of
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.deliveries import Delivering, deliver, replay_waiting
from quitclaim.flows.events import Publishing
from quitclaim.flows.maintain import Maintaining
from quitclaim.flows.operator import Operating
from quitclaim.flows.reconcile import Reconciling
from quitclaim.flows.revocations import Revoking
from quitclaim.flows.stop import Stopping
from quitclaim.flows.tokens import EARLY_REFRESH, HandingOut, replay
from quitclaim.ports import Calls, Check, Client, Deadline, Key, KeyMaker, Notice, Page, Update, Vault, Write
from quitclaim.store.connect import ConnectStore
from quitclaim.store.deliveries import DeliveryStore
from quitclaim.store.events import EventStore
from quitclaim.store.maintain import MaintainStore
from quitclaim.store.operator import OperatorStore
from quitclaim.store.reads import Reads
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.revocations import RevocationStore
from quitclaim.store.ring import RingTable
from quitclaim.store.sources import SourceStore
from quitclaim.store.stop import StopStore
from quitclaim.store.tokens import TokenStore
from quitclaim.store.webhooks import WebhookStore
from tests.proof.ledger import Fault, Issued, Kind, Ledger
from tests.proof.stepping import Call, Process, TouchedError, run_straight
from tests.proof.steps import faults_of_step
from tests.proof.table import MemoryTable

T0: Final = 1_800_000_000_000
CLIENT: Final = "dot"
TEAM: Final = "T1"
OPEN_REFERENCE: Final = "digest-connection/"
"""How the open vault begins a connection's reference at a broker, which goes on with its name."""
REMAINING_MS: Final = 24_000
GUARD_STEP_MS: Final = (0, 36_000, 66_000, 606_000)
"""Steps of time that take a lease, a window or a hold beyond its end, or nothing."""


@dataclass
class Seen:
    """What no state of the table or the ledger would show any more: judged at the step at which it happens."""

    violations: list[str] = field(default_factory=list)
    sealed_in: dict[str, set[str]] = field(default_factory=dict)  # revocation id -> tokens ever sealed under it
    let_go: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # revocations and exchanges that compaction took
    answers: dict[str, Any] = field(default_factory=dict)  # of calls with an idempotency key
    neglected: list[str] = field(default_factory=list)  # what an undisturbed run of a schedule left undone
    wrong_codes: int = 0  # tried at an exchange that was held
    wrong_answers: int = 0  # and answered to be wrong, where one counts
    refusals: int = 0  # that the provider gave although the token lives
    proven: set[str] = field(default_factory=set)  # families that an answer to us showed to be grants
    asked_app: dict[str, int] = field(default_factory=dict)  # id of a hook's question -> how often it was asked
    heard: dict[str, str] = field(default_factory=dict)  # by the app: id of an event -> what it says

    def wrong_code_brought(self) -> None:
        """Whatever becomes of it."""
        self.wrong_codes += 1

    def wrong_code_answered(self, *, counts: bool) -> None:
        """It was told to be wrong."""
        self.wrong_answers += counts

    def copy(self) -> "Seen":
        """An independent state."""
        return replace(
            self,
            violations=list(self.violations),
            sealed_in={rid: set(tokens) for rid, tokens in self.sealed_in.items()},
            let_go=dict(self.let_go),
            answers=dict(self.answers),
            neglected=list(self.neglected),
            proven=set(self.proven),
            heard=dict(self.heard),
            asked_app=dict(self.asked_app),
        )


@dataclass(frozen=True)
class Writer:
    """Who writes: the clock that it read last, what it does as an operator, the epochs of owners as it read them."""

    clock_read: int
    acts: str
    epochs: Mapping[str, int]


type Live = tuple[str, str, int, int]
"""Owner's partition and connection, generation, token version."""


class World:
    """The shared reality of a run."""

    def __init__(self, kind: Kind | None = None, confirmation: Literal["owner", "none"] = "none") -> None:
        self.kind = kind or Kind()
        self.confirmation: Literal["owner", "none"] = confirmation
        self.table = MemoryTable()
        self.ledger = Ledger(self.kind)
        self.now = T0
        self.seen = Seen()
        self.faults: dict[str, list[Fault]] = {}
        self.keys_out = False
        self.bus_out = False
        self.app_purges = False  # whether the app has a purge hook
        self.app_admits: HookWord | None = None  # what the app says of every source, where it wants to be asked
        self.app_establishes: HookAnswer | None = None  # and of every connection that nobody confirms
        self.app_takes = False  # whether it has one that takes what providers send
        self.asked: dict[str, frozenset[Live]] = {}  # who asks for a token -> what was live at an instant since
        self.slow: dict[str, int] = {}  # endpoint -> how long its next answer takes
        self.kicked: list[str] = []
        self._serial = 0
        # What a technique may put in place of the simple parts: whoever does says so where it makes its world.
        self.vault_of: Callable[[Ports], Vault] = OpenVault
        self.client_of: Callable[[Ports], Client] = SimulatedClient
        self.calls_of: Callable[[], Calls] = CallsInTurn
        self.deadline_of: Callable[[Ports], Deadline] = ProcessDeadline
        self.keys: KeyMaker = NoKms()
        self.secret_of: Callable[[str], str] = str
        self.on_fault: Callable[[str, Exception], None] = self._unexpected_fault
        self.expected: tuple[type[Exception], ...] = (StoreError,)  # faults after which an item just stays due
        self.skew_ms = 0  # so far the clocks of its hosts may differ
        self.is_repeatable = True  # False where it is made of chance: what was done is not done again the same
        self.is_sound = True  # False where unsound items are planted: nobody can judge what is written from them
        self.contents: dict[bytes, frozenset[str]] = {}  # of sealed bytes that only their own vault could open
        self.batch_order: Callable[[Sequence[Key]], Sequence[Key]] | None = None  # None: a batch is read at once

    # --- going back to an earlier state ---

    def save(self) -> Any:
        """All of it."""
        return (
            self.table.snapshot(),
            self.ledger.copy(),
            self.now,
            self.seen.copy(),
            {name: list(queue) for name, queue in self.faults.items()},
            self.keys_out,
            self.bus_out,
            dict(self.slow),
            self._serial,
            dict(self.asked),
        )

    def restore(self, saved: Any) -> None:
        """As it was when *saved* was made."""
        snapshot, ledger, self.now, seen, faults, self.keys_out, self.bus_out, slow, self._serial, asked = saved
        self.table.restore(snapshot)
        self.ledger = ledger.copy()
        self.seen = seen.copy()
        self.faults = {name: list(queue) for name, queue in faults.items()}
        self.slow = dict(slow)
        self.asked = dict(asked)
        self.kicked = []

    def digest(self) -> str:
        """Of everything that a later step can depend on."""
        ledger, seen = self.ledger, self.seen
        tokens = sorted((token.name, token.alive, token.access_at or 0) for token in ledger.tokens.values())
        sets = [sorted(each) for each in (ledger.idle, ledger.apps, seen.proven, self._let_go())]
        sealed = sorted((rid, sorted(tokens)) for rid, tokens in seen.sealed_in.items())
        return f"{self.table.digest()}|{self.now}|{tokens}|{sets}|{sealed}|{seen.wrong_answers}|{self.keys_out}"

    def key(self) -> Any:
        """Of the same: equal for states from which everything goes on in the same way, and hashable."""
        seen, ledger = self.seen, self.ledger
        return (
            self.table.digest(),
            self.now,
            tuple(ledger.tokens.values()),
            tuple(ledger.exchanges.items()),
            tuple(ledger.codes),
            frozenset(ledger.apps),
            frozenset(ledger.idle),
            frozenset(seen.violations),
            frozenset((rid, frozenset(tokens)) for rid, tokens in seen.sealed_in.items()),
            frozenset(seen.proven),
            frozenset(seen.heard.items()),
            frozenset(seen.asked_app.items()),
            self._let_go(),
            tuple(sorted(seen.answers.items(), key=str)),
            (seen.wrong_codes, seen.wrong_answers, seen.refusals > 0),
            tuple((name, tuple(queue)) for name, queue in self.faults.items()),
            tuple(self.slow.items()),
            frozenset(self.asked.items()),
        )

    def _let_go(self) -> frozenset[tuple[str, ...]]:
        told = ("v", "state", "outcome", "acknowledged")
        return frozenset((id_, *(str(item.get(name)) for name in told)) for id_, item in self.seen.let_go.items())

    # --- running ---

    def run(self, flow: Callable[["Ports"], Any], name: str | None = None) -> Any:
        """Run a flow to its end, unstepped; its result, or its error raised."""
        self._serial += 1
        return run_straight(self.process(name or f"straight-{self._serial}", flow))

    def process(self, name: str, flow: Callable[["Ports"], Any], *, skew_ms: int = 0) -> Process:
        """A flow ready to be stepped."""
        return Process(name, self.flow(flow), skew_ms=skew_ms)

    def flow(self, flow: Callable[["Ports"], Any]) -> Callable[[Process], Any]:
        """A flow that a process may run, in this world."""
        return lambda process: flow(Ports(self, process))

    @property
    def workspaces(self) -> frozenset[str]:
        """What the provider says of every account beside its id: of which workspace it is."""
        return frozenset({name_of("team", TEAM)}) if self.kind.named else frozenset()

    def fault(self, endpoint: str) -> Fault:
        """What happens to the next call of an endpoint."""
        queue = self.faults.get(endpoint)
        return queue.pop(0) if queue else Fault.NONE

    def violation(self, text: str) -> None:
        """Something happened that never may."""
        self.seen.violations.append(text)

    def hear(self, notice: Notice) -> None:
        """The app is told; whatever has the same id says the same."""
        id_, says = notice.detail["id"], repr(sorted(notice.detail.items()))
        if self.seen.heard.setdefault(id_, says) != says:
            self.violation(f"events/README.md: two events have the id {id_}")

    def proved(self, granted: frozenset[str], salvaged: frozenset[str]) -> None:
        """An answer to us brought these tokens: what the app did not have before is a grant."""
        tokens = granted | (salvaged - self.ledger.apps)
        self.seen.proven.update(self.ledger.tokens[name].family for name in tokens)

    def tokens_in(self, sealed: bytes) -> frozenset[str]:
        """The refresh tokens that sealed bytes hold."""
        known = self.contents.get(sealed)
        if known is not None or not isinstance(sealed, bytes):
            return known or frozenset()
        return _tokens_in(sealed)

    def is_kept(self, token: str) -> bool:
        """
        Whether the token lies somewhere in the table, or did until its revocation was over and compacted, or until
        another process exchanged it for the next one.
        """
        if self.ledger.tokens[token].why_dead == "rotated":
            return True
        if any(token in self.seen.sealed_in.get(rid, ()) for rid in self.seen.let_go):
            return True
        for item in self.table.items():
            if item["ty"] in ("grant", "exchange") and token in self.tokens_in(item.get("use", b"")):
                return True
            if item["ty"] == "revocation" and token in self.seen.sealed_in.get(item["PK"][2:], ()):
                return True
        return False

    def was_installed(self, token: str) -> bool:
        """Whether the token that an exchange brought became a live grant, whatever became of that."""
        return any(
            item["ty"] == "exchange"
            and item["outcome"] == "installed"
            and token in self.seen.sealed_in.get(item["rid"], ())
            for item in (*self.table.items(), *self.seen.let_go.values())
        )

    def is_deleted(self, partition: str) -> bool:
        """Whether the owner of a partition is deleted."""
        owner = self.table.item(Key(partition, "OWNER"))
        return owner is not None and "deleted_at" in owner

    def committed(self, before: Mapping[Key, Mapping[str, Any] | None], by: "Writer") -> None:
        """A call of the table is over: judge what it changed, by what its writer knew."""
        if not before or not self.is_sound:
            return
        changes = {key: (old, self.table.item(key)) for key, old in before.items()}
        for fault in faults_of_step(self, changes, by.clock_read):
            self.violation(fault)
        for key, (old, new) in changes.items():
            if self.app_purges and new is not None and new["ty"] == "intent" and self._was_purged_unasked(old, new):
                self.violation(f"F-29: {key.sk} of {key.pk} is purged, and the app has not said so")
            if self.app_takes and old is None and new is not None and self._was_shared_unasked(new):
                self.violation(f"M-79: {key.sk} has its share of {key.pk}, and the app has not taken it")
            if by.acts and old != new and not self._is_on_record(by.acts, key, new):
                self.violation(f"row 54: an operator's {by.acts} of {key.pk} {key.sk} came before its record")
            if _begins_something(old, new) and by.epochs.get(key.pk, 0) < self._epoch(key.pk):
                self.violation(f"P-16: {key.sk} of {key.pk} was decided by who read its owner before a restore")
        if self.asked:
            now = self.live_now()
            self.asked = {name: live | now for name, live in self.asked.items()}

    def _was_purged_unasked(self, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
        _, tenant, owner = new["PK"].split("#")
        id_ = hook_id(HookKind.PURGE, tenant, owner, new["SK"][2:])
        was_pending = old is not None and old["purge"] == "pending"
        return was_pending and new["purge"] == "done" and self.seen.asked_app.get(id_, 0) < 2

    def _was_shared_unasked(self, new: Mapping[str, Any]) -> bool:
        if new["ty"] != "delivery" or new["SK"] == "W" or new["reason"] != "received":
            return False
        _, client, digest = new["PK"].split("#")
        id_ = hook_id(HookKind.WEBHOOK_ACCEPTED, client, digest, *new["SK"].split("#")[1:])
        return self.seen.asked_app.get(id_, 0) < 2

    def asks(self, name: str) -> None:
        """A process asks for a token: from now on it is known what was live meanwhile."""
        self.asked[name] = self.live_now()

    def _is_on_record(self, action: str, key: Key, item: Mapping[str, Any] | None) -> bool:
        if item is None or item["ty"] not in ("revocation", "exchange", "delivery"):
            return True
        if item["ty"] == "delivery":  # the record names a whole selection of them
            return any(each["ty"] == "audit" and each["action"] == action for each in self.table.items())
        subject = str(Subject(rid=key.pk[2:]))
        if item["ty"] == "exchange":
            _, tenant, owner = key.pk.split("#")
            _, connection, id_ = key.sk.split("#")
            subject = str(Subject(ref=ConnectionRef(tenant, owner, connection), exchange=id_))
        audits = [each for each in self.table.items() if each["ty"] == "audit"]
        return any(each["action"] == action and each["subject"] == subject for each in audits)

    def _epoch(self, partition: str) -> int:
        owner = self.table.item(Key(partition, "OWNER"))
        return 0 if owner is None else int(owner["epoch"])

    def live_now(self) -> frozenset[Live]:
        """What may be handed out at this instant: owner and connection, generation, token version."""
        return frozenset(
            (item["PK"], item["SK"].split("#")[1], item["generation"], item["tv"])
            for item in self.table.items()
            if item["ty"] == "grant" and not self.is_deleted(item["PK"])
        )

    def _unexpected_fault(self, kind: str, fault: Exception) -> None:
        if isinstance(fault, self.expected) or (kind == EARLY_REFRESH and isinstance(fault, QuitclaimError)):
            return
        self.violation(f"C-42: {kind} failed with {type(fault).__name__}: {fault}")


def _begins_something(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether a connection is started, an exchange begun or a grant installed."""
    if after is None:
        return False
    if after["ty"] == "connection":
        return after["state"] == "authorizing" and after["generation"] != (before or {}).get("generation")
    return before is None and after["ty"] in ("exchange", "grant")


class SteppedTable:
    """`ports.Table` and `ports.WholeTable` that stop before each call."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._table = world.table
        self._process = process

    def get(self, key: Key) -> Any:
        thing = frozenset({_thing(key)})
        return self._seen([self._read("get", thing, lambda: self._table.get(key), lambda: self._table.mark((key,)))])[0]

    def batch_get(self, keys: Sequence[Key]) -> Any:
        if self._world.batch_order is not None:  # DynamoDB reads the keys of a batch one by one, in no order
            found = {key: self.get(key) for key in self._world.batch_order(keys)}
            return [found[key] for key in keys]
        things = frozenset(map(_thing, keys))
        found = self._read("batch_get", things, lambda: self._table.batch_get(keys), lambda: self._table.mark(keys))
        return self._seen(found)

    def _seen(self, items: Any) -> Any:
        """Of which epoch the process knows the owners to be."""
        for item in items:
            if item is not None and item.get("SK") == "OWNER":
                self._process.epochs[item["PK"]] = item.get("epoch", 0)  # T-10 takes it away
        return items

    def query(
        self, pk: str, prefix: str = "", *, limit: int | None = None, after: Mapping[str, Any] | None = None
    ) -> Page:
        things = frozenset({_family(pk, prefix)})
        page: Page = self._read(
            "query",
            things,
            lambda: self._table.query(pk, prefix, limit=limit, after=after),
            lambda: self._table.mark_of(pk, prefix),
        )
        return page

    def query_index(
        self, index: str, partition: str, *, upto: str | None = None, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        page: Page = self._process.look(
            lambda: self._table.query_index(index, partition, upto=upto, limit=limit, after=after)
        )
        return page

    def scan(self, *, after: Mapping[str, Any] | None = None) -> Page:
        call = Call("scan", frozenset(), changes=False, reads_all=True)
        page: Page = self._process.step(call, self._met(lambda: self._table.scan(after=after)))
        return page

    def write(self, write: Write) -> None:
        self._do(f"write {_name(write)}", lambda: self._table.write(write), (write,))

    def transact(self, writes: Sequence[Write]) -> None:
        self._do("transact " + "+".join(map(_name, writes)), lambda: self._table.transact(writes), writes)

    def batch_update(self, updates: Sequence[Update]) -> Any:
        return self._do("batch_update", lambda: self._table.batch_update(updates), updates)

    def _read(self, what: str, things: frozenset[str], act: Callable[[], Any], mark: Callable[[], Any]) -> Any:
        return self._process.step(Call(what, things, changes=False), self._met(act), mark)

    def _do(self, what: str, act: Callable[[], Any], writes: Sequence[Write]) -> Any:
        by = Writer(self._process.clock_read, self._process.acts, dict(self._process.epochs))
        met = self._met(act)

        def done() -> Any:
            before = {write.key: self._table.item(write.key) for write in writes}
            try:
                return met()
            finally:
                self._world.committed(before, by)

        return self._process.step(Call(what, _things(writes), changes=True), done)

    def _met(self, act: Callable[[], Any]) -> Callable[[], Any]:
        """The call, as the fault lets it that this process is to meet at it."""
        process, table = self._process, self._table

        def met() -> Any:
            fault = process.faults.pop(process.calls - 1, None)
            if fault is None:
                return act()
            table.watch(faults=lambda _: fault)
            try:
                return act()
            finally:
                table.watch()

        return act if process.is_driven else met


def _thing(key: Key) -> str:
    return f"{key.pk}|{key.sk}"


def _family(pk: str, sk: str) -> str:
    return f"{pk}~{sk.split('#')[0]}"


def _things(writes: Sequence[Write]) -> frozenset[str]:
    found: set[str] = set()
    for write in writes:
        found.add(_thing(write.key))
        if not isinstance(write, Check):
            found.add(_family(write.key.pk, write.key.sk))
    return frozenset(found)


def _name(write: Write) -> str:
    return f"{type(write).__name__.lower()} {write.key.sk.split('#')[0] or write.key.pk}"


class ProcessClock:
    """Simulated time, by a host's own clock."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now(self) -> int:
        self._process.clock_read = self._process.glance(lambda: self._world.now) + self._process.skew_ms
        return self._process.clock_read

    @property
    def paused(self) -> int:
        """How long the process has waited by itself."""
        return self._process.paused_ms

    def pause(self, ms: int) -> None:
        self._process.paused_ms += ms


class ProcessDeadline:
    """Plenty of time, until the process has waited once: then it is over, so that polling ends."""

    def __init__(self, ports: "Ports") -> None:
        self._process = ports.process

    def remaining_ms(self) -> int:
        return REMAINING_MS if self._process.paused_ms == 0 else 1_000


class PatientDeadline:
    """Less of it with every pause: for whoever repeats a write, and still has time for the rest."""

    def __init__(self, ports: "Ports") -> None:
        self._process = ports.process

    def remaining_ms(self) -> int:
        return REMAINING_MS - self._process.paused_ms


class SweepDeadline:
    """Of a function that runs for minutes."""

    def remaining_ms(self) -> int:
        return 110_000


class ProcessIds:
    """The same ids for the same process, whatever the others do."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def new_id(self) -> str:
        self._process.ids_taken += 1
        return f"{self._process.name}.{self._process.ids_taken}"

    def new_secret(self) -> Secret:
        return Secret(self._world.secret_of(self.new_id()))


class OpenVault:
    """`ports.Vault` whose sealed bytes are readable, and open only under what they were bound to."""

    def __init__(self, ports: "Ports") -> None:
        self._world = ports.world
        self._process = ports.process

    def ready(self, *purposes: str) -> None:
        self._refuse_outage()

    def seal_for_use(self, ref: ConnectionRef, generation: int, token_version: int, pair: TokenPair) -> bytes:
        refresh = pair.refresh_token.reveal() if pair.refresh_token else ""
        return self._seal(
            "use", _of(ref), generation, token_version, pair.name, f"{pair.access_token.reveal()},{refresh}"
        )

    def open_for_use(
        self, ref: ConnectionRef, generation: int, token_version: int, pair: str, sealed: bytes
    ) -> TokenPair:
        access, refresh = self._open("use", _of(ref), generation, token_version, pair, sealed).split(",")
        return TokenPair(pair, Secret(access), Secret(refresh) if refresh else None, "Bearer")

    def seal_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, material: Sequence[Material]
    ) -> bytes:
        tokens = ",".join(
            f"{each.kind}={each.token.reveal()}" + (f"={each.until}" if each.until else "") for each in material
        )
        names = frozenset(each.token.reveal() for each in material if each.token.reveal().startswith("rt-"))
        self._process.glance(lambda: self._world.seen.sealed_in.setdefault(rid, set()).update(names))
        return self._seal("revoke", rid, generation, token_version, pair, tokens)

    def open_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, sealed: bytes
    ) -> tuple[Material, ...]:
        tokens = self._open("revoke", rid, generation, token_version, pair, sealed).split(",")
        return tuple(_material(*each.split("=")) for each in tokens)

    def seal_identity(self, rid: str, generation: int, access_token: Secret) -> bytes:
        return self._seal("identity", rid, generation, 0, "~", access_token.reveal())

    def open_identity(self, rid: str, generation: int, sealed: bytes) -> Secret:
        return Secret(self._open("identity", rid, generation, 0, "~", sealed))

    def seal_authorization(self, state_digest: str, ref: ConnectionRef, generation: int, visit: VisitSecrets) -> bytes:
        parts = [secret.reveal() if secret else "" for secret in (visit.verifier, visit.nonce)]
        return self._seal("authorization", state_digest, generation, 0, "~", ",".join(parts))

    def open_authorization(self, state_digest: str, ref: ConnectionRef, generation: int, sealed: bytes) -> VisitSecrets:
        parts = self._open("authorization", state_digest, generation, 0, "~", sealed).split(",")
        return VisitSecrets(*(Secret(part) if part else None for part in parts))

    def seal_under_ticket(self, ticket: Secret, text: Secret) -> str:
        return f"{ticket.reveal()};{text.reveal()}"

    def open_under_ticket(self, ticket: Secret, sealed: str) -> Secret:
        return Secret(sealed.removeprefix(f"{ticket.reveal()};"))

    def seal_id_token(
        self, ref: ConnectionRef, generation: int, exchange_id: str, id_token: Secret, nonce: Secret | None
    ) -> bytes:
        text = f"{id_token.reveal()},{nonce.reveal() if nonce else ''}"
        return self._seal("id_token", _of(ref), generation, 0, exchange_id, text)

    def open_id_token(
        self, ref: ConnectionRef, generation: int, exchange_id: str, sealed: bytes
    ) -> tuple[Secret, Secret | None]:
        id_token, nonce = self._open("id_token", _of(ref), generation, 0, exchange_id, sealed).split(",")
        return Secret(id_token), Secret(nonce) if nonce else None

    def seal_delivery(self, client: str, digest: str, prepared: Prepared, raw: bytes) -> bytes:
        text = json.dumps({**prepared.as_mapping(), "raw": raw.hex()}).replace(";", "\\u003b")
        return self._seal("inbox", f"{client}/{digest}", 0, 0, "~", text)

    def open_delivery(self, client: str, digest: str, sealed: bytes) -> tuple[Prepared, bytes]:
        told = json.loads(self._open("inbox", f"{client}/{digest}", 0, 0, "~", sealed))
        raw = bytes.fromhex(told.pop("raw"))
        return prepared_of(told), raw

    def trace_digest(self, client: str, account: str | None, how: str, text: str) -> str:
        return f"{account or ''}-{how}-{text}".replace("#", "_")

    def fingerprint(self, token: Secret) -> str:
        return f"fp-{token.reveal()}"

    def account_digest(self, client: str, account_id: str) -> str:
        return f"digest-{account_id}"

    def ticket(self, ref: ConnectionRef, generation: int, started_at: int) -> Secret:
        return Secret(f"ticket/{_of(ref)}/{generation}/{started_at}")

    def confirm_code(self, exchange_id: str, started_at: int) -> Secret:
        return Secret(f"code/{exchange_id}")

    def is_confirm_code(self, code: Secret, exchange_id: str, started_at: int) -> bool:
        return code == self.confirm_code(exchange_id, started_at)

    def _seal(self, purpose: str, subject: str, generation: int, version: int, pair: str, text: str) -> bytes:
        self._refuse_outage()
        bound = f"{purpose};{subject};{generation};{version};{pair}"
        return f"{bound};{_sum(bound, text)};{text}".encode()

    def _open(self, purpose: str, subject: str, generation: int, version: int, pair: str, sealed: bytes) -> str:
        self._refuse_outage()
        bound = f"{purpose};{subject};{generation};{version};{pair}"
        found, _, text = sealed.decode(errors="replace").rpartition(";")
        if found != f"{bound};{_sum(bound, text)}":
            raise SealBrokenError
        return text

    def _refuse_outage(self) -> None:
        if self._world.keys_out:
            raise KeyUnavailableError


def _of(ref: ConnectionRef) -> str:
    return f"{ref.tenant}/{ref.owner}/{ref.connection}"


def _sum(bound: str, text: str) -> int:
    """So that bytes that were changed do not open."""
    return crc32(f"{bound};{text}".encode())


def _material(kind: str, token: str, until: str | None = None) -> Material:
    return Material(kind, Secret(token), until=None if until is None else int(until))


def _tokens_in(sealed: bytes) -> frozenset[str]:
    text = sealed.decode(errors="replace").rpartition(";")[2]
    return frozenset(part for each in text.split(",") for part in each.split("=") if part.startswith("rt-"))


class SimulatedClient:
    """`ports.Client` at the simulated provider. Also the judge of what leaves: nothing without its record (I-2)."""

    def __init__(self, ports: "Ports") -> None:
        self._world = ports.world
        self._process = ports.process
        self._vault = ports.vault

    @property
    def name(self) -> str:
        return CLIENT

    @property
    def provider(self) -> str:
        return CLIENT

    @property
    def facts(self) -> ProviderFacts:
        return self._world.kind.facts

    @property
    def confirmation(self) -> Literal["owner", "none"]:
        return self._world.confirmation

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset({"read"})

    @property
    def optional_scopes(self) -> frozenset[str]:
        return frozenset({"more"})

    @property
    def required_scopes(self) -> frozenset[str] | None:
        return None

    @property
    def purge_on_loss(self) -> bool:
        return False

    @property
    def broker(self) -> "SimulatedBroker | None":
        return SimulatedBroker(self) if self._world.kind.broker else None

    def prepare(self) -> None:
        return None

    def authorize_url(self, asked: AuthorizationAsked) -> str:
        return f"https://provider.example/authorize?state={asked.state.reveal()}"

    def is_issuer(self, values: Sequence[str]) -> bool:
        return True

    def at_start(self, given: Mapping[str, str]) -> Mapping[str, str]:
        return given

    def in_import(self, given: Mapping[str, str]) -> Mapping[str, str]:
        return given

    def in_callback(self, known: Mapping[str, str], query: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
        return {}

    def scopes_in_callback(self, query: Mapping[str, Sequence[str]]) -> frozenset[str] | None:
        return frozenset(query["scope"]) if "scope" in query else None

    def exchange(
        self,
        *,
        code: Secret,
        verifier: Secret | None,
        redirect_uri: str,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> TokenAnswer:
        def act() -> TokenAnswer:
            tenant, owner, connection, *_ = code.reveal().split("/")
            mine = (f"O#{tenant}#{owner}", f"X#{connection}#")
            self._must_be_recorded(
                "exchange",
                lambda item: (
                    item.get("ty") == "exchange"
                    and item["PK"] == mine[0]
                    and item["SK"].startswith(mine[1])
                    and item["outcome"] == "open"
                    and item["ends"] > self.now
                ),
            )
            if self._world.ledger.exchanges.get(code.reveal()):
                self._world.violation(f"P-3: the code {code.reveal()} is sent a second time")
            return self._tokens("exchange", lambda: self._world.ledger.exchange(code.reveal(), self._world.now))

        return self._received(self._do("exchange", act))

    def refresh(
        self,
        *,
        refresh_token: Secret,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
        is_import: bool = False,
    ) -> TokenAnswer:
        token = refresh_token.reveal()

        def is_record(item: Mapping[str, Any]) -> bool:
            """
            A stop may take the record over while the request is on its way: as an expected successor, or, where nothing
            can be revoked, as the notice that asks for the end of all of it.
            """
            if item.get("ty") == "exchange":  # of an import: the token lies sealed on it
                is_open = item["kind"] == "import" and item["outcome"] == "open" and item["ends"] > self.now
                return is_open and token in self._world.tokens_in(item.get("use", b""))
            if item.get("ty") == "revocation":
                is_taken_over = bool(item.get("expected")) or item["state"] == "unsupported"
                return is_taken_over and token in self._world.seen.sealed_in.get(item["PK"][2:], ())
            is_leased = bool(item.get("attempts")) and item.get("lease_until", 0) > self.now
            return item.get("ty") == "grant" and is_leased and token in self._world.tokens_in(item.get("use", b""))

        def act() -> TokenAnswer:
            self._must_be_recorded("refresh", is_record)
            live = self._live()
            answer = self._tokens("refresh", lambda: self._world.ledger.refresh(token, self._world.now))
            hurt = [name for name in sorted(live) if self._world.ledger.tokens[name].why_dead == "reuse"]
            if hurt:
                self._world.violation(f"A-1: presenting {token} again killed the live grant's {hurt}")
            return answer

        return self._received(self._do("refresh", act))

    def expects_id_token(self, scopes: frozenset[str]) -> bool:
        return self._world.kind.proves

    def wants_nonce(self, scopes: frozenset[str]) -> bool:
        return self._world.kind.proves

    def subject(
        self, *, id_token: Secret, nonce: Secret | None, access_token: Secret, timeout_ms: int
    ) -> IdentityAnswer:
        def act() -> IdentityAnswer:
            token = self._world.ledger.tokens.get(id_token.reveal().removeprefix("id-"))
            if nonce is None or token is None or self._world.fault("id token") is not Fault.NONE:
                return IdentityAnswer(IdentityOutcome.UNREADABLE, reason="nonce")
            return IdentityAnswer(IdentityOutcome.READ, token.account)

        return self._do("id token", act, changes=False)

    async def renew(
        self, *, refresh_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> TokenAnswer:
        token = refresh_token.reveal()

        def is_record(item: Mapping[str, Any]) -> bool:
            is_open = item.get("ty") == "revocation" and "renewing" in item
            return is_open and item.get("lease_until", 0) > self.now

        def act() -> TokenAnswer:
            self._must_be_recorded("renew", is_record)
            return self._tokens("renew", lambda: self._world.ledger.refresh(token, self._world.now))

        return self._received(self._do("renew", act))

    def identity(
        self, *, access_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> IdentityAnswer:
        def act() -> IdentityAnswer:
            token = self._world.ledger.tokens.get(access_token.reveal().removeprefix("at-"))
            if self._world.fault("identity") is not Fault.NONE or token is None:
                return IdentityAnswer(IdentityOutcome.TRY_LATER)
            return IdentityAnswer(IdentityOutcome.READ, token.account, names=self._world.workspaces)

        return self._do("identity", act, changes=False)

    async def revoke(self, *, material: Material, timeout_ms: int) -> RevokeAnswer:
        token = material.token.reveal()

        def act() -> RevokeAnswer:
            self._must_be_recorded("revoke", self._is_claim)
            fault = self._world.fault("revoke")
            if fault is Fault.NOT_ACTED:
                return RevokeAnswer(RevokeOutcome.UNKNOWN, "no answer")
            if fault not in (Fault.NONE, Fault.LOST):
                return RevokeAnswer(RevokeOutcome.DEFERRED, fault)
            is_taken = self._world.ledger.takes(token, self._world.now)
            if is_taken and self._world.kind.pair_lives:
                self._world.ledger.end_access(token.removeprefix("at-"))
            elif is_taken:
                self._revoke(token.removeprefix("at-"))
            if fault is Fault.LOST:
                return RevokeAnswer(RevokeOutcome.UNKNOWN, "no answer")
            return RevokeAnswer(RevokeOutcome.CONFIRMED if is_taken else RevokeOutcome.AMBIGUOUS)

        return self._do("revoke", act)

    def asked(
        self,
        what: str,
        act: Callable[["World"], str],
        is_record: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> BrokerAnswer:
        """One request to a broker, which must be on record where *is_record* says how."""

        def acts() -> BrokerAnswer:
            if is_record is not None:
                self._must_be_recorded(what, is_record)
            match self._world.fault(what):
                case Fault.NONE:
                    return BrokerAnswer(Outcome.GRANTED, value=Secret(act(self._world)))
                case Fault.LOST:
                    act(self._world)
                    return BrokerAnswer(Outcome.UNKNOWN, "timeout")
                case Fault.REFUSED:
                    return BrokerAnswer(Outcome.REJECTED, "refused")
                case fault:
                    return BrokerAnswer(Outcome.TRY_LATER, fault)

        return self._do(what, acts)

    def whose(self, reference: str) -> str:
        """The connection that a broker was told of by its reference, which a real vault made."""
        if reference.startswith(OPEN_REFERENCE):
            return reference.removeprefix(OPEN_REFERENCE)
        connections = (item for item in self._world.table.items() if item["ty"] == "connection")
        names = [f"{item['PK'][2:].replace('#', '/')}/{item['SK'][2:]}" for item in connections]
        return next(name for name in names if self._vault.account_digest(CLIENT, f"connection/{name}") == reference)

    @property
    def now(self) -> int:
        """By the clock of its host."""
        return self._world.now + self._process.skew_ms

    def _revoke(self, token: str) -> None:
        live, ledger = self._live(), self._world.ledger
        families = {ledger.tokens[name].family for name in ledger.apps}
        known = ledger.tokens.get(token)
        if known is not None and known.family in families - self._world.seen.proven:
            self._world.violation(f"import: {token} is the app's, and was revoked before a refresh had succeeded")
        hit = set(self._world.ledger.revoke(token))
        if hit & live:
            self._world.violation(f"A-1: revoking {token} killed the live grant's {sorted(hit & live)}")

    def _live(self) -> set[str]:
        """The tokens of live grants that are alive."""
        alive = {token.name for token in self._world.ledger.alive()}
        grants = (item for item in self._world.table.items() if item.get("ty") == "grant")
        return {name for item in grants for name in self._world.tokens_in(item.get("use", b""))} & alive

    def _tokens(self, endpoint: str, act: Callable[[], Issued | None]) -> TokenAnswer:
        match self._world.fault(endpoint):
            case Fault.NOT_SENT:
                return TokenAnswer(Outcome.NOT_SENT, "connect_refused")
            case Fault.BUSY:
                return TokenAnswer(Outcome.TRY_LATER, "busy")
            case Fault.NOT_ACTED:
                return TokenAnswer(Outcome.UNKNOWN, "timeout")
            case Fault.REFUSED:
                self._world.seen.refusals += 1
                return TokenAnswer(Outcome.REJECTED, "refused", error_code="invalid_grant")
            case Fault.LOST:
                act()
                return TokenAnswer(Outcome.UNKNOWN, "timeout")
            case Fault.MALFORMED:
                issued = act()
                loose = () if issued is None else (LooseToken("refresh_token", Secret(issued.name)),)
                return TokenAnswer(Outcome.UNKNOWN, "malformed", salvaged=loose)
            case _:
                issued = act()
        if issued is None:
            return TokenAnswer(Outcome.REJECTED, "refused", error_code="invalid_grant")
        if not self._world.kind.gives_refresh:
            return TokenAnswer(Outcome.GRANTED, grant=TokenGrant(Secret(issued.name), expires_in_s=3600))
        ends_in_s = None if self._world.kind.refresh_ends_ms is None else self._world.kind.refresh_ends_ms // 1000
        access, refresh = Secret(f"at-{issued.name}"), Secret(issued.name)
        grant = TokenGrant(access, refresh, expires_in_s=3600, refresh_expires_in_s=ends_in_s)
        if self._world.kind.proves:
            grant = replace(grant, id_token=Secret(f"id-{issued.name}"), account_id=issued.account)
            grant = replace(grant, names=self._world.workspaces)  # as Slack: beside the ID token, once
        return TokenAnswer(Outcome.GRANTED, grant=grant)

    def _received(self, answer: TokenAnswer) -> TokenAnswer:
        """The process has the tokens of the answer in its hands (D-2)."""
        grant = answer.grant
        salvaged = frozenset(each.token.reveal() for each in answer.salvaged)
        granted = frozenset(() if grant is None else ((grant.refresh_token or grant.access_token).reveal(),))
        self._process.received |= granted | salvaged
        self._process.glance(lambda: self._world.proved(granted, salvaged))
        return answer

    def _do[T](self, what: str, act: Callable[[], T], *, changes: bool = True) -> T:
        """The provider acts; its answer arrives in a step of its own, so that it can be late."""

        def done() -> T:
            answer = act()
            self._world.now += self._world.slow.pop(what, 0)
            return answer

        answer: T = self._process.step(Call(what, frozenset({"provider"}), changes, is_send=changes), done)
        self._process.step(Call(f"answer to {what}", frozenset(), changes=False), lambda: None)
        return answer

    def _is_claim(self, item: Mapping[str, Any]) -> bool:
        """
        Whether it is a claimed revocation. Between hosts whose clocks are minutes apart a claim that one still holds is
        over for the other, which may have taken it or settled it: there the claim must have been made, and what the
        request does is judged at the ledger, as ever.
        """
        if item.get("ty") != "revocation":
            return False
        is_taken_over = self._world.skew_ms > GUARD_MS and item.get("claims", 0) > 0
        return item.get("lease_until", 0) > self.now or is_taken_over

    def _must_be_recorded(self, what: str, is_record: Callable[[Mapping[str, Any]], bool]) -> None:
        if not any(map(is_record, self._world.table.items())):
            self._world.violation(f"I-2: a {what} request left without its record")


class SimulatedBroker:
    """`ports.Broker` at the simulated provider: an account of each connection, which gives access once it is used."""

    def __init__(self, client: SimulatedClient) -> None:
        self._client = client

    @property
    def state_param(self) -> str:
        return "state"

    def account(self, *, reference: str, timeout_ms: int) -> BrokerAnswer:
        """
        The attempt is on record: as its open exchange, or as the link that was opened. Whoever dies behind the request
        leaves a connection that says so, and nobody else begins in the meantime.
        """
        owner = self._client.whose(reference)

        def is_record(item: Mapping[str, Any]) -> bool:
            if item["ty"] == "ticket":
                return f"{item['t']}/{item['o']}/{item['c']}" == owner
            if item["ty"] != "exchange" or item["outcome"] != "open" or item["ends"] <= self._client.now:
                return False
            return f"{item['PK'][2:].replace('#', '/')}/{item['SK'].split('#')[1]}" == owner

        return self._client.asked("account", lambda world: world.ledger.account(owner, world.now).name, is_record)

    def link(self, *, account: Secret, source: str | None, back: str, timeout_ms: int) -> BrokerAnswer:
        return self._client.asked("link", lambda world: back)

    def sign_in(self, *, account: Secret, timeout_ms: int) -> BrokerAnswer:
        """Only for an account that was installed: of one that a stop was faster than, nobody signs in (M-21, M-22)."""

        def minted(world: World) -> str:
            token = world.ledger.tokens[account.reveal()]
            if not world.was_installed(token.name):
                world.violation(f"M-22: a sign-in token was minted for {token.name}, which was never installed")
            world.ledger.idle.discard(token.name)
            return f"sign-in-{token.name}"

        return self._client.asked("sign_in", minted)


class SimulatedClients:
    """`ports.Clients` with the one client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def named(self, name: str) -> Client:
        return self._client

    def names(self) -> frozenset[str]:
        return frozenset({CLIENT})

    def manual_page(self, provider: str) -> str | None:
        return "https://provider.example/apps"


class CallsInTurn:
    """`ports.Calls`, one after another in the order in which they were started."""

    def __init__(self) -> None:
        self._open: list[tuple[Claimed, Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]]] = []

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def start(self, claim: Claimed, call: Callable[[], Coroutine[Any, Any, RevokeAnswer | None]]) -> None:
        self._open.append((claim, call))

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, RevokeAnswer | None]]:
        batch, self._open = self._open[:at_most], self._open[at_most:]
        return [(claim, _result(call())) for claim, call in batch]


def _result(coroutine: Coroutine[Any, Any, RevokeAnswer | None]) -> RevokeAnswer | None:
    try:
        coroutine.send(None)
    except StopIteration as done:
        answer: RevokeAnswer | None = done.value
        return answer
    raise AssertionError("a simulated call never waits")


class SimulatedApp:
    """
    `ports.AppHooks`: where the app wants to be asked, it does what it is asked at the second question only; of every
    source it says the same.
    """

    def __init__(self, ports: "Ports") -> None:
        self._world = ports.world
        self._process = ports.process

    def has(self, kind: HookKind) -> bool:
        match kind:
            case HookKind.SOURCE_OBSERVED:
                return self._world.app_admits is not None
            case HookKind.CONNECTION_ESTABLISHING:
                return self._world.app_establishes is not None
            case HookKind.WEBHOOK_ACCEPTED:
                return self._world.app_takes
            case _:
                return kind is HookKind.PURGE and self._world.app_purges

    def ask(self, call: HookCall, timeout_ms: int = 0) -> HookAnswer:
        def act() -> HookAnswer:
            asked = self._world.seen.asked_app
            asked[call.id] = min(asked.get(call.id, 0) + 1, 2)
            if call.kind is HookKind.CONNECTION_ESTABLISHING and self._world.app_establishes is not None:
                return self._world.app_establishes
            if call.kind is HookKind.SOURCE_OBSERVED:
                return HookAnswer(HookOutcome.DONE, word=self._world.app_admits)
            return HookAnswer(HookOutcome.DONE if asked[call.id] > 1 else HookOutcome.LATER)

        answer: HookAnswer = self._process.step(Call(f"the app: {call.kind}", frozenset({"app"}), True), act)
        return answer


class SimulatedBus:
    """`ports.EventBus`: takes everything, and the app hears of it at once; or, while it is out, nothing."""

    def __init__(self, ports: "Ports") -> None:
        self._world = ports.world
        self._process = ports.process

    def send(self, notices: Sequence[Notice]) -> list[bool]:
        def act() -> list[bool]:
            if self._world.bus_out:
                return [False] * len(notices)
            for notice in notices:
                self._world.hear(notice)
            return [True] * len(notices)

        taken: list[bool] = self._process.step(Call(f"the bus, {len(notices)} events", frozenset({"bus"}), True), act)
        return taken


class NoKms:
    """`KeyMaker`: nothing is sealed under the ring of a world with the open vault."""

    def wrapped_data_key(self, purpose: str) -> bytes:
        return f"wrapped for {purpose}".encode()


class Ports:
    """The ports of one process, and the worlds of the flows made of them."""

    def __init__(self, world: World, process: Process) -> None:
        self._is_made = False
        self._world = world
        self.process = process
        self.table = SteppedTable(world, process)
        self.clock = ProcessClock(world, process)
        self.deadline = world.deadline_of(self)
        self.ids = ProcessIds(world, process)
        self.vault = world.vault_of(self)
        self.client = world.client_of(self)
        self.clients = SimulatedClients(self.client)
        self.reads = Reads(self.table)
        self.connects = ConnectStore(self.table, self.clock, self.ids)
        self.tokens = TokenStore(self.table, self.clock, self.ids)
        self.stops = StopStore(self.table, self.clock, self.ids)
        self.revocations = RevocationStore(self.table, self.clock, self.ids)
        self.reconciles = ReconcileStore(self.table, self.clock, self.ids)
        self.events = EventStore(self.table, self.ids)
        self.bus = SimulatedBus(self)
        self.app = SimulatedApp(self)
        self.webhooks = WebhookStore(self.table, self.clock, self.ids)
        self.deliveries = DeliveryStore(self.table, self.clock, self.ids)
        self.sources = SourceStore(self.table, self.clock, self.ids)
        self.operators = OperatorStore(self.table, self.clock, self.ids)
        self.maintains = MaintainStore(self.table, self.clock, self.ids)
        self.ring = RingTable(self.table, self.clock, self.ids)
        self._is_made = True

    # --- for handlers ---

    @property
    def world(self) -> World:
        """All of it, for whoever is not searched in every order."""
        if self.process.is_driven and self._is_made:
            raise TouchedError
        return self._world

    def look[T](self, at: Callable[[World], T]) -> T:
        """What a handler's own eyes see between two calls."""
        found: T = self.process.look(lambda: at(self._world))
        return found

    def item(self, key: Key) -> Mapping[str, Any] | None:
        """One item, as it is now."""
        return self.look(lambda world: None if (item := world.table.item(key)) is None else dict(item))

    def tell(self, what: Callable[[World], object]) -> None:
        """Note something for the judge."""
        self.process.glance(lambda: what(self._world))

    def violation(self, text: str) -> None:
        """Something happened that never may."""
        self.tell(lambda world: world.violation(text))

    def aside[T](self, at: Callable[[World], T]) -> T | None:
        """What only a run is judged by that nobody disturbs; nothing, where orders are searched."""
        return None if self.process.is_driven else at(self._world)

    def aside_item(self, key: Key) -> Mapping[str, Any] | None:
        """One item of the same."""
        return self.aside(lambda world: world.table.item(key))

    def neglected(self, text: str) -> None:
        """Something was left undone although nobody disturbed it."""
        self.aside(lambda world: world.seen.neglected.append(text))

    def at_once(self, act: Callable[[World], None]) -> Callable[[], None]:
        """To be done in a step: something that is no flow of ours."""
        return lambda: act(self._world)

    def pass_time(self, ms: int) -> Callable[[], None]:
        """To be done in a step: time passes."""

        def passes() -> None:
            self._world.now += ms

        return passes

    # --- ports ---

    def on_fault(self, kind: str, fault: Exception) -> None:
        """An item failed, and stays due. Where the table did not answer, all is as if its worker had died at it."""
        if isinstance(fault, StoreError):
            self.process.received.clear()
        self.process.glance(lambda: self._world.on_fault(kind, fault))

    def revoke_now(self, rids: Sequence[str]) -> None:
        """`ports.Kick`: noted; the sweep is a process of its own."""
        self.process.glance(lambda: self._world.kicked.extend(rids))

    def refresh(self, ref: ConnectionRef, pair: str) -> None:
        """`ports.Replay`: by the function that may send one, so in this very process, after it."""
        try:
            replay(ref, pair, self.deadline, self.handing_out)
        except Exception:  # noqa: BLE001 - the real one is another function: its errors do not reach its caller
            return

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
        """`ports.Forward`: by the function that handles deliveries, so in this very process, after it."""
        with suppress(StoreError):
            deliver(client, digest, self.deadline, self.delivering)

    def replay(self, client: str, account: str) -> None:
        """The same, of all that waits beside an account."""
        with suppress(StoreError):
            replay_waiting(client, account, self.deadline, self.delivering)

    @property
    def connecting(self) -> Connecting:
        return Connecting(
            self.reads,
            self.connects,
            self.revocations,
            self.clients,
            self.vault,
            self.clock,
            self.ids,
            self,
            self.on_fault,
            hooks=self.app,
        )

    @property
    def handing_out(self) -> HandingOut:
        return HandingOut(
            self.reads,
            self.tokens,
            self.stops,
            self.clients,
            self.vault,
            self.clock,
            self.ids,
            self,
            self.on_fault,
        )

    @property
    def stopping(self) -> Stopping:
        return Stopping(self.reads, self.stops, self.clock, self.ids, self)

    @property
    def revoking(self) -> Revoking:
        calls, on_fault = self._world.calls_of(), self.on_fault
        return Revoking(
            self.reads, self.revocations, self.clients, self.vault, self.clock, calls, self.ids, on_fault=on_fault
        )

    @property
    def operating(self) -> Operating:
        return Operating(self.reads, self.operators, self.revocations, self.clock, self.ids, self, self.deliveries)

    @property
    def maintaining(self) -> Maintaining:
        return Maintaining(
            reads=self.reads,
            store=self.maintains,
            tokens=self.tokens,
            ring=self.ring,
            keys=self._world.keys,
            whole=self.table,
            replay=self,
            clock=self.clock,
            on_fault=self.on_fault,
        )

    @property
    def publishing(self) -> Publishing:
        return Publishing(self.events, self.bus, self.clock, self.on_fault)

    @property
    def reconciling(self) -> Reconciling:
        return Reconciling(
            reads=self.reads,
            store=self.reconciles,
            connects=self.connects,
            tokens=self.tokens,
            revocations=self.revocations,
            stopping=self.stopping,
            publishing=self.publishing,
            hooks=self.app,
            clients=self.clients,
            clock=self.clock,
            kick=self,
            replay=self,
            webhooks=self.webhooks,
            forward=self,
            on_fault=self.on_fault,
        )

    @property
    def delivering(self) -> Delivering:
        return Delivering(
            reads=self.reads,
            webhooks=self.webhooks,
            store=self.deliveries,
            sources=self.sources,
            tokens=self.tokens,
            stopping=self.stopping,
            clients=self.clients,
            vault=self.vault,
            clock=self.clock,
            replay=self,
            hooks=self.app,
            on_fault=self.on_fault,
        )


__all__ = ["CLIENT", "T0", "Ports", "SweepDeadline", "World", "replace"]
