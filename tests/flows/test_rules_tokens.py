"""Rules of exchanges, refreshes and what is stored of them, by number."""

from collections.abc import Callable
from typing import Any

import pytest

from quitclaim.domain.limits import (
    GUARD_MS,
    KEY_LEAD_MS,
    KEY_LIFE_MS,
    MINUTE,
    REFRESH_LEASE_MS,
    SOFT_MARGIN_MS,
    WINDOW_MS,
)
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.store.commit import TRIES
from tests.fakes.provider import answers
from tests.fakes.tables import ambiguous
from tests.flows.test_maintain import Upkeep
from tests.flows.world import GOOGLE, World
from tests.proof.ledger import Kind, Refreshing
from tests.proof.recovery import to_rest
from tests.proof.scripts import (
    HOUR_MS,
    OTHER,
    connected,
    handler_disconnect,
    handler_reconcile,
    handler_sweep,
    handler_token,
)
from tests.proof.world import PatientDeadline, Ports
from tests.proof.world import World as Simulated

PROVIDER_MS = 400
READS = frozenset({"get", "batch_get", "query"})

# --- exchanges -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-58", "F-67", "I-2", "D-38")
def test_a_code_is_not_sent_once_its_window_is_over(world: World) -> None:
    """A worker that was frozen between the record and the send sends nothing: the exchange ends, and owes nothing."""
    callback = world.callback()

    def frozen(apply: Callable[[], object]) -> object:
        done = apply()
        world.clock.move(ms=WINDOW_MS)
        return done

    world.table.faults = [frozen]

    with pytest.raises(CallbackFailedError) as failed:
        world.come_back(callback)

    assert failed.value.cause.code == "OUT_OF_TIME"
    assert world.server.asked == []
    assert (world.exchange().outcome, world.notice()) == ("ended", "not_needed")


# --- refreshes -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D-31", "F-45")
def test_a_lease_that_cannot_be_given_back_fails_nothing(world: World) -> None:
    """The provider is busy and the table does not take the lease back: the token still serves, and is the answer."""
    world.connect()
    world.clock.move(ms=3_600_000 - SOFT_MARGIN_MS + MINUTE)
    world.server.next("/token", answers(503))
    world.table.faults = [None, *[ambiguous] * TRIES]  # the record goes through

    token = world.token()

    assert token.token_version == 1
    assert [kind for kind, _ in world.faults] == ["clean-up"]
    world.faults.clear()
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert len(grant.attempts) == 1
    world.table.faults = []
    world.clock.move(ms=REFRESH_LEASE_MS + GUARD_MS)
    world.minutes_pass(1)
    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert grant.attempts == frozenset()
    assert world.connection().state == "ready"


@pytest.mark.rule("RB-12", "F-9")
def test_a_kept_refresh_token_is_sealed_anew_with_the_current_key(new_world: Callable[..., World]) -> None:
    """The refresh brought no new refresh token: the old one moves to the new key with the rest, and opens."""
    world = new_world(refresh__rotates="no", refresh__old_token_after_rotation="unknown")
    upkeep = Upkeep(world)
    world.connect()
    world.clock.move(ms=KEY_LIFE_MS)
    upkeep.run()
    world.clock.move(ms=KEY_LEAD_MS + GUARD_MS)
    upkeep.run()

    world.token()

    grant = world.reads.grant(GOOGLE, "main")
    assert grant is not None
    assert {sealed[2 : 2 + sealed[1]] for sealed in (grant.use, grant.revoke)} == {b"use-2", b"revoke-2"}
    world.clock.move(minutes=70)
    assert world.token().token_version == 3
    world.disconnect()
    world.sweep()
    assert world.server.live() == []


@pytest.mark.rule("RB-03")
def test_without_an_expiry_the_default_of_the_provider_counts(world: World) -> None:
    """A missing lifetime is not "never": the token is refreshed when the provider's own default is over."""
    world.server.lifetime_s = None
    world.connect()
    assert world.token().token_version == 1

    world.clock.move(minutes=70)

    assert world.token().token_version == 2


@pytest.mark.rule("G5", "RB-40", "RB-42", "F-41")
def test_two_hundred_callers_of_an_expired_token_ask_once() -> None:
    """
    The provider takes 400 ms. Exactly one request; every loser has the new token at most 250 ms after it came, and read
    eight times at most.
    """
    world = Simulated(Kind(Refreshing.ROTATING))
    connected(world)
    world.now += HOUR_MS
    world.deadline_of = PatientDeadline
    ports: dict[str, Ports] = {}

    def caller(mine: Ports) -> Any:
        ports[mine.process.name] = mine
        return handler_token()(mine)

    callers = [world.process(f"caller-{number}", caller) for number in range(200)]
    for each in callers:
        each.begin()
    winner, losers = callers[0], callers[1:]
    for each in losers[::2]:
        each.advance()  # these have read the expired token too, and will try for the lease
    while winner.pending is None or winner.pending.what != "answer to refresh":
        winner.advance()
    for each in losers:
        while not each.is_done and ports[each.name].clock.paused < PROVIDER_MS:
            each.advance()
    assert not any(each.is_done for each in losers)
    winner.run()
    for each in losers:
        each.run()

    assert sum("refresh" in each.history for each in callers) == 1
    assert {each.result.token_version for each in callers} == {2}
    assert max(ports[each.name].clock.paused for each in losers) <= PROVIDER_MS + 250
    assert max(sum(call in READS for call in each.history) for each in losers) <= 8


# --- what is stored and told -----------------------------------------------------------------------------------------


def a_whole_life(world: Simulated) -> None:
    """Connected twice over, refreshed, disconnected, and come to rest."""
    connected(world)
    connected(world, OTHER, "bob")
    world.now += HOUR_MS
    world.run(handler_token())
    world.run(handler_token())
    world.run(handler_disconnect())
    world.run(handler_sweep)
    world.run(handler_reconcile)
    assert to_rest(world) == []


@pytest.mark.rule("I-18", "U-1")
def test_a_write_that_changes_something_raises_the_version_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item of every commit of a life: created at 1, and one on with each change."""
    world = Simulated(Kind(Refreshing.ROTATING))
    steps: list[tuple[str, int, int]] = []
    judged = world.committed

    def committed(before: Any, process: Any) -> None:
        for key, old in before.items():
            new = world.table.item(key)
            if new is not None and new != old:
                steps.append((str(new["ty"]), 0 if old is None else int(old["v"]), int(new["v"])))
        judged(before, process)

    monkeypatch.setattr(world, "committed", committed)
    a_whole_life(world)

    assert {"connection", "grant", "revocation", "exchange", "barrier", "intent"} <= {kind for kind, _, _ in steps}
    assert [step for step in steps if step[2] != step[1] + 1] == []
    assert world.seen.violations == []


@pytest.mark.rule("U-24", "I-17")
def test_an_event_holds_ids_of_ours_and_no_secret_and_no_account() -> None:
    """Tokens and the provider's account are in none of them."""
    world = Simulated()
    a_whole_life(world)

    bodies = [item["body"] for item in world.table.items() if item["ty"] == "event"]

    assert len(bodies) > 5
    known = {
        "connection_id",
        "generation",
        "reason",
        "outcome",
        "tenant",
        "owner",
        "rid",
        "exchange",
        "state",
        "closed_as",
    }
    assert set().union(*bodies) <= known
    assert not [body for body in bodies if "rt-" in str(body) or "at-" in str(body) or "alice" in str(body)]
