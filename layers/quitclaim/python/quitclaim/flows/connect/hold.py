"""
Holding: what was returned is sealed, revoke-only, before anything about it is judged; and how a hold ends without an
install.
"""

from dataclasses import replace
from typing import Final

from quitclaim.domain.connect import IN_A_BROWSER, SAME_GRANT, STEP_UP, Exchange, ExchangeOutcome, HeldPair, hold_ends
from quitclaim.domain.errors import GrantNotInstalledError, MovedError, StepUpNotPossibleError
from quitclaim.domain.limits import ACCOUNT_NAMES
from quitclaim.domain.outcomes import TokenGrant
from quitclaim.domain.revocations import (
    Material,
    Revocation,
    RevocationState,
    SealedMaterial,
    deadline_of,
    family_of,
    kinds_of,
    named_by,
)
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN, Grant, TokenPair
from quitclaim.flows.connect.connecting import TRIES, Connecting, cleaning_up
from quitclaim.flows.connect.exchange import Consent, Tokens, end, instant_after, lifetime_s, material_of_pair
from quitclaim.flows.connect.late_grants import leave_behind, queue_late
from quitclaim.ports import Client, Vault


def hold(
    tokens: Tokens, exchange: Exchange, consent: Consent, client: Client, world: Connecting
) -> tuple[Exchange, TokenPair, Revocation]:
    """
    Seal what was returned before anything about it is judged, and queue it, leased to the exchange. A grant that lacks
    what is needed is not sealed for use: nobody can confirm it, whatever happens after.

    Too late, or another grant is held already: it is due for revocation now instead, in a row that nothing can refuse
    (D-2, D-30). The live grant's own token, given again, is neither held nor queued.
    """
    grant, now, name = tokens.grant, world.clock.now(), exchange.ref.connection
    pair = pair_of(tokens, client)
    fault = consent.fault_of(grant)
    confirms = client.confirmation == "owner" and exchange.kind in IN_A_BROWSER and fault is None
    held = as_held(exchange, tokens, pair if confirms else None, consent, client, world.vault, now)
    if grant is not None and len(grant.names) > len(held.names):
        world.on_names(client.name, len(grant.names) - len(held.names))
    revocation = queued_by(held, tokens, pair.access_token, client, world.vault, now)
    others = () if fault is not None or grant is None else _other_pairs(held, grant, client, world.vault, now)
    if confirms:
        held = replace(held, others=others)
    returned = revocation.fp | {world.vault.fingerprint(each.token) for each in tokens.materials}
    try:
        world.store.hold(exchange, held, revocation, now, tokens=returned if exchange.kind == STEP_UP else frozenset())
    except MovedError as moved:
        live = moved.seen.get("grant")
        if isinstance(live, Grant):
            return hold(_without_the_live(live, tokens, exchange, client, world), exchange, consent, client, world)
        queue_late(exchange, revocation, client, world)
        leave_behind(exchange, world)
        raise GrantNotInstalledError(connection_id=name) from None
    if fault is not None:
        reason, sentence = fault
        release(held, reason, world)
        raise GrantNotInstalledError(sentence, connection_id=name, reason=reason)
    return replace(held, others=others), pair, revocation


def _without_the_live(live: Grant, tokens: Tokens, exchange: Exchange, client: Client, world: Connecting) -> Tokens:
    """
    What a step-up brought, without what the provider gave again: that is the *live* grant's, which its revocation would
    end (custody rule 7). Where nothing else came the attempt ends, with nothing queued: there is no second grant.
    """
    now, grant = world.clock.now(), tokens.grant
    pairs = [tokens.materials]
    if grant is not None:
        pairs += [material_of_pair(each, grant, client, now) for each in grant.pairs.values()]
    loose: list[Material] = []
    for pair in pairs:
        again = {each.kind for each in pair if world.vault.fingerprint(each.token) == live.fp}
        # An access token beside a refresh token that was given again came of that one, as in a refresh.
        ours = again | ({"access_token"} if "refresh_token" in again else set())
        loose += [each for each in pair if each.kind not in ours]
    if loose:
        return Tokens(None, tuple(loose), is_whole=tokens.is_whole)
    end(exchange, SAME_GRANT, world, unconfirmed=False)
    raise StepUpNotPossibleError(connection_id=exchange.ref.connection)


def pair_of(tokens: Tokens, client: Client) -> TokenPair:
    """The returned tokens, to be sealed for use; of an unusable answer no more than what names its grant."""
    grant = tokens.grant
    if grant is None:
        return TokenPair(MAIN, tokens.materials[0].token, None, "Bearer")
    is_handle = client.facts.takes == "account"
    pair = TokenPair(MAIN, grant.access_token, grant.refresh_token, grant.token_type)
    return replace(pair, variables=grant.variables, account_id=grant.account_id if is_handle else None)


