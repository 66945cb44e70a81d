"""The sweep: what it sends, when again, when not at all, and what the owner is told in the end."""

from collections.abc import Callable
from typing import Any

import pytest

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import CLAIM_LEASE_MS, DEADLINE_MS, GUARD_MS, MINUTE, POISON_CLAIMS, SECOND
from quitclaim.flows.revocations import LAST_CLAIM_MS
from quitclaim.store.keys import revocation_key
from tests.fakes.provider import (
    Misbehaviour,
    after,
    answers,
    killed,
    lost_answer,
    lost_request,
    not_connected,
)
from tests.fakes.tables import WorkerKilledError, applied_then_ambiguous, killed_after, killed_before
from tests.flows.world import OTHER, OWNER, World

type Worlds = Callable[..., World]
ELSEWHERE = ConnectionRef("another-app", "eve", "calendar")
WIDE = {"revocation__reach": "authorization"}


def stopped(world: World) -> str:
    """A connection was disconnected: the id of its revocation."""
    world.connect()
    world.disconnect()
    return str(the_revocation(world)["PK"]).removeprefix("Q#")


def the_revocation(world: World) -> dict[str, Any]:
    """The only one there is."""
    (found,) = world.items("revocation")
    return found


# --- confirmed -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-52", "F-4", "M-53")
@pytest.mark.parametrize("reach", ["token", "family", "authorization", "account"])
def test_a_due_token_is_revoked(new_world: Worlds, reach: str) -> None:
    """One call, one confirmation; the material is gone, and so is the token."""
    world = new_world(revocation__reach=reach)
    stopped(world)

    swept = world.sweep()

    assert (swept.claimed, swept.confirmed, swept.deferred) == (1, 1, 0)
    assert the_revocation(world)["state"] == "confirmed"
    assert "material" not in the_revocation(world)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("F-52", "U-8", "D-34", "RB-25", "RB-27", "M-55")
@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (answers(200), "confirmed"),
        (answers(400, {"error": "invalid_token"}), "confirmed"),
        (answers(202), "pending"),
        (answers(200, {"error": "nope"}), "pending"),
        (answers(400, {"error": "unsupported_token_type"}), "pending"),
        (answers(401, {"error": "invalid_client"}), "pending"),
        (answers(429, retry_after="900"), "pending"),
        (answers(503), "pending"),
        (answers(302), "pending"),
        (not_connected, "pending"),
        (lost_answer, "pending"),
    ],
)
def test_only_the_provider_s_own_success_confirms(world: World, answer: Misbehaviour, state: str) -> None:
    """Already gone counts as revoked; nothing else does."""
    stopped(world)
    world.server.next("/revoke", answer)

    world.sweep()

    assert the_revocation(world)["state"] == state
    assert ("material" in the_revocation(world)) == (state == "pending")


def test_nothing_due_costs_no_call(world: World) -> None:
    """A sweep without work asks the shards of each client and no provider."""
    world.connect()
    asked = list(world.server.asked)

    with world.table.metered() as spent:
        world.sweep()

    assert set(spent.reads) == {"index"}
    assert (spent.writes, world.server.asked) == ([], asked)


@pytest.mark.rule("F-47", "F-55")
def test_a_sweep_takes_everything_that_is_due(world: World) -> None:
    """Every owner's revocation in one run, each once."""
    refs = [ConnectionRef("acme-app", f"owner-{number}", "google") for number in range(6)]
    for ref in refs:
        world.connect(ref, account=ref.owner)
        world.disconnect(ref)

    swept = world.sweep()

    assert (swept.claimed, swept.confirmed) == (6, 6)
    assert world.server.live("refresh_token") == []
    assert world.server.asked.count("/revoke") == 6


def test_a_kick_reads_by_key(world: World) -> None:
    """What was just stopped is revoked before any index shows it; ids that are not there are left out."""
    rid = stopped(world)

    with world.table.metered() as spent:
        swept = world.revoke(rid, "never-queued")

    assert (swept.confirmed, "index" in spent.reads) == (1, False)


