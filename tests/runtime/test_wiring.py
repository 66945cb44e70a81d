"""The composition root: who may use which key, and how long anything is waited for."""

import boto3
import pytest

from quitclaim.domain.limits import SAVE_MS
from quitclaim.runtime import wiring
from quitclaim.runtime.settings import SettingsError
from quitclaim.runtime.wiring import PURPOSES, QUICK
from quitclaim.security.keys import PurposeNotGrantedError
from tests.infra.deployed import function_ids, listed, role_of, statements

BUILDERS = {
    "app_api": wiring.app_api,
    "access_token": wiring.access_token,
    "connect": wiring.connect,
    "revoke_sweep": wiring.revoke_sweep,
    "publish": wiring.publish,
    "reconcile": wiring.reconcile,
    "maintain": wiring.maintain,
    "deliver": wiring.deliver,
    "webhook": lambda: wiring.webhook(lambda event, is_new: None),
}
ENVIRONMENT = {
    "QUITCLAIM_TABLE": "table",
    "QUITCLAIM_RING_KEY": "arn:aws:kms:eu-west-1:111122223333:key/ring",
    "QUITCLAIM_CONFIG_PATH": "/quitclaim/stack",
    "QUITCLAIM_RETURN_ORIGINS": "",
    "QUITCLAIM_SWEEP_FUNCTION": "sweep",
    "QUITCLAIM_ACCESS_TOKEN_FUNCTION": "access",
    "QUITCLAIM_EVENT_BUS": "bus",
    "QUITCLAIM_DELIVERY_QUEUE": "https://sqs.eu-west-1.amazonaws.com/111122223333/deliveries",
}


@pytest.fixture
def environment(clients_at_hand, monkeypatch):
    """As the template sets it."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("QUITCLAIM_CLOCK_FILE", "QUITCLAIM_CATALOGUE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "wiring")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Quitclaim/test")


def purposes_of_role(function):
    """The key purposes whose keys the function's role lets it open."""
    return {
        purpose
        for statement in statements(role_of(function))
        if "kms:Decrypt" in listed(statement["Action"])
        for purpose in (statement.get("Condition", {}).get("StringEquals", {}).get("kms:EncryptionContext:purpose", []))
    }


@pytest.mark.parametrize("function", PURPOSES)
def test_a_function_is_given_the_purposes_that_its_role_allows(function):
    """The code and the template say the same, so neither can be read alone and be wrong."""
    assert purposes_of_role(function) == PURPOSES[function]


def test_every_function_has_a_row():
    """Of the template, none more and none less."""
    assert set(PURPOSES) == set(BUILDERS) == set(function_ids())


@pytest.mark.parametrize("function", BUILDERS)
def test_a_function_is_built_without_asking_anybody(environment, function, monkeypatch):
    """A cold start costs no call: neither table, nor keys, nor configuration."""

    def refuse(*_, **__):
        pytest.fail("a cold start asked")

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", refuse)

    world = BUILDERS[function]()

    assert world.parts.purposes == PURPOSES[function]


@pytest.mark.rule("S-17")
@pytest.mark.parametrize("function", BUILDERS)
def test_a_purpose_that_was_not_given_is_a_mistake_of_ours(environment, function):
    """It is refused before KMS is asked."""
    vault = BUILDERS[function]().parts.vault

    for purpose in {"authorization", "use", "revoke", "confirm", "index"} - PURPOSES[function]:
        with pytest.raises(PurposeNotGrantedError):
            vault.ready(purpose)


@pytest.mark.rule("F-13")
@pytest.mark.parametrize("function", BUILDERS)
def test_an_environment_without_settings_is_refused_whole(monkeypatch, function):
    """At the cold start, with every name that is missing."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(SettingsError) as refused:
        BUILDERS[function]()

    assert len(refused.value.faults) >= 3


def test_3_10_the_sdk_gives_up_within_a_save():
    """Attempts x (connect + read) are 4 s at most: a write that is not answered is decided again."""
    attempts = QUICK.retries["total_max_attempts"]

    assert attempts * (QUICK.connect_timeout + QUICK.read_timeout) * 1000 <= SAVE_MS


@pytest.mark.parametrize("function", BUILDERS)
def test_3_10_every_client_that_a_caller_waits_for_is_quick(environment, function, monkeypatch):
    """Table, keys, configuration, secrets, and the kick; only a replay waits for as long as its function may run."""
    made = []
    at_hand = boto3.client

    def client(name, **given):
        made.append((name, given["config"]))
        return at_hand(name)

    monkeypatch.setattr(boto3, "client", client)
    world = BUILDERS[function]()
    parts = world.parts
    assert parts.table
    assert parts.vault
    assert parts.config
    parts.kick("sweep").revoke_now(["r1"])
    parts.kick("sweep").revoke_now(["r2"])

    assert [name for name, _ in made].count("lambda") == 1
    assert {name for name, _ in made} == {"dynamodb", "kms", "ssm", "lambda"}
    for _, config in made:
        attempts = config.retries["total_max_attempts"]
        assert attempts * (config.connect_timeout + config.read_timeout) * 1000 <= SAVE_MS
