"""Everything that can go wrong, as one table: code, status, retryable; and what an error may carry."""

import inspect

import pytest

from quitclaim.domain import errors
from quitclaim.domain.errors import DETAILS, MovedError, QuitclaimError
from quitclaim.runtime.http import STATUS, envelope, refusal, status_of

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, QuitclaimError)]

TABLE = {
    # code: (HTTP status, retryable)
    # of connecting
    "PROVIDER_NOT_REGISTERED": (404, False),
    "CONNECTION_FLOW_NOT_SUPPORTED": (500, False),
    "CONNECTION_CALLBACK_URL_REQUIRED": (500, False),
    "RETURN_TO_INVALID": (400, False),
    "OAUTH_STATE_MISSING": (400, False),
    "OAUTH_CALLBACK_REJECTED": (400, False),
    "OAUTH_CODE_MISSING": (400, False),
    "OAUTH_STATE_INVALID": (400, False),
    "OAUTH_PROVIDER_MISMATCH": (400, False),
    "OAUTH_STATE_REPLAYED": (409, False),
    "OAUTH_CALLBACK_RECOVERY_REQUIRED": (409, False),
    # 5.2 and 5.3, faults that the references leave untyped
    "STORAGE_UNAVAILABLE": (503, True),
    "PROVIDER_REFUSED": (502, False),
    "CONNECTION_RECONCILING": (409, True),
    "CONNECTION_NOT_FOUND": (404, False),
    "CONNECTION_STATE_CONFLICT": (409, False),
    # 5.4, ours
    "CONNECT_BLOCKED": (409, False),
    "STEP_UP_NOT_POSSIBLE": (409, False),
    "IMPORT_NOT_SUPPORTED": (409, False),
    "IMPORT_FAILED": (409, False),
    "CONNECTION_SOURCE_START_STALE": (409, True),
    "SDK_SIGN_IN_NOT_SUPPORTED": (500, False),
    "WEBHOOKS_NOT_SUPPORTED": (404, False),
    "WEBHOOK_REFUSED": (401, False),
    "WEBHOOK_ACCOUNT_NOT_READY": (503, True),
    "WEBHOOK_SOURCE_NOT_READY": (503, True),
    "CONNECTION_SOURCE_ADMISSION_NOT_COMMITTED": (409, False),
    "OWNER_DELETED": (410, False),
    "OWNER_PURGING": (409, True),
    "OAUTH_STATE_SUPERSEDED": (409, False),
    "GRANT_NOT_INSTALLED": (409, False),
    "PERMISSION_REMOVAL_REQUIRED": (409, False),
    "EXCHANGE_UNCONFIRMED": (502, False),
    "NEEDS_RECONNECT": (409, False),
    "REFRESH_IN_PROGRESS": (429, True),
    "GENERATION_MOVED": (409, False),
    "NOTHING_TO_ACKNOWLEDGE": (409, False),
    # and what came with the HTTP API and the pages
    "INVALID_REQUEST": (400, False),
    "INVALID_ID": (400, False),
    "INVALID_BODY": (400, False),
    "UNSUPPORTED_MEDIA_TYPE": (415, False),
    "BODY_TOO_LARGE": (413, False),
    "IF_MATCH_REQUIRED": (428, False),
    "SCOPE_NOT_ALLOWED": (400, False),
    "OAUTH_PARAMETER_REPEATED": (400, False),
    "OAUTH_ISSUER_MISMATCH": (400, False),
    "OAUTH_PARAMETER_INVALID": (400, False),
    "OAUTH_BINDING_MISMATCH": (403, False),
    "CONFIRM_CODE_WRONG": (403, False),
    "IDEMPOTENCY_KEY_REUSED": (422, False),
    "ACKNOWLEDGE_TOO_EARLY": (409, True),
    "INVALID_PARAMETER": (400, False),
    "NOTICE_NOT_FOUND": (404, False),
    "OWNER_MUST_ACKNOWLEDGE": (409, False),
    "RETRY_NOT_POSSIBLE": (409, False),
    "REVOCATION_IN_PROGRESS": (409, True),
    "REFUSED": (409, False),
    "NOT_FOUND": (404, False),
    "CONFLICT": (409, True),
    "PROVIDER_ERROR": (502, False),
    "PROVIDER_BUSY": (503, True),
    "OUTCOME_UNKNOWN": (502, True),
    "CLIENT_MISCONFIGURED": (502, False),
    "KEY_UNAVAILABLE": (503, True),
    "SEAL_BROKEN": (500, False),
    "OUT_OF_TIME": (503, True),
    "INTERNAL": (500, False),
}


def test_every_error_is_in_the_table_and_every_row_is_an_error():
    """Both ways: a new class needs a row, and so a thought."""
    assert {kind.code for kind in CLASSES} == set(TABLE)


def test_a_code_names_one_class():
    """An app that reacts to a code reacts to one thing."""
    codes = [kind.code for kind in CLASSES]

    assert sorted(codes) == sorted(set(codes))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_an_error_as_its_row_says(kind):
    """Status and retryable flag; one sentence for a person; a code that never changes shape."""
    status, retryable = TABLE[kind.code]
    error = kind()

    assert (status_of(error), kind.retryable) == (status, retryable)
    assert kind.code == kind.code.upper() == kind.code.strip("_")
    assert kind.sentence.endswith(".")
    assert "\n" not in kind.sentence
    assert inspect.getdoc(kind)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_the_envelope_of_an_error(kind):
    """One shape for all of them."""
    error = kind()

    assert envelope(error, "request-1") == {
        "code": kind.code,
        "message": kind.sentence,
        "retryable": TABLE[kind.code][1],
        "request_id": "request-1",
        "details": {},
    }
    assert refusal(error, "request-1").status_code == TABLE[kind.code][0]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_what_ends_by_itself_may_be_retried(kind):
    """Whoever is told when to come back may come back: CONNECT_BLOCKED is retryable by its blocker."""
    if kind is MovedError:
        return
    told = refusal(kind(retry_after_ms=1_001), "request-1")

    assert envelope(kind(retry_after_ms=1_001), "request-1")["retryable"] is True
    assert envelope(kind(retry_after_ms=1_001), "request-1")["retry_after_s"] == 2
    assert told.headers["Retry-After"] == "2"


@pytest.mark.rule("I-17")
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_an_error_carries_listed_details_and_no_others(kind):
    """So that nobody adds a token to one."""
    if kind is MovedError:
        return
    given = dict.fromkeys(DETAILS, "x")

    assert kind(**given).details == given
    with pytest.raises(ValueError, match="access_token"):
        kind(access_token="secret")


def test_details_are_those_that_an_app_needs():
    """Where to look and what to do; no token, code, state or address of a person among them."""
    assert {
        "field",
        "connection_id",
        "provider",
        "client",
        "generation",
        "return_to",
        "blockers",
        "state",
        "reason",
        "deadline",
        "manual_page",
        "copy",
    } == DETAILS


def test_every_status_is_said_once_for_a_class_that_exists():
    """A status of a class without a row of its own is its ancestor's."""
    assert set(STATUS) <= set(CLASSES)
    assert STATUS[QuitclaimError] == 500
    for kind, status in STATUS.items():
        assert TABLE[kind.code][0] == status


def test_what_moved_tells_the_flow_and_not_the_caller():
    """The winning items stay inside."""
    moved = MovedError(seen={"grant": {"use": b"sealed"}})

    assert moved.seen == {"grant": {"use": b"sealed"}}
    assert moved.details == {}
    assert "sealed" not in str(moved)
