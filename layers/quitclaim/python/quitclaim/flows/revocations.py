"""
Revoking what is queued, and what follows: the finishing step and the owner's acknowledgement.

The worker is concurrent from the start: page of keys → one read → claims → calls in flight → settles, 25 at a time;
nothing is one after another but what must be. A crash anywhere leaves leases that end by themselves; revoking twice is
safe, and only the provider's own success settles.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.connect import Exchange, ExchangeOutcome
from quitclaim.domain.errors import (
    ClientConfigError,
    ConnectionNotFoundError,
    KeyUnavailableError,
    MovedError,
    NothingToAcknowledgeError,
    ProviderNotRegisteredError,
    SealBrokenError,
    TooEarlyToAcknowledgeError,
)
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import BATCH, GUARD_MS, MINUTE, SECOND, SHARDS
from quitclaim.domain.outcomes import IdentityOutcome, RevokeAnswer, RevokeOutcome, TokenAnswer
from quitclaim.domain.renewals import Awaited, Renewed, first_renewal, is_unproven, renewal_after, renewal_before
from quitclaim.domain.revocations import (
    NO_VARIABLES,
    Claimed,
    Material,
    Reach,
    Revocation,
    RevocationState,
    Settlement,
    Step,
    call_limit_ms,
    given_back_until,
    is_poison,
    next_step,
    retry_at,
    settlement,
    still_owed,
    weakest,
)
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.renewals import (
    Underway,
    as_token_answer,
    awaited,
    forget_unseen,
    may_seal,
    queue_rest,
    queue_successor,
    start_renewal,
    verdict,
)
from quitclaim.ports import Calls, Client, Clients, Clock, Deadline, Ids, Update, Vault

if TYPE_CHECKING:
    from quitclaim.store.reads import Reads
    from quitclaim.store.revocations import RevocationStore

IN_FLIGHT: Final = 200
"""Calls at once, over all clients."""
PER_CLIENT: Final = 50
"""Calls at once for one client, so that a slow provider does not take the others' places (D-6)."""
SETTLE_AFTER_MS: Final = 250
MOST_ASKED: Final = 4
"""
Accounts that one run asks providers for, one after another: what is on its way must be settled inside its lease, so
they may not take longer than 20 s in all.
"""
LAST_CLAIM_MS: Final = 50 * SECOND
"""
No new claim with less of the invocation left: its lease, and the queue before its send, must fit.
"""


@dataclass(frozen=True)
class Revoking:
    """What revoking needs of the world."""

    reads: "Reads"
    store: "RevocationStore"
    clients: Clients
    vault: Vault
    clock: Clock
    calls: Calls
    ids: Ids
    on_fault: Callable[[str, Exception], None]
    """Told of an item that failed, and why. It stays due, and the others go on (I-16)."""
    first_shard: int = 0


@dataclass
class Swept:
    """What one run did; counts only."""

    claimed: int = 0
    confirmed: int = 0
    unconfirmed: int = 0
    deferred: int = 0
    given_back: int = 0
    expired: int = 0
    parked: int = 0
    quarantined: int = 0
    lost_settles: int = 0
    asked: int = 0
    failed: int = 0
    renewed: int = 0
    refused: int = 0
    """Answers that the same request will meet again: somebody must look at the client."""


def sweep(clients: Sequence[str], deadline: Deadline, world: Revoking) -> Swept:
    """
    Revoke everything that is due of *clients*, until nothing is or the time is up.

    Ids are taken from the clients and shards in turn until 25 are together, which then share their read, claim and
    settle, while other calls are still under way. Two runs at once are safe: they start at different shards, and a
    claim is theirs or it is not.
    """
    swept = Swept()
    shards = [(number + world.first_shard) % SHARDS for number in range(SHARDS)]
    sources: deque[Source] = deque((client, shard, None) for shard in shards for client in clients)
    open_calls: Counter[str] = Counter()
    underway: UnderwayByLease = {}
    while True:
        while world.calls.in_flight + BATCH <= IN_FLIGHT and deadline.remaining_ms() > LAST_CLAIM_MS:
            rids = _next_batch(sources, open_calls, world)
            if not rids:
                break
            open_calls.update(_begin(rids, underway, world, swept))
        if world.calls.in_flight == 0 and (not sources or deadline.remaining_ms() <= LAST_CLAIM_MS):
            return swept
        finished, started = _settle_finished(underway, world, swept)
        open_calls.subtract(finished)
        open_calls.update(started)


