"""
What a client of OAuth 2.0 and OpenID Connect must refuse, and what it must bear: the cases of the OpenID client test
plans (T-15) and of RFC 9207, RFC 9700 and RFC 8725, played to the whole callback by a provider that misbehaves in one
way at a time. Its ID tokens are signed by a library that the product does not use.

Refused before the code is sent: nothing is spent, and the same browser may still finish. Refused after it: the grant
that came is revoked, whatever was wrong beside it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.callback import CallbackFailedError
from tests.fakes.issuer import ISSUER, at_hash, key, published, signed, unpadded, unsigned
from tests.fakes.provider import Misbehaviour, answers, lost_answer
from tests.fakes.tables import WorkerKilledError, killed_after
from tests.flows.world import GOOGLE, World

type Worlds = Callable[..., World]
type Claims = dict[str, Any]

OIDC: Final = {"issuer": ISSUER, "jwks_url": f"{ISSUER}/jwks", "algorithms": ["RS256", "ES256"]}
FACTS: Final[dict[str, object]] = {
    "oidc": OIDC,
    "identity": {"in_id_token": "sub"},
    "authorize__issuer": ISSUER,
    "authorize__issuer_announced": "yes",
}
"""A provider that speaks OpenID Connect, and whose ID token alone says whose grant it is."""
BESIDE: Final = FACTS | {"identity": {"url": f"{ISSUER}/me", "field": "sub"}}
"""One that says it at its userinfo endpoint as well."""


@dataclass(frozen=True)
class Case:
    """What the provider does otherwise; *reason*: why it is refused, None where it must be borne."""

    reason: str | None
    id_token: Callable[[Claims], str | None] | None = None
    callback: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    key_set: Mapping[str, Any] | None = None
    keys_answer: Misbehaviour | None = None
    facts: Mapping[str, object] = field(default_factory=lambda: FACTS)
    me: Mapping[str, Any] | None = None


def claiming(**changes: Any) -> Callable[[Claims], str]:
    """A well-signed token with other claims; None takes one away."""
    return lambda claims: signed({k: v for k, v in (claims | changes).items() if v is not None}, key("k1"))


def headed(by: Any = None, algorithm: str = "RS256", **header: Any) -> Callable[[Claims], str]:
    """The right claims, signed otherwise."""
    return lambda claims: signed(claims, by or key("k1"), algorithm, **header)


def tampered(claims: Claims) -> str:
    """Another subject under the signature of the right one."""
    head, _, signature = signed(claims, key("k1")).split(".")
    return f"{head}.{unpadded(json.dumps(claims | {'sub': 'mallory'}).encode())}.{signature}"


NOW: Final = 1_800_000_000
CASES: Final[dict[str, Case]] = {
    # --- borne ---
    "all as it should be": Case(None),
    "ES256": Case(None, headed(key("k2", "ES256"), "ES256"), key_set=published(key("k2", "ES256"))),
    "a list of one audience": Case(None, claiming(aud=["client-1"])),
    "us as authorized party": Case(None, claiming(azp="client-1")),
    "no hash of the access token": Case(None, claiming(at_hash=None)),
    "claims that nobody knows": Case(None, claiming(acr="1", amr=["pwd"], extra={"a": [1]})),
    "members of the answer that nobody knows": Case(None, extra={"session_state": "x", "example": {"a": 1}}),
    "a clock that is a minute ahead": Case(None, claiming(iat=NOW + 60)),
    "a token type in another case": Case(None, extra={"token_type": "bearer"}),
    "no key id, and one key": Case(None, headed(kid=None)),
    "the issuer has turned its key": Case(None, headed(key("k3")), key_set=published(key("k1"), key("k3"))),
    "userinfo says the same": Case(None, facts=BESIDE),
    # --- refused before the code is sent (RFC 9207, RFC 6749) ---
    "another iss": Case("OAUTH_ISSUER_MISMATCH", callback={"iss": ("https://evil.example.com",)}),
    "no iss where one is announced": Case("OAUTH_ISSUER_MISMATCH", callback={"iss": ()}),
    "iss twice": Case("OAUTH_ISSUER_MISMATCH", callback={"iss": (ISSUER, ISSUER)}),
    "iss with a slash more": Case("OAUTH_ISSUER_MISMATCH", callback={"iss": (f"{ISSUER}/",)}),
    "another iss in a refusal": Case(
        "OAUTH_ISSUER_MISMATCH", callback={"iss": ("https://evil.example.com",), "error": "access_denied", "code": None}
    ),
    "another state": Case("OAUTH_STATE_INVALID", callback={"state": Secret("A" * 43)}),
    "no state": Case("OAUTH_STATE_MISSING", callback={"state": None}),
    "another browser": Case("OAUTH_BINDING_MISMATCH", callback={"cookies": {}}),
    "another provider's callback": Case("OAUTH_PROVIDER_MISMATCH", callback={"provider": "other"}),
    # --- refused with the grant in hand (OIDC core 3.1.3.7) ---
    "no ID token": Case("id_token_missing", lambda claims: None),
    "an ID token that is no text": Case("id_token_missing", extra={"id_token": {"a": 1}}),
    "another issuer": Case("id_token_issuer", claiming(iss="https://evil.example.com")),
    "no issuer": Case("id_token_issuer", claiming(iss=None)),
    "another audience": Case("id_token_audience", claiming(aud="client-2")),
    "an audience beside us": Case("id_token_audience", claiming(aud=["client-1", "client-2"], azp="client-1")),
    "no audience": Case("id_token_audience", claiming(aud=None)),
    "another authorized party": Case("id_token_authorized_party", claiming(azp="client-2")),
    "another nonce": Case("id_token_nonce", claiming(nonce="another")),
    "no nonce": Case("id_token_nonce", claiming(nonce=None)),
    "expired": Case("id_token_expired", claiming(exp=NOW - 600)),
    "no end": Case("id_token_expired", claiming(exp=None)),
    "issued tomorrow": Case("id_token_issued_at", claiming(iat=NOW + 86_400)),
    "issued yesterday": Case("id_token_issued_at", claiming(iat=NOW - 86_400)),
    "not issued": Case("id_token_issued_at", claiming(iat=None)),
    "not yet": Case("id_token_not_before", claiming(nbf=NOW + 86_400)),
    "no subject": Case("id_token_subject", claiming(sub=None)),
    "a subject that is a number": Case("id_token_subject", claiming(sub=7)),
    "another access token's hash": Case("id_token_access_token", claiming(at_hash=at_hash("another"))),
    "unsigned": Case("id_token_algorithm", lambda claims: unsigned(claims, {"alg": "none"})),
    "a signature that was taken away": Case(
        "id_token_signature", lambda claims: signed(claims, key("k1")).rpartition(".")[0] + "."
    ),
    "another's claims under a good signature": Case("id_token_signature", tampered),
    "a key that the issuer does not have": Case("id_token_key", headed(key("k9"))),
    "another key under a known id": Case("id_token_signature", headed(key("k9"), kid="k1")),
    "no key id, and a choice": Case("id_token_key", headed(kid=None), key_set=published(key("k1"), key("k3"))),
    "a key of its own in its header": Case(
        "id_token_key", headed(key("k9"), jwk=json.loads(key("k9").export_public()))
    ),
    "a key set of its own in its header": Case("id_token_key", headed(key("k9"), jku="https://evil.example.com/k")),
    "an algorithm that is not the catalogue's": Case(
        "id_token_algorithm", headed(key("k4", "PS256"), "PS256"), key_set=published(key("k4", "PS256"))
    ),
    "an access token for an ID token": Case("id_token_header", headed(typ="at+jwt")),
    "no token at all": Case("id_token_malformed", lambda claims: "x.y"),
    "keys that cannot be had": Case("id_token_keys_unavailable", keys_answer=answers(500)),
    "keys that never come": Case("id_token_keys_unavailable", keys_answer=lost_answer),
    "keys that are a page": Case("id_token_keys_unavailable", keys_answer=answers(200, None)),
    "userinfo says another": Case("id_token_mismatch", facts=BESIDE, me={"sub": "mallory"}),
    "userinfo says nothing": Case("identity_unreadable", facts=BESIDE, me={"name": "x"}),
}
BEFORE: Final = frozenset(name for name, case in CASES.items() if case.reason is not None and case.reason.isupper())


def met(world: World, case: Case) -> Any:
    """The callback that a case makes."""
    server = world.server
    if case.id_token is not None:
        server.makes_id_token = case.id_token
    if case.key_set is not None:
        server.key_set = dict(case.key_set)
    if case.keys_answer is not None:
        server.next("/jwks", case.keys_answer)
    if case.me is not None:
        server.next("/me", answers(200, dict(case.me)))
    server.extra |= case.extra
    settings = world.clients.settings["acme"]
    world.clients.settings["acme"] = replace(settings, scopes=(*settings.scopes, "openid"))
    return replace(world.approved(world.visit(world.start()), iss=(ISSUER,)), **case.callback)


def test_there_are_more_than_thirty_cases() -> None:
    """Of each kind some."""
    assert len(CASES) >= 50
    assert len(BEFORE) >= 9
    assert sum(case.reason is None for case in CASES.values()) >= 12


@pytest.mark.rule("S-2", "S-4", "S-21", "S-24", "RB-54")
@pytest.mark.parametrize("confirmation", ["none", "owner"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_T_15_a_client_as_the_specifications_want_it(new_world: Worlds, case: Case, confirmation: str) -> None:
    """One way to misbehave at a time, to its end."""
    world = new_world(confirmation, **case.facts)
    good = replace(met(world, case), iss=(ISSUER,))
    callback = replace(good, **case.callback)
    before = world.stand_in.everything()

    if case.reason is None:
        outcome = world.come_back(callback)
        assert outcome.status == ("ready" if confirmation == "none" else "awaiting_confirmation")
        if outcome.confirm_code is not None:
            world.confirm(outcome.confirm_code)
        assert world.connection().state == "ready"
        assert len(world.server.live("refresh_token")) == 1
        return

    with pytest.raises((CallbackFailedError, QuitclaimError)) as refused:
        world.come_back(callback)

    if case.reason.isupper():
        assert isinstance(refused.value, QuitclaimError)
        assert refused.value.code == case.reason
        assert world.stand_in.everything() == before
        assert world.server.asked == []
        return
    assert isinstance(refused.value, CallbackFailedError)
    assert refused.value.cause.code == "GRANT_NOT_INSTALLED"
    assert (world.connection().state, world.connection().failure) == ("failed", case.reason)
    assert (world.exchange().use, world.exchange().id_token) == (None, None)
    assert world.server.asked.count("/token") == 1
    assert world.server.asked.count("/jwks") <= 1
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []
    assert world.unaccounted() == []


# --- what lies in between --------------------------------------------------------------------------------------------


@pytest.mark.rule("F-7", "S-14")
def test_an_id_token_is_kept_no_longer_than_it_takes_to_verify_it(new_world: Worlds) -> None:
    """Sealed while it waits, erased with the verdict; neither it nor a nonce is readable anywhere."""
    world = new_world("owner", **FACTS)
    made: list[str] = []

    def remembered(claims: Claims) -> str:
        made.extend((signed(claims, key("k1")), claims["nonce"]))
        return made[0]

    world.server.makes_id_token = remembered
    world.come_back(replace(world.callback(), iss=(ISSUER,)))

    exchange = world.exchange()
    stored = str(world.stand_in.everything())
    assert exchange.id_token is None
    assert exchange.subject == exchange.account is not None
    assert not [secret for secret in (*made, *made[0].split("."), "alice") if secret in stored]


@pytest.mark.rule("RB-49", "S-21")
def test_a_worker_that_dies_before_the_verdict_leaves_it_to_the_next_callback(new_world: Worlds) -> None:
    """No code before it is verified; the same browser's repetition verifies it, and gets the code."""
    world = new_world("owner", **FACTS)
    callback = replace(world.callback(), iss=(ISSUER,))
    world.table.faults = [None, killed_after]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)
    exchange = world.exchange()
    code = world.vault("connect").confirm_code(exchange.id, exchange.started)
    assert exchange.id_token is not None
    with pytest.raises(QuitclaimError, match="Nobody has learned"):
        world.confirm(code)

    again = world.come_back(callback)

    assert (again.status, again.confirm_code) == ("awaiting_confirmation", code)
    assert world.confirm(code).state == "ready"
    assert world.server.asked.count("/token") == 1


