"""Ids that are the same in every run."""

import itertools

from quitclaim.domain.secret import Secret


class SeededIds:
    """`ports.Ids`: `<seed>-1`, `<seed>-2` …; secrets are as long as real ones."""

    def __init__(self, seed: str = "id") -> None:
        self._seed = seed
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"{self._seed}-{next(self._numbers)}"

    def new_secret(self) -> Secret:
        return Secret(f"{self._seed}-secret-{next(self._numbers)}".ljust(43, "_"))
