"""
What the flows need from the world. Each port has one real implementation and one for tests; a run is a function of what
they answer.

`Table` is the narrow waist of the store: conditions and updates are values, so that one implementation renders them for
DynamoDB and another evaluates them in memory, and so that a test can drop any single clause and see who notices.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from quitclaim.domain.asked import AuthorizationAsked, VisitSecrets
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import HOOK_CALL_MS
from quitclaim.domain.outcomes import BrokerAnswer, IdentityAnswer, RevokeAnswer, TokenAnswer
from quitclaim.domain.revocations import NO_VARIABLES, Claimed, Material
from quitclaim.domain.secret import Secret
from quitclaim.domain.security_events import SecurityEvents, SetRefused, Transmitter
from quitclaim.domain.tokens import TokenPair
from quitclaim.domain.webhooks import Incoming, Prepared, Read

type Value = str | int | bool | bytes | frozenset[str] | list[Value] | dict[str, Value]
type Item = dict[str, Any]

# --- conditions ------------------------------------------------------------------------------------------------------

type Operator = Literal["=", "<>", "<", "<=", ">", ">=", "absent", "present", "contains", "not contains", "size <"]


@dataclass(frozen=True)
class Clause:
    """
    One comparison of an attribute. With an attribute that is absent it is false, as in DynamoDB; only `<>` and
    `not contains` are then true.
    """

    attribute: str
    operator: Operator
    value: Any = None


@dataclass(frozen=True)
class AnyOf:
    """True if one of the clauses is."""

    clauses: tuple[Clause, ...]


type Condition = tuple[Clause | AnyOf, ...]
"""All of them must hold."""


def equals(attribute: str, value: Any) -> Clause:
    """The attribute is there and equal."""
    return Clause(attribute, "=", value)


def absent(attribute: str) -> Clause:
    """The item has no such attribute (or there is no item)."""
    return Clause(attribute, "absent")


def present(attribute: str) -> Clause:
    """The item has the attribute."""
    return Clause(attribute, "present")


def more(attribute: str, value: int) -> Clause:
    """The attribute is there and greater."""
    return Clause(attribute, ">", value)


def at_most(attribute: str, value: int) -> Clause:
    """The attribute is there and not greater."""
    return Clause(attribute, "<=", value)


def less(attribute: str, value: int) -> Clause:
    """The attribute is there and smaller."""
    return Clause(attribute, "<", value)


def any_of(*clauses: Clause) -> AnyOf:
    """One of the clauses holds."""
    return AnyOf(clauses)


NEW_ITEM: Condition = (absent("PK"),)
"""The item is not there yet."""
THERE: Condition = (present("PK"),)
"""The item is there."""


def seen(version: int | None) -> Condition:
    """The item is as it was read: at that version, or absent."""
    return NEW_ITEM if version is None else (equals("v", version),)


# --- writes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """Primary key of an item."""

    pk: str
    sk: str


@dataclass(frozen=True)
class Put:
    """Replace the whole item. *item* carries no key, `v` or `op`; the store adds them."""

    key: Key
    item: Item
    when: Condition


@dataclass(frozen=True)
class Update:
    """
    Change attributes: set, remove, add to numbers, add to and take from string sets. *upsert* sets `ty`, `sv` and the
    rest if there is no item.
    """

    key: Key
    when: Condition
    put: Mapping[str, Any] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    increase: Mapping[str, int] = field(default_factory=dict)
    include: Mapping[str, frozenset[str]] = field(default_factory=dict)
    exclude: Mapping[str, frozenset[str]] = field(default_factory=dict)
    if_new: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delete:
    """Remove the item."""

    key: Key
    when: Condition


@dataclass(frozen=True)
class Check:
    """Hold the transaction to an item that it does not change."""

    key: Key
    when: Condition


type Write = Put | Update | Delete | Check


class WriteRefusedError(Exception):
    """
    A condition did not hold. *items*: per write the item that refused it (None where the condition held, {} where no
    item is there).
    """

    def __init__(self, items: Sequence[Item | None]) -> None:
        super().__init__("a condition did not hold")
        self.items = list(items)


class WriteBusyError(Exception):
    """A conflict or throttling: nothing was written, and no condition was judged."""


class WriteAmbiguousError(Exception):
    """The table did not answer: the write may have been applied."""


type Cursor = Mapping[str, Any]
"""Where a query goes on."""


@dataclass(frozen=True)
class Page:
    """Items of a query, in sort order, and where to go on."""

    items: tuple[Item, ...]
    after: Cursor | None = None


class Table(Protocol):
    """The one table. Reads of items are consistent; reads of an index are hints."""

    def get(self, key: Key) -> Item | None:
        """The item, or None."""
        ...

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """The items in the order of the keys, up to 100. Not one snapshot: see H-8."""
        ...

    def query(
        self, pk: str, prefix: str = "", *, limit: int | None = None, after: Mapping[str, Any] | None = None
    ) -> Page:
        """Items of one partition whose sort key begins with *prefix*."""
        ...

    def query_index(
        self, index: str, partition: str, *, upto: str | None = None, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        """Entries of an index partition in order, up to and including the sort value *upto*; eventually consistent."""
        ...

    def write(self, write: Write) -> None:
        """One conditional write. Raises `WriteRefusedError`, `WriteBusyError`, `WriteAmbiguousError`."""
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """All or none, at most 100. Raises as `write`."""
        ...

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        """
        Up to 25 conditional updates, each on its own: per update None or the error that `write` would have raised,
        a fault of one update's own among them.
        """
        ...


class WholeTable(Protocol):
    """The table from end to end, for who maintains it: nobody else may read what is not named."""

    def scan(self, *, after: Mapping[str, Any] | None = None) -> Page:
        """
        A page of everything, each item as it is then, in no order. Not one snapshot: what moves meanwhile may be seen
        twice or not at all.
        """
        ...


# --- time, chance, keys ----------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time. Functions get it as an argument; nothing reads another clock."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def pause(self, ms: int) -> None:
        """Let *ms* pass."""
        ...


class Deadline(Protocol):
    """What is left of this invocation, by the runtime's own (not movable) clock."""

    def remaining_ms(self) -> int:
        """Milliseconds until the function is killed."""
        ...


