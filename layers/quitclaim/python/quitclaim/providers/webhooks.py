"""
A provider's webhooks: its handshakes, what its events mean, and by what they are told apart, as data of the catalogue.

What is read here was believed first (`signatures.py`). An event whose meaning cannot be read is taken all the same: its
bytes are the provider's, and the app may know more of them than the catalogue does.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl

from quitclaim.domain.limits import (
    ACCEPTED_BODY_BYTES,
    EVENT_FIELDS,
    EVENTS_AT_ONCE,
    SECOND,
    STORED_BODY_BYTES,
)
from quitclaim.domain.webhooks import (
    Event,
    Incoming,
    Prepared,
    Read,
    RefusalReason,
    Refused,
    Shaken,
    Taken,
    Trust,
    WebhookKeys,
)
from quitclaim.providers.signatures import (
    HINTED,
    Believed,
    Judged,
    SignatureSpec,
    TimestampSpec,
    as_bytes,
    as_text,
    at_path,
    instant_of,
    judge_hmac,
    judge_secret,
    parsed,
    sha256,
    text_at,
)

if TYPE_CHECKING:
    from quitclaim.providers.id_token import KeySource

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
CHALLENGE: Final = re.compile(r"[A-Za-z0-9_.~=-]{1,512}")
"""
What is answered back, or signed, because a stranger sent it. No event of any provider has this form: they are JSON, or
several parts with signs between that this does not know. So no answer of ours is anybody's signature of an event.
"""
SHOWN: Final = re.compile(r"[\x20-\x7e]{1,2048}")
LEVEL_BUCKET_MS: Final = 3 * SECOND
"""
A hint that nothing tells apart from an earlier one is a duplicate of what came in the same few seconds; it is not
handled before they are over, so that whatever it stands for had happened by then (M-75).
"""
LONGEST_NAME: Final = 200
"""In bytes, of a kind, an id or an account: what is longer is none. So a prepared event always fits its bound (K-4)."""
LONGEST_FIELD: Final = 100
CODE_CHARS: Final = 24
"""Of a receipt's code: the same for every copy of an event, and nobody's to guess."""


@dataclass(frozen=True)
class Condition:
    """What must stand at a path, as text."""

    path: str
    equals: str


type AccountPaths = tuple[tuple[str | None, tuple[str, ...], tuple[Condition, ...]], ...]
"""
Where an event names whom it concerns, by what it names them by: None, the account's own id as the identity stores it;
else a further name of theirs. The first that it names decides, of those whose conditions hold.
"""


@dataclass(frozen=True)
class HandshakeSpec:
    """
    One way in which a provider asks whether we are there.

    echo, validation: a parameter of the query comes back. crc: with an HMAC of it. url_hash: with a digest of it, of
    the token that the app chose and of our address. challenge, plain_token: a member of a signed body comes back, the
    latter with an HMAC of it. ping: nothing comes back. key_header, key_body: the request brings the key.
    """

    kind: Literal[
        "head", "echo", "crc", "url_hash", "validation", "challenge", "plain_token", "ping", "key_header", "key_body"
    ]
    parameter: str  # of the query, the header's name, or the path in the body
    token_parameter: str | None
    member: str | None  # of the answer; None: the text alone
    prefix: str
    when: tuple[Condition, ...]
    signed: bool
    status: int


@dataclass(frozen=True)
class EventSpec:
    """
    Where an event says what. Paths are of the body; `header:name` is a header, `envelope:path` the body around the
    elements of a batch, `list` the name of the list that an element stands in. *items*: None, one event; `.`, the
    body is a list; `*`, each member that is a list; else the path of one.
    """

    form: Literal["json", "form", "claims"]
    items: str | None
    id: tuple[str, ...]
    kind: tuple[str, ...]
    accounts: AccountPaths
    occurred_at: tuple[str, str] | None
    resource: str | None
    source: str | None
    data_source: str | None
    fields: tuple[tuple[str, str], ...]
    is_level: bool


@dataclass(frozen=True)
class DeauthorizationSpec:
    """
    An event by which the user or the provider has ended the grant, and where its accounts stand if elsewhere.
    *is_signed*: what says so and who it concerns is signed, not only a header beside it. Else it is a hint.
    *client*: where it says whose grants have ended, of providers that tell everybody: only where that is this client's
    own id it ends anything; else the provider is asked.
    """

    when: tuple[Condition, ...]
    accounts: AccountPaths
    is_signed: bool
    client: str | None


@dataclass(frozen=True)
class SourceSaidSpec:
    """An event by which a broker says what became of the source that it names (`sources.SourceWord`)."""

    says: str
    when: tuple[Condition, ...]


@dataclass(frozen=True)
class WebhookSpec:
    """A provider's webhooks. *unready*: what an event meets whose connection cannot take it now."""

    signature: SignatureSpec
    handshakes: tuple[HandshakeSpec, ...]
    event: EventSpec
    deauthorizations: tuple[DeauthorizationSpec, ...]
    subscription: str | None  # the path of the subscription's id, where the settings hold one
    status: int
    unready: Literal["hold", "retry"]
    receipt: Literal["data_deletion"] | None
    """What is answered beside the status: Meta's word for whoever asked for a deletion, where the app has a page."""
    sources: tuple[SourceSaidSpec, ...] = ()


