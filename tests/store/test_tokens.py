"""What the writes of a refresh leave behind: rows 16-21."""

from dataclasses import replace

import pytest

from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import GUARD_MS, REFRESH_LEASE_MS
from quitclaim.domain.revocations import RevocationState
from quitclaim.domain.tokens import Grant
from quitclaim.store.keys import grant_key, revocation_key
from tests.store import rows
from tests.store.stage import CLIENT, REF, Stage

GRANT = grant_key(REF, "main")


# --- 16: lease and record --------------------------------------------------------------------------------------------


@pytest.mark.rule("U-11", "D-1", "F-40")
def test_a_record_is_lease_and_attempt_in_one_write(stage: Stage) -> None:
    """The grant says whose lease it is, until when, and that an attempt is open; it is due once a guard is over too."""
    stage.installed()
    until = stage.now + REFRESH_LEASE_MS

    leased = stage.tokens.record(stage.grant(), "attempt-1", stage.now)

    assert leased == stage.grant()
    assert (leased.lease, leased.lease_until, leased.attempts) == ("attempt-1", until, frozenset({"attempt-1"}))
    assert stage.due("refresh") == [(GRANT, until + GUARD_MS)]


@pytest.mark.rule("F-45", "D-32", "D-1")
@pytest.mark.parametrize(("after_ms", "taken"), [(GUARD_MS - 1, False), (GUARD_MS, True)])
def test_a_takeover_waits_for_the_guard(stage: Stage, after_ms: int, taken: bool) -> None:
    """A lease that is over is taken over once a guard has passed, and both attempts are on record."""
    stage.installed()
    first = stage.tokens.record(stage.grant(), "attempt-1", stage.now)
    stage.clock.move(to=(first.lease_until or 0) + after_ms)

    if taken:
        stage.tokens.record(stage.grant(), "attempt-2", stage.now)
        assert stage.grant().attempts == {"attempt-1", "attempt-2"}
    else:
        with pytest.raises(MovedError) as moved:
            stage.tokens.record(stage.grant(), "attempt-2", stage.now)
        assert moved.value.seen["grant"].lease == "attempt-1"


@pytest.mark.rule("F-40")
def test_a_loser_learns_who_holds_the_lease_and_until_when(stage: Stage) -> None:
    """The refusal carries the grant as it is; a grant that is gone carries nothing."""
    stage.installed()
    grant = stage.grant()
    stage.tokens.record(grant, "attempt-1", stage.now)

    with pytest.raises(MovedError) as moved:
        stage.tokens.record(grant, "attempt-2", stage.now)
    found = moved.value.seen["grant"]
    stage.stopped()
    with pytest.raises(MovedError) as gone:
        stage.tokens.record(grant, "attempt-3", stage.now)

    assert isinstance(found, Grant)
    assert (found.lease, found.lease_until) == ("attempt-1", stage.now + REFRESH_LEASE_MS)
    assert gone.value.seen == {"grant": None}


# --- 17, 18: save ----------------------------------------------------------------------------------------------------


def test_a_save_replaces_the_tokens_and_clears_the_record(stage: Stage) -> None:
    """One version on, saved by this attempt; lease, attempts and suspicion are gone, and nothing is due."""
    stage.installed()
    stage.stand_in.alter(GRANT, put={"suspect": 1, "retry_at": 5})
    stage.tokens.record(stage.grant(), "attempt-1", stage.now)
    before = stage.grant()
    after = rows.saved(stage, before)

    stage.tokens.save(before, after, "attempt-1")

    assert stage.grant() == replace(after, v=before.v + 1)
    assert (stage.grant().tv, stage.grant().saved_by, stage.grant().suspect) == (2, "attempt-1", None)
    assert stage.due("refresh") == []


@pytest.mark.rule("F-42", "U-10")
def test_a_save_asks_no_clock(stage: Stage) -> None:
    """A lease that is over but was not taken over still saves: time is no fence (F-42)."""
    before = rows.leased(stage)
    stage.clock.move(minutes=10)

    stage.tokens.save(before, rows.saved(stage, before), "attempt-1")

    assert stage.grant().tv == 2


@pytest.mark.rule("F-42", "I-6", "U-10")
def test_a_save_after_a_takeover_is_refused(stage: Stage) -> None:
    """Only the lease's holder saves."""
    before = rows.leased(stage)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    stage.tokens.record(stage.grant(), "attempt-2", stage.now)

    with pytest.raises(MovedError):
        stage.tokens.save(before, rows.saved(stage, before), "attempt-1")

    assert stage.grant().tv == 1


def test_a_save_recognises_itself_after_something_else_was_written(stage: Stage) -> None:
    """`saved_by` is the witness that a later report or lease leaves standing."""
    before = rows.leased(stage)
    after = rows.saved(stage, before)
    stage.tokens.save(before, after, "attempt-1")
    stage.tokens.record(stage.grant(), "attempt-2", stage.now)
    newer = stage.grant()

    stage.tokens.save(before, after, "attempt-1")

    assert stage.grant() == newer


