"""ID tokens: what is believed, and every way in which one is not (OIDC core 3.1.3.7, RFC 8725)."""

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quitclaim.domain.secret import Secret
from quitclaim.providers.id_token import (
    ASK_AGAIN_S,
    KEPT_S,
    KEYS_MAX,
    MAX_AGE_S,
    MAX_CHARS,
    SKEW_S,
    STALE_S,
    Expected,
    KeySets,
    Verdict,
    half_hash,
    named_subject,
    verify,
)
from quitclaim.providers.transport import NoAnswer, RawAnswer
from tests.fakes.issuer import ISSUER, KINDS, at_hash, key, published, signed, unpadded, unsigned

NOW = 1_800_000_000
ACCESS = Secret("access-canary")
EXPECTED = Expected(ISSUER, "client-1", ("RS256", "ES256", "PS256", "EdDSA"), Secret("nonce-1"), ACCESS)
CLAIMS = {"iss": ISSUER, "aud": "client-1", "sub": "alice", "exp": NOW + 300, "iat": NOW, "nonce": "nonce-1"}
URL = f"{ISSUER}/jwks"


class Issuer:
    """Answers for its key set, and counts how often it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0
        self.now = NOW
        self.sets = KeySets(self._fetch, lambda: self.now)

    def _fetch(self, url, timeout_ms):
        assert (url, timeout_ms) == (URL, 5_000)
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        return answer if not isinstance(answer, dict) else RawAnswer(200, json.dumps(answer).encode())

    def verdict(self, token, expected=EXPECTED):
        """Of a token, by this issuer's keys."""
        return verify(Secret(token), expected, lambda kid, alg: self.sets.key(URL, kid, alg, 5_000), self.now)


def judged(token, *keys, expected=EXPECTED, now=NOW):
    """By an issuer that publishes *keys*."""
    issuer = Issuer(published(*(keys or (key("k1"),))))
    issuer.now = now
    return issuer.verdict(token, expected)


# --- what is believed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_good_token_says_whose_it_is(algorithm):
    """By every algorithm that is believed, with the hash of its access token."""
    by = key("k1", algorithm)
    token = signed(CLAIMS | {"at_hash": half_hash(ACCESS, algorithm)}, by, algorithm)

    assert judged(token, by) == Verdict(subject="alice")


def test_the_hash_of_an_access_token_is_the_one_of_the_specification():
    """OIDC core A.3 has it for `jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y`."""
    assert half_hash(Secret("jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y"), "RS256") == "77QmUPtjPfzWtF2AnpK9RQ"
    assert half_hash(ACCESS, "ES256") == at_hash("access-canary")


TAKEN = {
    "a list of one audience": CLAIMS | {"aud": ["client-1"]},
    "us as authorized party": CLAIMS | {"azp": "client-1"},
    "a claim nobody knows": CLAIMS | {"extra": {"deep": [1]}, "auth_time": NOW - 10},
    "barely expired": CLAIMS | {"exp": NOW - SKEW_S + 1},
    "a clock that is ahead": CLAIMS | {"iat": NOW + SKEW_S, "nbf": NOW + SKEW_S},
    "an hour old": CLAIMS | {"iat": NOW - MAX_AGE_S},
    "times with fractions": CLAIMS | {"iat": NOW - 0.5, "exp": NOW + 0.5},
    "the longest subject": CLAIMS | {"sub": "x" * 255},
}


@pytest.mark.parametrize("claims", TAKEN.values(), ids=TAKEN.keys())
def test_what_a_token_may_be(claims):
    """Tolerant where the specification is."""
    assert judged(signed(claims, key("k1"))).subject == claims["sub"]


def test_a_token_without_a_key_id_needs_an_issuer_with_one_key():
    """OIDC core 10.1: where there is a choice, an id is needed."""
    token = signed(CLAIMS, key("k1"), kid=None)

    assert judged(token, key("k1")).subject == "alice"
    assert judged(token, key("k1"), key("k2")).reason == "key"
    assert judged(token, key("k1"), key("k2", "ES256")).subject == "alice"


def test_without_a_nonce_of_ours_none_is_compared():
    """A provider that takes none sends none back."""
    expected = Expected(ISSUER, "client-1", ("RS256",), None, ACCESS)

    assert judged(signed({k: v for k, v in CLAIMS.items() if k != "nonce"}, key("k1")), expected=expected).subject


# --- what is not -----------------------------------------------------------------------------------------------------


