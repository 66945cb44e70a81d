"""
Inbound signatures: what holds is believed, whatever else is not; each scheme against the people who sign it elsewhere,
against the examples that providers publish, and against everything that was changed on the way.
"""

import base64
import hmac
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import slack_sdk.signature
import standardwebhooks
import stripe
import svix.webhooks

from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import Incoming, RefusalReason, Refused, Taken, WebhookKeys
from quitclaim.providers.signatures import (
    CANDIDATES,
    Believed,
    SignatureSpec,
    instant_of,
    judge_hmac,
    parsed,
)
from tests.providers.signing import (
    BODY,
    NOW,
    OTHER,
    SECRET,
    Signer,
    a_hook,
    a_request,
    spec_of,
    with_webhooks,
)

HMACS = with_webhooks("hmac")


def keys(*secrets: str) -> WebhookKeys:
    return WebhookKeys(secrets=tuple(map(Secret, secrets or (SECRET,))))


def usable(spec: SignatureSpec) -> SignatureSpec:
    """For the secrets and the body of these tests: a body that says its own time, and a bare key, have their own."""
    is_inside = spec.timestamp is not None and spec.timestamp.at.startswith("body:")
    spec = replace(spec, key_decoding="whsec") if spec.key_decoding == "base64" else spec
    return replace(spec, timestamp=None) if is_inside else spec


def judged(spec: SignatureSpec, request: Incoming, *secrets: str, now: int = NOW) -> Believed | Refused:
    return judge_hmac(spec, request, keys(*secrets), now)


def refused(reason: RefusalReason) -> Refused:
    return Refused(reason)


# --- every entry of the catalogue ------------------------------------------------------------------------------------


@pytest.mark.rule("M-60", "S-9")
@pytest.mark.parametrize("provider", HMACS)
def test_what_a_provider_signs_is_believed(provider: str) -> None:
    """By the entry of the catalogue, with the first or the second of two live secrets."""
    spec = usable(spec_of(provider).signature)
    request = Signer(spec).signed(a_request())

    assert isinstance(judged(spec, request), Believed)
    assert isinstance(judged(spec, request, OTHER, SECRET), Believed)


@pytest.mark.rule("S-9", "RB-68")
@pytest.mark.parametrize("provider", HMACS)
def test_a_changed_byte_is_not(provider: str) -> None:
    """Each byte of the body, each character of the signature, and JSON that means the same."""
    spec = usable(spec_of(provider).signature)
    request = Signer(spec).signed(a_request())
    header = spec.headers[0]
    text = request.headers[header]

    for place in range(len(BODY)):
        flipped = BODY[:place] + bytes([BODY[place] ^ 1]) + BODY[place + 1 :]
        assert judged(spec, replace(request, body=flipped)) == refused(RefusalReason.SIGNATURE_WRONG)
    for same in (
        BODY + b"\n",
        b" " + BODY,
        json.dumps(json.loads(BODY)).encode(),
        BODY.replace(b"\\u00e9", b"\xc3\xa9"),
    ):
        assert judged(spec, replace(request, body=same)) == refused(RefusalReason.SIGNATURE_WRONG)
    for place in range(len(text)):
        flipped_text = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        changed = replace(request, headers={**request.headers, header: flipped_text})
        assert isinstance(judged(spec, changed), Refused), flipped_text


@pytest.mark.rule("S-9")
@pytest.mark.parametrize("provider", HMACS)
def test_another_secret_is_not(provider: str) -> None:
    """Nor none at all: without a key nothing is believed."""
    spec = usable(spec_of(provider).signature)
    request = Signer(spec).signed(a_request())

    assert judged(spec, request, OTHER) == refused(RefusalReason.SIGNATURE_WRONG)
    assert judge_hmac(spec, request, WebhookKeys(), NOW) == refused(RefusalReason.KEY_UNKNOWN)


