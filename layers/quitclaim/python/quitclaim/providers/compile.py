"""
Compiles catalogue files: YAML, validated, to the JSON that functions read. Build time only.

    python -m quitclaim.providers.compile SOURCE OUT [--check]

SOURCE is a file or a folder of `*.yaml`. With --check nothing is written; it fails where OUT is not what a fresh
compile would write.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from quitclaim.providers.schema import (
    UNUSED,
    Entry,
    compiled_broker,
    compiled_identity,
    compiled_revocation,
    faults_between_fields,
)
from quitclaim.providers.spec import COMPILED, FORMAT
from quitclaim.providers.webhook_schema import ACCOUNT_AT_BROKER, compiled_webhook

CATALOGUE: Final = COMPILED.parent
PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
NO_FIELD: Final = re.compile(
    r"\[key\]|JsonBody|Pattern|Source|Success|Timestamp|list\[.*|str|int|bool|literal\[.*|constrained-.*"
)

type Place = tuple[str, ...]


@dataclass(frozen=True)
class CatalogueFault:
    """One thing that is wrong with a catalogue file."""

    file: str
    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field} {self.reason}"


class CatalogueError(Exception):
    """A catalogue file does not hold; *faults* is everything that is wrong with it."""

    def __init__(self, faults: Sequence[CatalogueFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


def compiled_text(path: Path, *, variables: Mapping[str, str] | None = None, allow_loopback: bool = False) -> str:
    """
    The JSON of one catalogue file. Raises `CatalogueError`.

    *variables* fill `{name}` in any text of the file; the local stack names its own base address so. *allow_loopback*
    admits http on this machine, for the local stack alone.
    """
    return (
        json.dumps(
            _compiled(read_entry(path, variables=variables, allow_loopback=allow_loopback), allow_loopback),
            indent=1,
            sort_keys=True,
            ensure_ascii=False,
        )
        + "\n"
    )


def read_entry(path: Path, *, variables: Mapping[str, str] | None = None, allow_loopback: bool = False) -> Entry:
    """One catalogue file, validated. Raises `CatalogueError` with all that is wrong with it."""
    data, lines = _read(path, variables or {})
    if isinstance(data, dict) and "broker" in data:
        data = {**UNUSED, **data}

    def fault(place: Place, reason: str) -> CatalogueFault:
        known = next((place[:end] for end in range(len(place), -1, -1) if place[:end] in lines), ())
        return CatalogueFault(path.name, lines[known], ".".join(place) or "the file", reason)

    try:
        entry = Entry.model_validate(data)
    except ValidationError as errors:
        raise CatalogueError([fault(*_told(error)) for error in errors.errors()]) from None
    faults = [fault(*told) for told in faults_between_fields(entry, allow_loopback=allow_loopback)]
    if entry.id != path.stem:
        faults.append(fault(("id",), f"is {entry.id!r}, and the file is {path.name}; give both one name"))
    if faults:
        raise CatalogueError(faults)
    return entry


UNCOMPILED: Final = {"notes", "sources", "webhooks", "webhook", "revocation", "identity", "placeholders", "broker"}
"""What the functions do not read, or read in another shape."""


def _compiled(entry: Entry, allow_loopback: bool) -> dict[str, Any]:
    compiled = {"format": FORMAT, "allow_loopback": allow_loopback, **entry.model_dump(mode="json", exclude=UNCOMPILED)}
    if entry.authorize.scope_param == "none":
        compiled["authorize"]["scope_param"] = None
    compiled["placeholders"] = [
        {
            "name": name,
            "source": told.source,
            "parameter": told.parameter or name,
            "is_origin": told.form == "origin",
            "pattern": told.pattern,
            "values": told.values,
            "default": told.default,
            "echo": told.echo,
        }
        for name, told in entry.placeholders.items()
    ]
    compiled["revocation"] = compiled_revocation(entry)
    compiled["identity"] = compiled_identity(entry)
    if entry.broker is not None:
        compiled["broker"] = compiled_broker(entry)
    if entry.webhook is not None:
        own = ACCOUNT_AT_BROKER if entry.broker is not None else None
        own = own if entry.identity is None else entry.identity.kind
        compiled["webhook"] = compiled_webhook(entry.webhook, own)
    return compiled


def compile_file(
    path: Path, out_dir: Path, *, variables: Mapping[str, str] | None = None, allow_loopback: bool = False
) -> Path:
    """Compile one catalogue file into *out_dir*; answers the JSON file. Raises `CatalogueError`."""
    text = compiled_text(path, variables=variables, allow_loopback=allow_loopback)
    out_dir.mkdir(parents=True, exist_ok=True)
    target = out_dir / f"{path.stem}.json"
    target.write_text(text, "utf-8")
    return target


def compile_catalogue(source: Path = CATALOGUE, out_dir: Path = COMPILED) -> list[Path]:
    """
    Compile every file of the catalogue, and remove what no file stands behind.

    Raises `CatalogueError` with the faults of all files; then nothing was written.
    """
    texts = _texts(source)
    out_dir.mkdir(parents=True, exist_ok=True)
    for stale in set(out_dir.glob("*.json")) - {out_dir / name for name in texts}:
        stale.unlink()
    for name, text in texts.items():
        (out_dir / name).write_text(text, "utf-8")
    return [out_dir / name for name in texts]


def differences(source: Path = CATALOGUE, out_dir: Path = COMPILED) -> list[str]:
    """Names of compiled files that are not what a fresh compile would write. Raises `CatalogueError`."""
    fresh = _texts(source)
    there = {
        path.name: path.read_text("utf-8")
        for path in out_dir.glob("*.json" if source.is_dir() else f"{source.stem}.json")
    }
    return sorted(name for name in fresh.keys() | there.keys() if fresh.get(name) != there.get(name))


def _texts(source: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    faults: list[CatalogueFault] = []
    for path in sorted(source.glob("*.yaml")) if source.is_dir() else [source]:
        try:
            texts[f"{path.stem}.json"] = compiled_text(path)
        except CatalogueError as error:
            faults += error.faults
    if faults:
        raise CatalogueError(faults)
    return texts


# --- YAML: the plain part of it, with the line of every value -----------------------------------------------------


BOOL: Final = "tag:yaml.org,2002:bool"
TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """YAML 1.2's idea of plain values: `yes` and `no` are words, a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag not in (BOOL, TIMESTAMP)]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOL, re.compile("true|false"), ["t", "f"])


