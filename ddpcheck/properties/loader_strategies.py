"""Strategies for loaders and samplers, as their settings: what makes them is the test's.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.properties.size_strategies import dataset_sizes, world_sizes


@dataclass(frozen=True)
class LoaderSettings:
    """What a DataLoader is given besides its dataset and sampler."""

    batch_size: int
    drop_last: bool

    @property
    def kwargs(self) -> dict[str, Any]:
        return asdict(self)

    def batches(self, samples: int) -> int:
        """How many batches so many samples make."""
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


def loader_settings(*, max_batch_size: int = 8) -> SearchStrategy[LoaderSettings]:
    """Settings of a DataLoader::

    @pytest.mark.ddp(world_size=2)
    @given(size=ds.dataset_sizes(2), settings=ds.loader_settings())
    def test_batches(ddp, size, settings):
        data = torch.arange(size)
        loader = DataLoader(data, sampler=DistributedSampler(data), **settings.kwargs)
        ddpcheck.assert_batch_count(loader)
    """
    return st.builds(LoaderSettings, batch_size=st.integers(1, max_batch_size), drop_last=st.booleans())


@dataclass(frozen=True)
class SamplerSettings:
    """A dataset's size, a number of ranks, and what torch's DistributedSampler is given."""

    size: int
    world_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    epoch: int

    def sampler(self, rank: int, dataset: Sequence[Any] | None = None) -> DistributedSampler[Any]:
        """The sampler of a rank, in this epoch; without a dataset it needs no process group, and gives numbers."""
        data: Any = range(self.size) if dataset is None else dataset
        made: DistributedSampler[Any] = DistributedSampler(
            data, self.world_size, rank, shuffle=self.shuffle, seed=self.seed, drop_last=self.drop_last
        )
        made.set_epoch(self.epoch)
        return made

    def shards(self) -> list[list[int]]:
        """The indices that each rank gets from torch's sampler."""
        return [list(self.sampler(rank)) for rank in range(self.world_size)]


@st.composite
def sampler_settings(
    draw: st.DrawFn,
    *,
    world_size: int | None = None,
    max_world_size: int = 8,
    max_size: int = 64,
    shuffle: bool | None = None,
    drop_last: bool | None = None,
) -> SamplerSettings:
    """Settings of a DistributedSampler, with the size of its dataset; what is given is not drawn::

    @given(settings=ds.sampler_settings(drop_last=False))
    def test_every_sample_is_somewhere(settings):
        assert set().union(*settings.shards()) == set(range(settings.size))
    """
    ranks = draw(world_sizes(max_value=max_world_size)) if world_size is None else world_size
    return SamplerSettings(
        size=draw(dataset_sizes(ranks, max_value=max_size)),
        world_size=ranks,
        shuffle=draw(st.booleans()) if shuffle is None else shuffle,
        seed=draw(st.integers(0, 100)),
        drop_last=draw(st.booleans()) if drop_last is None else drop_last,
        epoch=draw(st.integers(0, 5)),
    )
