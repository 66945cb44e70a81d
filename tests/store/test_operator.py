"""Rows 54 and 55, and the operator's list."""

from functools import partial

import pytest

from quitclaim.domain.attention import AuditEntry
from quitclaim.domain.ids import OwnerRef
from quitclaim.domain.revocations import RevocationState
from quitclaim.store.keys import audit_key, month_of, owner_key
from quitclaim.store.operator import OperatorStore
from tests.store import rows, test_rows
from tests.store.more_rows import arranged_by
from tests.store.rows import REVOCATION, Act, Refusal, Row, has, moved, taken
from tests.store.stage import CLIENT, OWNER, Stage

ENTRY = AuditEntry("a-1", 1_800_000_000_000, "retry", "r-1", "arn:olga", "asked by phone")


def store(stage: Stage) -> OperatorStore:
    return OperatorStore(stage.table, stage.clock, stage.ids)


def record(stage: Stage) -> Act:
    return partial(store(stage).record, ENTRY)


def retry(stage: Stage) -> Act:
    stage.queued()
    stage.stand_in.alter(REVOCATION, put={"claims": 9, "attempts": 2, "next": stage.now + 900_000})
    return partial(store(stage).retry, stage.revocation(), stage.now)


ROWS = (
    Row("54 audit", record, 1, (Refusal("it is on record", "audit", taken(audit_key(ENTRY))),)),
    Row(
        "55 manual retry",
        retry,
        1,
        (
            Refusal("it moved", "revocation", moved(REVOCATION)),
            Refusal("it is settled", "revocation", has(REVOCATION, state="confirmed")),
            Refusal("it is being sent", "revocation", has(REVOCATION, lease="w", lease_until=9_999_999_999_999)),
        ),
    ),
)
dynamodb, arranged = test_rows.dynamodb, arranged_by(ROWS)
test_a_broken_condition = test_rows.test_a_condition_that_does_not_hold_refuses_the_whole_row
test_once = test_rows.test_a_row_happens_once_whatever_became_of_its_first_try


def test_a_retry_is_due_now_and_excuses_every_claim(stage: Stage) -> None:
    """Attempts and claims stay as they were: I-7 forbids taking a count back."""
    retry(stage)()

    found = stage.revocation()
    assert (found.next, found.claims, found.attempts, found.excused) == (stage.now, 9, 2, 7)
    assert (REVOCATION, stage.now) in stage.due("revoke", CLIENT)


def test_a_lease_that_is_over_is_taken_off(stage: Stage) -> None:
    """Free, and due now."""
    act = retry(stage)
    stage.stand_in.alter(REVOCATION, put={"lease": "w", "lease_until": 1})

    act()

    assert (stage.revocation().lease, stage.revocation().lease_until) == (None, None)


def test_an_entry_lies_under_its_month(stage: Stage) -> None:
    """By time, with everything that was said; nothing that is not."""
    record(stage)()

    key = audit_key(ENTRY)
    item = stage.item(key)
    assert key.pk.startswith("U#202701#")
    assert key.sk == "1800000000000#a-1"
    told = {"at": ENTRY.at, "action": "retry", "subject": "r-1", "by": "arn:olga", "reason": "asked by phone"}
    assert {name: item[name] for name in told} == told
    assert set(item) - set(told) == {"PK", "SK", "ty", "sv", "op", "v"}


@pytest.mark.parametrize(
    ("at", "month"),
    [
        (0, "197001"),
        (951_782_399_999, "200002"),
        (951_782_400_000, "200002"),
        (951_868_800_000, "200003"),
        (1_709_164_800_000, "202402"),
        (1_798_761_599_999, "202612"),
        (1_798_761_600_000, "202701"),
        (4_107_542_399_999, "210002"),
        (4_107_542_400_000, "210003"),
    ],
)
def test_months_are_those_of_the_calendar(at: int, month: str) -> None:
    """Leap years, the year 2100, the last millisecond of a year."""
    assert month_of(at) == month


def test_what_waits_is_read_consistently(stage: Stage) -> None:
    """The index only says where to look."""
    settled = stage.settled(RevocationState.UNCONFIRMED)
    stage.revocations.acknowledge(settled, stage.now, has_barrier=True)

    assert store(stage).waiting(10) == ([], False)


def test_the_list_has_both_kinds_and_says_when_it_is_cut(stage: Stage) -> None:
    """A revocation and an exchange, oldest first."""
    stage.settled(RevocationState.UNCONFIRMED)
    stage.clock.move(minutes=5)
    stage.stand_in.plant(
        rows.exchange_key(rows.REF, "x-2"),
        ty="exchange",
        a1="exchange#0",
        a2=f"{stage.now:013d}#acme-app#ann#google#x-2",
        outcome="unconfirmed",
    )

    found, more = store(stage).waiting(10)
    cut, rest = store(stage).waiting(1)

    assert [item["ty"] for item in found] == ["revocation", "exchange"]
    assert (more, [item["ty"] for item in cut], rest) == (False, ["revocation"], True)


def test_deleted_owners_are_told_apart(stage: Stage) -> None:
    """However many are asked about."""
    others = frozenset(OwnerRef("acme-app", f"o{number}") for number in range(150))
    stage.stand_in.plant(owner_key(OWNER), ty="owner", epoch=0, deleted_at=1)
    stage.stand_in.plant(owner_key(OwnerRef("acme-app", "o7")), ty="owner", epoch=0)

    assert store(stage).deleted(others | {OWNER}) == {OWNER}
    assert store(stage).deleted(frozenset()) == frozenset()
