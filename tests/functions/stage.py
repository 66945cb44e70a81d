"""
The functions on one table, called as Lambda calls them: exact events in, answers out, and every line they wrote.

AWS is moto, the table is the template's, the provider is the fake authorization server, and the clock is the file that
the local stack moves.
"""

import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import boto3
import httpx
import pytest
from botocore.client import BaseClient
from botocore.config import Config
from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends

from infra.local.events import HttpAnswer, answer_of
from infra.local.template import Template, read_template
from quitclaim.domain.ids import digest
from quitclaim.domain.limits import BATCH, FORWARD_MS
from quitclaim.domain.webhooks import Delivery, DeliveryState, Prepared, Trust
from quitclaim.ports import Update
from quitclaim.providers import client as provider_client
from quitclaim.providers.client import ProviderHttp
from quitclaim.providers.refusals import REST_S
from quitclaim.runtime import wiring
from quitclaim.runtime.world import real_now
from tests.fakes.broker import BrokerServer, broker_text
from tests.fakes.provider import CLIENT_ID, CLIENT_SECRET, AcmeServer
from tests.fakes.tables import OneByOneTable
from tests.infra.deployed import of_type, variables
from tests.infra.iam import CALLS, listening, names_of
from tests.runtime.events import API_ID, Context, http_event
from tests.runtime.output import heard

ROOT: Final = Path(__file__).parents[2]
BASE_URL: Final = "http://127.0.0.1:8321"
RETURN_TO: Final = "https://app.example/done"
TENANT: Final = "demo"
NUMBERS = count(1)


@cache
def template() -> Template:
    """The transformed template."""
    return read_template(ROOT / "template.yaml", "stack")


@cache
def sdk(name: str) -> Any:
    """A client: dear to make, and keeps nothing of an account."""
    session = boto3.Session("testing", "testing", region_name="eu-west-1")
    return session.client(name, config=Config(retries={"total_max_attempts": 1}))  # type: ignore[call-overload]


class BatchesOneByOne(OneByOneTable):
    """moto does not read our PartiQL; but a batch is what the service takes at once."""

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        """As single writes."""
        assert 0 < len(updates) <= BATCH
        CALLS.note_api_call("dynamodb", "BatchExecuteStatement", {"updates": updates, "table": self._name})
        with CALLS.unseen():
            return super().batch_update(updates)


@dataclass
class FakeLambda:
    """Remembers who was asked for what."""

    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:
        """As the service takes it."""
        CALLS.note_api_call("lambda", "Invoke", {"FunctionName": FunctionName})
        self.asked.append((FunctionName, InvocationType, json.loads(Payload)))
        if InvocationType == "RequestResponse":
            return {"StatusCode": 200, "Payload": BytesIO(b"null")}
        return {"StatusCode": 202}


LAMBDA: Final = FakeLambda()


@dataclass
class FakeBus:
    """EventBridge: remembers what it was given, and takes what it is told to take."""

    taken: list[dict[str, Any]] = field(default_factory=list)
    refuses: Callable[[int], str | None] = lambda number: None
    """Of the so-many-th entry of a call: why it is not taken."""

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        """As the service takes it: up to ten, each with an answer of its own."""
        assert 0 < len(Entries) <= 10
        CALLS.note_api_call("events", "PutEvents", {"Entries": Entries})
        answers: list[dict[str, Any]] = []
        for number, entry in enumerate(Entries):
            assert set(entry) == {"EventBusName", "Source", "DetailType", "Time", "Detail"}
            reason = self.refuses(number)
            if reason is None:
                self.taken.append(entry)
            answers.append({"EventId": str(number)} if reason is None else {"ErrorCode": reason, "ErrorMessage": "no"})
        return {"FailedEntryCount": sum("ErrorCode" in each for each in answers), "Entries": answers}

    @property
    def details(self) -> list[dict[str, Any]]:
        """What the app would read, in order."""
        return [json.loads(entry["Detail"]) for entry in self.taken]


BUS: Final = FakeBus()
FAKES: Final = {"lambda": LAMBDA, "events": BUS}


