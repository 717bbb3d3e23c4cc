"""Digests on a GPU: the same numbers as the same operations give on the CPU, with no element copied to the host.

Needs one GPU. On simulated devices there is nothing to compute on, so only the agreement is seen.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import ddpcheck
from ddpcheck.observe import device_digest, digest, quick
from tests.gpu.nets import net


def tensors() -> list[torch.Tensor]:
    """Many kinds of tensors, on the CPU."""
    torch.manual_seed(7)
    return [
        torch.randn(3, 5),
        torch.randn(1000, 1001).t(),
        torch.randn(4, 4).to(torch.bfloat16),
        torch.randn(7).to(torch.float16)[1:],
        torch.randint(0, 255, (13,), dtype=torch.uint8)[3:],
        torch.tensor([True, False, True]),
        torch.randn(5, dtype=torch.complex64).conj(),
        torch.tensor([0.0, -0.0, math.nan, math.inf]),
        torch.zeros(0),
        torch.tensor(3, dtype=torch.int64),
        torch.arange(5_000_000, dtype=torch.int32),
    ]


def expected() -> list[bytes]:
    return device_digest.digests(tensors())


@pytest.mark.gpu
def test_a_gpu_computes_the_same_digests() -> None:
    """Each tensor alone, and all of them at once."""
    on_gpu = [t.to("cuda") for t in tensors()]
    assert device_digest.digests(on_gpu) == expected()
    assert [digest.digest(t) for t in on_gpu] == [one.hex() for one in expected()]
    assert quick.digests(on_gpu) == b"".join(one[:8] for one in expected())


@pytest.mark.gpu(real="copies from one memory to another")
def test_no_element_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory on the host is not written: what travels are two numbers for each portion."""
    large = torch.randn(8_000_000, device="cuda")

    def copied(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        raise AssertionError(f"{tuple(tensor.shape)} was copied to the host")

    monkeypatch.setattr(torch.Tensor, "cpu", copied)
    monkeypatch.setattr(torch.Tensor, "numpy", copied)
    with torch.autograd.profiler.profile(use_device="cuda") as profile:
        digest.digest(large)
    copies = [e for e in profile.function_events if "Memcpy DtoH" in e.name]
    assert len(copies) <= 4


@pytest.mark.gpu(real="the memory of a GPU")
def test_little_memory_is_needed() -> None:
    """A tensor of a gigabyte is digested in portions."""
    large = torch.zeros(256 * 1024 * 1024, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    first = digest.digest(large)
    assert torch.cuda.max_memory_allocated() - before < 16 * device_digest.PORTION
    large[-1] = 1.0
    assert digest.digest(large) != first


@pytest.mark.gpu(real="streams")
def test_a_digest_waits_for_what_the_current_stream_has_queued() -> None:
    """On a stream of the user's, behind a long computation on it, the result is that of its end."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(4096, 4096, device="cuda")
        for _ in range(50):
            x = (x @ x).clamp(max=2.0)
        x.fill_(3.0)
        found = digest.digest(x)
        assert torch.cuda.current_stream() == stream
    assert found == device_digest.digests([torch.full((4096, 4096), 3.0)])[0].hex()


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
def test_gradients_are_digested_after_their_reduction(ddp: Any) -> None:
    """DDP reduces on a stream of its own; right after backward, many times over, all ranks digest the same."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)]), bucket_cap_mb=0.25)
    for _ in range(10):
        model.zero_grad()
        model(torch.randn(16, 256, device=ddp.device)).square().mean().backward()
        ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
def test_a_model_that_is_on_the_cpu_on_one_rank(ddp: Any) -> None:
    """Digests of other devices are other numbers; the elements are equal, and so the replicas are."""
    torch.manual_seed(0)
    model = net()
    ddpcheck.assert_initial_broadcast(model if ddp.rank else model.to(ddp.device))
