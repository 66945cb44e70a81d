"""Every answer of a provider becomes one outcome: the tables, with the field cases (RB) that they come from."""

import json

import pytest

from quitclaim.domain.outcomes import IdentityOutcome, Outcome, RevokeOutcome
from quitclaim.domain.secret import Secret
from quitclaim.providers.answers import judge_identity, judge_revoke, judge_token, member, read_body, seconds
from quitclaim.providers.transport import NoAnswer, RawAnswer, retry_after_ms

PAGE = b"<!DOCTYPE html><html><body>Sign in</body></html>"
FORM = "application/x-www-form-urlencoded"


def answered(body: object, status: int = 200, content_type: str = "application/json", **more: object) -> RawAnswer:
    """An answer with a JSON, text or bytes body."""
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return RawAnswer(status, raw, content_type, **more)  # type: ignore[arg-type]


def html(status: int) -> RawAnswer:
    return answered(PAGE, status, "text/html")


# --- outcomes of exchange and refresh -----------------------------------------------------------------------------

OUTCOMES = [
    # answer, outcome of an exchange, outcome of a refresh
    (NoAnswer(sent=False, reason="not_connected"), "not_sent", "not_sent"),
    (NoAnswer(sent=False, reason="no_time"), "not_sent", "not_sent"),
    (NoAnswer(sent=True, reason="timeout"), "unknown", "unknown"),
    (NoAnswer(sent=True, reason="connection_lost"), "unknown", "unknown"),
    (answered({"access_token": "a"}), "granted", "granted"),
    (answered({"access_token": "a"}, 201), "granted", "granted"),
    # the provider's verdict, whatever the status (RB-07)
    (answered({"error": "invalid_grant"}, 400), "rejected", "rejected"),
    (answered({"error": "invalid_grant"}, 401), "rejected", "rejected"),
    (answered({"error": "invalid_grant"}, 500), "rejected", "rejected"),
    (answered({"error": "invalid_grant"}, 200), "rejected", "rejected"),
    (answered({"error": "invalid_grant"}, 400, "text/html"), "rejected", "rejected"),
    (answered({"error": "bad_verification_code", "error_uri": "https://x"}), "rejected", "rejected"),
    (answered("error=bad_verification_code&error_description=x", 200, FORM), "rejected", "rejected"),
    (answered({"ok": False, "error": "invalid_refresh_token"}), "rejected", "rejected"),
    (answered({"errors": [{"errorType": "invalid_grant", "message": "x"}], "success": False}, 400), *2 * ("rejected",)),
    (answered({"error": {"type": "invalid_grant", "message": "x"}}, 400), "rejected", "rejected"),
    (answered({"error": "invalid_grant", "access_token": "a"}), "rejected", "rejected"),
    # the client, not the grant (RB-20)
    (answered({"error": "invalid_client"}, 401), "try_later", "try_later"),
    (answered({"error": "unauthorized_client"}, 403), "try_later", "try_later"),
    (answered({"error": "incorrect_client_credentials"}), "try_later", "try_later"),
    (answered({"error": "invalid_scope"}, 400), "try_later", "try_later"),
    (answered(b"", 401), "try_later", "try_later"),
    (answered({"message": "no such route"}, 404), "try_later", "try_later"),
    # not now
    (answered({"error": "temporarily_unavailable"}, 400), "try_later", "try_later"),
    (answered({"ok": False, "error": "ratelimited"}), "try_later", "try_later"),
    (answered({"error": "slow_down"}, 400), "try_later", "try_later"),
    (answered({"error": "invalid_grant"}, 429), "try_later", "try_later"),
    (answered(b"", 429), "try_later", "try_later"),
    (answered(b"", 408), "try_later", "try_later"),
    (answered(b"", 503), "try_later", "try_later"),
    (html(429), "try_later", "try_later"),
    (html(503), "try_later", "try_later"),
    # no code that is known: it ends the code, never a grant (RB-16)
    (answered({"error": "invalid_request"}, 400), "rejected", "try_later"),
    (answered({"error": "something_new"}, 400), "rejected", "try_later"),
    (answered({"error": "something_new"}, 200), "rejected", "try_later"),
    (answered({"ok": False}), "rejected", "try_later"),
    (answered({"error": True}, 400), "rejected", "try_later"),
    (answered({"errors": ["x"]}, 400), "rejected", "try_later"),
    (answered(b"", 400), "rejected", "try_later"),
    (answered(b"", 403), "try_later", "try_later"),
    # it may have been done
    (answered({"error": "server_error"}, 500), "unknown", "unknown"),
    (answered({"error": "something_new"}, 500), "unknown", "unknown"),
    (answered({"ok": False, "error": "internal_error"}), "unknown", "unknown"),
    (answered(b"", 500), "unknown", "unknown"),
    (answered(b"", 502), "unknown", "unknown"),
    (answered(b"", 504), "unknown", "unknown"),
    (answered(b"", 302), "unknown", "unknown"),
    (answered(b"", 307), "unknown", "unknown"),
    # a page is never a verdict (RB-19)
    (html(200), "unknown", "unknown"),
    (html(500), "unknown", "unknown"),
    (html(401), "unknown", "try_later"),
    (html(403), "unknown", "try_later"),
    (html(400), "unknown", "try_later"),
    (answered(PAGE, 400, ""), "unknown", "try_later"),
    (answered("Sign in", 200, "text/html"), "unknown", "unknown"),
    # 2xx without a grant
    (answered(b"", 200), "unknown", "unknown"),
    (answered(b"", 204), "unknown", "unknown"),
    (answered("null"), "unknown", "unknown"),
    (answered([{"access_token": "a"}]), "unknown", "unknown"),
    (answered({}), "unknown", "unknown"),
    (answered('{"access_token": "a"', complete=False), "unknown", "unknown"),
    (answered({"access_token": "a"}, complete=False), "unknown", "unknown"),
    (answered({"error": "invalid_grant"}, 400, complete=False), "unknown", "unknown"),
    (answered("{" * 60_000), "unknown", "unknown"),
    (answered("[" * 60_000), "unknown", "unknown"),
    (answered('{"access_token": "a", "n": ' + "9" * 5000 + "}"), "unknown", "unknown"),
    (answered(b"\xff\xfe\x00"), "unknown", "unknown"),
]


