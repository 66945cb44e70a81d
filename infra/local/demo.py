"""
`make demo`: one connection's life on this machine, judged at a real authorization server, and the same with a crash.

Every step is checked where it counts, at the provider; the last line is the provider's own word. The stack's clock is
moved, so nothing waits. Exit 0 only if every step was verified; a step that fails says what was expected, what was
seen, and where the logs are.
"""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import httpx

from infra.local.browser import BrowserError, Page
from infra.local.life import Life, UnexpectedError, expect, register_client, until
from infra.local.provider.control import IDENTITY_PATH, ProviderControl
from infra.local.stack import LocalStack, LocalStackError

STATE = Path("var/demo")
HOLD_S = 600
GUARD_S = 5
WIDE = 72


@dataclass(slots=True)
class Step:
    """One line of the tale; the body of the step may change both."""

    text: str
    state: str = ""


class Tale:
    """Prints a line a step: what happened, in which state the connection is, how long it took."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colours = out.isatty() and "NO_COLOR" not in os.environ
        self._count = 0

    def chapter(self, title: str) -> None:
        """A heading."""
        self._say("")
        self._say(self._paint("1", title))

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Run a step and print its line; the time is that of the step."""
        self._count += 1
        step, begun = Step(text), time.monotonic()
        try:
            yield step
        except Exception:
            self._line(self._paint("31", "✗"), step, begun)
            raise
        self._line(self._paint("32", "✓"), step, begun)

    def say(self, text: str) -> None:
        """A line between the steps."""
        self._say(f"      {text}")

    def verdict(self, text: str) -> None:
        """The last line."""
        self._say("")
        self._say(self._paint("1;32", text))

    def _line(self, mark: str, step: Step, begun: float) -> None:
        took = f"{(time.monotonic() - begun) * 1000:,.0f} ms"
        text = step.text if len(step.text) <= WIDE else step.text[: WIDE - 1] + "…"
        self._say(f"{self._count:>3} {mark} {text:<{WIDE}}  {self._paint('36', f'{step.state:<12}')} {took:>9}")

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def one_life(tale: Tale, life: Life) -> None:
    """Start, connect, confirm, use, refresh, disconnect: and the provider's word at the end of each part."""
    provider, stack, client = life.provider, life.stack, life.client
    tale.chapter("One connection's life")

    with tale.step(f"the app starts a connection for {life.owner} and gets a connect link") as step:
        link = life.start()
        step.state = life.state

    with tale.step("the owner opens the link, is sent to the provider, and signs in") as step:
        page = life.visit(link)
        _must("Authorize" in page.words, "the provider's consent page", _where(page))
        step.state = life.state

    with tale.step("consents: the grant is held, revoke-only, and a code is shown") as step:
        page = life.allow(page)
        code = life.code_on(page)
        first = life.living()
        _must(len(first) == 1, "one living refresh token at the provider", str(len(first)))
        step.state = life.state
        _must(life.view()["awaiting_confirmation"], "awaiting_confirmation in the view", step.state)

    with tale.step("the owner, signed in at the app, confirms with the code: installed") as step:
        expect(life.confirm(code), 200)
        step.state = _in_state(life, "ready")

    with tale.step("an access token, used at the provider's /api/me") as step:
        token = expect(life.token(), 200)
        who = provider.who_am_i(token["access_token"])
        _must(who.status_code == 200, "200 from /api/me", str(who.status_code))
        step.text += f": {who.json()['email'].partition('@')[0]}, token version {token['token_version']}"
        step.state = life.state

    with tale.step("the clock moves on by an hour and a minute: the token has expired") as step:
        stack.advance(3660)
        _must(token["expires_at"] <= stack.now_ms(), "an expired token", "one that is still valid")
        step.state = life.state

    with tale.step("asked again: refreshed, the old refresh token is spent") as step:
        again = expect(life.token(), 200)
        _must(again["token_version"] == token["token_version"] + 1, "the next token version", again["token_version"])
        _must(provider.who_am_i(again["access_token"]).status_code == 200, "200 from /api/me", "a refusal")
        spent = {line.digest: line for line in provider.ledger(client.client_id, "refresh")}[first[0].digest]
        _must(spent.revoked is not None, "the first refresh token spent in the provider's ledger", "still good")
        _must(len(life.living()) == 1, "one living refresh token", str(len(life.living())))
        step.text += f"; token version {again['token_version']}"
        step.state = life.state

    with tale.step("the owner disconnects: from here on no token is handed out") as step:
        expect(life.disconnect(), 200)
        refused = life.token()
        _must(refused.status_code == 409, "409 for a token call", f"{refused.status_code}")
        step.state = life.state

    with tale.step("the sweep, kicked by the stop, revokes the grant at the provider") as step:
        if not life.revoked_by_the_kick():
            step.text = "the next sweep revokes the grant at the provider (the kick was lost)"
        step.state = life.state

    with tale.step("reconciled: purge, revocation and barrier are settled") as step:
        life.settle("revoked")
        step.state = _in_state(life, "revoked")
        _must(life.view().get("closed_as") == "confirmed", "closed as confirmed", str(life.view().get("closed_as")))

    with tale.step("the provider's own word") as step:
        verdict = provider.try_refresh(client.client_id, client.secret, username=life.username)
        _must(not verdict.accepted, "a refusal", "the provider took it")
        _must(not provider.introspect(again["access_token"]), "introspection: inactive", "active")
        step.text += f": {verdict.status} {verdict.error}, introspection inactive"
        step.state = life.state


