"""
The judge: what must be true in every state, and what once everything has come to rest. It compares the table with the
provider's own ledger.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from quitclaim.domain.revocations import Reach
from tests.proof.bookkeeping import Books
from tests.proof.ledger import Issued
from tests.proof.world import World

NOTICES: Final = frozenset({"unconfirmed", "expired", "unreadable", "unsupported"})
WAITING: Final = frozenset({"authorizing", "reconciling_link", "revoking", "reconciling_revoke"})

type Item = Mapping[str, Any]


class Tables:
    """The table's items by type."""

    def __init__(self, world: World) -> None:
        self.by_type: dict[str, list[Item]] = {}
        for item in world.table.items():
            self.by_type.setdefault(item["ty"], []).append(item)

    def __getitem__(self, ty: str) -> list[Item]:
        return self.by_type.get(ty, [])


def faults_of_state(world: World) -> list[str]:
    """What is wrong in this state, whatever was on its way when it was reached (I-1, I-4, I-7, I-10, I-15)."""
    tables = Tables(world)
    found = list(world.seen.violations)
    connections = {(item["PK"], item["SK"]): item for item in tables["connection"]}
    for grant in tables["grant"]:
        connection = connections.get((grant["PK"], "C#" + grant["SK"].split("#")[1]))
        if connection is None or connection["state"] != "ready" or connection["generation"] != grant["generation"]:
            found.append(f"I-4: a live grant on a connection that is not ready at its generation: {grant['SK']}")
        if grant.get("attempts") and "d1" not in grant:
            found.append(f"I-15: {grant['SK']} has a refresh on record and no due time")
    for item in tables["revocation"]:
        if (item["state"] in ("pending", "parked")) != ("material" in item):
            found.append(
                f"I-7: {item['PK']} is {item['state']} and {'has' if 'material' in item else 'lacks'} material"
            )
        if ("lease" in item) != ("lease_until" in item):
            found.append(f"I-7: {item['PK']} has half a lease")
        is_waiting = item["state"] == "pending" or (item["state"] != "parked" and "finished" not in item)
        if is_waiting and "d1" not in item:
            found.append(f"I-15: {item['PK']} is {item['state']} and has no due time")
    for item in tables["exchange"]:
        if item["outcome"] in ("open", "held") and "d1" not in item:
            found.append(f"I-15: {item['SK']} is {item['outcome']} and has no due time")
    for item in tables["intent"]:
        if "closed" not in item and "d1" not in item:
            found.append(f"I-15: {item['SK']} is open and has no due time")
    for item in tables["connection"]:
        if item["state"] in WAITING and "d1" not in item:
            found.append(f"I-15: {item['SK']} is {item['state']} and has no due time")
        if item["state"] == "ready" and not any(_is_of(grant, item) for grant in tables["grant"]):
            found.append(f"I-4: {item['SK']} is ready without a live grant")
    for token in world.ledger.alive():
        if not _covered(token, tables, world):
            found.append(f"I-1: {token.name} is alive at the provider and nobody knows: {_where(token, world)}")
    return found + Books(world).faults()


