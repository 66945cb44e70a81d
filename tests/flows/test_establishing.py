"""
The hook `connection.establishing`: where nobody confirms, the app says whether what came back is to be a connection,
and whether it has admitted what was linked (M-44).
"""

from typing import Any

import pytest

from quitclaim.domain.connect import ConnectionState, ExchangeOutcome
from quitclaim.domain.errors import GrantNotInstalledError, SourceAdmissionNotCommittedError
from quitclaim.domain.hooks import HookKind, HookOutcome, HookWord
from quitclaim.domain.limits import HOOK_CALL_MS, SAVE_MS
from quitclaim.domain.sources import NOT_ADMITTED, SourceStatus
from quitclaim.flows.connect.callback import CallbackFailedError
from quitclaim.store.connect import ConnectStore
from tests.fakes.tables import StandIn, WorkerKilledError
from tests.flows.test_brokers import BrokerWorld
from tests.flows.world import GOOGLE, World

KIND = HookKind.CONNECTION_ESTABLISHING
NO = [HookOutcome.LATER, HookOutcome.FAILED, HookOutcome.UNREACHED]
NOT_REPORTED = [*NO, HookOutcome.DONE, HookWord.DEFERRED, HookWord.REMOVED]


@pytest.fixture
def broker_world(stand_in: StandIn) -> BrokerWorld:
    """A broker with sources; nobody confirms."""
    return BrokerWorld(stand_in)


def says(world: World, word: HookOutcome | HookWord) -> None:
    """The app has the hook, and answers like this."""
    world.hooks.answers[KIND] = lambda call: word


@pytest.mark.rule("M-44")
def test_the_app_is_asked_before_a_grant_is_installed(world: World) -> None:
    """While it is held, with when its exchange began; done is yes."""
    outcomes = []

    def answers(call: Any) -> HookOutcome:
        outcomes.append(world.exchange().outcome)
        return HookOutcome.DONE

    world.hooks.answers[KIND] = answers
    world.connect()

    (call,) = world.hooks.asked
    assert outcomes == [ExchangeOutcome.HELD]
    assert (call.kind, call.at) == (KIND, world.exchange().started)
    assert dict(call.data) == {
        "tenant": "acme-app",
        "owner": "ann",
        "connection_id": "google",
        "generation": 1,
        "provider": "acme",
    }
    assert world.connection().state is ConnectionState.READY


@pytest.mark.rule("M-44", "I-1")
@pytest.mark.parametrize("outcome", NO)
def test_a_grant_that_the_app_does_not_want_is_revoked(world: World, outcome: HookOutcome) -> None:
    """It is queued, the connection failed, and the browser is told so; nothing of it is left at the provider."""
    says(world, outcome)

    with pytest.raises(CallbackFailedError) as failed:
        world.connect()

    assert isinstance(failed.value.cause, GrantNotInstalledError)
    assert (world.connection().state, world.connection().failure) == (ConnectionState.FAILED, NOT_ADMITTED)
    assert world.unaccounted() == []
    assert world.hooks_failed == ([] if outcome is HookOutcome.LATER else [outcome.value])
    world.minutes_pass(2)
    assert world.server.live() == []


@pytest.mark.rule("M-44")
def test_where_the_owner_confirms_nobody_else_is_asked(stand_in: StandIn) -> None:
    """The owner's word is worth more than a hook's."""
    world = World(stand_in, "owner")
    says(world, HookOutcome.FAILED)

    world.connect()

    assert (world.connection().state, world.hooks.asked) == (ConnectionState.READY, [])


@pytest.mark.rule("M-44", "I-1")
def test_a_worker_that_dies_while_the_app_is_asked_leaves_the_grant_to_the_sweep(world: World) -> None:
    """It is held in the queue by then."""

    def dies(call: Any) -> HookOutcome:
        raise WorkerKilledError

    world.hooks.answers[KIND] = dies
    with pytest.raises(WorkerKilledError):
        world.connect()

    assert world.unaccounted() == []
    world.minutes_pass(3)
    assert world.server.live() == []
    assert world.connection().state is ConnectionState.FAILED


@pytest.mark.rule("M-44")
def test_a_stop_while_the_app_is_asked_wins(world: World) -> None:
    """What the app says then is about nothing."""

    def answers(call: Any) -> HookOutcome:
        world.disconnect()
        return HookOutcome.DONE

    world.hooks.answers[KIND] = answers

    with pytest.raises(CallbackFailedError):
        world.connect()

    assert world.unaccounted() == []
    world.minutes_pass(2)
    assert world.server.live() == []


