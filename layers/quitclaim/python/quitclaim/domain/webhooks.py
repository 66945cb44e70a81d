"""
Webhooks: what a provider's event means, frozen once it was verified, and the life of its delivery to the app.

Preparing and handling are two phases (M-60): the first verifies, reads and stores; the second may come an hour later
and trusts nothing but what was frozen, and of that only the meaning, never an authority (M-62, M-64).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from quitclaim.domain.errors import SealBrokenError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    DELIVERY_LEASE_MS,
    EVENT_ACCOUNTS,
    EVENT_FIELDS,
    EVENT_TEXT_BYTES,
    GUARD_MS,
    PARKED_MS,
)
from quitclaim.domain.secret import Secret

SCHEMA: Final = 1
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
SHA256: Final = re.compile(r"[0-9a-f]{64}")
TIME_DIGITS: Final = 13
"""In which times are written."""


class Trust(StrEnum):
    """Why an event is believed to be the provider's, and so how far."""

    SIGNED = "signed"
    """Its bytes were signed with a key that only the provider and the app have."""
    INDIRECT = "indirect"
    """They were, and speak of something beside the grant that may have ended it: a session, the account."""
    SECRET = "secret"  # noqa: S105 - a kind of trust
    """It carried a secret of the app, in its path, a header or its body: whoever has seen one can make another."""

    @property
    def is_hint(self) -> bool:
        """Whether it only says that there is something to look at: it ends no grant (custody decision 19)."""
        return self is not Trust.SIGNED


@dataclass(frozen=True)
class Prepared:
    """
    What an event means, as it was verified (M-60). Times are milliseconds; what a provider does not say is absent.

    *accounts*: the provider's ids of whom it concerns (as it is stored, the one whose delivery it is); *named_by*: what
    they are ids of, where that is not the account itself: a workspace, say, and every connection of it is meant.
    *fields*: what the catalogue picks out of it.
    *sha256*: of the request's body as it came. *element*: which event of its request this is, where that brought
    several. *deauthorizes*: the provider says that the user or the provider ended the grant. *is_level*: it says that
    something changed, not what; a later one of the same account says it as well (M-75). *source_word*: what it says of
    the source that it names, where it says anything of it (`sources.SourceWord`).
    """

    provider: str
    client: str
    received_at: int
    trust: Trust
    sha256: str
    size: int
    endpoint: str | None = None
    kind: str | None = None
    event_id: str | None = None
    accounts: tuple[str, ...] = ()
    named_by: str | None = None
    occurred_at: int | None = None
    sent_at: int | None = None
    resource: str | None = None
    source: str | None = None
    data_source: str | None = None
    source_word: str | None = None
    content_type: str | None = None
    element: int | None = None
    deauthorizes: bool = False
    is_level: bool = False
    truncated: bool = False
    fields: Mapping[str, str | int | bool] = field(default_factory=dict)

    def as_mapping(self) -> dict[str, Any]:
        """As it is stored: an absent value has no member."""
        found: dict[str, Any] = {"schema": SCHEMA}
        for name in _MEMBERS:
            value = getattr(self, name)
            if value is None or value in ((), {}):
                continue
            found[name] = list(value) if name == "accounts" else dict(value) if name == "fields" else value
        return found


_INTEGERS: Final = frozenset({"received_at", "size", "occurred_at", "sent_at", "element"})
_TRUTHS: Final = frozenset({"deauthorizes", "is_level", "truncated"})
_NEEDED: Final = frozenset({"schema", "provider", "client", "received_at", "trust", "sha256", "size", *_TRUTHS})
_MEMBERS: Final = tuple(each.name for each in fields(Prepared))
_NAMES: Final = frozenset({"schema", *_MEMBERS})


def prepared_of(stored: Mapping[str, Any]) -> Prepared:
    """
    A prepared event as it comes out of the table again: exactly the members it may have, each of its type and within
    its bounds (M-62). Raises `SealBrokenError`: it was not written by this code, whatever opened it.
    """
    fault = _fault_of(stored)
    if fault is not None:
        raise SealBrokenError(f"a prepared webhook does not hold: {fault}")
    told = {name: value for name, value in stored.items() if name != "schema"}
    told["trust"] = Trust(told["trust"])
    told["accounts"] = tuple(told.get("accounts", ()))
    return Prepared(**told)


