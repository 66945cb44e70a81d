"""What the writes of connecting leave behind: rows 1-15."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quitclaim.domain.connect import ConnectionState, ExchangeOutcome, Phase
from quitclaim.domain.errors import MovedError
from quitclaim.domain.ids import digest
from quitclaim.domain.limits import AUTHORIZATION_MS, CONFIRM_MS, GUARD_MS, TICKET_MS, TTL_AFTER_MS, WINDOW_MS
from quitclaim.domain.revocations import RevocationState
from quitclaim.store.keys import (
    authorization_key,
    connection_key,
    exchange_key,
    grant_key,
    idempotency_key,
    member_key,
    owner_key,
    revocation_key,
    ticket_key,
)
from tests.store import rows
from tests.store.stage import ACCOUNT, CLIENT, OTHER, OWNER, REF, Stage, ticket_text

# --- 1: start --------------------------------------------------------------------------------------------------------


def test_a_start_makes_connection_ticket_and_owner(stage: Stage) -> None:
    """Authorizing in phase link at generation 1, due when its link lapses; the owner's fence is written with it."""
    rows.start_of_a_new_owner(stage)()

    connection = stage.connection()
    lapse_at = stage.now + TICKET_MS + AUTHORIZATION_MS + GUARD_MS
    assert connection.state is ConnectionState.AUTHORIZING
    assert (connection.phase, connection.generation, connection.lapse_at) == (Phase.LINK, 1, lapse_at)
    assert stage.due("connection") == [(connection_key(REF), lapse_at)]
    assert stage.roster() == ["authorizing"]
    assert stage.owner().epoch == 0
    assert stage.told() == []


def test_a_start_s_ticket_and_idempotency_are_swept_a_day_after_they_expire(stage: Stage) -> None:
    """`ttl` is a broom, in seconds: never before the expiry and a day; nothing that holds a grant has one."""
    decision = stage.a_start(idempotency=stage.an_idempotency())

    stage.connects.start(decision)

    ticket = stage.item(ticket_key(decision.ticket_digest))
    record = stage.item(idempotency_key(REF.tenant, "key-digest"))
    assert ticket["ttl"] * 1000 == stage.now + TICKET_MS + AUTHORIZATION_MS + TTL_AFTER_MS
    assert record["ttl"] * 1000 == stage.now + 1_000 + TTL_AFTER_MS
    assert record["answer"] == {"generation": 1}
    assert {"t": "acme-app", "o": "ann", "c": "google", "visits": 0}.items() <= ticket.items()


@pytest.mark.rule("U-1")
def test_a_second_start_is_the_next_generation(stage: Stage) -> None:
    """The version goes on with the item, and the generation with the connection."""
    stage.started()

    stage.started()

    assert (stage.connection().generation, stage.connection().v) == (2, 2)
    assert stage.due("connection") == [(connection_key(REF), stage.connection().lapse_at)]


@pytest.mark.rule("RB-39")
@pytest.mark.parametrize("other", [False, True], ids=["its own", "another connection's"])
def test_a_start_ends_a_waiting_exchange_of_the_same_client(stage: Stage, other: bool) -> None:
    """The held grant is due for revocation now, nothing for use is left of it, and its connection has failed."""
    act = rows.start_over_another_ones_hold(stage) if other else rows.start_over_a_held_one(stage)
    whose = OTHER if other else REF

    act()

    exchange, revocation, barrier = stage.exchange("x-1", whose), stage.revocation(), stage.barrier()
    assert (exchange.outcome, exchange.reason, exchange.use) == (ExchangeOutcome.CLEANUP, "superseded", None)
    assert (revocation.state, revocation.lease, revocation.next) == (RevocationState.PENDING, None, stage.now)
    assert (barrier.in_flight, barrier.owed) == (None, frozenset({"r-1"}))
    assert stage.due("revoke", CLIENT) == [(revocation_key("r-1"), stage.now)]
    assert stage.due("exchange") == []
    assert stage.told() == ["connection.failed"]
    if other:
        assert stage.connection(OTHER).state is ConnectionState.FAILED
    assert stage.connection().state is ConnectionState.AUTHORIZING


