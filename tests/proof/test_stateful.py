"""T-3: everything in any order, beside the reference model (`reference.py`, `custody.py`)."""

import hashlib
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.proof.custody import Custody
from tests.proof.report import NIGHTLY, SEED, note

EXAMPLES: Final = 60 if NIGHTLY else 20
STEPS: Final = 100 if NIGHTLY else 60
SHARES: Final = 100 if NIGHTLY else 20
"""
Each a test of its own with a seed of its own, so that every core has some, and since examples of one seed are much
alike. Some examples end early: together they are more than 300 of 60 steps, or 5,000 of 100.
"""


@pytest.mark.timeout(3_600)
@pytest.mark.rule("I-1", "I-4", "I-5", "I-7", "I-9", "I-10", "I-13", "I-15")
@pytest.mark.parametrize("share", range(SHARES))
def test_the_product_answers_and_shows_what_the_rules_say(share: int) -> None:
    """
    Requests, callbacks, schedules, time, faults and crashes in any order: every answer, and all that is seen after it,
    is what the model says.

    A run is a function of the seed that the proof prints. A failing one is told as a story and as calls; the calls go
    into `test_regressions.py`.
    """
    number = int.from_bytes(hashlib.sha256(f"{SEED}/{share}".encode()).digest()[:4])
    steps, asked, failed = Custody.steps, Custody.asked, 1
    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(seed(number)(Custody), settings=how)
        failed = 0
    finally:
        note("T-3 stateful steps", Custody.steps - steps, failed)
        note("T-3 requests and runs in them", Custody.asked - asked, failed)