def faults_at_rest(world: World) -> list[str]:
    """What is wrong once nothing is due any more: nothing open, nothing said that is not so (I-1, I-8, I-13, I-15)."""
    tables = Tables(world)
    found = faults_of_state(world)
    for item in tables["exchange"]:
        if item["outcome"] in ("open", "held"):
            found.append(f"I-15: {item['SK']} is still {item['outcome']}")
    for item in tables["revocation"]:
        if item["state"] == "pending":
            found.append(f"I-15: {item['PK']} is still pending")
        if item["state"] == "parked" and not _has_live_in_reach(item, tables):
            found.append(f"I-15: {item['PK']} is parked beside nothing that lives")
        if item["state"] == "confirmed":
            alive = {token.name for token in world.ledger.alive()} & world.seen.sealed_in.get(item["PK"][2:], set())
            if alive - _known_elsewhere(item, tables, world):
                found.append(f"I-13: {item['PK']} is confirmed and {sorted(alive)} lives")
    for grant in tables["grant"]:
        if grant.get("attempts"):
            found.append(f"I-15: {grant['SK']} still has an open refresh")
    for item in tables["intent"]:
        if "closed" not in item and not _waits_for_its_owner(item, tables):
            found.append(f"I-15: {item['SK']} is still open: {dict(item)}")
    for item in tables["connection"]:
        if item["state"] == "authorizing":
            found.append(f"I-15: {item['SK']} is still authorizing")
        if item.get("closed_as") == "confirmed":
            ref = f"{item['PK'][2:].replace('#', '/')}/{item['SK'][2:]}"
            alive = [
                token.name
                for token in world.ledger.alive()
                if _code(token, world).startswith(ref + "/")
                and not _is_acknowledged(token, item, tables, world)
                and not _is_the_apps(token, tables, world)  # a shared copy: the import said so
            ]
            known = (
                set().union(*(world.tokens_in(each["sealed"]) for each in _parked_material(tables))) if alive else set()
            )
            if set(alive) - known - _noticed(world, tables):
                found.append(f"I-13: {item['SK']} is closed as confirmed and {alive} lives")
    for item in tables["barrier"]:
        if item.get("in_flight") and not world.is_deleted(item["PK"]):  # its stops leave the barrier alone
            found.append(f"I-15: {item['SK']} of {item['PK']} still has {item['in_flight']} in flight")
        for rid in item.get("owed", ()):
            if not any(each["PK"] == f"Q#{rid}" for each in tables["revocation"]):
                found.append(f"lifecycle.md: the barrier lists {rid}, which is not there")
    return found


def doubled(world: World) -> list[str]:
    """Transitions that were told twice: an event or a receipt of the same one under two keys."""
    told = Counter(
        f"{item['PK']} {item['SK'].split('#', 1 + (item['ty'] == 'event'))[-1]} {item.get('outcome', '')}"
        for item in world.table.items()
        if item["ty"] in ("event", "receipt")
    )
    # What was parked, woken and parked again was released twice.
    return [f"told twice: {name}" for name, count in told.items() if count > 1 and "released" not in name]


def _is_of(grant: Item, connection: Item) -> bool:
    return bool(grant["PK"] == connection["PK"] and grant["SK"].split("#")[1] == connection["SK"][2:])


def _code(token: Issued, world: World) -> str:
    """The code of the consent from which the token's family comes; it names the connection."""
    return next(code for code, family in world.ledger.spent_codes.items() if family == token.family)


def _where(token: Issued, world: World) -> str:
    return f"{token.family} of {_code(token, world)}, issued for {token.by}"


def _reaches(reach: str, stored: str, token: Issued, world: World) -> bool:
    """Whether revoking the *stored* token, as it is now, would end *token*."""
    held = world.ledger.tokens.get(stored)
    if held is None:
        return False
    if held.name == token.name:
        return True
    if not held.alive and reach != Reach.ACCOUNT:
        return False
    if reach == Reach.FAMILY:
        return held.family == token.family
    return reach in (Reach.AUTHORIZATION, Reach.ACCOUNT) and held.account == token.account


def _is_the_apps(token: Issued, tables: Tables, world: World) -> bool:
    """The app got it by itself, and no revocation and no grant of ours ever held it."""
    if token.name not in world.ledger.apps:
        return False
    gone = [each for each in world.seen.let_go.values() if each["ty"] == "revocation"]
    ours = {item["PK"][2:] for item in (*tables["revocation"], *gone)} | {item["rid"] for item in tables["grant"]}
    return not any(token.name in world.seen.sealed_in.get(rid, ()) for rid in ours)


def _is_first(token: Issued, code: str, world: World) -> bool:
    """Whether an exchange made it: of the code, or of what the app brought."""
    return token.by == code or token.by in world.ledger.apps