# --- 2, 3: link ------------------------------------------------------------------------------------------------------


def test_a_visit_counts_and_makes_an_authorization(stage: Stage) -> None:
    """Each visit has an authorization of its own, swept a day after it expires."""
    stage.started()

    authorization, state = stage.visited()
    stage.visited()

    item = stage.item(authorization_key(state))
    assert (authorization.sealed, authorization.expires) == (b"verifier", stage.now + AUTHORIZATION_MS)
    assert item["ttl"] * 1000 == authorization.expires + TTL_AFTER_MS
    assert stage.item(ticket_key(digest(ticket_text(stage.connection()))))["visits"] == 2


def test_a_discarded_state_holds_no_verifier(stage: Stage) -> None:
    """A passing error spends the authorization and nothing else."""
    rows.discard(stage, final=False)()

    found = stage.reads.authorization("state-1")
    assert found is not None
    assert (found.discarded_at, found.sealed) == (stage.now, None)
    assert stage.connection().state is ConnectionState.AUTHORIZING
    assert stage.told() == []


def test_a_final_answer_fails_the_connection(stage: Stage) -> None:
    """It leaves the due index, moves on the roster, and the app is told why."""
    rows.discard(stage, final=True)()

    connection = stage.connection()
    assert (connection.state, connection.failure, connection.phase) == (ConnectionState.FAILED, "denied", None)
    assert stage.due("connection") == []
    assert stage.roster() == ["failed"]
    assert stage.event("connection.failed")["reason"] == "denied"


# --- 4: begin --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-57", "U-2", "D-24", "M-38")
def test_a_begin_records_the_exchange_before_anything_is_sent(stage: Stage) -> None:
    """The state is spent, the exchange is open and due at its window's end, the barrier is shut: in one transaction."""
    act = rows.begin(stage, with_barrier=False)

    with stage.table.metered() as spent:
        act()

    assert len(spent.writes) == 1
    exchange = stage.exchange("x-2")
    authorization = stage.reads.authorization("state-1")
    assert authorization is not None
    assert (authorization.consumed_at, authorization.exchange, authorization.sealed) == (stage.now, "x-2", None)
    assert (exchange.outcome, exchange.ends) == (ExchangeOutcome.OPEN, stage.now + WINDOW_MS)
    assert stage.barrier().in_flight == "google#x-2"
    assert (stage.connection().phase, stage.connection().exchange) == (Phase.EXCHANGING, "x-2")
    assert stage.due("exchange") == [(exchange_key(REF, "x-2"), exchange.ends)]


def test_a_begin_keeps_what_is_still_owed_and_drops_what_is_over(stage: Stage) -> None:
    """Ids of open or parked revocations stay in the barrier; a finished one leaves it (custody rule 9)."""
    rows.park_beside_the_account(stage)()
    stage.reconciles.purge_done(stage.intent(), stage.now, has_barrier=True)
    assert stage.barrier().owed == {"r-1"}

    stage.begun(number=2)

    assert stage.barrier().owed == {"r-1"}
    assert stage.barrier().in_flight == "google#x-2"


def test_a_begin_drops_a_finished_revocation(stage: Stage) -> None:
    """What is settled and finished is no obligation any more."""
    rows.finish(stage)()
    stage.reconciles.purge_done(stage.intent(), stage.now, has_barrier=True)
    stage.stand_in.alter(rows.BARRIER, put={"owed": frozenset({"r-1"})})
    stage.stand_in.alter(connection_key(REF), put={"state": "failed"})
    stage.begun(number=2)

    assert stage.barrier().owed == frozenset()


