"""
What is done to a good request of a provider, so that it must not be believed any more: for the tests that send many.

`QUITCLAIM_MUTATIONS=100000` makes them nightly runs (`make webhooks-nightly`).
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quitclaim.domain.webhooks import Incoming

MUTATIONS: Final = int(os.environ.get("QUITCLAIM_MUTATIONS", "10000"))
AT_ONCE: Final = 25
KINDS: Final = 18

type Change = tuple[int, int, int, bytes]
"""Which kind, where, by how much, and something to put there."""


def each_of(count: int, kinds: int, do: Callable[[Change], bool]) -> int:
    """
    *do* at least *count* changes of Hypothesis's choice; it answers whether its change was one at all. How many were.
    """
    change = st.tuples(st.integers(0, kinds - 1), st.integers(0, 400), st.integers(1, 255), st.binary(max_size=24))
    done = 0

    def some(examples: int) -> None:
        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(st.lists(change, min_size=AT_ONCE, max_size=AT_ONCE))
        def run(drawn: list[Change]) -> None:
            nonlocal done
            done += sum(do(each) for each in drawn)

        run()

    while done < count:
        some(-(-(count - done) // AT_ONCE))
    return done


def mutated(good: Incoming, change: Change) -> Incoming:
    """*good* with one thing changed: body, a header, the order or number of them, the address, the method."""
    kind, place, by, more = change
    names = sorted(good.headers)
    name = names[place % len(names)]
    text, body = good.headers[name], good.body
    at = place % max(1, len(body))
    spot = place % max(1, len(text))
    other = more.decode("latin-1")
    flipped = chr(ord(text[spot]) ^ (1 << by % 7)) if text else "x"
    match kind:
        case 0:
            return replace(good, body=body[:at] + bytes([body[at] ^ (1 << by % 8)]) + body[at + 1 :])
        case 1:
            return replace(good, body=body[:at] + more + b"\0" + body[at:])
        case 2:
            return replace(good, body=body[:at])
        case 3:
            return replace(good, headers={**good.headers, name: text[:spot] + flipped + text[spot + 1 :]})
        case 4:
            return replace(good, headers={key: value for key, value in good.headers.items() if key != name})
        case 5:
            return replace(good, headers={**good.headers, name: other})
        case 6:
            return replace(good, headers={**good.headers, name: f"{text},{text}"})
        case 7:
            return replace(good, headers=dict.fromkeys(names, other), body=more)
        case 8:
            return replace(good, body=b"[" * (by * 10) + more)
        case 9:
            return replace(good, method=("GET", "HEAD", "PUT", "post")[by % 4], query={other: other, name: other})
        case 10:
            return replace(good, body=b'{"challenge":' + more + b"}", headers={})
        case 11:
            return replace(good, headers={key.upper(): value for key, value in good.headers.items()}, body=more)
        case 12:
            return replace(good, body=b"")
        case 13:
            return replace(good, body=body + (b" " * by if place % 8 else bytes(1 << 20)))
        case 14:  # a list of signatures, none of them the right one
            joined = ("," if by % 2 else " ").join(f"{text[:spot]}{flipped}{text[spot + 1 :]}" for _ in range(by % 20))
            return replace(good, headers={**good.headers, name: joined})
        case 15:  # a time that nobody signed, somewhere between a second and a day away
            digits = [key for key in names if good.headers[key].isdigit()]
            moved = {key: str(int(good.headers[key]) + (by - 300) * (1 + place)) for key in digits}
            return replace(good, headers={**good.headers, **moved})
        case 16:
            kinds = ("text/plain", "application/json; charset=utf-16", "multipart/form-data; boundary=x", other)
            return replace(good, headers={**good.headers, "content-type": kinds[by % 4]}, body=body[::-1] + more)
        case _:
            return replace(good, headers={**good.headers, "content-encoding": ("gzip", "br", other)[by % 3]}, body=more)
