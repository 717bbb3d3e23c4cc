"""Which parameters are written to between one step of their optimizer and the next: by an average, a swap, a load.

A few elements of each are read when a step is over, and when the next one
begins: at the first steps of an optimizer, and now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ddpcheck.evidence import MovedBetween
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.optimizers import few_elements, gradient_events
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

MOST = 1 << 12
"""Parameters of one optimizer."""

Looked = list[list[float] | None]
"""A few elements of each parameter; None of one that cannot be read without waiting."""

_begun: dict[int, int] = {}
"""By optimizer, the step that it is in."""
_left: dict[int, tuple[int, Looked]] = {}
"""By optimizer, the step that comes, and what the one before has left."""


def watch() -> None:
    """Look at them from now on."""
    gradient_events.STEP.also(_entered)
    gradient_events.STEPPED.also(_ended)


def _entered(
    writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], site: int
) -> None:
    coming, before = _left.pop(optimizer, (0, []))
    _begun[optimizer] = number
    gradient_events.forget_gone(_left)
    if coming != number or len(before) != len(parameters) or all(one is None for one in before):
        return
    now = _look(parameters)
    moved = [place for place, one in enumerate(before) if one is not None and now[place] != one]
    writer.write(MovedBetween(**writer.next(), optimizer=optimizer, number=number, moved=moved))


def _ended() -> None:
    for optimizer, parameters in gradient_events.optimizers(_is_wanted):
        _left[optimizer] = _begun[optimizer] + 1, _look(parameters)
    _begun.clear()


def _is_wanted(optimizer: int) -> bool:
    return optimizer in _begun and is_due(_begun[optimizer] + 1)


def _look(parameters: Sequence[torch.Tensor]) -> Looked:
    found: Looked = []
    for one in parameters if len(parameters) <= MOST else ():
        own = readable_memory.own_part(one)
        found.append(few_elements.elements(own) if own is not None and own.numel() else None)
    return found
