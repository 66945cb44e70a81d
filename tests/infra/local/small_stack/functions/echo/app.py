"""Answers with its own event, or does what the query asks for: raise, exit, hang, or answer without a status code."""

import json
import os
import sys
import time
from typing import Any

import own_layer


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Play the part that ``?do=`` names."""
    match (event.get("queryStringParameters") or {}).get("do"):
        case "raise":
            raise ValueError("as asked")
        case "exit":
            sys.stdout.write("these are my last words\n")
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "bare":
            return {"layer": own_layer.WORD}
        case "bytes":
            return {"statusCode": 201, "body": "AAH/", "isBase64Encoded": True, "cookies": ["a=1; Path=/", "b=2"]}
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}
