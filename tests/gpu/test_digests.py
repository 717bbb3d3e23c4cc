"""Digests on a GPU: the same numbers as the same operations give on the CPU, with no element copied to the host.

Needs one GPU. On simulated devices there is nothing to compute on, so only the agreement is seen.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ddpcheck
from ddpcheck.probes.digests import exact_digests, fast_digests, gpu_digests
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
    return gpu_digests.digests(tensors())


@pytest.mark.gpu
def test_a_gpu_computes_the_same_digests() -> None:
    """Each tensor alone, and all of them at once."""
    on_gpu = [t.to("cuda") for t in tensors()]
    assert gpu_digests.digests(on_gpu) == expected()
    assert [exact_digests.digest(t) for t in on_gpu] == [one.hex() for one in expected()]
    assert fast_digests.digests(on_gpu) == b"".join(one[:8] for one in expected())


class Fetched(TorchDispatchMode):
    """Counts the elements that operators bring from a GPU to the host, whichever function asks for them."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(one, torch.Tensor) and one.is_cuda for one in tree_leaves((args, kwargs))):
            for one in tree_leaves(result):
                if isinstance(one, torch.Tensor):
                    self.elements += one.numel() if one.is_cpu else 0
                elif isinstance(one, (bool, int, float, complex)):
                    self.elements += 1
        return result


@pytest.mark.gpu(real="copies from one memory to another")
def test_no_element_is_copied() -> None:
    """Only a few numbers travel to the host; the counter sees a copy where there is one.

    Two for each of two portions, and two for a window; and where they have not arrived yet, the same once more.
    """
    large = torch.randn(8_000_000, device="cuda")
    with Fetched() as looking:
        exact_digests.digest(large)
        fast_digests.digests([large], 3)
    assert 0 < looking.elements <= 12
    with Fetched() as copying:
        large.cpu()
        large[:3].tolist()
        large[0].item()
    assert copying.elements == 8_000_004


@pytest.mark.gpu(real="the memory of a GPU")
def test_little_memory_is_needed() -> None:
    """A tensor of a gigabyte is digested in portions."""
    large = torch.zeros(256 * 1024 * 1024, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    first = exact_digests.digest(large)
    assert torch.cuda.max_memory_allocated() - before < 16 * gpu_digests.PORTION
    large[-1] = 1.0
    assert exact_digests.digest(large) != first


@pytest.mark.gpu(real="streams")
def test_a_digest_waits_for_what_the_current_stream_has_queued() -> None:
    """On a stream of the user's, behind a long computation on it, the result is that of its end."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(4096, 4096, device="cuda")
        for _ in range(50):
            x = (x @ x).clamp(max=2.0)
        x.fill_(3.0)
        found = exact_digests.digest(x)
        assert torch.cuda.current_stream() == stream
    assert found == gpu_digests.digests([torch.full((4096, 4096), 3.0)])[0].hex()


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
