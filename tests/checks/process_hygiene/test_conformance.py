"""What is said of what trainings leave behind."""

from __future__ import annotations

from ddpcheck.checks.process_hygiene import conformance as process_hygiene
from ddpcheck.trainings.situations import Size
from ddpcheck.vocabulary.model import Leftover
from tests.judging.trained import hung, micro, only, situation, step, trace, trained

WHERE = situation("plain", size=Size(each=0, more=8), batch_size=2, epochs=2)
"""Two batches of each of two ranks in an epoch."""


def steps(*numbers):
    return [fact for number in numbers for fact in (*micro([number]), step(float(number)))]


RIGHT = trace(steps(0, 1, 2, 3))


def test_what_is_left_behind():
    left = [Leftover(kind="thread", name="feeder", rank=rank) for rank in (0, 1)]
    judged = process_hygiene.judge([trained(WHERE, RIGHT, RIGHT, leftovers=left)])
    assert only(judged.findings).found == "a thread (feeder) on ranks 0 and 1"
    assert not process_hygiene.judge([trained(WHERE, RIGHT, RIGHT)]).findings
    one = trained(WHERE, RIGHT, RIGHT, leftovers=left, ended=[hung(0), hung(1)])
    assert not process_hygiene.judge([one]).findings  # what hangs leaves things behind
