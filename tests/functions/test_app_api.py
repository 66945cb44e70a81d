"""The app's API, event by event: answers, statuses, headers, what is written and what is not."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ReadTimeoutError

from quitclaim.domain.limits import TICKET_MS
from tests.functions.stage import BASE_URL, RETURN_TO, TENANT, answered, sdk, template
from tests.runtime.events import API_ID, Context, http_event

START = {"connection_id": "acme", "provider": "acme"}
NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff", "content-type": "application/json"}


# --- start -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-18")
def test_a_start_answers_a_connect_link(stage):
    """201; the connection as it is now, the link on our own address, and when that ends; nobody keeps the answer."""
    told = stage.api("POST", "/connections", body={**START, "return_to": RETURN_TO})

    body = told.json
    ticket = body.pop("connect_url").removeprefix(f"{BASE_URL}/connect/")
    stage.secrets.add(ticket)
    assert told.status == 201
    assert told.headers == NO_STORE
    assert len(ticket) == 43
    assert body.pop("expires_at") - stage.now() == pytest.approx(TICKET_MS, abs=10_000)
    assert body == {
        "connection": {
            "connection_id": "acme",
            "provider": "acme",
            "client": "acme",
            "state": "authorizing",
            "generation": 1,
            "awaiting_confirmation": False,
            "phase": "link",
        }
    }
    assert stage.metrics() == {"ConnectionsStarted": [1.0]}
    assert {key[1] for key in stage.items() if key[0] == f"O#{TENANT}#{stage.owner}"} == {"OWNER", "C#acme"}


@pytest.mark.rule("M-17", "M-18")
def test_what_a_start_may_ask_for_beside(stage):
    """Scopes of the client, who is expected, notes; the view has the notes, and no answer the hint."""
    stage.add_client("web", optional_scopes=["write"], required_scopes=[])
    asked = {"scopes": ["read", "write"], "login_hint": "ann@canary.example", "metadata": {"cart": "42"}}

    told = stage.api("POST", "/connections", body={**START, "client": "web", **asked})

    stage.secrets.add(told.json["connect_url"].rpartition("/")[2])
    location, _ = stage.visit(told.json["connect_url"])
    sent = parse_qs(urlsplit(location).query)
    assert (sent["scope"], sent["login_hint"]) == (["read write"], ["ann@canary.example"])
    assert told.json["connection"]["metadata"] == {"cart": "42"}
    assert stage.api("GET", "/connections/acme").json["metadata"] == {"cart": "42"}
    stage.lines()
    assert "canary" not in told.text + str(stage.items()) + stage.raw


@pytest.mark.rule("C-9", "U-12")
def test_a_start_of_what_is_there_is_answered_with_it(stage):
    """201 and the same link while it waits, 200 and the connection once it is ready; nothing is written for either."""
    first = stage.start()
    before = stage.items()
    assert stage.start() == first
    assert stage.items() == before
    stage.connected()
    before = stage.items()

    told = stage.api("POST", "/connections", body=START)

    assert (told.status, told.json["connection"]["state"]) == (200, "ready")
    assert told.json.keys() == {"connection"}
    assert stage.items() == before
    assert stage.api("POST", "/connections/acme/reconnect", body={}).code == "CONNECTION_STATE_CONFLICT"


@pytest.mark.rule("M-29", "S-1", "S-20")
def test_a_code_in_another_owners_hands_confirms_nothing(stage):
    """The path is the caller's: another owner has no such connection, and the code still serves its own."""
    code = stage.code_of(stage.returned(stage.start()))
    before = stage.items()
    other = f"/v1/tenants/{TENANT}/owners/mallory/connections/acme/confirm"

    told = stage.http("app_api", "POST", other, body={"generation": 1, "code": code})

    assert (told.status, told.code) == (404, "CONNECTION_NOT_FOUND")
    assert stage.items() == before
    assert stage.api("POST", "/connections/acme/confirm", body={"generation": 1, "code": code}).status == 200


