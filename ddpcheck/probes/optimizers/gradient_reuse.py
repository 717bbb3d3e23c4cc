"""What becomes of gradients: each is to be stepped on once, and neither again nor not at all.

Whether two sets of gradients are the same but for a factor (a clip, a scale)
is told by a few of their elements. On an accelerator these would have to be
waited for: there, nothing is reported of that.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Sequence
from typing import Any

import torch

from ddpcheck.evidence import NO_SITE, Spent
from ddpcheck.probes.digests import readable_memory

SAMPLED, ELEMENTS = 4, 8
"""How many tensors are looked at, and how many elements in the middle of each."""
ENOUGH = 3
"""Elements other than zero that have to be in one ratio: so many are not by chance."""
_FORMATS = {torch.float32: "f", torch.float64: "d", torch.float16: "e"}

Tensors = Collection[torch.Tensor | None]
Sample = tuple[float, ...]


class Passes:
    """What brings new gradients about, in all threads of this process."""

    count = 0
    stepping = False
    """A step is under way: what it computes for itself is its own business."""


class Reduced:
    """The gradients of one wrapper, from one reduction to the next."""

    def __init__(self) -> None:
        self.site = NO_SITE
        """The backward() that they were reduced in last."""
        self.pending = False
        """They are there, and no step was made since."""
        self.gradients: Sample | None = None
        """As that backward() has left them."""
        self.parameters: Sample | None = None
        """As the last step has left them."""
        self.of_inputs = False
        """The last forward was given inputs that require a gradient: its backward() may be made for theirs alone."""
        self._for_inputs = False
        """So it was with the forward of the last backward()."""
        self.dropped: list[int] = []
        """Since then: each backward() whose gradients were gone before the next one began."""

    def backward_begins(self, parameters: Tensors) -> None:
        """New gradients are computed. If those before are gone, no step was made on them."""
        if not self.pending or Passes.stepping or not are_gone(parameters):
            return
        self.pending = False
        # Parameters that have moved were moved by them: by hand, or as an optimizer looks ahead.
        if not self._for_inputs and self.parameters is not None and sample(parameters) == self.parameters:
            self.dropped.append(self.site)

    def backward_ended(self, parameters: Tensors, site: int, look: bool) -> None:
        """It has reduced them."""
        self.site = site
        self._for_inputs = self.of_inputs
        self.pending = not Passes.stepping and not are_gone(parameters)
        self.gradients = sample(gradients(parameters)) if look and self.pending else None

    def stepped(self, parameters: Tensors, look: bool) -> None:
        """A step was made."""
        self.dropped = []
        self.parameters = sample(parameters) if look else None


class Spending:
    """What the steps of one optimizer have made of gradients so far."""

    def __init__(self) -> None:
        self._passes = 0
        self._new: Sample | None = None
        """What the step before was made on, if it was the first on that."""
        self._tally = dict.fromkeys(Spent.__struct_fields__, 0)

    def begins(self, of_optimizer: Tensors, reduced: Sequence[tuple[Reduced, Tensors]], look: bool) -> Spent | None:
        """A step is about to be made; what there is to tell of this one and all before, if there is anything.

        ``reduced`` are the wrappers that it steps for, each with its parameters.
        """
        now = sample(gradients(of_optimizer)) if look else None
        new = Passes.count > self._passes
        self._passes = Passes.count
        if self._new is not None and (new or now is not None):
            again = not new and now is not None and is_multiple(now, self._new)
            self._count(followed=True, again=again, other=not new and not again)
        self._new = now if new else None
        for one, parameters in reduced if look else ():
            if one.pending:
                self._count(reduced=True, emptied=are_gone(parameters))
            if one.parameters is not None and one.gradients is not None and new:
                mine = sample(gradients(parameters))
                alone = mine is not None and is_multiple(mine, one.gradients)
                self._count(windows=True, dropped=alone and one.site in one.dropped)
        told = any(self._tally[name] for name in ("again", "emptied", "dropped"))
        return Spent(**self._tally) if told else None

    def _count(self, **seen: bool) -> None:
        for name, so in seen.items():
            self._tally[name] += so


def gradients(parameters: Tensors) -> list[torch.Tensor | None]:
    return [None if one is None else one.grad for one in parameters]


def are_gone(parameters: Tensors) -> bool:
    """Whether there are no gradients, or zeros alone, as far as that can be seen."""
    for one in parameters:
        gradient = None if one is None else one.grad
        if gradient is not None:
            values = elements(gradient)
            if values is None or any(values):
                return False
    return True


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
