"""
Handling accepted events: each is claimed, its accounts are resolved to the connections that live on them, and every
one of these has its share once. What nobody can have yet waits beside its account; what says that an account left
stops the grant that it speaks of, or has the provider asked.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import batched, chain
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.accounts import Account, Named, name_of
from quitclaim.domain.connect import STEP_UP, Connection
from quitclaim.domain.deliveries import (
    CheckStep,
    Fate,
    Life,
    Standing,
    Verdict,
    check_step,
    fate_of,
    is_reached,
    standing_of,
    verdict_on,
)
from quitclaim.domain.errors import (
    MovedError,
    ProviderNotRegisteredError,
    QuitclaimError,
    SealBrokenError,
)
from quitclaim.domain.events import Event, EventKind
from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind, HookOutcome, hook_id
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    CHECK_EVERY_MS,
    EVENT_ACCOUNTS,
    GUARD_MS,
    HOOK_CALL_MS,
    MINUTE,
    POISON_CLAIMS,
    SECOND,
    ladder_step_ms,
)
from quitclaim.domain.stop import StopReason
from quitclaim.domain.tokens import Grant
from quitclaim.domain.webhooks import Claim, ClaimVerdict, Delivery, DeliveryState, Prepared
from quitclaim.flows.sources import Admitted, admitted, stamp
from quitclaim.flows.stop import Stopping, lose_grant
from quitclaim.ports import AppHooks, Client, Clients, Clock, Deadline, Replay, Vault

if TYPE_CHECKING:
    from quitclaim.store.deliveries import DeliveryStore
    from quitclaim.store.reads import Reads
    from quitclaim.store.sources import SourceStore
    from quitclaim.store.tokens import TokenStore
    from quitclaim.store.webhooks import WebhookStore

TRIES: Final = 5
LAST_SHARE_MS: Final = 2 * HOOK_CALL_MS + 5 * SECOND
"""No further share is begun with less of the invocation left: the app may be asked twice, about source and event."""
TOLD_CHARS: Final = 128
"""Of what a provider calls its hint, as it is remembered."""
NAME_OF_EVENT: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
"""What a provider calls its event, as the app may be told of it: a name, and nothing that may say more."""


@dataclass(frozen=True)
class Delivering:
    """What handling an event needs of the world."""

    reads: "Reads"
    webhooks: "WebhookStore"
    store: "DeliveryStore"
    sources: "SourceStore"
    tokens: "TokenStore"
    stopping: Stopping
    clients: Clients
    vault: Vault
    clock: Clock
    replay: Replay
    hooks: AppHooks
    on_fault: Callable[[str, Exception], None]
    """Told of an attempt that failed: it is made again."""
    on_hook: Callable[[HookKind, HookAnswer], None] = lambda kind, answer: None
    """Told of a hook that did not take an event; it is asked again."""


class Outcome(StrEnum):
    """What one attempt came to."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"
    DROPPED = "dropped"
    KEPT = "dropped, kept for operators"
    PARKED = "parked"
    WAITS = "waits"
    """Released: it is tried again at the time that it stands in `due` with."""
    TAKEN = "taken"
    """Another worker has it; nothing was done."""


@dataclass
class Delivered:
    """What one attempt came to; *until*: when a delivery that another worker has may be free."""

    outcome: Outcome
    until: int | None = None
    reason: str | None = None
    shares: dict[str, int] = field(default_factory=dict)
    """How many connections had which share of it; counts only."""


