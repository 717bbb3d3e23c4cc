"""Scalers of the stages of a pipeline, which send each other scaled gradients."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_sync.run import judge
from tests.judging.written import call, step, world


def judged(scales=((8.0, 8.0, 8.0), (8.0, 4.0, 4.0)), continued=(True, False), sends=3):
    """Two ranks with a step for each scale; the second one has the loss."""
    ranks = []
    for rank, (own, is_sent) in enumerate(zip(scales, continued, strict=True)):
        given = {"backward": 1, "site": 20, "continued": is_sent}
        sent = [call(number, 5, op="send" if rank else "recv", peer=1 - rank) for number in range(sends)]
        steps = [step(30, number=number, scale=scale) for number, scale in enumerate(own)]
        ranks.append([(ev.LossWeights, given), *sent, *steps])
    return judge(world(*ranks))


def test_one_stage_has_met_an_overflow():
    (found,) = judged().findings
    assert judged().checked == 3
    assert (found.severity, found.ranks, found.step, found.where.line) == ("warning", (0, 1), 1, 30)
    assert "8 on rank 0; 4 on rank 1" in found.found


@pytest.mark.parametrize("given", [
    {"scales": ((8.0, 4.0, 4.0),) * 2},
    {"scales": ((8.0, 8.0, 4.0), (8.0, 4.0, 4.0))},  # once: the news may be on its way
    {"scales": ((None, None, None), (8.0, 4.0, 4.0))},  # no scaler of its own
    {"continued": (False, False)},  # each has a loss: models that send each other something
    {"sends": 1},
])  # fmt: skip
def test_where_nothing_is_wrong(given):
    assert judged(**given).findings == ()
