"""Claim 16 (S1, S2, S4): DistributedSampler gives non-overlapping shards that cover the data, in real ranks.

On the data of the university-cluster guide, and on data that ranks make up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

import ddpcheck
from fixtures import s2_breast_cancer as s2
from tests.claims.findings import only_finding


def in_batches(dataset: Dataset[Any], sampler: DistributedSampler[Any]) -> DataLoader[Any]:
    return DataLoader(dataset, s2.BATCH_SIZE, sampler=sampler)


def positions_of_all(ddp, sampler: DistributedSampler[Any]) -> list[int]:
    """The indices that the ranks' samplers give, one rank after the other."""
    shards: list[Any] = [None] * ddp.world_size
    torch.distributed.all_gather_object(shards, list(sampler))
    return [index for shard in shards for index in shard]


@pytest.mark.ddp(world_size=[2, 3, 4, 5])
def test_documents_shards_partition_its_data(ddp):
    """The guide's loader is held in every epoch; where 455 samples do not divide, one comes twice, as padding."""
    training_set, _ = s2.load_data()
    loader = s2.make_loader(training_set)
    padding = -455 % ddp.world_size
    assert padding == (0 if ddp.world_size == 5 else 1)

    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        positions = positions_of_all(ddp, loader.sampler)
        assert len(positions) == 455 + padding
        assert set(positions) == set(range(455))
        ddpcheck.assert_shards_partition(loader.sampler)
        ddpcheck.assert_shards_partition(loader)
        ddpcheck.assert_shards_partition(in_batches(training_set, loader.sampler))


class OneTwice(DistributedSampler[Any]):
    """Gives rank 1 one of its indices a second time."""

    def __iter__(self):
        order = list(super().__iter__())
        return iter([*order, order[10]] if self.rank == 1 else order)


@pytest.mark.ddp(world_size=[2, 4])
def test_one_repetition_beyond_padding_is_caught(ddp):
    """Padding is told apart from overlap: a second copy of a sample is one more than padding explains."""
    training_set, _ = s2.load_data()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(in_batches(training_set, OneTwice(training_set)))

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert 1 in finding.ranks
    assert finding.subject.startswith("sample ")
    assert "2 of the 457 samples read" in finding.found
    assert "where padding explains 1" in finding.found
    assert "indices in common" in finding.cause


@pytest.mark.ddp(world_size=[2, 4])
def test_loader_without_distributed_sampler_is_caught(ddp):
    """Every rank goes through all samples: reported with the share of repetitions, and that the sampler is why."""
    training_set, _ = s2.load_data()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(DataLoader(training_set, s2.BATCH_SIZE, shuffle=True))

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert finding.ranks == tuple(range(ddp.world_size))
    assert finding.subject.startswith("sample ")
    read = 455 * ddp.world_size
    assert f"{read - 455:,} of the {read:,} samples read ({100 - 100 // ddp.world_size} %)" in finding.found
    assert finding.cause == "RandomSampler knows nothing of ranks, so each rank goes through the whole dataset"
    assert "DistributedSampler" in finding.advice


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        pytest.param(lambda ddp: {"rank": 0}, "for the same rank (0, 0", id="same-rank"),
        pytest.param(lambda ddp: {"seed": ddp.rank}, "different values of seed (0, 1", id="seed-per-rank"),
        pytest.param(lambda ddp: {"shuffle": ddp.rank == 0}, "different values of shuffle (True, False", id="shuffle"),
    ],
)
def test_samplers_that_do_not_belong_together_are_caught(ddp, arguments, cause):
    """Samplers that were made with arguments that do not fit are reported with the values of each rank."""
    training_set, _ = s2.load_data()
    sampler = DistributedSampler(training_set, **{"num_replicas": ddp.world_size, "rank": ddp.rank} | arguments(ddp))

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(in_batches(training_set, sampler))

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert finding.ranks == tuple(range(ddp.world_size))
    assert "to be repetitions" in finding.found
    assert cause in finding.cause


