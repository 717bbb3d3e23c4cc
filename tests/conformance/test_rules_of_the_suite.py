"""Each rule of the suite that no faulty trainer reaches has a trainer that does, and the plain loop does not."""

from __future__ import annotations

import pytest

from fixtures.trainers.of_rules import OF_RULES, OfRule
from fixtures.trainers.plain import Trainer
from tests.conformance.workshop import Workshop


@pytest.mark.parametrize("one", OF_RULES, ids=lambda one: f"{one.rule}-{one.fit.__name__}")
@pytest.mark.few(6)
def test_a_rule_is_reached(one: OfRule, workshop: Workshop) -> None:
    findings = workshop.judged(one.fit.__name__, one.row, 2, one.among)
    assert one.rule in {finding.rule for finding in findings}, [finding.message for finding in findings]
    assert workshop.judged(Trainer.__name__, one.row, 2, one.among) == ()
