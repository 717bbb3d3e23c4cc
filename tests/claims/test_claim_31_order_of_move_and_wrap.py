"""Claim 31 (S4): moving the model in a statement of its own, before the wrap, is an error.

Refuted: a module is moved in place, so that the statement before the wrap does
what the call within it does. The order that does harm is the other one, of
which nobody is warned: a move after the wrap gives the parameters new places
in the graph of gradients, and DDP hears of none of them. The CPU to CPU move
of the program moves nothing; a change of dtype is a real one, and goes the
same way through torch.
"""

from __future__ import annotations

import pytest
import torch

import ddpcheck
from fixtures import s4_pitfalls as s4
from tests.claims.findings import only_finding

CPU = torch.device("cpu")


def trained(ddp, move: s4.Move) -> dict[str, torch.Tensor]:
    torch.manual_seed(ddp.rank)
    model = s4.train(s4.make_loader(), move)
    ddpcheck.assert_gradients_identical(model)
    ddpcheck.assert_parameters_identical(model)
    return dict(model.module.state_dict())


@pytest.mark.ddp(world_size=[2, 4])
def test_all_orders_train_alike_on_the_cpu(ddp):
    """The document's program ends in the same bits, whether it moves within, before or after the wrap."""
    within = trained(ddp, "within")

    torch.testing.assert_close(trained(ddp, "before"), within, rtol=0, atol=0)
    torch.testing.assert_close(trained(ddp, "after"), within, rtol=0, atol=0)


def one_backward(ddp, move: s4.Move) -> torch.nn.Module:
    """A backward pass of the program's model, moved to double precision in the same place as to its device."""
    torch.manual_seed(ddp.rank)
    net = s4.build_model()
    if move != "after":
        net.to(torch.float64)
    model = s4.wrapped(net, CPU, move)
    if move == "after":
        model.to(torch.float64)
    figures = torch.randn(8, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(ddp.rank))
    model(figures).square().mean().backward()
    return model


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("move", ["within", "before"])
def test_move_before_the_wrap_is_no_error(ddp, move):
    """A real move before the wrap, in its own statement or not, leaves the gradients synchronised."""
    ddpcheck.assert_gradients_identical(one_backward(ddp, move))


@pytest.mark.ddp(world_size=[2, 4])
def test_move_after_the_wrap_is_caught(ddp):
    """The fault that the document does not name: a real move after the wrap, and nothing is reduced any more."""
    model = one_backward(ddp, "after")

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_gradients_identical(model)

    finding = only_finding(caught)
    assert finding.check == "gradient-sync"
    assert finding.count == 4
    assert finding.ranks == tuple(range(1, ddp.world_size))


@pytest.mark.ddp(world_size=1, device="cuda")
def test_both_orders_on_a_gpu(ddp):
    """From the CPU to a GPU: a move before the wrap, in a statement of its own or not, gives the same gradients."""
    ends = []
    for move in ("within", "before"):
        torch.manual_seed(0)
        model = s4.wrapped(s4.build_model(), ddp.device, move)
        model(torch.ones(8, 13, device=ddp.device)).square().mean().backward()
        ends.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(*ends, rtol=0, atol=0)
