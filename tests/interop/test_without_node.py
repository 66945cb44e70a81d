"""Where there is no Node, the tests against oidc-provider are skipped and say why; in CI they fail."""

import shutil

import pytest

from tests.interop.oidc_provider import peer


@pytest.mark.parametrize(("ci", "ends"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_node_the_peer_is_skipped_and_in_ci_it_fails(
    monkeypatch: pytest.MonkeyPatch, ci: str, ends: type[BaseException]
) -> None:
    """A proof that was skipped where nobody looks would be none."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setenv("CI", ci)

    with pytest.raises(ends, match="Node is not on PATH"):
        peer.node()
