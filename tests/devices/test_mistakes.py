"""What real GPUs refuse, in torch's words: the common mistakes, and what is beyond the operators' own rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ddpcheck

ORDINAL = "CUDA error: invalid device ordinal"
X = "torch.ones(2, 3, device='cuda:1')"
REFUSED: dict[str, tuple[str, type[Exception], str]] = {
    "missing to": (f"nn.Linear(3, 2).to('cuda:0')({X}.cpu())", RuntimeError, "mat1.*wrapper_CUDA_addmm"),
    "other device": (f"nn.Linear(3, 2).to('cuda:0')({X})", RuntimeError, "same device.*cuda:1"),
    "labels": (f"F.cross_entropy({X}, torch.zeros(2).long())", RuntimeError, "target.*wrapper_CUDA_nll_loss_forward"),
    "targets": (f"F.mse_loss({X}, torch.zeros(2, 3))", RuntimeError, "at least two devices, cuda:1 and cpu!"),
    "indices": (f"F.embedding(torch.tensor([1]), {X})", RuntimeError, "index.*wrapper_CUDA__index_select"),
    "weights": (f"nn.Conv1d(2, 1, 1)({X})", RuntimeError, r"Input type \(torch.cuda.FloatTensor\) and weight type"),
    "hidden state": (f"nn.RNN(3, 2)({X})", RuntimeError, "found input tensor at cuda:1 and"),
    "no such device": ("torch.zeros(1, device='cuda:4')", RuntimeError, ORDINAL),
    "global rank as index": ("torch.cuda.set_device(7)", RuntimeError, ORDINAL),
    "no such number": ("nn.Linear(1, 1).to(9)", RuntimeError, ORDINAL),
    "numpy": (f"{X}.numpy()", TypeError, "can't convert cuda:1 device type tensor to numpy. Use Tensor.cpu()"),
    "array": (f"numpy.asarray({X})", TypeError, "can't convert cuda:1 device type tensor to numpy"),
    "gradient": (f"setattr({X}, 'grad', torch.ones(2, 3))", RuntimeError, "assign a gradient with device type 'cpu'"),
    "in place": (f"torch.ones(2, 3).add_({X})", RuntimeError, "at least two devices, cuda:1 and cpu!"),
    "generator": (
        "torch.rand(1, device='cuda', generator=torch.Generator())",
        RuntimeError,
        "Expected a 'cuda' device",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_by_cuda(name: str) -> None:
    """The class and the words of the error are torch's."""
    import numpy

    expression, error, message = REFUSED[name]
    with ddpcheck.simulated_devices(4), pytest.raises(error, match=message):
        eval(expression, {"torch": torch, "nn": nn, "F": F, "numpy": numpy})


def test_wording_follows_the_version() -> None:
    """The installed torch's sentence, as it is known from GPUs."""
    old = (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        "(when checking argument for argument mat2 in method wrapper_CUDA_mm)"
    )
    new = (
        "Expected all tensors to be on the same device, but got mat2 is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA_mm)"
    )
    recent = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)
    with ddpcheck.simulated_devices(1):
        with pytest.raises(RuntimeError) as caught:
            _ = torch.ones(1, 1, device="cuda") @ torch.ones(1, 1)
        assert str(caught.value) == (new if recent else old)


# --- each mistake beside a twin that runs

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
