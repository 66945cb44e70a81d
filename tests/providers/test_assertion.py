"""A client that proves itself by a key (RFC 7523): judged by a library that the product does not use."""

import json

import pytest
from jwcrypto.jwk import JWK
from jwcrypto.jws import InvalidJWSSignature
from jwcrypto.jwt import JWT

from quitclaim.domain.errors import ClientConfigError
from quitclaim.domain.secret import Secret
from quitclaim.providers.assertion import LIFETIME_S, AssertionKey, check_key, client_assertion
from tests.fakes.issuer import key

NOW = 1_800_000_000
AUDIENCE = "https://acme.example.com/token"


def pem(by: JWK) -> Secret:
    """A private key as an operator has it."""
    return Secret(by.export_to_pem(private_key=True, password=None).decode())


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_an_assertion_is_what_the_rfc_says(algorithm):
    """Issuer and subject are the client, the audience is the endpoint; signed, short, and with an id of its own."""
    by = key("k1", algorithm)

    made = client_assertion(AssertionKey(pem(by), "k1"), "client-1", AUDIENCE, NOW, "jti-1")

    told = JWT(jwt=made.reveal(), key=by, check_claims={"exp": None}, algs=[algorithm], expected_type="JWS")
    assert json.loads(told.header) == {"alg": algorithm, "kid": "k1", "typ": "JWT"}
    assert json.loads(told.claims) == {
        "iss": "client-1",
        "sub": "client-1",
        "aud": AUDIENCE,
        "jti": "jti-1",
        "iat": NOW - 5,
        "exp": NOW + LIFETIME_S,
    }
    with pytest.raises(InvalidJWSSignature):
        JWT(jwt=made.reveal(), key=key("k2", algorithm), check_claims={"exp": None}, algs=[algorithm])


def test_a_client_with_one_key_need_not_name_it():
    """Then there is no key id."""
    made = client_assertion(AssertionKey(pem(key("k1")), None), "client-1", AUDIENCE, NOW, "jti-1")

    assert "kid" not in json.loads(JWT(jwt=made.reveal(), key=key("k1"), check_claims={"exp": None}).header)


NO_KEYS = {
    "a word": "canary",
    "a public key": key("k1").export_to_pem().decode(),
    "a short key": key("k1", "small").export_to_pem(private_key=True, password=None).decode(),
    "another curve": key("k1", "ES384").export_to_pem(private_key=True, password=None).decode(),
    "a key with a password": key("k1").export_to_pem(private_key=True, password=b"canary").decode(),
    "a key that is cut off": key("k1").export_to_pem(private_key=True, password=None).decode()[:-200],
    "a JSON key": key("k1").export_private(),
}


@pytest.mark.rule("S-13", "S-28")
@pytest.mark.parametrize("secret", NO_KEYS.values(), ids=NO_KEYS.keys())
def test_what_is_no_key_is_the_clients_fault(secret):
    """Told before anything is sent, without a word of it."""
    bad = AssertionKey(Secret(secret), None)

    for attempt in (lambda: check_key(bad), lambda: client_assertion(bad, "client-1", AUDIENCE, NOW, "j")):
        with pytest.raises(ClientConfigError) as refused:
            attempt()
        assert secret not in str(refused.value) + str(refused.value.details)
        assert refused.value.__cause__ is None