class ProviderHook:
    """`ports.WebhookAddress`: one address of one client."""

    def __init__(
        self,
        provider: str,
        client: str,
        endpoint: str | None,
        spec: WebhookSpec,
        keys: WebhookKeys,
        *,
        client_id: str,
        published: "Callable[[str], KeySource] | None" = None,
    ) -> None:
        self.provider = provider
        self.client = client
        self._endpoint = endpoint
        self._spec = spec
        self._keys = keys
        self._client_id = client_id
        self._published = published

    @property
    def asks_for_retry(self) -> bool:
        """Whether the provider sends again what no connection can take now."""
        return self._spec.unready == "retry"

    def receipt(self, digest: str) -> str | None:
        """
        The JSON that an event is answered with, by its digest: where its user reads what becomes of the deletion, and
        the code to ask there with. None: nothing but the status.
        """
        page = self._keys.status_page
        if self._spec.receipt is None or page is None:
            return None
        code = sha256(digest.encode())[:CODE_CHARS]
        url = f"{page}{'&' if '?' in page else '?'}code={code}"
        return json.dumps({"url": url, "confirmation_code": code})

    def read(self, request: Incoming, now: int) -> Read:
        """
        A handshake to answer, events that are believed, or why not. Nothing is asked of anybody but, where a provider
        signs with published keys, those.
        """
        if len(request.body) > ACCEPTED_BODY_BYTES:
            return Refused(RefusalReason.TOO_LARGE)
        if request.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            return Refused(RefusalReason.ENCODED)
        if request.method != "POST":
            return self._asked(request)
        unsigned = self._unsigned_handshake(request, now)
        if unsigned is not None:
            return unsigned
        judged = self._judge(request, now)
        if isinstance(judged, Refused):
            return judged
        content = self._content(request, judged)
        signed = self._signed_handshake(content)
        if signed is not None:
            return signed
        if not self._is_of_the_subscription(content):
            return Refused(RefusalReason.SUBSCRIPTION)
        return self._taken(request, content, judged, now)

    # --- whether it is believed ---

    def _judge(self, request: Incoming, now: int) -> Judged:
        spec, keys = self._spec.signature, self._keys
        match spec.scheme:
            case "hmac":
                return judge_hmac(spec, request, keys, now)
            case "path":  # the address is the secret: whoever made this object has compared it
                return Believed()
            case "secret":
                where, _, name = (spec.member or "").partition(":")
                given = request.headers.get(name) if where == "header" else text_at(parsed(request.body), name)
                return judge_secret(keys, given)
        from quitclaim.providers import asymmetric

        match spec.scheme:
            case "ed25519":
                return asymmetric.judge_ed25519(spec, request, keys, now)
            case "ecdsa_by_key_id":
                return asymmetric.judge_ecdsa(spec, request, keys, now)
            case "rsa_certificate":
                return asymmetric.judge_certificate(spec, request, keys, now)
            case "signed_request":
                return asymmetric.judge_signed_request(spec, request, keys, now)
            case _:
                if self._published is None or spec.jwks_url is None:
                    return Refused(RefusalReason.KEY_UNKNOWN)
                return asymmetric.judge_jws(spec, request, self._client_id, self._published(spec.jwks_url), now)

    @property
    def _trust(self) -> Trust:
        return Trust.SECRET if self._spec.signature.scheme in HINTED else Trust.SIGNED

    # --- handshakes ---

    def _asked(self, request: Incoming) -> Read:
        """GET and HEAD: a handshake, or nothing."""
        for shake in self._spec.handshakes:
            if shake.kind == "head" and request.method == "HEAD":
                return Shaken(shake.status)
            if request.method != "GET" or shake.kind not in ("echo", "crc", "url_hash"):
                continue
            if not all(request.query.get(each.path) == each.equals for each in shake.when):
                continue
            asked = request.query.get(shake.parameter)
            if asked is None:
                continue
            return self._answered(shake, asked, request)
        return Shaken() if request.method == "HEAD" else Refused(RefusalReason.METHOD)

    def _answered(self, shake: HandshakeSpec, asked: str, request: Incoming) -> Read:
        if not CHALLENGE.fullmatch(asked):
            return Refused(RefusalReason.HANDSHAKE)
        if shake.token_parameter is not None:
            token = self._keys.verify_token
            given = request.query.get(shake.token_parameter, "")
            if token is None or not hmac.compare_digest(as_bytes(given), token().reveal().encode()):
                return Refused(RefusalReason.HANDSHAKE)
        match shake.kind:
            case "echo":
                return _answer(shake, asked)
            case "crc":
                if not self._keys.secrets:
                    return Refused(RefusalReason.KEY_UNKNOWN)
                digest = hmac.digest(self._keys.secrets[0].reveal().encode(), asked.encode(), "sha256")
                return _answer(shake, shake.prefix + base64.b64encode(digest).decode())
            case _:
                if self._keys.verify_token is None:
                    return Refused(RefusalReason.HANDSHAKE)
                signed = asked + self._keys.verify_token().reveal() + request.url.partition("?")[0]
                return _answer(shake, hashlib.sha256(as_bytes(signed)).hexdigest())

    def _unsigned_handshake(self, request: Incoming, now: int) -> Read | None:
        """A POST that nobody can have signed yet. It has no effect, and what it is answered says nothing."""
        for shake in self._spec.handshakes:
            if shake.signed:
                continue
            match shake.kind:
                case "validation":
                    asked = request.query.get(shake.parameter)
                    if asked is not None:
                        shown = SHOWN.fullmatch(asked) is not None
                        return Shaken(shake.status, TEXT, asked) if shown else Refused(RefusalReason.HANDSHAKE)
                case "ping":
                    if shake.when and _holds(shake.when, parsed(request.body)):
                        return Shaken(shake.status)
                case "key_header":
                    key = request.headers.get(shake.parameter)
                    if key is not None:
                        return self._brought(shake, request, key, {shake.parameter: key}, now)
                case "key_body":
                    key = text_at(parsed(request.body), shake.parameter)
                    if key is not None and not any(name in request.headers for name in self._spec.signature.headers):
                        return self._brought(shake, request, key, {}, now)
                case _:
                    continue
        return None

    def _brought(self, shake: HandshakeSpec, request: Incoming, key: str, back: Mapping[str, str], now: int) -> Read:
        """
        The key of what is signed later. Anybody could send one, so it is believed by nobody here: it reaches the app as
        an event, at an address that only the app has told anybody, and counts once the app puts it into its settings.
        An address that names no account leads to nobody.
        """
        if self._endpoint is None or self._keys.account is None or not CHALLENGE.fullmatch(key):
            return Refused(RefusalReason.HANDSHAKE)
        prepared = Prepared(
            self.provider,
            self.client,
            now,
            Trust.SECRET,
            sha256(request.body),
            len(request.body),
            endpoint=self._endpoint,
            kind="quitclaim.key",
            accounts=(self._keys.account,),
        )
        raw = json.dumps({"key": key}).encode()
        return Shaken(shake.status, headers=back, brings=Event(prepared, raw, "key", sha256(raw)))

    def _signed_handshake(self, content: Any) -> Shaken | None:
        for shake in self._spec.handshakes:
            if not shake.signed or shake.kind not in ("challenge", "plain_token", "ping"):
                continue
            if not _holds(shake.when, content):
                continue
            if shake.kind == "ping":
                return Shaken(shake.status)
            asked = text_at(content, shake.parameter)
            if asked is None or not CHALLENGE.fullmatch(asked):
                continue
            if shake.kind == "challenge":
                return _answer(shake, asked)
            digest = hmac.digest(self._keys.secrets[0].reveal().encode(), asked.encode(), "sha256").hex()
            return Shaken(shake.status, JSON, json.dumps({"plainToken": asked, "encryptedToken": digest}))
        return None

    # --- events ---

    def _content(self, request: Incoming, judged: Believed) -> Any:
        match self._spec.event.form:
            case "claims":
                # Apple writes the event into its token as text that is JSON once more.
                said = dict(judged.claims or {})
                inner = said.get("events")
                return said | {"events": parsed(as_bytes(inner))} if isinstance(inner, str) else said
            case "form":
                try:
                    return dict(parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=1_000))
                except ValueError:
                    return None
            case _:
                return parsed(request.body)

    def _is_of_the_subscription(self, content: Any) -> bool:
        """Where the settings name one: an event of another is not ours (it names no secret, and is no proof)."""
        path, expected = self._spec.subscription, self._keys.hook_id
        if path is None or expected is None:
            return True
        return hmac.compare_digest(as_bytes(text_at(content, path) or ""), expected.encode())

    def _taken(self, request: Incoming, content: Any, judged: Believed, now: int) -> Read:
        elements = list(_elements(self._spec.event, content))
        if len(elements) > EVENTS_AT_ONCE:
            return Refused(RefusalReason.TOO_MANY)
        events = []
        for number, (element, listed) in enumerate(elements):
            said = _Said(request, content, element, listed)
            events.append(self._event(said, judged, now, number if self._is_batched else None))
        if sum(max(1, len(each.prepared.accounts)) for each in events) > EVENTS_AT_ONCE:
            return Refused(RefusalReason.TOO_MANY)
        return Taken(tuple(events), self._spec.status)

    @property
    def _is_batched(self) -> bool:
        return self._spec.event.items is not None

    def _event(self, said: "_Said", judged: Believed, now: int, number: int | None) -> Event:
        spec, request = self._spec.event, said.request
        parts = ".".join(part for part in (said.text(each) for each in spec.kind) if part)
        kind = parts if _is_short(parts, LONGEST_NAME) else None
        ended = self._ended(said, kind)
        by, accounts = said.accounts(ended.accounts if ended is not None and ended.accounts else spec.accounts)
        if not accounts and self._keys.account is not None:
            accounts = [self._keys.account]
        fields = {name: value for name, path in spec.fields if (value := said.plain(path)) is not None}
        raw = request.body if number is None else _spelled(said.element)
        signed = raw if number is not None or judged.signed is None else judged.signed
        told = [sha256(signed) if each == "digest" else said.text(each) for each in spec.id]
        event_id = "/".join(each for each in told if each is not None) if spec.id and None not in told else None
        how, name, until = _told_apart(spec, told, signed, now)
        body = request.body
        prepared = Prepared(
            provider=self.provider,
            client=self.client,
            received_at=now,
            trust=self._trust_in(ended, said),
            sha256=sha256(body),
            size=len(body),
            endpoint=self._endpoint if self._spec.signature.scheme != "path" else None,
            kind=kind,
            event_id=event_id if event_id is not None and _is_short(event_id, LONGEST_NAME) else None,
            accounts=tuple(accounts),
            named_by=by if accounts else None,
            occurred_at=said.instant(spec.occurred_at),
            sent_at=judged.sent_at,
            resource=said.text(spec.resource),
            source=said.text(spec.source),
            data_source=said.text(spec.data_source),
            source_word=self._word(said, kind),
            content_type=_content_type(request),
            element=number,
            deauthorizes=ended is not None,
            is_level=spec.is_level,
            truncated=len(raw) > STORED_BODY_BYTES,
            fields=dict(list(fields.items())[:EVENT_FIELDS]),
        )
        return Event(prepared, b"" if prepared.truncated else raw, how, name, until)

    def _trust_in(self, ended: DeauthorizationSpec | None, said: "_Said") -> Trust:
        """How far it is believed: what may have ended another's grant, or is not signed, ends none of ours unasked."""
        if ended is None:
            return self._trust
        if not ended.is_signed:
            return Trust.SECRET
        if ended.client is not None and said.text(ended.client) != self._client_id:
            return self._trust if self._trust.is_hint else Trust.INDIRECT
        return self._trust

    def _word(self, said: "_Said", kind: str | None) -> str | None:
        for each in self._spec.sources:
            if all((kind if when.path == "kind" else said.text(when.path)) == when.equals for when in each.when):
                return each.says
        return None

    def _ended(self, said: "_Said", kind: str | None) -> DeauthorizationSpec | None:
        for each in self._spec.deauthorizations:
            if all((kind if when.path == "kind" else said.text(when.path)) == when.equals for when in each.when):
                return each
        return None


