"""
Creates the stack's resources in MiniStack and resolves the functions' environments.

MiniStack's CloudFormation drops a table's TTL, point-in-time recovery and encryption. A second step sets them, from the
same template.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.local.ministack import aws_client
from infra.local.template import Json, Template, for_cloudformation


class ProvisioningError(Exception):
    """MiniStack's CloudFormation did not finish the stack."""


@dataclass(frozen=True)
class Provisioned:
    """What came out: per function name its environment, and the physical id of each resource."""

    environments: Mapping[str, Mapping[str, str]]
    physical_ids: Mapping[str, str]
    config_path: str


def provision(template: Template, ministack_url: str, base_url: str, parameters: Mapping[str, str]) -> Provisioned:
    """Create the resources, or bring those of an earlier start up to date."""
    wanted, outputs = _expressions(template)
    body = for_cloudformation(template, base_url, outputs)
    cloudformation = aws_client("cloudformation", ministack_url)
    values = _deploy(cloudformation, template.stack_name, body, parameters)
    listed = cloudformation.describe_stack_resources(StackName=template.stack_name)["StackResources"]
    physical_ids = {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in listed}
    environments = {
        name: {key: values[value[1]] if isinstance(value, tuple) else value for key, value in variables.items()}
        for name, variables in wanted.items()
    }
    _complete_tables(body["Resources"], physical_ids, values, ministack_url)
    paths = {e["QUITCLAIM_CONFIG_PATH"] for e in environments.values() if "QUITCLAIM_CONFIG_PATH" in e}
    config_path = paths.pop() if paths else f"/quitclaim/{template.stack_name}"
    ssm = aws_client("ssm", ministack_url)
    for name, value in (("base-url", base_url), ("api-id", template.api_id)):
        ssm.put_parameter(Name=f"{config_path}/{name}", Value=value, Type="String", Overwrite=True)
    return Provisioned(environments, physical_ids, config_path)


def _expressions(template: Template) -> tuple[dict[str, dict[str, str | tuple[str, str]]], dict[str, object]]:
    """Environments in which each value to be resolved is ("output", its name), and those outputs."""
    outputs: dict[str, object] = {}

    def output(value: object) -> tuple[str, str]:
        name = f"Value{len(outputs)}"
        outputs[name] = value
        return ("output", name)

    environments: dict[str, dict[str, str | tuple[str, str]]] = {
        function.name: {
            key: output(value) if isinstance(value, dict) else str(value) for key, value in function.environment.items()
        }
        for function in template.functions
    }
    for logical_id, resource in _tables(template.resources).items():
        key = resource["Properties"].get("SSESpecification", {}).get("KMSMasterKeyId")
        if key is not None:
            outputs[f"{logical_id}Key"] = key
    return environments, outputs


def _deploy(cloudformation: Any, stack: str, body: Json, parameters: Mapping[str, str]) -> dict[str, str]:
    unknown = set(parameters) - set(body.get("Parameters", {}))
    if unknown:
        raise ProvisioningError(f"the template has no parameter {', '.join(sorted(unknown))}")
    request = {
        "StackName": stack,
        "TemplateBody": json.dumps(body),
        "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    }
    try:
        cloudformation.create_stack(**request)
    except ClientError as error:
        if error.response["Error"]["Code"] != "AlreadyExistsException":
            raise
        try:
            cloudformation.update_stack(**request)
        except ClientError as second:
            if "No updates are to be performed" not in str(second):
                raise
    stopped_at = time.monotonic() + 30
    while time.monotonic() < stopped_at:
        found = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        if found["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return {o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", [])}
        if not found["StackStatus"].endswith("_IN_PROGRESS"):
            break
        time.sleep(0.05)
    events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    failed = [
        f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', event['ResourceStatus'])}"
        for event in events
        if event["ResourceStatus"].endswith("_FAILED")
    ]
    raise ProvisioningError(f"stack {stack} is {found['StackStatus']}: " + "; ".join(failed))


def _complete_tables(
    resources: Json, physical_ids: Mapping[str, str], values: Mapping[str, str], ministack_url: str
) -> None:
    dynamodb = aws_client("dynamodb", ministack_url)
    for logical_id, resource in _tables(resources).items():
        properties, table = resource["Properties"], physical_ids[logical_id]
        if ttl := properties.get("TimeToLiveSpecification"):
            described = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
            if described["TimeToLiveStatus"] != "ENABLED":
                dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=ttl)
        if recovery := properties.get("PointInTimeRecoverySpecification"):
            dynamodb.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=recovery)
        if encryption := properties.get("SSESpecification"):
            specification = {"Enabled": encryption["SSEEnabled"], "SSEType": encryption.get("SSEType", "KMS")}
            if f"{logical_id}Key" in values:
                specification["KMSMasterKeyId"] = values[f"{logical_id}Key"]
            dynamodb.update_table(TableName=table, SSESpecification=specification)


def _tables(resources: Json) -> Json:
    return {k: r for k, r in resources.items() if r["Type"] == "AWS::DynamoDB::Table"}
