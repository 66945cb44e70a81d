"""What the catalogue's facts mean for a rule: unknown never reads as no where that could lose a grant."""

import itertools

import pytest

from quitclaim.domain.facts import OldToken
from quitclaim.domain.revocations import NO_REVOCATION, Reach
from tests.domain.values import facts

ROTATES = ("yes", "no", "sometimes", "unknown")
SURVIVES = {OldToken.STAYS_VALID, OldToken.GRACE}


@pytest.mark.parametrize(("rotates", "old_token"), list(itertools.product(ROTATES, OldToken)))
def test_whether_a_refresh_may_end_the_old_token(rotates, old_token):
    """Only a provider known not to rotate, or known to keep the old token for good, surely leaves it alive."""
    surely_alive = rotates == "no" or old_token is OldToken.STAYS_VALID

    assert facts(rotates=rotates, old_token=old_token).may_rotate is not surely_alive


@pytest.mark.parametrize(("rotates", "old_token"), list(itertools.product(ROTATES, OldToken)))
def test_custody_6_whether_a_predecessor_stays_alive(rotates, old_token):
    """Where something may rotate and the old token lives on, for good or for a while."""
    expected = rotates != "no" and old_token in SURVIVES

    assert facts(rotates=rotates, old_token=old_token).old_token_survives is expected


@pytest.mark.rule("U-8", "U-9")
@pytest.mark.parametrize(
    ("takes", "refresh", "access"),
    [("either", True, True), ("refresh", True, False), ("access", False, True)],
)
def test_which_tokens_a_revocation_takes(takes, refresh, access):
    """And what of a kind that it does not take: it is on record as not revocable (U-8)."""
    of = facts(takes=takes, refreshable=False)

    assert (of.may_take("refresh_token"), of.may_take("access_token")) == (refresh, access)
    assert of.taken("refresh_token") == ("refresh_token" if refresh else NO_REVOCATION)
    assert of.taken("access_token") == ("access_token" if access else NO_REVOCATION)


@pytest.mark.parametrize("refreshable", [True, False])
@pytest.mark.parametrize("needs_live", [True, False])
def test_a_refresh_token_serves_to_renew_what_the_revocation_takes(refreshable, needs_live):
    """Where an access token is taken, must be alive, and can be had for it."""
    of = facts(takes="access", refreshable=refreshable, needs_live_access_token=needs_live)

    assert of.renews_in_queue is (refreshable and needs_live)
    assert of.may_take("access_token+refresh_token") is of.renews_in_queue
    assert not facts(takes="refresh", refreshable=True).renews_in_queue


@pytest.mark.rule("U-8", "F-21")
@pytest.mark.parametrize("takes", ["either", "refresh", "access"])
@pytest.mark.parametrize("kind", ["refresh_token", "access_token"])
def test_U_8_nothing_is_taken_where_there_is_no_call(takes, kind):
    """A provider without revocation takes nothing, whatever else its entry says."""
    assert facts(revocable=False, takes=takes).taken(kind) == NO_REVOCATION


@pytest.mark.parametrize(
    ("reach", "is_account_wide", "ends_old_tokens"),
    [
        (Reach.TOKEN, False, False),
        (Reach.FAMILY, False, True),
        (Reach.AUTHORIZATION, True, True),
        (Reach.ACCOUNT, True, True),
        (Reach.UNKNOWN, True, False),
    ],
)
def test_custody_6_an_unknown_reach_is_taken_at_its_worst(reach, is_account_wide, ends_old_tokens):
    """It may end every grant of the account, and need not end a surviving predecessor."""
    assert (reach.is_account_wide, reach.ends_old_tokens) == (is_account_wide, ends_old_tokens)
