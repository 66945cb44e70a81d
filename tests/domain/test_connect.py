"""A connection's states against its events, the barrier, and the deadlines of link and exchange."""

import itertools
from dataclasses import fields

import pytest

from quitclaim.domain.connect import (
    PASSING_ERRORS,
    STOPPED,
    Authorization,
    Barrier,
    Connection,
    ConnectionState,
    ExchangeOutcome,
    Phase,
    Resolved,
    Ticket,
    exchange_ends,
    failed,
    hold_ends,
    is_awaiting_confirmation,
    is_last_wrong_code,
    lost,
    may_start,
    may_stop,
    may_visit,
    ready,
    refusal_of_link,
    refusal_of_token,
    started,
    stopped,
)
from quitclaim.domain.errors import (
    ConnectionReconcilingError,
    GenerationMovedError,
    NeedsReconnectError,
    StateConflictError,
    StateInvalidError,
    StateReplayedError,
    StateSupersededError,
)
from quitclaim.domain.limits import (
    AUTHORIZATION_MS,
    BLOCKERS,
    CONFIRM_MS,
    EFFECT_MS,
    GUARD_MS,
    LINK_VISITS,
    TICKET_MS,
    WINDOW_MS,
    WRONG_CODES,
)
from quitclaim.domain.revocations import RevocationState
from tests.domain.values import AROUND, NOW, REF, a_connection, a_revocation, an_exchange

S = ConnectionState
SC, CR, NR = StateConflictError, ConnectionReconcilingError, NeedsReconnectError
IN, RP, SU = StateInvalidError, StateReplayedError, StateSupersededError
BEGINS, ANSWERS_IT = True, False


# --- start and reconnect ---------------------------------------------------------------------------------------------

START = {
    None: (BEGINS, BEGINS),
    S.AUTHORIZING: (BEGINS, BEGINS),
    S.READY: (ANSWERS_IT, SC),
    S.NEEDS_RECONNECT: (BEGINS, BEGINS),
    S.FAILED: (BEGINS, BEGINS),
    S.RECONCILING_LINK: (CR, CR),
    S.REVOKING: (ANSWERS_IT, SC),
    S.RECONCILING_REVOKE: (ANSWERS_IT, SC),
    S.REVOKED: (ANSWERS_IT, BEGINS),
}
"""State to (start, reconnect): row "start, reconnect, import" of the table of states and events."""


@pytest.mark.rule("U-1")
def test_every_state_has_a_row():
    """Eight states and none at all; every state of a revocation, finished or not, acknowledged or not."""
    assert set(OWED) == set(itertools.product(RevocationState, (0, 1), (0, 1)))
    assert set(START) == set(LINK) == set(TOKEN) | {None} == set(STOP) | {None} == {None, *S}


@pytest.mark.parametrize(("state", "again"), list(itertools.product(START, (False, True))))
def test_start_against_every_state(state, again):
    """It begins a generation, answers the existing connection, or is refused by the error of the state."""
    connection = None if state is None else a_connection(state)
    expected = START[state][again]

    if isinstance(expected, bool):
        assert may_start(connection, again=again) is expected
        return
    with pytest.raises(expected) as refused:
        may_start(connection, again=again)
    assert refused.value.details["connection_id"] == REF.connection


@pytest.mark.rule("U-1", "D-23")
@pytest.mark.parametrize("state", [None, *S])
def test_U_21_a_start_is_one_generation_on(state):
    """Authorizing in phase link, with nothing left of the life before but the account it is pinned to (S-21)."""
    before = None
    if state is not None:
        before = a_connection(
            state,
            phase=Phase.EXCHANGING,
            exchange="x0",
            effect_at=1,
            step=2,
            requested=3,
            subject="subject",
            account="account",
            failure="denied",
            closed_as="confirmed",
            pairs=("main",),
            v=9,
        )

    after = started(before, REF, "google", "web", NOW)

    assert (after.state, after.phase) == (S.AUTHORIZING, Phase.LINK)
    assert after.generation == (1 if before is None else before.generation + 1)
    assert after.lapse_at == NOW + AUTHORIZATION_MS + GUARD_MS
    assert (after.exchange, after.effect_at, after.step, after.requested) == (None, None, None, None)
    assert (after.failure, after.closed_as, after.pairs) == (None, None, ())
    assert (after.subject, after.account) == ((None, None) if before is None else ("subject", "account"))
    assert after.v == (0 if before is None else 9)


