"""Claim 29 (S4): without a DistributedSampler every rank sees the same data."""

from __future__ import annotations

import pytest
import torch

import ddpcheck
from fixtures import s4_pitfalls as s4
from tests.claims.findings import only_finding


@pytest.mark.ddp(world_size=[2, 4])
def test_shares_are_duplicated_without_the_sampler(ddp):
    """Each rank reads all of the data, in an order of its own: all but one reading of each sample is repetition."""
    torch.manual_seed(ddp.rank)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_shards_partition(s4.make_loader(sampled=False))

    finding = only_finding(caught)
    assert finding.check == "shard-partition"
    assert finding.ranks == tuple(range(ddp.world_size))
    samples = len(s4.load_data())
    share = {2: "50 %", 4: "75 %"}[ddp.world_size]
    surplus = (ddp.world_size - 1) * samples
    assert finding.found.startswith(f"{surplus} of the {ddp.world_size * samples} samples read ({share}) to be repet")
    assert "DistributedSampler" in finding.advice


@pytest.mark.ddp(world_size=[2, 4])
def test_shares_are_disjoint_with_the_sampler(ddp):
    """The twin: with the sampler the ranks' shares cover the data once, but for its padding."""
    torch.manual_seed(ddp.rank)
    loader = s4.make_loader()

    ddpcheck.assert_shards_partition(loader)
    ddpcheck.assert_batch_count(loader)


@pytest.mark.ddp(world_size=2)
def test_replicas_agree_all_the_same(ddp):
    """Why nobody notices: training on all of the data in every rank keeps the replicas equal; it is only wasted."""
    torch.manual_seed(ddp.rank)

    model = s4.train(s4.make_loader(sampled=False))

    ddpcheck.assert_gradients_identical(model)
    ddpcheck.assert_parameters_identical(model)
