"""What a function is told: every fault at once, and exactly the names that the template gives it."""

from dataclasses import fields
from pathlib import Path

import pytest

from quitclaim.runtime.settings import (
    AccessTokenSettings,
    AppApiSettings,
    ConnectSettings,
    DeliverSettings,
    MaintainSettings,
    PublishSettings,
    ReconcileSettings,
    RevokeSweepSettings,
    Settings,
    SettingsError,
    WebhookSettings,
    origins,
    read,
)
from tests.infra.deployed import function_ids, variables

KINDS: dict[str, type[Settings]] = {
    "app_api": AppApiSettings,
    "access_token": AccessTokenSettings,
    "connect": ConnectSettings,
    "revoke_sweep": RevokeSweepSettings,
    "publish": PublishSettings,
    "reconcile": ReconcileSettings,
    "maintain": MaintainSettings,
    "deliver": DeliverSettings,
    "webhook": WebhookSettings,
}
LOCAL = {"QUITCLAIM_CLOCK_FILE", "QUITCLAIM_CATALOGUE"}
POWERTOOLS = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_LOG_LEVEL"}


def names(kind: type[Settings]) -> set[str]:
    """The variables that it reads."""
    return {each.metadata["env"] for each in fields(kind)}


def environment(kind: type[Settings]) -> dict[str, str]:
    """One that holds everything."""
    values = {name: f"value-of-{name.lower()}" for name in names(kind) - LOCAL}
    special = {"QUITCLAIM_CONFIG_PATH": "/quitclaim/stack", "QUITCLAIM_RETURN_ORIGINS": "https://app.example"}
    return values | {name: value for name, value in special.items() if name in values}


def test_every_function_has_settings():
    """Of the template, none more and none less."""
    assert set(KINDS) == set(function_ids())


@pytest.mark.parametrize("function", KINDS)
def test_a_function_reads_what_the_template_gives_it(function):
    """Both ways: nothing is read that is not set, and nothing is set that is not read."""
    given = set(variables(function))

    assert {name for name in given if name.startswith("QUITCLAIM_")} == names(KINDS[function]) - LOCAL
    assert given - {name for name in given if name.startswith("QUITCLAIM_")} == POWERTOOLS
    assert variables(function)["POWERTOOLS_SERVICE_NAME"] == function


@pytest.mark.parametrize("function", KINDS)
def test_what_is_for_the_local_stack_is_never_deployed(function):
    """The clock and the extra catalogue are no variables of the template."""
    assert LOCAL & set(variables(function)) == set()
    assert names(KINDS[function]) >= LOCAL


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_settings_are_what_the_environment_holds(kind):
    """Without the blanks around them; what is for the local stack is absent."""
    environ = environment(kind)
    settings = read(kind, {name: f" {value}\n" for name, value in environ.items()})

    for each in fields(kind):
        name = each.metadata["env"]
        assert getattr(settings, each.name) == ("" if name in LOCAL else environ[name])
    assert settings.catalogue_dirs == ()


@pytest.mark.rule("F-13")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_fault_is_reported_at_once(kind):
    """Nobody deploys five times to learn of five variables."""
    with pytest.raises(SettingsError) as refused:
        read(kind, {})

    assert set(refused.value.faults) == {f"{name} is not set" for name in names(kind) - LOCAL}
    assert all(fault in str(refused.value) for fault in refused.value.faults)


@pytest.mark.parametrize("blank", ["", " ", "\n"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_blank_value_is_none(kind, blank):
    """But for the return origins, whose default is to allow none."""
    with pytest.raises(SettingsError) as refused:
        read(kind, dict.fromkeys(names(kind), blank))

    may_be_blank = LOCAL | {"QUITCLAIM_RETURN_ORIGINS"}
    assert set(refused.value.faults) == {
        *(f"{name} is not set" for name in names(kind) - may_be_blank),
    }


@pytest.mark.rule("F-13")
def test_faults_of_different_kinds_come_together():
    """A path that is none, and a variable that is missing; no value is repeated."""
    environ = environment(AppApiSettings) | {"QUITCLAIM_CONFIG_PATH": "canary"}
    del environ["QUITCLAIM_TABLE"]

    with pytest.raises(SettingsError) as refused:
        read(AppApiSettings, environ)

    assert set(refused.value.faults) == {
        "QUITCLAIM_TABLE is not set",
        "QUITCLAIM_CONFIG_PATH must begin with a slash",
    }
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "app.example",
        "http://app.example",
        "https://app.example/canary",
        "https://app.example?canary",
        "https://canary@app.example",
        "https://*.canary.example",
        "ftp://canary",
        "https://app.example:canary",
        "https://",
        "*",
    ],
)
def test_a_return_origin_that_is_none_is_a_fault(wrong):
    """Together with all others, by its number and not by its words: nobody is to find out at the first callback."""
    environ = environment(AppApiSettings) | {
        "QUITCLAIM_RETURN_ORIGINS": f"https://ok.example, http://localhost:3000, {wrong}, HTTPS://B.example/"
    }
    del environ["QUITCLAIM_TABLE"]

    with pytest.raises(SettingsError) as refused:
        read(AppApiSettings, environ)

    assert set(refused.value.faults) == {
        "QUITCLAIM_TABLE is not set",
        "QUITCLAIM_RETURN_ORIGINS: number 3 is no origin (https://host[:port], nothing after it)",
    }
    assert "canary" not in str(refused.value)


def test_no_return_origins_is_none_at_all():
    """The template's default."""
    settings = read(ConnectSettings, environment(ConnectSettings) | {"QUITCLAIM_RETURN_ORIGINS": ""})

    assert settings.return_origins == ""
    assert origins(settings.return_origins) == frozenset()


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("https://app.example", {"https://app.example"}),
        ("https://a.example,https://b.example:8443", {"https://a.example", "https://b.example:8443"}),
        (" https://A.example/ , ,https://b.example// ,", {"https://a.example", "https://b.example"}),
        (",", set()),
        ("  ", set()),
    ],
)
def test_origins_of_a_comma_list(listed, expected):
    """Blanks, empty places, capitals and a slash at the end are forgiven."""
    assert origins(listed) == expected


def test_folders_of_the_local_catalogue_are_joined_by_colons():
    """They come before the shipped one."""
    environ = environment(ConnectSettings) | {"QUITCLAIM_CATALOGUE": "/a:/b/c:"}

    assert read(ConnectSettings, environ).catalogue_dirs == (Path("/a"), Path("/b/c"))


def test_settings_do_not_change():
    """They are read once."""
    settings = read(RevokeSweepSettings, environment(RevokeSweepSettings))

    with pytest.raises(AttributeError):
        settings.table = "other"  # type: ignore[misc]