class Ids(Protocol):
    """Fresh random values."""

    def new_id(self) -> str:
        """128 random bits, url-safe, 22 characters."""
        ...

    def new_secret(self) -> Secret:
        """256 random bits, url-safe, 43 characters."""
        ...


class Vault(Protocol):
    """
    Sealing and keyed digests. Every sealed value is bound to what it is for.

    Raises `KeyUnavailableError` when a key cannot be had now, `SealBrokenError` when bytes do not authenticate under
    the key that they name.
    """

    def ready(self, *purposes: str) -> None:
        """Open the current keys of *purposes*, so that a seal or a digest after it needs no other service."""
        ...

    def seal_for_use(self, ref: ConnectionRef, generation: int, token_version: int, pair: TokenPair) -> bytes:
        """The pair's tokens, to be opened for handing out and refreshing."""
        ...

    def open_for_use(
        self, ref: ConnectionRef, generation: int, token_version: int, pair: str, sealed: bytes
    ) -> TokenPair:
        """The pair's tokens."""
        ...

    def seal_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, material: Sequence[Material]
    ) -> bytes:
        """What the provider's revocation takes, to be opened by the revocation worker alone."""
        ...

    def open_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, sealed: bytes
    ) -> tuple[Material, ...]:
        """What the provider's revocation takes."""
        ...

    def seal_identity(self, rid: str, generation: int, access_token: Secret) -> bytes:
        """An access token kept only to learn whose grant it is."""
        ...

    def open_identity(self, rid: str, generation: int, sealed: bytes) -> Secret:
        """That access token."""
        ...

    def seal_authorization(self, state_digest: str, ref: ConnectionRef, generation: int, visit: VisitSecrets) -> bytes:
        """What one visit of a link must know again when it comes back."""
        ...

    def open_authorization(self, state_digest: str, ref: ConnectionRef, generation: int, sealed: bytes) -> VisitSecrets:
        """What one visit knew."""
        ...

    def seal_under_ticket(self, ticket: Secret, text: Secret) -> str:
        """Readable only with the ticket, which is stored nowhere."""
        ...

    def open_under_ticket(self, ticket: Secret, sealed: str) -> Secret:
        """What was sealed under it."""
        ...

    def seal_id_token(
        self, ref: ConnectionRef, generation: int, exchange_id: str, id_token: Secret, nonce: Secret | None
    ) -> bytes:
        """An ID token that nobody has verified yet, and the nonce that it must repeat."""
        ...

    def open_id_token(
        self, ref: ConnectionRef, generation: int, exchange_id: str, sealed: bytes
    ) -> tuple[Secret, Secret | None]:
        """ID token and nonce."""
        ...

    def fingerprint(self, token: Secret) -> str:
        """Keyed digest of a token: tells whether two are the same, and nothing else."""
        ...

    def account_digest(self, client: str, account_id: str) -> str:
        """Keyed digest of a provider's account under a client."""
        ...

    def seal_delivery(self, client: str, digest: str, prepared: Prepared, raw: bytes) -> bytes:
        """A prepared event and the provider's bytes, for one delivery."""
        ...

    def open_delivery(self, client: str, digest: str, sealed: bytes) -> tuple[Prepared, bytes]:
        """What was sealed, looked at again member by member."""
        ...

    def trace_digest(self, client: str, account: str | None, how: str, text: str) -> str:
        """The trace of an event, scoped by client and account: *how* it is told apart from others, and what by."""
        ...

    def ticket(self, ref: ConnectionRef, generation: int, started_at: int) -> Secret:
        """The connect link's ticket: the same for the same start, never stored."""
        ...

    def confirm_code(self, exchange_id: str, started_at: int) -> Secret:
        """The code that the owner brings back: the same for the same exchange, never stored."""
        ...

    def is_confirm_code(self, code: Secret, exchange_id: str, started_at: int) -> bool:
        """Whether *code* is that code; constant time."""
        ...


