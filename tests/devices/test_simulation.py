"""What a tensor on a simulated device says and does, where it is refused, and what is left afterwards."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ddpcheck

ORDINAL = "CUDA error: invalid device ordinal"


# --- entering and leaving


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("2", TypeError)])
def test_wrong_number_of_devices(n: Any, error: type[Exception]) -> None:
    """A sentence names what was given."""
    with pytest.raises(error, match=r"takes a number of devices, 1 or more, not"):
        ddpcheck.simulated_devices(n)


def test_no_simulation_inside_of_another() -> None:
    """The second is refused, and the first goes on."""
    with ddpcheck.simulated_devices(2):
        with pytest.raises(RuntimeError, match=r"simulated_devices\(3\) was entered inside of simulated_devices\(2\)"):
            ddpcheck.simulated_devices(3).__enter__()
        assert torch.zeros(1, device="cuda:1").is_cuda


@ddpcheck.simulated_devices(2)
def test_decorator() -> None:
    """A function runs inside, each time anew."""
    assert torch.cuda.device_count() == 2
    assert torch.zeros(1, device="cuda").device == torch.device("cuda:0")


def test_everything_is_put_back() -> None:
    """Afterwards torch is as it was, also after an error, and tensors made inside are the CPU's."""
    before = _surface()
    with ddpcheck.simulated_devices(2):
        layer, x = nn.Linear(2, 2).to("cuda:1"), torch.ones(1, 2, device="cuda:1")
        y = layer(x)
        assert str(y.device) == "cuda:1"
    assert _surface() == before
    with pytest.raises(ZeroDivisionError), ddpcheck.simulated_devices(2):
        _ = 1 / 0
    assert _surface() == before
    assert {str(each.device) for each in (layer.weight, x, y)} == {"cpu"}
    y.sum().backward()
    assert x.numpy().tolist() == [[1.0, 1.0]]


def _surface() -> dict[str, Any]:
    owners = (torch, torch.Tensor, torch.UntypedStorage, torch.cuda, torch._C, torch.autograd, torch.autocast)
    owners += (torch.cuda.Stream, torch.cuda.Event, torch.nn.parallel.comm)
    found = {f"{owner!r}.{name}": value for owner in owners for name, value in vars(owner).items()}
    found["reducer"] = torch.distributed.Reducer
    found["modes"] = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    # What torch imports or notes down for itself on the way is no business of ours.
    return {name: value for name, value in found.items() if not isinstance(value, type(torch))}


