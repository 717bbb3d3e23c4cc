"""What a dataset gives for a batch, before it is collated: a sample has one fingerprint, in whatever batch it comes."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ddpcheck.evidence import ABSENT, WIDTH, WorkerFetch, is_chosen
from ddpcheck.probes.data import dataset_values
from ddpcheck.probes.digests.batch_fingerprints import of_samples
from ddpcheck.probes.digests.sample_fingerprints import Rows
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.patching import safely
from ddpcheck.vocabulary.clock import clock

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

ENOUGH = 64
"""Fingerprints for one batch; of a larger one, every second, fourth … index is looked at."""
DEEPEST = 4
"""Containers in each other."""
MOST = 4096
"""Rows; a batch of more that a dataset makes itself counts as one sample."""
GRACE = 0.05
"""Seconds that fingerprints may cost in any case, and once more each time that their number has been halved."""
SHARE = 0.005
"""The part of the time that they may cost beyond that."""

Indices = Sequence[int] | None


class Contents(NamedTuple):
    """The samples of one fetch."""

    samples: int
    prints: bytes
    """Of those that are put on record, ABSENT where it was not made; empty for none at all."""
    labels: bytes


class _Budget:
    """How much fingerprints have cost, and by how much they are thinned for it."""

    def __init__(self) -> None:
        self.level = 0
        self.spent = 0.0
        self.began: float | None = None

    def charge(self, began: float, ended: float) -> None:
        if self.began is None:
            self.began = began
        self.spent += ended - began
        while self.spent > GRACE * (self.level + 1) + SHARE * (ended - self.began) and self.level < 20:
            self.level += 1


_budget = _Budget()


class Place(NamedTuple):
    """Whose fetch it is: the loader, the pass and the worker process, as far as they are known."""

    loader: int | None
    pass_: int
    worker: int | None
    base_seed: int | None


class Taker(Protocol):
    """A pass of this process, which is given the samples of its next batch."""

    def take(self, data: Any, is_batch: bool) -> None: ...


class Noting:
    """What stands in the place of a fetcher's function that collates: it has the samples noted, and calls that."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate
        self.note: Callable[[Any], None] | None = None
        """What is done with the samples of the next fetch."""

    def __call__(self, data: Any) -> Any:
        note, self.note = self.note, None
        if note is not None:
            safely(note, data)
        return self._collate(data)


def see(writer: recorder.Recorder, fetcher: Any, number: int, place: Place, index: Any, passing: Taker | None) -> None:
    """Have what the dataset gives for this fetch noted before it is collated."""
    if number == 0:
        fetcher.collate_fn = Noting(fetcher.collate_fn)
        # What workers hold is of interest where they last for several passes; of a fresh process that is not known.
        if place.worker is not None and (place.loader is None or dataset_values.is_known(fetcher.dataset)):
            dataset_values.write(writer, fetcher.dataset, place.loader, place.pass_, place.worker, place.base_seed)
    noting, is_batch = fetcher.collate_fn, not fetcher.auto_collation
    if not isinstance(noting, Noting):
        return
    if place.worker is not None:
        noting.note = partial(_write, writer, number, place, index, is_batch)
    elif passing is not None:
        noting.note = partial(passing.take, is_batch=is_batch)


def _write(writer: recorder.Recorder, number: int, place: Place, index: Any, is_batch: bool, data: Any) -> None:
    """Write down what this process, a worker, was given."""
    info = get_worker_info()
    is_stream = info is not None and isinstance(info.dataset, IterableDataset)
    indices = indices_of(index) if not is_stream else None
    stride = writer.stride(WorkerFetch)
    found = contents_of(data, is_batch, indices, number, stride)
    places = places_on_record(indices, stride)
    if indices is not None and places is not None:
        indices = array.array("q", [indices[one] for one in places])
    if not found.prints and stride > 1 and number % stride:
        return
    writer.write(
        WorkerFetch(
            **writer.next(),
            loader=place.loader,
            pass_=place.pass_,
            worker=place.worker or 0,
            base_seed=place.base_seed or 0,
            number=number,
            samples=found.samples,
            indices=indices.tobytes() if indices is not None else b"",
            prints=found.prints,
            labels=found.labels,
        )
    )


