"""The envelope: known answers, an independent opener, every binding, every byte, uniqueness, commitment."""

import hashlib
import hmac
from dataclasses import fields, replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quitclaim.domain.errors import KeyUnavailableError, SealBrokenError
from quitclaim.security.sealing import Binding, Sealer, length_prefixed
from tests.security.rings import NOW, FakeKms, MemoryRing, a_ring, an_item

BINDING = Binding("use", "acme", "ann", "google", 3, 7, "main")

# Format 1, for ever: what was sealed by an earlier release opens. Key: SHA-256 of "1"; salt: 32 bytes of 0x07.
VECTORS = [
    (
        b"a refresh token",
        BINDING,
        "010131070707070707070707070707070707070707070707070707070707070707070758602f64955d00e10784250b08eeea"
        "8bf2deeefc341960ea396f7ef7d71838372223c3ba592351ced648095d7f9fc2cb1a3e532806eef5c667e318d2e1c771",
    ),
    (
        b"",
        Binding("revoke", "", "", "rid-1", 1, 0, "user"),
        "0101310707070707070707070707070707070707070707070707070707070707070707bed91cc0be36cce39b8f6b4248e5a9"
        "9af33a11fd3dc586810e96be3634655c1d67ba6b62a9c150e83c26827076c77b14",
    ),
]


def lp(*parts):
    """Length-prefixed, written again for the test."""
    out = b""
    for part in parts:
        raw = part.to_bytes(8, "big") if isinstance(part, int) else part.encode() if isinstance(part, str) else part
        out += len(raw).to_bytes(4, "big") + raw
    return out


def independently_derived(data_key: bytes, salt: bytes, head: bytes, purpose: str) -> tuple[bytes, bytes, bytes]:
    """HKDF-SHA256 from its definition (RFC 5869), by hmac alone."""
    pseudo_random = hmac.new(salt, data_key, hashlib.sha256).digest()
    info, block, output = lp(b"quitclaim seal 1", head, purpose), b"", b""
    for counter in range(1, 4):
        block = hmac.new(pseudo_random, block + info + bytes([counter]), hashlib.sha256).digest()
        output += block
    return output[:32], output[32:44], output[44:76]


def independently_opened(sealed: bytes, data_key: bytes, binding: Binding) -> bytes:
    """Opens by the description in `sealing.py`, sharing no code with it."""
    size = sealed[1]
    head, rest = sealed[: 2 + size], sealed[2 + size :]
    salt, commitment, body = rest[:32], rest[32:64], rest[64:]
    key, nonce, expected = independently_derived(data_key, salt, head, binding.purpose)
    assert sealed[0] == 1
    assert commitment == expected
    associated = lp(
        head,
        binding.purpose,
        binding.tenant,
        binding.owner,
        binding.subject,
        binding.generation,
        binding.token_version,
        binding.pair,
    )
    return AESGCM(key).decrypt(nonce, body, associated)


def first_key() -> bytes:
    return hashlib.sha256(b"1").digest()


@pytest.mark.rule("S-16")
@pytest.mark.parametrize(("plaintext", "binding", "expected"), VECTORS)
def test_known_answers(plaintext, binding, expected):
    """Given key and salt, the sealed bytes are these, and they open."""
    sealer = Sealer(a_ring(), random=lambda size: b"\x07" * size)

    sealed = sealer.seal(plaintext, binding, NOW)

    assert sealed.hex() == expected
    assert sealer.open(bytes.fromhex(expected), binding) == plaintext
    assert independently_opened(bytes.fromhex(expected), first_key(), binding) == plaintext


@pytest.mark.rule("S-16")
@pytest.mark.parametrize("plaintext", [b"", b"x", b"\x00" * 16, b"token" * 4000])
def test_an_independent_opener_agrees(plaintext):
    """Code that was written from the description alone opens what we seal."""
    sealed = Sealer(a_ring()).seal(plaintext, BINDING, NOW)

    assert independently_opened(sealed, first_key(), BINDING) == plaintext


OTHER = {
    "purpose": "revoke",
    "tenant": "acm",
    "owner": "bob",
    "subject": "slack",
    "generation": 4,
    "token_version": 6,
    "pair": "user",
}


@pytest.mark.rule("S-15", "F-8", "I-4")
@pytest.mark.parametrize("name", [each.name for each in fields(Binding)])
def test_S_15_bytes_moved_elsewhere_do_not_open(name):
    """Every field of the binding counts: another tenant, owner, id, generation, version, pair or purpose."""
    store, kms = MemoryRing(), FakeKms()
    sealer = Sealer(a_ring(store, kms))
    sealed = sealer.seal(b"token", BINDING, NOW)
    store.add(an_item("1", 1, active_from=NOW, purpose="revoke"))  # the same data key, even

    with pytest.raises(SealBrokenError):
        sealer.open(sealed, replace(BINDING, **{name: OTHER[name]}))


@pytest.mark.rule("S-15")
def test_S_15_parts_do_not_run_into_each_other():
    """Two bindings whose parts spell alike when joined are different bindings."""
    sealer = Sealer(a_ring())
    sealed = sealer.seal(b"token", replace(BINDING, tenant="ab", owner="c"), NOW)

    with pytest.raises(SealBrokenError):
        sealer.open(sealed, replace(BINDING, tenant="a", owner="bc"))


