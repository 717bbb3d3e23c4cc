"""The order of every pass through a DistributedSampler in this rank."""

from __future__ import annotations

import array
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import xxhash
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.checks.epochs import EpochFacts, Pass

_passes: weakref.WeakKeyDictionary[DistributedSampler[Any], list[Pass]] = weakref.WeakKeyDictionary()
_watching = False
_recording = True


def watch() -> None:
    """Record from now on; one digest for each pass."""
    global _watching
    if _watching:
        return
    _watching = True
    original = DistributedSampler.__iter__

    def iterate(self: DistributedSampler[Any]) -> Iterator[Any]:
        order = list(original(self))
        if _recording:
            digest = xxhash.xxh3_64_hexdigest(array.array("q", order).tobytes())
            _passes.setdefault(self, []).append(Pass(epoch=self.epoch, order=digest, length=len(order)))
        return iter(order)

    DistributedSampler.__iter__ = iterate  # type: ignore[method-assign]


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
