"""The loss of every backward(), as far as it is one number: whether it is NaN or infinite, in every window.

On a device its value is copied where it is, and sent with others: nobody waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from ddpcheck.evidence import Losses, NotFinite
from ddpcheck.probes.devices.device_events import stream_of
from ddpcheck.probes.devices.device_numbers import together
from ddpcheck.probes.digests.readable_memory import has_own_dispatch, own_part
from ddpcheck.probes.moments import forward_values, windows
from ddpcheck.probes.moments.forward_values import Forwards
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import endings, later_records
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_out_of_memory, is_tracing, overlooked

EACH = 64
"""Losses that are written down together at least, as long as all are finite."""

OFTEN = 16
"""And no more often than this part of all so far."""

UNSTEPPED = 1024
"""Losses that wait for a step."""

TOLD = 2
"""Losses, NaN or infinite one after another, of which each is written down as soon as it is known."""

MOST_LINES = 64


class _Loss:
    """One that is not on record yet."""

    def __init__(self, value: float | torch.Tensor, forwards: Forwards | None) -> None:
        self.value, self.stream = value, stream_of(value)
        is_read = forwards is not None and forwards.streams <= {self.stream}
        self.forwards = forwards if is_read else None
        self.site, self.backward = gradient_events.Running.site, windows.backwards()
        self.step: tuple[int, int] | None = None
        """The optimizer, and its step that was made next."""


class _Stepped(NamedTuple):
    """What is kept of a loss while its value is on its way."""

    site: int
    backward: int
    step: tuple[int, int] | None
    forwards: Forwards | None
    places: slice
    """Where the numbers of these lie."""


class _Seen:
    """What is known of the losses of one process."""

    def __init__(self, writer: recorder.Recorder | None) -> None:
        self.writer = writer
        self.waiting: list[_Loss] = []
        self.unstepped = 0
        """The first of these on which no step has been made."""
        self.met = 0
        self.told = 0
        """Of those that were met, how many are on record."""
        self.unlike: dict[tuple[int, int], NotFinite] = {}
        """By line and optimizer."""
        self.usual: set[str] | None = None
        """The modules that make numbers which are not finite although the loss is; None while no such loss is known."""

    def note(self, writer: recorder.Recorder, loss: torch.Tensor, forwards: Forwards | None) -> None:
        """Take a loss's value, where that needs no wait."""
        self.met += 1
        value = _value(loss)
        if value is not None:
            self.waiting.append(_Loss(value, forwards))
            if len(self.waiting) >= UNSTEPPED:
                self.write(writer)

    def stepped(self, writer: recorder.Recorder, optimizer: int, number: int) -> None:
        """A step is made on what the losses since the last one have contributed."""
        new, self.unstepped = self.waiting[self.unstepped :], len(self.waiting)
        for one in new:
            one.step = optimizer, number
        if len(self.waiting) >= max(EACH, self.met // OFTEN) or any(map(self._is_news, new)):
            self.write(writer)

    def _is_news(self, loss: _Loss) -> bool:
        """Whether a loss of the host's is not finite, and not long known for that."""
        before = None if loss.step is None else self.unlike.get((user_lines.line_alone(loss.site), loss.step[0]))
        times = before.times if before is not None else 0
        return isinstance(loss.value, float) and not math.isfinite(loss.value) and times < TOLD

    def write(self, writer: recorder.Recorder) -> None:
        """Write down what was noted until now, once it is there."""
        # What another stream is computing may not be there when this one comes to it.
        known = [one for one in self.waiting if one.stream == stream_of(one.value)]
        values: list[float | torch.Tensor] = [one.value for one in known]
        steps = []
        for one in known:
            own = one.forwards.numbers if one.forwards is not None else []
            steps.append(
                _Stepped(one.site, one.backward, one.step, one.forwards, slice(len(values), len(values) + len(own)))
            )
            values += own
        record = partial(self._made, partial(Losses, **writer.next(), met=self.met - self.told), steps)
        self.waiting, self.unstepped, self.told = [], 0, self.met
        later_records.write(writer, record, values=together(values))

    def _made(self, record: Any, steps: Sequence[_Stepped], values: Sequence[float | None]) -> Losses:
        finite = lost = 0
        for one, value in zip(steps, values, strict=False):
            if value is None:
                continue
            if math.isfinite(value):
                finite += 1
                self._forget(one)
                if one.forwards is not None:
                    self.usual = (self.usual or set()) | one.forwards.usual(values[one.places])
                continue
            lost += 1
            if one.step is not None:
                self._add(one, value, values[one.places], *one.step)
        made: Losses = record(finite=finite, lost=lost, unlike=list(self.unlike.values()))
        return made

    def _forget(self, one: _Stepped) -> None:
        """A loss is finite: those of steps before it have done no harm, if their line is the same, or comes no more."""
        if one.step is None:
            return
        line, (optimizer, number) = user_lines.line_alone(one.site), one.step
        for key, before in list(self.unlike.items()):
            comes_no_more = before.times == 1 and number > before.number + 1
            if key[1] == optimizer and number > before.number and (key[0] == line or comes_no_more):
                del self.unlike[key]

    def _add(self, one: _Stepped, value: float, values: Sequence[float | None], optimizer: int, number: int) -> None:
        key = user_lines.line_alone(one.site), optimizer
        before = self.unlike.get(key)
        if before is not None:
            self.unlike[key] = replace(before, times=before.times + 1)
        elif len(self.unlike) < MOST_LINES:
            is_nan = math.isnan(value)
            origin, module = (
                one.forwards.origin(values, is_nan, self.usual) if one.forwards is not None else ("unseen", "")
            )
            self.unlike[key] = NotFinite(
                site=one.site,
                backward=one.backward,
                is_nan=is_nan,
                origin=origin,
                module=module,
                optimizer=optimizer,
                number=number,
                times=1,
            )


_seen = _Seen(None)


def watch() -> None:
    """See losses from now on."""
    gradient_events.BACKWARD_BEGINS.also(_begins)
    gradient_events.STEP.also(_steps)
    endings.before_end(_end)


def _of(writer: recorder.Recorder) -> _Seen:
    global _seen
    if _seen.writer is not writer:
        _seen = _Seen(writer)
    return _seen


def _begins(given: Any) -> None:
    writer = recorder.current()
    forwards = forward_values.taken()
    if writer is None or not isinstance(given, (torch.Tensor, list, tuple)):  # an iterator is used up by a look
        return
    for loss in (given,) if isinstance(given, torch.Tensor) else given:
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.is_floating_point():
            _of(writer).note(writer, loss, forwards)


def _steps(writer: recorder.Recorder, optimizer: int, number: int, *_: Any) -> None:
    if _seen.writer is writer:
        _seen.stepped(writer, optimizer, number)


def _end() -> None:
    writer = recorder.always()
    if writer is not None and _seen.writer is writer and _seen.met:
        _seen.write(writer)


def _value(loss: torch.Tensor) -> float | torch.Tensor | None:
    """What it is, as a number of the host's, or as one that its device keeps; None where a look is not possible."""
    if has_own_dispatch(loss) or is_tracing() or asleep():
        return None
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            own = own_part(loss)
            if own is None or own.numel() != 1 or own.is_meta:
                return None
            if own.device.type == "cpu":
                return float(own.detach())
            return own.detach().reshape(()).to(torch.float32, copy=True)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        overlooked("memory")
        return None
