"""Which rows of a batch a tensor is: a slice shares its memory, and nothing has to be read."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ddpcheck.probes.recording.shapes import tensors


def taken(given: Any, handed: Sequence[weakref.ref[Any]]) -> list[int]:
    """Of the first tensor that is some rows of one that was handed out: the first, their distance, and how many."""
    batch = [one for ref in handed if (one := ref()) is not None and _is_plain(one)]
    for one in tensors(given):
        for whole in batch if _is_plain(one) else ():
            rows = _rows(one, whole)
            if rows:
                return rows
    return []


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"


def _rows(part: torch.Tensor, whole: torch.Tensor) -> list[int]:
    if part.shape[1:] != whole.shape[1:] or part.stride()[1:] != whole.stride()[1:] or not part.dim():
        return []
    width = int(whole.stride(0))
    if not 0 < len(part) < len(whole) or not width or part.dtype != whole.dtype:
        return []
    if part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
        return []
    first, rest = divmod(int(part.storage_offset()) - int(whole.storage_offset()), width)
    step, odd = divmod(int(part.stride(0)), width)
    inside = first >= 0 and first + step * (len(part) - 1) < len(whole)
    return [first, step if len(part) > 1 else 1, len(part)] if inside and not rest and not odd else []
