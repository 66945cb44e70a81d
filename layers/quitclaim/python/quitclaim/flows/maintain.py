"""
What keeps the stack going by itself: keys are replaced, what is finished goes, grants that nobody uses are kept alive,
and now and then the whole table is looked at.

Nothing here is urgent, and nothing opens anything: keys are made without being seen, sealed bytes are read for the name
of their key only. Every step is a conditional write, so two runs at once are safe; each item stands for itself, and
what fails is counted and stays due.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.connect import ExchangeOutcome
from quitclaim.domain.errors import MovedError, QuitclaimError
from quitclaim.domain.ids import OwnerRef
from quitclaim.domain.keyring import (
    RingItem,
    UnknownSealError,
    active_from,
    kids_in,
    may_destroy,
    next_kid,
    to_retire,
)
from quitclaim.domain.limits import COMPACT_MS, REMEMBERED_MS, SECOND, SHARDS
from quitclaim.domain.maintain import (
    Inspection,
    begun,
    is_due,
    may_compact_barrier,
    may_compact_connection,
    may_compact_exchange,
    may_compact_intent,
    may_compact_revocation,
    turned,
)
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.tokens import Grant, needs_care
from quitclaim.ports import Clock, Deadline, Item, KeyMaker, Replay, WholeTable

if TYPE_CHECKING:
    from quitclaim.store.maintain import MaintainStore
    from quitclaim.store.reads import Reads
    from quitclaim.store.ring import RingTable
    from quitclaim.store.tokens import TokenStore

LAST_ITEM_MS: Final = 10 * SECOND
"""Nothing new is taken with less of the invocation left."""
LAST_CALL_MS: Final = 32 * SECOND
"""No refresh is asked for with less left: `access_token` may take its whole time-out."""
SHARE: Final = 3
"""Each part may take so much of what is left: a third, then a third of the rest."""
INTENTS_AT_ONCE: Final = 6
"""Closed stops that one commit takes a revocation out of; there are hardly ever two."""


@dataclass(frozen=True)
class Maintaining:
    """What maintenance needs of the world."""

    reads: "Reads"
    store: "MaintainStore"
    tokens: "TokenStore"
    ring: "RingTable"
    keys: KeyMaker
    whole: WholeTable
    replay: Replay
    clock: Clock
    on_fault: Callable[[str, Exception], None]
    """Told of an item that failed: its kind and why. It stays due."""


@dataclass
class Maintained:
    """What one run did, by kind; counts only."""

    done: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    wrong_accounts: int = 0

    def did(self, kind: str, count: int = 1) -> None:
        """Count it."""
        self.done[kind] = self.done.get(kind, 0) + count


def maintain(deadline: Deadline, world: Maintaining) -> Maintained:
    """Keys, keep-alive, compaction, inspection, each as far as its share of the time goes."""
    run = Maintained()
    turn_ring(world, run)
    keep_alive(deadline, world, run)
    compact(deadline, world, run)
    inspect(deadline, world, run)
    return run


def _until(deadline: Deadline, at_least: int) -> int:
    """What must be left when a part stops, so that it takes no more than its share."""
    return max(deadline.remaining_ms() - deadline.remaining_ms() // SHARE, at_least)


# --- keys ------------------------------------------------------------------------------------------------------------


def turn_ring(world: Maintaining, run: Maintained) -> None:
    """
    Row 51. Add a key to each purpose whose newest has served its time, and retire those that a newer one has replaced.

    1. `add`: in the ring ten minutes before it seals, so that every instance knows it by then. Crash: the next run.
    2. `retire`: a retired key seals no more and opens as before. Crash: the next run.

    A key that cannot be read is told of and left out.
    """
    items = sorted(_readable(world, run), key=lambda item: item.purpose)
    for purpose, each in groupby(items, key=lambda item: item.purpose):
        own, now = list(each), world.clock.now()
        kid = next_kid(own, now)
        try:
            if kid is not None:
                wrapped = world.keys.wrapped_data_key(purpose)
                if world.ring.add(RingItem(purpose, kid, wrapped, created=now, active_from=active_from(now))):
                    run.did("key added")
            for item in to_retire(own, now):
                world.ring.retire(item, now)
                run.did("key retired")
        except MovedError:
            continue
        except QuitclaimError as fault:
            _failed("key", fault, world, run)


def _readable(world: Maintaining, run: Maintained) -> list[RingItem]:
    """The keys of the ring; one that cannot be read keeps nothing else from being done (I-16)."""
    found = world.ring.read_all()
    for fault in found:
        if isinstance(fault, Exception):
            _failed("key", fault, world, run)
    return [item for item in found if isinstance(item, RingItem)]


def _destroy(free: frozenset[str], world: Maintaining, run: Maintained) -> None:
    """Row 51, last part: what nothing names any more. Everything is asked again: the walk took a while."""
    now = world.clock.now()
    for item in _readable(world, run):
        if f"{item.purpose}#{item.kid}" in free and may_destroy(item, now):
            try:
                world.ring.destroy(item, now)
            except MovedError:
                continue
            run.did("key destroyed")


# --- grants that nobody uses -----------------------------------------------------------------------------------------


def keep_alive(deadline: Deadline, world: Maintaining, run: Maintained) -> None:
    """
    Have grants refreshed before their provider's idle limit, and tell the app once of an end that no refresh moves.

    1. `access_token` is invoked: it alone sends refreshes, for it ends before a lease does. What comes of it is on
       record there.
       Refused or lost: the grant stays due, and the next run asks again.
    2. `tell_expiring` (row 53), where the end is where it was. Crash before it: still due.
    """
    stop_before = _until(deadline, LAST_CALL_MS)
    for shard in range(SHARDS):
        for item in world.store.due_items("keepalive", shard, world.clock.now()):
            if deadline.remaining_ms() < stop_before:
                return
            _each("keepalive", lambda found: _look_after(world.reads.as_grant(found), world, run), item, world, run)


def _look_after(grant: Grant, world: Maintaining, run: Maintained) -> None:
    now = world.clock.now()
    if grant.attempts:
        return
    if needs_care(grant, now):
        world.replay.refresh(grant.ref, grant.pair)
        run.did("asked to refresh")
    if grant.expiring_at is None or grant.expiring_at > now:
        return
    current = world.reads.grant(grant.ref, grant.pair)
    if current is not None and current.expiring_at == grant.expiring_at and not current.attempts:
        world.tokens.tell_expiring(current, world.clock.now())
        run.did("end told")


# --- compaction ------------------------------------------------------------------------------------------------------


def compact(deadline: Deadline, world: Maintaining, run: Maintained) -> None:
    """
    Rows 48 and 49. Told revocations go, a day after their deadline, and with them what else of their owners is
    finished.

    One transaction each, in an order in which nothing names what is gone. Crash in between: what is left is due again,
    or is found by the next look at its owner.

    What waits for its owner's word stays due, in front of all that came later: it costs three calls a hundred, and
    nothing of its own, so that thousands of notices that nobody acknowledges do not use up the time of the others.
    """
    stop_before = _until(deadline, LAST_ITEM_MS)
    owners: set[OwnerRef] = set()

    def one(revocation: Revocation) -> None:
        if compact_revocation(revocation, world, run):
            owners.add(revocation.ref.of_owner)

    for shard in range(SHARDS):
        for page in world.store.due_pages("compact", shard, world.clock.now()):
            if deadline.remaining_ms() < stop_before:
                break
            for revocation in _compactable(page, world, run):
                if deadline.remaining_ms() < stop_before:
                    break
                _each("compact", one, revocation, world, run)
    for owner in sorted(owners):
        if deadline.remaining_ms() < LAST_ITEM_MS:
            return
        _each("compact", lambda found: look_over(found, world, run), owner, world, run)


def _compactable(page: Sequence[Item], world: Maintaining, run: Maintained) -> list[Revocation]:
    """Those of a page that may go, or may if their owner is deleted, and it is."""
    found: list[Revocation] = []
    for item in page:
        _each("compact", lambda each: found.append(world.reads.as_revocation(each)), item, world, run)
    now = world.clock.now()
    waiting = [each for each in found if not may_compact_revocation(each, now, owner_deleted=False)]
    deleted = world.reads.deleted(each.ref.of_owner for each in waiting)
    return [each for each in found if may_compact_revocation(each, now, owner_deleted=each.ref.of_owner in deleted)]


def compact_revocation(revocation: Revocation, world: Maintaining, run: Maintained) -> bool:
    """
    One revocation, with its exchange where that is in clean-up: the owner's status finds the one by the other. False
    where somebody's word or another item's end is awaited.
    """
    ref, rid, now = revocation.ref, revocation.rid, world.clock.now()
    owner, _, barrier = world.reads.fence(ref, revocation.client)
    owner_deleted = owner is not None and owner.is_deleted
    if not may_compact_revocation(revocation, now, owner_deleted=owner_deleted):
        return False
    stops = world.reads.intents(ref)
    intents = [intent for intent in stops if rid in intent.rids]
    exchanges = [each for each in world.reads.exchanges(ref) if rid == each.rid or each.id == revocation.exchange]
    if any(not each.outcome.is_over for each in exchanges) or any(
        intent.closed is None and (intent in intents or intent.generation == revocation.generation) for intent in stops
    ):
        return False
    for exchange in exchanges:
        if exchange.outcome is ExchangeOutcome.CLEANUP and exchange.rid == rid:
            listed = barrier is not None and f"x:{exchange.in_barrier}" in barrier.acks
            world.store.compact_exchange(exchange, is_listed=listed)
            run.did("exchange compacted")
    for intent in intents[INTENTS_AT_ONCE:]:
        world.store.unlist(intent, rid)
    world.store.compact_revocation(revocation, intents[:INTENTS_AT_ONCE], now, has_barrier=barrier is not None)
    run.did("revocation compacted")
    return True


def look_over(ref: OwnerRef, world: Maintaining, run: Maintained) -> None:
    """
    Everything of one owner that may go and has no due time of its own: exchanges, stops, and of a deleted owner its
    connections and barriers. The fence stays (F-69).
    """
    reads, store, now = world.reads, world.store, world.clock.now()
    owner = reads.owner(ref)
    owner_deleted = owner is not None and owner.is_deleted
    barriers = reads.barriers(ref)
    exchanges = reads.exchanges_of(ref)
    revocations = reads.revocations({each.rid for each in exchanges})
    stops = reads.intents_of(ref)
    open_lives = {(intent.ref, intent.generation) for intent in stops if intent.closed is None}
    for exchange in exchanges:
        if not may_compact_exchange(exchange, revocations[exchange.rid], now, owner_deleted=owner_deleted):
            continue
        if (exchange.ref, exchange.generation) in open_lives:
            continue  # what became of it counts for what that stop says of itself
        barrier = barriers.get(exchange.client)
        listed = barrier is not None and f"x:{exchange.in_barrier}" in barrier.acks
        _quietly(partial(store.compact_exchange, exchange, is_listed=listed), "exchange", run)
    for intent in stops:
        if may_compact_intent(intent, now):
            _quietly(partial(store.compact_intent, intent), "intent", run)
    if not owner_deleted:
        return
    for connection in reads.connections(ref):
        if may_compact_connection(connection, owner_deleted=True, rest=store.rest_of(connection.ref)):
            _quietly(partial(store.compact_connection, connection), "connection", run)
    for client, barrier in reads.barriers(ref).items():
        in_flight = reads.resolved(ref, barrier).in_flight
        if may_compact_barrier(barrier, in_flight, owner_deleted=True):
            _quietly(partial(store.compact_barrier, ref, client, barrier), "barrier", run)


def _quietly(compacting: Callable[[], None], kind: str, run: Maintained) -> None:
    """Somebody moved it meanwhile: it is not finished after all, and is looked at again."""
    try:
        compacting()
    except MovedError:
        return
    run.did(f"{kind} compacted")


# --- the walk over the whole table -----------------------------------------------------------------------------------


def inspect(deadline: Deadline, world: Maintaining, run: Maintained) -> None:
    """
    Walk over the whole table once a week, a share of it in each run.

    1. `keep_inspection` (row 56) after each page: how far it has come. Crash: the next run repeats one page.
    2. At the end of the second round, `destroy` (row 51) takes the keys that nothing named in either. Crash before it:
       the next inspection.
    """
    state, now = world.store.inspection(), world.clock.now()
    run.wrong_accounts = state.wrong if state is not None else 0
    if is_due(state, now):
        candidates = [f"{item.purpose}#{item.kid}" for item in _readable(world, run) if may_destroy(item, now)]
        before, state = state, begun(state, candidates, now)
    elif state is None or state.finished is not None:
        return
    else:
        before = state
    while state.finished is None and deadline.remaining_ms() >= LAST_ITEM_MS:
        page = world.whole.scan(after=state.after)
        looked = _looked_at(page.items, state, world, run)
        after = turned(looked, None if page.after is None else dict(page.after), world.clock.now())
        try:
            world.store.keep_inspection(before, after)
        except MovedError:
            return
        state = before = replace(after, v=(before.v if before else 0) + 1)
        run.did("page inspected")
        run.wrong_accounts = state.wrong
        if state.finished is not None and state.round == 2:
            _destroy(state.free, world, run)


def _looked_at(items: tuple[Item, ...], state: Inspection, world: Maintaining, run: Maintained) -> Inspection:
    names, unknown, wrong = set(state.names), state.unknown_seals, state.wrong_accounts
    owners: set[OwnerRef] = set()

    def one(item: Item) -> None:
        nonlocal wrong
        kind = world.store.kind_of(item)
        if _may_be_left_behind(kind, item, world):
            owners.add(world.store.owner_of(item))
        elif kind == "account":
            wrong += not _adds_up(item, world)
        elif kind == "name":
            _forgotten(item, world, run)

    for item in items:
        if world.store.kind_of(item) == "ring":
            continue
        try:
            names.update(kids_in(item))
        except UnknownSealError:
            unknown += 1
        if state.round == 1:
            _each("inspection", one, item, world, run)
    for owner in sorted(owners):
        _each("inspection", lambda found: look_over(found, world, run), owner, world, run)
    return replace(state, names=frozenset(names), unknown_seals=unknown, wrong_accounts=wrong)


def _may_be_left_behind(kind: str, item: Item, world: Maintaining) -> bool:
    """
    Whether an item on the walk says that its owner is worth a look: what came to its end without a revocation has no
    due time (docs/decisions/0016).
    """
    now = world.clock.now()
    match kind:
        case "owner":
            return world.reads.as_owner(item)[1].stopped_at is not None
        case "exchange":
            exchange = world.reads.as_exchange(item)
            return exchange.outcome.is_over and (exchange.hold_ends or exchange.ends) + COMPACT_MS <= now
        case "intent":
            return may_compact_intent(world.reads.as_intent(item), now)
        case _:
            return False


def _adds_up(item: Item, world: Maintaining) -> bool:
    """
    Whether an account's counts are those of its members and markers. Judged only where nothing changed while they were
    counted: each count changes in one commit with its item.
    """
    client, digest = world.reads.as_account(item)
    before = world.reads.account(client, digest)
    counted = world.store.counted(client, digest)
    after = world.reads.account(client, digest)
    return before is None or before != after or (before.live, before.parked) == counted


def _forgotten(item: Item, world: Maintaining, run: Maintained) -> None:
    """
    Row 79. A further name of a grant that is gone goes, once nobody would wait any more for an event by it: so long
    after the account last lost one or left, too. Crash: the next inspection.
    """
    client, _ = world.reads.as_account(item)
    named, now = world.reads.as_name(item), world.clock.now()
    if named.at + REMEMBERED_MS > now:
        return
    connection = world.reads.connection(named.ref)
    if connection is not None and (connection.exchange, connection.generation) == (named.exchange, named.generation):
        return
    account = world.reads.account(client, named.account)
    if account is not None and max(account.left_at or 0, account.lost_at or 0) + REMEMBERED_MS > now:
        return
    world.store.forget_name(item)
    run.did("name forgotten")


# --- one item --------------------------------------------------------------------------------------------------------


def _each(kind: str, step: Callable[[Any], object], item: Any, world: Maintaining, run: Maintained) -> None:
    try:
        step(item)
    except MovedError:
        return  # somebody else did it
    except Exception as fault:  # noqa: BLE001 - one poisoned item must not stop the others (C-42, I-16)
        _failed(kind, fault, world, run)


def _failed(kind: str, fault: Exception, world: Maintaining, run: Maintained) -> None:
    run.failed[kind] = run.failed.get(kind, 0) + 1
    world.on_fault(kind, fault)
