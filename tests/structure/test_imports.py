"""Who may import whom: the rings from the inside out, held by the syntax trees."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.structure.sources import PACKAGE, ROOT, Import, imports, product, ring_of, tree

RINGS = {
    # ring: (rings of ours, distributions)
    "domain": ({"domain"}, set()),
    "ports": ({"domain"}, set()),
    "flows": ({"domain", "ports", "flows"}, set()),
    "store": ({"domain", "ports", "store"}, {"boto3", "botocore"}),
    "providers": ({"domain", "ports", "providers"}, {"httpx"}),
    "security": ({"domain", "ports", "security"}, {"cryptography", "boto3", "botocore"}),
    "hostapp": ({"domain", "ports", "providers"}, set()),
    "runtime": (
        {"domain", "ports", "flows", "store", "providers", "security", "hostapp", "runtime"},
        {"aws_lambda_powertools", "boto3", "botocore"},
    ),
    "functions": ({"runtime", "flows", "domain", "ports"}, {"aws_lambda_powertools"}),
    "__init__": (set(), set()),
}
"""`hostapp` calls out through the one door of `providers/transport.py`."""

MORE = {
    # modules that may import more, and why
    "providers/aio.py": {"aiohttp", "httpx_aiohttp"},  # many calls in flight; imported by nobody but the sweep
    "providers/id_token.py": {"jwt"},  # by who verifies one, in the call that does
    "providers/security_events.py": {"jwt"},  # likewise
    "providers/assertion.py": {"jwt", "cryptography"},  # likewise, by who signs one
    "providers/asymmetric.py": {"jwt", "cryptography"},  # by who verifies a signature that is no HMAC
    "providers/webhook_schema.py": {"pydantic"},  # when the catalogue is built
    "providers/schema.py": {"pydantic"},  # when the catalogue is built, never in a function
    "providers/compile.py": {"pydantic", "yaml"},  # likewise
    "runtime/pages.py": {"jinja2", "markupsafe"},  # when a page is rendered, not before
    "runtime/bodies.py": {"pydantic"},  # at the edge of the app's API
    "runtime/event_bodies.py": {"pydantic"},  # when docs/events is written, never in a function
}
BUILD_ONLY = {
    *("quitclaim.providers.compile", "quitclaim.providers.metadata"),
    *("quitclaim.providers.page", "quitclaim.providers.schema", "quitclaim.providers.webhook_schema"),
    "quitclaim.runtime.event_bodies",
}
WORLD = {"os", "random", "secrets", "time", "datetime", "socket", "subprocess", "urllib.request", "logging", "uuid"}
"""Where time, chance, the environment and the network come in."""


def name_of(path: Path) -> str:
    """As `MORE` spells it."""
    return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else str(path.relative_to(ROOT))


@cache
def all_imports() -> list[Import]:
    """Of the whole product."""
    return [each for path in product() for each in imports(path)]


def test_every_ring_is_in_the_table():
    """A new folder needs a row, and so a thought."""
    assert {ring_of(path) for path in product()} <= set(RINGS)
    assert len(product()) > 40


@pytest.mark.parametrize("ring", RINGS)
def test_a_ring_imports_inwards_only(ring):
    """Rings of ours by the table; what only the type checker sees is judged below."""
    allowed, _ = RINGS[ring]

    outward = [
        str(each)
        for each in all_imports()
        if ring_of(each.by) == ring and not each.for_types and each.ring is not None and each.ring not in allowed
    ]

    assert outward == []


@pytest.mark.parametrize("ring", RINGS)
def test_a_ring_imports_its_own_libraries_only(ring):
    """The standard library, and the distributions of the table."""
    _, allowed = RINGS[ring]

    foreign = [
        str(each)
        for each in all_imports()
        if ring_of(each.by) == ring
        and not each.for_types
        and each.top != "quitclaim"
        and each.top not in sys.stdlib_module_names
        and each.top not in allowed | MORE.get(name_of(each.by), set())
    ]

    assert foreign == []


def test_for_types_a_flow_may_name_the_store_and_nothing_else_looks_outwards():
    """An annotation couples nobody at run time; still only flows need one, and of the store alone."""
    outward = [
        str(each)
        for each in all_imports()
        if each.for_types
        and each.ring is not None
        and each.ring not in RINGS[ring_of(each.by)][0]
        and (ring_of(each.by), each.ring) != ("flows", "store")
    ]

    assert outward == []


def test_for_types_the_stubs_of_the_sdk_are_all_that_is_foreign():
    """They exist in the development environment only."""
    foreign = {
        each.top
        for each in all_imports()
        if each.for_types and each.top != "quitclaim" and each.top not in sys.stdlib_module_names
    }

    assert {name for name in foreign if not name.startswith("mypy_boto3_")} == set()


@pytest.mark.parametrize("name", sorted(MORE))
def test_an_exception_is_used(name):
    """One that nobody needs any more goes."""
    used = {each.top for each in imports(PACKAGE / name)}

    assert MORE[name] <= used


@pytest.mark.parametrize("ring", ["domain", "ports", "flows", "store"])
def test_time_and_chance_come_in_as_arguments(ring):
    """A run is a function of what its ports answer."""
    found = [str(each) for each in all_imports() if ring_of(each.by) == ring and each.module in WORLD]

    assert found == []


def test_the_build_of_the_catalogue_is_not_deployed_work():
    """No function validates YAML: it reads compiled JSON."""
    users = [str(each) for each in all_imports() if each.module in BUILD_ONLY and ring_of(each.by) != "providers"]

    assert users == []


def test_domain_ring_has_no_way_out_by_a_neighbour():
    """What the domain imports of the standard library does no I/O either."""
    used = {each.module for each in all_imports() if ring_of(each.by) == "domain" and each.top != "quitclaim"}

    assert used <= {"collections.abc", "dataclasses", "enum", "hashlib", "hmac", "re", "typing", "urllib.parse"}


def test_no_module_takes_a_name_of_another_that_is_its_own():
    """What begins with an underscore is its module's alone."""
    taken = [
        f"{name_of(path)}: {each.name} of {node.module}"
        for path in product()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quitclaim")
        for each in node.names
        if each.name.startswith("_")
    ]

    assert taken == []
