"""The command that imports a file of grants: what it sends, when it tries again, and what its report says."""

import io
import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.credentials import Credentials

from quitclaim_client import import_grants
from quitclaim_client.import_grants import BadFileError, Line, Report, Told, import_all, import_one, main, read_lines

TOKEN = "refresh-token-canary"


def grant(owner: str = "ann", connection: str = "google", **more: Any) -> dict[str, Any]:
    """A line of the file."""
    return {"owner": owner, "connection_id": connection, "provider": "google", "refresh_token": TOKEN} | more


def refused(code: str, status: int = 409, *, retryable: bool = False, **more: Any) -> Told:
    """An error of the API."""
    details = {name: more.pop(name) for name in ("reason", "copy") if name in more}
    return Told(status, {"code": code, "message": "no", "retryable": retryable, "details": details, **more})


READY = Told(200, {"connection": {"generation": 1}, "shared_copy": False, "dry_run": False})


class Api:
    """Answers in order; remembers what was sent."""

    def __init__(self, *answers: Told | None) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, dict[str, Any], str]] = []
        self.slept: list[float] = []

    def __call__(self, path: str, body: dict[str, Any], key: str) -> Told | None:
        self.sent.append((path, body, key))
        return self.answers.pop(0) if self.answers else READY

    @property
    def keys(self) -> list[str]:
        """Idempotency keys, in order."""
        return [key for _, _, key in self.sent]

    def one(self, line: dict[str, Any] | None = None, *, first: int = 0, dry_run: bool = False) -> dict[str, Any]:
        """What became of one grant."""
        about = Line(1, line or grant())
        return import_one(
            about, tenant="acme", run="r", first=first, dry_run=dry_run, send=self, sleep=self.slept.append
        )


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: no JSON"),
        ("[]", "line 1: no JSON object"),
        (json.dumps({**grant(), "owner": 7}), "line 1: owner: needed, as a text"),
        (json.dumps({"owner": "ann"}), "line 1: connection_id, provider, refresh_token: needed, as a text"),
        (json.dumps(grant(access_token="x")), "line 1: access_token: not a field of a grant"),
        (f"{json.dumps(grant())}\n\n{json.dumps(grant())}", "line 3: the same owner and connection_id as line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_whole(text: str, said: str) -> None:
    """Before anything is sent; the line is named, and nothing of what is in it."""
    with pytest.raises(BadFileError) as fault:
        read_lines(text.splitlines())

    assert str(fault.value) == said


def test_a_line_prints_no_token() -> None:
    """Whoever logs one."""
    assert TOKEN not in repr(read_lines([json.dumps(grant())]))


# --- one grant -------------------------------------------------------------------------------------------------------


def test_a_grant_is_sent_once_with_all_that_is_known_of_it() -> None:
    """To its own path, under a key of its own; what names it is not in the body."""
    api = Api()

    told = api.one(grant("a b", scopes=["read"], account_id="7", client="google-2"))

    ((path, body, _),) = api.sent
    assert path == "/v1/tenants/acme/owners/a%20b/connections/google/import"
    assert body == {
        "provider": "google",
        "client": "google-2",
        "refresh_token": TOKEN,
        "account_id": "7",
        "scopes": ["read"],
    }
    assert told == {"outcome": "imported", "attempts": 0, "generation": 1, "shared_copy": False}


def test_a_dry_run_says_so() -> None:
    """In what is sent, and in the report."""
    api = Api()

    assert api.one(dry_run=True)["outcome"] == "would_import"
    assert api.sent[0][1]["dry_run"] is True


@pytest.mark.parametrize("lost", [None, Told(503, {"message": "Service Unavailable"}), Told(429, {}), Told(504, {})])
def test_without_an_answer_the_same_call_is_repeated(lost: Told | None) -> None:
    """Under the same key: it happens once."""
    api = Api(lost, lost)

    assert api.one()["outcome"] == "imported"
    assert len(api.keys) == 3
    assert len(set(api.keys)) == 1
    assert api.slept == [1, 2]


def test_an_attempt_that_is_over_is_followed_by_a_new_one() -> None:
    """Where the answer says that our copy is dropped and that it may help; after the time that it names."""
    api = Api(refused("PROVIDER_BUSY", 503, retryable=True, copy="dropped", retry_after_s=7))

    assert api.one() == {"outcome": "imported", "attempts": 1, "generation": 1, "shared_copy": False}
    assert len(set(api.keys)) == 2
    assert api.slept == [7]


def test_an_attempt_that_is_under_way_is_asked_for_again() -> None:
    """Under its own key."""
    api = Api(refused("CONNECT_BLOCKED", retryable=True, retry_after_s=3))

    assert api.one()["outcome"] == "imported"
    assert len(set(api.keys)) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refused("IMPORT_FAILED", reason="refused", copy="dropped"), {"reason": "refused", "copy": "dropped"}),
        (refused("EXCHANGE_UNCONFIRMED", 502, copy="dropped"), {"copy": "dropped"}),
        (refused("GRANT_NOT_INSTALLED", copy="revoking", reason="identity_mismatch"), {"copy": "revoking"}),
        (refused("CONNECTION_STATE_CONFLICT"), {}),
        (Told(403, {"message": "Forbidden"}), {"message": "Forbidden"}),
    ],
    ids=lambda value: str(getattr(value, "body", {}).get("code")),
)
def test_what_will_not_help_is_not_repeated(answer: Told, told: dict[str, str]) -> None:
    """The report says why, and the next run begins a new attempt."""
    api = Api(answer)

    found = api.one()

    assert (found["outcome"], found["attempts"], len(api.sent)) == ("refused", 1, 1)
    assert told.items() <= found.items()
    assert found.get("code") == answer.body.get("code")


