"""What a cold start pays for, seen from outside: the functions one after the other in one fresh process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.deployed import function_ids, variables

ROOT = Path(__file__).parents[2]
ORDER = ["publish", "webhook", "access_token", "connect", "deliver", "reconcile", "maintain", "revoke_sweep"]
"""The hot ones: what one of them imports is there for the next, so the first that shows a module is to blame."""
SCRIPT = """
import importlib.util, json, sys

class Context:
    aws_request_id = "1"
    def get_remaining_time_in_millis(self):
        return 100_000

def loaded():
    return sorted({name.split(".")[0] for name in sys.modules})

apps, seen = {}, {}
for name in json.loads(sys.argv[2]):
    spec = importlib.util.spec_from_file_location(name, f"{sys.argv[1]}/functions/{name}/app.py")
    apps[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(apps[name])
    seen[name] = loaded()
apps["revoke_sweep"].handler({"rids": []}, Context())  # a kick of nothing asks nobody
seen["a run of revoke_sweep"] = loaded()
spec = importlib.util.spec_from_file_location("app_api", f"{sys.argv[1]}/functions/app_api/app.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
seen["app_api"] = loaded()
print(json.dumps(seen), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, set[str]]:
    """Top-level modules that are loaded after each step."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "QUITCLAIM_", "POWERTOOLS_", "COV", "PYTEST"))
    }
    environment |= {variable: "value" for name in function_ids() for variable in variables(name)}
    environment |= {
        "QUITCLAIM_CONFIG_PATH": "/quitclaim/stack",
        "QUITCLAIM_RETURN_ORIGINS": "",
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "PYTHONPATH": str(ROOT / "layers/quitclaim/python"),
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nobody is there: a cold start asks nobody
    }
    script = [sys.executable, "-W", "error", "-c", SCRIPT, str(ROOT), json.dumps(ORDER)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=100, check=False)  # noqa: S603 - our own script
    assert done.returncode == 0, done.stderr
    return {step: set(modules) for step, modules in json.loads(done.stderr.splitlines()[-1]).items()}


def test_every_function_is_looked_at():
    """Of the template, none more and none less."""
    assert {*ORDER, "app_api"} == set(function_ids())


@pytest.mark.parametrize("function", ORDER)
def test_a_hot_function_does_not_import_pydantic(seen, function):
    """It costs a third of a cold start; bodies of hot functions are read by hand."""
    assert {"pydantic", "pydantic_core"} & seen[function] == set()


def test_the_apps_api_does(seen):
    """Control: the question has two answers."""
    assert "pydantic" in seen["app_api"]


@pytest.mark.parametrize("function", ORDER)
def test_nobody_starts_with_aiohttp(seen, function):
    """Nor with the template engine, nor with what is needed when things are built or tested only."""
    assert {"aiohttp", "httpx_aiohttp", "jinja2", "yaml", "moto", "samtranslator"} & seen[function] == set()


@pytest.mark.parametrize("function", ORDER)
def test_httpx_is_paid_for_by_whoever_talks_to_a_provider(seen, function):
    """And not before it does."""
    assert "httpx" not in seen[function]


def test_only_the_sweep_runs_on_aiohttp(seen):
    """When it runs: it has many calls in flight."""
    assert "aiohttp" in seen["a run of revoke_sweep"]