@pytest.mark.rule("S-9")
@pytest.mark.parametrize("provider", HMACS)
def test_no_signature_is_none(provider: str) -> None:
    """Missing, empty, or without the provider's prefix."""
    spec = usable(spec_of(provider).signature)
    request = Signer(spec).signed(a_request())
    bare = {name: value for name, value in request.headers.items() if name not in spec.headers}

    assert judged(spec, replace(request, headers=bare)) == refused(RefusalReason.SIGNATURE_MISSING)
    for text in ("", " ", "x" * 10_000):
        empty = bare | dict.fromkeys(spec.headers, text)
        assert judged(spec, replace(request, headers=empty)) == refused(RefusalReason.SIGNATURE_MISSING)
    for text in ("?", "sha256", "v9=00", "é", "t=1,", "=" * 40):
        odd = judged(spec, replace(request, headers=bare | dict.fromkeys(spec.headers, text)))
        assert isinstance(odd, Refused), text


@pytest.mark.rule("S-10", "U-17")
@pytest.mark.parametrize("provider", [each for each in HMACS if usable(spec_of(each).signature).timestamp is not None])
def test_a_time_counts_within_the_providers_tolerance(provider: str) -> None:
    """One millisecond (or second, as the provider counts) more, either way, and it does not."""
    spec = spec_of(provider).signature
    assert spec.timestamp is not None
    step = 1_000 if spec.timestamp.unit == "s" else 1
    tolerance = spec.timestamp.tolerance_ms

    def at(instant: int) -> Believed | Refused:
        return judged(spec, Signer(spec, at=instant).signed(a_request()))

    assert at(NOW - tolerance + step) == Believed(NOW - tolerance + step)
    assert at(NOW - tolerance) == refused(RefusalReason.TIMESTAMP_OLD)
    assert at(NOW + tolerance - step) == Believed(NOW + tolerance - step)
    assert at(NOW + tolerance) == refused(RefusalReason.TIMESTAMP_AHEAD)


@pytest.mark.rule("S-10")
@pytest.mark.parametrize("provider", [each for each in HMACS if usable(spec_of(each).signature).timestamp is not None])
def test_a_time_is_part_of_what_is_signed(provider: str) -> None:
    """A fresh one put in its place makes the signature wrong; without one there is nothing to judge."""
    spec = spec_of(provider).signature
    assert spec.timestamp is not None
    where, _, name = spec.timestamp.at.partition(":")
    old, new = (Signer(spec, at=at).signed(a_request()) for at in (NOW - 86_400_000, NOW))
    if where == "header":
        moved = replace(old, headers={**old.headers, name: new.headers[name]})
        gone = replace(new, headers={key: value for key, value in new.headers.items() if key != name})
        odd = [replace(new, headers={**new.headers, name: said}) for said in ("soon", "1e9", "-1", "9" * 20)]
    else:
        header = spec.headers[0]
        times, rest = new.headers[header].split(",", 1)[0], old.headers[header].split(",", 1)[1]
        moved = replace(old, headers={**old.headers, header: f"{times},{rest}"})
        gone = replace(new, headers={**new.headers, header: new.headers[header].split(",", 1)[1]})
        odd = []

    assert judged(spec, moved) == refused(RefusalReason.SIGNATURE_WRONG)
    assert judged(spec, gone) == refused(RefusalReason.TIMESTAMP_MISSING)
    for each in odd:
        assert isinstance(judged(spec, each), Refused)


@pytest.mark.rule("S-11")
@pytest.mark.parametrize("provider", HMACS)
def test_half_a_surrogate_pair_is_no_failure_of_ours(provider: str) -> None:
    """In any header, the address or the method: a refusal like any other, not an exception."""
    spec = usable(spec_of(provider).signature)
    request = Signer(spec).signed(a_request())
    signed = [name for name in request.headers if name != "content-type"]
    odd = [replace(request, headers={**request.headers, name: "\ud800"}) for name in signed]

    assert all(isinstance(judged(spec, each), Refused) for each in odd)
    for each in (replace(request, url=request.url + "\udfff"), replace(request, method="\ud800")):
        judged(spec, each)


