"""
Starting: a generation of a connection and its link, an attempt beside a live grant, or one more source of an account.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from quitclaim.domain.asked import asked_scopes
from quitclaim.domain.connect import (
    Connection,
    Idempotency,
    Owner,
    Start,
    Ticket,
    link_of,
    may_start,
    may_step_up,
    may_visit,
    started,
    stepping_up,
)
from quitclaim.domain.errors import (
    FlowNotSupportedError,
    IdempotencyMismatchError,
    InvalidBodyError,
    MovedError,
    OwnerDeletedError,
    SourceStartStaleError,
    StateConflictError,
)
from quitclaim.domain.ids import ConnectionRef, digest
from quitclaim.domain.limits import IDEMPOTENCY_TTL_MS, TICKET_MS
from quitclaim.domain.secret import Secret
from quitclaim.domain.sources import (
    SourceProof,
    SourceStart,
    asked_for,
    check_proof,
    is_as_proven,
    is_established,
    told_of_asking,
)
from quitclaim.flows.connect.connecting import TRIES, Connecting, clear_of_settled, existing, refuse_blocked
from quitclaim.ports import Client


@dataclass(frozen=True)
class StartRequest:
    """
    What the app asks for. *again*: a reconnect, which may also follow a revoked connection.

    *scopes*: other than the client's usual ones. *login_hint*: who the provider is to expect (OIDC core 3.1.2.1).
    *metadata*: notes of the app, checked. *variables*: what the provider's addresses need (a shop, a subdomain).
    *source*: what is to be linked behind an account at a broker; *proof*: what the app saw of it.
    """

    ref: ConnectionRef
    client: str
    return_to: str | None
    provider: str | None = None
    again: bool = False
    idempotency_key: str | None = None
    scopes: frozenset[str] = frozenset()
    login_hint: Secret | None = None
    metadata: dict[str, str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    source: str | None = None
    proof: SourceProof | None = None

    def digest(self, about: str | None) -> str:
        """What makes two requests the same. *about*: a keyed digest of what is said of the user, easily guessed."""
        parts = [*self.key_parts(), self.client, self.return_to or ""]
        further = {"scopes": sorted(self.scopes), "about": about, "metadata": self.metadata, "source": self.source}
        further["proof"] = None if self.proof is None else vars(self.proof)
        if any(further.values()):
            parts.append(json.dumps(further, sort_keys=True))
        return digest("\n".join(parts))

    def about(self, variables: Mapping[str, str]) -> Secret | None:
        """What the start says of its user, as text; None where it says nothing."""
        said = {"hint": None if self.login_hint is None else self.login_hint.reveal(), "variables": dict(variables)}
        return Secret(json.dumps(said, sort_keys=True)) if any(said.values()) else None

    def key_parts(self) -> tuple[str, ...]:
        """The route, for the digest of the idempotency key."""
        return ("reconnect" if self.again else "connect", self.ref.tenant, self.ref.owner, self.ref.connection)


@dataclass(frozen=True)
class Started:
    """The connection, and the ticket of its connect link; no ticket where the existing connection is the answer."""

    connection: Connection
    ticket: Secret | None
    expires_at: int | None


def start(request: StartRequest, world: Connecting) -> Started:
    """
    Begin a generation of a connection and make its connect link.

    1. One transaction: the connection is authorizing, the ticket exists, the idempotency key is taken, and a held
       exchange of the same owner and client ends. Crash before it: nothing happened. After it: the link lapses at
       `lapse_at` by itself.

    A start of a connection that is live or ending is answered with that connection, the same start of one whose link
    still waits with that link (C-9, U-12): then nothing is written. Refused by the barrier before the user is sent
    away; the begin decides. A source that is named is asked for in the same commit; of a live connection to a broker
    it is all that is started (`_source_started`).
    """
    ref = request.ref
    client = world.clients.named(request.client)
    if request.provider is not None and request.provider != client.provider:
        raise InvalidBodyError("provider: this client is another provider's", field="provider")
    if not client.facts.connectable:
        raise FlowNotSupportedError(provider=client.provider)
    scopes = asked_scopes(request.scopes, client.scopes, client.optional_scopes)
    about = request.about(client.at_start(request.variables))
    if request.source is not None and not client.facts.has_sources:
        raise InvalidBodyError("source: this provider has none", field="source")
    key = _idempotency_digest(request)
    for turn in range(TRIES):
        now = world.clock.now() + turn  # two links of one millisecond are two links
        owner, before, barrier = world.reads.fence(ref, client.name)
        if owner is not None and owner.is_deleted:
            raise OwnerDeletedError
        if key is not None and (answer := _first_answer(request, key, about, world)) is not None:
            return answer
        if before is not None and before.client != client.name:
            raise StateConflictError(
                "This connection is another client's: use another id.", connection_id=ref.connection
            )
        reuses = request.source is not None and is_established(before, client.name)
        check_proof(request.proof, ref, request.source, reuses=reuses)
        if reuses and owner is not None and before is not None:
            done = _source_started(request, owner, before, client, key, about, now, world)
            if done is not None:
                return done
            continue
        steps_up = bool(request.again and request.scopes) and may_step_up(before, client.facts)
        if not steps_up and not may_start(before, again=request.again):
            return Started(existing(before), None, None)
        if (
            not request.again
            and key is None
            and (waiting := _same_link(request, before, scopes, about, world)) is not None
        ):
            return waiting
        resolved = clear_of_settled(ref, barrier, client.name, world)
        refuse_blocked(resolved, now)
        expires = now + TICKET_MS
        if steps_up and before is not None:
            after, generation = stepping_up(before, world.ids.new_id(), request.metadata), before.generation + 1
        else:
            after = started(before, ref, client.provider, client.name, expires, request.metadata)
            if client.facts.is_broker:  # the account is made for this life of the connection: nobody chooses it
                after = replace(after, subject=None, account=None)
            generation = after.generation
        ticket = world.vault.ticket(ref, generation, now)
        held = world.reads.held(resolved)
        record = None
        if key is not None:
            told: dict[str, str | int] = {"generation": generation, "started_at": now, "expires_at": expires}
            if steps_up:
                told["step_up"] = 1
            record = Idempotency(
                ref.tenant, key, _request_digest(request, about, world), told, now + IDEMPOTENCY_TTL_MS
            )
        earlier = asked = None
        if request.source is not None:
            earlier = world.reads.source(ref, request.source)
            asked = asked_for(earlier, ref, request.source, now, fences=False, generation=generation)
        decision = Start(
            owner=owner,
            before=before,
            after=after,
            ticket=Ticket(
                ref=ref,
                generation=generation,
                client=client.name,
                visits=0,
                expires=expires,
                return_to=request.return_to,
                scopes=scopes,
                step_up=after.step_up,
                about=None if about is None else world.vault.seal_under_ticket(ticket, about),
                source=request.source,
                fence=None if asked is None else asked.fence,
            ),
            ticket_digest=digest(ticket.reveal()),
            now=now,
            idempotency=record,
            superseded=held,
            hold_is_free=held is None or world.reads.is_free(held),
            superseded_connection=world.reads.connection(held.ref) if held is not None and held.ref != ref else None,
            source_before=earlier,
            source=asked,
        )
        try:
            world.store.start(decision)
        except MovedError:
            continue
        if held is not None:
            world.kick.revoke_now([held.rid])
        return Started(after, ticket, expires)
    raise MovedError


def _source_started(
    request: StartRequest,
    owner: Owner,
    connection: Connection,
    client: Client,
    key: str | None,
    about: Secret | None,
    made_at: int,
    world: Connecting,
) -> Started | None:
    """
    A link of one more source behind an account that is there already; None if somebody was faster.

    1. One transaction: the source is asked for (or proven to be as the app saw it), and the ticket exists; the
       connection is held to its life and stays as it is (D-28, D-29). Crash after it: the link expires by itself, and
       the account is never touched (M-15, M-48).
    """
    ref, slug, now = request.ref, request.source or "", world.clock.now()
    expires = made_at + TICKET_MS
    ticket = world.vault.ticket(ref, connection.generation, made_at)
    before = world.reads.source(ref, slug)
    if request.proof is not None and not is_as_proven(before, request.proof, connection.generation):
        raise SourceStartStaleError(connection_id=ref.connection)
    record = None
    if key is not None:
        told: dict[str, str | int] = {
            "generation": connection.generation,
            "started_at": made_at,
            "expires_at": expires,
            "reuses": 1,
        }
        record = Idempotency(ref.tenant, key, _request_digest(request, about, world), told, now + IDEMPOTENCY_TTL_MS)
    after = None
    if request.proof is None:
        after = asked_for(before, ref, slug, now, fences=True, generation=connection.generation)
    seen = after or before
    decision = SourceStart(
        owner=owner,
        connection=connection,
        before=before,
        after=after,
        told=None if after is None else told_of_asking(before, after, connection.generation, now),
        ticket=Ticket(
            ref=ref,
            generation=connection.generation,
            client=client.name,
            visits=0,
            expires=expires,
            return_to=request.return_to,
            source=slug,
            fence=None if seen is None else seen.fence,
            reuses=True,
        ),
        ticket_digest=digest(ticket.reveal()),
        now=now,
        idempotency=record,
    )
    try:
        world.store.start_source(decision, request.proof)
    except MovedError as moved:
        if request.proof is not None and "source" in moved.seen:
            raise SourceStartStaleError(connection_id=ref.connection) from moved
        return None
    return Started(connection, ticket, expires)


def _idempotency_digest(request: StartRequest) -> str | None:
    if request.idempotency_key is None:
        return None
    return digest("\n".join((*request.key_parts(), request.idempotency_key)))


def _first_answer(request: StartRequest, key: str, about: Secret | None, world: Connecting) -> Started | None:
    found = world.reads.first_answer(request.ref.tenant, key, world.clock.now())
    if found is None:
        return None
    earlier, answer = found
    if earlier != _request_digest(request, about, world):
        raise IdempotencyMismatchError
    generation, expires = int(answer["generation"]), int(answer["expires_at"])
    client = world.clients.named(request.client)
    if "reuses" in answer:
        ticket = world.vault.ticket(request.ref, generation, int(answer["started_at"]))
        return Started(existing(world.reads.connection(request.ref)), ticket, expires)
    if "step_up" in answer:
        connection = replace(existing(world.reads.connection(request.ref)), generation=generation - 1)
        ticket = world.vault.ticket(request.ref, generation, int(answer["started_at"]))
        return Started(connection, ticket, expires)
    connection = started(None, request.ref, client.provider, client.name, expires, request.metadata)
    ticket = world.vault.ticket(request.ref, generation, int(answer["started_at"]))
    return Started(replace(connection, generation=generation), ticket, expires)


def _request_digest(request: StartRequest, about: Secret | None, world: Connecting) -> str:
    return request.digest(None if about is None else world.vault.fingerprint(about))


def _same_link(
    request: StartRequest, before: Connection | None, scopes: frozenset[str], about: Secret | None, world: Connecting
) -> Started | None:
    """
    The link that waits, if this is the start that made it: the name of a connection is as good as a key (U-12).

    A link that was opened as often as it may be, or that asks for something else, is replaced.
    """
    now = world.clock.now()
    made_at = link_of(before, now)
    if before is None or made_at is None:
        return None
    ticket = world.vault.ticket(before.ref, before.generation, made_at)
    found = world.reads.ticket(ticket.reveal())
    if found is None or not may_visit(found, now):
        return None
    said = None if found.about is None else world.vault.open_under_ticket(ticket, found.about)
    asked = (request.client, request.return_to, scopes, about, request.metadata)
    if asked != (found.client, found.return_to, found.scopes, said, before.metadata) or request.source != found.source:
        return None
    return Started(before, ticket, found.expires)