def without(name):
    """The claims without one."""
    return {each: value for each, value in CLAIMS.items() if each != name}


CLAIMED = {
    # name: (claims, reason)
    "another issuer": (CLAIMS | {"iss": "https://evil.example.com"}, "issuer"),
    "an issuer with a slash more": (CLAIMS | {"iss": f"{ISSUER}/"}, "issuer"),
    "an issuer in another case": (CLAIMS | {"iss": ISSUER.upper()}, "issuer"),
    "a list of issuers": (CLAIMS | {"iss": [ISSUER]}, "issuer"),
    "no issuer": (without("iss"), "issuer"),
    "another audience": (CLAIMS | {"aud": "client-2"}, "audience"),
    "an audience beside us": (CLAIMS | {"aud": ["client-1", "client-2"], "azp": "client-1"}, "audience"),
    "us twice": (CLAIMS | {"aud": ["client-1", "client-1"]}, "audience"),
    "no audience": (without("aud"), "audience"),
    "an empty audience": (CLAIMS | {"aud": []}, "audience"),
    "an audience that holds ours": (CLAIMS | {"aud": "client-12"}, "audience"),
    "another authorized party": (CLAIMS | {"azp": "client-2"}, "authorized_party"),
    "an authorized party that is none": (CLAIMS | {"azp": None}, "authorized_party"),
    "another nonce": (CLAIMS | {"nonce": "nonce-2"}, "nonce"),
    "no nonce": (without("nonce"), "nonce"),
    "a list of nonces": (CLAIMS | {"nonce": ["nonce-1"]}, "nonce"),
    "expired": (CLAIMS | {"exp": NOW - SKEW_S}, "expired"),
    "no end": (without("exp"), "expired"),
    "an end in words": (CLAIMS | {"exp": str(NOW + 300)}, "expired"),
    "an end for ever": (CLAIMS | {"exp": 1 << 41}, "expired"),
    "an end that is true": (CLAIMS | {"exp": True}, "expired"),
    "issued tomorrow": (CLAIMS | {"iat": NOW + SKEW_S + 1}, "issued_at"),
    "issued too long ago": (CLAIMS | {"iat": NOW - MAX_AGE_S - SKEW_S - 1}, "issued_at"),
    "not issued": (without("iat"), "issued_at"),
    "not yet": (CLAIMS | {"nbf": NOW + SKEW_S + 1}, "not_before"),
    "not yet, in words": (CLAIMS | {"nbf": "now"}, "not_before"),
    "another access token's hash": (CLAIMS | {"at_hash": at_hash("another")}, "access_token"),
    "a hash that is none": (CLAIMS | {"at_hash": None}, "access_token"),
    "no subject": (without("sub"), "subject"),
    "an empty subject": (CLAIMS | {"sub": ""}, "subject"),
    "a subject that is a number": (CLAIMS | {"sub": 7}, "subject"),
    "a subject that is too long": (CLAIMS | {"sub": "x" * 256}, "subject"),
    "a subject of two lines": (CLAIMS | {"sub": "a\nb"}, "subject"),
}


@pytest.mark.rule("S-2", "S-4", "S-21")
@pytest.mark.parametrize(("claims", "reason"), CLAIMED.values(), ids=CLAIMED.keys())
def test_a_claim_that_does_not_hold(claims, reason):
    """Well signed, and not for us, not now, or not for this visit."""
    assert judged(signed(claims, key("k1"))) == Verdict(reason=reason)


def by_the_public_key(text):
    """HS256 with the published key for its secret: the oldest trick there is."""
    head, body, _ = text.split(".")
    head = unpadded(json.dumps({"alg": "HS256", "kid": "k1", "typ": "JWT"}).encode())
    secret = key("k1").export_to_pem()
    return f"{head}.{body}.{unpadded(hmac.digest(secret, f'{head}.{body}'.encode(), 'sha256'))}"


def altered(text):
    """One bit of the signature."""
    head, body, signature = text.split(".")
    raw = bytearray(base64.urlsafe_b64decode(signature + "=="))
    raw[-1] ^= 1
    return f"{head}.{body}.{unpadded(bytes(raw))}"


def swapped(text):
    """Another one's claims under a good signature."""
    head, _, signature = text.split(".")
    return f"{head}.{unpadded(json.dumps(CLAIMS | {'sub': 'mallory'}).encode())}.{signature}"


