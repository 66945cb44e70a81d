"""The receiver of security events: what RFC 8935 has us answer, and what is durable by then."""

import json
import time

import pytest

from quitclaim.domain.security_events import OAUTH, RISC
from tests.fakes.issuer import ISSUER, key, published, signed

JWKS = "https://acme.example.com/jwks"
TYPE = "application/secevent+jwt"


@pytest.fixture
def receiver(stage):
    """A stack that hears Acme."""
    config = {"issuer": ISSUER, "audience": ["our-client"], "jwks_uri": JWKS, "client": "acme"}
    stage.put("events/acme", json.dumps(config))
    stage.server.key_set = published(key("k1"))
    stage.restart()
    return stage


def token(type_=f"{OAUTH}tokens-revoked", jti="1", account="alice", by=None, **changes):
    """A token of Acme's."""
    subject = {"subject_type": "iss-sub", "iss": ISSUER, "sub": account}
    claims = {"iss": ISSUER, "aud": "our-client", "jti": jti, "iat": int(time.time()) - 1}
    claims |= {"events": {type_: {"subject": subject}}} | changes
    return signed(claims, by or key("k1"), typ="secevent+jwt").encode()


def sent(stage, body, *, issuer="acme", content_type=TYPE):
    """The answer to a transmission."""
    headers = {"content-type": content_type, "accept": "application/json"}
    return stage.http("connect", "POST", f"/events/{issuer}", body=body, headers=headers)


def deliveries(stage):
    """What was accepted."""
    return [item for item in stage.items().values() if item["ty"]["S"] == "delivery"]


def test_an_event_that_holds_is_durable_and_then_acknowledged(receiver):
    """202 without a body (RFC 8935 section 2.2); sealed, and due to be handled."""
    told = sent(receiver, token())

    assert (told.status, told.text) == (202, "")
    (delivery,) = deliveries(receiver)
    assert delivery["state"]["S"] == "accepted"
    assert delivery["d1"]["S"].startswith("forward#")
    assert "alice" not in json.dumps(delivery, default=str)


@pytest.mark.rule("S-24")
def test_a_token_that_comes_again_is_acknowledged_and_nothing_follows(receiver):
    """By issuer and `jti`; a second event of the same account is another one."""
    first = token()

    assert [sent(receiver, first).status for _ in range(3)] == [202, 202, 202]
    assert len(deliveries(receiver)) == 1
    assert sent(receiver, token(jti="2")).status == 202
    assert len(deliveries(receiver)) == 2


def test_what_says_nothing_to_us_is_acknowledged(receiver):
    """A verification event, or one that we have not heard of."""
    assert sent(receiver, token(f"{RISC}verification")).status == 202
    assert sent(receiver, token("https://example.com/other")).status == 202
    assert deliveries(receiver) == []


@pytest.mark.rule("S-24")
@pytest.mark.parametrize(
    ("body", "err"),
    [
        (lambda: token(iss="https://evil.example"), "invalid_issuer"),
        (lambda: token(aud="somebody"), "invalid_audience"),
        (lambda: token(by=key("k2")), "invalid_key"),
        (lambda: token(events={}), "invalid_request"),
        (lambda: b"no token", "invalid_request"),
        (lambda: b"x" * 70_000, "invalid_request"),
        (lambda: b"", "invalid_request"),
    ],
)
def test_one_that_does_not_hold_is_refused_in_the_words_of_the_rfc(receiver, body, err):
    """400, JSON, `err` and `description` in English (section 2.3); nothing is stored, and nothing of it is repeated."""
    told = sent(receiver, body())

    assert told.status == 400
    assert told.headers["content-type"] == "application/json"
    assert told.headers["content-language"] == "en"
    assert set(told.json) == {"err", "description"}
    assert told.json["err"] == err
    assert deliveries(receiver) == []
    assert receiver.metrics()["SecurityEventsRefused"] == [1.0]


def test_another_content_type_is_refused(receiver):
    """Section 2.1: application/secevent+jwt."""
    assert sent(receiver, token(), content_type="application/json").json["err"] == "invalid_request"


def test_an_issuer_that_nobody_set_up_is_not_found(receiver):
    """And says nothing else."""
    told = sent(receiver, token(), issuer="other")

    assert (told.status, told.json) == (404, {"code": "NOT_FOUND"})


def test_while_the_keys_cannot_be_had_it_is_sent_again(receiver):
    """503, which is no acknowledgement."""
    receiver.server.key_set = {}

    told = sent(receiver, token())

    assert (told.status, told.headers["retry-after"]) == (503, "60")
    assert deliveries(receiver) == []


def test_keys_inside_are_never_fetched(receiver):
    """An address that no provider may be called at is as good as no issuer (S-8)."""
    config = {"issuer": ISSUER, "audience": ["our-client"], "jwks_uri": "https://10.0.0.1/jwks", "client": "acme"}
    receiver.put("events/acme", json.dumps(config))
    receiver.restart()

    assert sent(receiver, token()).status == 404
