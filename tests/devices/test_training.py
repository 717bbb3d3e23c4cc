"""Training on simulated devices equals the CPU's, and gradients are where their tensors are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ddpcheck


def _network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 6)
    )


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.few(4)
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


def _attention() -> tuple[nn.TransformerEncoder, nn.MultiheadAttention]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval(), nn.MultiheadAttention(8, 2, batch_first=True).eval()


def _attended(modules: tuple[nn.TransformerEncoder, nn.MultiheadAttention], device: str) -> list[torch.Tensor]:
    encoder, attention = (module.to(device) for module in modules)
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1)).to(device)
    padding = (torch.arange(5) >= torch.tensor([[5], [3], [4]])).to(device)
    found = [encoder(x), encoder(x, src_key_padding_mask=padding), attention(x, x, x, need_weights=False)[0]]
    assert {str(each.device) for each in found} == {device}
    return [each.cpu() for each in found]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_attention_without_gradients_equals_the_cpus() -> None:
    """torch's fused path, which computes other last bits, is taken on simulated devices as on the CPU."""
    with torch.no_grad():
        plain = _attended(_attention(), "cpu")
        with ddpcheck.simulated_devices(2):
            encoder, attention = _attention()
            simulated = _attended((encoder, attention), "cuda:1")
            assert all(torch.equal(*pair) for pair in zip(plain, simulated, strict=True))
            encoder.layers[1].to("cuda:0")
            with pytest.raises(RuntimeError, match="on the same device"):
                encoder(torch.ones(1, 5, 8, device="cuda:1"))


def test_whose_calls_are_overridden() -> None:
    """The simulation is not told as an override of torch's functions; what a program brings along is."""
    with ddpcheck.simulated_devices(1):
        x = torch.ones(1, device="cuda")
        assert not torch.overrides.has_torch_function([x])
        with torch.device("cpu"):
            assert torch.overrides.has_torch_function([x])
        assert torch.overrides.has_torch_function([x.as_subclass(type("Kind", (torch.Tensor,), {}))])


@torch.inference_mode()  # type: ignore[no-untyped-call]
def test_inference_mode() -> None:
    """Only here torch shows operators that are made of others: these have the checks and the words."""
    with ddpcheck.simulated_devices(2):
        layer, x = nn.Linear(2, 2).to("cuda:1"), torch.ones(1, 2, device="cuda:1")
        assert str(layer(x).device) == "cuda:1"
        assert torch.multiply(x, torch.tensor(2.0)).tolist() == [[2.0, 2.0]]
        with pytest.raises(RuntimeError, match="wrapper_CUDA_addmm"):
            layer(x.cpu())


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
