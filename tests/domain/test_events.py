"""What the app is told: one stable id for one transition."""

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
