"""
Sealed bytes: an envelope of our own on AES-256-GCM (decision 0014, S-15, S-16).

    format (1) · kid length (1) · kid · salt (32) · key commitment (32) · ciphertext and tag

Each message has a key of its own: HKDF-SHA256 from the data key that the kid names and a fresh random salt gives the
encryption key, the nonce and the commitment. So no key ever meets two nonces, the bound of random nonces does not
apply, and bytes open under one data key only: GCM alone does not promise that. What the bytes are for is bound to them
as associated data, so that a sealed value moved to another place, or an older version put back, does not open.
"""

import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quitclaim.domain.errors import KeyUnavailableError, SealBrokenError
from quitclaim.domain.keyring import SEALED_FORMAT
from quitclaim.security.keys import KeyRing

FORMAT: Final = SEALED_FORMAT
SALT_BYTES: Final = 32
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
COMMITMENT_BYTES: Final = 32
TAG_BYTES: Final = 16
LABEL: Final = b"quitclaim seal 1"


@dataclass(frozen=True)
class Binding:
    """What sealed bytes are for; they open for nothing else. *subject*: connection or revocation id, state digest."""

    purpose: str
    tenant: str
    owner: str
    subject: str
    generation: int
    token_version: int
    pair: str = "main"


class Sealer:
    """Seals and opens under the keys of a ring."""

    def __init__(self, keys: KeyRing, random: Callable[[int], bytes] = os.urandom) -> None:
        self._keys = keys
        self._random = random

    def seal(self, plaintext: bytes, binding: Binding, now: int) -> bytes:
        """*plaintext* under the key that is current at *now*. Raises `KeyUnavailableError`."""
        kid, data_key = self._keys.current(binding.purpose, now)
        salt = self._random(SALT_BYTES)
        head = _head(kid)
        key, nonce, commitment = _derive(data_key, salt, head, binding.purpose)
        return head + salt + commitment + AESGCM(key).encrypt(nonce, plaintext, _associated(head, binding))

    def open(self, sealed: bytes, binding: Binding) -> bytes:
        """
        What was sealed for *binding*.

        Raises `KeyUnavailableError` where the key cannot be had, which time may heal: KMS is out, the kid is not in the
        ring, or a newer release wrote a format that this one does not know. Raises `SealBrokenError` where the bytes do
        not authenticate under the key that they name, which nothing heals. Mixing them up loses grants (D-5).
        """
        head, kid = _read_head(sealed)
        salt_at = len(head)
        commitment_at = salt_at + SALT_BYTES
        body_at = commitment_at + COMMITMENT_BYTES
        if len(sealed) < body_at + TAG_BYTES:
            raise SealBrokenError("sealed bytes are cut short")
        data_key = self._keys.get(binding.purpose, kid)
        key, nonce, commitment = _derive(data_key, sealed[salt_at:commitment_at], head, binding.purpose)
        if not hmac.compare_digest(commitment, sealed[commitment_at:body_at]):
            raise SealBrokenError("sealed bytes were not made under the key they name")
        try:
            return AESGCM(key).decrypt(nonce, sealed[body_at:], _associated(head, binding))
        except InvalidTag:
            raise SealBrokenError("sealed bytes are not what they were, or not for this") from None


def length_prefixed(*parts: str | bytes | int) -> bytes:
    """One spelling for one list of parts: each with its length before it, so that no two lists spell alike."""
    encoded = [
        part.to_bytes(8) if isinstance(part, int) else part.encode() if isinstance(part, str) else part
        for part in parts
    ]
    return b"".join(len(part).to_bytes(4) + part for part in encoded)


def _head(kid: str) -> bytes:
    name = kid.encode("ascii")
    if not 1 <= len(name) <= 255:
        raise ValueError("a kid has 1 to 255 ASCII characters")
    return bytes((FORMAT, len(name))) + name


def _read_head(sealed: bytes) -> tuple[bytes, str]:
    if len(sealed) < 3 or not sealed[1]:
        raise SealBrokenError("sealed bytes are cut short")
    if sealed[0] != FORMAT:
        raise KeyUnavailableError(f"sealed bytes are of format {sealed[0]}, which this release does not know")
    head = bytes(sealed[: 2 + sealed[1]])
    # A damaged kid is unknown to the ring; it must not fail here as something else.
    return head, head[2:].decode("ascii", "backslashreplace")


def _derive(data_key: bytes, salt: bytes, head: bytes, purpose: str) -> tuple[bytes, bytes, bytes]:
    """Encryption key, nonce and commitment of one message (RFC 5869)."""
    size = KEY_BYTES + NONCE_BYTES + COMMITMENT_BYTES
    output = HKDF(SHA256(), size, salt, length_prefixed(LABEL, head, purpose)).derive(data_key)
    return output[:KEY_BYTES], output[KEY_BYTES : KEY_BYTES + NONCE_BYTES], output[KEY_BYTES + NONCE_BYTES :]


def _associated(head: bytes, binding: Binding) -> bytes:
    return length_prefixed(
        head,
        binding.purpose,
        binding.tenant,
        binding.owner,
        binding.subject,
        binding.generation,
        binding.token_version,
        binding.pair,
    )
