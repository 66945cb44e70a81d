"""
Handing out an access token, and refreshing it when it has to be.

A fresh token costs one read and nothing else. A refresh is an exchange of its own: on record before it is sent, sent
once, and its outcome named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quitclaim.domain.connect import Connection, refusal_of_token
from quitclaim.domain.errors import (
    ClientConfigError,
    ConnectionNotFoundError,
    MovedError,
    NeedsReconnectError,
    OutcomeUnknownError,
    OwnerDeletedError,
    ProviderBusyError,
    QuitclaimError,
    RefreshInProgressError,
    StateConflictError,
    StoreError,
    TimeIsUpError,
)
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import (
    GUARD_MS,
    HARD_MARGIN_MS,
    IDENTITY_CALL_MS,
    LOSER_WAIT_MS,
    SAVE_MS,
    SECOND,
    ladder_step_ms,
)
from quitclaim.domain.outcomes import IdentityOutcome, LooseToken, Outcome, TokenAnswer, TokenGrant
from quitclaim.domain.revocations import (
    Material,
    Revocation,
    RevocationState,
    SealedMaterial,
    deadline_of,
    kinds_of,
    material_of,
    named_by,
)
from quitclaim.domain.secret import Secret
from quitclaim.domain.stop import StopReason
from quitclaim.domain.tokens import (
    Freshness,
    Grant,
    Refusal,
    TokenPair,
    call_limit_ms,
    expiring_at,
    freshness,
    has_time_for_refresh,
    is_same_end,
    is_saved_recently,
    is_told_to_wait,
    keep_alive_at,
    may_lease,
    needs_care,
    refused_again,
)
from quitclaim.flows.stop import Stopping, lose_grant
from quitclaim.ports import Breaker, Client, Clients, Clock, Deadline, Ids, Kick, Vault

if TYPE_CHECKING:
    from quitclaim.store.reads import Reads
    from quitclaim.store.stop import StopStore
    from quitclaim.store.tokens import TokenStore

TRIES: Final = 5
LOSER_PAUSES_MS: Final = (50, 100, 200)
"""Between a loser's reads; the last repeats: most refreshes are over in half a second."""


@dataclass(frozen=True)
class HandingOut:
    """What handing out needs of the world."""

    reads: "Reads"
    store: "TokenStore"
    stops: "StopStore"
    clients: Clients
    vault: Vault
    clock: Clock
    ids: Ids
    kick: Kick
    on_fault: Callable[[str, Exception], None]
    """Told of what failed and nobody hears of: a clean-up, or a refresh that was not needed yet; and why."""

    @property
    def stopping(self) -> Stopping:
        """For the one stop that a refresh may end in."""
        return Stopping(self.reads, self.stops, self.clock, self.ids, self.kick)


@dataclass(frozen=True)
class AccessToken:
    """What the app gets."""

    access_token: Secret
    token_type: str
    expires_at: int | None
    token_version: int
    generation: int


def hand_out(ref: ConnectionRef, pair: str, min_ttl_ms: int, deadline: Deadline, world: HandingOut) -> AccessToken:
    """
    An access token that lives at least *min_ttl_ms* (and the hard margin).

    Fresh: one consistent read, no write, no KMS. Losers of a refresh wait a little and never send one outside the lease
    (RB-42); a token still valid beyond the hard margin is handed out at once. Raises the refusal of the connection's
    state, `RefreshInProgressError`, or the provider's.
    """
    waited = 0
    for turn in range(1_000):
        grant = _live_grant(ref, pair, world)
        now = world.clock.now()
        need = freshness(grant, now, min_ttl_ms)
        may_refresh = may_lease(grant, now) and not is_told_to_wait(grant, now)
        if need is Freshness.FRESH or (need is Freshness.SOFT and not may_refresh):
            return _opened(grant, now, world)
        if is_told_to_wait(grant, now):
            wait = (grant.retry_at or now) - now
            raise ProviderBusyError(retry_after_ms=wait, connection_id=ref.connection)
        if may_refresh:
            try:
                return _refreshed(_begun(grant, deadline, world), min_ttl_ms, deadline, world)
            except MovedError:
                continue
            except NotBegunError as fault:
                if need is not Freshness.SOFT:
                    raise fault.cause from None
                world.on_fault(EARLY_REFRESH, fault.cause)  # what is still good serves, whatever keeps us back
                return _opened(grant, now, world)
        pause = LOSER_PAUSES_MS[min(turn, len(LOSER_PAUSES_MS) - 1)]
        if waited + pause > LOSER_WAIT_MS or deadline.remaining_ms() < 2 * SECOND:
            ends = (grant.lease_until or now) + GUARD_MS
            raise RefreshInProgressError(retry_after_ms=max(ends - now, SECOND), connection_id=ref.connection)
        world.clock.pause(pause)
        waited += pause
    raise RefreshInProgressError(retry_after_ms=SECOND, connection_id=ref.connection)


