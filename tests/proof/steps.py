"""
The judge of single steps: what one commit may do to what was there, whoever made it (I-3 to I-11, I-18).

A state at rest forgets how it was reached; this looks at each commit as it happens. Time is the clock that the writer
read last: a frozen writer is judged by what it knew.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.connect import IN_A_BROWSER
from quitclaim.domain.keyring import SEALED_FORMAT
from quitclaim.domain.limits import COMPACT_MS, GUARD_MS, KEY_LEAD_MS, KEY_REST_MS, LINK_VISITS, WRONG_CODES
from quitclaim.ports import Key
from quitclaim.store.events import event_of

if TYPE_CHECKING:
    from tests.proof.world import World

type Item = Mapping[str, Any]
type Change = tuple[Item | None, Item | None]

NOTICES: Final = frozenset({"unconfirmed", "expired", "unreadable", "unsupported"})
TERMINAL: Final = NOTICES | {"confirmed"}

CONNECTION: Final[Mapping[str | None, frozenset[str]]] = {
    None: frozenset({"authorizing"}),
    "authorizing": frozenset({"authorizing", "ready", "failed", "reconciling_link", "revoking"}),
    "ready": frozenset({"ready", "revoking", "needs_reconnect"}),
    "needs_reconnect": frozenset({"authorizing", "revoking"}),
    "failed": frozenset({"authorizing", "revoking", "reconciling_link"}),
    "reconciling_link": frozenset({"reconciling_link", "ready", "failed", "revoking"}),
    "revoking": frozenset({"reconciling_revoke", "revoked", "revoking"}),
    "reconciling_revoke": frozenset({"reconciling_revoke", "revoking", "revoked"}),
    "revoked": frozenset({"authorizing"}),
}
EXCHANGE: Final[Mapping[str | None, frozenset[str]]] = {
    None: frozenset({"open"}),
    "open": frozenset({"held", "cleanup", "unconfirmed", "ended"}),
    "held": frozenset({"held", "installed", "cleanup"}),
    "installed": frozenset(),
    "cleanup": frozenset({"cleanup"}),
    "unconfirmed": frozenset({"unconfirmed", "cleanup"}),
    "ended": frozenset({"cleanup"}),
}
"""States against events of the table of writes, section 5, as what may follow what."""
DIRECT: Final = frozenset({"import", "sign_in"})
"""Kinds of exchanges that begin with their connection."""


def faults_of_step(world: "World", changes: Mapping[Key, Change], now: int) -> list[str]:
    """What is wrong with one commit: the items that it changed, before and after."""
    found: list[str] = []
    for key, (before, after) in changes.items():
        if before == after:
            continue
        kind = (after or before or {}).get("ty", "")
        if kind == "idempotency" and before is not None and before["expires"] <= now:
            continue  # a record that counts no longer: another takes its place
        if before is not None and after is not None and after["v"] <= before["v"]:
            found.append(f"I-18: {key.sk} of {key.pk} changed, and its version did not grow")
        judge = JUDGES.get(kind)
        if judge is not None:
            found += [f"{fault}: {key.pk} {key.sk}" for fault in judge(world, changes, before, after, now)]
    return found


type Judge = Callable[["World", Mapping[Key, Change], Item | None, Item | None, int], Iterable[str]]


def _owner(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    if after is None:
        yield "I-10: an owner's fence is gone"
    elif before is not None:
        for name in ("deleted_at", "stopped_at"):
            if name in before and after.get(name) != before[name]:
                yield f"I-10: {name} of an owner was changed"
        if after["epoch"] < before["epoch"]:
            yield "I-10: an owner's epoch fell"


def _connection(
    world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int
) -> Any:
    if after is None:
        return
    old = before or {"state": None, "generation": 0}
    is_other = after["state"] != old["state"]
    moves = after["generation"] - old["generation"]
    if after["state"] not in CONNECTION[old["state"]]:
        yield f"a connection went from {old['state']} to {after['state']}"
    imports = any(
        new is not None and item is None and new["ty"] == "exchange" and new["kind"] in DIRECT
        for item, new in changes.values()
    )
    begun_in = "exchanging" if imports else "link"
    is_restart = after["state"] == "authorizing" and after.get("phase") == begun_in and moves == 1
    begins = is_restart or (is_other and after["state"] in ("revoking", "needs_reconnect"))
    if old["state"] == after["state"] == "ready" and _steps_up(changes):
        begins = True
    if moves != (1 if begins else 0):
        yield f"I-5: {old['state']} {old['generation']} became {after['state']} {after['generation']}"
    is_same_attempt = after.get("phase") == "exchanging" and after.get("exchange") == old.get("exchange")
    if after["state"] == "authorizing" and old.get("phase") == "exchanging" and not is_restart and not is_same_attempt:
        yield "I-5: an attempt took the place of another one of its generation"
    if after.get("failure") == "link_expired" and is_other and old.get("lapse_at", 0) + GUARD_MS > now:
        yield "C-37: a link lapsed that could still be used"
    is_next_account = world.kind.broker and moves == 1  # an account at a broker is made for one life of a connection
    if "subject" in old and after.get("subject") != old["subject"] and not is_next_account:
        yield "S-21: a connection's account was exchanged"
    if is_restart and world.is_deleted(after["PK"]):
        yield "I-10: a connection of a deleted owner was started"


TOLD_OF_SOURCE: Final = frozenset({"source.connected", "source.disconnected", "source.failed"})


def _source(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    """
    M-10, M-48, M-74: a source is never born connected, is connected in the life of its connection alone and, where the
    app decides, by its word; whatever becomes of one is told in the same commit.
    """
    if after is None:
        return
    if before is None and after["status"] != "disconnected":
        yield "M-10: a source was born connected"
    if before is not None and after["fence"] < before["fence"]:
        yield "M-12: the fence of a source fell"
    told = [new["kind"] for item, new in changes.values() if item is None and new is not None and new["ty"] == "event"]
    was = None if before is None else (before["status"], before.get("generation"), before.get("error"))
    connects = after["status"] == "connected" and was is not None and was[:2] != ("connected", after["generation"])
    connection = world.table.item(Key(after["PK"], "C#" + after["SK"].split("#")[1])) or {}
    if connects:
        life = (connection.get("state"), connection.get("generation"))
        if life != ("ready", after["generation"]) or world.is_deleted(after["PK"]):
            yield f"I-5: a source was connected, and its connection is {life}"
        if told != ["source.connected"]:
            yield f"M-74: a source was connected, and the app was told {told}"
        if world.app_admits is not None and (world.app_admits != "admitted" or not world.seen.asked_app):
            yield "M-74: a source was connected, and the app had not admitted it"
    elif after.get("error") == "not_admitted" and was is not None and was[2] is None:
        returned = (item for item in world.table.items() if item["ty"] == "authorization" and item.get("source"))
        if not any("consumed_at" in item for item in returned):
            yield "M-44: a source failed by a link whose state is not spent"
    elif was is not None and was[0] == "connected" and after["status"] == "disconnected":
        is_alive = (connection.get("state"), connection.get("generation")) == ("ready", was[1])
        if is_alive and not set(told) & TOLD_OF_SOURCE:
            yield "M-74: a source ended, and the app was not told"
    elif set(told) & TOLD_OF_SOURCE and (was is None or after.get("error") == was[2]):
        yield f"M-74: nothing became of a source, and the app was told {told}"
    touched = {new["ty"] for item, new in changes.values() if new is not None and new != item}
    if set(told) & TOLD_OF_SOURCE and touched & {"connection", "grant"}:
        yield "M-48: what became of a source changed its connection"


def _share(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    """M-74: nobody has an event of a source that was never connected, unless the app had not decided about it."""
    if before is not None or after is None or after["SK"] == "W" or after.get("reason") != "received":
        return
    body = (world.table.item(Key(after["PK"], "W")) or {}).get("body", b"")
    said = _meaning(body)
    if not world.kind.broker or "source" not in said or said.get("source_word") in ("disconnected", "failed"):
        return
    _, tenant, owner, connection = after["SK"].split("#")
    source = world.table.item(Key(f"O#{tenant}#{owner}", f"R#{connection}#{said['source']}"))
    was_never = source is None or (source["status"] == "disconnected" and source["fence"] == 1)
    if was_never and world.app_admits != "deferred":
        yield "M-74: a connection has an event of a source that was never connected"


def _meaning(sealed: bytes) -> Mapping[str, Any]:
    """What the open vault sealed for a delivery; nothing, of what only a real one could open."""
    try:
        found: Mapping[str, Any] = json.loads(sealed.decode().rpartition(";")[2])
    except ValueError:
        return {}
    return found


def _steps_up(changes: Mapping[Key, Change]) -> bool:
    """Whether a wider grant takes the place of the live one in this very write."""
    return any(
        new is not None and new["ty"] == "exchange" and new["kind"] == "step_up" and new["outcome"] == "installed"
        for _, new in changes.values()
    )


def _exchange(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    if after is None:
        if before is not None and not _may_go(world, before, before["PK"], before["outcome"] == "unconfirmed"):
            yield "F-69: an exchange is gone that was not over"
        if before is not None:
            world.seen.let_go[before["SK"].split("#")[2]] = before
        return
    outcome = before["outcome"] if before else None
    in_hand = before is None and after["kind"] == "link" and after["outcome"] == "held"
    if after["outcome"] not in EXCHANGE[outcome] and not in_hand:
        yield f"I-3: an exchange went from {outcome} to {after['outcome']}"
    if before is None:
        yield from _begun(world, changes, after)
        return
    for name in ("rid", "started", "ends", "generation", "kind"):
        if before[name] != after[name]:
            yield f"I-3: {name} of an exchange was changed"
    if after["outcome"] == "installed" and outcome == "held" and before["hold_ends"] <= now:
        yield "I-3: installed after its hold was over"
    if after["outcome"] == "held" and outcome == "held" and before["hold_ends"] <= now:
        yield "I-3: a hold that was over was changed"
    if after.get("reason") == "no_answer" and outcome == "open" and before["ends"] + GUARD_MS > now:
        yield "custody rule 1: lapsed while its answer could still come"
    if after.get("reason") == "not_confirmed" and outcome == "held" and before["hold_ends"] + GUARD_MS > now:
        yield "custody rule 1: lapsed while it could still be installed"
    if after["outcome"] == "held" and outcome == "open" and before["ends"] <= now:
        yield "I-3: held after its window was over"
    if "acknowledged" in before and after.get("acknowledged") != before["acknowledged"]:
        yield "F-32: an acknowledgement was taken back or repeated"
    if "acknowledged" in after and "acknowledged" not in before:
        if after["outcome"] != "unconfirmed":
            yield "F-33: an exchange that is no notice was acknowledged"
        if before["ends"] + GUARD_MS > now:
            yield "custody rule 2: acknowledged while a grant could still come"
    if after["wrong"] > max(before["wrong"], world.seen.wrong_codes):
        yield f"decision 0013: {world.seen.wrong_codes} wrong codes were brought, and {after['wrong']} counted"
    if after["wrong"] > before["wrong"]:
        if outcome != "held" or before["hold_ends"] <= now:
            yield "decision 0013: a wrong code was counted where nothing waits for one"
        if after["wrong"] >= WRONG_CODES:
            yield "decision 0013: five wrong codes, and the grant still waits"


def _may_go(world: "World", item: Item, partition: str, is_notice: bool) -> bool:
    """Whether compaction may take it: nothing waits for it, and nobody must acknowledge it any more."""
    if item.get("outcome") in ("open", "held"):
        return False
    return not is_notice or "acknowledged" in item or world.is_deleted(partition)


def _begun(world: "World", changes: Mapping[Key, Change], exchange: Item) -> Iterable[str]:
    """I-2, I-5, I-9, I-10 for an exchange that begins."""
    pk, connection, client = exchange["PK"], exchange["SK"].split("#")[1], exchange["client"]
    if world.is_deleted(pk):
        yield "I-10: an exchange of a deleted owner was begun"
    before, after = changes.get(Key(pk, f"C#{connection}"), (None, None))
    if exchange["kind"] == "link":
        if f"Q#{exchange['rid']}" not in {
            new["PK"] for old, new in changes.values() if old is None and new is not None
        }:
            yield "D-29: an account was taken out of its state, and nothing is queued for it"
        queued = changes.get(Key(f"Q#{exchange['rid']}", "Q"), (None, None))[1] or {"material": ()}
        for each in queued["material"]:
            world.ledger.idle -= world.tokens_in(each["sealed"])
    if exchange["kind"] in DIRECT:
        restarts = ("authorizing",) if exchange["kind"] == "sign_in" else ()
        if before is not None and before["state"] not in ("failed", "needs_reconnect", "revoked", *restarts):
            yield f"{exchange['kind']}: begun for a connection that is {before['state']}"
        if (
            after is None
            or after["generation"] != exchange["generation"] != (before or {"generation": 0})["generation"]
        ):
            yield "I-5: an import was begun for another generation"
    elif exchange["kind"] == "step_up":
        is_next = before is not None and before["generation"] + 1 == exchange["generation"]
        if before is None or before["state"] != "ready" or "step_up" not in before or not is_next:
            yield "I-5: a step-up was begun for a connection that waits for none"
    elif before is None or after is None or before["state"] != "authorizing" or before.get("phase") != "link":
        yield "I-5: an exchange was begun for a connection that waits for none"
    elif before["generation"] != exchange["generation"]:
        yield "I-5: an exchange was begun for another generation"
    spent = [old for old, new in changes.values() if old is not None and old["ty"] == "authorization"]
    if exchange["kind"] in IN_A_BROWSER and (
        len(spent) != 1 or "consumed_at" in spent[0] or "discarded_at" in spent[0]
    ):
        yield "M-33: an exchange was begun without spending a state"
    yield from (f"I-9: begun although {blocker}" for blocker in blockers(world, pk, client, exchange))


def blockers(world: "World", pk: str, client: str, exchange: Item) -> Iterable[str]:
    """What stands before a new grant of an owner and client, read from everything but the barrier."""
    for item in world.table.items():
        ty = item["ty"]
        if ty == "exchange" and item["PK"] == pk and item["client"] == client and item["SK"] != exchange["SK"]:
            if item["outcome"] in ("open", "held"):
                yield f"{item['SK']} is {item['outcome']}"
            elif item["outcome"] == "unconfirmed" and "acknowledged" not in item:
                yield f"{item['SK']} is not acknowledged"
        elif ty == "revocation" and f"O#{item['t']}#{item['o']}" == pk and item["client"] == client:
            if item.get("listed") is False:
                continue
            if item["state"] == "pending" and not _is_held(world, item):
                yield f"{item['PK']} is pending"
            elif item["state"] in NOTICES and "acknowledged" not in item:
                yield f"{item['PK']} is not acknowledged"
        elif ty == "intent" and item["PK"] == pk and item["client"] == client and item["purge"] == "pending":
            yield f"{item['SK']} is not purged"


def _is_held(world: "World", revocation: Item) -> bool:
    """Whether it is the hold of an exchange that is held: then that exchange is what blocks, or is about to install."""
    return any(
        item["ty"] == "exchange" and item["outcome"] == "held" and item["rid"] == revocation["PK"][2:]
        for item in world.table.items()
    )


def _grant(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    if after is None:
        yield from _grant_gone(world, changes, before, now)
        return
    if before is None or after["generation"] != before["generation"] or after["rid"] != before["rid"]:
        queued, made = (None, None) if before is None else changes.get(Key(f"Q#{before['rid']}", "Q"), (None, None))
        if before is not None and not (_steps_up(changes) and queued is None and made is not None):
            yield "I-4: a live grant was overwritten"
        yield from _installed(world, changes, after, now)
        return
    for name in ("family", "generation", "rid", "reach"):
        if before[name] != after[name]:
            yield f"I-6: {name} of a grant was changed"
    if after["use"] != before["use"]:
        if after["tv"] != before["tv"] + 1:
            yield f"I-6: version {before['tv']} was replaced by {after['tv']}"
        if after.get("saved_by") != before.get("lease"):
            yield "I-6: saved by somebody who does not hold the lease"
    if "lease" in after and after["lease"] != before.get("lease"):
        if "lease" in before and before["lease_until"] + GUARD_MS > now:
            yield "I-6: a lease was taken from its holder"
        if after["lease"] not in after.get("attempts", ()):
            yield "I-2: a lease without its attempt on record"


def _grant_gone(world: "World", changes: Mapping[Key, Change], before: Item | None, now: int) -> Iterable[str]:
    made = [new for old, new in changes.values() if old is None and new is not None]
    if before is not None and not any(item["PK"] == f"Q#{before['rid']}" for item in made):
        yield "I-1: a grant is gone, and nothing was queued for it"
    is_given_up = any(item["ty"] == "intent" and item["reason"] == "refresh_unconfirmed" for item in made)
    if before is not None and is_given_up and before.get("lease_until", 0) + GUARD_MS > now:
        yield "row 21: given up while its refresh is under way"
    is_rejected = any(item["ty"] == "intent" and item["reason"] == "grant_rejected" for item in made)
    if before is not None and is_rejected and not world.seen.refusals:
        alive = {token.name for token in world.ledger.alive()} & world.tokens_in(before["use"])
        if alive:
            yield f"A-2: a healthy grant was stopped by a stale refusal, {sorted(alive)} lives"


def _installed(world: "World", changes: Mapping[Key, Change], grant: Item, now: int) -> Iterable[str]:
    """I-3, I-5, I-9, I-10 and A-3 for a grant that becomes the live one."""
    pk, connection = grant["PK"], grant["SK"].split("#")[1]
    exchange = world.table.item(Key(pk, f"X#{connection}#{grant['family'].split('#')[0]}"))
    before, after = changes.get(Key(pk, f"C#{connection}"), (None, None))
    if world.is_deleted(pk):
        yield "I-10: installed for a deleted owner"
    if exchange is None or exchange["outcome"] != "installed":
        yield "I-3: installed, and its exchange does not say so"
        return
    old, _ = changes.get(Key(pk, exchange["SK"]), (None, None))
    if old is None or old["outcome"] != "held":
        yield "I-3: installed a second time"
    held, left = changes.get(Key(f"Q#{grant['rid']}", "Q"), (None, None))
    if held is None or left is not None or held.get("lease") != exchange["SK"].split("#")[2]:
        yield "I-3: installed without the hold"
    steps_up = exchange["kind"] == "step_up"
    waits = "ready" if steps_up else "authorizing"
    if before is None or after is None or before["state"] != waits or after["state"] != "ready":
        yield "I-5: installed at a connection that does not wait for it"
    elif before["generation"] + steps_up != grant["generation"]:
        yield "I-5: installed at another generation"
    elif steps_up and before.get("step_up_exchange") != exchange["SK"].split("#")[2]:
        yield "I-5: installed at a connection that does not wait for it"
    queued_now = {f"{key.pk} is pending" for key, (old, new) in changes.items() if old is None and new is not None}
    found = [each for each in blockers(world, pk, exchange["client"], exchange) if each not in queued_now]
    yield from (f"I-9: installed although {each}" for each in found)
    for name in world.tokens_in(grant["use"]):
        token = world.ledger.tokens[name]
        if not token.alive and token.why_dead == "revoked":
            yield f"A-3: {name} was dead on arrival, by our own revocation"


def _revocation(
    world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int
) -> Any:
    if after is None:
        exchanges = [new for _, new in changes.values() if new is not None and new["ty"] == "exchange"]
        if before is not None and not any(
            item["outcome"] == "installed" and f"Q#{item['rid']}" == before["PK"] for item in exchanges
        ):
            world.seen.let_go[before["PK"][2:]] = before
            if not _is_over(before, now):
                yield "I-1: a revocation is gone, and its grant was not installed"
            elif not _may_go(world, before, f"O#{before['t']}#{before['o']}", before["state"] != "confirmed"):
                yield "F-69: a notice is gone that nobody acknowledged"
        return
    if before is None:
        if after["state"] not in ("pending", "unsupported"):
            yield f"D-5: a revocation was born {after['state']}"
        return
    if before["state"] in TERMINAL and after["state"] != before["state"]:
        yield f"I-7: {before['state']} became {after['state']}"
    if "material" in before and "material" in after and before["material"] != after["material"]:
        yield "custody rule 4: a revocation's material was changed"
    if "material" in before and "material" not in after and after["state"] not in TERMINAL:
        yield "D-5: a revocation's material is gone"
    if before["state"] not in TERMINAL and after["state"] in TERMINAL:
        yield from _settled(before, after, now)
    if before["state"] == "parked" and after["state"] == "pending":
        if after["deadline"] <= now:
            yield "custody rule 11: woken without a fresh deadline"
        if has_live_in_reach(world, after):
            yield "custody rule 11: woken while something lives in its reach"
    if before["state"] == "pending" and after["state"] == "parked" and not has_live_in_reach(world, after):
        yield "custody rule 11: parked beside nothing that lives"
    for name in ("finished", "acknowledged"):
        if name in before and after.get(name) != before[name]:
            yield f"I-7: {name} was changed or repeated"
    if "acknowledged" in after and "acknowledged" not in before and before["state"] not in NOTICES:
        yield f"F-33: {before['state']} was acknowledged"
    if "lease" in after and after["lease"] != before.get("lease"):
        if "lease" in before and before["lease_until"] + GUARD_MS > now:
            held = any(item.get("SK", "").endswith(f"#{before['lease']}") for item in world.table.items())
            yield "A-4: a held grant was taken from its exchange" if held else "D-13: a claim was taken from its worker"
        if before["next"] > now:
            yield "K-9: claimed before it was due"
        if before["deadline"] <= now:
            yield "I-8: claimed after its deadline"
    for name in ("attempts", "claims", "excused"):
        if after[name] < before[name]:
            yield f"I-7: {name} of a revocation fell"


def _is_over(revocation: Item, now: int) -> bool:
    """Finished, and a day past its deadline: compaction may take it."""
    return "finished" in revocation and bool(revocation.get("deadline", 0) + COMPACT_MS <= now)


def has_live_in_reach(world: "World", revocation: Item) -> bool:
    """Whether its call would end a grant that is live."""
    grants = [item for item in world.table.items() if item["ty"] == "grant"]
    if revocation["reach"] == "family":
        mine = f"O#{revocation['t']}#{revocation['o']}"
        return any(item["PK"] == mine and item["family"] in revocation.get("family", ()) for item in grants)
    return any("account" in item and item["account"] == revocation.get("account") for item in grants)


def _settled(before: Item, after: Item, now: int) -> Iterable[str]:
    if after["state"] in ("expired", "unreadable"):
        if before["deadline"] + GUARD_MS > now:
            yield "I-8: erased before its deadline"
        return
    if before["state"] != "pending" or "lease" not in before or after.get("settled_by") != before["lease"]:
        yield "F-52: settled by somebody who does not hold the claim"
    if before.get("deadline", 0) <= now:
        yield "I-8: settled after its deadline"
    if after["state"] == "confirmed" and ("expected" in before or "lost" in before):
        yield "I-13: confirmed although a successor may be alive"


def _intent(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    if after is None:
        if before is not None and ("closed" not in before or before.get("rids")):
            yield "I-11: a stop is gone that was not closed"
        return
    if before is None:
        return
    for name in ("token", "reason", "client", "closed"):
        if name in before and after.get(name) != before[name]:
            yield f"I-11: {name} of a stop was changed"
    if before["purge"] == "done" and after["purge"] != "done":
        yield "I-11: a purge that was done is open again"
    for rid in before.get("rids", frozenset()) - after.get("rids", frozenset()):
        listed = changes.get(Key(f"Q#{rid}", "Q"), (world.table.item(Key(f"Q#{rid}", "Q")), None))[0]
        if "closed" not in before or (listed is not None and not _is_over(listed, now)):
            yield f"custody rule 5: a stop forgot {rid}"
    if "closed" in after and "closed" not in before:
        if after["purge"] != "done" or not after.get("comp_derived") or after["comp_open"]:
            yield "I-13: closed before purge and compensations"
        yield from _closed(world, after, now)


def _closed(world: "World", intent: Item, now: int) -> Iterable[str]:
    """I-13: everything of the connection is over when its stop is; or nobody is left to say so (F-69)."""
    pk, connection = intent["PK"], intent["SK"].split("#")[1]
    listed = set(intent.get("rids", ()))
    for item in world.table.items():
        if item["ty"] == "revocation" and f"O#{item['t']}#{item['o']}" == pk and item["c"] == connection:
            is_later = item["g"] > int(intent["SK"].split("#")[2])
            if is_later or (item["PK"][2:] not in listed and item.get("listed") is False):
                continue
            is_open = item["state"] in NOTICES and "acknowledged" not in item
            is_left = world.is_deleted(pk) and item.get("deadline", item["queued"]) + COMPACT_MS <= now
            if item["state"] == "pending" or (is_open and not is_left):
                yield f"I-13: closed although {item['PK']} is {item['state']}"
            if item["state"] == "parked" and not has_live_in_reach(world, item):
                yield f"custody rule 11: closed although {item['PK']} is about to wake"
        elif item["ty"] == "exchange" and item["PK"] == pk and item["SK"].split("#")[1] == connection:
            is_open = item["outcome"] in ("open", "held") and not world.is_deleted(pk)
            is_left = world.is_deleted(pk) and item["ends"] + COMPACT_MS <= now
            if is_open or (item["outcome"] == "unconfirmed" and "acknowledged" not in item and not is_left):
                yield f"I-13: closed although {item['SK']} is {item['outcome']}"


def _authorization(
    world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int
) -> Any:
    if before is None or after is None:
        return
    for name in ("consumed_at", "discarded_at"):
        if name in before and after != before:
            yield "M-33: a spent state was spent again"
        if name in after and name not in before and before["expires"] <= now:
            yield "M-33: a state was spent after it had expired"


def _ticket(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    if before is None or after is None:
        return
    if after["visits"] > LINK_VISITS:
        yield "row 2: a link was opened too often"
    if after["visits"] > before["visits"] and before["expires"] <= now:
        yield "row 2: a link was opened after it had expired"


ACCOUNT: Final = ("live", "parked", "killed_at", "killed_by", "left_at", "lost_at")


def _account(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    if after is None:
        known = {"live", "parked"} if before is None else {name for name in ACCOUNT if before.get(name)}
        if known:  # one of which nothing is known was only waited for
            yield f"custody rule 10: an account is gone, of which is known {sorted(known)}"
        return
    if after["live"] < 0 or after["parked"] < 0:
        yield "custody rule 10: a count fell below nothing"
    old = before.get("killed_at") if before else None
    is_claim = (
        old != after.get("killed_at")
        and after.get("killed_by") not in (None, "")
        and (old is None or (after.get("killed_at") or 0) > old)
    )
    if is_claim and before is not None and before["live"] > 0:
        yield "A-1: a wide revocation was claimed while a grant lives on the account"
    if old is not None and (after.get("killed_at") or 0) < old and after.get("killed_by") != before.get("killed_by"):
        yield "A-3: somebody lowered what another's revocation had raised"


def _told(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    told = ("kind", "transition", "at", "body", "outcome", "rid", "request", "answer", "action", "reason")
    if before is not None and (after is None or any(before.get(name) != after.get(name) for name in told)):
        yield "what was told was changed or told again"
    if after is None or after["ty"] != "event":
        return
    marked = after.get("published")
    if before is not None and "published" in before and before != after:
        yield "row 50: what is published was marked again"
    if marked is not None and event_of(dict(after)).public_id not in world.seen.heard:
        yield f"events/README.md: {after['SK']} is marked as published, and the app has not heard of it"


def _ring(world: "World", changes: Mapping[Key, Change], before: Item | None, after: Item | None, now: int) -> Any:
    """RB-62: a key is there before it seals, seals until a newer one does, and goes when nothing needs it."""
    if after is None:
        kid = (before or {})["SK"].split("#")[1].encode()
        sealed_with = bytes((SEALED_FORMAT, len(kid))) + kid
        if before is None or "retired" not in before or before["retired"] + KEY_REST_MS > now:
            yield "RB-62: a key is gone that has not rested"
        yield from (
            f"RB-62: a key is gone, and {item['SK']} of {item['PK']} was sealed with it"
            for item in world.table.items()
            if any(value.startswith(sealed_with) for value in _bytes_in(item))
        )
        return
    purpose = after["SK"].split("#")[0]
    if before is None:
        if after["active_from"] < now + KEY_LEAD_MS:
            yield "RB-62: a key seals before everybody knows it"
    elif "retired" in after and "retired" not in before:
        newer = (
            item["active_from"] + GUARD_MS <= now and item["active_from"] > before["active_from"]
            for item in world.table.items()
            if item["ty"] == "ring" and item["SK"].split("#")[0] == purpose
        )
        if not any(newer):
            yield "RB-62: a key was retired, and no newer one seals"
    for name in ("wrapped", "created", "active_from"):
        if before is not None and after[name] != before[name]:
            yield f"RB-62: {name} of a key was changed"


def _bytes_in(value: Any) -> Iterable[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _bytes_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from _bytes_in(member)


JUDGES: Final[Mapping[str, Judge]] = {
    "source": _source,
    "delivery": _share,
    "owner": _owner,
    "connection": _connection,
    "exchange": _exchange,
    "grant": _grant,
    "revocation": _revocation,
    "intent": _intent,
    "authorization": _authorization,
    "ticket": _ticket,
    "account": _account,
    "event": _told,
    "receipt": _told,
    "idempotency": _told,
    "audit": _told,
    "ring": _ring,
}
