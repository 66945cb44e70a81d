"""
Who may call the local API: three principals with keys made at the first start.

`app` is the app of tenant ``demo``, `other` that of tenant ``other``, `operator` may call everything. The keys open
nothing but this machine's stack; they are kept in a file that only its owner can read.
"""

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.policies import Statement, read_policy

TENANTS = {"app": "demo", "other": "other"}
NAMES = ("app", "other", "operator")
METHODS = ("GET", "POST", "DELETE")
"""Of the routes below a tenant. Written out: in a pattern, a star would match the slash before the tenant as well."""


@dataclass(frozen=True)
class Principal:
    """A caller: its key and what its policy allows."""

    name: str
    access_key: str
    secret: str = field(repr=False)
    policy: tuple[Statement, ...] = field(repr=False)


def local_keys(path: Path) -> dict[str, tuple[str, str]]:
    """Name → (access key, secret), made at the first call and kept in *path* (mode 600)."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(handle, "w") as file:
            json.dump({name: [_new_access_key(), secrets.token_urlsafe(30)] for name in NAMES}, file)
    return {name: (pair[0], pair[1]) for name, pair in json.loads(path.read_text()).items()}


def local_principals(keys: Mapping[str, tuple[str, str]], api_arn: str) -> dict[str, Principal]:
    """Access key → principal. *api_arn* is ``arn:aws:execute-api:<region>:<account>:<api id>``."""
    return {
        access_key: Principal(name, access_key, secret, read_policy(_policy(name, api_arn)))
        for name, (access_key, secret) in keys.items()
    }


def _policy(name: str, api_arn: str) -> dict[str, object]:
    # As docs/deploy.md gives it to an app's role: one tenant, method by method, and the list of providers.
    resources = [f"{api_arn}/*"]
    if name in TENANTS:
        resources = [
            *(f"{api_arn}/$default/{method}/v1/tenants/{TENANTS[name]}/*" for method in METHODS),
            f"{api_arn}/$default/GET/v1/providers",
        ]
    return {"Statement": {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resources}}


def _new_access_key() -> str:
    return "AKIA" + base64.b32encode(secrets.token_bytes(10)).decode()
