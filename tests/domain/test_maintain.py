"""What may go and what may not; when keys are added, retired and destroyed; and what keeps a key."""

from dataclasses import replace
from typing import Any

import pytest

from quitclaim.domain.connect import Barrier, ConnectionState, ExchangeOutcome
from quitclaim.domain.keyring import (
    RingItem,
    UnknownSealError,
    active_from,
    kids_in,
    may_destroy,
    next_kid,
    to_retire,
)
from quitclaim.domain.limits import (
    COMPACT_MS,
    GUARD_MS,
    INSPECTION_MS,
    KEY_LEAD_MS,
    KEY_LIFE_MS,
    KEY_REST_MS,
    WINDOW_MS,
)
from quitclaim.domain.maintain import (
    Inspection,
    begun,
    is_due,
    lapsed_notices,
    may_compact_barrier,
    may_compact_connection,
    may_compact_exchange,
    may_compact_intent,
    may_compact_revocation,
    turned,
)
from quitclaim.domain.revocations import RevocationState
from quitclaim.security.keys import USE
from quitclaim.security.sealing import Binding, Sealer
from tests.domain.values import AROUND, NOW, a_connection, a_revocation, an_exchange, an_intent
from tests.security.rings import a_ring

LONG_AGO = NOW - 9 * COMPACT_MS
NOTICES = [state for state in RevocationState if state.is_notice]


# --- compaction ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-69", "D-12")
@pytest.mark.parametrize("owner_deleted", [False, True])
@pytest.mark.parametrize("acknowledged", [None, NOW])
@pytest.mark.parametrize("finished", [None, NOW])
@pytest.mark.parametrize("state", RevocationState)
def test_a_revocation_goes_once_it_is_told(
    state: RevocationState, finished: int | None, acknowledged: int | None, owner_deleted: bool
) -> None:
    """Confirmed, or a notice that is acknowledged or of a deleted owner; finished in any case; never what is open."""
    item = a_revocation(state, finished=finished, acknowledged=acknowledged, deadline=LONG_AGO)

    may = may_compact_revocation(item, NOW, owner_deleted=owner_deleted)

    told = state is RevocationState.CONFIRMED or (state.is_notice and (acknowledged is not None or owner_deleted))
    assert may is (told and finished is not None)


@pytest.mark.rule("F-69", "U-17")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("deadline", [None, NOW])
def test_a_revocation_goes_a_day_after_its_deadline(deadline: int | None, off: int) -> None:
    """Or after it was queued, where it never had one."""
    item = a_revocation(RevocationState.CONFIRMED, finished=NOW, deadline=deadline, queued=NOW)

    assert may_compact_revocation(item, NOW + COMPACT_MS + off, owner_deleted=False) is (off >= 0)


TOLD = a_revocation(RevocationState.CONFIRMED, finished=NOW)
OPEN_NOTICE = a_revocation(RevocationState.EXPIRED, finished=NOW)
EXCHANGES: list[tuple[ExchangeOutcome, dict[str, Any], Any, bool, bool]] = [
    (ExchangeOutcome.OPEN, {}, None, False, False),
    (ExchangeOutcome.HELD, {}, a_revocation(), False, False),
    (ExchangeOutcome.INSTALLED, {}, None, True, True),
    (ExchangeOutcome.INSTALLED, {}, a_revocation(), True, True),
    (ExchangeOutcome.ENDED, {}, None, True, True),
    (ExchangeOutcome.UNCONFIRMED, {}, None, False, True),
    (ExchangeOutcome.UNCONFIRMED, {"acknowledged": NOW}, None, True, True),
    (ExchangeOutcome.CLEANUP, {}, None, True, True),
    (ExchangeOutcome.CLEANUP, {}, TOLD, True, True),
    (ExchangeOutcome.CLEANUP, {}, replace(TOLD, finished=None), False, False),
    (ExchangeOutcome.CLEANUP, {}, a_revocation(), False, False),
    (ExchangeOutcome.CLEANUP, {}, a_revocation(RevocationState.PARKED), False, False),
    (ExchangeOutcome.CLEANUP, {}, OPEN_NOTICE, False, True),
    (ExchangeOutcome.CLEANUP, {}, replace(OPEN_NOTICE, acknowledged=NOW), True, True),
]


