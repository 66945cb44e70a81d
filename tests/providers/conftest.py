"""What the provider tests start from."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from quitclaim.providers.spec import ProviderSpec
from tests.providers.specs import a_spec


@pytest.fixture
def spec_with(tmp_path: Path) -> Callable[..., ProviderSpec]:
    """Makes the spec of an entry with changes."""
    return partial(a_spec, tmp_path)


@pytest.fixture
def spec(spec_with: Callable[..., ProviderSpec]) -> ProviderSpec:
    """The spec of the plain entry."""
    return spec_with()
