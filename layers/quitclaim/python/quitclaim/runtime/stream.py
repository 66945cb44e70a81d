"""What the table's stream tells: which items are new."""

from collections.abc import Mapping
from typing import Any

from quitclaim.ports import Key
from quitclaim.store.keys import is_event


def new_events(batch: Mapping[str, Any]) -> dict[Key, str]:
    """
    Keys of the outbox events that a batch of the stream tells of, each with its record's number, in order. The
    mapping's filter admits no other record; one that comes all the same is left out.
    """
    found = {}
    for record in batch["Records"]:
        told = record["dynamodb"]
        key = Key(told["Keys"]["PK"]["S"], told["Keys"]["SK"]["S"])
        if record["eventName"] == "INSERT" and is_event(key):
            found[key] = str(told["SequenceNumber"])
    return found
