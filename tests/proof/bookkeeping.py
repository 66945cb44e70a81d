"""
What every state of the table must say about itself: the barrier lists what is owed and nothing else, counts equal what
is counted, every index entry is where it belongs, and every transition was told once.

Read from the table of writes (docs/table.md), not from the code that keeps it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.connect import IN_A_BROWSER
from quitclaim.domain.limits import COMPACT_MS, GUARD_MS, PARKED_MS, WRONG_CODES

if TYPE_CHECKING:
    from tests.proof.world import World

type Item = Mapping[str, Any]

NOTICES: Final = frozenset({"unconfirmed", "expired", "unreadable", "unsupported"})
STOPPED: Final = frozenset({"revoking", "reconciling_revoke"})
WIDE: Final = frozenset({"authorization", "account"})


class Books:
    """The items of one state, and what is to be found wrong with them."""

    def __init__(self, world: "World") -> None:
        self.now = world.now
        self.has_identity = world.kind.has_identity
        self.proves = world.kind.proves
        self.is_named = world.kind.named
        self.let_go = world.seen.let_go
        self.wrong_answers = world.seen.wrong_answers
        self.by_type: dict[str, list[Item]] = {}
        for item in world.table.items():
            self.by_type.setdefault(item["ty"], []).append(item)
        self.connections = {(item["PK"], item["SK"][2:]): item for item in self["connection"]}
        self.exchanges = {(item["PK"], item["SK"].split("#")[2]): item for item in self["exchange"]}
        self.revocations = {item["PK"][2:]: item for item in self["revocation"]}
        self.deleted = {item["PK"] for item in self["owner"] if "deleted_at" in item}
        self.told = Counter((item["PK"], str(item["kind"]), str(item["transition"])) for item in self["event"])

    def __getitem__(self, ty: str) -> list[Item]:
        return self.by_type.get(ty, [])

    def held(self, rid: str) -> Item | None:
        """The held exchange whose hold a revocation is."""
        return next((item for item in self["exchange"] if item["rid"] == rid and item["outcome"] == "held"), None)

    def faults(self) -> list[str]:
        """All of them."""
        parts = (
            self._links,
            self._stops,
            self._successors,
            self._exchanges,
            self._grants,
            self._accounts,
            self._names,
            self._barriers,
            self._dues,
            self._told,
            self._failed,
            self._deliveries,
        )
        return [fault for part in parts for fault in part()]

    # --- what belongs together ---

    def _links(self) -> Iterable[str]:
        tickets: Counter[tuple[object, ...]] = Counter()
        for item in self["ticket"]:  # a further source's link is one more of the same generation
            tickets[_link_of(item)] += item["visits"]
        visits = Counter(map(_link_of, self["authorization"]))
        for key, opened in tickets.items():
            if opened != visits[key]:
                yield f"S-1: the link of {key} was opened {opened} times, for {visits[key]} authorizations"
        for (pk, name), connection in self.connections.items():
            phase = connection.get("phase") if connection["state"] == "authorizing" else None
            if phase == "link" and (pk, name, connection["generation"], None) not in tickets:
                yield f"M-5: {name} waits for a link that is not there"
            exchange = self.exchanges.get((pk, connection.get("exchange", "")), {"generation": None})
            if phase == "exchanging" and exchange["generation"] != connection["generation"]:
                yield f"I-2: {name} waits for an exchange that is not its own"
            if not any(item["PK"] == pk for item in self["owner"]):
                yield f"I-10: {name} has no owner to fence it"
        for item in self["authorization"]:
            is_spent = "consumed_at" in item or "discarded_at" in item
            if is_spent == ("sealed" in item):
                yield f"M-33: {item['PK']} is spent: {is_spent}, and its verifier is there: {'sealed' in item}"
            key = (f"O#{item['t']}#{item['o']}", item.get("exchange"))
            needs = "consumed_at" in item and "reuses" not in item and self.now < item["consumed_at"] + COMPACT_MS
            if needs and key not in self.exchanges:
                yield f"I-2: {item['PK']} is consumed, and its exchange is not on record"

    def _stops(self) -> Iterable[str]:
        """A stopped connection has its stop open, and is called revoked only if all of it was."""
        intents = {(item["PK"], item["SK"]): item for item in self["intent"]}
        for (pk, name), connection in self.connections.items():
            generation = connection["generation"] - 1
            intent = intents.get((pk, f"S#{name}#{generation}"))
            if connection["state"] in STOPPED and (intent is None or "closed" in intent):
                yield f"I-15: {name} is stopped, and no open stop will ever close it"
            if connection.get("closed_as") == "confirmed":
                mine = (pk, name, generation)
                for rid, item in self.revocations.items():
                    if (f"O#{item['t']}#{item['o']}", item["c"], item["g"]) == mine and item["state"] in NOTICES:
                        yield f"I-13: {name} is called revoked, and {rid} is {item['state']}"

    def _exchanges(self) -> Iterable[str]:
        spent = Counter((f"O#{item['t']}#{item['o']}", item.get("exchange")) for item in self["authorization"])
        for item in self["exchange"]:
            name, outcome = item["SK"], item["outcome"]
            _, connection, id_ = name.split("#")
            if spent[item["PK"], id_] != (item["kind"] in IN_A_BROWSER):
                yield f"M-33: {spent[item['PK'], id_]} states were spent for {name}"
            yield from self._waits(item, self.connections.get((item["PK"], connection), {}), id_)
            hold = self.revocations.get(item["rid"], {})
            if outcome != "held" and hold.get("lease") == id_:
                yield f"F-63: {name} is {outcome}, and its grant is still kept from the sweep"
            is_wide = outcome == "held" and hold.get("reach") in WIDE and hold.get("lease") == id_
            if is_wide and "account" in item and item["account"] != hold.get("account"):
                yield f"custody rule 12: whose grant {name} holds is known, and its hold does not know"
            if outcome == "held" and item["wrong"] < min(self.wrong_answers, WRONG_CODES - 1):
                yield f"decision 0013: {self.wrong_answers} codes were wrong, and {name} has counted {item['wrong']}"
            if "use" in item and outcome != ("open" if item["kind"] == "import" else "held"):
                yield f"decision 0013: {name} is {outcome} and still has its tokens"
            if "id_token" in item and outcome != "held":
                yield f"F-7: {name} is {outcome} and still has its ID token"
            if "id_token" in item and "subject" in item:
                yield f"S-21: it is said whose grant {name} holds, and its ID token waits to be verified"
            if self.proves and outcome == "held" and "use" in item and "id_token" not in item and "subject" not in item:
                yield f"S-21: {name} can be confirmed, and nobody knows whose it is"
            if (
                item["kind"] == "import"
                and outcome == "open"
                and ("use" not in item or item["rid"] in self.revocations)
            ):
                yield f"import: what {name} was given is not sealed on it alone"
            if outcome == "held" and item["rid"] not in self.revocations:
                yield f"F-61: {name} is held, and nothing is queued for it"
            if outcome == "cleanup" and item["rid"] not in self.revocations:
                yield f"F-63: {name} is to be cleaned up, and nothing is queued for it"
            if ("hold_ends" in item or outcome == "cleanup") != ("fp" in item):
                yield f"D-30: {name} holds a grant and does not know which"

    def _waits(self, exchange: Item, connection: Item, id_: str) -> Iterable[str]:
        """The connection of an exchange waits for it exactly as long as it is not over; a late grant may leave it."""
        if connection.get("state") != "authorizing" or connection["generation"] != exchange["generation"]:
            return
        waits = connection.get("phase") == "exchanging" and connection.get("exchange") == id_
        is_over = exchange["outcome"] in ("ended", "unconfirmed") or exchange.get("reason") in RELEASED
        if exchange["outcome"] in ("open", "held") and not waits:
            yield f"I-2: {exchange['SK']} is under way, and its connection does not wait for it"
        if is_over and waits:
            yield f"M-46: {exchange['SK']} is over, and its connection still waits for it"

    def _successors(self) -> Iterable[str]:
        """A successor that came is expected by nobody any more."""
        for item in self["grant"]:
            for attempt in set(item.get("attempts", ())) & self.revocations.keys():
                yield f"D-3: {attempt} is queued, and {item['SK']} still has it on record"
        for rid, item in self.revocations.items():
            for attempt in set(item.get("expected", ())) & self.revocations.keys():
                yield f"D-3: {attempt} is queued, and {rid} still expects it"

    def _grants(self) -> Iterable[str]:
        for item in self["grant"]:
            pk, name, exchange = item["PK"], item["SK"].split("#")[1], item["family"].split("#")[0]
            made = self.exchanges.get((pk, exchange))
            if made is not None and (made["outcome"] != "installed" or made["rid"] != item["rid"]):
                yield f"I-3: the grant of {name} does not come from an installed exchange"
            if item["rid"] in self.revocations:
                yield f"I-1: the grant of {name} is live and queued"
            if ("lease" in item) != ("lease_until" in item):
                yield f"I-6: the grant of {name} has half a lease"
            if self.has_identity and "account" not in item:
                yield f"custody rule 12: nobody knows whose grant that of {name} is"
            connection = self.connections.get((pk, name))
            if connection is not None and connection.get("account") != item.get("account"):
                yield f"S-21: {name} and its grant are of two accounts"

    # --- counts ---

    def _accounts(self) -> Iterable[str]:
        live = Counter(
            (self.connections[item["PK"], item["SK"].split("#")[1]]["client"], item["account"])
            for item in self["grant"]
            if "account" in item and (item["PK"], item["SK"].split("#")[1]) in self.connections
        )
        members = Counter(tuple(item["PK"].split("#")[1:]) for item in self["member"])
        markers = Counter(tuple(item["PK"].split("#")[1:]) for item in self["marker"] if item["PK"].startswith("E#"))
        parked = Counter(
            (item["client"], item["account"])
            for item in self.revocations.values()
            if item["state"] == "parked" and item["reach"] != "family"
        )
        accounts = {tuple(item["PK"].split("#")[1:]): item for item in self["account"]}
        for key in {*live, *members, *markers, *parked, *accounts}:
            item = accounts.get(key, {"live": 0, "parked": 0})
            if not item["live"] == live[key] == members[key]:
                yield f"custody rule 10: {live[key]} live on {key}, {members[key]} members, it says {item['live']}"
            if not item["parked"] == parked[key] == markers[key]:
                yield f"custody rule 11: {parked[key]} parked at {key}, {markers[key]} markers, not {item['parked']}"
        beside = {item["SK"].split("#")[2] for item in self["marker"] if item["PK"].startswith("O#")}
        in_family = {
            rid for rid, item in self.revocations.items() if item["state"] == "parked" and item["reach"] == "family"
        }
        if beside != in_family:
            yield f"custody rule 11: parked beside their family {sorted(in_family)}, markers {sorted(beside)}"

    def _names(self) -> Iterable[str]:
        """Whoever is ready is found by the workspace, and nobody by a grant that never was."""
        for item in self["name"]:
            _, tenant, owner, _, id_ = item["SK"].split("#")
            exchange = self.exchanges.get((f"O#{tenant}#{owner}", id_))
            if exchange is not None and exchange["outcome"] != "installed":
                yield f"row 78: {item['SK']} was never installed, and is found by {item['PK']}"
        found = {item["SK"] for item in self["name"]}
        for (pk, name), connection in self.connections.items() if self.is_named else ():
            if connection["state"] == "ready" and f"N#{pk[2:]}#{name}#{connection['exchange']}" not in found:
                yield f"row 78: {name} is ready, and its workspace does not find it"

    # --- the barrier ---

    def _barriers(self) -> Iterable[str]:
        barriers = {(item["PK"], item["SK"].removeprefix("BAR#")): item for item in self["barrier"]}
        keys = {(item["PK"], item["client"]) for item in self["exchange"]} | barriers.keys()
        keys |= {(f"O#{item['t']}#{item['o']}", item["client"]) for item in self.revocations.values()}
        for pk, client in sorted(keys):
            yield from self._barrier(pk, client, barriers.get((pk, client), {}))

    def _barrier(self, pk: str, client: str, barrier: Item) -> Iterable[str]:
        in_flight = {
            f"{item['SK'].split('#')[1]}#{item['SK'].split('#')[2]}"
            for item in self["exchange"]
            if item["PK"] == pk and item["client"] == client and item["outcome"] in ("open", "held")
        }
        named = {barrier["in_flight"]} if "in_flight" in barrier else set()
        if in_flight != named and not (pk in self.deleted and in_flight < named):
            yield f"I-9: {sorted(in_flight)} in flight, and the barrier of {pk} says {sorted(named)}"
        mine = {
            rid: item
            for rid, item in self.revocations.items()
            if f"O#{item['t']}#{item['o']}" == pk and item["client"] == client and self._is_listed(item)
        }
        owed, acks = set(barrier.get("owed", ())), set(barrier.get("acks", ()))
        for rid, item in mine.items():
            is_open = item["state"] == "pending" and self.held(rid) is None
            is_notice = item["state"] in NOTICES and "acknowledged" not in item
            is_finished = "finished" in item
            is_listed = rid in owed or f"r:{rid}" in acks
            if is_open and rid not in owed:
                yield f"lifecycle.md: {rid} is owed, and the barrier does not say so"
            if is_notice and not is_listed and self.held(rid) is None:
                yield f"lifecycle.md: {rid} is a notice, and the barrier does not say so"
            if is_notice and is_finished and f"r:{rid}" not in acks:
                yield f"lifecycle.md: the notice of {rid} is finished, and the barrier asks for no acknowledgement"
            if is_finished and rid in owed and "exchange" not in item:  # of a hold: who ends the exchange may come last
                yield f"lifecycle.md: {rid} is finished, and the barrier says that it is owed"
            if "acknowledged" in item and is_finished and f"r:{rid}" in acks:
                yield f"F-33: {rid} is acknowledged, and the barrier still asks for it"
        for rid in owed - self.revocations.keys():
            yield f"lifecycle.md: the barrier lists {rid}, which is not there"
        asked = {
            f"x:{item['SK'].split('#')[1]}#{item['SK'].split('#')[2]}"
            for item in self["exchange"]
            if item["PK"] == pk
            and item["client"] == client
            and item["outcome"] == "unconfirmed"
            and "acknowledged" not in item
        }
        said = {name for name in acks if name.startswith("x:")}
        if asked != said:
            yield f"I-9: exchanges to acknowledge are {sorted(asked)}, and the barrier says {sorted(said)}"
        purges = {
            item["SK"][2:]
            for item in self["intent"]
            if item["PK"] == pk
            and item["client"] == client
            and item["purge"] == "pending"
            and item["reason"] != "account_deleted"
        }
        if purges != set(barrier.get("purges", ())):
            yield f"F-28: to be purged are {sorted(purges)}, and the barrier says {sorted(barrier.get('purges', ()))}"

    def _is_listed(self, revocation: Item) -> bool:
        """Whether its barrier must know of it: that of a deleted owner is left alone by its stops."""
        if f"O#{revocation['t']}#{revocation['o']}" in self.deleted and "exchange" in revocation:
            return False
        return revocation.get("listed") is not False

    # --- indexes ---

    def _dues(self) -> Iterable[str]:
        for ty, items in self.by_type.items():
            expected = DUES.get(ty)
            for item in items:
                if expected is not None:
                    yield from _entry(item, "due", "d1", "d2", expected(item))
                if ty in ("revocation", "exchange", "intent"):
                    yield from _attention(ty, item)
                if ty == "connection":
                    tenant = item["PK"].split("#")[1]
                    if item.get("r1") != f"{tenant}#{item['provider']}" or not item["r2"].startswith(
                        item["state"] + "#"
                    ):
                        yield f"C-27: {item['SK']} is not where the roster would show it"

    # --- what was told ---

    def _told(self) -> Iterable[str]:
        for key, count in self._expected().items():
            if self.told[key] != count:
                yield f"events/README.md: {key} was told {self.told[key]} times, not {count}"
        for key, count in self.told.items():
            if count > 1 and key[1] != "revocation.released_shared":  # parked again is released again
                yield f"events/README.md: {key} was told {count} times"
        receipts = Counter((item["rid"], item["outcome"]) for item in self["receipt"])
        for rid, item in self.revocations.items():
            if "finished" in item and receipts[rid, item["state"]] != 1:
                yield f"F-51: {receipts[rid, item['state']]} receipts say that {rid} is {item['state']}"
            if item["state"] == "parked" and receipts[rid, "released"] < 1:
                yield f"F-51: no receipt says that {rid} was released"
        for (rid, outcome), count in receipts.items():
            if count > 1 and outcome != "released":
                yield f"F-51: {count} receipts say that {rid} is {outcome}"

    def _failed(self) -> Iterable[str]:
        """A connection that failed says so once, by its exchange or by its own generation."""
        for (pk, name), connection in self.connections.items():
            if connection["state"] != "failed":
                continue
            of_exchanges = [
                id_
                for (partition, id_), item in self.exchanges.items()
                if partition == pk
                and item["SK"].split("#")[1] == name
                and item["generation"] == connection["generation"]
            ]
            of_exchanges += [id_ for id_, item in self.let_go.items() if item["PK"] == pk and item["ty"] == "exchange"]
            ids = [*of_exchanges, f"{name}#{connection['generation']}"]
            if not any(
                self.told[pk, kind, id_] for id_ in ids for kind in ("connection.failed", "exchange.unconfirmed")
            ):
                yield f"events/README.md: {name} failed, and nobody was told"

    def _deliveries(self) -> Iterable[str]:
        """What waits is counted where it waits; who had a share was told once, and nobody else was (P-9)."""
        waits: Counter[tuple[str, str]] = Counter()
        names = {(item["PK"], item["SK"].split("#")[2]) for item in self["waiting"]}
        for item in self["delivery"]:
            if item["SK"] != "W":
                continue
            _, client, digest = item["PK"].split("#")
            is_over = item["state"] in ("processed", "dropped")
            if ("body" in item) != (not is_over or "a1" in item):
                yield f"M-83: {digest} is {item['state']} and {'has' if 'body' in item else 'lacks'} its body"
            if ("claim" in item) != (item["state"] == "processing"):
                yield f"M-69: {digest} is {item['state']} and {'has' if 'claim' in item else 'lacks'} a claim"
            if "beside" in item and not is_over:
                waits[f"E#{client}#{item['beside']}", digest] += 1
        for key in {*waits, *names}:
            if (key in waits) != (key in names):
                yield f"RB-71: {key} waits, or something lies there that does not"
        counted = Counter(pk for pk, _ in names)
        for item in self["account"]:
            if item.get("waiting", 0) != counted[item["PK"]]:
                yield f"RB-71: {counted[item['PK']]} wait beside {item['PK']}, not {item.get('waiting', 0)}"
        for pk in counted.keys() - {item["PK"] for item in self["account"]}:
            yield f"RB-71: something waits beside {pk}, which is not there"
        shares = {(item["PK"].split("#")[2], item["SK"]) for item in self["delivery"] if item["SK"] != "W"}
        for pk, kind, transition in self.told:
            if kind == "webhook.received":
                connection, digest = transition.split("#")
                if (digest, f"C#{pk[2:]}#{connection}") not in shares:
                    yield f"P-9: {pk} was told of {digest} without a share of it"

    def _expected(self) -> dict[tuple[str, str, str], int]:
        """Events that this state must have behind it."""
        found: dict[tuple[str, str, str], int] = {}
        for item in self["exchange"]:
            _, _, id_ = item["SK"].split("#")
            if item["outcome"] == "installed":
                found[item["PK"], "connection.ready", id_] = 1
            if item["outcome"] == "unconfirmed":
                found[item["PK"], "exchange.unconfirmed", id_] = 1
            if item["outcome"] == "ended" or (item["outcome"] == "cleanup" and item.get("reason") in RELEASED):
                kind = "connection.step_up_failed" if item["kind"] == "step_up" else "connection.failed"
                found[item["PK"], kind, id_] = 1
            if "acknowledged" in item:
                found[item["PK"], "removal.acknowledged", id_] = 1
        for item in self["intent"]:
            pk, name, is_loss = item["PK"], item["SK"][2:], item["reason"] not in ("disconnect", "account_deleted")
            found[pk, "connection.needs_reconnect" if is_loss else "connection.revoking", name] = 1
            if item["purge"] == "done" and not is_loss:
                found[pk, "purge.completed", name] = 1
            told = self.told[pk, "connection.revoked", name] + self.told[pk, "connection.closed", name]
            found[pk, "connection.revoked", name] = int("closed" in item) - (
                told - self.told[pk, "connection.revoked", name]
            )
        for rid, item in self.revocations.items():
            pk = f"O#{item['t']}#{item['o']}"
            if "finished" in item:
                kind = "revocation.confirmed" if item["state"] == "confirmed" else "removal.required"
                found[pk, kind, rid] = 1
                if item["state"] != "confirmed" and "acknowledged" in item:  # before it was told: nobody is asked
                    found[pk, kind, rid] = min(1, self.told[pk, kind, rid])
            if "acknowledged" in item:
                found[pk, "removal.acknowledged", rid] = 1
            if item["state"] == "parked":
                found[pk, "revocation.released_shared", rid] = max(1, self.told[pk, "revocation.released_shared", rid])
        for item in self["delivery"]:
            if item["SK"] != "W":
                _, tenant, owner, name = item["SK"].split("#")
                digest = item["PK"].split("#")[2]
                found[f"O#{tenant}#{owner}", "webhook.received", f"{name}#{digest}"] = int(item["reason"] == "received")
        for item in self["owner"]:
            if "stopped_at" in item:
                found[item["PK"], "owner.stopped", item["PK"].split("#")[2]] = 1
        return found


RELEASED: Final = frozenset(
    {
        *(
            "identity_unreadable",
            "identity_mismatch",
            "moved_on",
            "wrong_codes",
            "blocked",
            "not_confirmed",
            "superseded",
        ),
        *("malformed_answer", "insufficient_scope", "id_token_missing", "id_token_nonce", "id_token_mismatch"),
    }
)
"""Reasons for which a hold ends with its connection; a stop tells of itself."""


def _link_of(item: Item) -> tuple[str, str, int, str | None]:
    """What a ticket or an authorization is of: a connection's generation, or one attempt to step it up."""
    return f"O#{item['t']}#{item['o']}", item["c"], item["generation"], item.get("step_up")