@pytest.mark.rule("RB-51")
def test_RB_51_a_code_is_bound_to_the_owner_and_not_to_a_session(stage):
    """The callback comes by a browser, the confirmation from a backend that signs as somebody else each time."""
    code = stage.code_of(stage.returned(stage.start()))
    body = json.dumps({"generation": 1, "code": code}).encode()
    headers = {"content-type": "application/json"}
    path = f"{stage.path}/connections/acme/confirm"

    for session in ("first", "second"):
        event = http_event("POST", path, body=body, headers=headers, routes=template().routes)
        event["requestContext"]["authorizer"] = {"iam": {"userArn": f"arn:aws:sts::1:assumed-role/app/{session}"}}
        told = answered(stage.invoke("app_api", event))

        assert (told.status, told.json["state"]) == (200, "ready")


def test_a_client_by_another_name(stage):
    """Its name is the app team's; the callback goes by the provider."""
    stage.add_client("web")

    told = stage.api("POST", "/connections", body={**START, "client": "web"})

    assert (told.status, told.json["connection"]["client"], told.json["connection"]["provider"]) == (201, "web", "acme")


@pytest.mark.rule("U-12")
def test_P_10_an_idempotency_key_gives_the_first_answer(stage):
    """The same request again: the same link, and nothing written; another request: 422."""
    headers = {"idempotency-key": "k1"}
    first = stage.api("POST", "/connections", body=START, headers=headers)
    before = stage.items()

    again = stage.api("POST", "/connections", body=START, headers=headers)
    other = stage.api("POST", "/connections", body={**START, "return_to": RETURN_TO}, headers=headers)

    assert (again.status, again.json) == (201, first.json)
    assert (other.status, other.code) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert stage.items() == before


def test_a_long_idempotency_key_is_read_to_its_end(stage):
    """Two keys that begin alike are two keys."""
    keys = [{"idempotency-key": "k" * 300 + end} for end in "12"]

    told = [
        stage.api("POST", "/connections", body={**START, "connection_id": name}, headers=headers)
        for name, headers in zip(("one", "one"), keys, strict=True)
    ]

    assert [each.status for each in told] == [201, 201]
    assert [each.json["connection"]["generation"] for each in told] == [1, 2]


