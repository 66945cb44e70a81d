"""Keys, keep-alive, compaction and the look over the whole table, on the real store and the real vault."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quitclaim.domain.errors import KeyUnavailableError, QuitclaimError
from quitclaim.domain.limits import (
    COMPACT_MS,
    DEADLINE_MS,
    EXPIRING_MS,
    GUARD_MS,
    INSPECTION_MS,
    KEY_LEAD_MS,
    KEY_LIFE_MS,
    KEY_REST_MS,
    MINUTE,
    SECOND,
)
from quitclaim.flows.deletion import delete_owner
from quitclaim.flows.maintain import Maintained, Maintaining, maintain
from quitclaim.ports import Deadline, Key, Update, present
from quitclaim.store.keys import account_key, exchange_key, grant_key, intent_key, ring_partition
from quitclaim.store.maintain import MaintainStore
from quitclaim.store.ring import RingTable
from quitclaim.store.tokens import TokenStore
from tests.fakes.clock import Budget
from tests.fakes.provider import answers, lost_answer, not_connected
from tests.fakes.tables import WorkerKilledError, killed_after, killed_before
from tests.flows.world import GOOGLE, OTHER, OWNER, World

DAY = 24 * 60 * MINUTE
IDLE = 100 * DAY
MAINTAIN_MS = 290_000


class Upkeep:
    """`maintain` in a world: its ring is the one that the vaults read."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults: list[tuple[str, Exception]] = []
        self.ring = RingTable(world.plain_table, world.clock, world.ids)
        self.store = MaintainStore(world.table, world.clock, world.ids)

    def wrapped_data_key(self, purpose: str) -> bytes:
        """`KeyMaker`: what KMS gives who may not see it."""
        return self.world.kms.generate_data_key(purpose)[1]

    def run(self, budget_ms: int = MAINTAIN_MS, deadline: Deadline | None = None) -> Maintained:
        """One scheduled run."""
        world = self.world
        return maintain(
            deadline or Budget(budget_ms),
            Maintaining(
                reads=world.reads,
                store=self.store,
                tokens=TokenStore(world.table, world.clock, world.ids),
                ring=self.ring,
                keys=self,
                whole=world.plain_table,
                replay=world.replay,
                clock=world.clock,
                on_fault=lambda kind, fault: self.faults.append((kind, fault)),
            ),
        )

    def days_pass(self, days: float) -> None:
        """Time, and one run at its end."""
        self.world.clock.move(ms=int(days * DAY))
        self.run()

    def kids(self, purpose: str) -> list[tuple[str, bool]]:
        """The purpose's keys, oldest first, and whether each still seals or will."""
        own = sorted(self.ring.read(purpose), key=lambda item: item.active_from)
        return [(item.kid, item.retired is None) for item in own]


class Running:
    """`ports.Deadline` that is over once it was asked *out* times."""

    def __init__(self, out: int) -> None:
        self._left = out

    def remaining_ms(self) -> int:
        self._left -= 1
        return MAINTAIN_MS if self._left >= 0 else 1_000


@pytest.fixture
def upkeep(world: World) -> Upkeep:
    return Upkeep(world)


def ended(world: World) -> None:
    """The connection has been disconnected, revoked and closed."""
    world.disconnect()
    world.minutes_pass(3)
    assert world.connection().state == "revoked"


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("I-16", "C-42")
def test_a_key_that_cannot_be_read_is_told_of_and_keeps_nothing_from_being_done(world: World, upkeep: Upkeep) -> None:
    """The other purposes' keys are turned, and what is over is looked at."""
    world.connect()
    world.plain_table.write(Update(Key(ring_partition(), "use#1"), (present("PK"),), remove=("active_from",)))

    upkeep.days_pass(KEY_LIFE_MS / DAY)

    assert {kind for kind, _ in upkeep.faults} == {"key"}
    assert [kid for kid, _ in upkeep.kids("revoke")] == ["1", "revoke-2"]
    assert upkeep.store.inspection() is not None


