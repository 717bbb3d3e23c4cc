"""What a program measures its gradients by before a step, and by how much they are scaled until then.

Each measurement is a moment: the norms of all gradients are taken there, and
once more on entry to the step, at the first steps and now and then. On devices
they are computed there, and read later. Whose norm it was, a judge says.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import CLIPS, NOTHING, PAIRWISE, UNREAD, Call, How, Norm, packed
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.devices.device_numbers import together
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts.parallelised import FSDP1
from ddpcheck.probes.optimizers import few_elements, gradient_events
from ddpcheck.probes.optimizers.optimizer_state import plain_number
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.arguments import Arguments, places
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import around, once_imported
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_out_of_memory, is_tracing, overlooked

MOST_LOOKS = 128
"""Measurements of an optimizer's gradients before one step."""

MOST = 6
"""Moments before one step that are remembered."""

LARGE = 1 << 20
"""Elements from which on squares are not added up in double precision: that takes a copy."""

ALIKE, ROUNDED = 2e-3, 2e-2
"""By how much of itself the factors of two gradients may differ, and where they have 16 bits."""


class Facts(NamedTuple):
    """What is known of the gradients of one optimizer at a moment."""

    norms: list[float]
    power: float
    sample: few_elements.Sample | None
    rough: bool
    """Some of them have 16 bits."""

    @property
    def is_seen(self) -> bool:
        return any(one > 0 for one in self.norms)

    def factor_until(self, now: Facts) -> float | None:
        """The one number that all of it was multiplied by; None where there is none."""
        pairs = [(a, b) for a, b in zip(self.norms, now.norms, strict=True) if a != NOTHING or b != NOTHING]
        total = math.hypot(*(a for a, _ in pairs))
        if not 0 < total < math.inf or any(NOTHING in pair for pair in pairs):
            return None
        factors = [b / a for a, b in pairs if a > 1e-6 * total]
        middle = statistics.median(factors)
        nearly = (ROUNDED if self.rough else ALIKE) * middle
        if not middle > 0 or any(abs(one - middle) > nearly for one in factors):
            return None
        if self.sample is not None and now.sample is not None and any(self.sample):
            of_elements = few_elements.multiple(now.sample, self.sample)
            if of_elements is None or abs(of_elements - middle) > nearly:
                return None
        elif len(factors) < few_elements.ENOUGH:
            return None
        return math.hypot(*(b for _, b in pairs)) / total


def measured(parameters: Sequence[torch.Tensor], power: float = 2.0) -> Facts | Derived | None:
    """The gradients of these parameters; a device takes its time for that, and None stands for one that has failed."""
    gradients = [_readable(p.grad) for p in parameters]
    rough = any(one is not None and one.element_size() < 4 for one in gradients)
    norms = [_norm(one, power) for one in gradients]
    numbers = together([*norms, *few_elements.sample_anywhere(gradients)])
    if isinstance(numbers, Derived):
        return Derived(partial(_facts, len(gradients), power, rough), numbers)
    return _facts(len(gradients), power, rough, numbers)


def _facts(number: int, power: float, rough: bool, numbers: list[float | None]) -> Facts | None:
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers):
        return None
    return Facts(known[:number], power, tuple(known[number:]) or None, rough)


class _Measured(NamedTuple):
    facts: Facts | Derived
    number: int
    """Of parameters."""


class _Moment:
    """One measurement, of all optimizers that have gradients."""

    count = 0

    def __init__(self, how: How, site: int, of: dict[int, _Measured], power: float = 2.0, **more: Any) -> None:
        self.how, self.site, self.of, self.power, self.more = how, site, of, power, more
        self.backwards = _backwards
        """Those that had ended."""
        self.number = _Moment.count
        _Moment.count += 1
        self.scales: dict[int, float | Derived | None] = {}
        """What a scaler has divided an optimizer's gradients by since."""