def deliver(client: str, digest: str, deadline: Deadline, world: Delivering) -> Delivered:
    """
    Make one attempt to handle an accepted event.

    1. `claim` (row 66), before anything else is read. Crash after it: free when the lease and a guard are over.
    2. Each connection of its accounts: what the event means for it (a source that it names is connected first, row 80,
       or it waits; the app is asked to take it; of a departure
       `lose_grant`, or the grant is doubted and the provider asked), and `record_share` (row 72), which it has once
       however often this runs. Crash between the two: the first is repeated, with the same id, or finds itself done.
    3. `end` (row 74), `park` (73), `keep` (75) or `release` (68). Crash before it: as after 1.

    A failure of what it needs releases it, to be tried again on the ladder (M-71, M-76); after a day it is dropped and
    shown. Raises nothing but what the table's silence leaves.
    """
    delivery = world.reads.delivery(client, digest)
    if delivery is None:
        return Delivered(Outcome.DUPLICATE)  # it was over for longer than anybody remembers
    now = world.clock.now()
    try:
        claim = world.webhooks.claim(delivery, now)
    except MovedError as moved:
        found = moved.seen.get("delivery")
        if found is not None and found.verdict(now) is ClaimVerdict.TAKEN:
            return Delivered(Outcome.TAKEN, until=(found.until or now) + GUARD_MS)
        return Delivered(Outcome.DUPLICATE)
    try:
        # Again, now that nobody else changes it: it may have been parked between the look and the claim.
        mine = world.reads.delivery(client, digest)
        if mine is None or mine.claim != claim.token:
            return Delivered(Outcome.TAKEN, until=now + SECOND)
    except QuitclaimError as fault:
        world.on_fault("deliver", fault)
        until = now + ladder_step_ms(delivery.claims + 1)
        world.webhooks.release(claim, delivery, until)
        return Delivered(Outcome.WAITS, until=until)
    return _attempted(claim, mine, deadline, world)


def _attempted(claim: Claim, delivery: Delivery, deadline: Deadline, world: Delivering) -> Delivered:
    try:
        return _handled(claim, delivery, deadline, world)
    except MovedError:
        return Delivered(Outcome.TAKEN, until=world.clock.now() + SECOND)  # the claim was lost: somebody else decides
    except QuitclaimError as fault:
        world.on_fault("deliver", fault)
        return _released(claim, delivery, world)


def _handled(claim: Claim, delivery: Delivery, deadline: Deadline, world: Delivering) -> Delivered:
    try:
        client = world.clients.named(claim.client)
    except ProviderNotRegisteredError:
        return _dropped(claim, delivery, "client gone", world)  # M-70
    if delivery.claims > POISON_CLAIMS and delivery.give_up_at <= world.clock.now():
        return _kept(claim, delivery, "failed for a day", world)  # it may be what ends its workers: none has said
    opened = _opened(delivery, world)
    if opened is None:
        return _kept(claim, delivery, "unreadable", world)
    event = opened[0]
    if event.named_by is not None:
        return _handled_by_name(Given(claim, delivery, *opened), event.named_by, client, deadline, world)
    for _ in range(TRIES):
        now = world.clock.now()
        accounts = _accounts(claim.client, event, world)
        fate = fate_of(event, (standing_of(account, now) for account in accounts.values()))
        if fate is Fate.DELIVER:
            behind = None if event.deauthorizes else _behind(claim, accounts, world)
            if behind is None:
                given, shares = Given(claim, delivery, *opened), _shares_of(claim, world)
                targets = _members(claim.client, accounts, world)
                return _shared(given, targets, accounts, shares, client, deadline, world)
        elif fate is Fate.PARK:
            behind = _beside(delivery, accounts, now)
        else:
            return _dropped(claim, delivery, fate.value, world)
        if delivery.give_up_at <= now:
            return _waited_too_long(claim, delivery, event, accounts, world)
        if delivery.beside not in (None, behind):
            return _released(claim, delivery, world)  # it has its place in one line, and is counted there
        level = (event.kind or "")[:TOLD_CHARS] if event.is_level else None
        if level is not None and delivery.beside is None and level in world.store.levels(claim.client, behind):
            return _dropped(claim, delivery, "said already", world)  # M-75: what waits says it as well
        try:
            world.store.park(claim, delivery, behind, accounts[behind], now, level=level)
        except MovedError as moved:
            if "delivery" in moved.seen:
                raise
            continue  # the account moved: it may be live by now
        return Delivered(Outcome.PARKED)
    return _released(claim, delivery, world)


def _waited_too_long(
    claim: Claim, delivery: Delivery, event: Prepared, accounts: dict[str, Account | None], world: Delivering
) -> Delivered:
    """Operators are shown what somebody may miss: nobody misses a departure, or an event of an account never met."""
    if event.deauthorizes:
        return _dropped(claim, delivery, "nothing to stop", world)
    if all(account is None or account.is_unmet for account in accounts.values()):
        return _dropped(claim, delivery, Fate.DROP_UNKNOWN.value, world)
    return _kept(claim, delivery, "waited too long", world, frozenset(accounts))


