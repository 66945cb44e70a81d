"""What an event that names a source means for it: every state of a source against every event, as a table."""

from dataclasses import replace

import pytest

from quitclaim.domain.connect import Connection, ConnectionState, Owner
from quitclaim.domain.events import EventKind
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import CLOCK_SKEW_MS
from quitclaim.domain.sources import (
    FAILED_AT_BROKER,
    NOT_ADMITTED,
    Source,
    SourceEvent,
    SourceStatus,
    SourceStep,
    SourceWord,
    admission,
    asked_for,
    ending,
    event_of_source,
    is_as_proven,
    is_gone,
    is_older,
    link_refused,
    may_admit,
    noted,
    observed,
    slug_of,
    step_of,
    told_of_asking,
)
from quitclaim.domain.sources import SourceProof as Proof
from quitclaim.domain.webhooks import Prepared, Trust

REF = ConnectionRef("acme-app", "ann", "health")
LIFE = 3
T = 1_800_000_000_000
ASKED = Source(REF, "oura", SourceStatus.DISCONNECTED, 1, T, T, generation=LIFE)
CONNECTED = replace(ASKED, status=SourceStatus.CONNECTED, said_at=T)
STATES = {
    "missing": None,
    "observed": observed(REF, "oura", T),
    "asked": ASKED,
    "connected": CONNECTED,
    "ended": replace(ASKED, fence=2, said_at=T, ended_at=T),
    "failed": replace(ASKED, fence=2, said_at=T, ended_at=T, error=FAILED_AT_BROKER),
    "refused": replace(ASKED, fence=2, ended_at=T, error=NOT_ADMITTED),
    "asked again": replace(ASKED, fence=2, fenced_at=T + 10),
    "of another life": replace(CONNECTED, generation=LIFE - 1),
    "ended in another life": replace(ASKED, generation=LIFE - 1, ended_at=T),
}
EVENTS = {
    "data": SourceEvent("oura", None, is_hint=False, received=T + 1),
    "hint": SourceEvent("oura", None, is_hint=True, received=T + 1),
    "connected": SourceEvent("oura", SourceWord.CONNECTED, is_hint=False, received=T + 1),
    "disconnected": SourceEvent("oura", SourceWord.DISCONNECTED, is_hint=False, received=T + 1),
    "failed": SourceEvent("oura", SourceWord.FAILED, is_hint=False, received=T + 1),
    "later data": SourceEvent("oura", None, is_hint=False, received=T + 10),
}
TAKE, END, NOTE, OBSERVE, ADMIT, ASK, WAIT = SourceStep
BY_THE_BROKER = {
    # state: data, hint, connected, disconnected, failed, later data
    "missing": (OBSERVE, TAKE, OBSERVE, TAKE, TAKE, OBSERVE),
    "observed": (ADMIT, WAIT, ADMIT, TAKE, TAKE, ADMIT),
    "asked": (ADMIT, WAIT, ADMIT, NOTE, END, ADMIT),
    "connected": (TAKE, TAKE, NOTE, END, END, TAKE),
    "ended": (WAIT, WAIT, ADMIT, NOTE, END, WAIT),
    "failed": (WAIT, WAIT, ADMIT, NOTE, NOTE, WAIT),
    "refused": (WAIT, WAIT, WAIT, NOTE, NOTE, WAIT),
    "asked again": (WAIT, WAIT, WAIT, TAKE, TAKE, ADMIT),
    "of another life": (ADMIT, WAIT, ADMIT, TAKE, TAKE, ADMIT),
    "ended in another life": (ADMIT, WAIT, ADMIT, TAKE, TAKE, ADMIT),
}


@pytest.mark.rule("M-74")
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_every_state_against_every_event(state: str, asks: bool) -> None:
    """Where the app wants to decide, it is asked about whatever would connect the source; ends are the broker's."""
    expected = BY_THE_BROKER[state]
    if asks:
        named = zip(EVENTS, expected, strict=True)
        expected = tuple(step if step in (END, NOTE) or _ends(name) else _asked(state) for name, step in named)

    assert tuple(step_of(STATES[state], each, LIFE, asks=asks) for each in EVENTS.values()) == expected


def _ends(name: str) -> bool:
    return name in ("disconnected", "failed")


def _asked(state: str) -> SourceStep:
    return TAKE if state == "connected" else ASK


@pytest.mark.rule("M-44")
def test_what_the_app_has_refused_no_event_connects() -> None:
    """Whatever the broker says of it, before or after: only that the app asks for it again."""
    refused = STATES["refused"]

    assert not any(may_admit(refused, each, LIFE) for each in EVENTS.values())
    assert may_admit(replace(refused, error=None), EVENTS["connected"], LIFE)


