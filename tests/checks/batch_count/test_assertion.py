"""The judge of batch counts, over numbers written by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.checks.batch_count.causes import implied
from ddpcheck.evidence.epochs import BatchFacts
from ddpcheck.vocabulary.model import Finding
from tests.judging.judged import asserted

THE_NUMBERS = "Loader and sampler do not fit together: look for a missing or a second DistributedSampler."
THE_RANKS = (
    "A rank with fewer batches leaves the others in a collective that never completes: give the loader a "
    "DistributedSampler, which pads the ranks' shards to one length (or cuts them, with its drop_last=True), or train "
    "within `with model.join():`."
)


def ask(*ranks):
    return asserted("batch-count", msgspec.to_builtins(ranks))


def counted(*batches, **numbers):
    """The findings, where the ranks have this many batches of one loader."""
    return ask(*[BatchFacts(batches=n, **numbers) for n in batches])


# --- silent


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_equal_counts_hold(world_size):
    """Ranks with the same number of batches hold, where nothing says how many there should be."""
    assert counted(*[7] * world_size) == ()


@pytest.mark.parametrize(
    ("numbers", "batches"),
    [
        ({"size": 100, "batch_size": 10}, 5),
        ({"size": 101, "batch_size": 10}, 6),
        ({"size": 101, "batch_size": 10, "drop_last": True}, 5),
        ({"size": 101, "batch_size": 10, "sampler_drops": True}, 5),
        ({"size": 119, "batch_size": 10, "drop_last": True, "sampler_drops": True}, 5),
        ({"size": 119, "batch_size": 10, "drop_last": True}, 6),
        ({"size": 1, "batch_size": 10}, 1),
        ({"size": 100, "batch_size": None}, 3),
        ({"size": None, "batch_size": 10}, 3),
    ],
)
def test_the_implied_count_holds(numbers, batches):
    """The number that sizes and drop_last imply holds; a stream or a batch sampler implies none."""
    assert counted(batches, batches, **numbers) == ()


def test_what_was_consumed_counts():
    """What the training loop has taken is judged, not what the loader would give."""
    assert ask(*[BatchFacts(batches=9, consumed=5, size=100, batch_size=10)] * 2) == ()


# --- violated


def test_unequal_counts_are_a_hang_to_come():
    """Ranks with different numbers are told, with each rank's, and what to do."""
    assert counted(4, 4, 3) == (
        Finding(
            check="batch-count",
            rule="batch-count/unequal-batch-counts",
            severity="error",
            ranks=(2,),
            subject="the loader",
            expected="the same number of batches on every rank",
            found="4 on rank 0, 4 on rank 1, 3 on rank 2",
            advice=THE_RANKS,
        ),
    )


def test_a_count_that_the_sizes_do_not_imply():
    """Ranks that agree on a wrong number are told which it should be, and why."""
    assert counted(1000, 1000, size=2000, batch_size=2, drop_last=True) == (
        Finding(
            check="batch-count",
            rule="batch-count/unexpected-batch-count",
            severity="error",
            ranks=(0, 1),
            subject="the loader",
            expected="500 batches on every rank (2,000 samples on 2 ranks, batches of 2 with drop_last)",
            found="1000 on rank 0, 1000 on rank 1",
            advice=THE_NUMBERS,
        ),
    )


def test_the_odd_ranks_are_those_that_miss_the_implied_count():
    """Where the sizes imply a number, the ranks that have another are named, though they be the majority."""
    (finding,) = counted(6, 5, 6, size=150, batch_size=10)
    assert finding.ranks == (0, 2)
    assert finding.advice == THE_RANKS


def test_one_batch_and_one_sample_are_spoken_of_in_the_singular():
    """Numbers and nouns agree."""
    (finding,) = counted(2, 2, size=1, batch_size=1)
    assert finding.expected == "1 batch on every rank (1 sample on 2 ranks, batches of 1)"


def test_of_two_ranks_neither_is_the_odd_one_by_its_number():
    """Which of two unequal ranks is named does not depend on which has more."""
    (more,), (fewer,) = counted(3, 2), counted(2, 3)
    assert more.ranks == fewer.ranks


def test_what_was_consumed_may_differ():
    """A loop that left its loader early on one rank has consumed another number."""
    facts = [BatchFacts(batches=5, consumed=consumed) for consumed in (5, 4, 5)]
    (finding,) = ask(*facts)
    assert finding.found == "5 on rank 0, 4 on rank 1, 5 on rank 2"
    assert finding.ranks == (1,)


def test_consuming_too_much_alike_is_a_violation():
    """Ranks that all went through more than an epoch are held against the epoch's number."""
    (finding,) = ask(*[BatchFacts(batches=5, consumed=6, size=100, batch_size=10)] * 2)
    assert finding.expected.startswith("5 batches on every rank")


@pytest.mark.parametrize("numbers", [{}, {"size": 3, "batch_size": 10, "drop_last": True}])
def test_no_batch_anywhere_does_not_pass(numbers):
    """A loader that yields nothing on any rank trains nothing, also where that is what the sizes imply."""
    (finding,) = counted(0, 0, **numbers)
    assert finding.ranks == (0, 1)
    assert finding.found == "0 on rank 0, 0 on rank 1"
    assert finding.advice == "No rank has a batch, so nothing would be trained."


def test_no_batch_on_one_rank_is_a_difference():
    """A rank without a batch is one that has fewer."""
    (finding,) = counted(1, 1, 0)
    assert finding.ranks == (2,)
    assert finding.advice == THE_RANKS


# --- an oracle


def shared_out(size, world_size, batch_size, drop_last, sampler_drops):
    """The batches of each rank, dealt out sample by sample."""
    samples = list(range(size))
    while len(samples) % world_size:
        if sampler_drops:
            samples.pop()
        else:
            samples.append(0)
    shards = [samples[rank::world_size] for rank in range(world_size)]
    batches = [[shard[i : i + batch_size] for i in range(0, len(shard), batch_size)] for shard in shards]
    if drop_last:
        batches = [[batch for batch in one if len(batch) == batch_size] for one in batches]
    return [len(one) for one in batches]


@settings(deadline=None, database=None, max_examples=150)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 8), st.booleans(), st.booleans(), st.data())
def test_the_implied_count_is_that_of_dealing_out(size, world_size, batch_size, drop_last, sampler_drops, data):
    """The formula agrees with samples dealt out one by one, and the judge with both; one batch more does not."""
    dealt = shared_out(size, world_size, batch_size, drop_last, sampler_drops)
    assert set(dealt) == {implied(size, world_size, batch_size, drop_last, sampler_drops)}
    numbers = {"size": size, "batch_size": batch_size, "drop_last": drop_last, "sampler_drops": sampler_drops}
    assert (counted(*dealt, **numbers) == ()) == (dealt[0] > 0)
    odd = data.draw(st.integers(0, world_size - 1))
    dealt[odd] += 1
    (finding,) = counted(*dealt, **numbers)
    assert finding.ranks == (odd,)