def one_crash(tale: Tale, life: Life) -> str:
    """A worker dies between hold and install; what the provider granted is found and revoked. Answers the verdict."""
    provider, stack, client = life.provider, life.stack, life.client
    tale.chapter("The same with a crash: the worker is killed between the hold and the install")

    with tale.step(f"another owner, {life.owner}, starts, opens the link and signs in") as step:
        page = life.visit(life.start())
        step.state = life.state

    with tale.step("consents; the grant is held, the identity request gets no answer") as step:
        provider.stall(IDENTITY_PATH)
        ended: list[str] = []
        browser = threading.Thread(target=_consent_in_vain, args=(life, page, ended))
        browser.start()
        provider.wait_stalled()
        living = life.living()
        _must(len(living) == 1, "one living refresh token at the provider", str(len(living)))
        step.state = life.state

    with tale.step("SIGKILL for the worker") as step:
        pid = stack.kill("connect")
        browser.join(timeout=30)
        provider.release()
        step.text += f" {pid}: the owner's browser sees {ended[0] if ended else 'nothing'}"
        _must(bool(ended) and ended[0] in ("502", "503", "504"), "a gateway error", ended[0] if ended else "nothing")
        step.state = life.state

    with tale.step("at the provider the grant is alive, and nobody but the queue knows it") as step:
        _must(life.living() == living, "the same living refresh token", "another ledger")
        step.state = life.state

    with tale.step("the clock moves past the hold's end: the sweep finds and revokes it") as step:
        stack.advance(HOLD_S + 2 * GUARD_S)
        stack.fire("revoke_sweep")
        until(lambda: not life.living() or None, "no living refresh token at the provider", lambda: "one")
        step.state = life.state

    with tale.step("reconciled: the attempt is over and the owner may start again") as step:
        life.settle("failed")
        _must(life.notice() in (None, "not_needed", "confirmed"), "no open notice", life.notice())
        step.state = life.state

    with tale.step("the provider's own word on the held token") as step:
        verdict = provider.try_refresh(client.client_id, client.secret, digest=living[0].digest)
        _must(not verdict.accepted, "a refusal", "the provider took it")
        step.text += f": refused ({verdict.status} {verdict.error})"
        step.state = life.state
    left = [line for line in provider.ledger(client.client_id) if line.live]
    _must(not left, "nothing alive in the provider's ledger", f"{len(left)} living tokens")
    issued = len(provider.ledger(client.client_id, "refresh"))
    return (
        f"The provider's verdict: {issued} refresh tokens issued, 0 alive; "
        f"the last one refused with {verdict.status} {verdict.error}."
    )


