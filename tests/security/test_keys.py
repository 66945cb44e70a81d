"""The key ring: who makes the first key, which key is current, which is found again, and what an outage does."""

import threading

import pytest

from quitclaim.domain.errors import KeyUnavailableError, StoreError
from quitclaim.domain.keyring import RingItem
from quitclaim.security.keys import FRESH_MS, LEAD_MS, READY_MS, KeyRing, PurposeNotGrantedError
from tests.security.rings import ARN, NOW, FakeKms, MemoryRing, a_ring, an_item


def test_whoever_needs_it_first_makes_the_first_key():
    """An empty ring gets a key that is active at once."""
    store = MemoryRing()

    kid, key = a_ring(store).current("use", NOW)

    assert (kid, len(key)) == ("1", 32)
    assert store.items["use", "1"] == RingItem("use", "1", b"1:use", NOW, NOW)


def test_of_two_that_make_the_first_key_one_wins():
    """The loser of the put uses the winner's key: there is never a second first key."""
    store, kms = MemoryRing(), FakeKms()
    winner, loser = a_ring(store, kms), a_ring(store, kms)

    class Raced(MemoryRing):
        def add(self, item: RingItem) -> bool:
            self.items = store.items
            winner.current("use", NOW - 5)
            return super().add(item)

    raced = Raced()
    loser = KeyRing(raced, kms, ARN, {"use"})

    assert loser.current("use", NOW - 9000) == winner.current("use", NOW)
    assert len(store.items) == 1


@pytest.mark.rule("S-17")
def test_a_purpose_that_was_not_granted_is_a_mistake_of_ours():
    """Nothing is read or made for it."""
    store = MemoryRing()
    ring = a_ring(store, purposes={"confirm", "index"})

    for asked in (
        lambda: ring.current("use", NOW),
        lambda: ring.get("use", "1"),
        lambda: ring.key_active_at("use", NOW),
        lambda: ring.ready("use", NOW),
    ):
        with pytest.raises(PurposeNotGrantedError):
            asked()
    assert (store.reads, store.items) == (0, {})


def test_a_purpose_that_does_not_exist_is_refused():
    """A misspelt purpose does not become a purpose."""
    with pytest.raises(ValueError, match="revok"):
        a_ring(purposes={"revok"})


def test_a_key_is_opened_once_per_instance():
    """KMS and the table are asked once, however often the key serves."""
    store, kms = MemoryRing(), FakeKms()
    a_ring(store, kms).current("use", NOW)
    store.reads, kms.calls = 0, []
    ring = a_ring(store, kms)

    for _ in range(50):
        ring.current("use", NOW)
        ring.get("use", "1")
        ring.key_active_at("use", NOW)

    assert (store.reads, kms.calls) == (1, ["decrypt"])


@pytest.mark.rule("F-9")
@pytest.mark.parametrize(("now", "kid"), [(99, "1"), (100, "1"), (199, "1"), (200, "2"), (201, "2"), (300, "3")])
def test_the_newest_active_key_is_current(now, kid):
    """A key serves from its own instant; before all of them, the first."""
    store = MemoryRing()
    for number, active_from in ((1, 100), (2, 200), (3, 300)):
        store.add(an_item(str(number), number, active_from=active_from))

    assert a_ring(store).current("use", now)[0] == kid


@pytest.mark.rule("F-9")
def test_a_retired_key_no_longer_seals_and_still_opens():
    """The next older one seals; if all are retired, sealing goes on rather than stop."""
    store = MemoryRing()
    store.add(an_item("1", 1, active_from=100))
    store.add(an_item("2", 2, active_from=200, retired=250))

    assert a_ring(store).current("use", 300)[0] == "1"
    assert a_ring(store).get("use", "2")

    store.retire("use", "1", 300)
    assert a_ring(store).current("use", 300)[0] == "2"


def test_an_unknown_kid_is_looked_for_once_more():
    """A key that was added since the ring was read is found; one that is nowhere is unavailable, not broken."""
    store, kms = MemoryRing(), FakeKms()
    ring = a_ring(store, kms)
    ring.current("use", NOW)
    store.add(an_item("2", 2, active_from=NOW + LEAD_MS))

    assert ring.get("use", "2")

    reads = store.reads
    with pytest.raises(KeyUnavailableError, match="'9'"):
        ring.get("use", "9")
    assert store.reads == reads + 1


