"""What is said of ranks that do not hold the same model, after a step or at the end."""

from __future__ import annotations

from ddpcheck.checks.gradient_sync import conformance as gradient_sync
from ddpcheck.checks.parameter_sync import conformance as parameter_sync
from tests.judging.trained import micro, only, step, stepped, trace, trained

BATCHES = [0, 1], [2, 3]
ONE = stepped(*BATCHES)


def test_parameters_that_differ_after_the_second_step():
    other = trace(micro([0, 1]), step(0.0), micro([2, 3]), step(1.0, after=7.0))
    finding = only(parameter_sync.judge(trained("plain", ONE, other)).findings)
    assert finding.step == 1
    assert "after every step" in finding.expected


def test_models_that_differ_at_the_end():
    other = trace(micro([0, 1]), step(0.0), micro([2, 3]), step(1.0), returns=8.0)
    finding = only(parameter_sync.judge(trained("plain", ONE, other)).findings)
    assert "when fit(job) returns" in finding.expected
    assert "although they were the same after the last step" in finding.found
    assert not gradient_sync.judge(trained("plain", ONE, other)).findings


def test_a_rank_that_did_not_return_has_no_end_to_compare():
    other = trace(micro([0, 1]), step(0.0), micro([2, 3]), step(1.0), returns=None)
    assert not parameter_sync.judge(trained("plain", ONE, other)).findings