class Listener:
    """The app's side of the event bus: a rule and a queue of its own, as it would have in its account."""

    def __init__(self, stack: LocalStack) -> None:
        bus, name = stack.resources["EventBus"], "demo-app"
        self._sqs, events = stack.boto3_client("sqs"), stack.boto3_client("events")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])["Attributes"]
        events.put_rule(Name=name, EventBusName=bus, EventPattern=json.dumps({"source": ["quitclaim"]}))
        events.put_targets(Rule=name, EventBusName=bus, Targets=[{"Id": name, "Arn": attributes["QueueArn"]}])
        self.heard: dict[str, dict[str, Any]] = {}

    def hears(self, kind: str, owner: str) -> bool:
        """Take in what has come; whether the app knows by now that this happened to the owner."""
        while messages := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                detail = json.loads(message["Body"])["detail"]
                self.heard.setdefault(detail["id"], detail)
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return any((each["kind"], each["owner"]) == (kind, owner) for each in self.heard.values())


def what_the_app_heard(tale: Tale, listener: Listener) -> None:
    """The events of both owners, each once by its id."""
    expected = [
        ("connection.revoked", "owner-1"),
        ("connection.failed", "owner-2"),
        ("revocation.confirmed", "owner-2"),
    ]
    tale.chapter("What the app heard meanwhile, on the event bus")
    until(
        lambda: True if all(listener.hears(kind, owner) for kind, owner in expected) else None,
        "the end of both lives on the event bus",
        lambda: ", ".join(each["kind"] for each in listener.heard.values()),
    )
    for each in sorted(listener.heard.values(), key=lambda detail: (detail["owner"], detail["at"])):
        about = each.get("reason") or each.get("outcome") or each.get("closed_as") or ""
        tale.say(f"{each['kind']:<22} {each['owner']} generation {each['generation']}  {about:<14} {each['id']}")


def _consent_in_vain(life: Life, page: Page, ended: list[str]) -> None:
    try:
        ended.append(str(life.allow(page).status))
    except BrowserError as fault:
        ended.append(str(fault))


def _in_state(life: Life, state: str) -> str:
    view = life.view()
    _must(view["state"] == state, f"state {state}", f"{view['state']} {view.get('failure', '')}".strip())
    return state


def _must(is_so: bool, expected: str, seen: object) -> None:
    if not is_so:
        raise UnexpectedError(expected, str(seen))


def _where(page: Page) -> str:
    return f"{page.walked[-1]}: {page.words[:100]}"


def main() -> int:
    """Run the demo in a fresh folder; the stack is stopped in any case."""
    tale = Tale(sys.stdout)
    shutil.rmtree(STATE, ignore_errors=True)
    begun = time.monotonic()
    logs: dict[str, Path] = {}
    try:
        with LocalStack(STATE, provider=True) as stack:
            logs = stack.logs()
            with ProviderControl(stack.provider_url, stack.provider_accounts) as provider:
                client = register_client(stack, provider)
                tale.say(
                    f"stack    {stack.base_url}  (up in {time.monotonic() - begun:.1f} s; state and logs in {STATE}/)"
                )
                tale.say(f"provider {provider.url}  (django-oauth-toolkit: PKCE, rotation, reuse protection, RFC 7009)")
                listener = Listener(stack)
                with Life(stack, provider, client, "owner-1", username="alice") as life:
                    one_life(tale, life)
                with Life(stack, provider, client, "owner-2", username="bob") as life:
                    verdict = one_crash(tale, life)
                what_the_app_heard(tale, listener)
    except (UnexpectedError, BrowserError, LocalStackError, httpx.HTTPError, TimeoutError, ValueError) as fault:
        expected, seen = getattr(fault, "expected", None), getattr(fault, "seen", fault)
        print("", file=sys.stderr)
        if expected:
            print(f"  expected  {expected}", file=sys.stderr)
        print(f"  seen      {seen}", file=sys.stderr)
        for name, path in sorted(logs.items()):
            print(f"  log       {name:<16} {os.path.relpath(path)}", file=sys.stderr)
        return 1
    tale.say("")
    tale.say(f"everything was verified at the provider, in {time.monotonic() - begun:.1f} s")
    tale.verdict(verdict)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
