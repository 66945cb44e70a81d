"""
The shape of a catalogue file's `webhook` block: how a provider's events are verified, read and told apart. Build time
only, as `schema.py`, whose rules hold here too; what a field means stands with the values that it becomes, in
`signatures.py` and `webhooks.py`.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from quitclaim.domain.limits import SECOND

DEFAULT_TOLERANCE_S: Final = 300
"""Where a provider signs a time and names no tolerance."""

Path = Annotated[str, Field(pattern=r"^(?:(?:header|envelope):)?[A-Za-z0-9_.-]+$", max_length=200)]
IdPart = Path
HeaderName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Member = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=64)]
Value = Annotated[str, Field(min_length=1, max_length=200)]
AccountKind = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]
"""What a provider's id is an id of: a user, a workspace, a shop. The words are each entry's own."""
ACCOUNT_AT_BROKER: Final = "account"
"""The kind of what a broker's `account` is, which no identity has to say."""
Accounts = dict[AccountKind, Annotated[list[Path], Field(min_length=1)]]
"""By kind, the paths at which an event may name whom it concerns; the first kind that it names decides."""
NONE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
PARTS: Final = re.compile(r"\{(body|timestamp|id|method|url)\}|([^{}]+)")

type Fault = tuple[tuple[str, ...], str]


class Strict(BaseModel):
    """No unknown field, no conversion, no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SignedTime(Strict):
    """The time that a signature covers."""

    at: Annotated[str, Field(pattern=r"^(header:[a-z][a-z0-9-]*|signature:[A-Za-z0-9_]+=|body:[A-Za-z0-9_.-]+)$")]
    unit: Literal["s", "ms", "rfc3339"]
    tolerance_s: Annotated[int, Field(ge=1, le=86_400)] = DEFAULT_TOLERANCE_S


class Signature(Strict):
    """How a request is signed."""

    scheme: Literal["hmac", "ed25519", "ecdsa_by_key_id", "rsa_certificate", "jws", "signed_request", "secret", "path"]
    headers: list[HeaderName] = []
    key_from: Literal["webhook", "client"] = "webhook"
    key_decoding: Literal["utf8", "hex", "base64", "whsec"] = "utf8"
    algorithm: Literal["sha256", "sha1", "sha512"] = "sha256"
    signed: Annotated[str, Field(max_length=200)] = "{body}"
    encoding: Literal["hex", "hex_upper", "base64", "base64url"] = "hex"
    prefix: Annotated[str, Field(max_length=40)] = ""
    separator: Literal[" ", ","] | None = None
    timestamp: SignedTime | None = None
    id_header: HeaderName | None = None
    member: Annotated[str, Field(pattern=r"^(?:(?:header|body):)?[A-Za-z0-9_.-]+$")] | None = None
    jwks_url: Annotated[str, Field(pattern=r"^https://[^\s]+$")] | None = None
    issuer: Value | None = None


class Handshake(Strict):
    """One way of asking whether we are there."""

    kind: Literal[
        "head", "echo", "crc", "url_hash", "validation", "challenge", "plain_token", "ping", "key_header", "key_body"
    ]
    parameter: Member = "challenge"
    token_parameter: Member | None = None
    member: Member | None = None
    prefix: Annotated[str, Field(max_length=40)] = ""
    when: dict[Member, Value] = {}
    signed: bool = False
    status: Annotated[int, Field(ge=200, le=204)] = 200


class Instant(Strict):
    """A time in the body."""

    path: Path
    unit: Literal["s", "ms", "rfc3339"]


class Events(Strict):
    """Where an event says what."""

    form: Literal["json", "form", "claims"] = "json"
    items: Annotated[str, Field(pattern=r"^(\.|\*|[A-Za-z0-9_.-]+)$")] | None = None
    id: list[IdPart] = []
    kind: list[Path] = []
    accounts: Accounts = {}
    accounts_when: dict[AccountKind, Annotated[dict[Path, Value], Field(min_length=1)]] = {}
    occurred_at: Instant | None = None
    resource: Path | None = None
    source: Path | None = None
    data_source: Path | None = None
    fields: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")], Path] = {}
    is_level: bool = False


class Deauthorization(Strict):
    """An event that says that the grant has ended."""

    when: Annotated[dict[Path, Value], Field(min_length=1)]
    accounts: Accounts = {}
    client: Path | None = None


class SourceSaid(Strict):
    """An event by which a broker says what became of the source that it names."""

    says: Literal["connected", "disconnected", "failed"]
    when: Annotated[dict[Path, Value], Field(min_length=1)]


class Webhook(Strict):
    """How a provider's events are taken."""

    signature: Signature
    handshakes: list[Handshake] = []
    event: Events = Events()
    deauthorizations: list[Deauthorization] = []
    sources: list[SourceSaid] = []
    subscription: Member | None = None
    status: Annotated[int, Field(ge=200, le=204)] = 200
    unready: Literal["hold", "retry"] = "hold"
    receipt: Literal["data_deletion"] | None = None


