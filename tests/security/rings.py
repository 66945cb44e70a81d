"""A key ring in memory and a KMS that can be switched off."""

import hashlib
import itertools
from collections.abc import Collection
from dataclasses import replace

from quitclaim.domain.errors import KeyUnavailableError, StoreError
from quitclaim.domain.keyring import RingItem
from quitclaim.security.keys import PURPOSES, KeyRing

ARN = "arn:aws:kms:eu-west-1:111122223333:key/ring"
NOW = 1_800_000_000_000


class MemoryRing:
    """`RingStore` that counts its reads and can be out."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], RingItem] = {}
        self.reads = 0
        self.is_out = False

    def read(self, purpose: str) -> list[RingItem]:
        if self.is_out:
            raise StoreError()
        self.reads += 1
        return [item for item in self.items.values() if item.purpose == purpose]

    def add(self, item: RingItem) -> bool:
        if (item.purpose, item.kid) in self.items:
            return False
        self.items[item.purpose, item.kid] = item
        return True

    def retire(self, purpose: str, kid: str, at: int) -> None:
        self.items[purpose, kid] = replace(self.items[purpose, kid], retired=at)


class FakeKms:
    """`KeyWrapper` whose n-th key is known: the SHA-256 of its number. Wrapping only names key and purpose."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.calls: list[str] = []
        self.is_out = False

    def generate_data_key(self, purpose: str) -> tuple[bytes, bytes]:
        self._called("generate")
        number = next(self.numbers)
        return _key(number), f"{number}:{purpose}".encode()

    def decrypt(self, wrapped: bytes, purpose: str) -> bytes:
        self._called("decrypt")
        number, _, bound = wrapped.decode().partition(":")
        if bound != purpose:
            raise KeyUnavailableError("wrapped for another purpose")
        return _key(int(number))

    def _called(self, what: str) -> None:
        if self.is_out:
            raise KeyUnavailableError("KMS is out")
        self.calls.append(what)


def _key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def a_ring(
    store: MemoryRing | None = None, kms: FakeKms | None = None, purposes: Collection[str] = PURPOSES
) -> KeyRing:
    """A ring as one more function instance would see it."""
    return KeyRing(store or MemoryRing(), kms or FakeKms(), ARN, purposes)


def an_item(kid: str, number: int, *, active_from: int, purpose: str = "use", retired: int | None = None) -> RingItem:
    """A ring item whose key is the fake KMS's *number*-th."""
    return RingItem(purpose, kid, f"{number}:{purpose}".encode(), active_from, active_from, retired)
