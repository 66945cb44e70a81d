"""
Rules that a single write carries: by number, the clauses of that write, each broken alone.

`test_rows.py` does the same for every clause there is; here stands which of them is which rule, on one stand-in.
"""

import pytest

from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import CLAIM_LEASE_MS, GUARD_MS, SECOND
from quitclaim.domain.revocations import RevocationState
from tests.store import rows
from tests.store.rows import ROWS
from tests.store.stage import Stage

pytestmark = pytest.mark.parametrize("backend", ["moto"], indirect=True)

CARRIED = [
    # rules, row, clauses
    (("F-10", "D-22"), "1 start again", ("the connection moved", "the owner is deleted")),
    (("F-10", "D-22"), "8 install", ("the barrier moved", "the connection moved")),
    (("F-10", "D-22"), "8 install on a known account", ("the account moved",)),
    (("F-10", "D-22"), "23 disconnect", ("the connection moved", "the grant moved", "the account moved")),
    (("F-10", "D-22"), "47 close", ("the intent moved", "the barrier moved", "the connection moved")),
    (
        ("F-57", "U-2", "S-1", "S-5"),
        "4 begin",
        (
            "the state is consumed",
            "the state is discarded",
            "the state has expired",
            "the state is bound to another browser",
            "the state is another client's",
            "the connection moved",
        ),
    ),
    *(
        (
            ("M-26",),
            row,
            (
                "the state is consumed",
                "the state is discarded",
                "the state has expired",
                "the state is bound to another browser",
                "the state is another client's",
            ),
        )
        for row in ("3 discard", "4 begin")
    ),
    (
        ("F-16", "F-18", "I-9"),
        "4 begin behind a barrier",
        ("the barrier moved", "an exchange is in flight", "a purge is open", "the owner is deleted"),
    ),
    (
        ("F-16", "F-60", "I-9"),
        "8 install",
        ("another exchange is in flight", "a purge is open", "the owner is deleted"),
    ),
    (("F-59",), "4 begin", ("the exchange's id is taken",)),
    (("F-61", "F-65"), "5 hold", ("the exchange is over", "the window is over")),
    (
        ("F-60", "F-65", "I-3"),
        "8 install",
        (
            "the exchange is no longer held",
            "the hold is over",
            "the sweep has the hold",
            "the hold is settled",
            "the hold is gone",
            "the connection moved",
        ),
    ),
    (("F-60", "RB-22"), "8 install on a known account", ("a wide revocation was under way",)),
    (("F-60", "U-6", "I-4"), "8 install", ("a grant is there",)),
    (("D-28", "I-10"), "1 start again", ("the owner is deleted", "the table was restored")),
    (("D-28", "I-10"), "4 begin", ("the owner is deleted", "the table was restored")),
    (("D-28", "I-10"), "8 install", ("the owner is deleted", "the table was restored")),
    (("F-67",), "10 end, unknown", ("the exchange is over",)),
    (("F-67", "F-68"), "11 lapse, empty", ("the exchange is over", "the window is not over")),
    (
        ("F-40", "I-6"),
        "16 lease and record",
        ("another's lease", "two attempts are open", "another generation", "the grant is gone"),
    ),
    (
        ("F-42", "F-43", "I-6", "U-10"),
        "17 save",
        ("another generation", "another token version", "another's lease", "the grant is gone"),
    ),
    (("F-45", "RB-41"), "19 withdraw", ("another's lease",)),
    (("F-26", "U-10"), "24 grant lost", ("another token version", "another generation", "the grant is gone")),
    (("F-29", "I-11", "U-22"), "43 purge done", ("another stop's token", "it is done")),
    (("F-33", "I-9"), "40 acknowledge a revocation", ("it was confirmed", "it is pending", "it is parked")),
    (
        ("I-13", "U-13"),
        "47 close",
        ("the purge is open", "the compensations are not derived", "a compensation is open"),
    ),
]


def case(ruled: tuple[tuple[str, ...], str, tuple[str, ...]]) -> object:
    """One entry as a parameter that says which rules it is about."""
    rules, row, clauses = ruled
    return pytest.param(row, clauses, marks=pytest.mark.rule(*rules), id=f"{' '.join(rules)}: {row}")


@pytest.mark.parametrize(("name", "clauses"), [case(each) for each in CARRIED])
def test_a_rule_is_carried_by_clauses_of_one_write(
    stage: Stage, name: str, clauses: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    """With a clause broken the write is refused and nothing has changed; with none broken it goes through."""
    (row,) = (each for each in ROWS if each.name == name)
    refusals = {each.clause: each for each in row.refusals}
    act = row.arrange(stage)
    before = stage.stand_in.everything()
    for clause in clauses:
        refusals[clause].spoil(stage)
        spoilt = stage.stand_in.everything()
        with subtests.test(clause):
            with pytest.raises(MovedError):
                act()
            assert stage.stand_in.everything() == spoilt
        stage.stand_in.put_back(before, spoilt)

    act()

    assert stage.stand_in.everything() != before


@pytest.mark.rule("D-14")
def test_a_success_that_comes_after_its_lease_still_counts(stage: Stage) -> None:
    """Nobody took the item over meanwhile: the provider said yes, and it is not asked a second time."""
    (claim,) = stage.revocations.claim([stage.queued()], stage.now)
    stage.clock.move(ms=CLAIM_LEASE_MS + GUARD_MS + SECOND)

    held = stage.revocations.settle_all([stage.revocations.settle(claim, stage.now, RevocationState.CONFIRMED)])

    assert held == [True]
    assert stage.revocation().state is RevocationState.CONFIRMED


@pytest.mark.rule("D-29")
def test_connection_link_and_owner_of_a_start_are_one_write(stage: Stage) -> None:
    """None of them is ever there without the others."""
    act = rows.start_of_a_new_owner(stage)

    with stage.table.metered() as spent:
        act()

    assert len(spent.writes) == 1
    assert {"owner", "connection", "ticket"} <= {item["ty"]["S"] for item in stage.stand_in.everything().values()}


@pytest.mark.rule("F-2")
def test_custody_is_items_of_their_own(stage: Stage) -> None:
    """
    Owner, barrier, exchange and the queue item of the hold; then the live grant, which carries its lease; then the
    stop's intent and the revocation that it queues.
    """

    def kinds() -> set[str]:
        return {item["ty"]["S"] for item in stage.stand_in.everything().values()}

    stage.held()
    assert {"owner", "barrier", "connection", "exchange", "revocation"} <= kinds()
    stage.stand_in.put_back({}, stage.stand_in.everything())

    stage.installed()
    leased = stage.tokens.record(stage.grant(), "attempt-1", stage.now)
    assert (stage.grant().lease, leased.lease) == ("attempt-1", "attempt-1")
    assert {"owner", "barrier", "connection", "exchange", "grant"} <= kinds()
    assert not {"intent", "revocation"} & kinds()

    stage.stopped()
    assert {"owner", "barrier", "connection", "exchange", "intent", "revocation"} <= kinds()
    assert "grant" not in kinds()