@pytest.mark.rule("RB-07", "RB-08", "RB-19")
@pytest.mark.parametrize("operation", ["exchange", "refresh"])
@pytest.mark.parametrize(("answer", "of_exchange", "of_refresh"), OUTCOMES)
def test_one_outcome_for_every_answer(spec, answer, of_exchange, of_refresh, operation):
    """Granted, rejected, try later, unknown or not sent: nothing is raised, and nothing else comes out."""
    judged = judge_token(spec, answer, operation)

    assert judged.outcome == (of_exchange if operation == "exchange" else of_refresh)
    assert (judged.grant is not None) == (judged.outcome is Outcome.GRANTED)
    assert judged.outcome is Outcome.GRANTED or judged.reason


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (answered({"error": "invalid_client"}, 401), True),
        (answered({"error": "redirect_uri_mismatch"}, 400), True),
        (answered(b"", 401), True),
        (answered(b"", 404), True),
        (answered(b"", 302), True),
        (html(401), False),
        (answered(b"", 429), False),
        (answered({"error": "invalid_grant"}, 400), False),
        (NoAnswer(sent=False, reason="not_connected"), False),
    ],
)
def test_RB_20_a_fault_of_the_settings_is_told_apart(spec, answer, fault):
    """It alarms once for the client, and ends no connection."""
    judged = judge_token(spec, answer, "refresh")

    assert judged.config_fault is fault
    assert not fault or judged.outcome is not Outcome.REJECTED


