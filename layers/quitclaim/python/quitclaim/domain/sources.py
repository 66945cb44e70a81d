"""
Sources: what a user has linked behind one account at a broker, such as a watch behind an aggregator of health data.

A connection to a broker stands for the account; each source has an item of its own below it. A source is made when the
app wants its user to link it, or when an event names it, and is never born connected: that is for the app's own word,
or for the broker's verified events, to say. Whatever becomes of a source, its connection stays as it is.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from quitclaim.domain.connect import Connection, ConnectionState, Idempotency, Owner, Ticket
from quitclaim.domain.errors import InvalidBodyError, SourceStartStaleError
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import CLOCK_SKEW_MS

if TYPE_CHECKING:
    from quitclaim.domain.webhooks import Prepared

SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
LONGEST_SLUG: Final = 64
FIRST_FENCE: Final = 1


class SourceStatus(StrEnum):
    """Whether the source gives data."""

    DISCONNECTED = "disconnected"
    CONNECTED = "connected"


@dataclass(frozen=True)
class Source:
    """
    A source as it is stored; its name at the broker is its key below the connection.

    *generation*: the life of the connection in which it was asked for, or connected. *fenced_at*: when it was last
    asked for again behind an account that was there; what came before that speaks of what was. *said_at*: when that
    happened which the broker's last word moved it by. *ended_at*: since when it is disconnected by such a word, and no
    longer waits to be linked. *data_at*: when data of it last came.
    """

    ref: ConnectionRef
    slug: str
    status: SourceStatus
    fence: int
    first_seen: int
    last_seen: int
    error: str | None = None
    generation: int | None = None
    fenced_at: int | None = None
    said_at: int | None = None
    ended_at: int | None = None
    data_at: int | None = None
    v: int = 0

    @property
    def instance(self) -> str:
        """By which an app names the source that it saw: the connection and the slug."""
        return f"{self.ref.connection}/{self.slug}"

    def is_connected_in(self, generation: int) -> bool:
        """Whether it gives data in that life of its connection: the account of another life is another one."""
        return self.status is SourceStatus.CONNECTED and self.generation == generation


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
    told: Event | None = None


@dataclass(frozen=True)
class SourceMove:
    """A source as it was seen and as it shall be, and what the app is told of that."""

    owner: Owner
    connection: Connection
    before: Source | None
    after: Source
    told: Event | None = None
    shuts: bool | None = None
    """Whether its events are shut out from now on, or let in; None: as before."""


def slug_of(text: str) -> str | None:
    """A source's name at the broker, in lower case, its words joined by hyphens; None where it cannot be one."""
    slug = text.strip().lower().replace("_", "-").replace(" ", "-")
    return slug if len(slug) <= LONGEST_SLUG and SLUG.fullmatch(slug) else None


def checked_slug(text: object) -> str:
    """What `slug_of` says. Raises `InvalidBodyError`."""
    slug = slug_of(text) if isinstance(text, str) else None
    if slug is None:
        raise InvalidBodyError("source: the broker's name of it, in letters, digits and hyphens", field="source")
    return slug


# --- asked for -------------------------------------------------------------------------------------------------------


def is_established(connection: Connection | None, client: str) -> bool:
    """Whether there is an account behind which a further source can be linked as it stands (M-9)."""
    return connection is not None and connection.state is ConnectionState.READY and connection.client == client


def asked_for(
    before: Source | None, ref: ConnectionRef, slug: str, now: int, *, fences: bool, generation: int
) -> Source:
    """
    The source once a link of it was asked for: disconnected, whatever it was (M-10), and waiting to be linked.

    *fences*: on an account that is there already, what still works on the source's events is shut out (M-12).
    """
    if before is None:
        return Source(ref, slug, SourceStatus.DISCONNECTED, FIRST_FENCE, now, now, generation=generation)
    is_further = fences or before.status is SourceStatus.CONNECTED
    return replace(
        before,
        status=SourceStatus.DISCONNECTED,
        fence=before.fence + 1 if is_further else before.fence,
        last_seen=now,
        error=None,
        generation=generation,
        fenced_at=now if fences else before.fenced_at,
        ended_at=None,
    )


