"""One call inside one budget: against sockets that hang, drip, break and lie, blocking and in an event loop."""

import asyncio
import datetime
import gzip
import logging
import socket
import ssl
import threading
import time
import zlib

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quitclaim.providers import transport
from quitclaim.providers.transport import (
    ANSWER_CAP,
    NoAnswer,
    OutgoingRequest,
    PinnedTransport,
    RawAnswer,
    async_http,
    resolved,
    send,
    send_async,
    sync_http,
)
from tests.providers.scripted import ScriptedServer, response, says

GRANT = b'{"access_token": "canary-token"}'
BUDGET_MS = 250
SLACK_S = 1.0  # how much later than its budget a call may end on a busy machine


def a_request(server, path="/token"):
    return OutgoingRequest("POST", f"http://127.0.0.1:{server.port}{path}", {"X-Canary": "canary"}, b"code=canary")


def call_blocking(request, budget_ms):
    with sync_http() as http:
        return send(http, request, budget_ms)


def call_in_loop(request, budget_ms):
    async def call():
        async with async_http() as http:
            return await send_async(http, request, budget_ms)

    return asyncio.run(call())


@pytest.fixture(params=[call_blocking, call_in_loop], ids=["blocking", "in loop"])
def call(request):
    """Both ways of calling; each must keep every promise."""
    return request.param


def timed(call, request, budget_ms=BUDGET_MS):
    """The answer; fails if the call took much longer than its budget."""
    begun = time.monotonic()
    answer = call(request, budget_ms)
    assert time.monotonic() - begun < budget_ms / 1000 + SLACK_S
    return answer


# --- answers ------------------------------------------------------------------------------------------------------


def test_an_answer_comes_back_as_it_is(call):
    """Status, body, type and what it says of retrying."""
    headers = ("Retry-After: 7", "WWW-Authenticate: Bearer error=x")
    with ScriptedServer(says(response(GRANT, *headers, status="429 Too Many Requests"))) as server:
        answer = timed(call, a_request(server), 5000)

    assert answer == RawAnswer(429, GRANT, "application/json", 7000, has_bearer_challenge=True, complete=True)
    assert server.requests[0].startswith(b"POST /token HTTP/1.1\r\n")
    assert server.requests[0].endswith(b"\r\n\r\ncode=canary")
    assert f"127.0.0.1:{server.port}".encode() in server.requests[0]


def test_an_answer_in_pieces_is_put_together(call):
    """Chunked, or ended by the close of the connection."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with ScriptedServer(says(chunked)) as server:
        assert timed(call, a_request(server), 5000).body == b"abcde"
    with ScriptedServer(says(b"HTTP/1.1 200 OK\r\n\r\nabc", then_close=True)) as server:
        assert timed(call, a_request(server), 5000) == RawAnswer(200, b"abc")


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", gzip.compress(GRANT)), ("deflate", zlib.compress(GRANT)), ("x-gzip", gzip.compress(GRANT))],
    ids=["gzip", "deflate", "x-gzip"],
)
def test_a_compressed_answer_is_read_though_none_was_asked_for(call, coding, body):
    """A grant may be inside."""
    with ScriptedServer(says(response(body, f"Content-Encoding: {coding}"))) as server:
        answer = timed(call, a_request(server), 5000)

    assert (answer.body, answer.complete) == (GRANT, True)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"0" * 5_000_000, mtime=0)),  # a bomb
        ("gzip", gzip.compress(GRANT, mtime=0)[:-9]),
        ("gzip", b"no gzip"),
        ("br", b"whatever"),
    ],
)
def test_a_compressed_answer_that_cannot_be_read_whole_is_incomplete(call, coding, body):
    """Never more than the cap is unpacked."""
    with ScriptedServer(says(response(body, f"Content-Encoding: {coding}"))) as server:
        answer = timed(call, a_request(server), 5000)

    assert not answer.complete
    assert len(answer.body) <= ANSWER_CAP


@pytest.mark.parametrize(("size", "complete"), [(ANSWER_CAP, True), (ANSWER_CAP + 1, False), (3_000_000, False)])
def test_an_answer_has_a_size(call, size, complete):
    """64 KiB are read, and no more."""
    with ScriptedServer(says(response(b"x" * size))) as server:
        answer = timed(call, a_request(server), 5000)

    assert (len(answer.body), answer.complete) == (min(size, ANSWER_CAP), complete)


# --- no answer ----------------------------------------------------------------------------------------------------


def closes(connection, request):
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("budget_ms", [0, -1])
def test_without_time_nothing_is_sent(call, budget_ms):
    """Not even a connection is made."""
    with ScriptedServer(says(response(GRANT))) as server:
        assert call(a_request(server), budget_ms) == NoAnswer(sent=False, reason="no_time")
        assert server.connections == 0


def test_a_refused_connection_sent_nothing(call):
    """Nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    request = OutgoingRequest("POST", f"http://127.0.0.1:{port}/token", {})

    assert timed(call, request, 5000) == NoAnswer(sent=False, reason="not_connected")