@pytest.mark.rule("S-21")
def test_an_id_token_that_turns_out_wrong_at_the_second_look_is_refused(new_world: Worlds) -> None:
    """The worker died before its verdict; the next one finds that the token does not hold."""
    world = new_world("owner", **FACTS)
    world.server.makes_id_token = claiming(nonce="another")
    callback = replace(world.callback(), iss=(ISSUER,))
    world.table.faults = [None, killed_after]
    with pytest.raises(WorkerKilledError):
        world.come_back(callback)

    with pytest.raises(CallbackFailedError):
        world.come_back(callback)

    assert (world.exchange().reason, world.exchange().id_token) == ("id_token_nonce", None)
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


@pytest.mark.rule("S-15")
def test_an_id_token_of_another_exchange_does_not_open(new_world: Worlds) -> None:
    """Its seal is bound to the exchange: put elsewhere it proves nothing."""
    world = new_world("owner", **FACTS)
    vault, exchange = world.vault("connect"), "x-1"
    sealed = vault.seal_id_token(GOOGLE, 1, exchange, Secret("token"), Secret("nonce"))

    assert vault.open_id_token(GOOGLE, 1, exchange, sealed) == (Secret("token"), Secret("nonce"))
    for ref, generation, other in ((GOOGLE, 1, "x-2"), (GOOGLE, 2, exchange)):
        with pytest.raises(QuitclaimError):
            vault.open_id_token(ref, generation, other, sealed)


