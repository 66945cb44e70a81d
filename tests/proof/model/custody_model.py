"""
Explicit-state model of the custody protocol: every reachable interleaving of a small world is visited, and each
state and step is judged against the provider's own ledger.

    python custody_model.py --list
    python custody_model.py --config refresh-rotating                   # the proposed rules: no violation expected
    python custody_model.py --config refresh-rotating --rules reference      # the reference's rules
    python custody_model.py --config refresh-rotating --drop successor_flag
    python custody_model.py --all                                       # every configuration, table of counts
    python custody_model.py --mutants                                   # every rule dropped once, what catches it

A step is one conditional write or transaction, one strongly consistent read that a later write relies on, one
provider call, or one application hook. A crash is a process that is never scheduled again, so it needs no step of
its own: every state is also the state after a crash of any set of processes. Sweep workers crash and restart
explicitly. Time is a set of flags that may be raised whenever they make sense. See README.md.
"""

import argparse
import re
import sys
import time
from collections import deque
from typing import NamedTuple

from tests.proof.model.protocol import Config, Model

# --------------------------------------------------------------------------------------------------------------------
# Rules: each is one clause of the protocol that can be dropped on its own.
# --------------------------------------------------------------------------------------------------------------------

RULES = {
    # connect
    "begin_barrier": "an exchange begins only while no other exchange is in flight and nothing owed blocks",
    "begin_holds_barrier": "begin is held to the barrier item that was read when the owed ids were resolved",
    "begin_generation": "an exchange begins only for an authorizing connection at the started generation",
    "consume_once": "begin consumes the authorization: a second delivery of the same callback begins nothing",
    "begin_owner": "an exchange begins only while the owner is not deleted",
    "send_within_window": "the token request leaves only before the exchange's window ends",
    "hold_before_install": "the returned grant is sealed revoke-only before anything judges it",
    "late_grant_queue": "a grant that arrives after the exchange was closed is queued, whatever the exchange says",
    "install_holds": "install needs the queue item still held by this exchange",
    "install_window": "install needs the exchange's end still ahead",
    "install_generation": "install needs the connection authorizing at the exchange's generation",
    "install_owner": "install needs the owner not deleted",
    "install_barrier": "install needs the barrier free of everything but this exchange",
    "install_no_grant": "install needs the grant item absent",
    "claim_after_hold": "the sweep claims a held item only after the exchange's end",
    "lapse_only_empty": "lapse to unconfirmed only an exchange that holds no grant",
    # tokens
    "refresh_lease": "a refresh needs the lease free or over",
    "refresh_record": "a refresh is recorded (attempt id on the grant item) before its request leaves",
    "record_fenced": "the record is written only under my lease, with owner and connection checked",
    "send_within_lease": "the refresh request leaves only before the lease ends",
    "save_version": "save is held to the token version that was read",
    "save_lease": "save needs the lease token mine",
    "save_owner": "save needs the owner not deleted",
    "orphan_queue": "a rotated token that cannot be saved is queued",
    "record_keeps_attempts": "a takeover adds its attempt to the record; it never replaces an unresolved one",
    "strays_kept": "where old tokens survive rotation and revocation reaches one token, unresolved attempts stay noted",
    "old_queued": "where old tokens survive rotation and revocation reaches one token, save queues the old one",
    "fence_read": "a hand-out reads the owner fence and the connection, and compares generations",
    "fence_read_last": "and it reads them after the grant, not before",
    "own_write_known": "a write reported failed is read again: a token already stored (live, held, moved by a stop) is not queued twice",
    "loss_exact_handle": "loss of a grant is declared only at the generation and token version that was refused",
    # stop
    "stop_generation": "disconnect only at the generation the caller saw",
    "stop_version": "a stop is held to the grant version it read",
    "stop_unopened": "a stop moves sealed revoke-only material without opening it",
    "successor_flag": "a stop that finds an open refresh record marks the queue item 'successor expected'",
    # revocations
    "claim_lease": "a revocation is claimed only while no live lease is on it",
    "revoke_within_lease": "the revoke request leaves only before the claim's lease ends",
    "settle_lease": "settle needs the lease token mine and the item pending",
    "settle_deadline": "settle as confirmed only before the deadline",
    "settle_no_successor": "confirmed only when no successor is open at the settle itself",
    "successor_lost": "an unresolved successor that timed out ends in a removal notice, never in confirmed",
    "successor_own_item": "a successor is queued as an item of its own, not added to the item in flight",
    "settle_same_material": "settle as confirmed only for exactly the material that was claimed",
    "receipt_counts_orphans": "a grant is 'revoked' when every revocation of its generation is, late ones included",
    "receipt_counts_exchanges": "and while an exchange of the connection is open or unconfirmed it is not 'revoked' either",
    "compact_unlists": "compaction of a settled revocation takes its id out of the barrier in the same transaction",
    "begin_purge": "an exchange begins only while no purge of this client is open",
    "purge_token": "a purge is completed only by the word that carries its own stop",
    "receipt_counts_purge": "and while its purge is open it is not 'revoked' either",
    "ack_after_window": "an unconfirmed exchange is acknowledged only after its window, when no request of it can still arrive",
    "ack_terminal": "only a terminal, unconfirmed revocation can be acknowledged",
    # sharing
    "park_reach": "a revocation that would reach a live grant is parked beside it, in one transaction with the account",
    "claim_checks_account": "the claim of such a revocation checks the account in the same transaction, not by a read before it",
    "wake_parked": "a parked revocation is made due again once nothing live is in its reach",
    "install_no_kill": "install waits while a revocation that reaches this account is claimed",
    "install_not_tainted": "install refuses a grant if a revocation reaching its account was sent since its exchange began",
}
ALL = frozenset(RULES)
AMENDMENTS = frozenset(
    {  # not in the design as first written; found by this model
        "ack_after_window",
        "send_within_window",
        "send_within_lease",
        "revoke_within_lease",
        "record_keeps_attempts",
        "strays_kept",
        "park_reach",
        "claim_checks_account",
        "wake_parked",
        "install_no_kill",
        "receipt_counts_orphans",
        "receipt_counts_exchanges",
        "compact_unlists",
        "old_queued",
        "own_write_known",
        "install_not_tainted",
        "successor_own_item",
        "settle_same_material",
    }
)
REFERENCE_LACKS = frozenset(
    {  # the reference has no such rule
        "refresh_record",
        "successor_flag",
        "successor_lost",
        "settle_no_successor",
        "orphan_queue",
        "late_grant_queue",
        "stop_unopened",
    }
)
RULE_SETS = {"ours": ALL, "design": ALL - AMENDMENTS, "reference": ALL - AMENDMENTS - REFERENCE_LACKS}

