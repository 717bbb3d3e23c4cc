"""Sketches made of parts, on the rank that has them: they add up to that of the whole, and cost next to no memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import sketches as facts
from ddpcheck.probes.digests import sketches

SHAPES = [
    (),
    (1,),
    (5,),
    (1024,),
    (3000,),
    (7, 9),
    (64, 3, 5, 5),
    (300, 2000),
    (2, 70_000),
    (70_000, 2),
    (0, 4),
    (5, 0),
]


def drawn(shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)


def of_whole(tensor):
    return sketches.of_box(tensor, tuple(tensor.shape), (0,) * tensor.dim())


def close(found, expected, size):
    return np.allclose(found.numpy(), expected, rtol=0, atol=1e-12 * size * max(1.0, math.sqrt(size)) + 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_tensor_has_the_sketch_that_judges_work_out(shape):
    tensor = drawn(shape)
    assert close(of_whole(tensor), facts.of(tensor.numpy()), tensor.numel())


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_of_any_dimension_add_up(shape):
    tensor = drawn(shape)
    for dim in range(len(shape)):
        for at in {0, shape[dim] // 3, shape[dim]}:
            offset = [0] * len(shape)
            first = sketches.of_box(tensor.narrow(dim, 0, at), shape, tuple(offset))
            offset[dim] = at
            second = sketches.of_box(tensor.narrow(dim, at, shape[dim] - at), shape, tuple(offset))
            assert close(first + second, facts.of(tensor.numpy()), tensor.numel()), (dim, at)


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple),
    draw=st.data(),
)
def test_boxes_in_several_dimensions_add_up(shape, draw):
    """As on a mesh of several dimensions: each cut once, at any place."""
    tensor = drawn(shape)
    cuts = [draw.draw(st.integers(0, size)) for size in shape]
    total = torch.zeros(NUMBERS, dtype=torch.float64)
    for corner in range(1 << len(shape)):
        bounds = [
            (cut, size) if corner >> d & 1 else (0, cut) for d, (cut, size) in enumerate(zip(cuts, shape, strict=True))
        ]
        box = tensor[tuple(slice(*one) for one in bounds)]
        total += sketches.of_box(box, shape, tuple(begin for begin, _ in bounds))
    assert close(total, facts.of(tensor.numpy()), tensor.numel())


@settings(deadline=None, max_examples=80)
@given(shape=st.sampled_from([(2500,), (7, 9), (30, 5, 4), (3, 2000)]), draw=st.data())
def test_runs_add_up(shape, draw):
    """As FSDP's flat parameters are dealt out: in the midst of rows, over several, within one."""
    tensor = drawn(shape)
    ends = sorted(draw.draw(st.lists(st.integers(0, tensor.numel()), max_size=4)))
    bounds = list(zip([0, *ends], [*ends, tensor.numel()], strict=True))
    total = sum(sketches.of_run(tensor.reshape(-1)[begin:end], shape, begin) for begin, end in bounds)
    assert close(total, facts.of(tensor.numpy()), tensor.numel())


@pytest.mark.parametrize("portion", [1, 7, 100])
def test_portions_make_no_difference(portion, monkeypatch):
    tensor = drawn((40, 80))
    monkeypatch.setattr(sketches, "PORTION", portion)
    monkeypatch.setattr(sketches, "WIDEST", 30)
    monkeypatch.setattr(sketches, "_signs_of", {})
    assert close(of_whole(tensor), facts.of(tensor.numpy()), tensor.numel())


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_sparse_gradient_has_the_sketch_of_its_dense_form(dim):
    indices = torch.tensor([[1, 4, 1]])
    values = drawn((3, 4, 2)[:dim])
    sparse = torch.sparse_coo_tensor(indices, values, (6, 4, 2)[:dim], check_invariants=True)
    assert close(sketches.of_sparse(sparse), facts.of(sparse.to_dense().numpy()), sparse.numel())


@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded"])
def test_elements_need_not_lie_in_a_row(layout):
    tensor = {"transposed": drawn((50, 60)).t(), "strided": drawn((50, 60))[::2, ::3], "expanded": drawn((50, 1))}[
        layout
    ]
    tensor = tensor.expand(50, 60) if layout == "expanded" else tensor
    assert close(of_whole(tensor), facts.of(tensor.contiguous().numpy()), tensor.numel())


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 3e-6), (torch.bfloat16, 3e-6), (torch.float16, 3e-6)])
def test_large_tensors_are_added_up_in_single_precision_or_better(dtype, error):
    """Also where their elements have 16 bits: what is lost is lost in the elements."""
    tensor = drawn((700, 900)).to(dtype)
    exact = facts.of(tensor.double().numpy())
    assert np.linalg.norm(of_whole(tensor).numpy() - exact) < error * float(tensor.double().norm())


@pytest.mark.parametrize("setting", ["medium", "high", "autocast"])
def test_no_setting_of_the_program_makes_it_coarse(setting):
    tensor = drawn((700, 900), torch.float32)
    exact = facts.of(tensor.double().numpy())
    before = torch.get_float32_matmul_precision()
    try:
        if setting != "autocast":
            torch.set_float32_matmul_precision(setting)
        with torch.autocast("cpu", torch.bfloat16, enabled=setting == "autocast"):
            found = of_whole(tensor)
    finally:
        torch.set_float32_matmul_precision(before)
    assert np.linalg.norm(found.numpy() - exact) < 3e-6 * float(tensor.double().norm())


@pytest.mark.parametrize("shape", [(6, 5), (300, 400)])
def test_deterministic_algorithms_give_the_same(shape, monkeypatch):
    """Without a product of matrices, which CUDA's library refuses then."""
    tensor = drawn(shape)
    expected = of_whole(tensor)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    monkeypatch.setattr(torch.Tensor, "__matmul__", None)
    assert close(of_whole(tensor), expected.numpy(), tensor.numel())


def test_infinite_elements_show():
    tensor = drawn((30, 40))
    tensor[3, 4] = float("inf")
    assert not torch.isfinite(of_whole(tensor)).any()


@pytest.mark.parametrize("shape", [(4096, 4096), (2, 1 << 23), (1 << 22, 4), (1 << 24,)])
def test_a_look_takes_little_memory(shape):
    """32 MB, for a tensor of 32 MB: what torch allocates is counted by its profiler."""
    tensor = torch.zeros(shape, dtype=torch.bfloat16)
    peak = held = 0
    with torch.profiler.profile(profile_memory=True) as profile:
        of_whole(tensor)
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    assert 0 < peak < 32 << 20
