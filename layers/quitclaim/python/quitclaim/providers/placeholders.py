"""
What stands between braces in an address or a header of the catalogue, and what may be put there (S-8).

Each placeholder has one source and a closed list or a pattern that a value must match as a whole. A value from a query
is matched before a state is consumed, one from an answer before it is stored, and every one again when it is used: an
entry may have become narrower since.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal
from urllib.parse import quote

type Source = Literal["start", "callback", "token_response", "account", "client"]
"""Who names the value: the app at the start, the callback's query, the token response, the account's identity, or the
client's own settings."""
type Values = Mapping[str, str]

AT_A_BROKER: Final = frozenset({"reference", "source", "back"})
"""Filled in requests to a broker alone: our name of the account, what is to be linked, where the browser returns to."""
RESERVED: Final = frozenset({"token", "token_kind", "client_id", "client_secret", "account_id"}) | AT_A_BROKER
"""Filled by the request itself; no entry declares them."""
REDIRECT_URI: Final = "redirect_uri"
"""Kept with a grant where its refresh must repeat it; no entry declares it either."""
SECRETS: Final = frozenset({"token", "client_secret"})
NAME: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
LONGEST: Final = 253
"""Of a value: no host name is longer (RFC 1035 section 2.3.4)."""
ORIGIN: Final = "https://"
REDIRECT: Final = re.compile(r"https://[\x21-\x7e]{1,2000}")


class PlaceholderRefusedError(ValueError):
    """A value is missing, stands twice or does not match. Says which placeholder, never the value."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name
        self.why = why


@dataclass(frozen=True)
class Placeholder:
    """One placeholder of an entry."""

    name: str
    source: Source
    parameter: str  # of the start or the query; a path into the token response
    is_origin: bool  # the value comes as https://host, of which the host is meant
    pattern: str | None
    values: tuple[str, ...]
    default: str | None
    echo: str | None  # a callback parameter that must say the same

    @cached_property
    def _matches(self) -> re.Pattern[str]:
        return re.compile(self.pattern or "(?!)", re.ASCII)

    def read(self, value: object) -> str:
        """The value as it is kept. Raises `PlaceholderRefusedError`."""
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if self.is_origin:
            if not text.startswith(ORIGIN):
                raise PlaceholderRefusedError(self.name, "is no https origin")
            text = text.removeprefix(ORIGIN).removesuffix("/")
        if not self.accepts(text):
            raise PlaceholderRefusedError(self.name, "has a value that the catalogue does not allow")
        return text

    def accepts(self, text: str) -> bool:
        """Whether *text* may be put in."""
        if not 0 < len(text) <= LONGEST:
            return False
        return text in self.values or self._matches.fullmatch(text) is not None


type Placeholders = tuple[Placeholder, ...]


def of_client(declared: Placeholders, settings: Values) -> dict[str, str]:
    """What the client's settings fill, with defaults. Raises `PlaceholderRefusedError`."""
    return _read(declared, "client", settings)


def at_start(declared: Placeholders, given: Values) -> dict[str, str]:
    """What the app names when it starts a connection, with defaults. Raises `PlaceholderRefusedError`."""
    known = {each.parameter for each in declared if each.source == "start"}
    for name in sorted(given.keys() - known):
        raise PlaceholderRefusedError(name[:64], "is no parameter of this provider")
    return _read(declared, "start", given)


def in_import(declared: Placeholders, given: Values, *, repeats_redirect: bool) -> dict[str, str]:
    """
    What a start and a callback filled when the app had its grant, by the names they have there, with defaults; and the
    redirect URI, where this provider's refresh repeats that. Raises `PlaceholderRefusedError`.
    """
    named = tuple(each for each in declared if each.source in ("start", "callback"))
    kept = frozenset({REDIRECT_URI} if repeats_redirect else ())
    for name in sorted(given.keys() - {each.parameter for each in named} - kept):
        raise PlaceholderRefusedError(name[:64], "is no parameter of this provider")
    filled = {**_read(named, "start", given), **_read(named, "callback", given)}
    if repeats_redirect and REDIRECT_URI in given:
        if not REDIRECT.fullmatch(given[REDIRECT_URI]):
            raise PlaceholderRefusedError(REDIRECT_URI, "is no https address")
        filled[REDIRECT_URI] = given[REDIRECT_URI]
    return filled


def in_callback(declared: Placeholders, known: Values, query: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """
    What the callback's query fills, every value once; and what it repeats must be what is *known* from the start.

    Judged before the state is consumed, so that a wrong value spends nothing. Raises `PlaceholderRefusedError`.
    """
    filled: dict[str, str] = {}
    for each in declared:
        if each.source == "callback":
            given = query.get(each.parameter, ())
            if not given and each.default is not None:
                filled[each.name] = each.default
                continue
            if len(given) != 1:
                raise PlaceholderRefusedError(each.name, "must stand in the callback once")
            filled[each.name] = each.read(given[0])
        if each.echo is not None:
            echoed = query.get(each.echo, ())
            if len(echoed) != 1 or _plain(each, echoed[0]) != known.get(each.name):
                raise PlaceholderRefusedError(each.name, "is another one in the callback")
    return filled


def in_answer(declared: Placeholders, lookup: Mapping[str, object]) -> dict[str, str]:
    """What a token response fills; *lookup* is what stands at each placeholder's path. Raises as above."""
    filled: dict[str, str] = {}
    for each in declared:
        if each.source != "token_response":
            continue
        value = lookup.get(each.name)
        if value is None and each.default is not None:
            filled[each.name] = each.default
        else:
            filled[each.name] = each.read(value)
    return filled


def fill(template: str, declared: Placeholders, values: Values, reserved: Values, *, encode: bool) -> str:
    """
    *template* with every placeholder filled; *encode* for a URL. Raises `PlaceholderRefusedError` where one has no
    value, or one that the entry does not allow any more.
    """
    if "{" not in template:
        return template
    known = {each.name: each for each in declared}

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name in RESERVED:
            text = reserved.get(name)
            if text is None:
                raise PlaceholderRefusedError(name, "is not at hand")
        else:
            text = values.get(name)
            if text is None or name not in known or not known[name].accepts(text):
                raise PlaceholderRefusedError(name, "has no value that the catalogue allows")
        return quote(text, safe="") if encode else text

    return NAME.sub(value, template)


def names_in(template: str) -> frozenset[str]:
    """The placeholders of a text."""
    return frozenset(NAME.findall(template))


def _plain(placeholder: Placeholder, text: str) -> str | None:
    try:
        return placeholder.read(text)
    except PlaceholderRefusedError:
        return None


def _read(declared: Placeholders, source: Source, given: Values) -> dict[str, str]:
    filled: dict[str, str] = {}
    for each in declared:
        if each.source != source:
            continue
        value = given.get(each.parameter, each.default)
        if value is None:
            raise PlaceholderRefusedError(each.name, f"is needed: give {each.parameter}")
        filled[each.name] = each.read(value) if each.parameter in given else value
    return filled
