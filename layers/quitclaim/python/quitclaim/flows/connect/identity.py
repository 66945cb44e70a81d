"""Whose grant it is, while it is held."""

from dataclasses import replace

from quitclaim.domain.connect import Exchange, ExchangeOutcome
from quitclaim.domain.errors import GrantNotInstalledError, MovedError
from quitclaim.domain.limits import IDENTITY_CALL_MS, SAVE_MS
from quitclaim.domain.outcomes import IdentityOutcome, TokenGrant
from quitclaim.domain.revocations import Revocation
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.connect.exchange import Tokens
from quitclaim.flows.connect.hold import release, released, with_names
from quitclaim.ports import Client, Deadline

type Proof = tuple[Secret | None, Secret | None]
"""An ID token that must be verified, and the nonce that it must repeat."""


def identified(
    tokens: Tokens,
    proof: Proof | None,
    held: Exchange,
    revocation: Revocation,
    client: Client,
    deadline: Deadline,
    world: Connecting,
) -> Exchange:
    """
    Whose grant it is, while it is held; compared with the account that the connection is pinned to (S-21).

    Another account, an ID token that does not hold, or an account that cannot be read where the provider has an
    identity: the grant is released, and so revoked (RB-54).
    """
    account, proven, names = held.account, None, held.names
    if proof is not None and tokens.grant is not None:
        proven = _proven(tokens.grant, proof, held, client, deadline, world)
    if account is None and client.facts.has_identity and tokens.grant is not None:
        answer = client.identity(
            access_token=tokens.grant.access_token,
            timeout_ms=_identity_limit(deadline),
            variables=tokens.grant.variables,
        )
        if answer.outcome is not IdentityOutcome.READ or not answer.account_id:
            raise _unproven(held, "identity_unreadable", world)
        account = world.vault.account_digest(client.name, answer.account_id)
        names, left_off = with_names(held.names, answer.names, client, world.vault)
        if left_off:
            world.on_names(client.name, left_off)
    if client.facts.account_is_subject and proven is not None and proven != account:
        raise _unproven(held, "id_token_mismatch", world)
    subject = account or proven
    is_news = account is not None and revocation.account is None
    records = held.id_token is not None or (
        is_news and (client.confirmation == "owner" or client.facts.reach.is_account_wide)
    )
    if records or client.confirmation == "owner":  # else the install, which is next, looks at the connection
        connection = world.reads.connection(held.ref)
        if connection is None or not connection.waits_for(held):
            raise released(held, "moved_on", world)
        if connection.subject is not None and connection.subject != subject:
            raise released(held, "identity_mismatch", world)
    learned = replace(held, subject=subject, account=account, names=names, id_token=None)
    if records:
        try:
            world.store.record_identity(held, learned, world.clock.now())
        except MovedError as moved:
            found = world.reads.exchange(held.ref, held.id)
            if found is None or found.outcome is not ExchangeOutcome.HELD or found.subject != subject:
                raise GrantNotInstalledError(connection_id=held.ref.connection) from moved
            # The same callback, delivered twice: the other one has recorded the same account.
    return learned


def _proven(
    grant: TokenGrant, proof: Proof, held: Exchange, client: Client, deadline: Deadline, world: Connecting
) -> str:
    """The digest of the subject that a verified ID token names."""
    id_token, nonce = proof
    if id_token is None:
        raise _unproven(held, "id_token_missing", world)
    answer = client.subject(
        id_token=id_token, nonce=nonce, access_token=grant.access_token, timeout_ms=_identity_limit(deadline)
    )
    if answer.outcome is not IdentityOutcome.READ or not answer.account_id:
        raise _unproven(held, f"id_token_{answer.reason}", world)
    return world.vault.account_digest(client.name, answer.account_id)


def _unproven(held: Exchange, reason: str, world: Connecting) -> GrantNotInstalledError:
    """Nobody knows, or two say different things: the grant is released."""
    release(held, reason, world)
    sentence = "The provider did not say whose account it is."
    return GrantNotInstalledError(sentence, connection_id=held.ref.connection, reason=reason)


def _identity_limit(deadline: Deadline) -> int:
    return max(min(IDENTITY_CALL_MS, deadline.remaining_ms() - SAVE_MS), 1)
