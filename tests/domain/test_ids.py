"""Ids: one spelling, which needs no escaping anywhere, and nothing else."""

import hashlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quitclaim.domain.errors import InvalidIdError
from quitclaim.domain.ids import ConnectionRef, OwnerRef, checked_id, digest
from quitclaim.store.keys import connection_key, ref_of_key

LETTERS = string.ascii_letters + string.digits + "._-"

GOOD = [
    "a",
    "0",
    "-",
    "_",
    "...",
    ".a",
    "a.",
    "..a",
    "google",
    "user-1.of_ACME",
    "~YQ",
    "x" * 128,
    "~" + "x" * 127,
    LETTERS,
]

HOSTILE = [
    "",
    ".",
    "..",
    "~",  # nothing encoded
    "~~a",
    "a~b",
    "x" * 129,
    "~" + "x" * 128,
    "a#b",
    "#",
    "a/b",
    "../a",
    "a\\b",
    "a%2Fb",
    "%2F",
    "%2e%2e",
    "%00",
    "a b",
    " a",
    "a ",
    "a\n",
    "\na",
    "a\r\n",
    "a\r\nSet-Cookie: x=1",
    "a\tb",
    "a\x00b",
    "a\x7fb",
    "a:b",
    "a*b",
    "a?b",
    "a&b",
    "a=b",
    "a+b",
    "a,b",
    "a;b",
    "a@b",
    "a|b",
    "a'b",
    'a"b',
    "a$b",
    "${a}",
    "{{a}}",
    "<a>",
    "(a)",
    "[a]",
    "\xe4",
    "na\xefve",
    "\u0430dmin",  # a Cyrillic a
    "\uff11",  # a full-width digit
    "\u0663",  # an Arabic digit
    "a\u200b",
    "a\u202eb",
    "\ufeffa",
    "\u212a",  # the Kelvin sign, which lowers to k
    "\u017f",  # a long s, which uppers to S
    "a\u0301",
    "\U0001f600",
    "\ud800",
]


@pytest.mark.parametrize("text", GOOD)
def test_an_id_of_ours_passes_as_it_is(text):
    """Nothing is trimmed, folded or decoded."""
    assert checked_id(text, "owner") == text


@pytest.mark.rule("F-1", "S-30")
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_an_id_out_of_pattern_is_refused(text):
    """It is named by what it should have been, and not repeated."""
    with pytest.raises(InvalidIdError) as refused:
        checked_id(text, "owner")

    assert refused.value.details == {"field": "owner"}
    assert str(refused.value) == "owner must match [A-Za-z0-9._-]{1,128}"


@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"a", ["a"], {"a": 1}, ("a",)], ids=repr)
def test_what_is_no_text_is_no_id(value):
    """JSON may bring anything."""
    with pytest.raises(InvalidIdError):
        checked_id(value, "connection_id")


@pytest.mark.rule("F-1", "S-30")
@given(st.text(max_size=140))
def test_whatever_passes_fits_into_a_key(text):
    """For any text: it is refused, or every character of it is one that neither keys, paths nor policies read."""
    try:
        checked_id(text, "owner")
    except InvalidIdError:
        return

    assert 1 <= len(text) <= 128
    assert text not in (".", "..")
    assert set(text.removeprefix("~")) <= set(LETTERS)
    assert text.removeprefix("~")


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (("a#", "o", "c"), "tenant"),
        (("t", "a/b", "c"), "owner"),
        (("t", "o", ".."), "connection_id"),
        (("t", "o", None), "connection_id"),
    ],
)
def test_a_reference_names_the_part_at_fault(parts, field):
    """Tenant, owner and connection are each looked at."""
    with pytest.raises(InvalidIdError) as refused:
        ConnectionRef.checked(*parts)

    assert refused.value.details == {"field": field}


def test_a_reference_of_good_parts():
    """As it came, and its owner alone."""
    ref = ConnectionRef.checked("t", "o", "c")

    assert ref == ConnectionRef("t", "o", "c")
    assert ref.of_owner == OwnerRef.checked("t", "o") == OwnerRef("t", "o")


@pytest.mark.rule("D-21", "U-14")
@given(*[st.text(LETTERS, min_size=1, max_size=128).filter(lambda text: text not in (".", ".."))] * 3)
def test_a_reference_is_read_back_from_its_key(tenant, owner, connection):
    """Ids hold no separator, so nobody's key is somebody else's."""
    ref = ConnectionRef.checked(tenant, owner, connection)

    assert ref_of_key(connection_key(ref)) == ref


def test_a_digest_is_sha_256_in_hex():
    """Of the text's UTF-8."""
    assert digest("ä") == hashlib.sha256(b"\xc3\xa4").hexdigest()
