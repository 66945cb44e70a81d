"""
Inbound signatures that are no HMAC: Ed25519, ECDSA under a key with an id, RSA under a certificate, a body that is a
signed token, and a form field that carries its own signature.

No key, certificate, address or algorithm is taken from the request: it may name which of ours it means, no more. The
library is imported by who verifies one; most providers need none.
"""

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl
from zlib import crc32

from quitclaim.domain.errors import KeyUnavailableError
from quitclaim.domain.webhooks import Incoming, RefusalReason, Refused, WebhookKeys
from quitclaim.providers.signatures import (
    Believed,
    Judged,
    SignatureSpec,
    at_path,
    decoded,
    from_base64,
    instant_of,
    judge_time,
    message_of,
    parsed,
    signatures_of,
    text_at,
)

if TYPE_CHECKING:
    from quitclaim.providers.id_token import KeySource

SKEW_S: Final = 120
"""How far the provider's clock and ours may differ."""
TOKEN_CHARS: Final = 256 * 1024
PAYPAL_ALGORITHM: Final = "SHA256withRSA"
OF_A_LOGIN: Final = frozenset({"code", "oauth_token"})
"""What Meta signs for a login or a page, and not for a callback."""
TRANSMISSION: Final = ("paypal-transmission-id", "paypal-transmission-time")


def judge_ed25519(spec: SignatureSpec, request: Incoming, keys: WebhookKeys, now: int) -> Judged:
    """One Ed25519 signature (RFC 8032) over the signed text, under one of the public keys of the settings, in hex."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signatures = signatures_of(spec, request)
    if isinstance(signatures, Refused):
        return signatures
    signed = message_of(spec, request)
    if isinstance(signed, Refused):
        return signed
    message, said = signed
    known = [key for text in keys.public.values() if (key := decoded(text, "hex")) is not None and len(key) == 32]
    if not known:
        return Refused(RefusalReason.KEY_UNKNOWN)
    for key in known:
        for signature in signatures:
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
            except (InvalidSignature, ValueError):
                continue
            return judge_time(spec, request, said, now)
    return Refused(RefusalReason.SIGNATURE_WRONG)


def judge_ecdsa(spec: SignatureSpec, request: Incoming, keys: WebhookKeys, now: int) -> Judged:
    """
    A header that is base64 of JSON with a key id and a signature (eBay): the key of that id is one of the settings, in
    PEM. SHA-1 where the provider signs so: what it protects is one request's bytes, and nobody chooses both sides of a
    collision there.
    """
    del now
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    header = signatures_of(spec, request)
    if isinstance(header, Refused):
        return header
    said = parsed(header[0])
    key_id, signature = text_at(said, "kid"), from_base64(text_at(said, "signature") or "")
    if key_id is None or not signature:
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    pem = keys.public.get(key_id)
    if pem is None:
        return Refused(RefusalReason.KEY_UNKNOWN)
    digest = SHA1() if spec.algorithm == "sha1" else SHA256()  # noqa: S303 - the provider's choice, see above
    try:
        key = load_pem_public_key(pem.encode())
        if not isinstance(key, EllipticCurvePublicKey):
            return Refused(RefusalReason.KEY_UNKNOWN)
        key.verify(signature, request.body, ECDSA(digest))
    except InvalidSignature:
        return Refused(RefusalReason.SIGNATURE_WRONG)
    except ValueError:
        return Refused(RefusalReason.KEY_UNKNOWN)
    return Believed()


def judge_certificate(spec: SignatureSpec, request: Incoming, keys: WebhookKeys, now: int) -> Judged:
    """
    An RSA signature over id, time, hook and checksum of the body (PayPal), under a certificate of the settings that is
    valid now. The address of a certificate that the request names is not asked: it says which one is meant. A checksum
    binds no body to the signature, so what comes is a hint (`HINTED`).
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import load_pem_x509_certificate

    signatures = signatures_of(spec, request)
    if isinstance(signatures, Refused):
        return signatures
    algorithm = request.headers.get("paypal-auth-algo", "")
    if algorithm != PAYPAL_ALGORITHM:
        return Refused(RefusalReason.ALGORITHM)
    id_, time = (request.headers.get(name, "") for name in TRANSMISSION)
    if not id_ or not time or keys.hook_id is None:
        return Refused(RefusalReason.SIGNED_PART_MISSING)
    message = f"{id_}|{time}|{keys.hook_id}|{crc32(request.body)}".encode("utf-8", "surrogatepass")
    is_stale = False
    for pem in keys.public.values():
        try:
            certificate = load_pem_x509_certificate(pem.encode())
            key = certificate.public_key()
        except ValueError:
            continue
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begins.timestamp() * 1000 <= now < ends.timestamp() * 1000:
            is_stale = True
            continue
        if not isinstance(key, RSAPublicKey):
            continue
        for signature in signatures:
            try:
                key.verify(signature, message, PKCS1v15(), SHA256())
            except InvalidSignature:
                continue
            return judge_time(spec, request, time, now)
    if is_stale:
        return Refused(RefusalReason.KEY_NOT_VALID_NOW)
    return Refused(RefusalReason.SIGNATURE_WRONG if keys.public else RefusalReason.KEY_UNKNOWN)


