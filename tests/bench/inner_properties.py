"""Properties of an inner session, and the same bodies as tests of their own: what one further example costs."""

from __future__ import annotations

from typing import Any

import body
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

TURNS = 20

ranks = pytest.mark.ddp(world_size=[2], timeout=60)


def add(number: int) -> None:
    total = torch.tensor([number])
    dist.all_reduce(total)
    assert total.item() == 2 * number


@ranks
def test_first(ddp: Any) -> None:
    """Waits for the zygote."""
    body.step_and_compare()


@ranks
@pytest.mark.parametrize("turn", range(TURNS))
def test_add(ddp: Any, turn: int) -> None:
    add(turn)


@ranks
@pytest.mark.parametrize("turn", range(TURNS))
def test_step(ddp: Any, turn: int) -> None:
    body.step_and_compare()


def examples(count: int) -> settings:
    return settings(max_examples=count, database=None, derandomize=True)


@ranks
@examples(1)
@given(number=st.integers(0, 1_000_000))
def test_add_1(ddp: Any, number: int) -> None:
    add(number)


@ranks
@examples(500)
@given(number=st.integers(0, 1_000_000))
def test_add_500(ddp: Any, number: int) -> None:
    add(number)


@examples(500)
@given(number=st.integers(0, 1_000_000))
@pytest.mark.parametrize("where", ["here-2ranks"])
def test_alone_500(where: str, number: int) -> None:
    assert number >= 0


@ranks
@examples(1)
@given(number=st.integers(0, 1_000_000))
def test_step_1(ddp: Any, number: int) -> None:
    body.step_and_compare()


@ranks
@examples(100)
@given(number=st.integers(0, 1_000_000))
def test_step_100(ddp: Any, number: int) -> None:
    body.step_and_compare()


@pytest.mark.ddp(world_size=[2], timeout=1.0)
@examples(100)
@given(number=st.integers(0, 1000), also=st.lists(st.integers()))
def test_hangs(ddp: Any, number: int, also: list[int]) -> None:
    # The smallest example is 43 and [0, 0].
    if number > 42 and len(also) > 1 and ddp.rank == 1:
        return
    dist.barrier()
