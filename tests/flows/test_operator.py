"""An operator's list, the manual retry, and the notices of owners that were deleted."""

import pytest

from quitclaim.domain.attention import Attention, Subject
from quitclaim.domain.errors import (
    InvalidIdError,
    MovedError,
    NothingToAcknowledgeError,
    NoticeNotFoundError,
    OwnerMustAcknowledgeError,
    RetryRefusedError,
    RevocationInProgressError,
    StoreError,
    TooEarlyToAcknowledgeError,
)
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import CLAIM_LEASE_MS, DEADLINE_MS, GUARD_MS, OVERDUE_MS, POISON_CLAIMS
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.operator import Asked, Operating, acknowledge_for_deleted, attention, retry
from quitclaim.flows.reconcile import reconcile
from quitclaim.store.deliveries import DeliveryStore
from quitclaim.store.keys import barrier_key, intent_key, revocation_key
from quitclaim.store.operator import OperatorStore
from quitclaim.store.revocations import RevocationStore
from tests.fakes.clock import Budget
from tests.fakes.provider import answers, lost_answer, lost_request
from tests.fakes.tables import WorkerKilledError, ambiguous, killed_after
from tests.flows.world import GOOGLE, OTHER, OWNER, RECONCILE_MS, World

OPERATOR = Asked("arn:aws:iam::111122223333:user/olga", "the provider confirmed by phone")


def operating(world: World) -> Operating:
    return Operating(
        world.reads,
        OperatorStore(world.table, world.clock, world.ids),
        RevocationStore(world.table, world.clock, world.ids),
        world.clock,
        world.ids,
        world.kick,
        DeliveryStore(world.table, world.clock, world.ids),
    )


def listed(world: World, limit: int = 100) -> list[Attention]:
    return attention(limit, operating(world))[0]


def the_rid(world: World) -> str:
    (item,) = world.items("revocation")
    return str(item["PK"]).removeprefix("Q#")


def expired(world: World) -> str:
    """A revocation that the provider never confirmed."""
    world.connect()
    world.disconnect()
    world.server.next("/revoke", *[answers(500)] * 999)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.minutes_pass(2)
    assert world.notice() == "permission_removal_required"
    return the_rid(world)


def audits(world: World) -> list[tuple[str, str, str, str]]:
    return [
        (each["action"], each["subject"], each["by"], each["reason"])
        for each in sorted(world.items("audit"), key=lambda item: item["SK"])
    ]


# --- the list --------------------------------------------------------------------------------------------------------


def test_nothing_waits(world: World) -> None:
    """A live connection and a pending revocation are nobody's business."""
    world.connect()
    world.connect(OTHER, account="bob")
    world.disconnect(OTHER)

    assert attention(100, operating(world)) == ([], False)


def test_a_notice_is_on_the_list_until_it_is_acknowledged(world: World) -> None:
    """By its id, with level, state and where it belongs; nothing of the account."""
    rid = expired(world)

    found, stop = sorted(listed(world), key=lambda each: each.state)

    assert (found.subject, found.ref, found.level.label) == (Subject(rid=rid), GOOGLE, "permission_removal_required")
    assert (found.state, found.quarantined, found.owner_deleted) == ("expired", False, False)
    assert stop.state == "stopping"
    world.acknowledge()
    world.reconcile()
    assert listed(world) == []


@pytest.mark.parametrize("ms", [-1, 0])
def test_a_stop_that_is_open_for_a_day_is_on_the_list(world: World, ms: int) -> None:
    """From the first look after 24 hours until it is closed; it is shown, and nothing can be done to it by hand."""
    world.connect()
    stopped_at = world.clock.now()
    world.disconnect()
    world.stand_in.alter(intent_key(GOOGLE, 1), put={"comp_open": 1})  # something of the app's is never done
    world.clock.move(to=stopped_at + OVERDUE_MS + ms)
    world.reconcile()

    stops = [each for each in listed(world) if each.subject.stop is not None]

    assert len(stops) == (ms >= 0)
    if stops:
        (found,) = stops
        assert (str(found.subject), found.ref, found.client) == ("s:acme-app:ann:google:1", GOOGLE, "acme")
        assert (found.level.label, found.state, found.since) == ("pending", "stopping", stopped_at)
        assert world.revoking.store.gauges()["StopsOverdue"] == 1
        with pytest.raises(NoticeNotFoundError):
            retry(found.subject, OPERATOR, operating(world))
        with pytest.raises(NoticeNotFoundError):
            acknowledge_for_deleted(found.subject, OPERATOR, operating(world))
        assert audits(world) == []