def test_a_handshake_that_fails_sent_nothing(call):
    """TLS is spoken to a server that speaks none."""
    with ScriptedServer(closes, greeting=b"220 mail.example.com\r\n") as server:
        request = OutgoingRequest("POST", f"https://127.0.0.1:{server.port}/token", {}, b"code=canary")
        answer = timed(call, request, 5000)

    assert answer == NoAnswer(sent=False, reason="not_connected")


@pytest.mark.parametrize(
    "script",
    [
        closes,
        says(b"HTTP/1.1 200 OK\r\nContent-", then_close=True),
        says(b"nonsense\r\n\r\n", then_close=True),
    ],
)
def test_a_connection_lost_after_the_send_leaves_the_outcome_unknown(call, script):
    """The provider may have acted."""
    with ScriptedServer(script) as server:
        answer = timed(call, a_request(server), 5000)

    assert answer == NoAnswer(sent=True, reason="connection_lost")
    assert len(server.requests) == 1


@pytest.mark.rule("S-6")
def test_S_6_a_lost_request_is_not_sent_again(call):
    """At most one request, whatever happens to it."""
    with ScriptedServer(closes) as server:
        for _ in range(3):
            call(a_request(server), 5000)

    assert len(server.requests) == 3


def test_an_answer_cut_off_is_told_apart(call):
    """What arrived is kept, and known not to be all."""
    with ScriptedServer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + GRANT, then_close=True)) as server:
        answer = timed(call, a_request(server), 5000)

    assert (answer.status, answer.body, answer.complete) == (200, GRANT, False)


# --- the budget ---------------------------------------------------------------------------------------------------


def hangs(connection, request):
    connection.recv(1)


def drips(first):
    def script(connection, request):
        connection.sendall(first)
        while True:
            time.sleep(0.02)
            connection.sendall(b"x")

    return script


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("script", [hangs, drips(b"HTTP/1.1 200 OK\r\nX: ")], ids=["silence", "dripping head"])
def test_a_call_ends_with_its_budget(call, script):
    """A server that says nothing, or a byte of its head now and then, does not hold the function."""
    with ScriptedServer(script) as server:
        answer = timed(call, a_request(server))

    assert answer == NoAnswer(sent=True, reason="timeout")


@pytest.mark.parametrize("head", [HEAD + b"Content-Length: 999\r\n\r\n", HEAD + b"\r\n"], ids=["counted", "to the end"])
def test_a_dripping_body_ends_with_the_budget(call, head):
    """The time-out of the library is per read and would never come; the end of the connection is not the body's end."""
    with ScriptedServer(drips(head)) as server:
        answer = timed(call, a_request(server))

    assert isinstance(answer, NoAnswer) or not answer.complete
    assert isinstance(answer, RawAnswer) or answer == NoAnswer(sent=True, reason="timeout")


def test_a_handshake_that_hangs_ends_with_the_budget(call):
    """Connected, and then nothing: TLS never begins."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        request = OutgoingRequest("POST", f"https://127.0.0.1:{silent.getsockname()[1]}/token", {}, b"code=canary")
        answer = timed(call, request)

    assert isinstance(answer, NoAnswer)


def test_a_name_that_does_not_resolve_in_time_ends_with_the_budget(monkeypatch):
    """The system's resolver has no time-out of its own."""
    held = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: held.wait(5) and [])
    request = OutgoingRequest("POST", "https://acme.example.com/token", {})

    assert timed(call_blocking, request) == NoAnswer(sent=False, reason="not_connected")
    held.set()


# --- where it goes (S-8) ------------------------------------------------------------------------------------------


