"""Digests as a GPU computes them, here on CPU tensors: many at once, in portions and windows, and who uses them.

What holds of one tensor's digest is in test_observe_digest.py, for both kinds.
"""

from __future__ import annotations

import contextlib
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ddpcheck
from ddpcheck.evidence import ABSENT, UNSEEN
from ddpcheck.probes.digests import exact_digests, fast_digests, gpu_digests
from ddpcheck.probes.digests.gpu_digests import PORTION, digests
from tests.probes.digests.counted_operations import Counting


def one(tensor):
    return digests([tensor])[0]


# --- many tensors at once


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 50), max_size=12),
    portion=st.sampled_from([8, 16, 64, 1 << 20]),
    large=st.sampled_from([0, 24, 1 << 20]),
    seed=st.integers(0, 1000),
)
def test_company_and_portions_do_not_count(sizes, portion, large, seed):
    """A tensor has one digest, alone or among others, worked on at once or in portions."""
    torch.manual_seed(seed)
    tensors = [torch.randint(0, 256, (n,), dtype=torch.uint8) for n in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_digests, "COLUMNS", 2)
        alone = [one(t) for t in tensors]
        patch.setattr(gpu_digests._Room, "portion", portion)
        patch.setattr(gpu_digests, "LARGE", large)
        assert digests(tensors) == alone


ALL = (1 << 64) - 1


def mixed(value):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & ALL
    return value ^ (value >> 31)


def by_hand(data):
    """The digest of bytes in Python's own numbers."""
    golden, lanes = 0x9E3779B97F4A7C15, [0, 0]
    keys = [mixed((n + 1) * golden & ALL) | 1 for n in range(1024)]
    for row in range(-(-len(data) // 4096)):
        part = data[row * 4096 : (row + 1) * 4096]
        words = [
            int.from_bytes(part[at : at + 4].ljust(4, b"\0"), "little", signed=True) for at in range(0, len(part), 4)
        ]
        total = sum(key * word for key, word in zip(keys, words, strict=False)) & ALL
        first = mixed(mixed((row + 1) * golden & ALL) ^ total)
        lanes[0] += first
        lanes[1] += mixed(first * 0xD6E8FEB86659FD93 & ALL)
    return b"".join(mixed((lane + (len(data) + 1) * golden) & ALL).to_bytes(8, "little") for lane in lanes)


@pytest.mark.parametrize("large", [0, 1 << 30])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 4095, 4096, 4097, 3 * 4096, 100_003])
def test_it_is_what_it_is_written_down_as(size, large, monkeypatch):
    """Bit for bit, whether a tensor has kernels of its own or is laid beside others."""
    monkeypatch.setattr(gpu_digests, "LARGE", large)
    monkeypatch.setattr(gpu_digests._Room, "portion", 2 * 4096)
    data = torch.randint(0, 256, (size,), dtype=torch.uint8)
    assert one(data) == by_hand(bytes(data.tolist()))