def report(
    ref: ConnectionRef, pair: str, token_version: int, *, reads: "Reads", store: "TokenStore", breaker: Breaker
) -> bool:
    """
    The app saw a 401 with this version of the token. Answers whether the version is suspect by it now.

    1. `report`: one write, once a version; the next token call refreshes, or asks the provider. Crash: report it again.

    The app's word ends no grant and stops no connection: a version that is not the current one, or a connection in any
    other state, is left as it is. Where very many of a client are reported at once, the fault is not in each of the
    grants: the *breaker* is told, and nothing is marked, so that no storm of refreshes follows.
    """
    owner, connection, grant = reads.owner_connection_and_grant(ref, pair)
    if owner is not None and owner.is_deleted:
        raise OwnerDeletedError
    if connection is None:
        raise ConnectionNotFoundError(connection_id=ref.connection)
    if grant is None or grant.tv != token_version:
        return False
    if grant.is_suspect:
        return True
    if not breaker.admits(connection.client):
        return False
    try:
        store.report(grant)
    except MovedError:
        return False  # refreshed or stopped since: what was reported is no longer handed out
    return True


def replay(ref: ConnectionRef, pair: str, deadline: Deadline, world: HandingOut) -> None:
    """
    Send a refresh that nobody waits for: once more, where the first answer was never seen (reconcile asks for it when
    the lease is over, custody rule 3), before an idle limit (maintain asks for it), or because an event casts doubt on
    the grant (deliver asks for it): the provider's answer decides.

    Whatever comes of it is recorded; nothing is handed out.
    """
    grant, now = _live_grant(ref, pair, world), world.clock.now()
    if (grant.attempts or grant.is_suspect or needs_care(grant, now)) and may_lease(grant, now):
        try:
            _refreshed(_begun(grant, deadline, world), HARD_MARGIN_MS, deadline, world)
        except NotBegunError as fault:
            raise fault.cause from None


def _live_grant(ref: ConnectionRef, pair: str, world: HandingOut) -> Grant:
    """
    The grant, with its owner not deleted; raises what the connection's state says where there is none.

    Owner and grant come from one unordered batch. That is linearizable, because a stop deletes the grant in its own
    transaction; only a save that slips between an owner's deletion and that connection's stop needs the owner read once
    more.
    """
    owner, grant = world.reads.owner_and_grant(ref, pair)
    if owner is not None and owner.deleted_at is not None:
        raise OwnerDeletedError
    if owner is None or grant is None:
        connection = world.reads.connection(ref)
        raise (refusal_of_token(connection) if connection else None) or _no_grant(connection, ref)
    if is_saved_recently(grant, world.clock.now()):
        _refuse_deleted(ref, world)
    return grant


def _no_grant(connection: Connection | None, ref: ConnectionRef) -> QuitclaimError:
    if connection is None:
        return ConnectionNotFoundError(connection_id=ref.connection)
    return StateConflictError("The grant has no such token.", connection_id=ref.connection, state=connection.state)


def _refuse_deleted(ref: ConnectionRef, world: HandingOut) -> None:
    owner = world.reads.owner(ref.of_owner)
    if owner is None or owner.deleted_at is not None:
        raise OwnerDeletedError


