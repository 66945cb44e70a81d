"""Who may send security events, as the app's team wrote it down."""

import pytest

from quitclaim.domain.security_events import (
    MEANING,
    Says,
    Transmitter,
    TransmitterFaultsError,
    read_transmitter,
)

CONFIG = {
    "issuer": "https://accounts.google.com/",
    "audience": ["1234.apps.googleusercontent.com"],
    "jwks_uri": "https://www.googleapis.com/oauth2/v3/certs",
    "client": "google",
}


def test_a_transmitter_is_an_issuer_its_keys_and_a_client():
    """One algorithm unless others are named."""
    assert read_transmitter("google", CONFIG) == Transmitter(
        "google",
        "https://accounts.google.com/",
        ("1234.apps.googleusercontent.com",),
        "https://www.googleapis.com/oauth2/v3/certs",
        "google",
        ("RS256",),
    )
    assert read_transmitter("google", CONFIG | {"algorithms": ["ES256"]}).algorithms == ("ES256",)


@pytest.mark.rule("S-24")
@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": ""},
        {"issuer": 7},
        {"audience": []},
        {"audience": "1234"},
        {"audience": ["a", ""]},
        {"jwks_uri": "ftp://keys"},
        {"jwks_uri": None},
        {"client": "two words"},
        {"algorithms": []},
        {"algorithms": ["none"]},
        {"algorithms": ["HS256"]},
        {"algorithms": ["RS256", "HS256"]},
        {"secret": "x"},
    ],
)
def test_what_does_not_hold_is_refused(changes):
    """No audience of everybody, no symmetric algorithm and no `none`, whatever else is set."""
    with pytest.raises(TransmitterFaultsError):
        read_transmitter("google", CONFIG | changes)


def test_a_name_is_a_path_segment():
    """Of our own address."""
    with pytest.raises(TransmitterFaultsError):
        read_transmitter("a/b", CONFIG)


def test_only_the_end_of_all_tokens_ends_a_grant():
    """Sessions, credentials and accounts are asked about: the provider's own answer decides."""
    assert {name.rsplit("/", 1)[-1] for name, says in MEANING.items() if says is Says.ENDED} == {"tokens-revoked"}
    assert Says.NOTHING not in MEANING.values()
