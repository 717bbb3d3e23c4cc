"""What is said of the samples that ranks take: their number, their shares, and their order."""

from __future__ import annotations

import random

import pytest
from ddpcheck.conformance.judges import samples
from trained import micro, only, situation, trace, trained

from ddpcheck.trainings.situations import Size, curriculum


def small(number=8, **changed):
    """A situation of so many samples in batches of two, for two epochs."""
    return situation(size=Size(each=0, more=number), batch_size=2, epochs=2, **changed)


def takes(where, *ranks):
    """A training in which each rank takes these batches, epoch after epoch."""
    return trained(where, *(trace(*[micro(batch) for epoch in epochs for batch in epoch]) for epochs in ranks))


def dealt(orders, ranks=2, batch=2):
    """What a DistributedSampler makes of an order for each epoch: by rank, by epoch, batches."""
    shares = []
    for rank in range(ranks):
        own = [list(order)[rank::ranks] for order in orders]
        shares.append([[share[i : i + batch] for i in range(0, len(share), batch)] for share in own])
    return shares


ONE, OTHER = [3, 1, 0, 2, 7, 5, 4, 6], [6, 2, 1, 5, 0, 3, 7, 4]
RIGHT = dealt([ONE, OTHER])


# --- batch-count


def test_as_many_batches_as_the_sizes_imply():
    judged = samples.judge_counts(takes(small(), *RIGHT))
    assert (judged.checked, judged.findings) == (2, ())


def test_one_batch_less_on_one_rank():
    finding = only(samples.judge_counts(takes(small(), RIGHT[0], [RIGHT[1][0], RIGHT[1][1][:1]])).findings)
    assert finding.found == "4 on rank 0, 3 on rank 1"
    assert "4 batches on every rank: 2 epochs over 8 samples in batches of 2 on 2 ranks" in finding.expected
    assert not finding.cause


def test_the_whole_dataset_on_every_rank_is_known_by_its_number():
    whole = [[[0, 1], [2, 3], [4, 5], [6, 7]]] * 2
    assert "not shared out" in only(samples.judge_counts(takes(small(), whole, whole)).findings).cause


@pytest.mark.parametrize(("number", "allowed"), [(7, {1, 2}), (8, {2}), (9, {2})])
def test_what_is_dropped_may_be_dropped_by_either(number, allowed):
    """A sampler that evens the ranks out, and one that does not, differ where a last batch is to be dropped."""
    for each in (0, 1, 2, 3):
        epochs = [[[0, 1]] * each] * 2
        judged = samples.judge_counts(takes(small(number, drop_last=True), epochs, epochs))
        assert bool(judged.findings) == (each not in allowed), each
        if judged.findings and each:
            assert "without what does not fill a batch" in judged.findings[0].expected


# --- shard-partition


def shares_of(where, *ranks, sequence=None):
    return samples.judge_shares(takes(where, *ranks), sequence)


def test_a_partition_holds():
    judged = shares_of(small(), *RIGHT)
    assert (judged.checked, judged.findings) == (2, ())


def test_padding_may_repeat_samples():
    assert not shares_of(small(7), *dealt([[3, 1, 0, 2, 5, 4, 6, 3], [6, 2, 1, 5, 0, 3, 4, 6]])).findings
    finding = only(shares_of(small(7), *dealt([[3, 1, 0, 2, 5, 4, 3, 1], [6, 2, 1, 5, 0, 3, 4, 6]])).findings)
    assert "up to 1 may be repeated" in finding.expected
    assert "1 sample taken by no rank (6); 2 samples too many (1, 3)" in finding.found


def test_every_rank_takes_the_whole():
    whole = [[ONE[:2], ONE[2:4], ONE[4:6], ONE[6:]], [OTHER[:2], OTHER[2:4], OTHER[4:6], OTHER[6:]]]
    finding = only(shares_of(small(), whole, whole).findings)
    assert finding.cause == "every rank takes the whole of it"
    assert "8 samples too many (0, 1, 2, 3, 4, 5 and 2 more); 8 samples on several ranks at once" in finding.found


@pytest.mark.parametrize("two_nodes", [False, True])
def test_ranks_that_take_the_same_share(two_nodes):
    finding = only(shares_of(small(two_nodes=two_nodes), RIGHT[0], RIGHT[0]).findings)
    assert "ranks 0 and 1 take the same share" in finding.cause
    assert ("their local ranks are the same" in finding.cause) == two_nodes
    assert "4 samples taken by no rank" in finding.found


def test_what_does_not_divide_evenly_is_left_out():
    finding = only(shares_of(small(9), *dealt([ONE, OTHER])).findings)
    assert finding.found.startswith("1 sample taken by no rank (8)")
    assert finding.cause == "what does not divide evenly among the ranks is left out"