class KeyMaker(Protocol):
    """Makes data keys that it cannot open."""

    def wrapped_data_key(self, purpose: str) -> bytes:
        """A fresh key, wrapped for *purpose*. Raises `KeyUnavailableError`."""
        ...


# --- telling the app -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Notice:
    """An event on its way to the app: what it is, when it was and what it says; no secret is in any."""

    kind: str
    at: int
    detail: Mapping[str, Any]


class EventBus(Protocol):
    """Where the app hears of events, at least once: what may have been sent is sent again, with the same id."""

    def send(self, notices: Sequence[Notice]) -> list[bool]:
        """
        Whether the bus took each, up to `limits.NOTICES` of them. Never raises: what was not answered was not taken.
        """
        ...


class TransmitterKeys(Protocol):
    """One issuer of security events, with its published keys."""

    @property
    def spec(self) -> Transmitter:
        """As it is set up."""
        ...

    def read(self, token: bytes) -> SecurityEvents | SetRefused:
        """What a token says, or why it is not believed. Raises `KeyUnavailableError`."""
        ...


class Transmitters(Protocol):
    """Who may send security events."""

    def at(self, name: str) -> TransmitterKeys:
        """Raises `NotFoundError`, `StoreError`."""
        ...


class AppHooks(Protocol):
    """What the app is asked to do. A question may be repeated, with the same id; silence is no answer."""

    def has(self, kind: HookKind) -> bool:
        """Whether the app wants to be asked. Raises `StoreError` where nobody can say."""
        ...

    def ask(self, call: HookCall, timeout_ms: int = HOOK_CALL_MS) -> HookAnswer:
        """Ask once and wait so long at most. Never raises."""
        ...


# --- provider clients ------------------------------------------------------------------------------------------------


