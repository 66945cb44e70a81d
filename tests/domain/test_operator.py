"""What is on the operator's list, how it is named, and when it may be tried again."""

import pytest

from quitclaim.domain.attention import Retry, Subject, attention_of, retry_of
from quitclaim.domain.connect import ExchangeOutcome
from quitclaim.domain.errors import InvalidIdError
from quitclaim.domain.limits import GUARD_MS, OVERDUE_MS, POISON_CLAIMS
from quitclaim.domain.revocations import RevocationState, is_poison
from tests.domain.values import AROUND, NOW, REF, a_revocation, an_exchange, an_intent


@pytest.mark.parametrize("acknowledged", [None, NOW])
@pytest.mark.parametrize("quarantined", [None, NOW])
@pytest.mark.parametrize("state", RevocationState)
def test_a_revocation_is_listed_while_somebody_must_look(
    state: RevocationState, quarantined: int | None, acknowledged: int | None
) -> None:
    """Quarantined and pending, or a notice that nobody has acknowledged."""
    item = a_revocation(state, quarantined=quarantined, acknowledged=acknowledged, settled_at=NOW + 5)

    found = attention_of(item, owner_deleted=True)

    is_quarantined = state is RevocationState.PENDING and quarantined is not None
    assert (found is not None) is (is_quarantined or (state.is_notice and acknowledged is None))
    if found is not None:
        assert (found.quarantined, found.owner_deleted, found.state) == (is_quarantined, True, state)
        assert found.since == (NOW if is_quarantined else NOW + 5)
        assert (found.deadline is not None) is is_quarantined
        assert found.level.label == ("pending" if is_quarantined else "permission_removal_required")


@pytest.mark.parametrize("acknowledged", [None, NOW])
@pytest.mark.parametrize("outcome", ExchangeOutcome)
def test_an_exchange_is_listed_while_it_is_unconfirmed(outcome: ExchangeOutcome, acknowledged: int | None) -> None:
    """And not acknowledged."""
    found = attention_of(an_exchange(outcome, acknowledged=acknowledged), owner_deleted=False)

    assert (found is not None) is (outcome is ExchangeOutcome.UNCONFIRMED and acknowledged is None)


@pytest.mark.parametrize("closed", [None, NOW])
def test_a_stop_is_listed_until_it_is_closed(closed: int | None) -> None:
    """When it belongs there is the writer's to say."""
    found = attention_of(an_intent(closed=closed), owner_deleted=True)

    assert (found is None) is (closed is not None)
    if found is not None:
        assert (found.state, found.since, found.level.label, found.owner_deleted) == ("stopping", NOW, "pending", True)


@pytest.mark.parametrize(("at", "overdue"), [(t, t >= 0) for t in AROUND])
def test_a_stop_is_overdue_after_a_day(at: int, overdue: bool) -> None:
    """At the instant itself; never once it is closed."""
    assert an_intent().is_overdue(NOW + OVERDUE_MS + at) is overdue
    assert not an_intent(closed=NOW).is_overdue(NOW + OVERDUE_MS + at)


@pytest.mark.parametrize("text", ["r1", "a.b-c_d", "x:acme:ann:google:x1", "x:~YQ:o:c:id", "s:acme:ann:google:12"])
def test_a_name_is_read_as_it_was_written(text: str) -> None:
    """All kinds."""
    assert str(Subject.read(text)) == text


def test_the_kinds_are_told_apart() -> None:
    """No id of ours holds a colon."""
    assert Subject.read("x1") == Subject(rid="x1")
    assert Subject.read("x:acme:ann:google:x1") == Subject(ref=REF, exchange="x1")
    assert Subject.of_exchange(an_exchange()) == Subject(ref=REF, exchange="x1")
    assert Subject.of_stop(an_intent()) == Subject.read("s:acme:ann:google:3") == Subject(ref=REF, stop=3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "x:",
        "x:a:b:c",
        "y:a:b:c:d",
        "x:a:b:c:d:e",
        "x:a/b:c:d:e",
        "r 1",
        "..",
        "s:a:b:c:x",
        "s:a:b:c:",
        "s:a:b:c:1:2",
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    """Refused before it is looked up."""
    with pytest.raises(InvalidIdError):
        Subject.read(text)


@pytest.mark.parametrize("state", RevocationState)
def test_only_a_pending_one_may_be_tried_again(state: RevocationState) -> None:
    """Pending, before its deadline, and nobody's."""
    assert retry_of(a_revocation(state), NOW) is (Retry.NOW if state is RevocationState.PENDING else Retry.NEVER)


@pytest.mark.rule("U-17")
@pytest.mark.parametrize("off", AROUND)
def test_not_while_a_call_of_it_may_act(off: int) -> None:
    """Its lease and a guard; and not at its deadline any more."""
    leased = a_revocation(lease="w", lease_until=NOW)
    assert retry_of(leased, NOW + GUARD_MS + off) is (Retry.NOW if off >= 0 else Retry.LATER)
    assert retry_of(a_revocation(deadline=NOW), NOW + off) is (Retry.NEVER if off >= 0 else Retry.NOW)


@pytest.mark.rule("D-5")
@pytest.mark.parametrize("excused", [0, 3, 100])
def test_excused_claims_make_no_poison(excused: int) -> None:
    """Only those that nothing explains: the worker was killed by it."""
    item = a_revocation(claims=POISON_CLAIMS + 4 + excused, attempts=4, excused=excused)

    assert not is_poison(item)
    assert is_poison(a_revocation(claims=item.claims + 1, attempts=4, excused=excused))
