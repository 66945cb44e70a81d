"""The constants of the custody protocol, by the table that fixes them, and the inequalities that make it safe."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from quitclaim import domain
from quitclaim.domain import limits
from quitclaim.domain.limits import (
    ATTEMPTS,
    AUTHORIZATION_MS,
    BATCH,
    BLOCKERS,
    CALLBACK_BUDGET_MS,
    CLAIM_LEASE_MS,
    COMPACT_MS,
    CONFIRM_MS,
    COOKIE_MS,
    DEADLINE_MS,
    DOUBTS,
    EFFECT_MS,
    EXCHANGE_CALL_MS,
    GUARD_MS,
    HARD_MARGIN_MS,
    HOOK_CALL_MS,
    IDEMPOTENCY_TTL_MS,
    IDENTITY_CALL_MS,
    LADDER_MS,
    LOSER_WAIT_MS,
    PAIRS,
    PUSH_CALL_MS,
    RECEIPT_TTL_MS,
    REFRESH_CALL_MIN_MS,
    REFRESH_CALL_MS,
    REFRESH_LEASE_MS,
    REVOKE_CALL_MIN_MS,
    REVOKE_CALL_MS,
    SAVE_MS,
    SAVED_RECENTLY_MS,
    SECOND,
    SHARDS,
    SOFT_MARGIN_MS,
    SWEEP_MS,
    TICKET_MIN_MS,
    TICKET_MS,
    TTL_AFTER_MS,
    WINDOW_MS,
    ladder_step_ms,
)
from quitclaim.flows.reconcile import LAST_ITEM_MS
from quitclaim.flows.revocations import LAST_CLAIM_MS

DAY = 86_400 * SECOND
SKEW_ALARM_MS = 2 * SECOND
CLIENT_TOKEN_WINDOW_MS = 600 * SECOND
"""How long DynamoDB remembers the client request token of a transaction."""


@pytest.mark.parametrize(
    ("constant", "seconds"),
    [
        (WINDOW_MS, 60),
        (CONFIRM_MS, 600),
        (REFRESH_LEASE_MS, 30),
        (CLAIM_LEASE_MS, 30),
        (GUARD_MS, 5),
        (DEADLINE_MS, 86_340),
        (EXCHANGE_CALL_MS, 12),
        (IDENTITY_CALL_MS, 5),
        (PUSH_CALL_MS, 8),
        (HOOK_CALL_MS, 4),
        (REFRESH_CALL_MS, 15),
        (REVOKE_CALL_MS, 15),
        (LOSER_WAIT_MS, 5),
        (EFFECT_MS, 60),
        (limits.OVERDUE_MS, 86_400),
        (AUTHORIZATION_MS, 900),
        (TICKET_MS, 900),
        (TICKET_MIN_MS, 60),
        (COMPACT_MS, 86_400),
        (SWEEP_MS, 60),
        (REFRESH_CALL_MIN_MS, 3),
        (REVOKE_CALL_MIN_MS, 3),
        (SAVE_MS, 4),
        (HARD_MARGIN_MS, 30),
        (SOFT_MARGIN_MS, 300),
        (SAVED_RECENTLY_MS, 30),
        (limits.DELIVERY_LEASE_MS, 300),
        (limits.FORWARD_MS, 30),
        (limits.TRACE_TTL_MS, 30 * 86_400),
    ],
)
def test_a_constant_has_the_value_that_was_checked(constant, seconds):
    """The explicit-state model and the proof of the protocol used these values: another one needs another look."""
    assert constant == seconds * SECOND


def test_counts_have_the_values_that_were_checked():
    """Link visits, wrong codes, blockers, attempts, pairs, batch, shards."""
    assert limits.LINK_VISITS == 20
    assert limits.WRONG_CODES == 5
    assert (limits.POISON_CLAIMS, limits.REFUSALS) == (5, 5)
    assert (limits.REPORTS, limits.REPORT_WINDOW_MS) == (100, 300 * SECOND)
    assert (BLOCKERS, ATTEMPTS, DOUBTS, PAIRS, BATCH, SHARDS) == (32, 2, 2, 2, 25, 4)
    assert limits.TOKEN_MAX_CHARS == 16_384


@pytest.mark.rule("S-11")
def test_a_webhook_is_bounded_in_every_direction():
    """64 KiB prepared, 100 accounts, 64 fields, 32 KiB a text; 256 KiB of a body kept, 6 MiB taken, 32 levels read."""
    assert (limits.PREPARED_BYTES, limits.EVENT_TEXT_BYTES) == (64 * 1024, 32 * 1024)
    assert limits.ACCOUNT_NAMES == 25
    assert (limits.EVENT_ACCOUNTS, limits.EVENT_FIELDS, limits.EVENTS_AT_ONCE, limits.JSON_LEVELS) == (
        100,
        64,
        1000,
        32,
    )
    assert (limits.STORED_BODY_BYTES, limits.ACCEPTED_BODY_BYTES) == (256 * 1024, 6 * 1024 * 1024)
    assert limits.STORED_BODY_BYTES + limits.PREPARED_BYTES < 390 * 1024, "an item of DynamoDB has 400 KB"


def test_an_event_is_kept_long_enough_for_who_comes_back():
    """A day parked, a week more for operators; who left is known longer than anything about them is kept."""
    assert (limits.PARKED_MS, limits.KEPT_MS, limits.REMEMBERED_MS) == (DAY, 7 * DAY, 30 * DAY)
    assert limits.PARKED_MS + limits.KEPT_MS < limits.REMEMBERED_MS <= limits.TRACE_TTL_MS


def test_a_departure_is_never_taken_for_another_one():
    """Three days in which it may mean a grant that left, five minutes of clocks, a check every ten."""
    assert (limits.AFTERMATH_MS, limits.CLOCK_SKEW_MS, limits.CHECK_EVERY_MS) == (3 * DAY, 300 * SECOND, 600 * SECOND)
    assert limits.AFTERMATH_MS > limits.DEADLINE_MS + limits.PARKED_MS


def test_the_app_is_told_and_asked_in_time():
    """The stream has a minute to publish an event, ten a call; a hook that nobody answers rests half a one."""
    assert (limits.PUBLISH_MS, limits.NOTICES, limits.EVENT_TTL_MS) == (60 * SECOND, 10, 7 * DAY)
    assert limits.HOOK_PAUSE_MS == 30 * SECOND
    assert DAY < limits.SET_AGE_MS < limits.TRACE_TTL_MS


def test_a_grant_is_looked_after_before_its_end():
    """At 80 % of an idle limit; a week before an absolute end, which an hour more does not move; half a run at most."""
    assert (limits.KEEP_ALIVE_PERCENT, limits.EXPIRING_MS, limits.SAME_END_MS) == (80, 7 * DAY, 3_600 * SECOND)
    assert limits.DELETION_SHARE == 2
    assert limits.HOOK_SHARE == 4, (
        "beside the deletions, the longest call and what is not begun at the end, time is left"
    )


def test_keys_are_known_before_they_seal_and_rest_before_they_go():
    """Ten minutes, 30 days, 30 days; the table is looked over often enough that a rested key is found soon."""
    assert (limits.KEY_LEAD_MS, limits.KEY_LIFE_MS, limits.KEY_REST_MS) == (600 * SECOND, 30 * DAY, 30 * DAY)
    assert limits.INSPECTION_MS == 7 * DAY < limits.KEY_REST_MS
    assert limits.KEY_LEAD_MS + CONFIRM_MS < limits.KEY_REST_MS


def test_every_duration_is_named_here():
    """A constant that no test of this file mentions has a value that nobody checked."""
    named = {name for name in vars(limits) if name.isupper()}

    tested = set(re.findall(r"\b[A-Z][A-Z_]{2,}\b", Path(__file__).read_text()))

    assert named - tested - {"MINUTE", "SECOND"} == set()


# --- the inequalities that make the protocol safe -------------------------------------------------------------------


def test_3_3_a_callback_fits_into_its_budget():
    """Exchange, identity, hook and the table fit into 25 s, which fits into the gateway's 30."""
    assert EXCHANGE_CALL_MS + IDENTITY_CALL_MS + HOOK_CALL_MS + SAVE_MS <= CALLBACK_BUDGET_MS == 25 * SECOND
    assert PUSH_CALL_MS + SAVE_MS <= CALLBACK_BUDGET_MS


