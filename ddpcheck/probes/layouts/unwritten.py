"""Memory that a module was given unwritten, by to_empty(), and whether anything was seen to write to it since.

A write in place counts a tensor's version up. What goes round that, by ``.data``
or a collective, changes the elements; so both are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence import UNSEEN, WIDTH
from ddpcheck.probes.devices.awaited import Awaited, Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.patching import around
from ddpcheck.probes.recording.tensor_references import reference

Answer = bool | None
"""Whether a tensor was written to; None where its memory could not be read."""


class _Empty(NamedTuple):
    """A tensor as it was handed out."""

    version: int
    digest: bytes | Awaited
    """Of a window: to read all of it would give it pages that the program may never use."""
    written: Answer | Awaited
    """Whether it was written to before a wrapper handed it on."""


_empty: dict[int, _Empty] = {}
"""By the id of the tensor."""


def watch() -> None:
    """See which memory modules are given unwritten, from now on."""
    around(torch.nn.Module, "to_empty", _around_to_empty)
    around(DistributedDataParallel, "__init__", _around_wrap)


class Kept:
    """The tensors of a module that nobody has written to, while a wrapper is put around it.

    A wrapper sends rank 0's memory to all ranks, or gives a shard its part of it: it is as it was.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        named = list(_tensors(module)) if _empty else []
        self._written = dict(zip((name for name, _ in named), each_written([one for _, one in named]), strict=True))

    def is_over(self) -> None:
        """The wrapper is there."""
        left = {name: one for name, one in self._written.items() if one is not True}
        if left:
            after = [(one, left[name]) for name, one in _tensors(self._module) if name in left]
            _note([one for one, _ in after], [written for _, written in after])


def each_written(tensors: Sequence[torch.Tensor]) -> list[Answer | Derived]:
    """Whether each was written to; False for what is as it was handed out. What lies on a device is told later."""
    found: list[Answer | Derived] = [True] * len(tensors)
    places = [place for place, one in enumerate(tensors) if _may_be_unwritten(one)]
    now = _looks([tensors[place] for place in places])
    for place, digest in zip(places, now, strict=True):
        known = _empty[id(tensors[place])]
        facts = known.digest, digest, known.written
        answer = Derived(_compared, *facts)
        found[place] = answer if any(isinstance(one, Awaited) for one in facts) else answer.told()
    return found


def _may_be_unwritten(tensor: torch.Tensor) -> bool:
    known = _empty.get(id(tensor))
    if known is None or not tensor.numel() or readable_memory.is_of_fsdp(tensor):
        return False  # FSDP gives a parameter other memory, in which it is a view
    return version(tensor) == known.version


def _compared(before: bytes, now: bytes, written: Answer) -> Answer:
    if written or UNSEEN in (before, now):
        return written or None
    return True if before != now else written


def _tensors(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for number, one in enumerate(module if isinstance(module, (list, tuple)) else [module]):
        for named in (one.named_parameters(), one.named_buffers()):
            yield from ((f"{number}.{name}", tensor) for name, tensor in named)


def _around_wrap(original: Any) -> Any:
    def __init__(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        kept = Kept(module) if recorder.current() is not None else None
        original(self, module, *args, **kwargs)
        if kept is not None:
            kept.is_over()

    return __init__


def _around_to_empty(original: Any) -> Any:
    def to_empty(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if recorder.current() is not None:
            with recorder.silence():
                tensors = [one for one in (*self.parameters(), *self.buffers()) if not one.is_meta]
                _note(tensors, [False] * len(tensors))
        return result

    return to_empty


def _note(tensors: Sequence[torch.Tensor], written: Sequence[Answer | Derived]) -> None:
    for tensor, digest, one in zip(tensors, _looks(tensors), written, strict=True):
        _empty[id(tensor)] = _Empty(version(tensor), digest, one)
        reference(tensor).when_gone(partial(_empty.pop, id(tensor), None))


def _looks(tensors: Sequence[torch.Tensor]) -> list[bytes | Derived]:
    found = fast_digests.queued(tensors, 0)
    if isinstance(found, bytes):
        return [_at(place, found) for place in range(len(tensors))]
    return [Derived(partial(_at, place), found) for place in range(len(tensors))]


def _at(place: int, digests: bytes) -> bytes:
    return digests[place * WIDTH : (place + 1) * WIDTH]


def version(tensor: torch.Tensor) -> int:
    """How often it was written to in place; of a DTensor, that of its own part counts, too."""
    own = readable_memory.own_part(tensor)
    each = [one for one in (tensor, own if own is not tensor else None) if one is not None and not one.is_inference()]
    return sum(int(attribute(one, "_version", 0)) for one in each)
