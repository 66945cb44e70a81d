"""Installing: the held grant becomes the live one, or takes its place, or is released."""

from dataclasses import replace

from quitclaim.domain.connect import (
    SAME_GRANT,
    STEP_UP,
    Authorization,
    Barrier,
    Connection,
    ConnectionState,
    Exchange,
    Owner,
    ready,
    stepped_up,
)
from quitclaim.domain.errors import GrantNotInstalledError, MovedError, StateConflictError, StepUpNotPossibleError
from quitclaim.domain.revocations import Revocation, RevocationState, family_of
from quitclaim.domain.tokens import MAIN, Grant, TokenPair, expiring_at, keep_alive_at
from quitclaim.flows.connect.browser import CallbackOutcome
from quitclaim.flows.connect.connecting import TRIES, Connecting, clear_of_settled
from quitclaim.flows.connect.establish import establish
from quitclaim.flows.connect.hold import release, released
from quitclaim.flows.revocations import finish_settled
from quitclaim.flows.stop import queued_of
from quitclaim.ports import Client, Deadline


def brought(
    authorization: Authorization,
    held: Exchange,
    pair: TokenPair,
    client: Client,
    deadline: Deadline,
    world: Connecting,
) -> CallbackOutcome:
    """What is held waits for its owner, or is installed here, once the app has said that it may be (M-44)."""
    ref = authorization.ref
    if client.confirmation == "owner":
        code = world.vault.confirm_code(held.id, held.started)
        return CallbackOutcome(ref.connection, client.provider, "awaiting_confirmation", authorization.return_to, code)
    establish(authorization, held, client, deadline, world)
    use = world.vault.seal_for_use(ref, held.generation, 1, pair)
    install(replace(held, use=use), client, world)
    return CallbackOutcome(ref.connection, client.provider, "ready", authorization.return_to)


def install(exchange: Exchange, client: Client, world: Connecting) -> Connection:
    """
    Make the held grant the live one (row 8), or release it (row 9).

    *exchange* carries the for-use ciphertext. Read, decide, commit; whoever was faster makes it read again, inside
    `hold_ends` only.
    """
    ref, name = exchange.ref, exchange.ref.connection
    for _ in range(TRIES):
        owner, connection, barrier, revocation, account = world.reads.around_install(exchange)
        now = world.clock.now()
        if connection is not None and connection.state is ConnectionState.READY and connection.exchange == exchange.id:
            return connection
        refusal = _refusal_of_install(exchange, owner, connection, revocation, now)
        if refusal is not None or connection is None or owner is None or revocation is None or barrier is None:
            raise released(exchange, refusal or "moved_on", world)
        others = replace(barrier, in_flight=None)
        resolved = clear_of_settled(ref, others, client.name, world)
        if resolved.blockers():
            raise released(exchange, "blocked", world)
        if account is not None and not account.admits(exchange.started):
            if _lowered(account.killed_by, world):
                continue
            raise released(exchange, "account_revoked_meanwhile", world)
        grants = _grants(exchange, revocation, client, now)
        after = ready(connection, exchange, tuple(each.pair for each in grants))
        try:
            if exchange.kind == STEP_UP:
                return _replace_grant(exchange, connection, owner, barrier, grants, world)
            world.store.install(exchange, connection, after, owner, barrier, grants, account, now)
        except MovedError as moved:
            if "exchange" in moved.seen and "connection" in moved.seen:
                continue
            if "exchange" in moved.seen:
                raise GrantNotInstalledError(connection_id=name) from moved
            continue
        return after
    raise released(exchange, "busy", world)


def _replace_grant(
    exchange: Exchange,
    connection: Connection,
    owner: Owner,
    barrier: Barrier,
    grants: tuple[Grant, ...],
    world: Connecting,
) -> Connection:
    """
    The wider grant in the place of the live one (row 70), whose revocation is due from then on. Raises `MovedError`
    where the live one moved: read again. One pair takes the place of one: a grant that has more of them is released.

    The two are compared first: of one token that was given twice nothing is queued, for that would end both.
    """
    now = world.clock.now()
    old = world.reads.grant(connection.ref, MAIN)
    if old is None or old.generation != connection.generation:
        raise MovedError
    if old.fp == exchange.fp:
        release(exchange, SAME_GRANT, world)
        raise StepUpNotPossibleError(connection_id=connection.ref.connection)
    if len(grants) != 1:
        raise released(exchange, "several_pairs", world)
    (grant,) = grants
    after = stepped_up(connection, exchange)
    queued = queued_of((old,), connection, now)
    world.store.replace_grant(exchange, connection, after, owner, barrier, old, grant, queued, now)
    world.kick.revoke_now([queued.rid])
    return after


def _refusal_of_install(
    exchange: Exchange, owner: Owner | None, connection: Connection | None, revocation: Revocation | None, now: int
) -> str | None:
    """Why the held grant may not become the live one (F-60); None if it may."""
    if owner is None or owner.deleted_at is not None:
        return "owner_deleted"
    if connection is None or not connection.waits_for(exchange):
        return "moved_on"
    if connection.subject is not None and connection.subject != exchange.subject:
        return "identity_mismatch"
    if (exchange.hold_ends or 0) <= now:
        return "too_late"
    if revocation is None or revocation.state is not RevocationState.PENDING or revocation.lease != exchange.id:
        return "taken_by_the_sweep"
    return None


def _lowered(killed_by: str | None, world: Connecting) -> bool:
    """
    Whether the revocation that shut the account was confirmed before and only lacked its finishing step, which lowers
    `killed_at`.
    """
    if killed_by is None:
        return False
    item = world.reads.revocations([killed_by])[killed_by]
    if item is None or item.state is not RevocationState.CONFIRMED or item.finished is not None:
        return False
    finish_settled(item, reads=world.reads, store=world.revocations, now=world.clock.now())
    return True


def _grants(exchange: Exchange, revocation: Revocation, client: Client, now: int) -> tuple[Grant, ...]:
    """The live grant, pair by pair: ciphertext is moved, not opened."""
    main = _grant(exchange, revocation, client, now)
    sealed = {each.pair: each for each in revocation.material}
    return (
        main,
        *(
            replace(
                main,
                pair=each.pair,
                family=family_of(exchange.id, each.pair),
                use=each.use,
                revoke=sealed[each.pair].sealed,
                fp=each.fp,
                takes=client.facts.taken(sealed[each.pair].kind),
                access_until=each.access_until,
                refresh_until=None,
                expiring_at=None,
            )
            for each in exchange.others
        ),
    )


def _grant(exchange: Exchange, revocation: Revocation, client: Client, now: int) -> Grant:
    """Its main pair."""
    if exchange.use is None or exchange.fp is None:
        raise StateConflictError(connection_id=exchange.ref.connection)
    return Grant(
        ref=exchange.ref,
        pair=MAIN,
        client=exchange.client,
        generation=exchange.generation,
        tv=1,
        family=family_of(exchange.id, MAIN),
        use=exchange.use,
        revoke=revocation.material[0].sealed,
        fp=exchange.fp,
        rid=exchange.rid,
        takes=client.facts.taken(revocation.takes),
        reach=revocation.reach,
        saved_at=now,
        access_until=exchange.access_until,
        refresh_until=exchange.refresh_until,
        account=exchange.account,
        keep_alive_at=keep_alive_at(exchange.started, client.facts.idle_limit_ms),
        expiring_at=expiring_at(exchange.started, exchange.refresh_until),
        stray=revocation.lost,
    )