def _revocation_due(item: Item) -> tuple[str, int] | None:
    if item["state"] == "parked":
        return None
    if item["state"] == "pending":
        return f"revoke#{item['client']}", item["next"]  # after the deadline only where a hold was released so late
    if "finished" not in item:
        return "finish#*", item.get("settled_at", item["queued"])
    return "compact#*", -1


def _exchange_due(item: Item) -> tuple[str, int] | None:
    if item["outcome"] not in ("open", "held"):
        return None
    return "exchange#*", item["ends"] if item["outcome"] == "open" else item["hold_ends"]


def _grant_due(item: Item) -> tuple[str, int] | None:
    if item.get("attempts"):
        return "refresh#*", -1 if "lease_until" not in item else item["lease_until"] + GUARD_MS
    care = [item[name] for name in ("keep_alive_at", "expiring_at") if name in item]
    return ("keepalive#*", min(care)) if care else None


def _connection_due(item: Item) -> tuple[str, int] | None:
    if item["state"] in STOPPED:
        return "connection#*", item["effect_at"]
    return ("connection#*", item.get("lapse_at", -1)) if item["state"] in ("authorizing", "reconciling_link") else None


def _account_due(item: Item) -> tuple[str, int] | None:
    if item["live"] > 0 and item.get("waiting"):
        return "replay#*", -1
    return ("wake#*", -1) if item["live"] == 0 and item["parked"] > 0 else None


