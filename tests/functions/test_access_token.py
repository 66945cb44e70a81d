"""Handing out tokens, event by event; and the closed request to send a refresh again."""

import pytest

from tests.fakes.provider import answers, lost_answer, lost_request, not_connected
from tests.functions.stage import TENANT
from tests.runtime.events import Context, http_event

LEASE_AND_GUARD_S = 36


def replay_of(stage, **changes):
    """What reconcile asks for."""
    return {"replay": {"tenant": TENANT, "owner": stage.owner, "connection": "acme", "pair": "main"} | changes}


# --- the answer ------------------------------------------------------------------------------------------------------


def test_a_token_is_handed_out_and_kept_by_nobody(stage):
    """200; the token that the provider issued, how long it lives, and which version it is; nothing is written."""
    stage.connected()
    before = stage.items()
    stage.server.asked.clear()
    stage.lines()

    told = stage.token(body=None)

    (issued,) = stage.server.live("access_token")
    body = told.json
    assert told.status == 200
    assert told.headers == {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "content-type": "application/json",
    }
    assert body.pop("expires_at") - stage.now() == pytest.approx(3_600_000, abs=20_000)
    assert body == {
        "access_token": issued,
        "token_type": "Bearer",
        "token_version": 1,
        "generation": 1,
    }
    assert stage.server.asked == []
    assert stage.items() == before
    assert stage.lines() == []


@pytest.mark.rule("I-17")
def test_only_this_answer_carries_a_token(stage):
    """The refresh token never leaves."""
    stage.connected()

    told = stage.token()

    assert stage.server.live("refresh_token")
    assert not any(each in told.text for each in stage.server.live("refresh_token"))


@pytest.mark.parametrize("min_ttl_s", [3_700, 86_400])
def test_a_token_that_does_not_live_long_enough_is_refreshed(stage, min_ttl_s):
    """Once a call; the new version is told."""
    stage.connected()
    stage.server.asked.clear()

    told = stage.token(body={"min_ttl_s": min_ttl_s})

    assert told.json["token_version"] == 2
    assert told.json["access_token"] == stage.server.of_kind("access_token")[-1]
    assert stage.server.asked == ["/token"]


def test_an_expired_token_is_refreshed(stage):
    """And what was rotated away serves no more."""
    stage.connected()
    stage.advance(3_600)

    told = stage.token()

    assert (told.status, told.json["token_version"]) == (200, 2)
    assert stage.server.state_of(stage.server.of_kind("refresh_token")[0]) == "rotated"


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-11")
@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"min_ttl_s": "60"}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"min_ttl_s": 1.5}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"min_ttl_s": True}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"min_ttl_s": None}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"min_ttl_s": -1}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"min_ttl_s": 86_401}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"min_ttl_s": 10**30}, 400, "INVALID_BODY", "min_ttl_s"),
        ({"more": "canary"}, 400, "INVALID_BODY", "more"),
        ({"min_ttl_s": 1, "ttl": 1}, 400, "INVALID_BODY", "ttl"),
        ({"token": 1}, 400, "INVALID_ID", "token"),
        ({"token": None}, 400, "INVALID_ID", "token"),
        ({"token": "a#b"}, 400, "INVALID_ID", "token"),
        ({"token": "x" * 129}, 400, "INVALID_ID", "token"),
        ([], 400, "INVALID_BODY", None),
        (b"{", 400, "INVALID_BODY", None),
        (b" " * 65_537, 413, "BODY_TOO_LARGE", None),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_request_that_cannot_be_read(stage, body, status, code, field):
    """Refused before anything is looked at; the field is named, its value is not."""
    told = stage.token(body=body, headers={"content-type": "application/json"})

    assert (told.status, told.code) == (status, code)
    assert told.json["details"] == ({} if field is None else {"field": field})
    assert "canary" not in told.text
    assert stage.items() == {}