def places_on_record(indices: Indices, stride: int) -> list[int] | None:
    """The places of a batch that go on record where evidence is short: the same samples on every rank. None for all."""
    if indices is None or stride < 2:
        return None
    return [place for place, index in enumerate(indices) if is_chosen(index, stride)]


def contents_of(data: Any, is_batch: bool, indices: Indices, number: int, stride: int) -> Contents:
    """The fingerprints of what a dataset has given; ``is_batch``: it makes its batches itself.

    Of many samples, or where time is short, those of a part of the indices, which is the same on all ranks; without
    indices, those of a part of the fetches, of which this is the how-manieth.
    """
    began = clock.fine()
    try:
        return _contents_within_budget(data, is_batch, indices, number, stride)
    except Exception as error:  # a batch of a kind of its own
        signal_exceptions.let_through(error)
        return Contents(len(indices) if indices is not None else 0, b"", b"")
    finally:
        _budget.charge(began, clock.fine())


def _contents_within_budget(data: Any, is_batch: bool, indices: Indices, number: int, stride: int) -> Contents:
    samples = _samples(data, is_batch, indices)
    count = len(samples)
    thinned = max(stride, 1 << _budget.level)
    if indices is None:
        if number % thinned:
            return Contents(count, b"", b"")
    elif len(indices) != count:
        return Contents(len(indices), b"", b"")
    else:
        thinned = max(thinned, 1 << ((count - 1) // ENOUGH).bit_length() if count else 1)
    places = places_on_record(indices, stride)
    looked = range(count) if places is None else places
    hashed = looked if indices is None else [place for place in looked if is_chosen(indices[place], thinned)]
    if not len(hashed):
        return Contents(count, b"", b"")
    return Contents(count, *(_spread(one, hashed, looked) for one in of_samples(samples[place] for place in hashed)))


def _samples(data: Any, is_batch: bool, indices: Indices) -> Sequence[Any]:
    """What it has given, sample by sample, where this takes no code of the program's; else all of it as one."""
    if not is_batch:
        return data if type(data) in (list, tuple) else [data]
    is_one = indices is not None and len(indices) == 1
    return [data] if is_one or not _is_plain(data) else Rows(data, MOST)


def _is_plain(batch: Any, depth: int = 0) -> bool:
    """Whether a batch is made of tensors, arrays and lists of names alone, in Python's own containers."""
    kind = type(batch)
    if kind in (list, tuple, dict) and depth < DEEPEST:
        return all(_is_plain(one, depth + 1) for one in (batch.values() if kind is dict else batch[:MOST]))
    is_name = depth > 1 and kind in (str, bytes, int, float, bool)
    return is_name or isinstance(batch, torch.Tensor) or (kind.__module__ == "numpy" and hasattr(batch, "dtype"))


def _spread(prints: bytes, hashed: Sequence[int], looked: Sequence[int]) -> bytes:
    """The fingerprints at their places among those that are put on record; none where none was made."""
    if len(hashed) == len(looked) or not prints.strip(b"\0"):
        return prints if prints.strip(b"\0") else b""
    known = {place: prints[WIDTH * n : WIDTH * (n + 1)] for n, place in enumerate(hashed)}
    return b"".join(known.get(place, ABSENT) for place in looked)


def indices_of(index: Any) -> array.array[int] | None:
    """The indices of a batch as they are now: a sampler may use its list again. None for what is no index."""
    try:
        if hasattr(index, "__index__"):
            return array.array("q", [index])
        if isinstance(index, (list, tuple)) or hasattr(index, "tolist"):
            return array.array("q", index if isinstance(index, (list, tuple)) else index.tolist())
    except (TypeError, ValueError, OverflowError) as error:
        signal_exceptions.let_through(error)
    return None
