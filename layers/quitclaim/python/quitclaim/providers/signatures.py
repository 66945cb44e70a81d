"""
Inbound signatures: whether a request came from who holds the key (S-9, S-12).

Most providers sign with an HMAC, and what differs is data: one template of the text that is signed, how the key is
written, where the signatures stand and how each is spelled. The rest (public keys, tokens, a signed form field) is in
`asymmetric.py`, which is imported by who needs it.

Everything is judged over the bytes that were sent (RB-68), before anything of them is read. Every candidate signature
is compared with every live key, in constant time; whichever fits, the time taken is the same.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal

from quitclaim.domain.limits import JSON_LEVELS
from quitclaim.domain.webhooks import Incoming, RefusalReason, Refused, WebhookKeys

CANDIDATES: Final = 16
"""Signatures that one request may carry; more than any rotation needs."""
LONGEST_HEADER: Final = 8_192

type Scheme = Literal[
    "hmac", "ed25519", "ecdsa_by_key_id", "rsa_certificate", "jws", "signed_request", "secret", "path"
]


@dataclass(frozen=True)
class TimestampSpec:
    """Where a signature's time stands (`header:name`, `signature:prefix`, `body:path`), its unit, how old it may be."""

    at: str
    unit: Literal["s", "ms", "rfc3339"]
    tolerance_ms: int


@dataclass(frozen=True)
class SignatureSpec:
    """
    How a provider signs. *parts* are pieces of the signed text in their order: `=` and a literal, or the name of what
    stands there (body, timestamp, id, method, url).
    """

    scheme: Scheme
    headers: tuple[str, ...]
    key_from: Literal["webhook", "client"]
    key_decoding: Literal["utf8", "hex", "base64", "whsec"]
    algorithm: Literal["sha256", "sha1", "sha512"]
    parts: tuple[str, ...]
    encoding: Literal["hex", "hex_upper", "base64", "base64url"]
    prefix: str
    separator: str | None
    timestamp: TimestampSpec | None
    id_header: str | None
    member: str | None  # secret: where it stands; jws, signed_request: the member or field that holds the token
    jwks_url: str | None
    issuer: str | None

    @property
    def signs_id(self) -> bool:
        """Whether the id in its header is part of what is signed: else anybody may write another one (RB-65)."""
        return "id" in self.parts


HINTED: Final = frozenset({"secret", "path", "rsa_certificate"})
"""
Schemes whose bytes nobody signed: what comes by them only says that there is something to look at. A certificate's
signature covers the CRC-32 of the body (PayPal), and a body of any other meaning can be made to have the same.
"""


@dataclass(frozen=True)
class Believed:
    """
    The request holds. *sent_at* is its signed time; *claims* are what a token said, where it is one; *signed*: the
    bytes that were signed, where they are a part of a body of which the rest is anybody's.
    """

    sent_at: int | None = None
    claims: Mapping[str, Any] | None = None
    signed: bytes | None = None


type Judged = Believed | Refused


def judge_hmac(spec: SignatureSpec, request: Incoming, keys: WebhookKeys, now: int) -> Judged:
    """Whether one of the request's signatures is the HMAC of the signed text under one of the live keys."""
    pieces = list(_pieces(spec, request))
    if not pieces:
        return Refused(RefusalReason.SIGNATURE_MISSING)
    wanted = [piece.removeprefix(spec.prefix) for piece in pieces if piece.startswith(spec.prefix)]
    if not 0 < len(wanted) <= CANDIDATES:
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    said = _time_said(spec, request, pieces)
    if isinstance(said, Refused):
        return said
    message = _message(spec, request, said)
    if isinstance(message, Refused):
        return message
    digests = [hmac.digest(key, message, spec.algorithm) for key in _keys(spec, keys)]
    if not digests:
        return Refused(RefusalReason.KEY_UNKNOWN)
    given = [decoded(each, spec.encoding) for each in wanted]
    if not any(each is not None for each in given):
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    is_right = False
    for signature in given:
        for digest in digests:
            is_right |= hmac.compare_digest(signature or b"", digest)
    if not is_right:
        return Refused(RefusalReason.SIGNATURE_WRONG)
    return judge_time(spec, request, said, now)


