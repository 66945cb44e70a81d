"""
Taking a webhook in: what is believed is durable before it is answered, once however often it comes, and nothing else
leaves a trace.
"""

import base64
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from quitclaim.domain.errors import (
    KeyUnavailableError,
    StoreError,
    WebhookAccountNotReadyError,
    WebhooksNotSupportedError,
)
from quitclaim.domain.limits import ACCEPTED_BODY_BYTES, EVENTS_AT_ONCE, FORWARD_MS, STORED_BODY_BYTES
from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import DeliveryState, Incoming, RefusalReason, Refused, Shaken, Taken, WebhookKeys
from quitclaim.flows.webhooks import Received, TakingIn, take_in
from quitclaim.ports import WebhookAddress
from quitclaim.providers.webhooks import ProviderHook, WebhookSpec
from quitclaim.store.commit import TRIES
from quitclaim.store.keys import account_key
from quitclaim.store.webhooks import WebhookStore
from tests.fakes.tables import ambiguous, applied_then_ambiguous, busy
from tests.flows.world import World
from tests.providers.mutations import KINDS, MUTATIONS, Change, each_of, mutated
from tests.providers.signing import SECRET, Signer, a_request, spec_of, with_webhooks


@dataclass
class MemoryHooks:
    """`ports.WebhookAddresses` without Parameter Store."""

    specs: dict[str, tuple[str, WebhookSpec]] = field(default_factory=dict)
    status_page: str | None = "https://app.example.com/deletions"

    def at(self, client: str, endpoint: str | None) -> WebhookAddress:
        if client not in self.specs:
            raise WebhooksNotSupportedError
        provider, spec = self.specs[client]
        keys = WebhookKeys(secrets=(Secret(SECRET),), verify_token=lambda: Secret("chosen"), account="u-1")
        keys = replace(keys, status_page=self.status_page)
        return ProviderHook(provider, client, endpoint, spec, keys, client_id="c")


@dataclass
class RecordingForward:
    """`ports.Forward` that remembers."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
        self.sent.append((client, digest))
        self.waits.append(after_ms)

    def replay(self, client: str, account: str) -> None:
        raise AssertionError("nobody replays here")


class Inbox:
    """What the webhook function works with, on the world's table."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hooks = MemoryHooks({"slack": ("slack", spec_of("slack")), "xero": ("xero", spec_of("xero"))})
        self.forward = RecordingForward()
        self.told: list[tuple[str | None, bool]] = []
        self.vault = world.vault("webhook")
        self.taking_in = TakingIn(
            reads=world.reads,
            store=WebhookStore(world.table, world.clock, world.ids),
            addresses=self.hooks,
            vault=self.vault,
            forward=self.forward,
            clock=world.clock,
            on_event=lambda event, is_new: self.told.append((event.prepared.kind, is_new)),
        )

    def signed(self, client: str, said: Any, **headers: str) -> Incoming:
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        request = replace(a_request(body), headers=headers)
        return Signer(self.hooks.specs[client][1].signature, at=self.world.clock.now()).signed(request)

    def take(self, client: str, said: Any, endpoint: str | None = None, **headers: str) -> Received:
        return take_in(client, endpoint, self.signed(client, said, **headers), self.taking_in)

    def digests(self) -> list[list[str]]:
        """Of the deliveries in the table: client and digest."""
        return [pk.split("#")[1:] for pk, _ in sorted(self.world.stand_in.everything()) if pk.startswith("W#")]

    def stored(self) -> list[Any]:
        """Deliveries in the table."""
        found = [self.world.reads.delivery(*each) for each in self.digests()]
        assert all(found)
        return found


@pytest.fixture
def inbox(world: World) -> Inbox:
    return Inbox(world)


MESSAGE = {"event_id": "Ev1", "event": {"type": "message"}, "team_id": "T1"}


@pytest.mark.rule("M-60", "RB-63")
def test_an_event_is_durable_before_it_is_answered(inbox: Inbox) -> None:
    """One conditional write; sealed, due, and its id in the queue."""
    with inbox.world.table.metered() as spent:
        received = inbox.take("slack", MESSAGE)

    assert received == Received(200, accepted=1)
    assert spent.writes == [1]
    (delivery,) = inbox.stored()
    now = inbox.world.clock.now()
    assert (delivery.state, delivery.received, delivery.next) == (DeliveryState.ACCEPTED, now, now + FORWARD_MS)
    prepared, raw = inbox.vault.open_delivery("slack", delivery.digest, delivery.body)
    assert (prepared.kind, prepared.accounts, json.loads(raw)) == ("message", ("T1",), MESSAGE)
    assert inbox.forward.sent == [("slack", delivery.digest)]
    assert inbox.told == [("message", True)]


