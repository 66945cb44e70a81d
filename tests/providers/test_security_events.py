"""Security event tokens that another library has signed: which are believed, what they say, how the rest is refused."""

import json

import pytest

from quitclaim.domain.errors import KeyUnavailableError
from quitclaim.domain.limits import SET_AGE_MS
from quitclaim.domain.security_events import CAEP, OAUTH, RISC, Says, SetFault, SetRefused, Transmitter
from quitclaim.providers.id_token import ASK_AGAIN_S, KeySets
from quitclaim.providers.security_events import read
from quitclaim.providers.transport import NoAnswer, RawAnswer
from tests.fakes.issuer import ISSUER, key, published, signed, unsigned

NOW = 1_796_038_850
URL = f"{ISSUER}/jwks"
SPEC = Transmitter("acme", ISSUER, ("our-client", "our-other-client"), URL, "acme", ("RS256", "ES256"))
SUBJECT = {"subject_type": "iss-sub", "iss": ISSUER, "sub": "alice"}
CLAIMS = {
    "iss": ISSUER,
    "aud": "our-client",
    "jti": "756E69717565",
    "iat": NOW - 5,
    "events": {f"{RISC}sessions-revoked": {"subject": SUBJECT}},
}


class Keys:
    """What the issuer publishes, and how often it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0
        self.now = NOW
        self.sets = KeySets(self._fetch, lambda: self.now)

    def _fetch(self, url, timeout_ms):
        assert url == URL
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        return answer if not isinstance(answer, dict) else RawAnswer(200, json.dumps(answer).encode())

    def read(self, token):
        """The token's verdict by these keys."""
        return read(token, SPEC, lambda kid, algorithm: self.sets.key(URL, kid, algorithm, 5_000), self.now)


def told(claims=None, *, by=None, **header):
    """The verdict on claims that are signed by the issuer."""
    by = by or key("k1")
    header.setdefault("typ", "secevent+jwt")
    return Keys(published(key("k1"))).read(signed(CLAIMS if claims is None else claims, by, **header))


def of(type_, payload=None, **claims):
    """Claims with one event."""
    return CLAIMS | {"events": {type_: {"subject": SUBJECT} if payload is None else payload}} | claims


# --- what is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        (f"{OAUTH}tokens-revoked", Says.ENDED),
        (f"{OAUTH}token-revoked", Says.DOUBTFUL),
        (f"{RISC}sessions-revoked", Says.DOUBTFUL),
        (f"{RISC}account-disabled", Says.DOUBTFUL),
        (f"{RISC}account-purged", Says.DOUBTFUL),
        (f"{CAEP}session-revoked", Says.DOUBTFUL),
        (f"{RISC}account-enabled", Says.NOTHING),
        (f"{RISC}verification", Says.NOTHING),
        ("https://example.com/unheard-of", Says.NOTHING),
    ],
)
def test_what_an_event_says_of_the_grants_of_its_account(type_, says):
    """By its type, which is an address and is compared whole."""
    verdict = told(of(type_))

    assert verdict.jti == "756E69717565"
    ((event,)) = verdict.events
    assert (event.type, event.says, event.account) == (type_, says, "alice")
    assert event.occurred_at == (NOW - 5) * 1000


@pytest.mark.parametrize(
    ("payload", "claims", "account"),
    [
        ({"subject": {"format": "iss_sub", "iss": ISSUER, "sub": "bob"}}, {}, "bob"),
        ({"subject": {"subject_type": "id_token_claims", "iss": ISSUER, "sub": "bob"}}, {}, "bob"),
        ({"subject": {"format": "opaque", "id": "bob"}}, {}, "bob"),
        ({"subject": {"format": "complex", "user": {"format": "iss_sub", "iss": ISSUER, "sub": "bob"}}}, {}, "bob"),
        (
            {"subject": {"user": {"format": "opaque", "id": "bob"}, "device": {"format": "opaque", "id": "d"}}},
            {},
            "bob",
        ),
        ({}, {"sub_id": {"format": "iss_sub", "iss": ISSUER, "sub": "bob"}}, "bob"),
        ({}, {"sub": "bob"}, "bob"),
        ({"subject": {"format": "email", "email": "bob@example.com"}}, {}, None),
        ({"subject": {"format": "iss_sub", "iss": ISSUER, "sub": ""}}, {}, None),
        ({"subject": {"format": "iss_sub", "iss": ISSUER, "sub": ["bob"]}}, {}, None),
        ({}, {}, None),
    ],
)
def test_whose_account_it_is_about(payload, claims, account):
    """In each way in which a subject is named (RFC 9493); one that we have no id of is nobody of ours."""
    verdict = told(of(f"{RISC}sessions-revoked", payload, **claims))

    assert [event.account for event in verdict.events] == [account]


