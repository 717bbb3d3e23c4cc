"""The whole job of the university-cluster guide (S2), each invariant held on its way from the wrap to the accuracy."""

from __future__ import annotations

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from fixtures import s2_breast_cancer as s2
from tests.claims.findings import only_finding

CPU = torch.device("cpu")


class Holds(s2.Observer):
    """Asserts each invariant at the moment for which it is claimed, and counts the moments."""

    def __init__(self) -> None:
        self.wraps = self.backwards = self.steps = 0
        self.epochs: list[tuple[int, int]] = []

    def on_wrapped(self, model: DistributedDataParallel) -> None:
        ddpcheck.assert_initial_broadcast(model)
        self.wraps += 1

    def on_gradients(self, model: DistributedDataParallel) -> None:
        ddpcheck.assert_gradients_identical(model)
        self.backwards += 1

    def on_step(self, model: DistributedDataParallel) -> None:
        ddpcheck.assert_parameters_identical(model)
        self.steps += 1

    def on_epoch(self, epoch: int, loader: s2.Loader, batches: int) -> None:
        ddpcheck.assert_shards_partition(loader)
        ddpcheck.assert_batch_count(loader, consumed=batches)
        self.epochs.append((epoch, batches))


@pytest.mark.ddp(world_size=[2, 4])
def test_job_holds_every_invariant_and_learns(ddp):
    """Five epochs from seeds of the ranks' own: all invariants at every step and epoch, and accuracy above 0.9."""
    torch.manual_seed(ddp.rank)
    observer = Holds()

    trained = s2.train(s2.Job(epochs=5), CPU, observer)

    batches = {2: 28, 4: 14}[ddp.world_size]
    assert observer.wraps == 1
    assert observer.backwards == observer.steps == 5 * batches
    assert observer.epochs == [(epoch, batches) for epoch in range(5)]
    ddpcheck.assert_epochs_reshuffled(trained.loader)
    ddpcheck.assert_replicas_identical(trained.model)
    assert trained.accuracy > 0.9


@pytest.mark.ddp(world_size=2)
def test_fault_in_the_midst_of_the_job_is_caught_where_it_happens(ddp):
    """A weight that one rank changes before the third step is reported after that step, and not sooner."""

    class Meddles(Holds):
        def on_gradients(self, model: DistributedDataParallel) -> None:
            super().on_gradients(model)
            if ddp.rank == 1 and self.backwards == 3:
                with torch.no_grad():
                    model.module[2].bias.add_(1)

    torch.manual_seed(ddp.rank)
    observer = Meddles()

    with pytest.raises(ddpcheck.Violation) as caught:
        s2.train(s2.Job(epochs=1), CPU, observer)

    finding = only_finding(caught)
    assert finding.check == "parameter-sync"
    assert finding.ranks == (1,)
    assert finding.subject == "2.bias"
    assert finding.where.function == "on_step"
    assert (observer.backwards, observer.steps) == (3, 2)


@pytest.mark.ddp(world_size=3)
def test_gradient_lost_in_the_midst_of_the_job_is_caught(ddp):
    """A gradient that one rank zeroes after its second backward is reported before the step, with that rank."""

    class Forgets(Holds):
        def on_gradients(self, model: DistributedDataParallel) -> None:
            if ddp.rank == 0 and self.backwards == 1:
                model.module[0].weight.grad.zero_()
            super().on_gradients(model)

    torch.manual_seed(ddp.rank)
    observer = Forgets()

    with pytest.raises(ddpcheck.Violation) as caught:
        s2.train(s2.Job(epochs=1), CPU, observer)

    finding = only_finding(caught)
    assert finding.check == "gradient-sync"
    assert finding.ranks == (0,)
    assert finding.subject == "0.weight"
    assert finding.where.function == "on_gradients"
    assert (observer.backwards, observer.steps) == (1, 1)


@pytest.mark.ddp(world_size=2)
def test_resumed_job_ends_where_an_uninterrupted_one_does(ddp, capsys):
    """Two epochs, a checkpoint and two more give the parameters of four epochs in one go, to the bit."""
    torch.manual_seed(0)
    whole = s2.train(s2.Job(epochs=4), CPU)
    path = ddp.tmp_path / "job.pt"
    torch.manual_seed(0)
    s2.train(s2.Job(epochs=2, save_every=2, checkpoint=path), CPU)
    capsys.readouterr()

    torch.manual_seed(99 + ddp.rank)  # what it starts from is the checkpoint, whatever the seed
    resumed = s2.train(s2.Job(epochs=4, save_every=2, checkpoint=path), CPU)

    assert resumed.first_epoch == 2
    printed = capsys.readouterr().out
    assert ("resumed after epoch 2\nepoch 3: " in printed) == (ddp.rank == 0)
    ddpcheck.assert_replicas_identical(resumed.model)
    torch.testing.assert_close(dict(resumed.model.state_dict()), dict(whole.model.state_dict()), rtol=0, atol=0)
    assert resumed.accuracy == whole.accuracy


@pytest.mark.ddp(world_size=2)
def test_rank_0_prints_what_a_person_wants_to_know(ddp, capsys):
    """The program as torchrun starts it: a line per epoch and the accuracy at the end, on rank 0 alone."""
    torch.manual_seed(ddp.rank)

    s2.main(["--epochs", "2", "--save-every", "1", "--checkpoint", str(ddp.tmp_path / "job.pt")])

    lines = capsys.readouterr().out.splitlines()
    if ddp.rank != 0:
        assert lines == []
        return
    assert [line.split(":")[0] for line in lines[:2]] == ["epoch 1", "epoch 2"]
    assert all(line.endswith("over 28 batches") for line in lines[:2])
    assert lines[2].startswith("test accuracy ")
    assert float(lines[2].split()[2]) > 0.9
    assert lines[2].endswith(" after 2 epochs on 2 ranks")
    assert len(lines) == 3
