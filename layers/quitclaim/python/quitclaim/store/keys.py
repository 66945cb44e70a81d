"""
Keys of the table and its indexes; the only place that spells a prefix.

Prefixes are unique as pairs (partition, sort), held by a test: `C#`, `E#`, `R#` occur on both sides. Ids hold no `#`,
so nothing is escaped.
"""

import hashlib
from typing import Final

from quitclaim.domain.attention import AuditEntry
from quitclaim.domain.events import Event
from quitclaim.domain.ids import ConnectionRef, OwnerRef
from quitclaim.domain.limits import SHARDS
from quitclaim.ports import Item, Key

ANY_CLIENT: Final = "*"
"""The client part of due kinds whose work is not paced by a client; no client has that name."""

PREFIXES: Final = {
    "owner": ("O#", "OWNER"),
    "barrier": ("O#", "BAR#"),
    "connection": ("O#", "C#"),
    "grant": ("O#", "G#"),
    "exchange": ("O#", "X#"),
    "intent": ("O#", "S#"),
    "dependent": ("O#", "D#"),
    "source": ("O#", "R#"),
    "event": ("O#", "E#"),
    "family marker": ("O#", "Y#"),
    "ticket": ("A#", "T"),
    "authorization": ("A#", "A"),
    "revocation": ("Q#", "Q"),
    "account": ("E#", "A"),
    "member": ("E#", "C#"),
    "marker": ("E#", "P#"),
    "waiting": ("E#", "I#"),
    "name": ("E#", "N#"),
    "delivery": ("W#", "W"),
    "share": ("W#", "C#"),
    "idempotency": ("I#", "I"),
    "receipt": ("R#", ""),
    "audit": ("U#", ""),
    "ring": ("K#", ""),
    "heartbeat": ("H#", "H"),
    "pace": ("N#", ""),
}


def sort_prefix(kind: str, connection: str | None = None) -> str:
    """How the sort keys of a kind begin; with *connection*, those of that connection."""
    prefix = PREFIXES[kind][1]
    return prefix if connection is None else f"{prefix}{connection}#"


def owner_partition(owner: OwnerRef) -> str:
    """Everything of one owner."""
    return f"O#{owner.tenant}#{owner.owner}"


def owner_key(owner: OwnerRef) -> Key:
    """The owner's fence."""
    return Key(owner_partition(owner), "OWNER")


def barrier_key(owner: OwnerRef, client: str) -> Key:
    """The barrier of one client."""
    return Key(owner_partition(owner), f"BAR#{client}")


def connection_key(ref: ConnectionRef) -> Key:
    """The connection."""
    return Key(owner_partition(ref.of_owner), f"C#{ref.connection}")


def grant_key(ref: ConnectionRef, pair: str) -> Key:
    """One pair of the live grant."""
    return Key(owner_partition(ref.of_owner), f"G#{ref.connection}#{pair}")


def exchange_key(ref: ConnectionRef, exchange: str) -> Key:
    """An exchange."""
    return Key(owner_partition(ref.of_owner), f"X#{ref.connection}#{exchange}")


def intent_key(ref: ConnectionRef, generation: int) -> Key:
    """A stop intent."""
    return Key(owner_partition(ref.of_owner), f"S#{ref.connection}#{generation}")


def source_key(ref: ConnectionRef, slug: str) -> Key:
    """A source behind a connection's account."""
    return Key(owner_partition(ref.of_owner), f"R#{ref.connection}#{slug}")


def event_key(event: Event) -> Key:
    """An outbox event: in order of time, one key for one transition."""
    return Key(owner_partition(event.ref.of_owner), f"E#{event.at:013d}#{event.id}")


def is_event(key: Key) -> bool:
    """Whether an outbox event lies there."""
    partition, sort = PREFIXES["event"]
    return key.pk.startswith(partition) and key.sk.startswith(sort)


def ticket_key(ticket_digest: str) -> Key:
    """A connect link."""
    return Key(f"A#{ticket_digest}", "T")


def authorization_key(state_digest: str) -> Key:
    """An authorization, by the digest of its state."""
    return Key(f"A#{state_digest}", "A")


def revocation_key(rid: str) -> Key:
    """A revocation."""
    return Key(f"Q#{rid}", "Q")


def rid_of(item: Item) -> str:
    """The id of the revocation that an item, or an entry of an index, is of."""
    return str(item["PK"]).removeprefix("Q#")


def account_partition(client: str, account: str) -> str:
    """Everything of one external account under a client."""
    return f"E#{client}#{account}"


def account_key(client: str, account: str) -> Key:
    """An external account under a client, by its digest."""
    return Key(account_partition(client, account), "A")


def member_key(client: str, account: str, ref: ConnectionRef) -> Key:
    """A connection's membership of an external account."""
    return Key(account_partition(client, account), f"C#{ref.tenant}#{ref.owner}#{ref.connection}")


def member_of_key(key: Key) -> ConnectionRef:
    """The connection that a member of an account, or a share of a delivery, is of."""
    return ConnectionRef(*key.sk.split("#")[1:])


def name_key(client: str, name: str, ref: ConnectionRef, exchange: str) -> Key:
    """That a connection's account, by the grant of that exchange, goes by a further name; by the name's digest."""
    sort = f"N#{ref.tenant}#{ref.owner}#{ref.connection}#{exchange}"
    return Key(account_partition(client, name), sort)


