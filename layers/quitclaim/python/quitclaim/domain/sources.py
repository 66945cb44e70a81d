"""
Sources: what a user has linked behind one account at a broker, such as a watch behind an aggregator of health data.

A connection to a broker stands for the account; each source has an item of its own below it. A source is made when the
app wants its user to link it and is never born connected: that is for the broker's verified events to say.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from quitclaim.domain.connect import Connection, ConnectionState, Idempotency, Owner, Ticket
from quitclaim.domain.errors import InvalidBodyError, SourceStartStaleError
from quitclaim.domain.ids import ConnectionRef

SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
LONGEST_SLUG: Final = 64


class SourceStatus(StrEnum):
    """Whether the source gives data."""

    DISCONNECTED = "disconnected"
    CONNECTED = "connected"


@dataclass(frozen=True)
class Source:
    """A source as it is stored; its name at the broker is its key below the connection."""

    ref: ConnectionRef
    slug: str
    status: SourceStatus
    fence: int
    first_seen: int
    last_seen: int
    error: str | None = None
    v: int = 0

    @property
    def instance(self) -> str:
        """By which an app names the source that it saw: the connection and the slug."""
        return f"{self.ref.connection}/{self.slug}"


@dataclass(frozen=True)
class SourceProof:
    """What the app saw of a source before it asked for a new link of it (M-13)."""

    connection: str
    slug: str
    instance: str
    last_seen: int


@dataclass(frozen=True)
class SourceStart:
    """What was seen before a link of a source was asked for on an account that is there already, and what shall be."""

    owner: Owner
    connection: Connection
    before: Source | None
    after: Source | None
    """None: the app proved what it saw, and the source stays as it is (M-11)."""
    ticket: Ticket
    ticket_digest: str
    now: int
    idempotency: Idempotency | None = None


def checked_slug(text: object) -> str:
    """A source's name at the broker, in lower case, its words joined by hyphens. Raises `InvalidBodyError`."""
    slug = text.strip().lower().replace("_", "-").replace(" ", "-") if isinstance(text, str) else ""
    if len(slug) > LONGEST_SLUG or not SLUG.fullmatch(slug):
        raise InvalidBodyError("source: the broker's name of it, in letters, digits and hyphens", field="source")
    return slug


def is_established(connection: Connection | None, client: str) -> bool:
    """Whether there is an account behind which a further source can be linked as it stands (M-9)."""
    return connection is not None and connection.state is ConnectionState.READY and connection.client == client


def asked_for(before: Source | None, ref: ConnectionRef, slug: str, now: int, *, fences: bool) -> Source:
    """
    The source once a link of it was asked for: disconnected, whatever it was (M-10).

    *fences*: on an account that is there already, what still works on the source's events is shut out (M-12).
    """
    if before is None:
        return Source(ref, slug, SourceStatus.DISCONNECTED, 1, now, now)
    fence = before.fence + 1 if fences else before.fence
    return replace(before, status=SourceStatus.DISCONNECTED, fence=fence, last_seen=now)


def check_proof(proof: SourceProof | None, ref: ConnectionRef, slug: str | None, *, reuses: bool) -> None:
    """
    Raise `SourceStartStaleError` for a proof that cannot be one (M-13): only of the source that is asked for, on an
    account that is there already.
    """
    if proof is None:
        return
    is_of_it = (
        proof.connection == ref.connection and proof.slug == slug and proof.instance == f"{ref.connection}/{slug}"
    )
    if not reuses or slug is None or not is_of_it:
        raise SourceStartStaleError(connection_id=ref.connection)


def is_as_proven(source: Source | None, proof: SourceProof) -> bool:
    """Whether the source is still what the app saw: there, untouched, without an error, disconnected (M-14)."""
    return (
        source is not None
        and source.last_seen == proof.last_seen
        and source.error is None
        and source.status is SourceStatus.DISCONNECTED
    )