class Broker(Protocol):
    """Accounts at a broker, behind which users link things on its own pages. A call never follows a redirect."""

    @property
    def state_param(self) -> str:
        """In which parameter of our callback the state comes back."""
        ...

    def account(self, *, reference: str, timeout_ms: int) -> BrokerAnswer:
        """The account of *reference*, made if there is none: two requests at most. May be repeated."""
        ...

    def link(self, *, account: Secret, source: str | None, back: str, timeout_ms: int) -> BrokerAnswer:
        """Where the user links (a source of) the account; the browser comes *back* by itself."""
        ...

    def sign_in(self, *, account: Secret, timeout_ms: int) -> BrokerAnswer:
        """A token with which the app's SDK signs in to the account."""
        ...


class Client(Protocol):
    """
    One OAuth client of the app at one provider: its facts, settings and calls. A call never retries and never follows a
    redirect.
    """

    @property
    def name(self) -> str:
        """Our name of the client; part of barrier and account keys."""
        ...

    @property
    def provider(self) -> str:
        """Catalogue id of the provider."""
        ...

    @property
    def facts(self) -> ProviderFacts:
        """What the catalogue says of the provider."""
        ...

    @property
    def confirmation(self) -> Literal["owner", "none"]:
        """Whether a returned grant waits for its owner."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that an authorization asks for, unless its start names others."""
        ...

    @property
    def optional_scopes(self) -> frozenset[str]:
        """What a start may ask for beyond them."""
        ...

    @property
    def required_scopes(self) -> frozenset[str] | None:
        """Without which a grant is refused; None: without any that was asked for."""
        ...

    @property
    def purge_on_loss(self) -> bool:
        """Whether a lost grant purges like a disconnect."""
        ...

    @property
    def broker(self) -> Broker | None:
        """
        The broker behind whose accounts this client's users link things; None where a code is exchanged. Raises
        `ClientConfigError`.
        """
        ...

    def prepare(self) -> None:
        """
        Have the client's secret at hand, so that a call after it fails only at the provider. Raises
        `ClientConfigError`, or `KeyUnavailableError` where nobody can say now.
        """
        ...

    def at_start(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """
        What the app names for the provider's addresses when it starts, with defaults. Raises `InvalidBodyError` for
        what is missing, unknown or not allowed.
        """
        ...

    def in_import(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """
        The same with a grant that the app holds already: what a start and a callback filled then. Raises
        `InvalidBodyError`.
        """
        ...

    def in_callback(self, known: Mapping[str, str], query: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
        """
        What the callback fills of them; what it repeats must be what is *known*. Raises `CallbackParameterError`.
        """
        ...

    def scopes_in_callback(self, query: Mapping[str, Sequence[str]]) -> frozenset[str] | None:
        """What was granted, where this provider says so in its callback (RB-55); None where it does not."""
        ...

    def authorize_url(self, asked: AuthorizationAsked) -> str:
        """Where the browser is sent (RFC 6749 section 4.1.1, RFC 7636 section 4.3)."""
        ...

    def is_issuer(self, values: Sequence[str]) -> bool:
        """Whether the callback's `iss` values are those of this provider (RFC 9207 section 2.4)."""
        ...

    def exchange(
        self,
        *,
        code: Secret,
        verifier: Secret | None,
        redirect_uri: str,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> TokenAnswer:
        """
        The code turned into tokens: one request (RFC 6749 section 4.1.3). It is on record by then: settings that make
        no request are answered as not sent, never raised.
        """
        ...

    def refresh(
        self,
        *,
        refresh_token: Secret,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
        is_import: bool = False,
    ) -> TokenAnswer:
        """
        Fresh tokens: one request (RFC 6749 section 6), or not sent, as above. *variables* are the grant's.
        *is_import*: the token is the app's and has never served here, so that its refusal says nothing of other grants.
        """
        ...

    def expects_id_token(self, scopes: frozenset[str]) -> bool:
        """Whether an answer to these scopes must say whose grant it is by an ID token."""
        ...

    def wants_nonce(self, scopes: frozenset[str]) -> bool:
        """Whether an authorization for these scopes carries a nonce, which its ID token must repeat."""
        ...

    def subject(
        self, *, id_token: Secret, nonce: Secret | None, access_token: Secret, timeout_ms: int
    ) -> IdentityAnswer:
        """Whose grant it is by a verified ID token; the issuer's keys are asked for at most once."""
        ...

    def identity(
        self, *, access_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> IdentityAnswer:
        """Whose grant it is. *variables* are the grant's."""
        ...

    async def renew(
        self, *, refresh_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> TokenAnswer:
        """As `refresh`, of a queued token and among others: one request. A refusal is what is to be expected."""
        ...

    async def revoke(self, *, material: Material, timeout_ms: int) -> RevokeAnswer:
        """The end of a token at the provider: one request (RFC 7009 section 2.1)."""
        ...


class Clients(Protocol):
    """The clients of this stack."""

    def named(self, name: str) -> Client:
        """Raises `ProviderNotRegisteredError`."""
        ...

    def names(self) -> frozenset[str]:
        """All that are configured now."""
        ...

    def manual_page(self, provider: str) -> str | None:
        """Where the provider lets a user remove the access by hand."""
        ...


type CallAnswer = RevokeAnswer | TokenAnswer | None
"""Of a revocation, or of the refresh under its claim; None: nothing was sent."""


class Calls(Protocol):
    """
    Calls of the revocation worker that are under way at once. The flow that starts them stays one thread of thought;
    how they run beside each other is this port's.
    """

    @property
    def in_flight(self) -> int:
        """How many were started and not yet handed back by `finished`."""
        ...

    def start(self, claim: Claimed, call: Callable[[], Coroutine[Any, Any, CallAnswer]]) -> None:
        """Send it on its way."""
        ...

    def finished(self, *, at_most: int, wait_ms: int) -> list[tuple[Claimed, CallAnswer]]:
        """
        What has been answered: *at_most* so many, or what there is after *wait_ms*. A call that raised is handed back
        as unknown: it may have been sent.
        """
        ...


class Breaker(Protocol):
    """Holds a burst of one client's off the provider."""

    def admits(self, client: str) -> bool:
        """One more of this client; False, and somebody is told, where there were too many of late."""
        ...


class WebhookAddress(Protocol):
    """One address at which a provider's events come in for one client."""

    @property
    def provider(self) -> str:
        """Catalogue id of the provider."""
        ...

    @property
    def client(self) -> str:
        """Our name of the client."""
        ...

    @property
    def asks_for_retry(self) -> bool:
        """Whether the provider sends again what no connection can take now: then it is not kept for it."""
        ...

    def receipt(self, digest: str) -> str | None:
        """The JSON that an event is answered with once it is durable, if its provider wants any."""
        ...

    def read(self, request: Incoming, now: int) -> Read:
        """What a request is: refused, a handshake, or events that are believed. Raises `KeyUnavailableError`."""
        ...


class WebhookAddresses(Protocol):
    """The addresses that are set up."""

    def at(self, client: str, endpoint: str | None) -> WebhookAddress:
        """
        What is at an address. Raises `WebhooksNotSupportedError` where there is none, `ClientConfigError` where its
        settings do not hold, `KeyUnavailableError` where a secret cannot be had now.
        """
        ...


class Kick(Protocol):
    """Asks the revocation sweep to look at some revocations now. Best effort: a lost kick costs a minute."""

    def revoke_now(self, rids: Sequence[str]) -> None:
        """Never raises."""
        ...


class Forward(Protocol):
    """
    Puts deliveries before those who handle them. Best effort, for the table remembers: what is not sent is due, and
    reconciliation sends it again.
    """

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
        """One delivery, which nobody is to handle sooner than in so many milliseconds. Never raises."""
        ...

    def replay(self, client: str, account: str) -> None:
        """All that waits beside an account, in the order in which it arrived. Never raises."""
        ...


class Replay(Protocol):
    """Has a refresh sent again by the one function that may send one."""

    def refresh(self, ref: ConnectionRef, pair: str) -> None:
        """Never raises."""
        ...
