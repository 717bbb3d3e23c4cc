"""What is said of metrics: by which mistake a value came about."""

from __future__ import annotations

import math

import pytest

from ddpcheck.checks.metric_oracle import conformance as metrics
from ddpcheck.evidence import training_record
from tests.judging.trained import only, trace, trained

OTHERS = {"repeated": 2.0, "left out": 3.0, "own": 4.0, "mean": 5.0, "mean of padded": 6.0}


def reports(*values, name="loss", expected=1.0, others=None):
    return [
        training_record.Reported(name=name, value=v, expected=expected, others=OTHERS if others is None else others)
        for v in values
    ]


def judged(*ranks):
    return metrics.judge(trained("validation", *(trace(one) for one in ranks)))


def test_right_values_hold_up_to_rounding():
    found = judged(reports(1.0, 1 + 1e-8), reports(1.0, 1.0))
    assert (found.checked, found.findings) == (4, ())
    assert not judged(reports(0.0, expected=0.0), []).findings


def test_nothing_reported_is_no_verdict():
    assert "job.report" in judged([], []).skipped_because


def test_a_value_that_is_none():
    assert only(judged(reports(math.nan), []).findings).ranks == (0,)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2.0, "are counted twice"),
        (3.0, "are left out"),
        (4.0, "takes its own part of the samples for the whole"),
        (5.0, "the ranks' own values are averaged: that is not"),
        (6.0, "averaged, with the samples in them that a sampler repeats"),
        (7.0, ""),
    ],
)
def test_the_mistake_is_known_by_the_value(value, said):
    finding = only(judged(reports(value), reports(value)).findings)
    assert said in finding.cause
    assert bool(said) == bool(finding.cause)
    assert finding.expected.endswith("on all 11 samples of the validation set: loss 1")
    assert finding.found == f"loss {value:g} on ranks 0 and 1 of 2"


def test_a_mistake_has_to_explain_every_report():
    assert not only(judged(reports(2.0, 2.5), []).findings).cause


def test_metrics_of_one_cause_are_told_together():
    both = [*reports(2.0), *reports(2.0, name="recall"), *reports(7.0, name="ranking")]
    twice, other = judged(both, both).findings
    assert twice.subject == "the loss, the recall"
    assert twice.count == 4
    assert other.subject == "the ranking"


def test_ranks_that_report_different_values():
    assert "this is rank 0's" in only(judged(reports(4.0), reports(4.5)).findings).found