def test_a_pair_that_the_grant_has_not(stage):
    """Slack has a second one; this provider has not."""
    stage.connected()

    told = stage.token(body={"token": "user"})

    assert (told.status, told.code) == (409, "CONNECTION_STATE_CONFLICT")


@pytest.mark.rule("I-5")
def test_every_state_refuses_by_its_own_code(stage):
    """Unknown, authorizing, stopped; what an owner lost at the provider; a deleted owner before all else."""
    unknown = stage.token("nothing")
    stage.start()
    authorizing = stage.token()
    stage.connected("other")
    stage.api("DELETE", "/connections/other", headers={"if-match": '"1"'})
    stopped = stage.token("other")
    stage.api("DELETE")
    deleted = stage.token("nothing")

    assert [(each.status, each.code) for each in (unknown, authorizing, stopped, deleted)] == [
        (404, "CONNECTION_NOT_FOUND"),
        (409, "CONNECTION_STATE_CONFLICT"),
        (409, "CONNECTION_STATE_CONFLICT"),
        (410, "OWNER_DELETED"),
    ]


@pytest.mark.rule("F-26", "F-44", "RB-46")
def test_a_refused_refresh_is_a_lost_grant(stage):
    """409; the next call says the same without asking, and what is left of the grant is to be revoked."""
    stage.connected()
    stage.advance(3_600)
    stage.server.next("/token", answers(400, {"error": "invalid_grant", "error_description": "canary"}))

    told = [stage.token(), stage.token()]

    assert [(each.status, each.code) for each in told] == [(409, "NEEDS_RECONNECT")] * 2
    assert stage.api("GET", "/connections/acme").json["state"] == "needs_reconnect"
    assert len(stage.kicks) == 1
    stage.lines()
    assert "canary" not in stage.raw + told[0].text


@pytest.mark.rule("F-44", "RB-20", "RB-47")
@pytest.mark.parametrize(
    ("misbehaviour", "status", "code", "retry_after"),
    [
        (answers(429, {"error": "slow_down"}, Retry_After="7"), 503, "PROVIDER_BUSY", "7"),
        (not_connected, 503, "PROVIDER_BUSY", None),
        (answers(401, {"error": "invalid_client"}), 502, "CLIENT_MISCONFIGURED", None),
        (lost_request, 502, "OUTCOME_UNKNOWN", "35"),
    ],
    ids=["busy", "not sent", "client", "unknown"],
)
def test_a_refresh_that_gives_no_token_ends_no_grant(stage, misbehaviour, status, code, retry_after):
    """Each by its own code; the grant is still there."""
    stage.connected()
    stage.advance(3_600)
    stage.server.next("/token", misbehaviour)

    told = stage.token()

    assert (told.status, told.code) == (status, code)
    if retry_after is not None:
        assert abs(int(told.headers["retry-after"]) - int(retry_after)) <= 1
    assert stage.api("GET", "/connections/acme").json["state"] == "ready"


def test_a_token_that_still_serves_is_handed_out_although_its_refresh_failed(stage):
    """Inside the soft margin nobody has to know."""
    stage.connected()
    stage.advance(3_600 - 200)
    stage.server.next("/token", not_connected)

    told = stage.token()

    assert (told.status, told.json["token_version"]) == (200, 1)


@pytest.mark.rule("F-39")
def test_without_time_for_a_refresh_none_is_begun(stage):
    """503; nothing is recorded, and nothing was sent."""
    stage.connected()
    stage.advance(3_600)
    before = stage.items()
    stage.server.asked.clear()

    told = stage.token(remaining_ms=6_000)

    assert (told.status, told.code, told.json["retryable"]) == (503, "OUT_OF_TIME", True)
    assert stage.items() == before
    assert stage.server.asked == []


# --- send it again ---------------------------------------------------------------------------------------------------


def lost(stage):
    """A connection whose refresh left and was never answered; its lease is over."""
    stage.connected()
    stage.advance(3_600)
    stage.server.next("/token", lost_request)
    assert stage.token().code == "OUTCOME_UNKNOWN"
    stage.advance(LEASE_AND_GUARD_S)
    stage.server.asked.clear()
    stage.lines()


