"""
A security event through the whole stack: signed by a library that is not ours, under keys that an issuer publishes;
what follows is seen at the app's API, at the app's end of the event bus, and at the provider.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from infra.local.demo import Listener
from infra.local.life import Life, RegisteredClient, register_client, until
from infra.local.provider.control import ProviderControl
from infra.local.stack import LocalStack
from quitclaim.domain.security_events import OAUTH
from tests.fakes.issuer import key, published, signed
from tests.story.conftest import RETURN_ORIGIN

ISSUER = "https://events.provider.example"
AUDIENCE = "quitclaim-story"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """
    A stack of its own, whose clock nobody has moved: what an issuer says of time is real time, and a word from before a
    grant of a moved clock would rightly end nothing.
    """
    parameters = {"ReturnOrigins": RETURN_ORIGIN}
    with LocalStack(tmp_path_factory.mktemp("issuer"), provider=True, schedules=False, parameters=parameters) as stack:
        yield stack


@pytest.fixture(scope="module")
def provider(stack: LocalStack) -> Iterator[ProviderControl]:
    """Its provider's control paths."""
    with ProviderControl(stack.provider_url, stack.provider_accounts) as control:
        yield control


@pytest.fixture(scope="module")
def client(stack: LocalStack, provider: ProviderControl) -> RegisteredClient:
    """Its OAuth client."""
    return register_client(stack, provider)


@contextmanager
def an_issuer() -> Iterator[str]:
    """Where its keys are published, on loopback."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(published(key("k1"))).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        server.shutdown()
        thread.join()


def read_settings_anew(stack: LocalStack, function: str) -> None:
    """Settings count within five minutes; a worker that starts reads them at once, so each is replaced by another."""

    def pids() -> set[int | None]:
        return {each["pid"] for each in stack.status()["functions"][function]}

    old = pids()
    for pid in old - {None}:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    until(lambda: True if not (old | {None}) & pids() else None, "new workers", lambda: "old ones", 60)


@pytest.mark.rule("S-24", "RB-72", "RB-59")
def test_a_word_of_the_issuer_stops_the_connection_once(stack: LocalStack, a_life: Callable[..., Life]) -> None:
    """
    Sent five times, and acknowledged five times: the connection needs a reconnect, the app hears of it once, and the
    grant is dead at the provider. One signed by somebody else ends nothing.
    """
    life, other, listener = a_life(username="alice"), a_life(username="bob"), Listener(stack)
    for each in (life, other):
        each.connect()
    subject = {"subject_type": "iss-sub", "iss": ISSUER, "sub": life.provider.accounts["alice"]["sub"]}

    def token(jti: str, by: str) -> bytes:
        now = stack.now_ms() // 1000
        claims = {"iss": ISSUER, "aud": AUDIENCE, "jti": jti, "iat": now, "toe": now}
        claims |= {"events": {f"{OAUTH}tokens-revoked": {"subject": subject}}}
        return signed(claims, key(by), typ="secevent+jwt").encode()

    with an_issuer() as keys, httpx.Client(base_url=stack.base_url, timeout=35) as http:
        settings = {"issuer": ISSUER, "audience": [AUDIENCE], "jwks_uri": keys, "client": life.client.name}
        stack.boto3_client("ssm").put_parameter(
            Name=f"{stack.config_path}/events/story", Value=json.dumps(settings), Type="String"
        )

        read_settings_anew(stack, "connect")

        def sent(jti: str, by: str = "k1") -> int:
            headers = {"content-type": "application/secevent+jwt", "accept": "application/json"}
            return http.post("/events/story", content=token(jti, by), headers=headers).status_code

        assert sent("not-signed", "k2") == 400
        assert [sent("left") for _ in range(5)] == [202] * 5

    stack.advance(31)
    stack.fire("reconcile")  # what is durable is handed on by the schedule
    until(lambda: True if life.state == "needs_reconnect" else None, "needs_reconnect", lambda: life.state, 60)
    until(
        lambda: True if listener.hears("connection.needs_reconnect", life.owner) else None,
        "the loss on the bus",
        lambda: ", ".join(each["kind"] for each in listener.heard.values()),
        60,
    )
    losses = [each for each in listener.heard.values() if each["kind"] == "connection.needs_reconnect"]
    assert [(each["owner"], each["reason"]) for each in losses if each["owner"] in (life.owner, other.owner)] == [
        (life.owner, "grant_rejected")
    ]
    life.revoked_by_the_kick()
    assert other.state == "ready"
    assert len(other.living()) == 1