def test_ranks_that_shuffle_apart():
    finding = only(shares_of(small(), dealt([ONE, OTHER])[0], dealt([OTHER, ONE])[1]).findings)
    assert "do not share out one order" in finding.cause
    assert "in epoch 0" in finding.expected


def test_the_order_of_the_dataset_is_not_shuffled():
    finding = only(shares_of(small(), *dealt([range(8), OTHER])).findings)
    assert finding.found == "epoch 0 in the order of the dataset"
    assert "shuffle=job.shuffle" in finding.advice


def test_nor_is_it_batch_by_batch_or_with_padding_behind_it():
    by_batch = [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert shares_of(small(), [by_batch[0]] * 2, [by_batch[1]] * 2).findings
    assert shares_of(small(9), *dealt([[*range(9), 0], [*range(9), 0]])).findings


def test_a_few_samples_may_be_in_order_by_chance():
    assert not shares_of(small(4), *dealt([range(4), range(4)])).findings


def test_what_is_not_to_be_shuffled_comes_in_its_order():
    asked = small(shuffle=False)
    assert not shares_of(asked, *dealt([range(8), range(8)])).findings
    by_batch = [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert not shares_of(asked, [by_batch[0]] * 2, [by_batch[1]] * 2).findings
    finding = only(shares_of(asked, *RIGHT).findings)
    assert "in the order that the dataset has them in" in finding.expected
    assert "in round 0 of epoch 0 samples 0, 1, 2, 3 instead of" not in finding.found


def test_a_sampler_of_the_users_own():
    asked, order = small(6, sampler=True, shuffle=False), curriculum(6)
    right = dealt([[*order, *order[:2]]] * 2)
    assert not shares_of(asked, *right, sequence=order).findings
    replaced = only(shares_of(asked, *dealt([[*range(6), 0, 1]] * 2), sequence=order).findings)
    assert "each sample came once" not in replaced.cause  # two came twice
    assert "with all that comes twice" in replaced.expected


def test_a_sampler_that_was_replaced_or_shuffled():
    asked, order = small(8, sampler=True, shuffle=False), curriculum(8)
    replaced = only(shares_of(asked, *dealt([range(8)] * 2), sequence=order).findings)
    assert "another sampler was put in its place" in replaced.cause
    shuffled = only(shares_of(asked, *dealt([order[::-1]] * 2), sequence=order).findings)
    assert "in the order that job.sampler yields them in" in shuffled.expected


def test_where_epochs_cannot_be_told_apart_only_what_is_far_too_often_is_told():
    uneven = [[[0, 1], [2, 3]], [[4, 5]]], [[[6, 7]], [[0, 2], [1, 3]]]
    judged = shares_of(small(), *uneven)
    assert judged.checked == 0
    assert "see batch-count" in judged.skipped_because
    often = [[[0, 0], [0, 0]], [[0, 1]]], [[[6, 7]], [[0, 2], [1, 3]]]
    finding = only(shares_of(small(), *often).findings)
    assert "sample 0 6 times" in finding.found


# --- epoch-reshuffle


def test_epochs_in_orders_of_their_own():
    judged = samples.judge_epochs(takes(small(), *RIGHT))
    assert (judged.checked, judged.findings) == (2, ())


def test_epochs_in_the_same_order():
    finding = only(samples.judge_epochs(takes(small(), *dealt([ONE, ONE]))).findings)
    assert finding.found == "the same order in epochs 0 and 1"
    assert "set_epoch" in finding.advice


def test_epochs_in_the_order_of_the_dataset():
    finding = only(samples.judge_epochs(takes(small(), *dealt([range(8)] * 2))).findings)
    assert "that of the dataset" in finding.found
    assert "shuffle=job.shuffle" in finding.advice


def test_one_epoch_has_nothing_to_compare_with():
    judged = samples.judge_epochs(takes(situation(size=Size(each=0, more=8), batch_size=2, epochs=1), *dealt([ONE])))
    assert judged.checked == 0


def test_any_right_sharding_holds_in_any_size():
    """Of DistributedSampler's kind, and batch by batch, whatever the sizes."""
    draw = random.Random(3)
    for _ in range(200):
        ranks, batch, number = draw.randint(1, 4), draw.randint(1, 5), draw.randint(5, 40)
        where = situation(size=Size(each=0, more=number), batch_size=batch, epochs=2)
        orders = []
        for _ in range(2):
            order = draw.sample(range(number), number)
            orders.append(order + (order * ranks)[: -number % ranks])
        one = takes(where, *dealt(orders, ranks, batch))
        assert not samples.judge_shares(one).findings
        assert not samples.judge_counts(one).findings
        assert not samples.judge_epochs(one).findings