@dataclass(frozen=True)
class _Said:
    """What one event says, by the catalogue's paths."""

    request: Incoming
    envelope: Any
    element: Any
    listed: str | None

    def value(self, path: str) -> Any:
        where, rest = _place_of(path)
        match where:
            case "":
                return self.listed if path == "list" else at_path(self.element, path)
            case "header":
                return self.request.headers.get(rest)
            case _:
                return at_path(self.envelope, rest)

    def text(self, path: str | None) -> str | None:
        found = None if path is None else as_text(self.value(path))
        return found if found is not None and _is_short(found, LONGEST_NAME) else None

    def accounts(self, where: AccountPaths) -> tuple[str | None, list[str]]:
        """Whom it concerns, and by what it names them."""
        for by, paths, when in where:
            found = self.texts(paths) if all(self.text(each.path) == each.equals for each in when) else []
            if found:
                return by, found
        return None, []

    def texts(self, paths: tuple[str, ...]) -> list[str]:
        """Of the first path that says anything: one, or each of a list; each once."""
        for path in paths:
            value = self.value(path)
            found = [as_text(each) for each in (value if isinstance(value, list) else [value])]
            texts = [each for each in found if each is not None and _is_short(each, LONGEST_NAME)]
            if texts:
                return list(dict.fromkeys(texts))
        return []

    def plain(self, path: str) -> str | int | bool | None:
        value = self.value(path)
        if isinstance(value, bool | int):
            return value if abs(value) < 1 << 63 else None
        return value if isinstance(value, str) and _is_short(value, LONGEST_FIELD) else None

    def instant(self, where: tuple[str, str] | None) -> int | None:
        said = None if where is None else self.text(where[0])
        return None if said is None or where is None else instant_of(said, where[1])


