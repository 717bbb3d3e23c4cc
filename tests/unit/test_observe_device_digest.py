"""Digests as a GPU computes them, here on CPU tensors: equal exactly where the bytes are, for every type and layout.

The same operations run on every device, and only integers are computed with.
"""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddpcheck.evidence import ABSENT
from ddpcheck.observe import device_digest, digest, quick
from ddpcheck.observe.device_digest import digests

fast = settings(deadline=None, max_examples=60)

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex128, torch.complex64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def one(tensor):
    return digests([tensor])[0]


def of_bytes(data, dtype=torch.uint8):
    """A tensor of its own over these bytes."""
    return torch.tensor(list(data), dtype=torch.uint8).view(dtype)


# --- equal bytes, equal digests, and no other


@fast
@given(a=st.binary(max_size=80), b=st.binary(max_size=80))
def test_digests_are_equal_exactly_where_bytes_are(a, b):
    """Any two byte strings, empty ones and ones that differ in their length alone among them."""
    assert (one(of_bytes(a)) == one(of_bytes(b))) == (a == b)


@fast
@given(data=st.binary(min_size=1, max_size=80), place=st.integers(0, 79), bit=st.integers(0, 7))
def test_one_bit_makes_another_digest(data, place, bit):
    """A flipped bit anywhere changes both halves, so that either of them tells."""
    other = bytearray(data)
    other[place % len(data)] ^= 1 << bit
    mine, its = one(of_bytes(data)), one(of_bytes(other))
    assert mine[:8] != its[:8]
    assert mine[8:] != its[8:]


@fast
@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=12), data=st.data())
def test_the_order_counts(numbers, data):
    """A permutation of the words is another tensor."""
    permuted = data.draw(st.permutations(numbers))
    assume(permuted != numbers)
    assert one(torch.tensor(numbers)) != one(torch.tensor(permuted))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_is_read_by_its_bytes(dtype):
    """A tensor of any type has the digest of its bytes."""
    data = bytes(range(48))
    if dtype is torch.bool:
        data = bytes(n % 2 for n in range(48))
    assert one(of_bytes(data, dtype)) == one(of_bytes(data))


@fast
@given(payload=st.integers(1, 2**51 - 1), other=st.integers(1, 2**51 - 1), sign=st.booleans())
def test_the_payload_of_a_nan_counts(payload, other, sign):
    """Two NaN are equal exactly where all of their bits are."""
    bits = [(int(sign) << 63) | (0x7FF8 << 48) | p for p in (payload, other)]
    tensors = [of_bytes(struct.pack("<Q", b), torch.float64) for b in bits]
    assert all(math.isnan(float(t)) for t in tensors)
    assert (one(tensors[0]) == one(tensors[1])) == (payload == other)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating_point or d.is_complex], ids=str)
def test_the_sign_of_zero_counts(dtype):
    """0.0 and -0.0 are other bits."""
    if dtype is torch.complex64 or dtype is torch.complex128:
        part = torch.float32 if dtype is torch.complex64 else torch.float64
        negative = torch.complex(torch.tensor([-0.0], dtype=part), torch.zeros(1, dtype=part))
    else:
        negative = torch.tensor([-0.0]).to(dtype)
    assert one(torch.zeros(1, dtype=dtype)) != one(negative)


def test_lengths_count():
    """Zeros more or less are another tensor, also within one word; no elements are no elements in any shape."""
    found = [one(torch.zeros(n, dtype=torch.uint8)) for n in range(20)]
    assert len(set(found)) == 20
    assert one(torch.zeros(3, 0)) == one(torch.zeros(0, dtype=torch.int8))


SAME = torch.arange(12.0).reshape(3, 4)
LAYOUTS = {
    "transposed": SAME.t().contiguous().t(),
    "strided": torch.stack([SAME, -SAME], dim=-1)[..., 0],
    "offset": torch.cat([SAME[:1], SAME])[1:],
    "a parameter": torch.nn.Parameter(SAME.clone()),
    "in a graph": SAME.clone().requires_grad_() * 1,
    "sparse": SAME.to_sparse(),
    "negated lazily": torch._neg_view(-SAME),
}


@pytest.mark.parametrize("tensor", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_does_not_count(tensor):
    """The elements in their order are what is digested, however they lie in memory."""
    assert one(tensor) == one(SAME)


@pytest.mark.parametrize("offset", range(1, 9))
def test_any_place_in_memory_will_do(offset):
    """Bytes that begin at no multiple of eight are digested like those that do."""
    data = torch.arange(64, dtype=torch.uint8)
    assert one(data[offset:]) == one(data[offset:].clone())


def test_conjugates_are_resolved():
    """A conjugated view has the digest of what it shows."""
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert one(tensor.conj()) == one(torch.tensor([1 - 2j, 3 + 4j]))
    assert one(tensor.conj()) != one(tensor)


# --- many tensors at once


@fast
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
        patch.setattr(device_digest, "PORTION", portion)
        assert digests(tensors) == alone


def test_random_streams_and_gradients_are_left_alone():
    """Nothing is drawn, and no graph is made."""
    tensor = torch.ones(100, requires_grad=True)
    before = torch.get_rng_state()
    one(tensor)
    assert torch.equal(before, torch.get_rng_state())
    assert tensor.grad is None
    assert tensor._version == 0


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
    original = device_digest._bytes
    monkeypatch.setattr(device_digest, "_bytes", lambda t: original(t.as_subclass(torch.Tensor)))


@pytest.mark.usefixtures("_plain_inside")
def test_tensors_on_gpus_are_digested_there():
    """Both kinds of digests take this way for CUDA tensors, and copy none of their elements."""
    tensor = torch.arange(10.0)
    assert digest.digest(on_gpu(tensor)) == one(tensor).hex()
    assert digest.digest_each([tensor, on_gpu(tensor)]) == [digest.digest(tensor), one(tensor).hex()]
    assert digest.digest(on_gpu(tensor)) != digest.digest(tensor)
    mixed = [None, on_gpu(tensor), tensor, on_gpu(tensor + 1)]
    found = quick.digests(mixed)
    assert [found[at : at + 8] for at in range(0, 32, 8)] == [
        ABSENT, one(tensor)[:8], quick.digests([tensor]), one(tensor + 1)[:8],
    ]  # fmt: skip


@pytest.mark.usefixtures("_plain_inside")
def test_windows_of_tensors_on_gpus():
    """A turn looks at as much of a large tensor on a GPU as of one on the CPU."""
    large = torch.zeros(quick.WINDOW, dtype=torch.float32)
    changed = large.clone()
    changed[quick.WINDOW // 4] = 1.0  # the first element of the second window
    same = [quick.digests([on_gpu(large)], turn) == quick.digests([on_gpu(changed)], turn) for turn in range(4)]
    assert same == [True, False, True, True]
