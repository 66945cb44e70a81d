"""What happens to a queued revocation, write by write: rows 28-41."""

import itertools
from dataclasses import replace

import pytest

from quitclaim.domain.limits import BATCH, CLAIM_LEASE_MS, COMPACT_MS, DEADLINE_MS, GUARD_MS, RECEIPT_TTL_MS
from quitclaim.domain.revocations import Claimed, Reach, Revocation, RevocationState
from quitclaim.ports import Put
from quitclaim.store.keys import (
    family_marker_key,
    marker_key,
    receipt_key,
    revocation_key,
    shard,
)
from quitclaim.store.stamps import revocation_item
from tests.fakes.tables import Fault, ambiguous, applied_then_ambiguous, busy
from tests.store import rows
from tests.store.stage import ACCOUNT, CLIENT, OWNER, REF, Stage

REVOCATION = revocation_key("r-1")


def claimed(stage: Stage, queued: Revocation | None = None) -> Claimed:
    """A claim of reach token."""
    (claim,) = stage.revocations.claim([queued or stage.queued()], stage.now)
    return claim


# --- due -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-47")
def test_what_is_due_comes_page_by_page_earliest_first(stage: Stage) -> None:
    """Ids of one shard in order of time, up to now, and where to go on."""
    stage.queued()
    model, number = stage.revocation(), shard("r-1")
    in_it = (rid for rid in (f"r-{count}" for count in itertools.count(10)) if shard(rid) == number)
    rids = list(itertools.islice(in_it, BATCH))
    for earlier, rid in enumerate(rids):
        item = {**revocation_item(replace(model, rid=rid, next=stage.now - earlier)), "v": 1, "op": "x"}
        stage.table.write(Put(revocation_key(rid), item, ()))

    first, after = stage.revocations.due_page(CLIENT, number, stage.now, BATCH)
    second, end = stage.revocations.due_page(CLIENT, number, stage.now, BATCH, after)

    assert first[: BATCH - 1] == rids[:0:-1]
    assert sorted([*first, *second]) == sorted([*rids, "r-1"])
    assert (len(first), end) == (BATCH, None)
    assert stage.revocations.due_page(CLIENT, number, stage.now - 1_000, BATCH)[0] == []
    assert stage.revocations.due_page("another", number, stage.now, BATCH)[0] == []


# --- 28: claim -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-49", "D-13")
def test_a_claim_is_a_lease_of_its_own(stage: Stage) -> None:
    """Lease, end and count in one write; the index entry stays where it was."""
    queued = stage.queued()
    due = stage.due("revoke", CLIENT)

    claim = claimed(stage, queued)

    revocation = stage.revocation()
    assert (revocation.lease, revocation.lease_until) == (claim.lease, stage.now + CLAIM_LEASE_MS)
    assert (revocation.claims, revocation.attempts, claim.until) == (1, 0, stage.now + CLAIM_LEASE_MS)
    assert stage.due("revoke", CLIENT) == due


@pytest.mark.rule("F-49", "I-8")
def test_a_claim_ends_at_the_deadline_at_the_latest(stage: Stage) -> None:
    """A lease never outlives its revocation's deadline."""
    queued = stage.queued()
    stage.clock.move(to=(queued.deadline or 0) - 10)

    assert claimed(stage, queued).until == queued.deadline


@pytest.mark.rule("F-49")
@pytest.mark.parametrize("refusal", rows.CLAIM_REFUSALS, ids=lambda refusal: refusal.clause)
def test_a_claim_that_may_not_be_is_somebody_else_s(stage: Stage, refusal: rows.Refusal) -> None:
    """Each condition refuses this one item, and nothing of it changes."""
    queued = stage.queued()
    refusal.spoil(stage)
    before = stage.stand_in.everything()

    assert stage.revocations.claim([queued], stage.now) == []

    assert stage.stand_in.everything() == before


@pytest.mark.rule("F-49", "D-32")
@pytest.mark.parametrize(("after_ms", "free"), [(GUARD_MS - 1, False), (GUARD_MS, True)])
def test_a_claim_takes_over_once_the_guard_is_over(stage: Stage, after_ms: int, free: bool) -> None:
    """Another worker's lease is over when it and a guard are."""
    first = claimed(stage)
    stage.clock.move(to=first.until + after_ms)

    found = stage.revocations.claim([stage.revocation()], stage.now)

    assert len(found) == free


