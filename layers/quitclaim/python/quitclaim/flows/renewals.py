"""
Refreshing a queued token, under the claim of its revocation.

1. `record_renewal`: on record before it is sent (custody rule 3). Crash or no answer: the claim's lease ends, the item
   is never `confirmed` any more unless nothing can have been lost, and it goes on with what it has.
2. `put_back`: what the provider gave is in the queue, as an item of its own, before anybody uses it (custody rule 4);
   the stop and the barrier know it (custody rule 5). Refused, because the predecessor moved on: it is queued alone.
   Crash before it: as after 1. Crash after it: the successor is due like any other.
3. The successor is revoked; its predecessor waits for its end.

Of several pairs in one item each is asked about in turn: a refusal ends that pair, and the others go on as the item's
successor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from quitclaim.domain.errors import ClientConfigError, KeyUnavailableError, MovedError, ProviderNotRegisteredError
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.limits import MINUTE, SECOND
from quitclaim.domain.outcomes import Outcome, RevokeAnswer, RevokeOutcome, TokenAnswer
from quitclaim.domain.renewals import (
    DONE,
    Awaited,
    Renewal,
    Renewed,
    after_successor,
    is_lost_unseen,
    meaning_of,
    reaches_refresh_token,
    rest_of,
    successor_of,
)
from quitclaim.domain.revocations import (
    Claimed,
    Material,
    Revocation,
    SealedMaterial,
    by_pair,
    call_limit_ms,
    kinds_of,
    material_of,
    named_by,
)
from quitclaim.ports import Client, Clients, Clock

if TYPE_CHECKING:
    from quitclaim.flows.revocations import Revoking

TRIES = 5


@dataclass(frozen=True)
class Underway:
    """A claim on its way: what it was made ready with, and the refresh that is open under it."""

    client: Client
    materials: tuple[Material, ...]
    renewal: Renewal | None = None
    attempt: str = ""


def may_seal(world: "Revoking") -> bool:
    """
    Whether what a refresh gives can be sealed without any other service: only then is one asked for (I-1). A material
    that opens under a key of before says nothing of the one that seals now.
    """
    try:
        world.vault.ready("revoke", "index")
    except KeyUnavailableError:
        return False
    return True


def start_renewal(claim: Claimed, underway: Underway, renewal: Renewal, world: "Revoking") -> Underway:
    """Record the refresh, then send it on its way. Raises `MovedError` where the claim is another's by now."""
    attempt = world.ids.new_id()
    world.store.record_renewal(claim, attempt)
    variables = underway.materials[0].variables
    world.calls.start(claim, partial(_asked, claim, underway.client, renewal, variables, world.clock))
    return replace(underway, renewal=renewal, attempt=attempt)


async def _asked(
    claim: Claimed, client: Client, renewal: Renewal, variables: Mapping[str, str], clock: Clock
) -> TokenAnswer:
    # Right before the send: it leaves only while its record is open (custody rule 1).
    limit = call_limit_ms(clock.now(), claim.until)
    if limit is None:
        return TokenAnswer(Outcome.NOT_SENT, "out_of_time")
    return await client.renew(refresh_token=renewal.refresh_token, timeout_ms=limit, variables=variables)


def as_token_answer(answer: RevokeAnswer | TokenAnswer | None) -> TokenAnswer:
    """What a call that failed on our side is taken for: it may have been sent."""
    return answer if isinstance(answer, TokenAnswer) else TokenAnswer(Outcome.UNKNOWN, "failed")


def verdict(underway: Underway, answer: TokenAnswer) -> tuple[Renewed, RevokeAnswer]:
    """What the refresh says, and how the revocation is answered by it where it gave nothing to queue."""
    assert underway.renewal is not None  # noqa: S101 - the caller has one
    meaning = meaning_of(underway.renewal, answer)
    if meaning is Renewed.GONE:
        before = underway.renewal.answered
        done = before is not None and before.outcome in DONE
        return meaning, before if done and before is not None else RevokeAnswer(
            RevokeOutcome.ALREADY_GONE, "refresh_refused"
        )
    outcome = RevokeOutcome.PERMANENT_ERROR if answer.config_fault else RevokeOutcome.DEFERRED
    if meaning is Renewed.UNSEEN:
        outcome = RevokeOutcome.UNKNOWN
    return meaning, RevokeAnswer(outcome, answer.reason, answer.retry_after_ms)


def queue_successor(claim: Claimed, underway: Underway, answer: TokenAnswer, world: "Revoking") -> str:
    """Put what the refresh gave into the queue, and the item's other pairs with it; the id of its item."""
    assert underway.renewal is not None  # noqa: S101 - the caller has one
    before, renewal, now = claim.revocation, underway.renewal, world.clock.now()
    answered = renewal.answered
    survived = answered is not None and (answered.outcome in DONE or answered.seems_done)
    survived = survived or not reaches_refresh_token(before.reach, underway.client.facts)
    successor = successor_of(before, renewal, underway.attempt, now, survived=survived)
    pairs = by_pair(underway.materials) | {renewal.pair: _given(underway, answer, before, now)}
    successor = _holding(successor, pairs, renewal.pair, before, world)
    _put_back(claim, successor, now, loses=answer.grant is None, world=world)
    return successor.rid


