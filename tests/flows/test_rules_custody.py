"""Rules of stops, revocations, notices and the barrier, by number: what a flow must do, and what it must never do."""

from collections.abc import Callable

import pytest

from quitclaim.domain.errors import ConnectBlockedError, StateConflictError, StoreError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import DEADLINE_MS, GUARD_MS, SECOND
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.flows.reconcile import Reconciled, reconcile
from quitclaim.store.keys import account_key, connection_key, exchange_key
from tests.fakes.clock import Budget
from tests.fakes.provider import Misbehaviour, answers, lost_answer, lost_request
from tests.fakes.tables import ambiguous
from tests.flows.world import GOOGLE, OTHER, World

BOB = ConnectionRef("acme-app", "bob", "google")


def reconciled(world: World) -> Reconciled:
    """A run in which something may fail."""
    return reconcile(Budget(54 * SECOND), world.reconciling)


def rid_of(world: World) -> str:
    """The only revocation there is."""
    (item,) = world.items("revocation")
    return str(item["PK"]).removeprefix("Q#")


# --- stops -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-24", "I-5")
def test_nothing_for_use_is_left_of_a_stopped_grant(world: World) -> None:
    """The sealed bytes that open for use are in no item any more; what is queued is other bytes, and revoke-only."""
    world.connect()
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None

    world.disconnect()

    stored = str(world.stand_in.everything())
    assert str(grant.use) not in stored
    assert str(grant.revoke) in stored


@pytest.mark.rule("F-6", "F-56")
def test_a_revocation_needs_nothing_but_itself(world: World) -> None:
    """Connection, account and exchange are taken away behind its back: the token is revoked all the same."""
    world.connect()
    account = world.connection().account
    exchange = world.exchange()
    world.disconnect()
    for key in (connection_key(GOOGLE), account_key("acme", account or ""), exchange_key(GOOGLE, exchange.id)):
        world.stand_in.erase(key)

    world.sweep()

    assert world.server.live() == []
    assert [item["state"] for item in world.items("revocation")] == ["confirmed"]


@pytest.mark.rule("D-7", "F-28", "F-30", "I-16")
def test_one_purge_that_fails_keeps_nobody_else_waiting(world: World) -> None:
    """Its stop stays due, the other's is done, and once the fault is mended so is the first."""
    world.clients.add("second", confirmation="none")
    world.connect()
    world.connect(OTHER, account="bob", client="second")
    world.disconnect()
    world.disconnect(OTHER)
    plain = world.reconciling.store.purge_done

    def purge_done(intent: object, *given: object, **named: object) -> None:
        if intent.ref == GOOGLE:  # type: ignore[attr-defined]
            raise StoreError
        plain(intent, *given, **named)  # type: ignore[arg-type]

    world.reconciling.store.purge_done = purge_done  # type: ignore[method-assign]
    for _ in range(3):
        world.clock.move(minutes=1)
        world.sweep()
        reconciled(world)
    world.faults.clear()
    assert world.connection(OTHER).state == "revoked"
    assert world.connection().state != "revoked"
    assert world.start(OTHER, client="second", again=True).ticket is not None

    world.reconciling.store.purge_done = plain  # type: ignore[method-assign]
    world.minutes_pass(2)
    assert world.connection().state == "revoked"


@pytest.mark.rule("D-15", "F-32", "F-34")
def test_the_owner_acknowledges_before_the_purge_is_done(new_world: Callable[..., World]) -> None:
    """A notice is acknowledged while the stop's purge is still open; and a new grant may come once that is done."""
    world = new_world(revocation={"shape": "none", "manual_page": "https://acme.example.com/apps"})
    world.connect()
    world.disconnect()
    (intent,) = world.reads.intents(GOOGLE)
    assert intent.purge == "pending"
    assert world.notice() == "permission_removal_required"

    assert world.acknowledge() == 1

    (intent,) = world.reads.intents(GOOGLE)
    assert (intent.purge, world.notice()) == ("pending", "acknowledged")
    world.minutes_pass(1)
    assert world.start(OTHER).ticket is not None


# --- notices ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-35", "F-37", "U-20")
def test_the_more_pressing_of_a_stop_and_an_exchange_is_the_notice(world: World) -> None:
    """A confirmed stop beside an attempt of unknown outcome: the owner is told of the attempt."""
    world.connect()
    world.disconnect()
    world.minutes_pass(3)
    assert world.notice() == "confirmed"
    world.server.next("/token", lost_answer)

    with pytest.raises(CallbackFailedError):
        world.come_back(world.callback(again=True))

    assert world.notice() == "permission_removal_required"


@pytest.mark.rule("F-38", "D-9", "U-20", "F-33")
def test_an_acknowledged_notice_shows_as_such_and_blocks_nothing(world: World) -> None:
    """Until then the status names what blocks; repeated, the owner's word is taken again and changes nothing."""
    world.connect()
    world.disconnect()
    world.server.next("/revoke", *[answers(500)] * 99)
    pending = world.status()
    queued = world.reads.revocations([rid_of(world)])[rid_of(world)]
    assert queued is not None
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.minutes_pass(2)
    expired = world.status()

    world.acknowledge()
    after = world.status()

    assert [(each.level.label, each.deadline) for each in pending.notices] == [("pending", queued.deadline)]
    assert {each.level for each in pending.blockers["acme"]} == {"pending", "purging"}
    assert [each.level.label for each in expired.notices] == ["permission_removal_required"]
    assert [(each.level, each.connection) for each in expired.blockers["acme"]] == [
        ("permission_removal_required", "google")
    ]
    assert ([each.level.label for each in after.notices], after.blockers) == (["acknowledged"], {})
    before = world.stand_in.everything()
    assert world.acknowledge() == 0
    assert world.stand_in.everything() == before


