"""Memory that a module was given unwritten, by to_empty(), and whether anything was seen to write to it since.

A write in place counts a tensor's version up. What goes round that, by ``.data``
or a collective, changes the elements; so both are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.patching import around
from ddpcheck.probes.recording.tensor_references import reference


class _Empty(NamedTuple):
    """A tensor as it was handed out."""

    version: int
    digest: bytes | None
    """Of a window: to read all of it would give it pages that the program may never use. None on a device."""


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
        self._names = [name for name, one in _tensors(module) if not is_written(one)] if _empty else []

    def is_over(self) -> None:
        """The wrapper is there."""
        if self._names:
            after = dict(_tensors(self._module))
            for name in self._names:
                if name in after:
                    _note(after[name])


def is_written(tensor: torch.Tensor) -> bool | None:
    """False for what was handed out unwritten and is as it was; None where that would have to be read on a device."""
    known = _empty.get(id(tensor))
    if known is None or not tensor.numel() or readable_memory.is_of_fsdp(tensor):
        return True  # FSDP gives a parameter other memory, in which it is a view
    if version(tensor) != known.version:
        return True
    if known.digest is None:
        return None
    return not readable_memory.is_on_cpu(tensor) or _look(tensor) != known.digest


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
                for tensor in (*self.parameters(), *self.buffers()):
                    _note(tensor)
        return result

    return to_empty


def _note(tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        return
    _empty[id(tensor)] = _Empty(version(tensor), _look(tensor) if readable_memory.is_on_cpu(tensor) else None)
    reference(tensor).when_gone(partial(_empty.pop, id(tensor), None))


def _look(tensor: torch.Tensor) -> bytes:
    return fast_digests.digests([tensor], 0)


def version(tensor: torch.Tensor) -> int:
    """How often it was written to in place; of a DTensor, that of its own part counts, too."""
    own = readable_memory.own_part(tensor)
    each = [one for one in (tensor, own if own is not tensor else None) if one is not None and not one.is_inference()]
    return sum(int(attribute(one, "_version", 0)) for one in each)