def queue_rest(claim: Claimed, underway: Underway, world: "Revoking") -> str:
    """
    One of the item's pairs is gone, by the provider's verdict on its refresh token: the others go on as an item of
    their own, whose end is this one's. The id of it.
    """
    assert underway.renewal is not None  # noqa: S101 - the caller has one
    before, renewal, now = claim.revocation, underway.renewal, world.clock.now()
    rest = {name: pair for name, pair in by_pair(underway.materials).items() if name != renewal.pair}
    successor = _holding(rest_of(before, renewal, underway.attempt, now), rest, renewal.pair, before, world)
    _put_back(claim, successor, now, loses=False, world=world)
    return successor.rid


def _holding(
    successor: Revocation,
    pairs: Mapping[str, Sequence[Material]],
    renewed: str,
    before: Revocation,
    world: "Revoking",
) -> Revocation:
    """*successor* with the material of *pairs* sealed in it, that of the *renewed* one as a version of its own."""
    versions = {each.pair: each.tv + (each.pair == renewed) for each in before.material}
    first = next(iter(pairs))
    return replace(
        successor,
        takes=kinds_of(pairs[first]),
        fp=frozenset(world.vault.fingerprint(named_by(each)) for each in pairs.values()),
        tv=versions[first],
        material=tuple(
            SealedMaterial(
                world.vault.seal_revoke_only(successor.rid, before.generation, versions[name], name, each),
                kinds_of(each),
                name,
                versions[name],
            )
            for name, each in pairs.items()
        ),
    )


def _given(underway: Underway, answer: TokenAnswer, before: Revocation, now: int) -> tuple[Material, ...]:
    """What must be revoked of the answer, and the refresh token by which it is renewed again."""
    assert underway.renewal is not None  # noqa: S101 - the caller has one
    grant, facts, variables = answer.grant, underway.client.facts, underway.materials[0].variables
    if grant is None:
        return tuple(Material(each.kind, each.token, variables) for each in answer.salvaged)
    lifetime = grant.expires_in_s * SECOND if grant.expires_in_s is not None else facts.access_ttl_ms
    return material_of(
        facts.takes,
        before.reach,
        grant.access_token,
        grant.refresh_token or underway.renewal.refresh_token,
        ends_pair=facts.ends_pair,
        variables=variables,
        renewable=facts.renews_in_queue,
        access_until=None if lifetime is None else now + lifetime,
    )


def _put_back(claim: Claimed, successor: Revocation, now: int, *, loses: bool, world: "Revoking") -> None:
    before, alone = claim.revocation, False
    for attempt in range(TRIES + 1):
        generations = [each.generation for each in world.reads.intents(before.ref)]
        is_last = attempt == TRIES
        try:
            world.store.put_back(
                claim,
                successor.rid,
                successor,
                now,
                intent_generation=before.generation if before.generation in generations and not is_last else None,
                loses=loses,
                alone=alone or is_last,
            )
        except MovedError as moved:
            if "successor" in moved.seen:
                return  # by an earlier try of this very operation: nobody else uses its id
            alone = alone or "revocation" in moved.seen
            continue
        return


# --- afterwards ------------------------------------------------------------------------------------------------------


def forget_unseen(revocation: Revocation, now: int, world: "Revoking") -> Revocation:
    """
    The item without the refresh whose answer nobody saw; `lost` where that may have left a token which nothing reaches.
    Raises `MovedError`.
    """
    facts = _facts_of(revocation, world.clients)
    loses = facts is None or is_lost_unseen(revocation.reach, facts)
    world.store.forget_renewal(revocation, now, loses=loses)
    return replace(
        revocation,
        renewing=None,
        lost=True if loses or revocation.lost else None,
        lease=None,
        lease_until=None,
        v=revocation.v + 1,
    )


def awaited(revocations: Sequence[Revocation], world: "Revoking") -> dict[str, tuple[Awaited, int]]:
    """
    Of each that handed over to a successor: what it does next, and when to look again if it waits. Behind one that
    cannot be read it waits, to its deadline; nobody else does (I-16).
    """
    rids = [each.renewed for each in revocations if each.renewed is not None]
    read = world.store.read_each(rids)
    found = {each.rid: each for each in read if isinstance(each, Revocation)}
    is_one_unread = len(found) < len(read)
    told: dict[str, tuple[Awaited, int]] = {}
    for each in revocations:
        if each.renewed is None:
            continue
        successor = found.get(each.renewed)
        step = after_successor(each, successor, _facts_of(each, world.clients))
        if successor is None and is_one_unread:
            step = Awaited.WAIT
        again = max(world.clock.now(), (successor.next if successor else None) or 0) + MINUTE
        told[each.rid] = (step, min(again, each.deadline or again))
    return told


def _facts_of(revocation: Revocation, clients: Clients) -> ProviderFacts | None:
    try:
        return clients.named(revocation.client).facts
    except (ProviderNotRegisteredError, ClientConfigError):
        return None
