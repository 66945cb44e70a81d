"""The compiled catalogue as the functions read it."""

import subprocess
import sys

import pytest

from quitclaim.domain.errors import ProviderNotRegisteredError
from quitclaim.domain.facts import OldToken
from quitclaim.domain.revocations import Reach
from quitclaim.providers.spec import COMPILED, FORMAT, Catalogue, spec_of
from tests.providers.specs import REMOVED, a_spec


@pytest.mark.parametrize(
    "provider", ["nobody", "", "Google", "../google", "google/../google", "compiled/google", "a" * 99]
)
def test_an_unknown_provider_has_its_own_error(provider):
    """PROVIDER_NOT_REGISTERED; an id is never a path."""
    with pytest.raises(ProviderNotRegisteredError):
        Catalogue().get(provider)


def test_the_first_folder_counts(tmp_path, monkeypatch):
    """An extra folder adds entries and may stand before the shipped ones; each is read once."""
    reads = []
    (tmp_path / "google.json").write_bytes((COMPILED / "reddit.json").read_bytes())
    catalogue = Catalogue([tmp_path, COMPILED])
    monkeypatch.setattr("quitclaim.providers.spec.spec_of", lambda data: reads.append(data["id"]) or spec_of(data))

    assert catalogue.get("google").id == "reddit"
    assert catalogue.get("google") is catalogue.get("google")
    assert catalogue.get("asana").id == "asana"
    assert reads == ["reddit", "asana"]


def test_another_format_is_refused():
    """A compiled file of another release is not half understood."""
    with pytest.raises(ValueError, match="compile it anew"):
        spec_of({"format": FORMAT + 1})


def test_what_rules_depend_on(tmp_path):
    """The facts of an entry."""
    facts = a_spec(tmp_path).facts

    assert (facts.revocable, facts.takes, facts.reach) == (True, "either", Reach.FAMILY)
    assert (facts.refreshable, facts.rotates, facts.old_token) == (True, "yes", OldToken.IMMEDIATE)
    assert (facts.has_identity, facts.access_ttl_ms, facts.manual_page) == (True, 3_600_000, None)


@pytest.mark.parametrize(("lifetime", "ms"), [("never", None), ("unknown", None), (60, 60_000)])
def test_a_lifetime_that_is_not_known_is_none(tmp_path, lifetime, ms):
    """Neither never nor unknown is a number."""
    assert a_spec(tmp_path, {"token.default_lifetime_s": lifetime}).facts.access_ttl_ms == ms


def test_a_provider_without_revocation(tmp_path):
    """Nothing to call, a page for the owner, and no reach that would ask for an account."""
    page = "https://acme.example.com/apps"
    spec = a_spec(tmp_path, {"revocation": {"shape": "none", "manual_page": page}, "identity": REMOVED})

    assert not spec.revocation.is_supported
    assert (spec.facts.revocable, spec.facts.manual_page, spec.facts.has_identity) == (False, page, False)
    assert not spec.facts.reach.is_account_wide


@pytest.mark.parametrize(
    ("provider", "revocable", "reach"),
    [
        ("google", True, Reach.AUTHORIZATION),
        ("hubspot", True, Reach.AUTHORIZATION),  # one refresh token for all connections of a portal
        ("asana", True, Reach.FAMILY),
        ("reddit", True, Reach.FAMILY),
        ("spotify", False, Reach.TOKEN),
        ("microsoft", False, Reach.TOKEN),
    ],
)
def test_the_entries_that_ship(provider, revocable, reach):
    """As their sources say."""
    facts = Catalogue().get(provider).facts

    assert (facts.revocable, facts.reach, facts.has_identity) == (revocable, reach, True)
    assert revocable or facts.manual_page


@pytest.mark.rule("RB-25")
@pytest.mark.parametrize("provider", Catalogue().ids())
def test_no_entry_that_ships_calls_a_token_gone_by_a_status_alone(provider):
    """A client or an address that is mistyped is refused with the same status as a dead token."""
    assert all(each.errors for each in Catalogue().get(provider).revocation.already_gone)


def test_functions_read_the_catalogue_without_its_build_tools():
    """Importing the client and reading an entry loads neither pydantic nor YAML nor aiohttp."""
    script = (
        "import sys, quitclaim.providers.client, quitclaim.security.vault\n"
        "from quitclaim.providers.spec import Catalogue\n"
        "Catalogue().get('google')\n"
        "print(sorted({'pydantic', 'yaml', 'aiohttp'} & sys.modules.keys()))"
    )

    command = [sys.executable, "-c", script]
    done = subprocess.run(  # noqa: S603 - our own script
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )

    assert done.stdout.strip() == "[]"