@pytest.mark.rule("F-69")
@pytest.mark.parametrize(("outcome", "changes", "revocation", "living", "deleted"), EXCHANGES)
def test_an_exchange_goes_once_nothing_hangs_on_it(
    outcome: ExchangeOutcome, changes: dict[str, Any], revocation: Any, living: bool, deleted: bool
) -> None:
    """By outcome; of a deleted owner also what nobody will acknowledge any more."""
    exchange = an_exchange(outcome, ends=LONG_AGO, **changes)

    assert may_compact_exchange(exchange, revocation, NOW) is living
    assert may_compact_exchange(exchange, revocation, NOW, owner_deleted=True) is deleted


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("off", AROUND)
@pytest.mark.parametrize("hold_ends", [None, NOW + 10 * WINDOW_MS])
def test_an_exchange_goes_a_day_after_its_end(hold_ends: int | None, off: int) -> None:
    """Its hold's, where it had one."""
    exchange = an_exchange(ExchangeOutcome.ENDED, hold_ends=hold_ends)

    assert may_compact_exchange(exchange, None, (hold_ends or exchange.ends) + COMPACT_MS + off) is (off >= 0)


def test_a_stop_goes_a_day_after_it_closed_with_nothing_listed() -> None:
    """Neither open nor young nor with a revocation in it."""
    closed = an_intent(closed=NOW)

    assert may_compact_intent(closed, NOW + COMPACT_MS)
    assert not may_compact_intent(closed, NOW + COMPACT_MS - 1)
    assert not may_compact_intent(replace(closed, rids=frozenset({"r"})), NOW + COMPACT_MS)
    assert not may_compact_intent(replace(closed, closed=None), NOW + COMPACT_MS)


@pytest.mark.rule("F-69")
@pytest.mark.parametrize("state", ConnectionState)
def test_a_connection_goes_only_with_its_owner(state: ConnectionState) -> None:
    """Closed, and the last of what there was."""
    connection = a_connection(state)

    assert may_compact_connection(connection, owner_deleted=True, rest=0) is (state is ConnectionState.REVOKED)
    assert not may_compact_connection(connection, owner_deleted=True, rest=1)
    assert not may_compact_connection(connection, owner_deleted=False, rest=0)


def test_a_barrier_goes_only_with_its_owner_and_empty() -> None:
    """What is in flight there may be over: that stop left it alone."""
    over, held = an_exchange(ExchangeOutcome.CLEANUP), an_exchange(ExchangeOutcome.HELD)

    assert may_compact_barrier(Barrier(), None, owner_deleted=True)
    assert may_compact_barrier(Barrier(in_flight="google#x1"), over, owner_deleted=True)
    assert not may_compact_barrier(Barrier(in_flight="google#x1"), held, owner_deleted=True)
    assert not may_compact_barrier(Barrier(), None, owner_deleted=False)
    for name in ("owed", "acks", "purges"):
        assert not may_compact_barrier(Barrier(**{name: frozenset({"x"})}), None, owner_deleted=True)


def test_notices_lapse_with_their_time() -> None:
    """Of a deleted owner: what may be compacted holds nothing up."""
    old = a_revocation(RevocationState.EXPIRED, rid="old", finished=NOW, deadline=LONG_AGO)
    young = a_revocation(RevocationState.EXPIRED, rid="young", finished=NOW, deadline=NOW)
    lost = an_exchange(ExchangeOutcome.UNCONFIRMED, id="lost", ends=LONG_AGO)

    assert lapsed_notices([old, young, None], [lost, None], NOW) == {"old", "lost"}


# --- keys ------------------------------------------------------------------------------------------------------------


def a_key(kid: str, at: int, purpose: str = "use", retired: int | None = None) -> RingItem:
    return RingItem(purpose, kid, b"wrapped", at, at, retired)


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("off", AROUND)
def test_a_key_is_followed_when_its_time_is_over(off: int) -> None:
    """Counted on from the first, named after its purpose."""
    assert next_kid([a_key("1", NOW)], NOW + KEY_LIFE_MS + off) == ("use-2" if off >= 0 else None)


def test_the_newest_counts() -> None:
    """Also one that does not seal yet: it is not added twice."""
    keys = [a_key("1", LONG_AGO), a_key("use-2", NOW)]

    assert next_kid(keys, NOW + KEY_LIFE_MS - 1) is None
    assert next_kid(keys, NOW + KEY_LIFE_MS) == "use-3"
    assert next_kid([a_key("1", LONG_AGO), a_key("use-2", NOW + KEY_LEAD_MS)], NOW) is None
    assert next_kid([], NOW) is None
    assert active_from(NOW) == NOW + KEY_LEAD_MS


