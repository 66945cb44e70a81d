"""
May a function make this call? IAM's evaluation, as far as our roles need it, over the policies after the transform.

The calls are those that really left (`Calls`, wrapped around botocore). What a policy says and this does not know is an
error: nothing counts as allowed because it was misunderstood.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from botocore.client import BaseClient

from tests.infra.deployed import function_ids, listed, role_of, short, statements

LEADING_KEYS: Final = ("ForAllValues:StringLike", "dynamodb:LeadingKeys")
PURPOSE: Final = ("StringEquals", "kms:EncryptionContext:purpose")
BUS_SOURCE: Final = ("StringEquals", "events:source")
OF_THE_SERVICE: Final = frozenset(
    {
        *("logs:CreateLogStream", "logs:PutLogEvents"),
        *("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"),
        *("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
    }
)
"""What Lambda itself does with a function's role: its log, the stream that it reads, the queue that starts it."""
FAILED_CALLS: Final = ("sqs:SendMessage", "${FailureQueue.Arn}")
"""Likewise: its failed asynchronous calls."""
IN_TRANSACTIONS: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


@dataclass(frozen=True)
class Call:
    """One thing that a function asks of a service; *values*: what the conditions compare, by operator and key."""

    action: str
    resource: str
    values: tuple[tuple[tuple[str, str], frozenset[str]], ...] = ()

    def __str__(self) -> str:
        told = [f"{key} {sorted(values)}" for (_, key), values in self.values]
        return " ".join((self.action, self.resource, *told))


@dataclass(frozen=True)
class Permission:
    """One pair of action and resource of a statement, with its conditions."""

    sid: str
    action: str
    resource: str
    conditions: tuple[tuple[tuple[str, str], tuple[str, ...]], ...]

    def allows(self, call: Call) -> bool:
        """All of it must match; an action is compared as it is written, for none of ours has a wildcard."""
        if call.action.lower() != self.action.lower() or not is_like(call.resource, self.resource):
            return False
        given = dict(call.values)
        return all(_holds(how, patterns, given) for how, patterns in self.conditions)

    def parts(self) -> Iterator[str]:
        """Everything in it that could be left out: itself, and each value of its conditions."""
        yield f"{self.sid}: {self.action} on {self.resource}"
        for (_, key), patterns in self.conditions:
            yield from (f"{self.sid}: {key} {pattern}" for pattern in patterns)

    def used(self, call: Call) -> Iterator[str]:
        """Those of its parts that *call* needs."""
        yield f"{self.sid}: {self.action} on {self.resource}"
        given = dict(call.values)
        for how, patterns in self.conditions:
            for pattern in patterns:
                if any(is_like(value, pattern) for value in given.get(how, ())):
                    yield f"{self.sid}: {how[1]} {pattern}"


def is_like(value: str, pattern: str) -> bool:
    """Whether the value matches the pattern, in which a star stands for any text and a question mark for one letter."""
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def _holds(how: tuple[str, str], patterns: tuple[str, ...], given: Mapping[tuple[str, str], frozenset[str]]) -> bool:
    if how == LEADING_KEYS:  # true of no value at all, as IAM has it; so a call must always say what it reaches
        return all(any(is_like(value, pattern) for pattern in patterns) for value in given.get(how, ()))
    if how in (PURPOSE, BUS_SOURCE):
        return bool(given.get(how)) and given[how] <= set(patterns)
    raise AssertionError(f"a condition that this evaluation does not know: {how}")


