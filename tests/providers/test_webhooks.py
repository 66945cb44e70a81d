"""
A provider's webhooks by the catalogue: handshakes, what an event means, and by what it is told apart. Signatures that
are no HMAC stand here with the events that carry them.
"""

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from quitclaim.domain.limits import ACCEPTED_BODY_BYTES, EVENTS_AT_ONCE, PREPARED_BYTES, STORED_BODY_BYTES
from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import (
    Event,
    Incoming,
    Read,
    RefusalReason,
    Refused,
    Shaken,
    Taken,
    Trust,
    WebhookKeys,
    prepared_of,
)
from quitclaim.providers.id_token import Verdict
from quitclaim.providers.webhooks import ProviderHook
from tests.fakes.broker import broker_spec
from tests.providers.signing import CATALOGUE, NOW, SECRET, URL, Signer, a_hook, a_request, spec_of, with_webhooks


def sent(provider: str, said: Any, headers: dict[str, str] | None = None, at: int = NOW) -> Incoming:
    """A signed request with that JSON."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    request = a_request(body)
    request = replace(request, headers={**request.headers, **(headers or {})})
    signature = spec_of(provider).signature
    return Signer(signature, at=at).signed(request) if signature.scheme == "hmac" else request


def read(provider: str, said: Any, headers: dict[str, str] | None = None, at: int = NOW) -> Read:
    return a_hook(provider).read(sent(provider, said, headers, at), at)


def events(provider: str, said: Any, headers: dict[str, str] | None = None, at: int = NOW) -> tuple[Event, ...]:
    found = read(provider, said, headers, at)
    assert isinstance(found, Taken), found
    return found.events


def event(provider: str, said: Any, headers: dict[str, str] | None = None, at: int = NOW) -> Event:
    (found,) = events(provider, said, headers, at)
    return found


# --- what an event means ---------------------------------------------------------------------------------------------


@pytest.mark.rule("M-60", "M-82")
def test_the_meaning_of_an_event_is_frozen() -> None:
    """Kind, account, id and times by the entry's paths; the bytes as they came; what is not said is absent."""
    said = {"type": "event_callback", "event_id": "Ev1", "team_id": "T1", "event_time": 1_799_999_999}
    said |= {"event": {"type": "message"}, "authorizations": [{"user_id": "U1"}]}

    found = event("slack", said)

    told = found.prepared
    assert (told.provider, told.client, told.trust) == ("slack", "acme", Trust.SIGNED)
    assert (told.kind, told.event_id, told.accounts) == ("message", "Ev1", ("T1",))
    assert told.named_by == "team"
    assert (told.received_at, told.sent_at, told.occurred_at) == (NOW, NOW, 1_799_999_999_000)
    assert (told.content_type, told.sha256) == ("application/json", hashlib.sha256(found.raw).hexdigest())
    assert (told.resource, told.source, told.data_source, told.element) == (None, None, None, None)
    assert json.loads(found.raw) == said
    assert dict(told.fields) == {"team_id": "T1"}


@pytest.mark.rule("M-60")
@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"null", b"7", b"[" * 40 + b"]" * 40, b'{"event_id":""}'])
def test_what_is_believed_is_taken_whatever_it_says(body: bytes) -> None:
    """The app may know more of it than the catalogue: its bytes are the provider's."""
    found = event("slack", body)

    assert (found.raw, found.prepared.kind, found.prepared.accounts) == (body, None, ())
    assert found.how == "body"


@pytest.mark.rule("S-11")
def test_a_body_that_is_too_large_to_keep_is_kept_as_its_digest() -> None:
    """Verified all the same, up to 6 MiB; beyond that nothing is looked at."""
    whole, cut = b" " * STORED_BODY_BYTES, b" " * (STORED_BODY_BYTES + 1)

    assert (event("github", whole).raw, event("github", whole).prepared.truncated) == (whole, False)
    found = event("github", cut)
    assert (found.raw, found.prepared.truncated, found.prepared.size) == (b"", True, len(cut))
    assert found.prepared.sha256 == hashlib.sha256(cut).hexdigest()
    assert isinstance(read("github", b" " * ACCEPTED_BODY_BYTES), Taken)
    assert read("github", b" " * (ACCEPTED_BODY_BYTES + 1)) == Refused(RefusalReason.TOO_LARGE)


@pytest.mark.rule("S-11")
def test_a_prepared_event_fits_its_bound_whatever_it_says() -> None:
    """As it is stored, of one account: every one of them is there, of the longest name, and none that is no name."""
    accounts = [f"{number:03d}" + '"' * 197 for number in range(150)] + ["x" * 201, "a\nb", "", 7, None, {}, True]
    said = {
        "event": {"type": "tokens_revoked", "tokens": {"oauth": accounts}},
        "event_id": "e" * 300,
        "team_id": "t" * 101,
    }

    told = event("slack", said).prepared

    assert told.accounts == (*accounts[:150], "7", "true")
    assert (told.event_id, dict(told.fields)) == (None, {})
    for account in told.accounts:
        stored = replace(told, accounts=(account,)).as_mapping()
        assert len(json.dumps(stored).encode()) < PREPARED_BYTES
        assert prepared_of(stored).accounts == (account,)


