"""A few elements of tensors: whether two sets of gradients are the same but for a factor, as a clip or a scale."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection
from typing import Any

import torch

from ddpcheck.probes.digests import readable_memory

SAMPLED, ELEMENTS = 4, 8
"""How many tensors are looked at, and how many elements in the middle of each."""
ENOUGH = 3
"""Elements other than zero that have to be in one ratio: so many are not by chance."""
_FORMATS = {torch.float32: "f", torch.float64: "d", torch.float16: "e"}

Tensors = Collection[torch.Tensor | None]
Sample = tuple[float, ...]


def sample(tensors: Tensors) -> Sample | None:
    """A few elements of some of these; None where there are none, or none that can be read."""
    values: list[float] = []
    for one in _chosen(tensors):
        read = elements(one)
        if read is None:
            return None
        values += read
    return tuple(values) if values else None


def _chosen(tensors: Tensors) -> list[torch.Tensor]:
    found = [one for one in tensors if one is not None]
    return found if len(found) <= SAMPLED else [found[len(found) * k // SAMPLED] for k in range(SAMPLED)]


def sample_anywhere(tensors: Tensors) -> list[Any]:
    """The same elements, those on devices as tensors that are still to be read; nothing where some cannot be."""
    values: list[Any] = []
    for one in _chosen(tensors):
        plain = readable_memory.in_a_row(one) if one.is_cuda and one.dtype in _FORMATS else None
        read = _in_the_middle(plain) if plain is not None else elements(one)
        if read is None:
            return []
        values += read
    return values


def _in_the_middle(plain: torch.Tensor) -> list[torch.Tensor]:
    number = min(ELEMENTS, plain.numel())
    start = (plain.numel() - number) // 2
    return list(plain.view(-1)[start : start + number].double().unbind())


def is_multiple(one: Sample, other: Sample) -> bool:
    """Whether one is the other, times a factor above zero."""
    return multiple(one, other) is not None


def multiple(one: Sample, other: Sample) -> float | None:
    """The factor above zero by which one is the other; None where it is not."""
    largest = max(range(len(other)), key=lambda place: abs(other[place]))
    if len(one) != len(other) or sum(map(bool, other)) < ENOUGH or not other[largest]:
        return None
    factor = one[largest] / other[largest]
    nearly = 1e-3 * factor * abs(other[largest])
    is_so = factor > 0 and all(abs(a - factor * b) <= nearly for a, b in zip(one, other, strict=True))
    return factor if is_so else None


def elements(tensor: Any) -> list[float] | None:
    """Some elements in the middle."""
    form = _FORMATS.get(tensor.dtype)
    lies = readable_memory.memory(tensor) if form else None
    if lies is None or form is None:
        return None
    start, size = lies
    width = struct.calcsize(form)
    number = min(ELEMENTS, size // width)
    middle = start + (size // width - number) // 2 * width
    return list(struct.unpack(f"{number}{form}", ctypes.string_at(middle, number * width)))