@pytest.mark.rule("RB-63", "S-10")
@pytest.mark.parametrize("copies", [2, 5])
def test_a_copy_is_answered_because_the_first_is_there(inbox: Inbox, copies: int) -> None:
    """One record, one message, and every copy is answered alike."""
    answers = [inbox.take("slack", MESSAGE, **{"x-slack-retry-num": str(number)}) for number in range(copies)]

    assert {each.status for each in answers} == {200}
    assert sum(each.accepted for each in answers) == 1
    assert sum(each.duplicates for each in answers) == copies - 1
    assert len(inbox.stored()) == len(inbox.forward.sent) == 1


@pytest.mark.rule("RB-63")
def test_what_could_not_be_stored_is_not_answered_and_not_remembered(inbox: Inbox) -> None:
    """The table does not answer: no 2xx, and the copy that the provider sends then is no duplicate."""
    for fault in (ambiguous, busy):
        inbox.world.table.faults = [fault] * TRIES
        with pytest.raises(StoreError):
            inbox.take("slack", MESSAGE)
    assert inbox.forward.sent == []

    assert inbox.take("slack", MESSAGE) == Received(200, accepted=1)


def test_a_write_whose_answer_was_lost_is_known_again(inbox: Inbox) -> None:
    """It is new, not a duplicate of itself."""
    inbox.world.table.faults = [applied_then_ambiguous]

    assert inbox.take("slack", MESSAGE) == Received(200, accepted=1)
    assert len(inbox.forward.sent) == 1


@pytest.mark.rule("M-63")
def test_equal_ids_of_two_accounts_are_two_events(inbox: Inbox) -> None:
    """And of two clients."""
    inbox.hooks.specs["other"] = inbox.hooks.specs["slack"]

    inbox.take("slack", MESSAGE)
    inbox.take("slack", MESSAGE | {"team_id": "T2"})
    inbox.take("other", MESSAGE)

    assert len(inbox.stored()) == 3


def test_each_event_of_a_batch_has_its_own_record(inbox: Inbox) -> None:
    """And one that is there already keeps none of the others out; a crash in between leaves the rest for the copy."""
    events = [{"tenantId": f"t-{number}", "n": number} for number in range(4)]
    assert inbox.take("xero", {"events": events[:2]}) == Received(200, accepted=2)

    inbox.world.table.faults = [None, None, *[ambiguous] * TRIES]
    with pytest.raises(StoreError):
        inbox.take("xero", {"events": events})
    assert inbox.take("xero", {"events": events}) == Received(200, accepted=2, duplicates=2)

    assert len(inbox.stored()) == 4
    assert inbox.take("xero", {"events": []}) == Received(200)


def test_a_body_that_is_too_large_is_remembered_by_its_digest(inbox: Inbox) -> None:
    """Its copy is a duplicate all the same."""
    large = json.dumps({"event_id": "Ev9", "text": "x" * STORED_BODY_BYTES}).encode()

    assert [inbox.take("slack", large).accepted for _ in range(2)] == [1, 0]

    (delivery,) = inbox.stored()
    prepared, raw = inbox.vault.open_delivery("slack", delivery.digest, delivery.body)
    assert (prepared.truncated, raw, delivery.size) == (True, b"", len(large))


@pytest.mark.rule("M-61")
def test_where_nothing_is_set_up_nothing_is_taken(inbox: Inbox) -> None:
    """The provider of somebody else's stack learns no more than that."""
    with pytest.raises(WebhooksNotSupportedError):
        take_in("nobody", None, a_request(), inbox.taking_in)


@pytest.mark.rule("S-9")
def test_what_is_not_believed_leaves_no_trace(inbox: Inbox) -> None:
    """Nothing is written, nothing is sealed, nothing is sent; the reason is for the metric."""
    before = inbox.world.stand_in.everything()

    received = take_in("slack", None, a_request(), inbox.taking_in)

    assert received == Received(0, refused=RefusalReason.SIGNATURE_MISSING)
    assert (inbox.world.stand_in.everything(), inbox.forward.sent, inbox.told) == (before, [], [])


