"""What holds for every file: docstrings, names, key prefixes, one place for clients, nothing of somebody's machine."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quitclaim.store.keys import PREFIXES
from tests.structure.sources import PACKAGE, ROOT, product, ring_of, tracked, tree

CODE = [*product(), *sorted((ROOT / "infra").rglob("*.py"))]
TESTS = [path for path in tracked() if path.match("tests/**/test_*.py") and path.suffix == ".py"]
TEXT = [path for path in tracked() if b"\0" not in path.read_bytes()[:4096]]


def short(path: Path) -> str:
    """Relative to the repository."""
    return str(path.relative_to(ROOT))


# --- docstrings ------------------------------------------------------------------------------------------------------


def public(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Modules, classes, functions and methods that somebody else may use; what is nested in a function is nobody's."""
    yield name, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{name}.{child.name}")
            else:
                yield f"{name}.{child.name}", child
        elif isinstance(child, ast.If | ast.Try):
            yield from ((inner, each) for inner, each in public(child, name) if each is not child)


@pytest.mark.parametrize("path", CODE, ids=short)
def test_everything_public_has_a_docstring(path):
    """Modules, classes, functions, methods: what holds before and after, and what is raised."""
    without = [
        name
        for name, node in public(tree(path), path.stem)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not ast.get_docstring(node)
    ]

    assert without == []


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_a_test_says_what_must_be_true(path):
    """Its first line is a sentence."""
    without = [
        node.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not (ast.get_docstring(node) or "").strip()
    ]

    assert without == []


# --- names -----------------------------------------------------------------------------------------------------------