def test_a_time_inside_the_body_is_read_once_the_body_is_believed() -> None:
    """Linear signs it there: the header beside it, which nobody signed, says nothing."""
    spec = spec_of("linear").signature

    def sent(at: int | str | None) -> Incoming:
        body = json.dumps({"type": "Issue"} | ({} if at is None else {"webhookTimestamp": at})).encode()
        signed = Signer(spec).signed(a_request(body))
        return replace(signed, headers={**signed.headers, "linear-timestamp": str(NOW)})

    assert judged(spec, sent(NOW - 59_999)) == Believed(NOW - 59_999)
    assert judged(spec, sent(NOW - 60_000)) == refused(RefusalReason.TIMESTAMP_OLD)
    assert judged(spec, sent(None)) == refused(RefusalReason.TIMESTAMP_MISSING)
    assert judged(spec, sent("soon")) == refused(RefusalReason.TIMESTAMP_MALFORMED)
    assert judged(spec, replace(sent(NOW), body=b"{}")) == refused(RefusalReason.SIGNATURE_WRONG)


@pytest.mark.parametrize("provider", ["stripe-connect", "calendly", "gitlab"])
def test_of_several_signatures_one_is_enough(provider: str) -> None:
    """While a provider rotates it signs with both; so many that it is no rotation are refused."""
    spec = spec_of(provider).signature
    odd = tuple(f"v0{'=' if spec.separator == ',' else ','}x{number}" for number in range(3))

    both = Signer(spec, (OTHER, SECRET), extra=odd).signed(a_request())
    many = Signer(spec, (OTHER,) * CANDIDATES + (SECRET,)).signed(a_request())

    assert isinstance(judged(spec, both), Believed)
    assert judged(spec, many) == refused(RefusalReason.SIGNATURE_MALFORMED)


def test_the_second_header_of_a_pair_counts_as_well() -> None:
    """Box signs with a primary and a secondary key, each in a header of its own; either is enough, and both may fit."""
    spec = spec_of("box").signature

    for signer in (Signer(spec, (OTHER, SECRET)), Signer(spec, (SECRET, OTHER)), Signer(spec, (SECRET,))):
        assert isinstance(judged(spec, signer.signed(a_request())), Believed)
    assert judged(spec, Signer(spec, (OTHER, OTHER)).signed(a_request())) == refused(RefusalReason.SIGNATURE_WRONG)


@pytest.mark.rule("S-12")
def test_every_candidate_is_compared_with_every_key_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever fits first, the others are compared too; nothing else compares."""
    compared = []
    real = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append(len(other))
        return real(one, other)

    monkeypatch.setattr("quitclaim.providers.signatures.hmac.compare_digest", compare)
    spec = spec_of("stripe-connect").signature
    request = Signer(spec, (SECRET, OTHER)).signed(a_request())

    assert isinstance(judged(spec, request, SECRET, "third"), Believed)
    assert compared == [32] * 4


def test_one_signature_has_one_spelling() -> None:
    """Neither spaces, nor mixed case, nor signs that base64 would skip: what is spelled otherwise is malformed."""
    plain, based = spec_of("linear").signature, spec_of("xero").signature
    plain = replace(plain, timestamp=None)
    for spec, spoil in (
        (plain, str.title),
        (plain, lambda text: f"{text[:2]} {text[2:]}"),
        (based, lambda text: f"{text}\n="),
    ):
        request = Signer(spec).signed(a_request())
        header = spec.headers[0]
        assert isinstance(judged(spec, replace(request, headers={header: spoil(request.headers[header])})), Refused)


@pytest.mark.parametrize(
    ("said", "unit", "instant"),
    [
        ("1800000000", "s", 1_800_000_000_000),
        ("1800000000001", "ms", 1_800_000_000_001),
        ("2027-01-15T08:00:00Z", "rfc3339", 1_800_000_000_000),
        ("2027-01-15T09:00:00.5+01:00", "rfc3339", 1_800_000_000_500),
        ("2023-07-19T14:56:51.634234626Z", "rfc3339", 1_689_778_611_634),
        ("2027-01-15T08:00:00", "rfc3339", None),
        ("yesterday", "rfc3339", None),
        ("0001-01-01T00:00:00+23:59", "rfc3339", None),
        ("", "s", None),
        ("+1", "s", None),
        ("1.5", "s", None),
        ("٣", "s", None),
        ("99999999999999", "ms", None),
        ("9999999999999", "s", None),
    ],
)
def test_a_time_is_read_in_the_providers_unit(said: str, unit: str, instant: int | None) -> None:
    """Seconds, milliseconds or RFC 3339 with its offset; anything else is none."""
    assert instant_of(said, unit) == instant


@pytest.mark.rule("S-11")
def test_what_is_nested_too_deeply_is_not_read() -> None:
    """32 levels; a constant that JSON does not have, or a number without end, is no JSON."""
    assert parsed(b"[" * 32 + b"]" * 32) is not None
    for body in (b"[" * 33 + b"]" * 33, b"[" * 100_000, b"NaN", b"[Infinity]", b"\xff", b"", b"9" * 5_000):
        assert parsed(body) is None


# --- who else signs --------------------------------------------------------------------------------------------------


@pytest.fixture
def now() -> int:
    """The machine's own time: the libraries ask it."""
    return time.time_ns() // 1_000_000