# --------------------------------------------------------------------------------------------------------------------
# Search
# --------------------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    states: int
    steps: int
    seconds: float
    violations: dict  # text -> trace (labels)


def search(model: Model, limit: int, first_only=False, ignore=()) -> Found:
    """Breadth first, so the trace kept for each kind of violation is a shortest one. A violating step is not followed."""
    began = time.perf_counter()
    root = model.initial()
    parent = {root: None}
    recovery = {}
    queue, steps, bad = deque([root]), 0, {}

    def trace(state):
        labels = []
        while parent[state]:
            state, label = parent[state]
            labels.append(label)
        return labels[::-1]

    def kind(text):
        return re.sub(r"[0-9]+(?= |$)", "n", text)

    while queue and len(parent) < limit:
        s = queue.popleft()
        best = None
        for step in model.steps(s):
            steps += 1
            texts = [
                step.bad,
                model.step_violation(s, step),
                None if step.state in parent else model.state_violation(step.state),
            ]
            text = next((text for text in texts if text and not text.startswith(ignore)), None)
            if text:
                if kind(text) not in {kind(t) for t in bad}:
                    bad[text] = [*trace(s), step.label]
                    if first_only:
                        return Found(len(parent), steps, time.perf_counter() - began, bad)
                continue
            if step.rank is not None and (best is None or step.rank < best.rank) and step.state != s:
                best = step
            if step.state not in parent:
                parent[step.state] = (s, step.label)
                queue.append(step.state)
        recovery[s] = best.state if best else None
        if best is None and not bad:
            text = model.unsettled(s)
            if text:
                bad["I-15 stuck: " + text] = trace(s)
    if queue:
        bad["LIMIT reached: not the full state space"] = []
    elif not bad:
        settled = set()  # every state's recovery run must end, not go round
        for s in recovery:
            path = []
            while s is not None and s not in settled:
                settled.add(s)
                path.append(s)
                s = recovery.get(s)
            if s is not None and s in path:
                bad["I-15 recovery goes round"] = trace(s)
                break
    return Found(len(parent), steps, time.perf_counter() - began, bad)


