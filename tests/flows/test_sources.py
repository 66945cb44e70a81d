"""
Events that name a source behind a broker's account: the source is connected first, by the app's word or the broker's,
or the event waits; a source that ends or fails leaves its connection as it is.
"""

from typing import Any

import pytest

from quitclaim.domain.connect import ConnectionState
from quitclaim.domain.errors import MovedError, StoreError, WebhookSourceNotReadyError
from quitclaim.domain.hooks import HookKind, HookOutcome, HookWord
from quitclaim.domain.limits import MINUTE, PARKED_MS, SECOND
from quitclaim.domain.sources import FAILED_AT_BROKER, SourceStatus
from quitclaim.domain.webhooks import DeliveryState, Event, Incoming, Prepared, Read, Taken, Trust
from quitclaim.flows.deliveries import Delivered, Outcome
from quitclaim.flows.webhooks import TakingIn, take_in
from quitclaim.ports import Key
from tests.fakes.tables import StandIn, WorkerKilledError
from tests.flows.test_brokers import BrokerWorld
from tests.flows.world import GOOGLE


class SourceWorld(BrokerWorld):
    """A broker with a ready connection, whose events name sources."""

    def said(self, name: str = "event-1", source: str | None = "oura", **event: Any) -> str:
        """The broker sent an event about the account; it is accepted."""
        (account,) = self.broker.live()
        return self.accept(account, name, source=source, **event)

    def comes(self, name: str, **event: Any) -> Delivered:
        """And it is handled at once."""
        return self.deliver(self.said(name, **event))

    def linked_source(self) -> None:
        """The user has linked a watch, and the broker has said so."""
        self.start(source="oura")
        self.clock.move(ms=1)
        assert self.comes("linked", source_word="connected").outcome is Outcome.PROCESSED
        assert self.source().status is SourceStatus.CONNECTED

    def app_says(self, word: HookOutcome | HookWord) -> None:
        """The app has the hook, and answers like this."""
        self.hooks.answers[HookKind.SOURCE_OBSERVED] = lambda call: word

    def told(self) -> list[str]:
        """What the app hears of sources."""
        return [kind for kind in self.events() if kind.startswith("source.")]


@pytest.fixture
def world(stand_in: StandIn) -> SourceWorld:
    """A connection to a broker is ready, without any source."""
    made = SourceWorld(stand_in)
    made.linked()
    made.clock.move(minutes=1)
    return made


# --- the broker's word -----------------------------------------------------------------------------------------------


@pytest.mark.rule("M-10", "M-74")
def test_a_source_that_was_asked_for_is_connected_by_the_broker_s_event(world: SourceWorld) -> None:
    """Its verified word, or data of it, is enough where the app does not want to decide; then it is delivered."""
    world.start(source="oura")
    world.clock.move(ms=1)

    assert world.comes("data").shares == {"received": 1}

    source = world.source()
    assert (source.status, source.generation, source.last_seen) == (SourceStatus.CONNECTED, 1, world.clock.now())
    assert world.told() == ["source.connected"]
    assert world.comes("more").shares == {"received": 1}
    assert world.told() == ["source.connected"]


@pytest.mark.rule("M-10")
def test_a_source_that_nobody_asked_for_is_made_disconnected_and_then_connected(world, monkeypatch) -> None:
    """Whoever dies between the two leaves it disconnected, and the next attempt connects it: one event of it."""
    real = world.delivering.sources.move

    def dies(move: Any, claim: Any) -> None:
        if move.before is not None:
            raise WorkerKilledError
        real(move, claim)

    with monkeypatch.context() as patched:
        patched.setattr(world.delivering.sources, "move", dies)
        with pytest.raises(WorkerKilledError):
            world.comes("data", source="Google Fit")
    assert world.source("google-fit").status is SourceStatus.DISCONNECTED
    assert world.told() == []

    world.clock.move(minutes=6)

    assert world.deliver("data").outcome is Outcome.PROCESSED
    assert world.source("google-fit").status is SourceStatus.CONNECTED
    assert world.told() == ["source.connected"]


