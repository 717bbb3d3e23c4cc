"""What is said of the number of batches that ranks take."""

from __future__ import annotations

import pytest

from ddpcheck.checks.batch_count import conformance as batch_count
from tests.judging.taken_samples import RIGHT, small, takes
from tests.judging.trained import only


def test_as_many_batches_as_the_sizes_imply():
    judged = batch_count.judge(takes(small(), *RIGHT))
    assert (judged.checked, judged.findings) == (2, ())


def test_one_batch_less_on_one_rank():
    finding = only(batch_count.judge(takes(small(), RIGHT[0], [RIGHT[1][0], RIGHT[1][1][:1]])).findings)
    assert finding.found == "4 on rank 0, 3 on rank 1"
    assert "4 batches on every rank: 2 epochs over 8 samples in batches of 2 on 2 ranks" in finding.expected
    assert not finding.cause


def test_the_whole_dataset_on_every_rank_is_known_by_its_number():
    whole = [[[0, 1], [2, 3], [4, 5], [6, 7]]] * 2
    assert "not shared out" in only(batch_count.judge(takes(small(), whole, whole)).findings).cause


@pytest.mark.parametrize(("number", "allowed"), [(7, {1, 2}), (8, {2}), (9, {2})])
def test_what_is_dropped_may_be_dropped_by_either(number, allowed):
    """A sampler that evens the ranks out, and one that does not, differ where a last batch is to be dropped."""
    for each in (0, 1, 2, 3):
        epochs = [[[0, 1]] * each] * 2
        judged = batch_count.judge(takes(small(number, drop_last=True), epochs, epochs))
        assert bool(judged.findings) == (each not in allowed), each
        if judged.findings and each:
            assert "without what does not fill a batch" in judged.findings[0].expected
