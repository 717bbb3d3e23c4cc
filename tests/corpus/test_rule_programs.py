"""Programs that were written for one rule each: their fault fires it, and nothing is said of the right twin."""

from __future__ import annotations

import pytest

from ddpcheck.checks.registry import every_rule
from tests.recordings.catalogue import everything

NAMES = [name for name in everything() if name.startswith("rules/") and not name.endswith(" --fault")]


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_has_a_program(name, recorded):
    """The path of the program begins with the rule; a second program's goes on."""
    rule = max((one for one in every_rule() if name.startswith(f"rules/{one}")), key=len)
    fault = recorded(f"{name} --fault")
    assert fault.verdict.internal == ()
    found = (fault.verdict.advisories or ()) if every_rule()[rule].advisory else fault.verdict.findings
    assert rule in {finding.rule for finding in found}, [finding.message for finding in found]
    twin = recorded(name)
    assert set(twin.exits.values()) == {0}, twin.output
    assert twin.verdict.internal == ()
    assert [finding.message for finding in twin.verdict.findings] == []
