"""
Every provider that ships, played by its own entry, under the whole product: flows, table and sealing. However a grant
ends, either the provider takes nothing of it any more, or its owner is told; and "revoked" is never said too early.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.errors import NeedsReconnectError, ProviderNotRegisteredError, QuitclaimError
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.browser import Callback, Visit
from quitclaim.flows.tokens import report
from quitclaim.ports import Client
from quitclaim.providers.client import OAuthClient, ProviderHttp
from quitclaim.providers.refusals import Refusals
from quitclaim.providers.spec import Catalogue
from tests.conformance.impersonated import CLIENT_ID, NOW_S, VALUES, Impersonated, Token
from tests.conformance.quirks import QUIRKS
from tests.conformance.table import row
from tests.conformance.test_client import PROVIDERS, key, secret_of
from tests.fakes.breakers import Unbroken
from tests.fakes.tables import StandIn
from tests.flows.world import GOOGLE, World

DAY = 24 * 60


class EntryClients:
    """`ports.Clients` with one client of the provider."""

    def __init__(self, provider: Impersonated) -> None:
        self._provider = provider
        wanted = {each.parameter: VALUES[each.name] for each in provider.spec.placeholders if each.source == "client"}
        scopes = ("read", "write", *(f"{prefix}mail" for prefix, _ in provider.spec.authorize.scope_prefixes))
        self._settings = ProviderClient("acme", provider.spec.id, CLIENT_ID, "ssm:/s", scopes, "none", variables=wanted)
        self.http = ProviderHttp(provider.transport, provider.transport, lambda: NOW_S, lambda: "jti")

    def named(self, name: str) -> Client:
        if name != "acme":
            raise ProviderNotRegisteredError
        spec = self._provider.spec
        return OAuthClient(self._settings, spec, lambda ref: secret_of(spec), self.http)

    def names(self) -> frozenset[str]:
        return frozenset({"acme"})

    def manual_page(self, provider: str) -> str | None:
        return self._provider.spec.facts.manual_page


class EntryWorld(World):
    """One stack of our own, and a provider of the catalogue."""

    def __init__(self, stand_in: StandIn, name: str) -> None:
        super().__init__(stand_in)
        spec = Catalogue().get(name)
        if spec.status == "shut_down":  # while it was not yet
            spec = replace(spec, status="active")
        self.provider = Impersonated(spec, QUIRKS.get(name), key().public_key())
        self.server: Any = self.provider
        self.clients: Any = EntryClients(self.provider)

    def approved(self, visit: Visit, account: str = "731", **changes: Any) -> Callback:
        query = self.provider.approves(visit.url)
        state = visit.url.split("state=")[1].split("&")[0]
        cookies = {visit.cookie: visit.binding.reveal()}
        code = Secret(query["code"][0])
        return Callback(self.provider.spec.id, Secret(state), code, None, (), cookies, query)

    def connected(self) -> None:
        """From the start to ready."""
        wanted = {
            each.parameter: VALUES[each.name] for each in self.provider.spec.placeholders if each.source == "start"
        }
        assert self.connect(variables=wanted).state == "ready"

    def report(self) -> int:
        """The app saw a 401 with the current token; its version."""
        grant = self.reads.grant(GOOGLE, "main")
        assert grant is not None
        assert report(GOOGLE, "main", grant.tv, reads=self.reads, store=self.handing_out.store, breaker=Unbroken())
        return grant.tv

    def ended(self) -> str:
        """The schedules run for an hour, and again at the end of the day: how the grant ended."""
        for pause in (*[0] * 60, DAY, *[0] * 20):
            self.clock.move(minutes=pause)
            self.minutes_pass(1)
            if self.connection().state == "revoked" or not self.states() & {"pending"}:
                self.minutes_pass(2)  # what follows a settle
                break
        assert "pending" not in self.states(), "it is still tried"
        return str(self.connection().closed_as or "/".join(sorted(self.states())))

    def states(self) -> set[str]:
        """Of its revocations."""
        return {str(each["state"]) for each in self.items("revocation")}


def at_once(world: EntryWorld) -> None:
    """Disconnected while its access token lives."""
    world.disconnect()


def long_after(world: EntryWorld) -> None:
    """Disconnected when its access token is long dead."""
    world.provider.expires_access_tokens()
    world.clock.move(minutes=DAY * 2)
    world.disconnect()


def after_refreshes(world: EntryWorld) -> None:
    """Refreshed three times before (where it can be)."""
    if world.provider.spec.refresh.is_possible and "refresh_token" in str(world.provider.ledger):
        for _ in range(3):
            before = world.report()
            assert world.token().token_version > before
    world.disconnect()


def taken_away(world: EntryWorld) -> None:
    """The user has removed the app at the provider, and nobody has noticed."""
    for token in list(world.provider.ledger.values()):
        world.provider.ledger[token.text] = replace(token, state="revoked")
    world.disconnect()


def lost(world: EntryWorld) -> None:
    """The user has removed the app, and a refresh notices."""
    for token in list(world.provider.ledger.values()):
        world.provider.ledger[token.text] = replace(token, state="revoked")
    world.report()
    try:
        world.token()
    except NeedsReconnectError:
        return
    except QuitclaimError:
        world.disconnect()
    else:
        world.disconnect()


ENDS: tuple[Callable[[EntryWorld], None], ...] = (at_once, long_after, after_refreshes, taken_away, lost)


@pytest.mark.rule("RB-28b", "RB-30")
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("name", PROVIDERS)
def test_no_grant_of_any_provider_is_lost_or_called_revoked_while_it_lives(
    stand_in: StandIn, name: str, end: Callable[[EntryWorld], None]
) -> None:
    """The ledger is the judge: what it would still take is named in a notice; confirmed means that it takes nothing."""
    world = EntryWorld(stand_in, name)
    world.connected()
    end(world)

    how = world.ended()

    if how == "confirmed":
        assert taken_still(world) == []
    else:
        assert world.has_notice(), f"{how}, and nobody is told"
    row(name, {f"ends {end.__name__}": how})


def with_two_pairs(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, *, ends_pair: bool) -> EntryWorld:
    """Slack with token rotation; *ends_pair*: more is ended there than anybody has read, the refresh token too."""
    world = EntryWorld(stand_in, "slack")
    world.provider.quirks = replace(world.provider.quirks, gives_refresh=True)

    def end(token: Token) -> None:
        for other in list(world.provider.ledger.values()):
            if other.is_live and (other.grant, other.pair) == (token.grant, token.pair):
                world.provider.ledger[other.text] = replace(other, state="revoked")

    if ends_pair:
        monkeypatch.setattr(world.provider, "_end", end)
    world.connected()
    assert world.connection().pairs == ("main", "user")
    return world


def is_known(world: EntryWorld, how: str) -> bool:
    """Confirmed and nothing is taken any more; or an owner is told, and no access token is taken."""
    kinds = {world.provider.ledger[text].kind for text in taken_still(world)}
    return kinds == set() if how == "confirmed" else kinds <= {"refresh_token"} and world.has_notice()


@pytest.mark.rule("RB-11")
@pytest.mark.parametrize("ends_pair", [True, False])
@pytest.mark.parametrize("hours", [0, 30])
def test_two_pairs_of_one_grant_live_and_die_apart(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, ends_pair: bool, hours: int
) -> None:
    """Slack's bot and user token: handed out and refreshed each by itself, revoked both, and asked about one by one."""
    world = with_two_pairs(stand_in, monkeypatch, ends_pair=ends_pair)
    bot, user = world.token(), world.token(pair="user")
    assert bot.access_token != user.access_token

    world.clock.move(minutes=2 * 60)
    world.token(pair="user")
    versions = [grant.tv for grant in world.reads.grants(GOOGLE, ["main", "user"])]
    assert sorted(versions) == [1, 2]
    world.token()
    if hours:
        world.provider.expires_access_tokens()
        world.clock.move(minutes=60 * hours)
    world.disconnect()

    how = world.ended()

    assert how == ("confirmed" if ends_pair else "unconfirmed")
    assert is_known(world, how)


