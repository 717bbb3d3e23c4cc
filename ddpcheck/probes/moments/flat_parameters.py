"""The logical tensors that lie side by side in a flat one: which of its elements belong to which.

FSDP1 says so of its own; of a flat tensor of the program's, the parameters of models do that lie in its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.layouts.parallelised import FSDP1
from ddpcheck.probes.recording import signal_exceptions

PLAIN = (torch.Tensor, torch.nn.Parameter)


class Cut(NamedTuple):
    """A part of a logical tensor in a flat one."""

    model: int
    path: str
    shape: tuple[int, ...]
    """Of the logical tensor."""
    begin: int
    """Its first element that is here, of the flattened logical tensor."""
    run: slice
    """Where these are in the parameter."""


def cuts(models: Iterable[tuple[int, Any]]) -> dict[int, list[Cut]]:
    """By the id of each parameter of FSDP1, also of one of which this rank has no element, what lies in it."""
    kind = getattr(sys.modules.get(FSDP1), "FullyShardedDataParallel", None)
    found: dict[int, list[Cut]] = {}
    if kind is None:
        return found
    for model, root in models:
        names = {id(module): name for name, module in root.named_modules(remove_duplicate=False)}
        for flat in _flat_ones(root, kind):
            try:
                _cut(model, flat, names, found)
            except Exception as error:  # another FSDP1 than we know
                signal_exceptions.let_through(error)
    return found


def in_memory(flat: Any, models: Iterable[tuple[int, Any]]) -> list[Cut]:
    """What of a tensor of no model is the memory of models' parameters."""
    if flat.layout is not torch.strided or not flat.is_contiguous() or not flat.numel():
        return []
    storage, begin = flat.untyped_storage().data_ptr(), flat.storage_offset()
    end, found = begin + flat.numel(), []
    for model, root in models:
        for name, one in root.named_parameters():
            if type(one) not in PLAIN or one.dtype != flat.dtype or not one.is_contiguous():
                continue
            first, last = one.storage_offset(), one.storage_offset() + one.numel()
            if first < end and begin < last and one.untyped_storage().data_ptr() == storage != 0:
                here = slice(max(first, begin) - begin, min(last, end) - begin)
                found.append(Cut(model, own_name(name), tuple(one.shape), max(begin - first, 0), here))
    return found


def wholes(roots: Iterable[Any]) -> list[tuple[Any, list[tuple[Any, slice]]]]:
    """Each flat parameter, and of each logical tensor in it the program's own parameter, if it has one, and where it
    lies while the flat one is whole.
    """
    kind = getattr(sys.modules.get(FSDP1), "FullyShardedDataParallel", None)
    found: list[tuple[Any, list[tuple[Any, slice]]]] = []
    for flat in {id(one): one for root in roots for one in _flat_ones(root, kind)}.values():
        try:
            own = flat._params or [None] * len(flat._param_infos)
            ends = list(accumulate(flat._numels_with_padding))
            runs = [
                slice(end - size, end)
                for end, size, padding in zip(ends, flat._numels_with_padding, flat._is_padding_mask, strict=True)
                if not padding
            ]
            found.append((flat, list(zip(own, runs, strict=True))))
        except Exception as error:  # another FSDP1 than we know
            signal_exceptions.let_through(error)
    return found


def _flat_ones(root: Any, kind: Any) -> Iterator[Any]:
    if kind is not None:
        for module in root.modules():
            handle = getattr(module, "_handle", None) if isinstance(module, kind) else None
            flat = getattr(handle, "flat_param", None)
            if flat is not None:
                yield flat


def _cut(model: int, flat: Any, names: dict[int, str], found: dict[int, list[Cut]]) -> None:
    own = flat._params
    for place, (info, part, shape) in enumerate(
        zip(flat._param_infos, flat._shard_param_infos, flat._shapes, strict=True)
    ):
        path = own_name(f"{names.get(id(info.module), '')}.{info.param_name}".lstrip("."))
        begin, size = (part.intra_param_start_idx, part.numel_in_shard) if part.in_shard else (0, 0)
        at = 0 if own is not None or not part.in_shard else part.offset_in_shard
        cut = Cut(model, path, tuple(shape), begin, slice(at, at + size))
        found.setdefault(id(own[place]) if own is not None else id(flat), []).append(cut)