@pytest.mark.parametrize("change", [
    lambda t: -t,
    lambda t: t.flip(0),
    lambda t: t.roll(1),
    lambda t: t.roll(1024),
    lambda t: t.view(-1, 2).flip(1).reshape(-1),
    lambda t: t.view(4, -1).t().reshape(-1),
    lambda t: torch.cat([t[1024:2048], t[:1024], t[2048:]]),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_what_is_the_same_elements_otherwise_is_told_apart(change, dtype):
    """Signs and order: what a plain sum of words would not see."""
    tensor = (torch.rand(4096, dtype=torch.float64) + 1).mul(1000).to(dtype)
    assert one(change(tensor)) != one(tensor)


def test_two_signs_that_change_are_seen():
    """Modulo 2**64, an even number of highest bits would add up to nothing."""
    tensor = torch.rand(4096, dtype=torch.float64) + 1
    for places in ([0, 1], [0, 512], [3, 5, 7, 9]):
        changed = tensor.clone()
        changed[places] *= -1
        assert one(changed) != one(tensor)


def test_a_tensor_without_elements_is_none_that_is_absent():
    """As a gradient it would pass for one that is None."""
    (found,) = digests([torch.zeros(0, 3)])
    assert found is not None
    assert found[:8] not in (ABSENT, UNSEEN)
    assert found[8:] not in (ABSENT, UNSEEN)


class Bytes(TorchDispatchMode):
    """The most bytes that new tensors have held at one time."""

    def __init__(self):
        super().__init__()
        self.held, self.most = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        known = {
            one.untyped_storage().data_ptr() for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)
        }
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in known:
                size = one.untyped_storage().nbytes()
                self.held += size
                self.most = max(self.most, self.held)
                weakref.finalize(one.untyped_storage(), self._gone, size)
        return result

    def _gone(self, size):
        self.held -= size


def test_copies_are_made_one_at_a_time():
    """Of tensors that do not lie in a row, such as those whose channels come last."""
    several = [torch.zeros(64, 256, 8, 8).to(memory_format=torch.channels_last) for _ in range(8)]
    with Bytes() as counted:
        copies = [one.contiguous() for one in several]
    assert counted.most == sum(copy.nbytes for copy in copies)  # it counts what is held
    with Bytes() as counted:
        digests(several)
    assert counted.most < 5 * several[0].nbytes
    with Bytes() as counted:
        digests(several, (16 * 1024, 3))
    assert counted.most < several[0].nbytes // 2  # a window copies no more than the rows that it touches


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


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_no_word_is_read_across_words(offset, monkeypatch):
    """Memory that another library has lent may begin anywhere: a device that reads a word there fails for good."""
    monkeypatch.setattr(gpu_digests, "LARGE", 4096)
    addresses = []
    add_rows = gpu_digests._Sums._add_rows
    monkeypatch.setattr(
        gpu_digests._Sums, "_add_rows", lambda sums, words: (addresses.append(words.data_ptr()), add_rows(sums, words))
    )
    lent = bytearray(range(256)) * 33
    data = torch.frombuffer(lent, dtype=torch.uint8, offset=offset, count=8192)
    assert one(data) == one(data.clone())
    assert [address % 4 for address in addresses] == [0] * len(addresses)


def traced(look):
    torch.jit.trace(lambda x: (look(), x + 1)[1], torch.ones(3), check_trace=False)


def with_fake_tensors(look):
    with FakeTensorMode():
        look()


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("within", [
    traced,
    with_fake_tensors,
    lambda look: make_fx(lambda x: (look(), x + 1)[1])(torch.ones(3)),
    lambda look: torch.func.grad(lambda x: (look(), x.sum())[1])(torch.ones(3)),
    lambda look: torch.func.jvp(lambda x: (look(), x + 1)[1], (torch.ones(3),), (torch.ones(3),)),
    lambda look: torch.func.vmap(lambda x: (look(), x + 1)[1])(torch.ones(3, 2)),
    lambda look: torch.func.functionalize(lambda x: (look(), x + 1)[1])(torch.ones(3)),
])  # fmt: skip
def test_nothing_is_computed_where_operations_are_traced(within):
    """It would be a part of what is made there, or of no real numbers; afterwards all is as before."""
    tensor = torch.arange(3000.0)
    expected = digests([tensor])
    gpu_digests._column_keys.cache_clear()
    found = []
    within(lambda: found.append(digests([tensor])))
    assert found == [[None]]
    assert digests([tensor]) == expected


def test_simulated_devices_are_no_trace():
    """Their tensors are real ones."""
    expected = digests([torch.arange(3000.0)])
    with ddpcheck.simulated_devices(2):
        assert digests([torch.arange(3000.0, device="cuda:1")]) == expected


def test_the_programs_defaults_are_its_own():
    """What is made for a look is made where the look is, and of whole numbers."""
    tensor = torch.arange(3000.0)
    expected = digests([tensor, tensor[:5]])
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    try:
        assert digests([tensor, tensor[:5]]) == expected
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


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


@pytest.mark.parametrize(("number", "elements"), [(1, 9 << 20), (3, 1 << 20), (300, 20_000), (3, 5)])
def test_what_a_look_costs_is_counted(number, elements):
    """Kernels one by one, and bytes but for what does not matter: five for each of a large tensor's."""
    several = [torch.zeros(elements) for _ in range(number)]
    with Counting() as counting:
        (sums,) = gpu_digests.queued(several)._sums
    assert sums.kernels == counting.kernels
    assert sums.moved == pytest.approx(counting.moved, rel=0.02, abs=50_000)
    assert counting.waits == 0
    if number == 1:
        assert counting.moved < 6 * several[0].nbytes


class Short(TorchDispatchMode):
    """A device that has no room for a tensor of more than so many bytes."""

    def __init__(self, most):
        super().__init__()
        self.most, self.refused = most, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if "mul.Tensor" in str(func) and result.nbytes > self.most:
            self.refused += 1
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return result


def test_where_memory_is_short_less_is_asked_for(monkeypatch):
    """Each refusal costs the program what torch had set aside for it: there are few, and then no looks any more."""
    large = torch.zeros(PORTION // 2, dtype=torch.float32)
    expected = digests([large])
    for most, refused in ((PORTION // 8, 2), (8, 3)):
        monkeypatch.setattr(gpu_digests._Room, "portion", PORTION)
        found = []
        with Short(most) as short:
            for _ in range(6):
                with contextlib.suppress(torch.cuda.OutOfMemoryError):
                    found.append(digests([large]))
        assert short.refused == refused
        assert found == ([expected] * 4 if most > 8 else [[None]] * 3)


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
    monkeypatch.setattr(gpu_digests, "_bytes", lambda t, window: original(t.as_subclass(torch.Tensor), window))


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