@cache
def _place_of(path: str) -> tuple[str, str]:
    """What a path of the catalogue looks into, and where there."""
    where, colon, rest = path.partition(":")
    return (where, rest) if colon else ("", path)


def _elements(spec: EventSpec, content: Any) -> Iterator[tuple[Any, str | None]]:
    """
    The events of a body, and the name of the list that each stands in. A batch that is not where it should be is one
    event: nothing that was believed is dropped.
    """
    if spec.items is None:
        yield content, None
        return
    if spec.items == "*":
        members = content.items() if isinstance(content, dict) else ()
        lists = [(name, each) for name, each in members if isinstance(each, list)]
        if not lists:
            yield content, None
        for name, listed in lists:
            yield from ((element, name) for element in listed)
        return
    listed = at_path(content, "" if spec.items == "." else spec.items)
    if not isinstance(listed, list):
        yield content, None
        return
    yield from ((element, None) for element in listed)


def _told_apart(spec: EventSpec, told: list[str | None], raw: bytes, now: int) -> tuple[str, str, int | None]:
    """
    By what an event is told apart: its id or the members that make one, all of them signed; else its bytes. An id in a
    header that nobody signed is never among them: whoever repeats a request could write another (RB-65).

    A hint's bytes are the same each time, so they tell apart within a few seconds only; and when those are over.
    """
    if told and None not in told:
        return "id", json.dumps(told), None
    if spec.is_level:
        bucket = now // LEVEL_BUCKET_MS
        return "body", f"{sha256(raw)} {bucket}", (bucket + 1) * LEVEL_BUCKET_MS
    return "body", sha256(raw), None


