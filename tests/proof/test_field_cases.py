"""
Field cases of revocation, of races around disconnect and reconnect, and of refreshes (docs/field-cases.md): each once,
as it was reported, on the real flows, judged at the provider's ledger. The kinds of fault behind them are searched
exhaustively beside this file.
"""

from contextlib import suppress
from typing import Any

import pytest

from quitclaim.domain.errors import (
    ConnectBlockedError,
    GrantNotInstalledError,
    NeedsReconnectError,
    QuitclaimError,
    RefreshInProgressError,
    StateConflictError,
)
from quitclaim.domain.limits import DEADLINE_MS, GUARD_MS, REFRESH_LEASE_MS
from quitclaim.domain.revocations import Reach, material_of
from quitclaim.domain.secret import Secret
from quitclaim.flows.status import status
from quitclaim.flows.tokens import hand_out
from tests.proof.judge import faults_at_rest, faults_of_state
from tests.proof.ledger import Fault, Kind, Ledger, Refreshing
from tests.proof.recovery import to_rest
from tests.proof.scripts import (
    HOUR_MS,
    OTHER,
    REF,
    SECOND,
    Handler,
    begin,
    connected,
    handler_acknowledge,
    handler_callback,
    handler_disconnect,
    handler_reconcile,
    handler_start,
    handler_sweep,
    handler_token,
)
from tests.proof.situations import TENANT, handler_sweep_of
from tests.proof.stepping import Process, explore
from tests.proof.world import Ports, World

WIDE = Kind(Refreshing.STATIC, Reach.AUTHORIZATION)


def alive(world: World) -> list[str]:
    """The living tokens, by the provider's own word."""
    return [token.name for token in world.ledger.alive()]


def comes_to_rest(world: World) -> None:
    """The schedules run until nothing is due; nothing may be wrong then."""
    assert to_rest(world) + faults_at_rest(world) == []


def stopped_before(world: World, what: str, handler: Handler) -> Process:
    """A handler, on its way, about to do *what*."""
    process = world.process("late", handler)
    process.begin()
    while process.pending is not None and what not in process.pending.what:
        process.advance()
    assert process.pending is not None, f"it never came to {what}"
    return process


def let_on(process: Process) -> None:
    """Let it run to its end."""
    while not process.is_done:
        process.advance()


def refused(world: World, handler: Handler) -> QuitclaimError:
    """What the handler is refused with."""
    with pytest.raises(QuitclaimError) as refusal:
        world.run(handler)
    return refusal.value


def events(world: World, kind: str) -> int:
    """How many events of a kind the outbox holds."""
    return sum(item["ty"] == "event" and item["kind"] == kind for item in world.table.items())


# --- revocation
# --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-21", "U-15")
@pytest.mark.parametrize("reach", [Reach.AUTHORIZATION, Reach.ACCOUNT])
def test_rb_21_disconnecting_one_connection_leaves_the_others_of_its_account_alive(reach):
    """Where a revocation ends every grant of the account, the first stop is released and the last one revokes."""
    world = World(Kind(Refreshing.STATIC, reach))
    connected(world)
    connected(world, OTHER)

    world.run(handler_disconnect())
    world.run(handler_sweep)
    after_first = alive(world)
    world.run(handler_disconnect(OTHER))
    comes_to_rest(world)

    assert after_first == ["rt-1", "rt-2"]
    assert alive(world) == []
    assert events(world, "revocation.released_shared") == 1


@pytest.mark.rule("RB-22", "F-18", "I-9")
def test_rb_22_a_new_connection_is_not_killed_by_the_revocation_of_the_old_one():
    """While the old grant's revocation is owed no new one begins; after it, the new one lives."""
    world = World(WIDE)
    connected(world)
    world.run(handler_disconnect())

    refusal = refused(world, handler_start(SECOND))
    comes_to_rest(world)
    world.now += 1
    world.run(handler_callback(begin(world, again=True)))
    comes_to_rest(world)

    assert isinstance(refusal, ConnectBlockedError)
    assert alive(world) == ["rt-2"]


@pytest.mark.rule("RB-22")
def test_rb_22_a_grant_that_arrives_while_the_account_is_being_revoked_is_not_installed():
    """
    Another owner's callback on the same account, begun before the wide revocation was claimed, is told to start again.
    """
    world = World(WIDE)
    connected(world)
    brought = begin(world, OTHER)
    world.run(handler_disconnect())
    callback = stopped_before(world, "answer to exchange", handler_callback(brought))
    world.now += 1

    world.run(handler_sweep)
    let_on(callback)
    comes_to_rest(world)

    assert isinstance(callback.error, GrantNotInstalledError)
    assert alive(world) == []


