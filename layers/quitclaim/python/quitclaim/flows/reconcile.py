"""
Nothing stays half done: every thing that waits has a due time, and this looks at what is due.

Each item on its own: what fails is counted and stays due, and the others go on (C-42). Two runs at once are safe; every
step is a conditional write.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import (
    OF_A_CODE,
    Connection,
    ConnectionState,
    Exchange,
    ExchangeOutcome,
    Owner,
    Phase,
    is_left_behind,
    may_leave_a_grant,
)
from quitclaim.domain.errors import MovedError, QuitclaimError
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind, HookOutcome, hook_id
from quitclaim.domain.ids import OwnerRef
from quitclaim.domain.limits import GUARD_MS, HOOK_CALL_MS, HOOK_SHARE, MINUTE, SECOND, SHARDS, ladder_step_ms
from quitclaim.domain.maintain import lapsed_notices
from quitclaim.domain.revocations import Revocation, RevocationState
from quitclaim.domain.stop import Close, StopIntent, StopReason, close_of
from quitclaim.domain.tokens import Grant, LapseOfAttempt, lapse_of_attempt
from quitclaim.domain.webhooks import Delivery
from quitclaim.flows.deletion import carry_out_deletion
from quitclaim.flows.events import Publishing, publish_left
from quitclaim.flows.revocations import finish_settled
from quitclaim.flows.stop import Stopping, lose_grant
from quitclaim.ports import AppHooks, Clients, Clock, Cursor, Deadline, Forward, Item, Kick, Replay

if TYPE_CHECKING:
    from quitclaim.store.connect import ConnectStore
    from quitclaim.store.reads import Reads
    from quitclaim.store.reconcile import ReconcileStore
    from quitclaim.store.revocations import RevocationStore
    from quitclaim.store.tokens import TokenStore
    from quitclaim.store.webhooks import WebhookStore

LAST_ITEM_MS: Final = 8 * SECOND
"""Nothing new is taken with less of the invocation left."""
PAGE: Final = 100


@dataclass(frozen=True)
class Reconciling:
    """What reconciliation needs of the world."""

    reads: "Reads"
    store: "ReconcileStore"
    connects: "ConnectStore"
    tokens: "TokenStore"
    revocations: "RevocationStore"
    stopping: Stopping
    publishing: Publishing
    hooks: AppHooks
    clients: Clients
    clock: Clock
    kick: Kick
    replay: Replay
    webhooks: "WebhookStore"
    forward: Forward
    on_fault: Callable[[str, Exception], None]
    """Told of an item that failed: its kind and why. It stays due."""
    on_hook: Callable[[HookKind, HookAnswer], None] = lambda kind, answer: None
    """Told of a hook that did not do what it was asked for; it is asked again."""


@dataclass
class HooksInTime:
    """
    `ports.AppHooks` for one run, and how long the app was waited for: a quarter of what was left when it was asked
    first, and the call that is under way then. However slow it is, what comes after has its time.
    """

    hooks: AppHooks
    deadline: Deadline
    left_ms: int | None = None

    def has(self, kind: HookKind) -> bool:
        """As the app's."""
        return self.hooks.has(kind)

    def ask(self, call: HookCall, timeout_ms: int = HOOK_CALL_MS) -> HookAnswer:
        """As the app's; the time counts."""
        before = self.deadline.remaining_ms()
        answer = self.hooks.ask(call, timeout_ms)
        left = before // HOOK_SHARE if self.left_ms is None else self.left_ms
        self.left_ms = left - (before - self.deadline.remaining_ms())
        return answer

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be asked in this run."""
        return self.left_ms is not None and self.left_ms <= 0


@dataclass
class Reconciled:
    """What one run did, by kind; counts only."""

    done: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)


def reconcile(deadline: Deadline, world: Reconciling) -> Reconciled:
    """
    Look at everything that is due, kind by kind, in the order in which one step makes the next possible, until the time
    is up.
    """
    run = Reconciled()
    world = replace(world, hooks=HooksInTime(world.hooks, deadline))
    steps: tuple[tuple[str, Callable[[Any, Reconciling], None], Callable[[Any], Any]], ...] = (
        ("exchange", lapse_exchange, world.reads.as_exchange),
        ("deletion", partial(stop_all_of, deadline=deadline), world.reads.as_owner),
        ("finish", finish, world.reads.as_revocation),
        ("wake", wake_account, world.reads.as_account),
        ("stop", carry_out_stop, world.reads.as_intent),
        ("connection", move_on, world.reads.as_connection),
        ("refresh", lapse_refresh, world.reads.as_grant),
        ("forward", send_again, world.reads.as_delivery),
        ("parked", send_parked, world.reads.as_delivery),
        ("replay", replay_waiting, world.reads.as_account),
    )
    first = world.clock.now() // MINUTE % SHARDS  # another one each minute: where time runs out, none is always last
    for kind, step, read in steps:
        for number in range(SHARDS):
            _pass(kind, (first + number) % SHARDS, step, read, deadline, world, run)
    _publish(deadline, world, run)
    return run


def _publish(deadline: Deadline, world: Reconciling, run: Reconciled) -> None:
    """What the steps wrote is the stream's to publish; this is for what it left."""
    try:
        told = publish_left(deadline, world.store, world.publishing)
    except Exception as fault:  # noqa: BLE001 - as in `_pass`
        run.failed["publish"] = run.failed.get("publish", 0) + 1
        world.on_fault("publish", fault)
        return
    for counts, count in ((run.done, told.done), (run.failed, len(told.left) + told.unfit)):
        if count:
            counts["publish"] = count