def test_a_stop_leaves_the_list_when_it_closes(world: World) -> None:
    """And it is put there once, however often it is looked at."""
    world.connect()
    world.disconnect()
    world.stand_in.alter(intent_key(GOOGLE, 1), put={"comp_open": 1})
    world.minutes_pass(2)
    world.clock.move(ms=OVERDUE_MS)
    world.reconcile()
    (first,) = world.reads.intents(GOOGLE)
    world.clock.move(minutes=20)
    world.reconcile()
    (second,) = world.reads.intents(GOOGLE)
    assert (second.overdue, second.tries) == (first.overdue, first.tries + 1)

    world.stand_in.alter(intent_key(GOOGLE, 1), put={"comp_open": 0})
    world.clock.move(minutes=20)
    world.reconcile()

    (closed,) = world.reads.intents(GOOGLE)
    assert (closed.overdue, listed(world), world.revoking.store.gauges()["StopsOverdue"]) == (None, [], 0)
    assert closed.closed == world.clock.now()


def test_a_stop_that_fails_at_every_look_is_on_the_list(world: World) -> None:
    """It is put there before anything that may fail."""
    world.connect()
    world.disconnect()
    world.stand_in.alter(barrier_key(OWNER, "acme"), put={"owed": 7})  # nobody can read that
    world.clock.move(ms=OVERDUE_MS)

    reconcile(Budget(RECONCILE_MS), world.reconciling)

    assert [kind for kind, _ in world.faults if kind == "stop"] == ["stop"]
    assert [str(each.subject) for each in listed(world)] == ["s:acme-app:ann:google:1"]


def test_an_exchange_of_unknown_outcome_is_on_the_list(world: World) -> None:
    """Named by where it lies, in one word that fits into a path."""
    world.server.next("/token", lost_answer)
    with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
        world.come_back(world.callback())

    (found,) = listed(world)

    assert str(found.subject) == f"x:acme-app:ann:google:{world.exchange().id}"
    assert Subject.read(str(found.subject)) == found.subject
    assert found.state == "unconfirmed"


@pytest.mark.rule("D-5", "F-50")
def test_a_quarantined_revocation_is_on_the_list_with_its_deadline(world: World) -> None:
    """While it is still tried."""
    world.connect()
    world.disconnect()
    sealed = {"kind": "refresh_token", "pair": "main", "tv": 1}
    item = next(each for each in world.stand_in.everything().values() if each["ty"]["S"] == "revocation")
    broken = bytes(item["material"]["L"][0]["M"]["sealed"]["B"])[:-1] + b"\x00"
    world.stand_in.alter(revocation_key(the_rid(world)), put={"material": [{**sealed, "sealed": broken}]})
    world.sweep()

    (found,) = listed(world)

    assert (found.quarantined, found.level.label, found.state) == (True, "pending", "pending")
    assert found.deadline == world.reads.revocations([the_rid(world)])[the_rid(world)].deadline


def test_the_oldest_come_first_and_the_rest_is_said_to_be_there(world: World) -> None:
    """Over all shards, kinds and owners."""
    for number in range(5):
        world.server.next("/token", lost_answer)
        with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
            world.come_back(world.callback(ConnectionRef("acme-app", f"owner-{number}", "google")))
        world.clock.move(minutes=2)

    some, more = attention(2, operating(world))
    everything, no_more = attention(100, operating(world))

    assert (len(some), more, len(everything), no_more) == (2, True, 5, False)
    assert some == everything[:2]
    assert [each.ref.owner for each in everything] == [f"owner-{number}" for number in range(5)]


# --- retry -----------------------------------------------------------------------------------------------------------