@pytest.mark.rule("M-1", "M-4")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**START, "provider": "nobody"}, 404, "PROVIDER_NOT_REGISTERED"),
        ({**START, "client": "nobody"}, 404, "PROVIDER_NOT_REGISTERED"),
        ({**START, "provider": "../acme"}, 404, "PROVIDER_NOT_REGISTERED"),
        ({**START, "provider": "google", "client": "acme"}, 400, "INVALID_BODY"),
        ({**START, "connection_id": "a/b"}, 400, "INVALID_ID"),
        ({**START, "connection_id": "a#b"}, 400, "INVALID_ID"),
        ({**START, "connection_id": ".."}, 400, "INVALID_ID"),
        ({**START, "connection_id": "x" * 129}, 400, "INVALID_ID"),
        ({**START, "connection_id": "\ud800"}, 400, "INVALID_BODY"),
        ({**START, "return_to": "https://evil.example/"}, 400, "RETURN_TO_INVALID"),
        ({**START, "return_to": "/done"}, 400, "RETURN_TO_INVALID"),
        ({**START, "return_to": ""}, 400, "RETURN_TO_INVALID"),
        ({**START, "scopes": ["admin"]}, 400, "SCOPE_NOT_ALLOWED"),
        ({**START, "scopes": []}, 400, "INVALID_BODY"),
        ({**START, "scopes": "read"}, 400, "INVALID_BODY"),
        ({**START, "login_hint": ""}, 400, "INVALID_BODY"),
        ({**START, "login_hint": "x" * 257}, 400, "INVALID_BODY"),
        ({**START, "variables": {"shop": "x"}}, 400, "INVALID_BODY"),
        ({**START, "variables": {"shop": 7}}, 400, "INVALID_BODY"),
        ({**START, "metadata": {"state": "x"}}, 400, "INVALID_BODY"),
        ({**START, "metadata": {"Connection-Id": "x"}}, 400, "INVALID_BODY"),
        ({**START, "metadata": {"cart": 42}}, 400, "INVALID_BODY"),
        ({**START, "metadata": {"cart": {"id": "42"}}}, 400, "INVALID_BODY"),
        ({**START, "source": "x"}, 400, "INVALID_BODY"),
        ({**START, "more": 1}, 400, "INVALID_BODY"),
        ({"provider": "acme"}, 400, "INVALID_BODY"),
        ([], 400, "INVALID_BODY"),
        (b"{", 400, "INVALID_BODY"),
        (b"", 400, "INVALID_BODY"),
        (b"{}" + b" " * 65_536, 413, "BODY_TOO_LARGE"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_a_start_that_cannot_be(stage, body, status, code):
    """Its own code, in the envelope; nothing is written."""
    before = stage.items()

    told = stage.api("POST", "/connections", body=body, headers={"content-type": "application/json"})

    assert (told.status, told.code) == (status, code)
    assert told.json.keys() == {"code", "message", "retryable", "request_id", "details"}
    assert told.json["request_id"] == "request-1"
    assert stage.items() == before


def test_a_body_of_another_type_is_refused(stage):
    """415."""
    told = stage.api("POST", "/connections", body=json.dumps(START).encode(), headers={"content-type": "text/plain"})

    assert (told.status, told.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.rule("F-15", "I-10")
def test_a_deleted_owner_starts_nothing(stage):
    """410, for good."""
    stage.start()
    assert stage.api("DELETE").json["owner"]["deleted"] is True

    told = stage.api("POST", "/connections", body={**START, "connection_id": "other"})

    assert (told.status, told.code, told.json["retryable"]) == (410, "OWNER_DELETED", False)


# --- reads -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-28b", "M-85")
def test_what_an_owner_has(stage):
    """One connection, all of them, status, receipts and the clients; each a JSON object that nobody keeps."""
    view = stage.connected()

    answers = {
        "one": stage.api("GET", "/connections/acme"),
        "all": stage.api("GET", "/connections"),
        "status": stage.api("GET", "/status"),
        "receipts": stage.api("GET", "/receipts"),
        "providers": stage.http("app_api", "GET", "/v1/providers"),
    }

    assert all(told.status == 200 and told.headers == NO_STORE for told in answers.values())
    assert answers["one"].json == view
    assert view == {
        "connection_id": "acme",
        "provider": "acme",
        "client": "acme",
        "state": "ready",
        "generation": 1,
        "awaiting_confirmation": False,
        "scopes": ["read"],
    }
    assert answers["all"].json == {"connections": [view]}
    assert answers["status"].json == {
        "owner": {"deleted": False},
        "connections": [view],
        "notices": [],
        "blockers": {},
    }
    assert answers["receipts"].json == {"receipts": []}
    assert {
        "client": "acme",
        "provider": "acme",
        "scopes": ["read"],
        "confirmation": "owner",
        "revocable": True,
        "reach": "family",
        "manual_page": None,
    } in answers["providers"].json["clients"]


def test_what_waits_for_its_owner_says_so(stage):
    """Until when, and never the code."""
    code = stage.code_of(stage.returned(stage.start()))

    view = stage.api("GET", "/connections/acme")

    assert view.json["state"] == "authorizing"
    assert view.json["awaiting_confirmation"] is True
    assert view.json["confirm_until"] - stage.now() == pytest.approx(600_000, abs=10_000)
    assert code not in view.text


@pytest.mark.rule("I-17")
def test_no_answer_of_the_api_shows_what_lies_in_the_table(stage):
    """No digest, no id of an exchange or revocation, nothing sealed, no token: in none of the views, at no time."""
    stage.connected()
    inner = inner_values(stage)
    stage.api("DELETE", "/connections/acme", headers={"if-match": "1"})
    inner |= inner_values(stage)
    assert len(inner) > 10

    shown = "".join(
        stage.api("GET", path).text for path in ("/connections", "/connections/acme", "/status", "/receipts")
    )

    assert [value for value in inner if value in shown] == []
    assert stage.leaks(shown) == []


def inner_values(stage):
    """Ids, digests and ciphertexts that are in the table now, as text."""
    named = {
        "rid",
        "fp",
        "exchange",
        "subject",
        "account",
        "family",
        "token",
        "lease",
        "saved_by",
        "op",
        "use",
        "revoke",
    }
    found = set()
    for item in stage.items().values():
        for name, wire in item.items():
            if name in named:
                ((_, value),) = wire.items()
                found |= {str(each) for each in (value if isinstance(value, list | set) else [value])}
    return {value for value in found if len(value) > 8}


@pytest.mark.rule("S-20", "U-14")
@pytest.mark.parametrize(
    ("method", "path", "given"),
    [
        ("GET", "/connections/nothing", {}),
        ("DELETE", "/connections/nothing", {"headers": {"if-match": '"1"'}}),
        ("POST", "/connections/nothing/reconnect", {"body": {}}),
        ("POST", "/connections/nothing/confirm", {"body": {"generation": 1, "code": "x"}}),
        ("POST", "/connections/nothing/acknowledge-removal", {}),
        ("POST", "/connections/nothing/report", {"body": {"token_version": 1}}),
    ],
)
def test_a_connection_that_is_not_there(stage, method, path, given):
    """404 for every route, for a stranger's connection as for none at all; nothing is written."""
    stage.start("mine")
    before = stage.items()
    none = stage.api(method, path, **given)
    foreign = stage.http(
        "app_api", method, f"/v1/tenants/{TENANT}/owners/bob{path.replace('nothing', 'mine')}", **given
    )

    assert (none.status, none.code) == (foreign.status, foreign.code) == (404, "CONNECTION_NOT_FOUND")
    assert none.text.replace("nothing", "mine") == foreign.text
    assert stage.items() == before


@pytest.mark.rule("S-30", "F-1")
@pytest.mark.parametrize("part", ["tenant", "owner", "connection"])
@pytest.mark.parametrize(
    "text", ["..", "x" * 129, "%C3%A4", "a%20b", "a%2540b", "~", "a%23b", "a%2Fb", "a%00b", "a%0Ab"]
)
def test_an_id_out_of_pattern_reaches_nothing(stage, part, text):
    """400, or no route at all; no read is made with it and nothing is written."""
    ids = {"tenant": TENANT, "owner": "ann", "connection": "acme"} | {part: text}
    path = "/v1/tenants/{tenant}/owners/{owner}/connections/{connection}".format(**ids)

    told = stage.http("app_api", "GET", path)

    assert (told.status, told.code) in [(400, "INVALID_ID"), (404, "NOT_FOUND")]
    assert stage.items() == {}


# --- stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-19")
def test_a_stop_and_the_kick_that_makes_it_prompt(stage):
    """200; revoking, one generation on; the sweep is told which revocation, and nothing else."""
    stage.connected()

    told = stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})

    (rid,) = [pk.removeprefix("Q#") for pk, _ in stage.items() if pk.startswith("Q#")]
    assert (told.status, told.json["state"], told.json["generation"]) == (200, "revoking", 2)
    assert stage.kicks == [{"rids": [rid]}]
    assert not [key for key in stage.items() if key[1].startswith("G#")]