def play_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks boto3 for a client gets moto's, or the fake Lambda."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(boto3, "client", lambda name, **_: FAKES[name] if name in FAKES else sdk(name))
    monkeypatch.setattr(wiring, "DynamoTable", BatchesOneByOne)
    monkeypatch.setattr(BaseClient, "_make_api_call", listening(BaseClient._make_api_call))  # noqa: SLF001 - the one door


@dataclass(frozen=True)
class Answer:
    """What went back to the client."""

    status: int
    headers: dict[str, str]
    cookies: list[str]
    text: str

    @property
    def json(self) -> Any:
        """The body read."""
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The stable code: of an envelope, of one of our pages, or in the query of a redirect."""
        if "location" in self.headers:
            return self.query.get("code", "")
        if self.headers["content-type"].startswith("text/html"):
            return self.text.rpartition("Reference for support: ")[2].partition("<")[0]
        return str(self.json["code"])

    @property
    def query(self) -> dict[str, str]:
        """Of the address that the browser is sent to."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.headers["location"]).query).items()}


def answered(payload: Mapping[str, Any]) -> Answer:
    """What the service makes of a function's *payload*."""
    told: HttpAnswer = answer_of(json.dumps(payload).encode())
    headers = {name: value for name, value in told.headers if name != "set-cookie"}
    cookies = [value for name, value in told.headers if name == "set-cookie"]
    assert len(headers) + len(cookies) == len(told.headers), "a header stands twice"
    return Answer(told.status, headers, cookies, told.body.decode())