@pytest.mark.rule("RB-11")
@pytest.mark.parametrize("ends_pair", [True, False])
@pytest.mark.parametrize("dead", ["main", "user"])
def test_a_pair_that_is_refused_drops_no_other(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, dead: str, ends_pair: bool
) -> None:
    """The connection is over, and what is left of the grant is revoked."""
    world = with_two_pairs(stand_in, monkeypatch, ends_pair=ends_pair)
    for token in list(world.provider.ledger.values()):
        if token.pair == dead:
            world.provider.ledger[token.text] = replace(token, state="revoked")
    world.provider.expires_access_tokens()
    world.clock.move(minutes=DAY)

    with pytest.raises(NeedsReconnectError):
        world.token(pair=dead)

    assert world.connection().state == "needs_reconnect"
    how = world.ended()
    assert how == ("confirmed" if ends_pair else "unconfirmed")
    assert is_known(world, how)


@pytest.mark.rule("RB-20")
@pytest.mark.parametrize("name", ["google", "asana", "github", "gitlab"])
def test_a_refused_client_moves_no_connection_and_has_one_alarm(stand_in: StandIn, name: str) -> None:
    """Refreshes, then a revocation: asked once a rest, nothing is lost or called revoked, and all goes on by itself."""
    world = EntryWorld(stand_in, name)
    world.connected()
    refused, told, asked = [True], list[str](), list[str]()

    def provider(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(401, json={"error": "invalid_client"}) if refused else world.provider.handle(request)

    transport = httpx.MockTransport(provider)
    refusals = Refusals(lambda client, reason: told.append(client), lambda: world.clock.now() / 1000)
    world.clients.http = ProviderHttp(transport, transport, lambda: NOW_S, lambda: "jti", refusals)
    if world.provider.spec.refresh.is_possible:
        world.provider.expires_access_tokens()
        world.clock.move(minutes=2 * 60)
        for _ in range(3):
            with pytest.raises(QuitclaimError):
                world.token()
        assert world.connection().state == "ready"
        assert (len(asked), len(told)) == (1, 1)
    world.disconnect()
    for _ in range(4):
        world.sweep()
    assert world.states() == {"pending"}
    assert len(asked) == len(told) == 1

    refused.clear()

    assert world.ended() == "confirmed"
    assert taken_still(world) == []


def taken_still(world: EntryWorld) -> list[str]:
    """
    What the provider would still take. Not counted: an access token that a later one of its pair has replaced, or whose
    refresh token alone can be revoked; such a one ends by itself within the hour.
    """
    tokens = world.provider.ledger
    newest = {(token.grant, token.pair): text for text, token in tokens.items() if token.kind == "access_token"}
    told = world.provider.spec.revocation
    return [
        text
        for text in world.provider.live()
        if tokens[text].kind == "refresh_token" or (text in newest.values() and told.takes != "refresh")
    ]