@pytest.mark.rule("RB-17")
def test_codes_of_one_provider_are_known_from_its_entry(spec_with):
    """RB-17: what Atlassian says of a dead token means the client elsewhere."""
    errors = {"dead": ["unauthorized_client"], "try_later": ["E-1"], "config": ["bad.app"]}
    spec = spec_with({"token.errors": errors})

    assert judge_token(spec, answered({"error": "unauthorized_client"}, 403), "refresh").outcome is Outcome.REJECTED
    assert judge_token(spec, answered({"error": "E-1"}, 400), "exchange").outcome is Outcome.TRY_LATER
    assert judge_token(spec, answered({"error": "bad.app"}, 400), "refresh").config_fault


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize("status", [400, 408, 429, 503])
def test_retry_after_is_carried_where_trying_later_makes_sense(spec, status):
    """RB-20: Retry-After is honoured."""
    answer = answered({"error": "slow_down"}, status, retry_after_ms=7000)

    assert judge_token(spec, answer, "refresh").retry_after_ms == 7000
    assert judge_revoke(spec, answer).retry_after_ms == 7000


@pytest.mark.rule("RB-14")
@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("invalid_grant", "invalid_grant"),
        ("Invalid_Grant", "Invalid_Grant"),
        ("dGhpcyBpcyBhIHRva2Vu9", None),
        ("canary-4711", None),
        ("a b", None),
        ("x" * 41, None),
        ("<script>", None),
    ],
)
def test_RB_14_an_error_code_is_a_word_or_not_shown(spec, code, shown):
    """What a provider writes where a code belongs may be the token."""
    judged = judge_token(spec, answered({"error": code, "error_description": "canary-4711"}, 400), "refresh")

    assert judged.error_code == shown
    assert "canary" not in repr(judged)


@pytest.mark.rule("RB-14")
def test_RB_14_messages_with_tokens_reach_nobody(spec):
    """Fitbit repeats the token in its message: it is in no field that prints."""
    body = {"errors": [{"errorType": "invalid_grant", "message": "Refresh token invalid: canary-4711."}]}

    for judged in (judge_token(spec, answered(body, 400), "refresh"), judge_revoke(spec, answered(body, 400))):
        assert "canary" not in repr(judged)


# --- the grant ----------------------------------------------------------------------------------------------------


def granted(spec, body, content_type="application/json", operation="exchange"):
    """The grant that is read from a body."""
    judged = judge_token(spec, answered(body, 200, content_type), operation)
    assert judged.outcome is Outcome.GRANTED, judged
    return judged.grant


def test_a_whole_grant_is_read(spec):
    """Every member of RFC 6749 section 5.1, and the refresh token's own lifetime."""
    grant = granted(
        spec,
        {
            "access_token": "a",
            "refresh_token": "r",
            "token_type": "bearer",
            "expires_in": 60,
            "refresh_token_expires_in": 120,
            "scope": "read write",
        },
    )

    assert (grant.access_token, grant.refresh_token) == (Secret("a"), Secret("r"))
    assert (grant.token_type, grant.expires_in_s, grant.refresh_expires_in_s) == ("bearer", 60, 120)
    assert grant.scopes == {"read", "write"}
    assert "'a'" not in repr(grant)


@pytest.mark.rule("RB-01", "RB-02", "RB-04", "F-11")
@pytest.mark.parametrize(
    ("value", "read"),
    [
        (3600, 3600),
        ("3600", 3600),  # RB-01
        (" 3600 ", 3600),
        (3600.9, 3600),
        ("3.6e3", 3600),
        ("soon", None),  # RB-02
        ("", None),
        (0, None),
        ("0", None),
        (-1, None),
        (None, None),
        ({}, None),
        ([], None),
        (True, None),
        ("nan", None),
        ("inf", None),
        (float("inf"), None),
        ("9" * 400, None),
        (10**30, 366 * 86_400),  # RB-04: nothing is believed to live longer
        (3_600_000_000, 366 * 86_400),
    ],
)
def test_RB_01_RB_02_lifetimes_are_read_as_providers_write_them(spec, value, read):
    """Numbers and numbers in text; what is no lifetime becomes the provider's default, not 'never'."""
    grant = granted(spec, json.dumps({"access_token": "a", "expires_in": value}))

    assert seconds(value) == read
    assert grant.expires_in_s == (3600 if read is None else read)


@pytest.mark.rule("RB-03")
def test_RB_03_a_missing_lifetime_is_the_default_and_the_refresh_tokens_is_kept(spec):
    """Zendesk: no expires_in, but the refresh token's."""
    grant = granted(spec, {"access_token": "a", "refresh_token_expires_in": "2592000"})

    assert (grant.expires_in_s, grant.refresh_expires_in_s) == (3600, 2_592_000)