# --- 5, 6, 7: hold ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-61", "U-3", "F-8", "M-51")
def test_a_hold_queues_the_grant_revoke_only(stage: Stage) -> None:
    """The queue item is leased to the exchange until the hold ends; barrier and connection are not touched."""
    stage.begun()
    barrier, connection = stage.barrier(), stage.connection()
    held, revocation = stage.a_hold(stage.exchange())

    stage.connects.hold(stage.exchange(), held, revocation, stage.now)

    ends = stage.now + CONFIRM_MS
    exchange, queued = stage.exchange(), stage.revocation()
    assert (exchange.outcome, exchange.hold_ends, exchange.fp) == (ExchangeOutcome.HELD, ends, "fp-x-1")
    assert (exchange.use, exchange.ends) == (b"sealed for use", stage.now + WINDOW_MS)
    assert (queued.lease, queued.lease_until, queued.next, queued.exchange) == ("x-1", ends, ends, "x-1")
    assert queued.material[0].sealed == b"sealed revoke-only"
    assert stage.due("exchange") == [(exchange_key(REF, "x-1"), ends)]
    assert stage.due("revoke", CLIENT) == [(revocation_key("r-1"), ends)]
    assert (stage.barrier(), stage.connection()) == (barrier, connection)
    assert "ttl" not in stage.item(revocation_key("r-1"))


def test_a_repeated_hold_of_the_same_grant_goes_on(stage: Stage) -> None:
    """My own fingerprint in the refusal means that it is held: nothing is queued twice."""
    exchange = stage.begun()
    held, revocation = stage.a_hold(exchange)
    stage.connects.hold(exchange, held, revocation, stage.now)
    before = stage.stand_in.everything()

    stage.connects.hold(exchange, held, revocation, stage.now)

    assert stage.stand_in.everything() == before


@pytest.mark.rule("D-30")
def test_another_grant_of_a_held_exchange_is_refused(stage: Stage) -> None:
    """A second answer with another token is not taken for the first: it goes to the late grants."""
    exchange = stage.begun()
    stage.connects.hold(exchange, *stage.a_hold(exchange), stage.now)
    held, revocation = stage.a_hold(exchange)

    with pytest.raises(MovedError) as moved:
        stage.connects.hold(exchange, replace(held, fp="fp-other"), revocation, stage.now)

    assert moved.value.seen["exchange"].fp == "fp-x-1"


def test_a_learned_account_stands_on_exchange_and_hold(stage: Stage) -> None:
    """Nobody has to ask again, and the access token kept for asking is gone."""
    exchange = stage.begun()
    held, revocation = stage.a_hold(exchange, identity=b"sealed access token")
    stage.connects.hold(exchange, held, revocation, stage.now)

    learned = replace(stage.exchange(), subject=ACCOUNT, account=ACCOUNT, scopes=frozenset({"read"}))
    stage.connects.record_identity(stage.exchange(), learned, stage.now)

    assert (stage.exchange().subject, stage.exchange().account) == (ACCOUNT, ACCOUNT)
    assert (stage.revocation().account, stage.revocation().identity) == (ACCOUNT, None)


def test_wrong_codes_are_counted(stage: Stage) -> None:
    """One more each time; the fifth is not counted but refused, because it ends the exchange."""
    held = stage.held()

    for _ in range(4):
        stage.connects.count_wrong_code(held, stage.now)
    with pytest.raises(MovedError):
        stage.connects.count_wrong_code(held, stage.now)

    assert stage.exchange().wrong == 4


# --- 8: install ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-62", "I-4", "D-23", "M-43", "M-44", "M-45")
def test_an_install_makes_the_held_grant_the_live_one(stage: Stage) -> None:
    """Queue item gone, grant there, barrier open, account joined, connection ready: nothing of it is due any more."""
    rows.install(stage)()

    exchange, connection, grant = stage.exchange(), stage.connection(), stage.grant()
    assert (exchange.outcome, exchange.use) == (ExchangeOutcome.INSTALLED, None)
    assert not stage.has(revocation_key("r-1"))
    assert stage.barrier().in_flight is None
    assert (connection.state, connection.phase, connection.lapse_at) == (ConnectionState.READY, None, None)
    assert (connection.subject, connection.account, connection.pairs) == (ACCOUNT, ACCOUNT, ("main",))
    assert (grant.use, grant.revoke, grant.rid, grant.tv) == (b"sealed for use", b"sealed revoke-only", "r-1", 1)
    assert (stage.account().live, stage.account().parked) == (1, 0)
    assert stage.item(member_key(CLIENT, ACCOUNT, REF))["generation"] == 1
    assert (stage.due("exchange"), stage.due("revoke", CLIENT), stage.due("connection")) == ([], [], [])
    assert stage.roster() == ["ready"]
    assert stage.told() == ["connection.ready"]
    assert "ttl" not in stage.item(grant_key(REF, "main"))


