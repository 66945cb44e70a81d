"""Schedules by the clock that can be moved."""

import json
from pathlib import Path

import pytest

from infra.local.clock import MovedClock
from infra.local.schedules import Schedules, payload_of
from infra.local.template import Schedule

EACH_MINUTE = Schedule("EachMinute", "sweep", 60, None)
EACH_HOUR = Schedule("EachHour", "maintain", 3600, '{"a": 1}')


@pytest.fixture
def clock(tmp_path: Path) -> MovedClock:
    return MovedClock(tmp_path / "clock")


def test_the_clock_is_replaced_as_a_whole_and_survives_a_restart(clock: MovedClock) -> None:
    """The offset is decimal text in its file; a new supervisor goes on with it; nothing else is left in the folder."""
    clock.advance(61_000)
    clock.advance(1)

    assert clock.path.read_text() == "61001"
    assert MovedClock(clock.path).offset_ms == 61_001
    assert [path.name for path in clock.path.parent.iterdir()] == ["clock"]
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)


def test_a_schedule_fires_once_however_far_the_clock_moved(clock: MovedClock) -> None:
    """Due after its period, once after ten of them, and then one period later again."""
    fired: list[str] = []
    schedules = Schedules((EACH_MINUTE, EACH_HOUR), clock, lambda schedule, payload: fired.append(schedule.name))

    assert schedules.fire_due() == []
    clock.advance(60_000)
    assert schedules.fire_due() == ["EachMinute"]
    assert schedules.fire_due() == []
    clock.advance(10 * 60_000)
    assert schedules.fire_due() == ["EachMinute"]
    clock.advance(3_600_000)
    assert schedules.fire_due() == ["EachMinute", "EachHour"]
    assert fired == ["EachMinute", "EachMinute", "EachMinute", "EachHour"]


def test_the_payload_is_the_schedules_input_or_the_services_default() -> None:
    """The default event carries the moved time."""
    assert payload_of(EACH_HOUR, 0) == b'{"a": 1}'
    event = json.loads(payload_of(EACH_MINUTE, 1_773_342_238_390))
    assert event["detail-type"] == "Scheduled Event"
    assert event["time"] == "2026-03-12T19:03:58Z"
    assert event["resources"][0].endswith(":schedule/default/EachMinute")
