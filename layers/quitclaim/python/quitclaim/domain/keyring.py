"""An entry of the key ring: a wrapped data key and when it serves."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RingItem:
    """
    One data key of one purpose, wrapped by KMS.

    It seals from *active_from* until a newer one does, and opens what it sealed for as long as it is in the ring,
    retired or not.
    """

    purpose: str
    kid: str
    wrapped: bytes = field(repr=False)
    created: int
    active_from: int
    retired: int | None = None