def test_a_second_grant_of_the_account_is_counted(stage: Stage) -> None:
    """Counts, not sets: two connections live on one account."""
    stage.installed()

    stage.installed(OTHER, number=2)

    assert stage.account().live == 2


def test_a_grant_of_two_pairs_is_installed_in_ten_actions(stage: Stage) -> None:
    """Both pairs are there, under one revocation id, and the write is at its limit."""
    with stage.table.metered() as spent:
        stage.installed(pairs=("main", "user"))

    assert max(spent.writes) == 10
    assert {grant.rid for grant in stage.reads.grants(REF, ("main", "user"))} == {"r-1"}


@pytest.mark.rule("F-60", "RB-22")
@pytest.mark.parametrize(("earlier_ms", "admitted"), [(1, True), (0, False)])
def test_an_account_admits_only_exchanges_begun_after_it_was_shut(
    stage: Stage, earlier_ms: int, admitted: bool
) -> None:
    """A wide revocation may have hit the grant of an exchange that began before its end, or in the same instant."""
    stage.installed(OTHER, number=7)
    stage.stand_in.alter(rows.ACCOUNT_KEY, put={"killed_at": stage.now - earlier_ms})

    if admitted:
        stage.installed()
    else:
        with pytest.raises(MovedError):
            stage.installed()

    assert stage.account().live == 1 + admitted
    assert stage.account().killed_at == stage.now - earlier_ms


# --- 9-12: the exchange ends -----------------------------------------------------------------------------------------


@pytest.mark.rule("F-63")
def test_a_release_makes_the_grant_due_and_fails_the_connection(stage: Stage) -> None:
    """The hold's end without an install: revoked next, and listed in the barrier until then."""
    rows.release(stage)()

    exchange, revocation, barrier = stage.exchange(), stage.revocation(), stage.barrier()
    assert (exchange.outcome, exchange.reason, exchange.use) == (ExchangeOutcome.CLEANUP, "denied", None)
    assert (revocation.lease, revocation.lease_until, revocation.next) == (None, None, stage.now)
    assert (barrier.in_flight, barrier.owed) == (None, frozenset({"r-1"}))
    assert stage.connection().state is ConnectionState.FAILED
    assert stage.due("revoke", CLIENT) == [(revocation_key("r-1"), stage.now)]
    assert (stage.due("exchange"), stage.due("connection"), stage.roster()) == ([], [], ["failed"])
    assert stage.told() == ["connection.failed"]


def test_a_lapse_leaves_the_hold_to_the_sweep_that_has_it(stage: Stage) -> None:
    """Only the exchange, the barrier and the connection move; the sweep's lease stays."""
    act = rows.release(stage, with_revocation=False)
    stage.stand_in.alter(revocation_key("r-1"), put={"lease": "sweep"})

    act()

    assert stage.revocation().lease == "sweep"
    assert stage.exchange().outcome is ExchangeOutcome.CLEANUP
    assert stage.barrier().owed == {"r-1"}


@pytest.mark.rule("F-67")
def test_a_refused_exchange_ends_and_owes_nothing(stage: Stage) -> None:
    """No notice, an open barrier, a failed connection."""
    rows.end(stage, unconfirmed=False)()

    assert stage.exchange().outcome is ExchangeOutcome.ENDED
    assert (stage.barrier().in_flight, stage.barrier().acks) == (None, frozenset())
    assert (stage.attention("exchange"), stage.due("exchange")) == ([], [])
    assert stage.connection().state is ConnectionState.FAILED
    assert stage.told() == ["connection.failed"]


