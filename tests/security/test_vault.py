"""The vault: what is sealed for what opens there and nowhere else."""

import itertools
from dataclasses import replace

import pytest

from quitclaim.domain.asked import VisitSecrets
from quitclaim.domain.errors import SealBrokenError, StoreError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import TokenPair
from quitclaim.domain.webhooks import Prepared, Trust
from quitclaim.ports import Vault
from quitclaim.security.sealing import Binding, Sealer
from quitclaim.security.vault import RingVault
from tests.security.rings import NOW, FakeKms, MemoryRing, a_ring

REF = ConnectionRef("acme", "ann", "google")
PAIR = TokenPair("main", Secret("access"), Secret("refresh"), "Bearer")
EVENT = Prepared("acme", "acme", NOW, Trust.SIGNED, "0" * 64, 3, accounts=("u-\ud800",))
MATERIAL = Material("refresh_token", Secret("refresh"))


class StillClock:
    def now(self) -> int:
        return NOW

    def pause(self, ms: int) -> None:
        raise AssertionError("nothing waits here")


@pytest.fixture
def vault() -> Vault:
    return RingVault(a_ring(), StillClock())


@pytest.mark.parametrize(
    "pair",
    [
        PAIR,
        TokenPair("user", Secret('quote " and \\ and é'), None, "MAC"),
        TokenPair("main", Secret("a" * 16384), Secret("r" * 16384), "Bearer"),
    ],
)
def test_a_pair_comes_back_as_it_was(vault, pair):
    """Name, both tokens or one, and type."""
    sealed = vault.seal_for_use(REF, 3, 7, pair)

    assert vault.open_for_use(REF, 3, 7, pair.name, sealed) == pair
    assert pair.access_token.reveal().encode() not in sealed


def test_every_other_kind_comes_back(vault):
    """Revocation material, identity token, authorization with and without nonce."""
    revoke = vault.seal_revoke_only("rid", 3, 7, "main", (MATERIAL,))
    identity = vault.seal_identity("rid", 3, Secret("access"))
    plain = vault.seal_authorization("digest", REF, 3, VisitSecrets(Secret("verifier")))
    whole = VisitSecrets(Secret("verifier"), Secret("nonce"), {"shop": "a.example"})
    oidc = vault.seal_authorization("digest", REF, 3, whole)

    assert vault.open_revoke_only("rid", 3, 7, "main", revoke) == (MATERIAL,)
    assert vault.open_identity("rid", 3, identity) == Secret("access")
    assert vault.open_authorization("digest", REF, 3, plain) == VisitSecrets(Secret("verifier"))
    assert vault.open_authorization("digest", REF, 3, oidc) == whole


@pytest.mark.rule("S-15", "F-8")
def test_S_15_no_kind_opens_as_another_or_elsewhere(vault):
    """Every pair of places: what was sealed for one opens for none of the others."""
    other = ConnectionRef("acme", "ann", "slack")
    places = {
        "use": (vault.seal_for_use(REF, 3, 7, PAIR), lambda it: vault.open_for_use(REF, 3, 7, "main", it)),
        "other connection": (
            vault.seal_for_use(other, 3, 7, PAIR),
            lambda it: vault.open_for_use(other, 3, 7, "main", it),
        ),
        "older": (vault.seal_for_use(REF, 3, 6, PAIR), lambda it: vault.open_for_use(REF, 3, 6, "main", it)),
        "older life": (vault.seal_for_use(REF, 2, 7, PAIR), lambda it: vault.open_for_use(REF, 2, 7, "main", it)),
        "revoke": (
            vault.seal_revoke_only("rid", 3, 7, "main", (MATERIAL,)),
            lambda it: vault.open_revoke_only("rid", 3, 7, "main", it),
        ),
        "other rid": (
            vault.seal_revoke_only("other", 3, 7, "main", (MATERIAL,)),
            lambda it: vault.open_revoke_only("other", 3, 7, "main", it),
        ),
        "identity": (vault.seal_identity("rid", 3, Secret("a")), lambda it: vault.open_identity("rid", 3, it)),
        "ID token": (
            vault.seal_id_token(REF, 3, "x-1", Secret("i"), None),
            lambda it: vault.open_id_token(REF, 3, "x-1", it),
        ),
        "ID token of another exchange": (
            vault.seal_id_token(REF, 3, "x-2", Secret("i"), None),
            lambda it: vault.open_id_token(REF, 3, "x-2", it),
        ),
        "authorization": (
            vault.seal_authorization("digest", REF, 3, VisitSecrets(Secret("v"))),
            lambda it: vault.open_authorization("digest", REF, 3, it),
        ),
        "delivery": (
            vault.seal_delivery("acme", "d-1", EVENT, b"raw"),
            lambda it: vault.open_delivery("acme", "d-1", it),
        ),
        "delivery of another event": (
            vault.seal_delivery("acme", "d-2", EVENT, b"raw"),
            lambda it: vault.open_delivery("acme", "d-2", it),
        ),
        "other authorization": (
            vault.seal_authorization("digest", other, 3, VisitSecrets(Secret("v"))),
            lambda it: vault.open_authorization("digest", other, 3, it),
        ),
    }

    for (one, (sealed, _)), (two, (_, opened)) in itertools.product(places.items(), repeat=2):
        if one == two:
            opened(sealed)
        else:
            with pytest.raises(SealBrokenError):
                opened(sealed)