def _opened(delivery: Delivery, world: Delivering) -> tuple[Prepared, bytes] | None:
    """What it means, and the provider's own bytes; None: nobody can read it any more."""
    if delivery.body is None:
        return None
    try:
        return world.vault.open_delivery(delivery.client, delivery.digest, delivery.body)
    except SealBrokenError as fault:
        world.on_fault("deliver", fault)
        return None


def _accounts(client: str, event: Prepared, world: Delivering) -> dict[str, Account | None]:
    """The accounts that it names, by digest, as they are now."""
    digests = [world.vault.account_digest(client, account) for account in event.accounts]
    return {digest: world.reads.account(client, digest) for digest in digests}


def _behind(claim: Claim, accounts: dict[str, Account | None], world: Delivering) -> str | None:
    """The account beside which earlier events still wait, so that this one waits behind them; None: it is its turn."""
    for digest, account in accounts.items():
        if account is not None and account.live and account.waiting:
            first = next(world.store.waiting(claim.client, digest), None)
            if first is not None and first != claim.digest:
                return digest
    return None


def _beside(delivery: Delivery, accounts: dict[str, Account | None], now: int) -> str:
    """Beside which account it waits: where it waits already, or the first that somebody may come back to."""
    if delivery.beside in accounts:
        return str(delivery.beside)
    order = (Standing.LOST, Standing.UNKNOWN, Standing.GONE)
    return min(accounts, key=lambda digest: order.index(standing_of(accounts[digest], now)))


# --- the shares ------------------------------------------------------------------------------------------------------


@dataclass
class Shares:
    """What the connections of an event have had of it: before, and in this attempt."""

    done: frozenset[ConnectionRef] = frozenset()
    """Those that had theirs before."""
    had: dict[str, int] = field(default_factory=dict)
    later: int | None = None
    """When the first of those is to be looked at again that have not had theirs."""
    is_refused: bool = False
    """Whether the app did not take one: it is asked again on the ladder."""

    def count(self, outcome: str) -> None:
        """One more."""
        self.had[outcome] = self.had.get(outcome, 0) + 1

    def wait(self, until: int) -> None:
        """One has to wait."""
        self.later = until if self.later is None else min(self.later, until)


type Target = tuple[ConnectionRef, int, Account]
"""A connection, the generation whose grant is of the account, and that account."""


@dataclass(frozen=True)
class Given:
    """A claimed delivery, opened: what it means, and what the provider sent."""

    claim: Claim
    delivery: Delivery
    event: Prepared
    raw: bytes


def _shared(
    given: Given,
    targets: Iterable[Target],
    accounts: Iterable[str],
    shares: Shares,
    client: Client,
    deadline: Deadline,
    world: Delivering,
) -> Delivered:
    claim, delivery = given.claim, given.delivery
    failed: QuitclaimError | None = None
    for ref, generation, account in targets:
        if ref in shares.done:
            continue
        if deadline.remaining_ms() < LAST_SHARE_MS:
            shares.wait(world.clock.now())
            break
        try:
            _share(given, ref, generation, account, client, shares, world)
        except MovedError as moved:
            if "delivery" in moved.seen:
                raise
            if "share" not in moved.seen:  # else it had it before
                shares.wait(world.clock.now() + MINUTE)
        except QuitclaimError as fault:  # one connection's trouble is none of the others'
            failed = fault
    if failed is not None:
        world.on_fault("share", failed)
    if failed is not None or shares.is_refused:
        released = _released(claim, delivery, world, frozenset(accounts))
        released.shares = shares.had
        return released
    if shares.later is not None:
        world.webhooks.release(claim, delivery, shares.later)
        return Delivered(Outcome.WAITS, until=shares.later, shares=shares.had)
    _leave(claim, delivery, world, world.store.end)
    return Delivered(Outcome.PROCESSED, shares=shares.had)


