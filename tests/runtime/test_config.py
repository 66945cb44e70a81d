"""Parameter Store and the clients' secrets, as moto plays them: kept five minutes, and never a value in a complaint."""

import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from quitclaim.domain.errors import ClientConfigError, KeyUnavailableError, ProviderNotRegisteredError, StoreError
from quitclaim.providers.client import ProviderHttp
from quitclaim.providers.spec import Catalogue
from quitclaim.runtime.config import KEPT_MS, LOOK_AGAIN_MS, OUTAGE_MS, ConfiguredClients, ParameterStore, StackConfig
from quitclaim.runtime.settings import ConnectSettings, SettingsError
from quitclaim.runtime.telemetry import Telemetry
from quitclaim.runtime.wiring import PURPOSES, Parts
from tests.domain.values import AROUND

PATH = "/quitclaim/stack"
GOOD = {"provider": "google", "client_id": "id", "secret": "ssm:/s/google", "scopes": ["openid"]}


class CountedSsm:
    """Parameter Store, with a count of what it is asked and a switch to put it out."""

    def __init__(self, ssm):
        self._ssm = ssm
        self.reads = 0
        self.secrets = 0
        self.fault = None

    def get_paginator(self, name):
        assert name == "get_parameters_by_path"
        self.reads += 1
        if self.fault:
            raise self.fault
        return self._ssm.get_paginator(name)

    def get_parameters(self, **request):
        self.secrets += 1
        if self.fault:
            raise self.fault
        return self._ssm.get_parameters(**request)

    def get_parameter(self, **request):
        self.secrets += 1
        if self.fault:
            raise self.fault
        return self._ssm.get_parameter(**request)


@pytest.fixture
def put(ssm):
    """Puts a parameter under the stack's path."""

    def put_parameter(name, value, kind="String", path=PATH):
        text = value if isinstance(value, str) else json.dumps(value)
        ssm.put_parameter(Name=f"{path}/{name}", Value=text, Type=kind, Overwrite=True)

    put_parameter("base-url", "https://quitclaim.example.com")
    put_parameter("api-id", "a1b2c3")
    return put_parameter


@pytest.fixture
def counted(ssm):
    return CountedSsm(ssm)


@pytest.fixture
def faults():
    """Who was told of a faulty client, and what."""
    return []


@pytest.fixture
def store(counted, secrets_manager, ages, faults):
    return ParameterStore(PATH, counted, lambda: secrets_manager, ages, lambda *told: faults.append(told))


@pytest.fixture
def clients(store):
    return ConfiguredClients(store, Catalogue(), ProviderHttp)


# --- one read --------------------------------------------------------------------------------------------------------


def test_what_the_app_team_set_up(store, put):
    """Address, API and clients; what else lies there is no matter of ours."""
    put("clients/google", GOOD)
    put("clients/web", {**GOOD, "confirmation": "none"})
    put("other/thing", "x")
    put("base-url", "https://quitclaim.example.com/")
    put("clients/foreign", GOOD, path="/quitclaim/stack-two")

    config = store.current()

    assert (config.base_url, config.api_id) == ("https://quitclaim.example.com", "a1b2c3")
    assert set(config.clients) == {"google", "web"}
    assert config.clients["web"].confirmation == "none"
    assert config.faulty == frozenset()


def test_more_clients_than_one_page(store, put):
    """Parameter Store gives ten at a time."""
    for number in range(25):
        put(f"clients/c{number}", GOOD)

    assert len(store.current().clients) == 25


def test_an_empty_path_is_an_empty_configuration(store):
    """Nothing is registered, and nothing is local."""
    config = store.current()

    assert (config.base_url, config.api_id, config.clients, config.is_local) == ("", "", {}, False)


def test_a_slash_at_the_end_of_the_path_is_forgiven(ssm, secrets_manager, ages, put):
    """Names under it are the same."""
    put("clients/google", GOOD)

    assert set(ParameterStore(f"{PATH}/", ssm, lambda: secrets_manager, ages).current().clients) == {"google"}