@pytest.mark.rule("RB-22")
@pytest.mark.parametrize("reach", [Reach.AUTHORIZATION, Reach.ACCOUNT])
def test_rb_22_a_settled_revocation_does_not_open_the_account_to_another_one_on_its_way(reach):
    """Two sharers stopped; one revocation is settled while the other's request, within its lease, is on its way."""
    world = World(Kind(Refreshing.STATIC, reach))
    connected(world)
    connected(world, OTHER)
    world.run(handler_disconnect())
    world.run(handler_disconnect(OTHER))
    brought = begin(world, TENANT)
    on_its_way = stopped_before(world, "revoke", handler_sweep_of(REF))
    world.now += 1_000
    world.run(handler_sweep_of(OTHER))
    world.now += 1_000

    refusal = refused(world, handler_callback(brought))
    let_on(on_its_way)
    comes_to_rest(world)

    assert isinstance(refusal, GrantNotInstalledError)
    assert faults_of_state(world) == []


@pytest.mark.parametrize("reach", [Reach.AUTHORIZATION, Reach.ACCOUNT])
def test_of_two_last_sharers_that_stop_at_once_exactly_one_revokes(monkeypatch: pytest.MonkeyPatch, reach: Reach):
    """
    In every order of the two stops, and then of the two revocations: one request ends the grants of both, the other
    finds nothing alive, and both are told as confirmed (docs/decisions/0030).
    """
    world = World(Kind(Refreshing.STATIC, reach))
    connected(world)
    connected(world, OTHER)
    saved, ended = world.save(), []
    revoke = Ledger.revoke
    monkeypatch.setattr(Ledger, "revoke", lambda ledger, name: ended.append(revoke(ledger, name)) or ended[-1])
    stops = (handler_disconnect(), handler_disconnect(OTHER))
    sweeps = (handler_sweep_of(REF), handler_sweep_of(OTHER))
    states: set[str] = set()

    def both(handlers: tuple[Handler, Handler], saved: Any) -> list[Process]:
        world.restore(saved)
        ended.clear()
        return [world.process(f"p{at}", handler) for at, handler in enumerate(handlers)]

    def after_the_stops(_: list[Process], __: list[int]) -> None:
        stopped = world.save()
        explore(lambda: both(sweeps, stopped), after_the_sweeps)

    def after_the_sweeps(_: list[Process], __: list[int]) -> None:
        world.run(handler_sweep)  # for the one whose claim met the other's
        states.update(item["state"] for item in world.table.items() if item["ty"] == "revocation")
        assert sorted(map(len, ended)) == [0, 2]
        assert alive(world) == []

    runs, is_all = explore(lambda: both(stops, saved), after_the_stops)

    assert is_all
    assert runs > 1
    assert states == {"confirmed"}


@pytest.mark.rule("RB-23", "RB-24", "U-9")
def test_rb_23_the_refresh_token_goes_first_and_the_access_token_is_not_forgotten():
    """Both kinds are queued where the call ends no more than what it names; a missing kind is left out."""
    access, refresh = Secret("a"), Secret("r")

    both = material_of("either", Reach.TOKEN, access, refresh)

    assert [each.kind for each in both] == ["refresh_token", "access_token"]
    assert [each.kind for each in material_of("either", Reach.FAMILY, access, refresh)] == ["refresh_token"]
    assert [each.kind for each in material_of("either", Reach.TOKEN, access, None)] == ["access_token"]


@pytest.mark.rule("RB-28c")
def test_rb_28c_one_token_for_several_connections_is_counted_by_account():
    """
    A provider that shares one grant over connections is catalogued with its account as the reach: the count is the
    reference count.
    """
    world = World(WIDE)
    connected(world)
    connected(world, OTHER)

    world.run(handler_disconnect())
    comes_to_rest(world)

    (account,) = [item for item in world.table.items() if item["ty"] == "account"]
    assert (account["live"], account["parked"]) == (1, 1)
    assert len(alive(world)) == 2


@pytest.mark.rule("RB-30", "F-21", "U-8", "D-9", "F-38")
def test_rb_30_the_duty_to_remove_by_hand_outlives_the_disconnect():
    """A provider without revocation: the owner sees a notice with the provider's page until it is acknowledged."""
    world = World(Kind(revocable=False))
    connected(world)
    world.run(handler_disconnect())
    comes_to_rest(world)

    def seen(ports: Ports):
        return status(REF.of_owner, reads=ports.reads, clients=ports.clients, clock=ports.clock).notices

    (before,) = world.run(seen)
    world.run(handler_acknowledge())
    (after,) = world.run(seen)

    assert before.level.label == "permission_removal_required"
    assert before.manual_page == "https://provider.example/apps"
    assert after.level.label == "acknowledged"


