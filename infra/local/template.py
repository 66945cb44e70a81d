"""
What the transformed template says: functions, routes, schedules and the resources behind them.

`template.yaml` goes through SAM's own translator, so the local stack is built from what CloudFormation would be given.
The functions, the API, the schedules and the roles are played by this package; the rest is created by MiniStack's
CloudFormation, which also resolves the functions' environments: each value that is no plain text becomes an output of
the stack.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from boto3.session import Session

from infra.local.routes import Route, routes_of

type Json = dict[str, Any]

ACCOUNT = "000000000000"
REGION = "us-east-1"

# Played by this package.
_PLAYED = (
    "AWS::ApiGatewayV2::",
    "AWS::Events::Rule",
    "AWS::IAM::",
    "AWS::Lambda::",
    "AWS::Scheduler::",
)
# Of use in the cloud only, or refused by MiniStack 1.5.33.
_LEFT_OUT = (
    "AWS::CloudFormation::",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::EventSchemas::",
    "AWS::Events::ApiDestination",
    "AWS::Logs::QueryDefinition",
)
_CODE_BUCKET = "here"
_VARIABLE = re.compile(r"\$\{([A-Za-z0-9]+)(?:\.([A-Za-z0-9.]+))?\}")


class TemplateError(ValueError):
    """The template asks for something that the local stack cannot play."""


@dataclass(frozen=True)
class Function:
    """A Lambda function. *name* is its folder under functions/, *full_name* what callers of Lambda use."""

    logical_id: str
    name: str
    full_name: str
    code: Path
    handler: str
    timeout_s: float
    memory_mb: int
    log_format: str
    log_level: str
    environment: Mapping[str, object]
    max_event_age_s: float
    workers: int

    @property
    def source(self) -> Path:
        """The file that the handler is in."""
        return self.code / f"{self.handler.rpartition('.')[0].replace('.', '/')}.py"

    @property
    def arn(self) -> str:
        """The function's ARN."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.full_name}"


@dataclass(frozen=True)
class Schedule:
    """A schedule of the template that invokes one function."""

    name: str
    function: str
    period_s: int
    payload: str | None


@dataclass(frozen=True)
class Source:
    """An event source mapping: from which table's stream or queue a function is fed, and how (Lambda's defaults)."""

    function: str
    resource: str
    is_stream: bool
    batch_size: int
    reports_items: bool
    starts_at: str = "TRIM_HORIZON"
    patterns: tuple[Json, ...] = ()
    retries: int = 0
    bisects: bool = False


@dataclass(frozen=True)
class Template:
    """The transformed template, taken apart."""

    stack_name: str
    functions: tuple[Function, ...]
    routes: tuple[Route, ...]
    schedules: tuple[Schedule, ...]
    sources: tuple[Source, ...]
    layers: tuple[Path, ...]
    resources: Json
    transformed: Json

    @property
    def api_id(self) -> str:
        """The id of the HTTP API: the same at every start."""
        return f"local{sum(map(ord, self.stack_name)):05d}"

    def named(self, name: str) -> Function | None:
        """The function called *name*: its folder, its full name or its ARN."""
        return next((f for f in self.functions if name in (f.name, f.full_name, f.arn)), None)


def read_template(path: Path, stack_name: str) -> Template:
    """Transform the template at *path* and take it apart; `TemplateError` if it cannot be played here."""
    transformed = _transformed(path)
    resources = cast("Json", transformed["Resources"])
    routes: tuple[Route, ...] = ()
    for resource in _of_type(resources, "AWS::ApiGatewayV2::Api").values():
        routes += routes_of(resource["Properties"].get("Body") or {"paths": {}})
    functions = tuple(
        _function(logical_id, resource, resources, path.parent, stack_name, routes)
        for logical_id, resource in sorted(_of_type(resources, "AWS::Lambda::Function").items())
    )
    names = {function.logical_id: function.name for function in functions}
    return Template(
        stack_name=stack_name,
        functions=functions,
        routes=tuple(Route(r.method, r.path, names[r.function], r.signed) for r in routes),
        schedules=tuple(_schedules(resources, names)),
        sources=tuple(_sources(resources, names)),
        layers=tuple(
            folder
            for layer in _of_type(resources, "AWS::Lambda::LayerVersion").values()
            if (folder := path.parent / _source_of(layer["Properties"]["Content"]) / "python").is_dir()
        ),
        resources=resources,
        transformed=transformed,
    )


