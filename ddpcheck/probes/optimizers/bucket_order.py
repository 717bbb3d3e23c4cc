"""Which gradients a program has laid side by side in a bucket of its own, before it is added up over the ranks.

The bucket is new memory. Its elements say what they were copied from, as they
are, or divided by the number of ranks: in the first calls of a line, and now
and then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ddpcheck.evidence import BucketOrder, Call
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.collectives.process_groups import ranks_of
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import models
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

KINDS = ("all_reduce", "reduce")

MOST = 256
"""Gradients of one bucket, and lines that are followed."""
LARGE = 1 << 22
"""Elements of a bucket that is not looked at any more."""
COMPARED = 1 << 10
"""Elements of a gradient that are compared, at the most. For many, torch would want several threads: a fork of a
process that has had some waits for them forever.
"""

_calls: dict[int, int] = {}
"""By line, calls so far."""
_writer: recorder.Recorder | None = None
"""In whose file these lines have their numbers."""


def watch() -> None:
    """Look at them from now on."""
    gradient_events.COLLECTIVE.also(_reduces, KINDS)


def _reduces(exchange: Exchange, made: Call) -> None:
    writer, flat = recorder.current(), exchange.sent[0]
    if writer is None or flat.dim() != 1:
        return
    _begin_for(writer)
    number = _calls.get(made.site, 0)
    if not number and len(_calls) >= MOST:
        return
    _calls[made.site] = number + 1
    if not is_due(number) or not flat.is_floating_point() or not 1 < flat.numel() <= LARGE:
        return
    if readable_memory.memory(flat) is None or gradient_events.several_train():
        return
    with recorder.silence(), torch.no_grad():
        found = _pieces(writer, flat.detach(), len(ranks_of(exchange.group)))
    if found:
        model, paths = found
        writer.write(
            BucketOrder(**writer.next(), group=made.group, number=made.number, site=made.site, model=model, paths=paths)
        )


def _begin_for(writer: recorder.Recorder) -> None:
    global _writer
    if _writer is not writer:
        _writer = writer
        _calls.clear()


def _pieces(writer: recorder.Recorder, flat: torch.Tensor, ranks: int) -> tuple[int, list[str]] | None:
    """The model and the names of the gradients that fill the bucket; None where some of it is anything else."""
    places, gradients = [], []
    for place, parameter in models.trainable(models.places(writer)):
        gradient = parameter.grad
        if gradient is None or gradient.dtype != flat.dtype or not gradient.is_contiguous():
            continue
        if readable_memory.memory(gradient):
            places.append(place)
            gradients.append(gradient.detach().view(-1))
    if sum(one.numel() for one in gradients) < flat.numel():
        return None
    for factor in (1.0, 1.0 / ranks) if ranks > 1 else (1.0,):
        order = _order(flat, gradients, factor)
        if len(order) > 1 and len({places[at].model for at in order}) == 1:
            return places[order[0]].model, [places[at].path for at in order]
    return None


def _order(flat: torch.Tensor, gradients: Sequence[torch.Tensor], factor: float) -> list[int]:
    """The gradients that fill it from end to end, each of which fits where no other does; none where that is not so."""
    left = {at: one[0].item() * factor for at, one in enumerate(gradients) if one.numel()}
    order: list[int] = []
    begin = 0
    while begin < flat.numel() and len(order) < MOST:
        first = flat[begin].item()
        fitting = [
            at
            for at, value in left.items()
            if abs(value - first) <= 1e-5 * abs(first) and _fits(flat, begin, gradients[at], factor)
        ]
        if len(fitting) != 1:
            return []
        order += fitting
        del left[fitting[0]]
        begin += gradients[fitting[0]].numel()
    return order if begin == flat.numel() else []


def _fits(flat: torch.Tensor, begin: int, gradient: torch.Tensor, factor: float) -> bool:
    """Whether a gradient lies there, as far as some of its elements tell."""
    piece = flat[begin : begin + gradient.numel()]
    if len(piece) != len(gradient):
        return False
    some = -(-len(gradient) // COMPARED)
    return bool(torch.allclose(piece[::some], gradient[::some] * factor, rtol=1e-5, atol=0.0))
