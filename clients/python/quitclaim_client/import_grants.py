"""
Give the grants that an app holds to Quitclaim: a file of refresh tokens in, a report out.

    python -m quitclaim_client.import_grants grants.jsonl --api https://… --tenant acme --report report.jsonl

One JSON object a line: `owner`, `connection_id`, `provider`, `refresh_token`, and, where you have them, `client`,
`account_id`, `scopes`, `variables`. The report gets one line a grant as soon as its outcome is known, and never a
token. Run the same command again to go on where it ended: what was imported is not asked for again.
"""

import argparse
import hashlib
import json
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote, urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, HTTPClientError
from botocore.httpsession import URLLib3Session

FIELDS: Final = ("owner", "connection_id", "provider", "client", "refresh_token", "account_id", "scopes", "variables")
NEEDED: Final = ("owner", "connection_id", "provider", "refresh_token")
DONE: Final = frozenset({"imported"})
"""Outcomes that another run does not ask for again."""
ATTEMPTS: Final = 4
LONGEST_WAIT_S: Final = 70
MOST_A_RUN: Final = 1_000


@dataclass(frozen=True)
class Line:
    """A grant of the file."""

    number: int
    body: dict[str, Any] = field(repr=False)

    @property
    def owner(self) -> str:
        """Whose it is in the app."""
        return str(self.body["owner"])

    @property
    def connection_id(self) -> str:
        """What it is called in the app."""
        return str(self.body["connection_id"])

    @property
    def name(self) -> tuple[str, str]:
        """By which a report knows it."""
        return self.owner, self.connection_id

    @property
    def digest(self) -> str:
        """The name in one word, for idempotency keys."""
        return hashlib.sha256(json.dumps(self.name).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Told:
    """An answer of the API: a status and the JSON object it came with, an empty one where it was none."""

    status: int
    body: dict[str, Any]

    @property
    def is_unknown(self) -> bool:
        """Whether the gateway answered instead of the API: turned away, or nobody knows."""
        return "code" not in self.body and (self.status == 429 or self.status >= 500)


type Send = Callable[[str, dict[str, Any], str], Told | None]
"""Path, body and idempotency key to the answer; None where no answer came."""


class BadFileError(Exception):
    """A line cannot be read; says which, and never what is in it."""


# --- the file --------------------------------------------------------------------------------------------------------


def read_lines(text: Iterable[str]) -> list[Line]:
    """Every grant of the file. Raises `BadFileError` before anything is sent."""
    found: list[Line] = []
    names: dict[tuple[str, str], int] = {}
    for number, raw in enumerate(text, start=1):
        if not raw.strip():
            continue
        try:
            body = json.loads(raw)
        except ValueError:
            raise BadFileError(f"line {number}: no JSON") from None
        if not isinstance(body, dict):
            raise BadFileError(f"line {number}: no JSON object")
        if missing := [name for name in NEEDED if not isinstance(body.get(name), str) or not body[name]]:
            raise BadFileError(f"line {number}: {', '.join(missing)}: needed, as a text")
        if unknown := sorted(body.keys() - set(FIELDS)):
            raise BadFileError(f"line {number}: {', '.join(unknown)}: not a field of a grant")
        line = Line(number, body)
        if line.name in names:
            raise BadFileError(f"line {number}: the same owner and connection_id as line {names[line.name]}")
        names[line.name] = number
        found.append(line)
    return found


# --- the report ------------------------------------------------------------------------------------------------------


class Report:
    """A file of outcomes, one a line, whole after each; its first line names the run, which the next one goes on."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        lines = [json.loads(raw) for raw in path.read_text("utf-8").splitlines()] if path.exists() else []
        self.run: str = lines[0]["run"] if lines else uuid.uuid4().hex
        self.outcomes = {(line["owner"], line["connection_id"]): str(line["outcome"]) for line in lines[1:]}
        self.attempts = {(line["owner"], line["connection_id"]): int(line["attempts"]) for line in lines[1:]}
        self._file = path.open("a", encoding="utf-8")
        if not lines:
            self._write({"run": self.run})

    def is_done(self, line: Line) -> bool:
        """Whether an earlier run brought it to its end."""
        return self.outcomes.get(line.name) in DONE

    def tell(self, line: Line, outcome: dict[str, Any]) -> None:
        """One more."""
        about = {"line": line.number, "owner": line.owner, "connection_id": line.connection_id}
        with self._lock:
            self.outcomes[line.name] = outcome["outcome"]
            self._write(about | outcome)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


# --- one grant -------------------------------------------------------------------------------------------------------


def import_one(
    line: Line, *, tenant: str, run: str, first: int, dry_run: bool, send: Send, sleep: Callable[[float], None]
) -> dict[str, Any]:
    """
    What became of one grant: its line of the report, without the line's number.

    An attempt that did not come to an answer is repeated under its own key, so that it happens once. Only an attempt
    that said that our copy is dropped is followed by a new one, and only if the answer says that it may help.
    """
    path = f"/v1/tenants/{_id(tenant)}/owners/{_id(line.owner)}/connections/{_id(line.connection_id)}/import"
    body = {name: line.body[name] for name in FIELDS[2:] if name in line.body} | ({"dry_run": True} if dry_run else {})
    attempt, told = first, None
    for turn in range(ATTEMPTS):
        told = send(path, body, f"{run}-{attempt}-{line.digest}")
        if told is not None and told.status == 200:
            return _told(told, "would_import" if dry_run else "imported", attempt)
        is_over = told is not None and (told.body.get("details") or {}).get("copy") == "dropped"
        may_help = told is None or told.is_unknown or told.body.get("retryable", False)
        if not may_help or turn == ATTEMPTS - 1:
            break
        attempt += is_over
        sleep(min(float((told.body if told else {}).get("retry_after_s", 2**turn)), LONGEST_WAIT_S))
    if told is None or told.is_unknown:
        return {"outcome": "unknown", "attempts": attempt} | ({"status": told.status} if told else {})
    return _told(told, "refused", attempt + 1)


def _told(told: Told, outcome: str, attempts: int) -> dict[str, Any]:
    body = told.body
    details = body.get("details") or {}
    found = {
        "generation": (body.get("connection") or {}).get("generation"),
        "shared_copy": body.get("shared_copy"),
        "code": body.get("code"),
        "reason": details.get("reason"),
        "copy": details.get("copy"),
        "message": body.get("message"),
    }
    return {"outcome": outcome, "attempts": attempts} | {name: at for name, at in found.items() if at is not None}


def _id(text: str) -> str:
    """An id as a path segment; the API refuses what is none of ours."""
    return quote(text, safe="")


# --- all of them -----------------------------------------------------------------------------------------------------


def import_all(
    lines: Sequence[Line],
    report: Report,
    *,
    tenant: str,
    dry_run: bool,
    send: Send,
    at_once: int = 4,
    sleep: Callable[[float], None] = time.sleep,
    progress: TextIO | None = None,
) -> Counter[str]:
    """
    Import *lines*, one owner's after another and some owners at once: one owner's grants of one client wait for each
    other anyway. Answers how many there were of each outcome.
    """
    by_owner: dict[str, list[Line]] = {}
    for line in lines:
        by_owner.setdefault(line.owner, []).append(line)
    counted: Counter[str] = Counter()
    lock, began = threading.Lock(), time.monotonic()

    def of_one(own: list[Line]) -> None:
        for line in own:
            first = report.attempts.get(line.name, 0)
            outcome = import_one(
                line, tenant=tenant, run=report.run, first=first, dry_run=dry_run, send=send, sleep=sleep
            )
            report.tell(line, outcome)
            with lock:
                counted[outcome["outcome"]] += 1
                done = counted.total()
                if progress is not None and (done % 50 == 0 or done == len(lines)):
                    rate = done / max(time.monotonic() - began, 0.001)
                    progress.write(f"{done} of {len(lines)}, {rate:.1f} a second: {summary(counted)}\n")
                    progress.flush()

    with ThreadPoolExecutor(at_once) as pool:
        for future in [pool.submit(of_one, own) for own in by_owner.values()]:
            future.result()
    return counted


def summary(counted: Counter[str]) -> str:
    """In words."""
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.items())) or "nothing to do"


# --- the API ---------------------------------------------------------------------------------------------------------


def signed(api: str, region: str) -> Send:
    """Sends to the API at *api*, signed with the caller's own credentials (AWS Signature Version 4)."""
    credentials = boto3.Session().get_credentials()
    if credentials is None:
        raise SystemExit("no AWS credentials: the caller needs execute-api:Invoke on its tenant's paths")
    http = URLLib3Session(timeout=35, max_pool_connections=64)

    def send(path: str, body: dict[str, Any], key: str) -> Told | None:
        headers = {"content-type": "application/json", "idempotency-key": key}
        request = AWSRequest("POST", api + path, headers, json.dumps(body))
        SigV4Auth(credentials.get_frozen_credentials(), "execute-api", region).add_auth(request)
        try:
            answer = http.send(request.prepare())
        except (HTTPClientError, BotoCoreError):
            return None
        try:
            found = json.loads(answer.content)
        except ValueError:
            found = {}
        return Told(answer.status_code, found if isinstance(found, dict) else {})

    return send


def region_of(api: str) -> str:
    """The region in the address of an API Gateway; else that of the session."""
    parts = (urlsplit(api).hostname or "").split(".")
    found = parts[2] if len(parts) > 3 and parts[1] == "execute-api" else boto3.Session().region_name
    if not found:
        raise SystemExit("name the region: --region")
    return str(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every grant of this run was imported (or would be), 1 if some was not, 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m quitclaim_client.import_grants", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("file", type=Path, help="one JSON object a line; - reads standard input")
    parser.add_argument("--api", required=True, help="address of the API, as the stack's output names it")
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--report", required=True, type=Path, help="where outcomes go; an existing one is gone on with")
    parser.add_argument("--dry-run", action="store_true", help="ask what would happen; nothing is sent to a provider")
    parser.add_argument("--at-once", type=int, default=4, help="owners at once (4)")
    parser.add_argument("--limit", type=int, default=MOST_A_RUN, help=f"grants a run ({MOST_A_RUN})")
    parser.add_argument("--region")
    asked = parser.parse_args(arguments)
    try:
        if str(asked.file) == "-":
            lines = read_lines(sys.stdin)
        else:
            with asked.file.open(encoding="utf-8") as file:
                lines = read_lines(file)
    except (BadFileError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    api = asked.api.rstrip("/")
    report = Report(asked.report)
    todo = [line for line in lines if not report.is_done(line)]
    now, left = todo[: asked.limit], len(todo[asked.limit :])
    try:
        counted = import_all(
            now,
            report,
            tenant=asked.tenant,
            dry_run=asked.dry_run,
            send=signed(api, asked.region or region_of(api)),
            at_once=asked.at_once,
            progress=sys.stderr,
        )
    finally:
        report.close()
    print(f"{summary(counted)}; {len(lines) - len(todo)} done before, {left} left for the next run")
    return 0 if counted.keys() <= {"imported", "would_import"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
