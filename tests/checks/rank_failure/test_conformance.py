"""What is said of trainings whose loss fails on one rank: that comes out, or is swallowed."""

from __future__ import annotations

import pytest

from ddpcheck.checks.rank_failure import conformance as rank_failure
from ddpcheck.evidence import training_record
from ddpcheck.vocabulary.model import RankEnding
from tests.judging.trained import hung, micro, only, raised, situation, trace, trained

RAISED = trace(micro([0]), training_record.Raised(), returns=None)
LEFT = trace(micro([0]), returns=None)
OWN_WORDS = raised(1, f"RuntimeError: {rank_failure.PLANNED}")
FELT = raised(0, "RuntimeError: Connection closed by peer")


def failed(*traces, ended):
    return rank_failure.judge(trained(situation("raises"), *traces, ended=ended, headline="rank 0 failed first"))


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

    said = Raised(phase="call", at=1.0, text=rank_failure.PLANNED, reaction=False)
    ended = RankEnding(rank=1, kind="stopped", at=1.0, raised=said)
    assert not failed(LEFT, RAISED, ended=[FELT, ended]).findings


def test_a_loss_that_was_not_called_is_no_verdict():
    assert failed(LEFT, LEFT, ended=[FELT, FELT]).checked == 0
