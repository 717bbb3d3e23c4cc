"""What goes into collectives during an optimizer's step, piece by piece: buffers that were filled with its tensors.

An optimizer that deals its parameters out to the ranks stacks gradients of one
shape, has each owner get the sum of its own, and gathers what the owners have
made of them. Such buffers share no memory with a parameter; they hold its elements.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ddpcheck.evidence import Call, Filled
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.optimizers import gradient_events, steps
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

KINDS = ("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor")

MOST = 1 << 12
"""Pieces of one call that are looked at."""


class _Step:
    """The step that is under way."""

    def __init__(self, optimizer: int, number: int, parameters: Sequence[torch.Tensor]) -> None:
        self.optimizer, self.number = optimizer, number
        self.shapes = {tuple(p.shape) for p in parameters if not readable_memory.unseen(p) and p.dim()}


class _Now:
    step: _Step | None = None


def watch() -> None:
    """Look at them from now on."""
    gradient_events.STEP.also(_entered)
    gradient_events.STEPPED.also(_left)
    gradient_events.COLLECTIVE.also(_gives, KINDS)


def _entered(_: Any, optimizer: int, number: int, parameters: Sequence[torch.Tensor], __: int) -> None:
    _Now.step = _Step(optimizer, number, parameters) if is_due(number) else None


def _left() -> None:
    _Now.step = None


def _gives(exchange: Exchange, made: Call) -> None:
    step, writer = _Now.step, recorder.current()
    if step is None or writer is None:
        return
    if not steps.is_within_step(sys._getframe()):  # it has failed, and torch says nothing of that
        return
    with recorder.silence():
        pieces = list(_pieces(exchange.sent, step.shapes))
        if not pieces or len(pieces) > MOST:
            return
        record = partial(
            Filled,
            **writer.next(),
            optimizer=step.optimizer,
            number=step.number,
            op="gather" if "gather" in exchange.kind else "scatter",
            group=made.group,
            site=made.site,
        )
        later_records.write(writer, record, pieces=fast_digests.queued(pieces))


def _pieces(tensors: Sequence[torch.Tensor], shapes: set[tuple[int, ...]]) -> Iterator[torch.Tensor]:
    """Those of a parameter's shape, or each of those that are stacked in one."""
    for one in tensors:
        if not one.is_floating_point() or readable_memory.unseen(one):
            continue
        if tuple(one.shape) in shapes:
            yield one.detach()
        elif one.dim() > 1 and tuple(one.shape[1:]) in shapes:
            yield from one.detach().unbind(0)
