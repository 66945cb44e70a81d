"""The external account: counts of what lives on it, and whether an exchange's grant may be dead on arrival."""

from dataclasses import replace

import pytest

from quitclaim.domain.accounts import Account
from tests.domain.values import AROUND, NOW


@pytest.mark.rule("RB-22")
@pytest.mark.parametrize("off", AROUND)
def test_custody_10_an_exchange_must_have_begun_after_the_account_was_shut(off):
    """An exchange that began in the very millisecond may be among what was ended."""
    account = Account(killed_at=NOW, killed_by="r1")

    assert account.admits(NOW + off) is (off > 0)


def test_an_account_that_nothing_shut_admits_every_exchange():
    """Nothing was ever ended there."""
    assert Account().admits(0)


def test_joining_and_leaving_are_each_others_inverse():
    """Counts only; what shut the account stays on record."""
    account = Account(live=2, parked=1, killed_at=NOW, killed_by="r1", v=4)

    assert account.joined().live == 3
    assert account.left(NOW, is_loss=False).live == 1
    assert replace(account.joined().left(NOW, is_loss=True), lost_at=None) == account


@pytest.mark.parametrize(("is_loss", "left_at", "lost_at"), [(False, NOW, None), (True, None, NOW)])
def test_who_leaves_is_remembered_by_how(is_loss, left_at, lost_at):
    """Given up here, or ended by the provider."""
    account = Account(live=1).left(NOW, is_loss=is_loss)

    assert (account.left_at, account.lost_at) == (left_at, lost_at)


def test_an_account_of_which_nothing_is_known_is_blank():
    """What waits beside it is counted; with the last of it nothing is left to know."""
    waiting = Account(v=3).keeping(1)

    assert (waiting.waiting, waiting.is_blank) == (1, False)
    assert waiting.keeping(1).keeping(-1).waiting == 1
    assert waiting.keeping(-1).is_blank
    assert not Account(left_at=NOW).is_blank


@pytest.mark.rule("RB-22")
def test_what_another_claim_shuts_stays_shut():
    """
    Two revocations of one account are on their way at once: the settle of one says nothing of the other's request,
    which may still arrive (custody rule 10).
    """
    first = Account().shut_by("r1", NOW + 30)
    both = first.shut_by("r2", NOW + 40)

    assert first.lowered_by("r1", NOW + 5) == NOW + 5
    assert both.lowered_by("r2", NOW + 5) == NOW + 30
    assert both.lowered_by("r1", NOW + 5) is None  # it may be lowered by the last one only
    assert replace(both, killed_at=NOW + 30).lowered_by("r2", NOW + 5) is None


def test_a_claim_that_is_repeated_keeps_what_it_found():
    """The same revocation may be claimed again; its own earlier mark is not another's."""
    again = Account(killed_at=NOW).shut_by("r1", NOW + 30).shut_by("r1", NOW + 90)

    assert (again.killed_at, again.killed_floor) == (NOW + 90, NOW)
    assert again.shut_by("r1", NOW + 60).killed_at == NOW + 90


def test_never_fewer_than_none_wait_beside_an_account() -> None:
    """What leaves a line that was not counted leaves no count behind that nothing evens out."""
    assert Account().keeping(-1).waiting is None
    assert Account(waiting=1).keeping(-1).waiting is None
    assert Account(waiting=2).keeping(-1).waiting == 1