# --- five minutes ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-28")
@pytest.mark.parametrize("off", AROUND)
def test_S_28_the_configuration_is_kept_five_minutes(store, put, counted, ages, off):
    """At the end of them it is read again."""
    store.current()
    put("base-url", "https://moved.example.com")
    ages.at += KEPT_MS + off

    seen = store.current().base_url

    assert KEPT_MS == 300_000
    assert seen == ("https://quitclaim.example.com" if off < 0 else "https://moved.example.com")
    assert counted.reads == (1 if off < 0 else 2)


@pytest.mark.parametrize(
    "fault",
    [
        ClientError({"Error": {"Code": "ThrottlingException", "Message": "canary"}}, "GetParametersByPath"),
        EndpointConnectionError(endpoint_url="https://ssm"),
    ],
    ids=["refused", "unreachable"],
)
def test_an_outage_of_parameter_store(store, put, counted, ages, fault):
    """What is known goes on; where nothing is known the caller may try again, and no library's words reach them."""
    counted.fault = fault
    with pytest.raises(StoreError) as refused:
        store.current()
    counted.fault = None
    known = store.current()
    counted.fault = fault
    ages.at += 10 * KEPT_MS

    assert store.current() is known
    assert "canary" not in str(refused.value)
    counted.fault = None
    ages.at += LOOK_AGAIN_MS
    assert store.current() is not known


# --- clients ---------------------------------------------------------------------------------------------------------


def test_a_client_that_was_just_put_is_there_at_once(clients, put, counted):
    """Nobody waits five minutes for it; a known one costs no read."""
    with pytest.raises(ProviderNotRegisteredError):
        clients.named("google")
    put("clients/google", GOOD)
    before = counted.reads

    assert clients.named("google").provider == "google"
    assert clients.named("google").name == "google"
    assert counted.reads == before + 1


def test_an_unknown_client_or_provider_is_not_registered(clients, put):
    """A client of a provider that the catalogue lacks is none either."""
    put("clients/lost", {**GOOD, "provider": "nowhere"})

    for name in ("nobody", "lost", "..", "a/b", ""):
        with pytest.raises(ProviderNotRegisteredError):
            clients.named(name)


FAULTY = [
    "canary",
    '"canary"',
    "[1]",
    "{canary}",
    '{"client_id": "canary',
    json.dumps({**GOOD, "provider": 1, "client_id": "canary\n", "secret": "canary", "scopes": "canary canary"}),
    json.dumps({**GOOD, "scopes": ["canary canary"]}),
    json.dumps({**GOOD, "confirmation": "canary"}),
    json.dumps({**GOOD, "purge_on_loss": "canary"}),
    json.dumps({**GOOD, "more": "canary"}),
    json.dumps({**GOOD, "secret": "the-canary-itself"}),
]


@pytest.mark.parametrize("text", FAULTY)
def test_a_faulty_client_is_reported_without_its_values(clients, store, put, faults, text):
    """By name and by what is wrong: somebody may have pasted the secret itself. The others go on."""
    put("clients/google", GOOD)
    put("clients/faulty", text)

    with pytest.raises(ClientConfigError) as refused:
        clients.named("faulty")

    assert {name for name, _ in faults} == {"faulty"}
    assert all(told for _, told in faults)
    assert "canary" not in repr(faults)
    assert refused.value.details == {"client": "faulty", "reason": "the client's parameter does not hold"}
    assert clients.named("google").name == "google"
    assert clients.sound() == {"google"}
    assert clients.names() == {"google", "faulty"}


def test_a_faulty_client_is_mended_without_waiting(clients, put):
    """Whoever puts it right sees it right."""
    put("clients/google", "{}")
    with pytest.raises(ClientConfigError):
        clients.named("google")

    put("clients/google", GOOD)

    assert clients.named("google").name == "google"


def test_a_sweep_sees_every_client_of_the_moment(clients, put):
    """The list is read afresh: what was just put may have something due."""
    assert clients.names() == frozenset()
    put("clients/google", GOOD)

    assert clients.names() == {"google"}


