"""An exchange, from its record to what the provider's answer gives to hold."""

from collections.abc import Callable
from dataclasses import dataclass

from quitclaim.domain.asked import missing_scopes
from quitclaim.domain.connect import (
    CODE,
    STEP_UP,
    Authorization,
    Exchange,
    ExchangeOutcome,
    exchange_ends,
    refusal_of_link,
)
from quitclaim.domain.errors import (
    ClientConfigError,
    ConnectBlockedError,
    ExchangeUnconfirmedError,
    MovedError,
    OwnerDeletedError,
    ProviderBusyError,
    ProviderRefusedError,
    StateInvalidError,
    StateReplayedError,
)
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.outcomes import Outcome, TokenAnswer, TokenGrant
from quitclaim.domain.renewals import reaches_refresh_token
from quitclaim.domain.revocations import Material, Revocation, material_of
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.connecting import TRIES, Connecting, cleaning_up, clear_of_settled, refuse_blocked
from quitclaim.ports import Client


def begin(
    authorization: Authorization,
    state_digest: str,
    client: Client,
    world: Connecting,
    kind: str = CODE,
    holding: Callable[[Exchange], tuple[Exchange, Revocation]] | None = None,
) -> Exchange:
    """The state spent and the exchange on record. *holding*: with what is in hand already, held and queued."""
    ref = authorization.ref
    for _ in range(TRIES):
        owner, connection, barrier = world.reads.fence(ref, client.name)
        if owner is None or owner.deleted_at is not None:
            raise OwnerDeletedError
        refusal = refusal_of_link(connection, authorization.generation, authorization.step_up)
        if refusal is not None or connection is None:
            raise refusal or StateInvalidError()
        resolved = clear_of_settled(ref, barrier, client.name, world)
        now = world.clock.now()
        refuse_blocked(resolved, now)
        if resolved.in_flight is not None:  # a held one waits for its owner; only a new start ends it
            raise ConnectBlockedError(connection_id=resolved.in_flight.ref.connection)
        exchange = Exchange(
            ref=ref,
            id=world.ids.new_id(),
            kind=kind if authorization.step_up is None else STEP_UP,
            client=client.name,
            generation=authorization.generation,
            started=now,
            ends=exchange_ends(now),
            outcome=ExchangeOutcome.OPEN,
            rid=world.ids.new_id(),
        )
        revocation = None
        if holding is not None:
            exchange, revocation = holding(exchange)
        try:
            world.store.begin(authorization, state_digest, connection, owner, resolved, exchange, revocation)
        except MovedError as moved:
            if "authorization" in moved.seen:
                raise StateReplayedError(connection_id=ref.connection) from moved
            continue
        return exchange
    raise MovedError


def end(exchange: Exchange, reason: str, world: Connecting, *, unconfirmed: bool) -> None:
    """Row 10. Best effort: an exchange that stays open lapses to unconfirmed, the safe reading."""
    with cleaning_up(world):
        for _ in range(TRIES):
            connection = world.reads.connection(exchange.ref)
            try:
                world.store.end(exchange, connection, world.clock.now(), reason, unconfirmed=unconfirmed)
            except MovedError as moved:
                if "exchange" in moved.seen:
                    return  # its outcome is recorded already, and a recorded outcome is never weakened (F-67)
                continue
            return


