"""What a loader would give this rank in an epoch: counted and fingerprinted, with nothing disturbed."""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from ddpcheck.checks.batches import BatchFacts
from ddpcheck.checks.shards import SamplerFacts, ShardFacts
from ddpcheck.observe import ordering
from ddpcheck.observe.fingerprint import fingerprint, samples_of_batch


@contextlib.contextmanager
def undisturbed(*owners: Any) -> Iterator[None]:
    """Put every random state back afterwards: those of the process, and the generators of ``owners``."""
    generators = [g for o in owners if isinstance(g := getattr(o, "generator", None), torch.Generator)]
    numpy = sys.modules.get("numpy")
    before = (torch.get_rng_state(), random.getstate(), [g.get_state() for g in generators])
    numpy_before = numpy.random.get_state() if numpy is not None else None
    try:
        with ordering.not_recording():
            yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        for generator, state in zip(generators, before[2], strict=True):
            generator.set_state(state)
        if numpy is not None:
            numpy.random.set_state(numpy_before)


class Epoch:
    """An epoch of this rank: the loader (or sampler) and dataset that it was asked about, taken apart."""

    def __init__(self, source: Any, dataset: Any = None) -> None:
        self.source = source
        self.loader: DataLoader[Any] | None = source if isinstance(source, DataLoader) else None
        if self.loader is not None:
            self.sampler: Any = self.loader.sampler
            self.dataset = self.loader.dataset if dataset is None else dataset
        else:
            self.sampler = source if isinstance(source, Sampler) else None
            self.dataset = getattr(source, "dataset", None) if dataset is None else dataset
        self.size: int | None = len(self.dataset) if hasattr(self.dataset, "__len__") else None
        stream = isinstance(self.dataset, IterableDataset) or (self.sampler is None and dataset is None)
        self.by_index = not stream and self.dataset is not None and self.sampler is not None
        if not self.by_index and not isinstance(source, Iterable):
            raise TypeError(f"expected a DataLoader, a sampler, or an iterable of batches, and got {source!r}")

    # --- facts

    def shards(self) -> ShardFacts:
        with undisturbed(self.sampler, self.loader, self.source):
            if not self.by_index:
                prints = [fingerprint(s) for batch in self.source for s in samples_of_batch(batch)]
                return ShardFacts(prints=prints, size=self.size, sampler=SamplerFacts(kind=type(self.source).__name__))
            indices = [int(i) for batch in self._batches() for i in batch]
            by_content = self._is_repeatable(indices)
            return ShardFacts(
                prints=[self._print(i) if by_content else f"index {i}" for i in indices],
                indices=indices,
                size=self.size,
                by_content=by_content,
                sampler=self._sampler_facts(),
                drops_batch=bool(self.loader is not None and self.loader.drop_last),
            )

    def occurrences(self, prints: list[str]) -> list[int] | None:
        """How often this rank's dataset holds each of these samples; None for a stream."""
        if not self.by_index:
            return None
        with undisturbed(self.sampler, self.loader):
            if prints and prints[0].startswith("index "):
                return [1] * len(prints)
            held = Counter(self._print(i) for i in range(self.size or 0))
        return [held[p] for p in prints]

    def batches(self, consumed: int | None = None) -> BatchFacts:
        with undisturbed(self.sampler, self.loader, self.source):
            if not self.by_index or self.loader is None:
                return BatchFacts(batches=sum(1 for _ in self.source), consumed=consumed)
            facts = self._sampler_facts()
            plain = type(self.loader.batch_sampler) is torch.utils.data.BatchSampler
            return BatchFacts(
                batches=sum(1 for _ in self._batches()),
                consumed=consumed,
                size=self.size if plain else None,
                batch_size=self.loader.batch_size if plain else None,
                drop_last=self.loader.drop_last,
                sampler_drops=facts.drop_last,
            )

    # --- parts

    def _batches(self) -> Iterator[list[int]]:
        if self.loader is not None and self.loader.batch_sampler is not None:
            yield from self.loader.batch_sampler
        else:
            for index in self.sampler:
                yield [index]

    def _print(self, index: int) -> str:
        return fingerprint(self.dataset[index])

    def _is_repeatable(self, indices: list[int]) -> bool:
        """Whether reading a sample twice gives the same; augmentation makes it another each time."""
        return all(self._print(i) == self._print(i) for i in indices[:3])

    def _sampler_facts(self) -> SamplerFacts:
        s = self.sampler
        replicas, rank = getattr(s, "num_replicas", None), getattr(s, "rank", None)
        distributed = isinstance(replicas, int) and isinstance(rank, int)
        return SamplerFacts(
            kind=type(s).__name__,
            distributed=distributed,
            rank=rank if distributed else None,
            num_replicas=replicas if distributed else None,
            seed=_whole(s, "seed"),
            epoch=_whole(s, "epoch"),
            shuffle=getattr(s, "shuffle", None) if isinstance(getattr(s, "shuffle", None), bool) else None,
            drop_last=bool(getattr(s, "drop_last", False)) and distributed,
            positions=len(s) if hasattr(s, "__len__") else None,
        )


def _whole(owner: Any, name: str) -> int | None:
    value = getattr(owner, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
