"""What a value is stored as, and that it comes back as it was; keys that never meet."""

import itertools
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import Authorization, Barrier, Connection, Exchange, Owner, Ticket
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.keyring import RingItem
from quitclaim.domain.revocations import Revocation, SealedMaterial
from quitclaim.domain.stop import StopIntent
from quitclaim.domain.tokens import Grant
from quitclaim.ports import Item, Key
from quitclaim.store import keys
from quitclaim.store.items import attributes, back_reference, value_of
from quitclaim.store.table import _item, _wire

IDS = some.text(string.ascii_letters + string.digits + "._-~", min_size=1, max_size=12)
TIMES = some.integers(0, 10**15)
REFS = some.builds(ConnectionRef, IDS, IDS, IDS)
SETS = some.frozensets(IDS, max_size=3)
some.register_type_strategy(ConnectionRef, REFS)
some.register_type_strategy(str, IDS)
some.register_type_strategy(int, TIMES)
some.register_type_strategy(SealedMaterial, some.builds(SealedMaterial, some.binary(min_size=1), IDS, IDS, TIMES))

BY_KEY: dict[type[Any], frozenset[str]] = {
    Exchange: frozenset({"id"}),
    Revocation: frozenset({"rid"}),
    StopIntent: frozenset({"generation"}),
    Grant: frozenset({"pair"}),
    RingItem: frozenset({"purpose", "kid"}),
}
STORED = [
    Owner,
    Barrier,
    Connection,
    Exchange,
    Ticket,
    Authorization,
    Account,
    Grant,
    Revocation,
    StopIntent,
    RingItem,
]


def through_the_table(item: Item) -> Item:
    """The item in DynamoDB's own spelling and back."""
    return _item({name: _wire(value) for name, value in item.items()})


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.__name__)
@given(data=some.data())
def test_a_value_comes_back_as_it_was_stored(kind: type[Any], data: some.DataObject) -> None:
    """Every field survives attributes and wire format; `v` is the item's, the key's fields come from the key."""
    # An optional boolean mark is stored as true or not at all.
    marks = {
        name: some.sampled_from([None, True]) for name in ("lost", "listed", "stray") if name in kind.__annotations__
    }
    value = data.draw(some.builds(kind, **marks))
    of_key = {name: getattr(value, name) for name in BY_KEY.get(kind, ())}
    ref = getattr(value, "ref", None)

    item = attributes(value, without=BY_KEY.get(kind, frozenset()))
    back = value_of(
        kind, through_the_table(item) | {"v": getattr(value, "v", 0)} | (back_reference(ref) if ref else {}), **of_key
    )

    assert back == value


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.__name__)
@given(data=some.data())
def test_nothing_empty_is_stored(kind: type[Any], data: some.DataObject) -> None:
    """None and an empty set or list are absent attributes: "empty" is `attribute_not_exists`, nothing compares sets."""
    value = data.draw(some.builds(kind))

    item = attributes(value)

    assert None not in item.values()
    assert all(each for each in item.values() if isinstance(each, frozenset | list))
    assert {"PK", "SK", "ref", "v", "op"}.isdisjoint(item)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_prefixes_are_unique_as_pairs() -> None:
    """No two kinds of items share partition and sort prefix, nor does one's prefix begin with another's."""
    for (kind, (partition, sort)), (other, (other_partition, other_sort)) in itertools.combinations(
        keys.PREFIXES.items(), 2
    ):
        assert (partition, sort) != (other_partition, other_sort), (kind, other)
        if partition == other_partition and sort.endswith("#") and other_sort.endswith("#"):
            assert not sort.startswith(other_sort), (kind, other)
            assert not other_sort.startswith(sort), (kind, other)


REF = ConnectionRef("tenant", "owner", "connection")
MADE: dict[str, Key] = {
    "owner": keys.owner_key(OwnerRef("tenant", "owner")),
    "barrier": keys.barrier_key(OwnerRef("tenant", "owner"), "client"),
    "connection": keys.connection_key(REF),
    "grant": keys.grant_key(REF, "main"),
    "exchange": keys.exchange_key(REF, "x"),
    "intent": keys.intent_key(REF, 3),
    "event": keys.event_key(Event(EventKind.CONNECTION_READY, REF, "x", 5)),
    "family marker": keys.family_marker_key(REF, "r"),
    "ticket": keys.ticket_key("digest"),
    "authorization": keys.authorization_key("digest"),
    "revocation": keys.revocation_key("r"),
    "account": keys.account_key("client", "digest"),
    "member": keys.member_key("client", "digest", REF),
    "marker": keys.marker_key("client", "digest", "r"),
    "idempotency": keys.idempotency_key("tenant", "digest"),
    "receipt": keys.receipt_key(OwnerRef("tenant", "owner"), 5, "x"),
    "ring": Key(keys.ring_partition(), "purpose#1"),
    "heartbeat": keys.heartbeat_key("sweep"),
}


def test_every_key_has_the_prefixes_of_its_kind() -> None:
    """The functions that make keys and the table of prefixes say the same, and no two kinds ever make one key."""
    for kind, key in MADE.items():
        partition, sort = keys.PREFIXES[kind]
        assert key.pk.startswith(partition), kind
        assert key.sk.startswith(sort), kind
    assert len(set(MADE.values())) == len(MADE)


@pytest.mark.rule("D-21", "U-14")
@given(left=REFS, right=REFS)
def test_two_connections_never_share_a_key(left: ConnectionRef, right: ConnectionRef) -> None:
    """Ids hold no `#`, so a key tells whose it is, and no two references spell one key."""
    for make in (
        keys.connection_key,
        lambda ref: keys.grant_key(ref, "main"),
        lambda ref: keys.exchange_key(ref, "x"),
        lambda ref: keys.member_key("client", "digest", ref),
    ):
        assert (make(left) == make(right)) == (left == right)
    assert keys.ref_of_key(keys.grant_key(left, "main")) == left


@given(first=TIMES, second=TIMES, id_=IDS)
def test_what_is_due_sorts_by_time(first: int, second: int, id_: str) -> None:
    """Sort values of the index compare as their times do, and everything of an instant is due at it."""
    first, second = first % 10**13, second % 10**13
    one, other = keys.due("kind", first, id_)["d2"], keys.due("kind", second, id_)["d2"]

    assert (one < other) == (first < second)
    assert one <= keys.due_upto(first)
    assert first == 0 or one > keys.due_upto(first - 1)
