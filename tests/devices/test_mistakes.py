"""What real GPUs refuse beyond the operators' own rules, each beside a twin that they take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ddpcheck

G, R = "torch.rand(3, device='cuda')", "torch.rand(3, device='cuda', requires_grad=True)"
PAIRS: dict[str, tuple[str, str, str]] = {
    "generator": (f"{G}.normal_(generator=torch.Generator())", f"{G}.normal_()", "Expected a 'cuda' device type"),
    "lengths": (
        "nn.utils.rnn.pack_padded_sequence(torch.rand(3, 4, 5).cuda(), torch.tensor([4, 3, 2]).cuda(), True)",
        "nn.utils.rnn.pack_padded_sequence(torch.rand(3, 4, 5).cuda(), torch.tensor([4, 3, 2]), True)",
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
    ),
    "root": (f"({R} * 2).backward(torch.ones(3))", f"({R} * 2).backward(torch.ones(3).cuda())", "invalid gradient at"),
    "hook": ("hooked(lambda g: g.cpu())", "hooked(lambda g: g * 2)", "has changed the type of value"),
    "saved": ("saved(lambda t: t.cpu())", "saved(lambda t: t.clone())", "same device"),
    "split": (
        f"torch.tensor_split({G}, torch.tensor([1]).cuda())",
        f"torch.tensor_split({G}, torch.tensor([1]))",
        "to be on cpu, but it's on cuda:0",
    ),
    "mesh": (
        f"torch.meshgrid({G}, torch.ones(2), indexing='ij')",
        f"torch.meshgrid({G}, {G}, indexing='ij')",
        "device",
    ),
    "polynomial": (
        f"torch.special.chebyshev_polynomial_t({G}, torch.ones(3))",
        f"torch.special.chebyshev_polynomial_t({G}, torch.ones(3).cuda())",
        "same device",
    ),
    "on the CPU alone": (f"{G}.apply_(abs)", f"{G}.cpu().apply_(abs)", "only implemented on CPU tensors"),
    "sparse": (
        "torch.sparse_coo_tensor(torch.tensor([[0]]).cuda(), torch.ones(1), (2,))",
        "torch.sparse_coo_tensor(torch.tensor([[0]]).cuda(), torch.ones(1).cuda(), (2,))",
        "must match device of values",
    ),
    "pinned": (f"{G}.pin_memory()", f"{G}.cpu().pin_memory()", "cannot pin 'torch.cuda.FloatTensor'"),
}


def hooked(hook: Any) -> None:
    """A backward through a hook."""
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = x * 2
    y.register_hook(hook)
    y.sum().backward()


def saved(pack: Any) -> None:
    """A backward by way of tensors that a hook saves."""
    x = torch.ones(3, device="cuda", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        y = (x * x).sum()
    y.backward()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", PAIRS)
def test_refused_and_its_twin(name: str) -> None:
    """The mistake has torch's words, and the twin runs."""
    wrong, right, message = PAIRS[name]
    names = {"torch": torch, "nn": nn, "hooked": hooked, "saved": saved}
    with ddpcheck.simulated_devices(2):
        with pytest.raises((RuntimeError, TypeError), match=message):
            eval(wrong, names)
        eval(right, names)


def test_what_is_read_on_the_cpu() -> None:
    """Lengths of a CTC loss, and a fused optimizer's learning rate, may stay there."""
    with ddpcheck.simulated_devices(1):
        lengths = torch.tensor([10, 10]), torch.tensor([2, 2])
        scores = torch.rand(10, 2, 5, device="cuda").log_softmax(2)
        assert F.ctc_loss(scores, torch.tensor([[1, 2], [3, 4]]).cuda(), *lengths).is_cuda
        layer = nn.Linear(2, 2).cuda()
        optimizer = torch.optim.Adam(layer.parameters(), lr=torch.tensor(1e-3), fused=True)
        layer(torch.rand(1, 2).cuda()).sum().backward()
        optimizer.step()


def test_offloaded_activations() -> None:
    """What torch saves on the CPU comes back to its device."""
    with ddpcheck.simulated_devices(1):
        x = torch.ones(3, device="cuda", requires_grad=True)
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            y = (x * x).sum()
        y.backward()
        assert isinstance(x.grad, Tensor)
        assert x.grad.is_cuda


def test_wrong_gradient_of_a_function() -> None:
    """The function that returned it is named, where the gradient reaches a leaf."""

    class Home(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0].cpu()

    with ddpcheck.simulated_devices(1), pytest.raises(RuntimeError, match="Function HomeBackward returned an invalid"):
        Home.apply(torch.ones(3, device="cuda", requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]


def test_default_device_is_put_back() -> None:
    """A default that was set inside is gone afterwards."""
    with ddpcheck.simulated_devices(2):
        torch.set_default_device("cuda:1")
        assert torch.zeros(1).is_cuda
    assert str(torch.zeros(1).device) == "cpu"


def test_decorated_too_early() -> None:
    """A generator, a coroutine and a class are refused."""

    def generator() -> Any:
        yield

    async def coroutine() -> None: ...

    class Kind: ...

    for each in (generator, coroutine, Kind):
        with pytest.raises(TypeError, match="@simulated_devices"):
            ddpcheck.simulated_devices(1)(each)


def test_types_of_tensors() -> None:
    """They make tensors on the current device, and know them."""
    with ddpcheck.simulated_devices(1):
        made: Any = torch.cuda.FloatTensor([1, 2])  # type: ignore[attr-defined]
        assert str(made.device) == "cuda:0"
        assert isinstance(made, torch.cuda.FloatTensor)  # type: ignore[attr-defined]
        assert not isinstance(made.cpu(), torch.cuda.FloatTensor)  # type: ignore[attr-defined]
        torch.cuda.random.manual_seed(1)
        with pytest.raises(ddpcheck.NotSimulated, match="range_push"):
            torch.cuda.nvtx.range_push("a")
