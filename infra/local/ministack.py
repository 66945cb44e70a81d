"""
MiniStack, the local stand-in for DynamoDB, KMS, SSM, Secrets Manager, SQS and CloudFormation.

It runs from an environment of its own, because it pins botocore, and keeps its state in the stack's folder. It writes
that state only when it is stopped with SIGTERM: it is for trying the product out, not for keeping anything.
"""

import http.client
import shutil
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from infra.local.children import Child, Family, until
from infra.local.listeners import LOOPBACK
from infra.local.template import REGION

# MiniStack asks for no credentials; a key of its own kind keeps real ones out of every request.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
_CLIENT = Config(connect_timeout=2, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 2}, proxies={})


class MissingMiniStackError(Exception):
    """The environment of MiniStack has not been made."""


async def start_ministack(family: Family, executable: Path, state: Path, log: Path, port: int) -> Child:
    """Start MiniStack on *port* and return once it answers."""
    if not executable.exists():
        raise MissingMiniStackError(f"{executable} is missing: run `make setup`")
    temporary = state / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    environment = {
        "BIND_HOST": LOOPBACK,  # it listens on every interface otherwise
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state / "saved"),
        "S3_DATA_DIR": str(state / "s3"),
        "TMPDIR": str(temporary),
        "MINISTACK_ACCOUNT_ID": "000000000000",
    }
    child = await family.start("ministack", [str(executable)], log=log, environment=environment)
    await until(lambda: _answers(port), child)
    return child


def remove_leftovers(state: Path) -> None:
    """Remove MiniStack's temporary folders (ministack-lambda-* among them); its saved state stays."""
    shutil.rmtree(state / "tmp", ignore_errors=True)


def aws_client(service: str, url: str) -> Any:
    """A boto3 client for the service at *url* that takes nothing from the caller's environment or profile."""
    session = boto3.session.Session(
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    )
    return session.client(service, endpoint_url=url, config=_CLIENT)  # type: ignore[call-overload]


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", "/_ministack/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
