"""The public pages, event by event: where the browser goes, what it keeps, and what a mere look does not do."""

import re
from dataclasses import replace
from urllib.parse import quote, urlencode, urlsplit

import pytest

from quitclaim.domain.limits import LINK_VISITS
from quitclaim.runtime import pages
from tests.fakes.provider import after, answers, lost_answer, not_connected
from tests.functions.stage import BASE_URL, RETURN_TO

PAGE = {name.lower(): value for name, value in pages.HEADERS.items()} | {"content-type": "text/html; charset=utf-8"}
LOOKING_AHEAD = [
    {"sec-purpose": "prefetch"},
    {"sec-purpose": "prefetch;prerender"},
    {"purpose": "prefetch"},
    {"x-moz": "prefetch"},
]


# --- the link --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-3")
def test_a_visit_goes_to_the_provider_with_a_cookie(stage):
    """303; state, challenge and our callback in the address; the cookie is this browser's alone."""
    url = stage.start()

    told = stage.http("connect", "GET", urlsplit(url).path)

    query = told.query
    stage.secrets |= {query["state"], told.cookies[0].partition("=")[2].partition(";")[0]}
    assert told.status == 303
    assert told.headers["location"].startswith("https://acme.example.com/authorize?")
    assert {name: query[name] for name in ("response_type", "client_id", "redirect_uri", "code_challenge_method")} == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": f"{BASE_URL}/callback/acme",
        "code_challenge_method": "S256",
    }
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", query["state"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", query["code_challenge"])
    assert {name: told.headers[name] for name in PAGE} == PAGE
    assert told.text == ""


@pytest.mark.rule("S-1")
def test_the_cookie_is_bound_to_this_host_this_browser_and_a_quarter_of_an_hour(stage):
    """Exactly one, with the attributes of a __Host- cookie and no domain."""
    told = stage.http("connect", "GET", urlsplit(stage.start()).path)

    (cookie,) = told.cookies
    pair, *attributes = cookie.split("; ")
    stage.secrets |= {pair.partition("=")[2], told.query["state"]}
    assert re.fullmatch(r"__Host-qc-[0-9a-f]{6}=[A-Za-z0-9_-]{43}", pair)
    assert sorted(attributes) == ["HttpOnly", "Max-Age=900", "Path=/", "SameSite=Lax", "Secure"]


@pytest.mark.rule("M-5")
def test_every_visit_is_an_authorization_of_its_own(stage):
    """State, challenge and cookie are new each time: a scanner's visit binds nobody else."""
    url = stage.start()

    visits = [stage.visit(url) for _ in range(3)]

    assert len({location for location, _ in visits}) == len({cookie for _, cookie in visits}) == 3


@pytest.mark.parametrize("headers", LOOKING_AHEAD)
def test_a_prefetched_link_has_no_effect(stage, headers):
    """204, without a cookie; the visit is not counted."""
    url = stage.start()
    before = stage.items()

    told = stage.http("connect", "GET", urlsplit(url).path, headers=headers)

    assert (told.status, told.cookies, told.text) == (204, [], "")
    assert "location" not in told.headers
    assert told.headers["cache-control"] == "no-store"
    assert stage.items() == before


def test_a_scanners_look_has_no_effect(stage):
    """HEAD answers what a page would, without a page, for a link that is and one that is not."""
    url = stage.start()
    before = stage.items()

    told = [stage.http("connect", "HEAD", urlsplit(each).path) for each in (url, f"{BASE_URL}/connect/forged")]

    for each in told:
        assert (each.status, each.cookies, each.text) == (200, [], "")
        assert {name: each.headers[name] for name in PAGE} == PAGE
    assert stage.items() == before


@pytest.mark.rule("S-5")
@pytest.mark.parametrize("ticket", ["A" * 43, "x", "%00", "a%20b", "%C3%A4", "x" * 2_000, "..%2F.."])
def test_a_forged_link_leads_nowhere(stage, ticket):
    """A page with its code, no cookie, nothing written."""
    stage.start()
    before = stage.items()

    told = stage.http("connect", "GET", f"/connect/{ticket}")

    assert (told.status, told.code) in [(400, "OAUTH_STATE_INVALID"), (404, "NOT_FOUND")]
    assert told.cookies == []
    assert told.headers == PAGE
    assert stage.items() == before


