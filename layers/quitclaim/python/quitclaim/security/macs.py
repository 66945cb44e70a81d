"""
Keyed digests, and the two values that are derived again instead of being stored: connect tickets and confirm codes.

HMAC-SHA256 with the use in front and every part under its length, so that no two uses and no two lists of parts ever
meet the same input. The index key is never rotated: its digests are parts of table keys.
"""

import base64
import hmac
from typing import Final

from quitclaim.domain.secret import Secret
from quitclaim.security.keys import CONFIRM, INDEX, KeyRing
from quitclaim.security.sealing import length_prefixed

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Base 32 without I, L, O and U (Crockford's), so that a person who reads a code aloud or types it is understood."""
READ_AS: Final = str.maketrans("ILO", "110")
CODE_LENGTH: Final = 10
SEPARATORS: Final = "-\u2010\u2011\u2012\u2013\u2014\u2212_. \t\r\n\u00a0"


class Macs:
    """Digests under the keys of a ring."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    def fingerprint(self, token: Secret) -> str:
        """Tells whether two tokens are the same, to nobody without the index key."""
        return self._index("fingerprint", token.reveal())

    def account_digest(self, client: str, account_id: str) -> str:
        """A provider's account under a client, as it stands in table keys."""
        return self._index("account", client, account_id)

    def trace(self, client: str, account: str | None, how: str, text: str) -> str:
        """The trace of an event at a client, by its account and by what tells it apart."""
        return self._index("trace", client, "-" if account is None else f"+{account}", how, text)

    def ticket(self, tenant: str, owner: str, connection: str, generation: int, started_at: int) -> Secret:
        """The connect link's ticket, 43 url-safe characters: the same for the same start."""
        key = self._keys.key_active_at(CONFIRM, started_at)
        return Secret(_text(_mac(key, "ticket", tenant, owner, connection, generation, started_at)))

    def confirm_code(self, exchange_id: str, started_at: int) -> Secret:
        """The code that the owner brings back, XXXXX-XXXXX (50 bits): the same for the same exchange."""
        key = self._keys.key_active_at(CONFIRM, started_at)
        number = int.from_bytes(_mac(key, "confirm code", exchange_id, started_at)[:8])
        code = "".join(ALPHABET[(number >> 5 * place) % 32] for place in range(CODE_LENGTH))
        return Secret(f"{code[:5]}-{code[5:]}")

    def verify_confirm_code(self, given: Secret, exchange_id: str, started_at: int) -> bool:
        """Whether *given* is that code, in any case, with or without its dash, with I, L and O read as 1, 1 and 0."""
        right = _normal(self.confirm_code(exchange_id, started_at).reveal())
        return hmac.compare_digest(_normal(given.reveal()), right)

    def _index(self, use: str, *parts: str) -> str:
        # The key of the beginning of time: whatever is put into the ring later, this stays the first one.
        return _text(_mac(self._keys.key_active_at(INDEX, 0), use, *parts))


def _mac(key: bytes, use: str, *parts: str | int) -> bytes:
    message = length_prefixed(
        f"quitclaim {use}",
        *(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts),
    )
    return hmac.digest(key, message, "sha256")


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _normal(code: str) -> bytes:
    plain = code.translate(dict.fromkeys(map(ord, SEPARATORS))).upper().translate(READ_AS)
    return plain.encode("utf-8", "surrogatepass")
