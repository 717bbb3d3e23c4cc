"""What is said of trainings that come to their end, or do not."""

from __future__ import annotations

from ddpcheck.checks.no_hang import conformance as no_hang
from ddpcheck.trainings.situations import Size
from tests.judging.trained import hung, micro, only, situation, step, trace, trained

WHERE = situation("plain", size=Size(each=0, more=8), batch_size=2, epochs=2)
"""Two batches of each of two ranks in an epoch."""


def steps(*numbers):
    return [fact for number in numbers for fact in (*micro([number]), step(float(number)))]


RIGHT = trace(steps(0, 1, 2, 3))


def test_trainings_that_come_to_their_end():
    well = trained(WHERE, RIGHT, RIGHT)
    stuck = trained(WHERE, RIGHT, RIGHT, ended=[hung(0), hung(1)], headline="timed out")
    judged = no_hang.judge([well, well])
    assert (judged.checked, judged.findings) == (2, ())
    assert only(no_hang.judge([well, stuck]).findings).check == "no-hang"
