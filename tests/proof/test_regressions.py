"""
Runs of T-3 that failed once, kept as they were found and made short: each held to the model and judged, like every run.

The last words of a docstring say what was wrong.
"""

from typing import Final

import pytest

from quitclaim.domain.revocations import Reach
from tests.proof.custody import REFS, Crash, Custody, Faulty, Setting
from tests.proof.ledger import Fault, Kind, Refreshing
from tests.proof.reference import MINUTE
from tests.proof.table import TableFault

OWNER_CONFIRMS: Final = Setting(Kind(), "owner")
NOBODY_CONFIRMS: Final = Setting(Kind(), "none")
HOUR: Final = 60 * MINUTE


def begun(
    setting: Setting, connected: int = 0, accounts: tuple[str, str, str] = ("alice", "alice", "alice")
) -> Custody:
    """A machine whose first connections are ready."""
    machine = Custody()
    machine.set_up(setting, connected, accounts)
    return machine


def came_back(machine: Custody, who: int, **how: object) -> object:
    """Start, link and consent, and then the callback as *how* says; its answer."""
    machine.start(who, False, None, False, None)
    machine.visit(0, "alice", None)
    machine.callback(**{"which": 0, "how": "genuine", "slow": 0, "mishap": None} | how)
    return machine.world_answer


# --- connecting ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-30", "RB-49")
def test_a_repeated_callback_shows_its_outcome_while_that_stands() -> None:
    """Ready, once more; after a disconnect the link is superseded. It said "ready" of a connection that was stopped."""
    machine = begun(OWNER_CONFIRMS, connected=1)

    machine.callback(0, "genuine", 0, None)
    assert machine.world_answer == ("answer", "ready")
    machine.disconnect(0, 0, None, None)
    machine.callback(0, "genuine", 0, None)

    assert machine.world_answer == ("refused", "OAUTH_STATE_SUPERSEDED")
    machine.teardown()


@pytest.mark.rule("S-21", "RB-54")
@pytest.mark.parametrize("reach", [Reach.AUTHORIZATION, Reach.ACCOUNT])
def test_no_code_is_shown_before_it_is_known_whose_grant_it_is(reach: Reach) -> None:
    """
    The worker dies between hold and identity, the browser reloads, the owner confirms: the grant counts at its account.
    It was installed at no account, and the end of another connection's access took it along.
    """
    machine = begun(Setting(Kind(Refreshing.STATIC, reach), "owner", REFS[:3]))
    machine.connect(2, "alice")
    came_back(machine, 0, mishap=Crash(8))

    machine.callback(0, "genuine", 0, None)
    machine.confirm(0, "newest", False, None)
    machine.disconnect(2, 0, None, None)
    machine.minutes_pass(2)

    assert machine.reference.state.grants[REFS[0]].account == "alice"
    assert [token.name for token in machine.world.ledger.alive()] == ["rt-1", "rt-2"]
    machine.teardown()


@pytest.mark.rule("I-10")
@pytest.mark.parametrize("how", ["genuine", "denied", "no code"])
def test_a_deleted_owner_answers_so_to_every_callback(how: str) -> None:
    """Whatever the browser brings. It was shown the code of a held grant, or failed the connection once more."""
    machine = begun(OWNER_CONFIRMS)
    came_back(machine, 0)
    machine.start(0, True, None, False, None)
    machine.visit(0, "alice", None)
    machine.delete_owner(0, True, None)

    machine.callback(0, how, 0, None)

    assert machine.world_answer == ("refused", "OWNER_DELETED")
    machine.teardown()


@pytest.mark.rule("M-33")
def test_a_code_where_nothing_waits_for_one_is_a_conflict() -> None:
    """Neither right nor wrong, and not counted. It was called wrong."""
    machine = begun(OWNER_CONFIRMS, connected=1)

    machine.confirm(0, "made up", False, None)

    assert machine.world_answer == ("refused", "CONNECTION_STATE_CONFLICT")
    machine.teardown()


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I-1", "D-3")
@pytest.mark.parametrize("reach", [Reach.TOKEN, Reach.FAMILY, Reach.ACCOUNT])
def test_a_half_read_answer_that_gives_the_live_token_again_queues_nothing(reach: Reach) -> None:
    """It is the live grant's. It was queued for revocation, which would have ended the live grant."""
    machine = begun(Setting(Kind(Refreshing.STATIC, reach), "none"), connected=1)
    machine.time_passes(HOUR)
    machine.provider_turns("refresh", [Fault.MALFORMED])

    machine.token(0, 0, 0, None)
    machine.minutes_pass(3)
    machine.token(0, 0, 0, None)

    assert machine.world.ledger.tokens["rt-1"].alive
    assert machine.world_answer[1][1] == "at-rt-1"
    machine.teardown()