@pytest.mark.rule("F-25", "I-18")
def test_a_stop_is_repeatable_and_says_what_it_saw(stage):
    """The same stop again changes nothing; another generation is 409, none at all 428."""
    stage.connected()
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    before = stage.items()

    again = stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})
    seen = stage.api("DELETE", "/connections/acme", headers={"if-match": '"2"'})
    older = stage.api("DELETE", "/connections/acme", headers={"if-match": '"0"'})
    newer = stage.api("DELETE", "/connections/acme", headers={"if-match": '"9"'})
    blind = stage.api("DELETE", "/connections/acme")

    assert [again.status, seen.status] == [200, 200]
    assert (older.status, older.code, older.json["details"]["generation"]) == (409, "GENERATION_MOVED", 2)
    assert (newer.status, newer.code) == (409, "GENERATION_MOVED")
    assert (blind.status, blind.code) == (428, "IF_MATCH_REQUIRED")
    assert stage.items() == before


@pytest.mark.rule("U-20", "D-9", "F-16")
def test_a_stopped_connection_owes_its_revocation(stage):
    """The owner's status says what is pending until when, and what it blocks."""
    stage.connected()
    stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'})

    status = stage.api("GET", "/status").json
    blocked = stage.api("POST", "/connections/acme/reconnect", body={})

    (notice,) = status["notices"]
    assert (notice["connection_id"], notice["level"]) == ("acme", "pending")
    assert notice["deadline"] > stage.now()
    assert {each["level"] for each in status["blockers"]["acme"]} == {"pending", "purging"}
    assert blocked.status == 409