@pytest.mark.rule("F-46", "F-54")
def test_a_run_without_time_claims_nothing(world: World) -> None:
    """A claim whose call would not fit is left to the next run."""
    rid = stopped(world)

    assert world.sweep(budget_ms=LAST_CLAIM_MS).claimed == 0
    assert world.revoke(rid, budget_ms=LAST_CLAIM_MS).claimed == 0

    assert the_revocation(world)["claims"] == "0"


# --- again, and when -------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-7", "F-52", "D-25", "D-16", "M-55")
def test_a_provider_that_is_out_is_asked_again_by_the_ladder(world: World) -> None:
    """1, 2, 4, 8, 15, 15 … minutes; each try is counted, and the index shows the next."""
    stopped(world)
    world.server.next("/revoke", *[answers(503)] * 7)
    tried = []

    for minute in range(61):
        if world.sweep().claimed:
            tried.append(minute)
        world.clock.move(minutes=1)

    assert tried == [0, 1, 3, 7, 15, 30, 45, 60]
    assert the_revocation(world)["state"] == "confirmed"


def test_a_provider_s_wish_counts_where_it_is_longer(world: World) -> None:
    """Retry-After 900 s instead of the first minute."""
    stopped(world)
    world.server.next("/revoke", answers(429, retry_after="900"))

    world.sweep()

    assert int(the_revocation(world)["next"]) == world.clock.now() + 900 * SECOND


@pytest.mark.rule("D-13", "RB-20")
def test_the_clients_secret_is_ours_to_mend(world: World) -> None:
    """No attempt is counted, the material stays, and it is tried again in a minute."""
    stopped(world)
    secret, world.clients.secret = world.clients.secret, None

    world.sweep()

    assert (the_revocation(world)["attempts"], the_revocation(world)["state"]) == ("0", "pending")
    assert int(the_revocation(world)["next"]) == world.clock.now() + MINUTE
    world.clients.secret = secret
    world.clock.move(minutes=1)
    assert world.sweep().confirmed == 1


@pytest.mark.rule("RB-29", "D-13")
def test_a_client_that_was_taken_out_of_the_configuration_keeps_its_revocations(world: World) -> None:
    """They wait for it until their deadline."""
    rid = stopped(world)
    settings = world.clients.settings.pop("acme")

    world.revoke(rid)

    assert the_revocation(world)["state"] == "pending"
    world.clients.settings["acme"] = settings
    world.clock.move(minutes=1)
    assert world.sweep().confirmed == 1


@pytest.mark.rule("D-5", "D-13")
def test_a_key_that_cannot_be_had_is_waited_for(world: World) -> None:
    """An outage of KMS makes no quarantine and counts no attempt (D-5)."""
    stopped(world)
    world.kms.is_out = True

    for _ in range(POISON_CLAIMS + 3):
        world.sweep()
        world.clock.move(minutes=1)
    assert (the_revocation(world)["attempts"], "quarantined" in the_revocation(world)) == ("0", False)

    world.kms.is_out = False
    assert world.sweep().confirmed == 1


# --- quarantine and poison -------------------------------------------------------------------------------------------


def broken_seal(world: World, rid: str) -> None:
    """The material's last byte is another."""
    (material,) = the_revocation(world)["material"]
    stored = material["M"]
    sealed = stored["sealed"]["B"]
    world.stand_in.alter(
        revocation_key(rid),
        put={
            "material": [
                {
                    "sealed": sealed[:-1] + bytes([sealed[-1] ^ 1]),
                    "kind": stored["kind"]["S"],
                    "pair": "main",
                    "tv": int(stored["tv"]["N"]),
                }
            ]
        },
    )


@pytest.mark.rule("D-5", "F-50")
def test_what_does_not_open_is_quarantined_and_ends_unreadable(world: World) -> None:
    """Kept until the deadline, in case a key or release mends it; then a notice of its own kind (D-5)."""
    rid = stopped(world)
    broken_seal(world, rid)

    assert world.sweep().quarantined == 1

    assert (the_revocation(world)["state"], "material" in the_revocation(world)) == ("pending", True)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.sweep()
    world.reconcile()
    assert (the_revocation(world)["state"], world.notice()) == ("unreadable", "permission_removal_required")


