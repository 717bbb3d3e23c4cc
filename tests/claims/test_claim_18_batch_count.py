"""Claim 18 (S2): 455 samples on 2 ranks in batches of 8, drop_last: 28 batches per rank, 56 in all, 448 samples.

Of 455, the document says, 7 are dropped. Made exact: the sampler pads to 456
positions, of which eight are dropped, and one of those is the padding.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import ddpcheck
from fixtures import s2_breast_cancer as s2
from tests.claims.findings import only_finding


def on_all_ranks(ddp, value: Any) -> list[Any]:
    values: list[Any] = [None] * ddp.world_size
    dist.all_gather_object(values, value)
    return values


@pytest.mark.ddp(world_size=2)
def test_numbers_of_the_document(ddp):
    """Counted while the data is read: 28 batches of 8 on each of two ranks, 56 and 448 in all."""
    training_set, test_set = s2.load_data()
    assert (len(training_set), len(test_set)) == (455, 114)
    loader = s2.make_loader(training_set)

    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        sizes = [len(labels) for _, labels in loader]

        assert sizes == [8] * 28
        assert sum(on_all_ranks(ddp, len(sizes))) == 56
        assert sum(on_all_ranks(ddp, sum(sizes))) == 448
        ddpcheck.assert_batch_count(loader)
        ddpcheck.assert_batch_count(loader, consumed=len(sizes))


@pytest.mark.ddp(world_size=2)
def test_eight_positions_are_dropped_and_one_is_padding(ddp):
    """456 positions, eight dropped: seven samples that no rank reads, and the copy of one that rank 0 has read."""
    training_set, _ = s2.load_data()
    loader = s2.make_loader(training_set)

    for epoch in range(5):
        loader.sampler.set_epoch(epoch)
        order = on_all_ranks(ddp, list(loader.sampler))
        assert [len(shard) for shard in order] == [228, 228]

        read = [index for shard in order for index in shard[: 28 * 8]]
        dropped = [index for shard in order for index in shard[28 * 8 :]]

        assert len(dropped) == 8
        assert len(read) == len(set(read)) == 448
        assert len(set(range(455)) - set(read)) == 7
        padding = order[1][-1]
        assert padding == order[0][0]
        assert set(dropped) & set(read) == {padding}
        ddpcheck.assert_shards_partition(loader)


@pytest.mark.ddp(world_size=4)
def test_four_ranks_take_as_many_in_all(ddp):
    """On four ranks it is half as many each: 14 batches, and again 56 and 448 in all."""
    training_set, _ = s2.load_data()
    loader = s2.make_loader(training_set)

    sizes = [len(labels) for _, labels in loader]

    assert sizes == [8] * 14
    assert sum(on_all_ranks(ddp, sum(sizes))) == 448
    ddpcheck.assert_batch_count(loader, consumed=len(sizes))


@pytest.mark.ddp(world_size=[2, 4])
def test_loader_without_distributed_sampler_is_caught(ddp):
    """Every rank takes all 56 batches: equal everywhere, and more than the numbers imply."""
    training_set, _ = s2.load_data()
    loader = DataLoader(training_set, s2.BATCH_SIZE, shuffle=True, drop_last=True)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_batch_count(loader)

    finding = only_finding(caught)
    assert finding.check == "batch-count"
    assert finding.ranks == tuple(range(ddp.world_size))
    assert finding.subject == "the loader"
    implied = {2: 28, 4: 14}[ddp.world_size]
    assert finding.expected.startswith(f"{implied} batches on every rank (455 samples on {ddp.world_size} ranks")
    assert "56 on rank 0, 56 on rank 1" in finding.found
    assert "missing or a second DistributedSampler" in finding.advice


@pytest.mark.ddp(world_size=[2, 4])
def test_other_batch_size_on_one_rank_is_caught(ddp):
    """A rank whose batches are smaller takes more of them: it is named, with every rank's number."""
    training_set, _ = s2.load_data()
    loader = s2.make_loader(training_set, batch_size=4 if ddp.rank == 1 else 8)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_batch_count(loader)

    finding = only_finding(caught)
    assert finding.check == "batch-count"
    assert finding.ranks == (1,)
    usual, more = {2: (28, 57), 4: (14, 28)}[ddp.world_size]
    assert finding.expected.startswith(f"{usual} batches on every rank")
    assert finding.found.startswith(f"{usual} on rank 0, {more} on rank 1")
    assert "never completes" in finding.advice


@pytest.mark.ddp(world_size=[2, 4])
def test_loop_that_ends_early_on_one_rank_is_caught(ddp):
    """A loader that is right does not help a rank whose loop leaves it a batch early: the count taken says so."""
    training_set, _ = s2.load_data()
    loader = s2.make_loader(training_set)
    ddpcheck.assert_batch_count(loader)
    odd = ddp.world_size - 1
    taken = 0
    for _ in loader:
        if ddp.rank == odd and taken == len(loader) - 1:
            break
        taken += 1

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_batch_count(loader, consumed=taken)

    finding = only_finding(caught)
    assert finding.check == "batch-count"
    assert finding.ranks == (odd,)
    assert f"{len(loader) - 1} on rank {odd}" in finding.found


@pytest.mark.ddp(world_size=2)
def test_sampler_made_for_more_ranks_is_caught(ddp):
    """Shards for twice as many ranks as there are hold half of the batches: equal everywhere, and too few."""
    training_set, _ = s2.load_data()
    sampler = DistributedSampler(training_set, num_replicas=2 * ddp.world_size, rank=ddp.rank)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_batch_count(DataLoader(training_set, s2.BATCH_SIZE, sampler=sampler))

    finding = only_finding(caught)
    assert finding.check == "batch-count"
    assert finding.ranks == (0, 1)
    assert finding.expected.startswith("29 batches on every rank")
    assert finding.found == "15 on rank 0, 15 on rank 1"