def _covered(token: Issued, tables: Tables, world: World) -> bool:
    if _is_the_apps(token, tables, world):
        return True
    code = _code(token, world)
    partition, connection = "O#" + "#".join(code.split("/")[:2]), code.split("/")[2]
    for grant in tables["grant"]:
        if any(_reaches(grant["reach"], stored, token, world) for stored in world.tokens_in(grant["use"])):
            return True
        of_family = any(world.ledger.tokens[stored].family == token.family for stored in world.tokens_in(grant["use"]))
        if of_family and (grant.get("attempts") or grant.get("stray")):
            return True
    gone = list(world.seen.let_go.values())
    for item in (*tables["exchange"], *(each for each in gone if each["ty"] == "exchange")):
        is_its = item["SK"].split("#")[1] == connection or (item["kind"] == "import" and token.by in world.ledger.apps)
        if item["PK"] != partition or not is_its or not _is_first(token, code, world):
            continue
        if item["outcome"] == "open" or (item["outcome"] == "unconfirmed" and _covers(item, token, world)):
            return True
    for item in (*tables["revocation"], *(each for each in gone if each["ty"] == "revocation")):
        sealed = world.seen.sealed_in.get(item["PK"][2:], set())
        of_family = any(world.ledger.tokens[name].family == token.family for name in sealed)
        if item["state"] in ("pending", "parked"):
            stored = {name for each in item["material"] for name in world.tokens_in(each["sealed"])}
            if any(_reaches(item["reach"], name, token, world) for name in stored):
                return True
            if of_family and (item.get("expected") or item.get("lost") or item.get("renewing")):
                return True
        elif item["state"] in NOTICES and of_family and _covers(item, token, world):
            return True
    return False


def _covers(item: Item, token: Issued, world: World) -> bool:
    """An open notice, or one that was acknowledged after the token was issued (custody rule 2)."""
    return "acknowledged" not in item or item["acknowledged"] + world.skew_ms >= token.issued_at


def _is_acknowledged(token: Issued, connection: Item, tables: Tables, world: World) -> bool:
    """An earlier attempt of the connection gave it, nobody here saw it, and the owner said that it was removed."""
    return _is_first(token, _code(token, world), world) and any(
        item["outcome"] == "unconfirmed" and item.get("acknowledged", 0) >= token.issued_at
        for item in tables["exchange"]
        if item["PK"] == connection["PK"] and item["SK"].split("#")[1] == connection["SK"][2:]
    )


def _has_live_in_reach(item: Item, tables: Tables) -> bool:
    if item["reach"] == "family":
        return any(grant["family"] in item.get("family", ()) for grant in tables["grant"])
    return any(grant.get("account") == item.get("account") for grant in tables["grant"])


def _known_elsewhere(item: Item, tables: Tables, world: World) -> set[str]:
    stored = {name for grant in tables["grant"] for name in world.tokens_in(grant["use"])}
    return (
        stored
        | {name for each in _parked_material(tables) for name in world.tokens_in(each["sealed"])}
        | _noticed(world, tables)
    )


def _parked_material(tables: Tables) -> list[Item]:
    return [
        each for item in tables["revocation"] if item["state"] in ("parked", "pending") for each in item["material"]
    ]


def _noticed(world: World, tables: Tables) -> set[str]:
    return {
        name
        for item in tables["revocation"]
        if item["state"] in NOTICES
        for name in world.seen.sealed_in.get(item["PK"][2:], ())
    }


def _waits_for_its_owner(intent: Item, tables: Tables) -> bool:
    """A notice that nobody acknowledged keeps its stop open."""
    open_notice = any(
        item["PK"][2:] in intent.get("rids", ()) and item["state"] in NOTICES and "acknowledged" not in item
        for item in tables["revocation"]
    )
    connection = intent["SK"].split("#")[1]
    unconfirmed = any(
        item["PK"] == intent["PK"]
        and item["SK"].split("#")[1] == connection
        and item["outcome"] == "unconfirmed"
        and "acknowledged" not in item
        for item in tables["exchange"]
    )
    barrier_notice = any(
        item.get("c") == connection and item["state"] in NOTICES and "acknowledged" not in item
        for item in tables["revocation"]
    )
    parked = any(
        item.get("c") == connection and item["state"] == "parked" and _has_live_in_reach(item, tables)
        for item in tables["revocation"]
    )
    return open_notice or unconfirmed or barrier_notice or parked