def _fault_of(stored: Mapping[str, Any]) -> str | None:
    """The first thing that is wrong; a name, never a value."""
    if stored.keys() - _NAMES or _NEEDED - stored.keys():
        return "its members"
    if stored["schema"] != SCHEMA or isinstance(stored["schema"], bool):
        return "schema"
    for name, value in stored.items():
        if not _holds(name, value):
            return name
    return None


def _holds(name: str, value: Any) -> bool:
    match name:
        case "trust":
            return value in tuple(Trust)
        case "sha256":
            return isinstance(value, str) and SHA256.fullmatch(value) is not None
        case "client":
            return isinstance(value, str) and NAME.fullmatch(value) is not None
        case "accounts":
            return isinstance(value, list) and 1 <= len(value) <= EVENT_ACCOUNTS and all(map(is_text, value))
        case "fields":
            return (
                isinstance(value, dict)
                and 1 <= len(value) <= EVENT_FIELDS
                and all(isinstance(key, str) and FIELD_NAME.fullmatch(key) for key in value)
                and all(is_text(each) or isinstance(each, int) for each in value.values())
            )
        case _ if name in _TRUTHS:
            return isinstance(value, bool)
        case "schema":
            return True
        case _ if name in _INTEGERS:
            return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**TIME_DIGITS
        case _:
            return is_text(value)


def is_text(value: Any) -> bool:
    """Text that may stand in a prepared event: not empty, and of a bounded length."""
    return isinstance(value, str) and 0 < len(value.encode("utf-8", "surrogatepass")) <= EVENT_TEXT_BYTES


# --- what comes in ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Incoming:
    """
    A request on a webhook's address, as it came: *url* is the public one, byte for byte as the provider has it;
    *headers* are by lower-case name; *body* is what was sent, not what it means.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = field(repr=False)


class RefusalReason(StrEnum):
    """Why a request is not believed. Each is a metric; the provider is told none of them."""

    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_MALFORMED = "signature_malformed"
    SIGNATURE_WRONG = "signature_wrong"
    TIMESTAMP_MISSING = "timestamp_missing"
    TIMESTAMP_MALFORMED = "timestamp_malformed"
    TIMESTAMP_OLD = "timestamp_old"
    TIMESTAMP_AHEAD = "timestamp_ahead"
    SIGNED_PART_MISSING = "signed_part_missing"
    ALGORITHM = "algorithm"
    KEY_UNKNOWN = "key_unknown"
    KEY_NOT_VALID_NOW = "key_not_valid_now"
    CLAIMS = "claims"
    SECRET_MISSING = "secret_missing"  # noqa: S105 - a reason
    SECRET_WRONG = "secret_wrong"  # noqa: S105 - a reason
    SUBSCRIPTION = "subscription"
    HANDSHAKE = "handshake"
    ENCODED = "encoded"
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    METHOD = "method"


@dataclass(frozen=True)
class Refused:
    """It is not believed, or not taken; nothing was stored."""

    reason: RefusalReason


@dataclass(frozen=True)
class Shaken:
    """
    A handshake: what is answered, and nothing else happens. *body* is text, whatever it holds; *brings*, if it is not
    None, is what must reach the app first: the provider gives it the key in this request and never again.
    """

    status: int = 200
    content_type: str | None = None
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    brings: "Event | None" = None


@dataclass(frozen=True)
class Event:
    """
    One event of a request: its meaning, the provider's bytes of it, and by what it is told apart from others of its
    account (*how* it is known, and *name*). *until*: what comes like it until then is a copy of it, and it is handled
    after; None: whenever that comes.
    """

    prepared: Prepared
    raw: bytes = field(repr=False)
    how: str
    name: str
    until: int | None = None


@dataclass(frozen=True)
class Taken:
    """It is believed: its events, none where it only asks whether we are there. *status* is the provider's 2xx."""

    events: tuple[Event, ...]
    status: int = 200