def _shares_of(claim: Claim, world: Delivering) -> Shares:
    return Shares(world.store.shares(claim.client, claim.digest))


def _members(client: str, accounts: dict[str, Account | None], world: Delivering) -> Iterator[Target]:
    seen: set[ConnectionRef] = set()
    for digest, account in accounts.items():
        if account is None or not account.live:
            continue
        for ref, generation in world.store.members(client, digest):
            if ref not in seen:
                seen.add(ref)
                yield ref, generation, account


def _handled_by_name(given: Given, by: str, client: Client, deadline: Deadline, world: Delivering) -> Delivered:
    """
    Of an event that names a workspace or the like: whoever is of it, by the word of the provider's own identity when
    the grant was made.

    It waits beside no account, since nobody knows whose will come: while nobody is ready it is looked at again on the
    ladder, out of order, and so what comes meanwhile does not wait for it.
    """
    claim, delivery, event, now = given.claim, given.delivery, given.event, world.clock.now()
    digests = [world.vault.account_digest(claim.client, name_of(by, each)) for each in event.accounts]
    shares, accounts = _shares_of(claim, world), dict[str, None]()
    targets = _named(claim.client, digests, accounts, shares, deadline, world)
    first = next(targets, None)
    if first is not None or shares.later is not None or shares.done:
        # Where nobody is ready any more, whoever is without a share has left since the last attempt.
        found = targets if first is None else chain([first], targets)
        return _shared(given, found, accounts, shares, client, deadline, world)
    known = _accounts_of_named(claim.client, list(accounts), deadline, world)
    if known is None:
        world.webhooks.release(claim, delivery, now)
        return Delivered(Outcome.WAITS, until=now)
    # What is live of them is so for another workspace.
    standings = [standing_of(account and replace(account, live=0), now) for account in known.values()]
    fate = fate_of(event, standings or [Standing.UNKNOWN])
    if fate is not Fate.PARK:
        return _dropped(claim, delivery, fate.value, world)
    if delivery.give_up_at <= now:
        return _waited_too_long(claim, delivery, event, known, world)
    return _released(claim, delivery, world)


def _named(
    client: str,
    digests: list[str],
    accounts: dict[str, None],
    shares: Shares,
    deadline: Deadline,
    world: Delivering,
) -> Iterator[Target]:
    """
    Of the grants that were ever of a name, those that live: by that very exchange, of that very account. *accounts*
    becomes those of all. Of whoever had a share nothing is read but the name; out of time, the rest is later.
    """
    met: set[ConnectionRef] = set()
    for digest in digests:
        for page in world.reads.names(client, digest):
            if deadline.remaining_ms() < LAST_SHARE_MS:
                shares.wait(world.clock.now())
                return
            accounts.update(dict.fromkeys(named.account for named in page))
            rest = [named for named in page if named.ref not in shares.done and named.ref not in met]
            live = list(_live_of(rest, world))
            known = dict.fromkeys(named.account for named in live)
            found = dict(zip(known, world.reads.accounts(client, list(known)), strict=True))
            for named in live:
                account = found[named.account]
                if account is not None and named.ref not in met:
                    met.add(named.ref)
                    yield named.ref, named.generation, account


def _live_of(names: list[Named], world: Delivering) -> Iterator[Named]:
    """Those of them whose grant is the live one of its connection."""
    around = world.reads.owners_and_connections([named.ref for named in names])
    for named, (owner, connection) in zip(names, around, strict=True):
        if connection is None or not is_reached(owner, connection, named.generation):
            continue
        if (connection.exchange, connection.account) == (named.exchange, named.account):
            yield named


def _accounts_of_named(
    client: str, digests: list[str], deadline: Deadline, world: Delivering
) -> dict[str, Account | None] | None:
    """The accounts of a workspace of which nobody is ready; None: there is no time to read them all."""
    found: dict[str, Account | None] = {}
    for batch in batched(digests, EVENT_ACCOUNTS, strict=False):
        if deadline.remaining_ms() < LAST_SHARE_MS:
            return None
        found.update(zip(batch, world.reads.accounts(client, batch), strict=True))
    return found