def waiting_key(client: str, account: str, received: int, digest: str) -> Key:
    """A delivery that is parked beside an external account, in order of arrival."""
    return Key(account_partition(client, account), f"I#{received:013d}#{digest}")


def marker_key(client: str, account: str, rid: str) -> Key:
    """A revocation parked beside an external account."""
    return Key(account_partition(client, account), f"P#{rid}")


def family_marker_key(ref: ConnectionRef, rid: str) -> Key:
    """A revocation parked beside a connection's own grant."""
    return Key(owner_partition(ref.of_owner), f"Y#{ref.connection}#{rid}")


def delivery_partition(client: str, digest: str) -> str:
    """A webhook's delivery and its shares."""
    return f"W#{client}#{digest}"


def delivery_key(client: str, digest: str, target: ConnectionRef | None = None) -> Key:
    """A webhook's delivery, or one connection's share of it."""
    sort = "W" if target is None else f"C#{target.tenant}#{target.owner}#{target.connection}"
    return Key(delivery_partition(client, digest), sort)


def delivery_of_key(key: Key) -> tuple[str, str, ConnectionRef | None]:
    """Client, digest and connection of a delivery or a share."""
    _, client, digest = key.pk.split("#")
    return client, digest, ConnectionRef(*key.sk.split("#")[1:]) if "#" in key.sk else None


def idempotency_key(tenant: str, key_digest: str) -> Key:
    """The answer that a repeated call gets again."""
    return Key(f"I#{tenant}#{key_digest}", "I")


def receipt_key(owner: OwnerRef, at: int, transition: str) -> Key:
    """What became of a grant."""
    return Key(f"R#{owner.tenant}#{owner.owner}", f"{at:013d}#{transition}")


def audit_key(entry: AuditEntry) -> Key:
    """What an operator did, by month: in order of time, on a few partitions."""
    return Key(f"U#{month_of(entry.at)}#{shard(entry.id)}", f"{entry.at:013d}#{entry.id}")


def month_of(at: int) -> str:
    """`yyyymm` of an instant in UTC: days since 1970 as a date of the proleptic Gregorian calendar."""
    days = at // 86_400_000 + 719_468  # since 0000-03-01, so that a leap day is the last of its year
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    month = from_march + 3 if from_march < 10 else from_march - 9
    return f"{year + 400 * era + (month <= 2):04d}{month:02d}"


def ring_partition(ring: str = "ring") -> str:
    """The key ring."""
    return f"K#{ring}"


def heartbeat_key(kind: str) -> Key:
    """The last run of a schedule."""
    return Key(f"H#{kind}", "H")


def pace_key(client: str, window: int) -> Key:
    """How often something happened at a client in one window."""
    return Key(f"N#{client}", f"{window:013d}")


# --- indexes ---------------------------------------------------------------------------------------------------------

DUE: Final = ("d1", "d2")
ATTENTION: Final = ("a1", "a2")


def shard(id_: str) -> int:
    """Where an item stands in a sharded index: the same for the item's whole life."""
    return int.from_bytes(hashlib.sha256(id_.encode()).digest()[:2]) % SHARDS


def due_partition(kind: str, client: str, number: int) -> str:
    """One shard of what is due of a kind."""
    return f"{kind}#{client}#{number}"


def due(kind: str, at: int, id_: str, client: str = ANY_CLIENT) -> dict[str, str]:
    """Index attributes of an item that is due at *at*."""
    return {"d1": due_partition(kind, client, shard(id_)), "d2": f"{at:013d}#{id_}"}


def due_upto(now: int) -> str:
    """The greatest sort value that is due at *now*."""
    return f"{now:013d}#\uffff"


ATTENTION_KINDS: Final = ("expired", "notice", "quarantine", "exchange", "stop")
"""Of what a person has to look at."""


def attention_partition(kind: str, number: int) -> str:
    """One shard of what needs attention of a kind."""
    return f"{kind}#{number}"


def attention(kind: str, at: int, ref: ConnectionRef, id_: str) -> dict[str, str]:
    """Index attributes of an item that somebody must look at."""
    return {"a1": f"{kind}#{shard(id_)}", "a2": f"{at:013d}#{ref.tenant}#{ref.owner}#{id_}"}


KEPT: Final = "delivery"
"""Of the index `attention`: deliveries that nobody had. They are of no connection, so they are no entry of the list."""


def kept(at: int, client: str, digest: str) -> dict[str, str]:
    """Index attributes of a delivery that operators may have delivered after all."""
    return {"a1": attention_partition(KEPT, shard(f"{client}#{digest}")), "a2": f"{at:013d}#{client}#{digest}"}


def roster(ref: ConnectionRef, provider: str, state: str, at: int) -> dict[str, str]:
    """Index attributes of a connection."""
    return {"r1": f"{ref.tenant}#{provider}", "r2": f"{state}#{at:013d}#{ref.owner}#{ref.connection}"}


def ref_of_key(key: Key) -> ConnectionRef:
    """The connection that an item of an owner's partition belongs to."""
    _, tenant, owner = key.pk.split("#")
    return ConnectionRef(tenant, owner, key.sk.split("#")[1])
