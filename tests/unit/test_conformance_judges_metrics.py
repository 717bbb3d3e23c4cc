"""What is said of metrics and of random numbers: by which mistake a value came about, and who draws like whom."""

from __future__ import annotations

import math

import pytest
import torch
from trained import micro, only, situation, trace, trained

from ddpcheck.checks.metric_oracle import conformance as metrics
from ddpcheck.checks.rng_independence import conformance as streams
from ddpcheck.conformance.losses import METRICS
from ddpcheck.conformance.mistaken_metrics import mistaken
from ddpcheck.evidence import training_record

OTHERS = {"repeated": 2.0, "left out": 3.0, "own": 4.0, "mean": 5.0, "mean of padded": 6.0}


def reports(*values, name="loss", expected=1.0, others=None):
    return [
        training_record.Reported(name=name, value=v, expected=expected, others=OTHERS if others is None else others)
        for v in values
    ]


def judged(*ranks):
    return metrics.judge(trained("validation", *(trace(one) for one in ranks)))


# --- metric-oracle


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


@pytest.mark.parametrize(("number", "ranks"), [(11, 2), (11, 3), (12, 4), (3, 4), (1, 2)])
def test_what_metrics_come_to_by_mistakes(number, ranks):
    draw = torch.Generator().manual_seed(number)
    outputs, targets = (torch.randn(number, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    found = mistaken(METRICS["loss"], outputs, targets, 1, ranks)
    whole = [METRICS["loss"](outputs[place : place + 1], targets[place : place + 1]) for place in range(number)]
    assert found["repeated"] == pytest.approx(
        sum(whole[place % number] for place in range(-(-number // ranks) * ranks)) / (-(-number // ranks) * ranks)
    )
    kept = whole[: number // ranks * ranks]
    assert found["left out"] == (pytest.approx(sum(kept) / len(kept)) if kept else pytest.approx(math.nan, nan_ok=True))
    if number >= ranks:
        own = whole[1::ranks]
        assert found["own"] == pytest.approx(sum(own) / len(own))
        parts = [whole[rank::ranks] for rank in range(ranks)]
        assert found["mean"] == pytest.approx(sum(sum(part) / len(part) for part in parts) / ranks)
    else:
        assert "own" not in found


# --- rng-independence


def masks(*drawn):
    return trace(*[micro([0], masks=[one]) for one in drawn])


def test_dropout():
    right = trained("dropout", masks(b"\0\1", b"\1\0"), masks(b"\1\1", b"\0\0"))
    assert streams.judge_dropout(right).checked == 4
    assert not streams.judge_dropout(right).findings
    across = only(streams.judge_dropout(trained("dropout", masks(b"\0\1"), masks(b"\0\1"))).findings)
    assert across.ranks == (0, 1)
    assert "the same mask in batch 0 of rank 0, batch 0 of rank 1 (1 mask came more than once)" in across.found
    again = only(streams.judge_dropout(trained("dropout", masks(b"\0", b"\0"), masks(b"\1"))).findings)
    assert again.ranks == (0,)
    assert again.cause == "the stream is begun anew"
    assert streams.judge_dropout(trained("plain", trace(micro([0])), trace())).checked == 0


AUGMENTED = situation("augmentation", epochs=2)


def augmented(*batches):
    """Micro-batches of samples 0, 1, … with these numbers: torch's before the point, Python's behind it."""
    return trace(*[micro(range(len(draws)), draws=draws) for draws in batches])


def augmentation(*ranks):
    return streams.judge_augmentation(trained(AUGMENTED, *ranks))


def test_numbers_of_their_own():
    found = augmentation(augmented([1.1, 2.2], [3.3, 4.4]), augmented([5.5, 6.6], [7.7, 8.8]))
    assert (found.checked, found.findings) == (8, ())
    assert augmentation(trace(), trace()).checked == 0


def test_one_number_that_comes_twice_may_be_chance():
    assert not augmentation(augmented([1.1, 2.2], [3.3, 4.4]), augmented([1.5, 6.6], [7.7, 8.8])).findings


@pytest.mark.parametrize(
    ("ranks", "stream", "cause"),
    [
        (([[1.11, 2.22], [3.33, 4.44]], [[1.55, 2.66], [3.77, 4.88]]), "torch's", "between ranks"),
        (([[1.25, 2.5], [3.33, 4.44]], [[5.25, 6.5], [7.77, 8.88]]), "Python's", "between ranks"),
        (([[1.11, 2.22], [1.33, 2.44]], [[5.55, 6.66], [7.77, 8.88]]), "torch's", "between epochs"),
        (([[1.11, 2.22], [1.33, 2.44]], [[1.55, 2.66], [1.77, 2.88]]), "torch's", "between ranks and between epochs"),
    ],
)
def test_streams_that_begin_alike(ranks, stream, cause):
    finding = only(augmentation(*(augmented(*batches) for batches in ranks)).findings)
    assert f"from {stream} random stream" in finding.found
    assert finding.cause == f"the seeds of workers coincide {cause}"


def test_a_stream_of_numpy():
    """It is told like the others; where numpy is missing, all its numbers are 0, and that is nothing."""

    others = (n + n / 1000 for n in range(1, 1000))

    def drawn(*batches):
        return trace(*[micro([0, 1], draws=[next(others), next(others)], of_numpy=batch) for batch in batches])

    apart = drawn([0.1, 0.2], [0.3, 0.4])
    finding = only(augmentation(apart, drawn([0.2, 0.5], [0.4, 0.6])).findings)
    assert "from numpy's random stream: " in finding.found
    assert not augmentation(apart, drawn([0.5, 0.6], [0.7, 0.8])).findings
    assert not augmentation(drawn([0.0, 0.0], [0.0, 0.0])).findings


def test_streams_of_the_ranks_themselves():
    """Without workers it is the processes of the ranks that are seeded alike."""
    here = situation("augmentation", epochs=2, workers=0)
    ranks = [augmented([1.11, 2.22], [3.33, 4.44]), augmented([1.55, 2.66], [3.77, 4.88])]
    finding = only(streams.judge_augmentation(trained(here, *ranks)).findings)
    assert finding.cause == "its seeds coincide between ranks"
    assert finding.advice.endswith("each by seed + rank.")


def test_workers_of_one_rank_that_begin_alike():
    one = augmented([1.11, 2.22], [1.33, 2.44], [3.55, 4.66], [5.77, 6.88])
    other = augmented([11.1, 12.2], [13.3, 14.4], [15.5, 16.6], [17.7, 18.8])
    assert only(augmentation(one, other).findings).cause == "the workers of one rank are seeded alike"