def told_of_asking(before: Source | None, after: Source, generation: int, now: int) -> Event | None:
    """That a source which was connected is so no longer, since the app asks for a new link of it."""
    if before is None or not before.is_connected_in(generation):
        return None
    return _told(EventKind.SOURCE_DISCONNECTED, after, generation, now, reason="asked_again")


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


def is_as_proven(source: Source | None, proof: SourceProof, generation: int) -> bool:
    """
    Whether the source is still what the app saw: there, untouched, without an error, disconnected in this life of its
    connection (M-14).
    """
    return (
        source is not None
        and source.last_seen == proof.last_seen
        and source.error is None
        and not source.is_connected_in(generation)
    )


# --- what an event says of one ---------------------------------------------------------------------------------------


class SourceWord(StrEnum):
    """What a broker's event says of a source itself; one that says none of these brings its data."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    FAILED = "failed"


@dataclass(frozen=True)
class SourceEvent:
    """An event that names a source. *word* is the broker's verified one; *received*: by our clock, *at*: by theirs."""

    slug: str
    word: SourceWord | None
    is_hint: bool
    received: int
    occurred: int | None = None

    @property
    def at(self) -> int:
        """When it happened, as far as anybody knows."""
        return self.received if self.occurred is None else min(self.occurred, self.received)

    @property
    def ends(self) -> bool:
        """Whether the broker says that the source gives nothing any more."""
        return self.word in (SourceWord.DISCONNECTED, SourceWord.FAILED)


def event_of_source(event: "Prepared") -> SourceEvent | None:
    """What an event says of the source that it names; None where it names none, or nothing that could be one."""
    slug = None if event.source is None else slug_of(event.source)
    if slug is None:
        return None
    is_hint = event.trust.is_hint
    word = None
    if event.source_word in tuple(SourceWord) and not is_hint:
        word = SourceWord(event.source_word)
    return SourceEvent(slug, word, is_hint, event.received_at, None if word is None else event.occurred_at)


def is_older(source: Source, event: SourceEvent) -> bool:
    """
    Whether the event speaks of what the source was before: it came before the source was asked for again, or the
    broker's own word of then is older than that, or than the word that made the source what it is.
    """
    if source.fenced_at is not None and event.received < source.fenced_at:
        return True
    if event.word is None:
        return False
    is_before_fence = source.fenced_at is not None and event.at + CLOCK_SKEW_MS < source.fenced_at
    return is_before_fence or (source.said_at is not None and event.at < source.said_at)


class SourceStep(StrEnum):
    """What comes next for an event that names a source."""

    TAKE = "take"
    """It is the connection's like any other."""
    END = "end"
    """The broker says that the source has ended: that first, then it is taken."""
    NOTE = "note"
    """The broker says once more what is so already: an older word that comes later must not count. Then it is taken."""
    OBSERVE = "observe"
    """Nobody has asked for this source: it is made first, disconnected."""
    ADMIT = "admit"
    """The source is connected from now on: that first, then it is taken."""
    ASK = "ask"
    """Whether the app admits the source."""
    WAIT = "wait"
    """Nobody can say yet whether the source is connected (M-74)."""


def step_of(source: Source | None, event: SourceEvent, generation: int, *, asks: bool) -> SourceStep:
    """
    What an event means for the source that it names, in that life of its connection (M-74).

    *asks*: whether the app wants to decide. Where it does not, the broker's verified event is enough for a source that
    waits to be linked, and for one that nobody asked for; one that the broker has ended comes back by the broker's word
    alone. A hint moves no source.
    """
    if _is_ended_by(source, event, generation):
        return SourceStep.END
    if event.ends or (source is not None and source.is_connected_in(generation)):
        return SourceStep.NOTE if _is_news(source, event, generation) else SourceStep.TAKE
    if asks:
        return SourceStep.ASK
    if source is None:
        return SourceStep.TAKE if event.is_hint else SourceStep.OBSERVE
    return SourceStep.ADMIT if may_admit(source, event, generation) else SourceStep.WAIT


