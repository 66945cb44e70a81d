"""Invocations of the small stack's functions: the Invoke API, deadlines, kills, schedules by the moved clock."""

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from infra.local.listeners import bind
from infra.local.stack import LocalStack, LocalStackError
from infra.local.template import read_template
from infra.local.workers import EventTooOldError, Outcome, Pool, Verdict
from tests.infra.local.conftest import SMALL


def invoke(stack: LocalStack, payload: object, name: str = "local-tick", **more: Any) -> Any:
    return stack.boto3_client("lambda").invoke(FunctionName=name, Payload=json.dumps(payload), **more)


def soon(condition: Callable[[], bool], within_s: float = 10) -> None:
    """Return once *condition* holds; processes and threads are asked for nothing but their effect."""
    ends_at = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends_at, "it never became true"
        time.sleep(0.01)


def notes(ticks: Path, note: str) -> int:
    return ticks.read_text().splitlines().count(note) if ticks.exists() else 0


def test_an_invocation_sees_what_lambda_shows_it(stack: LocalStack) -> None:
    """A true deadline, the function's ARN, its folder, its environment with every reference resolved; no real key."""
    answer = invoke(stack, {})
    seen = json.loads(answer["Payload"].read())

    assert "FunctionError" not in answer
    assert 900 < seen["left_ms"] <= 1000
    assert seen["arn"] == "arn:aws:lambda:us-east-1:000000000000:function:local-tick"
    assert seen["cwd"] == seen["environment"]["LAMBDA_TASK_ROOT"] == str(SMALL.parent / "functions" / "tick")
    environment = seen["environment"]
    assert environment["TABLE"] == stack.resources["Table"]
    assert environment["KEY"].endswith(stack.resources["Key"])
    assert environment["QUEUE"].endswith(" of local-echo")
    assert environment["TICK_FUNCTION"] == environment["AWS_LAMBDA_FUNCTION_NAME"] == "local-tick"
    assert environment["QUITCLAIM_CONFIG_PATH"] == stack.config_path == "/quitclaim/local"
    assert environment["AWS_ENDPOINT_URL"] == stack.ministack_url
    assert environment["AWS_ENDPOINT_URL_LAMBDA"] == stack.lambda_url
    assert environment["AWS_ACCESS_KEY_ID"] == "test"
    assert Path(environment["QUITCLAIM_CLOCK_FILE"]).read_text().isdigit()
    assert "QUITCLAIM_CATALOGUE" not in environment
    assert "HOME" not in environment


def test_the_resources_are_those_of_the_template(stack: LocalStack) -> None:
    """What MiniStack's CloudFormation drops is there all the same: TTL, recovery, encryption with the stack's key."""
    dynamodb, table = stack.boto3_client("dynamodb"), stack.resources["Table"]
    described = dynamodb.describe_table(TableName=table)["Table"]

    assert described["SSEDescription"]["KMSMasterKeyArn"].endswith(stack.resources["Key"])
    assert described["StreamSpecification"]["StreamViewType"] == "NEW_IMAGE"
    ttl = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "ttl")
    backups = dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    assert set(stack.resources) == {"Key", "Table", "Queue"}


def test_the_configuration_names_this_api(stack: LocalStack) -> None:
    """base-url and api-id are the front's; a client's secret is encrypted and named, not written."""
    ssm = stack.boto3_client("ssm")

    stack.add_client("dot", {"provider": "dot", "client_id": "id"}, "made-up-secret")

    found = ssm.get_parameters_by_path(Path=stack.config_path, Recursive=True)["Parameters"]
    values = {each["Name"].removeprefix(stack.config_path): each["Value"] for each in found}
    assert (values["/base-url"], values["/api-id"]) == (stack.base_url, stack.api_id)
    client = json.loads(values["/clients/dot"])
    assert client == {
        "provider": "dot",
        "client_id": "id",
        "secret": f"ssm:/quitclaim-secrets/{stack.config_path.rsplit('/', 1)[1]}/dot",
    }
    assert "made-up-secret" not in json.dumps(values)


def test_a_warm_invocation_takes_milliseconds(stack: LocalStack) -> None:
    """With Nagle's algorithm on either side it would take 40 ms and more (the best of 20 says so on a busy machine)."""
    client = stack.boto3_client("lambda")
    took = []
    for _ in range(20):
        began = time.monotonic()
        client.invoke(FunctionName="local-tick", Payload=b"{}")["Payload"].read()
        took.append(time.monotonic() - began)

    assert min(took) < 0.02


