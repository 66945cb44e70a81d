"""
The guards that the protocol keeps in Python and not in a condition, each with what it is when it is open (T-13).

A short list by hand: a decision of a flow that a rule of the model names. Most have a condition behind them that
decides again at the write; those are killed together with it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from quitclaim.domain.accounts import Account
from quitclaim.domain.connect import Owner, Resolved
from quitclaim.domain.deliveries import Fate, Verdict, fate_of, verdict_on
from quitclaim.domain.limits import GUARD_MS, REFRESH_CALL_MS, REVOKE_CALL_MS
from quitclaim.domain.renewals import Awaited, after_successor
from quitclaim.domain.revocations import RevocationState, Settlement, Step
from quitclaim.domain.stop import Close
from quitclaim.domain.tokens import LapseOfAttempt, lapse_of_attempt
from quitclaim.domain.webhooks import Trust
from quitclaim.flows import deliveries, revocations, stop
from quitclaim.ports import Update, Write
from quitclaim.store.connect import ConnectStore
from quitclaim.store.reads import Reads
from quitclaim.store.reconcile import ReconcileStore
from quitclaim.store.revocations import RevocationStore
from quitclaim.store.webhooks import WebhookStore

if TYPE_CHECKING:
    from tests.proof.broken import BreakableTable
    from tests.proof.world import World

type Opening = Callable[["World", "BreakableTable"], AbstractContextManager[Any]]

LONG_AGO: Final = -(10**12)


@dataclass(frozen=True)
class Guard:
    """A decision of a flow, the function that makes it, and what the flow is without it."""

    name: str
    where: str
    open: Opening


def _instead(target: str, value: Any) -> Opening:
    return lambda world, table: patch(target, value)


def _rewritten(title: str, change: Callable[[Update], Write | None]) -> Opening:
    """The write of that title is another one."""

    @contextmanager
    def opened(world: "World", table: "BreakableTable") -> Any:
        table.rewrites[title] = change
        try:
            yield
        finally:
            del table.rewrites[title]

    return opened


def _all(*openings: Opening) -> Opening:
    @contextmanager
    def opened(world: "World", table: "BreakableTable") -> Any:
        with ExitStack() as stack:
            for each in openings:
                stack.enter_context(each(world, table))
            yield

    return opened


def _hiding(*names: str) -> Opening:
    """A refused write does not tell whose the item's last write was."""

    @contextmanager
    def opened(world: "World", table: "BreakableTable") -> Any:
        before, table.hidden = table.hidden, frozenset(names)
        try:
            yield
        finally:
            table.hidden = before

    return opened


# --- what the flows are without them ---------------------------------------------------------------------------------


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _lose_whatever_is_there(grant: Any, reason: Any, *, world: Any, **asked: Any) -> bool:
    current = world.reads.grant(grant.ref, grant.pair)
    return LOSE_GRANT(current or grant, reason, world=world, **asked)


def _acknowledge_everything(ref: Any, *, reads: Any, store: Any, clock: Any) -> int:
    for intent in reads.intents(ref):
        for item in reads.revocations(intent.rids).values():
            if item is not None and item.acknowledged is None:
                store.acknowledge(item, clock.now(), has_barrier=True)
    return ACKNOWLEDGE(ref, reads=reads, store=store, clock=clock)


def _claim_family_unseen(revocation: Any, now: int, world: Any, swept: Any) -> Any:
    return [world.store.claim_within_family(revocation, now)]


def _claim_wide_unseen(revocation: Any, now: int, world: Any, swept: Any) -> Any:
    if revocation.account is None:
        return []
    account = world.reads.account(revocation.client, revocation.account)
    return [world.store.claim_account_wide(revocation, revocation.account, account, now)]


def _queued_with_a_key(world: "World", table: "BreakableTable") -> AbstractContextManager[Any]:
    def queued(*asked: Any, **named: Any) -> Any:
        made = QUEUED_OF(*asked, **named)
        if world.keys_out:
            return replace(made, state=RevocationState.UNREADABLE, material=(), settled_at=made.queued)
        return made

    return patch.object(stop, "queued_of", queued)


def _owner_unread(reads: Reads, ref: Any, pair: str) -> Any:
    return Owner(), reads.grant(ref, pair)


def _claim_whatever_is_pending(revocation: Any, now: int) -> Step:
    return Step.CLAIM if revocation.state is RevocationState.PENDING else Step.LEAVE


def _expire_whatever_is_pending(revocation: Any, now: int) -> Step:
    return Step.EXPIRE if revocation.state is RevocationState.PENDING else Step.LEAVE


