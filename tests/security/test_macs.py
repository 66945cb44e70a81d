"""Keyed digests, tickets and confirm codes."""

import re

import pytest

from quitclaim.domain.secret import Secret
from quitclaim.security.macs import ALPHABET, Macs
from tests.security.rings import NOW, FakeKms, MemoryRing, a_ring, an_item


@pytest.fixture
def macs() -> Macs:
    return Macs(a_ring())


def test_fingerprints_tell_tokens_apart(macs):
    """Equal for equal tokens, different otherwise, and without the token in them."""
    assert macs.fingerprint(Secret("token-a")) == macs.fingerprint(Secret("token-a"))
    assert macs.fingerprint(Secret("token-a")) != macs.fingerprint(Secret("token-b"))
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", macs.fingerprint(Secret("token-a")))
    assert macs.fingerprint(Secret("\ud800"))


def test_another_stack_makes_other_fingerprints():
    """Without the index key a fingerprint says nothing."""
    other = MemoryRing()
    other.add(an_item("1", 2, active_from=0, purpose="index"))

    assert Macs(a_ring()).fingerprint(Secret("t")) != Macs(a_ring(other)).fingerprint(Secret("t"))


def test_uses_do_not_meet(macs):
    """The same words as token, account and trace have three digests."""
    digests = {macs.fingerprint(Secret("x")), macs.account_digest("x", ""), macs.account_digest("", "x")}
    digests |= {macs.trace("x", None, "", ""), macs.trace("", None, "x", "")}

    assert len(digests) == 5


def test_client_and_account_do_not_run_into_each_other(macs):
    """An account of one client never spells another client's."""
    assert macs.account_digest("ab", "c") != macs.account_digest("a", "bc")
    assert macs.account_digest("google", "1") != macs.account_digest("google-2", "1")


def test_the_index_key_is_the_first_one_for_ever():
    """Digests are parts of table keys: a further index key in the ring, put there by mistake, changes none."""
    store, kms = MemoryRing(), FakeKms()
    before = Macs(a_ring(store, kms)).fingerprint(Secret("t"))
    store.add(an_item("2", 2, active_from=10, purpose="index"))
    store.retire("index", "1", 20)

    assert Macs(a_ring(store, kms)).fingerprint(Secret("t")) == before


def test_a_ticket_is_derived_again():
    """The same start has the same ticket in every instance, also after the key was rotated; nothing is stored."""
    store, kms = MemoryRing(), FakeKms()
    start = ("acme", "ann", "google", 3, NOW)
    ticket = Macs(a_ring(store, kms)).ticket(*start)
    store.add(an_item("2", 2, active_from=NOW + 1, purpose="confirm"))

    assert Macs(a_ring(store, kms)).ticket(*start) == ticket
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", ticket.reveal())


@pytest.mark.parametrize(
    "other",
    [
        ("acm", "eann", "google", 3, NOW),
        ("acme", "bob", "google", 3, NOW),
        ("acme", "ann", "slack", 3, NOW),
        ("acme", "ann", "google", 4, NOW),
        ("acme", "ann", "google", 3, NOW + 1),
    ],
)
def test_every_start_has_its_own_ticket(macs, other):
    """Tenant, owner, connection, generation and instant all count."""
    assert macs.ticket(*other) != macs.ticket("acme", "ann", "google", 3, NOW)


def test_a_confirm_code_can_be_read_aloud(macs):
    """Two groups of five, upper case, without I, L, O and U."""
    codes = {macs.confirm_code(f"exchange-{number}", NOW).reveal() for number in range(500)}

    assert len(codes) == 500
    assert all(re.fullmatch(rf"[{ALPHABET}]{{5}}-[{ALPHABET}]{{5}}", code) for code in codes)
    assert set("".join(codes)) - {"-"} == set(ALPHABET)
    assert not set("ILOU") & set(ALPHABET)


@pytest.mark.parametrize(
    "written",
    [
        lambda code: code,
        lambda code: code.lower(),
        lambda code: code.replace("-", ""),
        lambda code: f"  {code[:5]} {code[6:]}\n",
        lambda code: code.replace("-", "\u2013"),
        lambda code: code.replace("0", "o").replace("1", "l"),
        lambda code: code.replace("0", "O").replace("1", "I"),
        lambda code: "-".join(code.replace("-", "")),
    ],
)
def test_a_code_is_taken_as_people_write_it(macs, written):
    """Case, spaces, dashes and look-alikes do not matter."""
    for number in range(20):
        code = macs.confirm_code(f"x{number}", NOW).reveal()
        assert macs.verify_confirm_code(Secret(written(code)), f"x{number}", NOW)


@pytest.mark.parametrize("wrong", ["00000-00000", "0", "é", "\ud800", "AAAAA-AAAAAA", "ÀÀÀÀÀ", "-"])
def test_a_wrong_code_is_refused(macs, wrong):
    """Whatever is sent, nothing is raised and nothing passes."""
    assert not macs.verify_confirm_code(Secret(wrong), "x", NOW)


def test_a_code_is_of_its_exchange_and_instant(macs):
    """Neither another exchange's nor another instant's code passes."""
    code = macs.confirm_code("x", NOW)

    assert not macs.verify_confirm_code(code, "y", NOW)
    assert not macs.verify_confirm_code(code, "x", NOW + 1)
