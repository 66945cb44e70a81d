"""
Sign-in from an app's SDK: a user links devices inside the app, and its SDK needs a token of the broker's for that.

No browser is sent anywhere. The connection stands for the user's account at the broker; the token is minted once it is
there, handed out once, and kept nowhere (M-23).
"""

from dataclasses import dataclass, replace
from typing import Final

from quitclaim.domain.connect import (
    SIGN_IN,
    Connection,
    ConnectionState,
    DirectBegin,
    Exchange,
    ExchangeOutcome,
    exchange_ends,
    importing,
    may_start,
)
from quitclaim.domain.errors import (
    ConnectBlockedError,
    InvalidBodyError,
    MovedError,
    OwnerDeletedError,
    SdkSignInNotSupportedError,
    StateConflictError,
    TimeIsUpError,
)
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import EXCHANGE_CALL_MS, GUARD_MS, IDENTITY_CALL_MS, SAVE_MS
from quitclaim.domain.secret import Secret
from quitclaim.domain.sources import is_established
from quitclaim.domain.tokens import MAIN
from quitclaim.flows.connect.brokers import broker_of, held_account, reference_of, refusal_of_broker
from quitclaim.flows.connect.connecting import TRIES, Connecting, clear_of_settled, refuse_blocked
from quitclaim.flows.connect.exchange import end
from quitclaim.flows.connect.install import install
from quitclaim.ports import Client, Deadline

AFTER_THE_ACCOUNT_MS: Final = 2 * SAVE_MS + IDENTITY_CALL_MS
"""What is kept free behind the account: to hold and install it, and to mint the token."""


@dataclass(frozen=True)
class SignInRequest:
    """Whose SDK asks, for which connection."""

    ref: ConnectionRef
    client: str
    provider: str | None = None


@dataclass(frozen=True)
class SignedIn:
    """The connection, and the broker's token for the app's SDK: handed out once."""

    connection: Connection
    token: Secret


def sdk_sign_in(request: SignInRequest, deadline: Deadline, world: Connecting) -> SignedIn:
    """
    A token of the broker's with which the app's SDK signs in as this user.

    An account of this owner that is there already is used as it is: nothing is written (M-20). Otherwise

    1. `begin_directly`: the attempt is on record. Crash, or no account: it ends, and nothing is owed: an account gives
       access to nothing by itself, and the next attempt finds it by its reference.
    2. `hold`, 4. `install`, as of any grant (M-21). Refused, because a stop or a deletion was faster: the account is
       queued for removal, and no token is minted (M-22).

    Then the token is minted, outside of every record: its failure leaves a connection that is ready, and the same call
    again mints one (M-23). Raises `SdkSignInNotSupportedError`, what refuses a start, and the broker's errors.
    """
    client = world.clients.named(request.client)
    if request.provider is not None and request.provider != client.provider:
        raise InvalidBodyError("provider: this client is another provider's", field="provider")
    if not client.facts.signs_in:
        raise SdkSignInNotSupportedError(provider=client.provider)
    world.vault.ready("use", "revoke", "index")
    found = _established(request, client, world)
    connection, account = found if found is not None else _made(request, client, deadline, world)
    limit = min(IDENTITY_CALL_MS, deadline.remaining_ms() - SAVE_MS // 2)
    answer = broker_of(client).sign_in(account=account, timeout_ms=max(limit, 1))
    if answer.value is None:
        raise refusal_of_broker(answer, request.ref.connection)
    return SignedIn(connection, answer.value)


def _established(request: SignInRequest, client: Client, world: Connecting) -> tuple[Connection, Secret] | None:
    """The owner's own account where it is there already; its items are the owner's, so nobody else's is ever found."""
    ref = request.ref
    owner, connection, grant = world.reads.owner_connection_and_grant(ref, MAIN)
    if owner is not None and owner.is_deleted:
        raise OwnerDeletedError
    if connection is not None and connection.client != client.name:
        raise StateConflictError("This connection is another client's: use another id.", connection_id=ref.connection)
    if connection is None or grant is None or not is_established(connection, client.name):
        return None
    pair = world.vault.open_for_use(ref, grant.generation, grant.tv, MAIN, grant.use)
    return connection, pair.access_token


def _made(request: SignInRequest, client: Client, deadline: Deadline, world: Connecting) -> tuple[Connection, Secret]:
    """The account, made at the broker (or found there by our reference), and installed."""
    exchange = _begun(request, client, deadline, world)
    limit = min(
        EXCHANGE_CALL_MS, deadline.remaining_ms() - AFTER_THE_ACCOUNT_MS, exchange.ends - GUARD_MS - world.clock.now()
    )
    if limit <= 0:
        end(exchange, "not_sent", world, unconfirmed=False)
        raise TimeIsUpError(connection_id=request.ref.connection)
    answer = broker_of(client).account(reference=reference_of(request.ref, client, world), timeout_ms=limit)
    if answer.value is None:
        end(exchange, answer.reason or answer.outcome, world, unconfirmed=False)
        raise refusal_of_broker(answer, request.ref.connection)
    held, pair = held_account(answer.value, exchange, client, deadline, world)
    use = world.vault.seal_for_use(held.ref, held.generation, 1, pair)
    return install(replace(held, use=use), client, world), answer.value


def _begun(request: SignInRequest, client: Client, deadline: Deadline, world: Connecting) -> Exchange:
    ref = request.ref
    for _ in range(TRIES):
        owner, before, barrier = world.reads.fence(ref, client.name)
        if owner is not None and owner.is_deleted:
            raise OwnerDeletedError
        if before is not None and before.state is ConnectionState.READY:
            raise MovedError  # made by another call since it was looked for
        may_start(before, again=True)
        resolved = clear_of_settled(ref, barrier, client.name, world)
        now = world.clock.now()
        refuse_blocked(resolved, now)
        if resolved.in_flight is not None:  # a held one waits for its owner; only a start ends it
            raise ConnectBlockedError(connection_id=resolved.in_flight.ref.connection)
        if deadline.remaining_ms() < AFTER_THE_ACCOUNT_MS + 2 * SAVE_MS:
            raise TimeIsUpError(connection_id=ref.connection)
        exchange = Exchange(
            ref=ref,
            id=world.ids.new_id(),
            kind=SIGN_IN,
            client=client.name,
            generation=(before.generation if before else 0) + 1,
            started=now,
            ends=exchange_ends(now),
            outcome=ExchangeOutcome.OPEN,
            rid=world.ids.new_id(),
        )
        after = replace(importing(before, exchange, client.provider), subject=None, account=None)
        try:
            world.store.begin_directly(DirectBegin(owner, before, after, resolved, exchange))
        except MovedError:
            continue
        return exchange
    raise MovedError
