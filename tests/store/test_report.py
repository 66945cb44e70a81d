"""Row 22 and rows 52 and 53: a grant that is reported, looked after, or about to end."""

from dataclasses import replace
from functools import partial

import pytest

from quitclaim.domain.errors import MovedError
from quitclaim.domain.events import EventKind
from quitclaim.domain.limits import GUARD_MS, REFRESH_LEASE_MS
from quitclaim.domain.tokens import Grant
from tests.store import rows, test_rows
from tests.store.more_rows import arranged_by
from tests.store.rows import GRANT, Act, Refusal, Row, event_taken, gone, has, moved
from tests.store.stage import Stage


def looked_after(stage: Stage) -> Grant:
    """A live grant with an idle limit and an end."""
    stage.installed()
    stage.stand_in.alter(
        GRANT, put={"keep_alive_at": stage.now + 1_000, "expiring_at": stage.now + 2_000, "refresh_until": 5}
    )
    return stage.grant()


def report(stage: Stage) -> Act:
    stage.installed()
    return partial(stage.tokens.report, stage.grant())


def found_good(stage: Stage) -> Act:
    report(stage)()
    return partial(stage.tokens.found_good, stage.grant())


def keep_by_itself(stage: Stage) -> Act:
    return partial(stage.tokens.keep_by_itself, looked_after(stage))


def tell_expiring(stage: Stage) -> Act:
    return partial(stage.tokens.tell_expiring, looked_after(stage), stage.now)


ROWS = (
    Row(
        "22 report",
        report,
        1,
        (
            Refusal("it was refreshed", "grant", has(GRANT, tv=2)),
            Refusal("another generation", "grant", has(GRANT, generation=9)),
            Refusal("it was stopped", "grant", gone(GRANT)),
        ),
    ),
    Row("22 found good", found_good, 1),
    Row("52 keeps by itself", keep_by_itself, 1),
    Row(
        "53 end told",
        tell_expiring,
        2,
        (
            Refusal("it moved", "grant", moved(GRANT)),
            Refusal("a refresh is on record", "grant", has(GRANT, attempts=frozenset({"a"}))),
            Refusal("it was told, or its end moved", "grant", has(GRANT, expiring_at=7)),
            Refusal("told", "event", event_taken(EventKind.CONNECTION_EXPIRING, "google#1#5")),
        ),
    ),
)
dynamodb, arranged = test_rows.dynamodb, arranged_by(ROWS)
test_a_broken_condition = test_rows.test_a_condition_that_does_not_hold_refuses_the_whole_row
test_once = test_rows.test_a_row_happens_once_whatever_became_of_its_first_try


def due(stage: Stage) -> list[tuple[str, int]]:
    """What the grant is due for, and when."""
    return [(kind, at) for kind in ("refresh", "keepalive") for key, at in stage.due(kind) if key == GRANT]


def test_a_mark_is_on_the_version_alone(stage: Stage) -> None:
    """And the next save takes it away."""
    report(stage)()
    assert stage.grant().is_suspect

    before = stage.tokens.record(stage.grant(), "a", stage.now)
    free = replace(before, lease=None, lease_until=None, attempts=frozenset(), saved_by="a")
    stage.tokens.save(before, replace(free, tv=2, suspect=None), "a")

    assert (stage.grant().tv, stage.grant().suspect) == (2, None)


@pytest.mark.parametrize("changes", [{"tv": 2}, {"suspect": 7}])
def test_found_good_takes_away_no_newer_mark(stage: Stage, changes: dict[str, int]) -> None:
    """Whatever moved meanwhile makes it a no-op."""
    act = found_good(stage)
    stage.stand_in.alter(GRANT, put=changes)
    before = stage.stand_in.everything()

    act()

    assert stage.stand_in.everything() == before


def test_a_grant_that_is_looked_after_is_due_for_it(stage: Stage) -> None:
    """From its install on, by the earlier of its times."""
    exchange = stage.held()
    grant = replace(stage.a_grant(exchange), keep_alive_at=9_000, expiring_at=8_000)
    stage.a_grant = lambda *_: grant
    stage.begun = lambda *_: stage.exchange()
    stage.held = lambda *_, **__: stage.exchange()
    stage.installed(account=None)

    assert due(stage) == [("keepalive", 8_000)]


def test_a_refresh_on_record_is_due_first_and_gives_the_time_back(stage: Stage) -> None:
    """Recorded: due at its lease's end. Withdrawn: as before. Saved: by the new times. Kept: as before."""
    kept = looked_after(stage)
    leased = stage.tokens.record(kept, "a", stage.now)
    assert due(stage) == [("refresh", stage.now + REFRESH_LEASE_MS + GUARD_MS)]

    stage.tokens.withdraw(leased, "a", None)
    assert due(stage) == [("keepalive", kept.keep_alive_at)]

    leased = stage.tokens.record(stage.grant(), "b", stage.now)
    free = replace(leased, lease=None, lease_until=None, attempts=frozenset(), saved_by="b")
    stage.tokens.save(leased, replace(free, tv=2, keep_alive_at=77_000, expiring_at=None), "b")
    assert due(stage) == [("keepalive", 77_000)]
    assert stage.grant().expiring_at is None

    leased = stage.tokens.record(stage.grant(), "c", stage.now)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    stage.tokens.forget_attempts(stage.grant(), stage.now, stray=False)
    assert due(stage) == [("keepalive", 77_000)]

    leased = stage.tokens.record(stage.grant(), "d", stage.now)
    stage.tokens.queue_orphan(
        leased, "d", rows.orphan_of(stage, leased, "d"), found=stage.grant(), stopped=None, intent_generation=None
    )
    assert due(stage) == [("keepalive", 77_000)]


@pytest.mark.rule("I-15", "D-1")
def test_an_earlier_attempt_stays_due_when_a_later_one_is_withdrawn(stage: Stage) -> None:
    """Nobody else would look at it again."""
    stage.installed()
    stage.tokens.record(stage.grant(), "a", stage.now)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    leased = stage.tokens.record(stage.grant(), "b", stage.now)

    stage.tokens.withdraw(leased, "b", stage.now + 90_000)

    assert (stage.grant().attempts, stage.grant().lease) == ({"a"}, None)
    assert due(stage) == [("refresh", stage.now + 90_000)]


def test_a_late_answer_gives_up_the_lease_that_nobody_has(stage: Stage) -> None:
    """Its attempt was the last, after another was withdrawn: nothing is due any more."""
    stage.installed()
    first = stage.tokens.record(stage.grant(), "a", stage.now)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    stage.tokens.withdraw(stage.tokens.record(stage.grant(), "b", stage.now), "b", None)

    stage.tokens.queue_orphan(
        first, "a", rows.orphan_of(stage, first, "a"), found=stage.grant(), stopped=None, intent_generation=None
    )

    assert (stage.grant().attempts, due(stage)) == (frozenset(), [])


def test_a_late_answer_leaves_anothers_lease_alone(stage: Stage) -> None:
    """It was read as nobody's and is somebody's by now: refused, and read again."""
    stage.installed()
    first = stage.tokens.record(stage.grant(), "a", stage.now)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    stage.tokens.withdraw(stage.tokens.record(stage.grant(), "b", stage.now), "b", None)
    found = stage.grant()
    stage.tokens.record(found, "c", stage.now)

    with pytest.raises(MovedError) as refused:
        stage.tokens.queue_orphan(
            first, "a", rows.orphan_of(stage, first, "a"), found=found, stopped=None, intent_generation=None
        )

    assert list(refused.value.seen) == ["grant"]
    assert stage.grant().lease == "c"