type UnderwayByLease = dict[str, Underway]
"""What is on its way, by the lease of its claim."""
type Source = tuple[str, int, Any]
"""A client, a shard of what is due of it, and where its query goes on."""


def _next_batch(sources: deque[Source], open_calls: Counter[str], world: Revoking) -> list[str]:
    """Up to 25 due ids; from a client no more than it may have in flight. A source that is empty is dropped."""
    rids: list[str] = []
    taken: Counter[str] = Counter()
    for _ in range(len(sources)):
        client, shard, after = sources.popleft()
        room = min(BATCH - len(rids), PER_CLIENT - open_calls[client] - taken[client])
        if room <= 0:
            sources.append((client, shard, after))
            continue
        found, after = world.store.due_page(client, shard, world.clock.now(), room, after)
        rids += found
        taken[client] += len(found)
        if after is not None:
            sources.append((client, shard, after))
    return rids


def revoke(rids: Sequence[str], deadline: Deadline, world: Revoking) -> Swept:
    """
    Take the revocations named through whatever is due of them; what a kick does, which reads by key and not through the
    index.

    1. claim, each with a lease and a condition of its own. Crash: the lease ends.
    2. the provider is asked, only while the whole call fits into the lease.
    3. settle, held to the lease. Crash or lost: the next run asks again.
    """
    swept = Swept()
    underway: UnderwayByLease = {}
    for start in range(0, len(rids), BATCH):
        while world.calls.in_flight + BATCH > PER_CLIENT:
            _settle_finished(underway, world, swept)
        if deadline.remaining_ms() > LAST_CLAIM_MS:
            _begin(rids[start : start + BATCH], underway, world, swept)
    while world.calls.in_flight:
        _settle_finished(underway, world, swept)
    return swept


def _begin(rids: Sequence[str], underway: UnderwayByLease, world: Revoking, swept: Swept) -> list[str]:
    """Claim what is due of *rids* and send it on its way; the client of each call that was started."""
    unsent: list[Update] = []
    started: list[str] = []
    for claim in _claim_due(_readable(rids, world, swept), world, swept):
        try:
            prepared = _prepared(claim, world, swept)
            if isinstance(prepared, Underway):
                prepared = _sent(claim, prepared, world, swept)
        except MovedError:
            continue  # it is another worker's by now
        except Exception as fault:  # noqa: BLE001 - its lease ends by itself, and its claims make it poison (I-16)
            _failed(fault, world, swept)
            continue
        if isinstance(prepared, Update):
            unsent.append(prepared)
            continue
        underway[claim.lease] = prepared
        started.append(claim.revocation.client)
    _settle(unsent, world, swept)
    return started


def _sent(claim: Claimed, ready: Underway, world: Revoking, swept: Swept) -> Underway | Update:
    """
    The first call of a claim is on its way: the revocation, or the refresh without which there can be none. It is given
    back where what that refresh gives could not be sealed.
    """
    now = world.clock.now()
    if renewal_before(claim.revocation, ready.materials, ready.client.facts, now):
        if not may_seal(world):
            return _given_back(claim, now, world, swept)
        return start_renewal(claim, ready, first_renewal(ready.materials, now), world)
    world.calls.start(claim, partial(_asked, claim, ready.client, ready.materials, world.clock))
    return ready


