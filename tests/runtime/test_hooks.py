"""The addresses at which events come in, as the app team set them up in Parameter Store."""

import json
from dataclasses import replace
from typing import Any

import pytest

from quitclaim.domain.clients import ClientFaultsError, WebhookSettings, read_client
from quitclaim.domain.errors import ClientConfigError, KeyUnavailableError, WebhooksNotSupportedError
from quitclaim.domain.webhooks import Incoming, RefusalReason, Refused, Taken
from quitclaim.providers.client import ProviderHttp
from quitclaim.providers.spec import Catalogue
from quitclaim.runtime.config import KEPT_MS, LOOK_AGAIN_MS, UNKNOWN_MS, ConfiguredAddresses, ParameterStore
from tests.providers.signing import NOW, Signer, a_request, spec_of
from tests.runtime.test_config import PATH, CountedSsm

CLIENT = {"client_id": "id", "secret": "ssm:/s/client", "scopes": []}


@pytest.fixture
def counted(ssm: Any) -> CountedSsm:
    return CountedSsm(ssm)


@pytest.fixture
def faults() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def store(counted: CountedSsm, secrets_manager: Any, ages: Any, faults: list[tuple[str, str]]) -> ParameterStore:
    return ParameterStore(PATH, counted, lambda: secrets_manager, ages, lambda *told: faults.append(told))  # type: ignore[arg-type]


@pytest.fixture
def hooks(store: ParameterStore) -> ConfiguredAddresses:
    return ConfiguredAddresses(store, Catalogue(), ProviderHttp)  # type: ignore[arg-type]


@pytest.fixture
def put(ssm: Any) -> Any:
    def put_client(name: str, provider: str, **webhook: Any) -> None:
        settings = CLIENT | {"provider": provider} | ({"webhook": webhook} if webhook else {})
        ssm.put_parameter(Name=f"{PATH}/clients/{name}", Value=json.dumps(settings), Type="String", Overwrite=True)

    for name in ("client", "old", "new", "path", "token"):
        ssm.put_parameter(Name=f"/s/{name}", Value=f"{name}-secret", Type="SecureString")
    return put_client


def signed(provider: str, secret: str) -> Incoming:
    return Signer(spec_of(provider).signature, (secret,)).signed(a_request())


@pytest.mark.rule("S-9")
def test_two_secrets_live_beside_each_other(hooks: ConfiguredAddresses, put: Any) -> None:
    """While they are rotated, either signs; one that is gone before the settings say so stops nothing."""
    put("slack", "slack", secrets=["ssm:/s/new", "ssm:/s/old", "ssm:/s/gone"])
    hook = hooks.at("slack", None)

    assert isinstance(hook.read(signed("slack", "new-secret"), NOW), Taken)
    assert isinstance(hook.read(signed("slack", "old-secret"), NOW), Taken)
    assert hook.read(signed("slack", "client-secret"), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)
    assert (hook.client, hook.provider, hook.asks_for_retry) == ("slack", "slack", False)


def test_where_the_clients_secret_signs_it_need_not_be_named(hooks: ConfiguredAddresses, put: Any) -> None:
    """WHOOP signs with it; an empty object says that events are taken."""
    put("whoop", "whoop", hook_id="h")
    put("slack", "slack", hook_id="h")

    assert isinstance(hooks.at("whoop", None).read(signed("whoop", "client-secret"), NOW), Taken)
    assert hooks.at("slack", None).read(signed("slack", "client-secret"), NOW) == Refused(RefusalReason.KEY_UNKNOWN)