@pytest.mark.rule("S-21", "RB-54")
def test_another_account_by_its_id_token_is_refused_at_a_reconnect(new_world: Worlds) -> None:
    """The connection is pinned to the subject."""
    world = new_world(**FACTS)
    world.come_back(replace(world.callback(account="alice"), iss=(ISSUER,)))
    world.disconnect()
    world.minutes_pass(3)

    with pytest.raises(CallbackFailedError) as refused:
        world.come_back(replace(world.callback(account="bob", again=True), iss=(ISSUER,)))

    assert refused.value.cause.details["reason"] == "identity_mismatch"
    world.minutes_pass(2)
    assert world.server.live("refresh_token") == []


def test_without_openid_no_id_token_is_asked_for(new_world: Worlds) -> None:
    """A provider may speak OpenID Connect to others: here it is asked by the userinfo endpoint alone."""
    world = new_world(**BESIDE)
    world.server.makes_id_token = lambda claims: None

    visit = world.visit(world.start(scopes=frozenset({"read"})))
    assert "nonce=" not in visit.url
    assert world.come_back(replace(world.approved(visit), iss=(ISSUER,))).status == "ready"


def test_the_catalogue_may_say_that_a_provider_takes_no_nonce(new_world: Worlds) -> None:
    """Then none is sent, and none is compared."""
    world = new_world(**FACTS | {"oidc": OIDC | {"nonce": False}})

    visit = world.visit(world.start())

    assert "nonce=" not in visit.url
    assert world.come_back(replace(world.approved(visit), iss=(ISSUER,))).status == "ready"


@pytest.mark.rule("S-8")
def test_the_keys_are_asked_for_where_the_catalogue_says_and_kept(new_world: Worlds) -> None:
    """One request for many callbacks; no address of a token's is ever asked."""
    world = new_world(**FACTS)
    for number in range(3):
        ref = replace(GOOGLE, connection=f"c{number}")
        world.come_back(replace(world.callback(ref), iss=(ISSUER,)))

    assert world.server.asked == ["/token", "/jwks", "/token", "/token"]