def test_a_key_that_has_served_its_time_gets_a_successor(world: World, upkeep: Upkeep) -> None:
    """Not before; ten minutes ahead of its use; and the old one is retired once the new one seals."""
    world.connect()
    upkeep.days_pass(KEY_LIFE_MS / DAY - 1)
    assert upkeep.kids("use") == [("1", True)]

    upkeep.days_pass(1)
    assert upkeep.kids("use") == [("1", True), ("use-2", True)]
    assert upkeep.ring.read("use")[1].active_from == world.clock.now() + KEY_LEAD_MS

    upkeep.days_pass((KEY_LEAD_MS + GUARD_MS) / DAY)
    assert upkeep.kids("use") == [("1", False), ("use-2", True)]
    assert upkeep.faults == []


def test_the_index_key_is_never_replaced(world: World, upkeep: Upkeep) -> None:
    """Its digests are parts of table keys: the same account must be found for ever."""
    world.connect()
    before = world.vault("app_api").account_digest("acme", "alice")

    for _ in range(8):
        upkeep.days_pass(KEY_LIFE_MS / DAY)

    assert upkeep.kids("index") == [("1", True)]
    assert world.vault("connect").account_digest("acme", "alice") == before


@pytest.mark.rule("F-9")
def test_what_an_older_key_sealed_still_opens_and_is_sealed_anew_when_written(world: World, upkeep: Upkeep) -> None:
    """A refresh seals with the current key; until then the retired one opens."""
    world.connect()
    upkeep.days_pass(KEY_LIFE_MS / DAY)
    upkeep.days_pass(1)
    assert b"use-2" not in world.reads.grant(GOOGLE, "main").use

    world.token()

    grant = world.reads.grant(GOOGLE, "main")
    assert grant.use[2 : 2 + grant.use[1]] == b"use-2"
    assert grant.revoke[2 : 2 + grant.revoke[1]] == b"revoke-2"
    world.clock.move(minutes=70)
    world.token()
    ended(world)
    assert world.server.live() == []


@pytest.mark.rule("RB-62")
def test_a_grant_that_is_never_written_again_keeps_its_key(new_world: Callable[..., World]) -> None:
    """Its token never expires, so nothing seals it anew: for years its keys stay, and it can be revoked in the end."""
    world = new_world(token__default_lifetime_s="never")
    world.server.lifetime_s = None
    upkeep = Upkeep(world)
    world.connect()

    for _ in range(14):
        upkeep.days_pass(31)

    assert ("1", False) in upkeep.kids("use")
    assert ("1", False) in upkeep.kids("revoke")
    assert world.token().token_version == 1
    ended(world)
    assert world.server.live() == []
    assert world.connection().closed_as == "confirmed"


@pytest.mark.rule("RB-62")
def test_a_key_that_nothing_names_any_more_is_destroyed(world: World, upkeep: Upkeep) -> None:
    """30 days after it was retired, once two rounds over the table found nothing."""
    world.connect()
    ended(world)
    upkeep.days_pass(3)
    upkeep.days_pass(KEY_LIFE_MS / DAY)
    upkeep.days_pass(1)
    assert upkeep.kids("use") == [("1", False), ("use-2", True)]
    upkeep.days_pass(KEY_REST_MS / DAY - 2)
    assert upkeep.kids("use")[0] == ("1", False)

    upkeep.days_pass(INSPECTION_MS / DAY + 2)

    assert "1" not in [kid for kid, _ in upkeep.kids("use")]
    assert "1" not in [kid for kid, _ in upkeep.kids("revoke")]
    assert upkeep.faults == []


@pytest.mark.rule("RB-62")
@pytest.mark.parametrize("attribute", ["use", "revoke", "sealed", "a field of a later release"])
def test_one_sealed_value_anywhere_keeps_the_key(world: World, upkeep: Upkeep, attribute: str) -> None:
    """Whatever it is called, and however deep it lies."""
    world.connect()
    sealed = world.reads.grant(GOOGLE, "main").use
    ended(world)
    value = [{"deep": sealed}] if " " in attribute else sealed
    world.stand_in.plant(grant_key(OTHER, "main"), ty="kept", **{attribute: value})
    for _ in range(12):
        upkeep.days_pass(10)

    assert ("1", False) in upkeep.kids("use")