def test_a_pending_revocation_is_tried_again_now(world: World) -> None:
    """Whatever its ladder says; the sweep is kicked; who asked and why is on record."""
    world.connect()
    world.disconnect()
    world.server.next("/revoke", answers(500), answers(500), answers(500))
    world.minutes_pass(4)
    rid = the_rid(world)
    before = world.reads.revocations([rid])[rid]
    assert before.next > world.clock.now()

    retry(Subject(rid=rid), OPERATOR, operating(world))

    after = world.reads.revocations([rid])[rid]
    assert (after.next, after.attempts, after.deadline) == (world.clock.now(), before.attempts, before.deadline)
    assert world.kick.rids[-1] == rid
    assert audits(world) == [("retry", rid, OPERATOR.by, OPERATOR.reason)]
    world.sweep()
    assert world.server.live() == []


@pytest.mark.rule("D-5")
def test_what_was_quarantined_for_killing_its_worker_gets_another_chance(world: World) -> None:
    """Somebody looked at it: it is claimed and sent again, which no number of claims had brought."""
    world.connect()
    world.disconnect()
    rid = the_rid(world)
    world.stand_in.alter(revocation_key(rid), put={"claims": POISON_CLAIMS + 1})
    world.sweep()
    assert world.server.live("refresh_token") != []
    world.clock.move(minutes=20)
    world.sweep()
    assert world.server.live("refresh_token") != []

    retry(Subject(rid=rid), OPERATOR, operating(world))
    world.sweep()

    assert world.server.live("refresh_token") == []


@pytest.mark.rule("D-5")
def test_an_outage_of_the_key_makes_no_poison(world: World) -> None:
    """Six hours without KMS: every item is claimed and given back each minute, and revoked once KMS is back."""
    world.connect()
    world.disconnect()
    world.kms.is_out = True
    world._vaults.clear()  # noqa: SLF001 - new instances, which have no key open yet
    for _ in range(36):
        world.clock.move(minutes=10)
        world.sweep()

    world.kms.is_out = False
    world.minutes_pass(2)

    assert world.server.live() == []
    assert world.notice() == "confirmed"


def test_one_that_is_being_sent_is_left_alone(world: World) -> None:
    """A call of it may still act: 409, with the time when it is over (custody rule 12)."""
    world.connect()
    world.disconnect()
    rid = the_rid(world)
    world.stand_in.alter(revocation_key(rid), put={"lease": "w", "lease_until": world.clock.now() + CLAIM_LEASE_MS})
    before = world.stand_in.everything()

    with pytest.raises(RevocationInProgressError) as refused:
        retry(Subject(rid=rid), OPERATOR, operating(world))

    assert refused.value.retry_after_ms == CLAIM_LEASE_MS + GUARD_MS
    assert world.stand_in.everything() == before
    world.clock.move(ms=CLAIM_LEASE_MS + GUARD_MS)
    retry(Subject(rid=rid), OPERATOR, operating(world))
    assert world.reads.revocations([rid])[rid].lease is None


def test_what_is_settled_cannot_be_tried_again(world: World) -> None:
    """Confirmed and expired alike, and nothing is put on record."""
    rid = expired(world)

    with pytest.raises(RetryRefusedError):
        retry(Subject(rid=rid), OPERATOR, operating(world))

    assert audits(world) == []


def test_a_parked_one_cannot_be_tried_again(asking_world: World) -> None:
    """Its token is in use by another grant."""
    world = asking_world
    world.connect()
    world.disconnect()
    rid = the_rid(world)
    world.stand_in.alter(revocation_key(rid), put={"state": "parked"})

    with pytest.raises(RetryRefusedError):
        retry(Subject(rid=rid), OPERATOR, operating(world))


@pytest.mark.parametrize("subject", [Subject(rid="nobody"), Subject(ref=GOOGLE, exchange="nobody")])
def test_what_is_not_there_is_not_found(world: World, subject: Subject) -> None:
    """Neither for a retry nor for an acknowledgement."""
    for act in (retry, acknowledge_for_deleted):
        with pytest.raises(NoticeNotFoundError):
            act(subject, OPERATOR, operating(world))


