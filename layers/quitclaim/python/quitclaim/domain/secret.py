"""A value that must not be printed: tokens, codes, state values, verifiers, tickets and client secrets."""

import hmac
from typing import Final, Never, final

STARS: Final = "**********"


@final
class Secret:
    """
    A string that prints as stars and is opened on purpose, by `reveal`.

    It is no `str`, so nothing that wants text takes it by accident: f-strings and formats show stars, `json` and
    `pickle` refuse it. Two are compared in constant time; it has no hash, so it never becomes a dictionary key that
    somebody prints.
    """

    __slots__ = ("_text",)
    _text: str

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError("a secret is made of a str")
        if not text:
            raise ValueError("a secret is not empty")
        object.__setattr__(self, "_text", text)

    def __init_subclass__(cls) -> Never:
        raise TypeError("Secret is final")

    def reveal(self) -> str:
        """The text. Every call is a place to look at in a review."""
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes(self._text), _bytes(other.reveal()))

    __hash__ = None  # type: ignore[assignment]  # on purpose: see the class

    def __repr__(self) -> str:
        return f"Secret({STARS})"

    def __str__(self) -> str:
        return STARS

    def __format__(self, spec: str) -> str:
        return STARS

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a secret is not pickled")

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a secret does not change")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError("a secret does not change")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