@pytest.mark.rule("RB-62")
def test_a_seal_that_cannot_be_read_keeps_every_key(world: World, upkeep: Upkeep) -> None:
    """Of a format that a newer release wrote: nobody here can say which key it needs."""
    world.connect()
    ended(world)
    world.stand_in.plant(grant_key(OTHER, "main"), ty="kept", use=b"\x02\x05use-9" + bytes(80))
    for _ in range(12):
        upkeep.days_pass(10)

    assert ("1", False) in upkeep.kids("use")
    assert upkeep.store.inspection().unknown_seals > 0


@pytest.mark.rule("RB-62")
def test_a_token_that_moves_while_the_table_is_walked_is_not_missed(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The stop takes the sealed token from a place that was not looked at yet to one that was: the first round misses it,
    the second does not.
    """
    world = new_world(token__default_lifetime_s="never")
    world.server.lifetime_s = None
    upkeep = Upkeep(world)
    world.connect()
    for _ in range(4):
        upkeep.days_pass(20)
    world.clock.move(ms=20 * DAY)
    plain, rounds = world.plain_table.scan, []

    def scan(*, after: Any = None) -> Any:
        """Without the grant in round one, as if it had been stopped behind the walk's back; then it really is."""
        page = plain(after=after)
        rounds.append(len(page.items))
        if len(rounds) == 1:
            world.disconnect()
            return replace(page, items=tuple(item for item in page.items if item["ty"] not in ("grant", "revocation")))
        return page

    monkeypatch.setattr(world.plain_table, "scan", scan)
    upkeep.run()

    assert len(rounds) == 2
    assert ("1", False) in upkeep.kids("revoke")
    world.minutes_pass(3)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("D-5")
def test_kms_out_delays_a_key_and_nothing_else(world: World, upkeep: Upkeep) -> None:
    """The old key goes on sealing; compaction and the rest go on too."""
    world.connect()
    world.clock.move(ms=KEY_LIFE_MS)
    world.kms.is_out = True

    run = upkeep.run()

    assert upkeep.kids("use") == [("1", True)]
    assert {kind for kind, _ in upkeep.faults} == {"key"}
    assert all(isinstance(fault, KeyUnavailableError) for _, fault in upkeep.faults)
    assert run.done.get("page inspected")
    world.kms.is_out = False
    upkeep.run()
    assert upkeep.kids("use") == [("1", True), ("use-2", True)]


def test_two_runs_at_once_add_one_key(world: World, upkeep: Upkeep) -> None:
    """Keys are counted on, so a single put wins."""
    world.connect()
    world.clock.move(ms=KEY_LIFE_MS)
    made = upkeep.wrapped_data_key

    def meanwhile(purpose: str) -> bytes:
        upkeep.wrapped_data_key = made
        upkeep.run()
        return made(purpose)

    upkeep.wrapped_data_key = meanwhile
    upkeep.run()

    assert upkeep.kids("use") == [("1", True), ("use-2", True)]
    assert upkeep.faults == []


# --- keep-alive ------------------------------------------------------------------------------------------------------


def test_a_grant_that_nobody_uses_is_refreshed_before_its_idle_limit(new_world: Callable[..., World]) -> None:
    """At 80 % of it, again and again; its owner notices nothing."""
    world = new_world(refresh__idle_limit_s=IDLE // SECOND)
    upkeep = Upkeep(world)
    world.connect()
    told = world.events()

    upkeep.days_pass(79)
    assert world.reads.grant(GOOGLE, "main").tv == 1
    upkeep.days_pass(2)
    assert world.reads.grant(GOOGLE, "main").tv == 2
    upkeep.days_pass(79)
    assert world.reads.grant(GOOGLE, "main").tv == 2
    upkeep.days_pass(2)

    assert world.reads.grant(GOOGLE, "main").tv == 3
    assert world.events() == told
    assert world.unaccounted() == []


def test_use_moves_the_limit(new_world: Callable[..., World]) -> None:
    """Every refresh counts, whoever asked for it."""
    world = new_world(refresh__idle_limit_s=IDLE // SECOND)
    upkeep = Upkeep(world)
    world.connect()
    world.clock.move(ms=70 * DAY)
    world.token()

    upkeep.days_pass(30)

    assert world.reads.grant(GOOGLE, "main").tv == 2
    assert world.replay.asked == []


@pytest.mark.parametrize("limit", ["unknown", "none"])
def test_without_a_limit_nobody_is_asked(new_world: Callable[..., World], limit: str) -> None:
    """Unknown means none: a refresh for nothing is a risk of its own."""
    world = new_world(refresh__idle_limit_s=limit)
    upkeep = Upkeep(world)
    world.connect()

    upkeep.days_pass(400)

    assert world.replay.asked == []
    assert world.reads.grant(GOOGLE, "main").next_care is None


@pytest.mark.rule("I-15")
@pytest.mark.parametrize(
    "misbehaviour", [not_connected, answers(503), lost_answer, answers(401, {"error": "invalid_client"})]
)
def test_a_refresh_that_fails_is_asked_for_again(new_world: Callable[..., World], misbehaviour: object) -> None:
    """It stays due: as an open attempt, or for the next quarter of an hour."""
    world = new_world(refresh__idle_limit_s=IDLE // SECOND, refresh__old_token_after_rotation="grace")
    upkeep = Upkeep(world)
    world.connect()
    world.server.next("/token", misbehaviour)

    upkeep.days_pass(81)
    assert world.reads.grant(GOOGLE, "main").tv == 1
    world.minutes_pass(2)
    world.clock.move(minutes=15)
    upkeep.run()

    assert world.reads.grant(GOOGLE, "main").tv == 2
    assert world.connection().state == "ready"


def test_one_that_the_provider_ended_is_lost(new_world: Callable[..., World]) -> None:
    """The verdict is found out early, and the app is told."""
    world = new_world(refresh__idle_limit_s=IDLE // SECOND)
    upkeep = Upkeep(world)
    world.connect()
    world.server.removes("alice")

    upkeep.days_pass(81)

    assert world.connection().state == "needs_reconnect"


def test_a_grant_that_cannot_be_refreshed_leaves_the_list(new_world: Callable[..., World]) -> None:
    """No refresh token came although the provider has them: it is looked at once, and never again."""
    world = new_world(refresh__idle_limit_s=IDLE // SECOND, token__default_lifetime_s="never")
    world.server.with_refresh_token, world.server.lifetime_s = False, None
    upkeep = Upkeep(world)
    world.connect()

    upkeep.days_pass(81)
    upkeep.days_pass(1)

    assert len(world.replay.asked) == 1
    assert world.reads.grant(GOOGLE, "main").keep_alive_at is None
    assert world.connection().state == "ready"


@pytest.mark.rule("RB-03")
def test_the_end_of_a_grant_is_told_once_before_it(new_world: Callable[..., World]) -> None:
    """The provider counts from consent, whatever is refreshed: a week before, the app hears of it, and only once."""
    world = new_world()
    upkeep = Upkeep(world)
    ends = world.clock.now() + 365 * DAY
    world.server.extra = {"refresh_token_expires_in": 365 * DAY // SECOND}
    world.connect()

    def refreshed() -> None:
        world.server.extra = {"refresh_token_expires_in": (ends - world.clock.now()) // SECOND}
        world.token()

    for _ in range(7):
        world.clock.move(ms=50 * DAY)
        refreshed()
        upkeep.run()
    assert world.events("connection.expiring") == []
    world.clock.move(ms=ends - EXPIRING_MS - world.clock.now() + 10 * SECOND)
    world.server.extra = {"refresh_token_expires_in": (ends - world.clock.now()) // SECOND}
    upkeep.run()
    upkeep.run()
    refreshed()
    upkeep.days_pass(1)

    (event,) = [item for item in world.items("event") if item["kind"] == "connection.expiring"]
    assert int(event["body"]["expires_at"]["N"]) == pytest.approx(ends, abs=MINUTE)
    assert world.connection().state == "ready"


def test_an_end_that_a_refresh_moves_is_moved_and_not_told(new_world: Callable[..., World]) -> None:
    """Each token has 60 days of its own: the grant is refreshed before they are over."""
    world = new_world()
    upkeep = Upkeep(world)
    world.server.extra = {"refresh_token_expires_in": 60 * DAY // SECOND}
    world.connect()

    for _ in range(40):
        upkeep.days_pass(5)

    assert world.events("connection.expiring") == []
    assert world.reads.grant(GOOGLE, "main").tv >= 4
    assert world.reads.grant(GOOGLE, "main").refresh_until > world.clock.now()


# --- compaction ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("F-69", "D-12")
def test_what_is_finished_goes_a_day_after_its_deadline(world: World, upkeep: Upkeep) -> None:
    """Revocation, exchange and stop, with every mention of them; connection, barrier and fence stay."""
    world.connect()
    queued = world.clock.now()
    ended(world)
    world.clock.move(to=queued + DEADLINE_MS + COMPACT_MS - MINUTE)
    upkeep.run()
    assert len(world.items("revocation")) == 1

    upkeep.days_pass(0.01)
    upkeep.days_pass(1)

    for kind in ("revocation", "exchange", "intent"):
        assert world.items(kind) == [], kind
    assert [item["state"] for item in world.items("connection")] == ["revoked"]
    assert len(world.items("owner")) == len(world.items("barrier")) == 1
    assert world.notice() == "not_needed"
    assert upkeep.faults == []
    world.start(again=True)


@pytest.mark.rule("F-69", "F-36", "RB-29")
def test_a_notice_stays_until_somebody_acknowledges_it(world: World, upkeep: Upkeep) -> None:
    """For a year; and goes once the owner has spoken."""
    world.connect()
    world.disconnect()
    world.server.next("/revoke", *[answers(500)] * 999)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.minutes_pass(2)
    assert world.notice() == "permission_removal_required"

    for _ in range(12):
        upkeep.days_pass(30)
    assert world.notice() == "permission_removal_required"

    assert world.acknowledge() == 1
    world.minutes_pass(20)
    upkeep.days_pass(1)
    upkeep.days_pass(1)
    assert world.items("revocation") == []
    assert world.notice() == "not_needed"


def test_notices_that_nobody_acknowledges_do_not_use_up_the_time_of_the_others(
    world: World, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay due, in front of all that came later; only what may go is looked at by itself, and it goes."""
    world.connect()
    world.disconnect()
    world.server.next("/revoke", *[answers(500)] * 999)
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.minutes_pass(2)
    assert world.notice() == "permission_removal_required"
    (notice,) = (item for key, item in world.stand_in.everything().items() if key[0].startswith("Q#"))
    for number in range(230):
        rid = f"copy{number}"
        copy = notice | {"PK": {"S": f"Q#{rid}"}, "d2": {"S": f"{notice['d2']['S'].split('#')[0]}#{rid}"}}
        world.stand_in.client.put_item(TableName=world.stand_in.name, Item=copy)
    world.acknowledge()
    world.minutes_pass(20)
    looked_at: list[object] = []
    fence = world.reads.fence
    monkeypatch.setattr(world.reads, "fence", lambda *asked: looked_at.append(asked) or fence(*asked))

    upkeep.days_pass(2)

    assert len(looked_at) == 1
    assert len(world.items("revocation")) == 230
    assert upkeep.faults == []


@pytest.mark.rule("F-69")
def test_what_a_running_stop_lists_stays(world: World, upkeep: Upkeep) -> None:
    """Closed is when everything is done; a purge that hangs keeps the record."""
    world.connect()
    world.disconnect()
    intent = intent_key(GOOGLE, world.connection().generation - 1)
    world.stand_in.alter(intent, put={"comp_open": 1})
    world.minutes_pass(3)
    world.clock.move(ms=DEADLINE_MS + 2 * COMPACT_MS)

    upkeep.run()
    assert [item["state"] for item in world.items("revocation")] == ["confirmed"]

    world.stand_in.alter(intent, put={"comp_open": 0})
    world.minutes_pass(16)
    upkeep.run()
    assert world.items("revocation") == []


@pytest.mark.rule("F-69")
def test_what_an_open_stop_may_still_ask_about_stays(world: World, upkeep: Upkeep) -> None:
    """What became of an exchange of its own generation counts for what the stop says of itself."""
    callback = world.callback()
    world.server.next("/token", lost_answer)
    with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
        world.come_back(callback)
    world.clock.move(minutes=2)
    generation = world.connection().generation
    world.disconnect()
    intent = intent_key(GOOGLE, generation)
    world.stand_in.alter(intent, put={"comp_open": 1})
    world.acknowledge()

    for _ in range(3):
        upkeep.days_pass(8)
    assert [item["outcome"] for item in world.items("exchange")] == ["unconfirmed"]

    world.stand_in.alter(intent, put={"comp_open": 0})
    world.minutes_pass(16)
    for _ in range(3):
        upkeep.days_pass(8)
    assert world.items("exchange") == []


@pytest.mark.rule("F-69", "F-37")
def test_an_exchange_in_clean_up_goes_with_its_revocation(asking_world: World) -> None:
    """The status finds the one by the other: it never sees the exchange alone."""
    world = asking_world
    upkeep = Upkeep(world)
    world.come_back(world.callback())
    world.clock.move(minutes=11)
    world.minutes_pass(3)
    assert world.exchange().outcome == "cleanup"
    assert world.notice() == "confirmed"

    for hours in range(60):
        world.clock.move(minutes=60)
        upkeep.run()
        assert world.notice() in ("confirmed", "not_needed"), hours

    assert world.items("exchange") == world.items("revocation") == []


@pytest.mark.rule("F-69")
@pytest.mark.parametrize("fault", [killed_before, killed_after])
@pytest.mark.parametrize("number", range(5))
def test_a_crash_in_between_leaves_nothing_that_names_what_is_gone(
    asking_world: World, fault: object, number: int
) -> None:
    """The owner is told no wrong thing at any time, and the next runs finish it."""
    world = asking_world
    upkeep = Upkeep(world)
    world.come_back(world.callback())
    world.clock.move(minutes=11)
    world.minutes_pass(3)
    world.clock.move(ms=DEADLINE_MS + COMPACT_MS + MINUTE)
    world.table.faults = [None] * number + [fault]

    try:
        upkeep.run()
    except WorkerKilledError:
        assert world.notice() in ("confirmed", "not_needed")
    world.table.faults = []
    upkeep.days_pass(INSPECTION_MS / DAY)
    upkeep.days_pass(1)

    assert world.items("exchange") == world.items("revocation") == []
    assert world.notice() == "not_needed"


@pytest.mark.rule("F-69")
def test_exchanges_without_a_revocation_are_found_by_the_inspection(world: World, upkeep: Upkeep) -> None:
    """Refused codes leave nothing that is ever due; acknowledged unknown ones go too, others stay."""
    world.server.next("/token", answers(400, {"error": "invalid_grant"}))
    with pytest.raises(Exception, match="PROVIDER_REFUSED"):
        world.come_back(world.callback())
    world.server.next("/token", lost_answer)
    with pytest.raises(Exception, match="EXCHANGE_UNCONFIRMED"):
        world.come_back(world.callback())
    assert len(world.items("exchange")) == 2

    upkeep.days_pass(INSPECTION_MS / DAY)
    assert [item["outcome"] for item in world.items("exchange")] == ["unconfirmed"]
    world.acknowledge()
    upkeep.days_pass(INSPECTION_MS / DAY)
    upkeep.days_pass(INSPECTION_MS / DAY)

    assert world.items("exchange") == []


@pytest.mark.rule("F-69", "I-10")
def test_of_a_deleted_owner_only_the_fence_stays(world: World, upkeep: Upkeep) -> None:
    """Its notices need nobody's word; the fence stays for good, and says deleted."""
    world.connect()
    world.connect(OTHER, account="bob")
    delete_owner(OWNER, world.stopping)
    world.server.next("/revoke", *[answers(500)] * 9_999)
    world.reconcile()
    world.clock.move(ms=DEADLINE_MS + GUARD_MS)
    world.minutes_pass(3)
    assert world.notice() == "permission_removal_required"

    for _ in range(INSPECTION_MS // DAY + 4):
        upkeep.days_pass(1)
        world.minutes_pass(1)

    left = {item["ty"]["S"] for item in world.stand_in.everything().values()} - {"ring", "heartbeat", "inspection"}
    assert left <= {"owner", "event", "ticket", "authorization", "receipt", "account"}
    assert world.reads.owner(OWNER).is_deleted
    assert upkeep.faults == []
    with pytest.raises(QuitclaimError):
        world.start()


@pytest.mark.rule("F-69", "RB-29")
def test_a_pending_or_parked_revocation_never_goes(new_world: Callable[..., World]) -> None:
    """Whatever the time: it holds a grant."""
    world = new_world(revocation__reach="authorization")
    upkeep = Upkeep(world)
    world.connect()
    world.connect(OTHER)
    world.disconnect(OTHER)
    world.minutes_pass(3)
    assert [item["state"] for item in world.items("revocation")] == ["parked"]

    for _ in range(5):
        upkeep.days_pass(30)

    assert [item["state"] for item in world.items("revocation")] == ["parked"]


def test_a_live_connection_is_left_as_it_is(world: World, upkeep: Upkeep) -> None:
    """Its exchange goes, and nothing else; tokens are handed out as before."""
    world.connect()

    for _ in range(3):
        upkeep.days_pass(8)

    assert world.items("exchange") == []
    assert world.token().token_version == 2
    ended(world)
    assert world.server.live() == []


# --- the look over the whole table -----------------------------------------------------------------------------------


def test_the_counts_of_accounts_are_checked(new_world: Callable[..., World]) -> None:
    """Right ones are not reported; a wrong one is, until the next inspection finds it mended."""
    world = new_world(revocation__reach="authorization")
    upkeep = Upkeep(world)
    world.connect()
    world.connect(OTHER)
    assert upkeep.run().wrong_accounts == 0
    account = account_key("acme", world.connection().account)

    world.stand_in.alter(account, put={"live": 3})
    world.clock.move(ms=INSPECTION_MS)
    assert upkeep.run().wrong_accounts == 1
    assert upkeep.run().wrong_accounts == 1
    world.stand_in.alter(account, put={"live": 2})
    world.clock.move(ms=INSPECTION_MS)
    upkeep.run()

    assert upkeep.run().wrong_accounts == 0


def test_a_walk_is_taken_up_where_it_was_left(world: World, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page over many runs; one walk a week."""
    world.connect()
    plain = world.plain_table.scan
    starts: list[Any] = []

    def one_item(*, after: Any = None) -> Any:
        page = plain()
        at = 0 if after is None else after["at"] + 1
        starts.append(at)
        rest = {"at": at} if at + 1 < len(page.items) else None
        return replace(page, items=page.items[at : at + 1], after=rest)

    monkeypatch.setattr(world.plain_table, "scan", one_item)
    upkeep.run(deadline=Running(out=6))
    walked = len(starts)
    assert 0 < walked < len(world.stand_in.everything())
    assert upkeep.store.inspection().finished is None

    upkeep.run()
    assert starts == list(range(len(starts)))
    assert upkeep.store.inspection().finished == world.clock.now()
    walked = len(starts)
    upkeep.run()
    assert len(starts) == walked


def test_of_two_runs_that_walk_one_gives_up(world: World, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place in the walk is held to what was read."""
    world.connect()
    plain = world.plain_table.scan
    inner: list[Maintained] = []

    def scan(*, after: Any = None) -> Any:
        if not inner:
            inner.append(Maintained())
            inner[0] = upkeep.run()
        return plain(after=after)

    monkeypatch.setattr(world.plain_table, "scan", scan)
    outer = upkeep.run()

    assert (inner[0].done.get("page inspected"), outer.done.get("page inspected")) == (1, None)


@pytest.mark.rule("I-16", "C-42")
def test_one_poisoned_item_does_not_stop_the_others(world: World, upkeep: Upkeep) -> None:
    """It is counted, and the rest is done."""
    world.connect()
    ended(world)
    world.stand_in.plant(exchange_key(OTHER, "x"), ty="exchange", outcome="no such outcome")

    upkeep.days_pass(INSPECTION_MS / DAY)

    assert {kind for kind, _ in upkeep.faults} <= {"inspection", "compact"}
    assert upkeep.store.inspection() is not None


def test_a_run_without_time_does_nothing_by_halves(world: World, upkeep: Upkeep) -> None:
    """What does not fit is due the next time."""
    world.connect()
    ended(world)
    world.clock.move(ms=DEADLINE_MS + COMPACT_MS + MINUTE)

    run = upkeep.run(budget_ms=5 * SECOND)

    assert run.done == {}
    assert upkeep.run().done["revocation compacted"] == 1