def test_a_handshake_leaves_no_trace_unless_it_brings_the_key(inbox: Inbox) -> None:
    """What the provider tells only once is durable before it is answered."""
    shaken = inbox.take("slack", {"type": "url_verification", "challenge": "c-1"})
    assert shaken.shaken is not None
    assert (shaken.status, shaken.shaken.body, inbox.stored()) == (200, "c-1", [])

    inbox.hooks.specs["asana"] = ("asana", spec_of("asana"))
    brought = replace(a_request(b"{}"), headers={"x-hook-secret": "b537207f20cbfa02357cf448134da559"})
    told = take_in("asana", "e-1", brought, inbox.taking_in)

    assert told.shaken is not None
    assert told.shaken.headers == {"x-hook-secret": "b537207f20cbfa02357cf448134da559"}
    (delivery,) = inbox.stored()
    assert json.loads(inbox.vault.open_delivery("asana", delivery.digest, delivery.body)[1]) == {
        "key": "b537207f20cbfa02357cf448134da559"
    }


@pytest.mark.rule("M-72", "M-77", "M-78")
def test_a_provider_that_sends_again_is_asked_to_where_the_catalogue_says_so(inbox: Inbox) -> None:
    """No connection of the account can take it now: 503, and nothing is stored; else it is taken like any other."""
    spec = replace(spec_of("slack"), unready="retry")
    event = replace(spec.event, accounts=((None, ("team_id",), ()),))
    inbox.hooks.specs["again"] = ("slack", replace(spec, event=event))

    with pytest.raises(WebhookAccountNotReadyError):
        inbox.take("again", MESSAGE)
    assert inbox.stored() == []

    digest = inbox.vault.account_digest("again", "T1")
    inbox.world.stand_in.plant(account_key("again", digest), ty="account", live=1, parked=0, v=1)
    assert inbox.take("again", MESSAGE) == Received(200, accepted=1)


@pytest.mark.rule("M-72", "M-77", "M-78", "D-36")
def test_square_is_asked_again_until_the_account_is_ready(inbox: Inbox) -> None:
    """Unknown, on its way, or in need of a reconnect: 503. One that left is let go; a departure is always taken."""
    inbox.hooks.specs["square"] = ("square", spec_of("square"))
    key = account_key("square", inbox.vault.account_digest("square", "M1"))
    now, paid = inbox.world.clock.now(), {"event_id": "e-1", "type": "payment.created", "merchant_id": "M1"}

    for account in (None, {"live": 0}, {"live": 0, "lost_at": now - 1, "left_at": now - 1}):
        if account is not None:
            inbox.world.stand_in.plant(key, ty="account", parked=0, v=1, **account)
        with pytest.raises(WebhookAccountNotReadyError):
            inbox.take("square", paid)
    assert inbox.stored() == []

    assert inbox.take("square", paid | {"type": "oauth.authorization.revoked", "event_id": "e-2"}).accepted == 1
    inbox.world.stand_in.plant(key, ty="account", parked=0, v=1, live=0, left_at=now - 1)
    assert inbox.take("square", paid | {"event_id": "e-3"}).accepted == 1
    inbox.world.stand_in.plant(key, ty="account", parked=0, v=1, live=1)
    assert inbox.take("square", paid).accepted == 1


@pytest.mark.rule("U-15", "M-63")
def test_each_account_of_an_event_has_a_delivery_of_its_own(inbox: Inbox) -> None:
    """With a trace, a message and the event's bytes; a copy finds each, and one that is half stored is completed."""
    inbox.hooks.specs["dropbox"] = ("dropbox", spec_of("dropbox"))
    changed = {"list_folder": {"accounts": ["dbid:1", "dbid:2", "dbid:3"]}}
    inbox.world.table.faults = [None, *[busy] * 6]
    with pytest.raises(StoreError):
        inbox.take("dropbox", changed)
    assert len(inbox.stored()) == 1

    assert inbox.take("dropbox", changed) == Received(200, accepted=1)
    assert inbox.take("dropbox", changed) == Received(200, duplicates=1)

    opened = [inbox.vault.open_delivery("dropbox", each.digest, each.body) for each in inbox.stored()]
    assert sorted(prepared.accounts for prepared, _ in opened) == [("dbid:1",), ("dbid:2",), ("dbid:3",)]
    assert {raw for _, raw in opened} == {json.dumps(changed).encode()}
    assert len(inbox.forward.sent) == 3