def _opened(grant: Grant, now: int, world: HandingOut) -> AccessToken:
    tokens = world.vault.open_for_use(grant.ref, grant.generation, grant.tv, grant.pair, grant.use)
    return AccessToken(tokens.access_token, tokens.token_type, grant.access_until, grant.tv, grant.generation)


# --- refresh ---------------------------------------------------------------------------------------------------------


EARLY_REFRESH: Final = "early refresh"


class NotBegunError(Exception):
    """A refresh that nothing was written or sent for, and *cause* is why."""

    def __init__(self, cause: QuitclaimError) -> None:
        super().__init__(cause.code)
        self.cause = cause


@dataclass(frozen=True)
class Begun:
    """All that a refresh needs before it is on record."""

    grant: Grant
    client: Client
    tokens: TokenPair


def _begun(grant: Grant, deadline: Deadline, world: HandingOut) -> Begun:
    """Time, keys, the client's settings and the tokens, or `NotBegunError`; nothing is written or sent."""
    try:
        client = world.clients.named(grant.client)
        if not has_time_for_refresh(deadline.remaining_ms()):
            raise TimeIsUpError
        world.vault.ready("use", "revoke", "index")
        client.prepare()
        tokens = world.vault.open_for_use(grant.ref, grant.generation, grant.tv, grant.pair, grant.use)
    except QuitclaimError as cause:
        raise NotBegunError(cause) from None
    return Begun(grant, client, tokens)


def _refreshed(begun: Begun, min_ttl_ms: int, deadline: Deadline, world: HandingOut) -> AccessToken:
    """
    Refresh the grant and hand out the new token.

    1. `record`: lease and attempt in one write; only then is the request sent, once. Crash or no answer: the attempt
       stays on record until its lease is over, then a replay, a loss or a notice follows (row 21).
    2. `save`: the new pair replaces the old. Refused, because a stop was faster: the new token is queued (row 20),
       never dropped.

    Raises `MovedError` where another was faster before anything was sent.
    """
    grant, client, tokens = begun.grant, begun.client, begun.tokens
    if tokens.refresh_token is None:
        return _without_refresh(begun, deadline, world)
    attempt = world.ids.new_id()
    leased = world.store.record(grant, attempt, world.clock.now())
    # Nothing between the record and the send but this check: the request leaves only while its lease is mine (custody
    # rule 1).
    limit = call_limit_ms(world.clock.now(), leased.lease_until or 0, deadline.remaining_ms())
    if limit is None:
        _withdraw(leased, attempt, None, world)
        raise TimeIsUpError
    answer = client.refresh(refresh_token=tokens.refresh_token, timeout_ms=limit, variables=tokens.variables)
    if answer.grant is not None:
        return _saved(leased, attempt, answer.grant, tokens, client, world)
    if answer.salvaged:
        _queue_part(leased, attempt, answer.salvaged, tokens, client, world)
    return _not_granted(answer, leased, attempt, min_ttl_ms, client, world)


def _without_refresh(begun: Begun, deadline: Deadline, world: HandingOut) -> AccessToken:
    """
    A grant that cannot be refreshed serves as long as its access token lives, however long the caller would have liked
    it to; then the owner must connect again.

    Where the app reported it, the provider is asked whether it still takes the token; only its refusal ends the grant.
    """
    grant, client, tokens = begun.grant, begun.client, begun.tokens
    if grant.keep_alive_at is not None:
        world.store.keep_by_itself(grant)
        raise MovedError
    now, name = world.clock.now(), grant.ref.connection
    left = grant.left_ms(now)
    if left is not None and left <= HARD_MARGIN_MS:
        raise NeedsReconnectError(
            "The access token has expired and cannot be refreshed: disconnect, then connect again.", connection_id=name
        )
    if grant.is_suspect and client.facts.has_identity:
        limit = min(IDENTITY_CALL_MS, deadline.remaining_ms() - SAVE_MS)
        answer = client.identity(access_token=tokens.access_token, timeout_ms=max(limit, 1), variables=tokens.variables)
        if answer.outcome is IdentityOutcome.REFUSED:
            purges = client.purge_on_loss
            if lose_grant(grant, StopReason.GRANT_REJECTED, refused_attempt=None, purges=purges, world=world.stopping):
                raise NeedsReconnectError(connection_id=name)
            raise MovedError
        if answer.outcome is IdentityOutcome.READ:
            try:
                world.store.found_good(grant)
            except StoreError as fault:  # it stays suspect, and the next call asks again (U-19)
                world.on_fault("clean-up", fault)
    return _opened(grant, now, world)