@pytest.mark.rule("S-9")
@pytest.mark.parametrize("library", [standardwebhooks.Webhook, svix.webhooks.Webhook])
def test_standard_webhooks_in_both_directions(library: Any, now: int) -> None:
    """What `standardwebhooks` and `svix` sign is believed, what the entry signs they believe, and nothing else."""
    spec, theirs = spec_of("gitlab").signature, library(SECRET)
    when, text = instant(now), BODY.decode()
    sent = a_request()
    told = {
        "webhook-id": "m-1",
        "webhook-timestamp": str(now // 1000),
        "webhook-signature": theirs.sign("m-1", when, text),
    }

    assert isinstance(judged(spec, replace(sent, headers=told), now=now), Believed)
    assert judged(spec, replace(sent, headers=told), OTHER, now=now) == refused(RefusalReason.SIGNATURE_WRONG)
    assert judged(spec, replace(sent, headers=told | {"webhook-id": "m-2"}), now=now) == refused(
        RefusalReason.SIGNATURE_WRONG
    )
    aged = {
        "webhook-id": "m-1",
        "webhook-timestamp": str(now // 1000 - 301),
        "webhook-signature": theirs.sign("m-1", instant(now - 301_000), text),
    }
    assert judged(spec, replace(sent, headers=aged), now=now) == refused(RefusalReason.TIMESTAMP_OLD)

    ours = Signer(spec, at=now).signed(sent)
    theirs.verify(text, dict(ours.headers))
    for changed in (
        Signer(spec, (OTHER,), at=now).signed(sent),
        Signer(spec, at=now - 400_000).signed(sent),
        replace(ours, body=BODY + b" "),
    ):
        assert isinstance(judged(spec, changed, now=now), Refused)
        with pytest.raises((standardwebhooks.WebhookVerificationError, svix.webhooks.WebhookVerificationError)):
            theirs.verify(changed.body.decode(), dict(changed.headers))


@pytest.mark.rule("S-9")
def test_stripe_in_both_directions(now: int) -> None:
    """`stripe` signs with its secret as it is written, `whsec_` included."""
    spec, sent = spec_of("stripe-connect").signature, a_request()
    header = stripe.WebhookSignature.generate_signature_header(BODY.decode(), SECRET, now // 1000)

    assert isinstance(judged(spec, replace(sent, headers={"stripe-signature": header}), now=now), Believed)
    assert isinstance(judged(spec, replace(sent, headers={"stripe-signature": header}), OTHER, now=now), Refused)

    ours = Signer(spec, at=now).signed(sent)
    assert stripe.WebhookSignature.verify_header(BODY.decode(), ours.headers["stripe-signature"], SECRET, tolerance=300)
    for changed in (
        Signer(spec, (OTHER,), at=now).signed(sent),
        Signer(spec, at=now - 302_000).signed(sent),
        replace(ours, body=BODY + b" "),
    ):
        assert isinstance(judged(spec, changed, now=now), Refused)
        with pytest.raises(stripe.SignatureVerificationError):
            stripe.WebhookSignature.verify_header(
                changed.body.decode(), changed.headers["stripe-signature"], SECRET, tolerance=300
            )


@pytest.mark.rule("S-9")
def test_slack_in_both_directions(now: int) -> None:
    """`slack_sdk` signs and verifies as the entry says."""
    spec, theirs = spec_of("slack").signature, slack_sdk.signature.SignatureVerifier(SECRET)
    sent, said = a_request(), str(now // 1000)
    signature = theirs.generate_signature(timestamp=said, body=BODY)
    assert signature is not None
    told = {"x-slack-request-timestamp": said, "x-slack-signature": signature}

    assert isinstance(judged(spec, replace(sent, headers=told), now=now), Believed)
    assert isinstance(judged(spec, replace(sent, headers=told), OTHER, now=now), Refused)

    ours = Signer(spec, at=now).signed(sent)
    assert theirs.is_valid_request(BODY, dict(ours.headers))
    for changed in (
        Signer(spec, (OTHER,), at=now).signed(sent),
        Signer(spec, at=now - 302_000).signed(sent),
        replace(ours, body=BODY + b" "),
    ):
        assert isinstance(judged(spec, changed, now=now), Refused)
        assert not theirs.is_valid_request(changed.body, dict(changed.headers))


def instant(at: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at // 1000, UTC)


@pytest.mark.parametrize(
    "peer", ["standardwebhooks", "svix", "stripe", "slack_sdk", "cryptography", "PyJWT", "jwcrypto"]
)
def test_the_table_of_peers_names_each(peer: str) -> None:
    """docs/interop.md: who else signs or verifies, and where each published example stands."""
    page = (Path(__file__).parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")

    assert f"`{peer}`" in page
    assert [name for name, each in {**PUBLISHED, "Meta": META}.items() if f"]({each.published})" not in page] == []


# --- what providers publish ------------------------------------------------------------------------------------------

SLASH_COMMAND = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
BOX_BODY = (
    b'{"type":"webhook_event","webhook":{"id":"1234567890"},"trigger":"FILE.UPLOADED",'
    b'"source":{"id":"1234567890","type":"file","name":"Test.txt"}}'
)


@dataclass(frozen=True)
class Example:
    """A signed request that somebody else has published, and where."""

    provider: str
    at: int
    secret: str
    headers: dict[str, str]
    body: bytes
    published: str


BOX_HEADERS = {
    "box-delivery-timestamp": "2020-01-01T00:00:00-07:00",
    "box-signature-primary": "6TfeAW3A1PASkgboxxA5yqHNKOwFyMWuEXny/FPD5hI=",
    "box-signature-secondary": "v+1CD1Jdo3muIcbpv5lxxgPglOqMfsNHPV899xWYydo=",
}
BOX_TESTS = "https://github.com/box/box-python-sdk/blob/b858596aa61a23c39ca0978109aea76c1de111ec/test/unit/object/test_webhook.py"
PUBLISHED: Final = {
    "GitHub": Example(
        "github",
        NOW,
        "It's a Secret to Everybody",
        {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
        b"Hello, World!",
        "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
    ),
    "Octokit": Example(
        "github-app",
        NOW,
        "mysecret",
        {"x-hub-signature-256": "sha256=4864d2759938a15468b5df9ade20bf161da9b4f737ea61794142f3484236bda3"},
        b'{"foo":"bar"}',
        "https://github.com/octokit/webhooks-methods.js/blob/main/test/sign.test.ts",
    ),
    "Slack": Example(
        "slack",
        1_531_420_618_000,
        "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "x-slack-request-timestamp": "1531420618",
            "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLASH_COMMAND,
        "https://docs.slack.dev/authentication/verifying-requests-from-slack",
    ),
    "Svix": Example(
        "gitlab",
        1_731_705_121_000,
        "whsec_plJ3nmyCDGBKInavdOK15jsl",
        {
            "webhook-id": "msg_loFOjxBNrRLzqYUf",
            "webhook-timestamp": "1731705121",
            "webhook-signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        },
        b'{"event_type":"ping","data":{"success":true}}',
        "https://docs.svix.com/receiving/verifying-payloads/how-manual",
    ),
    "Standard Webhooks": Example(
        "gitlab",
        1_614_265_330_000,
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}',
        "https://github.com/standard-webhooks/standard-webhooks/blob/main/libraries/python/tests/test_webhooks.py",
    ),
    "Box, primary": Example("box", 1_577_862_000_000, "SamplePrimaryKey", BOX_HEADERS, BOX_BODY, BOX_TESTS),
    "Box, secondary": Example("box", 1_577_862_000_000, "SampleSecondaryKey", BOX_HEADERS, BOX_BODY, BOX_TESTS),
}
META: Final = Example(
    "facebook",
    NOW,
    "secret",
    {"content-type": "application/x-www-form-urlencoded"},
    b"signed_request=vlXgu64BQGFSQrY0ZcJBZASMvYvTHu9GQ0YM9rjPSso"
    b".eyJhbGdvcml0aG0iOiJITUFDLVNIQTI1NiIsIjAiOiJwYXlsb2FkIn0",
    "https://developers.facebook.com/docs/authentication/canvas",
)


@pytest.mark.rule("S-9")
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_example_that_a_provider_publishes_holds(name: str) -> None:
    """And with one byte changed it does not."""
    said = PUBLISHED[name]
    spec, request = spec_of(said.provider).signature, replace(a_request(said.body), headers=said.headers)
    changed = replace(request, body=said.body + b"\n")

    assert isinstance(judged(spec, request, said.secret, now=said.at), Believed)
    assert judged(spec, changed, said.secret, now=said.at) == refused(RefusalReason.SIGNATURE_WRONG)
    assert judged(spec, request, OTHER, now=said.at) == refused(RefusalReason.SIGNATURE_WRONG)


@pytest.mark.rule("S-9")
def test_the_signed_request_that_meta_publishes_holds() -> None:
    """And with one byte changed it does not."""
    request = replace(a_request(META.body), headers=META.headers)

    assert isinstance(a_hook(META.provider, META.secret).read(request, META.at), Taken)
    assert a_hook(META.provider, OTHER).read(request, META.at) == refused(RefusalReason.SIGNATURE_WRONG)
    changed = replace(request, body=META.body.replace(b"IjAi", b"IjEi"))
    assert a_hook(META.provider, META.secret).read(changed, META.at) == refused(RefusalReason.SIGNATURE_WRONG)


@pytest.mark.rule("S-9", "RB-68")
@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"\\u001B"}',
        b'{"a":"\\u001b"}',
        '{"a":"😀"}'.encode(),
        b'{"a":"\\ud83d\\ude00"}',
        b'{"b":1,"a":2}\n',
        b"{}",
    ],
)
def test_the_bytes_that_were_sent_are_what_is_judged(body: bytes) -> None:
    """However a body spells what it means: case of escapes, emoji, order of members, a newline at its end."""
    hook, spec = a_hook("github"), spec_of("github").signature

    assert isinstance(hook.read(Signer(spec).signed(a_request(body)), NOW), Taken)


def test_a_signature_over_an_encoded_key() -> None:
    """Airtable's key is base64; one that is none is no key."""
    spec = spec_of("airtable").signature
    secret = base64.b64encode(b"key").decode()
    request = Signer(spec, (secret,)).signed(a_request())

    assert isinstance(judged(spec, request, secret), Believed)
    assert judged(spec, request, "no base64!") == refused(RefusalReason.KEY_UNKNOWN)