@pytest.mark.rule("F-67", "F-68", "U-4", "D-38")
@pytest.mark.parametrize("lapsed", [False, True], ids=["by its worker", "by its lapse"])
def test_an_exchange_of_unknown_outcome_is_a_notice(stage: Stage, lapsed: bool) -> None:
    """Somebody looks at it, the barrier waits for the owner's word, and its window's end is kept for that."""
    rows.end(stage, unconfirmed=True, lapsed=lapsed)()

    exchange = stage.exchange()
    (entry,) = stage.attention("exchange")
    assert (exchange.outcome, exchange.ends) == (ExchangeOutcome.UNCONFIRMED, exchange.started + WINDOW_MS)
    assert stage.barrier().acks == {"x:google#x-1"}
    assert (entry["SK"], entry["t"]) == ("X#google#x-1", "acme-app")
    assert stage.due("exchange") == []
    assert stage.told() == ["exchange.unconfirmed"]


def test_an_exchange_ends_without_its_connection(stage: Stage) -> None:
    """A connection that moved on is left alone."""
    rows.end(stage, unconfirmed=True, connection=False)()

    assert stage.connection().state is ConnectionState.AUTHORIZING
    assert stage.barrier().in_flight is None


# --- 13: late grants -------------------------------------------------------------------------------------------------


@pytest.mark.rule("D-2", "F-61")
def test_a_grant_that_comes_after_the_window_is_queued(stage: Stage) -> None:
    """The exchange is closed to clean-up, the barrier lists the grant, and it is due now."""
    rows.late_while_open(stage)()

    assert stage.exchange().outcome is ExchangeOutcome.CLEANUP
    assert (stage.barrier().in_flight, stage.barrier().owed) == (None, frozenset({"r-1"}))
    assert stage.due("revoke", CLIENT) == [(revocation_key("r-1"), stage.now)]
    assert stage.due("exchange") == []


@pytest.mark.rule("D-2", "U-4", "F-66")
def test_a_grant_that_comes_after_the_lapse_takes_its_notice_back(stage: Stage) -> None:
    """What was unknown is known: the acknowledgement is no longer asked for, the revocation is owed."""
    rows.late_after_lapse(stage)()

    assert stage.exchange().outcome is ExchangeOutcome.CLEANUP
    assert (stage.barrier().acks, stage.barrier().owed) == (frozenset(), frozenset({"r-1"}))
    assert stage.attention("exchange") == []


@pytest.mark.rule("D-2", "F-66")
def test_a_grant_that_comes_after_a_stop_is_the_stop_s_to_revoke(stage: Stage) -> None:
    """Its id stands in the intent, in the same commit (custody rule 5)."""
    rows.late_after_a_stop(stage)()

    assert stage.intent().rids == {"r-1"}
    assert stage.barrier().owed == {"r-1"}


@pytest.mark.rule("D-30")
def test_a_second_grant_of_a_held_exchange_is_queued_beside_it(stage: Stage) -> None:
    """The held one is untouched; the other has an id of its own."""
    rows.late_beside_another(stage)()

    assert stage.exchange().outcome is ExchangeOutcome.HELD
    assert stage.barrier().in_flight == "google#x-1"
    assert stage.barrier().owed == {"r-1.fp-late"}
    assert stage.revocation().lease == "x-1"
    assert stage.revocation("r-1.fp-late").lease is None


@pytest.mark.rule("D-2", "F-66")
def test_a_grant_is_queued_although_nothing_else_is_as_expected(stage: Stage) -> None:
    """Without exchange, intent and barrier there is nothing that can refuse it (custody rule 8)."""
    act = rows.late_whatever_it_was(stage)
    for key in (rows.BARRIER, rows.EXCHANGE, rows.CONNECTION, owner_key(OWNER)):
        stage.stand_in.erase(key)

    act()

    assert stage.revocation().state is RevocationState.PENDING
    assert stage.barrier().owed == {"r-1"}


