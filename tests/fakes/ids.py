"""Ids that are the same in every run."""

from quitclaim.domain.secret import Secret


class SeededIds:
    """`ports.Ids`: `<seed>-1`, `<seed>-2` …; secrets are as long as real ones."""

    def __init__(self, seed: str = "id") -> None:
        self._seed = seed
        self.made = 0
        """How many there were; put back, the same ids come again."""

    def new_id(self) -> str:
        self.made += 1
        return f"{self._seed}-{self.made}"

    def new_secret(self) -> Secret:
        self.made += 1
        return Secret(f"{self._seed}-secret-{self.made}".ljust(43, "_"))