# --------------------------------------------------------------------------------------------------------------------
# Configurations
# --------------------------------------------------------------------------------------------------------------------

CONFIGS = {
    "connect": Config(
        "one connection: callback, disconnect, sweep, acknowledgement",
        (("callback", 0), ("disconnect", 0), ("sweep", 0)),
    ),
    "connect-skew": Config(
        "the same; the installer's clock is slow",
        (("callback", 0), ("disconnect", 0), ("sweep", 0)),
        skew=True,
        deadlines=False,
    ),
    "connect-confirm": Config(
        "the same with owner confirmation, two confirm calls",
        (("callback", 0), ("callback", 0, "again"), ("confirm", 0), ("confirm", 0), ("disconnect", 0), ("sweep", 0)),
        confirm=True,
        deadlines=False,
    ),
    "connect-delete": Config(
        "callback against owner deletion and disconnect",
        (("callback", 0), ("delete", 0), ("disconnect", 0), ("sweep", 0)),
        deadlines=False,
    ),
    "two-starts": Config(
        "two starts of one connection, the newer supersedes the older",
        (("callback", 0), ("callback", 1), ("disconnect", 0), ("sweep", 0)),
        exchanges=(0, 0),
        restart=True,
        deadlines=False,
    ),
    "two-connections": Config(
        "two connections of one owner at one provider client race for the barrier",
        (("callback", 0), ("callback", 1), ("disconnect", 0), ("sweep", 0)),
        owner_of=(0, 0),
        exchanges=(0, 1),
        deadlines=False,
    ),
    "refresh-static": Config(
        "two refreshers, disconnect, sweep; refresh token never changes",
        (("refresh", 0), ("refresh", 0), ("disconnect", 0), ("sweep", 0)),
        ready=1,
        policy="static",
    ),
    "refresh-rotating": Config(
        "the same; the old token is dead at once",
        (("refresh", 0), ("refresh", 0), ("disconnect", 0), ("sweep", 0)),
        ready=1,
    ),
    "refresh-reuse": Config(
        "the same; a spent token kills the family",
        (("refresh", 0), ("refresh", 0), ("disconnect", 0), ("sweep", 0)),
        ready=1,
        policy="reuse",
    ),
    "refresh-grace": Config(
        "the same; the old token survives rotation, revocation ends the family",
        (("refresh", 0), ("refresh", 0), ("disconnect", 0), ("sweep", 0)),
        ready=1,
        policy="grace",
    ),
    "refresh-grace-token": Config(
        "the same; the old token survives, revocation ends one token",
        (("refresh", 0), ("refresh", 0), ("disconnect", 0), ("sweep", 0)),
        ready=1,
        policy="grace",
        reach="token",
        deadlines=False,
    ),
    "refresh-token": Config(
        "rotating; revocation ends one token only",
        (("refresh", 0), ("disconnect", 0), ("sweep", 0), ("sweep", 0)),
        ready=1,
        reach="token",
    ),
    "refresh-delete": Config(
        "two refreshers against owner deletion",
        (("refresh", 0), ("refresh", 0), ("delete", 0), ("sweep", 0)),
        ready=1,
        deadlines=False,
    ),
    "sweepers": Config(
        "a queued revocation, two sweepers, a reconnect behind it",
        (("sweep", 0), ("sweep", 0), ("callback", 1)),
        exchanges=(0, 0),
        ready=1,
        queued=True,
    ),
    "sweepers-account": Config(
        "the same; revocation is keyed by account and needs no living token",
        (("sweep", 0), ("sweep", 0), ("callback", 1)),
        exchanges=(0, 0),
        ready=1,
        queued=True,
        reach="account",
    ),
    "reconnect": Config(
        "refresh, loss or disconnect, reconnect; revocation ends the whole authorization",
        (("refresh", 0), ("disconnect", 0), ("callback", 1), ("sweep", 0)),
        exchanges=(0, 0),
        ready=1,
        reach="authorization",
        deadlines=False,
    ),
    "sharing": Config(
        "two owners on one provider account; one is live, one connects; both may stop",
        (("disconnect", 0), ("callback", 1), ("disconnect", 1), ("sweep", 0)),
        owner_of=(0, 1),
        exchanges=(0, 1),
        ready=1,
        reach="authorization",
        deadlines=False,
    ),
    "sharing-two-sweepers": Config(
        "the same without the second stop, two sweepers",
        (("disconnect", 0), ("callback", 1), ("sweep", 0), ("sweep", 0)),
        owner_of=(0, 1),
        exchanges=(0, 1),
        ready=1,
        reach="authorization",
        deadlines=False,
    ),
    "ambiguous-connect": Config(
        "connect with writes that were applied but reported failed",
        (("callback", 0), ("disconnect", 0), ("sweep", 0)),
        ambiguous=True,
        deadlines=False,
    ),
    "ambiguous-refresh": Config(
        "refresh with writes that were applied but reported failed",
        (("refresh", 0), ("disconnect", 0), ("sweep", 0)),
        ready=1,
        ambiguous=True,
        deadlines=False,
    ),
    "handout": Config(
        "an access token is handed out against deletion, disconnect and reconnect",
        (("handout", 0), ("delete", 0), ("disconnect", 0), ("callback", 1), ("sweep", 0)),
        exchanges=(0, 0),
        ready=1,
        deadlines=False,
    ),
    "handout-refresh": Config(
        "an access token is handed out against refresh and deletion",
        (("handout", 0), ("refresh", 0), ("delete", 0), ("sweep", 0)),
        ready=1,
        deadlines=False,
    ),
    "compaction": Config(
        "a stopped grant is revoked and compacted, then a reconnect",
        (("sweep", 0), ("callback", 1)),
        exchanges=(0, 0),
        ready=1,
        queued=True,
        compaction=True,
    ),
    "sharing-one-owner": Config(
        "one owner, two connections to one provider account, revocation ends both",
        (("disconnect", 0), ("callback", 1), ("disconnect", 1), ("sweep", 0)),
        owner_of=(0, 0),
        exchanges=(0, 1),
        ready=1,
        reach="authorization",
        deadlines=False,
    ),
    "refresh-wide": Config(
        "grace rotation, revocation ends the whole authorization, a second owner is live beside",
        (("refresh", 0), ("disconnect", 0), ("disconnect", 1), ("sweep", 0)),
        owner_of=(0, 1),
        exchanges=(0, 1),
        ready=2,
        policy="grace",
        reach="authorization",
        deadlines=False,
    ),
    "refreshers-and-sweepers": Config(
        "two refreshers and two sweepers around a disconnect; the old token is dead at once",
        (("refresh", 0), ("refresh", 0), ("disconnect", 0), ("sweep", 0), ("sweep", 0)),
        ready=1,
        deadlines=False,
    ),
    "three-connections": Config(
        "three connections of one owner at one provider client race for the barrier",
        (("callback", 0), ("callback", 1), ("callback", 2), ("sweep", 0)),
        owner_of=(0, 0, 0),
        exchanges=(0, 1, 2),
        deadlines=False,
    ),
    "purge": Config(
        "a stop and its purge, a reconnect and a second stop; the app answers late",
        (("disconnect", 0), ("callback", 1), ("disconnect", 0), ("purge", 0), ("sweep", 0)),
        exchanges=(0, 0),
        ready=1,
        deadlines=False,
        purge=True,
    ),
    "purge-delete": Config(
        "a stop, its purge and another connection on its way, while the owner is deleted",
        (("disconnect", 0), ("callback", 1), ("delete", 0), ("purge", 0), ("sweep", 0)),
        owner_of=(0, 0),
        exchanges=(0, 1),
        ready=1,
        deadlines=False,
        purge=True,
    ),
    "outage": Config(
        "a disconnect while the keys are unavailable", (("disconnect", 0), ("sweep", 0)), ready=1, outage=True
    ),
}