def _share(
    given: Given,
    ref: ConnectionRef,
    generation: int,
    account: Account,
    client: Client,
    shares: Shares,
    world: Delivering,
) -> None:
    owner, connection = world.reads.owner_and_connection(ref)
    if owner is None or connection is None or not is_reached(owner, connection, generation):
        if connection is not None and is_reached(owner, connection, connection.generation):
            # It got another grant after the members were read: they say, read again, whether that is of this account.
            raise MovedError(seen={"member": connection})
        return  # it was stopped since, or its owner is deleted: none of its rights is frozen in an event (M-64)
    told: Event | None = None
    if given.event.deauthorizes:
        outcome = _deauthorized(given.event, connection, account, client, shares, world)
        if outcome is None:
            return
    else:
        stands = Admitted.TAKEN
        if client.facts.has_sources:
            stands = admitted(given.claim, given.delivery, given.event, owner, connection, world)
        if stands is Admitted.WAITS or not (stands.is_over or _is_taken(given, ref, generation, stands, world)):
            shares.is_refused = True
            return
        outcome = stands.value if stands.is_over else "received"
        if not stands.is_over:
            told = _notice(given.claim, given.event, ref, generation, world.clock.now())
    world.store.record_share(given.claim, given.delivery, ref, outcome, told, world.clock.now())
    shares.count(outcome)
    if told is not None:
        stamp(given.event, connection, world)


def _is_taken(given: Given, ref: ConnectionRef, generation: int, stands: Admitted, world: Delivering) -> bool:
    """
    Whether the app has taken the event, or does not want to be asked: with the same id however often, for it is asked
    again until its share is on record (M-79).
    """
    kind = HookKind.WEBHOOK_ACCEPTED
    if not world.hooks.has(kind):
        return True
    event, digest = given.event, given.claim.digest
    said = {
        "event_type": event.kind,
        "content_type": event.content_type,
        "occurred_at": event.occurred_at,
        "resource": event.resource,
        "source": event.source,
        "source_says": event.source_word,
        "source_deferred": stands is Admitted.DEFERRED or None,
        "element": event.element,
        "named_by": event.named_by,
    }
    data = {
        "tenant": ref.tenant,
        "owner": ref.owner,
        "connection_id": ref.connection,
        "generation": generation,
        "provider": event.provider,
        "delivery_id": digest,
        "accepted_at": event.received_at,
        "body": "" if event.truncated else b64encode(given.raw).decode(),
        "truncated": event.truncated,
        **{name: value for name, value in said.items() if value is not None},
    }
    id_ = hook_id(kind, given.claim.client, digest, ref.tenant, ref.owner, ref.connection)
    answer = world.hooks.ask(HookCall(kind, id_, event.received_at, data))
    if answer.outcome in (HookOutcome.FAILED, HookOutcome.UNREACHED):
        world.on_hook(kind, answer)
    return answer.is_done


def _notice(claim: Claim, event: Prepared, ref: ConnectionRef, generation: int, now: int) -> Event:
    """That an event came, without what it says."""
    is_name = event.kind is not None and NAME_OF_EVENT.fullmatch(event.kind) is not None
    told = {
        "delivery_id": claim.digest,
        "provider": event.provider,
        "generation": generation,
        "event": event.kind if is_name else "unnamed",
        "received_at": event.received_at,
    }
    transition = f"{ref.connection}#{claim.digest}"
    return Event(EventKind.WEBHOOK_RECEIVED, ref, transition, now, told)


# --- the provider says that the account left --------------------------------------------------------------------------


