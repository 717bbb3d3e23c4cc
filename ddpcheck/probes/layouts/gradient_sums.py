"""A few linear sums of some gradients, as backward() leaves them and as a step is made on them.

They scale and add up over ranks as the gradients do: what was done to these
between the two, by whatever collectives and divisions, can be worked out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist

from ddpcheck.evidence import GradientSums, Sums
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.devices.device_numbers import Fetched, sent
from ddpcheck.probes.devices.device_objects import Held, forever
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.layouts import averaged, models
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.tensor_references import Reference, reference

MOST = 24
"""Parameters that are looked at; of those that one wrapper reduces, the first few."""
OF_ONE_WRAPPER = 2
ELEMENTS, NUMBERS = 1 << 12, 6
"""Elements of a gradient that are looked at, and the sums that are made of them."""


class _Picked(NamedTuple):
    """A parameter whose gradient is looked at."""

    parameter: Reference
    model: int
    path: str
    kind: str
    declared: averaged.Averaged | None


class _Looks:
    """What was picked, and the last look after a backward()."""

    def __init__(self) -> None:
        self.writer: recorder.Recorder | None = None
        self.models = 0
        self.picked: list[_Picked] = []
        self.window = -1
        self.left: Held[list[torch.Tensor | None]] | None = None


_looks = _Looks()
_factors: dict[torch.device, torch.Tensor] = {}


def after_backward(writer: recorder.Recorder, window: int) -> None:
    """A backward() has ended: what it has left counts, if no other one comes before the step."""
    if window % writer.stride(GradientSums):
        return
    _pick(writer)
    _looks.window = window
    _looks.left = Held([_sums_of(one.parameter()) for one in _looks.picked])


def at_step(writer: recorder.Recorder, window: int, optimizer: int, parameters: Sequence[torch.Tensor]) -> None:
    """A step begins on these gradients."""
    if _looks.writer is not writer or _looks.window != window or window % writer.stride(GradientSums):
        return
    if _looks.left is not None:
        _write(writer, window, None, _looks.picked, _looks.left.thing)
        _looks.left = None
    here = {id(one) for one in parameters}
    picked = [one for one in _looks.picked if (p := one.parameter()) is not None and id(p) in here]
    if picked:
        _write(writer, window, optimizer, picked, [_sums_of(one.parameter()) for one in picked])


def _write(
    writer: recorder.Recorder,
    window: int,
    optimizer: int | None,
    picked: list[_Picked],
    sums: list[torch.Tensor | None],
) -> None:
    each = [
        Derived(partial(_told, one), Fetched(numbers) if numbers is not None else None)
        for one, numbers in zip(picked, sums, strict=True)
    ]
    record = partial(GradientSums, **writer.next(), window=window, optimizer=optimizer)
    later_records.write(writer, record, each=each)


def _told(one: _Picked, numbers: list[float] | None) -> Sums:
    over, divisor = (list(one.declared.ranks), one.declared.divisor) if one.declared is not None else ([], 0.0)
    return Sums(model=one.model, path=one.path, kind=one.kind, numbers=numbers, over=over, divisor=divisor)


# --- which parameters


def _pick(writer: recorder.Recorder) -> None:
    """Choose anew where there are other models, or parameters of theirs are gone: the same ones on every rank."""
    same = _looks.writer is writer and _looks.models == models.number()
    if same and all(one.parameter() is not None for one in _looks.picked):
        return
    _looks.writer, _looks.models = writer, models.number()
    known = models.places(writer)
    by_wrapper: dict[int, list[_Picked]] = {}
    alone: list[_Picked] = []
    for place, parameter in models.trainable(known):
        declared = averaged.of(parameter) or _of_wrapper(parameter)
        one = _Picked(reference(parameter), place.model, place.path, fast_digests.kind(parameter), declared)
        if declared is None:
            alone.append(one)
        elif len(its := by_wrapper.setdefault(id(declared), [])) < OF_ONE_WRAPPER:
            its.append(one)
    reduced = [one for its in by_wrapper.values() for one in its]
    stride = max(1, -(-len(alone) // MOST))
    _looks.picked = reduced[:MOST] + alone[::stride]


_wrapped: dict[int, averaged.Averaged] = {}
"""By the number of a DDP wrapper."""


def _of_wrapper(parameter: torch.Tensor) -> averaged.Averaged | None:
    """What DDP does with it: the mean over the wrapper's group."""
    owner = WRAPPERS.owner(parameter)
    if owner is None or not WRAPPERS.is_reduced(parameter):
        return None
    wrapper = owner[1]
    if wrapper.number not in _wrapped:
        names = wrapper.group.partition("#")[0].split(",")
        ranks = tuple(map(int, names)) if names[0].isdigit() else tuple(range(dist.get_world_size()))
        _wrapped[wrapper.number] = averaged.Averaged(ranks)
    return _wrapped[wrapper.number]


# --- the sums


def _sums_of(parameter: torch.Tensor | None) -> torch.Tensor | None:
    """A few numbers, on the device of the gradient: nothing here waits for it."""
    gradient = parameter.grad if parameter is not None else None
    own = readable_memory.own_part(gradient) if gradient is not None else None
    if own is None or own.device.type not in ("cpu", "cuda") or not own.numel() or own.is_complex():
        return None
    try:
        with torch.no_grad():
            flat = own.detach().as_strided((own.numel(),), (1,)) if own.is_contiguous() else own.detach().flatten()
            some = flat[:: -(-own.numel() // ELEMENTS)].double()
            return (some[:, None] * _factors_on(some.device)[: some.numel()]).sum(0)
    except Exception as error:  # sparse, quantized, of a class of its own
        signal_exceptions.let_through(error)
        return None


def _factors_on(device: torch.device) -> torch.Tensor:
    """For each element what it is multiplied by in each sum: the same in every process, and drawn from no stream."""
    known = _factors.get(device)
    if known is None:
        # Not by torch, whose sqrt() wants several threads: in a fork of a process that had some, it waits forever.
        numbers = [math.sqrt(place) * 997 % 1 - 0.5 for place in range(1, ELEMENTS * NUMBERS + 1)]
        every = torch.tensor(numbers, dtype=torch.float64, device="cpu").view(ELEMENTS, NUMBERS)
        known = _factors[device] = forever(sent(every, device))
    return known
