"""The purge hook: a stop is not done before the app says that its own data is gone."""

import pytest

from quitclaim.domain.errors import NeedsReconnectError, OwnerPurgingError, StoreError
from quitclaim.domain.hooks import HookKind, HookOutcome
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import FORWARD_MS, HOOK_CALL_MS, HOOK_SHARE
from quitclaim.flows.reconcile import reconcile
from tests.fakes.clock import Budget
from tests.fakes.provider import answers
from tests.flows.world import GOOGLE, OTHER, RECONCILE_MS


def purges(world, *answers):
    """The app has a purge hook, which answers so, and then that it is done."""
    left = list(answers)
    world.hooks.answers[HookKind.PURGE] = lambda call: left.pop(0) if left else HookOutcome.DONE


@pytest.mark.rule("F-29")
def test_a_stop_is_purged_when_the_app_says_so(world):
    """Asked with the connection, its generation and why; once."""
    purges(world)
    world.connect()
    world.disconnect()

    world.reconcile()

    (call,) = world.hooks.asked
    assert call.data == {
        "tenant": GOOGLE.tenant,
        "owner": GOOGLE.owner,
        "connection_id": GOOGLE.connection,
        "generation": 1,
        "reason": "disconnect",
    }
    assert world.reads.intents(GOOGLE)[0].purge == "done"
    assert world.events("purge.completed") == ["purge.completed"]


@pytest.mark.rule("I-15")
@pytest.mark.parametrize("answer", [HookOutcome.LATER, HookOutcome.FAILED, HookOutcome.UNREACHED])
def test_until_then_it_is_pending_and_asked_again_on_the_ladder(world, answer):
    """With the same id; meanwhile the revocation goes on, nothing is called revoked, and no start gets past."""
    purges(world, answer, answer)
    world.connect()
    world.disconnect()
    world.sweep()
    world.reconcile()

    assert world.reads.intents(GOOGLE)[0].purge == "pending"
    assert [notice.purge_pending for notice in world.status().notices] == [True]
    with pytest.raises(OwnerPurgingError):
        world.start(OTHER)

    world.minutes_pass(4)

    assert world.connection().state == "revoked"
    assert len(world.hooks.asked) == 3
    assert len({call.id for call in world.hooks.asked}) == 1
    assert world.hooks_failed == ([] if answer is HookOutcome.LATER else [answer.value] * 2)
    assert world.start(OTHER).ticket is not None


def test_every_stop_has_an_id_of_its_own(world):
    """The next life's purge is another one."""
    purges(world)
    world.connect()
    world.disconnect()
    world.minutes_pass(2)
    world.connect(again=True)
    world.disconnect()
    world.minutes_pass(2)

    assert len(world.hooks.asked) == len({call.id for call in world.hooks.asked}) == 2
    assert [call.data["generation"] for call in world.hooks.asked] == [1, 3]


def test_a_loss_asks_for_nothing(world):
    """The app's data is kept when the provider ends a grant (decision 0015)."""
    purges(world)
    world.connect()
    world.clock.move(minutes=61)
    world.server.next("/token", answers(400, {"error": "invalid_grant"}))
    with pytest.raises(NeedsReconnectError):
        world.token()
    world.minutes_pass(2)

    assert world.hooks.asked == []


def test_one_that_raises_keeps_no_other_stop_back(world):
    """The configuration cannot be read: these stops are told and stay due, and the rest of the run goes on."""

    def away(kind):
        raise StoreError

    world.connect()
    world.disconnect()
    world.hooks.has = away
    world.clock.move(minutes=2)

    run = reconcile(Budget(54_000), world.reconciling)

    assert run.failed == {"stop": 1}
    assert run.done["publish"] == 2


@pytest.mark.rule("I-16")
def test_a_slow_hook_leaves_the_rest_of_a_run_its_time(world):
    """
    However many purges the app answers with "later" after as long as it may take, the rest of each run goes on, and
    each of them has its turn.
    """

    def slow(call):
        world.clock.move(ms=HOOK_CALL_MS - 100)
        return HookOutcome.LATER

    world.hooks.answers[HookKind.PURGE] = slow
    for number in range(12):
        ref = ConnectionRef("acme-app", f"owner-{number}", "google")
        world.connect(ref, f"account-{number}")
        world.disconnect(ref)
    world.connect()
    world.accept()
    world.clock.move(ms=FORWARD_MS)

    runs = []
    for _ in range(8):
        runs.append(reconcile(Budget(RECONCILE_MS, world.clock), world.reconciling))
        world.clock.move(minutes=1)

    assert runs[0].done.get("forward") == 1, "at the first run"
    assert len(world.hooks.asked) <= 8 * (RECONCILE_MS // HOOK_SHARE // HOOK_CALL_MS + 1)
    assert len({call.id for call in world.hooks.asked}) == 12


def test_what_a_stop_does_by_itself_waits_for_no_hook(world):
    """One that the app is not asked about in this run is derived and stays due; the next run asks about it first."""
    world.hooks.answers[HookKind.PURGE] = lambda call: world.clock.move(ms=RECONCILE_MS // 2) or HookOutcome.LATER
    others = ConnectionRef("acme-app", "bob", "google")
    for ref in (GOOGLE, others):
        world.connect(ref, ref.owner)
        world.disconnect(ref)

    reconcile(Budget(RECONCILE_MS, world.clock), world.reconciling)

    assert len(world.hooks.asked) == 1
    intents = [world.reads.intents(ref)[0] for ref in (GOOGLE, others)]
    assert [intent.comp_derived for intent in intents] == [True, True]
    assert sorted(intent.tries for intent in intents) == [0, 1]
    reconcile(Budget(RECONCILE_MS, world.clock), world.reconciling)
    assert len({call.id for call in world.hooks.asked}) == 2