@pytest.mark.rule("M-44")
def test_what_does_not_fit_into_the_time_is_not_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook never takes the time in which its answer is carried out; the grant is queued."""
    says(world, HookOutcome.DONE)
    brought = world.callback()
    real = ConnectStore.hold

    def slowly(self: Any, *given: Any, **more: Any) -> Any:
        world.clock.move(ms=60_000 - 2 * SAVE_MS)
        return real(self, *given, **more)

    monkeypatch.setattr(ConnectStore, "hold", slowly)

    with pytest.raises(CallbackFailedError):
        world.come_back(brought)

    assert world.hooks.asked == []
    assert world.unaccounted() == []
    assert HOOK_CALL_MS < 2 * SAVE_MS


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-44")
def test_the_admission_of_a_source_must_be_said(broker_world: BrokerWorld) -> None:
    """The account is installed once the app says so; the source is connected by the broker's events, as ever."""
    says(broker_world, HookWord.ADMITTED)

    assert broker_world.linked(source="oura").status == "ready"

    (call,) = broker_world.hooks.asked
    assert (call.data["source"], call.data["fence"]) == ("oura", 1)
    assert broker_world.source().status is SourceStatus.DISCONNECTED


@pytest.mark.rule("M-44", "I-1")
@pytest.mark.parametrize("word", NOT_REPORTED)
def test_without_it_the_account_is_removed(broker_world: BrokerWorld, word: HookOutcome | HookWord) -> None:
    """No answer or any other: 409, not retryable; the account at the broker is queued for its removal."""
    says(broker_world, word)

    with pytest.raises(CallbackFailedError) as failed:
        broker_world.linked(source="oura")

    assert isinstance(failed.value.cause, SourceAdmissionNotCommittedError)
    assert failed.value.cause.retryable is False
    assert broker_world.connection().failure == NOT_ADMITTED
    broker_world.minutes_pass(2)
    assert broker_world.broker.live() == []


@pytest.mark.rule("M-44", "M-48")
@pytest.mark.parametrize("word", NOT_REPORTED)
def test_behind_an_account_that_is_there_only_the_source_fails(broker_world, word) -> None:
    """The connection and its account are as they were; the same callback shows the same, and asks nobody again."""
    broker_world.linked()
    before = [broker_world.items(ty) for ty in ("connection", "grant", "revocation", "intent")]
    says(broker_world, word)
    visit = broker_world.visit(broker_world.start(source="oura"))

    for _ in range(2):
        with pytest.raises(CallbackFailedError) as failed:
            broker_world.returned(visit)
        assert isinstance(failed.value.cause, SourceAdmissionNotCommittedError)

    assert [broker_world.items(ty) for ty in ("connection", "grant", "revocation", "intent")] == before
    source = broker_world.source()
    assert (source.status, source.error, source.fence) == (SourceStatus.DISCONNECTED, NOT_ADMITTED, 2)
    assert broker_world.events("source.failed") == ["source.failed"]
    assert len(broker_world.hooks.asked) == 1
    assert broker_world.token().access_token.reveal() in broker_world.broker.live()


@pytest.mark.rule("M-44", "M-48")
def test_behind_an_account_that_is_there_an_admission_changes_nothing(broker_world: BrokerWorld) -> None:
    """Whether it is linked is for the broker's events to say; a callback that comes twice asks with the same id."""
    broker_world.linked()
    says(broker_world, HookWord.ADMITTED)
    visit = broker_world.visit(broker_world.start(source="oura"))
    before = broker_world.items("source")

    assert broker_world.returned(visit).status == broker_world.returned(visit).status == "ready"

    assert broker_world.items("source") == before
    assert len({call.id for call in broker_world.hooks.asked}) == 1
    assert broker_world.events("source.failed") == []


@pytest.mark.rule("M-12", "M-44")
def test_a_link_of_what_the_source_was_before_fails_nothing(broker_world: BrokerWorld) -> None:
    """It was asked for again since: the newer link is the one that counts."""
    broker_world.linked()
    says(broker_world, HookWord.REMOVED)
    visit = broker_world.visit(broker_world.start(source="oura"))
    broker_world.clock.move(minutes=1)
    broker_world.start(source="oura", return_to="https://app.example.com/other")

    assert broker_world.returned(visit).status == "ready"

    assert (broker_world.source().error, broker_world.hooks.asked) == (None, [])


@pytest.mark.rule("M-12", "M-44")
def test_asked_for_again_while_the_app_is_asked_the_source_is_left_alone(broker_world: BrokerWorld) -> None:
    """The caller is told; what the app said was about what it was."""
    broker_world.linked()
    visit = broker_world.visit(broker_world.start(source="oura"))

    def answers(call: Any) -> HookOutcome:
        broker_world.start(source="oura", return_to="https://app.example.com/other")
        return HookOutcome.FAILED

    broker_world.hooks.answers[KIND] = answers

    with pytest.raises(CallbackFailedError):
        broker_world.returned(visit)

    assert (broker_world.source().error, broker_world.source().fence) == (None, 2)
    assert broker_world.reads.source(GOOGLE, "oura") is not None