@pytest.mark.rule("S-9")
def test_where_the_clients_secret_signs_so_do_its_older_ones(hooks: ConfiguredAddresses, put: Any, ssm: Any) -> None:
    """While the client's secret is replaced the provider signs with either."""
    settings = CLIENT | {"provider": "whoop", "secret": ["ssm:/s/new", "ssm:/s/old", "ssm:/s/gone"], "webhook": {}}
    put("whoop", "whoop")
    ssm.put_parameter(Name=f"{PATH}/clients/whoop", Value=json.dumps(settings), Type="String", Overwrite=True)
    hook = hooks.at("whoop", None)

    for name in ("new", "old"):
        assert isinstance(hook.read(signed("whoop", f"{name}-secret"), NOW), Taken)
    assert hook.read(signed("whoop", "client-secret"), NOW) == Refused(RefusalReason.SIGNATURE_WRONG)


@pytest.mark.rule("M-61")
def test_what_is_not_set_up_takes_nothing(hooks: ConfiguredAddresses, put: Any) -> None:
    """No such client, no webhook in its settings, no entry of the catalogue, nothing known of its events."""
    put("plain", "slack")
    put("unknown", "spotify", secrets=["ssm:/s/new"])
    put("nowhere", "no-such-provider", secrets=["ssm:/s/new"])
    put("slack", "slack", secrets=["ssm:/s/new"])

    for client, endpoint in (("nobody", None), ("plain", None), ("unknown", None), ("nowhere", None), ("slack", "x")):
        with pytest.raises(WebhooksNotSupportedError):
            hooks.at(client, endpoint)


@pytest.mark.rule("S-9")
def test_where_nothing_is_signed_the_address_is_the_secret(hooks: ConfiguredAddresses, put: Any) -> None:
    """Strava: any other address answers as one that does not exist; so does one whose secret nobody set."""
    put("strava", "strava", path="ssm:/s/path", verify_token="ssm:/s/token")
    put("bare", "strava", hook_id="1")

    assert isinstance(hooks.at("strava", "path-secret").read(a_request(b"{}"), NOW), Taken)
    for client, endpoint in (("strava", None), ("strava", "guess"), ("strava", ""), ("bare", None), ("bare", "x")):
        with pytest.raises(WebhooksNotSupportedError):
            hooks.at(client, endpoint)


def test_each_secret_address_may_have_its_own_account(hooks: ConfiguredAddresses, put: Any) -> None:
    """Monzo's events say nobody: an address of `endpoints` is known by its own secret, and not by its name."""
    endpoints = {
        "one": {"path": "ssm:/s/path", "account": "u-1"},
        "two": {"path": "ssm:/s/token", "account": "u-2"},
        "three": {"account": "u-3"},
    }
    put("monzo", "monzo", endpoints=endpoints)

    for secret, account in (("path-secret", "u-1"), ("token-secret", "u-2")):
        found = hooks.at("monzo", secret).read(a_request(b"{}"), NOW)
        assert isinstance(found, Taken)
        assert (found.events[0].prepared.accounts, found.events[0].prepared.named_by) == ((account,), None)
    for endpoint in ("one", "three", "guess", "", None):
        with pytest.raises(WebhooksNotSupportedError):
            hooks.at("monzo", endpoint)


@pytest.mark.rule("S-9")
def test_an_address_without_a_secret_shuts_no_other(
    hooks: ConfiguredAddresses, put: Any, ssm: Any, ages: Any, faults: list[tuple[str, str]], counted: CountedSsm
) -> None:
    """It is told of; what fits none is to come again, until each secret could be read; none is looked for each time."""
    endpoints = {
        "bad": {"path": "ssm:/s/nowhere", "account": "u-1"},
        "two": {"path": "ssm:/s/token", "account": "u-2"},
    }
    put("monzo", "monzo", endpoints=endpoints)

    found = hooks.at("monzo", "token-secret").read(a_request(b"{}"), NOW)
    assert isinstance(found, Taken)
    assert found.events[0].prepared.accounts == ("u-2",)
    assert faults == [("monzo", "webhook.endpoints.bad.path: its secret cannot be read")]
    asked = counted.secrets
    for _ in range(50):
        with pytest.raises(KeyUnavailableError):
            hooks.at("monzo", "guess")
    assert counted.secrets == asked
    assert len(faults) == 1

    ssm.put_parameter(Name="/s/nowhere", Value="late-secret", Type="SecureString")
    ages.at += LOOK_AGAIN_MS
    assert hooks.at("monzo", "late-secret").client == "monzo"
    with pytest.raises(WebhooksNotSupportedError):
        hooks.at("monzo", "guess")


