"""
How a client proves who it is with a key of its own instead of a shared secret: `private_key_jwt` (RFC 7523 section 2.2,
OpenID Connect Core section 9).

The key is the client's secret, in PEM. An assertion is made for one request, lives for a minute and is used once.
"""

from dataclasses import dataclass
from typing import Any, Final

from quitclaim.domain.errors import ClientConfigError
from quitclaim.domain.secret import Secret

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LIFETIME_S: Final = 60
BACKDATED_S: Final = 5
"""A provider whose clock is a little behind must not take the assertion for one of tomorrow."""


@dataclass(frozen=True)
class AssertionKey:
    """A client's key, and under which id the provider knows it (None: it has only one)."""

    pem: Secret
    key_id: str | None


def client_assertion(
    key: AssertionKey, client_id: str, audience: str, now_s: int, jti: str, issuer: str | None = None
) -> Secret:
    """
    The signed assertion for one request to *audience*, by *issuer* if that is not the client (Apple: the team). Raises
    `ClientConfigError` where the secret is no such key.

    The algorithm follows from the key: RS256, ES256 (P-256) or EdDSA (Ed25519), as every provider that takes any of
    these keys takes it.
    """
    from jwt import PyJWTError, encode

    algorithm, private = _opened(key)
    claims: dict[str, Any] = {
        "iss": issuer or client_id,
        "sub": client_id,
        "aud": audience,
        "jti": jti,
        "iat": now_s - BACKDATED_S,
        "exp": now_s + LIFETIME_S,
    }
    headers = None if key.key_id is None else {"kid": key.key_id}
    try:
        return Secret(encode(claims, private, algorithm=algorithm, headers=headers))
    except (PyJWTError, ValueError, TypeError):
        raise _no_key() from None


def check_key(key: AssertionKey) -> None:
    """Raises `ClientConfigError` where the secret is no key that can sign, before anything depends on it."""
    _opened(key)


def _opened(key: AssertionKey) -> tuple[str, Any]:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(key.pem.reveal().encode(), password=None)
    except (ValueError, TypeError):
        raise _no_key() from None
    match private:
        case RSAPrivateKey(key_size=size) if size >= 2_048:
            return "RS256", private
        case EllipticCurvePrivateKey(curve=SECP256R1()):
            return "ES256", private
        case Ed25519PrivateKey():
            return "EdDSA", private
        case _:
            raise _no_key()


def _no_key() -> ClientConfigError:
    return ClientConfigError(reason="the client's secret is no private key in PEM (RSA from 2048 bits, P-256, Ed25519)")
