"""Who may do what: the roles, the keys, and the table of purposes in docs/threat-model.md."""

import re
from difflib import unified_diff
from typing import Any

import pytest

from quitclaim.store.keys import PREFIXES
from tests.infra.deployed import (
    PERMISSIONS,
    ROOT,
    functions,
    listed,
    of_type,
    permissions,
    role_of,
    short,
    statements,
)

PURPOSES = {
    "app_api": {"confirm", "index"},
    "access_token": {"use", "revoke", "index"},
    "connect": {"authorization", "use", "revoke", "confirm", "index", "inbox"},
    "revoke_sweep": {"revoke", "index"},
    "publish": set(),
    "reconcile": set(),
    "maintain": set(),
    "deliver": {"inbox", "index"},
    "webhook": {"inbox", "index"},
}
NAMED_BY_OTHERS = re.compile(
    r"^arn:\$\{AWS::Partition\}:(ssm|secretsmanager):\$\{AWS::Region\}:\$\{AWS::AccountId\}:"
    r"(parameter/quitclaim-(secrets|hooks)/\$\{AWS::StackName\}/\*|secret:quitclaim/\$\{AWS::StackName\}/\*)$"
)
"""Secrets of clients and keys of hooks are made by hand and named by hand: only the stack's folder is known here."""
STREAMS = "${Table.Arn}/stream/*"
"""Of the one table; a list has no other resource."""


NO = "\N{EN DASH}"


def purposes_of(function: str) -> set[str]:
    """The purposes whose data keys the function may unwrap."""
    return {
        purpose
        for statement in statements(role_of(function))
        if {"kms:Decrypt", "kms:GenerateDataKey"} & set(listed(statement["Action"]))
        for purpose in listed(statement["Condition"]["StringEquals"]["kms:EncryptionContext:purpose"])
    }


