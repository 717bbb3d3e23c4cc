"""What is said of ranks whose statistics differ."""

from __future__ import annotations

from ddpcheck.checks.buffer_sync import conformance as buffer_sync
from tests.judging.trained import micro, only, trace, trained


def test_buffers():
    right = trace(micro([0], statistics="a"), micro([1], statistics="b"))
    other = trace(micro([2], statistics="a"), micro([3], statistics="c"))
    assert not buffer_sync.judge(trained("batchnorm", right, right)).findings
    finding = only(buffer_sync.judge(trained("batchnorm", right, other)).findings)
    assert "on rank 1 in 1 forward of 2, from forward 1 on" in finding.found
    assert buffer_sync.judge(trained("batchnorm", right, trace())).checked == 0
