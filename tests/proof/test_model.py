"""
T-14: the protocol as an explicit-state model; the full state space nightly, the small configurations and a part of the
others in CI.
"""

import pytest

from tests.proof.model.custody_model import ALL, CONFIGS, RULE_SETS, RULES, SMALL_FIRST, STAND_INS, first_catch, search
from tests.proof.model.protocol import Model
from tests.proof.report import NIGHTLY, note

SMALL = ("outage", "ambiguous-connect", "connect-skew", "connect", "connect-delete", "ambiguous-refresh", "compaction")
LIMIT = 20_000_000 if NIGHTLY else 4_000
SOUGHT = 4_000
"""States within which a dropped rule or the older rules must be noticed."""
RULE_STATES = 60_000
UNSEEN_STATES = 10_000
"""Of a configuration, while a rule is sought that no state needs."""
UNSEEN = {
    "fence_read_last": "owner and grant may be read in any order: a stop takes the grant, and a save asks the fence",
    "claim_lease": "a settle is held to the claim's own token; the lease only saves a second call",
}
"""Rules that no state of the model needs. The code keeps them, and docs/proof-rules.md says what fails without them."""


@pytest.mark.parametrize("name", CONFIGS)
def test_no_reachable_state_breaks_the_protocol(name):
    """Every interleaving and every crash, judged at each state; where the bound ends a search, that is all it says."""
    found = search(Model(CONFIGS[name], ALL), LIMIT)
    violations = [text for text in found.violations if "LIMIT" not in text]

    note("T-14 model states", found.states, len(violations))
    assert violations == []
    assert found.states < LIMIT or not (NIGHTLY or name in SMALL), "it was not visited to its end"


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


@pytest.mark.skipif(not NIGHTLY, reason="a quarter of an hour: the nightly run leaves out every rule")
@pytest.mark.timeout(86_400)
@pytest.mark.parametrize("rule", RULES)
def test_the_model_notices_every_rule_that_is_missing(rule):
    """Alone; where another one stands in for it, together with that."""
    names = [*SMALL_FIRST, *(name for name in CONFIGS if name not in SMALL_FIRST)]
    missing = {rule, STAND_INS.get(rule, rule)}
    caught = first_catch(ALL - missing, names, UNSEEN_STATES if rule in UNSEEN else RULE_STATES)

    note("T-14 rules left out", 1, caught is None)
    assert caught is not None or rule in UNSEEN