@pytest.mark.parametrize(
    ("said", "occurred_s"),
    [
        ({"toe": NOW - 100}, NOW - 100),
        ({"toe": NOW + 100}, NOW - 5),
        ({"toe": "yesterday"}, NOW - 5),
    ],
)
def test_when_it_happened_is_never_after_it_was_told(said, occurred_s):
    """`toe` (RFC 8417), else when the token was issued."""
    (event,) = told(CLAIMS | said).events

    assert event.occurred_at == occurred_s * 1000


@pytest.mark.parametrize("stamp", [NOW - 60, (NOW - 60) * 1000])
def test_caep_says_when_in_the_event(stamp):
    """In seconds, as it is standardized, or in milliseconds, as early drafts had it."""
    payload = {"subject": SUBJECT, "event_timestamp": stamp}

    (event,) = told(of(f"{CAEP}session-revoked", payload)).events

    assert event.occurred_at == (NOW - 60) * 1000


@pytest.mark.parametrize("typ", ["secevent+jwt", "application/secevent+jwt", "JWT", None])
@pytest.mark.parametrize("audience", ["our-client", ["our-other-client"], ["somebody", "our-client"]])
def test_forms_that_issuers_use(typ, audience):
    """Google's tokens are typed JWT and made out to several clients of one app."""
    assert not isinstance(told(CLAIMS | {"aud": audience}, typ=typ), SetRefused)


def test_no_end_is_needed():
    """RFC 8417 section 2.2: an event does not expire. One that says when it does is held to it."""
    assert not isinstance(told(), SetRefused)
    assert not isinstance(told(CLAIMS | {"exp": NOW + 60}), SetRefused)
    assert told(CLAIMS | {"exp": NOW - 600}).fault is SetFault.INVALID_REQUEST


# --- what is not ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-24")
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"iss": "https://evil.example"}, SetFault.INVALID_ISSUER),
        ({"iss": f"{ISSUER}/"}, SetFault.INVALID_ISSUER),
        ({"iss": None}, SetFault.INVALID_ISSUER),
        ({"aud": "somebody"}, SetFault.INVALID_AUDIENCE),
        ({"aud": "our-client-too"}, SetFault.INVALID_AUDIENCE),
        ({"aud": []}, SetFault.INVALID_AUDIENCE),
        ({"aud": None}, SetFault.INVALID_AUDIENCE),
        ({"jti": None}, SetFault.INVALID_REQUEST),
        ({"jti": ""}, SetFault.INVALID_REQUEST),
        ({"jti": 7}, SetFault.INVALID_REQUEST),
        ({"iat": None}, SetFault.INVALID_REQUEST),
        ({"iat": "now"}, SetFault.INVALID_REQUEST),
        ({"iat": True}, SetFault.INVALID_REQUEST),
        ({"iat": NOW + 600}, SetFault.INVALID_REQUEST),
        ({"iat": NOW - SET_AGE_MS // 1000 - 1}, SetFault.INVALID_REQUEST),
        ({"events": None}, SetFault.INVALID_REQUEST),
        ({"events": {}}, SetFault.INVALID_REQUEST),
        ({"events": [f"{RISC}sessions-revoked"]}, SetFault.INVALID_REQUEST),
        ({"events": {f"{RISC}sessions-revoked": None}}, SetFault.INVALID_REQUEST),
        ({"events": {f"https://e.example/{n}": {} for n in range(21)}}, SetFault.INVALID_REQUEST),
        (
            {"events": {f"{OAUTH}tokens-revoked": {"subject": {**SUBJECT, "iss": "https://evil.example"}}}},
            SetFault.INVALID_REQUEST,
        ),
    ],
)
def test_claims_that_do_not_hold(changes, fault):
    """Issuer and audience exactly, an id, a time, events that are some, and no subject of somebody else's."""
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}

    assert told(claims).fault is fault


