"""Redrive: operators have what nobody had delivered after all, however much of it there is."""

import json
from collections.abc import Callable

import pytest

from quitclaim.domain.webhooks import KeptAt
from quitclaim.flows import operator
from quitclaim.flows.operator import Asked, Operating, Redrive, redrive
from quitclaim.runtime.views import place, place_of
from quitclaim.store import deliveries
from quitclaim.store.keys import delivery_key, kept
from quitclaim.store.operator import OperatorStore
from quitclaim.store.revocations import RevocationStore
from tests.flows.world import World

ASKED = Asked("arn:aws:iam::111122223333:user/ann", "asked by phone")
NAMES = [f"event-{number}" for number in range(11)]


@pytest.fixture
def through(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], int]]:
    """Calls until nothing is left, with small pages: what they found, and how many they were."""
    monkeypatch.setattr(operator, "PAGES", 2)
    monkeypatch.setattr(deliveries, "PAGE", 2)
    store = OperatorStore(world.table, world.clock, world.ids)
    revocations = RevocationStore(world.table, world.clock, world.ids)
    operating = Operating(world.reads, store, revocations, world.clock, world.ids, world.kick, world.delivering.store)

    def called(*, dry_run: bool = True, **which: object) -> tuple[list[str], int]:
        found: list[str] = []
        at: KeptAt | None = None
        for calls in range(1, 30):
            some, at = redrive(Redrive(**which), ASKED, operating, dry_run=dry_run, at=at)  # type: ignore[arg-type]
            found += [each.digest for each in some]
            if at is None:
                return found, calls
            at = place_of(json.loads(json.dumps(place(at))))
        raise AssertionError("no end")

    return called


@pytest.fixture
def missed(world: World) -> World:
    """Eleven events that nobody had, received a second apart, every other of another client."""
    for number, name in enumerate(NAMES):
        world.accept(name=name)
        now = world.clock.now()
        index = kept(now, "acme", name)
        world.stand_in.alter(
            delivery_key("acme", name),
            put={"state": "dropped", "reason": "failed for a day", "done": now, "provider": f"p{number % 2}", **index},
            remove=("next", "d1", "d2"),
        )
        world.clock.move(ms=1_000)
    return world


def test_everything_is_found_by_pages(missed: World, through: Callable[..., tuple[list[str], int]]) -> None:
    """What is wanted stands behind what is not; each once, and a dry run changes nothing."""
    before = missed.stand_in.everything()
    received = missed.delivery("event-7").received

    everything, calls = through()

    assert (sorted(everything), calls > 2) == (sorted(NAMES), True)
    assert through(id="event-7")[0] == ["event-7"]
    assert through(id="event-7", client="acme") == (["event-7"], 1)
    assert through(id="event-7", client="acme", provider="p0") == ([], 1)
    assert sorted(through(provider="p1")[0]) == sorted(NAMES[1::2])
    assert through(since=received, until=received + 1)[0] == ["event-7"]
    assert missed.stand_in.everything() == before


def test_what_is_done_is_not_met_again(missed: World, through: Callable[..., tuple[list[str], int]]) -> None:
    """The place that a call ended at holds, although what it found is no longer kept; each act is on record."""
    done, _ = through(dry_run=False, provider="p0")

    assert sorted(done) == sorted(NAMES[::2])
    assert sorted(through()[0]) == sorted(NAMES[1::2])
    assert {item["subject"] for item in missed.items("audit")} == {"provider=p0"}
    assert {missed.delivery(name).state for name in NAMES[::2]} == {"accepted"}