@dataclass(frozen=True)
class Consent:
    """
    What the user was asked for, which of it is needed, and what the callback says was granted; and whether an ID token
    must prove whose grant it is, by this nonce.
    """

    asked: frozenset[str]
    required: frozenset[str]
    named: frozenset[str] | None
    proves: bool
    nonce: Secret | None
    must_last: bool = False
    """Whether it is to take the place of a grant that can be refreshed (RB-56)."""

    def granted(self, grant: TokenGrant | None) -> frozenset[str] | None:
        """By the token answer, else by the callback; None where neither names any (M-39, RB-55)."""
        return self.named if grant is None or grant.scopes is None else grant.scopes

    def missing(self, grant: TokenGrant | None) -> frozenset[str]:
        """What is needed and was not granted (S-23)."""
        return missing_scopes(self.required, self.granted(grant))

    def fault_of(self, grant: TokenGrant | None) -> tuple[str, str] | None:
        """Why a grant serves nobody, as a code and for a person; None if it may."""
        if grant is None:
            return "malformed_answer", "The provider's answer could not be used."
        if self.missing(grant):
            return "insufficient_scope", "Not everything that is needed was granted."
        if self.proves and grant.id_token is None:
            return "id_token_missing", "The provider did not say whose account it is."
        if self.must_last and grant.refresh_token is None:
            return "no_refresh_token", "The provider gave a grant that ends by itself; the one before it stays."
        return None


@dataclass(frozen=True)
class Tokens:
    """The tokens of an answer: a whole grant, or what an unusable answer still held."""

    grant: TokenGrant | None
    materials: tuple[Material, ...]
    is_whole: bool = True
    """False where a token may live, of the answer or before it, that was not seen and that no revocation reaches."""


def tokens_of(answer: TokenAnswer, exchange: Exchange, client: Client, world: Connecting) -> Tokens:
    """What the answer gives to hold; raises, with the exchange ended, where it gives nothing."""
    if answer.grant is not None:
        return given(answer.grant, client, world)
    if answer.salvaged:
        loose = tuple(Material(each.kind, each.token, answer.variables) for each in answer.salvaged)
        takeable = tuple(each for each in loose if client.facts.may_take(each.kind))
        kinds = [each.kind for each in loose]
        # Of several refresh tokens one is asked about, where the revocation does not take them.
        is_one = kinds.count("refresh_token") <= 1 or reaches_refresh_token(client.facts.reach, client.facts)
        saw_both = {*kinds} == {"refresh_token", "access_token"} and is_one
        return Tokens(None, takeable or loose, is_whole=saw_both or client.facts.reach.ends_old_tokens)
    name = exchange.ref.connection
    if answer.outcome is Outcome.UNKNOWN:
        end(exchange, answer.reason or "unknown", world, unconfirmed=True)
        raise ExchangeUnconfirmedError(connection_id=name)
    end(exchange, answer.reason or answer.outcome, world, unconfirmed=False)
    if answer.config_fault:
        raise ClientConfigError(connection_id=name)
    if answer.outcome is Outcome.REJECTED:
        raise ProviderRefusedError(connection_id=name)
    raise ProviderBusyError(connection_id=name, retry_after_ms=answer.retry_after_ms)


def given(grant: TokenGrant, client: Client, world: Connecting) -> Tokens:
    """A whole grant, with what must be revoked of it."""
    return Tokens(grant, material_of_pair(grant, grant, client, world.clock.now()))


def material_of_pair(pair: TokenGrant, grant: TokenGrant, client: Client, now: int) -> tuple[Material, ...]:
    """What must be revoked of one *pair* of the *grant*."""
    facts = client.facts
    return material_of(
        facts.takes,
        facts.reach,
        pair.access_token,
        pair.refresh_token,
        ends_pair=facts.ends_pair,
        account_id=grant.account_id,
        variables=grant.variables,
        renewable=facts.renews_in_queue,
        access_until=instant_after(now, lifetime_s(pair, facts)),
    )


def lifetime_s(grant: TokenGrant | None, facts: ProviderFacts) -> int | None:
    """Of the access token in seconds: as the answer says, else as the catalogue does; None where neither says it."""
    if grant is None or grant.expires_in_s is not None:
        return grant.expires_in_s if grant else None
    return None if facts.access_ttl_ms is None else facts.access_ttl_ms // 1000


def instant_after(now: int, seconds: int | None) -> int | None:
    """The instant so many *seconds* after *now*, in milliseconds."""
    return None if seconds is None else now + seconds * 1000