# --- races around disconnect and reconnect
# -----------------------------------------------------------------------------


@pytest.mark.rule("RB-31", "RB-37", "F-43", "D-3", "I-5", "I-6")
@pytest.mark.parametrize("refreshing", [Refreshing.ROTATING, Refreshing.REUSE, Refreshing.GRACE])
def test_rb_31_a_refresh_answered_after_a_disconnect_is_not_saved_and_not_handed_out(refreshing):
    """The rotated token goes to the revoke queue; the app gets a refusal."""
    world = World(Kind(refreshing))
    connected(world)
    world.now += HOUR_MS
    refresh = stopped_before(world, "answer to refresh", handler_token())

    world.run(handler_disconnect())
    let_on(refresh)
    comes_to_rest(world)

    assert isinstance(refresh.error, StateConflictError)
    assert alive(world) == []


@pytest.mark.rule("RB-32", "F-19")
def test_rb_32_the_generation_and_the_grant_go_in_one_write():
    """No refresh can begin between a stop's new generation and the end of its grant: there is no between."""
    world = World()
    connected(world)

    world.run(handler_disconnect())

    assert not [item for item in world.table.items() if item["ty"] == "grant"]
    assert isinstance(refused(world, handler_token()), StateConflictError)


@pytest.mark.rule("RB-33", "F-65", "D-2")
def test_rb_33_a_grant_that_comes_back_after_a_disconnect_is_revoked():
    """The callback has the state, the user disconnects, and only then the code is exchanged."""
    world = World()
    callback = stopped_before(world, "answer to exchange", handler_callback(begin(world)))

    world.run(handler_disconnect())
    let_on(callback)
    comes_to_rest(world)

    assert isinstance(callback.error, GrantNotInstalledError)
    assert alive(world) == []


@pytest.mark.rule("RB-34", "F-63", "F-64")
@pytest.mark.parametrize("dies_at", ["transact update X+put Q", "transact update X+delete Q"])
def test_rb_34_a_grant_whose_writes_fail_is_not_orphaned(dies_at):
    """The worker dies before the hold, or before the install: a notice, or a revocation."""
    world = World()
    callback = stopped_before(world, dies_at, handler_callback(begin(world)))
    callback.crash()

    assert faults_of_state(world) == []
    comes_to_rest(world)

    (exchange,) = [item for item in world.table.items() if item["ty"] == "exchange"]
    assert bool(alive(world)) == (exchange["outcome"] == "unconfirmed")


@pytest.mark.rule("RB-35", "U-6")
def test_rb_35_a_stale_grant_never_replaces_a_newer_one():
    """The first attempt is held and its worker dead; a second connects; what is left of the first is revoked."""
    world = World()
    first = stopped_before(world, "transact update X+delete Q", handler_callback(begin(world)))
    first.crash()
    comes_to_rest(world)

    world.run(handler_callback(begin(world, again=True)))
    comes_to_rest(world)

    assert alive(world) == ["rt-2"]


@pytest.mark.rule("RB-39")
def test_rb_39_a_superseded_grant_is_revoked():
    """A start while a held grant waits for its owner ends the wait, and the grant."""
    world = World(confirmation="owner")
    world.run(handler_callback(begin(world)))

    world.run(handler_start())
    world.run(handler_sweep)

    assert alive(world) == []


# --- refresh concurrency and lost answers
# ------------------------------------------------------------------------------


@pytest.mark.rule("RB-40", "RB-42", "F-40", "I-6", "S-22")
@pytest.mark.parametrize("workers", [2, 20])
@pytest.mark.parametrize("refreshing", [Refreshing.ROTATING, Refreshing.REUSE])
def test_rb_40_many_workers_refresh_once(workers, refreshing):
    """
    All want a token of an expired grant; one asks the provider, the others wait or are told when to come back. Nothing
    is presented twice, so nobody is taken for a thief where that ends the family.
    """
    world = World(Kind(refreshing))
    connected(world)
    world.now += HOUR_MS
    processes = [world.process(f"worker-{number}", handler_token()) for number in range(workers)]
    for process in processes:
        process.begin()
    while any(not process.is_done for process in processes):
        for process in processes:
            if not process.is_done:
                process.advance()

    refreshes = sum("refresh" in process.history for process in processes)
    answers = [process.result for process in processes if process.result is not None]
    assert refreshes == 1
    assert {answer.token_version for answer in answers} == {2}
    assert all(isinstance(process.error, RefreshInProgressError | type(None)) for process in processes)
    assert world.run(handler_token()).token_version == 2
    assert len(world.ledger.alive()) == 1