EMPTY_NAMES = {"util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "shared", "base", "core"}


def test_files_say_what_they_do():
    """Neither a folder nor a file is called after nothing in particular."""
    named = [short(path) for path in tracked() if EMPTY_NAMES & {*path.relative_to(ROOT).parts[:-1], path.stem}]

    assert named == []


STAGES = {"connect", "tokens", "stop", "revocations", "reconcile"}


@pytest.mark.parametrize("ring", ["flows", "store"])
def test_a_stage_has_one_name_in_every_ring(ring):
    """If you read flows/stop.py, its transactions are in store/stop.py; a long one is a folder (flows/connect)."""
    assert {path.stem for path in (PACKAGE / ring).iterdir()} >= STAGES


# --- keys ------------------------------------------------------------------------------------------------------------


def test_prefixes_are_unique_as_pairs():
    """No kind of item is read as another: neither the pair nor a sort prefix within one kind of partition."""
    assert len(set(PREFIXES.values())) == len(PREFIXES)
    for (one, (pk, sk)), (two, (other_pk, other_sk)) in itertools.permutations(PREFIXES.items(), 2):
        assert pk == other_pk or not pk.startswith(other_pk), (one, two)
        if pk == other_pk and other_sk:
            assert not sk.startswith(other_sk), (one, two)


def test_a_partition_prefix_is_one_letter_and_a_separator():
    """Ids hold no separator, so a prefix ends where it ends."""
    assert all(re.fullmatch(r"[A-Z]#", pk) for pk, _ in PREFIXES.values())


SPELLED = re.compile(r"^(BAR|[A-Z])#")


def literals(path: Path) -> Iterator[str]:
    """The strings of a module, formatted ones by their parts."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_prefix_is_spelled_in_one_place():
    """Everybody else asks store/keys.py."""
    spelled = [
        (short(path), text)
        for path in product()
        if path != PACKAGE / "store/keys.py"
        for text in literals(path)
        if SPELLED.match(text) or text in ("OWNER", "BAR")
    ]

    assert spelled == []


# --- one place -------------------------------------------------------------------------------------------------------


def calls(path: Path, *dotted: str) -> list[int]:
    """Lines on which one of these is named, as `module.attribute`."""
    return [
        node.lineno for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and ast.unparse(node) in dotted
    ]


def test_clients_of_the_sdk_are_built_in_one_place():
    """runtime/wiring.py is the composition root."""
    built = [short(path) for path in product() if calls(path, "boto3.client", "boto3.resource", "boto3.session")]

    assert built == [short(PACKAGE / "runtime/wiring.py")]


def test_the_environment_is_read_in_one_place():
    """Settings are read once, there."""
    read = [short(path) for path in product() if calls(path, "os.environ", "os.getenv")]

    assert read == [short(PACKAGE / "runtime/wiring.py")]


def test_wall_time_is_read_in_one_place():
    """runtime/world.py; a call's own budget is by the monotonic clock."""
    read = [short(path) for path in product() if calls(path, "time.time", "time.time_ns", "datetime.now")]

    assert read == [short(PACKAGE / "runtime/world.py")]


REASON = re.compile(r"# noqa: BLE001 - \w.{10,}")


@pytest.mark.parametrize("path", product(), ids=short)
def test_whoever_catches_everything_says_why(path):
    """`except Exception` that swallows is how a grant gets lost; no rule and no key does it at all."""
    lines = path.read_text(encoding="utf-8").splitlines()
    broad = [
        lines[node.lineno - 1]
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]

    assert [line for line in broad if not REASON.search(line)] == []
    assert broad == [] or ring_of(path) not in ("domain", "ports", "security", "providers")


# --- what does not belong into a repository --------------------------------------------------------------------------

REGISTRY = re.compile(
    r"(?<!no-emit-)(?:extra-)?index[-_]url\s*[=:]?\s*http|//[\w.-]*(?:/[\w.-]+)*/simple\b|pythonhosted\.org"
    r"|//registry\.|//[\w.-]*(?:artifactory|nexus|jfrog)[\w.-]*",
    re.IGNORECASE,
)
MACHINE = re.compile(
    r"(?<![\w.$}-])/(?:root|work|home/(?!runner\b)[a-z][\w-]*|Users/\w+|tmp/\w*jobs)(?=[/\s\"'`):,]|$)"
)
SECRET = re.compile(r"AKIA[A-Z2-7]{16}|-----BEGIN [A-Z ]*PRIVATE KEY-----|gh[pousr]_[A-Za-z0-9]{36}|xox[bp]-\d{10}")
THIS = Path(__file__)


@pytest.mark.parametrize(
    ("pattern", "found", "passed"),
    [
        (
            REGISTRY,
            ["--index-url https://x/", "https://mirror.x/pypi/simple/", "//registry.x"],
            ["--no-emit-index-url"],
        ),
        (MACHINE, ["/root/x", '"/work/main"', "/home/ann/x", "/Users/ann/x"], ["a/work/b", "./work", "/rooted"]),
        (SECRET, ["AKIA" + "A" * 16, "-----BEGIN PRIVATE KEY-----"], ["AKIA"]),
    ],
)
def test_the_patterns_below_find_what_they_look_for(pattern, found, passed):
    """Control: each finds its own examples, and not their neighbours."""
    assert all(pattern.search(text) for text in found)
    assert not any(pattern.search(text) for text in passed)


@pytest.mark.parametrize("pattern", [REGISTRY, MACHINE, SECRET], ids=["registry", "machine", "secret"])
def test_no_file_knows_the_machine_that_it_was_written_on(pattern):
    """No address of a package registry, no path of somebody's machine, no credential."""
    found = [
        f"{short(path)}:{number}: {line.strip()[:120]}"
        for path in TEXT
        if path != THIS and pattern.search(path.read_text(encoding="utf-8", errors="replace"))
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


def test_lines_end_as_lines_do():
    """No carriage returns, no tabs in Python, one line break at the end."""
    wrong = [
        short(path)
        for path in TEXT
        if path.suffix in (".py", ".md", ".yaml", ".toml", ".txt", ".json")
        and (b"\r" in path.read_bytes() or not path.read_bytes().endswith(b"\n") or path.read_bytes().endswith(b"\n\n"))
        and path.stat().st_size
    ]

    assert wrong == []