def _read(path: Path, variables: Mapping[str, str]) -> tuple[Any, dict[Place, int]]:
    lines: dict[Place, int] = {(): 1}
    faults: list[CatalogueFault] = []
    loader = _Loader(path.read_text("utf-8"))

    def value(node: yaml.Node, place: Place) -> Any:
        lines[place] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key, each in node.value:
                name = str(key.value)
                if name in found:
                    at = key.start_mark.line + 1
                    faults.append(CatalogueFault(path.name, at, ".".join((*place, name)), "stands twice; keep one"))
                found[name] = value(each, (*place, name))
                lines[*place, name] = key.start_mark.line + 1
            return found
        if isinstance(node, yaml.SequenceNode):
            return [value(each, (*place, str(number))) for number, each in enumerate(node.value)]
        plain = loader.construct_object(node)
        if isinstance(plain, str):
            return PLACEHOLDER.sub(lambda found: variables.get(found[1], found[0]), plain)
        return plain

    try:
        node = loader.get_single_node()
        data = None if node is None else value(node, ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"is not YAML: {getattr(error, 'problem', None) or 'unreadable'}"
        raise CatalogueError([CatalogueFault(path.name, mark.line + 1 if mark else 1, "the file", reason)]) from None
    finally:
        loader.dispose()
    if faults:
        raise CatalogueError(faults)
    return data, lines


def _told(error: Any) -> tuple[Place, str]:
    """A pydantic error in our words: where, and what to do."""
    # Where a value may be of several kinds, pydantic puts the kind it tried into the path: that is no field.
    place = tuple(str(part) for part in error["loc"] if not NO_FIELD.fullmatch(str(part)))
    match error["type"]:
        case "missing":
            return place, "is missing; write it (the fields are described in providers/schema.py)"
        case "extra_forbidden":
            return place, "is no field of the catalogue; remove it or correct its spelling"
        case "literal_error":
            return place, f"is {error['input']!r}; write one of {error['ctx']['expected']}"
        case "string_pattern_mismatch":
            return place, f"is {error['input']!r}; it must match {error['ctx']['pattern']}"
        case _:
            return place, f"does not hold: {error['msg'].lower()}; correct it"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Answers the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m quitclaim.providers.compile", description="Compile catalogue files."
    )
    parser.add_argument("source", type=Path, help="a catalogue file, or a folder of them")
    parser.add_argument("out", type=Path, help="the folder of compiled JSON")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where OUT is not up to date")
    asked = parser.parse_args(arguments)
    try:
        if asked.check:
            stale = differences(asked.source, asked.out)
            for name in stale:
                sys.stderr.write(f"{asked.out / name} is not what {asked.source} compiles to; compile it anew\n")
            return 1 if stale else 0
        if asked.source.is_dir():
            compile_catalogue(asked.source, asked.out)
        else:
            compile_file(asked.source, asked.out)
    except CatalogueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