# --- confirm, report, acknowledge ------------------------------------------------------------------------------------


def test_wrong_codes_are_counted_and_the_fifth_ends_the_attempt(stage):
    """403 four times, then 409; the grant is due for revocation and the right code serves no more."""
    right = stage.code_of(stage.returned(stage.start()))
    wrong = {"generation": 1, "code": "AAAAA-AAAAA"}

    told = [stage.api("POST", "/connections/acme/confirm", body=wrong) for _ in range(5)]
    late = stage.api("POST", "/connections/acme/confirm", body={"generation": 1, "code": right})

    assert [(each.status, each.code) for each in told] == [(403, "CONFIRM_CODE_WRONG")] * 4 + [
        (409, "GRANT_NOT_INSTALLED")
    ]
    assert (late.status, late.code) == (409, "GRANT_NOT_INSTALLED")
    assert len(stage.kicks) == 1
    assert stage.api("GET", "/connections/acme").json["state"] == "failed"


def test_the_right_code_is_taken_once_and_shown_twice(stage):
    """A repeated confirmation answers the ready connection again, however the code is spelled."""
    code = stage.code_of(stage.returned(stage.start()))

    told = [
        stage.api("POST", "/connections/acme/confirm", body={"generation": 1, "code": spelled})
        for spelled in (code.lower().replace("-", " "), code)
    ]

    assert [(each.status, each.json["state"]) for each in told] == [(200, "ready"), (200, "ready")]
    assert stage.metrics()["ConnectionsReady"] == [1.0, 1.0]