def test_a_successor_that_may_still_come_does_not_hold_up_the_claim(stage: Stage) -> None:
    """Only an overdue one is looked at first (row 37)."""
    before = rows.leased(stage)
    stage.stand_in.alter(rows.GRANT, put={"reach": "token"})
    stage.stopped()
    stage.clock.move(to=(before.lease_until or 0) + GUARD_MS - 1)

    assert len(stage.revocations.claim([stage.revocation()], stage.now)) == 1


@pytest.mark.rule("F-47", "I-16")
@pytest.mark.parametrize("backend", ["ministack"], indirect=True)
def test_of_a_batch_each_is_claimed_by_itself(stage: Stage) -> None:
    """One call; who may not be claimed is left out."""
    stage.queued()
    model = stage.revocation()
    queue = [replace(model, rid=f"r-{number}") for number in range(1, BATCH + 1)]
    for each in queue[1:]:
        stage.table.write(
            Put(revocation_key(each.rid), {**revocation_item(each), "v": 1, "op": "x", "ty": "revocation"}, ())
        )
    stage.stand_in.alter(revocation_key("r-7"), put={"next": rows.FAR})

    with stage.table.metered() as spent:
        found = stage.revocations.claim(queue, stage.now)

    assert spent.writes == [BATCH]
    assert {claim.revocation.rid for claim in found} == {each.rid for each in queue} - {"r-7"}
    assert len({claim.lease for claim in found}) == BATCH - 1


# --- 29, 30: wide claims ---------------------------------------------------------------------------------------------


def test_a_family_is_claimed_while_nothing_of_it_lives(stage: Stage) -> None:
    """A living grant of another family at the connection is no obstacle."""
    act = rows.claim_family(stage)
    stage.stand_in.plant(rows.GRANT, family="x-9#main")

    claim = act()

    assert isinstance(claim, Claimed)
    assert stage.revocation().lease == claim.lease


@pytest.mark.rule("RB-22")
def test_a_wide_claim_shuts_the_account_until_its_lease_ends(stage: Stage) -> None:
    """No exchange begun before the lease's end is installed there, and it is said by whom (custody rule 10)."""
    rows.claim_account(stage)()

    account = stage.account()
    assert (account.killed_at, account.killed_by) == (stage.now + CLAIM_LEASE_MS, "r-1")
    assert stage.revocation().lease_until == stage.now + CLAIM_LEASE_MS


def test_a_wide_claim_never_opens_an_account_earlier(stage: Stage) -> None:
    """`killed_at` only grows by a claim."""
    stage.queued(reach=Reach.AUTHORIZATION)
    stage.stand_in.alter(rows.ACCOUNT_KEY, put={"killed_at": rows.FAR, "killed_by": "r-9"})

    stage.revocations.claim_account_wide(stage.revocation(), ACCOUNT, stage.account(), stage.now)

    assert (stage.account().killed_at, stage.account().killed_by) == (rows.FAR, "r-1")


def test_a_wide_claim_of_an_account_that_nobody_knew_makes_it(stage: Stage) -> None:
    """Nothing ever lived there; it is shut all the same."""
    rows.claim_account(stage, known=False)()

    assert (stage.account().live, stage.account().killed_by) == (0, "r-1")


def test_a_learned_account_replaces_the_token_it_was_learned_with(stage: Stage) -> None:
    """The identity is known; the access token that was kept for it is erased."""
    stage.queued(reach=Reach.AUTHORIZATION, account=None)
    stage.stand_in.alter(REVOCATION, put={"identity": b"sealed access token"})

    stage.revocations.record_account(stage.revocation(), ACCOUNT)

    assert (stage.revocation().account, stage.revocation().identity) == (ACCOUNT, None)


# --- 31: park --------------------------------------------------------------------------------------------------------


def test_a_parked_revocation_is_in_nobody_s_way(stage: Stage) -> None:
    """Its material is kept; it has no deadline, no due time and no lease; account, marker and receipt say so."""
    rows.park_beside_the_account(stage)()

    revocation = stage.revocation()
    assert (revocation.state, revocation.deadline, revocation.next) == (RevocationState.PARKED, None, None)
    assert revocation.material[0].sealed == b"sealed revoke-only"
    assert (stage.account().live, stage.account().parked) == (1, 1)
    assert stage.item(marker_key(CLIENT, ACCOUNT, "r-1"))["reach"] == "authorization"
    assert (stage.due("revoke", CLIENT), stage.due("wake")) == ([], [])
    assert [receipt["outcome"] for receipt in stage.receipts()] == ["released"]
    assert "revocation.released_shared" in stage.told()


