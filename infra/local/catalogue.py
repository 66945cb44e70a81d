"""Compiles the specs of local providers, whose address is known only once they run."""

from collections.abc import Sequence
from pathlib import Path


def compile_catalogue(specs: Sequence[Path], folder: Path, base: str) -> None:
    """Write each spec to *folder* as the JSON that the functions read, ``{base}`` replaced by the provider's URL."""
    raise NotImplementedError