def test_accepted_connections_have_nagle_off() -> None:
    """asyncio sets TCP_NODELAY only on connections of a listening socket that names its protocol."""

    async def accepted_nodelay() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            seen.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            await writer.wait_closed()

        listening = bind()
        async with await asyncio.start_server(connected, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            nodelay = await seen
            writer.close()
            await writer.wait_closed()
        return nodelay

    assert asyncio.run(accepted_nodelay()) != 0


def test_past_its_deadline_a_worker_is_killed(stack: LocalStack) -> None:
    """The invoker gets Lambda's timeout error at the deadline, the process is gone, another one takes its place."""
    pid = json.loads(invoke(stack, {})["Payload"].read())["pid"]
    began = time.monotonic()

    answer = invoke(stack, {"sleep": 30})

    assert 1.0 <= time.monotonic() - began < 5
    assert answer["FunctionError"] == "Unhandled"
    error = json.loads(answer["Payload"].read())
    assert error["errorType"] == "Sandbox.Timedout"
    assert error["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert json.loads(invoke(stack, {})["Payload"].read())["pid"] != pid


def test_a_kill_in_mid_invocation(stack: LocalStack) -> None:
    """The process dies for real, the client gets a gateway's error at once, and the next request a new worker."""
    answers: list[httpx.Response] = []
    with httpx.Client(base_url=stack.base_url, trust_env=False, timeout=20) as client:
        asking = threading.Thread(target=lambda: answers.append(client.get("/open/x?do=hang")))
        asking.start()
        soon(lambda: stack.in_flight("echo") == 1)

        pid = stack.kill("echo")
        asking.join(10)

        assert [(each.status_code, each.text) for each in answers] == [(503, '{"message":"Service Unavailable"}')]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert stack.in_flight("echo") == 0
        assert client.get("/open/x").status_code == 200


def test_a_killed_worker_is_an_exit_error_for_who_invoked_it(stack: LocalStack) -> None:
    """As Lambda tells it: Runtime.ExitError, signal: killed."""
    answers: list[Any] = []
    hang = {"queryStringParameters": {"do": "hang"}}
    asking = threading.Thread(target=lambda: answers.append(invoke(stack, hang, name="local-echo")))
    asking.start()
    soon(lambda: stack.in_flight("echo") == 1)

    stack.kill("echo")
    asking.join(10)

    assert answers[0]["FunctionError"] == "Unhandled"
    error = json.loads(answers[0]["Payload"].read())
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith("Runtime exited with error: signal: killed")


def test_a_worker_that_crashes_is_reported_and_replaced(stack: LocalStack) -> None:
    """By name, with its exit status and its last words, in the supervisor's log; the function goes on."""
    with httpx.Client(base_url=stack.base_url, trust_env=False, timeout=20) as client:
        assert client.get("/open/x?do=exit").status_code == 503
        assert client.get("/open/x").status_code == 200

    report = stack.logs()["supervisor"]
    soon(lambda: "these are my last words" in report.read_text())
    assert "worker echo-" in report.read_text()
    assert "ended with status 3" in report.read_text()


def test_an_asynchronous_invocation_is_answered_at_once(stack: LocalStack, ticks: Path) -> None:
    """202 and no payload; the work is done afterwards."""
    answer = invoke(stack, {"note": "later", "sleep": 0.2}, InvocationType="Event")

    assert (answer["StatusCode"], answer["Payload"].read()) == (202, b"")
    soon(lambda: notes(ticks, "later") == 1)


def test_what_the_invoke_api_refuses(stack: LocalStack) -> None:
    """An unknown function, and a payload that is no JSON, in Lambda's words."""
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        invoke(stack, {}, name="nobody")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        invoke(stack, {}, name="tick")  # the folder's name is no function name
    with pytest.raises(ClientError, match="InvalidRequestContentException"):
        stack.boto3_client("lambda").invoke(FunctionName="local-tick", Payload=b"no json")
    by_arn = invoke(stack, {}, name="arn:aws:lambda:us-east-1:000000000000:function:local-tick")
    assert by_arn["StatusCode"] == 200


def test_a_schedule_fires_by_the_moved_clock(stack: LocalStack, ticks: Path) -> None:
    """An hour further on, the schedule of each minute has fired once more."""
    before, then = notes(ticks, "scheduled"), stack.now_ms()

    now_ms = stack.advance(3600)

    assert 3_600_000 <= now_ms - then < 3_610_000
    assert abs(stack.now_ms() - now_ms) < 10_000
    soon(lambda: notes(ticks, "scheduled") == before + 1)
    assert notes(ticks, "scheduled") == before + 1


def test_a_scheduled_function_can_be_run_now(stack: LocalStack, ticks: Path) -> None:
    """By the function's name or the schedule's, with the schedule's input; synchronously."""
    before = notes(ticks, "scheduled")

    assert stack.fire("tick")["arn"].endswith(":local-tick")
    assert stack.fire("TickFunctionEachMinute")["arn"].endswith(":local-tick")

    assert notes(ticks, "scheduled") == before + 2
    with pytest.raises(LocalStackError, match="no function nobody; there are echo, tick"):
        stack.fire("nobody")


def test_events_and_waiters_of_a_pool_without_a_worker() -> None:
    """An event that is too old is dropped; if no worker can start, everybody who waits is told why."""
    function = read_template(SMALL, "local").functions[0]

    async def waited() -> Outcome:
        pool = Pool(function)
        with pytest.raises(EventTooOldError):
            await pool.invoke(b"{}", start_within_s=0.01)
        waiting = asyncio.create_task(pool.invoke(b"{}", start_within_s=60))
        await asyncio.sleep(0)
        pool.fail_waiting(b"why")
        return await waiting

    assert asyncio.run(waited()) == Outcome(Verdict.NOT_STARTED, b"why")