def _not_granted(
    answer: TokenAnswer, grant: Grant, attempt: str, min_ttl_ms: int, client: Client, world: HandingOut
) -> AccessToken:
    """
    What a refresh that gave no grant means (one table): the provider's verdict ends the grant, all else leaves it.

    After an unseen attempt the verdict is on the token that was sent, not on its successor, which may be alive: the
    loss then ends in a removal notice. Where a token that is presented again ends its family, no successor is (row 24).
    A refusal without a verdict, given again and again in the same words, is one in the end (RB-16).
    """
    now, name = world.clock.now(), grant.ref.connection
    left = grant.left_ms(now)
    still_good = not grant.is_suspect and left is not None and left > max(HARD_MARGIN_MS, min_ttl_ms)
    refusal = refused_again(grant, answer.error_code) if answer.is_unexplained else None
    if answer.outcome is Outcome.REJECTED or (refusal is not None and refusal.is_final):
        disproved = grant.attempts if client.facts.reuse_kills_family else frozenset({attempt})
        if lose_grant(
            grant,
            StopReason.GRANT_REJECTED,
            refused_attempt=attempt,
            purges=client.purge_on_loss,
            disproved=disproved,
            world=world.stopping,
        ):
            raise NeedsReconnectError(connection_id=name)
        _withdraw(grant, attempt, None, world)  # the handle is stale: it is another's grant by now (row 19)
        raise MovedError
    wait = answer.retry_after_ms
    if refusal is not None:
        wait = max(wait or 0, ladder_step_ms(refusal.times))
    if answer.outcome in (Outcome.NOT_SENT, Outcome.TRY_LATER):
        _withdraw(grant, attempt, None if wait is None else now + wait, world, refusal)
    # Unknown writes nothing: the attempt stays on record until its lease is over (row 19).
    if still_good:
        return _opened(grant, now, world)
    if answer.config_fault:
        raise ClientConfigError(connection_id=name)
    if answer.outcome in (Outcome.NOT_SENT, Outcome.TRY_LATER):
        raise ProviderBusyError(connection_id=name, retry_after_ms=wait)
    raise OutcomeUnknownError(
        connection_id=name, retry_after_ms=max((grant.lease_until or now) + GUARD_MS - now, SECOND)
    )


def _withdraw(
    grant: Grant, attempt: str, retry_at: int | None, world: HandingOut, refusal: Refusal | None = None
) -> None:
    """Best effort: an attempt that stays on record is only looked at again later (D-31, U-19)."""
    current = grant
    for _ in range(TRIES):
        try:
            world.store.withdraw(current, attempt, retry_at, refusal)
        except MovedError as moved:
            found = moved.seen.get("grant")
            if not isinstance(found, Grant) or found.lease != attempt:
                return
            current = found
        except StoreError as fault:
            world.on_fault("clean-up", fault)
            return
        else:
            return


