"""
Every order in which processes can meet, and every step of them made once.

What a flow does next depends on nothing but the answers that it was given. So a process is a tree: at each point what
it asks for next, and below it one branch for each answer that it ever got. The flow itself runs only where an answer is
new; everywhere else the tree knows how it goes on. A state is what lies in the world and the point of each process;
equal states go on in the same way, and are gone on from once. All orders are covered, none is left out as equal to
another: no two calls are taken to be independent here.

A handler that reaches into the world by itself cannot be made into a tree (`TouchedError`); `stepping.explore` runs its
orders one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from quitclaim.domain.secret import Secret
from quitclaim.ports import Page, WriteRefusedError
from tests.proof.stepping import Call, Process, Request, TouchedError, enabled_of

if TYPE_CHECKING:
    from tests.proof.world import World

KEPT: Final = 20_000
"""Worlds that are kept to go back to; with more of them a search of the next meeting begins anew."""

NESTING: Final = frozenset({dict, list, set})

type Outcome = tuple[Any, Exception | None]
"""Of a request: its answer, or its error."""
type State = tuple[int, ...]
"""Number of the world, and of the point of each process."""


@dataclass(slots=True, eq=False)
class Point:
    """
    Where a process stands: what it asks for (None: it has ended), and where it goes on by the answer. *told*: the
    answer that led here. *live*: the flow itself, if it stands exactly here.
    """

    number: int
    make: Callable[[], Process]
    parent: "Point | None" = None
    told: Outcome | None = None
    request: Request | None = None
    end: Process | None = None
    live: Process | None = None
    after: "dict[Any, Point]" = field(default_factory=dict)

    @property
    def call(self) -> Call | None:
        """The call that it waits to do."""
        return self.request.call if self.request is not None else None


@dataclass(slots=True)
class Met:
    """How many orders a meeting has, through how many states and steps; whether that is all of them."""

    orders: int
    states: int
    steps: int
    is_all: bool


class Meetings:
    """The meetings of handlers in one situation: what is known of worlds, points and steps is shared by all."""

    def __init__(self, world: "World", saved: Any) -> None:
        self._world = world
        self._saved = saved
        self._roots: dict[tuple[str, int], Point] = {}
        self._points: list[Point] = []
        self._anew: dict[Any, Point] = {}
        self._forget_worlds()

    def _forget_worlds(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._worlds: list[Any] = []
        self._made: dict[tuple[int, int], tuple[int, int]] = {}
        self._entered: dict[tuple[int, int], tuple[int, int]] = {}
        self._at = -1
        self._world.restore(self._saved)
        self._number()

    def meet(
        self,
        flows: Sequence[tuple[str, Callable[[Process], Any]]],
        judge: Callable[[list[Process], list[int]], None],
        *,
        limit: int | None = None,
        chance: Random | None = None,
    ) -> Met:
        """
        Go through every order of the calls of these flows, each known by a name, and *judge* each end once: the
        processes as they ended, and one order that leads there. The world is then as it was left. *limit*: of states;
        with fewer than there are, those are gone through that some orders lead to, chosen by *chance*.
        """
        if len(self._worlds) > KEPT:
            self._forget_worlds()
        self._at = -1  # somebody else may have been there since
        state = self._begin(flows)
        search = _Search(self, judge, limit, chance)
        orders = search.orders(state)
        return Met(orders, len(search.counted), search.steps, search.is_all)

    def _begin(self, flows: Sequence[tuple[str, Callable[[Process], Any]]]) -> State:
        world, points = 0, []
        for slot, (name, flow) in enumerate(flows):
            root = self._roots.get((name, slot))
            if root is None:
                root = self._roots[name, slot] = self._root(f"p{slot}", flow)
            entered = self._entered.get((world, root.number))
            if entered is None:
                self._go_to(world)
                point = self._to_next_call(root)
                entered = self._entered[world, root.number] = (self._number(), point.number)
            world = entered[0]
            points.append(entered[1])
        return (world, *points)

    def able(self, state: State) -> dict[int, Call]:
        """Which process can go on, and with what call."""
        pending = {}
        for slot, number in enumerate(state[1:]):
            call = self._points[number].call
            if call is not None:
                pending[slot] = call
        return enabled_of(pending)

    def stepped(self, state: State, slot: int) -> State:
        """The state after that process's call, and whatever it does up to its next one."""
        world, number = state[0], state[slot + 1]
        made = self._made.get((world, number))
        if made is None:
            self._go_to(world)
            point = self._to_next_call(self._answered(self._points[number]))
            made = self._made[world, number] = (self._number(), point.number)
        return (made[0], *state[1 : slot + 1], made[1], *state[slot + 2 :])

    def ends(self, state: State) -> list[Process]:
        """The processes as they ended, in the world that they left."""
        self._go_to(state[0])
        self._at = -1  # whoever judges goes on from it
        found = []
        for number in state[1:]:
            end = self._points[number].end
            assert end is not None, "it has not ended"
            found.append(end)
        return found

    # --- worlds ---

    def _go_to(self, number: int) -> None:
        if self._at != number:
            self._world.restore(self._worlds[number])
        self._at = -1

    def _number(self) -> int:
        """Of the world as it is now."""
        key = self._world.key()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._worlds)
            self._worlds.append(self._world.save())
        self._at = number
        return number

    # --- points ---

    def _root(self, name: str, flow: Callable[[Process], Any]) -> Point:
        return self._reached(None, None, lambda: Process(name, flow, is_driven=True))

    def _to_next_call(self, point: Point) -> Point:
        """Past everything that it does between two calls."""
        while point.request is not None and point.request.call is None:
            if point.request.anew is not None:
                point = self._anew.setdefault((point.make, point.request.anew), point)
            point = self._answered(point)
        if point.end is not None:
            error = point.end.error
            how = (type(error), str(error), frozenset(point.end.received))
            point = self._anew.setdefault((point.make, "end", how), point)
        return point

    def _answered(self, point: Point) -> Point:
        """
        Do what it asks for, in the world as it is; the point after.

        A read whose mark is known at this point is not made again. Nothing that differs becomes one by that: at one
        point a process always asks the same, so its answer depends on nothing but the items in question; a mark is made
        of all of them, and of all that each consists of (`MemoryTable.mark`); so equal marks are equal answers. A read
        that is left out leaves nothing else out: it changes nothing, no item and no clock. Only what it would have been
        counted as is missing, which is no part of a state. The other way round equal answers may have two marks (a page
        that ends before an item that was changed): then a point is there twice, and is gone on from twice.
        """
        assert point.request is not None, "it has ended"
        mark = point.request.mark
        if mark is not None:
            marked = mark()
            found = point.after.get(marked)
            if found is None:
                found = point.after[marked] = self._reached(point, (point.request.act(), None), point.make)
            return found
        answer, error = None, None
        try:
            answer = point.request.act()
        except Exception as fault:  # noqa: BLE001 - the flow's own affair: it is given to it
            error = fault
        key = answer_key(error if error is not None else answer)
        found = point.after.get(key)
        if found is None:
            found = point.after[key] = self._reached(point, (answer, error), point.make)
        return found

    def _reached(self, parent: Point | None, told: Outcome | None, make: Callable[[], Process]) -> Point:
        """A point that nobody was at: the flow itself must say what is next."""
        process = self._at_point(parent, make)
        try:
            request = process.drive(None if told is None else _again(told))
        except TouchedError as touched:
            touched.handler = process.name
            raise
        point = Point(len(self._points), make, parent, told, request)
        if request is None:
            point.end = process
        else:
            point.live = process
        self._points.append(point)
        return point

    @staticmethod
    def _at_point(point: Point | None, make: Callable[[], Process]) -> Process:
        """A process that stands at *point*: the one that does, or another one that is told the same once more."""
        if point is None:
            return make()
        if point.live is not None:
            process, point.live = point.live, None
            return process
        told = []
        each: Point | None = point
        while each is not None and each.told is not None:
            told.append(each.told)
            each = each.parent
        process = make()
        process.drive()
        for outcome in reversed(told):
            process.drive(_again(outcome))
        return process


