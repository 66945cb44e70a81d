"""
T-14: the protocol as an explicit-state model; the full state space nightly, the small configurations and a part of the
others in CI.
"""

import pytest

from tests.proof.model.custody_model import ALL, CONFIGS, RULE_SETS, search
from tests.proof.model.protocol import Model
from tests.proof.report import NIGHTLY, note

SMALL = ("outage", "ambiguous-connect", "connect-skew", "connect", "connect-delete", "ambiguous-refresh", "compaction")
LIMIT = 20_000_000 if NIGHTLY else 4_000
SOUGHT = 4_000
"""States within which a dropped rule or the older rules must be noticed."""


@pytest.mark.parametrize("name", CONFIGS)
def test_no_reachable_state_breaks_the_protocol(name):
    """Every interleaving and every crash, judged at each state; where the bound ends a search, that is all it says."""
    found = search(Model(CONFIGS[name], ALL), LIMIT)
    violations = [text for text in found.violations if "LIMIT" not in text]

    note("T-14 model states", found.states, len(violations))
    assert violations == []
    assert found.states < LIMIT or name not in SMALL, "a small configuration is visited to its end"


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("refresh-rotating", RULE_SETS["reference"]),
        ("connect", ALL - {"late_grant_queue"}),
        ("connect", ALL - {"hold_before_install"}),
        ("connect", ALL - {"install_window"}),
        ("connect-delete", ALL - {"install_owner"}),
        ("sweepers", ALL - {"settle_lease"}),
        ("sweepers", ALL - {"claim_checks_account"}),
        ("purge", ALL - {"begin_purge"}),
        ("purge", ALL - {"purge_token"}),
        ("purge", ALL - {"receipt_counts_purge"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_model_notices_a_rule_that_is_missing(name, rules):
    """The model can fail: without a rule, or with the rules that the reference had, it finds a trace."""
    found = search(Model(CONFIGS[name], rules), SOUGHT, first_only=True)

    assert [text for text in found.violations if "LIMIT" not in text]