@cache
def permissions_of(role: str) -> tuple[Permission, ...]:
    """Every permission of the role."""
    found = []
    for statement in statements(role):
        assert statement["Effect"] == "Allow"
        conditions = tuple(
            ((operator, key), tuple(map(short, listed(values))))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
        for action in listed(statement["Action"]):
            for resource in listed(statement["Resource"]):
                found.append(Permission(statement["Sid"], action, short(resource), conditions))
    return tuple(found)


def granted(function: str) -> frozenset[str]:
    """Everything that its role may do and that is not the service's own."""
    mine = (each for each in permissions_of(role_of(function)) if not _is_of_the_service(each))
    return frozenset(part for each in mine for part in each.parts())


def _is_of_the_service(permission: Permission) -> bool:
    return permission.action in OF_THE_SERVICE or (permission.action, permission.resource) == FAILED_CALLS


# --- what really left ------------------------------------------------------------------------------------------------


@dataclass
class Calls:
    """Of each function: which parts of its permissions were needed, and what no permission allowed."""

    used: dict[str, set[str]] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    _function: str | None = None
    _names: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def of(self, function: str, names: Mapping[str, str], *, judges: bool = True) -> Iterator[None]:
        """
        What is called in this block is *function*'s, and must be allowed if it *judges*. *names*: of the stack's
        resources, and what the template calls them.
        """
        self._function, self._names = function, names
        try:
            yield
        finally:
            self._function = None
        denied, self.denied = self.denied, []
        assert not (denied and judges), f"{function} may not do this: {'; '.join(denied)}"

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is called in this block stands for something else, which is noted by itself."""
        function, self._function = self._function, None
        try:
            yield
        finally:
            self._function = function

    def note(self, call: Call) -> None:
        """Judge it."""
        if self._function is None:
            return
        allowing = [each for each in permissions_of(role_of(self._function)) if each.allows(call)]
        if not allowing:
            self.denied.append(str(call))
        for each in allowing[:1]:
            self.used.setdefault(self._function, set()).update(each.used(call))

    def note_api_call(self, service: str, operation: str, params: Mapping[str, Any]) -> None:
        """As botocore makes it."""
        if self._function is not None:
            for call in calls_of(service, operation, params):
                self.note(Call(call.action, self._named(call.resource), call.values))

    def _named(self, resource: str) -> str:
        for name, told in self._names.items():
            resource = resource.replace(name, told)
        return resource


CALLS: Final = Calls()


def listening(plain: Any) -> Any:
    """botocore's one door, with somebody beside it who takes notes."""

    def call(client: BaseClient, operation: str, params: Mapping[str, Any]) -> Any:
        CALLS.note_api_call(client.meta.service_model.service_name, operation, params)
        return plain(client, operation, params)

    return call


def calls_of(service: str, operation: str, params: Mapping[str, Any]) -> Iterator[Call]:
    """What a request asks for, action by action; a name that nobody knows here is an error."""
    match service, operation:
        case "dynamodb", "TransactWriteItems":
            actions = [(kind, told) for each in params["TransactItems"] for kind, told in each.items()]
            # As strictly as it can be read: each action is held to the leading keys of all.
            leading = frozenset(_partition(told) for _, told in actions)
            for kind, told in actions:
                yield _of_table(IN_TRANSACTIONS[kind], told["TableName"], leading)
        case "dynamodb", "BatchGetItem":
            for table, told in params["RequestItems"].items():
                yield _of_table("BatchGetItem", table, frozenset(key["PK"]["S"] for key in told["Keys"]))
        case "dynamodb", "Query":
            values = params["ExpressionAttributeValues"]
            leading = frozenset({next(iter(values.values()))["S"]})
            index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
            yield _of_table("Query", params["TableName"] + index, leading)
        case "dynamodb", "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem":
            yield _of_table(operation, params["TableName"], frozenset({_partition(params)}))
        case "dynamodb", "BatchExecuteStatement":
            for update in params["updates"]:  # as the port has them: they leave as text
                yield _of_table("PartiQLUpdate", params["table"], frozenset({update.key.pk}))
        case "dynamodb", "Scan":
            yield _of_table("Scan", params["TableName"], frozenset())
        case "kms", "Decrypt" | "GenerateDataKey" | "GenerateDataKeyWithoutPlaintext":
            purpose = frozenset({params["EncryptionContext"]["purpose"]})
            yield Call(f"kms:{operation}", params["KeyId"], ((PURPOSE, purpose),))
        case "ssm", "GetParametersByPath":
            yield Call("ssm:GetParametersByPath", f"parameter{params['Path']}")
        case "ssm", "GetParameter":
            yield Call("ssm:GetParameter", f"parameter{params['Name']}")
        case "ssm", "GetParameters":
            for name in params["Names"]:
                yield Call("ssm:GetParameters", f"parameter{name}")
        case "secretsmanager", "GetSecretValue":
            yield Call("secretsmanager:GetSecretValue", f"secret:{params['SecretId']}")
        case "events", "PutEvents":
            for entry in params["Entries"]:
                source = frozenset({entry["Source"]})
                yield Call("events:PutEvents", f"event-bus/{entry['EventBusName']}", ((BUS_SOURCE, source),))
        case "lambda", "Invoke":
            yield Call("lambda:InvokeFunction", params["FunctionName"])
        case "sqs", "SendMessage" | "ChangeMessageVisibility":
            yield Call(f"sqs:{operation}", params["QueueUrl"])
        case _:
            raise AssertionError(f"a call that this evaluation does not know: {service} {operation}")


def _of_table(action: str, table: str, leading: frozenset[str]) -> Call:
    return Call(f"dynamodb:{action}", table, ((LEADING_KEYS, leading),))


def _partition(told: Mapping[str, Any]) -> str:
    return str((told.get("Key") or told["Item"])["PK"]["S"])


def names_of(*, table: str, ring_key: str, queue: str, stack: str) -> dict[str, str]:
    """How the resources of a stack are called in the template."""
    arn = "arn:${AWS::Partition}:%s:${AWS::Region}:${AWS::AccountId}:"
    functions = {f"{stack}-{name}": f"${{{logical_id}.Arn}}" for name, logical_id in function_ids().items()}
    return {
        ring_key: "${RingKey.Arn}",
        table: "${Table.Arn}",
        f"event-bus/{stack}-bus": "${EventBus.Arn}",
        queue: "${DeliveryQueue.Arn}",
        **functions,
        f"parameter/quitclaim/{stack}": (arn % "ssm") + "parameter/quitclaim/${AWS::StackName}",
        f"parameter/quitclaim-hooks/{stack}": (arn % "ssm") + "parameter/quitclaim-hooks/${AWS::StackName}",
        "arn:aws:lambda:eu-west-1:111122223333:function:app": "${HookFunctionArn}",
        f"parameter/quitclaim-secrets/{stack}": (arn % "ssm") + "parameter/quitclaim-secrets/${AWS::StackName}",
        f"secret:quitclaim/{stack}": (arn % "secretsmanager") + "secret:quitclaim/${AWS::StackName}",
    }