def _saved(
    before: Grant, attempt: str, fresh: TokenGrant, tokens: TokenPair, client: Client, world: HandingOut
) -> AccessToken:
    """Seal first, then save; whatever refuses the save, the token ends in the table."""
    ref, vault, now, version = before.ref, world.vault, world.clock.now(), before.tv + 1
    kept = fresh.refresh_token or tokens.refresh_token
    pair = replace(tokens, access_token=fresh.access_token, refresh_token=kept, token_type=fresh.token_type)
    facts = client.facts
    others = before.attempts - {attempt}
    survives = facts.old_token_survives and not before.reach.ends_old_tokens
    lifetime = fresh.expires_in_s if fresh.expires_in_s is not None else _default_s(facts)
    access_until = None if lifetime is None else now + lifetime * SECOND
    material = _material(before, pair, client, access_until)
    ends = now + fresh.refresh_expires_in_s * SECOND if fresh.refresh_expires_in_s else before.refresh_until
    after = replace(
        before,
        tv=version,
        use=vault.seal_for_use(ref, before.generation, version, pair),
        revoke=vault.seal_revoke_only(before.rid, before.generation, version, before.pair, material),
        fp=vault.fingerprint(named_by(material)),
        takes=facts.taken(kinds_of(material)),
        access_until=access_until,
        refresh_until=ends,
        keep_alive_at=keep_alive_at(now, facts.idle_limit_ms) if kept is not None else None,
        expiring_at=before.expiring_at if is_same_end(before.refresh_until, ends) else expiring_at(now, ends),
        saved_by=attempt,
        saved_at=now,
        stray=True if before.stray or (others and survives) else None,
        lease=None,
        lease_until=None,
        attempts=frozenset(),
        suspect=None,
        retry_at=None,
        refused_as=None,
        refusals=None,
    )
    if fresh.account_id and before.account and vault.account_digest(client.name, fresh.account_id) != before.account:
        # Another account's token: it is not ours to use, and the grant it was asked with is not to be trusted (S-21).
        _queue_orphan(before, attempt, material, pair.access_token, client, world)
        purges = client.purge_on_loss
        if lose_grant(before, StopReason.GRANT_REJECTED, refused_attempt=attempt, purges=purges, world=world.stopping):
            raise NeedsReconnectError(connection_id=ref.connection)
        raise MovedError  # stopped or refreshed meanwhile: what became of the connection is looked at again
    rotated = (
        fresh.refresh_token is not None
        and tokens.refresh_token is not None
        and fresh.refresh_token != tokens.refresh_token
    )
    replaced = _replaced(before, attempt, tokens, client, world) if survives and rotated else None
    try:
        world.store.save(before, after, attempt, replaced=replaced)
    except MovedError:
        _queue_orphan(before, attempt, material, pair.access_token, client, world)
        _live_grant(ref, before.pair, world)  # raises what became of the connection
        raise
    _refuse_deleted(ref, world)
    return AccessToken(fresh.access_token, fresh.token_type, after.access_until, version, before.generation)


def _default_s(facts: ProviderFacts) -> int | None:
    return None if facts.access_ttl_ms is None else facts.access_ttl_ms // SECOND


def _replaced(before: Grant, attempt: str, tokens: TokenPair, client: Client, world: HandingOut) -> Revocation:
    """The rotated token that stays valid and that no revocation of its successor reaches (custody rule 6)."""
    material = _material(before, tokens, client, before.access_until)
    return _queued(before, f"{attempt}.old", before.tv, material, tokens.access_token, client, world)


def _material(grant: Grant, pair: TokenPair, client: Client, access_until: int | None) -> tuple[Material, ...]:
    """What must be revoked of *pair*, with what the provider's addresses need of it."""
    return material_of(
        client.facts.takes,
        grant.reach,
        pair.access_token,
        pair.refresh_token,
        ends_pair=client.facts.ends_pair,
        account_id=pair.account_id,
        variables=pair.variables,
        renewable=client.facts.renews_in_queue,
        access_until=access_until,
    )


def _queued(
    before: Grant,
    rid: str,
    version: int,
    material: Sequence[Material],
    access_token: Secret,
    client: Client,
    world: HandingOut,
) -> Revocation:
    """
    A revocation of a token of this grant, due now, under an id that is the same for every try.

    Where it may end more of an account that nobody knows, the *access_token* is kept for asking whose it is (custody
    rule 12).
    """
    now, vault = world.clock.now(), world.vault
    asks = before.account is None and client.facts.has_identity and before.reach.is_account_wide
    return Revocation(
        rid=rid,
        state=RevocationState.PENDING,
        ref=before.ref,
        generation=before.generation,
        client=client.name,
        provider=client.provider,
        takes=kinds_of(material),
        reach=before.reach,
        queued=now,
        fp=frozenset(vault.fingerprint(each.token) for each in material),
        family=frozenset({before.family}),
        material=(
            SealedMaterial(
                vault.seal_revoke_only(rid, before.generation, version, before.pair, material),
                kinds_of(material),
                before.pair,
                version,
            ),
        ),
        account=before.account,
        identity=vault.seal_identity(rid, before.generation, access_token) if asks else None,
        tv=version,
        listed=True,
        deadline=deadline_of(now),
        next=now,
    )