@pytest.mark.rule("M-75")
def test_the_last_change_is_never_lost_with_a_copy_of_an_earlier_one(inbox: Inbox) -> None:
    """
    Dropbox says the same bytes at each change. What comes like a hint while nobody can have handled that yet is a copy
    of it; what comes later is a change of its own.
    """
    inbox.hooks.specs["dropbox"] = ("dropbox", spec_of("dropbox"))
    clock, changed = inbox.world.clock, {"list_folder": {"accounts": ["dbid:1"]}}
    clock.move(ms=3_000 - clock.now() % 3_000 + 1_000)

    with inbox.world.table.metered() as spent:
        assert inbox.take("dropbox", changed) == Received(200, accepted=1)
    assert (spent.writes, inbox.forward.waits) == ([1], [2_000])
    clock.move(ms=1_999)
    assert inbox.take("dropbox", changed) == Received(200, duplicates=1)
    clock.move(ms=1)  # now it may be handled
    (first,) = inbox.stored()
    webhooks = inbox.world.delivering.webhooks
    webhooks.complete(webhooks.claim(first, clock.now()), first, clock.now())

    assert inbox.take("dropbox", changed) == Received(200, accepted=1)
    assert sorted(each.state for each in inbox.stored()) == [DeliveryState.ACCEPTED, DeliveryState.PROCESSED]
    assert inbox.forward.waits == [2_000, 3_000]


def test_what_is_no_hint_waits_for_nothing(inbox: Inbox) -> None:
    """It may be handled at once."""
    inbox.take("slack", MESSAGE)

    assert inbox.forward.waits == [0]


