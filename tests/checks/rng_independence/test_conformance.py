"""What is said of random numbers: who draws like whom."""

from __future__ import annotations

import pytest

from ddpcheck.checks.rng_independence import conformance as streams
from tests.judging.trained import micro, only, situation, trace, trained


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