@pytest.mark.rule("I-16", "F-50")
def test_one_that_does_not_open_does_not_keep_the_others_alive(world: World) -> None:
    """Each by itself (I-16)."""
    rid = stopped(world)
    broken_seal(world, rid)
    world.connect(ConnectionRef("acme-app", "bob", "google"), account="bob")
    world.disconnect(ConnectionRef("acme-app", "bob", "google"))

    swept = world.sweep()

    assert (swept.quarantined, swept.confirmed) == (1, 1)


def test_one_that_keeps_killing_its_worker_is_quarantined(world: World) -> None:
    """Claims without a settle: after the sixth it is not sent any more, and an operator sees it."""
    stopped(world)
    world.server.next("/revoke", *[killed] * 10)

    for _ in range(POISON_CLAIMS):
        with pytest.raises(WorkerKilledError):
            world.sweep()
        world.clock.move(ms=CLAIM_LEASE_MS + GUARD_MS)
    swept = world.sweep()

    assert (swept.quarantined, world.server.asked.count("/revoke")) == (1, POISON_CLAIMS)
    assert the_revocation(world)["state"] == "pending"


# --- the deadline ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-48", "U-17", "I-8")
@pytest.mark.parametrize(("after_ms", "state"), [(GUARD_MS - 1, "pending"), (GUARD_MS, "expired")])
def test_a_revocation_that_is_not_confirmed_in_time_expires(world: World, after_ms: int, state: str) -> None:
    """23 h 59 min and a guard: the material is erased, the owner is told, the new grant waits for the word."""
    stopped(world)
    world.server.next("/revoke", *[answers(503)] * 3)
    world.sweep()
    world.clock.move(to=int(the_revocation(world)["deadline"]) + after_ms)

    world.sweep()

    assert the_revocation(world)["state"] == state
    assert ("material" in the_revocation(world)) == (state == "pending")


@pytest.mark.rule("F-32", "F-34", "U-20", "D-9")
def test_an_expired_revocation_is_the_owner_s_to_end(world: World) -> None:
    """Notice, event, receipt, blocker; after the acknowledgement a new grant may come."""
    stopped(world)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.sweep()
    world.reconcile()

    (notice,) = world.status().notices
    assert (notice.level.label, notice.reason) == ("permission_removal_required", "expired")
    assert world.status().blockers["acme"][0].level == "permission_removal_required"
    assert world.events("removal.required") == ["removal.required"]
    assert [each["outcome"] for each in world.reads.receipts(OWNER)] == ["expired"]

    assert world.acknowledge() == 1

    assert world.notice() == "acknowledged"
    assert world.status().blockers == {}
    world.minutes_pass(20)
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "attested")
    assert world.connect(again=True).state == "ready"


@pytest.mark.rule("F-48")
def test_a_leased_revocation_expires_as_well(world: World) -> None:
    """A worker that died in its last minute holds nothing up."""
    stopped(world)
    world.clock.move(ms=DEADLINE_MS - 10 * SECOND)
    world.server.next("/revoke", killed)
    with pytest.raises(WorkerKilledError):
        world.sweep()
    world.clock.move(ms=10 * SECOND + GUARD_MS)

    world.sweep()

    assert the_revocation(world)["state"] == "expired"


@pytest.mark.rule("F-51", "D-13")
def test_no_call_is_sent_that_does_not_fit_before_the_deadline(world: World) -> None:
    """A lease ends at the deadline; with less than the shortest call left it is given back, and then expires."""
    stopped(world)
    world.clock.move(ms=DEADLINE_MS - 2 * SECOND)

    assert world.sweep().given_back == 1
    assert world.sweep().claimed == 0, "nor is it claimed again, which could only end the same way"

    assert "/revoke" not in world.server.asked


# --- crashes and repetitions -----------------------------------------------------------------------------------------