def test_the_tries_come_to_an_end() -> None:
    """An API that never answers is reported as unknown, and asked for the same by the next run."""
    api = Api(*[None] * 9)

    assert api.one() == {"outcome": "unknown", "attempts": 0}
    assert len(api.sent) == import_grants.ATTEMPTS
    assert api.one(first=0)["outcome"] == "unknown"
    assert len(set(api.keys)) == 1


# --- a run -----------------------------------------------------------------------------------------------------------


def ran(
    path: Path, lines: list[dict[str, Any]], api: Api, *, dry_run: bool = False, at_once: int = 4
) -> list[dict[str, Any]]:
    """One run; the lines that it added to the report."""
    before = path.read_text().splitlines() if path.exists() else []
    report, progress = Report(path), io.StringIO()
    found = [line for line in read_lines(map(json.dumps, lines)) if not report.is_done(line)]
    import_all(
        found,
        report,
        tenant="acme",
        dry_run=dry_run,
        send=api,
        at_once=at_once,
        sleep=api.slept.append,
        progress=progress,
    )
    report.close()
    assert TOKEN not in path.read_text() + progress.getvalue()
    return [json.loads(line) for line in path.read_text().splitlines()[len(before) :]]


def test_a_thousand_grants_are_reported_one_by_one(tmp_path: Path) -> None:
    """Each owner's in the order of the file; each key is used once; the report holds no token."""
    lines = [grant(f"owner-{number % 300}", f"c-{number}") for number in range(1_000)]
    api = Api()

    head, *told = ran(tmp_path / "report.jsonl", lines, api, at_once=8)

    assert list(head) == ["run"]
    assert len(told) == len(api.sent) == len(set(api.keys)) == 1_000
    assert {line["outcome"] for line in told} == {"imported"}
    assert {line["line"] for line in told} == set(range(1, 1_001))
    of_one = [path for path, _, _ in api.sent if "/owner-7/" in path]
    assert [path.split("/")[-2] for path in of_one] == ["c-7", "c-307", "c-607", "c-907"]


def test_another_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """What was imported is left out; what was refused gets a new key, what is unknown its old one."""
    path = tmp_path / "report.jsonl"
    lines = [grant("ann"), grant("bob"), grant("eve")]
    first = Api(READY, refused("IMPORT_FAILED", copy="dropped"), *[None] * import_grants.ATTEMPTS)
    ran(path, lines, first, at_once=1)

    second = Api()
    told = ran(path, lines, second, at_once=1)

    assert [(line["owner"], line["outcome"]) for line in told] == [("bob", "imported"), ("eve", "imported")]
    assert second.keys[0] not in first.keys
    assert second.keys[1] in first.keys


def test_a_dry_run_keeps_nobody_from_the_real_one(tmp_path: Path) -> None:
    """`would_import` is no end."""
    path = tmp_path / "report.jsonl"
    ran(path, [grant()], Api(), dry_run=True)

    (told,) = ran(path, [grant()], Api())

    assert told["outcome"] == "imported"


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """The command talks to this one."""
    made = Api()

    class Session:
        region_name = None

        def get_credentials(self) -> Credentials:
            return Credentials("AKIAEXAMPLE", "made-up")

    monkeypatch.setattr(boto3, "Session", Session)
    monkeypatch.setattr(import_grants, "signed", lambda api, region: made)
    return made


def command(tmp_path: Path, lines: list[dict[str, Any]], *more: str) -> int:
    """Its exit code."""
    file = tmp_path / "grants.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    address = "https://a1b2.execute-api.eu-central-1.amazonaws.com/"
    report = str(tmp_path / "report.jsonl")
    return main([str(file), "--api", address, "--tenant", "acme", "--report", report, *more])


def test_the_command_says_what_became_of_all(tmp_path: Path, api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """0 if all went in; progress and summary hold no token."""
    assert command(tmp_path, [grant("ann"), grant("bob")]) == 0

    out, err = capsys.readouterr()
    assert out == "2 imported; 0 done before, 0 left for the next run\n"
    assert "2 of 2" in err
    assert TOKEN not in out + err


def test_a_run_has_a_limit(tmp_path: Path, api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand, or what is asked for; the next run takes the rest."""
    lines = [grant(owner) for owner in ("ann", "bob", "eve")]

    assert command(tmp_path, lines, "--limit", "2") == 0
    assert command(tmp_path, lines, "--limit", "2") == 0

    assert capsys.readouterr().out.splitlines() == [
        "2 imported; 0 done before, 1 left for the next run",
        "1 imported; 2 done before, 0 left for the next run",
    ]
    assert len(api.sent) == 3


def test_the_command_tells_a_failure_by_its_exit_code(tmp_path: Path, api: Api) -> None:
    """1 where a grant was not imported, 2 where the file cannot be read."""
    api.answers = [refused("IMPORT_FAILED", copy="dropped")]

    assert command(tmp_path, [grant()]) == 1
    assert command(tmp_path, [{}]) == 2


def test_the_region_is_in_the_address() -> None:
    """Of an API Gateway of AWS."""
    assert import_grants.region_of("https://a1b2.execute-api.eu-central-1.amazonaws.com") == "eu-central-1"
