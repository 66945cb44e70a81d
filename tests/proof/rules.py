"""
The model's rules and the code that carries them (T-14): each named rule, the clauses, checks, orders and guards that
keep it in `store/` and `flows/`, and the case that goes wrong when one of them is left out.

    python -m tests.proof.rules --page      write docs/proof-rules.md again
    python -m tests.proof.rules --check     whether it is what it would be
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.proof.broken import TOGETHER, Killer, Mutant
from tests.proof.cases import Example
from tests.proof.guards import BY_NAME
from tests.proof.model.custody_model import RULES
from tests.proof.mutants import Equivalent, read_equivalent, read_killers

PAGE: Final = Path(__file__).parents[2] / "docs" / "proof-rules.md"


@dataclass(frozen=True)
class Carried:
    """What carries a rule: ids of mutants; and what must be said where that is not all of it."""

    by: tuple[str, ...]
    also: str = ""


def _by(*ids: str, also: str = "") -> Carried:
    return Carried(ids, also)


CARRIERS: Final[Mapping[str, Carried]] = {
    # connect
    "begin_barrier": _by(
        "connect: what is owed refuses a start and a begin",
        "connect.begin / put barrier / v =",
        "connect.begin / put barrier / in_flight absent",
    ),
    "begin_holds_barrier": _by("connect.begin / put barrier / v =", "connect.begin / put barrier / PK absent"),
    "begin_generation": _by(
        "connect: a link of another generation begins nothing", "connect.begin / put connection / v ="
    ),
    "consume_once": _by(
        "connect.begin / update authorization / consumed_at absent",
        "connect.begin / update authorization / discarded_at absent",
    ),
    "begin_owner": _by("connect.begin / check owner / deleted_at absent"),
    "send_within_window": _by(
        "connect: the code leaves only inside its window", "connect.begin / only behind the request to exchange"
    ),
    "hold_before_install": _by(
        "connect: what was granted is held before it is judged", "connect.hold / only behind connect.install"
    ),
    "late_grant_queue": _by("connect: a late grant is queued"),
    "install_holds": _by(
        "connect.install / delete revocation / lease =", "connect.install / delete revocation / state = pending"
    ),
    "install_window": _by("connect.install / update exchange / hold_ends >"),
    "install_generation": _by("connect: what moved on is not installed", "connect.install / put connection / v ="),
    "install_owner": _by("connect.install / check owner / deleted_at absent"),
    "install_barrier": _by(
        "connect: what is owed refuses an install as well",
        "connect.install / update barrier / v =",
        "connect.install / update barrier / in_flight =",
    ),
    "install_no_grant": _by("connect.install / put grant / PK absent"),
    "claim_after_hold": _by(
        "revocations.claim_within_family / update revocation / lease_until absent or lease_until <=",
        "revocations.claim / update lease+lease_until / lease_until absent or lease_until <=",
        also="A hold is the exchange's lease on its revocation until `hold_ends`.",
    ),
    "lapse_only_empty": _by("connect.end / update exchange / outcome = open"),
    # tokens
    "refresh_lease": _by(
        "tokens.record / update grant / lease_until absent or lease_until <=", "tokens: only a free lease is taken"
    ),
    "refresh_record": _by(
        "tokens.record / only behind the request to refresh", "tokens.record / update grant / not done"
    ),
    "record_fenced": _by(
        "tokens.record / update grant / generation =",
        "tokens.record / update grant / tv =",
        also="A stop takes the grant's item away in its own commit: the grant stands for its connection.",
    ),
    "send_within_lease": _by("tokens: the refresh leaves only inside its lease"),
    "save_version": _by("tokens.save / update grant / tv ="),
    "save_lease": _by("tokens.save / update grant / lease ="),
    "save_owner": _by("tokens: the owner is read again behind a save"),
    "orphan_queue": _by("tokens: a token that cannot be saved is queued"),
    "record_keeps_attempts": _by("tokens: an attempt is added to the record, never in place of another"),
    "strays_kept": _by("tokens: what an unseen attempt may have left is marked"),
    "old_queued": _by("tokens: an old token that survives is queued"),
    "fence_read": _by("tokens: the owner is read with the grant"),
    "fence_read_last": _by("tokens: the owner is read again behind a fresh grant"),
    "own_write_known": _by("tokens: a write that was applied but reported failed is known again"),
    "loss_exact_handle": _by(
        "tokens: only the very grant that was refused is lost",
        "stop.stop / delete grant / tv =",
        "stop.stop / delete grant / generation =",
    ),
    # stop
    "stop_generation": _by("stop: only the generation that the caller saw", "stop.stop / put connection / v ="),
    "stop_version": _by("stop.stop / delete grant / v ="),
    "stop_unopened": _by("stop: no key is needed"),
    "successor_flag": _by("stop: a refresh that is open is expected"),
    # revocations
    "claim_lease": _by(
        "revocations.claim / update lease+lease_until / lease_until absent or lease_until <=",
        "revocations: only what is due and free is claimed",
    ),
    "revoke_within_lease": _by("revocations: the revoke leaves only inside its claim"),
    "settle_lease": _by("revocations.settle_all / update to confirmed / lease ="),
    "settle_deadline": _by("revocations.settle_all / update to confirmed / deadline >"),
    "settle_no_successor": _by(
        "revocations: never confirmed while a successor may be alive",
        "revocations.settle_all / update to confirmed / expected absent",
    ),
    "successor_lost": _by(
        "revocations: a successor that never came is not forgotten",
        "revocations.settle_all / update to confirmed / lost absent",
    ),
    "successor_own_item": _by(
        "tokens.queue_orphan / put revocation / not done",
        also="No write adds to a revocation's material; the judge calls one that did a violation (custody rule 4).",
    ),
    "settle_same_material": _by(
        "revocations.settle_all / update to confirmed / state = pending",
        also="Material is written once, with its item, and erased by the settle: what was claimed is what is settled.",
    ),
    "receipt_counts_orphans": _by(
        "tokens.queue_orphan / update intent / not done",
        "connect.queue_late_grant / update intent / not done",
        "reconcile.close / check barrier / not done",
    ),
    "receipt_counts_exchanges": _by("reconcile: a stop is closed only when all of it is over"),
    "compact_unlists": _by("maintain.compact_revocation / update barrier / not done"),
    "begin_purge": _by(
        "connect.begin / put barrier / purges absent", "connect.install / update barrier / purges absent"
    ),
    "purge_token": _by("reconcile.purge_done / update intent / token ="),
    "receipt_counts_purge": _by("reconcile: purged before it is closed", "reconcile.close / update intent / purge ="),
    "ack_after_window": _by(
        "revocations: an exchange is acknowledged only behind its window",
        "revocations.acknowledge_exchange / update exchange / ends <=",
    ),
    "ack_terminal": _by(
        "revocations: only a notice is acknowledged",
        "revocations.acknowledge / update revocation / "
        "state = unconfirmed or state = expired or state = unreadable or state = unsupported",
    ),
    # sharing
    "park_reach": _by("revocations: nothing live is in its reach", "revocations.park / update account / live >"),
    "claim_checks_account": _by(
        "revocations.claim_account_wide / update account / v =",
        "revocations.claim_account_wide / update account / live =",
        "revocations.claim_account_wide / put account / PK absent",
    ),
    "wake_parked": _by("reconcile: what is parked wakes"),
    "install_no_kill": _by("connect.install / put account / v =", "connect.install / put account / PK absent"),
    "install_not_tainted": _by(
        "connect: a grant that a wide revocation may have ended is not installed",
        "connect.install / put account / killed_at absent or killed_at <",
    ),
}
"""Rule of the model -> what carries it."""


# --- where a mutant is, and what notices it --------------------------------------------------------------------------


def place_of(id_: str) -> str:
    """The file and function of what a mutant breaks."""
    if id_ in BY_NAME:
        return BY_NAME[id_].where
    function = id_.split(" / ")[0]
    module, _, method = function.partition(".")
    return f"store/{module}.py: {method}"


@dataclass(frozen=True)
class Evidence:
    """How a mutant is killed: alone, or together with what it stands behind."""

    killer: Killer | None
    excuse: Equivalent | None = None


def evidence() -> dict[str, Evidence]:
    """Every single mutant of the files."""
    killers = read_killers()
    found = {id_: Evidence(killer) for id_, killer in killers.items() if TOGETHER not in id_}
    for entry in read_equivalent():
        for id_ in entry.mutants:
            together = Mutant.of(id_, *entry.killed_with).id
            found[id_] = Evidence(killers.get(together) if entry.killed_with else None, entry)
    return found


def uncarried() -> list[str]:
    """What is wrong with the table: a rule without a carrier, a carrier that is no mutant or that nothing kills."""
    known = evidence()
    found = [f"{rule}: nothing carries it" for rule in RULES if rule not in CARRIERS]
    found += [f"{rule}: the model has no such rule" for rule in CARRIERS if rule not in RULES]
    for rule, carried in CARRIERS.items():
        found += [f"{rule}: {id_} is no mutant" for id_ in carried.by if id_ not in known]
        if not any(id_ in known and known[id_].killer is not None for id_ in carried.by):
            found.append(f"{rule}: nothing fails when what carries it is left out")
    return found


# --- the page --------------------------------------------------------------------------------------------------------

HEAD: Final = """# The model's rules, the code that carries them, and every mutant