def test_where_the_owner_removes_the_access_by_hand(clients):
    """By the catalogue; None for what it does not know."""
    assert (clients.manual_page("spotify") or "").startswith("https://")
    assert clients.manual_page("nowhere") is None
    assert clients.manual_page("../google") is None


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def keep(ssm, secrets_manager):
    """Keeps a text as a secret, in one of the two places."""

    def keep_secret(ref, text):
        kind, _, name = ref.partition(":")
        if kind == "ssm":
            ssm.put_parameter(Name=name, Value=text, Type="SecureString", Overwrite=True)
            return ref
        found = {each["Name"]: each["ARN"] for each in secrets_manager.list_secrets()["SecretList"]}
        if name in found:
            secrets_manager.put_secret_value(SecretId=name, SecretString=text)
            return ref
        return f"secretsmanager:{secrets_manager.create_secret(Name=name, SecretString=text)['ARN']}"

    return keep_secret


REFS = ["ssm:/quitclaim-secrets/stack/google", "secretsmanager:quitclaim/stack/google"]


@pytest.mark.parametrize("ref", REFS)
def test_a_secret_is_opened_where_it_is_kept(store, keep, ref):
    """By name, and in Secrets Manager by ARN; blanks around it were never meant."""
    arn = keep(ref, "  top-secret\n")

    assert store.secret(ref).reveal() == "top-secret"
    assert store.secret(arn).reveal() == "top-secret"


@pytest.mark.parametrize("ref", REFS)
@pytest.mark.parametrize("off", AROUND)
def test_S_28_a_rotated_secret_is_seen_after_five_minutes(store, keep, ages, ref, off):
    """Without a deployment."""
    keep(ref, "old")
    store.secret(ref)
    keep(ref, "new")
    ages.at += KEPT_MS + off

    assert store.secret(ref).reveal() == ("old" if off < 0 else "new")


def test_a_secret_costs_one_call_in_five_minutes(store, keep, counted):
    """However many requests ask for it."""
    keep(REFS[0], "s")
    for _ in range(10):
        store.secret(REFS[0])

    assert counted.secrets == 1


@pytest.mark.parametrize("ref", REFS)
def test_a_missing_or_blank_secret_is_the_clients_fault(store, keep, ref):
    """Said by name of the fault; neither where it is kept nor what it is."""
    with pytest.raises(ClientConfigError) as missing:
        store.secret(ref)
    keep(ref, " \n ")
    with pytest.raises(ClientConfigError) as blank:
        store.secret(ref)

    assert missing.value.details == {"reason": "the client's secret cannot be read"}
    assert blank.value.details == {"reason": "the client's secret is blank"}


AWAY = [
    EndpointConnectionError(endpoint_url="https://ssm"),
    ClientError(
        {"Error": {"Code": "InternalServerError"}, "ResponseMetadata": {"HTTPStatusCode": 500}}, "GetParameter"
    ),
    ClientError(
        {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "GetParameter"
    ),
]


@pytest.mark.parametrize("fault", AWAY, ids=["unreachable", "broken", "throttled"])
@pytest.mark.parametrize("off", AROUND)
def test_a_secret_serves_through_an_outage_for_a_day(store, keep, counted, ages, fault, off):
    """Revoking and refreshing must not end because Parameter Store is away; after a day nobody vouches for it."""
    keep(REFS[0], "s")
    store.secret(REFS[0])
    counted.fault = fault
    ages.at += OUTAGE_MS + off

    if off < 0:
        assert store.secret(REFS[0]).reveal() == "s"
    else:
        with pytest.raises(KeyUnavailableError) as away:
            store.secret(REFS[0])
        assert away.value.retryable


def test_nobody_waits_for_an_outage_at_every_call(store, keep, counted, ages, put):
    """A look that failed is not repeated for half a minute; once it succeeds, all is as before."""
    put("clients/google", GOOD)
    keep(REFS[0], "old")
    store.secret(REFS[0])
    store.current()
    counted.fault = AWAY[0]
    ages.at += KEPT_MS
    for _ in range(5):
        store.secret(REFS[0])
        store.current()
    assert (counted.secrets, counted.reads) == (2, 2)
    keep(REFS[0], "new")
    put("clients/another", GOOD)
    counted.fault = None

    ages.at += LOOK_AGAIN_MS

    assert store.secret(REFS[0]).reveal() == "new"
    assert "another" in store.current().clients


def test_a_secret_that_was_never_read_is_away_and_not_the_clients_fault(store, counted):
    """503 and to be repeated: the client's settings may be right."""
    counted.fault = AWAY[0]

    with pytest.raises(KeyUnavailableError):
        store.secret(REFS[0])


@pytest.mark.parametrize("code", ["ParameterNotFound", "AccessDeniedException", "InvalidKeyId"])
def test_a_secret_that_was_taken_away_serves_no_longer(store, keep, counted, ages, code):
    """The service answered: that is no outage."""
    keep(REFS[0], "s")
    store.secret(REFS[0])
    ages.at += KEPT_MS
    counted.fault = ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "GetParameter")

    for _ in range(2):
        with pytest.raises(ClientConfigError):
            store.secret(REFS[0])


