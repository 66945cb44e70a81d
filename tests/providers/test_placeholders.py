"""What may stand between braces in an address, and that nothing else ever does (S-8)."""

import pytest

from quitclaim.providers import oauth2
from quitclaim.providers.placeholders import (
    Placeholder,
    PlaceholderRefusedError,
    at_start,
    fill,
    in_answer,
    in_callback,
    of_client,
)
from quitclaim.providers.spec import Catalogue

SHOP = Placeholder("shop", "start", "shop", False, r"[a-z0-9][a-z0-9-]{0,59}\.myshopify\.com", (), None, "shop")
REGION = Placeholder(
    "region", "callback", "accounts-server", True, None, ("accounts.zoho.com", "accounts.zoho.eu"), None, None
)
USER = Placeholder("user", "token_response", "x_user_id", False, "[0-9]{1,20}", (), None, None)
TENANT = Placeholder("tenant", "client", "tenant", False, "[a-z0-9-]{1,40}", (), "common", None)

HOSTILE = [
    "",
    " ",
    ".",
    "..",
    "/",
    "//evil.example.com",
    "evil.example.com",
    "evil.example.com/.myshopify.com",
    "evil.example.com#.myshopify.com",
    "evil.example.com?.myshopify.com",
    "evil.example.com\\.myshopify.com",
    "evil.example.com%2f.myshopify.com",
    "evil.example.com%23.myshopify.com",
    "shop.myshopify.com.evil.example.com",
    "shop.myshopify.com@evil.example.com",
    "evil.example.com@shop.myshopify.com",
    "user:pass@shop.myshopify.com",
    "shop.myshopify.com:8080",
    "shop.myshopify.com/admin",
    "shop.myshopify.com/../../x",
    "shop.myshopify.com?x=y",
    "shop.myshopify.com#x",
    "shop.myshopify.com.",
    ".myshopify.com",
    "-shop.myshopify.com",
    "shop.myshopify.comx",
    "xmyshopify.com",
    "shop.myshopify,com",
    "SHOP.myshopify.com",
    "shop.MYSHOPIFY.com",
    "sh\u00f6p.myshopify.com",
    "\u0455hop.myshopify.com",
    "shop\u3002myshopify\u3002com",
    "shop\uff0emyshopify\uff0ecom",
    "shop.myshopify.com\n",
    "\nshop.myshopify.com",
    "shop.myshopify.com\x00",
    "shop.myshopify.com\r\nHost: evil.example.com",
    "shop .myshopify.com",
    "shop\t.myshopify.com",
    "127.0.0.1",
    "169.254.169.254",
    "[::1]",
    "localhost",
    "metadata.google.internal",
    "0x7f000001",
    "http://shop.myshopify.com",
    "https://shop.myshopify.com",
    "{shop}.myshopify.com",
    "shop.myshopify.com{token}",
    "a" * 61 + ".myshopify.com",
    "a" * 5_000,
    "shop_x.myshopify.com",
    "*.myshopify.com",
    "javascript:alert(1)",
]


@pytest.mark.rule("S-8")
@pytest.mark.parametrize("value", HOSTILE)
def test_S_8_a_hostile_value_is_refused_wherever_it_comes_from(value):
    """By the start, by the callback before anything is consumed, by an answer before it is stored, and at use."""
    known = {"shop": value}

    with pytest.raises(PlaceholderRefusedError):
        at_start((SHOP,), {"shop": value})
    with pytest.raises(PlaceholderRefusedError):
        in_callback((REGION,), {}, {"accounts-server": [value]})
    with pytest.raises(PlaceholderRefusedError):
        in_callback((REGION,), {}, {"accounts-server": [f"https://{value}"]})
    with pytest.raises(PlaceholderRefusedError):
        in_answer((USER,), {"user": value})
    if not value.replace("-", "").isalnum() or len(value) > 40:  # a tenant is a segment of a path, never a host
        with pytest.raises(PlaceholderRefusedError):
            of_client((TENANT,), {"tenant": value})
    with pytest.raises(PlaceholderRefusedError):
        fill("https://{shop}/admin", (SHOP,), known, {}, encode=True)


@pytest.mark.rule("S-8")
@pytest.mark.parametrize("value", [None, 0, True, 1.5, [], {}, ["accounts.zoho.eu"], b"accounts.zoho.eu"])
def test_S_8_what_is_no_text_is_no_value(value):
    """A number of an answer is read as its digits; a truth value, a list or an object never."""
    with pytest.raises(PlaceholderRefusedError):
        REGION.read(value)
    assert USER.read(731) == "731"


@pytest.mark.rule("S-8")
def test_S_8_an_error_names_the_placeholder_and_not_the_value():
    """It may be logged."""
    for call in (
        lambda: at_start((SHOP,), {"shop": "canary/evil"}),
        lambda: in_callback((REGION,), {}, {"accounts-server": ["https://canary.evil"]}),
        lambda: in_answer((USER,), {"user": "canary"}),
    ):
        with pytest.raises(PlaceholderRefusedError) as error:
            call()
        assert "canary" not in str(error.value)


def test_what_is_allowed_is_filled():
    """Values of each source, an origin without its scheme, defaults where nothing is said."""
    assert at_start((SHOP,), {"shop": "ann.myshopify.com"}) == {"shop": "ann.myshopify.com"}
    assert in_callback((REGION,), {}, {"accounts-server": ["https://accounts.zoho.eu/"]}) == {
        "region": "accounts.zoho.eu"
    }
    assert in_answer((USER,), {"user": 731}) == {"user": "731"}
    assert of_client((TENANT,), {}) == {"tenant": "common"}
    assert fill("https://{shop}/a/{token}", (SHOP,), {"shop": "a.myshopify.com"}, {"token": "a/b?c"}, encode=True) == (
        "https://a.myshopify.com/a/a%2Fb%3Fc"
    )


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(
    "query", [{}, {"shop": []}, {"shop": ["other.myshopify.com"]}, {"shop": ["ann.myshopify.com"] * 2}, {"shop": [""]}]
)
def test_S_8_a_callback_that_speaks_of_another_shop_is_refused(query):
    """What the start named must come back once, and the same."""
    with pytest.raises(PlaceholderRefusedError):
        in_callback((SHOP,), {"shop": "ann.myshopify.com"}, query)


@pytest.mark.parametrize("query", [{}, {"accounts-server": ["https://accounts.zoho.eu"] * 2}])
def test_a_value_of_the_callback_stands_there_once(query):
    """Not missing where there is no default, and not twice."""
    with pytest.raises(PlaceholderRefusedError):
        in_callback((REGION,), {}, query)


def test_a_parameter_that_no_entry_asks_for_is_refused():
    """A misspelt one is noticed at the start, not at the provider."""
    with pytest.raises(PlaceholderRefusedError, match="no parameter of this provider"):
        at_start((SHOP,), {"shop": "ann.myshopify.com", "shpo": "x"})


@pytest.mark.rule("S-8")
@pytest.mark.parametrize("provider", Catalogue().ids())
@pytest.mark.parametrize(
    "value", ["evil.example.com", "a/b", "a@b", "a?b", "a#b", "a\\b", "127.0.0.1", "a b", "%2e", ".."]
)
def test_S_8_no_shipped_placeholder_takes_a_hostile_value(provider, value):
    """Whatever its pattern."""
    for each in Catalogue().get(provider).placeholders:
        assert not each.accepts(value), each.name
        with pytest.raises(PlaceholderRefusedError):
            oauth2.fill(
                f"https://{{{each.name}}}/", Catalogue().get(provider).placeholders, {each.name: value}, {}, encode=True
            )
