"""What every function, the table, the configuration and the layers must have."""

import json
import re
from typing import Any

import pytest

from quitclaim.domain import limits
from quitclaim.store.keys import PREFIXES
from tests.infra.deployed import (
    ROOT,
    function_ids,
    functions,
    of_type,
    permissions,
    resources,
    role_of,
    short,
    source,
    variables,
)

FUNCTIONS = (
    "access_token",
    "app_api",
    "connect",
    "deliver",
    "maintain",
    "publish",
    "reconcile",
    "revoke_sweep",
    "webhook",
)
EVERYWHERE = {
    "QUITCLAIM_TABLE": "${Table}",
    "QUITCLAIM_RING_KEY": "${RingKey.Arn}",
    "QUITCLAIM_CONFIG_PATH": "/quitclaim/${AWS::StackName}",
    "POWERTOOLS_METRICS_NAMESPACE": "Quitclaim/${AWS::StackName}",
    "POWERTOOLS_LOG_LEVEL": "INFO",
}
RETURN_ORIGINS = {"QUITCLAIM_RETURN_ORIGINS": "${ReturnOrigins}"}
SWEEP = {"QUITCLAIM_SWEEP_FUNCTION": "${RevokeSweepFunction}"}
EVENT_BUS = {"QUITCLAIM_EVENT_BUS": "${EventBus}"}
ACCESS_TOKEN = {"QUITCLAIM_ACCESS_TOKEN_FUNCTION": "${AccessTokenFunction}"}
QUEUE = {"QUITCLAIM_DELIVERY_QUEUE": "${DeliveryQueue}"}
BESIDES: dict[str, dict[str, str]] = {
    "app_api": RETURN_ORIGINS | SWEEP,
    "connect": RETURN_ORIGINS | SWEEP | QUEUE,
    "access_token": SWEEP,
    "publish": EVENT_BUS,
    "reconcile": SWEEP | ACCESS_TOKEN | EVENT_BUS | QUEUE,
    "deliver": SWEEP | ACCESS_TOKEN | QUEUE,
    "webhook": QUEUE,
    "revoke_sweep": {},
    "maintain": ACCESS_TOKEN,
}
GATEWAY_MS = 30_000
SECOND = 1_000

every_function = pytest.mark.parametrize("name", FUNCTIONS)


def timeout_ms(name: str) -> int:
    """The function's time-out."""
    return int(functions()[name]["Timeout"]) * SECOND


def test_the_functions_are_these() -> None:
    """The functions are those of this page; another one has to be judged by these tests too."""
    assert tuple(sorted(functions())) == FUNCTIONS


def test_no_save_names_a_time_that_a_hand_out_no_longer_looks_back_to() -> None:
    """Whoever refreshes is over before, by any clock of ours."""
    assert timeout_ms("access_token") + limits.GUARD_MS < limits.SAVED_RECENTLY_MS


# --- every function ---------------------------------------------------------------------------------------------------


@every_function
def test_a_function_runs_on_the_runtime_that_is_tested(name: str) -> None:
    """Python 3.13 on arm64, both layers, one handler name."""
    function = functions()[name]

    assert function["Runtime"] == "python3.13"
    assert function["Architectures"] == ["arm64"]
    assert function["Handler"] == "app.handler"
    assert [re.sub(r"[0-9a-f]{10}$", "", layer["Ref"]) for layer in function["Layers"]] == [
        "QuitclaimLayer",
        "VendorLayer",
    ]


@every_function
def test_a_function_logs_to_its_own_group(name: str) -> None:
    """JSON logs, in a group of the function's own, which is kept as long as the operator says."""
    logging = functions()[name]["LoggingConfig"]
    group = of_type("AWS::Logs::LogGroup")[logging["LogGroup"]["Ref"]]

    assert logging["LogFormat"] == "JSON"
    assert short(group["LogGroupName"]) == f"/quitclaim/${{AWS::StackName}}/{name}"
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    written = [line for line in permissions() if line.startswith(f"{role_of(name)} | logs:PutLogEvents")]
    assert [line.split(" | ")[2] for line in written] == [f"${{{logging['LogGroup']['Ref']}.Arn}}"]