@pytest.mark.rule("D-16", "D-25")
@pytest.mark.parametrize("fault", [killed_before, killed_after], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("number", [0, 1], ids=["claim", "settle"])
def test_a_worker_that_dies_is_followed_by_the_next(world: World, fault: object, number: int) -> None:
    """Whatever write it dies at, the token ends revoked and the receipt is one."""
    stopped(world)
    world.table.faults = [*[None] * number, fault]  # type: ignore[list-item]
    with pytest.raises(WorkerKilledError):
        world.sweep()

    world.minutes_pass(3)

    assert the_revocation(world)["state"] == "confirmed"
    assert len(world.reads.receipts(OWNER)) == 1
    assert world.events("revocation.confirmed") == ["revocation.confirmed"]
    assert world.connection().state == "revoked"


def test_a_settle_whose_answer_was_lost_is_done(world: World) -> None:
    """It was applied: the next run has nothing to send."""
    stopped(world)
    world.table.faults = [None, applied_then_ambiguous]

    swept = world.sweep()
    world.minutes_pass(2)

    assert swept.lost_settles == 1
    assert world.server.asked.count("/revoke") == 1
    assert world.connection().closed_as == "confirmed"


@pytest.mark.rule("F-49")
def test_two_runs_at_once_send_one_call(world: World) -> None:
    """The second comes while the first waits for the provider: the claim is not its own."""
    rid = stopped(world)
    claimed: list[int] = []
    world.server.next("/revoke", after(lambda: claimed.append(replace_calls(world).revoke(rid).claimed)))

    world.sweep()

    assert claimed == [0]
    assert world.server.asked.count("/revoke") == 1


def replace_calls(world: World) -> World:
    """Another worker of the same stack: its calls in flight are its own."""
    other = World.__new__(World)
    other.__dict__.update({name: value for name, value in vars(world).items() if name != "revoking"})
    return other


# --- reach: what lives in it -----------------------------------------------------------------------------------------


@pytest.mark.rule("RB-21", "RB-22", "U-15")
def test_a_wide_revocation_waits_while_another_grant_of_the_account_lives(new_world: Worlds) -> None:
    """Two tenants, one account, one client: the first to leave must not end the other's access (RB-22)."""
    world = new_world(**WIDE)
    world.connect(ELSEWHERE)
    stopped(world)

    swept = world.sweep()
    world.reconcile()

    assert (swept.parked, swept.claimed) == (1, 0)
    assert "/revoke" not in world.server.asked
    assert world.token(ELSEWHERE).access_token.reveal() in world.server.live("access_token")
    assert (world.connection().state, world.connection().closed_as) == ("revoked", "released")
    assert world.events("revocation.released_shared") == ["revocation.released_shared"]
    assert world.events("connection.closed") == ["connection.closed"]
    assert world.notice() == "not_needed"
    assert [each["outcome"] for each in world.reads.receipts(OWNER)] == ["released"]


def test_a_parked_revocation_is_in_nobody_s_way(new_world: Worlds) -> None:
    """Its owner may connect the account again, and then it is not woken."""
    world = new_world(**WIDE)
    world.connect(ELSEWHERE)
    stopped(world)
    world.minutes_pass(2)

    assert world.connect(again=True).state == "ready"
    world.minutes_pass(3)

    assert the_revocation(world)["state"] == "parked"


@pytest.mark.rule("RB-21", "RB-28c")
def test_the_last_to_leave_wakes_what_is_parked(new_world: Worlds) -> None:
    """Fresh deadline, and then both are revoked; each owner has its receipt."""
    world = new_world(**WIDE)
    world.connect(ELSEWHERE)
    stopped(world)
    world.minutes_pass(2)
    world.clock.move(minutes=10_000)

    world.disconnect(ELSEWHERE)
    world.minutes_pass(4)

    assert {each["state"] for each in world.items("revocation")} == {"confirmed"}
    assert world.server.live() == []
    assert world.items("marker") == []
    (account,) = world.items("account")
    assert (account["live"], account["parked"]) == ("0", "0")
    assert [each["outcome"] for each in world.reads.receipts(OWNER)] == ["confirmed", "released"]
    assert [each["outcome"] for each in world.reads.receipts(ELSEWHERE.of_owner)] == ["confirmed"]


def test_a_grant_is_parked_while_a_sibling_of_its_owner_lives(new_world: Worlds) -> None:
    """Two connections of one owner to one account are no different."""
    world = new_world(**WIDE)
    world.connect()
    world.connect(OTHER)
    world.disconnect()

    world.minutes_pass(2)

    assert world.token(OTHER).token_version == 1
    assert world.connection().closed_as == "released"


@pytest.mark.rule("U-15")
def test_reach_family_does_not_care_for_the_account(world: World) -> None:
    """The call ends one consent's tokens: another grant of the account lives on."""
    world.connect(ELSEWHERE)
    stopped(world)

    assert world.sweep().confirmed == 1
    assert world.token(ELSEWHERE).access_token.reveal() in world.server.live("access_token")


def test_a_wide_revocation_of_unknown_outcome_keeps_its_claim(new_world: Worlds) -> None:
    """It may still act: nobody else sends before the lease is over (custody rule 12)."""
    world = new_world(revocation__reach="account")
    rid = stopped(world)
    world.server.next("/revoke", lost_request)
    world.sweep()

    world.clock.move(ms=CLAIM_LEASE_MS + GUARD_MS - 1)
    assert world.revoke(rid).claimed == 0
    assert "lease" in the_revocation(world)

    world.minutes_pass(2)
    assert the_revocation(world)["state"] == "confirmed"


def test_many_unknown_outcomes_are_no_poison(new_world: Worlds) -> None:
    """A provider that hangs for an hour is asked on; its answers count as tries (I-7)."""
    world = new_world(revocation__reach="account")
    stopped(world)
    world.server.next("/revoke", *[lost_request] * (POISON_CLAIMS + 3))

    for _ in range(POISON_CLAIMS + 4):
        world.sweep()
        world.clock.move(minutes=16)

    assert the_revocation(world)["state"] == "confirmed"
    assert "quarantined" not in the_revocation(world)


def test_the_account_of_a_held_grant_is_read_before_it_is_revoked(new_world: Worlds) -> None:
    """The worker died before it asked whose grant it is: the sweep asks with the access token kept for that."""
    world = new_world("owner", **WIDE)
    callback = world.callback()
    world.table.faults = [None, killed_after]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)

    world.minutes_pass(13)

    assert world.server.asked == ["/token", "/me", "/revoke"]
    assert "identity" not in the_revocation(world)
    assert world.server.live() == []