@pytest.mark.rule("M-74")
def test_a_hint_moves_no_source(world: SourceWorld) -> None:
    """Anybody who has seen one can make another: it waits for a source that is connected otherwise."""
    world.start(source="oura")
    world.clock.move(ms=1)

    done = world.comes("hint", trust=Trust.SECRET, source_word="connected")

    assert (done.outcome, done.until) == (Outcome.WAITS, world.clock.now() + MINUTE)
    assert (world.source().status, world.told()) == (SourceStatus.DISCONNECTED, [])
    assert world.comes("other", source="garmin", trust=Trust.SECRET).outcome is Outcome.PROCESSED
    assert world.reads.source(GOOGLE, "garmin") is None
    world.comes("data")
    assert world.deliver("hint").outcome is Outcome.PROCESSED
    assert world.comes("gone", trust=Trust.SECRET, source_word="disconnected").outcome is Outcome.PROCESSED
    assert world.source().status is SourceStatus.CONNECTED


@pytest.mark.rule("M-48", "M-74")
@pytest.mark.parametrize(
    ("word", "told", "error"),
    [("disconnected", "source.disconnected", None), ("failed", "source.failed", FAILED_AT_BROKER)],
)
def test_what_ends_a_source_leaves_its_connection_as_it_is(world, word, told, error) -> None:
    """The broker says so; the app is told once, its event included. Account, grant and other sources are untouched."""
    world.linked_source()
    world.comes("other", source="garmin")
    parts = ("connection", "grant", "revocation", "intent", "barrier")
    before = [world.items(ty) for ty in parts]
    world.clock.move(minutes=1)

    done = world.comes("ended", source_word=word)

    assert done.shares == {"received": 1}
    source = world.source()
    assert (source.status, source.error, source.ended_at) == (SourceStatus.DISCONNECTED, error, world.clock.now())
    assert [world.items(ty) for ty in parts] == before
    assert world.source("garmin").status is SourceStatus.CONNECTED
    assert world.told().count(told) == 1
    world.comes("again", source_word=word)
    assert world.told().count(told) == 1
    assert world.token().access_token.reveal() in world.broker.live()


@pytest.mark.rule("M-74")
def test_data_of_a_source_that_has_ended_waits_for_it_to_come_back(world: SourceWorld) -> None:
    """Only the broker's newer word brings it back; data that nobody waits for is let go after its day."""
    world.linked_source()
    world.clock.move(minutes=1)
    world.comes("ended", source_word="disconnected")
    world.clock.move(ms=1)
    assert world.comes("late").outcome is Outcome.WAITS
    assert world.comes("older word", source_word="connected", occurred_at=1).outcome is Outcome.WAITS
    world.clock.move(ms=PARKED_MS)

    done = world.deliver("late")

    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"source gone": 1})
    assert (world.delivery("late").body, world.delivery("late", GOOGLE).reason) == (None, "source gone")
    assert world.comes("back", source_word="connected").outcome is Outcome.PROCESSED
    assert world.source().status is SourceStatus.CONNECTED
    assert world.told() == ["source.connected", "source.disconnected", "source.connected"]


@pytest.mark.rule("M-74")
def test_words_that_come_in_another_order_leave_the_last_one(world: SourceWorld) -> None:
    """By when they happened, as the broker signs it: also one that says what is so already counts from then on."""
    now = world.clock.now()
    world.comes("first", source_word="connected", occurred_at=now - 9 * SECOND)
    world.comes("third", source_word="connected", occurred_at=now - 7 * SECOND)

    world.comes("second", source_word="disconnected", occurred_at=now - 8 * SECOND)

    assert (world.source().status, world.source().said_at) == (SourceStatus.CONNECTED, now - 7 * SECOND)
    world.comes("fifth", source_word="disconnected", occurred_at=now - 5 * SECOND)
    world.comes("sixth", source_word="disconnected", occurred_at=now - 4 * SECOND)
    assert world.comes("between", source_word="connected", occurred_at=now - 4_500).outcome is Outcome.WAITS
    assert world.source().status is SourceStatus.DISCONNECTED
    assert world.told() == ["source.connected", "source.disconnected"]


@pytest.mark.rule("M-12", "M-74")
def test_what_came_before_a_source_was_asked_for_again_does_not_connect_it(world: SourceWorld) -> None:
    """It is shut out until the broker speaks again; then it is delivered as well."""
    world.linked_source()
    world.said("old data")
    world.said("old word", source_word="connected")
    world.clock.move(minutes=1)
    world.start(source="oura")

    assert world.deliver("old data").outcome is Outcome.WAITS
    assert world.deliver("old word").outcome is Outcome.WAITS
    assert world.comes("stale word", source_word="connected", occurred_at=1).outcome is Outcome.WAITS
    assert (world.source().status, world.source().fence) == (SourceStatus.DISCONNECTED, 2)
    assert world.told() == ["source.connected", "source.disconnected"]
    world.clock.move(ms=1)

    assert world.comes("new").outcome is Outcome.PROCESSED

    assert {world.deliver(name).outcome for name in ("old data", "old word")} == {Outcome.PROCESSED}
    assert world.told() == ["source.connected", "source.disconnected", "source.connected"]


