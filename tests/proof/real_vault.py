"""
The real vault in a simulated world: `RingVault` on a key ring in the world's own table, its data keys wrapped by a KMS
in memory. What it seals only it can open, so the judge is told which tokens went in.
"""

from collections.abc import Sequence
from zlib import crc32

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.revocations import Material
from quitclaim.domain.tokens import TokenPair
from quitclaim.security.keys import PURPOSES, KeyRing, KeyWrapper
from quitclaim.security.vault import RingVault
from quitclaim.store.ring import RingTable
from tests.proof.world import Ports, World
from tests.security.rings import ARN, FakeKms


class ToldVault(RingVault):
    """`RingVault` that tells the world which tokens it sealed, and for which revocation."""

    def __init__(self, ports: Ports, kms: KeyWrapper) -> None:
        ring = RingTable(ports.world.table, ports.clock, ports.ids)
        super().__init__(KeyRing(ring, kms, ARN, PURPOSES), ports.clock)
        self._world = ports.world

    def seal_for_use(self, ref: ConnectionRef, generation: int, token_version: int, pair: TokenPair) -> bytes:
        """As it is, and told."""
        sealed = super().seal_for_use(ref, generation, token_version, pair)
        found = (pair.access_token.reveal(), pair.refresh_token.reveal() if pair.refresh_token else "")
        self._world.contents[sealed] = frozenset(token for token in found if token.startswith("rt-"))
        return sealed

    def seal_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, material: Sequence[Material]
    ) -> bytes:
        """As it is, and told."""
        sealed = super().seal_revoke_only(rid, generation, token_version, pair, material)
        tokens = frozenset(each.token.reveal() for each in material if each.token.reveal().startswith("rt-"))
        self._world.contents[sealed] = tokens
        self._world.seen.sealed_in.setdefault(rid, set()).update(tokens)
        return sealed


class TimedKeys:
    """`KeyMaker` for the KMS in memory: the same key for a purpose and instant, so that a run can be repeated."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wrapped_data_key(self, purpose: str) -> bytes:
        """One that the KMS in memory opens."""
        return f"{crc32(f'{purpose}/{self._world.now}'.encode())}:{purpose}".encode()


def use_real_vault(world: World, kms: KeyWrapper | None = None) -> None:
    """From now on each process of the world has a key ring of its own, as a function instance has, and all one KMS."""
    wrapper = kms or FakeKms()
    world.vault_of = lambda ports: ToldVault(ports, wrapper)
    world.keys = TimedKeys(world)
    world.is_repeatable = False
