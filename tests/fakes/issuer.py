"""
An issuer of ID tokens: keys, published set and signatures by a library that the product does not use (jwcrypto), so
that what is accepted was made by somebody else.
"""

import base64
import hashlib
import json
from functools import cache
from typing import Any

from jwcrypto.jwk import JWK
from jwcrypto.jws import JWS

ISSUER = "https://acme.example.com"
KINDS = {
    "RS256": {"kty": "RSA", "size": 2048},
    "PS256": {"kty": "RSA", "size": 2048},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
    "RS384": {"kty": "RSA", "size": 2048},
    "ES384": {"kty": "EC", "crv": "P-384"},
    "small": {"kty": "RSA", "size": 1024},
}


@cache
def key(kid: str, algorithm: str = "RS256") -> JWK:
    """A key by its id, always the same one; RSA keys are dear to make."""
    return JWK.generate(kid=kid, **KINDS[algorithm])


def published(*keys: JWK, **members: Any) -> dict[str, Any]:
    """A key set (RFC 7517), each key with *members* on it."""
    return {"keys": [{**json.loads(each.export_public()), **members} for each in keys]}


def signed(claims: Any, by: JWK, algorithm: str = "RS256", **header: Any) -> str:
    """Compact serialization (RFC 7515); *header* replaces members of the protected header, None takes one away."""
    members = {"alg": algorithm, "kid": by.get("kid"), "typ": "JWT"} | header
    protected = {name: value for name, value in members.items() if value is not None}
    token = JWS(claims if isinstance(claims, bytes) else json.dumps(claims).encode())
    token.allowed_algs = [algorithm, protected.get("alg", algorithm)]
    token.add_signature(by, alg=algorithm, protected=json.dumps(protected))
    return str(token.serialize(compact=True))


def unsigned(claims: dict[str, Any], header: dict[str, Any], signature: bytes = b"") -> str:
    """A token put together by hand."""
    return ".".join(map(unpadded, (json.dumps(header).encode(), json.dumps(claims).encode(), signature)))


def unpadded(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def at_hash(access_token: str) -> str:
    """For RS256, PS256 and ES256 (OIDC core 3.1.3.6)."""
    digest = hashlib.sha256(access_token.encode()).digest()
    return unpadded(digest[:16])
