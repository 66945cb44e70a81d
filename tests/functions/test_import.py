"""Import, event by event: what is asked, what is answered, and what no answer or line holds."""

import pytest

from quitclaim.domain.limits import TOKEN_MAX_CHARS
from tests.fakes.provider import answers, lost_answer
from tests.functions.stage import Answer, Stage


def imported(stage: Stage, token: str, connection: str = "acme", **given: object) -> Answer:
    """The answer to an import; the token is looked for in everything that is written."""
    stage.secrets.add(token)
    given.setdefault("body", {"provider": "acme", "refresh_token": token})
    return stage.http("access_token", "POST", f"{stage.path}/connections/{connection}/import", **given)  # type: ignore[arg-type]


def test_an_imported_connection_is_ready(stage: Stage) -> None:
    """200 with the view; the app's token is spent, a token is handed out, and one line counts it."""
    given = stage.server.gave().reveal()

    told = imported(stage, given)

    assert told.status == 200
    assert told.headers["cache-control"] == "no-store"
    assert told.json["shared_copy"] is False
    assert told.json["dry_run"] is False
    assert told.json["connection"]["state"] == "ready"
    assert told.json["connection"] == stage.api("GET", "/connections/acme").json
    assert stage.metrics()["ConnectionsImported"] == [1.0]
    assert stage.server.state_of(given) == "rotated"
    assert stage.token().status == 200


def test_a_dry_run_writes_and_counts_nothing(stage: Stage) -> None:
    """200, and nothing is there."""
    given = stage.server.gave().reveal()
    imported(stage, stage.server.gave().reveal(), "warm")  # the first data keys are made by whoever needs them
    before = stage.items()
    stage.lines()

    told = imported(stage, given, body={"provider": "acme", "refresh_token": given, "dry_run": True})

    assert told.json == {"connection": None, "shared_copy": False, "dry_run": True}
    assert stage.items() == before
    assert "ConnectionsImported" not in str(stage.lines())


BODIES = {
    "nothing": {},
    "no token": {"provider": "acme"},
    "no provider": {"refresh_token": "t"},
    "an empty token": {"provider": "acme", "refresh_token": ""},
    "a number": {"provider": "acme", "refresh_token": 1},
    "a token that is too long": {"provider": "acme", "refresh_token": "t" * (TOKEN_MAX_CHARS + 1)},
    "a token with a line break": {"provider": "acme", "refresh_token": "a\nb"},
    "a token of other letters": {"provider": "acme", "refresh_token": "t\u00f6ken"},
    "an access token": {"provider": "acme", "refresh_token": "t", "access_token": "a"},
    "a hostile client": {"provider": "acme", "refresh_token": "t", "client": "../acme"},
    "no client": {"provider": "acme", "refresh_token": "t", "client": None},
    "an empty account": {"provider": "acme", "refresh_token": "t", "account_id": ""},
    "an account that is a number": {"provider": "acme", "refresh_token": "t", "account_id": 1},
    "scopes in a text": {"provider": "acme", "refresh_token": "t", "scopes": "read write"},
    "a scope with a space": {"provider": "acme", "refresh_token": "t", "scopes": ["read write"]},
    "no scopes": {"provider": "acme", "refresh_token": "t", "scopes": []},
    "variables in a list": {"provider": "acme", "refresh_token": "t", "variables": ["shop"]},
    "a variable that is a number": {"provider": "acme", "refresh_token": "t", "variables": {"shop": 7}},
    "a variable that nobody asks for": {"provider": "acme", "refresh_token": "t", "variables": {"shop": "ours"}},
    "a dry run that is a text": {"provider": "acme", "refresh_token": "t", "dry_run": "false"},
    "another client's provider": {"provider": "google", "refresh_token": "t", "client": "acme"},
    "a list": [],
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_no_import_is_refused(stage: Stage, name: str) -> None:
    """400, before anything is sent or written."""
    before = stage.items()

    told = imported(stage, "t-canary", body=BODIES[name])

    assert (told.status, told.code) == (400, "INVALID_BODY")
    assert stage.server.asked == []
    assert stage.items() == before


@pytest.mark.parametrize(
    ("misbehaviour", "status", "code"),
    [
        (answers(400, {"error": "invalid_grant", "error_description": "canary"}), 409, "IMPORT_FAILED"),
        (answers(429, {"error": "slow_down"}, Retry_After="7"), 503, "PROVIDER_BUSY"),
        (lost_answer, 502, "EXCHANGE_UNCONFIRMED"),
    ],
    ids=["refused", "busy", "lost"],
)
def test_a_refusal_says_that_the_copy_is_dropped(stage: Stage, misbehaviour: object, status: int, code: str) -> None:
    """And not a word of the provider's."""
    stage.server.next("/token", misbehaviour)  # type: ignore[arg-type]

    told = imported(stage, stage.server.gave().reveal())

    assert (told.status, told.code, told.json["details"]["copy"]) == (status, code, "dropped")
    assert "canary" not in told.text
    assert stage.server.asked == ["/token"]


def test_an_idempotency_key_is_the_first_answer(stage: Stage) -> None:
    """The whole of it; another body is refused."""
    given = stage.server.gave().reveal()
    first = imported(stage, given, headers={"idempotency-key": "k-1"})

    again = imported(stage, given, headers={"idempotency-key": "k-1"})
    other = imported(stage, stage.server.gave().reveal(), headers={"idempotency-key": "k-1"})

    assert again.json == first.json
    assert (other.status, other.code) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert stage.server.asked.count("/token") == 1


def test_a_connection_that_is_there_is_not_replaced(stage: Stage) -> None:
    """409; the live grant and the app's token are as they were."""
    stage.connected()
    given = stage.server.gave().reveal()

    told = imported(stage, given)

    assert (told.status, told.code) == (409, "CONNECTION_STATE_CONFLICT")
    assert stage.server.state_of(given) == "live"