@pytest.mark.rule("S-8")
def test_a_name_that_points_inside_is_not_called():
    """DNS rebinding: every address is judged, and with no good one nothing is sent."""
    asked = []

    def resolver(host, port, seconds):
        asked.append((host, port))
        return ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1"]

    with ScriptedServer(says(response(GRANT))) as server, sync_http(PinnedTransport(resolver)) as http:
        request = OutgoingRequest("POST", f"http://acme.example.com:{server.port}/token", {})
        answer = send(http, request, 2000)

    assert answer == NoAnswer(sent=False, reason="not_connected")
    assert (asked, server.connections) == ([("acme.example.com", server.port)], 0)


@pytest.mark.rule("S-8")
def test_a_name_that_points_inside_is_not_called_in_a_loop(monkeypatch):
    """The same on aiohttp."""
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: inside)
    with ScriptedServer(says(response(GRANT))) as server:
        request = OutgoingRequest("POST", f"http://acme.example.com:{server.port}/token", {})
        answer = call_in_loop(request, 2000)

    assert answer == NoAnswer(sent=False, reason="not_connected")
    assert server.connections == 0


def test_localhost_leads_to_this_machine(call):
    """For the local stack: the name passes, and an address that refuses is followed by the next."""
    with ScriptedServer(says(response(GRANT))) as server:
        answer = timed(call, OutgoingRequest("POST", f"http://localhost:{server.port}/token", {}), 5000)

    assert answer.body == GRANT


def test_a_host_that_refuses_is_followed_by_its_next_address():
    """Nothing was sent yet; the request itself goes out once, to the name it is for."""
    with ScriptedServer(says(response(GRANT))) as server:
        transport_ = PinnedTransport(lambda host, port, seconds: ["127.0.0.3", "127.0.0.1"])
        with sync_http(transport_) as http:
            answer = send(http, OutgoingRequest("POST", f"http://localhost:{server.port}/token", {}, b"x"), 5000)

    assert answer.body == GRANT
    assert len(server.requests) == 1
    assert f"Host: localhost:{server.port}".encode().lower() in server.requests[0].lower()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A server's context with a certificate for provider.test, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider.test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = serialization.NoEncryption()
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cafile=str(pem))
    return server, client


def test_the_certificate_is_checked_against_the_name(tls):
    """The connection goes to an address, the certificate must be for the name."""
    server_side, client_side = tls
    with (
        ScriptedServer(says(response(GRANT)), server_side) as server,
        sync_http(PinnedTransport(lambda *_: ["127.0.0.1"], client_side)) as http,
    ):
        right = send(http, OutgoingRequest("POST", f"https://localhost:{server.port}/token", {}), 5000)
        wrong = send(http, OutgoingRequest("POST", f"https://127.0.0.1:{server.port}/token", {}), 5000)

    assert right.body == GRANT
    assert wrong == NoAnswer(sent=False, reason="not_connected")
    assert len(server.requests) == 1


def test_a_certificate_nobody_vouches_for_is_refused(call, tls):
    """By default the public authorities decide."""
    with ScriptedServer(says(response(GRANT)), tls[0]) as server:
        answer = timed(call, OutgoingRequest("POST", f"https://localhost:{server.port}/token", {}), 5000)

    assert answer == NoAnswer(sent=False, reason="not_connected")
    assert server.requests == []


def test_a_dripping_answer_over_tls_ends_with_the_budget(tls):
    """The cut works under TLS too."""
    with (
        ScriptedServer(drips(b"HTTP/1.1 200 OK\r\nX: "), tls[0]) as server,
        sync_http(PinnedTransport(lambda *_: ["127.0.0.1"], tls[1])) as http,
    ):
        request = OutgoingRequest("POST", f"https://localhost:{server.port}/token", {})
        answer = timed(lambda asked, budget: send(http, asked, budget), request)

    assert answer == NoAnswer(sent=True, reason="timeout")


@pytest.mark.parametrize("host", ["no.such.name.invalid", "a" * 64 + ".example.com", "xn--a.invalid"])
def test_a_name_that_is_none_raises_one_error(host, monkeypatch):
    """Whatever the resolver thinks of it."""

    def unknown(*_, **__):
        raise socket.gaierror("unknown")

    if host.startswith("no"):
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    else:
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: host.encode("idna") and unknown())
    with pytest.raises(OSError, match=r"name|unknown"):
        resolved(host, 443, 1.0)