def report(name, found, verbose=True):
    verdict = "no violation" if not found.violations else f"{len(found.violations)} kind(s) of violation"
    print(f"{name:22} {found.states:>9,} states {found.steps:>10,} steps {found.seconds:6.1f} s  {verdict}", flush=True)
    if verbose:
        for text, labels in sorted(found.violations.items(), key=lambda item: len(item[1])):
            print(f"\n  {text}   ({len(labels)} steps)")
            for n, label in enumerate(labels, 1):
                print(f"    {n:2}. {label}")
    return not found.violations


STAND_INS = {
    "save_version": "save_lease",
    "save_lease": "save_version",
    "install_no_grant": "install_generation",
    "successor_own_item": "settle_same_material",
    "settle_same_material": "successor_own_item",
}


def first_catch(rules, names, limit):
    """(configuration, violation, length) of the first configuration that notices, or None."""
    for name in names:
        found = search(Model(CONFIGS[name], rules), limit, first_only=True)
        for text, labels in found.violations.items():
            if "LIMIT" not in text:
                return name, text, len(labels)
    return None


def mutants(limit, part, parts):
    """Drop every rule of ours once; say which configuration is the first to notice, smallest first."""
    names = sorted(CONFIGS, key=lambda n: (n not in SMALL_FIRST, SMALL_FIRST.index(n) if n in SMALL_FIRST else n))
    missed, rules = [], list(RULES)[part::parts]
    for rule in rules:
        caught, dropped = first_catch(ALL - {rule}, names, limit), rule
        if caught is None:
            missed.append(rule)
            print(f"{rule:25} NOT caught alone", flush=True)
            if rule in STAND_INS:
                dropped = f"{rule} + {STAND_INS[rule]}"
                caught = first_catch(ALL - {rule, STAND_INS[rule]}, names, limit)
        if caught:
            print(f"{dropped:25} caught by {caught[0]:20} {caught[1]} ({caught[2]} steps)", flush=True)
    print(f"{len(rules) - len(missed)} of {len(rules)} rules caught alone; not: {', '.join(missed) or 'none'}")
    return not missed