def test_a_key_is_found_again_by_its_time():
    """What was current at an instant is found later, in another instance, after rotation and retirement."""
    store, kms = MemoryRing(), FakeKms()
    then = a_ring(store, kms).key_active_at("confirm", NOW)
    store.add(an_item("2", 2, active_from=NOW + 1, purpose="confirm"))
    store.retire("confirm", "1", NOW + 2)

    later = a_ring(store, kms)

    assert later.key_active_at("confirm", NOW) == then
    assert later.key_active_at("confirm", NOW + 1) != then
    assert later.key_active_at("confirm", NOW - 10**9) == then


def test_no_instance_misses_a_key_that_became_active():
    """
    A key is added LEAD_MS before it is active. However old an instance's list is, it has read the ring since then
    whenever an instant is asked for at which the new key counts.
    """
    store, kms = MemoryRing(), FakeKms()
    instance = a_ring(store, kms)
    instance.current("confirm", NOW)
    store.add(an_item("2", 2, active_from=NOW + 1 + LEAD_MS, purpose="confirm"))

    for instant in range(NOW, NOW + 3 * LEAD_MS, FRESH_MS // 7):
        fresh = a_ring(store, kms)
        assert instance.key_active_at("confirm", instant) == fresh.key_active_at("confirm", instant)
        assert instance.current("confirm", instant) == fresh.current("confirm", instant)


def test_an_outage_of_the_table_is_bridged_while_the_list_is_complete():
    """For as long as no unknown key can be active, a known list serves; after that the table's error rises."""
    store = MemoryRing()
    ring = a_ring(store)
    ring.current("use", NOW)
    store.is_out = True

    assert ring.current("use", NOW + LEAD_MS - 1)[0] == "1"
    with pytest.raises(StoreError):
        ring.current("use", NOW + LEAD_MS)


@pytest.mark.parametrize("age", [0, 1, FRESH_MS - READY_MS, FRESH_MS - 1, FRESH_MS, LEAD_MS])
def test_after_ready_nothing_else_is_needed(age):
    """`ready` opens what the next two minutes need: a key that becomes active in them too."""
    store, kms = MemoryRing(), FakeKms()
    ring = a_ring(store, kms)
    ring.current("use", NOW)
    store.add(an_item("2", 2, active_from=NOW + age + READY_MS))
    now = NOW + age

    if age >= FRESH_MS - READY_MS:
        ring.ready("use", now)
        store.is_out = kms.is_out = True
        assert ring.current("use", now + READY_MS)[0] == "2"
        assert ring.key_active_at("use", now + READY_MS - 1)
    else:
        ring.ready("use", now)
        store.is_out = kms.is_out = True
        assert ring.current("use", now + READY_MS)[0] == "1"  # added against the rule, so not yet known


def test_ready_says_when_it_is_not():
    """With KMS out, nothing is recorded that could not be sealed afterwards."""
    kms = FakeKms()
    kms.is_out = True

    with pytest.raises(KeyUnavailableError):
        a_ring(kms=kms).ready("revoke", NOW)


def test_a_failure_of_kms_is_not_remembered():
    """The next try opens the key."""
    store, kms = MemoryRing(), FakeKms()
    a_ring(store, kms).current("use", NOW)
    ring = a_ring(store, kms)
    kms.is_out = True
    with pytest.raises(KeyUnavailableError):
        ring.current("use", NOW)

    kms.is_out = False

    assert ring.current("use", NOW)[0] == "1"


def test_a_key_of_the_wrong_size_is_refused():
    """A key that is no 256-bit key never seals anything."""

    class Short(FakeKms):
        def decrypt(self, wrapped: bytes, purpose: str) -> bytes:
            return b"short"

    store = MemoryRing()
    store.add(an_item("1", 1, active_from=0))

    with pytest.raises(KeyUnavailableError, match="256-bit"):
        a_ring(store, Short()).current("use", NOW)


def test_threads_share_one_opening():
    """Many threads that need a key at once make one call for it."""
    store, kms = MemoryRing(), FakeKms()
    a_ring(store, kms).current("use", NOW)
    kms.calls = []
    ring = a_ring(store, kms)
    found: set[tuple[str, bytes]] = set()
    threads = [threading.Thread(target=lambda: found.add(ring.current("use", NOW))) for _ in range(16)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 1
    assert kms.calls == ["decrypt"]


def test_a_wrapped_key_is_not_printed():
    """An item of the ring may be logged."""
    assert "1:use" not in repr(an_item("1", 1, active_from=0))