def test_3_8_no_authorization_of_a_generation_outlives_its_lapse():
    """The last visit is a millisecond before the ticket's end; its authorization is over a guard before the lapse."""
    expires = NOW + TICKET_MS

    after = started(None, REF, "google", "web", expires)

    assert (expires - 1) + AUTHORIZATION_MS + GUARD_MS < (after.lapse_at or 0) + GUARD_MS
    assert (after.lapse_at or 0) - GUARD_MS == expires + AUTHORIZATION_MS


# --- link and callback -----------------------------------------------------------------------------------------------

LINK = {
    None: (IN, IN),
    S.AUTHORIZING: (None, SU),
    S.READY: (RP, SU),
    S.NEEDS_RECONNECT: (SU, SU),
    S.FAILED: (RP, SU),
    S.RECONCILING_LINK: (RP, SU),
    S.REVOKING: (SU, SU),
    S.RECONCILING_REVOKE: (SU, SU),
    S.REVOKED: (SU, SU),
}
"""State to what a link or callback (of its generation, of an older one) is told; authorizing means phase link here."""


@pytest.mark.rule("U-21")
@pytest.mark.parametrize(("state", "older"), list(itertools.product(LINK, (0, 1, 2))))
def test_a_link_against_every_state(state, older):
    """Rows "link visit" and "callback consumed"."""
    connection = None if state is None else a_connection(state, phase=Phase.LINK if state is S.AUTHORIZING else None)
    expected = LINK[state][1 if older else 0]

    refusal = refusal_of_link(connection, 3 - older)

    assert type(refusal) is (expected or type(None))


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.LINK])
def test_a_link_that_went_on_is_replayed(phase):
    """Once the exchange has begun, or a hosted link came back, the same link is no second start."""
    assert type(refusal_of_link(a_connection(S.AUTHORIZING, phase=phase), 3)) is RP
    assert type(refusal_of_link(a_connection(S.AUTHORIZING, phase=phase), 2)) is SU


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("visits", [0, LINK_VISITS - 1, LINK_VISITS, LINK_VISITS + 1])
def test_U_17_a_link_is_over_at_its_end_and_after_twenty_visits(off, visits):
    """`t <= now` is over."""
    ticket = Ticket(REF, 3, "web", visits, expires=NOW)

    assert may_visit(ticket, NOW + off) is (off < 0 and visits < LINK_VISITS)


def test_passing_errors_are_those_after_which_the_owner_may_try_again():
    """RFC 6749 4.1.2.1 and OIDC core 3.1.2.6; a denial is none of them."""
    assert {"server_error", "temporarily_unavailable", "interaction_required", "login_required"} == PASSING_ERRORS


# --- exchange --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-58")
def test_K_5_the_window_of_an_exchange():
    """Sixty seconds from its begin."""
    assert exchange_ends(NOW) == NOW + WINDOW_MS == NOW + 60_000


def test_a_hold_ends_with_the_window_or_ten_minutes_on():
    """Where the owner confirms it waits for them; else nobody does."""
    exchange = an_exchange()

    assert hold_ends(exchange, NOW + 7, owner_confirms=False) == exchange.ends
    assert hold_ends(exchange, NOW + 7, owner_confirms=True) == NOW + 7 + CONFIRM_MS


@pytest.mark.parametrize("wrong", range(WRONG_CODES + 1))
def test_the_fifth_wrong_code_is_the_last(wrong):
    """Four are counted, the fifth ends the exchange."""
    assert is_last_wrong_code(an_exchange(ExchangeOutcome.HELD, wrong=wrong)) is (wrong >= 4)


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("outcome", ExchangeOutcome)
@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("use", [None, b"sealed"])
def test_awaiting_confirmation_is_derived(state, outcome, use, off):
    """Authorizing, held, sealed for use, and the hold is not over (U-17)."""
    exchange = an_exchange(outcome, use=use, hold_ends=NOW)
    expected = state is S.AUTHORIZING and outcome is ExchangeOutcome.HELD and use is not None and off < 0
    connection = a_connection(state, exchange=exchange.id, generation=exchange.generation)

    assert is_awaiting_confirmation(connection, exchange, NOW + off) is expected
    assert not is_awaiting_confirmation(a_connection(state), None, NOW + off)


