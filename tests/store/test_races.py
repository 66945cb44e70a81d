"""
Real races, on MiniStack: its transactions are isolated, moto's are not. Whoever loses learns it, and nothing is in two
places or in none.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import ConnectionState, ExchangeOutcome, ready
from quitclaim.domain.errors import MovedError, StoreError
from quitclaim.domain.revocations import Reach, RevocationState
from quitclaim.store.table import DynamoTable
from tests.store import rows
from tests.store.stage import ACCOUNT, CLIENT, OTHER, OWNER, REF, Stage

pytestmark = [
    pytest.mark.parametrize("backend", ["ministack"], indirect=True),
    pytest.mark.parametrize("round_", range(3)),
]
LOST = (MovedError, StoreError)
"""Refused, or met conflicts until its tries were used up: either way it did nothing."""


def another(stage: Stage, seed: str) -> Stage:
    """A second worker on the same table, at the same instant."""
    worker = Stage(stage.stand_in, DynamoTable(stage.stand_in.client, stage.stand_in.name), seed)
    worker.clock.move(to=stage.now)
    return worker


def at_once(acts: Sequence[Callable[[], object]]) -> list[bool]:
    """All of them at the same moment: who won. A claim that got nothing answers with an empty list."""
    gate = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> bool:
        gate.wait()
        try:
            return act() != []
        except LOST:
            return False

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


@pytest.mark.rule("S-5", "F-18", "M-33")
def test_of_a_hundred_begins_with_one_state_one_begins(stage: Stage, round_: int) -> None:
    """A callback that arrives a hundred times sends its code once."""
    stage.started()
    authorization, state = stage.visited()
    owner, connection, barrier = stage.reads.fence(REF, CLIENT)
    assert owner is not None
    assert connection is not None
    resolved = stage.reads.resolved(OWNER, barrier)
    acts = [
        partial(
            another(stage, f"w{number}").connects.begin,
            authorization,
            state,
            connection,
            owner,
            resolved,
            stage.an_exchange(number=number),
        )
        for number in range(100)
    ]

    won = at_once(acts)

    assert won.count(True) == 1
    assert [each.id for each in stage.reads.exchanges(REF)] == [f"x-{won.index(True)}"]
    assert stage.barrier().in_flight == f"google#x-{won.index(True)}"


@pytest.mark.rule("F-49")
def test_of_two_claims_one_has_it(stage: Stage, round_: int) -> None:
    """Two runs of the sweep never send one token at the same time."""
    queued = stage.queued()
    workers = [another(stage, f"w{number}") for number in range(4)]

    won = at_once([partial(worker.revocations.claim, [queued], stage.now) for worker in workers])

    assert won.count(True) == 1
    assert stage.revocation().claims == 1


def test_of_two_wide_claims_one_has_it(stage: Stage, round_: int) -> None:
    """The account is shut by the one that won."""
    queued = stage.queued(reach=Reach.AUTHORIZATION)
    account = stage.account()
    workers = [another(stage, f"w{number}") for number in range(4)]

    won = at_once(
        [partial(worker.revocations.claim_account_wide, queued, ACCOUNT, account, stage.now) for worker in workers]
    )

    assert won.count(True) == 1
    assert (stage.revocation().claims, stage.account().killed_by) == (1, "r-1")


@pytest.mark.rule("I-3")
def test_of_two_installs_of_one_grant_one_is_done(stage: Stage, round_: int) -> None:
    """Callback and confirmation, or two confirmations: one live grant, counted once."""
    stage.held()
    acts = [install_of(another(stage, f"w{number}")) for number in range(3)]

    won = at_once(acts)

    assert won.count(True) == 1
    assert stage.account().live == 1
    assert stage.exchange().outcome is ExchangeOutcome.INSTALLED
    assert stage.told() == ["connection.ready"]


def install_of(worker: Stage, number: int = 1) -> Callable[[], object]:
    """The decision of one worker to install the held grant."""
    exchange = worker.exchange(f"x-{number}")
    exchange = replace(exchange, subject=ACCOUNT, account=ACCOUNT)
    owner, connection, barrier = worker.reads.fence(REF, CLIENT)
    assert owner is not None
    assert connection is not None
    assert barrier is not None
    account = worker.reads.account(CLIENT, ACCOUNT) or Account()
    after = ready(connection, exchange, ("main",))
    grants = (worker.a_grant(exchange),)
    return partial(worker.connects.install, exchange, connection, after, owner, barrier, grants, account, worker.now)


@pytest.mark.rule("I-3", "F-64")
def test_an_install_and_its_release_never_both_happen(stage: Stage, round_: int) -> None:
    """The grant is live or due for revocation, never both and never neither (I-3)."""
    held = stage.held()
    connection = stage.connection()
    acts: list[Callable[[], object]] = [
        install_of(another(stage, "w1")),
        partial(another(stage, "w2").connects.release, held, connection, stage.now, "denied"),
    ]

    installed, released = at_once(acts)

    assert installed != released
    assert (stage.reads.grant(REF, "main") is not None) == installed
    assert (stage.revocations.read(["r-1"]) != []) == released


@pytest.mark.rule("RB-22", "F-60")
def test_an_install_and_a_wide_claim_of_its_account_never_both_happen(stage: Stage, round_: int) -> None:
    """A grant that a call might end on its way is not installed, and an installed one not ended (custody rule 10)."""
    stage.installed(OTHER, number=7, reach=Reach.AUTHORIZATION)
    stage.stopped(OTHER)
    queued = stage.revocation("r-7")
    stage.stand_in.alter(rows.BARRIER, remove=("owed", "purges"))
    stage.held()
    account = stage.account()
    acts: list[Callable[[], object]] = [
        install_of(another(stage, "w1")),
        partial(another(stage, "w2").revocations.claim_account_wide, queued, ACCOUNT, account, stage.now),
    ]

    installed, claimed = at_once(acts)

    assert installed != claimed
    assert (stage.account().live == 1) == installed
    assert (stage.account().killed_by == "r-7") == claimed


@pytest.mark.rule("I-6", "F-40")
def test_of_two_refreshes_one_is_recorded(stage: Stage, round_: int) -> None:
    """One lease, one attempt: nobody else sends."""
    stage.installed()
    grant = stage.grant()
    workers = [another(stage, f"w{number}") for number in range(4)]

    won = at_once(
        [partial(worker.tokens.record, grant, f"attempt-{number}", stage.now) for number, worker in enumerate(workers)]
    )

    assert won.count(True) == 1
    assert stage.grant().attempts == {f"attempt-{won.index(True)}"}


@pytest.mark.rule("I-5", "D-3")
def test_a_stop_and_a_save_leave_the_token_in_one_place(stage: Stage, round_: int) -> None:
    """The save is first and the stop decides again, or the stop is first and expects the successor (I-5)."""
    before = rows.leased(stage)
    saver, stopper = another(stage, "w1"), another(stage, "w2")
    decision = stopper.a_stop()

    saved, stopped = at_once(
        [
            partial(saver.tokens.save, before, rows.saved(stage, before), "attempt-1"),
            partial(stopper.stops.stop, decision),
        ]
    )

    assert saved != stopped
    if saved:
        assert (stage.grant().tv, stage.connection().state) == (2, ConnectionState.READY)
    else:
        assert stage.reads.grant(REF, "main") is None
        assert stage.revocation().expected == {"attempt-1"}


def test_of_two_stops_one_is_done(stage: Stage, round_: int) -> None:
    """One intent, one revocation, one event."""
    stage.installed()
    workers = [another(stage, f"w{number}") for number in range(4)]
    decisions = [worker.a_stop() for worker in workers]

    won = at_once([partial(worker.stops.stop, decision) for worker, decision in zip(workers, decisions, strict=True)])

    assert won.count(True) == 1
    assert stage.told() == ["connection.ready", "connection.revoking"]
    assert stage.account().live == 0


def test_of_two_finishing_steps_one_is_done(stage: Stage, round_: int) -> None:
    """One receipt, one event, whoever comes first."""
    settled = stage.settled()
    workers = [another(stage, f"w{number}") for number in range(4)]

    won = at_once(
        [partial(worker.revocations.finish, settled, None, stage.now, has_barrier=True) for worker in workers]
    )

    assert won.count(True) == 1
    assert stage.told().count("revocation.confirmed") == 1
    assert len(stage.receipts()) == 1


@pytest.mark.rule("D-22")
def test_orphans_that_come_at_once_are_all_in_the_barrier(stage: Stage, round_: int) -> None:
    """Writes that must not lose are not refused by each other (custody rule 8)."""
    before = rows.leased(stage)
    stage.stopped()
    acts = []
    for number in range(24):
        worker = another(stage, f"w{number}")
        orphan = rows.orphan_of(stage, before, f"orphan-{number}")
        acts.append(
            partial(
                worker.tokens.queue_orphan,
                before,
                f"orphan-{number}",
                orphan,
                found=None,
                stopped=None,
                intent_generation=1,
            )
        )

    won = at_once(acts)

    assert all(won)
    assert stage.barrier().owed == {"r-1", *(f"orphan-{number}" for number in range(24))}
    assert stage.intent().rids == stage.barrier().owed
    assert all(each.state is RevocationState.PENDING for each in stage.revocations.read(sorted(stage.barrier().owed)))