class _Search:
    """One meeting, gone through depth first."""

    def __init__(
        self,
        meetings: Meetings,
        judge: Callable[[list[Process], list[int]], None],
        limit: int | None,
        chance: Random | None,
    ) -> None:
        self._meetings = meetings
        self._judge = judge
        self._limit = limit
        self._chance = chance
        self._way: list[int] = []
        self.counted: dict[State, int] = {}
        self.steps = 0
        self.is_all = True

    def orders(self, state: State) -> int:
        """How many orders lead from here to an end."""
        known = self.counted.get(state)
        if known is not None:
            return known
        if self._limit is not None and len(self.counted) >= self._limit:
            self.is_all = False
            return 0
        able = list(self._meetings.able(state))
        if self._chance is not None:
            self._chance.shuffle(able)
        total = 0
        if not able:
            self._judge(self._meetings.ends(state), list(self._way))
            total = 1
        for slot in able:
            self.steps += 1
            self._way.append(slot)
            total += self.orders(self._meetings.stepped(state, slot))
            self._way.pop()
        self.counted[state] = total
        return total


# --- answers ---------------------------------------------------------------------------------------------------------


def answer_key(answer: Any) -> Any:
    """Equal for answers that no flow can tell apart, and only for them; hashable."""
    match answer:
        case None | bool() | int() | str() | bytes():
            return (type(answer), answer)
        case Secret():
            return (Secret, answer.reveal())
        case dict():
            return (dict, frozenset((name, answer_key(value)) for name, value in answer.items()))
        case list() | tuple():
            return (type(answer), tuple(map(answer_key, answer)))
        case set() | frozenset():
            return (frozenset, frozenset(map(answer_key, answer)))
        case Page():
            return (Page, answer_key(answer.items), answer_key(answer.after))
        case WriteRefusedError():
            return (WriteRefusedError, answer_key(answer.items))
        case Exception():
            return (type(answer), answer_key(answer.args))
    fields = getattr(answer, "__dataclass_fields__", None)
    if fields is None:
        raise TypeError(f"an answer that nobody can compare: {type(answer).__name__}")
    return (type(answer), tuple(answer_key(getattr(answer, name)) for name in fields))


def _again(outcome: Outcome) -> Outcome:
    """The same once more, for a flow of its own: it may change what it is given."""
    answer, error = outcome
    if isinstance(error, WriteRefusedError):
        return None, WriteRefusedError([_copied(item) for item in error.items])
    if error is not None:
        return None, type(error)(*error.args)
    return _copied(answer), None


def _copied(answer: Any) -> Any:
    kind = type(answer)
    if kind is dict:
        return {name: _copied(value) if type(value) in NESTING else value for name, value in answer.items()}
    if kind is list:
        return [_copied(value) for value in answer]
    if kind is set:
        return set(answer)
    if kind is Page:
        return Page(tuple(map(_copied, answer.items)), answer.after)
    return answer
