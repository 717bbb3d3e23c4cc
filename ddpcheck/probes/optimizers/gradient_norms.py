"""What a program measures its gradients by before a step, and by how much they are scaled until then.

Each measurement is a moment: the squares of all gradients are taken there, and
once more on entry to the step. Only what lies in the CPU's memory is looked
at, at the first steps and now and then. Whose norm it was, a judge says.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ddpcheck.evidence import NOTHING, UNREAD, Call, How, Norm, packed
from ddpcheck.probes.collectives.call_arguments import Arguments, places
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts.parallelised import FSDP1
from ddpcheck.probes.optimizers import gradient_events, gradient_reuse
from ddpcheck.probes.optimizers.optimizer_state import plain_number
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import around, once_imported
from ddpcheck.probes.recording.unwatchable_moments import is_tracing

CLIPS = ("clip_grad_norm_", "FSDP.clip_grad_norm_")

MOST_LOOKS = 128
"""Measurements of an optimizer's gradients before one step."""

MOST = 6
"""Moments before one step that are remembered."""

LARGE = 1 << 20
"""Elements from which on squares are not added up in double precision: that takes a copy."""

ALIKE, ROUNDED = 2e-3, 2e-2
"""By how much of itself the factors of two gradients may differ, and where they have 16 bits."""


class _Measured:
    """The gradients of one optimizer at a moment."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        gradients = [_readable(p.grad) for p in parameters]
        self.squares = _squares(gradients)
        self.sample = gradient_reuse.sample(gradients)
        self.rough = any(one is not None and one.element_size() < 4 for one in gradients)

    @property
    def is_seen(self) -> bool:
        return any(one > 0 for one in self.squares)

    def factor_until(self, now: _Measured) -> float | None:
        """The one number that all of it was multiplied by; None where there is none."""
        pairs = [(a, b) for a, b in zip(self.squares, now.squares, strict=True) if a != NOTHING or b != NOTHING]
        total = sum(a for a, _ in pairs)
        if not total > 0 or any(NOTHING in pair for pair in pairs) or total == float("inf"):
            return None
        factors = [(b / a) ** 0.5 for a, b in pairs if a > 1e-12 * total]
        middle = statistics.median(factors)
        nearly = (ROUNDED if self.rough else ALIKE) * middle
        if not middle > 0 or any(abs(one - middle) > nearly for one in factors):
            return None
        if self.sample is not None and now.sample is not None and any(self.sample):
            if not gradient_reuse.is_multiple(now.sample, self.sample):
                return None
        elif len(factors) < gradient_reuse.ENOUGH:
            return None
        return float((sum(b for _, b in pairs) / total) ** 0.5)


class _Moment:
    """One measurement, of all optimizers that have gradients."""

    def __init__(self, how: How, site: int, of: dict[int, _Measured], **more: Any) -> None:
        self.how, self.site, self.of, self.more = how, site, of, more
        self.scales: dict[int, float] = {}
        """What a scaler has divided an optimizer's gradients by since."""


_moments: list[_Moment] = []
_backward: _Moment | None = None
"""The end of the last one."""
_steps: dict[int, int] = {}
"""By optimizer, the steps that it has made."""
_looks: dict[int, int] = {}
"""By optimizer, how often its gradients were measured since its last step."""
_joint: set[str] = set()
_helping = 0
"""Functions of torch's that are under way: one may call another, and collectives of its own."""


def watch() -> None:
    """See from now on what gradients are measured by."""
    clip = torch.nn.utils.clip_grad
    around(clip, "clip_grad_norm_", partial(_around_helper, how="clip_grad_norm_"))
    around(torch.nn.utils, "get_total_norm", partial(_around_helper, how="get_total_norm"))
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        around(scaler, "unscale_", _around_unscale)
    once_imported(FSDP1, _watch_fsdp)
    gradient_events.BACKWARD_ENDS.also(_backward_ended)
    gradient_events.COLLECTIVE.also(_reduces)
    gradient_events.STEP.also(_entered)


def _watch_fsdp() -> None:
    kind = getattr(sys.modules.get(FSDP1), "FullyShardedDataParallel", None)
    around(kind, "clip_grad_norm_", partial(_around_helper, how="FSDP.clip_grad_norm_"))


# --- moments


def _around_helper(original: Callable[..., Any], how: How) -> Callable[..., Any]:
    known = places(original)

    def measured(*args: Any, **kwargs: Any) -> Any:
        global _helping
        writer = recorder.current()
        moment = None
        if writer is not None and not _helping:
            if how in CLIPS:
                gradient_events.CLIPPED.tell(user_lines.here())
            given = Arguments(known, args, kwargs)
            norm = given.get("norm_type")
            if norm is None or norm == 2:
                moment = _note(how, user_lines.here(), largest=_number(given.get("max_norm")))
        _helping += 1
        try:
            result = original(*args, **kwargs)
        finally:
            _helping -= 1
        if moment is not None:
            moment.more["came"] = _number(result)
        return result

    return measured


