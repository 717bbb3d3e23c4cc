"""The shapes of the tensors in what a loader hands out, or in what goes into a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch

MOST = 16
"""Tensors of one batch."""
_DEEPEST = 4


def shapes(value: Any) -> list[list[int]]:
    """The shapes of the first tensors in a value."""
    return [list(one.shape) for one in islice(tensors(value), MOST)]


def tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in a value, in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for one in value.values():
            yield from tensors(one, depth + 1)
    elif depth < _DEEPEST and isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one, depth + 1)