@pytest.mark.parametrize("lifetime", ["never", "unknown"])
def test_without_a_default_a_missing_lifetime_stays_open(spec_with, lifetime):
    """Neither never nor unknown is made up into a number."""
    assert granted(spec_with({"token.default_lifetime_s": lifetime}), {"access_token": "a"}).expires_in_s is None


@pytest.mark.rule("RB-04")
def test_RB_04_the_unit_of_a_lifetime_is_the_providers(spec_with):
    """Fiserv counts milliseconds."""
    spec = spec_with({"token.expires_unit": "ms"})

    assert granted(spec, {"access_token": "a", "expires_in": 1_800_000}).expires_in_s == 1800


@pytest.mark.rule("RB-06")
@pytest.mark.parametrize("missing", [{}, {"refresh_token": ""}, {"refresh_token": None}, {"refresh_token": False}])
def test_RB_06_no_new_refresh_token_means_keep_the_old(spec, missing):
    """Missing, empty and null are one."""
    assert (
        granted(spec, {"access_token": "b", "token_type": "session", **missing}, operation="refresh").refresh_token
        is None
    )


@pytest.mark.rule("RB-09")
def test_RB_09_a_form_is_read_like_json(spec):
    """GitHub's default answer, also where it does not say what it is."""
    body = "access_token=gho_x&scope=user%2Cgist&token_type=bearer&expires_in=60"

    for content_type in (FORM, "text/plain", ""):
        grant = granted(spec, body, content_type)
        assert grant.access_token == Secret("gho_x")
        assert (grant.scopes, grant.expires_in_s) == ({"user", "gist"}, 60)


@pytest.mark.parametrize("content_type", ["text/html", "text/javascript", "application/octet-stream", ""])
def test_json_is_json_whatever_it_calls_itself(spec, content_type):
    """A careless content type does not cost a grant; nor does a byte order mark."""
    assert granted(spec, b'\xef\xbb\xbf {"access_token": "a"} \n', content_type).access_token == Secret("a")


@pytest.mark.parametrize(
    ("scope", "read"),
    [
        ("a b", {"a", "b"}),
        ("a,b", {"a", "b"}),
        ("a, b ", {"a", "b"}),
        (["a", "b", 1], {"a", "b"}),
        ("", None),
        (None, None),
        ([], None),
        (7, None),
    ],
)
def test_scopes_are_read_in_every_spelling(spec, scope, read):
    """None: those that were asked for."""
    assert granted(spec, {"access_token": "a", "scope": scope}).scopes == read


@pytest.mark.parametrize(
    ("account", "read"), [("u1", "u1"), (17, "17"), ("", None), (None, None), (True, None), ({}, None)]
)
def test_an_account_in_the_token_response_is_read(spec_with, account, read):
    """By its path; numbers become text."""
    spec = spec_with({"identity": {"in_token_response": "data.id"}})

    assert granted(spec, {"access_token": "a", "data": {"id": account}}).account_id == read


def test_tokens_may_stand_elsewhere(spec_with):
    """A response mapping: the paths are the entry's."""
    spec = spec_with({"token.response": {"access_token": "body.token", "refresh_token": "body.refresh"}})

    grant = granted(spec, {"status": 0, "body": {"token": "a", "refresh": "r"}})

    assert (grant.access_token, grant.refresh_token) == (Secret("a"), Secret("r"))


@pytest.mark.parametrize(
    ("path", "value"), [("a.b", 1), ("a.c", None), ("l.1.x", 2), ("l.9.x", None), ("s.x", None), (None, None)]
)
def test_a_path_leads_through_objects_and_lists(path, value):
    """Or nowhere."""
    assert member({"a": {"b": 1}, "l": [{}, {"x": 2}], "s": "text"}, path) == value


# --- what is not lost ---------------------------------------------------------------------------------------------


