"""The steps of ranks side by side, as the judges of gradients and of parameters compare them."""

from __future__ import annotations

import pytest

from ddpcheck.checks.gradient_sync import conformance as gradient_sync
from ddpcheck.checks.parameter_sync import conformance as parameter_sync
from tests.judging.trained import only, stepped, trained

BATCHES = [0, 1], [2, 3]
ONE = stepped(*BATCHES)


@pytest.mark.parametrize("judge", [gradient_sync.judge, parameter_sync.judge])
def test_the_same_steps_hold(judge):
    judged = judge(trained("plain", ONE, ONE))
    assert (judged.checked, judged.findings) == (2, ())


@pytest.mark.parametrize("judge", [gradient_sync.judge, parameter_sync.judge])
def test_another_number_of_steps(judge):
    finding = only(judge(trained("plain", ONE, stepped([0, 1]))).findings)
    assert finding.found == "2 on rank 0, 1 on rank 1"
    assert finding.expected == "all ranks to make the same steps"
