"""The external account: counts of what lives on it, and whether an exchange's grant may be dead on arrival."""

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
    assert account.left().live == 1
    assert account.joined().left() == account