def _forget_whatever_is_pending(revocation: Any, now: int) -> Step:
    return Step.FORGET if revocation.state is RevocationState.PENDING else Step.LEAVE


def _lapsed_whenever_it_ends(grant: Any, facts: Any, now: int) -> LapseOfAttempt:
    return LAPSE(grant, facts, max(now, (grant.lease_until or now) + GUARD_MS))


def _forget_without_a_loss(store: RevocationStore, revocation: Any, now: int, *, loses: bool) -> None:
    FORGET_RENEWAL(store, revocation, now, loses=False)


def _confirmed_with_its_successor(revocation: Any, successor: Any, facts: Any) -> Awaited:
    if successor is not None and successor.state is RevocationState.CONFIRMED:
        return Awaited.CONFIRM
    return AFTER_SUCCESSOR(revocation, successor, facts)


def _dropped_where_it_waits(*seen: Any, **more: Any) -> Fate:
    fate = FATE(*seen, **more)
    return Fate.DROP_UNKNOWN if fate is Fate.PARK else fate


def _dropped_where_it_failed(claim: Any, delivery: Any, world: Any, accounts: Any = frozenset()) -> Any:
    return deliveries._dropped(claim, delivery, "failed", world)  # noqa: SLF001 - the flow's own way to end one


@contextmanager
def _taken_whatever_the_bus_says(world: "World", table: "BreakableTable") -> Any:
    from tests.proof.world import SimulatedBus

    send = SimulatedBus.send

    def told(bus: Any, notices: Any) -> list[bool]:
        send(bus, notices)
        return [True] * len(notices)

    with patch.object(SimulatedBus, "send", told):
        yield


FATE: Final = fate_of
VERDICT: Final = verdict_on
FORGET_RENEWAL: Final = RevocationStore.forget_renewal
AFTER_SUCCESSOR: Final = after_successor
LOSE_GRANT: Final = stop.lose_grant
ACKNOWLEDGE: Final = revocations.acknowledge
QUEUED_OF: Final = stop.queued_of
LAPSE: Final = lapse_of_attempt