def test_errors_outside_are_torchs_own() -> None:
    """torch's state in C++ is as before too: it asks for the driver, and does not find it."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, and no error")
    message = _message_of(lambda: torch.zeros(1, device="cuda"))
    with ddpcheck.simulated_devices(1):
        torch.zeros(1, device="cuda")
        with torch.device("cuda"):
            torch.zeros(1)
    assert _message_of(lambda: torch.zeros(1, device="cuda")) == message


def _message_of(call: Callable[[], object]) -> str:
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        call()
    return str(caught.value)


def test_other_threads() -> None:
    """A thread that is started inside is simulated too, and one that lives on is not, afterwards."""
    found: list[Any] = []

    def work() -> None:
        found.append(torch.zeros(2).to("cuda:1").device)
        try:
            torch.zeros(2, device="cuda:0") + torch.zeros(2, device="cuda:1")
        except RuntimeError as error:
            found.append(str(error))
        inside.set()
        over.wait()
        found.append((torch.zeros(2) + 1).device)

    inside, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    with ddpcheck.simulated_devices(2):
        thread.start()
        inside.wait()
    over.set()
    thread.join()
    assert found[0] == torch.device("cuda:1")
    assert "cuda:0 and cuda:1!" in found[1]
    assert found[2] == torch.device("cpu")


# --- where tensors are

MADE: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "factory": (lambda: torch.zeros(2, device="cuda:1"), "cuda:1"),
    "number": (lambda: torch.zeros(2, device=1), "cuda:1"),
    "data": (lambda: torch.tensor([1.0], device="cuda:1"), "cuda:1"),
    "array": (lambda: torch.as_tensor(torch.ones(2).numpy(), device="cuda:1"), "cuda:1"),
    "current device": (lambda: torch.zeros(2, device="cuda"), "cuda:0"),
    "no device": (lambda: torch.zeros(2), "cpu"),
    "legacy": (lambda: torch.FloatTensor([1.0]), "cpu"),
    "like": (lambda: torch.ones_like(torch.zeros(2, device="cuda:1")), "cuda:1"),
    "like elsewhere": (lambda: torch.ones_like(torch.zeros(2, device="cuda:1"), device="cpu"), "cpu"),
    "new": (lambda: torch.zeros(2, device="cuda:1").new_full((1,), 3.0), "cuda:1"),
    "to number": (lambda: torch.zeros(2).to(1), "cuda:1"),
    "to with dtype": (lambda: torch.zeros(2).to("cuda:1", torch.float64), "cuda:1"),
    "to dtype": (lambda: torch.zeros(2, device="cuda:1").to(torch.float64), "cuda:1"),
    "to keywords": (lambda: torch.zeros(2).to(device="cuda:1", dtype=torch.half, non_blocking=True), "cuda:1"),
    "cuda": (lambda: torch.zeros(2).cuda(), "cuda:0"),
    "cpu": (lambda: torch.zeros(2, device="cuda:1").cpu(), "cpu"),
    "type": (lambda: torch.zeros(2).type("torch.cuda.DoubleTensor"), "cuda:0"),
    "view": (lambda: torch.zeros(2, 3, device="cuda:1").t()[1:], "cuda:1"),
    "detached": (lambda: torch.zeros(2, device="cuda:1", requires_grad=True).detach(), "cuda:1"),
    "data of a parameter": (lambda: nn.Parameter(torch.zeros(2, device="cuda:1")).data, "cuda:1"),
    "copy": (lambda: copy.deepcopy(torch.zeros(2, device="cuda:1")), "cuda:1"),
    "copy of a module": (lambda: copy.deepcopy(nn.Linear(1, 1).to(1)).weight, "cuda:1"),
    "pickled": (lambda: pickle.loads(pickle.dumps(torch.zeros(2, device="cuda:1"))), "cuda:1"),
    "module": (lambda: nn.Linear(1, 1, device="cuda:1").weight, "cuda:1"),
    "materialised": (lambda: nn.Linear(1, 1, device="meta").to_empty(device="cuda:1").weight, "cuda:1"),
    "sparse": (lambda: torch.eye(2, device="cuda:1").to_sparse(), "cuda:1"),
    "pinned": (lambda: torch.zeros(2).pin_memory().to("cuda:1", non_blocking=True), "cuda:1"),
}


@pytest.mark.parametrize("name", MADE)
def test_where_a_tensor_is(name: str) -> None:
    """However it came about."""
    make, device = MADE[name]
    with ddpcheck.simulated_devices(2):
        made = make()
        assert str(made.device) == device
        assert made.is_cuda is (device != "cpu")
        assert made.is_cpu is (device == "cpu")
        assert made.get_device() == (-1 if device == "cpu" else int(device[-1]))


def test_defaults() -> None:
    """Contexts and defaults choose the device of new tensors, and ``cuda`` is the current one."""
    with ddpcheck.simulated_devices(4):
        with torch.device("cuda:3"):
            assert nn.Linear(1, 1).weight.get_device() == 3
        torch.set_default_device("cuda:2")
        try:
            assert torch.zeros(1).get_device() == 2
        finally:
            torch.set_default_device(None)
        torch.cuda.set_device(1)
        assert torch.cuda.current_device() == 1
        with torch.cuda.device(2):
            assert torch.zeros(1, device="cuda").get_device() == 2
        assert torch.zeros(1, device="cuda").get_device() == 1
        assert torch.zeros(1).get_device() == -1


def test_what_it_prints() -> None:
    """A tensor shows its device as on a GPU."""
    with ddpcheck.simulated_devices(2):
        assert repr(torch.zeros(1, device="cuda:1")) == "tensor([0.], device='cuda:1')"
        assert torch.zeros(1, device="cuda:1").type() == "torch.cuda.FloatTensor"


# --- training


def _network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 6)
    )


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}])
def test_training_equals_the_cpus(kind: Any, options: dict[str, Any]) -> None:
    """Three steps with clipping and a schedule, on one device and on two: every parameter to the bit."""
    plain = _trained("cpu", "cpu", kind, options)
    with ddpcheck.simulated_devices(2):
        one = _trained("cuda:1", "cuda:1", kind, options)
        two = _trained("cuda:0", "cuda:1", kind, options)
    for other in (one, two):
        assert all(torch.equal(*pair) for pair in zip(plain, other, strict=True))


def _trained(first: str, second: str, kind: Any, options: dict[str, Any]) -> list[torch.Tensor]:
    network = _network()
    head = network[5].to(second)  # type: ignore[index]
    body = nn.Sequential(*network.children())[:5].to(first)
    optimizer = kind(network.parameters(), lr=0.05, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for step in range(3):
        x = torch.arange(32.0).reshape(2, 2, 8) / (step + 7)
        optimizer.zero_grad()
        loss = F.cross_entropy(head(body(x.to(first)).to(second)), torch.tensor([step, 1]).to(second))
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        assert all(p.grad is not None and p.grad.device == p.device for p in network.parameters())
        optimizer.step()
        schedule.step()
    return [parameter.detach().cpu() for parameter in network.parameters()]


def test_hooks_see_devices_in_a_backward() -> None:
    """What a hook makes is where it says, and its gradient is where its tensor is."""
    seen = []

    def hook(gradient: torch.Tensor) -> None:
        made = torch.zeros(1), gradient.new_zeros(1), torch.zeros(1, device=gradient.device)
        seen.extend(str(each.device) for each in (gradient, *made))

    with ddpcheck.simulated_devices(2):
        x = torch.ones(2, device="cuda:1", requires_grad=True)
        y = x * 2
        y.register_hook(hook)
        y.to("cuda:0").sum().backward()
        assert str(x.grad.device) == "cuda:1"  # type: ignore[union-attr]
    assert seen == ["cuda:1", "cpu", "cuda:1", "cuda:1"]


def test_gradient_of_a_scalar_comes_home() -> None:
    """A scalar on the CPU that scales tensors of a GPU has its gradient on the CPU."""
    with ddpcheck.simulated_devices(1):
        scale, x = torch.tensor(2.0, requires_grad=True), torch.ones(3, device="cuda:0", requires_grad=True)
        (scale * x).sum().backward()
        assert (str(scale.grad.device), str(x.grad.device)) == ("cpu", "cuda:0")  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch 2.4 warns of a call of its own
def test_second_derivatives_and_recomputation() -> None:
    """Gradients of gradients cross devices as well, and recomputed activations stay where they were."""
    with ddpcheck.simulated_devices(2):
        x = torch.ones(2, device="cuda:1", requires_grad=True)
        (first,) = torch.autograd.grad((x.to("cuda:0") ** 3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert (str(first.device), str(second.device), second.tolist()) == ("cuda:1", "cuda:1", [6.0, 6.0])
        layer = nn.Linear(2, 2).to("cuda:1")
        for reentrant in (True, False):
            checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
        assert str(x.grad.device) == "cuda:1"  # type: ignore[union-attr]


def test_recurrent_and_attention_layers() -> None:
    """Layers that torch runs by other kernels on the CPU than on a GPU."""
    with ddpcheck.simulated_devices(2):
        x = torch.randn(3, 2, 8, device="cuda:1")
        packed = nn.utils.rnn.pack_sequence([x[:, 0], x[:2, 1]])
        padded, lengths = nn.utils.rnn.pad_packed_sequence(nn.GRU(8, 3).to(1)(packed)[0])
        assert (str(padded.device), str(lengths.device)) == ("cuda:1", "cpu")
        assert nn.LSTM(8, 3).to(1)(x)[0].get_device() == 1
        assert nn.MultiheadAttention(8, 2).to(1)(x, x, x)[0].get_device() == 1
        assert nn.TransformerEncoderLayer(8, 2).to(1)(x).get_device() == 1


def test_scaler_and_loader() -> None:
    """A gradient scaler works on its numbers, and a loader's batches move."""
    with ddpcheck.simulated_devices(1):
        layer = nn.Linear(2, 1).to("cuda")
        optimizer, scaler = torch.optim.SGD(layer.parameters(), 0.1), torch.amp.GradScaler("cuda", init_scale=8.0)
        before = layer.weight.detach().clone()
        for (batch,) in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, pin_memory=True):
            assert batch.is_pinned()
            scaler.scale(layer(batch.to("cuda", non_blocking=True)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(layer.weight, before - 0.1 * 4)


def test_data_parallel_equals_one_process() -> None:
    """Outputs gather on the first device, and the gradient is that of one process on the whole batch."""
    x = torch.randn(6, 4)
    plain = nn.Linear(4, 3)
    replicated = copy.deepcopy(plain)
    plain(x).pow(2).sum().backward()
    with ddpcheck.simulated_devices(2):
        outputs = nn.DataParallel(replicated.to("cuda:0"))(x)
        assert str(outputs.device) == "cuda:0"
        outputs.pow(2).sum().backward()
    for one, other in zip(plain.parameters(), replicated.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_random_streams_are_the_cpus() -> None:
    """One generator for all: seeding a device seeds it, and its state comes back."""
    with ddpcheck.simulated_devices(2):
        torch.cuda.manual_seed(5)
        first = torch.rand(3, device="cuda:1")
        torch.manual_seed(5)
        assert torch.equal(first.cpu(), torch.rand(3))
        states = torch.cuda.get_rng_state_all()
        first = torch.rand(3, device="cuda:0")
        torch.cuda.set_rng_state_all(states)
        assert torch.equal(first, torch.rand(3, device="cuda:0"))
        assert len(states) == 2


# --- what is refused, in whose words

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
        assert _message_of(lambda: torch.ones(1, 1, device="cuda") @ torch.ones(1, 1)) == (new if recent else old)


NOT_SIMULATED = {
    "stream": "torch.cuda.Stream()",
    "current stream": "torch.cuda.current_stream()",
    "event": "torch.cuda.Event(enable_timing=True)",
    "graph": "torch.cuda.CUDAGraph()",
    "memory": "torch.cuda.memory_allocated()",
    "memory left": "torch.cuda.mem_get_info()",
    "properties": "torch.cuda.get_device_properties(0)",
    "autocast": "torch.autocast('cuda')",
    "old autocast": "torch.autocast(device_type='cuda', dtype=torch.bfloat16)",
    "generator": "torch.Generator(device='cuda')",
    "dlpack": "torch.zeros(1, device='cuda').__dlpack__()",
    "array interface": "torch.zeros(1, device='cuda').__cuda_array_interface__",
}


@pytest.mark.parametrize("name", NOT_SIMULATED)
def test_not_simulated(name: str) -> None:
    """One sentence names what was used; nothing else happens in silence."""
    with ddpcheck.simulated_devices(1), pytest.raises(ddpcheck.NotSimulated, match=r"does not simulate this\. .*GPU"):
        eval(NOT_SIMULATED[name], {"torch": torch})


def test_classes_stay_classes() -> None:
    """What is not simulated can still be asked for by type, as loaders do with generators."""
    with ddpcheck.simulated_devices(1):
        assert not isinstance(3, torch.cuda.Stream)
        assert isinstance(torch.default_generator, torch.Generator)
        assert torch.Generator().manual_seed(3).initial_seed() == 3
        with torch.autocast("cpu"), torch.autocast("cuda", enabled=False):
            assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.bfloat16
