"""Rows 80 to 82: what an event makes of a source, and what is noted of when it came."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from quitclaim.domain.events import EventKind
from quitclaim.domain.limits import MINUTE
from quitclaim.domain.sources import (
    Source,
    SourceEvent,
    SourceMove,
    SourceProof,
    SourceStatus,
    SourceWord,
    admission,
    asked_for,
    ending,
    link_refused,
    observed,
    told_of_asking,
)
from quitclaim.store.keys import member_key
from tests.store import test_rows
from tests.store.more_rows import arranged_by
from tests.store.rows import (
    CLAIM_IS_LOST,
    CONNECTION,
    DELIVERY,
    SOURCE,
    SOURCE_REFUSALS,
    Act,
    Refusal,
    Row,
    a_source_start,
    event_taken,
    gone,
    has,
    moved,
    owner_moves,
    taken,
)
from tests.store.stage import ACCOUNT, CLIENT, REF, Stage
from tests.store.test_deliveries import claimed

MEMBER = member_key(CLIENT, ACCOUNT, REF)


def word_of(stage: Stage, word: SourceWord | None) -> SourceEvent:
    """An event of the source that came just now."""
    return SourceEvent("oura", word, is_hint=False, received=stage.now)


def there(stage: Stage, *, account: str | None = ACCOUNT) -> Source:
    """A connection is ready, and its source waits to be linked."""
    connection = stage.installed(account=account)
    stage.connects.start_source(a_source_start(stage, connection, "first"), None)
    return stage.source()


def connected(stage: Stage) -> Source:
    """And is connected."""
    source = there(stage)
    stage.sources.move(admitted(stage, source), claimed(stage)[0])
    stage.stand_in.erase(DELIVERY)
    return stage.source()


def admitted(stage: Stage, source: Source) -> SourceMove:
    """The broker says that it is connected."""
    return admission(stage.owner(), stage.connection(), source, word_of(stage, SourceWord.CONNECTED), stage.now)


def observe(stage: Stage) -> Act:
    connection = stage.installed()
    move = SourceMove(stage.owner(), connection, None, observed(REF, "oura", stage.now))
    return partial(stage.sources.move, move, claimed(stage)[0])


def admit(stage: Stage, *, account: str | None = ACCOUNT) -> Act:
    source = there(stage, account=account)
    return partial(stage.sources.move, admitted(stage, source), claimed(stage)[0])


def end(stage: Stage, word: SourceWord) -> Act:
    source = connected(stage)
    move = ending(stage.owner(), stage.connection(), source, word_of(stage, word), stage.now)
    return partial(stage.sources.move, move, claimed(stage)[0])


def ask_again(stage: Stage) -> Act:
    before = connected(stage)
    decision = a_source_start(stage, stage.connection(), "second")
    assert decision.after is not None
    told = told_of_asking(before, decision.after, 1, stage.now)
    return partial(stage.connects.start_source, replace(decision, told=told), None)


def prove(stage: Stage) -> Act:
    """What the app sees of a source that was connected in an earlier life: disconnected."""
    connected(stage)
    stage.stand_in.alter(SOURCE, put={"generation": 0})
    source = stage.source()
    decision = replace(a_source_start(stage, stage.connection(), "second"), after=None)
    proof = SourceProof(REF.connection, "oura", source.instance, source.last_seen)
    return partial(stage.connects.start_source, decision, proof)


def fail_link(stage: Stage) -> Act:
    source = there(stage)
    return partial(stage.connects.fail_link, link_refused(stage.owner(), stage.connection(), source, stage.now))


def stamp_event(stage: Stage, *, again: bool = False) -> Act:
    stage.installed()
    if again:
        stage.sources.stamp_event(CLIENT, ACCOUNT, REF, 1, stage.now - MINUTE)
    return partial(stage.sources.stamp_event, CLIENT, ACCOUNT, REF, 1, stage.now)


def stamp_data(stage: Stage, *, again: bool = False) -> Act:
    source = there(stage)
    if again:
        stage.sources.stamp_data(source, stage.now - MINUTE)
    return partial(stage.sources.stamp_data, stage.source(), stage.now)


def just_now(**attributes: str) -> Any:
    """The time is noted since."""
    (key, name), *_ = attributes.items()
    where = MEMBER if key == "member" else SOURCE
    return lambda stage: has(where, **{name: stage.now - MINUTE + 1})(stage)


LIFE_IS_OVER = (
    Refusal("the connection is stopped", "connection", has(CONNECTION, state="revoking")),
    Refusal("the connection has another life", "connection", has(CONNECTION, generation=9)),
)
MOVE_REFUSALS = (*CLAIM_IS_LOST, *owner_moves(), *LIFE_IS_OVER)
MEMBER_MOVED = (
    Refusal("the member is of another life", "member", has(MEMBER, generation=9)),
    Refusal("the member is gone", "member", gone(MEMBER)),
)
SOURCE_MOVED = Refusal("the source moved", "source", moved(SOURCE))
ROWS = (
    Row(
        "80 source observed",
        observe,
        4,
        (*MOVE_REFUSALS, Refusal("the source is there by now", "source", taken(SOURCE))),
    ),
    Row(
        "80 source connected",
        admit,
        6,
        (
            *MOVE_REFUSALS,
            *MEMBER_MOVED,
            SOURCE_MOVED,
            Refusal("told", "event", event_taken(EventKind.SOURCE_CONNECTED, "google#1#oura#1")),
        ),
    ),
    Row("80 source connected of an account that nobody knows", partial(admit, account=None), 5, (SOURCE_MOVED,)),
    Row("80 source ended", partial(end, word=SourceWord.DISCONNECTED), 6, (*MEMBER_MOVED, SOURCE_MOVED)),
    Row("80 source failed", partial(end, word=SourceWord.FAILED), 6, (*MEMBER_MOVED, SOURCE_MOVED)),
    Row(
        "62 source that was connected",
        ask_again,
        7,
        (
            *SOURCE_REFUSALS,
            *MEMBER_MOVED,
            SOURCE_MOVED,
            Refusal("told", "event", event_taken(EventKind.SOURCE_DISCONNECTED, "google#1#oura#2")),
        ),
    ),
    Row(
        "62 source as the app saw it, of another life",
        prove,
        5,
        (Refusal("it is connected in this one", "source", has(SOURCE, generation=1)),),
    ),
    Row(
        "83 link refused",
        fail_link,
        5,
        (
            *owner_moves(),
            *LIFE_IS_OVER,
            *MEMBER_MOVED,
            SOURCE_MOVED,
            Refusal("told", "event", event_taken(EventKind.SOURCE_FAILED, "google#1#oura#2")),
        ),
    ),
    Row(
        "81 an event's time",
        stamp_event,
        1,
        (*MEMBER_MOVED, Refusal("it is known", "member", just_now(member="webhook_at"))),
    ),
    Row("81 a later event's time", partial(stamp_event, again=True), 1),
    Row(
        "82 data's time",
        stamp_data,
        1,
        (
            Refusal("it is known", "source", just_now(source="data_at")),
            Refusal("the source is another", "source", has(SOURCE, fence=9)),
            Refusal("the source is gone", "source", gone(SOURCE)),
        ),
    ),
    Row("82 later data's time", partial(stamp_data, again=True), 1),
)
dynamodb, arranged = test_rows.dynamodb, arranged_by(ROWS)
test_a_broken_condition = test_rows.test_a_condition_that_does_not_hold_refuses_the_whole_row
test_once = test_rows.test_a_row_happens_once_whatever_became_of_its_first_try


@pytest.mark.rule("M-74")
def test_what_is_asked_for_waits_and_is_shut_out_until_it_is_connected(stage: Stage) -> None:
    """Beside the account stands which sources this connection takes no events of; a stop takes that along."""
    admit_it = admit(stage)
    assert stage.item(MEMBER)["shut"] == {"oura"}
    assert stage.reads.shuts_out(CLIENT, ACCOUNT, "oura")
    assert not stage.reads.shuts_out(CLIENT, ACCOUNT, "garmin")

    admit_it()

    assert "shut" not in stage.item(MEMBER)
    assert not stage.reads.shuts_out(CLIENT, ACCOUNT, "oura")
    assert stage.source().is_connected_in(1)
    stage.sources.move(
        ending(stage.owner(), stage.connection(), stage.source(), word_of(stage, SourceWord.FAILED), stage.now),
        stage.webhooks.claim(stage.accepted(digest="event-2"), stage.now),
    )
    assert stage.reads.shuts_out(CLIENT, ACCOUNT, "oura")
    assert stage.event("source.failed") == {
        "tenant": REF.tenant,
        "owner": REF.owner,
        "connection_id": REF.connection,
        "generation": 1,
        "source": "oura",
        "reason": "failed_at_broker",
    }


def test_nobody_lives_on_an_account_that_nobody_knows(stage: Stage) -> None:
    """So nobody shuts anything out."""
    assert not stage.reads.shuts_out(CLIENT, ACCOUNT, "oura")


@pytest.mark.rule("M-10", "M-15")
def test_asking_for_a_source_again_disconnects_it_and_says_so(stage: Stage) -> None:
    """In one commit, once; its connection is as it was."""
    act = ask_again(stage)
    before = stage.item(CONNECTION)

    act()

    source = stage.source()
    assert (source.status, source.fence, source.fenced_at) == (SourceStatus.DISCONNECTED, 2, stage.now)
    assert stage.event("source.disconnected")["reason"] == "asked_again"
    assert stage.item(CONNECTION) == before


def test_asking_for_what_waits_already_says_nothing(stage: Stage) -> None:
    """Nothing has become of it."""
    before = there(stage)
    again = asked_for(before, REF, "oura", stage.now, fences=True, generation=1)

    assert told_of_asking(before, again, 1, stage.now) is None
    assert told_of_asking(None, again, 1, stage.now) is None
