"""The schemas of docs/events: what is checked in is what the code says, and an app can use it."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from quitclaim.domain.events import Event, EventKind
from quitclaim.runtime.event_bodies import MODELS, files, main
from tests.domain.values import NOW, REF

FOLDER = Path(__file__).parents[2] / "docs" / "events"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_kind_has_a_schema():
    """And no schema is of a kind that nobody writes."""
    assert set(MODELS) == set(EventKind)
    assert {path.name for path in FOLDER.glob("*.json")} == set(files())


@pytest.mark.parametrize("name", sorted(files()))
def test_a_schema_is_as_it_is_checked_in(name):
    """A change of it is read in a diff."""
    assert (FOLDER / name).read_text(encoding="utf-8") == files()[name]


@pytest.mark.parametrize("kind", EventKind)
def test_a_schema_is_sound_and_lets_later_fields_pass(kind):
    """It is JSON Schema 2020-12; every field of ours is required; what it does not know it does not mind."""
    schema = json.loads((FOLDER / f"{kind.value}.v1.json").read_text(encoding="utf-8"))

    Draft202012Validator.check_schema(schema)
    assert set(schema["required"]) == set(schema["properties"])
    assert schema["properties"]["kind"]["const"] == kind.value
    assert schema["additionalProperties"] is True


@pytest.mark.parametrize("kind", EventKind)
def test_the_page_has_a_row_for_each_kind(kind):
    """With a link to its schema."""
    assert f"| [`{kind.value}`]({kind.value}.v1.json) |" in PAGE


def test_an_event_of_ours_is_valid():
    """Control: the validator is asked something that it can refuse."""
    schema = json.loads((FOLDER / "connection.ready.v1.json").read_text(encoding="utf-8"))
    detail = Event(EventKind.CONNECTION_READY, REF, "x1", NOW, {"generation": 3}).detail

    assert list(Draft202012Validator(schema).iter_errors(detail)) == []
    assert list(Draft202012Validator(schema).iter_errors(detail | {"generation": 0})) != []
    assert list(Draft202012Validator(schema).iter_errors(detail | {"id": "connection.ready#x1"})) != []


def test_what_is_not_as_checked_in_is_told(tmp_path, capsys):
    """By name, and nothing is written where it only checks."""
    assert main(tmp_path, checks=True) == 1
    assert len(capsys.readouterr().err.splitlines()) == len(files())
    assert main(tmp_path, checks=False) == 0
    assert main(tmp_path, checks=True) == 0
