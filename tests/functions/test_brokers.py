"""Brokers, event by event: links on their pages, sources behind an account, and sign-in from an app's SDK."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fakes.provider import answers
from tests.functions.stage import RETURN_TO, Answer, Stage


def linked(stage: Stage, connection: str = "health", **body: Any) -> Answer:
    """Start, open the link, come back from the broker's pages with what a broker adds to the address."""
    told = stage.api("POST", "/connections", body={"connection_id": connection, "provider": "health", **body})
    assert told.status == 201, told.text
    stage.secrets.add(told.json["connect_url"].rpartition("/")[2])
    visit = stage.http("connect", "GET", urlsplit(told.json["connect_url"]).path)
    assert visit.status == 303, visit.text
    cookie = visit.cookies[0].partition(";")[0]
    back = urlsplit(stage.broker.links[-1]["redirect_url"])
    (state,) = parse_qs(back.query)["flow"]
    stage.secrets |= {cookie.partition("=")[2], state}
    return stage.http("connect", "GET", back.path, query=f"{back.query}&state=success", headers={"cookie": cookie})


def ready(stage: Stage, connection: str = "health", **body: Any) -> None:
    """A ready connection to the broker."""
    code = stage.code_of(linked(stage, connection, **body))
    confirmed = stage.api("POST", f"/connections/{connection}/confirm", body={"generation": 1, "code": code})
    assert confirmed.status == 200, confirmed.text


def signed_in(stage: Stage, body: object = None) -> Answer:
    """The answer to a sign-in; its token is looked for in everything that is written."""
    asked = {"connection_id": "health", "provider": "health"} if body is None else body
    told = stage.http("access_token", "POST", f"{stage.path}/sdk-sign-in", body=asked)
    stage.secrets |= set(stage.broker.sign_in_tokens)
    return told


@pytest.mark.rule("M-6", "M-24")
def test_a_user_comes_back_from_a_broker_by_a_parameter_of_its_own(stage: Stage) -> None:
    """A broker writes its own `state` into the address: ours has another name there, and it alone counts."""
    told = linked(stage, return_to=RETURN_TO)

    assert told.query["status"] == "awaiting_confirmation"
    assert told.query["connection_id"] == "health"
    assert stage.code_of(told)


@pytest.mark.rule("S-26")
def test_our_parameter_stands_once_also_behind_a_broker(stage: Stage) -> None:
    """Twice is refused, and nothing is spent."""
    before = stage.items()

    told = stage.http("connect", "GET", "/callback/health", query="flow=a&flow=b")

    assert (told.status, told.code) == (400, "OAUTH_PARAMETER_REPEATED")
    assert stage.items() == before


def test_the_account_is_what_is_handed_out(stage: Stage) -> None:
    """The broker's own id, with a type that says so; a disconnect removes it there."""
    ready(stage)

    told = stage.token("health")

    assert (told.json["access_token"], told.json["token_type"]) == (stage.broker.live()[0], "account")
    assert told.json["expires_at"] is None


@pytest.mark.rule("M-10", "M-18")
def test_sources_are_asked_for_by_name_and_can_be_looked_at(stage: Stage) -> None:
    """In whatever spelling; a second one behind the same account leaves the connection as it is."""
    ready(stage, source="Google_Fit")
    view = stage.api("GET", "/connections/health").json

    told = stage.api("POST", "/connections", body={"connection_id": "health", "provider": "health", "source": "oura"})
    stage.secrets.add(told.json["connect_url"].rpartition("/")[2])

    assert told.status == 201
    assert told.json["connection"] == view
    sources = stage.api("GET", "/connections/health/sources").json["sources"]
    assert [(each["source"], each["status"]) for each in sources] == [
        ("google-fit", "disconnected"),
        ("oura", "disconnected"),
    ]
    assert sources[0].keys() == {"source", "instance", "status", "first_seen", "last_seen"}


@pytest.mark.rule("M-13", "M-14")
def test_a_proof_of_what_the_app_saw(stage: Stage) -> None:
    """What the list says is a proof; what it said before is stale: 409, retryable."""
    ready(stage, source="oura")
    (seen,) = stage.api("GET", "/connections/health/sources").json["sources"]
    proof = {name: seen[name] for name in ("source", "instance", "last_seen")} | {"connection_id": "health"}
    body = {"connection_id": "health", "provider": "health", "source": "oura", "source_proof": proof}

    good = stage.api("POST", "/connections", body=body)
    stage.secrets.add(good.json["connect_url"].rpartition("/")[2])
    stale = stage.api("POST", "/connections", body=body | {"source_proof": proof | {"last_seen": 1}})

    assert good.status == 201
    assert (stale.status, stale.code, stale.json["retryable"]) == (409, "CONNECTION_SOURCE_START_STALE", True)
    assert stage.api("GET", "/connections/health/sources").json["sources"] == [seen]


