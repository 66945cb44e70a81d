"""
Security event tokens, verified: form, algorithm, key, signature, and then issuer, audience and times (RFC 8417, RFC
8725). What the settings name is all that is believed: no key, address or algorithm is taken from the token itself.

The library for tokens is imported by who verifies one.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from quitclaim.domain.errors import KeyUnavailableError
from quitclaim.domain.limits import SET_AGE_MS
from quitclaim.domain.security_events import (
    MEANING,
    Says,
    SecurityEvent,
    SecurityEvents,
    SetFault,
    SetRefused,
    Transmitter,
)
from quitclaim.providers.id_token import KINDS, SKEW_S, KeySource, Verdict, signed_claims

MAX_CHARS: Final = 64 * 1024
TYPES: Final = frozenset({"SECEVENT+JWT", "APPLICATION/SECEVENT+JWT", "JWT"})
"""Google writes the last; an access token or an ID token names another, or has no `events`."""
TEXT_MAX: Final = 255
EVENTS_MAX: Final = 20
MILLIS: Final = 100_000_000_000
"""A time at least so great is in milliseconds: early drafts of CAEP had them."""


def read(text: str, spec: Transmitter, key_of: KeySource, now_s: int) -> SecurityEvents | SetRefused:
    """
    What the token *text* says, or why it is not believed. Raises `KeyUnavailableError`: the issuer's keys cannot be had
    now, so nobody can say.
    """
    from jwt import PyJWTError, get_unverified_header

    if len(text) > MAX_CHARS or text.count(".") != 2:
        return SetRefused(SetFault.INVALID_REQUEST, "The body is no security event token.")
    try:
        header = get_unverified_header(text)
    except PyJWTError:
        return SetRefused(SetFault.INVALID_REQUEST, "The body is no security event token.")
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in spec.algorithms or algorithm not in KINDS:
        return SetRefused(SetFault.INVALID_KEY, "The algorithm is not one of those agreed on.")
    if "crit" in header or str(header.get("typ", "JWT")).upper() not in TYPES:
        return SetRefused(SetFault.INVALID_REQUEST, "The header is not one of a security event token.")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= 512):
        return SetRefused(SetFault.INVALID_KEY, "The key is not one of the issuer's.")
    key = key_of(kid, algorithm)
    if isinstance(key, Verdict):
        if key.busy:
            raise KeyUnavailableError("The issuer's keys are not available now.")
        return SetRefused(SetFault.INVALID_KEY, "The key is not one of the issuer's.")
    claims = signed_claims(text, key, algorithm)
    if claims is None:
        return SetRefused(SetFault.INVALID_KEY, "The signature does not hold.")
    return _judged(claims, spec, now_s)


def _judged(claims: Mapping[str, Any], spec: Transmitter, now_s: int) -> SecurityEvents | SetRefused:
    if claims.get("iss") != spec.issuer:
        return SetRefused(SetFault.INVALID_ISSUER, "The issuer is not the one of this address.")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(each, str) and each in spec.audience for each in named):
        return SetRefused(SetFault.INVALID_AUDIENCE, "The audience is not ours.")
    jti, issued = claims.get("jti"), claims.get("iat")
    if not isinstance(jti, str) or not 0 < len(jti) <= TEXT_MAX:
        return SetRefused(SetFault.INVALID_REQUEST, "The token has no id.")
    if not _is_instant(issued) or not now_s - SET_AGE_MS // 1000 <= issued <= now_s + SKEW_S:
        return SetRefused(SetFault.INVALID_REQUEST, "The token was not issued lately.")
    expires = claims.get("exp")  # none is needed (RFC 8417 section 2.2); one that is there counts
    if expires is not None and (not _is_instant(expires) or expires <= now_s - SKEW_S):
        return SetRefused(SetFault.INVALID_REQUEST, "The token has expired.")
    events = claims.get("events")
    if not isinstance(events, dict) or not 0 < len(events) <= EVENTS_MAX:
        return SetRefused(SetFault.INVALID_REQUEST, "The token has no events.")
    found = []
    for type_, payload in events.items():
        if not isinstance(payload, dict):
            return SetRefused(SetFault.INVALID_REQUEST, "An event is no object.")
        try:
            account = _account(claims, payload, spec.issuer)
        except ForeignSubjectError:
            return SetRefused(SetFault.INVALID_REQUEST, "The subject is another issuer's.")
        said = claims.get("toe", payload.get("event_timestamp", issued))
        at = said if _is_instant(said) else issued
        occurred = int(at if at >= MILLIS else at * 1000)
        found.append(SecurityEvent(type_, MEANING.get(type_, Says.NOTHING), account, min(occurred, int(issued * 1000))))
    return SecurityEvents(jti, tuple(found))


class ForeignSubjectError(Exception):
    """The event is about an account of somebody else's."""


def _account(claims: Mapping[str, Any], payload: Mapping[str, Any], issuer: str) -> str | None:
    """The issuer's id of the account: in the event (RISC, CAEP), beside it (RFC 9493), or as the token's subject."""
    for subject in (payload.get("subject"), payload.get("sub_id"), claims.get("sub_id")):
        if isinstance(subject, dict):
            return _named(subject, issuer) or _named(subject.get("user"), issuer)
    return _id(claims.get("sub"))


def _named(subject: Any, issuer: str) -> str | None:
    if not isinstance(subject, dict):
        return None
    kind = str(subject.get("format", subject.get("subject_type", ""))).replace("-", "_")
    if kind in ("iss_sub", "id_token_claims"):
        if subject.get("iss") != issuer:
            raise ForeignSubjectError
        return _id(subject.get("sub"))
    return _id(subject.get("id")) if kind == "opaque" else None


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable() else None


def _is_instant(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 50