def _pass(
    kind: str,
    shard: int,
    step: Callable[[Any, Reconciling], None],
    read: Callable[[Any], Any],
    deadline: Deadline,
    world: Reconciling,
    run: Reconciled,
) -> None:
    for item in _due(kind, shard, world):
        if deadline.remaining_ms() < LAST_ITEM_MS:
            return
        try:
            step(read(item), world)
        except MovedError:
            continue  # somebody else did it
        except Exception as fault:  # noqa: BLE001 - the one place where a poisoned item must not stop the others (C-42, I-16)
            run.failed[kind] = run.failed.get(kind, 0) + 1
            world.on_fault(kind, fault)
        else:
            run.done[kind] = run.done.get(kind, 0) + 1


def _due(kind: str, shard: int, world: Reconciling) -> Iterator[Item]:
    """What is due, page by page: however many stay due because they fail, those behind them have their turn (I-16)."""
    after: Cursor | None = None
    while True:
        keys, after = world.store.due_keys(kind, shard, world.clock.now(), PAGE, after)
        yield from world.store.items(keys)
        if after is None:
            return


# --- exchanges -------------------------------------------------------------------------------------------------------


def lapse_exchange(exchange: Exchange, world: Reconciling) -> None:
    """
    End what its worker did not: an empty exchange is unconfirmed once its window and a guard are over (ended, where an
    import's grant stayed the app's); a held grant is released once its hold is.

    Rows 11 and 12. The sweep takes a held grant by itself; this closes its exchange, whoever has the grant by then
    (custody rule 13).
    """
    now = world.clock.now()
    connection = world.reads.connection(exchange.ref)
    if exchange.outcome is ExchangeOutcome.OPEN and exchange.ends + GUARD_MS <= now:
        unconfirmed = may_leave_a_grant(
            exchange, _facts(exchange.client, world) if exchange.kind not in OF_A_CODE else None
        )
        world.connects.end(exchange, connection, now, "no_answer", unconfirmed=unconfirmed, lapsed=True)
    elif exchange.outcome is ExchangeOutcome.HELD and (exchange.hold_ends or 0) + GUARD_MS <= now:
        is_free = world.reads.is_free(exchange)
        world.connects.release(exchange, connection, now, "not_confirmed", with_revocation=is_free, lapsed=True)
        world.kick.revoke_now([exchange.rid])


def _facts(client: str, world: Reconciling) -> ProviderFacts | None:
    try:
        return world.clients.named(client).facts
    except QuitclaimError:
        return None  # it is no longer set up, or its settings do not hold: the safe reading


# --- refreshes -------------------------------------------------------------------------------------------------------


def lapse_refresh(grant: Grant, world: Reconciling) -> None:
    """
    Row 21: a refresh whose lease is over and whose answer nobody saw. Keep, replay or give up, by the provider's facts.
    """
    now, client = world.clock.now(), world.clients.named(grant.client)
    match lapse_of_attempt(grant, client.facts, now):
        case LapseOfAttempt.KEEP:
            world.tokens.forget_attempts(grant, now, stray=False)
        case LapseOfAttempt.KEEP_STRAY:
            world.tokens.forget_attempts(grant, now, stray=True)
        case LapseOfAttempt.REPLAY:
            world.replay.refresh(grant.ref, grant.pair)
        case LapseOfAttempt.GIVE_UP:
            lose_grant(
                grant,
                StopReason.REFRESH_UNCONFIRMED,
                refused_attempt=None,
                purges=client.purge_on_loss,
                world=world.stopping,
            )
        case LapseOfAttempt.WAIT:
            return


# --- deleted owners --------------------------------------------------------------------------------------------------


