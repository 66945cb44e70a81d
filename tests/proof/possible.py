"""
The product beside the reference model: each request and each run of a schedule is told to the model, and what came of
it must be possible there.

What was cut short (its worker died, the table failed) may have ended after any of its steps that does not contradict
what the provider saw. So every world that is still possible is kept, and what is observed later leaves fewer of them.
None left is a violation.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.proof.reference import (
    MAYBE,
    Cut,
    Impossible,
    Item,
    OwnerName,
    Provider,
    Refused,
    Run,
    Sent,
    State,
    Step,
    seen_of,
)

WORLDS: Final = 96
"""More possible worlds than this are not told apart: the model forgets, and judges no more in that run."""

type Request = Callable[[Run], Step]


@dataclass(frozen=True)
class Expected:
    """One way in which a request may have gone: its answer (None: it was cut short), and the world after it."""

    answer: Any
    state: State
    used: frozenset[int]


def ways(run: Run, request: Request) -> list[Expected]:
    """
    How *request* may have gone in the world of *run*. Where it was not cut short there is one way; else it may have
    ended after any of its steps that is not earlier than the last request that left.
    """
    run.stage()
    unnoticed: list[State] = []
    steps = request(run)
    try:
        while True:
            if next(steps) != MAYBE:
                run.stage()
            elif run.is_cut:
                unnoticed.append(run.state.copy())
    except StopIteration as done:
        answer = ("answer", done.value)
    except Refused as refused:
        answer = ("refused", refused.code)
    except Cut:
        return [Expected(None, state, used) for state, used in run.stages]
    whole = [Expected(answer, state, run.used) for state in (run.state, *unnoticed)]
    return [*whole, *(Expected(None, state, used) for state, used in run.stages)]


class Reference:
    """The model beside the product: it is told each request, and says what is wrong with what came of it."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.worlds = [State()]
        self.has_forgotten = False

    @property
    def state(self) -> State:
        """One of the worlds that are possible: what to ask next is chosen by it."""
        return self.worlds[0]

    def asked(
        self,
        request: Request,
        *,
        now: int,
        then: int,
        answer: Any,
        log: Iterable[Sent],
        seen: Mapping[OwnerName, dict[str, Any]],
        is_cut: bool = False,
        keys_out: bool = False,
    ) -> list[str]:
        """
        A request of the API, at *now*: its answer, and what is seen *then*, after it, must be possible in one of the
        worlds.
        """
        sent = tuple(log)

        def after(state: State) -> list[Expected]:
            ends = ways(Run(state.copy(), now, self.provider, keys_out, sent, is_cut), request)
            possible = [end for end in ends if end.answer == answer or (end.answer is None and _tells_of_a_cut(answer))]
            if not possible:
                due = dict.fromkeys(str(end.answer) for end in ends)
                raise Impossible(f"the answer must be {' or '.join(due)}, it is {answer}")
            return possible

        return self._judge(after, then, sent, seen)

    def ran(
        self,
        phases: Iterable[Callable[[State, int], list[tuple[str, Item]]]],
        *,
        now: int,
        then: int,
        log: Iterable[Sent],
        seen: Mapping[OwnerName, dict[str, Any]],
        is_cut: bool = False,
        keys_out: bool = False,
    ) -> list[str]:
        """A run of a schedule: each thing that was due is done, or, where the run was cut short, some of its steps."""
        sent, parts = tuple(log), tuple(phases)

        def after(state: State) -> list[Expected]:
            worlds = [Expected(None, state, frozenset())]
            for phase in parts:
                worlds = [
                    end
                    for world in worlds
                    for order in _orders(phase(world.state, now), world.state, self.provider)
                    for end in self._in_order(order, world, now, sent, is_cut, keys_out)
                ]
            return worlds

        return self._judge(after, then, sent, seen)

    def _in_order(
        self, items: list[Item], world: Expected, now: int, log: tuple[Sent, ...], is_cut: bool, keys_out: bool
    ) -> list[Expected]:
        ends = [world]
        for item in items:
            following: list[Expected] = []
            for end in ends:
                run = Run(end.state.copy(), now, self.provider, keys_out, log, is_cut, end.used)
                following += ways(run, item)
            ends = _distinct(following) if is_cut else following
        return ends

    def _judge(
        self,
        after: Callable[[State], list[Expected]],
        then: int,
        log: tuple[Sent, ...],
        seen: Mapping[OwnerName, dict[str, Any]],
    ) -> list[str]:
        if self.has_forgotten:
            return []
        possible: list[State] = []
        reasons: list[str] = []
        for world in self.worlds:
            try:
                for end in after(world):
                    reason = _contradiction(end, log, seen, then)
                    if reason is None:
                        end.state.tidy(then)
                        possible.append(end.state)
                    else:
                        reasons.append(reason)
            except Impossible as impossible:
                reasons.append(str(impossible))
        if not possible:
            return [f"reference: {reason}" for reason in dict.fromkeys(reasons)]
        self.worlds = _merged(possible)
        self.has_forgotten = len(self.worlds) > WORLDS
        return []


def _tells_of_a_cut(answer: Any) -> bool:
    """Nobody lived to answer, or the answer says that the table failed."""
    return answer is None or answer in (("refused", "STORAGE_UNAVAILABLE"), ("refused", "CONFLICT"))


def _orders(items: list[tuple[str, Item]], state: State, provider: Provider) -> list[list[Item]]:
    """In which order a run takes what is due matters only for who claims an account last: each may be that one."""
    plain = [item for _, item in items]
    last = [
        number for number, (name, _) in enumerate(items) if name in state.owed and state.owed[name].state == "pending"
    ]
    if not provider.is_wide or len(last) < 2:
        return [plain]
    return [[*(item for other, item in enumerate(plain) if other != number), plain[number]] for number in last]


def _contradiction(
    end: Expected, log: tuple[Sent, ...], seen: Mapping[OwnerName, dict[str, Any]], now: int
) -> str | None:
    for number, sent in enumerate(log):
        if number not in end.used:
            return f"a request left that nothing asks for: {sent}"
    for owner, shown in seen.items():
        expected = seen_of(end.state, owner, now)
        if expected != shown:
            return f"{'/'.join(owner)} must show {_difference(expected, shown)}"
    return None


def _difference(expected: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name} {expected[name]}, not {shown[name]}" for name in expected if expected[name] != shown[name]
    )


def _merged(states: list[State]) -> list[State]:
    found: list[State] = []
    for state in states:
        if state not in found:
            found.append(state)
    return found


def _distinct(ends: list[Expected]) -> list[Expected]:
    found: list[Expected] = []
    for end in ends:
        if not any(end.used == other.used and end.state == other.state for other in found):
            found.append(end)
    return found
