"""Strategies for tensors, by dtype, and for a batch of its own size on each rank.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ddpcheck.properties.size_strategies import unequal_sizes

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

_WIDTHS: dict[torch.dtype, Literal[16, 32, 64]] = {
    torch.float64: 64,
    torch.float32: 32,
    torch.float16: 16,
    torch.bfloat16: 32,
}


def dtypes(kinds: Sequence[str] = ("floating", "integer", "bool")) -> SearchStrategy[torch.dtype]:
    """Dtypes of these kinds (floating, integer, bool, complex), float32 first::

    @given(dtype=ds.dtypes(["floating"]))
    """
    found: list[torch.dtype] = []
    known = {
        "floating": FLOATING,
        "integer": INTEGERS,
        "bool": (torch.bool,),
        "complex": (torch.complex64, torch.complex128),
    }
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"dtypes([{kind!r}]): there are {', '.join(known)}")
        found += known[kind]
    return st.sampled_from(found)


def _elements(dtype: torch.dtype, allow_nan: bool) -> SearchStrategy[Any]:
    if dtype is torch.bool:
        return st.booleans()
    if dtype.is_complex:
        part = st.floats(width=32, allow_nan=allow_nan, allow_infinity=allow_nan)
        return st.builds(complex, part, part)
    if dtype.is_floating_point:
        # bfloat16 has the range of 32 bits, and rounds what is drawn.
        largest = None if allow_nan else torch.finfo(dtype).max
        smallest = None if largest is None else -largest
        return st.floats(smallest, largest, width=_WIDTHS[dtype], allow_nan=allow_nan, allow_infinity=allow_nan)
    info = torch.iinfo(dtype)
    return st.integers(info.min, info.max)


@st.composite
def tensors(
    draw: st.DrawFn,
    dtype: torch.dtype | SearchStrategy[torch.dtype] | None = None,
    shape: Sequence[int] | None = None,
    *,
    min_dims: int = 0,
    max_dims: int = 3,
    max_side: int = 4,
    elements: SearchStrategy[Any] | None = None,
    allow_nan: bool = False,
) -> torch.Tensor:
    """Tensors of a dtype, with values of its whole range; finite, unless ``allow_nan``::

    @pytest.mark.ddp(world_size=2)
    @given(tensor=ds.tensors(ds.dtypes(["floating", "integer"]), min_dims=1))
    def test_a_broadcast_keeps_all_bits(ddp, tensor):
        ...
    """
    kind = draw(dtypes()) if dtype is None else draw(dtype) if isinstance(dtype, SearchStrategy) else dtype
    sides = st.lists(st.integers(1, max_side), min_size=min_dims, max_size=max_dims)
    form = tuple(draw(sides)) if shape is None else tuple(shape)
    values = elements if elements is not None else _elements(kind, allow_nan)
    count = math.prod(form)
    return torch.tensor(draw(st.lists(values, min_size=count, max_size=count)), dtype=kind).reshape(form)


@st.composite
def unequal_batches(
    draw: st.DrawFn,
    world_size: int,
    features: int = 3,
    *,
    min_value: int = 1,
    max_value: int = 8,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, ...]:
    """A batch for each rank, not of the same size on all, of small whole numbers: sums of them are exact::

    @pytest.mark.ddp(world_size=2)
    @given(batches=ds.unequal_batches(2))
    def test_join(ddp, batches):
        mine, all_of_them = batches[ddp.rank], torch.cat(batches)
    """
    sizes = draw(unequal_sizes(world_size, min_value=min_value, max_value=max_value))
    small = st.integers(-4, 4)
    return tuple(draw(tensors(dtype, (size, features), elements=small)) for size in sizes)
