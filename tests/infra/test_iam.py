"""The evaluation of a role by which recorded calls are judged: tests for the tests."""

import pytest

from tests.infra.iam import LEADING_KEYS, PURPOSE, Call, Permission, calls_of, is_like, permissions_of

ITEMS = Permission("Items", "dynamodb:PutItem", "${Table.Arn}", ((LEADING_KEYS, ("O#*", "Q#*")),))
KEYS = Permission("Keys", "kms:Decrypt", "${RingKey.Arn}", ((PURPOSE, ("use", "index")),))


@pytest.mark.parametrize(
    ("value", "pattern", "expected"),
    [
        ("O#t#o", "O#*", True),
        ("XO#t#o", "O#*", False),
        ("K#ring", "K#ring", True),
        ("K#ring2", "K#ring", False),
        ("a/b/c", "a/*", True),
        ("abc", "a?c", True),
        ("ac", "a?c", False),
        ("a.c", "abc", False),
        ("parameter[x]", "parameter[x]", True),
    ],
)
def test_a_pattern_matches_as_iam_has_it(value: str, pattern: str, expected: bool) -> None:
    """A star crosses everything, and nothing else is special."""
    assert is_like(value, pattern) is expected


@pytest.mark.parametrize(
    ("action", "resource", "leading", "expected"),
    [
        ("dynamodb:PutItem", "${Table.Arn}", {"O#t#o"}, True),
        ("dynamodb:putitem", "${Table.Arn}", {"O#t#o", "Q#r"}, True),
        ("dynamodb:PutItem", "${Table.Arn}", {"O#t#o", "K#ring"}, False),
        ("dynamodb:PutItem", "${Table.Arn}/index/due", {"O#t#o"}, False),
        ("dynamodb:DeleteItem", "${Table.Arn}", {"O#t#o"}, False),
    ],
)
def test_every_leading_key_must_be_allowed(action: str, resource: str, leading: set[str], expected: bool) -> None:
    """As for a transaction that reaches into a partition that the role does not have."""
    assert ITEMS.allows(Call(action, resource, ((LEADING_KEYS, frozenset(leading)),))) is expected


@pytest.mark.parametrize(("purpose", "expected"), [("use", True), ("revoke", False)])
def test_a_key_opens_for_its_purposes_alone(purpose: str, expected: bool) -> None:
    """And not at all where none is said."""
    assert KEYS.allows(Call("kms:Decrypt", "${RingKey.Arn}", ((PURPOSE, frozenset({purpose})),))) is expected
    assert not KEYS.allows(Call("kms:Decrypt", "${RingKey.Arn}"))


def test_a_transaction_is_an_action_for_each_of_its_parts() -> None:
    """Each held to the leading keys of all."""
    item = {"TableName": "t", "Key": {"PK": {"S": "Q#r"}, "SK": {"S": "Q"}}}
    put = {"TableName": "t", "Item": {"PK": {"S": "O#t#o"}, "SK": {"S": "S"}}}
    parts = [{"ConditionCheck": item}, {"Put": put}]

    calls = list(calls_of("dynamodb", "TransactWriteItems", {"TransactItems": parts}))

    assert [call.action for call in calls] == ["dynamodb:ConditionCheckItem", "dynamodb:PutItem"]
    assert {keys for call in calls for _, keys in call.values} == {frozenset({"O#t#o", "Q#r"})}


def test_what_is_not_known_is_no_permission() -> None:
    """A call or a condition that nobody has thought of fails the test that meets it."""
    with pytest.raises(AssertionError, match="s3"):
        list(calls_of("s3", "GetObject", {}))
    strange = Permission("S", "dynamodb:PutItem", "*", ((("StringEquals", "aws:SourceIp"), ("x",)),))
    with pytest.raises(AssertionError, match="SourceIp"):
        strange.allows(Call("dynamodb:PutItem", "${Table.Arn}"))


def test_the_conditions_of_the_template_are_known() -> None:
    """Every role is read without an error."""
    for role in ("AppApiRole", "AccessTokenRole", "ConnectRole", "RevokeSweepRole", "ReconcileRole", "MaintainRole"):
        for each in permissions_of(role):
            each.allows(Call(each.action, each.resource))