def test_an_exchange_says_how_the_barrier_names_it():
    """Connection and exchange."""
    assert an_exchange().in_barrier == "google#x1"


@pytest.mark.parametrize(("state", "generation"), list(itertools.product(S, (2, 3, 4))))
def test_authorizing_at_a_generation(state, generation):
    """Both must hold."""
    expected = state is S.AUTHORIZING and generation == 3

    assert a_connection(state).is_authorizing_at(generation) is expected


# --- token -----------------------------------------------------------------------------------------------------------

TOKEN = {
    S.AUTHORIZING: SC,
    S.READY: None,
    S.NEEDS_RECONNECT: NR,
    S.FAILED: NR,
    S.RECONCILING_LINK: CR,
    S.REVOKING: SC,
    S.RECONCILING_REVOKE: SC,
    S.REVOKED: SC,
}


@pytest.mark.rule("I-5")
@pytest.mark.parametrize("state", TOKEN)
def test_a_token_call_against_every_state(state):
    """Row "token call"."""
    refusal = refusal_of_token(a_connection(state))

    assert type(refusal) is (TOKEN[state] or type(None))
    if refusal is not None:
        assert refusal.details["connection_id"] == REF.connection


# --- stop ------------------------------------------------------------------------------------------------------------

STOPS, IS_STOPPED = True, False
STOP = {
    S.AUTHORIZING: STOPS,
    S.READY: STOPS,
    S.NEEDS_RECONNECT: STOPS,
    S.FAILED: STOPS,
    S.RECONCILING_LINK: STOPS,
    S.REVOKING: IS_STOPPED,
    S.RECONCILING_REVOKE: IS_STOPPED,
    S.REVOKED: IS_STOPPED,
}


@pytest.mark.rule("F-25", "D-10")
@pytest.mark.parametrize(("state", "off"), list(itertools.product(STOP, (-2, -1, 0, 1))))
def test_a_disconnect_against_every_state_and_generation(state, off):
    """At its generation it stops or is stopped already; repeated at the one before, a stop is the same stop."""
    connection = a_connection(state)
    is_named = off == 0 or (off == -1 and STOP[state] is IS_STOPPED)

    if is_named:
        assert may_stop(connection, 3 + off) is STOP[state]
        return
    with pytest.raises(GenerationMovedError) as refused:
        may_stop(connection, 3 + off)
    assert refused.value.details == {"connection_id": REF.connection, "generation": 3}


def test_the_stopped_states():
    """On the way to revoked, or there."""
    assert {state for state in S if a_connection(state).is_stopped} == STOPPED
    assert {S.REVOKING, S.RECONCILING_REVOKE, S.REVOKED} == STOPPED


# --- after an event --------------------------------------------------------------------------------------------------

BUSY = {"phase": Phase.EXCHANGING, "exchange": "x1", "lapse_at": NOW, "subject": "subject", "account": "account"}
KEPT = {"ref", "provider", "client", "v"}


def changed(before: Connection, after: Connection) -> dict[str, object]:
    """What is another value now."""
    return {
        each.name: getattr(after, each.name)
        for each in fields(before)
        if getattr(after, each.name) != getattr(before, each.name)
    }


@pytest.mark.rule("U-1", "D-23")
@pytest.mark.parametrize("state", S)
def test_a_stop_is_one_generation_on(state):
    """Revoking; whose account it was stays known, for the notice and for a reconnect."""
    before = a_connection(state, **BUSY, step=2, requested=1, pairs=("main",))

    after = stopped(before, NOW, EFFECT_MS)

    assert after.state is S.REVOKING
    assert after.generation == before.generation + 1
    assert after.effect_at == NOW + 60_000
    assert (after.phase, after.exchange, after.lapse_at, after.requested, after.step) == (None,) * 5
    assert after.pairs == ()
    assert (after.subject, after.account) == ("subject", "account")