def _settle_finished(underway: UnderwayByLease, world: Revoking, swept: Swept) -> tuple[Counter[str], Counter[str]]:
    """
    Settle what has been answered meanwhile, 25 at the most, or go on with it: ask for a refresh that tells what the
    answer means, or revoke what a refresh gave. By client, how many calls ended, and how many began.
    """
    finished = world.calls.finished(at_most=BATCH, wait_ms=SETTLE_AFTER_MS)
    updates: list[Update] = []
    renewed: list[str] = []
    began: Counter[str] = Counter()
    for claim, answer in finished:
        try:
            after = _after(claim, underway.pop(claim.lease), answer, world, swept)
        except MovedError:
            continue
        except Exception as fault:  # noqa: BLE001 - as above: it is sent again, which is safe
            _failed(fault, world, swept)
            continue
        if isinstance(after, Update):
            updates.append(after)
        elif isinstance(after, Underway):
            underway[claim.lease] = after
            began[claim.revocation.client] += 1
        else:
            renewed.append(after)
    _settle(updates, world, swept)
    if renewed:
        began.update(_begin(renewed, underway, world, swept))
    return Counter(claim.revocation.client for claim, _ in finished), began


def _after(
    claim: Claimed, ready: Underway, answer: RevokeAnswer | TokenAnswer | None, world: Revoking, swept: Swept
) -> Update | Underway | str:
    """What follows an answer: the write that settles the item, one more call, or the id of what is revoked now."""
    if ready.renewal is None and isinstance(answer, RevokeAnswer):
        now = world.clock.now()
        renewal = renewal_after(claim.revocation, ready.materials, ready.client.facts, answer, now)
        if renewal is not None and call_limit_ms(now, claim.until) is not None and may_seal(world):
            return start_renewal(claim, ready, renewal, world)
        if is_unproven(claim.revocation, ready.materials, ready.client.facts, answer):
            # No time or no key to ask, or asked often enough: it is tried again, and left to its deadline.
            answer = RevokeAnswer(RevokeOutcome.DEFERRED, "unproven")
        return _settlement_of(claim, answer, world, swept)
    if ready.renewal is None:
        return _settlement_of(claim, None, world, swept)
    told = as_token_answer(answer)
    meaning, judged = verdict(ready, told)
    if meaning is Renewed.SUCCESSOR:
        swept.renewed += 1
        return queue_successor(claim, ready, told, world)
    if meaning is Renewed.GONE and len(claim.revocation.material) > 1:
        return queue_rest(claim, ready, world)
    return _settlement_of(claim, judged, world, swept, renewal=ready.attempt, meaning=meaning)


def _settle(updates: Sequence[Update], world: Revoking, swept: Swept) -> None:
    if updates:
        held = world.store.settle_all(updates, lambda fault: _failed(fault, world, swept))
        swept.lost_settles += held.count(False)


def _failed(fault: Exception, world: Revoking, swept: Swept) -> None:
    swept.failed += 1
    world.on_fault("revocation", fault)


def _readable(rids: Sequence[str], world: Revoking, swept: Swept) -> list[Revocation]:
    """What is there of *rids*; one that does not decode is told of and left."""
    found: list[Revocation] = []
    for each in world.store.read_each(rids):
        if isinstance(each, Revocation):
            found.append(each)
        else:
            _failed(each, world, swept)
    return found


