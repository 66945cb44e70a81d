"""
What each role may do is what its function does: every call that leaves is allowed (`Stage.invoke` sees to it in every
test here), and a stack's life needs everything that is granted.
"""

import json
import time
from collections.abc import Callable
from typing import Final

import httpx
import pytest

from quitclaim.domain.limits import (
    AFTERMATH_MS,
    COMPACT_MS,
    CONFIRM_MS,
    DEADLINE_MS,
    GUARD_MS,
    KEY_LIFE_MS,
    KEY_REST_MS,
    MINUTE,
    PARKED_MS,
)
from quitclaim.domain.security_events import OAUTH
from quitclaim.domain.webhooks import Trust
from quitclaim.providers import transport
from tests.fakes.issuer import ISSUER, key, signed
from tests.fakes.provider import CLIENT_SECRET, after, answers, lost_answer
from tests.functions.stage import CALLS, LAMBDA, Stage, answered, sdk, template
from tests.functions.test_webhook import HOOK, post, set_up
from tests.infra.deployed import functions
from tests.infra.iam import granted
from tests.runtime.events import http_event

SCHEDULE: Final = {"version": "0", "source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {}}
HOOK_FUNCTION: Final = "arn:aws:lambda:eu-west-1:111122223333:function:app"
BEARER: Final[dict[str, object]] = {
    "revocation__shape": "bearer_self",
    "revocation__method": "DELETE",
    "revocation__client_auth": None,
    "revocation__takes": "access",
    "revocation__already_gone": "unknown",
    "revocation__ambiguous": {"status": [401]},
    "revocation__needs_live_access_token": "yes",
    "revocation__reach": "family",
}
"""A revocation that takes a living access token."""
FIRST_KEY = (
    "the first key of a purpose is made by whoever needs it (decision 0005), and nobody revokes before anybody seals"
)
ONE_SECRET = (
    "a client with one secret reads it alone; the one below has two (tests/runtime/test_config.py has the other)"
)
UNUSED: Final[dict[str, str]] = {
    "webhook: ClientSecretsInParameters: ssm:GetParameter on arn:${AWS::Partition}:ssm:${AWS::Region}:"
    "${AWS::AccountId}:parameter/quitclaim-secrets/${AWS::StackName}/*": ONE_SECRET,
    "revoke_sweep: OwnPurposes: kms:GenerateDataKey on ${RingKey.Arn}": FIRST_KEY,
    "revoke_sweep: Ring: dynamodb:PutItem on ${Table.Arn}": FIRST_KEY,
}
"""What is granted and not needed in the lives below, each with the reason why it is granted."""


def passes(stage: Stage, ms: int) -> None:
    """Time, and then one run of everything that is scheduled."""
    stage.advance(ms / 1000)
    for name in ("revoke_sweep", "reconcile", "revoke_sweep", "reconcile", "maintain"):
        stage.invoke(name, SCHEDULE)
        for replay in stage.replays:
            stage.invoke("access_token", replay)
        for message in stage.sent():
            stage.deliver(message)
        LAMBDA.asked.clear()
    stage.invoke("publish", {"Records": stage.outbox()[-100:]})


def imported(stage: Stage, connection: str) -> None:
    """A grant that the app held."""
    token = stage.server.gave().reveal()
    stage.secrets.add(token)
    body = {"provider": "acme", "refresh_token": token}
    path, headers = f"{stage.path}/connections/{connection}/import", {"idempotency-key": token[-20:]}
    told = stage.http("access_token", "POST", path, body=body, headers=headers)
    assert told.status == 200, told.text


def stopped(stage: Stage, connection: str = "acme", generation: int = 1) -> None:
    """A disconnect."""
    headers = {"if-match": f'"{generation}"', "idempotency-key": connection}
    told = stage.api("DELETE", f"/connections/{connection}", headers=headers)
    assert told.status == 200, told.text


def operator(stage: Stage, what: str) -> None:
    """Everything on the operator's list, one after the other."""
    for item in stage.http("app_api", "GET", "/v1/attention").json["items"]:
        path = f"/v1/attention/{item['id']}/{what}"
        event = http_event(
            "POST",
            path,
            body=json.dumps({"reason": "asked by phone"}).encode(),
            headers={"content-type": "application/json"},
            routes=template().routes,
        )
        answered(stage.invoke("app_api", event))


def lose(stage: Stage, connection: str) -> None:
    """The provider ends the grant: what may be left of it is owed, and nothing else stands before another start."""
    stage.server.misbehaviours.clear()
    version = stage.token(connection).json["token_version"]
    stage.api("POST", f"/connections/{connection}/report", body={"token_version": version})
    stage.server.next("/token", answers(400, {"error": "invalid_grant"}))
    assert stage.token(connection).status == 409


def live(stage: Stage) -> None:
    """Everything that can be asked of a stack, as far as it reaches a service in another way."""
    secret = f"quitclaim/{stage.name}/other"
    sdk("secretsmanager").create_secret(Name=secret, SecretString=CLIENT_SECRET.reveal())
    stage.add_client("other", secret=f"secretsmanager:{secret}", confirmation="none", webhook={"hook_id": "h"})
    imported(stage, "imported")
    set_up(stage)
    assert post(stage, {"id": "e-1", "user": "nobody"}).status == 503  # it is sent again, by who sends again
    told = {"id": "e-2", "user": "nobody", "type": "user.left"}
    assert post(stage, told).status == 200  # what says that somebody left is never asked for again
    assert post(stage, told, CLIENT_SECRET.reveal(), "/webhooks/other").status == 200
    stage.restart()  # from here on, nobody makes a first key

    # an answer is lost, and with it the grant; an import and its next life are lost by a verdict
    hinted = {"login_hint": "ann@example.com"}
    stage.secrets |= set(hinted.values())
    stage.start("hinted", **hinted, headers={"idempotency-key": "h"})
    stage.connected()
    stage.advance(3_600)
    stage.server.next("/token", lost_answer)
    stage.token()
    passes(stage, MINUTE)
    passes(stage, MINUTE)
    stage.api("POST", "/connections/acme/acknowledge-removal", body={})
    lose(stage, "imported")
    passes(stage, MINUTE)
    imported(stage, "imported")
    lose(stage, "imported")

    # settled, and finished by whoever meets it first: an import, a start's callback
    stage.invoke("revoke_sweep", SCHEDULE)
    imported(stage, "another")
    url = stage.start("next")
    lose(stage, "another")
    stage.invoke("revoke_sweep", SCHEDULE)
    stage.returned(url)
    stage.advance(CONFIRM_MS / 1000 + 5)
    passes(stage, MINUTE)

    # another client, without confirmation, whose secret is kept elsewhere; two of one account
    for name in ("one", "two"):
        told = stage.returned(stage.start(name, client="other"))
        assert told.status == 200, told.code
        stage.advance(3_600)
        stage.token(name)
    stopped(stage, "one")
    passes(stage, MINUTE)
    passes(stage, 100 * MINUTE)  # it is kept alive, where its provider has an idle limit
    stopped(stage, "two")
    passes(stage, MINUTE)

    # an event that names something behind the account of a live connection
    stage.connected("told")
    (account,) = {each.account for each in stage.server.ledger.values()} & {stage.owner}
    assert post(stage, {"id": "e-3", "user": account, "source": "watch"}).status == 200

    # events of the provider: one is handled, one is doubted, one waits for a grant, one is left to who has it
    stage.accept("event")
    stage.accept("hint", deauthorizes=True, trust=Trust.SECRET)
    stage.accept("early", account="bob")
    passes(stage, MINUTE)
    stage.accept("taken")
    deliveries = stage.function("deliver").wired.delivering
    deliveries.webhooks.claim(deliveries.reads.delivery("acme", "taken"), stage.now())
    assert stage.deliver({"client": "acme", "digest": "taken"}) == ["m0"]
    passes(stage, PARKED_MS)
    passes(stage, AFTERMATH_MS)
    stage.accept("left", deauthorizes=True)
    passes(stage, MINUTE)
    stage.accept("missed")
    passes(stage, MINUTE)
    passes(stage, PARKED_MS)
    body = {"reason": "asked by phone", "dry_run": False}
    told = stage.http("app_api", "POST", "/v1/deliveries/redrive", body=body)
    assert [each["id"] for each in told.json["deliveries"]] == ["missed"]
    passes(stage, MINUTE)

    # an answer that never came, one that came late, one without an account; a hold that nobody confirms, a denial
    stage.server.next("/token", lost_answer)
    stage.returned(stage.start("lost", client="other"))
    passes(stage, 2 * MINUTE)
    stage.api("POST", "/connections/lost/acknowledge-removal", body={})
    stage.server.next("/token", after(lambda: stage.advance(120)))
    stage.returned(stage.start("late", client="other"))
    passes(stage, MINUTE)
    stage.server.next("/me", answers(500))
    stage.returned(stage.start("unknown", client="other"))
    passes(stage, MINUTE)
    stage.returned(stage.start("held"))
    passes(stage, CONFIRM_MS + GUARD_MS)
    passes(stage, MINUTE)
    cookie, state, _ = stage.agreed(stage.start("denied"))
    stage.callback(cookie, state=state, error="access_denied")
    for path in ("/status", "/receipts", "/connections"):
        assert stage.api("GET", path).status == 200

    # the app is asked to purge: over HTTPS, and then by its function
    signing = f"/quitclaim-hooks/{stage.name}/purge"
    sdk("ssm").put_parameter(Name=signing, Value="whsec_" + "QUFB" * 8, Type="SecureString")
    stage.put("hooks/purge", json.dumps({"url": "https://app.example/hooks", "secrets": [f"ssm:{signing}"]}))
    stage.restart()
    stage.connected("purged")
    stopped(stage, "purged")
    passes(stage, MINUTE)
    stage.put("hooks/purge", json.dumps({"function": HOOK_FUNCTION}))
    stage.restart()
    stage.connected("purged-too")
    stopped(stage, "purged-too")
    passes(stage, MINUTE)

    # and to take an event: likewise
    stage.put("hooks/webhook.accepted", json.dumps({"url": "https://app.example/hooks", "secrets": [f"ssm:{signing}"]}))
    stage.restart()
    stage.connected("asked")
    stage.accept("asked")
    passes(stage, MINUTE)
    stage.put("hooks/webhook.accepted", json.dumps({"function": HOOK_FUNCTION}))
    stage.restart()
    stage.accept("asked again")
    passes(stage, MINUTE)
    stopped(stage, "asked")
    passes(stage, MINUTE)

    # and whether a connection that nobody confirms is to be one: likewise
    for number, hook in enumerate(
        ({"url": "https://app.example/hooks", "secrets": [f"ssm:{signing}"]}, {"function": HOOK_FUNCTION})
    ):
        stage.put("hooks/connection.establishing", json.dumps(hook))
        stage.restart()
        told = stage.returned(stage.start(f"established-{number}", client="other"))
        assert told.status == 200, told.code
        stopped(stage, f"established-{number}")
        passes(stage, MINUTE)

    # a provider says what happened to an account
    config = {"issuer": ISSUER, "audience": ["us"], "jwks_uri": f"{ISSUER}/jwks", "client": "acme"}
    stage.put("events/acme", json.dumps(config))
    stage.restart()
    claims = {"iss": ISSUER, "aud": "us", "jti": "1", "iat": int(time.time()), "sub": "nobody"}
    claims["events"] = {f"{OAUTH}tokens-revoked": {}}
    headers = {"content-type": "application/secevent+jwt"}
    body = signed(claims, key("k1")).encode()
    assert stage.http("connect", "POST", "/events/acme", body=body, headers=headers).status == 202

    # a provider that does not revoke, and an operator; then the owner goes, and everything is swept up
    stage.connected("kept")
    stage.server.next("/revoke", *[answers(500)] * 999)
    stopped(stage, "kept")
    passes(stage, MINUTE)
    operator(stage, "retry")
    passes(stage, DEADLINE_MS + GUARD_MS)
    stage.server.misbehaviours.clear()
    stage.returned(stage.start("last", client="other"))
    stage.api("DELETE")
    passes(stage, MINUTE)
    operator(stage, "acknowledge")
    for _ in range(5):
        passes(stage, max(KEY_LIFE_MS, KEY_REST_MS) + COMPACT_MS)


def renew(stage: Stage) -> None:
    """A revocation that takes a living access token, of a grant whose own has died."""
    stage.connected()
    stage.advance(7_200)
    stage.server.expires_access_tokens()
    stopped(stage)
    passes(stage, MINUTE)


@pytest.mark.timeout(600)
@pytest.mark.rule("S-18")
def test_what_is_granted_is_needed(new_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    """Action by action, partition by partition, purpose by purpose: what nobody needs is taken away or has a reason."""
    CALLS.used.clear()
    app = httpx.MockTransport(lambda request: httpx.Response(204))
    monkeypatch.setattr(transport, "sync_http", lambda: httpx.Client(transport=app))

    webhook = HOOK | {"signature": HOOK["signature"] | {"key_from": "client"}, "unready": "retry"}
    webhook |= {
        "event": HOOK["event"] | {"source": "source"},
        "sources": [{"says": "connected", "when": {"kind": "x"}}],
    }
    live(new_stage(revocation__reach="authorization", refresh__idle_limit_s=7_200, webhook=webhook))
    renew(new_stage(**BEARER))

    unused = {f"{name}: {part}" for name in functions() for part in granted(name) - CALLS.used.get(name, set())}
    assert sorted(unused) == sorted(UNUSED)
