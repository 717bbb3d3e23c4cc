"""What is said of the order of the samples, epoch by epoch."""

from __future__ import annotations

from ddpcheck.checks.epoch_reshuffle import conformance as epoch_reshuffle
from ddpcheck.trainings.situations import Size
from tests.judging.taken_samples import ONE, RIGHT, dealt, small, takes
from tests.judging.trained import only, situation


def test_epochs_in_orders_of_their_own():
    judged = epoch_reshuffle.judge(takes(small(), *RIGHT))
    assert (judged.checked, judged.findings) == (1, ())


def test_epochs_in_the_same_order():
    finding = only(epoch_reshuffle.judge(takes(small(), *dealt([ONE, ONE]))).findings)
    assert finding.found == "the same order in epochs 0 and 1"
    assert "set_epoch" in finding.advice


def test_epochs_in_the_order_of_the_dataset():
    finding = only(epoch_reshuffle.judge(takes(small(), *dealt([range(8)] * 2))).findings)
    assert "that of the dataset" in finding.found
    assert "shuffle=job.shuffle" in finding.advice


def test_one_epoch_has_nothing_to_compare_with():
    judged = epoch_reshuffle.judge(takes(situation(size=Size(each=0, more=8), batch_size=2, epochs=1), *dealt([ONE])))
    assert judged.checked == 0