def test_a_wide_revocation_is_never_sent_blind(new_world: Worlds) -> None:
    """Whose grant it is cannot be read: it ends in a notice, not in somebody else's loss (1b.12)."""
    world = new_world("owner", **WIDE)
    callback = world.callback()
    world.table.faults = [None, killed_after]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)
    world.server.next("/me", *[answers(500)] * 2_000)

    world.minutes_pass(13)
    world.clock.move(ms=DEADLINE_MS)
    world.minutes_pass(2)

    assert "/revoke" not in world.server.asked
    assert (the_revocation(world)["state"], world.notice()) == ("expired", "permission_removal_required")


# --- nothing to call -------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-52")
def test_a_held_grant_that_nobody_can_revoke_ends_in_a_notice(new_world: Worlds) -> None:
    """The owner did not confirm, and the provider has no revocation: no call is made, and the owner is told (U-8)."""
    world = new_world("owner", revocation={"shape": "none", "manual_page": "https://acme.example.com/apps"})
    world.come_back(world.callback())

    world.minutes_pass(12)

    assert (the_revocation(world)["state"], world.notice()) == ("unsupported", "permission_removal_required")
    assert "/revoke" not in world.server.asked
    assert world.acknowledge() == 1
    assert world.connect().state == "ready"


# --- acknowledgement -------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-33")
def test_an_acknowledgement_is_repeated_in_peace(world: World) -> None:
    """The second time there is nothing left to acknowledge, and nothing is told again."""
    stopped(world)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.sweep()
    world.reconcile()

    assert [world.acknowledge(), world.acknowledge()] == [1, 0]
    assert world.events("removal.acknowledged") == ["removal.acknowledged"]


@pytest.mark.rule("F-32", "D-9")
def test_a_notice_may_be_acknowledged_before_its_finishing_step(world: World) -> None:
    """The finishing step then asks for no second word."""
    stopped(world)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.sweep()

    assert world.acknowledge() == 1
    world.minutes_pass(20)

    assert world.status().blockers == {}
    assert world.connection().closed_as == "attested"
    assert world.events("removal.required") == []