@pytest.mark.parametrize("text", ["", "x:a:b:c", "x:a:b:c:d:e", "y:a:b:c:d", "a b", "x:a:b:c:", "x:..:b:c:d", "*"])
def test_what_is_no_id_is_refused(text: str) -> None:
    """Before anything is looked up."""
    with pytest.raises(InvalidIdError):
        Subject.read(text)


def test_a_retry_that_others_keep_overtaking_gives_up(world: World) -> None:
    """Recorded once."""
    world.connect()
    world.disconnect()
    at_work = operating(world)

    def moved(*_: object) -> None:
        raise MovedError

    at_work.store.retry = moved
    with pytest.raises(MovedError):
        retry(Subject(rid=the_rid(world)), OPERATOR, at_work)

    assert len(audits(world)) == 1


# --- the notices of deleted owners -----------------------------------------------------------------------------------


def test_a_notice_of_a_deleted_owner_is_closed_with_a_reason(world: World) -> None:
    """As its owner would have; the connection closes as attested, and the audit trail says by whom."""
    rid = expired(world)
    delete_owner(OWNER, world.stopping)
    assert [each.owner_deleted for each in listed(world)] == [True, True]

    acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))

    assert [each.state for each in listed(world)] == ["stopping"]
    assert audits(world) == [("acknowledge", rid, OPERATOR.by, OPERATOR.reason)]
    world.minutes_pass(20)
    assert (world.connection().closed_as, listed(world)) == ("attested", [])


def test_an_exchange_of_a_deleted_owner_is_closed_likewise(world: World) -> None:
    """Not before its window is over (custody rule 2)."""
    world.server.next("/token", lost_request)
    with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
        world.come_back(world.callback())
    delete_owner(OWNER, world.stopping)
    subject = Subject.of_exchange(world.exchange())

    with pytest.raises(TooEarlyToAcknowledgeError):
        acknowledge_for_deleted(subject, OPERATOR, operating(world))
    assert audits(world) == []
    world.clock.move(minutes=2)
    acknowledge_for_deleted(subject, OPERATOR, operating(world))

    assert world.exchange().acknowledged == world.clock.now()
    assert len(audits(world)) == 1


@pytest.mark.rule("F-32")
def test_the_word_of_an_owner_who_exists_is_not_taken(world: World) -> None:
    """An operator cannot know what the owner did at the provider."""
    rid = expired(world)

    with pytest.raises(OwnerMustAcknowledgeError):
        acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))

    assert audits(world) == []
    assert world.notice() == "permission_removal_required"


@pytest.mark.rule("F-33")
def test_what_is_no_notice_cannot_be_closed(world: World) -> None:
    """Pending, or confirmed."""
    world.connect()
    delete_owner(OWNER, world.stopping)
    world.reconcile()
    for _ in range(2):
        with pytest.raises(NothingToAcknowledgeError):
            acknowledge_for_deleted(Subject(rid=the_rid(world)), OPERATOR, operating(world))
        world.minutes_pass(3)
    assert audits(world) == []


@pytest.mark.rule("I-18")
def test_closing_twice_is_closing_once(world: World) -> None:
    """The second time changes nothing, and records nothing."""
    rid = expired(world)
    delete_owner(OWNER, world.stopping)
    acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))
    before = world.stand_in.everything()

    acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))

    assert world.stand_in.everything() == before


def test_nothing_is_done_that_is_not_on_record(world: World) -> None:
    """The entry comes first: a crash behind it leaves the notice open; a table that is out, both undone."""
    rid = expired(world)
    delete_owner(OWNER, world.stopping)
    world.table.faults = [killed_after]
    with pytest.raises(WorkerKilledError):
        acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))
    assert (len(audits(world)), world.notice()) == (1, "permission_removal_required")

    world.table.faults = [ambiguous] * 6
    with pytest.raises(StoreError):
        acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))
    assert (len(audits(world)), world.notice()) == (1, "permission_removal_required")

    acknowledge_for_deleted(Subject(rid=rid), OPERATOR, operating(world))
    assert (len(audits(world)), world.notice()) == (2, "acknowledged")