@pytest.mark.rule("RB-02")
@pytest.mark.parametrize(
    ("body", "salvaged"),
    [
        ({"access_token": 123, "refresh_token": "r"}, ["r"]),  # RB-02
        ({"access_token": {}, "refresh_token": "r"}, ["r"]),
        ({"access_token": "", "refresh_token": "r"}, ["r"]),
        ({"refresh_token": "r"}, ["r"]),
        ({"access_token": "a", "refresh_token": 5}, ["a"]),
        ({"access_token": "a\n", "refresh_token": "r"}, ["r"]),
        ({"access_token": "a", "refresh_token": "r" * 16_385}, ["a"]),
        ({"authed_user": {"access_token": "u", "refresh_token": "ur"}, "ok": True}, ["ur", "u"]),
        ([{"access_token": "a", "refresh_token": "r"}], ["r", "a"]),
        ({"error": "invalid_grant", "access_token": "a", "refresh_token": "r"}, ["r", "a"]),
        ({"error": "server_error", "access_token": "a"}, ["a"]),
        ('{"access_token": "a", "refresh_token": "r", "sco', ["r", "a"]),
        ('callback({"access_token": "a"})', ["a"]),
        ("access_token=a&access_token=b&x=y", ["a", "b"]),
        (b'\xff{"refresh_token":"r"}', ["r"]),
        ({}, []),
        ("OK", []),
        (PAGE, []),
    ],
)
def test_tokens_in_an_unusable_answer_are_salvaged(spec, body, salvaged):
    """Whatever was issued can still be revoked: refresh tokens first, each with its kind."""
    judged = judge_token(spec, answered(body), "exchange")

    assert judged.outcome is not Outcome.GRANTED
    assert [each.token.reveal() for each in judged.salvaged] == salvaged
    assert all(
        each.kind == ("access_token" if each.token.reveal() in "aub" else "refresh_token") for each in judged.salvaged
    )
    assert all(token not in repr(judged).replace("salvaged", "") or len(token) < 3 for token in salvaged)


def test_an_answer_that_was_cut_off_keeps_what_arrived(spec):
    """Only whole tokens: half a token is none."""
    judged = judge_token(spec, answered('{"refresh_token": "r", "access_token": "hal', complete=False), "exchange")

    assert (judged.outcome, judged.reason) == (Outcome.UNKNOWN, "cut_off")
    assert [each.token.reveal() for each in judged.salvaged] == ["r"]


def test_an_echo_of_what_was_sent_is_no_new_token(spec):
    """Queueing it would revoke the live grant."""
    body = {"error": "server_error", "refresh_token": "the live one"}

    assert judge_token(spec, answered(body), "refresh", frozenset({"the live one"})).salvaged == ()


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
def test_a_refusal_issues_nothing(spec, status):
    """What an error answer repeats is not taken for a grant."""
    judged = judge_token(spec, answered({"refresh_token": "r", "access_token": "a"}, status), "exchange")

    assert (judged.salvaged, judged.grant) == ((), None)


@pytest.mark.rule("RB-11")
@pytest.mark.parametrize(
    ("beside", "queued"),
    [
        ({"authed_user": {"id": "U1", "access_token": "u", "refresh_token": "ur"}}, ["r", "ur", "b", "u"]),
        ({"authed_user": {"id": "U1", "access_token": "u"}}, ["r", "b", "u"]),
        ({"accounts": [{"access_token": "u"}]}, ["r", "b", "u"]),
    ],
)
def test_a_second_token_in_an_answer_is_queued_with_the_first(spec, beside, queued):
    """Nobody would keep it, nor revoke it: the answer is no usable grant, and all that it holds is revoked."""
    judged = judge_token(spec, answered({"access_token": "b", "refresh_token": "r", **beside}), "exchange")

    assert (judged.outcome, judged.reason, judged.grant) == (Outcome.UNKNOWN, "more_tokens", None)
    assert [each.token.reveal() for each in judged.salvaged] == queued


