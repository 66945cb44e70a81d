"""
ID tokens: what must hold before one says whose grant it came with (OpenID Connect Core section 3.1.3.7, RFC 8725).

The signature is verified with the issuer's published keys although the token came straight from the token endpoint, and
every claim that binds it to this client, this visit and this access token is compared. What the catalogue names is all
that is believed: no key, address or algorithm is taken from the token itself.

The library for tokens is imported by who verifies one; most providers send none.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from quitclaim.domain.secret import Secret
from quitclaim.providers.transport import Answer, RawAnswer

MAX_CHARS: Final = 16_384
KINDS: Final[Mapping[str, tuple[str, str | None]]] = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Algorithms that may be believed at all, and the key each of them takes: none is symmetric, and `none` is none."""
RSA_MIN_BITS: Final = 2_048
SKEW_S: Final = 120
"""How far the provider's clock and ours may differ."""
MAX_AGE_S: Final = 3_600
"""A token that was issued longer ago did not come with this answer."""
SUBJECT_MAX: Final = 255


@dataclass(frozen=True)
class Expected:
    """What the catalogue and this visit say that a token must be."""

    issuer: str
    audience: str  # our client id
    algorithms: tuple[str, ...]
    nonce: Secret | None
    access_token: Secret


@dataclass(frozen=True)
class Verdict:
    """Whose token it is, or why it is not believed. *busy*: the issuer's keys could not be had."""

    subject: str | None = field(default=None, repr=False)
    reason: str = ""
    busy: bool = False


type PublicKey = Any  # jwt.PyJWK, which nobody imports to name it
type KeySource = Callable[[str | None, str], PublicKey | Verdict]
"""The issuer's key for a key id and algorithm, or why there is none."""


def verify(token: Secret, expected: Expected, key_of: KeySource, now_s: int) -> Verdict:
    """Whether *token* holds, in the order in which less is believed first: form, algorithm, key, signature, claims."""
    from jwt import PyJWTError, get_unverified_header

    text = token.reveal()
    if len(text) > MAX_CHARS or text.count(".") != 2:
        return Verdict(reason="malformed")
    try:
        header = get_unverified_header(text)
    except PyJWTError:
        return Verdict(reason="malformed")
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in expected.algorithms or algorithm not in KINDS:
        return Verdict(reason="algorithm")
    if "crit" in header or header.get("typ", "JWT").upper() not in ("JWT", "ID_TOKEN+JWT"):
        return Verdict(reason="header")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= 512):
        return Verdict(reason="key")
    key = key_of(kid, algorithm)
    if isinstance(key, Verdict):
        return key
    claims = signed_claims(text, key, algorithm)
    if claims is None:
        return Verdict(reason="signature")
    fault = _fault_of_claims(claims, expected, algorithm, now_s)
    return Verdict(reason=fault) if fault else Verdict(subject=claims["sub"])