@every_function
def test_an_asynchronous_call_is_never_repeated(name: str) -> None:
    """No retry, at most a minute in the queue, and what fails is kept where an alarm sees it."""
    (config,) = [
        each
        for each in of_type("AWS::Lambda::EventInvokeConfig").values()
        if each["FunctionName"] == {"Ref": function_ids()[name]}
    ]

    assert config["MaximumRetryAttempts"] == 0
    assert config["MaximumEventAgeInSeconds"] == 60
    assert short(config["DestinationConfig"]["OnFailure"]["Destination"]) == "${FailureQueue.Arn}"
    assert f"{role_of(name)} | sqs:SendMessage | ${{FailureQueue.Arn}} | always" in permissions()


@pytest.mark.rule("S-28")
@every_function
def test_an_environment_holds_names_and_no_secret(name: str) -> None:
    """The variables are the known ones, each a name or an ARN; client secrets are read from their own stores."""
    expected = EVERYWHERE | BESIDES[name] | {"POWERTOOLS_SERVICE_NAME": name}

    assert {key: short(value) for key, value in variables(name).items()} == expected


@pytest.mark.rule("S-28")
def test_no_secret_is_in_the_template() -> None:
    """No parameter is hidden and nothing is resolved into the template: what is not in it cannot be read from it."""
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")

    assert "NoEcho" not in text
    assert "{{resolve" not in text
    assert not [
        name for name in source()["Parameters"] if re.search(r"secret|token|password|credential", name, re.IGNORECASE)
    ]


# --- time-outs against the protocol's constants -----------------------------------------------------------------------


def test_whoever_begins_an_exchange_ends_before_its_window() -> None:
    """1: connect.timeout + GUARD < WINDOW."""
    assert timeout_ms("connect") + limits.GUARD_MS < limits.WINDOW_MS


def test_whoever_refreshes_ends_before_its_lease() -> None:
    """2: access_token.timeout + GUARD < R_LEASE."""
    assert timeout_ms("access_token") + limits.GUARD_MS < limits.REFRESH_LEASE_MS


def test_a_callback_fits_into_the_gateway() -> None:
    """3: EXCHANGE_CALL + IDENTITY + HOOK + the table's 4 s <= 25 s < connect.timeout < 30 s."""
    calls = limits.EXCHANGE_CALL_MS + limits.IDENTITY_CALL_MS + limits.HOOK_CALL_MS + limits.SAVE_MS

    assert calls <= limits.CALLBACK_BUDGET_MS < timeout_ms("connect") < GATEWAY_MS


def test_an_import_fits_into_its_function_and_its_window() -> None:
    """
    A refresh of the shortest kind, identity, hold, install and the record before them end before access_token does,
    which ends before the exchange's window.
    """
    after_the_call = limits.IDENTITY_CALL_MS + 2 * limits.SAVE_MS

    assert limits.REFRESH_CALL_MIN_MS + after_the_call + limits.SAVE_MS < timeout_ms("access_token")
    assert timeout_ms("access_token") + limits.GUARD_MS < limits.WINDOW_MS


def test_a_loser_of_a_refresh_still_has_time_to_send_one() -> None:
    """4: LOSER_WAIT + REFRESH_CALL_min + SAVE < access_token.timeout."""
    assert timeout_ms("access_token") > limits.LOSER_WAIT_MS + limits.REFRESH_CALL_MIN_MS + limits.SAVE_MS


def test_schedules_and_time_outs_fit() -> None:
    """9: revoke_sweep.timeout > C_LEASE + 20 s; reconcile.timeout <= 55 s < SWEEP."""
    assert timeout_ms("revoke_sweep") > limits.CLAIM_LEASE_MS + 20 * SECOND
    assert timeout_ms("reconcile") <= 55 * SECOND < limits.SWEEP_MS