Generated from `tests/proof` (`python -m tests.proof.rules --page`); a test fails when it is stale. What the techniques
are is told in [proof.md](proof.md).

Contents: [rules](#rules) · [mutants](#mutants) ·
[what stands behind something else](#what-stands-behind-something-else)

## Rules

The protocol as a model ([tests/proof/model](../tests/proof/model)) has a name for each of its rules; a search of the
model's states notices when one is left out. Here stands what carries each in the code. "Fails without it" is a case
that the proof runs in every CI run with that one thing left out, and what goes wrong in it. *Behind* says that
something else decides first, and that both were left out.

| rule | what carries it | fails without it |
|---|---|---|
"""

MUTANTS: Final = """
## Mutants

Each line is one broken copy of our code: a clause of a condition that is not asked, one way in which a clause may hold
that is not tried (`never …`), a check or an action that is not done, two adjacent effects of a flow done the other way
round (`only behind`), or a guard of a flow that is open. Below it is the case that goes wrong: a situation and the
handlers that meet in it, or a row of [the table of writes](table.md) with an item planted in its way, where no flow
brings the table there. `python -m tests.proof.mutants --tell "…"` tells it call by call.

"""

BEHIND_HEAD: Final = """
## What stands behind something else

No run can tell these from the code as it is. Where something else always decides first, both were left out, and then a
case goes wrong that does not where that alone is left out; where nothing is named, the reason says why none can.

"""


def page() -> str:
    """The whole page."""
    known = evidence()
    rows = "".join(_rule_row(rule, text, known) for rule, text in RULES.items())
    alone = {id_: each for id_, each in sorted(known.items()) if each.excuse is None}
    mutants = "".join(_mutant_lines(id_, each.killer) for id_, each in alone.items() if each.killer is not None)
    count = _count(list(alone.values()), len(known) - len(alone))
    return HEAD + rows + MUTANTS + count + mutants + BEHIND_HEAD + "".join(_excuses(read_equivalent(), known))


def _count(alone: Sequence[Evidence], behind: int) -> str:
    rows = sum(each.killer is not None and isinstance(each.killer.case, Example) for each in alone)
    kinds = f"{len(alone) - rows} noticed in a flow, {rows} by the row's own example, {behind} behind something else"
    return f"{len(alone) + behind} mutants: {kinds}.\n\n"


def _rule_row(rule: str, text: str, known: Mapping[str, Evidence]) -> str:
    carried = CARRIERS.get(rule, Carried(()))
    by = [f"`{place_of(id_)}`: {_cell(_what(id_))}" for id_ in carried.by] + ([carried.also] if carried.also else [])
    fails = [_evidence_cell(known.get(id_)) for id_ in carried.by]
    return f"| **{rule}** {_cell(text)} | {'<br>'.join(by)} | {'<br>'.join(each for each in fails if each)} |\n"


def _what(id_: str) -> str:
    """What a mutant breaks, without the place."""
    if id_ in BY_NAME:
        return id_.partition(": ")[2]
    return id_.partition(" / ")[2]


def _evidence_cell(found: Evidence | None) -> str:
    if found is None or found.killer is None:
        return ""
    behind = "*behind*: " if found.excuse is not None else ""
    return f"{behind}*{_cell(_how(found.killer))}*: {_cell(found.killer.fault)}"


def _how(killer: Killer) -> str:
    if isinstance(killer.case, Example):
        return f"row {killer.case.row}"
    return f"{killer.case.situation}: {', '.join(killer.case.handlers)}"


def _mutant_lines(id_: str, killer: Killer) -> str:
    return f"- `{id_}` ({place_of(id_)})  \n  {_cell(_how(killer))}: {_cell(killer.fault)}\n"


def _excuses(entries: Sequence[Equivalent], known: Mapping[str, Evidence]) -> Iterator[str]:
    for entry in entries:
        yield f"- {entry.why}\n"
        for id_ in entry.mutants:
            killer = known[id_].killer
            shown = "" if killer is None else f"; killed with it: {_cell(_how(killer))}: {_cell(killer.fault)}"
            yield f"  - `{id_}`{shown}\n"
        if entry.killed_with:
            yield f"  - behind {', '.join(f'`{each}`' for each in entry.killed_with)}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def main(words: list[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.rules", description=__doc__)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(words)
    if asked.page:
        PAGE.write_text(page())
    faults = uncarried()
    if not PAGE.exists() or PAGE.read_text() != page():
        faults.append("docs/proof-rules.md is stale: python -m tests.proof.rules --page")
    print("\n".join(faults) or f"{len(CARRIERS)} rules, each carried and watched over")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
