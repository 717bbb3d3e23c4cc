"""The order of every pass through a DistributedSampler in this rank."""

from __future__ import annotations

import array
import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import xxhash
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.checks.epochs import EpochFacts, Pass

_passes: weakref.WeakKeyDictionary[DistributedSampler[Any], list[Pass]] = weakref.WeakKeyDictionary()
_watching = False
_recording = True


def watch() -> None:
    """Record from now on: one digest for each pass, through torch's sampler or what is derived from it."""
    global _watching
    if _watching:
        return
    _watching = True
    original = DistributedSampler.__iter__

    def iterate(self: DistributedSampler[Any]) -> Iterator[Any]:
        order = list(original(self))
        if _recording and not _runs_below(self):
            _note(self, xxhash.xxh3_64_hexdigest(array.array("q", order).tobytes()), len(order))
        return iter(order)

    DistributedSampler.__iter__ = iterate  # type: ignore[method-assign]

    def derived(cls: type[DistributedSampler[Any]], /, **arguments: Any) -> None:
        super(DistributedSampler, cls).__init_subclass__(**arguments)
        _watch_own_order(cls)

    DistributedSampler.__init_subclass__ = classmethod(derived)  # type: ignore[assignment]
    known = DistributedSampler.__subclasses__()
    while known:
        _watch_own_order(known[-1])
        known += known.pop().__subclasses__()


def _watch_own_order(cls: type[DistributedSampler[Any]]) -> None:
    """Follow a sampler that has an order of its own, never ahead of who asks: it may have no end."""
    if "__iter__" not in vars(cls):
        return
    original = cls.__iter__

    def iterate(self: DistributedSampler[Any]) -> Iterator[Any]:
        return original(self) if _runs_below(self) or not _recording else _followed(self, original)

    cls.__iter__ = iterate  # type: ignore[method-assign]


def _followed(
    sampler: DistributedSampler[Any], original: Callable[[DistributedSampler[Any]], Iterator[Any]]
) -> Iterator[Any]:
    digest, length = xxhash.xxh3_64(), 0
    try:
        with _running(sampler):
            inner = iter(original(sampler))
        while True:
            with _running(sampler):
                try:
                    index = next(inner)
                except StopIteration:
                    break
            digest.update(f"{index},".encode())
            length += 1
            yield index
    finally:  # a pass that was broken off, too
        if length:
            _note(sampler, digest.hexdigest(), length)


_now_running: list[DistributedSampler[Any]] = []


@contextlib.contextmanager
def _running(sampler: DistributedSampler[Any]) -> Iterator[None]:
    _now_running.append(sampler)
    try:
        yield
    finally:
        _now_running.pop()


def _runs_below(sampler: DistributedSampler[Any]) -> bool:
    """Whether this is a sampler's call of the class that it is derived from, and so no pass of its own."""
    return any(one is sampler for one in _now_running)


def _note(sampler: DistributedSampler[Any], order: str, length: int) -> None:
    _passes.setdefault(sampler, []).append(Pass(epoch=sampler.epoch, order=order, length=length))


@contextlib.contextmanager
def not_recording() -> Iterator[None]:
    """A look at the sampler that is no pass of the training's."""
    global _recording
    before, _recording = _recording, False
    try:
        yield
    finally:
        _recording = before


def epochs(sampler: Any) -> EpochFacts:
    """The passes so far through this sampler."""
    passes = _passes.get(sampler, []) if isinstance(sampler, DistributedSampler) else []
    return EpochFacts(
        kind=type(sampler).__name__, shuffle=bool(getattr(sampler, "shuffle", False)), passes=list(passes)
    )
