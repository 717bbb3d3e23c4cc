"""Digests of tensors: the same for the same elements, however they lie in memory, and another for any other bit."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.observe.digest import digest, digest_of_parts, tensor_bytes

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def of_dtype(dtype, *numbers):
    return torch.tensor(numbers).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_elements_have_equal_digests(dtype):
    """Tensors made separately with the same elements have the same digest."""
    assert digest(of_dtype(dtype, 0, 1, 1)) == digest(of_dtype(dtype, 0, 1, 1))
    assert digest(of_dtype(dtype, 0, 1, 1)) != digest(of_dtype(dtype, 0, 1, 0))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.bool], ids=str)
@pytest.mark.parametrize("bit", [0, 7])
def test_one_bit_makes_another_digest(dtype, bit):
    """A single flipped bit anywhere changes the digest."""
    tensor = of_dtype(dtype, *[1] * 40)
    before = digest(tensor)
    for byte in (0, -1):
        other = tensor.clone()
        other.view(torch.uint8)[byte] ^= 1 << bit
        assert digest(other) != before


def test_the_order_of_elements_counts():
    """The same elements in another order are another tensor."""
    assert digest(torch.tensor([1.0, 2.0])) != digest(torch.tensor([2.0, 1.0]))


def test_negative_zero_has_other_bits():
    """Digests are of bits: 0.0 and -0.0 differ, and elements are looked at afterwards."""
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))


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


@pytest.mark.parametrize("tensor", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_does_not_count(tensor):
    """A digest is of the elements in their order, however they lie in memory."""
    assert digest(tensor) == digest(SAME)


def test_expanded_elements_are_counted_each():
    """A tensor that holds one number and shows it often has the digest of its elements."""
    assert digest(torch.tensor([2.0]).expand(3)) == digest(torch.full((3,), 2.0))


def test_conjugate_views_are_resolved():
    """A conjugated view has the digest of the conjugate, not of what lies beneath."""
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert digest(tensor.conj()) == digest(torch.tensor([1 - 2j, 3 + 4j]))
    assert digest(tensor.conj().imag) == digest(torch.tensor([-2.0, 4.0]))


def test_empty_tensors_have_a_digest():
    """Tensors without elements are equal, whatever their shape; a shape is no part of a digest."""
    assert digest(torch.zeros(0)) == digest(torch.zeros(3, 0))
    assert digest(torch.zeros(0)) != digest(torch.zeros(1))
    assert bytes(tensor_bytes(torch.zeros(0))) == b""


def test_a_single_number_has_a_digest():
    """A tensor without dimensions has the digest of its one element."""
    assert digest(torch.tensor(1.5)) == digest(torch.tensor([1.5]))


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


def test_a_digest_needs_no_gradient_and_leaves_none():
    """Looking at a tensor changes nothing about it."""
    tensor = torch.ones(2, requires_grad=True)
    digest(tensor)
    assert tensor.grad is None
    assert tensor.requires_grad
    assert tensor._version == 0


def test_the_boundaries_between_parts_count():
    """A sequence of byte strings has another digest than the same bytes cut otherwise."""
    parts = [b"ab", b"c"]
    assert digest_of_parts(parts) == digest_of_parts(list(parts))
    others = [[b"a", b"bc"], [b"abc"], [b"ab", b"c", b""], [b"c", b"ab"], []]
    assert len({digest_of_parts(one) for one in [parts, *others]}) == 6