def stop_all_of(seen: tuple[OwnerRef, Owner], world: Reconciling, *, deadline: Deadline) -> None:
    """Rows 26 and 27: the connections of a deleted owner, as many as fit; the owner stays due until all are stopped."""
    ref, owner = seen
    if owner.is_deleted and owner.stopped_at is None:
        carry_out_deletion(ref, owner, deadline, world.stopping, world.store)


# --- revocations -----------------------------------------------------------------------------------------------------


def finish(revocation: Revocation, world: Reconciling) -> None:
    """
    Row 39, and then whatever closes by it: each open stop of the connection, whether it names this revocation or only
    the barrier does.
    """
    if finish_settled(revocation, reads=world.reads, store=world.revocations, now=world.clock.now()):
        for intent in world.reads.intents(revocation.ref):
            if intent.closed is None:
                carry_out_stop(intent, world)


def wake_account(where: tuple[str, str], world: Reconciling) -> None:
    """
    Row 32: nothing lives on the account any more; what is parked beside it is due again, one transaction each. They are
    of several owners: one that fails keeps none of the others parked (I-16).
    """
    client, digest = where
    failed: Exception | None = None
    for rid in world.store.parked_beside(client, digest):
        account = world.reads.account(client, digest)
        if account is None or account.live:
            return
        try:
            _wake(rid, world, client=client, digest=digest)
        except Exception as fault:  # noqa: BLE001 - raised once the others have been woken
            failed = fault
    if failed is not None:
        raise failed


def _wake(rid: str, world: Reconciling, *, client: str = "", digest: str = "") -> None:
    revocation = world.reads.revocations([rid])[rid]
    if revocation is None or revocation.state is not RevocationState.PARKED:
        return
    account = world.reads.account(client, digest) if digest else None
    world.store.wake(revocation, account, world.clock.now())
    world.kick.revoke_now([rid])


# --- stops -----------------------------------------------------------------------------------------------------------


def carry_out_stop(intent: StopIntent, world: Reconciling) -> None:
    """
    Take a stop as far as it goes: purge, compensations, what its own end wakes, close. What is not done yet is looked
    at again on the ladder.

    Our own derived data of a connection are its sources (an inbox comes with webhooks); then the app is asked for its
    own, where it has a hook for that (`purge`), with the same id however often. Until it says that it is done, the
    purge is pending: it keeps the stop open and the client's barrier shut. Where the run has waited for the app long
    enough, the stop stays due as it is, before those that were asked: the next run asks it first.
    """
    if intent.closed is not None:
        return
    ref, now = intent.ref, world.clock.now()
    if intent.overdue is None and intent.is_overdue(now):
        world.store.show_overdue(intent, now)  # first: whatever fails below must not keep it off the list
    is_put_off = intent.purge == "pending" and _is_put_off(world)
    if is_put_off and intent.comp_derived:
        return
    if intent.purge == "pending" and not is_put_off:
        for source in world.reads.sources(ref):
            world.store.forget_source(source)
        if _app_has_purged(intent, world):
            owner, _, barrier = world.reads.fence(ref, intent.client)
            is_deleted = owner is not None and owner.is_deleted
            is_listed = barrier is not None and (not is_deleted or intent.in_barrier in barrier.purges)
            world.store.purge_done(intent, now, has_barrier=is_listed)
    if not intent.comp_derived:
        world.store.compensations_derived(intent)
    current = next((each for each in world.reads.intents(ref) if each.generation == intent.generation), None)
    if current is None or current.closed is not None:
        return
    _wake_family(current, world)
    if not _close(current, world) and not is_put_off:
        world.store.postpone(current, now + ladder_step_ms(min(current.tries, 98) + 1))


def _is_put_off(world: Reconciling) -> bool:
    """Whether the app would be asked, and has had its share of this run."""
    return isinstance(world.hooks, HooksInTime) and world.hooks.is_over and world.hooks.has(HookKind.PURGE)


def _app_has_purged(intent: StopIntent, world: Reconciling) -> bool:
    """Whether the app has removed what it derived from the connection, or does not want to be asked."""
    if not world.hooks.has(HookKind.PURGE):
        return True
    ref = intent.ref
    id_ = hook_id(HookKind.PURGE, ref.tenant, ref.owner, intent.in_barrier)
    data = {
        "tenant": ref.tenant,
        "owner": ref.owner,
        "connection_id": ref.connection,
        "generation": intent.generation,
        "reason": intent.reason,
    }
    answer = world.hooks.ask(HookCall(HookKind.PURGE, id_, intent.since, data))
    if answer.outcome in (HookOutcome.FAILED, HookOutcome.UNREACHED):
        world.on_hook(HookKind.PURGE, answer)
    return answer.is_done