def _queue_part(
    before: Grant,
    attempt: str,
    salvaged: Sequence[LooseToken],
    tokens: TokenPair,
    client: Client,
    world: HandingOut,
) -> None:
    """
    What an unusable answer still held is due for revocation, in one item; not so where it is the live grant's: where
    the provider gave the token that was sent again (custody rule 7), or keeps it and so gave an access token alone,
    whose revocation may end the pair. That ends by itself, as after any refresh.

    The answer was not seen whole, so its attempt stays on record: a stop then says "confirmed" for nothing of it
    (custody rule 3).
    """
    loose = tuple(Material(each.kind, each.token, tokens.variables) for each in salvaged)
    if client.facts.rotates == "no" and all(each.kind == "access_token" for each in loose):
        return
    if before.fp in {world.vault.fingerprint(each.token) for each in loose}:
        return
    material = tuple(each for each in loose if client.facts.may_take(each.kind)) or loose
    access_token = next((each.token for each in loose if each.kind == "access_token"), tokens.access_token)
    part = _queued(before, f"{attempt}.part", before.tv + 1, material, access_token, client, world)
    for _ in range(TRIES):
        generations = [each.generation for each in world.reads.intents(before.ref)]
        intent = before.generation if before.generation in generations else None
        try:
            world.store.queue_orphan(before, attempt, part, found=None, stopped=None, intent_generation=intent)
        except MovedError as moved:
            if "revocation" in moved.seen:
                return  # by an earlier try of this very operation: nobody else uses its id
            continue
        world.kick.revoke_now([part.rid])
        return
    world.store.queue_orphan(before, attempt, part, found=None, stopped=None, intent_generation=None)


def _queue_orphan(
    before: Grant,
    attempt: str,
    material: Sequence[Material],
    access_token: Secret,
    client: Client,
    world: HandingOut,
) -> None:
    """
    Row 20: a fresh token that could not be saved is due for revocation, and its attempt leaves the set that expects it.

    Only after a look at what is there shows that it is not stored after all (custody rule 7).
    """
    ref, version = before.ref, before.tv + 1
    whole = _queued(before, attempt, version, material, access_token, client, world)
    orphan: Revocation | None = whole
    for _ in range(TRIES):
        found = world.reads.grant(ref, before.pair)
        stopped = world.reads.revocations([before.rid])[before.rid]
        if found is not None and found.generation == before.generation and _is_mine(found, before, attempt):
            return
        if stopped is not None and attempt in stopped.saved_by:
            return
        orphan = whole
        # Where the provider gave the same token again, what it gave is the live grant's (of a later generation: a
        # step-up brought it too): the access token beside it may be the very one in use, or end it where a revocation
        # takes either. As after any refresh, it ends by itself.
        is_live = found is not None and found.fp in whole.fp
        is_replaced = found is None or found.generation != before.generation
        if is_live or (is_replaced and stopped is not None and whole.fp <= stopped.fp):
            orphan = None
        generations = [
            intent.generation for intent in world.reads.intents(ref) if intent.generation == before.generation
        ]
        try:
            world.store.queue_orphan(
                before,
                attempt,
                orphan,  # None, where the provider gave the same token again: the attempt is answered by it
                found=found,
                stopped=stopped,
                intent_generation=generations[0] if generations else None,
            )
        except MovedError as moved:
            if "revocation" in moved.seen:
                return  # queued by an earlier try of this very operation
            continue
        if orphan is not None:
            world.kick.revoke_now([orphan.rid])
        return
    if orphan is not None:
        world.store.queue_orphan(before, attempt, orphan, found=None, stopped=None, intent_generation=None)


def _is_mine(found: Grant, before: Grant, attempt: str) -> bool:
    return found.saved_by == attempt and found.tv == before.tv + 1