def _claim_due(found: Sequence[Revocation], world: Revoking, swept: Swept) -> list[Claimed]:
    """
    Claim what may be sent; expire, forget, park or leave the rest. An item that moves meanwhile is somebody else's.
    """
    claimed: list[Claimed] = []
    alone: list[Revocation] = []
    waits = awaited(found, world) if any(each.renewed is not None for each in found) else {}
    for revocation in found:
        now = world.clock.now()
        try:
            step = next_step(revocation, now)
            if step in (Step.CLAIM, Step.FORGET) and revocation.renewing is not None:
                revocation = forget_unseen(revocation, now, world)
            awaits, again = waits.get(revocation.rid, (None, now))
            if step is Step.CLAIM and awaits is Awaited.WAIT:
                world.store.postpone(revocation, revocation.attempts, again, now)
                continue
            if step is Step.FORGET:
                world.store.forget_successor(revocation, now)
                revocation = replace(
                    revocation, lost=True, expected=frozenset(), expected_until=None, v=revocation.v + 1
                )
                step = Step.CLAIM
            if step is Step.EXPIRE:
                world.store.expire(revocation, now)
                swept.expired += 1
            elif step is Step.CLAIM and revocation.exchange is not None and _is_live(revocation, now, world, swept):
                continue
            elif step is Step.CLAIM and revocation.exchange is not None and revocation.reach is Reach.TOKEN:
                claimed.append(world.store.claim_beside_live(revocation, now))
            elif step is Step.CLAIM and (revocation.reach is Reach.TOKEN or awaits not in (None, Awaited.PARK)):
                alone.append(revocation)  # what waited for its successor calls nobody, so its reach is no matter
            elif step is Step.CLAIM and revocation.reach is Reach.FAMILY:
                claimed += _claim_family(revocation, now, world, swept)
            elif step is Step.CLAIM:
                claimed += _claim_wide(revocation, now, world, swept)
        except MovedError:
            continue
        except Exception as fault:  # noqa: BLE001 - a poisoned item, or one beside it, must not stop the others (I-16)
            _failed(fault, world, swept)
    if alone:
        claimed += world.store.claim(alone, world.clock.now(), lambda fault: _failed(fault, world, swept))
    swept.claimed += len(claimed)
    return claimed


def _is_live(revocation: Revocation, now: int, world: Revoking, swept: Swept) -> bool:
    """
    Whether what an exchange held is the live grant's own token, given for a step-up as well: it is parked, whatever its
    reach, since to revoke it would end the grant that serves. The stop of that grant wakes it.
    """
    live = world.reads.grant(revocation.ref, MAIN)
    if live is None or live.fp not in revocation.fp:
        return False
    world.store.park(revocation, None, live, now)
    swept.parked += 1
    return True


def _claim_family(revocation: Revocation, now: int, world: Revoking, swept: Swept) -> list[Claimed]:
    pairs = sorted(family.split("#")[1] for family in revocation.family)
    live = [grant for grant in world.reads.grants(revocation.ref, pairs) if grant.family in revocation.family]
    if live:
        world.store.park(revocation, None, live[0], now)
        swept.parked += 1
        return []
    return [world.store.claim_within_family(revocation, now)]


def _claim_wide(revocation: Revocation, now: int, world: Revoking, swept: Swept) -> list[Claimed]:
    """
    A call that ends every grant of the account: never blind, and never while another grant of it lives (custody rules
    10-12).
    """
    digest = revocation.account
    if digest is None:
        if swept.asked >= MOST_ASKED:
            return []  # the next run goes on with it
        swept.asked += 1
        digest = _learned_account(revocation, world)
    if digest is None:
        attempts = revocation.attempts + 1
        next_at = retry_at(now, attempts, revocation.deadline or now)
        world.store.postpone(revocation, attempts, next_at, now)
        swept.deferred += 1
        return []
    revocation = replace(revocation, account=digest)
    account = world.reads.account(revocation.client, digest)
    if account is not None and account.live > 0:
        for fresh in world.store.read([revocation.rid]):  # gone meanwhile, if it was installed
            world.store.park(fresh, account, None, now)
            swept.parked += 1
        return []
    return [world.store.claim_account_wide(revocation, digest, account, now)]


def _learned_account(revocation: Revocation, world: Revoking) -> str | None:
    """
    The account of a held or late grant, by the access token kept for that; None as long as nobody can say (then it ends
    in a notice).
    """
    if revocation.identity is None:
        return None
    try:
        client = world.clients.named(revocation.client)
        token = world.vault.open_identity(revocation.rid, revocation.generation, revocation.identity)
        variables = next((each.variables for each in _opened(revocation, world)), NO_VARIABLES)
    except (KeyUnavailableError, SealBrokenError, ProviderNotRegisteredError, ClientConfigError):
        return None
    answer = client.identity(access_token=token, timeout_ms=5 * SECOND, variables=variables)
    if answer.outcome is not IdentityOutcome.READ or not answer.account_id:
        return None
    digest = world.vault.account_digest(revocation.client, answer.account_id)
    world.store.record_account(revocation, digest)
    return digest