SMALL_FIRST = [
    "outage",
    "ambiguous-connect",
    "connect",
    "connect-skew",
    "connect-delete",
    "ambiguous-refresh",
    "compaction",
    "purge",
    "refresh-wide",
    "handout",
    "handout-refresh",
    "refresh-static",
    "sharing",
    "sharing-one-owner",
    "sweepers",
    "sweepers-account",
    "connect-confirm",
    "two-connections",
    "refresh-delete",
    "reconnect",
    "sharing-two-sweepers",
    "two-starts",
    "refresh-grace",
    "refresh-grace-token",
    "refresh-token",
]


def main():
    parser = argparse.ArgumentParser(description="Explicit-state check of the custody protocol.")
    parser.add_argument("--config", choices=CONFIGS)
    parser.add_argument("--rules", choices=RULE_SETS, default="ours")
    parser.add_argument("--drop", action="append", choices=RULES, default=[], metavar="RULE")
    parser.add_argument("--all", action="store_true", help="every configuration")
    parser.add_argument("--mutants", action="store_true", help="drop every rule once")
    parser.add_argument("--part", default="0/1", help="with --mutants: this share of the rules, e.g. 0/2")
    parser.add_argument("--list", action="store_true", help="list configurations and rules")
    parser.add_argument("--ignore", action="append", default=[], help="overlook violations that start so, e.g. I-2")
    parser.add_argument("--limit", type=int, default=2_000_000, help="most states per search")
    args = parser.parse_args()
    if args.list:
        print(
            "\n".join(f"{n:22} {c.text}" for n, c in CONFIGS.items())
            + "\n\n"
            + "\n".join(f"{'+' if r in AMENDMENTS else ' '} {r:22} {text}" for r, text in RULES.items())
        )
        return 0
    if args.mutants:
        return 0 if mutants(args.limit, *map(int, args.part.split("/"))) else 1
    names = list(CONFIGS) if args.all else [args.config]
    if names == [None]:
        parser.error("--config, --all, --mutants or --list")
    rules = RULE_SETS[args.rules] - set(args.drop)
    results = [
        report(
            n,
            search(Model(CONFIGS[n], rules), args.limit, ignore=tuple(args.ignore)),
            not args.all or args.rules != "ours",
        )
        for n in names
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
