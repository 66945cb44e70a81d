"""The owner's confirmation: the code that came back with the browser is brought on the owner's own path."""

from quitclaim.domain.connect import STEP_UP, Connection, ConnectionState, Exchange, ExchangeOutcome, is_last_wrong_code
from quitclaim.domain.errors import (
    ConnectionNotFoundError,
    GenerationMovedError,
    GrantNotInstalledError,
    MovedError,
    OwnerDeletedError,
    QuitclaimError,
    RemovalRequiredError,
    StateConflictError,
    WrongCodeError,
)
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.connect.hold import release
from quitclaim.flows.connect.install import install


def confirm(ref: ConnectionRef, generation: int, code: Secret, world: Connecting) -> Connection:
    """
    The owner brings back the code: the held grant becomes the live one (decision 0013).

    1. `install`. Refused or crash before it: the hold ends by itself, and the sweep revokes. A wrong code is counted;
       the fifth ends the exchange.
    """
    owner, connection = world.reads.owner_and_connection(ref)
    if owner is not None and owner.is_deleted:
        raise OwnerDeletedError
    if connection is None:
        raise ConnectionNotFoundError(connection_id=ref.connection)
    if connection.generation != generation:
        if _is_stepped_up(connection, generation, code, world):
            return connection
        raise GenerationMovedError(connection_id=ref.connection, generation=connection.generation)
    if connection.state not in (ConnectionState.AUTHORIZING, ConnectionState.READY) or connection.exchange is None:
        raise _refusal_of_confirm(connection)
    exchange = world.reads.exchange(ref, connection.step_up_exchange or connection.exchange)
    if exchange is None:
        raise _refusal_of_confirm(connection)
    if not world.vault.is_confirm_code(code, exchange.id, exchange.started):
        raise _wrong_code(exchange, connection, world)
    if exchange.outcome is ExchangeOutcome.INSTALLED and connection.state is ConnectionState.READY:
        return connection
    if exchange.outcome is ExchangeOutcome.UNCONFIRMED:
        raise RemovalRequiredError(connection_id=ref.connection)
    if exchange.outcome is ExchangeOutcome.OPEN:
        raise StateConflictError(connection_id=ref.connection, state=connection.state)
    if exchange.outcome is not ExchangeOutcome.HELD or exchange.use is None:
        raise GrantNotInstalledError(connection_id=ref.connection)
    client = world.clients.named(exchange.client)
    if exchange.id_token is not None or (exchange.account is None and client.facts.has_identity):
        raise StateConflictError("Nobody has learned yet whose grant it is.", connection_id=ref.connection)
    return install(exchange, client, world)


def _is_stepped_up(connection: Connection, generation: int, code: Secret, world: Connecting) -> bool:
    """Whether this code has made the wider grant the live one already, which raised the generation."""
    if connection.state is not ConnectionState.READY or connection.generation != generation + 1:
        return False
    exchange = world.reads.exchange(connection.ref, connection.exchange or "")
    if exchange is None or exchange.kind != STEP_UP or exchange.outcome is not ExchangeOutcome.INSTALLED:
        return False
    return world.vault.is_confirm_code(code, exchange.id, exchange.started)


def _refusal_of_confirm(connection: Connection) -> QuitclaimError:
    name = connection.ref.connection
    if connection.state in (ConnectionState.AUTHORIZING, ConnectionState.RECONCILING_LINK):
        return StateConflictError(connection_id=name, state=connection.state)
    return GrantNotInstalledError(connection_id=name, state=connection.state)


def _wrong_code(exchange: Exchange, connection: Connection, world: Connecting) -> QuitclaimError:
    """Counted while something is held; where nothing waits for a code, no code is right or wrong."""
    name = exchange.ref.connection
    if exchange.outcome is not ExchangeOutcome.HELD:
        return StateConflictError(connection_id=name, state=connection.state)
    if is_last_wrong_code(exchange):
        release(exchange, "wrong_codes", world)
        return GrantNotInstalledError("Too many wrong codes: the grant is being revoked.", connection_id=name)
    try:
        world.store.count_wrong_code(exchange, world.clock.now())
    except MovedError as moved:
        found = moved.seen.get("exchange")
        if isinstance(found, Exchange) and found.outcome is ExchangeOutcome.HELD and is_last_wrong_code(found):
            release(found, "wrong_codes", world)
            return GrantNotInstalledError(connection_id=name)
    return WrongCodeError(connection_id=name)