def test_a_link_serves_twenty_visits_and_a_quarter_of_an_hour(stage):
    """Then it is unknown, as one that never was."""
    url = stage.start()
    for _ in range(LINK_VISITS):
        stage.visit(url)
    worn = stage.http("connect", "GET", urlsplit(url).path)
    other = stage.start("other")
    stage.advance(901)
    late = stage.http("connect", "GET", urlsplit(other).path)

    assert (worn.status, worn.code) == (late.status, late.code) == (400, "OAUTH_STATE_INVALID")


@pytest.mark.rule("U-21")
def test_a_newer_start_replaces_the_link(stage):
    """409, before anything is set."""
    url = stage.start()
    stage.start(return_to=RETURN_TO)

    told = stage.http("connect", "GET", urlsplit(url).path)

    assert (told.status, told.code, told.cookies) == (409, "OAUTH_STATE_SUPERSEDED", [])


# --- the callback ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-25")
def test_a_returned_owner_is_shown_the_code(stage):
    """Without a return target: our page, kept by nobody; the grant is held, not live."""
    told = stage.returned(stage.start())

    code = stage.code_of(told)
    assert told.status == 200
    assert told.headers == PAGE
    assert re.fullmatch(r"[0-9A-Z]{5}-[0-9A-Z]{5}", code)
    assert not [key for key in stage.items() if key[1].startswith("G#")]
    lines = stage.lines()
    assert [line["outcome"] for line in lines if line.get("message") == "callback"] == ["awaiting_confirmation"]
    assert [line["CallbacksCompleted"] for line in lines if "CallbacksCompleted" in line] == [[1.0]]


def test_a_returned_owner_is_sent_back_to_the_app(stage):
    """303 to the target of the start, with what the app needs and nothing else."""
    told = stage.returned(stage.start(return_to=f"{RETURN_TO}?theirs=1&status=forged"))

    code = stage.code_of(told)
    assert told.status == 303
    assert told.headers["location"].startswith(f"{RETURN_TO}?")
    assert told.query == {
        "theirs": "1",
        "connection_id": "acme",
        "status": "awaiting_confirmation",
        "confirm_code": code,
    }
    assert told.headers["referrer-policy"] == "no-referrer"
    assert told.headers["cache-control"] == "no-store"
    assert told.cookies == []


def test_without_confirmation_the_connection_is_ready(stage):
    """No code anywhere."""
    stage.add_client("plain", confirmation="none")
    page = stage.returned(stage.start("one", client="plain"))
    stage.api("DELETE", "/connections/one", headers={"if-match": '"1"'})
    stage.add_client("other", confirmation="none")
    back = stage.returned(stage.start("two", client="other", return_to=RETURN_TO))

    assert (page.status, "<output" in page.text) == (200, False)
    assert "Acme is connected" in page.text
    assert back.query == {"connection_id": "two", "status": "ready"}
    assert stage.api("GET", "/connections/two").json["state"] == "ready"


def test_a_form_post_is_the_same_callback(stage):
    """OAuth 2.0 Form Post Response Mode; the gateway hands it over in base64."""
    cookie, state, code = stage.agreed(stage.start())
    form = urlencode({"state": state, "code": code}).encode()
    headers = {"cookie": cookie, "content-type": "application/x-www-form-urlencoded; charset=utf-8"}

    told = stage.http("connect", "POST", "/callback/acme", body=form, headers=headers)

    assert told.status == 200
    assert stage.code_of(told)


@pytest.mark.rule("M-29", "S-1")
def test_a_provider_that_posts_back_gets_a_cookie_that_comes_with_it(build, capsys):
    """As Apple does: from another site a browser sends only a cookie of SameSite None; the rest is as ever."""
    stage = build(authorize__response_mode="form_post").turn(capsys)
    told = stage.http("connect", "GET", urlsplit(stage.start()).path)
    (cookie,) = told.cookies
    pair, *attributes = cookie.split("; ")
    stage.secrets |= {pair.partition("=")[2], told.query["state"]}
    state, code = stage.server.approves(told.headers["location"], stage.owner)
    form = urlencode({"state": state.reveal(), "code": code.reveal(), "user": '{"name":{"firstName":"Ada"}}'}).encode()
    headers = {"cookie": pair, "content-type": "application/x-www-form-urlencoded"}

    back = stage.http("connect", "POST", "/callback/acme", body=form, headers=headers)

    assert told.query["response_mode"] == "form_post"
    assert sorted(attributes) == ["HttpOnly", "Max-Age=900", "Path=/", "SameSite=None", "Secure"]
    assert back.status == 200
    assert stage.code_of(back)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "multipart/form-data", ""])