def _reduces(op: str, given: Arguments, call: Call) -> Callable[[], None] | None:
    """A collective of the program's own begins; what to do when it is over, if it may be the sum of a norm's parts."""
    if gradient_events.is_within_backward():
        if len(_joint) < MOST:
            _joint.add(call.group)
        return None
    tensor = given.get("tensor")
    if op != "all_reduce" or _helping or not call.waits or not _is_a_number(tensor) or not _is_sum(given.get("op")):
        return None
    put = _number(tensor)
    moment = _note("all_reduce", call.site, given=put, group=call.group) if put is not None else None
    if moment is None:
        return None

    def is_over() -> None:
        moment.more["came"] = _number(tensor)

    return is_over


def _backward_ended() -> None:
    """Where nothing else is seen, gradients are measured here: those that lie on several ranks are whole by now."""
    global _backward
    _backward = None
    of = _measured(lambda parameters: bool(_joint) or _has_shards(parameters))
    if of:
        _backward = _Moment("backward", gradient_events.Running.site, of)


def _note(how: How, site: int, **more: Any) -> _Moment | None:
    if len(_moments) >= MOST:
        return None
    of = _measured()
    if not of:
        return None
    moment = _Moment(how, site, of, **{name: value for name, value in more.items() if value is not None})
    _moments.append(moment)
    return moment


def _measured(wanted: Callable[[Sequence[torch.Tensor]], bool] = lambda _: True) -> dict[int, _Measured]:
    """The gradients of the optimizers at whose next steps there will be a look, as far as they are wanted."""
    if is_tracing():
        return {}
    found: dict[int, _Measured] = {}
    for number, parameters in gradient_events.trained_here(_is_wanted):
        if not wanted(parameters):
            continue
        _looks[number] = _looks.get(number, 0) + 1
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            measured = _Measured(parameters)
        if measured.is_seen:
            found[number] = measured
    return found


def _is_wanted(optimizer: int) -> bool:
    """Whether there will be a look at its next step; one that makes none is not looked at for ever."""
    return is_due(_steps.get(optimizer, 0)) and _looks.get(optimizer, 0) < MOST_LOOKS


def _has_shards(parameters: Sequence[torch.Tensor]) -> bool:
    return any(readable_memory.is_dtensor(p) or readable_memory.is_of_fsdp(p) for p in parameters)


def _around_unscale(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale_(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, optimizer, *args, **kwargs)
        scale = getattr(self, "_scale", None)
        if recorder.current() is not None and isinstance(scale, torch.Tensor) and scale.is_cpu:
            number = gradient_events.number_of(optimizer)
            for moment in _moments:
                if number in moment.of:
                    moment.scales[number] = float(plain_number(scale, True))  # type: ignore[arg-type]
        return result

    return unscale_


# --- the step


def _entered(
    writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], site: int
) -> None:
    """A step begins: what was measured before it is written down, with what became of it."""
    global _backward
    mine = [one for one in (*_moments, _backward) if one is not None and optimizer in one.of]
    _steps[optimizer] = number + 1
    _looks.pop(optimizer, None)
    gradient_events.forget_gone(_steps)
    if mine and number % writer.stride(Norm) == 0 and not is_tracing():
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            now = _Measured(parameters)
        scaled = False
        for moment in mine:
            before = moment.of[optimizer]
            if len(before.squares) != len(now.squares) or (moment is _backward and scaled):
                continue
            factor = before.factor_until(now)
            scaled |= factor is not None and abs(factor - 1) > ALIKE
            writer.write(
                Norm(
                    **writer.next(),
                    optimizer=optimizer,
                    number=number,
                    how=moment.how,
                    site=moment.site,
                    squares=packed(before.squares),
                    factor=factor,
                    scale=moment.scales.get(optimizer),
                    joint=sorted(_joint),
                    step_site=site,
                    **moment.more,
                )
            )
    for moment in mine:
        del moment.of[optimizer]
    _moments[:] = [one for one in _moments if one.of]
    if not _moments:
        _joint.clear()


# --- numbers


def _readable(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """What of a gradient lies side by side in the CPU's memory: of a DTensor, the part of this rank."""
    own = readable_memory.own_part(gradient) if gradient is not None else None
    if own is None or readable_memory.memory(own) is None or not own.dtype.is_floating_point:
        return None
    return own


def _squares(gradients: Sequence[torch.Tensor | None]) -> list[float]:
    found = []
    for one in gradients:
        if one is None:
            found.append(NOTHING)
        elif not one.numel():
            found.append(0.0)
        else:
            kind = torch.float64 if one.numel() < LARGE else None if one.element_size() > 2 else torch.float32
            found.append(float(torch.linalg.vector_norm(one.detach(), dtype=kind)) ** 2)
    return found


def _is_a_number(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.numel() == 1 and tensor.dtype.is_floating_point


def _is_sum(op: Any) -> bool:
    return op is None or op == torch.distributed.ReduceOp.SUM


def _number(value: Any) -> float | None:
    """A number, if it can be read without waiting: of a DTensor it would be a part."""
    if isinstance(value, (int, float)):
        return float(value)
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or not value.is_cpu or value.numel() != 1:
        return None
    found = plain_number(value, True)
    return float(found) if isinstance(found, float) and found != UNREAD else None