def judge_secret(keys: WebhookKeys, given: str | None) -> Judged:
    """Whether the secret that a request carries is one of the live ones."""
    if not given:
        return Refused(RefusalReason.SECRET_MISSING)
    is_right = False
    for secret in keys.secrets:
        is_right |= hmac.compare_digest(as_bytes(given), secret.reveal().encode())
    return Believed() if is_right else Refused(RefusalReason.SECRET_WRONG)


# --- the text that is signed -----------------------------------------------------------------------------------------


def _pieces(spec: SignatureSpec, request: Incoming) -> Iterator[str]:
    """What stands in the headers of signatures, taken apart where one header holds several."""
    for name in spec.headers:
        text = request.headers.get(name, "").strip()
        if not text or len(text) > LONGEST_HEADER:
            continue
        yield from (part.strip() for part in text.split(spec.separator)) if spec.separator else (text,)


def _message(spec: SignatureSpec, request: Incoming, said: str | None) -> bytes | Refused:
    parts: list[bytes] = []
    for part in spec.parts:
        if part.startswith("="):
            parts.append(part[1:].encode())
            continue
        match part:
            case "body":
                parts.append(request.body)
            case "url":
                parts.append(as_bytes(request.url))
            case "method":
                parts.append(as_bytes(request.method))
            case "timestamp" if said:
                parts.append(as_bytes(said))
            case "id" if spec.id_header and request.headers.get(spec.id_header):
                parts.append(as_bytes(request.headers[spec.id_header]))
            case _:
                return Refused(RefusalReason.SIGNED_PART_MISSING)
    return b"".join(parts)


def as_bytes(text: str) -> bytes:
    """What a stranger wrote, half a surrogate pair included: that is no signature, and no failure of ours."""
    return text.encode("utf-8", "surrogatepass")


def message_of(spec: SignatureSpec, request: Incoming) -> tuple[bytes, str | None] | Refused:
    """The signed text and the time in it, for schemes whose signature is no HMAC."""
    said = _time_said(spec, request, list(_pieces(spec, request)))
    if isinstance(said, Refused):
        return said
    message = _message(spec, request, said)
    return message if isinstance(message, Refused) else (message, said)


def signatures_of(spec: SignatureSpec, request: Incoming) -> list[bytes] | Refused:
    """The signatures of the request, decoded, for schemes whose signature is no HMAC."""
    pieces = list(_pieces(spec, request))
    if not pieces:
        return Refused(RefusalReason.SIGNATURE_MISSING)
    found = [decoded(piece.removeprefix(spec.prefix), spec.encoding) for piece in pieces[:CANDIDATES]]
    good = [each for each in found if each is not None]
    return good or Refused(RefusalReason.SIGNATURE_MALFORMED)


def _keys(spec: SignatureSpec, keys: WebhookKeys) -> Iterator[bytes]:
    for secret in keys.secrets:
        key = decoded_key(secret.reveal(), spec.key_decoding)
        if key:
            yield key


def decoded_key(text: str, decoding: str) -> bytes | None:
    """
    The key that a secret stands for; None for what is none. `whsec` is base64 behind an optional `whsec_`; where a
    provider signs with the text as it is, prefix included, the decoding is `utf8`.
    """
    match decoding:
        case "utf8":
            return text.encode()
        case "hex":
            return decoded(text, "hex")
        case "whsec":
            return from_base64(text.removeprefix("whsec_"))
        case _:
            return from_base64(text)


def decoded(text: str, encoding: str) -> bytes | None:
    """A signature's bytes; None for what is not spelled so. One way of writing each, so that none has two spellings."""
    if not text.isascii():
        return None
    match encoding:
        case "hex" | "hex_upper":
            try:
                read = bytes.fromhex(text)
            except ValueError:
                return None
            return read if text in (read.hex(), read.hex().upper()) else None
        case "base64url":
            found = from_base64(text + "=" * (-len(text) % 4), altchars=b"-_")
            return (
                found if found is not None and base64.urlsafe_b64encode(found).rstrip(b"=").decode() == text else None
            )
        case _:
            found = from_base64(text)
            return found if found is not None and base64.b64encode(found).decode() == text else None