@pytest.mark.parametrize(
    "changes",
    [
        {"source": 7},
        {"source": ""},
        {"source": "a/b"},
        {"source_proof": {}},
        {"source_proof": {"connection_id": "health", "source": "oura", "instance": "x", "last_seen": -1}},
        {"source_proof": {"connection_id": "health", "source": "oura", "instance": "x", "last_seen": 1, "more": 1}},
        {"provider": "acme", "source": "oura"},
    ],
    ids=str,
)
def test_what_is_no_source_is_refused(stage: Stage, changes: dict[str, Any]) -> None:
    """400, with the field; nothing is written."""
    body = {"connection_id": "health", "provider": "health"} | changes
    before = stage.items()

    told = stage.api("POST", "/connections", body=body)

    assert (told.status, told.code) == (400, "INVALID_BODY")
    assert stage.items() == before


@pytest.mark.rule("M-19", "M-21", "M-23")
def test_a_sign_in_answers_a_token_that_nobody_keeps(stage: Stage) -> None:
    """200 with the connection and the token, once; each call has another, and no line holds one."""
    first, second = signed_in(stage), signed_in(stage)

    assert first.status == second.status == 200
    assert first.headers["cache-control"] == "no-store"
    assert first.json["connection"] == second.json["connection"] == stage.api("GET", "/connections/health").json
    assert [told.json["sign_in_token"] for told in (first, second)] == stage.broker.sign_in_tokens
    assert stage.metrics()["SdkSignIns"] == [1.0, 1.0]
    assert not any(token in str(stage.items()) + stage.raw for token in stage.broker.sign_in_tokens)


@pytest.mark.rule("M-19")
def test_a_provider_without_sign_in(stage: Stage) -> None:
    """500, not retryable; nothing is written."""
    told = signed_in(stage, {"connection_id": "acme", "provider": "acme"})

    assert (told.status, told.code, told.json["retryable"]) == (500, "SDK_SIGN_IN_NOT_SUPPORTED", False)
    assert stage.items() == {}


@pytest.mark.rule("M-19")
@pytest.mark.parametrize("owner", ["%20", "..", "a%20b", "x" * 129])
def test_an_owner_is_always_named(stage: Stage, owner: str) -> None:
    """It is in the path; what is no owner is refused before anything is asked."""
    body = {"connection_id": "health", "provider": "health"}

    told = stage.http("access_token", "POST", f"/v1/tenants/demo/owners/{owner}/sdk-sign-in", body=body)

    assert told.status in (400, 404)
    assert stage.broker.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"provider": "health"},
        {"connection_id": "a b", "provider": "health"},
        {"connection_id": "x", "provider": 1},
        {"connection_id": "x", "provider": "health", "client": ""},
        {"connection_id": "x", "provider": "health", "more": 1},
        {"connection_id": "x", "provider": "acme", "client": "health"},
        [],
    ],
    ids=str,
)
def test_what_is_no_sign_in_is_refused(stage: Stage, body: object) -> None:
    """400; the broker is not asked."""
    told = signed_in(stage, body)

    assert (told.status, told.code) in [(400, "INVALID_BODY"), (400, "INVALID_ID")]
    assert stage.broker.asked == []


def test_a_broker_that_is_away_is_told_as_a_page_at_the_link(stage: Stage) -> None:
    """Nothing of its words; the link works again."""
    told = stage.api("POST", "/connections", body={"connection_id": "health", "provider": "health"})
    path = urlsplit(told.json["connect_url"]).path
    stage.secrets.add(path.rpartition("/")[2])
    stage.broker.next("/v2/link/token", answers(503, {"detail": "canary"}))

    away = stage.http("connect", "GET", path)
    again = stage.http("connect", "GET", path)
    stage.secrets.add(again.cookies[0].partition("=")[2].partition(";")[0])

    assert (away.status, away.code) == (503, "PROVIDER_BUSY")
    assert "canary" not in away.text
    assert again.status == 303