@pytest.mark.rule("F-33")
@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("confirm", {"generation": 1}, 400, "INVALID_BODY"),
        ("confirm", {"generation": "1", "code": "x"}, 400, "INVALID_BODY"),
        ("confirm", {"generation": 2, "code": "x"}, 409, "GENERATION_MOVED"),
        ("confirm", {"generation": 10**40, "code": "x"}, 409, "GENERATION_MOVED"),
        ("confirm", {"generation": 1, "code": "\u00e4"}, 409, "CONNECTION_STATE_CONFLICT"),
        ("report", {}, 400, "INVALID_BODY"),
        ("report", {"token_version": "1"}, 400, "INVALID_BODY"),
        ("report", {"token_version": 1, "token": "a#b"}, 400, "INVALID_ID"),
        ("reconnect", {}, 409, "CONNECTION_STATE_CONFLICT"),
        ("reconnect", {"return_to": "https://evil.example"}, 400, "RETURN_TO_INVALID"),
        ("acknowledge-removal", {}, 409, "NOTHING_TO_ACKNOWLEDGE"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_a_ready_connection_refuses(stage, path, body, status, code):
    """Its own code each, and nothing is written."""
    stage.connected()
    before = stage.items()

    told = stage.api("POST", f"/connections/acme/{path}", body=body)

    assert (told.status, told.code) == (status, code)
    assert stage.items() == before


@pytest.mark.rule("F-26")
@pytest.mark.parametrize(("version", "is_suspect"), [(1, True), (2, False), (10**40, False)])
def test_a_report_makes_a_version_suspect(stage, version, is_suspect):
    """The current one; the app's word ends nothing."""
    stage.connected()

    told = stage.api("POST", "/connections/acme/report", body={"token_version": version})

    assert (told.status, told.json) == (200, {"suspect": is_suspect})
    assert stage.api("GET", "/connections/acme").json["state"] == "ready"


# --- the edge --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-19")
@pytest.mark.parametrize("path", ["/v1/providers", "/v1/tenants/demo/owners/ann/connections"])
@pytest.mark.parametrize("api_id", ["", "another", API_ID[:-1]])
def test_an_event_of_another_api_is_refused(stage, path, api_id):
    """No flow is asked."""
    event = http_event("GET", path, api_id=api_id)

    told = answered(stage.function("app_api").handler(event, Context()))

    assert (told.status, told.code) == (404, "NOT_FOUND")
    assert [line["message"] for line in stage.lines()] == ["not an event of our API"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1"),
        ("GET", "/v1/tenants/demo/owners/ann"),
        ("PUT", "/v1/tenants/demo/owners/ann/connections"),
        ("POST", "/v1/tenants/demo/owners/ann/connections/acme"),
        ("GET", "/v1/tenants/demo/owners/ann/connections/acme/confirm"),
        ("POST", "/v1/tenants/demo/owners/ann/connections/acme/access-token"),
        ("GET", "/connect/ticket"),
        ("GET", "/"),
    ],
)
def test_another_functions_route_is_not_found(stage, method, path):
    """Even when the gateway would send it."""
    told = stage.http("app_api", method, path)

    assert (told.status, told.code) == (404, "NOT_FOUND")


@pytest.mark.rule("S-13", "S-32")
def test_an_unexpected_fault_is_500_without_its_words(stage, monkeypatch):
    """As the edge's own tests hold; here with the function's wiring."""
    module = stage.function("app_api")

    def broken(*_, **__):
        raise RuntimeError("canary-of-a-library")

    monkeypatch.setattr(module, "status", broken)

    told = stage.api("GET", "/status")

    assert (told.status, told.code) == (500, "INTERNAL")
    lines = stage.lines()
    assert [line["fault"] for line in lines if "fault" in line] == ["RuntimeError"]
    assert "canary-of-a-library" not in stage.raw + told.text


@pytest.mark.rule("F-12")
def test_a_table_that_does_not_answer_is_503(stage, monkeypatch):
    """Retryable; the caller repeats the same call."""

    def out(**_):
        raise ReadTimeoutError(endpoint_url="https://dynamodb")

    stage.function("app_api")
    monkeypatch.setattr(sdk("dynamodb"), "batch_get_item", out)

    told = stage.api("POST", "/connections", body=START)

    assert (told.status, told.code, told.json["retryable"]) == (503, "STORAGE_UNAVAILABLE", True)


@pytest.mark.rule("S-27")
def test_a_connect_link_is_on_the_public_address(stage):
    """Whatever host the request came to: a header does not decide where an owner is sent."""
    told = stage.api("POST", "/connections", body=START, headers={"host": "evil.example", "x-forwarded-host": "evil"})

    assert urlsplit(told.json["connect_url"]).netloc == urlsplit(BASE_URL).netloc
