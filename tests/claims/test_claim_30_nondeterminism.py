"""Claim 30 (S4): non-deterministic operations make the replicas diverge.

Refuted for forward and backward: whatever chance there is in a rank's own
gradient, all ranks apply the same mean of all. True of state that no reduction
passes through: buffers that are not broadcast, and an optimizer that draws
numbers of its own.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import ddpcheck
from tests.claims.findings import only_finding


class Noisy(nn.Module):
    """A net with chance at every turn: dropout, noise on its activations, and a branch taken at random."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(10, 16)
        self.output = nn.Linear(16, 1)
        self.drawn: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.dropout(self.hidden(x), p=0.5)
        hidden = hidden + 0.1 * torch.randn_like(hidden)
        self.drawn.append(float(torch.rand(())))
        return self.output(hidden.relu() if self.drawn[-1] < 0.5 else hidden.tanh())


def of_all_ranks(ddp, tensor: Tensor) -> list[Tensor]:
    found = [torch.empty_like(tensor) for _ in range(ddp.world_size)]
    dist.all_gather(found, tensor)
    return found


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 10) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 10)).square().mean().backward()
        optimizer.step()


@pytest.mark.ddp(world_size=[2, 4])
def test_noise_of_each_ranks_own_in_the_forward_pass_does_not(ddp):
    """Ten steps in which every rank draws other numbers leave gradients and parameters equal, to the bit."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(Noisy())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    steps(model, optimizer)

    ddpcheck.assert_gradients_identical(model)
    ddpcheck.assert_parameters_identical(model)
    drawn = of_all_ranks(ddp, torch.tensor(model.module.drawn))
    assert all(not torch.equal(other, drawn[0]) for other in drawn[1:])  # the chance was there, and differed


@pytest.mark.ddp(world_size=2)
def test_the_same_noise_without_the_reduction_does(ddp):
    """What keeps them equal is the reduction alone: without it the same noise drives the replicas apart."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(Noisy())

    steps(model.module, torch.optim.Adam(model.parameters(), lr=0.01))

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_parameters_identical(model)
    assert only_finding(caught).check == "parameter-sync"


@pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated")  # what replaces it is newer than 2.12
@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("broadcast", [False, True])
def test_buffers_that_are_not_broadcast_do(ddp, broadcast):
    """Running statistics follow each rank's own data where broadcast_buffers is off; the parameters stay equal."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(nn.Sequential(nn.Linear(10, 4), nn.BatchNorm1d(4)), broadcast_buffers=broadcast)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    steps(model, optimizer)
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, 10))  # a forward pass broadcasts what there is, and in this mode changes nothing itself

    ddpcheck.assert_parameters_identical(model)
    means = of_all_ranks(ddp, model.module[1].running_mean)
    assert all(torch.equal(mean, means[0]) for mean in means) == broadcast


class Langevin(torch.optim.SGD):
    """A step of gradient descent, and noise on every parameter, as stochastic Langevin dynamics have it."""

    def __init__(self, parameters, lr: float, generator: torch.Generator) -> None:
        super().__init__(parameters, lr)
        self.generator = generator

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter += 0.01 * torch.randn(parameter.shape, generator=self.generator)


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("own", [True, False], ids=["own-seed", "same-seed"])
def test_an_optimizer_that_draws_numbers_of_its_own_does(ddp, own):
    """Noise that the optimizer adds comes after the reduction: caught, unless all ranks draw the same."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(nn.Linear(10, 4))
    generator = torch.Generator().manual_seed(ddp.rank if own else 7)
    steps(model, Langevin(model.parameters(), 0.01, generator), count=1)

    ddpcheck.assert_gradients_identical(model)
    if not own:
        ddpcheck.assert_parameters_identical(model)
        return
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_parameters_identical(model)
    finding = only_finding(caught)
    assert finding.check == "parameter-sync"
    assert finding.count == 2


STATISTICS = """
dist.init_process_group("gloo")
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), broadcast_buffers={broadcast})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    step(model, optimizer)
model.eval()
with torch.no_grad():
    model(torch.ones(4, 4))  # evaluated on every rank
dist.destroy_process_group()
"""


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.long
def test_what_the_command_says_of_buffers_that_diverge(watch, broadcast):
    """Ranks that evaluate with statistics of their own are told of as buffer-sync; broadcast ones are not."""
    seen = watch(STATISTICS.format(broadcast=broadcast))
    assert seen.ended_well
    assert seen.errors == ([] if broadcast else ["buffer-sync"])


MOMENTS = """
dist.init_process_group("gloo")
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step(model, optimizer)
if rank == 1 and {fault}:
    for state in optimizer.state.values():
        state["momentum_buffer"].zero_()
step(model, optimizer)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("fault", [True, False])
def test_what_the_command_says_of_optimizer_state_that_diverges(watch, fault):
    """Moments that one rank has lost part the replicas at the next step: told once, with the rank; the twin is not."""
    seen = watch(MOMENTS.format(fault=fault))
    assert seen.ended_well
    if not fault:
        assert seen.findings == []
        return
    assert seen.errors == ["optimizer-sync"]
    (finding,) = seen.findings
    assert "parameter-sync" in finding["also"]