@pytest.mark.rule("S-11")
def test_a_guess_has_a_hundred_secrets_read_by_ten_calls_and_then_by_none(
    hooks: ConfiguredAddresses, put: Any, ssm: Any, counted: CountedSsm, ages: Any
) -> None:
    """Also where nobody can say what they are: whoever is known serves on, and nobody is asked about one by one."""
    from botocore.exceptions import EndpointConnectionError

    for number in range(100):
        ssm.put_parameter(Name=f"/p/{number}", Value=f"path-{number}", Type="SecureString")
    put("monzo", "monzo", endpoints={f"e{number}": {"path": f"ssm:/p/{number}"} for number in range(100)})

    for _ in range(5):
        with pytest.raises(WebhooksNotSupportedError):
            hooks.at("monzo", "guess")
    assert hooks.at("monzo", "path-99").client == "monzo"
    assert counted.secrets == 10

    ages.at += KEPT_MS - 1
    hooks.at("monzo", "path-99")
    counted.fault = EndpointConnectionError(endpoint_url="https://ssm")
    ages.at += 1
    assert hooks.at("monzo", "path-99").client == "monzo"
    with pytest.raises(WebhooksNotSupportedError):
        hooks.at("monzo", "guess")
    assert counted.secrets == 11


def test_where_nobody_can_say_what_the_addresses_are_the_provider_comes_again(
    hooks: ConfiguredAddresses, put: Any, store: ParameterStore, counted: CountedSsm, ages: Any
) -> None:
    """And is answered two seconds after they can be read."""
    from botocore.exceptions import EndpointConnectionError

    put("monzo", "monzo", endpoints={"one": {"path": "ssm:/s/path"}, "two": {"path": "ssm:/s/token"}})
    store.current()
    counted.fault = EndpointConnectionError(endpoint_url="https://ssm")
    for _ in range(5):
        with pytest.raises(KeyUnavailableError):
            hooks.at("monzo", "path-secret")
    assert counted.secrets == 2

    counted.fault = None
    ages.at += UNKNOWN_MS
    assert hooks.at("monzo", "path-secret").client == "monzo"


def test_a_secret_address_may_stand_before_a_signature_too(hooks: ConfiguredAddresses, put: Any) -> None:
    """Then both must be right."""
    put("slack", "slack", secrets=["ssm:/s/new"], path="ssm:/s/path")

    assert isinstance(hooks.at("slack", "path-secret").read(signed("slack", "new-secret"), NOW), Taken)
    with pytest.raises(WebhooksNotSupportedError):
        hooks.at("slack", None)


def test_each_address_has_its_own_secret_and_account(hooks: ConfiguredAddresses, put: Any) -> None:
    """GitLab's hooks belong to a project: a secret of one opens no other."""
    endpoints = {
        "one": {"secrets": ["ssm:/s/new"], "account": "u-1"},
        "two": {"secrets": ["ssm:/s/old"], "account": "u-2"},
    }
    put("linear", "suunto", endpoints=endpoints)

    found = hooks.at("linear", "one").read(signed("suunto", "new-secret"), NOW)
    assert isinstance(found, Taken)
    assert found.events[0].prepared.accounts == ("u-1",)
    assert found.events[0].prepared.endpoint == "one"
    assert isinstance(hooks.at("linear", "two").read(signed("suunto", "new-secret"), NOW), Refused)