def test_an_orphan_parks_beside_its_own_family(stage: Stage) -> None:
    """The marker lies with the owner; no account is asked."""
    rows.park_beside_the_family(stage)()

    assert stage.revocation("attempt-1").state is RevocationState.PARKED
    assert stage.has(family_marker_key(REF, "attempt-1"))
    assert stage.account().parked == 0


# --- 33, 34: settle --------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-4", "F-52", "I-7")
@pytest.mark.parametrize(
    ("state", "is_notice"),
    [
        (RevocationState.CONFIRMED, False),
        (RevocationState.UNCONFIRMED, True),
        (RevocationState.UNSUPPORTED, True),
    ],
)
def test_a_settle_erases_the_material_and_leaves_the_finishing_step(
    stage: Stage, state: RevocationState, is_notice: bool
) -> None:
    """Terminal, by whom and when; a notice is somebody's to look at."""
    revocation = stage.settled(state)

    assert (revocation.state, revocation.material, revocation.identity) == (state, (), None)
    assert (revocation.lease, revocation.next, revocation.settled_at) == (None, None, stage.now)
    assert revocation.settled_by is not None
    assert stage.due("finish") == [(REVOCATION, stage.now)]
    assert stage.due("revoke", CLIENT) == []
    assert len(stage.attention("notice")) == is_notice