@pytest.mark.rule("M-74", "M-64")
def test_a_source_that_was_connected_in_another_life_is_not_connected_in_this_one(world: SourceWorld) -> None:
    """The account is another one: the first event of it connects the source again, and says so."""
    world.linked_source()
    (account,) = world.broker.live()
    world.clock.move(minutes=10)
    world.accept(account, "left", deauthorizes=True, occurred_at=world.clock.now())
    world.deliver("left")
    assert world.connection().state is ConnectionState.NEEDS_RECONNECT
    world.minutes_pass(3)
    assert world.linked(again=True).status == "ready"
    assert world.source().status is SourceStatus.CONNECTED
    life = world.connection().generation
    assert not world.source().is_connected_in(life)

    assert world.comes("data").outcome is Outcome.PROCESSED

    assert world.source().is_connected_in(life)
    assert world.told() == ["source.connected", "source.connected"]


def test_an_event_that_names_nothing_that_could_be_a_source_is_like_any_other(world: SourceWorld) -> None:
    """The app is told what it is called; nothing of ours has that name."""
    assert world.comes("odd", source="a/b!", source_word="connected").outcome is Outcome.PROCESSED
    assert world.items("source") == []


# --- the app's word --------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-74")
def test_the_app_decides_where_it_wants_to(world: SourceWorld) -> None:
    """Asked before anything else, with the same id however often; what it admits is connected, and told once."""
    world.start(source="oura")
    world.app_says(HookWord.ADMITTED)
    world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.DONE
    world.clock.move(ms=1)

    assert world.comes("data", occurred_at=7).outcome is Outcome.PROCESSED

    first, second = world.hooks.asked
    assert (first.kind, second.kind) == (HookKind.SOURCE_OBSERVED, HookKind.WEBHOOK_ACCEPTED)
    assert dict(first.data) == {
        "tenant": "acme-app",
        "owner": "ann",
        "connection_id": "google",
        "generation": 1,
        "provider": "acme",
        "source": "oura",
        "status": "disconnected",
        "fence": 1,
        "is_hint": False,
        "delivery_id": "data",
        "accepted_at": world.clock.now(),
        "event_type": "thing.made",
        "occurred_at": 7,
    }
    assert second.data["source"] == "oura"
    assert "source_deferred" not in second.data
    assert world.told() == ["source.connected"]
    world.comes("more")
    assert [call.kind for call in world.hooks.asked[2:]] == [HookKind.WEBHOOK_ACCEPTED]


@pytest.mark.rule("M-74", "M-76")
@pytest.mark.parametrize("outcome", [HookOutcome.DONE, HookOutcome.LATER, HookOutcome.FAILED, HookOutcome.UNREACHED])
def test_what_the_app_does_not_decide_waits(world: SourceWorld, outcome: HookOutcome) -> None:
    """Released, on the ladder: nothing of it is told, no source is moved, and the same question comes again."""
    world.start(source="oura")
    world.app_says(outcome)
    world.clock.move(ms=1)

    done = world.comes("data", source_word="connected")

    assert (done.outcome, done.until) == (Outcome.WAITS, world.clock.now() + MINUTE)
    assert world.delivery("data").state is DeliveryState.ACCEPTED
    assert (world.source().status, world.events("webhook.received")) == (SourceStatus.DISCONNECTED, [])
    assert world.hooks_failed == ([outcome.value] if outcome in (HookOutcome.FAILED, HookOutcome.UNREACHED) else [])
    world.app_says(HookWord.ADMITTED)
    assert world.deliver("data").outcome is Outcome.PROCESSED
    assert len({call.id for call in world.hooks.asked}) == 1