def test_a_delivery_is_handled_before_its_claim_ends() -> None:
    """
    deliver.timeout + GUARD < TRACE; a message is out of sight until its worker's claim is over, and five receipts are
    less than the queue keeps it.
    """
    queue = of_type("AWS::SQS::Queue")["DeliveryQueue"]
    visibility_ms = int(queue["VisibilityTimeout"]) * SECOND

    assert timeout_ms("deliver") + limits.GUARD_MS < limits.DELIVERY_LEASE_MS
    assert visibility_ms > limits.DELIVERY_LEASE_MS + limits.GUARD_MS
    assert visibility_ms >= 6 * timeout_ms("deliver"), "as Lambda asks of a queue that starts a function"
    receives = int(queue["RedrivePolicy"]["maxReceiveCount"])
    assert receives * visibility_ms < int(queue["MessageRetentionPeriod"]) * SECOND <= limits.PARKED_MS


def test_a_delivery_that_is_not_settled_lies_with_the_dead_letters() -> None:
    """After five receipts, for two weeks, encrypted; each message of a batch on its own, and not all of the account."""
    queues = of_type("AWS::SQS::Queue")
    (source,) = [
        each
        for each in of_type("AWS::Lambda::EventSourceMapping").values()
        if short(each["EventSourceArn"]) == "${DeliveryQueue.Arn}"
    ]

    assert short(queues["DeliveryQueue"]["RedrivePolicy"]["deadLetterTargetArn"]) == "${DeliveryDeadLetters.Arn}"
    assert queues["DeliveryQueue"]["RedrivePolicy"]["maxReceiveCount"] == 5
    assert queues["DeliveryDeadLetters"]["MessageRetentionPeriod"] == 14 * 24 * 3600
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["ScalingConfig"] == {"MaximumConcurrency": 20}


def test_maintain_ends_before_it_is_started_again() -> None:
    """Two runs at once are safe and would only do the same twice."""
    assert timeout_ms("maintain") < 15 * 60 * SECOND


def test_the_throttle_bounds_what_one_key_seals() -> None:
    """
    Fewer than 2^32 seals under one data key: a request seals at most twice for one purpose, and the API
    admits so many in the life of a key and the lead of the next.
    """
    (stage,) = of_type("AWS::ApiGatewayV2::Stage").values()
    per_s = stage["DefaultRouteSettings"]["ThrottlingRateLimit"]

    assert 2 * per_s * (limits.KEY_LIFE_MS + limits.KEY_LEAD_MS + 15 * 60 * SECOND) // SECOND < 2**32


@pytest.mark.parametrize("name", ["app_api", "access_token", "connect", "webhook"])
def test_a_function_behind_the_gateway_ends_before_it(name: str) -> None:
    """A function that answers the API is never cut off by the gateway while it still works."""
    assert timeout_ms(name) < GATEWAY_MS


# --- schedules --------------------------------------------------------------------------------------------------------