def judge_jws(spec: SignatureSpec, request: Incoming, audience: str, key_of: "KeySource", now: int) -> Judged:
    """
    A body whose member is a signed token (Apple): issuer, audience and the time of its making are compared. Raises
    `KeyUnavailableError` where the provider's keys cannot be had now.
    """
    from jwt import PyJWTError, get_unverified_header

    from quitclaim.providers.id_token import KINDS, Verdict, signed_claims

    token = text_at(parsed(request.body), spec.member or "payload")
    if token is None:
        return Refused(RefusalReason.SIGNATURE_MISSING)
    if len(token) > TOKEN_CHARS or token.count(".") != 2:
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    try:
        header = get_unverified_header(token)
    except (PyJWTError, ValueError, RecursionError):
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in KINDS or "crit" in header:
        return Refused(RefusalReason.ALGORITHM)
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= 512):
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    key = key_of(kid, algorithm)
    if isinstance(key, Verdict):
        if key.busy:
            raise KeyUnavailableError("The provider's published keys are not available now.")
        return Refused(RefusalReason.KEY_UNKNOWN)
    claims = signed_claims(token, key, algorithm)
    if claims is None:
        return Refused(RefusalReason.SIGNATURE_WRONG)
    if claims.get("iss") != spec.issuer or claims.get("aud") not in (audience, [audience]):
        return Refused(RefusalReason.CLAIMS)
    return _made(claims, now)


def _made(claims: Mapping[str, Any], now: int) -> Judged:
    """A token of the past day or so: what a provider sends again later it makes again, or its trace is known."""
    made, expires = claims.get("iat"), claims.get("exp")
    instant = instant_of(str(made), "s") if isinstance(made, int) and not isinstance(made, bool) else None
    if instant is None:
        return Refused(RefusalReason.TIMESTAMP_MISSING)
    if instant >= now + SKEW_S * 1000:
        return Refused(RefusalReason.TIMESTAMP_AHEAD)
    until = instant_of(str(int(expires)), "s") if isinstance(expires, int | float) else instant + TOKEN_AGE_MS
    if until is None or until + SKEW_S * 1000 <= now:
        return Refused(RefusalReason.TIMESTAMP_OLD)
    return Believed(sent_at=instant, claims=claims)


TOKEN_AGE_MS: Final = 7 * 24 * 3_600_000


def judge_signed_request(spec: SignatureSpec, request: Incoming, keys: WebhookKeys, now: int) -> Judged:
    """
    A form field of two parts with a dot between (Meta): the HMAC of the second, and the second itself, which is
    base64url of JSON that names the algorithm. Only the one that is in the catalogue counts. The same key signs what a
    page or a login is given, with the user's code or token: that is no callback, and is refused.
    """
    del now
    try:
        form = dict(parse_qsl(request.body.decode("ascii"), max_num_fields=100))
    except ValueError:
        return Refused(RefusalReason.SIGNATURE_MALFORMED)
    text = form.get(spec.member or "signed_request", "")
    if not text:
        return Refused(RefusalReason.SIGNATURE_MISSING)
    signature, dot, payload = text.partition(".")
    given, said = decoded(signature, "base64url"), decoded(payload, "base64url")
    if not dot or given is None or said is None or not keys.secrets:
        return Refused(RefusalReason.SIGNATURE_MALFORMED if keys.secrets else RefusalReason.KEY_UNKNOWN)
    is_right = False
    for secret in keys.secrets:
        digest = hmac.digest(secret.reveal().encode(), payload.encode(), spec.algorithm)
        is_right |= hmac.compare_digest(given, digest)
    if not is_right:
        return Refused(RefusalReason.SIGNATURE_WRONG)
    claims = parsed(said)
    if not isinstance(claims, dict) or str(claims.get("algorithm", "")).upper() != "HMAC-SHA256":
        return Refused(RefusalReason.ALGORITHM)
    if not OF_A_LOGIN.isdisjoint(claims):
        return Refused(RefusalReason.CLAIMS)
    issued = at_path(claims, "issued_at")
    return Believed(sent_at=instant_of(str(issued), "s"), claims=claims, signed=payload.encode())