def from_base64(text: str, altchars: bytes | None = None) -> bytes | None:
    """What base64 stands for, with its padding and nothing beside it; None for what is none."""
    try:
        return base64.b64decode(text.encode("ascii"), altchars, validate=True)
    except (binascii.Error, ValueError):
        return None


# --- time ------------------------------------------------------------------------------------------------------------


def _time_said(spec: SignatureSpec, request: Incoming, pieces: Sequence[str]) -> str | Refused | None:
    """The time as it is written, where it is known before the body is believed; None where there is none yet."""
    if spec.timestamp is None:
        return None
    where, _, name = spec.timestamp.at.partition(":")
    match where:
        case "header":
            said = request.headers.get(name, "").strip()
        case "signature":
            said = next((piece.removeprefix(name) for piece in pieces if piece.startswith(name)), "")
        case _:
            return None
    return said or Refused(RefusalReason.TIMESTAMP_MISSING)


def judge_time(spec: SignatureSpec, request: Incoming, said: str | None, now: int) -> Judged:
    """
    Whether a signature that holds is of now, within the provider's tolerance either way. A time in the body is read
    here, after the body is believed; one in a header that nobody signed would be anybody's.
    """
    if spec.timestamp is None:
        return Believed()
    if spec.timestamp.at.startswith("body:"):
        said = text_at(parsed(request.body), spec.timestamp.at.partition(":")[2])
        if said is None:
            return Refused(RefusalReason.TIMESTAMP_MISSING)
    instant = instant_of(said or "", spec.timestamp.unit)
    if instant is None:
        return Refused(RefusalReason.TIMESTAMP_MALFORMED)
    if instant <= now - spec.timestamp.tolerance_ms:
        return Refused(RefusalReason.TIMESTAMP_OLD)
    if instant >= now + spec.timestamp.tolerance_ms:
        return Refused(RefusalReason.TIMESTAMP_AHEAD)
    return Believed(sent_at=instant)


def instant_of(said: str, unit: str) -> int | None:
    """Milliseconds since 1970 of a time in seconds, milliseconds or RFC 3339; None for what is none, or too far off."""
    if unit == "rfc3339":
        try:
            when = datetime.fromisoformat(said)
            found = int(when.timestamp() * 1000) if when.tzinfo is not None else -1
        except (ValueError, OverflowError):
            return None
    elif said.isascii() and said.isdigit() and len(said) <= 13:
        found = int(said) * (1000 if unit == "s" else 1)
    else:
        return None
    return found if 0 <= found < 10**13 else None


# --- JSON ------------------------------------------------------------------------------------------------------------


def parsed(body: bytes) -> Any:
    """The JSON that *body* holds, nested no deeper than the bound; None for what is none of that."""
    try:
        found = _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return found if _is_shallow(found) else None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
"""As `json.loads` would make one for each body."""


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(JSON_LEVELS):
        level = [
            member
            for each in level
            if isinstance(each, dict | list)
            for member in (each.values() if isinstance(each, dict) else each)
            if isinstance(member, dict | list)
        ]
        if not level:
            return True
    return False


def at_path(value: Any, path: str) -> Any:
    """What stands at a path of members and indexes with dots between; None where nothing does."""
    for part in _members_of(path):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


@cache
def _members_of(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def text_at(value: Any, path: str) -> str | None:
    """Text, or a number as text, at a path; None for anything else, and for what is empty."""
    return as_text(at_path(value, path))


def as_text(value: Any) -> str | None:
    """A value of JSON that may be an id, as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else None
    return value if isinstance(value, str) and value else None


def sha256(body: bytes) -> str:
    """In hex."""
    return hashlib.sha256(body).hexdigest()