@pytest.mark.rule("U-1")
def test_a_loss_is_no_disconnect():
    """One generation on, by name; everything that says whose it was stays."""
    before = a_connection(S.READY, **BUSY, pairs=("main",))

    after = lost(before, "grant_rejected")

    assert changed(before, after) == {
        "state": S.NEEDS_RECONNECT,
        "generation": 4,
        "failure": "grant_rejected",
        "phase": None,
        "exchange": None,
        "lapse_at": None,
        "pairs": (),
    }


@pytest.mark.rule("D-23")
def test_a_failure_keeps_the_generation():
    """The attempt ended without a grant: nothing was ever live in this generation."""
    before = a_connection(S.AUTHORIZING, **BUSY)

    after = failed(before, "denied")

    assert changed(before, after) == {
        "state": S.FAILED,
        "failure": "denied",
        "phase": None,
        "exchange": None,
        "lapse_at": None,
    }


@pytest.mark.rule("S-21", "M-45")
@pytest.mark.parametrize(("learned", "pinned"), [("new", None), ("same", "same"), (None, "same"), (None, None)])
def test_ready_pins_the_account_that_the_exchange_learned(learned, pinned):
    """Generation and exchange stay; what the exchange says of account and scopes counts (S-21)."""
    before = a_connection(S.AUTHORIZING, phase=Phase.EXCHANGING, exchange="x1", lapse_at=NOW, subject=pinned)
    exchange = an_exchange(ExchangeOutcome.HELD, subject=learned, account=learned, scopes=frozenset({"read"}))

    after = ready(before, exchange, ("main",))

    assert (after.state, after.generation, after.exchange) == (S.READY, 3, "x1")
    assert (after.subject, after.account) == (learned or pinned, learned)
    assert (after.scopes, after.pairs) == ({"read"}, ("main",))
    assert (after.phase, after.lapse_at, after.failure) == (None, None, None)


# --- the barrier -----------------------------------------------------------------------------------------------------


def a_barrier(*revocations, missing=(), exchanges=(), purges=frozenset()) -> Resolved:
    """A barrier that names what is given, resolved."""
    named = {each.rid: each for each in revocations} | dict.fromkeys(missing)
    return Resolved(Barrier(owed=frozenset(named), purges=purges), named, {each.in_barrier: each for each in exchanges})


NOTICES = (
    RevocationState.UNCONFIRMED,
    RevocationState.EXPIRED,
    RevocationState.UNREADABLE,
    RevocationState.UNSUPPORTED,
)
OWED = {
    # (state, finished, acknowledged): (what blocks, is it kept, is it open)
    **{(RevocationState.PENDING, done, told): ("pending", True, True) for done in (0, 1) for told in (0, 1)},
    **{(RevocationState.PARKED, done, told): (None, True, False) for done in (0, 1) for told in (0, 1)},
    (RevocationState.CONFIRMED, 0, 0): (None, True, True),
    (RevocationState.CONFIRMED, 0, 1): (None, True, True),
    (RevocationState.CONFIRMED, 1, 0): (None, False, False),
    (RevocationState.CONFIRMED, 1, 1): (None, False, False),
    **{(state, 0, 0): ("permission_removal_required", True, True) for state in NOTICES},
    **{(state, 1, 0): ("permission_removal_required", True, True) for state in NOTICES},
    **{(state, 0, 1): (None, True, True) for state in NOTICES},
    **{(state, 1, 1): (None, False, False) for state in NOTICES},
}


@pytest.mark.rule("F-17", "I-9")
@pytest.mark.parametrize(
    ("state", "finished", "acknowledged"), list(itertools.product(RevocationState, (0, 1), (0, 1)))
)
def test_F_17_what_a_named_revocation_does_to_a_begin(state, finished, acknowledged):
    """Pending and unacknowledged notices block; the next begin drops what is over and finished, and nothing else."""
    item = a_revocation(state, finished=NOW if finished else None, acknowledged=NOW if acknowledged else None)
    level, is_kept, is_open = OWED[state, finished, acknowledged]

    barrier = a_barrier(item)

    assert [blocker.level for blocker in barrier.blockers()] == ([level] if level else [])
    assert barrier.still_owed == ({"r1"} if is_kept else set())
    assert barrier.open_ids == (1 if is_open else 0)