type Read = Refused | Shaken | Taken


@dataclass(frozen=True)
class WebhookKeys:
    """
    What a client's settings hold for its webhooks, opened: secrets, the newest first; public keys by their id; what
    the provider says in a handshake, opened when one comes; the id of the hook or subscription at the provider; where
    the app tells users what became of a deletion that they asked for.
    """

    secrets: tuple[Secret, ...] = ()
    public: Mapping[str, str] = field(default_factory=dict)
    verify_token: Callable[[], Secret] | None = None
    hook_id: str | None = None
    account: str | None = None
    status_page: str | None = None


# --- the delivery ----------------------------------------------------------------------------------------------------


class DeliveryState(StrEnum):
    """
    accepted: durable, to be forwarded. processing: somebody has it. parked: waits for its connection. processed,
    dropped: over; what comes again is a duplicate.
    """

    ACCEPTED = "accepted"
    PROCESSING = "processing"
    PARKED = "parked"
    PROCESSED = "processed"
    DROPPED = "dropped"

    @property
    def is_over(self) -> bool:
        """Whether its body is erased and nothing happens by it any more."""
        return self in (DeliveryState.PROCESSED, DeliveryState.DROPPED)


CLAIMABLE: Final = (DeliveryState.ACCEPTED, DeliveryState.PARKED, DeliveryState.PROCESSING)


class ClaimVerdict(StrEnum):
    """What a worker that wants a delivery finds."""

    FREE = "free"
    TAKEN = "taken"
    """Another worker has it, and its lease and a guard are not over (M-68)."""
    OVER = "over"
    """It was processed or dropped: a duplicate, without any side effect (M-67)."""


@dataclass(frozen=True)
class Delivery:
    """
    Trace and inbox in one: the event of one client by its digest, or, with *target*, one connection's share of it
    (U-15). *body* is the prepared event and the provider's bytes, sealed; it is erased when the delivery is over.

    *claim* is a fresh token of each attempt, *until* the end of its lease, measured from the claim (M-65). *next* is
    when `reconcile` sends it again.
    """

    client: str
    digest: str
    provider: str
    state: DeliveryState
    received: int
    size: int
    body: bytes | None = None
    next: int | None = None
    sends: int = 0
    claims: int = 0
    claim: str | None = None
    until: int | None = None
    done: int | None = None
    reason: str | None = None
    target: ConnectionRef | None = None
    beside: str | None = None
    """The digest of the account that it is parked beside, until it is over."""
    again: int | None = None
    """When an operator had it delivered after all."""
    accounts: frozenset[str] = frozenset()
    """Of one that is kept for operators: digests of the accounts that it names."""
    v: int = 0

    @property
    def give_up_at(self) -> int:
        """When it is no longer tried, nor parked."""
        return (self.again or self.received) + PARKED_MS

    @property
    def is_kept(self) -> bool:
        """Whether nobody had it, and operators may have it delivered after all."""
        return self.state is DeliveryState.DROPPED and self.body is not None

    def verdict(self, now: int) -> ClaimVerdict:
        """Whether a worker may take it at *now*: what the condition of its claim holds it to."""
        if self.state.is_over:
            return ClaimVerdict.OVER
        if self.until is not None and self.until + GUARD_MS > now:
            return ClaimVerdict.TAKEN
        return ClaimVerdict.FREE


@dataclass(frozen=True)
class Claim:
    """A worker's right to a delivery: only its holder completes or releases it (M-69)."""

    client: str
    digest: str
    token: str
    until: int
    target: ConnectionRef | None = None


@dataclass(frozen=True)
class KeptAt:
    """A place among the deliveries that are kept for operators: a shard, and the entry of it that it is behind."""

    shard: int = 0
    after: Mapping[str, Any] | None = None


def claim_of(delivery: Delivery, token: str, now: int) -> Claim:
    """A claim that begins at *now*: however long the event has waited, its lease is a full one (M-65)."""
    return Claim(delivery.client, delivery.digest, token, now + DELIVERY_LEASE_MS, delivery.target)
