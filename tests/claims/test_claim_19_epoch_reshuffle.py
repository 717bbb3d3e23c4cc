"""Claim 19 (S1, unsaid): the article's loop never calls set_epoch, so its shuffled epochs are all the same."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler

import ddpcheck
from fixtures import s1_digits as s1
from tests.claims.findings import only_finding


def order_of(loader: DataLoader) -> list[int]:
    return list(loader.sampler)


def draw(loader: DataLoader, *epochs: int) -> None:
    """Go through the loader's order once for each of these epochs."""
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        order_of(loader)


@pytest.mark.ddp(world_size=s1.PROCESSES)
def test_documents_program_repeats_its_order(ddp, capsys):
    """Five epochs of the article's program on its four processes: reported on every rank, with the fix."""
    torch.manual_seed(ddp.rank)
    dataset = s1.load_data()
    assert dataset.tensors[0].shape == (1797, 1, 28, 28)
    loader = s1.make_loader(dataset)
    model = ddp.wrap(s1.build_model())

    losses = s1.train(model, loader)

    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert capsys.readouterr().out.count("epoch") == (5 if ddp.rank == 0 else 0)
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_epochs_reshuffled(loader)
    finding = only_finding(caught)
    assert finding.check == "epoch-reshuffle"
    assert finding.ranks == (0, 1, 2, 3)
    assert finding.subject == "the sampler"
    assert finding.found == "passes 1 and 2 through the DistributedSampler in the same order"
    assert "set_epoch was not called" in finding.cause
    assert "set_epoch(epoch)" in finding.advice


@pytest.mark.ddp(world_size=s1.PROCESSES)
def test_fixed_program_is_held(ddp):
    """The same program with its one missing line has another order in each of its five epochs."""
    torch.manual_seed(ddp.rank)
    loader = s1.make_loader(s1.load_data())
    model = ddp.wrap(s1.build_model())

    s1.train(model, loader, set_epoch=True)

    ddpcheck.assert_epochs_reshuffled(loader)
    ddpcheck.assert_replicas_identical(model)
    ddpcheck.assert_shards_partition(loader)
    ddpcheck.assert_batch_count(loader)


@pytest.mark.ddp(world_size=2)
def test_epochs_are_the_same_data_in_the_same_order(ddp):
    """What the finding means: without set_epoch the indices repeat exactly, with it they do not."""
    loader = s1.make_loader(s1.load_data())

    assert order_of(loader) == order_of(loader)
    first = order_of(loader)
    loader.sampler.set_epoch(1)
    assert order_of(loader) != first


@pytest.mark.ddp(world_size=2)
def test_epoch_that_is_set_to_the_same_number_is_caught(ddp):
    """set_epoch with a number that stays, such as one counted per restart, is no better than none."""
    loader = s1.make_loader(s1.load_data())
    draw(loader, 1, 1, 1)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_epochs_reshuffled(loader)

    finding = only_finding(caught)
    assert finding.check == "epoch-reshuffle"
    assert finding.found.startswith("passes 1 and 2 ")
    assert "epoch was 1 both times" in finding.cause


class Forgetful(DistributedSampler):
    """Shuffles by its seed alone, whatever set_epoch said."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        yield from order[self.rank :: self.num_replicas]


@pytest.mark.ddp(world_size=2)
def test_order_of_a_samplers_own_is_not_held_in_silence(ddp):
    """A sampler that does not ask torch's for its order is not followed: that is said, and what to do instead."""
    loader = DataLoader(range(100), 10, sampler=Forgetful(range(100)))
    draw(loader, 0, 1)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_epochs_reshuffled(loader)

    assert only_finding(caught).found.startswith("a Forgetful with an order of its own, which is not recorded")


@pytest.mark.ddp(world_size=2)
def test_sampler_of_a_batch_sampler_is_the_one_that_counts(ddp):
    """The order is the DistributedSampler's, also where it is within a batch sampler."""
    sampler = DistributedSampler(range(100))
    loader = DataLoader(range(100), batch_sampler=BatchSampler(sampler, 10, drop_last=False))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        list(loader)
    ddpcheck.assert_epochs_reshuffled(loader)


@pytest.mark.ddp(world_size=2)
def test_second_look_at_an_epoch_is_no_fault(ddp):
    """A pass to evaluate on the training data repeats its epoch's order, beside other epochs with others."""
    loader = s1.make_loader(s1.load_data())
    draw(loader, 1, 2, 2)
    ddpcheck.assert_epochs_reshuffled(loader)


@pytest.mark.ddp(world_size=2)
def test_single_epoch_shows_nothing(ddp):
    """One pass cannot be compared with another: that nothing was checked is said, instead of passing."""
    loader = s1.make_loader(s1.load_data())
    order_of(loader)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_epochs_reshuffled(loader)

    assert "nothing was checked" in only_finding(caught).found