def test_a_secret_that_could_not_be_opened_is_tried_again_at_once(store, keep):
    """A failure is never kept."""
    with pytest.raises(ClientConfigError):
        store.secret(REFS[0])
    keep(REFS[0], "s")

    assert store.secret(REFS[0]).reveal() == "s"


# --- the local stack -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "is_local"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.0.0.1", True),
        ("http://localhost:8000", True),
        ("http://LOCALHOST", True),
        ("http://[::1]:8000", True),
        ("http://[::1]", True),
        ("https://127.0.0.1:8000", True),
        ("", False),
        ("https://x.execute-api.eu-west-1.amazonaws.com", False),
        ("https://localhost.example.com", False),
        ("https://127.0.0.1.example.com", False),
        ("https://127.0.0.1@evil.example", False),
        ("https://127.0.0.1:80@evil.example", False),
        ("https://localhost:x@evil.example:1", False),
        ("https://[::1]@evil.example", False),
        ("http://127.0.0.2", False),
        ("http://0.0.0.0", False),
        ("http://[::2]", False),
        ("127.0.0.1:8000", False),
        ("//evil.example", False),
    ],
)
def test_what_is_local(base_url, is_local):
    """The host by its name, not by how the address begins or ends."""
    assert StackConfig(base_url, "", {}, frozenset(), 0).is_local is is_local


SWITCHES = {"QUITCLAIM_CLOCK_FILE": ("clock_file", "clock"), "QUITCLAIM_CATALOGUE": ("catalogue", "clients")}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("base_url", ["https://quitclaim.example.com", "https://localhost.example.com"])
def test_a_local_switch_is_refused_in_the_cloud(clients_at_hand, put, switch, base_url, tmp_path):
    """A clock that somebody moves, or a catalogue that somebody adds, only where the address is loopback."""
    put("base-url", base_url)
    setting, part = SWITCHES[switch]

    with pytest.raises(SettingsError) as refused:
        getattr(parts(**{setting: str(tmp_path)}), part)

    assert switch in str(refused.value)


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_local_switch_serves_on_loopback(clients_at_hand, put, switch, tmp_path):
    """There it is what makes a demonstration quick."""
    put("base-url", "http://127.0.0.1:8000")
    setting, part = SWITCHES[switch]

    assert getattr(parts(**{setting: str(tmp_path / "file")}), part)


@pytest.mark.parametrize("part", ["clock", "clients"])
def test_without_a_switch_nobody_is_asked(clients_at_hand, part):
    """A function in the cloud starts without a call for what it does not use."""
    assert getattr(parts(), part)


def parts(**local):
    """What a function is made of."""
    settings = ConnectSettings(
        table="t",
        ring_key="arn",
        config_path=PATH,
        return_origins="",
        sweep_function="sweep",
        delivery_queue="queue",
        **local,
    )
    return Parts(settings, PURPOSES["connect"], Telemetry())