@pytest.mark.rule("M-74")
@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        (HookOutcome.DONE, Outcome.PROCESSED),
        (HookOutcome.UNREACHED, Outcome.WAITS),
        (HookWord.ADMITTED, Outcome.PROCESSED),
    ],
)
def test_a_source_that_is_not_there_is_asked_about_as_well(world, word, outcome) -> None:
    """Where the app answers and says nothing of it, the event is like any other, and there is no source."""
    world.app_says(word)

    assert world.comes("data").outcome is outcome

    assert world.hooks.asked[0].data["status"] == "missing"
    assert (world.items("source") != []) == (word is HookWord.ADMITTED)


@pytest.mark.rule("M-74")
def test_a_source_that_the_app_wants_nothing_of(world: SourceWorld) -> None:
    """The event is accepted, and is over: nobody is told, and no time is noted."""
    world.start(source="oura")
    world.app_says(HookWord.REMOVED)
    world.clock.move(ms=1)

    done = world.comes("data")

    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"source removed": 1})
    assert world.delivery("data", GOOGLE).reason == "source removed"
    assert (world.events("webhook.received"), world.told()) == ([], [])
    assert all("webhook_at" not in item for item in world.items("member"))


@pytest.mark.rule("M-74", "M-79")
@pytest.mark.parametrize("takes", [True, False])
def test_the_app_may_put_the_decision_off(world: SourceWorld, takes: bool) -> None:
    """That counts only where it takes the event itself, which says so."""
    world.start(source="oura")
    world.app_says(HookWord.DEFERRED)
    if takes:
        world.hooks.answers[HookKind.WEBHOOK_ACCEPTED] = lambda call: HookOutcome.DONE
    world.clock.move(ms=1)

    done = world.comes("data")

    assert done.outcome is (Outcome.PROCESSED if takes else Outcome.WAITS)
    assert [call.data.get("source_deferred") for call in world.hooks.asked] == ([None, True] if takes else [None])
    assert world.source().status is SourceStatus.DISCONNECTED


@pytest.mark.rule("M-12", "M-74")
def test_an_admission_of_what_the_source_was_counts_for_nothing(world: SourceWorld) -> None:
    """While the app is asked, its own backend asks for the source again: the answer is about what was."""
    world.start(source="oura")
    world.clock.move(ms=1)

    def answers(call: Any) -> HookWord:
        world.clock.move(ms=1)
        world.start(source="oura")
        return HookWord.ADMITTED

    world.hooks.answers[HookKind.SOURCE_OBSERVED] = answers

    assert world.comes("data").outcome is Outcome.WAITS

    assert (world.source().status, world.source().fence) == (SourceStatus.DISCONNECTED, 2)
    assert len(world.hooks.asked) == 1
    world.app_says(HookWord.ADMITTED)
    assert world.deliver("data").outcome is Outcome.WAITS  # it came before the source was asked for again
    world.clock.move(ms=1)
    assert world.comes("new").outcome is Outcome.PROCESSED


@pytest.mark.rule("I-5", "M-64")
def test_a_stop_while_the_app_is_asked_leaves_the_source_alone(world: SourceWorld) -> None:
    """No source of a connection that is on its way out is connected, and nobody is told of one."""
    world.start(source="oura")
    world.clock.move(ms=1)

    def answers(call: Any) -> HookWord:
        world.disconnect()
        return HookWord.ADMITTED

    world.hooks.answers[HookKind.SOURCE_OBSERVED] = answers

    assert world.comes("data").outcome is Outcome.WAITS

    assert (world.told(), world.events("webhook.received")) == ([], [])
    assert world.deliver("data").outcome is Outcome.DROPPED


@pytest.mark.rule("M-69")
def test_a_worker_that_lost_its_claim_moves_no_source(world: SourceWorld) -> None:
    """Another one has taken the event over meanwhile."""
    world.start(source="oura")
    world.clock.move(ms=1)

    def answers(call: Any) -> HookWord:
        world.clock.move(minutes=6)
        world.delivering.webhooks.claim(world.delivery("data"), world.clock.now())
        return HookWord.ADMITTED

    world.hooks.answers[HookKind.SOURCE_OBSERVED] = answers

    assert world.comes("data").outcome is Outcome.TAKEN

    assert (world.source().status, world.told()) == (SourceStatus.DISCONNECTED, [])


# --- a provider that sends again -------------------------------------------------------------------------------------


