"""What the local stack reads out of a template: the small one of these tests, and the product's own."""

import json
from pathlib import Path

import pytest

from infra.local.supervisor import REPOSITORY
from infra.local.template import TemplateError, for_cloudformation, read_template
from tests.infra.local.conftest import SMALL


def test_the_small_template() -> None:
    """Functions by their folder, two workers where there are routes, the schedule with its input, the layer's path."""
    template = read_template(SMALL, "local")

    assert [(f.name, f.full_name, f.timeout_s, f.workers) for f in template.functions] == [
        ("echo", "local-echo", 2, 2),
        ("tick", "local-tick", 1, 1),
    ]
    assert {(r.key, r.function, r.signed) for r in template.routes} == {
        ("POST /v1/tenants/{t}/things/{thing}", "echo", True),
        ("GET /v1/providers", "echo", True),
        ("ANY /open/{thing}", "echo", False),
    }
    [schedule] = template.schedules
    assert (schedule.function, schedule.period_s, schedule.payload) == ("tick", 60, '{"note": "scheduled"}')
    assert template.layers == (SMALL.parent / "layers" / "own" / "python",)


def test_what_cloudformation_is_given_refers_to_nothing_that_it_is_not_given() -> None:
    """References to functions, API and roles are filled in; the rest is left for CloudFormation to resolve."""
    template = read_template(SMALL, "local")
    values = {key: value for f in template.functions for key, value in f.environment.items()}

    made = for_cloudformation(template, "http://127.0.0.1:1", values)

    assert set(made["Resources"]) == {"Key", "Table", "Queue"}
    assert "DependsOn" not in made["Resources"]["Queue"]
    assert made["Outputs"]["TICK_FUNCTION"] == {"Value": "local-tick"}
    assert made["Outputs"]["QUEUE"] == {"Value": {"Fn::Sub": "${Queue.QueueName} of local-echo"}}
    assert made["Outputs"]["KEY"] == {"Value": {"Fn::GetAtt": ["Key", "Arn"]}}
    assert "EchoFunction" not in json.dumps(made)


def test_the_products_template_can_be_played() -> None:
    """Each function has its code's folder, its schedules and at least the workers that a request beside it needs."""
    template = read_template(REPOSITORY / "template.yaml", "local")

    workers = {f.name: f.workers for f in template.functions}
    assert workers["connect"] == workers["access_token"] == workers["app_api"] == 2
    assert workers["revoke_sweep"] == workers["reconcile"] == 1
    assert {s.function for s in template.schedules} >= {"revoke_sweep", "reconcile"}
    assert {r.function for r in template.routes if not r.signed} == {"connect", "webhook"}
    kept = for_cloudformation(template, "http://127.0.0.1:1", {})["Resources"]
    assert {r["Type"].split("::")[1] for r in kept.values()}.isdisjoint({"Lambda", "IAM", "ApiGatewayV2", "Scheduler"})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rate(1 minute)", "'cron(0 * * * ? *)'", "EachMinute: the local stack plays rate"),
        ("Handler: app.handler", "Handler: []", "Handler"),
        ("functions/echo", "s3://elsewhere/echo.zip", "elsewhere"),
    ],
)
def test_what_cannot_be_played_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    """A schedule of another kind, a template that SAM refuses, code that is not here."""
    changed = tmp_path / "template.yaml"
    changed.write_text(SMALL.read_text().replace(old, new))

    with pytest.raises(TemplateError, match=said):
        read_template(changed, "local")
