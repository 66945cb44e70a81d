"""What a start may ask for: scopes within the client's settings, notes under names of the app's own."""

import pytest

from quitclaim.domain.asked import (
    METADATA_MAX,
    METADATA_VALUE_MAX,
    RESERVED,
    asked_scopes,
    checked_metadata,
    is_reserved,
    missing_scopes,
)
from quitclaim.domain.errors import InvalidBodyError, ScopeNotAllowedError

USUAL = frozenset({"read", "write"})
FURTHER = frozenset({"admin"})


# --- metadata --------------------------------------------------------------------------------------------------------


def test_notes_are_kept_as_they_are():
    """None for none, whatever that was written as."""
    assert checked_metadata({"cart": "42", "plan.id": "ü"}) == {"cart": "42", "plan.id": "ü"}
    assert checked_metadata({}) is None
    assert checked_metadata(None) is None


@pytest.mark.rule("M-17")
@pytest.mark.parametrize("spelling", [str, str.upper, lambda name: name.replace("_", "-"), "camel"])
@pytest.mark.parametrize("name", [*sorted(RESERVED), "quitclaim", "quitclaim_x", "qc_exchange", "oauth_state"])
def test_M_17_a_name_that_custody_uses_is_refused(name, spelling):
    """In every spelling: nobody shall take a note of the app for something that custody knows."""
    if spelling == "camel":
        first, *rest = name.split("_")
        spelled = first + "".join(part.capitalize() for part in rest)
    else:
        spelled = spelling(name)

    assert is_reserved(spelled)
    with pytest.raises(InvalidBodyError) as refused:
        checked_metadata({"fine": "x", spelled: "canary"})
    assert refused.value.details["field"] == f"metadata.{spelled}"
    assert "canary" not in refused.value.message


@pytest.mark.parametrize("name", ["cart", "user_ref", "stated", "owners", "my_state", "accounts", "quit"])
def test_a_name_that_only_looks_like_one_is_the_apps(name):
    """Reserved are names, not parts of names."""
    assert not is_reserved(name)


@pytest.mark.parametrize(
    "metadata",
    [
        {"": "x"},
        {"1a": "x"},
        {"a b": "x"},
        {"a" * 65: "x"},
        {"ä": "x"},
        {"a": ""},
        {"a": "x" * (METADATA_VALUE_MAX + 1)},
        {f"n{number}": "x" for number in range(METADATA_MAX + 1)},
    ],
    ids=lambda value: str(value)[:20],
)
def test_notes_out_of_bounds_are_refused(metadata):
    """A name is a word, a text is short, and there are few."""
    with pytest.raises(InvalidBodyError):
        checked_metadata(metadata)


# --- scopes ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-23")
def test_S_23_only_scopes_of_the_settings_can_be_asked_for():
    """Fewer than usual, or further ones that the settings admit; nothing said is the usual."""
    assert asked_scopes(None, USUAL, FURTHER) == USUAL
    assert asked_scopes((), USUAL, FURTHER) == USUAL
    assert asked_scopes({"read"}, USUAL, FURTHER) == {"read"}
    assert asked_scopes({"read", "admin"}, USUAL, FURTHER) == {"read", "admin"}
    with pytest.raises(ScopeNotAllowedError) as refused:
        asked_scopes({"read", "delete"}, USUAL, FURTHER)
    assert refused.value.details == {"field": "scopes"}


MISSING = [
    # (required, granted, missing)
    ({"read"}, {"read"}, set()),
    ({"read", "write"}, {"read"}, {"write"}),
    ({"read"}, {"read", "more"}, set()),
    ({"read"}, set(), {"read"}),
    ({"read"}, None, set()),
    ({"Mail.Read"}, {"mail.read"}, set()),
    ({"https://graph.microsoft.com/Mail.Read"}, {"Mail.Read"}, set()),
    ({"Mail.Read"}, {"https://graph.microsoft.com/Mail.Read"}, set()),
    ({"https://a.example/read"}, {"https://b.example/read"}, {"https://a.example/read"}),
    ({"https://mail.google.com/"}, {"https://mail.google.com"}, set()),
    ({"activity:read_all"}, {"read"}, {"activity:read_all"}),
    ({"openid", "offline_access", "email", "profile"}, set(), set()),
    ({"openid", "files"}, {"openid"}, {"files"}),
]


@pytest.mark.rule("S-23", "RB-55")
@pytest.mark.parametrize(
    ("required", "granted", "missing"), MISSING, ids=lambda named: " ".join(sorted(named or ())) or "none"
)
def test_RB_55_what_was_not_granted_is_missing(required, granted, missing):
    """Names are compared tolerantly, and never so that another resource's scope counts."""
    assert missing_scopes(required, None if granted is None else frozenset(granted)) == missing