# --- who is blocked --------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-5", "D-8")
def test_what_is_owed_at_one_client_blocks_no_other_client_and_no_other_owner(world: World) -> None:
    """Only the owner's attempts at that very client."""
    world.clients.add("second", confirmation="none")
    world.connect()
    world.disconnect()

    with pytest.raises(ConnectBlockedError):
        world.start(OTHER)

    assert world.connect(OTHER, account="bob", client="second").state == "ready"
    assert world.connect(BOB, account="carol").state == "ready"


@pytest.mark.rule("D-26", "U-15", "I-4")
@pytest.mark.parametrize("misbehaviour", [answers(400, {"error": "invalid_grant"}), lost_answer, lost_request])
def test_an_attempt_that_fails_touches_no_grant_of_the_same_account(world: World, misbehaviour: object) -> None:
    """Another owner's attempt at the same provider account comes to nothing: the living grant is as it was."""
    world.connect()
    before = world.reads.grant(GOOGLE, "main")
    world.server.next("/token", misbehaviour)  # type: ignore[arg-type]

    with pytest.raises(CallbackFailedError):
        world.come_back(world.callback(BOB))

    assert world.reads.grant(GOOGLE, "main") == before
    assert world.token().token_version == 1


@pytest.mark.rule("D-26", "U-6")
def test_a_second_authorization_never_replaces_a_healthy_credential(world: World) -> None:
    """
    The same owner at the same account: a ready connection gives no second link, and an authorization beside it that
    fails leaves its grant as it was.
    """
    world.connect()
    before = world.reads.grant(GOOGLE, "main")
    world.server.next("/token", answers(400, {"error": "invalid_grant"}))

    assert world.start(GOOGLE).ticket is None
    with pytest.raises(StateConflictError):
        world.start(GOOGLE, again=True)
    with pytest.raises(CallbackFailedError):
        world.come_back(world.callback(OTHER))

    assert (world.connection(OTHER).state, world.connection().state) == ("failed", "ready")
    assert world.reads.grant(GOOGLE, "main") == before
    assert world.items("revocation") == []
    assert world.token().token_version == 1


# --- what is not lost by a clean-up that fails -----------------------------------------------------------------------


@pytest.mark.rule("U-19", "F-63")
def test_a_clean_up_that_fails_is_made_good_by_itself(world: World) -> None:
    """
    Another account's grant cannot be released for the table is out: the caller is told of the account, somebody of the
    table, and once the hold is over the sweep revokes what it held.
    """
    world.connect(account="alice")
    world.disconnect()
    world.minutes_pass(3)
    callback = world.callback(account="bob", again=True)
    world.table.faults = [None, None, *[ambiguous] * 12]  # begin and hold are done

    with pytest.raises(CallbackFailedError) as failed:
        world.come_back(callback)

    assert failed.value.cause.details["reason"] == "identity_mismatch"
    assert [(kind, type(fault).__name__) for kind, fault in world.faults] == [("clean-up", "StoreError")]
    world.faults.clear()
    assert world.exchange().outcome == "held"
    assert world.unaccounted() == []
    world.table.faults = []
    world.minutes_pass(3)
    assert world.server.live() == []
    assert (world.connection().state, world.notice()) == ("failed", "confirmed")


REFUSED = {
    "the provider refuses": (answers(400, {"error": "invalid_grant"}), "PROVIDER_REFUSED", [None]),
    "nobody answers": (lost_answer, "EXCHANGE_UNCONFIRMED", [None]),
    "nothing usable is answered": (
        answers(200, {"access_token": 7, "refresh_token": "rt-1"}),
        "GRANT_NOT_INSTALLED",
        [None, None],
    ),
}


@pytest.mark.rule("U-19")
@pytest.mark.parametrize(("answer", "code", "before"), REFUSED.values(), ids=REFUSED.keys())
def test_an_end_that_cannot_be_recorded_hides_no_outcome(
    world: World, answer: Misbehaviour, code: str, before: list[None]
) -> None:
    """The exchange ends at its own time, in a notice or in the sweep; *before*: writes that are still done."""
    world.server.next("/token", answer)
    callback = world.callback()
    world.table.faults = [*before, *[ambiguous] * 12]

    with pytest.raises(CallbackFailedError) as failed:
        world.come_back(callback)

    assert failed.value.cause.code == code
    assert [kind for kind, _ in world.faults] == ["clean-up"]
    world.faults.clear()
    world.table.faults = []
    world.minutes_pass(3)
    assert world.connection().state == "failed"
    assert world.exchange().outcome in ("unconfirmed", "cleanup")


@pytest.mark.rule("U-19")
def test_a_grant_that_cannot_be_stored_is_the_one_thing_that_is_no_clean_up(world: World) -> None:
    """Ownership could not be stored: 503, and the exchange ends in a notice (the one 503 of the rule)."""
    callback = world.callback()
    world.table.faults = [None, *[ambiguous] * 12]

    with pytest.raises(CallbackFailedError) as failed:
        world.come_back(callback)

    assert failed.value.cause.code == "STORAGE_UNAVAILABLE"
    world.table.faults = []
    world.minutes_pass(3)
    assert world.notice() == "permission_removal_required"


@pytest.mark.rule("U-19")
def test_the_caller_sees_why_and_not_what_was_cleaned_up(world: World) -> None:
    """The clean-up works, and the answer is the reason for it."""
    world.connect(account="alice")
    world.disconnect()
    world.minutes_pass(3)

    with pytest.raises(CallbackFailedError) as failed:
        world.come_back(world.callback(account="bob", again=True))

    assert failed.value.cause.details["reason"] == "identity_mismatch"
    assert world.exchange().outcome == "cleanup"