def test_the_schedules_fire_as_often_as_they_must() -> None:
    """Two each minute, maintain each quarter of an hour, by a role that may start these three."""
    schedules = of_type("AWS::Scheduler::Schedule")
    names = {f"${{{logical_id}.Arn}}": name for name, logical_id in function_ids().items()}

    rates = {names[short(each["Target"]["Arn"])]: each["ScheduleExpression"] for each in schedules.values()}

    assert rates == {"revoke_sweep": "rate(1 minute)", "reconcile": "rate(1 minute)", "maintain": "rate(15 minutes)"}
    targets = {short(each["Target"]["Arn"]) for each in schedules.values()}
    for each in schedules.values():
        assert each["FlexibleTimeWindow"] == {"Mode": "OFF"}
        assert each["Target"]["RetryPolicy"] == {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
        assert short(each["Target"]["RoleArn"]) == "${SchedulerRole.Arn}"
        assert "Name" not in each, "a name of ours would be the same in every stack of the account"
    started = {line.split(" | ")[2] for line in permissions() if line.startswith("SchedulerRole |")}
    assert started == targets


# --- the stream -------------------------------------------------------------------------------------------------------


def test_the_stream_tells_of_the_outbox_and_of_nothing_else() -> None:
    """New outbox events alone; what fails is told again in parts, so many times, and then kept as a trace."""
    (mapping,) = [each for each in of_type("AWS::Lambda::EventSourceMapping").values() if "StartingPosition" in each]

    assert mapping["FunctionName"] == {"Ref": function_ids()["publish"]}
    assert short(mapping["EventSourceArn"]) == "${Table.StreamArn}"
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    (pattern,) = [json.loads(each["Pattern"]) for each in mapping["FilterCriteria"]["Filters"]]
    partition, sort = PREFIXES["event"]
    assert pattern == {
        "eventName": ["INSERT"],
        "dynamodb": {"Keys": {"PK": {"S": [{"prefix": partition}]}, "SK": {"S": [{"prefix": sort}]}}},
    }
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["BatchSize"] <= 100, "what one consistent read takes"
    assert 0 < mapping["MaximumRetryAttempts"] <= 10
    assert short(mapping["DestinationConfig"]["OnFailure"]["Destination"]) == "${FailureQueue.Arn}"


def test_the_bus_is_the_stacks_own() -> None:
    """Named after the stack, and told to the operator."""
    (bus,) = of_type("AWS::Events::EventBus").values()

    assert short(bus["Name"]) == "quitclaim-${AWS::StackName}"
    assert {"EventBusName", "EventBusArn"} <= set(source()["Outputs"])


# --- the table and the keys -------------------------------------------------------------------------------------------


def test_the_table_has_its_keys_and_indexes() -> None:
    """PK and SK, and the three sparse indexes with what they project."""
    table = of_type("AWS::DynamoDB::Table")["Table"]

    def keys(schema: list[dict[str, str]]) -> tuple[str, ...]:
        assert [each["KeyType"] for each in schema] == ["HASH", "RANGE"]
        return tuple(each["AttributeName"] for each in schema)

    indexes: dict[str, Any] = {each["IndexName"]: each for each in table["GlobalSecondaryIndexes"]}
    assert keys(table["KeySchema"]) == ("PK", "SK")
    assert {name: keys(each["KeySchema"]) for name, each in indexes.items()} == {
        "due": ("d1", "d2"),
        "attention": ("a1", "a2"),
        "roster": ("r1", "r2"),
    }
    assert {name: each["Projection"] for name, each in indexes.items()} == {
        "due": {"ProjectionType": "KEYS_ONLY"},
        "attention": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["t"]},
        "roster": {"ProjectionType": "KEYS_ONLY"},
    }
    assert {each["AttributeType"] for each in table["AttributeDefinitions"]} == {"S"}


def test_the_table_is_kept_encrypted_and_recoverable() -> None:
    """On demand, our own key, point-in-time recovery, TTL by `ttl`, a stream of new images, no accidental deletion."""
    table = of_type("AWS::DynamoDB::Table")["Table"]

    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["SSESpecification"] == {
        "SSEEnabled": True,
        "SSEType": "KMS",
        "KMSMasterKeyId": {"Fn::GetAtt": ["TableKey", "Arn"]},
    }
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert table["DeletionProtectionEnabled"] is True


@pytest.mark.parametrize("name", ["Table", "TableKey", "RingKey"])
def test_what_grants_depend_on_outlives_the_stack(name: str) -> None:
    """Deleting or replacing the stack keeps the table and the keys; without one of them every grant is lost."""
    resource = resources()[name]

    assert resource["DeletionPolicy"] == "Retain"
    assert resource["UpdateReplacePolicy"] == "Retain"


@pytest.mark.parametrize("name", ["TableKey", "RingKey"])
def test_the_keys_rotate(name: str) -> None:
    """Both keys are rotated by KMS and can be rescued for 30 days."""
    key = of_type("AWS::KMS::Key")[name]

    assert key["EnableKeyRotation"] is True
    assert key["PendingWindowInDays"] == 30


