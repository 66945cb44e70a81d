"""What a cold start pays for, seen from outside: every function in a process of its own."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.infra.deployed import function_ids, variables

ROOT = Path(__file__).parents[2]
HOT = ["access_token", "connect", "revoke_sweep", "reconcile"]
HEAVY = ["pydantic", "pydantic_core", "yaml", "aiohttp", "httpx_aiohttp", "httpx", "moto", "samtranslator", "asyncio"]
SCRIPT = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("app", sys.argv[1])
app = importlib.util.module_from_spec(spec)
spec.loader.exec_module(app)
started = sorted({name.split(".")[0] for name in sys.modules})
class Context:
    aws_request_id = "1"
    def get_remaining_time_in_millis(self):
        return 100_000
if sys.argv[2] != "-":
    app.handler(json.loads(sys.argv[2]), Context())
ran = sorted({name.split(".")[0] for name in sys.modules})
print(json.dumps([started, ran]), file=sys.stderr)
"""
RUNS = dict.fromkeys(function_ids(), "-") | {"revoke_sweep": '{"rids": []}'}
"""What each is given after its cold start; a kick of nothing runs the sweep without asking anybody."""


def modules_of(function: str) -> tuple[set[str], set[str]]:
    """Top-level modules after the cold start, and after a run."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "QUITCLAIM_", "POWERTOOLS_", "COV", "PYTEST"))
    }
    environment |= dict.fromkeys(variables(function), "value") | {
        "QUITCLAIM_CONFIG_PATH": "/quitclaim/stack",
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "PYTHONPATH": str(ROOT / "layers/quitclaim/python"),
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nobody is there: a cold start asks nobody
    }
    script = [sys.executable, "-W", "error", "-c", SCRIPT, str(ROOT / f"functions/{function}/app.py"), RUNS[function]]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - our own script
    started, ran = json.loads(done.stderr.splitlines()[-1])
    return set(started), set(ran)


@pytest.fixture(scope="module")
def modules() -> dict[str, tuple[set[str], set[str]]]:
    """Of every function."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RUNS, pool.map(modules_of, RUNS), strict=True))


@pytest.mark.parametrize("function", HOT)
def test_a_hot_function_does_not_import_pydantic(modules, function):
    """It costs a third of a cold start; bodies of hot functions are read by hand."""
    assert {"pydantic", "pydantic_core"} & modules[function][0] == set()


def test_the_apps_api_does(modules):
    """Control: the question has two answers."""
    assert "pydantic" in modules["app_api"][0]


@pytest.mark.parametrize("function", sorted(RUNS))
def test_nobody_starts_with_aiohttp(modules, function):
    """Nor with what is needed when things are built or tested only."""
    assert {"aiohttp", "httpx_aiohttp", "yaml", "moto", "samtranslator"} & modules[function][0] == set()


@pytest.mark.parametrize("function", sorted(RUNS))
def test_httpx_is_paid_for_by_whoever_talks_to_a_provider(modules, function):
    """And not before it does."""
    assert "httpx" not in modules[function][0]


def test_only_the_sweep_runs_on_aiohttp(modules):
    """When it runs: it has many calls in flight."""
    assert "aiohttp" in modules["revoke_sweep"][1]