def _deauthorized(
    event: Prepared,
    connection: Connection,
    account: Account,
    client: Client,
    shares: Shares,
    world: Delivering,
) -> str | None:
    """
    What the event comes to for one connection; None: it is not settled, and *shares* says when it is looked at again.

    Only the provider's signed word about this very grant stops it; what may be older, untrue or our own doing makes
    the provider be asked, and its answer to a refresh or about the identity decides (custody decision 19).
    """
    ref = connection.ref
    for _ in range(TRIES):
        grants = world.reads.grants(ref, connection.pairs)
        if not grants or grants[0].generation != connection.generation:
            return Verdict.OLDER.value
        grant, now = grants[0], world.clock.now()
        exchange = world.reads.exchange(ref, grant.family.split("#")[0])
        replaced = grant.generation > 1 if exchange is None else exchange.kind == STEP_UP
        life = Life(grant, None if exchange is None else exchange.started, account, replaced)
        verdict = verdict_on(event.trust, event.occurred_at, event.received_at, life, now, sent=event.sent_at)
        if verdict is Verdict.OLDER:
            return verdict.value
        if verdict is Verdict.CHECK:
            return _checked(grant, event, shares, world)
        if lose_grant(
            grant,
            StopReason.GRANT_REJECTED,
            refused_attempt=None,
            purges=client.purge_on_loss,
            world=world.stopping,
        ):
            return verdict.value
    shares.wait(world.clock.now() + MINUTE)  # it moves under us all the time
    return None


def _checked(grant: Grant, event: Prepared, shares: Shares, world: Delivering) -> str | None:
    """
    Have the provider asked about a grant.

    1. `doubt` (row 77): the next token call refreshes, or asks about the identity. Crash after it: it still does.
    2. `access_token` is invoked, so that it does not wait for an app. A lost invocation costs the time until then.
    """
    now = world.clock.now()
    match check_step(grant, event.received_at, now):
        case CheckStep.DONE:
            return "checked"
        case CheckStep.LATER:
            shares.wait((grant.doubted_at or now) + CHECK_EVERY_MS)
            return None
        case CheckStep.NOW:
            world.tokens.doubt(grant, now)
            world.replay.refresh(grant.ref, grant.pair)
            return Verdict.CHECK.value


# --- how an attempt ends ---------------------------------------------------------------------------------------------


def _leave(claim: Claim, delivery: Delivery, world: Delivering, write: "Callable[..., None]", **said: Any) -> None:
    """*write* the delivery's end; the account that it waits beside is read again where it moves."""
    for attempt in range(TRIES):
        beside = delivery.beside
        account = None if beside is None else world.reads.account(delivery.client, beside)
        try:
            write(claim, delivery, account, world.clock.now(), **said)
        except MovedError as moved:
            if "delivery" in moved.seen or attempt + 1 == TRIES:
                raise
        else:
            return


def _dropped(claim: Claim, delivery: Delivery, reason: str, world: Delivering) -> Delivered:
    _leave(claim, delivery, world, world.store.end, state=DeliveryState.DROPPED, reason=reason)
    return Delivered(Outcome.DROPPED, reason=reason)


def _kept(
    claim: Claim, delivery: Delivery, reason: str, world: Delivering, accounts: frozenset[str] = frozenset()
) -> Delivered:
    found_by = frozenset(sorted(accounts)[:EVENT_ACCOUNTS])  # a workspace has more of them than an item holds
    _leave(claim, delivery, world, world.store.keep, reason=reason, accounts=found_by)
    return Delivered(Outcome.KEPT, reason=reason)


def _released(claim: Claim, delivery: Delivery, world: Delivering, accounts: frozenset[str] = frozenset()) -> Delivered:
    """Tried again on the ladder; after its day it is dropped, and shown."""
    now = world.clock.now()
    if delivery.give_up_at <= now:
        return _kept(claim, delivery, "failed for a day", world, accounts)
    until = min(now + ladder_step_ms(delivery.claims), delivery.give_up_at)
    world.webhooks.release(claim, delivery, until)
    return Delivered(Outcome.WAITS, until=until)


# --- in order, once an account is live -------------------------------------------------------------------------------


def replay_waiting(client: str, account: str, deadline: Deadline, world: Delivering) -> list[Delivered]:
    """
    Handle what waits beside an account, in the order in which it arrived, until one cannot be: what came later stays
    behind it. A crash leaves the rest where it is; the account stays due while it lives and something waits.
    """
    found: list[Delivered] = []
    for digest in list(world.store.waiting(client, account)):
        if deadline.remaining_ms() < LAST_SHARE_MS:
            break
        done = deliver(client, digest, deadline, world)
        found.append(done)
        if done.outcome in (Outcome.WAITS, Outcome.TAKEN, Outcome.PARKED):
            break
    return found
