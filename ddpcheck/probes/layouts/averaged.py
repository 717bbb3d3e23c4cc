"""Over which ranks FSDP reduces a parameter's gradient, and by what it divides their sum, as is declared."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from ddpcheck.probes.layouts import models
from ddpcheck.probes.recording.tensor_references import reference


class Averaged:
    """What one call has said of the parameters that it has sharded."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks = ranks
        self.divisor = float(len(ranks))


_by_parameter: dict[int, Averaged] = {}
_by_module: weakref.WeakKeyDictionary[Any, Averaged] = weakref.WeakKeyDictionary()


def note(module: Any, ranks: tuple[int, ...]) -> None:
    """A module is sharded: what of it was not sharded before is reduced over these ranks."""
    modules = module if isinstance(module, (list, tuple)) else [module]
    one = Averaged(ranks)
    for part in modules:
        _by_module[part] = one
        for parameter in part.parameters():
            if id(parameter) not in _by_parameter and not models.is_ignored(parameter):
                _by_parameter[id(parameter)] = one
                reference(parameter).when_gone(partial(_by_parameter.pop, id(parameter), None))


def set_divisor(module: Any, divisor: float) -> None:
    """The program has said by what to divide."""
    if module in _by_module:
        _by_module[module].divisor = divisor


def of(parameter: torch.Tensor) -> Averaged | None:
    """What is declared for a parameter; None where FSDP does not reduce it, or nobody knows over which ranks."""
    known = _by_parameter.get(id(parameter))
    return known if known is not None and known.ranks else None