def compiled_webhook(told: Webhook, own: str | None) -> dict[str, Any]:
    """As `webhooks.py` reads it. *own*: the kind of the account that the identity stores; it needs no word there."""

    def by_kind(accounts: Accounts, when: Mapping[str, Mapping[str, str]] = NONE) -> list[list[Any]]:
        return [[None if kind == own else kind, paths, dict(when.get(kind, {}))] for kind, paths in accounts.items()]

    signature = told.signature.model_dump(mode="json", exclude={"signed", "timestamp"})
    signature["parts"] = parts_of(told.signature.signed)
    time = told.signature.timestamp
    signature["timestamp"] = (
        None if time is None else {"at": time.at, "unit": time.unit, "tolerance_ms": time.tolerance_s * SECOND}
    )
    event = told.event.model_dump(mode="json", exclude={"occurred_at", "accounts_when"})
    occurred = told.event.occurred_at
    event["accounts"] = by_kind(told.event.accounts, told.event.accounts_when)
    event["occurred_at"] = None if occurred is None else [occurred.path, occurred.unit]
    return {
        **told.model_dump(mode="json", exclude={"signature", "event", "deauthorizations", "sources"}),
        "signature": signature,
        "event": event,
        "deauthorizations": [
            {
                "when": each.when,
                "accounts": by_kind(each.accounts),
                "is_signed": is_signed(told, each),
                "client": each.client,
            }
            for each in told.deauthorizations
        ],
        **({"sources": [each.model_dump(mode="json") for each in told.sources]} if told.sources else {}),
    }


def parts_of(signed: str) -> list[str]:
    """The pieces of a signed text: `=` and a literal, or the name of what stands there."""
    return [name or f"={literal}" for name, literal in PARTS.findall(signed)]


def is_signed(told: Webhook, ended: Deauthorization) -> bool:
    """Whether what is signed says who an event concerns, and something of that it is an end."""
    accounts = ended.accounts or told.event.accounts
    named = [path for paths in accounts.values() for path in paths]
    return not any(path.startswith("header:") for path in named) and any(
        not path.startswith("header:") and path != "kind" for path in _conditions(told, ended)
    )


def _conditions(told: Webhook, said: Deauthorization | SourceSaid) -> list[str]:
    """The paths on which it rests; `kind` stands for its own."""
    return [path for each in said.when for path in (told.event.kind if each == "kind" else [each])]


def faults_of_webhook(told: Webhook) -> Iterator[Fault]:
    """What is wrong with the block although every field by itself is right."""
    yield from _faults_of_signature(told)
    yield from _faults_of_id(told)
    yield from _faults_of_handshakes(told)
    yield from _faults_of_sources(told)
    asked = told.signature.scheme in ("secret", "path")
    if asked and not told.event.is_level:
        yield (
            ("webhook", "event", "is_level"),
            "must be true: what is not signed only says that there is something to see",
        )
    for kind in sorted(told.event.accounts_when.keys() - told.event.accounts.keys()):
        yield ("webhook", "event", "accounts_when", kind), "is no kind of accounts; write where it stands there"
    for number, ended in enumerate(told.deauthorizations):
        if ended.client is not None and ended.client.startswith("header:"):
            yield ("webhook", "deauthorizations", str(number), "client"), "is a header, which nobody signs"
    if told.event.form == "claims" and told.signature.scheme not in ("jws", "signed_request"):
        yield ("webhook", "event", "form"), "is claims, which only a signed token has; write json or form"


def _faults_of_signature(told: Webhook) -> Iterator[Fault]:
    spec, place = told.signature, ("webhook", "signature")
    if spec.scheme in ("hmac", "ed25519", "ecdsa_by_key_id", "rsa_certificate") and not spec.headers:
        yield (*place, "headers"), f"are missing; {spec.scheme} comes in one"
    parts = parts_of(spec.signed)
    if "".join(part[1:] if part.startswith("=") else f"{{{part}}}" for part in parts) != spec.signed:
        yield (*place, "signed"), "may name {body}, {timestamp}, {id}, {method} and {url} only"
    if "body" not in parts:
        yield (*place, "signed"), "leaves the body out; write {body} where it stands"
    if ("id" in parts) != (spec.id_header is not None):
        yield (*place, "id_header"), "and {id} in what is signed belong together; write both, or neither"
    is_beside = spec.timestamp is not None and not spec.timestamp.at.startswith("body:")
    if spec.scheme in ("hmac", "ed25519") and ("timestamp" in parts) != is_beside:
        yield (*place, "timestamp"), "and {timestamp} in what is signed belong together: a time beside it is anybody's"
    if spec.scheme in ("secret", "jws", "signed_request") and spec.member is None:
        yield (*place, "member"), "is missing; say where the secret, token or form field stands"
    if spec.scheme == "jws" and (spec.jwks_url is None or spec.issuer is None):
        yield (*place, "jwks_url"), "and issuer say whose token is believed; write both"


def _faults_of_id(told: Webhook) -> Iterator[Fault]:
    signed = {told.signature.id_header} if "{id}" in told.signature.signed else set()
    unsigned = [part for part in told.event.id if part.startswith("header:") and part[7:] not in signed]
    if unsigned and "digest" not in told.event.id:
        yield (
            ("webhook", "event", "id"),
            f"names {', '.join(unsigned)}, which nobody signs: whoever repeats a request writes another; add digest",
        )


def _faults_of_sources(told: Webhook) -> Iterator[Fault]:
    place = ("webhook", "sources")
    if told.sources and told.event.source is None:
        yield ("webhook", "event", "source"), "is missing; say where an event names the source that it is about"
    for number, said in enumerate(told.sources):
        if any(path.startswith("header:") for path in _conditions(told, said)):
            yield (*place, str(number), "when"), "rests on a header, which nobody signs: what it says is anybody's"
    if told.event.source is not None and told.unready == "retry" and "connected" not in _words(told):
        yield place, "names no word for connected: an event that is sent again and again would be taken by nobody"


def _words(told: Webhook) -> set[str]:
    return {each.says for each in told.sources}


def _faults_of_handshakes(told: Webhook) -> Iterator[Fault]:
    for number, shake in enumerate(told.handshakes):
        place = ("webhook", "handshakes", str(number))
        if shake.kind in ("challenge", "plain_token") and not shake.signed:
            yield (*place, "signed"), "must be true: what is signed for a stranger is his"
        if shake.kind == "ping" and not shake.when:
            yield (*place, "when"), "is missing; say by what a ping is told"