def test_the_failure_queue_is_encrypted_and_patient() -> None:
    """Failed calls lie encrypted for two weeks, the longest that a queue can keep them."""
    queue = of_type("AWS::SQS::Queue")["FailureQueue"]

    assert queue["SqsManagedSseEnabled"] is True
    assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600


# --- configuration ----------------------------------------------------------------------------------------------------


def test_base_url_and_api_id_are_parameters() -> None:
    """The public address is the operator's if one was given, else the API's own; the API's id is beside it."""
    by_name = {short(each["Name"]): each for each in of_type("AWS::SSM::Parameter").values()}

    assert set(by_name) == {"/quitclaim/${AWS::StackName}/base-url", "/quitclaim/${AWS::StackName}/api-id"}
    assert by_name["/quitclaim/${AWS::StackName}/base-url"]["Value"] == {
        "Fn::If": [
            "HasPublicBaseUrl",
            {"Ref": "PublicBaseUrl"},
            {"Fn::Sub": "https://${HttpApi}.execute-api.${AWS::Region}.${AWS::URLSuffix}"},
        ]
    }
    assert by_name["/quitclaim/${AWS::StackName}/api-id"]["Value"] == {"Ref": "HttpApi"}


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("", True),
        ("https://connect.example.com", True),
        ("https://connect.example.com:8443", True),
        ("https://connect.example.com/", False),
        ("https://connect.example.com/path", False),
        ("http://connect.example.com", False),
        ("https://user@example.com", False),
    ],
)
def test_the_public_base_url_is_an_origin(value: str, *, accepted: bool) -> None:
    """PublicBaseUrl is empty or https://host: `__Host-` cookies and callback URLs stand on it."""
    pattern = source()["Parameters"]["PublicBaseUrl"]["AllowedPattern"]

    assert bool(re.fullmatch(pattern, value)) is accepted


def test_the_operator_is_told_what_to_register() -> None:
    """The outputs name the API, the callback URL, the table, the configuration path and the ring key."""
    assert {"ApiUrl", "ApiArn", "CallbackUrl", "TableName", "ConfigPath", "RingKeyArn"} <= set(source()["Outputs"])


# --- layers -----------------------------------------------------------------------------------------------------------


def test_our_layer_is_the_folder_as_it_is() -> None:
    """Our code is not built: SAM would put a second `python/` around it."""
    layer = source()["Resources"]["QuitclaimLayer"]

    assert "Metadata" not in layer
    assert (ROOT / layer["Properties"]["ContentUri"] / "python" / "quitclaim" / "__init__.py").is_file()


def test_the_vendor_layer_is_built_by_hash_for_the_functions_architecture() -> None:
    """The vendor layer is made from the hashed lock, from wheels, for arm64."""
    layer = source()["Resources"]["VendorLayer"]
    makefile = (ROOT / layer["Properties"]["ContentUri"] / "Makefile").read_text(encoding="utf-8")

    assert layer["Metadata"] == {"BuildMethod": "makefile", "BuildArchitecture": "arm64"}
    assert "build-VendorLayer:" in makefile
    for option in ("--require-hashes", "--only-binary :all:", "--python-version 3.13", "requirements/runtime.txt"):
        assert option in makefile
    assert "index-url" not in makefile
    assert all(tag.endswith("_aarch64") for tag in re.findall(r"manylinux\w+", makefile))


def test_the_vendor_layer_describes_every_service_that_is_called() -> None:
    """A service that a function may call is among the descriptions that the layer keeps."""
    makefile = (ROOT / "layers" / "vendor" / "Makefile").read_text(encoding="utf-8")
    (kept,) = re.findall(r"^SERVICES := (.*)$", makefile, re.MULTILINE)
    by_lambda_itself = {"logs", "sqs"}

    called = {line.split(" | ")[1].split(":")[0] for line in permissions() if "Role | " in line.split("kms:")[0]}

    assert called - by_lambda_itself - {"sts"} <= set(kept.split())
