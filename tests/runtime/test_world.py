"""The real clock, chance and invocation."""

import re
import time

import pytest

from quitclaim.runtime.world import Invocation, RandomIds, SystemClock, real_now
from tests.runtime.events import Context


def test_the_clock_is_the_machines():
    """In milliseconds."""
    before = time.time_ns() // 1_000_000

    assert before <= SystemClock().now() <= before + 5_000


@pytest.mark.parametrize(
    ("text", "offset"), [("", 0), ("0", 0), ("90000", 90_000), ("-1000", -1_000), ("3600000\n", 3_600_000)]
)
def test_on_the_local_stack_the_clock_is_moved_by_a_file(tmp_path, text, offset):
    """Read anew each time; a file that is not there yet moves nothing."""
    path = tmp_path / "clock"
    clock = SystemClock(path)
    assert abs(clock.now() - real_now()) < 5_000

    path.write_text(text)

    assert abs(clock.now() - real_now() - offset) < 5_000


def test_a_pause_lasts():
    """As long as it was asked for, about."""
    before = time.monotonic()

    SystemClock().pause(20)

    assert 0.015 < time.monotonic() - before < 5


@pytest.mark.rule("F-59")
def test_ids_and_secrets_are_random_and_fit_into_keys_and_addresses():
    """128 and 256 bits, url-safe; no two are the same."""
    ids = [RandomIds().new_id() for _ in range(200)]
    secrets = [RandomIds().new_secret().reveal() for _ in range(200)]

    assert len({*ids, *secrets}) == 400
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", each) for each in ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", each) for each in secrets)


def test_an_invocation_has_what_the_runtime_says():
    """By the runtime's clock, which nobody moves."""
    assert Invocation(Context(1_234)).remaining_ms() == 1_234