@dataclass
class Stage:
    """One stack with everything in it. Tests that share one take turns: each has an owner of its own."""

    folder: Path
    server: AcmeServer
    entry: str
    broker: BrokerServer = field(default_factory=BrokerServer)
    number: int = field(default_factory=lambda: next(NUMBERS))
    secrets: set[str] = field(default_factory=set)
    raw: str = ""
    _capsys: pytest.CaptureFixture[str] | None = None
    _loaded: dict[str, ModuleType] = field(default_factory=dict)
    _acceptor: ModuleType | None = None
    _offset_ms: int = 0
    _turn: int = 0

    def __post_init__(self) -> None:
        """Create what the template creates, and what the app team adds."""
        self.name = f"stack{self.number}"
        self.table = f"{self.name}-table"
        self.config_path = f"/quitclaim/{self.name}"
        self.secret_name = f"/quitclaim-secrets/{self.name}/acme"
        (properties,) = of_type("AWS::DynamoDB::Table").values()
        # What moto need not know of the table is left out.
        wanted = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
        sdk("dynamodb").create_table(TableName=self.table, **{each: properties[each] for each in wanted})
        self.queue_url = sdk("sqs").create_queue(QueueName=f"{self.name}-deliveries")["QueueUrl"]
        self.ring_key = sdk("kms").create_key()["KeyMetadata"]["Arn"]
        (self.folder / "acme.json").write_text(self.entry)
        (self.folder / "health.json").write_text(broker_text("health"))
        self.put("base-url", BASE_URL)
        self.put("api-id", API_ID)
        self.add_client("acme")
        self.add_client("health", provider="health")
        sdk("ssm").put_parameter(Name=self.secret_name, Value=CLIENT_SECRET.reveal(), Type="SecureString")

    def turn(self, capsys: pytest.CaptureFixture[str]) -> "Stage":
        """The next test's: its own owner, a provider that remembers nothing, and a table with the key ring alone."""
        self._turn += 1
        self.advance(REST_S)  # a client that was refused in the last one rests no longer
        self._capsys = capsys
        lying = self._moto_table().items
        for partition in [key for key in lying if not key.value.startswith("K#")]:
            del lying[partition]
        self.raw = ""
        self.secrets = {CLIENT_SECRET.reveal()}
        self.server.ledger.clear()
        self.server.asked.clear()
        self.server.misbehaviours.clear()
        self.broker = BrokerServer()
        LAMBDA.asked.clear()
        BUS.taken.clear()
        BUS.refuses = lambda number: None
        return self

    # --- the account ---

    @property
    def owner(self) -> str:
        """The owner of this turn."""
        return f"ann-{self._turn}"

    def put(self, name: str, value: str) -> None:
        """Set a parameter of the stack."""
        sdk("ssm").put_parameter(Name=f"{self.config_path}/{name}", Value=value, Type="String", Overwrite=True)

    def add_client(self, name: str, **settings: Any) -> None:
        """Set a client of Acme up."""
        config = {"provider": "acme", "client_id": CLIENT_ID, "secret": f"ssm:{self.secret_name}", "scopes": ["read"]}
        self.put(f"clients/{name}", json.dumps(config | settings))

    def items(self) -> dict[tuple[str, str], Any]:
        """Every item; keys of the ring and heartbeats apart."""
        found = {(item["PK"]["S"], item["SK"]["S"]): item for item in self._everything()}
        return {key: item for key, item in found.items() if key[0][:2] not in ("K#", "H#")}

    def _everything(self) -> list[dict[str, Any]]:
        # Not through the service's API: in moto a scan costs more than all that a test asks of it.
        return [deepcopy(item.to_json()["Attributes"]) for item in self._moto_table().all_items()]

    def _moto_table(self) -> Any:
        return dynamodb_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].get_table(self.table)

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self._offset_ms += int(seconds * 1000)
        (self.folder / "clock").write_text(str(self._offset_ms))

    def now(self) -> int:
        """By the moved clock."""
        return real_now() + self._offset_ms

    # --- the functions ---

    def function(self, name: str) -> ModuleType:
        """The function's module; kept from its cold start on, as an instance is."""
        if name not in self._loaded:
            self._loaded[name] = self.cold_start(name)
        return self._loaded[name]

    def restart(self) -> None:
        """Every function begins anew, as after a deployment."""
        self._loaded.clear()

    def cold_start(self, name: str, **environment: str) -> ModuleType:
        """The function's module, imported afresh with the template's variables; *environment* has other values."""
        service = f"{name}-{next(NUMBERS)}"
        values = {
            "QUITCLAIM_TABLE": self.table,
            "QUITCLAIM_RING_KEY": self.ring_key,
            "QUITCLAIM_CONFIG_PATH": self.config_path,
            "QUITCLAIM_RETURN_ORIGINS": "https://app.example",
            "QUITCLAIM_SWEEP_FUNCTION": f"{self.name}-revoke_sweep",
            "QUITCLAIM_ACCESS_TOKEN_FUNCTION": f"{self.name}-access_token",
            "QUITCLAIM_EVENT_BUS": f"{self.name}-bus",
            "QUITCLAIM_DELIVERY_QUEUE": self.queue_url,
            "POWERTOOLS_METRICS_NAMESPACE": f"Quitclaim/{self.name}",
            "POWERTOOLS_LOG_LEVEL": "INFO",
            "POWERTOOLS_SERVICE_NAME": service,
        } | environment
        local = {"QUITCLAIM_CLOCK_FILE": str(self.folder / "clock"), "QUITCLAIM_CATALOGUE": str(self.folder)}
        spec = importlib.util.spec_from_file_location(f"app_{service}", ROOT / "functions" / name / "app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        transport = httpx.MockTransport(self._provider)
        with pytest.MonkeyPatch.context() as monkeypatch:
            for variable in variables(name):
                monkeypatch.setenv(variable, values[variable])
            for variable, value in local.items():
                monkeypatch.setenv(variable, value)
            monkeypatch.setattr(
                provider_client, "ProviderHttp", lambda **given: ProviderHttp(transport, transport, **given)
            )
            spec.loader.exec_module(module)
            assert module.wired.parts.http  # made while the fake provider is in place
        heard(service)
        return module

    def _provider(self, request: httpx.Request) -> httpx.Response:
        """Acme, or the broker, by the host that is asked."""
        request.read()
        is_broker = request.url.host == "api.broker.example.com"
        return (self.broker if is_broker else self.server).transport.handle_request(request)

    def invoke(self, name: str, event: Mapping[str, Any], remaining_ms: int | None = None) -> Any:
        """
        Call a function's handler with *event*; its time is what the template gives it, and each of its calls is one
        that its role allows.
        """
        (timeout,) = [each.timeout_s for each in template().functions if each.name == name]
        left = int(timeout * 1000) if remaining_ms is None else remaining_ms
        names = names_of(table=self.table, ring_key=self.ring_key, queue=self.queue_url, stack=self.name)
        with CALLS.of(name, names, judges=False):  # whether it is on loopback, is asked for what is local alone
            handler = self.function(name).handler
        with CALLS.of(name, names):
            return handler(dict(event), Context(left))

    def http(
        self, name: str, method: str, path: str, *, body: Any = None, remaining_ms: int | None = None, **given: Any
    ) -> Answer:
        """The answer of an HTTP function to a request; *body* is sent as JSON unless it is bytes."""
        headers = dict(given.pop("headers", {}))
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        routes = template().routes
        event = http_event(method, path, body=body or b"", headers=headers, routes=routes, **given)
        return answered(self.invoke(name, event, remaining_ms))

    @property
    def kicks(self) -> list[dict[str, Any]]:
        """What the sweep was asked for, asynchronously."""
        mine = (f"{self.name}-revoke_sweep", "Event")
        return [payload for name, kind, payload in LAMBDA.asked if (name, kind) == mine]

    @property
    def replays(self) -> list[dict[str, Any]]:
        """What `access_token` was asked for, asynchronously."""
        mine = (f"{self.name}-access_token", "Event")
        return [payload for name, kind, payload in LAMBDA.asked if (name, kind) == mine]

    # --- the provider's events ---

    def accept(self, name: str, account: str | None = None, **event: Any) -> None:
        """An event of now, of the owner's account or another, was verified, accepted and is due in 30 s."""
        if self._acceptor is None:  # an instance of its own, so that what it has read is not known to the one invoked
            self._acceptor = self.cold_start("deliver")
        parts = self._acceptor.wired.parts
        now = parts.clock.now()
        plain = {"trust": Trust.SIGNED, "sha256": "0" * 64, "size": 2, "kind": "thing.made", "occurred_at": now} | event
        prepared = Prepared("acme", "acme", received_at=now, accounts=(account or self.owner,), **plain)
        body = parts.vault.seal_delivery("acme", name, prepared, b"{}")
        delivery = Delivery("acme", name, "acme", DeliveryState.ACCEPTED, now, 2, body=body, next=now + FORWARD_MS)
        assert parts.webhooks.accept(delivery)

    def deliver(self, *messages: Mapping[str, str] | str, remaining_ms: int | None = None) -> list[str]:
        """What the queue's messages make the function do; which of them (`m0`, `m1` …) are to come again."""
        bodies = [message if isinstance(message, str) else json.dumps(message) for message in messages]
        records = [
            {"messageId": f"m{number}", "receiptHandle": f"h{number}", "body": body, "eventSource": "aws:sqs"}
            for number, body in enumerate(bodies)
        ]
        told = self.invoke("deliver", {"Records": records}, remaining_ms)
        return [each["itemIdentifier"] for each in told["batchItemFailures"]]

    def sent(self) -> list[dict[str, str]]:
        """What was put into the queue of deliveries; it is empty afterwards."""
        found: list[dict[str, str]] = []
        while messages := sdk("sqs").receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(json.loads(message["Body"]))
                sdk("sqs").delete_message(QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"])
        return found

    # --- the app ---

    @property
    def path(self) -> str:
        """Of the owner."""
        return f"/v1/tenants/{TENANT}/owners/{self.owner}"

    def api(self, method: str, path: str = "", **given: Any) -> Answer:
        """Call the app's API, below the owner."""
        return self.http("app_api", method, self.path + path, **given)

    def start(self, connection: str = "acme", **body: Any) -> str:
        """Start a connection; its connect link."""
        headers = body.pop("headers", {})
        asked = {"connection_id": connection, "provider": "acme", **body}
        told = self.api("POST", "/connections", body=asked, headers=headers)
        assert told.status == 201, told.text
        url: str = told.json["connect_url"]
        self.secrets.add(url.rpartition("/")[2])
        return url

    def token(self, connection: str = "acme", **given: Any) -> Answer:
        """Ask for an access token."""
        given.setdefault("body", {})
        return self.http("access_token", "POST", f"{self.path}/connections/{connection}/access-token", **given)

    # --- the browser ---

    def visit(self, url: str) -> tuple[str, str]:
        """Open a connect link: the provider's address, and the cookie that was set, as `name=value`."""
        told = self.http("connect", "GET", urlsplit(url).path)
        assert told.status == 303, told.text
        cookie = told.cookies[0].partition(";")[0]
        self.secrets |= {cookie.partition("=")[2], told.query["state"]}
        return told.headers["location"], cookie

    def callback(self, cookie: str, *, provider: str = "acme", **parameters: str) -> Answer:
        """Come back from the provider."""
        query = urlencode(parameters, quote_via=quote)
        headers = {"cookie": cookie} if cookie else {}
        return self.http("connect", "GET", f"/callback/{provider}", query=query, headers=headers)

    def agreed(self, url: str) -> tuple[str, str, str]:
        """Visit the link and agree at the provider: cookie, state and code, not brought back yet."""
        location, cookie = self.visit(url)
        state, code = self.server.approves(location, self.owner)
        self.secrets |= {state.reveal(), code.reveal()}
        return cookie, state.reveal(), code.reveal()

    def returned(self, url: str) -> Answer:
        """The same, brought back."""
        cookie, state, code = self.agreed(url)
        return self.callback(cookie, state=state, code=code)

    def code_of(self, told: Answer) -> str:
        """The confirmation code on our page, or in the address of the app's."""
        if "location" in told.headers:
            code = told.query["confirm_code"]
        else:
            (code,) = re.findall(r'aria-label="Confirmation code">([^<]+)<', told.text)
        self.secrets.add(code)
        return code

    def connected(self, connection: str = "acme", **body: Any) -> dict[str, Any]:
        """A connection that is ready; its view."""
        code = self.code_of(self.returned(self.start(connection, **body)))
        told = self.api("POST", f"/connections/{connection}/confirm", body={"generation": 1, "code": code})
        assert told.status == 200, told.text
        view: dict[str, Any] = told.json
        return view

    # --- the stream ---

    def outbox(self) -> list[dict[str, Any]]:
        """Every event of this turn's stack as a record of the table's stream, in order."""
        keys = sorted(key for key, item in self.items().items() if item["ty"]["S"] == "event")
        return [
            {
                "eventID": f"{number}",
                "eventName": "INSERT",
                "eventSource": "aws:dynamodb",
                "dynamodb": {
                    "Keys": {"PK": {"S": pk}, "SK": {"S": sk}},
                    "SequenceNumber": f"{number:021d}",
                    "StreamViewType": "NEW_IMAGE",
                },
            }
            for number, (pk, sk) in enumerate(keys, start=100)
        ]

    # --- what was written ---

    def lines(self) -> list[dict[str, Any]]:
        """Every line since the last look."""
        assert self._capsys is not None
        out, err = self._capsys.readouterr()
        self.raw += out + err
        return [json.loads(line) for line in (out + err).splitlines()]

    def metrics(self) -> dict[str, list[float]]:
        """The values of every metric line since the last look."""
        found: dict[str, list[float]] = {}
        for line in self.lines():
            for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
                for metric in directive["Metrics"]:
                    found.setdefault(metric["Name"], []).extend(line[metric["Name"]])
        return found

    def leaks(self, text: str) -> list[str]:
        """Which secrets of this stage *text* holds: tokens that the provider issued, and what the tests learnt."""
        known = self.secrets | set(self.server.ledger)
        return sorted(each for each in known | {digest(each) for each in known} if each in text)
