"""What is said of the shares of the dataset that ranks take."""

from __future__ import annotations

import random

import pytest

from ddpcheck.checks.batch_count import conformance as batch_count
from ddpcheck.checks.epoch_reshuffle import conformance as epoch_reshuffle
from ddpcheck.checks.shard_partition import conformance as shard_partition
from ddpcheck.trainings.situations import Size, curriculum
from tests.judging.taken_samples import ONE, OTHER, RIGHT, dealt, small, takes
from tests.judging.trained import only, situation


def shares_of(where, *ranks, sequence=None):
    return shard_partition.judge(takes(where, *ranks), sequence)


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
        assert not shard_partition.judge(one).findings
        assert not batch_count.judge(one).findings
        assert not epoch_reshuffle.judge(one).findings


# --- ranks that have one copy of the model among them


def test_ranks_along_tp_take_the_same_samples():
    first, second = RIGHT
    judged = shard_partition._of_copies(takes(small(parallelism="ddp-tp"), first, first, second, second))
    assert (judged.checked, judged.findings) == (2, ())


def test_samples_that_are_dealt_out_over_all_ranks():
    finding = only(
        shard_partition._of_copies(takes(small(parallelism="ddp-tp"), *dealt([ONE, OTHER], ranks=4))).findings
    )
    assert "other samples than those of the rank before it on ranks 1 and 3" in finding.found
    assert "get_local_rank()" in finding.advice


def test_copies_that_take_the_same_samples():
    first, _ = RIGHT
    finding = only(shard_partition._of_copies(takes(small(parallelism="ddp-tp"), *[first] * 4)).findings)
    assert "4 samples taken by no rank" in finding.found
