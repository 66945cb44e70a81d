"""
What CloudFormation would be given: the template after SAM's transform, as lists that a test can judge.

`python -m tests.infra.deployed` writes `permissions.txt`, the permissions that the tests hold the template to. Read its
diff before you commit it: each line is something that a function may do to somebody's grant.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from boto3 import Session
from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
from samtranslator.utils.py27hash_fix import (  # type: ignore[import-untyped]
    to_py27_compatible_template,
    undo_mark_unicode_str_in_template,
)
from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

type Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
PERMISSIONS: Final = Path(__file__).with_name("permissions.txt")


@cache
def source() -> Json:
    """`template.yaml` as it is written."""
    return cast("Json", yaml_parse((ROOT / "template.yaml").read_text(encoding="utf-8")))


@cache
def nested() -> Json:
    """`infra/alarms.yaml` as it is written."""
    return cast("Json", yaml_parse((ROOT / "infra" / "alarms.yaml").read_text(encoding="utf-8")))


def alarms() -> Json:
    """The alarms by name."""
    return {name: each["Properties"] for name, each in nested()["Resources"].items()}


@cache
def resources() -> Json:
    """The resources after the transform."""
    template = yaml_parse((ROOT / "template.yaml").read_text(encoding="utf-8"))
    for each in template["Resources"].values():
        for code in ("CodeUri", "ContentUri"):
            # The translator takes code that is uploaded already; the folder stays readable as the object's key.
            if code in each.get("Properties", {}):
                each["Properties"][code] = f"s3://here/{each['Properties'][code]}"
    parameters: Json = {}
    to_py27_compatible_template(template, parameters)
    # As `samtranslator.translator.transform` does, with a region of our own: a test needs no environment.
    translator = Translator({}, Parser(), boto_session=Session(region_name="us-east-1"))
    transformed = undo_mark_unicode_str_in_template(translator.translate(template, parameters))
    return cast("Json", json.loads(json.dumps(transformed))["Resources"])


def of_type(kind: str) -> Json:
    """Properties of the resources of that type, by logical id."""
    return {name: each["Properties"] for name, each in resources().items() if each["Type"] == kind}


@cache
def functions() -> Json:
    """Properties of the functions by their name, which is their folder under functions/."""
    return {Path(each["Code"]["S3Key"]).name: each for each in of_type("AWS::Lambda::Function").values()}


@cache
def function_ids() -> dict[str, str]:
    """Logical id by function name."""
    return {Path(each["Code"]["S3Key"]).name: name for name, each in of_type("AWS::Lambda::Function").items()}


def variables(function: str) -> Json:
    """The function's environment."""
    return cast("Json", functions()[function]["Environment"]["Variables"])


def routes() -> Iterator[tuple[str, str, str]]:
    """(route key, function, authorizer) of the HTTP API."""
    names = {logical_id: name for name, logical_id in function_ids().items()}
    (api,) = of_type("AWS::ApiGatewayV2::Api").values()
    for path, methods in api["Body"]["paths"].items():
        for method, operation in methods.items():
            uri = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
            (logical_id,) = re.findall(r"functions/\$\{(\w+)\.Arn\}", uri)
            (authorizer,) = [name for each in operation["security"] for name in each]
            yield f"{method.upper()} {path}", names[logical_id], authorizer


def role_of(function: str) -> str:
    """Logical id of the function's role."""
    role, attribute = functions()[function]["Role"]["Fn::GetAtt"]
    assert attribute == "Arn"
    return cast("str", role)


def statements(role: str) -> list[Json]:
    """Every statement of every policy of the role."""
    return [
        statement
        for policy in of_type("AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def listed(value: Any) -> list[Any]:
    """A list of what IAM lets one write alone."""
    return value if isinstance(value, list) else [value]


def short(value: Any) -> str:
    """An intrinsic function as one writes it in `Fn::Sub`."""
    match value:
        case {"Fn::GetAtt": [name, attribute]}:
            return f"${{{name}.{attribute}}}"
        case {"Fn::Sub": str(text)}:
            return text
        case {"Fn::Sub": [text, names]}:
            return re.sub(r"\$\{(__\w+)\}", lambda found: short(names[found[1]]), str(text))
        case {"Ref": name}:
            return f"${{{name}}}"
        case _:
            return str(value)


def permissions() -> list[str]:
    """
    One line for each (who, action, resource, condition).

    From the policies of the roles, the policies of the keys, and the permissions on the functions.
    """
    lines: set[str] = set()
    for policy in of_type("AWS::IAM::Policy").values():
        for role in policy["Roles"]:
            lines.update(_lines(short(role).strip("${}"), policy["PolicyDocument"]))
    for name, role in of_type("AWS::IAM::Role").items():
        for statement in role["AssumeRolePolicyDocument"]["Statement"]:
            for who in _principals(statement):
                lines.update(_lines(who, {"Statement": [{**statement, "Resource": name}]}))
    for name, key in of_type("AWS::KMS::Key").items():
        for statement in key["KeyPolicy"]["Statement"]:
            assert statement["Resource"] == "*", "in a key policy this is the key itself"
            for who in _principals(statement):
                lines.update(_lines(f"{name} lets {who}", {"Statement": [{**statement, "Resource": "itself"}]}))
    for permission in of_type("AWS::Lambda::Permission").values():
        what = f"{permission['Action']} | {short(permission['FunctionName'])}"
        lines.add(f"{permission['Principal']} | {what} | from {short(permission['SourceArn'])}")
    return sorted(lines)


def _principals(statement: Json) -> list[str]:
    return [short(who) for kind in statement["Principal"].values() for who in listed(kind)]


def _lines(who: str, document: Json) -> Iterator[str]:
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow", "a denial would need a column of its own"
        for action in listed(statement["Action"]):
            for resource in listed(statement.get("Resource")):
                yield f"{who} | {action} | {short(resource)} | {_condition(statement.get('Condition', {}))}"


def _condition(condition: Json) -> str:
    tests = [
        f"{operator} {key} {' '.join(sorted(short(value) for value in listed(values)))}"
        for operator, keys in condition.items()
        for key, values in keys.items()
    ]
    return "; ".join(tests) or "always"


if __name__ == "__main__":
    PERMISSIONS.write_text("\n".join(permissions()) + "\n")