def _spelled(element: Any) -> bytes:
    return json.dumps(element, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _is_short(text: str, longest: int) -> bool:
    """Something a person could read, within a bound."""
    return text.isprintable() and 0 < len(text.encode("utf-8", "surrogatepass")) <= longest


def _content_type(request: Incoming) -> str | None:
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    return said if _is_short(said, LONGEST_NAME) else None


def _holds(when: tuple[Condition, ...], content: Any) -> bool:
    return all(text_at(content, each.path) == each.equals for each in when)


def _answer(shake: HandshakeSpec, text: str) -> Shaken:
    if shake.member is None:
        return Shaken(shake.status, TEXT, text)
    return Shaken(shake.status, JSON, json.dumps({shake.member: text}))


# --- from compiled JSON ----------------------------------------------------------------------------------------------


def webhook_of(compiled: dict[str, Any] | None) -> WebhookSpec | None:
    """The spec that a compiled entry holds, if it has one."""
    if compiled is None:
        return None
    event = compiled["event"]
    return WebhookSpec(
        signature=_signature(compiled["signature"]),
        handshakes=tuple(
            HandshakeSpec(**{**each, "when": _conditions(each["when"])}) for each in compiled["handshakes"]
        ),
        event=EventSpec(
            **{
                **event,
                "id": tuple(event["id"]),
                "kind": tuple(event["kind"]),
                "accounts": _accounts(event["accounts"]),
                "occurred_at": None if event["occurred_at"] is None else tuple(event["occurred_at"]),
                "fields": tuple(event["fields"].items()),
            }
        ),
        deauthorizations=tuple(
            DeauthorizationSpec(
                _conditions(each["when"]), _accounts(each["accounts"]), each["is_signed"], each.get("client")
            )
            for each in compiled["deauthorizations"]
        ),
        subscription=compiled["subscription"],
        status=compiled["status"],
        unready=compiled["unready"],
        receipt=compiled["receipt"],
        sources=tuple(SourceSaidSpec(each["says"], _conditions(each["when"])) for each in compiled.get("sources", ())),
    )


def _signature(compiled: dict[str, Any]) -> SignatureSpec:

    time = compiled["timestamp"]
    return SignatureSpec(
        **{
            **compiled,
            "headers": tuple(compiled["headers"]),
            "parts": tuple(compiled["parts"]),
            "timestamp": None if time is None else TimestampSpec(**time),
        }
    )


def _conditions(compiled: dict[str, str]) -> tuple[Condition, ...]:
    return tuple(Condition(path, equals) for path, equals in compiled.items())


def _accounts(compiled: list[list[Any]]) -> AccountPaths:
    """Kind, paths and, in files that were compiled lately, what must stand beside them."""
    return tuple((by, tuple(paths), _conditions(when[0] if when else {})) for by, paths, *when in compiled)