@pytest.mark.parametrize(("state", "finished"), list(itertools.product(RevocationState, (None, NOW))))
def test_what_lacks_its_finishing_step(state, finished):
    """Whatever is settled and not finished: a begin has it finished first."""
    item = a_revocation(state, finished=finished)
    lacks = state not in (RevocationState.PENDING, RevocationState.PARKED) and finished is None

    assert a_barrier(item).unfinished == ((item,) if lacks else ())


@pytest.mark.rule("F-17", "F-34")
@pytest.mark.parametrize(("outcome", "acknowledged"), list(itertools.product(ExchangeOutcome, (None, NOW))))
def test_F_17_only_an_unconfirmed_exchange_blocks_and_only_until_it_is_acknowledged(outcome, acknowledged):
    """What is in flight has a slot of its own."""
    blocks = outcome is ExchangeOutcome.UNCONFIRMED and acknowledged is None

    blockers = a_barrier(exchanges=[an_exchange(outcome, acknowledged=acknowledged)]).blockers()

    assert [blocker.level for blocker in blockers] == (["permission_removal_required"] if blocks else [])


@pytest.mark.rule("F-17")
def test_a_missing_id_blocks():
    """It is a corruption, and never counts as expired or done."""
    barrier = Resolved(Barrier(), {"r1": None}, {"google#x1": None})

    assert [(blocker.id, blocker.level) for blocker in barrier.blockers()] == [
        ("r1", "missing"),
        ("google#x1", "missing"),
    ]
    assert barrier.still_owed == {"r1"}
    assert barrier.unfinished == ()


@pytest.mark.rule("D-9", "U-20")
def test_D_9_blockers_say_what_to_act_on():
    """The connection, its level, and until when it is tried."""
    pending = a_revocation()
    notice = a_revocation(RevocationState.EXPIRED, rid="r2")

    blockers = a_barrier(pending, notice, purges=frozenset({"slack#2"})).blockers()

    assert [(blocker.level, blocker.connection, blocker.ends_at) for blocker in blockers] == [
        ("pending", "google", pending.deadline),
        ("permission_removal_required", "google", None),
        ("purging", "slack", None),
    ]


def test_a_clear_barrier_blocks_nothing():
    """Neither one that was never written nor one that is empty."""
    for barrier in (Resolved(None, {}, {}), Resolved(Barrier(), {}, {})):
        assert barrier.blockers() == ()
        assert (barrier.still_owed, barrier.open_ids, barrier.unfinished) == (frozenset(), 0, ())


@pytest.mark.parametrize("count", [BLOCKERS - 1, BLOCKERS, BLOCKERS + 1])
@pytest.mark.parametrize("parked", [0, 5])
def test_3_12_thirty_two_open_ids_refuse_a_begin(count, parked):
    """Open ones only: what is parked stands in nobody's way."""
    waiting = [a_revocation(RevocationState.EXPIRED, rid=f"r{number}", acknowledged=NOW) for number in range(count)]
    aside = [a_revocation(RevocationState.PARKED, rid=f"p{number}") for number in range(parked)]

    barrier = a_barrier(*waiting, *aside)

    assert barrier.open_ids == count
    assert [blocker.level for blocker in barrier.blockers()] == (["too_many"] if count >= BLOCKERS else [])


def test_exchanges_to_acknowledge_count_as_open():
    """Sixteen of each kind are thirty-two."""
    waiting = [a_revocation(RevocationState.EXPIRED, rid=f"r{n}", acknowledged=NOW) for n in range(16)]
    exchanges = [an_exchange(ExchangeOutcome.UNCONFIRMED, id=f"x{n}", acknowledged=NOW) for n in range(16)]

    assert a_barrier(*waiting, exchanges=exchanges).open_ids == BLOCKERS


def test_an_authorization_begins_neither_consumed_nor_discarded():
    """What decides about a callback is absent until it happens."""
    authorization = Authorization(REF, 3, "web", "binding", NOW)

    assert (authorization.consumed_at, authorization.discarded_at, authorization.exchange) == (None, None, None)
