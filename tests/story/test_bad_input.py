"""What bad input gets, over the real front: a code of its own, nothing written, nothing spent that may still serve."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx
import pytest

from infra.local.browser import Browser, Page
from infra.local.life import Life, envelope, expect
from infra.local.provider.person import consent
from infra.local.stack import LocalStack

LONGEST_BODY = 64 * 1024
PUBLISHED = {"published", "ttl", "op", "d1", "d2", "v"}
"""What row 50 changes of an event."""


def everything(stack: LocalStack) -> dict[tuple[str, str], Any]:
    """
    Every item of the table but the heartbeats, which every scheduled run writes; of an event without the mark that it
    was published, which comes a moment after it.
    """
    dynamodb = stack.boto3_client("dynamodb")
    (table,) = dynamodb.list_tables()["TableNames"]
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    items = [item for page in pages for item in page["Items"]]
    return {(i["PK"]["S"], i["SK"]["S"]): _as_written(i) for i in items if not i["PK"]["S"].startswith("H#")}


def _as_written(item: dict[str, Any]) -> dict[str, Any]:
    is_event = item["SK"]["S"].startswith("E#")
    return {name: value for name, value in item.items() if not (is_event and name in PUBLISHED)}


def code_of(page: Page) -> str:
    """The stable code on one of our public pages."""
    return page.words.rpartition("Reference for support: ")[2]


# --- the signed API --------------------------------------------------------------------------------------------------

START: dict[str, Any] = {"connection_id": "dot", "provider": "dot"}
JSON = {"content-type": "application/json"}


def test_the_look_at_the_table_sees_a_write(life: Life) -> None:
    """Control: a start that is right changes what the tests below compare."""
    before = everything(life.stack)

    life.start()

    new = everything(life.stack).keys() - before.keys()
    owner = f"O#demo#{life.owner}"
    assert {key for key in new if key[0] == owner} == {(owner, "OWNER"), (owner, "C#dot")}
    assert len([key for key in new if key[0].startswith("A#")]) == 1  # the ticket


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(START | {"provider": "nobody"}, 404, "PROVIDER_NOT_REGISTERED", id="unknown provider"),
        pytest.param(START | {"client": "nobody"}, 404, "PROVIDER_NOT_REGISTERED", id="unknown client"),
        pytest.param(START | {"connection_id": "a/b"}, 400, "INVALID_ID", id="a slash in an id"),
        pytest.param(START | {"connection_id": ".."}, 400, "INVALID_ID", id="dots for an id"),
        pytest.param(
            START | {"connection_id": "x" * 129},
            400,
            "INVALID_ID",
            id="an id that is too long",
        ),
        pytest.param(START | {"connection_id": 7}, 400, "INVALID_BODY", id="a number for an id"),
        pytest.param({"connection_id": "dot"}, 400, "INVALID_BODY", id="no provider"),
        pytest.param([START], 400, "INVALID_BODY", id="a list"),
        pytest.param(START | {"return_to": "https://evil.example/"}, 400, "RETURN_TO_INVALID", id="foreign origin"),
        pytest.param(START | {"return_to": "//evil.example"}, 400, "RETURN_TO_INVALID", id="no scheme"),
        pytest.param(START | {"return_to": "javascript:alert(1)"}, 400, "RETURN_TO_INVALID", id="a script"),
    ],
)
def test_a_start_that_cannot_be(life: Life, body: Any, status: int, code: str) -> None:
    """Refused with its own code before anything is written."""
    before = everything(life.stack)

    answer = life.api.post(f"{life.owner_path}/connections", json=body)

    assert (answer.status_code, envelope(answer)["code"]) == (status, code)
    assert everything(life.stack) == before


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        pytest.param(b"{", JSON, 400, "INVALID_BODY", id="half an object"),
        pytest.param(b"\xff\xfe", JSON, 400, "INVALID_BODY", id="not text"),
        pytest.param(b"", JSON, 400, "INVALID_BODY", id="nothing"),
        pytest.param(b"{}", {"content-type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE", id="plain text"),
        pytest.param(
            b'{"connection_id": "' + b"x" * LONGEST_BODY + b'"}', JSON, 413, "BODY_TOO_LARGE", id="over 64 KiB"
        ),
    ],
)
def test_a_body_that_cannot_be_read(
    life: Life, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    """Refused before its meaning is looked at."""
    before = everything(life.stack)

    answer = life.api.post(f"{life.owner_path}/connections", content=content, headers=headers)

    assert (answer.status_code, envelope(answer)["code"]) == (status, code)
    assert everything(life.stack) == before


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        pytest.param("GET", "", {}, 404, "CONNECTION_NOT_FOUND", id="view of none"),
        pytest.param("DELETE", "", {"if-match": '"1"'}, 404, "CONNECTION_NOT_FOUND", id="stop of none"),
        pytest.param("POST", "/access-token", {}, 404, "CONNECTION_NOT_FOUND", id="token of none"),
        pytest.param("POST", "/acknowledge-removal", {}, 404, "CONNECTION_NOT_FOUND", id="acknowledge none"),
        pytest.param("POST", "/reconnect", {}, 404, "CONNECTION_NOT_FOUND", id="reconnect of none"),
    ],
)
def test_a_connection_that_is_not_there(
    life: Life, method: str, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    """One answer for what does not exist."""
    before = everything(life.stack)
    content = b"{}" if method == "POST" else b""

    answer = life.api.request(method, life.path + path, content=content, headers=JSON | headers)

    assert (answer.status_code, envelope(answer)["code"]) == (status, code)
    assert everything(life.stack) == before


@pytest.mark.rule("S-20", "U-14")
def test_a_foreign_owner_is_answered_like_an_unknown_one(a_life: Callable[..., Life]) -> None:
    """Nothing tells another owner's connection from one that does not exist."""
    theirs, mine, nobody = a_life(), a_life(), a_life(connection_id="nothing")
    theirs.start()

    answers = [envelope(life.api.get(life.path)) for life in (mine, nobody)]

    for answer in answers:
        del answer["request_id"]
        answer.get("details", {}).pop("connection_id", None)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("owner", ["a%20b", "%2E%2E", "x" * 129, "%C3%A4"])
