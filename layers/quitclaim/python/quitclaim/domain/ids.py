"""
Names of tenants, owners, connections and clients, and the ids that we make.

One spelling serves paths, table keys, IAM patterns and associated data, so nothing is ever escaped or decoded. An app's
id outside the pattern is written `~` + base64url of its UTF-8; the client library does that by itself.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from quitclaim.domain.errors import InvalidIdError

ID: Final = re.compile(r"~?[A-Za-z0-9._-]{1,128}")


def checked_id(text: object, what: str) -> str:
    """
    *text* if it is an id of ours; raises `InvalidIdError` naming *what* otherwise. `.` and `..` are path segments, not
    ids.
    """
    if not isinstance(text, str) or len(text) > 128 or text in (".", "..") or not ID.fullmatch(text):
        raise InvalidIdError(f"{what} must match [A-Za-z0-9._-]{{1,128}}", field=what)
    return text


@dataclass(frozen=True, order=True)
class OwnerRef:
    """One end user of one tenant of the app."""

    tenant: str
    owner: str

    @classmethod
    def checked(cls, tenant: object, owner: object) -> "OwnerRef":
        """From path segments; raises `InvalidIdError`."""
        return cls(checked_id(tenant, "tenant"), checked_id(owner, "owner"))

    @property
    def of_owner(self) -> "OwnerRef":
        """Itself: what is about an owner and what is about a connection lie in the same partition."""
        return self


@dataclass(frozen=True, order=True)
class ConnectionRef:
    """One connection of one owner."""

    tenant: str
    owner: str
    connection: str

    @classmethod
    def checked(cls, tenant: object, owner: object, connection: object) -> "ConnectionRef":
        """From path segments; raises `InvalidIdError`."""
        return cls(checked_id(tenant, "tenant"), checked_id(owner, "owner"), checked_id(connection, "connection_id"))

    @property
    def of_owner(self) -> OwnerRef:
        """The owner alone."""
        return OwnerRef(self.tenant, self.owner)


def digest(secret: str) -> str:
    """SHA-256 in hex: states and tickets have 256 random bits, so a plain digest is no oracle."""
    return hashlib.sha256(secret.encode()).hexdigest()