GUARDS: Final[Sequence[Guard]] = (
    # connect
    Guard(
        "connect: what is owed refuses a start and a begin",
        "flows/connect/connecting.py: refuse_blocked",
        _all(
            *(
                _instead(f"quitclaim.flows.connect.{module}.refuse_blocked", _nothing)
                for module in ("start", "brokers", "exchange")
            )
        ),
    ),
    Guard(
        "connect: what is owed refuses an install as well",
        "flows/connect/install.py: install",
        lambda world, table: patch.object(Resolved, "blockers", lambda _: ()),
    ),
    Guard(
        "connect: a link of another generation begins nothing",
        "domain/connect.py: refusal_of_link",
        _all(
            *(
                _instead(f"quitclaim.flows.connect.{module}.refusal_of_link", _nothing)
                for module in ("link", "exchange", "callback")
            )
        ),
    ),
    Guard(
        "connect: a link leads out only while it lasts",
        "domain/connect.py: may_visit",
        _all(
            *(_instead(f"quitclaim.flows.connect.{module}.may_visit", lambda *_: True) for module in ("start", "link"))
        ),
    ),
    Guard(
        "connect: the code leaves only inside its window",
        "flows/connect/callback.py: _complete",
        _instead("quitclaim.flows.connect.callback.GUARD_MS", LONG_AGO),
    ),
    Guard(
        "connect: what was granted is held before it is judged",
        "flows/connect/hold.py: hold",
        lambda world, table: patch.object(ConnectStore, "hold", _nothing),
    ),
    Guard(
        "connect: a late grant is queued",
        "flows/connect/late_grants.py: queue_late",
        _instead("quitclaim.flows.connect.hold.queue_late", _nothing),
    ),
    Guard(
        "connect: the connection of a late grant fails",
        "flows/connect/late_grants.py: leave_behind; domain/connect.py: is_left_behind",
        _all(
            _instead("quitclaim.flows.connect.hold.leave_behind", _nothing),
            _instead("quitclaim.flows.reconcile.is_left_behind", lambda *_: False),
        ),
    ),
    Guard(
        "connect: what an account is called as well is held with its grant",
        "flows/connect/hold.py: with_names",
        _instead("quitclaim.flows.connect.hold.with_names", lambda known, *_: (known, 0)),
    ),
    Guard(
        "connect: what moved on is not installed",
        "flows/connect/install.py: _refusal_of_install",
        _instead("quitclaim.flows.connect.install._refusal_of_install", _nothing),
    ),
    Guard(
        "connect: a grant that a wide revocation may have ended is not installed",
        "domain/accounts.py: Account.admits",
        lambda world, table: patch.object(Account, "admits", lambda *_: True),
    ),
    # tokens
    Guard(
        "tokens: only a free lease is taken",
        "domain/tokens.py: may_lease",
        _instead("quitclaim.flows.tokens.may_lease", lambda *_: True),
    ),
    Guard(
        "tokens: the refresh leaves only inside its lease",
        "domain/tokens.py: call_limit_ms",
        _instead("quitclaim.flows.tokens.call_limit_ms", lambda *_: REFRESH_CALL_MS),
    ),
    Guard(
        "tokens: an attempt is added to the record, never in place of another",
        "store/tokens.py: record",
        _rewritten(
            "tokens.record / update grant",
            lambda write: replace(write, put={**write.put, "attempts": write.include["attempts"]}, include={}),
        ),
    ),
    Guard(
        "tokens: what an unseen attempt may have left is marked",
        "domain/tokens.py: lapse_of_attempt; store/tokens.py: save",
        _all(
            _instead(
                "quitclaim.flows.reconcile.lapse_of_attempt",
                lambda *seen: LapseOfAttempt.KEEP if LAPSE(*seen) is LapseOfAttempt.KEEP_STRAY else LAPSE(*seen),
            ),
            _rewritten(
                "tokens.save / update grant",
                lambda write: replace(write, put={name: value for name, value in write.put.items() if name != "stray"}),
            ),
        ),
    ),
    Guard(
        "tokens: an old token that survives is queued",
        "flows/tokens.py: _replaced",
        _instead("quitclaim.flows.tokens._replaced", _nothing),
    ),
    Guard(
        "tokens: a token that cannot be saved is queued",
        "flows/tokens.py: _queue_orphan",
        _instead("quitclaim.flows.tokens._queue_orphan", _nothing),
    ),
    Guard(
        "tokens: the owner is read with the grant",
        "store/reads.py: owner_and_grant",
        lambda world, table: patch.object(Reads, "owner_and_grant", _owner_unread),
    ),
    Guard(
        "tokens: the owner is read again behind a fresh grant",
        "domain/tokens.py: is_saved_recently",
        _instead("quitclaim.flows.tokens.is_saved_recently", lambda *_: False),
    ),
    Guard(
        "tokens: the owner is read again behind a save",
        "flows/tokens.py: _refuse_deleted",
        _instead("quitclaim.flows.tokens._refuse_deleted", _nothing),
    ),
    Guard(
        "tokens: a write that was applied but reported failed is known again",
        "store/commit.py: run; store/tokens.py: save",
        _hiding("op", "saved_by", "fp"),
    ),
    Guard(
        "tokens: only the very grant that was refused is lost",
        "flows/stop.py: lose_grant",
        _instead("quitclaim.flows.tokens.lose_grant", _lose_whatever_is_there),
    ),
    # stop
    Guard(
        "stop: only the generation that the caller saw",
        "domain/connect.py: may_stop",
        _instead("quitclaim.flows.stop.may_stop", lambda *_: True),
    ),
    Guard("stop: no key is needed", "flows/stop.py: queued_of", _queued_with_a_key),
    Guard(
        "stop: a refresh that is open is expected",
        "flows/stop.py: queued_of",
        _instead(
            "quitclaim.flows.stop.queued_of",
            lambda *seen: replace(QUEUED_OF(*seen), expected=frozenset(), expected_until=None),
        ),
    ),
    # revocations
    Guard(
        "revocations: only what is due and free is claimed",
        "domain/revocations.py: next_step",
        _instead("quitclaim.flows.revocations.next_step", _claim_whatever_is_pending),
    ),
    Guard(
        "revocations: only what is over expires",
        "domain/revocations.py: next_step",
        _instead("quitclaim.flows.revocations.next_step", _expire_whatever_is_pending),
    ),
    Guard(
        "revocations: only a successor that can come no more is forgotten",
        "domain/revocations.py: next_step",
        _instead("quitclaim.flows.revocations.next_step", _forget_whatever_is_pending),
    ),
    Guard(
        "revocations: the revoke leaves only inside its claim",
        "domain/revocations.py: call_limit_ms",
        _instead("quitclaim.flows.revocations.call_limit_ms", lambda *_: REVOKE_CALL_MS),
    ),
    Guard(
        "revocations: never confirmed while a successor may be alive",
        "domain/revocations.py: settlement",
        _instead("quitclaim.flows.revocations.settlement", lambda *_: Settlement.CONFIRMED),
    ),
    Guard(
        "revocations: a successor that never came is not forgotten",
        "store/revocations.py: forget_successor",
        _rewritten(
            "revocations.forget_successor / update revocation",
            lambda write: replace(write, put={name: value for name, value in write.put.items() if name != "lost"}),
        ),
    ),
    Guard(
        "revocations: an exchange is acknowledged only behind its window",
        "flows/revocations.py: acknowledge",
        _instead("quitclaim.flows.revocations.GUARD_MS", LONG_AGO),
    ),
    Guard(
        "revocations: only a notice is acknowledged",
        "flows/revocations.py: acknowledge",
        _instead("tests.proof.scripts.acknowledge", _acknowledge_everything),
    ),
    Guard(
        "revocations: nothing live is in its reach",
        "flows/revocations.py: _claim_family, _claim_wide",
        _all(
            _instead("quitclaim.flows.revocations._claim_family", _claim_family_unseen),
            _instead("quitclaim.flows.revocations._claim_wide", _claim_wide_unseen),
        ),
    ),
    # webhooks, deliveries, events
    Guard(
        "webhooks: what is answered is there",
        "flows/webhooks.py: _accept",
        lambda world, table: patch.object(WebhookStore, "accept", lambda *_: True),
    ),
    Guard(
        "deliveries: the app has taken it before its share is on record",
        "flows/deliveries.py: _is_taken",
        _instead("quitclaim.flows.deliveries._is_taken", lambda *_: True),
    ),
    Guard(
        "deliveries: what nobody can have yet waits",
        "domain/deliveries.py: fate_of",
        _instead("quitclaim.flows.deliveries.fate_of", _dropped_where_it_waits),
    ),
    Guard(
        "deliveries: what waits goes first",
        "flows/deliveries.py: _behind",
        _instead("quitclaim.flows.deliveries._behind", _nothing),
    ),
    Guard(
        "deliveries: what failed is tried again",
        "flows/deliveries.py: _released",
        _instead("quitclaim.flows.deliveries._released", _dropped_where_it_failed),
    ),
    Guard(
        "deliveries: a departure stops no grant but the one that it speaks of",
        "domain/deliveries.py: verdict_on",
        _instead("quitclaim.flows.deliveries.verdict_on", lambda *_, **__: Verdict.STOP),
    ),
    Guard(
        "deliveries: a hint stops nothing",
        "domain/deliveries.py: verdict_on",
        _instead(
            "quitclaim.flows.deliveries.verdict_on", lambda trust, *seen, **more: VERDICT(Trust.SIGNED, *seen, **more)
        ),
    ),
    Guard(
        "deliveries: of what is doubtful the provider is asked",
        "flows/deliveries.py: _checked",
        _instead("quitclaim.flows.deliveries._checked", lambda *_: Verdict.CHECK.value),
    ),
    Guard(
        "events: what the bus did not take stays due",
        "flows/events.py: publish",
        _taken_whatever_the_bus_says,
    ),
    # reconcile
    Guard(
        "reconcile: only what is over lapses",
        "flows/reconcile.py: lapse_exchange, move_on",
        _instead("quitclaim.flows.reconcile.GUARD_MS", LONG_AGO),
    ),
    Guard(
        "reconcile: a refresh is given up only when its lease is over",
        "domain/tokens.py: lapse_of_attempt",
        _instead("quitclaim.flows.reconcile.lapse_of_attempt", _lapsed_whenever_it_ends),
    ),
    Guard(
        "reconcile: purged before it is closed",
        "flows/reconcile.py: carry_out_stop",
        lambda world, table: patch.object(ReconcileStore, "purge_done", _nothing),
    ),
    Guard(
        "reconcile: compensations are on record before it is closed",
        "flows/reconcile.py: carry_out_stop",
        lambda world, table: patch.object(ReconcileStore, "compensations_derived", _nothing),
    ),
    Guard(
        "reconcile: what is parked wakes",
        "flows/reconcile.py: wake_account, _wake_family",
        _all(
            _instead("quitclaim.flows.reconcile.wake_account", _nothing),
            _instead("quitclaim.flows.reconcile._wake_family", _nothing),
        ),
    ),
    Guard(
        "reconcile: a stop is closed only when all of it is over",
        "domain/stop.py: close_of",
        _instead("quitclaim.flows.reconcile.close_of", lambda *_: Close.CONFIRMED),
    ),
)

BY_NAME: Final[Mapping[str, Guard]] = {guard.name: guard for guard in GUARDS}