@pytest.mark.rule("RB-41", "F-45")
def test_rb_41_an_answer_after_the_lease_was_taken_over_replaces_nothing():
    """A frozen worker's answer comes when another holds the lease: its token is accounted for, the newer one stays."""
    world = World(Kind(Refreshing.GRACE))
    connected(world)
    world.now += HOUR_MS
    frozen = stopped_before(world, "answer to refresh", handler_token())
    world.now += REFRESH_LEASE_MS + GUARD_MS

    newer = world.run(handler_token())
    let_on(frozen)
    again = world.run(handler_token())

    assert again.token_version == newer.token_version
    assert again.access_token == newer.access_token
    assert faults_of_state(world) == []


@pytest.mark.rule("RB-43", "D-1", "F-44")
@pytest.mark.parametrize("refreshing", [Refreshing.ROTATING, Refreshing.REUSE])
def test_rb_43_an_answer_that_was_lost_is_told_and_not_silent(refreshing):
    """
    The provider rotated and its answer was lost: one replay, its refusal ends the grant, and the owner is told what may
    live on.
    """
    world = World(Kind(refreshing))
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.LOST]
    refused(world, handler_token())
    world.now += REFRESH_LEASE_MS + GUARD_MS

    refusal = refused(world, handler_token())
    comes_to_rest(world)

    assert isinstance(refusal, NeedsReconnectError)
    states = {item["state"] for item in world.table.items() if item["ty"] == "revocation"}
    assert states == ({"confirmed"} if refreshing is Refreshing.REUSE else {"unconfirmed"})
    assert events(world, "connection.needs_reconnect") == 1


@pytest.mark.rule("RB-45", "U-24")
def test_rb_45_no_token_travels_in_an_event():
    """What is queued for the app names the connection and its generation; the token is fetched when it is used."""
    world = World()
    connected(world)
    world.now += HOUR_MS
    world.run(handler_token())
    world.run(handler_disconnect())
    comes_to_rest(world)

    bodies = [str(item["body"]) for item in world.table.items() if item["ty"] == "event"]

    assert bodies
    assert not [body for body in bodies if "rt-" in body or "at-" in body]


@pytest.mark.rule("RB-46")
def test_rb_46_a_dead_grant_is_asked_about_once():
    """Fifty token calls after the provider's refusal: one request, one event; a new grant clears it."""
    world = World()
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [Fault.REFUSED]
    processes = []

    for number in range(50):
        process = world.process(f"call-{number}", handler_token())
        process.begin()
        let_on(process)
        processes.append(process)
    comes_to_rest(world)

    assert sum("refresh" in process.history for process in processes) == 1
    assert all(isinstance(process.error, NeedsReconnectError) for process in processes)
    assert events(world, "connection.needs_reconnect") == 1
    world.run(handler_callback(begin(world, again=True)))
    assert world.run(handler_token()).token_version == 1


@pytest.mark.rule("RB-47")
@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.BUSY, Fault.NOT_ACTED, Fault.NONE])
def test_rb_47_a_refresh_never_moves_a_healthy_connection_backwards(fault):
    """Whatever a refresh meets short of a refusal, the connection stays ready."""
    world = World(Kind(Refreshing.STATIC))
    connected(world)
    world.now += HOUR_MS
    world.faults["refresh"] = [fault]

    with suppress(QuitclaimError):
        world.run(lambda ports: hand_out(REF, "main", 0, ports.deadline, ports.handing_out))

    (connection,) = [item for item in world.table.items() if item["ty"] == "connection"]
    assert connection["state"] == "ready"


@pytest.mark.rule("F-48", "F-52", "I-8")
def test_an_expired_revocation_is_a_notice_and_never_confirmed():
    """The provider never says yes: at the deadline the material is erased and the owner is told."""
    world = World()
    connected(world)
    world.run(handler_disconnect())
    world.now += DEADLINE_MS + GUARD_MS

    world.run(handler_sweep)
    world.run(handler_reconcile)

    (item,) = [item for item in world.table.items() if item["ty"] == "revocation"]
    assert item["state"] == "expired"
    assert "material" not in item
    assert faults_at_rest(world) == []