def test_another_body_is_no_callback(stage, content_type):
    """Nothing of it is read, and nothing of its query."""
    cookie, state, code = stage.agreed(stage.start())
    before = stage.items()
    headers = {"cookie": cookie} | ({"content-type": content_type} if content_type else {})
    query = urlencode({"state": state, "code": code})

    told = stage.http("connect", "POST", "/callback/acme", query=query, body=query.encode(), headers=headers)

    assert (told.status, told.code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert stage.items() == before


def test_a_form_that_is_too_large_is_not_read(stage):
    """The same bound as for every other body."""
    headers = {"content-type": "application/x-www-form-urlencoded"}

    told = stage.http("connect", "POST", "/callback/acme", body=b"state=" + b"a" * (64 * 1024), headers=headers)

    assert (told.status, told.code) == (413, "BODY_TOO_LARGE")


REFUSED = [
    # (parameters beside the true ones (None: without), status, code)
    ({"state": None}, 400, "OAUTH_STATE_MISSING"),
    ({"state": ""}, 400, "OAUTH_STATE_MISSING"),
    ({"state": "   "}, 400, "OAUTH_STATE_MISSING"),
    ({"state": "A" * 43}, 400, "OAUTH_STATE_INVALID"),
    ({"state": "\u00e4"}, 400, "OAUTH_STATE_INVALID"),
    ({"code": "x" * 5_000}, 400, "INVALID_BODY"),
]


@pytest.mark.rule("RB-49", "S-5", "M-24", "M-27")
@pytest.mark.parametrize(("changes", "status", "code"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_hostile_callback_spends_nothing(stage, changes, status, code):
    """Refused on a page of ours; nothing is written, and the true callback still works."""
    cookie, state, true = stage.agreed(stage.start(return_to=RETURN_TO))
    before = stage.items()
    parameters = {"state": state, "code": true} | changes

    told = stage.callback(cookie, **{name: value for name, value in parameters.items() if value is not None})

    assert (told.status, told.code) == (status, code)
    assert told.headers == PAGE
    assert stage.items() == before
    assert stage.callback(cookie, state=state, code=true).status == 303


@pytest.mark.rule("S-26")
@pytest.mark.parametrize("name", ["state", "code", "iss", "error"])
def test_S_26_a_repeated_parameter_spends_nothing(stage, name):
    """RFC 6749 section 3.1."""
    cookie, state, code = stage.agreed(stage.start())
    before = stage.items()
    query = f"{urlencode({'state': state, 'code': code})}&{name}=x&{name}=x"

    told = stage.http("connect", "GET", "/callback/acme", query=query, headers={"cookie": cookie})

    assert (told.status, told.code) == (400, "OAUTH_PARAMETER_REPEATED")
    assert stage.items() == before


@pytest.mark.rule("S-1", "RB-50", "M-29")
@pytest.mark.parametrize("cookie", ["none", "empty", "another", "another name", "of another visit"])
def test_a_callback_in_another_browser_spends_nothing(stage, cookie):
    """403; whoever sends the owner's address to another browser gets nothing, and the owner still arrives."""
    url = stage.start()
    true, state, code = stage.agreed(url)
    name, _, value = true.partition("=")
    given = {
        "none": "",
        "empty": f"{name}=",
        "another": f"{name}={'A' * 43}",
        "another name": f"__Host-qc-000000={value}",
        "of another visit": stage.visit(url)[1],
    }[cookie]
    before = stage.items()

    told = stage.callback(given, state=state, code=code)

    assert (told.status, told.code) == (403, "OAUTH_BINDING_MISMATCH")
    assert stage.items() == before
    assert stage.callback(true, state=state, code=code).status == 200


@pytest.mark.parametrize("headers", LOOKING_AHEAD)
def test_a_prefetched_callback_spends_nothing(stage, headers):
    """A browser that looks ahead is not the owner coming back."""
    cookie, state, code = stage.agreed(stage.start())
    before = stage.items()
    query = urlencode({"state": state, "code": code})

    told = stage.http("connect", "GET", "/callback/acme", query=query, headers={"cookie": cookie, **headers})

    assert (told.status, told.text) == (204, "")
    assert stage.items() == before
    assert stage.server.asked == []
    assert stage.callback(cookie, state=state, code=code).status == 200


@pytest.mark.rule("S-4", "M-28")
def test_a_callback_on_another_providers_path_spends_nothing(stage):
    """The state stays usable for its own provider (M-28)."""
    cookie, state, code = stage.agreed(stage.start())
    before = stage.items()

    told = stage.callback(cookie, provider="google", state=state, code=code)

    assert (told.status, told.code) == (400, "OAUTH_PROVIDER_MISMATCH")
    assert stage.items() == before


@pytest.mark.rule("S-25", "M-25", "M-32", "M-34")
@pytest.mark.parametrize(
    ("parameters", "code", "state_after"),
    [
        ({"error": "access_denied", "error_description": "<b>canary</b>"}, "OAUTH_CALLBACK_REJECTED", "failed"),
        ({"error": "access_denied", "code": "x"}, "OAUTH_CALLBACK_REJECTED", "failed"),
        ({"error": "temporarily_unavailable"}, "OAUTH_CALLBACK_REJECTED", "authorizing"),
        ({}, "OAUTH_CODE_MISSING", "failed"),
        ({"code": ""}, "OAUTH_CODE_MISSING", "failed"),
        ({"code": "  "}, "OAUTH_CODE_MISSING", "failed"),
        ({"error": " "}, "OAUTH_CODE_MISSING", "failed"),
    ],
    ids=str,
)
@pytest.mark.parametrize("return_to", [None, RETURN_TO])
def test_M_25_a_definitive_answer_without_a_grant(stage, parameters, code, state_after, return_to):
    """Told on a page, or to the app; the provider's words are nowhere, and nothing was sent to it."""
    cookie, state, _ = stage.agreed(stage.start(return_to=return_to))

    told = stage.callback(cookie, state=state, **parameters)

    if return_to:
        assert told.status == 303
        assert told.query == {"connection_id": "acme", "status": "failed"}
    else:
        assert (told.status, told.code) == (400, code)
    assert stage.server.asked == []
    assert stage.api("GET", "/connections/acme").json["state"] == state_after
    (line,) = [line for line in stage.lines() if line.get("outcome") == "failed"]
    assert (line["level"], line["code"]) == ("WARNING", code)
    assert line.get("reason", "") == parameters.get("error", "").strip()
    assert "canary" not in told.text + stage.raw


@pytest.mark.rule("M-32", "M-59", "S-13")
@pytest.mark.parametrize("error", ["canary", "access_denied canary", "ACCESS_DENIED", "<script>", "x" * 4_000])
def test_an_error_of_an_unknown_word_is_not_repeated(stage, error):
    """Whoever made the address chose it: it is neither logged nor shown."""
    cookie, state, _ = stage.agreed(stage.start())

    told = stage.callback(cookie, state=state, error=error)

    assert told.code == "OAUTH_CALLBACK_REJECTED"
    assert [line["reason"] for line in stage.lines() if line.get("outcome") == "failed"] == ["other"]
    assert error not in told.text + stage.raw


@pytest.mark.rule("M-34", "S-13")
@pytest.mark.parametrize("return_to", [None, RETURN_TO])
def test_M_34_an_unexpected_fault_of_a_bound_callback_tells_nothing(stage, monkeypatch, return_to):
    """No connection, no return target, no words: whatever it was, it was not an answer to this attempt."""
    cookie, state, code = stage.agreed(stage.start(return_to=return_to))

    def broken(*_, **__):
        raise RuntimeError("canary-of-a-library")

    monkeypatch.setattr("quitclaim.flows.connect.callback._complete", broken)

    told = stage.callback(cookie, state=state, code=code)

    assert (told.status, told.code) == (500, "INTERNAL")
    assert told.headers == PAGE
    stage.lines()
    assert "canary-of-a-library" not in told.text + stage.raw


@pytest.mark.rule("M-3")
def test_M_3_without_a_public_address_nobody_is_sent_anywhere(stage):
    """At the start, at the link and at the callback; nothing is written, and the same callback serves later."""
    url = stage.start()
    cookie, state, code = stage.agreed(url)
    before = stage.items()
    configs = [stage.function(name).parts.config for name in ("app_api", "connect")]
    known = [config.current() for config in configs]
    for config, stack in zip(configs, known, strict=True):
        vars(config)["_config"] = replace(stack, base_url="")

    told = [
        stage.api("POST", "/connections", body={"connection_id": "new", "provider": "acme"}),
        stage.http("connect", "GET", urlsplit(url).path),
        stage.callback(cookie, state=state, code=code),
    ]

    assert [(each.status, each.code) for each in told] == [(500, "CONNECTION_CALLBACK_URL_REQUIRED")] * 3
    assert stage.items() == before
    for config, stack in zip(configs, known, strict=True):
        vars(config)["_config"] = stack
    assert stage.callback(cookie, state=state, code=code).status == 200


@pytest.mark.rule("RB-55", "M-39")
@pytest.mark.parametrize(("scope", "status"), [("read,extra", 200), ("read extra", 200), ("extra", 409)])
def test_RB_55_what_was_granted_may_stand_in_the_callback(build, capsys, scope, status):
    """As Strava says it; without what is needed the grant is refused, and the app sees why."""
    stage = build(authorize__callback_scope_param="scope").turn(capsys)
    cookie, state, code = stage.agreed(stage.start())

    told = stage.callback(cookie, state=state, code=code, scope=scope)

    view = stage.api("GET", "/connections/acme").json
    assert told.status == status
    if status == 200:
        assert stage.code_of(told)
    else:
        assert (told.code, view["failure"]) == ("GRANT_NOT_INSTALLED", "insufficient_scope")


@pytest.mark.rule("RB-49", "M-30")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_callback_that_is_still_being_worked_on_says_so(stage, method):
    """A page that loads itself again; a form cannot. Never "failed": the app would believe it."""
    cookie, state, code = stage.agreed(stage.start(return_to=RETURN_TO))
    query = urlencode({"state": state, "code": code})
    seen = []

    def meanwhile():
        stage.function("connect").wired.parts.clock.pause = lambda ms: None
        given = {"query": query} if method == "GET" else {"body": query.encode()}
        form = {"content-type": "application/x-www-form-urlencoded"} if method == "POST" else {}
        seen.append(stage.http("connect", method, "/callback/acme", headers={"cookie": cookie, **form}, **given))
        del stage.function("connect").wired.parts.clock.pause

    stage.server.next("/token", after(meanwhile))

    first = stage.callback(cookie, state=state, code=code)

    assert (seen[0].status, seen[0].headers.get("refresh")) == (200, "3" if method == "GET" else None)
    assert "One moment" in seen[0].text
    assert "location" not in seen[0].headers
    assert first.query["status"] == "awaiting_confirmation"
    assert stage.server.asked.count("/token") == 1


@pytest.mark.rule("S-6", "M-59")
@pytest.mark.parametrize(
    ("misbehaviour", "status", "code", "state_after"),
    [
        (answers(400, {"error": "invalid_grant"}), 502, "PROVIDER_REFUSED", "failed"),
        (answers(401, {"error": "invalid_client"}), 502, "CLIENT_MISCONFIGURED", "failed"),
        (answers(500), 502, "EXCHANGE_UNCONFIRMED", "failed"),
        (answers(429, {"error": "slow_down"}, Retry_After="7"), 503, "PROVIDER_BUSY", "failed"),
        (not_connected, 503, "PROVIDER_BUSY", "failed"),
        (lost_answer, 502, "EXCHANGE_UNCONFIRMED", "failed"),
    ],
    ids=["refused", "client", "broken", "busy", "not sent", "lost"],
)
def test_a_provider_that_gives_no_grant(stage, misbehaviour, status, code, state_after):
    """Each outcome has its own code; the code was sent once at most."""
    stage.server.next("/token", misbehaviour)

    told = stage.returned(stage.start())

    assert (told.status, told.code) == (status, code)
    assert stage.server.asked == ["/token"]
    view = stage.api("GET", "/connections/acme")
    assert view.json["state"] == state_after
    stage.lines()
    assert stage.leaks(told.text + view.text + stage.raw) == []


@pytest.mark.parametrize("return_to", [None, RETURN_TO])
def test_an_exchange_of_unknown_outcome_is_told_to_who_can_end_it(stage, return_to):
    """The owner: on the page that says how, or at the app, which links to that page."""
    stage.server.next("/token", lost_answer)

    told = stage.returned(stage.start(return_to=return_to))

    notice = stage.api("GET", "/status").json["notices"][0]
    if return_to:
        assert told.query == {"connection_id": "acme", "status": "removal_required"}
    else:
        assert (told.status, told.headers, told.code) == (502, PAGE, "EXCHANGE_UNCONFIRMED")
        assert "confirm there that you removed the access" in told.text
    assert notice["removal_page"] == f"{BASE_URL}/removal/acme"


def test_the_removal_page_is_the_same_for_everybody(stage):
    """By provider alone: no cookie, nothing of the query on it, nothing read of a connection."""
    told = stage.http("connect", "GET", "/removal/acme", query="provider=canary&manual_page=https://canary.example")

    assert (told.status, told.headers, told.cookies) == (200, PAGE, [])
    assert "Remove the access at Acme" in told.text
    assert "canary" not in told.text


@pytest.mark.parametrize("provider", ["nowhere", "../acme", "ACME", "acme.json", "<b>", "x" * 2000])
def test_there_is_no_removal_page_of_a_provider_that_nobody_knows(stage, provider):
    """404, and its name is not repeated."""
    told = stage.http("connect", "GET", f"/removal/{quote(provider, safe='')}")

    assert (told.status, told.code) == (404, "NOT_FOUND")
    assert provider not in told.text.partition("</style>")[2]


@pytest.mark.rule("RB-49", "S-1", "U-2", "M-30")
def test_the_same_callback_again_shows_the_same(stage):
    """The first delivery owns the outcome (RB-49): the same code, one exchange; another browser gets nothing."""
    cookie, state, code = stage.agreed(stage.start(return_to=RETURN_TO))
    first = stage.callback(cookie, state=state, code=code)
    before = stage.items()

    again = stage.callback(cookie, state=state, code=code)
    stranger = stage.callback("", state=state, code=code)

    assert stage.code_of(first) == stage.code_of(again)
    assert again.headers["location"] == first.headers["location"]
    assert (stranger.status, stranger.code) == (403, "OAUTH_BINDING_MISMATCH")
    assert stage.items() == before
    assert stage.server.asked.count("/token") == 1


def test_without_time_for_the_exchange_nothing_is_consumed(stage):
    """503; the same callback serves the next try."""
    cookie, state, code = stage.agreed(stage.start())
    before = stage.items()
    query = urlencode({"state": state, "code": code})

    told = stage.http("connect", "GET", "/callback/acme", query=query, headers={"cookie": cookie}, remaining_ms=10_000)

    assert (told.status, told.code) == (503, "OUT_OF_TIME")
    assert stage.items() == before
    assert stage.callback(cookie, state=state, code=code).status == 200


@pytest.mark.rule("S-7", "M-35")
def test_M_35_a_target_that_is_no_longer_allowed_is_dropped(stage, monkeypatch):
    """The page instead, and a warning without the address."""
    cookie, state, code = stage.agreed(stage.start(return_to=f"{RETURN_TO}?canary"))
    monkeypatch.setattr(stage.function("connect"), "ORIGINS", frozenset({"https://other.example"}))
    stage.lines()

    told = stage.callback(cookie, state=state, code=code)

    assert (told.status, "location" in told.headers) == (200, False)
    assert stage.code_of(told)
    assert "return target dropped" in [line.get("message") for line in stage.lines()]
    assert "canary" not in stage.raw


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/connect"),
        ("POST", "/connect/x"),
        ("GET", "/callback"),
        ("PUT", "/callback/acme"),
        ("GET", "/v1/providers"),
        ("POST", "/v1/tenants/demo/owners/ann/connections"),
    ],
)
def test_another_functions_route_is_not_found(stage, method, path):
    """On a page: a person may be looking."""
    told = stage.http("connect", method, path)

    assert (told.status, told.code) == (404, "NOT_FOUND")
    assert told.headers == PAGE


@pytest.mark.rule("S-13", "S-32")
def test_an_unexpected_fault_is_a_page_without_its_words(stage, monkeypatch):
    """500; the owner is told nothing of ours."""

    def broken(*_, **__):
        raise RuntimeError("canary-of-a-library")

    monkeypatch.setattr(stage.function("connect"), "open_link", broken)

    told = stage.http("connect", "GET", "/connect/x")

    assert (told.status, told.code) == (500, "INTERNAL")
    assert told.headers == PAGE
    stage.lines()
    assert "canary-of-a-library" not in told.text + stage.raw
