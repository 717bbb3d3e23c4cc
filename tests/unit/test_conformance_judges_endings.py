"""What is said of adapters that do not what they are for, and of trainings that end as they should not."""

from __future__ import annotations

import pytest
from ddpcheck.conformance.judges import endings
from trained import hung, micro, only, raised, situation, step, trace, trained

from ddpcheck.conformance import adapter_check
from ddpcheck.evidence import training_record
from ddpcheck.trainings.situations import Size
from ddpcheck.vocabulary.model import Leftover, RankEnding

WHERE = situation("plain", size=Size(each=0, more=8), batch_size=2, epochs=2)
"""Two batches of each of two ranks in an epoch."""


def steps(*numbers):
    return [fact for number in numbers for fact in (*micro([number]), step(float(number)))]


RIGHT = trace(steps(0, 1, 2, 3))


def adapted(*traces, **more):
    return adapter_check.judge(trained(WHERE, *traces, **more))


# --- adapter


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


# --- rank-failure

RAISED = trace(micro([0]), training_record.Raised(), returns=None)
LEFT = trace(micro([0]), returns=None)
OWN_WORDS = raised(1, f"RuntimeError: {endings.PLANNED}")
FELT = raised(0, "RuntimeError: Connection closed by peer")


def failed(*traces, ended):
    return endings.judge_failure(trained(situation("raises"), *traces, ended=ended, headline="rank 0 failed first"))


def test_a_failure_that_comes_out_holds():
    judged = failed(LEFT, RAISED, ended=[FELT, OWN_WORDS])
    assert (judged.checked, judged.findings) == (1, ())


@pytest.mark.parametrize(
    ("traces", "ended", "said"),
    [
        (
            (LEFT, trace(training_record.Raised())),
            [FELT, OWN_WORDS],
            "fit returned on rank 1, although job.loss had raised there",
        ),
        ((LEFT, RAISED), [FELT, hung(1)], "rank 1 hung after job.loss had raised there"),
        ((LEFT, RAISED), [FELT, raised(1, "KeyError: 3")], "rank 1 ended without the words of that exception"),
        ((trace(), RAISED), [FELT, OWN_WORDS], "fit returned on rank 0 as if all were well"),
    ],
)
def test_a_failure_that_is_swallowed_or_lost(traces, ended, said):
    assert said in only(failed(*traces, ended=ended).findings).found


def test_words_before_a_report_count():
    from ddpcheck.vocabulary.model import Raised

    said = Raised(phase="call", at=1.0, text=endings.PLANNED, reaction=False)
    ended = RankEnding(rank=1, kind="stopped", at=1.0, raised=said)
    assert not failed(LEFT, RAISED, ended=[FELT, ended]).findings


def test_a_loss_that_was_not_called_is_no_verdict():
    assert failed(LEFT, LEFT, ended=[FELT, FELT]).checked == 0


# --- no-hang and process-hygiene


def test_trainings_that_come_to_their_end():
    well = trained(WHERE, RIGHT, RIGHT)
    stuck = trained(WHERE, RIGHT, RIGHT, ended=[hung(0), hung(1)], headline="timed out")
    judged = endings.judge_progress([well, well])
    assert (judged.checked, judged.findings) == (2, ())
    assert only(endings.judge_progress([well, stuck]).findings).check == "no-hang"


def test_what_is_left_behind():
    left = [Leftover(kind="thread", name="feeder", rank=rank) for rank in (0, 1)]
    judged = endings.judge_leftovers([trained(WHERE, RIGHT, RIGHT, leftovers=left)])
    assert only(judged.findings).found == "a thread (feeder) on ranks 0 and 1"
    assert not endings.judge_leftovers([trained(WHERE, RIGHT, RIGHT)]).findings
    one = trained(WHERE, RIGHT, RIGHT, leftovers=left, ended=[hung(0), hung(1)])
    assert not endings.judge_leftovers([one]).findings  # what hangs leaves things behind