def may_admit(source: Source, event: SourceEvent, generation: int) -> bool:
    """Whether the event by itself connects the source. What the app has refused waits until it asks again (M-44)."""
    if event.is_hint or is_older(source, event) or (source.error == NOT_ADMITTED and source.generation == generation):
        return False
    has_ended = source.ended_at is not None and source.generation == generation
    return not has_ended or event.word is SourceWord.CONNECTED


def _is_ended_by(source: Source | None, event: SourceEvent, generation: int) -> bool:
    if not event.ends or source is None or source.generation != generation or is_older(source, event):
        return False
    if event.word is SourceWord.DISCONNECTED:
        return source.status is SourceStatus.CONNECTED
    return source.error is None


def _is_news(source: Source | None, event: SourceEvent, generation: int) -> bool:
    if event.word is None or source is None or source.generation != generation or is_older(source, event):
        return False
    return source.said_at is None or source.said_at < event.at


def is_gone(source: Source | None) -> bool:
    """Whether what waits for the source waits for nobody: the broker has ended it, and nobody asked for it again."""
    return source is not None and source.ended_at is not None


# --- and what becomes of it ------------------------------------------------------------------------------------------

FAILED_AT_BROKER: Final = "failed_at_broker"
NOT_ADMITTED: Final = "not_admitted"


def observed(ref: ConnectionRef, slug: str, now: int) -> Source:
    """A source that an event names and that nobody has asked for: not connected yet (M-10)."""
    return Source(ref, slug, SourceStatus.DISCONNECTED, FIRST_FENCE, now, now)


def admission(owner: Owner, connection: Connection, source: Source, event: SourceEvent | None, now: int) -> SourceMove:
    """The source is connected. *event*: None where the app says so by itself."""
    generation = connection.generation
    after = replace(
        source,
        status=SourceStatus.CONNECTED,
        fence=source.fence + 1 if source.status is SourceStatus.CONNECTED else source.fence,
        last_seen=now,
        error=None,
        generation=generation,
        said_at=source.said_at if event is None or event.word is None else max(event.at, source.said_at or 0),
        ended_at=None,
    )
    told = _told(EventKind.SOURCE_CONNECTED, after, generation, now)
    return SourceMove(owner, connection, source, after, told, shuts=False)


def noted(owner: Owner, connection: Connection, source: Source, event: SourceEvent) -> SourceMove:
    """The source as it is, by a newer word of the broker's."""
    return SourceMove(owner, connection, source, replace(source, said_at=event.at))


def ending(owner: Owner, connection: Connection, source: Source, event: SourceEvent, now: int) -> SourceMove:
    """The broker's word ends the source, or its link; nothing of its connection is touched (M-48)."""
    failed = event.word is SourceWord.FAILED
    after = replace(
        source,
        status=SourceStatus.DISCONNECTED,
        fence=source.fence + 1,
        last_seen=now,
        error=FAILED_AT_BROKER if failed else None,
        said_at=event.at,
        ended_at=now,
    )
    kind = EventKind.SOURCE_FAILED if failed else EventKind.SOURCE_DISCONNECTED
    reason = FAILED_AT_BROKER if failed else "ended_at_broker"
    told = _told(kind, after, connection.generation, now, reason=reason)
    return SourceMove(owner, connection, source, after, told, shuts=True)


def link_refused(owner: Owner, connection: Connection, source: Source, now: int) -> SourceMove:
    """The app does not admit what was linked; nothing of its connection is touched (M-48)."""
    after = replace(source, fence=source.fence + 1, last_seen=now, error=NOT_ADMITTED, ended_at=now)
    told = _told(EventKind.SOURCE_FAILED, after, connection.generation, now, reason=NOT_ADMITTED)
    return SourceMove(owner, connection, source, after, told, shuts=True)


def _told(kind: EventKind, after: Source, generation: int, now: int, **said: str) -> Event:
    """One event of a transition: the fence tells a source's transitions apart, the generation its lives."""
    transition = f"{after.ref.connection}#{generation}#{after.slug}#{after.fence}"
    return Event(kind, after.ref, transition, now, {"generation": generation, "source": after.slug, **said})