def signed_claims(token: str, key: PublicKey, algorithm: str) -> dict[str, Any] | None:
    """
    What a token says, where its signature holds under *key* and *algorithm*; else None. The claims themselves are still
    to be compared, by the clock that was given (RFC 8725 section 3.1).
    """
    from jwt import PyJWTError, decode

    try:
        claims: dict[str, Any] = decode(
            token,
            key,
            algorithms=[algorithm],
            options={
                "verify_signature": True,
                "verify_aud": False,
                "verify_iss": False,
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except (PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return claims


def _fault_of_claims(claims: Mapping[str, Any], expected: Expected, algorithm: str, now_s: int) -> str:
    """Which claim does not hold; empty if all do."""
    if claims.get("iss") != expected.issuer:
        return "issuer"
    # An audience beside us is somebody who could have sent us this token: we trust none (item 3).
    if claims.get("aud") not in (expected.audience, [expected.audience]):
        return "audience"
    if claims.get("azp", expected.audience) != expected.audience:
        return "authorized_party"
    if (fault := _fault_of_times(claims, now_s)) != "":
        return fault
    if expected.nonce is not None:
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), expected.nonce.reveal().encode()):
            return "nonce"
    if "at_hash" in claims and claims["at_hash"] != half_hash(expected.access_token, algorithm):
        return "access_token"
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_MAX or not subject.isprintable():
        return "subject"
    return ""


def _fault_of_times(claims: Mapping[str, Any], now_s: int) -> str:
    expires, issued, begins = (claims.get(name) for name in ("exp", "iat", "nbf"))
    if not _is_instant(expires) or expires <= now_s - SKEW_S:
        return "expired"
    if not _is_instant(issued) or not now_s - MAX_AGE_S - SKEW_S <= issued <= now_s + SKEW_S:
        return "issued_at"
    if begins is not None and (not _is_instant(begins) or begins > now_s + SKEW_S):
        return "not_before"
    return ""


def _is_instant(value: Any) -> TypeGuard[int | float]:
    """A NumericDate (RFC 7519 section 2) within reason."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 40


def half_hash(access_token: Secret, algorithm: str) -> str:
    """`at_hash` (OIDC core 3.1.3.6): the left half of the token's digest, of the size that the algorithm has."""
    digest = hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256
    raw = digest(access_token.reveal().encode("ascii", "replace")).digest()
    return base64.urlsafe_b64encode(raw[: len(raw) // 2]).rstrip(b"=").decode()


def named_subject(token: Secret) -> str | None:
    """
    The subject that a token names, unverified. It came over TLS from the token endpoint, which is enough to know whose
    other grants a revocation might end, and not enough to install anything.
    """
    parts = token.reveal().split(".")
    if len(parts) != 3 or len(token.reveal()) > MAX_CHARS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return subject if isinstance(subject, str) and 0 < len(subject) <= SUBJECT_MAX else None


# --- the issuer's keys -----------------------------------------------------------------------------------------------

KEPT_S: Final = 3_600
"""So long a set of keys is believed without asking again."""
STALE_S: Final = 24 * 3_600
"""And so long, where the issuer does not answer."""
ASK_AGAIN_S: Final = 60
"""A key id that nobody knows makes us ask again, and no oftener than this: it may be a stranger's."""
KEYS_MAX: Final = 64
SETS_MAX: Final = 64


@dataclass
class _Kept:
    keys: list[dict[str, Any]]
    read_at: float
    asked_at: float


class KeySets:
    """The published keys (RFC 7517) of the issuers of one function instance: cached, bounded, fetched when needed."""

    def __init__(self, fetch: Callable[[str, int], Answer], now_s: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now_s = now_s
        self._kept: dict[str, _Kept] = {}

    def key(self, url: str, kid: str | None, algorithm: str, timeout_ms: int) -> PublicKey | Verdict:
        """The key of *url* for *kid* and *algorithm*; fetched at most once in this call."""
        now = self._now_s()
        kept = self._kept.get(url)
        if kept is None or kept.read_at + KEPT_S <= now:
            fresh = self._read(url, now, timeout_ms, kept)
            if isinstance(fresh, Verdict):
                return fresh
            kept = fresh
        found = _suitable(kept.keys, kid, algorithm)
        if not found and kept.asked_at + ASK_AGAIN_S <= now:
            fresh = self._read(url, now, timeout_ms, kept)
            if isinstance(fresh, Verdict):
                return fresh
            found = _suitable(fresh.keys, kid, algorithm)
        # Without a key id there must be no choice (OIDC core 10.1).
        return found[0] if len(found) == 1 else Verdict(reason="key")

    def _read(self, url: str, now: float, timeout_ms: int, kept: _Kept | None) -> "_Kept | Verdict":
        keys = _keys_in(self._fetch(url, timeout_ms))
        if keys is None:
            if kept is None or kept.read_at + STALE_S <= now:
                return Verdict(reason="keys_unavailable", busy=True)
            kept.asked_at = now
            return kept
        if len(self._kept) >= SETS_MAX:
            self._kept.clear()
        self._kept[url] = _Kept(keys, now, now)
        return self._kept[url]


def _keys_in(answer: Answer) -> list[dict[str, Any]] | None:
    """The set that an answer holds; None where it holds none."""
    if not isinstance(answer, RawAnswer) or answer.status != 200 or not answer.complete:
        return None
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    keys = body.get("keys") if isinstance(body, dict) else None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        return None
    return [key for key in keys if isinstance(key, dict)]


def _suitable(keys: list[dict[str, Any]], kid: str | None, algorithm: str) -> list[PublicKey]:
    """The keys that may verify: of the right kind, for signatures, for this algorithm, under this id."""
    from jwt import PyJWK, PyJWTError

    kind, curve = KINDS[algorithm]
    found = []
    for key in keys:
        operations = key.get("key_ops")
        if (
            key.get("kty") != kind
            or (curve is not None and key.get("crv") != curve)
            or key.get("use", "sig") != "sig"
            or (operations is not None and (not isinstance(operations, list) or "verify" not in operations))
            or key.get("alg", algorithm) != algorithm
            or (kid is not None and key.get("kid") != kid)
        ):
            continue
        public = {name: value for name, value in key.items() if name not in PRIVATE_MEMBERS}
        try:
            made = PyJWK.from_dict(public, algorithm=algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        if kind == "RSA" and made.key.key_size < RSA_MIN_BITS:
            continue
        found.append(made)
    return found


PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""A published private key is a fault of the issuer's; ours is not to use it (RFC 7518 sections 6.2.2, 6.3.2, 6.4)."""