@pytest.mark.rule("RB-11")
def test_a_second_pair_that_the_entry_describes_is_a_pair_of_the_grant(spec_with):
    """By whatever name, with an expiry and scopes of its own; half of one is no usable grant, and is queued."""
    paths = {"access_token": "user.token", "refresh_token": "user.renewal", "expires_in": "user.lifetime"}
    more = {"scope": "user.scopes", "scope_prefix": "user:"}
    spec = spec_with({"token.response.pairs": {"user": paths | more}})
    body = {"access_token": "b", "expires_in": 43200, "scope": "chat"}
    whole = body | {"user": {"token": "u", "renewal": "ur", "lifetime": 60, "scopes": "mail,files"}}

    grant = judge_token(spec, answered(whole), "exchange").grant

    assert (grant.access_token.reveal(), grant.expires_in_s, grant.refresh_token) == ("b", 43200, None)
    user = grant.pairs["user"]
    assert (user.access_token.reveal(), user.refresh_token.reveal(), user.expires_in_s) == ("u", "ur", 60)
    assert grant.scopes == {"chat", "user:mail", "user:files"}
    assert judge_token(spec, answered(body), "exchange").grant.pairs == {}
    half = judge_token(spec, answered(body | {"user": {"token": "u", "renewal": 5}}), "exchange")
    assert half.grant is None
    assert [each.token.reveal() for each in half.salvaged] == ["b", "u"]


def test_the_same_token_twice_is_one(spec):
    """What an answer repeats, or gives back of the request, is no second token."""
    body = {"access_token": "b", "refresh_token": "r", "data": {"access_token": "b"}, "old": {"access_token": "sent"}}

    assert judge_token(spec, answered(body), "exchange", frozenset({"sent"})).grant is not None


# --- revocation ---------------------------------------------------------------------------------------------------

REVOKED = [
    (answered(b""), "confirmed"),
    (answered(b"", 200, "text/html"), "confirmed"),
    (answered({}), "confirmed"),
    (answered("OK", 200, "text/plain"), "confirmed"),
    (answered({"error": "invalid_token"}, 400), "already_gone"),  # RB-25
    (answered({"error": {"code": "invalid_token"}}, 400), "already_gone"),
    (answered({"error": "invalid_request"}, 400), "permanent_error"),  # RB-25: ours to mend
    (answered({"error": "unsupported_token_type"}, 400), "permanent_error"),  # RB-23
    (answered({"error": "invalid_client"}, 401), "permanent_error"),
    (answered({"message": "no such client"}, 404), "permanent_error"),
    (answered(b"", 404), "permanent_error"),
    # D-34, RB-27: what does not say so is not revoked
    (answered(b"", 202), "deferred"),
    (answered(b"", 204), "deferred"),
    (answered({"error": "internal"}), "deferred"),
    (answered({"ok": False}), "deferred"),
    (answered({"error": "invalid_token"}), "deferred"),
    (answered({"error": "something_new"}, 400), "deferred"),
    (answered(b"", 400), "deferred"),
    (answered(b"", 401), "deferred"),
    (answered(b"", 302), "deferred"),
    (answered(b"", 408), "deferred"),
    (answered({"error": "invalid_token"}, 429), "deferred"),
    (answered(b"", 503), "deferred"),
    (html(404), "deferred"),
    (html(302), "deferred"),
    (html(200), "unknown"),
    (html(502), "unknown"),
    (answered("page", 200, "text/html"), "unknown"),
    (answered(b"", 500), "unknown"),
    (answered({"error": "invalid_token"}, 500), "unknown"),
    (answered({}, complete=False), "unknown"),
    (NoAnswer(sent=False, reason="not_connected"), "deferred"),
    (NoAnswer(sent=False, reason="no_time"), "deferred"),
    (NoAnswer(sent=True, reason="timeout"), "unknown"),
]


@pytest.mark.rule("RB-25", "RB-27", "D-34", "U-8")
@pytest.mark.parametrize(("answer", "outcome"), REVOKED)
def test_only_the_catalogues_predicates_say_that_a_token_is_dead(spec, answer, outcome):
    """Confirmed and already gone by the entry alone; the rest waits, and what may have been done is unknown."""
    judged = judge_revoke(spec, answer)

    assert judged.outcome == outcome
    assert judged.reason or judged.outcome is RevokeOutcome.CONFIRMED


