"""The event bus, written down instead of sent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from quitclaim.domain.limits import NOTICES
from quitclaim.ports import Notice


@dataclass
class RecordingBus:
    """`ports.EventBus`: remembers what it took; *takes* says of the so-many-th notice ever whether it does."""

    taken: list[Notice] = field(default_factory=list)
    takes: Callable[[int], bool] = lambda number: True
    asked: int = 0

    def send(self, notices: Sequence[Notice]) -> list[bool]:
        """As the port has it."""
        assert 0 < len(notices) <= NOTICES
        answers = [self.takes(self.asked + number) for number in range(len(notices))]
        self.asked += len(notices)
        self.taken += [notice for notice, is_taken in zip(notices, answers, strict=True) if is_taken]
        return answers

    @property
    def details(self) -> list[dict[str, Any]]:
        """What the app reads, in order."""
        return [dict(notice.detail) for notice in self.taken]

    @property
    def ids(self) -> list[str]:
        """Of those."""
        return [detail["id"] for detail in self.details]