def _delivery_due(item: Item) -> tuple[str, int] | None:
    match item["state"]:
        case "accepted":
            return "forward#*", item["next"]
        case "parked":
            return "parked#*", item.get("again", item["received"]) + PARKED_MS
        case "processing":
            return ("parked#*" if item.get("d1", "").startswith("parked") else "forward#*"), -1
    return None


def _owner_due(item: Item) -> tuple[str, int] | None:
    return ("deletion#*", item["deleted_at"]) if "deleted_at" in item and "stopped_at" not in item else None


DUES: Final[Mapping[str, Any]] = {
    "revocation": _revocation_due,
    "exchange": _exchange_due,
    "grant": _grant_due,
    "connection": _connection_due,
    "account": _account_due,
    "delivery": _delivery_due,
    "intent": lambda item: None if "closed" in item else ("stop#*", item["next"]),
    "event": lambda item: None if "published" in item else ("publish#*", item["at"]),
    "owner": lambda item: (
        ("deletion#*", item["deleted_at"]) if "deleted_at" in item and "stopped_at" not in item else None
    ),
}
"""When an item is due, and for what; -1: at whatever time, None: never."""


def _entry(item: Item, index: str, partition: str, sort: str, expected: tuple[str, int] | None) -> Iterable[str]:
    name = f"{item['SK']} of {item['PK']}"
    if expected is None:
        if partition in item or sort in item:
            yield f"I-15: {name} is {index} ({item.get(partition)}), and nothing is to be done"
        return
    what, at = expected
    if not item.get(partition, "").startswith(what + "#") or sort not in item:
        yield f"I-15: {name} is not {index} for {what}"
    elif at >= 0 and int(item[sort].split("#")[0]) != at:
        yield f"I-15: {name} is {index} at {item[sort]}, not at {at}"


def _attention(ty: str, item: Item) -> Iterable[str]:
    if ty == "exchange":
        what, asks = ty, item["outcome"] == "unconfirmed" and "acknowledged" not in item
    elif ty == "intent":
        what, asks = "stop", "overdue" in item and "closed" not in item
    elif item["state"] == "pending":
        what, asks = "quarantine", "quarantined" in item
    else:
        what = "expired" if item["state"] in ("expired", "unreadable") else "notice"
        asks = item["state"] in NOTICES and "acknowledged" not in item
    if asks != ("a1" in item and "a2" in item) or (asks and not item["a1"].startswith(what + "#")):
        yield f"I-16: {item['SK']} of {item['PK']} {'is not' if asks else 'is'} shown to whom must look at it"
