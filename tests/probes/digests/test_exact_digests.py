"""Digests of tensors: the same for the same elements, however they lie in memory, and another for any other bit.

Both kinds: as computed for tensors on the CPU, and as a GPU computes them, here
on CPU tensors. The operations of the latter are the same on every device, and
only integers are computed with.
"""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddpcheck.probes.digests import gpu_digests
from ddpcheck.probes.digests.exact_digests import digest, digest_of_parts, tensor_bytes

fast = settings(deadline=None, max_examples=60)

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex128, torch.complex64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def as_on_gpu(tensor):
    return gpu_digests.digests([tensor])[0]


both = pytest.mark.parametrize("one", [digest, as_on_gpu], ids=["CPU", "GPU"])


def of_bytes(data, dtype=torch.uint8):
    """A tensor of its own over these bytes."""
    return torch.tensor(list(data), dtype=torch.uint8).view(dtype)


# --- equal bytes, equal digests, and no other


@both
@fast
@given(a=st.binary(max_size=80), b=st.binary(max_size=80))
def test_digests_are_equal_exactly_where_bytes_are(one, a, b):
    """Any two byte strings, empty ones and ones that differ in their length alone among them."""
    assert (one(of_bytes(a)) == one(of_bytes(b))) == (a == b)


@both
@fast
@given(data=st.binary(min_size=1, max_size=80), place=st.integers(0, 79), bit=st.integers(0, 7))
def test_one_bit_makes_another_digest(one, data, place, bit):
    """A flipped bit anywhere changes both halves, so that either of them tells."""
    other = bytearray(data)
    other[place % len(data)] ^= 1 << bit
    mine, its = one(of_bytes(data)), one(of_bytes(other))
    half = len(mine) // 2
    assert mine[:half] != its[:half]
    assert mine[half:] != its[half:]


@both
@fast
@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=12), data=st.data())
def test_the_order_counts(one, numbers, data):
    """A permutation of the words is another tensor."""
    permuted = data.draw(st.permutations(numbers))
    assume(permuted != numbers)
    assert one(torch.tensor(numbers)) != one(torch.tensor(permuted))


@both
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_is_read_by_its_bytes(one, dtype):
    """A tensor of any type has the digest of its bytes."""
    data = bytes(range(48))
    if dtype is torch.bool:
        data = bytes(n % 2 for n in range(48))
    assert one(of_bytes(data, dtype)) == one(of_bytes(data))


@both
@fast
@given(payload=st.integers(1, 2**51 - 1), other=st.integers(1, 2**51 - 1), sign=st.booleans())
def test_the_payload_of_a_nan_counts(one, payload, other, sign):
    """Two NaN are equal exactly where all of their bits are."""
    bits = [(int(sign) << 63) | (0x7FF8 << 48) | p for p in (payload, other)]
    tensors = [of_bytes(struct.pack("<Q", b), torch.float64) for b in bits]
    assert all(math.isnan(float(t)) for t in tensors)
    assert (one(tensors[0]) == one(tensors[1])) == (payload == other)


@both
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating_point or d.is_complex], ids=str)
def test_the_sign_of_zero_counts(one, dtype):
    """0.0 and -0.0 are other bits."""
    if dtype is torch.complex64 or dtype is torch.complex128:
        part = torch.float32 if dtype is torch.complex64 else torch.float64
        negative = torch.complex(torch.tensor([-0.0], dtype=part), torch.zeros(1, dtype=part))
    else:
        negative = torch.tensor([-0.0]).to(dtype)
    assert one(torch.zeros(1, dtype=dtype)) != one(negative)


@both
def test_lengths_count(one):
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
    "channels last": SAME.reshape(1, 3, 2, 2).contiguous(memory_format=torch.channels_last),
}


@both
@pytest.mark.parametrize("tensor", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_does_not_count(one, tensor):
    """A digest is of the elements in their order, however they lie in memory."""
    assert one(tensor) == one(SAME)


@both
def test_expanded_elements_are_counted_each(one):
    """A tensor that holds one number and shows it often has the digest of its elements."""
    assert one(torch.tensor([2.0]).expand(3)) == one(torch.full((3,), 2.0))


@both
def test_conjugate_views_are_resolved(one):
    """A conjugated view has the digest of the conjugate, not of what lies beneath."""
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert one(tensor.conj()) == one(torch.tensor([1 - 2j, 3 + 4j]))
    assert one(tensor.conj()) != one(tensor)
    assert one(tensor.conj().imag) == one(torch.tensor([-2.0, 4.0]))


@both
def test_a_single_number_has_a_digest(one):
    """A tensor without dimensions has the digest of its one element."""
    assert one(torch.tensor(1.5)) == one(torch.tensor([1.5]))


@both
def test_a_digest_needs_no_gradient_and_leaves_none(one):
    """Looking at a tensor changes nothing about it, draws nothing, and makes no graph."""
    tensor = torch.ones(100, requires_grad=True)
    before = torch.get_rng_state()
    one(tensor)
    assert torch.equal(before, torch.get_rng_state())
    assert tensor.grad is None
    assert tensor.requires_grad
    assert tensor._version == 0


# --- the bytes of a tensor


def test_empty_tensors_have_no_bytes():
    """There is no memory to look at."""
    assert bytes(tensor_bytes(torch.zeros(0))) == b""


def test_the_bytes_of_a_contiguous_tensor_are_not_copied():
    """What lies contiguous on the CPU is read where it lies."""
    tensor = torch.zeros(4, dtype=torch.int32)
    view = tensor_bytes(tensor)
    tensor[2] = 1
    assert bytes(view) == bytes(8) + b"\1\0\0\0" + bytes(4)


def test_the_bytes_outlive_the_tensor():
    """The bytes keep their memory alive, also where it was a copy that nobody else holds."""
    view = tensor_bytes(torch.arange(1000.0).reshape(10, 100).t())
    others = [torch.full((1000,), -1.0) for _ in range(20)]
    assert bytes(view[4:8]) == bytes(tensor_bytes(torch.tensor(100.0)))
    assert len(others) == 20


def test_the_boundaries_between_parts_count():
    """A sequence of byte strings has another digest than the same bytes cut otherwise."""
    parts = [b"ab", b"c"]
    assert digest_of_parts(parts) == digest_of_parts(list(parts))
    others = [[b"a", b"bc"], [b"abc"], [b"ab", b"c", b""], [b"c", b"ab"], []]
    assert len({digest_of_parts(one) for one in [parts, *others]}) == 6
