"""A catalogue entry to start from, as data and as the spec that it compiles to."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.secret import Secret
from quitclaim.providers.compile import compiled_text
from quitclaim.providers.spec import ProviderSpec, spec_of

ENTRY: dict[str, Any] = {
    "id": "acme",
    "name": "Acme",
    "checked_on": "2026-11-30",
    "sources": ["https://acme.example.com/docs"],
    "authorize": {"url": "https://acme.example.com/authorize", "pkce": "required"},
    "token": {"url": "https://acme.example.com/token", "client_auth": "basic", "default_lifetime_s": 3600},
    "refresh": {"mode": "refresh_token", "rotates": "yes", "old_token_after_rotation": "immediate"},
    "revocation": {
        "shape": "rfc7009_form",
        "url": "https://acme.example.com/revoke",
        "takes": "either",
        "client_auth": "basic",
        "success": {"status": [200], "body": "any"},
        "already_gone": {"status": [400], "errors": ["invalid_token"]},
        "permanent_errors": [{"status": [404]}],
        "reach": "family",
    },
    "identity": {"kind": "user", "url": "https://acme.example.com/me", "field": "sub"},
}
CLIENT = ProviderClient("acme-web", "acme", "client-1", "ssm:/q/secret", ("read", "write"))
SECRET = Secret("client-secret-canary")
REMOVED = object()
COMPILED_ONCE: dict[tuple[str, bool], ProviderSpec] = {}


def changed_entry(changes: dict[str, Any]) -> dict[str, Any]:
    """The entry with values put at dotted paths, or removed."""
    entry = copy.deepcopy(ENTRY)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at = entry
        for name in parents:
            at = at.setdefault(name, {})
        if value is REMOVED:
            del at[last]
        else:
            at[last] = value
    return entry


def written(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    """A catalogue file of the changed entry."""
    path = folder / "acme.yaml"
    path.write_text(yaml.safe_dump(changed_entry(changes or {}), sort_keys=False))
    return path


def a_spec(folder: Path, changes: dict[str, Any] | None = None, *, allow_loopback: bool = False) -> ProviderSpec:
    """The spec that the changed entry compiles to; each is compiled once."""
    known = (json.dumps(changes or {}, default=lambda removed: "removed"), allow_loopback)
    if known not in COMPILED_ONCE:
        text = compiled_text(written(folder, changes), allow_loopback=allow_loopback)
        COMPILED_ONCE[known] = spec_of(json.loads(text))
    return COMPILED_ONCE[known]