@pytest.mark.rule("D-34", "U-8")
@pytest.mark.parametrize(
    ("success", "answer", "is_confirmed"),
    [
        ({"status": [204], "body": "any"}, answered(b"", 204), True),
        ({"status": [204], "body": "any"}, answered(b"", 200), False),
        ({"status": [200], "body": "empty"}, answered(b" \n"), True),
        ({"status": [200], "body": "empty"}, answered({}), False),
        ({"status": [200], "body": {"path": "revoked", "equals": True}}, answered({"revoked": True}), True),
        ({"status": [200], "body": {"path": "revoked", "equals": True}}, answered({"revoked": 1}), False),
        ({"status": [200], "body": {"path": "revoked", "equals": True}}, answered({"revoked": "true"}), False),
        ({"status": [200], "body": {"path": "revoked", "equals": True}}, answered({}), False),
        ({"status": [200], "body": {"path": "status", "equals": 0}}, answered({"status": 0}), True),
        ({"status": [200], "body": {"path": "status", "equals": 0}}, answered({"status": 503}), False),
        ({"status": [200], "body": {"path": "status", "equals": 0}}, answered({"status": False}), False),
        ({"status": [200], "body": {"path": "a.b", "equals": "x"}}, answered({"a": {"b": "x"}}), True),
    ],
)
def test_success_is_status_and_body(spec_with, success, answer, is_confirmed):
    """As the entry says, to the type."""
    judged = judge_revoke(spec_with({"revocation.success": success}), answer)

    assert (judged.outcome is RevokeOutcome.CONFIRMED) is is_confirmed


@pytest.mark.rule("RB-25")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 500])
def test_unknown_already_gone_counts_nothing_as_gone(spec_with, status):
    """Where nobody has read what a dead token is answered, a refusal that may be that is settled by a refresh."""
    spec = spec_with({"revocation.already_gone": "unknown", "revocation.permanent_errors": []})

    outcome = judge_revoke(spec, answered({"error": "invalid_token"}, status)).outcome

    expected = {500: RevokeOutcome.UNKNOWN, 403: RevokeOutcome.DEFERRED, 405: RevokeOutcome.DEFERRED}
    assert outcome is expected.get(status, RevokeOutcome.AMBIGUOUS)


def test_a_success_that_nobody_has_read_confirms_nothing_by_itself(spec_with):
    """Any 2xx but 202 looks like one, and is told so; an error in its body is none."""
    spec = spec_with({"revocation.success": "unknown", "revocation.already_gone": "unknown"})

    for status in (200, 204):
        told = judge_revoke(spec, RawAnswer(status))
        assert (told.outcome, told.seems_done) == (RevokeOutcome.AMBIGUOUS, True)
    assert judge_revoke(spec, RawAnswer(202)).outcome is RevokeOutcome.DEFERRED
    assert not judge_revoke(spec, answered({"error": "nope"}, 200)).seems_done
    assert judge_revoke(spec, RawAnswer(200, b"<html>", "text/html")).outcome is RevokeOutcome.UNKNOWN


@pytest.mark.rule("RB-25", "U-8")
@pytest.mark.parametrize("told", ["already_gone", "ambiguous"])
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (answered({"error": "invalid_client"}, 400), "permanent_error"),
        (answered({"error": "invalid_request"}, 400), "permanent_error"),
        (answered({"error": "unauthorized_client"}, 400), "permanent_error"),
        (answered({"message": "no such client"}, 404), "permanent_error"),  # the entry calls it permanent
        (answered({"error": "invalid_token"}, 404), None),
        (answered({"error": "invalid_token"}, 400), None),
        (answered(b"", 400), None),
    ],
)
def test_a_status_alone_calls_nothing_gone_that_may_be_a_wrong_request(spec_with, told, answer, outcome):
    """Unless the entry names the error code, a refusal of the client or of the request is ours to mend."""
    patterns = [{"status": [400, 404]}, {"status": [404], "errors": ["invalid_token"]}]
    spec = spec_with({"revocation.already_gone": "unknown", f"revocation.{told}": patterns})

    assert judge_revoke(spec, answer).outcome == (outcome or told)


