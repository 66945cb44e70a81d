"""
Canaries: every secret of a run is one, and whatever leaves the run is looked through for it, raw, in base64 and hex, as
it stands in a URL, and for any twelve characters of each.
"""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from tests.proof.world import World

PIECE: Final = 12


class Canaries:
    """The secrets of a world, and the pieces by which they are known."""

    def __init__(self) -> None:
        self.pieces: dict[str, str] = {}
        self._clean: set[str] = set()

    def of_world(self, world: World) -> None:
        """From now on all that is secret in this world is a canary of its own."""
        world.secret_of = self.secret_of
        world.ledger.name_of = self.token_of

    def secret_of(self, name: str) -> str:
        """A secret: what it is for, which is none, and 43 characters nobody else has."""
        return f"{name}/{self.add(name)}"

    def token_of(self, number: int) -> str:
        """A token of the provider's; the ledger knows it by its beginning."""
        return f"rt-{self.add(f'token {number}')}"

    def add(self, name: str) -> str:
        """A canary by this name."""
        canary = base64.urlsafe_b64encode(_chance(name)).rstrip(b"=").decode().replace("-", "Q").replace("_", "q")
        self.watch(canary.encode(), name)
        return canary

    def watch(self, secret: bytes, name: str) -> None:
        """Look for *secret* from now on."""
        for spelling in spellings(secret):
            for start in range(len(spelling) - PIECE + 1):
                self.pieces[spelling[start : start + PIECE]] = name

    def found_in(self, output: Any, where: str) -> list[str]:
        """The canaries that are in it."""
        text = output if isinstance(output, str) else output.decode("latin-1")
        if text in self._clean:
            return []
        found = {
            self.pieces[text[start : start + PIECE]]
            for start in range(len(text) - PIECE + 1)
            if text[start : start + PIECE] in self.pieces
        }
        if not found:
            self._clean.add(text)
        return [f"I-17: {name} is in {where}" for name in sorted(found)]


class CanaryKms:
    """`KeyWrapper` whose data keys are canaries."""

    def __init__(self, canaries: Canaries) -> None:
        self._canaries = canaries
        self._count = 0

    def generate_data_key(self, purpose: str) -> tuple[bytes, bytes]:
        """A fresh one."""
        self._count += 1
        wrapped = f"{self._count}:{purpose}".encode()
        return self.decrypt(wrapped, purpose), wrapped

    def decrypt(self, wrapped: bytes, purpose: str) -> bytes:
        """The one that *wrapped* names."""
        del purpose
        name = f"data key {wrapped.decode()}"
        key = _chance(name)
        self._canaries.watch(key, name)
        return key


def _chance(name: str) -> bytes:
    return hashlib.sha256(f"canary {name}".encode()).digest()


def spellings(secret: bytes) -> Iterator[str]:
    """Every way in which it may be written down."""
    yield secret.decode("latin-1")
    yield quote(secret, safe="")
    yield secret.hex()
    yield secret.hex().upper()
    for lead in range(3):  # where it stands inside something longer
        whole = base64.b64encode(b"?" * lead + secret).decode()
        inner = whole[4 if lead else 0 : len(whole) - len(whole) % 4 - 4]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def texts_of(value: Any) -> Iterator[str | bytes]:
    """Every text and all bytes in something stored."""
    if isinstance(value, str | bytes):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from texts_of(member)
    elif isinstance(value, list | tuple | frozenset):
        for member in value:
            yield from texts_of(member)
