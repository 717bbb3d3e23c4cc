"""Gradients that a program reduces when the step on them has been made already, and throws away then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ddpcheck.evidence import Call, LateReduction
from ddpcheck.probes.collectives.call_arguments import Arguments
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.optimizers import gradient_events, gradient_reuse
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.tensor_references import Reference, reference

OPS = ("all_reduce", "reduce")

MOST = 64
"""Gradients of one window that are followed."""


class _Late(NamedTuple):
    """A gradient that was reduced after the step on it."""

    parameter: Reference
    before: gradient_reuse.Sample | None
    """A few elements of the parameter: whether it was written to since."""
    optimizer: int
    number: int
    place: int
    site: int


class _Window:
    """From one backward() to the next."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        """By optimizer, the step that it is in."""
        self.made: dict[int, int] = {}
        """By optimizer, the step that it has made."""
        self.early: list[StorageWeakRef] = []
        """What was reduced before any of them."""
        self.late: list[_Late] = []


_window = _Window()


def watch() -> None:
    """Look at what is reduced from now on."""
    gradient_events.BACKWARD_BEGINS.also(_begins)
    gradient_events.STEP.also(_entered)
    gradient_events.STEPPED.also(_left)
    gradient_events.COLLECTIVE.also(_reduces, OPS)


def _entered(_: Any, optimizer: int, number: int, parameters: Sequence[torch.Tensor], __: int) -> None:
    _window.begun[optimizer] = number
    if _window.late:  # they are stepped on, after all
        mine = {id(one) for one in parameters}
        _window.late = [one for one in _window.late if id(one.parameter()) not in mine]


def _left() -> None:
    _window.made.update(_window.begun)


def _reduces(op: str, given: Arguments, made: Call) -> None:
    tensor = given.get("tensor")
    if not isinstance(tensor, torch.Tensor) or len(_window.early) + len(_window.late) >= MOST:
        return
    storage = readable_memory.storage(tensor)
    if storage is None:
        return
    if not _window.made:
        _window.early.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return
    it = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
    if any(one.cdata == it.cdata for one in _window.early):
        return
    for optimizer, parameters in gradient_events.trained_here(_is_wanted):
        for place, parameter in enumerate(parameters):
            gradient = parameter.grad
            if gradient is None or gradient.numel() > tensor.numel() or readable_memory.memory(gradient) is None:
                continue
            if StorageWeakRef(gradient.untyped_storage()).cdata == it.cdata:  # type: ignore[no-untyped-call]
                number = _window.made[optimizer]
                late = _Late(
                    reference(parameter), gradient_reuse.sample([parameter]), optimizer, number, place, made.site
                )
                _window.late.append(late)


def _is_wanted(optimizer: int) -> bool:
    return optimizer in _window.made and is_due(_window.made[optimizer])


def _begins(_: Any) -> None:
    """What was reduced since the step is there, and is added to; or it is gone."""
    global _window
    window, _window = _window, _Window()
    if gradient_events.several_train():  # what one of them has reduced, another one's backward() may be writing
        return
    writer = recorder.current()
    gone: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for late in window.late:
        parameter = late.parameter()
        # A parameter that was written to was moved by them: by hand, after the step.
        if parameter is None or late.before is None or gradient_reuse.sample([parameter]) != late.before:
            continue
        if _is_gone(parameter.grad):
            gone[late.optimizer, late.number, late.site].append(late.place)
    for (optimizer, number, site), places in gone.items() if writer is not None else ():
        assert writer is not None
        writer.write(
            LateReduction(**writer.next(), optimizer=optimizer, number=number, site=site, places=sorted(set(places)))
        )


def _is_gone(gradient: torch.Tensor | None) -> bool:
    if gradient is None:
        return True
    # As far as its first part, and some elements in the middle tell: a whole one would be looked at by several threads.
    return fast_digests.is_filled(gradient) and not any(gradient_reuse.elements(gradient) or [1.0])