def test_an_outage_is_no_refusal(
    hooks: ConfiguredAddresses, put: Any, counted: CountedSsm, store: ParameterStore
) -> None:
    """Where a secret cannot be had now, the provider is asked to come again; without any it is the settings' fault."""
    from botocore.exceptions import EndpointConnectionError

    put("slack", "slack", secrets=["ssm:/s/new"])
    put("gone", "slack", secrets=["ssm:/s/gone"])
    store.current()
    counted.fault = EndpointConnectionError(endpoint_url="https://ssm")

    with pytest.raises(KeyUnavailableError):
        hooks.at("slack", None)

    counted.fault = None
    with pytest.raises(ClientConfigError):
        hooks.at("gone", None)


@pytest.mark.rule("S-11")
def test_a_flood_of_unknown_names_does_not_ask_for_each(
    hooks: ConfiguredAddresses, put: Any, counted: CountedSsm, ages: Any
) -> None:
    """A client that was just put is found within two seconds; a stranger's guesses cost nobody anything."""
    put("slack", "slack", secrets=["ssm:/s/new"])
    hooks.at("slack", None)
    reads = counted.reads

    for number in range(50):
        with pytest.raises(WebhooksNotSupportedError):
            hooks.at(f"guess-{number}", None)
    assert counted.reads == reads

    put("late", "slack", secrets=["ssm:/s/new"])
    ages.at += UNKNOWN_MS
    assert hooks.at("late", None).client == "late"


def test_settings_that_do_not_hold_are_told_of(hooks: ConfiguredAddresses, put: Any) -> None:
    """The client's other settings do not count either: half of them would be a surprise."""
    put("slack", "slack", secrets="whsec_value")

    with pytest.raises(ClientConfigError):
        hooks.at("slack", None)


@pytest.mark.parametrize(
    ("webhook", "fault"),
    [
        ("on", "webhook: an object"),
        ({"secret": "x"}, "webhook: secret is not a setting of it"),
        ({"secrets": "ssm:/s/x"}, "webhook.secrets: a list"),
        ({"secrets": ["whsec_value"]}, "webhook.secrets: a list"),
        ({"secrets": ["ssm:/s/x"] * 5}, "webhook.secrets: a list of 4 at most"),
        ({"path": "hunter2"}, "webhook.path: where it is kept, never the value itself"),
        ({"verify_token": "hunter2"}, "webhook.verify_token: where it is kept"),
        ({"keys": ["pem"]}, "webhook.keys: an object"),
        ({"hook_id": 7}, "webhook.hook_id: text"),
        ({"account": "\n"}, "webhook.account: text"),
        ({"endpoints": []}, "webhook.endpoints: an object"),
        ({"endpoints": {"a b": {}}}, "webhook.endpoints: objects like webhook itself"),
        ({"endpoints": {"a": {"endpoints": {}}}}, "webhook.endpoints: objects like webhook itself"),
        ({"endpoints": {"a": {"secrets": ["x"]}}}, "webhook.endpoints.a.secrets: a list"),
    ],
)
def test_a_fault_in_the_settings_says_where(webhook: Any, fault: str) -> None:
    """And never what stands there."""
    with pytest.raises(ClientFaultsError) as told:
        read_client("acme", CLIENT | {"provider": "slack", "webhook": webhook})

    assert any(each.startswith(fault) for each in told.value.faults), told.value.faults
    assert "hunter2" not in str(told.value)
    assert "whsec_value" not in str(told.value)


def test_settings_are_read_whole() -> None:
    """Everything that an address may have."""
    webhook = {"secrets": ["ssm:/s/x"], "path": "ssm:/s/p", "verify_token": "ssm:/s/t", "keys": {"1": "pem"}}
    webhook |= {"hook_id": "h", "account": "u"}

    found = read_client("acme", CLIENT | {"provider": "slack", "webhook": webhook | {"endpoints": {"e": webhook}}})

    assert found.webhook == WebhookSettings(("ssm:/s/x",), "ssm:/s/p", {"1": "pem"}, "ssm:/s/t", "h", "u")
    assert found.endpoints == {"e": found.webhook}
    assert replace(found, webhook=None).webhook is None
