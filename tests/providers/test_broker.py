"""Brokers in the catalogue: what a file must say, what is asked, and what an answer means."""

import copy
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import Outcome
from quitclaim.domain.secret import Secret
from quitclaim.providers.broker import HttpBroker
from quitclaim.providers.compile import CatalogueError, compiled_text
from quitclaim.providers.spec import ProviderSpec, spec_of
from tests.fakes.broker import API, ENTRY, broker_spec

CLIENT = ProviderClient("health", "acme", "client-1", "ssm:/q/secret", ())
SECRET = Secret("client-secret-canary")
ACCOUNT = Secret("user-1")


def compiled(folder: Path, **changes: Any) -> ProviderSpec:
    """The entry with values put at dotted paths (None takes one away), compiled."""
    entry = copy.deepcopy(ENTRY)
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = entry
        for name in parents:
            at = at[name]
        if value is None:
            del at[last]
        else:
            at[last] = value
    file = folder / "acme.yaml"
    file.write_text(yaml.safe_dump(entry, sort_keys=False))
    return spec_of(json.loads(compiled_text(file)))


def a_broker(*answers: httpx.Response | Exception, spec: ProviderSpec | None = None) -> tuple[HttpBroker, list[Any]]:
    """A broker that answers like this, and what it was asked."""
    asked: list[httpx.Request] = []
    pending = list(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        request.read()
        asked.append(request)
        answer = pending.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    told = spec or broker_spec()
    assert told.broker is not None
    http = httpx.Client(transport=httpx.MockTransport(handle))
    return HttpBroker(told, told.broker, CLIENT, SECRET, http, {}), asked


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_file_of_a_broker_needs_no_code_flow():
    """What is never asked need not be said; the facts say what it is."""
    facts = broker_spec().facts

    assert (facts.is_broker, facts.has_sources, facts.signs_in, facts.refreshable) == (True, True, True, False)
    assert broker_spec().needs_secret


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"broker__make__fields": {"name": "x"}}, "broker.make names no {reference}; write where it goes"),
        ({"broker__link__fields": {"user_id": "{account_id}"}}, "broker.link names no {back}; write where it goes"),
        ({"broker__sign_in__url": f"{API}/sign_in"}, "broker.sign_in names no {account_id}; write where it goes"),
        ({"broker__sign_in_token": None}, "broker.sign_in and sign_in_token belong together"),
        ({"broker__sources": False}, "broker.sources and {source} in the link belong together"),
        ({"broker__make__url": "http://api.broker.example.com/v2/user"}, "broker.make.url is not https"),
        ({"broker__make__url": "https://169.254.169.254/{reference}"}, "broker.make.url"),
        ({"broker__make__url": "https://{reference}.example.com/"}, "would put a value of ours into a host name"),
        ({"broker__make__url": f"{API}/{{client_secret}}"}, "would put the client's secret into a URL"),
        ({"broker__make__fields": {"a": "{reference}", "b": "{token}"}}, "which a request to a broker has not"),
        ({"broker__make__fields": {"a": "{reference}", "b": "{shop}"}}, "which nothing fills"),
        ({"broker__make__headers": {"Cookie": "x"}}, "broker.make.headers.Cookie is set by Quitclaim itself"),
        ({"broker__find__fields": {"a": "{reference}"}}, "broker.find.fields have no body to stand in"),
        ({"broker__account": "a b"}, "broker.account"),
        ({"broker__more": 1}, "broker.more"),
        ({"revocation__takes": "refresh"}, "revocation.takes is what an account at a broker has"),
        ({"revocation__url": f"{API}/{{token}}/{{reference}}"}, "which only a request to a broker has"),
    ],
    ids=str,
)
def test_a_file_that_cannot_work_is_refused(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    """With the line, the field and the way out."""
    with pytest.raises(CatalogueError) as refused:
        compiled(tmp_path, **changes)

    assert fault in str(refused.value)


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_an_account_that_is_there_is_found():
    """One request, with the key in its header and the reference encoded in the path."""
    broker, asked = a_broker(httpx.Response(200, json={"user_id": "user-1"}))

    answer = broker.account(reference="a/b", timeout_ms=1_000)

    assert answer.value == ACCOUNT
    (request,) = asked
    assert (request.method, request.url.raw_path) == ("GET", b"/v2/user/resolve/a%2Fb")
    assert request.headers["x-api-key"] == SECRET.reveal()
    assert SECRET.reveal() not in str(request.url)


def test_an_account_that_is_not_there_is_made():
    """By our reference and nothing else."""
    broker, asked = a_broker(httpx.Response(404), httpx.Response(200, json={"user_id": "user-1"}))

    assert broker.account(reference="r", timeout_ms=1_000).value == ACCOUNT
    assert [(each.method, each.url.path) for each in asked] == [("GET", "/v2/user/resolve/r"), ("POST", "/v2/user")]
    assert json.loads(asked[1].content) == {"client_user_id": "r"}


@pytest.mark.parametrize("source", [None, "oura"])
def test_a_link_is_about_what_was_asked_for(source: str | None) -> None:
    """A field about a source stands there only if one is named."""
    broker, asked = a_broker(httpx.Response(200, json={"link_web_url": "https://link.example.com/?t=1"}))

    answer = broker.link(
        account=ACCOUNT, source=source, back="https://q.example/callback/acme?flow=s", timeout_ms=1_000
    )

    assert answer.value is not None
    body = json.loads(asked[0].content)
    assert body.get("provider") == source
    assert body["redirect_url"] == "https://q.example/callback/acme?flow=s"


@pytest.mark.parametrize(
    "url", ["http://link.example.com/", "javascript:alert(1)", "//link.example.com/", "/x", "ftp://x"]
)
def test_a_browser_is_sent_to_https_only(url: str) -> None:
    """Whatever the broker says."""
    broker, _ = a_broker(httpx.Response(200, json={"link_web_url": url}))

    answer = broker.link(account=ACCOUNT, source=None, back="https://q.example/", timeout_ms=1_000)

    assert (answer.value, answer.reason) == (None, "insecure_link")


@pytest.mark.parametrize(
    ("answer", "outcome", "config_fault"),
    [
        (httpx.Response(200, json={"sign_in_token": "t"}), Outcome.GRANTED, False),
        (httpx.Response(200, json={"sign_in_token": ""}), Outcome.UNKNOWN, False),
        (httpx.Response(200, json={"other": "t"}), Outcome.UNKNOWN, False),
        (httpx.Response(200, text="<html>", headers={"content-type": "text/html"}), Outcome.UNKNOWN, False),
        (httpx.Response(200, json={"sign_in_token": "a\x07"}), Outcome.UNKNOWN, False),
        (httpx.Response(302, headers={"location": "https://x"}), Outcome.UNKNOWN, False),
        (httpx.Response(400, json={"detail": "no"}), Outcome.REJECTED, False),
        (httpx.Response(401, json={"detail": "no"}), Outcome.TRY_LATER, True),
        (httpx.Response(403, json={"detail": "no"}), Outcome.TRY_LATER, True),
        (httpx.Response(429, headers={"retry-after": "7"}), Outcome.TRY_LATER, False),
        (httpx.Response(503), Outcome.TRY_LATER, False),
        (httpx.Response(500), Outcome.UNKNOWN, False),
        (httpx.ConnectError("no"), Outcome.NOT_SENT, False),
        (httpx.ReadTimeout("no"), Outcome.UNKNOWN, False),
    ],
    ids=str,
)
def test_what_an_answer_means(answer: httpx.Response | Exception, outcome: Outcome, config_fault: bool) -> None:
    """A value only with a success that can be read; redirects are followed by nobody."""
    broker, asked = a_broker(answer)

    told = broker.sign_in(account=ACCOUNT, timeout_ms=1_000)

    assert (told.outcome, told.config_fault) == (outcome, config_fault)
    assert (told.value is not None) == (outcome is Outcome.GRANTED)
    assert len(asked) == 1
    assert told.retry_after_ms == (7_000 if "retry-after" in getattr(answer, "headers", {}) else None)


def test_a_token_is_in_nobody_s_words() -> None:
    """Neither account nor token is printed."""
    broker, _ = a_broker(httpx.Response(200, json={"sign_in_token": "canary"}))

    assert "canary" not in repr(broker.sign_in(account=ACCOUNT, timeout_ms=1_000))


def test_without_sign_in_nothing_is_asked(tmp_path: Path) -> None:
    """The catalogue says whether there is one."""
    spec = compiled(tmp_path, broker__sign_in=None, broker__sign_in_token=None)
    broker, asked = a_broker(spec=spec)

    assert broker.sign_in(account=ACCOUNT, timeout_ms=1_000).outcome is Outcome.NOT_SENT
    assert asked == []
    assert not spec.facts.signs_in