def for_cloudformation(template: Template, base_url: str, outputs: Mapping[str, object]) -> Json:
    """The part of the template that MiniStack creates, with *outputs*; references to what is played here filled in."""
    mine = {k for k, r in template.resources.items() if r["Type"].startswith(_PLAYED + _LEFT_OUT)}
    known = _Known(template, mine, base_url)
    kept = {k: known.filled_in(r) for k, r in template.resources.items() if k not in mine}
    for resource in kept.values():
        needs = resource.pop("DependsOn", [])
        if needs := [n for n in ([needs] if isinstance(needs, str) else needs) if n not in mine]:
            resource["DependsOn"] = needs
    sections: Json = {
        k: template.transformed[k] for k in ("Parameters", "Conditions", "Mappings") if k in template.transformed
    }
    return {**sections, "Resources": kept, "Outputs": {k: {"Value": known.filled_in(v)} for k, v in outputs.items()}}


@dataclass(frozen=True)
class _Known:
    """Fills in references to resources that MiniStack does not create."""

    template: Template
    mine: set[str]
    base_url: str

    def filled_in(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.filled_in(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(function, argument)] = value.items()
            if function == "Ref" and argument in self.mine:
                return self._value(argument, None)
            if function == "Fn::GetAtt":
                logical_id, attribute = argument if isinstance(argument, list) else argument.split(".", 1)
                return self._value(logical_id, attribute) if logical_id in self.mine else value
            if function == "Fn::Sub":
                return {"Fn::Sub": self._substituted(argument)}
        return {key: self.filled_in(item) for key, item in value.items()}

    def _substituted(self, argument: Any) -> Any:
        text, variables = argument if isinstance(argument, list) else (argument, {})

        def replaced(found: re.Match[str]) -> str:
            mine = found[1] in self.mine and found[1] not in variables
            return self._value(found[1], found[2]) if mine else found[0]

        text = _VARIABLE.sub(replaced, text)
        return [text, self.filled_in(variables)] if isinstance(argument, list) else text

    def _value(self, logical_id: str, attribute: str | None) -> str:
        kind = self.template.resources[logical_id]["Type"]
        if kind == "AWS::Lambda::Function":
            function = next(f for f in self.template.functions if f.logical_id == logical_id)
            return function.full_name if attribute is None else function.arn
        if kind == "AWS::ApiGatewayV2::Api":
            return self.template.api_id if attribute is None else self.base_url
        if kind == "AWS::ApiGatewayV2::Stage":
            return "$default"
        name = f"{self.template.stack_name}-{logical_id}"
        return name if attribute is None else f"arn:aws:{kind.split('::')[1].lower()}:{REGION}:{ACCOUNT}:{name}"


def _transformed(path: Path) -> Json:
    # Slow to import, and needed at start only.
    from samtranslator.model.exceptions import InvalidDocumentException  # type: ignore[import-untyped]
    from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
    from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
    from samtranslator.utils import py27hash_fix as text  # type: ignore[import-untyped]
    from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

    source = yaml_parse(path.read_text())
    for resource in source["Resources"].values():
        for key in ("CodeUri", "ContentUri"):
            folder = resource.get("Properties", {}).get(key)
            # The translator takes code that is uploaded already: the folder stays readable as the object's key.
            if isinstance(folder, str) and "://" not in folder:
                resource["Properties"][key] = f"s3://{_CODE_BUCKET}/{Path(folder)}"
    parameters: Json = {}
    text.to_py27_compatible_template(source, parameters)
    # `samtranslator.translator.transform` in two lines, with a region that does not depend on the environment. Roles
    # are not played here, so the names of managed policies need not be looked up.
    translator = Translator({}, Parser(), boto_session=Session(region_name=REGION))
    try:
        transformed = text.undo_mark_unicode_str_in_template(translator.translate(source, parameters))
    except InvalidDocumentException as refused:
        raise TemplateError(f"{path}: {'; '.join(cause.message for cause in refused.causes)}") from None
    return cast("Json", json.loads(json.dumps(transformed)))


def _function(
    logical_id: str, resource: Json, resources: Json, root: Path, stack_name: str, routes: tuple[Route, ...]
) -> Function:
    properties = resource["Properties"]
    source, logging = _source_of(properties["Code"]), properties.get("LoggingConfig", {})
    asynchronous = [
        r["Properties"]
        for r in _of_type(resources, "AWS::Lambda::EventInvokeConfig").values()
        if r["Properties"]["FunctionName"] == {"Ref": logical_id}
    ]
    return Function(
        logical_id=logical_id,
        name=source.name,
        full_name=f"{stack_name}-{source.name}",
        code=root / source,
        handler=properties["Handler"],
        timeout_s=properties.get("Timeout", 3),
        memory_mb=properties.get("MemorySize", 128),
        log_format=logging.get("LogFormat", "Text"),
        log_level=logging.get("ApplicationLogLevel", ""),
        environment=properties.get("Environment", {}).get("Variables", {}),
        max_event_age_s=asynchronous[0].get("MaximumEventAgeInSeconds", 60) if asynchronous else 60,
        workers=2 if any(route.function == logical_id for route in routes) else 1,
    )


def _schedules(resources: Json, names: Mapping[str, str]) -> list[Schedule]:
    found = []
    for logical_id, resource in sorted(resources.items()):
        properties = resource.get("Properties", {})
        if properties.get("State", "ENABLED") != "ENABLED" or "ScheduleExpression" not in properties:
            continue
        targets = [properties["Target"]] if resource["Type"] == "AWS::Scheduler::Schedule" else properties["Targets"]
        for target in targets:
            function = names[target["Arn"]["Fn::GetAtt"][0]]
            period_s = _period_s(logical_id, properties["ScheduleExpression"])
            found.append(Schedule(logical_id, function, period_s, target.get("Input")))
    return found


def _sources(resources: Json, names: Mapping[str, str]) -> list[Source]:
    found = []
    for logical_id, resource in sorted(_of_type(resources, "AWS::Lambda::EventSourceMapping").items()):
        properties = resource["Properties"]
        fed_from, attribute = properties["EventSourceArn"]["Fn::GetAtt"]
        if attribute not in ("StreamArn", "Arn"):
            raise TemplateError(f"{logical_id}: the local stack feeds from streams and queues, not from {attribute}")
        is_stream = attribute == "StreamArn"
        found.append(
            Source(
                function=names[properties["FunctionName"]["Ref"]],
                resource=fed_from,
                is_stream=is_stream,
                batch_size=properties.get("BatchSize", 100 if is_stream else 10),
                reports_items="ReportBatchItemFailures" in properties.get("FunctionResponseTypes", []),
                starts_at=properties.get("StartingPosition", "LATEST"),
                patterns=tuple(
                    json.loads(each["Pattern"]) for each in properties.get("FilterCriteria", {}).get("Filters", [])
                ),
                retries=properties.get("MaximumRetryAttempts", 10_000),  # Lambda's default has no end
                bisects=properties.get("BisectBatchOnFunctionError", False),
            )
        )
    return found


def _period_s(logical_id: str, expression: str) -> int:
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if found is None:
        raise TemplateError(f"{logical_id}: the local stack plays rate(…) schedules, not {expression!r}")
    return int(found[1]) * {"minute": 60, "hour": 3600, "day": 86400}[found[2]]


def _of_type(resources: Json, kind: str) -> Json:
    return {k: r for k, r in resources.items() if r["Type"] == kind}


def _source_of(code: Mapping[str, str]) -> Path:
    if code.get("S3Bucket") != _CODE_BUCKET:
        raise TemplateError(f"code that is not in this folder: {dict(code)}")
    return Path(code["S3Key"])