def test_every_changed_byte_is_noticed():
    """Whichever byte is changed, nothing opens. Only a changed format or key name reads as a key that is not there."""
    sealer = Sealer(a_ring())
    sealed = sealer.seal(b"a token", BINDING, NOW)
    refused = {}

    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 0x01
        with pytest.raises((SealBrokenError, KeyUnavailableError)) as error:
            sealer.open(bytes(changed), BINDING)
        refused[place] = error.type

    regions = {"format": 0, "kid": 2, "salt": 3, "commitment": 35, "ciphertext": 67, "tag": len(sealed) - 1}
    assert {name: refused[place] for name, place in regions.items()} == {
        "format": KeyUnavailableError,
        "kid": KeyUnavailableError,
        "salt": SealBrokenError,
        "commitment": SealBrokenError,
        "ciphertext": SealBrokenError,
        "tag": SealBrokenError,
    }
    assert all(refused[place] is SealBrokenError for place in range(3, len(sealed)))


@pytest.mark.parametrize("size", [*range(83), -1])
def test_bytes_cut_short_do_not_open(size):
    """However little is left, it is refused as broken."""
    sealer = Sealer(a_ring())
    sealed = sealer.seal(b"", BINDING, NOW)

    with pytest.raises((SealBrokenError, KeyUnavailableError)):
        sealer.open(sealed[:size], BINDING)


@pytest.mark.rule("S-16")
def test_S_16_no_two_seals_are_alike():
    """The same plaintext for the same place: another salt, commitment and ciphertext each time."""
    sealer = Sealer(a_ring())

    sealed = {sealer.seal(b"token", BINDING, NOW) for _ in range(2000)}

    assert len(sealed) == 2000
    assert len({each[3:35] for each in sealed}) == 2000
    assert len({each[35:67] for each in sealed}) == 2000


@pytest.mark.rule("S-16")
def test_S_16_sealed_bytes_open_under_one_key_only():
    """
    GCM alone would let somebody with two keys make bytes that open under both; the commitment says which one it was.
    """
    store, kms = MemoryRing(), FakeKms()
    store.add(an_item("1", 1, active_from=0))
    sealed = Sealer(a_ring(store, kms)).seal(b"token", BINDING, NOW)
    other_ring = MemoryRing()
    other_ring.add(an_item("1", 2, active_from=0))

    with pytest.raises(SealBrokenError, match="under the key they name"):
        Sealer(a_ring(other_ring, kms)).open(sealed, BINDING)


@pytest.mark.rule("S-16")
def test_S_16_a_forged_commitment_does_not_help():
    """Even with the other key's commitment in place, the tag refuses."""
    store = MemoryRing()
    store.add(an_item("1", 2, active_from=0))
    sealed = Sealer(a_ring()).seal(b"token", BINDING, NOW)
    head, salt = sealed[:3], sealed[3:35]
    _, _, commitment = independently_derived(hashlib.sha256(b"2").digest(), salt, head, "use")

    with pytest.raises(SealBrokenError, match="not what they were"):
        Sealer(a_ring(store)).open(head + salt + commitment + sealed[67:], BINDING)


@pytest.mark.rule("D-5")
def test_D_5_a_missing_key_is_not_a_broken_seal():
    """A kid that the ring does not have, and KMS that is out, are key trouble: the ciphertext is kept."""
    sealed = Sealer(a_ring()).seal(b"token", BINDING, NOW)
    store, kms = MemoryRing(), FakeKms()

    with pytest.raises(KeyUnavailableError, match="no key"):
        Sealer(a_ring(store, kms)).open(sealed, BINDING)

    store.add(an_item("1", 1, active_from=NOW))
    kms.is_out = True
    with pytest.raises(KeyUnavailableError, match="out"):
        Sealer(a_ring(store, kms)).open(sealed, BINDING)

    kms.is_out = False
    assert Sealer(a_ring(store, kms)).open(sealed, BINDING) == b"token"


@pytest.mark.rule("F-9", "RB-12")
def test_RB_12_what_an_older_key_sealed_still_opens():
    """The key id belongs to each sealed value: a newer current key and a retired old one change nothing."""
    store, kms = MemoryRing(), FakeKms()
    sealed = Sealer(a_ring(store, kms)).seal(b"token", BINDING, NOW)
    store.add(an_item("2", 2, active_from=NOW + 1))
    store.retire("use", "1", NOW + 2)

    sealer = Sealer(a_ring(store, kms))

    assert sealer.seal(b"token", BINDING, NOW + 3)[2:3] == b"2"
    assert sealer.open(sealed, BINDING) == b"token"


@pytest.mark.rule("I-17")
def test_errors_hold_no_secret():
    """Neither plaintext nor key stands in a message."""
    sealer = Sealer(a_ring())
    sealed = sealer.seal(b"canary-token", BINDING, NOW)

    with pytest.raises(SealBrokenError) as error:
        sealer.open(sealed[:-1] + b"\x00", BINDING)

    assert "canary" not in str(error.value)
    assert first_key().hex() not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "bc"), ("ab", "c")), (("",), ()), ((b"1",), ("1", "")), ((1,), (256,)), (("a", ""), ("a",))],
)
def test_length_prefixed_lists_differ(one, other):
    """No two lists of parts have one spelling."""
    assert length_prefixed(*one) != length_prefixed(*other)


def test_a_negative_number_is_refused():
    """Generations and versions count from zero."""
    with pytest.raises(OverflowError):
        length_prefixed(-1)
