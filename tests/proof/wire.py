"""
A DynamoDB client for MiniStack that costs a tenth of boto3's time: JSON over one connection, nothing signed or checked.

It raises and answers as a boto3 client does, as far as `DynamoTable` looks. That boto3 itself is spoken to rightly is
shown elsewhere: by the tests of the store, and by the sequences that run with boto3.
"""

import base64
import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError


class WireClient:
    """`client.get_item(TableName=…)` and all others, for one account (12 digits)."""

    def __init__(self, url: str, account: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        self._headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={account}/20260101/us-east-1/dynamodb/aws4_request, "
            "SignedHeaders=host, Signature=none",
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = "".join(word.capitalize() for word in name.split("_"))

        def call(**request: Any) -> Any:
            return self._call(operation, request)

        setattr(self, name, call)
        return call

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _call(self, operation: str, request: dict[str, Any]) -> Any:
        headers = self._headers | {"X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        self._connection.request("POST", "/", json.dumps(request, default=_encoded), headers)
        response = self._connection.getresponse()
        answer = json.loads(response.read(), object_hook=_decoded)
        if response.status != 200:
            code = answer.pop("__type", "").rpartition("#")[2]
            error: Any = {
                "Error": {"Code": code, "Message": answer.pop("message", answer.pop("Message", ""))},
                "ResponseMetadata": {"HTTPStatusCode": response.status},
                **answer,
            }
            raise ClientError(error, operation)
        return answer


def _encoded(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"not JSON: {type(value).__name__}")


def _decoded(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) == 1 and isinstance(value.get("B"), str):
        return {"B": base64.b64decode(value["B"])}
    return value