def test_an_owner_out_of_pattern(life: Life, owner: str) -> None:
    """Ids are never escaped or decoded: what does not fit the pattern is refused."""
    before = everything(life.stack)

    answer = life.api.get(f"/v1/tenants/demo/owners/{owner}/connections")

    assert (answer.status_code, envelope(answer).get("code")) in [(400, "INVALID_ID"), (403, None), (404, None)]
    assert everything(life.stack) == before


def test_without_credentials_nobody_gets_in(life: Life) -> None:
    """403 from the API itself; no function is asked."""
    answer = httpx.get(f"{life.stack.base_url}{life.path}", trust_env=False)

    assert answer.status_code == 403


def test_the_key_of_one_tenant_does_not_open_another(life: Life) -> None:
    """The path is in the policy: tenant `other` cannot read tenant `demo`, nor the other way round."""
    life.start()
    with life.stack.client("other") as stranger, life.stack.client("operator") as operator:
        refused = stranger.get(life.path)
        seen = operator.get(life.path)

    assert refused.status_code == 403
    assert seen.status_code == 200
    assert life.api.get("/v1/tenants/other/owners/o/connections").status_code == 403


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 428, "IF_MATCH_REQUIRED"),
        ({"if-match": "*"}, 428, "IF_MATCH_REQUIRED"),
        ({"if-match": '"x"'}, 428, "IF_MATCH_REQUIRED"),
        ({"if-match": '"99"'}, 409, "GENERATION_MOVED"),
    ],
)
def test_a_stop_names_the_generation_it_saw(life: Life, headers: dict[str, str], status: int, code: str) -> None:
    """Without it, or with another one, nothing is stopped."""
    life.connect()
    before = everything(life.stack)

    answer = life.api.delete(life.path, headers=headers)

    assert (answer.status_code, envelope(answer)["code"]) == (status, code)
    assert everything(life.stack) == before