def as_held(
    exchange: Exchange,
    tokens: Tokens,
    pair: TokenPair | None,
    consent: Consent,
    client: Client,
    vault: Vault,
    now: int,
) -> Exchange:
    """The exchange with what was returned; where its owner confirms (*pair*), sealed for use, its ID token with it."""
    ref, generation, grant = exchange.ref, exchange.generation, tokens.grant
    account = vault.account_digest(client.name, grant.account_id) if grant is not None and grant.account_id else None
    id_token = grant.id_token if pair is not None and consent.proves and grant is not None else None
    return replace(
        exchange,
        outcome=ExchangeOutcome.HELD,
        hold_ends=hold_ends(exchange, now, owner_confirms=pair is not None),
        fp=vault.fingerprint(named_by(tokens.materials)),
        use=None if pair is None else vault.seal_for_use(ref, generation, 1, pair),
        access_until=instant_after(now, lifetime_s(grant, client.facts)),
        refresh_until=instant_after(now, grant.refresh_expires_in_s if grant else None),
        id_token=None
        if id_token is None
        else vault.seal_id_token(ref, generation, exchange.id, id_token, consent.nonce),
        subject=None if consent.proves else account,
        account=account,
        names=with_names(frozenset(), grant.names if grant is not None else frozenset(), client, vault)[0],
        scopes=consent.granted(grant) or consent.asked,
    )


def with_names(
    known: frozenset[str], names: frozenset[str], client: Client, vault: Vault
) -> tuple[frozenset[str], int]:
    """
    The digests that are *known* of an account's further names, and those of *names*: of so many as one install makes
    findable, the same ones each time; and how many are left off.
    """
    digests = [vault.account_digest(client.name, each) for each in sorted(names)]
    more = [each for each in digests if each not in known]
    kept = more[: ACCOUNT_NAMES - len(known)]
    return known | frozenset(kept), len(more) - len(kept)


def _other_pairs(held: Exchange, grant: TokenGrant, client: Client, vault: Vault, now: int) -> tuple[HeldPair, ...]:
    """The grant's further pairs, each sealed for use by itself (RB-11)."""
    return tuple(
        HeldPair(
            name,
            vault.fingerprint(named_by(material_of_pair(each, grant, client, now))),
            vault.seal_for_use(
                held.ref,
                held.generation,
                1,
                TokenPair(name, each.access_token, each.refresh_token, each.token_type, grant.variables),
            ),
            instant_after(now, lifetime_s(each, client.facts)),
        )
        for name, each in grant.pairs.items()
    )


def queued_by(
    held: Exchange, tokens: Tokens, access_token: Secret, client: Client, vault: Vault, now: int
) -> Revocation:
    """The hold's queue item: the grant sealed revoke-only, leased to its exchange until `hold_ends`."""
    rid, generation, material = held.rid, held.generation, tokens.materials
    asks = tokens.grant is not None and held.account is None and client.facts.has_identity
    by_pair = {MAIN: material}
    if tokens.grant is not None:
        by_pair |= {
            name: material_of_pair(each, tokens.grant, client, now) for name, each in tokens.grant.pairs.items()
        }
    return Revocation(
        rid=rid,
        state=RevocationState.PENDING,
        ref=held.ref,
        generation=generation,
        client=client.name,
        provider=client.provider,
        takes=kinds_of(material),
        reach=client.facts.reach,
        queued=now,
        fp=frozenset(vault.fingerprint(named_by(each)) for each in by_pair.values()),
        family=frozenset(family_of(held.id, name) for name in by_pair),
        material=tuple(
            SealedMaterial(vault.seal_revoke_only(rid, generation, 1, name, each), kinds_of(each), name, 1)
            for name, each in by_pair.items()
        ),
        account=held.account,
        identity=vault.seal_identity(rid, generation, access_token)
        if asks and client.facts.reach.is_account_wide
        else None,
        exchange=held.id,
        tv=1,
        lost=None if tokens.is_whole else True,
        deadline=deadline_of(now),
        next=held.hold_ends,
        lease=held.id,
        lease_until=held.hold_ends,
    )


def release(exchange: Exchange, reason: str, world: Connecting) -> None:
    """
    Row 9: the hold ends without an install; its grant is due now. Where the sweep or another has it already, that is as
    good; and where the table does not answer, the hold ends by itself. What turns out to be the live grant's own token
    is dropped instead.
    """
    with_revocation = True
    with cleaning_up(world):
        if exchange.kind == STEP_UP and _dropped(exchange, world):
            return
        for _ in range(TRIES):
            connection = world.reads.connection(exchange.ref)
            try:
                world.store.release(exchange, connection, world.clock.now(), reason, with_revocation=with_revocation)
            except MovedError as moved:
                if "exchange" in moved.seen:
                    return
                with_revocation = with_revocation and "revocation" not in moved.seen
                continue
            world.kick.revoke_now([exchange.rid])
            return


def _dropped(held: Exchange, world: Connecting) -> bool:
    """
    Row 71: a step-up whose held grant is the live one, given again, ends with nothing queued: its revocation would end
    the grant that serves. False, and nothing done, where it is a grant of its own, or somebody was faster.
    """
    live = world.reads.grant(held.ref, MAIN)
    if live is None or live.fp != held.fp:
        return False
    try:
        world.store.drop_given_again(held, live, world.clock.now())
    except MovedError:
        return False
    return True


TOLD: Final = {
    "identity_mismatch": "Another account was chosen at the provider.",
    "account_revoked_meanwhile": "A revocation of this account was under way: start again.",
}
"""What the caller is told of a release, beyond that the grant was not installed."""


def released(exchange: Exchange, reason: str, world: Connecting) -> GrantNotInstalledError:
    """Row 9, and what the caller is told."""
    release(exchange, reason, world)
    name = exchange.ref.connection
    if reason == "identity_mismatch":
        return GrantNotInstalledError(TOLD[reason], connection_id=name, reason=reason)
    return GrantNotInstalledError(TOLD.get(reason), connection_id=name)
