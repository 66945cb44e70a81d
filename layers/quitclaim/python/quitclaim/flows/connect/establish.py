"""
Where no owner confirms, the app may say whether what came back is to be a connection: before a grant is installed, and
after a source was linked behind an account that is there. Its no, and its silence, leave the grant to be revoked, and a
source in error.
"""

from contextlib import suppress
from typing import Final

from quitclaim.domain.connect import Authorization, Connection, Exchange, Owner
from quitclaim.domain.errors import MovedError, SourceAdmissionNotCommittedError
from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind, HookOutcome, HookWord, hook_id
from quitclaim.domain.limits import HOOK_CALL_MS, SAVE_MS, SECOND
from quitclaim.domain.sources import NOT_ADMITTED, link_refused
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.flows.connect.hold import released
from quitclaim.ports import Client, Deadline

KIND: Final = HookKind.CONNECTION_ESTABLISHING
AFTER_THE_ANSWER_MS: Final = 2 * SAVE_MS
"""What is kept free behind the app's answer: to install what is held, or to release it."""


def establish(
    authorization: Authorization, held: Exchange, client: Client, deadline: Deadline, world: Connecting
) -> None:
    """
    Ask the app before what is held is installed (M-44): the same id for the same exchange. Unless it says that it is
    done, and of a source that was asked for with it that this is admitted, the grant is released (row 9), and the
    refusal raised. Crash while it is asked: the hold ends by itself, and the sweep revokes.
    """
    if not _is_asked(client, world):
        return
    ref = held.ref
    left = min(deadline.remaining_ms(), (held.hold_ends or 0) - world.clock.now()) - AFTER_THE_ANSWER_MS
    if left < SECOND:
        raise released(held, "out_of_time", world)
    id_ = hook_id(KIND, ref.tenant, ref.owner, held.in_barrier)
    answer = _asked(authorization, held.generation, client, id_, held.started, left, world)
    if _is_admitted(answer, authorization):
        return
    refusal = released(held, NOT_ADMITTED, world)
    raise refusal if authorization.source is None else SourceAdmissionNotCommittedError(connection_id=ref.connection)


def admit_link(
    authorization: Authorization,
    owner: Owner,
    connection: Connection,
    client: Client,
    deadline: Deadline,
    world: Connecting,
) -> None:
    """
    Ask the app about a source that was linked behind an account which is there; nothing but the source is touched by
    what it says (M-48). A link of what the source was before it was asked for again, or ended, asks nothing.
    """
    ref, slug = authorization.ref, authorization.source
    if slug is None or not _is_asked(client, world):
        return
    source = world.reads.source(ref, slug)
    if source is None or source.is_connected_in(connection.generation):
        return
    if source.error == NOT_ADMITTED and source.fence - 1 == authorization.fence:
        raise SourceAdmissionNotCommittedError(connection_id=ref.connection)  # the same callback, once more
    left = deadline.remaining_ms() - AFTER_THE_ANSWER_MS
    if source.fence != authorization.fence or left < SECOND:
        return  # out of time: whether it is linked is for the broker's events to say, as ever
    id_ = hook_id(KIND, ref.tenant, ref.owner, ref.connection, str(connection.generation), slug, str(source.fence))
    at = authorization.consumed_at or world.clock.now()
    if _is_admitted(_asked(authorization, connection.generation, client, id_, at, left, world), authorization):
        return
    with suppress(MovedError):  # it was asked for again, or connected by an event, or its connection goes
        world.store.fail_link(link_refused(owner, connection, source, world.clock.now()))
    raise SourceAdmissionNotCommittedError(connection_id=ref.connection)


def _is_asked(client: Client, world: Connecting) -> bool:
    return client.confirmation == "none" and world.hooks is not None and world.hooks.has(KIND)


def _asked(
    authorization: Authorization, generation: int, client: Client, id_: str, at: int, left_ms: int, world: Connecting
) -> HookAnswer:
    """What the app says, within the time that a hook has and that is left."""
    ref = authorization.ref
    data = {
        "tenant": ref.tenant,
        "owner": ref.owner,
        "connection_id": ref.connection,
        "generation": generation,
        "provider": client.provider,
        **({} if authorization.source is None else {"source": authorization.source, "fence": authorization.fence}),
    }
    if world.hooks is None:
        return HookAnswer(HookOutcome.UNREACHED, "not_set_up")
    answer = world.hooks.ask(HookCall(KIND, id_, at, data), min(HOOK_CALL_MS, left_ms))
    if answer.outcome in (HookOutcome.FAILED, HookOutcome.UNREACHED):
        world.on_hook(KIND, answer)
    return answer


def _is_admitted(answer: HookAnswer, authorization: Authorization) -> bool:
    return answer.is_done and (authorization.source is None or answer.word is HookWord.ADMITTED)
