"""
Sealed under a connect ticket itself: what a start says about its user for the provider's sign-in page and addresses.

The function that starts connections has no key to seal with, and shall have none. The ticket has 256 bits, goes to the
user in the link and is stored nowhere, so what is sealed under it can be read by who opens the link, and by nobody in
the table or a backup. One ticket seals one message.
"""

import base64
import binascii
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quitclaim.domain.errors import SealBrokenError
from quitclaim.domain.secret import Secret

LABEL: Final = b"quitclaim ticket 1"
SALT_BYTES: Final = 32
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


def seal_under(ticket: Secret, text: Secret) -> str:
    """Base64url text of salt, ciphertext and tag."""
    salt = os.urandom(SALT_BYTES)
    key, nonce = _derive(ticket, salt)
    sealed = salt + AESGCM(key).encrypt(nonce, text.reveal().encode(), LABEL)
    return base64.urlsafe_b64encode(sealed).decode()


def open_under(ticket: Secret, sealed: str) -> Secret:
    """The text. Raises `SealBrokenError` for another ticket or altered text."""
    try:
        raw = base64.urlsafe_b64decode(sealed)
        key, nonce = _derive(ticket, raw[:SALT_BYTES])
        return Secret(AESGCM(key).decrypt(nonce, raw[SALT_BYTES:], LABEL).decode())
    except (InvalidTag, ValueError, binascii.Error):
        raise SealBrokenError("this ticket does not open what is sealed under it") from None


def _derive(ticket: Secret, salt: bytes) -> tuple[bytes, bytes]:
    output = HKDF(SHA256(), KEY_BYTES + NONCE_BYTES, salt, LABEL).derive(ticket.reveal().encode())
    return output[:KEY_BYTES], output[KEY_BYTES:]
