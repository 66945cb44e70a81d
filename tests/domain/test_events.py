"""What the app is told: one stable id for one transition."""

import re
from dataclasses import replace

from quitclaim.domain.events import Event, EventKind
from tests.domain.values import NOW, REF


def test_an_events_id_is_its_kind_and_its_transition():
    """The same transition never makes two ids, whenever and with whatever body it is written."""
    one = Event(EventKind.CONNECTION_READY, REF, "x1", NOW)
    again = Event(EventKind.CONNECTION_READY, REF, "x1", NOW + 1, {"generation": 3})

    assert one.id == again.id == "connection.ready#x1"


def test_every_kind_of_one_transition_has_an_id_of_its_own():
    """Two things that happen by one exchange are two events."""
    assert len({Event(kind, REF, "x1", NOW).id for kind in EventKind}) == len(EventKind)


def test_the_app_is_given_an_id_that_no_other_event_of_the_stack_has():
    """Two owners may have the same connection id and generation; a repetition has the same id."""
    one = Event(EventKind.CONNECTION_REVOKED, REF, "google#1", NOW)
    others = [
        replace(one, ref=replace(REF, owner="bob")),
        replace(one, ref=replace(REF, tenant="other")),
        replace(one, kind=EventKind.CONNECTION_CLOSED),
        replace(one, transition="google#2"),
    ]

    assert re.fullmatch("evt_[0-9a-f]{32}", one.public_id)
    assert replace(one, at=NOW + 1, published=NOW).public_id == one.public_id
    assert len({one.public_id, *(each.public_id for each in others)}) == 5


def test_an_event_says_whose_it_is_and_what_its_kind_has_to_say():
    """An owner's names no connection."""
    event = Event(EventKind.CONNECTION_READY, REF, "x1", NOW, {"generation": 3})

    assert event.detail == {
        "version": 1,
        "id": event.public_id,
        "kind": "connection.ready",
        "at": NOW,
        "tenant": REF.tenant,
        "owner": REF.owner,
        "connection_id": REF.connection,
        "generation": 3,
    }
    assert "connection_id" not in Event(EventKind.OWNER_STOPPED, REF.of_owner, "ann", NOW).detail