@pytest.mark.rule("D-1")
def test_a_replay_sends_the_refresh_once_more(stage):
    """What comes of it is recorded; nothing is handed out, and no token is logged."""
    lost(stage)

    told = stage.invoke("access_token", replay_of(stage))

    assert told == {"outcome": "granted"}
    assert stage.server.asked == ["/token"]
    assert stage.token().json["token_version"] == 2


def test_a_replay_with_nothing_to_send_sends_nothing(stage):
    """No attempt is on record, or its lease still lives."""
    stage.connected()
    stage.server.asked.clear()
    idle = stage.invoke("access_token", replay_of(stage))
    stage.advance(3_600)
    stage.server.next("/token", lost_request)
    stage.token()
    stage.server.asked.clear()
    early = stage.invoke("access_token", replay_of(stage))

    assert (idle, early) == ({"outcome": "granted"}, {"outcome": "granted"})
    assert stage.server.asked == []


def test_a_replay_that_is_refused_says_how_by_code(stage):
    """The provider's verdict is recorded as ever."""
    lost(stage)
    stage.server.next("/token", answers(400, {"error": "invalid_grant"}))

    told = stage.invoke("access_token", replay_of(stage))

    assert told == {"outcome": "NEEDS_RECONNECT"}
    assert [line["code"] for line in stage.lines() if line.get("message") == "replayed"] == ["NEEDS_RECONNECT"]


def test_a_replay_of_what_is_gone_says_so(stage):
    """A stop was faster, or there never was such a thing."""
    told = stage.invoke("access_token", replay_of(stage))

    assert told == {"outcome": "CONNECTION_NOT_FOUND"}


@pytest.mark.parametrize(
    "changes",
    [{"tenant": "a#b"}, {"owner": ".."}, {"connection": None}, {"pair": "a/b"}, {"pair": None}, {"owner": "x" * 129}],
    ids=str,
)
def test_a_replay_with_an_id_out_of_pattern_reaches_nothing(stage, changes):
    """It is answered by its code: whoever sent it can read it, and no exception carries words out."""
    told = stage.invoke("access_token", replay_of(stage, **changes))

    assert told == {"outcome": "INVALID_ID"}
    assert stage.server.asked == []


@pytest.mark.parametrize(
    "event",
    [
        {"replay": None},
        {"replay": {}},
        {"replay": {"tenant": "demo"}},
        {"replay": {"tenant": "demo", "owner": "o", "connection": "c", "pair": "main", "more": 1}},
        {"replay": [1]},
        {"replay": "canary"},
    ],
    ids=str,
)
def test_a_replay_that_is_not_closed_is_refused(stage, event):
    """Exactly four names; anything else is no request of ours."""
    told = stage.invoke("access_token", event)

    assert told == {"outcome": "INVALID_BODY"}


def test_an_http_event_is_no_replay(stage):
    """One that carries such a part goes to the API's door, and one that is not of our API is refused there."""
    stage.connected()
    event = http_event("POST", f"{stage.path}/connections/acme/access-token", api_id="another") | replay_of(stage)

    told = stage.function("access_token").handler(event, Context())

    assert told["statusCode"] == 404
    assert [line["message"] for line in stage.lines() if "message" in line][-1] == "not an event of our API"


def test_a_lost_answer_is_found_again_by_a_replay_or_lost_for_good(new_stage):
    """The provider rotated and nobody saw it: the replay meets its verdict, and the grant ends in a notice."""
    stage = new_stage(refresh__reuse_kills_family="yes")
    stage.connected()
    stage.advance(3_600)
    stage.server.next("/token", lost_answer)
    assert stage.token().code == "OUTCOME_UNKNOWN"
    stage.advance(LEASE_AND_GUARD_S)

    told = stage.invoke("access_token", replay_of(stage))

    assert told == {"outcome": "NEEDS_RECONNECT"}
    assert stage.server.live() == []
