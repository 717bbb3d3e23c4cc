"""Digests as a GPU computes them, here on CPU tensors: many at once, in portions and windows, and who uses them.

What holds of one tensor's digest is in test_observe_digest.py, for both kinds.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.evidence import ABSENT
from ddpcheck.probes.digests import exact_digests, fast_digests, gpu_digests
from ddpcheck.probes.digests.gpu_digests import digests


def one(tensor):
    return digests([tensor])[0]


# --- many tensors at once


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 50), max_size=12),
    portion=st.sampled_from([8, 16, 64, 1 << 20]),
    seed=st.integers(0, 1000),
)
def test_company_and_portions_do_not_count(sizes, portion, seed):
    """A tensor has one digest, alone or among others, worked on at once or in portions."""
    torch.manual_seed(seed)
    tensors = [torch.randint(0, 256, (n,), dtype=torch.uint8) for n in sizes]
    alone = [one(t) for t in tensors]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_digests, "PORTION", portion)
        assert digests(tensors) == alone


@pytest.mark.parametrize("offset", range(1, 9))
def test_any_place_in_memory_will_do(offset):
    """Bytes that begin at no multiple of eight are digested like those that do."""
    data = torch.arange(64, dtype=torch.uint8)
    assert one(data[offset:]) == one(data[offset:].clone())


def test_it_works_where_only_deterministic_operations_may_run():
    """A program that has forbidden all other operations can be watched, too."""
    torch._C._set_deterministic_algorithms(True, warn_only=False)  # the public name imports a compiler
    try:
        assert len(digests([torch.ones(5), torch.ones(3)])) == 2
    finally:
        torch._C._set_deterministic_algorithms(False, warn_only=False)


def test_a_window_is_at_the_same_place_for_the_same_turn():
    """Of a large tensor, each turn looks at the next window, and all turns together at every byte."""
    tensor = torch.arange(100, dtype=torch.uint8)
    seen = []
    for place in range(0, 100, 7):
        changed = tensor.clone()
        changed[place] += 1
        turns = [turn for turn in range(13) if digests([changed], (8, turn)) != digests([tensor], (8, turn))]
        assert turns
        seen.append(turns[0])
    assert seen == sorted(seen)
    assert digests([tensor[:8]], (8, 3)) == digests([tensor[:8]])


# --- who uses it


class OnGpu(torch.Tensor):
    """A CPU tensor that says that it is on a GPU."""

    device = torch.device("cuda:0")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

    def cpu(self):
        raise AssertionError("a tensor on a GPU was copied to the host")


def on_gpu(tensor):
    return tensor.as_subclass(OnGpu)


@pytest.fixture
def _plain_inside(monkeypatch):
    """The operations themselves see plain tensors; only who calls them sees a GPU."""
    original = gpu_digests._bytes
    monkeypatch.setattr(gpu_digests, "_bytes", lambda t: original(t.as_subclass(torch.Tensor)))


@pytest.mark.usefixtures("_plain_inside")
def test_tensors_on_gpus_are_digested_there():
    """Both kinds of digests take this way for CUDA tensors, and copy none of their elements."""
    tensor = torch.arange(10.0)
    assert exact_digests.digest(on_gpu(tensor)) == one(tensor).hex()
    assert exact_digests.digest_each([tensor, on_gpu(tensor)]) == [exact_digests.digest(tensor), one(tensor).hex()]
    assert exact_digests.digest(on_gpu(tensor)) != exact_digests.digest(tensor)
    mixed = [None, on_gpu(tensor), tensor, on_gpu(tensor + 1)]
    found = fast_digests.digests(mixed)
    assert [found[at : at + 8] for at in range(0, 32, 8)] == [
        ABSENT, one(tensor)[:8], fast_digests.digests([tensor]), one(tensor + 1)[:8],
    ]  # fmt: skip


@pytest.mark.usefixtures("_plain_inside")
def test_windows_of_tensors_on_gpus():
    """A turn looks at as much of a large tensor on a GPU as of one on the CPU."""
    large = torch.zeros(fast_digests.WINDOW, dtype=torch.float32)
    changed = large.clone()
    changed[fast_digests.WINDOW // 4] = 1.0  # the first element of the second window
    same = [
        fast_digests.digests([on_gpu(large)], turn) == fast_digests.digests([on_gpu(changed)], turn)
        for turn in range(4)
    ]
    assert same == [True, False, True, True]
