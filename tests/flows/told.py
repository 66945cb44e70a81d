"""What a world has to tell the app, held to docs/events: its schema, its id, and that it is told once."""

from collections import Counter
from typing import Any

from pydantic import ValidationError

from quitclaim.domain.events import Event
from quitclaim.runtime.event_bodies import MODELS
from quitclaim.store.events import EventStore
from tests.fakes.ids import SeededIds
from tests.flows.world import World

BY_KIND = {kind.value: model for kind, model in MODELS.items()}


def told_by(world: World) -> list[Event]:
    """Every event of the world's outbox, in order."""
    store = EventStore(world.plain_table, SeededIds("told"))
    found = [world.plain_table.get(key) for key in world.outbox()]
    return [store.as_event(item) for item in found if item is not None]


def faults_of_events(world: World) -> list[str]:
    """What is wrong with any of them."""
    if not world.items("event"):
        return []
    told = told_by(world)
    faults = [fault for event in told for fault in faults_of(event.detail)]
    counts = Counter(event.public_id for event in told)
    return faults + [f"{id_} was told {count} times" for id_, count in counts.items() if count > 1]


def faults_of(detail: dict[str, Any]) -> list[str]:
    """What is wrong with one event as the app reads it."""
    try:
        BY_KIND[detail["kind"]].model_validate(detail, strict=False)
    except ValidationError as wrong:
        return [f"{detail['kind']}: {each['loc']} {each['msg']}" for each in wrong.errors()]
    return []
