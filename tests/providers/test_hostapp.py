"""
Asking the app: over real sockets, verified by the library of Standard Webhooks; and what each answer means.
"""

import base64
import json
import time
from dataclasses import replace

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from quitclaim.domain.errors import KeyUnavailableError
from quitclaim.domain.hooks import Hook, HookCall, HookKind, HookOutcome, HookWord
from quitclaim.domain.limits import HOOK_PAUSE_MS
from quitclaim.domain.secret import Secret
from quitclaim.hostapp import HostApp
from quitclaim.providers.transport import NoAnswer, RawAnswer, send, sync_http
from tests.providers.scripted import ScriptedServer, response, says

AT = 1_796_038_850_253
CALL = HookCall(HookKind.PURGE, "hook_0123456789abcdef", AT, {"tenant": "acme", "owner": "ann", "generation": 1})
OLD, NEW = ("whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:purge"


class App:
    """A host app as the product sees it: its settings, its secrets, and what it was asked."""

    def __init__(self, hook, *, secrets=(OLD,), answer=None, invoked=None, loopback=False):
        self.sent = []
        self.now = int(time.time() * 1000)
        self.secrets = list(secrets)
        self.answer = answer or RawAnswer(204)

        def sends(request, timeout_ms):
            self.sent.append(request)
            assert timeout_ms == 4_000
            return self.answer

        def invokes(function, payload, timeout_ms):
            self.sent.append((function, json.loads(payload)))
            return invoked

        self.hostapp = HostApp(
            lambda: {HookKind.PURGE: hook},
            self.secret,
            sends,
            invokes,
            lambda: self.now,
            allow_loopback=lambda: loopback,
        )

    def secret(self, ref):
        """Those of the hook, by their place."""
        found = self.secrets[int(ref[-1])]
        if isinstance(found, Exception):
            raise found
        return Secret(found)


def over_https(url="https://app.example/hooks", secrets=1):
    """A hook at a URL."""
    return Hook(HookKind.PURGE, url, tuple(f"ssm:/hooks/{number}" for number in range(secrets)))


# --- signed -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-8")
def test_a_request_is_verified_by_the_library_of_the_standard():
    """Id, time and signature; the body says what is asked, in one envelope."""
    app = App(over_https())

    answer = app.hostapp.ask(CALL)

    (request,) = app.sent
    assert answer.is_done
    told = Webhook(OLD).verify(request.body, dict(request.headers))
    assert told == {
        "version": 1,
        "type": "purge",
        "timestamp": "2026-11-30T11:40:50.253Z",
        "data": {"tenant": "acme", "owner": "ann", "generation": 1},
    }
    assert request.headers["webhook-id"] == CALL.id
    assert (request.method, request.url) == ("POST", "https://app.example/hooks")


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_while_a_secret_is_replaced_either_verifies(secret):
    """Two live secrets, two signatures."""
    app = App(over_https(secrets=2), secrets=[OLD, NEW])

    app.hostapp.ask(CALL)

    (request,) = app.sent
    assert Webhook(secret).verify(request.body, dict(request.headers))


@pytest.mark.parametrize("spoil", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_nothing_of_it_can_be_changed(spoil):
    """Control: the library refuses a flipped byte, another id, another time, another secret."""
    app = App(over_https())
    app.hostapp.ask(CALL)
    (request,) = app.sent
    headers, body = dict(request.headers), request.body
    if spoil == "body":
        body = body.replace(b"ann", b"bob")
    elif spoil != "secret":
        headers[spoil] = str(int(headers[spoil]) + 1) if spoil == "webhook-timestamp" else "hook_other"

    with pytest.raises(WebhookVerificationError):
        Webhook(NEW if spoil == "secret" else OLD).verify(body, headers)


@pytest.mark.parametrize("secret", ["plain", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!", KeyUnavailableError("away")])
def test_without_a_signing_key_nothing_leaves(secret):
    """One that is no key of the standard, too short, or not at hand now."""
    app = App(over_https(), secrets=[secret])

    assert app.hostapp.ask(CALL).outcome is HookOutcome.UNREACHED
    assert app.sent == []


# --- where to ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(
    "url",
    [
        "http://app.example/hooks",
        "https://127.0.0.1/hooks",
        "http://127.0.0.1:8000/hooks",
        "https://169.254.169.254/latest/meta-data",
        "https://metadata.google.internal/",
        "https://user@app.example/",
        "https://10.0.0.1/",
        "https://[::1]/",
        "nonsense",
        "",
    ],
)
def test_only_a_public_https_address_is_asked(url):
    """Judged by its text here, and by its address when the connection is made."""
    app = App(over_https(url))

    assert app.hostapp.ask(CALL).reason == "address_not_allowed"
    assert app.sent == []


def test_a_hook_whose_parameter_does_not_hold_is_asked_in_vain():
    """It is never left out: a purge that nobody can ask for is not done."""
    app = App(None)

    assert app.hostapp.has(HookKind.PURGE)
    assert app.hostapp.ask(CALL).outcome is HookOutcome.UNREACHED
    assert not app.hostapp.has(HookKind.WEBHOOK_ACCEPTED)


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (RawAnswer(200), HookOutcome.DONE),
        (RawAnswer(204), HookOutcome.DONE),
        (RawAnswer(200, b"thanks"), HookOutcome.DONE),
        (RawAnswer(200, b'{"status": "done"}'), HookOutcome.DONE),
        (RawAnswer(200, b'{"status": "later"}'), HookOutcome.LATER),
        (RawAnswer(202, b'{"status": "admitted"}'), HookOutcome.LATER),
        (RawAnswer(400, b'{"status": "admitted"}'), HookOutcome.FAILED),
        (RawAnswer(202), HookOutcome.LATER),
        (RawAnswer(302), HookOutcome.FAILED),
        (RawAnswer(400), HookOutcome.FAILED),
        (RawAnswer(410), HookOutcome.FAILED),
        (RawAnswer(500), HookOutcome.FAILED),
        (NoAnswer(sent=True, reason="timeout"), HookOutcome.UNREACHED),
        (NoAnswer(sent=False, reason="refused_address"), HookOutcome.UNREACHED),
    ],
)
def test_what_an_answer_means(answer, outcome):
    """2xx is done, 202 or "later" is later, a redirect is followed by nobody, silence is no answer."""
    assert App(over_https(), answer=answer).hostapp.ask(CALL).outcome is outcome


class Told:
    """What an invocation came to."""

    def __init__(self, payload=b"null", *, failed=False):
        self.payload, self.failed = payload, failed


@pytest.mark.parametrize(
    ("invoked", "outcome"),
    [
        (Told(), HookOutcome.DONE),
        (Told(b'{"status": "done"}'), HookOutcome.DONE),
        (Told(b'{"status": "later"}'), HookOutcome.LATER),
        (Told(b'{"errorMessage": "x"}', failed=True), HookOutcome.FAILED),
        (None, HookOutcome.UNREACHED),
    ],
)
def test_a_function_is_invoked_with_the_same_words(invoked, outcome):
    """And the id beside them, since there are no headers."""
    app = App(Hook(HookKind.PURGE, function=FUNCTION), invoked=invoked)

    assert app.hostapp.ask(CALL).outcome is outcome
    ((function, payload),) = app.sent
    assert function == FUNCTION
    assert (payload["id"], payload["type"], payload["data"]) == (CALL.id, "purge", dict(CALL.data))


@pytest.mark.rule("M-44", "M-74")
@pytest.mark.parametrize(
    ("said", "word"),
    [
        (b"", None),
        (b'"admitted"', None),
        (b'{"status": "ADMITTED"}', None),
        (b'{"status": ["admitted"]}', None),
        (b'{"status": "done"}', None),
        *((b'{"status": "%s"}' % word.encode(), word) for word in HookWord),
    ],
)
def test_an_answer_is_read_for_one_word(said, word):
    """The same over HTTPS and from a function; with anything else the app has said nothing but that it is done."""
    over = App(over_https(), answer=RawAnswer(200, said)).hostapp.ask(CALL)
    invoked = App(Hook(HookKind.PURGE, function=FUNCTION), invoked=Told(said)).hostapp.ask(CALL)

    assert over == invoked
    assert (over.outcome, over.word) == (HookOutcome.DONE, word)


def test_who_does_not_answer_is_not_asked_again_at_once():
    """For half a minute: a run with a hundred stops does not wait a hundred times."""
    app = App(over_https(), answer=NoAnswer(sent=True, reason="timeout"))
    app.hostapp.ask(CALL)

    assert app.hostapp.ask(CALL).reason == "paused"
    app.now += HOOK_PAUSE_MS
    app.answer = RawAnswer(204)
    assert app.hostapp.ask(CALL).is_done
    assert len(app.sent) == 2


def test_a_hook_that_a_user_waits_for_is_asked_each_time():
    """One that went unanswered says nothing of the next user's callback."""
    app = App(Hook(HookKind.CONNECTION_ESTABLISHING, function=FUNCTION), invoked=None)
    call = replace(CALL, kind=HookKind.CONNECTION_ESTABLISHING)

    assert [app.hostapp.ask(call).reason for _ in range(2)] == [app.hostapp.ask(call).reason] * 2
    assert app.hostapp.ask(call).reason != "paused"


def test_an_answer_that_is_too_deep_says_nothing():
    """It is no reason to fail."""
    answer = App(over_https(), answer=RawAnswer(200, b"[" * 60_000)).hostapp.ask(CALL)

    assert (answer.outcome, answer.word) == (HookOutcome.DONE, None)


def test_a_body_has_a_bound():
    """A megabyte; more is refused before it is signed."""
    app = App(over_https())

    answer = app.hostapp.ask(HookCall(HookKind.PURGE, "hook_1", AT, {"text": "x" * 1024 * 1024}))

    assert answer.reason == "too_large"
    assert app.sent == []


# --- over a socket ----------------------------------------------------------------------------------------------------


def asked(server, timeout_ms=4_000):
    """The app's answer over a real connection, as the local stack would ask it."""
    http = sync_http()
    hook = over_https(f"http://127.0.0.1:{server.port}/hooks")
    hostapp = HostApp(
        lambda: {HookKind.PURGE: hook},
        lambda ref: Secret(OLD),
        lambda request, budget: send(http, request, budget),
        lambda *_: None,
        lambda: int(time.time() * 1000),
        allow_loopback=lambda: True,
    )
    return hostapp.ask(CALL, timeout_ms)


def test_over_a_real_connection_it_arrives_as_it_was_signed():
    """What the server read is what the library verifies."""
    with ScriptedServer(says(response(b"{}"))) as server:
        assert asked(server).is_done

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:])
    assert Webhook(OLD).verify(body, {name.lower(): value for name, value in headers.items()})


def hangs(connection, request):
    """Reads, and says nothing."""
    time.sleep(0.5)


def test_one_that_hangs_is_given_up_in_time():
    """Within the budget, whatever it does."""
    with ScriptedServer(hangs) as server:
        began = time.monotonic()
        answer = asked(server, 200)

    assert answer.outcome is HookOutcome.UNREACHED
    assert time.monotonic() - began < 2