def test_there_is_nothing_to_acknowledge_on_a_living_connection(life: Life) -> None:
    """An acknowledgement is for notices only (F-33)."""
    life.connect()
    before = everything(life.stack)

    answer = life.acknowledge()

    assert (answer.status_code, envelope(answer)["code"]) == (409, "NOTHING_TO_ACKNOWLEDGE")
    assert everything(life.stack) == before


# --- the public pages ------------------------------------------------------------------------------------------------


def returning(life: Life) -> str:
    """The address with which the provider sends the owner back; not visited yet."""
    back = consent(life.browser, life.visit(life.start()), follow=False)
    assert back.left_for is not None
    life.secrets |= {value for name, value in back.query.items() if name in ("code", "state")}
    return back.left_for


def changed(url: str, *extra: tuple[str, str], **parameters: str | None) -> str:
    """*url* with parameters replaced, left out (None), or added once more."""
    kept = [(n, v) for n, v in parse_qsl(urlsplit(url).query, keep_blank_values=True) if n not in parameters]
    given = [(name, value) for name, value in parameters.items() if value is not None]
    return urlunsplit(urlsplit(url)._replace(query=urlencode([*kept, *given, *extra])))


@pytest.mark.parametrize(
    ("extra", "parameters", "status", "code"),
    [
        pytest.param([], {"state": None}, 400, "OAUTH_STATE_MISSING", id="no state"),
        pytest.param([], {"state": ""}, 400, "OAUTH_STATE_MISSING", id="blank state"),
        pytest.param([], {"state": "A" * 43}, 400, "OAUTH_STATE_INVALID", id="forged state"),
        pytest.param([("code", "x")], {}, 400, "OAUTH_PARAMETER_REPEATED", id="two codes"),
        pytest.param([("state", "x")], {}, 400, "OAUTH_PARAMETER_REPEATED", id="two states"),
        pytest.param([], {"iss": "https://evil.example"}, 400, "OAUTH_ISSUER_MISMATCH", id="another issuer"),
        pytest.param([("iss", "x")], {}, 400, "OAUTH_PARAMETER_REPEATED", id="two issuers"),
    ],
)
def test_a_hostile_callback_spends_nothing(
    life: Life, extra: list[tuple[str, str]], parameters: dict[str, str | None], status: int, code: str
) -> None:
    """Refused before consumption: nothing is written, and the true callback still works afterwards."""
    true = returning(life)
    before = everything(life.stack)

    page = life.browser.open(changed(true, *extra, **parameters))

    assert (page.status, code_of(page)) == (status, code)
    assert everything(life.stack) == before
    assert expect(life.confirm(life.code_on(life.browser.open(true))), 200)["state"] == "ready"


@pytest.mark.parametrize("cookie", ["none", "another"])
def test_a_callback_in_another_browser_spends_nothing(life: Life, cookie: str) -> None:
    """Whoever sends the owner's address to another browser gets nothing, and the owner still arrives."""
    true = returning(life)
    before = everything(life.stack)
    binding = next(name for name in life.browser.cookies.names() if name.startswith("__Host-qc-"))

    with Browser() as thief:
        if cookie == "another":
            thief.cookies.set(true, f"{binding}={'A' * 43}; Secure; HttpOnly; Path=/; SameSite=Lax")
        page = thief.open(true)

    assert (page.status, code_of(page)) == (403, "OAUTH_BINDING_MISMATCH")
    assert everything(life.stack) == before
    assert expect(life.confirm(life.code_on(life.browser.open(true))), 200)["state"] == "ready"


@pytest.mark.parametrize(
    "headers", [{"sec-purpose": "prefetch"}, {"purpose": "prefetch"}, {"sec-purpose": "prefetch;prerender"}]
)
def test_a_prefetched_callback_spends_nothing(life: Life, headers: dict[str, str]) -> None:
    """A browser that looks ahead is not the owner coming back."""
    true = returning(life)
    before = everything(life.stack)

    life.browser.open(true, headers=headers)

    assert everything(life.stack) == before
    assert expect(life.confirm(life.code_on(life.browser.open(true))), 200)["state"] == "ready"