def _prepared(claim: Claimed, world: Revoking, swept: Swept) -> Update | Underway:
    """What a claimed revocation needs to be sent; or how it settles because it cannot be, or need not be."""
    revocation = claim.revocation
    now = world.clock.now()
    if revocation.renewed is not None:
        [(awaits, again)] = awaited([revocation], world).values()
        if awaits in (Awaited.WAIT, Awaited.PARK):
            return world.store.defer(claim, attempts=revocation.attempts, next_at=again, excused=True)
        if awaits is Awaited.CONFIRM and not revocation.expected:
            swept.confirmed += 1
            return world.store.settle(claim, now, RevocationState.CONFIRMED)
        swept.unconfirmed += 1
        return world.store.settle(claim, now, RevocationState.UNCONFIRMED)
    counted = replace(revocation, claims=revocation.claims + 1)
    ladder = retry_at(now, revocation.attempts + 1, revocation.deadline or now)
    if is_poison(counted):
        swept.quarantined += 1
        return world.store.quarantine(claim, now, ladder)
    try:
        client = world.clients.named(revocation.client)
        materials = _opened(revocation, world)
        client.prepare()
        if not materials:
            raise SealBrokenError("it holds no material")
    except SealBrokenError:
        swept.quarantined += 1
        return world.store.quarantine(claim, now, ladder, excused=True)
    except (KeyUnavailableError, ProviderNotRegisteredError, ClientConfigError):
        return _given_back(claim, now, world, swept)
    if not client.facts.revocable or not all(client.facts.may_take(each.kind) for each in materials):
        return world.store.settle(claim, now, RevocationState.UNSUPPORTED)
    return Underway(client, tuple(materials))


def _given_back(claim: Claimed, now: int, world: Revoking, swept: Swept) -> Update:
    """Ours to mend, not the token's fault: no attempt is counted, and only the deadline erases (D-5)."""
    revocation = claim.revocation
    swept.given_back += 1
    next_at = min(now + MINUTE, revocation.deadline or now)
    return world.store.defer(claim, attempts=revocation.attempts, next_at=next_at, excused=True)


def _opened(revocation: Revocation, world: Revoking) -> list[Material]:
    return [
        replace(material, pair=each.pair)
        for each in revocation.material
        for material in world.vault.open_revoke_only(
            revocation.rid, revocation.generation, each.tv, each.pair, each.sealed
        )
    ]


async def _asked(claim: Claimed, client: Client, materials: Sequence[Material], clock: Clock) -> RevokeAnswer | None:
    """
    The weakest of the answers for each token of it; None if the first call no longer fits into the lease and nothing
    was sent.
    """
    answers: list[RevokeAnswer] = []
    riding = {"refresh_token"} if client.facts.renews_in_queue else set()
    taken = tuple(each for each in materials if each.kind not in riding)
    for material in still_owed(taken, clock.now()):
        # Right before the send: a worker that was frozen since its claim must not send under a lease that may be
        # another's by now.
        limit = call_limit_ms(clock.now(), claim.until)
        if limit is None:
            return RevokeAnswer(RevokeOutcome.DEFERRED, "out_of_time") if answers else None
        answers.append(await client.revoke(material=material, timeout_ms=limit))
    return weakest(answers)


