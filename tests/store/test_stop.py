"""What a stop leaves behind: rows 23 and 24."""

from dataclasses import replace

import pytest

from quitclaim.domain.connect import ConnectionState, ExchangeOutcome
from quitclaim.domain.errors import MovedError
from quitclaim.domain.limits import DEADLINE_MS, EFFECT_MS
from quitclaim.domain.revocations import NO_REVOCATION, RevocationState
from quitclaim.store.keys import connection_key, grant_key, intent_key, member_key, revocation_key
from tests.store import rows
from tests.store.stage import ACCOUNT, CLIENT, OTHER, REF, Stage


@pytest.mark.rule("F-19", "F-23", "U-23", "D-5")
def test_a_stop_moves_the_ciphertext_unopened_into_the_queue(stage: Stage) -> None:
    """The grant is gone; what its revocation takes is due now, under the grant's own id, with its deadline."""
    stage.installed()

    stage.stopped()

    revocation = stage.revocation()
    assert not stage.has(grant_key(REF, "main"))
    assert revocation.material[0].sealed == b"sealed revoke-only"
    assert (revocation.next, revocation.deadline) == (stage.now, stage.now + DEADLINE_MS)
    assert (revocation.expected, revocation.lost, revocation.lease) == (frozenset(), None, None)
    assert stage.due("revoke", CLIENT) == [(revocation_key("r-1"), stage.now)]
    assert "ttl" not in stage.item(revocation_key("r-1"))


@pytest.mark.rule("F-19", "I-11")
def test_a_stop_records_what_is_to_be_done(stage: Stage) -> None:
    """Intent due at once, purge and revocation in the barrier, the connection due for its effect, the app told."""
    stage.installed()

    stage.stopped()

    connection, intent = stage.connection(), stage.intent()
    assert (connection.state, connection.generation) == (ConnectionState.REVOKING, 2)
    assert (connection.effect_at, connection.pairs) == (stage.now + EFFECT_MS, ())
    assert (intent.purge, intent.rids, intent.closed) == ("pending", frozenset({"r-1"}), None)
    assert (stage.barrier().owed, stage.barrier().purges) == (frozenset({"r-1"}), frozenset({"google#1"}))
    assert stage.due("stop") == [(intent_key(REF, 1), stage.now)]
    assert stage.due("connection") == [(connection_key(REF), stage.now + EFFECT_MS)]
    assert stage.roster() == ["revoking"]
    assert stage.told() == ["connection.ready", "connection.revoking"]


@pytest.mark.rule("F-19")
def test_a_stop_leaves_the_account(stage: Stage) -> None:
    """One grant fewer lives there, and the membership is gone; another's stays."""
    stage.installed(OTHER, number=7)
    stage.installed()

    stage.stopped()

    assert stage.account().live == 1
    assert not stage.has(member_key(CLIENT, ACCOUNT, REF))
    assert stage.has(member_key(CLIENT, ACCOUNT, OTHER))
    assert stage.due("wake") == []


def test_the_stop_that_empties_an_account_wakes_what_is_parked(stage: Stage) -> None:
    """Nothing lives there any more, and something is parked: that is due now."""
    rows.park_beside_the_account(stage)()

    stage.stopped(OTHER)

    assert (stage.account().live, stage.account().parked) == (0, 1)
    assert stage.due("wake") == [(rows.ACCOUNT_KEY, stage.now)]


@pytest.mark.rule("D-3")
def test_a_stop_during_a_refresh_expects_its_successor(stage: Stage) -> None:
    """The open attempts go along, until their lease's end; nothing of the grant is due any more (custody rule 3)."""
    before = rows.leased(stage)

    stage.stopped()

    assert (stage.revocation().expected, stage.revocation().expected_until) == (
        frozenset({"attempt-1"}),
        before.lease_until,
    )
    assert stage.due("refresh") == []


def test_a_stray_grant_is_never_confirmed(stage: Stage) -> None:
    """A successor that no revocation reaches was lost before the stop."""
    stage.installed()
    stage.stand_in.alter(grant_key(REF, "main"), put={"stray": True})

    stage.stopped()

    assert stage.revocation().lost is True


@pytest.mark.rule("F-21", "U-8")
def test_a_grant_that_cannot_be_revoked_is_born_a_notice(stage: Stage) -> None:
    """No material, somebody looks at it, and its finishing step is due; the stop goes through (U-8)."""
    stage.installed()
    stage.stand_in.alter(grant_key(REF, "main"), put={"takes": NO_REVOCATION})

    stage.stopped()

    revocation = stage.revocation()
    assert (revocation.state, revocation.material) == (RevocationState.UNSUPPORTED, ())
    assert stage.due("finish") == [(revocation_key("r-1"), stage.now)]
    assert stage.due("revoke", CLIENT) == []
    assert [(entry["PK"], entry["t"]) for entry in stage.attention("notice")] == [("Q#r-1", "acme-app")]


def test_a_stop_queues_both_pairs_under_one_id(stage: Stage) -> None:
    """All pairs of one answer share one revocation."""
    stage.installed(pairs=("main", "user"))

    stage.stopped()

    assert [each.pair for each in stage.revocation().material] == ["main", "user"]
    assert stage.revocation().family == {"x-1#main", "x-1#user"}
    assert stage.reads.grants(REF, ("main", "user")) == ()


@pytest.mark.rule("F-65")
def test_a_stop_ends_the_held_exchange_of_its_connection(stage: Stage) -> None:
    """Nobody waits ten minutes after a disconnect."""
    rows.stop_of_a_held_one(stage)()

    assert stage.exchange().outcome is ExchangeOutcome.CLEANUP
    assert (stage.barrier().in_flight, stage.barrier().owed) == (None, frozenset({"r-1"}))
    assert stage.revocation().next == stage.now
    assert stage.intent().rids == {"r-1"}


def test_a_stop_leaves_an_open_exchange_its_own_end(stage: Stage) -> None:
    """Its answer may still come: the barrier stays shut until its end decides."""
    exchange = stage.begun()

    stage.stopped()

    assert stage.exchange() == exchange
    assert stage.barrier().in_flight == "google#x-1"
    assert stage.barrier().purges == {"google#1"}


@pytest.mark.rule("F-26")
def test_a_lost_grant_keeps_the_app_s_data(stage: Stage) -> None:
    """needs_reconnect: purge and compensations are done before they begin, and only the revocation is owed."""
    rows.stop(stage, loss=True)()

    connection, intent = stage.connection(), stage.intent()
    assert (connection.state, connection.generation) == (ConnectionState.NEEDS_RECONNECT, 2)
    assert (intent.purge, intent.comp_derived) == ("done", True)
    assert (stage.barrier().owed, stage.barrier().purges) == (frozenset({"r-1"}), frozenset())
    assert stage.due("connection") == []
    assert stage.roster() == ["needs_reconnect"]
    assert "connection.needs_reconnect" in stage.told()


@pytest.mark.rule("U-10")
def test_a_second_stop_loses(stage: Stage) -> None:
    """Of two stops decided on the same generation, one wins and the other learns that it lost."""
    stage.installed()
    decision = stage.a_stop()
    stage.stops.stop(decision)
    before = stage.stand_in.everything()

    with pytest.raises(MovedError) as moved:
        stage.stops.stop(replace(decision, intent=replace(decision.intent, token="other")))

    assert {"connection", "grant main", "revocation", "intent"} <= moved.value.seen.keys()
    assert stage.stand_in.everything() == before