def test_the_index_key_serves_for_ever() -> None:
    """Neither followed nor retired."""
    keys = [a_key("1", LONG_AGO, "index"), a_key("2", LONG_AGO + 1, "index")]

    assert next_kid(keys, NOW + 99 * KEY_LIFE_MS) is None
    assert to_retire(keys, NOW + 99 * KEY_LIFE_MS) == []


@pytest.mark.parametrize("off", AROUND)
def test_a_key_is_retired_once_a_newer_one_seals(off: int) -> None:
    """A guard later, for clocks differ; the newest never, a retired one not again."""
    old, new = a_key("1", LONG_AGO), a_key("use-2", NOW)

    assert to_retire([old, new], NOW + GUARD_MS + off) == ([old] if off >= 0 else [])
    assert to_retire([replace(old, retired=5), new], NOW + GUARD_MS) == []
    assert to_retire([new], NOW + KEY_LIFE_MS) == []


@pytest.mark.parametrize("off", AROUND)
def test_a_key_may_be_destroyed_when_it_has_rested(off: int) -> None:
    """Never one that still seals."""
    assert may_destroy(a_key("1", LONG_AGO, retired=NOW), NOW + KEY_REST_MS + off) is (off >= 0)
    assert not may_destroy(a_key("1", 0), NOW)


@pytest.mark.rule("RB-62")
def test_sealed_bytes_name_their_key_wherever_they_lie() -> None:
    """As the sealer writes them; in any attribute, list or map."""
    ring = a_ring()
    sealed = Sealer(ring).seal(b"token", Binding(USE, "t", "o", "c", 1, 1), NOW)
    kid, _ = ring.current(USE, NOW)

    assert list(kids_in(sealed)) == [kid]
    assert list(kids_in({"a": [{"b": {"c": [sealed, "text", 7, None, frozenset({"x"})]}}], "d": sealed})) == [kid, kid]
    assert list(kids_in({"n": 1, "s": "text", "e": b"", "short": b"\x01\x01"})) == []


@pytest.mark.rule("RB-62")
def test_a_format_of_another_release_is_not_half_understood() -> None:
    """Nobody may say that nothing names a key."""
    with pytest.raises(UnknownSealError):
        list(kids_in({"use": b"\x02\x03use"}))


# --- the look over the whole table -----------------------------------------------------------------------------------


def test_an_inspection_begins_once_a_week() -> None:
    """The first at once; none while one is under way."""
    assert is_due(None, NOW)
    assert not is_due(Inspection(NOW), NOW + 9 * INSPECTION_MS)
    assert not is_due(Inspection(NOW, finished=NOW + 5), NOW + INSPECTION_MS - 1)
    assert is_due(Inspection(NOW, finished=NOW + 5), NOW + INSPECTION_MS)


def test_a_walk_goes_round_twice_where_a_key_may_go() -> None:
    """Page by page; once where nothing is to be destroyed, or something names it."""
    plain = Inspection(NOW)
    asked = replace(plain, candidates=frozenset({"use#1"}))

    assert turned(plain, {"at": 1}, NOW) == replace(plain, after={"at": 1})
    assert turned(replace(plain, after={"at": 1}), None, NOW + 1) == replace(plain, finished=NOW + 1)
    again = turned(asked, None, NOW + 1)
    assert again == replace(asked, round=2)
    assert turned(again, None, NOW + 2) == replace(again, finished=NOW + 2)
    assert turned(replace(asked, names=frozenset({"1"})), None, NOW + 1).finished == NOW + 1
    assert turned(replace(asked, unknown_seals=1), None, NOW + 1).finished == NOW + 1


@pytest.mark.rule("RB-62")
def test_what_is_named_by_anything_is_not_free() -> None:
    """By its kid, whatever the purpose: the first keys of all purposes share one."""
    asked = Inspection(NOW, candidates=frozenset({"use#1", "revoke#1", "use#use-2"}))

    assert asked.free == {"use#1", "revoke#1", "use#use-2"}
    assert replace(asked, names=frozenset({"1"})).free == {"use#use-2"}
    assert replace(asked, unknown_seals=1).free == frozenset()


def test_a_gauge_does_not_fall_because_a_new_walk_begins() -> None:
    """Until the new one is at its end."""
    before = Inspection(LONG_AGO, wrong_accounts=2, finished=LONG_AGO, v=7)

    new = begun(before, ["use#1"], NOW)

    assert (new.wrong, new.v, new.candidates, new.started) == (2, 7, {"use#1"}, NOW)
    assert replace(new, wrong_accounts=3).wrong == 3
    assert replace(new, finished=NOW).wrong == 0
    assert begun(None, [], NOW) == Inspection(NOW)
