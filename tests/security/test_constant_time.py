"""S-12: what is secret is compared in constant time, and looked up by its digest."""

import ast
from pathlib import Path

import pytest

import quitclaim
from quitclaim.domain.secret import Secret

SOURCES = sorted(Path(quitclaim.__path__[0]).rglob("*.py"))


def is_secret(node: ast.expr) -> bool:
    """Whether an operand of a comparison is an opened secret: `x.reveal()`, or what is made of one."""
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "reveal"
        for each in ast.walk(node)
    )


@pytest.mark.rule("S-12")
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_opened_secret_is_compared(path: Path) -> None:
    """`==` and `!=` end at the first character that differs, and so tell how much of a guess was right."""
    found = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
        and any(is_secret(side) for side in (node.left, *node.comparators))
    ]

    assert found == []


@pytest.mark.rule("S-12")
def test_two_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Secret == Secret` asks `hmac.compare_digest`, and nothing else decides."""
    asked: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        asked.append((one, other))
        return one == other

    monkeypatch.setattr("quitclaim.domain.secret.hmac.compare_digest", compare)

    assert (Secret("one") == Secret("two")) is False
    assert asked == [(b"one", b"two")]