def _wake_family(intent: StopIntent, world: Reconciling) -> None:
    for rid in world.store.parked_within_family(intent.ref):
        try:
            _wake(rid, world)
        except MovedError:
            continue  # its family is live again at the connection


def _close(intent: StopIntent, world: Reconciling) -> bool:
    """Row 47; False if something is still open."""
    ref = intent.ref
    owner, connection, barrier = world.reads.fence(ref, intent.client)
    resolved = world.reads.resolved(ref.of_owner, barrier)
    in_flight = resolved.in_flight
    if in_flight is not None and in_flight.ref == ref and not in_flight.outcome.is_over:
        return False  # one that is over stands there only where the owner is deleted (row 26)
    # What an exchange of this life held when the stop came was released, and may be finished and off the barrier
    # by now: it counts for what the stop says of itself (custody rule 5). So does one whose outcome nobody knows: once
    # it is acknowledged, there is the owner's word for it and no more.
    late = [each for each in world.reads.exchanges(ref) if each.is_ended_by(intent.generation)]
    released = {each.rid for each in late if each.outcome is ExchangeOutcome.CLEANUP}
    own = {rid: item for rid, item in resolved.revocations.items() if item is None or item.ref == ref}
    listed = world.reads.revocations(intent.rids | released) | own
    exchanges = [item for item in resolved.exchanges.values() if item is None or item.ref == ref]
    lapsed: frozenset[str] = frozenset()
    if owner is not None and owner.is_deleted:
        lapsed = lapsed_notices(listed.values(), exchanges, world.clock.now())
    attested = any(each.outcome is ExchangeOutcome.UNCONFIRMED for each in late)
    close = close_of(intent, listed.values(), exchanges, lapsed=lapsed, attested=attested)
    if close is Close.NOT_YET:
        return False
    # Each parked one lies beside an account of its own: another may have been chosen for each life of the connection.
    beside: dict[str, Account] = {}
    for item in listed.values():
        if item is not None and item.state is RevocationState.PARKED and item.account is not None:
            account = world.reads.account(intent.client, item.account)
            if account is None or account.live == 0:
                return False  # it is about to wake
            beside[item.account] = account
    try:
        world.store.close(intent, connection, barrier, close, beside, world.clock.now())
    except MovedError:
        return False
    return True


# --- deliveries ------------------------------------------------------------------------------------------------------


def send_again(delivery: Delivery, world: Reconciling) -> None:
    """
    Row 69. An accepted event that nobody finished goes to the queue once more, and again on the ladder: a message that
    was lost, or given up by the queue, costs no event.
    """
    now = world.clock.now()
    if delivery.state.is_over or (delivery.next or now) > now:
        return
    world.webhooks.sent_again(delivery, now + ladder_step_ms(delivery.sends + 1))
    world.forward.send(delivery.client, delivery.digest)


def send_parked(delivery: Delivery, world: Reconciling) -> None:
    """
    The day of an event that waits is over: whoever handles it delivers it or lets it go. So it is with one whose worker
    died: a claim leaves it due for what it was due for.
    """
    if not delivery.state.is_over and delivery.give_up_at <= world.clock.now():
        world.forward.send(delivery.client, delivery.digest)


def replay_waiting(where: tuple[str, str], world: Reconciling) -> None:
    """Events wait beside an account that has a live grant by now; it stays due until none does."""
    client, digest = where
    account = world.reads.account(client, digest)
    if account is not None and account.live and account.waiting:
        world.forward.replay(client, digest)


# --- connections that wait -------------------------------------------------------------------------------------------


def move_on(connection: Connection, world: Reconciling) -> None:
    """Rows 15 and 46: a link nobody finished lapses; a revocation that takes longer than a minute shows as such."""
    now = world.clock.now()
    if connection.state is ConnectionState.AUTHORIZING:
        if connection.phase is Phase.LINK and (connection.lapse_at or 0) + GUARD_MS <= now:
            world.connects.lapse_link(connection, now)
        elif connection.phase is Phase.EXCHANGING:
            exchange = world.reads.exchange(connection.ref, connection.exchange or "")
            if exchange is not None and is_left_behind(connection, exchange):
                world.connects.leave_behind(connection, exchange, now)
            else:  # the exchange has its own due time, and takes the connection along when it ends
                world.store.move(connection, replace(connection, lapse_at=now + MINUTE), now)
        return
    is_revoking = connection.state in (ConnectionState.REVOKING, ConnectionState.RECONCILING_REVOKE)
    if is_revoking and connection.effect_at is not None and connection.effect_at <= now:
        step = (connection.step or 0) + 1
        after = replace(
            connection,
            state=ConnectionState.RECONCILING_REVOKE,
            step=step,
            effect_at=now + ladder_step_ms(step),
        )
        world.store.move(connection, after, now)