def test_only_a_word_of_the_brokers_is_the_last_one() -> None:
    """Data and hints say nothing of the source: a later word with an earlier time of the broker's counts."""
    told = {name: admission(OWNER, CONNECTION, ASKED, each, T + 20).after.said_at for name, each in EVENTS.items()}

    assert told["data"] == told["hint"] == told["later data"] == ASKED.said_at
    assert told["connected"] == EVENTS["connected"].at


@pytest.mark.rule("U-17", "M-12")
@pytest.mark.parametrize(("received", "older"), [(T - 1, True), (T, False), (T + 1, False)])
def test_what_came_before_the_source_was_asked_for_again_is_older(received: int, older: bool) -> None:
    """By our own clock, to the millisecond."""
    source = replace(ASKED, fenced_at=T)

    assert is_older(source, SourceEvent("oura", None, is_hint=False, received=received)) is older


@pytest.mark.rule("U-17", "M-74")
@pytest.mark.parametrize(("occurred", "older"), [(T - 1, True), (T, False), (T + 1, False)])
def test_a_word_is_older_than_the_last_word_by_when_it_happened(occurred: int, older: bool) -> None:
    """By the broker's own times, whenever it came."""
    event = SourceEvent("oura", SourceWord.CONNECTED, is_hint=False, received=T + 9, occurred=occurred)

    assert is_older(replace(ASKED, said_at=T), event) is older


@pytest.mark.rule("U-17", "M-12")
@pytest.mark.parametrize(("before", "older"), [(1, True), (0, False), (-1, False)])
def test_a_word_of_before_the_source_was_asked_for_again_is_older(before: int, older: bool) -> None:
    """By as much as clocks may differ: the broker's against ours."""
    occurred = T - CLOCK_SKEW_MS - before
    event = SourceEvent("oura", SourceWord.CONNECTED, is_hint=False, received=T + 9, occurred=occurred)

    assert is_older(replace(ASKED, fenced_at=T), event) is older


def a_prepared(**said: object) -> Prepared:
    """An event that was verified."""
    plain = {"trust": Trust.SIGNED, "sha256": "0" * 64, "size": 2, "received_at": T} | said
    return Prepared("acme", "acme", **plain)  # type: ignore[arg-type]


@pytest.mark.rule("M-74", "M-82")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        ({"source": "a/b"}, None),
        ({"source": " Google_Fit "}, SourceEvent("google-fit", None, is_hint=False, received=T)),
        ({"source": "oura", "occurred_at": 5}, SourceEvent("oura", None, is_hint=False, received=T)),
        (
            {"source": "oura", "source_word": "failed", "occurred_at": 5},
            SourceEvent("oura", SourceWord.FAILED, is_hint=False, received=T, occurred=5),
        ),
        ({"source": "oura", "source_word": "paused"}, SourceEvent("oura", None, is_hint=False, received=T)),
        (
            {"source": "oura", "source_word": "failed", "trust": Trust.SECRET},
            SourceEvent("oura", None, is_hint=True, received=T),
        ),
        (
            {"source": "oura", "source_word": "connected", "trust": Trust.INDIRECT},
            SourceEvent("oura", None, is_hint=True, received=T),
        ),
    ],
    ids=str,
)
def test_what_an_event_says_of_a_source(said: dict[str, object], expected: SourceEvent | None) -> None:
    """Its name in our spelling; a word that is known, and only a verified one; when it happened, of a word alone."""
    assert event_of_source(a_prepared(**said)) == expected


def test_a_word_happened_no_later_than_it_came() -> None:
    """A broker's clock that is ahead makes no word newer than what we know."""
    assert SourceEvent("oura", SourceWord.FAILED, is_hint=False, received=T, occurred=T + 9).at == T


def test_a_name_that_is_too_long_is_none() -> None:
    """To the character."""
    assert slug_of("a" * 64) == "a" * 64
    assert slug_of("a" * 65) is None


# --- transitions ------------------------------------------------------------------------------------------------------

OWNER = Owner()
CONNECTION = Connection(REF, "acme", "acme", ConnectionState.READY, LIFE)
WORD = SourceEvent("oura", SourceWord.DISCONNECTED, is_hint=False, received=T + 5, occurred=T + 3)


@pytest.mark.rule("M-10", "M-12")
def test_a_source_that_is_asked_for_again() -> None:
    """Disconnected, without an error; the fence is raised behind an account that is there, or if it was connected."""
    new = asked_for(None, REF, "oura", T, fences=False, generation=LIFE)
    again = asked_for(STATES["failed"], REF, "oura", T + 9, fences=True, generation=LIFE)
    elsewhere = asked_for(CONNECTED, REF, "oura", T + 9, fences=False, generation=LIFE + 1)
    waiting = asked_for(new, REF, "oura", T + 9, fences=False, generation=LIFE + 1)

    assert (new.status, new.fence, new.fenced_at, new.generation) == (SourceStatus.DISCONNECTED, 1, None, LIFE)
    assert (again.status, again.fence, again.fenced_at) == (SourceStatus.DISCONNECTED, 3, T + 9)
    assert (again.error, again.ended_at) == (None, None)
    assert (elsewhere.status, elsewhere.fence, elsewhere.fenced_at) == (SourceStatus.DISCONNECTED, 2, None)
    assert (waiting.fence, waiting.fenced_at, waiting.generation) == (1, None, LIFE + 1)