# --- identity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome", "account"),
    [
        (answered({"sub": "u1"}), "read", "u1"),
        (answered({"sub": 12}), "read", "12"),
        (answered({"sub": ""}), "unreadable", None),
        (answered({}), "unreadable", None),
        (answered("x"), "unreadable", None),
        (answered({"sub": "u1", "error": "x"}), "unreadable", None),
        (answered({"error": "invalid_token"}, 401), "refused", None),
        (answered(b"", 401, has_bearer_challenge=True), "refused", None),
        (answered(b"", 401), "try_later", None),
        (html(401), "try_later", None),
        (html(200), "try_later", None),
        (answered({"error": "insufficient_scope"}, 403), "try_later", None),
        (answered(b"", 429, retry_after_ms=1), "try_later", None),
        (answered(b"", 500), "try_later", None),
        (answered({"sub": "u1"}, complete=False), "try_later", None),
        (NoAnswer(sent=True, reason="timeout"), "try_later", None),
        (NoAnswer(sent=False, reason="not_connected"), "try_later", None),
    ],
)
def test_whose_grant_it_is(spec, answer, outcome, account):
    """Read, or why not. Only the provider's own 401 refuses the token; a proxy's page does not."""
    judged = judge_identity(spec, answer)

    assert (judged.outcome, judged.account_id) == (outcome, account)
    assert "u1" not in repr(judged)
    assert judged.reason or judged.outcome is IdentityOutcome.READ


def test_what_an_account_is_called_as_well(spec_with):
    """Each path that says something, a list's elements each, and no empty or odd one."""
    kinds = {"team": {"field": "teams.*.id"}, "payer": {"field": "payer"}, "every": {"field": "all.*"}}
    accounts = {kind: [kind] for kind in kinds}
    hook = {"signature": {"scheme": "hmac", "headers": ["x-s"]}, "event": {"accounts": accounts}}
    spec = spec_with({"identity.also": kinds, "webhook": hook})

    def named(said):
        return judge_identity(spec, answered({"sub": "u1"} | said)).names

    assert named({"teams": [{"id": "T1"}, {"id": 2}, {}, "x"], "payer": "P"}) == {"team\nT1", "team\n2", "payer\nP"}
    assert named({"teams": {"id": "T1"}, "payer": ["P"], "all": ["a", "", True, {}]}) == {"every\na"}
    assert len(named({"all": [f"n{number}" for number in range(50)]})) == 50


# --- small parts --------------------------------------------------------------------------------------------------

DATE = "Mon, 30 Nov 2026 10:00:00 GMT"


@pytest.mark.rule("F-11")
@pytest.mark.parametrize(
    ("value", "date", "ms"),
    [
        (None, DATE, None),
        ("", DATE, None),
        ("0", None, 0),
        ("120", None, 120_000),
        (" 7 ", None, 7000),
        ("999999999999", None, 86_400_000),
        ("-5", DATE, None),
        ("1.5", DATE, None),
        ("soon", DATE, None),
        ("Mon, 30 Nov 2026 10:02:00 GMT", DATE, 120_000),
        ("Mon, 30 Nov 2026 09:00:00 GMT", DATE, 0),
        ("Mon, 30 Nov 2027 09:00:00 GMT", DATE, 86_400_000),
        ("Mon, 30 Nov 2026 10:02:00 GMT", None, None),
        ("Mon, 30 Nov 2026 10:02:00 GMT", "today", None),
        ("Mon, 99 Nov 2026 10:02:00 GMT", DATE, None),
        ("\u0663", DATE, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_answers_clock(value, date, ms):
    """RFC 9110 section 10.2.3; our clock is not asked."""
    assert retry_after_ms(value, date) == ms


@pytest.mark.parametrize(
    ("body", "content_type", "is_html"),
    [
        (PAGE, "text/html", True),
        (PAGE, "application/json", True),
        (b"", "text/html", False),
        (b"text", "text/html", True),
        (b"access_token=a", "text/html", True),
        (b"{}", "text/html", False),
        (b"text", "text/plain", False),
    ],
)
def test_a_page_is_known_by_its_look(body, content_type, is_html):
    """An empty body is no page, whatever it calls itself: django-oauth-toolkit answers revocations so."""
    assert read_body(RawAnswer(200, body, content_type)).is_html is is_html