@pytest.mark.rule("S-24")
def test_algorithms_are_pinned():
    """Neither `none`, nor a signature under the published key as if it were a secret, nor one that nobody agreed on."""
    header = {"alg": "none", "typ": "secevent+jwt", "kid": "k1"}
    keys = Keys(published(key("k1")))

    assert keys.read(unsigned(CLAIMS, header)).fault is SetFault.INVALID_KEY
    assert keys.read(unsigned(CLAIMS, header | {"alg": "HS256"}, b"mac")).fault is SetFault.INVALID_KEY
    assert keys.read(signed(CLAIMS, key("p1", "PS256"), "PS256")).fault is SetFault.INVALID_KEY
    assert keys.asked == 0, "nobody is asked for a key of an algorithm that is not believed"


@pytest.mark.rule("S-24")
def test_a_signature_of_another_key_is_refused():
    """Under the id of one that is published; and a changed byte."""
    forged = signed(CLAIMS, key("k2"), kid="k1")
    good = signed(CLAIMS, key("k1"))
    head, _, signature = good.split(".")
    _, other, _ = signed(CLAIMS | {"jti": "2"}, key("k1")).split(".")

    assert Keys(published(key("k1"))).read(forged).fault is SetFault.INVALID_KEY
    assert Keys(published(key("k1"))).read(f"{head}.{other}.{signature}").fault is SetFault.INVALID_KEY


@pytest.mark.rule("S-24")
def test_a_key_that_nobody_knows_is_looked_for_once_and_not_oftener_than_each_minute():
    """A stranger's ids must not make us ask the issuer for each of them; a key that was turned is found."""
    turned = published(key("k1"), key("k2"))
    keys = Keys(published(key("k1")), published(key("k1")), turned)
    assert not isinstance(keys.read(signed(CLAIMS, key("k1"))), SetRefused)
    keys.now += ASK_AGAIN_S

    strangers = [keys.read(signed(CLAIMS, key("k3"), kid=f"stranger-{n}")).fault for n in range(10)]

    assert strangers == [SetFault.INVALID_KEY] * 10
    assert keys.asked == 2
    keys.now += ASK_AGAIN_S
    assert not isinstance(keys.read(signed(CLAIMS, key("k2"))), SetRefused)
    assert keys.asked == 3


@pytest.mark.parametrize("answer", [NoAnswer(sent=True, reason="timeout"), RawAnswer(500), RawAnswer(200, b"{}")])
def test_keys_that_cannot_be_had_are_nobodys_fault(answer):
    """No verdict: the issuer sends it again."""
    with pytest.raises(KeyUnavailableError):
        Keys(answer).read(signed(CLAIMS, key("k1")))


@pytest.mark.rule("S-24")
@pytest.mark.parametrize("typ", ["at+jwt", "logout+jwt", "id_token+jwt", "dpop+jwt"])
def test_a_token_of_another_kind_is_no_event(typ):
    """RFC 8725 section 3.11: what was made for something else says nothing here."""
    assert told(typ=typ).fault is SetFault.INVALID_REQUEST


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.b.c.d", "." * 2, "x" * 70_000, "{}", "é.é.é"])
def test_what_is_no_token_is_refused(text):
    """Whatever it is."""
    assert Keys(published(key("k1"))).read(text).fault is SetFault.INVALID_REQUEST


def test_a_header_that_asks_for_more_is_refused():
    """`crit` (RFC 7515 section 4.1.11) names what we do not do; a key id is text."""
    for header in ({"crit": ["exp"], "kid": "k1"}, {"kid": ["k1"]}, {"kid": "k" * 600}):
        token = unsigned(CLAIMS, {"alg": "RS256", **header}, b"x")
        assert isinstance(Keys(published(key("k1"))).read(token), SetRefused)