# --- 15: the link lapses ---------------------------------------------------------------------------------------------


@pytest.mark.rule("D-18")
def test_a_link_that_nobody_finished_fails_its_connection(stage: Stage) -> None:
    """Once no authorization of it can come back, it is over."""
    rows.lapse_link(stage)()

    assert (stage.connection().state, stage.connection().failure) == (ConnectionState.FAILED, "link_expired")
    assert (stage.due("connection"), stage.roster()) == ([], ["failed"])
    assert stage.told() == ["connection.failed"]


# --- every write -----------------------------------------------------------------------------------------------------


def test_every_item_carries_version_operation_type_and_schema(stage: Stage) -> None:
    """`v`, `op`, `ty`, `sv` stand on whatever the store wrote, so that any holder of a version notices any write."""
    rows.close_beside_a_living_grant(stage)()

    for key, item in stage.stand_in.everything().items():
        assert {"v", "op", "ty", "sv"} <= item.keys(), key


# --- 14: import ------------------------------------------------------------------------------------------------------


def test_an_import_seals_what_was_given_on_its_exchange_and_queues_nothing(stage: Stage) -> None:
    """Authorizing in phase exchanging, due when the window is over; the barrier names it; no revocation is there."""
    rows.begin_import(stage, again=False)()

    connection, exchange = stage.connection(), stage.exchange("x-2")
    assert (connection.state, connection.phase) == (ConnectionState.AUTHORIZING, Phase.EXCHANGING)
    assert (connection.generation, connection.exchange) == (1, "x-2")
    assert (exchange.kind, exchange.outcome, exchange.use) == (
        "import",
        ExchangeOutcome.OPEN,
        b"the given token, sealed",
    )
    assert stage.barrier().in_flight == "google#x-2"
    assert stage.due("exchange") == [(exchange_key(REF, "x-2"), stage.now + WINDOW_MS)]
    assert stage.due("connection") == [(connection_key(REF), stage.now + WINDOW_MS + GUARD_MS)]
    assert not stage.has(revocation_key("r-2"))


def test_the_hold_of_an_import_takes_the_given_token_off(stage: Stage) -> None:
    """It is spent, or it is the one that is held; what stands there is never taken for a grant that waits."""
    rows.begin_import(stage, again=False)()
    exchange = stage.exchange("x-2")
    held, revocation = stage.a_hold(replace(exchange, use=None, shared_copy=True))

    stage.connects.hold(exchange, replace(held, use=None), revocation, stage.now)

    assert stage.exchange("x-2").outcome is ExchangeOutcome.HELD
    assert stage.exchange("x-2").use is None
    assert stage.exchange("x-2").shared_copy is True


@pytest.mark.parametrize("unconfirmed", [False, True])
def test_the_end_of_an_import_drops_the_given_token(stage: Stage, unconfirmed: bool) -> None:
    """Whatever its end is: nothing is queued, and the copy is gone."""
    rows.begin_import(stage, again=False)()

    stage.connects.end(stage.exchange("x-2"), stage.connection(), stage.now, "refused", unconfirmed=unconfirmed)

    assert stage.exchange("x-2").use is None
    assert stage.connection().state is ConnectionState.FAILED
    assert not stage.has(revocation_key("r-2"))


@pytest.mark.rule("D-30")
@pytest.mark.parametrize("act", [rows.late_while_open, rows.late_after_lapse], ids=["while open", "after lapse"])
def test_a_late_grant_leaves_its_fingerprint_on_its_exchange(stage: Stage, act: Callable[[Stage], rows.Act]) -> None:
    """By it the next one knows that the exchange's own revocation id is another grant's."""
    act(stage)()

    assert (stage.exchange().outcome, stage.exchange().fp) == ("cleanup", "fp-late")