@pytest.mark.rule("M-74")
def test_the_transitions_of_a_source_have_ids_of_their_own() -> None:
    """Connected, ended, connected, asked again, connected, failed: six events, six ids, whatever else repeats."""
    first = admission(OWNER, CONNECTION, ASKED, replace(WORD, word=SourceWord.CONNECTED), T)
    over = ending(OWNER, CONNECTION, first.after, WORD, T)
    back = admission(OWNER, CONNECTION, over.after, None, T)
    again = asked_for(back.after, REF, "oura", T, fences=True, generation=LIFE)
    told = told_of_asking(back.after, again, LIFE, T)
    third = admission(OWNER, CONNECTION, again, None, T)
    failed = ending(OWNER, CONNECTION, third.after, replace(WORD, word=SourceWord.FAILED), T)
    next_life = admission(OWNER, replace(CONNECTION, generation=LIFE + 1), third.after, None, T)

    events = [first.told, over.told, back.told, told, third.told, failed.told, next_life.told]
    assert [each.kind for each in events if each] == [
        EventKind.SOURCE_CONNECTED,
        EventKind.SOURCE_DISCONNECTED,
        EventKind.SOURCE_CONNECTED,
        EventKind.SOURCE_DISCONNECTED,
        EventKind.SOURCE_CONNECTED,
        EventKind.SOURCE_FAILED,
        EventKind.SOURCE_CONNECTED,
    ]
    assert len({each.public_id for each in events if each}) == len(events)
    assert next_life.after.fence == third.after.fence + 1


@pytest.mark.rule("M-48", "M-74")
def test_an_end_by_the_broker_s_word() -> None:
    """The fence is raised, so that whatever still works on the source finds it moved; its events are shut out."""
    over = ending(OWNER, CONNECTION, CONNECTED, WORD, T + 9)
    failed = ending(OWNER, CONNECTION, over.after, replace(WORD, word=SourceWord.FAILED), T + 9)

    assert (over.after.status, over.after.fence, over.after.error) == (SourceStatus.DISCONNECTED, 2, None)
    assert (over.after.said_at, over.after.ended_at, over.shuts) == (T + 3, T + 9, True)
    assert (failed.after.error, is_gone(failed.after), is_gone(ASKED), is_gone(None)) == (
        FAILED_AT_BROKER,
        True,
        False,
        False,
    )
    assert over.told is not None
    assert over.told.body == {"generation": LIFE, "source": "oura", "reason": "ended_at_broker"}


@pytest.mark.rule("M-74")
def test_an_admission_forgets_how_the_source_ended() -> None:
    """By the event's time; the app's own word keeps the broker's last one."""
    word = replace(WORD, word=SourceWord.CONNECTED)
    by_event = admission(OWNER, CONNECTION, replace(STATES["failed"]), word, T + 9)  # type: ignore[type-var]
    by_app = admission(OWNER, CONNECTION, replace(STATES["failed"]), None, T + 9)  # type: ignore[type-var]

    assert (by_event.after.error, by_event.after.ended_at, by_event.after.said_at) == (None, None, T + 3)
    assert (by_app.after.said_at, by_app.after.last_seen, by_app.shuts) == (T, T + 9, False)
    assert noted(OWNER, CONNECTION, CONNECTED, word).after == replace(CONNECTED, said_at=T + 3)


@pytest.mark.rule("M-44", "M-48")
def test_a_link_that_the_app_refuses() -> None:
    """The source is in error, and no longer waits; what still works on it finds it moved."""
    refused = link_refused(OWNER, CONNECTION, ASKED, T + 9)

    assert (refused.after.status, refused.after.error, refused.after.fence) == (
        SourceStatus.DISCONNECTED,
        NOT_ADMITTED,
        2,
    )
    assert (refused.after.ended_at, refused.after.last_seen, refused.shuts) == (T + 9, T + 9, True)
    assert refused.told is not None
    assert refused.told.body == {"generation": LIFE, "source": "oura", "reason": NOT_ADMITTED}


@pytest.mark.rule("M-14")
def test_a_proof_of_a_source_that_was_connected_in_another_life() -> None:
    """It is disconnected in this one, and the app sees it so."""
    proof = Proof("health", "oura", "health/oura", T)

    assert is_as_proven(STATES["of another life"], proof, LIFE)
    assert not is_as_proven(CONNECTED, proof, LIFE)
    assert not is_as_proven(STATES["failed"], proof, LIFE)
    assert not is_as_proven(replace(ASKED, last_seen=T + 1), proof, LIFE)
    assert not is_as_proven(None, proof, LIFE)