@pytest.mark.rule("F-41", "RB-41")
def test_3_4_a_refresh_and_its_save_fit_into_the_lease():
    """The longest refresh call ends a guard and a save before the lease does."""
    assert REFRESH_CALL_MIN_MS < REFRESH_CALL_MS
    assert REFRESH_CALL_MS + SAVE_MS + GUARD_MS <= REFRESH_LEASE_MS


@pytest.mark.rule("F-51")
def test_3_5_a_revoke_call_fits_into_its_lease():
    """With ten seconds of queueing before it and a guard after it."""
    assert REVOKE_CALL_MS + 10 * SECOND + GUARD_MS <= CLAIM_LEASE_MS
    assert REVOKE_CALL_MIN_MS < REVOKE_CALL_MS


def test_3_6_the_ladder_waits_longer_than_a_lease():
    """No second call while an unanswered one may still act, and never a shorter step than before."""
    assert LADDER_MS[0] > CLAIM_LEASE_MS + GUARD_MS
    assert all(one <= two for one, two in pairwise(LADDER_MS))


@pytest.mark.rule("U-7")
def test_K_9_the_ladder_is_1_2_4_8_15_and_15_again():
    """Minutes, and the reference's formula for every attempt that a day can hold."""
    assert [ladder_step_ms(attempts) // 60_000 for attempts in range(1, 9)] == [1, 2, 4, 8, 15, 15, 15, 15]
    for attempts in range(1, 200):
        assert ladder_step_ms(attempts) == min(15 * 60_000, 60_000 * 2 ** min(4, attempts - 1))


def test_3_7_windows_and_deadlines_stand_in_their_order():
    """A window is no longer than a confirmation, both vanish beside the deadline, and that ends within the day."""
    assert WINDOW_MS <= CONFIRM_MS
    assert CONFIRM_MS + GUARD_MS + SWEEP_MS < DEADLINE_MS // 100
    assert DEADLINE_MS + SWEEP_MS <= DAY


@pytest.mark.rule("D-32")
def test_3_7_the_guard_covers_twice_the_skew_at_which_we_alarm():
    """Two clocks may be wrong by that much in opposite directions."""
    assert GUARD_MS >= 2 * SKEW_ALARM_MS


def test_3_8_the_cookie_lives_as_long_as_the_authorization():
    """And a ticket lives a minute at least, a day at most."""
    assert AUTHORIZATION_MS <= COOKIE_MS == 900 * SECOND
    assert TICKET_MIN_MS <= TICKET_MS <= DAY


def test_3_9_nothing_is_begun_that_cannot_be_finished():
    """No claim later than 50 s before the sweep's end: lease and queue fit. Reconciliation likewise keeps time."""
    assert LAST_CLAIM_MS == 50 * SECOND >= CLAIM_LEASE_MS + 20 * SECOND
    assert LAST_ITEM_MS >= SAVE_MS


def test_3_11_what_is_compacted_is_long_over():
    """Everything that could still refer to it has ended; brooms come a day after the end; receipts outlive intents."""
    assert max(CONFIRM_MS, REFRESH_LEASE_MS, CLAIM_LEASE_MS, CLIENT_TOKEN_WINDOW_MS) < COMPACT_MS
    assert TTL_AFTER_MS >= DAY
    assert IDEMPOTENCY_TTL_MS >= DAY
    assert RECEIPT_TTL_MS > DEADLINE_MS + COMPACT_MS


def test_3_12_a_batch_is_what_the_table_takes():
    """25 statements in one call; a page of the sweep is one batch."""
    assert BATCH == 25


def test_losers_wait_less_than_their_function_lives():
    """A loser that has waited can still refresh and save itself (the function's time-out is held by tests/infra)."""
    assert LOSER_WAIT_MS + REFRESH_CALL_MIN_MS + SAVE_MS < 24 * SECOND


def test_a_fresh_token_stays_so_while_a_loser_waits():
    """The soft margin is wider than the hard one by more than a lease: losers get a token, not a 429."""
    assert HARD_MARGIN_MS + REFRESH_LEASE_MS + GUARD_MS < SOFT_MARGIN_MS


def test_a_recent_save_is_longer_than_a_read_can_hang():
    """
    An owner deleted beside a save is noticed by whoever reads within half a minute of it: whatever a worker of
    `access_token` saves, it saves sooner (its time-out: `tests/infra/test_template.py`).
    """
    assert SAVED_RECENTLY_MS > 2 * SAVE_MS


DURATION = re.compile(r"\b\d[\d_]*\s*\*\s*(SECOND|MINUTE)\b")


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(Path(domain.__path__[0]).glob("*.py")) if path.name != "limits.py"],
    ids=lambda path: path.name,
)
def test_no_rule_holds_a_duration_of_its_own(path):
    """Durations are in one file; a large number elsewhere in the rules would be a second one."""
    numbers = [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]

    assert not DURATION.search(path.read_text())
    assert [number for number in numbers if number >= 1000 and path.name != "return_to.py"] == []


def test_an_install_carries_every_name_of_its_account():
    """Rows 8 and 70 are one transaction, of a hundred actions at most, and stay far from that."""
    assert 9 + limits.PAIRS - 1 + limits.ACCOUNT_NAMES <= 50
