"""moto and MiniStack, started for tests."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws

ROOT = Path(__file__).parents[2]
EXECUTABLE = ROOT / ".venv-ministack" / "bin" / "ministack"
REGION = "us-east-1"
START_S = 30.0


@cache
def _moto_client() -> Any:
    return boto3.client("dynamodb", region_name=REGION, aws_access_key_id="1" * 12, aws_secret_access_key="x")


@contextmanager
def moto() -> Iterator[Any]:
    """A DynamoDB client on a moto that is empty and ends with the block. For one thread at a time only."""
    with mock_aws():
        yield _moto_client()


@contextmanager
def ministack(state: Path) -> Iterator[str]:
    """The URL of a MiniStack of our own, stopped by its pid at the end."""
    if not EXECUTABLE.exists():
        raise RuntimeError(f"{EXECUTABLE} is missing: run `make setup`")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (state / "tmp").mkdir(parents=True)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "BIND_HOST": "127.0.0.1",  # it listens on every interface otherwise
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "PERSIST_STATE": "0",
        "STATE_DIR": str(state / "saved"),
        "S3_DATA_DIR": str(state / "s3"),
        "TMPDIR": str(state / "tmp"),
    }
    with (state / "ministack.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own environment's program
            [str(EXECUTABLE)], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=state
        )
        try:
            _wait_for(port, process, state)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    shutil.rmtree(state, ignore_errors=True)


def ministack_client(url: str, account: str) -> Any:
    """A DynamoDB client of one account (12 digits) at MiniStack: accounts do not see each other."""
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=account,
        aws_secret_access_key="x",
        config=Config(
            max_pool_connections=120, connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1}, proxies={}
        ),
    )


def _wait_for(port: int, process: "subprocess.Popen[bytes]", state: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/_ministack/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError(f"MiniStack did not start:\n{(state / 'ministack.log').read_text()[-2000:]}")