_moments: list[_Moment] = []
_backward: _Moment | None = None
"""The end of the last one."""
_backwards = 0
"""The outermost ones that have ended."""
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
    around(torch.nn.utils, "clip_grads_with_norm_", partial(_around_helper, how="clip_grads_with_norm_"))
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        around(scaler, "unscale_", _around_unscale)
    once_imported(FSDP1, _watch_fsdp)
    gradient_events.records_where(_is_wanted)
    gradient_events.BACKWARD_ENDS.also(_backward_ended)
    gradient_events.COLLECTIVE.also(_exchanges)
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
            power = _power(given.get("norm_type"))
            if power is not None:
                more = {"largest": _number(given.get("max_norm")), "came": _number(given.get("total_norm"))}
                moment = _note(how, user_lines.here(), power, **more)
        _helping += 1
        try:
            result = original(*args, **kwargs)
        finally:
            _helping -= 1
        if moment is not None and result is not None:
            moment.more["came"] = _number(result)
        return result

    return measured


def _power(given: Any) -> float | None:
    """Of the norm that a function of torch's makes; None for one that is no norm."""
    try:
        power = 2.0 if given is None else float(given)
    except (TypeError, ValueError):
        return None
    return power if power > 0 else None


def _exchanges(exchange: Exchange, call: Call) -> Callable[[], None] | None:
    """A collective of the program's own begins; what to do when it is over, if it may be of a norm's parts."""
    if gradient_events.is_within_backward():
        if len(_joint) < MOST:
            _joint.add(call.group)
        return None
    number = exchange.objects if exchange.is_of_objects else next(iter(exchange.sent), None)
    if _helping or call.op in PAIRWISE or not _is_a_number(number):
        return None
    moment = _note("all_reduce" if exchange.kind == "all_reduce" else "exchange", call.site, group=call.group)
    if moment is None or exchange.kind != "all_reduce" or not call.waits:
        return None

    def is_over() -> None:
        moment.more["came"] = _number(number)

    return is_over


def _backward_ended() -> None:
    """Where nothing else is seen, gradients are measured here: those that lie on several ranks are whole by now."""
    global _backward, _backwards
    _backward = None
    _backwards += 1
    of = _measured(lambda number: _is_wanted(number) and not gradient_events.is_too_costly(number), shards=not _joint)
    if of:
        _backward = _Moment("backward", gradient_events.Running.site, of)


def _note(how: How, site: int, power: float = 2.0, **more: Any) -> _Moment | None:
    is_full = len(_moments) >= MOST
    # Of clips of tensor after tensor, the first ones are enough; of those of micro-batches, the last is the step's.
    if is_full and (how not in CLIPS or _moments[-1].backwards == _backwards):
        return None
    of = _measured(_is_wanted, power=power)
    if not of:
        return None
    moment = _Moment(how, site, of, power, **{name: value for name, value in more.items() if value is not None})
    if is_full:
        _moments.pop()
    _moments.append(moment)
    return moment


def _measured(wanted: Callable[[int], bool], shards: bool = False, power: float = 2.0) -> dict[int, _Measured]:
    """The gradients of the optimizers that are wanted; with ``shards``, of those alone that have some."""
    if gradient_events.is_quiet() or is_tracing() or asleep():
        return {}
    found: dict[int, _Measured] = {}
    for number, parameters in gradient_events.trained_here(wanted):
        if shards and not _has_shards(parameters):
            continue
        _looks[number] = _looks.get(number, 0) + 1
        facts = _looked(parameters, power)
        if isinstance(facts, Derived) or (facts is not None and facts.is_seen):
            found[number] = _Measured(facts, len(parameters))
    return found


def _looked(parameters: Sequence[torch.Tensor], power: float = 2.0) -> Facts | Derived | None:
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            return measured(parameters, power)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        overlooked("memory")
        return None


def _is_wanted(optimizer: int) -> bool:
    """Whether there will be a look at its next step; one that makes none is not looked at for ever."""
    return is_due(_steps.get(optimizer, 0)) and _looks.get(optimizer, 0) < MOST_LOOKS