@pytest.mark.rule("S-11")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip"])
def test_an_encoded_body_is_refused(encoding: str) -> None:
    """Nothing is unpacked: what was signed is what is read."""
    assert read("github", {}, {"content-encoding": encoding}) == Refused(RefusalReason.ENCODED)
    assert isinstance(read("github", {}, {"content-encoding": "identity"}), Taken)


# --- by what it is told apart ----------------------------------------------------------------------------------------


@pytest.mark.rule("RB-65", "M-63")
@pytest.mark.parametrize("provider", ["github", "github-app"])
def test_a_delivery_id_that_nobody_signed_tells_nothing_apart(provider: str) -> None:
    """The same signed body with another id in a header, or with none, is the same event."""
    kind = {"x-github-event": "push"}

    traces = [
        (each.how, each.name)
        for each in (
            event(provider, {"a": 1}, kind | {"x-github-delivery": "d-1"}),
            event(provider, {"a": 1}, kind | {"x-github-delivery": "d-2"}),
            event(provider, {"a": 1}, kind),
        )
    ]

    assert len(set(traces)) == 1
    assert (event(provider, {"a": 2}, kind).how, event(provider, {"a": 2}, kind).name) != traces[0]


@pytest.mark.rule("RB-66")
def test_a_retry_is_known_by_the_events_id() -> None:
    """Slack's retry header says nothing: a first copy that comes with it is taken, a second has the same trace."""
    said = {"event_id": "Ev1", "event": {"type": "message"}}

    first = event("slack", said, {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"})
    second = event("slack", {**said, "more": 1}, at=NOW + 300_000)

    assert (first.how, first.name) == (second.how, second.name)


def test_an_id_that_is_signed_is_the_trace() -> None:
    """Twitch and Standard Webhooks sign it: two bodies with one id are one event, one body with two ids two."""
    spec = spec_of("gitlab").signature
    hook = a_hook("gitlab")

    def of(id_: str, body: bytes) -> tuple[str, str]:
        found = hook.read(Signer(spec, id=id_).signed(a_request(body)), NOW)
        assert isinstance(found, Taken)
        return found.events[0].how, found.events[0].name

    assert of("m-1", b"{}") == of("m-1", b'{"retry":1}')
    assert of("m-1", b"{}") != of("m-2", b"{}")


def test_where_no_id_is_sent_the_members_that_make_one_are_the_trace() -> None:
    """Oura's five members; with one of them missing, the bytes."""
    said = {"event_type": "update", "data_type": "sleep", "object_id": "o", "event_time": "t", "user_id": "u"}

    assert (event("oura", said).how, event("oura", {**said, "x": 1}).name) == ("id", event("oura", said).name)
    assert event("oura", {**said, "object_id": "p"}).name != event("oura", said).name
    assert event("oura", {name: value for name, value in said.items() if name != "event_time"}).how == "body"


@pytest.mark.rule("M-75")
def test_a_hint_without_an_id_is_a_duplicate_for_three_seconds_only() -> None:
    """Its bytes are the same each time something changes: later they say it anew. It is not handled before that."""
    hook = ProviderHook("garmin", "acme", "s", spec_of("garmin"), WebhookKeys(), client_id="c")
    said = a_request(json.dumps({"dailies": [{"userId": "u"}]}).encode())

    def told(at: int) -> tuple[str, int | None]:
        found = hook.read(said, at)
        assert isinstance(found, Taken)
        return found.events[0].name, found.events[0].until

    assert told(NOW) == told(NOW + 2_999) != told(NOW + 3_000)
    assert (told(NOW)[1], told(NOW + 2_999)[1], told(NOW + 3_000)[1]) == (NOW + 3_000, NOW + 3_000, NOW + 6_000)
    assert event("slack", {"event_id": "Ev1"}).until is None
    assert event("github", {"a": 1}).until is None


# --- whom it concerns ------------------------------------------------------------------------------------------------


@pytest.mark.rule("U-15")
@pytest.mark.parametrize(
    ("authorizations", "by", "accounts"),
    [
        ([{"team_id": "T1", "user_id": "U1", "is_bot": False}], None, ("U1",)),
        ([{"team_id": "T1", "user_id": "B1", "is_bot": True}], "team", ("T1",)),
        ([{"team_id": "T1", "user_id": "U1"}], "team", ("T1",)),
        ([{"team_id": "T1", "user_id": "", "is_bot": False}], "team", ("T1",)),
        ([], "team", ("T1",)),
        (None, "team", ("T1",)),
    ],
)
def test_what_one_user_may_see_is_that_users(authorizations: object, by: str | None, accounts: tuple[str, ...]) -> None:
    """Slack says by whose authorization an event is seen: a user's reaches no other; what a bot sees is the team's."""
    said = {"event_id": "Ev1", "team_id": "T1", "event": {"type": "message", "channel_type": "im"}}

    told = event("slack", said | {"authorizations": authorizations}).prepared

    assert (told.named_by, told.accounts) == (by, accounts)


def test_the_end_of_a_team_is_the_teams_whoever_authorized_the_event() -> None:
    """Else the app's removal from a workspace would stop one of its grants."""
    said = {"event_id": "Ev1", "team_id": "T1", "event": {"type": "app_uninstalled"}}
    said |= {"authorizations": [{"user_id": "U1", "is_bot": False}]}

    told = event("slack", said).prepared

    assert (told.deauthorizes, told.named_by, told.accounts) == (True, "team", ("T1",))


def test_a_meeting_is_its_hosts_and_what_names_no_user_the_accounts() -> None:
    """Zoom."""
    hosted = {"event": "meeting.started", "payload": {"account_id": "A1", "object": {"host_id": "H1"}}}
    plain = {"event": "account.updated", "payload": {"account_id": "A1", "object": {"id": "A1"}}}

    assert (event("zoom", hosted).prepared.named_by, event("zoom", hosted).prepared.accounts) == (None, ("H1",))
    assert (event("zoom", plain).prepared.named_by, event("zoom", plain).prepared.accounts) == ("account", ("A1",))


# --- batches ---------------------------------------------------------------------------------------------------------


def test_each_element_of_a_batch_is_an_event() -> None:
    """HubSpot's list: each with its own id, account and bytes."""
    said = [
        {
            "eventId": number,
            "subscriptionId": 1,
            "portalId": 7,
            "occurredAt": NOW,
            "subscriptionType": "contact.creation",
        }
        for number in range(3)
    ]

    found = events("hubspot", said)

    assert [each.prepared.element for each in found] == [0, 1, 2]
    assert {each.prepared.accounts for each in found} == {("7",)}
    assert len({each.name for each in found}) == 3
    assert [json.loads(each.raw) for each in found] == said


@pytest.mark.rule("RB-72")
def test_a_user_who_is_told_twice_in_one_batch_is_one_event() -> None:
    """Garmin's list of deregistrations, with one user twice: the same trace, and each user's own."""
    hook = ProviderHook("garmin", "acme", "s", spec_of("garmin"), WebhookKeys(), client_id="c")
    said = {"deregistrations": [{"userId": "u"}, {"userId": "u"}, {"userId": "v"}], "dailies": [{"userId": "u"}]}

    found = hook.read(a_request(json.dumps(said).encode()), NOW)

    assert isinstance(found, Taken)
    told = [(each.prepared.kind, each.prepared.accounts, each.prepared.deauthorizes) for each in found.events]
    assert told == [
        ("deregistrations", ("u",), True),
        ("deregistrations", ("u",), True),
        ("deregistrations", ("v",), True),
        ("dailies", ("u",), False),
    ]
    assert {each.prepared.trust for each in found.events} == {Trust.SECRET}
    assert len({each.name for each in found.events[:3]}) == 2


@pytest.mark.parametrize("provider", ["xero", "asana", "quickbooks", "hubspot"])
def test_a_batch_without_events_is_a_probe(provider: str) -> None:
    """It is answered as taken, and there is nothing to store; a body that is no batch is one event."""
    items = spec_of(provider).event.items
    assert items is not None

    assert events(provider, [] if items == "." else {items: []}) == ()
    assert len(events(provider, "odd")) == 1


@pytest.mark.rule("S-11")
def test_a_batch_is_bounded() -> None:
    """A thousand events, each once for each account; more are refused, and none of them is stored."""
    assert len(events("xero", {"events": [{"n": n} for n in range(EVENTS_AT_ONCE)]})) == EVENTS_AT_ONCE
    assert read("xero", {"events": [{}] * (EVENTS_AT_ONCE + 1)}) == Refused(RefusalReason.TOO_MANY)

    names = [f"dbid:{number}" for number in range(EVENTS_AT_ONCE + 1)]
    assert event("dropbox", {"list_folder": {"accounts": names[1:]}}).prepared.accounts == tuple(names[1:])
    assert read("dropbox", {"list_folder": {"accounts": names}}) == Refused(RefusalReason.TOO_MANY)


# --- the user has left -----------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[Any, dict[str, str], tuple[str, ...]]] = {
    "slack": ({"event": {"type": "tokens_revoked", "tokens": {"oauth": ["U1", "U2", "U1"]}}}, {}, ("U1", "U2")),
    "github-app": (
        {"action": "revoked", "sender": {"id": 7}},
        {"x-github-event": "github_app_authorization"},
        ("7",),
    ),
    "zoom": ({"event": "app_deauthorized", "payload": {"user_id": "z"}}, {}, ("z",)),
    "x": ({"data": {"event_type": "oauth.revoke", "payload": {"user_id": "9"}}}, {}, ("9",)),
    "square": ({"type": "oauth.authorization.revoked", "merchant_id": "m"}, {}, ("m",)),
    "stripe-connect": ({"type": "account.application.deauthorized", "account": "acct_1"}, {}, ("acct_1",)),
    "twitch": ({"subscription": {"type": "user.authorization.revoke"}, "event": {"user_id": "t"}}, {}, ("t",)),
    "shopify": (
        {},
        {"x-shopify-topic": "app/uninstalled", "x-shopify-shop-domain": "a.example.com"},
        ("a.example.com",),
    ),
}


@pytest.mark.rule("RB-72")
@pytest.mark.parametrize("provider", ENDS)
def test_an_event_that_says_that_a_grant_ended_is_known(provider: str) -> None:
    """With the accounts it names; what only an unsigned header says is a hint."""
    said, headers, accounts = ENDS[provider]

    told = event(provider, said, headers).prepared

    assert (told.deauthorizes, told.accounts) == (True, accounts)
    assert told.trust is (Trust.SECRET if provider == "shopify" else Trust.SIGNED)
    assert not event(provider, {"event": "other"}, {}).prepared.deauthorizes


@pytest.mark.parametrize("client", ["client-1", "somebody-elses", None])
def test_the_end_of_an_app_stops_grants_where_it_is_ours(client: str | None) -> None:
    """Linear tells of any app's revocation in the organization: another one's, or an unnamed one's, only has us ask."""
    said = {"type": "OAuthApp", "action": "revoked", "organizationId": "o-1", "webhookTimestamp": NOW}
    said |= {} if client is None else {"oauthClientId": client}

    told = event("linear", said).prepared

    assert (told.deauthorizes, told.accounts, told.named_by) == (True, ("o-1",), "organization")
    assert told.trust is (Trust.SIGNED if client == "client-1" else Trust.INDIRECT)
    assert told.trust.is_hint is (client != "client-1")


def test_nobody_is_asked_again_whose_signed_time_may_grow_old() -> None:
    """Of those that are, a copy may come when its first signature no longer counts: only where that is known not to."""
    asked_again = {each for each in with_webhooks() if spec_of(each).unready == "retry"}

    assert asked_again == {"square"}
    assert all(spec_of(each).signature.timestamp is None for each in asked_again)


@pytest.mark.rule("RB-72", "S-9")
@pytest.mark.parametrize("authorized", ["false", False])
def test_strava_says_it_in_text_or_not_and_is_never_more_than_a_hint(authorized: object) -> None:
    """Nothing of it is signed: the address is the secret, and the subscription's id is compared."""
    hook = ProviderHook("strava", "acme", "s", spec_of("strava"), WebhookKeys(hook_id="120475"), client_id="c")
    said = {"subscription_id": 120475, "owner_id": 5, "object_id": 5, "object_type": "athlete", "aspect_type": "update"}
    said |= {"event_time": 1_799_999_999, "updates": {"authorized": authorized}}

    found = hook.read(a_request(json.dumps(said).encode()), NOW)
    other = hook.read(a_request(json.dumps({**said, "subscription_id": 1}).encode()), NOW)

    assert isinstance(found, Taken)
    told = found.events[0].prepared
    assert (told.deauthorizes, told.accounts, told.trust.is_hint) == (True, ("5",), True)
    assert other == Refused(RefusalReason.SUBSCRIPTION)


# --- handshakes ------------------------------------------------------------------------------------------------------


def asked(provider: str, method: str = "GET", keys: WebhookKeys | None = None, **query: str) -> Read:
    opened = keys or WebhookKeys(secrets=(Secret(SECRET),), verify_token=lambda: Secret("chosen"))
    hook = ProviderHook(provider, "acme", "s", spec_of(provider), opened, client_id="c")
    return hook.read(Incoming(method, URL + "?x=1", {}, query, b""), NOW)


def test_a_challenge_in_the_query_comes_back() -> None:
    """Strava and Oura: where the token is the app's own."""
    strava = {
        "hub.mode": "subscribe",
        "hub.challenge": "15f7d1a91c1f40f8a748fd134752feb3",
        "hub.verify_token": "chosen",
    }

    assert asked("strava", **strava) == Shaken(
        200, "application/json", '{"hub.challenge": "15f7d1a91c1f40f8a748fd134752feb3"}'
    )
    assert asked("oura", challenge="abc", verification_token="chosen") == Shaken(
        200, "application/json", '{"challenge": "abc"}'
    )
    for spoilt in ({"hub.verify_token": "guessed"}, {"hub.challenge": "<script>"}, {"hub.challenge": ""}):
        assert asked("strava", **strava | spoilt) == Refused(RefusalReason.HANDSHAKE)
    assert asked("strava", keys=WebhookKeys(), **strava) == Refused(RefusalReason.HANDSHAKE)
    assert asked("strava", **strava | {"hub.mode": "other"}) == Refused(RefusalReason.METHOD)
    assert asked("strava") == Refused(RefusalReason.METHOD)
    assert asked("github") == Refused(RefusalReason.METHOD)


def test_an_hourly_check_is_answered_with_an_hmac_of_nothing_that_could_be_an_event() -> None:
    """X: whoever may choose what is signed must not be able to have an event signed."""
    shaken = asked("x", crc_token="token-1")

    digest = base64.b64encode(hmac.digest(SECRET.encode(), b"token-1", "sha256")).decode()
    assert shaken == Shaken(200, "application/json", json.dumps({"response_token": f"sha256={digest}"}))
    for body in ('{"data":{"event_type":"oauth.revoke"}}', "{}", "a b", "a" * 513, "[]", '"x"'):
        assert asked("x", crc_token=body) == Refused(RefusalReason.HANDSHAKE)


def test_a_check_with_our_own_address_is_a_digest() -> None:
    """eBay: code, token and address, in that order."""
    expected = hashlib.sha256(b"code-1" + b"chosen" + URL.encode()).hexdigest()

    assert asked("ebay", challenge_code="code-1") == Shaken(
        200, "application/json", json.dumps({"challengeResponse": expected})
    )
    assert asked("ebay", keys=WebhookKeys(), challenge_code="code-1") == Refused(RefusalReason.HANDSHAKE)


def test_a_look_at_the_address_is_answered() -> None:
    """HEAD, at Withings and anybody."""
    assert asked("withings", method="HEAD") == Shaken()
    assert asked("github", method="HEAD") == Shaken()
    assert asked("github", method="PUT") == Refused(RefusalReason.METHOD)


def test_a_signed_challenge_comes_back() -> None:
    """Slack as text, Twitch as text; nothing is stored; unsigned it is refused like anything else."""
    said = {"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}
    twitch = {
        "challenge": "pogchamp-kappa-360noscope",
        "subscription": {"status": "webhook_callback_verification_pending"},
    }

    assert read("slack", said) == Shaken(200, "text/plain; charset=utf-8", said["challenge"])
    assert read("twitch", twitch) == Shaken(200, "text/plain; charset=utf-8", "pogchamp-kappa-360noscope")
    assert a_hook("slack").read(a_request(json.dumps(said).encode()), NOW) == Refused(RefusalReason.SIGNATURE_MISSING)


def test_a_plain_token_comes_back_with_its_hmac() -> None:
    """Zoom, and only where it signed the request."""
    said = {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"}}
    digest = hmac.digest(SECRET.encode(), b"qgg8vlvZRS6UYooatFL8Aw", "sha256").hex()

    assert read("zoom", said) == Shaken(
        200, "application/json", json.dumps({"plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": digest})
    )
    assert isinstance(a_hook("zoom").read(a_request(json.dumps(said).encode()), NOW), Refused)
    assert isinstance(read("zoom", {**said, "payload": {"plainToken": "v0:1:{}"}}), Taken)


def test_an_unsigned_ping_has_no_effect() -> None:
    """Polar's first request: answered, nothing taken; anything else unsigned is refused."""
    assert a_hook("polar").read(a_request(b'{"event":"PING"}'), NOW) == Shaken()
    assert a_hook("polar").read(a_request(b'{"event":"EXERCISE"}'), NOW) == Refused(RefusalReason.SIGNATURE_MISSING)


@pytest.mark.parametrize(
    ("provider", "headers", "body", "back"),
    [
        ("asana", {"x-hook-secret": "b537207f20cbfa02357cf448134da559"}, b"{}", True),
        ("notion", {}, b'{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}', False),
    ],
)
def test_a_key_that_is_delivered_reaches_the_app_and_is_believed_by_nobody(
    provider: str, headers: dict[str, str], body: bytes, back: bool
) -> None:
    """It is an event at an address that only the app has told anybody, and counts once it is in the settings."""
    spec = spec_of(provider)
    secret = headers.get("x-hook-secret") or json.loads(body)["verification_token"]
    request = replace(a_request(body), headers=headers)
    hook = ProviderHook(provider, "acme", "e-1", spec, WebhookKeys(account="u-1"), client_id="c")

    shaken = hook.read(request, NOW)

    assert isinstance(shaken, Shaken)
    assert shaken.headers == (headers if back else {})
    assert shaken.brings is not None
    assert (shaken.brings.prepared.trust, shaken.brings.prepared.kind) == (Trust.SECRET, "quitclaim.key")
    assert json.loads(shaken.brings.raw) == {"key": secret}
    assert shaken.brings.prepared.accounts == ("u-1",)
    for endpoint, keys in ((None, WebhookKeys(account="u-1")), ("e-1", WebhookKeys())):
        nowhere = ProviderHook(provider, "acme", endpoint, spec, keys, client_id="c")
        assert nowhere.read(request, NOW) == Refused(RefusalReason.HANDSHAKE)


def test_an_address_can_say_whose_events_come_in() -> None:
    """GitLab's hooks belong to a project: the account is the address's, where the event names none."""
    request = Signer(spec_of("gitlab").signature).signed(a_request())

    found = a_hook("gitlab", account="u-1").read(request, NOW)

    assert isinstance(found, Taken)
    assert found.events[0].prepared.accounts == ("u-1",)


def test_a_validation_token_is_shown_as_text_and_nothing_else() -> None:
    """Whatever it holds is text: the type says so, and no browser may guess otherwise."""
    spec = spec_of("monzo")
    shake = replace(spec_of("strava").handshakes[0], kind="validation", parameter="validationToken", member=None)
    hook = a_hook("monzo", spec=replace(spec, handshakes=(shake,)))
    token = "Validation: Testing client application reachability <b>"

    assert hook.read(a_request(b"", validationToken=token), NOW) == Shaken(200, "text/plain; charset=utf-8", token)
    assert hook.read(a_request(b"", validationToken="a\r\nb"), NOW) == Refused(RefusalReason.HANDSHAKE)


# --- signatures that are no HMAC -------------------------------------------------------------------------------------


def test_discord_is_verified_by_its_public_key() -> None:
    """Ed25519 over time and body; a ping is answered 204; what it signs wrongly on purpose is refused."""
    key = ed25519.Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    hook = a_hook(
        "discord",
        public={
            "current": ed25519.Ed25519PrivateKey.generate()
            .public_key()
            .public_bytes(Encoding.Raw, PublicFormat.Raw)
            .hex(),
            "next": public,
        },
    )

    def signed(said: dict[str, Any], at: int = NOW) -> Incoming:
        body, time = json.dumps(said).encode(), str(at // 1000)
        signature = key.sign(time.encode() + body).hex()
        return replace(a_request(body), headers={"x-signature-ed25519": signature, "x-signature-timestamp": time})

    left = {"type": 1, "event": {"type": "APPLICATION_DEAUTHORIZED", "data": {"user": {"id": "80351110224678912"}}}}

    assert hook.read(signed({"type": 0}), NOW) == Shaken(204)
    found = hook.read(signed(left), NOW)
    assert isinstance(found, Taken)
    assert found.status == 204
    assert (found.events[0].prepared.deauthorizes, found.events[0].prepared.accounts) == (True, ("80351110224678912",))
    assert found.events[0].prepared.trust is Trust.SIGNED
    assert hook.read(replace(signed(left), body=b"{}"), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed(left, NOW - 300_000), NOW) == Refused(RefusalReason.TIMESTAMP_OLD)
    assert a_hook("discord").read(signed(left), NOW) == Refused(RefusalReason.KEY_UNKNOWN)
    for name, value in (
        ("x-signature-ed25519", "zz"),
        ("x-signature-ed25519", "00" * 64),
        ("x-signature-timestamp", ""),
    ):
        spoilt = replace(signed(left), headers={**signed(left).headers, name: value})
        assert isinstance(hook.read(spoilt, NOW), Refused)


def test_ebay_is_verified_by_the_key_that_it_names() -> None:
    """ECDSA over the bytes, under one of the keys of the settings: an id that is not there is no key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    hook = a_hook("ebay", public={"k-1": pem, "k-2": "no key"})
    body = json.dumps(
        {
            "metadata": {"topic": "MARKETPLACE_ACCOUNT_DELETION"},
            "notification": {"notificationId": "n", "data": {"userId": "u"}},
        }
    ).encode()

    def signed(kid: str = "k-1", digest: Any = None) -> Incoming:
        signature = key.sign(body, ec.ECDSA(digest or SHA1()))  # noqa: S303 - the provider's
        header = {"alg": "ecdsa", "kid": kid, "signature": base64.b64encode(signature).decode(), "digest": "SHA1"}
        said = base64.b64encode(json.dumps(header).encode()).decode()
        return replace(a_request(body), headers={"x-ebay-signature": said})

    found = hook.read(signed(), NOW)
    assert isinstance(found, Taken)
    assert found.events[0].prepared.deauthorizes
    assert hook.read(replace(signed(), body=body + b" "), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed(digest=SHA256()), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed("k-3"), NOW) == hook.read(signed("k-2"), NOW) == Refused(RefusalReason.KEY_UNKNOWN)
    for header in ("", "no base64", base64.b64encode(b"[]").decode(), base64.b64encode(b'{"kid":"k-1"}').decode()):
        assert isinstance(hook.read(replace(a_request(body), headers={"x-ebay-signature": header}), NOW), Refused)


def a_certificate(key: rsa.RSAPrivateKey, begins: datetime, days: int) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "messageverificationcerts.example.com")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(7).not_valid_before(begins).not_valid_after(begins + timedelta(days=days))
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def test_paypal_is_verified_by_a_certificate_of_the_settings() -> None:
    """Id, time, hook and checksum of the bytes; the certificate that the request names is never fetched."""
    key, begins = rsa.generate_private_key(65_537, 2_048), datetime.fromtimestamp(NOW / 1000 - 86_400, UTC)
    pem, over = a_certificate(key, begins, 10), a_certificate(key, begins - timedelta(days=9), 9)
    body = b'{"id":"WH-1","event_type":"IDENTITY.AUTHORIZATION-CONSENT.REVOKED","resource":{"payer_id":"p"}}'
    time = "2027-01-15T08:00:00Z"

    def signed(hook_id: str = "WH-HOOK", algorithm: str = "SHA256withRSA", said: str = time) -> Incoming:
        message = f"t-1|{said}|{hook_id}|{crc32(body)}".encode()
        signature = base64.b64encode(key.sign(message, padding.PKCS1v15(), SHA256())).decode()
        headers = {"paypal-transmission-id": "t-1", "paypal-transmission-time": said, "paypal-auth-algo": algorithm}
        headers |= {"paypal-transmission-sig": signature, "paypal-cert-url": "https://evil.example.com/cert.pem"}
        return replace(a_request(body), headers=headers)

    hook = a_hook("paypal", public={"1": "no certificate", "2": pem}, hook_id="WH-HOOK")
    found = hook.read(signed(), NOW)
    assert isinstance(found, Taken)
    told = found.events[0].prepared
    assert (told.deauthorizes, told.accounts) == (True, ("p",))
    assert told.trust is Trust.SECRET, "a CRC-32 binds no body: whoever has seen one request can make another"
    assert hook.read(replace(signed(), body=body + b" "), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed("WH-OTHER"), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed(algorithm="none"), NOW) == Refused(RefusalReason.ALGORITHM)
    assert hook.read(signed(said="2027-01-15T07:00:00Z"), NOW) == Refused(RefusalReason.TIMESTAMP_OLD)
    stale = a_hook("paypal", public={"1": over}, hook_id="WH-HOOK")
    assert stale.read(signed(), NOW) == Refused(RefusalReason.KEY_NOT_VALID_NOW)
    assert a_hook("paypal", hook_id="WH-HOOK").read(signed(), NOW) == Refused(RefusalReason.KEY_UNKNOWN)
    assert a_hook("paypal", public={"1": pem}).read(signed(), NOW) == Refused(RefusalReason.SIGNED_PART_MISSING)


def test_a_signed_form_field_is_verified() -> None:
    """Meta's deauthorization: the second part is what is signed, and says by which algorithm; ours alone counts."""
    hook = a_hook("facebook", "app-secret")

    def signed(claims: Any, secret: str = "app-secret", tail: str = "") -> Incoming:  # noqa: S107 - made up
        payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
        signature = base64.urlsafe_b64encode(hmac.digest(secret.encode(), payload.encode(), "sha256")).rstrip(b"=")
        form = urlencode({"signed_request": f"{signature.decode()}.{payload}{tail}"}).encode()
        return replace(a_request(form), headers={"content-type": "application/x-www-form-urlencoded"})

    claims = {"algorithm": "HMAC-SHA256", "issued_at": 1_799_999_999, "user_id": "218471"}
    found = hook.read(signed(claims), NOW)

    assert isinstance(found, Taken)
    told = found.events[0].prepared
    assert (told.deauthorizes, told.accounts, told.occurred_at) == (True, ("218471",), 1_799_999_999_000)
    assert hook.read(signed(claims, "guessed"), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed(claims, tail="x"), NOW) != found
    assert hook.read(signed({**claims, "algorithm": "none"}), NOW) == Refused(RefusalReason.ALGORITHM)
    assert hook.read(signed([]), NOW) == Refused(RefusalReason.ALGORITHM)
    for name in ("code", "oauth_token"):
        assert hook.read(signed({**claims, name: "of a login"}), NOW) == Refused(RefusalReason.CLAIMS)
    request = signed(claims)
    again = hook.read(replace(request, body=b"x=1&" + request.body + b"&y=2"), NOW)
    assert isinstance(again, Taken)
    assert (again.events[0].how, again.events[0].name) == (found.events[0].how, found.events[0].name), "a copy"
    for form in (b"", b"signed_request=", b"signed_request=a", b"signed_request=.%ff", b"\xff"):
        assert isinstance(hook.read(a_request(form), NOW), Refused)


def test_a_body_that_is_a_token_is_verified_by_published_keys() -> None:
    """Apple's: issuer, audience and the time of its making count; `none` and symmetric algorithms never."""
    import jwt

    key = ec.generate_private_key(ec.SECP256R1())
    asked_for: list[str] = []

    def published(url: str) -> Any:
        asked_for.append(url)
        return lambda kid, algorithm: key.public_key() if kid == "k-1" else Verdict(reason="key")

    hook = ProviderHook(
        "apple", "acme", None, spec_of("apple"), WebhookKeys(), client_id="com.example.app", published=published
    )
    events_ = json.dumps({"type": "consent-revoked", "sub": "001", "event_time": NOW})
    claims = {
        "iss": "https://appleid.apple.com",
        "aud": "com.example.app",
        "iat": NOW // 1000,
        "jti": "j-1",
        "events": events_,
    }

    def signed(
        changes: dict[str, Any] | None = None, signer: Any = None, algorithm: str = "ES256", kid: str = "k-1"
    ) -> Incoming:
        token = jwt.encode({**claims, **(changes or {})}, signer or key, algorithm=algorithm, headers={"kid": kid})
        return a_request(json.dumps({"payload": token}).encode())

    found = hook.read(signed(), NOW)
    assert isinstance(found, Taken)
    told = found.events[0].prepared
    assert (told.kind, told.event_id, told.accounts, told.deauthorizes) == ("consent-revoked", "j-1", ("001",), True)
    assert asked_for == ["https://appleid.apple.com/auth/keys"]
    assert hook.read(signed(kid="k-2"), NOW) == Refused(RefusalReason.KEY_UNKNOWN)
    assert hook.read(signed({"aud": "other"}), NOW) == Refused(RefusalReason.CLAIMS)
    assert hook.read(signed({"iss": "https://evil.example.com"}), NOW) == Refused(RefusalReason.CLAIMS)
    assert hook.read(signed({"iat": NOW // 1000 + 3_600}), NOW) == Refused(RefusalReason.TIMESTAMP_AHEAD)
    assert hook.read(signed({"iat": NOW // 1000 - 30 * 86_400}), NOW) == Refused(RefusalReason.TIMESTAMP_OLD)
    assert hook.read(signed({"iat": "now"}), NOW) == Refused(RefusalReason.TIMESTAMP_MISSING)
    other = ec.generate_private_key(ec.SECP256R1())
    assert hook.read(signed(signer=other), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert hook.read(signed(signer="s" * 32, algorithm="HS256"), NOW) == Refused(RefusalReason.ALGORITHM)
    for body in (b"", b"{}", b'{"payload":"a.b.c"}', b'{"payload":"abc"}', b'{"payload":7}'):
        assert isinstance(hook.read(a_request(body), NOW), Refused)


@pytest.mark.rule("S-9")
def test_a_shared_secret_in_a_header_or_in_the_body_is_compared() -> None:
    """Where a provider only repeats what the app chose: one of the live ones, and never more than a hint."""
    path = spec_of("monzo")
    for member, request in (
        ("header:x-gitlab-token", replace(a_request(b"{}"), headers={"x-gitlab-token": SECRET})),
        ("body:passcode", a_request(json.dumps({"passcode": SECRET}).encode())),
    ):
        spec = replace(path, signature=replace(path.signature, scheme="secret", member=member))
        found = a_hook("monzo", "older", SECRET, spec=spec).read(request, NOW)
        assert isinstance(found, Taken)
        assert found.events[0].prepared.trust is Trust.SECRET
        assert a_hook("monzo", "other", spec=spec).read(request, NOW) == Refused(RefusalReason.SECRET_WRONG)
        assert a_hook("monzo", spec=spec).read(a_request(b"{}"), NOW) == Refused(RefusalReason.SECRET_MISSING)


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_a_block_stands_for_every_provider_whose_events_are_known() -> None:
    """More than thirty; each says by what it is told apart, or that its bytes are."""
    assert len(with_webhooks()) >= 30
    for provider in with_webhooks():
        spec = spec_of(provider)
        assert spec.signature.scheme != "path" or spec.event.is_level, provider
        assert all(len(each.when) > 0 for each in spec.deauthorizations), provider


def test_an_entry_without_a_block_takes_no_events() -> None:
    """Where nobody has read how they are signed."""
    assert CATALOGUE.get("spotify").webhook is None


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-74", "M-82")
@pytest.mark.parametrize(
    ("said", "source", "word"),
    [
        ({"type": "data.sleep", "source": {"slug": "oura"}}, "oura", None),
        ({"type": "source.created", "source": {"slug": "oura"}}, "oura", "connected"),
        ({"type": "source.removed", "source": {"slug": "oura"}}, "oura", "disconnected"),
        ({"type": "source.error", "final": True, "source": {"slug": "oura"}}, "oura", "failed"),
        ({"type": "source.error", "final": False, "source": {"slug": "oura"}}, "oura", None),
        ({"type": "source.error", "source": {"slug": 7}}, "7", None),
        ({"type": "source.removed"}, None, "disconnected"),
    ],
)
def test_what_a_broker_says_of_a_source(said: dict[str, Any], source: str | None, word: str | None) -> None:
    """The catalogue says by which events; every condition of one must hold."""
    spec = broker_spec().webhook
    assert spec is not None
    body = json.dumps({"id": "e-1", "user": {"id": "u-1"}, "at": 1_799_999_999_000} | said).encode()

    taken = a_hook("acme", spec=spec).read(Signer(spec.signature).signed(a_request(body)), NOW)

    assert isinstance(taken, Taken)
    (event,) = taken.events
    assert (event.prepared.source, event.prepared.source_word) == (source, word)
    assert event.prepared.accounts == ("u-1",)
    assert prepared_of(event.prepared.as_mapping()) == event.prepared
