"""Claim 17 (S2): the sampler needs no communication, since every rank computes the same order."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

import ddpcheck
from fixtures import s2_breast_cancer as s2
from tests.claims.findings import only_finding

EPOCHS = 3
SEED = 7

# A reading of the algorithm, in a program that knows of no other process: one
# order for all from seed and epoch, padded from its beginning, dealt in turn.
BY_HAND = """
import json, sys, torch
size, world_size, seed, epochs = map(int, sys.argv[1:])
shards = []
for epoch in range(epochs):
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed + epoch)).tolist()
    order += order[: -size % world_size]
    shards.append([order[rank::world_size] for rank in range(world_size)])
print(json.dumps(shards))
"""


def by_hand(size: int, world_size: int) -> list[list[list[int]]]:
    """The shards of each epoch and rank, computed by one interpreter of its own."""
    numbers = [str(number) for number in (size, world_size, SEED, EPOCHS)]
    done = subprocess.run([sys.executable, "-c", BY_HAND, *numbers], stdout=subprocess.PIPE, text=True, check=True)
    shards: list[list[list[int]]] = json.loads(done.stdout)
    return shards


def shards_of(sampler: DistributedSampler[Any]) -> list[list[int]]:
    """What this sampler gives in each epoch."""
    shards = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        shards.append(list(sampler))
    return shards


@pytest.mark.ddp(world_size=[2, 4])
def test_shards_are_the_same_with_and_without_a_group(ddp):
    """Asking the group who this rank is, being told, and having no group at all give the same shards."""
    training_set, _ = s2.load_data()
    inside = shards_of(DistributedSampler(training_set, seed=SEED))
    told = shards_of(DistributedSampler(training_set, num_replicas=ddp.world_size, rank=ddp.rank, seed=SEED))

    dist.destroy_process_group()

    without = shards_of(DistributedSampler(training_set, num_replicas=ddp.world_size, rank=ddp.rank, seed=SEED))
    assert inside == told == without
    with pytest.raises((RuntimeError, ValueError), match="process group"):
        DistributedSampler(training_set, seed=SEED)


@pytest.mark.ddp(world_size=4)
def test_shards_are_those_that_a_single_process_computes(ddp):
    """An interpreter without torch.distributed, given only numbers, deals out exactly what the ranks' samplers give."""
    training_set, _ = s2.load_data()
    answer = ddp.tmp_path / "shards.json"
    if ddp.rank == 0:
        answer.write_text(json.dumps(by_hand(len(training_set), ddp.world_size)))
    dist.barrier()
    shards = json.loads(answer.read_text())

    mine = shards_of(DistributedSampler(training_set, seed=SEED))

    assert mine == [epoch[ddp.rank] for epoch in shards]
    assert mine != [epoch[(ddp.rank + 1) % ddp.world_size] for epoch in shards]
    assert mine != shards_of(DistributedSampler(training_set, seed=SEED + EPOCHS))


@pytest.mark.ddp(world_size=[2, 4])
def test_one_order_lies_behind_the_shards(ddp):
    """Taking one index from each rank in turn gives the order of a sampler that is alone, and then the padding."""
    training_set, _ = s2.load_data()
    for epoch in range(EPOCHS):
        sampler = DistributedSampler(training_set, seed=SEED)
        alone = DistributedSampler(training_set, num_replicas=1, rank=0, seed=SEED)
        sampler.set_epoch(epoch)
        alone.set_epoch(epoch)
        order = list(alone)

        shards: list[Any] = [None] * ddp.world_size
        dist.all_gather_object(shards, list(sampler))

        in_turn = [index for turn in zip(*shards, strict=True) for index in turn]
        assert in_turn == order + order[: len(in_turn) - len(order)]
        ddpcheck.assert_shards_partition(sampler)


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("differing", ["seed", "epoch"])
def test_numbers_that_differ_between_ranks_are_caught(ddp, differing):
    """Without communication nothing evens out a seed or an epoch of the rank's own: reported, with the values."""
    training_set, _ = s2.load_data()
    sampler = DistributedSampler(training_set, seed=ddp.rank if differing == "seed" else 0)
    if differing == "epoch":
        sampler.set_epoch(ddp.rank)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(sampler)

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert finding.ranks == tuple(range(ddp.world_size))
    values = ", ".join(map(str, range(ddp.world_size)))
    assert finding.cause == f"the ranks' samplers have different values of {differing} ({values})"