def _settlement_of(
    claim: Claimed,
    answer: RevokeAnswer | None,
    world: Revoking,
    swept: Swept,
    *,
    renewal: str | None = None,
    meaning: Renewed | None = None,
) -> Update:
    """The write that the answer asks for. *renewal* is the refresh that is open, *meaning* what it was answered."""
    revocation, now = claim.revocation, world.clock.now()
    if answer is None:
        swept.given_back += 1
        due = given_back_until(revocation, now)
        return world.store.defer(claim, attempts=revocation.attempts, next_at=due, excused=True)
    match settlement(revocation, answer):
        case Settlement.CONFIRMED:
            swept.confirmed += 1
            return world.store.settle(claim, now, RevocationState.CONFIRMED, renewal=renewal)
        case Settlement.UNCONFIRMED:
            swept.unconfirmed += 1
            return world.store.settle(claim, now, RevocationState.UNCONFIRMED, renewal=renewal)
        case Settlement.DEFERRED | Settlement.HELD_UNTIL_LEASE_END as settled:
            # An attempt like any other, and counted: else a provider that times out for some minutes makes poison.
            swept.deferred += 1
            attempts = revocation.attempts + 1
            next_at = retry_at(now, attempts, revocation.deadline or now, answer.retry_after_ms)
            unseen = meaning is Renewed.UNSEEN  # its successor may still be issued under this claim
            swept.refused += answer.outcome is RevokeOutcome.PERMANENT_ERROR
            held = settled is Settlement.HELD_UNTIL_LEASE_END or unseen
            return world.store.defer(
                claim,
                attempts=attempts,
                next_at=next_at,
                keeps_lease=held,
                withdraws=renewal is not None and not unseen,
            )


# --- after a settle --------------------------------------------------------------------------------------------------


def finish_settled(revocation: Revocation, *, reads: "Reads", store: "RevocationStore", now: int) -> bool:
    """
    The finishing step of a settled revocation: barrier, receipt and event, once. False if somebody else did it.

    One transaction; a crash before it leaves the revocation due for it.
    """
    if not revocation.state.is_terminal or revocation.finished is not None:
        return False
    _, _, barrier = reads.fence(revocation.ref, revocation.client)
    account = reads.account(revocation.client, revocation.account) if revocation.account is not None else None
    try:
        store.finish(revocation, account, now, has_barrier=barrier is not None and revocation.is_listed)
    except MovedError:
        return False
    return True


# --- the owner's word ------------------------------------------------------------------------------------------------


def acknowledge(ref: ConnectionRef, *, reads: "Reads", store: "RevocationStore", clock: Clock) -> int:
    """
    The owner says that the access is gone at the provider: every open notice of the connection is acknowledged. Answers
    how many were.

    An attestation, not the provider's confirmation, and possible for a deleted owner too. A pending or confirmed
    revocation cannot be acknowledged (F-33); an exchange whose window is not over yet answers
    `TooEarlyToAcknowledgeError`. One transaction a notice; a crash in between is repeated by the same call.
    """
    connection = reads.connection(ref)
    if connection is None:
        raise ConnectionNotFoundError(connection_id=ref.connection)
    intents, exchanges = reads.intents(ref), reads.exchanges(ref)
    queued = reads.queued_for(connection, intents, exchanges)
    revocations = [item for item in queued.values() if item is not None]
    now = clock.now()
    done = any(item.acknowledged for item in revocations) or any(exchange.acknowledged for exchange in exchanges)
    count = 0
    for revocation in revocations:
        if not revocation.state.is_notice or revocation.acknowledged is not None:
            continue
        _, _, barrier = reads.fence(ref, revocation.client)
        store.acknowledge(revocation, now, has_barrier=barrier is not None and revocation.is_listed)
        count += 1
    early: Exchange | None = None
    for exchange in exchanges:
        if exchange.outcome is not ExchangeOutcome.UNCONFIRMED or exchange.acknowledged is not None:
            continue
        if exchange.ends + GUARD_MS > now:
            early = exchange
            continue
        store.acknowledge_exchange(exchange, now)
        count += 1
    for intent in intents if count else ():
        if intent.closed is None:
            with suppress(MovedError):  # closed meanwhile; and its own due repeats it anyway
                store.hurry_stop(intent, now)
    if count == 0 and early is not None:
        wait = early.ends + GUARD_MS - now
        raise TooEarlyToAcknowledgeError(retry_after_ms=wait, connection_id=ref.connection)
    if count == 0 and not done:
        raise NothingToAcknowledgeError(connection_id=ref.connection)
    return count