@pytest.mark.ddp(world_size=[2, 4])
def test_dataset_in_another_order_per_rank_is_caught(ddp):
    """Disjoint indices are not disjoint samples: a dataset that each rank orders by itself is seen by its contents."""
    training_set, _ = s2.load_data()
    order = torch.randperm(455, generator=torch.Generator().manual_seed(ddp.rank))
    shuffled = TensorDataset(*(tensor[order] for tensor in training_set.tensors))
    sampler = DistributedSampler(shuffled)
    assert set(positions_of_all(ddp, sampler)) == set(range(455))

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(in_batches(shuffled, sampler))

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert finding.ranks == tuple(range(ddp.world_size))
    assert "the datasets' orders differ" in finding.cause


@pytest.mark.ddp(world_size=[2, 4])
def test_sampler_made_for_more_ranks_is_caught(ddp):
    """Shards for one rank more leave a part of the data to nobody: reported as a gap, with both numbers."""
    training_set, _ = s2.load_data()
    more = ddp.world_size + 1
    sampler = DistributedSampler(training_set, num_replicas=more, rank=ddp.rank)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(in_batches(training_set, sampler))

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert "455 samples in no rank's epoch" in finding.found
    assert finding.subject.startswith("sample ")
    assert finding.cause == f"DistributedSampler was made for {more} ranks, and there are {ddp.world_size}"


@pytest.mark.ddp(world_size=2)
def test_random_data_of_each_ranks_own_is_warned_of(ddp):
    """Data that each rank generates for itself divides into shards of the right size, of different datasets.

    A warning: the same data would look like this, if each sample carried something of its rank.
    """
    generator = torch.Generator().manual_seed(ddp.rank)
    dataset = TensorDataset(torch.randn(64, 3, generator=generator))
    loader = in_batches(dataset, DistributedSampler(dataset))

    with pytest.warns(ddpcheck.AtRisk, match="have no sample in common") as caught:
        ddpcheck.assert_shards_partition(loader)
    assert "generator with the same seed" in str(caught[0].message)

    same = TensorDataset(torch.randn(64, 3, generator=torch.Generator().manual_seed(0)))
    ddpcheck.assert_shards_partition(in_batches(same, DistributedSampler(same)))


@pytest.mark.ddp(world_size=2)
def test_random_split_of_each_ranks_own_is_caught(ddp):
    """random_split without a common seed: the ranks' training sets overlap, and are not the same."""
    whole = TensorDataset(torch.arange(100).float())
    part, _ = random_split(whole, [80, 20], generator=torch.Generator().manual_seed(ddp.rank))
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(in_batches(part, DistributedSampler(part)))
    assert "hold different samples" in only_finding(caught).found

    part, _ = random_split(whole, [80, 20], generator=torch.Generator().manual_seed(7))
    ddpcheck.assert_shards_partition(in_batches(part, DistributedSampler(part)))


class WithItsPath(Dataset[Any]):
    """Reads each sample from a file in a folder of the rank's own, and gives the path with it."""

    def __init__(self, folder: Path, size: int) -> None:
        self.paths = [folder / f"{index}.txt" for index in range(size)]
        for index, path in enumerate(self.paths):
            path.write_text(str(index))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, str]:
        return int(self.paths[index].read_text()), str(self.paths[index])


@pytest.mark.ddp(world_size=2)
def test_samples_that_carry_their_rank_are_no_violation(ddp, tmp_path):
    """The same data, in samples that name each rank's own copy: the dataset without the names holds in silence."""
    dataset = WithItsPath(tmp_path, 20)
    loader = in_batches(dataset, DistributedSampler(dataset))
    with pytest.warns(ddpcheck.AtRisk, match="pass dataset= without it"):
        ddpcheck.assert_shards_partition(loader)
    ddpcheck.assert_shards_partition(loader, dataset=[number for number, _ in dataset])