GOOD = signed(CLAIMS, key("k1"))
FORGED = {
    "unsigned": (unsigned(CLAIMS, {"alg": "none"}), "algorithm"),
    "unsigned, and named otherwise": (unsigned(CLAIMS, {"alg": "None", "kid": "k1"}), "algorithm"),
    "signed with nothing": (unsigned(CLAIMS, {"alg": "RS256", "kid": "k1"}), "signature"),
    "no algorithm": (unsigned(CLAIMS, {"kid": "k1"}), "algorithm"),
    "HS256 with the public key": (by_the_public_key(GOOD), "algorithm"),
    "RS384": (signed(CLAIMS, key("k1", "RS384"), "RS384"), "algorithm"),
    "ES384": (signed(CLAIMS, key("k1", "ES384"), "ES384"), "algorithm"),
    "a bit of the signature": (altered(GOOD), "signature"),
    "another's claims": (swapped(GOOD), "signature"),
    "another key under this id": (signed(CLAIMS, key("k1", "PS256"), kid="k1"), "signature"),
    "a key nobody knows": (signed(CLAIMS, key("k9")), "key"),
    "a key id that is a number": (signed(CLAIMS, key("k1"), kid=1), "malformed"),
    "an empty key id": (signed(CLAIMS, key("k1"), kid=""), "key"),
    "a path for a key id": (signed(CLAIMS, key("k1"), kid="../../etc/passwd"), "key"),
    "a key of its own": (signed(CLAIMS, key("k9"), jwk=json.loads(key("k9").export_public())), "key"),
    "a key set of its own": (signed(CLAIMS, key("k9"), jku="https://evil.example.com/jwks"), "key"),
    "an extension that must be understood": (signed(CLAIMS, key("k1"), crit=["b64"], b64=True), "header"),
    "another kind of token": (signed(CLAIMS, key("k1"), typ="at+jwt"), "header"),
    "a logout token": (signed(CLAIMS, key("k1"), typ="logout+jwt"), "header"),
    "two parts": (GOOD.rpartition(".")[0], "malformed"),
    "five parts": (f"{GOOD}..", "malformed"),
    "no token": ("x", "malformed"),
    "no base64": ("a.b.c", "malformed"),
    "a list for claims": (signed(b"[1]", key("k1")), "signature"),
    "no JSON for claims": (signed(b"{", key("k1")), "signature"),
    "too long": (signed(CLAIMS | {"x": "x" * MAX_CHARS}, key("k1")), "malformed"),
}


@pytest.mark.rule("S-24", "S-2")
@pytest.mark.parametrize(("token", "reason"), FORGED.values(), ids=FORGED.keys())
def test_a_token_that_its_issuer_did_not_make(token, reason):
    """Nothing in it is believed, whatever it claims; and no address in it is asked for anything."""
    issuer = Issuer(published(key("k1")))

    verdict = issuer.verdict(token)

    assert (verdict.subject, verdict.reason) == (None, reason)
    assert issuer.asked <= 1


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: f"{unpadded(raw)}.{unpadded(raw)}."))
def test_any_text_has_a_verdict(text):
    """No exception of a library, whatever comes."""
    if text:
        assert judged(text).subject is None


def test_only_algorithms_of_the_catalogue_are_believed():
    """Also where the issuer has a key for another one that is sound in itself."""
    expected = Expected(ISSUER, "client-1", ("RS256",), Secret("nonce-1"), ACCESS)
    token = signed(CLAIMS, key("k1", "ES256"), "ES256")

    assert judged(token, key("k1", "ES256"), expected=expected).reason == "algorithm"
    assert judged(token, key("k1", "ES256")).subject == "alice"


# --- the issuer's keys -----------------------------------------------------------------------------------------------

UNFIT = {
    "for encryption": {"use": "enc"},
    "for signing only": {"key_ops": ["sign"]},
    "operations that are none": {"key_ops": "verify"},
    "for another algorithm": {"alg": "PS256"},
    "of another kind": {"kty": "oct"},
    "broken": {"n": "!"},
    "without a modulus": {"n": None},
}


@pytest.mark.parametrize("members", UNFIT.values(), ids=UNFIT.keys())
def test_a_key_that_is_not_for_this_verifies_nothing(members):
    """As if it were not there."""
    assert Issuer(published(key("k1"), **members)).verdict(GOOD).reason == "key"


