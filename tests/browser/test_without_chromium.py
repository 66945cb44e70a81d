"""Where there is no Chromium, the browser tests are skipped and say why; in CI they fail."""

import pytest

from tests.browser.conftest import program


@pytest.mark.parametrize(("ci", "ends"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_chromium_the_pages_are_not_looked_at_and_in_ci_that_fails(
    monkeypatch: pytest.MonkeyPatch, ci: str, ends: type[BaseException]
) -> None:
    """A proof that was skipped where nobody looks would be none."""
    monkeypatch.setenv("CI", ci)

    with pytest.raises(ends, match="apt-get install chromium chromium-driver"):
        program("a-browser-that-nobody-has")