@pytest.mark.rule("F-53", "I-8", "D-3")
@pytest.mark.parametrize(
    ("state", "clause", "spoil"),
    [
        (RevocationState.CONFIRMED, "it is over", rows.has(REVOCATION, state="expired")),
        (RevocationState.CONFIRMED, "another's lease", rows.has(REVOCATION, lease="other")),
        (RevocationState.CONFIRMED, "its deadline is over", rows.has(REVOCATION, deadline=1)),
        (RevocationState.CONFIRMED, "a successor is open", rows.has(REVOCATION, expected=frozenset({"a"}))),
        (RevocationState.CONFIRMED, "a successor was lost", rows.has(REVOCATION, lost=True)),
        (RevocationState.UNCONFIRMED, "no successor was lost", rows.lacks(REVOCATION, "lost")),
        (RevocationState.UNSUPPORTED, "another's lease", rows.has(REVOCATION, lease="other")),
        (RevocationState.UNSUPPORTED, "a successor is open", rows.has(REVOCATION, expected=frozenset({"a"}))),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_settle_that_may_not_be_changes_nothing(
    stage: Stage, state: RevocationState, clause: str, spoil: rows.Spoil
) -> None:
    """Only the lease's holder settles, before the deadline, and confirms only where no successor may live."""
    queued = stage.queued()
    if state is RevocationState.UNCONFIRMED:
        stage.stand_in.alter(REVOCATION, put={"lost": True})
    claim = claimed(stage, queued)
    spoil(stage)
    before = stage.stand_in.everything()

    held = stage.revocations.settle_all([stage.revocations.settle(claim, stage.now, state)])

    assert held == [False], clause
    assert stage.stand_in.everything() == before


# --- 35, 36: not yet -------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-52", "D-25")
def test_a_deferred_revocation_is_free_and_due_later(stage: Stage) -> None:
    """One attempt more, no lease, due at its next time; the material is untouched."""
    claim = claimed(stage)

    later = stage.now + 60_000
    assert stage.revocations.settle_all([stage.revocations.defer(claim, attempts=1, next_at=later)]) == [True]

    revocation = stage.revocation()
    assert (revocation.attempts, revocation.claims, revocation.next) == (1, 1, later)
    assert (revocation.lease, revocation.lease_until) == (None, None)
    assert revocation.material[0].sealed == b"sealed revoke-only"
    assert stage.due("revoke", CLIENT) == [(REVOCATION, later)]


def test_a_deferred_revocation_is_due_at_its_deadline_at_the_latest(stage: Stage) -> None:
    """The index shows the earlier of the two, so that expiry is found."""
    claim = claimed(stage)
    deadline = claim.revocation.deadline or 0

    stage.revocations.settle_all([stage.revocations.defer(claim, attempts=1, next_at=deadline + 5)])

    assert stage.due("revoke", CLIENT) == [(REVOCATION, deadline)]


@pytest.mark.rule("F-50", "D-5")
def test_a_quarantined_revocation_keeps_its_material_and_is_looked_at(stage: Stage) -> None:
    """It goes on by the ladder, without an attempt more; the operator sees it (D-5)."""
    claim = claimed(stage)

    later = stage.now + 60_000
    assert stage.revocations.settle_all([stage.revocations.quarantine(claim, stage.now, later)]) == [True]

    revocation = stage.revocation()
    assert (revocation.state, revocation.quarantined) == (RevocationState.PENDING, stage.now)
    assert (revocation.attempts, revocation.lease, revocation.next) == (0, None, later)
    assert revocation.material[0].sealed == b"sealed revoke-only"
    assert [entry["PK"] for entry in stage.attention("quarantine")] == ["Q#r-1"]


@pytest.mark.parametrize("fault", [applied_then_ambiguous, ambiguous, busy])
def test_a_batch_of_settles_that_is_not_answered_is_lost(stage: Stage, fault: Fault) -> None:
    """Whoever claims next asks the provider again: revoking twice is safe, and no settle is repeated blindly."""
    claim = claimed(stage)
    stage.table.faults = [fault]

    held = stage.revocations.settle_all([stage.revocations.settle(claim, stage.now, RevocationState.CONFIRMED)])

    assert held == [False]
    assert (stage.revocation().state is RevocationState.CONFIRMED) == (fault is applied_then_ambiguous)


def test_a_settle_recognises_itself(stage: Stage) -> None:
    """Sent again after it was applied, it is refused by an item that carries its own operation, and holds."""
    claim = claimed(stage)
    settle = stage.revocations.settle(claim, stage.now, RevocationState.CONFIRMED)
    stage.revocations.settle_all([settle])

    assert stage.revocations.settle_all([settle]) == [True]

    assert stage.revocation().v == 3


# --- 37, 38: successor and deadline ----------------------------------------------------------------------------------


@pytest.mark.rule("D-3")
def test_a_successor_that_never_came_was_lost(stage: Stage) -> None:
    """From here the revocation ends in a notice, never in confirmed."""
    rows.forget_successor(stage)()

    revocation = stage.revocation()
    assert (revocation.expected, revocation.expected_until, revocation.lost) == (frozenset(), None, True)
    assert revocation.state is RevocationState.PENDING


@pytest.mark.rule("F-48", "F-4", "I-7")
@pytest.mark.parametrize("quarantined", [False, True])
def test_the_deadline_erases_what_was_not_revoked(stage: Stage, quarantined: bool) -> None:
    """Leased or not, it is over: the material is gone, somebody is told; what never opened ends as unreadable."""
    act = rows.expire(stage)
    if quarantined:
        stage.stand_in.alter(REVOCATION, put={"quarantined": 1})
        queued = stage.revocation()
        stage.revocations.expire(queued, stage.now)
    else:
        act()

    revocation = stage.revocation()
    assert revocation.state == (RevocationState.UNREADABLE if quarantined else RevocationState.EXPIRED)
    assert (revocation.material, revocation.lease, revocation.next) == ((), None, None)
    assert stage.due("finish") == [(REVOCATION, stage.now)]
    assert stage.due("revoke", CLIENT) == []
    assert [(entry["PK"], entry["t"]) for entry in stage.attention("expired")] == [("Q#r-1", "acme-app")]
    assert stage.attention("quarantine") == []


# --- 39-41: after it -------------------------------------------------------------------------------------------------


def test_a_finished_revocation_is_off_the_barrier_and_told_once(stage: Stage) -> None:
    """Receipt and event, once; compaction is due after the deadline and a day."""
    rows.finish(stage)()

    revocation = stage.revocation()
    deadline = revocation.deadline or 0
    receipt = stage.item(receipt_key(OWNER, stage.now, "r-1"))
    assert revocation.finished == stage.now
    assert (stage.barrier().owed, stage.barrier().acks) == (frozenset(), frozenset())
    assert (receipt["outcome"], receipt["g"], receipt["rid"]) == ("confirmed", 1, "r-1")
    assert receipt["ttl"] * 1000 == stage.now + RECEIPT_TTL_MS
    assert "revocation.confirmed" in stage.told()
    assert stage.due("compact") == [(REVOCATION, deadline + COMPACT_MS)]
    assert stage.due("finish") == []


def test_a_finished_notice_waits_for_its_acknowledgement(stage: Stage) -> None:
    """It moves from owed to the acknowledgements, and the app is told that something is to be removed."""
    rows.finish(stage, RevocationState.UNCONFIRMED)()

    assert (stage.barrier().owed, stage.barrier().acks) == (frozenset(), frozenset({"r:r-1"}))
    assert "removal.required" in stage.told()
    assert stage.event("removal.required")["outcome"] == "unconfirmed"


def test_a_finish_opens_the_account_at_its_settle(stage: Stage) -> None:
    """What was refused a little too long is admitted: from the settle on no call of it can come (7.3)."""
    act = rows.finish_account_wide(stage)
    shut_until = stage.account().killed_at or 0

    act()

    assert stage.account().killed_at == stage.revocation().settled_at
    assert (stage.account().killed_at or 0) < shut_until


@pytest.mark.rule("RB-22")
def test_a_finish_keeps_an_account_shut_as_long_as_another_claim_did(stage: Stage) -> None:
    """The other one's request may still be on its way when this one is settled."""
    rows.finish_account_wide(stage)
    account = stage.account()
    floor = (account.killed_at or 0) - 1
    stage.stand_in.alter(rows.ACCOUNT_KEY, put={"killed_floor": floor})

    stage.revocations.finish(stage.revocation(), stage.account(), stage.now, has_barrier=True)

    assert stage.account().killed_at == floor > (stage.revocation().settled_at or 0)


def test_a_finish_leaves_an_account_that_another_claim_shut(stage: Stage) -> None:
    """Only its own mark is lowered."""
    rows.finish_account_wide(stage)
    stage.stand_in.alter(rows.ACCOUNT_KEY, put={"killed_by": "r-9"})

    stage.revocations.finish(stage.revocation(), stage.account(), stage.now, has_barrier=True)

    assert stage.account().killed_by == "r-9"
    assert stage.revocation().finished == stage.now


@pytest.mark.rule("F-32", "F-34")
def test_an_acknowledged_notice_is_off_the_barrier(stage: Stage) -> None:
    """The owner's word, once; nobody has to look at it any more."""
    rows.acknowledge(stage)()

    assert stage.revocation().acknowledged == stage.now
    assert (stage.revocation().state, stage.barrier().acks) == (RevocationState.UNCONFIRMED, frozenset())
    assert stage.attention("notice") == []
    assert "removal.acknowledged" in stage.told()


def test_a_notice_that_was_acknowledged_first_is_finished_without_a_new_one(stage: Stage) -> None:
    """The finishing step does not ask again for what was said."""
    stage.settled(RevocationState.UNCONFIRMED)
    stage.revocations.acknowledge(stage.revocation(), stage.now, has_barrier=True)

    stage.revocations.finish(stage.revocation(), None, stage.now, has_barrier=True)

    assert (stage.barrier().owed, stage.barrier().acks) == (frozenset(), frozenset())


@pytest.mark.rule("F-32", "F-34")
def test_an_acknowledged_exchange_is_off_the_barrier(stage: Stage) -> None:
    """The owner's word for a grant that nobody saw."""
    rows.acknowledge_exchange(stage)()

    assert stage.exchange().acknowledged == stage.now
    assert stage.barrier().acks == frozenset()
    assert stage.attention("exchange") == []
    assert "removal.acknowledged" in stage.told()


@pytest.mark.rule("I-8", "D-35")
def test_gauges_count_what_waits_for_somebody(stage: Stage) -> None:
    """Expired and quarantined revocations, and everything that is to be acknowledged, exchanges included."""
    rows.expire(stage)()
    assert stage.revocations.gauges() == {
        "RevocationsExpired": 1,
        "RevocationsInQuarantine": 0,
        "RemovalNotices": 1,
        "StopsOverdue": 0,
        "DeliveriesUndelivered": 0,
    }

    stage.revocations.acknowledge(stage.revocation(), stage.now, has_barrier=True)

    assert set(stage.revocations.gauges().values()) == {0}


@pytest.mark.rule("F-23")
def test_a_fresh_deadline_is_a_minute_before_the_day_is_over(stage: Stage) -> None:
    """23 h 59 min after it was queued."""
    assert (stage.queued().deadline or 0) - stage.now == DEADLINE_MS