@pytest.mark.rule("D-9", "U-20")
def test_a_notice_of_a_replaced_token_can_be_acknowledged() -> None:
    """
    A rotated token that lives on is queued beside the grant; where the provider never takes it back, its owner is asked
    and can answer. It blocked the owner, and there was nothing to acknowledge.
    """
    machine = begun(Setting(Kind(Refreshing.GRACE, Reach.TOKEN), "none"), connected=1)
    machine.time_passes(HOUR)
    machine.token(0, 0, 0, None)
    machine.time_passes(25 * HOUR)
    machine.minutes_pass(1)

    machine.acknowledge(0, None)

    assert machine.world_answer == ("answer", 1)
    machine.teardown()


# --- stops and revocations -------------------------------------------------------------------------------------------


@pytest.mark.rule("U-12")
def test_a_repeated_disconnect_gets_its_first_answer() -> None:
    """Whatever became of the connection since. It was shown the connection as it was by then."""
    machine = begun(NOBODY_CONFIRMS, connected=1)
    machine.disconnect(0, 0, "k", None)
    machine.minutes_pass(2)
    machine.connect(0, "alice")

    machine.disconnect(0, 2, "k", None)

    assert machine.world_answer == ("answer", ("revoking", 2))
    machine.teardown()


@pytest.mark.rule("U-20", "F-35")
def test_a_notice_names_the_latest_of_its_deadlines() -> None:
    """Until when at the latest: two tokens of one connection are owed, queued an hour apart. It named either."""
    machine = begun(Setting(Kind(Refreshing.GRACE, Reach.TOKEN), "none"), connected=1)
    machine.time_passes(HOUR)
    machine.token(0, 0, 0, None)
    machine.time_passes(HOUR)

    machine.disconnect(0, 0, None, None)  # what is shown after it is held to the model

    machine.teardown()


@pytest.mark.rule("D-13", "D-5")
def test_a_provider_that_times_out_for_some_minutes_makes_no_poison() -> None:
    """
    At reach account a try of unknown outcome keeps its claim, and counts: after ten of them the provider answers, and
    the revocation is confirmed. After six it was quarantined, and never sent again.
    """
    machine = begun(Setting(Kind(Refreshing.STATIC, Reach.ACCOUNT), "none"), connected=1)
    machine.disconnect(0, 0, None, None)
    machine.provider_turns("revoke", [Fault.NOT_ACTED] * 10)

    for _ in range(12):
        machine.time_passes(15 * MINUTE)
        machine.minutes_pass(1)

    assert machine.reference.state.connections[REFS[0]].closed_as == "confirmed"
    machine.teardown()


@pytest.mark.rule("C-25", "I-15")
def test_a_stop_closes_beside_accounts_that_were_chosen_before() -> None:
    """
    Two of its tokens are parked, beside two accounts: each is looked at. It was held to the latest account alone, and
    never closed.
    """
    machine = begun(
        Setting(Kind(Refreshing.ROTATING, Reach.AUTHORIZATION), "none", REFS[:3]), 3, ("alice", "alice", "bob")
    )
    machine.disconnect(1, 0, None, None)
    machine.minutes_pass(2)
    machine.connect(1, "bob")  # not the account that it is pinned to: released, and parked beside the one who lives
    machine.disconnect(1, 0, None, None)

    machine.minutes_pass(2)

    assert machine.reference.state.connections[REFS[1]].closed_as == "released"
    machine.teardown()


@pytest.mark.rule("C-25")
@pytest.mark.parametrize("number", range(4))
def test_the_last_token_that_is_settled_closes_the_stop(number: int) -> None:
    """
    Also one that the barrier alone names; which of two is finished first is a matter of their ids. Finished last, it
    left the stop to its ladder.
    """
    machine = begun(Setting(Kind(Refreshing.GRACE, Reach.TOKEN), "none"), connected=1)
    machine.time_passes(HOUR)
    for _ in range(number):
        machine.acknowledge(0, None)
    machine.token(0, 0, 0, None)
    machine.disconnect(0, 0, None, None)

    machine.minutes_pass(1)

    assert machine.reference.state.connections[REFS[0]].closed_as == "confirmed"
    machine.teardown()


@pytest.mark.rule("D-2")
@pytest.mark.parametrize("fault", [None, TableFault.LOST, TableFault.APPLIED])
def test_a_grant_that_comes_after_its_window_is_revoked(fault: TableFault | None) -> None:
    """Never thrown away, whatever the table answers; its connection fails."""
    machine = begun(NOBODY_CONFIRMS)
    came_back(machine, 0, slow=65_000, mishap=None if fault is None else Faulty(6, fault))

    machine.minutes_pass(3)

    assert machine.world.ledger.alive() == []
    machine.teardown()


@pytest.mark.rule("I-13", "F-32")
def test_what_only_the_owner_says_is_gone_is_not_called_revoked() -> None:
    """
    A stop after an attempt of unknown outcome, which the owner acknowledges: attested. It was closed as if there had
    been nothing, or as confirmed where an earlier token was.
    """
    machine = begun(NOBODY_CONFIRMS)
    machine.provider_turns("exchange", [Fault.LOST])
    came_back(machine, 0)
    machine.disconnect(0, 0, None, None)
    machine.minutes_pass(2)

    machine.acknowledge(0, None)
    machine.minutes_pass(1)

    assert machine.reference.state.connections[REFS[0]].closed_as == "attested"
    machine.teardown()