def test_a_surviving_predecessor_is_queued_with_the_save(stage: Stage) -> None:
    """Where the old token lives on and no revocation of the new one reaches it, it is owed at once (custody rule 6)."""
    rows.save_and_queue_the_old(stage)()

    assert stage.grant().tv == 2
    assert stage.revocation("attempt-1.old").state is RevocationState.PENDING
    assert stage.barrier().owed == {"attempt-1.old"}
    assert stage.due("revoke", CLIENT) == [(revocation_key("attempt-1.old"), stage.now)]


# --- 19: withdraw ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-45")
def test_an_attempt_that_did_nothing_leaves_the_record(stage: Stage) -> None:
    """The lease is free, the attempt forgotten, nothing is due, and a wish to be left alone is kept."""
    rows.withdraw(stage)()

    grant = stage.grant()
    assert (grant.lease, grant.lease_until, grant.attempts) == (None, None, frozenset())
    assert grant.retry_at == stage.now + 5_000
    assert stage.due("refresh") == []


@pytest.mark.rule("I-15", "D-1")
def test_a_withdrawal_leaves_the_other_attempt_due(stage: Stage) -> None:
    """An attempt whose answer nobody saw stays on record and due, whatever becomes of the next (row 19)."""
    rows.takeover(stage)()

    stage.tokens.withdraw(stage.grant(), "attempt-2", None)

    assert stage.grant().attempts == {"attempt-1"}
    assert [key for key, _ in stage.due("refresh")] == [GRANT]


# --- 20: orphans -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("I-1")
def test_an_orphan_beside_its_grant_takes_its_attempt_off(stage: Stage) -> None:
    """A token that cannot be saved is due, under the attempt's own id; its lease is free."""
    rows.orphan_beside_its_grant(stage)()

    assert stage.revocation("attempt-1").state is RevocationState.PENDING
    assert stage.barrier().owed == {"attempt-1"}
    assert (stage.grant().attempts, stage.grant().lease) == (frozenset(), None)
    assert stage.due("revoke", CLIENT) == [(revocation_key("attempt-1"), stage.now)]


@pytest.mark.rule("RB-41", "F-45")
def test_an_orphan_leaves_another_attempt_s_lease_alone(stage: Stage) -> None:
    """Whoever took over goes on."""
    before = rows.leased(stage)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    stage.tokens.record(stage.grant(), "attempt-2", stage.now)
    orphan = rows.orphan_of(stage, before, "attempt-1")

    stage.tokens.queue_orphan(before, "attempt-1", orphan, found=stage.grant(), stopped=None, intent_generation=None)

    assert (stage.grant().lease, stage.grant().attempts) == ("attempt-2", frozenset({"attempt-2"}))
    assert [key for key, _ in stage.due("refresh")] == [GRANT]


@pytest.mark.rule("RB-41", "I-15")
def test_the_last_attempt_takes_the_due_time_along_whoever_left_first(stage: Stage) -> None:
    """The other attempt gave its lease back since the grant was read: the orphan is queued on what is there now."""
    before = rows.leased(stage)
    stage.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    stage.tokens.record(stage.grant(), "attempt-2", stage.now)
    read = stage.grant()
    orphan = rows.orphan_of(stage, before, "attempt-1")
    stage.tokens.withdraw(read, "attempt-2", None)

    def queue(found: Grant) -> None:
        stage.tokens.queue_orphan(before, "attempt-1", orphan, found=found, stopped=None, intent_generation=None)

    with pytest.raises(MovedError):
        queue(read)
    queue(stage.grant())

    assert (stage.grant().attempts, stage.due("refresh")) == (frozenset(), [])


@pytest.mark.rule("D-3", "F-43")
def test_an_orphan_after_a_stop_is_no_longer_expected(stage: Stage) -> None:
    """The successor came: it is an item of its own, the stop's to revoke, and the stop's own item may be confirmed."""
    before = rows.leased(stage)
    stage.stopped()
    assert stage.revocation().expected == {"attempt-1"}
    orphan = rows.orphan_of(stage, before, "attempt-1")

    stage.tokens.queue_orphan(before, "attempt-1", orphan, found=None, stopped=stage.revocation(), intent_generation=1)

    assert stage.revocation().expected == frozenset()
    assert stage.intent().rids == {"r-1", "attempt-1"}
    assert stage.barrier().owed == {"r-1", "attempt-1"}


@pytest.mark.rule("D-3", "I-1")
def test_an_orphan_beside_a_settled_stop_is_queued_all_the_same(stage: Stage) -> None:
    """A terminal item has no expected set to take it from."""
    before = rows.leased(stage)
    stage.stopped()
    stopped = replace(stage.revocation(), state=RevocationState.EXPIRED)
    orphan = rows.orphan_of(stage, before, "attempt-1")

    stage.tokens.queue_orphan(before, "attempt-1", orphan, found=None, stopped=stopped, intent_generation=1)

    assert stage.revocation("attempt-1").state is RevocationState.PENDING


# --- 21: keep --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stray", [False, True])
def test_attempts_are_forgotten_where_the_old_token_is_as_good(stage: Stage, stray: bool) -> None:
    """The record is empty and nothing is due; a successor that no revocation reaches leaves its mark."""
    rows.forget_attempts(stage, stray=stray)()

    grant = stage.grant()
    assert (grant.attempts, grant.lease, grant.lease_until) == (frozenset(), None, None)
    assert grant.stray == (True if stray else None)
    assert stage.due("refresh") == []