def _has_shards(parameters: Sequence[torch.Tensor]) -> bool:
    return any(readable_memory.is_dtensor(p) or readable_memory.is_of_fsdp(p) for p in parameters)


def _around_unscale(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale_(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, optimizer, *args, **kwargs)
        scale = getattr(self, "_scale", None)
        if recorder.current() is not None and isinstance(scale, torch.Tensor) and not asleep():
            number = gradient_events.number_of(optimizer)
            moments = [one for one in _moments if number in one.of]
            known = _number(scale) if moments else None
            for moment in moments:
                moment.scales[number] = known
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
    if mine and number % writer.stride(Norm) == 0 and not is_tracing() and not asleep():
        now = {power: _looked(parameters, power) for power in {one.power for one in mine}}
        known = [one for one in mine if now[one.power] is not None and one.of[optimizer].number == len(parameters)]
        others = [one.of[optimizer].facts for one in known if one is not _backward and one.power == 2]
        for moment in known:
            record = partial(
                Norm,
                **writer.next(),
                optimizer=optimizer,
                number=number,
                how=moment.how,
                moment=moment.number,
                site=moment.site,
                power=moment.power,
                backwards_later=_backwards - moment.backwards,
                joint=sorted(_joint),
                step_site=site,
            )
            later_records.write(
                writer,
                partial(_made, record),
                before=moment.of[optimizer].facts,
                now=now[moment.power],
                others=others if moment is _backward else [],
                scale=moment.scales.get(optimizer),
                more=moment.more,
            )
    for moment in mine:
        del moment.of[optimizer]
    _moments[:] = [one for one in _moments if one.of]
    if not _moments:
        _joint.clear()


def _made(
    record: Callable[..., Norm],
    before: Facts | None,
    now: Facts | None,
    others: list[Facts | None],
    scale: float | None,
    more: dict[str, Any],
) -> Norm | None:
    """The record, where anything was seen; what was measured by the program says more than the end of backward()."""
    if before is None or now is None or not before.is_seen:
        return None
    factors = [one.factor_until(now) for one in others if one is not None and one.is_seen]
    if any(one is not None and abs(one - 1) > ALIKE for one in factors):
        return None
    known = {name: value for name, value in more.items() if value is not None}
    return record(norms=packed(before.norms), factor=before.factor_until(now), scale=scale, **known)


# --- numbers


def _readable(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """What of a gradient lies side by side in memory: of a DTensor, the part of this rank."""
    own = readable_memory.own_part(gradient) if gradient is not None else None
    if own is None or own.device.type not in readable_memory.LOOKED_AT or not own.dtype.is_floating_point:
        return None
    return readable_memory.in_a_row(own) if own.numel() else own


def _norm(gradient: torch.Tensor | None, power: float) -> float | torch.Tensor:
    """Of one gradient, on its device; NOTHING where there is none."""
    if gradient is None:
        return NOTHING
    if not gradient.numel():
        return 0.0
    if gradient.is_cuda:
        norm: torch.Tensor = torch.linalg.vector_norm(gradient, power, dtype=torch.float64)
        return norm
    kind = torch.float64 if gradient.numel() < LARGE else None if gradient.element_size() > 2 else torch.float32
    return float(torch.linalg.vector_norm(gradient, power, dtype=kind))


def _is_a_number(value: Any) -> bool:
    is_tensor = isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype.is_floating_point
    return is_tensor or isinstance(value, float)


def _number(value: Any) -> float | Derived | None:
    """A number, which a device may take its time for: of a DTensor it would be a part."""
    if isinstance(value, (int, float)):
        return float(value)
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.numel() != 1 or not value.is_floating_point():
        return None
    if value.is_cuda and asleep():
        return None
    found = plain_number(value, True)
    if isinstance(found, Derived):
        return Derived(_read, found)
    return _read(found)


def _read(number: float) -> float | None:
    return None if number == UNREAD else number