# --- what a call leaves behind ------------------------------------------------------------------------------------


@pytest.mark.rule("S-6", "S-8")
def test_no_redirect_is_followed(call):
    """A provider cannot send a grant's request elsewhere (S-6, S-8)."""
    with ScriptedServer(says(response(b""))) as other:
        moved = response(b"", f"Location: http://127.0.0.1:{other.port}/", status="307 Temporary Redirect")
        with ScriptedServer(says(moved)) as server:
            assert timed(call, a_request(server), 5000).status == 307
        assert other.connections == 0


def test_no_cookie_travels_from_one_grant_to_the_next():
    """What a provider sets on one call is not sent with another."""
    baked = response(GRANT, "Set-Cookie: session=canary; Path=/")
    with ScriptedServer(says(baked)) as server:
        with sync_http() as http:
            for _ in range(2):
                send(http, a_request(server), 5000)

        async def twice():
            async with async_http() as http:
                for _ in range(2):
                    await send_async(http, a_request(server), 5000)

        asyncio.run(twice())

    assert len(server.requests) == 4
    assert not any(b"cookie" in request.lower() for request in server.requests)


def test_exchange_and_refresh_never_use_an_old_connection():
    """One that died while the function was frozen would make the outcome unknown for no reason."""
    with ScriptedServer(says(response(GRANT))) as server, sync_http() as http:
        for _ in range(3):
            send(http, a_request(server), 5000)

    assert server.connections == 3


def test_revocations_share_connections():
    """Many to one provider in one run."""

    async def calls(server):
        async with async_http() as http:
            for _ in range(3):
                await send_async(http, a_request(server), 5000)

    with ScriptedServer(says(response(GRANT))) as server:
        asyncio.run(calls(server))

    assert (len(server.requests), server.connections) == (3, 1)


def test_the_environment_does_not_decide(call, monkeypatch):
    """No proxy, no netrc."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ScriptedServer(says(response(GRANT))) as server:
        assert timed(call, a_request(server), 5000).body == GRANT


@pytest.mark.rule("S-13", "I-17")
def test_S_13_nothing_is_logged(call, caplog):
    """Not at the lowest level, neither for an answer nor for a fault."""
    with caplog.at_level(logging.DEBUG), ScriptedServer(says(response(GRANT))) as server:
        call(a_request(server, "/token?canary=1"), 5000)
        call(OutgoingRequest("POST", "http://127.0.0.1:9/canary", {}), 2000)

    http_lines = [line for line in caplog.records if line.name.partition(".")[0] in ("httpx", "httpcore", "aiohttp")]
    assert http_lines == []
    assert "canary" not in caplog.text


def test_nothing_of_an_answer_prints():
    """Body and URL stay out of any repr."""
    answer = RawAnswer(200, GRANT, "application/json")
    request = OutgoingRequest("POST", "https://acme.example.com/canary", {"Authorization": "canary"}, b"canary")

    assert "canary" not in repr(answer) + repr(request)


def test_a_broken_url_is_an_answer_too():
    """No exception of the library leaves, whatever it is asked."""
    with sync_http() as http:
        for url in ("https://", "ftp://acme.example.com/", "http://[::1/", "acme"):
            assert send(http, OutgoingRequest("POST", url, {}), 1000) == NoAnswer(sent=False, reason="not_connected")


def test_tests_may_give_the_transport():
    """An injected transport is asked instead of the network."""
    asked = []

    def provider(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.path == "/late":
            raise httpx.ReadTimeout("canary")
        return httpx.Response(200, json={"access_token": "a"})

    with sync_http(httpx.MockTransport(provider)) as http:
        answer = send(http, OutgoingRequest("POST", "https://acme.example.com/token", {}, b"x"), 1000)
        late = send(http, OutgoingRequest("POST", "https://acme.example.com/late", {}, b"x"), 1000)

    assert (answer.status, late) == (200, NoAnswer(sent=True, reason="timeout"))
    assert asked[0].content == b"x"


def test_the_tls_context_is_made_once():
    """It costs more than a request."""
    assert transport.tls_context() is transport.tls_context()
    assert transport.tls_context().verify_mode is ssl.CERT_REQUIRED
    assert transport.tls_context().check_hostname
    assert transport.tls_context().minimum_version >= ssl.TLSVersion.TLSv1_2
