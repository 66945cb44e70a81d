"""
Every numbered rule there is, and which of them a finished capability owns.

F exchanges, stops, refresh and revocation · M connecting and webhooks · C reconciliation and dependents · U what
unifies them · I invariants · D faults that this design must not have · S attacks · RB field cases · G performance
goals.
"""

from typing import Final

FIELD_CASES: Final = tuple(
    """
    01 02 03 04 06 07 08 09 11 12 14 16 17 19 20 21 22 23 24 25 27 28b 28c 29 30 31 32 33 34 35 37 39 40 41 42 43 45 46
    47 49 50 51 52 54 55 56 58 59 61 62 63 64 65 66 68 71 72
    """.split()  # noqa: SIM905 - a list literal of them would fill a page
)
"""The numbers have gaps. Those whose capability is there are in docs/field-cases.md."""

ALL: Final = frozenset(
    [f"F-{number}" for number in range(1, 70)]
    + [f"M-{number}" for number in range(1, 86)]
    + [f"C-{number}" for number in range(1, 43)]
    + [f"U-{number}" for number in range(1, 25)]
    + [f"I-{number}" for number in range(1, 19)]
    + [f"D-{number}" for number in range(1, 39)]
    + [f"S-{number}" for number in range(1, 33)]
    + [f"G{number}" for number in range(1, 14)]
    + [f"RB-{number}" for number in FIELD_CASES]
)

LATER: Final = frozenset({"U-18", "I-14", "D-19", "D-20"})
"""Rules of docs/rules.md that come with reconciliation at brokers or with dependents, and say so there."""

CUSTODY: Final = (
    frozenset(rule for rule in ALL if rule.split("-")[0] in ("F", "U", "I", "D")) - LATER
    | frozenset(f"RB-{number}" for number in FIELD_CASES if number[:2] <= "47")
    | frozenset({"RB-61", "RB-62", "G3", "G8", "G9"})
)
"""What the custody core keeps: exchanges, stops, refreshes, revocations and what unifies them."""

CONNECTING: Final = frozenset(f"M-{number}" for number in range(1, 60)) | frozenset(
    {"RB-49", "RB-50", "RB-51", "RB-52", "RB-54", "RB-55", "RB-56"}
    | {"S-1", "S-2", "S-3", "S-4", "S-5", "S-6", "S-7", "S-21", "S-22", "S-23", "S-25", "S-26"}
)
"""Starting a connection, the hosted link and the callback; accounts at brokers and sign-in."""

WEBHOOKS: Final = (
    frozenset(f"M-{number}" for number in range(60, 86))
    | {f"RB-{number}" for number in (63, 64, 65, 66, 68, 71, 72)}
    | {"S-9", "S-10", "S-11", "S-12"}
)
"""Events of providers, those of sources behind an account among them."""

SEALING: Final = frozenset({"S-15", "S-16"})
"""What a sealed value withstands."""

OWNED: Final[frozenset[str]] = CUSTODY | CONNECTING | WEBHOOKS | SEALING
"""Rules of finished capabilities: each must be asserted by a test. A capability adds its own when it is finished."""


def faults_of(found: dict[str, list[str]]) -> list[str]:
    """What is wrong with the markers: one that names no rule, or an owned rule that no test asserts."""
    unknown = [f"{rule}: no such rule, named by {tests[0]}" for rule, tests in sorted(found.items()) if rule not in ALL]
    missing = [
        f"{rule}: owned by a finished capability, and no test asserts it" for rule in sorted(OWNED - found.keys())
    ]
    return unknown + missing