def test_a_callback_of_another_provider_spends_nothing(life: Life) -> None:
    """A state made for one provider is not taken on the path of another one."""
    true = returning(life)
    before = everything(life.stack)

    page = life.browser.open(true.replace("/callback/dot", "/callback/other"))

    assert (page.status, code_of(page)) in [(400, "OAUTH_PROVIDER_MISMATCH"), (404, "PROVIDER_NOT_REGISTERED")]
    assert everything(life.stack) == before
    assert expect(life.confirm(life.code_on(life.browser.open(true))), 200)["state"] == "ready"


def test_a_callback_with_an_error_ends_the_attempt_with_its_own_code(life: Life) -> None:
    """The provider's no is final; its words are not repeated on the page."""
    true = returning(life)

    page = life.browser.open(changed(true, code=None, error="access_denied", error_description="<b>evil</b>"))

    assert (page.status, code_of(page)) == (400, "OAUTH_CALLBACK_REJECTED")
    assert "evil" not in page.text
    assert life.state == "failed"
    assert life.issued() == []


def test_a_callback_without_a_code_ends_the_attempt_with_its_own_code(life: Life) -> None:
    """Neither code nor error: nothing can be sent to the provider."""
    page = life.browser.open(changed(returning(life), code=None))

    assert (page.status, code_of(page)) == (400, "OAUTH_CODE_MISSING")
    assert life.state == "failed"


def test_an_expired_state_is_unknown(life: Life) -> None:
    """Fifteen minutes after the visit the authorization is over."""
    true = returning(life)
    life.stack.advance(901)

    page = life.browser.open(true)

    assert (page.status, code_of(page)) == (400, "OAUTH_STATE_INVALID")
    assert life.issued() == []


def test_a_replayed_callback_of_an_attempt_that_ended_is_refused(life: Life) -> None:
    """The first delivery owns the outcome: once it is over, a replay is told that a stop came since and asks nobody."""
    true = returning(life)
    life.code_on(life.browser.open(true))
    expect(life.disconnect(), 200)
    before = life.issued()

    page = life.browser.open(true)

    assert (page.status, code_of(page)) == (409, "OAUTH_STATE_SUPERSEDED")
    assert len(life.issued()) == len(before) == 1


def test_a_replayed_callback_of_a_finished_attempt_does_no_work_again(life: Life) -> None:
    """The bound browser is shown how the first delivery ended (RB-49), without a code; another one is refused."""
    true = returning(life)
    expect(life.confirm(life.code_on(life.browser.open(true))), 200)
    life.stack.fire("revoke_sweep")  # what an earlier test kicked is settled by then
    before = everything(life.stack)

    page = life.browser.open(true)
    with Browser() as stranger:
        refused = stranger.open(true)

    assert (page.status, page.labelled("Confirmation code")) == (200, None)
    assert (refused.status, code_of(refused)) == (403, "OAUTH_BINDING_MISMATCH")
    assert everything(life.stack) == before
    assert len(life.issued()) == 1


@pytest.mark.parametrize("ticket", ["A" * 43, "x", "%00", "..%2f..%2f"])
def test_a_forged_link_leads_nowhere(life: Life, ticket: str) -> None:
    """An unknown ticket makes no authorization and sets no cookie."""
    before = everything(life.stack)

    page = life.browser.open(f"{life.stack.base_url}/connect/{ticket}")

    assert page.status in (400, 404)
    assert life.browser.cookies.names() == []
    assert everything(life.stack) == before


def test_a_wrong_code_is_counted_and_installs_nothing(life: Life) -> None:
    """The right one still works afterwards."""
    right = life.code_on(life.allow(life.visit(life.start())))
    wrong = "".join("A" if letter != "A" else "B" for letter in right)

    refused = life.confirm(wrong)

    assert (refused.status_code, envelope(refused)["code"]) == (403, "CONFIRM_CODE_WRONG")
    assert expect(life.confirm(right), 200)["state"] == "ready"
