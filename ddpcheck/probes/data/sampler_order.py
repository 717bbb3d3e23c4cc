"""The order of every pass through a DistributedSampler in this rank."""

from __future__ import annotations

import array
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import xxhash
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.evidence.epochs import EpochFacts, SamplerPass

_passes: dict[int, list[SamplerPass]] = {}
"""By the sampler's id: one with an equality of its own may have no hash."""
_watching = False
_recording = True


def watch() -> None:
    """Record from now on: one digest for each pass.

    A sampler with an ``__iter__`` of its own is left alone, since what that
    returns is its user's: a look into it would draw from it.
    """
    global _watching
    if _watching:
        return
    _watching = True
    original = vars(DistributedSampler).get("__iter__")
    if original is None:
        return

    def iterate(self: DistributedSampler[Any]) -> Iterator[Any]:
        order = list(original(self))
        if _recording:
            digest = xxhash.xxh3_64_hexdigest(array.array("q", order).tobytes())
            _passes_of(self).append(SamplerPass(epoch=getattr(self, "epoch", 0), order=digest, length=len(order)))
        return iter(order)

    DistributedSampler.__iter__ = iterate  # type: ignore[method-assign]


def _passes_of(sampler: DistributedSampler[Any]) -> list[SamplerPass]:
    if id(sampler) not in _passes:
        _passes[id(sampler)] = []
        weakref.finalize(sampler, _passes.pop, id(sampler), None).atexit = False
    return _passes[id(sampler)]


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
    return EpochFacts(
        kind=type(sampler).__name__,
        shuffle=bool(getattr(sampler, "shuffle", False)),
        passes=list(_passes.get(id(sampler), [])),
        followed=type(sampler).__iter__ is DistributedSampler.__iter__,
    )