def leading_keys(statement: dict[str, Any]) -> list[str]:
    """The partitions that a statement on items is confined to."""
    return listed(statement.get("Condition", {}).get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys", []))


@pytest.mark.rule("S-18")
def test_every_permission_is_on_the_list() -> None:
    """The permissions are those of permissions.txt; a change there is read by a person."""
    recorded = PERMISSIONS.read_text(encoding="utf-8").splitlines()

    diff = list(unified_diff(recorded, permissions(), "permissions.txt", "template.yaml", lineterm="", n=0))

    assert not diff, "\n".join(["", *diff, "", "meant like this? python -m tests.infra.deployed, and read the diff"])


@pytest.mark.rule("S-18")
def test_each_function_has_a_role_of_its_own() -> None:
    """No two functions share a role, and no role has a policy that somebody else writes."""
    roles = [role_of(function) for function in functions()]

    assert len(set(roles)) == len(roles)
    for role in of_type("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role
        assert "Policies" not in role, "policies stand beside their role, as resources"
    for policy in of_type("AWS::IAM::Policy").values():
        assert len(policy["Roles"]) == 1


@pytest.mark.rule("S-18")
def test_actions_are_single_and_resources_named() -> None:
    """No action and no resource has a wildcard, apart from the client secrets of the stack."""
    for policy in of_type("AWS::IAM::Policy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            assert not {"NotAction", "NotResource"} & set(statement)
            for action in listed(statement["Action"]):
                assert "*" not in action
            for resource in map(short, listed(statement["Resource"])):
                is_listing = listed(statement["Action"]) == ["dynamodb:ListStreams"] and resource == STREAMS
                assert "*" not in resource or NAMED_BY_OTHERS.match(resource) or is_listing, resource


@pytest.mark.rule("S-17")
@pytest.mark.parametrize("function", sorted(PURPOSES))
def test_a_function_unwraps_its_own_purposes_only(function: str) -> None:
    """The purposes of a function are those of the design, each pinned by the encryption context."""
    assert purposes_of(function) == PURPOSES[function]


def test_the_table_of_purposes_in_the_threat_model_is_true() -> None:
    """The table of docs/threat-model.md says of each function and purpose what the template says."""
    lines = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    header = next(row for row in rows if row[0] == "function")
    table = {row[0].strip("`"): row[1:] for row in rows[rows.index(header) + 2 :][: len(functions())]}

    said = {name: {header[n] for n, cell in enumerate(row, 1) if cell == "yes"} for name, row in table.items()}

    assert said == {function: purposes_of(function) for function in functions()}
    assert all(cell in {"yes", NO} for row in table.values() for cell in row)


def test_the_ring_key_opens_for_the_sealing_functions_only() -> None:
    """The key's policy admits the roles that have a purpose; the account itself may administer it, not use it."""
    key = of_type("AWS::KMS::Key")["RingKey"]
    by_id = {statement["Sid"]: statement for statement in key["KeyPolicy"]["Statement"]}
    users, maker = by_id.pop("FunctionsByTheirOwnPolicies"), by_id.pop("KeysAreMadeUnseen")

    admitted = {short(arn) for arn in users["Condition"]["StringEquals"]["aws:PrincipalArn"]}

    assert admitted == {f"${{{role_of(function)}.Arn}}" for function, purposes in PURPOSES.items() if purposes}
    assert set(users["Action"]) == {"kms:Decrypt", "kms:GenerateDataKey"}
    assert listed(maker["Action"]) == ["kms:GenerateDataKeyWithoutPlaintext"]
    assert short(maker["Condition"]["StringEquals"]["aws:PrincipalArn"]) == f"${{{role_of('maintain')}.Arn}}"
    assert set(by_id) == {"AdministeredByTheAccount"}
    assert_administers_only(by_id["AdministeredByTheAccount"])


def test_the_table_key_is_used_through_dynamodb_only() -> None:
    """Nobody uses the table's key in any other way than by using the table."""
    key = of_type("AWS::KMS::Key")["TableKey"]
    by_id = {statement["Sid"]: statement for statement in key["KeyPolicy"]["Statement"]}

    condition = by_id["OnlyThroughDynamoDB"]["Condition"]["StringEquals"]

    assert short(condition["kms:ViaService"]) == "dynamodb.${AWS::Region}.amazonaws.com"
    assert short(condition["kms:CallerAccount"]) == "${AWS::AccountId}"
    assert set(by_id) == {"OnlyThroughDynamoDB", "AdministeredByTheAccount"}
    assert_administers_only(by_id["AdministeredByTheAccount"])


def assert_administers_only(statement: dict[str, Any]) -> None:
    """None of the actions opens, seals or hands on the right to."""
    uses = ("Decrypt", "Encrypt", "ReEncrypt", "GenerateDataKey", "GenerateMac", "CreateGrant", "Sign", "DeriveShared")
    assert not [action for action in statement["Action"] if action.removeprefix("kms:").startswith(uses)]
    assert not [action for action in statement["Action"] if "*" in action]


@pytest.mark.rule("S-18")
def test_items_are_reached_by_their_partition() -> None:
    """Every statement on items names the kinds of partition it is for, and these exist."""
    known = {partition for partition, _ in PREFIXES.values()}
    for function in functions():
        for statement in statements(role_of(function)):
            if listed(statement["Action"]) == ["dynamodb:Scan"]:
                assert function == "maintain", "a scan is confined to nothing"
            elif (
                listed(statement["Action"])[0].startswith("dynamodb:")
                and short(statement["Resource"]) == "${Table.Arn}"
            ):
                keys = leading_keys(statement)
                assert keys, f"{function}: {statement['Sid']}"
                for key in keys:
                    assert key == "K#ring" or (key.endswith("#*") and key[:-1] in known), key


def test_the_ring_is_only_added_to() -> None:
    """Only maintain may change or remove a ring entry: what it sealed could never be opened again."""
    for function in functions().keys() - {"maintain"}:
        for statement in statements(role_of(function)):
            if any(key.startswith(("K#", "*")) for key in leading_keys(statement)):
                assert set(listed(statement["Action"])) <= {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"}


def test_who_makes_the_keys_sees_none() -> None:
    """maintain makes data keys wrapped only, never the index key, and reads no client's secret."""
    allowed = [line for line in permissions() if line.startswith(f"{role_of('maintain')} |")]

    assert [line for line in allowed if "kms:" in line] == [
        f"{role_of('maintain')} | kms:GenerateDataKeyWithoutPlaintext | ${{RingKey.Arn}} | "
        "StringEquals kms:EncryptionContext:purpose authorization confirm inbox revoke use"
    ]
    assert not [line for line in allowed if "secret" in line]


@pytest.mark.parametrize("function", ["reconcile", "publish"])
def test_who_has_no_purpose_has_no_ring(function: str) -> None:
    """reconcile moves sealed bytes, publish events: neither reads the ring or a client's secret."""
    allowed = [line for line in permissions() if line.startswith(f"{role_of(function)} |")]

    assert allowed
    assert not [line for line in allowed if "K#" in line or "kms:" in line or "secret" in line]


def test_the_audit_trail_is_only_added_to() -> None:
    """Only the function that operators call writes it, and nobody may read, change or remove an entry by a role."""
    for function in functions():
        for statement in statements(role_of(function)):
            if any(key.startswith(("U#", "*")) for key in leading_keys(statement)):
                assert (function, listed(statement["Action"])) == ("app_api", ["dynamodb:PutItem"])


def test_indexes_are_queried_only_by_who_sweeps() -> None:
    """An index is reached by Query alone, and only by the functions that look for what is due, or show who waits."""
    for function in functions():
        for statement in statements(role_of(function)):
            indexes = [r for r in map(short, listed(statement["Resource"])) if "/index/" in r]
            if indexes:
                assert function in ("revoke_sweep", "reconcile", "maintain") or indexes == [
                    "${Table.Arn}/index/attention"
                ]
                assert listed(statement["Action"]) == ["dynamodb:Query"]


def test_only_the_sender_of_refreshes_is_asked_to_refresh() -> None:
    """access_token alone sends refreshes, within its lease; reconcile, maintain and deliver may ask it to."""
    may = [
        line.split(" | ")[0] for line in permissions() if "lambda:InvokeFunction | ${AccessTokenFunction.Arn}" in line
    ]

    assert may == sorted(role_of(function) for function in ("reconcile", "maintain", "deliver"))


def test_api_gateway_invokes_by_route() -> None:
    """The API may invoke a function for the routes that it has, not for any."""
    for permission in of_type("AWS::Lambda::Permission").values():
        assert permission["Principal"] == "apigateway.amazonaws.com"
        assert re.search(
            r"\$\{HttpApi\}/\*/[A-Z]+/(v1|connect|callback|events|removal|webhooks)", short(permission["SourceArn"])
        )
