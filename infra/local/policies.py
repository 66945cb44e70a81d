"""
Does an identity policy allow a call? The part of IAM's evaluation that `execute-api:Invoke` needs.

An explicit Deny wins, otherwise one Allow suffices, otherwise the answer is no. What this evaluator does not know
(conditions, policy variables, principals) is refused when the policy is read, so that nothing is allowed by being
misunderstood.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

_KNOWN = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource"}


class UnknownPolicyError(ValueError):
    """The policy says something that this evaluator cannot judge."""


@dataclass(frozen=True)
class Statement:
    """One statement: it matches a call when its action and its resource do."""

    allows: bool
    actions: tuple[str, ...]
    actions_negated: bool
    resources: tuple[str, ...]
    resources_negated: bool

    def matches(self, action: str, resource: str) -> bool:
        """Whether the statement speaks about *action* on *resource*."""
        named = any(_matches(pattern.lower(), action.lower()) for pattern in self.actions)
        reached = any(_arn_matches(pattern, resource) for pattern in self.resources)
        return named != self.actions_negated and reached != self.resources_negated


def read_policy(document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """The statements of a policy document; `UnknownPolicyError` if there is something in it that cannot be judged."""
    statements = document.get("Statement", [])
    if isinstance(statements, Mapping):
        statements = [statements]
    return tuple(_read_statement(statement) for statement in statements)


def is_allowed(policy: Iterable[Statement], action: str, resource: str) -> bool:
    """Whether *policy* lets its holder do *action* on *resource*."""
    verdicts = {statement.allows for statement in policy if statement.matches(action, resource)}
    return verdicts == {True}


def _read_statement(statement: Mapping[str, Any]) -> Statement:
    unknown = set(statement) - _KNOWN
    if unknown:
        raise UnknownPolicyError(f"cannot judge {', '.join(sorted(unknown))}")
    if statement.get("Effect") not in ("Allow", "Deny"):
        raise UnknownPolicyError("Effect is neither Allow nor Deny")
    actions, actions_negated = _one_of(statement, "Action", "NotAction")
    resources, resources_negated = _one_of(statement, "Resource", "NotResource")
    return Statement(statement["Effect"] == "Allow", actions, actions_negated, resources, resources_negated)


def _one_of(statement: Mapping[str, Any], plain: str, negated: str) -> tuple[tuple[str, ...], bool]:
    if (plain in statement) == (negated in statement):
        raise UnknownPolicyError(f"needs exactly one of {plain} and {negated}")
    values = statement[plain] if plain in statement else statement[negated]
    patterns = (values,) if isinstance(values, str) else tuple(values)
    for pattern in patterns:
        if not isinstance(pattern, str) or "${" in pattern:
            raise UnknownPolicyError("policy variables are not known here")
    return patterns, negated in statement


def _arn_matches(pattern: str, arn: str) -> bool:
    # A wildcard does not reach over the colons of an ARN; inside its last part it does reach over slashes.
    if pattern == "*":
        return True
    wanted, given = pattern.split(":", 5), arn.split(":", 5)
    return len(wanted) == len(given) and all(_matches(w, g) for w, g in zip(wanted, given, strict=True))


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), re.DOTALL)
