"""What a loader would give this rank in an epoch: counted and fingerprinted, with nothing disturbed."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler

from ddpcheck.evidence.epochs import BatchFacts, SamplerFacts, ShardFacts
from ddpcheck.probes.data import sampler_order
from ddpcheck.probes.data.rank_attributes import place_among, whole_number
from ddpcheck.probes.digests.sample_fingerprints import Rows, fingerprint
from ddpcheck.probes.randomness import random_states


@contextlib.contextmanager
def undisturbed(*owners: Any) -> Iterator[None]:
    """Put every random state back afterwards: those of the process, and the generators of ``owners``."""
    found = [g for o in owners for g in _attributes(o).values() if isinstance(g, torch.Generator)]
    generators = list({id(g): g for g in found}.values())
    before = [g.get_state() for g in generators]
    epochs = [(o, e) for o in owners if type(e := _attributes(o).get("epoch")) is int]
    try:
        with random_states.put_back(), sampler_order.not_recording():
            yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
        for owner, epoch in epochs:  # a sampler may count its passes
            owner.epoch = epoch


def _attributes(owner: Any) -> dict[str, Any]:
    return getattr(owner, "__dict__", {})


class Epoch:
    """An epoch of this rank: the loader (or sampler) and dataset that it was asked about, taken apart."""

    def __init__(self, source: Any, dataset: Any = None) -> None:
        self.source = source
        self.loader: DataLoader[Any] | None = source if isinstance(source, DataLoader) else None
        if self.loader is not None:
            self.sampler: Any = deciding_sampler(self.loader)
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
        with self._undisturbed():
            if not self.by_index:
                prints = [fingerprint(s) for batch in self.source for s in Rows(batch)]
                return ShardFacts(
                    prints=prints,
                    size=self.size,
                    sampler=SamplerFacts(kind=type(self.source).__name__),
                    drops_batch=self._drops_batch(),
                    batch_size=self._batch_size(),
                )
            places, dropped = self._dealt()
            prints, by_content = self._prints(places)
            sampler = self._sampler_facts()
            return ShardFacts(
                prints=prints,
                indices=[int(p) for p in places] if all(_is_whole(p) for p in places) else None,
                dropped=dropped,
                size=self.size,
                by_content=by_content,
                probes=self._probes() if sampler.distributed and by_content else None,
                sampler=sampler,
                drops_batch=self._drops_batch(),
                batch_size=self._batch_size(),
            )

    def occurrences(self, prints: list[str]) -> list[int] | None:
        """How often this rank's dataset holds each of these samples; None for a stream."""
        if not self.by_index:
            return None
        with self._undisturbed():
            if prints and prints[0].startswith("index "):
                return [1] * len(prints)
            try:
                held = Counter(self._print(i) for i in range(self.size or 0))
            except Exception:  # a dataset may hold this rank's samples alone, or have keys that are no indices
                return None
        return [held[p] for p in prints]

    def batches(self, consumed: int | None = None) -> BatchFacts:
        with self._undisturbed():
            if not self.by_index or self.loader is None:
                dataset = type(self.dataset).__name__ if self.dataset is not None else ""
                return BatchFacts(batches=sum(1 for _ in self.source), consumed=consumed, dataset=dataset)
            facts = self._sampler_facts()
            plain = type(self.loader.batch_sampler) is BatchSampler
            return BatchFacts(
                batches=sum(1 for _ in self._batches()),
                consumed=consumed,
                size=self.size if plain else None,
                batch_size=self._batch_size() if plain else None,
                drop_last=self._drops_batch(),
                sampler_drops=facts.drop_last,
                dataset=type(self.dataset).__name__,
                sampler=facts.kind,
            )

    # --- parts

    def _batches(self) -> Iterator[list[Any]]:
        if self.loader is not None and self.loader.batch_sampler is not None:
            yield from self.loader.batch_sampler
        else:
            for place in self.sampler:  # without batching, a sampler may give lists: the dataset is read by batches
                yield place if isinstance(place, list) else [place]

    def _dealt(self) -> tuple[list[Any], int | None]:
        """The indices (or keys) of this rank's epoch, and how many of them, the last, the loader drops.

        None for the latter where only the loader's batches show what the sampler gives.
        """
        batches = self.loader.batch_sampler if self.loader is not None else None
        if type(batches) is BatchSampler and batches.sampler is self.sampler:
            places = list(self.sampler)
            return places, len(places) % batches.batch_size if batches.drop_last else 0
        return [place for batch in self._batches() for place in batch], None

    def _probes(self) -> list[str] | None:
        """Fingerprints of a few places of the dataset, the same on all ranks; None where it cannot be read there.

        Empty for a place where the sample is another each time.
        """
        last = (self.size or 0) - 1
        try:
            reads = [{self._print(i) for _ in range(3)} for i in sorted({last * k // 7 for k in range(8)})]
        except Exception:  # a dataset may hold this rank's samples alone
            return None
        return [read.pop() if len(read) == 1 else "" for read in reads]

    def _print(self, place: Any) -> str:
        return fingerprint(self.dataset[place])

    def _prints(self, indices: list[Any]) -> tuple[list[str], bool]:
        """Fingerprints of the contents; of the indices, where a sample is another each time it is read."""
        prints = [self._print(i) for i in indices]
        # All of them once more, and not a few: an augmentation that acts now
        # and then, from whatever source of chance, would pass a sample of it.
        if all(self._print(i) == first for i, first in zip(indices, prints, strict=True)):
            return prints, True
        return [f"index {i}" for i in indices], False

    def _undisturbed(self) -> contextlib.AbstractContextManager[None]:
        batch_sampler = getattr(self.loader, "batch_sampler", None)
        inner = getattr(batch_sampler, "sampler", None)
        return undisturbed(self.source, self.loader, self.dataset, self.sampler, batch_sampler, inner)

    def _drops_batch(self) -> bool:
        if self.loader is None:
            return False
        return self.loader.drop_last or bool(getattr(self.loader.batch_sampler, "drop_last", False))

    def _batch_size(self) -> int | None:
        if self.loader is None:
            return None
        size = self.loader.batch_size or getattr(self.loader.batch_sampler, "batch_size", None)
        return size if isinstance(size, int) else None

    def _sampler_facts(self) -> SamplerFacts:
        s = self.sampler
        place = place_among(s)
        gives_batches = self.loader is not None and s is self.loader.batch_sampler
        return SamplerFacts(
            kind=type(s).__name__,
            distributed=place is not None,
            rank=place[0] if place is not None else None,
            num_replicas=place[1] if place is not None else None,
            seed=whole_number(getattr(s, "seed", None)),
            epoch=whole_number(getattr(s, "epoch", None)),
            shuffle=getattr(s, "shuffle", None) if isinstance(getattr(s, "shuffle", None), bool) else None,
            drop_last=bool(getattr(s, "drop_last", False)) and place is not None,
            positions=len(s) if hasattr(s, "__len__") and not gives_batches else None,
        )


def deciding_sampler(loader: Any, read: Callable[[Any, str, Any], Any] = getattr) -> Any:
    """The sampler that decides what this rank gets: the loader's, its batch sampler's, or that itself.

    What is no DataLoader decides for itself, or has a ``sampler`` that does.
    """
    if not isinstance(loader, DataLoader):
        return read(loader, "sampler", loader)
    batches = loader.batch_sampler
    if batches is None or read(batches, "sampler", None) is loader.sampler:
        return loader.sampler
    if place_among(batches, read) is not None:
        return batches
    found = read(batches, "sampler", None)
    return batches if found is None else found  # whether it is true is a question of its length


def _is_whole(place: Any) -> bool:
    """Whether a sampler's place is an index, of whatever integer type, and no key."""
    return hasattr(place, "__index__")