def test_after_ready_sealing_needs_no_other_service():
    """Class L: a token in memory is sealed although table and KMS went out in the meantime."""
    store, kms = MemoryRing(), FakeKms()
    vault = RingVault(a_ring(store, kms), StillClock())
    vault.ready("use", "revoke", "index")

    store.is_out = kms.is_out = True

    assert vault.seal_for_use(REF, 1, 0, PAIR)
    assert vault.seal_revoke_only("rid", 1, 0, "main", (MATERIAL,))
    assert vault.seal_identity("rid", 1, Secret("a"))
    assert vault.fingerprint(Secret("a"))
    assert vault.account_digest("google", "1")
    with pytest.raises(StoreError):  # it was not asked for
        vault.confirm_code("x", NOW)


def test_tickets_and_codes_come_from_the_macs(vault):
    """By the connection's names and the exchange's id."""
    assert vault.ticket(REF, 1, NOW) == vault.ticket(REF, 1, NOW)
    assert vault.ticket(REF, 1, NOW) != vault.ticket(REF, 2, NOW)
    assert vault.is_confirm_code(vault.confirm_code("x", NOW), "x", NOW)
    assert not vault.is_confirm_code(Secret("00000-00000"), "x", NOW)


@pytest.mark.rule("M-62")
def test_a_delivery_comes_back_with_the_bytes_that_were_signed(vault):
    """The prepared event, and the provider's body byte for byte, whatever bytes they are."""
    raw = bytes(range(256)) * 1024

    assert vault.open_delivery("acme", "d-1", vault.seal_delivery("acme", "d-1", EVENT, raw)) == (EVENT, raw)
    assert vault.open_delivery("acme", "d-1", vault.seal_delivery("acme", "d-1", EVENT, b"")) == (EVENT, b"")


def test_a_prepared_event_that_is_too_large_is_not_sealed(vault):
    """64 KiB, whatever the bounds of its members would allow together."""
    large = replace(EVENT, fields={f"f{number}": "x" * 30_000 for number in range(3)})

    with pytest.raises(ValueError, match="65536"):
        vault.seal_delivery("acme", "d-1", large, b"")


@pytest.mark.rule("M-62")
@pytest.mark.parametrize(
    "plain", [b"", b"\0\0\0\x09{}", b"\xff" * 9, b"\0\0\0\x02[]", b"\0\0\0\x02{}", b"\0\0\0\x02{{"]
)
def test_whatever_else_was_sealed_as_a_delivery_is_no_delivery(plain):
    """It opens, and is looked at all the same."""
    keys = a_ring()
    vault = RingVault(keys, StillClock())
    sealed = Sealer(keys).seal(plain, Binding("inbox", "", "", "acme#d-1", 0, 0), NOW)

    with pytest.raises(SealBrokenError):
        vault.open_delivery("acme", "d-1", sealed)


@pytest.mark.rule("M-63")
def test_a_trace_is_of_one_client_account_and_event(vault):
    """Equal ids of two accounts, clients or kinds never meet; an absent account is no account's name."""
    asked = [
        ("acme", "u-1", "id", "e-1"),
        ("acme", "u-2", "id", "e-1"),
        ("acme", None, "id", "e-1"),
        ("acme", "", "id", "e-1"),
        ("acme", "-", "id", "e-1"),
        ("other", "u-1", "id", "e-1"),
        ("acme", "u-1", "body", "e-1"),
        ("acme", "u-1", "id", "e-2"),
    ]

    assert len({vault.trace_digest(*each) for each in asked}) == len(asked)
    assert vault.trace_digest(*asked[0]) == vault.trace_digest(*asked[0])
