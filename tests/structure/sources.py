"""The repository's own files, and the imports of its product."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "layers/quitclaim/python/quitclaim"
LEFT_OUT: Final = {".git", ".venv", ".venv-ministack", ".venv-sam", "build", "var", ".aws-sam", "__pycache__"}


@cache
def tracked() -> tuple[Path, ...]:
    """Every file under version control; in a copy without it, every file that was not made by the Makefile."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)  # noqa: S607 - git of the PATH
    if listed.returncode == 0:
        return tuple(path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file())
    return tuple(path for path in ROOT.rglob("*") if path.is_file() and not LEFT_OUT & set(path.parts))


@cache
def product() -> tuple[Path, ...]:
    """The modules that are deployed."""
    return (*sorted(PACKAGE.rglob("*.py")), *sorted((ROOT / "functions").glob("*/*.py")))


@cache
def tree(path: Path) -> ast.Module:
    """A module, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def ring_of(path: Path) -> str:
    """The ring that a module belongs to: a folder or module of the package, or `functions`."""
    if not path.is_relative_to(PACKAGE):
        return "functions"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@dataclass(frozen=True)
class Import:
    """One imported module; *for_types* where only the type checker sees it."""

    by: Path
    line: int
    module: str
    for_types: bool

    @property
    def top(self) -> str:
        """The distribution, about."""
        return self.module.split(".")[0]

    @property
    def ring(self) -> str | None:
        """The ring of ours that it comes from."""
        parts = self.module.split(".")
        return parts[1] if parts[0] == "quitclaim" and len(parts) > 1 else None

    def __str__(self) -> str:
        return f"{self.by.relative_to(ROOT)}:{self.line} imports {self.module}"


def imports(path: Path) -> Iterator[Import]:
    """Everything that a module imports, wherever in it."""
    yield from _imports(path, tree(path), for_types=False)


def _imports(path: Path, node: ast.AST, *, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(path, child.lineno, name.name, for_types)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{path}:{child.lineno}: a relative import"
            if child.module == "quitclaim":
                for name in child.names:
                    yield Import(path, child.lineno, f"quitclaim.{name.name}", for_types)
            else:
                yield Import(path, child.lineno, child.module or "", for_types)
        elif isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for statement in child.body:
                yield from _imports(path, ast.Module([statement], []), for_types=True)
            for statement in child.orelse:
                yield from _imports(path, ast.Module([statement], []), for_types=for_types)
        else:
            yield from _imports(path, child, for_types=for_types)