def test_a_short_rsa_key_verifies_nothing():
    """RFC 7518 section 3.3: 2048 bits at least."""
    assert judged(signed(CLAIMS, key("k1", "small")), key("k1", "small")).reason == "key"
    assert KINDS["small"]["size"] < 2048


def test_a_published_private_key_is_used_as_a_public_one():
    """The issuer's fault, and not a way to change what is verified."""
    assert Issuer({"keys": [json.loads(key("k1").export_private())]}).verdict(GOOD).subject == "alice"


def test_keys_are_asked_for_once_an_hour():
    """And once more as soon as the hour is over."""
    issuer = Issuer(published(key("k1")))
    for issuer.now in (NOW, NOW + 1, NOW + KEPT_S - 1):
        issuer.sets.key(URL, "k1", "RS256", 5_000)
    assert issuer.asked == 1

    issuer.now = NOW + KEPT_S
    issuer.sets.key(URL, "k1", "RS256", 5_000)

    assert issuer.asked == 2


@pytest.mark.rule("S-24")
def test_a_key_that_nobody_knows_is_asked_for_once_a_minute():
    """The issuer may have turned its key; or somebody sends tokens with made-up ids."""
    issuer = Issuer(published(key("k1")), published(key("k1"), key("k2")))
    token = signed(CLAIMS, key("k2"))
    assert issuer.verdict(token).reason == "key"
    assert issuer.verdict(token).reason == "key"
    assert issuer.asked == 1

    issuer.now = NOW + ASK_AGAIN_S

    assert issuer.verdict(token).subject == "alice"
    for _ in range(10):
        assert issuer.verdict(signed(CLAIMS, key("k9"))).reason == "key"
    assert issuer.asked == 2


OUTAGES = {
    "no answer": NoAnswer(sent=True, reason="timeout"),
    "not connected": NoAnswer(sent=False, reason="not_connected"),
    "broken": RawAnswer(500),
    "moved": RawAnswer(302),
    "cut off": RawAnswer(200, json.dumps(published(key("k1"))).encode(), complete=False),
    "a page": RawAnswer(200, b"<html>"),
    "no set": RawAnswer(200, b"[]"),
    "a set that is none": RawAnswer(200, b'{"keys": {}}'),
    "too many": RawAnswer(200, json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode()),
}


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES.keys())
def test_an_issuer_whose_keys_cannot_be_had(outage):
    """Nothing is believed, and it may be tried again; keys that were read before serve a day."""
    assert Issuer(outage).verdict(GOOD) == Verdict(reason="keys_unavailable", busy=True)

    issuer = Issuer(published(key("k1")), outage)
    issuer.verdict(GOOD)
    fresh = {"iat": NOW + STALE_S - 1, "exp": NOW + STALE_S + 300}
    issuer.now = NOW + STALE_S - 1
    assert issuer.verdict(signed(CLAIMS | fresh, key("k1"))).subject == "alice"
    issuer.now = NOW + STALE_S
    assert issuer.verdict(signed(CLAIMS | fresh, key("k1"))).busy
    assert issuer.asked == 3


def test_what_one_issuer_publishes_is_no_key_of_another():
    """Sets are kept by their address."""
    answers = {f"{ISSUER}/1": published(key("k1")), f"{ISSUER}/2": published(key("k2"))}
    sets = KeySets(lambda url, _: RawAnswer(200, json.dumps(answers[url]).encode()), lambda: NOW)

    assert not isinstance(sets.key(f"{ISSUER}/1", "k1", "RS256", 1), Verdict)
    assert isinstance(sets.key(f"{ISSUER}/2", "k1", "RS256", 1), Verdict)


# --- the subject that is named ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "subject"),
    [
        (GOOD, "alice"),
        (unsigned(CLAIMS, {"alg": "none"}), "alice"),
        (unsigned(without("sub"), {}), None),
        (unsigned(CLAIMS | {"sub": 7}, {}), None),
        ("a.b.c", None),
        ("x", None),
        (f"a.{unpadded(b'[]')}.c", None),
        (f"a.{unpadded(b'[' * 5_000)}.c", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_subject_that_a_token_names(token, subject):
    """Unverified: it decides whose grants a revocation might end, and nothing else."""
    assert named_subject(Secret(token)) == subject


def test_a_digest_is_not_chosen_by_the_token():
    """SHA-512 is Ed25519's own (RFC 8037); nothing else changes it."""
    raw = hashlib.sha512(b"access-canary").digest()

    assert half_hash(ACCESS, "EdDSA") == unpadded(raw[:32])
