"""What is said of adapters that do not what they are for."""

from __future__ import annotations

import pytest

from ddpcheck.conformance import adapter_check
from ddpcheck.evidence import training_record
from ddpcheck.trainings.situations import Size
from tests.judging.trained import hung, micro, only, raised, situation, step, trace, trained

WHERE = situation("plain", size=Size(each=0, more=8), batch_size=2, epochs=2)
"""Two batches of each of two ranks in an epoch."""


def steps(*numbers):
    return [fact for number in numbers for fact in (*micro([number]), step(float(number)))]


RIGHT = trace(steps(0, 1, 2, 3))


def adapted(*traces, **more):
    return adapter_check.judge(trained(WHERE, *traces, **more))


def test_a_right_adapter_holds():
    judged = adapted(RIGHT, RIGHT)
    assert (judged.checked, judged.findings) == (1, ())


def test_one_batch_less_in_an_epoch_is_not_its_affair():
    assert not adapted(trace(steps(0, 1, 2)), RIGHT).findings


def only_evaluates():
    return training_record.Forward(training=False, samples=[0], draws=[0.0])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (trace(), "no forward of job.model in training mode and with gradients on rank 1"),
        (trace(only_evaluates()), "rank 1 called it in evaluation mode, or under no_grad"),
        (trace(micro([0], lost=False, factor=None)), "job.loss was never called on rank 1, in 1 forward"),
        (
            trace(micro([0], factor=None)),
            "no optimizer step over its parameters on rank 1, and no backward from its loss",
        ),
        (trace(micro([0])), "no optimizer step over its parameters on rank 1"),
        (trace(micro([0]), training_record.ForeignStep()), "an optimizer was stepped that has other parameters"),
        (trace(micro([0]), step(0.0, after=0.0)), "no step changed any parameter on rank 1"),
        (trace(steps(0, 1)), "it returned after 2 batches of 4 on rank 1"),
    ],
)
def test_what_an_adapter_leaves_out_is_told(other, said):
    finding = only(adapted(RIGHT, other).findings)
    assert said in finding.found
    assert finding.ranks == (1,)


def test_no_backward_from_the_loss_anywhere():
    other = trace([fact for number in range(4) for fact in (*micro([number], factor=None), step(float(number)))])
    assert only(adapted(other, other).findings).found == "no backward went through a value of job.loss"


def test_a_training_that_fails_is_told_as_that():
    finding = only(adapted(RIGHT, RIGHT, ended=[raised(0, "x"), raised(1, "x")], headline="rank 0 failed", root=0,
                           text="ValueError: x").findings)  # fmt: skip
    assert finding.check == "rank-failure"
    assert finding.found == "rank 0 failed\nValueError: x"
    finding = only(adapted(RIGHT, RIGHT, ended=[hung(0), hung(1)], headline="timed out").findings)
    assert (finding.check, finding.ranks) == ("no-hang", (0, 1))
    assert "within 60 s" in finding.expected