@pytest.mark.rule("U-15", "RB-63")
def test_every_account_of_an_event_has_its_delivery_or_none_has(inbox: Inbox) -> None:
    """A hundred and fifty, a thousand in the largest body; of more, which nobody could store in time, nothing is."""
    inbox.hooks.specs["dropbox"] = ("dropbox", spec_of("dropbox"))

    def said(accounts: int, size: int = 0) -> bytes:
        names = [f"dbid:{number:06d}" for number in range(accounts)]
        return json.dumps({"list_folder": {"accounts": names}}).encode().ljust(size)

    assert inbox.take("dropbox", said(150)) == Received(200, accepted=1)
    opened = [inbox.vault.open_delivery("dropbox", each.digest, each.body) for each in inbox.stored()]
    assert sorted(prepared.accounts for prepared, _ in opened) == [(f"dbid:{number:06d}",) for number in range(150)]
    assert len(inbox.forward.sent) == 150

    assert inbox.take("dropbox", said(EVENTS_AT_ONCE, ACCEPTED_BODY_BYTES)) == Received(200, accepted=1)
    assert len(inbox.digests()) == len(set(inbox.forward.sent)) == 150 + EVENTS_AT_ONCE

    most = said(ACCEPTED_BODY_BYTES // len('"dbid:000000", ') - 10)
    for much in (said(EVENTS_AT_ONCE + 1), most):
        assert inbox.take("dropbox", much) == Received(0, refused=RefusalReason.TOO_MANY)
    assert len(inbox.digests()) == 150 + EVENTS_AT_ONCE


def test_a_deletion_is_answered_with_where_its_user_reads_of_it(inbox: Inbox) -> None:
    """Once it is durable, the same for each copy; nothing of whose it is. Without a page of the app's, no body."""
    inbox.hooks.specs["facebook"] = ("facebook", spec_of("facebook"))
    payload = {"algorithm": "HMAC-SHA256", "issued_at": 1_799_999_999, "user_id": "218471"}
    claims = base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=")
    sign = base64.urlsafe_b64encode(hmac.digest(SECRET.encode(), claims, "sha256")).rstrip(b"=")
    request = a_request(b"signed_request=" + sign + b"." + claims)

    first = take_in("facebook", None, request, inbox.taking_in)
    again = take_in("facebook", None, request, inbox.taking_in)
    inbox.hooks.status_page = None
    bare = take_in("facebook", None, request, inbox.taking_in)

    told = json.loads(first.body)
    assert told["url"] == f"https://app.example.com/deletions?code={told['confirmation_code']}"
    assert re.fullmatch("[0-9a-f]{24}", told["confirmation_code"])
    assert (first.accepted, again.duplicates, again.body, bare.body) == (1, 1, first.body, "")
    assert "218471" not in first.body


@pytest.mark.rule("M-60")
def test_without_keys_nothing_is_answered(inbox: Inbox) -> None:
    """KMS is out: the provider is asked to come again; nothing was stored in the clear."""
    inbox.world.kms.is_out = True

    with pytest.raises(KeyUnavailableError):
        inbox.take("slack", MESSAGE)

    assert inbox.stored() == []


@pytest.mark.rule("M-83")
def test_the_table_holds_nothing_of_a_users(inbox: Inbox) -> None:
    """Neither account, nor id, nor a word of the body, in clear."""
    said = MESSAGE | {"authorizations": [{"user_id": "account-canary"}], "text": "body-canary", "event_id": "id-canary"}

    inbox.take("slack", said)

    lying = repr(inbox.world.stand_in.everything())
    assert not any(word in lying for word in ("account-canary", "body-canary", "id-canary"))


# --- whatever anybody sends ------------------------------------------------------------------------------------------

FUZZED = with_webhooks()


@pytest.mark.rule("S-9", "S-11")
def test_no_mutated_request_is_believed_and_none_breaks_anything(
    record_property: Callable[[str, object], None],
) -> None:
    """
    10,000 requests, each a good one of some provider with one thing changed: a refusal, or a handshake without effect;
    never an event, never an exception.
    """
    good, seen = good_requests(), Counter[str]()

    def send(change: Change) -> bool:
        provider = FUZZED[(change[1] * 7 + change[2]) % len(FUZZED)]
        hook, request = good[provider]
        changed = mutated(request, change)
        if _means_the_same(request, changed, hook):
            return False
        read = hook.read(changed, AT)
        assert isinstance(read, Refused | Shaken), (provider, change)
        assert not isinstance(read, Shaken) or read.brings is None, (provider, change)
        seen[read.reason if isinstance(read, Refused) else "a handshake"] += 1
        return True

    count = each_of(MUTATIONS, KINDS, send)

    assert count >= MUTATIONS
    told = ", ".join(f"{times:,} {reason}" for reason, times in seen.most_common())
    record_property(
        "figure", f"{count:,} mutated requests of {len(FUZZED)} providers: 0 believed, 0 broke anything; {told}"
    )


@pytest.mark.parametrize("provider", ["github", "slack", "gitlab", "square"])
def test_the_search_notices_where_anything_is_believed(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with a comparison that says yes to everything, changed requests are believed, and seen to be."""
    monkeypatch.setattr("quitclaim.providers.signatures.hmac.compare_digest", lambda one, other: True)
    hook, request = good_requests()[provider]
    believed = 0

    def send(change: Change) -> bool:
        nonlocal believed
        believed += isinstance(hook.read(mutated(request, change), AT), Taken)
        return True

    each_of(100, KINDS, send)

    assert believed > 0


AT = 1_800_000_000_000


def good_requests() -> dict[str, tuple[WebhookAddress, Incoming]]:
    """One of each provider, signed by what its entry says; where others sign, with something in the place."""
    good: dict[str, tuple[WebhookAddress, Incoming]] = {}
    for provider in FUZZED:
        spec = spec_of(provider)
        if spec.signature.scheme == "path":  # nothing of it is signed: whoever knows the address is believed
            signature = replace(spec.signature, scheme="secret", member="header:x-secret")
            spec = replace(spec, signature=signature)
        body = json.dumps({"type": "made", "id": "e-1", "webhookTimestamp": AT, "user_id": "u"}).encode()
        hook = ProviderHook(provider, "acme", None, spec, WebhookKeys(secrets=(Secret(SECRET),)), client_id="c")
        request = a_request(body)
        if spec.signature.scheme == "hmac":
            secret = SECRET.removeprefix("whsec_") if spec.signature.key_decoding == "base64" else SECRET
            hook = ProviderHook(provider, "acme", None, spec, WebhookKeys(secrets=(Secret(secret),)), client_id="c")
            request = Signer(spec.signature, (secret,), at=AT).signed(replace(request, headers={}))
            assert isinstance(hook.read(request, AT), Taken), "unchanged it is believed"
        elif spec.signature.scheme == "secret":
            request = replace(request, headers={"x-secret": SECRET})
        else:
            request = replace(request, headers=dict.fromkeys(spec.signature.headers, "AAAA"))
        good[provider] = (hook, replace(request, headers=request.headers or {"x-none": "1"}))
    return good


def _means_the_same(good: Incoming, changed: Incoming, hook: WebhookAddress) -> bool:
    """A header that nobody signed was changed, or the secret alone is compared: what came is still the provider's."""
    assert isinstance(hook, ProviderHook)
    if changed.method != good.method:
        return False
    spec = spec_of(hook.provider).signature
    if spec.separator is not None and changed.body == good.body:
        header = spec.headers[0]
        if changed.headers.get(header) == f"{good.headers[header]},{good.headers[header]}":
            return True  # a list that says everything twice
    if spec.scheme == "path":
        return changed.headers.get("x-secret") == SECRET
    signed = {
        *spec.headers,
        spec.id_header,
        *(() if spec.timestamp is None else (spec.timestamp.at.partition(":")[2],)),
    }
    kept = {name: changed.headers.get(name) for name in signed if name} == {
        name: good.headers.get(name) for name in signed if name
    }
    return kept and changed.body == good.body
