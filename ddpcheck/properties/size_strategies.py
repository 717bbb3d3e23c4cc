"""Strategies for how many: ranks, samples, and samples on each rank.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def world_sizes(min_value: int = 1, max_value: int = 8) -> SearchStrategy[int]:
    """Numbers of ranks, for code that needs no ranks to run, such as a sampler's arithmetic.

    The ranks that a test has are its mark's::

        @given(world_size=ds.world_sizes(), rank=st.integers(0, 7))
        def test_my_split(world_size, rank):
            assume(rank < world_size)
            ...
    """
    return st.integers(min_value, max_value)


def dataset_sizes(
    world_size: int = 1, batch_size: int = 1, *, min_value: int = 1, max_value: int = 64
) -> SearchStrategy[int]:
    """Numbers of samples, the smallest first, and often one more or one less than what the ranks divide evenly::

    @pytest.mark.ddp(world_size=2)
    @given(size=ds.dataset_sizes(world_size=2, batch_size=4))
    def test_no_sample_is_lost(ddp, size): ...
    """
    anything = st.integers(min_value, max_value)
    round_number = world_size * batch_size
    edges = sorted(
        {
            edge
            for multiple in range(0, max_value + 2, round_number)
            for edge in (multiple - 1, multiple, multiple + 1)
            if min_value <= edge <= max_value
        }
    )
    return st.one_of(anything, st.sampled_from(edges)) if edges and round_number > 1 else anything


@st.composite
def unequal_sizes(draw: st.DrawFn, world_size: int, *, min_value: int = 0, max_value: int = 8) -> tuple[int, ...]:
    """A size for each rank, not the same for all: what a rank with fewer samples meets::

    @pytest.mark.ddp(world_size=2)
    @given(sizes=ds.unequal_sizes(2, min_value=1))
    def test_the_mean_weighs_samples(ddp, sizes):
        batch = torch.ones(sizes[ddp.rank], 3)
    """
    if world_size < 2 or max_value <= min_value:
        raise ValueError(
            f"unequal_sizes({world_size}, min_value={min_value}, max_value={max_value}): sizes can differ between two "
            "ranks or more, and where max_value is above min_value"
        )
    sizes = draw(st.lists(st.integers(min_value, max_value), min_size=world_size - 1, max_size=world_size - 1))
    if len(set(sizes)) > 1:
        last = draw(st.integers(min_value, max_value))
    else:  # any but theirs
        last = draw(st.integers(min_value, max_value - 1))
        last += last >= sizes[0]
    return (*sizes, last)
