"""The evaluation of a caller's policy: deny wins, wildcards reach as far as IAM's do, the unknown is refused."""

import json
import re
from pathlib import Path

import pytest

from infra.local.policies import UnknownPolicyError, is_allowed, read_policy
from infra.local.principals import local_principals

API = "arn:aws:execute-api:us-east-1:000000000000:abc"
INVOKE = "execute-api:Invoke"
ROOT = Path(__file__).parents[3]


def allow(resource: object, action: object = INVOKE, effect: str = "Allow") -> dict[str, object]:
    return {"Effect": effect, "Action": action, "Resource": resource}


@pytest.mark.parametrize(
    ("statements", "path", "expected"),
    [
        ([], "GET/v1/tenants/demo/x", False),
        ([allow(f"{API}/*")], "GET/v1/tenants/demo/x", True),
        ([allow("*")], "GET/v1/tenants/demo/x", True),
        (allow(f"{API}/*"), "GET/v1/tenants/demo/x", True),
        ([allow(f"{API}/*/GET/v1/tenants/demo/*")], "GET/v1/tenants/demo/x/y/z", True),
        ([allow(f"{API}/*/GET/v1/tenants/demo/*")], "POST/v1/tenants/demo/x", False),
        ([allow(f"{API}/*/*/v1/tenants/demo/*")], "GET/v1/tenants/other/x", False),
        ([allow(f"{API}/*/*/v1/tenants/demo/*")], "GET/v1/tenants/demo2/x", False),
        ([allow(f"{API}/*/*/v1/tenants/dem?/*")], "GET/v1/tenants/demo/x", True),
        ([allow(f"{API}/*/*/v1/tenants/dem?/*")], "GET/v1/tenants/dem/x", False),
        ([allow([f"{API}/*/*/nowhere", f"{API}/*/GET/v1/*"])], "GET/v1/tenants/demo/x", True),
        ([allow(f"{API}/*", "execute-api:*")], "GET/v1/x", True),
        ([allow(f"{API}/*", "EXECUTE-API:invoke")], "GET/v1/x", True),
        ([allow(f"{API}/*", ["lambda:InvokeFunction", "s3:*"])], "GET/v1/x", False),
        ([allow(f"{API}/*"), allow(f"{API}/*/DELETE/*", effect="Deny")], "DELETE/v1/x", False),
        ([allow(f"{API}/*"), allow(f"{API}/*/DELETE/*", effect="Deny")], "GET/v1/x", True),
        ([allow(f"{API}/*"), allow("*", "*", effect="Deny")], "GET/v1/x", False),
        ([{"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}], "GET/v1/x", True),
        ([{"Effect": "Allow", "Action": "*", "NotResource": f"{API}/*/GET/*"}], "GET/v1/x", False),
        ([{"Effect": "Allow", "Action": "*", "NotResource": f"{API}/*/GET/*"}], "PUT/v1/x", True),
        # A wildcard stays within its part of the ARN, and an API id is not a prefix of another.
        ([allow("arn:aws:execute-api:*")], "GET/v1/x", False),
        ([allow("arn:aws:execute-api:*:*:*")], "GET/v1/x", True),
        ([allow("arn:aws:execute-api:us-east-1:000000000000:ab/*")], "GET/v1/x", False),
        ([allow(f"{API}/*/GET/v1.x")], "GET/v1/x", False),
    ],
)
def test_a_policy_allows_exactly_what_it_names(statements: object, path: str, expected: bool) -> None:
    """Allow, deny, wildcards and negation, each on one call."""
    policy = read_policy({"Statement": statements})

    assert is_allowed(policy, INVOKE, f"{API}/$default/{path}") is expected


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "true"}}},
        {"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": "*"},
        {"Effect": "allow", "Action": "*", "Resource": "*"},
        {"Effect": "Allow", "Action": "*"},
        {"Effect": "Allow", "Action": "*", "Resource": "*", "NotResource": "*"},
        {"Effect": "Allow", "Action": "*", "Resource": "arn:aws:s3:::${aws:username}"},
    ],
)
def test_what_cannot_be_judged_is_refused(statement: dict[str, object]) -> None:
    """A policy with a part that the evaluator does not know allows nothing: it is not read."""
    with pytest.raises(UnknownPolicyError):
        read_policy({"Statement": [statement]})


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("app", "GET/v1/tenants/demo/owners/o/status", True),
        ("app", "GET/v1/tenants/other/owners/o/status", False),
        ("app", "GET/v1/providers", True),
        ("app", "POST/v1/providers", False),
        ("app", "GET/v1/attention", False),
        ("other", "GET/v1/tenants/other/owners/o/status", True),
        ("other", "GET/v1/tenants/demo/owners/o/status", False),
        ("operator", "GET/v1/tenants/demo/owners/o/status", True),
        ("operator", "GET/v1/attention", True),
    ],
)
def test_each_local_caller_reaches_its_tenant_only(name: str, call: str, expected: bool) -> None:
    """`app` is tenant demo, `other` is tenant other, `operator` is everybody."""
    keys = {each: (f"AKIA{each}", "s") for each in ("app", "other", "operator")}
    caller = local_principals(keys, API)[f"AKIA{name}"]

    assert is_allowed(caller.policy, INVOKE, f"{API}/$default/{call}") is expected


def test_the_app_of_the_local_stack_has_the_policy_of_the_page() -> None:
    """What docs/deploy.md tells people to write is what every local run is held to; its methods are the routes'."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    written = json.loads(re.findall(r"```json\n(.*?)```", page.split("## Who may call")[1], re.DOTALL)[0])
    told = {
        arn.replace("arn:aws:execute-api:eu-central-1:111122223333:a1b2c3d4e5", API).replace("acme", "demo")
        for statement in written["Statement"]
        for arn in statement["Resource"]
    }

    (app,) = local_principals({"app": ("AKIAapp", "s")}, API).values()

    assert {arn for statement in app.policy for arn in statement.resources} == told
    methods = set(
        re.findall(r"Method: ([A-Z]+), Path: \"?/v1/tenants/", (ROOT / "template.yaml").read_text(encoding="utf-8"))
    )
    assert {arn.split("/")[2] for arn in told} == methods
