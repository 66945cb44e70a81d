"""
Every constant of the custody protocol, in milliseconds unless the name says otherwise.

The inequalities between them are what makes the protocol safe; each is a test (`tests/domain/test_limits.py`, and
against the template's time-outs `tests/infra`). Nothing else in the code holds a duration of the protocol.
"""

from typing import Final

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND

WINDOW_MS: Final = 60 * SECOND  # an exchange's answer is awaited this long
CONFIRM_MS: Final = 600 * SECOND  # a held grant waits this long for its owner
REFRESH_LEASE_MS: Final = 30 * SECOND
CLAIM_LEASE_MS: Final = 30 * SECOND  # of a revocation, capped at its deadline
GUARD_MS: Final = 5 * SECOND  # what whoever takes a right over waits beyond its end
DEADLINE_MS: Final = 86_340 * SECOND  # 23 h 59 min
LADDER_MS: Final = tuple(step * MINUTE for step in (1, 2, 4, 8, 15))  # the last step repeats

EXCHANGE_CALL_MS: Final = 12 * SECOND
IDENTITY_CALL_MS: Final = 5 * SECOND
PUSH_CALL_MS: Final = 8 * SECOND  # of an authorization request to the provider, while the browser waits
HOOK_CALL_MS: Final = 4 * SECOND
HOOK_PAUSE_MS: Final = 30 * SECOND  # a hook that nobody answered is not asked again for so long
REFRESH_CALL_MS: Final = 15 * SECOND
REFRESH_CALL_MIN_MS: Final = 3 * SECOND
REVOKE_CALL_MS: Final = 15 * SECOND
REVOKE_CALL_MIN_MS: Final = 3 * SECOND
SAVE_MS: Final = 4 * SECOND  # kept free for the write after a provider's answer
LOSER_WAIT_MS: Final = 5 * SECOND
CALLBACK_BUDGET_MS: Final = 25 * SECOND

EFFECT_MS: Final = 60 * SECOND
OVERDUE_MS: Final = 24 * 60 * MINUTE  # a stop that is still open then is shown to operators
AUTHORIZATION_MS: Final = 900 * SECOND
COOKIE_MS: Final = 900 * SECOND
TICKET_MS: Final = 900 * SECOND
TICKET_MIN_MS: Final = 60 * SECOND
LINK_VISITS: Final = 20
WRONG_CODES: Final = 5
COMPACT_MS: Final = 86_400 * SECOND
SWEEP_MS: Final = 60 * SECOND
TTL_AFTER_MS: Final = 24 * 60 * MINUTE  # a `ttl` is a broom: never before the expiry plus this
RECEIPT_TTL_MS: Final = 400 * 24 * 60 * MINUTE
IDEMPOTENCY_TTL_MS: Final = 24 * 60 * MINUTE
EVENT_TTL_MS: Final = 7 * 24 * 60 * MINUTE  # an event stays so long after it was published
PUBLISH_MS: Final = 60 * SECOND  # the stream has so long to publish an event before reconciliation does

DELIVERY_LEASE_MS: Final = 300 * SECOND  # of a webhook's delivery, from the claim
FORWARD_MS: Final = 30 * SECOND  # after it was accepted a delivery is sent again, if nobody has finished it
SET_AGE_MS: Final = 7 * 24 * 60 * MINUTE  # a security event token may arrive so late: less than its id is remembered
TRACE_TTL_MS: Final = 30 * 24 * 60 * MINUTE  # from its receipt a delivery that is over is remembered
PARKED_MS: Final = 24 * 60 * MINUTE  # a delivery waits so long, from its receipt, for a grant of its account
REMEMBERED_MS: Final = 30 * 24 * 60 * MINUTE  # an account that left is known for so long: its events are let go
AFTERMATH_MS: Final = 3 * 24 * 60 * MINUTE  # after an account left, its provider's word may still mean what left
KEPT_MS: Final = 7 * 24 * 60 * MINUTE  # a delivery that nobody had is kept with its body for operators
CLOCK_SKEW_MS: Final = 5 * MINUTE  # by which a provider's clock and ours may differ
CHECK_EVERY_MS: Final = 10 * MINUTE  # hints make the provider be asked about one connection no more often

HARD_MARGIN_MS: Final = 30 * SECOND  # an access token with less left is never handed out
SOFT_MARGIN_MS: Final = 300 * SECOND  # with less left it is refreshed, losers still get it
SAVED_RECENTLY_MS: Final = 30 * SECOND  # a hand-out this soon after a save reads the owner once more

REFUSALS: Final = 5  # of one refresh token in the same words, on the ladder: a quarter of an hour at least
REPORTS: Final = 100  # of one client in a window; what is reported beyond that marks nothing
REPORT_WINDOW_MS: Final = 5 * MINUTE
BLOCKERS: Final = 32  # open ids of one barrier that refuse a begin; a stop is never refused
KEEP_ALIVE_PERCENT: Final = 80  # of a provider's idle limit; what is left is for outages
EXPIRING_MS: Final = 7 * 24 * 60 * MINUTE  # before an absolute end the app is told, or at 80 % where that is later
SAME_END_MS: Final = 60 * MINUTE  # an absolute end that a refresh moves by no more has not been moved
KEY_LEAD_MS: Final = 10 * MINUTE  # a further data key is in the ring so long before it seals
KEY_LIFE_MS: Final = 30 * 24 * 60 * MINUTE  # then another one seals
KEY_REST_MS: Final = 30 * 24 * 60 * MINUTE  # so long after it sealed last it may be destroyed, if nothing names it
INSPECTION_MS: Final = 7 * 24 * 60 * MINUTE  # from one look over the whole table to the next
DELETION_SHARE: Final = 2  # reconcile gives the stops of deleted owners half of its time at the most
HOOK_SHARE: Final = 4  # and waits for the app's hooks for a quarter of what is left when the first is asked

ATTEMPTS: Final = 2  # refresh attempts that one pair may have open
PAIRS: Final = 2
DOUBTS: Final = (
    2  # renewals of a queued token that are owed to an answer, not to its age: then it is left to its deadline
)
BATCH: Final = 25  # claims or settles in one call
NOTICES: Final = 10  # events in one call of the bus
POISON_CLAIMS: Final = 5  # claims without a settle beyond the counted attempts
TOKEN_MAX_CHARS: Final = 16_384
SHARDS: Final = 4  # of each due kind; attention has as many

PREPARED_BYTES: Final = 64 * 1024  # of a webhook's event as it is stored, without the provider's body
EVENT_ACCOUNTS: Final = 100  # external accounts that one stored event may name
ACCOUNT_NAMES: Final = 25  # further names that one account goes by: each is one action of the install
EVENT_FIELDS: Final = 64  # values that the catalogue picks out of one
EVENT_TEXT_BYTES: Final = 32 * 1024  # of one text in it
STORED_BODY_BYTES: Final = 256 * 1024  # of a larger body only the digest is kept
ACCEPTED_BODY_BYTES: Final = 6 * 1024 * 1024
EVENTS_AT_ONCE: Final = 1_000  # that one request may bring, each once for each account that it names
JSON_LEVELS: Final = 32  # what is nested deeper is not read


def ladder_step_ms(attempts: int) -> int:
    """The wait after the *attempts*-th failed attempt (1, 2, 4, 8, 15, 15 … minutes); *attempts* counts from 1."""
    return LADDER_MS[min(attempts, len(LADDER_MS)) - 1]