class SendsAgain:
    """`ports.WebhookAddress` of a provider that is asked to send again what nobody can take now."""

    provider, client, asks_for_retry = "acme", "acme", True

    def __init__(self, world: SourceWorld) -> None:
        self.world = world
        self.event: dict[str, Any] = {}
        self.taking_in = TakingIn(
            world.reads, world.delivering.webhooks, self, world.vault("webhook"), world.forward, world.clock
        )

    def at(self, client: str, endpoint: str | None) -> "SendsAgain":
        del client, endpoint
        return self

    def read(self, request: Incoming, now: int) -> Read:
        plain = {"trust": Trust.SIGNED, "sha256": "0" * 64, "size": 2, "source": "oura"} | self.event
        accounts = tuple(self.world.broker.live())
        prepared = Prepared("acme", "acme", received_at=now, accounts=accounts, **plain)
        return Taken((Event(prepared, b"{}", "id", str(now)),))

    def receipt(self, digest: str) -> str | None:
        return None

    def comes(self, **event: Any) -> int:
        """How many events were accepted."""
        self.world.clock.move(ms=1)
        self.event = event
        request = Incoming("POST", "https://quitclaim.example.com/webhooks/acme", {}, {}, b"{}")
        return take_in("acme", None, request, self.taking_in).accepted


@pytest.mark.rule("M-74")
def test_a_provider_that_sends_again_is_asked_to_while_the_source_is_not_ready(world: SourceWorld) -> None:
    """503, and nothing is stored; its word about the source itself is taken, and so is all once that is connected."""
    broker = SendsAgain(world)
    assert broker.comes() == 1  # nobody has asked for the source: who handles it decides
    world.start(source="oura")
    stored = len(world.items("delivery"))
    with pytest.raises(WebhookSourceNotReadyError):
        broker.comes()
    assert len(world.items("delivery")) == stored
    assert broker.comes(source_word="connected") == broker.comes(source="garmin") == broker.comes(source=None) == 1
    world.comes("linked", source_word="connected")
    assert broker.comes() == 1
    world.clock.move(ms=1)
    world.comes("ended", source_word="disconnected")
    with pytest.raises(WebhookSourceNotReadyError):
        broker.comes()


@pytest.mark.rule("M-74", "U-15")
def test_one_connection_that_takes_it_is_enough(world: SourceWorld) -> None:
    """Of several on one account: the others have it when they can."""
    broker = SendsAgain(world)
    world.start(source="oura")
    member = next(key for key in world.stand_in.everything() if key[0].startswith("E#") and key[1].startswith("C#"))
    world.stand_in.plant(Key(member[0], "C#acme-app#bob#health"), generation=1)

    assert broker.comes() == 1


# --- what is noted ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-81")
def test_when_the_last_event_came_and_the_last_data_of_its_source(world: SourceWorld) -> None:
    """By their receipt, once their share is on record, and no more often than every minute."""
    world.linked_source()
    first = world.clock.now()
    (member,) = world.items("member")
    assert (int(member["webhook_at"]), world.source().data_at) == (first, None)
    world.clock.move(ms=MINUTE)
    world.comes("data")
    world.clock.move(ms=MINUTE - 1)
    world.comes("soon")

    (member,) = world.items("member")

    assert int(member["webhook_at"]) == world.source().data_at == first + MINUTE
    assert world.reads.last_event_at(world.connection()) == first + MINUTE
    world.clock.move(ms=1)
    world.comes("other", source=None)
    assert world.reads.last_event_at(world.connection()) == first + 2 * MINUTE
    assert world.source().data_at == first + MINUTE


@pytest.mark.rule("M-81")
@pytest.mark.parametrize("fault", [StoreError, MovedError])
@pytest.mark.parametrize("stamp", ["stamp_event", "stamp_data"])
def test_a_time_that_cannot_be_noted_changes_nothing(world, stamp, fault, monkeypatch) -> None:
    """The event is delivered and over; what the table did not take is a warning, and the other time is noted."""
    world.linked_source()
    world.clock.move(minutes=2)

    def fails(*_: Any) -> None:
        raise fault

    monkeypatch.setattr(world.delivering.sources, stamp, fails)

    done = world.comes("data")

    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"received": 1})
    assert world.delivery("data").state is DeliveryState.PROCESSED
    assert [kind for kind, _ in world.faults] == (["stamp"] if fault is StoreError else [])
    (member,) = world.items("member")
    noted = [int(member["webhook_at"]) == world.clock.now(), world.source().data_at == world.clock.now()]
    assert noted == [stamp != "stamp_event", stamp != "stamp_data"]
