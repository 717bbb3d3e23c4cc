"""What is said of ranks that do not step on the same gradients."""

from __future__ import annotations

from ddpcheck.checks.gradient_sync import conformance as gradient_sync
from tests.judging.trained import only, stepped, trained

BATCHES = [0, 1], [2, 3]
ONE = stepped(*BATCHES)


def test_gradients_that_differ():
    finding = only(gradient_sync.judge(trained("plain", ONE, stepped(*BATCHES, gradient=2.0))).findings)
    assert finding.subject == "first.weight, last.weight"
    assert "2 of 2 parameters to differ from rank 0's on rank 1 at step 0 (2 steps of 2 in all)" in finding.found
    assert finding.count == 2


def test_a_gradient_that_one_rank_has_not():
    assert gradient_sync.judge(trained("plain", ONE, stepped(*BATCHES, gradient=None))).findings
