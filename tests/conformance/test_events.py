"""
Every provider whose events are taken, played by its own entry: an event that names whom the provider's own identity
named when the grant was made reaches that connection.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from quitclaim.domain.limits import FORWARD_MS
from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import Delivery, DeliveryState, Incoming, Taken, WebhookKeys
from quitclaim.flows.deliveries import Outcome
from quitclaim.providers.spec import ProviderSpec
from quitclaim.providers.webhooks import AccountPaths, ProviderHook
from tests.conformance.impersonated import VALUES, _put, name_at
from tests.conformance.test_custody import EntryWorld
from tests.fakes.tables import StandIn
from tests.providers.signing import CATALOGUE, spec_of, with_webhooks


def ways(provider: str) -> list[tuple[str | None, str, dict[str, str]]]:
    """Each path at which its events may name whom they concern: by what, where, and what else makes it that event."""

    def of(accounts: AccountPaths, when: dict[str, str]) -> list[tuple[str | None, str, dict[str, str]]]:
        return [
            (by, path, when | {each.path: each.equals for each in beside})
            for by, paths, beside in accounts
            for path in paths
        ]

    spec = spec_of(provider)
    found = of(spec.event.accounts, {})
    for ended in spec.deauthorizations:
        found += of(ended.accounts, {each.path: each.equals for each in ended.when})
    return found


def account_of(spec: ProviderSpec) -> str:
    """Whose grant it is, as the identity has it."""
    return VALUES[spec.identity.in_placeholder] if spec.identity.in_placeholder else "731"


def an_event(provider: str, path: str, name: str, when: dict[str, str]) -> Incoming:
    """One event of the provider, that names *name* at *path*."""
    items, element, headers = spec_of(provider).event.items, {}, {}
    for at, value in {path: name, **when}.items():
        where, _, rest = at.partition(":")
        if where == "header":
            headers[rest] = value
        elif at != "list":
            _put(element, at, value)
    body: Any = element
    if items is not None:
        body = {"things": [element]} if items == "*" else [element] if items == "." else {items: [element]}
    return Incoming("POST", "https://hooks.example.com/x", headers, {}, json.dumps(body).encode())


def believed(provider: str) -> ProviderHook:
    """A client's hook, for which every request counts as verified: how one is, is another matter."""
    spec = spec_of(provider)
    spec = replace(spec, signature=replace(spec.signature, scheme="path"), handshakes=())
    if spec.event.form != "json":
        spec = replace(spec, event=replace(spec.event, form="json"))
    return ProviderHook(provider, "acme", None, spec, WebhookKeys(secrets=(Secret("s"),)), client_id="c")


CASES = [(provider, *way) for provider in with_webhooks() for way in ways(provider)]


@pytest.mark.rule("M-64", "M-70")
@pytest.mark.parametrize(("provider", "by", "path", "when"), CASES, ids=lambda each: str(each) if each else "-")
def test_an_event_reaches_the_connection_whose_identity_it_names(
    stand_in: StandIn, provider: str, by: str | None, path: str, when: dict[str, str]
) -> None:
    """From the consent to the share: both sides by the entry alone."""
    world = EntryWorld(stand_in, provider)
    world.connected()
    spec = CATALOGUE.get(provider)
    name = account_of(spec) if by is None else name_at(spec, by)

    read = believed(provider).read(an_event(provider, path, name, when), world.clock.now())

    assert isinstance(read, Taken)
    (event,) = read.events
    assert (event.prepared.accounts, event.prepared.named_by) == ((name,), by)
    prepared = replace(event.prepared, deauthorizes=False)
    body = world.vault("deliver").seal_delivery("acme", "event-1", prepared, event.raw)
    now = world.clock.now()
    delivery = Delivery("acme", "event-1", provider, DeliveryState.ACCEPTED, now, 2, body=body, next=now + FORWARD_MS)
    world.delivering.webhooks.accept(delivery)
    done = world.deliver()
    assert (done.outcome, done.shares) == (Outcome.PROCESSED, {"received": 1})


def test_every_entry_that_names_accounts_is_in_it() -> None:
    """Those that name none take them from the settings."""
    assert set(with_webhooks()) - {case[0] for case in CASES} == {"airtable", "asana", "atlassian", "gitlab", "monzo"}
