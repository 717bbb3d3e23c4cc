"""Faults planted into right programs: each is found, and nothing is said without it."""

from __future__ import annotations

import pytest

from tests.corpus.planted import FAULTS

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault(name, recorded):
    """It is reported, and nothing else."""
    fault, ran = FAULTS[name], recorded(f"planted/{name}")
    assert set(ran.exits.values()) == {0}, ran.output
    told = ran.verdict.advisories if fault.severity == "advisory" else ran.verdict.findings
    found = [(f.check, f.severity, list(f.ranks)) for f in told]
    assert found == [(check, fault.severity, ranks) for check, ranks in fault.expected]


@pytest.mark.parametrize("program", sorted({fault.program for fault in FAULTS.values()}))
def test_without_it(program, recorded):
    """Nothing at all is said."""
    assert recorded(f"right/{program}").verdict.findings == ()


def test_the_last_round_of_owners_is_compared(recorded):
    """Every step of a program whose owners hand out what they have stepped through stacked buffers."""
    assert recorded("right/muon_stacked_buffers").verdict.checks["parameter-sync"].checked == 6
