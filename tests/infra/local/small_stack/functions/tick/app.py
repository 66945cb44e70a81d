"""Appends its note to a file, then sleeps or tells about itself, as the event asks."""

import os
import time
from typing import Any


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Leave the note; answer with what a function can know of its surroundings."""
    if "note" in event:
        with open(os.environ["TICKS"], "a") as ticks:
            ticks.write(event["note"] + "\n")
    left_ms = context.get_remaining_time_in_millis()
    time.sleep(event.get("sleep", 0))
    return {
        "pid": os.getpid(),
        "left_ms": left_ms,
        "arn": context.invoked_function_arn,
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
    }
